"""`genus codes`: what prime codes cost for a hierarchy of types."""

from collections.abc import Sequence
from dataclasses import asdict

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from genus.cli._completion import complete_files
from genus.cli._format import print_json
from genus.codes import compare_schemes, read_hierarchy
from genus.codes.types import CodeCost, NotApplicable


@click.command()
@click.argument("source", metavar="MODULE_OR_FILE", shell_complete=complete_files)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def codes(source: str, as_json: bool) -> None:
    """Compare the sizes of prime codes, per scheme.

    MODULE_OR_FILE is a CSV file (type,parents; or VSS), a .py file or the name of a Python module.

    \b
    genus codes examples/traffic.py
    """
    with Console(stderr=True).status("computing codes"):
        lines = compare_schemes(read_hierarchy(source))
    if as_json:
        print_json({"table": [asdict(line) for line in lines]})
    else:
        Console().print(_table(source, lines))


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
