"""Run rows of the fault table, print what is observed, and write it into a page."""

import sys
import time
from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.text import Text

from genus.can._plan import load_system
from tests.can.fault_table import ROWS, Observation, Setting
from tests.can.fault_table.page import update_page


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
@click.option(
    "--write",
    "page",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Write what is observed into this page.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object per row.")
def faults(numbers: tuple[int, ...], source: Path, seed: int, full: bool, page: Path | None, as_json: bool) -> None:
    """Run rows of the fault table and print what is observed.

    Without ROW all are run. Exit code 1 if a row is not as expected.

    \b
    python -m tests.can.fault_table 7
    python -m tests.can.fault_table --full --write docs/faults.md
    """
    setting = Setting(load_system(source), seed, full)
    all_ok = True
    for number in numbers or sorted(ROWS):
        began = time.monotonic()
        with Console(stderr=True).status(f"row {number}: {ROWS[number].fault}"):
            observation = ROWS[number].observe(setting)
        _print(number, observation, time.monotonic() - began, as_json)
        all_ok = all_ok and observation.ok
        if page is not None:
            page.write_text(update_page(page.read_text("utf-8"), {number: observation}), "utf-8")
    if not all_ok:
        sys.exit(1)


def _print(number: int, observation: Observation, took_s: float, as_json: bool) -> None:
    fault = ROWS[number].fault
    if as_json:
        click.echo(msgspec.json.encode({"row": number, "fault": fault, "ok": observation.ok, "seen": observation.text}))
        return
    result = Text("ok", "green") if observation.ok else Text("not ok", "bold red")
    took = Text(f" ({took_s:.1f} s)", "dim")
    Console().print(Text.assemble(f"{number:>2} {fault}: ", observation.text, "  ", result, took))


if __name__ == "__main__":
    faults()
