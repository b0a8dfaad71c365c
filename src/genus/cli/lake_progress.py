"""How far Spark has come, on the terminal: its tasks are counted while a command waits for it."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn, TransferSpeedColumn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL_S = 0.3


@contextmanager
def reading_in(spark: "SparkSession", total: int, wave: int) -> Iterator[Callable[[int, int], object]]:
    """A bar of bytes; the function it gives is told what was committed, and tasks fill in what is under way."""
    columns = TextColumn("reading in"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeElapsedColumn()
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=total or None)
        committed = 0

        def commit(done: int, wanted: int) -> None:
            nonlocal committed
            committed = done
            progress.update(task, completed=done, total=wanted)

        def poll() -> None:
            done, of = tasks(spark)
            progress.update(task, completed=committed + min(wave, total - committed) * done / max(of, 1))

        with _polling(poll, console.is_terminal):
            yield commit


@contextmanager
def working(spark: "SparkSession", text: str) -> Iterator[None]:
    """A spinner with how many tasks of the jobs under way are done."""
    console = Console(stderr=True)
    with console.status(text) as status:

        def poll() -> None:
            done, of = tasks(spark)
            status.update(f"{text}: {done:,} of {of:,} tasks" if of else text)

        with _polling(poll, console.is_terminal):
            yield


def tasks(spark: "SparkSession") -> tuple[int, int]:
    """How many tasks of the active stages are done, and of how many."""
    tracker = spark.sparkContext.statusTracker()
    stages = [info for number in tracker.getActiveStageIds() if (info := tracker.getStageInfo(number)) is not None]
    return sum(stage.numCompletedTasks for stage in stages), sum(stage.numTasks for stage in stages)


@contextmanager
def _polling(poll: Callable[[], object], wanted: bool) -> Iterator[None]:
    """Call a function now and then, in a thread of its own, until the block ends."""
    if not wanted:
        yield
        return
    over = threading.Event()
    thread = threading.Thread(target=_poll, args=(poll, over), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _poll(poll: Callable[[], object], over: threading.Event) -> None:
    from genus.lake.session import SPARK_ERRORS

    with suppress(*SPARK_ERRORS, OSError):  # Spark went while it was asked: what waits for it says so
        while not over.wait(POLL_S):
            poll()
