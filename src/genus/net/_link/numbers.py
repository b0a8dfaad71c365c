"""Numbers of packets and events: what was seen before, and what is missing.

Numbers of packets and events: what was seen before, and what is missing. Time is an input.

Numbers count from 1 for each key, modulo 2^32. Those of one participant that were received are kept as runs of
consecutive numbers: a number is new if it is in none of them, however far it is from the others. So a number that
somebody invents moves nothing, and costs the numbers around it nothing.

What is missing is found by what the sender says, not by jumps of its numbers: a beat tells its newest number, and holds
if the next beat begins with it. The numbers up to there that are in no run are a gap, which is a loss unless they come
later (on another way, or sent again) before it has settled.

Which events were seen, by the numbers that their origins gave them, for those who look for copies only.
"""

import threading
from bisect import bisect_right
from collections import OrderedDict, deque
from enum import Enum
from functools import lru_cache
from operator import attrgetter
from typing import Final

import msgspec

from genus.model import name_of, tagged_attributes
from genus.net._envelope import NUMBERS, Arrival

MAX_RUNS: Final = 2048
"""Runs of one participant and key that are remembered; of more, the half that was touched the longest ago goes."""
MAX_GAPS: Final = 4096
"""Gaps of one sender and key that may still be filled; of more, the oldest is a loss at once."""
MAX_PASSED: Final = 64
"""How often runs are forgotten, of one participant and key, before a beat accounts for them."""
MAX_CLAIMS: Final = 64
"""Beats of one sender and key that no other has confirmed yet."""
BEAT_LEAST_S: Final = 0.2
"""What a sender had not reached at a beat so long after it came was invented."""
MAX_MARKS: Final = 256
"""Numbers at the end of a run of which the content is known, so that another content is recognised."""
NEARBY: Final = 1024
"""A last value is not given if one with a number that is larger by at most this was."""

_MASK: Final = NUMBERS - 1
_HALF: Final = NUMBERS >> 1


class Verdict(Enum):
    """What is known of a number that arrives."""

    NEW = "new"
    SEEN = "seen"
    OLD = "old"
    """Older than what is remembered: it was seen, or is lost."""
    CONFLICT = "conflict"
    """It was seen with another content: one of the two is not from the sender."""


class Gap(msgspec.Struct):
    """State: numbers that are missing, from `first` on, and since when nothing of them has come."""

    first: int
    count: int
    since: float


class Claim(msgspec.Struct, frozen=True):
    """What a beat said: the newest number at the beat before, the newest, and when it came."""

    before: int
    newest: int
    time: float
    touches: int


class Passed(msgspec.Struct):
    """State: runs that were forgotten: their last number, how many are missing between them, and the touches then."""

    last: int
    missing: int
    touches: int


class Run:
    """State: consecutive numbers that were received, and marks of the content of the last ones."""

    __slots__ = ("first", "last", "marks", "touched")

    def __init__(self, number: int, touched: int) -> None:
        self.first = self.last = number
        self.touched = touched
        self.marks: deque[int | None] = deque(maxlen=MAX_MARKS)

    def mark_of(self, number: int) -> int | None:
        """Return the mark of a number in the run; None if it is not known."""
        back = self.last - number
        return self.marks[-1 - back] if 0 <= back < len(self.marks) else None


class Numbers:
    """State: the numbers of one participant under one key that were received, and the gaps between them.

    A packet that follows the last one is noted by its reader: `last` is set to its number, if that is below `limit`,
    and `mark` called with the hash of its content. All others are noted by `arrive`.

    >>> numbers = Numbers(1)
    >>> [numbers.arrive(number).value for number in (2, 2**30, 3, 5, 3, 4)]
    ['new', 'new', 'new', 'new', 'seen', 'new']
    >>> numbers.claim(0, 6, 0.0), numbers.claim(6, 6, 0.5), numbers.settle(1.0)
    (None, None, 1)
    """

    __slots__ = ("_accounted", "_claims", "_current", "_first", "_floor", "_gaps", "_lock", "_overflow", "_passed",
                 "_runs", "_touches", "last", "limit", "mark", "turn")  # fmt: skip

    def __init__(self, first: int, turn: int = 0, mark: int | None = None, *, is_accounted: bool = False) -> None:
        """Begin with a number; `is_accounted` if it is known that all after it are to come."""
        run = Run(first, 0)
        run.marks.append(mark)
        self._runs = [run]
        self.last = first
        self._floor = first - NUMBERS
        """Numbers up to this one are not remembered. Numbers are unwrapped here: they go on beyond 2^32."""
        self._passed: deque[Passed] = deque()
        """Runs that were forgotten before a beat has accounted for them."""
        self._touches = 0
        self._gaps: list[Gap] = []
        self._overflow = 0
        self._lock = threading.Lock()
        """Of the gaps: they settle in another thread than packets arrive in."""
        self._point(run)
        self.turn = turn
        """The subscriptions that there were when counting began; see `Patterns.turn`."""
        self._first: int | None = first
        self._accounted = first if is_accounted else None
        """All up to this number was received, is in a gap, or is lost; None if no beat has shown where that begins."""
        self._claims: dict[int, Claim] = {}
        """What beats said and no other has confirmed yet, by the newest number; those that come in between are junk."""

    def account_from(self, number: int) -> None:
        """Count losses after a number, if it is not known yet from where on."""
        if self._accounted is None:
            self._accounted = self._position(number)

    def begin_again(self, turn: int) -> None:
        """Count losses from the next number on; what was received stays known."""
        self.turn, self._accounted = turn, None
        self._passed.clear()
        self._claims.clear()
        self._begin_with_next()
        with self._lock:
            self._gaps, self._overflow = [], 0

    def _begin_with_next(self) -> None:
        self._first, self.limit = None, 0  # so that the next number comes to `arrive`

    # -- what was seen -------------------------------------------------------------------------------------------------

    def arrive(self, number: int, mark: int | None = None, now: float = 0.0, *, compares: bool = True) -> Verdict:
        """Note a number, with the hash of its content, which is compared if it `compares`; returns what was known."""
        at = self._position(number)
        filled = bool(self._gaps) and self._fill(at, now)
        if at <= self._floor:
            return Verdict.NEW if filled else Verdict.OLD
        place = bisect_right(self._runs, at, key=_first_of)
        below = self._runs[place - 1] if place else None
        if below is not None and at <= below.last:
            known = below.mark_of(at) if compares and mark is not None else None
            return Verdict.SEEN if known is None or known == mark else Verdict.CONFLICT
        self._touches += 1
        if below is not None and at == below.last + 1:
            below.last = at
            below.marks.append(mark)
            self._join_above(place)
            below.touched = self._touches
            self._point(below)
        else:
            self._insert(place, at, mark)
        if self._passed and at <= self._passed[-1].last:
            self._find_passed(at)
        if self._first is None:
            self._first = at
        return Verdict.NEW

    def arrive_all(self, number: int, count: int, mark: int) -> bool:
        """Note so many numbers if they follow the last one; returns whether they do."""
        if number != self.last + 1 or number + count > self.limit:
            return False
        self._current.marks.extend(range(mark, mark + count))
        self.last = number + count - 1
        return True

    def mark_of(self, number: int) -> int | None:
        """Return the hash of the content of a number; None if it is not known."""
        at = self._position(number)
        place = bisect_right(self._runs, at, key=_first_of)
        return self._runs[place - 1].mark_of(at) if place else None

    def has(self, number: int) -> bool:
        """Return whether a number was received; nothing is noted."""
        at = self._position(number)
        place = bisect_right(self._runs, at, key=_first_of)
        return at <= self._floor or bool(place and at <= self._runs[place - 1].last)

    def has_newer(self, number: int) -> bool:
        """Return whether a number was received that is larger by at most `NEARBY`."""
        at = self._position(number)
        place = bisect_right(self._runs, at, key=_first_of)
        is_above = place < len(self._runs) and self._runs[place].first - at <= NEARBY
        return is_above or bool(place and at < self._runs[place - 1].last)

    def _position(self, number: int) -> int:
        """Return the number unwrapped, near to those that came last."""
        current = self._current
        ahead = (self.last - current.last) & _MASK
        if ahead:
            current.last += ahead
            self._touches += 1
            current.touched = self._touches
        offset = (number - current.last) & _MASK
        return current.last + (offset if offset < _HALF else offset - NUMBERS)

    def _point(self, run: Run) -> None:
        """Let the reader extend a run; one with a single number is not, as anybody may have invented it."""
        self._current = run
        self.last = run.last & _MASK
        self.mark = run.marks.append
        place = bisect_right(self._runs, run.last, key=_first_of)
        above = self._runs[place].first & _MASK if place < len(self._runs) else NUMBERS
        self.limit = 0 if self._gaps else above
        """The number, on the wire, at which the reader must not go on: there is another run, or a gap to fill."""

    def _join_above(self, place: int) -> None:
        run = self._runs[place - 1]
        if place < len(self._runs) and self._runs[place].first == run.last + 1:
            above = self._runs.pop(place)
            run.last = above.last
            if len(above.marks) < above.last - above.first + 1:
                run.marks.clear()
            run.marks.extend(above.marks)
            if self._current is above:
                self._current = run

    def _insert(self, place: int, at: int, mark: int | None) -> None:
        if place < len(self._runs) and at + 1 == self._runs[place].first:
            run = self._runs[place]
            if len(run.marks) == run.last - run.first + 1 < MAX_MARKS:
                run.marks.appendleft(mark)
            run.first, run.touched = at, self._touches
        else:
            run = Run(at, self._touches)
            run.marks.append(mark)
            self._runs.insert(place, run)
            if len(self._runs) > MAX_RUNS:
                self._forget_half()
        self._point(self._current)

    def _forget_half(self) -> None:
        """Forget the runs that were touched the longest ago; what is below the lowest of the others is old then.

        What is missing between those is counted, for the beat that accounts for it. Beyond what beats have accounted
        for, anybody may have invented the runs: numbers there are old when a beat says that the sender came so far.
        """
        limit = sorted(run.touched for run in self._runs)[len(self._runs) // 2]
        start = self._first if self._accounted is None else self._accounted
        after = max(self._floor, self._runs[-1].last if start is None else start)
        made = Passed(max(after, self._passed[-1].last) if self._passed else after, 0, self._touches)
        for run in self._runs:
            if run.touched >= limit:
                break
            made.missing += max(0, run.first - made.last - 1)
            made.last = max(made.last, run.last)
        if self._accounted is None:
            self._floor = made.last
        if len(self._passed) == MAX_PASSED:
            made.missing += self._passed.pop().missing
        self._passed.append(made)
        self._runs = [run for run in self._runs if run.touched >= limit]
        if self._current.touched < limit:
            self._current = max(self._runs, key=_touched)

    def _find_passed(self, at: int) -> None:
        """Miss a number less, which came after the runs around it were forgotten."""
        place = bisect_right(self._passed, at - 1, key=attrgetter("last"))
        self._passed[place].missing -= self._passed[place].missing > 0

    # -- what is missing -----------------------------------------------------------------------------------------------

    @property
    def is_accounted(self) -> bool:
        return self._accounted is not None

    @property
    def has_missing(self) -> bool:
        return bool(self._gaps or self._overflow)

    def claim(self, before: int, newest: int, now: float) -> None:
        """The sender says that it had sent up to `before` at its last beat, and up to `newest` now.

        A claim holds if the next one begins with it: a beat that somebody invents moves nothing.
        """
        made = Claim(self._position(before), self._position(newest), now, self._touches)
        if self._accounted is not None and made.newest < self._accounted:
            return  # an old one
        confirmed = self._claims.get(made.before)
        if confirmed is not None:
            self._miss(confirmed)
            self._claims = {each: claim for each, claim in self._claims.items() if each > confirmed.newest}
            if made.time - confirmed.time > BEAT_LEAST_S:
                self._forget_invented(max(made.newest, self._accounted or made.newest), confirmed.touches)
        elif len(self._claims) >= MAX_CLAIMS:
            del self._claims[next(iter(self._claims))]
        self._claims.setdefault(made.newest, made)

    def _forget_invented(self, newest: int, touches: int) -> None:
        """Forget runs of numbers that the sender has not reached, a beat later."""
        while self._passed and self._passed[-1].last > newest and self._passed[-1].touches <= touches:
            self._passed.pop()
            self._floor = min(self._floor, newest)
        real = [run for run in self._runs if run.first <= newest or run.touched > touches]
        if not real or len(real) == len(self._runs):
            return
        is_first_real = self._first is None or any(run.first <= self._first <= run.last for run in real)
        self._runs = real
        self._point(self._current if self._current in real else max(real, key=_touched))
        if not is_first_real:
            self._begin_with_next()

    def _miss(self, claim: Claim) -> None:
        if self._accounted is None:
            if self._first is None or self._first > claim.newest:
                return  # what came first was sent after that, or was invented
            self._accounted = self._first
        while self._passed and self._passed[0].last <= claim.newest:
            passed = self._passed.popleft()
            with self._lock:
                self._overflow += passed.missing
            self._floor = max(self._floor, passed.last)
        after = self._accounted = max(self._accounted, min(self._floor, claim.newest))
        if self._passed:
            return  # the rest is for a later beat
        for run in self._runs[max(0, bisect_right(self._runs, after, key=_first_of) - 1) :]:
            self._miss_between(after, min(run.first, claim.newest + 1), claim.time)
            after = max(after, run.last)
        self._miss_between(after, claim.newest + 1, claim.time)
        self._accounted = max(self._accounted, claim.newest)

    def _miss_between(self, after: int, before: int, now: float) -> None:
        if before - after > 1:
            with self._lock:
                self._gaps.append(Gap(after + 1, before - after - 1, now))
                self.limit = 0  # a beat may come before the packets that it counts: these go to `arrive`
                if len(self._gaps) > MAX_GAPS:
                    self._overflow += self._gaps.pop(0).count

    def _fill(self, at: int, now: float) -> bool:
        with self._lock:
            place = bisect_right(self._gaps, at, key=attrgetter("first")) - 1
            gap = self._gaps[place] if place >= 0 else None
            if gap is None or at >= gap.first + gap.count:
                return False
            offset = at - gap.first
            rest = gap.count - offset - 1
            before = [Gap(gap.first, offset, now)] if offset else []
            after = [Gap(at + 1, rest, now)] if rest else []
            self._gaps[place : place + 1] = [*before, *after]
            return True

    def settle(self, before: float) -> int:
        """Return how many packets are lost: those that have been missing since before a time. Each is counted once."""
        with self._lock:
            lost = self._overflow + sum(gap.count for gap in self._gaps if gap.since < before)
            self._overflow = 0
            self._gaps = [gap for gap in self._gaps if gap.since >= before]
        return lost


def _first_of(run: Run) -> int:
    return run.first


def _touched(run: Run) -> int:
    return run.touched


MAX_WINDOWS = 65_536
"""Origins and lines that are remembered; of more, those that were silent the longest are forgotten."""


@lru_cache(4096)
def _naming(cls: type) -> tuple[str, tuple[str, ...]]:
    return name_of(cls), tuple(tagged_attributes(cls))


def line_of(arrival: Arrival) -> str:
    """What the numbers of an origin count: the events of a type, of one presence of its tagged attributes, and kept
    under one value; as the keys of networks do."""
    event = arrival.event
    name, tagged = _naming(type(event))
    if tagged:
        name = f"{name}/{''.join('0' if getattr(event, each) is None else '1' for each in tagged)}"
    return name if arrival.kept is None else f"{name}={arrival.kept}"


class OriginNumbers(Numbers):
    """State: the numbers of the events of one origin that were seen.

    >>> seen = OriginNumbers(1)
    >>> [seen.is_new(number) for number in (1, 3, 1, 2, 3, 2**30, 4)]
    [False, True, False, True, False, True, True]
    """

    __slots__ = ("newest",)

    def __init__(self, first: int) -> None:
        super().__init__(first)
        self.newest = first
        """The newest number; one that is far from all others is not taken for it."""

    def is_new(self, number: int) -> bool:
        """Return whether a number was not seen before; it is from now on."""
        is_new = self.arrive(number) is Verdict.NEW
        if is_new and 0 < (number - self.newest) % NUMBERS <= NEARBY:
            self.newest = number
        return is_new


class SeenEvents:
    """State: the events that were seen, per origin and line."""

    def __init__(self) -> None:
        self._windows: OrderedDict[tuple[bytes, str], OriginNumbers] = OrderedDict()

    def add(self, arrival: Arrival, line: str) -> bool:
        """Note an event; returns whether it was not seen before."""
        key = (arrival.origin.uid, line)
        numbers = self._windows.get(key)
        if numbers is not None:
            self._windows.move_to_end(key)
            return numbers.is_new(arrival.origin.number)
        self._windows[key] = OriginNumbers(arrival.origin.number)
        if len(self._windows) > MAX_WINDOWS:
            self._windows.popitem(last=False)
        return True

    def is_newest(self, arrival: Arrival, line: str) -> bool:
        """Return whether nothing newer of the origin and line than this event was seen."""
        numbers = self._windows.get((arrival.origin.uid, line))
        return numbers is None or numbers.newest == arrival.origin.number
