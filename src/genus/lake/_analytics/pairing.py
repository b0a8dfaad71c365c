"""Pairing of each event of one frame with an earlier one of another, by key and time.

Halves of pairs are shuffled by key, sorted, and paired in one pass by Python workers (`pair_kernel`).
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Literal, TypeAlias

import msgspec
import pyspark.sql.functions as F
import pyspark.sql.types as spark
from pyspark.sql import Column, DataFrame

from genus.errors import LakeError
from genus.lake._analytics.analysis import (
    END_OF_STREAM,
    TIME,
    SettleResult,
    as_tuple,
    drop_late,
    event_time,
    final_before,
    group_by_key,
    key_column,
    require_columns,
    require_distinct,
    set_spans,
    span_micros,
    split_rows,
)
from genus.lake._analytics.pair_kernel import (
    ELAPSED,
    LEFT,
    LEFT_TIME,
    RIGHT,
    RIGHT_TIME,
    STATE,
    WAITING,
    PairRule,
    join_halves,
)
from genus.lake._tables.names import COMMIT, DAY, EVENT_ID
from genus.model import Span

Choice: TypeAlias = Literal["first", "last"]
_FILES = (COMMIT, DAY)
"""Columns that are not part of a result, because compaction changes them."""


class Pairing(msgspec.Struct, frozen=True, kw_only=True):
    """Analysis that pairs a left event with a later right one of the same key, at most `within` apart.

    It takes two frames, the left and the right one. Its results have the key, `left_time`, `right_time`, `elapsed`, and
    the other columns of both sides as `left_…` and `right_…`. Each event is in at most one pair as a left and in one as
    a right. Events at the same instant never pair; NULL and NaN are no keys. `pair` does the same in one call.
    """

    by: tuple[str, ...]
    """Columns of the key."""
    within: Span
    """Longest time from left to right."""
    choose: Choice = "first"
    """`"first"`: a right takes the oldest waiting left. `"last"`: only the event just before it, if that is a left."""
    outer: bool = False
    """Whether to add events without a pair, with NULL on the other side."""
    lateness: Span | None = None
    """How long after its time an event may be recorded without being late; a stream needs one."""
    keep_late: bool = False
    """Whether to include late events; in batch only."""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "by", as_tuple(self.by))
        if not self.by:
            raise LakeError("by= names no column; give the columns in which both events of a pair are equal")
        set_spans(self, "within")
        set_spans(self, "lateness", zero=True)
        if self.choose not in ("first", "last"):
            raise LakeError(f"choose={self.choose!r} is unknown; give 'first' or 'last'")

    def take(self, *events: DataFrame) -> DataFrame:
        """The halves of pairs, made from the left and the right frame."""
        left, right = (self._half(*side) for side in _sides(events))
        halves = left.unionByName(right, allowMissingColumns=True)
        require_distinct([*halves.columns, ELAPSED], "rename one before pairing")
        return halves

    def settle(self, rows: DataFrame, watermark: datetime) -> SettleResult:
        """The pairs whose right is before the watermark; later events wait, and lefts that may still be paired."""
        join = partial(join_halves, self._rule(watermark))
        joined = _in_order(rows, self.by).mapInArrow(join, _joined_schema(rows.schema))
        return split_rows(joined, F.col(STATE) == WAITING, _result_columns(rows.columns, self.by), rows.columns)

    def all(self, *events: DataFrame) -> DataFrame:
        """All pairs of a left and a right frame."""
        return self.settle(self.take(*events), END_OF_STREAM).results

    def _rule(self, watermark: datetime) -> PairRule:
        limit_us = final_before(watermark, self.keep_late)
        return PairRule(self.by, span_micros(self.within), self.choose == "first", self.outer, limit_us)

    def _rest(self, columns: Iterable[str]) -> list[str]:
        """The columns of a frame besides the key and the time."""
        return [name for name in columns if name not in (*self.by, *_FILES, TIME)]

    def _half(self, events: DataFrame, side: str, other_time: str) -> DataFrame:
        require_columns(events.columns, self.by)
        counted = drop_late(events, self.lateness, self.keep_late)
        keyed = counted if self.outer else counted.dropna(subset=list(self.by))
        times = {f"{side}time": event_time(), other_time: F.lit(None).cast("timestamp")}
        return keyed.select(
            *(key_column(events.schema[name]) for name in self.by),
            *(times[name].alias(name) for name in (LEFT_TIME, RIGHT_TIME)),
            *(F.col(name).alias(f"{side}{name}") for name in self._rest(events.columns)),
        )


def pair(
    left: DataFrame,
    right: DataFrame,
    *,
    by: str | Sequence[str],
    within: Span,
    choose: Choice = "first",
    outer: bool = False,
    lateness: Span | None = None,
    keep_late: bool = False,
) -> DataFrame:
    """Pair each left event with a later right event of the same key, at most `within` apart; see `Pairing`.

    Args:
        left: Events, with the columns of `Lake.read`.
        right: Events; may be the same frame.
        by: Columns of the key.
        within: Longest time from left to right.
        choose: `"first"`: a right takes the oldest waiting left. `"last"`: only the event just before it.
        outer: Add events without a pair, with NULL on the other side.
        lateness: How long after its time an event may be recorded without being late; None for no limit.
        keep_late: Include late events.

    Returns:
        A frame with the key, `left_time`, `right_time`, `elapsed`, `left_…` and `right_…`.

    Raises:
        LakeError: A column is missing, or an argument is out of range.
        SpanError: A time is no length of time.
    """
    return Pairing(
        by=as_tuple(by), within=within, choose=choose, outer=outer, lateness=lateness, keep_late=keep_late
    ).all(left, right)


def seconds(interval: str) -> Column:
    """An interval column, such as `elapsed` of pairs, as seconds."""
    return F.col(interval).cast("interval second").cast("decimal(18,6)").cast("double")


def _in_order(halves: DataFrame, by: Iterable[str]) -> DataFrame:
    """The halves in the order that `join_halves` needs."""
    event = (F.coalesce(f"{LEFT}{name}", f"{RIGHT}{name}") for name in EVENT_ID)
    order = (F.coalesce(LEFT_TIME, RIGHT_TIME), F.col(RIGHT_TIME).isNull(), *event)
    return group_by_key(halves, by).sortWithinPartitions(*by, *order)


def _sides(events: Sequence[DataFrame]) -> Iterator[tuple[DataFrame, str, str]]:
    """The left and the right events, each with the prefix of its columns and the name of the other's time."""
    if len(events) != 2:
        raise LakeError(f"pairing takes two frames, the left and the right one, not {len(events)}")
    return zip(events, (LEFT, RIGHT), (RIGHT_TIME, LEFT_TIME), strict=True)


def _joined_schema(halves: spark.StructType) -> spark.StructType:
    added = [spark.StructField(ELAPSED, spark.DayTimeIntervalType()), spark.StructField(STATE, spark.ByteType())]
    return spark.StructType([*(spark.StructField(field.name, field.dataType) for field in halves), *added])


def _result_columns(halves: Iterable[str], by: Iterable[str]) -> list[str]:
    times = [*by, LEFT_TIME, RIGHT_TIME, ELAPSED]
    return [*times, *(name for name in halves if name not in times)]
