"""`genus lake read`: the events that match a subscription, and how they are found."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.core import ParameterSource

from genus.cli._completion import complete_lake_types
from genus.cli._format import ParamType, counted, sized
from genus.cli._lake_rows import Asked, LocalRows, Rows, SparkRows, give_rows, takes_rows
from genus.cli._lake_session import lake_and, on_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from genus.lake.types import LocalEvents, ReadPlan

LOCAL_BYTES = 2 << 30
"""Files of at most this size are read without Spark, unless it is asked for."""
SPARK_OPTIONS = ("master", "memory", "settings", "log")


class Moment(ParamType[datetime]):
    """A time such as 2026-05-01 or 2026-05-01T06:00:00Z; in UTC if it has no offset.

    >>> Moment().convert("2026-05-01", None, None).isoformat()
    '2026-05-01T00:00:00+00:00'
    """

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """Read the ISO form."""
        if isinstance(value, datetime):
            return value
        try:
            found = datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r} is not like 2026-05-01T06:00:00Z", param, ctx)
        return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


@click.command()
@lake_and("SUBSCRIPTION", complete_lake_types)
@takes_rows
@click.option("--subtypes", is_flag=True, help="Also show the attributes of all types whose events can match.")
@click.option("--version", type=click.IntRange(1), metavar="N", help="Read the lake as it was after this commit.")
@click.option("--as-of", type=Moment(), metavar="TIME", help="Read the lake as it was at this time.")
@click.option("--explain", is_flag=True, help="Say what would be read and tested where; no events are read.")
@click.option("--plan", is_flag=True, help="Show Spark's own plan; nothing is read.")
@click.option(
    "--spark/--no-spark", "wanted", default=None, help="Whether Spark reads [only if more than 2 GB are to be read]."
)
@click.option("-v", "--verbose", is_flag=True, help="Say on standard error how the events are read.")
@on_spark
def read(
    given: tuple[str, str],
    limit: int | None,
    columns: str | None,
    only_count: bool,
    out: Path | None,
    as_json: bool,
    subtypes: bool,
    version: int | None,
    as_of: datetime | None,
    explain: bool,
    plan: bool,
    wanted: bool | None,
    verbose: bool,
    spark: "SparkSession",
) -> None:
    """Show the events that match a subscription.

    Types are known by the lake's catalog; no code that declares them is needed. A lake in a local folder is read
    without Spark and Java, unless --spark or another option of Spark is given, or files of more than 2 GB are to be
    read.

    \b
    genus lake read city "Loop has place where speed > 30"
    genus lake read city "Roadside where time >= @2026-05-01T00:00:00Z" --out may.parquet
    genus lake read city Loop --subtypes
    genus lake read city Loop --as-of 2026-05-01 --count
    """
    asked = Asked(limit, columns, only_count, out, as_json)
    which = Which(version, as_of, subtypes)
    events = None if plan or _asks_for_spark(wanted) else _find(given, which, wanted)
    if events is not None and (wanted is False or explain or _is_small(events, asked)):
        _say(verbose, f"read without Spark: {sized(_size(events, asked))} of files at most")
        click.echo(events.explain()) if explain else give_rows(LocalRows(events), asked)
        return
    from genus.lake import Lake

    lake = Lake(spark, given[0])
    subscription = lake.subscription(given[1])
    if explain:
        click.echo(describe_read(lake.explain(subscription)))
    if plan:
        lake.read(subscription, **which._asdict()).explain(mode="formatted")
    if not explain and not plan:
        _say(verbose, "read by Spark")
        rows: Rows = SparkRows(lake.read(subscription, **which._asdict()))
        give_rows(rows, asked)


class Which(NamedTuple):
    """Arguments of `Lake.read` and `LakeReader.read`."""

    version: int | None
    as_of: datetime | None
    subtypes: bool


def _asks_for_spark(wanted: bool | None) -> bool:
    """Return whether Spark is asked for, by its option or by one that only it has."""
    context = click.get_current_context()
    given = [context.get_parameter_source(name) is ParameterSource.COMMANDLINE for name in SPARK_OPTIONS]
    if wanted is False and any(given):
        raise click.UsageError("--no-spark does not go with options of Spark")
    return wanted is True or any(given)


def _find(given: tuple[str, str], which: Which, wanted: bool | None) -> "LocalEvents | None":
    """The events, to be read without Spark; None if the lake is not in a local folder and may be read by Spark."""
    from genus.lake import LakeReader

    if wanted is None and not LakeReader.can_open(given[0]):
        return None
    return LakeReader(given[0]).read(given[1], **which._asdict())


def _is_small(events: "LocalEvents", asked: Asked) -> bool:
    """Return whether little is to be read; rows on the terminal are few."""
    few = asked.limit is not None or (asked.out is None and not asked.as_json and not asked.only_count)
    return few or _size(events, asked) <= LOCAL_BYTES


def _size(events: "LocalEvents", asked: Asked) -> int:
    return events.undecided_bytes if asked.only_count else events.bytes


def _say(verbose: bool, text: str) -> None:
    if verbose:
        click.echo(text, err=True)


def describe_read(plan: "ReadPlan") -> str:
    """Return the plan of a read as text: tests, tables, and the files that are opened at most."""
    lines = [
        f"  {scan.family}: {scan.days_read:,} of {counted(scan.days, 'day')}; types {', '.join(scan.types)}"
        for scan in plan.tables
    ]
    opened, every = _amount(plan.files, plan.bytes), _amount(plan.lake_files, plan.lake_bytes)
    total = f"opened at most: {opened} of the lake's {every}"
    return "\n".join([plan.tests, "tables:", *(lines or ["  none"]), total])


def _amount(files: int, size: int) -> str:
    return f"{counted(files, 'file')}, {sized(size)}"
