"""What all commands of the lake share: the lake's path, the options of Spark, and a session that starts when needed."""

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import click
from rich.console import Console

from genus.cli.completing import GENUS_LAKE, Completer, complete_files
from genus.cli.values import ParamType

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

P = ParamSpec("P")
R = TypeVar("R")
Decorated = TypeVar("Decorated", bound=Callable[..., Any])

LAKE = click.argument("path", metavar="LAKE", envvar=GENUS_LAKE, shell_complete=complete_files)
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")


def lake_and(what: str, completer: Completer = complete_files) -> Callable[[Decorated], Decorated]:
    """The arguments of a command that takes a lake and one thing more; the lake may be left to GENUS_LAKE."""

    def both(ctx: click.Context, param: click.Parameter, words: tuple[str, ...]) -> tuple[str, ...]:
        known = lake_of_environment()
        if ctx.resilient_parsing:  # what is being typed may be less
            return words
        match words:
            case (lake, thing):
                return lake, thing
            case (thing,) if known:
                return known, thing
        raise click.UsageError(f"give LAKE and {what}, or set {GENUS_LAKE} and give {what}")

    return click.argument("given", nargs=-1, metavar=f"LAKE {what}", callback=both, shell_complete=completer)


def lake_of_environment() -> str | None:
    """The lake that GENUS_LAKE names."""
    return os.environ.get(GENUS_LAKE) or None


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


_OPTIONS = (
    click.option(
        "--master",
        envvar="SPARK_MASTER",
        default="local[*]",
        show_default=True,
        metavar="URL",
        help="Where Spark runs.",
    ),
    click.option(
        "--memory", metavar="SIZE", help="Memory of Spark's driver, like 4g [half of this machine's, up to 8g]."
    ),
    click.option("--conf", "settings", type=Setting(), multiple=True, metavar="KEY=VALUE", help="A setting of Spark."),
    click.option(
        "--spark-log", "log", type=click.Path(dir_okay=False, path_type=Path), help="Keep what Spark says in this file."
    ),
)


def on_spark(command: Callable[..., R]) -> Callable[..., R]:
    """Give a command the options of Spark and, as `spark`, a session that starts when something is asked of it."""

    @functools.wraps(command)
    def run(
        *given: Any,
        master: str,
        memory: str | None,
        settings: tuple[tuple[str, str], ...],
        log: Path | None,
        **rest: Any,
    ) -> R:
        from genus.lake.session import late_session

        with failures_in_one_line():
            return command(*given, spark=late_session(lambda: _start(master, memory, settings, log)), **rest)

    for option in reversed(_OPTIONS):
        run = option(run)
    return run


def _start(master: str, memory: str | None, settings: tuple[tuple[str, str], ...], log: Path | None) -> "SparkSession":
    """The session there is, or one of its own."""
    from pyspark.sql import SparkSession

    from genus.lake.session import local_session

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    with Console(stderr=True).status("starting Spark"):
        return local_session(master, memory=memory, conf=settings, log=log)


def started(spark: "SparkSession") -> "SparkSession":
    """A session that runs by now: its own spinner must not turn inside a progress bar."""
    spark.version  # noqa: B018
    return spark


@contextmanager
def failures_in_one_line() -> Iterator[None]:
    """What Spark raises is said in one line; its stack traces help nobody at a terminal."""
    from genus.lake.session import SPARK_ERRORS, spark_problem

    try:
        yield
    except SPARK_ERRORS as problem:
        raise click.ClickException(f"Spark: {spark_problem(problem)}") from problem
