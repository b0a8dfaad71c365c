"""Simple stations without the middleware: sources of prebuilt frames, sinks that count, and the replay of a trace.

A source has a queue in front of one mailbox. The times between its releases are an endless iterator, made by
`periodic`, `sporadic`, `poisson` or `late_by`.
"""

from collections import deque
from collections.abc import Collection, Iterator, Sequence
from itertools import count, cycle, repeat
from random import Random

from genus.can._sim.bus import SimBus
from genus.can._sim.controller import Controller, ControllerListener, Filters
from genus.can._sim.fault_hooks import Transmission, TransmissionResult
from genus.can._sim.scheduler import NEVER
from genus.can._sim.trace import Passage, Trace
from genus.can._wire.frame import Frame
from genus.errors import BusError

QUEUE_LIMIT = 1000
"""How many frames can wait in a source; more are dropped."""


def periodic(period_ns: int) -> Iterator[int]:
    """A release every period; BusError if it is less than 1 ns."""
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
    """The gaps of a periodic release, each of which is late by up to `jitter_ns`, but not later than the next."""
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
        """Count the frame and load the next one."""
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
        """Count the failure; the controller retries."""
        self.failures += 1

    def bus_on(self, now: int) -> None:
        """Load the first frame of the queue again."""
        if self._queue:
            self.controller.load(0, self._queue[0][1])


class FrameSink(ControllerListener):
    """State: a station that counts the frames that pass its filters."""

    __slots__ = ("controller", "received")

    def __init__(self, bus: SimBus, number: int, filters: Filters | None = None) -> None:
        self.received = 0
        self.controller = bus.attach(Controller(number, self, mailboxes=1, filters=filters))

    def receive(self, frame: Frame, now: int) -> None:
        """Count the frame."""
        self.received += 1


def replay(trace: Trace, bus: SimBus, *, without: Collection[int] = (), segment: int = 0) -> "Replay":
    """Replay a trace on a bus from now on: the same frames at the same times with the same outcomes.

    A `ReplayStation` stands in for each station that sent. `without` leaves out the frames of some stations. Other
    stations may be on the bus, as in a rest bus simulation: they receive the replayed frames and compete with them, and
    a replayed frame that finds the bus busy is sent next.

    >>> bus, again = SimBus(trace=Trace()), SimBus(trace=Trace())
    >>> bus.attach(Controller(1)).load(0, Frame(0x0021_6010, b"hello"))
    >>> bus.run(1_000_000)
    >>> _ = replay(bus.trace, again)
    >>> again.run(1_000_000)
    >>> again.trace.to_bytes() == bus.trace.to_bytes()
    True
    """
    excluded = set(without)
    chosen = [each for each in trace if each.segment == segment and excluded.isdisjoint(each.senders)]
    return Replay(sorted(chosen, key=lambda passage: passage.start_ns), bus)


class Replay:
    """State: the passages that are still to be replayed, and the stations that send them."""

    def __init__(self, passages: list[Passage], bus: SimBus) -> None:
        self._bus = bus
        self._passages: Iterator[Passage] = iter(passages)
        self._began = bus.now
        self._stations: dict[int, ReplayStation] = {}
        self.played = 0
        """How many passages were released."""
        bus.add_fault_hook(self._recorded_result)
        self._schedule()

    def _schedule(self) -> None:
        passage = next(self._passages, None)
        if passage is not None:
            self._bus.at(self._began + passage.start_ns, lambda: self._play(passage))

    def _play(self, passage: Passage) -> None:
        self.played += 1
        for number in passage.senders:
            if number not in self._stations:
                self._stations[number] = ReplayStation(self._bus, number)
            self._stations[number].send(passage)
        self._schedule()

    def _recorded_result(self, transmission: Transmission) -> TransmissionResult | None:
        """The result that the trace has for this transmission."""
        station = self._stations.get(transmission.sender)
        passage = station.passage if station is not None else None
        if passage is None or passage.frame != transmission.frame:
            return None
        duration_ns = passage.end_ns - passage.start_ns
        return TransmissionResult(passage.outcome, missed_by=frozenset(passage.missed_by), duration_ns=duration_ns)


class ReplayStation(ControllerListener):
    """State: sends the recorded frames of one station, each once whatever its outcome, and counts no errors."""

    def __init__(self, bus: SimBus, number: int) -> None:
        self._controller = bus.attach(Controller(number, self, mailboxes=1, filters=()))
        self._queue: deque[Passage] = deque()

    @property
    def passage(self) -> Passage | None:
        """The passage that is being sent."""
        return self._queue[0] if self._queue else None

    def send(self, passage: Passage) -> None:
        """Send a passage after those in the queue."""
        self._queue.append(passage)
        if len(self._queue) == 1:
            self._load()

    def sent(self, frame: Frame, now: int) -> None:
        """Load the next frame."""
        self._queue.popleft()
        self._load()

    def failed(self, frame: Frame, now: int) -> None:
        """Load the next frame: if this one was sent again, the trace has another passage for that."""
        self.sent(frame, now)

    def _load(self) -> None:
        self._controller.tec = self._controller.rec = 0
        self._controller.load(0, self._queue[0].frame if self._queue else None)
