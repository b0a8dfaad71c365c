"""A whole simulation: virtual time, a bus, the stations on it, a seed, and the faults that befall them."""

from collections.abc import Callable, Iterable, Sequence
from random import Random

from genus.can.machine import Machine
from genus.can.sim.bus import SimBus
from genus.can.sim.clock import Clock
from genus.can.sim.controller import Controller
from genus.can.sim.faults import Fault, SlotStarts
from genus.can.sim.guard import Guard
from genus.can.sim.host import Host
from genus.can.sim.scheduler import Callback, Scheduler
from genus.can.sim.trace import Header, Trace
from genus.can.wire.frame import Frame
from genus.can.wire.length import Timing
from genus.errors import BusError


class Simulation:
    """State: one bus, or two while it is parted, with hosts by number; everything follows from the seed.

    Faults set in with the first `run`, when all stations are there.

    >>> from genus.can.sim.fault_text import parse_fault
    >>> from genus.can.sim.source import Sink, Source, periodic
    >>> simulation = Simulation(500_000, seed=1, faults=[parse_fault("errors p=0.1")])
    >>> source = Source(simulation.bus, 1, Frame(0x0021_6010, b"hello"), periodic(1_000_000))
    >>> sink = Sink(simulation.bus, 2)
    >>> simulation.run(1_000_000_000)
    >>> source.delivered == sink.received == 1000, simulation.bus.errors
    (True, 117)
    """

    def __init__(
        self,
        timing: Timing | int = 1_000_000,
        *,
        seed: int = 0,
        faults: Iterable[Fault] = (),
        traced: bool = False,
        title: str = "",
        slots: SlotStarts | None = None,
        exact_lengths: bool = True,
        rank: Callable[[Frame], int] | None = None,
        confinement: bool = True,
        lone_acknowledged: bool = True,
    ) -> None:
        self.timing = Timing(timing) if isinstance(timing, int) else timing
        self.seed = seed
        self.slots = slots
        self.faults = tuple(faults)
        self.scheduler = Scheduler()
        self.trace = Trace(_header(self.timing, seed, title, exact_lengths)) if traced else None
        self.hosts: dict[int, Host] = {}
        self.guards: dict[int, Guard] = {}
        self.bus, self.away = (
            SimBus(
                self.timing,
                scheduler=self.scheduler,
                exact_lengths=exact_lengths,
                trace=self.trace,
                rank=rank,
                confinement=confinement,
                lone_acknowledged=lone_acknowledged,
            )
            for _ in range(2)
        )
        self._makers: dict[int, Callable[[], Machine]] = {}
        self._injected = False

    @property
    def now(self) -> int:
        """Virtual time in nanoseconds."""
        return self.scheduler.now

    def at(self, time_ns: int, callback: Callback) -> None:
        """Call back at a time that is not past."""
        self.scheduler.at(time_ns, callback)

    def random(self, purpose: str) -> Random:
        """Lots that depend on the seed and the purpose alone."""
        return Random(f"{self.seed}/{purpose}")

    def run(self, until_ns: int) -> None:
        """Let time pass up to and including an instant."""
        if not self._injected:
            self._injected = True
            for position, fault in enumerate(self.faults):
                fault.inject(self, self.random(f"fault {position}: {fault}"))
        self.scheduler.run(until_ns)

    def add_host(
        self,
        number: int,
        make: Callable[[], Machine],
        *,
        clock: Clock | None = None,
        guard: Guard | None = None,
        mailboxes: int = 2,
    ) -> Host:
        """A station that runs a machine; `make` is called again when a fault restarts it."""
        if number in self.hosts:
            raise BusError(f"there is a station {number} already")
        controller = self.bus.attach(Controller(number, mailboxes=mailboxes, guard=guard))
        self._makers[number] = make
        if guard is not None:
            self.guards[number] = guard
        self.hosts[number] = host = Host(make(), controller, clock)
        return host

    def host(self, number: int) -> Host:
        """The host of a number; BusError names those there are."""
        if number not in self.hosts:
            known = ", ".join(map(str, sorted(self.hosts))) or "none"
            raise BusError(f"there is no host {number} in the simulation; there are {known}")
        return self.hosts[number]

    def restart(self, number: int) -> None:
        """Run a host from the beginning."""
        self.host(number).restart(self._makers[number]())

    def part(self, numbers: Sequence[int]) -> None:
        """Cut the bus in two, with these hosts on the other side."""
        for number in numbers:
            self.host(number).move(self.away)

    def heal(self) -> None:
        """Make it one bus again."""
        for number in sorted(self.hosts):
            self.hosts[number].move(self.bus)


def _header(timing: Timing, seed: int, title: str, exact_lengths: bool) -> Header:
    return Header(
        bitrate=timing.bitrate,
        data_bitrate=timing.data_bitrate,
        exact_lengths=exact_lengths,
        seed=seed,
        title=title,
    )
