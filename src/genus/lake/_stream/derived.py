"""Derived tables: the results of an analysis of a lake's events, updated as events come in.

Each step is a Spark job that takes the new events and the rows that wait, writes the results that are final, and keeps
the rest waiting. Results, waiting rows and the processed version of the lake are one commit. The analysis is the one
that runs in batch.
"""

import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import msgspec
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from genus.errors import LakeError
from genus.filters import Subscription
from genus.lake._analytics.analysis import (
    END_OF_STREAM,
    RESULTS,
    TIME,
    WAITING,
    Analysis,
    in_one_task,
    is_late,
    is_overtaken,
    mark,
    union_waiting,
    watermark_of,
)
from genus.lake._jobs import folder_name, job_description
from genus.lake._query.reading import read_events, select_matches
from genus.lake._query.selection import family_of, select_tables
from genus.lake._stream.delivery import Increment, UpdateResult, commit_step, next_increment, slowest_recorder
from genus.lake._tables.commits import COMMIT, DEAD_LETTERS, START, CommitDraft, Part, count_files, count_rows
from genus.lake._tables.lake_catalog import matching_types
from genus.lake._tables.lake_tables import ROWS_PER_FILE, LakeTables, SparkStore, spark_errors
from genus.lake._tables.state import LedgerState
from genus.lake._tables.store import StoreProblem
from genus.model import Span, duration, micros_of_duration, seconds

SMALL_ROWS = 200_000
"""New and waiting rows that are processed in one task, because a shuffle takes longer than they take."""
IDLE = "1 min"
_KIND = "derived table"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WATERMARK, _OVERTAKEN, _TIMELESS, _COLUMNS = "watermark", "overtaken", "timeless", "columns"
"""Notes of a derived table; the columns are those of all results so far, as Spark writes a schema."""


_FILES_FOLLOW = (
    "the events are not processed yet: files with the same time of change as the newest ones wait for the next batch "
    "of a stream, and may have earlier events"
)


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
        """Return the results so far; an empty frame with the right columns while there are none."""
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
        return int(self._store.state().notes.get(_OVERTAKEN, "0"))

    def explain(self) -> str:
        """Say up to when results are final, how many rows wait and what for, and which recorder holds results back.

        Read it when a table stays empty: a long lateness, or a recorder that is behind the others, delays results.
        """
        state, newest = self._store.state(), self.lake.state().newest
        lines = [self._waits_for() or _final(state)]
        if not (slowest := self._slowest(newest)):
            lines.append(_FILES_FOLLOW if self._has_events() else "the lake has no events yet")
        else:
            first, last = _text(newest[slowest]), _text(max(newest.values()))
            lines.append(f"of {len(newest)} recorders, {slowest} has recorded up to {first}, the fastest up to {last}")
            if idle := sorted(name for name, at_us in newest.items() if at_us < newest[slowest]):
                lines.append(f"not waited for, because more than {self.idle} behind: {', '.join(idle)}")
        if self.lake.version > state.cursor.version:
            lines.append("the lake has versions that are not processed yet: call update()")
        if self.overtaken:
            lines.append(f"left out, because they came after their time was settled: {self.overtaken:,} events")
        return "\n".join(lines)

    def _slowest(self, newest: Mapping[str, int]) -> str | None:
        """Return the recorder that holds the results back; None if the lake has no events."""
        return slowest_recorder(newest, micros_of_duration(self.idle))

    def _waits_for(self) -> str:
        """Return what the waiting rows wait for, in a line; empty if none wait."""
        state, newest = self._store.state(), self.lake.state().newest
        slowest, waiting = self._slowest(newest), count_rows(state.table(WAITING))
        if slowest is None:
            return _FILES_FOLLOW if self._has_events() else ""
        if not waiting:
            return ""
        return (
            f"{_final(state)}; waiting rows: {waiting:,}, because {slowest} has recorded up to "
            f"{_text(newest[slowest])} and its events may be recorded {self.analysis.lateness} after their time"
        )

    def _has_events(self) -> bool:
        return any(part.table != DEAD_LETTERS for part in self.lake.state().parts.values())

    def update(self) -> UpdateResult:
        """Process the events that came into the lake since the last update, in one commit.

        LakeError if another process updates the same table.
        """
        new = next_increment(self.lake, self._store.state().cursor, self.path)
        slowest = None if new is None else self._slowest(new.newest)
        if new is None or slowest is None:
            return self._result(self.version)
        return self._step(new, watermark_of(_at(new.newest[slowest]), self.analysis.lateness))

    def finish(self) -> UpdateResult:
        """Process the events that came in since the last update, and settle all rows; later events are overtaken."""
        cursor = self._store.state().cursor
        new = next_increment(self.lake, cursor, self.path)
        return self._step(new or Increment(cursor, cursor, (), {}), END_OF_STREAM)

    def rebuild(self) -> UpdateResult:
        """Remove all results and compute them again from the events that the lake has now.

        Results are not changed by `Lake.delete` and `Lake.expire`; this removes what they have of such events. The old
        files stay until `clean` removes them. While the new results are computed, there are none.
        """
        state = self._store.state()
        notes = {_WATERMARK: "", _OVERTAKEN: "0", _TIMELESS: "0", _COLUMNS: ""}
        draft = msgspec.structs.replace(self._store.begin("rewind"), removed=tuple(state.parts), notes=notes)
        commit_step(self._store, msgspec.structs.replace(draft, after=state.cursor, upto=START), _KIND)
        return self.update()

    def _step(self, new: Increment, reached: datetime) -> UpdateResult:
        """Settle what is final at a watermark, or at the one before if that was later, and commit."""
        state = self._store.state()
        before = _parse_time(state.notes.get(_WATERMARK))
        watermark = reached if before is None else max(before, reached)
        if new.upto == new.after and watermark == before:
            return self._result(new.upto.version)
        draft = msgspec.structs.replace(self._store.begin("derive"), after=new.after, upto=new.upto)
        notes = {_WATERMARK: watermark.isoformat()}
        waiting, overtaken, late, timeless = state.table(WAITING), 0, 0, int(state.notes.get(_TIMELESS, "0"))
        has_events = any(new.parts_of(self._family(each)) for each in self.subscriptions)
        what = f"derive {folder_name(self.path)} from {folder_name(self.lake.path)}"
        with job_description(self.lake.spark, what), self._store.discarding():
            if has_events or (waiting and watermark != before):
                added, (overtaken, late, new_timeless), columns = self._settle(new, waiting, before, watermark, draft)
                timeless += new_timeless
                removed = tuple(part.folder for part in waiting)
                draft = msgspec.structs.replace(draft, added=added, removed=removed)
                notes |= _new_columns(self._store, state, columns)
            notes |= {_OVERTAKEN: str(self.overtaken + overtaken), _TIMELESS: str(timeless)}
            commit_step(self._store, msgspec.structs.replace(draft, notes=notes), _KIND)
        self._store.remove(f"{self.path}/{folder}" for folder in draft.removed)  # only this class reads waiting rows
        results = count_rows(part for part in draft.added if part.table == RESULTS)
        problem = f"{self.path}: {_why_overtaken(overtaken, timeless, before)}" if overtaken else None
        return self._result(new.upto.version, new.rows, results, overtaken + late, problem)

    def _result(
        self, upto: int, events: int = 0, rows: int = 0, late: int = 0, problem: str | None = None
    ) -> UpdateResult:
        waiting = count_rows(self._store.state().table(WAITING))
        return UpdateResult(upto, events, rows, late, problem, waiting, self._waits_for())

    def _settle(
        self, new: Increment, waiting: list[Part], before: datetime | None, watermark: datetime, draft: CommitDraft
    ) -> tuple[tuple[Part, ...], list[int], StructType]:
        """Write the results that are final and the rows that wait, by one job; few rows are processed in one task.

        Returns what was written, the numbers of events that are overtaken, late and without a time, and the columns of
        the results.
        """
        families = {self._family(each) for each in self.subscriptions}
        is_small = count_rows([*waiting, *(part for part in new.parts if part.table in families)]) <= SMALL_ROWS
        is_behind = is_overtaken(before) if before else F.lit(False)
        seen = [self._new_events(each, new, is_behind) for each in self.subscriptions]
        with in_one_task(is_small):
            taken = self.analysis.take(*(events.where(~is_behind) for events, _ in seen))
            kept = _read_files(self._store, waiting, taken.schema, WAITING) if waiting else None
            rows = union_waiting(kept, taken)
            settled = self.analysis.settle(rows.coalesce(1) if is_small else rows, watermark)
        parts = self._store.write(mark(settled), draft)
        counts = [count.get for _, count in seen if count is not None]
        totals = [sum(count[name] for count in counts) for name in ("overtaken", "late", "timeless")]
        return parts, totals, settled.results.schema

    def _new_events(
        self, subscription: Subscription, new: Increment, is_behind: Column
    ) -> tuple[DataFrame, Observation | None]:
        """The new events of a frame; Spark counts those overtaken, late otherwise, and without a time, as it reads."""
        family = self._family(subscription)
        table = select_tables(subscription, self.lake.catalog, self.lake.state(), parts=())[family]
        events = select_matches(new.events(self.lake, family), subscription, table)
        if not new.parts_of(family):
            return events, None
        count, late = Observation(), is_late(self.analysis.lateness) & ~is_behind
        counted = {"overtaken": is_behind, "late": late, "timeless": F.isnull(TIME)}
        return events.observe(count, *(F.count_if(each).alias(name) for name, each in counted.items())), count

    def compact(self) -> int:
        """Rewrite the many small result files as few large ones; returns by how many they became fewer."""
        parts = self._store.state().table(RESULTS)
        if len(parts) < 2:
            return 0
        frame = _read_store(self._store).coalesce(-(-count_rows(parts) // ROWS_PER_FILE))
        with job_description(self._store.spark, f"compact {folder_name(self.path)}"):
            return count_files(parts) - count_files(self._store.rewrite(frame, RESULTS, parts))

    def clean(self, older_than: Span = "7 days") -> int:
        """Remove folders that were replaced that long ago, or left by killed updates; returns their number."""
        return self._store.clean([RESULTS, WAITING], seconds(older_than, "older_than"))

    def check(self, *, content: bool = True) -> list[StoreProblem]:
        """Compare the files with the ledger, and with `content` their checksums; an empty list if they agree."""
        return list(self._store.check(content=content))

    def _family(self, subscription: Subscription) -> str:
        """Return the family of the events of a frame; LakeError if there are several."""
        families = matching_types(subscription, self.lake.catalog, self.lake.state().shapes.values())
        if len(families) > 1:
            raise LakeError(f"{subscription} has events of {len(families)} families; an analysis takes events of one")
        return next(iter(families), family_of(subscription, self.lake.catalog))


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
    """Return all results; later ones may have more columns, if the family got attributes meanwhile."""
    state = store.state()
    if not state.table(RESULTS):
        raise LakeError(f"{store.path} has no results yet")
    return _read_files(store, state.table(RESULTS), _columns_of(store, state), RESULTS)


def _read_files(store: SparkStore, parts: Sequence[Part], schema: StructType, table: str) -> DataFrame:
    return store.frame(parts, StructType([*schema, StructField(COMMIT, StringType())]), table).drop(COMMIT)


def _columns_of(store: SparkStore, state: LedgerState) -> StructType:
    """The columns of all results; of tables of earlier versions, whose notes do not say them, those of the files."""
    if noted := state.notes.get(_COLUMNS):
        return StructType.fromJson(msgspec.json.decode(noted))
    paths = store.spark_paths(state.table(RESULTS))
    with spark_errors(store.path):
        return store.spark.read.option("mergeSchema", "true").parquet(*paths).schema if paths else StructType()


def _new_columns(store: SparkStore, state: LedgerState, columns: StructType) -> dict[str, str]:
    """Return the note of the columns of all results, if new ones have other columns; a column keeps its first type."""
    known = {field.name: field for field in _columns_of(store, state)}
    every = StructType(list(({field.name: field for field in columns} | known).values())).json()
    return {} if every == state.notes.get(_COLUMNS) else {_COLUMNS: every}


def _parse_time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def _at(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)


def _text(at: int | datetime) -> str:
    return f"{_at(at) if isinstance(at, int) else at:%Y-%m-%d %H:%M:%S} UTC"


def _why_overtaken(overtaken: int, timeless: int, before: datetime | None) -> str:
    """Say how many events a step left out because their time was settled, and what the likely reason is."""
    text = f"{overtaken:,} events are left out, because they came after their time was settled"
    if before == END_OF_STREAM:
        return f"{text}: the table was finished"
    if timeless:
        return (
            f"{text}; likely by events without a time of their own ({timeless:,} so far), which count by their time of "
            "recording, that of their file if it says none: declare time: datetime in their class"
        )
    return (
        f"{text}: files of a recorder did not land in order, a recorder was more than idle= behind, or events outside "
        "the subscription have no time of their own"
    )


def _final(state: LedgerState) -> str:
    """Up to when results are final."""
    watermark = _parse_time(state.notes.get(_WATERMARK))
    if watermark is None:
        return "no results are final yet"
    if watermark == END_OF_STREAM:
        return "all results are final, because the table was finished"
    return f"results before {_text(watermark)} are final"
