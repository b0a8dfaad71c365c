"""Walks through the events of each key, and time windows with counts and exact quantiles.

A walk: a user's function goes through the events of each key in order of time. The function has no state. Rows that it
cannot settle yet it names as waiting, and sees them again together with later ones. So the blocks of a batch and the
increments of a stream are the same to it, and both give the same results. Memory holds a block and the waiting rows,
not the history of a key.

Windows are native Spark aggregation. A window is [start, start + every); starts are multiples of the slide since 1970
in UTC. Figures that depend on the order of values are computed from the sorted list of values, so that results do not
depend on how rows are partitioned.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial, reduce
from itertools import pairwise
from typing import Literal, NamedTuple, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
import pyspark.sql.functions as F
import pyspark.sql.types as spark
from pyspark.sql import Column, DataFrame
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from genus.errors import LakeError
from genus.lake._analytics.analysis import (
    END_OF_STREAM,
    TIME,
    BlockResult,
    SettleResult,
    as_tuple,
    drop_late,
    event_time,
    final_before,
    group_by_key,
    in_blocks,
    key_column,
    key_starts,
    normalize,
    require_columns,
    require_distinct,
    span_micros,
    split_rows,
)
from genus.lake._tables.commits import EVENT_ID, TYPE
from genus.model import Span, duration

Statistic: TypeAlias = Literal["count", "mean", "min", "max"] | float
"""A statistic of a column's values; a number from 0 to 1 is a quantile."""

START, END_COLUMN, COUNT = "start", "end", "count"
_AT, _AFTER, _LIST = "_at_us", "_after_us", "_values_"
_PLAIN = ("count", "min", "max")
"""Statistics that are functions of Spark; others are computed from the sorted list of values."""


class Windows(msgspec.Struct, frozen=True, kw_only=True):
    """Analysis that counts events in time windows, with statistics of their values.

    It takes one frame. Its results have the key, `start`, `end`, `count`, and a column like `speed_mean` or `speed_p85`
    per statistic. Windows without events have no row. `windows` does the same in one call.
    """

    every: Span
    """Length of a window."""
    by: str | tuple[str, ...] = ()
    """Columns of the key, or the only one, stored as a tuple; each key has windows of its own."""
    values: Mapping[str, Sequence[Statistic]] = {}
    """Statistics by column: `"count"`, `"mean"`, `"min"`, `"max"`, a quantile from 0 to 1; NULL and NaN are ignored."""
    slide: Span | None = None
    """Time between the starts of windows; by default `every`."""
    lateness: Span | None = None
    """How long after its time an event may be recorded without being late; a stream needs one."""
    keep_late: bool = False
    """Whether to include late events; in batch only."""
    time: str | None = None
    """Column of the time, for frames that are not events of a lake, such as pairs; no row is late then."""

    def __post_init__(self) -> None:
        normalize(self, "every", "slide")
        if self.step > duration(self.every):
            raise LakeError(f"slide={self.slide} is longer than every={self.every}; windows would leave out events")
        for name, statistic in self._statistics():
            if statistic not in (*_PLAIN, "mean") and not _is_quantile(statistic):
                raise LakeError(
                    f"values[{name!r}]: {statistic!r} is not count, mean, min, max or a quantile from 0 to 1"
                )
        figures = (_figure_name(*each) for each in self._statistics())
        require_distinct([*self.by, START, END_COLUMN, COUNT, *figures], "rename a column, or ask for each figure once")

    @property
    def step(self) -> timedelta:
        """Time between the starts of windows."""
        return duration(self.every if self.slide is None else self.slide)

    def take(self, *events: DataFrame) -> DataFrame:
        """Return the key, time and values of a frame's events."""
        if len(events) != 1:
            raise LakeError(f"windows take one frame, not {len(events)}")
        (frame,) = events
        require_columns(frame.columns, (*self.by, *self.values, *([self.time] if self.time else [])))
        for name in self.values:
            if not isinstance(kind := frame.schema[name].dataType, spark.NumericType):
                raise LakeError(f"values[{name!r}] is of type {kind.simpleString()}; make it a number first")
        counted = frame if self.time else drop_late(frame, self.lateness, self.keep_late)
        at = F.unix_micros(self.time or event_time())
        timed = counted.select(*self.by, *self.values, at.alias(_AT), F.lit(None).cast("bigint").alias(_AFTER))
        return timed.where(F.col(_AT).isNotNull())

    def settle(self, rows: DataFrame, watermark: datetime) -> SettleResult:
        """Return the windows that end at or before the watermark; events that are also in later windows wait."""
        limit = final_before(watermark, self.keep_late)
        open = _align(F.col(_AT), span_micros(self.step)) > limit - span_micros(self.every)
        waiting = rows.where(open).withColumn(_AFTER, F.lit(limit).cast("bigint"))
        return SettleResult(self._summary(self._assign_windows(rows, limit)), waiting, rows)

    def all(self, *events: DataFrame) -> DataFrame:
        """Return all windows of a frame's events."""
        return self.settle(self.take(*events), END_OF_STREAM).results

    def _assign_windows(self, rows: DataFrame, limit: int) -> DataFrame:
        """A row for each window of an event that is final at the limit and was not before."""
        every, step = span_micros(self.every), span_micros(self.step)
        last = _align(F.least(F.col(_AT), F.lit(limit - every)), step)
        # `greatest` ignores NULL: an event that has not waited yet is in all of its windows.
        first = _align(F.greatest(_AT, _AFTER) - every, step) + step
        if every == step:
            return rows.withColumn(START, last).where(first <= last)
        starts = F.when(first <= last, F.sequence(first, last, F.lit(step).cast("bigint")))
        return rows.withColumn(START, F.explode(starts))

    def _summary(self, assigned: DataFrame) -> DataFrame:
        numbers = {name: key_column(assigned.schema[name]) for name in self.values}  # neither NaN nor -0.0
        lists = [
            F.array_sort(F.collect_list(numbers[name].cast("double"))).alias(_LIST + name)
            for name, given in self.values.items()
            if not set(given).issubset(_PLAIN)
        ]
        extremes = [
            getattr(F, statistic)(numbers[name]).alias(_figure_name(name, statistic))
            for name, statistic in self._statistics()
            if statistic in _PLAIN
        ]
        grouped = assigned.groupBy(*self.by, START).agg(F.count(F.lit(1)).alias(COUNT), *extremes, *lists)
        end = F.timestamp_micros(F.col(START) + span_micros(self.every))
        figures = (
            _figure(name, statistic).alias(_figure_name(name, statistic)) for name, statistic in self._statistics()
        )
        return grouped.select(*self.by, F.timestamp_micros(START).alias(START), end.alias(END_COLUMN), COUNT, *figures)

    def _statistics(self) -> Iterator[tuple[str, Statistic]]:
        return ((name, statistic) for name, given in self.values.items() for statistic in given)


def windows(
    events: DataFrame,
    *,
    every: Span,
    by: str | Sequence[str] = (),
    values: Mapping[str, Sequence[Statistic]] = {},
    slide: Span | None = None,
    lateness: Span | None = None,
    keep_late: bool = False,
    time: str | None = None,
) -> DataFrame:
    """Count events in time windows, with statistics of their values; see `Windows`.

    Quantiles are exact, with linear interpolation between the two nearest values, like Spark's `percentile`.

    Args:
        events: Events with the columns of `Lake.read`, or any frame if `time` is given.
        every: Length of a window.
        by: Columns of the key.
        values: Statistics by column: `"count"`, `"mean"`, `"min"`, `"max"`, or a quantile from 0 to 1.
        slide: Time between the starts of windows; by default `every`.
        lateness: How long after its time an event may be recorded without being late; None for no limit.
        keep_late: Include late events.
        time: Column of the time, for frames that are not events of a lake; no row is late then.

    Returns:
        A frame with the key, `start`, `end`, `count` and one column per statistic.

    Raises:
        LakeError: A column is missing or is not a number, or an argument is out of range.
        SpanError: A time is no length of time.
    """
    return Windows(
        every=every, by=as_tuple(by), values=values, slide=slide, lateness=lateness, keep_late=keep_late, time=time
    ).all(events)


def _align(at: Column, step: int) -> Column:
    return at - F.pmod(at, F.lit(step).cast("bigint"))


def _is_quantile(statistic: object) -> bool:
    return isinstance(statistic, float | int) and not isinstance(statistic, bool) and 0 <= statistic <= 1


def _figure_name(name: str, statistic: Statistic) -> str:
    if isinstance(statistic, str):
        return f"{name}_{statistic}"
    percent = f"{statistic * 100:.10g}".replace(".", "_")
    return f"{name}_p{percent}"


def _figure(name: str, statistic: Statistic) -> Column:
    values = F.col(_LIST + name)
    if isinstance(statistic, float | int):
        return _quantile(values, statistic)
    if statistic in _PLAIN:
        return F.col(_figure_name(name, statistic))
    total = F.aggregate(values, F.lit(0.0), lambda sum, value: sum + value)
    return F.when(F.size(values) > 0, total / F.size(values))


def _quantile(values: Column, quantile: float) -> Column:
    rank = (F.size(values) - 1) * F.lit(float(quantile))
    below, above = F.get(values, F.floor(rank).cast("int")), F.get(values, F.ceil(rank).cast("int"))
    between = below * (F.ceil(rank) - rank) + above * (rank - F.floor(rank))
    return F.when(below == above, below).otherwise(between)


AT_US, STATE, KEPT = "_at_us", "_state", "_kept_"
"""Columns: the time in microseconds, the state of an output row, and a prefix for the columns of waiting rows."""
RESULT, WAITING = range(2)


class WalkResult(NamedTuple):
    """What the function of a `Walk` returns for some rows of a key."""

    results: pa.Table
    """Final results, with the columns in `Walk.gives`."""
    waiting: Sequence[int]
    """Numbers of the rows that the function has to see again, together with later ones."""


Function: TypeAlias = Callable[[pa.Table, int], WalkResult]
"""Takes rows of one key in order of time, and the time (in microseconds) before which no more rows come."""


class Walk(msgspec.Struct, frozen=True, kw_only=True):
    """Analysis by a function of your own that goes through the events of each key in order of time.

    It takes one frame or several; a column that only some of them have is NULL in the rows of the others. Its results
    have the key and the columns in `gives`. Events with NULL in the key are left out.

    The function is called with an Arrow table of rows of one key in order of time, and with the time, in microseconds
    since 1970, before which no more rows come; it returns a `WalkResult`. Its results must not depend on where the rows
    were cut: waiting rows followed by later ones must give what all of them at once would have given.
    """

    by: str | tuple[str, ...]
    """Columns of the key, or the only one; stored as a tuple."""
    function: Function
    """A function of a module, or a `partial` of one; workers import it, and derived tables store its name."""
    gives: pa.Schema
    """Columns of the results besides the key."""
    columns: tuple[str, ...] = ()
    """Columns that the function needs besides the key, `time`, `_at_us`, `_type`, `_source` and `_position`."""
    lateness: Span | None = None
    """How long after its time an event may be recorded without being late; a stream needs one."""
    keep_late: bool = False
    """Whether to include late events; in batch only."""

    def __post_init__(self) -> None:
        normalize(self)
        msgspec.structs.force_setattr(self, "columns", as_tuple(self.columns))
        if not self.by:
            raise LakeError("by= names no column; give the columns of the key")
        function_name(self.function)
        require_distinct([*self.by, *self.gives.names], "rename one that the function gives")

    def __repr__(self) -> str:
        """The same text in every process, because derived tables are identified by it."""
        gives = ", ".join(f"{field.name}: {field.type}" for field in self.gives)
        return (
            f"Walk(by={self.by!r}, function={function_name(self.function)}, gives=({gives}), columns={self.columns!r}, "
            f"lateness={self.lateness!r}, keep_late={self.keep_late})"
        )

    def take(self, *events: DataFrame) -> DataFrame:
        """Return the rows that the function sees, made from one or several frames."""
        if not events:
            raise LakeError("a walk takes at least one frame of events")
        rows = reduce(partial(DataFrame.unionByName, allowMissingColumns=True), map(self._rows, events))
        require_columns(rows.columns, self.columns)
        return rows.dropna(subset=list(self.by))

    def settle(self, rows: DataFrame, watermark: datetime) -> SettleResult:
        """Return the results that are final at the watermark, and the rows that the function has to see again."""
        output = self._output(to_arrow_schema(rows.schema, timezone="UTC"))
        walk = partial(walk_rows, self, output, final_before(watermark, self.keep_late))
        ordered = group_by_key(rows, self.by).sortWithinPartitions(*self.by, AT_US, *EVENT_ID)
        made = ordered.mapInArrow(walk, from_arrow_schema(output))
        kept = [name if name in self.by else F.col(KEPT + name).alias(name) for name in rows.columns]
        return split_rows(made, F.col(STATE) == WAITING, [*self.by, *self.gives.names], kept)

    def _output(self, takes: pa.Schema) -> pa.Schema:
        """Columns of the output: results and waiting rows have separate columns, NULL in rows of the other sort."""
        key = [takes.field(name) for name in self.by]
        kept = [pa.field(KEPT + field.name, field.type) for field in takes if field.name not in self.by]
        return pa.schema([*key, *self.gives, *kept, pa.field(STATE, pa.int8())])

    def all(self, *events: DataFrame) -> DataFrame:
        """Return the results over all events of some frames."""
        return self.settle(self.take(*events), END_OF_STREAM).results

    def _rows(self, events: DataFrame) -> DataFrame:
        """Return the rows of one frame: the key, the other columns that the function sees, and the time."""
        timed = drop_late(events, self.lateness, self.keep_late).withColumn(TIME, event_time())
        require_columns(events.columns, self.by)
        keys = (key_column(events.schema[name]) for name in self.by)
        seen = dict.fromkeys([TIME, TYPE, *self.columns, *EVENT_ID])
        others = [name for name in seen if name in events.columns and name not in self.by]
        return timed.select(*keys, *others, F.unix_micros(TIME).alias(AT_US))


def function_name(function: Function) -> str:
    """The module and name of a function, with the arguments of a `partial`; LakeError if it has no importable name.

    >>> function_name(partial(function_name, function=3))
    'genus.lake._analytics.windows.function_name(function=3)'
    """
    if isinstance(function, partial):
        bound = [*map(repr, function.args), *(f"{name}={value!r}" for name, value in function.keywords.items())]
        return f"{function_name(function.func)}({', '.join(bound)})"
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "<unnamed>")
    if module is None or "<" in name:
        raise LakeError(f"function={function!r} cannot be imported by another process; give a function of a module")
    return f"{module}.{name}"


# -- in tasks ----------------------------------------------------------------------------------------------------------


def walk_rows(
    walk: Walk, output: pa.Schema, limit_us: int, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Results and waiting rows, made from rows ordered by key, time and event id; before the limit no more come."""
    return in_blocks(batches, partial(_walk_block, walk, output, limit_us))


def _walk_block(walk: Walk, output: pa.Schema, limit_us: int, table: pa.Table, ended: bool) -> BlockResult:
    """Walk through the keys of a block; the last one may go on in the next block, so its waiting rows are kept."""
    starts = np.flatnonzero(key_starts(table, as_tuple(walk.by))).tolist()
    batches, held = list[pa.RecordBatch](), table.slice(0, 0)
    kept = [name if name in walk.by else KEPT + name for name in table.column_names]
    for start, end in pairwise([*starts, table.num_rows]):
        rows = table.slice(start, end - start)
        is_whole = ended or end < table.num_rows
        results, held = _walk(walk, rows, limit_us if is_whole else min(limit_us, rows.column(AT_US)[-1].as_py()))
        batches += _output(output, results, RESULT)
        if is_whole:
            batches += _output(output, held.rename_columns(kept), WAITING)
    return BlockResult(batches, held)


def _walk(walk: Walk, rows: pa.Table, limit_us: int) -> tuple[pa.Table, pa.Table]:
    """Call the function with the rows of one key before a time; returns results with the key, and rows that wait."""
    known = int(np.searchsorted(rows.column(AT_US).to_numpy(), limit_us, side="left"))
    made = walk.function(rows.slice(0, known), limit_us) if known else WalkResult(walk.gives.empty_table(), ())
    if made.results.schema.names != walk.gives.names:
        raise LakeError(
            f"the function returned the columns {', '.join(made.results.schema.names)}, "
            f"not {', '.join(walk.gives.names)}"
        )
    key = rows.select(walk.by).take(pa.array(np.zeros(made.results.num_rows, np.int64)))
    results = pa.table([*key.columns, *made.results.columns], [*walk.by, *walk.gives.names])
    return results, rows.take(pa.array([*made.waiting, *range(known, rows.num_rows)], pa.int64()))


def _output(output: pa.Schema, rows: pa.Table, state: int) -> list[pa.RecordBatch]:
    """Rows with all columns of the output, NULL where they have none, and with their state."""
    if not rows.num_rows:
        return []
    empty = {field.name: pa.nulls(rows.num_rows, field.type) for field in output}
    given = {name: rows.column(name) for name in rows.column_names}
    states = pa.array(np.full(rows.num_rows, state, np.int8))
    batches: list[pa.RecordBatch] = pa.table({**empty, **given, STATE: states}).cast(output).to_batches()
    return batches
