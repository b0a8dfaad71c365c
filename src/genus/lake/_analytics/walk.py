"""Walks: a user's function goes through the events of each key in order of time.

The function has no state. Rows that it cannot settle yet it names as waiting, and sees them again together with later
ones. So the blocks of a batch and the increments of a stream are the same to it, and both give the same results. Memory
holds a block and the waiting rows, not the history of a key.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial, reduce
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
import pyspark.sql.functions as F
from pyspark.sql import DataFrame
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
    require_columns,
    require_distinct,
    set_spans,
    split_rows,
)
from genus.lake._tables.names import EVENT_ID, TYPE
from genus.model import Span

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


class WalkSteps(msgspec.Struct, frozen=True):
    """The parameters of a walk in a Python worker."""

    by: tuple[str, ...]
    function: Function
    gives: pa.Schema
    takes: pa.Schema
    """Columns of the rows: the key, the time and those that the function asks for."""
    limit_us: int

    @property
    def output(self) -> pa.Schema:
        """Columns of the output: results and waiting rows have separate columns, NULL in rows of the other sort."""
        kept = [pa.field(KEPT + field.name, field.type) for field in self.takes if field.name not in self.by]
        key = [self.takes.field(name) for name in self.by]
        return pa.schema([*key, *self.gives, *kept, pa.field(STATE, pa.int8())])


def walk_rows(steps: WalkSteps, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Results and waiting rows, made from rows ordered by key, time and event id."""
    return in_blocks(batches, partial(_walk_block, steps))


def _walk_block(steps: WalkSteps, table: pa.Table, ended: bool) -> BlockResult:
    """Walk through the keys of a block; the last one may go on in the next block, so its waiting rows are kept."""
    starts = np.flatnonzero(key_starts(table, steps.by)).tolist()
    batches, held = list[pa.RecordBatch](), table.slice(0, 0)
    for start, end in pairwise([*starts, table.num_rows]):
        rows = table.slice(start, end - start)
        is_whole = ended or end < table.num_rows
        results, held = _walk(steps, rows, steps.limit_us if is_whole else rows.column(AT_US)[-1].as_py())
        batches += [*_output(steps, results, RESULT), *(_output(steps, held, WAITING) if is_whole else ())]
    return BlockResult(batches, held)


def _walk(steps: WalkSteps, rows: pa.Table, upto_us: int) -> tuple[pa.Table, pa.Table]:
    """Call the function with the rows of one key before an instant; returns results, and the rows that wait."""
    limit_us = min(upto_us, steps.limit_us)
    known = int(np.searchsorted(rows.column(AT_US).to_numpy(), limit_us, side="left"))
    if not known:
        return _with_key(steps, steps.gives.empty_table(), rows), rows
    made = steps.function(rows.slice(0, known), limit_us)
    held = pa.array([*made.waiting, *range(known, rows.num_rows)], pa.int64())
    return _with_key(steps, made.results, rows), rows.take(held)


def _with_key(steps: WalkSteps, results: pa.Table, rows: pa.Table) -> pa.Table:
    """The results with the columns of their key."""
    if results.schema.names != steps.gives.names:
        raise LakeError(
            f"the function returned the columns {', '.join(results.schema.names)}, not {', '.join(steps.gives.names)}"
        )
    first = pa.array(np.zeros(results.num_rows, np.int64))
    key = {name: rows.column(name).take(first) for name in steps.by}
    return pa.table({**key, **{name: results.column(name) for name in steps.gives.names}})


def _output(steps: WalkSteps, rows: pa.Table, state: int) -> Iterator[pa.RecordBatch]:
    if not rows.num_rows:
        return
    prefix = KEPT if state == WAITING else ""
    given = {name if name in steps.by else prefix + name: rows.column(name) for name in rows.column_names}
    given[STATE] = pa.array(np.full(rows.num_rows, state, np.int8))
    empty = {field.name: pa.nulls(rows.num_rows, field.type) for field in steps.output}
    yield from pa.table({**empty, **given}).cast(steps.output).to_batches()


# -- the analysis ------------------------------------------------------------------------------------------------------


class Walk(msgspec.Struct, frozen=True, kw_only=True):
    """Analysis by a function of your own that goes through the events of each key in order of time.

    It takes one frame or several; a column that only some of them have is NULL in the rows of the others. Its results
    have the key and the columns in `gives`. Events with NULL in the key are left out.

    The function is called with an Arrow table of rows of one key in order of time, and with the time, in microseconds
    since 1970, before which no more rows come; it returns a `WalkResult`. Its results must not depend on where the rows
    were cut: waiting rows followed by later ones must give what all of them at once would have given.
    """

    by: tuple[str, ...]
    """Columns of the key."""
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
        msgspec.structs.force_setattr(self, "by", as_tuple(self.by))
        msgspec.structs.force_setattr(self, "columns", as_tuple(self.columns))
        if not self.by:
            raise LakeError("by= names no column; give the columns of the key")
        function_name(self.function)
        require_distinct([*self.by, *self.gives.names], "rename one that the function gives")
        set_spans(self, "lateness", zero=True)

    def __repr__(self) -> str:
        """The same text in every process, because derived tables are identified by it."""
        gives = ", ".join(f"{field.name}: {field.type}" for field in self.gives)
        return (
            f"Walk(by={self.by!r}, function={function_name(self.function)}, gives=({gives}), columns={self.columns!r}, "
            f"lateness={self.lateness!r}, keep_late={self.keep_late})"
        )

    def take(self, *events: DataFrame) -> DataFrame:
        """The rows that the function sees, made from one or several frames."""
        if not events:
            raise LakeError("a walk takes at least one frame of events")
        rows = reduce(partial(DataFrame.unionByName, allowMissingColumns=True), map(self._rows, events))
        require_columns(rows.columns, self.columns)
        return rows.dropna(subset=list(self.by))

    def settle(self, rows: DataFrame, watermark: datetime) -> SettleResult:
        """The results that are final at the watermark, and the rows that the function has to see again."""
        takes = to_arrow_schema(rows.schema, timezone="UTC")
        steps = WalkSteps(self.by, self.function, self.gives, takes, final_before(watermark, self.keep_late))
        ordered = group_by_key(rows, self.by).sortWithinPartitions(*self.by, AT_US, *EVENT_ID)
        made = ordered.mapInArrow(partial(walk_rows, steps), from_arrow_schema(steps.output))
        kept = [name if name in self.by else F.col(KEPT + name).alias(name) for name in rows.columns]
        return split_rows(made, F.col(STATE) == WAITING, [*self.by, *self.gives.names], kept)

    def all(self, *events: DataFrame) -> DataFrame:
        """The results over all events of some frames."""
        return self.settle(self.take(*events), END_OF_STREAM).results

    def _rows(self, events: DataFrame) -> DataFrame:
        """The rows of one frame: the key, the other columns that the function sees, and the time."""
        timed = drop_late(events, self.lateness, self.keep_late).withColumn(TIME, event_time())
        require_columns(events.columns, self.by)
        keys = (key_column(events.schema[name]) for name in self.by)
        seen = dict.fromkeys([TIME, TYPE, *self.columns, *EVENT_ID])
        others = [name for name in seen if name in events.columns and name not in self.by]
        return timed.select(*keys, *others, F.unix_micros(TIME).alias(AT_US))


def function_name(function: Function) -> str:
    """The module and name of a function, with the arguments of a `partial`; LakeError if it has no importable name.

    >>> function_name(partial(function_name, function=3))
    'genus.lake._analytics.walk.function_name(function=3)'
    """
    if isinstance(function, partial):
        bound = [*map(repr, function.args), *(f"{name}={value!r}" for name, value in function.keywords.items())]
        return f"{function_name(function.func)}({', '.join(bound)})"
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "<unnamed>")
    if module is None or "<" in name:
        raise LakeError(f"function={function!r} cannot be imported by another process; give a function of a module")
    return f"{module}.{name}"
