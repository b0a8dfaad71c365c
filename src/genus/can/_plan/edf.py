"""Worst-case response times of soft events: earliest deadline first, without preemption, by quantised priorities.

A frame competes with P = floor((deadline - now - rest) / level), `rest` being the bus time its event still needs: the
event that must start first goes first, up to a level. The analysis follows George, Rivierre and Spuri (1996), who look
at every instant a at which the event in question can be queued within a busy window, with four additions.

* Quantisation. The winner of an arbitration must start less than q = level + 2 eps after the most urgent one waiting.
  So an event X is passed by events up to q less urgent; and before X is there, these may be passed by events up to 2 q
  less urgent, and so on. Let S_k be the events that must start less than k q after X must, and t_k the last instant
  before X is sent at which none of S_k waits. Take the first k with t_k = t_(k+1): from then on only events of S_(k+1)
  are sent, all queued since, and one frame that was on the wire. Each step from t_m to an earlier t_(m+1) needs an
  event of its own that must start between m q and (m + 1) q after X; so k is at most as large as there can be such.
* Levels are few: what must start more than 249 levels later has the last one. An event that far ahead may pass others,
  as if it had to start 249 levels after it was queued.
* An event that is queued while a frame is on the wire competes once with the priority it had when it was queued. That
  is like being queued up to one frame (`lag`) later, though its deadline is not.
* Hard slots and errors take the bus at any time.

The bound is safe, not tight. It assumes that a node lets that of its events compete that must start first.
"""

from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import pairwise

import msgspec

from genus.can._plan.interference import ENDLESS, LONGEST_BUSY_NS, BusErrors, HardTime

LEVELS = 249
"""How many levels of urgency can be told from the last one."""


class SoftMessage(msgspec.Struct, frozen=True):
    """A stream of events with a deadline; `length` is the bus time of an event, `last` that of its last frame."""

    name: str
    length: int
    period: int
    deadline: int
    jitter: int
    longest_frame: int
    last: int

    @property
    def latest(self) -> int:
        """When its last frame must start, after it was queued."""
        return self.deadline - self.last

    def urgency(self, horizon: int) -> int:
        """When its first frame must start, as far as priorities can tell."""
        return min(self.deadline - self.length, horizon)


class Medium(msgspec.Struct, frozen=True):
    """What soft events meet on the bus besides each other."""

    level: int
    tolerance: int
    """q: how much less urgent an event may be that goes first all the same."""
    lag: int
    """The longest frame on the bus."""
    lower: int
    """The longest frame of what has no deadline."""
    hard: HardTime
    errors: BusErrors


class SoftAnalysis:
    """The response times of a set of soft messages on a medium."""

    def __init__(self, messages: Sequence[SoftMessage], medium: Medium) -> None:
        self.messages = messages
        self.medium = medium
        self._urgency = [message.urgency(LEVELS * medium.level) for message in messages]
        self._longest = max((message.longest_frame for message in messages), default=0)
        self._busy = self._busy_period()

    def response_times(self) -> dict[str, int | None]:
        """The bound for every message; None where there is none."""
        return {message.name: self.response_time(place) for place, message in enumerate(self.messages)}

    def response_time(self, place: int, enough: int | None = None) -> int | None:
        """The longest that an event takes from being queued to the end of its last frame; None if there is no bound.

        The search ends as soon as it has found more than `enough`.
        """
        if self._busy is None:
            return None
        worst, last = 0, self.messages[place].last
        for (begin, chain), (end, _) in pairwise([*self._chains(place, self._busy), (self._busy + 1, 0)]):
            tolerance = (chain + 1) * self.medium.tolerance
            for queued in self._instants(place, tolerance, begin, end):
                if self._busy - queued <= worst:
                    break  # nothing later can be worse
                worst = max(worst, self._waits(place, tolerance, queued) - queued)
                if enough is not None and worst + last > enough:
                    return worst + last
        return worst + last

    def _busy_period(self) -> int | None:
        """The longest time for which soft and hard events can keep the bus busy; None if for ever."""
        medium = self.medium
        rate = sum(message.length / message.period for message in self.messages)
        if rate + medium.hard.rate + medium.errors.rate(self._longest) >= ENDLESS:
            return None
        busy, blocked = 0, max(medium.lower, self._longest)
        while True:
            work = sum(((busy + m.jitter + medium.lag) // m.period + 1) * m.length for m in self.messages)
            longer = blocked + work + medium.hard.within(busy) + medium.errors.within(busy, self._longest)
            if longer == busy:
                return busy
            busy = longer
            if busy > LONGEST_BUSY_NS:
                return None

    def _chains(self, place: int, busy: int) -> Iterator[tuple[int, int]]:
        """From which instant on a chain of passing events can have which length, both rising."""
        medium, latest = self.medium, self.messages[place].latest
        known, length = -medium.lag, 0
        others = [other for other in range(len(self.messages)) if other != place]
        everything = busy + max(self._urgency) + medium.lag
        while others and (reach := (length + 1) * medium.tolerance) <= everything:
            needed = self._first_with(length + 1, reach, latest, others)
            if needed is None or max(needed, known) > busy:
                break
            if needed > known:
                yield known, length
                known = needed
            length += 1
        yield known, length

    def _first_with(self, count: int, reach: int, latest: int, others: Sequence[int]) -> int | None:
        """The instant from which on `count` events can wait that must start up to `reach` after the one in question."""
        offers = sorted((self._urgency[other] - latest - reach - self.medium.lag, other) for other in others)
        for instant, other in offers:
            message = self.messages[other]
            count -= (reach + message.jitter) // message.period + 1
            if count <= 0:
                return instant
        return None

    def _instants(self, place: int, tolerance: int, begin: int, end: int) -> Iterator[int]:
        """The instants in [begin, end) at which more can be in the way than just before, in order."""
        message, lag = self.messages[place], self.medium.lag
        reach = message.latest + tolerance + lag
        series = [_multiples(message.period, message.jitter + lag, begin, end)]
        for other, urgency in zip(self.messages, self._urgency, strict=True):
            if other is not message:
                series.append(_multiples(other.period, reach - urgency + other.jitter, begin, end))
        yield begin
        last = begin
        for instant in merge(*series):
            if instant > last:
                yield instant
                last = instant

    def _waits(self, place: int, tolerance: int, queued: int) -> int:
        """How long after the start of the window the last frame of an event starts that was queued then."""
        message, lag = self.messages[place], self.medium.lag
        reach = queued + message.latest + tolerance
        known = ((queued + message.jitter + lag) // message.period + 1) * message.length - message.last
        known += self._blocking(queued + message.latest + self.medium.tolerance)
        rivals = []
        for other, urgency in zip(self.messages, self._urgency, strict=True):
            shift = other.jitter + lag
            if other is not message and reach - urgency + lag >= 0:
                rivals.append((shift, other.period, other.length, (reach - urgency + shift) // other.period + 1))
        hard, errors, longest = self.medium.hard, self.medium.errors, self._longest
        waits = known
        while True:
            longer = known + hard.within(waits) + errors.within(waits + message.last, longest)
            for shift, period, length, most in rivals:
                events = (waits + shift) // period + 1
                longer += length * (events if events < most else most)
            if longer == waits:
                return waits
            waits = longer

    def _blocking(self, threshold: int) -> int:
        """The longest frame that may be on the wire though it is less urgent than all that count."""
        pairs = zip(self.messages, self._urgency, strict=True)
        return max([self.medium.lower, *(message.longest_frame for message, at in pairs if at >= threshold)])


def _multiples(period: int, shift: int, begin: int, end: int) -> range:
    """The instants in [begin, end) at which instant + shift is a multiple of a period."""
    return range(begin + -(begin + shift) % period, end, period)
