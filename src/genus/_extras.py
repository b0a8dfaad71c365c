"""Messages for missing extras: which command installs them, and a Java, which no extra brings to every machine."""

from typing import Any

INSTALL_JAVA = "apt install openjdk-17-jre-headless, brew install openjdk@17 or conda install openjdk=17"


def missing_extra(what: str, extra: str) -> ImportError:
    """An ImportError that says what needs an extra, and the command that installs it.

    >>> str(missing_extra("the lake needs pyspark", "lake")).startswith("the lake needs pyspark: pip install ")
    True
    """
    return ImportError(f"{what}: {install_command(extra)}")


def install_command(extra: str) -> str:
    """Return the command that installs an extra from where Genus itself was installed: a checkout, a URL or an index.

    >>> install_command("mqtt").endswith("[mqtt]'")
    True
    """
    import json  # these are slow to import, and rarely needed
    from importlib.metadata import PackageNotFoundError, distribution
    from pathlib import Path

    try:
        text = distribution("genus").read_text("direct_url.json")
    except PackageNotFoundError:  # it is imported from a checkout that was not installed
        return f"pip install -e '{Path(__file__).parents[2]}[{extra}]'"
    return f"pip install {_source(json.loads(text or '{}'), extra)}"


def _source(origin: dict[str, Any], extra: str) -> str:
    """Return what pip is to install, from the origin that it stored (PEP 610); none if it came from an index.

    >>> _source({"url": "file:///work/my%20genus", "dir_info": {"editable": True}}, "mqtt")
    "-e '/work/my genus[mqtt]'"
    >>> _source({"url": "file:///work/genus", "dir_info": {}}, "mqtt"), _source({}, "mqtt")
    ("'/work/genus[mqtt]'", "'genus[mqtt]'")
    >>> _source({"url": "https://host/genus", "vcs_info": {"vcs": "git", "commit_id": "4f2a"}}, "mqtt")
    "'genus[mqtt] @ git+https://host/genus@4f2a'"
    """
    from urllib.parse import unquote

    url = origin.get("url", "")
    if "dir_info" in origin:
        folder = unquote(url.removeprefix("file://"))
        return f"{'-e ' if origin['dir_info'].get('editable') else ''}'{folder}[{extra}]'"
    if "vcs_info" in origin:
        url = f"{origin['vcs_info']['vcs']}+{url}@{origin['vcs_info']['commit_id']}"
    return f"'genus[{extra}] @ {url}'" if url else f"'genus[{extra}]'"
