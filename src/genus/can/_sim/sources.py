"""Light stations without the middleware: sources that send prebuilt frames, sinks that count.

A source has a queue of its own in front of one mailbox. When it releases frames is an endless series of gaps, made by
`periodic`, `sporadic` or `poisson`.
"""

from collections import deque
from collections.abc import Collection, Iterator, Sequence
from itertools import cycle, repeat
from random import Random

from genus.can._sim.bus import SimBus
from genus.can._sim.controller import Controller, Filters, Listener
from genus.can._sim.fault_hooks import Ruling, Transmission
from genus.can._sim.trace import Passage, Trace
from genus.can._wire.frame import Frame
from genus.errors import BusError

QUEUE_LIMIT = 1000


def periodic(period_ns: int) -> Iterator[int]:
    """A release every period."""
    return repeat(_positive(period_ns))


def sporadic(least_ns: int, mean_ns: int, random: Random) -> Iterator[int]:
    """Gaps of at least `least_ns` and `mean_ns` on average, the rest distributed exponentially."""
    extra = mean_ns - _positive(least_ns)
    if extra < 0:
        raise BusError(f"gaps of at least {least_ns} ns cannot have a mean of {mean_ns} ns")
    return (least_ns + (round(random.expovariate(1 / extra)) if extra else 0) for _ in repeat(None))


def poisson(mean_ns: int, random: Random) -> Iterator[int]:
    """Gaps distributed exponentially: releases that know nothing of each other."""
    return sporadic(1, max(1, _positive(mean_ns)), random)


def _positive(gap_ns: int) -> int:
    if gap_ns < 1:
        raise BusError(f"a source cannot release a frame every {gap_ns} ns")
    return gap_ns


class Source(Listener):
    """State: a station that releases frames in turn; a frame that ends more than `deadline_ns` after it is late."""

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
        self._deadline_ns = deadline_ns if deadline_ns is not None else 1 << 62
        self._release = self.release
        self.released = self.delivered = self.late = self.dropped = self.failures = 0
        self.worst_ns = 0
        """The longest time from release to the end of the frame."""
        self.controller = bus.attach(Controller(number, self, mailboxes=1, filters=()))
        bus.at(first_ns, self.release)

    def release(self) -> None:
        """Queue the next frame, and come back for the one after it."""
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
        """Count, and go on with the next."""
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
        """Count; the controller tries again."""
        self.failures += 1

    def bus_on(self, now: int) -> None:
        """Go on with what waits."""
        if self._queue:
            self.controller.load(0, self._queue[0][1])


class Sink(Listener):
    """State: a station that counts what passes its filters."""

    __slots__ = ("controller", "received")

    def __init__(self, bus: SimBus, number: int, filters: Filters | None = None) -> None:
        self.received = 0
        self.controller = bus.attach(Controller(number, self, mailboxes=1, filters=filters))

    def receive(self, frame: Frame, now: int) -> None:
        """Count."""
        self.received += 1


# A trace played to a bus again: the same frames at the same times, with the same fate.
#
# A ghost stands in for each station that sent. Live stations may be on the same bus, as in the simulation of a rest
# bus: they hear the ghosts and compete with them, and a frame of a ghost that finds the bus taken goes next.


def replay(trace: Trace, bus: SimBus, *, without: Collection[int] = (), segment: int = 0) -> "Replay":
    """Let a trace happen again from now on; `without` leaves out what some stations sent, who are there themselves.

    >>> bus, again = SimBus(trace=Trace()), SimBus(trace=Trace())
    >>> bus.attach(Controller(1)).load(0, Frame(0x0021_6010, b"hello"))
    >>> bus.run(1_000_000)
    >>> _ = replay(bus.trace, again)
    >>> again.run(1_000_000)
    >>> again.trace.to_bytes() == bus.trace.to_bytes()
    True
    """
    absent = set(without)
    chosen = [each for each in trace if each.segment == segment and absent.isdisjoint(each.senders)]
    return Replay(sorted(chosen, key=lambda passage: passage.start_ns), bus)


class Replay:
    """State: the passages that are still to come, and the ghosts that bring them."""

    def __init__(self, passages: list[Passage], bus: SimBus) -> None:
        self._bus = bus
        self._passages: Iterator[Passage] = iter(passages)
        self._began = bus.now
        self._ghosts: dict[int, Ghost] = {}
        self.played = 0
        bus.judge_by(self._judge)
        self._schedule()

    def _schedule(self) -> None:
        passage = next(self._passages, None)
        if passage is not None:
            self._bus.at(self._began + passage.start_ns, lambda: self._play(passage))

    def _play(self, passage: Passage) -> None:
        self.played += 1
        for number in passage.senders:
            if number not in self._ghosts:
                self._ghosts[number] = Ghost(self._bus, number)
            self._ghosts[number].take(passage)
        self._schedule()

    def _judge(self, seen: Transmission) -> Ruling | None:
        """What befell this frame then."""
        ghost = self._ghosts.get(seen.sender)
        passage = ghost.passage if ghost is not None else None
        if passage is None or passage.frame != seen.frame:
            return None
        lasts_ns = passage.end_ns - passage.start_ns
        return Ruling(passage.outcome, deaf=frozenset(passage.missed), lasts_ns=lasts_ns)


class Ghost(Listener):
    """State: stands in for a station: sends each frame once, well or not, and counts no errors."""

    def __init__(self, bus: SimBus, number: int) -> None:
        self._controller = bus.attach(Controller(number, self, mailboxes=1, filters=()))
        self._waiting: deque[Passage] = deque()

    @property
    def passage(self) -> Passage | None:
        """What it sends now."""
        return self._waiting[0] if self._waiting else None

    def take(self, passage: Passage) -> None:
        """Send this one, after those that still wait."""
        self._waiting.append(passage)
        if len(self._waiting) == 1:
            self._load()

    def sent(self, frame: Frame, now: int) -> None:
        """Go on."""
        self._waiting.popleft()
        self._load()

    def failed(self, frame: Frame, now: int) -> None:
        """Go on: if it was sent again, that is another passage."""
        self.sent(frame, now)

    def _load(self) -> None:
        self._controller.tec = self._controller.rec = 0
        self._controller.load(0, self._waiting[0].frame if self._waiting else None)
