"""Removing events from stored tables: deletions by a subscription and expiry by age, each in one commit.

Parts are told apart by what the ledger knows of them, their day and the rows of each shape: those without such events
are not opened, and those with nothing else are dropped. The rows to remove in the others are counted in one Spark job.
Only parts that have some are rewritten, each into a part of its own, which the commit names, so that followers that
have not processed the old one read the new one instead.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial, reduce
from operator import or_
from typing import Literal, NamedTuple, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from genus.catalog import Catalog
from genus.errors import LakeDamaged, LakeError
from genus.filters import Subscription
from genus.lake._ingest.writer import count_shapes, write_parquet
from genus.lake._query.reading import parts_within_days
from genus.lake._tables.columns import COMMIT, DAY, POSITION, RECORDED, SHAPE, SOURCE, table_folder
from genus.lake._tables.commits import (
    DELETION,
    CommitConflict,
    CommitDraft,
    Part,
    StoredFile,
    checksum,
    sum_counts,
    unprocessed_parts,
)
from genus.lake._tables.compaction import ROWS_PER_FILE
from genus.lake._tables.files import arrow_opens, local_path, read_content, write_file
from genus.lake._tables.lake_tables import LakeTables
from genus.lake._tables.shapes import Shape
from genus.lake._tables.spark_columns import table_schema, with_first_names, with_present_names
from genus.lake._tables.spark_store import SparkStore
from genus.lake._tables.state import LedgerState
from genus.model import Vector
from genus.model._types import micros_of_time
from genus.model._vector import hidden_names
from genus.targets import spark as target

SMALL_PART = 1_000_000
"""Parts with at most this many rows are rewritten by the driver, larger ones in a Spark job each."""
MAX_IDS = 2_000_000
"""The most ids of events that are fetched at once."""
_THREADS = 4

ProgressHandler: TypeAlias = Callable[[int, int], object]
Share: TypeAlias = Literal["none", "some", "all"]
"""How much of a part is removed, as far as the ledger tells."""


class RemovalResult(msgspec.Struct, frozen=True):
    """Result of `Lake.delete`, `Lake.expire` and of the same methods of `Inboxes`."""

    rows: int
    """Events, or delivered matches, that were removed; with `dry_run`, that would be."""
    dropped: int
    """Folders that were removed as a whole."""
    rewritten: int
    """Folders that were replaced by one with the rows that are left."""
    folders: int
    """All folders that there were."""
    version: int
    """Version afterwards."""
    seconds: float


class RemovalRule(NamedTuple):
    """Events to remove: those of some types that match a subscription and happened before a time."""

    subscription: Subscription
    types: Mapping[str, Sequence[str]]
    """The names of the types, by family."""
    before: datetime | None = None

    def condition(self, family: str, vector: Vector) -> Column:
        """A column that is true for rows of a family's table that are removed, and false or NULL for others."""
        hidden = hidden_names(vector, self.subscription.vector)
        matches = target.compile(self.subscription).condition(self.types[family], hidden)
        if self.before is None:
            return matches
        before = F.timestamp_micros(F.lit(micros_of_time(self.before)))
        return matches & (F.coalesce(F.col("time"), F.col(RECORDED)) < before)

    def share(self, part: Part, shapes: Mapping[int, Shape], vector: Vector) -> Share:
        """How much of a part is removed, by its day and its shapes."""
        if part.table not in self.types:
            return "none"
        shares = {self._share_of_day(part), self._share_of_shapes(part, shapes, vector)}
        return "none" if "none" in shares else "some" if "some" in shares else "all"

    def _share_of_day(self, part: Part) -> Share:
        if (day := part.day) is None:
            return "some"
        if not parts_within_days([part], self.subscription):
            return "none"
        if self.before is None:
            return "all"
        begins = datetime(day.year, day.month, day.day, tzinfo=UTC)
        if begins >= self.before:
            return "none"
        return "all" if self.before - begins >= timedelta(days=1) else "some"

    def _share_of_shapes(self, part: Part, shapes: Mapping[int, Shape], vector: Vector) -> Share:
        if part.shapes is None or any(number not in shapes for number in part.shapes):
            return "some"
        found = {self._has_matches(shapes[number], vector) for number in part.shapes}
        if True not in found:
            return "none"
        return "all" if found == {True} and self.subscription.where is None else "some"

    def _has_matches(self, shape: Shape, vector: Vector) -> bool:
        """Whether type and attributes of a shape match."""
        if shape.type not in self.types[shape.family]:
            return False
        carried = {each.name for bit, each in enumerate(vector) if shape.bits >> bit & 1}
        carried -= hidden_names(vector, self.subscription.vector)
        return carried.issuperset(self.subscription.has) and carried.isdisjoint(self.subscription.lacks)


class EventTables(NamedTuple):
    """The tables of a lake, or of its inboxes."""

    store: SparkStore
    folder: Callable[[str], str]
    """The folder of a family's table."""
    by_day: bool
    """Whether the parts of tables are folders of days."""
    catalog: Callable[[], Catalog]
    frame: Callable[[str, Vector, Sequence[Part]], DataFrame]
    """The rows of some parts of a family, with the column names of files."""
    older: Callable[[LedgerState], Sequence[Part]] = lambda state: ()
    """Parts that are not in a version any more, but that a follower may still have to read."""


def tables_of(lake: LakeTables) -> EventTables:
    """The event tables of a lake."""

    def frame(family: str, vector: Vector, parts: Sequence[Part]) -> DataFrame:
        return lake.store.frame(parts, table_schema(vector), table_folder(family))

    return EventTables(lake.store, table_folder, True, lambda: lake.catalog, frame, partial(_older_parts, lake.store))


def _older_parts(store: SparkStore, state: LedgerState) -> list[Part]:
    """The parts that compaction has replaced before a version, as far as their files are still there."""
    commits = [commit for commit in store.ledger.history() if commit.version <= state.version]
    replaced = [part for part in unprocessed_parts(reversed(commits)).values() if part.folder not in state.parts]
    return [part for part in replaced if store.files.list_folder(f"{store.path}/{part.folder}")]


def remove_events(
    tables: EventTables,
    rules: Sequence[RemovalRule],
    kind: Literal["delete", "expire"],
    *,
    dry_run: bool = False,
    progress: ProgressHandler | None = None,
) -> RemovalResult:
    """Remove the events of any of the rules in one commit, and nothing else.

    If another writer has replaced one of the parts meanwhile, it is tried again. Events that come in meanwhile stay.
    LakeError, and nothing is changed, if the rows that are left are not as many as there should be.
    """
    began = time.monotonic()
    while True:
        attempt = _Attempt(tables, rules, kind)
        try:
            version = attempt.state.version if dry_run else attempt.commit(progress or (lambda done, total: None))
        except CommitConflict:
            continue
        return attempt.result(version, time.monotonic() - began)


class _Attempt:
    """An attempt to remove events from the present version of some tables."""

    def __init__(self, tables: EventTables, rules: Sequence[RemovalRule], kind: Literal["delete", "expire"]) -> None:
        self._tables, self._store, self._rules = tables, tables.store, rules
        self.state = self._store.state()
        self._catalog = tables.catalog()  # read after the state, so that it has every column of the parts
        self._draft = self._store.begin(kind)
        parts = [*self.state.parts.values(), *tables.older(self.state)]
        shares = [(part, self._share(part)) for part in parts]
        counts = self._count([part for part, share in shares if share == "some"])
        counts |= {part.folder: part.rows for part, share in shares if share == "all"}
        self._counts = counts
        """The rows to remove of each folder that has some."""
        self._parts = [part for part in parts if counts.get(part.folder)]

    def result(self, version: int, seconds: float) -> RemovalResult:
        present = [part for part in self._parts if part.folder in self.state.parts]
        dropped = [part for part in present if self._left(part) == 0]
        rows = sum(self._counts[part.folder] for part in present)
        return RemovalResult(rows, len(dropped), len(present) - len(dropped), len(self.state.parts), version, seconds)

    def _left(self, part: Part) -> int:
        return part.rows - self._counts[part.folder]

    def _share(self, part: Part) -> Share:
        if part.table not in self._families:
            return "none"
        vector = self._catalog.vector(part.table)
        found = {rule.share(part, self.state.shapes, vector) for rule in self._rules}
        return "all" if "all" in found else "some" if "some" in found else "none"

    @property
    def _families(self) -> set[str]:
        return {family for rule in self._rules for family in rule.types}

    # -- finding rows ------------------------------------------------------------------------------------------------

    def _count(self, parts: Sequence[Part]) -> dict[str, int]:
        """The number of rows to remove in each folder that has some."""
        frames = [rows.groupBy("folder").agg(F.count(F.lit(1)).alias("rows")) for rows in self._found(parts)]
        found = reduce(DataFrame.unionAll, frames).toArrow().to_pylist() if frames else []
        return {row["folder"]: row["rows"] for row in found}

    def _found(self, parts: Sequence[Part]) -> Iterator[DataFrame]:
        """The rows to remove of each family: the folder, and the id of the event."""
        for family in sorted({part.table for part in parts}):
            of_family = [part for part in parts if part.table == family]
            rows = self._frame(family, of_family).where(self._condition(family))
            yield rows.select(self._folder(family).alias("folder"), SOURCE, POSITION)

    def _frame(self, family: str, parts: Sequence[Part]) -> DataFrame:
        vector = self._catalog.vector(family)
        return with_present_names(self._tables.frame(family, vector, parts), vector)

    def _condition(self, family: str) -> Column:
        vector = self._catalog.vector(family)
        return reduce(or_, [rule.condition(family, vector) for rule in self._rules if family in rule.types])

    def _folder(self, family: str) -> Column:
        """The folder of a row's part."""
        day = [F.lit(f"/{DAY}="), F.col(DAY).cast("string")] if self._tables.by_day else []
        return F.concat(F.lit(f"{self._tables.folder(family)}/{COMMIT}="), F.col(COMMIT), *day)

    # -- writing what is left ----------------------------------------------------------------------------------------

    def commit(self, progress: ProgressHandler) -> int:
        """Rewrite the parts and commit; returns the version."""
        if not self._parts:
            return self.state.version
        with self._store.discarding():
            self._store.drafts.begin(self._draft.id)
            draft = self._with_parts(self._rewrite(progress))
            try:
                return self._store.commit(draft).version
            except CommitConflict:
                self._store.discard(draft)
                raise

    def _with_parts(self, made: Mapping[str, Part]) -> CommitDraft:
        """The draft; the new parts are given by the folders that they replace."""
        left = dict.fromkeys((part.folder for part in self._parts), None) | dict(made)
        present = [part.folder for part in self._parts if part.folder in self.state.parts]
        added = tuple(part for folder in present if (part := left[folder]) is not None)
        return msgspec.structs.replace(
            self._draft,
            added=added,
            removed=tuple(present),
            replaced=left,
            deletion=self.state.notes.get(DELETION, ""),
            notes={DELETION: self._draft.id},
        )

    def _rewrite(self, progress: ProgressHandler) -> dict[str, Part]:
        """The new parts, by the folders that they replace."""
        todo = {part.folder: number for number, part in enumerate(self._parts) if self._left(part)}
        small, large = self._by_size([part for part in self._parts if part.folder in todo])
        made: dict[str, Part] = {}
        for written in self._write_all(small, large, todo):
            for old, new in written:
                if new.rows != self._left(old):
                    raise LakeError(
                        f"{self._store.path}/{old.folder}: {new.rows} rows instead of {self._left(old)} are left; "
                        "nothing was changed"
                    )
                made[old.folder] = new
            progress(len(made), len(todo))
        return made

    def _write_all(
        self, small: Sequence[Part], large: Sequence[Part], numbers: Mapping[str, int]
    ) -> Iterator[list[tuple[Part, Part]]]:
        for batch in self._batches(small):
            ids = self._ids(batch)
            with ThreadPoolExecutor(_THREADS) as pool:
                write = [pool.submit(self._write_small, part, numbers[part.folder], ids[part.folder]) for part in batch]
                yield [(part, each.result()) for part, each in zip(batch, write, strict=True)]
        for part in large:
            yield [(part, self._write_large(part, numbers[part.folder]))]

    def _by_size(self, parts: Sequence[Part]) -> tuple[list[Part], list[Part]]:
        """Parts that the driver rewrites, and parts that Spark does."""
        readable = arrow_opens(self._store.path)
        small = [part for part in parts if readable and part.rows <= SMALL_PART]
        return small, [part for part in parts if part not in small]

    def _batches(self, parts: Sequence[Part]) -> Iterator[list[Part]]:
        batch: list[Part] = []
        for part in parts:
            if batch and sum(self._counts[each.folder] for each in (*batch, part)) > MAX_IDS:
                yield batch
                batch = []
            batch.append(part)
        if batch:
            yield batch

    def _ids(self, parts: Sequence[Part]) -> "dict[str, EventIds]":
        """The ids of the events to remove, by folder."""
        found = reduce(DataFrame.unionAll, self._found(parts)).toArrow()
        folders = found.column("folder").combine_chunks().dictionary_encode()
        which = folders.indices.to_numpy()
        order = np.argsort(which, kind="stable")
        ends = np.cumsum(np.bincount(which))[:-1]
        columns = [np.split(found.column(name).to_numpy()[order], ends) for name in (SOURCE, POSITION)]
        return dict(zip(folders.dictionary.to_pylist(), map(EventIds, *columns), strict=True))

    def _new_folder(self, part: Part, number: int) -> str:
        """The folder of the rows that are left of a part."""
        day = "" if part.day is None else f"/{DAY}={part.day.isoformat()}"
        return f"{self._tables.folder(part.table)}/{COMMIT}={self._draft.id}-{number:05}{day}"

    def _write_small(self, part: Part, number: int, ids: "EventIds") -> Part:
        folder = self._new_folder(part, number)
        found = [self._write_file(part, file, folder, ids) for file in part.files]
        kept = [each for each in found if each is not None]
        shapes = sum_counts(counted for _, counted in kept)
        return Part(part.table, folder, tuple(file for file, _ in kept), shapes)

    def _write_file(
        self, part: Part, file: StoredFile, folder: str, ids: "EventIds"
    ) -> tuple[StoredFile, dict[int, int] | None] | None:
        """Copy the rows that are left of a file; None if there are none."""
        rows = ids.drop_from(read_table(f"{self._store.path}/{part.folder}/{file.name}", file))
        if not rows.num_rows:
            return None
        written = write_file(f"{self._store.path}/{folder}/{file.name}", lambda stream: write_parquet(stream, rows))
        return StoredFile(file.name, rows.num_rows, *written), count_shapes(rows)

    def _write_large(self, part: Part, number: int) -> Part:
        vector = self._catalog.vector(part.table)
        removed = F.coalesce(self._condition(part.table), F.lit(False))
        left = with_first_names(self._frame(part.table, [part]).where(~removed), vector).drop(COMMIT)
        draft = msgspec.structs.replace(self._draft, id=f"{self._draft.id}-{number:05}")
        days = DAY if self._tables.by_day else None
        folder = self._tables.folder(part.table)
        (written,) = self._store.write(left, draft, folder, days=days, most=ROWS_PER_FILE)
        self._store.drafts.end(draft.id)  # its folder belongs to the whole deletion
        return msgspec.structs.replace(written, table=part.table, shapes=self._count_shapes(written))

    def _count_shapes(self, part: Part) -> dict[int, int] | None:
        """The rows of each shape in a part that Spark wrote; they are not counted where pyarrow cannot read them."""
        if local_path(self._store.path) is None:
            return None
        paths = self._store.file_paths([part])
        return sum_counts(count_shapes(pq.read_table(path, columns=[SHAPE], partitioning=None)) for path in paths)


class EventIds(NamedTuple):
    """Ids of events: numbers of sources, and positions there."""

    source: npt.NDArray[np.int64]
    position: npt.NDArray[np.int64]

    def drop_from(self, rows: pa.Table) -> pa.Table:
        """The rows that have none of the ids."""
        count = rows.num_rows
        sources = _numbered(rows.column(SOURCE), self.source)
        positions = _numbered(rows.column(POSITION), self.position)
        keys = sources * (int(positions.max(initial=0)) + 1) + positions
        return rows.filter(pa.array(~np.isin(keys[:count], keys[count:])))


def _numbered(column: pa.ChunkedArray, more: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The values of a column and more values, as small numbers that are equal for equal values."""
    _, numbers = np.unique(np.concatenate([column.to_numpy(), more]), return_inverse=True)
    return numbers.reshape(-1).astype(np.int64)


def read_table(path: str, file: StoredFile) -> pa.Table:
    """The rows of a file; LakeDamaged if it is not the one that was committed, so that damage is not copied."""
    content = read_content(path)
    if checksum(content) != file.checksum:
        raise LakeDamaged(f"{path} has another content than was committed; restore it from a backup")
    return pq.read_table(pa.BufferReader(content), page_checksum_verification=True)
