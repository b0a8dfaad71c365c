"""Walks: a function of the user's goes through the events of each key, in order of time.

The function remembers nothing: what it cannot settle yet it names as rows to be seen again, together with later ones.
So the blocks of a batch and the increments of a stream are the same to it, and both give the same results.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial, reduce
from typing import NamedTuple, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
import pyspark.sql.functions as F
import pyspark.sql.types as spark
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from genus.errors import LakeError
from genus.lake._analytics.analysis import (
    END,
    TIME,
    Settled,
    check_lateness,
    demand,
    distinct,
    key_column,
    known_before,
    listed,
    moment,
    on_time,
)
from genus.lake._analytics.pair_kernel import key_starts
from genus.lake._tables.columns import EVENT_ID, TYPE, spark_schema

# Sorted rows go through a function key by key: the part of a walk that runs in Python, a block of Arrow at a time.
#
# A block is what an increment of a stream is: the function is told up to when all is known, gives what is final, and
# sees the rest again with what comes next. So no more than a block and the rows that wait is in memory, whatever a
# key's past.


AT_US, STATE, KEPT = "_at_us", "_state", "_kept_"
"""A row's time in microseconds, what a row of the output is, and what stands before the names of rows that wait."""
RESULT, WAITING = range(2)
BLOCK = 1 << 16


class Walked(NamedTuple):
    """What a function made of some rows."""

    results: pa.Table
    """What is final, with the columns that the walk gives."""
    waiting: Sequence[int]
    """The numbers of the rows that it has to see again."""


Function: TypeAlias = Callable[[pa.Table, int], Walked]
"""Gets rows of one key in order of time, all before an instant (microseconds since 1970) before which all is known."""


class Steps(msgspec.Struct, frozen=True):
    """How to go through rows."""

    by: tuple[str, ...]
    function: Function
    gives: pa.Schema
    takes: pa.Schema
    """Of the rows: the key, the time and what the function asks for."""
    limit_us: int

    @property
    def output(self) -> pa.Schema:
        """What leaves: results and rows that wait have the same columns, of which the others' are empty."""
        kept = [pa.field(KEPT + field.name, field.type) for field in self.takes if field.name not in self.by]
        key = [self.takes.field(name) for name in self.by]
        return pa.schema([*key, *self.gives, *kept, pa.field(STATE, pa.int8())])


class _Settled(NamedTuple):
    """What is final of the rows of one key, and those that are not."""

    results: pa.Table
    held: pa.Table


def walk_rows(steps: Steps, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Results, and rows that wait, of rows ordered by key, time and event."""
    block: list[pa.RecordBatch] = []
    rows, enough = 0, BLOCK
    for batch in batches:
        block.append(batch)
        rows += batch.num_rows
        if rows >= enough:
            *whole, last = _by_key(steps, block)
            yield from _of_whole_keys(steps, whole)
            begun = _walk(steps, last, _newest(last))
            yield from _output(steps, begun.results, RESULT)
            block, rows = begun.held.to_batches(), begun.held.num_rows
            enough = BLOCK + 2 * rows
    if rows:
        yield from _of_whole_keys(steps, _by_key(steps, block))


def _by_key(steps: Steps, block: Sequence[pa.RecordBatch]) -> list[pa.Table]:
    table = pa.Table.from_batches(block).combine_chunks()
    starts = np.flatnonzero(key_starts(table, steps.by)).tolist()
    ends = [*starts[1:], table.num_rows]
    return [table.slice(start, end - start) for start, end in zip(starts, ends, strict=True)]


def _of_whole_keys(steps: Steps, keys: Iterable[pa.Table]) -> Iterator[pa.RecordBatch]:
    """Keys all of whose rows are there: what they hold back waits for the next increment."""
    for rows in keys:
        settled = _walk(steps, rows, steps.limit_us)
        yield from _output(steps, settled.results, RESULT)
        yield from _output(steps, settled.held, WAITING)


def _newest(rows: pa.Table) -> int:
    at: int = rows.column(AT_US)[-1].as_py()
    return at


def _walk(steps: Steps, rows: pa.Table, upto_us: int) -> _Settled:
    """The rows of one key before an instant go through the function; it sees the others later."""
    limit_us = min(upto_us, steps.limit_us)
    known = int(np.searchsorted(rows.column(AT_US).to_numpy(), limit_us, side="left"))
    if not known:
        return _Settled(_nothing(steps, rows), rows)
    walked = steps.function(rows.slice(0, known), limit_us)
    held = pa.array([*walked.waiting, *range(known, rows.num_rows)], pa.int64())
    return _Settled(_with_key(steps, walked.results, rows), rows.take(held))


def _nothing(steps: Steps, rows: pa.Table) -> pa.Table:
    return _with_key(steps, steps.gives.empty_table(), rows)


def _with_key(steps: Steps, results: pa.Table, rows: pa.Table) -> pa.Table:
    """The results with the key that they are of."""
    if results.schema.names != steps.gives.names:
        raise LakeError(f"the walk gives {', '.join(results.schema.names)}, not {', '.join(steps.gives.names)}")
    first = pa.array(np.zeros(results.num_rows, np.int64))
    key = {name: rows.column(name).take(first) for name in steps.by}
    return pa.table({**key, **{name: results.column(name) for name in steps.gives.names}})


def _output(steps: Steps, rows: pa.Table, state: int) -> Iterator[pa.RecordBatch]:
    if not rows.num_rows:
        return
    prefix = KEPT if state == WAITING else ""
    given = {name if name in steps.by else prefix + name: rows.column(name) for name in rows.column_names}
    given[STATE] = pa.array(np.full(rows.num_rows, state, np.int8))
    empty = {field.name: pa.nulls(rows.num_rows, field.type) for field in steps.output}
    yield from pa.table({**empty, **given}).cast(steps.output).to_batches()


class Walk(msgspec.Struct, frozen=True, kw_only=True):
    """What a function makes of the events of each key, in order of time.

    Its results have the key and the columns that the function gives. Events with NULL in the key are left out. The law
    that the function must keep: the rows it wants to see again, followed by later ones, give what all of them at once
    would have given.
    """

    by: tuple[str, ...]
    function: Function
    """A function of a module, or a `partial` of one: workers import it, and derived tables know it by its name."""
    gives: pa.Schema
    columns: tuple[str, ...] = ()
    """What it needs to see besides the key, `time`, `_at_us`, `_type` and the event's id."""
    lateness: timedelta | None = None
    keep_late: bool = False
    """Count late events too; in batch only, for a stream cannot wait for them."""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "by", listed(self.by))
        msgspec.structs.force_setattr(self, "columns", listed(self.columns))
        if not self.by:
            raise LakeError("by= names no column; give the key whose events belong together")
        name_of(self.function)
        distinct([*self.by, *self.gives.names], "rename one that the function gives")
        check_lateness(self.lateness)

    def __repr__(self) -> str:
        """The same in every process, for derived tables are claimed by it."""
        gives = ", ".join(f"{field.name}: {field.type}" for field in self.gives)
        return (
            f"Walk(by={self.by!r}, function={name_of(self.function)}, gives=({gives}), columns={self.columns!r}, "
            f"lateness={self.lateness!r}, keep_late={self.keep_late})"
        )

    def take(self, *events: DataFrame) -> DataFrame:
        """The rows that the function sees, of one frame or several; what only some of them have is NULL elsewhere."""
        if not events:
            raise LakeError("a walk takes a frame of events, or several, not none")
        rows = reduce(_union, (self._rows(frame) for frame in events))
        demand(rows, self.columns)
        return rows.dropna(subset=list(self.by))

    def settle(self, rows: DataFrame, watermark: datetime) -> Settled:
        """What is final now that all is known before the watermark; what the function wants to see again waits."""
        steps = Steps(self.by, self.function, self.gives, _arrow(rows.schema), known_before(watermark, self.keep_late))
        ordered = rows.repartition(*self.by).sortWithinPartitions(*self.by, AT_US, *EVENT_ID)
        walked = ordered.mapInArrow(partial(walk_rows, steps), self._output(rows.schema))
        results = walked.where(F.col(STATE) == RESULT).select(*self.by, *self.gives.names)
        kept = [name if name in self.by else F.col(KEPT + name).alias(name) for name in rows.columns]
        return Settled(results, walked.where(F.col(STATE) == WAITING).select(*kept), walked)

    def all(self, *events: DataFrame) -> DataFrame:
        """What the function gives over all events of some frames."""
        return self.settle(self.take(*events), END).results

    def _rows(self, events: DataFrame) -> DataFrame:
        demand(events, self.by)
        timed = on_time(events, self.lateness, self.keep_late).withColumn(TIME, moment())
        seen = dict.fromkeys([TIME, TYPE, *self.columns, *EVENT_ID])
        others = (name for name in seen if name in events.columns and name not in self.by)
        keys = (key_column(events.schema[name]) for name in self.by)
        return timed.select(*keys, *others, F.unix_micros(TIME).alias(AT_US))

    def _output(self, rows: spark.StructType) -> spark.StructType:
        key = [spark.StructField(name, rows[name].dataType) for name in self.by]
        kept = [spark.StructField(KEPT + field.name, field.dataType) for field in rows if field.name not in self.by]
        return spark.StructType([*key, *spark_schema(self.gives), *kept, spark.StructField(STATE, spark.ByteType())])


def name_of(function: Function) -> str:
    """A function's name, by which another process finds it, with the values it is bound to.

    >>> name_of(partial(name_of, function=3))
    'genus.lake._analytics.walk.name_of(function=3)'
    """
    if isinstance(function, partial):
        bound = [*map(repr, function.args), *(f"{name}={value!r}" for name, value in function.keywords.items())]
        return f"{name_of(function.func)}({', '.join(bound)})"
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "<unnamed>")
    if module is None or "<" in name:
        raise LakeError(
            f"function={function!r} has no name to find it by in another process; give a function of a module"
        )
    return f"{module}.{name}"


def _union(one: DataFrame, other: DataFrame) -> DataFrame:
    return one.unionByName(other, allowMissingColumns=True)


def _arrow(rows: spark.StructType) -> pa.Schema:
    """What a worker gets of rows."""
    return to_arrow_schema(rows, timezone="UTC")
