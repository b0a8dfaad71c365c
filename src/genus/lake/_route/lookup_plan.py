"""Passes: how the events of a family are looked up; planned on the driver.

A pass goes over the events once. It finds the groups of an event's shape in the *address* table, and the subscriptions
of a group, or of a group and a value, in the *lookup* table. There is one for subscriptions that ask for a shape alone,
one for all equalities, and one each for ranges of integers and of floats; and the same again for subscriptions with a
residual, so that nobody else pays for it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from genus.filters._expression import format_expression
from genus.lake._route.decompose import Anatomy, Dimension, Keyed
from genus.lake._route.lookup_tables import (
    DIMENSION,
    SHIFT,
    STEP,
    UNIT,
    Bins,
    Bounds,
    Values,
    address_table,
    bins_for,
    coarsest,
    levels,
    range_lookup,
    shape_lookup,
    value_lookup,
)
from genus.lake._route.shape_match import Accepted, Flags, Groups, Ints, Units, grouped
from genus.lake._route.templates import Slot, Templates, attributes_in, ranked, residual_table
from genus.lake._tables.columns import SHAPE, TYPE

Method: TypeAlias = Literal["shape", "equal", "range"]

LEVELS = 32
"""More than there can be: bins have fewer than 64 bits."""
FEW = 4.0
"""A level that gives an event fewer candidates than that, on average, is not worth a lookup of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One way over a family's events."""

    method: Method
    units: Units
    subscriptions: int
    """How many are found by it."""
    address: pa.Table
    lookup: pa.Table
    residual: pa.Table | None
    """Of subscriptions with a residual: its template and constants."""
    templates: tuple[int, ...]
    """The templates of the residuals, in the order of their ranks."""
    dimensions: tuple[Dimension, ...] = ()
    slots: tuple[Slot, ...] = ()
    bins: Mapping[int, Bins] = field(default_factory=dict)
    """The bins of each dimension, by its number."""


def passes_for(anatomy: Anatomy, units: Units, accepted: Accepted) -> Iterator[Pass]:
    """The passes over the events of some units."""
    planner = _Planner(anatomy, units, accepted)
    for residual in (False, True):
        yield from planner.by_shape(residual)
        yield from planner.by_value(residual)
        for slot, rows in anatomy.ranges.items():
            yield from planner.by_range(rows, slot, residual)


class _Planner:
    """Plans the passes over some units."""

    def __init__(self, anatomy: Anatomy, units: Units, accepted: Accepted) -> None:
        self._anatomy, self._units, self._accepted = anatomy, units, accepted
        self._profile = _ints(anatomy.profile_of)
        self._weight = np.where(self._profile < 0, 0, np.append(accepted.counts(), 0)[self._profile]) / len(units)
        """The part of the units that each subscription accepts."""
        self._residual = np.full(len(self._profile), -1)
        """The row of each subscription among the templates; -1 for those without a residual."""
        self._residual[_ints(anatomy.templates.subscriptions)] = np.arange(len(anatomy.templates.subscriptions))

    def by_shape(self, residual: bool) -> Iterator[Pass]:
        """The pass of subscriptions without a key."""
        subscription = _ints(self._anatomy.unkeyed)
        subscription = subscription[self._wanted(subscription, residual)]
        if len(subscription):
            nothing = np.zeros(len(subscription), np.int64)
            groups = self._grouped(subscription, nothing, nothing)
            yield self._pass("shape", subscription, self._address(groups), shape_lookup(groups, subscription))

    def by_value(self, residual: bool) -> Iterator[Pass]:
        """The pass of subscriptions with an equality as key."""
        rows = self._anatomy.equal
        chosen, subscription, dimension = self._chosen(rows, residual)
        if len(chosen):
            values = Values([rows.values[row] for row in chosen.tolist()], dimension, self._anatomy.dimensions)
            groups = self._grouped(subscription, dimension, np.zeros(len(subscription), np.int64))
            lookup = value_lookup(groups, subscription, values.which, values)
            dimensions = self._dimensions(dimension)
            address = self._address(groups)
            yield self._pass("equal", subscription, address, lookup, dimensions=dimensions, slots=values.slots)

    def by_range(self, rows: Keyed, slot: Slot, residual: bool) -> Iterator[Pass]:
        """The pass of subscriptions with a range as key."""
        chosen, subscription, dimension = self._chosen(rows, residual)
        if len(chosen):
            low, high = (_bounds(column, chosen, slot) for column in (rows.low, rows.high))
            bins = {number: bins_for(low[of], high[of]) for number, of in _each(dimension)}
            first, last = (_placed(bins, dimension, bounds) for bounds in (low, high))
            level = self._levels(subscription, dimension, levels(first, last), bins)
            groups = self._grouped(subscription, dimension, level)
            shift = STEP * level
            lookup = range_lookup(groups, subscription, first >> shift, last >> shift, low, high)
            more = {"dimensions": self._dimensions(dimension), "slots": (slot,), "bins": bins}
            yield self._pass("range", subscription, self._address(groups), lookup, **more)

    def _wanted(self, subscription: Ints, residual: bool) -> Flags:
        wanted: Flags = (self._weight[subscription] > 0) & ((self._residual[subscription] >= 0) == residual)
        return wanted

    def _chosen(self, rows: Keyed, residual: bool) -> tuple[Ints, Ints, Ints]:
        """The rows that belong to a pass, their subscriptions and their dimensions."""
        subscription, dimension = _ints(rows.subscriptions), _ints(rows.dimensions)
        chosen = np.flatnonzero(self._wanted(subscription, residual))
        return chosen, subscription[chosen], dimension[chosen]

    def _levels(self, subscription: Ints, dimension: Ints, fitting: Ints, bins: Mapping[int, Bins]) -> Ints:
        """The levels of ranges: no more bins than a unit has ranges, and few on one level join those on the next."""
        level = fitting.copy()
        for number, of in _each(dimension):
            lowest = coarsest(len(bins[number]), self._weight[subscription[of]].sum())
            level[of] = np.maximum(level[of], lowest)
            present = np.unique(level[of])
            for lower, upper in pairwise(present.tolist()):
                here = of & (level == lower)
                if self._weight[subscription[here]].sum() < FEW:
                    level[here] = upper
        return level

    def _grouped(self, subscription: Ints, dimension: Ints, level: Ints) -> Groups:
        profile = self._profile[subscription]
        class_ = (dimension * LEVELS + level) * len(self._accepted.masks) + self._accepted.mask_of[profile]
        return grouped(profile, class_, self._accepted, len(self._units))

    def _address(self, groups: Groups) -> pa.Table:
        place, mask = np.divmod(groups.class_, len(self._accepted.masks))
        dimension, level = np.divmod(place, LEVELS)
        columns = {DIMENSION: dimension, SHIFT: STEP * level}
        return address_table(self._units, groups, self._accepted.masks, mask, **columns)

    def _dimensions(self, dimension: Ints) -> tuple[Dimension, ...]:
        return tuple(self._anatomy.dimensions[number] for number in np.unique(dimension).tolist())

    def _pass(self, method: Method, subscription: Ints, address: pa.Table, lookup: pa.Table, **more: Any) -> Pass:
        distinct = np.unique(subscription)
        templates = self._anatomy.templates
        rows = self._residual[distinct]
        rows = rows[rows >= 0].tolist()
        ranks = ranked(templates, rows)
        return Pass(
            method=method,
            units=self._units,
            subscriptions=len(distinct),
            address=address,
            lookup=lookup,
            residual=residual_table(templates, rows, ranks) if rows else None,
            templates=ranks,
            **more,
        )


def _ints(numbers: Sequence[int]) -> Ints:
    return np.array(numbers, np.int64)


def _each(dimension: Ints) -> Iterator[tuple[int, Flags]]:
    """Each dimension, and which rows are of it."""
    return ((number, dimension == number) for number in np.unique(dimension).tolist())


def _bounds(column: Sequence[Any], rows: Ints, slot: Slot) -> Bounds:
    return np.array(column, np.float64)[rows] if slot is Slot.DOUBLE else np.array(column, np.int64)[rows]


def _placed(bins: Mapping[int, Bins], dimension: Ints, bounds: Bounds) -> Ints:
    """The bin of each bound."""
    found = np.zeros(len(bounds), np.int64)
    for number, of in _each(dimension):
        found[of] = bins[number].of(bounds[of])
    return found


# A pass in plain words; a shape is a type with the attributes that events of it carry.


SHOWN = 3
"""So many templates are written out."""
_HOW = {"shape": "by type and attributes", "equal": "also by the value of", "range": "also by the range of"}


def described(pass_: Pass, templates: Templates) -> Iterator[str]:
    """How subscriptions are found, what is left to be tested, and what that reads and broadcasts."""
    yield f"{counted(pass_.subscriptions, 'subscription')} found {_how(pass_)}: {_sizes(pass_)}"
    if pass_.residual is not None:
        shown = "; ".join(format_expression(templates.examples[number]) for number in pass_.templates[:SHOWN])
        more = f"; and {len(pass_.templates) - SHOWN:,} more" if len(pass_.templates) > SHOWN else ""
        yield f"  what is found is tested by {counted(len(pass_.templates), 'predicate')}, such as {shown}{more}"
    yield f"  reads {', '.join(_reads(pass_, templates))}; sends {_size(pass_)} to every worker"


def _how(pass_: Pass) -> str:
    names = ", ".join(dimension.name for dimension in pass_.dimensions)
    found = f"{_HOW[pass_.method]} {names}".strip()
    return found if pass_.units.tagged else f"{found}, attributes tested on events"


def _sizes(pass_: Pass) -> str:
    number = pc.count_distinct(pass_.address[UNIT]).as_py()
    units = counted(number, "shape") if pass_.units.tagged else counted(number, "type")
    return f"{units}, {counted(pass_.lookup.num_rows, 'list')} of subscriptions to look up"


def _reads(pass_: Pass, templates: Templates) -> list[str]:
    names = [SHAPE if pass_.units.tagged else TYPE, *(dimension.name for dimension in pass_.dimensions)]
    names += [] if pass_.units.tagged else [attribute.name for attribute in pass_.units.vector]
    names += [name for number in pass_.templates for name, _ in attributes_in(templates.predicates[number])]
    return list(dict.fromkeys(names))


def _size(pass_: Pass) -> str:
    tables = [pass_.address, pass_.lookup, *([] if pass_.residual is None else [pass_.residual])]
    size = sum(table.nbytes for table in tables)
    return f"{size / 1e6:,.1f} MB" if size >= 100_000 else f"{-(-size // 1000)} kB"


def counted(number: int, noun: str, nouns: str | None = None) -> str:
    """A number of things.

    >>> counted(1, "list"), counted(2000, "list")
    ('1 list', '2,000 lists')
    """
    return f"{number:,} {noun if number == 1 else nouns or noun + 's'}"
