"""A store on Spark: its parts as frames, and frames written as parts."""

import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import msgspec
import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from genus.errors import LakeError
from genus.lake._jobs import job_errors
from genus.lake._tables.batches import joined_versions
from genus.lake._tables.commits import CommitConflict, CommitDraft, Part, StoredFile, count_rows, sum_counts
from genus.lake._tables.file_systems import file_system_for, walk_files
from genus.lake._tables.files import absolute_path, arrow_opens, no_space, spark_path
from genus.lake._tables.ledger_folder import LOG_FOLDER
from genus.lake._tables.names import COMMIT
from genus.lake._tables.part_writer import RESULT_SCHEMA, FileReport, PartitionWriter, WritePlan, write_uploads
from genus.lake._tables.store import Store

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
