"""Looking events up: a pass as a chain of broadcast joins. DataFrame in, DataFrame out; nothing but native columns."""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from operator import and_

import pyarrow as pa
import pyarrow.compute as pc
import pyspark.sql.functions as F
from pyspark.sql import Column, DataFrame

import genus.filters._expression as x
from genus.lake._route.decompose import Dimension
from genus.lake._route.lookup_plan import Pass
from genus.lake._route.lookup_tables import (
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
    SHIFT,
    UNIT,
    VALUE,
    bin_column,
    cells_table,
)
from genus.lake._route.shape_match import WORD
from genus.lake._route.templates import RESIDUAL_OF, Residuals, Slot, Templates, attributes_in
from genus.lake._tables.columns import SHAPE, SUBSCRIPTION, TYPE, spark_type
from genus.model import AttributeType
from genus.targets.spark._compiler import SparkCompiler

MATCHES = "matches"
"""The column of counts."""
_NUMBER, _EVENTS, _HASH, _CELL, _BIN, _PLACE = "__number", "__events", "__hash", "__cell", "__bin", "__place"


class Lookup:
    """One pass, in one session: its tables are frames already."""

    def __init__(
        self, pass_: Pass, templates: Templates, residuals: Residuals, frame: Callable[[pa.Table], DataFrame]
    ) -> None:
        self._pass, self._templates, self._residuals = pass_, templates, residuals
        self._address = frame(pass_.address)
        self._found = self._keyed(frame(pass_.lookup)).cache()  # to be broadcast in a third less time, again and again
        self._residual = None if pass_.residual is None else frame(pass_.residual)
        self._totals = frame(_totals(pass_)) if self._is_by_shape_alone else None
        self._cells = frame(cells_table(list(pass_.bins.values()))) if pass_.bins else None

    def _keyed(self, lookup: DataFrame) -> DataFrame:
        """A lookup table with a single number as its key."""
        if self._pass.method != "equal":
            return lookup
        own = [F.col(VALUE + slot.value) for slot in self._pass.slots]
        return lookup.withColumn(KEY, F.xxhash64(F.col(OWNER), *own))

    def release(self) -> None:
        """Let go of what is kept in memory."""
        self._found.unpersist()

    def matches(self, events: DataFrame) -> DataFrame:
        """The events as they are, once for each subscription that they match, with its number as the last column."""
        return self._tested(events).select(*map(F.col, events.columns), F.col(_NUMBER).alias(SUBSCRIPTION))

    def count(self, events: DataFrame) -> DataFrame:
        """How many matches there are, in one row; they are not written out where sizes of lists tell."""
        if self._totals is not None:
            shapes = events.select(F.col(SHAPE))
            return _sum(shapes.join(F.broadcast(self._totals), F.col(SHAPE) == F.col(UNIT)), F.col(MATCHES))
        if self._residual is None and self._pass.method != "range":
            return _sum(self._looked_up(self._complete(events)), F.size(FOUND).cast("bigint"))
        return self._tested(events).agg(F.count(F.lit(1)).alias(MATCHES))

    def counts(self, events: DataFrame) -> DataFrame:
        """How many matches each subscription has; shapes are counted first where nothing else is asked for."""
        if not self._is_by_shape_alone:
            tested = self._tested(events).groupBy(F.col(_NUMBER).alias(SUBSCRIPTION))
            return tested.agg(F.count(F.lit(1)).alias(MATCHES))
        shapes = events.groupBy(SHAPE).agg(F.count(F.lit(1)).alias(_EVENTS))
        found = self._looked_up(shapes).select(F.col(_EVENTS), F.explode(FOUND).alias(SUBSCRIPTION))
        return found.groupBy(SUBSCRIPTION).agg(F.sum(_EVENTS).alias(MATCHES))

    @property
    def _is_by_shape_alone(self) -> bool:
        return self._pass.method == "shape" and self._pass.units.tagged and self._pass.residual is None

    # -- from events to candidates -------------------------------------------------------------------------------------

    def _complete(self, events: DataFrame) -> DataFrame:
        """The events with every attribute that is tested; what the frame does not have is absent."""
        missing = {name: type_ for name, type_ in self._attributes() if name not in events.columns}
        return events.withColumns({name: F.lit(None).cast(spark_type(type_)) for name, type_ in missing.items()})

    def _attributes(self) -> Iterator[tuple[str, AttributeType]]:
        yield from ((dimension.name, dimension.type) for dimension in self._pass.dimensions)
        for template in self._pass.templates:
            yield from attributes_in(self._templates.predicates[template])
        if not self._pass.units.tagged:
            yield from ((attribute.name, attribute.type) for attribute in self._pass.units.vector)

    def _addressed(self, events: DataFrame) -> DataFrame:
        """Events with the groups that they are looked up in."""
        if self._pass.units.tagged:
            return events.join(F.broadcast(self._address), F.col(SHAPE) == F.col(UNIT))
        table = self._address.withColumn(_HASH, F.xxhash64(UNIT))  # a table by text would take many times the memory
        named = (F.xxhash64(TYPE) == F.col(_HASH)) & _same(F.col(TYPE), F.col(UNIT))
        return events.join(F.broadcast(table), named).where(reduce(and_, self._fits()))

    def _fits(self) -> Iterator[Column]:
        """Whether an event carries what the masks ask for, word by word."""
        names = [attribute.name for attribute in self._pass.units.vector]
        for number, at in enumerate(range(0, max(len(names), 1), WORD)):
            bits = [F.when(F.col(name).isNotNull(), F.lit(1 << bit)) for bit, name in enumerate(names[at : at + WORD])]
            word = reduce(lambda a, b: a.bitwiseOR(b), [F.coalesce(bit.cast("bigint"), F.lit(0)) for bit in bits])
            has, lacks = F.col(f"{HAS}{number}"), F.col(f"{LACKS}{number}")
            yield word.bitwiseAND(has.bitwiseOR(lacks)) == has

    def _looked_up(self, events: DataFrame) -> DataFrame:
        """Events with the list that they find under their key."""
        addressed = self._addressed(events)
        if self._pass.method == "equal":
            return self._by_value(addressed)
        if self._pass.method == "range":
            return self._by_bin(addressed)
        return addressed.join(F.broadcast(self._found), F.col(GROUP).cast("bigint") == F.col(KEY))

    def _by_value(self, addressed: DataFrame) -> DataFrame:
        """Group and value are one hash, for a single number is the fastest key; then they are compared."""
        values = {slot: self._by_dimension(_looked_up_value, slot) for slot in self._pass.slots}
        own = {slot: F.col(VALUE + slot.value) for slot in values}
        hashed = F.xxhash64(F.col(GROUP), *values.values())
        same = [own[slot].isNull() | _same(values[slot], own[slot]) for slot in own]
        is_found = reduce(and_, [hashed == F.col(KEY), _same(F.col(GROUP), F.col(OWNER)), *same])
        return addressed.join(F.broadcast(self._found), is_found)

    def _by_bin(self, addressed: DataFrame) -> DataFrame:
        """Group and bin are one number; NaN has no bin."""
        assert self._cells is not None, "a pass by range has cells"
        slot = self._pass.slots[0]
        found = addressed.withColumn(VALUE, self._by_dimension(_value))
        found = found.where(F.col(VALUE) <= F.lit(math.inf) if slot is Slot.DOUBLE else F.col(VALUE).isNotNull())
        found = found.withColumn(_CELL, self._by_dimension(self._cell))
        bin_ = F.call_function("shiftright", bin_column(F.col(VALUE), F.col(_CELL), self._cells.scalar()), F.col(SHIFT))
        found = found.withColumn(_BIN, F.shiftleft(F.col(GROUP).cast("bigint"), BIN_BITS) + bin_)
        return found.join(F.broadcast(self._found), F.col(_BIN) == F.col(KEY))

    def _cell(self, dimension: Dimension) -> Column:
        bins = self._pass.bins
        before = sum(len(bins[number].first) for number in bins if number < dimension.number)
        return bins[dimension.number].cell(F.col(VALUE), before)

    def _by_dimension(self, of: Callable[[Dimension], Column], slot: Slot | None = None) -> Column:
        """What an event has for the dimension that its group is looked up by."""
        mine = [one for one in self._pass.dimensions if slot in (None, one.slot)]
        if len(self._pass.dimensions) == 1:
            return of(mine[0])
        first, *others = mine
        chain = F.when(F.col(DIMENSION) == F.lit(first.number), of(first))
        for other in others:
            chain = chain.when(F.col(DIMENSION) == F.lit(other.number), of(other))
        return chain

    # -- from candidates to matches ------------------------------------------------------------------------------------

    def _tested(self, events: DataFrame) -> DataFrame:
        """Events once for each subscription that they match, whose number is in a column of its own."""
        found = self._looked_up(self._complete(events))
        if self._pass.method == "range":
            return self._left(_within(found))
        return self._left(found.withColumn(_NUMBER, F.explode(FOUND)))

    def _left(self, candidates: DataFrame) -> DataFrame:
        """Candidates for which the residual holds."""
        if self._residual is None:
            return candidates
        joined = candidates.join(F.broadcast(self._residual), F.col(_NUMBER) == F.col(RESIDUAL_OF))
        return joined.where(self._residuals.hold(self._pass.templates))


def _value(dimension: Dimension) -> Column:
    """An attribute as it is computed with."""
    value: Column = SparkCompiler().visit(x.AttributeRef(dimension.name, dimension.type))
    return value.cast("bigint") if dimension.slot is Slot.LONG else value


def _looked_up_value(dimension: Dimension) -> Column:
    """An attribute as it is hashed: -0.0 is 0.0."""
    value = _value(dimension)
    return F.when(value == F.lit(0.0), F.lit(0.0)).otherwise(value) if dimension.slot is Slot.DOUBLE else value


def _within(found: DataFrame) -> DataFrame:
    """Events once for each subscription in their list whose bounds hold their value."""
    listed = found.select("*", F.posexplode(FOUND).alias(_PLACE, _NUMBER))
    low, high = (F.get(F.col(bounds), F.col(_PLACE)) for bounds in (LOW, HIGH))
    return listed.where((low <= F.col(VALUE)) & (F.col(VALUE) <= high))


def _same(one: Column, other: Column) -> Column:
    """Equality in a form that Spark does not make a second key of the join."""
    return (one <= other) & (one >= other)


def _sum(frame: DataFrame, column: Column) -> DataFrame:
    return frame.agg(F.coalesce(F.sum(column), F.lit(0)).cast("bigint").alias(MATCHES))


def _totals(pass_: Pass) -> pa.Table:
    """How many subscriptions accept each shape."""
    sizes = pc.list_value_length(pass_.lookup[FOUND]).cast(pa.int64())
    size_of = pa.table({GROUP: pass_.lookup[KEY].cast(pa.int32()), MATCHES: sizes})
    joined = pass_.address.select([UNIT, GROUP]).join(size_of, GROUP)
    return joined.group_by(UNIT).aggregate([(MATCHES, "sum")]).rename_columns([UNIT, MATCHES])


def union_of(frames: Sequence[DataFrame]) -> DataFrame:
    """All rows of several frames."""
    return reduce(DataFrame.unionAll, frames)
