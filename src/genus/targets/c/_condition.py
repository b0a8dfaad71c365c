"""Conditions in C: presence of attributes and tests in their order, intervals, operands, and the flash that they take.

Comparisons with constants are closed intervals of integers, so that a device compares integers only.

A float is compared by its *key*: its bits as a signed integer that has the same order. Then a comparison of a number
with a constant is true for the numbers of one or two intervals, which are computed here, exactly, when the code is
generated: also for a float of 32 bits and a constant of 64 bits, and for an integer that is compared as a float.

The flash that a condition takes on an 8-bit processor is estimated, before a compiler for it is there. The figures were
measured with avr-gcc 5.4 -Os; `tests/devices/test_estimate.py` compares estimates with its results.
"""

import math
import re
import struct
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

import msgspec

from genus.filters.internal import round_to_float32
from genus.model.internal import INT64_MAX, INT64_MIN, int_range


class Condition(msgspec.Struct, frozen=True):
    """Tests that must all be true: presence of attributes by their numbers, then code, from left to right.

    A test may set a variable that a later one uses, as `&&` has an order.
    """

    presence: Mapping[int, bool] = {}
    tests: tuple[str, ...] = ()
    never: bool = False

    @property
    def always(self) -> bool:
        """Whether nothing is tested."""
        return not (self.presence or self.tests or self.never)

    def code(self) -> str:
        """Return the condition as one expression of C."""
        if self.never:
            return "false"
        return " && ".join([*_presence_code(self.presence), *self.tests]) or "true"


ALWAYS = Condition()
NEVER = Condition(never=True)


def present(number: int, wanted: bool = True) -> Condition:
    """Return the condition that an event has an attribute, or lacks it."""
    return Condition({number: wanted})


def test(*code: str) -> Condition:
    """Return the condition that tests in C are true."""
    return Condition(tests=code)


def all_of_these(conditions: Iterable[Condition]) -> Condition:
    """One condition from several that must all be true."""
    presence: dict[int, bool] = {}
    tests: dict[str, None] = {}
    for condition in conditions:
        clash = any(presence.get(number, wanted) is not wanted for number, wanted in condition.presence.items())
        if condition.never or clash:
            return NEVER
        presence |= condition.presence
        tests |= dict.fromkeys(condition.tests)
    return Condition(presence, tuple(tests))


def any_of_these(conditions: Iterable[Condition]) -> Condition:
    """One condition from several of which one must be true."""
    kept = {condition.code(): condition for condition in conditions if not condition.never}
    if any(condition.always for condition in kept.values()):
        return ALWAYS
    if len(kept) < 2:
        return next(iter(kept.values()), NEVER)
    return test(f"({' || '.join(f'({code})' for code in kept)})")


def opposite(condition: Condition) -> Condition:
    """Return the condition that is true where another is not."""
    return ALWAYS if condition.never else NEVER if condition.always else test(f"!({condition.code()})")


def _presence_code(presence: Mapping[int, bool]) -> list[str]:
    """One test for each byte of presence bits."""
    bytes_: dict[int, tuple[int, int]] = {}
    for number, wanted in presence.items():
        mask, value = bytes_.get(number // 8, (0, 0))
        bit = 1 << number % 8
        bytes_[number // 8] = (mask | bit, value | bit * wanted)
    return [_byte_code(byte, mask, value) for byte, (mask, value) in sorted(bytes_.items())]


def _byte_code(byte: int, mask: int, value: int) -> str:
    bits = f"(e->present[{byte}] & 0x{mask:02X}U)"
    return f"({bits} != 0U)" if mask == value and mask & (mask - 1) == 0 else f"({bits} == 0x{value:02X}U)"


Interval: TypeAlias = tuple[int, int]
"""The smallest and the largest number of an interval."""
Intervals: TypeAlias = tuple[Interval, ...]
"""Intervals in ascending order that do not touch each other."""

INFINITY_KEYS = {32: 0x7F80_0000, 64: 0x7FF0_0000_0000_0000}
"""The key of infinity by the bits of a float; every key beyond it, or below its negative, is NaN."""


def float_key(number: float, bits: int) -> int:
    """Return the key of a float that can be represented in so many bits; -0.0 and 0.0 have the same.

    >>> float_key(-0.0, 64), hex(float_key(1.0, 32)), float_key(-1.0, 32) == -float_key(1.0, 32)
    (0, '0x3f800000', True)
    """
    packed = struct.unpack(">I" if bits == 32 else ">Q", struct.pack(">f" if bits == 32 else ">d", number))[0]
    magnitude = int(packed) & ((1 << bits - 1) - 1)
    return -magnitude if math.copysign(1.0, number) < 0 else magnitude


def numbers_of(bits: int) -> Interval:
    """Return the keys of all floats that are numbers, infinities included."""
    return -INFINITY_KEYS[bits], INFINITY_KEYS[bits]


def float_intervals(op: str, constant: float, bits: int) -> Intervals:
    """Return the keys of the floats of so many bits for which a comparison with a constant is true.

    >>> float_intervals("==", 0.1, 32)
    ()
    >>> float_intervals(">", math.inf, 64)
    ()
    """
    low, high = numbers_of(bits)
    below = _round_down(constant, bits)
    key, is_exact = float_key(below, bits), below == constant
    return _select(op, low, high, key + (not is_exact), key + 1)


def integer_intervals(op: str, constant: float, span: Interval) -> Intervals:
    """Return the integers of a span for which a comparison, as the nearest float of 64 bits, with a constant is true.

    >>> integer_intervals("==", 9007199254740992.0, (-(2**63), 2**63 - 1))
    ((9007199254740992, 9007199254740993),)
    """
    first = _first(lambda number: float(number) >= constant, span)
    after = _first(lambda number: float(number) > constant, span)
    return _select(op, *span, first, after)


def exact_intervals(op: str, constant: int, span: Interval) -> Intervals:
    """Return the integers of a span for which a comparison with an integer is true.

    >>> exact_intervals("!=", 3, (0, 255)), exact_intervals("<", -1, (0, 255))
    (((0, 2), (4, 255)), ())
    """
    low, high = span
    return _select(op, low, high, min(max(constant, low), high + 1), min(max(constant + 1, low), high + 1))


def merge(parts: Iterable[Interval]) -> Intervals:
    """Return the same numbers in as few intervals as possible.

    >>> merge([(5, 9), (1, 2), (3, 4), (20, 20)])
    ((1, 9), (20, 20))
    """
    found: list[Interval] = []
    for low, high in sorted(parts):
        if found and low <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], high))
        else:
            found.append((low, high))
    return tuple(found)


def complement(parts: Intervals, span: Interval) -> Intervals:
    """Return the numbers of a span that are in none of the intervals.

    >>> complement(((0, 3), (7, 7)), (0, 9))
    ((4, 6), (8, 9))
    """
    found, start = [], span[0]
    for low, high in parts:
        found += [(start, low - 1)] if start < low else []
        start = high + 1
    return (*found, *([(start, span[1])] if start <= span[1] else []))


def _select(op: str, low: int, high: int, first: int, after: int) -> Intervals:
    """The intervals of an operator: numbers below `first` are less than the constant, from `after` on greater."""
    ranges = {
        "==": [(first, after - 1)],
        "!=": [(low, first - 1), (after, high)],
        "<": [(low, first - 1)],
        "<=": [(low, after - 1)],
        ">": [(after, high)],
        ">=": [(first, high)],
    }
    return merge((start, end) for start, end in ranges[op] if start <= end)


def _round_down(constant: float, bits: int) -> float:
    """Return the largest float of so many bits that is not above a constant."""
    if bits == 64:
        return constant
    nearest = round_to_float32(constant)
    if nearest <= constant:
        return nearest
    key = float_key(nearest, 32) - 1
    magnitude: float = struct.unpack(">f", struct.pack(">I", abs(key)))[0]
    return -magnitude if key < 0 else magnitude


def _first(test: Callable[[int], bool], span: Interval) -> int:
    """The first integer of a span that passes a test which all greater ones pass, too; one after it if none does."""
    low, high = span[0], span[1] + 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if test(middle) else (middle + 1, high)
    return low


INT32: Interval = int_range(32, True)
INT64: Interval = (INT64_MIN, INT64_MAX)

_SUFFIXES = {"uint8_t": "U", "uint16_t": "U", "int32_t": "L", "uint32_t": "UL"}
_LIMITS = {-(2**15): "INT16_MIN", -(2**31): "INT32_MIN", INT64_MIN: "INT64_MIN"}


class Number(msgspec.Struct, frozen=True):
    """An integer: its code, the type that the code has in C, and the smallest and largest value it can have."""

    code: str
    ctype: str
    span: Interval
    needs: Condition = ALWAYS
    levels: int = 0

    def as_type(self, ctype: str) -> str:
        """Return the code, converted if it has another type."""
        return self.code if self.ctype == ctype else f"({ctype}){self.code}"

    def as_argument(self, ctype: str) -> str:
        """Return the code for a parameter of a type: what is computed of constants in `long` may be wider than it."""
        is_computed = ctype == "int32_t" and self.code.startswith("(")
        return f"({ctype}){self.code}" if is_computed else self.as_type(ctype)


class Key(msgspec.Struct, frozen=True):
    """A float by its key, of 32 or 64 bits; keys of NaN lie beyond those of infinity."""

    code: str
    bits: int
    needs: Condition = ALWAYS
    never_nan: bool = False

    def widened(self) -> str:
        """Return the key of the same number in 64 bits."""
        return self.code if self.bits == 64 else f"genus_widen_key({self.code})"


class Run(msgspec.Struct, frozen=True):
    """A text or bytes: the code of a pointer to it."""

    code: str
    needs: Condition = ALWAYS


class Flag(msgspec.Struct, frozen=True):
    """A bool."""

    code: str
    needs: Condition = ALWAYS


class Choice(msgspec.Struct, frozen=True):
    """A choice by its index in the list of the catalog, whose values are `values`."""

    code: str
    values: tuple[str | int, ...]
    needs: Condition = ALWAYS


Operand: TypeAlias = Number | Key | Run | Flag | Choice


def integer(value: int, ctype: str) -> str:
    """Return a constant as an integer of a type in C; negative ones in parentheses.

    >>> integer(3, "uint8_t"), integer(3, "uint32_t"), integer(-(2**63), "int64_t"), integer(-4, "int64_t")
    ('3U', '3UL', 'INT64_MIN', '(-INT64_C(4))')
    """
    if value in _LIMITS and ctype.startswith("int"):
        return _LIMITS[value]
    digits = str(abs(value))
    text = f"INT64_C({digits})" if ctype == "int64_t" else f"{digits}{_SUFFIXES.get(ctype, '')}"
    return text if value >= 0 else f"(-{text})"


def common_type(*spans: Interval) -> str:
    """Return the type in which integers of these spans are computed and compared."""
    return "int32_t" if all(INT32[0] <= low and high <= INT32[1] for low, high in spans) else "int64_t"


def within(code: str, ctype: str, parts: Intervals, span: Interval) -> str | None:
    """A test whether an integer of a span is in one of some intervals; None if it always is. `parts` is not empty.

    >>> within("x", "uint8_t", ((0, 2), (4, 255)), (0, 255)), within("x", "uint8_t", ((4, 255),), (0, 255))
    ('(x != 3U)', '(x >= 4U)')
    """
    if parts == (span,):
        return None
    if len(parts) == 2 and parts[0][0] == span[0] and parts[1][1] == span[1] and parts[0][1] + 2 == parts[1][0]:
        return f"({code} != {integer(parts[0][1] + 1, ctype)})"
    tests = [_in_interval(code, ctype, part, span) for part in parts]
    return tests[0] if len(tests) == 1 else f"({' || '.join(tests)})"


def _in_interval(code: str, ctype: str, part: Interval, span: Interval) -> str:
    low, high = part
    if low == high:
        return f"({code} == {integer(low, ctype)})"
    tests = [f"({code} >= {integer(low, ctype)})"] if low > span[0] else []
    tests += [f"({code} <= {integer(high, ctype)})"] if high < span[1] else []
    return tests[0] if len(tests) == 1 else f"({' && '.join(tests)})"


def key_within(key: Key, parts: Intervals) -> str:
    """A test whether a key is in one of some intervals; NaN is in none."""
    ctype = f"int{key.bits}_t"
    bounds = (f"{integer(low, ctype)}, {integer(high, ctype)}" for low, high in parts)
    tests = [f"genus_within{key.bits}({key.code}, {each})" for each in bounds]
    return tests[0] if len(tests) == 1 else f"({' || '.join(tests)})"


_TESTS = (
    (r"genus_is_number64", 40),
    (r"genus_is_number32", 30),
    (r"genus_key64", 34),
    (r"genus_key32", 24),
    (r"genus_(equals|compare|compare_values|starts_with|ends_with|contains|is_like)\(", 20),
    (r"genus_(add|subtract|multiply|floor_divide|absolute_checked|remainder|floor_quotient)\w*\(", 70),
    (r"\(int64_t\)", 20),
    (r"INT64_\w+", 28),
    (r"\d+U?L\b", 14),
    (r"e->\w+ [<>=!]", 6),
)
"""Bytes for each place where a pattern is found in the code of a test."""
_TEST, _PRESENCE = 6, 6


def flash_of(condition: Condition) -> int:
    """Return the bytes of a condition, without the functions of the runtime that it calls."""
    code = " && ".join(condition.tests)
    size = sum(cost * len(re.findall(pattern, code)) for pattern, cost in _TESTS)
    presence = len({number // 8 for number in condition.presence})
    return size + _TEST * len(condition.tests) + _PRESENCE * (presence + code.count("e->present"))


RUNTIME: dict[str, tuple[int, tuple[str, ...]]] = {
    "genus_copy_number": (26, ()),
    "genus_skip_header": (26, ()),
    "genus_is_time": (158, ()),
    "genus_is_utf8": (158, ()),
    "genus_read_count": (68, ()),
    "genus_read_bytes": (92, ("genus_read_count",)),
    "genus_read_text": (48, ("genus_read_bytes", "genus_is_utf8")),
    "genus_read": (288, ("genus_read_text", "genus_copy_number", "genus_is_time")),
    "genus_decode": (546, ("genus_read", "genus_skip_header")),
    "genus_encode": (1206, ("genus_copy_number", "genus_is_time", "genus_is_utf8")),
    "genus_starts_with": (72, ()),
    "genus_equals": (74, ()),
    "genus_ends_with": (80, ()),
    "genus_contains": (168, ()),
    "genus_compare": (94, ()),
    "genus_compare_values": (108, ()),
    "genus_count_letters": (110, ()),
    "genus_is_like": (274, ()),
    "genus_absolute_checked": (122, ()),
    "genus_remainder32": (200, ()),
    "genus_floor_quotient32": (132, ("genus_remainder32",)),
    "genus_remainder64": (700, ()),
    "genus_floor_quotient64": (322, ("genus_remainder64",)),
    "genus_floor_divide64": (168, ("genus_floor_quotient64",)),
    "genus_add64": (308, ()),
    "genus_subtract64": (288, ()),
    "genus_multiply64": (1300, ()),
    "genus_widen_key": (400, ()),
    "genus_key_of_integer": (566, ()),
    "genus_code_below8": (276, ()),
    "genus_code_below16": (380, ()),
    "genus_code_below32": (474, ()),
    "genus_code_below64": (800, ()),
    "genus_code_size": (40, ()),
}
"""The bytes of each function of the runtime with the library functions it needs, and which others it calls."""


def runtime_flash(code: str) -> int:
    """Return the bytes of the functions of the runtime that some code needs.

    >>> runtime_flash("genus_read_text(at, end, &text)")
    366
    """
    waiting = set(re.findall(r"\bgenus_\w+", code)) & RUNTIME.keys()
    needed: set[str] = set()
    while waiting:
        name = waiting.pop()
        needed.add(name)
        waiting |= set(RUNTIME[name][1]) - needed
    return sum(RUNTIME[name][0] for name in needed)
