"""A simulation: virtual time, a bus, stations that run protocol code, a seed, and the faults that are injected."""

from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import TypeVar

from genus.can._machine import Accept, Call, Load, Machine, Output
from genus.can._sim.bus import SimBus
from genus.can._sim.clock import Clock
from genus.can._sim.controller import Controller, Guard
from genus.can._sim.faults import Fault, SlotStarts
from genus.can._sim.scheduler import Callback, Scheduler
from genus.can._sim.trace import Header, Trace
from genus.can._wire.frame import Frame
from genus.can._wire.length import Timing
from genus.errors import BusError

R = TypeVar("R")

WAKES_AT_ONE_INSTANT = 10_000
NEVER = 1 << 62


class Host:
    """State: a machine in the simulator, with a controller and a clock; the machine gets all times by its own clock.

    The controller must be on a bus. Programs enter by `call`, which gives them the present reading of the clock.
    `run_handler` runs the handlers that the machine wants to be called; without it they are called at once.
    """

    def __init__(
        self,
        machine: Machine,
        controller: Controller,
        bus: SimBus,
        clock: Clock | None = None,
        run_handler: Callable[[Callable[[], object]], object] | None = None,
    ) -> None:
        if controller.bus is None:
            raise BusError(f"station {controller.number} is not on a bus yet")
        self.controller = controller
        self.clock = clock or Clock()
        self.clock.on_change.append(self._clock_changed)
        self.on_crash: Callable[[], object] = lambda: None
        self._scheduler = bus.scheduler
        self._bus = bus
        self._machine: Machine | None = None
        self._run_handler = run_handler
        self._draining = False
        self._alarm: int | None = None
        self._wanted = NEVER
        """The reading for which the alarm is set."""
        self._instant, self._wakes = -1, 0
        self._start(machine)

    @property
    def machine(self) -> Machine:
        """The protocol code that runs; BusError while the station is down."""
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

    def call(self, function: Callable[[int], R]) -> R:
        """Call a function of the machine with the reading of its clock, and do what the machine then wants."""
        result = function(self.clock.local(self._scheduler.now))
        self._drain()
        return result

    def crash(self) -> None:
        """Stop at once; a frame it is sending is cut off. Does nothing while it is down."""
        if self._machine is not None:
            self._machine = None
            self._alarm, self._wanted = None, NEVER
            self._bus.detach(self.controller)
            self.controller.reset()
            self.on_crash()

    def restart(self, machine: Machine) -> None:
        """Run another machine, after a crash or instead of the present one; the clock went on meanwhile."""
        self.crash()
        self._bus.attach(self.controller)
        self._start(machine)

    def move(self, bus: SimBus) -> None:
        """Connect the station to another bus of the simulation."""
        if bus is self._bus:
            return
        if self._machine is not None:
            self._bus.detach(self.controller)
            bus.attach(self.controller)
        self._bus = bus

    def _start(self, machine: Machine) -> None:
        self._machine = machine
        local, drain = self.clock.local, self._drain

        def frame_input(handle: Callable[[Frame, int], None]) -> Callable[[Frame, int], None]:
            def input(frame: Frame, now: int) -> None:
                if self._machine is machine:
                    handle(frame, local(now))
                    drain()

            return input

        def bus_input(handle: Callable[[int], None]) -> Callable[[int], None]:
            def input(now: int) -> None:
                if self._machine is machine:
                    handle(local(now))
                    drain()

            return input

        self.controller.connect(
            receive=frame_input(machine.receive),
            sent=frame_input(machine.sent),
            failed=frame_input(machine.failed),
            lost=bus_input(machine.lost),
            bus_off=bus_input(machine.bus_off),
            bus_on=bus_input(machine.bus_on),
        )
        self._drain()

    # What the machine wants

    def _drain(self) -> None:
        """Do what the machine wants until it wants nothing; does nothing when called from within."""
        machine = self._machine
        if machine is None or self._draining:
            return
        outputs = machine.take()
        if outputs:
            self._draining = True
            try:
                while outputs:
                    self._do(outputs, machine)
                    outputs = machine.take() if self._machine is machine else []
            finally:
                self._draining = False
        self._set_alarm()

    def _do(self, outputs: list[Output], machine: Machine) -> None:
        for output in outputs:
            if self._machine is not machine:
                return  # a handler crashed or restarted the station
            if type(output) is Load:
                self.controller.load(output.mailbox, output.frame)
            elif type(output) is Accept:
                self.controller.accept(output.filters)
            elif type(output) is Call:
                self._call(output, machine)

    def _call(self, call: Call, machine: Machine) -> None:
        if self._run_handler is None:
            call.handler(*call.arguments)
        else:
            self._run_handler(lambda: call.handler(*call.arguments) if self._machine is machine else None)

    def _set_alarm(self) -> None:
        """Schedule the machine's next timer, unless an alarm is set that is not later: that one checks again."""
        if self._machine is None or (wanted := self._machine.wake_at) is None or wanted >= self._wanted:
            return
        self._wanted = wanted
        self._alarm = max(self.clock.global_of(wanted), self._scheduler.now)
        self._scheduler.at(self._alarm, self._ring)

    def _ring(self) -> None:
        """Wake the machine if its timer is due; another alarm may have been set since this one."""
        now = self._scheduler.now
        if self._machine is None or self._alarm is None or self._alarm > now:
            return
        self._alarm, self._wanted = None, NEVER
        reading = self.clock.local(now)
        wanted = self._machine.wake_at
        if wanted is None or wanted > reading:
            self._set_alarm()
            return
        self._check_progress(now)
        self._machine.wake(reading)
        self._drain()

    def _check_progress(self, now: int) -> None:
        self._wakes = self._wakes + 1 if now == self._instant else 1
        self._instant = now
        if self._wakes > WAKES_AT_ONE_INSTANT:
            raise BusError(f"the machine of station {self.controller.number} wants to be woken at {now} ns for ever")

    def _clock_changed(self) -> None:
        self._alarm, self._wanted = None, NEVER
        self._set_alarm()


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
        self.injected: list[Fault] = []
        self._pending_faults = list(faults)
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
        self.on_restart: Callable[[int], bool] = lambda number: False
        """Called with the number of a station that is to restart; returns whether it takes care of that."""

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
        while self._pending_faults:
            self.inject(self._pending_faults.pop(0))
        self.scheduler.run(until_ns)

    def inject(self, fault: Fault) -> None:
        """Inject a fault now; each has a random generator of its own."""
        self.injected.append(fault)
        fault.inject(self, self.random(f"fault {len(self.injected) - 1}: {fault}"))

    def add_host(
        self,
        number: int,
        make: Callable[[], Machine],
        *,
        clock: Clock | None = None,
        guard: Guard | None = None,
        mailboxes: int = 2,
        run_handler: Callable[[Callable[[], object]], object] | None = None,
    ) -> Host:
        """Add a station that runs a machine; `make` is called again when a fault restarts it."""
        if number in self.hosts:
            raise BusError(f"there is a station {number} already")
        controller = self.bus.attach(Controller(number, mailboxes=mailboxes, guard=guard))
        self._makers[number] = make
        if guard is not None:
            self.guards[number] = guard
        self.hosts[number] = host = Host(make(), controller, self.bus, clock, run_handler)
        return host

    def host(self, number: int) -> Host:
        """The host of a number; BusError names those there are."""
        if number not in self.hosts:
            known = ", ".join(map(str, sorted(self.hosts))) or "none"
            raise BusError(f"there is no host {number} in the simulation; there are {known}")
        return self.hosts[number]

    def restart(self, number: int) -> None:
        """Start a station again."""
        if not self.on_restart(number):
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
