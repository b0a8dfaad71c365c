"""Addresses of CoAP: `coap://HOST[:PORT][,HOST...]?option=value&...` for servers of others, `listen` for one's own."""

import re
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import msgspec

from genus.errors import BusError
from genus.net._options import path, read_options, span, whole

PORT: Final = 5683
SECURE_PORT: Final = 5684
UNSAID: Final = -1
"""Instead of the port of a place that is given without one."""
_PLACE: Final = re.compile(r"(\[[0-9A-Fa-f:.%\w]+\]|[^\[\]:/@\s]+)(?::(\d{1,5}))?")


class Place(NamedTuple):
    """A host and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _read_place(what: str, text: str, default_port: int = UNSAID) -> Place:
    parsed = _PLACE.fullmatch(text)
    port = int(parsed[2] or default_port) if parsed else UNSAID
    if parsed is None or port > 65_535:
        raise BusError(f"{what} is {text!r}; write HOST, HOST:PORT or [ADDRESS]:PORT")
    return Place(parsed[1].strip("[]"), port)


class CoapOptions(msgspec.Struct, frozen=True):
    """What an address says, with the defaults; `servers` are those of others."""

    servers: tuple[Place, ...] = ()
    listen: Annotated[Place | None, _read_place, "one's own place"] = None
    secure: bool = False
    catalog: Annotated[Path | None, path, "the types, codes and vectors"] = None
    credentials: Annotated[Path | None, path, "keys for OSCORE"] = None
    beat_s: Annotated[float, span(zero=False), "how often a server is asked if it is there and knows this client"] = 5.0
    ack_timeout_s: Annotated[float, span(zero=False), "when a message is sent again without acknowledgement"] = 1.0
    poll_s: Annotated[float, span(zero=False), "how often a resource is read that cannot be observed"] = 10.0
    retransmits: Annotated[int, whole(0), "how often a message is sent again"] = 3
    capacity: Annotated[int, whole(1), "events that wait for a server or an observer"] = 10_000
    largest: Annotated[int, whole(1), "bytes of the largest event"] = 65_536

    @property
    def shown(self) -> str:
        """The address for messages, without options."""
        scheme = "coaps" if self.secure else "coap"
        if self.servers:
            return f"{scheme}://{','.join(map(str, self.servers))}"
        return f"{scheme}:?listen={self.listen}"


def parse_coap_address(rest: str, secure: bool = False) -> CoapOptions:
    """Return the options in an address, from what stands behind `coap:` or, with `secure`, behind `coaps:`.

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
    given = read_options(CoapOptions, shown, query)
    hosts = [text for text in place.removeprefix("//").rstrip("/").split(",") if text]
    servers = tuple(_read_place(f"{shown}: the server", text, default) for text in hosts)
    listen: Place | None = given.pop("listen", None)
    if not servers and listen is None:
        raise BusError(f"{shown}: names no server; write {scheme}://HOST, or {scheme}:?listen=HOST:PORT to be one")
    if listen is not None and listen.port == UNSAID:
        listen = listen._replace(port=default)
    return CoapOptions(servers, listen, secure, **given)
