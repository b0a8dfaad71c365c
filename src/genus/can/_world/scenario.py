"""Scenarios: a planned system whose programs are synthetic, simulated under faults, and compared with its plan."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import count
from random import Random

import msgspec

from genus.can._plan.admission import Plan, plan
from genus.can._plan.system import ChannelSpec, System
from genus.can._sim.faults import BlockingErrors, Fault
from genus.can._sim.simulation import FrameSource, late_by
from genus.can._sim.trace import choose_stretch
from genus.can._wire.frame import FIRST_NODE, LAST_NODE, Frame
from genus.can._world.outcome import ChannelResult, Outcome
from genus.can._world.synthetic import Pattern, Rounds, SyntheticProgram, TypedSystem, releases, with_types
from genus.can._world.world import Clocks, World
from genus.errors import BusError, PlanError
from genus.model import Span, nanoseconds

OBSERVER = "observer"
"""The node that subscribes to channels that have no subscriber."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SECOND = 1_000_000_000
MILLISECOND = 1_000_000
MAX_START, MAX_START_WITH_BROKER = 5 * SECOND, 30 * SECOND
"""Programs begin to publish after this long even if not all channels are bound."""
FIRST_SLOT_AFTER = 2 * MILLISECOND
"""Hard slots count from so long after programs began, and until so long before they end."""
SHOWN_FRAMES = 125
"""The length of a picture, in longest frames."""
FIRST_FOREIGN = LAST_NODE + 2
"""The number of the first station that sends frames of other makers."""
STEP_NS = 10 * MILLISECOND
STEPS = 200
LONGEST_STEP_NS = SECOND
"""A caller can end a run between two steps, so a step is short however long the run is."""


class PreparedSystem(msgspec.Struct, frozen=True):
    """A system with event types and its plan; many scenarios can share it."""

    typed: TypedSystem
    plan: Plan

    @classmethod
    def of(cls, system: System) -> "PreparedSystem":
        """Give a system event types and plan it; PlanError if it has no channels."""
        if not system.channels:
            raise PlanError(f"{system.source}: has no channels, so there is nothing to simulate")
        typed = with_types(_with_observer(system))
        return cls(typed, plan(typed.system, with_advice=False))


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """What to simulate; the same scenario gives the same outcome every time.

    The `duration` counts from when programs begin to publish: when clocks are synchronised and channels bound. Times of
    faults count from power-on. The other options are those of `World`.
    """

    prepared: PreparedSystem
    seed: int = 0
    duration: Span = 1.0
    faults: tuple[Fault, ...] = ()
    pattern: Pattern = "periodic"
    clocks: Clocks = "real"
    masters: tuple[str, ...] = ()
    exact_lengths: bool = True
    broker: bool = False
    guards: bool = False
    confinement: bool = True
    traced: bool | int = False
    """Whether frames and single events are kept, or how many, as `trace` of `World`."""

    def __post_init__(self) -> None:
        nanoseconds(self.duration, "duration", zero=False)
        for name in self.masters:
            if name not in self.prepared.typed.system.nodes:
                raise BusError(f"there is no node {name!r} that could lead the clocks")
        for fault in self.faults:
            if isinstance(fault, BlockingErrors) and fault.every_ns is None and self.clocks == "real":
                raise BusError("blocking: when slots start is known beforehand with perfect clocks only")


def simulate(scenario: Scenario) -> Outcome:
    """Run a scenario to its end; the outcome says what became of every event, and which promises were not kept."""
    with ScenarioRun(scenario) as run:
        for _ in run.advance():
            pass
        return run.outcome()


class ScenarioRun:
    """State: a scenario while it runs; use it in a `with` block."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.system = system = scenario.prepared.typed.system
        self.calendar = scenario.prepared.plan.calendar
        self.world = World(
            f"scenario {next(_RUNS)}",
            plan=scenario.prepared.plan,
            catalog=scenario.prepared.typed.catalog,
            seed=scenario.seed,
            faults=scenario.faults,
            start=EPOCH,
            clocks=scenario.clocks,
            masters=scenario.masters,
            broker=scenario.broker,
            guards=scenario.guards,
            exact_lengths=scenario.exact_lengths,
            confinement=scenario.confinement,
            trace=scenario.traced,
        )
        typed = scenario.prepared.typed
        self.programs = [SyntheticProgram(self.world, name, typed, self.calendar) for name in system.nodes]
        self.began_ns = self.ends_ns = 0
        """When programs begin and end to publish, in virtual time."""

    def __enter__(self) -> "ScenarioRun":
        return self

    def __exit__(self, *_: object) -> None:
        self.world.close()

    def start(self) -> None:
        """Power on, and wait until all channels are bound and all clocks precise enough, or long enough."""
        longest = MAX_START_WITH_BROKER if self.scenario.broker else MAX_START
        for program in self.programs:
            self.world.start(program.set_up, longest)
        while self.world.now_ns < longest and not (self.world.now_ns and self._is_ready()):
            self.world.run_ns(STEP_NS)
        self.world.run_ns(self._settling_ns())
        self.began_ns = self.world.now_ns
        self.ends_ns = self.began_ns + nanoseconds(self.scenario.duration)
        self.world.start_measuring()
        self._begin_hard()
        self._begin_others()
        self._begin_foreign()

    def advance(self) -> Iterator[float]:
        """Run it step by step; each step gives how much is done, up to 1."""
        self.start()
        step = min(max(STEP_NS, (self.ends_ns - self.began_ns) // STEPS), LONGEST_STEP_NS)
        while self.world.now_ns < self.ends_ns:
            self.world.run_ns(min(step, self.ends_ns - self.world.now_ns))
            yield (self.world.now_ns - self.began_ns) / (self.ends_ns - self.began_ns)

    def outcome(self) -> Outcome:
        """Return the outcome up to now: programs stop publishing, and what they published is waited for."""
        measured_ns = self.world.now_ns - self.began_ns
        window = self.world.observation.window
        window.end_ns = min(window.end_ns, self.world.any_station.bus_time(self.world.now_ns))
        for program in self.programs:
            program.is_over = True
        bands = self.world.bus_load()
        self._drain()
        for program in self.programs:
            program.close()
        self.world.run_ns(self._settling_ns())
        outcome = self.world.outcome()
        return msgspec.structs.replace(
            outcome,
            seconds=measured_ns / SECOND,
            pattern=self.scenario.pattern,
            bands=bands,
            began_ns=self.began_ns,
            channels=tuple(self._results(outcome)),
        )

    def stretch(self, length_ns: int | None = None) -> tuple[int, int]:
        """Return the span of virtual time within the run that shows the most, for a picture; needs `traced`.

        It has all classes of traffic, faults of frames, and what programs were told for the first time, if possible.
        Without a length it is as long as 125 of the longest frames: 20 ms at 1 Mbit/s.
        """
        length_ns = length_ns or SHOWN_FRAMES * self.system.bus.longest_frame_ns
        instants = self.world.observation.first_problems.values()
        return choose_stretch(self.world.trace, self.began_ns, self.ends_ns, length_ns, instants)

    def _results(self, outcome: Outcome) -> Iterator[ChannelResult]:
        """Yield the results of all channels of the system, in its order, for the subscribers that it names."""
        found = {result.channel: result for result in outcome.channels}
        for channel in self.system.channels:
            verdict = self.scenario.prepared.plan.verdict(channel.name)
            result = found.get(channel.name) or ChannelResult.without_events(channel, verdict)
            yield result.for_subscribers(channel.subscribers)

    def _is_ready(self) -> bool:
        up = [program for program in self.programs if self.world.stations[program.name].is_up]
        return all(program.is_set_up for program in up) and self.world.is_ready

    def _settling_ns(self) -> int:
        """Time for the announcements and reports with which nodes begin."""
        frames = 3 * len(self.system.channels) + len(self.system.nodes)
        return 2 * frames * self.system.bus.longest_frame_ns

    def _begin_hard(self) -> None:
        """Publish for the slots that start a little later, in the bus's time as the first node knows it."""
        begin = self.world.any_station.bus_time(self.began_ns)
        window = self.world.observation.window
        window.begin_ns = begin + FIRST_SLOT_AFTER
        window.end_ns = begin + self.ends_ns - self.began_ns - FIRST_SLOT_AFTER
        for program in self.programs:
            program.serve_slots(window.begin_ns)

    def _begin_others(self) -> None:
        random = self.world.simulation.random("rounds")
        rounds = Rounds.of(self.system, self.calendar, self.began_ns, self.ends_ns, random)
        others = [each for each in self.system.channels if each.qos_class != "hard"]
        blocker = _blocker(others)
        for program in self.programs:
            for channel in program.others:
                random = Random(f"{self.scenario.seed}/release {channel.name}")
                head_start = self.system.bus.timing.bit_ns if channel is blocker else 0
                instants = releases(channel, self.scenario.pattern, self.began_ns, rounds, random, head_start)
                program.publish_at(channel, instants, self.ends_ns)

    def _begin_foreign(self) -> None:
        """Send the frames of other makers, as often and as late as the plan says, each from a station of its own."""
        for place, frame in enumerate(self.system.foreign):
            if frame.period_ns is not None:
                random = Random(f"{self.scenario.seed}/foreign {frame.name}")
                sent = Frame(frame.first, random.randbytes(frame.size), frame.fd, frame.extended)
                gaps = late_by(frame.jitter_ns, frame.period_ns, random)
                first_ns = self.began_ns + random.randrange(frame.period_ns)
                FrameSource(self.world.simulation.bus, FIRST_FOREIGN + place, sent, gaps, first_ns=first_ns)

    def _drain(self) -> None:
        """Wait for what is being sent, as long as it can be of use."""
        longest = max((c.expires_ns or c.deadline_ns or c.period_ns for c in self.system.channels), default=0)
        until = self.world.now_ns + longest + 2 * STEP_NS
        while self.world.now_ns < until and any(each.waiting for each in self.world.observation.trackers):
            self.world.run_ns(STEP_NS)


_RUNS = count(1)


def _with_observer(system: System) -> System:
    """Return the system with a node that subscribes to channels that have no subscriber."""
    if all(channel.subscribers for channel in system.channels):
        return system
    number = next((n for n in range(FIRST_NODE, LAST_NODE + 1) if n not in system.nodes.values()), None)
    if number is None:
        raise PlanError(f"{system.source}: no number is free for a node that observes; name the channels' subscribers")
    name = OBSERVER
    while name in system.nodes:
        name += "_"
    channels = (
        channel if channel.subscribers else msgspec.structs.replace(channel, subscribers=(name,))
        for channel in system.channels
    )
    return msgspec.structs.replace(system, channels=tuple(channels), nodes={**system.nodes, name: number})


def _blocker(channels: Iterable[ChannelSpec]) -> ChannelSpec | None:
    """Return the channel whose frame is to be on the wire when all others publish: the longest of the lowest class."""
    return max(channels, key=lambda channel: (channel.qos_class == "none", channel.frame_ns), default=None)
