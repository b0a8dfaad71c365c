"""The calendar dispatcher: what a node does at the instants of the static calendar, and only then.

A publisher's slot takes the freshest event from a message buffer at the latest ready time, gives it the bus's highest
priority and at most `omissions + 1` attempts. A subscriber's slot keeps what comes and hands it over exactly at the
deadline, so that the application sees no jitter; if nothing came, that is an alarm. A slot that is not used costs
nothing: the bus goes to whoever else has something to send.
"""

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from itertools import count
from typing import Any, Protocol

from genus.can._plan.calendar import Slot
from genus.can._wire.frame import NODE_SHIFT, Frame


def coming_at(slot: Slot, instant: int) -> int | None:
    """The start of the coming of a slot that an instant lies in; half the gap before it still counts."""
    early = slot.gap_ns // 2
    passed = (instant - slot.offset_ns + early) % slot.period_ns
    return instant + early - passed if passed <= slot.length_ns + early else None


class BusTime(Protocol):
    """The bus's clock as a node knows it."""

    def global_time(self, local: int) -> int:
        """The bus's time at a reading of the node's clock."""

    def local_time(self, global_: int) -> int:
        """The reading of the node's clock at a time of the bus."""

    def precision(self, now: int) -> int:
        """A bound on the error of `global_time`; very large while there is none."""


class OwnTime:
    """The node's clock is the bus's clock: one node only, or clocks that something else keeps together."""

    def global_time(self, local: int) -> int:
        """The same."""
        return local

    def local_time(self, global_: int) -> int:
        """The same."""
        return global_

    def precision(self, now: int) -> int:
        """Perfect, as far as the node can tell."""
        return 0


class Occupant(Protocol):
    """What a node does with a slot."""

    slot: Slot

    def begin(self, start: int, now: int) -> None:
        """The latest ready time has come."""

    def abandon(self) -> None:
        """The slot cannot be used, or not any more."""

    def end(self, start: int) -> None:
        """The deadline has come."""


class Dispatcher:
    """State: the next instants of the slots a node takes part in, by the bus's clock; ends before beginnings.

    It stands still while the clock's precision is worse than half the gap of the narrowest slot.
    """

    def __init__(self, time: BusTime, on_stop: Callable[[int, int], None], on_resume: Callable[[int], None]) -> None:
        self.time = time
        self._on_stop = on_stop
        self._on_resume = on_resume
        self._order = count()
        self._agenda: list[tuple[int, bool, int, Occupant, int]] = []
        self._occupants: dict[Occupant, None] = {}
        self.running = False
        self._told = False

    @property
    def allowed_ns(self) -> int:
        """The worst precision with which the slots stay apart."""
        return min((each.slot.gap_ns for each in self._occupants), default=0) // 2

    def join(self, occupant: Occupant, now: int) -> None:
        """Take part in a slot from its next start on."""
        self._occupants[occupant] = None
        if self.running:
            self._schedule(occupant, self.time.global_time(now))
        else:
            self._told = False
            self.watch(now)

    def leave(self, occupant: Occupant) -> None:
        """Take part no more."""
        self._occupants.pop(occupant, None)
        self._agenda = sorted(entry for entry in self._agenda if entry[3] is not occupant)

    def watch(self, now: int) -> None:
        """Start or stop by the clock's present precision."""
        if not self._occupants:
            return
        precision = self.time.precision(now)
        if precision <= self.allowed_ns:
            if not self.running:
                self._start(now, precision)
        elif self.running or not self._told:
            self.running, self._told, self._agenda = False, True, []
            for occupant in list(self._occupants):
                occupant.abandon()
            self._on_stop(precision, self.allowed_ns)

    def _start(self, now: int, precision: int) -> None:
        self.running = True
        for occupant in self._occupants:
            self._schedule(occupant, self.time.global_time(now))
        if self._told:
            self._on_resume(precision)
        self._told = False

    def _schedule(self, occupant: Occupant, after: int) -> None:
        start = occupant.slot.next_start(after).start_ns
        heappush(self._agenda, (start, True, next(self._order), occupant, start))

    @property
    def wake_at(self) -> int | None:
        """When the next slot begins or ends, by the node's own clock."""
        return self.time.local_time(self._agenda[0][0]) if self._agenda else None

    def wake(self, now: int) -> None:
        """Begin and end the slots whose time has come."""
        agenda = self._agenda
        if not agenda or self.time.local_time(agenda[0][0]) > now:
            return
        self.watch(now)
        while self._agenda and self.time.local_time(self._agenda[0][0]) <= now:
            _, begins, _, occupant, start = heappop(self._agenda)
            if begins:
                heappush(self._agenda, (start + occupant.slot.length_ns, False, next(self._order), occupant, start))
                self._begin(occupant, start, now)
            else:
                self._schedule(occupant, max(start + 1, self.time.global_time(now) - occupant.slot.period_ns))
                occupant.end(start)

    def _begin(self, occupant: Occupant, start: int, now: int) -> None:
        """Begin a slot, unless this node woke up too late to keep within it."""
        if self.time.global_time(now) > start + occupant.slot.wait_ns:
            occupant.abandon()
        else:
            occupant.begin(start, now)


class Sender:
    """State: a publisher's message buffer, and the attempts to send what was in it when the slot began."""

    def __init__(
        self,
        slot: Slot,
        load: Callable[[Frame | None], None],
        encode: Callable[[Any], tuple[int, Sequence[bytes]]],
        on_sent: Callable[[Any, int], None],
        on_failed: Callable[[Any, int], None],
        *,
        fd: bool = False,
    ) -> None:
        self.slot = slot
        self.number = 0
        self.replaced = 0
        self._load = load
        self._encode = encode
        self._on_sent = on_sent
        self._on_failed = on_failed
        self._fd = fd
        self._fresh: Any = None
        self._written = 0
        self._event: Any = None
        self._frames: list[Frame] = []
        self._attempts = 0

    def write(self, event: Any, now: int) -> None:
        """Put an event into the buffer; one that was not taken yet is replaced."""
        self.replaced += self._fresh is not None
        self._fresh, self._written = event, now

    def begin(self, start: int, now: int) -> None:
        """Send what is fresh in the buffer: what is older than a period was for another slot."""
        self._event, self._fresh = self._fresh, None
        if self._event is None:
            return
        if now - self._written > self.slot.period_ns:
            self._on_failed(self._event, 0)
            self._event = None
            return
        etag, pieces = self._encode(self._event)
        identifier = self.number << NODE_SHIFT | etag
        self._frames = [Frame(identifier, piece, self._fd) for piece in reversed(pieces)]
        self._attempts = 0
        self._load(self._frames[-1])

    def sent(self, frame: Frame, now: int) -> bool:
        """A frame went through: go on with the next, if it was ours."""
        if not self._frames or frame is not self._frames[-1]:
            return False
        self._frames.pop()
        self._attempts = 0
        if self._frames:
            self._load(self._frames[-1])
        else:
            event, self._event = self._event, None
            self._on_sent(event, now)
        return True

    def failed(self, frame: Frame) -> bool:
        """An attempt failed: the controller repeats it, unless that was the last one the slot has room for."""
        if not self._frames or frame is not self._frames[-1]:
            return False
        self._attempts += 1
        if self._attempts > self.slot.omissions:
            self._give_up()
        return True

    def abandon(self) -> None:
        """What was for this slot is not sent: neither what is under way nor what is in the buffer."""
        if self._frames:
            self._give_up()
        if self._fresh is not None:
            event, self._fresh = self._fresh, None
            self._on_failed(event, 0)

    def end(self, start: int) -> None:
        """The slot is over: what is still under way has failed."""
        if self._frames:
            self._give_up()

    def _give_up(self) -> None:
        event, self._event, self._frames = self._event, None, []
        self._load(None)
        self._on_failed(event, self._attempts)


class Receiver:
    """State: what a subscriber's slot has received so far; handed over at the deadline, or missed."""

    def __init__(self, slot: Slot, deliver: Callable[[Any, int], None], miss: Callable[[int], None]) -> None:
        self.slot = slot
        self._deliver = deliver
        self._miss = miss
        self._event: Any = None
        self._coming: int | None = None

    def put(self, event: Any, coming: int) -> bool:
        """Keep an event until the deadline; False if this coming of the slot has one, of which it is a duplicate."""
        if self._coming == coming:
            return False
        self._event, self._coming = event, coming
        return True

    def begin(self, start: int, now: int) -> None:
        """Nothing: an event may have come while this node was still waking up."""

    def abandon(self) -> None:
        """Nothing: what came in time is still handed over."""

    def end(self, start: int) -> None:
        """Hand over at the deadline; what came after the one before is not of this coming."""
        event = self._event if self._coming == start else None
        self._event = None
        if event is None:
            self._miss(start + self.slot.length_ns)
        else:
            self._deliver(event, start + self.slot.length_ns)
