"""Simple stations without the middleware: sources of prebuilt frames, and sinks that count.

A source has a queue in front of one mailbox. The times between its releases are an endless iterator, made by
`periodic`, `sporadic`, `poisson` or `late_by`.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import count, cycle, repeat
from random import Random

from genus.can._sim.bus import SimBus
from genus.can._sim.controller import Controller, ControllerListener, Filters
from genus.can._sim.scheduler import NEVER
from genus.can._wire.frame import Frame
from genus.errors import BusError

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
