"""A process that streams a landing folder until it kills itself: `stream_program.py FOLDER POINT COUNT WHOM`.

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

from genus.lake import Lake
from genus.lake._ingest.job import gather_reports
from genus.lake._stream import stream
from genus.lake._stream.delivery import Delivery
from genus.lake._tables.lake_tables import SparkStore
from genus.testing import spark_session
from tests.lake.test_inboxes import WANTED

POINTS = (
    "before ingest", "during ingest", "before ingest commit", "after ingest commit",
    "during write", "after write", "before deliver commit", "after deliver commit",
)  # fmt: skip
"""Where the process can die; `during` is some milliseconds after a Spark job was started."""


class Death:
    """Kills this process, alone or with Spark, when a point was reached so many times."""

    def __init__(self, point: str, count: int, whom: str) -> None:
        self._point, self._left, self._whom = point, count, whom

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
            timer.start()
            result = function(*arguments, **options)
            timer.cancel()
            self.reach(f"after {called}")
            return result

        return run

    def _kill(self) -> None:
        if self._whom == "all":
            os.killpg(os.getpgid(0), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)  # Spark notices later, and may be at work when the next process begins


def main(folder: Path, point: str, count: int, whom: str) -> None:
    death = Death(point, count, whom)
    changed: Any = stream
    changed.gather_reports = death.around(gather_reports, lambda *_: "ingest")
    changed = Delivery
    changed.write = death.around(Delivery.write, lambda *_: "write")
    changed = SparkStore
    changed.commit = death.around(SparkStore.commit, lambda store, draft: f"{draft.kind} commit")
    lake = Lake(spark_session(), folder / "lake")
    lake.stream(folder / "landing", files_per_batch=1).route(WANTED).to_inboxes(folder / "inboxes").run()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4])
