"""Optional parts: what to install when a module that an extra brings is missing."""

import json
from importlib.metadata import PackageNotFoundError, distribution


def missing_extra(what: str, extra: str) -> ImportError:
    """The error for something that needs an extra: it names the command that installs the extra here.

    >>> str(missing_extra("the lake needs pyspark", "lake")).startswith("the lake needs pyspark: pip install ")
    True
    """
    return ImportError(f"{what}: {install_command(extra)}")


def install_command(extra: str) -> str:
    """The command that adds an extra to this installation of Genus, be it of a checkout or of a package."""
    checkout = _checkout()
    return f"pip install 'genus[{extra}]'" if checkout is None else f"pip install -e '{checkout}[{extra}]'"


def _checkout() -> str | None:
    """The folder that Genus was installed from with `pip install -e`; None if it was installed as a package."""
    try:
        text = distribution("genus").read_text("direct_url.json")
    except PackageNotFoundError:
        return None
    origin = json.loads(text) if text else {}
    url = str(origin.get("url", ""))
    is_checkout = origin.get("dir_info", {}).get("editable") and url.startswith("file://")
    return url.removeprefix("file://") if is_checkout else None
