"""Which of 100,000 or 1,000,000 subscriptions match an event: the index against brute force in numpy.

The workload of REIN and OpIndex (see docs/benchmarks.md): 20 float attributes, uniform in [0, 1]; each subscription has
an interval of width 0.5 on each of 10 attributes chosen at random. Brute force is what one would write by hand: dense
arrays of bounds, one vectorised comparison per attribute. Both run on the same events in turn, and must agree.

100,000 subscriptions are made as `Subscription` objects and added with `add_all`; a million come by `add_ranges`.
Times are CPU time per event, the least over several windows: the machine is shared.
"""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import reduce
from operator import and_
from typing import Any

import numpy as np
import numpy.typing as npt

from genus import Event, Subscription, this
from genus.model._event import EventMeta
from genus.targets.index import SubscriptionIndex

Bounds = npt.NDArray[np.float64]

ATTRIBUTES = 20
TESTED = 10
WIDTH = 0.5
EVENTS = 100
WINDOWS = 8
NAMES = [f"a{number}" for number in range(ATTRIBUTES)]
Reading: Any = EventMeta("Reading", (Event,), {"__annotations__": dict.fromkeys(NAMES, float)})


@dataclass(frozen=True, slots=True)
class Result:
    """One size of population."""

    subscriptions: int
    index_ms: float
    brute_ms: float
    ratio: float
    matches: float
    build_us: float
    add_us: float | None
    index_mb: float
    resident_mb: float


def run(sizes: tuple[int, ...] = (100_000, 1_000_000), objects_up_to: int = 100_000) -> list[dict[str, Any]]:
    """Measure each size; populations up to a size go through real `Subscription` objects."""
    return [asdict(measure(size, as_objects=size <= objects_up_to)) for size in sizes]


def measure(size: int, *, as_objects: bool) -> Result:
    """Build, match and compare; raises if index and brute force do not agree."""
    rng = np.random.default_rng(size)
    low, high = random_bounds(rng, size)
    events = [Reading(**dict(zip(NAMES, rng.random(ATTRIBUTES).tolist(), strict=True))) for _ in range(EVENTS)]
    subscriptions = [subscription(*rows) for rows in zip(low, high, strict=True)] if as_objects else []
    before, started = resident_mb(), time.process_time()
    index = SubscriptionIndex()
    if as_objects:
        index.add_all(subscriptions)
    else:
        index.add_ranges(Reading, NAMES, low, high)
    build_us = (time.process_time() - started) / size * 1e6
    resident = resident_mb() - before
    force = brute_force(low, high)
    index_ms, brute_ms = least_ms(events, index.match, force)
    found = [index.match(event) for event in events]
    assert all(np.array_equal(ours, force(event)) for ours, event in zip(found, events, strict=True)), "they disagree"
    matches = sum(map(len, found)) / EVENTS
    add_us = one_by_one_us(subscriptions[:20_000]) if as_objects else None
    return Result(
        size, index_ms, brute_ms, brute_ms / index_ms, matches, build_us, add_us, index.nbytes / 1e6, resident
    )  # fmt: skip


def random_bounds(rng: np.random.Generator, size: int) -> tuple[Bounds, Bounds]:
    """Bounds [subscription, attribute]; NaN where there is no test."""
    low = np.full((size, ATTRIBUTES), np.nan)
    tested = np.argsort(rng.random((size, ATTRIBUTES), dtype=np.float32), axis=1)[:, :TESTED]
    np.put_along_axis(low, tested, rng.random((size, TESTED)) * (1 - WIDTH), axis=1)
    return low, low + WIDTH


def subscription(low: Bounds, high: Bounds) -> Subscription:
    tested = [(NAMES[place], low[place], high[place]) for place in np.flatnonzero(low == low)]
    return Subscription(Reading, where=reduce(and_, (this[name].between(float(a), float(b)) for name, a, b in tested)))


def brute_force(low: Bounds, high: Bounds) -> Callable[[Event], npt.NDArray[np.int64]]:
    """The matcher of dense arrays, attribute by attribute, each contiguous."""
    lows = np.ascontiguousarray(np.where(np.isnan(low), -np.inf, low).T)
    highs = np.ascontiguousarray(np.where(np.isnan(high), np.inf, high).T)

    def match(event: Event) -> npt.NDArray[np.int64]:
        mask = np.ones(lows.shape[1], np.bool_)
        for place, name in enumerate(NAMES):
            value = getattr(event, name)
            mask &= (lows[place] <= value) & (value <= highs[place])
        return np.flatnonzero(mask)

    return match


def least_ms(events: list[Event], *matchers: Callable[[Event], object]) -> list[float]:
    """CPU time per event of each matcher, taken in turn; the least of several windows."""
    times: list[list[float]] = [[] for _ in matchers]
    for window in range(WINDOWS + 1):
        for matcher, taken in zip(matchers, times, strict=True):
            started = time.process_time()
            for event in events:
                matcher(event)
            if window:
                taken.append((time.process_time() - started) / len(events) * 1e3)
    return [min(taken) for taken in times]


def one_by_one_us(subscriptions: list[Subscription]) -> float:
    """CPU time of adding one subscription to a growing index."""
    index, started = SubscriptionIndex(), time.process_time()
    for one in subscriptions:
        index.add(one)
    return (time.process_time() - started) / len(subscriptions) * 1e6


def resident_mb() -> float:
    """The memory this process has now, on Linux; 0 elsewhere."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096 / 1e6
    except OSError:
        return 0.0


def table(results: list[dict[str, Any]]) -> str:
    """The results in Markdown."""
    head = ["subscriptions", "index ms", "numpy brute force ms", "times faster", "matches", "bulk µs each",
            "one by one µs each", "index MB", "resident MB"]  # fmt: skip
    rows = [head, ["---"] * len(head)]
    for one in results:
        numbers = [one[name] for name in ("index_ms", "brute_ms", "ratio", "matches", "build_us", "add_us")]
        cells = ["–" if number is None else f"{number:.3g}" if number < 100 else f"{number:.0f}" for number in numbers]
        rows.append([f"{one['subscriptions']:,}", *cells, f"{one['index_mb']:.0f}", f"{one['resident_mb']:.0f}"])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


if __name__ == "__main__":
    print(table(run()))
