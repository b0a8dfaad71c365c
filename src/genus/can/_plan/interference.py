"""Streams of messages, what interferes with them, and the worst-case response times under fixed priorities.

The bus time that hard slots and errors can take is a function of a window's length, and gives the maximum over all
windows of that length. Response times follow R. I. Davis, A. Burns, R. J. Bril, J. J. Lukkien, "Controller Area Network
(CAN) schedulability analysis: Refuted, revisited and revised", Real-Time Systems 35 (2007), with frames that cannot be
preempted: the worst case is searched among all events of the busy period, not only its first. Extended by events of
several frames, between which events of higher priority are sent, and by the interference of hard slots and errors. They
count from the instant at which an event is queued; Davis et al. add the jitter. It is assumed that of a node's frames
the one with the smallest identifier competes for the bus.

The middleware's own frames (clock synchronisation, claims and reports) are messages of fixed priority, between soft
events and those without a deadline. Configuration and binding are not counted: they are used when nodes join, which has
no bound.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import count

import msgspec

from genus.can._plan.calendar import Calendar
from genus.can._plan.system import System
from genus.can._wire.frame import BROKER_NODE, CLASSIC_BYTES, Identifier, Priority, ProtocolEtag


class Message(msgspec.Struct, frozen=True, dict=True):
    """A stream of events; a smaller `rank` is a higher priority, `frames` are the durations of an event's frames."""

    name: str
    rank: float
    frames: tuple[int, ...]
    period: int
    """The least time between two events, apart from jitter."""
    jitter: int = 0
    deadline: int = 0

    @cached_property
    def length(self) -> int:
        return sum(self.frames)

    @cached_property
    def blocking(self) -> int:
        """How long it can delay a message of higher priority."""
        return max(self.frames)

    @cached_property
    def last(self) -> int:
        """The duration of its last frame, after whose start nothing delays it."""
        return self.frames[-1]

    @cached_property
    def latest(self) -> int:
        """The latest start of its last frame, from queueing."""
        return self.deadline - self.last

    def work(self, window: int) -> int:
        """Return the most bus time of the events that are queued in a window, both ends included."""
        return ((window + self.jitter) // self.period + 1) * self.length


class HardInterference:
    """I(t): the most bus time of the hard frames whose slots start in a window of length t.

    Every frame is assumed to fail as often as its slot allows. Slots may start up to `shift_ns` earlier or later.
    Foreign `streams` that win over all soft events are counted too.

    >>> hard = HardInterference([(0, 3), (10, 5)], cycle_ns=100)
    >>> [hard.within(window) for window in (9, 10, 90, 200)]
    [5, 8, 8, 21]
    """

    def __init__(
        self, starts: Sequence[tuple[int, int]], cycle_ns: int, shift_ns: int = 0, streams: Sequence[Message] = ()
    ) -> None:
        self._starts = sorted(starts)
        self._streams = streams
        self._cycle_ns = cycle_ns
        self._slack_ns = 2 * shift_ns
        self._known_ns = -1
        self._lengths: list[int] = []
        self._sums: list[int] = []

    @classmethod
    def of(cls, calendar: Calendar, shift_ns: int, streams: Sequence[Message] = ()) -> "HardInterference":
        """Return the interference of a calendar, if clocks differ from the time of the bus by up to `shift_ns`."""
        starts = [(start, slot.busy_ns) for start, slot in calendar.starts_in_cycle()]
        return cls(starts, calendar.cycle_ns, shift_ns, streams)

    @property
    def rate(self) -> float:
        slots = sum(cost for _, cost in self._starts) / self._cycle_ns if self._starts else 0.0
        return slots + sum(stream.length / stream.period for stream in self._streams)

    def within(self, window_ns: int) -> int:
        """Return the most bus time in any window of a length, both ends included."""
        others_ns = sum(stream.work(window_ns) for stream in self._streams) if self._streams else 0
        if not self._starts:
            return others_ns
        window_ns += self._slack_ns
        if window_ns > self._known_ns:
            self._extend(2 * window_ns)
        return others_ns + self._sums[bisect_right(self._lengths, window_ns) - 1]

    def _extend(self, horizon_ns: int) -> None:
        """Compute all steps up to a length; a window with the most bus time starts with a slot."""
        steps: dict[int, int] = {}
        for position, (first, _) in enumerate(self._starts):
            taken = 0
            for start, cost in self._from(position, first + horizon_ns):
                taken += cost
                if taken > steps.get(start - first, 0):
                    steps[start - first] = taken
        self._lengths, self._sums = [], []
        for length in sorted(steps):
            if not self._sums or steps[length] > self._sums[-1]:
                self._lengths.append(length)
                self._sums.append(steps[length])
        self._known_ns = horizon_ns

    def _from(self, position: int, until_ns: int) -> Iterator[tuple[int, int]]:
        """Starts and bus times from one slot on, cycle after cycle."""
        for number in count(position):
            rounds, place = divmod(number, len(self._starts))
            start, cost = self._starts[place]
            if start + rounds * self._cycle_ns > until_ns:
                return
            yield start + rounds * self._cycle_ns, cost


class ErrorInterference(msgspec.Struct, frozen=True):
    """F(t): errors at least `interval_ns` apart; each takes its signalling and a frame that is repeated."""

    interval_ns: int | None
    error_ns: int

    def within(self, window_ns: int, longest_frame_ns: int) -> int:
        """Return the most bus time in any window of a length.

        >>> ErrorInterference(1000, 31).within(999, 160), ErrorInterference(1000, 31).within(1000, 160)
        (191, 382)
        """
        if self.interval_ns is None:
            return 0
        return (1 + window_ns // self.interval_ns) * (self.error_ns + longest_frame_ns)

    def rate(self, longest_frame_ns: int) -> float:
        return (self.error_ns + longest_frame_ns) / self.interval_ns if self.interval_ns else 0.0


OVERLOAD = 1 - 1e-9
"""The share of the bus from which on a queue may never become empty."""

MAX_BUSY_NS = 10_000_000_000
"""A busy period of this length counts as unbounded."""


NO_HARD = HardInterference((), 0)
NO_ERRORS = ErrorInterference(None, 0)


def response_time(
    message: Message,
    above: Sequence[Message],
    below: Sequence[Message],
    hard: HardInterference = NO_HARD,
    errors: ErrorInterference = NO_ERRORS,
) -> int | None:
    """Return the longest time from an event's queueing to the end of its last frame; None if it has no bound."""
    blocked = max((other.blocking for other in below), default=0)
    competition = _Competition(message, above, blocked, hard, errors)
    busy = competition.busy_period()
    if busy is None:
        return None
    worst, waited = 0, 0
    for earlier in range((busy - 1 + message.jitter) // message.period + 1):
        waited = competition.start_of_last_frame(earlier, waited)
        queued = max(0, earlier * message.period - message.jitter)
        worst = max(worst, waited + message.last - queued)
    return worst


class _Competition(msgspec.Struct, frozen=True, dict=True):
    """A message and everything that delays it, from the critical instant, when all of it arrives at once."""

    message: Message
    above: Sequence[Message]
    blocked: int
    hard: HardInterference
    errors: ErrorInterference

    @cached_property
    def repeated(self) -> int:
        """The longest frame that is repeated after an error."""
        return max(each.blocking for each in (self.message, *self.above))

    def interference(self, window: int) -> int:
        """Return the bus time of other traffic while an event waits for `window`."""
        more_urgent = sum(other.work(window) for other in self.above)
        errors = self.errors.within(window + self.message.last, self.repeated)
        return self.blocked + more_urgent + self.hard.within(window) + errors

    def busy_period(self) -> int | None:
        """Return how long the message and those of higher priority keep the bus busy; None if without bound."""
        rate = sum(each.length / each.period for each in (self.message, *self.above))
        if rate + self.hard.rate + self.errors.rate(self.repeated) >= OVERLOAD:
            return None
        busy = self.blocked + self.message.length
        while busy < (longer := self.interference(busy - 1) + self.message.work(busy - 1)):
            busy = longer
            if busy > MAX_BUSY_NS:
                return None
        return busy

    def start_of_last_frame(self, earlier: int, at_least: int) -> int:
        """Return the start of the last frame of an event that was queued after `earlier` events of its own."""
        own = (earlier + 1) * self.message.length - self.message.last
        waited = max(at_least, self.blocked + own)
        while waited < (longer := own + self.interference(waited)):
            waited = longer
        return waited


def foreign_messages(system: System) -> list[Message]:
    return [
        Message(frame.name, frame.rank, (frame.time_ns(system.bus),), frame.period_ns, frame.jitter_ns)
        for frame in system.foreign
        if frame.period_ns is not None
    ]


HEARTBEAT_NS = 800_000_000
"""The least time between two claims or heartbeats of the broker: a second, less 200 ms of random jitter."""

REPORT_NS = 1_000_000_000
"""The time between two reports of a channel."""


def middleware_messages(system: System) -> list[Message]:
    if not system.bus.middleware:
        return []
    length = system.bus.timing.worst_case_ns(CLASSIC_BYTES)
    return [Message(name, rank, (length,), period) for name, rank, period in _streams(system)]


def _streams(system: System) -> Iterator[tuple[str, int, int]]:
    """Name, rank and period of each stream; streams of no certain node are counted as the broker's."""
    yield "sync", _rank(BROKER_NODE, ProtocolEtag.SYNC), system.bus.sync_period_ns
    yield "follow-up", _rank(BROKER_NODE, ProtocolEtag.FOLLOW_UP), system.bus.sync_period_ns
    yield "broker", _rank(BROKER_NODE, ProtocolEtag.BROKER), HEARTBEAT_NS
    for name, number in system.nodes.items():
        yield f"claim of {name}", _rank(number, ProtocolEtag.CLAIM), HEARTBEAT_NS
    for channel in system.channels:
        yield f"report of {channel.name}", _rank(channel.number, ProtocolEtag.REPORT), REPORT_NS


def _rank(number: int, etag: ProtocolEtag) -> int:
    return Identifier(Priority.SYSTEM, number, etag).pack()
