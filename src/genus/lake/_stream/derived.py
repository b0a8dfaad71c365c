"""Derived tables: the results of an analysis of a lake's events, updated as events come in.

Each step takes the new events and the rows that wait, writes the results that are final, and keeps the rest waiting.
Results, waiting rows and the processed version of the lake are one commit. The analysis is the one that runs in batch.
"""

import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import msgspec
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructType

from genus.errors import LakeError
from genus.filters import Subscription
from genus.lake._analytics.analysis import (
    END_OF_STREAM,
    Analysis,
    LocalAnalysis,
    in_one_task,
    is_late,
    is_overtaken,
    persist,
    union_waiting,
    watermark_of,
)
from genus.lake._analytics.arrow_events import late_rows, overtaken_rows, select_rows
from genus.lake._jobs import folder_name, job_description
from genus.lake._local.reader import find_events
from genus.lake._query.reading import read_events, select_matches, visible_column
from genus.lake._query.result_columns import family_of, result_columns
from genus.lake._stream.increments import Increment, UpdateResult, next_increment
from genus.lake._stream.part_files import read_rows, write_rows, written_schema
from genus.lake._tables.columns import COMMIT
from genus.lake._tables.commits import START, CommitConflict, CommitDraft, Part, count_files, count_rows
from genus.lake._tables.compaction import ROWS_PER_FILE
from genus.lake._tables.files import arrow_opens, spark_path
from genus.lake._tables.lake_catalog import matching_types
from genus.lake._tables.lake_tables import LakeTables
from genus.lake._tables.spark_store import SparkStore, spark_errors
from genus.lake._tables.store import StoreProblem
from genus.model import Span, duration, seconds
from genus.model._types import micros_of_duration
from genus.model._vector import hidden_names

RESULTS, WAITING = "results", "waiting"
SMALL_ROWS = 200_000
"""New and waiting rows that are processed in this process; if the analysis cannot do that, in one task."""
IDLE = "1 min"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class DerivedTable:
    """The results of an analysis of some of a lake's events, stored at a path of their own.

    Args:
        lake: The `Lake` whose events are analysed.
        path: A folder for the results; created if there is none.
        analysis: A `Pairing`, `Windows`, `Walk` or another `Analysis` with a lateness.
        subscriptions: The events of each frame that the analysis takes; each of one family.
        idle: How far a recorder may be behind the newest one before results no longer wait for it.

    Raises:
        LakeError: The analysis has no lateness, or the folder has results of another lake, analysis or subscription.
    """

    def __init__(
        self,
        lake: LakeTables,
        path: str | os.PathLike[str],
        analysis: Analysis,
        *subscriptions: Subscription | type | str,
        idle: Span = IDLE,
    ) -> None:
        self.lake = lake
        self.analysis = analysis
        self.idle = duration(idle, "idle")
        self.subscriptions = tuple(lake.subscription(each) for each in subscriptions)
        self._store = SparkStore(lake.spark, path)
        self.path = self._store.path
        watermark_of(_EPOCH.replace(year=2000), analysis.lateness)  # raises if there is no lateness
        of = "; ".join(map(str, self.subscriptions))
        self._store.claim(lake.store, "derived", analysis=repr(analysis), subscription=of)

    def read(self) -> DataFrame:
        """The results so far; an empty frame with the right columns while there are none."""
        if self._store.state().table(RESULTS):
            return _read_store(self._store)
        return self.analysis.all(*(read_events(self.lake, each).limit(0) for each in self.subscriptions))

    @property
    def version(self) -> int:
        """The version of the lake that the results include."""
        return self._store.state().cursor.version

    @property
    def overtaken(self) -> int:
        """The number of events that are not in the results because they came after their time had been settled."""
        return int(self._store.state().notes.get("overtaken", "0"))

    def update(self) -> UpdateResult:
        """Process the events that came into the lake since the last update, in one commit.

        LakeError if another process updates the same table.
        """
        new = next_increment(self.lake, self._store.state().cursor, self.path)
        recorded_us = None if new is None else new.recorded_upto(micros_of_duration(self.idle))
        if new is None or recorded_us is None:
            return UpdateResult(self.version, 0, 0)
        return self._step(new, watermark_of(_EPOCH + timedelta(microseconds=recorded_us), self.analysis.lateness))

    def finish(self) -> UpdateResult:
        """Update, then settle the waiting rows too; events that come later are overtaken.

        Returns what both steps did together.
        """
        updated = self.update()
        cursor = self._store.state().cursor
        settled = self._step(Increment(cursor, cursor, (), {}), END_OF_STREAM)
        return msgspec.structs.replace(updated, rows=updated.rows + settled.rows)

    def rebuild(self) -> UpdateResult:
        """Remove all results and compute them again from the events that the lake has now.

        Results are not changed by `Lake.delete` and `Lake.expire`; this removes what they have of such events. The old
        files stay until `clean` removes them. While the new results are computed, there are none.
        """
        state = self._store.state()
        self._commit(
            msgspec.structs.replace(
                self._store.begin("rewind"),
                removed=tuple(state.parts),
                after=state.cursor,
                upto=START,
                notes={"watermark": "", "overtaken": "0"},
            )
        )
        return self.update()

    def _step(self, new: Increment, reached: datetime) -> UpdateResult:
        """Process new events and the waiting rows up to a watermark."""
        what = f"derive {folder_name(self.path)} from {folder_name(self.lake.path)}"
        with job_description(self.lake.spark, what), self._store.discarding():
            return self._process(new, reached)

    def _process(self, new: Increment, reached: datetime) -> UpdateResult:
        """Settle what is final at a watermark, or at the one before if that was later, and commit."""
        state = self._store.state()
        before = _parse_time(state.notes.get("watermark"))
        watermark = reached if before is None else max(before, reached)
        if new.upto == new.after and watermark == before:
            return UpdateResult(new.upto.version, 0, 0)
        draft, waiting = self._store.begin("derive"), state.table(WAITING)
        families = [self._family(each) for each in self.subscriptions]
        has_events = any(new.parts_of(family) for family, _ in families)
        if has_events or (waiting and watermark != before):
            written = self._settle(_Step(new, waiting, before, watermark, draft))
            removed = tuple(part.folder for part in waiting)
        else:
            written, removed = _NOTHING_WRITTEN, ()
        notes = {"watermark": watermark.isoformat(), "overtaken": str(self.overtaken + written.overtaken)}
        draft = msgspec.structs.replace(
            draft, added=written.parts, removed=removed, after=new.after, upto=new.upto, notes=notes
        )
        self._commit(draft)
        self._store.remove(f"{self.path}/{folder}" for folder in removed)  # only this class reads waiting rows
        left_out = written.overtaken + written.late
        results = [part for part in written.parts if part.table == RESULTS]
        return UpdateResult(new.upto.version, new.rows, count_rows(results), left_out)

    def _settle(self, step: "_Step") -> "_Written":
        """Write the results that are final and the rows that wait; few rows are processed without Spark."""
        families = {self._family(each)[0] for each in self.subscriptions}
        rows = count_rows([*step.waiting, *(part for part in step.new.parts if part.table in families)])
        if isinstance(self.analysis, LocalAnalysis) and rows * self.analysis.rows_per_event <= SMALL_ROWS:
            events = self._local_events(step.new)
            if events is not None:
                return self._settle_here(self.analysis, events, step)
        return self._settle_by_spark(step, is_small=rows <= SMALL_ROWS)

    def _local_events(self, new: Increment) -> list[pa.Table] | None:
        """The new events of each frame; None if the files cannot be read here, or Spark has to make types equal."""
        if not arrow_opens(self.lake.path) or not arrow_opens(self.path):
            return None
        state = self.lake.state()
        found = [find_events(self.lake, each, state, parts=new.parts) for each in self.subscriptions]
        types = {(field.name, field.type) for each in found for field in each.schema}
        return [each.to_arrow() for each in found] if len(types) == len({name for name, _ in types}) else None

    def _settle_here(self, analysis: LocalAnalysis, events: list[pa.Table], step: "_Step") -> "_Written":
        behind = [overtaken_rows(each, step.before) for each in events]
        late = [late_rows(each, analysis.lateness) & ~mask for each, mask in zip(events, behind, strict=True)]
        taken = analysis.take_arrow(*(select_rows(each, ~mask) for each, mask in zip(events, behind, strict=True)))
        rows = pa.concat_tables([taken, read_rows(self._store, step.waiting, taken.schema)])
        settled = analysis.settle_arrow(rows, step.watermark)
        results = write_rows(self._store, settled.results, step.draft, RESULTS)
        kept = write_rows(self._store, settled.waiting, step.draft, WAITING)
        return _Written((*results, *kept), *(int(sum(mask.sum() for mask in masks)) for masks in (behind, late)))

    def _settle_by_spark(self, step: "_Step", *, is_small: bool) -> "_Written":
        is_behind = is_overtaken(step.before) if step.before else F.lit(False)
        seen = [self._observe(each, step.new, is_behind) for each in self.subscriptions]
        with in_one_task(is_small):
            taken = self.analysis.take(*(events.where(~is_behind) for events, _ in seen))
            rows = union_waiting(self._waiting(step.waiting, taken.schema), taken)
            settled = self.analysis.settle(rows.coalesce(1) if is_small else rows, step.watermark)
        persist(settled.shared)
        try:
            results = self._store.write(settled.results, step.draft, RESULTS)
            kept = self._store.write(settled.waiting, step.draft, WAITING)
        finally:
            settled.shared.unpersist()
        counts = [count.get for _, count in seen if count is not None]
        overtaken, late = (sum(count[name] for count in counts) for name in ("overtaken", "late"))
        return _Written((*results, *kept), overtaken, late)

    def _observe(
        self, subscription: Subscription, new: Increment, is_behind: Column
    ) -> tuple[DataFrame, Observation | None]:
        """The new events of a frame; Spark counts those that are overtaken, and others that are late, as it reads."""
        events = self._new_events(subscription, new)
        if not new.parts_of(self._family(subscription)[0]):
            return events, None
        count, late = Observation(), is_late(self.analysis.lateness)
        return events.observe(
            count, F.count_if(is_behind).alias("overtaken"), F.count_if(late & ~is_behind).alias("late")
        ), count

    def compact(self) -> int:
        """Rewrite the many small result files as few large ones; returns by how many they became fewer."""
        parts = self._store.state().table(RESULTS)
        if len(parts) < 2:
            return 0
        frame = _read_parts(self._store, parts).coalesce(-(-count_rows(parts) // ROWS_PER_FILE))
        with job_description(self._store.spark, f"compact {folder_name(self.path)}"):
            return count_files(parts) - count_files(self._store.rewrite(frame, RESULTS, parts))

    def clean(self, older_than: Span = "7 days") -> int:
        """Remove folders that were replaced that long ago, or left by killed updates; returns their number."""
        return self._store.clean([RESULTS, WAITING], seconds(older_than, "older_than"))

    def check(self, *, content: bool = True) -> list[StoreProblem]:
        """Compare the files with the ledger; an empty list if they agree.

        Args:
            content: Also compare the checksums of the files, which reads all of them.
        """
        return list(self._store.check(content=content))

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
        family, names = self._family(subscription)
        events = select_matches(new.events(self.lake, family), subscription, names)
        hidden = hidden_names(self.lake.catalog.vector(family), subscription.vector)
        return events.select(*(visible_column(name, hidden) for name in result_columns(subscription)))

    def _family(self, subscription: Subscription) -> tuple[str, list[str]]:
        """The family of the events of a frame, and their types; LakeError if there is another number of families."""
        families = matching_types(subscription, self.lake.catalog, self.lake.state().shapes.values())
        if len(families) > 1:
            raise LakeError(f"{subscription} has events of {len(families)} families; an analysis takes events of one")
        return next(iter(families.items()), (family_of(subscription, self.lake.catalog), []))

    def _waiting(self, parts: list[Part], schema: StructType) -> DataFrame | None:
        """The waiting rows, with the columns of new ones."""
        paths = self._store.spark_paths(parts)
        with spark_errors(self.path):
            return self._store.spark.read.schema(schema).parquet(*paths) if paths else None


class _Step(NamedTuple):
    """What is to be processed in one step."""

    new: Increment
    waiting: list[Part]
    before: datetime | None
    """The watermark of the step before."""
    watermark: datetime
    draft: CommitDraft


class _Written(NamedTuple):
    """What one step wrote, and the number of events that it left out."""

    parts: tuple[Part, ...]
    overtaken: int
    late: int


_NOTHING_WRITTEN = _Written((), 0, 0)


def read_results(spark: SparkSession, path: str | os.PathLike[str]) -> DataFrame:
    """Read the results of a derived table without knowing its analysis.

    Args:
        spark: Your session.
        path: The path of the `DerivedTable`.

    Raises:
        LakeError: There are no results yet.
    """
    store = SparkStore(spark, path)
    if store.ledger.exists:
        store.check_holds("derived")
    return _read_store(store)


def _read_store(store: SparkStore) -> DataFrame:
    parts = store.state().table(RESULTS)
    if not parts:
        raise LakeError(f"{store.path} has no results yet")
    return _read_parts(store, parts)


def _read_parts(store: SparkStore, parts: Sequence[Part]) -> DataFrame:
    """The results in some parts; later ones may have more columns, if the family got attributes meanwhile."""
    schema = written_schema(store, parts)
    if schema is not None:
        return store.frame(parts, schema.add(COMMIT, StringType()), RESULTS).drop(COMMIT)
    reader = store.spark.read.option("mergeSchema", "true").option("basePath", spark_path(f"{store.path}/{RESULTS}"))
    with spark_errors(store.path):
        return reader.parquet(*store.spark_paths(parts)).drop(COMMIT)


def _parse_time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
