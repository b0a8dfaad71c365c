"""A bus guardian: it stands between a controller and the bus, and lets through only what the station may send.

It knows the station's slots and a budget of frames, and nothing of what the station thinks it does (Broster and Burns
2003). So a babbling idiot keeps its own slots and its own budget, and the others keep theirs.
"""

from collections.abc import Sequence

from genus.can.wire.frame import Frame
from genus.can.wire.identifier import PRIORITY_SHIFT, Priority
from genus.errors import BusError

NEVER = 1 << 62


class Guard:
    """State: windows in which frames of priority 0 may start, and a token bucket for all others.

    A window is (start, end) in each cycle. The bucket holds `burst` frames and gets one every `interval_ns`.

    >>> guard = Guard(cycle_ns=1000, windows=[(100, 200)], interval_ns=500, burst=1)
    >>> guard.opens(Frame(7), 150), guard.opens(Frame(7), 201), guard.opens(Frame(254 << 21), 5)
    (150, 1100, 5)
    >>> guard.spend(Frame(254 << 21), 5)
    >>> guard.opens(Frame(254 << 21), 6)
    505
    """

    def __init__(
        self, *, cycle_ns: int = 1, windows: Sequence[tuple[int, int]] = (), interval_ns: int = 0, burst: int = 1
    ) -> None:
        if cycle_ns < 1 or interval_ns < 0 or burst < 1:
            raise BusError(f"a guard with cycle {cycle_ns} ns, interval {interval_ns} ns and burst {burst} is none")
        if any(not 0 <= start < end for start, end in windows):
            raise BusError(f"a guard's windows run from start to end, unlike one of {windows}")
        self._cycle = cycle_ns
        self._windows = tuple(windows)
        self._interval = interval_ns
        self._slack = (burst - 1) * interval_ns
        self._full_at = 0

    def opens(self, frame: Frame, now: int) -> int:
        """The first instant, now or later, at which a frame may start."""
        if frame.id >> PRIORITY_SHIFT == Priority.HARD:
            return min((self._next(window, now) for window in self._windows), default=NEVER)
        return max(now, self._full_at - self._slack)

    def spend(self, frame: Frame, now: int) -> None:
        """A frame starts."""
        if frame.id >> PRIORITY_SHIFT != Priority.HARD:
            self._full_at = max(self._full_at, now) + self._interval

    def _next(self, window: tuple[int, int], now: int) -> int:
        start, end = window
        since = (now - start) % self._cycle
        return now if since <= end - start else now + self._cycle - since
