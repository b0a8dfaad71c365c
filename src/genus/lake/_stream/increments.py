"""Increments: the events that came into a lake after a version, for inboxes, derived tables and functions.

A follower stores the version it has processed in its own ledger, in the same commit as its output. So it processes
every event once, wherever it is stopped or killed, in batch and on a stream.
"""

from collections.abc import Iterable

import msgspec
from pyspark.sql import DataFrame

from genus.errors import LakeError
from genus.lake._tables.columns import DEAD_LETTERS
from genus.lake._tables.lake_tables import LakeTables
from genus.lake._tables.ledger import Commit, Part, count_rows


class Increment(msgspec.Struct, frozen=True):
    """The events that a follower has not processed yet."""

    after: int
    """Version that was processed before."""
    upto: int
    """Version of the lake with the new events."""
    parts: tuple[Part, ...]
    newest_us: int | None
    """The latest time of recording in the lake."""

    @property
    def families(self) -> list[str]:
        """The families that have new events."""
        return sorted({part.table for part in self.parts})

    @property
    def rows(self) -> int:
        """The number of new events."""
        return count_rows(self.parts)

    def events(self, lake: LakeTables, family: str) -> DataFrame:
        """The new events of a family, with all columns."""
        return lake.events(family, [part for part in self.parts if part.table == family])


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
    """Why the previous list of subscriptions was used: the present one cannot be read."""


def next_increment(lake: LakeTables, after: int) -> Increment | None:
    """The events that came in after a version; None if there are none. After version 0, all events of the lake."""
    state = lake.state()
    if state.version <= after:
        return None
    commits = [] if after == 0 else lake.store.ledger.commits(after, state.version)
    parts = list(state.parts.values()) if after == 0 else [part for commit in commits for part in _ingested(commit)]
    events = tuple(part for part in parts if part.table != DEAD_LETTERS)
    _check_exist(lake, (part for part in events if part.folder not in state.parts))
    return Increment(after, state.version, events, state.newest_us)


def _ingested(commit: Commit) -> tuple[Part, ...]:
    """The parts with new events; a compaction has none."""
    return commit.added if commit.kind == "ingest" else ()


def _check_exist(lake: LakeTables, parts: Iterable[Part]) -> None:
    """Raise LakeError if parts that were compacted since have been removed by `Lake.clean`."""
    for part in parts:
        if not lake.store.files.list_folder(f"{lake.path}/{part.folder}"):
            raise LakeError(
                f"{part.folder} was compacted and removed before it was processed; start again with a new folder"
            )
