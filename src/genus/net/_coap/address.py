"""Addresses of CoAP: `coap://HOST[:PORT][,HOST...]?option=value&...` for servers of others, `listen` for one's own."""

import re
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl

import msgspec

from genus.errors import BusError, did_you_mean
from genus.model import seconds

PORT: Final = 5683
SECURE_PORT: Final = 5684
_SPANS: Final = ("beat", "ack_timeout", "poll")
_NUMBERS: Final = ("retransmits", "capacity", "largest")
OPTIONS: Final = ("listen", "catalog", "credentials", *_SPANS, *_NUMBERS)
_PLACE: Final = re.compile(r"(\[[0-9A-Fa-f:.%\w]+\]|[^\[\]:/@\s]+)(?::(\d{1,5}))?")


class Place(NamedTuple):
    """A host and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class CoapOptions(msgspec.Struct, frozen=True):
    """What an address says, with the defaults.

    `servers` are those of others, `listen` is one's own place. `beat_s` is how often a server is asked whether it is
    there and knows this client, `poll_s` how often a resource is read that cannot be observed. `capacity` events wait
    for a server or an observer, and `largest` bytes has the largest event.
    """

    servers: tuple[Place, ...] = ()
    listen: Place | None = None
    secure: bool = False
    catalog: Path | None = None
    credentials: Path | None = None
    beat_s: float = 5.0
    ack_timeout_s: float = 1.0
    poll_s: float = 10.0
    retransmits: int = 3
    capacity: int = 10_000
    largest: int = 65_536

    @property
    def shown(self) -> str:
        """The address for messages, without options."""
        scheme = "coaps" if self.secure else "coap"
        if self.servers:
            return f"{scheme}://{','.join(map(str, self.servers))}"
        return f"{scheme}:?listen={self.listen}"


def parse_coap_address(rest: str, secure: bool = False) -> CoapOptions:
    """The options in an address, from what stands behind `coap:` or, with `secure`, behind `coaps:`.

    Raises:
        BusError: A part of the address is wrong, or an option is unknown.

    >>> parse_coap_address("//sensor.local?beat=2s").servers
    (Place(host='sensor.local', port=5683),)
    >>> parse_coap_address("?listen=127.0.0.1:5700").listen
    Place(host='127.0.0.1', port=5700)
    >>> parse_coap_address("//host?lisen=x")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    genus.errors.BusError: coap://host: there is no option 'lisen'; did you mean 'listen'? known are listen, ...
    """
    scheme, default = ("coaps", SECURE_PORT) if secure else ("coap", PORT)
    place, _, query = rest.partition("?")
    shown = f"{scheme}:{place}"
    if place and not place.startswith("//"):
        raise BusError(f"{shown}: write {scheme}://HOST for a server, or {scheme}:?listen=HOST:PORT to be one")
    given = _options(shown, query)
    hosts = [text for text in place.removeprefix("//").rstrip("/").split(",") if text]
    servers = tuple(_place(shown, "the server", text, default) for text in hosts)
    listen = _place(shown, "listen", given["listen"], default) if "listen" in given else None
    if not servers and listen is None:
        raise BusError(f"{shown}: names no server; write {scheme}://HOST, or {scheme}:?listen=HOST:PORT to be one")
    spans = {f"{name}_s": _span(shown, name, given[name]) for name in _SPANS if name in given}
    numbers = {name: _number(shown, name, given[name]) for name in _NUMBERS if name in given}
    files = {name: Path(given[name]) for name in ("catalog", "credentials") if name in given}
    parts: Any = {**spans, **numbers, **files}
    return CoapOptions(servers, listen, secure, **parts)


def _options(shown: str, query: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in OPTIONS:
            likely = did_you_mean(name, OPTIONS)
            raise BusError(f"{shown}: there is no option {name!r}; {likely}known are {', '.join(OPTIONS)}")
        if name in found:
            raise BusError(f"{shown}: {name}= is given twice")
        found[name] = value
    return found


def _place(shown: str, what: str, text: str, default: int) -> Place:
    parsed = _PLACE.fullmatch(text)
    port = int(parsed[2] or default) if parsed else -1
    if parsed is None or not 0 <= port <= 65_535:
        raise BusError(f"{shown}: {what} is {text!r}; write HOST, HOST:PORT or [ADDRESS]:PORT")
    return Place(parsed[1].strip("[]"), port)


def _span(shown: str, name: str, text: str) -> float:
    return seconds(text, f"{shown}: {name}", zero=False, error=BusError)


def _number(shown: str, name: str, text: str) -> int:
    least = 0 if name == "retransmits" else 1
    if not text.isdecimal() or len(text) > 9 or int(text) < least:
        raise BusError(f"{shown}: {name} is {text!r}; it must be an integer of at least {least}")
    return int(text)
