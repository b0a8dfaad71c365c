"""Streams: files are ingested as they arrive in a landing folder, and followers process the new events.

A stream lists its folder; the ledger of the lake says which files it has. A micro-batch ingests some of the others,
which the lake does once per content, and then updates every follower, which each does once per version. So a stream
keeps no state of its own and can be killed at any point: what a batch had not committed is repeated, what it had
committed is not. A thread runs it; Spark is used only where there is much to do.
"""

import hashlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Protocol

import msgspec
from pyspark.sql import DataFrame

from genus.errors import LakeError
from genus.filters import Subscription
from genus.lake._analytics.analysis import Analysis
from genus.lake._ingest.ingest import FormatOptions, IngestResult, ingest_files, prepare
from genus.lake._ingest.sources import FormatChooser, PathLike
from genus.lake._jobs import folder_name, job_description
from genus.lake._query.reading import read_parts
from genus.lake._query.subscription_list import SubscriptionSource
from genus.lake._stream.derived import IDLE, DerivedTable
from genus.lake._stream.inboxes import Inboxes
from genus.lake._stream.increments import UpdateResult, next_increment
from genus.lake._stream.route import Route
from genus.lake._tables.commits import CommitConflict
from genus.lake._tables.files import FileInfo, absolute_path, local_path, walk_files, walk_unseen
from genus.lake._tables.hadoop import file_system_for
from genus.lake._tables.lake_tables import LakeTables
from genus.lake._tables.spark_store import SparkStore
from genus.lake._tables.state import LedgerState
from genus.model import Span, seconds
from genus.net._metrics import Metric


class Progress(msgspec.Struct, frozen=True):
    """What one micro-batch of a `Stream` did, or what all of one `Stream.run` did."""

    batch: int
    """Number of the batch since the stream was made, from 0; of a run, that of its last, or -1 if it had none."""
    files: int
    """Files ingested, without those whose content the lake had already."""
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
    """Which subscriptions were not used, and why; why the previous list was used; or which files have vanished."""

    @property
    def rate(self) -> float:
        """Events ingested per second."""
        return self.events / self.seconds if self.seconds else 0.0


LOOK_AT_ALL_S = 60.0
"""How often a stream looks at the sizes and times of all files; in between, only at those that are new by name."""
NOTHING_INGESTED = IngestResult(0, 0, 0, 0, 0, 0.0, 0)
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
        self._store = SparkStore(lake.spark, path)
        self._store.claim(lake.store, "function", subscription=str(subscription))

    def update(self) -> UpdateResult:
        """Call the function, then commit the version."""
        cursor = self._store.state().cursor
        new = next_increment(self._lake, cursor, self._store.path)
        if new is None:
            return UpdateResult(cursor.version, 0, 0)
        with job_description(self._lake.spark, f"call {folder_name(self._store.path)} with {self._subscription}"):
            self._function(read_parts(self._lake, self._subscription, new.parts), new.upto.version)
        draft = msgspec.structs.replace(self._store.begin("deliver"), after=new.after, upto=new.upto)
        try:
            self._store.commit(draft)
        except CommitConflict as problem:
            raise LakeError(
                f"{self._store.path} is being updated by another process; run one process per function"
            ) from problem
        return UpdateResult(new.upto.version, new.rows, 0)


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
        self._batches = 0
        self._done: dict[str, FileInfo] = {}
        """Files that this stream has ingested; the ledger does not list those whose content it had already."""
        self._seen: dict[str, int] = {}
        """The inodes of files, by path, that need no look until all files are looked at again."""
        self._looked_at = -LOOK_AT_ALL_S
        self._running: RunningStream | None = None
        local = local_path(self.landing)
        if local is not None and not os.path.isdir(local):
            raise LakeError(f"{self.landing} is not a folder; create the landing folder first")
        if files_per_batch < 1:
            raise LakeError(f"files_per_batch={files_per_batch}: a batch has at least one file")
        if "{" in pattern:
            raise LakeError(f"pattern={pattern!r} has braces; use *, ? and [...], or a stream for each pattern")

    def route(self, subscriptions: SubscriptionSource) -> "StreamRoute":
        """Match subscriptions with new events; call `to_inboxes` on the result.

        Args:
            subscriptions: As in `Lake.route`; a file or a function is read again in every batch.
        """
        return StreamRoute(self, Route(self.lake, subscriptions))

    def derive(
        self,
        path: PathLike,
        analysis: Analysis,
        *subscriptions: Subscription | type | str,
        idle: Span = IDLE,
    ) -> "Stream":
        """Update the results of an analysis at a path in every batch; arguments as in `DerivedTable`."""
        return self.follow(DerivedTable(self.lake, self.claim(path), analysis, *subscriptions, idle=idle))

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
        """Add a follower of your own: an object with a method `update`, called at every look at the landing folder."""
        self._followers.append(follower)
        return self

    def start(self, *, every: Span = "1s", once: bool = False) -> "RunningStream":
        """Start the stream in a thread.

        Args:
            every: Time between looks at the landing folder; a batch that takes longer delays the next.
            once: End when the files that are present now have been ingested.

        Raises:
            LakeError: It runs already, or the mapping names what the catalog lacks.
            SpanError: `every` is no length of time.
        """
        seconds(every, "every")  # raises before the stream begins
        self._running = RunningStream(self._begin(), every, once)
        return self._running

    def run(self) -> Progress:
        """Ingest all files that are present and update the followers.

        Returns what this call did, in all its batches; zeros if there was nothing to do.

        Raises:
            LakeError: The stream was started and runs, or a file cannot be read.
        """
        began = time.monotonic()
        self._begin()(threading.Event())
        return msgspec.structs.replace(
            self._total,
            seconds=time.monotonic() - began,
            lag_seconds=self._lag_seconds(),
            version=self.lake.version,
        )

    def _begin(self) -> Callable[[threading.Event], None]:
        """Forget earlier figures; returns a function that ingests what is present, until an event is set."""
        if self._running is not None and self._running.is_active:
            raise LakeError(f"the stream of {self.landing} runs already; stop it first")
        self.progress, self._total = None, NOTHING_DONE
        self._looked_at = -LOOK_AT_ALL_S
        choose = prepare(self.lake, self._options)
        return lambda stopped: self._ingest_present(choose, stopped)

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

    def _ingest_present(self, choose: FormatChooser, stopped: threading.Event) -> None:
        """Ingest the files that are present, in batches, and update the followers."""
        files = self._new_files()
        for first in range(0, max(len(files), 1), self._files_per_batch):
            if stopped.is_set():
                return
            self._batch(files[first : first + self._files_per_batch], choose)

    def _new_files(self) -> list[FileInfo]:
        """The files in the landing folder that the lake does not have, the oldest first."""
        new = self._new_local_files() if local_path(self.landing) is not None else self._new_remote_files()
        return sorted(new, key=lambda each: (each.modified, each.path))

    def _new_remote_files(self) -> list[FileInfo]:
        state = self.lake.state()
        found = walk_files(file_system_for(self.lake.spark, self.landing), self.landing, hidden=False)
        return [each for each in found if self._is_new(each, state)]

    def _new_local_files(self) -> list[FileInfo]:
        """Files that appear, also under a name that was there, are found; those changed in place in a minute."""
        if time.monotonic() - self._looked_at >= LOOK_AT_ALL_S:
            self._looked_at, self._seen = time.monotonic(), {}
        state, new = self.lake.state(), list[FileInfo]()
        for file, inode in walk_unseen(self.landing, self._seen):
            if self._is_new(file, state):
                new.append(file)
            else:
                self._seen[file.path] = inode
        return new

    def _is_new(self, file: FileInfo, state: LedgerState) -> bool:
        return fnmatchcase(file.name, self._pattern) and not self._is_known(file, state)

    def _is_known(self, file: FileInfo, state: LedgerState) -> bool:
        """Whether a file was ingested and has not been replaced since, by its size and time."""
        if self._done.get(file.path) == file:
            return True
        known = state.sources.get(state.paths.get(file.path, 0))
        return known is not None and (known.bytes, known.modified_us) == (file.size, file.modified_us)

    def _batch(self, files: Sequence[FileInfo], choose: FormatChooser) -> None:
        """Ingest some files and update the followers."""
        began = time.monotonic()
        ingested, gone = self._ingest(files, choose)
        version = self.lake.version
        steps = self.catch_up()
        if not ingested.files and not gone and not any(step.events or step.rows for step in steps):
            return
        more = f", and {len(gone) - 1} more" if len(gone) > 1 else ""
        problem = f"{gone[0].path} vanished before it was ingested{more}" if gone else None
        read = Progress(
            self._batches, ingested.files, ingested.events, ingested.dead, 0, 0.0, None, version, problem=problem
        )
        self._report(_add_steps(read, steps), began)

    def _ingest(self, files: Sequence[FileInfo], choose: FormatChooser) -> tuple[IngestResult, list[FileInfo]]:
        """Ingest some files; those that were removed since they were listed are returned."""
        there, gone = list(files), list[FileInfo]()
        while there:
            try:
                ingested = ingest_files(self.lake, there, choose)
            except LakeError:
                missing = [file for file in there if self._is_gone(file)]
                if not missing:
                    raise
                gone += missing
                there = [file for file in there if file not in missing]
                continue
            self._done |= {file.path: file for file in there}
            return ingested, gone
        return NOTHING_INGESTED, gone

    def _is_gone(self, file: FileInfo) -> bool:
        local = local_path(file.path)
        if local is not None:
            return not os.path.exists(local)
        folder = file.path.rpartition("/")[0]
        listed = file_system_for(self.lake.spark, self.landing).list_folder(folder)
        return all(each.path != file.path for each in listed)

    def _report(self, done: Progress, began: float) -> None:
        self._batches += 1
        self.progress = msgspec.structs.replace(done, seconds=time.monotonic() - began, lag_seconds=self._lag_seconds())
        self._total = _add(self._total, self.progress)
        if self._on_progress is not None:
            self._on_progress(self.progress)

    def _lag_seconds(self) -> float | None:
        newest = self.lake.state().newest_us
        return None if newest is None else time.time() - newest / 1e6


class RunningStream:
    """A stream that runs in a thread; made by `Stream.start`."""

    def __init__(self, work: Callable[[threading.Event], None], every: Span, once: bool) -> None:
        self.exception: BaseException | None = None
        """The error that ended the stream; None while it runs and if it ended as it should."""
        self._work, self._every_s, self._once = work, seconds(every, "every"), once
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="genus stream", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._repeat()
        except BaseException as problem:
            self.exception = problem

    def _repeat(self) -> None:
        while not self._stopped.is_set():
            due = time.monotonic() + self._every_s
            self._work(self._stopped)
            if self._once:
                return
            self._stopped.wait(max(due - time.monotonic(), 0.0))

    @property
    def is_active(self) -> bool:
        """Whether the stream has not ended."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """Let the stream end after the batch under way; `join` waits for that."""
        self._stopped.set()

    def join(self, timeout: Span | None = None) -> bool:
        """Wait until the stream has ended; raises the error that ended it.

        Args:
            timeout: Longest time to wait; None for no limit.

        Returns:
            Whether it has ended.
        """
        self._thread.join(None if timeout is None else seconds(timeout, "timeout"))
        if self.exception is not None:
            raise self.exception
        return not self.is_active

    def __enter__(self) -> "RunningStream":
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the stream and wait until it has ended."""
        self.stop()
        self.join()


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
