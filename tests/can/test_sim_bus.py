"""Arbitration, frame times, mailboxes and the order in which stations are called."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus.can._sim.bus import SimBus
from genus.can._sim.controller import Controller, ControllerListener
from genus.can._sim.errors import FrameOutcome
from genus.can._sim.scheduler import Scheduler
from genus.can._sim.trace import Trace
from genus.can._wire.frame import Frame, Timing, arbitration_key, exact_bits, worst_case_bits
from genus.errors import BusError
from tests.can.sim_parts import BIT, RecordingStation, frame, worst_case_bus

standard = st.builds(lambda id_: Frame(id_, extended=False), st.integers(0, 2**11 - 1))
extended = st.builds(Frame, st.integers(0, 2**29 - 1))


def arbitration_bits(frame_: Frame) -> str:
    """The bits on the wire: 11 bits, then RTR and IDE, or SRR, IDE, 18 bits and RTR."""
    if not frame_.extended:
        return f"{frame_.id:011b}00"
    return f"{frame_.id >> 18:011b}11{frame_.id & 0x3FFFF:018b}0"


def arbitrate_bit_by_bit(frames: list[Frame]) -> set[Frame]:
    """All frames are sent; a sender stops when its bit is a recessive 1 and the bus has a dominant 0."""
    left, position = set(frames), 0
    while len({arbitration_bits(each) for each in left}) > 1:
        bits = {each: arbitration_bits(each)[position] for each in left}
        dominant = min(bits.values())
        left = {each for each, bit in bits.items() if bit == dominant}
        position += 1
    return left


@given(st.lists(st.one_of(standard, extended), min_size=1, max_size=8))
def test_arbitration_keys_order_frames_as_the_wire_does(frames: list[Frame]) -> None:
    best = min(frames, key=arbitration_key)
    assert best in arbitrate_bit_by_bit(frames)


@given(st.integers(0, 2**11 - 1), st.integers(0, 2**18 - 1))
def test_a_standard_frame_beats_extended_ones_with_the_same_leading_bits(base: int, rest: int) -> None:
    assert arbitration_key(Frame(base, extended=False)) < arbitration_key(Frame(base << 18 | rest))


def test_a_frame_takes_its_exact_length_and_starts_at_once_on_an_idle_bus() -> None:
    bus = SimBus(Timing(500_000))
    one, two = RecordingStation(bus, 1), RecordingStation(bus, 2)
    sent = Frame(0x0021_6010, b"hello")
    bus.at(7_777, lambda: one.controller.load(0, sent))
    bus.run(10_000_000)
    end = 7_777 + exact_bits(sent) * 2_000
    assert two.log == [(end // BIT, 2, "receive", sent)]
    assert one.log == [(end // BIT, 1, "sent", sent)]
    assert bus.busy_ns == exact_bits(sent) * 2_000


@pytest.mark.parametrize(("fd", "data"), [(False, bytes(8)), (True, bytes(64)), (True, b"\x55" * 12)])
def test_classic_and_fd_frames_take_what_the_timing_says(fd: bool, data: bytes) -> None:
    timing = Timing(500_000, 2_000_000)
    for exact in (True, False):
        bus = SimBus(timing, exact_lengths=exact)
        one = RecordingStation(bus, 1)
        sent = Frame(0x0021_6010, data, fd)
        one.controller.load(0, sent)
        bus.run(10_000_000)
        assert bus.busy_ns == (timing.exact_ns(sent) if exact else timing.worst_case_ns(len(data), fd=fd))


def test_order_at_the_end_of_a_frame_is_receivers_sender_losers_callbacks_arbitration() -> None:
    bus = worst_case_bus()
    log: list[Any] = []
    stations = {n: RecordingStation(bus, n, log) for n in (1, 2, 3)}
    stations[2].controller.load(0, frame(20))
    stations[1].controller.load(0, frame(10))
    bus.at(160 * BIT, lambda: log.append("due"))
    bus.at(160 * BIT, lambda: stations[3].controller.load(0, frame(5)))
    bus.run(320 * BIT)
    calls = [entry if entry == "due" else entry[:3] for entry in log]
    assert calls == [
        (160, 2, "receive"), (160, 3, "receive"), (160, 1, "sent"), (160, 2, "lost"), "due",
        (320, 1, "receive"), (320, 2, "receive"), (320, 3, "sent"), (320, 2, "lost"),
    ]  # fmt: skip


def test_a_station_that_loads_while_the_bus_is_busy_takes_part_in_the_next_arbitration_and_has_not_lost() -> None:
    bus = worst_case_bus()
    one, two = RecordingStation(bus, 1), RecordingStation(bus, 2)
    one.controller.load(0, frame(10))
    bus.at(50 * BIT, lambda: two.controller.load(0, frame(20)))
    bus.run(1000 * BIT)
    assert two.times_of("lost") == []
    assert two.times_of("sent") == [320]


def test_a_station_sends_the_mailbox_of_higher_priority_first_and_does_not_lose_against_itself() -> None:
    bus = worst_case_bus()
    one = RecordingStation(bus, 1)
    one.controller.load(1, frame(20))
    one.controller.load(0, frame(10))
    bus.run(1000 * BIT)
    assert [entry[2:] for entry in one.log] == [("sent", frame(10)), ("sent", frame(20))]


# Mailboxes: the rules of genus.can._machine.Load


def test_loading_replaces_a_frame_that_is_not_on_the_wire() -> None:
    bus = worst_case_bus()
    one, two = RecordingStation(bus, 1), RecordingStation(bus, 2)
    two.controller.load(0, frame(1, 2))
    one.controller.load(0, frame(10))
    one.controller.load(0, frame(11))
    bus.run(1000 * BIT)
    assert [entry[3] for entry in one.log if entry[2] == "sent"] == [frame(11)]


def test_a_frame_on_the_wire_is_not_stopped_and_the_new_one_is_next() -> None:
    bus = worst_case_bus()
    one = RecordingStation(bus, 1)
    one.controller.load(0, frame(10))
    bus.at(50 * BIT, lambda: one.controller.load(0, frame(11)))
    bus.run(1000 * BIT)
    assert [entry[:1] + entry[2:] for entry in one.log] == [(160, "sent", frame(10)), (320, "sent", frame(11))]


def test_the_same_frame_loaded_while_it_is_on_the_wire_is_sent_again() -> None:
    bus = worst_case_bus()
    one = RecordingStation(bus, 1)
    same = frame(10)
    one.controller.load(0, same)
    bus.at(50 * BIT, lambda: one.controller.load(0, same))
    bus.run(1000 * BIT)
    assert one.times_of("sent") == [160, 320]


def test_emptying_a_mailbox_does_not_stop_the_frame_on_the_wire() -> None:
    bus = worst_case_bus()
    one = RecordingStation(bus, 1)
    one.controller.load(0, frame(10))
    bus.at(50 * BIT, lambda: one.controller.load(0, None))
    bus.run(1000 * BIT)
    assert one.times_of("sent") == [160]
    assert bus.frames == 1


def test_emptying_a_mailbox_withdraws_a_frame_that_is_not_on_the_wire() -> None:
    bus = worst_case_bus()
    one = RecordingStation(bus, 1)
    one.controller.load(0, frame(10))
    one.controller.load(0, None)
    bus.run(1000 * BIT)
    assert one.log == []


def test_a_listener_may_load_a_frame_when_it_is_called() -> None:
    bus = worst_case_bus()

    class Resender(ControllerListener):
        count = 0

        def sent(self, frame: Frame, now: int) -> None:
            self.count += 1
            controller.load(0, frame)

    resender = Resender()
    controller = bus.attach(Controller(1, resender))
    controller.load(0, frame(10))
    bus.run(1600 * BIT)
    assert resender.count == 10
    assert bus.busy_ns == 1600 * BIT, "back to back, without a gap"


# Several senders of one identifier


def test_identical_frames_are_sent_together_and_confirmed_to_all_senders() -> None:
    bus = worst_case_bus(trace=(trace := Trace()))
    one, two, three = (RecordingStation(bus, n) for n in (1, 2, 3))
    question = frame(253, 0, b"")
    for station in (one, two):
        station.controller.load(0, question)
    bus.run(1000 * BIT)
    assert one.times_of("sent") == two.times_of("sent") == three.times_of("receive") == [80]
    assert one.times_of("receive") == two.times_of("receive") == []
    assert trace.passages[0].senders == (1, 2)
    assert (bus.frames, bus.errors) == (1, 0)


def test_different_data_with_one_identifier_collide_and_both_senders_count_an_error() -> None:
    bus = SimBus(trace=(trace := Trace()))
    one, two, three = (RecordingStation(bus, n) for n in (1, 2, 3))
    one.controller.load(0, frame(10, 1, b"abc"))
    two.controller.load(0, frame(10, 1, b"abd"))
    bus.run(200 * BIT)
    assert trace.passages[0].outcome is FrameOutcome.COLLISION
    assert one.times_of("failed")[0] == two.times_of("failed")[0] == 61 + 6 + 6 + 8 + 3
    assert one.controller.tec >= 8
    assert two.controller.tec >= 8
    assert three.times_of("receive") == []


# Filters


def test_filters_are_value_and_mask_over_the_identifier() -> None:
    bus = worst_case_bus()
    one = RecordingStation(bus, 1)
    filtered, closed = RecordingStation(bus, 2, filters=((200, 0x3FFF),)), RecordingStation(bus, 3, filters=())
    unfiltered = RecordingStation(bus, 4)
    sent = [frame(10), Frame(10 << 21 | 201, b""), Frame(200, b"", extended=False)]
    for position, each in enumerate(sent):
        bus.at(position * 500 * BIT, lambda each=each: one.controller.load(0, each))  # type: ignore[misc]
    bus.run(5000 * BIT)
    assert [entry[3] for entry in filtered.log] == [sent[0]]
    assert closed.log == []
    assert [entry[3] for entry in unfiltered.log] == sent


def test_changed_filters_apply_from_the_next_end_of_a_frame() -> None:
    bus = worst_case_bus()
    one, two = RecordingStation(bus, 1), RecordingStation(bus, 2)
    for start, filters in ((0, None), (200, ()), (400, ((200, 0x3FFF),))):
        bus.at(start * BIT, lambda f=filters: two.controller.set_filters(f))  # type: ignore[misc]
        bus.at(start * BIT, lambda: one.controller.load(0, frame(10)))
    bus.run(1000 * BIT)
    assert two.times_of("receive") == [160, 560]


# Attaching and detaching


def test_detaching_a_controller_cuts_off_the_frame_it_sends() -> None:
    bus = SimBus(trace=(trace := Trace()))
    one, two = RecordingStation(bus, 1), RecordingStation(bus, 2)
    one.controller.load(0, frame(10))
    two.controller.load(0, frame(20, 2))
    bus.at(50 * BIT, lambda: bus.detach(one.controller))
    bus.run(1000 * BIT)
    assert trace.passages[0].outcome is FrameOutcome.CUT
    assert trace.passages[0].end_ns == (50 + 23) * BIT
    assert trace.passages[1].start_ns == trace.passages[0].end_ns
    assert one.log == []
    assert [entry[2] for entry in two.log] == ["lost", "sent"]


def test_the_next_frame_may_end_when_the_frame_that_was_cut_off_would_have_ended() -> None:
    bus = worst_case_bus()
    one, two = RecordingStation(bus, 1), RecordingStation(bus, 2)
    one.controller.load(0, frame(10))
    bus.at(57 * BIT, lambda: bus.detach(one.controller))
    bus.at(80 * BIT, lambda: two.controller.load(0, frame(20, 2, b"")))
    bus.run(1000 * BIT)
    assert two.times_of("sent") == [160]


class Detacher(ControllerListener):
    """Detaches a station from the bus when it receives a frame."""

    def __init__(self, bus: SimBus, controllers: dict[int, Controller], target: int) -> None:
        self.bus, self.controllers, self.target = bus, controllers, target

    def receive(self, frame: Frame, now: int) -> None:
        self.bus.detach(self.controllers[self.target])


def test_a_receiver_may_detach_the_sender_a_loser_or_itself_at_the_end_of_a_frame() -> None:
    for number, expected in ((1, [(2, "lost")]), (2, [(1, "sent")]), (3, [(1, "sent"), (2, "lost")])):
        bus = worst_case_bus()
        log: list[Any] = []
        stations = {n: RecordingStation(bus, n, log) for n in (1, 2)}

        stations[1].controller.load(0, frame(10))
        stations[2].controller.load(0, frame(20, 2))
        controllers = {n: station.controller for n, station in stations.items()}
        controllers[3] = Controller(3, Detacher(bus, controllers, number), filters=((10 << 21, 255 << 21),))
        bus.attach(controllers[3])
        bus.run(161 * BIT)
        assert [entry[1:3] for entry in log if entry[2] != "receive"] == expected
        bus.run(1000 * BIT)
        assert bus.idle
        assert bus.frames == (1 if number == 2 else 2)


def test_a_frame_in_a_mailbox_moves_with_its_controller_to_another_bus() -> None:
    scheduler = Scheduler()
    here, there = (SimBus(scheduler=scheduler, exact_lengths=False) for _ in range(2))
    one, two = RecordingStation(here, 1), RecordingStation(there, 2)
    here.detach(one.controller)
    one.controller.load(0, frame(10))
    scheduler.run(100 * BIT)
    there.attach(one.controller)
    scheduler.run(1000 * BIT)
    assert two.times_of("receive") == [260]


def test_two_buses_share_time_and_nothing_else() -> None:
    scheduler = Scheduler()
    log: list[Any] = []
    left, right = (SimBus(scheduler=scheduler, exact_lengths=False) for _ in range(2))
    for bus, number in ((left, 1), (left, 2), (right, 3), (right, 4)):
        RecordingStation(bus, number, log).controller.load(0, frame(number))
    scheduler.run(320 * BIT)
    assert [entry[:3] for entry in log if entry[2] == "sent"] == [
        (160, 1, "sent"), (160, 3, "sent"), (320, 2, "sent"), (320, 4, "sent"),
    ]  # fmt: skip


def test_wrong_use_raises_a_bus_error() -> None:
    bus, other = SimBus(), SimBus()
    controller = bus.attach(Controller(1))
    with pytest.raises(BusError, match="station 1 is on a bus already"):
        bus.attach(controller)
    with pytest.raises(BusError, match="station 1 is not on this bus"):
        other.detach(controller)
    with pytest.raises(BusError, match="0 mailboxes"):
        Controller(2, mailboxes=0)
    with pytest.raises(BusError, match="station 1 has 2 mailboxes, and no number 2"):
        controller.load(2, frame(1))
    bus.run(10)
    with pytest.raises(BusError, match="5 ns is past: it is 10 ns"):
        bus.at(5, int)
    with pytest.raises(BusError, match="5 ns is past"):
        bus.run(5)
    bus.at(20, lambda: bus.run(30))
    with pytest.raises(BusError, match="a callback cannot run it"):
        bus.run(40)


# Laws


jobs = st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 250), st.integers(0, 8)), min_size=1, max_size=20)


@given(jobs)
def test_the_bus_is_a_nonpreemptive_processor_that_serves_by_priority(jobs: list[tuple[int, int, int]]) -> None:
    """Compared with a schedule that the test computes."""
    bus = worst_case_bus(trace=(trace := Trace()))
    for number, (release, priority, size) in enumerate(jobs):
        controller = bus.attach(Controller(number))
        sent = Frame(priority << 21 | number << 14, bytes(size))
        bus.at(release * BIT, lambda c=controller, f=sent: c.load(0, f))  # type: ignore[misc]
    bus.run(10_000 * BIT)
    waiting, now, expected = dict(enumerate(jobs)), 0, []
    while waiting:
        ready = [n for n, (release, *_) in waiting.items() if release <= now]
        if not ready:
            now = min(release for release, *_ in waiting.values())
            continue
        first = min(ready, key=lambda n: (waiting[n][1], n))
        end = now + worst_case_bits(waiting.pop(first)[2])
        expected.append((now * BIT, end * BIT, (first,)))
        now = end
    assert [(each.start_ns, each.end_ns, each.senders) for each in trace] == expected


@given(jobs, st.randoms(use_true_random=False))
def test_every_frame_is_received_once_by_each_station_that_accepts_it_and_frames_never_overlap(
    jobs: list[tuple[int, int, int]], random: Any
) -> None:
    bus = SimBus(trace=(trace := Trace()))
    log: list[Any] = []
    receivers = [RecordingStation(bus, 100 + n, log, filters=None if n else ((1 << 21, 1 << 21),)) for n in range(3)]
    for number, (release, priority, size) in enumerate(jobs):
        controller = bus.attach(Controller(number, filters=()))
        sent = Frame(priority << 21 | number << 14, random.randbytes(size))
        bus.at(release * BIT, lambda c=controller, f=sent: c.load(0, f))  # type: ignore[misc]
    bus.run(10_000 * BIT)
    assert bus.frames == len(jobs)
    odd = sum(priority & 1 for _, priority, _ in jobs)
    assert [len(each.times_of("receive")) for each in receivers] == [odd, len(jobs), len(jobs)]
    passages = list(trace)
    assert all(a.end_ns <= b.start_ns for a, b in pairwise(passages))
    assert bus.busy_ns == sum(each.end_ns - each.start_ns for each in passages)
