"""The rows of the fault table, run and looked at."""

import sys
import time
from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.text import Text

from genus.can._plan import load_system
from tests.can.fault_table import ROWS, Observation, Setting
from tests.can.fault_table.page import updated


@click.command()
@click.argument("numbers", metavar="[ROW]...", nargs=-1, type=click.IntRange(min(ROWS), max(ROWS)))
@click.option(
    "--system",
    "source",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    default="examples/crossing.toml",
    show_default=True,
    help="The system that is tried; rows name its nodes.",
)
@click.option("--seed", type=int, default=1, show_default=True, metavar="N", help="Seed of all random choices.")
@click.option("--full", is_flag=True, help="As many events as the table asks for, which takes minutes for some rows.")
@click.option(
    "--write",
    "page",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Put what is seen into a page.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object a row.")
def faults(numbers: tuple[int, ...], source: Path, seed: int, full: bool, page: Path | None, as_json: bool) -> None:
    """ScenarioRun rows of the fault table and say what was seen.

    Without ROW all are run. Exit code 1 if a row is not as it must be.

    \b
    python -m tests.can.fault_table 7
    python -m tests.can.fault_table --full --write docs/faults.md
    """
    setting = Setting(load_system(source), seed, full)
    good = True
    for number in numbers or sorted(ROWS):
        began = time.monotonic()
        with Console(stderr=True).status(f"row {number}: {ROWS[number].fault}"):
            seen = ROWS[number].observe(setting)
        _show(number, seen, time.monotonic() - began, as_json)
        good = good and seen.ok
        if page is not None:
            page.write_text(updated(page.read_text("utf-8"), {number: seen}), "utf-8")
    if not good:
        sys.exit(1)


def _show(number: int, seen: Observation, took_s: float, as_json: bool) -> None:
    fault = ROWS[number].fault
    if as_json:
        click.echo(msgspec.json.encode({"row": number, "fault": fault, "ok": seen.ok, "seen": seen.text}))
        return
    verdict = Text("ok", "green") if seen.ok else Text("not ok", "bold red")
    took = Text(f" ({took_s:.1f} s)", "dim")
    Console().print(Text.assemble(f"{number:>2} {fault}: ", seen.text, "  ", verdict, took))


if __name__ == "__main__":
    faults()
