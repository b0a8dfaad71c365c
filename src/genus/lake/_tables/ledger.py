"""The ledger of a store: a log of numbered commits, each of which names the Parquet files that it adds.

A writer puts its files into new folders, which readers do not look at, and then creates the next commit file, which
names them. Creating a file succeeds for one writer only. So commits are ordered, a store changes atomically, and files
that a killed writer left behind are in no commit. A lake, its inboxes and its derived tables each have a ledger.

A commit names the seal of the commit before, so that one that is changed, replaced or removed is noticed. After every
`FOLD_EVERY` commits they are folded into one file, and after `RADIX` such files these into a larger one. So opening a
store reads few files, and a commit costs the same however many there are. If a fold is damaged or of another ledger,
smaller ones or the commits are read instead.
"""

import threading
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress

import msgspec

from genus.errors import LakeDamaged, LakeError
from genus.lake._tables.commits import DELETION, ID_DIGITS, Commit, CommitConflict, CommitDraft, Cursor, fold
from genus.lake._tables.file_systems import FileSystem
from genus.lake._tables.ledger_folder import LOG_FOLDER, Head, LedgerFolder, Listing, SealedCommit, file_name
from genus.lake._tables.sources import TABLE_FROM
from genus.lake._tables.state import LedgerState

FOLD_EVERY = 64
RADIX = 8
"""A larger fold covers as many smaller ones."""
MAX_AHEAD_US = 60_000_000
"""A commit takes the time of the one before if that is later by less: clocks of machines differ a little."""
MAX_IN_MEMORY = 20_000
"""A process with more sources in memory reads the ledger again, where older ones are in tables."""
SET_BACK = "clock"
"""The note with the versions of commits whose time is earlier than that of the commit before."""


class Ledger:
    """The commits of one store."""

    def __init__(self, files: FileSystem, path: str) -> None:
        self.folder = LedgerFolder(files, path)
        self._state = LedgerState()
        self._lock = threading.Lock()
        self._most = MAX_IN_MEMORY
        self._large_folds: set[tuple[int, int]] = set()
        """Folds of an older Genus, which have many sources and no table."""

    @property
    def exists(self) -> bool:
        return self.folder.head() is not None or self.folder.listing().last > 0

    # -- reading -----------------------------------------------------------------------------------------------------

    def state(self) -> LedgerState:
        """Return the present state of the store.

        The folder is listed when a store is opened and after many commits. Otherwise the next commits are looked up by
        name, because the folder of a long-running stream has many files.
        """
        with self._lock:
            if self._state.version == 0 or self._state.sources.in_memory > self._most:
                self._state = self._open()
                self._most = max(MAX_IN_MEMORY, 2 * self._state.sources.in_memory)
            self._state = self._read_next(self._state)
            return self._state

    def present(self) -> LedgerState:
        """The present state; LakeDamaged if the last commit that was read is not there any more, or is another."""
        state = self.state()
        self._check_last(state)
        return state

    def state_at(self, version: int) -> LedgerState:
        """Return the state after the commit with a number; LakeError if there is no such commit, or no longer."""
        now = self.state()
        if version == now.version:
            return now
        if not 0 < version < now.version:
            raise LakeError(f"{self.folder.path}: there is no version {version}; the last one is {now.version}")
        try:
            found = self._read_listed(LedgerState(), version)
            if (following := self.folder.read(version + 1)) is not None:
                self._after(found, following)  # raises if the fold that was read is of another ledger
            return found
        except LakeDamaged:
            if version < min(self.folder.listing().commits):
                raise LakeError(f"{self.folder.path}: version {version} is too old; its commits were folded") from None
            raise

    def version_at(self, at_us: int) -> int:
        """The version of the last commit with a time at or before one; LakeError if there is none, or no longer."""
        first = min(self.folder.listing().commits, default=1)
        found = self._last_at(first, at_us)
        if found < first:
            what = "the first commit was made later" if first == 1 else "its commits were folded and removed"
            raise LakeError(f"{self.folder.path}: there is no version at that time; {what}")
        return found

    def _last_at(self, first: int, at_us: int) -> int:
        """Return the last version from `first` on with a time at or before one; `first - 1` if there is none.

        Times grow but where a clock was ahead, which is noted; so they are searched from each such commit on.
        """
        state = self.state()
        last = state.version
        for begin in sorted({first, *_set_back(state)}, reverse=True):
            if first <= begin <= last:
                searched = range(begin, last + 1)
                found = bisect_right(searched, at_us, key=lambda version: self._sealed_at(version).commit.at_us)
                if found:
                    return begin + found - 1
                last = begin - 1
        return first - 1

    def commits(self, after: int, upto: int) -> list[Commit]:
        """The commits with versions above `after`, up to and including `upto`, which is a version that was read."""
        found = [self._sealed_at(version) for version in range(after + 1, upto + 1)]
        state = self.state()
        seals = [each.commit.previous for each in found[1:]]
        seals += [state.seal if upto == state.version else self._sealed_at(upto + 1).commit.previous] if found else []
        for each, seal in zip(found, seals, strict=True):
            if each.seal != seal:
                raise self._replaced(each.commit.version)
        return [each.commit for each in found]

    def _sealed_at(self, version: int) -> SealedCommit:
        found = self.folder.read(version)
        if found is None:
            if version > min(self.folder.listing().commits, default=0):
                raise LakeDamaged(f"{self.folder.file(version)} is missing; restore it from a backup")
            raise LakeError(f"{self.folder.path}: version {version} is too old; its commit was folded")
        return found

    def history(self) -> Iterator[Commit]:
        """Yield the commits that were not folded and removed, the newest first."""
        state = self.state()
        seal = state.seal
        for version in range(state.version, 0, -1):
            found = self.folder.read(version)
            if found is None:
                return
            if found.seal != seal:
                raise self._replaced(version)
            seal = found.commit.previous
            yield found.commit

    def folds(self) -> Iterator[Commit]:
        """Yield the folds that can be read, those of the latest commits first."""
        for span in reversed(self.folder.listing().folds):
            with suppress(LakeDamaged):
                if found := self.folder.read(*span):
                    yield found.commit

    def _open(self) -> LedgerState:
        """Return the state by all files in the folder; the head is read first, because writers note it last."""
        head = self.folder.head()
        state = self._read_listed(LedgerState(), head=head)
        if head is not None and head.version > state.version:
            raise LakeDamaged(
                f"{self.folder.file(head.version)} is missing; it was the last commit; restore it from a backup. If "
                f"this is a copy that was made while the lake was written, remove {self.folder.head_file}: commits "
                f"after {state.version} are not in the copy; `genus lake backup` makes complete ones"
            )
        is_folded = state.version > 0 and state.version % FOLD_EVERY == 0
        if is_folded and state.version not in self.folder.listing().commits:  # the newest commits are never forgotten
            raise LakeDamaged(
                f"{self.folder.file(state.version)} is missing, and all commits after it; restore `{LOG_FOLDER}` "
                "from a backup"
            )
        return state

    def _read_next(self, state: LedgerState) -> LedgerState:
        for _ in range(FOLD_EVERY):
            found = self.folder.read(state.version + 1)
            if found is None:
                return state
            state = self._after(state, found)
        return self._read_listed(state)

    def _read_listed(self, state: LedgerState, upto: int | None = None, head: Head | None = None) -> LedgerState:
        """Add the commits in the folder, up to a version; if a fold is of another ledger, the commits are read."""
        damage: LakeDamaged | None = None
        for folds in (True, False):
            try:
                found = state
                for step in self._steps(state.version, upto, folds=folds):
                    found = self._after(found, step)
                if head is not None and head.version == found.version and head.seal != found.seal:
                    raise self._replaced(head.version)
                return found
            except LakeDamaged as problem:
                damage = damage or problem
        assert damage is not None
        raise damage

    def _steps(
        self, after: int, upto: int | None = None, expected: Listing | None = None, *, folds: bool = True
    ) -> Iterator[SealedCommit]:
        """Folds and commits that follow each other after a version, as few as possible.

        With `expected` files, the folder is listed only if one of them is missing; folds may just have been removed.
        """
        listing, listed_at = expected or self.folder.listing(folds=folds), -1
        while after < (last := listing.last if upto is None else upto):
            step = self._step(listing, after + 1, last)
            if step is not None:
                yield step
                after = step.commit.version
            elif listed_at == after:
                raise self._missing(after + 1, listing.last)
            else:
                listing, listed_at = self.folder.listing(folds=folds), after

    def _step(self, listing: Listing, first: int, last: int) -> SealedCommit | None:
        """The largest fold that begins with a version, or the commit; a damaged fold is passed over if it can be."""
        damage: LakeDamaged | None = None
        for end in listing.ends.get(first, ()):
            try:
                if end <= last and (found := self.folder.read(first, end)):
                    return found
            except LakeDamaged as problem:
                damage = problem
        if damage is not None:
            raise damage
        return None

    def _after(self, state: LedgerState, found: SealedCommit) -> LedgerState:
        commit = found.commit
        if commit.since != state.version + 1:
            raise self._missing(state.version + 1, commit.since)
        if commit.previous != state.seal or (state.lake and commit.lake != state.lake):
            raise LakeDamaged(
                f"{self.folder.file(commit.since, commit.version)} was not made after commit {state.version} of this "
                "ledger; the ledger was changed, or restored from a backup while it was in use; open it again, and see "
                "`genus lake check`"
            )
        if commit.first is not None and len(commit.sources) >= TABLE_FROM:
            self._large_folds.add((commit.first, commit.version))
        return state.after(commit, found.seal, found.table)

    def _replaced(self, version: int) -> LakeDamaged:
        path = self.folder.file(version)
        return LakeDamaged(f"{path} is another commit than the one that was made; restore it from a backup")

    def _missing(self, version: int, later: int) -> LakeDamaged:
        return LakeDamaged(
            f"{self.folder.file(version)}: commit {version} is missing, but {later} exists; restore it from a backup"
        )

    # -- writing -----------------------------------------------------------------------------------------------------

    def commit(self, draft: CommitDraft) -> Commit:
        """Make a draft the next commit; CommitConflict if another writer's commit contradicts it."""
        while True:
            state = self.state()
            _check(draft, state)
            self._check_last(state)
            version, added = state.version + 1, draft.added
            if draft.kind == "ingest":
                added = tuple(msgspec.structs.replace(part, first=version, last=version) for part in added)
            made = Commit(
                **(msgspec.structs.asdict(_in_order(draft, state)) | {"added": added}),
                version=version,
                counts=state.sources.count(draft.sources) if draft.sources else None,
                previous=state.seal,
                lake=state.lake or draft.id,
            )
            if (seal := self.folder.create(made)) is not None:
                with suppress(LakeError):  # the commit is made; folds and head can be made again
                    self.folder.note_head(made.version, seal)
                    self._fold(made.version)
                return made

    def _check_last(self, state: LedgerState) -> None:
        """Raise LakeDamaged if the last commit is not there any more, so that no commit follows a gap."""
        if state.version == 0:
            return
        found = self.folder.read(state.version)
        if found is None or found.seal != state.seal:
            raise LakeDamaged(
                f"{self.folder.file(state.version)} was removed or replaced since it was read; if the store was "
                "restored from a backup, open it again"
            )

    # -- folds -------------------------------------------------------------------------------------------------------

    def _fold(self, version: int) -> None:
        """Fold the commits up to a version that completes a fold, and remove folds that larger ones cover."""
        size = FOLD_EVERY
        while version % size == 0:
            small, begin = size // RADIX if size > FOLD_EVERY else 1, version - size
            names = [file_name(first, first + small - 1) for first in range(begin + 1, version + 1, small)]
            self._create_fold(list(self._steps(begin, version, Listing(names))))
            if size > FOLD_EVERY:  # the newest small folds are kept, because a reader may be opening them
                for first in range(max(begin - size, 0) + 1, begin + 1, small):
                    self.folder.files.delete(self.folder.file(first, first + small - 1))
            size *= RADIX
        while version % FOLD_EVERY == 0 and self._large_folds:
            if (large := self.folder.read(*self._large_folds.pop())) is not None:
                self._create_fold([large])

    def _create_fold(self, steps: Sequence[SealedCommit]) -> None:
        folded = fold(step.commit for step in steps)
        if folded.counts is None:  # an older Genus made some of them
            before = self.state_at(folded.since - 1) if folded.since > 1 else LedgerState()
            counts = self.state_at(folded.version).sources.counts - before.sources.counts
            folded = msgspec.structs.replace(folded, counts=counts)
        self.folder.create_fold(folded, steps)

    def forget(self, before_us: int) -> int:
        """Remove commits that are older than a time and folded; returns their number."""
        listing = self.folder.listing()
        folded = self._folded_upto(listing)
        if folded <= FOLD_EVERY:
            return 0
        upto = min(folded - FOLD_EVERY, self._last_at(min(listing.commits), before_us - 1))
        removed = sorted(version for version in listing.commits if version <= upto)
        for version in removed:
            self.folder.files.delete(self.folder.file(version))
        return len(removed)

    def _folded_upto(self, listing: Listing) -> int:
        """Return the last version up to which all commits are in folds that can be read and that follow each other."""
        state, largest = LedgerState(), dict(listing.folds)  # of those with the same begin, it has the last one
        with suppress(LakeDamaged):
            while (last := largest.get(state.version + 1)) and (found := self.folder.read(state.version + 1, last)):
                state = self._after(state, found)
        same = self.folder.read(state.version)
        return state.version if same is not None and same.seal == state.seal else 0

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield the paths of commits, folds and a head that are not what was written, and why."""
        listing = self.folder.listing()
        seals: dict[int, str] = {}
        for span in [*sorted((each, each) for each in listing.commits), *listing.folds]:
            path = self.folder.file(*span)
            try:
                found = self.folder.read(*span)
                if found is not None and found.table is not None:
                    found.table.content  # noqa: B018 - raises if it is damaged
                if found is not None and self._contradicts(found, seals):
                    yield path, f"was not made after commit {found.commit.since - 1} of this ledger"
            except LakeDamaged as problem:
                yield path, str(problem).removeprefix(f"{path}: ")
        if self.folder.head_is_damaged:
            yield self.folder.head_file, "is damaged; the next commit makes it again"

    def _contradicts(self, found: SealedCommit, seals: dict[int, str]) -> bool:
        """Whether a commit or fold is not of this ledger, by the seals of the commits; those of a commit are noted."""
        known, version = seals.get(found.commit.since - 1), found.commit.version
        if found.commit.first is None:
            seals[version] = found.seal
        return (known is not None and known != found.commit.previous) or seals.get(version, found.seal) != found.seal

    # -- followers -----------------------------------------------------------------------------------------------------

    def has(self, cursor: Cursor) -> bool:
        """Return whether what a follower has processed is in the history of this ledger, as it is not after a restore.

        Of commits that were forgotten, folds keep a part of the id; one of which nothing is known is taken to be there.
        """
        if cursor.version > self.state().version:
            return False
        known = self.id_at(cursor.version)
        return known.startswith(cursor.commit) or cursor.commit.startswith(known)

    def id_at(self, version: int) -> str:
        """Return the id of a commit; if it was forgotten, its first characters, or nothing."""
        if (found := self.folder.read(version)) is not None:
            return found.commit.id
        for folded in self.folds():
            if folded.since <= version <= folded.version:
                from_end = (folded.version - version + 1) * ID_DIGITS
                return folded.ids[-from_end:][:ID_DIGITS].strip() if from_end <= len(folded.ids) else ""
        return ""


def _in_order(draft: CommitDraft, state: LedgerState) -> CommitDraft:
    """Return a draft with a time not before that of the last commit, unless the clock of that one was ahead."""
    if draft.at_us >= state.at_us:
        return draft
    if state.at_us - draft.at_us <= MAX_AHEAD_US:
        return msgspec.structs.replace(draft, at_us=state.at_us)
    versions = " ".join(map(str, [*_set_back(state), state.version + 1]))
    return msgspec.structs.replace(draft, notes={**draft.notes, SET_BACK: versions})


def _set_back(state: LedgerState) -> list[int]:
    return [int(version) for version in state.notes.get(SET_BACK, "").split()]


def _check(draft: CommitDraft, state: LedgerState) -> None:
    for source in draft.sources:
        known = state.sources.get(source.number)
        if (known.commit if known else "") != source.commit:  # it was ingested since the commit that the draft knows
            raise CommitConflict(f"{source.path} was ingested by another process")
    if gone := [folder for folder in draft.removed if folder not in state.parts]:
        raise CommitConflict(f"{min(gone)} was removed by another process")
    if draft.base is not None and draft.base != state.version:
        raise CommitConflict(f"version {draft.base + 1} was made by another process")
    if draft.after is not None and draft.after != state.cursor:
        raise CommitConflict(f"version {draft.after.version} was processed by another process")
    if draft.deletion is not None and draft.deletion != state.notes.get(DELETION, ""):
        raise CommitConflict("events were deleted by another process")
