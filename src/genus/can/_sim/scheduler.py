"""Virtual time: a queue of callbacks, shared by all buses and stations of a simulation, and the stations' clocks.

The order at one instant: first the frames that end, then the callbacks of `at` in the order in which they were added,
then those in `last`. Arbitration is in `last`, so that a station that loads a frame at that instant takes part.

Clocks have offset, drift and wander, and steps as a fault, all in whole nanoseconds. A clock's reading is a piecewise
linear function of virtual time. Wander changes the rate at regular instants by a random walk that depends on the seed
alone; `step` and `set_drift` change the reading or the rate at any instant. Readings before the last such change are
not kept.
"""

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import TypeAlias

from genus.errors import BusError

Callback: TypeAlias = Callable[[], object]
NEVER = 1 << 62
"""A time in nanoseconds that no simulation reaches."""


class Scheduler:
    """State: virtual time in nanoseconds, and the callbacks that are scheduled.

    >>> scheduler, calls = Scheduler(), []
    >>> scheduler.at(20, lambda: calls.append(("b", scheduler.now)))
    >>> scheduler.at(10, lambda: scheduler.last.append(lambda: calls.append(("last", scheduler.now))))
    >>> scheduler.at(10, lambda: calls.append(("a", scheduler.now)))
    >>> scheduler.run(100)
    >>> calls, scheduler.now
    ([('a', 10), ('last', 10), ('b', 20)], 100)
    """

    __slots__ = ("_order", "_running", "buses", "heap", "last", "now", "paused", "until")

    def __init__(self) -> None:
        self.now = 0
        self.heap: list[tuple[int, int, Callback]] = []
        """(time, order, callback); a bus pushes the ends of its frames here, with its own negative order."""
        self.buses = 0
        """How many buses use this scheduler."""
        self.last: list[Callback] = []
        """Callbacks to make at this instant, after all others."""
        self.until = 0
        """The time up to which `advance` runs."""
        self.paused = False
        """Set by a callback to make `advance` return after it."""
        self._order = 0
        self._running = False

    def at(self, time_ns: int, callback: Callback) -> None:
        """Schedule a callback; callbacks at the same time are made in the order of these calls.

        BusError if the time is past.
        """
        if time_ns < self.now:
            raise BusError(f"{time_ns} ns is past: it is {self.now} ns")
        self._order = order = self._order + 1
        heappush(self.heap, (time_ns, order, callback))

    def add_bus(self) -> int:
        """Add a bus; returns the order for its frame ends, which come before everything else at an instant."""
        self.buses += 1
        return self.buses - (1 << 32)

    def run(self, until_ns: int) -> None:
        """Advance virtual time up to and including an instant; BusError if it is past, or from within a callback."""
        if self._running:
            raise BusError("the simulation is running; a callback cannot run it")
        if until_ns < self.now:
            raise BusError(f"{until_ns} ns is past: it is {self.now} ns")
        self._running = True
        try:
            self.until, self.paused = until_ns, False
            self.advance()
        finally:
            self._running = False
        self.now = until_ns

    def advance(self) -> bool:
        """Make the callbacks up to and including `until`; returns False if a callback paused it before that."""
        heap, last, pop = self.heap, self.last, heappop
        while heap or last:
            if self.paused:
                return False
            time_ns, _, callback = heap[0] if heap else _NO_CALLBACK
            if time_ns > self.now:
                if last:
                    last.pop()()
                    continue
                if time_ns > self.until:
                    return True
                self.now = time_ns
            pop(heap)
            callback()
        return True

    def step(self, until_ns: int) -> bool:
        """Make the next callback that is due up to and including an instant; returns False if there is none."""
        heap, last = self.heap, self.last
        time_ns, _, callback = heap[0] if heap else _NO_CALLBACK
        if time_ns > self.now:
            if last:
                last.pop()()
                return True
            if time_ns > until_ns:
                return False
            self.now = time_ns
        heappop(heap)
        callback()
        return True


_NO_CALLBACK: tuple[int, int, Callback] = (1 << 63, 0, int)

# -- clocks ------------------------------------------------------------------------------------------------------------

BILLION = 1_000_000_000
DRIFT_PPM, WANDER_PPM, WANDER_LIMIT_PPM = 95.0, 2.0, 5.0
"""The maximum drift of a quartz crystal, the standard deviation of its change per second, the limit of all changes."""
MAX_OFFSET_NS = 1_000_000_000
"""Clocks count from power-on, which is not the same instant at all stations."""


class SimClock:
    """State: the clock of one station.

    `drift_ppm` is how many microseconds it gains per second. With `wander_ppm`, the drift changes by a random step of
    that standard deviation every `wander_every_ns`, and stays within `wander_limit_ppm` of `drift_ppm`.

    >>> clock = SimClock(offset_ns=500, drift_ppm=100)
    >>> clock.local_time(0), clock.local_time(1_000_000), clock.virtual_time(1_000_600)
    (500, 1000600, 1000000)
    >>> clock.step(-200, at_ns=1_000_000)
    >>> clock.local_time(1_000_000)
    1000400
    """

    def __init__(
        self,
        offset_ns: int = 0,
        drift_ppm: float = 0.0,
        *,
        wander_ppm: float = 0.0,
        wander_every_ns: int = 1_000_000_000,
        wander_limit_ppm: float = 50.0,
        seed: int | str = 0,
    ) -> None:
        if wander_every_ns < 1:
            raise BusError(f"wander_every_ns is {wander_every_ns}; it must be 1 or more")
        self._drift = _ppb(drift_ppm)
        self._wander = round(wander_ppm * 1000)
        self._every = wander_every_ns
        self._limit = round(wander_limit_ppm * 1000)
        self._random = Random(f"clock/{seed}")
        self._walk = 0
        self._extending = threading.Lock()
        """A clock may be read while another thread runs the simulation; which segment is next must not depend on it."""
        self._starts, self._readings, self._rates = [0], [offset_ns], [self._drift]
        self._segment = 0, self._every if self._wander else NEVER, offset_ns, self._drift
        """Start, end, reading at the start and rate in parts per billion of the segment that was used last."""
        self.on_change: list[Callable[[], object]] = []
        """Called after `step` and `set_drift`, so that alarms set for a reading are set anew."""

    @property
    def drift_ppm(self) -> float:
        return self._drift / 1000

    def local_time(self, time_ns: int) -> int:
        start, end, reading, rate = self._segment
        if not start <= time_ns < end:
            start, _, reading, rate = self._segment_at(time_ns)
        passed = time_ns - start
        return reading + passed + passed * rate // BILLION

    def virtual_time(self, reading: int) -> int:
        """Return the first virtual time at which the clock shows this reading or more, at or after its last change."""
        while self._wander:
            last = self._starts[-1]
            if self._readings[-1] >= reading:
                break
            self._add_segment(last)
        start, end, shown, rate = self._segment
        if reading > shown:  # mostly within the segment that was used last
            found = start + -((shown - reading) * BILLION // (BILLION + rate))
            if found < end:
                return found
        index = max(0, bisect_left(self._readings, reading) - 1)
        wanted = reading - self._readings[index]
        found = self._starts[index] + -(-wanted * BILLION // (BILLION + self._rates[index]))
        if index + 1 < len(self._starts):
            found = min(found, self._starts[index + 1])
        return max(found, self._starts[0])

    def step(self, by_ns: int, *, at_ns: int) -> None:
        self._restart(at_ns, self.local_time(at_ns) + by_ns)

    def set_drift(self, drift_ppm: float, *, at_ns: int) -> None:
        """Change the drift from a time on; BusError beyond ±500,000 ppm."""
        reading = self.local_time(at_ns)
        self._drift = _ppb(drift_ppm)
        self._restart(at_ns, reading)

    def _restart(self, at_ns: int, reading: int) -> None:
        """Start a new segment and drop those before it."""
        rate = self._drift + self._walk
        self._starts, self._readings, self._rates = [at_ns], [reading], [rate]
        self._segment = at_ns, at_ns + self._every if self._wander else NEVER, reading, rate
        for callback in self.on_change:
            callback()

    def _segment_at(self, time_ns: int) -> tuple[int, int, int, int]:
        """Find the segment of a time; the first one, which is the only one without wander, also for times before it."""
        while self._wander and time_ns >= (last := self._starts[-1]) + self._every:
            self._add_segment(last)
        index = max(0, bisect_right(self._starts, time_ns) - 1)
        start = self._starts[index]
        end = start + self._every if self._wander else NEVER
        found = self._segment = start, end, self._readings[index], self._rates[index]
        return found

    def _add_segment(self, last: int) -> None:
        """Extend the clock by one interval of wander, unless another thread did so: `last` is the last known start."""
        with self._extending:
            if self._starts[-1] != last:
                return
            start = last + self._every
            passed = self._every
            self._readings.append(self._readings[-1] + passed + passed * self._rates[-1] // BILLION)
            wandered = self._walk + round(self._random.gauss(0, self._wander))
            self._walk = min(max(wandered, -self._limit), self._limit)
            self._rates.append(self._drift + self._walk)
            self._starts.append(start)  # the last: with it the segment is there for other threads


def crystal_clock(random: Random, seed: int | str, start_ns: int = 0) -> SimClock:
    """Return a clock with a quartz crystal, with offset, drift and wander as the time service assumes them.

    >>> clock = crystal_clock(Random(1), seed=1)
    >>> 0 <= clock.local_time(0) < 1_000_000_000, abs(clock.drift_ppm) <= 95
    (True, True)
    """
    return SimClock(
        start_ns + random.randrange(MAX_OFFSET_NS),
        random.uniform(-DRIFT_PPM, DRIFT_PPM),
        wander_ppm=WANDER_PPM,
        wander_limit_ppm=WANDER_LIMIT_PPM,
        seed=seed,
    )


def _ppb(drift_ppm: float) -> int:
    if not -500_000 <= drift_ppm <= 500_000:
        raise BusError(f"drift_ppm is {drift_ppm}; it must be between -500000 and 500000")
    return round(drift_ppm * 1000)
