"""A station of the simulation that runs protocol code: a machine, a controller and a clock of its own."""

from collections.abc import Callable, Iterable, Sequence
from random import Random

from genus.can._machine import Accept, Call, Load, Machine, Output
from genus.can._sim.bus import SimBus
from genus.can._sim.clock import Clock
from genus.can._sim.controller import Controller, Guard, Listener
from genus.can._sim.faults import Fault, SlotStarts
from genus.can._sim.scheduler import Callback, Scheduler
from genus.can._sim.trace import Header, Trace
from genus.can._wire.frame import Frame
from genus.can._wire.length import Timing
from genus.errors import BusError

WAKES_AT_ONE_INSTANT = 10_000
NEVER = 1 << 62


class Host(Listener):
    """State: a machine under the simulator; it is told everything by its own clock, and what it wants is done.

    The controller must be on a bus. Code of users enters by `call`, which hands it the present reading of the clock.
    """

    def __init__(self, machine: Machine, controller: Controller, clock: Clock | None = None) -> None:
        if controller.bus is None:
            raise BusError(f"station {controller.number} is not on a bus yet")
        self.controller = controller
        self.clock = clock or Clock()
        self.clock.on_change.append(self._look_again)
        self._scheduler = controller.bus.scheduler
        self._bus = controller.bus
        self._machine: Machine | None = None
        self._draining = False
        self._alarm: int | None = None
        self._wanted = NEVER
        """The reading for which the alarm is set."""
        self._instant, self._wakes = -1, 0
        self._start(machine)

    @property
    def machine(self) -> Machine:
        """The protocol code that runs."""
        if self._machine is None:
            raise BusError(f"station {self.controller.number} is down")
        return self._machine

    @property
    def is_up(self) -> bool:
        """Whether it runs."""
        return self._machine is not None

    @property
    def now(self) -> int:
        """The reading of its clock."""
        return self.clock.local(self._scheduler.now)

    def call(self, function: Callable[[int], object]) -> None:
        """Let code of users do something with the machine now, by the machine's clock."""
        function(self.clock.local(self._scheduler.now))
        self._drain()

    def crash(self) -> None:
        """Stop at once; a frame it is sending is cut off. A host that is down stays so."""
        if self._machine is not None:
            self._machine = None
            self._alarm, self._wanted = None, NEVER
            self._bus.detach(self.controller)
            self.controller.reset()

    def restart(self, machine: Machine) -> None:
        """Run another machine, after a crash or in place of the present one; the clock went on meanwhile."""
        self.crash()
        self._bus.attach(self.controller)
        self._start(machine)

    def move(self, bus: SimBus) -> None:
        """Wire the station to another bus of the simulation."""
        if bus is self._bus:
            return
        if self._machine is not None:
            self._bus.detach(self.controller)
            bus.attach(self.controller)
        self._bus = bus

    def _start(self, machine: Machine) -> None:
        self._machine = machine
        self.controller.listen(self)
        self._drain()

    # What the controller says

    def receive(self, frame: Frame, now: int) -> None:
        """Pass it on."""
        if self._machine is not None:
            self._machine.receive(frame, self.clock.local(now))
            self._drain()

    def sent(self, frame: Frame, now: int) -> None:
        """Pass it on."""
        if self._machine is not None:
            self._machine.sent(frame, self.clock.local(now))
            self._drain()

    def failed(self, frame: Frame, now: int) -> None:
        """Pass it on."""
        if self._machine is not None:
            self._machine.failed(frame, self.clock.local(now))
            self._drain()

    def lost(self, now: int) -> None:
        """Pass it on."""
        if self._machine is not None:
            self._machine.lost(self.clock.local(now))
            self._drain()

    def bus_off(self, now: int) -> None:
        """Pass it on."""
        if self._machine is not None:
            self._machine.bus_off(self.clock.local(now))
            self._drain()

    def bus_on(self, now: int) -> None:
        """Pass it on."""
        if self._machine is not None:
            self._machine.bus_on(self.clock.local(now))
            self._drain()

    # What the machine wants

    def _drain(self) -> None:
        """Do what the machine wants, until it wants nothing; a handler that calls us again leaves it to us."""
        machine = self._machine
        if machine is None or self._draining:
            return
        outputs = machine.take()
        if outputs:
            self._do_all(outputs, machine)
        self._set_alarm()

    def _do_all(self, outputs: list[Output], machine: Machine) -> None:
        self._draining = True
        try:
            while outputs:
                self._do(outputs, machine)
                outputs = machine.take() if self._machine is machine else []
        finally:
            self._draining = False

    def _do(self, outputs: list[Output], machine: Machine) -> None:
        for output in outputs:
            if self._machine is not machine:
                return  # a handler crashed or restarted the station
            if type(output) is Load:
                self.controller.load(output.mailbox, output.frame)
            elif type(output) is Accept:
                self.controller.accept(output.filters)
            elif type(output) is Call:
                output.handler(*output.arguments)

    def _set_alarm(self) -> None:
        """Come back when the machine wants to be woken, unless that is arranged: an alarm too early looks again."""
        if self._machine is None or (wanted := self._machine.wake_at) is None or wanted >= self._wanted:
            return
        self._wanted = wanted
        self._alarm = max(self.clock.global_of(wanted), self._scheduler.now)
        self._scheduler.at(self._alarm, self._ring)

    def _ring(self) -> None:
        """Wake the machine if its time has come; another alarm may have been set since this one."""
        now = self._scheduler.now
        if self._machine is None or self._alarm is None or self._alarm > now:
            return
        self._alarm, self._wanted = None, NEVER
        reading = self.clock.local(now)
        wanted = self._machine.wake_at
        if wanted is None or wanted > reading:
            self._set_alarm()
            return
        self._refuse_to_hang(now)
        self._machine.wake(reading)
        self._drain()

    def _refuse_to_hang(self, now: int) -> None:
        self._wakes = self._wakes + 1 if now == self._instant else 1
        self._instant = now
        if self._wakes > WAKES_AT_ONE_INSTANT:
            raise BusError(f"the machine of station {self.controller.number} wants to be woken at {now} ns for ever")

    def _look_again(self) -> None:
        """The clock was changed."""
        self._alarm, self._wanted = None, NEVER
        self._set_alarm()


# A whole simulation: virtual time, a bus, the stations on it, a seed, and the faults that befall them.


class Simulation:
    """State: one bus, or two while it is parted, with hosts by number; everything follows from the seed.

    Faults set in with the first `run`, when all stations are there.

    >>> from genus.can._sim.fault_text import parse_fault
    >>> from genus.can._sim.sources import Sink, Source, periodic
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
