"""The worst-case response time of each channel of a system under a calendar.

The response times of hard channels follow from the calendar alone. Soft events are delayed by hard ones, errors, each
other, and one frame of lower priority. The middleware's frames and events without a deadline have fixed priorities
below all soft events, and are delayed by hard slots, errors and soft events. Frames of other makers have fixed
priorities too. One between those of soft events wins over an event only while that has enough time left; it may have
been queued before the event's window, for as long as it can wait, because less urgent events win over it meanwhile.
"""

from collections.abc import Iterator
from functools import cached_property

from genus.can._plan.calendar import Calendar
from genus.can._plan.edf import BusConditions, Rival, SoftAnalysis
from genus.can._plan.fixed_priority import foreign_messages, middleware_messages, response_time
from genus.can._plan.interference import MAX_BUSY_NS, ErrorInterference, HardInterference, Message
from genus.can._plan.system import BusSpec, ChannelSpec, System
from genus.can._wire.frame import PRIORITY_SHIFT, Priority

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
        self._hard = HardInterference.of(calendar, bus.precision_ns)
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
            tolerance=bus.level_ns + 2 * bus.precision_ns,
            blocking=blocking,
            hard=HardInterference.of(self.calendar, bus.precision_ns, winning) if winning else self._hard,
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
