"""Streams of events, and what interferes with them: the bus time that hard slots and errors can take in a window.

Both are functions of the window's length, and give the maximum over all windows of that length.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import count

import msgspec

from genus.can._plan.calendar import Calendar


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
        """The bus time of an event."""
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
        """The share of the bus in the long run."""
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
        """Return the share of the bus in the long run."""
        return (self.error_ns + longest_frame_ns) / self.interval_ns if self.interval_ns else 0.0


OVERLOAD = 1 - 1e-9
"""The share of the bus from which on a queue may never become empty."""

MAX_BUSY_NS = 10_000_000_000
"""A busy period of this length counts as unbounded."""
