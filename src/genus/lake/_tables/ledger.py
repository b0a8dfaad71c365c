"""The ledger: which folders of Parquet files make up a store, as a log of numbered commits.

A writer puts its files into folders of its own, where nobody looks, and then creates the next commit file, which names
them. Creating a file that is not there yet succeeds for one writer only, so commits have an order, and a store changes
in one step or not at all; what a killed writer leaves behind is in no commit. A lake, its inboxes and derived tables
are stores with a ledger each.
"""

import threading
from collections.abc import Iterable, Mapping
from typing import Literal, TypeVar

import msgspec

from genus.errors import LakeDamaged
from genus.lake._tables.columns import Shape
from genus.lake._tables.files import Files

LOG = "_log"
DIGITS = 12
STATE = ".state.json"
EVERY = 64
"""After so many commits the state is written out, so that opening a store reads few files."""

Kind = Literal["create", "ingest", "compact", "deliver", "derive"]


class Part(msgspec.Struct, frozen=True):
    """A folder of Parquet files of one table."""

    table: str
    folder: str
    """Its path below the store's."""
    files: int
    rows: int
    bytes: int


class Source(msgspec.Struct, frozen=True):
    """Something that was read in: known by its content, not by its name."""

    number: int
    """64 bits of a hash of its content."""
    path: str
    bytes: int
    rows: int
    dead: int
    commit: str = ""


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """What a writer wants to commit."""

    id: str
    """The name of its folders."""
    kind: Kind
    at_us: int
    added: tuple[Part, ...] = ()
    removed: tuple[str, ...] = ()
    """Folders whose rows are in the added ones now."""
    sources: tuple[Source, ...] = ()
    shapes: tuple[Shape, ...] = ()
    after: int | None = None
    """Of a follower: the version of the lake it had come to before."""
    upto: int | None = None
    """And the version it comes to with this commit."""
    newest_us: int | None = None
    """When the newest of its events was recorded."""
    notes: Mapping[str, str] = {}


class Commit(Draft, frozen=True, kw_only=True):
    """A draft that was given its place."""

    version: int


class State(msgspec.Struct, frozen=True):
    """What all commits so far add up to."""

    version: int = 0
    parts: Mapping[str, Part] = {}
    """By folder."""
    sources: Mapping[int, Source] = {}
    """By number; each with the commit that read it last."""
    shapes: Mapping[str, Shape] = {}
    cursor: int = 0
    """Of a follower: the version of the lake that it has come to."""
    newest_us: int | None = None
    """When the newest event was recorded."""
    notes: Mapping[str, str] = {}

    def after(self, commit: Commit) -> "State":
        """The state with one more commit."""
        gone = set(commit.removed)
        kept = {folder: part for folder, part in self.parts.items() if folder not in gone}
        sources = {each.number: msgspec.structs.replace(each, commit=commit.id) for each in commit.sources}
        return State(
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


Numbered = TypeVar("Numbered", Commit, State)


class Overtaken(Exception):
    """Another writer committed what contradicts a draft: the same sources, the same parts or the same versions."""


class Ledger:
    """The commits of one store."""

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._folder = f"{path}/{LOG}"
        self._state = State()
        self._lock = threading.Lock()

    @property
    def exists(self) -> bool:
        """Whether there is a store at all."""
        return any(_is_commit(found.name) for found in self._files.listing(self._folder))

    def state(self) -> State:
        """What the store holds by now.

        The folder is listed when a store is opened, and after many commits; else the next commits are looked for by
        their names, for a stream of many years makes a long list.
        """
        with self._lock:
            if self._state.version == 0:
                self._state = self._listed(self._state)
            self._state = self._followed(self._state)
            return self._state

    def _followed(self, state: State) -> State:
        """A state with the commits that came after it."""
        for _ in range(EVERY):
            commit = self._decode(self._file(state.version + 1), Commit)
            if commit is None:
                return state
            state = state.after(commit)
        return self._listed(state)

    def _listed(self, state: State) -> State:
        """A state with all commits that are in the folder."""
        names = [found.name for found in self._files.listing(self._folder)]
        last = max((_version(name) for name in names if name.endswith(STATE)), default=0)
        if last > state.version:
            state = self._expected(self._state_file(last), State)
        for version in sorted(_version(name) for name in names if _is_commit(name)):
            if version > state.version + 1:
                raise LakeDamaged(f"{self._folder}: commit {state.version + 1} is missing, {version} is there")
            if version == state.version + 1:
                state = state.after(self._expected(self._file(version), Commit))
        return state

    def commits(self, after: int, upto: int) -> list[Commit]:
        """The commits of some versions, the first excluded."""
        return [self._expected(self._file(version), Commit) for version in range(after + 1, upto + 1)]

    def commit(self, draft: Draft) -> Commit:
        """Make a draft the next commit; Overtaken if another writer was there first."""
        while True:
            state = self.state()
            _check(draft, state)
            made = Commit(**msgspec.structs.asdict(draft), version=state.version + 1)
            if self._create(self._file(made.version), msgspec.json.encode(made)):
                self._write_out(made.version)
                return made

    def _create(self, path: str, content: bytes) -> bool:
        """Whether a file is now there with this content, even if a retry inside the file system found it there."""
        return self._files.create(path, content) or self._files.read(path) == content

    def _write_out(self, version: int) -> None:
        if version % EVERY == 0:
            state = self.state()
            self._files.create(self._state_file(state.version), msgspec.json.encode(state))
            self._files.delete(self._state_file(version - 2 * EVERY))  # the last but one may just be being read

    def _expected(self, path: str, type_: type[Numbered]) -> Numbered:
        found = self._decode(path, type_)
        if found is None:
            raise LakeDamaged(f"{path} is missing")
        return found

    def _decode(self, path: str, type_: type[Numbered]) -> Numbered | None:
        """What a file holds; None if there is no such file."""
        content = self._files.read(path)
        if content is None:
            return None
        try:
            found = msgspec.json.decode(content, type=type_)
        except (msgspec.DecodeError, UnicodeDecodeError) as problem:
            raise LakeDamaged(f"{path}: {problem}") from problem
        if found.version != _version(path.rpartition("/")[2]):
            raise LakeDamaged(f"{path}: it says that it is version {found.version}")
        return found

    def _state_file(self, version: int) -> str:
        return f"{self._folder}/{version:0{DIGITS}}{STATE}"

    def _file(self, version: int) -> str:
        return f"{self._folder}/{version:0{DIGITS}}.json"


def _is_commit(name: str) -> bool:
    return name.endswith(".json") and name[:-5].isdigit()


def _version(name: str) -> int:
    digits = name.partition(".")[0]
    return int(digits) if digits.isdigit() else 0


def _check(draft: Draft, state: State) -> None:
    known = [source.path for source in draft.sources if _is_stale(source, state)]
    if known:
        raise Overtaken(f"{known[0]} was read in by somebody else")
    if gone := set(draft.removed) - set(state.parts):
        raise Overtaken(f"{min(gone)} was removed by somebody else")
    if draft.after is not None and draft.after != state.cursor:
        raise Overtaken(f"version {draft.after} was followed by somebody else")


def _is_stale(source: Source, state: State) -> bool:
    """A source that is read again says which commit it builds on."""
    known = state.sources.get(source.number)
    return (known.commit if known else "") != source.commit


def rows_in(parts: Iterable[Part]) -> int:
    """The rows of some parts."""
    return sum(part.rows for part in parts)


def files_in(parts: Iterable[Part]) -> int:
    """The files of some parts."""
    return sum(part.files for part in parts)
