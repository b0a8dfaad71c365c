"""The plan of a system: a calendar, and for every channel whether its promise holds, and what to change if not."""

from typing import Literal, TypeAlias

import msgspec

from genus.can._plan.advice import Advice, advise, advise_bus, candidates
from genus.can._plan.calendar import Calendar, Slot
from genus.can._plan.response_times import Analysis
from genus.can._plan.slot_placement import Placement
from genus.can._plan.system import Channel, QosClass, System, format_span

MOST_ADVISED = 8
"""How many of the channels that do not fit get advice of their own; where more do not fit, the bus is full."""

ShareClass: TypeAlias = Literal["hard", "soft", "none", "system"]


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a channel keeps its promise, and what it takes at most.

    Soft and other events count from publishing to the end of the last frame; hard ones from the start of the slot,
    at whose end, the deadline, they are delivered. `response_ns` is None where there is no bound.
    """

    channel: str
    qos_class: QosClass
    ok: bool
    response_ns: int | None
    deadline_ns: int | None
    reason: str = ""
    advice: tuple[Advice, ...] = ()


class Share(msgspec.Struct, frozen=True):
    """The part of the bus that one class takes: when nothing fails, and with all failures that hard slots allow.

    What is reserved for hard slots but not used goes to the other classes.
    """

    qos_class: ShareClass
    used: float
    worst: float
    reserved: float = 0.0


class Load(msgspec.Struct, frozen=True):
    """The load of a bus by class; `system` is the middleware's own."""

    shares: tuple[Share, ...]

    @property
    def used(self) -> float:
        """All classes, when nothing fails and all frames are as long as they can be."""
        return sum(share.used for share in self.shares)

    @property
    def worst(self) -> float:
        """The same with all failures that hard slots allow."""
        return sum(share.worst for share in self.shares)


class Plan(msgspec.Struct, frozen=True):
    """What `plan` found out about a system."""

    system: System
    calendar: Calendar
    verdicts: tuple[Verdict, ...]
    load: Load
    own_response_ns: int | None = None
    """The longest that a frame of the middleware takes; None if there is no bound, or no such frame."""
    advice: tuple[Advice, ...] = ()
    """Changes that let everything fit."""

    @property
    def ok(self) -> bool:
        """Whether every channel is admitted."""
        return all(verdict.ok for verdict in self.verdicts)

    @property
    def refused(self) -> tuple[Verdict, ...]:
        """The verdicts of the channels that are not."""
        return tuple(verdict for verdict in self.verdicts if not verdict.ok)

    def verdict(self, channel: str) -> Verdict:
        """That of one channel."""
        name = self.system.channel(channel).name
        return next(verdict for verdict in self.verdicts if verdict.channel == name)


def plan(system: System, *, with_advice: bool = True) -> Plan:
    """The calendar of a system and the verdict of every channel; with advice for those that are not admitted.

    Of the calendars tried, the first is taken under which all channels keep their promises, or most.

    >>> from genus.can._plan.toml_reader import parse_system
    >>> found = plan(parse_system('''
    ... [bus]
    ... bitrate = 1_000_000
    ... [[channel]]
    ... name = "occupancy"
    ... node = "loop-1"
    ... class = "hard"
    ... period = "10ms"
    ... size = 8
    ... '''))
    >>> [(verdict.ok, verdict.response_ns, verdict.deadline_ns) for verdict in found.verdicts]
    [(True, 542000, 562000)]
    """
    found: Plan | None = None
    for placement in candidates(system):
        tried = _judge(system, placement)
        if found is None or len(tried.refused) < len(found.refused):
            found = tried
        if found.ok:
            return found
    assert found is not None
    return _advised(found) if with_advice else found


def _judge(system: System, placement: Placement) -> Plan:
    analysis = Analysis(system, placement.calendar)
    verdicts = tuple(
        _no_room(system, channel) if channel.name in placement.left else _verdict(analysis, channel)
        for channel in system.channels
    )
    load = Load((_hard_share(system), *_other_shares(system, analysis)))
    return Plan(system, placement.calendar, verdicts, load, analysis.own_response_ns)


def _no_room(system: System, channel: Channel) -> Verdict:
    length_ns = Slot.of(channel, system.bus).length_ns
    reason = f"no room for a slot of {format_span(length_ns)} every {format_span(channel.period_ns)}"
    if (reserved := _hard_share(system).reserved) > 1:
        reason += f"; all slots together would take {reserved:.0%} of the bus"
    return Verdict(
        channel=channel.name, qos_class="hard", ok=False, response_ns=None, deadline_ns=length_ns, reason=reason
    )


def _verdict(analysis: Analysis, channel: Channel) -> Verdict:
    response_ns, deadline_ns = analysis.response_ns(channel), channel.deadline_ns
    if channel.qos_class == "hard":
        deadline_ns = analysis.calendar.slot(channel.name).length_ns
    reason = ""
    if response_ns is None:
        reason = "no bound: the bus may never be free for it"
    elif deadline_ns is not None and response_ns > deadline_ns:
        reason = f"may take {format_span(response_ns)}, {format_span(response_ns - deadline_ns)} too long"
    return Verdict(
        channel=channel.name,
        qos_class=channel.qos_class,
        ok=not reason,
        response_ns=response_ns,
        deadline_ns=deadline_ns,
        reason=reason,
    )


def _hard_share(system: System) -> Share:
    slots = [Slot.of(channel, system.bus) for channel in system.hard]
    return Share(
        "hard",
        sum(slot.used_ns / slot.period_ns for slot in slots),
        sum(slot.attempts_ns / slot.period_ns for slot in slots),
        sum(slot.length_ns / slot.period_ns for slot in slots),
    )


def _other_shares(system: System, analysis: Analysis) -> tuple[Share, ...]:
    soft, none = (sum(each.event_ns / each.period_ns for each in group) for group in (system.soft, system.none))
    return Share("soft", soft, soft), Share("none", none, none), Share("system", analysis.own_load, analysis.own_load)


def _advised(found: Plan) -> Plan:
    system = found.system
    advice = {
        verdict.channel: advise(system, system.channel(verdict.channel), verdict.response_ns)
        for verdict in found.refused[:MOST_ADVISED]
    }
    verdicts = tuple(
        msgspec.structs.replace(verdict, advice=advice.get(verdict.channel, ())) for verdict in found.verdicts
    )
    return msgspec.structs.replace(found, verdicts=verdicts, advice=advise_bus(system))
