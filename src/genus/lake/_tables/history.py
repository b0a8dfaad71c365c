"""The history of a store: what each commit has changed."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import chain, islice

import msgspec

from genus.errors import LakeError
from genus.lake._tables.commits import Commit, Kind, Part, count_files, count_rows
from genus.lake._tables.ledger import Ledger
from genus.lake._tables.names import table_of

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


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

    @property
    def rows_added(self) -> int:
        """Rows in the files that were added."""
        return sum(each.rows_added for each in self.tables)

    @property
    def rows_removed(self) -> int | None:
        """Rows in the files that were removed from the tables; None if it is not known any more."""
        counts = [each.rows_removed for each in self.tables]
        return None if None in counts else sum(filter(None, counts))


def read_history(ledger: Ledger, limit: int | None) -> list[HistoryEntry]:
    """The last commits, the newest first; as many as are not folded and removed.

    Commits name the folders that they remove; the commits that added them, or folds, say what was in them.
    """
    if limit is not None and limit < 0:
        raise LakeError(f"history({limit}): the number of commits is negative; give None for all")
    commits = ledger.history()
    shown = list(islice(commits, limit))
    parts = {part.folder: part for commit in shown for part in commit.added}
    wanted = {folder for commit in shown for folder in commit.removed} - parts.keys()
    for earlier in chain(commits, ledger.folds()):
        if not wanted:
            break
        found = {part.folder: part for part in earlier.added if part.folder in wanted}
        parts |= found
        wanted -= found.keys()
    return [_entry(commit, parts) for commit in shown]


def _entry(commit: Commit, parts: Mapping[str, Part]) -> HistoryEntry:
    at = _EPOCH + timedelta(microseconds=commit.at_us)
    tables = sorted({part.table for part in commit.added} | set(map(table_of, commit.removed)))
    changes = tuple(_change(table, commit, parts) for table in tables)
    return HistoryEntry(commit.version, commit.id, at, commit.kind, len(commit.sources), changes)


def _change(table: str, commit: Commit, parts: Mapping[str, Part]) -> TableChange:
    new = [part for part in commit.added if part.table == table]
    gone = [folder for folder in commit.removed if table_of(folder) == table]
    old = [parts[folder] for folder in gone if folder in parts]
    if len(old) < len(gone):
        return TableChange(table, count_files(new), None, count_rows(new), None)
    return TableChange(table, count_files(new), count_files(old), count_rows(new), count_rows(old))
