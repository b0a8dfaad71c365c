"""The worst-case response time of each channel of a system under a calendar.

The response times of hard channels follow from the calendar alone. Soft events are delayed by hard ones, errors, each
other, and one frame of lower priority. The middleware's frames and events without a deadline have fixed priorities
below all soft events, and are delayed by hard slots, errors and soft events.
"""

from functools import cached_property

from genus.can._plan.calendar import Calendar
from genus.can._plan.edf import BusConditions, SoftAnalysis, SoftMessage
from genus.can._plan.fixed_priority import Message, middleware_messages, response_time
from genus.can._plan.interference import ErrorInterference, HardInterference
from genus.can._plan.system import BusSpec, ChannelSpec, System


class ResponseTimes:
    """The response times of a system under a calendar; each is computed when it is asked for."""

    def __init__(self, system: System, calendar: Calendar) -> None:
        self.system = system
        self.calendar = calendar
        bus = system.bus
        self._hard = HardInterference.of(calendar, bus.precision_ns)
        self._errors = ErrorInterference(bus.error_interval_ns, bus.error_ns)
        self._middleware = sorted(middleware_messages(system), key=lambda message: message.rank)
        self._positions = {channel.name: position for position, channel in enumerate(system.soft)}

    def response_ns(self, channel: ChannelSpec, limit: int | None = None) -> int | None:
        """The longest time from publishing to the end of the last frame; None if it has no bound.

        For a hard channel it counts from the start of its slot. With `limit` the search stops at a value above it.
        """
        if channel.qos_class == "hard":
            slot = self.calendar.slot(channel.name)
            return slot.wait_ns + slot.attempts_ns
        if channel.qos_class == "soft":
            return self._soft.response_time(self._positions[channel.name], limit)
        message = _message(channel)
        above = [*self._fixed_soft, *self._middleware, *(m for m in self._fixed_none if m.rank < message.rank)]
        below = [m for m in self._fixed_none if m.rank > message.rank]
        return response_time(message, above, below, self._hard, self._errors)

    def meets_deadline(self, channel: ChannelSpec) -> bool:
        """Whether the response time has a bound, and is within the deadline if there is one."""
        found = self.response_ns(channel, channel.deadline_ns)
        return found is not None and (channel.deadline_ns is None or found <= channel.deadline_ns)

    @property
    def middleware_response_ns(self) -> int | None:
        """The longest response time of the middleware's frames; None if it has no bound, or there are none."""
        if not self._middleware:
            return None
        above = [*self._fixed_soft, *self._middleware[:-1]]
        return response_time(self._middleware[-1], above, self._fixed_none, self._hard, self._errors)

    @property
    def middleware_load(self) -> float:
        """The share of the bus that the middleware's frames take."""
        return sum(message.length / message.period for message in self._middleware)

    @cached_property
    def _soft(self) -> SoftAnalysis:
        lower = max((message.blocking for message in (*self._middleware, *self._fixed_none)), default=0)
        return SoftAnalysis([_soft_message(channel) for channel in self.system.soft], self._conditions(lower))

    def _conditions(self, lower: int) -> BusConditions:
        bus: BusSpec = self.system.bus
        return BusConditions(
            level=bus.level_ns,
            tolerance=bus.level_ns + 2 * bus.precision_ns,
            lag=bus.longest_frame_ns,
            lower=lower,
            hard=self._hard,
            errors=self._errors,
        )

    @cached_property
    def _fixed_soft(self) -> list[Message]:
        return [_message(channel) for channel in self.system.soft]

    @cached_property
    def _fixed_none(self) -> list[Message]:
        return [_message(channel) for channel in self.system.none]


def _message(channel: ChannelSpec) -> Message:
    return Message(
        channel.name,
        channel.id,
        channel.event_ns,
        channel.period_ns,
        channel.jitter_ns,
        channel.frame_ns,
        channel.last_ns,
    )


def _soft_message(channel: ChannelSpec) -> SoftMessage:
    assert channel.deadline_ns is not None
    return SoftMessage(
        name=channel.name,
        length=channel.event_ns,
        period=channel.period_ns,
        deadline=channel.deadline_ns,
        jitter=channel.jitter_ns,
        longest_frame=channel.frame_ns,
        last=channel.last_ns,
    )
