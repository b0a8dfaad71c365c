"""Following a lake: what came in since a version, for inboxes, derived tables and functions.

A follower keeps the version it has come to in its own ledger, in the same commit as what it made of the events. So it
takes every event once, whenever it is stopped or killed, in batch and in a stream alike.
"""

from typing import TYPE_CHECKING

import msgspec
from pyspark.sql import DataFrame

from genus.errors import LakeError
from genus.lake._ingest.writer import DEAD_LETTERS
from genus.lake._tables.ledger import Commit, Part

if TYPE_CHECKING:
    from genus.lake._lake import Lake


class Increment(msgspec.Struct, frozen=True):
    """What a follower has not seen yet."""

    after: int
    upto: int
    parts: tuple[Part, ...]
    newest_us: int | None
    """When the newest event of the lake was recorded."""

    @property
    def families(self) -> list[str]:
        """The families that have new events."""
        return sorted({part.table for part in self.parts})

    @property
    def rows(self) -> int:
        """How many events are new."""
        return sum(part.rows for part in self.parts)

    def events(self, lake: "Lake", family: str) -> DataFrame:
        """The new events of a family, with all columns."""
        return lake.events(family, [part for part in self.parts if part.table == family])


class Followed(msgspec.Struct, frozen=True):
    """What one step of a follower did."""

    upto: int
    events: int
    rows: int
    """What it made of the events: matches delivered, or results given out."""
    late: int = 0
    """Events that an analysis left out, as late or overtaken."""
    problem: str | None = None
    """Why the last good list of subscriptions was used: the present one cannot be read."""


def increment(lake: "Lake", after: int) -> Increment | None:
    """What came in after a version; None if nothing did. The first time, everything that is there."""
    state = lake.state()
    if state.version <= after:
        return None
    commits = [] if after == 0 else lake.commits(after, state.version)
    parts = list(state.parts.values()) if after == 0 else [part for commit in commits for part in _read_in(commit)]
    events = tuple(part for part in parts if part.table != DEAD_LETTERS)
    lake.check_there([part for part in events if part.folder not in state.parts])
    return Increment(after, state.version, events, state.newest_us)


def _read_in(commit: Commit) -> tuple[Part, ...]:
    """The parts of events that were new; a compaction brings none."""
    return commit.added if commit.kind == "ingest" else ()


def missing(part: Part) -> LakeError:
    """What to say where a follower stayed behind for longer than folders are kept."""
    return LakeError(
        f"{part.folder} was compacted and cleaned away before it was followed; begin again with a new folder"
    )
