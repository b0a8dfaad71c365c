"""A store: a folder with a ledger, tables of Parquet files, and nothing else that counts."""

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
from genus.lake._tables.files import Files, Found, everything_in, files_of, local_path, spark_path, whole_path
from genus.lake._tables.ledger import LOG, Commit, Draft, Kind, Ledger, Overtaken, Part, State, rows_in

_GLOB = "*?[]{}\\"
"""What Spark would take for a pattern in a path."""
COMPRESSION = "zstd"
LONGEST_WRITE_S = 86_400.0
"""A folder that is in no commit may belong to a writer that is still at work, for so long."""
_TIMES = "spark.sql.parquet.outputTimestampType"
_LISTING = "spark.sql.sources.parallelPartitionDiscovery.threshold"
_SETTING = threading.Lock()


class Problem(msgspec.Struct, frozen=True):
    """Something a check found."""

    path: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"


class Store:
    """Tables of Parquet files that change by commits."""

    def __init__(self, spark: SparkSession, path: str | os.PathLike[str]) -> None:
        self.spark = spark
        self.path = whole_path(path)
        if found := [sign for sign in _GLOB if sign in self.path]:
            raise LakeError(f"{self.path}: Spark takes {found[0]!r} in a path for a pattern; choose another folder")
        self.files: Files = files_of(spark, self.path)
        self.ledger = Ledger(self.files, self.path)

    def state(self) -> State:
        """What the store holds by now."""
        return self.ledger.state()

    def frame(self, parts: Iterable[Part], schema: StructType, table: str) -> DataFrame:
        """The rows of some parts of a table, read by Spark's own Parquet reader; old files lack the newest columns."""
        paths = self.paths(parts)
        if not paths:
            return self.spark.createDataFrame([], schema)
        reader = self.spark.read.schema(schema).option("basePath", spark_path(f"{self.path}/{table}"))
        with _set(self.spark, _LISTING, "100000"):  # else Spark lists many days by a job with a task for each
            return reader.option("datetimeRebaseMode", "CORRECTED").parquet(*paths)

    def paths(self, parts: Iterable[Part]) -> list[str]:
        """The folders of some parts, as Spark is given them."""
        return [spark_path(f"{self.path}/{part.folder}") for part in parts]

    def begin(self, kind: Kind) -> Draft:
        """A draft with a name that nobody else has."""
        return Draft(id=uuid.uuid4().hex[:16], kind=kind, at_us=time.time_ns() // 1000)

    def write(
        self, frame: DataFrame, draft: Draft, table: str, *, days: str | None = None, most: int = 0
    ) -> tuple[Part, ...]:
        """Write a frame into the folders of a draft; with `days`, the column that tells them, one folder a day."""
        folder = f"{table}/{COMMIT}={draft.id}"
        writer = frame.write.mode("overwrite").option("compression", COMPRESSION).option("maxRecordsPerFile", most)
        with _set(self.spark, _TIMES, "TIMESTAMP_MICROS"):  # else Spark writes a form that files are not searched by
            (writer.partitionBy(days) if days else writer).parquet(spark_path(f"{self.path}/{folder}"))
        files = [each for each in everything_in(self.files, f"{self.path}/{folder}") if each.name.endswith(".parquet")]
        inside: dict[str, list[Found]] = {}
        for each in files:
            inside.setdefault(each.path.rpartition("/")[0], []).append(each)
        parts = tuple(self._part(table, path, found) for path, found in inside.items())
        if not any(part.rows for part in parts):
            self.files.delete(f"{self.path}/{folder}")
        return tuple(part for part in parts if part.rows)

    def _part(self, table: str, path: str, files: Sequence[Found]) -> Part:
        size = sum(each.size for each in files)
        return Part(table, path[len(self.path) + 1 :], len(files), self._rows(path, files), size)

    def _rows(self, path: str, files: Sequence[Found]) -> int:
        """The rows of a folder, by the files' own footers."""
        if local_path(path) is None:
            return self.spark.read.parquet(path).count()
        return sum(int(pq.read_metadata(each.path).num_rows) for each in files)

    def rewrite(
        self, frame: DataFrame, folder: str, parts: Sequence[Part], *, days: str | None = None, most: int = 0
    ) -> tuple[Part, ...]:
        """Put the rows of a table's parts, given as a frame, in their place; gives the parts that hold them now.

        LakeError, and nothing changed, if the rows are not as many; nothing happens if another writer was there first.
        """
        draft = self.begin("compact")
        written = self.write(frame, draft, folder, days=days, most=most)
        added = tuple(msgspec.structs.replace(part, table=parts[0].table) for part in written)
        draft = msgspec.structs.replace(draft, added=added, removed=tuple(part.folder for part in parts))
        if rows_in(added) != rows_in(parts):
            self.discard(draft)
            raise LakeError(f"{self.path}/{folder}: {rows_in(parts)} rows became {rows_in(added)}; nothing was changed")
        try:
            self.commit(draft)
        except Overtaken:
            self.discard(draft)
            return tuple(parts)
        return added

    def claim(self, notes: Mapping[str, str]) -> None:
        """Begin a store that is about something, or refuse one that is about something else; LakeError says what."""
        if not self.ledger.exists:
            self.commit(msgspec.structs.replace(self.begin("create"), notes=notes))
        known = self.state().notes
        if different := [name for name, text in notes.items() if known.get(name) != text]:
            name = different[0]
            held = known.get(name) or "nothing of the kind"
            raise LakeError(f"{self.path} is of another {name}: {held}, not {notes[name]}; choose a folder of its own")

    def commit(self, draft: Draft) -> Commit:
        """Make a draft count."""
        return self.ledger.commit(draft)

    def discard(self, draft: Draft) -> None:
        """Remove what a draft wrote."""
        for folder in {part.folder.partition(f"{COMMIT}={draft.id}")[0] for part in draft.added}:
            self.files.delete(f"{self.path}/{folder}{COMMIT}={draft.id}")

    def leftovers(self, tables: Sequence[str], older_than_s: float) -> list[str]:
        """Folders that stopped counting so long ago, and those that never counted where no writer can be at work."""
        limit_us, longest = (time.time() - older_than_s) * 1e6, max(older_than_s, LONGEST_WRITE_S)
        state = self.state()
        last_used: dict[str, int] = {}
        for commit in self.ledger.commits(0, state.version):
            last_used |= dict.fromkeys((*(part.folder for part in commit.added), *commit.removed), commit.at_us)
        return [
            found.path
            for table in tables
            for found in self._folders_of(table)
            if (inner := found.path[len(self.path) + 1 :]) not in state.parts
            if (last_used[inner] < limit_us if inner in last_used else found.changed < time.time() - longest)
        ]

    def _folders_of(self, table: str) -> Iterator[Found]:
        """The folders that hold files of a table: those of days, or those of commits where there are no days."""
        for commit in self.files.listing(f"{self.path}/{table}"):
            if commit.is_folder and commit_of(commit.path):
                yield from [found for found in self.files.listing(commit.path) if found.is_folder] or [commit]

    def clean(self, tables: Sequence[str], older_than_s: float) -> int:
        """Remove what is left over; returns how many folders that were."""
        leftovers = self.leftovers(tables, older_than_s)
        self.sweep(leftovers)
        return len(leftovers)

    def sweep(self, folders: Iterable[str]) -> None:
        """Remove folders, and those of commits that have nothing left in them."""
        for path in folders:
            self.files.delete(path)
            above = path.rpartition("/")[0]
            if commit_of(above) and not self.files.listing(above):
                self.files.delete(above)

    def check(self) -> list[Problem]:
        """Parts whose files are not what the ledger says."""
        return [problem for part in self.state().parts.values() if (problem := self._problem(part)) is not None]

    def _problem(self, part: Part) -> Problem | None:
        path = f"{self.path}/{part.folder}"
        files = [found for found in self.files.listing(path) if found.name.endswith(".parquet")]
        if not files:
            return Problem(path, f"is missing; rows of {part.table} in it: {part.rows}")
        if (len(files), sum(found.size for found in files)) != (part.files, part.bytes):
            return Problem(path, f"holds other files than were committed ({part.files} of {part.bytes} bytes)")
        return None


@contextmanager
def _set(spark: SparkSession, key: str, value: str) -> Iterator[None]:
    """Change a setting of the session for a while; it is put back. One that is so already is left alone."""
    before = spark.conf.get(key)
    if before == value:
        yield
        return
    with _SETTING:
        spark.conf.set(key, value)
        try:
            yield
        finally:
            spark.conf.set(key, str(before))


def is_store(spark: SparkSession, path: str | os.PathLike[str]) -> bool:
    """Whether a folder is a store."""
    whole = whole_path(path)
    return bool(files_of(spark, whole).listing(f"{whole}/{LOG}"))


def commit_of(folder: str) -> str:
    """The commit that a folder belongs to; empty if to none.

    >>> commit_of("tables/Loop/_commit=4f21/_day=2026-05-01")
    '4f21'
    """
    return folder.partition(f"{COMMIT}=")[2].partition("/")[0]
