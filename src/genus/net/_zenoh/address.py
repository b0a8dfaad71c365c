"""Addresses of zenoh networks: `zenoh:REALM?option=value&...`."""

import os
import re
from pathlib import Path
from typing import Annotated

from genus.errors import BusError
from genus.net._options import NO_CALLER, NetOptions, Several, choice, flag, matching, read_options, span, whole

PORT = 17447
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
        raise BusError(f"{what} is {text!r}, which is no file")
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
    port: Annotated[int, whole(1, 65_535), "of this machine, at which processes meet without a server"] = PORT
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
