"""The plan of a system: a calendar, a verdict for every channel, and advice for those that are not admitted."""

from collections.abc import Iterator
from typing import Literal, TypeAlias

import msgspec

from genus.can._plan.advice import Advice, advise_bus, advise_channel, candidate_placements
from genus.can._plan.calendar import Calendar, Placement, Slot, most_errors
from genus.can._plan.foreign import Collision, describe_unbounded, find_collisions, unbounded_winners
from genus.can._plan.response_times import ResponseTimes
from genus.can._plan.system import ChannelSpec, QosName, System, format_bound
from genus.can._protocol.clock_model import SYNC_PERIOD_NS
from genus.can._wire.frame import OFF_ABOVE

MAX_ADVISED = 8
"""The most channels that get advice of their own; if more are not admitted, the bus is overloaded."""

GAP_BITS = 4
"""The shortest gap, in bits, with which clocks that are synchronised over the bus are precise enough all the time."""

ShareClass: TypeAlias = Literal["hard", "soft", "none", "system", "foreign"]


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a channel is admitted (`ok`), its worst-case response time and its deadline.

    The response time counts from publishing to the end of the last frame; for a hard channel from the start of its
    slot, whose end is the deadline. It is None if there is no bound. `reason` says why a channel is not admitted, and
    `advice` what to change.
    """

    channel: str
    qos_class: QosName
    ok: bool
    response_ns: int | None
    deadline_ns: int | None
    reason: str = ""
    advice: tuple[Advice, ...] = ()


class LoadShare(msgspec.Struct, frozen=True):
    """The share of the bus that one class uses: if no frame fails, and with all failures that hard slots allow.

    Bus time that is reserved for hard slots but not used is available to the other classes.
    """

    qos_class: ShareClass
    used: float
    worst: float
    reserved: float = 0.0


class BusLoad(msgspec.Struct, frozen=True):
    """The load of a bus by class; `system` is the middleware, and `foreign` the frames of other makers."""

    shares: tuple[LoadShare, ...]

    @property
    def used(self) -> float:
        """The load of all classes if no frame fails and all frames have their longest duration."""
        return sum(share.used for share in self.shares)

    @property
    def worst(self) -> float:
        """The load of all classes with all failures that hard slots allow."""
        return sum(share.worst for share in self.shares)


class Plan(msgspec.Struct, frozen=True):
    """The result of `plan`: calendar, verdicts in the order of the channels, load and advice."""

    system: System
    calendar: Calendar
    verdicts: tuple[Verdict, ...]
    load: BusLoad
    middleware_response_ns: int | None = None
    """The longest response time of the middleware's frames; None if it has no bound, or there are none."""
    advice: tuple[Advice, ...] = ()
    """Changes of the bus or its load, each of which is enough to admit every channel."""
    collisions: tuple[Collision, ...] = ()
    """Identifiers that frames of other makers have too."""

    @property
    def ok(self) -> bool:
        """Whether every channel is admitted, and no identifier is used twice."""
        return all(verdict.ok for verdict in self.verdicts) and not self.collisions

    @property
    def uncounted(self) -> tuple[str, ...]:
        """Frames of other makers that the analysis leaves out, because it is not known how often they come."""
        return tuple(frame.name for frame in self.system.foreign if frame.period_ns is None)

    @property
    def refused(self) -> tuple[Verdict, ...]:
        """The verdicts of the channels that are not admitted."""
        return tuple(verdict for verdict in self.verdicts if not verdict.ok)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is probably not as it was meant, each as a sentence: of the system file, and of what was planned."""
        doubts = (_doubtful_gap, _doubtful_omissions, _doubtful_controllers)
        return (*self.system.warnings, *(text for find in doubts for text in find(self.system)))

    def verdict(self, channel: str) -> Verdict:
        """Return the verdict of one channel; PlanError if there is no such channel."""
        name = self.system.channel(channel).name
        return next(verdict for verdict in self.verdicts if verdict.channel == name)


def plan(system: System, *, with_advice: bool = True) -> Plan:
    """Build the calendar of a system and decide for every channel whether it is admitted.

    Several calendars are tried, and the first is taken that admits all channels, or else the most.

    Args:
        system: What to plan, from `load_system` or `parse_system`.
        with_advice: Look for changes that help channels that are not admitted, which takes longer than planning.

    Raises:
        PlanError: The periods of hard channels make the calendar too long.

    >>> from genus.can import parse_system
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
    for placement in candidate_placements(system):
        tried = _judge(system, placement)
        if found is None or len(tried.refused) < len(found.refused):
            found = tried
        if not found.refused:
            break
    assert found is not None
    calendar = Calendar(found.calendar.slots, system.bus.sync_period_ns)
    found = msgspec.structs.replace(found, calendar=calendar, collisions=find_collisions(system))
    return _with_advice(found) if with_advice and found.refused else found


def _judge(system: System, placement: Placement) -> Plan:
    times = ResponseTimes(system, placement.calendar)
    verdicts = tuple(
        _refuse_slot(system, channel) if channel.name in placement.left else _verdict(times, channel)
        for channel in system.channels
    )
    if why := _why_no_hard(system):
        verdicts = tuple(_refuse_hard(verdict, why) for verdict in verdicts)
    load = BusLoad((_hard_share(system), *_other_shares(system, times)))
    return Plan(system, placement.calendar, verdicts, load, times.middleware_response_ns)


def _refuse_slot(system: System, channel: ChannelSpec) -> Verdict:
    length_ns = Slot.of(channel, system.bus, system.foreign).length_ns
    reason = f"no room for a slot of {format_bound(length_ns)} every {format_bound(channel.period_ns)}"
    if (reserved := _hard_share(system).reserved) > 1:
        reason += f"; all slots together would take {reserved:.0%} of the bus"
    return Verdict(
        channel=channel.name, qos_class="hard", ok=False, response_ns=None, deadline_ns=length_ns, reason=reason
    )


def _why_no_hard(system: System) -> str:
    """Return why no hard channel can keep its promise, whatever it is; empty if there is no such reason."""
    bus = system.bus
    if winners := unbounded_winners(system):
        return describe_unbounded(winners)
    if 2 * bus.clock_error_ns <= bus.gap_ns:
        return ""
    shorter = msgspec.structs.replace(bus, sync_period_ns=SYNC_PERIOD_NS)
    would_help = bus.sync_period_ns > SYNC_PERIOD_NS and 2 * shorter.clock_error_ns <= bus.gap_ns
    return (
        f"clocks are synchronised to {format_bound(bus.clock_error_ns)}, worse than half the gap of "
        f"{format_bound(bus.gap_ns)}, so it would stop: use a gap of at least "
        f"{format_bound(-(-2 * bus.clock_error_ns // 1000) * 1000)}"
        + (f", or a sync_period of {format_bound(SYNC_PERIOD_NS)}" if would_help else "")
    )


def _refuse_hard(verdict: Verdict, reason: str) -> Verdict:
    if verdict.qos_class != "hard":
        return verdict
    return msgspec.structs.replace(verdict, ok=False, response_ns=None, reason=reason)


def _verdict(times: ResponseTimes, channel: ChannelSpec) -> Verdict:
    response_ns, deadline_ns = times.response_ns(channel), channel.deadline_ns
    if channel.qos_class == "hard":
        deadline_ns = times.calendar.slot(channel.name).length_ns
    reason = ""
    if response_ns is None:
        reason = "no bound: the bus may be busy forever"
    elif deadline_ns is not None and response_ns > deadline_ns:
        reason = f"may take {format_bound(response_ns)}, {format_bound(response_ns - deadline_ns)} too long"
    return Verdict(
        channel=channel.name,
        qos_class=channel.qos_class,
        ok=not reason,
        response_ns=response_ns,
        deadline_ns=deadline_ns,
        reason=reason,
    )


def _hard_share(system: System) -> LoadShare:
    slots = [Slot.of(channel, system.bus, system.foreign) for channel in system.hard]
    return LoadShare(
        "hard",
        sum(slot.used_ns / slot.period_ns for slot in slots),
        sum(slot.busy_ns / slot.period_ns for slot in slots),
        sum(slot.length_ns / slot.period_ns for slot in slots),
    )


def _other_shares(system: System, times: ResponseTimes) -> tuple[LoadShare, ...]:
    soft, none = (sum(each.event_ns / each.period_ns for each in group) for group in (system.soft, system.none))
    return (
        LoadShare("soft", soft, soft),
        LoadShare("none", none, none),
        LoadShare("system", times.middleware_load, times.middleware_load),
        *([LoadShare("foreign", times.foreign_load, times.foreign_load)] if system.foreign else []),
    )


def _doubtful_gap(system: System) -> Iterator[str]:
    """Warn of a gap that is too short for clocks that are synchronised over the bus, to little more than a bit."""
    bus = system.bus
    if system.hard and bus.middleware and bus.gap_ns < GAP_BITS * bus.timing.bit_ns:
        needed = format_bound(-(-GAP_BITS * bus.timing.bit_ns // 1000) * 1000)
        yield (
            f"{system.source}: [bus]: gap is {format_bound(bus.gap_ns)}; clocks are synchronised over the bus to "
            f"little more than a bit, so hard channels may stop; use at least {needed}"
        )


def _doubtful_controllers(system: System) -> Iterator[str]:
    """Warn of classic frames of other makers on a CAN FD bus: their controllers may know no others."""
    classic = next((frame.name for frame in system.foreign if not frame.fd), None) if system.bus.fd else None
    if classic is not None and system.bus.classic_nodes is None:
        yield (
            f"{system.source}: [bus]: {classic} is a classic frame; if its sender knows only classic CAN it destroys "
            "every CAN FD frame. Name such nodes in classic_nodes, or write classic_nodes = [] if there is none"
        )


def _doubtful_omissions(system: System) -> Iterator[str]:
    """Warn of a slot that allows more failures than a station survives."""
    for channel in system.hard:
        if most_errors(channel.omissions, channel.frames) > OFF_ABOVE:
            failures = channel.omissions * channel.frames
            yield (
                f"{system.source}: {channel.name!r} allows {failures} failures in a slot, after which its station may "
                "be off the bus; allow fewer omissions, or send less at a time"
            )


def _with_advice(found: Plan) -> Plan:
    """Look for changes that help; none of a channel helps while no hard channel can keep its promise."""
    system = found.system
    is_won = bool(_why_no_hard(system))
    advice = {
        verdict.channel: advise_channel(system, system.channel(verdict.channel), verdict.response_ns)
        for verdict in found.refused[:MAX_ADVISED]
        if not (is_won and verdict.qos_class == "hard")
    }
    verdicts = tuple(
        msgspec.structs.replace(verdict, advice=advice.get(verdict.channel, ())) for verdict in found.verdicts
    )
    return msgspec.structs.replace(found, verdicts=verdicts, advice=() if is_won else advise_bus(system))
