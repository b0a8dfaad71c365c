"""Publishing to 1, 10 and 1000 handlers: Genus against the event libraries people use.

Every handler increments one counter. In the last column each handler is interested in a quarter of the events: the
others test that in an `if` inside the handler, which is how they are used, and Genus in the subscription.
"""

import importlib
import sys
from collections.abc import Callable
from typing import Any

import blinker
import pyee
from pubsub import pub

from bench.timing import Contestant, goal, human, least_ns, markdown
from genus import Event, open_bus, this

CASES = (("1", 1, False), ("10", 10, False), ("1000", 1000, False), ("1000, 25 % match", 1000, True))


GOALS = {"zope.event (untyped)": 1.0, "blinker": 11.0}
"""How many times slower with one handler."""


class Reading(Event):
    value: int


EVENT = Reading(value=3)
Handlers = list[Callable[..., None]]


def handlers(count: int, selective: bool) -> Handlers:
    """So many different functions, each with a counter of its own."""
    found = []
    for number in range(count):
        names: dict[str, Any] = {"count": 0}
        body = f"if event.value == {number % 4}: count += 1" if selective else "count += 1"
        exec(f"def handle(event):\n    global count\n    {body}", names)
        found.append(names["handle"])
    return found


def genus(count: int, selective: bool) -> Contestant:
    bus = open_bus("local:")
    readings = bus.collection(Reading)
    for number, handler in enumerate(handlers(count, False)):
        readings.subscribe(handler, where=this.value == number % 4 if selective else None)
    return "readings.publish(event)", {"readings": readings, "event": EVENT}


def genus_bus(count: int, selective: bool) -> Contestant:
    bus = open_bus("local:")
    for number, handler in enumerate(handlers(count, False)):
        bus.collection(Reading).subscribe(handler, where=this.value == number % 4 if selective else None)
    return "bus.publish(event)", {"bus": bus, "event": EVENT}


def genus_taken_early(count: int, selective: bool) -> Contestant:
    """The same by a reference to `publish` that was taken before there was a handler or an event."""
    readings = open_bus("local:").collection(Reading)
    publish = readings.publish
    for number, handler in enumerate(handlers(count, False)):
        readings.subscribe(handler, where=this.value == number % 4 if selective else None)
    return "publish(event)", {"publish": publish, "event": EVENT}


def zope_event(count: int, selective: bool) -> Contestant:
    module = fresh_zope_event()
    module.subscribers.extend(handlers(count, selective))
    return "zope_event.notify(event)", {"zope_event": module, "event": EVENT}


def zope_classhandler(count: int, selective: bool) -> Contestant:
    module = fresh_zope_event()
    by_class = importlib.import_module("zope.event.classhandler")
    for handler in handlers(count, selective):
        by_class.handler(Reading, handler)
    assert module.subscribers == [by_class.dispatch]
    return "zope_event.notify(event)", {"zope_event": module, "event": EVENT}


def fresh_zope_event() -> Any:
    """Its subscribers are global to the module: each contestant gets a module of its own."""
    for name in ("zope.event", "zope.event.classhandler"):
        sys.modules.pop(name, None)
    return importlib.import_module("zope.event")


def pyee_emitter(count: int, selective: bool) -> Contestant:
    emitter = pyee.EventEmitter()
    for handler in handlers(count, selective):
        emitter.on("reading", handler)
    return "emitter.emit('reading', event)", {"emitter": emitter, "event": EVENT}


def blinker_signal(count: int, selective: bool) -> Contestant:
    signal = blinker.Signal()
    kept = handlers(count, selective)
    for handler in kept:
        signal.connect(handler)
    return "signal.send(event)", {"signal": signal, "event": EVENT, "kept": kept}


def pypubsub(count: int, selective: bool) -> Contestant:
    topic = f"reading{count}{selective}"
    kept = handlers(count, selective)
    for handler in kept:
        pub.subscribe(handler, topic)
    return f"send({topic!r}, event=event)", {"send": pub.sendMessage, "event": EVENT, "kept": kept}


LIBRARIES = {
    "genus": genus,
    "genus, by `bus.publish`": genus_bus,
    "genus, `publish` taken before the first event": genus_taken_early,
    "zope.event (untyped)": zope_event,
    "zope classhandler (typed)": zope_classhandler,
    "pyee": pyee_emitter,
    "blinker": blinker_signal,
    "PyPubSub": pypubsub,
}


def run() -> dict[str, dict[str, float]]:
    """Nanoseconds per published event, by library and case."""
    times: dict[str, dict[str, float]] = {name: {} for name in LIBRARIES}
    for case, count, selective in CASES:
        made = {name: library(count, selective) for name, library in LIBRARIES.items()}
        for name, ns in least_ns(made).items():
            times[name][case] = ns
    return times


def table(times: dict[str, dict[str, float]]) -> str:
    """Times, and how many times Genus is faster."""
    head = ["library", *(case for case, *_ in CASES)]
    rows = []
    for name, row in times.items():
        ratios = {case: ns / times["genus"][case] for case, ns in row.items()}
        cells = {case: human(ns) + ("" if name == "genus" else f", {ratios[case]:.2f}×") for case, ns in row.items()}
        if name in GOALS:
            cells["1"] = goal(cells["1"], round(ratios["1"], 2), at_least=GOALS[name], unit="×")
        rows.append([name, *cells.values()])
    return markdown(head, rows)


if __name__ == "__main__":
    print(table(run()))
