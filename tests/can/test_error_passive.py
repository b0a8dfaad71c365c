"""Hard events of senders that are error passive, or become so: on time, or their programs were told before the slot.

A sender that is error passive is suspended for 8 bits after each of its frames, in which another station may begin one.
With the policy `stop` a node promises nothing from before that on; with `plan` its slots are long enough.
"""

from functools import partial
from random import Random
from typing import Any, ClassVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus import Catalog, Event, Hard, UInt8
from genus.can import BusOff, ErrorActive, ErrorPassive, EventMissing, NotSent, PreparedSystem, Scenario
from genus.can._node.node import Node
from genus.can._plan.calendar import Calendar, Slot, most_errors, suspensions
from genus.can._plan.system import ERROR_PASSIVE_POLICIES, BusSpec, ChannelSpec, ErrorPassivePolicy, System
from genus.can._sim.bus import SimBus
from genus.can._sim.controller import Controller
from genus.can._sim.errors import Corrupt, FaultEffect, FrameOutcome, Transmission
from genus.can._sim.faults import FrameFault, corrupt_randomly, parse_fault
from genus.can._sim.simulation import Host, Simulation
from genus.can._sim.trace import Passage, Trace, TrafficClass
from genus.can._wire.frame import PASSIVE_ABOVE, PRIORITY_SHIFT, Frame, Timing
from genus.can._world.scenario import ScenarioRun
from genus.can._world.station import Station
from genus.can._world.synthetic import PATTERNS
from genus.can.types import DeliveryProblem
from genus.errors import BusError
from tests.can.emulated_can import EmulatedCan
from tests.can.emulated_host import EmulatedHost
from tests.can.random_systems import random_system
from tests.can.sim_parts import RecordingMachine, RecordingStation, RepeatingStation

MS = 1_000_000
SECONDS = 0.15
STARTING_ERRORS = (0, 60, 95, 96, 112, 120, 127, 128, 135)


class WithinOmissions(FrameFault, frozen=True, kw_only=True):
    """Hard frames fail up to `most` times, each time with probability p; other frames with probability `others`."""

    name: ClassVar[str] = "within"
    most: dict[int, int]
    """By event tag."""
    p: float
    others: float = 0.0

    def affect(self, transmission: Transmission, random: Random) -> FaultEffect | None:
        """An error in the last bit, or in any."""
        if TrafficClass.of(transmission.frame.id) is not TrafficClass.HARD:
            fails = random.random() < self.others
        else:
            fails = transmission.attempt < self.most[transmission.frame.etag] and random.random() < self.p
        if not fails:
            return None
        return Corrupt(transmission.bits - 11) if random.random() < 0.5 else corrupt_randomly(transmission, random)


class Told(msgspec.Struct):
    """State: when the nodes of a run were told that nothing is promised, and what they were told of events."""

    stopped: dict[str, list[tuple[int, int]]] = {}
    """By node: from when to when; the end of the last one is open."""
    not_sent: list[tuple[int, str, NotSent]] = []
    missing: list[EventMissing] = []
    off: dict[str, list[int]] = {}
    """By node: when it was told that it is off the bus."""
    passive: int = 0

    def add(self, station: Station, trouble: object, now: int) -> None:
        spans = self.stopped.setdefault(station.name, [])
        is_stopped = bool(spans) and spans[-1][1] == NEVER
        if isinstance(trouble, ErrorPassive):
            self.passive += 1
            if not trouble.promised and not is_stopped:
                spans.append((now, NEVER))
        elif isinstance(trouble, ErrorActive) and is_stopped:
            spans[-1] = spans[-1][0], now
        elif isinstance(trouble, NotSent):
            self.not_sent.append((now, station.name, trouble))
        elif isinstance(trouble, EventMissing):
            self.missing.append(trouble)
        elif isinstance(trouble, BusOff):
            self.off.setdefault(station.name, []).append(now)

    def was_stopped(self, node: str, instant: int) -> bool:
        """Whether a node was told so before a slot that starts then, and not told otherwise before it.

        `ErrorActive` is of slots that start later than it: if it comes at the same instant, the slot has begun.
        """
        return any(begin < instant <= end for begin, end in self.stopped.get(node, ()))

    def was_off(self, node: str, instant: int) -> bool:
        """Whether a node was told shortly before that it is off the bus, which takes some milliseconds."""
        return any(at <= instant <= at + RECOVERY_NS for at in self.off.get(node, ()))


NEVER = 1 << 62
RECOVERY_NS = 20 * MS
"""128 times 11 recessive bits on a busy bus, and the slot in which the station returns."""


def with_policy(system: System, policy: ErrorPassivePolicy) -> System:
    return system.on_bus(msgspec.structs.replace(system.bus, error_passive=policy))


def run_with_errors(prepared: PreparedSystem, seed: int, p: float, others: float) -> tuple[int, int]:
    """Run a system whose senders begin with random error counters; how many hard events were sent, and not.

    No event is late. With `stop`, every event is sent within its slot and delivered, or its publisher was told before
    the slot that it is not promised. With `plan`, only events of stations that went off the bus, told, are not sent.
    """
    system, rng, told = prepared.typed.system, Random(seed), Told()
    fault = WithinOmissions(most={channel.etag: channel.omissions for channel in system.hard}, p=p, others=others)
    scenario = Scenario(
        prepared=prepared,
        seed=seed,
        duration=SECONDS,
        pattern=PATTERNS[seed % len(PATTERNS)],
        clocks="perfect",
        exact_lengths=bool(seed % 2),
        faults=(fault,),
    )
    with ScenarioRun(scenario) as run:
        world = run.world
        world.observation.on_problem.append(lambda station, trouble: told.add(station, trouble, world.now_ns))
        run.start()
        for host in world.simulation.hosts.values():
            host.controller.tec = rng.choice(STARTING_ERRORS)
        while world.now_ns < run.ends_ns:
            world.run_ns(min(10_000_000, run.ends_ns - world.now_ns))
        outcome = run.outcome()
    hard = outcome.of_class("hard")
    check_told(told, prepared)
    for result in hard:
        assert result.late == result.missed == result.overran == result.duplicates == result.lost == 0
        assert result.published == result.sent + result.not_sent
        assert result.bound_ns is not None
        assert result.worst_ns <= result.bound_ns
    return sum(result.sent for result in hard), sum(result.not_sent for result in hard)


def check_told(told: Told, prepared: PreparedSystem) -> None:
    """Whether each event that was not sent, and each alarm, is of a slot that its node was told is not promised."""
    slots = {slot.event: slot for slot in prepared.plan.calendar.slots}
    is_planned = prepared.typed.system.bus.error_passive == "plan"
    for now, node, trouble in told.not_sent:
        slot = slots[trouble.channel]
        start = slot.next_start(now - slot.period_ns + 1).start_ns  # the last one before it was told
        assert told.was_off(node, now) if is_planned else told.was_stopped(node, start), trouble
    for missing in told.missing:
        slot = slots[missing.channel]
        start = missing.deadline_ns - slot.length_ns
        assert told.was_off(slot.node, missing.deadline_ns) if is_planned else told.was_stopped(slot.node, start), (
            missing
        )


def admitted(seed: int, policy: ErrorPassivePolicy) -> PreparedSystem | None:
    prepared = PreparedSystem.of(with_policy(random_system(seed, bitrate=1_000_000), policy))
    return prepared if prepared.plan.ok and prepared.typed.system.hard else None


@pytest.mark.parametrize("policy", ["stop", "plan"])
@pytest.mark.parametrize("seed", [3, 12])
def test_hard_events_of_error_passive_senders_are_on_time_or_told(seed: int, policy: ErrorPassivePolicy) -> None:
    prepared = admitted(seed, policy)
    assert prepared is not None
    sent, _ = run_with_errors(prepared, seed, p=0.1, others=0.05)
    assert sent


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["stop", "plan"])
def test_hard_events_of_error_passive_senders_are_on_time_or_told_in_300_systems(policy: ErrorPassivePolicy) -> None:
    """0 misses with errors up to the omission degree, error counters on, senders error passive or becoming so."""
    runs = sent = not_sent = seed = 0
    while runs < 300:
        prepared = admitted(seed, policy)
        if prepared is not None:
            p, others = ((1.0, 0.0), (0.5, 0.05), (0.1, 0.05))[seed % 3]
            result = run_with_errors(prepared, seed, p, others)
            runs, sent, not_sent = runs + 1, sent + result[0], not_sent + result[1]
        seed += 1
    assert sent > 5000
    assert not_sent < sent / 100 if policy == "plan" else not_sent


# -- slots -------------------------------------------------------------------------------------------------------------


def hard_slot(policy: ErrorPassivePolicy, omissions: int = 1, size: int = 8) -> Slot:
    bus = BusSpec(timing=Timing(1_000_000), error_passive=policy)
    channel = ChannelSpec(
        name="Pulse", event="Pulse", node="sensor", number=1, etag=8192, qos_class="hard", period_ns=10 * MS,
        omissions=omissions, size=size,
    )  # fmt: skip
    return Slot.of(channel.on_bus(bus), bus, offset_ns=2 * MS)


def test_slots_are_longer_only_if_they_are_planned_for_error_passive_senders() -> None:
    lengths = {
        policy: [hard_slot(policy, omissions).length_ns // 1000 for omissions in range(4)]
        for policy in ERROR_PASSIVE_POLICIES
    }
    assert lengths == {
        "stop": [371, 562, 753, 944],
        "plan": [562, 944, 1326, 1708],
    }


@pytest.mark.parametrize(("omissions", "size", "times"), [(4, 8, 1), (2, 12, 1), (5, 8, 2), (15, 8, 12)])
def test_a_slot_with_many_failures_is_longer_because_they_can_make_its_sender_error_passive(
    omissions: int, size: int, times: int
) -> None:
    slot = hard_slot("stop", omissions, size)
    assert slot.others_ns == times * 191_000
    assert slot.busy_ns == slot.frames * ((omissions + 1) * 160_000 + omissions * 31_000)
    assert slot.length_ns == 191_000 + slot.busy_ns + slot.others_ns + 20_000


@given(omissions=st.integers(0, 15), frames=st.integers(1, 40))
def test_senders_below_the_warning_limit_are_suspended_as_often_as_their_counter_allows(
    omissions: int, frames: int
) -> None:
    """A plain model of the error counter of the sender, in the order in which its frames fail and are sent."""
    counter, suspended = 95 + 8, 0
    for frame in range(frames):
        for _ in range(omissions):
            counter += 8
            suspended += counter > PASSIVE_ABOVE
        suspended += counter > PASSIVE_ABOVE and frame < frames - 1
        counter -= 1
    assert suspensions(omissions, frames, "stop") == suspended
    assert suspensions(omissions, frames, "plan") == (omissions + 1) * frames >= suspended
    assert most_errors(omissions, frames) == counter + 1


def test_a_calendar_has_the_policy_unless_it_is_the_default() -> None:
    stop, plan = (Calendar.of([hard_slot(policy)]) for policy in ERROR_PASSIVE_POLICIES)
    assert "error_passive" not in stop.text(), "a calendar that was written before is read"
    assert '"error_passive":"plan"' in plan.text()
    assert [Calendar.parse(each.text()) for each in (stop, plan)] == [stop, plan]


# -- what nodes do -----------------------------------------------------------------------------------------------------


class Pulse(Event):
    count: UInt8


class Seat:
    """A node with a hard channel in virtual time, and what its program was told."""

    def __init__(self, policy: ErrorPassivePolicy, **options: Any) -> None:
        self.troubles: list[DeliveryProblem] = []
        catalog = Catalog()
        catalog.register(Pulse)
        self.bus = SimBus(1_000_000, **options)
        self.node = Node(
            1, name="sensor", timing=self.bus.timing, catalog=catalog, number=1, slots=(hard_slot(policy),),
            synchronised=False,
        )  # fmt: skip
        self.other = RecordingStation(self.bus, 2)
        self.host = Host(self.node, self.bus.attach(Controller(1)), self.bus)
        self.host.call(self.node.start)

    def announce(self) -> None:
        hard = Hard(period="10ms", omissions=1)
        self.host.call(lambda now: self.node.announce(Pulse, hard, now, on_problem=self.troubles.append))
        self.bus.run(self.bus.now + MS)

    def serve(self, until_ms: int) -> list[DeliveryProblem]:
        """Publish once in each period; what was told."""
        begin = len(self.troubles)
        while self.bus.now < until_ms * MS:
            self.host.call(lambda now: self.node.publish(Pulse(count=1), now))
            self.bus.run(self.bus.now + 10 * MS)
        return self.troubles[begin:]

    @property
    def sent(self) -> int:
        """How many hard frames another station received."""
        return sum(kind == "receive" and not frame.id >> 21 for _, _, kind, frame in self.other.log)


@pytest.mark.parametrize("policy", ERROR_PASSIVE_POLICIES)
def test_a_node_tells_at_the_warning_whether_its_promises_hold_and_recovers_by_itself(
    policy: ErrorPassivePolicy,
) -> None:
    seat = Seat(policy)
    seat.announce()
    assert (seat.serve(41), seat.sent) == ([], 4)
    seat.host.controller.tec = 135
    passive, active = seat.serve(61)
    assert passive == ErrorPassive(41 * MS, promised=policy == "plan")
    assert isinstance(active, ErrorActive)
    assert active.at_ns < 51 * MS, "40 reports with the lowest priority lower the counter"
    assert seat.host.controller.tec < 96
    assert (seat.serve(101), seat.sent) == ([], 10), "events are sent as long as nothing delays them"


def serve_while_others_send(begins_at: int) -> tuple[list[Passage], list[DeliveryProblem]]:
    """An error passive sender whose first attempt fails, while another station always has a frame, from an instant on.

    Returns the passages of the hard frame, and what was told.
    """

    def fail_first(transmission: Transmission) -> FaultEffect | None:
        return Corrupt(10) if transmission.frame.priority == 0 and transmission.attempt == 0 else None

    seat = Seat("stop", exact_lengths=False, fault_hooks=[fail_first], trace=Trace())
    seat.announce()
    seat.host.controller.tec = 135
    seat.bus.at(begins_at, lambda: RepeatingStation(seat.bus, 3, Frame(252 << PRIORITY_SHIFT, bytes(8))))
    seat.serve(10)
    assert seat.bus.trace is not None
    return [each for each in seat.bus.trace.passages if each.traffic_class is TrafficClass.HARD], seat.troubles


@given(begins_at=st.integers(1_800_000, 2_300_000))
def test_no_attempt_of_an_error_passive_sender_starts_that_would_not_end_within_its_slot(begins_at: int) -> None:
    passages, troubles = serve_while_others_send(begins_at)
    slot = hard_slot("stop")
    assert all(each.start_ns <= slot.offset_ns + slot.closes_ns for each in passages)
    assert all(each.end_ns <= slot.deadline_ns - slot.gap_ns for each in passages)
    outcomes = [each.outcome for each in passages]
    was_sent = outcomes == [FrameOutcome.ERROR, FrameOutcome.SENT]
    assert was_sent or outcomes == [FrameOutcome.ERROR]
    told = [each for each in troubles if isinstance(each, ErrorPassive | NotSent)]
    assert isinstance(told[0], ErrorPassive)
    assert told[0].at_ns < slot.offset_ns
    assert [each.attempts for each in told[1:] if isinstance(each, NotSent)] == ([] if was_sent else [1])


def test_an_error_passive_sender_that_fails_is_often_in_time() -> None:
    """It is so if little of the time to wait for the frame on the wire was needed when the slot began."""
    attempts = [len(serve_while_others_send(at)[0]) for at in range(1_800_000, 2_000_000, 25_000)]
    assert set(attempts) == {1, 2}


def test_a_channel_that_is_announced_by_a_node_with_too_many_errors_is_told() -> None:
    seat = Seat("stop")
    seat.host.controller.tec = 135
    seat.bus.run(1)
    seat.announce()
    assert [type(each) for each in seat.troubles] == [ErrorPassive]


def test_a_node_off_the_bus_does_not_use_its_slots() -> None:
    seat = Seat("plan")
    seat.announce()
    seat.node.bus_off(seat.bus.now)
    assert [type(each) for each in seat.serve(11)] == [BusOff, ErrorPassive, NotSent]
    seat.host.call(seat.node.bus_on)
    assert [type(each) for each in seat.troubles[3:]] == [ErrorActive]
    assert seat.serve(31) == []
    assert seat.sent == 2


def test_a_station_that_restarts_begins_without_errors() -> None:
    seat = Seat("stop")
    seat.host.controller.tec = 135
    seat.bus.run(1)
    seat.host.crash()
    assert (seat.host.controller.tec, seat.host.controller.warned) == (0, False)


@pytest.mark.parametrize("policy", ERROR_PASSIVE_POLICIES)
def test_a_live_controller_that_warns_is_told_and_so_is_its_recovery(policy: ErrorPassivePolicy) -> None:
    """By error frames as Linux gives them: the warning at a counter of 96, and the active state below."""
    network, catalog, told = EmulatedCan(1_000_000), Catalog(), list[DeliveryProblem]()
    catalog.register(Pulse)
    node = Node(
        1, name="sensor", timing=network.timing, catalog=catalog, number=1, slots=(hard_slot(policy),),
        synchronised=False,
    )  # fmt: skip
    host, other = EmulatedHost(network, node), network.open()
    host.call(node.start)
    host.call(lambda now: node.announce(Pulse, Hard(period="10ms", omissions=1), now, on_problem=told.append))
    network.advance("11ms")
    (controller,) = (each for each in network.wire.controllers if each.number == host.bus.number)
    for counter in (95, 99):
        controller.tec = counter
        host.call(partial(node.publish, Pulse(count=1)))
        network.advance("10ms")
    assert [(type(each), getattr(each, "promised", None)) for each in told] == [
        (ErrorPassive, policy == "plan"),
        (ErrorActive, None),
    ]
    assert controller.tec < 96
    host.bus.shutdown()
    other.shutdown()


def test_a_fault_sets_error_counters_again_and_again() -> None:
    simulation = Simulation(faults=[parse_fault("counters nodes=1 tec=100 at=1ms every=2ms")])
    controller = simulation.add_host(1, RecordingMachine).controller
    seen = []
    for milliseconds in (1, 2, 3):
        simulation.run(milliseconds * MS)
        seen.append(controller.tec)
        controller.tec = 0
    assert seen == [100, 0, 100]
    for text in ("counters nodes=1 tec=256", "counters nodes=1 rec=129", "counters nodes=1 every=0s"):
        with pytest.raises(BusError, match="counters"):
            parse_fault(text)
