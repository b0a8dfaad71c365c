"""The layouts of messages and signals: where their bits are and what they mean, as plain data made once per DBC file.

`shift` and `length` select the bits of a signal in an integer: the bytes of the message, read in the signal's byte
order. The decoder of single frames and the decoder of columns use the same layouts.

Names of a DBC file become names of types, attributes and enumeration members by one rule:

1. A character other than an ASCII letter, a digit or `_` becomes `_`.
2. A name that is empty, or begins with a digit or `_`, gets an `x` in front.
3. A name that is reserved by Python or Genus gets a `_` at its end.
4. A name that is taken already gets `_2`, `_3` and so on at its end.
"""

import keyword
import math
import re
from collections.abc import Iterator, Sequence, Set
from itertools import combinations
from typing import TypeAlias

import msgspec

from genus.can._j1939 import pgn_of
from genus.can._wire.frame import ID_MASK
from genus.model import Event, attributes
from genus.model.internal import RESERVED_WORDS, int_range

PYTHON_WORDS = frozenset((*keyword.kwlist, *keyword.softkwlist))

ATTRIBUTE_WORDS = PYTHON_WORDS | RESERVED_WORDS | {attribute.name for attribute in attributes(Event)}
"""Words that cannot be the name of an attribute."""

DECLARING_WORDS = frozenset(
    {"Annotated", "Enum", "Event", "Kind", "Maybe", "Unit", "annotations", "bool", "bytes", "float", "int", "str"}
    | {"Float32", "Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32"}
)
"""Words that a module uses to declare types; a type of that name would hide them."""

TYPE_WORDS = PYTHON_WORDS | RESERVED_WORDS | DECLARING_WORDS
"""Words that cannot be the name of a type."""

MEMBER_WORDS = PYTHON_WORDS | {"mro", "name", "value"}
"""Words that cannot be the name of an enumeration member."""


class NameAllocator:
    """State: the names given so far in one namespace.

    >>> names = NameAllocator(ATTRIBUTE_WORDS)
    >>> [names.allocate(wanted) for wanted in ("speed", "time", "_crc", "1st value", "speed")]
    ['speed', 'time_', 'x_crc', 'x1st_value', 'speed_2']
    """

    def __init__(self, words: Set[str]) -> None:
        self._words = words
        self._given: set[str] = set()

    def allocate(self, wanted: str) -> str:
        name = self._free(_usable(wanted, self._words))
        self._given.add(name)
        return name

    def _free(self, name: str) -> str:
        number, free = 1, name
        while free in self._given:
            number += 1
            free = f"{name}_{number}"
        return free


def _usable(wanted: str, words: Set[str]) -> str:
    name = re.sub(r"[^0-9A-Za-z_]", "_", wanted)
    if not re.match(r"[A-Za-z]", name):
        name = f"x{name}"
    return f"{name}_" if name in words else name


Number: TypeAlias = int | float

FLOAT_FORMATS = {16: ("H", "e"), 32: ("I", "f"), 64: ("Q", "d")}
"""The `struct` codes of the bits and of the value of IEEE 754 numbers, by their width."""

_INTS = tuple(
    (f"{'Int' if signed else 'UInt'}{bits}", int_range(bits, signed))
    for bits in (8, 16, 32, 64)
    for signed in (False, True)
    if signed or bits < 64
)


class SignalLayout(msgspec.Struct, frozen=True):
    """One signal of a message: where its bits are, how they become a value, and when the signal is present."""

    name: str
    """The signal's name in the DBC file."""
    attribute: str
    """The name of the attribute that holds its value."""
    start: int
    """The start bit as the DBC file counts it: the lowest bit, or the highest of a big-endian signal."""
    length: int
    """The number of bits."""
    shift: int
    """How far the lowest bit is from the low end of the message's bytes, read as one integer in its byte order."""
    big_endian: bool
    signed: bool
    is_float: bool
    scale: Number = 1
    offset: Number = 0
    unit: str | None = None
    multiplexer: str | None = None
    """The name of the signal whose raw value decides whether this one is present; None if it always is."""
    selected_by: frozenset[int] = frozenset()
    """The raw values of the multiplexer with which this signal is present."""
    selects: frozenset[int] | None = None
    """For a multiplexer: its valid raw values; a frame with another value is not decoded. None for other signals."""
    choices: tuple[tuple[int, str], ...] = ()
    """The value table: raw values and their labels, by value."""
    label: str | None = None
    """The name of the attribute that holds the label of its raw value; None without a value table."""
    enumeration: str | None = None
    """The name of the enumeration of its labels."""
    comment: str | None = None
    minimum: Number | None = None
    """The least value that a sender may give it; None if the file says nothing of it."""
    maximum: Number | None = None

    @property
    def mask(self) -> int:
        """A mask of `length` one bits."""
        return (1 << self.length) - 1

    def bits(self, message_length: int) -> int:
        """Return its bits in the bytes of a message, read as one integer in little-endian order."""
        size = max(message_length, self.bytes_needed(message_length), 0)
        mask = (self.mask << self.shift).to_bytes(size, "big" if self.big_endian else "little")
        return int.from_bytes(mask, "little")

    @property
    def raw_range(self) -> tuple[int, int]:
        """The smallest and largest integer that the bits can represent."""
        return int_range(self.length, self.signed)

    @property
    def is_scaled(self) -> bool:
        """Whether the value differs from the raw value."""
        return (self.scale, self.offset) != (1, 0)

    @property
    def labels(self) -> tuple[str, ...]:
        """The distinct labels of the value table, in the order of their raw values."""
        return tuple(dict.fromkeys(label for _, label in self.choices))

    def scaled(self, raw: Number) -> Number:
        """Return the value that a raw value stands for: raw * scale + offset.

        >>> SignalLayout("t", "t", 0, 8, 0, False, False, False, scale=0.5, offset=-40).scaled(200)
        60.0
        """
        return raw * self.scale + self.offset

    @property
    def annotation(self) -> str:
        """The name of the attribute's annotation: the narrowest type that holds every value exactly.

        Values are integers if scale and offset are. If they need more than 64 signed bits they are `bytes`, the raw
        value in big-endian order, which keeps them exact and ordered. All others are floats.

        >>> SignalLayout("n", "n", 0, 12, 0, False, True, False).annotation
        'Int16'
        """
        if self.is_float:
            return "Float32" if self.length < 64 and not self.is_scaled else "float"
        if not (isinstance(self.scale, int) and isinstance(self.offset, int)):
            return "float"
        low, high = sorted((self.scaled(self.raw_range[0]), self.scaled(self.raw_range[1])))
        fitting = (name for name, (least, most) in _INTS if least <= low and high <= most)
        return next(fitting, "float" if self.is_scaled else "bytes")

    def bytes_needed(self, message_length: int) -> int:
        """Return how many bytes a frame must have so that all bits of the signal are in it.

        >>> SignalLayout("n", "n", 7, 12, 52, True, False, False).bytes_needed(8)
        2
        """
        bits = 8 * message_length - self.shift if self.big_endian else self.shift + self.length
        return (bits + 7) // 8

    def problem(self, message_length: int) -> str | None:
        """Return why the signal cannot be decoded; None if it can."""
        if self.shift < 0 or self.shift + self.length > 8 * message_length:
            return f"does not fit in the message's {message_length} bytes"
        if self.is_float and self.length not in FLOAT_FORMATS:
            return f"is a float of {self.length} bits"
        return None if self._is_finite() else "has values that no float can hold"

    def _is_finite(self) -> bool:
        extremes = () if self.is_float else self.raw_range
        try:
            numbers = [float(number) for number in (self.scale, self.offset, *map(self.scaled, extremes))]
        except OverflowError:
            return False
        return all(map(math.isfinite, numbers))


class MessageLayout(msgspec.Struct, frozen=True):
    """One message of a DBC file: the identifier of its frames, and its signals."""

    name: str
    """The message's name in the DBC file."""
    type_name: str
    """The name of its event type."""
    frame_id: int
    extended: bool
    length: int
    """The number of bytes that hold its signals; a frame may have more."""
    signals: tuple[SignalLayout, ...]
    fd: bool = False
    j1939: bool = False
    """Whether its identifier has priority, parameter group and addresses."""
    fast: bool = False
    """Whether it is sent in the fast packets of NMEA 2000."""
    standard: bool = False
    """Whether every J1939 bus has it, and the file does not."""
    senders: tuple[str, ...] = ()
    cycle_time_ms: int | None = None
    comment: str | None = None
    diagnostic: bool = False
    """Whether it is diagnostic data, which no frame has: `frame_id` is the identifier by which they are requested."""
    truncated: bool = False
    """Whether frames may be shorter than the message: signals that are not all in the frame are absent."""
    id_mask: int = ID_MASK
    """The bits of an extended identifier in which all its frames agree: not the priority of soft events of Genus."""

    @property
    def sender(self) -> str | None:
        """The only sender; None if there are several or none."""
        return self.senders[0] if len(self.senders) == 1 else None

    @property
    def pgn(self) -> int:
        """The J1939 parameter group number: the identifier without priority, source and, if it has one, destination.

        >>> MessageLayout("EEC1", "EEC1", 0x0CF00421, True, 8, ()).pgn
        61444
        """
        return pgn_of(self.frame_id)

    def is_optional(self, signal: SignalLayout) -> bool:
        """Return whether a frame may lack a signal."""
        return self.truncated or signal.multiplexer is not None

    def overlapping(self) -> Iterator[tuple[SignalLayout, SignalLayout]]:
        """Yield the pairs of signals that share bits in some frame."""
        placed = [(each, each.bits(self.length), dict(self._conditions(each))) for each in self.signals]
        for (one, bits, when), (other, other_bits, other_when) in combinations(placed, 2):
            if bits & other_bits and _can_meet(when, other_when):
                yield one, other

    def _conditions(self, signal: SignalLayout) -> Iterator[tuple[str, frozenset[int]]]:
        by_name = {each.name: each for each in self.signals}
        above: SignalLayout | None = signal
        while above is not None and above.multiplexer is not None:
            yield above.multiplexer, above.selected_by
            above = by_name.pop(above.multiplexer, None)

    def reachable(self) -> Iterator[SignalLayout]:
        """Yield the signals that a frame can have, each multiplexer before the signals that it selects."""
        chosen_by: dict[str | None, list[SignalLayout]] = {}
        for signal in self.signals:
            chosen_by.setdefault(signal.multiplexer, []).append(signal)
        ready = chosen_by.pop(None, [])
        while ready:
            yield from ready
            ready = [below for signal in ready for below in chosen_by.pop(signal.name, ())]


def _can_meet(one: dict[str, frozenset[int]], other: dict[str, frozenset[int]]) -> bool:
    return all(one[name] & other[name] for name in one.keys() & other.keys())


def shift_of(start: int, length: int, big_endian: bool, message_length: int) -> int:
    """Return the `shift` of a signal with the start bit of a DBC file.

    >>> shift_of(7, 16, True, 8), shift_of(8, 16, False, 8)
    (48, 8)
    """
    if not big_endian:
        return start
    from_the_front = 8 * (start // 8) + 7 - start % 8
    return 8 * message_length - from_the_front - length


def same_bits(value: int, length: int, signed: bool) -> int:
    """Return the raw value of an entry of a value table; many tables have the unsigned form of negative values.

    >>> same_bits(255, 8, signed=True), same_bits(255, 8, signed=False), same_bits(-3, 8, signed=True)
    (-1, 255, -3)
    """
    wraps = signed and 1 << length - 1 <= value < 1 << length
    return value - (1 << length) if wraps else value


def masked_ids(messages: Sequence[MessageLayout]) -> dict[int, dict[int, int]]:
    """By mask, the positions of messages whose frames do not have one identifier, by what all their frames have."""
    found: dict[int, dict[int, int]] = {}
    for number, message in enumerate(messages):
        if message.id_mask != ID_MASK:
            found.setdefault(message.id_mask, {})[message.frame_id & message.id_mask] = number
    return found
