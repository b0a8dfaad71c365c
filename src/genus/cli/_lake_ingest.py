"""`genus lake ingest` and `dead`: files into a lake, and what in them was no event."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click
import msgspec
from rich.console import Console
from rich.text import Text

from genus.cli._completion import GENUS_LAKE, complete_files
from genus.cli._events import J1939_OPTIONS, takes_log_columns
from genus.cli._exit import saying_what_is_kept
from genus.cli._format import counted, plain_table, print_json, rate, sized
from genus.cli._lake_session import AS_JSON, LAKE, lake_of_environment, on_spark, reading_in, started, working

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from genus.can.types import Dbc
    from genus.lake import Lake
    from genus.lake.types import IngestResult

MAX_REASONS = 10
RAW_SHOWN = 60
EXISTING = click.Path(exists=True, dir_okay=False, path_type=Path)

FORMAT_OPTIONS = (
    click.option(
        "--format",
        "format_",
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
    path, sources = _lake_and_files(spark, words)
    lake = Lake(spark, path)
    before = lake.version
    files = lake.find_sources(sources, format=format_, mapping=mapping, dbc=database, columns=columns)
    if not files:
        raise click.ClickException(f"{', '.join(sources)}: no files to ingest")
    with (
        saying_what_is_kept(lambda: _kept(lake, before)),
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


def _lake_and_files(spark: "SparkSession", words: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    from genus.lake import Lake

    known = lake_of_environment()
    if known and words and not Lake.exists(spark, words[0]):
        return known, words
    if len(words) < 2:
        raise click.UsageError(f"give LAKE and FILE..., or set {GENUS_LAKE} and give FILE...")
    return words[0], words[1:]


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
    Console().print(table)


def _show_letters(letters: list[dict[str, Any]]) -> None:
    table = plain_table("path", "position", "reason", "raw", numbers=["position"])
    for letter in letters:
        raw = letter["raw"].replace("\n", "⏎")
        shown = raw if len(raw) <= RAW_SHOWN else f"{raw[:RAW_SHOWN]}…"
        table.add_row(Text(letter["path"]), str(letter["position"]), Text(letter["reason"]), Text(shown))
    if letters:
        Console().print(table)
