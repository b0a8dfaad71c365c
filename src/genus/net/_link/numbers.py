"""Numbers of packets: what is missing of a sender, and what of an origin was seen before. Time is an input.

Numbers count from 1 for each key, modulo 2^32. A gap in the numbers of a sender is a loss, unless the packets come
later: they may be on another way, or be sent again. So a gap is told as a loss only after it has settled.
"""

import threading
from itertools import islice

from genus.net._envelope import NUMBERS

WINDOW = 1024
"""How many numbers before the newest one are remembered of each origin and key."""
MOST_GAPS = 4096
"""How many gaps of one sender and key may still be filled; of more, the oldest is a loss at once."""

_MASK = NUMBERS - 1
_HALF = NUMBERS >> 1
_SEEN = (1 << WINDOW) - 1


class Gap:
    """State: numbers that are missing, from `first` on, and since when nothing of them has come."""

    __slots__ = ("count", "first", "since")

    def __init__(self, first: int, count: int, since: float) -> None:
        self.first, self.count, self.since = first, count, since


class SenderNumbers:
    """State: the numbers that arrived from one sender under one key, and the gaps between them.

    A gap that is being filled, as by packets that are sent again, is no loss yet.

    >>> numbers = SenderNumbers(1)
    >>> numbers.arrive(2, 1, 0.0), numbers.arrive(5, 1, 0.0), numbers.missing
    (0, 2, 2)
    >>> numbers.arrive(4, 1, 0.1), numbers.settle(0.5)
    (0, 1)
    """

    __slots__ = ("_gaps", "_lock", "_overflow", "found", "last", "turn")

    def __init__(self, last: int, turn: int = 0) -> None:
        self.last = last
        self.turn = turn
        """The subscriptions that there were when the first packet came; see `Patterns.turn`."""
        self.found = 0
        """Packets that came after they had been counted as lost, or twice."""
        self._gaps: list[Gap] = []
        self._overflow = 0
        self._lock = threading.Lock()
        """Of the gaps: they settle in another thread than packets arrive in."""

    @property
    def missing(self) -> int:
        """How many packets are missing that may still come."""
        return sum(gap.count for gap in self._gaps)

    @property
    def has_missing(self) -> bool:
        """Whether anything is missing."""
        return bool(self._gaps or self._overflow)

    def arrive(self, number: int, count: int, now: float) -> int:
        """Packets with numbers from `number` on arrived; returns how many before them are newly missing."""
        ahead = (number - self.last - 1) & _MASK
        if ahead >= _HALF:
            for each in range(number, number + count):
                self._arrive_late(each & _MASK, now)
            return 0
        if ahead:
            self.miss_until((number - 1) & _MASK, now)
        self.last = (number + count - 1) & _MASK
        return ahead

    def miss_until(self, number: int, now: float) -> int:
        """The sender has sent up to this number; returns how many are newly missing."""
        behind = (number - self.last) & _MASK
        if behind == 0 or behind >= _HALF:
            return 0
        with self._lock:
            self._gaps.append(Gap((self.last + 1) & _MASK, behind, now))
            if len(self._gaps) > MOST_GAPS:
                self._overflow += self._gaps.pop(0).count
        self.last = number
        return behind

    def _arrive_late(self, number: int, now: float) -> None:
        with self._lock:
            self._fill(number, now)

    def _fill(self, number: int, now: float) -> None:
        for place, gap in enumerate(self._gaps):
            offset = (number - gap.first) & _MASK
            if offset < gap.count:
                rest = gap.count - offset - 1
                before = [Gap(gap.first, offset, now)] if offset else []
                after = [Gap((number + 1) & _MASK, rest, now)] if rest else []
                self._gaps[place : place + 1] = [*before, *after]
                return
        self.found += 1

    def settle(self, before: float) -> int:
        """How many packets are lost: those that have been missing since before a time. Each is counted once."""
        with self._lock:
            lost = self._overflow + sum(gap.count for gap in self._gaps if gap.since < before)
            self._overflow = 0
            self._gaps = [gap for gap in self._gaps if gap.since >= before]
        return lost


class OriginNumbers:
    """State: the numbers of one origin and key that were seen: the newest, and which before it were not.

    >>> seen = OriginNumbers(1)
    >>> [seen.is_new(number) for number in (1, 3, 1, 2, 3, 4)]
    [False, True, False, True, False, True]
    """

    __slots__ = ("_early", "_first", "_unseen", "newest")

    def __init__(self, first: int) -> None:
        self.newest = first
        self._first: int | None = first
        """Numbers before this one were not seen, but for those in `_early`; None if it is out of the window."""
        self._early: set[int] = set()
        self._unseen: dict[int, None] = {}

    def is_newer(self, number: int) -> bool:
        """Whether a number is newer than all that were seen before."""
        return 0 < (number - self.newest) & _MASK < _HALF

    def is_new(self, number: int) -> bool:
        """Whether a number was not seen before; one that is too old to be remembered was."""
        ahead = (number - self.newest) & _MASK
        if ahead == 1:
            self.newest = number
            return True
        if 0 < ahead < _HALF:
            self._skip(number, min(ahead, WINDOW))
            return True
        return -ahead & _MASK < WINDOW and self._is_unseen(number)

    def was_seen(self, number: int) -> bool:
        """Whether a number was seen before, or is too old to be remembered; nothing is noted."""
        if self.is_newer(number) or number in self._unseen:
            return False
        if self._first is None or (number - self._first) & _MASK < _HALF:
            return True
        return (self.newest - self._first) & _MASK >= WINDOW or number in self._early

    def are_next(self, number: int, count: int) -> bool:
        """Whether so many numbers from `number` on follow the newest; they are seen then."""
        if number != self.newest + 1 or number + count > _MASK:
            return False
        self.newest = number + count - 1
        return True

    def _skip(self, number: int, ahead: int) -> None:
        self._unseen |= dict.fromkeys((number - back) & _MASK for back in range(ahead - 1, 0, -1))
        excess = len(self._unseen) - WINDOW
        for old in list(islice(self._unseen, excess)) if excess > 0 else ():
            del self._unseen[old]
        self.newest = number

    def _is_unseen(self, number: int) -> bool:
        if number in self._unseen:
            del self._unseen[number]
            return True
        if self._first is None or (number - self._first) & _MASK < _HALF:
            return False
        if (self.newest - self._first) & _MASK >= WINDOW:
            self._first, self._early = None, set()
            return False
        is_new = number not in self._early
        self._early.add(number)
        return is_new
