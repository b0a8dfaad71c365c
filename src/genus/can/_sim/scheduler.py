"""Virtual time: a queue of callbacks, shared by all buses, clocks and stations of a simulation.

The order at one instant: first the frames that end, then the callbacks of `at` in the order in which they were added,
then those in `last`. Arbitration is in `last`, so that a station that loads a frame at that instant takes part.
"""

from collections.abc import Callable
from heapq import heappop, heappush
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
