"""A landing folder to inboxes, as a query of Spark's Structured Streaming.

Files land together while the query runs, with eight subscriptions that deliver about two matches an event. The time is
Spark's own, from the trigger to the end of the micro-batch: listing, checkpoint, one job that reads and writes, the
commit, and one job that delivers. *Bare* is a query of Spark alone with the same source and checkpoint, whose function
collects the paths. *Idle* is a trigger that finds nothing. *Restart* is a new query of the same folder with one file
more, to the end of its micro-batch.
"""

import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession

from bench.ingest import Loop, loops, session
from bench.timing import goal, markdown
from genus import Subscription, this
from genus.bus import RecordingWriter
from genus.lake import Inboxes, Lake, RouteEntry
from genus.model import micros_of_time

SIZES = ((10_000, 1), (100_000, 4), (1_000_000, 20))
"""Events and files of a batch."""
ROUNDS = 5
WANTED = [
    *(RouteEntry(f"lane {lane}", Subscription(Loop, where=this.lane == lane)) for lane in range(4)),
    *(RouteEntry(f"above {speed}", Subscription(Loop, where=this.speed > speed)) for speed in (30, 50, 70)),
    RouteEntry("trucks", Subscription(Loop, where=this.category == "truck")),
]
_SCHEMA = "path string, modificationTime timestamp, length long, content binary"


class Batch(msgspec.Struct, frozen=True):
    """Medians of batches of one size."""

    events: int
    files: int
    seconds: float
    bare_seconds: float


class Streamed(msgspec.Struct, frozen=True):
    """What a stream came to."""

    batches: list[Batch]
    idle_seconds: float
    bare_idle_seconds: float
    restart_seconds: float


def run() -> Streamed:
    """Stream batches of several sizes, then go on with a new query."""
    folder = Path(tempfile.mkdtemp(prefix="genus-stream-"))
    try:
        with session(folder) as spark:
            return _run(spark, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(spark: SparkSession, folder: Path) -> Streamed:
    (folder / "landing").mkdir()
    lake = Lake.create(spark, folder / "lake", Loop)
    stream = lake.stream(folder / "landing", files_per_batch=1000)
    stream.route(WANTED).to_inboxes(folder / "inboxes")
    with _running(stream.start(trigger="250ms")) as query:
        _batch(query, folder, 20_000, 2)  # Spark compiles, and starts its workers
        seconds = {size: [_batch(query, folder, *size) for _ in range(_rounds(size[0]))] for size in SIZES}
        idle = _idle(query)
    with _running(_bare(spark, folder / "bare")) as query:
        _batch(query, folder / "bare", 20_000, 2)
        bare = {size: [_batch(query, folder / "bare", *size) for _ in range(_rounds(size[0]))] for size in SIZES}
        bare_idle = _idle(query)
    land(folder / "landing", 1, 10_000, first=10_000)
    began = time.perf_counter()
    again = Lake(spark, folder / "lake").stream(folder / "landing", files_per_batch=1000)
    again.route(WANTED).to_inboxes(folder / "inboxes").run()
    restart = time.perf_counter() - began
    assert Inboxes(spark, folder / "inboxes").read().count() == lake.route(WANTED).count()
    batches = [Batch(*size, median(seconds[size]), median(bare[size])) for size in SIZES]
    return Streamed(batches, idle, bare_idle, restart)


def _rounds(events: int) -> int:
    return ROUNDS if events < 1_000_000 else 2


@contextmanager
def _running(query: Any) -> Iterator[Any]:
    try:
        yield query
    finally:
        query.stop()


def _bare(spark: SparkSession, folder: Path) -> Any:
    """A query that does nothing with the files."""
    source = spark.readStream.format("binaryFile").schema(_SCHEMA).option("pathGlobFilter", "*.genus")
    (folder / "landing").mkdir(parents=True)
    paths = source.option("recursiveFileLookup", "true").load(f"file://{folder}/landing").select("path")
    writer = paths.writeStream.option("checkpointLocation", f"file://{folder}/checkpoint")
    return writer.foreachBatch(_collect).trigger(processingTime="250 milliseconds").start()


def _collect(paths: DataFrame, batch: int) -> None:
    paths.collect()


_landed = 0


def _batch(query: Any, folder: Path, events: int, files: int) -> float:
    """Let files land together; returns the seconds of the batch that reads all of them."""
    global _landed
    while True:
        known = query.lastProgress["batchId"] if query.lastProgress else -1
        land(folder / "landing", files, events // files, _landed)
        _landed += files
        query.processAllAvailable()
        found = [each for each in query.recentProgress if each["batchId"] > known and each["numInputRows"]]
        last = found[-1]
        if last["sources"][0]["numInputRows"] == files or len(found) == 1:
            return float(last["durationMs"]["triggerExecution"]) / 1000


def _idle(query: Any) -> float:
    """The median of triggers that found nothing."""
    time.sleep(12)  # Spark reports idle triggers every ten seconds
    found = [
        each["durationMs"]["triggerExecution"] for each in query.recentProgress if "addBatch" not in each["durationMs"]
    ]
    return median(found) / 1000 if found else float("nan")


def land(folder: Path, files: int, events: int, first: int = 0) -> None:
    """Recordings that appear together, complete."""
    made = []
    given = list(loops(events))
    for number in range(first, first + files):
        hidden = folder / f".{number}"
        with RecordingWriter(hidden) as writer:
            for event in given:
                assert event.time is not None
                writer.write(event, micros_of_time(event.time) + number)
        made.append((hidden, folder / f"bench-{number:05}.genus"))
    for hidden, shown in made:
        hidden.rename(shown)


def table(streamed: Streamed) -> str:
    """A line for each size of batch, and one for the rest."""
    head = ["batch", "to inboxes", "rate", "bare query", "ratio"]
    rows = [
        [
            f"{each.events:,} events in {each.files} {'file' if each.files == 1 else 'files'}",
            _time(each),
            _rate(each),
            f"{each.bare_seconds:.2f} s",
            f"{each.seconds / each.bare_seconds:.1f}",
        ]
        for each in streamed.batches
    ]
    idle, bare = streamed.idle_seconds, streamed.bare_idle_seconds
    shown = goal(f"{1000 * idle:.0f} ms", 1000 * idle, at_most=50, unit=" ms")
    rows.append(["idle trigger", shown, "", f"{1000 * bare:.0f} ms", f"{idle / bare:.1f}"])
    rows.append(["restart", f"{streamed.restart_seconds:.1f} s", "", "", ""])
    return markdown(head, rows)


def _time(batch: Batch) -> str:
    shown, most = f"{batch.seconds:.2f} s", {10_000: 0.7, 100_000: 1.3}.get(batch.events)
    return shown if most is None else goal(shown, batch.seconds, at_most=most, unit=" s")


def _rate(batch: Batch) -> str:
    rate = batch.events / batch.seconds
    shown = f"{rate:,.0f} events/s"
    return shown if batch.events < 1_000_000 else goal(shown, rate, at_least=150_000)


if __name__ == "__main__":
    print(table(run()), file=sys.stdout)
