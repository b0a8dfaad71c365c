"""Arrays of numbers by which events are looked up: a hash table of integers, and bins for ranges.

For bins, the interval between the outer constants of an attribute is cut into cells of equal width, and each cell into
positions of equal width, as many as it has constants; so positions are narrow where constants are dense. Computing a
position keeps the order of values. A group divides the positions into bins of its own number; a range is listed in
every bin from that of its lower bound to that of its upper bound.

The number of bins is chosen so that a range is listed in about `COVERED` bins on average. Then, for values distributed
like the constants, the ranges listed in a bin but not containing the value are at most a `COVERED`-th of those that
contain it, or half a range: however wide or narrow ranges are, one table per attribute is enough.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from genus.model.internal import INT64_MAX, INT64_MIN

Ints: TypeAlias = npt.NDArray[np.int64]
Numbers: TypeAlias = npt.NDArray[np.int32]
Reals: TypeAlias = npt.NDArray[np.float64]
Bounds: TypeAlias = npt.NDArray[np.float64] | npt.NDArray[np.int64]

_FACTOR = np.uint64(0x9E3779B97F4A7C15)
"""2**64 divided by the golden ratio (Knuth, The Art of Computer Programming 3, section 6.4)."""
ROOM = 4
"""Slots per key, at least half of it; so most keys are found at once."""
BLOCK = 1 << 17
"""Elements of arrays that are processed at once: they stay in the processor's cache, and their memory is reused."""
CELLS = 1024
POSITION_BITS = 24
COVERED = 4
MAX_SIZE = 1e300


class Matches(NamedTuple):
    """Matches in a batch: the index of a row and the number of a subscription, each pair once, in no order."""

    rows: Ints
    subscriptions: Numbers

    def take(self, chosen: Ints) -> "Matches":
        return Matches(self.rows[chosen], self.subscriptions[chosen])


class IntTable:
    """The positions of distinct 64-bit keys, by open addressing with linear probing.

    >>> IntTable(np.array([70, -3])).find(np.array([-3, 5, 70])).tolist()
    [1, -1, 0]
    """

    def __init__(self, keys: Ints) -> None:
        bits = max((ROOM * len(keys)).bit_length() - 1, 3)
        self._shift, self._last = np.uint64(64 - bits), (1 << bits) - 1
        self._positions = np.full(1 << bits, -1, np.int32)
        self._keys = np.zeros(1 << bits, np.int64)
        waiting, slots = np.arange(len(keys), dtype=np.int32), self._slots(keys)
        while len(waiting):
            free = self._positions[slots] < 0
            self._positions[slots[free]] = waiting[free]
            left = self._positions[slots] != waiting
            waiting, slots = waiting[left], (slots[left] + 1) & self._last
        taken = self._positions >= 0
        self._keys[taken] = keys[self._positions[taken]]

    def _slots(self, keys: Ints) -> Ints:
        return ((keys.view(np.uint64) * _FACTOR) >> self._shift).view(np.int64)

    def find(self, keys: Ints) -> Numbers:
        """Return the position of each key; -1 if the table does not have it."""
        found = np.empty(len(keys), np.int32)
        for at in range(0, len(keys), BLOCK):
            found[at : at + BLOCK] = self._find(keys[at : at + BLOCK])
        return found

    def _find(self, keys: Ints) -> Numbers:
        slots = self._slots(keys)
        found = self._positions[slots]
        other = np.flatnonzero((self._keys[slots] != keys) & (found >= 0))
        slots = slots[other]
        while len(other):
            slots = (slots + 1) & self._last
            at = self._positions[slots]
            found[other] = at
            left = (self._keys[slots] != keys[other]) & (at >= 0)
            other, slots = other[left], slots[left]
        return found


def expand_runs(starts: Ints, counts: Ints) -> Ints:
    """Return the positions start, start + 1, ... of several runs, concatenated.

    >>> expand_runs(np.array([10, 20]), np.array([2, 3])).tolist()
    [10, 11, 20, 21, 22]
    """
    ends = np.cumsum(counts)
    positions: Ints = np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - (ends - counts), counts)
    return positions


def sort_codes(codes: npt.NDArray[Any], count: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the positions of codes below a count, ordered by code, and where the positions of each code end.

    >>> [part.tolist() for part in sort_codes(np.array([1, 0, 1]), 3)]
    [[1, 0, 2], [1, 3, 3]]
    """
    narrow = codes.astype(np.uint16) if count <= 1 << 16 else codes  # numbers of 16 bits are sorted by radix
    return np.argsort(narrow, kind="stable"), np.cumsum(np.bincount(codes, minlength=count))


# -- bins of ranges ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Positions:
    """The position of each value of one attribute, below 2**POSITION_BITS and in the order of values."""

    low: float
    scale: float
    """Cells per unit of value."""
    origin: Reals
    scales: Reals
    first: Ints
    last: Reals
    """For each cell: where its positions start, positions per unit of value, the first one, and how many follow it."""

    def of(self, values: Bounds) -> Ints:
        numbers = values.astype(np.float64, copy=False)
        with np.errstate(over="ignore"):
            cell = _clamp((numbers - self.low) * self.scale, len(self.first) - 1)
            within = _clamp((numbers - self.origin[cell]) * self.scales[cell], self.last[cell])
        return self.first[cell] + within


def _clamp(positions: Reals, last: Reals | int) -> Ints:
    np.maximum(positions, 0.0, out=positions)
    np.minimum(positions, last, out=positions)
    return positions.astype(np.int64)


def positions_for(low: Bounds, high: Bounds) -> Positions:
    """Choose the positions for ranges with these bounds."""
    ends = np.sort(np.clip(_finite(low, high).astype(np.float64), -MAX_SIZE, MAX_SIZE))
    least, most = ends[len(ends) // 200], ends[-1 - len(ends) // 200]
    cells = min(CELLS, len(ends))
    start, scale = float(least), float(_scale(cells, least, most))
    cell = _clamp((ends - start) * scale, cells - 1)
    begin, end = np.searchsorted(cell, np.arange(cells), "left"), np.searchsorted(cell, np.arange(cells), "right")
    size = 1 + (end - begin) * (((1 << POSITION_BITS) - cells) // len(ends))
    origin, reach = ends[np.minimum(begin, len(ends) - 1)], ends[np.maximum(end, 1) - 1]
    first = np.cumsum(size) - size
    return Positions(start, scale, origin, _scale(size, origin, reach), first, (size - 1).astype(np.float64))


def _finite(low: Bounds, high: Bounds) -> Bounds:
    """Return the finite bounds; a single 0 if there are none."""
    is_float = np.issubdtype(low.dtype, np.floating)
    least, most = (-np.inf, np.inf) if is_float else (INT64_MIN, INT64_MAX)
    found: Bounds = np.concatenate([low[low > least], high[high < most]])
    return found if len(found) else np.zeros(1)


def _scale(count: npt.ArrayLike, low: npt.ArrayLike, high: npt.ArrayLike) -> Reals:
    """Positions per unit of value; clipped, because with zero or infinity the position of infinity would be NaN."""
    width = np.subtract(high, low)
    with np.errstate(over="ignore"):
        per_unit = np.divide(count, width, where=width > 0, out=np.ones(np.shape(width)))
    scale: Reals = np.clip(per_unit, 1e-300, MAX_SIZE)
    return scale


def bins_per_group(first: Ints, last: Ints, group: Ints, groups: int) -> Ints:
    """Return the number of bins of each group, for ranges between positions; `group` is the group of each range."""
    ranges = np.bincount(group, minlength=groups)
    widths = np.bincount(group, (last - first + 1) / (1 << POSITION_BITS), minlength=groups)
    wanted = np.minimum(COVERED * ranges / np.maximum(widths, 1e-9), 2.0 * ranges)
    bins: Ints = np.maximum(wanted, 1.0).astype(np.int64)
    return bins


def bin_of(position: Ints, bins: Ints) -> Ints:
    found: Ints = position * bins >> POSITION_BITS
    return found
