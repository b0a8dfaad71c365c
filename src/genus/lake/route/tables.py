"""The tables of a pass, from columns of numbers to Arrow: what Spark broadcasts."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from genus.lake.route.bins import Bounds
from genus.lake.route.groups import Groups
from genus.lake.route.parts import Dimension
from genus.lake.route.slots import Slot
from genus.lake.route.units import WORD, Ints, Mask, Units, spread, word_of

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
