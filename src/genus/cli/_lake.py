"""`genus lake ...`, and what its commands share: the path, the options of Spark, a session that starts when needed."""

import functools
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import click

from genus.cli._completion import GENUS_LAKE, Completer, complete_files
from genus.cli._groups import LazyGroup, ParamType
from genus.errors import LakeDamaged, LakeError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from genus.lake import Lake, LakeReader

COMMANDS = {
    "init": "genus.cli._lake_admin:init",
    "ingest": "genus.cli._lake_fill:ingest",
    "dead": "genus.cli._lake_fill:dead",
    "read": "genus.cli._lake_query:read",
    "sql": "genus.cli._lake_sql:sql",
    "route": "genus.cli._lake_query:route",
    "inbox": "genus.cli._lake_query:inbox",
    "stream": "genus.cli._lake_fill:stream",
    "compact": "genus.cli._lake_admin:compact",
    "mirror": "genus.cli._lake_admin:mirror",
    "keep": "genus.cli._lake_admin:keep",
    "expire": "genus.cli._lake_admin:expire",
    "delete": "genus.cli._lake_admin:delete",
    "history": "genus.cli._lake_admin:history",
    "check": "genus.cli._lake_admin:check",
    "backup": "genus.cli._lake_admin:backup",
    "rewind": "genus.cli._lake_admin:rewind",
    "stats": "genus.cli._lake_admin:stats",
}
HELP_SECTIONS = {
    "Fill a lake": {
        "init": "Make a lake for some event types, or add types to one",
        "ingest": "Ingest files, folders or patterns of files",
        "dead": "Show the dead letters: input that is not an event, and why",
    },
    "Query it": {
        "read": "Show the events that match a subscription",
        "sql": "Answer a question in SQL",
        "route": "Match many subscriptions: count or deliver",
        "inbox": "Show the events delivered to a subscriber",
    },
    "Follow new events": {
        "stream": "Ingest recordings as they land, and deliver matches",
    },
    "Maintain it": {
        "compact": "Rewrite many small files as few large ones",
        "mirror": "Complete the Delta tables that other engines read",
        "keep": "Set how long events are kept, by type",
        "expire": "Remove old events",
        "delete": "Delete the events that match a subscription",
        "history": "Show what each commit has changed",
        "check": "Compare a lake's files with its ledger",
        "backup": "Copy a lake into another folder while it is in use",
        "rewind": "Take back deliveries that a restored lake does not know",
        "stats": "Show the tables of a lake in numbers",
    },
}


@click.command(cls=LazyGroup, lazy=COMMANDS, sections=HELP_SECTIONS)
def lake() -> None:
    """Ingest events, query them, route them, follow a stream.

    LAKE is a folder, or any path that Spark reaches; the default is GENUS_LAKE.
    """


# How far Spark has come, on the terminal: its tasks are counted while a command waits for it.


POLL_S = 0.3


@contextmanager
def reading_in(spark: "SparkSession", total: int, wave: int) -> Iterator[Callable[[int, int], object]]:
    """A progress bar in bytes; yields a function to call with the bytes committed. Running tasks are polled."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn, TransferSpeedColumn

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
    from rich.console import Console

    console = Console(stderr=True)
    with console.status(text) as status:

        def poll() -> None:
            done, of = tasks(spark)
            status.update(f"{text}: {done:,} of {of:,} tasks" if of else text)

        with _polling(poll, console.is_terminal):
            yield


def tasks(spark: "SparkSession") -> tuple[int, int]:
    """Return how many tasks of the active stages are done, and of how many."""
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
    from genus.lake import SPARK_ERRORS

    with suppress(*SPARK_ERRORS, OSError):  # Spark has ended; the command that waits for it reports that
        while not over.wait(POLL_S):
            poll()


P = ParamSpec("P")
R = TypeVar("R")
Decorated = TypeVar("Decorated", bound=Callable[..., Any])

LAKE = click.argument("path", metavar="LAKE", envvar=GENUS_LAKE, shell_complete=complete_files)
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")


def lake_and(what: str, completer: Completer = complete_files) -> Callable[[Decorated], Decorated]:
    """Return the arguments of a command that takes a lake and one thing more; the lake may be left to GENUS_LAKE."""

    def both(ctx: click.Context, param: click.Parameter, words: tuple[str, ...]) -> tuple[str, ...]:
        known = lake_of_environment()
        if ctx.resilient_parsing:  # a command line that is being typed is incomplete
            return words
        match words:
            case (lake, thing):
                return lake, thing
            case (thing,) if known:
                return known, thing
        raise click.UsageError(f"give LAKE and {what}, or set {GENUS_LAKE} and give {what}")

    return click.argument("given", nargs=-1, metavar=f"LAKE {what}", callback=both, shell_complete=completer)


def lake_of_environment() -> str | None:
    """Return the lake that GENUS_LAKE names."""
    return os.environ.get(GENUS_LAKE) or None


def split_lake(words: tuple[str, ...], spark: "SparkSession", needs: str = "") -> tuple[str, tuple[str, ...]]:
    """Return the lake and the words after it; with GENUS_LAKE set, the first word is the lake only if it is one.

    UsageError if there is no lake, or nothing after it that the command needs.
    """
    known = lake_of_environment()
    if known and not (words and _is_lake(words[0], spark)):
        words = (known, *words)
    if not words or (needs and len(words) == 1):
        more = f" and {needs}, or set {GENUS_LAKE} and give {needs}" if needs else f", or set {GENUS_LAKE}"
        raise click.UsageError(f"give LAKE{more}")
    return words[0], words[1:]


def _is_lake(path: str, spark: "SparkSession") -> bool:
    """Return whether there is a lake at a path, also a damaged one; Spark looks only where nothing else can."""
    from genus.lake import LakeReader

    if LakeReader.can_open(path):
        try:
            LakeReader(path)
        except LakeError as problem:
            return isinstance(problem, LakeDamaged)
        return True
    from genus.lake import Lake

    return Lake.exists(spark, path)


class Setting(ParamType[tuple[str, str]]):
    """A setting of Spark as KEY=VALUE."""

    name = "KEY=VALUE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Cut at the first equals sign."""
        if isinstance(value, tuple):
            return value
        key, equals, text = str(value).partition("=")
        if not equals or not key.startswith("spark."):
            self.fail(f"{value!r} is not like spark.sql.shuffle.partitions=64", param, ctx)
        return key, text


_MASTER, _CONF, _LOG = (
    click.option(
        "--master",
        envvar="SPARK_MASTER",
        default="local[*]",
        show_default=True,
        metavar="URL",
        help="Where Spark runs.",
    ),
    click.option("--conf", "settings", type=Setting(), multiple=True, metavar="KEY=VALUE", help="A setting of Spark."),
    click.option(
        "--spark-log", "log", type=click.Path(dir_okay=False, path_type=Path), help="Write Spark's log to this file."
    ),
)


def on_spark(
    command: Callable[..., R],
    *,
    memory: str | None = None,
    conf: Mapping[str, str] | None = None,
    spinner: bool = True,
) -> Callable[..., R]:
    """Add Spark's options to a click command, and pass it the keyword argument `spark`.

    The session starts when it is first used; errors of Spark end the command with one line.

    Args:
        command: The function of the command, before `click.command` is applied.
        memory: The default of `--memory`; without one, half of this machine's memory, at most 8 GB.
        conf: Settings of Spark that `--conf` may replace.
        spinner: Whether to show a spinner while Spark starts; a command with its own progress bars says no.
    """

    @functools.wraps(command)
    def run(
        *given: Any,
        master: str,
        memory: str | None,
        settings: tuple[tuple[str, str], ...],
        log: Path | None,
        **rest: Any,
    ) -> R:
        def start() -> "SparkSession":
            from rich.console import Console

            from genus.lake import local_session

            with Console(stderr=True).status("starting Spark") if spinner else nullcontext():
                return local_session(master, memory=memory, conf={**(conf or {}), **dict(settings)}, log=log)

        with failures_in_one_line():
            return command(*given, spark=_LazySession(start), **rest)

    for option in (_LOG, _CONF, _memory_option(memory), _MASTER):
        run = option(run)
    return run


class _LazySession:
    """A session that starts when it is first used: what needs a local lake's ledger only works without Java."""

    def __init__(self, start: "Callable[[], SparkSession]") -> None:
        self._start = start

    def __getattr__(self, name: str) -> Any:
        if name == "session":  # where `genus.lake` looks for the session behind another object
            self.session = self._start()
            return self.session
        return getattr(self.session, name)


def _memory_option(default: str | None) -> Callable[[Decorated], Decorated]:
    shown = "half of this machine's, up to 8g" if default is None else default
    return click.option(
        "--memory", metavar="SIZE", default=default, help=f"Memory of Spark's driver, like 4g [{shown}]."
    )


def started(spark: "SparkSession") -> "SparkSession":
    """Wait until a session runs, so that its spinner does not turn inside a progress bar."""
    spark.version  # noqa: B018
    return spark


@contextmanager
def failures_in_one_line() -> Iterator[None]:
    """Turn errors of Spark into one line without stack traces; a command that did not use Spark does not import it."""
    try:
        yield
    except Exception as problem:
        if "pyspark" not in sys.modules:
            raise
        from genus.lake import SPARK_ERRORS, describe_spark_error

        if not isinstance(problem, SPARK_ERRORS):
            raise
        raise click.ClickException(f"Spark: {describe_spark_error(problem)}") from problem


def open_lake(path: str, spark: "SparkSession") -> "Lake | LakeReader":
    """A lake for what needs no Spark: without it if the lake is in a local folder."""
    from genus.lake import LakeReader

    if LakeReader.can_open(path):
        return LakeReader(path)
    from genus.lake import Lake

    return Lake(spark, path)
