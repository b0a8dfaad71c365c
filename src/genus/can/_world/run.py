"""A scenario while it happens: power-on, programs that publish, the last reports, and what came of it."""

from collections import Counter
from collections.abc import Iterable, Iterator
from random import Random

from genus.can._sim.trace import Band
from genus.can._world.flow import Flow
from genus.can._world.outcome import BandResult, Outcome, result_of
from genus.can._world.releases import Rounds, releases
from genus.can._world.scenario import Scenario
from genus.can._world.stage import Stage

SECOND = 1_000_000_000
MILLISECOND = 1_000_000
LONGEST_START, LONGEST_START_WITH_BROKER = 5 * SECOND, 30 * SECOND
"""Programs begin to publish after this long even if not all channels are bound."""
FIRST_SLOT_AFTER = 2 * MILLISECOND
"""Hard slots count from so long after programs began, and until so long before they end."""
STEP_NS = 10 * MILLISECOND
STEPS = 200


def simulate(scenario: Scenario) -> Outcome:
    """Let a scenario happen."""
    run = Run(scenario)
    for _ in run.advance():
        pass
    return run.outcome()


class Run:
    """State: a scenario while it happens."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.stage = stage = Stage(scenario)
        self.simulation = stage.simulation
        self.meter = stage.meter
        self.began_ns = self.ends_ns = 0
        """When programs begin and end to publish, in virtual time."""

    def start(self) -> None:
        """Power on, and let time pass until all channels are bound and all clocks good enough, or long enough."""
        longest = LONGEST_START_WITH_BROKER if self.scenario.broker else LONGEST_START
        while not self._is_ready() and self.simulation.now < longest:
            self.simulation.run(self.simulation.now + STEP_NS)
        self.simulation.run(self.simulation.now + self._settling_ns())
        self.began_ns = self.simulation.now
        self.ends_ns = self.began_ns + round(self.scenario.seconds * SECOND)
        self.meter.begins_ns = self.began_ns
        for station in self.stage.stations.values():
            station.troubles.clear()
        self._begin_hard()
        self._begin_others()

    def advance(self) -> Iterator[float]:
        """Let it happen step by step; each gives how much of it has happened, up to 1. Nobody has to wait for all."""
        self.start()
        step = max(STEP_NS, (self.ends_ns - self.began_ns) // STEPS)
        while self.simulation.now < self.ends_ns:
            self.simulation.run(min(self.simulation.now + step, self.ends_ns))
            yield (self.simulation.now - self.began_ns) / (self.ends_ns - self.began_ns)

    def outcome(self) -> Outcome:
        """What came of it up to now; programs publish no more, what is under way is waited for."""
        measured_ns = self.simulation.now - self.began_ns
        self.stage.window.close(self.stage.reference.bus_time(self.simulation.now))
        bands = {str(band): self._band(band, measured_ns) for band in Band}
        self._drain()
        self._close()
        return self._result(measured_ns, bands)

    def _is_ready(self) -> bool:
        """Stations that crashed are not waited for."""
        up = [station for station in self.stage.stations.values() if station.is_up]
        return self.simulation.now > 0 and all(station.is_ready for station in up)

    def _settling_ns(self) -> int:
        """Time for the announcements and reports with which nodes begin."""
        frames = 3 * len(self.stage.system.channels) + len(self.stage.system.nodes)
        return 2 * frames * self.stage.system.bus.longest_frame_ns

    def _begin_hard(self) -> None:
        """From here on the slots count that start a little later, by the bus's clock as the first node has it."""
        begin = self.stage.reference.bus_time(self.began_ns)
        self.stage.window.begin_ns = begin + FIRST_SLOT_AFTER
        self.stage.window.end_ns = begin + self.ends_ns - self.began_ns - FIRST_SLOT_AFTER
        for station in self.stage.stations.values():
            for flow in station.publishes:
                if flow.slot is not None:
                    station.serve(flow, flow.slot, flow.slot.next_start(self.stage.window.begin_ns).start_ns)

    def _begin_others(self) -> None:
        scenario = self.scenario
        pattern_random = self.simulation.random("rounds")
        rounds = Rounds.of(self.stage.system, self.stage.calendar, self.began_ns, self.ends_ns, pattern_random)
        blocker = _blocker(self.stage.flows.values())
        for station in self.stage.stations.values():
            for flow in station.publishes:
                if flow.slot is None:
                    random = Random(f"{scenario.seed}/release {flow.channel.name}")
                    head_start = self.stage.system.bus.timing.bit_ns if flow is blocker else 0
                    instants = releases(flow.channel, scenario.pattern, self.began_ns, rounds, random, head_start)
                    station.publish_at(flow, instants, self.ends_ns)

    def _drain(self) -> None:
        """Wait for what is under way, as long as it can be of use."""
        longest = max((c.expires_ns or c.deadline_ns or c.period_ns for c in self.stage.system.channels), default=0)
        until = self.simulation.now + longest + 2 * STEP_NS
        others = [flow for flow in self.stage.flows.values() if flow.slot is None]
        while any(flow.waiting for flow in others) and self.simulation.now < until:
            self.simulation.run(self.simulation.now + STEP_NS)

    def _close(self) -> None:
        """Withdraw everything, with final reports, by which subscribers learn what they missed."""
        for station in self.stage.stations.values():
            if station.is_up:
                station.host.call(station.node.close)
        self.simulation.run(self.simulation.now + self._settling_ns())

    def slot_spans(self, start_ns: int, end_ns: int) -> Iterator[tuple[int, int, str]]:
        """Start, end and channel of the hard slots in a span of virtual time, as the first node sees them."""
        reference = self.stage.reference
        for slot in self.stage.calendar.slots:
            found = slot.next_start(reference.bus_time(start_ns))
            while (first := reference.instant_of(found.start_ns)) < end_ns:
                yield first, reference.instant_of(found.deadline_ns), slot.channel
                found = slot.next_start(found.start_ns + 1)

    # Results

    def _band(self, band: Band, measured_ns: int) -> BandResult:
        meter = self.meter
        load = meter.busy_ns[band] / measured_ns if measured_ns else 0.0
        return BandResult(meter.frames[band], meter.errors[band], load, meter.unheard[band])

    def _result(self, measured_ns: int, bands: dict[str, BandResult]) -> Outcome:
        plan = self.scenario.prepared.plan
        troubles, dropped = Counter[str](), Counter[str]()
        for station in self.stage.stations.values():
            troubles += station.troubles
            dropped += station.node.counts().dropped
        return Outcome(
            seed=self.scenario.seed,
            seconds=measured_ns / SECOND,
            pattern=self.scenario.pattern,
            admitted=plan.ok,
            faults=tuple(map(str, self.scenario.faults)),
            channels=tuple(result_of(flow, plan.verdict(flow.channel.name)) for flow in self.stage.flows.values()),
            bands=bands,
            troubles=dict(troubles),
            dropped=dict(dropped),
            began_ns=self.began_ns,
        )


def _blocker(flows: Iterable[Flow]) -> Flow | None:
    """The channel whose frame is to be on the wire when all others publish: the longest of the lowest class."""
    others = [flow for flow in flows if flow.slot is None]
    return max(others, key=lambda flow: (flow.channel.qos_class == "none", flow.channel.frame_ns), default=None)
