"""Clocks with offset, drift and wander, and the hosts that live by them."""

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus.can._sim.bus import SimBus
from genus.can._sim.clock import Clock
from genus.can._sim.controller import Controller
from genus.can._sim.fault_hooks import Corrupt
from genus.can._sim.scheduler import Scheduler
from genus.can._sim.simulation import Host
from genus.can._wire.frame import Frame
from genus.errors import BusError
from tests.can.sim_parts import BIT, Noted, NotingMachine, frame, worst_bus

SECOND = 1_000_000_000
clocks = st.builds(
    Clock,
    st.integers(-(10**12), 10**12),
    st.floats(-500, 500),
    wander_ppm=st.sampled_from((0.0, 1.0, 10.0)),
    wander_every_ns=st.integers(10**8, 10**10),
    seed=st.integers(0, 10),
)
instants = st.integers(0, 100 * SECOND)


@given(clocks, instants)
def test_the_time_of_a_reading_is_the_first_at_which_the_clock_shows_it(clock: Clock, instant: int) -> None:
    reading = clock.local(instant)
    found = clock.global_of(reading)
    assert found <= instant
    assert clock.local(found) >= reading
    assert found == 0 or clock.local(found - 1) < reading


@given(clocks, instants, instants)
def test_a_clock_that_is_left_alone_never_goes_back(clock: Clock, one: int, other: int) -> None:
    assert (clock.local(min(one, other))) <= clock.local(max(one, other))


@given(st.integers(0, 100), st.lists(instants, min_size=1, max_size=10))
def test_a_wandering_clock_shows_the_same_whatever_was_asked_before(seed: int, asked: list[int]) -> None:
    one, other = (Clock(wander_ppm=5.0, wander_every_ns=SECOND, seed=seed) for _ in range(2))
    for instant in asked:
        one.local(instant)
    assert one.local(50 * SECOND) == other.local(50 * SECOND)


def test_drift_gains_so_many_microseconds_per_second() -> None:
    assert Clock(drift_ppm=100).local(10 * SECOND) == 10 * SECOND + 1_000_000
    assert Clock(drift_ppm=-12.5).local(SECOND) == SECOND - 12_500


def test_wander_stays_within_its_limit() -> None:
    clock = Clock(wander_ppm=30.0, wander_limit_ppm=50.0, wander_every_ns=SECOND // 10, seed=3)
    readings = [clock.local(n * SECOND) for n in range(200)]
    gains = [b - a - SECOND for a, b in pairwise(readings)]
    assert max(map(abs, gains)) <= 50_000
    assert len(set(gains)) > 100


def test_a_step_and_another_drift_hold_from_their_time_on() -> None:
    clock = Clock(drift_ppm=100)
    clock.step(5_000, at_ns=SECOND)
    clock.set_drift(-100, at_ns=2 * SECOND)
    assert clock.local(3 * SECOND) == 3 * SECOND + 5_000 + 100_000 + 100_000 - 100_000
    assert clock.drift_ppm == -100


def test_a_reading_that_a_step_jumped_over_is_due_at_the_step() -> None:
    clock = Clock()
    clock.step(1_000, at_ns=500)
    assert clock.global_of(900) == 500


@pytest.mark.parametrize("wrong", [{"drift_ppm": 1e6}, {"wander_every_ns": 0}])
def test_what_is_no_clock_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(BusError):
        Clock(**wrong)  # type: ignore[arg-type]


# Hosts


def host_of(bus: SimBus, number: int = 1, clock: Clock | None = None) -> tuple[Host, NotingMachine]:
    machine = NotingMachine()
    return Host(machine, bus.attach(Controller(number)), bus, clock), machine


def test_a_machine_is_told_everything_by_its_own_clock() -> None:
    bus = worst_bus()
    host, machine = host_of(bus, 1, Clock(offset_ns=10_000, drift_ppm=1000))
    _, other = host_of(bus, 2)
    host.call(lambda now: machine.load(frame(10)))
    bus.run(1000 * BIT)
    assert machine.inputs == [("sent", 10_000 + 160_000 + 160)]
    assert other.inputs == [("receive", 160_000)]


def test_a_machine_is_woken_at_its_own_reading_and_once() -> None:
    bus = SimBus()
    host, machine = host_of(bus, 1, Clock(offset_ns=500, drift_ppm=-50))
    machine.alarms = [1_000_500, 2_000_500]
    host.call(lambda now: None)
    bus.run(10_000_000)
    assert [(what, now) for what, now in machine.inputs] == [("wake", 1_000_500), ("wake", 2_000_500)]


def test_an_earlier_alarm_is_kept_and_a_cancelled_one_is_not_rung() -> None:
    bus = SimBus()
    host, machine = host_of(bus)
    host.call(lambda now: machine.alarms.append(5_000))
    host.call(lambda now: machine.alarms.append(3_000))
    host.call(lambda now: machine.alarms.remove(5_000))
    bus.run(10_000)
    assert machine.inputs == [("wake", 3_000)]


def test_a_clock_that_is_set_forward_rings_the_alarm_at_once_and_one_set_back_later() -> None:
    for step, expected in ((4_000, 2_000), (-4_000, 9_000)):
        bus = SimBus()
        host, machine = host_of(bus)
        host.call(lambda now, machine=machine: machine.alarms.append(5_000))  # type: ignore[misc]
        bus.at(2_000, lambda host=host, step=step: host.clock.step(step, at_ns=2_000))  # type: ignore[misc]
        rung: list[int] = []
        machine.wake = lambda now, m=machine, b=bus, r=rung: (r.append(b.now), m.alarms.clear())  # type: ignore[assignment, misc]
        bus.run(20_000)
        assert rung == [expected]


def test_an_alarm_that_is_past_rings_at_once() -> None:
    bus = SimBus()
    bus.run(5_000)
    host, machine = host_of(bus)
    host.call(lambda now: machine.alarms.append(1_000))
    bus.run(6_000)
    assert machine.inputs == [("wake", 5_000)]


def test_a_machine_that_always_wants_to_be_woken_now_does_not_hang_the_simulation() -> None:
    bus = SimBus()
    host, machine = host_of(bus)
    machine.wake = lambda now: None  # type: ignore[method-assign]
    host.call(lambda now: machine.alarms.append(0))
    with pytest.raises(BusError, match="station 1 wants to be woken at 0 ns for ever"):
        bus.run(1_000)


def test_outputs_are_done_in_order_and_what_handlers_want_comes_after_them() -> None:
    bus = SimBus()
    host, machine = host_of(bus)
    done: list[str] = []

    def handler(name: str) -> None:
        done.append(name)
        if name == "first":
            host.call(lambda now: machine.ask(handler, "third"))

    def user(now: int) -> None:
        machine.ask(handler, "first")
        machine.ask(handler, "second")

    host.call(user)
    assert done == ["first", "second", "third"]


def test_a_handler_that_raises_is_heard_of_and_leaves_the_host_usable() -> None:
    bus = SimBus()
    host, machine = host_of(bus)
    with pytest.raises(ZeroDivisionError):
        host.call(lambda now: machine.ask(lambda: 1 // 0))
    done: list[int] = []
    host.call(lambda now: machine.ask(done.append, 1))
    assert done == [1]


def test_filters_and_mailboxes_are_set_as_the_machine_wants() -> None:
    bus = worst_bus()
    host, machine = host_of(bus)
    sender = Noted(bus, 2)
    host.call(lambda now: machine.accept((200, 0x3FFF)))
    sender.controller.load(0, frame(10))
    sender.controller.load(1, Frame(11 << 21 | 7))
    bus.run(1000 * BIT)
    assert machine.frames == [frame(10)]
    assert host.controller.filters == ((200, 0x3FFF),)


def test_failures_and_bus_off_are_passed_on() -> None:
    bus = worst_bus(judges=[lambda seen: Corrupt(100)])
    host, machine = host_of(bus)
    host.call(lambda now: machine.load(frame(10)))
    bus.run(10_000 * BIT)
    told = [what for what, _ in machine.inputs]
    assert told == ["failed"] * 32 + ["bus_off", "bus_on"]


def test_a_crash_cuts_the_frame_off_and_nothing_is_told_any_more() -> None:
    bus = worst_bus()
    host, machine = host_of(bus)
    other = Noted(bus, 2)
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
    bus = worst_bus()
    host, machine = host_of(bus, clock=Clock(offset_ns=7))
    other = Noted(bus, 2)
    host.call(lambda now: machine.load(frame(10)))
    host.call(lambda now: machine.accept())
    host.crash()
    again = NotingMachine()
    again.alarms = [200_000]
    bus.at(100 * BIT, lambda: host.restart(again))
    bus.at(150 * BIT, lambda: other.controller.load(0, frame(20, 2)))
    bus.run(1000 * BIT)
    assert again.inputs == [("wake", 200_000), ("receive", 310 * BIT + 7)]
    assert machine.inputs == []


def test_a_handler_may_crash_its_own_host() -> None:
    bus = worst_bus()
    host, machine = host_of(bus)

    def user(now: int) -> None:
        machine.ask(host.crash)
        machine.load(frame(10))

    host.call(user)
    bus.run(1000 * BIT)
    assert bus.frames == 0


def test_a_host_moves_between_buses_also_while_it_is_down() -> None:
    scheduler = Scheduler()
    here, there = (SimBus(scheduler=scheduler, exact_lengths=False) for _ in range(2))
    host, machine = host_of(here)
    far = Noted(there, 2)
    host.move(there)
    host.move(there)
    host.call(lambda now: machine.load(frame(10)))
    scheduler.run(200 * BIT)
    assert far.seen("receive") == [160]
    host.crash()
    host.move(here)
    again = NotingMachine()
    host.restart(again)
    host.call(lambda now: again.load(frame(10)))
    scheduler.run(1000 * BIT)
    assert len(far.seen("receive")) == 1
    assert again.inputs == [("sent", 360 * BIT)]


def test_a_host_needs_a_bus() -> None:
    with pytest.raises(BusError, match="station 3 is not on a bus yet"):
        Host(NotingMachine(), Controller(3), SimBus())


def test_a_thousand_random_inputs_in_random_order_keep_alarms_exact() -> None:
    """Every alarm rings at the first instant at which the clock shows its reading, whatever happened before."""
    random = Random(5)
    bus = SimBus()
    host, machine = host_of(bus, clock=Clock(random.randrange(10**6), 80, wander_ppm=3.0, wander_every_ns=10**7))
    rung: list[tuple[int, int]] = []
    expected: list[int] = []

    def wake(now: int) -> None:
        for alarm in [alarm for alarm in machine.alarms if alarm <= now]:
            rung.append((alarm, bus.now))
            machine.alarms.remove(alarm)

    machine.wake = wake  # type: ignore[method-assign]
    for _ in range(1000):
        instant = random.randrange(10**9)
        reading = host.clock.local(instant) + random.randrange(10**8)
        expected.append(reading)
        bus.at(instant, lambda reading=reading: host.call(lambda now: machine.alarms.append(reading)))  # type: ignore[misc]
    bus.run(2 * 10**9)
    assert sorted(alarm for alarm, _ in rung) == sorted(expected)
    assert all(instant == host.clock.global_of(alarm) for alarm, instant in rung)
