"""`genus can broker`, `node` and `monitor`: participants of a live CAN bus."""

import math
import queue
import re
import sys
import threading
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
from rich.box import SIMPLE_HEAD
from rich.live import Live
from rich.table import Table

from genus.bus import EventChannel, open_bus, parse_qos
from genus.bus.types import QoS
from genus.cli._completion import complete_can_bus
from genus.cli._events import BUS_TYPES, as_text, complete_types, event_type, lines_of_json, load_for, make_event
from genus.cli._exit import stopped_by_signals
from genus.cli._groups import FOR, ParamType, print_json, wide_console
from genus.errors import BusError, EventError, GenusError, SpanError
from genus.filters import Subscription
from genus.model import Event

if TYPE_CHECKING:
    from genus.can.types import LiveBroker, LiveMonitor, MonitorSnapshot


class CanBus(ParamType[str]):
    """The address of a CAN bus."""

    name = "bus"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Refuse other addresses."""
        if not str(value).startswith("can:"):
            self.fail(f"{value!r} is no CAN bus; write for example can:udp_multicast", param, ctx)
        return str(value)


ADDRESS = click.argument("address", metavar="BUS", type=CanBus(), shell_complete=complete_can_bus)


def show_notice(notice: object) -> None:
    """Print a notice or a problem as a line: `deadline missed: channel Loop, event Loop(lane=2), deadline_ns ...`."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(notice).__name__).lower()
    fields = [f"{field} {getattr(notice, field)}" for field in getattr(notice, "__struct_fields__", ())]
    click.echo(f"{words}: {', '.join(fields)}" if fields else words, err=True)


TICK_S = 0.2
"""How often to check whether to stop, and whether the catalog changed."""


@click.command()
@ADDRESS
@click.option(
    "--catalog",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The catalog to bind by; read again when it grows.",
)
@click.option(
    "--tables",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where node numbers and channel classes are kept; created if it does not exist.",
)
@click.option("--standby", is_flag=True, help="Listen, and take over when the broker falls silent.")
@FOR
def broker(address: str, catalog: Path, tables: Path, standby: bool, lasts: float | None) -> None:
    """Give nodes their numbers and channels their event tags.

    It answers questions about the catalog, too.

    \b
    genus catalog register city.json examples/traffic.py
    genus can broker can:udp_multicast --catalog city.json --tables broker.json
    """
    from genus.can import open_broker

    notices = _Notices()
    with stopped_by_signals() as stop:
        live = open_broker(address, catalog, tables, standby=standby, on_notice=notices.show)
        with live:
            click.echo(f"broker of {len(live.catalog.types)} types on {address}, uid {live.uid:016x}", err=True)
            notices.release()
            _follow_catalog(live, catalog, stop, lasts)
            known, announced = len(live.numbers), len(live.channels)
    click.echo(f"nodes known: {known}, channels announced: {announced}", err=True)


def _follow_catalog(live: "LiveBroker", catalog: Path, stop: threading.Event, lasts: float | None) -> None:
    """Wait until the command is to end; a catalog that changes is read again."""
    seen = _changed_at(catalog)
    ends = math.inf if lasts is None else time.monotonic() + lasts
    while (left := ends - time.monotonic()) > 0 and not stop.wait(min(TICK_S, left)):
        changed = _changed_at(catalog)
        if changed is not None and changed != seen:
            seen = changed
            _reload(live)


class _Notices:
    """State: notices of the broker's thread, held back until the command has printed its first line."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: list[object] | None = []

    def show(self, notice: object) -> None:
        """Print a notice now, or when `release` is called."""
        with self._lock:
            if self._held is None:
                _show_broker_notice(notice)
            else:
                self._held.append(notice)

    def release(self) -> None:
        """Print what was held back, and from now on every notice at once."""
        with self._lock:
            for notice in self._held or ():
                _show_broker_notice(notice)
            self._held = None


def _show_broker_notice(notice: object) -> None:
    from genus.can.types import RoleChanged

    if isinstance(notice, RoleChanged):
        other = f" of {notice.other:016x}" if notice.other else ""
        click.echo("serving this bus" if notice.active else f"standby{other}", err=True)
    else:
        show_notice(notice)


def _changed_at(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return None


def _reload(live: "LiveBroker") -> None:
    """Bind by the catalog as it is now; if it cannot be read, the old one stays in use."""
    try:
        types = live.reload().types
    except (GenusError, OSError) as problem:
        click.echo(f"genus: {problem}", err=True)
    else:
        click.echo(f"catalog read again: {len(types)} types", err=True)


PATIENCE_S = 5.0
"""How long to wait for a broker before saying that none answers."""


class Quality(ParamType[QoS]):
    """A quality of service as text: hard:PERIOD[:OMISSIONS][:sporadic], soft:DEADLINE[:EXPIRES], none[:PRIORITY]."""

    name = "quality"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> QoS:
        """Read the text."""
        try:
            return parse_qos(str(value))
        except (BusError, SpanError) as problem:
            self.fail(str(problem), param, ctx)


@click.command()
@BUS_TYPES
@ADDRESS
@click.option(
    "-s",
    "--subscribe",
    "subscriptions",
    multiple=True,
    metavar="SUBSCRIPTION",
    shell_complete=complete_types,
    help='Print what matches, such as "Loop where lane > 1"; may be repeated.',
)
@click.option(
    "--publish",
    "type_name",
    metavar="TYPE",
    shell_complete=complete_types,
    help="Publish events of TYPE, one JSON object a line of stdin.",
)
@click.option(
    "--qos",
    type=Quality(),
    default="none",
    show_default=True,
    help="hard:10ms:1, hard:50ms:1:sporadic, soft:20ms:100ms or none.",
)
@click.option(
    "--carries", multiple=True, metavar="ATTRIBUTE", help="A context attribute that the events have; may be repeated."
)
@FOR
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def node(
    types: tuple[str, ...],
    address: str,
    subscriptions: tuple[str, ...],
    type_name: str | None,
    qos: QoS,
    carries: tuple[str, ...],
    lasts: float | None,
    as_json: bool,
) -> None:
    """Take part in a bus: print, publish, report problems.

    Prints the events that match, and publishes the lines of standard input. Ctrl-C ends it. The exit code is 1 if a
    channel could not be bound or an event was refused.

    \b
    genus can node can:udp_multicast -t examples/traffic.py --subscribe "Loop where lane > 1"
    echo '{"lane": 2}' | genus can node can:udp_multicast -t examples/traffic.py --publish Loop --qos soft:20ms
    """
    from genus.can import BindingFailed

    if not subscriptions and type_name is None:
        raise click.UsageError("give --subscribe, --publish or both")
    loaded = load_for(types, address)
    asked = [Subscription.parse(text, [*loaded, Event]) for text in subscriptions]
    refused = 0
    unbound: list[BindingFailed] = []

    def on_problem(problem: object) -> None:
        if isinstance(problem, BindingFailed):
            unbound.append(problem)
        show_notice(problem)

    ends = math.inf if lasts is None else time.monotonic() + lasts
    with stopped_by_signals() as stop, open_bus(address) as bus:
        for subscription in asked:
            bus.subscribe(subscription, lambda event: click.echo(as_text(event, as_json)), on_problem=on_problem)
            click.echo(f"listening on {address} for {subscription}", err=True)
        if asked:
            _warn_without_broker(bus.link, stop, min(ends, time.monotonic() + PATIENCE_S))
        if type_name is not None:
            channel: EventChannel[Any] = bus.channel(
                event_type(type_name, loaded), qos, on_problem=on_problem, carries=carries
            )
            channel.announce()
            click.echo(f"publishing {type_name} on {address}, {qos}", err=True)
            published, refused = _publish_lines(channel, stop, ends)
            click.echo(f"published {published}" + (f", refused {refused}" if refused else ""), err=True)
        if asked or lasts is not None:
            stop.wait(None if lasts is None else max(0.0, ends - time.monotonic()))
        counters = bus.traffic().link
    click.echo(", ".join(f"{what} {count}" for what, count in counters.items()), err=True)
    if refused or unbound:
        sys.exit(1)


def _warn_without_broker(link: object, stop: threading.Event, until: float) -> None:
    """Print a warning if no broker has sent the catalog in time: a subscriber needs it."""
    while not getattr(link, "is_bound", True) and not stop.wait(0.1):
        if time.monotonic() > until:
            click.echo("genus: no broker has answered yet; still listening (`genus can broker` is one)", err=True)
            return


def _publish_lines(channel: EventChannel[Any], stop: threading.Event, until: float) -> tuple[int, int]:
    """Publish the lines of standard input; returns how many events were published, and how many refused."""
    lines: queue.SimpleQueue[dict[str, Any] | Exception | None] = queue.SimpleQueue()
    threading.Thread(target=_read_lines, args=(lines,), daemon=True).start()
    published = refused = 0
    while not stop.is_set() and time.monotonic() < until:
        try:
            given = lines.get(timeout=0.2)
        except queue.Empty:
            continue
        if given is None:
            return published, refused
        if isinstance(given, Exception):
            raise given
        try:
            channel.publish(make_event(channel.type, given))
            published += 1
        except (click.ClickException, EventError) as problem:
            refused += 1
            reason = problem.message if isinstance(problem, click.ClickException) else str(problem)
            click.echo(f"genus: event {published + refused}: {reason}", err=True)
    if not stop.is_set():
        click.echo("genus: --for was over before the input had ended", err=True)
    return published, refused


def _read_lines(lines: "queue.SimpleQueue[dict[str, Any] | Exception | None]") -> None:
    try:
        for given in lines_of_json():
            lines.put(given)
        lines.put(None)
    except Exception as problem:
        lines.put(problem)


CATALOG = click.option(
    "--catalog", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="The catalog of the bus's types."
)
REFRESH_S = 0.5


@click.command()
@ADDRESS
@CATALOG
@FOR
@click.option("--json", "as_json", is_flag=True, help="No live table; one JSON document at the end.")
def monitor(address: str, catalog: Path | None, lasts: float | None, as_json: bool) -> None:
    """Show the rate, latency, jitter and losses of every channel.

    Deadlines missed and events expired, too. Without --catalog, channels are named by their event tags. Ctrl-C ends it.

    \b
    genus can monitor can:udp_multicast --catalog city.json
    """
    from genus.can import open_monitor

    with stopped_by_signals() as stop, open_monitor(address, catalog) as live:
        click.echo(f"listening on {address}", err=True)
        _watch(live, stop, lasts, live_table=not as_json)
        snapshot = live.snapshot()
    if as_json:
        shown = msgspec.to_builtins(snapshot)
        print_json({name: shown[name] for name in ("frames", "load", "channels", "dropped", "host")})
    else:
        wide_console().print(_table(snapshot))


def _watch(live: "LiveMonitor", stop: threading.Event, lasts: float | None, *, live_table: bool) -> None:
    """Wait until the command is to end; on a terminal, draw the table again and again."""
    ends = math.inf if lasts is None else time.monotonic() + lasts
    console = wide_console()
    shown = Live(console=console, auto_refresh=False, transient=True) if live_table and console.is_terminal else None
    with shown or nullcontext():
        while (left := ends - time.monotonic()) > 0 and not stop.wait(min(REFRESH_S, left)):
            if shown is not None:
                shown.update(_table(live.snapshot()), refresh=True)


def _table(snapshot: "MonitorSnapshot") -> Table:
    title = f"{snapshot.frames:,} frames, bus load {snapshot.load:.1%}, {len(snapshot.nodes)} nodes"
    table = Table(title=title, title_justify="left", caption="times in ms", box=SIMPLE_HEAD, padding=0, pad_edge=False)
    table.add_column("channel", overflow="fold", min_width=12)
    for name in ("node", "class", "events", "per s", "jitter", "late", "worst", "missed", "exp.", "lost"):
        table.add_column(name, justify="right", no_wrap=True)
    for channel in snapshot.channels:
        table.add_row(
            channel.channel, str(channel.node), channel.qos.lower(), f"{channel.events:,}", f"{channel.rate:,.1f}",
            f"{channel.jitter_ms:.3f}", _ms(channel.latency_ms), _ms(channel.worst_latency_ms),
            str(channel.missed), str(channel.expired), str(channel.lost),
        )  # fmt: skip
    return table


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
