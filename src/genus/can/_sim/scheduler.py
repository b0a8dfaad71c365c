"""Virtual time: what is to happen when, and nothing else. All buses, clocks and hosts of a simulation share one.

At one instant the frames that end come first, then everything asked for with `at`, in the order it was asked for, then
what was added to `last`: the arbitrations, so that whoever loads a frame at that instant takes part.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import TypeAlias

from genus.errors import BusError

Callback: TypeAlias = Callable[[], object]


class Scheduler:
    """State: virtual time in nanoseconds, and what waits for it.

    >>> scheduler, seen = Scheduler(), []
    >>> scheduler.at(20, lambda: seen.append(("b", scheduler.now)))
    >>> scheduler.at(10, lambda: scheduler.last.append(lambda: seen.append(("last", scheduler.now))))
    >>> scheduler.at(10, lambda: seen.append(("a", scheduler.now)))
    >>> scheduler.run(100)
    >>> seen, scheduler.now
    ([('a', 10), ('last', 10), ('b', 20)], 100)
    """

    __slots__ = ("_order", "_running", "heap", "last", "media", "now")

    def __init__(self) -> None:
        self.now = 0
        self.heap: list[tuple[int, int, Callback]] = []
        """(time, order, callback); a bus pushes the ends of its frames here, with its own negative order."""
        self.media = 0
        self.last: list[Callback] = []
        """What is to be done at this instant when nothing else is left to do."""
        self._order = 0
        self._running = False

    def at(self, time_ns: int, callback: Callback) -> None:
        """Call back at a time that is not past; several at one time are called in the order they were asked for."""
        if time_ns < self.now:
            raise BusError(f"{time_ns} ns is past: it is {self.now} ns")
        self._order = order = self._order + 1
        heappush(self.heap, (time_ns, order, callback))

    def join(self) -> int:
        """The order of the frame ends of another medium: before everything else at an instant."""
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
            self._run(until_ns)
        finally:
            self._running = False
        self.now = until_ns

    def _run(self, until_ns: int) -> None:
        heap, last, pop = self.heap, self.last, heappop
        now = self.now
        while heap or last:
            time_ns, _, callback = heap[0] if heap else _NEVER
            if time_ns > now:
                if last:
                    last.pop()()
                    continue
                if time_ns > until_ns:
                    return
                self.now = now = time_ns
            pop(heap)
            callback()


_NEVER: tuple[int, int, Callback] = (1 << 63, 0, int)
