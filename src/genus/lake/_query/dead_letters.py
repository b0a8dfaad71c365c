"""Deleting dead letters: their raw text is no event, so they are found by a text that they contain."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from genus.errors import LakeError
from genus.lake._ingest.writer import write_parquet
from genus.lake._query.removal import read_table
from genus.lake._tables.columns import COMMIT, DEAD, DEAD_LETTERS, SOURCE
from genus.lake._tables.commits import DELETION, CommitConflict, CommitDraft, IngestedFile, Part, StoredFile
from genus.lake._tables.files import arrow_opens, write_file
from genus.lake._tables.state import LedgerState
from genus.lake._tables.store import Store, commit_of

_THREADS = 4


def delete_dead_letters(store: Store, text: str, *, dry_run: bool = False) -> int:
    """Delete the dead letters whose raw text or reason contains a text, in one commit; returns their number.

    The driver reads all dead letters. If another writer has deleted some meanwhile, it is tried again.
    """
    if not text:
        raise LakeError("every dead letter contains an empty text; give the text to look for")
    if not arrow_opens(store.path):
        raise LakeError(f"{store.path} is on a file system that pyarrow cannot read; dead letters cannot be deleted")
    while True:
        attempt = _Attempt(store, text)
        try:
            if attempt.removed and not dry_run:
                attempt.commit()
        except CommitConflict:
            continue
        return sum(attempt.removed.values())


class _Attempt:
    """An attempt to delete dead letters from the present version."""

    def __init__(self, store: Store, text: str) -> None:
        self._store, self._text = store, text
        self._state: LedgerState = store.state()
        self._draft = store.begin("delete")
        parts = self._state.table(DEAD_LETTERS)
        with ThreadPoolExecutor(_THREADS) as pool:
            found = dict(zip((part.folder for part in parts), pool.map(self._sources, parts), strict=True))
        self._parts = [part for part in parts if found[part.folder]]
        self.removed = {
            (commit, source): count
            for part in self._parts
            for commit in [_origin(part)]
            for source, count in found[part.folder].items()
        }
        """The number of dead letters to delete, by the commit and the source that they came from."""

    def _sources(self, part: Part) -> Counter[int]:
        """The sources of the dead letters to delete, with their numbers."""
        tables = [read_table(f"{self._store.path}/{part.folder}/{file.name}", file) for file in part.files]
        return Counter(each for rows in tables for each in rows.filter(self._mask(rows))[SOURCE].to_pylist())

    def _mask(self, rows: pa.Table) -> pa.ChunkedArray:
        return pc.or_(pc.match_substring(rows["raw"], self._text), pc.match_substring(rows["reason"], self._text))

    def commit(self) -> None:
        """Write what is left and commit; what was written is removed if that fails."""
        with self._store.discarding():
            self._store.drafts.begin(self._draft.id)
            try:
                self._store.commit(self._with_parts())
            except BaseException:
                self._discard()
                raise

    def _with_parts(self) -> CommitDraft:
        """The draft, with the dead letters that are left in new folders."""
        added = tuple(part for part in map(self._rewrite, self._parts) if part.files)
        return msgspec.structs.replace(
            self._draft,
            added=added,
            removed=tuple(part.folder for part in self._parts),
            sources=tuple(self._recounted()),
            deletion=self._state.notes.get(DELETION, ""),
            notes={DELETION: self._draft.id},
        )

    def _recounted(self) -> list[IngestedFile]:
        """The sources that have fewer dead letters now; a source that was ingested again since has others."""
        known = ((self._state.sources[source], commit, count) for (commit, source), count in self.removed.items())
        return [
            msgspec.structs.replace(source, dead=source.dead - count)
            for source, commit, count in known
            if source.commit == commit
        ]

    def _rewrite(self, part: Part) -> Part:
        folder = self._new_folder(part)
        files = [self._write(f"{self._store.path}/{part.folder}", file, folder) for file in part.files]
        return Part(part.table, folder, tuple(file for file in files if file.rows))

    def _write(self, old: str, file: StoredFile, folder: str) -> StoredFile:
        rows = read_table(f"{old}/{file.name}", file)
        left = rows.filter(pc.invert(self._mask(rows)))
        if not left.num_rows:
            return StoredFile(file.name, 0, 0, "")
        written = write_file(f"{self._store.path}/{folder}/{file.name}", lambda stream: write_parquet(stream, left))
        return StoredFile(file.name, left.num_rows, *written)

    def _new_folder(self, part: Part) -> str:
        """A folder that still names the commit that the dead letters came from; see `LakeTables.dead_letters`."""
        return f"{DEAD}/{COMMIT}={_origin(part)}-{self._draft.id}"

    def _discard(self) -> None:
        """Remove what was written, whose folders have the names of other drafts."""
        for part in self._parts:
            self._store.files.delete(f"{self._store.path}/{self._new_folder(part)}")


def _origin(part: Part) -> str:
    """The id of the commit that dead letters came from."""
    return commit_of(part.folder).partition("-")[0]
