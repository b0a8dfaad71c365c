"""Streams: files are ingested as they arrive in a landing folder, and followers process the new events.

Spark's file source finds the files and records them in its checkpoint. A micro-batch ingests its files, which the lake
does once per content, and then updates every follower, which each does once per version. So a stream can be killed at
any point: what a batch had not committed is repeated, what it had committed is not.
"""

import hashlib
import os
import time
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from genus.errors import LakeError
from genus.filters import Subscription
from genus.lake._analytics.analysis import Analysis
from genus.lake._ingest.ingest import FormatOptions, ingest
from genus.lake._ingest.sources import PathLike
from genus.lake._query.reading import read_parts
from genus.lake._query.subscription_list import SubscriptionSource
from genus.lake._stream.derived import DerivedTable
from genus.lake._stream.inboxes import Inboxes
from genus.lake._stream.increments import UpdateResult, next_increment
from genus.lake._stream.route import Route
from genus.lake._tables.files import absolute_path, local_path, spark_path
from genus.lake._tables.lake_tables import LakeTables
from genus.lake._tables.ledger import CommitConflict
from genus.lake._tables.store import Store
from genus.net._metrics import Metric

FILE_SCHEMA = "path string, modificationTime timestamp, length bigint, content binary"
MAX_FILE_AGE = "36500d"
"""Spark's file source ignores files that are older than the newest one by more than this."""


class Progress(msgspec.Struct, frozen=True):
    """What one micro-batch of a `Stream` did, or what all of one `Stream.run` did."""

    batch: int
    """Number of the batch; of a run, that of its last batch, or -1 if it had none."""
    files: int
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
    problem: str | None = None
    """Why the previous list of subscriptions is used: the present one cannot be read."""

    @property
    def rate(self) -> float:
        """Events ingested per second."""
        return self.events / self.seconds if self.seconds else 0.0


NOTHING_DONE = Progress(-1, 0, 0, 0, 0, 0.0, None, 0)


def _add(total: Progress, batch: Progress) -> Progress:
    """The figures of several batches; number, lag and version are those of the last."""
    return msgspec.structs.replace(
        batch,
        files=total.files + batch.files,
        events=total.events + batch.events,
        dead=total.dead + batch.dead,
        delivered=total.delivered + batch.delivered,
        seconds=total.seconds + batch.seconds,
        late=total.late + batch.late,
        problem=batch.problem or total.problem,
    )


def _add_steps(total: Progress, steps: Sequence[UpdateResult]) -> Progress:
    """The figures with what followers did."""
    return msgspec.structs.replace(
        total,
        delivered=total.delivered + sum(step.rows for step in steps),
        late=total.late + sum(step.late for step in steps),
        problem=next((step.problem for step in steps if step.problem), total.problem),
    )


class Follower(Protocol):
    """Interface of what `Stream.follow` takes: processes the new events of a lake, once per version."""

    def update(self) -> UpdateResult:
        """Process the events up to the present version of the lake."""


class InboxFollower:
    """Delivers matches to inboxes."""

    def __init__(self, route: Route, path: PathLike) -> None:
        self._route = route
        self._inboxes = Inboxes.at(route.lake, path)

    def update(self) -> UpdateResult:
        """Deliver the matches of new events."""
        return self._inboxes.deliver(self._route)


class FunctionFollower:
    """Calls a function with the new events that match; after an interruption, again for the same version."""

    def __init__(
        self, lake: LakeTables, path: str, subscription: Subscription, function: Callable[[DataFrame, int], object]
    ) -> None:
        self._lake, self._subscription, self._function = lake, subscription, function
        self._store = Store(lake.spark, path)
        self._store.claim({"lake": lake.path, "subscription": str(subscription)})

    def update(self) -> UpdateResult:
        """Call the function, then commit the version."""
        new = next_increment(self._lake, self._store.state().cursor)
        if new is None:
            return UpdateResult(self._store.state().cursor, 0, 0)
        self._function(read_parts(self._lake, self._subscription, new.parts), new.upto)
        draft = msgspec.structs.replace(self._store.begin("deliver"), after=new.after, upto=new.upto)
        try:
            self._store.commit(draft)
        except CommitConflict as problem:
            raise LakeError(
                f"{self._store.path} is being updated by another process; run one process per function"
            ) from problem
        return UpdateResult(new.upto, new.rows, 0)


class Stream:
    """Ingests files as they arrive in a landing folder, and updates followers; made by `Lake.stream`.

    Add followers with `route`, `derive`, `for_each` or `follow`, then call `run` or `start`.
    """

    def __init__(
        self,
        lake: LakeTables,
        landing: PathLike,
        options: FormatOptions,
        *,
        checkpoint: PathLike | None,
        pattern: str,
        files_per_batch: int,
        on_progress: Callable[[Progress], object] | None,
    ) -> None:
        self.lake = lake
        self.landing = absolute_path(landing)
        self.checkpoint = absolute_path(checkpoint) if checkpoint else f"{lake.path}/_streams/{_name(self.landing)}"
        self.progress: Progress | None = None
        """The progress of the last batch since the stream was started; None if it had none."""
        self._total = NOTHING_DONE
        """What all batches did since the stream was started."""
        self._pattern, self._files_per_batch, self._on_progress = pattern, files_per_batch, on_progress
        self._options = options
        self._followers: list[Follower] = []
        self._claimed: set[str] = set()
        local = local_path(self.landing)
        if local is not None and not os.path.isdir(local):
            raise LakeError(f"{self.landing} is not a folder; create the landing folder first")

    def route(self, subscriptions: SubscriptionSource) -> "StreamRoute":
        """Match subscriptions with new events; call `to_inboxes` on the result.

        Args:
            subscriptions: As in `Lake.route`; a file or a function is read again in every batch.
        """
        return StreamRoute(self, Route(self.lake, subscriptions))

    def derive(self, path: PathLike, analysis: Analysis, *subscriptions: Subscription | type | str) -> "Stream":
        """Update the results of an analysis at a path in every batch; arguments as in `DerivedTable`."""
        return self.follow(DerivedTable(self.lake, self.claim(path), analysis, *subscriptions))

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
        wanted = self.lake.subscription(what)
        known_as = name or function.__name__
        if not known_as.isidentifier():
            raise LakeError(f"{known_as!r} is not an identifier; give the function another name by name=")
        path = self.claim(f"{self.checkpoint}/functions/{known_as}")
        return self.follow(FunctionFollower(self.lake, path, wanted, function))

    def claim(self, path: PathLike) -> str:
        """Reserve a path for a follower; LakeError if another follower of this stream has it."""
        whole = absolute_path(path)
        if whole in self._claimed:
            raise LakeError(f"{whole} has a follower of this stream already; give this one another name or path")
        self._claimed.add(whole)
        return whole

    def follow(self, follower: Follower) -> "Stream":
        """Add a follower of your own: an object with a method `update`, which is called after every ingest."""
        self._followers.append(follower)
        return self

    def start(self, *, every: str = "1 second", once: bool = False) -> StreamingQuery:
        """Start the stream in the background and return Spark's query.

        Args:
            every: Shortest interval between batches.
            once: Stop when all files that are present have been ingested.
        """
        self.progress, self._total = None, NOTHING_DONE
        found = (
            self.lake.spark.readStream.format("binaryFile")
            .schema(FILE_SCHEMA)
            .option("pathGlobFilter", self._pattern)
            .option("recursiveFileLookup", "true")
            .option("maxFilesPerTrigger", self._files_per_batch)
            .option("maxFileAge", MAX_FILE_AGE)
            .load(spark_path(self.landing))
        )
        writer = found.select("path").writeStream.foreachBatch(self._batch).queryName(_name(self.landing))
        writer = writer.option("checkpointLocation", spark_path(f"{self.checkpoint}/spark"))
        return (writer.trigger(availableNow=True) if once else writer.trigger(processingTime=every)).start()

    def run(self) -> Progress:
        """Ingest all files that are present and update the followers.

        Returns what this call did, in all its batches and in updating the followers after them; zeros if there was
        nothing to do.
        """
        began = time.monotonic()
        self.start(once=True).awaitTermination()
        total = _add_steps(self._total, self.catch_up())
        return msgspec.structs.replace(
            total, seconds=time.monotonic() - began, lag_seconds=self._lag_seconds(), version=self.lake.version
        )

    def catch_up(self) -> list[UpdateResult]:
        """Update all followers to the present version of the lake, without ingesting; returns their results."""
        return [follower.update() for follower in self._followers]

    def metrics(self) -> list[Metric]:
        """What all batches did since the stream was started, for `genus.net.serve_metrics`."""
        total, last = self._total, self.progress
        counted = {
            "files": ("Files ingested", total.files),
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

    def _batch(self, found: DataFrame, batch: int) -> None:
        began = time.monotonic()
        paths = [_local_form(row[0]) for row in found.collect()]
        ingested = ingest(self.lake, paths, self._options)
        read = Progress(batch, len(paths), ingested.events, ingested.dead, 0, 0.0, None, ingested.version)
        done = _add_steps(read, self.catch_up())
        self.progress = msgspec.structs.replace(done, seconds=time.monotonic() - began, lag_seconds=self._lag_seconds())
        self._total = _add(self._total, self.progress)
        if self._on_progress is not None:
            self._on_progress(self.progress)

    def _lag_seconds(self) -> float | None:
        newest = self.lake.state().newest_us
        return None if newest is None else time.time() - newest / 1e6


class StreamRoute:
    """Subscriptions of a stream; made by `Stream.route`."""

    def __init__(self, stream: Stream, route: Route) -> None:
        self.stream, self.route = stream, route

    def to_inboxes(self, path: PathLike) -> Stream:
        """Deliver the matches of every batch to the inboxes at a path."""
        return self.stream.follow(InboxFollower(self.route, self.stream.claim(path)))


def _name(landing: str) -> str:
    """The name of a landing folder, with a hash of its path to make it unique."""
    digits = hashlib.blake2b(landing.encode(), digest_size=4).hexdigest()
    return f"{landing.rstrip('/').rpartition('/')[2] or 'landing'}-{digits}"


def _local_form(path: str) -> str:
    """A path without the `file:` that Spark puts before local paths."""
    return "/" + path.removeprefix("file:").lstrip("/") if path.startswith("file:") else path
