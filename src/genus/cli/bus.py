"""`genus pub` and `sub`: a bus from the command line."""

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from itertools import islice
from typing import Any

import click

from genus.bus import Bus, open_bus
from genus.bus.listener import Inbox
from genus.cli.completing import complete_bus, complete_types
from genus.cli.events import as_text, event_type, lines_of_json, make_event, pairs
from genus.cli.loading import TYPES, load_all
from genus.cli.spans import Span
from genus.cli.stopping import stopped_by_signals, undisturbed
from genus.cli.words import counted
from genus.filters import Subscription
from genus.model import Event

BUS = click.option(
    "--bus",
    "address",
    default="ipc:",
    show_default=True,
    metavar="BUS",
    shell_complete=complete_bus,
    help="ipc:NAME, between processes of this machine, or can:INTERFACE?...",
)
SUBSCRIPTION = click.argument("subscription", default="Event", shell_complete=complete_types)
TICK_S = 0.1
"""So often it is looked whether to stop."""


@click.command()
@TYPES
@BUS
@click.argument("type_name", metavar="TYPE", shell_complete=complete_types)
@click.argument("values", nargs=-1, metavar="[ATTRIBUTE=VALUE]...")
@click.option("--stdin", "lines", is_flag=True, help="Read one JSON object of attributes a line instead of VALUES.")
def pub(types: tuple[str, ...], address: str, type_name: str, values: tuple[str, ...], lines: bool) -> None:
    """Publish events.

    One of TYPE with the given attributes, or one for each line of JSON. Times are ISO with a zone, or `now`; durations
    are like 20ms or 1.5s.

    \b
    genus pub -t examples/traffic.py Loop lane=2 place=A8/km31 time=now
    echo '{"lane": 2}' | genus pub -t examples/traffic.py Loop --stdin
    """
    if lines and values:
        raise click.UsageError("give ATTRIBUTE=VALUE or --stdin, not both")
    cls = event_type(type_name, load_all(types))
    with ExitStack() as stack:
        with undisturbed():
            bus = stack.enter_context(open_bus(shared(address)))
        count = _publish_all(bus, cls, lines_of_json() if lines else [pairs(values)], lines)
        say_reached(f"published {counted(count, 'event')}", bus.traffic().link)


def _publish_all(bus: Bus, cls: type[Event], all_given: Iterable[dict[str, Any]], lines: bool) -> int:
    count = 0
    for number, given in enumerate(all_given, 1):
        try:
            bus.publish(make_event(cls, given))
        except click.ClickException as problem:
            place = f"line {number}: " if lines else ""
            before = f" ({count} published before)" if count else ""
            raise click.ClickException(f"{place}{problem.message}{before}") from None
        count += 1
    return count


@click.command()
@TYPES
@BUS
@SUBSCRIPTION
@click.option("--count", type=click.IntRange(1), metavar="N", help="Stop after so many events.")
@click.option(
    "--timeout", type=Span(may_be_zero=True), help="Stop when none came for so long, like 10s; exit code 1 then."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def sub(
    types: tuple[str, ...], address: str, subscription: str, count: int | None, timeout: float | None, as_json: bool
) -> None:
    """Print events as they come.

    SUBSCRIPTION is like "Loop has place where speed > 30"; without it all events are printed. Ctrl-C ends it.

    \b
    genus sub -t examples/traffic.py "Loop where lane > 1"
    """
    asked = Subscription.parse(subscription, [*load_all(types), Event])
    with stopped_by_signals() as stop, open_bus(shared(address)) as bus:
        inbox = bus.inbox(asked, capacity=10_000)
        click.echo(f"listening on {address} for {asked}", err=True)
        try:
            for event in islice(_events(inbox, stop, timeout), count):
                click.echo(as_text(event, as_json))
        finally:
            say_losses(bus.traffic().link, inbox.counters.dropped)


def _events(inbox: Inbox[Any], stop: threading.Event, timeout: float | None) -> Iterator[Event]:
    """What comes, until it is told to stop; nothing for too long is a failure."""
    last = time.monotonic()
    while not stop.is_set():
        try:
            yield inbox.get(timeout=TICK_S)
        except TimeoutError:
            if timeout is not None and time.monotonic() - last >= timeout:
                raise click.ClickException(f"no event within {timeout:g} s") from None
        else:
            last = time.monotonic()


def shared(address: str) -> str:
    """An address by which other processes can be reached."""
    if address.startswith("local:"):
        raise click.UsageError("local: reaches nobody outside this command; use ipc:")
    return address


def say_reached(what: str, link: Any) -> None:
    """Say how many processes got it; events that were dropped on the way are a failure."""
    reached = link.get("processes reached", 0)
    whom = f"reached {counted(reached, 'process', 'processes')}" if reached else "nobody listened"
    click.echo(f"{what}; {whom}", err=True)
    if lost := {key: count for key, count in link.items() if key.startswith("dropped")}:
        raise click.ClickException("; ".join(f"{key}: {count}" for key, count in lost.items()))


def say_losses(link: Any, dropped: int) -> None:
    """Say what was lost on the way or could not be read."""
    losses = {key: count for key, count in link.items() if key.startswith(("dropped", "rejected"))}
    if dropped:
        losses["dropped: printing too slow"] = dropped
    for what, count in losses.items():
        click.echo(f"genus: {what}: {count}", err=True)
