"""Sorted rows go through a function key by key: the part of a walk that runs in Python, a block of Arrow at a time.

A block is what an increment of a stream is: the function is told up to when all is known, gives what is final, and sees
the rest again with what comes next. So no more than a block and the rows that wait is in memory, whatever a key's past.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa

from genus.errors import LakeError
from genus.lake.analytics.halves import key_starts

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
