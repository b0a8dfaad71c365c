"""The command `genus demo`: runs the application, prints its checks, and serves its report."""

import functools
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from genus.cli import SectionedGroup, SpanParam, on_spark, report_if_interrupted, wide_console

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from genus_traffic.loops import EdgeFileResult
    from genus_traffic.results import Results
    from genus_traffic.road.scene import Scene
    from genus_traffic.run_folder import RunFolder

SITES, DURATION, SEED, FOLDER, MEMORY = 4, "10min", 1, "genus-demo", "1g"
LEAST_DURATION_S = 30
SHORT_LIVED = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""A run is over before Java's optimising compiler pays off."""
LEAST_FREE_BYTES = 1 << 20
"""With less than this, a failure is put down to a full disk."""
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group(cls=SectionedGroup)
def demo() -> None:
    """Run an example application end to end and check its results."""


_INTO = click.option(
    "-o",
    "--out",
    "folder",
    metavar="FOLDER",
    type=click.Path(file_okay=False, path_type=Path),
    default=FOLDER,
    show_default=True,
    help="Where recordings, lake and results go; what an earlier run left there is removed.",
)
_AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")


def _run_command(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that both commands have; `command` gets `folder`, `as_json` and `spark`."""

    @functools.wraps(command)
    def run(*, folder: Path, **rest: Any) -> None:
        from genus.lake import use_java

        use_java()  # before minutes of simulation
        with _naming_full_disk(folder), report_if_interrupted(lambda: _describe_kept(folder)):
            command(folder=folder, **rest)

    return _INTO(on_spark(_AS_JSON(run), memory=MEMORY, conf=SHORT_LIVED, spinner=False))


def _describe_kept(folder: Path) -> str:
    from genus_traffic.run_folder import RunFolder

    kept = ", ".join(RunFolder(folder).outputs()) or "nothing yet"
    return f"{folder} holds {kept}; the same command starts over"


@contextmanager
def _naming_full_disk(folder: Path) -> Iterator[None]:
    """Report a full disk as such: Spark's own error says no more than that a call failed."""
    try:
        yield
    except Exception as problem:
        if folder.is_dir() and shutil.disk_usage(folder).free < LEAST_FREE_BYTES:
            raise click.ClickException(f"the disk of {folder} is full; free space, or give another --out") from problem
        raise


@demo.command()
@click.option("--sites", type=click.IntRange(1, 100), metavar="N", help=f"How many sites the city has [{SITES}].")
@click.option("--for", "duration", type=SpanParam(), help=f"How long it is simulated, 30s to 1d [{DURATION}].")
@click.option("--seed", type=int, metavar="N", help=f"Seed of the random generators [{SEED}].")
@click.option("--scene", "file", type=FILE, help="A city of your own, as a TOML file; see apps/traffic/city.toml.")
@click.option("--site", "only", multiple=True, metavar="NAME", help="Only this site of the city; may be repeated.")
@click.option(
    "--serve", "port", type=click.IntRange(0, 65535), metavar="PORT", help="Show the report at this port until Ctrl-C."
)
@_run_command
def traffic(
    sites: int | None,
    duration: float | None,
    seed: int | None,
    file: Path | None,
    only: tuple[str, ...],
    port: int | None,
    folder: Path,
    as_json: bool,
    spark: "SparkSession",
) -> None:
    """Monitor a city's traffic, from loops in the road to a report.

    Generates traffic, simulates every site's CAN segment bit by bit, records what arrives at the city's centre, reads
    it into a lake on Spark, as a stream and in batch, and compares the results with the truth. Half way, sensors are
    replaced by a generation that reports more, and nothing restarts. The exit code is 1 if a check fails.

    Ctrl-C stops it and names what was kept; a run starts over and removes what an earlier one left in the folder.

    \b
    genus demo traffic
    genus demo traffic --sites 8 --for 15min --out /tmp/city
    genus demo traffic --scene apps/traffic/city.toml --site mill-street
    """
    from genus_traffic.report_server import ReportServer
    from genus_traffic.results import Steps
    from genus_traffic.run import run
    from genus_traffic.run_folder import prepare

    scene = _scene(sites, duration, seed, file, only)
    with ReportServer.open(port) as server:
        made = prepare(folder)
        results = run(scene, made, spark, Steps(_progress_bar))
        click.echo(msgspec.json.encode(results)) if as_json else _print_results(results, made)
        server.show(made.report)
    if not _all_hold(results):
        sys.exit(1)


@demo.command()
@click.argument("edges", type=FILE)
@click.option("--truth", type=FILE, help="The true passages, to compare with.")
@_run_command
def loops(edges: Path, truth: Path | None, folder: Path, as_json: bool, spark: "SparkSession") -> None:
    """Measure speeds in a file of loop edges, in batch and as a stream.

    EDGES is Parquet or CSV and has the columns t (seconds), detector (NAME/up or NAME/dn, two loops 5 m apart) and
    edge (1: a vehicle came onto the loop, 0: it left). The truth has a row per vehicle and pair of loops: pair, veh,
    vtype, length, t_up_enter, t_up_leave, t_dn_enter, t_dn_leave, v_up and v_dn; what did not happen is empty. The
    exit code is 1 if less than 99.5 % of the complete passages are within 1 m/s (one without a speed is forgiven), or
    a speed belongs to no passage. The speeds are left in the folder `passages`, which `genus.lake.read_results` reads.

    \b
    genus demo loops edges.parquet --truth truth.parquet
    """
    from genus_traffic.edges import read_edges, read_truth_file
    from genus_traffic.loops import measure
    from genus_traffic.results import Steps
    from genus_traffic.run_folder import prepare

    given, known = read_edges(edges), None if truth is None else read_truth_file(truth)
    measured = measure(given, known, prepare(folder), spark, Steps(_progress_bar))
    click.echo(msgspec.json.encode(measured)) if as_json else _print_measured(measured)
    if not measured.stream_equals_batch or (measured.accuracy is not None and not measured.accuracy.is_good):
        sys.exit(1)


def _scene(
    sites: int | None, duration: float | None, seed: int | None, file: Path | None, only: tuple[str, ...]
) -> "Scene":
    """Return the city that the options describe."""
    from genus_traffic.road.city import default_city
    from genus_traffic.road.scene_file import load_scene

    if file is not None and sites is not None:
        raise click.UsageError("--sites cannot be used with --scene: the file lists the sites")
    if duration is not None and duration < LEAST_DURATION_S:
        raise click.UsageError(f"--for is {duration:g}s; a run takes at least {LEAST_DURATION_S}s")
    made = default_city(sites or SITES, DURATION, SEED if seed is None else seed) if file is None else load_scene(file)
    scene = made.changed(duration, seed)
    return scene.only(only) if only else scene


@contextmanager
def _progress_bar(name: str) -> Iterator[Callable[[float], object]]:
    """Show a bar while a step runs, and a line with its duration afterwards."""
    console = Console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(name, total=None)
        yield lambda done: progress.update(task, completed=done, total=1)
        seconds = progress.tasks[0].elapsed or 0.0
    console.print(f"[green]✓[/] {name} [dim]{seconds:.1f} s[/]", highlight=False)


def _all_hold(results: "Results") -> bool:
    from genus_traffic.report.checks import checks

    return all(check.holds is not False for check in checks(results))


def _print_results(results: "Results", folder: "RunFolder") -> None:
    """Print what ran, every check, and where the report is."""
    from genus_traffic.report.checks import checks
    from genus_traffic.report.formats import count_of

    seconds = sum(stage.seconds for stage in results.stages)
    frames = sum(stage.amount for stage in results.stages if stage.what == "frames")
    console = wide_console()
    console.print(
        f"\n{count_of(len(results.sites), 'site')} for {results.minutes:g} min: {frames:,} frames on CAN, "
        f"{results.event_count:,} events in the lake, in {seconds:.0f} s.",
        highlight=False,
        soft_wrap=True,
    )
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1))
    table.add_column(justify="center")
    table.add_column(justify="right", style="bold")
    for check in checks(results):
        mark = {True: "[green]✓[/]", False: "[red]✗[/]", None: "[dim]–[/]"}[check.holds]
        table.add_row(mark, check.figure, check.name, f"[dim]{check.says}[/]")
    console.print(table)
    console.print(f"\nThe report: {folder.report.resolve().as_uri()}", highlight=False, soft_wrap=True)
    if folder.path == Path(FOLDER):
        command = "genus" if shutil.which("genus") else sys.argv[0]
        console.print(f"See it run: {command} studio sim:{FOLDER}", highlight=False, soft_wrap=True)


def _print_measured(measured: "EdgeFileResult") -> None:
    console = wide_console(highlight=False)
    console.print(
        f"{measured.edges:,} edges at {measured.pairs:,} pairs of loops: {measured.speeds:,} speeds, "
        f"{measured.one_sided:,} vehicles that one loop noticed or that are too doubtful."
    )
    console.print(f"stream and batch: {'the same rows' if measured.stream_equals_batch else '[red]differ[/]'}")
    if (found := measured.accuracy) is not None:
        console.print(
            f"against the truth: {found.right:,} of {found.complete:,} complete passages within "
            f"{found.tolerance:g} m/s ({found.share:.2%}), {found.wrong:,} wrong, {found.unmeasured:,} not measured, "
            f"{found.invented:,} speeds invented"
        )
