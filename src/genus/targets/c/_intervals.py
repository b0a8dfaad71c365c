"""Comparisons with constants as closed intervals of integers, so that a device compares integers only.

A float is compared by its *key*: its bits as a signed integer that has the same order. Then a comparison of a number
with a constant is true for the numbers of one or two intervals, which are computed here, exactly, when the code is
generated: also for a float of 32 bits and a constant of 64 bits, and for an integer that is compared as a float.
"""

import math
import struct
from collections.abc import Callable, Iterable
from typing import TypeAlias

from genus.filters.internal import round_to_float32

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
