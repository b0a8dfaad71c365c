"""`LocalEvents`: the events that match a subscription, read in this process when they are asked for."""

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property, partial
from typing import TYPE_CHECKING, TypeVar

import msgspec

from genus.errors import LakeError
from genus.filters import Subscription
from genus.lake._query.selection import CountedPart, SelectedTable, count_parts
from genus.lake._tables.commits import count_bytes, count_files
from genus.lake._tables.lake_folder import LakeFolder
from genus.lake._tables.state import LedgerState

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from genus.lake._query.scan import DataFile, RowGroup, TableScan

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
        from genus.lake._query.scan import result_schema

        attributes = {name: each for table in self._tables.values() for name, each in table.columns.items()}
        return result_schema(self.columns, attributes)

    def select(self, columns: Iterable[str]) -> "LocalEvents":
        """The same events with some of the columns, in this order; LakeError if one is not there."""
        names = list(columns)
        if unknown := [name for name in names if name not in self.columns]:
            raise LakeError(f"there is no column {unknown[0]!r}; there are {', '.join(self.columns)}")
        return LocalEvents(self._lake, self._state, self.subscription, self._tables, names)

    # -- results -----------------------------------------------------------------------------------------------------

    def count(self) -> int:
        """The number of events.

        For parts where types and attributes decide, or whole days, the ledger has the number and no file is opened. Of
        the others only the columns that the predicate tests are read.
        """
        counted = sum(found.rows for found in self._parts() if found.rows is not None)
        if not self.undecided_bytes:
            return counted
        return counted + sum(self._run(lambda scan, group: scan.count(group), only_undecided=True))

    def batches(self) -> "Generator[pa.RecordBatch, None, None]":
        """The events in batches, one for each row group; a few are in memory at a time.

        Rows are in the order of families, commits and files, which is the same in every call.
        """
        found = self._run(lambda scan, group: scan.read(group))
        return (batch for batch in found if batch is not None)

    def to_arrow(self) -> "pa.Table":
        """All events as an Arrow table."""
        import pyarrow as pa

        return pa.Table.from_batches(self.batches(), self.schema)

    def to_pandas(self) -> "pd.DataFrame":
        """All events as a pandas frame."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> "pl.DataFrame":
        """All events as a Polars frame."""
        import polars as pl

        frame = pl.from_arrow(self.to_arrow())
        assert isinstance(frame, pl.DataFrame)
        return frame

    def to_duckdb(self, connection: "duckdb.DuckDBPyConnection | None" = None) -> "duckdb.DuckDBPyRelation":
        """All events as a relation of DuckDB, to be queried further.

        Args:
            connection: A connection of DuckDB; by default a new one in memory.
        """
        import duckdb

        return (connection or duckdb.connect()).from_arrow(self.to_arrow())

    # -- what is read ------------------------------------------------------------------------------------------------

    @property
    def bytes(self) -> int:
        """The size of the files that can have matches."""
        return count_bytes(found.part for found in self._parts())

    @property
    def undecided_bytes(self) -> int:
        """The size of the files that `count` opens."""
        return count_bytes(found.part for found in self._parts() if found.rows is None)

    def explain(self) -> LocalPlan:
        """What is opened and tested; the footers of files are read, no events."""
        from genus.lake._query.scan import read_footer
        from genus.targets import arrow

        opened, read = 0, 0
        for scan, files in self._scans():
            opened += sum(read_footer(file).metadata.num_row_groups for file in files)
            read += sum(len(scan.row_groups(file)) for file in files)
        parts = [found.part for found in self._parts()]
        every = self._state.parts.values()
        families = {family: table.types for family, table in self._tables.items()}
        return LocalPlan(
            arrow.compile(self.subscription).explain([name for types in families.values() for name in types]),
            families,
            sum(found.rows or 0 for found in self._parts()),
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
        """How each family is read, and its files."""
        from genus.lake._query.scan import DataFile, TableScan

        for family, table in self._tables.items():
            sources = {column: attribute.name for column, attribute in table.columns.items()}
            scan = TableScan(self.subscription, table.vector, table.types, self.schema, sources)
            parts = [found.part for found in self._counted[family] if not only_undecided or found.rows is None]
            with self._lake.reading(self._state):
                files = [DataFile(path, part.day) for part in parts for path in self._lake.store.file_paths([part])]
            yield scan, files

    def _run(
        self, work: "Callable[[TableScan, RowGroup], Result]", *, only_undecided: bool = False
    ) -> Iterator[Result]:
        """The results of work on the row groups that can have matches, in order, made by several threads."""
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
