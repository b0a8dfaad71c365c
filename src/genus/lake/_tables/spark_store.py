"""A store on Spark: its parts as frames, and frames written as parts."""

import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from genus.errors import LakeError
from genus.lake._tables.columns import COMMIT
from genus.lake._tables.commits import CommitConflict, CommitDraft, Part, StoredFile, count_rows, sum_counts
from genus.lake._tables.files import (
    FileInfo,
    WrittenContent,
    absolute_path,
    local_path,
    no_space,
    read_content,
    spark_path,
    sync,
    walk_files,
)
from genus.lake._tables.hadoop import file_system_for
from genus.lake._tables.ledger_folder import LOG_FOLDER
from genus.lake._tables.store import Store

COMPRESSION = "zstd"
_TIMESTAMP_TYPE = "spark.sql.parquet.outputTimestampType"
_LISTING_THRESHOLD = "spark.sql.sources.parallelPartitionDiscovery.threshold"
_VERIFY_CHECKSUMS = "parquet.page.verify-checksum.enabled"
_SETTING_LOCK = threading.Lock()
_THREADS = 4


class SparkStore(Store):
    """Tables of Parquet files that change by commits, in a Spark session."""

    def __init__(self, spark: SparkSession, path: str | os.PathLike[str]) -> None:
        super().__init__(path, file_system_for(spark, absolute_path(path)))
        self.spark = spark

    @classmethod
    def exists(cls, spark: SparkSession, path: str | os.PathLike[str]) -> bool:
        """Whether there is a store at a path."""
        whole = absolute_path(path)
        return bool(file_system_for(spark, whole).list_folder(f"{whole}/{LOG_FOLDER}"))

    def frame(self, parts: Iterable[Part], schema: StructType, table: str) -> DataFrame:
        """The rows of some parts of a table; columns that old files lack are NULL.

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
        """The files of some parts, as paths for Spark."""
        return [spark_path(path) for path in self.file_paths(parts)]

    def write(
        self, frame: DataFrame, draft: CommitDraft, table: str, *, days: str | None = None, most: int = 0
    ) -> tuple[Part, ...]:
        """Write a frame into folders of a draft and return them as parts.

        `days` names the column to partition by, `most` limits the rows of a file.
        """
        self.drafts.begin(draft.id)
        folder = f"{table}/{COMMIT}={draft.id}"
        writer = frame.write.mode("overwrite").option("compression", COMPRESSION).option("maxRecordsPerFile", most)
        micros = _setting(self.spark, _TIMESTAMP_TYPE, "TIMESTAMP_MICROS")  # the default, INT96, has no statistics
        with micros, spark_errors(self.path):
            (writer.partitionBy(days) if days else writer).parquet(spark_path(f"{self.path}/{folder}"))
        parts = self._parts(table, folder)
        if not parts:
            self.files.delete(f"{self.path}/{folder}")
        return parts

    def _parts(self, table: str, folder: str) -> tuple[Part, ...]:
        """The files with rows that Spark wrote into a folder, flushed to disk, by the folders they are in."""
        found = [each for each in walk_files(self.files, f"{self.path}/{folder}") if each.name.endswith(".parquet")]
        with ThreadPoolExecutor(_THREADS) as pool:
            stored = list(pool.map(self._stored_file, found))
        inside: dict[str, list[StoredFile]] = {}
        for each, file in zip(found, stored, strict=True):
            if file.rows:
                inside.setdefault(each.path.rpartition("/")[0], []).append(file)
        return tuple(Part(table, path[len(self.path) + 1 :], tuple(files)) for path, files in inside.items())

    def _stored_file(self, found: FileInfo) -> StoredFile:
        if local_path(found.path) is not None:
            sync(found.path)
            content = read_content(found.path)
        else:
            content = self.files.read(found.path) or b""
        rows = pq.read_metadata(pa.BufferReader(content)).num_rows
        return StoredFile(found.name, int(rows), *WrittenContent.of(content))

    def rewrite(
        self, frame: DataFrame, folder: str, parts: Sequence[Part], *, days: str | None = None, most: int = 0
    ) -> tuple[Part, ...]:
        """Replace parts of a table by a frame with the same rows, in one commit; returns the parts that hold them now.

        LakeError if the number of rows differs. If another writer has replaced the parts, they are returned unchanged.
        """
        with self.discarding():
            return self._rewrite(frame, folder, parts, days, most)

    def _rewrite(
        self, frame: DataFrame, folder: str, parts: Sequence[Part], days: str | None, most: int
    ) -> tuple[Part, ...]:
        draft = self.begin("compact")
        written = self.write(frame, draft, folder, days=days, most=most)
        added = tuple(
            msgspec.structs.replace(part, table=parts[0].table, shapes=_shapes_of(part, parts)) for part in written
        )
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


def _shapes_of(part: Part, replaced: Sequence[Part]) -> dict[int, int] | None:
    """The rows of each shape in a part that has all rows of one day of the replaced parts, or all of them."""
    return sum_counts(each.shapes for each in replaced if each.day == part.day)


@contextmanager
def spark_errors(path: str) -> Iterator[None]:
    """Turn Spark's exceptions about a full disk, and about missing jars of an object store, into a LakeError."""
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
    """Change a setting of the session for the duration of a block."""
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
