"""Values in C: the code of an operand with its type, and how constants are written."""

from typing import TypeAlias

import msgspec

from genus.model.internal import INT64_MAX, INT64_MIN, int_range
from genus.targets.c._condition import ALWAYS, Condition
from genus.targets.c._intervals import Interval, Intervals

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
