"""Virtual time: a queue of callbacks, shared by all buses, clocks and stations of a simulation.

At one instant the frames that end come first, then the callbacks of `at` in the order of the calls, then those added to
`last`: the arbitrations, so that a station that loads a frame at that instant takes part.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import TypeAlias

from genus.errors import BusError

Callback: TypeAlias = Callable[[], object]


class Scheduler:
    """State: virtual time in nanoseconds, and the callbacks that wait for it.

    >>> scheduler, seen = Scheduler(), []
    >>> scheduler.at(20, lambda: seen.append(("b", scheduler.now)))
    >>> scheduler.at(10, lambda: scheduler.last.append(lambda: seen.append(("last", scheduler.now))))
    >>> scheduler.at(10, lambda: seen.append(("a", scheduler.now)))
    >>> scheduler.run(100)
    >>> seen, scheduler.now
    ([('a', 10), ('last', 10), ('b', 20)], 100)
    """

    __slots__ = ("_order", "_running", "heap", "last", "media", "now", "paused", "until")

    def __init__(self) -> None:
        self.now = 0
        self.heap: list[tuple[int, int, Callback]] = []
        """(time, order, callback); a bus pushes the ends of its frames here, with its own negative order."""
        self.media = 0
        self.last: list[Callback] = []
        """Callbacks at this instant after all others."""
        self.until = 0
        """How far `advance` goes."""
        self.paused = False
        """Whether `advance` is to return after the present callback."""
        self._order = 0
        self._running = False

    def at(self, time_ns: int, callback: Callback) -> None:
        """Call back at a time that is not past; callbacks at one time are called in the order of these calls."""
        if time_ns < self.now:
            raise BusError(f"{time_ns} ns is past: it is {self.now} ns")
        self._order = order = self._order + 1
        heappush(self.heap, (time_ns, order, callback))

    def join(self) -> int:
        """The order of the frame ends of another bus: before everything else at an instant."""
        self.media += 1
        return self.media - (1 << 32)

    def run(self, until_ns: int) -> None:
        """Let time pass up to and including an instant."""
        if self._running:
            raise BusError("the simulation runs already; a callback cannot run it")
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
        """Make the callbacks up to and including `until`; returns False if it was paused before that."""
        heap, last, pop = self.heap, self.last, heappop
        while heap or last:
            if self.paused:
                return False
            time_ns, _, callback = heap[0] if heap else _NEVER
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
        """Make the next callback, if there is one up to and including an instant."""
        heap, last = self.heap, self.last
        time_ns, _, callback = heap[0] if heap else _NEVER
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


_NEVER: tuple[int, int, Callback] = (1 << 63, 0, int)
