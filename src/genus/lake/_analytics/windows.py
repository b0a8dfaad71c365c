"""Time windows with counts and exact quantiles, as native Spark aggregation.

A window is [start, start + every); starts are multiples of the slide since 1970 in UTC. Figures that depend on the
order of values are computed from the sorted list of values, so that results do not depend on how rows are partitioned.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal, TypeAlias

import msgspec
import pyspark.sql.functions as F
import pyspark.sql.types as spark
from pyspark.sql import Column, DataFrame

from genus.errors import LakeError
from genus.lake._analytics.analysis import (
    END_OF_STREAM,
    SettleResult,
    as_tuple,
    drop_late,
    event_time,
    final_before,
    key_column,
    normalize,
    require_columns,
    require_distinct,
    span_micros,
)
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
