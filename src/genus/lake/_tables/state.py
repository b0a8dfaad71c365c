"""The state of a store, the result of all its commits up to a version, and which version each row came with.

The rows of an ingest have the version of its commit, which the ledger notes with their parts. Files that a compaction
or a deletion writes have the version of each row in a column, `_batch`, and their parts the first and the last one. So
a follower that has processed a version goes on with the rows of later ones, whatever became of the files they came in.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from functools import cached_property

import msgspec

from genus.errors import LakeError
from genus.lake._tables.commits import (
    DEAD_LETTERS,
    Commit,
    Cursor,
    Part,
    Shape,
    count_bytes,
    count_files,
    count_rows,
    latest,
)
from genus.lake._tables.sources import GrowingMap, Sources, SourceTable


class LedgerState(msgspec.Struct, frozen=True, dict=True):
    """The result of all commits up to a version. A state costs little to make from the one before."""

    version: int = 0
    commit: str = ""
    """The id of the last commit."""
    seal: str = ""
    """The checksum of the last commit."""
    lake: str = ""
    """The identity of the store: the id of its first commit."""
    at_us: int = 0
    """The time of the last commit."""
    parts: GrowingMap[str, Part] = GrowingMap()
    """By folder."""
    sources: Sources = Sources()
    """Ingested files by number."""
    shapes: GrowingMap[int, Shape] = GrowingMap()
    """By `Shape.id`."""
    shape_counts: Mapping[str, int] = {}
    """The number of listed shapes of each type."""
    cursor: Cursor = Cursor()
    """In the store of a follower: what has been processed of the lake."""
    newest_us: int | None = None
    """The latest time of recording among all events."""
    newest: Mapping[str, int] = {}
    """The latest time of recording among the events of each recorder."""
    catalog: str | None = None
    """The text of the lake's catalog at the last commit that changed it."""
    notes: Mapping[str, str] = {}

    def after(self, commit: Commit, seal: str, table: SourceTable | None = None) -> "LedgerState":
        """Return the state after one more commit, or after several folded ones, whose sources may be in a table.

        `seal` is the checksum of the commit, or of the last one.
        """
        sources = {each.number: each for each in commit.sources}
        added = {part.folder: part for part in commit.added}
        known: Mapping[int, Shape] = self.shapes or {}  # a plain dictionary answers faster
        new_shapes = {number: shape for shape in commit.shapes if (number := shape.id) not in known}
        shape_counts = Counter(self.shape_counts)
        shape_counts.update(shape.type for shape in new_shapes.values())
        return LedgerState(
            version=commit.version,
            commit=commit.id,
            seal=seal,
            lake=self.lake or commit.lake or commit.id,
            at_us=commit.at_us,
            parts=self.parts.changed(added, commit.removed),
            sources=self.sources.changed(sources, commit.counts, table),
            shapes=self.shapes.changed(new_shapes),
            shape_counts=shape_counts,
            cursor=self.cursor if commit.upto is None else commit.upto,
            newest_us=max((each for each in (self.newest_us, commit.newest_us) if each is not None), default=None),
            newest=latest((self.newest, commit.newest)) if commit.newest else self.newest,
            catalog=self.catalog if commit.catalog is None else commit.catalog,
            notes={**self.notes, **commit.notes},
        )

    @cached_property
    def shapes_of(self) -> Mapping[str, list[tuple[int, Shape]]]:
        """The shapes of each type, with their numbers in `shapes`."""
        found: dict[str, list[tuple[int, Shape]]] = {}
        for number, shape in self.shapes.items():
            found.setdefault(shape.type, []).append((number, shape))
        return found

    @property
    def now(self) -> Cursor:
        return Cursor(self.version, self.commit)

    @cached_property
    def _by_table(self) -> Mapping[str, list[Part]]:
        found: dict[str, list[Part]] = {}
        for part in self.parts.values():
            found.setdefault(part.table, []).append(part)
        return found

    def table(self, name: str) -> list[Part]:
        return list(self._by_table.get(name, ()))

    @property
    def tables(self) -> list[str]:
        """The names of the tables that have rows."""
        return sorted(self._by_table)


# -- figures -----------------------------------------------------------------------------------------------------------


class TableStats(msgspec.Struct, frozen=True):
    """Figures of one table, from `Lake.stats`."""

    table: str
    """Name of the family, or `dead letters`."""
    rows: int
    files: int
    bytes: int
    days: int
    types: int
    shapes: int
    type_names: tuple[str, ...] = ()
    first_day: date | None = None
    """The first day of which there are events."""
    last_day: date | None = None


def table_stats(state: LedgerState) -> list[TableStats]:
    dead = state.sources.counts.dead
    found = []
    for table in state.tables if dead else [each for each in state.tables if each != DEAD_LETTERS]:
        parts = state.table(table)
        shapes = [shape for shape in state.shapes.values() if shape.family == table]
        days, types = {part.day for part in parts if part.day is not None}, {shape.type for shape in shapes}
        stats = TableStats(
            table=table,
            rows=dead if table == DEAD_LETTERS else count_rows(parts),
            files=count_files(parts),
            bytes=count_bytes(parts),
            days=len(days),
            types=len(types),
            shapes=len(shapes),
            type_names=tuple(sorted(types)),
            first_day=min(days, default=None),
            last_day=max(days, default=None),
        )
        found.append(stats)
    return found


def type_counts(state: LedgerState) -> dict[str, int]:
    """Return the number of events of each type; parts whose shapes were not counted are left out."""
    found: Counter[int] = Counter()
    for part in state.parts.values():
        found.update(part.shapes or {})
    counts: Counter[str] = Counter()
    for number, rows in found.items():
        if number in state.shapes:
            counts[state.shapes[number].type] += rows
    return dict(counts)


# -- the versions that rows came with ----------------------------------------------------------------------------------


def joined_versions(parts: Iterable[Part]) -> dict[str, int]:
    """Return the fields `first`, `last` and `unsure` of a part that has rows of several ones."""
    given = list(parts)
    return {
        "first": min(part.first for part in given),
        "last": max(part.last for part in given),
        "unsure": max(part.unsure for part in given),
    }


def is_cut(part: Part, after: int) -> bool:
    """Return whether a part has rows of a version and before, and later ones: its rows are told apart by `_batch`."""
    return part.first <= after < part.last


def parts_after(history: Iterable[Commit], state: LedgerState, after: int) -> list[Part]:
    """Return the parts of event tables in a state with rows that came after a version; 0 for all.

    LakeError if an older Genus has rewritten rows that came before and after it.
    """
    found = [part for part in state.parts.values() if part.last > after and part.table != DEAD_LETTERS]
    if not after or all(part.unsure <= after for part in found):
        return found
    found = [part for part in find_versions(history, found, after) if part.last > after]
    if unsure := [part.unsure for part in found if part.unsure > after]:
        raise LakeError(
            f"version {max(unsure)} was compacted by an older Genus that did not keep numbers, so that events after "
            f"version {after} cannot be told from earlier ones; start again with a new folder or checkpoint"
        )
    return found


def find_versions(history: Iterable[Commit], parts: Sequence[Part], after: int = 0) -> list[Part]:
    """Parts of a lake that an older Genus has written, with the versions that commits after a version say.

    If all these commits are there, what they do not name came before. What is not known stays unsure.
    """
    wanted = {part.folder for part in parts if part.unsure > after}
    found: dict[str, Part] = {}
    for commit in history if wanted else ():
        if commit.version <= after:
            earlier = {"first": after, "last": after, "unsure": after}
            found |= {part.folder: msgspec.structs.replace(part, **earlier) for part in parts if part.folder in wanted}
            break
        found |= {part.folder: part for part in commit.added if part.folder in wanted}
        wanted -= found.keys()
        if not wanted:
            break
    return [found.get(part.folder, part) for part in parts]
