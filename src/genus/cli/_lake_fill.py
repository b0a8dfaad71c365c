"""`genus lake ingest`, `dead` and `stream`: files into a lake, once or as they land, and what in them was no event."""

import queue
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

import click
import msgspec
from rich.console import Group
from rich.live import Live
from rich.text import Text

from genus.cli._completion import complete_files
from genus.cli._events import J1939_OPTIONS, LAKE_FORMATS, takes_log_columns
from genus.cli._exit import report_if_interrupted, stopped_gracefully
from genus.cli._groups import SpanParam, counted, is_place, plain_table, print_json, rate, serve, sized, wide_console
from genus.cli._lake import AS_JSON, LAKE, lake_and, on_spark, reading_in, split_lake, started, working

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from genus.can.types import Dbc
    from genus.lake import Lake
    from genus.lake.types import IngestResult, Progress, Stream

MAX_REASONS = 10
RAW_SHOWN = 60
EXISTING = click.Path(exists=True, dir_okay=False, path_type=Path)

FORMAT_OPTIONS = (
    click.option(
        "--format",
        "format_",
        type=click.Choice(LAKE_FORMATS),
        metavar="FORMAT",
        help="Such as genus, jsonl, csv, parquet, log, asc [by the ending; with --dbc by the content].",
    ),
    click.option(
        "--mapping", type=EXISTING, metavar="FILE", help="Which type and attributes the fields of a file are."
    ),
    click.option(
        "--dbc", type=EXISTING, metavar="FILE", help="What the frames of a CAN log mean (DBC, ARXML, KCD, SYM)."
    ),
    click.option(
        "--truncated",
        is_flag=True,
        help="Decode frames that are shorter than their message as far as they reach.",
    ),
    click.option(
        "--unknown",
        type=click.Choice(["dead", "pass"]),
        default="dead",
        show_default=True,
        help="Make frames that the DBC file does not know dead letters, or pass over them.",
    ),
    click.option(
        "--identity",
        type=click.Choice(["content", "path"]),
        default="content",
        show_default=True,
        help="Ingest files of equal content once, or every path.",
    ),
    *J1939_OPTIONS,
)


def takes_formats(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for reading files to a command."""
    for option in reversed(FORMAT_OPTIONS):
        command = option(command)
    return command


def database_of(dbc: Path | None, truncated: bool, j1939: bool | None, nmea2000: bool) -> "Path | Dbc | None":
    """Return what the frames of CAN logs mean: the file, or what was made of it with options."""
    if not truncated and j1939 is None and not nmea2000:
        return dbc
    if dbc is None:
        raise click.UsageError("--truncated, --j1939 and --nmea2000 go with --dbc")
    from genus.can import load_dbc  # needs cantools, an extra

    return load_dbc(dbc, truncated=truncated, j1939=j1939, nmea2000=nmea2000)


@click.command()
@click.argument("words", metavar="LAKE FILE...", nargs=-1, shell_complete=complete_files)
@takes_formats
@takes_log_columns
@click.option(
    "--retry",
    is_flag=True,
    help="Try the dead letters of these files again: new types, a mended mapping.",
)
@AS_JSON
@on_spark
def ingest(
    words: tuple[str, ...],
    format_: str | None,
    mapping: Path | None,
    dbc: Path | None,
    truncated: bool,
    unknown: Literal["dead", "pass"],
    identity: Literal["content", "path"],
    j1939: bool | None,
    nmea2000: bool,
    columns: str | None,
    time_unit: str | None,
    retry: bool,
    as_json: bool,
    spark: "SparkSession",
) -> None:
    """Ingest files, folders or patterns of files.

    They may be recordings, JSON lines, CSV, Parquet or CAN logs. A file that was ingested before, by its content, is
    skipped. Input that is not an event goes to the dead letters; the exit code is 1 if nothing else was found. The
    first argument is the lake; with GENUS_LAKE set, only if it is one.

    \b
    genus lake ingest city recordings/*.genus
    genus lake ingest city loops.csv --mapping loops.toml
    """
    from genus.lake import Lake

    database = database_of(dbc, truncated, j1939, nmea2000)
    path, sources = split_lake(words, spark, "FILE...")
    lake = Lake(spark, path)
    before = lake.version
    files = lake.find_sources(sources, format=format_, mapping=mapping, dbc=database, columns=columns)
    if not files:
        raise click.ClickException(f"{', '.join(sources)}: no files to ingest")
    with (
        report_if_interrupted(lambda: _kept(lake, before)),
        reading_in(started(spark), sum(files.values()), Lake.COMMIT_BYTES) as progress,
    ):
        done = lake.ingest(
            list(files),
            format=format_,
            mapping=mapping,
            dbc=database,
            unknown=unknown,
            time_unit=time_unit,
            columns=columns,
            identity=identity,
            retry=retry,
            progress=progress,
        )
    reasons = top_reasons(lake.dead_letters(after=before)) if done.dead else []
    if as_json:
        rest = {"events_per_second": done.events / done.seconds, "reasons": _as_json(reasons)}
        print_json({"path": lake.path, **msgspec.to_builtins(done), **rest})
    else:
        _say_ingested(lake, done, reasons)
    if done.dead and not done.events and not retry:
        sys.exit(1)


def _kept(lake: "Lake", before: int) -> str:
    commits = lake.version - before
    kept = f"{counted(commits, 'commit')} of this run kept" if commits else "nothing of this run was committed"
    return f"{kept}; the same command ingests the rest"


def _say_ingested(lake: "Lake", done: "IngestResult", reasons: list[tuple[str, int]]) -> None:
    skipped = f", {done.skipped:,} ingested before and skipped" if done.skipped else ""
    speed = f"{done.seconds:.1f} s ({rate(done.events, done.seconds)}, {sized(int(done.bytes / done.seconds))}/s)"
    amount = f"{counted(done.events, 'event')} from {counted(done.files, 'file')}, {sized(done.bytes)}, in {speed}"
    click.echo(f"{amount if done.files else 'nothing new'}{skipped}")
    for path, doubts in done.doubts.items():
        click.echo("\n".join(f"{path}: doubtful: {doubt}" for doubt in doubts), err=True)
    if done.dead:
        click.echo(f"{counted(done.dead, 'dead letter')}; `genus lake dead {lake.path}` shows them")
        _show_reasons(reasons, done.dead)


# -- dead letters ------------------------------------------------------------------------------------------------------


@click.command()
@LAKE
@click.option("--limit", type=click.IntRange(0), default=20, show_default=True, metavar="N", help="How many to show.")
@AS_JSON
@on_spark
def dead(path: str, limit: int, as_json: bool, spark: "SparkSession") -> None:
    """Show the dead letters: input that is not an event, and why.

    First the count of each reason, then single ones with file, position and content.

    \b
    genus lake dead city --limit 5
    """
    from genus.lake import Lake

    lake = Lake(spark, path)
    total = lake.state().sources.counts.dead
    reasons, letters = _letters(lake, limit) if total else ([], [])
    if as_json:
        print_json({"total": total, "reasons": _as_json(reasons), "letters": letters})
        return
    click.echo(f"{lake.path}: {counted(total, 'dead letter')}")
    if total:
        _show_reasons(reasons, total)
        _show_letters(letters)


def _letters(lake: "Lake", limit: int) -> tuple[list[tuple[str, int]], list[dict[str, Any]]]:
    with working(started(lake.spark), "reading dead letters"):
        frame = lake.dead_letters()
        some = frame.orderBy("path", "_position").limit(limit).toArrow().to_pylist()
        letters = [
            {"reason": row["reason"], "path": row["path"], "position": row["_position"], "raw": row["raw"]}
            for row in some
        ]
        return top_reasons(frame), letters


def top_reasons(letters: "DataFrame") -> list[tuple[str, int]]:
    """Return the most frequent reasons, and how often each was one."""
    from pyspark.sql import functions as F

    counts = letters.groupBy("reason").agg(F.count(F.lit(1)).alias("letters"))
    found = counts.orderBy(F.desc("letters"), "reason").limit(MAX_REASONS).collect()
    return [(row["reason"], row["letters"]) for row in found]


def _as_json(reasons: list[tuple[str, int]]) -> list[dict[str, Any]]:
    return [{"reason": reason, "letters": letters} for reason, letters in reasons]


def _show_reasons(reasons: list[tuple[str, int]], total: int) -> None:
    table = plain_table("letters", "reason", numbers=["letters"])
    for reason, letters in reasons:
        table.add_row(f"{letters:,}", Text(reason))
    if rest := total - sum(letters for _, letters in reasons):
        table.add_row(f"{rest:,}", Text("others", "dim"))
    wide_console().print(table)


def _show_letters(letters: list[dict[str, Any]]) -> None:
    table = plain_table("path", "position", "reason", "raw", numbers=["position"])
    for letter in letters:
        raw = letter["raw"].replace("\n", "⏎")
        shown = raw if len(raw) <= RAW_SHOWN else f"{raw[:RAW_SHOWN]}…"
        table.add_row(Text(letter["path"]), str(letter["position"]), Text(letter["reason"]), Text(shown))
    if letters:
        wide_console().print(table)


LINES = 12
"""How many batches the table shows."""
TICK_S = 0.2
_HEADINGS = ("batch", "files", "skipped", "events", "events/s", "dead", "delivered", "lag", "took")


@click.command()
@lake_and("LANDING")
@click.option(
    "--route",
    "subscriptions",
    metavar="FILE",
    shell_complete=complete_files,
    help="Match these subscriptions; read again when it changes.",
)
@click.option(
    "--to",
    "inboxes",
    metavar="INBOXES",
    shell_complete=complete_files,
    help="Deliver the matches to inboxes at this path.",
)
@click.option("--every", type=SpanParam(), default="1s", show_default=True, help="Start a batch this often.")
@click.option("--once", is_flag=True, help="End when the present files have been ingested.")
@click.option(
    "--files", "pattern", metavar="GLOB", help="Which files of the folder are read [those of the format, *.genus]."
)
@takes_formats
@takes_log_columns
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
    columns: str | None,
    time_unit: str | None,
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
        time_unit=time_unit,
        columns=columns,
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
    console = wide_console()
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
