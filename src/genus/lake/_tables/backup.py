"""Backups: a copy of one version of a store in another folder, made while the store is in use.

The data files come first, then the commits, the newest first, and at last the note of the newest. A copy that is
interrupted is thus still at the version before, or says that commits are missing; the same call completes it.
"""

import os
import time
from collections.abc import Callable, Mapping

import msgspec

from genus.errors import LakeDamaged, LakeError
from genus.lake._tables.commits import StoredFile, checksum
from genus.lake._tables.file_systems import LocalFileSystem, walk_files
from genus.lake._tables.files import absolute_path, local_path, sync
from genus.lake._tables.lake_catalog import CATALOG_FILE
from genus.lake._tables.ledger import Ledger
from genus.lake._tables.ledger_folder import LOG_FOLDER, Listing, file_name
from genus.lake._tables.state import LedgerState
from genus.lake._tables.store import Store, folders_above


class BackupResult(msgspec.Struct, frozen=True):
    """Result of `Lake.backup`."""

    version: int
    """The version that the copy has."""
    files: int
    """Data files of this version."""
    copied: int
    """Those that the folder did not have."""
    bytes: int
    """The size of the copied files."""
    seconds: float


def backup(
    path: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    progress: Callable[[int, int], object] | None = None,
) -> BackupResult:
    """Copy a lake, inboxes or a derived table into another local folder while it is in use; see `Lake.backup`.

    Args:
        path: The folder of the lake, inboxes or derived table.
        target: A new folder, or one with an earlier backup.
        progress: Called with the bytes done and the total.

    Raises:
        LakeError: A folder is not local, the target has something else, or `clean` has removed files meanwhile.
        LakeDamaged: A file is not what was committed.
    """
    return copy_store(Store(path), os.fspath(target), progress)


def copy_store(store: Store, target: str, progress: Callable[[int, int], object] | None = None) -> BackupResult:
    """Copy the present version of a store into a folder: a new one, or one with an earlier backup of the store."""
    began = time.monotonic()
    folder = _local_folder(target, store)
    state = store.state()
    earlier = _earlier_version(Ledger(LocalFileSystem(), folder), store.ledger, state)
    if earlier == 0:
        _check_strangers(folder, store.path)
    files = {f"{part.folder}/{file.name}": file for part in state.parts.values() for file in part.files}
    there = {found.path: found.size for found in walk_files(LocalFileSystem(), folder)}
    missing = {path: file for path, file in files.items() if there.get(f"{folder}/{path}") != file.bytes}
    _copy_files(store.path, folder, missing, progress)
    if (catalog := store.files.read(f"{store.path}/{CATALOG_FILE}")) is not None:  # it may have more types
        LocalFileSystem().replace(f"{folder}/{CATALOG_FILE}", catalog)
    _copy_ledger(store, folder, state, earlier)
    size = sum(file.bytes for file in missing.values())
    return BackupResult(state.version, len(files), len(missing), size, time.monotonic() - began)


def _local_folder(target: str, store: Store) -> str:
    """Return the absolute path of a target; LakeError if it or the store is not local, or one is in the other."""
    folder = absolute_path(target)
    for path in (folder, store.path):
        if local_path(path) is None:
            raise LakeError(f"{path} is not a local folder; copy it by the means of its storage")
    both = [os.path.realpath(path) for path in (folder, store.path)]
    if os.path.commonpath(both) in both:
        raise LakeError(f"{folder} and {store.path} are in each other; choose another folder for the backup")
    if not store.ledger.exists:
        raise LakeError(f"{store.path} has no ledger; it is neither a lake, nor inboxes or a derived table")
    return folder


def _earlier_version(copy: Ledger, of: Ledger, state: LedgerState) -> int:
    """Return the version of an earlier backup; 0 if there is none.

    LakeError if it is of another store, or has commits that the store does not have in a state.
    """
    head = copy.folder.head()
    if head is None:
        return 0
    last = copy.folder.read(head.version)
    if last is None or last.commit.lake != state.lake or not of.has(last.commit.cursor):
        raise LakeError(f"{copy.folder.path} is not an earlier backup of this store; choose another folder")
    return head.version


def _check_strangers(folder: str, source: str) -> None:
    """Raise LakeError if a folder without a backup has anything that an interrupted one cannot have left."""
    names = [{found.name for found in LocalFileSystem().list_folder(path)} for path in (folder, source)]
    if strangers := names[0] - names[1]:
        raise LakeError(f"{folder} has {min(strangers)!r}, which is of no backup; choose another folder")


def _copy_files(
    source: str, folder: str, missing: Mapping[str, StoredFile], progress: Callable[[int, int], object] | None
) -> None:
    """Copy files that are what was committed."""
    total, done, files = sum(file.bytes for file in missing.values()), 0, LocalFileSystem()
    for path, file in missing.items():
        content = files.read(f"{source}/{path}")
        if content is None:
            raise LakeError(f"{source}/{path} is missing; if `clean` removed it just now, make the backup again")
        if checksum(content) != file.checksum:
            raise LakeDamaged(f"{source}/{path} has another content than was committed; see `genus lake check`")
        files.replace(f"{folder}/{path}", content)
        done += file.bytes
        if progress is not None:
            progress(done, total)
    for above in folders_above(folder, (os.path.dirname(path) for path in missing)):
        sync(above)


def _copy_ledger(store: Store, folder: str, state: LedgerState, earlier: int) -> None:
    """Copy the commits and folds up to a state, and note it as the newest; those of an earlier backup are there."""
    files, copy, log = LocalFileSystem(), Ledger(LocalFileSystem(), folder), f"{folder}/{LOG_FOLDER}"
    there = {found.name for found in files.list_folder(log)}
    known = {*_names_upto(copy.folder.listing(), earlier)}
    wanted = _names_upto(store.ledger.folder.listing(), state.version)
    made = [f"{log}/{name}" for name in wanted if name not in known]
    for path in made:
        content = store.files.read(f"{store.path}/{LOG_FOLDER}/{os.path.basename(path)}")
        if os.path.basename(path) in there and files.read(path) != content:
            raise LakeError(f"{path} is not of this store; choose another folder for the backup")
        if content is not None:  # else it was folded meanwhile
            files.replace(path, content, durable=False)
    for path in [*filter(os.path.exists, made), log, folder]:
        sync(path)
    try:
        copied = copy.state()
    except LakeDamaged as problem:
        raise LakeError(f"the ledger was cleaned while it was copied; make the backup again ({problem})") from problem
    if copied.seal != state.seal:
        raise LakeError("the folder of the backup has commits of its own; choose another folder")
    copy.folder.note_head(state.version, state.seal)


def _names_upto(listing: Listing, version: int) -> list[str]:
    """Return the names of the files with commits up to a version: the newest first, folds after all commits."""
    commits = [file_name(each, each) for each in sorted(listing.commits, reverse=True) if each <= version]
    folds = [file_name(*each) for each in reversed(listing.folds) if each[1] <= version]
    return [*commits, *listing.tables(used=True), *folds]
