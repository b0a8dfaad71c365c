"""Random sequences of attaching, detaching, loading and failing: the trace agrees with the calls of the stations."""

from collections import Counter
from itertools import pairwise
from random import Random

import pytest

from genus.can._sim.bus import SimBus
from genus.can._sim.errors import Corrupt, Duplicate, FaultEffect, FaultHook, FrameOutcome, MissedBy, Transmission
from genus.can._sim.scheduler import Scheduler
from genus.can._sim.trace import Trace
from genus.can._wire.frame import Frame
from tests.can.sim_parts import BIT, RecordingStation

LAST_BIT = 200_000


def random_effects(random: Random, p: float) -> FaultHook:
    """A hook with a random effect on each transmission, with probability p."""

    def affect(transmission: Transmission) -> FaultEffect | None:
        if random.random() >= p:
            return None
        receivers = transmission.receivers
        missed_by = MissedBy(tuple(random.sample(receivers, random.randint(0, len(receivers)))))
        corrupt = Corrupt(random.randint(1, transmission.bits), random.randint(0, 6))
        effects: list[FaultEffect] = [corrupt, Duplicate(), missed_by]
        return random.choice(effects)

    return affect


class RandomRun:
    """State: two buses, and six stations that act at random."""

    def __init__(self, seed: int, p: float) -> None:
        self.random = random = Random(seed)
        self.scheduler = Scheduler()
        self.trace = Trace()
        options = {"exact_lengths": bool(seed % 2), "allow_lone_sender": bool(seed % 3)}
        self.buses = [
            SimBus(scheduler=self.scheduler, trace=self.trace, fault_hooks=[random_effects(random, p)], **options)  # type: ignore[arg-type]
            for _ in range(2)
        ]
        self.stations = [RecordingStation(self.buses[0], number) for number in range(1, 7)]

    def run(self) -> None:
        for _ in range(3000):
            self.scheduler.at(self.random.randrange(LAST_BIT) * BIT, self.act)
        self.scheduler.run(LAST_BIT * BIT)
        for station in self.stations:
            station.controller.clear()
        self.scheduler.run((LAST_BIT + 50_000) * BIT)

    def act(self) -> None:
        station = self.random.choice(self.stations)
        controller, bus = station.controller, station.controller.bus
        what = self.random.random()
        if what < 0.8:
            controller.load(self.random.randrange(2), self.frame())
        elif what < 0.9:
            controller.load(self.random.randrange(2), None)
        elif what < 0.95:
            controller.set_filters(self.random.choice([None, (), ((0, 1),), ((1, 1), (0, 3))]))
        elif isinstance(bus, SimBus):
            bus.detach(controller)
        else:
            self.random.choice(self.buses).attach(controller)

    def frame(self) -> Frame:
        """Few identifiers and data, so that some stations collide and some send the same frame."""
        random = self.random
        extended = random.random() < 0.9
        id_ = random.choice([1, 2, 3, 1 << 21, 5 << 21]) if extended else random.randrange(2)
        return Frame(id_, random.choice([b"", b"\0", b"\1", bytes(8)]), extended=extended)


@pytest.mark.parametrize("p", [0.0, 0.1, 0.6])
@pytest.mark.parametrize("seed", range(2))
def test_the_trace_agrees_with_the_calls_of_the_stations(seed: int, p: float) -> None:
    run = RandomRun(seed, p)
    run.run()
    ends = Counter(entry[:3] for station in run.stations for entry in station.log)
    traced: Counter[tuple[int, int, str]] = Counter()
    for each in run.trace:
        time = each.end_ns // BIT
        if each.outcome in (FrameOutcome.SENT, FrameOutcome.DUPLICATE):
            traced.update((time, number, "receive") for number in each.received_by)
        if each.outcome is not FrameOutcome.CUT:
            traced.update((time, number, "sent" if each.outcome.is_good else "failed") for number in each.senders)
    of_detached = {key for key in traced - ends if key[2] in ("sent", "failed")}
    assert all(any(key[1] in each.senders and len(each.senders) > 1 for each in run.trace) for key in of_detached)
    assert not [key for key in ends - traced if key[2] in ("receive", "sent", "failed")]
    assert not [key for key in traced - ends if key[2] == "receive"]


@pytest.mark.parametrize("seed", range(2))
def test_frames_of_a_bus_never_overlap_and_the_bus_is_idle_in_the_end(seed: int) -> None:
    run = RandomRun(seed, 0.3)
    run.run()
    for bus in run.buses:
        passages = [each for each in run.trace if each.segment == bus.segment]
        assert all(one.end_ns <= other.start_ns for one, other in pairwise(passages))
        assert sum(each.end_ns - each.start_ns for each in passages) == bus.busy_ns
        assert sum(each.outcome.is_good for each in passages) == bus.frames
        assert len(passages) == bus.frames + bus.errors
        assert bus.idle
        assert not bus.pending
        assert not any(controller.off for controller in bus.controllers), "all recovered"
    assert not run.scheduler.heap


@pytest.mark.parametrize("seed", range(3))
def test_the_same_seed_gives_the_same_trace_and_calls(seed: int) -> None:
    first, second = RandomRun(seed, 0.3), RandomRun(seed, 0.3)
    first.run()
    second.run()
    assert first.trace.to_bytes() == second.trace.to_bytes()
    assert [station.log for station in first.stations] == [station.log for station in second.stations]
