"""Corrupted frames, error frames, error counters, bus-off and recovery; bus guardians."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus.can._sim.bus import SimBus
from genus.can._sim.controller import BusGuardian, ErrorState
from genus.can._sim.errors import (
    Corrupt,
    Duplicate,
    FaultEffect,
    FaultHook,
    FrameOutcome,
    Late,
    MissedBy,
    Transmission,
)
from genus.can._sim.scheduler import NEVER
from genus.can._sim.simulation import FrameSource, periodic
from genus.can._sim.trace import Trace
from genus.can._wire.frame import Frame, exact_bits
from genus.errors import BusError
from tests.can.sim_parts import BIT, GivingUpStation, RecordingStation, RepeatingStation, frame, worst_case_bus


def affect_first(count: int, effect: FaultEffect) -> FaultHook:
    """A hook with an effect on the first transmissions."""
    transmissions: list[Transmission] = []

    def affect(transmission: Transmission) -> FaultEffect | None:
        transmissions.append(transmission)
        return effect if len(transmissions) <= count else None

    return affect


def affect_station(number: int, effect: FaultEffect) -> FaultHook:
    """A hook with an effect on all transmissions of a station."""
    return lambda transmission: effect if transmission.sender == number else None


# One frame


@given(st.integers(1, 90), st.integers(0, 6))
def test_a_corrupted_frame_ends_at_the_bad_bit_and_is_repeated_after_the_error_frame(bit: int, echo: int) -> None:
    bus = SimBus(fault_hooks=[affect_first(1, Corrupt(bit, echo))])
    one, two = RecordingStation(bus, 1), RecordingStation(bus, 2)
    sent = frame(10)
    one.controller.load(0, sent)
    bus.run(1000 * BIT)
    error = bit + 6 + echo + 8 + 3
    assert one.log == [(error, 1, "failed", sent), (error + exact_bits(sent), 1, "sent", sent)]
    assert two.times_of("receive") == [error + exact_bits(sent)], "once, although it was sent twice"
    assert (bus.frames, bus.errors) == (1, 1)


def test_with_maximum_lengths_an_error_takes_the_whole_frame_and_31_bits() -> None:
    bus = worst_case_bus(fault_hooks=[affect_first(2, Corrupt(1, 0))])
    one = RecordingStation(bus, 1)
    one.controller.load(0, frame(10))
    bus.run(1000 * BIT)
    assert one.times_of("failed") == [191, 382]
    assert one.times_of("sent") == [542]


def test_a_frame_is_not_repeated_after_an_error_if_its_mailbox_was_loaded_meanwhile() -> None:
    bus = SimBus(fault_hooks=[affect_first(1, Corrupt(100))])
    one = RecordingStation(bus, 1)
    one.controller.load(0, frame(10))
    bus.at(50 * BIT, lambda: one.controller.load(0, frame(11)))
    bus.run(1000 * BIT)
    assert [entry[2:] for entry in one.log] == [("failed", frame(10)), ("sent", frame(11))]


def test_a_frame_is_not_repeated_after_an_error_if_its_mailbox_was_emptied_during_or_after_it() -> None:
    bus = SimBus(fault_hooks=[lambda _: Corrupt(100)])
    one, two = RecordingStation(bus, 1), GivingUpStation(bus, 2)
    one.controller.load(0, frame(10))
    two.controller.load(0, frame(20, 2))
    bus.at(50 * BIT, lambda: one.controller.load(0, None))
    bus.run(1000 * BIT)
    assert bus.errors == 2
    assert (one.times_of("failed"), one.times_of("sent"), two.times_of("sent")) == ([123], [], [])


def test_lost_is_called_after_an_error_too() -> None:
    bus = SimBus(fault_hooks=[affect_first(1, Corrupt(50))])
    one, two = RecordingStation(bus, 1), RecordingStation(bus, 2)
    one.controller.load(0, frame(10))
    two.controller.load(0, frame(20, 2))
    bus.run(73 * BIT)
    assert two.times_of("lost") == [73]


def test_attempts_are_counted_from_the_last_load() -> None:
    attempts: list[int] = []

    def affect(transmission: Transmission) -> FaultEffect | None:
        attempts.append(transmission.attempt)
        return Corrupt(20) if len(attempts) < 5 else None

    bus = SimBus(fault_hooks=[affect])
    one = RecordingStation(bus, 1)
    one.controller.load(0, frame(10))
    bus.at(100 * BIT, lambda: one.controller.load(0, frame(10)))
    bus.run(1000 * BIT)
    assert attempts == [0, 1, 2, 0, 1]


def test_receivers_get_a_frame_with_an_error_at_the_last_bit_twice() -> None:
    bus = SimBus(fault_hooks=[affect_first(1, Duplicate())], trace=(trace := Trace()))
    one, two = RecordingStation(bus, 1), RecordingStation(bus, 2)
    one.controller.load(0, frame(10))
    bus.run(1000 * BIT)
    assert len(two.times_of("receive")) == 2
    assert [entry[2] for entry in one.log] == ["failed", "sent"]
    assert [each.outcome for each in trace] == [FrameOutcome.DUPLICATE, FrameOutcome.SENT]
    assert two.controller.rec == 0


def test_stations_can_miss_a_frame_without_its_sender_noticing() -> None:
    bus = SimBus(fault_hooks=[affect_first(1, MissedBy((2,)))], trace=(trace := Trace()))
    one, two, three = (RecordingStation(bus, n) for n in (1, 2, 3))
    one.controller.load(0, frame(10))
    bus.run(1000 * BIT)
    assert (len(one.times_of("sent")), len(two.times_of("receive")), len(three.times_of("receive"))) == (1, 0, 1)
    assert (trace.passages[0].received_by, trace.passages[0].missed_by) == ((3,), (2,))


def test_a_late_frame_is_received_after_the_next_one_of_its_sender_and_event_tag() -> None:
    bus = SimBus(fault_hooks=[affect_first(1, Late())])
    one, two, three = (RecordingStation(bus, n) for n in (1, 2, 3))
    frames = [frame(10, 1, bytes([n])) for n in range(3)]
    for position, each in enumerate(frames):
        bus.at(position * 500 * BIT, lambda each=each: one.controller.load(0, each))  # type: ignore[misc]
    bus.at(100 * BIT, lambda: three.controller.load(0, frame(10, 3, b"other")))
    bus.run(5000 * BIT)
    received = [entry[3].data for entry in two.log if entry[2] == "receive"]
    assert received == [b"other", b"\1", b"\0", b"\2"]
    assert len(one.times_of("sent")) == 3


# Counters


def test_a_station_that_always_fails_is_passive_after_16_off_after_32_failures_and_back_after_1408_bits() -> None:
    bus = worst_case_bus(fault_hooks=[affect_station(1, Corrupt(100))])
    one, two = RecordingStation(bus, 1), RecordingStation(bus, 2)
    one.controller.load(0, frame(10))
    states = []
    for failures in range(1, 34):
        bus.run(failures * 191 * BIT)
        states.append(one.controller.state)
    assert states.index(ErrorState.PASSIVE) + 1 == 16
    assert states.index(ErrorState.OFF) + 1 == 32
    assert one.times_of("bus_off") == [32 * 191 - 8], "nothing is suspended after the last failure"
    assert 32 * 191 <= 32 * (160 + 31)
    bus.run(20_000 * BIT)
    assert one.times_of("bus_on") == [32 * 191 - 8 + 1408]
    assert one.controller.state is ErrorState.ACTIVE
    assert one.controller.frames == [None, None], "the mailboxes are empty after bus-off"
    assert two.controller.state is ErrorState.ACTIVE


def test_a_frame_loaded_while_off_the_bus_is_sent_after_recovery() -> None:
    bus = worst_case_bus(fault_hooks=[affect_first(32, Corrupt(100))])
    one = RecordingStation(bus, 1)
    one.controller.load(0, frame(10))
    bus.at(7000 * BIT, lambda: one.controller.load(0, frame(11)))
    bus.run(20_000 * BIT)
    back = 32 * 191 - 8 + 1408
    assert one.times_of("sent") == [back + 160]


def test_on_a_busy_bus_each_frame_counts_as_11_idle_bits_of_recovery() -> None:
    bus = worst_case_bus(fault_hooks=[affect_station(1, Corrupt(100))])
    one = RecordingStation(bus, 1)
    FrameSource(bus, 2, frame(20, 2), periodic(160 * BIT))
    one.controller.load(0, frame(10))
    bus.run(40_000 * BIT)
    (off,), (on,) = one.times_of("bus_off"), one.times_of("bus_on")
    assert on == off + 128 * 160, "the bus is never idle: one frame of 160 bits each"


def test_several_stations_recover_on_an_idle_bus_each_at_its_time() -> None:
    bus = worst_case_bus(fault_hooks=[lambda _: Corrupt(100)])
    one, two = GivingUpStation(bus, 1), RecordingStation(bus, 2)
    two.controller.load(0, frame(20, 2))
    one.controller.tec = 250
    bus.at(32 * 191 * BIT + 500 * BIT, lambda: one.controller.load(0, frame(10)))
    bus.run(100_000 * BIT)
    assert (len(one.times_of("bus_on")), len(two.times_of("bus_on"))) == (1, 1)
    assert one.times_of("bus_on")[0] == one.times_of("bus_off")[0] + 1408
    assert two.times_of("bus_on")[0] < one.times_of("bus_on")[0]


def test_a_station_off_the_bus_neither_receives_nor_sends_and_others_continue() -> None:
    bus = worst_case_bus(fault_hooks=[affect_station(1, Corrupt(100))])
    one, three = RecordingStation(bus, 1), RecordingStation(bus, 3)
    source = FrameSource(bus, 2, frame(20, 2), periodic(1000 * BIT), deadline_ns=191_000 * 2)
    one.controller.load(0, frame(10))
    bus.run(40_000 * BIT)
    (off,), (on,) = one.times_of("bus_off"), one.times_of("bus_on")
    assert not [time for time in one.times_of("receive") if off < time < on]
    assert [time for time in three.times_of("receive") if off < time < on]
    assert source.delivered == source.released - 1


def test_counters_go_down_with_good_frames() -> None:
    bus = SimBus(fault_hooks=[affect_first(3, Corrupt(50))])
    one, two = RecordingStation(bus, 1), RecordingStation(bus, 2)
    one.controller.load(0, frame(10))
    bus.run(400 * BIT)
    assert (one.controller.tec, one.controller.rec) == (23, 0)
    assert (two.controller.tec, two.controller.rec) == (0, 2)
    for position in range(30):
        bus.at((1 + position) * 1000 * BIT, lambda: one.controller.load(0, frame(10)))
    bus.run(50_000 * BIT)
    assert (one.controller.tec, two.controller.rec) == (0, 0)


def test_an_error_passive_sender_waits_8_bits_longer_than_others() -> None:
    bus = SimBus(fault_hooks=[affect_first(16, Corrupt(50, 6))])
    one, two = RecordingStation(bus, 1), RecordingStation(bus, 2)
    one.controller.load(0, frame(10))
    bus.run(15 * 73 * BIT)
    assert not one.controller.is_passive
    bus.at((16 * 73 - 1) * BIT, lambda: two.controller.load(0, frame(20, 2)))
    bus.run(2000 * BIT)
    length = exact_bits(frame(20, 2))
    assert two.times_of("sent") == [16 * 73 + length], "station 1 was suspended, and station 2 started"
    assert one.times_of("sent") == [16 * 73 + length + exact_bits(frame(10))]


def test_an_error_passive_sender_starts_8_bits_later_on_an_idle_bus() -> None:
    bus = SimBus(fault_hooks=[affect_first(16, Corrupt(50, 6))], trace=(trace := Trace()))
    one = RecordingStation(bus, 1)
    one.controller.load(0, frame(10))
    bus.run(2000 * BIT)
    assert trace.passages[16].start_ns == (16 * 73 + 8) * BIT


def test_without_confinement_a_station_that_fails_stays_on_the_bus() -> None:
    bus = worst_case_bus(fault_hooks=[affect_station(1, Corrupt(100))], confinement=False)
    one = RecordingStation(bus, 1)
    one.controller.load(0, frame(10))
    bus.run(191_000 * BIT)
    assert len(one.times_of("failed")) == 1000
    assert (one.controller.tec, one.times_of("bus_off")) == (0, [])


def test_a_frame_without_acknowledgement_fails_and_its_sender_becomes_passive_but_never_goes_off() -> None:
    bus = SimBus(allow_lone_sender=False)
    one = RecordingStation(bus, 1)
    one.controller.load(0, frame(10))
    bus.run(100_000 * BIT)
    assert len(one.times_of("failed")) > 100
    assert (one.controller.state, one.controller.tec) == (ErrorState.PASSIVE, 128)
    two = RecordingStation(bus, 2)
    bus.run(110_000 * BIT)
    assert (len(one.times_of("sent")), len(two.times_of("receive"))) == (1, 1)


def test_many_errors_of_others_make_a_receiver_passive_but_never_take_it_off_the_bus() -> None:
    bus = worst_case_bus(fault_hooks=[affect_station(1, Corrupt(100))])
    one, two = RecordingStation(bus, 1), RecordingStation(bus, 2)
    for position in range(8):
        bus.at(position * 10_000 * BIT, lambda: one.controller.load(0, frame(10)))
    bus.run(80_000 * BIT)
    assert two.controller.rec == 128
    assert two.controller.state is ErrorState.PASSIVE


# Bus guardians


def test_a_guardian_lets_hard_frames_start_in_their_windows_only() -> None:
    guardian = BusGuardian(cycle_ns=1000 * BIT, windows=[(300 * BIT, 320 * BIT)])
    bus = worst_case_bus()
    one = RecordingStation(bus, 1, guardian=guardian)
    one.controller.load(0, frame(0))
    bus.run(330 * BIT)
    one.controller.load(1, frame(20))
    bus.at(800 * BIT, lambda: one.controller.load(0, frame(0)))
    bus.run(5000 * BIT)
    sent = [(at, frame.priority) for at, _, kind, frame in one.log if kind == "sent"]
    assert sent == [(460, 0), (620, 20), (1460, 0)]
    assert one.times_of("lost") == [300, 1300], "it is called when a frame may start that was held back on an idle bus"


def test_a_guardian_without_windows_never_lets_a_hard_frame_start() -> None:
    bus = worst_case_bus()
    one, two = RecordingStation(bus, 1, guardian=BusGuardian()), RecordingStation(bus, 2)
    one.controller.load(0, frame(0))
    FrameSource(bus, 3, frame(20, 3), periodic(200 * BIT))
    bus.run(100_000 * BIT)
    assert (one.times_of("sent"), len(two.times_of("receive"))) == ([], 500)
    assert len(bus.scheduler.heap) < 10, "no callbacks accumulate for a frame that never starts"


def test_the_token_bucket_of_a_guardian_limits_a_babbling_station() -> None:
    bus = worst_case_bus()
    guardian = BusGuardian(interval_ns=1_600 * BIT, burst=3)
    RepeatingStation(bus, 1, frame(1), guardian=guardian)
    other = RecordingStation(bus, 2)
    bus.run(160_000 * BIT)
    assert len(other.times_of("receive")) == 3 + 99
    assert other.times_of("receive")[:4] == [160, 320, 480, 1760]


def test_a_guardian_with_impossible_parameters_raises_a_bus_error() -> None:
    for options in ({"cycle_ns": 0}, {"interval_ns": -1}, {"burst": 0}):
        with pytest.raises(BusError, match="must be positive"):
            BusGuardian(**options)  # type: ignore[arg-type]
    with pytest.raises(BusError, match=r"each must be \(start, end\)"):
        BusGuardian(cycle_ns=100, windows=[(5, 5)])
    assert BusGuardian().earliest_start(Frame(0), 5) == NEVER
