"""Lookup plans: how the events of a family find their subscriptions; made on the driver.

A lookup passes over the events once. It finds the groups of an event's shape in the *address* table, and the
subscriptions of a group, or of a group and a value, in the *lookup* table. There is one lookup for subscriptions that
only ask for a shape, one for all equalities, and one each for ranges of integers and of floats. Subscriptions with a
residual have lookups of their own, so that the others do not pay for it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from genus.filters._expression import format_expression
from genus.lake._query.decompose import DecomposedSubscriptions, KeyColumns, KeyDimension
from genus.lake._query.lookup_tables import (
    DIMENSION,
    SHAPE_ID,
    SHIFT,
    STEP,
    Bins,
    Bounds,
    KeyValues,
    address_table,
    bins_for,
    coarsest_level,
    range_levels,
    range_lookup,
    shape_lookup,
    value_lookup,
)
from genus.lake._query.shape_match import Flags, Ints, ShapeGroups, ShapeList, ShapeMatches, group_shapes
from genus.lake._query.templates import Templates, ValueType, attributes_in, rank_templates, residual_table
from genus.lake._tables.columns import SHAPE, TYPE

Method: TypeAlias = Literal["shape", "equal", "range"]

LEVELS = 32
"""Upper limit of the number of levels; bins have fewer than 64 bits."""
FEW = 4.0
"""A level with fewer candidates per event than this, on average, is merged with the next one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupPlan:
    """The tables of one lookup over a family's events."""

    method: Method
    shapes: ShapeList
    subscriptions: int
    """Number of subscriptions that this lookup finds."""
    address: pa.Table
    lookup: pa.Table
    residual: pa.Table | None
    """Templates and constants of the residuals; None if there are none."""
    templates: tuple[int, ...]
    """The templates of the residuals, in the order of their ranks."""
    dimensions: tuple[KeyDimension, ...] = ()
    value_types: tuple[ValueType, ...] = ()
    bins: Mapping[int, Bins] = field(default_factory=dict)
    """The bins of each dimension, by its number."""


def plan_lookups(decomposed: DecomposedSubscriptions, shapes: ShapeList, matches: ShapeMatches) -> Iterator[LookupPlan]:
    """Plan the lookups for events of some shapes."""
    planner = _Planner(decomposed, shapes, matches)
    for residual in (False, True):
        yield from planner.by_shape(residual)
        yield from planner.by_value(residual)
        for value_type, rows in decomposed.ranges.items():
            yield from planner.by_range(rows, value_type, residual)


class _Planner:
    """Plans the lookups for some shapes."""

    def __init__(self, decomposed: DecomposedSubscriptions, shapes: ShapeList, matches: ShapeMatches) -> None:
        self._decomposed, self._shapes, self._matches = decomposed, shapes, matches
        self._profile = _ints(decomposed.profile_of)
        self._weight = np.where(self._profile < 0, 0, np.append(matches.counts(), 0)[self._profile]) / len(shapes)
        """The fraction of the shapes that each subscription accepts."""
        self._residual = np.full(len(self._profile), -1)
        """The row of each subscription in the templates; -1 if it has no residual."""
        self._residual[_ints(decomposed.templates.subscriptions)] = np.arange(len(decomposed.templates.subscriptions))

    def by_shape(self, residual: bool) -> Iterator[LookupPlan]:
        """The lookup of subscriptions without a key."""
        subscription = _ints(self._decomposed.unkeyed)
        subscription = subscription[self._select_mask(subscription, residual)]
        if len(subscription):
            nothing = np.zeros(len(subscription), np.int64)
            groups = self._group(subscription, nothing, nothing)
            yield self._make_plan("shape", subscription, self._address(groups), shape_lookup(groups, subscription))

    def by_value(self, residual: bool) -> Iterator[LookupPlan]:
        """The lookup of subscriptions with an equality as key."""
        rows = self._decomposed.equal
        chosen, subscription, dimension = self._select(rows, residual)
        if len(chosen):
            values = KeyValues([rows.values[row] for row in chosen.tolist()], dimension, self._decomposed.dimensions)
            groups = self._group(subscription, dimension, np.zeros(len(subscription), np.int64))
            lookup = value_lookup(groups, subscription, values.which, values)
            dimensions = self._dimensions(dimension)
            address = self._address(groups)
            yield self._make_plan(
                "equal", subscription, address, lookup, dimensions=dimensions, value_types=values.value_types
            )

    def by_range(self, rows: KeyColumns, value_type: ValueType, residual: bool) -> Iterator[LookupPlan]:
        """The lookup of subscriptions with a range as key."""
        chosen, subscription, dimension = self._select(rows, residual)
        if len(chosen):
            low, high = (_bounds(column, chosen, value_type) for column in (rows.low, rows.high))
            bins = {number: bins_for(low[of], high[of]) for number, of in _each(dimension)}
            first, last = (_bins_of(bins, dimension, bounds) for bounds in (low, high))
            level = self._levels(subscription, dimension, range_levels(first, last), bins)
            groups = self._group(subscription, dimension, level)
            shift = STEP * level
            lookup = range_lookup(groups, subscription, first >> shift, last >> shift, low, high)
            more = {"dimensions": self._dimensions(dimension), "value_types": (value_type,), "bins": bins}
            yield self._make_plan("range", subscription, self._address(groups), lookup, **more)

    def _select_mask(self, subscription: Ints, residual: bool) -> Flags:
        mask: Flags = (self._weight[subscription] > 0) & ((self._residual[subscription] >= 0) == residual)
        return mask

    def _select(self, rows: KeyColumns, residual: bool) -> tuple[Ints, Ints, Ints]:
        """The rows of a lookup, their subscriptions and their dimensions."""
        subscription, dimension = _ints(rows.subscriptions), _ints(rows.dimensions)
        chosen = np.flatnonzero(self._select_mask(subscription, residual))
        return chosen, subscription[chosen], dimension[chosen]

    def _levels(self, subscription: Ints, dimension: Ints, fitting: Ints, bins: Mapping[int, Bins]) -> Ints:
        """The level of each range: with no more bins than ranges per shape, and without levels of few ranges."""
        level = fitting.copy()
        for number, of in _each(dimension):
            lowest = coarsest_level(len(bins[number]), self._weight[subscription[of]].sum())
            level[of] = np.maximum(level[of], lowest)
            present = np.unique(level[of])
            for lower, upper in pairwise(present.tolist()):
                here = of & (level == lower)
                if self._weight[subscription[here]].sum() < FEW:
                    level[here] = upper
        return level

    def _group(self, subscription: Ints, dimension: Ints, level: Ints) -> ShapeGroups:
        profile = self._profile[subscription]
        class_ = (dimension * LEVELS + level) * len(self._matches.masks) + self._matches.mask_of[profile]
        return group_shapes(profile, class_, self._matches, len(self._shapes))

    def _address(self, groups: ShapeGroups) -> pa.Table:
        dimension_level, mask = np.divmod(groups.class_, len(self._matches.masks))
        dimension, level = np.divmod(dimension_level, LEVELS)
        columns = {DIMENSION: dimension, SHIFT: STEP * level}
        return address_table(self._shapes, groups, self._matches.masks, mask, **columns)

    def _dimensions(self, dimension: Ints) -> tuple[KeyDimension, ...]:
        return tuple(self._decomposed.dimensions[number] for number in np.unique(dimension).tolist())

    def _make_plan(
        self, method: Method, subscription: Ints, address: pa.Table, lookup: pa.Table, **more: Any
    ) -> LookupPlan:
        distinct = np.unique(subscription)
        templates = self._decomposed.templates
        rows = self._residual[distinct]
        rows = rows[rows >= 0].tolist()
        ranks = rank_templates(templates, rows)
        return LookupPlan(
            method=method,
            shapes=self._shapes,
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
    """Each dimension, and a mask of its rows."""
    return ((number, dimension == number) for number in np.unique(dimension).tolist())


def _bounds(column: Sequence[Any], rows: Ints, value_type: ValueType) -> Bounds:
    return np.array(column, np.float64)[rows] if value_type is ValueType.DOUBLE else np.array(column, np.int64)[rows]


def _bins_of(bins: Mapping[int, Bins], dimension: Ints, bounds: Bounds) -> Ints:
    """The bin of each bound."""
    found = np.zeros(len(bounds), np.int64)
    for number, of in _each(dimension):
        found[of] = bins[number].of(bounds[of])
    return found


# -- explanation -------------------------------------------------------------------------------------------------------


SHOWN = 3
"""Number of residual predicates that an explanation shows."""
_HOW = {"shape": "by type and attributes", "equal": "also by the value of", "range": "also by the range of"}


def describe_plan(plan: LookupPlan, templates: Templates) -> Iterator[str]:
    """Lines of text: how subscriptions are found, which predicates remain, and what is read and broadcast."""
    yield f"{format_count(plan.subscriptions, 'subscription')} found {_how(plan)}: {_sizes(plan)}"
    if plan.residual is not None:
        shown = "; ".join(format_expression(templates.examples[number]) for number in plan.templates[:SHOWN])
        more = f"; and {len(plan.templates) - SHOWN:,} more" if len(plan.templates) > SHOWN else ""
        yield f"  what is found is tested by {format_count(len(plan.templates), 'predicate')}, such as {shown}{more}"
    yield f"  reads {', '.join(_columns_read(plan, templates))}; sends {_size(plan)} to every worker"


def _how(plan: LookupPlan) -> str:
    names = ", ".join(dimension.name for dimension in plan.dimensions)
    found = f"{_HOW[plan.method]} {names}".strip()
    return found if plan.shapes.tagged else f"{found}, attributes tested on events"


def _sizes(plan: LookupPlan) -> str:
    number = pc.count_distinct(plan.address[SHAPE_ID]).as_py()
    shapes = format_count(number, "shape" if plan.shapes.tagged else "type")
    return f"{shapes}, {format_count(plan.lookup.num_rows, 'list')} of subscriptions to look up"


def _columns_read(plan: LookupPlan, templates: Templates) -> list[str]:
    names = [SHAPE if plan.shapes.tagged else TYPE, *(dimension.name for dimension in plan.dimensions)]
    names += [] if plan.shapes.tagged else [attribute.name for attribute in plan.shapes.vector]
    names += [name for number in plan.templates for name, _ in attributes_in(templates.predicates[number])]
    return list(dict.fromkeys(names))


def _size(plan: LookupPlan) -> str:
    tables = [plan.address, plan.lookup, *([] if plan.residual is None else [plan.residual])]
    size = sum(table.nbytes for table in tables)
    return f"{size / 1e6:,.1f} MB" if size >= 100_000 else f"{-(-size // 1000)} kB"


def format_count(number: int, noun: str, nouns: str | None = None) -> str:
    """A number and a noun, in the plural unless the number is 1.

    >>> format_count(1, "list"), format_count(2000, "list")
    ('1 list', '2,000 lists')
    """
    return f"{number:,} {noun if number == 1 else nouns or noun + 's'}"
