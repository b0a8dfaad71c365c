"""`LakeReader`: a lake opened for small questions about what is stored, which are answered in this process.

It is an interactive tool beside the pipeline. What it reads is planned by `_query.selection` and read by `_query.scan`,
as in the tasks of the data source. Counting by the ledger needs no pyarrow, so that is imported where files are read.
"""

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import msgspec

from genus.errors import LakeDamaged, LakeError
from genus.filters import Subscription
from genus.filters.types import AllOf, AttributeNames, Predicate, Term
from genus.lake._query.selection import ADDED, CountedPart, SelectedTable, count_parts, select_tables
from genus.lake._tables.commits import RECORDED, count_bytes, count_files
from genus.lake._tables.file_systems import is_object_path
from genus.lake._tables.files import local_path
from genus.lake._tables.followers import FollowerSearch, FollowerStatus
from genus.lake._tables.lake_folder import LakeFolder
from genus.lake._tables.state import LedgerState, type_counts
from genus.lake._tables.store import Store

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from genus.lake._query.scan import DataFile, RowGroup, TableScan
    from genus.lake._tables.mirror import MirrorResult

MAX_FILES = 2000
"""A table with more files on its first and last day has no bounds: reading their footers would take seconds."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Bounds = tuple[datetime, datetime]
"""The first and the last time of some events, in UTC."""
Item = TypeVar("Item")
Result = TypeVar("Result")


class LocalPlan(msgspec.Struct, frozen=True):
    """What `LocalEvents` opens and tests; made by `LocalEvents.explain`, which reads footers of files and no events."""

    tests: str
    """The tests of the subscription."""
    families: dict[str, tuple[str, ...]]
    """The types whose events can match, by family."""
    counted_rows: int
    """Matching rows that the ledger counts, so that `count` opens no file for them."""
    files: int
    """Files that are opened, because the ledger does not exclude matches in them."""
    bytes: int
    """Their size."""
    lake_files: int
    """All files of the lake at this version."""
    lake_bytes: int
    row_groups: int
    """Row groups in the opened files."""
    row_groups_read: int
    """Row groups of which pages are read, because their statistics do not exclude matches."""

    def __str__(self) -> str:
        types = [f"  {family}: {', '.join(names)}" for family, names in self.families.items()]
        lines = [
            self.tests,
            "tables:",
            *(types or ["  none"]),
            f"counted by the ledger: {self.counted_rows:,} rows",
            f"opened: {self.files:,} files of {self.lake_files:,}, {self.bytes:,} bytes of {self.lake_bytes:,}",
            f"read: {self.row_groups_read:,} row groups of {self.row_groups:,}",
        ]
        return "\n".join(lines)


class LocalEvents:
    """The events of a lake that match a subscription; made by `LakeReader.read`.

    Nothing is read until a method asks for events. Every call reads again, at the version of the lake that was found
    when `read` was called. Columns and their types are those of `Lake.read`.
    """

    def __init__(
        self,
        lake: LakeFolder,
        state: LedgerState,
        subscription: Subscription,
        tables: dict[str, SelectedTable],
        columns: Sequence[str],
    ) -> None:
        self._lake, self._state, self._tables, self.subscription = lake, state, tables, subscription
        self.columns = list(columns)
        """The names of the columns."""

    def __repr__(self) -> str:
        return f"<LocalEvents {self.subscription} of {self._lake.path} at version {self.version}>"

    @property
    def version(self) -> int:
        """The version of the lake that is read."""
        return self._state.version

    @cached_property
    def schema(self) -> "pa.Schema":
        """The Arrow schema of the columns."""
        import pyarrow as pa

        from genus.lake._query.scan import EVENT_FIELDS
        from genus.lake._tables.part_writer import stored_type

        types = {name: each.type for table in self._tables.values() for name, each in table.columns.items()}
        return pa.schema([EVENT_FIELDS.get(name) or pa.field(name, stored_type(types[name])) for name in self.columns])

    def select(self, columns: Iterable[str]) -> "LocalEvents":
        """Return the same events with some of the columns, in this order; LakeError if one is not there."""
        names = list(columns)
        if unknown := [name for name in names if name not in self.columns]:
            raise LakeError(f"there is no column {unknown[0]!r}; there are {', '.join(self.columns)}")
        return LocalEvents(self._lake, self._state, self.subscription, self._tables, names)

    # -- results -----------------------------------------------------------------------------------------------------

    def count(self) -> int:
        """Return the number of events.

        For parts where types and attributes decide, or whole days, the ledger has the number and no file is opened. Of
        the others only the columns that the predicate tests are read.
        """
        counted = sum(rows or 0 for _, rows in self._parts())
        if not self.undecided_bytes:
            return counted
        return counted + sum(self._run(lambda scan, group: scan.count(group), only_undecided=True))

    def batches(self) -> "Generator[pa.RecordBatch, None, None]":
        """Return the events in batches, one for each row group; a few are in memory at a time.

        Rows are in the order of families, commits and files, which is the same in every call.
        """
        found = self._run(lambda scan, group: scan.read(group))
        return (batch for batch in found if batch is not None)

    def to_arrow(self) -> "pa.Table":
        """Return all events as an Arrow table."""
        import pyarrow as pa

        return pa.Table.from_batches(self.batches(), self.schema)

    def to_pandas(self) -> "pd.DataFrame":
        """Return all events as a pandas frame."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> "pl.DataFrame":
        """Return all events as a Polars frame."""
        import polars as pl

        frame = pl.from_arrow(self.to_arrow())
        assert isinstance(frame, pl.DataFrame)
        return frame

    def to_duckdb(self, connection: "duckdb.DuckDBPyConnection | None" = None) -> "duckdb.DuckDBPyRelation":
        """Return all events as a relation of DuckDB, to be queried further.

        Args:
            connection: A connection of DuckDB; by default a new one in memory.
        """
        import duckdb

        return (connection or duckdb.connect()).from_arrow(self.to_arrow())

    # -- what is read ------------------------------------------------------------------------------------------------

    @property
    def bytes(self) -> int:
        """The size of the files that can have matches."""
        return count_bytes(part for part, _ in self._parts())

    @property
    def undecided_bytes(self) -> int:
        """The size of the files that `count` opens."""
        return count_bytes(part for part, rows in self._parts() if rows is None)

    def explain(self) -> LocalPlan:
        """Return what is opened and tested; the footers of files are read, no events."""
        from genus.lake._query.scan import read_footer
        from genus.targets import arrow

        opened, read = 0, 0
        for scan, files in self._scans():
            opened += sum(read_footer(file).metadata.num_row_groups for file in files)
            read += sum(len(scan.row_groups(file)) for file in files)
        parts = [part for part, _ in self._parts()]
        every = self._state.parts.values()
        families = {family: table.types for family, table in self._tables.items()}
        return LocalPlan(
            arrow.compile(self.subscription).explain([name for types in families.values() for name in types]),
            families,
            sum(rows or 0 for _, rows in self._parts()),
            *(count_files(parts), count_bytes(parts)),
            *(count_files(every), count_bytes(every)),
            *(opened, read),
        )

    @cached_property
    def _counted(self) -> dict[str, list[CountedPart]]:
        return {family: count_parts(self.subscription, table, self._state) for family, table in self._tables.items()}

    def _parts(self) -> list[CountedPart]:
        return [found for counted in self._counted.values() for found in counted]

    def _scans(self, only_undecided: bool = False) -> "Iterator[tuple[TableScan, list[DataFile]]]":
        """Return how each family is read, and its files."""
        from genus.lake._query.scan import DataFile, TableScan

        for family, table in self._tables.items():
            sources = {column: attribute.name for column, attribute in table.columns.items()}
            scan = TableScan(self.subscription, table.vector, table.types, self.schema, sources)
            parts = [part for part, rows in self._counted[family] if not only_undecided or rows is None]
            with self._lake._reading(self._state):
                files = [DataFile(path, part.day) for part in parts for path in self._lake.store.file_paths([part])]
            yield scan, files

    def _run(
        self, work: "Callable[[TableScan, RowGroup], Result]", *, only_undecided: bool = False
    ) -> Iterator[Result]:
        """Yield the results of work on the row groups that can have matches, in order, made by several threads."""
        threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        with ThreadPoolExecutor(threads) as pool:
            for scan, files in self._scans(only_undecided):
                found = in_order(pool, scan.row_groups, files, 2 * threads)
                groups = (each for listed in found for each in listed)
                yield from in_order(pool, partial(work, scan), groups, threads + 1)


def in_order(
    pool: ThreadPoolExecutor, work: Callable[[Item], Result], items: Iterable[Item], ahead: int
) -> Iterator[Result]:
    """The results for some items in their order; threads work on at most `ahead` items that were not taken yet."""
    waiting: deque[Future[Result]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()


# -- the lake ----------------------------------------------------------------------------------------------------------


class LakeSummary(msgspec.Struct, frozen=True):
    """The present version of a lake, from `LakeReader.refresh`."""

    version: int
    commit: str
    """The id of the last commit."""
    at: datetime
    """The time of the last commit."""
    newest: Mapping[str, datetime]
    """The latest time of recording among the events of each recorder."""


class LakeReader(LakeFolder):
    """A lake opened for reading in this process: no Spark, no Java.

    An interactive tool beside the pipeline, for small questions about what is stored. Answers, columns and types are
    those of `Lake`; use that for large results and for everything that processes or writes events. Needs the extra
    `arrow`.

    Args:
        path: The folder of a lake.

    Raises:
        LakeError: There is no lake at the path, or it is neither a local one nor in s3://.
    """

    _declares_subtypes: ClassVar[bool] = False

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(Store(path))
        self._followers = FollowerSearch(self.store)

    @staticmethod
    def can_open(path: str | os.PathLike[str]) -> bool:
        """Return whether a path is local or in s3://, so that a lake there can be read without Spark."""
        return local_path(path) is not None or is_object_path(os.fspath(path))

    def __repr__(self) -> str:
        return f"<LakeReader {self.path}>"

    @property
    def types(self) -> tuple[str, ...]:
        """The names of all types and kinds in the catalog."""
        return self.catalog.types

    def read(
        self,
        what: type | AllOf[Any] | Subscription | str,
        *,
        exact: bool = False,
        has: AttributeNames = (),
        lacks: AttributeNames = (),
        where: Predicate | Term | str | None = None,
        strict: bool = False,
        subtypes: bool = False,
        columns: Iterable[str] | None = None,
        version: int | None = None,
        as_of: datetime | None = None,
    ) -> LocalEvents:
        """Return the events that match a subscription; nothing is read until the result is asked for.

        Args:
            what: A type, `all_of` types, or a whole subscription, also as text.
            exact: As in `Subscription`, like the other arguments; only where `what` is a type.
            has: Attributes that must be present.
            lacks: Attributes that must be absent.
            where: A predicate.
            strict: Refuse a subscription that can never match; without it, such a one gives a `SubscriptionWarning`.
            subtypes: Return the attributes of all types whose events can match, as in `Lake.read`.
            columns: Only these columns, in this order.
            version: Read the lake as it was after this commit; by default as it is.
            as_of: Read the lake as it was at this time, after the last commit at or before it.

        Raises:
            NotRegistered: The catalog lacks the type.
            LakeError: The catalog lacks an attribute or the result a column, there is no such version, or its files
                were removed by `clean`.
            SubscriptionError: With `strict`, the subscription can never match.
        """
        asked = self._asked(what, exact=exact, has=has, lacks=lacks, where=where, strict=strict)
        state = self._state_of(version, as_of)
        tables = select_tables(asked, self.catalog, state, subtypes=subtypes)
        names = dict.fromkeys(name for table in tables.values() for name in table.columns)
        found = LocalEvents(self, state, asked, tables, [*names, *ADDED])
        return found if columns is None else found.select(columns)

    def refresh(self) -> LakeSummary:
        """Return the present version in short; LakeDamaged if the lake was removed or replaced since it was opened."""
        state = self.store.ledger.present()
        return LakeSummary(
            state.version, state.commit, _time(state.at_us), {name: _time(at) for name, at in state.newest.items()}
        )

    def time_bounds(self) -> Mapping[str, Bounds]:
        """Return the first and the last time of the events of each table, by the footers of some of its files.

        Tables of which that is not known are left out: those of lakes that are not in a local folder, those with
        thousands of files on their first and last day, and those with files without statistics. `stats` has their days.
        """
        return _time_bounds(self.path, self.state())

    def type_counts(self) -> dict[str, int]:
        """Return the number of events of each type, by the ledger; parts of old lakes without counts are left out."""
        return type_counts(self.state())

    def followers(self, paths: Iterable[str | os.PathLike[str]] = ()) -> list[FollowerStatus]:
        """Find inboxes, derived tables and functions of streams of this lake, and how far each has come.

        A lake does not know its followers: those in its folder and beside it are found, and those at given paths.

        Args:
            paths: Folders of followers elsewhere.
        """
        return self._followers.find(paths)

    def mirror(self, *, progress: Callable[[int, int], object] | None = None) -> "MirrorResult":
        """Complete the Delta tables of the lake, and compare them with the ledger, as `Lake.mirror`."""
        from genus.lake._tables.mirror import Mirror

        return Mirror(self.store).complete(progress)

    def iceberg(self, *, progress: Callable[[int, int], object] | None = None) -> "MirrorResult":
        """Bring the Iceberg tables of the lake to the present version, as `Lake.iceberg`."""
        from genus.lake._tables.mirror import IcebergTables

        return IcebergTables(self.store).update(progress)


def _time(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)


def _time_bounds(path: str, state: LedgerState) -> dict[str, Bounds]:
    found: dict[str, Bounds] = {}
    for table in state.tables if local_path(path) is not None else ():  # elsewhere, every footer would be a request
        parts = state.table(table)
        days = {part.day for part in parts if part.day is not None}
        outer = {min(days), max(days)} if days else set()
        files = [f"{path}/{part.folder}/{file.name}" for part in parts if part.day in outer for file in part.files]
        bounds = [_file_bounds(file) for file in files] if len(files) <= MAX_FILES else []
        known = [each for each in bounds if each is not None]
        if known and len(known) == len(bounds):
            found[table] = min(first for first, _ in known), max(last for _, last in known)
    return found


@lru_cache(1 << 14)
def _file_bounds(path: str) -> Bounds | None:
    """Return the bounds of a file, which never changes; None if they are not known."""
    try:
        from genus.lake._query import scan  # without pyarrow, the days have to do

        footer = scan.read_footer(scan.DataFile(path, None))
    except (LakeDamaged, ImportError):
        return None
    by_time = [footer.values(group, "time") for group in range(footer.metadata.num_row_groups)]
    # events without a time have the one at which they were recorded
    found = [times if times.may_be_present else footer.values(at, RECORDED) for at, times in enumerate(by_time)]
    if not found or any(times.may_be_absent or times.low is None or times.high is None for times in found):
        return None
    return _time(min(times.low for times in found)), _time(max(times.high for times in found))
