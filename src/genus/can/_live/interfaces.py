"""`can:` addresses, and what is known of python-can's interfaces: confirmations, options and sockets.

The table is read from the source of python-can 4.6. An interface confirms a frame by its *echo*: the controller returns
the frame when it was sent. `receive_own_messages` asks for that; `Message.is_rx` is False for an echo where the
interface marks it. `send` of most interfaces returns when the driver has put the frame into its queue, which says
nothing.

**Options.** Most interfaces ignore keyword arguments that they do not know, so a misspelled option would have no effect
and nobody would notice. What an interface knows is read from its class: the parameters of its constructors, and those
that their docstrings describe (`:param NAME:`), because some interfaces take all of them as `**kwargs`.

**Datagrams.** A socket holds datagrams until the program reads them, and drops more than fit. With the system's usual
size that is after some 200 frames: 50 ms at 5,000 frames a second, for which a busy computer may well not run a
program. Linux counts the dropped datagrams of each socket (`drops` in `/proc/net/udp`).
"""

import inspect
import os
import re
import socket
from collections.abc import Mapping
from enum import StrEnum
from hashlib import blake2b
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from can.interface import _get_class_for_interface

import can
from genus.can._plan.system import read_bitrate
from genus.can._wire.frame import Timing
from genus.errors import BusError, did_you_mean
from genus.model import nanoseconds

# -- addresses ---------------------------------------------------------------------------------------------------------

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


# -- interfaces --------------------------------------------------------------------------------------------------------


class Confirmation(StrEnum):
    """How a host learns that a frame was sent."""

    ECHO = "echo"
    """The controller returns it."""
    SEND = "send"
    """It was sent when `send` returned."""
    NONE = "none"
    """It does not: frames count as sent when the driver took them."""
    PROBE = "probe"
    """By its echo if one comes back for the first frame; else it does not."""


class InterfaceProfile(msgspec.Struct, frozen=True, kw_only=True):
    confirmation: Confirmation
    asks_for_echo: bool = False
    """Whether it takes `receive_own_messages`."""
    returns_own: bool = False
    """Whether own frames come back although they are not needed; they are recognised and ignored."""
    marks_own: bool = True
    """Whether `is_rx` of an echo is False."""
    marks_local: bool = False
    """Whether `is_rx` is False for frames of other programs on this computer as well."""
    linux_errors: bool = False
    """Whether error frames have the classes of Linux (`linux/can/error.h`)."""
    filters: int = 0
    """How many acceptance filters it has that let error frames pass; 0 if python-can would filter, error frames too."""
    polled_passive: bool = False
    """Whether `bus.state` is PASSIVE for error passive; elsewhere it means that the interface only listens."""
    why: str
    """Where that is written in python-can, or why it is so."""
    tried: str = "not tried"
    """How Genus was tried with it."""


def _echo(why: str, **more: Any) -> InterfaceProfile:
    return InterfaceProfile(confirmation=Confirmation.ECHO, why=why, **{"asks_for_echo": True, **more})


def _none(why: str, **more: Any) -> InterfaceProfile:
    return InterfaceProfile(confirmation=Confirmation.NONE, why=why, **more)


PROFILES: Mapping[str, InterfaceProfile] = {
    "etas": _echo("OCI_CAN_MSG_FLAG_SELFRECEPTION", polled_passive=True),
    "gs_usb": _echo("`echo_id` of the device, always on", asks_for_echo=False, linux_errors=True, tried="emulated"),
    "ixxat": _echo("self-reception request (`srr`); `is_rx` stays True", marks_own=False),
    "kvaser": _echo("canMSG_LOCAL_TXACK"),
    "neovi": _echo("SPY_STATUS_TX_MSG"),
    "nixnet": _echo("`echo_tx` of the session"),
    "pcan": _echo("PCAN_MESSAGE_ECHO"),
    "socketcan": _echo(
        "CAN_RAW_RECV_OWN_MSGS; MSG_DONTROUTE", marks_local=True, linux_errors=True, filters=512, tried="emulated"
    ),
    "systec": _echo("MODE_TX_ECHO; `is_rx` stays True", marks_own=False),
    "vector": _echo("transmit receipts (XL_CAN_EV_TAG_TX_OK)"),
    "virtual": _echo("`receive_own_messages` of the queue in memory", tried="in one process"),
    "udp_multicast": InterfaceProfile(
        confirmation=Confirmation.SEND,
        returns_own=True,
        marks_own=False,
        why="a datagram has left when `send` returns; there is no arbitration",
        tried="between processes",
    ),
    "canalystii": _none("no echo"),
    "iscan": _none("no echo"),
    "neousys": _none("no echo"),
    "nican": _none("no echo"),
    "robotell": _none("no echo over the serial line"),
    "seeedstudio": _none("no echo over the serial line"),
    "serial": _none("no echo over the serial line"),
    "slcan": _none("no echo over the serial line"),
    "socketcand": _none("the server returns no echo", linux_errors=True, tried="its protocol over a socket"),
    "usb2can": _none("no echo"),
}
"""The interfaces of python-can by name; `cantact` and those of plugins are not known."""

UNKNOWN = InterfaceProfile(
    confirmation=Confirmation.PROBE,
    asks_for_echo=True,
    linux_errors=True,
    why="not known: it is asked for echoes, and the first frame shows whether they come",
    tried="emulated",
)
"""An interface that is not in the table."""


def profile_of(interface: str, confirm: str | None = None) -> InterfaceProfile:
    """What is known of an interface; `confirm` replaces how it confirms; BusError if that is neither echo nor send.

    >>> profile_of("slcan").confirmation, profile_of("slcan", "send").confirmation
    (<Confirmation.NONE: 'none'>, <Confirmation.SEND: 'send'>)
    """
    known = PROFILES.get(interface, UNKNOWN)
    if confirm is None:
        return known
    if confirm not in (Confirmation.ECHO, Confirmation.SEND):
        raise BusError(f"confirm is {confirm!r}; write echo or send")
    chosen = Confirmation(confirm)
    returns_own = known.returns_own or (chosen is Confirmation.SEND and interface == "gs_usb")
    return msgspec.structs.replace(
        known,
        confirmation=chosen,
        asks_for_echo=chosen is Confirmation.ECHO and (known.asks_for_echo or known.confirmation is Confirmation.NONE),
        returns_own=returns_own,
    )


# -- options -----------------------------------------------------------------------------------------------------------

_DOCUMENTED = re.compile(r":param\s+(?:[^:\n]*\s)?(\w+):")
_COMMON = frozenset({"channel", "can_filters"})
"""What every interface takes; one that names nothing else cannot be checked."""
_SWITCHES = {"yes": True, "no": False}
"""Switches are written as those of Genus; python-can knows True and False, and takes any other text as true."""
_NOT_OPTIONS = frozenset({"self", "args", "kwargs"})
_TIMING = frozenset(
    name for kind in (can.BitTiming, can.BitTimingFd) for name in inspect.signature(kind).parameters if name != "strict"
)
"""Bit timings in registers; python-can makes a `timing` of them if they begin with the clock frequency, `f_clock`."""


def known_options(interface: str) -> frozenset[str] | None:
    """Return the options that an interface of python-can knows; None if that cannot be told.

    >>> sorted(known_options("virtual"))  # doctest: +NORMALIZE_WHITESPACE
    ['can_filters', 'channel', 'preserve_timestamps', 'protocol', 'receive_own_messages', 'rx_queue_size']
    """
    try:
        cls = _get_class_for_interface(interface)
    except (can.CanError, ImportError, NotImplementedError):
        return None  # opening it says why
    names = {name for each in cls.__mro__ if each is not object for name in _parameters(each)}
    if not names - _COMMON:
        return None
    return frozenset(names | _TIMING if "timing" in names else names)


def _parameters(cls: type) -> set[str]:
    constructor = vars(cls).get("__init__")
    if constructor is None:
        return set()
    documented = _DOCUMENTED.findall(f"{constructor.__doc__ or ''}\n{cls.__doc__ or ''}")
    return {*inspect.signature(constructor).parameters, *documented} - _NOT_OPTIONS


def interface_arguments(address: CanAddress) -> dict[str, Any]:
    """The keyword arguments for the interface of an address; BusError for an option that neither it nor Genus knows.

    An interface that sets the bit rate of its controller gets that of the address, unless bit timings are given.
    """
    known = known_options(address.interface)
    arguments: dict[str, Any] = {
        name: _SWITCHES.get(value, value) if name != "channel" else value for name, value in address.options.items()
    }
    if address.fd:
        arguments["fd"] = True
    if known is None:
        return arguments
    for name in address.options:
        if name not in known:
            options = sorted({*known, *OWN_OPTIONS} - {"can_filters"})
            raise BusError(
                f"can:{address.interface} has no option {name!r}; {did_you_mean(name, options)}"
                f"it has {', '.join(options)}"
            )
    if "bitrate" in known and not {"timing", "f_clock"} & arguments.keys():
        arguments["bitrate"] = address.timing.bitrate
        if address.fd and "data_bitrate" in known:
            arguments["data_bitrate"] = address.timing.data_bitrate
    return arguments


# -- datagrams ---------------------------------------------------------------------------------------------------------

DATAGRAM_INTERFACES = frozenset({"udp_multicast"})
BUFFER_BYTES = 4 << 20
"""The size that is asked for: some 10,000 frames. The system may allow less (`net.core.rmem_max`)."""
_TABLES = (Path("/proc/net/udp"), Path("/proc/net/udp6"))
_INODE, _DROPS = 9, 12


def enlarge_buffer(descriptor: int) -> int:
    """Ask for more room in the socket of a descriptor; returns how many bytes it has then.

    >>> with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
    ...     enlarge_buffer(made.fileno()) == made.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
    True
    """
    with socket.socket(fileno=os.dup(descriptor)) as same:
        if same.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) < BUFFER_BYTES:
            same.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        return same.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)


def lost_datagrams(descriptor: int) -> int:
    """Return how many datagrams a socket has dropped; 0 where the system does not count them.

    >>> with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
    ...     made.bind(("127.0.0.1", 0))
    ...     lost_datagrams(made.fileno())
    0
    """
    try:
        inode = str(os.fstat(descriptor).st_ino)
        rows = [line.split() for table in _TABLES if table.exists() for line in table.read_text().splitlines()[1:]]
    except OSError:
        return 0
    return next((int(row[_DROPS]) for row in rows if len(row) > _DROPS and row[_INODE] == inode), 0)
