"""Faults of stations: clocks that jump or run away, crashes, a babbling idiot, a bus cut in two."""

from random import Random
from typing import TYPE_CHECKING, ClassVar

from genus.can.sim.bus import SimBus
from genus.can.sim.controller import Controller, Listener
from genus.can.sim.faults import FOREVER, Fault
from genus.can.wire.frame import Frame
from genus.can.wire.identifier import Identifier
from genus.errors import BusError

if TYPE_CHECKING:
    from genus.can.sim.simulation import Simulation


class ClockStep(Fault, frozen=True, kw_only=True):
    """A station's clock jumps, forward or back."""

    name: ClassVar[str] = "step"
    node: int
    by_ns: int
    at_ns: int = 0

    def inject(self, simulation: "Simulation", random: Random) -> None:
        """Step the clock at its time."""
        clock = simulation.host(self.node).clock
        simulation.at(self.at_ns, lambda: clock.step(self.by_ns, at_ns=simulation.now))


class ClockDrift(Fault, frozen=True, kw_only=True):
    """Clocks run at another rate from a time on; without nodes, each draws its drift between -ppm and ppm."""

    name: ClassVar[str] = "drift"
    ppm: float
    nodes: tuple[int, ...] = ()
    at_ns: int = 0

    def inject(self, simulation: "Simulation", random: Random) -> None:
        """Change the rates at their time."""
        if self.nodes:
            drifts = dict.fromkeys(self.nodes, self.ppm)
        else:
            drifts = {number: random.uniform(-self.ppm, self.ppm) for number in sorted(simulation.hosts)}
        for number, drift in drifts.items():
            self._schedule(simulation, number, drift)

    def _schedule(self, simulation: "Simulation", number: int, drift: float) -> None:
        clock = simulation.host(number).clock
        simulation.at(self.at_ns, lambda: clock.set_drift(drift, at_ns=simulation.now))


class Crash(Fault, frozen=True, kw_only=True):
    """A station stops at once; `restart` is when it begins anew, if it does."""

    name: ClassVar[str] = "crash"
    node: int
    at_ns: int
    restart_ns: int | None = None

    def __post_init__(self) -> None:
        if self.restart_ns is not None and self.restart_ns < self.at_ns:
            raise BusError("crash: restart is before at")

    def inject(self, simulation: "Simulation", random: Random) -> None:
        """Crash and restart at their times."""
        host = simulation.host(self.node)
        simulation.at(self.at_ns, host.crash)
        if self.restart_ns is not None:
            simulation.at(self.restart_ns, lambda: simulation.restart(self.node))


class Partition(Fault, frozen=True, kw_only=True):
    """The bus is cut in two for a while, with some stations on the other side."""

    name: ClassVar[str] = "partition"
    nodes: tuple[int, ...]
    from_ns: int = 0
    until_ns: int = FOREVER

    def inject(self, simulation: "Simulation", random: Random) -> None:
        """Part and heal at their times."""
        for number in self.nodes:
            simulation.host(number)
        simulation.at(self.from_ns, lambda: simulation.part(self.nodes))
        simulation.at(self.until_ns, simulation.heal)


class Babble(Fault, frozen=True, kw_only=True):
    """A babbling idiot: a station sends frames of one priority without a pause; only its guard can stop it."""

    name: ClassVar[str] = "babble"
    node: int
    priority: int = 0
    from_ns: int = 0
    until_ns: int = FOREVER
    etag: int = 0x3FFF
    size: int = 8

    def __post_init__(self) -> None:
        if self.priority >> 8 or self.node >> 7 or self.etag >> 14 or not 0 <= self.size <= 8:
            raise BusError("babble: priority is 0 to 255, node 0 to 127, etag 0 to 16383, size 0 to 8")

    def inject(self, simulation: "Simulation", random: Random) -> None:
        """Put another controller beside the station's own, behind the same guard."""
        frame = Frame(Identifier(self.priority, self.node, self.etag).pack(), bytes(self.size))
        guard = simulation.guards.get(self.node)
        idiot = Babbler(simulation.bus, Controller(self.node, mailboxes=1, filters=(), guard=guard), frame)
        simulation.at(self.from_ns, idiot.begin)
        simulation.at(self.until_ns, idiot.end)


class Babbler(Listener):
    """State: a controller that always has the same frame to send."""

    def __init__(self, bus: SimBus, controller: Controller, frame: Frame) -> None:
        self._controller = bus.attach(controller)
        self._frame = frame
        self._on = False
        controller.listen(self)

    def begin(self) -> None:
        """Talk."""
        self._on = True
        self._controller.load(0, self._frame)

    def end(self) -> None:
        """Be quiet."""
        self._on = False
        self._controller.load(0, None)

    def sent(self, frame: Frame, now: int) -> None:
        """Again."""
        if self._on:
            self._controller.load(0, frame)

    def bus_on(self, now: int) -> None:
        """Again."""
        if self._on:
            self._controller.load(0, self._frame)
