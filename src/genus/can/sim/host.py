"""A station of the simulation that runs protocol code: a machine, a controller and a clock of its own."""

from collections.abc import Callable

from genus.can.machine import Accept, Call, Load, Machine, Output
from genus.can.sim.bus import SimBus
from genus.can.sim.clock import Clock
from genus.can.sim.controller import Controller, Listener
from genus.can.wire.frame import Frame
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
