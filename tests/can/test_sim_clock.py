"""Clocks with offset, drift and wander, and the hosts that use them."""

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus.can._sim.bus import SimBus
from genus.can._sim.controller import Controller
from genus.can._sim.errors import Corrupt
from genus.can._sim.scheduler import Scheduler, SimClock
from genus.can._sim.simulation import Host
from genus.can._wire.frame import Frame
from genus.errors import BusError
from tests.can.sim_parts import BIT, RecordingMachine, RecordingStation, frame, worst_case_bus

SECOND = 1_000_000_000
clocks = st.builds(
    SimClock,
    st.integers(-(10**12), 10**12),
    st.floats(-500, 500),
    wander_ppm=st.sampled_from((0.0, 1.0, 10.0)),
    wander_every_ns=st.integers(10**8, 10**10),
    seed=st.integers(0, 10),
)
instants = st.integers(0, 100 * SECOND)


@given(clocks, instants)
def test_virtual_time_is_the_first_at_which_the_clock_shows_a_reading(clock: SimClock, instant: int) -> None:
    reading = clock.local_time(instant)
    found = clock.virtual_time(reading)
    assert found <= instant
    assert clock.local_time(found) >= reading
    assert found == 0 or clock.local_time(found - 1) < reading


@given(clocks, instants, instants)
def test_a_clock_without_steps_never_goes_back(clock: SimClock, one: int, other: int) -> None:
    assert (clock.local_time(min(one, other))) <= clock.local_time(max(one, other))


@given(st.integers(0, 100), st.lists(instants, min_size=1, max_size=10))
def test_readings_of_a_wandering_clock_do_not_depend_on_earlier_readings(seed: int, earlier: list[int]) -> None:
    one, other = (SimClock(wander_ppm=5.0, wander_every_ns=SECOND, seed=seed) for _ in range(2))
    for instant in earlier:
        one.local_time(instant)
    assert one.local_time(50 * SECOND) == other.local_time(50 * SECOND)


def test_drift_is_in_microseconds_per_second() -> None:
    assert SimClock(drift_ppm=100).local_time(10 * SECOND) == 10 * SECOND + 1_000_000
    assert SimClock(drift_ppm=-12.5).local_time(SECOND) == SECOND - 12_500


def test_wander_stays_within_its_limit() -> None:
    clock = SimClock(wander_ppm=30.0, wander_limit_ppm=50.0, wander_every_ns=SECOND // 10, seed=3)
    readings = [clock.local_time(n * SECOND) for n in range(200)]
    gains = [b - a - SECOND for a, b in pairwise(readings)]
    assert max(map(abs, gains)) <= 50_000
    assert len(set(gains)) > 100


def test_a_step_and_a_changed_drift_apply_from_their_time_on() -> None:
    clock = SimClock(drift_ppm=100)
    clock.step(5_000, at_ns=SECOND)
    clock.set_drift(-100, at_ns=2 * SECOND)
    assert clock.local_time(3 * SECOND) == 3 * SECOND + 5_000 + 100_000 + 100_000 - 100_000
    assert clock.drift_ppm == -100


def test_a_reading_that_a_step_jumped_over_is_due_at_the_step() -> None:
    clock = SimClock()
    clock.step(1_000, at_ns=500)
    assert clock.virtual_time(900) == 500


@pytest.mark.parametrize("wrong", [{"drift_ppm": 1e6}, {"wander_every_ns": 0}])
def test_impossible_clocks_raise_a_bus_error(wrong: dict[str, float]) -> None:
    with pytest.raises(BusError):
        SimClock(**wrong)  # type: ignore[arg-type]


# Hosts


def make_host(bus: SimBus, number: int = 1, clock: SimClock | None = None) -> tuple[Host, RecordingMachine]:
    machine = RecordingMachine()
    return Host(machine, bus.attach(Controller(number)), bus, clock), machine


def test_a_machine_gets_all_times_by_its_own_clock() -> None:
    bus = worst_case_bus()
    host, machine = make_host(bus, 1, SimClock(offset_ns=10_000, drift_ppm=1000))
    _, other = make_host(bus, 2)
    host.call(lambda now: machine.load(frame(10)))
    bus.run(1000 * BIT)
    assert machine.inputs == [("sent", 10_000 + 160_000 + 160)]
    assert other.inputs == [("receive", 160_000)]


def test_a_machine_is_woken_once_at_the_reading_of_its_own_clock() -> None:
    bus = SimBus()
    host, machine = make_host(bus, 1, SimClock(offset_ns=500, drift_ppm=-50))
    machine.alarms = [1_000_500, 2_000_500]
    host.call(lambda now: None)
    bus.run(10_000_000)
    assert machine.inputs == [("wake", 1_000_500), ("wake", 2_000_500)]


def test_an_earlier_alarm_is_used_and_a_cancelled_one_does_not_wake_the_machine() -> None:
    bus = SimBus()
    host, machine = make_host(bus)
    host.call(lambda now: machine.alarms.append(5_000))
    host.call(lambda now: machine.alarms.append(3_000))
    host.call(lambda now: machine.alarms.remove(5_000))
    bus.run(10_000)
    assert machine.inputs == [("wake", 3_000)]


def test_an_alarm_is_due_at_once_when_the_clock_is_set_forward_and_later_when_it_is_set_back() -> None:
    for step, expected in ((4_000, 2_000), (-4_000, 9_000)):
        bus = SimBus()
        host, machine = make_host(bus)
        host.call(lambda now, machine=machine: machine.alarms.append(5_000))  # type: ignore[misc]
        bus.at(2_000, lambda host=host, step=step: host.clock.step(step, at_ns=2_000))  # type: ignore[misc]
        woken: list[int] = []
        machine.wake = lambda now, m=machine, b=bus, w=woken: (w.append(b.now), m.alarms.clear())  # type: ignore[assignment, misc]
        bus.run(20_000)
        assert woken == [expected]


def test_an_alarm_in_the_past_is_due_at_once() -> None:
    bus = SimBus()
    bus.run(5_000)
    host, machine = make_host(bus)
    host.call(lambda now: machine.alarms.append(1_000))
    bus.run(6_000)
    assert machine.inputs == [("wake", 5_000)]


def test_a_machine_that_always_asks_to_wake_now_does_not_hang_the_simulation() -> None:
    bus = SimBus()
    host, machine = make_host(bus)
    machine.wake = lambda now: None  # type: ignore[method-assign]
    host.call(lambda now: machine.alarms.append(0))
    with pytest.raises(BusError, match="station 1 asks again and again to wake at 0 ns"):
        bus.run(1_000)


def test_outputs_are_handled_in_order_and_those_that_handlers_cause_after_them() -> None:
    bus = SimBus()
    host, machine = make_host(bus)
    done: list[str] = []

    def handler(name: str) -> None:
        done.append(name)
        if name == "first":
            host.call(lambda now: machine.call(handler, "third"))

    def user(now: int) -> None:
        machine.call(handler, "first")
        machine.call(handler, "second")

    host.call(user)
    assert done == ["first", "second", "third"]


def test_the_exception_of_a_handler_is_raised_and_the_host_stays_usable() -> None:
    bus = SimBus()
    host, machine = make_host(bus)
    with pytest.raises(ZeroDivisionError):
        host.call(lambda now: machine.call(lambda: 1 // 0))
    done: list[int] = []
    host.call(lambda now: machine.call(done.append, 1))
    assert done == [1]


def test_filters_and_mailboxes_are_set_as_the_machine_outputs_them() -> None:
    bus = worst_case_bus()
    host, machine = make_host(bus)
    sender = RecordingStation(bus, 2)
    host.call(lambda now: machine.accept((200, 0x3FFF)))
    sender.controller.load(0, frame(10))
    sender.controller.load(1, Frame(11 << 21 | 7))
    bus.run(1000 * BIT)
    assert machine.frames == [frame(10)]
    assert host.controller.filters == ((200, 0x3FFF),)


def test_a_machine_is_called_with_failures_bus_off_and_bus_on() -> None:
    bus = worst_case_bus(fault_hooks=[lambda _: Corrupt(100)])
    host, machine = make_host(bus)
    host.call(lambda now: machine.load(frame(10)))
    bus.run(10_000 * BIT)
    inputs = [kind for kind, _ in machine.inputs if kind != "lost"]  # after each pause of an error passive sender
    warned = ["failed"] * 12 + ["error_passive"]
    assert inputs == [*warned, *["failed"] * 20, "bus_off", "bus_on", "error_active"]


def test_a_crash_cuts_the_frame_off_and_the_machine_is_not_called_any_more() -> None:
    bus = worst_case_bus()
    host, machine = make_host(bus)
    other = RecordingStation(bus, 2)
    machine.alarms = [500 * BIT]
    host.call(lambda now: machine.load(frame(10)))
    bus.at(50 * BIT, host.crash)
    bus.at(60 * BIT, host.crash)
    bus.run(1000 * BIT)
    assert machine.inputs == []
    assert other.log == []
    assert not host.is_up
    with pytest.raises(BusError, match="station 1 is down"):
        _ = host.machine


def test_a_restart_runs_another_machine_with_an_empty_controller_and_the_same_clock() -> None:
    bus = worst_case_bus()
    host, machine = make_host(bus, clock=SimClock(offset_ns=7))
    other = RecordingStation(bus, 2)
    host.call(lambda now: machine.load(frame(10)))
    host.call(lambda now: machine.accept())
    host.crash()
    again = RecordingMachine()
    again.alarms = [200_000]
    bus.at(100 * BIT, lambda: host.restart(again))
    bus.at(150 * BIT, lambda: other.controller.load(0, frame(20, 2)))
    bus.run(1000 * BIT)
    assert again.inputs == [("wake", 200_000), ("receive", 310 * BIT + 7)]
    assert machine.inputs == []


def test_a_handler_may_crash_its_own_host() -> None:
    bus = worst_case_bus()
    host, machine = make_host(bus)

    def user(now: int) -> None:
        machine.call(host.crash)
        machine.load(frame(10))

    host.call(user)
    bus.run(1000 * BIT)
    assert bus.frames == 0


def test_a_host_can_move_between_buses_also_while_it_is_down() -> None:
    scheduler = Scheduler()
    here, there = (SimBus(scheduler=scheduler, exact_lengths=False) for _ in range(2))
    host, machine = make_host(here)
    far = RecordingStation(there, 2)
    host.move_to(there)
    host.move_to(there)
    host.call(lambda now: machine.load(frame(10)))
    scheduler.run(200 * BIT)
    assert far.times_of("receive") == [160]
    host.crash()
    host.move_to(here)
    again = RecordingMachine()
    host.restart(again)
    host.call(lambda now: again.load(frame(10)))
    scheduler.run(1000 * BIT)
    assert len(far.times_of("receive")) == 1
    assert again.inputs == [("sent", 360 * BIT)]


def test_a_host_needs_a_controller_on_a_bus() -> None:
    with pytest.raises(BusError, match="station 3 is not on a bus yet"):
        Host(RecordingMachine(), Controller(3), SimBus())


def test_alarms_are_exact_after_a_thousand_random_inputs() -> None:
    """Every alarm is due at the first instant at which the clock shows its reading, whatever happened before."""
    random = Random(5)
    bus = SimBus()
    host, machine = make_host(bus, clock=SimClock(random.randrange(10**6), 80, wander_ppm=3.0, wander_every_ns=10**7))
    woken: list[tuple[int, int]] = []
    expected: list[int] = []

    def wake(now: int) -> None:
        for alarm in [alarm for alarm in machine.alarms if alarm <= now]:
            woken.append((alarm, bus.now))
            machine.alarms.remove(alarm)

    machine.wake = wake  # type: ignore[method-assign]
    for _ in range(1000):
        instant = random.randrange(10**9)
        reading = host.clock.local_time(instant) + random.randrange(10**8)
        expected.append(reading)
        bus.at(instant, lambda reading=reading: host.call(lambda now: machine.alarms.append(reading)))  # type: ignore[misc]
    bus.run(2 * 10**9)
    assert sorted(alarm for alarm, _ in woken) == sorted(expected)
    assert all(instant == host.clock.virtual_time(alarm) for alarm, instant in woken)
