"""The time of a bus: the system's clock, readings with their precision, calls at a time, and periodic tasks."""

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from itertools import count

import msgspec

from genus.bus._link import Clock, WaitFor
from genus.errors import BusError

LOOK_AGAIN_NS = 100_000_000
"""How often to look again for a time that is not known yet; a timer looks as often whether the clock was corrected."""
EARLY_NS = 1_000
"""A call that comes at most so much too early, by the rounding of clocks, is not too early."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def datetime_of(time_ns: int) -> datetime:
    """Return a time in nanoseconds since 1970 as a datetime, rounded to microseconds."""
    return _EPOCH + timedelta(microseconds=(time_ns + 500) // 1000)


def system_resolution() -> int:
    """The resolution of the system's clock in nanoseconds: the precision of a bus whose participants all read it."""
    return max(1, round(time.get_clock_info("time").resolution * 1e9))


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

    def __init__(
        self, time_ns: Callable[[], int] = time.time_ns, precision_ns: Callable[[], int | None] = lambda: None
    ) -> None:
        self.time_ns = time_ns
        self.precision_ns = precision_ns
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
                    self._changed.wait(min(left / 1e9, LOOK_AGAIN_NS / 1e9) if self._due else None)
        return None


class TimeReading(msgspec.Struct, frozen=True):
    """A reading of a bus's time; made by `bus.time()`.

    >>> TimeReading(1_767_225_600_000_000_000, 1500).time.isoformat()
    '2026-01-01T00:00:00+00:00'
    """

    time_ns: int
    """Return the nanoseconds since 1970, UTC."""
    precision_ns: int | None
    """A bound on its error against the time of the bus; None if there is none, or it is not known."""

    @property
    def time(self) -> datetime:
        """The same as a datetime in UTC, to the microsecond."""
        return datetime_of(self.time_ns)


class LateStart(msgspec.Struct, frozen=True):
    """To who made a periodic task: it started later than its tolerance, or starts were left out."""

    due_ns: int
    """When it should have started, in the bus's time."""
    late_ns: int
    left_out: int
    """How many starts before this one were left out, because their period was over."""


class TaskTiming(msgspec.Struct, frozen=True):
    """How the starts of a periodic task kept their times."""

    starts: int = 0
    late: int = 0
    """Starts that were later than the tolerance."""
    left_out: int = 0
    """Starts that were left out, because an earlier one took longer than a period."""
    worst_late_ns: int = 0


class PeriodicTask:
    """State: a function that is called once per period of a bus's time until it is cancelled; made by `bus.every`.

    With an offset the calls are at the points of time that are the offset after a multiple of the period since 1970,
    UTC; that is how the slots of a calendar are counted too. Without a time that all nodes know such a task does not
    start: `is_known` says whether there is one.
    """

    def __init__(
        self,
        clock: Clock,
        period_ns: int,
        function: Callable[[], object],
        *,
        offset_ns: int | None = None,
        tolerance_ns: int = 1_000_000,
        on_late: Callable[[LateStart], object] | None = None,
        is_known: Callable[[], bool] = lambda: True,
    ) -> None:
        if not callable(function):
            raise BusError(f"{function!r} cannot be called every period; give a function without arguments")
        self._clock, self._period_ns, self._function = clock, period_ns, function
        self._offset_ns, self._tolerance_ns, self._on_late, self._is_known = offset_ns, tolerance_ns, on_late, is_known
        self._is_cancelled = False
        self.timing = TaskTiming()
        """How its starts kept their times."""
        self._due_ns = 0
        self._begin()

    def cancel(self) -> None:
        """Make no more calls."""
        self._is_cancelled = True
        self._timer.cancel()

    def _begin(self) -> None:
        """Wait for the first time that is due from now on, or look again later if the time is not known."""
        now = self._clock.time_ns()
        if self._offset_ns is None:
            self._due_ns = now + self._period_ns
        elif self._is_known():
            self._due_ns = now + (self._offset_ns - now) % self._period_ns
        else:
            self._timer = self._clock.call_at(now + LOOK_AGAIN_NS, self._look_again)
            return
        self._wait()

    def _wait(self) -> None:
        if self._is_cancelled:
            return
        self._timer = self._clock.call_at(self._due_ns, self._call)

    def _look_again(self) -> None:
        if not self._is_cancelled:
            self._begin()

    def _call(self) -> None:
        if self._is_cancelled:
            return
        late = self._clock.time_ns() - self._due_ns
        if self._offset_ns is not None and (late < -EARLY_NS or not self._is_known()):
            self._begin()  # the clock was corrected in the meantime
            return
        late = max(0, late)
        left_out, due = late // self._period_ns, self._due_ns + late // self._period_ns * self._period_ns
        self._due_ns = due + self._period_ns
        try:
            try:
                self._count(due, late % self._period_ns, left_out)
            finally:
                self._function()  # also if the handler of late starts fails
        except Exception:
            self._wait()
            raise
        self._wait()  # not before: in the simulator it would start again while it waits for something

    def _count(self, due: int, late: int, left_out: int) -> None:
        before, is_late = self.timing, late > self._tolerance_ns
        self.timing = TaskTiming(
            before.starts + 1,
            before.late + is_late,
            before.left_out + left_out,
            max(before.worst_late_ns, late + left_out * self._period_ns),
        )
        if self._on_late is not None and (is_late or left_out):
            self._on_late(LateStart(due, late, left_out))
