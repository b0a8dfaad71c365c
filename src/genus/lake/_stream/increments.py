"""Increments: the events that came into a lake after a version, for inboxes, derived tables and functions.

A follower stores the version it has processed in its own ledger, in the same commit as its output. So it processes
every event once, wherever it is stopped or killed, in batch and on a stream. The events are read from the present files
of the lake, by the version that they came with (`_tables.batches`): a compaction is no news, old files may be removed,
and events that were deleted before they were processed are not processed.
"""

from collections.abc import Mapping

import msgspec
from pyspark.sql import DataFrame

from genus.errors import LakeError
from genus.lake._query.removal import by_table
from genus.lake._tables.commits import CommitConflict, CommitDraft, Cursor, Part, count_rows
from genus.lake._tables.lake_tables import LakeTables
from genus.lake._tables.state import is_cut, parts_after
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

    def parts_of(self, family: str) -> list[Part]:
        return [part for part in self.parts if part.table == family]

    def events(self, lake: LakeTables, family: str) -> DataFrame:
        """Return the new events of a family, with all columns."""
        return lake.events(family, self.parts_of(family), self.after.version)


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
    """The recorder furthest behind by the latest times of recording, without those that are by more than `idle_us`.

    >>> slowest_recorder({"a": 5_000, "b": 4_500, "c": 100}, idle_us=1_000)
    'b'
    """
    latest = max(newest.values(), default=0)
    return min((name for name in newest if newest[name] >= latest - idle_us), key=newest.__getitem__, default=None)


def next_increment(lake: LakeTables, after: Cursor, follower: str) -> Increment | None:
    """Return the events that came in after a version; None if there are none. At the start, all events of the lake.

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
    parts, version = parts_after(lake.store.ledger.history(), state, after.version), after.version
    cut = by_table(part for part in parts if is_cut(part, version))  # they have other events, too: Spark counts
    rows = count_rows(part for part in parts if not is_cut(part, version))
    rows += sum(lake.events(family, found, version).count() for family, found in cut.items())
    return Increment(after, state.now, tuple(parts), state.newest, rows)


def commit_step(store: Store, draft: CommitDraft, kind: str) -> None:
    """Commit a step of a follower that one process may update at a time; LakeError if another one did."""
    try:
        store.commit(draft)
    except CommitConflict as problem:
        raise LakeError(
            f"{store.path} is being updated by another process ({problem}); run one process per {kind}"
        ) from problem
