"""Streams: files are ingested as they arrive in a landing folder, and followers process the new events.

A stream is a query of Spark's Structured Streaming. Its source is Spark's file source, of which only the paths are
used. In each micro-batch one job reads the new files in its tasks (`read_files`); then they are committed, and every
follower processes the new version. Which files were listed is in Spark's checkpoint, which were ingested in the ledger
of the lake, and what a follower has processed in its own ledger. So a stream can be killed at any point: Spark repeats
a batch that has not ended, and what of it was committed is not done again.
"""

import hashlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache, partial
from itertools import islice
from typing import Any, Literal, Protocol

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.errors import StreamingQueryException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from genus.errors import LakeDamaged, LakeError
from genus.filters import Subscription
from genus.lake._analytics.analysis import Analysis
from genus.lake._ingest.format import Chunk, DeadLetter, Split, Types
from genus.lake._ingest.ingest import Committed, begin_work, commit_reports, prepare
from genus.lake._ingest.job import (
    NOTHING_HELD,
    Held,
    Identity,
    IngestWork,
    InputFile,
    gather_reports,
    input_of,
    read_files,
)
from genus.lake._ingest.sources import FormatChooser, PathLike
from genus.lake._ingest.writer import TaskReport
from genus.lake._jobs import check_workers, folder_name, is_connect, job_description
from genus.lake._query.reading import read_parts
from genus.lake._query.subscription_list import SubscriptionSource
from genus.lake._stream.delivery import UpdateResult, commit_step, next_increment
from genus.lake._stream.derived import IDLE, DerivedTable
from genus.lake._stream.inboxes import Inboxes, Route
from genus.lake._tables.commits import Cursor, IngestedFile
from genus.lake._tables.file_systems import file_system_for, walk_files
from genus.lake._tables.files import absolute_path, file_info, local_path, spark_path
from genus.lake._tables.followers import STREAMS
from genus.lake._tables.lake_tables import LakeTables, SparkStore, spark_errors
from genus.lake._tables.ledger import Ledger
from genus.lake._tables.part_writer import RESULT_SCHEMA
from genus.lake._tables.sources import Sources
from genus.lake._tables.store import GLOB, Store
from genus.model import Span, seconds
from genus.net.types import Metric

AVAILABLE_NOW = "available now"
METRICS = "genus"
"""The name of the figures in `StreamingQuery.lastProgress["observedMetrics"]`."""
MAX_AGE = "90 days"
_SOURCE_SCHEMA = "path string, modificationTime timestamp, length long, content binary"
_QUERY_ID, _WORK = "sql.streaming.queryId", "genus.work"
"""Properties of jobs: of Spark, and with what the tasks of this batch have in common."""
_SPARK, _NOTE = "spark", "lake.json"
"""In the folder of a stream: Spark's checkpoint, and the version of the lake after the last batch."""
_MAX_LISTED = 10_000
"""Files of a landing folder that are looked at when a stream starts."""
_SETTLED_MS = 10_000
"""Files that were changed that long before a listing are all in it."""
_LOG = logging.getLogger("genus.lake")


class Progress(msgspec.Struct, frozen=True):
    """What one micro-batch of a `Stream` did, or what all of one `Stream.run` did."""

    batch: int
    """Spark's number of the batch; of a run, that of its last, or -1 if it had none."""
    files: int
    """Files ingested."""
    events: int
    """Events ingested."""
    dead: int
    """Dead letters."""
    delivered: int
    """Rows written by all followers: matches delivered and results of analyses."""
    seconds: float
    """Duration of the batch, or of the run."""
    lag_seconds: float | None
    """Age of the newest event of the lake, by its time of recording, at the end; None without events."""
    version: int
    """Version of the lake at the end."""
    late: int = 0
    """New events that analyses left out because they were late or overtaken."""
    skipped: int = 0
    """Files left out because the lake has their content; `problem` names one and the file with the same content."""
    waiting: int = 0
    """Rows that analyses keep at the end, because their results may still change by later events."""
    waits_for: str = ""
    """Up to when results of an analysis are final, and what its waiting rows wait for; empty if none wait."""
    problem: str | None = None
    """Which subscriptions were not used, and why; why the previous list was used; which files were skipped; what may
    be wrong about how a CAN log was read; or how many events came after their time was settled, and the likely reason.
    """

    @property
    def rate(self) -> float:
        """Events ingested per second."""
        return self.events / self.seconds if self.seconds else 0.0


class _Note(msgspec.Struct, frozen=True, array_like=True):
    """The version of the lake after the last batch, and what does not count for watermarks yet."""

    version: int = 0
    commit: str = ""
    held: Held = NOTHING_HELD


NOTHING_DONE = Progress(-1, 0, 0, 0, 0, 0.0, None, 0)
_ADDED_UP = ("files", "events", "dead", "delivered", "seconds", "late", "skipped")


def _add(total: Progress, batch: Progress) -> Progress:
    """Return the figures of several batches; number, lag and version are those of the last."""
    sums = {name: getattr(total, name) + getattr(batch, name) for name in _ADDED_UP}
    return msgspec.structs.replace(batch, **sums, problem=batch.problem or total.problem)


def _add_steps(total: Progress, steps: Sequence[UpdateResult]) -> Progress:
    return msgspec.structs.replace(
        total,
        delivered=total.delivered + sum(step.rows for step in steps),
        late=total.late + sum(step.late for step in steps),
        waiting=sum(step.waiting for step in steps),
        waits_for=next((step.waits_for for step in steps if step.waits_for), ""),
        problem=next((step.problem for step in steps if step.problem), total.problem),
    )


class Follower(Protocol):
    """Interface of what `Stream.follow` takes: processes the new events of a lake, once per version."""

    def update(self) -> UpdateResult:
        """Process the events up to the present version of the lake."""


def _call(
    lake: LakeTables, store: SparkStore, subscription: Subscription, function: Callable[[DataFrame, int], object]
) -> UpdateResult:
    """Call a function with the new events that match, then commit the version to the store of the function."""
    cursor = store.state().cursor
    new = next_increment(lake, cursor, store.path)
    if new is None:
        return UpdateResult(cursor.version, 0, 0)
    with job_description(lake.spark, f"call {folder_name(store.path)} with {subscription}"):
        function(read_parts(lake, subscription, new.parts, after=new.after.version), new.upto.version)
    draft = msgspec.structs.replace(store.begin("deliver"), after=new.after, upto=new.upto)
    commit_step(store, draft, "function")
    return UpdateResult(new.upto.version, new.rows, 0)


# -- in tasks ----------------------------------------------------------------------------------------------------------


class UnreadableFile(msgspec.Struct, frozen=True):
    """The format of a file that has none: its only row is a dead letter that says why."""

    reason: str

    def splits(self, path: str, size: int, target: int) -> list[Split]:
        return [Split(path, 0, size)]

    def read(self, split: Split, types: Types) -> Iterator[Chunk]:
        yield [DeadLetter.of(0, self.reason, b"")]


def find_input(choose: FormatChooser, identity: Identity, path: str, sources: Sources) -> InputFile:
    """A file that has landed."""
    given = input_of(file_info(path), UnreadableFile(""), sources, identity)
    if given.is_known:
        return given
    try:
        return msgspec.structs.replace(given, format=choose(path))
    except LakeError as problem:
        return msgspec.structs.replace(given, format=UnreadableFile(str(problem)))


def _sources(root: str) -> Sources:
    """In a task: what a lake has ingested; its ledger is read on from batch to batch, unless it was replaced."""
    try:
        return _ledger(root).present().sources
    except LakeDamaged:
        _ledger.cache_clear()
        return _ledger(root).present().sources


@lru_cache(maxsize=4)
def _ledger(root: str) -> Ledger:
    return Store(root).ledger


def read_landed(
    choose: FormatChooser, identity: Identity, landing: str, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """In a task of a batch: read the files of a partition; the job has the catalog and the commit as a property."""
    context = TaskContext.get()
    assert context is not None, "this runs in a task"
    work = msgspec.json.decode(context.getLocalProperty(_WORK) or "", type=IngestWork)
    paths = [_stored_path(path, landing) for batch in batches for path in batch.column(0).to_pylist()]
    sources = Sources() if work.upload else _sources(work.root)
    files = [find_input(choose, identity, path, sources) for path in paths]
    yield from read_files(work, context.partitionId(), files)


def _stored_path(path: str, landing: str) -> str:
    """Return a path of Spark's file source as lakes store it.

    >>> _stored_path("file:/data/a b.genus", "/data"), _stored_path("s3a://city/a.genus", "s3://city")
    ('/data/a b.genus', 's3://city/a.genus')
    """
    if path.startswith("file:"):
        return f"/{path.removeprefix('file:').lstrip('/')}"
    return f"s3://{path[6:]}" if landing.startswith("s3://") and path.startswith("s3a://") else path


# -- streams -----------------------------------------------------------------------------------------------------------


class Stream:
    """Ingests files as they arrive in a landing folder, and updates followers; made by `Lake.stream`.

    Add followers with `route`, `derive`, `for_each` or `follow`, then call `run` or `start`.
    """

    def __init__(
        self,
        lake: LakeTables,
        landing: PathLike,
        choose: FormatChooser,
        *,
        checkpoint: PathLike | None,
        pattern: str | None,
        files_per_batch: int,
        identity: Identity,
        max_age: Span,
        on_progress: Callable[[Progress], object] | None,
    ) -> None:
        self.lake = lake
        self.landing = absolute_path(landing)
        digits = hashlib.blake2b(self.landing.encode(), digest_size=4).hexdigest()  # make the name unique
        own = f"{lake.path}/{STREAMS}/{folder_name(self.landing) or 'landing'}-{digits}"
        self.checkpoint = absolute_path(checkpoint) if checkpoint else own
        self._files = file_system_for(lake.spark, self.checkpoint)
        self.progress: Progress | None = None
        """The progress of the last batch since the stream was started; None if it had none."""
        self.query: StreamingQuery | None = None
        """The query that was started last."""
        self._total = NOTHING_DONE
        """What all batches did since the stream was started."""
        self._pattern, self._files_per_batch, self._on_progress = pattern, files_per_batch, on_progress
        self._choose, self._identity = choose, identity
        self._max_age_s = seconds(max_age, "max_age", zero=False)
        self._updates: list[Callable[[], UpdateResult]] = []
        self._claimed: set[str] = set()
        self._held = NOTHING_HELD
        self._listing: dict[int, set[str]] = {}
        """The files of the landing folder when it was listed last, by time of change in milliseconds."""
        self._listed_ms = 0
        self._failed: list[BaseException] = []
        """The errors of batches since the stream was started."""
        local = local_path(self.landing)
        if local is not None and not os.path.isdir(local):
            raise LakeError(f"{self.landing} is not a folder; create the landing folder first")
        if found := [sign for sign in GLOB if sign in self.landing]:
            raise LakeError(f"{self.landing}: Spark takes {found[0]!r} in a path for a pattern; choose another folder")
        if files_per_batch < 1:
            raise LakeError(f"files_per_batch={files_per_batch}: a batch has at least one file")

    def route(self, subscriptions: SubscriptionSource) -> "StreamRoute":
        """Match subscriptions with new events; call `to_inboxes` on the result.

        Args:
            subscriptions: As in `Lake.route`; a file or a function is read again in every batch.
        """
        return StreamRoute(self, Route(self.lake, subscriptions))

    def derive(
        self, path: PathLike, analysis: Analysis, *subscriptions: Subscription | type | str, idle: Span = IDLE
    ) -> "Stream":
        """Update the results of an analysis at a path in every batch; arguments as in `DerivedTable`."""
        return self.follow(DerivedTable(self.lake, self._claim(path), analysis, *subscriptions, idle=idle))

    def for_each(
        self, what: Subscription | type | str, function: Callable[[DataFrame, int], object], name: str | None = None
    ) -> "Stream":
        """Call a function with the new events that match and the version of the lake they came with.

        The first call gets all events that are in the lake. After an interruption the function may be called once more
        with the same version and the same events: store the version with your output.

        Args:
            what: The events, as a subscription, its text or a type.
            function: Called with a frame and the version.
            name: Name under which the processed version is stored; by default that of the function.

        Raises:
            LakeError: The name is not an identifier, or another follower of this stream has it.
        """
        if callable(what) and not isinstance(what, type):
            raise LakeError("for_each takes the events first, then the function: for_each(Loop, function)")
        wanted = self.lake.subscription(what)
        known_as = name or function.__name__
        if not known_as.isidentifier():
            raise LakeError(f"{known_as!r} is not an identifier; give the function another name by name=")
        store = SparkStore(self.lake.spark, self._claim(f"{self.checkpoint}/functions/{known_as}"))
        store.claim(self.lake.store, "function", subscription=str(wanted))
        self._updates.append(partial(_call, self.lake, store, wanted, function))
        return self

    def _claim(self, path: PathLike) -> str:
        """Reserve a path for a follower; LakeError if another follower of this stream has it."""
        whole = absolute_path(path)
        if whole in self._claimed:
            raise LakeError(f"{whole} has a follower of this stream already; give this one another name or path")
        self._claimed.add(whole)
        return whole

    def follow(self, follower: Follower) -> "Stream":
        """Add a follower of your own: an object with a method `update`, called after every batch."""
        self._updates.append(follower.update)
        return self

    # -- running -----------------------------------------------------------------------------------------------------

    def start(self, *, trigger: Span | Literal["available now"] = "1s") -> StreamingQuery:
        """Start the stream as a query of Spark, and return it: a `pyspark.sql.streaming.StreamingQuery`.

        It is in `spark.streams.active` and on Spark's pages. Its `lastProgress` has files, events, dead letters and
        skipped files under `observedMetrics`; `progress` of this object has those of followers too. `stop` interrupts
        the batch under way, which the next start repeats.

        Args:
            trigger: Time between looks at the landing folder, or `"available now"` to end when the files that are there
                now have been ingested, in several batches if they are many.

        Raises:
            LakeError: It runs already, the session is one of Spark Connect, workers cannot run Genus, or the mapping
                names what the catalog lacks.
            SpanError: `trigger` is no length of time.
        """
        every = None if trigger == AVAILABLE_NOW else seconds(trigger, "trigger")
        self._check_can_start()
        self.progress, self._total, self._failed = None, NOTHING_DONE, []
        choose = replace(self._choose)  # reads a mapping file again
        prepare(self.lake, choose)
        check_workers(self.lake.spark)
        self._forget_other_history()
        self._warn_of_files(choose)
        taken = self.name in {each.name for each in self.lake.spark.streams.active}  # by another lake or folder
        writer = self._reports(choose).writeStream.foreachBatch(partial(self._batch, choose, self._failed))
        writer = writer.queryName(f"{self.name} ({self.checkpoint})" if taken else self.name)
        writer = writer.option("checkpointLocation", spark_path(f"{self.checkpoint}/{_SPARK}"))
        at = writer.trigger(availableNow=True) if every is None else writer.trigger(processingTime=f"{every} seconds")
        with spark_errors(self.landing):
            self.query = _QUERIES[self.checkpoint] = at.start()
        return self.query

    def run(self) -> Progress:
        """Ingest all files that are present and update the followers: a query that ends when it has done that.

        Returns what this call did, in all its batches; zeros if there was nothing to do.

        Raises:
            LakeError: The stream was started and runs, or a file cannot be read.
        """
        began = time.monotonic()
        query = self.start(trigger=AVAILABLE_NOW)
        try:
            self.join()
        except BaseException:
            query.stop()
            raise
        if self._total.batch < 0:  # nothing has landed; events may have come in by other ways
            self._total = _add_steps(NOTHING_DONE, self.catch_up())
        return self._at_end(self._total, began)

    def join(self, timeout: Span | None = None) -> bool:
        """Wait until the query that was started has ended, as its `awaitTermination`; returns whether it has.

        Args:
            timeout: Longest time to wait; None for no limit.

        Raises:
            LakeError: An error has ended it. Other errors of a batch, such as those of your functions, are raised as
                they are, and those of Spark as a StreamingQueryException.
        """
        if self.query is None:
            return True
        try:
            longest = None if timeout is None else max(seconds(timeout, "timeout"), 0.001)
            ended = self.query.awaitTermination(longest)  # type: ignore[arg-type] # it takes parts of a second
        except StreamingQueryException as problem:
            if not self._failed:
                raise
            raise self._failed[-1] from problem
        return timeout is None or bool(ended)

    @property
    def name(self) -> str:
        """The name of the query, which Spark's pages show."""
        return f"genus {folder_name(self.landing)} to {folder_name(self.lake.path)}"

    def catch_up(self) -> list[UpdateResult]:
        """Update all followers to the present version of the lake, without ingesting; returns their results."""
        return [update() for update in self._updates]

    def metrics(self) -> list[Metric]:
        """Return what all batches did since the stream was started, for `genus.net.serve_metrics`."""
        total, last = self._total, self.progress
        counted = {
            "files": ("Files ingested", total.files),
            "skipped_files": ("Files whose content the lake had", total.skipped),
            "events": ("Events ingested", total.events),
            "dead_letters": ("Dead letters", total.dead),
            "delivered": ("Matches delivered and results of analyses", total.delivered),
            "late": ("Events that analyses left out because they were late", total.late),
            "seconds": ("Duration of all batches", total.seconds),
        }
        lag = last.lag_seconds if last is not None else None
        return [
            *(Metric(f"stream_{name}_total", text, "counter", {"": count}) for name, (text, count) in counted.items()),
            *([] if lag is None else [Metric("stream_lag_seconds", "Age of the newest event", "gauge", {"": lag})]),
            Metric("stream_version", "Version of the lake", "gauge", {"": total.version}),
        ]

    def _check_can_start(self) -> None:
        if is_connect(self.lake.spark):
            raise LakeError(
                "a stream needs a session with a Spark context: Spark Connect would run its batches on the server, "
                "where this lake is not open; start it there, or call ingest and Route.to_inboxes from here"
            )
        if (query := _QUERIES.get(self.checkpoint)) is not None and query.isActive:
            raise LakeError(f"the stream of {self.landing} runs already; stop it first")

    def _forget_other_history(self) -> None:
        """Remove Spark's checkpoint if the lake lacks what it says was ingested, as after a restore from a backup.

        All files of the folder are then looked at again, and those that the lake has are skipped.
        """
        noted = self._files.read(f"{self.checkpoint}/{_NOTE}")
        note = _Note() if noted is None else msgspec.json.decode(noted, type=_Note)
        self._held = note.held
        if noted is not None and not self.lake.store.ledger.has(Cursor(note.version, note.commit)):
            self._held = NOTHING_HELD
            _LOG.warning(
                "%s does not have what the checkpoint %s says: it was restored from a backup or replaced; all files of "
                "%s are looked at again",
                self.lake.path, self.checkpoint, self.landing,
            )  # fmt: skip
            self._files.delete(f"{self.checkpoint}/{_SPARK}")

    def _warn_of_files(self, choose: FormatChooser) -> None:
        """Log a warning if files of the folder are not read: because of all their names, or because they are old."""
        files = file_system_for(self.lake.spark, self.landing)
        found = list(islice(walk_files(files, self.landing, hidden=False), _MAX_LISTED))
        endings = tuple(f".{each}" for each in choose.endings)
        if found and self._pattern is None and not any(file.name.lower().endswith(endings) for file in found):
            _LOG.warning(
                "%s has %d files, such as %s, none of which is read: their names do not end with %s; "
                "give pattern= (--files)",
                self.landing, len(found), found[0].name, " or ".join(endings[:3]),
            )  # fmt: skip
        oldest = max((file.modified for file in found), default=0.0) - self._max_age_s
        known = self.lake.state().sources
        old = [file for file in found if file.modified < oldest and known.of_path(file.path) is None]
        if old and self._files.list_folder(f"{self.checkpoint}/{_SPARK}/offsets"):
            _LOG.warning(
                "%s has %d files, such as %s, that are not read because they are older than max_age; ingest them with "
                "Lake.ingest",
                self.landing, len(old), old[0].name,
            )  # fmt: skip

    def _reports(self, choose: FormatChooser) -> DataFrame:
        """The streaming frame: files that land, read by the tasks, as reports, with figures for Spark's progress."""
        reader = self.lake.spark.readStream.format("binaryFile").schema(_SOURCE_SCHEMA)
        options = {
            "pathGlobFilter": self._pattern or choose.pattern,
            "recursiveFileLookup": "true",
            "ignoreMissingFiles": "true",
            "maxFilesPerTrigger": str(self._files_per_batch),
            "maxFileAge": f"{int(self._max_age_s)}s",
        }
        with spark_errors(self.landing):
            paths = reader.options(**options).load(spark_path(self.landing)).select("path")
        reports = paths.mapInArrow(partial(read_landed, choose, self._identity, self.landing), RESULT_SCHEMA)
        return reports.observe(METRICS, *_figures())

    # -- batches -----------------------------------------------------------------------------------------------------

    def _batch(self, choose: FormatChooser, failed: list[BaseException], reports: DataFrame, batch: int) -> None:
        """Ingest the files of a batch and update the followers; called by Spark. An error is added to `failed`."""
        with _BUSY.setdefault(self.checkpoint, threading.Lock()):  # Spark does not wait for a batch that was stopped
            try:
                self._process(choose, reports, batch)
            except BaseException as problem:
                failed.append(problem)
                raise

    def _process(self, choose: FormatChooser, reports: DataFrame, batch: int) -> None:
        began = time.monotonic()
        with self.lake.store.discarding():
            made = self._ingest(choose, reports, batch)
        self._held, now = made.held, self.lake.state().now
        noted = msgspec.json.encode(_Note(now.version, now.commit, made.held))
        self._files.replace(f"{self.checkpoint}/{_NOTE}", noted, durable=False)
        counts = len(made.sources), made.events, sum(source.dead for source in made.sources)
        skipped, problem = len(made.duplicates), _same_content(made.duplicates) or _doubts(choose, made.sources)
        done = Progress(batch, *counts, 0, 0.0, None, 0, skipped=skipped, problem=problem)
        self.progress = self._at_end(_add_steps(done, self.catch_up()), began)
        self._total = _add(self._total, self.progress)
        if self._on_progress is not None:
            self._on_progress(self.progress)

    def _ingest(self, choose: FormatChooser, reports: DataFrame, batch: int) -> Committed:
        work = begin_work(self.lake)
        context: Any = self.lake.spark.sparkContext
        context.setLocalProperty(_WORK, msgspec.json.encode(work).decode())
        try:
            with job_description(self.lake.spark, f"{self.name}: batch {batch}"):
                found = gather_reports(self.lake.spark, work, reports)
        finally:
            context.setLocalProperty(_WORK, None)

        def given(report: TaskReport) -> InputFile:
            return find_input(choose, self._identity, report.path, self.lake.state().sources)

        changed_ms, query = self._unfinished(choose, found), context.getLocalProperty(_QUERY_ID)
        return commit_reports(
            self.lake, work, found, given, held=self._held, changed_ms=changed_ms, query=query, batch=batch
        )

    def _unfinished(self, choose: FormatChooser, found: Sequence[TaskReport]) -> int | None:
        """Return the last time of change of a batch, in milliseconds, if files of the same time wait for the next one.

        Spark orders files by their times alone: such files may have earlier events than those that it has taken.
        """
        if len(found) < self._files_per_batch:
            return None
        last, sources = max(report.modified_us // 1000 for report in found), self.lake.state().sources
        read = {report.path for report in found}
        if last > self._listed_ms - _SETTLED_MS or any(
            report.path not in self._listing.get(report.modified_us // 1000, ()) for report in found
        ):
            self._list_landing()
        self._listing = {at_ms: paths for at_ms, paths in self._listing.items() if at_ms >= last}
        others = set[str]()
        for path in self._listing.get(last, set()) - read - set(self._held.skipped):
            known = sources.of_path(path)
            if known is None or known.modified_us // 1000 != last:
                others.add(path)
        if not others:
            return None
        reader = self.lake.spark.read.format("binaryFile").schema(_SOURCE_SCHEMA)
        options = {"pathGlobFilter": self._pattern or choose.pattern, "recursiveFileLookup": "true"}
        with spark_errors(self.landing):  # which of them Spark takes
            taken = reader.options(**options).load(spark_path(self.landing)).inputFiles()
        return None if others.isdisjoint(_stored_path(path, self.landing) for path in taken) else last

    def _list_landing(self) -> None:
        """List the landing folder; of many batches in a row, once, because it may have very many files."""
        self._listing, self._listed_ms = {}, time.time_ns() // 1_000_000
        for file in walk_files(file_system_for(self.lake.spark, self.landing), self.landing, hidden=False):
            self._listing.setdefault(file.modified_us // 1000, set()).add(file.path)

    def _at_end(self, done: Progress, began: float) -> Progress:
        """Return what was done since a time, with the state of the lake now."""
        state, took = self.lake.state(), time.monotonic() - began
        lag = None if state.newest_us is None else time.time() - state.newest_us / 1e6
        return msgspec.structs.replace(done, seconds=took, lag_seconds=lag, version=state.version)


def _figures() -> list[Column]:
    """Figures of the reports that tasks return, for Spark's progress."""
    report = F.when(F.col("path").isNull(), F.col("content").cast("string"))
    is_known = F.get_json_object(report, "$.is_known") == "true"
    counts = {
        "files": F.when(~is_known, 1),
        "skipped": F.when(is_known, 1),
        "events": F.get_json_object(report, "$.rows").cast("long"),
        "dead": F.get_json_object(report, "$.dead").cast("long"),
    }
    return [F.coalesce(F.sum(count), F.lit(0)).alias(name) for name, count in counts.items()]


def _same_content(duplicates: Mapping[str, str]) -> str | None:
    """Return which files were skipped because another file, not of the same path, has the same content."""
    others = [(path, twin) for path, twin in duplicates.items() if path != twin]
    if not others:
        return None
    (path, twin), more = others[0], f", and {len(others) - 1} more" if len(others) > 1 else ""
    return f'{path} was skipped, it has the content of {twin}{more}; identity="path" ingests every file'


def _doubts(choose: FormatChooser, ingested: Sequence[IngestedFile]) -> str | None:
    """Return what may be wrong about how a CAN log was read, of the first that does not show it."""
    for source in ingested:
        with suppress(LakeError):  # a file that cannot be read is a dead letter already
            if doubts := choose.doubts(choose(source.path), source.path):
                return f"{source.path}: {'; '.join(doubts)}"
    return None


_BUSY: dict[str, threading.Lock] = {}
_QUERIES: dict[str, StreamingQuery] = {}
"""By checkpoint: locks, and the queries that were started last."""


class StreamRoute:
    """Subscriptions of a stream; made by `Stream.route`."""

    def __init__(self, stream: Stream, route: Route) -> None:
        self.stream, self.route = stream, route

    def to_inboxes(self, path: PathLike) -> Stream:
        """Deliver the matches of every batch to the inboxes at a path."""
        inboxes = Inboxes._at(self.route.lake, self.stream._claim(path))
        self.stream._updates.append(partial(inboxes._deliver, self.route))
        return self.stream
