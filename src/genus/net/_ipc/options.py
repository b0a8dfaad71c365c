"""The part of an address behind `ipc:`: the name of the bus, and the bounds of its queues."""

from typing import Final, get_args
from urllib.parse import parse_qsl

import msgspec

from genus.bus._queue import WhenFull
from genus.errors import BusError, did_you_mean

CAPACITY: Final = 10_000


class IpcOptions(msgspec.Struct, frozen=True):
    """The bounds of the queues of an `ipc:` bus, in packets, and what happens when one is full.

    `capacity` and `full` are for the queue of each receiver, in the process that publishes; `receive_capacity` and
    `receive_full` for the mailbox of packets that arrived. All are also bounded to 64 MB and one packet.
    """

    full: WhenFull = "drop_oldest"
    capacity: int = CAPACITY
    receive_full: WhenFull = "drop_oldest"
    receive_capacity: int = CAPACITY


def parse_address(rest: str) -> tuple[str, IpcOptions]:
    """Name and options of `ipc:NAME?option=value&...`; the name `genus` if there is none.

    Raises:
        BusError: An option is unknown or its value is wrong.

    >>> parse_address("plant?full=block&capacity=100")
    ('plant', IpcOptions(full='block', capacity=100, receive_full='drop_oldest', receive_capacity=10000))
    """
    name, _, query = rest.partition("?")
    found: dict[str, str | int] = {}
    for option, value in parse_qsl(query, keep_blank_values=True):
        if option not in IpcOptions.__struct_fields__:
            known = IpcOptions.__struct_fields__
            raise BusError(f"ipc: has no option {option!r}: {did_you_mean(option, known)}known are {', '.join(known)}")
        if option in found:
            raise BusError(f"ipc: {option}= is given twice")
        found[option] = _capacity(option, value) if option.endswith("capacity") else _policy(option, value)
    return name or "genus", msgspec.convert(found, IpcOptions)


def _capacity(option: str, value: str) -> int:
    if not (value.isascii() and value.isdigit() and 0 < int(value) < 1 << 31):
        raise BusError(f"ipc: {option}={value} must be a number of packets, at least 1")
    return int(value)


def _policy(option: str, value: str) -> str:
    known = get_args(WhenFull)
    if value not in known:
        raise BusError(f"ipc: {option}={value} is no policy: {did_you_mean(value, known)}known are {', '.join(known)}")
    if option == "receive_full" and value == "raise":
        raise BusError("ipc: receive_full=raise: a receiver has nobody to raise to; choose another policy")
    return value
