"""The time of a bus for programs: readings with their precision, and tasks at points of time."""

import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from heapq import heappop, heappush
from itertools import count
from time import monotonic, time_ns

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus import BestEffort, Event, Hard, open_bus
from genus.bus import Bus, Link, Publisher
from genus.bus._clock import SystemClock, TaskTiming, datetime_of
from genus.bus._link import Clock, SlotTimes, WaitFor
from genus.bus.types import Delivery, Keep, LateStart, PeriodicTask, ProblemHandler, QoS, TimeReading
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


# -- the system's clock ------------------------------------------------------------------------------------------------


def timer_threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "genus-timers" and each.is_alive()]


def test_calls_are_made_in_the_order_of_their_times_by_one_thread_that_ends_with_the_clock() -> None:
    """A call that raises is logged and those after it are made; one that was cancelled is not."""
    before, called, done = len(timer_threads()), list[object](), threading.Event()
    now = time_ns()
    clock = SystemClock()
    with clock._changed:  # so that all are known before the first is made
        clock.call_at(now - 1, lambda: called.append(threading.current_thread().name))
        clock.call_at(now - 3, partial(called.append, 3))
        clock.call_at(now - 2, partial(called.append, 2))
        clock.call_at(now - 4, partial(called.append, 4)).cancel()
        clock.call_at(now, done.set)
        clock.call_at(now + 3600 * 1_000_000_000, partial(called.append, "later"))
    assert done.wait(10)
    assert len(timer_threads()) == before + 1
    clock.close()
    assert len(timer_threads()) == before
    assert called == [3, 2, "genus-timers"]


def test_what_a_call_raises_is_logged_and_the_next_is_made(caplog: pytest.LogCaptureFixture) -> None:
    done = threading.Event()
    clock = SystemClock()
    with clock._changed:
        clock.call_at(0, lambda: 1 // 0)
        clock.call_at(1, done.set)
    assert done.wait(10)
    clock.close()
    assert [entry.getMessage() for entry in caplog.records] == ["a timer's function failed"]


def test_a_clock_that_is_not_closed_keeps_no_program_from_ending() -> None:
    clock = SystemClock()
    clock.call_at(time_ns() + 3600 * 1_000_000_000, lambda: None)
    keeping = [each for each in timer_threads() if not each.daemon]
    clock.close()
    assert keeping == []


def test_a_clock_that_is_closed_starts_no_thread() -> None:
    before = len(timer_threads())
    clock = SystemClock()
    clock.close()
    clock.call_at(0, lambda: None)
    assert len(timer_threads()) == before


@pytest.mark.parametrize(
    ("nanoseconds", "microsecond"), [(0, 0), (499, 0), (500, 1), (1000, 1), (1499, 1), (1500, 2), (-500, 0)]
)
def test_a_time_is_rounded_to_microseconds(nanoseconds: int, microsecond: int) -> None:
    assert datetime_of(nanoseconds) == datetime(1970, 1, 1, 0, 0, 0, microsecond, tzinfo=UTC)


# -- periodic tasks ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("late", "is_late"), [(0, False), (MS, False), (MS + 1, True), (9 * MS, True)])
def test_a_start_within_the_tolerance_is_not_late(late: int, is_late: bool) -> None:
    """Of a millisecond, unless another one was given."""
    clock, told = ManualClock(), list[LateStart]()
    task = PeriodicTask(clock, 10 * MS, lambda: None, on_late=told.append)
    clock.true_ns = 10 * MS + late
    clock.run(10 * MS + late)
    assert told == [LateStart(10 * MS, late, 0)] * is_late
    assert task.timing == TaskTiming(1, int(is_late), 0, late)
    clock.run(20 * MS)
    assert task.timing == TaskTiming(2, int(is_late), 0, late)
    task = PeriodicTask(clock, 10 * MS, lambda: None, tolerance_ns=late)
    clock.true_ns = 30 * MS + late
    clock.run(30 * MS + late)
    assert task.timing == TaskTiming(1, 0, 0, late)


def test_a_start_that_comes_a_whole_period_late_is_left_out() -> None:
    clock, told, starts = ManualClock(), list[LateStart](), list[int]()
    task = PeriodicTask(clock, 10 * MS, lambda: starts.append(clock.time_ns()), on_late=told.append)
    clock.true_ns = 20 * MS
    clock.run(30 * MS)
    assert starts == [20 * MS, 30 * MS]
    assert told == [LateStart(20 * MS, 0, 1)]
    assert task.timing == TaskTiming(2, 0, 1, 10 * MS)


def test_a_task_goes_on_whatever_its_function_or_who_is_told_raises() -> None:
    clock, calls = ManualClock(), list[str]()

    def work() -> None:
        calls.append("work")
        raise LookupError

    def told(late: LateStart) -> None:
        calls.append("told")
        raise ValueError

    PeriodicTask(clock, 10 * MS, work, on_late=told)
    clock.true_ns = 15 * MS
    for until in (15, 20, 30):
        with pytest.raises(LookupError):
            clock.run(until * MS)
    assert calls == ["told", "work", "work", "work"]


def test_a_function_may_cancel_its_own_task() -> None:
    clock, starts = ManualClock(), list[int]()

    def work() -> None:
        starts.append(clock.time_ns())
        task.cancel()

    task = PeriodicTask(clock, 10 * MS, work)
    clock.run(100 * MS)
    assert starts == [10 * MS]
    waiting = PeriodicTask(clock, 10 * MS, work, offset_ns=0, is_known=lambda: False)
    waiting.cancel()
    clock.run(500 * MS)
    assert starts == [10 * MS]


@pytest.mark.parametrize(("early", "starts_at"), [(1_000, 20 * MS - 1_000), (1_001, 20 * MS)])
def test_a_call_that_is_early_by_the_rounding_of_clocks_is_not_early(early: int, starts_at: int) -> None:
    clock, starts = ManualClock(15 * MS), list[int]()
    PeriodicTask(clock, 10 * MS, lambda: starts.append(clock.true_ns - early), offset_ns=0)
    clock.error_ns = -early
    clock.run(20 * MS + early)
    assert starts == [starts_at]


def test_a_task_needs_a_function() -> None:
    with pytest.raises(BusError, match="7 cannot be called every period; give a function without arguments"):
        PeriodicTask(ManualClock(), MS, 7)  # type: ignore[arg-type]


# -- slots -------------------------------------------------------------------------------------------------------------


class KnownClock(ManualClock):
    """One whose time is that of all nodes, while its precision is known."""

    precision: int | None = 1000

    def precision_ns(self) -> int | None:
        return self.precision


class Slotted(Link):
    """A link whose hard channels have slots of 10 ms that start 3 ms after, by a clock that a test moves."""

    def __init__(self) -> None:
        self.manual = KnownClock(5 * MS)
        self.published: list[Event] = []
        self.carried: list[tuple[str, ...]] = []
        self.withdrawn = 0

    @property
    def clock(self) -> Clock:
        return self.manual

    def open(self, deliver: Delivery) -> None: ...

    def send(self, event: Event) -> None: ...

    def close(self) -> None: ...

    def counters(self) -> Mapping[str, int]:
        return {}

    def announce(
        self,
        cls: type,
        qos: QoS,
        on_problem: ProblemHandler | None,
        carries: tuple[str, ...] = (),
        keep: Keep | None = None,
    ) -> Publisher:
        self.carried.append(carries)
        return SlotPublisher(self)


class SlotPublisher(Publisher):
    def __init__(self, link: Slotted) -> None:
        self.link = link

    def publish(self, event: Event) -> None:
        self.link.published.append(event)

    def withdraw(self) -> None:
        self.link.withdrawn += 1

    @property
    def slot(self) -> SlotTimes:
        return SlotTimes(10 * MS, 3 * MS, MS)


@pytest.mark.parametrize("source", [None, "here"])
@pytest.mark.parametrize(("lead", "first"), [("0ms", 13), ("1ms", 12), ("5ms", 8), ("9ms", 14)])
def test_a_task_of_a_channel_starts_so_long_before_each_slot(source: str | None, lead: str, first: int) -> None:
    link = Slotted()
    with Bus(link, source=source) as bus, bus.channel(Valve, Hard("10ms")) as valves:
        starts: list[int] = []
        task = valves.every_slot(lambda: starts.append(link.manual.true_ns // MS), lead=lead)
        link.manual.run(40 * MS)
        assert starts == list(range(first, 41, 10))
        task.cancel()
        valves.publish(Valve(open=True))
    assert [event.source for event in link.published] == [source]
    assert link.carried == [() if source is None else ("source",)]
    assert link.withdrawn == 1


def test_a_task_with_an_offset_waits_for_the_time_of_the_medium() -> None:
    """One without an offset does not."""
    link, starts = Slotted(), list[str]()
    link.manual.precision = None
    with Bus(link) as bus:
        bus.every("10ms", lambda: starts.append("any"))
        bus.every("10ms", lambda: starts.append("same"), offset="0ms")
        assert bus.time().precision_ns is None
        link.manual.run(40 * MS)
        assert set(starts) == {"any"}
        link.manual.precision = 1000
        link.manual.run(200 * MS)
        assert starts.count("same") > 5


def test_the_lead_of_a_task_is_shorter_than_the_period() -> None:
    with (
        Bus(Slotted()) as bus,
        bus.channel(Valve, Hard("10ms")) as valves,
        pytest.raises(BusError, match="lead is 10ms, not shorter than the period of 10000000 ns"),
    ):
        valves.every_slot(lambda: None, lead="10ms")


@pytest.mark.parametrize("has_link", [False, True])
def test_only_messages_of_a_database_are_sent_again_by_themselves(has_link: bool) -> None:
    refusal = r"Valve cannot be announced with a period of 1s: only .*bus\.every"
    with Bus(Slotted() if has_link else None) as bus, pytest.raises(BusError, match=refusal):
        bus.channel(Valve, BestEffort(period="1s")).announce()


def test_sleeping_takes_as_long_as_was_asked_for() -> None:
    begin = monotonic()
    SystemClock().sleep(0.002)
    assert monotonic() - begin >= 0.002


@pytest.mark.parametrize(
    ("time", "nanoseconds"),
    [
        (7, 7),
        (datetime(1970, 1, 1, 0, 0, 1, 2, tzinfo=UTC), 1_000_002_000),
        (datetime(1969, 12, 31, tzinfo=UTC), -86_400 * 10**9),
    ],
)
def test_a_point_of_time_is_written_in_nanoseconds_or_as_a_datetime(time: int | datetime, nanoseconds: int) -> None:
    link, called = Slotted(), list[int]()
    link.manual.true_ns = nanoseconds - 5
    with Bus(link) as bus:
        bus.call_at(time, lambda: called.append(link.manual.true_ns))
        link.manual.run(nanoseconds - 1)
        assert called == []
        link.manual.run(nanoseconds)
    assert called == [nanoseconds]
