"""When an event happened, whether it came too late, and how far a stream has come.

An event is late if it was recorded after it expired, or, where a lateness is given, longer than that after its time.
That is a property of the event, the same however events are cut into batches. The arithmetic is on microseconds, for
Spark adds to and subtracts from timestamps in the session's time zone, where days have 23 hours or 25.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, Protocol

import pyspark.sql.functions as F
import pyspark.sql.types as spark
from pyspark.sql import Column, DataFrame

from genus.errors import LakeError
from genus.lake._tables.columns import EVENT_ID, RECORDED, twins_in

# Columns that events are brought together by.


_NESTED = (spark.ArrayType, spark.MapType, spark.StructType, spark.VariantType)


def key_column(field: spark.StructField) -> Column:
    """A column of a key; NaN is unknown, as NULL is, and there is one zero."""
    if isinstance(field.dataType, _NESTED):
        raise LakeError(f"by={field.name!r} is of type {field.dataType.simpleString()}; give columns of plain values")
    column = F.col(field.name)
    if not isinstance(field.dataType, spark.FloatType | spark.DoubleType):
        return column
    return F.when(~F.isnan(column), column + F.lit(0.0)).cast(field.dataType).alias(field.name)


# What every analysis has in common: it takes events in, and settles what a watermark allows.


_FEW_PARTITIONS = "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning"


class Settled(NamedTuple):
    """What an increment gives."""

    results: DataFrame
    """Rows that are final."""
    waiting: DataFrame
    """Rows to be handed to the next increment, with the columns that `take` gives."""
    shared: DataFrame
    """What both are computed from: `keep` it to use both and do the work once."""


class Analysis(Protocol):
    """An analysis that runs in batch and over increments, with equal results.

    Cut events, ordered by when they were recorded, into any increments; let each settle at the watermark it has come to
    (`watermark_of`), and at last at `END`. The results taken together are those of `all` over all events, row for row.
    """

    @property
    def lateness(self) -> timedelta | None:
        """How long after its time an event may be recorded and still counts."""

    def take(self, *events: DataFrame) -> DataFrame:
        """The rows the analysis works on, of events as a lake gives them; late ones are left out."""

    def settle(self, rows: DataFrame, watermark: datetime) -> Settled:
        """What is final now that no event before the watermark is still to come, and what still waits."""

    def all(self, *events: DataFrame) -> DataFrame:
        """The results over all events there are."""


def keep(frame: DataFrame) -> DataFrame:
    """Persist a frame, in as few partitions as it needs.

    Unless it is told that it may, Spark keeps what comes from a shuffle in 200, however little it is, and each of them
    costs a task, and Python's start of one.
    """
    settings = frame.sparkSession.conf
    before = settings.get(_FEW_PARTITIONS, "false")
    settings.set(_FEW_PARTITIONS, "true")
    try:
        return frame.persist()
    finally:
        settings.set(_FEW_PARTITIONS, before or "false")


def together(waiting: DataFrame | None, rows: DataFrame) -> DataFrame:
    """The rows of an increment and those that wait since the last, which may lack attributes added in between."""
    return rows if waiting is None else rows.unionByName(waiting, allowMissingColumns=True)


def demand(frame: DataFrame, names: Iterable[str]) -> None:
    """Refuse a frame without some columns."""
    if missing := [name for name in names if name not in frame.columns]:
        raise LakeError(f"the frame has no column {', '.join(missing)}; it has {', '.join(frame.columns)}")


def distinct(names: Sequence[str], hint: str) -> None:
    """Refuse columns of a result that Spark could not tell apart."""
    doubled = sorted({name for name in names if names.count(name) > 1})
    if clash := ", ".join(doubled) or twins_in(names):
        raise LakeError(f"the result would have two columns {clash}; {hint}")


def listed(names: str | Iterable[str]) -> tuple[str, ...]:
    """Column names as they may be given: one, or several."""
    return (names,) if isinstance(names, str) else tuple(names)


TIME, EXPIRES = "time", "expires"
CONTEXT = (TIME, EXPIRES, RECORDED, *EVENT_ID)
"""What an analysis must know of an event: when it happened and was seen, how long it holds, and which one it is."""

END = datetime.max.replace(tzinfo=UTC)
"""The watermark after which nothing comes: all is settled."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_FOREVER = (1 << 63) - 1


def moment() -> Column:
    """When an event happened: its time, or when it was recorded if it has none."""
    return F.coalesce(TIME, RECORDED)


def is_late(lateness: timedelta | None = None) -> Column:
    """Whether an event was recorded after it expired, or longer than the lateness after its time; never NULL."""
    late = F.coalesce(F.col(RECORDED) > F.col(EXPIRES), F.lit(False))
    if lateness is None:
        return late
    delay = F.unix_micros(RECORDED) - F.unix_micros(TIME)
    return late | F.coalesce(delay > micros(lateness), F.lit(False))


def is_overtaken(watermark: datetime) -> Column:
    """Whether a stream that has come to a watermark has gone past an event, late or not."""
    return F.unix_micros(moment()) < instant(watermark)


def watermark_of(recorded: datetime, lateness: timedelta | None) -> datetime:
    """How far a stream has come that has seen events recorded up to then: no event before it is still to come.

    >>> watermark_of(datetime(2026, 5, 4, 12, tzinfo=UTC), timedelta(seconds=30))
    datetime.datetime(2026, 5, 4, 11, 59, 30, tzinfo=datetime.timezone.utc)
    """
    if lateness is None:
        raise LakeError("a stream needs a lateness, or it would wait for late events for ever: give lateness=")
    instant(recorded)
    return recorded - lateness


def on_time(events: DataFrame, lateness: timedelta | None, keep_late: bool) -> DataFrame:
    """The events of a frame that count: all but late ones, unless these are kept."""
    demand(events, CONTEXT)
    return events if keep_late else events.where(~is_late(lateness))


def micros(duration: timedelta) -> int:
    """A duration in microseconds."""
    return duration // _MICROSECOND


def instant(watermark: datetime) -> int:
    """A watermark in microseconds since 1970, beyond every time for the one at the end.

    >>> instant(datetime(1970, 1, 2, tzinfo=UTC))
    86400000000
    """
    if watermark.tzinfo is None:
        raise LakeError(f"{watermark} has no time zone; give an aware datetime, such as datetime.now(UTC)")
    return _FOREVER if watermark == END else micros(watermark - _EPOCH)


def known_before(watermark: datetime, keep_late: bool) -> int:
    """The time before which all is known at a watermark; only at the end is that so of late events, too."""
    if keep_late and watermark != END:
        raise LakeError("a stream cannot keep late events: leave out keep_late=, or give a longer lateness=")
    return instant(watermark)


def check_lateness(lateness: timedelta | None) -> None:
    """Refuse a lateness below zero."""
    if lateness is not None and lateness < timedelta(0):
        raise LakeError(f"lateness={lateness} is below zero; give how long after its time an event may be recorded")
