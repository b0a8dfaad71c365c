"""`genus lake stream`: a landing folder is read in as recordings come, and matches are delivered."""

import queue
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal

import click
import msgspec
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from genus.cli._exit import stopped_gracefully
from genus.cli._format import SpanParam, counted, plain_table, rate
from genus.cli._lake_ingest import database_of, takes_formats
from genus.cli._lake_session import lake_and, on_spark, started
from genus.cli._metrics import is_place, serve

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from genus.lake.types import Progress, Stream

LINES = 12
"""How many batches the table shows."""
TICK_S = 0.2
_HEADINGS = ("batch", "files", "skipped", "events", "events/s", "dead", "delivered", "lag", "took")


@click.command()
@lake_and("LANDING")
@click.option("--route", "subscriptions", metavar="FILE", help="Match these subscriptions; read again when it changes.")
@click.option("--to", "inboxes", metavar="INBOXES", help="Deliver the matches to inboxes at this path.")
@click.option("--every", type=SpanParam(), default="1s", show_default=True, help="Start a batch this often.")
@click.option("--once", is_flag=True, help="End when the present files have been ingested.")
@click.option("--pattern", metavar="GLOB", help="Which files of the folder are read [those of the format, *.genus].")
@takes_formats
@click.option(
    "--metrics",
    metavar="PLACE",
    help="Serve metrics for Prometheus at this port or HOST:PORT; or append a JSON line a batch to a file.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON line a batch instead of a table.")
@on_spark
def stream(
    given: tuple[str, str],
    subscriptions: str | None,
    inboxes: str | None,
    every: float,
    once: bool,
    pattern: str | None,
    format_: str | None,
    mapping: Path | None,
    dbc: Path | None,
    truncated: bool,
    unknown: Literal["dead", "pass"],
    identity: Literal["content", "path"],
    j1939: bool | None,
    nmea2000: bool,
    metrics: str | None,
    as_json: bool,
    spark: "SparkSession",
) -> None:
    """Ingest recordings as they land, and deliver matches.

    Every event is ingested once, and every match delivered once. Ctrl-C ends it after the batch, a second one at once;
    when it is started again it continues after the last complete batch.

    \b
    genus lake stream city landing --route who-wants-what.txt --to city-inboxes
    """
    if (subscriptions is None) != (inboxes is None):
        raise click.UsageError("--route FILE and --to INBOXES go together")
    from genus.lake import Lake

    done: queue.SimpleQueue[Progress] = queue.SimpleQueue()
    followed = Lake(spark, given[0]).stream(
        given[1],
        pattern=pattern,
        on_progress=done.put,
        format=format_,
        mapping=mapping,
        dbc=database_of(dbc, truncated, j1939, nmea2000),
        unknown=unknown,
        identity=identity,
    )
    if subscriptions and inboxes:
        routed = followed.route(Path(subscriptions))
        routed.route.subscriptions()  # reports a bad file before Spark starts
        if routed.route.problem is not None:
            click.echo(f"warning: {routed.route.problem}", err=True)
        routed.to_inboxes(inboxes)
    started(spark)
    if not once:
        click.echo(f"watching {followed.landing}; Ctrl-C ends it", err=True)
    with ExitStack() as open_files, _view(as_json) as view:
        serve(open_files, followed, metrics if metrics and is_place(metrics) else None)
        outputs = [view, *([_appender(open_files, Path(metrics))] if metrics and not is_place(metrics) else [])]
        run(followed, every, once, _drained(done, outputs))


def run(followed: "Stream", every: float, once: bool, tick: Callable[[], object]) -> None:
    """Run a stream until it ends by itself, fails, or is stopped; calls `tick` meanwhile."""
    with stopped_gracefully() as stop:
        query = followed.start(trigger="available now" if once else every)
        while query.isActive and not stop.wait(TICK_S):
            tick()
        if query.isActive:
            click.echo("stopping after this batch; Ctrl-C again stops at once", err=True)
        while query.isActive and query.status["isTriggerActive"]:
            time.sleep(TICK_S)
            tick()
        query.stop()
        followed.join()  # raises the error of the stream
        tick()


# -- output ------------------------------------------------------------------------------------------------------------

Output = Callable[["Progress", bytes], object]
"""Takes a batch, as such and as a line of JSON."""


def _drained(done: "queue.SimpleQueue[Progress]", outputs: list[Output]) -> Callable[[], object]:
    """Hands out the batches that ended since the last call; the stream's own threads do nothing but queue them."""

    def drain() -> None:
        while not done.empty():
            progress = done.get()
            line = as_line(progress)
            for output in outputs:
                output(progress, line)

    return drain


def _appender(stack: ExitStack, path: Path) -> Output:
    file: IO[bytes] = stack.enter_context(path.open("ab", buffering=0))
    return lambda progress, line: file.write(line + b"\n")


def as_line(progress: "Progress") -> bytes:
    """Return a batch as JSON, with the time it ended and its rate."""
    at = datetime.now(UTC).isoformat()
    return msgspec.json.encode({"at": at, **msgspec.to_builtins(progress), "events_per_second": progress.rate})


@contextmanager
def _view(as_json: bool) -> Iterator[Output]:
    """A function that shows batches: JSON lines, a table that is redrawn, or lines if there is no terminal."""
    console = Console()
    if as_json:
        yield lambda progress, line: click.echo(line)
    elif not console.is_terminal:
        yield lambda progress, line: click.echo(_sentence(progress))
    else:
        shown = _Shown()
        with Live(shown, console=console, refresh_per_second=4):
            yield shown.add


def _sentence(progress: "Progress") -> str:
    speed = rate(progress.events, progress.seconds)
    read = f"{counted(progress.files, 'file')}, {counted(progress.events, 'event')} ({speed})"
    skipped = f", {progress.skipped:,} skipped" if progress.skipped else ""
    rest = f"{counted(progress.dead, 'dead letter')}, {progress.delivered:,} delivered{skipped}"
    problem = "" if progress.problem is None else f"\n  warning: {progress.problem}"
    problem += f"\n  {progress.waits_for}" if progress.waits_for else ""
    return f"batch {progress.batch}: {read}, {rest}, lag {_lag(progress)}{problem}"


def _lag(progress: "Progress") -> str:
    return "unknown" if progress.lag_seconds is None else f"{progress.lag_seconds:.1f} s"


class _Shown:
    """The last batches as a table, with their sums."""

    def __init__(self) -> None:
        self._last: deque[Progress] = deque(maxlen=LINES)
        self._events = self._dead = self._delivered = 0

    def add(self, progress: "Progress", line: bytes) -> None:
        self._last.append(progress)
        self._events += progress.events
        self._dead += progress.dead
        self._delivered += progress.delivered

    def __rich__(self) -> Group:
        table = plain_table(*_HEADINGS, numbers=_HEADINGS)
        for each in self._last:
            numbers = f"{each.batch:,}", f"{each.files:,}", f"{each.skipped:,}", f"{each.events:,}"
            counts = (
                rate(each.events, each.seconds),
                f"{each.dead:,}",
                f"{each.delivered:,}",
                _lag(each),
                f"{each.seconds:.1f} s",
            )
            table.add_row(*numbers, *counts)
        total = f"{counted(self._events, 'event')}, {counted(self._dead, 'dead letter')}, {self._delivered:,} delivered"
        problem = self._last[-1].problem if self._last else None
        warning = [] if problem is None else [Text(f"warning: {problem}")]
        return Group(*([table] if self._last else []), *warning, Text(f"{total}; Ctrl-C ends it"))
