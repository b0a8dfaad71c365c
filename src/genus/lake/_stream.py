"""Streams: a folder that recordings land in is read in as they come, and followers take what is new.

Spark's own file source finds the files and remembers them in the checkpoint. A micro-batch reads its files in, which
the lake does once per content, and lets every follower come to the lake's version, which each does once per version.
So it may be killed anywhere: what a batch had not committed is done again, and what it had is not.
"""

import hashlib
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from genus.errors import LakeError
from genus.filters import Subscription
from genus.lake._derived import Derived
from genus.lake._inboxes import Inboxes
from genus.lake._increments import Followed, increment
from genus.lake._ingest.sources import PathLike, Unknown
from genus.lake._routing import Given, Route
from genus.lake._tables.files import local_path, spark_path, whole_path
from genus.lake._tables.ledger import Overtaken
from genus.lake._tables.store import Store

if TYPE_CHECKING:
    from genus.lake._analytics import Analysis
    from genus.lake._ingest.mapping import Mapping
    from genus.lake._lake import Lake

FOUND = "path string, modificationTime timestamp, length bigint, content binary"
NEVER_FORGET = "36500d"
"""Spark's file source passes over files that are older than others by more than this; a landing folder may hold any."""


class Progress(msgspec.Struct, frozen=True):
    """What one micro-batch did."""

    batch: int
    files: int
    events: int
    dead: int
    delivered: int
    """Matches delivered and results given out, by all followers."""
    seconds: float
    lag_seconds: float | None
    """How long ago the newest event of the lake was recorded, at the end of the batch; None while there are none."""
    version: int
    late: int = 0
    """New events that analyses left out, as late or overtaken."""
    problem: str | None = None
    """Why the last good list of subscriptions is still used: the present one cannot be read."""

    @property
    def rate(self) -> float:
        """Events read in per second."""
        return self.events / self.seconds if self.seconds else 0.0


class Follower(Protocol):
    """Something that follows the lake, once per version."""

    def update(self) -> Followed:
        """Come to the lake's version."""


class InboxFollower:
    """Delivers matches to inboxes."""

    def __init__(self, route: Route, path: PathLike) -> None:
        self._route = route
        self._inboxes = Inboxes.at(route.lake, path)

    def update(self) -> Followed:
        """Deliver what is new."""
        return self._inboxes.deliver(self._route)


class FunctionFollower:
    """Calls a function with the new events that match; again for the same version if it was interrupted."""

    def __init__(
        self, lake: "Lake", path: str, subscription: Subscription, function: Callable[[DataFrame, int], object]
    ) -> None:
        self._lake, self._subscription, self._function = lake, subscription, function
        self._store = Store(lake.spark, path)
        self._store.claim({"lake": lake.path, "subscription": str(subscription)})

    def update(self) -> Followed:
        """Call the function, and then remember that it was called."""
        from genus.lake._reading import read_parts

        new = increment(self._lake, self._store.state().cursor)
        if new is None:
            return Followed(self._store.state().cursor, 0, 0)
        self._function(read_parts(self._lake, self._subscription, new.parts), new.upto)
        draft = msgspec.structs.replace(self._store.begin("deliver"), after=new.after, upto=new.upto)
        try:
            self._store.commit(draft)
        except Overtaken as problem:
            raise LakeError(f"{self._store.path} is being followed by another process; let one do it") from problem
        return Followed(new.upto, new.rows, 0)


class Stream:
    """A landing folder and what follows it; `start` or `run` sets it going."""

    def __init__(
        self,
        lake: "Lake",
        landing: PathLike,
        *,
        checkpoint: PathLike | None = None,
        pattern: str = "*.genus",
        files_per_batch: int = 100,
        on_progress: Callable[[Progress], object] | None = None,
        format: str | None = None,
        mapping: "Mapping | PathLike | None" = None,
        dbc: PathLike | None = None,
        unknown: Unknown = "dead",
    ) -> None:
        self.lake = lake
        self.landing = whole_path(landing)
        self.checkpoint = whole_path(checkpoint) if checkpoint else f"{lake.path}/_streams/{_name(self.landing)}"
        self.progress: Progress | None = None
        self._pattern, self._files_per_batch, self._on_progress = pattern, files_per_batch, on_progress
        self._ingest: dict[str, Any] = {"format": format, "mapping": mapping, "dbc": dbc, "unknown": unknown}
        self._followers: list[Follower] = []
        self._claimed: set[str] = set()
        local = local_path(self.landing)
        if local is not None and not os.path.isdir(local):
            raise LakeError(f"{self.landing} is no folder; recordings land in a folder that is there before")

    def route(self, subscriptions: Given) -> "StreamRoute":
        """Subscriptions to match as events come in; a file or a function is asked again in every batch."""
        return StreamRoute(self, Route(self.lake, subscriptions))

    def derive(self, path: PathLike, analysis: "Analysis", *subscriptions: Subscription | type | str) -> "Stream":
        """Keep the results of an analysis up to date at a path."""
        return self.follow(Derived(self.lake, self.claim(path), analysis, *subscriptions))

    def for_each(
        self, what: Subscription | type | str, function: Callable[[DataFrame, int], object], name: str | None = None
    ) -> "Stream":
        """Call a function with the new events that match and the version of the lake they came with.

        After an interruption it may be called once more with the same version and the same events: remember the
        version with what you do. How far it has come is kept under its name, by default the function's own.
        """
        wanted = self.lake.subscription(Subscription(what) if isinstance(what, type) else what)
        known_as = name or function.__name__
        if not known_as.isidentifier():
            raise LakeError(f"{known_as!r} cannot name a function's place; give it another by name=")
        path = self.claim(f"{self.checkpoint}/functions/{known_as}")
        return self.follow(FunctionFollower(self.lake, path, wanted, function))

    def claim(self, path: PathLike) -> str:
        """Refuse a second follower at one place: the two would share what tells how far they have come."""
        whole = whole_path(path)
        if whole in self._claimed:
            raise LakeError(f"{whole} has a follower of this stream already; give this one a name or path of its own")
        self._claimed.add(whole)
        return whole

    def follow(self, follower: Follower) -> "Stream":
        """Let something of your own follow the lake."""
        self._followers.append(follower)
        return self

    def start(self, *, every: str = "1 second", once: bool = False) -> StreamingQuery:
        """Go on in the background, at most so often; with `once`, until what is there has been read in."""
        found = (
            self.lake.spark.readStream.format("binaryFile")
            .schema(FOUND)
            .option("pathGlobFilter", self._pattern)
            .option("recursiveFileLookup", "true")
            .option("maxFilesPerTrigger", self._files_per_batch)
            .option("maxFileAge", NEVER_FORGET)
            .load(spark_path(self.landing))
        )
        writer = found.select("path").writeStream.foreachBatch(self._batch).queryName(_name(self.landing))
        writer = writer.option("checkpointLocation", spark_path(f"{self.checkpoint}/spark"))
        return (writer.trigger(availableNow=True) if once else writer.trigger(processingTime=every)).start()

    def run(self) -> Progress | None:
        """Read in what is there, to the end; the last batch's progress."""
        query = self.start(once=True)
        query.awaitTermination()
        self._catch_up()
        return self.progress

    def _batch(self, found: DataFrame, batch: int) -> None:
        began = time.monotonic()
        paths = [_plain(row[0]) for row in found.collect()]
        ingested = self.lake.ingest(paths, **self._ingest)
        steps = self._catch_up()
        self.progress = Progress(
            batch,
            len(paths),
            ingested.events,
            ingested.dead,
            sum(step.rows for step in steps),
            time.monotonic() - began,
            self._lag_seconds(),
            ingested.version,
            sum(step.late for step in steps),
            next((step.problem for step in steps if step.problem), None),
        )
        if self._on_progress is not None:
            self._on_progress(self.progress)

    def _catch_up(self) -> list[Followed]:
        return [follower.update() for follower in self._followers]

    def _lag_seconds(self) -> float | None:
        newest = self.lake.state().newest_us
        return None if newest is None else time.time() - newest / 1e6


class StreamRoute:
    """Subscriptions of a stream, whose matches go somewhere."""

    def __init__(self, stream: Stream, route: Route) -> None:
        self._stream, self._route = stream, route

    def to_inboxes(self, path: PathLike) -> Stream:
        """Deliver matches to inboxes as they come."""
        return self._stream.follow(InboxFollower(self._route, self._stream.claim(path)))


def _name(landing: str) -> str:
    """What a landing folder is called, and a few digits that tell it from others that are called so."""
    digits = hashlib.blake2b(landing.encode(), digest_size=4).hexdigest()
    return f"{landing.rstrip('/').rpartition('/')[2] or 'landing'}-{digits}"


def _plain(path: str) -> str:
    """A path as the lake names it; Spark writes `file:` before those of this machine, and quotes nothing."""
    return "/" + path.removeprefix("file:").lstrip("/") if path.startswith("file:") else path
