"""Events of the sources as they come: taken only while a page asks for them, and never more than fit a ring.

A tap is a bounded ring that the source's thread appends to; the loop of the server empties it each turn. What does not
fit is counted as skipped.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from sys import getsizeof
from typing import NamedTuple, TypeAlias

from msgspec.structs import astuple

from genus.model import Event, name_of
from genus.studio._source import EventSource, Failures, LeapingSource, Source

RING = 4096
"""Events that a source may have between two turns."""
KEPT = 5000
"""Events that are kept of a source, for pages that are opened later."""
KEPT_BYTES = 32_000_000
"""Fewer events are kept if they are large."""
LINGER_S = 5.0
"""How long a tap stays open after the last page has left: a page that changes its question opens another stream."""
MAX_TYPES = 10_000


class Seen(NamedTuple):
    """An event: its number among all that Studio saw, when it came, and who published it, if that is known."""

    number: int
    source: str
    at_ms: float
    event: Event
    publisher: str | None
    segment: int = 0
    """Between two events of a source with the same one, nothing was lost, skipped or left out."""
    leaps: int = 0
    """How often the source has left out a time."""


Take: TypeAlias = Callable[[Sequence[Seen], int], None]
"""Is called with the events of a turn, the oldest first, and how many were skipped."""


class Tap:
    """State: the events of one source while somebody asks for them."""

    def __init__(self, source: EventSource, ids: "count[int]", clock: Callable[[], float]) -> None:
        self.source = source
        self.takers: list[Take] = []
        self.kept: deque[Seen] = deque()
        self._sizes: deque[int] = deque()
        """Of those that are kept, in bytes."""
        self._size = 0
        self._ids, self._clock = ids, clock
        self._ring: deque[tuple[int, int, Event, str | None, int]] = deque(maxlen=RING)
        self._segment, self._leaps = 0, 0
        self._numbers = count(1)
        self._taken = 0
        self._end: Callable[[], None] | None = None
        self._idle_since: float | None = None

    def open(self) -> None:
        """Take the events from now on."""
        self._idle_since = None
        if self._end is None:
            self._forget()
            self._segment += 1
            ring, numbers, source = self._ring, self._numbers, self.source
            if isinstance(source, LeapingSource):
                leaping = source
                self._end = source.tap(
                    lambda at, event, who: ring.append((next(numbers), at, event, who, leaping.leaps))
                )
            else:
                self._end = source.tap(lambda at, event, who: ring.append((next(numbers), at, event, who, 0)))

    @property
    def is_open(self) -> bool:
        """Whether it takes events."""
        return self._end is not None

    def _forget(self) -> None:
        """Keep nothing from before a time in which nobody listened: what is kept has no gaps."""
        self.kept.clear()
        self._sizes.clear()
        self._size = 0

    def close(self) -> None:
        """Take no more; what was taken is kept until it is opened again."""
        end, self._end = self._end, None
        if end is not None:
            end()

    def turn(self, is_wanted: bool) -> list[Seen]:
        """Return the events since the last turn; closes the tap if nobody has wanted it for a while."""
        if self._end is None:
            return []
        found = self._drained()
        if is_wanted or self.takers:
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = self._clock()
        elif self._clock() - self._idle_since > LINGER_S:
            self.close()
        return found

    def _drained(self) -> list[Seen]:
        ring, name = self._ring, self.source.name
        items = [ring.popleft() for _ in range(len(ring))]
        if not items:
            return []
        newest = max([item[0] for item in items])  # threads may append in another order than they number
        skipped, self._taken = newest - self._taken - len(items), newest
        self._segment += skipped > 0
        found = [
            Seen(next(self._ids), name, at / 1e6, event, who, self._segment_of(leaps), leaps)
            for _, at, event, who, leaps in items
        ]
        self._keep(found)
        for take in self.takers:
            take(found, skipped)
        return found

    def _segment_of(self, leaps: int) -> int:
        if leaps != self._leaps:
            self._leaps = leaps
            self._segment += 1
        return self._segment

    def _keep(self, found: Sequence[Seen]) -> None:
        kept, sizes = self.kept, self._sizes
        for seen in found[-KEPT:]:
            kept.append(seen)
            sizes.append(size := _size_of(seen.event))
            self._size += size
        while len(kept) > KEPT or (self._size > KEPT_BYTES and kept):
            kept.popleft()
            self._size -= sizes.popleft()


def _size_of(event: Event) -> int:
    """About how many bytes an event takes beyond the usual: those of its texts, bytes and lists."""
    return sum([getsizeof(value) for value in astuple(event) if value.__class__ in _LARGE])


_LARGE = frozenset({str, bytes, bytearray, list, tuple, dict, set, frozenset})


class Taps:
    """State: the taps of all sources, and the last event of each type that was seen."""

    def __init__(self, sources: Iterable[Source], clock: Callable[[], float] = time.monotonic) -> None:
        self.last: dict[tuple[str, str], Seen] = {}
        """By source and type."""
        self._failures = Failures()
        ids = count(1)
        self._taps = {source.name: Tap(source, ids, clock) for source in sources if isinstance(source, EventSource)}

    def names(self) -> list[str]:
        """Return the sources that have events."""
        return list(self._taps)

    def are_open(self, names: Iterable[str]) -> bool:
        """Return whether the events of all these sources that have some are being taken."""
        return all(self._taps[name].is_open for name in names if name in self._taps)

    def follow(self, names: Iterable[str], take: Take) -> Callable[[], None]:
        """Call a function with the events of some sources, turn by turn; returns a function that ends it."""
        taps = [self._taps[name] for name in names if name in self._taps]
        for tap in taps:
            tap.takers.append(take)
            tap.open()

        def end() -> None:
            for tap in taps:
                tap.takers.remove(take)

        return end

    def kept(self, names: Iterable[str]) -> list[Seen]:
        """Return the events of some sources that are kept, the oldest first."""
        found = [seen for name in names if name in self._taps for seen in self._taps[name].kept]
        return sorted(found, key=lambda seen: seen.at_ms)

    def turn(self, *, wants_last: bool) -> None:
        """Hand on what came since the last turn; `wants_last` keeps the taps open for the last event of each type."""
        for tap in self._taps.values():
            if wants_last:
                self._failures.ask(tap.source, "events", tap.open, None)
            for seen in tap.turn(wants_last):
                self.last[seen.source, name_of(type(seen.event))] = seen
        if len(self.last) > MAX_TYPES:
            self.last.clear()

    def close(self) -> None:
        """Take no more events."""
        for tap in self._taps.values():
            tap.close()
