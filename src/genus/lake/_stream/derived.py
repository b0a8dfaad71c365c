"""Derived tables: the results of an analysis of a lake's events, updated as events come in.

Each step takes the new events and the rows that wait, writes the results that are final, and keeps the rest waiting.
Results, waiting rows and the processed version of the lake are one commit. The analysis is the one that runs in batch.
"""

import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from genus.errors import LakeError
from genus.filters import Subscription
from genus.lake._analytics.analysis import (
    END_OF_STREAM,
    Analysis,
    is_late,
    is_overtaken,
    persist,
    union_waiting,
    watermark_of,
)
from genus.lake._query.reading import read_events, result_columns, select_matches
from genus.lake._stream.increments import Increment, UpdateResult, next_increment
from genus.lake._tables.columns import COMMIT
from genus.lake._tables.compaction import ROWS_PER_FILE
from genus.lake._tables.files import spark_path
from genus.lake._tables.lake_catalog import matching_types
from genus.lake._tables.lake_tables import LakeTables
from genus.lake._tables.ledger import CommitConflict, CommitDraft, Part, count_files, count_rows
from genus.lake._tables.store import Store

RESULTS, WAITING = "results", "waiting"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class DerivedTable:
    """The results of an analysis of some of a lake's events, stored at a path of their own.

    Args:
        lake: The `Lake` whose events are analysed.
        path: A folder for the results; created if there is none.
        analysis: A `Pairing`, `Windows`, `Walk` or another `Analysis` with a lateness.
        subscriptions: The events of each frame that the analysis takes; each of one family.

    Raises:
        LakeError: The analysis has no lateness, or the folder has results of another lake, analysis or subscription.
    """

    def __init__(
        self,
        lake: LakeTables,
        path: str | os.PathLike[str],
        analysis: Analysis,
        *subscriptions: Subscription | type | str,
    ) -> None:
        self.lake = lake
        self.analysis = analysis
        self.subscriptions = tuple(lake.subscription(each) for each in subscriptions)
        self._store = Store(lake.spark, path)
        self.path = self._store.path
        watermark_of(_EPOCH.replace(year=2000), analysis.lateness)  # raises if there is no lateness
        of = "; ".join(map(str, self.subscriptions))
        self._store.claim({"lake": lake.path, "analysis": repr(analysis), "subscription": of})

    def read(self) -> DataFrame:
        """The results so far; an empty frame with the right columns while there are none."""
        if self._store.state().table(RESULTS):
            return _read_store(self._store)
        return self.analysis.all(*(read_events(self.lake, each).limit(0) for each in self.subscriptions))

    @property
    def version(self) -> int:
        """The version of the lake that the results include."""
        return self._store.state().cursor

    @property
    def overtaken(self) -> int:
        """The number of events that are not in the results because they came after their time had been settled."""
        return int(self._store.state().notes.get("overtaken", "0"))

    def update(self) -> UpdateResult:
        """Process the events that came into the lake since the last update, in one commit.

        LakeError if another process updates the same table.
        """
        new = next_increment(self.lake, self.version)
        if new is None or new.newest_us is None:
            return UpdateResult(self.version, 0, 0)
        newest = _EPOCH + timedelta(microseconds=new.newest_us)
        return self._step(new, watermark_of(newest, self.analysis.lateness))

    def finish(self) -> UpdateResult:
        """Update, then settle the waiting rows too; events that come later are overtaken.

        Returns what both steps did together.
        """
        updated = self.update()
        settled = self._step(Increment(self.version, self.version, (), None), END_OF_STREAM)
        return msgspec.structs.replace(updated, rows=updated.rows + settled.rows)

    def _step(self, new: Increment, watermark: datetime) -> UpdateResult:
        draft = self._store.begin("derive")
        state = self._store.state()
        before = _parse_time(state.notes.get("watermark"))
        frames = [self._new_events(each, new) for each in self.subscriptions]
        is_behind = is_overtaken(before) if before else F.lit(False)
        overtaken, late = self._count_left_out(frames, is_behind) if new.parts else (0, 0)
        in_time = [frame.where(~is_behind) for frame in frames]
        rows = union_waiting(self._waiting(state.table(WAITING)), self.analysis.take(*in_time))
        settled = self.analysis.settle(rows, watermark)
        persist(settled.shared)
        try:
            results = self._store.write(settled.results, draft, RESULTS)
            waiting = self._store.write(settled.waiting, draft, WAITING)
        finally:
            settled.shared.unpersist()
        notes = {"watermark": watermark.isoformat(), "overtaken": str(self.overtaken + overtaken)}
        processed = tuple(part.folder for part in state.table(WAITING))
        self._commit(
            msgspec.structs.replace(
                draft, added=(*results, *waiting), removed=processed, after=new.after, upto=new.upto, notes=notes
            )
        )
        self._store.remove(f"{self.path}/{folder}" for folder in processed)  # only this class reads waiting rows
        return UpdateResult(new.upto, new.rows, count_rows(results), overtaken + late)

    def _count_left_out(self, frames: list[DataFrame], is_behind: Column) -> tuple[int, int]:
        """The number of new events that are overtaken, and of others that are late."""
        late = is_late(self.analysis.lateness)
        counts = [F.count_if(is_behind).alias("overtaken"), F.count_if(late & ~is_behind).alias("late")]
        found = [frame.agg(*counts).toArrow().to_pylist()[0] for frame in frames]
        return sum(row["overtaken"] for row in found), sum(row["late"] for row in found)

    def compact(self) -> int:
        """Rewrite the many small result files as few large ones; returns by how many they became fewer."""
        parts = self._store.state().table(RESULTS)
        if len(parts) < 2:
            return 0
        frame = _read_parts(self._store, parts).coalesce(-(-count_rows(parts) // ROWS_PER_FILE))
        return count_files(parts) - count_files(self._store.rewrite(frame, RESULTS, parts))

    def clean(self, older_than_s: float = 7 * 86_400) -> int:
        """Remove folders that were replaced that long ago, or left by killed updates; returns their number."""
        return self._store.clean([RESULTS, WAITING], older_than_s)

    def _commit(self, draft: CommitDraft) -> None:
        try:
            self._store.commit(draft)
        except CommitConflict as problem:
            self._store.discard(draft)
            raise LakeError(
                f"{self.path} is being updated by another process ({problem}); run one process per derived table"
            ) from problem

    def _new_events(self, subscription: Subscription, new: Increment) -> DataFrame:
        """The new events of one frame of the analysis."""
        families = matching_types(subscription, self.lake.catalog, self.lake.state().shapes.values())
        if len(families) != 1:
            raise LakeError(f"{subscription} has events of {len(families)} families; an analysis takes events of one")
        ((family, names),) = families.items()
        events = select_matches(new.events(self.lake, family), subscription, names)
        return events.select(*result_columns(subscription))

    def _waiting(self, parts: list[Part]) -> DataFrame | None:
        paths = self._store.paths(parts)
        return self._store.spark.read.parquet(*paths) if paths else None


def read_results(spark: SparkSession, path: str | os.PathLike[str]) -> DataFrame:
    """Read the results of a derived table without knowing its analysis.

    Args:
        spark: Your session.
        path: The path of the `DerivedTable`.

    Raises:
        LakeError: There are no results yet.
    """
    return _read_store(Store(spark, path))


def _read_store(store: Store) -> DataFrame:
    parts = store.state().table(RESULTS)
    if not parts:
        raise LakeError(f"{store.path} has no results yet")
    return _read_parts(store, parts)


def _read_parts(store: Store, parts: Sequence[Part]) -> DataFrame:
    """The results in some parts; later ones may have more columns, if the family got attributes meanwhile."""
    reader = store.spark.read.option("mergeSchema", "true").option("basePath", spark_path(f"{store.path}/{RESULTS}"))
    return reader.parquet(*store.paths(parts)).drop(COMMIT)


def _parse_time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
