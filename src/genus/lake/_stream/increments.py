"""Increments: the events that came into a lake after a version, for inboxes, derived tables and functions.

A follower stores the version it has processed in its own ledger, in the same commit as its output. So it processes
every event once, wherever it is stopped or killed, in batch and on a stream. The events are read from the present files
of the lake, by the version that they came with (`_tables.batches`): a compaction is no news, old files may be removed,
and events that were deleted before they were processed are not processed.
"""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec
from pyspark.sql import DataFrame

from genus.errors import LakeError
from genus.lake._tables.batches import is_cut, parts_after
from genus.lake._tables.commits import START, Cursor, Part, count_rows
from genus.lake._tables.lake_tables import LakeTables
from genus.lake._tables.store import Store


class Increment(msgspec.Struct, frozen=True):
    """The events that a follower has not processed yet."""

    after: Cursor
    """What was processed before."""
    upto: Cursor
    """The version of the lake with the new events."""
    parts: tuple[Part, ...]
    newest: Mapping[str, int]
    """The latest time of recording in the lake, by recorder."""
    rows: int = 0
    """The number of new events."""

    @property
    def families(self) -> list[str]:
        """The families that have new events."""
        return sorted({part.table for part in self.parts})

    def parts_of(self, family: str) -> list[Part]:
        """The parts with new events of a family; those with a `bound` have others, too."""
        return [part for part in self.parts if part.table == family]

    def bound(self, part: Part) -> int:
        """The version after which rows of a part are new, by their `_batch`; 0 if all are, and it may have no such."""
        return self.after.version if is_cut(part, self.after.version) else 0

    def events(self, lake: LakeTables, family: str) -> DataFrame:
        """The new events of a family, with all columns."""
        return lake.events(family, self.parts_of(family), self.after.version)

    def recorded_upto(self, idle_us: int) -> int | None:
        """The time up to which all recorders have recorded; None if the lake has no events.

        A recorder whose newest event is older than the newest of all by more than `idle_us` is not waited for.
        """
        slowest = slowest_recorder(self.newest, idle_us)
        return None if slowest is None else self.newest[slowest]


class UpdateResult(msgspec.Struct, frozen=True):
    """Result of one step of a follower: `Route.to_inboxes`, `DerivedTable.update`, `Stream.catch_up`."""

    upto: int
    """Version of the lake that is processed now."""
    events: int
    """New events."""
    rows: int
    """Rows written: matches delivered, or results of an analysis."""
    late: int = 0
    """New events that an analysis left out because they were late or overtaken."""
    problem: str | None = None
    """Which subscriptions were not used, and why; or why the previous list was used."""
    waiting: int = 0
    """Rows that an analysis keeps, because results may still change by later events."""
    waits_for: str = ""
    """Up to when results are final and what the waiting rows wait for, in a line; empty if none wait."""


def slowest_recorder(newest: Mapping[str, int], idle_us: int) -> str | None:
    """The recorder that holds a watermark back: the one that is furthest behind, unless by more than `idle_us`.

    Args:
        newest: The latest time of recording by recorder.
        idle_us: A recorder that is this far behind the newest is not waited for.

    >>> slowest_recorder({"a": 5_000, "b": 4_500, "c": 100}, idle_us=1_000)
    'b'
    """
    latest = max(newest.values(), default=0)
    return min((name for name in newest if newest[name] >= latest - idle_us), key=newest.__getitem__, default=None)


def next_increment(lake: LakeTables, after: Cursor, follower: str) -> Increment | None:
    """The events that came in after a version; None if there are none. At the start, all events of the lake.

    LakeError if the lake was restored from a backup that lacks what the follower, named by its path, has processed, or
    if an older Genus has compacted events that it has processed with others (`parts_after`).
    """
    state = lake.state()
    if not lake.store.ledger.has(after):
        raise LakeError(
            f"{follower} has processed version {after.version} of {lake.path}, which the lake does not have: the lake "
            "was restored from a backup or replaced; restore the folder of the same time too, begin with a new one, or "
            "go back with Inboxes.rewind, `genus lake rewind` or DerivedTable.rebuild"
        )
    if state.version == after.version:
        return None
    parts = tuple(parts_after(lake.store.ledger, state, after.version))
    new = Increment(after, state.now, parts, state.newest)
    return msgspec.structs.replace(new, rows=_count(lake, new))


def _count(lake: LakeTables, new: Increment) -> int:
    """The number of new events; those in parts that have others, too, are counted by Spark."""
    whole = count_rows(part for part in new.parts if not new.bound(part))
    cut = [part for part in new.parts if new.bound(part)]
    tables = [(name, [part for part in cut if part.table == name]) for name in sorted({part.table for part in cut})]
    return whole + sum(lake.events(name, parts, new.after.version).count() for name, parts in tables)


def last_common(lake: LakeTables, follower: Store) -> "Rewind":
    """How to take back what a follower has processed of versions that its lake does not have.

    LakeError if it was compacted, or rows were deleted, after such a version: then its files have rows of both.
    """
    has, known, folders = lake.store.ledger.has, follower.state(), list[str]()
    if has(known.cursor):
        return Rewind(known.cursor, (), known.notes)
    for commit in follower.ledger.history():
        if commit.kind == "create" or (commit.upto is not None and has(commit.upto)):
            there = tuple(folder for folder in folders if folder in known.parts)
            return Rewind(commit.upto or START, there, follower.ledger.state_at(commit.version).notes)
        if commit.kind not in ("deliver", "rewind"):
            raise LakeError(
                f"{follower.path} cannot be rewound: a commit of kind {commit.kind} has changed deliveries of versions "
                "that the lake does not have; begin with a new folder"
            )
        folders += [part.folder for part in commit.added]
    raise LakeError(f"{follower.path} cannot be rewound: its old commits were folded; begin with a new folder")


class Rewind(NamedTuple):
    """Where a follower goes back to, and the folders with what it has processed since."""

    upto: Cursor
    folders: tuple[str, ...]
    notes: Mapping[str, str]
    """The notes that it had there."""
