"""The mirror of a lake: a Delta table over the files of each table, made from the ledger alone.

After a commit, every table that it changes gets one entry in its Delta log, with the version of the ledger as its
transaction. The ledger stays the truth: an entry is written after its commit, so the mirror may lag and is never ahead.
`_mirror.json` names the last commit that is mirrored in all tables. Where commits are missing there (they were folded
and removed, the ledger was restored from a backup, a log was removed), a table is compared with the ledger's state, and
the differences are one entry.
"""

import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple
from urllib.parse import quote, unquote

import msgspec

from genus.errors import LakeError
from genus.lake._mirror.actions import Action, Add, CommitInfo, Metadata, Protocol, Remove, Transaction
from genus.lake._mirror.schema import Schemas, TableSchema
from genus.lake._mirror.statistics import file_statistics
from genus.lake._mirror.table_log import Head, TableLog
from genus.lake._tables.columns import DEAD, TABLES, table_folder
from genus.lake._tables.commits import Commit, Part, StoredFile
from genus.lake._tables.state import LedgerState
from genus.lake._tables.store import Store

NOTE_FILE = "_mirror.json"
_OPERATIONS: Mapping[str, str] = {"compact": "OPTIMIZE", "delete": "DELETE", "expire": "DELETE"}
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


class _Change(NamedTuple):
    """What one entry does to a table."""

    removed: Sequence[str]
    """Paths as in the log: relative to the table, percent-encoded."""
    added: Mapping[str, StoredFile]


class _Target(NamedTuple):
    """The version of the ledger that an entry leads to."""

    state: LedgerState
    kind: str
    schemas: Schemas


class Mirror:
    """The Delta logs of a lake's tables. State: the newest entry of each log, and the mirrored state of the ledger."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known = store.state()
        self._is_done = False
        """Whether the known state is mirrored in all tables."""
        self._heads: dict[str, Head] = {}
        """Of logs whose newest entry is of a commit of this ledger."""
        self._schemas = Schemas("")
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
        with self._lock:
            began = self._begin()
            self._follow()
            return self._result(began)

    def complete(self, progress: Callable[[int, int], object] | None = None) -> MirrorResult:
        """Mirror the commits that are not mirrored yet, and compare every table with the ledger."""
        with self._lock:
            began = self._begin()
            self._heads.clear()
            self._is_done = False
            self._compare_all(self._follow(), progress)
            return self._result(began)

    def forget_bounds(self) -> None:
        """Remove the statistics of files that the lake does not have any more: they may have deleted values."""
        with self._lock:
            state = self._store.state()
            present = {table_folder(table): _files(table, state.table(table)) for table in state.folders}
            for folder in self._table_folders():
                TableLog(self._store.files, f"{self._store.path}/{folder}").forget_bounds(present.get(folder, {}))

    def _table_folders(self) -> list[str]:
        """The folders of all tables that there ever were; some have no files any more."""
        found = self._store.files.list_folder(f"{self._store.path}/{TABLES}")
        return [*(f"{TABLES}/{each.name}" for each in found if each.is_folder), DEAD]

    def has_table(self, table: str) -> bool:
        """Whether there is a Delta log of a table."""
        return self._log(table).exists

    def _begin(self) -> float:
        self._written.clear()
        self._repaired.clear()
        return time.monotonic()

    def _result(self, began: float) -> MirrorResult:
        seconds = time.monotonic() - began
        tables, entries = len(set(self._written)), len(self._written)
        return MirrorResult(tables, entries, self._known.version, seconds, len(self._repaired))

    # -- which commits -----------------------------------------------------------------------------------------------

    def _follow(self) -> LedgerState:
        """Mirror commit by commit, or all at once where that is not possible; returns the state that is mirrored."""
        now = self._store.state()
        before = self._mirrored(now)
        commits = None if before is None else self._commits(before, now)
        if before is None or commits is None:
            self._compare_all(now)
            return now
        for commit in commits:
            after = now if commit.version == now.version else before.after(commit, "")
            self._mirror(before, commit, self._target(after, commit.kind))
            before = after
        return now

    def _commits(self, before: LedgerState, now: LedgerState) -> list[Commit] | None:
        """The commits after a state; None if they were folded and removed."""
        try:
            return self._store.ledger.commits(before.version, now.version)
        except LakeError:
            return None

    def _mirrored(self, now: LedgerState) -> LedgerState | None:
        """The last state that is mirrored in all tables; None if it is not known or not of this ledger."""
        if self._is_done:
            return self._known
        note = self._read_note()
        if note is None and not self._known.parts:
            return self._known  # a new lake
        if note is None or note.lake != now.lake or note.version > now.version:
            return None
        state = self._known if self._known.version == note.version else self._state_at(note.version)
        return state if state is not None and state.commit == note.commit else None

    def _state_at(self, version: int) -> LedgerState | None:
        try:
            return self._store.ledger.state_at(version)
        except LakeError:
            return None

    def _target(self, state: LedgerState, kind: str = "") -> _Target:
        if state.catalog != self._schemas.text:
            self._schemas = Schemas(state.catalog or "")
        return _Target(state, kind, self._schemas)

    def _read_note(self) -> _Note | None:
        content = self._store.files.read(f"{self._store.path}/{NOTE_FILE}")
        try:
            return None if content is None else msgspec.json.decode(content, type=_Note)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None

    def _note_done(self, state: LedgerState) -> None:
        note = _Note(state.lake, state.version, state.commit)
        self._store.files.replace(f"{self._store.path}/{NOTE_FILE}", msgspec.json.encode(note), durable=False)
        self._known, self._is_done = state, True

    # -- one commit --------------------------------------------------------------------------------------------------

    def _mirror(self, before: LedgerState, commit: Commit, target: _Target) -> None:
        """Mirror one commit in all tables that it changes."""
        removed = _by_table(before.parts[folder] for folder in commit.removed if folder in before.parts)
        added = _by_table(commit.added)
        tables = [*dict.fromkeys([*removed, *added, *(before.folders if commit.catalog is not None else ())])]
        changes = {table: _change(table, removed.get(table, []), added.get(table, [])) for table in tables}
        _in_parallel(lambda table: self._show(table, target, changes[table]), tables)
        self._note_done(target.state)

    def _show(self, table: str, target: _Target, change: _Change | None = None) -> None:
        """Make a table show a state: by the change since the state before, or by comparing the files."""
        log, version = self._log(table), target.state.version
        while True:
            head, is_known = self._head(table, log, target.state)
            if is_known and (_version(head) > version or (change is not None and _version(head) == version)):
                return  # another process has done it
            if change is None or not is_known:
                head, there = log.paths(head)
                is_known, change = is_known and not head.is_lost, _difference(table, there, target.state)
            if log.was_damaged:
                self._repaired.add(table)
            metadata = _metadata(table, head, target)
            if is_known and metadata is None and not any(change):
                return
            if self._append(table, log, head, self._entry(table, head, metadata, change, target)):
                return

    def _head(self, table: str, log: TableLog, state: LedgerState) -> tuple[Head, bool]:
        """The newest entry of a table's log, and whether it is of a commit of this ledger."""
        if table in self._heads:
            return self._heads[table], True
        head = log.head()
        if is_known := self._is_of_ledger(head, state):
            self._heads[table] = head
        return head, is_known

    def _is_of_ledger(self, head: Head, state: LedgerState) -> bool:
        """Whether an entry is of a commit of this ledger, not of one that was lost with a restore."""
        transaction = head.transaction
        if transaction is None or transaction.app_id != state.lake or not head.commit:
            return False
        for each in (self._known, state):
            if each.version == transaction.version:
                return each.commit == head.commit
        try:
            return self._store.ledger.commit_at(transaction.version).id == head.commit
        except LakeError:
            return False

    def _append(self, table: str, log: TableLog, head: Head, entry: Sequence[Action]) -> bool:
        """Write an entry; False if another process has written one."""
        made = log.append(head, entry)
        if made is None:
            self._heads.pop(table, None)
            return False
        self._heads[table] = made
        self._written.append(table)
        return True

    def _entry(
        self, table: str, head: Head, metadata: Metadata | None, change: _Change, target: _Target
    ) -> list[Action]:
        state, at_ms = target.state, target.state.at_us // 1000
        changes_data = target.kind != "compact"
        parameters = {"ledgerVersion": str(state.version), "commit": state.commit, "kind": target.kind or "mirror"}
        info = CommitInfo(at_ms, _OPERATIONS.get(target.kind, "WRITE"), parameters, "genus")
        return [
            Action(commit_info=info),
            *([Action(protocol=Protocol())] if head.version < 0 or head.is_lost else []),
            *([Action(meta_data=metadata)] if metadata is not None else []),
            Action(txn=Transaction(state.lake, state.version, at_ms)),
            *(Action(remove=_remove(path, at_ms, changes_data)) for path in change.removed),
            *(Action(add=each) for each in self._adds(table, change, at_ms, changes_data, target.schemas.of(table))),
        ]

    def _adds(self, table: str, change: _Change, at_ms: int, changes_data: bool, schema: TableSchema) -> Iterable[Add]:
        root = f"{self._store.path}/{table_folder(table)}"
        for path, file in change.added.items():
            stats = file_statistics(self._store.files, f"{root}/{unquote(path)}", file.rows, schema.columns)
            yield Add(path, _partition_values(path), file.bytes, at_ms, changes_data, stats)

    def _log(self, table: str) -> TableLog:
        return TableLog(self._store.files, f"{self._store.path}/{table_folder(table)}")

    # -- all at once -------------------------------------------------------------------------------------------------

    def _compare_all(self, state: LedgerState, progress: Callable[[int, int], object] | None = None) -> None:
        """Make every table show a state."""
        target = self._target(state)
        tables = sorted({*target.schemas.tables, *state.folders})
        for number, table in enumerate(tables, 1):
            if state.table(table) or self._log(table).exists:
                self._show(table, target)
            if progress is not None:
                progress(number, len(tables))
        self._note_done(state)


def _version(head: Head) -> int:
    """The version of the ledger that a table shows."""
    return 0 if head.transaction is None else head.transaction.version


def _metadata(table: str, head: Head, target: _Target) -> Metadata | None:
    """The metadata of a table, if they differ from those in its log."""
    schema, known = target.schemas.of(table), head.metadata
    if known is not None and known.schema_string == schema.text:
        return None
    id_ = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{target.state.lake}/{table}")) if known is None else known.id
    created = target.state.at_us // 1000 if known is None else known.created_time
    return Metadata(id_, table, schema.text, schema.partitions, created)


def _by_table(parts: Iterable[Part]) -> dict[str, list[Part]]:
    found: dict[str, list[Part]] = {}
    for part in parts:
        found.setdefault(part.table, []).append(part)
    return found


def _change(table: str, removed: Iterable[Part], added: Iterable[Part]) -> _Change:
    return _Change(list(_files(table, removed)), _files(table, added))


def _difference(table: str, there: set[str], state: LedgerState) -> _Change:
    """What must change in a table that has some files to show a state."""
    wanted = _files(table, state.table(table))
    return _Change(sorted(there - wanted.keys()), {path: file for path, file in wanted.items() if path not in there})


def _files(table: str, parts: Iterable[Part]) -> dict[str, StoredFile]:
    """The files of some parts by their paths in the log."""
    root = f"{table_folder(table)}/"
    return {
        quote(f"{part.folder.removeprefix(root)}/{file.name}", safe="/="): file for part in parts for file in part.files
    }


def _remove(path: str, at_ms: int, changes_data: bool) -> Remove:
    return Remove(path, changes_data, _partition_values(path), deletion_timestamp=at_ms)


def _partition_values(path: str) -> dict[str, str | None]:
    """The columns in the path of a file.

    >>> _partition_values("_commit=4f21/_day=2026-05-01/part-0.parquet")
    {'_commit': '4f21', '_day': '2026-05-01'}
    """
    pairs = [step.partition("=") for step in path.split("/")[:-1]]
    return {name: unquote(value) for name, _, value in pairs}


def _in_parallel(work: Callable[[str], None], tables: Sequence[str]) -> None:
    if len(tables) < 2:
        for table in tables:
            work(table)
        return
    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(work, tables))
