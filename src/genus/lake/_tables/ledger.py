"""The ledger of a store: a log of numbered commits that names the folders of Parquet files that belong to it.

A writer puts its files into new folders, which readers do not look at, and then creates the next commit file, which
names them. Creating a file succeeds for one writer only. So commits are ordered, a store changes atomically, and files
that a killed writer left behind are in no commit. A lake, its inboxes and its derived tables each have a ledger.
"""

import threading
from collections.abc import Iterable, Mapping
from typing import Literal, TypeVar

import msgspec

from genus.errors import LakeDamaged
from genus.lake._tables.columns import Shape
from genus.lake._tables.files import FileSystem

LOG_FOLDER = "_log"
DIGITS = 12
STATE_SUFFIX = ".state.json"
STATE_INTERVAL = 64
"""The state is written to a file after this many commits, so that opening a store reads few files."""

Kind = Literal["create", "ingest", "compact", "deliver", "derive"]


class Part(msgspec.Struct, frozen=True):
    """A folder of Parquet files of one table."""

    table: str
    folder: str
    """Path relative to the store."""
    files: int
    rows: int
    bytes: int


class IngestedFile(msgspec.Struct, frozen=True):
    """A file that was ingested, identified by its content."""

    number: int
    """64 bits of a hash of the content."""
    path: str
    bytes: int
    rows: int
    dead: int
    """Number of dead letters."""
    commit: str = ""
    """Id of the commit that ingested it last."""


class CommitDraft(msgspec.Struct, frozen=True, kw_only=True):
    """Changes that a writer wants to commit."""

    id: str
    """Unique name, part of the names of the writer's folders."""
    kind: Kind
    at_us: int
    added: tuple[Part, ...] = ()
    removed: tuple[str, ...] = ()
    """Folders that the added parts replace."""
    sources: tuple[IngestedFile, ...] = ()
    shapes: tuple[Shape, ...] = ()
    after: int | None = None
    """In the store of a follower: the version of the lake that was processed before."""
    upto: int | None = None
    """In the store of a follower: the version of the lake that is processed with this commit."""
    newest_us: int | None = None
    """The latest time of recording among the added events."""
    notes: Mapping[str, str] = {}


class Commit(CommitDraft, frozen=True, kw_only=True):
    """A committed draft."""

    version: int


class LedgerState(msgspec.Struct, frozen=True):
    """The result of all commits up to a version."""

    version: int = 0
    parts: Mapping[str, Part] = {}
    """By folder."""
    sources: Mapping[int, IngestedFile] = {}
    """Ingested files by number."""
    shapes: Mapping[str, Shape] = {}
    """By `Shape.key`."""
    cursor: int = 0
    """In the store of a follower: the version of the lake that has been processed."""
    newest_us: int | None = None
    """The latest time of recording among all events."""
    notes: Mapping[str, str] = {}

    def after(self, commit: Commit) -> "LedgerState":
        """The state after one more commit."""
        gone = set(commit.removed)
        kept = {folder: part for folder, part in self.parts.items() if folder not in gone}
        sources = {each.number: msgspec.structs.replace(each, commit=commit.id) for each in commit.sources}
        return LedgerState(
            commit.version,
            kept | {part.folder: part for part in commit.added},
            {**self.sources, **sources},
            {**self.shapes, **{shape.key: shape for shape in commit.shapes}},
            self.cursor if commit.upto is None else commit.upto,
            max((each for each in (self.newest_us, commit.newest_us) if each is not None), default=None),
            {**self.notes, **commit.notes},
        )

    def table(self, name: str) -> list[Part]:
        """The parts of one table."""
        return [part for part in self.parts.values() if part.table == name]

    @property
    def tables(self) -> list[str]:
        """The tables that have parts."""
        return sorted({part.table for part in self.parts.values()})


Numbered = TypeVar("Numbered", Commit, LedgerState)


class CommitConflict(Exception):
    """Another writer has committed the same sources, removed the same parts or processed the same versions."""


class Ledger:
    """The commits of one store."""

    def __init__(self, files: FileSystem, path: str) -> None:
        self._files = files
        self._folder = f"{path}/{LOG_FOLDER}"
        self._state = LedgerState()
        self._lock = threading.Lock()

    @property
    def exists(self) -> bool:
        """Whether the store has any commit."""
        return any(_is_commit(found.name) for found in self._files.list_folder(self._folder))

    def state(self) -> LedgerState:
        """The present state of the store.

        The folder is listed when a store is opened and after many commits. Otherwise the next commits are looked up by
        name, because the folder of a long-running stream has many files.
        """
        with self._lock:
            if self._state.version == 0:
                self._state = self._list_commits(self._state)
            self._state = self._read_next(self._state)
            return self._state

    def _read_next(self, state: LedgerState) -> LedgerState:
        """Add the commits after a state, looked up by name."""
        for _ in range(STATE_INTERVAL):
            commit = self._decode(self._file(state.version + 1), Commit)
            if commit is None:
                return state
            state = state.after(commit)
        return self._list_commits(state)

    def _list_commits(self, state: LedgerState) -> LedgerState:
        """Add all commits in the folder, beginning with the newest state file."""
        names = [found.name for found in self._files.list_folder(self._folder)]
        last = max((_version(name) for name in names if name.endswith(STATE_SUFFIX)), default=0)
        if last > state.version:
            state = self._require(self._state_file(last), LedgerState)
        for version in sorted(_version(name) for name in names if _is_commit(name)):
            if version > state.version + 1:
                raise LakeDamaged(f"{self._folder}: commit {state.version + 1} is missing, but {version} exists")
            if version == state.version + 1:
                state = state.after(self._require(self._file(version), Commit))
        return state

    def commits(self, after: int, upto: int) -> list[Commit]:
        """The commits with versions above `after`, up to and including `upto`."""
        return [self._require(self._file(version), Commit) for version in range(after + 1, upto + 1)]

    def commit(self, draft: CommitDraft) -> Commit:
        """Make a draft the next commit; CommitConflict if another writer's commit contradicts it."""
        while True:
            state = self.state()
            _check(draft, state)
            made = Commit(**msgspec.structs.asdict(draft), version=state.version + 1)
            if self._create(self._file(made.version), msgspec.json.encode(made)):
                self._write_state(made.version)
                return made

    def _create(self, path: str, content: bytes) -> bool:
        """Create a file; also True if it has this content already, as after a retry inside the file system."""
        return self._files.create(path, content) or self._files.read(path) == content

    def _write_state(self, version: int) -> None:
        if version % STATE_INTERVAL == 0:
            state = self.state()
            self._files.create(self._state_file(state.version), msgspec.json.encode(state))
            # The last state file but one is kept: a reader may be opening it.
            self._files.delete(self._state_file(version - 2 * STATE_INTERVAL))

    def _require(self, path: str, type_: type[Numbered]) -> Numbered:
        found = self._decode(path, type_)
        if found is None:
            raise LakeDamaged(f"{path} is missing")
        return found

    def _decode(self, path: str, type_: type[Numbered]) -> Numbered | None:
        """The decoded content of a file; None if there is no such file."""
        content = self._files.read(path)
        if content is None:
            return None
        try:
            found = msgspec.json.decode(content, type=type_)
        except (msgspec.DecodeError, UnicodeDecodeError) as problem:
            raise LakeDamaged(f"{path}: {problem}") from problem
        if found.version != _version(path.rpartition("/")[2]):
            raise LakeDamaged(f"{path}: the file holds version {found.version}")
        return found

    def _state_file(self, version: int) -> str:
        return f"{self._folder}/{version:0{DIGITS}}{STATE_SUFFIX}"

    def _file(self, version: int) -> str:
        return f"{self._folder}/{version:0{DIGITS}}.json"


def _is_commit(name: str) -> bool:
    return name.endswith(".json") and name[:-5].isdigit()


def _version(name: str) -> int:
    digits = name.partition(".")[0]
    return int(digits) if digits.isdigit() else 0


def _check(draft: CommitDraft, state: LedgerState) -> None:
    """Raise CommitConflict if the draft was made for another state."""
    known = [source.path for source in draft.sources if _is_stale(source, state)]
    if known:
        raise CommitConflict(f"{known[0]} was ingested by another process")
    if gone := set(draft.removed) - set(state.parts):
        raise CommitConflict(f"{min(gone)} was removed by another process")
    if draft.after is not None and draft.after != state.cursor:
        raise CommitConflict(f"version {draft.after} was processed by another process")


def _is_stale(source: IngestedFile, state: LedgerState) -> bool:
    """Whether a source was ingested since the commit that the draft is based on."""
    known = state.sources.get(source.number)
    return (known.commit if known else "") != source.commit


def count_rows(parts: Iterable[Part]) -> int:
    """The number of rows in some parts."""
    return sum(part.rows for part in parts)


def count_files(parts: Iterable[Part]) -> int:
    """The number of files in some parts."""
    return sum(part.files for part in parts)
