"""Addresses of networks: options as tables, and the tables of `ipc:`, `zenoh:` and `coap:`.

Options of addresses: a struct is the table, and `read_options` reads what follows the `?` by it.

A field of the table that an address can set is `Annotated` with a reader, and a line that says what it means:

>>> class BellOptions(msgspec.Struct, frozen=True):
...     tower: str
...     strikes: Annotated[int, whole(1, 12), "how often it strikes"] = 1
...     pause_s: Annotated[float, span(zero=False), "between two strikes"] = 2.0
>>> BellOptions("west", **read_options(BellOptions, "bell:west", "strikes=3&pause=500ms"))
BellOptions(tower='west', strikes=3, pause_s=0.5)
>>> read_options(BellOptions, "bell:west", "strikes=13")
Traceback (most recent call last):
genus.errors.BusError: bell:west: strikes is '13'; write a whole number from 1 to 12
>>> read_options(BellOptions, "bell:west", "strike=3")
Traceback (most recent call last):
genus.errors.BusError: bell:west: there is no option 'strike'; did you mean 'strikes'? known are strikes, pause

The part of an address behind `ipc:`: the name of the bus, and the bounds of its queues.

Addresses of zenoh networks: `zenoh:REALM?option=value&...`.

Addresses of CoAP: `coap://HOST[:PORT][,HOST...]?option=value&...` for servers of others, `listen` for one's own.
"""

import os
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, TypeAlias, get_args, get_type_hints
from urllib.parse import unquote

import msgspec

from genus.bus.types import Overflow
from genus.errors import BusError, did_you_mean
from genus.model import seconds

RENAMED: Final = {"full": "overflow", "receive_full": "receive_overflow"}
"""Options of earlier versions, with their names now."""

Reader: TypeAlias = Callable[[str, str], Any]
"""Reads a value from its text. It gets a name for messages, too, and raises BusError."""


class Option(NamedTuple):
    """An option of an address: the field that it sets, how it is read, and what it says."""

    field: str
    read: Reader
    says: str


class Several(NamedTuple):
    """Reads one value of an option that may be given several times."""

    read: Reader

    def __call__(self, what: str, text: str) -> Any:
        return self.read(what, text)


@cache
def option_table(cls: type) -> Mapping[str, Option]:
    """Return the options of a table by name, which is the field's without the unit of spans."""
    hints = get_type_hints(cls, include_extras=True)
    names = [field.name for field in msgspec.structs.fields(cls)]
    made = [Option(name, *hints[name].__metadata__) for name in names if hasattr(hints[name], "__metadata__")]
    return {option.field.removesuffix("_s"): option for option in made}


def read_options(cls: type, place: str, query: str) -> dict[str, Any]:
    """Return the fields of a table that `name=value&name=value` sets; `place` names the address in messages.

    Raises:
        BusError: An option is unknown, given twice, or has a wrong value.
    """
    table, found = option_table(cls), dict[str, Any]()
    for piece in filter(None, query.split("&")):
        name, equals, text = piece.partition("=")
        if not equals:
            raise BusError(f"{place}: write options as name=value, joined by &")
        name = unquote(name)
        if name not in table:
            hint = f"it is called {now} now; " if (now := RENAMED.get(name)) in table else did_you_mean(name, table)
            raise BusError(f"{place}: there is no option {name!r}; {hint}known are {', '.join(table)}")
        field, read, _ = table[name]
        is_several = isinstance(read, Several)
        if field in found and not is_several:
            raise BusError(f"{place}: {name}= is given twice")
        value = read(f"{place}: {name}", unquote(text))
        found[field] = (*found.get(field, ()), value) if is_several else value
    return found


# -- readers -----------------------------------------------------------------------------------------------------------


def any_text(what: str, text: str) -> str:
    return text


def path(what: str, text: str) -> Path:
    """Read the name of a file; whoever opens it says whether it can be read."""
    return Path(text)


def flag(what: str, text: str) -> bool:
    """Read 1 or 0."""
    if text not in ("0", "1"):
        raise BusError(f"{what} is {text!r}; write 1 or 0")
    return text == "1"


def whole(least: int, most: int = 1 << 30) -> Reader:
    def read(what: str, text: str) -> int:
        is_number = text.isascii() and text.isdecimal() and len(text) < 20  # int() refuses very many digits
        if not is_number or not least <= int(text) <= most:
            raise BusError(f"{what} is {text!r}; write a whole number from {least} to {most}")
        return int(text)

    return read


def span(zero: bool = True) -> Reader:
    """Read a length of time, in seconds."""
    return lambda what, text: seconds(text, what, zero=zero, error=BusError)


def matching(form: str, write: str) -> Reader:
    """Read a text that matches a regular expression; `write` says what to write."""

    def read(what: str, text: str) -> str:
        if not re.fullmatch(form, text):
            raise BusError(f"{what} is {text!r}; write {write}")
        return text

    return read


def choice(*choices: str, **refused: str) -> Reader:
    """Read one of some words; of others, `refused` says why they are none of them."""

    def read(what: str, text: str) -> str:
        if text not in choices:
            why = f"which is not possible: {refused[text]}; " if text in refused else did_you_mean(text, choices)
            raise BusError(f"{what} is {text!r}; {why}choose one of {', '.join(choices)}")
        return text

    return read


NO_CALLER: Final = "a packet that arrives has no caller that could be told"
SEND_OVERFLOW: Final = choice(*get_args(Overflow))
RECEIVE_OVERFLOW: Final = choice("block", "drop_oldest", "drop_newest", **{"raise": NO_CALLER})


# -- all networks ------------------------------------------------------------------------------------------------------


class NetOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options that the addresses of all networks have, but for CoAP."""

    realm_key: Annotated[str | None, any_text, "a file with the key that participants seal packets with"] = None
    grants: Annotated[str | None, any_text, "a file with grants: refuse here what they do not allow `user`"] = None
    user: Annotated[str | None, any_text, "the user that the grants are about"] = None
    format: Annotated[str, choice("cloudevents", "cloudevents-binary"), "send events as CloudEvents"] = ""
    cloudevents: Annotated[tuple[str, ...], Several(any_text), "topics or keys of CloudEvents of others"] = ()


CAPACITY: Final = 10_000


class IpcOptions(NetOptions, frozen=True):
    """The bounds of the queues of an `ipc:` bus. All are also bounded to 64 MB and one packet."""

    overflow: Annotated[Overflow, SEND_OVERFLOW, "when the queue for a receiver, in the publisher, is full"] = (
        "drop_oldest"
    )
    capacity: Annotated[int, whole(1), "packets in the queue for each receiver"] = CAPACITY
    receive_overflow: Annotated[Overflow, RECEIVE_OVERFLOW, "when packets come faster than handlers take them"] = (
        "drop_oldest"
    )
    receive_capacity: Annotated[int, whole(1), "packets that wait for handlers"] = CAPACITY


def parse_ipc_address(rest: str) -> tuple[str, IpcOptions]:
    """Name and options of `ipc:NAME?option=value&...`; the name `genus` if there is none.

    Raises:
        BusError: An option is unknown or its value is wrong.

    >>> name, options = parse_ipc_address("plant?overflow=block&capacity=100")
    >>> name, options.overflow, options.capacity, options.receive_overflow
    ('plant', 'block', 100, 'drop_oldest')
    """
    name, _, query = rest.partition("?")
    return name or "genus", IpcOptions(**read_options(IpcOptions, "ipc", query))


MEETING_PORT = 17447
_REALM = re.compile(r"[A-Za-z0-9_-]+")
_read_endpoint = matching(r"[a-z][a-z0-9_-]*/\S+", "an endpoint: tcp/host:port or tls/host:port")
_read_overflow = choice(
    "drop_newest",
    "block",
    drop_oldest="zenoh's queue drops the newest packet",
    **{"raise": "zenoh does not tell that its queue is full"},
)
_read_receive_full = choice(
    "drop_oldest",
    "drop_newest",
    block="zenoh's own threads would wait, and with them all other packets",
    **{"raise": NO_CALLER},
)


def _read_file(what: str, text: str) -> Path:
    if not os.path.isfile(text):  # unlike `Path.is_file` it refuses nothing by an error
        raise BusError(f"{what} is {text!r}, which is not a file")
    return Path(text)


class ZenohOptions(NetOptions, frozen=True):
    """What the address of a zenoh network says. With a router named, nothing is looked for and all goes through it."""

    realm: str = "genus"
    connect: Annotated[tuple[str, ...], Several(_read_endpoint), "routers or peers to connect to"] = ()
    listen: Annotated[tuple[str, ...], Several(_read_endpoint), "where others can reach this process"] = ()
    mode: Annotated[str, choice("peer", "client"), "a client sends all through its router; default with `connect`"] = (
        "peer"
    )
    scouting: Annotated[str, choice("loopback", "lan", "off"), "how others are found without `connect`"] = "loopback"
    port: Annotated[int, whole(1, 65_535), "of this machine, at which processes meet without a server"] = MEETING_PORT
    wait_s: Annotated[float, span(), "how long `open` waits for a router that is down"] = 3.0
    ca: Annotated[Path | None, _read_file, "the authority to trust"] = None
    cert: Annotated[Path | None, _read_file, "the certificate of this process, for mutual TLS"] = None
    key: Annotated[Path | None, _read_file, "the key of this certificate"] = None
    config: Annotated[Path | None, _read_file, "a configuration file of zenoh; other options go before it"] = None
    reliable: Annotated[bool, flag, "packets that were lost on the way are sent again"] = False
    capacity: Annotated[int, whole(1, 10_000_000), "packets of a key that are held to be sent again"] = 10_000
    overflow: Annotated[str, _read_overflow, "what happens to a packet that zenoh's queue has no room for"] = (
        "drop_newest"
    )
    receive_capacity: Annotated[int, whole(1, 100_000_000), "packets that wait for handlers"] = 100_000
    receive_overflow: Annotated[str, _read_receive_full, "which of them is dropped if there is one too many"] = (
        "drop_oldest"
    )
    mode_is_given: bool = False

    @property
    def meets(self) -> bool:
        """Whether this process finds others at a port of this machine, without a server."""
        return self.scouting == "loopback" and self.config is None

    @property
    def has_connection(self) -> bool:
        """Whether there is something that this process can lose its connection to."""
        return self.meets or bool(self.connect) or self.mode == "client"


def parse_zenoh_address(rest: str) -> ZenohOptions:
    """Read the part of an address behind `zenoh:`.

    >>> parse_zenoh_address("city?connect=tcp/router:7447").mode
    'client'
    >>> parse_zenoh_address("?conect=tcp/router:7447")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    genus.errors.BusError: zenoh: there is no option 'conect'; did you mean 'connect'? known are connect, listen, ...
    """
    realm, _, query = rest.partition("?")
    if realm and not _REALM.fullmatch(realm):
        raise BusError(f"zenoh: {realm!r} cannot be the name of a realm; use letters, digits, _ and -")
    given = read_options(ZenohOptions, "zenoh", query)
    given["mode_is_given"] = "mode" in given
    given.setdefault("mode", "client" if "connect" in given and "listen" not in given else "peer")
    given.setdefault("scouting", "off" if given.keys() & {"connect", "listen", "config"} else "loopback")
    return _check(ZenohOptions(realm or "genus", **given))


def _check(options: ZenohOptions) -> ZenohOptions:
    if options.mode == "client" and not (options.connect or options.config or options.scouting == "lan"):
        raise BusError("zenoh: mode=client needs a router: name it by connect=tcp/host:7447, or write scouting=lan")
    if options.mode == "client" and options.listen:
        raise BusError("zenoh: a client does not listen; leave out listen= or mode=client")
    if (options.cert is None) != (options.key is None):
        raise BusError("zenoh: cert= and key= belong together: a certificate and its private key")
    if options.scouting == "loopback" and (options.connect or options.listen):
        raise BusError("zenoh: scouting=loopback is for processes of one machine, without connect= and listen=")
    return options


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
