"""The folder of a ledger: one file per commit, folds of many commits, and a note of the newest one.

A commit is sealed with a checksum and names the seal of the commit before; `head.json` names the newest. So a commit
that is changed, replaced or removed is noticed.
"""

from contextlib import suppress
from functools import cached_property
from typing import NamedTuple

import msgspec

from genus.errors import LakeDamaged
from genus.lake._tables.commits import Commit, checksum
from genus.lake._tables.files import FileSystem

LOG_FOLDER = "_log"
DIGITS = 12
FOLD_SUFFIX = ".fold.json"


class SealedCommit(NamedTuple):
    """A commit or a fold, and the checksum of the commit or of the last folded one."""

    commit: Commit
    seal: str


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
        """The note of a commit."""
        return cls(version, seal, checksum(f"{version} {seal}".encode()))


class Listing:
    """The commits and folds in the folder of a ledger."""

    def __init__(self, names: list[str]) -> None:
        self.commits = {int(name[:-5]) for name in names if _is_commit(name)}
        self.folds: dict[int, list[int]] = {}
        """For each version that folds begin with: the versions they end with, the largest first."""
        for first, last in sorted(map(_range_of, filter(_is_fold, names)), reverse=True):
            self.folds.setdefault(first, []).append(last)

    @classmethod
    def of_commits(cls, first: int, last: int) -> "Listing":
        """The commits of some versions."""
        return cls([commit_name(version) for version in range(first, last + 1)])

    @classmethod
    def of_folds(cls, first: int, last: int, size: int) -> "Listing":
        """The folds of `size` commits each that cover some versions."""
        return cls([fold_name(begin, begin + size - 1) for begin in range(first, last + 1, size)])

    def without_folds(self) -> "Listing":
        """The commits alone."""
        return Listing([commit_name(version) for version in self.commits])

    @cached_property
    def last(self) -> int:
        """The newest version that is there; 0 if there is none."""
        return max([*self.commits, *(last for _, last in self.fold_ranges)], default=0)

    @property
    def fold_ranges(self) -> list[tuple[int, int]]:
        """The first and the last version of each fold."""
        return sorted((first, last) for first, ends in self.folds.items() for last in ends)


class LedgerFolder:
    """Reads and writes the files of a ledger."""

    def __init__(self, files: FileSystem, path: str) -> None:
        self._files = files
        self.path = f"{path}/{LOG_FOLDER}"

    def file(self, version: int) -> str:
        """The path of a commit."""
        return f"{self.path}/{commit_name(version)}"

    def fold_file(self, first: int, last: int) -> str:
        """The path of a fold."""
        return f"{self.path}/{fold_name(first, last)}"

    @property
    def head_file(self) -> str:
        """The path of the note of the newest commit."""
        return f"{self.path}/head.json"

    def listing(self) -> Listing:
        """What is in the folder."""
        return Listing([found.name for found in self._files.list_folder(self.path)])

    def has_commit(self, version: int) -> bool:
        """Whether the file of a commit is there."""
        return self._files.read(self.file(version)) is not None

    def commit(self, version: int) -> SealedCommit | None:
        """The commit with a number; None if there is no such file, LakeDamaged if it is not what was written."""
        return self.decode(self.file(version))

    def fold(self, first: int, last: int) -> SealedCommit | None:
        """The fold of some commits; None if there is no such file, LakeDamaged if it is not what was written."""
        return self.decode(self.fold_file(first, last))

    def decode(self, path: str) -> SealedCommit | None:
        """The commit or fold in a file; None if there is no such file, LakeDamaged if it is not what was written."""
        content = self._files.read(path)
        if content is None:
            return None
        try:
            envelope = msgspec.json.decode(content, type=_Envelope)
            if _seal_of(bytes(envelope.commit), envelope.last) != envelope.seal:
                raise LakeDamaged(f"{path}: the content was changed, its checksum differs; restore it from a backup")
            commit = msgspec.json.decode(envelope.commit, type=Commit)
        except (msgspec.DecodeError, UnicodeDecodeError) as problem:
            raise LakeDamaged(f"{path}: {problem}; restore it from a backup") from problem
        if path not in (self.file(commit.version), self.fold_file(commit.since, commit.version)):
            raise LakeDamaged(f"{path}: the file holds version {commit.version}; restore it from a backup")
        return SealedCommit(commit, envelope.last or envelope.seal)

    def create(self, commit: Commit) -> str | None:
        """Write a commit and return its seal; None if another writer has created the file.

        A file with this content already is taken for ours, as after a retry inside the file system.
        """
        content, seal = _sealed(commit)
        path = self.file(commit.version)
        return seal if self._files.create(path, content) or self._files.read(path) == content else None

    def create_fold(self, folded: Commit, seal: str) -> None:
        """Write a fold, unless it is there; `seal` is that of its last commit."""
        content, _ = _sealed(folded, last=seal)
        self._files.create(self.fold_file(folded.since, folded.version), content)

    def delete(self, path: str) -> None:
        """Remove a commit or a fold."""
        self._files.delete(path)

    def note_head(self, version: int, seal: str) -> None:
        """Note the newest commit."""
        self._files.replace(self.head_file, msgspec.json.encode(Head.of(version, seal)), durable=False)

    def head(self) -> Head | None:
        """The newest commit that was noted; None if there is no such note, or a damaged one."""
        content = self._files.read(self.head_file)
        with suppress(msgspec.DecodeError, UnicodeDecodeError):
            head = None if content is None else msgspec.json.decode(content, type=Head)
            return head if head is not None and head == Head.of(head.version, head.seal) else None
        return None

    @property
    def head_is_damaged(self) -> bool:
        """Whether there is a note of the newest commit that cannot be read."""
        return self.head() is None and self._files.read(self.head_file) is not None


def commit_name(version: int) -> str:
    """The name of the file of a commit."""
    return f"{version:0{DIGITS}}.json"


def fold_name(first: int, last: int) -> str:
    """The name of the file of a fold."""
    return f"{first:0{DIGITS}}-{last:0{DIGITS}}{FOLD_SUFFIX}"


def _sealed(commit: Commit, last: str | None = None) -> tuple[bytes, str]:
    """The content of a commit file, and the seal."""
    text = msgspec.json.encode(commit)
    seal = _seal_of(text, last)
    return msgspec.json.encode(_Envelope(seal, msgspec.Raw(text), last)), seal


def _seal_of(text: bytes, last: str | None) -> str:
    return checksum(text if last is None else text + last.encode())


def _is_commit(name: str) -> bool:
    return name.endswith(".json") and name[:-5].isdigit()


def _is_fold(name: str) -> bool:
    digits = name.removesuffix(FOLD_SUFFIX)
    return digits != name and digits.replace("-", "", 1).isdigit() and "-" in digits


def _range_of(name: str) -> tuple[int, int]:
    first, _, last = name.removesuffix(FOLD_SUFFIX).partition("-")
    return int(first), int(last)
