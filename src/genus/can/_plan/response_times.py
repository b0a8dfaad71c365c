"""How long each channel of a system takes at most, given a calendar: the three classes and the middleware together.

Hard slots are promised by the calendar alone, whatever else is sent. Soft events meet hard ones, errors and each other,
and one frame of those below. The middleware's frames and events without a deadline are of fixed priority, below all
soft ones; for them hard slots, errors and soft events are in the way.
"""

from functools import cached_property

from genus.can._plan.calendar import Calendar
from genus.can._plan.edf import Medium, SoftAnalysis, SoftMessage
from genus.can._plan.fixed_priority import Message, own_messages, response_time
from genus.can._plan.interference import BusErrors, HardTime
from genus.can._plan.system import Bus, Channel, System


class Analysis:
    """The bounds of one system under one calendar; each is worked out when it is asked for."""

    def __init__(self, system: System, calendar: Calendar) -> None:
        self.system = system
        self.calendar = calendar
        bus = system.bus
        self._hard = HardTime.of(calendar, bus.precision_ns)
        self._errors = BusErrors(bus.error_interval_ns, bus.error_ns)
        self._own = sorted(own_messages(system), key=lambda message: message.rank)
        self._places = {channel.name: place for place, channel in enumerate(system.soft)}

    def response_ns(self, channel: Channel, enough: int | None = None) -> int | None:
        """The longest from publishing to the end of the last frame; None if there is no bound.

        That of a hard channel counts from the start of its slot. With `enough`, any larger value may be given for a
        larger one.
        """
        if channel.qos_class == "hard":
            slot = self.calendar.slot(channel.name)
            return slot.wait_ns + slot.attempts_ns
        if channel.qos_class == "soft":
            return self._soft.response_time(self._places[channel.name], enough)
        message = _message(channel)
        above = [*self._fixed_soft, *self._own, *(m for m in self._fixed_none if m.rank < message.rank)]
        below = [m for m in self._fixed_none if m.rank > message.rank]
        return response_time(message, above, below, self._hard, self._errors)

    def keeps(self, channel: Channel) -> bool:
        """Whether the channel's promise holds."""
        found = self.response_ns(channel, channel.deadline_ns)
        return found is not None and (channel.deadline_ns is None or found <= channel.deadline_ns)

    @property
    def own_response_ns(self) -> int | None:
        """The longest that a frame of the middleware itself takes; None if there is no bound, or no such frame."""
        if not self._own:
            return None
        above = [*self._fixed_soft, *self._own[:-1]]
        return response_time(self._own[-1], above, self._fixed_none, self._hard, self._errors)

    @property
    def own_load(self) -> float:
        """The share of the bus that the middleware takes."""
        return sum(message.length / message.period for message in self._own)

    @cached_property
    def _soft(self) -> SoftAnalysis:
        lower = max((message.blocking for message in (*self._own, *self._fixed_none)), default=0)
        return SoftAnalysis([_soft_message(channel) for channel in self.system.soft], self._medium(lower))

    def _medium(self, lower: int) -> Medium:
        bus: Bus = self.system.bus
        return Medium(
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


def _message(channel: Channel) -> Message:
    return Message(
        channel.name,
        channel.id,
        channel.event_ns,
        channel.period_ns,
        channel.jitter_ns,
        channel.frame_ns,
        channel.last_ns,
    )


def _soft_message(channel: Channel) -> SoftMessage:
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
