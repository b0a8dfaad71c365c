"""How a node gets its number and keeps it: nibble arbitration, claims, defence."""

from functools import partial
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus.can._protocol.configuration import ConfigurationClient
from genus.can._protocol.messages import Claim, Heartbeat, Nibble, NumberGrant, Prefix, Restart, parse_message
from genus.can._protocol.notices import (
    CLAIM_PERIOD,
    LEASE,
    MAX_RETRY,
    RETRY,
    ROLL_CALL_SPREAD,
    STAGE_TIMEOUT,
    BrokerSeen,
    Configured,
    NodeIdConflict,
    Notice,
    NumbersExhausted,
)
from genus.can._wire.frame import ID_MASK, Frame, ProtocolEtag
from genus.errors import BusError
from tests.examples import examples

from .stations import MS, Station, System

ROLL_CALL_MS = 30
"""What the roll call takes at the most."""


def numbers(stations: list[Station]) -> list[int]:
    return [station.node for station in stations if station.node is not None]


def all_configured(system: System, stations: list[Station], within_ms: int) -> float:
    """When every station has a number of its own, in ms."""
    start = system.bus.now
    while len(numbers(stations)) < len(stations):
        system.run(1)
        assert system.bus.now - start <= within_ms * MS, f"only {len(numbers(stations))} have a number"
    assert len(set(numbers(stations))) == len(stations)
    return (system.bus.now - start) / MS


# -- getting a number --------------------------------------------------------------------------------------------------


def test_a_node_gets_a_number_in_32_frames() -> None:
    system = System(exact=False)
    broker = system.broker()
    system.run(ROLL_CALL_MS)
    before = system.bus.frames
    station = system.station(0xABCD_EF01_2345_67AD)
    system.run(3.9)
    assert station.notices_of(Configured) == [Configured(1)]
    assert system.bus.frames - before == 32
    assert dict(broker.machine.numbers) == {0xABCD_EF01_2345_67AD: 1}  # type: ignore[attr-defined]


@pytest.mark.slow  # row 15 of the fault table is the same with other numbers
def test_126_nodes_powered_up_together_have_numbers_of_their_own_in_less_than_700_ms() -> None:
    system, random = System(), Random(3)
    system.broker()
    stations = [system.station(random.getrandbits(64)) for _ in range(126)]
    assert all_configured(system, stations, 700) < 500
    assert system.bus.errors == 0
    assert sorted(numbers(stations)) == list(range(1, 127))


@pytest.mark.slow
@pytest.mark.parametrize(("bitrate", "seed"), [(125_000, 1), (1_000_000, 0), (1_000_000, 1)])
def test_126_nodes_have_numbers_though_every_frame_is_as_long_as_it_can_be(bitrate: int, seed: int) -> None:
    system, random = System(exact=False, bitrate=bitrate), Random(seed)
    system.broker()
    first = random.getrandbits(63)
    uids = [first + n for n in range(126)] if seed == 0 else [random.getrandbits(64) for _ in range(126)]
    stations = [system.station(uid) for uid in uids]
    assert all_configured(system, stations, 700 * 1_000_000 // bitrate) < 560 * 1_000_000 // bitrate


def test_controllers_that_cannot_take_a_frame_back_only_cost_time() -> None:
    system, random = System(), Random(4)
    system.broker()
    stations = [system.station(random.getrandbits(64)) for _ in range(24)]
    for station in stations:
        station.configuration._withdraw = lambda frame: None
    all_configured(system, stations, 1_000)


@given(
    st.lists(st.tuples(st.integers(1, 2**64 - 1), st.integers(0, 60)), min_size=2, max_size=6, unique_by=lambda x: x[0])
)
@examples(25)
def test_nodes_get_numbers_of_their_own_whenever_they_start(arrivals: list[tuple[int, int]]) -> None:
    system = System()
    system.broker()
    stations = []
    for uid, wait_ms in arrivals:
        system.run(wait_ms / 7)
        stations.append(system.station(uid))
    all_configured(system, stations, 300)


def test_a_node_has_the_same_number_after_a_restart() -> None:
    system = System()
    system.broker()
    first, second = system.station(0x10), system.station(0x20)
    all_configured(system, [first, second], 100)
    before = second.node
    again = Station(0x20)
    system.hosts[2].restart(again)
    system.run(20)
    assert again.node == before


@pytest.mark.parametrize("stage", range(15))
def test_a_node_that_stops_in_mid_protocol_holds_others_up_for_50_ms(stage: int) -> None:
    system = System()
    system.broker()
    system.run(ROLL_CALL_MS)
    system.station(1 << 4 * stage | 1)  # the lower uid wins every stage
    stages: list[int] = []
    other = system.station(0xF << 60)
    while stage not in stages:
        system.run(0.02)
        frame = system.hosts[1].controller.frames[1]
        message = parse_message(frame) if frame else None
        stages += [message.stage] if isinstance(message, Nibble) else []
    system.hosts[1].crash()
    system.run(STAGE_TIMEOUT / MS + 5)
    assert other.node is not None


def test_a_node_alone_asks_again_ever_more_rarely() -> None:
    sent: list[Frame] = []
    node = ConfigurationClient(7, send=sent.append, withdraw=lambda frame: None, notify=lambda notice: None)
    node.start(0)
    times = [node.wake_at]
    for _ in range(6):
        assert node.wake_at is not None
        node.wake(node.wake_at)
        times.append(node.wake_at)
    gaps = [after - before for before, after in pairwise(times) if before and after]
    assert times[0] == RETRY
    assert gaps == [2 * RETRY, 4 * RETRY, 8 * RETRY, MAX_RETRY, MAX_RETRY, MAX_RETRY]
    assert sent == [Nibble(15, 0).frame()] * 7


def test_nodes_that_wait_for_a_broker_are_served_as_soon_as_it_is_there() -> None:
    system = System()
    stations = [system.station(uid) for uid in (5, 6)]
    system.run(3_000)
    assert numbers(stations) == []
    system.broker()
    all_configured(system, stations, ROLL_CALL_MS + 10)


def test_the_127th_node_gets_a_notice_that_no_number_is_free_and_a_number_when_a_lease_has_ended() -> None:
    system = System()
    broker = system.broker()
    system.run(ROLL_CALL_MS)
    for number in range(1, 126):  # as many nodes that claim
        broker.call(partial(broker.machine.receive, Claim(number, 1000 + number).frame()))
    last, late = system.station(1), system.station(2)
    system.run(20)
    assert (last.node, late.node) == (126, None)
    assert late.notices_of(NumbersExhausted) == [NumbersExhausted()]
    system.run(LEASE / MS - 500)
    assert late.node is None
    system.run(MAX_RETRY / MS + 700)
    assert late.node is not None
    assert late.node != 126


def test_uid_0_is_refused() -> None:
    for uid in (0, -1, 2**64):
        with pytest.raises(BusError, match="64 bits"):
            Station(uid)


# -- on its own --------------------------------------------------------------------------------------------------------


class Lone:
    """A component without a bus."""

    def __init__(self, uid: int) -> None:
        self.queue: list[Frame] = []
        self.notices: list[Notice] = []
        self.node = ConfigurationClient(uid, send=self.queue.append, withdraw=self.withdraw, notify=self.notices.append)

    def withdraw(self, frame: Frame) -> None:
        self.queue[:] = [each for each in self.queue if each is not frame]

    def receive(
        self, *messages: Nibble | Prefix | Restart | NumberGrant | Claim | Heartbeat, now: int = 0
    ) -> list[Frame]:
        """What is queued after all that."""
        for message in messages:
            self.node.receive(message.frame(), now)
        return self.queue


UID = 0xABCD_0000_0000_0005


def configured(uid: int = UID, number: int = 9) -> Lone:
    lone = Lone(uid)
    lone.node.start(0)
    lone.receive(NumberGrant(uid, number))
    lone.queue.clear()
    return lone


def test_a_node_goes_on_where_the_prefix_is_its_own_and_waits_where_it_is_not() -> None:
    lone = Lone(UID)
    lone.node.start(0)
    assert lone.queue == [Nibble(15, 0xA).frame()]
    assert lone.receive(Prefix(15, 0xA << 60)) == [Nibble(14, 0xB).frame()]
    assert lone.receive(Prefix(14, 0xAA << 56)) == []
    assert lone.receive(NumberGrant(0xAA00_0000_0000_0001, 3)) == [Nibble(15, 0xA).frame()]
    assert lone.receive(Prefix(12, 0xABCD << 48)) == [Nibble(11, 0).frame()]
    assert lone.receive(Restart()) == [Nibble(15, 0xA).frame()]
    assert lone.receive(NumberGrant(UID, 9)) == [Claim(9, UID).frame()]
    assert lone.notices == [Configured(9)]


@pytest.mark.parametrize(("received", "kept"), [(15, False), (14, False), (13, False), (14 + 1, False)])
def test_a_nibble_of_the_same_stage_or_a_later_one_takes_back_its_own(received: int, kept: bool) -> None:
    lone = Lone(UID)
    lone.node.start(0)
    assert bool(lone.receive(Nibble(received, 0))) == kept


def test_a_nibble_of_an_earlier_stage_does_not() -> None:
    lone = Lone(UID)
    lone.node.start(0)
    lone.receive(Prefix(10, UID >> 40 << 40))
    assert lone.receive(Nibble(15, 0)) == [Nibble(9, 0).frame()]


def test_a_node_with_a_number_has_nothing_to_do_with_configuration() -> None:
    lone = configured()
    assert lone.receive(Restart(), Prefix(15, 0xA << 60), Nibble(15, 0), NumberGrant(5, 7), NumberGrant(UID, 7)) == []
    assert lone.node.node == 9


def test_claims_come_at_least_once_a_second_and_not_in_step() -> None:
    lone = configured()
    times = []
    for _ in range(20):
        assert lone.node.wake_at is not None
        times.append(lone.node.wake_at)
        lone.node.wake(times[-1])
    gaps = [after - before for before, after in pairwise(times)]
    assert max(gaps) <= CLAIM_PERIOD
    assert len(set(gaps)) > 10
    assert lone.queue == [Claim(9, UID).frame()]


def test_a_roll_call_is_answered_soon() -> None:
    lone = configured()
    lone.receive(Heartbeat(1, 2, roll_call=True), now=100)
    assert lone.node.wake_at is not None
    assert lone.node.wake_at < 100 + ROLL_CALL_SPREAD
    lone.node.wake(lone.node.wake_at)
    assert lone.queue == [Claim(9, UID).frame()]


def test_a_broker_is_reported_once_and_again_when_it_changed() -> None:
    lone = configured()
    lone.receive(Heartbeat(1, 2), Heartbeat(1, 2), Heartbeat(1, 3), Heartbeat(2, 3), Heartbeat(2, 3))
    assert lone.notices[1:] == [BrokerSeen(1, 2), BrokerSeen(1, 3), BrokerSeen(2, 3)]


def test_the_lower_uid_keeps_the_number_and_defends_it() -> None:
    lone = configured()
    assert lone.receive(Claim(9, UID + 1)) == [Claim(9, UID).frame()]
    assert lone.notices[1:] == [NodeIdConflict(9, UID + 1, kept=True)]
    assert lone.node.node == 9


def test_the_higher_uid_gives_the_number_up_and_asks_for_another() -> None:
    """It claims it a last time, so that the other detects the conflict."""
    lone = configured()
    assert lone.receive(Claim(9, UID - 1)) == [Claim(9, UID).frame(), Nibble(15, 0xA).frame()]
    assert lone.notices[1:] == [NodeIdConflict(9, UID - 1, kept=False)]
    assert lone.node.node is None


def test_a_grant_of_its_number_to_another_is_answered_with_a_claim() -> None:
    assert configured().receive(NumberGrant(UID - 1, 9)) == [Claim(9, UID).frame()]


def test_two_defenders_do_not_fill_the_bus() -> None:
    lone = configured()
    for now in range(0, 1_000 * MS, MS):
        lone.receive(Claim(9, UID + 1), now=now)
        lone.queue.clear()
    defences = 0
    for now in range(1_000 * MS, 2_000 * MS, MS):
        defences += len(lone.receive(Claim(9, UID + 1), now=now))
        lone.queue.clear()
    assert 8 <= defences <= 11


def test_a_claim_that_was_corrupted_three_times_is_repeated_after_a_while() -> None:
    lone = configured()
    lone.node.claim(0)
    (claim,) = lone.queue
    for attempt in range(2):
        lone.node.failed(claim, attempt)
        assert lone.queue == [claim]
    lone.node.failed(claim, 100)
    assert lone.queue == []
    assert lone.node.wake_at is not None
    assert 100 < lone.node.wake_at <= 100 + 16 * MS


def test_a_node_without_a_free_number_pauses() -> None:
    """However much others say that would concern it, until its time has come."""
    lone = Lone(UID)
    lone.node.start(0)
    lone.receive(NumberGrant(UID, 0))
    assert lone.notices == [NumbersExhausted()]
    assert lone.receive(Restart(), NumberGrant(5, 7), Prefix(15, 0xA << 60), Nibble(15, 0xA), now=MS) == []
    assert lone.node.wake_at == MAX_RETRY
    lone.node.wake(MAX_RETRY)
    assert lone.queue == [Nibble(15, 0xA).frame()]


def test_a_number_that_was_planned_is_claimed_and_defended() -> None:
    lone = Lone(UID)
    lone.node.adopt(9, 0)
    assert lone.notices == [Configured(9)]
    assert lone.queue == [Claim(9, UID).frame()]
    lone.queue.clear()
    assert lone.receive(Claim(9, UID + 1)) == [Claim(9, UID).frame()]


def test_stopping_leaves_nothing_queued_and_nothing_to_wait_for() -> None:
    lone = Lone(UID)
    lone.node.start(0)
    lone.node.stop()
    assert lone.queue == []
    assert lone.node.wake_at is None
    assert lone.receive(Restart(), NumberGrant(UID, 3)) == []


# -- conflicts on the bus ----------------------------------------------------------------------------------------------


def with_number(system: System, uid: int, number: int, seed: int | None = None) -> Station:
    """A node that got a number elsewhere."""
    station = Station(uid, seed=seed)
    station.wake(system.bus.now)
    station.receive(NumberGrant(uid, number).frame(), system.bus.now)
    return station


def test_of_two_nodes_with_one_number_the_lower_uid_keeps_it_and_both_are_alarmed() -> None:
    system = System()
    system.broker()
    system.run(ROLL_CALL_MS)
    low, high = with_number(system, 0x10, 5), with_number(system, 0x20, 5)
    for station in (low, high):
        system.add(station)  # both claim at once: the same identifier, different data
    system.run(100)
    assert low.node == 5
    assert high.node not in (5, None)
    assert low.notices_of(NodeIdConflict) == [NodeIdConflict(5, 0x20, kept=True)]
    assert high.notices_of(NodeIdConflict) == [NodeIdConflict(5, 0x10, kept=False)]
    assert 1 <= system.bus.errors <= 5


def test_two_nodes_with_one_uid_are_both_alarmed_within_two_seconds() -> None:
    system = System()
    system.broker()
    twins = [Station(0x77, seed=seed) for seed in (1, 2)]
    for twin in twins:
        system.add(twin)  # they power up together, so their frames are the same bit by bit
    system.run(2_000)
    assert [twin.node for twin in twins] == [1, 1]
    assert all(NodeIdConflict(1, 0x77, kept=True) in twin.notices_of(NodeIdConflict) for twin in twins)


def test_a_second_node_with_a_uid_in_use_alarms_both_at_once() -> None:
    system = System()
    system.broker()
    first = system.station(0x77, seed=1)
    system.run(500)
    second = system.station(0x77, seed=2)
    system.run(500)
    assert first.notices_of(NodeIdConflict)
    assert second.notices_of(NodeIdConflict)


# -- noise -------------------------------------------------------------------------------------------------------------


def assault(station: Station, frames: int, seed: int) -> None:
    """Random frames, most of them with a protocol tag, and time that goes by."""
    random, now = Random(seed), 0
    station.wake(now)
    for _ in range(frames):
        identifier = random.getrandbits(29)
        if random.random() < 0.8:
            band = random.choice((251, 252, 253, 254))
            node = random.choice((0, 1, 5, 127, random.getrandbits(7)))
            identifier = band << 21 | node << 14 | random.choice(list(ProtocolEtag))
        data = random.choice((random.randbytes(8), random.randbytes(random.randrange(9)), bytes(8)))
        now += random.randrange(2 * MS)
        station.receive(Frame(identifier & ID_MASK, data), now)
        if station.wake_at is not None and station.wake_at <= now:
            station.wake(now)
        station.queue.waiting.clear()
        station.queue.load()
        station.take()


@pytest.mark.parametrize("frames", [20_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_random_frames_do_no_harm(frames: int) -> None:
    station = Station(0x1234, subjects=[5, 6])
    station.questions.ask_catalog(0)
    assault(station, frames, seed=frames)
    assert station.node is None or 1 <= station.node <= 126


def test_frames_of_events_change_nothing() -> None:
    station, random = Station(0x1234), Random(1)
    station.wake(0)
    before = (station.node, station.wake_at)
    for _ in range(5_000):
        station.receive(Frame(random.getrandbits(15) << 14 | random.randrange(128, 1 << 14), random.randbytes(8)), 1)
    assert (station.node, station.wake_at) == before
    assert station.notices == []
