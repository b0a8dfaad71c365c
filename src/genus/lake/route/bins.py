"""Bins: where in a table the ranges are that a value may lie in.

Values are cut into cells of equal width between the outer constants of the subscriptions, and each cell into bins of
equal width, as many as it has constants, so bins stay narrow where constants are dense. A value's bin is found by two
subtractions and multiplications, which round alike here and on Spark and keep the order of values; so a range reaches
from the bin of its lower bound to that of its upper one, without exception. A range is listed at the level where it
covers two bins at most: a level has bins that are four times wider than those of the level below. So a table has few
entries per range, however wide ranges are.
"""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyspark.sql.functions as F
from pyspark.sql import Column

from genus.lake.route.units import Ints
from genus.model.types import INT64_MAX, INT64_MIN

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
