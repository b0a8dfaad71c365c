"""`can:` addresses: a python-can interface with its options, and the options of Genus."""

import os
from hashlib import blake2b
from pathlib import Path
from urllib.parse import parse_qsl

import msgspec

from genus.can._plan.system import read_bitrate
from genus.can._wire.length import Timing
from genus.errors import BusError
from genus.model import nanoseconds

_INTEGERS = ("uid", "number", "banks")
_BITRATES = ("bitrate", "data_bitrate")
_FOREIGN = ("database", "cyclic", "j1939", "nmea2000", "truncated")
OWN_OPTIONS = (*_INTEGERS, *_BITRATES, *_FOREIGN, "name", "catalog", "plan", "synchronised", "granularity", "confirm")
"""Options of Genus; all others are python-can's, and checked when the interface is opened."""

_OF_NODES = ("uid", "number", "name", "catalog", "plan")
"""Options by which an address with a database says that it is a Genus node too."""


class CanAddress(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of an address `can:INTERFACE?option=value&...`.

    >>> parse_address("virtual?channel=city&name=loop-1&bitrate=500k").options
    {'channel': 'city'}
    """

    interface: str
    options: dict[str, str]
    """The options of python-can."""
    name: str = ""
    """The node's name in the plan."""
    uid: int
    number: int | None = None
    catalog: Path | None = None
    plan: Path | None = None
    timing: Timing
    banks: int | None = None
    """How many acceptance filters the controller has; None if that is not limited."""
    synchronised: bool = True
    granularity_ns: int = 1_000_000
    """How long this computer may take to notice a frame."""
    confirm: str | None = None
    """`echo` or `send`: how the interface confirms what was sent; None if the table of interfaces says it."""

    databases: tuple[Path, ...] = ()
    """Files that describe the frames of other makers."""
    cyclic: bool = True
    """Whether messages of databases are sent again every cycle time that these have."""
    j1939: bool | None = None
    """Whether messages with 29-bit identifiers are J1939 messages; None if the databases say it."""
    nmea2000: bool = False
    """Whether they are, and long ones are sent in the fast packets of NMEA 2000."""
    truncated: bool = False
    """Whether frames that are shorter than their message are decoded as far as they reach."""
    joins: bool = True
    """Whether it takes part as a Genus node; with databases only if something of a node is given."""

    @property
    def fd(self) -> bool:
        """Whether frames are CAN FD, of up to 64 bytes."""
        return self.timing.data_bitrate is not None


def parse_address(text: str) -> CanAddress:
    """Parse an address without its `can:`; BusError names the option that is wrong.

    >>> parse_address("virtual?number=many")
    Traceback (most recent call last):
    genus.errors.BusError: can:virtual?number=many: number is 'many'; it must be a whole number
    """
    interface, _, query = text.partition("?")
    if not interface:
        raise BusError(
            f"can:{text} names no interface; write for example can:udp_multicast or can:socketcan?channel=can0"
        )
    options = _split_options(text, query)
    own = {name: options.pop(name) for name in OWN_OPTIONS if name in options}
    _check_database(text, own)
    numbers = {name: _parse_integer(text, name, own[name]) for name in _INTEGERS if name in own}
    rates = {name: _parse_bitrate(text, name, own[name]) for name in _BITRATES if name in own}
    if numbers.get("banks", 1) < 1:
        raise BusError(f"can:{text}: banks is {numbers['banks']}; a controller has at least one filter")
    name = own.get("name", "")
    return CanAddress(
        interface=interface,
        options=options,
        name=name,
        uid=numbers.get("uid", _make_uid(name)),
        number=numbers.get("number"),
        catalog=Path(own["catalog"]) if "catalog" in own else None,
        plan=Path(own["plan"]) if "plan" in own else None,
        timing=_timing(text, rates.get("bitrate", 1_000_000), rates.get("data_bitrate")),
        banks=numbers.get("banks"),
        granularity_ns=nanoseconds(own.get("granularity", "1ms"), f"can:{text}: granularity", error=BusError),
        confirm=_parse_confirm(text, own.get("confirm")),
        synchronised=_parse_yes_or_no(text, "synchronised", own.get("synchronised", "yes")),
        databases=tuple(Path(part) for part in own.get("database", "").split(",") if part),
        cyclic=_parse_yes_or_no(text, "cyclic", own.get("cyclic", "yes")),
        j1939=_parse_yes_or_no(text, "j1939", own["j1939"]) if "j1939" in own else None,
        nmea2000=_parse_yes_or_no(text, "nmea2000", own.get("nmea2000", "no")),
        truncated=_parse_yes_or_no(text, "truncated", own.get("truncated", "no")),
        joins="database" not in own or any(option in own for option in _OF_NODES),
    )


def _check_database(text: str, own: dict[str, str]) -> None:
    if own.get("database") == "":
        raise BusError(f"can:{text}: database is empty; write the path of a DBC file")
    if "database" not in own and (alone := next((name for name in _FOREIGN if name in own), None)):
        raise BusError(f"can:{text}: {alone} is about the messages of a database; add database=FILE")


def _split_options(text: str, query: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError:
        raise BusError(f"can:{text}: write options as name=value, joined by &") from None
    names = [name for name, _ in pairs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise BusError(f"can:{text}: {twice} is given more than once")
    return dict(pairs)


def _timing(text: str, bitrate: int, data_bitrate: int | None) -> Timing:
    try:
        return Timing(bitrate, data_bitrate)
    except BusError as problem:
        raise BusError(f"can:{text}: {problem}") from None


def _parse_integer(text: str, name: str, value: str) -> int:
    try:
        return int(value, 0)
    except ValueError:
        raise BusError(f"can:{text}: {name} is {value!r}; it must be a whole number") from None


def _parse_bitrate(text: str, name: str, value: str) -> int:
    try:
        return read_bitrate(value)
    except ValueError:
        raise BusError(
            f"can:{text}: {name} is {value!r}; write bits per second, such as 500000, 500k or 83.333k"
        ) from None


def _parse_yes_or_no(text: str, name: str, value: str) -> bool:
    if value not in ("yes", "no"):
        raise BusError(f"can:{text}: {name} is {value!r}; write yes or no")
    return value == "yes"


def _parse_confirm(text: str, value: str | None) -> str | None:
    if value not in (None, "echo", "send"):
        raise BusError(f"can:{text}: confirm is {value!r}; write echo or send")
    return value


def _make_uid(name: str) -> int:
    """The uid of a named node is the same at every start on this machine; a node without a name gets a random one."""
    seed = f"{os.uname().nodename}/{name}".encode() if name else os.urandom(16)
    return int.from_bytes(blake2b(seed, digest_size=8).digest(), "big") or 1
