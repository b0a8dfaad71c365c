"""Routing as Spark jobs: tasks read events, match them with the kernel of `route_plan`, and return matches only.

Tasks read the files of a lake themselves, row group by row group: at first the columns that matching needs, and the
columns that are asked for only where something matches. If pyarrow has no file system for the lake, Spark reads the
files and hands the rows to tasks.

Where type and attributes decide, the plan is a table of shapes and their subscriptions. To give such matches as rows,
Spark joins the events with that table, which the kernel looks up too: it is one rule, and nothing passes through
Python. The kernel finds the other matches of the same events.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property, partial
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from genus.errors import LakeDamaged, LakeError
from genus.lake._jobs import Sent, parallelism, send
from genus.lake._query.lookup import gather
from genus.lake._query.number_tables import Ints, Matches
from genus.lake._query.reading import quoted
from genus.lake._query.route_plan import ALL_OF_SHAPE, OF_SHAPE, FamilyPlan, RoutePlan
from genus.lake._tables.commits import BATCH, COMMIT, DAY, SHAPE, SUBSCRIBER, SUBSCRIPTION, Part, sum_counts
from genus.lake._tables.files import arrow_opens, open_input
from genus.lake._tables.lake_tables import LakeTables, spark_schema
from genus.lake._tables.part_writer import event_schema
from genus.lake._tables.store import commit_of

MATCHES = "matches"
"""Name of the column with counts."""
BATCH_ROWS = 512 * 1024
"""Events that are matched at once, if a task has so many."""
MAX_OPEN = 200
"""Small files that a task has open at once."""
TASK_BYTES = 64 * 1024 * 1024
"""A task reads about this much, if there is more than all tasks that run at once read."""
MAX_TASKS = 4096
OUTPUT_ROWS = 192 * 1024

_COUNT = pa.schema([(MATCHES, pa.int64())])
_COUNTS = pa.schema([(SUBSCRIPTION, pa.int32()), *_COUNT])


class FileShare(NamedTuple):
    """Some row groups of a stored file: every `of`-th, beginning with number `share`."""

    family: str
    path: str
    commit: str
    day: str
    share: int = 0
    of: int = 1
    above: int = 0
    """Only rows of later commits than this one are read; a file whose rows do not name theirs has only later ones."""


Batch: TypeAlias = Callable[[Sequence[str]], pa.Table]
"""A batch of events in a task: reads some columns, by the present names of attributes, in their order."""
Work: TypeAlias = Callable[[int, FamilyPlan, Iterator[Batch]], Iterator[pa.RecordBatch]]
"""What a task does: with its number, the plan of a family and batches of that family's events."""


class RouteJob:
    """The events of one lake, matched by a plan in Spark tasks. State: the plan that was sent to workers."""

    def __init__(self, lake: LakeTables, plan: RoutePlan) -> None:
        self.lake, self.plan = lake, plan
        self._plain: dict[str, DataFrame | None] = {}

    @cached_property
    def _sent(self) -> Sent[Mapping[str, FamilyPlan]]:
        return send(self.lake.spark, self.plan.plans)

    @cached_property
    def _subscribers(self) -> DataFrame:
        names = pa.array([list(self.plan.subscribers)], pa.list_(pa.string()))
        return self.lake.spark.createDataFrame(pa.table({SUBSCRIBER: names}))

    def matches(self, family: str, parts: Sequence[Part], columns: Sequence[str] | None = None) -> DataFrame:
        """Return the events in some parts, once for each subscription that they match.

        The columns are `subscriber`, `subscription` (its number) and then those of the events, or some of them.
        """
        own = event_schema(self.lake.catalog.vector(family))
        schema = pa.schema([*own, pa.field(COMMIT, pa.string()), pa.field(DAY, pa.date32())])
        names = schema.names if columns is None else list(columns)
        if unknown := [name for name in names if name not in schema.names]:
            raise LakeError(f"{family} has no column {unknown[0]!r}; it has {', '.join(schema.names)}")
        plain, plan = self._plain_matches(family, parts, names), self.plan.family(family)
        if plain is None or (plan is not None and not plan.is_plain):
            output = pa.schema([_COUNTS.field(SUBSCRIPTION), *(schema.field(name) for name in names)])
            found = self._run(family, parts, partial(_match, output, plain is None), output, names)
            plain = found if plain is None else plain.unionAll(found)
        subscriber = F.get(self._subscribers.scalar(), F.col(SUBSCRIPTION))  # Spark drops it if it is not used
        return plain.select(subscriber.alias(SUBSCRIBER), SUBSCRIPTION, *map(quoted, names))

    def _plain_matches(self, family: str, parts: Sequence[Part], names: Sequence[str]) -> DataFrame | None:
        """The matches that type and attributes decide, by a join of Spark; None if the kernel is to find them."""
        plan, counted = self.plan.family(family), [part.shapes for part in parts if part.shapes is not None]
        if plan is None or not parts or len(counted) < len(parts):
            return None
        if family not in self._plain:
            table = plan.plain_table()
            self._plain[family] = None if table is None else self.lake.spark.createDataFrame(table)
        found = self._plain[family]
        if found is None:
            return None
        if plan.is_plain:  # else the kernel reads all events too, and says which shapes are not known
            parts = [part for part, rows in zip(parts, counted, strict=True) if plan.count_by_shape(rows)]
        try:
            events = self.lake.events(family, parts)
        except LakeError:  # tasks may open what the session has no file system for, or say what is missing
            return None
        joined = events.join(F.broadcast(found), F.col(SHAPE) == F.col(OF_SHAPE))
        return joined.select(F.explode(ALL_OF_SHAPE).alias(SUBSCRIPTION), *map(quoted, names))

    def count(self, family: str, parts: Sequence[Part]) -> int:
        """Return the number of matches in some parts; where shapes decide and were counted, without reading events."""
        plan = self.plan.family(family)
        if plan is None:
            return 0
        rows, others = _split_counted(plan, parts)
        total = plan.count_by_shape(rows)
        if others:
            total += sum(row[0] for row in self._run(family, others, _count, _COUNT).collect())
        return total

    def counts(self, family: str, parts: Sequence[Part]) -> DataFrame:
        """The number of matches of each subscription: `subscription`, `matches`; several rows for one are possible."""
        plan = self.plan.family(family)
        rows, others = ({}, parts) if plan is None else _split_counted(plan, parts)
        found = self._run(family, others, _count_each, _COUNTS)
        if plan is None or not rows:
            return found
        counted = pa.Table.from_batches([_counts_batch(plan.counts_by_shape(rows))])
        return found.unionAll(self.lake.spark.createDataFrame(counted))

    def run(
        self,
        tables: Mapping[str, Sequence[Part]],
        work: Work,
        output: StructType | str,
        columns: Mapping[str, Sequence[str]],
        *,
        least: int | None = None,
        above: int = 0,
    ) -> list[DataFrame]:
        """Frames of what tasks return for the events in some parts: one frame, or one per family if Spark reads them.

        `columns` are those of events that the work reads in addition to those of the plan, by family. There are at
        least so many tasks, by default as many as run at once, because starting one takes longer than it takes for few
        events. Only events of commits after `above` are read, see `FileShare`.
        """
        spark = self.lake.spark
        plans = {family: plan for family, parts in tables.items() if parts and (plan := self.plan.family(family))}
        if not plans:
            return [spark.createDataFrame([], output)]
        if arrow_opens(self.lake.path):
            parts = [part for family in plans for part in tables[family]]
            tasks = share_files(self.lake, parts, least or parallelism(spark), above)
            vectors = {family: self.lake.catalog.vector(family) for family in plans}
            stored = {family: {each.name: each.first_name for each in vector} for family, vector in vectors.items()}
            run = partial(_run_shares, tasks, stored, self._sent, work)
            return [spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(run, output)]
        return [
            self.lake.events(family, tables[family], above)
            .select(*map(quoted, dict.fromkeys([*plan.columns_needed(), *columns[family]])))
            .mapInArrow(partial(_run_rows, family, self._sent, work), output)
            for family, plan in plans.items()
        ]

    def _run(
        self, family: str, parts: Sequence[Part], work: Work, output: pa.Schema, columns: Sequence[str] = ()
    ) -> DataFrame:
        (found,) = self.run({family: parts}, work, spark_schema(output), {family: columns})
        return found


def _split_counted(plan: FamilyPlan, parts: Sequence[Part]) -> tuple[Mapping[int, int], list[Part]]:
    """Return the rows of each shape in the parts whose matches they decide, and the other parts."""
    if not plan.is_plain:
        return {}, list(parts)
    others = [part for part in parts if part.shapes is None]
    return sum_counts(part.shapes for part in parts if part.shapes is not None) or {}, others


def share_files(lake: LakeTables, parts: Sequence[Part], least: int, above: int = 0) -> list[list[FileShare]]:
    """The work of each task: neighbouring shares of files, in `least` tasks of about equal size or a multiple of it."""
    owners = [(part, file) for part in parts for file in part.files]
    total = sum(file.bytes for _, file in owners)
    rounds = max(total // (least * TASK_BYTES), 1)
    target = max(total // min(rounds * least, MAX_TASKS), 1)
    tasks: list[list[FileShare]] = []
    room = 0
    for (part, file), path in zip(owners, lake.store.file_paths(parts), strict=True):
        of = max(round(file.bytes / target), 1)
        commit, day = commit_of(part.folder), part.folder.rpartition(f"{DAY}=")[2]
        for share in range(of):
            if room < file.bytes // of // 2 or not tasks:
                tasks.append([])
                room = target
            tasks[-1].append(FileShare(part.table, path, commit, day, share, of, above))
            room -= file.bytes // of
    return tasks


# -- in tasks ----------------------------------------------------------------------------------------------------------


def _run_shares(
    tasks: Sequence[Sequence[FileShare]],
    stored: Mapping[str, Mapping[str, str]],
    sent: Sent[Mapping[str, FamilyPlan]],
    work: Work,
    given: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Do the tasks whose numbers are given, which read files."""
    for number in (number for batch in given for number in batch.column(0).to_pylist()):
        for family, shares in groupby(tasks[number], attrgetter("family")):
            yield from work(number, sent.load()[family], read_shares(shares, stored[family]))


def _run_rows(
    family: str, sent: Sent[Mapping[str, FamilyPlan]], work: Work, given: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    context = TaskContext.get()
    assert context is not None
    joined = gather(given, lambda batch: batch.num_rows, BATCH_ROWS)  # batches of Spark are small
    batches = (pa.Table.from_batches(each).select for each in joined)
    return work(context.partitionId(), sent.load()[family], batches)


class FileBatch:
    """Row groups of a file; columns are read when they are asked for."""

    def __init__(
        self, file: pq.ParquetFile, groups: Sequence[int], share: FileShare, stored: Mapping[str, str]
    ) -> None:
        self._file, self._groups, self._share, self._stored = file, groups, share, stored
        self._there = set(file.schema_arrow.names)
        self._chosen: pa.Array | None = None
        self.rows = sum(file.metadata.row_group(group).num_rows for group in groups)
        if share.above and BATCH in self._there:
            self._chosen = pc.greater(self._read([BATCH]).column(0), share.above).combine_chunks()
            self.rows = self._chosen.true_count

    def read(self, names: Sequence[str]) -> pa.Table:
        """Some columns; those that the file lacks are null."""
        table = self._read([name for each in names if (name := self._stored.get(each, each)) in self._there])
        table = table if self._chosen is None else table.filter(self._chosen)
        columns = [self._column(table, name) for name in names]
        return pa.table(columns, list(names)) if names else table

    def _read(self, stored: Sequence[str]) -> pa.Table:
        with _read_errors(self._share.path):
            return self._file.read_row_groups(self._groups, columns=stored, use_threads=False)

    def _column(self, table: pa.Table, name: str) -> pa.ChunkedArray | pa.Array:
        if name == COMMIT:
            return pa.repeat(self._share.commit, self.rows)
        if name == DAY:
            return pa.repeat(pa.scalar(self._share.day).cast(pa.date32()), self.rows)
        stored = self._stored.get(name, name)
        return table.column(stored) if stored in self._there else pa.nulls(self.rows)


def _read_joined(batches: Sequence[FileBatch], names: Sequence[str]) -> pa.Table:
    return pa.concat_tables([each.read(names) for each in batches], promote_options="default")


@contextmanager
def _read_errors(path: str) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException) as problem:
        if isinstance(problem, OSError) and problem.errno is not None:
            raise LakeError(f"cannot read {path}: {problem.strerror}") from problem
        raise LakeDamaged(
            f"{path} cannot be read: {problem}; see `genus lake check`, restore it from a backup"
        ) from problem


def read_shares(shares: Iterable[FileShare], stored: Mapping[str, str]) -> Iterator[Batch]:
    """The events in shares of files, in batches of about `BATCH_ROWS`: small files together, large ones in pieces."""
    with ExitStack() as opened:
        waiting: list[FileBatch] = []
        for share in shares:
            for batch in _read_share(share, stored, opened):
                waiting.append(batch)
                if sum(each.rows for each in waiting) >= BATCH_ROWS:
                    yield partial(_read_joined, waiting)
                    waiting = []
            if len(waiting) >= MAX_OPEN:
                yield partial(_read_joined, waiting)
                waiting = []
            if not waiting:
                opened.close()
        if waiting:
            yield partial(_read_joined, waiting)


def _read_share(share: FileShare, stored: Mapping[str, str], opened: ExitStack) -> Iterator[FileBatch]:
    """Yield the row groups of a share; its file stays open until `opened` is closed."""
    with _read_errors(share.path):
        source = opened.enter_context(open_input(share.path))
        file = pq.ParquetFile(source, page_checksum_verification=True)
    numbers = range(share.share, file.num_row_groups, share.of)
    for groups in gather(numbers, lambda number: file.metadata.row_group(number).num_rows, BATCH_ROWS):
        yield FileBatch(file, groups, share, stored)


def _match(
    schema: pa.Schema, plain: bool, number: int, plan: FamilyPlan, batches: Iterator[Batch]
) -> Iterator[pa.RecordBatch]:
    needed, names = plan.columns_needed(), schema.names[1:]
    for batch in batches:
        asked: pa.Table | None = None
        for found in plan.iter_matches(batch(needed), plain=plain):
            asked = batch(names) if asked is None else asked
            yield from _output(found, asked, schema)


def _output(found: Matches, asked: pa.Table, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for at in range(0, len(found.rows), OUTPUT_ROWS):
        rows = pa.array(found.rows[at : at + OUTPUT_ROWS])
        columns = [pa.array(found.subscriptions[at : at + OUTPUT_ROWS])]
        if asked.num_columns:
            taken = asked.take(rows).combine_chunks()
            columns += [
                taken.column(name).cast(schema.field(name).type).combine_chunks() for name in asked.schema.names
            ]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _count(number: int, plan: FamilyPlan, batches: Iterator[Batch]) -> Iterator[pa.RecordBatch]:
    needed = plan.columns_needed()
    total = sum(plan.count(batch(needed)) for batch in batches)
    yield pa.RecordBatch.from_arrays([pa.array([total], pa.int64())], schema=_COUNT)


def _count_each(number: int, plan: FamilyPlan, batches: Iterator[Batch]) -> Iterator[pa.RecordBatch]:
    needed = plan.columns_needed()
    yield _counts_batch(sum((plan.counts(batch(needed)) for batch in batches), np.zeros(1, np.int64)))


def _counts_batch(totals: Ints) -> pa.RecordBatch:
    """Return the counts that are not zero."""
    numbers = np.flatnonzero(totals)
    columns = [pa.array(numbers.astype(np.int32)), pa.array(totals[numbers])]
    return pa.RecordBatch.from_arrays(columns, schema=_COUNTS)
