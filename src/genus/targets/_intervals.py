"""Predicates as intervals of integer keys, which the index compares.

Every value of an ordered type has a 64-bit integer key with the same order: an integer is its own key, a time or
duration has its microseconds, and a float has its bits, changed so that they sort as the numbers do; -0.0 is 0.0. Text,
bytes, choices and bools have only equality: their keys are codes, given as the values are first seen. A comparison with
a constant is then a closed interval of keys, whether its bounds are open or closed, integer or float.

Besides keys there are `UNKNOWN` for a value that is absent or NaN, and None for a value that its type does not allow
(2**70 as an int64, 2.5 as an int). The index tests an event with such a value by `Subscription.matches`.
"""

import struct
from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, TypeAlias

import genus.filters.internal as x
from genus.filters.internal import round_to_float32
from genus.model import micros_of_duration, micros_of_time
from genus.model.internal import INT64_MAX, INT64_MIN
from genus.model.types import AttributeType, BoolType, ChoiceType, DurationType, FloatType, IntType, TimeType

Interval: TypeAlias = tuple[int, int]

UNKNOWN = INT64_MIN
"""The key of a value that is absent or NaN; no interval contains it."""
NOTHING: Interval = (0, -1)
FLOAT_SPACING = 2048
"""The largest distance of two adjacent floats in the range of int64."""

_pack, _unpack = struct.Struct("<d").pack, struct.Struct("<q").unpack


def float_key(number: float) -> int:
    """Return the key of a float: its bits, changed so that they sort as the numbers do.

    >>> float_key(-1.5) < float_key(-0.0) == float_key(0.0) < float_key(5e-324) < float_key(float("inf"))
    True
    """
    bits: int = _unpack(_pack(number + 0.0))[0]
    return bits if bits >= 0 else bits ^ INT64_MAX


def key_float(key: int) -> float:
    """Return the float that has a key.

    >>> key_float(float_key(-2.5))
    -2.5
    """
    number: float = struct.unpack("<d", struct.pack("<q", key if key >= 0 else key ^ INT64_MAX))[0]
    return number


class Domain(ABC):
    """The keys of the values of one attribute."""

    low = UNKNOWN + 1
    high = INT64_MAX

    @abstractmethod
    def key(self, value: Any) -> int | None:
        """Return the key of an event's value; None if the type does not allow the value."""

    def place(self, constant: Any) -> Interval:
        """Return the largest key below a constant, and the largest key not above it."""
        key = self.key(constant)
        assert key is not None, "a bound constant has the type of its attribute"
        return key - 1, key

    def interval(self, op: str, constant: Any) -> Interval | None:
        """Return the keys of the values for which a comparison is true; None if they are not one interval."""
        below, upto = self.place(constant)
        match op:
            case "<=":
                return self.low, upto
            case ">=":
                return max(below + 1, self.low), self.high
            case "<":
                return self.low, below
            case ">":
                return max(upto + 1, self.low), self.high
            case "==":
                return max(below + 1, self.low), upto
        return None

    def complement(self, intervals: Iterable[Interval]) -> list[Interval] | None:
        """Return the keys of all other values; None if they are not known."""
        return None


class Floats(Domain):
    """The keys of floats, by their bits."""

    low = float_key(float("-inf"))
    high = float_key(float("inf"))

    def key(self, value: Any) -> int | None:
        """Return the key of a number that is a float exactly."""
        number = value if type(value) is float else _exact_float(value)
        if number is None:
            return None
        if number != number:
            return UNKNOWN
        bits: int = _unpack(_pack(number + 0.0))[0]  # float_key inlined, as this is the most frequent call
        return bits if bits >= 0 else bits ^ INT64_MAX

    def place(self, constant: float) -> Interval:
        """Constants are floats, and not rounded even if events are: 0.1 lies between two 32-bit floats."""
        key = float_key(constant)
        return key - 1, key


class Floats32(Floats):
    """The keys of floats that are rounded to 32 bits."""

    def key(self, value: Any) -> int | None:
        """Return the key of the rounded number."""
        number = value if type(value) is float else _exact_float(value)
        return None if number is None else super().key(round_to_float32(number))


def _exact_float(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if number == value or number != number else None


class Integers(Domain):
    """The keys of integers; a comparison with a float compares the nearest float of the integer."""

    def key(self, value: Any) -> int | None:
        """Return the integer itself, if it fits 64 bits and is not the key of unknown."""
        if type(value) is not int:
            if value != value:
                return UNKNOWN
            number = _exact_float(value)
            if number is None or number != number or not number.is_integer():
                return None
            value = int(value)
        return value if self.low <= value <= self.high else None

    def place(self, constant: Any) -> Interval:
        """Exact also where floats are further apart than integers."""
        if isinstance(constant, int):
            return constant - 1, constant
        centre = int(min(max(constant, float(INT64_MIN)), float(INT64_MAX)))
        window = range(max(INT64_MIN, centre - FLOAT_SPACING), min(INT64_MAX, centre + FLOAT_SPACING) + 1)
        base = window[0] - 1
        return base + bisect_left(window, constant, key=float), base + bisect_right(window, constant, key=float)


class Times(Domain):
    """The keys of times, in microseconds of UTC."""

    def key(self, value: Any) -> int | None:
        """Return the microseconds of an aware datetime."""
        if type(value) is not datetime or value.tzinfo is None:
            return None
        return micros_of_time(value)


class TimeSpans(Domain):
    """The keys of durations, in microseconds."""

    def key(self, value: Any) -> int | None:
        """Return the microseconds of a timedelta of 64 bits."""
        if type(value) is not timedelta:
            return None
        micros = micros_of_duration(value)
        return micros if self.low <= micros <= self.high else None

    def place(self, constant: timedelta) -> Interval:
        """A constant may be the smallest duration, which has no key in events."""
        micros = micros_of_duration(constant)
        return micros - 1, micros


class Codes(Domain):
    """The keys of text and bytes: a code for each value in a subscription; other values are equal to none."""

    low, high = 0, INT64_MAX

    def __init__(self) -> None:
        self.codes: dict[Any, int] = {}
        self.values: list[Any] = []
        """The value of each code."""

    def key(self, value: Any) -> int | None:
        """Return the code of a value; UNKNOWN if no subscription has it."""
        try:
            return self.codes.get(value, UNKNOWN)
        except TypeError:
            return None

    def place(self, constant: Any) -> Interval:
        """Return the code of a constant, given now if it is new."""
        code = self.codes.setdefault(constant, len(self.values))
        if code == len(self.values):
            self.values.append(constant)
        return code - 1, code

    def interval(self, op: str, constant: Any) -> Interval | None:
        """Equality only: codes have no order."""
        return super().interval(op, constant) if op == "==" else None


class Choices(Domain):
    """The keys of a bool or an enumeration: all values are known, so complements are too."""

    def __init__(self, values: Iterable[Any]) -> None:
        self.values = list(dict.fromkeys(values))
        self.codes = {value: code for code, value in enumerate(self.values)}
        self.low, self.high = 0, len(self.codes) - 1

    def key(self, value: Any) -> int | None:
        """Return the position of a value or of a member of the enumeration."""
        try:
            return self.codes.get(getattr(value, "value", value))
        except TypeError:
            return None

    def complement(self, intervals: Iterable[Interval]) -> list[Interval] | None:
        taken = {key for low, high in intervals for key in range(low, high + 1)}
        return [(key, key) for key in self.codes.values() if key not in taken]


_DOMAINS: Mapping[type, Callable[[Any], Domain]] = {
    BoolType: lambda _: Choices((False, True)),
    ChoiceType: lambda type_: Choices(type_.values),
    IntType: lambda _: Integers(),
    FloatType: lambda type_: Floats32() if type_.bits == 32 else Floats(),
    TimeType: lambda _: Times(),
    DurationType: lambda _: TimeSpans(),
}


def domain_of(type_: AttributeType) -> Domain:
    """Return a new domain for an attribute type; text and bytes have codes."""
    return _DOMAINS.get(type(type_), lambda _: Codes())(type_)


def attribute_of(part: x.Predicate) -> x.AttributeRef | None:
    """Return the attribute that a conjunct compares with constants; None if it has another form."""
    if type(part) is x.Compare and type(part.left) is x.AttributeRef and type(part.right) is x.Literal:
        return part.left  # as most conjuncts are; faster
    match part:
        case x.Compare(_, value, x.Literal()) | x.Compare(_, x.Literal(), value) | x.OneOf(value):
            plain = value.operand if isinstance(value, x.ToFloat) else value
            return plain if isinstance(plain, x.AttributeRef) else None
        case x.Not(operand):
            return attribute_of(operand)
    return None


_MIRRORED = {"==": "==", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def intervals(part: x.Predicate, domain: Domain) -> list[Interval] | None:
    """The keys for which a conjunct on one attribute is true, as disjoint intervals; None if it has no such form."""
    if type(part) is x.Compare and type(part.right) is x.Literal and part.op != "!=":
        interval = domain.interval(part.op, part.right.value)  # as most conjuncts are; faster
        return None if interval is None else [interval] if interval[0] <= interval[1] else []
    match part:
        case x.Compare("!=", left, right):
            return _other_intervals(x.Compare("==", left, right), domain)
        case x.Not(operand):
            return _other_intervals(operand, domain)
        case x.Compare(op, x.Literal(constant), _):
            found = [domain.interval(_MIRRORED[op], constant)]
        case x.Compare(op, _, x.Literal(constant)):
            found = [domain.interval(op, constant)]
        case x.OneOf(_, options):
            found = [domain.interval("==", option.value) for option in options]
        case _:
            return None
    return None if None in found else list(merge_intervals(one for one in found if one is not None))


def _other_intervals(part: x.Predicate, domain: Domain) -> list[Interval] | None:
    inner = intervals(part, domain)
    found = None if inner is None else domain.complement(inner)
    return None if found is None else list(merge_intervals(found))


def merge_intervals(parts: Iterable[Interval]) -> Iterator[Interval]:
    """Yield the same keys in as few intervals as possible, in order.

    >>> list(merge_intervals([(7, 9), (3, 3), (1, 2)]))
    [(1, 3), (7, 9)]
    """
    low, high = NOTHING
    for start, end in sorted(part for part in parts if part[0] <= part[1]):
        if low > high:
            low, high = start, end
        elif start <= high + 1:
            high = max(high, end)
        else:
            yield low, high
            low, high = start, end
    if low <= high:
        yield low, high
