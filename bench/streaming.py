"""A landing folder to inboxes: events a second, and how long a stream takes to go on after it was stopped.

Files of 20,000 events each land before the stream begins; five make a micro-batch, and eight subscriptions deliver
about two matches an event. An *empty* batch finds nothing new. *Restart* is a new stream of the same folder with one
file more, to the end of its micro-batch. Batches of this size need no Spark job; *CPU* is the time of the process in a
micro-batch, which does not depend on what else the machine does.
"""

import shutil
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from bench.ingest import Loop, loops, session
from bench.timing import markdown
from genus import Subscription, this
from genus.bus import RecordingWriter
from genus.lake import Inboxes, Lake, Progress, RouteEntry
from genus.model import micros_of_time

FILES, EVENTS_EACH, FILES_PER_BATCH = 40, 20_000, 5
WANTED = [
    *(RouteEntry(f"lane {lane}", Subscription(Loop, where=this.lane == lane)) for lane in range(4)),
    *(RouteEntry(f"above {speed}", Subscription(Loop, where=this.speed > speed)) for speed in (30, 50, 70)),
    RouteEntry("trucks", Subscription(Loop, where=this.category == "truck")),
]


class Streamed(msgspec.Struct, frozen=True):
    """What a stream came to."""

    events: int
    delivered: int
    seconds: float
    batch_seconds: float
    batch_cpu: float
    empty_seconds: float
    restart_seconds: float


def run() -> Streamed:
    """Stream a folder, stop, and go on with one file more."""
    folder = Path(tempfile.mkdtemp(prefix="genus-stream-"))
    try:
        with session(folder) as spark:
            lake = Lake.create(spark, folder / "lake", Loop)
            land(folder / "landing", FILES)
            seen: list[Progress] = []
            stream = lake.stream(folder / "landing", files_per_batch=FILES_PER_BATCH, on_progress=seen.append)
            stream.route(WANTED).to_inboxes(folder / "inboxes")
            began, cpu = time.perf_counter(), time.process_time()
            stream.run()
            seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
            empty = min(stream.run().seconds for _ in range(5))
            land(folder / "landing", 1, first=FILES)
            began = time.perf_counter()
            again = Lake(spark, folder / "lake").stream(folder / "landing", on_progress=seen.append)
            again.route(WANTED).to_inboxes(folder / "inboxes").run()
            restart = time.perf_counter() - began
            assert Inboxes(spark, folder / "inboxes").read().count() == lake.route(WANTED).count()
            whole = seen[:-1]
            batches = sorted(each.seconds for each in whole)
            events, delivered = sum(each.events for each in whole), sum(each.delivered for each in whole)
            return Streamed(events, delivered, seconds, batches[len(batches) // 2], cpu / len(whole), empty, restart)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def land(folder: Path, files: int, first: int = 0) -> None:
    """Recordings that appear whole."""
    folder.mkdir(exist_ok=True)
    events = list(loops((first + files) * EVENTS_EACH))
    for number in range(first, first + files):
        hidden = folder / f".{number}"
        with RecordingWriter(hidden) as writer:
            for event in events[number * EVENTS_EACH : (number + 1) * EVENTS_EACH]:
                assert event.time is not None
                writer.write(event, micros_of_time(event.time))
        hidden.rename(folder / f"bench-{number:05}.genus")


def table(streamed: Streamed) -> str:
    """One line."""
    head = ["events", "delivered", "time", "rate", "a micro-batch", "CPU", "an empty one", "restart"]
    row = [
        f"{streamed.events:,}",
        f"{streamed.delivered:,}",
        f"{streamed.seconds:.1f} s",
        f"{streamed.events / streamed.seconds:,.0f} events/s",
        f"{streamed.batch_seconds:.2f} s",
        f"{streamed.batch_cpu:.2f} s",
        f"{1000 * streamed.empty_seconds:.1f} ms",
        f"{streamed.restart_seconds:.1f} s",
    ]
    return markdown(head, [row])


if __name__ == "__main__":
    print(table(run()), file=sys.stdout)
