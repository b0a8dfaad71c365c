"""Derived tables: what an analysis makes of a lake's events, kept up to date as events come in.

Each step takes the new events and those that waited, gives out what is settled, and keeps the rest waiting; results,
waiting events and the version of the lake are one commit. The analysis is the one that batch runs over everything.
"""

import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from genus.errors import LakeError
from genus.filters import Subscription
from genus.lake._analytics import END, Analysis, is_late, is_overtaken, keep, together, watermark_of
from genus.lake._compaction import ROWS_PER_FILE
from genus.lake._increments import Followed, Increment, increment
from genus.lake._reading import columns_of, select
from genus.lake._tables.columns import COMMIT
from genus.lake._tables.files import spark_path
from genus.lake._tables.lake_catalog import type_names
from genus.lake._tables.ledger import Draft, Overtaken, Part, files_in, rows_in
from genus.lake._tables.store import Store

if TYPE_CHECKING:
    from genus.lake._lake import Lake

RESULTS, WAITING = "results", "waiting"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Derived:
    """The results of an analysis of some of a lake's events, at a path of their own."""

    def __init__(
        self, lake: "Lake", path: str | os.PathLike[str], analysis: Analysis, *subscriptions: Subscription | type | str
    ) -> None:
        self.lake = lake
        self.analysis = analysis
        self.subscriptions = tuple(_subscription(lake, each) for each in subscriptions)
        self._store = Store(lake.spark, path)
        self.path = self._store.path
        watermark_of(_EPOCH.replace(year=2000), analysis.lateness)  # refuses an analysis without a lateness
        of = "; ".join(map(str, self.subscriptions))
        self._store.claim({"lake": lake.path, "analysis": repr(analysis), "subscription": of})

    def read(self) -> DataFrame:
        """The results so far; an empty frame while there are none."""
        if self._store.state().table(RESULTS):
            return read_results(self._store)
        return self.analysis.all(*(self.lake.read(each).limit(0) for each in self.subscriptions))

    @property
    def version(self) -> int:
        """The version of the lake that the results have come to."""
        return self._store.state().cursor

    @property
    def overtaken(self) -> int:
        """How many events came after their time had been settled, and are not in the results."""
        return int(self._store.state().notes.get("overtaken", "0"))

    def update(self) -> Followed:
        """Take in what came into the lake since the last time."""
        new = increment(self.lake, self.version)
        if new is None or new.newest_us is None:
            return Followed(self.version, 0, 0)
        newest = _EPOCH + timedelta(microseconds=new.newest_us)
        return self._step(new, watermark_of(newest, self.analysis.lateness))

    def finish(self) -> Followed:
        """Give out what is still waiting too, as no more events will come; those that do are overtaken."""
        self.update()
        nothing_new = Increment(self.version, self.version, (), None)
        return self._step(nothing_new, END)

    def _step(self, new: Increment, watermark: datetime) -> Followed:
        draft = self._store.begin("derive")
        state = self._store.state()
        before = _time(state.notes.get("watermark"))
        frames = [self._new(each, new) for each in self.subscriptions]
        gone_by = is_overtaken(before) if before else F.lit(False)
        overtaken, late = self._left_out(frames, gone_by) if new.parts else (0, 0)
        kept = [frame.where(~gone_by) for frame in frames]
        rows = together(self._waiting(state.table(WAITING)), self.analysis.take(*kept))
        settled = self.analysis.settle(rows, watermark)
        keep(settled.shared)
        try:
            results = self._store.write(settled.results, draft, RESULTS)
            waiting = self._store.write(settled.waiting, draft, WAITING)
        finally:
            settled.shared.unpersist()
        notes = {"watermark": watermark.isoformat(), "overtaken": str(self.overtaken + overtaken)}
        gone = tuple(part.folder for part in state.table(WAITING))
        self._commit(
            msgspec.structs.replace(
                draft, added=(*results, *waiting), removed=gone, after=new.after, upto=new.upto, notes=notes
            )
        )
        self._store.sweep(f"{self.path}/{folder}" for folder in gone)  # nobody else reads what waits
        return Followed(new.upto, new.rows, sum(part.rows for part in results), overtaken + late)

    def _left_out(self, frames: list[DataFrame], gone_by: Column) -> tuple[int, int]:
        """How many of the new events are overtaken, and how many others are late."""
        late = is_late(self.analysis.lateness)
        counts = [F.count_if(gone_by).alias("overtaken"), F.count_if(late & ~gone_by).alias("late")]
        found = [frame.agg(*counts).toArrow().to_pylist()[0] for frame in frames]
        return sum(row["overtaken"] for row in found), sum(row["late"] for row in found)

    def compact(self) -> int:
        """Write the many small results anew as few files; returns how many files there are less."""
        parts = self._store.state().table(RESULTS)
        if len(parts) < 2:
            return 0
        frame = _results(self._store, parts).coalesce(-(-rows_in(parts) // ROWS_PER_FILE))
        return files_in(parts) - files_in(self._store.rewrite(frame, RESULTS, parts))

    def clean(self, older_than_s: float = 7 * 86_400) -> int:
        """Remove folders that do not count any more; returns how many."""
        return self._store.clean([RESULTS, WAITING], older_than_s)

    def _commit(self, draft: Draft) -> None:
        try:
            self._store.commit(draft)
        except Overtaken as problem:
            self._store.discard(draft)
            raise LakeError(f"{self.path} is being updated by another process ({problem}); let one do it") from problem

    def _new(self, subscription: Subscription, new: Increment) -> DataFrame:
        """The new events that one side of the analysis is about."""
        families = type_names(subscription, self.lake.catalog, self.lake.state().shapes.values())
        if len(families) != 1:
            raise LakeError(f"{subscription} is about {len(families)} families; an analysis takes events of one")
        ((family, names),) = families.items()
        return select(new.events(self.lake, family), subscription, names).select(*columns_of(subscription))

    def _waiting(self, parts: list[Part]) -> DataFrame | None:
        paths = self._store.paths(parts)
        return self._store.spark.read.parquet(*paths) if paths else None


def read_results(store: Store) -> DataFrame:
    """The results in a store of derived ones."""
    parts = store.state().table(RESULTS)
    if not parts:
        raise LakeError(f"{store.path} has no results yet")
    return _results(store, parts)


def _results(store: Store, parts: Sequence[Part]) -> DataFrame:
    """Results; a family that grew meanwhile gave later ones more columns."""
    reader = store.spark.read.option("mergeSchema", "true").option("basePath", spark_path(f"{store.path}/{RESULTS}"))
    return reader.parquet(*store.paths(parts)).drop(COMMIT)


def open_results(spark: SparkSession, path: str | os.PathLike[str]) -> DataFrame:
    """The results at a path, for programs that do not know the analysis."""
    return read_results(Store(spark, path))


def _subscription(lake: "Lake", given: Subscription | type | str) -> Subscription:
    return lake.subscription(Subscription(given) if isinstance(given, type) else given)


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
