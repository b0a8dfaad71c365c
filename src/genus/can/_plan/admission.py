"""The plan of a system: a calendar, a verdict for every channel, and advice for those that are not admitted.

Advice are changes that were tried by planning again, and help.
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Literal, TypeAlias

import msgspec

from genus.can._plan.calendar import Calendar, Placement, Slot, most_errors, placements
from genus.can._plan.foreign import Collision, describe_unbounded, find_collisions, unbounded_winners
from genus.can._plan.response_times import ResponseTimes
from genus.can._plan.system import ChannelSpec, QosName, System, format_bitrate, format_bound
from genus.can._protocol.clock_model import SYNC_PERIOD_NS
from genus.can._wire.frame import OFF_ABOVE
from genus.errors import PlanError

MAX_PLACEMENTS = 3
"""The most complete calendars that are tried."""

_MULTIPLES = (2, 3, 4, 5, 8, 10, 16, 20)
_BITRATES = (125_000, 250_000, 500_000, 800_000, 1_000_000)
_DATA_BITRATES = (2_000_000, 4_000_000, 5_000_000, 8_000_000)
_BISECTIONS = 5


class Advice(msgspec.Struct, frozen=True):
    """One change that helps: a key of a channel, or of the bus if `channel` is None, and its new value.

    Times are in nanoseconds. The key `load` means all times between soft and other events; its value is the percentage
    by which they must be longer. The key `attribute` means to publish without an optional attribute, which is named;
    its value is how many channels are shorter then. `text` says the change in words.
    """

    key: Literal["omissions", "size", "period", "deadline", "bitrate", "data_bitrate", "load", "attribute"]
    value: int
    text: str
    channel: str | None = None
    attribute: str | None = None

    def apply(self, system: System) -> System:
        """Return the system with this change."""
        if self.attribute is not None:
            return _leave_out(system, self.attribute)
        if self.channel is not None:
            field = {"period": "period_ns", "deadline": "deadline_ns"}.get(self.key, self.key)
            return system.with_channel(self.channel, **{field: self.value})
        if self.key == "load":
            return _stretch(system, self.value)
        timing = msgspec.structs.replace(system.bus.timing, **{self.key: self.value})
        return system.on_bus(msgspec.structs.replace(system.bus, timing=timing))


def candidate_placements(system: System) -> Iterator[Placement]:
    """Calendars to choose from: a few with all slots, or the one that leaves out the fewest."""
    complete = list(islice((each for each in placements(system) if not each.left), MAX_PLACEMENTS))
    yield from complete or [min(placements(system), key=lambda placement: len(placement.left))]


def advise_channel(system: System, channel: ChannelSpec, response_ns: int | None) -> tuple[Advice, ...]:
    """Changes of a channel, each of which is enough to admit it."""
    options = [_deadline(system, channel, response_ns), _omissions(system, channel)]
    options += [_attribute(system, channel), _size(system, channel), _period(system, channel)]
    return tuple(option for option in options if option is not None)


def advise_bus(system: System) -> tuple[Advice, ...]:
    """Changes of the bus or of all its load, each of which is enough to admit everything."""
    return tuple(option for option in (_bitrate(system), _load(system)) if option is not None)


def _fits(name: str, system: System) -> bool:
    try:
        return any(
            name not in placement.left
            and ResponseTimes(system, placement.calendar).meets_deadline(system.channel(name))
            for placement in candidate_placements(system)
        )
    except PlanError:
        return False


def _all_fit(system: System) -> bool:
    try:
        return any(
            not placement.left and all(map(ResponseTimes(system, placement.calendar).meets_deadline, system.channels))
            for placement in candidate_placements(system)
        )
    except PlanError:
        return False


def _helps(system: System, advice: Advice) -> bool:
    return advice.channel is not None and _fits(advice.channel, advice.apply(system))


def _deadline(system: System, channel: ChannelSpec, response_ns: int | None) -> Advice | None:
    if channel.deadline_ns is None or response_ns is None:
        return None
    return _find_least(partial(_longer_deadline, system, channel), max(response_ns, channel.deadline_ns))


def _longer_deadline(system: System, channel: ChannelSpec, deadline_ns: int) -> Advice | None:
    advice = Advice("deadline", deadline_ns, f"a deadline of at least {format_bound(deadline_ns)}", channel.name)
    return advice if _helps(system, advice) else None


def _omissions(system: System, channel: ChannelSpec) -> Advice | None:
    for omissions in range(channel.omissions - 1, -1, -1):
        advice = Advice("omissions", omissions, f"at most {omissions} omissions", channel.name)
        if _helps(system, advice):
            return advice
    return None


def _attribute(system: System, channel: ChannelSpec) -> Advice | None:
    """The newest attribute without which it fits: events of this channel are shorter then, or those of others."""
    for attribute, sizes in system.sizes_without.items():
        changes = ", ".join(_describe_size(system, name, size) for name, size in sizes.items())
        advice = Advice("attribute", len(sizes), f"without {attribute}: {changes}", channel.name, attribute)
        if _helps(system, advice):
            return advice
    return None


def _leave_out(system: System, attribute: str) -> System:
    for name, size in system.sizes_without[attribute].items():
        system = system.with_channel(name, size=size)
    return system


def _describe_size(system: System, name: str, size: int) -> str:
    channel, shorter = system.channel(name), system.with_channel(name, size=size).channel(name)
    frames = f"{shorter.frames} frame{'s' if shorter.frames > 1 else ''}"
    return f"{name} takes {size} bytes in {frames} instead of {channel.size} in {channel.frames}"


def _size(system: System, channel: ChannelSpec) -> Advice | None:
    low, high, found = 0, channel.size - 1, None
    while low <= high:
        size = (low + high) // 2
        advice = Advice("size", size, f"at most {size} bytes", channel.name)
        if _helps(system, advice):
            low, found = size + 1, advice
        else:
            high = size - 1
    return found


def _period(system: System, channel: ChannelSpec) -> Advice | None:
    if channel.qos_class != "hard":
        return _find_least(partial(_longer_period, system, channel), channel.period_ns)
    longer = (_longer_period(system, channel, multiple * channel.period_ns) for multiple in _MULTIPLES)
    return next((advice for advice in longer if advice is not None), None)


def _longer_period(system: System, channel: ChannelSpec, period_ns: int) -> Advice | None:
    advice = Advice("period", period_ns, f"a period of at least {format_bound(period_ns)}", channel.name)
    return advice if _helps(system, advice) else None


def _find_least(attempt: Callable[[int], Advice | None], from_ns: int) -> Advice | None:
    """Return the advice for the shortest time that helps, up to sixteen times as long."""
    low = from_ns
    for doublings in range(5):
        high = _round_up(from_ns << doublings)
        if found := attempt(high):
            break
        low = high
    else:
        return None
    for _ in range(_BISECTIONS):
        middle = _round_up((low + high) // 2)
        if middle >= high:
            break
        if better := attempt(middle):
            high, found = middle, better
        else:
            low = middle
    return found


def _round_up(span_ns: int) -> int:
    """Return a time rounded up to two significant digits.

    >>> _round_up(1_234_567), _round_up(1_200_000)
    (1300000, 1200000)
    """
    step = int("1".ljust(len(str(span_ns)) - 1, "0"))
    return -(-span_ns // step) * step


def _bitrate(system: System) -> Advice | None:
    timing = system.bus.timing
    options = [
        Advice("bitrate", rate, f"at {format_bitrate(rate)} everything fits")
        for rate in _BITRATES
        if timing.bitrate < rate <= (timing.data_bitrate or rate)
    ]
    options += [
        Advice("data_bitrate", rate, f"with CAN FD at {format_bitrate(rate)} everything fits")
        for rate in (() if system.bus.classic_nodes else _DATA_BITRATES)
        if rate > max(timing.data_bitrate or 0, timing.bitrate)
    ]
    return next((option for option in options if _all_fit(option.apply(system))), None)


def _load(system: System) -> Advice | None:
    """By how much the time between soft and other events must be longer."""
    low, high, found = 0, 400, None
    while high - low > 1:
        percent = (low + high) // 2
        text = f"everything fits if the time between soft and other events is {percent} % longer"
        advice = Advice("load", percent, text)
        if _all_fit(advice.apply(system)):
            high, found = percent, advice
        else:
            low = percent
    return found


def _stretch(system: System, percent: int) -> System:
    channels = (
        channel
        if channel.qos_class == "hard"
        else msgspec.structs.replace(channel, period_ns=channel.period_ns * (100 + percent) // 100)
        for channel in system.channels
    )
    return msgspec.structs.replace(system, channels=tuple(channels))


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
