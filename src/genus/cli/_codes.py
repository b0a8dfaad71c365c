"""`genus codes`: what prime codes cost for a hierarchy of types, and save on CoAP."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from genus.cli._completion import complete_files
from genus.cli._format import counted, plain_table, print_json
from genus.cli._groups import SectionedGroup
from genus.codes import (
    BLOCK_SIZES,
    MAX_CODES,
    CoapReport,
    CoapSettings,
    CodeCost,
    NotApplicable,
    PathCost,
    TrafficCost,
    TreeCodeSize,
    compare_schemes,
    draw_balanced_trees,
    measure_balanced_trees,
    measure_coap,
    read_hierarchy,
    read_resources,
)

SCHEMES = {"original": "original", "compact": "compact", "line": "line", "any": "line, any join"}
"""The words of `--scheme` and what the schemes are called in tables."""


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
    for scheme in MAX_CODES if cells else ():
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


@codes.command("coap")
@click.argument("source", metavar="FILE_OR_MODULE", shell_complete=complete_files)
@click.option(
    "--scheme",
    type=click.Choice(list(SCHEMES)),
    default="line",
    show_default=True,
    help="Whose codes are in requests and links.",
)
@click.option("--only", multiple=True, metavar="PATH", help="The server has only what is at or below PATH; repeat it.")
@click.option("--below", metavar="PATH", help="The super-resource to ask [that with most resources].")
@click.option(
    "--block",
    type=click.Choice(list(map(str, BLOCK_SIZES))),
    default="64",
    show_default=True,
    help="Bytes of a block.",
)
@click.option("--token", type=click.IntRange(0, 8), default=0, show_default=True, metavar="N", help="Bytes of a token.")
@click.option(
    "--value", type=click.IntRange(1), default=12, show_default=True, metavar="N", help="Bytes of a resource's value."
)
@click.option(
    "--option",
    type=click.IntRange(1, 65535),
    default=CoapSettings().option,
    show_default=True,
    metavar="N",
    help="The number of the option that has a code as a number.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
def coap_command(
    source: str, scheme: str, only: tuple[str, ...], below: str | None, as_json: bool, block: str, **sizes: int
) -> None:
    """Show what codes save on CoAP.

    They are in paths of resources, so requests, discovery and super-resources get shorter.

    FILE_OR_MODULE has paths of resources, one a line (`/sensor/temp`; one that ends with / only collects those below
    it), or is a CSV file with a column path or path_template, or anything that `genus codes report` takes.

    \b
    genus codes coap examples/resources.txt
    genus codes coap examples/resources.txt --only /climate --below /climate/air --block 32
    """
    settings = CoapSettings(block=int(block), **sizes)
    report = measure_coap(read_resources(source), scheme=SCHEMES[scheme], only=only, below=below, settings=settings)
    if as_json:
        print_json({**asdict(report), "settings": asdict(settings)})
    else:
        _show_coap(source, report, settings)


def _show_coap(source: str, report: CoapReport, settings: CoapSettings) -> None:
    names = report.requests[0]
    assert isinstance(report.paths[0], PathCost)
    written, paths = report.paths[0], round(names.bytes / names.mean_bytes)
    _print(
        f"{counted(paths, 'path')} of {source}: {written.bytes:,} bytes as names, {written.mean_bytes:.2f} each",
        _path_table(report.paths),
    )
    _print("Options that name the resource in a request", _request_table(report.requests))
    found = f"Discovery of {counted(report.server, 'resource')} in blocks of {settings.block} bytes"
    _print(found, _traffic_table(report.discovery))
    if report.values:
        got = f"{counted(report.held, 'value')} of {counted(settings.value, 'byte')} below {report.below}"
        _print(got, _traffic_table(report.values))


def _print(title: str, table: Table) -> None:
    """Print a table below a title, which may be wider than the table."""
    click.echo(title)
    Console().print(table)


def _path_table(costs: Sequence[PathCost | NotApplicable]) -> Table:
    numbers = ("decimal", "mean", "saved", "uint", "mean", "saved")
    table = plain_table("codes", *numbers, numbers=numbers)
    by_form = {(cost.scheme, cost.form): cost for cost in costs if isinstance(cost, PathCost)}
    for cost in costs:
        if isinstance(cost, NotApplicable):
            table.add_row(f"{cost.scheme}: n/a, {cost.reason}")
        elif cost.form == "decimal":
            table.add_row(cost.scheme, *_shown(cost), *_shown(by_form[cost.scheme, "uint"]))
    return table


def _shown(cost: PathCost) -> tuple[str, str, str]:
    return f"{cost.bytes:,}", f"{cost.mean_bytes:.2f}", f"{cost.saved_percent:.0f}%"


def _request_table(costs: Iterable[PathCost]) -> Table:
    numbers = ("bytes", "mean", "saved")
    table = plain_table("path", *numbers, numbers=numbers)
    for cost in costs:
        table.add_row(f"{cost.scheme} codes: {cost.form}" if cost.scheme else cost.form, *_shown(cost))
    return table


def _traffic_table(costs: Iterable[TrafficCost]) -> Table:
    numbers = ("datagrams", "bytes")
    table = plain_table("by", *numbers, numbers=numbers)
    for cost in costs:
        table.add_row(cost.way, f"{cost.datagrams:,}", f"{cost.bytes:,}")
    return table
