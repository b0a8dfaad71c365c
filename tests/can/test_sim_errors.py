"""Corrupted frames, error frames, error counters, bus-off and the way back; bus guardians."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus.can._sim.bus import SimBus
from genus.can._sim.controller import NEVER, ErrorState, Guard
from genus.can._sim.fault_hooks import Corrupt, Deaf, Duplicate, Judge, Late, Outcome, Transmission, Verdict
from genus.can._sim.sources import Source, periodic
from genus.can._sim.trace import Trace
from genus.can._wire.frame import Frame
from genus.can._wire.length import exact_bits
from genus.errors import BusError
from tests.can.sim_parts import BIT, Insistent, Noted, Resigned, frame, worst_bus


def first(count: int, verdict: Verdict) -> Judge:
    """The first transmissions meet this fate."""
    seen: list[Transmission] = []

    def judge(transmission: Transmission) -> Verdict | None:
        seen.append(transmission)
        return verdict if len(seen) <= count else None

    return judge


def of(number: int, verdict: Verdict) -> Judge:
    """All transmissions of a station meet this fate."""
    return lambda seen: verdict if seen.sender == number else None


# One frame


@given(st.integers(1, 90), st.integers(0, 6))
def test_a_corrupted_frame_ends_at_the_bad_bit_and_is_repeated_after_the_error_frame(bit: int, echo: int) -> None:
    bus = SimBus(judges=[first(1, Corrupt(bit, echo))])
    one, two = Noted(bus, 1), Noted(bus, 2)
    sent = frame(10)
    one.controller.load(0, sent)
    bus.run(1000 * BIT)
    error = bit + 6 + echo + 8 + 3
    assert one.log == [(error, 1, "failed", sent), (error + exact_bits(sent), 1, "sent", sent)]
    assert two.seen("receive") == [error + exact_bits(sent)], "once, although it was sent twice"
    assert (bus.frames, bus.errors) == (1, 1)


def test_in_the_worst_case_an_error_takes_the_whole_frame_and_31_bits() -> None:
    bus = worst_bus(judges=[first(2, Corrupt(1, 0))])
    one = Noted(bus, 1)
    one.controller.load(0, frame(10))
    bus.run(1000 * BIT)
    assert one.seen("failed") == [191, 382]
    assert one.seen("sent") == [542]


def test_a_frame_loaded_anew_while_it_was_on_the_wire_is_not_repeated_after_an_error() -> None:
    bus = SimBus(judges=[first(1, Corrupt(100))])
    one = Noted(bus, 1)
    one.controller.load(0, frame(10))
    bus.at(50 * BIT, lambda: one.controller.load(0, frame(11)))
    bus.run(1000 * BIT)
    assert [entry[2:] for entry in one.log] == [("failed", frame(10)), ("sent", frame(11))]


def test_a_mailbox_emptied_while_its_frame_was_on_the_wire_or_when_it_failed_is_not_repeated() -> None:
    bus = SimBus(judges=[lambda seen: Corrupt(100)])
    one, two = Noted(bus, 1), Resigned(bus, 2)
    one.controller.load(0, frame(10))
    two.controller.load(0, frame(20, 2))
    bus.at(50 * BIT, lambda: one.controller.load(0, None))
    bus.run(1000 * BIT)
    assert bus.errors == 2
    assert (one.seen("failed"), one.seen("sent"), two.seen("sent")) == ([123], [], [])


def test_those_who_lost_are_told_after_an_error_too() -> None:
    bus = SimBus(judges=[first(1, Corrupt(50))])
    one, two = Noted(bus, 1), Noted(bus, 2)
    one.controller.load(0, frame(10))
    two.controller.load(0, frame(20, 2))
    bus.run(73 * BIT)
    assert two.seen("lost") == [73]


def test_attempts_are_counted_from_the_last_load() -> None:
    attempts: list[int] = []

    def judge(seen: Transmission) -> Verdict | None:
        attempts.append(seen.attempt)
        return Corrupt(20) if len(attempts) < 5 else None

    bus = SimBus(judges=[judge])
    one = Noted(bus, 1)
    one.controller.load(0, frame(10))
    bus.at(100 * BIT, lambda: one.controller.load(0, frame(10)))
    bus.run(1000 * BIT)
    assert attempts == [0, 1, 2, 0, 1]


def test_an_error_at_the_last_bit_of_a_frame_makes_receivers_hear_it_twice() -> None:
    bus = SimBus(judges=[first(1, Duplicate())], trace=(trace := Trace()))
    one, two = Noted(bus, 1), Noted(bus, 2)
    one.controller.load(0, frame(10))
    bus.run(1000 * BIT)
    assert len(two.seen("receive")) == 2
    assert [entry[2] for entry in one.log] == ["failed", "sent"]
    assert [each.outcome for each in trace] == [Outcome.DUPLICATE, Outcome.SENT]
    assert two.controller.rec == 0


def test_deaf_stations_miss_a_frame_and_its_sender_does_not_know() -> None:
    bus = SimBus(judges=[first(1, Deaf((2,)))], trace=(trace := Trace()))
    one, two, three = (Noted(bus, n) for n in (1, 2, 3))
    one.controller.load(0, frame(10))
    bus.run(1000 * BIT)
    assert (len(one.seen("sent")), len(two.seen("receive")), len(three.seen("receive"))) == (1, 0, 1)
    assert (trace.passages[0].heard, trace.passages[0].missed) == ((3,), (2,))


def test_a_late_frame_comes_after_the_next_one_of_its_sender_and_tag() -> None:
    bus = SimBus(judges=[first(1, Late())])
    one, two, three = (Noted(bus, n) for n in (1, 2, 3))
    frames = [frame(10, 1, bytes([n])) for n in range(3)]
    for place, each in enumerate(frames):
        bus.at(place * 500 * BIT, lambda each=each: one.controller.load(0, each))  # type: ignore[misc]
    bus.at(100 * BIT, lambda: three.controller.load(0, frame(10, 3, b"other")))
    bus.run(5000 * BIT)
    heard = [entry[3].data for entry in two.log if entry[2] == "receive"]
    assert heard == [b"other", b"\1", b"\0", b"\2"]
    assert len(one.seen("sent")) == 3


# Counters


def test_a_station_that_always_fails_is_passive_after_16_off_after_32_failures_and_back_after_1408_bits() -> None:
    bus = worst_bus(judges=[of(1, Corrupt(100))])
    one, two = Noted(bus, 1), Noted(bus, 2)
    one.controller.load(0, frame(10))
    states = []
    for failures in range(1, 34):
        bus.run(failures * 191 * BIT)
        states.append(one.controller.state)
    assert states.index(ErrorState.PASSIVE) + 1 == 16
    assert states.index(ErrorState.OFF) + 1 == 32
    assert one.seen("bus_off") == [32 * 191]
    assert 32 * 191 <= 32 * (160 + 31)
    bus.run(20_000 * BIT)
    assert one.seen("bus_on") == [32 * 191 + 1408]
    assert one.controller.state is ErrorState.ACTIVE
    assert one.controller.frames == [None, None], "the mailboxes are empty after bus-off"
    assert two.controller.state is ErrorState.ACTIVE


def test_what_is_loaded_while_off_the_bus_is_sent_when_it_is_back() -> None:
    bus = worst_bus(judges=[first(32, Corrupt(100))])
    one = Noted(bus, 1)
    one.controller.load(0, frame(10))
    bus.at(7000 * BIT, lambda: one.controller.load(0, frame(11)))
    bus.run(20_000 * BIT)
    back = 32 * 191 + 1408
    assert one.seen("sent") == [back + 160]


def test_on_a_busy_bus_each_frame_counts_as_11_idle_bits_of_recovery() -> None:
    bus = worst_bus(judges=[of(1, Corrupt(100))])
    one = Noted(bus, 1)
    Source(bus, 2, frame(20, 2), periodic(160 * BIT))
    one.controller.load(0, frame(10))
    bus.run(40_000 * BIT)
    (off,), (on,) = one.seen("bus_off"), one.seen("bus_on")
    assert on == off + 128 * 160, "the bus is never idle: one frame of 160 bits each"


def test_several_stations_come_back_to_an_idle_bus_each_in_its_time() -> None:
    bus = worst_bus(judges=[lambda seen: Corrupt(100)])
    one, two = Resigned(bus, 1), Noted(bus, 2)
    two.controller.load(0, frame(20, 2))
    one.controller.tec = 250
    bus.at(32 * 191 * BIT + 500 * BIT, lambda: one.controller.load(0, frame(10)))
    bus.run(100_000 * BIT)
    assert (len(one.seen("bus_on")), len(two.seen("bus_on"))) == (1, 1)
    assert one.seen("bus_on")[0] == one.seen("bus_off")[0] + 1408
    assert two.seen("bus_on")[0] < one.seen("bus_on")[0]


def test_a_station_off_the_bus_neither_hears_nor_sends_and_others_go_on() -> None:
    bus = worst_bus(judges=[of(1, Corrupt(100))])
    one, three = Noted(bus, 1), Noted(bus, 3)
    source = Source(bus, 2, frame(20, 2), periodic(1000 * BIT), deadline_ns=191_000 * 2)
    one.controller.load(0, frame(10))
    bus.run(40_000 * BIT)
    (off,), (on,) = one.seen("bus_off"), one.seen("bus_on")
    assert not [time for time in one.seen("receive") if off < time < on]
    assert [time for time in three.seen("receive") if off < time < on]
    assert source.delivered == source.released - 1


def test_counters_go_down_with_good_frames() -> None:
    bus = SimBus(judges=[first(3, Corrupt(50))])
    one, two = Noted(bus, 1), Noted(bus, 2)
    one.controller.load(0, frame(10))
    bus.run(400 * BIT)
    assert (one.controller.tec, one.controller.rec) == (23, 0)
    assert (two.controller.tec, two.controller.rec) == (0, 2)
    for place in range(30):
        bus.at((1 + place) * 1000 * BIT, lambda: one.controller.load(0, frame(10)))
    bus.run(50_000 * BIT)
    assert (one.controller.tec, two.controller.rec) == (0, 0)


def test_an_error_passive_sender_waits_8_bits_longer_than_others() -> None:
    bus = SimBus(judges=[first(16, Corrupt(50, 6))])
    one, two = Noted(bus, 1), Noted(bus, 2)
    one.controller.load(0, frame(10))
    bus.run(15 * 73 * BIT)
    assert not one.controller.is_passive
    bus.at((16 * 73 - 1) * BIT, lambda: two.controller.load(0, frame(20, 2)))
    bus.run(2000 * BIT)
    length = exact_bits(frame(20, 2))
    assert two.seen("sent") == [16 * 73 + length], "it was to wait, and the other began"
    assert one.seen("sent") == [16 * 73 + length + exact_bits(frame(10))]


def test_alone_an_error_passive_sender_starts_8_bits_later() -> None:
    bus = SimBus(judges=[first(16, Corrupt(50, 6))], trace=(trace := Trace()))
    one = Noted(bus, 1)
    one.controller.load(0, frame(10))
    bus.run(2000 * BIT)
    assert trace.passages[16].start_ns == (16 * 73 + 8) * BIT


def test_without_confinement_a_station_may_fail_for_ever() -> None:
    bus = worst_bus(judges=[of(1, Corrupt(100))], confinement=False)
    one = Noted(bus, 1)
    one.controller.load(0, frame(10))
    bus.run(191_000 * BIT)
    assert len(one.seen("failed")) == 1000
    assert (one.controller.tec, one.seen("bus_off")) == (0, [])


def test_a_frame_that_nobody_acknowledges_fails_and_its_sender_becomes_passive_but_never_goes_off() -> None:
    bus = SimBus(lone_acknowledged=False)
    one = Noted(bus, 1)
    one.controller.load(0, frame(10))
    bus.run(100_000 * BIT)
    assert len(one.seen("failed")) > 100
    assert (one.controller.state, one.controller.tec) == (ErrorState.PASSIVE, 128)
    two = Noted(bus, 2)
    bus.run(110_000 * BIT)
    assert (len(one.seen("sent")), len(two.seen("receive"))) == (1, 1)


def test_many_errors_of_others_make_a_receiver_passive_but_never_send_it_off() -> None:
    bus = worst_bus(judges=[of(1, Corrupt(100))])
    one, two = Noted(bus, 1), Noted(bus, 2)
    for place in range(8):
        bus.at(place * 10_000 * BIT, lambda: one.controller.load(0, frame(10)))
    bus.run(80_000 * BIT)
    assert two.controller.rec == 128
    assert two.controller.state is ErrorState.PASSIVE


# Guards


def test_a_guard_lets_hard_frames_start_in_their_windows_only() -> None:
    guard = Guard(cycle_ns=1000 * BIT, windows=[(300 * BIT, 320 * BIT)])
    bus = worst_bus()
    one = Noted(bus, 1, guard=guard)
    one.controller.load(0, frame(0))
    bus.run(330 * BIT)
    one.controller.load(1, frame(20))
    bus.at(800 * BIT, lambda: one.controller.load(0, frame(0)))
    bus.run(5000 * BIT)
    assert [(entry[0], entry[3].priority) for entry in one.log] == [(460, 0), (620, 20), (1460, 0)]


def test_a_guard_without_windows_never_lets_a_hard_frame_through() -> None:
    bus = worst_bus()
    one, two = Noted(bus, 1, guard=Guard()), Noted(bus, 2)
    one.controller.load(0, frame(0))
    Source(bus, 3, frame(20, 3), periodic(200 * BIT))
    bus.run(100_000 * BIT)
    assert (one.seen("sent"), len(two.seen("receive"))) == ([], 500)
    assert len(bus.scheduler.heap) < 10, "nothing is kept for what never comes"


def test_a_guards_bucket_limits_what_a_babbling_station_takes_of_the_bus() -> None:
    bus = worst_bus()
    guard = Guard(interval_ns=1_600 * BIT, burst=3)
    Insistent(bus, 1, frame(1), guard=guard)
    other = Noted(bus, 2)
    bus.run(160_000 * BIT)
    assert len(other.seen("receive")) == 3 + 99
    assert other.seen("receive")[:4] == [160, 320, 480, 1760]


def test_a_guard_that_is_none_is_refused() -> None:
    for options in ({"cycle_ns": 0}, {"interval_ns": -1}, {"burst": 0}):
        with pytest.raises(BusError, match="is none"):
            Guard(**options)  # type: ignore[arg-type]
    with pytest.raises(BusError, match="run from start to end"):
        Guard(cycle_ns=100, windows=[(5, 5)])
    assert Guard().opens(Frame(0), 5) == NEVER
