"""`can:` addresses: which python-can interface, and what Genus needs to know besides."""

import os
from hashlib import blake2b
from pathlib import Path
from urllib.parse import parse_qsl

import msgspec

from genus.bus._qos import nanoseconds
from genus.can._wire.length import Timing
from genus.errors import BusError

OWN_OPTIONS = (
    *("name", "uid", "number", "catalog", "plan", "bitrate", "data_bitrate", "banks"),
    *("synchronised", "granularity"),
)


class CanAddress(msgspec.Struct, frozen=True, kw_only=True):
    """What a `can:INTERFACE?option=value&...` says.

    >>> parse_address("virtual?channel=city&name=loop-1&bitrate=500000").options
    {'channel': 'city'}
    """

    interface: str
    options: dict[str, str]
    """What python-can is told."""
    name: str = ""
    """The node's name in the plan."""
    uid: int
    number: int | None = None
    catalog: Path | None = None
    plan: Path | None = None
    timing: Timing
    banks: int | None = None
    synchronised: bool = True
    granularity_ns: int = 1_000_000
    """How late this computer may be in noticing a frame."""

    @property
    def fd(self) -> bool:
        """Whether frames are CAN FD, of up to 64 bytes."""
        return self.timing.data_bitrate is not None


def parse_address(text: str) -> CanAddress:
    """The parts of an address after its `can:`; BusError names the option that is wrong.

    >>> parse_address("virtual?number=many")
    Traceback (most recent call last):
    genus.errors.BusError: can:virtual?number=many: number is 'many', which is no number
    """
    interface, _, query = text.partition("?")
    if not interface:
        raise BusError(
            f"can:{text} names no interface; write for example can:udp_multicast or can:socketcan?channel=can0"
        )
    try:
        given = dict(parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query)))
    except ValueError:
        raise BusError(f"can:{text}: write options as name=value, joined by &") from None
    own = {name: given.pop(name) for name in OWN_OPTIONS if name in given}
    numbers = {name: _number(text, name, own[name]) for name in _NUMBERS if name in own}
    name = own.get("name", "")
    if numbers.get("banks", 1) < 1:
        raise BusError(f"can:{text}: banks is {numbers['banks']}; a controller has at least one filter")
    data_bitrate = numbers.get("data_bitrate")
    try:
        timing = Timing(numbers.get("bitrate", 1_000_000), data_bitrate)
    except ValueError as problem:
        raise BusError(f"can:{text}: {problem}") from None
    if data_bitrate is not None and data_bitrate < timing.bitrate:
        raise BusError(f"can:{text}: data_bitrate is {data_bitrate}, below the bitrate of {timing.bitrate}")
    return CanAddress(
        interface=interface,
        options=given,
        name=name,
        uid=numbers.get("uid", _uid_of(name)),
        number=numbers.get("number"),
        catalog=Path(own["catalog"]) if "catalog" in own else None,
        plan=Path(own["plan"]) if "plan" in own else None,
        timing=timing,
        banks=numbers.get("banks"),
        granularity_ns=nanoseconds(own.get("granularity", "1ms"), f"can:{text}: granularity"),
        synchronised=_yes_or_no(text, own.get("synchronised", "yes")),
    )


_NUMBERS = ("uid", "number", "bitrate", "data_bitrate", "banks")


def _number(text: str, name: str, value: str) -> int:
    try:
        return int(value, 0)
    except ValueError:
        raise BusError(f"can:{text}: {name} is {value!r}, which is no number") from None


def _yes_or_no(text: str, value: str) -> bool:
    if value not in ("yes", "no"):
        raise BusError(f"can:{text}: synchronised is {value!r}; write yes or no")
    return value == "yes"


def _uid_of(name: str) -> int:
    """A named node has the same uid at every start on this machine; one without a name has a new one each time."""
    seed = f"{os.uname().nodename}/{name}".encode() if name else os.urandom(16)
    return int.from_bytes(blake2b(seed, digest_size=8).digest(), "big") or 1
