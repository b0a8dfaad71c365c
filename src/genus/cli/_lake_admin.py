"""`genus lake init`, `compact`, `keep`, `delete`, `check`, `backup` and others: make a lake and maintain it."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import click
from rich.console import Console
from rich.progress import Progress

from genus.cli._completion import complete_files, complete_lake_types
from genus.cli._events import load_all, types_option
from genus.cli._exit import DAMAGED, report_if_interrupted
from genus.cli._groups import ParamType, SpanParam, counted, plain_table, print_json, sized, wide_console
from genus.cli._lake import AS_JSON, LAKE, lake_and, on_spark, open_lake, split_lake, started
from genus.model import format_span

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from genus.lake import Inboxes, Lake
    from genus.lake.types import HistoryEntry, RemovalResult, StoreProblem, TableStats

WEEK_S = 7 * 86_400.0


@contextmanager
def _progress(text: str, kept: str) -> Iterator[Callable[[int, int], object]]:
    """Show progress on a terminal; yields the function to call with what is done and the total.

    If it is interrupted, `kept` says what is so now.
    """
    console = Console(stderr=True)
    with (
        report_if_interrupted(lambda: kept),
        Progress(console=console, transient=True, disable=not console.is_terminal) as progress,
    ):
        task = progress.add_task(text, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


# -- init --------------------------------------------------------------------------------------------------------------


@click.command()
@LAKE
@types_option(required=False)
@click.option(
    "--catalog",
    "catalog",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Begin with this catalog's types, codes and bits: those of a bus, or of another lake.",
)
@AS_JSON
@on_spark
def init(path: str, types: tuple[str, ...], catalog: Path | None, as_json: bool, spark: "SparkSession") -> None:
    """Make a lake for some event types, or add types to one.

    \b
    genus lake init city -t examples/traffic.py
    genus lake init city --catalog city.json
    """
    if not types and catalog is None:
        raise click.UsageError("give event types by -t MODULE_OR_FILE, a catalog by --catalog FILE, or both")
    from genus.lake import Lake

    classes = load_all(types)
    was_there = Lake.exists(spark, path)
    known = set(Lake(spark, path).catalog.types) if was_there else {"Event"}
    lake = Lake(spark, path) if was_there else Lake.create(spark, path, *classes, catalog=catalog)
    if was_there and catalog is not None:
        lake.adopt_catalog(catalog)
    findings = [str(each) for each in lake.register(*classes).findings()]
    new = [name for name in lake.catalog.types if name not in known]
    if as_json:
        print_json({"path": lake.path, "created": not was_there, "added": new, "types": lake.catalog.types})
    else:
        _say_made(lake, was_there, new, findings)


def _say_made(lake: "Lake", was_there: bool, new: list[str], findings: list[str]) -> None:
    families = counted(len(set(lake.catalog.families) - {"Event"}), "family", "families")
    types = counted(len(set(lake.catalog.types) - {"Event"}), "type")  # those that were declared
    click.echo(f"{lake.path}: {'a lake' if was_there else 'a new lake'} of {types} in {families}")
    lines = [f"added: {name}" for name in new]
    lines += [line for line in findings if line not in lines]
    click.echo("\n".join(lines) or "nothing to add")


# -- compact -----------------------------------------------------------------------------------------------------------


@click.command()
@LAKE
@click.option("--clean", is_flag=True, help="Remove files that no version needs, and files left by killed writers.")
@click.option(
    "--older-than",
    type=SpanParam(may_be_zero=True),
    default=WEEK_S,
    help="With --clean: files replaced longer ago than this [7d].",
)
@AS_JSON
@on_spark
def compact(path: str, clean: bool, older_than: float, as_json: bool, spark: "SparkSession") -> None:
    """Rewrite many small files as few large ones.

    The files of a day are rewritten, sorted by type and time. Old files stay until --clean removes them, so that
    readers of earlier versions can finish.

    \b
    genus lake compact city --clean --older-than 7d
    """
    if older_than != WEEK_S and not clean:
        raise click.UsageError("--older-than goes with --clean")
    from genus.lake import Lake

    lake = Lake(started(spark), path)
    kept = "days that were rewritten stay so, all others have their old files; the same command does the rest"
    with _progress("compacting", kept) as progress:
        done = lake.compact(progress=progress)
    removed = lake.clean(older_than) if clean else 0
    if as_json:
        print_json({"compacted": done, "removed": removed, "version": lake.version})
        return
    what = f"{counted(done.files_after, 'file')} instead of {done.files_before:,} in {counted(done.tables, 'table')}"
    click.echo(f"{what}, {counted(done.rows, 'row')}, {done.seconds:.1f} s" if done.tables else "nothing to compact")
    if clean:
        click.echo(f"removed {counted(removed, 'folder')}")


# -- mirror ------------------------------------------------------------------------------------------------------------


@click.command()
@LAKE
@click.option("--iceberg", is_flag=True, help="Also bring the lake's Iceberg tables to the present version.")
@AS_JSON
@on_spark
def mirror(path: str, iceberg: bool, as_json: bool, spark: "SparkSession") -> None:
    """Complete the Delta tables that other engines read.

    Every table is compared with the ledger. Commits extend tables already, unless the lake was made without. A folder
    on this machine needs no Spark.

    \b
    genus lake mirror city
    genus lake mirror city --iceberg
    """
    lake = open_lake(path, spark)
    with _progress("comparing", "tables that were extended stay so; the same command does the rest") as progress:
        done = lake.mirror(progress=progress)
        snapshots = lake.iceberg() if iceberg else None
    if as_json:
        print_json({"delta": done, "iceberg": snapshots})
        return
    what = f"{counted(done.tables, 'table')} extended by {counted(done.entries, 'entry', 'entries')}"
    click.echo(f"{what if done.entries else 'nothing to do'}: all tables show version {done.version}")
    if done.repaired:
        click.echo(f"the logs of {counted(done.repaired, 'table')} were damaged, and were made again")
    if snapshots is not None:
        click.echo(f"Iceberg: {counted(snapshots.tables, 'new snapshot')}, version {snapshots.version}")


# -- check -------------------------------------------------------------------------------------------------------------


@click.command()
@LAKE
@click.option("--restore-catalog", is_flag=True, help="First replace the catalog file by the catalog in the ledger.")
@click.option("--quick", is_flag=True, help="Compare names and sizes only; without it, all files are read.")
@AS_JSON
@on_spark
def check(path: str, restore_catalog: bool, quick: bool, as_json: bool, spark: "SparkSession") -> None:
    """Compare a lake's files with its ledger.

    Names, sizes and checksums are compared. Exit code 3 if anything is wrong. --restore-catalog helps if the catalog
    file is missing, damaged or that of another lake; types that were registered after the last ingest are lost then.

    \b
    genus lake check city
    genus lake check city --quick
    """
    if restore_catalog:
        from genus.lake import Lake

        Lake.restore_catalog(spark, path)
    lake = open_lake(path, spark)
    state, types = lake.state(), lake.catalog.types
    with _progress("comparing", "not all files were compared; the same command begins again") as progress:
        wrong = lake.check(content=not quick, progress=progress)
    if as_json:
        print_json({"ok": not wrong, "version": state.version, "problems": wrong})
    else:
        _say_checked(wrong)
        files = sum(len(part.files) for part in state.parts.values())
        parts = f"{counted(len(state.parts), 'folder')} with {counted(files, 'file')}, {counted(len(types), 'type')}"
        click.echo(f"{counted(len(wrong), 'problem') if wrong else 'all is well'}: {parts}, version {state.version}")
    if wrong:
        sys.exit(DAMAGED)


def _say_checked(wrong: list["StoreProblem"]) -> None:
    for problem in wrong:
        click.echo(problem)
    if wrong:
        click.echo(
            "Restore these files from a backup: what was ingested is not ingested again. Other files are intact."
        )


# -- rewind ------------------------------------------------------------------------------------------------------------


@click.command()
@lake_and("INBOXES")
@AS_JSON
@on_spark
def rewind(given: tuple[str, str], as_json: bool, spark: "SparkSession") -> None:
    """Take back deliveries that a restored lake does not know.

    After a lake was restored from a backup, its inboxes have deliveries of versions that are lost. They are removed, so
    that the next delivery continues at the last version that both have.

    \b
    genus lake rewind city inboxes
    """
    from genus.lake import Inboxes, Lake

    path, inboxes = given
    lake = Lake(spark, path)
    version = Inboxes(spark, inboxes).rewind(lake)
    if as_json:
        print_json({"delivered": version, "version": lake.version})
    else:
        click.echo(f"{inboxes} has deliveries up to version {version} of {lake.version}; deliver again to continue")


# -- stats -------------------------------------------------------------------------------------------------------------


@click.command()
@LAKE
@AS_JSON
@on_spark
def stats(path: str, as_json: bool, spark: "SparkSession") -> None:
    """Show the tables of a lake in numbers.

    Only the ledger is read.

    \b
    genus lake stats city
    """
    lake = open_lake(path, spark)
    state, tables = lake.state(), lake.stats()
    sources = state.sources.counts
    about = {
        "path": lake.path,
        "version": state.version,
        "types": len(lake.catalog.types),
        "sources": sources.sources,
        "read_bytes": sources.bytes,
        "events": sum(each.rows for each in tables if each.table in lake.catalog.families),
        "dead": sources.dead,
        "newest": _instant(state.newest_us),
    }
    if as_json:
        print_json(about | {"tables": tables})
    else:
        _show_stats(about, tables)


def _instant(micros: int | None) -> str | None:
    if micros is None:
        return None
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)).isoformat().replace("+00:00", "Z")


def _show_stats(about: dict[str, Any], tables: list["TableStats"]) -> None:
    newest = f", the newest recorded at {about['newest']}" if about["newest"] else ""
    click.echo(f"{about['path']}, version {about['version']}: {counted(about['events'], 'event')}{newest}")
    read = f"{counted(about['sources'], 'file')} read in, {sized(about['read_bytes'])}"
    click.echo(f"{counted(about['types'], 'type')} registered; {read}; {counted(about['dead'], 'dead letter')}")
    headings = ("rows", "files", "bytes", "days", "types", "shapes")
    table = plain_table("table", *headings, numbers=headings)
    for each in tables:
        numbers = (each.rows, each.files, each.days, each.types, each.shapes)
        rows, files, *others = (f"{number:,}" for number in numbers)
        table.add_row(each.table, rows, files, sized(each.bytes), *others)
    if tables:
        wide_console().print(table)


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
@click.argument("given", nargs=-1, metavar="LAKE [SUBSCRIPTION]", shell_complete=complete_lake_types)
@click.option("--older-than", type=SpanParam(), help="The age of events, like 90d [as `genus lake keep` has set].")
@CLEAN
@DRY_RUN
@YES
@AS_JSON
@on_spark
def expire(
    given: tuple[str, ...],
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

    path, subscriptions = split_lake(given, spark)
    if len(subscriptions) > 1:
        raise click.UsageError("give LAKE and at most one SUBSCRIPTION")
    subscription = subscriptions[0] if subscriptions else None
    if subscription is not None and older_than is None:
        raise click.UsageError("SUBSCRIPTION goes with --older-than, the age of its events")
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
        _say(place, remove(place, dry_run=True), "to remove", err=True)
    _say_more(letters(True), "to remove", err=True)
    if not click.confirm("Remove them?", err=True):
        raise click.ClickException("nothing was removed")


def _say_more(letters: int | None, what: str, *, err: bool = False) -> None:
    if letters is not None:
        click.echo(f"{counted(letters, 'dead letter')} {what}", err=err)


def _remove_from(place: "Lake | Inboxes", remove: Removal, dry_run: bool) -> "RemovalResult":
    with _progress("counting" if dry_run else "removing", _KEPT) as progress:
        return remove(place, dry_run=dry_run, progress=progress)


def _say(place: "Lake | Inboxes", found: "RemovalResult", what: str, *, err: bool = False) -> None:
    changed = f"{found.dropped:,} dropped and {found.rewritten:,} rewritten of {counted(found.folders, 'folder')}"
    click.echo(f"{place.path}: {counted(found.rows, 'event')} {what}, {changed}", err=err)


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
@click.argument("given", nargs=-1, metavar="LAKE [TYPE=SPAN]...", shell_complete=complete_files)
@click.option("--everything", is_flag=True, help="Keep all events for ever, as a new lake does.")
@AS_JSON
@on_spark
def keep(given: tuple[str, ...], everything: bool, as_json: bool, spark: "SparkSession") -> None:
    """Set how long events are kept, by type.

    `genus lake expire` removes older ones. Each type is kept as long as the nearest of its supertypes says. The ages
    replace those that were set before; without any, these are shown.

    \b
    genus lake keep city Event=730d Loop=90d
    genus lake keep city
    """
    path, words = split_lake(given, spark)
    ages = [TypeAge().convert(word, None, click.get_current_context()) for word in words]
    if ages and everything:
        raise click.UsageError("give ages or --everything")
    lake = open_lake(path, spark)
    if ages or everything:
        lake.keep(dict(ages))
    if as_json:
        print_json(dict(lake.retention))
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
    wide_console().print(table)


@click.command()
@lake_and("TARGET")
@AS_JSON
def backup(given: tuple[str, str], as_json: bool) -> None:
    """Copy a lake into another folder while it is in use.

    TARGET is a new folder, or one with an earlier backup, to which what is new is added. LAKE may also be the folder of
    inboxes or of a derived table. Both are local; no Spark is needed.

    \b
    genus lake backup city /backup/city
    """
    from genus.lake import backup as copy

    path, target = given
    with _progress("copying", "files that were copied stay; the same command does the rest") as progress:
        done = copy(path, target, progress=progress)
    if as_json:
        print_json(done)
        return
    what = f"{counted(done.copied, 'file')} of {done.files:,} copied, {sized(done.bytes)}, {done.seconds:.1f} s"
    click.echo(f"{target} has version {done.version}: {what}")
