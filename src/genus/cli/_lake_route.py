"""`genus lake route` and `inbox`: match many subscriptions, and read what was delivered."""

from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.text import Text

from genus.cli._completion import complete_files
from genus.cli._exit import saying_what_is_kept
from genus.cli._format import counted, meant, plain_table, print_json
from genus.cli._lake_rows import Asked, give, takes_rows
from genus.cli._lake_session import AS_JSON, lake_and, on_spark, started, working

MAX_NAMED = 20
"""How many known subscribers the message about an unknown one lists."""

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from genus.lake import Inboxes
    from genus.lake.types import Route


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
    with saying_what_is_kept(lambda: kept), working(started(found.lake.spark), "delivering"):
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
        Console().print(table)


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
