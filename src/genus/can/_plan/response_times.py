"""Worst-case response times of channels; soft ones by non-preemptive earliest deadline first, in quantised priorities.

A frame competes with P = floor((deadline - now - rest) / level), where `rest` is the bus time its event still needs: it
must start at s = deadline - rest. The winner of an arbitration must start less than q = level + 2 eps after the most
urgent frame that waits. After George, Rivierre and Spuri (1996), every instant a at which the analysed event X can be
queued within a busy window is examined, with these additions.

* Let s_X be the latest start of X's last frame, S_k the frames that must start less than k q after it, and t_k the last
  instant before that frame starts at which neither a frame of S_k nor a hard one waits for the bus. Take the first k
  with t_k = t_(k+1): after t_k only frames of S_(k+1) are sent, all queued since, besides hard frames and errors.
* Chains. If t_(m+1) is earlier than t_m, an event waits at t_m that must start between m q and (m + 1) q after X, and
  it is another one for every m: the number of such events bounds k. Frames that are not of S_1 are sent before t_0,
  while X is not queued yet: they take no more than a - t_k and two frames.
* At t_k a frame may be on the wire, whatever it is. What is queued meanwhile competes once with the priority it had
  when it was queued, so that a frame beyond S_(k+1) can pass. Later arbitrations do not allow that: some frame of S_k
  has waited for longer.
* There are few levels: before s_X - 249 levels, X is no more urgent than any event. What is queued until then counts,
  as if it had to start 249 levels after it was queued; t_k is an instant at which no soft frame waits, if it is so
  early.

What is sent before X increases with a and with k. So the search for one instant begins with the window of an earlier
one; and with a worst wait w known, the instants from a to b are skipped if what is sent before an event of b ends by
a + w. It takes a few steps for each frame of the busy period, however close to full load.

The bound is safe, not tight. It assumes that of a node's events the one with the earliest latest start competes.

`ResponseTimes` has those of all channels. Hard ones follow from the calendar alone. The middleware's frames and events
without a deadline have fixed priorities below all soft events. Frames of other makers have fixed priorities too: one
between those of soft events wins over an event only while that has enough time left; it may have been queued before the
event's window, for as long as it can wait, because less urgent events win over it meanwhile.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise

import msgspec

from genus.can._plan.calendar import Calendar
from genus.can._plan.interference import (
    MAX_BUSY_NS,
    OVERLOAD,
    ErrorInterference,
    HardInterference,
    Message,
    foreign_messages,
    middleware_messages,
    response_time,
)
from genus.can._plan.system import BusSpec, ChannelSpec, System
from genus.can._wire.frame import PRIORITY_SHIFT, Priority

LEVELS = 249
"""How many levels of urgency are distinct from the last one."""


class BusConditions(msgspec.Struct, frozen=True):
    """The properties of the bus, and the traffic on it besides soft events."""

    level: int
    tolerance: int
    """q: how much less urgent a frame can be and still be sent first."""
    blocking: int
    """The duration of the longest frame on the bus."""
    hard: HardInterference
    """Hard slots, and frames of others that win over soft events."""
    errors: ErrorInterference
    repeated: int = 0
    """The longest frame of others that is repeated before soft events if an error hit it."""
    rivals: tuple["Rival", ...] = ()
    """Frames of others with fixed priorities between those of soft events."""


class Rival(msgspec.Struct, frozen=True):
    """Frames of one stream that may be sent before the analysed event: the n-th frame of every event."""

    urgency: int
    """The latest start, from queueing, as far as priorities distinguish it."""
    length: int
    period: int
    jitter: int
    owner: int = -1
    """The position of its message; -1 if it is not of a soft one."""

    def most(self, span: int) -> int:
        """Return how many of them can be queued in a span of time, both ends included."""
        return (span + self.jitter) // self.period + 1 if span >= 0 else 0


class SoftAnalysis:
    """The response times of a set of soft messages under the conditions of a bus."""

    def __init__(self, messages: Sequence[Message], conditions: BusConditions) -> None:
        self.messages = messages
        self.conditions = conditions
        self._rivals = [
            *conditions.rivals,
            *(rival for owner in range(len(messages)) for rival in self._rivals_of(owner)),
        ]
        self._longest = max([conditions.repeated, *(rival.length for rival in self._rivals)])
        self._busy = self._busy_period()

    def response_time(self, index: int, limit: int | None = None) -> int | None:
        """Return the longest time from an event's queueing to the end of its last frame; None if it has no bound.

        The search stops as soon as it has found more than `limit`.
        """
        if self._busy is None:
            return None
        message, worst = self.messages[index], 0
        stride, floors = message.period, dict[int, int]()
        rivals = [rival for rival in self._rivals if rival.owner != index]
        for (begin, chain), (end, _) in pairwise([*self._chains(index), (self._busy + 1, 0)]):
            queued = begin
            while queued < min(end, self._busy - worst):  # nothing later can be worse
                later = self._next_instant(message, rivals, chain, queued, end)
                demand = self._demand(message, rivals, chain, queued, later - 1)
                worst = max(worst, demand.longest_wait(floors))
                if limit is not None and worst + message.last > limit:
                    return worst + message.last
                queued, stride = later, max(stride // 2, later - queued)
                while queued < (until := min(queued + stride, end, self._busy - worst)):
                    demand = self._demand(message, rivals, chain, until - 1, until - 1, self._longest)
                    if not demand.is_met(queued + worst):
                        break
                    queued, stride = until, 2 * stride
        return worst + message.last

    def _rivals_of(self, owner: int) -> Iterator[Rival]:
        message = self.messages[owner]
        rest, horizon = message.length, LEVELS * self.conditions.level
        for length in message.frames:
            urgency = min(message.deadline - rest, horizon)
            yield Rival(urgency, length, message.period, message.jitter, owner)
            rest -= length

    def _busy_period(self) -> int | None:
        """Return the longest time for which soft and hard events can keep the bus busy; None if without bound."""
        conditions = self.conditions
        rate = sum(rival.length / rival.period for rival in self._rivals)
        if rate + conditions.hard.rate + conditions.errors.rate(self._longest) >= OVERLOAD:
            return None
        busy, blocked = 0, conditions.blocking + self._longest
        while True:
            work = sum(rival.most(busy) * rival.length for rival in self._rivals)
            longer = blocked + work + conditions.hard.within(busy) + conditions.errors.within(busy, self._longest)
            if longer == busy:
                return busy
            busy = longer
            if busy > MAX_BUSY_NS:
                return None

    def _chains(self, index: int) -> Iterator[tuple[int, int]]:
        """Pairs of an instant and the longest chain of events from that instant on, both ascending."""
        assert self._busy is not None
        others = [message for place, message in enumerate(self.messages) if place != index]
        known, length, latest, horizon = 0, 0, self.messages[index].latest, LEVELS * self.conditions.level
        offers = sorted(
            (min(each.deadline - each.length, horizon) - latest, each.length - each.last + each.jitter, each.period)
            for each in others
        )
        everything = self._busy + max(message.deadline for message in self.messages)
        while (reach := (length + 1) * self.conditions.tolerance) <= everything:
            needed = _first_with(length + 1, reach, offers)
            if needed is None or max(needed, known) > self._busy:
                break
            if needed > known:
                yield known, length
                known = needed
            length += 1
        yield known, length

    def _next_instant(self, message: Message, rivals: Sequence[Rival], chain: int, after: int, end: int) -> int:
        """Return the next instant at which the interference increases, at most `end`."""
        found = after + message.period - (after + message.jitter) % message.period
        for reach in {1, chain + 1}:
            shift = after + message.latest + reach * self.conditions.tolerance
            for rival in rivals:
                spare = shift - rival.urgency
                step = after + (rival.period - (spare + rival.jitter) % rival.period if spare >= 0 else -spare)
                if step < found:
                    found = step
        return min(found, end)

    def _demand(
        self, message: Message, rivals: Sequence[Rival], chain: int, first: int, last: int, passing: int | None = None
    ) -> "_Demand":
        """Return what is sent before the last frame of an event that is queued at an instant from `first` to `last`."""
        conditions = self.conditions
        due = first + message.latest + conditions.tolerance
        further = due + chain * conditions.tolerance
        own = ((first + message.jitter) // message.period + 1) * message.length - message.last
        passing = self._passing(rivals, further, last - first) if passing is None else passing
        counts = []
        for rival in rivals:
            if rival.urgency <= further:
                spare, jitter, period = due - rival.urgency, rival.jitter, rival.period
                near = (spare + jitter) // period + 1 if spare >= 0 else 0
                most = (further - rival.urgency + jitter) // period + 1
                counts.append((jitter, period, rival.length, near, most))
        head_start = conditions.blocking + self._longest
        return _Demand(
            conditions,
            self._longest,
            message.last,
            first,
            last,
            passing,
            own + conditions.blocking + passing,
            head_start,
            counts,
        )

    def _passing(self, rivals: Sequence[Rival], due: int, more: int) -> int:
        """The longest frame that can pass one that was queued while another was on the wire, though it is due later.

        It is the longest for all instants from `due` on until `more` later.
        """
        assert self._busy is not None
        span, longest = self.conditions.blocking, 0
        for rival in rivals:
            spare = rival.urgency - due
            if spare > 0:  # it has waited since before the window, no longer than the bus can be busy
                may_pass = spare - more <= span + self._busy
            else:
                may_pass = spare >= -span and rival.most(span - spare + more) > rival.most(-spare)
            if may_pass and rival.length > longest:
                longest = rival.length
        return longest


def _first_with(count: int, reach: int, offers: Sequence[tuple[int, int, int]]) -> int | None:
    """Return the instant from which on `count` events can wait that must start up to `reach` after the analysed one."""
    for urgency, jitter, period in offers:
        count -= (reach + jitter) // period + 1
        if count <= 0:
            return urgency - reach
    return None


class _Demand(msgspec.Struct):
    """The bus time of what is sent before the last frame of an event that is queued from `first` to `last`.

    Between these, other frames count as often; only the time increases that a chain can take before the event is
    queued. So the worst instant is the one at which that time is just enough.
    """

    conditions: BusConditions
    longest: int
    length: int
    first: int
    last: int
    passing: int
    known: int
    head_start: int
    counts: Sequence[tuple[int, int, int, int, int]]
    """Of each rival its jitter, period and length, how many are urgent enough, and how many in a chain."""

    def within(self, window: int) -> tuple[int, int]:
        """Return the bus time if the last frame starts after a window, and what a chain would take of it."""
        work, chained = self.known, 0
        for jitter, period, length, near, most in self.counts:
            events = (window + jitter) // period + 1
            if events > near:
                work += length * near
                chained += length * ((events if events < most else most) - near)
            else:
                work += length * events
        work += self.conditions.hard.within(window) + self.conditions.errors.within(window + self.length, self.longest)
        return work + min(chained, self.last + self.head_start), chained

    def is_met(self, window: int) -> bool:
        return self.within(window)[0] <= window

    def longest_wait(self, floors: dict[int, int]) -> int:
        """Return the longest time until the last frame starts.

        `floors` are the windows of earlier instants by their passing frame: with no longer one, they were no longer.
        """
        window = max((floor for passing, floor in floors.items() if passing <= self.passing), default=self.known)
        while True:
            longer, chained = self.within(window)
            if longer == window:
                floors[self.passing] = window
                return window - min(max(self.first, chained - self.head_start), self.last)
            window = longer


FIRST_SOFT = Priority.SOFT_FIRST << PRIORITY_SHIFT
"""The smallest identifier of a soft event; a frame with a smaller rank wins over all of them."""
LAST_SOFT = (Priority.SOFT_LAST + 1 << PRIORITY_SHIFT) - 1
"""The largest identifier of a soft event; a frame with a larger rank loses against all of them."""


class ResponseTimes:
    """The response times of a system under a calendar; each is computed when it is asked for."""

    def __init__(self, system: System, calendar: Calendar) -> None:
        self.system = system
        self.calendar = calendar
        bus = system.bus
        self._hard = HardInterference.of(calendar, bus.clock_error_ns)
        self._errors = ErrorInterference(bus.error_interval_ns, bus.error_ns)
        self._middleware = sorted(middleware_messages(system), key=lambda message: message.rank)
        self._foreign = foreign_messages(system)
        self._positions = {channel.name: position for position, channel in enumerate(system.soft)}

    def response_ns(self, channel: ChannelSpec, limit: int | None = None) -> int | None:
        """Return the longest time from publishing to the end of the last frame; None if it has no bound.

        For a hard channel it counts from the start of its slot. With `limit` the search stops at a value above it.
        """
        if channel.qos_class == "hard":
            slot = self.calendar.slot(channel.name)
            return slot.wait_ns + slot.attempts_ns
        if channel.qos_class == "soft":
            return self._soft.response_time(self._positions[channel.name], limit)
        message = _message(channel)
        others = [*self._middleware, *self._foreign, *self._fixed_none]
        above = [*self._fixed_soft, *(m for m in others if m.rank < message.rank)]
        below = [m for m in others if m.rank > message.rank]
        return response_time(message, above, below, self._hard, self._errors)

    def meets_deadline(self, channel: ChannelSpec) -> bool:
        """Return whether the response time has a bound, and is within the deadline if there is one."""
        found = self.response_ns(channel, channel.deadline_ns)
        return found is not None and (channel.deadline_ns is None or found <= channel.deadline_ns)

    @property
    def middleware_response_ns(self) -> int | None:
        """The longest response time of the middleware's frames; None if it has no bound, or there are none."""
        if not self._middleware:
            return None
        last, others = self._middleware[-1], self._foreign
        above = [*self._fixed_soft, *self._middleware[:-1], *(m for m in others if m.rank < last.rank)]
        below = [*self._fixed_none, *(m for m in others if m.rank > last.rank)]
        return response_time(last, above, below, self._hard, self._errors)

    @property
    def foreign_load(self) -> float:
        """The share of the bus that the frames of other makers take, as far as their periods are known."""
        return sum(message.length / message.period for message in self._foreign)

    @property
    def middleware_load(self) -> float:
        """The share of the bus that the middleware's frames take."""
        return sum(message.length / message.period for message in self._middleware)

    @cached_property
    def _soft(self) -> SoftAnalysis:
        return SoftAnalysis(self._fixed_soft, self._conditions())

    def _conditions(self) -> BusConditions:
        bus: BusSpec = self.system.bus
        streams = (*self._middleware, *self._foreign, *map(_message, self.system.channels))
        blocking = max((message.blocking for message in streams), default=0)
        winning = [message for message in self._foreign if message.rank < FIRST_SOFT]
        return BusConditions(
            level=bus.level_ns,
            tolerance=bus.level_ns + 2 * bus.clock_error_ns,
            blocking=blocking,
            hard=HardInterference.of(self.calendar, bus.clock_error_ns, winning) if winning else self._hard,
            errors=self._errors,
            repeated=max((message.blocking for message in winning), default=0),
            rivals=tuple(self._foreign_rivals(blocking)),
        )

    def _foreign_rivals(self, blocking: int) -> Iterator[Rival]:
        """Yield the frames of others between soft events: from which urgency of an event on they win over it."""
        among = [message for message in self._foreign if FIRST_SOFT <= message.rank <= LAST_SOFT]
        others = [*self._fixed_soft, *(message for message in self._foreign if message.rank < FIRST_SOFT)]
        below = [*self._middleware, *self._fixed_none, *(m for m in self._foreign if m.rank > LAST_SOFT)]
        for message in among:
            above = [*others, *(other for other in among if other is not message)]
            waits = response_time(message, above, below, self._hard, self._errors)
            level = (int(message.rank + 0.5) >> PRIORITY_SHIFT) - Priority.SOFT_FIRST
            urgency = max(0, level * self.system.bus.level_ns - blocking)
            jitter = message.jitter + (MAX_BUSY_NS if waits is None else waits)
            yield Rival(urgency, message.length, message.period, jitter)

    @cached_property
    def _fixed_soft(self) -> list[Message]:
        return [_message(channel) for channel in self.system.soft]

    @cached_property
    def _fixed_none(self) -> list[Message]:
        return [_message(channel) for channel in self.system.none]


def _message(channel: ChannelSpec) -> Message:
    deadline = channel.deadline_ns or 0
    return Message(channel.name, channel.id, channel.times, channel.period_ns, channel.jitter_ns, deadline)
