"""The time service: precision that holds, time that never goes back, one master at a time."""

from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus.can._protocol.clock_model import (
    SLEW_LIMIT_NS,
    UNBOUNDED_PRECISION,
    ClockAssumptions,
    ClockLine,
    ClockSample,
    estimate_clock,
)
from genus.can._protocol.time_service import (
    ClockStepped,
    MasterChanged,
    Synchronised,
    SyncLost,
    TimeNotice,
    TimeService,
    follow_up_frame,
    sync_frame,
)
from genus.can._wire.frame import Frame, Identifier, Priority, ProtocolEtag
from genus.errors import BusError
from genus.testing import VirtualClock
from tests.examples import examples

from .drifting import MS, SECOND, Crystal, Fault, Station, Wires, losses

PERIOD = 20 * MS
JOINING = 19 * PERIOD
"""After this, all nodes that receive a master are synchronised."""
GAP = 20_000

seeds = st.integers(0, 2**32)
shares = st.sampled_from([0.0, 0.05, 0.3, 0.8])


def wires(seed: int, count: int = 4, share: float = 0.0, *, masterable: bool = True) -> Wires:
    """Stations with random numbers, offsets, rates and wander."""
    random = Random(seed)
    numbers = random.sample(range(1, 127), count)
    crystals = [Crystal(random, offset=random.randint(0, 10**18)) for _ in numbers]
    stations = [Station(*pair, masterable=masterable) for pair in zip(sorted(numbers), crystals, strict=True)]
    return Wires(stations, random, losses(random, share))


def restart(bus: Wires, station: Station) -> None:
    station.reset()
    station.alive = True
    station.service.listen(station.crystal.read(bus.true))


class Alone:
    """One time service, with frames and times by hand."""

    def __init__(self, number: int | None = 50, *, masterable: bool = True, **options: int) -> None:
        self.number = number
        self.clock = VirtualClock(1_000 * SECOND)
        self.sent: list[Frame] = []
        self.notices: list[TimeNotice] = []
        self.service = TimeService(
            send=self.sent.append,
            notify=self.notices.append,
            node=lambda: self.number,
            masterable=masterable,
            **options,
        )
        self.service.listen(self.clock())
        self.sequence = 0

    def wake(self, length: int) -> None:
        """Let time pass, and frames go through at once."""
        until = self.clock() + length
        while (at := self.service.wake_at) is not None and at <= until:
            self.service.wake(self.clock.advance_to(at))
            self.through()
        self.clock.advance_to(until)

    def through(self) -> None:
        for frame in self.sent:
            self.service.sent(frame, self.clock())
        self.sent.clear()

    def receive(self, offset: int, node: int = 3, pause: int = PERIOD) -> None:
        """One pair of a master whose clock is ahead of this one by so much."""
        self.clock.advance(f"{pause}ns")
        self.sequence = (self.sequence + 1) % 256
        time = self.clock() + offset
        self.service.receive(sync_frame(node, self.sequence, time), self.clock())
        self.clock.advance("1ms")
        self.service.receive(follow_up_frame(node, self.sequence, time), self.clock())

    def synchronise(self, offset: int = 0, node: int = 3) -> None:
        for _ in range(30):
            self.receive(offset, node)

    @property
    def offset(self) -> int:
        return self.service.global_time(self.clock()) - self.clock()

    @property
    def precision(self) -> int:
        return self.service.precision(self.clock())


# Precision


@examples(25)
@given(seed=seeds, share=shares)
def test_clocks_differ_by_at_most_their_precisions_and_never_go_back(seed: int, share: float) -> None:
    bus = wires(seed, share=share)
    bus.run(800 * MS)
    assert all(station.precision(bus.true) < UNBOUNDED_PRECISION for station in bus.alive) or share > 0


@examples(25)
@given(seed=seeds, share=shares)
def test_precision_holds_while_masters_die_and_return(seed: int, share: float) -> None:
    bus = wires(seed, share=share)
    bus.run(500 * MS)
    for _ in range(2):
        master = bus.random.choice([station for station in bus.alive if station.service.is_master] or bus.alive)
        master.alive = False
        bus.run(bus.random.randint(0, 300) * MS)
        restart(bus, master)
        bus.run(bus.random.randint(0, 300) * MS)


@examples(25)
@given(seed=seeds, share=st.sampled_from([0.0, 0.3, 0.7]))
def test_the_bound_holds_against_the_masters_own_clock_whatever_is_lost(seed: int, share: float) -> None:
    random = Random(seed)
    master = Station(1, Crystal(random, offset=random.randint(0, 10**18)))
    follower = Station(2, Crystal(random, offset=random.randint(0, 10**18)), masterable=False)
    fault: Fault = lambda station, frame: random.choice([0, 2]) if random.random() < share else 1  # noqa: E731
    bus = Wires([master, follower], random, fault)
    for _ in range(300):
        bus.run(random.randint(0, 5 * MS))
        if (precision := follower.precision(bus.true)) < UNBOUNDED_PRECISION:
            assert abs(follower.time(bus.true) - master.crystal.exact(bus.true)) <= precision


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_precision_holds_through_twenty_seconds_of_deaths_and_returns(seed: int) -> None:
    bus = wires(seed, count=5, share=Random(seed).choice([0.0, 0.05, 0.3, 0.8]))
    while bus.true < 20 * SECOND:
        bus.run(bus.random.randint(1, 500) * MS)
        victim = bus.random.choice(list(bus.stations.values()))
        if victim.alive and len(bus.alive) > 2:
            victim.alive = False
        elif not victim.alive:
            restart(bus, victim)


def test_steady_precision_serves_a_gap_of_twenty_microseconds() -> None:
    """Half the gap is 10 µs; most of what is used is the bit time."""
    bus = wires(1)
    bus.run(SECOND)
    for _ in range(100):
        bus.run(2 * MS)
        assert max(station.precision(bus.true) for station in bus.alive) < 4_000


def test_there_is_no_precision_before_the_first_synchronisation() -> None:
    alone = Alone()
    assert (alone.precision, alone.offset) == (UNBOUNDED_PRECISION, 0)


def test_hold_over_worsens_precision_until_it_ends() -> None:
    """Without a measured rate a gap of 20 µs is used up within 50 ms; with it, hold-over lasts until others lead."""
    alone = Alone(masterable=False)
    alone.synchronise()
    known = [alone.service.precision(alone.clock() + at * MS) for at in range(89)]
    assert known == sorted(known)
    assert known[-1] < GAP // 2 < UNBOUNDED_PRECISION == alone.service.precision(alone.clock() + 90 * MS)
    unmeasured = estimate_clock([ClockSample(0, 0)], ClockAssumptions())
    assert unmeasured.bound(40 * MS) < GAP // 2 < unmeasured.bound(50 * MS)


def test_the_end_of_hold_over_is_reported_once_and_so_is_the_return() -> None:
    alone = Alone(masterable=False)
    alone.synchronise()
    alone.wake(SECOND)
    assert alone.notices[-2:] == [MasterChanged(None), SyncLost()]
    assert alone.service.wake_at is None
    alone.synchronise()
    assert alone.notices[-2] == MasterChanged(3)
    assert isinstance(alone.notices[-1], Synchronised)
    assert sum(isinstance(notice, SyncLost) for notice in alone.notices) == 1


def test_a_rate_is_kept_through_hold_over() -> None:
    """The master is faster by 150 ppm; 80 ms after its last word that would be 12 µs."""
    alone = Alone(masterable=False)
    for count in range(30):
        alone.receive(offset=count * (PERIOD + MS) * 150 // 10**6)
    true = 29 * (PERIOD + MS) * 150 // 10**6 + 80 * 150
    alone.clock.advance(f"{79 * MS}ns")
    assert abs(alone.offset - true) < 100 < alone.precision < 4_000


# Time


@given(
    st.integers(-(2**62), 2**62),
    st.integers(-(2**62), 2**62),
    st.integers(-500_000_000, 10**6),
    st.integers(-(2**62), 2**62),
)
def test_a_line_is_read_both_ways(local: int, global_: int, rate: int, wanted: int) -> None:
    line = ClockLine(local, global_, rate)
    when = line.when(wanted)
    assert line.at(when) >= wanted > line.at(when - 1)


def test_local_time_is_the_first_reading_that_shows_a_global_time() -> None:
    alone = Alone()
    assert alone.service.local_time(77) == 77
    alone.synchronise()
    for off in [0, -900, 700, -1_000]:
        alone.receive(off)
        for wanted in range(alone.service.global_time(alone.clock()) + 1, alone.clock() + 3_000, 97):
            when = alone.service.local_time(wanted)
            assert alone.service.global_time(when) >= wanted > alone.service.global_time(when - 1)


def test_what_is_behind_is_set_forward_at_once() -> None:
    alone = Alone()
    alone.synchronise()
    alone.receive(offset=1_000)
    assert 900 < alone.offset <= 1_100


def test_what_is_ahead_runs_at_half_speed_and_precision_says_so() -> None:
    alone = Alone()
    alone.synchronise()
    before, precision = alone.offset, alone.precision
    alone.receive(offset=-1_000)
    shown = [alone.service.global_time(alone.clock() + passed) for passed in range(0, 1_900, 10)]
    assert shown[0] == alone.clock() + before
    assert {later - earlier for earlier, later in pairwise(shown)} == {5}
    assert alone.precision > precision
    alone.clock.advance("3us")
    assert -1_100 < alone.offset < -900


def test_a_step_back_of_more_than_a_second_is_taken_at_once() -> None:
    alone = Alone()
    alone.synchronise()
    for _ in range(3):
        alone.receive(offset=-SLEW_LIMIT_NS - MS)
    assert alone.offset == pytest.approx(-SLEW_LIMIT_NS - MS, abs=2_000)
    assert any(isinstance(notice, ClockStepped) for notice in alone.notices)


@pytest.mark.parametrize("offset", [-(2**62), -5_000 * SECOND, 2**56 - 1_000 * SECOND - PERIOD, 1_760_000_000 * SECOND])
def test_any_time_of_64_bits_is_sent(offset: int) -> None:
    """Negative, over the edge of 56 bits, since 1970."""
    alone = Alone()
    alone.synchronise(offset)
    assert alone.offset == pytest.approx(offset, abs=1)


def test_a_master_sends_no_follow_up_when_the_leading_bits_have_just_changed() -> None:
    alone = Alone(number=1)
    alone.clock.advance_to(2**56 - 4 * PERIOD)
    alone.service.listen(alone.clock())
    alone.service.wake(alone.clock.advance_to(alone.service.wake_at or 0))
    alone.clock.advance_to(2**56)
    alone.through()
    assert alone.service.is_master
    assert not alone.sent


# Masters


def test_the_lowest_number_is_the_master_and_no_other_node_sends() -> None:
    bus = wires(2, count=6)
    bus.run(JOINING)
    lowest = min(bus.stations)
    assert {station.service.master for station in bus.alive} == {lowest}
    assert {frame.node for _, frame in bus.frames} == {lowest}


@examples(15)
@given(seed=seeds)
def test_the_next_takes_over_within_three_periods_and_stagger_without_a_jump(seed: int) -> None:
    bus = wires(seed)
    bus.run(700 * MS)
    first, second, *_ = sorted(bus.stations)
    bus[first].alive = False
    silent_since = max(true for true, frame in bus.frames if frame.node == first and frame.etag == ProtocolEtag.SYNC)
    others = list(bus.alive)
    while not bus[second].service.is_master:
        bus.run(MS)
        assert max(station.precision(bus.true) for station in others) < GAP // 2
    assert bus.true - silent_since < 3 * PERIOD + second * PERIOD // 100 + 4 * MS
    for _ in range(300):
        bus.run(MS)
        assert max(station.precision(bus.true) for station in others) < GAP // 2
    assert {station.service.master for station in others} == {second}
    assert not any(isinstance(notice, SyncLost | ClockStepped) for station in others for notice in station.notices)


def test_those_who_know_the_time_lead_before_those_who_do_not() -> None:
    """A node that was just switched on has the lowest number, but not the time."""
    bus = wires(8)
    bus.run(JOINING)
    first, second, third, _ = sorted(bus.stations)
    bus[second].alive = False
    bus.run(PERIOD)
    restart(bus, bus[second])
    bus[first].alive = False
    before = bus[third].time(bus.true) - bus.true
    bus.run(JOINING)
    assert {station.service.master for station in bus.alive} == {third}
    assert abs(bus[second].time(bus.true) - bus.true - before) < 100_000


def test_a_node_that_lost_the_time_leads_before_one_that_never_knew_it() -> None:
    knew, never = Alone(number=126), Alone(number=1)
    knew.synchronise()
    knew.wake(70 * MS)
    knew.service.listen(knew.clock())
    for alone in (knew, never):
        alone.wake(5 * PERIOD + 18 * MS)
    assert (knew.service.is_master, never.service.is_master) == (True, False)
    never.wake(3 * MS)
    assert never.service.is_master


def test_a_master_that_returns_follows() -> None:
    bus = wires(3)
    bus.run(JOINING)
    first, second, *_ = sorted(bus.stations)
    bus[first].alive = False
    bus.run(JOINING)
    restart(bus, bus[first])
    bus.run(JOINING)
    assert {station.service.master for station in bus.alive} == {second}


def test_global_time_is_no_less_true_after_many_masters() -> None:
    """The rate of global time stays between those of real clocks, though each master took over another's."""
    bus = wires(4, count=3)
    bus.run(JOINING)
    witness, began = bus.alive[0].time(bus.true), bus.true
    for _ in range(40):
        master = next(station for station in bus.alive if station.service.is_master)
        master.alive = False
        bus.run(JOINING)
        restart(bus, master)
        bus.run(JOINING)
    passed = bus.alive[0].time(bus.true) - witness
    assert abs(passed - (bus.true - began)) <= (bus.true - began) * 100 // 10**6 + 100_000


@given(st.integers(-200_000, 200_000), st.integers(-2_000, 2_000), st.integers(1, 500))
def test_who_takes_over_goes_on_with_a_rate_between_its_own_and_the_one_it_knew(rate: int, off: int, span: int) -> None:
    assumptions = ClockAssumptions(wander_ppm=0, granularity_ns=0)
    samples = [ClockSample(0, 0), ClockSample(span * MS, span * MS + span * rate // 1_000 + off)]
    line = estimate_clock(samples, assumptions).line_of_master((span + 50) * MS)
    assert 0 <= line.rate_ppb <= rate + 1 or rate - 1 <= line.rate_ppb <= 0
    assert line.global_ == estimate_clock(samples, assumptions).line.at(line.local)


@examples(10)
@given(seed=seeds, apart=st.sampled_from([0, 1, 5]))
def test_of_two_masters_after_a_partition_the_lower_number_stays(seed: int, apart: int) -> None:
    bus = wires(seed, count=5)
    bus.run(JOINING)
    for station in bus.alive[1::2]:
        station.wire = 1
    bus.checked = False
    bus.run(JOINING + apart * SECOND)
    assert sum(station.service.is_master for station in bus.alive) == 2
    for station in bus.alive:
        station.wire = 0
    bus.run(JOINING)
    assert {station.service.master for station in bus.alive} == {min(bus.stations)}
    bus.checked = True
    bus.run(JOINING)
    assert max(station.precision(bus.true) for station in bus.alive) < GAP // 2


def test_who_hears_of_another_time_by_a_lower_number_says_so_at_once() -> None:
    alone = Alone()
    alone.synchronise(node=9)
    alone.receive(offset=100_000, node=4)
    assert alone.precision == UNBOUNDED_PRECISION
    assert alone.notices[-1] == SyncLost()
    assert alone.service.master == 9
    assert abs(alone.offset) < 10


def test_a_deaf_node_that_took_over_gives_way_when_it_hears_again() -> None:
    bus = wires(5)
    bus.run(JOINING)
    deaf = max(bus.stations)
    usual, bus.fault = bus.fault, lambda station, frame: int(station.number != deaf)
    bus.run(5 * PERIOD)
    assert bus[deaf].service.is_master
    assert bus[min(bus.stations)].service.is_master
    bus.fault = usual
    bus.run(5 * PERIOD)
    assert {station.service.master for station in bus.alive} == {min(bus.stations)}


def test_the_node_whose_sync_comes_first_is_the_master() -> None:
    """A node that is about to send SYNC follows the node whose SYNC comes first."""
    alone = Alone(number=1)
    alone.service.wake(alone.clock.advance_to(alone.service.wake_at or 0))
    alone.receive(offset=0, node=9, pause=0)
    alone.through()
    assert not alone.service.is_master
    assert not alone.sent
    alone.synchronise(node=9)
    assert alone.service.master == 9


def test_without_a_number_one_follows_only() -> None:
    alone = Alone(number=None)
    assert alone.service.wake_at is None
    alone.synchronise()
    assert alone.service.master == 3
    alone.number = 0
    alone.wake(SECOND)
    assert alone.service.master is None
    alone.number = 5
    alone.wake(SECOND)
    assert alone.service.is_master


def test_who_may_not_lead_does_not() -> None:
    bus = wires(6, masterable=False)
    bus.run(SECOND)
    assert not bus.frames


def test_a_master_that_gets_nothing_through_stands_down() -> None:
    alone = Alone(number=1)
    alone.wake(SECOND)
    assert alone.service.is_master
    while alone.service.is_master:
        alone.service.wake(alone.clock.advance_to(alone.service.wake_at or 0))
    assert len(alone.sent) == 1
    assert alone.notices[-1] == MasterChanged(None)
    alone.service.wake(alone.clock.advance_to(alone.service.wake_at or 0))
    assert alone.notices[-1] == SyncLost()


def test_a_master_that_lost_the_bus_listens_first() -> None:
    alone = Alone(number=1)
    alone.wake(SECOND)
    alone.service.listen(alone.clock())
    assert not alone.service.is_master
    alone.wake(3 * PERIOD)
    assert not alone.service.is_master
    alone.wake(PERIOD)
    assert alone.service.is_master


def test_a_master_that_loses_its_number_stands_down() -> None:
    alone = Alone(number=1)
    alone.wake(SECOND)
    alone.number = None
    alone.wake(2 * PERIOD)
    assert not alone.service.is_master


def test_a_node_that_sends_no_follow_up_is_never_the_only_master() -> None:
    """A node that sends SYNC and never FOLLOW_UP is not waited for."""
    alone = Alone(number=9)
    for sequence in range(20):
        alone.wake(PERIOD)
        alone.service.receive(sync_frame(3, sequence, 0), alone.clock())
    assert alone.service.is_master


# Hostile frames


@pytest.mark.parametrize("sign", [1, -1])
def test_a_time_is_refused_exactly_when_it_cannot_be_true(sign: int) -> None:
    alone = Alone()
    alone.synchronise()
    at = alone.clock() + PERIOD
    allowed = alone.service.precision(at) - alone.service.assumptions.granularity_ns
    allowed += alone.service.assumptions.sample_ns + sign * (alone.service.global_time(at) - at)
    alone.receive(sign * (allowed + 1))
    assert alone.service.dropped["contradiction"] == 1
    alone.receive(sign * allowed)
    assert alone.service.dropped["contradiction"] == 1


def test_one_absurd_time_does_not_move_the_clock() -> None:
    alone = Alone()
    alone.synchronise()
    for absurd in [2**62, -(2**62), 100_000, -100_000]:
        alone.receive(offset=absurd)
        assert abs(alone.offset) < 10
        assert alone.precision < GAP // 2
        alone.receive(offset=0)
    assert alone.service.dropped["contradiction"] == 4
    assert not any(isinstance(notice, ClockStepped) for notice in alone.notices)


def test_three_consistent_samples_are_accepted() -> None:
    alone = Alone()
    alone.synchronise()
    for _ in range(2):
        alone.receive(offset=5 * MS)
        assert abs(alone.offset) < 10
    alone.receive(offset=5 * MS)
    assert alone.offset == pytest.approx(5 * MS, abs=10)
    step = alone.notices[-1]
    assert isinstance(step, ClockStepped)
    assert step.by_ns == pytest.approx(5 * MS, abs=10)
    assert alone.precision > 5 * MS
    alone.synchronise(offset=5 * MS)
    assert alone.precision < GAP // 2


def test_absurd_times_that_are_not_consistent_are_never_accepted() -> None:
    alone = Alone(masterable=False)
    alone.synchronise()
    for absurd in range(1, 30):
        alone.receive(offset=absurd * 3_000_000)
        alone.receive(offset=0)
    assert abs(alone.offset) < 10


def test_other_nodes_are_ignored_while_the_master_is_received() -> None:
    alone = Alone()
    alone.synchronise(node=3)
    for _ in range(5):
        alone.receive(offset=0, node=3, pause=PERIOD // 2)
        alone.receive(offset=7_000, node=8, pause=PERIOD // 2)
    assert alone.service.dropped["not the master"] == 10
    assert alone.service.master == 3
    assert abs(alone.offset) < 10


def test_frames_played_again_do_not_move_the_clock() -> None:
    alone = Alone()
    alone.synchronise()
    old = [sync_frame(3, 17, alone.clock()), follow_up_frame(3, 17, alone.clock())]
    alone.receive(offset=0)
    for frame in old * 5:
        alone.service.receive(frame, alone.clock.advance("1ms"))
    assert abs(alone.offset) < 10


def test_a_sync_that_came_twice_is_not_used() -> None:
    """It is unknown to which of the two the FOLLOW_UP belongs."""
    alone = Alone()
    alone.synchronise()
    for again in (200_000, 0):
        time = alone.clock.advance(f"{PERIOD}ns")
        alone.service.receive(sync_frame(3, 200, time), time)
        alone.service.receive(sync_frame(3, 200, time), alone.clock.advance(f"{again}ns"))
        alone.service.receive(follow_up_frame(3, 200, time), alone.clock.advance("100us"))
    assert alone.service.dropped == {"duplicate": 2, "unpaired": 2}
    assert abs(alone.offset) < 10


def test_a_pair_is_used_once_and_only_together() -> None:
    alone = Alone()
    alone.synchronise()
    time = alone.clock.advance(f"{PERIOD}ns")
    follow_up = follow_up_frame(3, 200, time)
    alone.service.receive(follow_up, time)
    alone.service.receive(sync_frame(3, 199, time), time)
    alone.service.receive(follow_up, time)
    alone.service.receive(sync_frame(3, 200, time), time)
    alone.service.receive(follow_up, time)
    alone.service.receive(follow_up, time)
    alone.service.receive(sync_frame(3, 200, time), alone.clock.advance("1ms"))
    assert alone.service.dropped == {"unpaired": 3, "duplicate": 1}


@pytest.mark.parametrize(
    "frame",
    [
        Frame(Identifier(Priority.SYSTEM, 3, ProtocolEtag.SYNC).pack(), b""),
        Frame(Identifier(Priority.SYSTEM, 3, ProtocolEtag.SYNC).pack(), bytes(3)),
        Frame(Identifier(Priority.HARD, 3, ProtocolEtag.SYNC).pack(), bytes(2)),
        Frame(Identifier(Priority.SYSTEM, 0, ProtocolEtag.SYNC).pack(), bytes(2)),
        Frame(Identifier(Priority.SYSTEM, 3, ProtocolEtag.FOLLOW_UP).pack(), bytes(7)),
        Frame(ProtocolEtag.SYNC, bytes(2), extended=False),
    ],
)
def test_what_is_malformed_is_counted(frame: Frame) -> None:
    alone = Alone()
    alone.service.receive(frame, alone.clock())
    assert alone.service.dropped == {"malformed": 1}


def test_the_own_number_from_another_is_counted() -> None:
    alone = Alone(number=7)
    alone.receive(offset=5, node=7)
    assert alone.service.dropped == {"own number": 2}


def test_any_frames_whatsoever_do_no_harm() -> None:
    """Among others the master's good ones; single lies of all nodes do not move the clock by more than it allows."""
    random = Random(7)
    alone = Alone(masterable=False)
    alone.synchronise(node=1)
    for _ in range(2_000):
        for _ in range(10):
            tag = random.choice([ProtocolEtag.SYNC, ProtocolEtag.FOLLOW_UP, random.randrange(2**14)])
            identifier = Identifier(random.choice([Priority.SYSTEM, 0]), random.randint(2, 127), tag)
            data = random.randbytes(random.choice([2, 8, random.randint(0, 64)]))
            alone.service.receive(Frame(identifier.pack(), data, extended=random.random() < 0.9), alone.clock())
            alone.service.sent(Frame(identifier.pack(), data), alone.clock())
        alone.receive(offset=0, node=1)
    assert abs(alone.offset) < 10
    assert alone.service.master == 1


# Construction


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"drift_ppm": -1}, "drift_ppm is -1"),
        ({"bit_ns": -5}, "bit_ns is -5"),
        ({"drift_ppm": 60_000}, "must be below 100000"),
        ({"period_ns": 0}, "period_ns is 0"),
    ],
)
def test_what_no_clock_can_be_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BusError, match=message):
        Alone(**options)


def test_samples_that_no_assumption_allows_leave_the_rate_unknown() -> None:
    """A master faster by 1000 ppm cannot be, so nothing is concluded from it."""
    found = estimate_clock([ClockSample(0, 0), ClockSample(SECOND // 2, SECOND // 2 + 500_000)], ClockAssumptions())
    assert found.line.rate_ppb == 0
    assert found.growth_ppb == found.later_ppb
