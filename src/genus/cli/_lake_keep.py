"""`genus lake delete`, `expire`, `keep` and `history`: what a lake keeps, and what was done to it."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import click
from rich.console import Console
from rich.progress import Progress

from genus.cli._completion import complete_files, complete_lake_types
from genus.cli._exit import saying_what_is_kept
from genus.cli._format import ParamType, SpanParam, counted, plain_table, print_json
from genus.cli._lake_session import AS_JSON, LAKE, lake_and, on_spark, open_lake, started
from genus.model import format_span

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from genus.lake import Inboxes, Lake
    from genus.lake.types import HistoryEntry, RemovalResult

DRY_RUN = click.option("--dry-run", is_flag=True, help="Only print how many events would be removed.")
YES = click.option("--yes", is_flag=True, help="Do not ask.")
CLEAN = click.option("--clean", is_flag=True, help="Remove all replaced files now.")
_KEPT = "each removal is one commit, which is made or not; the same command does the rest"


class Removal(Protocol):
    """Removes events from one place, or counts them."""

    def __call__(self, place: "Lake | Inboxes", **how: Any) -> "RemovalResult": ...


# -- delete ------------------------------------------------------------------------------------------------------------


@click.command()
@lake_and("SUBSCRIPTION", complete_lake_types)
@click.option(
    "--inboxes",
    multiple=True,
    metavar="INBOXES",
    shell_complete=complete_files,
    help="Delete the deliveries at this path too; may be given several times.",
)
@click.option("--dead-letters", metavar="TEXT", help="Delete the dead letters that contain this text too.")
@CLEAN
@DRY_RUN
@YES
@AS_JSON
@on_spark
def delete(
    given: tuple[str, str],
    inboxes: tuple[str, ...],
    dead_letters: str | None,
    clean: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    spark: "SparkSession",
) -> None:
    """Delete the events that match a subscription.

    All events that `genus lake read` shows are deleted in one commit, such as the data of a person. Files of earlier
    versions have them until --clean, or `genus lake compact --clean` later, removes these files.

    \b
    genus lake delete city "Camera where plate == 'M-XY 1'" --dry-run
    genus lake delete city "Camera where plate == 'M-XY 1'" --inboxes city-inboxes --clean
    """
    from genus.lake import Inboxes, Lake

    lake = Lake(started(spark), given[0])
    lake.subscription(given[1], strict=True)
    places: list[Lake | Inboxes] = [lake, *(Inboxes.of(lake, path) for path in inboxes)]
    asked = Asked(clean, dry_run, yes, as_json)

    def letters(dry_run: bool) -> int | None:
        return None if dead_letters is None else lake.delete_dead_letters(dead_letters, dry_run=dry_run)

    _remove(places, lambda place, **how: place.delete(given[1], **how), asked, letters)


# -- expire ------------------------------------------------------------------------------------------------------------


@click.command()
@LAKE
@click.argument("subscription", required=False)
@click.option("--older-than", type=SpanParam(), help="The age of events, like 90d [as `genus lake keep` has set].")
@CLEAN
@DRY_RUN
@YES
@AS_JSON
@on_spark
def expire(
    path: str,
    subscription: str | None,
    older_than: float | None,
    clean: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    spark: "SparkSession",
) -> None:
    """Remove old events.

    Those of a subscription, or of all types as `genus lake keep` has set. The age of an event is that of its
    time, or of its recording if it has none. Whole days are dropped without being read.

    \b
    genus lake expire city --yes
    genus lake expire city "Loop where lane == 1" --older-than 90d --dry-run
    """
    from genus.lake import Lake

    lake = Lake(started(spark), path)
    asked = Asked(clean, dry_run, yes, as_json)
    _remove([lake], lambda place, **how: lake.expire(subscription, older_than, **how), asked)


# -- both --------------------------------------------------------------------------------------------------------------


class Asked(NamedTuple):
    """The options of both commands."""

    clean: bool
    dry_run: bool
    yes: bool
    as_json: bool


def _remove(
    places: list["Lake | Inboxes"],
    remove: Removal,
    asked: Asked,
    letters: Callable[[bool], int | None] = lambda dry_run: None,
) -> None:
    """Remove events from several places, one after another, and dead letters."""
    if not asked.dry_run and not asked.yes:
        _confirm(places, remove, letters)
    done = {place.path: _remove_from(place, remove, asked.dry_run) for place in places}
    dead = letters(asked.dry_run)
    cleaned = sum(place.clean(0) for place in places) if asked.clean and not asked.dry_run else None
    if asked.as_json:
        print_json({"removed": done, "dead_letters": dead, "cleaned": cleaned, "dry_run": asked.dry_run})
        return
    what = "to remove" if asked.dry_run else "removed"
    for place in places:
        _say(place, done[place.path], what)
    _say_more(dead, what)
    if cleaned is not None:
        click.echo(f"{counted(cleaned, 'replaced folder')} removed")


def _confirm(places: list["Lake | Inboxes"], remove: Removal, letters: Callable[[bool], int | None]) -> None:
    if not sys.stdin.isatty():
        raise click.UsageError("events are removed for good; say --yes, or --dry-run to count them")
    for place in places:
        _say(place, remove(place, dry_run=True), "to remove")
    _say_more(letters(True), "to remove")
    click.confirm("Remove them?", abort=True, err=True)


def _say_more(letters: int | None, what: str) -> None:
    if letters is not None:
        click.echo(f"{counted(letters, 'dead letter')} {what}")


def _remove_from(place: "Lake | Inboxes", remove: Removal, dry_run: bool) -> "RemovalResult":
    console = Console(stderr=True)
    with (
        saying_what_is_kept(lambda: _KEPT),
        Progress(console=console, transient=True, disable=not console.is_terminal) as progress,
    ):
        task = progress.add_task("counting" if dry_run else "removing", total=None)
        return remove(
            place, dry_run=dry_run, progress=lambda number, of: progress.update(task, completed=number, total=of)
        )


def _say(place: "Lake | Inboxes", found: "RemovalResult", what: str) -> None:
    changed = f"{found.dropped:,} dropped and {found.rewritten:,} rewritten of {counted(found.folders, 'folder')}"
    click.echo(f"{place.path}: {counted(found.rows, 'event')} {what}, {changed}")


# -- keep --------------------------------------------------------------------------------------------------------------


class TypeAge(ParamType[tuple[str, float]]):
    """A type and an age as TYPE=SPAN."""

    name = "TYPE=SPAN"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, float]:
        """Cut at the equals sign."""
        if isinstance(value, tuple):
            return value
        name, equals, span = str(value).partition("=")
        if not equals:
            self.fail(f"{value!r} is not like Loop=90d", param, ctx)
        return name, SpanParam().convert(span, param, ctx)


@click.command()
@LAKE
@click.argument("ages", nargs=-1, type=TypeAge(), metavar="[TYPE=SPAN]...")
@click.option("--everything", is_flag=True, help="Keep all events for ever, as a new lake does.")
@AS_JSON
@on_spark
def keep(
    path: str, ages: tuple[tuple[str, float], ...], everything: bool, as_json: bool, spark: "SparkSession"
) -> None:
    """Set how long events are kept, by type.

    `genus lake expire` removes older ones. Each type is kept as long as the nearest of its supertypes says. The ages
    replace those that were set before; without any, these are shown.

    \b
    genus lake keep city Event=730d Loop=90d
    genus lake keep city
    """
    if ages and everything:
        raise click.UsageError("give ages or --everything")
    lake = open_lake(path, spark)
    if ages or everything:
        lake.keep(dict(ages))
    if as_json:
        print_json({name: age.total_seconds() for name, age in lake.retention.items()})
        return
    lines = [f"{name}: {format_span(age)}" for name, age in lake.retention.items()]
    click.echo("\n".join(lines) or "all events are kept")


# -- history -----------------------------------------------------------------------------------------------------------


@click.command()
@LAKE
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, metavar="N", help="How many to show.")
@AS_JSON
@on_spark
def history(path: str, limit: int, as_json: bool, spark: "SparkSession") -> None:
    """Show what each commit has changed.

    The newest comes first. Only the ledger is read.

    \b
    genus lake history city --limit 5
    """
    found = open_lake(path, spark).history(limit)
    print_json(found) if as_json else _show_history(found)


def _show_history(entries: list["HistoryEntry"]) -> None:
    numbers = ("version", "sources", "rows added", "rows removed")
    table = plain_table("version", "at", "commit", "sources", "rows added", "rows removed", "tables", numbers=numbers)
    for each in entries:
        removed = "?" if each.rows_removed is None else f"{each.rows_removed:,}"
        names = ", ".join(change.table for change in each.tables)
        at = f"{each.at:%Y-%m-%d %H:%M:%SZ}"
        table.add_row(str(each.version), at, each.kind, f"{each.sources:,}", f"{each.rows_added:,}", removed, names)
    Console().print(table)
