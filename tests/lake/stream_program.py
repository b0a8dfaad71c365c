"""A process that streams a landing folder until it kills itself: `stream_program.py FOLDER POINT COUNT WHOM HOW`.

It ends as by `kill -9` when it comes to a point of the work for the COUNT-th time: Python alone, or Python and Spark.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from genus.lake import Inboxes, Lake, lazy_session
from genus.lake._ingest import ingest, job
from genus.lake._stream import small_delivery
from genus.lake._tables.files import write_file
from genus.lake._tables.spark_store import SparkStore
from genus.testing import spark_session
from tests.lake.test_inboxes import WANTED

POINTS = (
    "before ingest", "during ingest", "before ingest commit", "after ingest commit",
    "during write", "after write", "before deliver commit", "after deliver commit",
)  # fmt: skip
"""Where the process can die; `during` is some milliseconds after a Spark job was started, or after a file was written
where the work is done in this process."""


class Death:
    """Kills this process, alone or with Spark, when a point was reached so many times."""

    def __init__(self, point: str, count: int, whom: str, on_spark: bool) -> None:
        self._point, self._left, self._whom, self._on_spark = point, count, whom, on_spark

    def reach(self, point: str) -> None:
        """Die here, if this is the point."""
        if point == self._point:
            self._left -= 1
            if not self._left:
                self._kill()

    def around(self, function: Callable[..., Any], name: Callable[..., str]) -> Callable[..., Any]:
        """The function with points before, during and after it."""

        def run(*arguments: Any, **options: Any) -> Any:
            called = name(*arguments)
            self.reach(f"before {called}")
            timer = threading.Timer(0.1, self.reach, [f"during {called}"])
            if self._on_spark:
                timer.start()
            result = function(*arguments, **options)
            timer.cancel()
            self.reach(f"after {called}")
            return result

        return run

    def after(self, function: Callable[..., Any], point: str) -> Callable[..., Any]:
        """The function with a point after it."""

        def run(*arguments: Any) -> Any:
            result = function(*arguments)
            self.reach(point)
            return result

        return run

    def _kill(self) -> None:
        if self._whom == "all":
            os.killpg(os.getpgid(0), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)  # Spark notices later, and may be at work when the next process begins


def main(folder: Path, point: str, count: int, whom: str, how: str) -> None:
    death = Death(point, count, whom, how == "spark")
    changed: Any = job
    if how == "spark":
        job.SMALL_BYTES = small_delivery.SMALL_EVENTS = 0
    else:
        changed.write_file = death.after(write_file, "during ingest")
        changed = small_delivery
        changed.write_file = death.after(write_file, "during write")
    changed = ingest
    changed.run_ingest = death.around(job.run_ingest, lambda *_: "ingest")
    changed = Inboxes
    changed._write = death.around(Inboxes._write, lambda *_: "write")
    changed = SparkStore
    changed.commit = death.around(SparkStore.commit, lambda store, draft: f"{draft.kind} commit")
    lake = Lake(lazy_session(spark_session), folder / "lake")  # not needed where the work is done in this process
    lake.stream(folder / "landing", files_per_batch=1).route(WANTED).to_inboxes(folder / "inboxes").run()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), *sys.argv[4:])
