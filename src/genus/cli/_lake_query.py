"""`genus lake read`, `route` and `inbox`: events that match, and what was delivered."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.core import ParameterSource
from rich.text import Text

from genus.cli._completion import complete_files, complete_lake_types
from genus.cli._exit import report_if_interrupted
from genus.cli._groups import ParamType, counted, meant, plain_table, print_json, sized, wide_console
from genus.cli._lake import AS_JSON, lake_and, on_spark, started, working
from genus.cli._lake_rows import Asked, LocalRows, Rows, SparkRows, give, give_rows, takes_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from genus.lake import Inboxes
    from genus.lake.types import LocalEvents, ReadPlan, Route

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
    if as_json and (explain or plan):
        raise click.UsageError("--json is for events; leave it out with --explain and --plan, which print text")
    if out is not None and (explain or plan):
        raise click.UsageError("--out is for events; leave it out with --explain and --plan, which read none")
    if version is not None and as_of is not None:
        raise click.UsageError("--version and --as-of both say which state to read; give one of them")
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


MAX_NAMED = 20
"""How many known subscribers the message about an unknown one lists."""


@click.command()
@lake_and("SUBSCRIPTIONS")
@click.option(
    "--to",
    "inboxes",
    metavar="INBOXES",
    shell_complete=complete_files,
    help="Deliver new matches to the inboxes at this path.",
)
@click.option("--count", "only_count", is_flag=True, help="Only print the number of matches.")
@click.option("--explain", is_flag=True, help="Show how the subscriptions are matched; no events are read.")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, metavar="N", help="How many to show.")
@AS_JSON
@on_spark
def route(
    given: tuple[str, str],
    inboxes: str | None,
    only_count: bool,
    explain: bool,
    limit: int,
    as_json: bool,
    spark: "SparkSession",
) -> None:
    """Match many subscriptions: count or deliver.

    SUBSCRIPTIONS is a file with lines like `ann: Loop has place where speed > 30`; without a subscriber, a line is
    named by its text. Lines that begin with # are skipped. Lines that are not valid are named and not used. A delivery
    continues after the previous one: every match is delivered once.

    \b
    genus lake route city who-wants-what.txt --to city-inboxes
    """
    if inboxes is not None and (only_count or explain):
        raise click.UsageError("--to delivers; leave out --count and --explain")
    if as_json and explain:
        raise click.UsageError("--json is for matches; leave it out with --explain, which prints text")
    from genus.lake import Lake

    found = Lake(spark, given[0]).route(Path(given[1]))
    found.subscriptions()
    if found.problem is not None:
        click.echo(f"warning: {found.problem}", err=True)
    if explain:
        click.echo(found.explain())
    elif inboxes is not None:
        _deliver(found, inboxes, as_json)
    elif only_count:
        with working(started(spark), "counting"):
            matches = found.count()
        print_json({"matches": matches}) if as_json else click.echo(matches)
    else:
        _count_each(found, limit, as_json)


def _deliver(found: "Route", inboxes: str, as_json: bool) -> None:
    subscriptions = len(found.subscriptions())
    kept = "matches are delivered in whole commits, each once; the same command delivers the rest"
    with report_if_interrupted(lambda: kept), working(started(found.lake.spark), "delivering"):
        done = found.to_inboxes(inboxes)
    if as_json:
        counts = {"delivered": done.rows, "events": done.events, "version": done.upto}
        print_json({"inboxes": inboxes, **counts, **({"problem": found.problem} if found.problem else {})})
        return
    what = f"{counted(done.rows, 'match', 'matches')} of {counted(done.events, 'new event')}"
    click.echo(f"delivered {what} to {inboxes}, by {counted(subscriptions, 'subscription')}; up to version {done.upto}")


def _count_each(found: "Route", limit: int, as_json: bool) -> None:
    with working(started(found.lake.spark), "matching"):
        counts = found.counts().toArrow().sort_by([("matches", "descending"), ("subscription", "ascending")])
    total, matched = sum(counts.column("matches").to_pylist()), counts.num_rows
    known = found.subscriptions()
    top = [
        (known[row["subscription"]].subscriber, str(known[row["subscription"]].subscription), row["matches"])
        for row in counts.slice(0, limit).to_pylist()
    ]
    if as_json:
        each = [dict(zip(("subscriber", "subscription", "matches"), row, strict=True)) for row in top]
        print_json({"matches": total, "matched": matched, "subscriptions": len(known), "top": each})
    else:
        _show_counts(top)
        click.echo(f"{counted(total, 'match', 'matches')}; {matched:,} of {counted(len(known), 'subscription')} match")


def _show_counts(top: list[tuple[str, str, int]]) -> None:
    table = plain_table("subscriber", "matches", "subscription", numbers=["matches"])
    for subscriber, subscription, matches in top:
        table.add_row(Text(subscriber), f"{matches:,}", Text(subscription))
    if top:
        wide_console().print(table)


@click.command()
@click.argument("path", metavar="INBOXES", shell_complete=complete_files)
@click.argument("subscriber", required=False)
@click.option("--type", "family", metavar="TYPE", help="Only events of this type's family, with all their columns.")
@takes_rows
@on_spark
def inbox(
    path: str,
    subscriber: str | None,
    family: str | None,
    limit: int | None,
    columns: str | None,
    only_count: bool,
    out: Path | None,
    as_json: bool,
    spark: "SparkSession",
) -> None:
    """Show the events delivered to a subscriber.

    Without SUBSCRIBER it shows the number of events of each subscriber.

    \b
    genus lake inbox city-inboxes ann
    """
    from genus.lake import Inboxes

    asked = Asked(limit, columns, only_count, out, as_json)
    if subscriber is None and family is not None:
        raise click.UsageError("--type goes with SUBSCRIBER")
    found = Inboxes(spark, path)
    if subscriber is None:
        give(_everyone(found), asked)
    elif not give(_delivered(found, subscriber, family, columns), asked):
        _suggest_subscribers(found, subscriber)


def _suggest_subscribers(found: "Inboxes", subscriber: str) -> None:
    """Print similar names if nothing was delivered to a subscriber: the name may be misspelt."""
    with working(found.subscribers().sparkSession, "reading"):
        known = [row["subscriber"] for row in _everyone(found).limit(MAX_NAMED).collect()]
    if subscriber not in known:
        click.echo(f"nothing has been delivered to {subscriber!r}; {meant(subscriber, known)}", err=True)


def _everyone(found: "Inboxes") -> "DataFrame":
    from pyspark.sql import functions as F

    return found.subscribers().orderBy(F.desc("events"), "subscriber")


def _delivered(found: "Inboxes", subscriber: str, family: str | None, columns: str | None) -> "DataFrame":
    """Return the events of one subscriber, without the column that names it."""
    frame = found.read(subscriber, family)
    return frame if columns else frame.drop("subscriber")
