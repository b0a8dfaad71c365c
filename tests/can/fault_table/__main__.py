"""Run rows of the fault table and print what is observed."""

import os
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.text import Text

from genus.can._plan.system_file import load_system
from tests.can.fault_table import LIVE, ROWS, Observation, Setting
from tests.can.fault_table.page import format_table

MAX_LENGTH = (1, 4, 14, 5, 13, 16, 22, 8, 7)
"""Rows that take long, which are begun first."""


@click.command()
@click.argument("numbers", metavar="[ROW]...", nargs=-1, type=click.IntRange(min(ROWS), max(ROWS)))
@click.option(
    "--system",
    "source",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    default="examples/crossing.toml",
    show_default=True,
    help="The system to simulate; rows use its node names.",
)
@click.option("--seed", type=int, default=1, show_default=True, metavar="N", help="Seed of all random choices.")
@click.option("--full", is_flag=True, help="As many events as the table states, which takes minutes for some rows.")
@click.option("--jobs", type=click.IntRange(1), default=os.cpu_count(), show_default="cores", help="Rows at a time.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object per row.")
def faults(numbers: tuple[int, ...], source: Path, seed: int, full: bool, jobs: int, as_json: bool) -> None:
    """Run rows of the fault table and print what is observed.

    Without ROW all are run. Exit code 1 if a row is not as expected.

    \b
    python -m tests.can.fault_table 7
    python -m tests.can.fault_table --full --seed 1
    """
    chosen = numbers or sorted(ROWS)
    done, all_ok = 0, True
    status = Console(stderr=True)
    for number, observation, took_s in _observe(chosen, Setting(load_system(source), seed, full), jobs):
        done, all_ok = done + 1, all_ok and observation.ok
        _print(number, observation, took_s, as_json)
        if len(chosen) > 1:
            status.print(f"{done} of {len(chosen)} rows", style="dim")
    if not all_ok:
        sys.exit(1)


def table() -> str:
    """All rows, full, with seed 1."""
    setting = Setting(load_system(Path("examples/crossing.toml")), 1, True)
    rows = _observe(sorted(ROWS), setting, os.cpu_count() or 1)
    return format_table({number: observation for number, observation, _ in rows})


def _observe(numbers: Iterable[int], setting: Setting, jobs: int) -> Iterator[tuple[int, Observation, float]]:
    """Observe rows in several processes, as they end; live ones after the others, as they need the machine."""
    simulated = sorted(set(numbers) - set(LIVE), key=lambda number: (number not in MAX_LENGTH, number))
    if jobs > 1 and len(simulated) > 1:
        with ProcessPoolExecutor(jobs) as pool:
            for future in as_completed([pool.submit(_observe_row, number, setting) for number in simulated]):
                yield future.result()
    else:
        yield from (_observe_row(number, setting) for number in simulated)
    yield from (_observe_row(number, setting) for number in numbers if number in LIVE)


def _observe_row(number: int, setting: Setting) -> tuple[int, Observation, float]:
    began = time.monotonic()
    return number, ROWS[number].observe(setting), time.monotonic() - began


def _print(number: int, observation: Observation, took_s: float, as_json: bool) -> None:
    fault = ROWS[number].fault
    if as_json:
        click.echo(msgspec.json.encode({"row": number, "fault": fault, "ok": observation.ok, "seen": observation.text}))
        return
    result = Text("ok", "green") if observation.ok else Text("not ok", "bold red")
    took = Text(f" ({took_s:.1f} s)", "dim")
    Console().print(Text.assemble(f"{number:>2} {fault}: ", observation.text, "  ", result, took))
    Console().print(f"   expected: {ROWS[number].expected}", style="dim", highlight=False)
    if example := ROWS[number].example:
        Console().print(f"   by hand: genus can sim examples/crossing.toml {example}", style="dim", highlight=False)


if __name__ == "__main__":
    faults()
