"""The folder of a ledger: one file per commit, folds of many commits, their sources, and a note of the newest one.

A commit is sealed with a checksum and names the seal of the commit before; `head.json` names the newest. So a commit
that is changed, replaced or removed is noticed.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from typing import NamedTuple

import msgspec

from genus.errors import LakeDamaged
from genus.lake._tables.commits import NO_SOURCES, Commit, SourceTableInfo, checksum, completed
from genus.lake._tables.file_systems import FileSystem
from genus.lake._tables.sources import TABLE_FROM, SourceTable, make_table

LOG_FOLDER = "_log"
DIGITS = 12
FOLD_SUFFIX, TABLE_SUFFIX = ".fold.json", ".sources"
_NAME = re.compile(r"(\d+)(?:-(\d+)\.fold)?\.json")
"""The name of a commit or a fold."""


class SealedCommit(NamedTuple):
    """A commit or a fold, and the checksum of the commit or of the last folded one."""

    commit: Commit
    seal: str
    table: SourceTable | None = None
    """The sources of a fold, if they are in a file of their own."""


class _Envelope(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of a commit file."""

    seal: str
    """The checksum of the text of the commit, and of `last`."""
    commit: msgspec.Raw
    last: str | None = None
    """In a fold: the seal of its last commit."""


class Head(msgspec.Struct, frozen=True):
    """The newest commit that its writer could note; it may be older than the newest one, not newer."""

    version: int
    seal: str
    check: str
    """The checksum of both, so that a damaged note is not taken for a missing commit."""

    @classmethod
    def of(cls, version: int, seal: str) -> "Head":
        return cls(version, seal, checksum(f"{version} {seal}".encode()))


class Listing:
    """The commits and folds in the folder of a ledger, each as its first and last version."""

    def __init__(self, names: list[str]) -> None:
        found = (match for match in map(_NAME.fullmatch, names) if match)
        self.spans = sorted((int(match[1]), int(match[2] or match[1])) for match in found)
        self.commits = {first for first, last in self.spans if first == last}
        self.folds = [(first, last) for first, last in self.spans if first < last]
        self.ends: dict[int, list[int]] = {}
        """For each version that a commit and folds begin with: the versions they end with, the largest first."""
        for first, last in reversed(self.spans):
            self.ends.setdefault(first, []).append(last)
        self._tables = [name for name in names if name.endswith(TABLE_SUFFIX)]

    @cached_property
    def last(self) -> int:
        return max((last for _, last in self.spans), default=0)

    def tables(self, *, used: bool) -> list[str]:
        """Return the files with the sources of folds that are there, or of folds that larger ones have replaced."""
        folds = {file_name(*each).removesuffix(FOLD_SUFFIX) for each in self.folds}
        return [name for name in self._tables if (name.rpartition("-")[0] in folds) == used]


class LedgerFolder:
    """Reads and writes the files of a ledger."""

    def __init__(self, files: FileSystem, path: str) -> None:
        self.files = files
        self.path = f"{path}/{LOG_FOLDER}"
        self.head_file = f"{self.path}/head.json"

    def file(self, first: int, last: int | None = None) -> str:
        """Return the path of a commit, or of the fold of several."""
        return f"{self.path}/{file_name(first, last or first)}"

    def listing(self, *, folds: bool = True) -> Listing:
        """Return the files of the ledger, with or without folds."""
        names = [found.name for found in self.files.list_folder(self.path)]
        return Listing([name for name in names if folds or FOLD_SUFFIX not in name])

    def read(self, first: int, last: int | None = None) -> SealedCommit | None:
        """Return a commit or fold; None if there is no such file, LakeDamaged if it is not what was written."""
        path = self.file(first, last)
        content = self.files.read(path)
        if content is None:
            return None
        try:
            envelope = msgspec.json.decode(content, type=_Envelope)
            if _seal_of(bytes(envelope.commit), envelope.last) != envelope.seal:
                raise LakeDamaged(f"{path}: the content was changed, its checksum differs; restore it from a backup")
            commit = msgspec.json.decode(envelope.commit, type=Commit)
        except (msgspec.DecodeError, UnicodeDecodeError) as problem:
            raise LakeDamaged(f"{path}: {problem}; restore it from a backup") from problem
        if (commit.since, commit.version) != (first, last or first):
            raise LakeDamaged(f"{path}: the file holds version {commit.version}; restore it from a backup")
        info = commit.table
        table = None if info is None else SourceTable(self.files, f"{self.path}/{info.name}", info)
        return SealedCommit(completed(commit), envelope.last or envelope.seal, table)

    def create(self, commit: Commit) -> str | None:
        """Write a commit and return its seal; None if another writer has created the file.

        A file with this content already is taken for ours, as after a retry inside the file system.
        """
        content, seal = _sealed(commit)
        path = self.file(commit.version)
        return seal if self.files.create(path, content) or self.files.read(path) == content else None

    def create_fold(self, folded: Commit, steps: Sequence[SealedCommit]) -> None:
        """Write the fold of some commits and folds, unless it is there; of one fold, in its place."""
        content, _ = _sealed(self._with_table(folded, steps), last=steps[-1].seal)
        write = self.files.create if len(steps) > 1 else self.files.replace
        write(self.file(folded.since, folded.version), content)

    def _with_table(self, folded: Commit, steps: Sequence[SealedCommit]) -> Commit:
        """Return a fold with its sources in a file, if they are many; those that are too old are forgotten."""
        if len(folded.sources) < TABLE_FROM and not any(step.table for step in steps):
            return folded
        given = [(table or commit.sources, commit.at_us) for commit, _, table in steps]
        content, counts, forgotten = make_table(given, folded.at_us)
        folded = msgspec.structs.replace(folded, sources=(), counts=(folded.counts or NO_SOURCES) - forgotten)
        if not counts.sources:
            return folded
        found = checksum(content)
        name = file_name(folded.since, folded.version).replace(FOLD_SUFFIX, f"-{found[:8]}{TABLE_SUFFIX}")
        info = SourceTableInfo(name, found, counts)
        self.files.create(f"{self.path}/{info.name}", content)
        return msgspec.structs.replace(folded, table=info)

    def note_head(self, version: int, seal: str) -> None:
        self.files.replace(self.head_file, msgspec.json.encode(Head.of(version, seal)), durable=False)

    def head(self) -> Head | None:
        """Return the newest commit that was noted; None if there is no such note, or a damaged one."""
        content = self.files.read(self.head_file)
        with suppress(msgspec.DecodeError, UnicodeDecodeError):
            head = None if content is None else msgspec.json.decode(content, type=Head)
            return head if head is not None and head == Head.of(head.version, head.seal) else None
        return None

    @property
    def head_is_damaged(self) -> bool:
        return self.head() is None and self.files.read(self.head_file) is not None


def file_name(first: int, last: int) -> str:
    """Return the name of a commit, or of the fold of several."""
    return f"{first:0{DIGITS}}.json" if first == last else f"{first:0{DIGITS}}-{last:0{DIGITS}}{FOLD_SUFFIX}"


def _sealed(commit: Commit, last: str | None = None) -> tuple[bytes, str]:
    text = msgspec.json.encode(commit)
    seal = _seal_of(text, last)
    return msgspec.json.encode(_Envelope(seal, msgspec.Raw(text), last)), seal


def _seal_of(text: bytes, last: str | None) -> str:
    return checksum(text if last is None else text + last.encode())
