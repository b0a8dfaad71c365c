"""`genus codes`: what prime codes cost for a hierarchy of types."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from genus.cli._completion import complete_files
from genus.cli._groups import SectionedGroup
from genus.codes import (
    LARGEST_CODES,
    CodeCost,
    NotApplicable,
    TreeCodeSize,
    compare_schemes,
    draw_balanced_trees,
    measure_balanced_trees,
    read_hierarchy,
)


@click.group(cls=SectionedGroup)
def codes() -> None:
    """Compare the sizes of prime codes, per scheme."""


@codes.command("report")
@click.argument("source", metavar="[MODULE_OR_FILE]", required=False, shell_complete=complete_files)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
@click.option("--fig2", is_flag=True, help="Full balanced trees of up to 8 levels and 8 children.")
@click.option("--png", type=click.Path(dir_okay=False, path_type=Path), help="With --fig2: also draw it to this file.")
def report_command(source: str | None, as_json: bool, fig2: bool, png: Path | None) -> None:
    """Show what the codes of a hierarchy cost, for each scheme.

    MODULE_OR_FILE is a CSV file (type,parents; or VSS), a .py file or the name of a Python module.

    \b
    genus codes report examples/traffic.py
    genus codes report --fig2 --png sizes.png
    """
    if source is None and not fig2:
        raise click.UsageError("name a MODULE_OR_FILE, or ask for --fig2")
    if png and not fig2:
        raise click.UsageError("--png draws --fig2")
    with Console(stderr=True).status("computing codes"):
        lines = compare_schemes(read_hierarchy(source)) if source else []
        cells = measure_balanced_trees() if fig2 else []
    if png:
        draw_balanced_trees(cells, png)
    if as_json:
        click.echo(json.dumps({"table": [asdict(x) for x in lines], "figure_2": [asdict(x) for x in cells]}, indent=2))
    else:
        _show(source, lines, cells)


def _show(source: str | None, lines: Sequence[CodeCost | NotApplicable], cells: Sequence[TreeCodeSize]) -> None:
    console = Console()
    if source:
        console.print(_table(source, lines))
    for scheme in LARGEST_CODES if cells else ():
        console.print(_grid(scheme, [cell for cell in cells if cell.scheme == scheme]))


def _table(source: str, lines: Sequence[CodeCost | NotApplicable]) -> Table:
    table = Table(title=f"Codes of {source}", title_justify="left", box=SIMPLE_HEAD, padding=(0, 0), pad_edge=False)
    table.add_column("scheme", no_wrap=True)
    for heading in ("types", "primes", "largest code", "mean bytes", "max bytes", "density"):
        table.add_column(heading, justify="right", no_wrap=heading in {"primes", "largest code", "density"})
    for line in lines:
        table.add_row(line.scheme, *_values(line))
    return table


def _values(line: CodeCost | NotApplicable) -> tuple[str, ...]:
    if isinstance(line, NotApplicable):
        return ("", "", f"n/a: {line.reason}")
    largest = str(line.largest) if line.max_bytes <= 5 else f"{line.largest.bit_length()} bits"
    sizes = f"{line.mean_bytes:.2f}", str(line.max_bytes)
    return str(line.vertices), str(line.primes), largest, *sizes, f"{line.density_percent:.2g}%"


def _grid(scheme: str, cells: Sequence[TreeCodeSize]) -> Table:
    mean = sum(cell.bytes for cell in cells) / len(cells)
    table = Table(
        title=f"{scheme}: bytes of the largest code by children and levels, mean {mean:.2f}",
        title_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1),
        pad_edge=False,
    )
    levels = sorted({cell.levels for cell in cells})
    table.add_column("children")
    for level in levels:
        table.add_column(str(level), justify="right")
    for width in sorted({cell.children for cell in cells}):
        row = {cell.levels: cell.bytes for cell in cells if cell.children == width}
        table.add_row(str(width), *(str(row[level]) for level in levels))
    return table
