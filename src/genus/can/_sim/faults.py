"""Faults to inject into a simulation: corrupted, lost and repeated frames, bad clocks, crashes, a babbling idiot.

Faults compose. Faults of frames add a fault hook to the bus; faults of stations schedule what happens. Each fault has a
random generator of its own, seeded by the simulation's seed and the fault's text. The text, `name key=value ...`, is
parsed by `parse_fault`; a key is the name of a field without its unit.
"""

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from inspect import getdoc
from random import Random
from typing import ClassVar, Protocol

import msgspec

from genus.can._sim.bus import SimBus
from genus.can._sim.controller import BusGuardian, Controller, ControllerListener
from genus.can._sim.errors import (
    AFTER_ACKNOWLEDGEMENT_BITS,
    Corrupt,
    Duplicate,
    FaultEffect,
    FaultHook,
    Late,
    MissedBy,
    Transmission,
)
from genus.can._sim.fault_text import field_key, format_fault, join_units, parse_word
from genus.can._sim.scheduler import NEVER, SimClock
from genus.can._sim.trace import TrafficClass
from genus.can._wire.frame import OFF_ABOVE, PASSIVE_ABOVE, Frame, Identifier, Timing
from genus.errors import BusError

FLAG_ECHO_BITS = 6


class FaultyStation(Protocol):
    clock: SimClock
    controller: Controller

    def crash(self) -> None: ...


class FaultySystem(Protocol):
    """What faults need of a simulation, which imports this module."""

    timing: Timing
    bus: SimBus
    second_segment: SimBus
    """The bus of the detached stations while the bus is partitioned."""
    slots: "SlotStarts | None"
    guardians: dict[int, BusGuardian]

    @property
    def hosts(self) -> Mapping[int, object]: ...
    @property
    def now(self) -> int: ...
    def host(self, number: int) -> FaultyStation: ...
    def at(self, time_ns: int, callback: Callable[[], object]) -> None: ...
    def restart(self, number: int) -> None: ...
    def partition(self, numbers: Sequence[int]) -> None: ...
    def end_partition(self) -> None: ...


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """A fault; `inject` puts it into a simulation."""

    name: ClassVar[str] = ""

    def inject(self, simulation: FaultySystem, random: Random) -> None:
        """Put the fault into a simulation, with a random generator of its own."""
        raise NotImplementedError

    def __str__(self) -> str:
        return format_fault(self.name, self)


class FrameFault(Fault, frozen=True, kw_only=True):
    """A fault of frames of a traffic class, event tag, sending station and time; what is not given is not checked."""

    band: TrafficClass | None = None
    etag: int | None = None
    node: int | None = None
    from_ns: int = 0
    until_ns: int = NEVER

    def matches(self, transmission: Transmission) -> bool:
        return (
            self.from_ns <= transmission.start_ns < self.until_ns
            and (self.band is None or self.band is TrafficClass.of(transmission.frame.id))
            and (self.etag is None or self.etag == transmission.frame.etag)
            and (self.node is None or self.node == transmission.sender)
        )

    def inject(self, simulation: FaultySystem, random: Random) -> None:
        hook = partial(self.affect, random=random)
        for bus in (simulation.bus, simulation.second_segment):
            bus.add_fault_hook(hook)

    def affect(self, transmission: Transmission, random: Random) -> FaultEffect | None:
        raise NotImplementedError


class RandomFault(FrameFault, frozen=True, kw_only=True):
    """A fault that affects each frame with probability p."""

    p: float

    def __post_init__(self) -> None:
        if not 0 <= self.p <= 1:
            raise BusError(f"{self.name}: p is {self.p}; it must be a probability from 0 to 1")

    def affect(self, transmission: Transmission, random: Random) -> FaultEffect | None:
        """Return the effect on a transmission that matches, with probability p."""
        if self.matches(transmission) and random.random() < self.p:
            return self.make_effect(transmission, random)
        return None

    def make_effect(self, transmission: Transmission, random: Random) -> FaultEffect:
        raise NotImplementedError


class FrameErrors(RandomFault, frozen=True, kw_only=True):
    """Frames are corrupted, each attempt with probability p, at any bit."""

    name: ClassVar[str] = "errors"

    def make_effect(self, transmission: Transmission, random: Random) -> FaultEffect:
        return corrupt_randomly(transmission, random)


class Duplicates(RandomFault, frozen=True, kw_only=True):
    """An error at the last bit of the end of frame: receivers have the frame, its sender sends it again."""

    name: ClassVar[str] = "duplicates"

    def make_effect(self, transmission: Transmission, random: Random) -> FaultEffect:
        return Duplicate()


class Omissions(RandomFault, frozen=True, kw_only=True):
    """Inconsistent omission: the given number of receivers miss a frame that counts as sent at its sender."""

    name: ClassVar[str] = "omissions"
    receivers: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.receivers < 1:
            raise BusError(f"omissions: receivers is {self.receivers}; it must be 1 or more")

    def make_effect(self, transmission: Transmission, random: Random) -> FaultEffect:
        count = min(self.receivers, len(transmission.receivers))
        return MissedBy(tuple(random.sample(transmission.receivers, count)))


class Losses(RandomFault, frozen=True, kw_only=True):
    """No receiver gets a frame that counts as sent at its sender: overrun buffers, lost segments."""

    name: ClassVar[str] = "losses"

    def make_effect(self, transmission: Transmission, random: Random) -> FaultEffect:
        return MissedBy(transmission.receivers)


class Swaps(RandomFault, frozen=True, kw_only=True):
    """Receivers get a frame after the next one of the same sender and event tag: segments out of order."""

    name: ClassVar[str] = "swaps"

    def make_effect(self, transmission: Transmission, random: Random) -> FaultEffect:
        return Late()


class ExactErrors(FrameFault, frozen=True, kw_only=True):
    """Each frame fails exactly `count` times after it was loaded, and is then sent; with p, at most so many times."""

    name: ClassVar[str] = "exactly"
    count: int
    band: TrafficClass | None = TrafficClass.HARD
    p: float = 1.0
    """The probability of each of these failures."""

    def __post_init__(self) -> None:
        if self.count < 0:
            raise BusError(f"exactly: count is {self.count}; it must be 0 or more")
        if not 0 <= self.p <= 1:
            raise BusError(f"exactly: p is {self.p}; it must be a probability from 0 to 1")

    def affect(self, transmission: Transmission, random: Random) -> FaultEffect | None:
        fails = transmission.attempt < self.count and self.matches(transmission)
        if fails and (self.p == 1 or random.random() < self.p):
            return corrupt_randomly(transmission, random)
        return None


class TransmitterFault(FrameFault, frozen=True, kw_only=True):
    """A station's transmitter is broken: all its frames are corrupted, so it goes off the bus again and again."""

    name: ClassVar[str] = "transmitter"
    node: int | None

    def affect(self, transmission: Transmission, random: Random) -> FaultEffect | None:
        return corrupt_randomly(transmission, random) if self.matches(transmission) else None


class Bursts(Fault, frozen=True, kw_only=True):
    """Bursts of noise on the wire: `bits` long, one every `every`; a frame that is on the bus then is corrupted."""

    name: ClassVar[str] = "bursts"
    every_ns: int
    bits: int
    from_ns: int = 0

    def __post_init__(self) -> None:
        if self.every_ns < 1 or self.bits < 1:
            raise BusError("bursts: every and bits must be more than 0")

    def inject(self, simulation: FaultySystem, random: Random) -> None:
        for bus in (simulation.bus, simulation.second_segment):
            bus.add_fault_hook(partial(self._affect, timing=simulation.timing))

    def _affect(self, transmission: Transmission, timing: Timing) -> FaultEffect | None:
        """An error at the first bit that is within a burst."""
        since = transmission.start_ns - self.from_ns
        if since >= 0 and since % self.every_ns < timing.bits_ns(self.bits):
            return Corrupt(1)
        begins = transmission.start_ns + (-since % self.every_ns if since >= 0 else -since)
        bit = timing.bits_in(begins - transmission.start_ns) + 1
        return Corrupt(bit) if bit <= _last_bit(transmission) else None


class SlotStarts(msgspec.Struct, frozen=True):
    """When the slots of a calendar start, in each cycle."""

    cycle_ns: int
    starts_ns: tuple[int, ...]

    def any_between(self, start_ns: int, end_ns: int) -> bool:
        """Return whether a slot starts at or after `start_ns` and before `end_ns`.

        >>> [SlotStarts(1000, (100,)).any_between(*span) for span in ((1100, 1101), (1101, 2000), (50, 99999))]
        [True, False, True]
        """
        return any(start_ns + (slot - start_ns) % self.cycle_ns < end_ns for slot in self.starts_ns)


class BlockingErrors(Fault, frozen=True, kw_only=True):
    """The frame that is on the bus when a slot of the calendar starts is corrupted, at its last bit.

    Slots are those of the simulation's calendar, or start every `every` from `at` on.
    """

    name: ClassVar[str] = "blocking"
    every_ns: int | None = None
    at_ns: int = 0

    def inject(self, simulation: FaultySystem, random: Random) -> None:
        simulation.bus.add_fault_hook(_blocking_hook(self._slots(simulation), simulation.timing))

    def _slots(self, simulation: FaultySystem) -> SlotStarts:
        if self.every_ns is not None:
            return SlotStarts(self.every_ns, (self.at_ns,))
        if simulation.slots is None:
            raise BusError("blocking: the simulation has no calendar; give every and at")
        return simulation.slots


def _blocking_hook(slots: SlotStarts, timing: Timing) -> FaultHook:
    def affect(transmission: Transmission) -> FaultEffect | None:
        """Hard frames are in their own slots and do not block any."""
        blocks = slots.any_between(transmission.start_ns + 1, transmission.end_ns(timing))
        if not blocks or TrafficClass.of(transmission.frame.id) is TrafficClass.HARD:
            return None
        return Corrupt(_last_bit(transmission), FLAG_ECHO_BITS)

    return affect


def corrupt_randomly(transmission: Transmission, random: Random) -> Corrupt:
    """Return an error at a random bit up to the acknowledgement, with a random echo of the error flag."""
    return Corrupt(random.randint(1, _last_bit(transmission)), random.randint(0, FLAG_ECHO_BITS))


def _last_bit(transmission: Transmission) -> int:
    return transmission.bits - AFTER_ACKNOWLEDGEMENT_BITS


class ErrorCounters(Fault, frozen=True, kw_only=True):
    """The error counters of some stations get these values, once or `every` so often: error passive above 127."""

    name: ClassVar[str] = "counters"
    nodes: tuple[int, ...]
    tec: int = 0
    rec: int = 0
    at_ns: int = 0
    every_ns: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.tec <= OFF_ABOVE or not 0 <= self.rec <= PASSIVE_ABOVE + 1:
            raise BusError(f"counters: tec is 0 to {OFF_ABOVE} and rec 0 to {PASSIVE_ABOVE + 1}")
        if self.every_ns is not None and self.every_ns < 1:
            raise BusError("counters: every must be more than 0")

    def inject(self, simulation: FaultySystem, random: Random) -> None:
        stations = [simulation.host(number) for number in self.nodes]
        simulation.at(max(self.at_ns, simulation.now), partial(self._set, simulation, stations))

    def _set(self, simulation: FaultySystem, stations: Sequence[FaultyStation]) -> None:
        for controller in (station.controller for station in stations):
            if not controller.off:
                controller.tec, controller.rec = self.tec, self.rec
        if self.every_ns is not None:
            simulation.at(simulation.now + self.every_ns, partial(self._set, simulation, stations))


class ClockStep(Fault, frozen=True, kw_only=True):
    """A station's clock jumps forward or back."""

    name: ClassVar[str] = "step"
    node: int
    by_ns: int
    at_ns: int = 0

    def inject(self, simulation: FaultySystem, random: Random) -> None:
        clock = simulation.host(self.node).clock
        simulation.at(self.at_ns, lambda: clock.step(self.by_ns, at_ns=simulation.now))


class ClockDrift(Fault, frozen=True, kw_only=True):
    """Clocks run at another rate from `at` on; without nodes, each at a random one between -ppm and ppm."""

    name: ClassVar[str] = "drift"
    ppm: float
    nodes: tuple[int, ...] = ()
    at_ns: int = 0

    def inject(self, simulation: FaultySystem, random: Random) -> None:
        if self.nodes:
            drifts = dict.fromkeys(self.nodes, self.ppm)
        else:
            drifts = {number: random.uniform(-self.ppm, self.ppm) for number in sorted(simulation.hosts)}
        for number, drift in drifts.items():
            self._schedule(simulation, number, drift)

    def _schedule(self, simulation: FaultySystem, number: int, drift: float) -> None:
        clock = simulation.host(number).clock
        simulation.at(self.at_ns, lambda: clock.set_drift(drift, at_ns=simulation.now))


class Crash(Fault, frozen=True, kw_only=True):
    """A station stops at once; with `restart`, it starts again at that time."""

    name: ClassVar[str] = "crash"
    node: int
    at_ns: int
    restart_ns: int | None = None

    def __post_init__(self) -> None:
        if self.restart_ns is not None and self.restart_ns < self.at_ns:
            raise BusError("crash: restart is before at")

    def inject(self, simulation: FaultySystem, random: Random) -> None:
        host = simulation.host(self.node)
        simulation.at(self.at_ns, host.crash)
        if self.restart_ns is not None:
            simulation.at(self.restart_ns, lambda: simulation.restart(self.node))


class Partition(Fault, frozen=True, kw_only=True):
    """The bus is cut in two segments for a while, with the given stations on the second one."""

    name: ClassVar[str] = "partition"
    nodes: tuple[int, ...]
    from_ns: int = 0
    until_ns: int = NEVER

    def inject(self, simulation: FaultySystem, random: Random) -> None:
        for number in self.nodes:
            simulation.host(number)
        simulation.at(self.from_ns, lambda: simulation.partition(self.nodes))
        simulation.at(self.until_ns, simulation.end_partition)


class Babble(Fault, frozen=True, kw_only=True):
    """A babbling idiot: a station sends frames of one priority without a pause; only a bus guardian stops it."""

    name: ClassVar[str] = "babble"
    node: int
    priority: int = 0
    from_ns: int = 0
    until_ns: int = NEVER
    etag: int = 0x3FFF
    size: int = 8

    def __post_init__(self) -> None:
        if self.priority >> 8 or self.node >> 7 or self.etag >> 14 or not 0 <= self.size <= 8:
            raise BusError("babble: priority is 0 to 255, node 0 to 127, etag 0 to 16383, size 0 to 8")

    def inject(self, simulation: FaultySystem, random: Random) -> None:
        """Attach another controller beside the station's own, behind the same guardian."""
        frame = Frame(Identifier(self.priority, self.node, self.etag).pack(), bytes(self.size))
        guardian = simulation.guardians.get(self.node)
        controller = Controller(self.node, mailboxes=1, filters=(), guardian=guardian)
        babbler = Babbler(simulation.bus, controller, frame)
        simulation.at(self.from_ns, babbler.start)
        simulation.at(self.until_ns, babbler.stop)


class Babbler(ControllerListener):
    """State: a controller that sends the same frame again and again."""

    def __init__(self, bus: SimBus, controller: Controller, frame: Frame) -> None:
        self._controller = bus.attach(controller)
        self._frame = frame
        self._on = False
        controller.listen(self)

    def start(self) -> None:
        self._on = True
        self._controller.load(0, self._frame)

    def stop(self) -> None:
        self._on = False
        self._controller.load(0, None)

    def sent(self, frame: Frame, now: int) -> None:
        if self._on:
            self._controller.load(0, frame)

    def bus_on(self, now: int) -> None:
        if self._on:
            self._controller.load(0, self._frame)


# -- faults from text --------------------------------------------------------------------------------------------------

FAULTS: dict[str, type[Fault]] = {
    kind.name: kind
    for kind in (
        FrameErrors, ExactErrors, BlockingErrors, Bursts, TransmitterFault, ErrorCounters, Duplicates, Omissions,
        Losses, Swaps, Babble, ClockStep, ClockDrift, Crash, Partition,
    )
}  # fmt: skip


def parse_fault(text: str, nodes: Mapping[str, int] | None = None) -> Fault:
    """Parse the text of a fault. `nodes` has the numbers of nodes by name. BusError names what is wrong.

    >>> print(parse_fault("errors   p=0.05 band=hard"))
    errors band=hard p=0.05
    >>> str(parse_fault("step  at=1.5 s node=3 by=-100us"))
    'step node=3 by=-100us at=1500ms'
    >>> str(parse_fault("crash node=sensor at=1s", {"sensor": 4}))
    'crash node=4 at=1s'
    >>> parse_fault("error p=1")
    Traceback (most recent call last):
    genus.errors.BusError: there is no fault 'error'; did you mean errors?
    """
    name, *words = text.split() or [""]
    kind = FAULTS.get(name)
    if kind is None:
        raise BusError(f"there is no fault {name!r}; {_hint(name)}")
    fields = {field_key(field): field for field in msgspec.structs.fields(kind)}
    given = dict(parse_word(word, name, fields, nodes or {}) for word in join_units(words, fields))
    missing = [key for key, field in fields.items() if field.required and field.name not in given]
    if missing:
        raise BusError(f"{name} needs {', '.join(missing)}")
    return kind(**given)


def fault_help() -> list[tuple[str, str]]:
    """Return the usage and the description of every fault."""
    return [(_usage(kind), _first_line(kind)) for kind in FAULTS.values()]


def _usage(kind: type[Fault]) -> str:
    words = [f"{field_key(f)}=" if f.required else f"[{field_key(f)}=]" for f in msgspec.structs.fields(kind)]
    return " ".join([kind.name, *sorted(words, key=lambda word: word.startswith("["))])


def _first_line(kind: type[Fault]) -> str:
    return (getdoc(kind) or "").partition("\n")[0]


def _hint(name: str) -> str:
    close = get_close_matches(name, FAULTS, 1)
    return f"did you mean {close[0]}?" if close else f"there are {', '.join(FAULTS)}"
