"""Execution of a lookup plan on Spark as a chain of broadcast joins with native columns only."""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from operator import and_

import pyarrow as pa
import pyarrow.compute as pc
import pyspark.sql.functions as F
from pyspark.sql import Column, DataFrame

import genus.filters._expression as x
from genus.lake._query.decompose import KeyDimension
from genus.lake._query.lookup_plan import LookupPlan
from genus.lake._query.lookup_tables import (
    BIN_BITS,
    DIMENSION,
    FOUND,
    GROUP,
    HAS,
    HIGH,
    KEY,
    LACKS,
    LOW,
    OWNER,
    SHAPE_ID,
    SHIFT,
    VALUE,
    bin_column,
    cells_table,
)
from genus.lake._query.shape_match import WORD
from genus.lake._query.templates import RESIDUAL_OF, ResidualCompiler, Templates, ValueType, attributes_in
from genus.lake._tables.columns import SHAPE, SUBSCRIPTION, TYPE, spark_type
from genus.model import AttributeType
from genus.targets.spark._compiler import SparkCompiler

MATCHES = "matches"
"""Name of the column with counts."""
_NUMBER, _EVENTS, _HASH, _CELL, _BIN, _INDEX = "__number", "__events", "__hash", "__cell", "__bin", "__index"


class Lookup:
    """A lookup plan in one session, with its tables as frames."""

    def __init__(
        self,
        plan: LookupPlan,
        templates: Templates,
        residuals: ResidualCompiler,
        frame: Callable[[pa.Table], DataFrame],
    ) -> None:
        self._plan, self._templates, self._residuals = plan, templates, residuals
        self._address = frame(plan.address)
        self._found = self._with_key(frame(plan.lookup)).cache()  # a cached table is broadcast in a third less time
        self._residual = None if plan.residual is None else frame(plan.residual)
        self._totals = frame(_count_by_shape(plan)) if self._is_by_shape_alone else None
        self._cells = frame(cells_table(list(plan.bins.values()))) if plan.bins else None

    def _with_key(self, lookup: DataFrame) -> DataFrame:
        """The lookup table with a single number as key."""
        if self._plan.method != "equal":
            return lookup
        own = [F.col(VALUE + value_type.value) for value_type in self._plan.value_types]
        return lookup.withColumn(KEY, F.xxhash64(F.col(OWNER), *own))

    def release(self) -> None:
        """Release the memory of cached tables."""
        self._found.unpersist()

    def matches(self, events: DataFrame) -> DataFrame:
        """The events, once for each subscription that they match, with its number as the last column."""
        return self._match(events).select(*map(F.col, events.columns), F.col(_NUMBER).alias(SUBSCRIPTION))

    def count(self, events: DataFrame) -> DataFrame:
        """The number of matches, in one row; if possible the sizes of lists are summed without expanding them."""
        if self._totals is not None:
            shapes = events.select(F.col(SHAPE))
            return _sum(shapes.join(F.broadcast(self._totals), F.col(SHAPE) == F.col(SHAPE_ID)), F.col(MATCHES))
        if self._residual is None and self._plan.method != "range":
            return _sum(self._look_up(self._complete(events)), F.size(FOUND).cast("bigint"))
        return self._match(events).agg(F.count(F.lit(1)).alias(MATCHES))

    def counts(self, events: DataFrame) -> DataFrame:
        """The number of matches of each subscription; events are counted by shape first if nothing else is tested."""
        if not self._is_by_shape_alone:
            matches = self._match(events).groupBy(F.col(_NUMBER).alias(SUBSCRIPTION))
            return matches.agg(F.count(F.lit(1)).alias(MATCHES))
        shapes = events.groupBy(SHAPE).agg(F.count(F.lit(1)).alias(_EVENTS))
        found = self._look_up(shapes).select(F.col(_EVENTS), F.explode(FOUND).alias(SUBSCRIPTION))
        return found.groupBy(SUBSCRIPTION).agg(F.sum(_EVENTS).alias(MATCHES))

    @property
    def _is_by_shape_alone(self) -> bool:
        return self._plan.method == "shape" and self._plan.shapes.tagged and self._plan.residual is None

    # -- from events to candidates -------------------------------------------------------------------------------------

    def _complete(self, events: DataFrame) -> DataFrame:
        """The events with a column for every tested attribute; NULL if the frame does not have it."""
        missing = {name: type_ for name, type_ in self._attributes() if name not in events.columns}
        return events.withColumns({name: F.lit(None).cast(spark_type(type_)) for name, type_ in missing.items()})

    def _attributes(self) -> Iterator[tuple[str, AttributeType]]:
        yield from ((dimension.name, dimension.type) for dimension in self._plan.dimensions)
        for template in self._plan.templates:
            yield from attributes_in(self._templates.predicates[template])
        if not self._plan.shapes.tagged:
            yield from ((attribute.name, attribute.type) for attribute in self._plan.shapes.vector)

    def _with_groups(self, events: DataFrame) -> DataFrame:
        """Events, once for each group that they are looked up in."""
        if self._plan.shapes.tagged:
            return events.join(F.broadcast(self._address), F.col(SHAPE) == F.col(SHAPE_ID))
        table = self._address.withColumn(_HASH, F.xxhash64(SHAPE_ID))  # a join by text takes many times the memory
        named = (F.xxhash64(TYPE) == F.col(_HASH)) & _same(F.col(TYPE), F.col(SHAPE_ID))
        return events.join(F.broadcast(table), named).where(reduce(and_, self._fits()))

    def _fits(self) -> Iterator[Column]:
        """Whether an event fits the mask of its row, word by word."""
        names = [attribute.name for attribute in self._plan.shapes.vector]
        for number, at in enumerate(range(0, max(len(names), 1), WORD)):
            bits = [F.when(F.col(name).isNotNull(), F.lit(1 << bit)) for bit, name in enumerate(names[at : at + WORD])]
            word = reduce(lambda a, b: a.bitwiseOR(b), [F.coalesce(bit.cast("bigint"), F.lit(0)) for bit in bits])
            has, lacks = F.col(f"{HAS}{number}"), F.col(f"{LACKS}{number}")
            yield word.bitwiseAND(has.bitwiseOR(lacks)) == has

    def _look_up(self, events: DataFrame) -> DataFrame:
        """Events with the list of subscriptions for their key."""
        grouped = self._with_groups(events)
        if self._plan.method == "equal":
            return self._join_by_value(grouped)
        if self._plan.method == "range":
            return self._join_by_bin(grouped)
        return grouped.join(F.broadcast(self._found), F.col(GROUP).cast("bigint") == F.col(KEY))

    def _join_by_value(self, grouped: DataFrame) -> DataFrame:
        """Join by a hash of group and value, because a single number is the fastest key, then compare both."""
        values = {value_type: self._by_dimension(_looked_up_value, value_type) for value_type in self._plan.value_types}
        own = {value_type: F.col(VALUE + value_type.value) for value_type in values}
        hashed = F.xxhash64(F.col(GROUP), *values.values())
        same = [own[value_type].isNull() | _same(values[value_type], own[value_type]) for value_type in own]
        is_found = reduce(and_, [hashed == F.col(KEY), _same(F.col(GROUP), F.col(OWNER)), *same])
        return grouped.join(F.broadcast(self._found), is_found)

    def _join_by_bin(self, grouped: DataFrame) -> DataFrame:
        """Join by group and bin in one number; NaN has no bin."""
        assert self._cells is not None, "a lookup by range has cells"
        value_type = self._plan.value_types[0]
        found = grouped.withColumn(VALUE, self._by_dimension(_value))
        found = found.where(
            F.col(VALUE) <= F.lit(math.inf) if value_type is ValueType.DOUBLE else F.col(VALUE).isNotNull()
        )
        found = found.withColumn(_CELL, self._by_dimension(self._cell))
        bin_ = F.call_function("shiftright", bin_column(F.col(VALUE), F.col(_CELL), self._cells.scalar()), F.col(SHIFT))
        found = found.withColumn(_BIN, F.shiftleft(F.col(GROUP).cast("bigint"), BIN_BITS) + bin_)
        return found.join(F.broadcast(self._found), F.col(_BIN) == F.col(KEY))

    def _cell(self, dimension: KeyDimension) -> Column:
        bins = self._plan.bins
        before = sum(len(bins[number].first) for number in bins if number < dimension.number)
        return bins[dimension.number].cell(F.col(VALUE), before)

    def _by_dimension(self, of: Callable[[KeyDimension], Column], value_type: ValueType | None = None) -> Column:
        """A column that depends on the dimension of an event's group."""
        mine = [one for one in self._plan.dimensions if value_type in (None, one.value_type)]
        if len(self._plan.dimensions) == 1:
            return of(mine[0])
        first, *others = mine
        chain = F.when(F.col(DIMENSION) == F.lit(first.number), of(first))
        for other in others:
            chain = chain.when(F.col(DIMENSION) == F.lit(other.number), of(other))
        return chain

    # -- from candidates to matches ------------------------------------------------------------------------------------

    def _match(self, events: DataFrame) -> DataFrame:
        """Events, once for each subscription that they match, with its number."""
        found = self._look_up(self._complete(events))
        if self._plan.method == "range":
            return self._test_residuals(_within_bounds(found))
        return self._test_residuals(found.withColumn(_NUMBER, F.explode(FOUND)))

    def _test_residuals(self, candidates: DataFrame) -> DataFrame:
        """The candidates whose residual is true."""
        if self._residual is None:
            return candidates
        joined = candidates.join(F.broadcast(self._residual), F.col(_NUMBER) == F.col(RESIDUAL_OF))
        return joined.where(self._residuals.condition(self._plan.templates))


def _value(dimension: KeyDimension) -> Column:
    """The column of an attribute as a native value."""
    value: Column = SparkCompiler().visit(x.AttributeRef(dimension.name, dimension.type))
    return value.cast("bigint") if dimension.value_type is ValueType.LONG else value


def _looked_up_value(dimension: KeyDimension) -> Column:
    """The column of an attribute to be hashed, with -0.0 as 0.0."""
    value = _value(dimension)
    return (
        F.when(value == F.lit(0.0), F.lit(0.0)).otherwise(value) if dimension.value_type is ValueType.DOUBLE else value
    )


def _within_bounds(found: DataFrame) -> DataFrame:
    """Events, once for each subscription in their list whose range contains their value."""
    listed = found.select("*", F.posexplode(FOUND).alias(_INDEX, _NUMBER))
    low, high = (F.get(F.col(bounds), F.col(_INDEX)) for bounds in (LOW, HIGH))
    return listed.where((low <= F.col(VALUE)) & (F.col(VALUE) <= high))


def _same(one: Column, other: Column) -> Column:
    """Equality in a form that Spark does not turn into a second join key."""
    return (one <= other) & (one >= other)


def _sum(frame: DataFrame, column: Column) -> DataFrame:
    return frame.agg(F.coalesce(F.sum(column), F.lit(0)).cast("bigint").alias(MATCHES))


def _count_by_shape(plan: LookupPlan) -> pa.Table:
    """The number of subscriptions that accept each shape."""
    sizes = pc.list_value_length(plan.lookup[FOUND]).cast(pa.int64())
    size_of = pa.table({GROUP: plan.lookup[KEY].cast(pa.int32()), MATCHES: sizes})
    joined = plan.address.select([SHAPE_ID, GROUP]).join(size_of, GROUP)
    return joined.group_by(SHAPE_ID).aggregate([(MATCHES, "sum")]).rename_columns([SHAPE_ID, MATCHES])


def union_all(frames: Sequence[DataFrame]) -> DataFrame:
    """The rows of several frames."""
    return reduce(DataFrame.unionAll, frames)
