"""A trace played to a bus again: the same frames at the same times, with the same fate.

A ghost stands in for each station that sent. Live stations may be on the same bus, as in the simulation of a rest bus:
they hear the ghosts and compete with them, and a frame of a ghost that finds the bus taken goes next.
"""

from collections import deque
from collections.abc import Collection, Iterator

from genus.can.sim.bus import SimBus
from genus.can.sim.controller import Controller, Listener
from genus.can.sim.trace import Passage, Trace
from genus.can.sim.verdict import Ruling, Transmission
from genus.can.wire.frame import Frame


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
