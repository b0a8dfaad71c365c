"""The priority of a soft frame is renewed: at each arbitration it is what its slack says now, up to one level."""

from collections import Counter
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus import Catalog, Event, Hard, Soft, UInt8
from genus.can import PreparedSystem, Scenario
from genus.can._machine import EVENT_TRIGGERED, Load
from genus.can._node.node import Node
from genus.can._node.tx_queue import OutgoingEvent, soft_priority
from genus.can._plan.calendar import Slot
from genus.can._sim.bus import SimBus
from genus.can._sim.controller import BusGuardian, Controller
from genus.can._sim.faults import FrameErrors
from genus.can._sim.simulation import Host
from genus.can._sim.trace import Trace
from genus.can._wire.frame import PRIORITY_SHIFT, Frame, Timing
from genus.can._world.scenario import ScenarioRun
from genus.can._world.synthetic import PATTERNS
from genus.can.types import Pattern
from tests.can.random_systems import random_system
from tests.examples import examples

MS = 1_000_000
LEVEL_NS = Timing(1_000_000).worst_case_ns(8)


def staleness(host: Host, bus: SimBus) -> int | None:
    """By how many levels a soft frame that may start now is less urgent than its slack says; None without one.

    A frame that the station's guardian holds back takes no part in the arbitration, whatever its priority. When it is
    let in, it does.
    """
    frame, guardian = host.controller.frames[EVENT_TRIGGERED], host.controller.guardian
    if frame is None or not isinstance(host.machine, Node):
        return None
    if guardian is not None and guardian.earliest_start(frame, bus.now) > bus.now:
        return None
    queue = host.machine._context.queue
    owner = queue._owner
    if not isinstance(owner, OutgoingEvent) or not owner.deadline:
        return None
    return (frame.id >> PRIORITY_SHIFT) - soft_priority(owner.start_by - host.now, queue.level_ns)


def observe(scenario: Scenario, monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """How stale the soft frames of all stations are, at every arbitration of a scenario."""
    found: Counter[int] = Counter()
    with ScenarioRun(scenario) as run, monkeypatch.context() as patched:
        hosts, start = run.world.simulation.hosts, SimBus._start

        def observed(self: SimBus, senders: list[object], key: int) -> None:
            stale = (staleness(host, self) for host in hosts.values() if host.controller in self.pending)
            found.update(each for each in stale if each is not None)
            start(self, senders, key)  # type: ignore[arg-type]

        patched.setattr(SimBus, "_start", observed)
        for _ in run.advance():
            pass
    return found


@examples(20)
@given(
    seed=st.integers(0, 10_000),
    p=st.sampled_from((0.0, 0.1, 0.45)),
    pattern=st.sampled_from(PATTERNS),
    exact_lengths=st.booleans(),
    guards=st.booleans(),
)
def test_soft_priorities_are_at_most_one_level_old(
    seed: int, p: float, pattern: Pattern, exact_lengths: bool, guards: bool
) -> None:
    """Hard frames of the same node, errors, bus-off and guardians: whatever was on the wire, priorities are renewed.

    One level is by design: an event that is published while a frame is on the wire competes once with the priority it
    had then.
    """
    scenario = Scenario(
        prepared=PreparedSystem.of(random_system(seed, load=0.5)),
        seed=seed,
        duration=0.05,
        pattern=pattern,
        exact_lengths=exact_lengths,
        guards=guards,
        clocks="perfect",
        faults=(FrameErrors(p=p),) if p else (),
    )
    with pytest.MonkeyPatch.context() as monkeypatch:
        assert set(observe(scenario, monkeypatch)) <= {0, 1}


@pytest.mark.slow
def test_soft_priorities_are_at_most_one_level_old_in_many_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    found: Counter[int] = Counter()
    for seed in range(100):
        scenario = Scenario(
            prepared=PreparedSystem.of(random_system(seed, load=0.5)),
            seed=seed,
            duration=0.4,
            pattern=PATTERNS[seed % len(PATTERNS)],
            exact_lengths=bool(seed % 2),
            guards=bool(seed // 2 % 2),
            clocks="perfect",
            faults=(FrameErrors(p=(0.1, 0.1, 0.45)[seed % 3]),),
        )
        found += observe(scenario, monkeypatch)
    assert found.total() > 100_000
    assert set(found) == {0, 1}


class Pulse(Event):
    count: UInt8


class Note(Event):
    count: UInt8


SLOT = Slot(
    channel="pulse", event="Pulse", node="one", number=1, etag=8192, offset_ns=2 * MS, period_ns=10 * MS,
    length_ns=562_000, wait_ns=191_000, gap_ns=20_000, frames=1, omissions=1, used_ns=160_000,
)  # fmt: skip


def node_in_its_slot() -> tuple[Node, Frame, Frame]:
    """A node whose hard frame is on the wire while a soft one waits; the hard and the soft frame."""
    catalog = Catalog()
    catalog.register(Pulse, Note)
    node = Node(1, name="one", timing=Timing(1_000_000), catalog=catalog, number=1, slots=(SLOT,), synchronised=False)
    node.start(0)
    node.announce(Pulse, Hard(period="10ms", omissions=1), 0)
    node.announce(Note, Soft(deadline="5ms"), 0)
    while loaded := [output.frame for output in node.take() if isinstance(output, Load) and output.frame is not None]:
        node.sent(loaded[-1], MS)
    node.publish(Pulse(count=1), MS)
    node.wake(2 * MS)
    node.publish(Note(count=1), 2 * MS)
    hard, soft = (output.frame for output in node.take() if isinstance(output, Load))
    assert hard is not None
    assert soft is not None
    return node, hard, soft


@pytest.mark.parametrize("fails", [False, True])
def test_the_own_hard_frame_renews_the_soft_one(fails: bool) -> None:
    node, hard, soft = node_in_its_slot()
    (node.failed if fails else node.sent)(hard, 2 * MS + 480_000)
    (renewed,) = (output.frame for output in node.take() if isinstance(output, Load))
    assert renewed is not None
    assert (soft.id >> PRIORITY_SHIFT) - (renewed.id >> PRIORITY_SHIFT) == 3


def test_a_soft_frame_that_a_guardian_lets_in_on_an_idle_bus_competes_with_its_present_priority() -> None:
    """It was loaded 1.5 ms ago and no frame was on the wire since; a less urgent one of another station begins now."""
    catalog, bus = Catalog(), SimBus(1_000_000, trace=Trace())
    catalog.register(Note)
    node = Node(1, name="one", timing=bus.timing, catalog=catalog, number=1, synchronised=False)
    guardian = BusGuardian(interval_ns=1_500_000)
    host, other = Host(node, bus.attach(Controller(1, guardian=guardian)), bus), bus.attach(Controller(2))
    host.call(node.start)
    host.call(lambda now: node.announce(Note, Soft(deadline="9ms"), now))
    bus.run(20 * MS)
    for count in range(2):
        host.call(partial(node.publish, Note(count=count)))
    bus.at(21_500_000, lambda: other.load(0, Frame(50 << PRIORITY_SHIFT)))
    bus.run(23 * MS)
    assert bus.trace is not None
    found = [(each.start_ns, each.id >> PRIORITY_SHIFT) for each in bus.trace.passages if each.start_ns >= 20 * MS]
    start_by = 29 * MS - bus.timing.worst_case_ns(1)
    assert found[:2] == [(at, soft_priority(start_by - at, LEVEL_NS)) for at in (20 * MS, 21_500_000)]
    assert found[2][1] == 50
