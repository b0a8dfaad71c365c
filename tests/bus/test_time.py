"""The time of a bus for programs: readings with their precision, and tasks at points of time."""

from collections.abc import Callable
from datetime import UTC, datetime
from heapq import heappop, heappush
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus import Event, open_bus
from genus.bus._link import WaitFor
from genus.bus.types import LateStart, PeriodicTask, TimeReading
from genus.errors import BusError, SpanError

MS = 1_000_000


class Valve(Event):
    open: bool


class Timer:
    def __init__(self) -> None:
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class ManualClock:
    """A clock that a test moves; it shows the time with an error, which may change."""

    wait_for: WaitFor | None = None

    def __init__(self, start: int = 0) -> None:
        self.true_ns = start
        self.error_ns = 0
        self._due: list[tuple[int, int, Timer, Callable[[], object]]] = []
        self._order = count()

    def time_ns(self) -> int:
        return self.true_ns + self.error_ns

    def precision_ns(self) -> int | None:
        return None

    def sleep(self, seconds: float) -> None:
        raise NotImplementedError

    def call_at(self, time_ns: int, function: Callable[[], object]) -> Timer:
        timer = Timer()
        heappush(self._due, (max(self.true_ns, time_ns - self.error_ns), next(self._order), timer, function))
        return timer

    def close(self) -> None: ...

    def run(self, until_ns: int) -> None:
        while self._due and self._due[0][0] <= until_ns:
            at, _, timer, function = heappop(self._due)
            self.true_ns = max(at, self.true_ns)
            if not timer.is_cancelled:
                function()
        self.true_ns = max(self.true_ns, until_ns)


@given(st.integers(0, 10**18), st.integers(1, 50 * MS), st.integers(0, 200 * MS), st.integers(1, 30))
def test_a_task_with_an_offset_starts_at_the_same_points_of_time_everywhere(
    start: int, period: int, offset: int, periods: int
) -> None:
    clock = ManualClock(start)
    starts: list[int] = []
    task = PeriodicTask(clock, period, lambda: starts.append(clock.time_ns()), offset_ns=offset)
    clock.run(start + periods * period - 1)
    assert len(starts) == periods
    assert all((at - offset) % period == 0 for at in starts)
    assert (task.timing.starts, task.timing.late, task.timing.left_out) == (periods, 0, 0)


def test_a_start_that_is_late_is_told_and_one_whose_period_is_over_is_left_out() -> None:
    clock, told, starts = ManualClock(), list[LateStart](), list[int]()

    def work() -> None:
        starts.append(clock.time_ns())
        if len(starts) == 2:
            clock.true_ns += 35 * MS  # it takes three periods and a half

    task = PeriodicTask(clock, 10 * MS, work, offset_ns=5 * MS, on_late=told.append)
    clock.run(80 * MS)
    assert starts == [5 * MS, 15 * MS, 50 * MS, 55 * MS, 65 * MS, 75 * MS]
    assert told == [LateStart(due_ns=45 * MS, late_ns=5 * MS, left_out=2)]
    assert (task.timing.late, task.timing.left_out, task.timing.worst_late_ns) == (1, 2, 25 * MS)


def test_a_correction_of_the_clock_moves_the_next_start() -> None:
    clock, starts = ManualClock(), list[int]()
    PeriodicTask(clock, 10 * MS, lambda: starts.append(clock.time_ns()), offset_ns=0)
    clock.run(25 * MS)
    clock.error_ns = -3 * MS  # it was ahead: what was to start at 30 would start at 27
    clock.run(60 * MS)
    assert starts == [0, 10 * MS, 20 * MS, 30 * MS, 40 * MS, 50 * MS]


def test_nothing_starts_while_the_time_is_not_known() -> None:
    clock, starts = ManualClock(), list[int]()
    known = [False]
    clock.error_ns = 7_000 * MS
    task = PeriodicTask(clock, 10 * MS, lambda: starts.append(clock.time_ns()), offset_ns=0, is_known=lambda: known[0])
    clock.run(350 * MS)
    assert starts == []
    clock.error_ns, known[0] = 0, True
    clock.run(500 * MS)
    assert starts
    assert all(at % (10 * MS) == 0 for at in starts)
    assert task.timing.left_out == task.timing.late == 0
    known[0] = False
    before = len(starts)
    clock.run(700 * MS)
    assert len(starts) == before


def test_a_cancelled_task_does_not_start_again() -> None:
    clock, starts = ManualClock(), list[int]()
    task = PeriodicTask(clock, 10 * MS, lambda: starts.append(clock.time_ns()))
    clock.run(25 * MS)
    task.cancel()
    clock.run(100 * MS)
    assert starts == [10 * MS, 20 * MS]


def test_within_a_process_the_precision_is_that_of_the_clock() -> None:
    with open_bus() as bus:
        reading = bus.time()
    assert isinstance(reading, TimeReading)
    assert reading.precision_ns is not None
    assert abs((reading.time - datetime.now(UTC)).total_seconds()) < 3600


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"period": "0ms"}, "must be above zero"),
        ({"period": "often"}, "period is 'often'"),
        ({"period": "1s", "offset": "later"}, "offset is 'later'"),
        ({"period": "1s", "tolerance": "-1ms"}, "tolerance is '-1ms'"),
    ],
)
def test_wrong_times_of_a_task_are_refused(arguments: dict[str, str], message: str) -> None:
    with open_bus() as bus, pytest.raises(SpanError, match=message):
        bus.every(function=lambda: None, **arguments)  # type: ignore[arg-type]


def test_only_hard_channels_have_slots() -> None:
    with open_bus() as bus:
        valves = bus.channel(Valve)
        with pytest.raises(BusError, match="was not announced"):
            valves.every_slot(lambda: None)
        valves.announce()
        valves.announce()
        assert valves.slot is None
        with pytest.raises(BusError, match="has no slots"):
            valves.every_slot(lambda: None)
