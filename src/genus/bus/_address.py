"""`open_bus`: from an address to a bus."""

from collections.abc import Callable

from genus.bus._bus import Bus, ErrorHandler, Link
from genus.errors import BusError


def open_bus(address: str = "local:", *, on_error: ErrorHandler | None = None, check: bool = False) -> Bus:
    """Open the bus at an address; use it in a `with` block.

    `local:` stays within this process. `ipc:NAME` reaches the other processes of this user on this machine that
    opened the same name (the default name is `genus`). `can:INTERFACE?option=value&...` is a CAN bus through any
    interface of python-can: see docs/can.md. With `check`, every published event is checked against its
    declared types first, which costs about a microsecond per attribute. `on_error` gets (listener, event, error) when
    a handler raises; without it, errors are logged.

    >>> open_bus("carrier-pigeon:")
    Traceback (most recent call last):
    genus.errors.BusError: no bus is reached by 'carrier-pigeon:'; known are local:, ipc:, can:
    """
    scheme, colon, rest = address.partition(":")
    if not colon or scheme not in _LINKS:
        known = ", ".join(f"{name}:" for name in _LINKS)
        raise BusError(f"no bus is reached by {address!r}; known are {known}")
    return Bus(_LINKS[scheme](rest), on_error=on_error, check_events=check)


def _no_link(rest: str) -> Link | None:
    if rest:
        raise BusError(f"local: takes no name, but was given {rest!r}")
    return None


def _ipc_link(name: str) -> Link | None:
    from genus.bus._ipc import IpcLink

    return IpcLink(name or "genus")


def _can_link(rest: str) -> Link | None:
    from importlib import import_module

    link: Link = import_module("genus.can._live.link").CanLink(rest)  # the room above: known by name only
    return link


_LINKS: dict[str, Callable[[str], Link | None]] = {"local": _no_link, "ipc": _ipc_link, "can": _can_link}
