"""`genus lake init`, `compact`, `check` and `stats`: making a lake and keeping it."""

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.progress import Progress

from genus.cli._events import load_all, types_option
from genus.cli._exit import DAMAGED, saying_what_is_kept
from genus.cli._format import Span, counted, plain_table, print_json, sized
from genus.cli._lake_session import AS_JSON, LAKE, on_spark, started

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from genus.lake import Lake, StoreProblem, TableStats

WEEK_S = 7 * 86_400.0


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
    families = counted(len(lake.catalog.families), "family", "families")
    types = counted(len(lake.catalog.types), "type")
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
    type=Span(may_be_zero=True),
    default=WEEK_S,
    help="With --clean: files replaced longer ago than this; followers further behind start again [7d].",
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
    console = Console(stderr=True)
    kept = "days that were rewritten stay so, all others have their old files; the same command does the rest"
    with (
        saying_what_is_kept(lambda: kept),
        Progress(console=console, transient=True, disable=not console.is_terminal) as progress,
    ):
        task = progress.add_task("compacting", total=None)
        done = lake.compact(progress=lambda number, of: progress.update(task, completed=number, total=of))
    removed = lake.clean(older_than) if clean else 0
    if as_json:
        print_json({"compacted": done, "removed": removed, "version": lake.version})
        return
    what = f"{counted(done.files_after, 'file')} instead of {done.files_before:,} in {counted(done.tables, 'table')}"
    click.echo(f"{what}, {counted(done.rows, 'row')}, {done.seconds:.1f} s" if done.tables else "nothing to compact")
    if clean:
        click.echo(f"removed {counted(removed, 'folder')}")


# -- check -------------------------------------------------------------------------------------------------------------


@click.command()
@LAKE
@AS_JSON
@on_spark
def check(path: str, as_json: bool, spark: "SparkSession") -> None:
    """Compare a lake's files with its ledger.

    Exit code 3 if anything is wrong.

    \b
    genus lake check city
    """
    from genus.lake import Lake

    lake = Lake(spark, path)
    state, types = lake.state(), lake.catalog.types
    wrong = lake.check()
    if as_json:
        print_json({"ok": not wrong, "version": state.version, "problems": wrong})
    else:
        _say_checked(wrong)
        files = sum(part.files for part in state.parts.values())
        parts = f"{counted(len(state.parts), 'folder')} with {counted(files, 'file')}, {counted(len(types), 'type')}"
        click.echo(f"{counted(len(wrong), 'problem') if wrong else 'all is well'}: {parts}, version {state.version}")
    if wrong:
        sys.exit(DAMAGED)


def _say_checked(wrong: list["StoreProblem"]) -> None:
    for problem in wrong:
        click.echo(problem)
    if wrong:
        click.echo(
            "Restore these folders from a backup: ingested files are not ingested again. Other folders are intact."
        )


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
    from genus.lake import Lake

    lake = Lake(spark, path)
    state, tables = lake.state(), lake.stats()
    sources = state.sources.values()
    about = {
        "path": lake.path,
        "version": state.version,
        "types": len(lake.catalog.types),
        "sources": len(sources),
        "read_bytes": sum(source.bytes for source in sources),
        "events": sum(each.rows for each in tables if each.table in lake.catalog.families),
        "dead": sum(source.dead for source in sources),
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
        Console().print(table)
