"""The pairing algorithm over sorted Arrow rows, block by block; it runs in Spark's Python workers.

A half is a row of the result with one side empty. Rows are ordered by key and time, and at equal times right halves
come before left ones. So a left is never paired with a right of the same instant, and an event that is both is a right
first and then waits as a left. Between blocks only the waiting lefts of the last key are kept, so memory grows with
what can wait at one time, not with the history of a key.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Rows: TypeAlias = npt.NDArray[np.int64]
Marks: TypeAlias = npt.NDArray[np.bool_]


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
    return MatchedRows(_rows(left), _rows(right), _rows([row for row, _ in open]))


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


def _rows(numbers: list[int]) -> Rows:
    return np.array(numbers, np.int64)


LEFT, RIGHT = "left_", "right_"
LEFT_TIME, RIGHT_TIME, ELAPSED, STATE = "left_time", "right_time", "elapsed", "_state"
PAIRED, ALONE, WAITING, _HELD = range(4)
DURATION = pa.duration("us")

BLOCK_ROWS = 1 << 16
"""New rows of a block; it has at least twice as many as were kept from the last one, so that copying stays cheap."""


class PairRule(msgspec.Struct, frozen=True):
    """The parameters of pairing, and the time before which no more events come."""

    by: tuple[str, ...]
    within_us: int
    first: bool
    outer: bool
    limit_us: int


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


def join_halves(rule: PairRule, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pairs, and halves without a pair, made from halves ordered by key, time, right before left, and event id."""
    return in_blocks(batches, partial(_join, rule))


def _join(rule: PairRule, table: pa.Table, ended: bool) -> BlockResult:
    """Match a block; the waiting lefts of its last key are kept for the next one unless the partition has ended."""
    at, starts = _times(table), key_starts(table, rule.by)
    matched = _match(rule, table, at, starts)
    last_key = len(at) if ended else int(np.flatnonzero(starts)[-1])
    held = matched.open[matched.open >= last_key]
    states = _states(rule, at, matched)
    states[held] = _HELD
    shown = (ALONE, WAITING) if rule.outer else (WAITING,)
    halves = [batch for state in shown for batch in _halves(table, np.flatnonzero(states == state), state)]
    return BlockResult([*_pairs(rule, table, at, matched), *halves], table.take(held))


def _times(table: pa.Table) -> Rows:
    at = pc.coalesce(table.column(LEFT_TIME), table.column(RIGHT_TIME))
    times: Rows = at.cast(pa.int64()).to_numpy()
    return times


def key_starts(table: pa.Table, by: tuple[str, ...]) -> Marks:
    """A mask of the rows whose key differs from that of the row before; NULL differs from everything."""
    starts = np.ones(table.num_rows, np.bool_)
    changes = (_changes(table.column(name)) for name in by)
    starts[1:] = np.logical_or.reduce(list(changes))
    return starts


def _changes(column: pa.ChunkedArray) -> Marks:
    differs = pc.not_equal(column.slice(1), column.slice(0, max(len(column) - 1, 0)))
    changes: Marks = pc.fill_null(differs, True).to_numpy()
    return changes


def _match(rule: PairRule, table: pa.Table, at: Rows, starts: Marks) -> MatchedRows:
    """The pairs among the rows before the limit, which are the first rows of each key."""
    known = np.flatnonzero(at < rule.limit_us)
    is_right = table.column(RIGHT_TIME).is_valid().to_numpy()
    match = match_first if rule.first else match_last
    found = match(starts[known], at[known], is_right[known], rule.within_us)
    return MatchedRows(*(known[rows] for rows in found))


def _states(rule: PairRule, at: Rows, matched: MatchedRows) -> npt.NDArray[np.int8]:
    """The state of each row; a left waits as long as a right that it can be paired with may still come."""
    states = np.where(at < rule.limit_us, ALONE, WAITING).astype(np.int8)
    states[matched.open] = np.where(at[matched.open] >= rule.limit_us - rule.within_us, WAITING, ALONE)
    states[matched.left] = states[matched.right] = PAIRED
    return states


def _pairs(rule: PairRule, table: pa.Table, at: Rows, matched: MatchedRows) -> list[pa.RecordBatch]:
    left, right, _ = matched
    sides = {name: left if name.startswith(LEFT) and name not in rule.by else right for name in table.schema.names}
    pairs = pa.table({name: table.column(name).take(rows) for name, rows in sides.items()})
    return _output(pairs, pa.array(at[right] - at[left], DURATION), PAIRED)


def _halves(table: pa.Table, rows: Rows, state: int) -> list[pa.RecordBatch]:
    return _output(table.take(rows), pa.nulls(len(rows), DURATION), state)


def _output(rows: pa.Table, elapsed: pa.Array, state: int) -> list[pa.RecordBatch]:
    states = pa.array(np.full(len(elapsed), state, np.int8))
    shown: list[pa.RecordBatch] = rows.append_column(ELAPSED, elapsed).append_column(STATE, states).to_batches()
    return shown
