"""An open lake: its store, its catalog, its versions and its history; no Spark is needed.

A backup is a copy of one version of a store in another folder, made while the store is in use. The data files come
first, then the commits, the newest first, and at last the note of the newest. A copy that is interrupted is thus still
at the version before, or says that commits are missing; the same call completes it.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from itertools import chain, islice
from types import ModuleType
from typing import Any, ClassVar

import msgspec

from genus.catalog import Catalog
from genus.catalog.types import RegistrationResult
from genus.errors import LakeDamaged, LakeError
from genus.filters import Subscription
from genus.filters.internal import rebuild
from genus.filters.types import AllOf, AttributeNames, Predicate, Term
from genus.lake._tables.commits import Commit, Kind, Part, StoredFile, checksum, count_files, count_rows, table_of
from genus.lake._tables.file_systems import LocalFileSystem, walk_files
from genus.lake._tables.files import absolute_path, local_path, sync
from genus.lake._tables.lake_catalog import CATALOG_FILE, CatalogFile, SubscriptionResolver
from genus.lake._tables.ledger import Ledger
from genus.lake._tables.ledger_folder import LOG_FOLDER, Listing, file_name
from genus.lake._tables.state import LedgerState, TableStats, table_stats
from genus.lake._tables.store import Store, StoreProblem, folders_above
from genus.model import Span, duration, micros_of_time, name_of
from genus.model.internal import time_of_micros


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


KEEP = "keep"
"""The note with the policy of a lake: ages in seconds, by type."""


class TableChange(msgspec.Struct, frozen=True):
    """What a commit has changed in one table."""

    table: str
    """Name of the family, or `dead letters`."""
    files_added: int
    files_removed: int | None
    """None if it is not known any more, like the rows: the commits that added the files were removed by `clean`."""
    rows_added: int
    rows_removed: int | None


class HistoryEntry(msgspec.Struct, frozen=True):
    """A commit, from `Lake.history`."""

    version: int
    id: str
    at: datetime
    kind: Kind
    sources: int
    """Files that were ingested."""
    tables: tuple[TableChange, ...]
    query: str = ""
    """The id of the streaming query that made it, if one did."""
    batch: int | None = None
    """The number of the batch of that query."""

    @property
    def rows_added(self) -> int:
        """Rows in the files that were added."""
        return sum(each.rows_added for each in self.tables)

    @property
    def rows_removed(self) -> int | None:
        """Rows in the files that were removed from the tables; None if it is not known any more."""
        counts = [each.rows_removed for each in self.tables]
        return None if None in counts else sum(filter(None, counts))


class LakeFolder:
    """Base of `Lake` and `LakeReader`: what all of them know of a lake without reading events."""

    _declares_subtypes: ClassVar[bool] = True
    """Whether a subscription by text declares classes for all types of the catalog."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.path = store.path
        if not store.ledger.exists:
            raise LakeError(
                f"{self.path} is not a lake; create one with Lake.create or `genus lake init LAKE -t TYPES`"
            )
        store.check_holds("lake")
        self._catalog_file = CatalogFile(store.files, self.path)
        self._catalog_file.check_same(store.state().catalog)

    @property
    def catalog(self) -> Catalog:
        """The present catalog of the lake; add types with `register`."""
        return self._catalog_file.catalog

    @property
    def catalog_path(self) -> str:
        """The path of the catalog file, which a bus or a broker may share."""
        return self._catalog_file.path

    def register(self, *what: type | ModuleType) -> RegistrationResult:
        """Add the types of classes and modules to the catalog.

        Tables get new columns; rows written before have NULL there. CatalogConflict, and nothing is changed, if a type
        contradicts the catalog.
        """
        return self._catalog_file.register(what)

    # -- versions ----------------------------------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """The number of commits so far."""
        return self.state().version

    def state(self) -> LedgerState:
        """Return the present state of the ledger: parts, ingested files and shapes."""
        return self.store.state()

    def _state_of(self, version: int | None = None, as_of: datetime | None = None) -> LedgerState:
        """Return the state of a version, or of the last commit at or before a time; by default the present one.

        LakeError if both are given, if there is no such version, or if its commits or files were removed by `clean`.
        """
        if version is not None and as_of is not None:
            raise LakeError("version and as_of both say which state to read; give one of them")
        if version is not None and type(version) is not int:
            raise LakeError(f"version={version!r} is not the number of a version; give an int, such as lake.version")
        if as_of is not None:
            if as_of.tzinfo is None:
                raise LakeError(f"as_of={as_of} has no time zone; write datetime(..., tzinfo=UTC)")
            version = self.store.ledger.version_at(micros_of_time(as_of))
        return self.state() if version is None else self.store.ledger.state_at(version)

    @contextmanager
    def _reading(self, state: LedgerState) -> Iterator[None]:
        """Say that `clean` has removed files of a state, if that is why some are missing."""
        try:
            yield
        except LakeDamaged as problem:
            now = self.state().parts
            gone = (f"{self.path}/{folder}" for folder in state.parts if folder not in now)
            if all(self.store.files.list_folder(folder) for folder in gone):
                raise
            raise LakeError(
                f"{self.path}: version {state.version} cannot be read any more, because files that were replaced or "
                "deleted since then were removed by clean; read a later version"
            ) from problem

    # -- backups -----------------------------------------------------------------------------------------------------

    def backup(
        self, path: str | os.PathLike[str], *, progress: Callable[[int, int], object] | None = None
    ) -> BackupResult:
        """Copy the present version into another local folder; the lake may be written meanwhile.

        The folder is a lake of its own then. The next call with the same folder copies what is new; files that the lake
        does not have any more stay there until `clean` removes them. Delta and Iceberg tables, and what functions of
        streams have processed, are not copied; the first commit or `Lake.mirror` makes the Delta tables.

        Args:
            path: A new folder, or one with an earlier backup.
            progress: Called with the bytes done and the total.

        Raises:
            LakeError: The lake or the folder is not local, the folder has something else, or `clean` has removed files
                meanwhile.
            LakeDamaged: A file of the lake is not what was committed.
        """
        return copy_store(self.store, os.fspath(path), progress)

    # -- keeping -----------------------------------------------------------------------------------------------------

    def keep(self, policy: Mapping[str | type, Span]) -> None:
        """Store how long the events of each type are kept; `expire` removes those that are older.

        The policy replaces the one before; an empty one keeps everything.

        Args:
            policy: Ages by types, such as `{"Event": "2 years", Loop: "90 days"}`. Each type is kept as long as the
                entry of the nearest of its supertypes says; without one, for ever.

        Raises:
            NotRegistered: The catalog lacks a type.
            SpanError: An age is no length of time above zero.
        """
        catalog, ages = self.catalog, dict[str, float]()
        for what, age in policy.items():
            name = what if isinstance(what, str) else name_of(what)
            catalog.code(name)
            ages[name] = duration(age, f"the age of {name}", zero=False).total_seconds()
        notes = {KEEP: msgspec.json.encode(ages).decode()}
        self.store.commit(msgspec.structs.replace(self.store.begin("keep"), notes=notes))

    @property
    def retention(self) -> dict[str, timedelta]:
        """How long the events of each type are kept, as `keep` has stored it."""
        ages = msgspec.json.decode(self.state().notes.get(KEEP, "{}"), type=dict[str, float])
        return {name: timedelta(seconds=age) for name, age in ages.items()}

    def history(self, limit: int | None = None) -> list[HistoryEntry]:
        """Return what each commit has changed, the newest first; commits that `clean` has folded away are not listed.

        Args:
            limit: How many commits; None for all.
        """
        if limit is not None and limit < 0:
            raise LakeError(f"history({limit}): the number of commits is negative; give None for all")
        commits = self.store.ledger.history()
        shown = list(islice(commits, limit))
        parts = {part.folder: part for commit in shown for part in commit.added}
        wanted = {folder for commit in shown for folder in commit.removed} - parts.keys()
        for earlier in chain(commits, self.store.ledger.folds()):  # they say what was in folders that were removed
            if not wanted:
                break
            found = {part.folder: part for part in earlier.added if part.folder in wanted}
            parts |= found
            wanted -= found.keys()
        return [_entry(commit, parts) for commit in shown]

    def check(
        self, *, content: bool = True, progress: Callable[[int, int], object] | None = None
    ) -> list[StoreProblem]:
        """Compare the files with the ledger; an empty list if they agree. LakeDamaged if either is damaged.

        Args:
            content: Also compare the checksums of the files, which reads all of them.
            progress: Called with the number of folders done and the total.
        """
        self.catalog  # noqa: B018 - raises if it is damaged
        return list(self.store.check(content=content, progress=progress))

    def stats(self) -> list[TableStats]:
        """Return figures of each table, dead letters included; only the ledger is read."""
        return table_stats(self.state())

    # -- subscriptions -----------------------------------------------------------------------------------------------

    def subscription(self, what: Subscription | str | type | AllOf[Any], *, strict: bool = False) -> Subscription:
        """Resolve a subscription against the catalog; a text may name types for which this process has no class.

        NotRegistered if the catalog lacks a type, LakeError if it lacks an attribute; with `strict`, SubscriptionError
        if no event can match.
        """
        parse = partial(Subscription.parse, strict=strict)
        resolver = SubscriptionResolver(self.catalog, parse, declares_subtypes=self._declares_subtypes)
        found = resolver.resolve(what)
        if strict:
            resolver.report_never(found, strict=True)
        return found

    def _asked(
        self,
        what: type | AllOf[Any] | Subscription | str,
        *,
        exact: bool,
        has: AttributeNames,
        lacks: AttributeNames,
        where: Predicate | Term | str | None,
        strict: bool,
    ) -> Subscription:
        """Return the subscription that the arguments of `read` stand for, resolved against the catalog."""
        if not isinstance(what, Subscription | str):
            asked = rebuild(what, exact=exact, has=has, lacks=lacks, where=where)
            SubscriptionResolver(self.catalog).report_never(asked, strict=strict)
            return self.subscription(asked)
        if exact or has or lacks or where is not None:
            raise LakeError("what= is a whole subscription; write exact, has, lacks and where into it")
        return self.subscription(what, strict=strict)


def _entry(commit: Commit, parts: Mapping[str, Part]) -> HistoryEntry:
    at, sources = time_of_micros(commit.at_us), len(commit.sources)
    tables = sorted({part.table for part in commit.added} | set(map(table_of, commit.removed)))
    changes = tuple(_change(table, commit, parts) for table in tables)
    return HistoryEntry(commit.version, commit.id, at, commit.kind, sources, changes, commit.query, commit.batch)


def _change(table: str, commit: Commit, parts: Mapping[str, Part]) -> TableChange:
    new = [part for part in commit.added if part.table == table]
    gone = [folder for folder in commit.removed if table_of(folder) == table]
    old = [parts[folder] for folder in gone if folder in parts]
    if len(old) < len(gone):
        return TableChange(table, count_files(new), None, count_rows(new), None)
    return TableChange(table, count_files(new), count_files(old), count_rows(new), count_rows(old))
