"""Mirrors of a lake: a Delta or an Iceberg table over the files of each table, made from the ledger alone.

Delta: after a commit, every table that it changes gets one entry in its Delta log, with the version of the ledger as
its transaction. The ledger stays the truth: an entry is written after its commit, so the mirror may lag and is never
ahead. `_mirror.json` names the last commit that is mirrored in all tables. A table is opened once in a process: the
files in its log are compared with what the ledger had since then, and the commits that it lacks follow. Where its files
are those of no commit (commits were folded and removed, the ledger was restored from a backup, a log was removed,
others wrote it), the differences are one entry.

Iceberg, made by pyiceberg in a SQLite catalog in the folder of the lake: a call brings every table to the present state
of the ledger in one snapshot: files are added and removed, nothing is rewritten. Iceberg stores absolute paths, so a
lake that was moved gets new tables. Metadata name files that are not in the tables any more, with bounds of their
values, so before such files are removed, the tables are.
"""

import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

import msgspec
import pyarrow as pa

from genus._extras import missing_extra
from genus.errors import LakeError
from genus.lake._tables.commits import BATCH, DEAD, TABLES, Commit, Part, StoredFile, table_folder
from genus.lake._tables.delta_log import (
    Change,
    TableLog,
    delta_schema,
    encode_entry,
    file_columns,
    file_statistics,
    tables_of,
)
from genus.lake._tables.files import local_path
from genus.lake._tables.state import LedgerState
from genus.lake._tables.store import Store

if TYPE_CHECKING:
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.table import Table

NOTE_FILE = "_mirror.json"
_THREADS = 4


class MirrorResult(msgspec.Struct, frozen=True):
    """Result of `Lake.mirror`."""

    tables: int
    """Tables that were extended."""
    entries: int
    """Entries that were written to their logs."""
    version: int
    """The version of the lake that all tables show."""
    seconds: float
    repaired: int = 0
    """Tables whose log was damaged; it was made again from its entries, or from the ledger."""


class _Note(msgspec.Struct, frozen=True):
    """The last commit that is mirrored in all tables."""

    lake: str
    version: int
    commit: str


class _Moved(Exception):
    """There are new commits, which a table may show already because another process has mirrored them."""


class Mirror:
    """The Delta logs of a lake's tables. State: the newest entry of each log, and the mirrored state of the ledger."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known = store.state()
        self._is_done = False
        """Whether the known state is mirrored in all tables."""
        self._logs: dict[str, TableLog] = {}
        """Of tables that show the known state."""
        self._written: list[str] = []
        """The tables of the entries that were written by the present call."""
        self._repaired: set[str] = set()
        """The tables whose logs the present call has found damaged."""
        self._lock = threading.Lock()

    @property
    def is_ahead(self) -> bool:
        """Whether the tables show commits that the ledger does not have: it was restored, or made again."""
        note = self._read_note()
        now = self._store.state()  # after the note, which is written after its commit
        if note is None:
            return False
        is_other = note.version == now.version and note.commit != now.commit
        return note.lake != now.lake or note.version > now.version or is_other

    def follow(self) -> MirrorResult:
        """Mirror the commits that are not mirrored yet, each as one entry in the logs of its tables."""
        return self._run(self._follow)

    def complete(self, progress: Callable[[int, int], object] | None = None) -> MirrorResult:
        """Mirror the commits that are not mirrored yet, and compare every table with the ledger."""

        def work(now: LedgerState) -> None:
            self._follow(now)
            self._show_all(now, progress)

        return self._run(work, anew=True)

    def forget_bounds(self) -> None:
        """Remove the statistics of files that the lake does not have any more: they may have deleted values."""
        self._run(self._forget_bounds, anew=True)

    def has_table(self, table: str) -> bool:
        return self._log(table).exists

    def _run(self, work: Callable[[LedgerState], object], *, anew: bool = False) -> MirrorResult:
        """Work with the present state, and again with a new one if it has changed; with `anew`, nothing is known."""
        with self._lock:
            began, self._written, self._repaired, now = time.monotonic(), [], set(), self._store.state()
            if anew:
                self._logs, self._is_done = {}, False
            while True:
                try:
                    work(now)
                    break
                except BaseException as problem:
                    self._logs = {}  # they are opened again, because a table may show another state than the known one
                    if not isinstance(problem, _Moved):
                        raise
                    now = self._store.state()
            seconds, tables = time.monotonic() - began, len(set(self._written))
            return MirrorResult(tables, len(self._written), now.version, seconds, len(self._repaired))

    # -- which commits -----------------------------------------------------------------------------------------------

    def _follow(self, now: LedgerState) -> None:
        """Mirror the commits since the last state that is mirrored, or all at once where they are not known."""
        try:
            before = self._mirrored(now)
            commits = self._store.ledger.commits(before.version, now.version)
        except LakeError:
            before, commits, self._logs = LedgerState(), [], {}  # it is not known, or commits were folded and removed
            self._show_all(now)
        changes = _changes(before, commits)
        others = self._tables(now) if any(commit.catalog is not None for commit in commits) else ()
        with ThreadPoolExecutor(_THREADS) as pool:
            tables = dict.fromkeys([*changes, *others])
            list(pool.map(lambda table: self._show(table, before, changes.get(table, []), now), tables))
        if before.version < now.version:
            note = msgspec.json.encode(_Note(now.lake, now.version, now.commit))
            self._store.files.replace(f"{self._store.path}/{NOTE_FILE}", note, durable=False)
        self._known, self._is_done = now, True

    def _mirrored(self, now: LedgerState) -> LedgerState:
        """Return the last state that is mirrored in all tables; LakeError if it is not known or not of this ledger."""
        if self._is_done:
            return self._known
        note = self._read_note()
        if note is None and not self._known.parts:
            return LedgerState()  # a new lake, or one whose events were deleted before a first note was written
        if note is not None and note.lake == now.lake:
            is_known = self._known.version == note.version
            state = self._known if is_known else self._store.ledger.state_at(note.version)
            if state.commit == note.commit:
                return state
        raise LakeError(f"{self._store.path}: what is mirrored is not known")

    def _read_note(self) -> _Note | None:
        content = self._store.files.read(f"{self._store.path}/{NOTE_FILE}")
        try:
            return None if content is None else msgspec.json.decode(content, type=_Note)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None

    def _forget_bounds(self, now: LedgerState) -> None:
        for table in self._tables(now):
            if self._log(table).exists:
                self._show(table, now, [], now)  # a checkpoint has the bounds of all files that its table shows
        self._logs = {}  # the tables that have none show another state
        present = {table_folder(table): _files(table, now.table(table)) for table in now.tables}
        found = self._store.files.list_folder(f"{self._store.path}/{TABLES}")
        for folder in [*(f"{TABLES}/{each.name}" for each in found if each.is_folder), DEAD]:
            TableLog(self._store.files, f"{self._store.path}/{folder}").forget_bounds(present.get(folder, {}))

    # -- tables ------------------------------------------------------------------------------------------------------

    def _show_all(self, state: LedgerState, progress: Callable[[int, int], object] | None = None) -> None:
        tables = self._tables(state)
        for number, table in enumerate(tables, 1):
            if table not in self._logs:
                self._show(table, state, [], state)
            if progress is not None:
                progress(number, len(tables))

    def _tables(self, state: LedgerState) -> list[str]:
        """Return the tables that have rows, or had some and have a log."""
        empty = {*tables_of(state.catalog or "")}.difference(state.tables)
        return sorted([*state.tables, *(table for table in empty if self._log(table).exists)])

    def _show(self, table: str, before: LedgerState, changes: Sequence[Change], now: LedgerState) -> None:
        """Make a table show a state, by the changes that led to it from the one before."""
        log = self._logs.get(table)
        left = changes
        while log is None or not self._write(table, log, left, now):  # another process may write the same entry
            log = self._log(table)
            there = log.load()
            if log.was_damaged:
                self._repaired.add(table)
            missing = _missing(there, _files(table, before.table(table)), changes)
            if missing is None and self._store.state().version > now.version:
                raise _Moved
            left = [_difference(there, _files(table, now.table(table)), now)] if missing is None else missing
        self._logs[table] = log

    def _write(self, table: str, log: TableLog, changes: Sequence[Change], now: LedgerState) -> bool:
        """Write an entry for each change, and one for new columns alone; False if another process has written one."""
        root = f"{self._store.path}/{table_folder(table)}"
        for change in changes or [_difference(set(), {}, now)]:
            schema, columns = delta_schema(change.catalog, table), file_columns(change.catalog, table)
            is_new = log.schema != schema
            if not (is_new or change.removed or change.added):
                continue
            stats = {
                path: file_statistics(self._store.files, f"{root}/{unquote(path)}", file.rows, columns)
                for path, file in change.added.items()
            }
            entry = encode_entry(now.lake, table, change, schema if is_new else None, stats, first=log.version < 0)
            if not log.append(entry, schema, len(change.added) - len(change.removed)):
                return False
            self._written.append(table)
        return True

    def _log(self, table: str) -> TableLog:
        return TableLog(self._store.files, f"{self._store.path}/{table_folder(table)}")


def _changes(before: LedgerState, commits: Iterable[Commit]) -> dict[str, list[Change]]:
    found: dict[str, list[Change]] = {}
    new: dict[str, Part] = {}
    catalog = before.catalog or ""
    for commit in commits:
        catalog = catalog if commit.catalog is None else commit.catalog
        known = [new.get(folder) or before.parts.get(folder) for folder in commit.removed]
        removed = [part for part in known if part is not None]
        for table in dict.fromkeys(part.table for part in (*removed, *commit.added)):
            gone, added = (_files(table, parts) for parts in (removed, commit.added))
            change = Change(commit.kind, commit.version, commit.id, commit.at_us, catalog, [*gone], added)
            found.setdefault(table, []).append(change)
        new |= {part.folder: part for part in commit.added}
    return found


def _missing(there: set[str], before: Iterable[str], changes: Sequence[Change]) -> Sequence[Change] | None:
    """Return the changes that a table lacks, by the files that it has; None if it never had just these."""
    different, found = there.symmetric_difference(before), None
    for number, change in enumerate([None, *changes]):
        if change is not None:
            different ^= {*change.removed, *change.added}
        if not different:
            found = changes[number:]
    return found


def _difference(there: Set[str], wanted: Mapping[str, StoredFile], now: LedgerState) -> Change:
    added = {path: file for path, file in wanted.items() if path not in there}
    removed = sorted(there - wanted.keys())
    return Change("mirror", now.version, now.commit, now.at_us, now.catalog or "", removed, added)


def _files(table: str, parts: Iterable[Part]) -> dict[str, StoredFile]:
    root = f"{table_folder(table)}/"
    return {
        quote(f"{part.folder.removeprefix(root)}/{file.name}", safe="/="): file
        for part in parts
        if part.table == table
        for file in part.files
    }


FOLDER, CATALOG, NAMESPACE = "_iceberg", "catalog.db", "lake"
LEDGER_VERSION, IDENTITY, PLACE = "genus.version", "genus.lake", "genus.path"
"""Properties of snapshots, and of the namespace."""
_NOT_IN_PATHS = "%#?"
"""Characters that pyiceberg and SQLAlchemy take for syntax of a URL."""


class IcebergTables:
    """The Iceberg tables of a lake in a local folder."""

    def __init__(self, store: Store) -> None:
        if (path := local_path(store.path)) is None:
            raise LakeError(f"{store.path} is not a local folder; Iceberg tables are made for local lakes only")
        self._store = store
        self._root = os.path.realpath(path)
        self._folder = f"{self._root}/{FOLDER}"

    @property
    def exist(self) -> bool:
        return os.path.exists(self._folder)

    def update(self, progress: Callable[[int, int], object] | None = None) -> MirrorResult:
        began = time.monotonic()
        if found := [sign for sign in _NOT_IN_PATHS if sign in self._root]:
            raise LakeError(f"{self._root}: pyiceberg does not find files in paths with {found[0]!r}; move the lake")
        state = self._store.state()
        changed = 0
        with closing(self._catalog(state)) as catalog:
            known = tables_of(state.catalog or "")
            tables = [each for each in known if state.table(each) or catalog.table_exists(_name(each))]
            for number, table in enumerate(tables, 1):
                changed += self._update(catalog, table, state)
                if progress is not None:
                    progress(number, len(tables))
        return MirrorResult(changed, changed, state.version, time.monotonic() - began)

    def remove(self) -> None:
        """Remove the tables, with the names and bounds of all files that they ever had; events are not touched."""
        self._store.files.delete(self._folder)

    def metadata_path(self, table: str) -> str:
        """Return the metadata file of a table; LakeError if there is no such table. Nothing is changed."""
        missing = LakeError(f"{table} is no Iceberg table yet; call iceberg() or `genus lake mirror --iceberg`")
        if not os.path.exists(f"{self._folder}/{CATALOG}"):
            raise missing
        with closing(self._open_catalog()) as catalog:
            if not catalog.table_exists(_name(table)):
                raise missing
            if not self._is_of(catalog, self._store.state()):
                raise LakeError(
                    f"the Iceberg tables of {self._store.path} were made for a lake at another place; call iceberg() "
                    "or `genus lake mirror --iceberg` to make them again"
                )
            return catalog.load_table(_name(table)).metadata_location

    def _catalog(self, state: LedgerState) -> "SqlCatalog":
        """Return the catalog; one of another lake, or of this one at another place, is replaced."""
        os.makedirs(self._folder, exist_ok=True)
        catalog = self._open_catalog()
        if catalog.namespace_exists(NAMESPACE) and not self._is_of(catalog, state):
            catalog.close()
            self.remove()
            return self._catalog(state)
        if not catalog.namespace_exists(NAMESPACE):
            catalog.create_namespace(NAMESPACE, self._properties(state))
        return catalog

    def _is_of(self, catalog: "SqlCatalog", state: LedgerState) -> bool:
        known = catalog.load_namespace_properties(NAMESPACE)
        return all(known.get(name) == text for name, text in self._properties(state).items())

    def _properties(self, state: LedgerState) -> dict[str, str]:
        return {IDENTITY: state.lake, PLACE: self._root}

    def _open_catalog(self) -> "SqlCatalog":
        try:
            from pyiceberg.catalog.sql import SqlCatalog
        except ImportError as missing:
            raise missing_extra("Iceberg tables need pyiceberg", "iceberg") from missing
        return SqlCatalog("genus", uri=f"sqlite:///{self._folder}/{CATALOG}", warehouse=f"file://{self._folder}")

    def _update(self, catalog: "SqlCatalog", table: str, state: LedgerState) -> bool:
        """Bring a table to a state; whether it has changed."""
        from pyiceberg.io.pyarrow import parquet_files_to_data_files
        from pyiceberg.table import TableProperties

        iceberg = _open(catalog, table, file_columns(state.catalog or "", table))
        parts = state.table(table)
        wanted = {f"file://{self._root}/{part.folder}/{file.name}" for part in parts for file in part.files}
        there = {task.file.file_path: task.file for task in iceberg.scan().plan_files()}
        if there.keys() == wanted:
            return False
        added = sorted(wanted - there.keys())
        properties = {LEDGER_VERSION: str(state.version), IDENTITY: state.lake}
        with iceberg.transaction() as transaction:
            if iceberg.name_mapping() is None:  # files have no numbers of columns
                mapping = iceberg.schema().name_mapping.model_dump_json()
                transaction.set_properties({TableProperties.DEFAULT_NAME_MAPPING: mapping})
            with transaction.update_snapshot(snapshot_properties=properties).overwrite() as snapshot:
                for path in sorted(there.keys() - wanted):
                    snapshot.delete_data_file(there[path])
                for file in parquet_files_to_data_files(iceberg.io, transaction.table_metadata, iter(added)):
                    snapshot.append_data_file(file)
        return True


@contextmanager
def remade_without(store: Store, folders: Callable[[], Collection[str]]) -> Iterator[None]:
    """Remove the Iceberg tables of a lake before a block that removes some folders, and make them again after it.

    They name these folders. If the block or the process ends early, there are no tables until `update` is called.
    """
    tables = IcebergTables(store) if local_path(store.path) is not None else None
    if tables is None or not tables.exist or not folders():
        yield
        return
    tables.remove()
    yield
    if find_spec("pyiceberg") is not None:
        tables.update()


def _open(catalog: "SqlCatalog", table: str, files: pa.Schema) -> "Table":
    """The table with all columns of a schema, and `_batch` of rewritten files, because pyiceberg wants all columns."""
    schema, name = files.append(pa.field(BATCH, pa.int64())), _name(table)
    iceberg = catalog.load_table(name) if catalog.table_exists(name) else catalog.create_table(name, schema)
    if set(schema.names) - {field.name for field in iceberg.schema().fields}:
        with iceberg.update_schema() as update:
            update.union_by_name(schema)
    return iceberg


def _name(table: str) -> tuple[str, str]:
    return NAMESPACE, table_folder(table).rpartition("/")[2]
