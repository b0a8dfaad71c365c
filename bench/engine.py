"""Very many subscriptions on one bus: publishing, changing, counting, and threads that do all of it.

The mixed population has seven forms of predicates, each with constants of its own and each true of about one event in
a hundred: equality with a text, equality and a range, a box of two ranges, a part of a text, alternatives, arithmetic,
and presence with a bound. The baseline is generated code with one `if` for each subscription, which is what a bus does
with few. Both must call the same number of handlers.
"""

import random
import threading
import time
from collections.abc import Callable
from functools import reduce
from operator import and_
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.timing import goal, human, markdown
from genus import Bus, Event, Maybe, Subscription, open_bus, this
from genus.model._event import EventMeta
from genus.targets import dispatch

Population = Callable[[random.Random], Subscription]

EVENTS = 200
WINDOWS = 5
CHANGES = 100
ATTRIBUTES, TESTED, WIDTH = 20, 10, 0.5
NAMES = [f"a{number}" for number in range(ATTRIBUTES)]
Wide: Any = EventMeta("Wide", (Event,), {"__annotations__": dict.fromkeys(NAMES, float)})
Bounds = npt.NDArray[np.float64]


class Reading(Event):
    station: str
    zone: int
    speed: float
    load: float
    label: Maybe[str] = None
    axles: Maybe[int] = None


class Box(Event):
    x: float
    y: float


def mixed(rng: random.Random) -> Subscription:
    """A subscription of one of seven forms, which about 1 % of the events match."""
    low, part = rng.random() * 99, f"{rng.randrange(100):02}"
    match rng.randrange(7):
        case 0:
            return Subscription(Reading, where=this.station == f"s{rng.randrange(100)}")
        case 1:
            return Subscription(Reading, where=(this.zone == rng.randrange(20)) & (this.speed > rng.uniform(70, 90)))
        case 2:
            where = this.speed.between(low * 0.9, low * 0.9 + 10) & this.load.between(low * 0.9, low * 0.9 + 10)
            return Subscription(Reading, where=where)
        case 3:
            return Subscription(Reading, where=this.label.contains(f"<{part}>"))
        case 4:
            return Subscription(Reading, where=(this.speed > rng.uniform(99, 100)) | (this.load < rng.uniform(0, 1)))
        case 5:
            return Subscription(Reading, where=this.speed * 3.6 + this.load > rng.uniform(425, 435))
    return Subscription(Reading, has="axles", where=this.load > rng.uniform(96, 100))


def reading(rng: random.Random) -> Reading:
    return Reading(
        station=f"s{rng.randrange(100)}",
        zone=rng.randrange(20),
        speed=rng.random() * 100,
        load=rng.random() * 100,
        label=f"lane <{rng.randrange(100):02}> of {rng.randrange(9)}",
        axles=3 if rng.random() < 0.5 else None,
    )


def box(rng: random.Random) -> Subscription:
    """A box of a tenth of each attribute: 1 % of the events."""
    x, y = rng.random() * 0.9, rng.random() * 0.9
    return Subscription(Box, where=this.x.between(x, x + 0.1) & this.y.between(y, y + 0.1))


def point(rng: random.Random) -> Box:
    return Box(x=rng.random(), y=rng.random())


class Sink:
    """A subscriber of generated code."""

    refuses = False
    counted = 0

    def __init__(self, subscription: Subscription, deliver: Callable[[Event], object]) -> None:
        self.subscription, self.deliver = subscription, deliver

    def failed(self, _: Event, problem: Exception) -> None:
        raise problem


def publish_table(sizes: tuple[int, ...] = (10_000, 50_000)) -> str:
    """Publishing to many subscriptions, against generated code; and what a change costs."""
    head = ["subscriptions", "publish", "without the handlers", "one `if` each", "times faster", "matches",
            "subscribing, each", "first event after a change, more than others"]  # fmt: skip
    rows = [[f"{size:,} mixed", *publish_row(size, mixed, reading)] for size in sizes]
    rows.append([f"{sizes[-1]:,} boxes", *publish_row(sizes[-1], box, point)])
    rows.append(["1,000,000 of ten intervals", *million_row()])
    return markdown(head, rows)


def publish_row(size: int, make: Population, event: Callable[[random.Random], Event]) -> list[str]:
    rng = random.Random(size)
    calls = 0

    def handle(_: Event) -> None:
        nonlocal calls
        calls += 1

    sinks = [Sink(make(rng), handle) for _ in range(size)]
    events = [event(rng) for _ in range(EVENTS)]
    bus = open_bus("local:")
    started = time.process_time()
    for sink in sinks:
        bus.subscribe(sink.subscription, handle)
    each = (time.process_time() - started) / size
    generated = dispatch.compile(type(events[0]), sinks).deliver
    ours, baseline = (least_s(function, events) for function in (bus.publish, generated))
    matches = calls / ((WINDOWS + 1) * EVENTS) / 2
    assert sum(counts.delivered for counts in bus.traffic().subscriptions.values()) * 2 == calls, "they disagree"
    after = after_change_s(bus, make, events, rng)
    handling = least_s(call_each([handle] * round(matches)), events)
    alone = human((ours - handling) * 1e9)
    if make is box:
        alone = goal(alone, (ours - handling) * 1e3, at_most=0.15, unit=" ms")
    return [human(ours * 1e9), alone, human(baseline * 1e9), f"{baseline / ours:.0f}×",
            f"{matches:.0f}", human(each * 1e9), human(max(0.0, after - ours) * 1e9)]  # fmt: skip


def least_s(publish: Callable[[Any], object], events: list[Any]) -> float:
    """Seconds of CPU per event, the least of several windows."""
    times = []
    for _ in range(WINDOWS + 1):
        started = time.process_time()
        for event in events:
            publish(event)
        times.append((time.process_time() - started) / len(events))
    return min(times[1:])


def call_each(handlers: list[Callable[[Any], object]]) -> Callable[[Any], object]:
    """Call handlers with an event: what of publishing is their own time."""

    def publish(event: Any) -> None:
        for handler in handlers:
            handler(event)

    return publish


def after_change_s(bus: Bus, make: Population, events: list[Any], rng: random.Random) -> float:
    """Seconds of the first event after a subscription was added or cancelled, the median."""
    times: list[float] = []
    added: list[Any] = []
    for number in range(CHANGES):
        if number % 2:
            added.pop().cancel()
        else:
            added.append(bus.subscribe(make(rng), id))
        started = time.process_time()
        bus.publish(events[number])
        times.append(time.process_time() - started)
    return sorted(times)[CHANGES // 2]


def million_row(size: int = 1_000_000) -> list[str]:
    """The workload of REIN and OpIndex: an interval of width 0.5 on each of 10 of 20 attributes, uniform in [0, 1]."""
    rng = np.random.default_rng(size)
    low, high = random_bounds(rng, size)
    bus, seen = open_bus("local:"), [0]

    def handle(_: Event) -> None:
        seen[0] += 1

    started = time.process_time()
    for rows in zip(low, high, strict=True):
        bus.subscribe(intervals(*rows), handle)
    each = (time.process_time() - started) / size
    values = [rng.random(ATTRIBUTES).tolist() for _ in range(EVENTS)]
    events = [Wide(**dict(zip(NAMES, row, strict=True))) for row in values]
    ours = least_s(bus.publish, events)
    matches = seen[0] / ((WINDOWS + 1) * EVENTS)
    handling = least_s(call_each([handle] * round(matches)), events)
    return [human(ours * 1e9), human((ours - handling) * 1e9), "–", "–", f"{matches:.0f}", human(each * 1e9), "–"]


def random_bounds(rng: np.random.Generator, size: int) -> tuple[Bounds, Bounds]:
    """Bounds [subscription, attribute]; NaN where there is no test."""
    low = np.full((size, ATTRIBUTES), np.nan)
    tested = np.argsort(rng.random((size, ATTRIBUTES), dtype=np.float32), axis=1)[:, :TESTED]
    np.put_along_axis(low, tested, rng.random((size, TESTED)) * (1 - WIDTH), axis=1)
    return low, low + WIDTH


def intervals(low: Bounds, high: Bounds) -> Subscription:
    tested = [(NAMES[place], low[place], high[place]) for place in np.flatnonzero(low == low)]
    return Subscription(Wide, where=reduce(and_, (this[name].between(float(a), float(b)) for name, a, b in tested)))


def traffic_ms(size: int = 10_000) -> tuple[float, float]:
    """Milliseconds of the first and of a later `bus.traffic()`."""
    rng = random.Random(size)
    bus = open_bus("local:")
    for _ in range(size):
        bus.subscribe(mixed(rng), id)
    for _ in range(20):
        bus.publish(reading(rng))
    times = []
    for _ in range(5):
        started = time.process_time()
        bus.traffic()
        times.append((time.process_time() - started) * 1e3)
    return times[0], min(times[1:])


def stations(rng: random.Random) -> Subscription:
    """A subscription to one of a thousand stations."""
    return Subscription(Reading, where=this.station == f"s{rng.randrange(1_000)}")


def threads(make: Population, count: int = 8, size: int = 1_000, seconds: float = 4.0) -> tuple[float, float]:
    """Publishes and changes per second of threads that do both on one bus, and check what they get.

    Each thread subscribes to its own station, publishes to it, and cancels. An event between the two must be delivered
    once, and none before or after.
    """
    rng = random.Random(size)
    bus = open_bus("local:")
    for _ in range(size):
        bus.subscribe(make(rng), id)
    stop, totals, wrong = threading.Event(), [[0, 0] for _ in range(count)], []

    def run(number: int) -> None:
        local, total = random.Random(number), totals[number]
        name = f"thread {number}"
        while not stop.is_set():
            got: list[Event] = []
            listener = bus.subscribe(Subscription(Reading, where=this.station == name), got.append)
            sent = [Reading(station=name, zone=1, speed=local.random(), load=9.0) for _ in range(20)]
            for event in sent:
                bus.publish(event)
            listener.cancel()
            bus.publish(sent[0])
            total[0] += 21
            total[1] += 2
            if got != sent or listener.counters.delivered != len(sent):
                wrong.append((len(got), len(sent), listener.counters.delivered))

    workers = [threading.Thread(target=run, args=[number]) for number in range(count)]
    started = time.perf_counter()
    for worker in workers:
        worker.start()
    time.sleep(seconds)
    stop.set()
    for worker in workers:
        worker.join()
    took = time.perf_counter() - started
    assert not wrong, f"lost or doubled: {wrong[:3]}"
    return sum(one[0] for one in totals) / took, sum(one[1] for one in totals) / took


def threads_table() -> str:
    """Publishes and changes a second, of one thread and of eight."""
    rows = []
    for name, make in {"equality with a text": stations, "mixed": mixed}.items():
        for count in (1, 8):
            publishes, changes = threads(make, count)
            shown = f"{publishes:,.0f}"
            if (name, count) == ("mixed", 8):
                shown = goal(shown, publishes, at_least=12_000)
            rows.append([f"{count} thread{'s' if count > 1 else ''}, 1,000 subscriptions: {name}", shown,
                         f"{changes:,.0f}"])  # fmt: skip
    return markdown(["", "publishes a second", "changes a second"], rows)


def traffic_line() -> str:
    """The time of `bus.traffic()`."""
    first, later = traffic_ms()
    return f"`bus.traffic()` with 10,000 subscriptions takes {first:.0f} ms the first time and {later:.0f} ms later."


def table() -> str:
    """All tables."""
    return "\n\n".join([publish_table(), threads_table(), traffic_line()])


if __name__ == "__main__":
    print(table())
