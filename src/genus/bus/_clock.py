"""The system's clock as a bus uses it: time of day, sleep, and calls at a time."""

import threading
import time
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

from genus.bus._link import Clock, WaitFor
from genus.errors import BusError


class SystemTimer:
    """State: a call that a `SystemClock` is to make."""

    def __init__(self, function: Callable[[], object]) -> None:
        self.function = function
        self.is_cancelled = False

    def cancel(self) -> None:
        """Do not make the call."""
        self.is_cancelled = True


class SystemClock:
    """The system's clock. Calls are made by one thread, started with the first; what they raise is logged."""

    wait_for: WaitFor | None = None

    def __init__(self, time_ns: Callable[[], int] = time.time_ns) -> None:
        self.time_ns = time_ns
        self._due: list[tuple[int, int, SystemTimer]] = []
        self._order = count()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    def sleep(self, seconds: float) -> None:
        """Block this thread."""
        time.sleep(seconds)

    def call_at(self, time_ns: int, function: Callable[[], object]) -> SystemTimer:
        """Call a function at a time, or at once if that is past."""
        timer = SystemTimer(function)
        with self._changed:
            heappush(self._due, (time_ns, next(self._order), timer))
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="genus-timers", daemon=True)
                self._thread.start()
            self._changed.notify()
        return timer

    def close(self) -> None:
        """End the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(2)

    def _run(self) -> None:
        while (timer := self._next()) is not None:
            try:
                timer.function()
            except Exception:
                import logging  # slow to import, and needed only here

                logging.getLogger("genus.bus").exception("a timer's function failed")

    def _next(self) -> SystemTimer | None:
        """Wait for the next timer that is due; None once closed."""
        with self._changed:
            while not self._closed:
                if self._due and self._due[0][2].is_cancelled:
                    heappop(self._due)
                elif self._due and (left := self._due[0][0] - self.time_ns()) <= 0:
                    return heappop(self._due)[2]
                else:
                    self._changed.wait(left / 1e9 if self._due else None)
        return None


class Periodic:
    """State: a function that is called once per period, until it is cancelled."""

    def __init__(self, clock: Clock, period_ns: int, function: Callable[[], object]) -> None:
        if period_ns < 1:
            raise BusError("a period must be longer than 0")
        self._clock, self._period_ns, self._function = clock, period_ns, function
        self._is_cancelled = False
        self._next = clock.time_ns() + period_ns
        self._timer = clock.call_at(self._next, self._call)

    def _call(self) -> None:
        late = max(0, self._clock.time_ns() - self._next)
        self._next += self._period_ns * (1 + late // self._period_ns)
        if not self._is_cancelled:
            self._timer = self._clock.call_at(self._next, self._call)
            self._function()

    def cancel(self) -> None:
        """Make no more calls."""
        self._is_cancelled = True
        self._timer.cancel()
