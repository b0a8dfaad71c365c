"""The mirror of a lake: a Delta table over the files of each table, made from the ledger alone.

After a commit, every table that it changes gets one entry in its Delta log, with the version of the ledger as its
transaction. The ledger stays the truth: an entry is written after its commit, so the mirror may lag and is never ahead.
`_mirror.json` names the last commit that is mirrored in all tables. A table is opened once in a process: the files in
its log are compared with what the ledger had since then, and the commits that it lacks follow. Where its files are
those of no commit (commits were folded and removed, the ledger was restored from a backup, a log was removed, others
wrote it), the differences are one entry.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote, unquote

import msgspec

from genus.errors import LakeError
from genus.lake._tables.commits import Commit, Part, StoredFile
from genus.lake._tables.delta_log import (
    Change,
    TableLog,
    delta_schema,
    encode_entry,
    file_columns,
    file_statistics,
    tables_of,
)
from genus.lake._tables.names import DEAD, TABLES, table_folder
from genus.lake._tables.state import LedgerState
from genus.lake._tables.store import Store

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
            return self._known  # a new lake
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
