"""Faults of frames: each looks at every transmission and may give a verdict on it. From a seed, and composable.

Every fault has a text form, `name key=value ...`, which `genus.can._sim.fault_text` reads; a key is the field's name
without its unit. Faults of stations and clocks are in `genus.can._sim.faults`.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import ClassVar, Protocol

import msgspec

from genus.can._sim.bus import SimBus
from genus.can._sim.clock import Clock
from genus.can._sim.controller import Controller, Guard, Listener
from genus.can._sim.fault_format import text_of
from genus.can._sim.fault_hooks import AFTER_ACKNOWLEDGEMENT_BITS, Corrupt, Deaf, Duplicate, Late, Transmission, Verdict
from genus.can._sim.trace import Band
from genus.can._wire.frame import Frame, Identifier
from genus.can._wire.length import Timing
from genus.errors import BusError

FOREVER = 1 << 62
FLAG_ECHO_BITS = 6


class FaultyStation(Protocol):
    """What faults do to a station."""

    clock: Clock

    def crash(self) -> None:
        """Stop at once."""


class FaultySystem(Protocol):
    """What faults are injected into: a simulation."""

    timing: Timing
    bus: SimBus
    away: SimBus
    """The other side of a bus that is cut in two."""
    slots: "SlotStarts | None"
    guards: dict[int, Guard]

    @property
    def hosts(self) -> Mapping[int, object]:
        """The stations by number."""

    @property
    def now(self) -> int:
        """Virtual time in nanoseconds."""

    def host(self, number: int) -> FaultyStation:
        """A station."""

    def at(self, time_ns: int, callback: Callable[[], object]) -> None:
        """Call back at a time."""

    def restart(self, number: int) -> None:
        """Start a station again."""

    def part(self, numbers: Sequence[int]) -> None:
        """Cut the bus in two."""

    def heal(self) -> None:
        """Make it one bus again."""


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """Something that goes wrong; `inject` puts it into a simulation, with lots of its own to draw."""

    name: ClassVar[str] = ""

    def inject(self, simulation: FaultySystem, random: Random) -> None:
        """Let it go wrong."""
        raise NotImplementedError

    def __str__(self) -> str:
        return text_of(self.name, self)


class FrameFault(Fault, frozen=True, kw_only=True):
    """A fault of those frames that are of a band, an event tag, a sending station, a time; of all, if none is given."""

    band: Band | None = None
    etag: int | None = None
    node: int | None = None
    from_ns: int = 0
    until_ns: int = FOREVER

    def concerns(self, seen: Transmission) -> bool:
        """Whether a frame is one of them."""
        return (
            self.from_ns <= seen.start_ns < self.until_ns
            and (self.band is None or self.band is Band.of(seen.frame.id))
            and (self.etag is None or self.etag == seen.frame.etag)
            and (self.node is None or self.node == seen.sender)
        )

    def inject(self, simulation: FaultySystem, random: Random) -> None:
        """Judge every frame on either side of the bus."""
        judge = partial(self.judge, random=random)
        for bus in (simulation.bus, simulation.away):
            bus.judge_by(judge)

    def judge(self, seen: Transmission, random: Random) -> Verdict | None:
        """What befalls a frame."""
        raise NotImplementedError


class RandomFault(FrameFault, frozen=True, kw_only=True):
    """A fault that befalls each frame with probability p."""

    p: float

    def __post_init__(self) -> None:
        if not 0 <= self.p <= 1:
            raise BusError(f"{self.name}: p is {self.p}, which is no probability")

    def judge(self, seen: Transmission, random: Random) -> Verdict | None:
        """Draw lots for a frame that is concerned."""
        return self.verdict(seen, random) if self.concerns(seen) and random.random() < self.p else None

    def verdict(self, seen: Transmission, random: Random) -> Verdict | None:
        """What befalls a frame that drew the lot."""
        raise NotImplementedError


class FrameErrors(RandomFault, frozen=True, kw_only=True):
    """Frames are corrupted, each attempt with probability p, at any bit."""

    name: ClassVar[str] = "errors"

    def verdict(self, seen: Transmission, random: Random) -> Verdict:
        """An error at some bit."""
        return corrupted(seen, random)


class Duplicates(RandomFault, frozen=True, kw_only=True):
    """An error at the last bit of the end of frame: receivers have the frame, its sender sends it again."""

    name: ClassVar[str] = "duplicates"

    def verdict(self, seen: Transmission, random: Random) -> Verdict:
        """Once more."""
        return Duplicate()


class Omissions(RandomFault, frozen=True, kw_only=True):
    """Inconsistent omission: as many receivers as given miss a frame, and its sender takes it for sent."""

    name: ClassVar[str] = "omissions"
    receivers: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.receivers < 1:
            raise BusError(f"omissions: receivers is {self.receivers}, so nobody misses anything")

    def verdict(self, seen: Transmission, random: Random) -> Verdict:
        """Some of those who would hear it do not."""
        return Deaf(tuple(random.sample(seen.hearers, min(self.receivers, len(seen.hearers)))))


class Losses(RandomFault, frozen=True, kw_only=True):
    """Frames that no receiver gets, though their sender takes them for sent: overrun buffers, lost segments."""

    name: ClassVar[str] = "losses"

    def verdict(self, seen: Transmission, random: Random) -> Verdict:
        """Nobody hears it."""
        return Deaf(seen.hearers)


class Swaps(RandomFault, frozen=True, kw_only=True):
    """Frames that receivers get after the next one of the same sender and event tag: segments out of order."""

    name: ClassVar[str] = "swaps"

    def verdict(self, seen: Transmission, random: Random) -> Verdict:
        """Later."""
        return Late()


class ExactErrors(FrameFault, frozen=True, kw_only=True):
    """Each frame fails exactly as often as given after it was loaded, and then goes through."""

    name: ClassVar[str] = "exactly"
    count: int
    band: Band | None = Band.HARD

    def __post_init__(self) -> None:
        if self.count < 0:
            raise BusError(f"exactly: count is {self.count}, but nothing fails less than never")

    def judge(self, seen: Transmission, random: Random) -> Verdict | None:
        """Fail the first attempts."""
        return corrupted(seen, random) if seen.attempt < self.count and self.concerns(seen) else None


class TransmitterFault(FrameFault, frozen=True, kw_only=True):
    """A station's transmitter is broken: everything it sends is corrupted, until it is off the bus, and again then."""

    name: ClassVar[str] = "transmitter"
    node: int | None

    def judge(self, seen: Transmission, random: Random) -> Verdict | None:
        """Corrupt what the station sends."""
        return corrupted(seen, random) if self.concerns(seen) else None


class Bursts(Fault, frozen=True, kw_only=True):
    """Bursts of noise on the wire: `bits` long, one every `every`; whatever is on the bus then is corrupted."""

    name: ClassVar[str] = "bursts"
    every_ns: int
    bits: int
    from_ns: int = 0

    def __post_init__(self) -> None:
        if self.every_ns < 1 or self.bits < 1:
            raise BusError("bursts: every and bits must be more than 0")

    def inject(self, simulation: FaultySystem, random: Random) -> None:
        """Judge every frame on either side of the bus."""
        bit_ns = simulation.timing.bit_ns
        for bus in (simulation.bus, simulation.away):
            bus.judge_by(partial(self._judge, bit_ns=bit_ns))

    def _judge(self, seen: Transmission, bit_ns: int) -> Verdict | None:
        """The first bit that a burst hits."""
        since = seen.start_ns - self.from_ns
        if since >= 0 and since % self.every_ns < self.bits * bit_ns:
            return Corrupt(1)
        begins = seen.start_ns + (-since % self.every_ns if since >= 0 else -since)
        bit = (begins - seen.start_ns) // bit_ns + 1
        return Corrupt(bit) if bit <= seen.bits - AFTER_ACKNOWLEDGEMENT_BITS else None


class SlotStarts(msgspec.Struct, frozen=True):
    """When the slots of a calendar start, in each cycle."""

    cycle_ns: int
    starts_ns: tuple[int, ...]

    def any_between(self, start_ns: int, end_ns: int) -> bool:
        """Whether a slot starts at or after one instant and before another.

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
        """Judge every frame."""
        simulation.bus.judge_by(_blocking_judge(self._slots(simulation), simulation.timing.bit_ns))

    def _slots(self, simulation: FaultySystem) -> SlotStarts:
        if self.every_ns is not None:
            return SlotStarts(self.every_ns, (self.at_ns,))
        if simulation.slots is None:
            raise BusError("blocking: the simulation has no calendar; give every and at")
        return simulation.slots


def _blocking_judge(slots: SlotStarts, bit_ns: int) -> Callable[[Transmission], Verdict | None]:
    def judge(seen: Transmission) -> Verdict | None:
        """Frames of the hard band are in their slots, and do not block them."""
        blocks = slots.any_between(seen.start_ns + 1, seen.end_ns(bit_ns))
        if not blocks or Band.of(seen.frame.id) is Band.HARD:
            return None
        return Corrupt(_last_bit(seen), FLAG_ECHO_BITS)

    return judge


def corrupted(seen: Transmission, random: Random) -> Corrupt:
    """An error at any bit up to the acknowledgement, with any echo of the error flag."""
    return Corrupt(random.randint(1, _last_bit(seen)), random.randint(0, FLAG_ECHO_BITS))


def _last_bit(seen: Transmission) -> int:
    return seen.bits - AFTER_ACKNOWLEDGEMENT_BITS


# Faults of stations: clocks that jump or run away, crashes, a babbling idiot, a bus cut in two.


class ClockStep(Fault, frozen=True, kw_only=True):
    """A station's clock jumps, forward or back."""

    name: ClassVar[str] = "step"
    node: int
    by_ns: int
    at_ns: int = 0

    def inject(self, simulation: FaultySystem, random: Random) -> None:
        """Step the clock at its time."""
        clock = simulation.host(self.node).clock
        simulation.at(self.at_ns, lambda: clock.step(self.by_ns, at_ns=simulation.now))


class ClockDrift(Fault, frozen=True, kw_only=True):
    """Clocks run at another rate from a time on; without nodes, each draws its drift between -ppm and ppm."""

    name: ClassVar[str] = "drift"
    ppm: float
    nodes: tuple[int, ...] = ()
    at_ns: int = 0

    def inject(self, simulation: FaultySystem, random: Random) -> None:
        """Change the rates at their time."""
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
    """A station stops at once; `restart` is when it begins anew, if it does."""

    name: ClassVar[str] = "crash"
    node: int
    at_ns: int
    restart_ns: int | None = None

    def __post_init__(self) -> None:
        if self.restart_ns is not None and self.restart_ns < self.at_ns:
            raise BusError("crash: restart is before at")

    def inject(self, simulation: FaultySystem, random: Random) -> None:
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

    def inject(self, simulation: FaultySystem, random: Random) -> None:
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

    def inject(self, simulation: FaultySystem, random: Random) -> None:
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
