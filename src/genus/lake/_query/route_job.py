"""Routing as Spark jobs: tasks read events, match them with the kernel of `route_plan`, and return matches only.

Tasks read the files of a lake themselves, row group by row group: at first the columns that matching needs, and the
columns that are asked for only where something matches. If pyarrow has no file system for the lake, Spark reads the
files and hands the rows to tasks.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

from genus.errors import LakeError
from genus.lake._query.int_table import Ints
from genus.lake._query.lookup import Matches
from genus.lake._query.route_plan import FamilyPlan, RoutePlan
from genus.lake._query.sent_plan import SentPlan, send_plan
from genus.lake._tables.columns import COMMIT, DAY, SUBSCRIBER, SUBSCRIPTION, event_schema
from genus.lake._tables.commits import Part
from genus.lake._tables.files import arrow_opens, open_input
from genus.lake._tables.lake_tables import LakeTables
from genus.lake._tables.spark_columns import spark_schema
from genus.lake._tables.store import commit_of
from genus.lake._worker_package import worker_errors
from genus.model import Vector

MATCHES = "matches"
"""Name of the column with counts."""
BATCH_ROWS = 512 * 1024
"""Events that are matched at once, if a task has so many."""
MAX_OPEN = 200
"""Small files that a task has open at once."""
TASK_BYTES = 16 * 1024 * 1024
"""A task reads at least this much, so that small files do not become a task each."""
MIN_TASKS, MAX_TASKS = 8, 4096
OUTPUT_ROWS = 192 * 1024

_COUNT = StructType([StructField(MATCHES, LongType())])
_COUNTS = StructType([StructField(SUBSCRIPTION, IntegerType()), StructField(MATCHES, LongType())])
_COUNTS_ARROW = pa.schema([(SUBSCRIPTION, pa.int32()), (MATCHES, pa.int64())])


class FileShare(NamedTuple):
    """Some row groups of a stored file: every `of`-th, beginning with number `share`."""

    path: str
    commit: str
    day: str
    share: int
    of: int


class Batch(Protocol):
    """A batch of events in a task."""

    def read(self, names: Sequence[str]) -> pa.Table:
        """Some columns, by the present names of attributes, in the order of names."""


Batches: TypeAlias = Callable[[Iterable[pa.RecordBatch]], Iterator[Batch]]
"""What a task does with its input: find the events."""


class RouteJob:
    """The events of one lake, matched by a plan in Spark tasks. State: the plans that were sent to workers."""

    def __init__(self, lake: LakeTables, plan: RoutePlan) -> None:
        self._lake, self._plan = lake, plan
        self._sent: dict[str, SentPlan] = {}
        self._subscribers: DataFrame | None = None

    def matches(self, family: str, parts: Sequence[Part], columns: Sequence[str] | None = None) -> DataFrame:
        """The events in some parts, once for each subscription that they match.

        The columns are `subscriber`, `subscription` (its number) and then those of the events, or some of them.
        """
        schema = self._schema(family)
        names = schema.names if columns is None else list(columns)
        if unknown := [name for name in names if name not in schema.names]:
            raise LakeError(f"{family} has no column {unknown[0]!r}; it has {', '.join(schema.names)}")
        arrow = self._arrow_schema(family, names)
        output = StructType([StructField(SUBSCRIPTION, IntegerType()), *(schema[name] for name in names)])
        found = self._run(family, parts, partial(_match, names, arrow), output, names)
        return found.select(self._subscriber().alias(SUBSCRIBER), SUBSCRIPTION, *map(_quoted, names))

    def count(self, family: str, parts: Sequence[Part]) -> int:
        """The number of matches in some parts; where shapes decide and were counted, without reading events."""
        plan = self._plan.family(family)
        if plan is None:
            return 0
        counted, others = _split_counted(plan, parts)
        total = sum(plan.count_by_shape(rows) for rows in counted)
        if others:
            with worker_errors():
                total += sum(row[0] for row in self._run(family, others, _count, _COUNT, ()).collect())
        return total

    def counts(self, family: str, parts: Sequence[Part]) -> DataFrame:
        """The number of matches of each subscription: `subscription`, `matches`; several rows for one are possible."""
        plan = self._plan.family(family)
        counted, others = ([], parts) if plan is None else _split_counted(plan, parts)
        found = self._run(family, others, _count_each, _COUNTS, ())
        if plan is None or not counted:
            return found
        totals = sum((plan.counts_by_shape(rows) for rows in counted), np.zeros(len(self._plan), np.int64))
        return found.unionAll(self._lake.spark.createDataFrame(pa.Table.from_batches([_counts_batch(totals)])))

    def _run(
        self,
        family: str,
        parts: Sequence[Part],
        work: "Work",
        output: StructType,
        columns: Sequence[str],
    ) -> DataFrame:
        """A frame of what tasks return for the events in some parts."""
        spark, plan = self._lake.spark, self._plan.family(family)
        if plan is None or not parts:
            return spark.createDataFrame([], output)
        if family not in self._sent:
            self._sent[family] = send_plan(spark, plan)
        if arrow_opens(self._lake.path):
            tasks = share_files(self._lake, parts)
            given = spark.range(0, len(tasks), 1, len(tasks))
            batches: Batches = partial(_read_shares, tasks, self._stored_names(family))
        else:
            names = dict.fromkeys([*plan.columns_needed(), *columns])
            given = self._lake.events(family, parts).select(*map(_quoted, names))
            batches = _gather_rows
        return given.mapInArrow(partial(_run_task, self._sent[family], batches, work), output)

    def _vector(self, family: str) -> Vector:
        return self._lake.catalog.vector(family)

    def _stored_names(self, family: str) -> dict[str, str]:
        return {each.name: each.first_name for each in self._vector(family)}

    def _schema(self, family: str) -> StructType:
        """The Spark schema of a family's events."""
        return spark_schema(event_schema(self._vector(family)), COMMIT, DAY)

    def _arrow_schema(self, family: str, names: Sequence[str]) -> pa.Schema:
        own = event_schema(self._vector(family))
        types = {COMMIT: pa.string(), DAY: pa.date32()}
        fields = [pa.field(name, types.get(name) or own.field(name).type) for name in names]
        return pa.schema([pa.field(SUBSCRIPTION, pa.int32()), *fields])

    def _subscriber(self) -> Any:
        """The subscriber of a match, from one list; Spark drops it if the column is not used."""
        if self._subscribers is None:
            names = pa.array([list(self._plan.subscribers)], pa.list_(pa.string()))
            self._subscribers = self._lake.spark.createDataFrame(pa.table({SUBSCRIBER: names}))
        return F.get(self._subscribers.scalar(), F.col(SUBSCRIPTION))


def _quoted(name: str) -> str:
    return f"`{name}`"


def _split_counted(plan: FamilyPlan, parts: Sequence[Part]) -> tuple[list[Mapping[int, int]], list[Part]]:
    """The rows per shape of parts whose matches they decide, and the other parts."""
    if not plan.is_plain:
        return [], list(parts)
    return [part.shapes for part in parts if part.shapes is not None], [part for part in parts if part.shapes is None]


def share_files(lake: LakeTables, parts: Sequence[Part]) -> list[list[FileShare]]:
    """The work of each task: shares of files, in tasks of about equal size."""
    owners = [(part, file) for part in parts for file in part.files]
    files = [
        (file.bytes, path, commit_of(part.folder), part.folder.rpartition(f"{DAY}=")[2])
        for (part, file), path in zip(owners, lake.store.file_paths(parts), strict=True)
    ]
    total = sum(size for size, *_ in files)
    wanted = min(max(MIN_TASKS, total // TASK_BYTES), MAX_TASKS)
    target = max(total // wanted, 1)
    shares = [
        (size // of, FileShare(path, commit, day, share, of))
        for size, path, commit, day in files
        for of in [max(round(size / target), 1)]
        for share in range(of)
    ]
    return _pack(shares, target)


def _pack(shares: Iterable[tuple[int, FileShare]], target: int) -> list[list[FileShare]]:
    """Tasks of neighbouring shares, each of about the target size."""
    tasks: list[list[FileShare]] = []
    room = 0
    for size, share in shares:
        if room < size // 2 or not tasks:
            tasks.append([])
            room = target
        tasks[-1].append(share)
        room -= size
    return tasks


# -- in tasks ----------------------------------------------------------------------------------------------------------


Work: TypeAlias = Callable[[FamilyPlan, Iterator[Batch]], Iterator[pa.RecordBatch]]


def _run_task(
    sent: SentPlan, batches: Batches, work: Work, given: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    return work(sent.load(), batches(given))


class FileBatch:
    """Row groups of a file; columns are read when they are asked for."""

    def __init__(self, file: pq.ParquetFile, groups: Sequence[int], share: FileShare, stored: dict[str, str]) -> None:
        self._file, self._groups, self._share, self._stored = file, groups, share, stored
        self.rows = sum(file.metadata.row_group(group).num_rows for group in groups)

    def read(self, names: Sequence[str]) -> pa.Table:
        """Some columns; those that the file lacks are null."""
        there = set(self._file.schema_arrow.names)
        wanted = [name for each in names if (name := self._stored.get(each, each)) in there]
        with _read_errors(self._share.path):
            table = self._file.read_row_groups(self._groups, columns=wanted, use_threads=False)
        columns = [self._column(table, name) for name in names]
        return pa.table(columns, list(names)) if names else table

    def _column(self, table: pa.Table, name: str) -> pa.ChunkedArray | pa.Array:
        if name == COMMIT:
            return pa.repeat(self._share.commit, self.rows)
        if name == DAY:
            return pa.repeat(pa.scalar(self._share.day).cast(pa.date32()), self.rows)
        stored = self._stored.get(name, name)
        return table.column(stored) if stored in table.schema.names else pa.nulls(self.rows)


class JoinedBatch:
    """Row groups of several small files, which are matched at once."""

    def __init__(self, batches: Sequence[FileBatch]) -> None:
        self._batches = batches

    def read(self, names: Sequence[str]) -> pa.Table:
        """Some columns; those that a file lacks are null."""
        return pa.concat_tables([each.read(names) for each in self._batches], promote_options="default")


@contextmanager
def _read_errors(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        raise LakeError(f"cannot read {path}: {problem.strerror or problem}") from problem


class RowBatch:
    """Rows that Spark has read."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def read(self, names: Sequence[str]) -> pa.Table:
        """Some columns."""
        return self._table.select(list(names))


def _read_shares(
    tasks: Sequence[Sequence[FileShare]], stored: dict[str, str], given: Iterable[pa.RecordBatch]
) -> Iterator[Batch]:
    """The events in the files of the tasks whose numbers are given."""
    for batch in given:
        for number in batch.column(0).to_pylist():
            yield from _read_task(tasks[number], stored)


def _read_task(shares: Sequence[FileShare], stored: dict[str, str]) -> Iterator[Batch]:
    """The events of a task in batches of about `BATCH_ROWS`: small files together, large ones in pieces."""
    with ExitStack() as opened:
        waiting: list[FileBatch] = []
        for share in shares:
            for batch in _read_share(share, stored, opened):
                waiting.append(batch)
                if sum(each.rows for each in waiting) >= BATCH_ROWS:
                    yield JoinedBatch(waiting)
                    waiting = []
            if len(waiting) >= MAX_OPEN or not waiting:
                yield from [JoinedBatch(waiting)] if waiting else []
                waiting = []
                opened.close()
        if waiting:
            yield JoinedBatch(waiting)


def _read_share(share: FileShare, stored: dict[str, str], opened: ExitStack) -> Iterator[FileBatch]:
    """The row groups of a share; its file stays open until `opened` is closed."""
    with _read_errors(share.path):
        source = opened.enter_context(open_input(share.path))
        file = pq.ParquetFile(source, page_checksum_verification=True)
    for groups in _group_rows(file, range(share.share, file.num_row_groups, share.of)):
        yield FileBatch(file, groups, share, stored)


def _group_rows(file: pq.ParquetFile, numbers: Iterable[int]) -> Iterator[list[int]]:
    """Row groups that are matched at once."""
    waiting: list[int] = []
    rows = 0
    for number in numbers:
        waiting.append(number)
        rows += file.metadata.row_group(number).num_rows
        if rows >= BATCH_ROWS:
            yield waiting
            waiting, rows = [], 0
    if waiting:
        yield waiting


def _gather_rows(given: Iterable[pa.RecordBatch]) -> Iterator[RowBatch]:
    """Record batches of Spark, which are small, in larger batches."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in given:
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= BATCH_ROWS:
            yield RowBatch(pa.Table.from_batches(waiting))
            waiting, rows = [], 0
    if waiting:
        yield RowBatch(pa.Table.from_batches(waiting))


def _match(
    names: Sequence[str], schema: pa.Schema, plan: FamilyPlan, batches: Iterator[Batch]
) -> Iterator[pa.RecordBatch]:
    needed = plan.columns_needed()
    for batch in batches:
        asked: pa.Table | None = None
        for found in plan.iter_matches(batch.read(needed)):
            asked = batch.read(names) if asked is None else asked
            yield from _output(found, asked, schema)


def _output(found: Matches, asked: pa.Table, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Matches with the columns that were asked for."""
    for at in range(0, len(found.rows), OUTPUT_ROWS):
        rows = pa.array(found.rows[at : at + OUTPUT_ROWS])
        columns = [pa.array(found.subscriptions[at : at + OUTPUT_ROWS])]
        if asked.num_columns:
            taken = asked.take(rows).combine_chunks()
            columns += [_as_type(taken.column(name), schema.field(name).type) for name in asked.schema.names]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _as_type(column: pa.ChunkedArray, type_: pa.DataType) -> pa.Array:
    whole = column.combine_chunks()
    return whole if whole.type == type_ else whole.cast(type_)


def _count(plan: FamilyPlan, batches: Iterator[Batch]) -> Iterator[pa.RecordBatch]:
    needed = plan.columns_needed()
    total = sum(plan.count(batch.read(needed)) for batch in batches)
    yield pa.RecordBatch.from_arrays([pa.array([total], pa.int64())], [MATCHES])


def _count_each(plan: FamilyPlan, batches: Iterator[Batch]) -> Iterator[pa.RecordBatch]:
    needed = plan.columns_needed()
    yield _counts_batch(sum((plan.counts(batch.read(needed)) for batch in batches), np.zeros(1, np.int64)))


def _counts_batch(totals: Ints) -> pa.RecordBatch:
    """The counts that are not zero."""
    numbers = np.flatnonzero(totals)
    columns = [pa.array(numbers.astype(np.int32)), pa.array(totals[numbers])]
    return pa.RecordBatch.from_arrays(columns, schema=_COUNTS_ARROW)
