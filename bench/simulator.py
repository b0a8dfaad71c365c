"""How many frames the CAN simulator takes per second of CPU, and what soft real time costs in misses.

A bus at 1 Mbit/s with 20 stations. Each sends 8-byte frames of its own identifier periodically, 64 different payloads
in turn, so that their lengths with stuff bits are those of real frames; phases are random. Five more stations receive
everything: a frame is one release, one arbitration, five receptions and one confirmation. In the rows *hosts* the same
stations run protocol code: a machine each, which wakes by its own drifting clock, makes a frame, loads its mailbox, and
is called with what happens; five more machines receive everything.

Time is CPU time of one process on one core, without building the bus. Cases take turns, in windows of about 40 ms;
*best* is the least time per frame of any window, *median* that of the window in the middle: the machine is shared.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from random import Random
from statistics import median

from bench.soft_policies import POLICIES, soft_misses
from bench.timing import markdown
from genus.can._machine import EVENT_TRIGGERED, Load, Output
from genus.can._sim.bus import SimBus
from genus.can._sim.clock import SimClock
from genus.can._sim.controller import Controller
from genus.can._sim.faults import FrameErrors
from genus.can._sim.simulation import Host, Simulation
from genus.can._sim.sources import FrameSink, FrameSource, periodic
from genus.can._wire.frame import Frame, Identifier

STATIONS = 20
LISTENERS = 5
PAYLOADS = 64
MEAN_FRAME_NS = 135_000
WINDOWS = 60
WINDOW_FRAMES = 5_000
LOADS = (0.7, 0.8, 0.9, 1.0)
SYSTEMS = 4


@dataclass(frozen=True, slots=True)
class Result:
    """One case."""

    load: float
    best_per_s: float
    median_per_s: float

    def real_time(self, frames_per_s: float) -> float:
        """How many times faster than the bus itself."""
        return frames_per_s / (self.load * 1e9 / MEAN_FRAME_NS)


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


def run(windows: int = WINDOWS) -> dict[str, Result]:
    """Measure all cases in turn."""
    simulations = {name: built(name) for name in CASES}
    times: dict[str, list[float]] = {name: [] for name in CASES}
    for _ in range(windows):
        for name, simulation in simulations.items():
            times[name].append(window(simulation, CASES[name][0]))
    return {name: Result(CASES[name][0], 1 / min(taken), 1 / median(taken)) for name, taken in times.items()}


def built(name: str) -> Simulation:
    load, build, make = CASES[name]
    simulation = make()
    build(simulation, load)
    simulation.run(100_000_000)
    return simulation


def window(simulation: Simulation, load: float) -> float:
    """CPU seconds per frame over a stretch of virtual time."""
    if simulation.trace is not None:
        simulation.trace.passages.clear()
    before, until = simulation.bus.frames, simulation.now + round(WINDOW_FRAMES * MEAN_FRAME_NS / load)
    started = time.process_time()
    simulation.run(until)
    return (time.process_time() - started) / (simulation.bus.frames - before)


def table(results: dict[str, Result]) -> str:
    """Frames per second, and times faster than the bus."""
    rows = [
        [
            name,
            *(
                cell
                for rate in (result.best_per_s, result.median_per_s)
                for cell in (f"{rate:,.0f}", f"{result.real_time(rate):.0f}×")
            ),
        ]
        for name, result in results.items()
    ]
    return markdown(["case", "best frames/s", "real time", "median frames/s", "real time"], rows)


def soft_table(seconds: float = 5.0) -> str:
    """Percent of soft frames that miss their deadlines, by policy and load, over several systems."""
    rows = []
    found = {load: [soft_misses(load, seed, seconds) for seed in range(SYSTEMS)] for load in LOADS}
    for policy in POLICIES:
        shares = []
        for load in LOADS:
            misses = [one[policy] for one in found[load]]
            missed = sum(each.late + each.expired for each in misses)
            shares.append(f"{100 * missed / sum(each.released for each in misses):.3f}")
        rows.append([policy, *shares])
    return markdown(["soft misses, %", *(f"load {load}" for load in LOADS)], rows)


if __name__ == "__main__":
    print(table(run()))
    print()
    print(soft_table())
