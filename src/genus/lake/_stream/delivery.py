"""Increments: the events that came into a lake after a version; and deliveries, the matches of new events.

A follower stores the version it has processed in its own ledger, in the same commit as its output. So it processes
every event once, wherever it is stopped or killed, in batch and on a stream. The events are read from the present files
of the lake, by the version that they came with (`commits.BATCH`): a compaction is no news, old files may be removed,
and events that were deleted before they were processed are not processed.

A delivery writes the matches of all families to inboxes, by the tasks of one Spark job. A task reads shares of the new
files, matches the events with the plan, and writes the matches of each family in order of subscriber and time, so that
one inbox is in few row groups of a file. It begins another file when it has many, so that its memory is limited. Names
and contents of files depend on the number and the input of the task only: a task that is retried, or run twice at the
same time, writes the same files. Sizes and checksums are computed in the task.

Inboxes note which entries with a time (`RouteEntry.since`) they have had. An entry that is not among them gets the
matches of all earlier events from its time on, without those that were delivered to it already.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC
from functools import cached_property, partial
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from genus.errors import LakeError
from genus.lake._analytics.analysis import event_time
from genus.lake._jobs import Sent, folder_name, job_description, parallelism, send
from genus.lake._query.number_tables import Matches
from genus.lake._query.removal import by_table
from genus.lake._query.route_job import BATCH_ROWS, Batch, RouteJob
from genus.lake._query.route_plan import FamilyPlan, plan_routes
from genus.lake._query.subscription_list import RouteEntry
from genus.lake._tables.commits import (
    COMMIT,
    DAY,
    SUBSCRIBER,
    SUBSCRIPTION,
    CommitConflict,
    CommitDraft,
    Cursor,
    Part,
    StoredFile,
    count_rows,
    hash_of,
)
from genus.lake._tables.files import arrow_opens, write_file
from genus.lake._tables.lake_tables import LakeTables, SparkStore
from genus.lake._tables.part_writer import (
    RESULT_SCHEMA,
    ROW_GROUP,
    DriverUpload,
    event_schema,
    file_schema,
    write_tables,
    write_uploads,
)
from genus.lake._tables.state import LedgerState, is_cut, parts_after
from genus.lake._tables.store import Store
from genus.model import micros_of_time


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
    """Which subscriptions were not used, and why; why the previous list was used; or how many events were left out of
    an analysis because they came after their time was settled."""
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


MATCHES_PER_FILE = 2_000_000
"""A task begins another file when it has found so many matches."""
EVENTS_PER_TASK = 50_000
"""A task of a small delivery reads at least so many events."""

_NUMBER, _TEXT, _SINCE_US = "__number", "__text", "__since_us"
_ADDRESS = (pa.field(SUBSCRIBER, pa.string()), pa.field(SUBSCRIPTION, pa.string()))

Rows = npt.NDArray[np.int64]


class Addresses:
    def __init__(self, subscribers: Sequence[str], texts: Sequence[str]) -> None:
        self._subscribers, self._texts = pa.array(subscribers, pa.string()), pa.array(texts, pa.string())
        numbered = list(enumerate(zip(subscribers, texts, strict=True)))
        first = {address: number for number, address in reversed(numbered)}
        self.is_first = np.zeros(len(texts), np.bool_)
        """Whether a subscription is the first with its subscriber and text; what is listed twice is delivered once."""
        self.is_first[list(first.values())] = True
        names = self._subscribers.dictionary_encode()
        order = pc.rank(names.dictionary).to_numpy().astype(np.int64)
        self.rank: Rows = order[names.indices.to_numpy()] if len(names) else order
        """The position of a subscription's subscriber among all in order."""

    def take(self, subscriptions: npt.NDArray[np.int32]) -> list[pa.Array]:
        chosen = pa.array(subscriptions)
        return [self._subscribers.take(chosen), self._texts.take(chosen)]


class Delivery:
    """Delivers the matches of a plan, made of entries and so many shapes; its addresses are sent to workers once."""

    def __init__(self, job: RouteJob, entries: Sequence[RouteEntry], shapes: int) -> None:
        self.job, self.entries, self.shapes = job, entries, shapes

    @cached_property
    def _addresses(self) -> Sent[Addresses]:
        texts = [str(entry.subscription) for entry in self.entries]
        return send(self.job.lake.spark, Addresses(self.job.plan.subscribers, texts))

    def write(self, store: SparkStore, new: Increment, draft: CommitDraft, table: str) -> tuple[Part, ...]:
        """Write the matches of new events into folders of a draft below `table`; returns them as parts."""
        lake, spark = self.job.lake, self.job.lake.spark
        parts = {family: found for family, found in by_table(new.parts).items() if family in self.job.plan.families}
        if not parts:
            return ()
        store.drafts.begin(draft.id)
        targets = {
            family: _Target(
                f"{store.path}/{table}/{family}/{COMMIT}={draft.id}", event_schema(vector).names, file_schema(vector)
            )
            for family in parts
            for vector in [lake.catalog.vector(family)]
        }
        upload = not arrow_opens(store.path)
        frames = self.job.run(
            parts,
            partial(_deliver, targets, self._addresses, upload),
            RESULT_SCHEMA,
            {family: target.columns for family, target in targets.items()},
            least=max(1, min(parallelism(spark), new.rows // EVENTS_PER_TASK)),
            above=new.after.version,
        )
        written: dict[str, list[StoredFile]] = {}
        what = f"deliver the matches in {folder_name(lake.path)} to {folder_name(store.path)}"
        with job_description(spark, what):
            for frame in frames:
                rows = frame.toLocalIterator() if upload else frame.collect()
                for report in write_uploads(store.files, rows):
                    for family, file in msgspec.json.decode(report, type=list[tuple[str, StoredFile]]):
                        written.setdefault(family, []).append(file)
        folders = {family: target.folder.removeprefix(f"{store.path}/") for family, target in targets.items()}
        return tuple(Part(family, folders[family], tuple(files)) for family, files in written.items())


# -- earlier events ----------------------------------------------------------------------------------------------------


def earlier_wanted(entries: Iterable[RouteEntry]) -> dict[str, RouteEntry]:
    """The entries that ask for earlier events; of those of one subscriber and subscription, the one that asks most."""
    asking = sorted((each for each in entries if each.since is not None), key=attrgetter("since"), reverse=True)
    earliest = {(each.subscriber, str(each.subscription)): each for each in asking}
    return {f"{hash_of(repr((*address, each.since))) & (1 << 64) - 1:016x}": each for address, each in earliest.items()}


def earlier_matches(
    lake: LakeTables, entries: Sequence[RouteEntry], state: LedgerState
) -> Iterator[tuple[str, DataFrame]]:
    """Yield the matches of entries in a version of a lake, from the time on that each asks for, by family."""
    since = [entry.since for entry in entries if entry.since is not None]
    columns = {
        _NUMBER: pa.array(range(len(entries)), pa.int32()),
        _TEXT: pa.array([str(entry.subscription) for entry in entries], pa.string()),
        _SINCE_US: pa.array(map(micros_of_time, since), pa.int64()),
    }
    asked = F.broadcast(lake.spark.createDataFrame(pa.table(columns)))
    job, first = RouteJob(lake, plan_routes(entries, lake.state().shapes, lake.catalog)), min(since).astimezone(UTC)
    for family in job.plan.families:
        parts = [part for part in state.table(family) if part.day is None or part.day >= first.date()]
        found = job.matches(family, parts).join(asked, F.col(SUBSCRIPTION) == F.col(_NUMBER))
        chosen = found.where(F.unix_micros(event_time()) >= F.col(_SINCE_US)).withColumn(SUBSCRIPTION, F.col(_TEXT))
        yield family, chosen.drop(*columns, COMMIT, DAY)


# -- in tasks ----------------------------------------------------------------------------------------------------------


class _Target(msgspec.Struct, frozen=True):
    folder: str
    columns: list[str]
    """The columns of an event, by the present names of attributes."""
    schema: Any
    """The schema of a file of events, with the same columns in the same order."""


def _deliver(
    targets: Mapping[str, _Target],
    sent: Sent[Addresses],
    upload: bool,
    number: int,
    plan: FamilyPlan,
    batches: Iterator[Batch],
) -> Iterator[pa.RecordBatch]:
    """Write the matches of a task, and return a report of the files."""
    addresses, target, files = sent.load(), targets[plan.family], DriverUpload()
    write = files.write if upload else write_file
    report: list[tuple[str, StoredFile]] = []
    for found in _found(plan, batches, addresses, target):
        name = f"part-{number:05}-{len(report):03}.parquet"
        written = write(f"{target.folder}/{name}", found.write)
        report.append((plan.family, StoredFile(name, len(found), *written)))
    yield from files.rows(msgspec.json.encode(report))


def _found(
    plan: FamilyPlan, batches: Iterator[Batch], addresses: Addresses, target: _Target
) -> Iterator["FoundMatches"]:
    """Yield the matches of a task, as much at once as is written to one file."""
    found, needed = FoundMatches(addresses, target.schema), plan.columns_needed()
    for batch in batches:
        waiting: list[Matches] = []
        events: pa.Table | None = None
        for rows, subscriptions in plan.iter_matches(batch(needed)):
            once = np.flatnonzero(addresses.is_first[subscriptions])
            waiting.append(Matches(rows[once], subscriptions[once]))
            events = batch(target.columns) if events is None else events
            if len(found) + sum(len(each.rows) for each in waiting) >= MATCHES_PER_FILE:
                found.add(events, waiting)
                yield found
                found, waiting = FoundMatches(addresses, target.schema), []
        if events is not None and waiting:
            found.add(events, waiting)
        if found.events >= BATCH_ROWS:
            yield found
            found = FoundMatches(addresses, target.schema)
    if len(found):
        yield found


class FoundMatches:
    """State: the matches that are written to a file, and the events that have any."""

    def __init__(self, addresses: Addresses, schema: pa.Schema) -> None:
        self._addresses, self._schema = addresses, schema
        self._events: list[pa.Table] = []
        self._matches: list[Matches] = []
        self.events = 0

    def __len__(self) -> int:
        return sum(len(each.rows) for each in self._matches)

    def add(self, events: pa.Table, found: Sequence[Matches]) -> None:
        """Add matches of a batch of events; those without a match are dropped."""
        matched = np.zeros(events.num_rows, np.bool_)
        for each in found:
            matched[each.rows] = True
        place = np.cumsum(matched) - 1 + self.events
        taken = events if matched.all() else events.filter(pa.array(matched))
        self._events.append(taken.rename_columns(self._schema.names).cast(self._schema))
        self._matches += [Matches(place[each.rows], each.subscriptions) for each in found]
        self.events += taken.num_rows

    def write(self, stream: Any) -> None:
        """Write a file, in order of subscriber and time."""
        schema = pa.schema([*_ADDRESS, *self._schema])
        write_tables(stream, schema, self._tables(schema))

    def _tables(self, schema: pa.Schema) -> Iterator[pa.Table]:
        """Yield the rows of each row group, so that all matches are never in memory at once."""
        events = pa.concat_tables(self._events).combine_chunks()
        rows = np.concatenate([each.rows for each in self._matches])
        subscriptions = np.concatenate([each.subscriptions for each in self._matches])
        no_time = np.iinfo(np.int64).min  # events without a time come first
        times = pc.fill_null(events.column("time").cast(pa.int64()), no_time).to_numpy()
        at = np.empty(len(events), np.int64)
        at[np.argsort(times, kind="stable")] = np.arange(len(events))
        order = np.argsort(self._addresses.rank[subscriptions] * len(events) + at[rows], kind="stable")
        for first in range(0, len(order), ROW_GROUP):
            chosen = order[first : first + ROW_GROUP]
            taken = events.take(pa.array(rows[chosen]))
            addresses = self._addresses.take(subscriptions[chosen])
            yield pa.Table.from_arrays([*addresses, *taken.columns], schema=schema)
