"""`genus can node`: a participant of a live bus."""

import math
import queue
import sys
import threading
import time
from typing import Any

import click

from genus.bus import Bus, EventChannel, Hard, NonReal, Soft, open_bus
from genus.bus.qos import QoS
from genus.cli.can_bus import ADDRESS, can_address, say
from genus.cli.completing import complete_types
from genus.cli.events import as_text, event_type, lines_of_json, make_event
from genus.cli.loading import TYPES, load_all
from genus.cli.spans import FOR
from genus.cli.stopping import stopped_by_signals
from genus.cli.values import ParamType
from genus.errors import BusError, EventError
from genus.filters import Subscription
from genus.model import Event

PATIENCE_S = 5.0


class Quality(ParamType[QoS]):
    """A quality of service as text: hard:PERIOD[:OMISSIONS], soft:DEADLINE[:EXPIRES], none[:PRIORITY]."""

    name = "quality"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> QoS:
        """Read the text."""
        kind, *parts = str(value).split(":")
        try:
            match kind, parts:
                case "hard", [period]:
                    return Hard(period=period)
                case "hard", [period, omissions]:
                    return Hard(period=period, omissions=int(omissions))
                case "soft", [deadline]:
                    return Soft(deadline=deadline)
                case "soft", [deadline, expires]:
                    return Soft(deadline=deadline, expires=expires)
                case "none", []:
                    return NonReal()
                case "none", [priority]:
                    return NonReal(priority=int(priority))
        except (BusError, ValueError) as problem:
            self.fail(str(problem), param, ctx)
        self.fail(f"{value!r} is none of hard:PERIOD[:OMISSIONS], soft:DEADLINE[:EXPIRES], none[:PRIORITY]", param, ctx)


@click.command()
@TYPES
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
@click.option("--qos", type=Quality(), default="none", show_default=True, help="hard:10ms:1, soft:20ms:100ms or none.")
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
    """Take part in a bus: print, publish, tell of every trouble.

    What is subscribed to is printed, and what stdin says is published. Ctrl-C ends it.

    \b
    genus can node can:udp_multicast -t examples/traffic.py --subscribe "Loop where lane > 1"
    echo '{"lane": 2}' | genus can node can:udp_multicast -t examples/traffic.py --publish Loop --qos soft:20ms
    """
    if not subscriptions and type_name is None:
        raise click.UsageError("give --subscribe, --publish or both")
    can_address(address)
    loaded = load_all(types)
    asked = [Subscription.parse(text, [*loaded, Event]) for text in subscriptions]
    refused = 0
    ends = math.inf if lasts is None else time.monotonic() + lasts
    with stopped_by_signals() as stop, open_bus(address) as bus:
        for subscription in asked:
            bus.subscribe(subscription, lambda event: click.echo(as_text(event, as_json)))
            bus.hear(subscription, say)
            click.echo(f"listening on {address} for {subscription}", err=True)
        if asked:
            _say_if_nobody_answers(bus, stop, min(ends, time.monotonic() + PATIENCE_S))
        if type_name is not None:
            channel: EventChannel[Any] = bus.channel(event_type(type_name, loaded), qos)
            channel.announce(say, carries=carries)
            click.echo(f"publishing {type_name} on {address}, {qos}", err=True)
            published, refused = _publish_lines(channel, stop, ends)
            click.echo(f"published {published}" + (f", refused {refused}" if refused else ""), err=True)
        if asked or lasts is not None:
            stop.wait(None if lasts is None else max(0.0, ends - time.monotonic()))
        counters = bus.traffic().link
    click.echo(", ".join(f"{what} {count}" for what, count in counters.items()), err=True)
    if refused:
        sys.exit(1)


def _say_if_nobody_answers(bus: Bus, stop: threading.Event, until: float) -> None:
    """A subscriber needs the catalog: say so if it does not come, and go on waiting."""
    from genus.can.live.link import CanLink

    while isinstance(bus.link, CanLink) and bus.link.node.catalog is None and not stop.wait(0.1):
        if time.monotonic() > until:
            click.echo("genus: no broker has answered yet; still listening (`genus can broker` is one)", err=True)
            return


def _publish_lines(channel: EventChannel[Any], stop: threading.Event, until: float) -> tuple[int, int]:
    """Publish what standard input says until it ends or the command does; how many went, and how many not."""
    lines: queue.SimpleQueue[dict[str, Any] | Exception | None] = queue.SimpleQueue()
    threading.Thread(target=_read_lines, args=(lines,), daemon=True).start()
    published = refused = 0
    while not stop.is_set() and time.monotonic() < until:
        try:
            given = lines.get(timeout=0.2)
        except queue.Empty:
            continue
        if given is None:
            break
        if isinstance(given, Exception):
            raise given
        try:
            channel.publish(make_event(channel.type, given))
            published += 1
        except (click.ClickException, EventError) as problem:
            refused += 1
            said = problem.message if isinstance(problem, click.ClickException) else str(problem)
            click.echo(f"genus: event {published + refused}: {said}", err=True)
    return published, refused


def _read_lines(lines: "queue.SimpleQueue[dict[str, Any] | Exception | None]") -> None:
    try:
        for given in lines_of_json():
            lines.put(given)
        lines.put(None)
    except Exception as problem:
        lines.put(problem)
