"""Time windows with counts and exact quantiles, as native Spark aggregation; of few events, as one of Arrow.

A window is [start, start + every); starts are multiples of the slide since 1970 in UTC. Figures that depend on the
order of values are computed from the sorted list of values, so that results do not depend on how rows are partitioned.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import reduce
from math import ceil, floor
from operator import add
from typing import Any, Literal, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyspark.sql.functions as F
import pyspark.sql.types as spark
from pyspark.sql import Column, DataFrame

from genus.errors import LakeError
from genus.lake._analytics.analysis import (
    END_OF_STREAM,
    SettledTables,
    SettleResult,
    as_tuple,
    drop_late,
    event_time,
    final_before,
    require_columns,
    require_distinct,
    set_spans,
    span_micros,
)
from genus.lake._analytics.arrow_events import as_micros, drop_late_rows, event_times, same_zeros, select_rows
from genus.lake._analytics.pair_kernel import Rows
from genus.lake._tables.columns import INSTANT
from genus.lake._tables.spark_columns import spark_schema
from genus.model import Span, duration

Statistic: TypeAlias = Literal["count", "mean", "min", "max"] | float
"""A statistic of a column's values; a number from 0 to 1 is a quantile."""

START, END_COLUMN, COUNT = "start", "end", "count"
_AT, _AFTER = "_at_us", "_after_us"


class Windows(msgspec.Struct, frozen=True, kw_only=True):
    """Analysis that counts events in time windows, with statistics of their values.

    It takes one frame. Its results have the key, `start`, `end`, `count`, and a column like `speed_mean` or `speed_p85`
    per statistic. Windows without events have no row. `windows` does the same in one call.
    """

    every: Span
    """Length of a window."""
    by: tuple[str, ...] = ()
    """Columns of the key; each key has windows of its own."""
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
        msgspec.structs.force_setattr(self, "by", as_tuple(self.by))
        set_spans(self, "every", "slide")
        set_spans(self, "lateness", zero=True)
        if self.step > duration(self.every):
            raise LakeError(f"slide={self.slide} is longer than every={self.every}; windows would leave out events")
        for name, statistic in self._statistics():
            _check_statistic(name, statistic)
        require_distinct(
            [*self.by, START, END_COLUMN, COUNT, *self._names()], "rename a column, or ask for each figure once"
        )

    @property
    def step(self) -> timedelta:
        """Time between the starts of windows."""
        return duration(self.every if self.slide is None else self.slide)

    def take(self, *events: DataFrame) -> DataFrame:
        """The key, time and values of a frame's events."""
        _check_single(events)
        (frame,) = events
        self._check_columns(frame.schema)
        counted = frame if self.time else drop_late(frame, self.lateness, self.keep_late)
        at = F.unix_micros(self.time or event_time())
        timed = counted.select(*self.by, *self.values, at.alias(_AT), F.lit(None).cast("bigint").alias(_AFTER))
        return timed.where(F.col(_AT).isNotNull())

    def settle(self, rows: DataFrame, watermark: datetime) -> SettleResult:
        """The windows that end at or before the watermark; events that are also in later windows wait."""
        limit, every, step = self._limits(watermark)
        open = _align(F.col(_AT), step) > limit - every
        waiting = rows.where(open).withColumn(_AFTER, F.lit(limit).cast("bigint"))
        return SettleResult(self._summary(self._assign_windows(rows, limit)), waiting, rows)

    def all(self, *events: DataFrame) -> DataFrame:
        """All windows of a frame's events."""
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
        lists = [_ascending(name).alias(_list(name)) for name, given in self.values.items() if _needs_list(given)]
        extremes = [
            getattr(F, statistic)(_number(name)).alias(_figure_name(name, statistic))
            for name, statistic in self._statistics()
            if statistic in ("count", "min", "max")
        ]
        grouped = assigned.groupBy(*self.by, START).agg(F.count(F.lit(1)).alias(COUNT), *extremes, *lists)
        end = F.timestamp_micros(F.col(START) + span_micros(self.every))
        figures = (
            _figure(name, statistic).alias(_figure_name(name, statistic)) for name, statistic in self._statistics()
        )
        return grouped.select(*self.by, F.timestamp_micros(START).alias(START), end.alias(END_COLUMN), COUNT, *figures)

    # -- in this process ---------------------------------------------------------------------------------------------

    @property
    def rows_per_event(self) -> int:
        """The number of windows that an event is in at most."""
        return -(-span_micros(self.every) // span_micros(self.step))

    def take_arrow(self, *events: pa.Table) -> pa.Table:
        """The key, time and values of a table's events."""
        _check_single(events)
        (table,) = events
        self._check_columns(spark_schema(table.schema))
        counted = table if self.time else drop_late_rows(table, self.lateness, self.keep_late)
        at = (counted.column(self.time) if self.time else event_times(counted)).cast(pa.int64())
        taken = {name: counted.column(name) for name in (*self.by, *self.values)}
        return pa.table({**taken, _AT: at, _AFTER: pa.nulls(len(at), pa.int64())}).filter(at.is_valid())

    def settle_arrow(self, rows: pa.Table, watermark: datetime) -> SettledTables:
        """The windows that end at or before the watermark; events that are also in later windows wait."""
        limit, every, step = self._limits(watermark)
        at = as_micros(rows.column(_AT))
        waiting = select_rows(rows, at - at % step > limit - every).drop_columns(_AFTER)
        waiting = waiting.append_column(_AFTER, pa.repeat(pa.scalar(limit, pa.int64()), waiting.num_rows))
        since = as_micros(pc.coalesce(rows.column(_AFTER), rows.column(_AT)))
        last = np.minimum(at, limit - every)
        last -= last % step
        first = np.maximum(at, since) - every
        first += step - first % step
        which, starts = _spread(first, last, step)
        return SettledTables(self._arrow_summary(rows.take(pa.array(which)), starts), waiting)

    def _arrow_summary(self, assigned: pa.Table, starts: Rows) -> pa.Table:
        keys = {name: _comparable(assigned.column(name)) for name in self.by}
        numbers = {_list(name): _numbers(assigned.column(name)) for name in self.values}
        made = {(_list(name), _aggregate(statistic)) for name, statistic in self._statistics()}
        grouped = (
            pa.table({**keys, START: starts, **numbers})
            .group_by([*self.by, START], use_threads=False)
            .aggregate([([], "count_all"), *sorted(made)])
        )
        start = grouped.column(START)
        end = pc.add(start, span_micros(self.every))
        figures = {_figure_name(name, each): _arrow_figure(grouped, name, each) for name, each in self._statistics()}
        times = {START: start.cast(INSTANT), END_COLUMN: end.cast(INSTANT)}
        counts = {COUNT: grouped.column("count_all")}
        return pa.table({**{name: grouped.column(name) for name in self.by}, **times, **counts, **figures})

    # -- columns -----------------------------------------------------------------------------------------------------

    def _limits(self, watermark: datetime) -> tuple[int, int, int]:
        """The time before which no more events come, the length of a window and the time between starts."""
        limit = final_before(watermark, self.keep_late)
        return limit, span_micros(self.every), span_micros(self.step)

    def _check_columns(self, schema: spark.StructType) -> None:
        require_columns(schema.names, (*self.by, *self.values, *([self.time] if self.time else [])))
        _check_numbers(schema, self.values)

    def _statistics(self) -> Iterator[tuple[str, Statistic]]:
        return ((name, statistic) for name, given in self.values.items() for statistic in given)

    def _names(self) -> list[str]:
        return [_figure_name(name, statistic) for name, statistic in self._statistics()]


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
        every=every,
        by=as_tuple(by),
        values=values,
        slide=slide,
        lateness=lateness,
        keep_late=keep_late,
        time=time,
    ).all(events)


def _align(at: Column, step: int) -> Column:
    return at - F.pmod(at, F.lit(step).cast("bigint"))


def _check_statistic(name: str, statistic: object) -> None:
    is_quantile = isinstance(statistic, float | int) and not isinstance(statistic, bool) and 0 <= statistic <= 1
    if not is_quantile and statistic not in ("count", "mean", "min", "max"):
        raise LakeError(f"values[{name!r}]: {statistic!r} is not count, mean, min, max or a quantile from 0 to 1")


def _check_single(events: Sequence[object]) -> None:
    if len(events) != 1:
        raise LakeError(f"windows take one frame, not {len(events)}")


def _check_numbers(schema: spark.StructType, names: Mapping[str, object]) -> None:
    for name in names:
        kind = schema[name].dataType
        if not isinstance(kind, spark.NumericType):
            raise LakeError(f"values[{name!r}] is of type {kind.simpleString()}; make it a number first")


def _figure_name(name: str, statistic: Statistic) -> str:
    return f"{name}_{statistic}" if isinstance(statistic, str) else f"{name}_p{_percent(statistic)}"


def _percent(quantile: float) -> str:
    return f"{quantile * 100:.10g}".replace(".", "_")


def _list(name: str) -> str:
    return f"_values_{name}"


def _needs_list(statistics: Sequence[Statistic]) -> bool:
    return any(statistic not in ("count", "min", "max") for statistic in statistics)


def _number(name: str) -> Column:
    return F.when(~F.isnan(F.col(name).cast("double")), F.col(name))


def _ascending(name: str) -> Column:
    # Adding 0.0 turns -0.0 into 0.0; otherwise their order would be undefined.
    return F.array_sort(F.collect_list(_number(name).cast("double") + F.lit(0.0)))


def _figure(name: str, statistic: Statistic) -> Column:
    values = F.col(_list(name))
    if isinstance(statistic, float | int):
        return _quantile(values, statistic)
    return _mean(values) if statistic == "mean" else F.col(_figure_name(name, statistic))


def _mean(values: Column) -> Column:
    total = F.aggregate(values, F.lit(0.0), lambda sum, value: sum + value)
    return F.when(F.size(values) > 0, total / F.size(values))


def _quantile(values: Column, quantile: float) -> Column:
    rank = (F.size(values) - 1) * F.lit(float(quantile))
    below, above = F.get(values, F.floor(rank).cast("int")), F.get(values, F.ceil(rank).cast("int"))
    between = below * (F.ceil(rank) - rank) + above * (rank - F.floor(rank))
    return F.when(below == above, below).otherwise(between)


# -- in this process ---------------------------------------------------------------------------------------------------


def _spread(first: Rows, last: Rows, step: int) -> tuple[Rows, Rows]:
    """A row for each step from the first to the last of each row: the number of the row, and the step.

    >>> [each.tolist() for each in _spread(np.array([0, 10, 40]), np.array([20, 10, 30]), step=10)]
    [[0, 0, 0, 1], [0, 10, 20, 10]]
    """
    steps = np.maximum((last - first) // step + 1, 0)
    which = np.repeat(np.arange(len(steps)), steps)
    number = np.arange(len(which)) - np.repeat(np.cumsum(steps) - steps, steps)
    return which, first[which] + step * number


def _comparable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return same_zeros(column) if pa.types.is_floating(column.type) else column


def _numbers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column with NULL for NaN."""
    is_float = pa.types.is_floating(column.type)
    return pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column) if is_float else column


def _aggregate(statistic: Statistic) -> str:
    """The aggregation that a statistic is computed from."""
    return statistic if statistic in ("count", "min", "max") else "list"


def _arrow_figure(grouped: pa.Table, name: str, statistic: Statistic) -> Any:
    made = grouped.column(f"{_list(name)}_{_aggregate(statistic)}")
    if _aggregate(statistic) != "list":
        return made
    lists = [sorted(float(each) + 0.0 for each in values if each is not None) for values in made.to_pylist()]
    figures = [_mean_of(each) if isinstance(statistic, str) else _quantile_of(each, statistic) for each in lists]
    return pa.array(figures, pa.float64())


def _mean_of(ascending: list[float]) -> float | None:
    return reduce(add, ascending, 0.0) / len(ascending) if ascending else None  # `sum` would round in another way


def _quantile_of(ascending: list[float], quantile: float) -> float | None:
    if not ascending:
        return None
    rank = (len(ascending) - 1) * float(quantile)
    below, above = ascending[floor(rank)], ascending[ceil(rank)]
    return below if below == above else below * (ceil(rank) - rank) + above * (rank - floor(rank))
