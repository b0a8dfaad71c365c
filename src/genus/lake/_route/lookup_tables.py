"""Bins: where in a table the ranges are that a value may lie in.

Values are cut into cells of equal width between the outer constants of the subscriptions, and each cell into bins of
equal width, as many as it has constants, so bins stay narrow where constants are dense. A value's bin is found by two
subtractions and multiplications, which round alike here and on Spark and keep the order of values; so a range reaches
from the bin of its lower bound to that of its upper one, without exception. A range is listed at the level where it
covers two bins at most: a level has bins that are four times wider than those of the level below. So a table has few
entries per range, however wide ranges are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyspark.sql.functions as F
from pyspark.sql import Column

from genus.lake._route.decompose import Dimension
from genus.lake._route.shape_match import WORD, Groups, Ints, Mask, Units, spread, word_of
from genus.lake._route.templates import Slot
from genus.model._types import INT64_MAX, INT64_MIN

Reals: TypeAlias = npt.NDArray[np.float64]
Bounds: TypeAlias = npt.NDArray[np.float64] | npt.NDArray[np.int64]

CELLS = 1024
DENSITY = 4
"""Bins for each constant."""
STEP = 2
"""A level has bins of 2**STEP of the level below."""
LARGEST = 1e300


@dataclass(frozen=True, slots=True)
class Bins:
    """The bins of one attribute."""

    low: float
    scale: float
    origin: Reals
    """Of each cell: where its bins begin, how many of them a unit of value has, which is the first, and how many."""
    scales: Reals
    first: Ints
    size: Ints

    def __len__(self) -> int:
        return int(self.size.sum())

    def of(self, values: Bounds) -> Ints:
        """The bin of each value."""
        numbers = values.astype(np.float64)
        with np.errstate(over="ignore"):
            cell = _clamped((numbers - self.low) * self.scale, len(self.first) - 1)
            within = _clamped((numbers - self.origin[cell]) * self.scales[cell], self.size[cell] - 1)
        return self.first[cell] + within

    def cell(self, value: Column, offset: int) -> Column:
        """The cell of a column of numbers; those of this attribute stand at an offset among those of all."""
        number = value.cast("double")
        last = F.lit(float(len(self.first) - 1))
        place = (number - F.lit(self.low)) * F.lit(self.scale)
        return F.lit(offset) + F.least(F.greatest(place, F.lit(0.0)), last).cast("int")


def bin_column(value: Column, cell: Column, cells: Column) -> Column:
    """The bin of a column of numbers, whose cells are known; `cells` is the row of `cells_table`."""
    origin, scale, first, last = (F.get(cells.getField(name), cell) for name in ("origin", "scale", "first", "last"))
    within = (value.cast("double") - origin) * scale
    return (first + F.least(F.greatest(within, F.lit(0.0)), last)).cast("bigint")


def _clamped(places: Reals, last: Ints | int) -> Ints:
    return np.minimum(np.maximum(places, 0.0), np.asarray(last, np.float64)).astype(np.int64)


def bins_for(low: Bounds, high: Bounds) -> Bins:
    """Bins for ranges with these bounds."""
    ends = np.sort(np.clip(_closed(low, high).astype(np.float64), -LARGEST, LARGEST))
    least, most = ends[len(ends) // 200], ends[-1 - len(ends) // 200]
    cells = min(CELLS, len(ends))
    start, scale = float(least), float(_scale(cells, least, most))
    cell = _clamped((ends - start) * scale, cells - 1)
    begin, end = np.searchsorted(cell, np.arange(cells), "left"), np.searchsorted(cell, np.arange(cells), "right")
    size = 1 + DENSITY * (end - begin)
    origin, reach = ends[np.minimum(begin, len(ends) - 1)], ends[np.maximum(end, 1) - 1]
    return Bins(start, scale, origin, _scale(size, origin, reach), np.cumsum(size) - size, size)


def _closed(low: Bounds, high: Bounds) -> Bounds:
    """The bounds that are some constant, and not the end of all numbers; one number if there are none."""
    is_float = np.issubdtype(low.dtype, np.floating)
    least, most = (-np.inf, np.inf) if is_float else (INT64_MIN, INT64_MAX)
    found: Bounds = np.concatenate([low[low > least], high[high < most]])
    return found if len(found) else np.zeros(1)


def _scale(count: npt.ArrayLike, low: npt.ArrayLike, high: npt.ArrayLike) -> "npt.NDArray[np.float64]":
    """Bins per unit of value; never zero and never infinite, or infinity would have no bin."""
    width = np.subtract(high, low)
    return np.clip(np.divide(count, width, where=width > 0, out=np.ones(np.shape(width))), 1e-300, LARGEST)


def levels(first: Ints, last: Ints) -> Ints:
    """The level of each range from a bin to another: the lowest where it covers two bins at most.

    >>> levels(np.array([0, 0, 5]), np.array([0, 3, 1000])).tolist()
    [0, 1, 5]
    """
    wide, found = last - first, np.zeros(len(first), np.int64)
    while wide.any():
        found += wide > 0
        wide = wide >> STEP
    return found


def coarsest(bins: int, wanted: float) -> int:
    """The lowest level with no more bins than are wanted.

    >>> coarsest(1000, 100.0)
    2
    """
    level = 0
    while bins >> STEP * level > max(wanted, 1.0):
        level += 1
    return level


def cells_table(all_bins: list[Bins]) -> pa.Table:
    """The cells of several attributes, one after the other, in one row of lists."""
    columns = {
        "origin": np.concatenate([bins.origin for bins in all_bins]),
        "scale": np.concatenate([bins.scales for bins in all_bins]),
        "first": np.concatenate([bins.first for bins in all_bins]).astype(np.float64),
        "last": np.concatenate([bins.size - 1 for bins in all_bins]).astype(np.float64),
    }
    row = pa.StructArray.from_arrays(
        [pa.ListArray.from_arrays([0, len(column)], column) for column in columns.values()], list(columns)
    )
    return pa.table({"cells": row})


# The tables of a pass, from columns of numbers to Arrow: what Spark broadcasts.


UNIT, GROUP, DIMENSION, SHIFT = "__unit", "__group", "__dimension", "__shift"
HAS, LACKS = "__has_", "__lacks_"
"""The address table: a unit, a group it is in, how values are looked up there, and a mask that events must fit."""
KEY, OWNER, VALUE, FOUND = "__key", "__owner", "__value_", "__found"
LOW, HIGH = "__low", "__high"
"""The lookup table: a group, or a group and a value or bin, and the subscriptions to be found there with their bounds;
three lists of numbers take half the room of one list of structs."""
BIN_BITS = 32
"""Bits of a bin in a key; the bits above are the group's."""


def address_table(units: Units, groups: Groups, masks: Sequence[Mask], mask: Ints, **columns: Ints) -> pa.Table:
    """Where the events of a unit are to be looked up, a row for each group that it is in."""
    named = [shape.number if units.tagged else shape.type for shape in units.shapes]
    unit = pa.array(named, pa.int64() if units.tagged else pa.string()).take(pa.array(groups.unit))
    found = {UNIT: unit, GROUP: pa.array(groups.group.astype(np.int32))}
    found |= {name: pa.array(column.astype(np.int32)) for name, column in columns.items()}
    return pa.table(found if units.tagged else found | _mask_columns(units, masks, mask))


def _mask_columns(units: Units, masks: Sequence[Mask], mask: Ints) -> dict[str, pa.Array]:
    found = {}
    for number, at in enumerate(range(0, max(len(units.vector), 1), WORD)):
        words = np.array([[word_of(bits, at) for bits in pair] for pair in masks], np.int64).reshape(-1, 2)
        found[f"{HAS}{number}"] = pa.array(words[mask, 0])
        found[f"{LACKS}{number}"] = pa.array(words[mask, 1])
    return found


def shape_lookup(groups: Groups, subscription: Ints) -> pa.Table:
    """The subscriptions of each group."""
    order = _order(groups.entry_group)
    keys, offsets = _offsets(groups.entry_group[order])
    return pa.table({KEY: keys, FOUND: _lists(offsets, _subscriptions(subscription[groups.entry[order]]))})


def value_lookup(groups: Groups, subscription: Ints, value: Ints, values: "Values") -> pa.Table:
    """The subscriptions of each group and value."""
    places = groups.entry_group * len(values) + value[groups.entry]
    order = _order(places)
    keys, offsets = _offsets(places[order])
    columns = {VALUE + slot.value: values.column(keys % len(values), slot) for slot in values.slots}
    owner = pa.array((keys // len(values)).astype(np.int32))
    found = _lists(offsets, _subscriptions(subscription[groups.entry[order]]))
    return pa.table({OWNER: owner, **columns, FOUND: found})


def range_lookup(groups: Groups, subscription: Ints, first: Ints, last: Ints, low: Bounds, high: Bounds) -> pa.Table:
    """The subscriptions of each group and bin, with their bounds."""
    covered = (last - first + 1)[groups.entry]
    entry = np.repeat(groups.entry, covered)
    places = np.repeat(groups.entry_group << BIN_BITS, covered) + spread(first[groups.entry], covered)
    order = _order(places)
    keys, offsets = _offsets(places[order])
    entry = entry[order]
    found = {FOUND: _subscriptions(subscription[entry]), LOW: pa.array(low[entry]), HIGH: pa.array(high[entry])}
    return pa.table({KEY: keys, **{name: _lists(offsets, column) for name, column in found.items()}})


class Values:
    """The distinct values that a pass looks up, each of one dimension, and where the slots of their dimensions are."""

    def __init__(self, values: Sequence[Any], dimension: Ints, dimensions: Sequence[Dimension]) -> None:
        numbers: dict[tuple[int, Any], int] = {}
        pairs = zip(dimension.tolist(), values, strict=True)
        self.which = np.array([numbers.setdefault(pair, len(numbers)) for pair in pairs], np.int64)
        """The number of each value that was given."""
        self._values = [value for _, value in numbers]
        self._slots = [dimensions[number].slot for number, _ in numbers]
        self.slots = tuple(dict.fromkeys(self._slots))

    def __len__(self) -> int:
        return len(self._values)

    def column(self, which: Ints, slot: Slot) -> pa.Array:
        """Values by number, as far as they are of a slot."""
        mine = [value if own is slot else None for value, own in zip(self._values, self._slots, strict=True)]
        return pa.array(mine, slot.arrow).take(pa.array(which))


def _order(places: Ints) -> Ints:
    return np.argsort(places, kind="stable")


def _offsets(ordered: Ints) -> tuple[Ints, Ints]:
    """Distinct keys, and where the run of each begins."""
    start = np.flatnonzero(np.diff(ordered, prepend=-1))
    return ordered[start], np.append(start, len(ordered))


def _subscriptions(numbers: Ints) -> pa.Array:
    return pa.array(numbers.astype(np.int32))


def _lists(offsets: Ints, values: pa.Array) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), values)
