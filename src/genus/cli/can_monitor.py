"""`genus can monitor`: what goes on on a live bus."""

import math
import threading
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.live import Live
from rich.table import Table

from genus.catalog import Catalog
from genus.cli.can_bus import ADDRESS, can_address
from genus.cli.spans import FOR
from genus.cli.stopping import stopped_by_signals
from genus.cli.words import print_json

if TYPE_CHECKING:
    from genus.can.live.host import LiveHost
    from genus.can.monitor import Line, Monitor

CATALOG = click.option(
    "--catalog", type=click.Path(dir_okay=False, path_type=Path), help="The catalog of the bus's types."
)
REFRESH_S = 0.5


@click.command()
@ADDRESS
@CATALOG
@FOR
@click.option("--json", "as_json", is_flag=True, help="Nothing live; one JSON document at the end.")
def monitor(address: str, catalog: Path | None, lasts: float | None, as_json: bool) -> None:
    """Show the rate, latency, jitter and losses of every channel.

    Deadlines missed and events expired, too. Without --catalog, channels are named by their event tags. Ctrl-C ends it.

    \b
    genus can monitor can:udp_multicast --catalog city.json
    """
    from genus.can.live.link import open_host  # python-can is an extra
    from genus.can.monitor import Monitor

    where = can_address(address)
    machine = Monitor(where.timing, None if catalog is None else Catalog.load(catalog))
    with stopped_by_signals() as stop:
        host = open_host(machine, where)
        click.echo(f"listening on {address}", err=True)
        _watch(host, machine, stop, lasts, live=not as_json)
        summary, table = host.call(lambda now: _summary(machine, now)), _table(host, machine)
        host.close()
    if as_json:
        print_json({**summary, "host": dict(host.counters())})
    else:
        Console().print(table)


def _watch(host: "LiveHost", machine: "Monitor", stop: threading.Event, lasts: float | None, *, live: bool) -> None:
    """Until it is told to stop or its time is over; on a terminal the table is drawn anew meanwhile."""
    ends = math.inf if lasts is None else time.monotonic() + lasts
    console = Console()
    shown = Live(console=console, auto_refresh=False, transient=True) if live and console.is_terminal else None
    with shown or nullcontext():
        while (left := ends - time.monotonic()) > 0 and not stop.wait(min(REFRESH_S, left)):
            if shown is not None:
                shown.update(_table(host, machine), refresh=True)


def _summary(machine: "Monitor", now: int) -> dict[str, Any]:
    return {
        "frames": machine.frames,
        "load": machine.load(),
        "channels": msgspec.to_builtins(machine.lines(now)),
        "dropped": dict(machine.problems()),
    }


def _table(host: "LiveHost", machine: "Monitor") -> Table:
    lines: list[Line] = host.call(machine.lines)
    title = f"{machine.frames:,} frames, bus load {machine.load():.1%}, {len(machine.nodes)} nodes"
    table = Table(title=title, title_justify="left", caption="times in ms", box=SIMPLE_HEAD, padding=0, pad_edge=False)
    table.add_column("channel", overflow="fold", min_width=12)
    for name in ("node", "class", "events", "per s", "jitter", "late", "worst", "missed", "exp.", "lost"):
        table.add_column(name, justify="right", no_wrap=True)
    for line in lines:
        table.add_row(
            line.channel, str(line.node), line.qos.lower(), f"{line.events:,}", f"{line.rate:,.1f}",
            f"{line.jitter_ms:.3f}", _ms(line.latency_ms), _ms(line.worst_latency_ms),
            str(line.missed), str(line.expired), str(line.lost),
        )  # fmt: skip
    return table


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
