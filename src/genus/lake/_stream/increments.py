"""Increments: the events that came into a lake after a version, for inboxes, derived tables and functions.

A follower stores the version it has processed in its own ledger, in the same commit as its output. So it processes
every event once, wherever it is stopped or killed, in batch and on a stream. Events that were deleted before they were
processed are not processed: a deletion names the parts that have the rows left (`unprocessed_parts`).
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec
from pyspark.sql import DataFrame

from genus.errors import LakeError
from genus.lake._tables.columns import DEAD_LETTERS
from genus.lake._tables.commits import START, Cursor, Part, count_rows, unprocessed_parts
from genus.lake._tables.lake_tables import LakeTables
from genus.lake._tables.state import LedgerState
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

    @property
    def families(self) -> list[str]:
        """The families that have new events."""
        return sorted({part.table for part in self.parts})

    @property
    def rows(self) -> int:
        """The number of new events."""
        return count_rows(self.parts)

    def parts_of(self, family: str) -> list[Part]:
        """The parts with new events of a family."""
        return [part for part in self.parts if part.table == family]

    def events(self, lake: LakeTables, family: str) -> DataFrame:
        """The new events of a family, with all columns."""
        return lake.events(family, self.parts_of(family))

    def recorded_upto(self, idle_us: int) -> int | None:
        """The time up to which all recorders have recorded; None if the lake has no events.

        A recorder whose newest event is older than the newest of all by more than `idle_us` is not waited for.
        """
        newest = max(self.newest.values(), default=0)
        return min((at_us for at_us in self.newest.values() if at_us >= newest - idle_us), default=None)


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


def next_increment(lake: LakeTables, after: Cursor, follower: str) -> Increment | None:
    """The events that came in after a version; None if there are none. At the start, all events of the lake.

    LakeError if the lake was restored from a backup that lacks what the follower, named by its path, has processed.
    """
    state = lake.state()
    if after != START:
        _check_same_history(lake, state, after, follower)
    if state.version == after.version:
        return None
    parts = (
        state.parts if after == START else unprocessed_parts(lake.store.ledger.commits(after.version, state.version))
    )
    events = tuple(part for part in parts.values() if part.table != DEAD_LETTERS)
    _check_exist(lake, (part for part in events if part.folder not in state.parts))
    return Increment(after, state.now, events, state.newest)


def _has(lake: LakeTables, state: LedgerState, cursor: Cursor) -> bool:
    """Whether a version that a follower has processed is in the history of a lake."""
    return state.version >= cursor.version and lake.store.ledger.commit_at(cursor.version).id == cursor.commit


def last_common(lake: LakeTables, follower: Store) -> "Rewind":
    """How to take back what a follower has processed of versions that its lake does not have.

    LakeError if it was compacted, or rows were deleted, after such a version: then its files have rows of both.
    """
    state, known, folders = lake.state(), follower.state(), list[str]()
    if known.cursor == START or _has(lake, state, known.cursor):
        return Rewind(known.cursor, (), known.notes)
    for commit in follower.ledger.history():
        if commit.kind == "create" or (commit.upto is not None and _has(lake, state, commit.upto)):
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


def _check_same_history(lake: LakeTables, state: LedgerState, after: Cursor, follower: str) -> None:
    """Raise LakeError if the version that was processed is not a version of the lake, as after a restore."""
    if _has(lake, state, after):
        return
    raise LakeError(
        f"{follower} has processed version {after.version} of {lake.path}, which the lake does not have: the lake was "
        "restored from a backup or replaced; restore the folder of the same time too, begin with a new one, or go back "
        "with Inboxes.rewind, `genus lake rewind` or DerivedTable.rebuild"
    )


def _check_exist(lake: LakeTables, parts: Iterable[Part]) -> None:
    """Raise LakeError if parts that were compacted since have been removed by `Lake.clean`."""
    for part in parts:
        if not lake.store.files.list_folder(f"{lake.path}/{part.folder}"):
            raise LakeError(
                f"{part.folder} was compacted and removed before it was processed; start again with a new folder"
            )
