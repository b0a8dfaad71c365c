"""A store: a folder with a ledger and tables of Parquet files, as a lake, its inboxes or a derived table."""

import os
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import lru_cache
from itertools import islice

import msgspec

from genus.errors import LakeDamaged, LakeError
from genus.lake._tables.commits import COMMIT, Commit, CommitDraft, Kind, Part, StoredFile, checksum
from genus.lake._tables.file_systems import FileSystem, direct_file_system, walk_files
from genus.lake._tables.files import FileInfo, absolute_path, local_path, sync
from genus.lake._tables.ledger import Ledger
from genus.lake._tables.ledger_folder import LOG_FOLDER
from genus.lake._tables.state import LedgerState

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

DRAFTS = "_drafts"
HOLDS = "holds"
"""The note of the first commit that says what a store is: a key of `_STORES`."""
MIRROR_NOTE, OFF = "mirror", "off"
"""The note of a lake whose commits are not mirrored."""
_STORES = {
    "lake": "a lake; open it with Lake or LakeReader",
    "inboxes": "the inboxes of a lake; open it with Inboxes",
    "derived": "a derived table; open it with DerivedTable or read_results",
    "function": "what a function of a stream has processed; it belongs to Stream.for_each",
}
GLOB = "*?[]{}\\"
"""Characters that Spark takes for a pattern in a path."""
MAX_WRITE_S = 86_400.0
"""A folder in no commit and younger than this may belong to a running writer."""
_THREADS = 4
_RECENT = 1000
"""An interrupted commit is looked for among as many of the last ones."""


class Drafts:
    """The drafts of one store that are being written: whose folders a running writer still needs.

    A writer holds a lock on a file of its draft until the draft is committed or discarded. The operating system
    releases the lock when the process ends, however it ends, so that the files of a killed writer are known and can be
    removed. On file systems without such locks there are no such files, and the age of a folder decides.
    """

    def __init__(self, path: str) -> None:
        local = local_path(path)
        self._folder = None if local is None or fcntl is None else f"{local}/{DRAFTS}"
        self._open: dict[str, tuple[int, int | None]] = {}
        """The thread that writes each draft of this process, and the descriptor of the locked file."""

    def begin(self, id: str) -> None:
        """Note that this thread writes files of a draft."""
        if id not in self._open:
            self._open[id] = threading.get_ident(), self._lock(id, create=True)

    def end(self, id: str) -> None:
        _, lock = self._open.pop(id, (0, None))
        if lock is not None:
            self.forget(id)
            os.close(lock)

    def forget(self, id: str) -> None:
        if self._folder is not None:
            with suppress(OSError):
                os.unlink(f"{self._folder}/{id}")

    def mine(self) -> set[str]:
        return {id for id, (thread, _) in self._open.items() if thread == threading.get_ident()}

    def has_ended(self, id: str) -> bool:
        """Return whether the writer of a draft is known to have ended without committing or discarding it."""
        lock = None if id in self._open else self._lock(id)
        if lock is not None:
            os.close(lock)
        return lock is not None

    def ended(self) -> Iterator[str]:
        """Yield the drafts whose writers have ended without committing or discarding them."""
        if self._folder is not None:
            with suppress(OSError):
                yield from filter(self.has_ended, sorted(os.listdir(self._folder)))

    def _lock(self, id: str, *, create: bool = False) -> int | None:
        """Lock the file of a draft; None where that is not possible: others hold it, or the disk is full."""
        if self._folder is None:
            return None
        with suppress(OSError):
            if create:
                os.makedirs(self._folder, exist_ok=True)
            descriptor = os.open(f"{self._folder}/{id}", os.O_RDWR | (os.O_CREAT if create else 0), 0o666)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return descriptor
            except OSError:
                os.close(descriptor)
        return None


class StoreProblem(msgspec.Struct, frozen=True):
    """A difference between a ledger and the files it names; found by `Lake.check` and `Inboxes.check`."""

    path: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"


class Store:
    """Tables of Parquet files that change by commits; needs no Spark.

    Args:
        path: The folder.
        files: Its file system; by default that of a local path or of s3://, LakeError for paths elsewhere.
    """

    def __init__(self, path: str | os.PathLike[str], files: FileSystem | None = None) -> None:
        self.path = absolute_path(path)
        if found := [sign for sign in GLOB if sign in self.path]:
            raise LakeError(f"{self.path}: Spark takes {found[0]!r} in a path for a pattern; choose another folder")
        if (files := files or direct_file_system(self.path)) is None:
            raise LakeError(
                f"{self.path} is neither a local folder nor in s3://; without Spark, only such lakes can be opened"
            )
        self.files: FileSystem = files
        self.ledger = Ledger(self.files, self.path)
        self.drafts = Drafts(self.path)
        self.on_commit: Callable[[Commit], object] | None = None
        """Called after each commit through this object; must not raise."""

    def state(self) -> LedgerState:
        return self.ledger.state()

    def file_paths(self, parts: Iterable[Part]) -> list[str]:
        """Return the absolute paths of the files of some parts; LakeDamaged if a local one is not what was committed.

        Sizes are compared at every call, footers and small files once in a process: readers notice damaged pages
        themselves, by the checksums of pages, but not damaged footers and headers of pages.
        """
        found = [(f"{self.path}/{part.folder}/{file.name}", file) for part in parts for file in part.files]
        if local_path(self.path) is not None:
            for path, file in found:
                _check_file(path, file)
        return [path for path, _ in found]

    # -- commits -----------------------------------------------------------------------------------------------------

    def begin(self, kind: Kind) -> CommitDraft:
        return CommitDraft(id=uuid.uuid4().hex[:16], kind=kind, at_us=time.time_ns() // 1000)

    def check_holds(self, what: str) -> None:
        """Raise LakeError if the store is of another kind, such as the inboxes of a lake instead of a lake."""
        held = self.state().notes.get(HOLDS, "lake")
        if held != what:
            raise LakeError(f"{self.path} is {_STORES.get(held, held)}, or choose another folder")

    def claim(self, lake: "Store", holds: str, **notes: str) -> None:
        """Create the store of a follower of a lake with notes, or check that an existing one has them.

        LakeError if it is a store of another kind, follows another lake or has other notes.
        """
        notes |= {"lake": lake.state().lake, HOLDS: holds}
        if not self.ledger.exists:
            created = msgspec.structs.replace(self.begin("create"), notes={**notes, "path": lake.path})
            self.commit(created)
        self.check_holds(holds)
        known = self.state().notes
        if known.get("lake") != notes["lake"]:
            raise LakeError(
                f"{self.path} is of another lake, which was at {known.get('path')} when it was created, not of the one "
                f"that is at {lake.path} now; choose another folder"
            )
        if different := [name for name, text in notes.items() if known.get(name) != text]:
            name = different[0]
            held = known.get(name) or "none"
            raise LakeError(f"{self.path} is of another {name}: {held}, not {notes[name]}; choose another folder")

    def commit(self, draft: CommitDraft) -> Commit:
        """Commit a draft, at the present time; CommitConflict if another writer's commit contradicts it.

        The names of its files are on disk before; their contents were flushed by those who wrote them.
        """
        if local_path(self.path) is not None:
            for folder in folders_above(self.path, (part.folder for part in draft.added)):
                sync(folder)
        made = self.ledger.commit(msgspec.structs.replace(draft, at_us=time.time_ns() // 1000))
        self.drafts.end(draft.id)
        if self.on_commit is not None:
            self.on_commit(made)
        return made

    def discard(self, draft: CommitDraft) -> None:
        self._discard(draft.id)

    def _discard(self, id: str) -> None:
        for found in self._commit_folders(self.path):
            if draft_of(found.path) == id:
                self.files.delete(found.path)
        self.drafts.end(id)

    @contextmanager
    def discarding(self) -> Iterator[None]:
        """Remove the files of drafts that the block has begun and not committed, if an exception leaves it."""
        before = self.drafts.mine()
        try:
            yield
        except BaseException:
            for id in self.drafts.mine() - before:
                with suppress(LakeError, OSError):  # the exception of the block is raised
                    if all(commit.id != id for commit in islice(self.ledger.history(), _RECENT)):
                        self._discard(id)
                self.drafts.end(id)
            raise

    # -- files that no commit names ----------------------------------------------------------------------------------

    def leftovers(self, tables: Sequence[str], older_than_s: float) -> list[str]:
        """Folders removed from the store at least `older_than_s` ago, and old ones that were never committed."""
        now = time.time()
        unused = self._unused(tables)
        last_used = self._last_used(unused, now)
        return [
            f"{self.path}/{folder}"
            for folder, changed in unused.items()
            if (
                last_used[folder] <= (now - older_than_s) * 1e6
                if folder in last_used
                else self._is_left(folder, now - changed, older_than_s)
            )
        ]

    def _unused(self, tables: Sequence[str]) -> dict[str, float]:
        """Return the folders of some tables that the present state does not name, and when they were changed last."""
        parts = self.state().parts
        commits = (each for table in tables for each in self._commit_folders(f"{self.path}/{table}"))
        found = (each for commit in commits for each in self._days(commit) or [commit])
        return {
            inner: max((file.modified for file in walk_files(self.files, each.path)), default=each.modified)
            for each in found
            if (inner := each.path[len(self.path) + 1 :]) not in parts
        }

    def _last_used(self, folders: Mapping[str, float], now: float) -> dict[str, int]:
        """When the last commits that name some folders were made, not after later ones and the present time.

        Commits that are much older than the folders cannot name them, and are not read.
        """
        found: dict[str, int] = {}
        missing, at_us = set(folders), round(now * 1e6)
        first_us = (min([now, *folders.values()]) - MAX_WRITE_S) * 1e6
        for commit in self.ledger.history() if folders else ():
            at_us = min(at_us, commit.at_us)
            if not missing or at_us < first_us:
                break
            for folder in missing & {*(part.folder for part in commit.added), *commit.removed}:
                found[folder] = at_us
                missing.discard(folder)
        return found

    def _is_left(self, folder: str, age: float, older_than_s: float) -> bool:
        """Return whether a folder in no commit was left by a writer: by one that has ended, or that long ago."""
        longest = max(older_than_s, MAX_WRITE_S)
        return age > longest or (age >= older_than_s and self.drafts.has_ended(draft_of(folder)))

    def _days(self, commit: FileInfo) -> list[FileInfo]:
        return [found for found in self.files.list_folder(commit.path) if found.is_folder]

    def _commit_folders(self, folder: str) -> Iterator[FileInfo]:
        for found in self.files.list_folder(folder):
            if found.is_folder and commit_of(found.path):
                yield found
            elif found.is_folder and not found.name.startswith(("_", ".")):
                yield from self._commit_folders(found.path)

    def clean(self, tables: Sequence[str], older_than_s: float) -> int:
        """Remove the leftover folders of some tables, and commits that old that are folded; counts the folders."""
        leftovers = self.leftovers(tables, older_than_s)
        self.remove(leftovers)
        ended = set(self.drafts.ended())
        for id in ended.difference(draft_of(found.path) for found in self._commit_folders(self.path)) if ended else ():
            self.drafts.forget(id)
        tables = self.ledger.folder.listing().tables(used=False)  # a process may still search new ones
        for found in self.files.list_folder(f"{self.path}/{LOG_FOLDER}"):
            if (found.name.startswith(".") or found.name in tables) and found.modified < time.time() - MAX_WRITE_S:
                self.files.delete(found.path)
        self.ledger.forget(int((time.time() - older_than_s) * 1e6))
        return len(leftovers)

    def remove(self, folders: Iterable[str]) -> None:
        """Remove folders, and the commit folders that are empty then."""
        removed = list(folders)
        for path in removed:
            self.files.delete(path)
        for above in {path.rpartition("/")[0] for path in removed}:
            if commit_of(above) and not self.files.list_folder(above):
                self.files.delete(above)

    # -- checks ------------------------------------------------------------------------------------------------------

    def check(
        self, *, content: bool = True, progress: Callable[[int, int], object] | None = None
    ) -> Iterator[StoreProblem]:
        """Files that differ from what the ledger says; with `content`, their checksums are compared."""
        for path, text in self.ledger.problems():
            yield StoreProblem(path, text)
        parts = list(self.state().parts.values())
        with ThreadPoolExecutor(_THREADS) as pool:
            for number, found in enumerate(pool.map(lambda part: self._problems(part, content), parts), 1):
                yield from found
                if progress is not None:
                    progress(number, len(parts))

    def _problems(self, part: Part, content: bool) -> list[StoreProblem]:
        folder = f"{self.path}/{part.folder}"
        there = {found.name: found for found in self.files.list_folder(folder)}
        named = {file.name: file for file in part.files}
        strays = [name for name in there if name not in named and name.endswith(".parquet")]
        texts = {name: self._problem(folder, file, there.get(name), content) for name, file in named.items()}
        texts |= dict.fromkeys(strays, "is in no commit and is not read; remove it")
        return [StoreProblem(f"{folder}/{name}", text) for name, text in texts.items() if text]

    def _problem(self, folder: str, file: StoredFile, found: FileInfo | None, content: bool) -> str:
        if found is None:
            return f"is missing; it had {file.rows} rows"
        if found.size != file.bytes:
            return f"has {found.size} bytes, not the {file.bytes} that were committed"
        if content and checksum(self.files.read(f"{folder}/{file.name}") or b"") != file.checksum:
            return "has another content than was committed; its checksum differs"
        return ""


_SMALL = 1 << 16
"""Files of at most this size are compared as a whole before they are read."""


def _check_file(path: str, file: StoredFile) -> None:
    """Raise LakeDamaged if a file is missing or not what was committed, as far as it can be seen quickly."""
    try:
        status = os.stat(path)
        _compare(path, file, status.st_size, (status.st_ino, status.st_mtime_ns))
    except OSError as error:
        raise LakeDamaged(
            f"{path} cannot be read ({error.strerror}); it has {file.rows} rows; restore it from a backup"
        ) from error


@lru_cache(maxsize=200_000)
def _compare(path: str, file: StoredFile, size: int, identity: tuple[int, int]) -> None:
    """Compare a file with what was committed; once, until its number or the time of its last change is another."""
    problem = "" if size == file.bytes else f"has {size} bytes, not the {file.bytes} that were committed"
    if not problem and (size <= _SMALL or file.footer):
        with open(path, "rb") as opened:
            if size <= _SMALL and checksum(opened.read()) != file.checksum:
                problem = "has another content than was committed"
            elif size > _SMALL:
                opened.seek(-8, os.SEEK_END)
                opened.seek(-min(size, 8 + int.from_bytes(opened.read(4), "little")), os.SEEK_END)
                problem = "" if checksum(opened.read()) == file.footer else "has another footer than was committed"
    if problem:
        raise LakeDamaged(f"{path} {problem}; restore it from a backup")


def folders_above(root: str, folders: Iterable[str]) -> list[str]:
    """Some folders and those above them, up to the root; the paths are relative to it."""
    steps = [folder.split("/") for folder in folders]
    return sorted({"/".join([root, *each[:upto]]) for each in steps for upto in range(len(each) + 1)})


def commit_of(folder: str) -> str:
    """Return the id of the commit that a folder belongs to; empty if there is none.

    >>> commit_of("tables/Loop/_commit=4f21/_day=2026-05-01")
    '4f21'
    """
    return folder.partition(f"{COMMIT}=")[2].partition("/")[0]


def draft_of(folder: str) -> str:
    """Return the id of the draft that a folder was written for; a deletion writes several folders.

    >>> draft_of("tables/Loop/_commit=4f21-00003/_day=2026-05-01")
    '4f21'
    """
    return commit_of(folder).partition("-")[0]
