"""A store: a folder with a ledger and tables of Parquet files, as a lake, its inboxes or a derived table."""

import os
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import msgspec
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from genus.errors import LakeError
from genus.lake._tables.columns import COMMIT
from genus.lake._tables.files import (
    FileInfo,
    FileSystem,
    absolute_path,
    file_system_for,
    local_path,
    spark_path,
    walk_files,
)
from genus.lake._tables.ledger import (
    LOG_FOLDER,
    Commit,
    CommitConflict,
    CommitDraft,
    Kind,
    Ledger,
    LedgerState,
    Part,
    count_rows,
)

_GLOB = "*?[]{}\\"
"""Characters that Spark takes for a pattern in a path."""
COMPRESSION = "zstd"
MAX_WRITE_S = 86_400.0
"""A folder in no commit and younger than this may belong to a running writer."""
_TIMESTAMP_TYPE = "spark.sql.parquet.outputTimestampType"
_LISTING_THRESHOLD = "spark.sql.sources.parallelPartitionDiscovery.threshold"
_SETTING_LOCK = threading.Lock()


class StoreProblem(msgspec.Struct, frozen=True):
    """A difference between a ledger and the files it names; found by `Lake.check` and `Inboxes.check`."""

    path: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"


class Store:
    """Tables of Parquet files that change by commits."""

    def __init__(self, spark: SparkSession, path: str | os.PathLike[str]) -> None:
        self.spark = spark
        self.path = absolute_path(path)
        if found := [sign for sign in _GLOB if sign in self.path]:
            raise LakeError(f"{self.path}: Spark takes {found[0]!r} in a path for a pattern; choose another folder")
        self.files: FileSystem = file_system_for(spark, self.path)
        self.ledger = Ledger(self.files, self.path)

    @classmethod
    def exists(cls, spark: SparkSession, path: str | os.PathLike[str]) -> bool:
        """Whether there is a store at a path."""
        whole = absolute_path(path)
        return bool(file_system_for(spark, whole).list_folder(f"{whole}/{LOG_FOLDER}"))

    def state(self) -> LedgerState:
        """The present state of the store."""
        return self.ledger.state()

    def frame(self, parts: Iterable[Part], schema: StructType, table: str) -> DataFrame:
        """The rows of some parts of a table; columns that old files lack are NULL."""
        paths = self.paths(parts)
        if not paths:
            return self.spark.createDataFrame([], schema)
        reader = self.spark.read.schema(schema).option("basePath", spark_path(f"{self.path}/{table}"))
        with _setting(self.spark, _LISTING_THRESHOLD, "100000"):  # else Spark lists the folders in a job
            return reader.option("datetimeRebaseMode", "CORRECTED").parquet(*paths)

    def paths(self, parts: Iterable[Part]) -> list[str]:
        """The folders of some parts, as paths for Spark."""
        return [spark_path(f"{self.path}/{part.folder}") for part in parts]

    def begin(self, kind: Kind) -> CommitDraft:
        """A new draft with a unique id."""
        return CommitDraft(id=uuid.uuid4().hex[:16], kind=kind, at_us=time.time_ns() // 1000)

    def write(
        self, frame: DataFrame, draft: CommitDraft, table: str, *, days: str | None = None, most: int = 0
    ) -> tuple[Part, ...]:
        """Write a frame into folders of a draft and return them as parts.

        `days` names the column to partition by, `most` limits the rows of a file.
        """
        folder = f"{table}/{COMMIT}={draft.id}"
        writer = frame.write.mode("overwrite").option("compression", COMPRESSION).option("maxRecordsPerFile", most)
        with _setting(self.spark, _TIMESTAMP_TYPE, "TIMESTAMP_MICROS"):  # the default, INT96, has no statistics
            (writer.partitionBy(days) if days else writer).parquet(spark_path(f"{self.path}/{folder}"))
        files = [each for each in walk_files(self.files, f"{self.path}/{folder}") if each.name.endswith(".parquet")]
        inside: dict[str, list[FileInfo]] = {}
        for each in files:
            inside.setdefault(each.path.rpartition("/")[0], []).append(each)
        parts = tuple(self._part(table, path, found) for path, found in inside.items())
        if not any(part.rows for part in parts):
            self.files.delete(f"{self.path}/{folder}")
        return tuple(part for part in parts if part.rows)

    def _part(self, table: str, path: str, files: Sequence[FileInfo]) -> Part:
        size = sum(each.size for each in files)
        return Part(table, path[len(self.path) + 1 :], len(files), self._rows(path, files), size)

    def _rows(self, path: str, files: Sequence[FileInfo]) -> int:
        """The number of rows in a folder, read from the footers of its files where they are local."""
        if local_path(path) is None:
            return self.spark.read.parquet(path).count()
        return sum(int(pq.read_metadata(each.path).num_rows) for each in files)

    def rewrite(
        self, frame: DataFrame, folder: str, parts: Sequence[Part], *, days: str | None = None, most: int = 0
    ) -> tuple[Part, ...]:
        """Replace parts of a table by a frame with the same rows, in one commit; returns the parts that hold them now.

        LakeError if the number of rows differs. If another writer has replaced the parts, they are returned unchanged.
        """
        draft = self.begin("compact")
        written = self.write(frame, draft, folder, days=days, most=most)
        added = tuple(msgspec.structs.replace(part, table=parts[0].table) for part in written)
        draft = msgspec.structs.replace(draft, added=added, removed=tuple(part.folder for part in parts))
        if count_rows(added) != count_rows(parts):
            self.discard(draft)
            counts = f"{count_rows(parts)} rows became {count_rows(added)}"
            raise LakeError(f"{self.path}/{folder}: {counts}; nothing was changed")
        try:
            self.commit(draft)
        except CommitConflict:
            self.discard(draft)
            return tuple(parts)
        return added

    def claim(self, notes: Mapping[str, str]) -> None:
        """Create the store with these notes, or check that an existing one has them; LakeError if it has others."""
        if not self.ledger.exists:
            self.commit(msgspec.structs.replace(self.begin("create"), notes=notes))
        known = self.state().notes
        if different := [name for name, text in notes.items() if known.get(name) != text]:
            name = different[0]
            held = known.get(name) or "none"
            raise LakeError(f"{self.path} is of another {name}: {held}, not {notes[name]}; choose another folder")

    def commit(self, draft: CommitDraft) -> Commit:
        """Commit a draft; CommitConflict if another writer's commit contradicts it."""
        return self.ledger.commit(draft)

    def discard(self, draft: CommitDraft) -> None:
        """Remove the files of a draft."""
        for folder in {part.folder.partition(f"{COMMIT}={draft.id}")[0] for part in draft.added}:
            self.files.delete(f"{self.path}/{folder}{COMMIT}={draft.id}")

    def leftovers(self, tables: Sequence[str], older_than_s: float) -> list[str]:
        """Folders removed from the store at least `older_than_s` ago, and old ones that were never committed."""
        limit_us, longest = (time.time() - older_than_s) * 1e6, max(older_than_s, MAX_WRITE_S)
        state = self.state()
        last_used: dict[str, int] = {}
        for commit in self.ledger.commits(0, state.version):
            last_used |= dict.fromkeys((*(part.folder for part in commit.added), *commit.removed), commit.at_us)
        return [
            found.path
            for table in tables
            for found in self._folders_of(table)
            if (inner := found.path[len(self.path) + 1 :]) not in state.parts
            if (last_used[inner] < limit_us if inner in last_used else found.modified < time.time() - longest)
        ]

    def _folders_of(self, table: str) -> Iterator[FileInfo]:
        """The folders with files of a table: those of days, or those of commits where there are no days."""
        for commit in self.files.list_folder(f"{self.path}/{table}"):
            if commit.is_folder and commit_of(commit.path):
                yield from [found for found in self.files.list_folder(commit.path) if found.is_folder] or [commit]

    def clean(self, tables: Sequence[str], older_than_s: float) -> int:
        """Remove the leftover folders of some tables; returns their number."""
        leftovers = self.leftovers(tables, older_than_s)
        self.remove(leftovers)
        return len(leftovers)

    def remove(self, folders: Iterable[str]) -> None:
        """Remove folders, and the commit folders that are empty then."""
        for path in folders:
            self.files.delete(path)
            above = path.rpartition("/")[0]
            if commit_of(above) and not self.files.list_folder(above):
                self.files.delete(above)

    def check(self) -> list[StoreProblem]:
        """Parts whose files differ from what the ledger says."""
        return [problem for part in self.state().parts.values() if (problem := self._problem(part)) is not None]

    def _problem(self, part: Part) -> StoreProblem | None:
        path = f"{self.path}/{part.folder}"
        files = [found for found in self.files.list_folder(path) if found.name.endswith(".parquet")]
        if not files:
            return StoreProblem(path, f"is missing; rows of {part.table} in it: {part.rows}")
        if (len(files), sum(found.size for found in files)) != (part.files, part.bytes):
            return StoreProblem(path, f"holds other files than were committed ({part.files} of {part.bytes} bytes)")
        return None


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


def commit_of(folder: str) -> str:
    """The id of the commit that a folder belongs to; empty if there is none.

    >>> commit_of("tables/Loop/_commit=4f21/_day=2026-05-01")
    '4f21'
    """
    return folder.partition(f"{COMMIT}=")[2].partition("/")[0]
