"""Stored tables on Spark: parts as frames, frames written as parts, and the event tables of a lake.

Compaction rewrites the many small files of a day as few large ones.
"""

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from functools import partial

import msgspec
import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, types
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import StructType

from genus.errors import LakeError
from genus.lake._jobs import folder_name, job_description, job_errors
from genus.lake._tables.commits import (
    BATCH,
    COMMIT,
    DAY,
    DEAD,
    DEAD_LETTERS,
    POSITION,
    SOURCE,
    TYPE,
    CommitConflict,
    CommitDraft,
    Part,
    StoredFile,
    count_files,
    count_rows,
    sum_counts,
    table_folder,
)
from genus.lake._tables.file_systems import file_system_for, walk_files
from genus.lake._tables.files import absolute_path, arrow_opens, no_space, spark_path
from genus.lake._tables.lake_catalog import family_name
from genus.lake._tables.lake_folder import LakeFolder
from genus.lake._tables.ledger_folder import LOG_FOLDER
from genus.lake._tables.part_writer import (
    DEAD_SCHEMA,
    RESULT_SCHEMA,
    FileReport,
    PartitionWriter,
    WritePlan,
    file_schema,
    write_uploads,
)
from genus.lake._tables.state import find_versions, is_cut, joined_versions
from genus.lake._tables.store import Store, commit_of
from genus.model.types import DurationType, Vector
from genus.targets.internal import micros

_LISTING_THRESHOLD = "spark.sql.sources.parallelPartitionDiscovery.threshold"
_VERIFY_CHECKSUMS = "parquet.page.verify-checksum.enabled"
_SPARK_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"
"""Metadata of a Parquet file that tells Spark the types of its columns."""
_SETTING_LOCK = threading.Lock()


class SparkStore(Store):
    """Tables of Parquet files that change by commits, in a Spark session."""

    def __init__(self, spark: SparkSession, path: str | os.PathLike[str]) -> None:
        super().__init__(path, file_system_for(spark, absolute_path(path)))
        self.spark = spark

    @classmethod
    def exists(cls, spark: SparkSession, path: str | os.PathLike[str]) -> bool:
        whole = absolute_path(path)
        return bool(file_system_for(spark, whole).list_folder(f"{whole}/{LOG_FOLDER}"))

    def frame(self, parts: Iterable[Part], schema: StructType, table: str) -> DataFrame:
        """Return the rows of some parts of a table; columns that old files lack are NULL.

        Exactly the files of the parts are read, and the checksums of their pages are compared.
        """
        paths = self.spark_paths(parts)
        if not paths:
            return self.spark.createDataFrame([], schema)
        reader = self.spark.read.schema(schema).option("basePath", spark_path(f"{self.path}/{table}"))
        few = _setting(self.spark, _LISTING_THRESHOLD, "100000")  # else Spark lists the folders in a job
        with few, spark_errors(self.path):
            return reader.option("datetimeRebaseMode", "CORRECTED").option(_VERIFY_CHECKSUMS, "true").parquet(*paths)

    def spark_paths(self, parts: Iterable[Part]) -> list[str]:
        return [spark_path(path) for path in self.file_paths(parts)]

    def write(
        self,
        frame: DataFrame,
        draft: CommitDraft,
        table: str | None = None,
        *,
        days: str | None = None,
        folder: str = "",
    ) -> tuple[Part, ...]:
        """Write a frame into folders of a draft and return them as parts; tasks write the files and report them.

        Without `table`, each column has the rows of the table of its name as structs, NULL in rows of the others.
        `days` names the column to partition by, `folder` is another one than that of the draft.
        """
        if table is None:
            tables = {name: _stored_schema(frame.select(f"{name}.*").schema) for name in frame.columns}
        else:
            tables = {table: _stored_schema(StructType([field for field in frame.schema if field.name != days]))}
        self.drafts.begin(draft.id)
        upload, folder = not arrow_opens(self.path), folder or f"{COMMIT}={draft.id}"
        plan = WritePlan(self.path, folder, tables, days, upload)
        rows = frame.mapInArrow(partial(_write_partition, plan), RESULT_SCHEMA)
        with spark_errors(self.path), job_errors():
            found = list(write_uploads(self.files, rows.toLocalIterator() if upload else rows.collect()))
        reports = sorted((msgspec.json.decode(each, type=FileReport) for each in found), key=lambda each: each.path)
        for name in tables:
            self._remove_strays(f"{name}/{folder}", reports)
        inside: dict[tuple[str, str], list[StoredFile]] = {}
        for each in reports:
            inside.setdefault((each.table, each.folder), []).append(each.file)
        return tuple(Part(*place, tuple(files)) for place, files in inside.items())

    def _remove_strays(self, folder: str, reports: Sequence[FileReport]) -> None:
        """Remove files of tasks that were run again; they may have written the rows in another order."""
        named = {each.path for each in reports}
        for found in walk_files(self.files, f"{self.path}/{folder}"):
            if found.path[found.path.rindex(folder) :] not in named:
                self.files.delete(found.path)

    def rewrite(
        self, frame: DataFrame, folder: str, parts: Sequence[Part], *, days: str | None = None
    ) -> tuple[Part, ...]:
        """Replace parts of a table by a frame with the same rows, in one commit; returns the parts that hold them now.

        LakeError if the number of rows differs. If another writer has replaced the parts, they are returned unchanged.
        """
        with self.discarding():
            draft = self.begin("compact")
            written = self.write(frame, draft, folder, days=days)
            added = tuple(with_contents_of(part, [each for each in parts if each.day == part.day]) for part in written)
            draft = msgspec.structs.replace(draft, added=added, removed=tuple(part.folder for part in parts))
            if count_rows(added) != count_rows(parts):
                counts = f"{count_rows(parts)} rows became {count_rows(added)}"
                raise LakeError(f"{self.path}/{folder}: {counts}; nothing was changed")
            try:
                self.commit(draft)
            except CommitConflict:
                self.discard(draft)
                return tuple(parts)
            return added


def _stored_schema(schema: StructType) -> pa.Schema:
    """Return the columns of files with rows of a frame: times in UTC, durations as integers, because Parquet has none.

    The metadata says Spark's types, so that Spark reads such integers as intervals.
    """
    columns = to_arrow_schema(schema, timezone="UTC")
    stored = [each.with_type(pa.int64()) if pa.types.is_duration(each.type) else each for each in columns]
    return pa.schema(stored, {_SPARK_SCHEMA: schema.json()})


def _write_partition(plan: WritePlan, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a task: write the rows of a partition, and return what `write_uploads` takes."""
    context = TaskContext.get()
    return PartitionWriter(plan, 0 if context is None else context.partitionId()).run(batches)


def with_contents_of(part: Part, replaced: Sequence[Part]) -> Part:
    """Return a part that Spark wrote of the rows of others, with their table, versions and rows of each shape."""
    shapes = sum_counts(each.shapes for each in replaced)
    return msgspec.structs.replace(part, table=replaced[0].table, shapes=shapes, **joined_versions(replaced))


@contextmanager
def spark_errors(path: str) -> Iterator[None]:
    """Turn Spark's exceptions about a full disk and missing jars of an object store into a LakeError."""
    try:
        yield
    except (PySparkException, Py4JError) as problem:
        text = f"{problem}{getattr(problem, '_stackTrace', '')}"
        if "No space left on device" in text:
            raise LakeError(no_space(path)) from problem
        if "S3AFileSystem not found" in text:
            raise LakeError(
                f"{path}: this Spark session cannot open s3a://; start it with the package "
                "org.apache.hadoop:hadoop-aws of its Hadoop version; LakeReader, ingest and Lake.route need none"
            ) from problem
        raise


@contextmanager
def _setting(spark: SparkSession, key: str, value: str) -> Iterator[None]:
    before = spark.conf.get(key)
    if before == value:
        yield
        return
    with _SETTING_LOCK:
        spark.conf.set(key, value)
        try:
            yield
        finally:
            spark.conf.set(key, str(before))


# -- tables of a lake --------------------------------------------------------------------------------------------------


_VERSION = "_version"
ROWS_PER_FILE = 4_000_000
MAX_TASKS = 200
_PATHS: dict[str, types.DataType] = {COMMIT: types.StringType(), DAY: types.DateType()}


def table_schema(vector: Vector) -> types.StructType:
    """Return the Spark schema of a family's files, with the columns that are in their paths."""
    return spark_schema(file_schema(vector), COMMIT, DAY)


def with_present_names(stored: DataFrame, vector: Vector) -> DataFrame:
    """Rows of files as they are shown: with the present names of attributes, and with durations as intervals."""
    named = stored.withColumnsRenamed({each.first_name: each.name for each in vector if each.first_name != each.name})
    second = F.expr("INTERVAL '0.000001' SECOND")
    durations = {name: second * F.col(name) for name in _durations(vector)}
    return named.withColumns(durations) if durations else named  # Spark Connect refuses none


def with_first_names(shown: DataFrame, vector: Vector) -> DataFrame:
    """Rows as they are in files, the opposite of `with_present_names`."""
    durations = {name: micros(F.col(name)) for name in _durations(vector)}
    stored = shown.withColumns(durations) if durations else shown
    return stored.withColumnsRenamed({each.name: each.first_name for each in vector if each.first_name != each.name})


def _durations(vector: Vector) -> list[str]:
    return [each.name for each in vector if isinstance(each.type, DurationType)]


def spark_schema(files: pa.Schema, *paths: str) -> types.StructType:
    """Return the Spark schema of Parquet files; `paths` names the partition columns in their paths."""
    stored = [types.StructField(field.name, from_arrow_type(field.type)) for field in files]
    return types.StructType([*stored, *(types.StructField(name, _PATHS[name]) for name in paths)])


class LakeTables(LakeFolder):
    """Base of `Lake`: what ingest, queries and followers need of a lake."""

    store: SparkStore

    def __init__(self, spark: SparkSession, path: str | os.PathLike[str]) -> None:
        self.spark = spark
        super().__init__(SparkStore(spark, path))

    def table(self, family: type | str) -> DataFrame:
        """Return all events of a family with all columns; any type of the family names it."""
        name = family_name(family, self.catalog)
        return self.events(name, self.state().table(name))

    def events(self, family: str, parts: Sequence[Part], after: int = 0) -> DataFrame:
        """The events in some parts of a family's table; of those that are cut by a version, the ones after it."""
        vector, folder = self.catalog.vector(family), table_folder(family)
        cut = [part for part in parts if is_cut(part, after)]
        found = self.store.frame([part for part in parts if not is_cut(part, after)], table_schema(vector), folder)
        if cut:
            later = self.store.frame(cut, table_schema(vector).add(BATCH, "long"), folder).where(F.col(BATCH) > after)
            found = found.unionByName(later.drop(BATCH)) if len(cut) < len(parts) else later.drop(BATCH)
        return with_present_names(found, vector)

    def _rows_to_rewrite(self, family: str, vector: Vector, parts: Sequence[Part]) -> DataFrame:
        """Return the rows of some parts with the columns of files, and with the versions that they came with."""
        rows = self.store.frame(parts, table_schema(vector).add(BATCH, "long"), table_folder(family))
        versions = {commit_of(part.folder): part.last for part in parts if part.first == part.last}
        if not versions:
            return rows
        columns = {COMMIT: pa.array(versions.keys(), pa.string()), _VERSION: pa.array(versions.values(), pa.int64())}
        known = F.broadcast(self.spark.createDataFrame(pa.table(columns)))
        batch = F.coalesce(F.col(BATCH), F.col(_VERSION))
        return rows.join(known, COMMIT, "left").withColumn(BATCH, batch).drop(_VERSION)

    def dead_letters(self, *, after: int = 0) -> DataFrame:
        """Return the dead letters: `reason`, `path`, `_position`, `raw` and more, without those ingested since.

        Args:
            after: A version of the lake; only dead letters of files that were ingested after it. 0 for all.
        """
        state = self.state()
        frame = self.store.frame(state.table(DEAD_LETTERS), spark_schema(DEAD_SCHEMA, COMMIT), DEAD)
        frame = frame.withColumn(COMMIT, F.substring_index(COMMIT, "-", 1))  # without the id of a deletion
        recent = None if not after else {commit.id for commit in self.store.ledger.commits(after, state.version)}
        latest = [
            (source.number, source.commit)
            for source in state.sources.with_dead()
            if recent is None or source.commit in recent
        ]
        if not latest:
            return frame.limit(0)
        current = self.spark.createDataFrame(latest, f"{SOURCE} bigint, {COMMIT} string")
        return frame.join(F.broadcast(current), [SOURCE, COMMIT], "left_semi")


# -- compaction --------------------------------------------------------------------------------------------------------


class CompactionResult(msgspec.Struct, frozen=True):
    """Result of `Lake.compact`."""

    tables: int
    """Tables that were rewritten."""
    files_before: int
    files_after: int
    rows: int
    seconds: float


def compact_tables(lake: LakeTables, progress: Callable[[int, int], object] | None = None) -> CompactionResult:
    """Compact every table in a commit of its own; tables that another writer changes meanwhile are skipped."""
    began = time.monotonic()
    state = lake.state()
    catalog = lake.catalog  # read after the state, so that it has every column of the parts in the state
    tables = [table for table in state.tables if table != DEAD_LETTERS]
    todo = {table: found for table in tables if (found := crowded_parts(state.table(table)))}
    tables_done = before = after = rows = 0
    for number, (table, crowded) in enumerate(todo.items(), 1):
        parts = find_versions(lake.store.ledger.history(), crowded)
        rows_before = lake._rows_to_rewrite(table, catalog.vector(table), parts).drop(COMMIT)
        with job_description(lake.spark, f"compact {table} of {folder_name(lake.path)}"):
            added = lake.store.rewrite(in_order(rows_before, parts), table_folder(table), parts, days=DAY)
        if added != tuple(parts):
            tables_done, rows = tables_done + 1, rows + count_rows(added)
            before, after = before + count_files(parts), after + count_files(added)
        if progress is not None:
            progress(number, len(todo))
    return CompactionResult(tables_done, before, after, rows, time.monotonic() - began)


def crowded_parts(parts: list[Part]) -> list[Part]:
    """Return the parts of days that need one file and have more, or have over twice as many as they need."""
    days: dict[date | None, list[Part]] = {}
    for part in parts:
        days.setdefault(part.day, []).append(part)
    found: list[Part] = []
    for inside in days.values():
        needed = max(1, -(-count_rows(inside) // ROWS_PER_FILE))
        if count_files(inside) > (1 if needed == 1 else 2 * needed):
            found += inside
    return found


def in_order(rows: DataFrame, parts: Sequence[Part]) -> DataFrame:
    """The rows of some parts as they are written: by day, type and time.

    There is one task per day; where days are large, one task per file to be written.
    """
    days: dict[date | None, int] = {}
    for part in parts:
        days[part.day] = days.get(part.day, 0) + part.rows
    if max(days.values()) <= ROWS_PER_FILE:
        spread = rows.repartition(min(len(days), MAX_TASKS), DAY)
    else:
        spread = rows.repartitionByRange(-(-sum(days.values()) // ROWS_PER_FILE), DAY, TYPE, "time")
    return spread.sortWithinPartitions(DAY, TYPE, "time", POSITION)
