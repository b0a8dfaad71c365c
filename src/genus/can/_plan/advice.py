"""Advice for channels that are not admitted: changes that were tried by planning again, and help."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Literal

import msgspec

from genus.can._plan.calendar import Placement, placements
from genus.can._plan.response_times import ResponseTimes
from genus.can._plan.system import ChannelSpec, System, format_bitrate, format_bound
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
