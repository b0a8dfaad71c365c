"""`genus can faults`: the rows of the fault table, run and looked at."""

import sys
import time
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from genus.can.plan import load_system
from genus.can.scenario.rows import ROWS, Observation, Setting
from genus.can.scenario.rows.page import updated


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
@click.option("--seed", default=1, show_default=True, help="Everything random follows from it.")
@click.option("--full", is_flag=True, help="As many events as the table asks for, which takes minutes for some rows.")
@click.option(
    "--write",
    "page",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Put what is seen into a page.",
)
def faults(numbers: tuple[int, ...], source: Path, seed: int, full: bool, page: Path | None) -> None:
    """Run rows of the fault table (default: all) and say what was seen. Exit code 1 if a row is not as it must be.

    \b
    genus can faults 7
    genus can faults --full --write docs/faults.md
    """
    setting = Setting(load_system(source), seed, full)
    console = Console()
    observed: dict[int, Observation] = {}
    for number in numbers or sorted(ROWS):
        began = time.monotonic()
        observed[number] = seen = ROWS[number].observe(setting)
        verdict = Text("ok", "green") if seen.ok else Text("not ok", "bold red")
        took = Text(f" ({time.monotonic() - began:.1f} s)", "dim")
        console.print(Text.assemble(f"{number:>2} {ROWS[number].fault}: ", seen.text, "  ", verdict, took))
        if page is not None:
            page.write_text(updated(page.read_text("utf-8"), {number: seen}), "utf-8")
    if not all(seen.ok for seen in observed.values()):
        sys.exit(1)
