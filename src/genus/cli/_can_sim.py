"""`genus can sim`: a system of real nodes on a simulated bus, under faults, next to what its plan promises."""

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, get_args

import click
import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from genus.can import PreparedSystem, Scenario, fault_help, format_bitrate, load_system, parse_fault
from genus.can.types import ChannelResult, Clocks, Outcome, Pattern, ScenarioRun, Summary
from genus.cli._can_plan import show_warnings
from genus.cli._completion import complete_faults
from genus.cli._exit import INTERRUPTED, stopped_by_signals
from genus.cli._groups import SpanParam, counted, wide_console
from genus.errors import BusError

SEED = click.option(
    "--seed", type=int, default=1, show_default=True, metavar="N", help="Everything random follows from it."
)
OUTPUT = click.Path(dir_okay=False, path_type=Path)
DEFAULT_SECONDS = 10.0
DEFAULT_PICTURE_NS = 1_000_000_000
"""How long a run goes on after `--picture-from`, if no option says it: longer than most pictures."""


class Stretch(NamedTuple):
    """What a picture shows: where it begins, from when programs begin to publish, and how long; None to choose."""

    begin_ns: int | None
    length_ns: int | None

    @classmethod
    def of(cls, begin: float | None, length: float | None) -> "Stretch":
        """Return the stretch that the options give, in seconds."""
        return cls(*(None if each is None else round(each * 1e9) for each in (begin, length)))


def _duration(lasts: float | None, drawn: Stretch) -> float:
    """Return how long a run is, in seconds: as long as `--for` says, or until the end of the picture."""
    if lasts is not None:
        return lasts
    if drawn.begin_ns is None:
        return DEFAULT_SECONDS
    return (drawn.begin_ns + (drawn.length_ns or DEFAULT_PICTURE_NS)) / 1e9


class SimCommand(click.Command):
    """A command whose help lists the faults there are."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The syntax of every fault, with its effect."""
        with formatter.section("Faults"):
            for usage, what in fault_help():
                formatter.write_text(usage)
                with formatter.indentation():
                    formatter.write_text(what)


@click.command(cls=SimCommand)
@click.argument("source", metavar="SYSTEM.toml", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--for", "lasts", type=SpanParam(), help="How long to simulate [10s, or to the end of the picture].")
@click.option(
    "--faults",
    "faults",
    multiple=True,
    metavar="TEXT",
    shell_complete=complete_faults,
    help='Such as "errors p=0.05"; may be repeated.',
)
@SEED
@click.option(
    "--runs", type=click.IntRange(1), default=1, show_default=True, metavar="N", help="Runs, each with the next seed."
)
@click.option(
    "--clocks",
    type=click.Choice(["real", "perfect"]),
    default="real",
    show_default=True,
    help="real: each node has its own, off and drifting, and they are synchronised over the bus.",
)
@click.option("--clock-master", "masters", multiple=True, metavar="NODE", help="Who may lead the clocks [anybody].")
@click.option(
    "--pattern", type=click.Choice(get_args(Pattern)), default="periodic", show_default=True, help="When to publish."
)
@click.option("--worst-case", is_flag=True, help="Every frame as long as it can be, every error as late as it can be.")
@click.option("--broker", is_flag=True, help="Nodes get numbers, event tags and catalog from a broker, station 127.")
@click.option("--guards", is_flag=True, help="A bus guardian in front of every station.")
@click.option("--no-confinement", is_flag=True, help="Stations that fail to send stay on the bus for ever.")
@click.option("--trace", type=OUTPUT, help="Write all that was on the bus to this file.")
@click.option("--png", type=OUTPUT, help="Draw a stretch of it to this file.")
@click.option(
    "--picture-from",
    "begin",
    type=SpanParam(may_be_zero=True),
    help="Where the picture begins, as --for counts [where much happens].",
)
@click.option("--picture-for", "length", type=SpanParam(), help="How long the picture shows [what fits].")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
@click.option(
    "--strict", is_flag=True, help="Exit code 1 if a guarantee was not kept, even under faults that permit it."
)
def sim(
    source: Path,
    lasts: float | None,
    runs: int,
    trace: Path | None,
    png: Path | None,
    begin: float | None,
    length: float | None,
    as_json: bool,
    strict: bool,
    **options: Any,
) -> None:
    """Simulate a system bit by bit, under faults.

    It runs the same node code as a real bus, programs that publish as the system file says, and the given faults.
    Stations have the numbers of the system's nodes. Times of faults count from power-on; --for counts from when
    programs begin to publish, once clocks are synchronised and channels bound. Ctrl-C shows the results so far; the
    exit code is then 130.

    \b
    genus can sim examples/crossing.toml --for 2s --faults "errors p=0.05" --seed 1
    genus can sim examples/crossing.toml --png bus.png --picture-from 1s --picture-for 5ms
    """
    if png is None and (begin is not None or length is not None):
        raise click.UsageError("--picture-from and --picture-for are about a picture; add --png FILE")
    if runs > 1 and (trace or png):
        raise click.UsageError("--trace and --png are for a single run")
    drawn = Stretch.of(begin, length)
    lasts = _duration(lasts, drawn)
    scenario = _scenario(source, lasts, traced=trace is not None or png is not None, **options)
    with stopped_by_signals() as stop:
        outcomes = _run_all(scenario, runs, stop, keep=lambda run: _write(run, trace, png, drawn))
    _show(scenario, outcomes, as_json)
    if stop.is_set():
        part = f"{outcomes[-1].seconds:g} s of {lasts:g} s" if outcomes else "nothing"
        done = part if runs == 1 else f"{len(outcomes):,} of {counted(runs, 'run')}"
        click.echo(f"interrupted; these are the results of {done}", err=True)
        sys.exit(INTERRUPTED)
    if strict and any(outcome.broken for outcome in outcomes):
        sys.exit(1)


def _scenario(
    source: Path,
    lasts: float,
    *,
    faults: tuple[str, ...],
    pattern: Pattern,
    clocks: Clocks,
    worst_case: bool,
    no_confinement: bool,
    **options: Any,
) -> Scenario:
    """Return what is to be simulated; UsageError for a fault, or a master of the clocks, that there cannot be."""
    prepared = PreparedSystem.of(load_system(source))
    show_warnings(prepared.plan)
    try:
        return Scenario(
            prepared=prepared,
            duration=lasts,
            faults=tuple(parse_fault(text, prepared.typed.system.nodes) for text in faults),
            pattern=pattern,
            clocks=clocks,
            exact_lengths=not worst_case,
            confinement=not no_confinement,
            **options,
        )
    except BusError as problem:
        raise click.UsageError(str(problem), click.get_current_context()) from None


def _run_all(
    scenario: Scenario, runs: int, stop: threading.Event, keep: Callable[[ScenarioRun], None]
) -> list[Outcome]:
    outcomes: list[Outcome] = []
    with _progress(runs) as show:
        for number in range(runs):
            with ScenarioRun(msgspec.structs.replace(scenario, seed=scenario.seed + number)) as run:
                for part in run.advance():
                    show(number + part)
                    if stop.is_set():
                        break
                outcomes.append(run.outcome())
                keep(run)
            if stop.is_set():
                break
    return outcomes


@contextmanager
def _progress(total: float) -> Iterator[Callable[[float], None]]:
    """A progress bar, if standard error is a terminal."""
    columns = (TextColumn("simulating"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=total)
        yield lambda done: progress.update(task, completed=done)


def _write(run: ScenarioRun, trace: Path | None, png: Path | None, drawn: Stretch) -> None:
    if trace is not None:
        run.world.trace.save(trace)
    if png is not None:
        begin_ns, end_ns = run.stretch(drawn.length_ns)
        if drawn.begin_ns is not None:
            begin_ns, end_ns = run.began_ns + drawn.begin_ns, run.began_ns + drawn.begin_ns + end_ns - begin_ns
        run.world.draw(png, begin_ns, end_ns)


# -- showing ---------------------------------------------------------------------------------------------------------


def _show(scenario: Scenario, outcomes: Sequence[Outcome], as_json: bool) -> None:
    if as_json:
        found: Any = outcomes[0] if len(outcomes) == 1 else Summary.of(outcomes)
        click.echo(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
        return
    console = wide_console()
    console.print(_headline(scenario, outcomes), highlight=False)
    if len(outcomes) == 1:
        _show_one(console, outcomes[0])
    else:
        _show_many(console, Summary.of(outcomes))


def _headline(scenario: Scenario, outcomes: Sequence[Outcome]) -> str:
    system, seconds = scenario.prepared.typed.system, sum(outcome.seconds for outcome in outcomes)
    plan = "admitted" if scenario.prepared.plan.ok else "not admitted"
    how = f"{scenario.clocks} clocks, {scenario.pattern}"
    faults = "; ".join(map(str, scenario.faults)) or "no faults"
    seeds = f"seed {scenario.seed}" + (f" to {scenario.seed + len(outcomes) - 1}" if len(outcomes) > 1 else "")
    bus = f"{system.source} ({plan}): {format_bitrate(system.bus.timing.bitrate)}"
    return f"{bus}, {seconds:g} s, {how}, {faults}, {seeds}"


def _table(first: str, *others: str) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=0, pad_edge=False)
    table.add_column(first, overflow="fold", min_width=14)
    for heading in others:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _show_one(console: Console, outcome: Outcome) -> None:
    table = _table("channel", "class", "events", "sent", "given", "late", "exp.", "alarms", "lost", "worst us", "bound")
    for result in outcome.channels:
        table.add_row(*_row(result))
    console.print(table)
    bands = _table("bus", "load", "frames", "errors")
    for name, band in outcome.bands.items():
        bands.add_row(name, f"{band.load:.1%}", str(band.frames), str(band.errors))
    console.print(bands)
    problems = ", ".join(f"{count} {kind}" for kind, count in sorted(outcome.problems.items()))
    console.print(f"problems reported to programs: {problems or 'none'}", highlight=False)
    if outcome.dropped:
        dropped = ", ".join(f"{count} {why}" for why, count in sorted(outcome.dropped.items()))
        console.print(f"nodes dropped: {dropped}", highlight=False)
    _show_broken(console, outcome.broken)


def _row(result: ChannelResult) -> tuple[str | Text, ...]:
    over = result.bound_ns is not None and result.worst_ns > result.bound_ns
    return (
        result.channel,
        result.qos_class,
        str(result.published),
        Text(str(result.sent), "red" if result.sent < result.published - result.waiting else ""),
        _delivered(result),
        _count(result.missed + result.not_sent),
        _count(result.expired),
        _count(sum(result.alarms.values())),
        _count(result.lost),
        Text(_micros(result.worst_ns), "bold red" if over else ""),
        _micros(result.bound_ns),
    )


def _micros(span_ns: int | None) -> str:
    """Return a time in microseconds, rounded up."""
    return "—" if span_ns is None else str(-(-span_ns // 1000))


def _delivered(result: ChannelResult) -> str:
    counts = set(result.delivered.values())
    shown = str(min(counts)) if counts else "0"
    return shown if len(counts) < 2 else f"{shown}-{max(counts)}"


def _count(count: int) -> Text:
    return Text(str(count), "red" if count else "dim")


def _show_many(console: Console, summary: Summary) -> None:
    table = _table("class", "events", "sent", "late", "exp.", "alarms", "lost", "worst/bound", "runs broken")
    for row in summary.classes:
        counts = row.missed, row.expired, row.alarms, row.lost
        table.add_row(
            row.qos_class, str(row.published), str(row.sent), *map(_count, counts), f"{row.worst_of_bound:.1%}",
            _count(row.runs_broken),
        )  # fmt: skip
    console.print(table)
    console.print(f"{summary.runs} runs, {summary.frames} frames, {summary.errors} errors", highlight=False)
    _show_broken(console, tuple(f"seed {seed}: {why}" for seed, why in summary.broken))


def _show_broken(console: Console, broken: tuple[str, ...]) -> None:
    if not broken:
        console.print("every promise was kept", style="green")
    for line in broken[:20]:
        console.print(Text(line, "red"))
    if len(broken) > 20:
        console.print(f"... and {len(broken) - 20} more", style="red")
