"""Everything at once, at random: stations come, go, load, unload and fail; the trace and what stations heard agree."""

from collections import Counter
from itertools import pairwise
from random import Random

import pytest

from genus.can._sim.bus import SimBus
from genus.can._sim.fault_hooks import Corrupt, Deaf, Duplicate, Judge, Outcome, Transmission, Verdict
from genus.can._sim.scheduler import Scheduler
from genus.can._sim.trace import Trace
from genus.can._wire.frame import Frame
from tests.can.sim_parts import BIT, Noted

LAST_BIT = 200_000


def erratic(random: Random, p: float) -> Judge:
    """Any fate, now and then."""

    def judge(seen: Transmission) -> Verdict | None:
        if random.random() >= p:
            return None
        deaf = tuple(random.sample(seen.hearers, random.randint(0, len(seen.hearers))))
        corrupt = Corrupt(random.randint(1, seen.bits), random.randint(0, 6))
        fates: list[Verdict] = [corrupt, Duplicate(), Deaf(deaf)]
        return random.choice(fates)

    return judge


class Chaos:
    """State: two buses, six stations, and what happens to them."""

    def __init__(self, seed: int, p: float) -> None:
        self.random = random = Random(seed)
        self.scheduler = Scheduler()
        self.trace = Trace()
        options = {"exact_lengths": bool(seed % 2), "lone_acknowledged": bool(seed % 3)}
        self.buses = [
            SimBus(scheduler=self.scheduler, trace=self.trace, judges=[erratic(random, p)], **options)  # type: ignore[arg-type]
            for _ in range(2)
        ]
        self.stations = [Noted(self.buses[0], number) for number in range(1, 7)]

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
            controller.accept(self.random.choice([None, (), ((0, 1),), ((1, 1), (0, 3))]))
        elif isinstance(bus, SimBus):
            bus.detach(controller)
        else:
            self.random.choice(self.buses).attach(controller)

    def frame(self) -> Frame:
        """Few identifiers and data, so that stations collide and agree."""
        random = self.random
        extended = random.random() < 0.9
        id_ = random.choice([1, 2, 3, 1 << 21, 5 << 21]) if extended else random.randrange(3)
        return Frame(id_, random.choice([b"", b"\0", b"\1", bytes(8)]), extended=extended)


@pytest.mark.parametrize("p", [0.0, 0.1, 0.6])
@pytest.mark.parametrize("seed", range(6))
def test_the_trace_and_the_stations_tell_the_same_story(seed: int, p: float) -> None:
    chaos = Chaos(seed, p)
    chaos.run()
    ends = Counter(entry[:3] for station in chaos.stations for entry in station.log)
    told: Counter[tuple[int, int, str]] = Counter()
    for each in chaos.trace:
        time = each.end_ns // BIT
        if each.outcome in (Outcome.SENT, Outcome.DUPLICATE):
            told.update((time, number, "receive") for number in each.heard)
        if each.outcome is not Outcome.CUT:
            told.update((time, number, "sent" if each.outcome.is_good else "failed") for number in each.senders)
    told_of_parted = {key for key in told - ends if key[2] in ("sent", "failed")}
    assert all(any(key[1] in each.senders and len(each.senders) > 1 for each in chaos.trace) for key in told_of_parted)
    assert not [key for key in ends - told if key[2] in ("receive", "sent", "failed")]
    assert not [key for key in told - ends if key[2] == "receive"]


@pytest.mark.parametrize("seed", range(6))
def test_on_each_bus_one_frame_follows_the_other_and_in_the_end_all_is_quiet(seed: int) -> None:
    chaos = Chaos(seed, 0.3)
    chaos.run()
    for bus in chaos.buses:
        passages = [each for each in chaos.trace if each.segment == bus.segment]
        assert all(one.end_ns <= other.start_ns for one, other in pairwise(passages))
        assert sum(each.end_ns - each.start_ns for each in passages) == bus.busy_ns
        assert sum(each.outcome.is_good for each in passages) == bus.frames
        assert len(passages) == bus.frames + bus.errors
        assert bus.idle
        assert not bus.pending
        assert not any(controller.off for controller in bus.controllers), "all came back"
    assert not chaos.scheduler.heap


@pytest.mark.parametrize("seed", range(3))
def test_the_same_seed_gives_the_same_chaos(seed: int) -> None:
    first, second = Chaos(seed, 0.3), Chaos(seed, 0.3)
    first.run()
    second.run()
    assert first.trace.to_bytes() == second.trace.to_bytes()
    assert [station.log for station in first.stations] == [station.log for station in second.stations]
