"""Addresses of zenoh networks: `zenoh:REALM?option=value&...`.

| option | says |
|---|---|
| `connect=tcp/host:7447` | a router (or peer) to connect to; may be given several times; `tls/host:port` for TLS |
| `listen=tcp/0.0.0.0:7450` | where this process can be reached by others; may be given several times |
| `mode=peer`, `mode=client` | client: all goes through a router; default: client with `connect`, else peer |
| `scouting=loopback`, `lan`, `off` | how others are found: on this machine (default), by multicast, or not at all |
| `port=17447` | the port of this machine by which processes find each other without a server |
| `wait=10s` | how long `open` waits for a router that is down; default 3 s |
| `ca=FILE`, `cert=FILE`, `key=FILE` | TLS: whom to trust, and the own certificate and its key (mutual TLS) |
| `config=FILE` | a configuration file of zenoh; other options go before it |
| `reliable=1` | packets that were lost on the way are sent again |
| `capacity=10000` | how many packets of a key are held so that they can be sent again |
| `full=drop_newest`, `block` | what happens to a packet that zenoh's queue has no room for |
| `receive_capacity=100000` | how many packets may wait for the handlers of this process |
| `receive_full=drop_oldest`, `drop_newest` | which of them is dropped if there is one too many |
"""

import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from genus.errors import BusError, did_you_mean
from genus.model import seconds

REALM = "genus"
PORT = 17447
WAIT_S = 3.0
CAPACITY = 10_000
RECEIVE_CAPACITY = 100_000

_REALM = re.compile(r"[A-Za-z0-9_-]+")
_ENDPOINT = re.compile(r"[a-z][a-z0-9_-]*/\S+")
_SCOUTING = ("loopback", "lan", "off")
_SENDING_REFUSED = {
    "drop_oldest": "zenoh's queue drops the newest packet",
    "raise": "zenoh does not tell that its queue is full",
}
_RECEIVING_REFUSED = {
    "raise": "a packet that arrives has no caller that could be told",
    "block": "zenoh's own threads would wait, and with them all other packets",
}


class ZenohOptions(msgspec.Struct, frozen=True):
    """What the address of a zenoh network says."""

    realm: str = REALM
    connect: tuple[str, ...] = ()
    listen: tuple[str, ...] = ()
    mode: str = "peer"
    scouting: str = "loopback"
    port: int = PORT
    wait_s: float = WAIT_S
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    config: Path | None = None
    reliable: bool = False
    capacity: int = CAPACITY
    full: str = "drop_newest"
    receive_capacity: int = RECEIVE_CAPACITY
    receive_full: str = "drop_oldest"
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
    genus.errors.BusError: zenoh: 'conect' is no option: did you mean 'connect'? known are ca, capacity, cert, ...
    """
    realm, _, query = rest.partition("?")
    if realm and not _REALM.fullmatch(realm):
        raise BusError(f"zenoh: {realm!r} cannot be the name of a realm; use letters, digits, _ and -")
    given = _options(query)
    options = ZenohOptions(realm or REALM, **{name: value for name, value in given.items() if name != "wait"})
    return _check(_with_defaults(options, given))


def _options(query: str) -> dict[str, Any]:
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError as problem:
        raise BusError(f"zenoh: {query!r} are no options; write name=value&name=value") from problem
    found: dict[str, Any] = {}
    for name, text in pairs:
        read = _READERS.get(name)
        if read is None:
            known = sorted(_READERS)
            raise BusError(f"zenoh: {name!r} is no option: {did_you_mean(name, known)}known are {', '.join(known)}")
        if name in ("connect", "listen"):
            found[name] = (*found.get(name, ()), read(name, text))
        elif name in found:
            raise BusError(f"zenoh: {name}= is given twice")
        else:
            found[name] = read(name, text)
    return found


def _with_defaults(options: ZenohOptions, given: dict[str, Any]) -> ZenohOptions:
    """Choose what the address leaves open: with a router named, nothing is looked for and all goes through it."""
    is_pointed = bool(options.connect or options.listen or options.config)
    is_client = bool(options.connect) and not options.listen
    return msgspec.structs.replace(
        options,
        mode=options.mode if "mode" in given else ("client" if is_client else "peer"),
        scouting=options.scouting if "scouting" in given else ("off" if is_pointed else "loopback"),
        wait_s=given.get("wait", WAIT_S),
        mode_is_given="mode" in given,
    )


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


# -- values of options -------------------------------------------------------------------------------------------------


def _endpoint(name: str, text: str) -> str:
    if not _ENDPOINT.fullmatch(text):
        raise BusError(f"zenoh: {name}={text!r} is no endpoint; write tcp/host:port or tls/host:port")
    return text


def _choice(*choices: str) -> Any:
    def read(name: str, text: str) -> str:
        if text not in choices:
            raise BusError(f"zenoh: {name}={text!r}: {did_you_mean(text, choices)}choose one of {', '.join(choices)}")
        return text

    return read


def _policy(refused: dict[str, str], *choices: str) -> Any:
    read_choice = _choice(*choices)

    def read(name: str, text: str) -> str:
        if text in refused:
            raise BusError(f"zenoh: {name}={text} is not possible: {refused[text]}; choose {' or '.join(choices)}")
        return str(read_choice(name, text))

    return read


def _number(least: int, most: int) -> Any:
    def read(name: str, text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= most:
            raise BusError(f"zenoh: {name}={text!r} is no number from {least} to {most}")
        return int(text)

    return read


def _file(name: str, text: str) -> Path:
    file = Path(text)
    if not file.is_file():
        raise BusError(f"zenoh: {name}={text!r} is no file")
    return file


def _flag(name: str, text: str) -> bool:
    if text not in ("0", "1"):
        raise BusError(f"zenoh: {name}={text!r}: write 1 or 0")
    return text == "1"


def _seconds(name: str, text: str) -> float:
    return seconds(text, f"zenoh: {name}", error=BusError)


_READERS: dict[str, Any] = {
    "connect": _endpoint,
    "listen": _endpoint,
    "mode": _choice("peer", "client"),
    "scouting": _choice(*_SCOUTING),
    "port": _number(1, 65535),
    "wait": _seconds,
    "ca": _file,
    "cert": _file,
    "key": _file,
    "config": _file,
    "reliable": _flag,
    "capacity": _number(1, 10_000_000),
    "full": _policy(_SENDING_REFUSED, "drop_newest", "block"),
    "receive_capacity": _number(1, 100_000_000),
    "receive_full": _policy(_RECEIVING_REFUSED, "drop_oldest", "drop_newest"),
}
