"""Worst-case response times of soft events: non-preemptive earliest deadline first with quantised priorities.

A frame competes with P = floor((deadline - now - rest) / level), where `rest` is the bus time its event still needs:
the event with the earliest latest start is sent first, up to one level. The analysis follows George, Rivierre and Spuri
(1996), who examine every instant a at which the analysed event can be queued within a busy window, with four additions.

* Quantisation. The winner of an arbitration must start less than q = level + 2 eps after the most urgent event that
  waits. So an event X can be overtaken by events that are up to q less urgent; and before X is queued, these can be
  overtaken by events up to 2 q less urgent than X, and so on. Let S_k be the events that must start less than k q after
  X must, and t_k the last instant before X is sent at which none of S_k waits. Take the first k with t_k = t_(k+1):
  from then on only events of S_(k+1) are sent, all queued since, and one frame that was on the wire. Each step from t_m
  to an earlier t_(m+1) needs an event of its own that must start between m q and (m + 1) q after X; the number of such
  events bounds k.
* There are few levels: an event that must start more than 249 levels later has the last one. An event that far ahead
  may overtake others, as if it had to start 249 levels after it was queued.
* An event that is queued while a frame is on the wire competes once with the priority it had when it was queued. This
  is like being queued up to one frame (`lag`) later, but with the same deadline.
* Hard slots and errors take the bus at any time.

The bound is safe, not tight. It assumes that of a node's events the one with the earliest latest start competes.
"""

from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import pairwise

import msgspec

from genus.can._plan.interference import LONGEST_BUSY_NS, OVERLOAD, ErrorInterference, Interference

LEVELS = 249
"""How many levels of urgency are distinct from the last one."""


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
        """The latest start of its last frame, from queueing."""
        return self.deadline - self.last

    def urgency(self, horizon: int) -> int:
        """The latest start of its first frame, from queueing, as far as priorities distinguish it."""
        return min(self.deadline - self.length, horizon)


class BusConditions(msgspec.Struct, frozen=True):
    """The properties of the bus, and the traffic on it besides soft events."""

    level: int
    tolerance: int
    """q: how much less urgent an event can be and still be sent first."""
    lag: int
    """The duration of the longest frame on the bus."""
    lower: int
    """The duration of the longest frame without a deadline."""
    hard: Interference
    """Hard slots, and frames of others that win over soft events."""
    errors: ErrorInterference
    repeated: int = 0
    """The longest frame of others that is repeated before soft events if an error hit it."""


class SoftAnalysis:
    """The response times of a set of soft messages under the conditions of a bus."""

    def __init__(self, messages: Sequence[SoftMessage], conditions: BusConditions) -> None:
        self.messages = messages
        self.conditions = conditions
        self._urgency = [message.urgency(LEVELS * conditions.level) for message in messages]
        self._longest = max([conditions.repeated, *(message.longest_frame for message in messages)])
        self._busy = self._busy_period()

    def response_time(self, index: int, limit: int | None = None) -> int | None:
        """The longest time from an event's queueing to the end of its last frame; None if it has no bound.

        The search stops as soon as it has found more than `limit`.
        """
        if self._busy is None:
            return None
        worst, last = 0, self.messages[index].last
        for (begin, chain), (end, _) in pairwise([*self._chains(index, self._busy), (self._busy + 1, 0)]):
            tolerance = (chain + 1) * self.conditions.tolerance
            for queued in self._instants(index, tolerance, begin, end):
                if self._busy - queued <= worst:
                    break  # nothing later can be worse
                worst = max(worst, self._last_start(index, tolerance, queued) - queued)
                if limit is not None and worst + last > limit:
                    return worst + last
        return worst + last

    def _busy_period(self) -> int | None:
        """The longest time for which soft and hard events can keep the bus busy; None if without bound."""
        conditions = self.conditions
        rate = sum(message.length / message.period for message in self.messages)
        if rate + conditions.hard.rate + conditions.errors.rate(self._longest) >= OVERLOAD:
            return None
        busy, blocked = 0, max(conditions.lower, self._longest)
        while True:
            work = sum(((busy + m.jitter + conditions.lag) // m.period + 1) * m.length for m in self.messages)
            longer = blocked + work + conditions.hard.within(busy) + conditions.errors.within(busy, self._longest)
            if longer == busy:
                return busy
            busy = longer
            if busy > LONGEST_BUSY_NS:
                return None

    def _chains(self, index: int, busy: int) -> Iterator[tuple[int, int]]:
        """Pairs of an instant and the longest chain of overtaking events from that instant on, both ascending."""
        conditions, latest = self.conditions, self.messages[index].latest
        known, length = -conditions.lag, 0
        others = [other for other in range(len(self.messages)) if other != index]
        everything = busy + max(self._urgency) + conditions.lag
        while others and (reach := (length + 1) * conditions.tolerance) <= everything:
            needed = self._first_with(length + 1, reach, latest, others)
            if needed is None or max(needed, known) > busy:
                break
            if needed > known:
                yield known, length
                known = needed
            length += 1
        yield known, length

    def _first_with(self, count: int, reach: int, latest: int, others: Sequence[int]) -> int | None:
        """The instant from which on `count` events can wait that must start up to `reach` after the analysed one."""
        offers = sorted((self._urgency[other] - latest - reach - self.conditions.lag, other) for other in others)
        for instant, other in offers:
            message = self.messages[other]
            count -= (reach + message.jitter) // message.period + 1
            if count <= 0:
                return instant
        return None

    def _instants(self, index: int, tolerance: int, begin: int, end: int) -> Iterator[int]:
        """The instants in [begin, end) at which the interference increases, in order."""
        message, lag = self.messages[index], self.conditions.lag
        reach = message.latest + tolerance + lag
        series = [_shifted_multiples(message.period, message.jitter + lag, begin, end)]
        for other, urgency in zip(self.messages, self._urgency, strict=True):
            if other is not message:
                series.append(_shifted_multiples(other.period, reach - urgency + other.jitter, begin, end))
        yield begin
        last = begin
        for instant in merge(*series):
            if instant > last:
                yield instant
                last = instant

    def _last_start(self, index: int, tolerance: int, queued: int) -> int:
        """The start of the last frame of an event that is queued at an instant, from the start of the window."""
        message, lag = self.messages[index], self.conditions.lag
        reach = queued + message.latest + tolerance
        known = ((queued + message.jitter + lag) // message.period + 1) * message.length - message.last
        known += self._blocking(queued + message.latest + self.conditions.tolerance)
        rivals = []
        for other, urgency in zip(self.messages, self._urgency, strict=True):
            shift = other.jitter + lag
            if other is not message and reach - urgency + lag >= 0:
                rivals.append((shift, other.period, other.length, (reach - urgency + shift) // other.period + 1))
        hard, errors, longest = self.conditions.hard, self.conditions.errors, self._longest
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
        """The longest frame that can be on the wire although it is less urgent than all events that count."""
        pairs = zip(self.messages, self._urgency, strict=True)
        return max([self.conditions.lower, *(message.longest_frame for message, at in pairs if at >= threshold)])


def _shifted_multiples(period: int, shift: int, begin: int, end: int) -> range:
    """The instants in [begin, end) at which instant + shift is a multiple of a period."""
    return range(begin + -(begin + shift) % period, end, period)
