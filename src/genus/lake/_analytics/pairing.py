"""Pairing of each event of one frame with an earlier one of another, by key and time.

Halves of pairs are shuffled by key, sorted, and paired in one pass by Python workers, block by block. A half is a row
of the result with one side empty. Rows are ordered by key and time, and at equal times right halves come before left
ones. So a left is never paired with a right of the same instant, and an event that is both is a right first and then
waits as a left. Between blocks only the waiting lefts of the last key are kept, so memory grows with what can wait at
one time, not with the history of a key.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Literal, NamedTuple, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyspark.sql.functions as F
import pyspark.sql.types as spark
from pyspark.sql import Column, DataFrame

from genus.errors import LakeError
from genus.lake._analytics.analysis import (
    END_OF_STREAM,
    TIME,
    BlockResult,
    Marks,
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
from genus.lake._tables.commits import COMMIT, DAY, EVENT_ID
from genus.model import Span

LEFT, RIGHT = "left_", "right_"
LEFT_TIME, RIGHT_TIME, ELAPSED, STATE = "left_time", "right_time", "elapsed", "_state"
PAIRED, ALONE, WAITING, _HELD = range(4)
"""States of rows."""
DURATION = pa.duration("us")
Rows: TypeAlias = npt.NDArray[np.int64]
Choice: TypeAlias = Literal["first", "last"]
_NOT_SHOWN = (TIME, COMMIT, DAY)
"""Columns of events that no column of a side has: the time is one of the pair, compaction changes the others."""


class Pairing(msgspec.Struct, frozen=True, kw_only=True):
    """Analysis that pairs a left event with a later right one of the same key, at most `within` apart.

    It takes two frames, the left and the right one. Its results have the key, `left_time`, `right_time`, `elapsed`, and
    the other columns of both sides as `left_…` and `right_…`. Each event is in at most one pair as a left and in one as
    a right. Events at the same instant never pair; NULL and NaN are no keys. `pair` does the same in one call.
    """

    by: str | tuple[str, ...]
    """Columns of the key, or the only one; stored as a tuple."""
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
        normalize(self, "within")
        if not self.by:
            raise LakeError("by= names no column; give the columns in which both events of a pair are equal")
        if self.choose not in ("first", "last"):
            raise LakeError(f"choose={self.choose!r} is unknown; give 'first' or 'last'")

    def take(self, *events: DataFrame) -> DataFrame:
        """Return the halves of pairs, made from the left and the right frame."""
        if len(events) != 2:
            raise LakeError(f"pairing takes two frames, the left and the right one, not {len(events)}")
        left, right = (self._half(frame, side) for frame, side in zip(events, (LEFT, RIGHT), strict=True))
        halves = left.unionByName(right, allowMissingColumns=True)
        require_distinct([*halves.columns, ELAPSED], "rename one before pairing")
        return halves

    def settle(self, rows: DataFrame, watermark: datetime) -> SettleResult:
        """Return pairs whose right is before the watermark; later events wait, and lefts that may still be paired."""
        join = partial(join_halves, self, final_before(watermark, self.keep_late))
        event = (F.coalesce(f"{LEFT}{name}", f"{RIGHT}{name}") for name in EVENT_ID)
        order = (F.coalesce(LEFT_TIME, RIGHT_TIME), F.col(RIGHT_TIME).isNull(), *event)
        halves = spark.StructType([spark.StructField(field.name, field.dataType) for field in rows.schema])
        schema = halves.add(ELAPSED, spark.DayTimeIntervalType()).add(STATE, spark.ByteType())
        joined = group_by_key(rows, self.by).sortWithinPartitions(*self.by, *order).mapInArrow(join, schema)
        first = [*self.by, LEFT_TIME, RIGHT_TIME, ELAPSED]
        results = [*first, *(name for name in rows.columns if name not in first)]
        return split_rows(joined, F.col(STATE) == WAITING, results, rows.columns)

    def all(self, *events: DataFrame) -> DataFrame:
        """Return all pairs of a left and a right frame."""
        return self.settle(self.take(*events), END_OF_STREAM).results

    def _half(self, events: DataFrame, side: str) -> DataFrame:
        require_columns(events.columns, self.by)
        counted = drop_late(events, self.lateness, self.keep_late)
        keyed = counted if self.outer else counted.dropna(subset=list(self.by))
        no_time = F.lit(None).cast("timestamp")
        return keyed.select(
            *(key_column(events.schema[name]) for name in self.by),
            (event_time() if side == LEFT else no_time).alias(LEFT_TIME),
            (event_time() if side == RIGHT else no_time).alias(RIGHT_TIME),
            *(F.col(name).alias(f"{side}{name}") for name in events.columns if name not in (*self.by, *_NOT_SHOWN)),
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
    """Return an interval column, such as `elapsed` of pairs, as seconds."""
    return F.col(interval).cast("interval second").cast("decimal(18,6)").cast("double")


# -- in tasks ----------------------------------------------------------------------------------------------------------


class MatchedRows(NamedTuple):
    """Row numbers: the two sides of each pair, and the lefts that still wait at the end of their key."""

    left: Rows
    right: Rows
    open: Rows


def match_first(starts: Marks, at: Rows, is_right: Marks, within: int) -> MatchedRows:
    """Pair each right with the oldest waiting left (first in, first out).

    >>> starts, is_right = np.array([True, False, False, False]), np.array([False, False, True, False])
    >>> [rows.tolist() for rows in match_first(starts, np.array([10, 20, 30, 40]), is_right, within=25)]
    [[0], [2], [1, 3]]
    """
    queue: deque[tuple[int, int]] = deque()
    left: list[int] = []
    right: list[int] = []
    open: list[tuple[int, int]] = []
    for row, (start, now, taking) in enumerate(zip(starts.tolist(), at.tolist(), is_right.tolist(), strict=True)):
        if start:
            open += queue
            queue.clear()
        while queue and now - queue[0][1] > within:
            queue.popleft()
        if not taking:
            queue.append((row, now))
        elif queue:
            left.append(queue.popleft()[0])
            right.append(row)
    open += queue
    return MatchedRows(*(np.array(rows, np.int64) for rows in (left, right, [row for row, _ in open])))


def match_last(starts: Marks, at: Rows, is_right: Marks, within: int) -> MatchedRows:
    """Pair each right with the left in the row just before it, if there is one.

    This is the youngest waiting left, if older ones stop waiting when a younger one arrives.
    """
    pairs = np.zeros(len(at), np.bool_)
    pairs[1:] = is_right[1:] & ~is_right[:-1] & ~starts[1:] & (at[1:] - at[:-1] <= within)
    right = np.flatnonzero(pairs)
    ends = np.ones(len(at), np.bool_)
    ends[:-1] = starts[1:]
    return MatchedRows(right - 1, right, np.flatnonzero(ends & ~is_right))


def join_halves(rule: Pairing, limit_us: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pairs, and halves without a pair, made from halves in order; no more of them come before the limit."""
    return in_blocks(batches, partial(_join, rule, limit_us))


def _join(rule: Pairing, limit_us: int, table: pa.Table, ended: bool) -> BlockResult:
    """Match a block; the waiting lefts of its last key are kept for the next one unless the partition has ended."""
    at: Rows = pc.coalesce(table.column(LEFT_TIME), table.column(RIGHT_TIME)).cast(pa.int64()).to_numpy()
    starts = key_starts(table, as_tuple(rule.by))
    matched = _match(rule, limit_us, table, at, starts)
    last_key = len(at) if ended else int(np.flatnonzero(starts)[-1])
    held = matched.open[matched.open >= last_key]
    states = _states(limit_us, limit_us - span_micros(rule.within), at, matched)
    states[held] = _HELD
    shown = (ALONE, WAITING) if rule.outer else (WAITING,)
    batches = _pairs(as_tuple(rule.by), table, at, matched)
    for state in shown:
        rows = np.flatnonzero(states == state)
        batches += _output(table.take(rows), pa.nulls(len(rows), DURATION), state)
    return BlockResult(batches, table.take(held))


def _match(rule: Pairing, limit_us: int, table: pa.Table, at: Rows, starts: Marks) -> MatchedRows:
    """Return the pairs among the rows before the limit, which are the first rows of each key."""
    known = np.flatnonzero(at < limit_us)
    is_right = table.column(RIGHT_TIME).is_valid().to_numpy()
    match = match_first if rule.choose == "first" else match_last
    found = match(starts[known], at[known], is_right[known], span_micros(rule.within))
    return MatchedRows(*(known[rows] for rows in found))


def _states(limit_us: int, oldest_us: int, at: Rows, matched: MatchedRows) -> npt.NDArray[np.int8]:
    """Return the state of each row; a left waits as long as a right that it can be paired with may still come."""
    states = np.where(at < limit_us, ALONE, WAITING).astype(np.int8)
    states[matched.open] = np.where(at[matched.open] >= oldest_us, WAITING, ALONE)
    states[matched.left] = states[matched.right] = PAIRED
    return states


def _pairs(by: tuple[str, ...], table: pa.Table, at: Rows, matched: MatchedRows) -> list[pa.RecordBatch]:
    left, right, _ = matched
    sides = {name: left if name.startswith(LEFT) and name not in by else right for name in table.schema.names}
    pairs = pa.table({name: table.column(name).take(rows) for name, rows in sides.items()})
    return _output(pairs, pa.array(at[right] - at[left], DURATION), PAIRED)


def _output(rows: pa.Table, elapsed: pa.Array, state: int) -> list[pa.RecordBatch]:
    states = pa.array(np.full(len(elapsed), state, np.int8))
    shown: list[pa.RecordBatch] = rows.append_column(ELAPSED, elapsed).append_column(STATE, states).to_batches()
    return shown
