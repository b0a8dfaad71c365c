"""`genus monitor` and `genus bus`: what happens on a bus, and who is there.

What is shown comes from other processes, so texts are cut and freed of control characters, and the number of rows is
bounded.
"""

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, nullcontext
from typing import Any

import click
import msgspec
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from genus.bus import Bus, open_bus, shown_address
from genus.cli._bus import SUBSCRIPTION, losses_of, shared
from genus.cli._completion import complete_bus
from genus.cli._events import BUS_TYPES, as_text, asked_of, load_all, load_for, types_option
from genus.cli._exit import stopped_by_signals
from genus.cli._groups import FOR, METRICS, SpanParam, counted, plain_table, print_json, rate, serve, wide_console
from genus.filters import Subscription
from genus.model import Event, name_of

ADDRESS = click.argument("address", metavar="BUS", shell_complete=complete_bus)
REFRESH_S = 0.5
RATE_S = 5.0
"""Rates are of this time, or of all if that is shorter."""
MAX_ROWS = 1000
"""Most types, or sources of a type, that are told apart; the others are added up."""
MAX_SHOWN = 20
"""Most wants of a participant, and most last values, that are shown."""
OTHERS = "(others)"
MAX_LENGTH = 200


# -- what was seen -----------------------------------------------------------------------------------------------------


class Row(msgspec.Struct, frozen=True):
    """The events of a type, or of one source of a type: how many, how many a second, and the last of them."""

    type: str
    source: str | None
    events: int
    rate: float
    last: str


class Tally:
    """State: the number of events of one row, and what it was at some moments before."""

    def __init__(self, now: float) -> None:
        self.events = 0
        self.last: Event | None = None
        self._marks: deque[tuple[float, int]] = deque([(now, 0)])

    def mark(self, now: float) -> None:
        """Remember the number of now, and forget those that are too old for a rate."""
        self._marks.append((now, self.events))
        while len(self._marks) > 1 and self._marks[1][0] <= now - RATE_S:
            self._marks.popleft()

    def rate(self, now: float) -> float:
        """Events a second in the last time."""
        since, before = self._marks[0]
        return (self.events - before) / (now - since) if now > since else 0.0


class Watch:
    """State: counts the events of a bus by type, or by type and source."""

    def __init__(self, *, by_source: bool, now: Callable[[], float] = time.monotonic) -> None:
        self._by_source, self._now = by_source, now
        self._tallies: dict[tuple[str, str | None], Tally] = {}
        self._lock = threading.Lock()
        self.began = now()

    def __call__(self, event: Event) -> None:
        """Count an event."""
        source = None if event.source is None else str(event.source)  # a number in some families
        key = name_of(type(event)), source if self._by_source else None
        with self._lock:
            tally = self._tallies.get(key) or self._new(key)
            tally.events += 1
            tally.last = event

    def _new(self, key: tuple[str, str | None]) -> Tally:
        if len(self._tallies) >= MAX_ROWS:
            key = OTHERS, None
        return self._tallies.setdefault(key, Tally(self.began))

    @property
    def seconds(self) -> float:
        """For how long it has counted."""
        return self._now() - self.began

    def rows(self) -> list[Row]:
        """Return what was counted, those with the most events first."""
        now = self._now()
        with self._lock:
            found = [
                Row(name, source, tally.events, tally.rate(now), "" if tally.last is None else as_line(tally.last))
                for (name, source), tally in self._tallies.items()
            ]
            for tally in self._tallies.values():
                tally.mark(now)
        return sorted(found, key=lambda row: (-row.events, row.type, row.source or ""))


def as_line(event: Event) -> str:
    """An event as a line that a terminal can show."""
    return printable(as_text(event, as_json=False))


def printable(value: object) -> str:
    """Return a text of another process, cut and without control characters.

    >>> printable("gate\\x1b[31m")
    'gate?[31m'
    """
    text = "".join(sign if sign.isprintable() else "?" for sign in str(value)[: MAX_LENGTH + 1])
    return text if len(text) <= MAX_LENGTH else f"{text[:MAX_LENGTH]}..."


# -- genus monitor -----------------------------------------------------------------------------------------------------


@click.command()
@BUS_TYPES
@ADDRESS
@SUBSCRIPTION
@FOR
@click.option("--json", "as_json", is_flag=True, help="No live table; one JSON document at the end.")
@METRICS
def monitor(
    types: tuple[str, ...], address: str, subscription: str, lasts: float | None, as_json: bool, metrics: str | None
) -> None:
    """Show the events and rates of a bus.

    Per type and source, those that match SUBSCRIPTION (default: all). Ctrl-C ends it. For the frames of a CAN bus, see
    `genus can monitor`.

    \b
    genus monitor -t examples/traffic.py ipc: "Loop where lane > 1"
    """
    loaded = load_for(types, address, stated=True)
    with stopped_by_signals() as stop, open_bus(shared(address)) as bus, ExitStack() as stack:
        asked = asked_of(bus, subscription, loaded)
        serve(stack, bus, metrics)
        watch = Watch(by_source=True)
        bus.subscribe(asked, watch)
        click.echo(f"listening on {shown_address(address)} for {asked}", err=True)
        _run(stop, lasts, lambda: _monitored(watch, bus), live=not as_json)
        rows, losses, seconds = watch.rows(), losses_of(bus.traffic().link), watch.seconds
    if as_json:
        print_json({"seconds": round(seconds, 3), "rows": rows, "losses": losses})
    elif wide_console().is_terminal:
        wide_console().print(_tables(rows, losses))
    else:
        _print_lines(_row_lines(rows), _loss_lines(losses))


def _monitored(watch: Watch, bus: Bus) -> RenderableType:
    return _tables(watch.rows(), losses_of(bus.traffic().link))


def _run(stop: threading.Event, lasts: float | None, draw: Callable[[], RenderableType], *, live: bool) -> None:
    """Wait until the command is to end; on a terminal, draw again and again."""
    ends = math.inf if lasts is None else time.monotonic() + lasts
    console = wide_console()
    table = Live(console=console, auto_refresh=False, transient=True) if live and console.is_terminal else None
    with table or nullcontext():
        while (left := ends - time.monotonic()) > 0 and not stop.wait(min(REFRESH_S, left)):
            if table is not None:
                table.update(draw(), refresh=True)


# -- genus bus ---------------------------------------------------------------------------------------------------------


class Seen(msgspec.Struct, frozen=True):
    """A participant of a network: what it says about itself, and what it wants."""

    uid: str
    host: str
    pid: str
    program: str
    interests: list[str]


class Overview(msgspec.Struct, frozen=True):
    """What there is on a bus; `participants` is None if the medium does not tell."""

    bus: str
    seconds: float
    participants: list[Seen] | None
    types: list[Row]
    last_values: list[str]
    losses: Mapping[str, int]
    link: Mapping[str, int]


@click.command("bus")
@types_option(required=False)
@ADDRESS
@click.option(
    "--for",
    "lasts",
    type=SpanParam(),
    default="5s",
    show_default=True,
    help="How long to watch events, like 30s or 2min.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON document instead of tables.")
def bus_command(types: tuple[str, ...], address: str, lasts: float, as_json: bool) -> None:
    """Show who is on a bus, what they want, and what happens there.

    Participants, their subscriptions, types and rates, last values and losses. Types that -t does not name are
    those that others state on the bus; events of types that nobody states are shown as of a type above, and counted
    among the losses.

    \b
    genus bus -t examples/traffic.py ipc:
    genus bus zenoh: --for 10s --json
    """
    load_all(types)
    with stopped_by_signals() as stop, open_bus(shared(address)) as bus:
        watch = Watch(by_source=False)
        bus.subscribe(Subscription(Event), watch)
        _run(stop, lasts, lambda: _overview_tables(_overview(address, bus, watch)), live=not as_json)
        found = _overview(address, bus, watch)
    if as_json:
        print_json(found)
    elif wide_console().is_terminal:
        wide_console().print(_overview_tables(found))
    else:
        _print_lines(_overview_lines(found))


def _overview(address: str, bus: Bus, watch: Watch) -> Overview:
    link = dict(bus.traffic().link)
    return Overview(
        shown_address(address),
        round(watch.seconds, 3),
        _participants(bus),
        watch.rows(),
        _last_values(bus),
        losses_of(link),
        link,
    )


def _participants(bus: Bus) -> list[Seen] | None:
    from genus.net import NetLink

    link = bus.link
    if not isinstance(link, NetLink):
        return None
    interests: dict[str, list[str]] = {}
    for interest in link.interest_texts():
        hops = f" ({counted(interest.hops, 'gateway')} away)" if interest.hops else ""
        interests.setdefault(interest.speaker, []).append(printable(interest.text) + hops)
    found = [_seen(each.uid, each.about, interests.get(each.uid, [])) for each in link.participants()[:MAX_ROWS]]
    return sorted(found, key=lambda seen: (seen.host, seen.program, seen.pid, seen.uid))


def _seen(uid: str, about: Mapping[str, Any], interests: Iterable[str]) -> Seen:
    host, pid, program = (printable(about.get(name, "")) for name in ("host", "pid", "program"))
    return Seen(uid, host, pid, program, sorted(interests))


def _last_values(bus: Bus) -> list[str]:
    kept = [] if bus.link is None else bus.link.last_values(Subscription(Event))
    return sorted(map(as_line, kept))


# -- as tables and as lines --------------------------------------------------------------------------------------------


def _tables(rows: list[Row], losses: Mapping[str, int]) -> RenderableType:
    table = plain_table("type", "source", "events", "per s", "last", numbers=("events", "per s"))
    for row in rows:
        table.add_row(Text(row.type), Text(_source(row)), f"{row.events:,}", _rate(row), Text(row.last))
    return Group(table, *(Text(line) for line in _loss_lines(losses)))


def _overview_tables(found: Overview) -> RenderableType:
    parts: list[RenderableType] = [Text(_headline(found))]
    if found.participants:
        who = plain_table("participant", "host", "pid", "program", "interest")
        for seen in found.participants:
            interests = Text("\n".join(_shortened(seen.interests)) or "-")
            who.add_row(Text(seen.uid[:8]), Text(seen.host), Text(seen.pid), Text(seen.program), interests)
        parts.append(who)
    if found.types:
        types = plain_table("type", "events", "per s", "last", numbers=("events", "per s"))
        for row in found.types:
            types.add_row(Text(row.type), f"{row.events:,}", _rate(row), Text(row.last))
        parts.append(types)
    rest = [*_last_lines(found.last_values), *_loss_lines(found.losses)]
    return Group(*parts, *(Text(line) for line in rest))


def _overview_lines(found: Overview) -> Iterator[str]:
    yield _headline(found)
    for seen in found.participants or ():
        yield f"participant {seen.uid[:8]}: {seen.program}, pid {seen.pid} on {seen.host}"
        yield from (f"  wants {interest}" for interest in _shortened(seen.interests))
    yield from _row_lines(found.types)
    yield from _last_lines(found.last_values)
    yield from _loss_lines(found.losses)


def _headline(found: Overview) -> str:
    events = counted(sum(row.events for row in found.types), "event")
    who = "" if found.participants is None else f"{counted(len(found.participants), 'other participant')}, "
    return f"on {found.bus} {who}{events} in {found.seconds:.1f} s"


def _row_lines(rows: Iterable[Row]) -> Iterator[str]:
    for row in rows:
        source = f" from {_source(row)}" if row.source is not None else ""
        yield f"type {row.type}{source}: {counted(row.events, 'event')}, {_rate(row)}/s, last {row.last}"


def _last_lines(values: list[str]) -> list[str]:
    return [f"last value {value}" for value in _shortened(values)]


def _loss_lines(losses: Mapping[str, int]) -> list[str]:
    return [f"{printable(what)}: {count:,}" for what, count in losses.items()]


def _shortened(texts: list[str]) -> list[str]:
    more = len(texts) - MAX_SHOWN
    return [*texts[:MAX_SHOWN], f"and {more:,} more"] if more > 0 else texts


def _source(row: Row) -> str:
    return "-" if row.source is None else printable(row.source)


def _rate(row: Row) -> str:
    return rate(row.rate, 1.0).removesuffix("/s")


def _print_lines(*lines: Iterable[str]) -> None:
    for some in lines:
        for line in some:
            click.echo(line)
