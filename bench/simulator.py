"""How many frames the CAN simulator takes per second of CPU.

A bus at 1 Mbit/s with 20 stations. Each sends 8-byte frames of its own identifier periodically, 64 different payloads
in turn, so that their lengths with stuff bits are those of real frames; phases are random. Five more stations receive
everything: a frame is one release, one arbitration, five receptions and one confirmation. In the rows *hosts* the same
stations run protocol code: a machine each, which wakes by its own drifting clock, makes a frame, loads its mailbox, and
is called with what happens; five more machines receive everything. In the rows *nodes* they are whole nodes of a world:
20 programs publish events of three bytes on soft channels, one subscribes with a predicate, clocks are synchronised by
the bus, and the world keeps account of every event for `outcome()`. *Crossing* is what `genus can sim` does with
`examples/crossing.toml`: 12 nodes and 23 channels, 8 of them hard, whose slots begin and end at all their nodes.

Time is CPU time of one process on one core, without building the bus. Cases take turns, in windows of some 5,000
frames (1,500 of nodes); the least time per frame of any window counts, as the machine is shared.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from pathlib import Path
from random import Random
from statistics import median

from bench.timing import goal, markdown
from genus import Event, Soft, UInt8, UInt16, open_bus
from genus.can import PreparedSystem, Scenario, World, load_system
from genus.can._machine import EVENT_TRIGGERED, Load, Output
from genus.can._sim.bus import SimBus
from genus.can._sim.controller import Controller
from genus.can._sim.faults import FrameErrors
from genus.can._sim.scheduler import SimClock
from genus.can._sim.simulation import FrameSink, FrameSource, Host, Simulation, periodic
from genus.can._wire.frame import Frame, Identifier
from genus.can.types import ScenarioRun

ROOT = Path(__file__).parents[1]
STATIONS = 20
LISTENERS = 5
PAYLOADS = 64
MEAN_FRAME_NS = 135_000
WINDOWS = 60
WINDOW_FRAMES = 5_000
NODE_FRAME_NS = 95_000
NODE_WINDOW_NS = {"nodes, 30 % load": 450_000_000, "nodes, 70 % load": 200_000_000, "crossing": 700_000_000}
GOALS = {"sources, 30 % load": 200_000, "sources, 70 % load": 200_000, "nodes, 30 % load": 20_000,
         "nodes, 70 % load": 20_000}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Result:
    """One case."""

    bus_per_s: float
    """Frames per second of virtual time."""
    best_per_s: float

    @property
    def real_time(self) -> float:
        """How many times faster than the bus itself."""
        return self.best_per_s / self.bus_per_s


def frames_of(number: int, random: Random) -> list[Frame]:
    identifier = Identifier(100 + number, number, 200 + number).pack()
    return [Frame(identifier, random.randbytes(8)) for _ in range(PAYLOADS)]


def period_ns(load: float) -> int:
    return round(STATIONS * MEAN_FRAME_NS / load)


def sources(simulation: Simulation, load: float) -> None:
    """Add simple stations."""
    random = simulation.random("bench")
    for number in range(1, STATIONS + 1):
        first = random.randrange(period_ns(load))
        FrameSource(simulation.bus, number, frames_of(number, random), periodic(period_ns(load)), first_ns=first)
    for number in range(LISTENERS):
        FrameSink(simulation.bus, 100 + number)


class Sender:
    """State: a machine that sends a frame every period and counts its inputs."""

    def __init__(self, number: int, period: int, random: Random) -> None:
        self._frames = cycle([(frame.id, frame.data) for frame in frames_of(number, random)])
        self._period = period
        self._outputs: list[Output] = []
        self.wake_at: int | None = random.randrange(period)
        self.received = self.sent_count = 0

    def wake(self, now: int) -> None:
        assert self.wake_at is not None
        self.wake_at += self._period
        self._outputs.append(Load(EVENT_TRIGGERED, Frame(*next(self._frames))))

    def receive(self, frame: Frame, now: int) -> None:
        self.received += 1

    def sent(self, frame: Frame, now: int) -> None:
        self.sent_count += 1

    def failed(self, frame: Frame, now: int) -> None: ...

    def lost(self, now: int) -> None: ...

    def taken(self, frame: Frame, now: int) -> None: ...

    def unconfirmed(self, frame: Frame, now: int, *, gone: bool, maybe_sent: bool = True) -> None: ...

    def error_passive(self, now: int, passive: bool) -> None: ...

    def bus_off(self, now: int) -> None: ...

    def bus_on(self, now: int) -> None: ...

    def take(self) -> list[Output]:
        taken, self._outputs = self._outputs, []
        return taken


class Receiver(Sender):
    """State: a machine that sends nothing and counts its inputs."""

    def __init__(self) -> None:
        super().__init__(1, 1, Random(0))
        self.wake_at = None


def hosts(simulation: Simulation, load: float) -> None:
    """Add stations with protocol code and their own clocks; the filters of senders accept nothing."""
    random = simulation.random("bench")
    for number in range(1, STATIONS + 1):
        clock = SimClock(random.randrange(10**9), random.uniform(-100, 100))
        host = add_host(simulation.bus, number, Sender(number, period_ns(load), random), clock)
        host.controller.set_filters(())
    for number in range(LISTENERS):
        add_host(simulation.bus, 100 + number, Receiver(), SimClock())


def add_host(bus: SimBus, number: int, machine: Sender, clock: SimClock) -> Host:
    return Host(machine, bus.attach(Controller(number)), bus, clock)


Build = Callable[[Simulation, float], None]
CASES: dict[str, tuple[float, Build, Callable[[], Simulation]]] = {
    "sources, 30 % load": (0.3, sources, Simulation),
    "sources, 70 % load": (0.7, sources, Simulation),
    "sources, 30 % load, trace kept": (0.3, sources, partial(Simulation, traced=True)),
    "sources, 30 % load, errors p=0.01": (0.3, sources, partial(Simulation, faults=[FrameErrors(p=0.01)])),
    "hosts, 30 % load": (0.3, hosts, Simulation),
    "hosts, 70 % load": (0.7, hosts, Simulation),
}


class Reading(Event):
    lane: UInt8
    speed: UInt16


class Publisher:
    """State: a program that publishes periodically."""

    def __init__(self, world: World, name: str, period: int, first: int) -> None:
        self._world, self._period, self._number = world, period, 0
        self._channel = open_bus(f"sim:{world.name}?name={name}").channel(Reading, Soft(deadline="10ms"))
        self._channel.announce()
        world.at_ns(world.now_ns + first, self.publish)

    def publish(self) -> None:
        self._world.at_ns(self._world.now_ns + self._period, self.publish)
        self._number = self._number + 1 & 0xFFFF
        self._channel.publish(Reading(lane=2 + self._number % 3, speed=self._number))


def ignore(event: Reading) -> None:
    """Handle an event; the world counts it."""


def nodes(load: float) -> World:
    """Make a world of whole nodes, in which all programs publish."""
    world = World(f"bench {load}", catalog=[Reading], trace=False)
    open_bus(f"sim:{world.name}?name=logger").collection(Reading).subscribe(ignore, where="lane > 3")
    period = round(STATIONS * NODE_FRAME_NS / load)
    for number in range(STATIONS):
        Publisher(world, f"sensor-{number}", period, 1 + number * period // STATIONS)
    world.run_ns(100_000_000)
    return world


def crossing() -> World:
    """Begin the scenario of the example, which lasts longer than it is measured."""
    prepared = PreparedSystem.of(load_system(ROOT / "examples" / "crossing.toml"))
    run = ScenarioRun(Scenario(prepared=prepared, seed=1, duration=3600.0))
    run.start()
    return run.world


WORLDS: dict[str, Callable[[], World]] = {
    "nodes, 30 % load": partial(nodes, 0.3),
    "nodes, 70 % load": partial(nodes, 0.7),
    "crossing": crossing,
}


def run(windows: int = WINDOWS) -> dict[str, Result]:
    """Measure all cases in turn."""
    simulations = {name: built(name) for name in CASES}
    worlds = {name: make() for name, make in WORLDS.items()}
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in (*CASES, *WORLDS)}
    for _ in range(windows):
        for name, simulation in simulations.items():
            times[name].append(window(simulation, CASES[name][0]))
        for name, world in worlds.items():
            times[name].append(measured(world.simulation.bus, NODE_WINDOW_NS[name], world.run_ns))
    for world in worlds.values():
        world.close()
    return {name: _result(taken) for name, taken in times.items()}


def _result(taken: list[tuple[float, float]]) -> Result:
    return Result(median(rate for _, rate in taken), 1 / min(cost for cost, _ in taken))


def built(name: str) -> Simulation:
    load, build, make = CASES[name]
    simulation = make()
    build(simulation, load)
    simulation.run(100_000_000)
    return simulation


def window(simulation: Simulation, load: float) -> tuple[float, float]:
    """CPU seconds per frame over a stretch of virtual time, and frames per second of that."""
    if simulation.trace is not None:
        simulation.trace.passages.clear()
    span_ns = round(WINDOW_FRAMES * MEAN_FRAME_NS / load)
    return measured(simulation.bus, span_ns, lambda span: simulation.run(simulation.now + span))


def measured(bus: SimBus, span_ns: int, run: Callable[[int], object]) -> tuple[float, float]:
    before, started = bus.frames, time.process_time()
    run(span_ns)
    frames = bus.frames - before
    return (time.process_time() - started) / frames, frames * 1e9 / span_ns


def table(results: dict[str, Result]) -> str:
    """Frames per second, and times faster than the bus."""
    rows = [
        [name, _rate(name, each.best_per_s), f"{each.real_time:.{0 if each.real_time >= 10 else 1}f}×"]
        for name, each in results.items()
    ]
    return markdown(["case", "best frames/s", "real time"], rows)


def _rate(name: str, rate: float) -> str:
    shown = f"{rate:,.0f}"
    return goal(shown, rate, at_least=GOALS[name]) if name in GOALS else shown


if __name__ == "__main__":
    print(table(run()))
