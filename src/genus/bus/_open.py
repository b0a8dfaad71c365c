"""`open_bus`: from an address to a bus, by a registry of links."""

import re
from collections.abc import Callable
from typing import TypeAlias

from genus.bus._bus import Bus, ErrorHandler
from genus.bus._link import Link
from genus.errors import BusError, did_you_mean
from genus.model.internal import is_encodable

LINK_ENTRY_POINTS = "genus.links"
"""The group of entry points by which packages add links: the name is the scheme, the object a `LinkFactory`."""

LinkFactory: TypeAlias = Callable[[str], Link | None]
"""Makes a link from the part of an address behind the scheme."""


def open_bus(
    address: str = "local:",
    *,
    on_error: ErrorHandler | None = None,
    check: bool = False,
    source: str | None = None,
    stamp: bool = False,
) -> Bus:
    """Open the bus at an address; use it in a `with` block.

    | address | reaches |
    |---|---|
    | `local:` | this process |
    | `ipc:NAME` | processes of this user on this machine that opened the same name (default: `genus`) |
    | `zenoh:REALM?option=value&...` | processes that zenoh finds, on this machine or through routers |
    | `mqtt://HOST/REALM?option=value&...`, `mqtts://...` | the clients of an MQTT 5 broker |
    | `coap://HOST?option=value&...`, `coap:?listen=HOST:PORT` | a CoAP server or device; the clients of one's own |
    | `can:INTERFACE?option=value&...` | a CAN bus through an interface of python-can |
    | `sim:WORLD?name=NODE` | a simulated CAN bus of this process, made by `genus.can.World` |

    Args:
        address: A scheme, a colon, and what the scheme's link needs. Packages [add schemes](../architecture.md#links).
        on_error: Is called with listener, event and error when a handler raises; without it, errors are logged.
        check: Check every published event against its declared types, as all links do. That takes longer
            than publishing it to a handler, so that `local:` does it only if asked.
        source: The `source` of events that are published here without one.
        stamp: Give events that are published here without a `time` that of publishing, on the bus's clock.

    Raises:
        BusError: The address is wrong, or the link cannot be opened; the message says why.

    >>> from genus import Event
    >>> with open_bus(source="gate-7") as bus:
    ...     listener = bus.collection(Event).subscribe(print)
    ...     bus.publish(Event(place="A8"))
    Event(source='gate-7', place='A8')
    >>> open_bus("cam:vcan0")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    genus.errors.BusError: 'cam:vcan0' is not an address of a bus: did you mean 'can'? known are can:, coap:...
    """
    scheme, colon, rest = address.partition(":")
    factory = _find_factory(scheme) if colon else None
    if factory is None:
        known = sorted({*_FACTORIES, *_added_schemes()})
        likely = did_you_mean(scheme if colon else f"{address}:", known if colon else [f"{name}:" for name in known])
        if scheme == "socketcan":
            likely = f"write can:socketcan?channel={rest}; "
        schemes = ", ".join(f"{name}:" for name in known)
        raise BusError(f"{shown_address(address)!r} is not an address of a bus: {likely}known are {schemes}")
    if source is not None and (not isinstance(source, str) or not is_encodable(source)):
        raise BusError(f"source={source!r} is not text that events can carry")
    return Bus(factory(rest), on_error=on_error, check=check, source=source, stamp=stamp)


def shown_address(address: str) -> str:
    """Return an address without its password, for messages and pages.

    >>> shown_address("mqtt://ann:secret@broker/city"), shown_address("ipc:city")
    ('mqtt://ann:...@broker/city', 'ipc:city')
    """
    return re.sub(r"(//[^/?#:@]*):[^/?#]*@", r"\1:...@", address)


def register_link(scheme: str, factory: LinkFactory) -> None:
    """Let `open_bus` open addresses of a scheme with a link of your own.

    Packages do this without being imported, by an entry point of the group `genus.links`.

    Args:
        scheme: The part of addresses before the colon.
        factory: Is called with the part behind the colon when a bus is opened; returns its link.

    Raises:
        BusError: The scheme is not an identifier.

    >>> register_link("loopback", lambda name: None)
    >>> open_bus("loopback:").link is None
    True
    """
    if not scheme.isidentifier():
        raise BusError(f"{scheme!r} cannot be the scheme of an address; use letters, digits and _")
    _FACTORIES[scheme] = factory


def _find_factory(scheme: str) -> LinkFactory | None:
    if scheme not in _FACTORIES and scheme in (added := _added_schemes()):
        _FACTORIES[scheme] = added[scheme]()
    return _FACTORIES.get(scheme)


def _added_schemes() -> dict[str, Callable[[], LinkFactory]]:
    """What packages add by entry points; reading their metadata takes milliseconds, so only unknown schemes do it."""
    from importlib.metadata import entry_points

    return {entry.name: entry.load for entry in entry_points(group=LINK_ENTRY_POINTS)}


def _open_local(rest: str) -> None:
    if rest:
        raise BusError(f"local: takes no {'options' if rest.startswith('?') else 'name'}, but was given {rest!r}")


_FACTORIES: dict[str, LinkFactory] = {"local": _open_local}
