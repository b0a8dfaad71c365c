"""A simulation: virtual time, a bus, stations, a seed, and injected faults.

Stations run protocol code (`Host`), or have no middleware: sources of prebuilt frames, and sinks that count. A source
has a queue in front of one mailbox. The times between its releases are an endless iterator, made by `periodic`,
`sporadic`, `poisson` or `late_by`.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import count, cycle, repeat
from random import Random
from typing import TypeVar

from genus.can._machine import Accept, Call, Load, Machine, Output
from genus.can._sim.bus import SimBus
from genus.can._sim.controller import BusGuardian, Controller, ControllerListener, Filters
from genus.can._sim.faults import Fault, SlotStarts
from genus.can._sim.scheduler import NEVER, Callback, Scheduler, SimClock
from genus.can._sim.trace import Trace, TraceHeader
from genus.can._wire.frame import Frame, Timing
from genus.errors import BusError

R = TypeVar("R")

MAX_WAKES_AT_ONE_INSTANT = 10_000


class Host:
    """State: runs a machine in the simulator, with a controller and a clock; the machine gets all times by its clock.

    The controller must be on a bus. Programs use the machine through `call`. `run_handler` gets the handlers that the
    machine outputs and runs them later; without it they are called at once.
    """

    def __init__(
        self,
        machine: Machine,
        controller: Controller,
        bus: SimBus,
        clock: SimClock | None = None,
        run_handler: Callable[[Callable[[], object]], object] | None = None,
    ) -> None:
        if controller.bus is None:
            raise BusError(f"station {controller.number} is not on a bus yet")
        self.controller = controller
        self.clock = clock or SimClock()
        self.clock.on_change.append(self._reset_alarm)
        self.on_crash: Callable[[], object] = lambda: None
        self._scheduler = bus.scheduler
        self._bus = bus
        self._machine: Machine | None = None
        self._run_handler = run_handler
        self._is_settling = False
        self.is_up = True
        """Whether a machine runs, which is so except between a crash and a restart."""
        self._alarm: int | None = None
        """The virtual time for which the alarm is set."""
        self._alarm_reading = NEVER
        """The reading of the clock for which the alarm is set."""
        self._instant, self._wakes = -1, 0
        self._start(machine)

    @property
    def machine(self) -> Machine:
        """The machine that runs; BusError while the station is down."""
        if self._machine is None:
            raise BusError(f"station {self.controller.number} is down")
        return self._machine

    @property
    def now(self) -> int:
        return self.clock.local_time(self._scheduler.now)

    def call(self, function: Callable[[int], R]) -> R:
        """Call a function with the present reading of the clock, handle the machine's outputs, return the result."""
        result = function(self.clock.local_time(self._scheduler.now))
        self._settle()
        return result

    def crash(self) -> None:
        """Stop the machine at once; a frame that is being sent is cut off. Does nothing while the station is down."""
        if self._machine is not None:
            self._machine, self.is_up = None, False
            self._alarm, self._alarm_reading = None, NEVER
            self._bus.detach(self.controller)
            self.controller.reset()
            self.on_crash()

    def restart(self, machine: Machine) -> None:
        """Run another machine, after a crash or instead of the present one; the clock is not reset."""
        self.crash()
        self._bus.attach(self.controller)
        self._start(machine)

    def move_to(self, bus: SimBus) -> None:
        """Connect the station to another bus of the simulation."""
        if bus is self._bus:
            return
        if self._machine is not None:
            self._bus.detach(self.controller)
            bus.attach(self.controller)
        self._bus = bus

    def _start(self, machine: Machine) -> None:
        self._machine, self.is_up = machine, True
        local_time, settle = self.clock.local_time, self._settle

        def frame_input(handle: Callable[[Frame, int], None]) -> Callable[[Frame, int], None]:
            def input(frame: Frame, now: int) -> None:
                if self._machine is machine:
                    handle(frame, local_time(now))
                    settle()

            return input

        def bus_input(handle: Callable[[int], None]) -> Callable[[int], None]:
            def input(now: int) -> None:
                if self._machine is machine:
                    handle(local_time(now))
                    settle()

            return input

        def error_passive(now: int, passive: bool) -> None:
            if self._machine is machine:
                machine.error_passive(local_time(now), passive)
                settle()

        self.controller.connect(
            receive=frame_input(machine.receive),
            sent=frame_input(machine.sent),
            failed=frame_input(machine.failed),
            lost=bus_input(machine.lost),
            error_passive=error_passive,
            bus_off=bus_input(machine.bus_off),
            bus_on=bus_input(machine.bus_on),
        )
        self._settle()

    # Outputs of the machine

    def _settle(self) -> None:
        """Handle the machine's outputs until there are none, and set the alarm; not when called from a handler."""
        machine = self._machine
        if machine is None or self._is_settling:
            return
        if outputs := machine.take():
            self._is_settling = True
            try:
                while self._apply(outputs, machine):
                    outputs = machine.take()
            finally:
                self._is_settling = False
            machine = self._machine
            if machine is None:
                return
        # an alarm that is set for an earlier time is set again when that has come
        wanted = machine.wake_at
        if wanted is not None and wanted < self._alarm_reading:
            self._set_alarm(wanted)

    def _apply(self, outputs: list[Output], machine: Machine) -> bool:
        """Handle outputs; returns whether there may be more, because a handler was called."""
        was_called = False
        for output in outputs:
            if type(output) is Load:
                self.controller.load(output.mailbox, output.frame)
            elif type(output) is Accept:
                self.controller.set_filters(output.filters)
            elif type(output) is Call:
                if self._run_handler is not None:
                    self._run_handler(partial(self._call, output, machine))
                    continue
                was_called = True
                output.handler(*output.arguments)
                if self._machine is not machine:
                    return False  # the handler crashed or restarted the station
        return was_called

    def _call(self, call: Call, machine: Machine) -> None:
        """Call a handler, unless the station crashed since the machine asked for it."""
        if self._machine is machine:
            call.handler(*call.arguments)

    def _set_alarm(self, reading: int) -> None:
        self._alarm_reading = reading
        self._alarm = max(self.clock.virtual_time(reading), self._scheduler.now)
        self._scheduler.at(self._alarm, self._on_alarm)

    def _on_alarm(self) -> None:
        """Wake the machine if its timer is due; the alarm may have been changed since this callback was scheduled."""
        now = self._scheduler.now
        if self._machine is None or self._alarm is None or self._alarm > now:
            return
        self._alarm, self._alarm_reading = None, NEVER
        reading = self.clock.local_time(now)
        wanted = self._machine.wake_at
        if wanted is None:
            return
        if wanted > reading:
            self._set_alarm(wanted)
            return
        self._check_progress(now)
        self._machine.wake(reading)
        self._settle()

    def _check_progress(self, now: int) -> None:
        self._wakes = self._wakes + 1 if now == self._instant else 1
        self._instant = now
        if self._wakes > MAX_WAKES_AT_ONE_INSTANT:
            raise BusError(f"the machine of station {self.controller.number} asks again and again to wake at {now} ns")

    def _reset_alarm(self) -> None:
        self._alarm, self._alarm_reading = None, NEVER
        if self._machine is not None and (wanted := self._machine.wake_at) is not None:
            self._set_alarm(wanted)


class Simulation:
    """State: a bus with hosts by number, and a second segment for when the bus is partitioned; the seed determines all.

    The `faults` are injected at the first `run`, when all stations were added.

    >>> from genus.can._sim.faults import parse_fault
    >>> from genus.can._sim.simulation import FrameSink, FrameSource, periodic
    >>> simulation = Simulation(500_000, seed=1, faults=[parse_fault("errors p=0.1")])
    >>> source = FrameSource(simulation.bus, 1, Frame(0x0021_6010, b"hello"), periodic(1_000_000))
    >>> sink = FrameSink(simulation.bus, 2)
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
        allow_lone_sender: bool = True,
    ) -> None:
        self.timing = Timing(timing) if isinstance(timing, int) else timing
        self.seed = seed
        self.slots = slots
        self.injected: list[Fault] = []
        self._pending_faults = list(faults)
        self.scheduler = Scheduler()
        self.trace = Trace(_header(self.timing, seed, title, exact_lengths)) if traced else None
        self.hosts: dict[int, Host] = {}
        self.guardians: dict[int, BusGuardian] = {}
        self.bus, self.second_segment = (
            SimBus(
                self.timing,
                scheduler=self.scheduler,
                exact_lengths=exact_lengths,
                trace=self.trace,
                rank=rank,
                confinement=confinement,
                allow_lone_sender=allow_lone_sender,
            )
            for _ in range(2)
        )
        self._machine_factories: dict[int, Callable[[], Machine]] = {}
        self.on_restart: Callable[[int], bool] = lambda number: False
        """Called with the number of a station to restart; returns True if it restarted the station itself."""

    @property
    def now(self) -> int:
        return self.scheduler.now

    def at(self, time_ns: int, callback: Callback) -> None:
        self.scheduler.at(time_ns, callback)

    def random(self, purpose: str) -> Random:
        """Return a random generator seeded by the simulation's seed and the purpose."""
        return Random(f"{self.seed}/{purpose}")

    def run(self, until_ns: int) -> None:
        while self._pending_faults:
            self.inject(self._pending_faults.pop(0))
        self.scheduler.run(until_ns)

    def inject(self, fault: Fault) -> None:
        self.injected.append(fault)
        fault.inject(self, self.random(f"fault {len(self.injected) - 1}: {fault}"))

    def add_host(
        self,
        number: int,
        make: Callable[[], Machine],
        *,
        clock: SimClock | None = None,
        guardian: BusGuardian | None = None,
        mailboxes: int = 2,
        run_handler: Callable[[Callable[[], object]], object] | None = None,
    ) -> Host:
        """Add a station that runs a machine; `make` is called again when a fault restarts it.

        BusError if the number is taken.
        """
        if number in self.hosts:
            raise BusError(f"there is a station {number} already")
        controller = self.bus.attach(Controller(number, mailboxes=mailboxes, guardian=guardian))
        self._machine_factories[number] = make
        if guardian is not None:
            self.guardians[number] = guardian
        self.hosts[number] = host = Host(make(), controller, self.bus, clock, run_handler)
        return host

    def host(self, number: int) -> Host:
        if number not in self.hosts:
            known = ", ".join(map(str, sorted(self.hosts))) or "none"
            raise BusError(f"there is no host {number} in the simulation; there are {known}")
        return self.hosts[number]

    def restart(self, number: int) -> None:
        if not self.on_restart(number):
            self.host(number).restart(self._machine_factories[number]())

    def partition(self, numbers: Sequence[int]) -> None:
        """Cut the bus in two, with these hosts on the second segment."""
        for number in numbers:
            self.host(number).move_to(self.second_segment)

    def end_partition(self) -> None:
        """Connect all hosts to one bus again."""
        for number in sorted(self.hosts):
            self.hosts[number].move_to(self.bus)


def _header(timing: Timing, seed: int, title: str, exact_lengths: bool) -> TraceHeader:
    return TraceHeader(
        bitrate=timing.bitrate,
        data_bitrate=timing.data_bitrate,
        exact_lengths=exact_lengths,
        seed=seed,
        title=title,
    )


QUEUE_LIMIT = 1000
"""How many frames can wait in a source; more are dropped."""


def periodic(period_ns: int) -> Iterator[int]:
    """Return a release every period; BusError if it is less than 1 ns."""
    return repeat(_positive(period_ns))


def sporadic(least_ns: int, mean_ns: int, random: Random) -> Iterator[int]:
    """Gaps of at least `least_ns` and `mean_ns` on average; what exceeds the minimum is distributed exponentially."""
    extra = mean_ns - _positive(least_ns)
    if extra < 0:
        raise BusError(f"gaps of at least {least_ns} ns cannot have a mean of {mean_ns} ns")
    return (least_ns + (round(random.expovariate(1 / extra)) if extra else 0) for _ in repeat(None))


def poisson(mean_ns: int, random: Random) -> Iterator[int]:
    """Gaps distributed exponentially: independent releases."""
    return sporadic(1, max(1, _positive(mean_ns)), random)


def late_by(jitter_ns: int, period_ns: int, random: Random) -> Iterator[int]:
    """Yield the gaps of a periodic release, each of which is late by up to `jitter_ns`, but not later than the next."""
    _positive(period_ns)
    before = 0
    for number in count(1):
        instant = max(before, number * period_ns + random.randint(0, jitter_ns))
        yield instant - before
        before = instant


def _positive(gap_ns: int) -> int:
    if gap_ns < 1:
        raise BusError(f"a source cannot release a frame every {gap_ns} ns")
    return gap_ns


class FrameSource(ControllerListener):
    """State: a station that releases frames in turn and measures response times.

    A frame is late if it ends more than `deadline_ns` after its release.
    """

    __slots__ = (
        "_deadline_ns", "_frames", "_gaps", "_queue", "_release", "_scheduler", "controller", "delivered", "dropped",
        "failures", "late", "released", "worst_ns",
    )  # fmt: skip

    def __init__(
        self,
        bus: SimBus,
        number: int,
        frames: Frame | Sequence[Frame],
        gaps: Iterator[int],
        *,
        first_ns: int = 0,
        deadline_ns: int | None = None,
    ) -> None:
        given = (frames,) if isinstance(frames, Frame) else frames
        self._frames = cycle(given) if len(given) > 1 else repeat(given[0])
        self._gaps = gaps
        self._scheduler = bus.scheduler
        self._queue: deque[tuple[int, Frame]] = deque()
        self._deadline_ns = deadline_ns if deadline_ns is not None else NEVER
        self._release = self.release
        self.released = self.delivered = self.late = self.dropped = self.failures = 0
        self.worst_ns = 0
        """The longest time from release to the end of the frame."""
        self.controller = bus.attach(Controller(number, self, mailboxes=1, filters=()))
        bus.at(first_ns, self.release)

    def release(self) -> None:
        """Queue the next frame and schedule the release after it."""
        scheduler, queue = self._scheduler, self._queue
        now = scheduler.now
        scheduler.at(now + next(self._gaps), self._release)
        self.released += 1
        frame = next(self._frames)
        if not queue:
            self.controller.load(0, frame)
        elif len(queue) >= QUEUE_LIMIT:
            self.dropped += 1
            return
        queue.append((now, frame))

    def sent(self, frame: Frame, now: int) -> None:
        queue = self._queue
        response = now - queue.popleft()[0]
        self.delivered += 1
        if response > self.worst_ns:
            self.worst_ns = response
        if response > self._deadline_ns:
            self.late += 1
        if queue:
            self.controller.load(0, queue[0][1])

    def failed(self, frame: Frame, now: int) -> None:
        self.failures += 1

    def bus_on(self, now: int) -> None:
        if self._queue:
            self.controller.load(0, self._queue[0][1])


class FrameSink(ControllerListener):
    """State: a station that counts the frames that pass its filters."""

    __slots__ = ("controller", "received")

    def __init__(self, bus: SimBus, number: int, filters: Filters | None = None) -> None:
        self.received = 0
        self.controller = bus.attach(Controller(number, self, mailboxes=1, filters=filters))

    def receive(self, frame: Frame, now: int) -> None:
        self.received += 1
