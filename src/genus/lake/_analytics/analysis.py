"""The interface of analyses, and what they share: event time, late events, watermarks, checks of columns.

An event is late if it was recorded after it expired or, where a lateness is given, longer than that after its time.
This depends on the event only, not on how events are cut into batches. Times are computed in microseconds, because
Spark adds to timestamps in the session's time zone, where a day may have 23 or 25 hours.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyspark.sql.functions as F
import pyspark.sql.types as spark
from pyspark.sql import Column, DataFrame

from genus.errors import LakeError
from genus.lake._tables.commits import EVENT_ID, RECORDED, find_case_twins
from genus.model import Span, duration, micros_of_duration, micros_of_time

_COALESCE_CACHE = "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning"
_NESTED = (spark.ArrayType, spark.MapType, spark.StructType, spark.VariantType)


class SettleResult(NamedTuple):
    """Result of `Analysis.settle` for one increment of events."""

    results: DataFrame
    """Rows that are final."""
    waiting: DataFrame
    """Rows for the next increment, with the columns of `Analysis.take`."""
    shared: DataFrame
    """The frame that both are computed from; `persist` it to use both without computing it twice."""
    marked: DataFrame | None = None
    """Both in one frame, as structs `results` and `waiting` of which one is NULL, where one pass gives both."""


class Analysis(Protocol):
    """Interface of analyses that run in batch and over increments with equal results.

    `Pairing`, `Windows` and `Walk` implement it. Cut events, ordered by time of recording, into any increments, settle
    each at its watermark (`watermark_of`) and the last one at `END_OF_STREAM`: together the results are, row for row,
    those of `all` over all events.
    """

    @property
    def lateness(self) -> Span | None:
        """How long after its time an event may be recorded without being late; None for no limit."""

    def take(self, *events: DataFrame) -> DataFrame:
        """Return the rows that the analysis works on, made from frames of events; late events are left out."""

    def settle(self, rows: DataFrame, watermark: datetime) -> SettleResult:
        """Return the results that are final, as no events before the watermark will come, and the rows that wait."""

    def all(self, *events: DataFrame) -> DataFrame:
        """Return the results over all events."""


def persist(frame: DataFrame) -> DataFrame:
    """Persist a frame in as few partitions as it needs.

    By default Spark keeps the 200 partitions of a shuffle, however small they are, and each costs a task.
    """
    settings = frame.sparkSession.conf
    before = settings.get(_COALESCE_CACHE, "false")
    settings.set(_COALESCE_CACHE, "true")
    try:
        return frame.persist()
    finally:
        settings.set(_COALESCE_CACHE, before or "false")


_ONE_TASK: ContextVar[bool] = ContextVar("one_task", default=False)


@contextmanager
def in_one_task(wanted: bool = True) -> Iterator[None]:
    """Within the block, `group_by_key` leaves few rows in one task, because a shuffle takes longer than they take."""
    token = _ONE_TASK.set(wanted)
    try:
        yield
    finally:
        _ONE_TASK.reset(token)


def group_by_key(rows: DataFrame, by: Iterable[str]) -> DataFrame:
    """Return the rows, with all rows of a key in one task."""
    return rows.coalesce(1) if _ONE_TASK.get() else rows.repartition(*by)


RESULTS, WAITING = "results", "waiting"


def mark(settled: SettleResult) -> DataFrame:
    """Results and waiting rows in one frame, to be written by one job; see `SettleResult.marked`."""
    if settled.marked is not None:
        return settled.marked
    kinds = {RESULTS: settled.results, WAITING: settled.waiting}
    empty = {name: F.lit(None).cast(frame.schema).alias(name) for name, frame in kinds.items()}
    results, waiting = (frame.select(F.struct("*").alias(name)) for name, frame in kinds.items())
    return results.select(RESULTS, empty[WAITING]).unionAll(waiting.select(empty[RESULTS], WAITING))


def split_rows(
    shared: DataFrame, waits: Column, results: Sequence[Column | str], waiting: Sequence[Column | str]
) -> SettleResult:
    """Return the result of a kernel that gives both sorts of rows, of which a column tells which ones wait."""
    marked = shared.select(
        F.when(~waits, F.struct(*results)).alias(RESULTS), F.when(waits, F.struct(*waiting)).alias(WAITING)
    )
    return SettleResult(shared.where(~waits).select(*results), shared.where(waits).select(*waiting), shared, marked)


def union_waiting(waiting: DataFrame | None, rows: DataFrame) -> DataFrame:
    """Return the rows of an increment and those that wait from the previous one.

    Args:
        waiting: `SettleResult.waiting` of the previous increment; None for the first one. Columns that were added
            since are NULL in them.
        rows: The rows that `Analysis.take` made of the new events.
    """
    return rows if waiting is None else rows.unionByName(waiting, allowMissingColumns=True)


def key_column(field: spark.StructField) -> Column:
    """Return a column of a key: NaN becomes NULL, -0.0 becomes 0.0; LakeError for nested types."""
    if isinstance(field.dataType, _NESTED):
        raise LakeError(f"by={field.name!r} is of type {field.dataType.simpleString()}; give columns of plain values")
    column = F.col(field.name)
    if not isinstance(field.dataType, spark.FloatType | spark.DoubleType):
        return column
    return F.when(~F.isnan(column), column + F.lit(0.0)).cast(field.dataType).alias(field.name)


def require_columns(columns: Sequence[str], names: Iterable[str]) -> None:
    """Raise LakeError unless the columns of a frame include some names."""
    if missing := [name for name in names if name not in columns]:
        raise LakeError(f"the frame has no column {', '.join(missing)}; it has {', '.join(columns)}")


def require_distinct(names: Sequence[str], hint: str) -> None:
    """Raise LakeError if the columns of a result have equal names; Spark ignores case."""
    doubled = sorted({name for name in names if names.count(name) > 1})
    if clash := ", ".join(doubled) or find_case_twins(names):
        raise LakeError(f"the result would have two columns {clash}; {hint}")


def as_tuple(names: str | Iterable[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


# -- in tasks ----------------------------------------------------------------------------------------------------------


Marks: TypeAlias = npt.NDArray[np.bool_]
BLOCK_ROWS = 1 << 16
"""New rows of a block; it has at least twice as many as were kept from the last one, so that copying stays cheap."""


class BlockResult(NamedTuple):
    """The output of a block, and the rows to begin the next one with."""

    batches: list[pa.RecordBatch]
    held: pa.Table


def in_blocks(
    batches: Iterable[pa.RecordBatch], process: Callable[[pa.Table, bool], BlockResult]
) -> Iterator[pa.RecordBatch]:
    """Process ordered rows block by block; the function is told whether a block is the last one."""
    block, rows, enough = list[pa.RecordBatch](), 0, BLOCK_ROWS
    for batch in batches:
        block.append(batch)
        rows += batch.num_rows
        if rows >= enough:
            done = process(pa.Table.from_batches(block).combine_chunks(), False)
            yield from done.batches
            block, rows = done.held.to_batches(), done.held.num_rows
            enough = BLOCK_ROWS + 2 * rows
    if rows:
        yield from process(pa.Table.from_batches(block).combine_chunks(), True).batches


def key_starts(table: pa.Table, by: tuple[str, ...]) -> Marks:
    """Return a mask of the rows whose key differs from that of the row before; NULL differs from everything."""
    starts = np.ones(table.num_rows, np.bool_)
    starts[1:] = False
    for column in table.select(by).columns:
        differs = pc.not_equal(column.slice(1), column.slice(0, max(len(column) - 1, 0)))
        starts[1:] |= pc.fill_null(differs, True).to_numpy()
    return starts


# -- time --------------------------------------------------------------------------------------------------------------


TIME, EXPIRES = "time", "expires"
CONTEXT = (TIME, EXPIRES, RECORDED, *EVENT_ID)
"""Columns that an analysis needs of every event."""

END_OF_STREAM = datetime.max.replace(tzinfo=UTC)
"""The watermark at the end of a stream; at it, all rows are settled."""

_FOREVER = (1 << 63) - 1


def event_time() -> Column:
    """Return the time of an event, or its time of recording if it has none."""
    return F.coalesce(TIME, RECORDED)


def is_late(lateness: Span | None = None) -> Column:
    """Return a column that is true for late events, and never NULL, to count them or leave them out.

    An event is late if it was recorded after it expired, or longer than `lateness` after its time.

    Args:
        lateness: None: only the expiry counts.
    """
    late = F.coalesce(F.col(RECORDED) > F.col(EXPIRES), F.lit(False))
    if lateness is None:
        return late
    delay = F.unix_micros(RECORDED) - F.unix_micros(TIME)
    return late | F.coalesce(delay > span_micros(lateness), F.lit(False))


def is_overtaken(watermark: datetime) -> Column:
    """A column that is true for events before a watermark: a stream that has reached it has settled their time."""
    return F.unix_micros(event_time()) < watermark_micros(watermark)


def watermark_of(recorded: datetime, lateness: Span | None) -> datetime:
    """Return the watermark of a stream: no events before it will come, except late ones.

    Args:
        recorded: The latest time of recording so far, with a time zone.
        lateness: How long after its time an event may be recorded.

    Raises:
        LakeError: There is no lateness, or `recorded` has no time zone.

    >>> watermark_of(datetime(2026, 5, 4, 12, tzinfo=UTC), "30s")
    datetime.datetime(2026, 5, 4, 11, 59, 30, tzinfo=datetime.timezone.utc)
    """
    if lateness is None:
        raise LakeError(
            "an analysis on a stream needs a lateness, otherwise it waits for late events forever: give lateness="
        )
    watermark_micros(recorded)
    return recorded - duration(lateness, "lateness")


def drop_late(events: DataFrame, lateness: Span | None, keep_late: bool) -> DataFrame:
    """Return the events of a frame without late ones, or all if `keep_late` is set."""
    require_columns(events.columns, CONTEXT)
    return events if keep_late else events.where(~is_late(lateness))


def watermark_micros(watermark: datetime) -> int:
    """Return a watermark in microseconds since 1970; for `END_OF_STREAM`, a number above all times.

    >>> watermark_micros(datetime(1970, 1, 2, tzinfo=UTC))
    86400000000
    """
    if watermark.tzinfo is None:
        raise LakeError(f"{watermark} has no time zone; give an aware datetime, such as datetime.now(UTC)")
    return _FOREVER if watermark == END_OF_STREAM else micros_of_time(watermark)


def final_before(watermark: datetime, keep_late: bool) -> int:
    """The time, in microseconds, before which no more events come; with late events, only the end of the stream."""
    if keep_late and watermark != END_OF_STREAM:
        raise LakeError("a stream cannot keep late events: leave out keep_late=, or give a longer lateness=")
    return watermark_micros(watermark)


def span_micros(span: Span) -> int:
    return micros_of_duration(duration(span))


def normalize(analysis: Any, *spans: str) -> None:
    """Store the key of a new analysis as a tuple and its spans as timedeltas; derived tables are known by its text."""
    msgspec.structs.force_setattr(analysis, "by", as_tuple(analysis.by))
    for name in (*spans, "lateness"):
        if (span := getattr(analysis, name)) is not None:
            msgspec.structs.force_setattr(analysis, name, duration(span, name, zero=name == "lateness"))
