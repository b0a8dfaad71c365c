"""`genus gateway`: carry events between buses, as a file says."""

import math
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from genus.cli._events import load_types
from genus.cli._exit import stopped_by_signals
from genus.cli._format import FOR, counted, plain_table, print_json
from genus.cli._metrics import METRICS, serve

if TYPE_CHECKING:
    from genus.net import Gateway
    from genus.net.types import GatewayFile, GatewayStatus

REFRESH_S = 0.5
PLAIN_S = 10.0
"""How often the table is printed where it cannot be drawn again in place."""
COLUMNS = ("asked", "heard", "wanted", "crossed", "unwanted", "duplicates", "lost", "spooled", "limited")
HEADINGS = {"duplicates": "copies"}


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--check", is_flag=True, help="Read the file, say what is wrong, and open no bus.")
@FOR
@click.option("--json", "as_json", is_flag=True, help="No table; one JSON document at the end.")
@METRICS
def gateway(file: Path, check: bool, lasts: float | None, as_json: bool, metrics: str | None) -> None:
    """Carry events between buses, those that somebody wants.

    FILE names the buses and what may cross; see the guide on gateways. The table shows per side what it wanted and what
    was sent to it. Ctrl-C ends it.

    \b
    genus gateway city.toml
    genus gateway --check city.toml
    """
    from genus.net import load_gateway

    loaded = load_gateway(file, load_types)
    if check:
        click.echo(_described(loaded))
        return
    with stopped_by_signals() as stop, ExitStack() as stack:
        running = stack.enter_context(loaded.open())
        serve(stack, running, metrics)
        click.echo(f"gateway between {', '.join(side.address for side in loaded.sides)}", err=True)
        _watch(running, stop, lasts, shows_table=not as_json)
        status = running.status()
    if as_json:
        print_json(msgspec.to_builtins(status))
    else:
        Console().print(_table(status))


def _described(loaded: "GatewayFile") -> str:
    sides = "; ".join(f"{side.name} ({side.address})" for side in loaded.sides)
    doubled = f", doubled as {loaded.name}" if loaded.name else ""
    return f"{loaded.path}: {len(loaded.types)} types, {len(loaded.sides)} sides{doubled}: {sides}"


def _watch(running: "Gateway", stop: threading.Event, lasts: float | None, *, shows_table: bool) -> None:
    """Wait until the command is to end; draw the table again and again, or print it now and then."""
    ends = math.inf if lasts is None else time.monotonic() + lasts
    console = Console()
    is_live = shows_table and console.is_terminal
    shown = Live(console=console, auto_refresh=False, transient=True) if is_live else None
    printed_at = time.monotonic()
    with shown or nullcontext():
        while (left := ends - time.monotonic()) > 0 and not stop.wait(min(REFRESH_S, left)):
            if shown is not None:
                shown.update(_table(running.status()), refresh=True)
            elif shows_table and time.monotonic() - printed_at >= PLAIN_S:
                printed_at = time.monotonic()
                click.echo(_line(running.status()))


def _table(status: "GatewayStatus") -> Group | Table:
    headings = [HEADINGS.get(column, column) for column in COLUMNS]
    table = plain_table("side", *headings, numbers=headings)
    for side in status.sides:
        table.add_row(side.name, *(f"{getattr(side, column):,}" for column in COLUMNS))
    notes = [Text(note) for note in _notes(status)]
    return Group(table, *notes) if notes else table


def _notes(status: "GatewayStatus") -> Iterator[str]:
    """Yield what the numbers of the table do not say."""
    if not status.is_active:
        yield f"standing by; {counted(status.held, 'event')} not seen to cross yet"
    for side in status.sides:
        if not side.is_connected:
            yield f"{side.name} is not connected"
        if side.waiting:
            yield f"{side.name}: {counted(side.waiting, 'event')} waiting"
        if side.refused:
            yield f"{side.name}: {counted(side.refused, 'subscription')} only for what the scopes keep back"


def _line(status: "GatewayStatus") -> str:
    """Return the counters that are not zero, as one line."""
    sides = []
    for side in status.sides:
        counts = ", ".join(f"{getattr(side, column):,} {column}" for column in COLUMNS if getattr(side, column))
        sides.append(f"{side.name}: {counts or 'nothing yet'}")
    return "; ".join([*sides, *_notes(status)])
