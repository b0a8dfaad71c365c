"""Messages for missing extras: which command installs them."""


def missing_extra(what: str, extra: str) -> ImportError:
    """An ImportError that says what needs an extra, and the command that installs it.

    >>> str(missing_extra("the lake needs pyspark", "lake")).startswith("the lake needs pyspark: pip install ")
    True
    """
    return ImportError(f"{what}: {install_command(extra)}")


def install_command(extra: str) -> str:
    """The command that installs an extra into this environment, for a checkout or for a package."""
    checkout = _checkout()
    return f"pip install 'genus[{extra}]'" if checkout is None else f"pip install -e '{checkout}[{extra}]'"


def _checkout() -> str | None:
    """The folder that Genus was installed from with `pip install -e`; None if it was installed as a package."""
    import json
    from importlib.metadata import PackageNotFoundError, distribution  # slow to import, and rarely needed

    try:
        text = distribution("genus").read_text("direct_url.json")
    except PackageNotFoundError:
        return None
    origin = json.loads(text) if text else {}
    url = str(origin.get("url", ""))
    is_checkout = origin.get("dir_info", {}).get("editable") and url.startswith("file://")
    return url.removeprefix("file://") if is_checkout else None
