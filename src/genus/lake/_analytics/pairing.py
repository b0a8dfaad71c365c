"""Pairing: each event of one frame with an earlier one of another, by key and time.

Halves of pairs are brought together by key, sorted, and gone through once in Python; that is one shuffle, and no state.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Literal, TypeAlias

import msgspec
import pyspark.sql.functions as F
import pyspark.sql.types as spark
from pyspark.sql import Column, DataFrame

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
    micros,
    moment,
    on_time,
)
from genus.lake._analytics.pair_kernel import (
    ELAPSED,
    LEFT,
    LEFT_TIME,
    RIGHT,
    RIGHT_TIME,
    STATE,
    WAITING,
    Rule,
    join_halves,
)
from genus.lake._tables.columns import COMMIT, DAY, EVENT_ID

Choice: TypeAlias = Literal["first", "last"]
_FILES = (COMMIT, DAY)
"""Where a row is stored, which compaction changes: no part of a result."""


class Pairing(msgspec.Struct, frozen=True, kw_only=True):
    """Pairs of a left and a later right event with the same key, at most `within` apart.

    Its results have the key, `left_time`, `right_time`, `elapsed`, and the other columns of both sides as `left_…` and
    `right_…`. `outer` adds the events that stay alone, with the other side NULL.
    """

    by: tuple[str, ...]
    within: timedelta
    choose: Choice = "first"
    outer: bool = False
    lateness: timedelta | None = None
    keep_late: bool = False
    """Count late events too; in batch only, for a stream cannot wait for them."""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "by", listed(self.by))
        if not self.by:
            raise LakeError("by= names no column; give the key that both events of a pair share")
        if self.within <= timedelta(0):
            raise LakeError(f"within={self.within} is not above zero; events of the same instant never pair")
        if self.choose not in ("first", "last"):
            raise LakeError(f"choose={self.choose!r} is unknown; give 'first' or 'last'")
        check_lateness(self.lateness)

    def take(self, *events: DataFrame) -> DataFrame:
        """The halves of pairs: of two frames, the left one and the right one."""
        if len(events) != 2:
            raise LakeError(f"pairing takes two frames, the left and the right one, not {len(events)}")
        left, right = (self._half(*side) for side in zip(events, (LEFT, RIGHT), (RIGHT_TIME, LEFT_TIME), strict=True))
        halves = left.unionByName(right, allowMissingColumns=True)
        distinct([*halves.columns, ELAPSED], "rename one before pairing")
        return halves

    def settle(self, rows: DataFrame, watermark: datetime) -> Settled:
        """The pairs whose right lies before the watermark; what lies after it waits, and lefts that may still pair."""
        rule = Rule(
            self.by, micros(self.within), self.choose == "first", self.outer, known_before(watermark, self.keep_late)
        )
        joined = _in_order(rows, self.by).mapInArrow(partial(join_halves, rule), _joined_schema(rows.schema))
        results = joined.where(F.col(STATE) != WAITING).select(*_result_columns(rows.columns, self.by))
        return Settled(results, joined.where(F.col(STATE) == WAITING).select(*rows.columns), joined)

    def all(self, *events: DataFrame) -> DataFrame:
        """All pairs of a left and a right frame."""
        return self.settle(self.take(*events), END).results

    def _half(self, events: DataFrame, side: str, other_time: str) -> DataFrame:
        demand(events, self.by)
        counted = on_time(events, self.lateness, self.keep_late)
        keyed = counted if self.outer else counted.dropna(subset=list(self.by))
        rest = [name for name in events.columns if name not in (*self.by, *_FILES, TIME)]
        times = {f"{side}time": moment(), other_time: F.lit(None).cast("timestamp")}
        return keyed.select(
            *(key_column(events.schema[name]) for name in self.by),
            *(times[name].alias(name) for name in (LEFT_TIME, RIGHT_TIME)),
            *(F.col(name).alias(f"{side}{name}") for name in rest),
        )


def pair(
    left: DataFrame,
    right: DataFrame,
    *,
    by: str | Sequence[str],
    within: timedelta,
    choose: Choice = "first",
    outer: bool = False,
    lateness: timedelta | None = None,
    keep_late: bool = False,
) -> DataFrame:
    """The pairs of a left and a later right event with the same key, at most `within` apart.

    A right takes the oldest left that waits (`choose="first"`), or only its neighbour, the event just before it
    (`"last"`). Each left and each right is in one pair at most. `outer` adds those that stay alone.
    """
    return Pairing(
        by=listed(by), within=within, choose=choose, outer=outer, lateness=lateness, keep_late=keep_late
    ).all(left, right)


def seconds(interval: str) -> Column:
    """A column of intervals, such as `elapsed`, in seconds."""
    return F.col(interval).cast("interval second").cast("decimal(18,6)").cast("double")


def _in_order(halves: DataFrame, by: Iterable[str]) -> DataFrame:
    """Rows of a key side by side, in the order the matching goes through them: rights first at one instant."""
    event = (F.coalesce(f"{LEFT}{name}", f"{RIGHT}{name}") for name in EVENT_ID)
    order = (F.coalesce(LEFT_TIME, RIGHT_TIME), F.col(RIGHT_TIME).isNull(), *event)
    return halves.repartition(*by).sortWithinPartitions(*by, *order)


def _joined_schema(halves: spark.StructType) -> spark.StructType:
    added = [spark.StructField(ELAPSED, spark.DayTimeIntervalType()), spark.StructField(STATE, spark.ByteType())]
    return spark.StructType([*(spark.StructField(field.name, field.dataType) for field in halves), *added])


def _result_columns(halves: Iterable[str], by: Iterable[str]) -> list[str]:
    times = [*by, LEFT_TIME, RIGHT_TIME, ELAPSED]
    return [*times, *(name for name in halves if name not in times)]
