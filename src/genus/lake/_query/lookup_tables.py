"""The tables of a lookup, which Spark broadcasts, and the bins by which ranges are looked up.

The interval between the outer constants of the subscriptions is cut into cells of equal width, and each cell into bins
of equal width, as many as it has constants; so bins are narrow where constants are dense. The bin of a value is
computed by two subtractions and multiplications, which round identically in numpy and on Spark and keep the order of
values; so a range covers exactly the bins from that of its lower bound to that of its upper bound. A range is listed at
the level where it covers at most two bins; the bins of a level are four times wider than those of the level below. So a
table has few entries per range, however wide ranges are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyspark.sql.functions as F
from pyspark.sql import Column

from genus.lake._query.decompose import KeyDimension
from genus.lake._query.shape_match import WORD, Ints, Mask, ShapeGroups, ShapeList, expand_runs, word_of
from genus.lake._query.templates import ValueType
from genus.model._types import INT64_MAX, INT64_MIN

Reals: TypeAlias = npt.NDArray[np.float64]
Bounds: TypeAlias = npt.NDArray[np.float64] | npt.NDArray[np.int64]

CELLS = 1024
DENSITY = 4
"""Bins per constant."""
STEP = 2
"""A bin covers 2**STEP bins of the level below."""
LARGEST = 1e300


@dataclass(frozen=True, slots=True)
class Bins:
    """The bins of one attribute."""

    low: float
    scale: float
    origin: Reals
    """For each cell: the start of its bins, bins per unit of value, the first bin, and the number of bins."""
    scales: Reals
    first: Ints
    size: Ints

    def __len__(self) -> int:
        return int(self.size.sum())

    def of(self, values: Bounds) -> Ints:
        """The bin of each value."""
        numbers = values.astype(np.float64)
        with np.errstate(over="ignore"):
            cell = _clamp((numbers - self.low) * self.scale, len(self.first) - 1)
            within = _clamp((numbers - self.origin[cell]) * self.scales[cell], self.size[cell] - 1)
        return self.first[cell] + within

    def cell(self, value: Column, offset: int) -> Column:
        """The cell of a column of numbers; `offset` is the number of the first cell of this attribute."""
        number = value.cast("double")
        last = F.lit(float(len(self.first) - 1))
        position = (number - F.lit(self.low)) * F.lit(self.scale)
        return F.lit(offset) + F.least(F.greatest(position, F.lit(0.0)), last).cast("int")


def bin_column(value: Column, cell: Column, cells: Column) -> Column:
    """The bin of a column of numbers in given cells; `cells` is the row of `cells_table`."""
    origin, scale, first, last = (F.get(cells.getField(name), cell) for name in ("origin", "scale", "first", "last"))
    within = (value.cast("double") - origin) * scale
    return (first + F.least(F.greatest(within, F.lit(0.0)), last)).cast("bigint")


def _clamp(positions: Reals, last: Ints | int) -> Ints:
    return np.minimum(np.maximum(positions, 0.0), np.asarray(last, np.float64)).astype(np.int64)


def bins_for(low: Bounds, high: Bounds) -> Bins:
    """Choose the bins for ranges with these bounds."""
    ends = np.sort(np.clip(_finite(low, high).astype(np.float64), -LARGEST, LARGEST))
    least, most = ends[len(ends) // 200], ends[-1 - len(ends) // 200]
    cells = min(CELLS, len(ends))
    start, scale = float(least), float(_scale(cells, least, most))
    cell = _clamp((ends - start) * scale, cells - 1)
    begin, end = np.searchsorted(cell, np.arange(cells), "left"), np.searchsorted(cell, np.arange(cells), "right")
    size = 1 + DENSITY * (end - begin)
    origin, reach = ends[np.minimum(begin, len(ends) - 1)], ends[np.maximum(end, 1) - 1]
    return Bins(start, scale, origin, _scale(size, origin, reach), np.cumsum(size) - size, size)


def _finite(low: Bounds, high: Bounds) -> Bounds:
    """The finite bounds; a single 0 if there are none."""
    is_float = np.issubdtype(low.dtype, np.floating)
    least, most = (-np.inf, np.inf) if is_float else (INT64_MIN, INT64_MAX)
    found: Bounds = np.concatenate([low[low > least], high[high < most]])
    return found if len(found) else np.zeros(1)


def _scale(count: npt.ArrayLike, low: npt.ArrayLike, high: npt.ArrayLike) -> "npt.NDArray[np.float64]":
    """Bins per unit of value; clipped, because with zero or infinity the bin of infinity would be NaN."""
    width = np.subtract(high, low)
    return np.clip(np.divide(count, width, where=width > 0, out=np.ones(np.shape(width))), 1e-300, LARGEST)


def range_levels(first: Ints, last: Ints) -> Ints:
    """The lowest level at which each range of bins covers at most two bins.

    >>> range_levels(np.array([0, 0, 5]), np.array([0, 3, 1000])).tolist()
    [0, 1, 5]
    """
    wide, found = last - first, np.zeros(len(first), np.int64)
    while wide.any():
        found += wide > 0
        wide = wide >> STEP
    return found


def coarsest_level(bins: int, wanted: float) -> int:
    """The lowest level with at most the wanted number of bins.

    >>> coarsest_level(1000, 100.0)
    2
    """
    level = 0
    while bins >> STEP * level > max(wanted, 1.0):
        level += 1
    return level


def cells_table(all_bins: list[Bins]) -> pa.Table:
    """The cells of several attributes, concatenated, as one row of lists."""
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


# -- tables ------------------------------------------------------------------------------------------------------------


SHAPE_ID, GROUP, DIMENSION, SHIFT = "__shape_id", "__group", "__dimension", "__shift"
HAS, LACKS = "__has_", "__lacks_"
"""Columns of the address table: a shape, a group it is in, how values are looked up there, and a mask for events."""
KEY, OWNER, VALUE, FOUND = "__key", "__owner", "__value_", "__found"
LOW, HIGH = "__low", "__high"
"""Columns of the lookup table: a group, or a group and a value or bin, and lists of subscriptions with their bounds.
Three lists of numbers take half the memory of one list of structs."""
BIN_BITS = 32
"""Bits of the bin in a key; the group is above them."""


def address_table(
    shapes: ShapeList, groups: ShapeGroups, masks: Sequence[Mask], mask: Ints, **columns: Ints
) -> pa.Table:
    """The address table: a row for each shape and each group that it is in."""
    ids = [shape.number if shapes.tagged else shape.type for shape in shapes.shapes]
    shape_id = pa.array(ids, pa.int64() if shapes.tagged else pa.string()).take(pa.array(groups.shape))
    found = {SHAPE_ID: shape_id, GROUP: pa.array(groups.group.astype(np.int32))}
    found |= {name: pa.array(column.astype(np.int32)) for name, column in columns.items()}
    return pa.table(found if shapes.tagged else found | _mask_columns(shapes, masks, mask))


def _mask_columns(shapes: ShapeList, masks: Sequence[Mask], mask: Ints) -> dict[str, pa.Array]:
    found = {}
    for number, at in enumerate(range(0, max(len(shapes.vector), 1), WORD)):
        words = np.array([[word_of(bits, at) for bits in pair] for pair in masks], np.int64).reshape(-1, 2)
        found[f"{HAS}{number}"] = pa.array(words[mask, 0])
        found[f"{LACKS}{number}"] = pa.array(words[mask, 1])
    return found


def shape_lookup(groups: ShapeGroups, subscription: Ints) -> pa.Table:
    """The lookup table of the subscriptions of each group."""
    order = _order(groups.entry_group)
    keys, offsets = _offsets(groups.entry_group[order])
    return pa.table({KEY: keys, FOUND: _lists(offsets, _subscriptions(subscription[groups.entry[order]]))})


def value_lookup(groups: ShapeGroups, subscription: Ints, value: Ints, values: "KeyValues") -> pa.Table:
    """The lookup table of the subscriptions of each group and value."""
    keys = groups.entry_group * len(values) + value[groups.entry]
    order = _order(keys)
    keys, offsets = _offsets(keys[order])
    columns = {
        VALUE + value_type.value: values.column(keys % len(values), value_type) for value_type in values.value_types
    }
    owner = pa.array((keys // len(values)).astype(np.int32))
    found = _lists(offsets, _subscriptions(subscription[groups.entry[order]]))
    return pa.table({OWNER: owner, **columns, FOUND: found})


def range_lookup(
    groups: ShapeGroups, subscription: Ints, first: Ints, last: Ints, low: Bounds, high: Bounds
) -> pa.Table:
    """The lookup table of the subscriptions of each group and bin, with their bounds."""
    covered = (last - first + 1)[groups.entry]
    entry = np.repeat(groups.entry, covered)
    keys = np.repeat(groups.entry_group << BIN_BITS, covered) + expand_runs(first[groups.entry], covered)
    order = _order(keys)
    keys, offsets = _offsets(keys[order])
    entry = entry[order]
    found = {FOUND: _subscriptions(subscription[entry]), LOW: pa.array(low[entry]), HIGH: pa.array(high[entry])}
    return pa.table({KEY: keys, **{name: _lists(offsets, column) for name, column in found.items()}})


class KeyValues:
    """The distinct values of a lookup, each of one dimension, and the value types of the dimensions."""

    def __init__(self, values: Sequence[Any], dimension: Ints, dimensions: Sequence[KeyDimension]) -> None:
        numbers: dict[tuple[int, Any], int] = {}
        pairs = zip(dimension.tolist(), values, strict=True)
        self.which = np.array([numbers.setdefault(pair, len(numbers)) for pair in pairs], np.int64)
        """The number of each given value."""
        self._values = [value for _, value in numbers]
        self._value_types = [dimensions[number].value_type for number, _ in numbers]
        self.value_types = tuple(dict.fromkeys(self._value_types))

    def __len__(self) -> int:
        return len(self._values)

    def column(self, which: Ints, value_type: ValueType) -> pa.Array:
        """The values with some numbers, null where they have another value type."""
        mine = [
            value if own is value_type else None for value, own in zip(self._values, self._value_types, strict=True)
        ]
        return pa.array(mine, value_type.arrow).take(pa.array(which))


def _order(keys: Ints) -> Ints:
    return np.argsort(keys, kind="stable")


def _offsets(ordered: Ints) -> tuple[Ints, Ints]:
    """Distinct keys, and the start of the run of each."""
    start = np.flatnonzero(np.diff(ordered, prepend=-1))
    return ordered[start], np.append(start, len(ordered))


def _subscriptions(numbers: Ints) -> pa.Array:
    return pa.array(numbers.astype(np.int32))


def _lists(offsets: Ints, values: pa.Array) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), values)
