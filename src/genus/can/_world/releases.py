"""Release patterns: when synthetic programs publish (periodic, sporadic or simultaneous), within period and jitter.

Hard events are published shortly before their slots, so patterns are for the others.
"""

from collections.abc import Iterator, Sequence
from itertools import count
from random import Random
from typing import Literal, TypeAlias, get_args

import msgspec

from genus.can._plan.calendar import Calendar
from genus.can._plan.system import ChannelSpec, System

Pattern: TypeAlias = Literal["periodic", "together", "sporadic"]
"""When simulated programs publish: with random phases, all at once when a slot starts, or with random pauses."""
PATTERNS: tuple[Pattern, ...] = get_args(Pattern)
"""All values of `Pattern`."""

SPORADIC_SHARE = 4
"""The mean random delay of sporadic events is the period divided by this."""
ROUND_PERIODS = 2
"""The length of a round of simultaneous releases, in longest periods."""


class Rounds(msgspec.Struct, frozen=True):
    """The times at which all programs publish at once, and how long each round lasts."""

    starts: Sequence[int]
    length_ns: int

    @classmethod
    def of(cls, system: System, calendar: Calendar, begin_ns: int, end_ns: int, random: Random) -> "Rounds":
        """Rounds that begin with a randomly chosen hard slot, and leave each channel its period."""
        others = [channel for channel in system.channels if channel.qos_class != "hard"]
        longest = max((channel.period_ns + channel.jitter_ns for channel in others), default=1)
        offsets = [start for start, _ in calendar.starts_in_cycle()] or [0]
        cycle = calendar.cycle_ns or 1
        starts, after = [], begin_ns
        while after < end_ns:
            offset = random.choice(offsets)
            starts.append(after + (offset - after) % cycle)
            after = starts[-1] + ROUND_PERIODS * longest + longest
        return cls(starts, ROUND_PERIODS * longest)


def releases(
    channel: ChannelSpec, pattern: Pattern, begin_ns: int, rounds: Rounds, random: Random, head_start_ns: int = 0
) -> Iterator[int]:
    """The times at which a channel's program publishes, from `begin_ns` on, without end or as long as rounds last.

    With `together`, a program with a head start is that much earlier than the others.
    """
    if pattern == "together":
        return _together(channel, rounds, head_start_ns)
    if pattern == "sporadic":
        return _in_order(_late(_sporadic(channel, begin_ns, random), channel, random))
    first = begin_ns + random.randrange(channel.period_ns)
    return _in_order(_late(count(first, channel.period_ns), channel, random))


def _together(channel: ChannelSpec, rounds: Rounds, head_start_ns: int) -> Iterator[int]:
    """The first event of a round is as late as its jitter allows and the others are not: the closest they can be."""
    for start in rounds.starts:
        first = start - head_start_ns
        yield first
        for due in range(first + channel.period_ns - channel.jitter_ns, start + rounds.length_ns, channel.period_ns):
            yield max(first, due)


def _sporadic(channel: ChannelSpec, begin_ns: int, random: Random) -> Iterator[int]:
    instant = begin_ns + random.randrange(channel.period_ns)
    while True:
        yield instant
        instant += channel.period_ns + round(random.expovariate(SPORADIC_SHARE / channel.period_ns))


def _late(instants: Iterator[int], channel: ChannelSpec, random: Random) -> Iterator[int]:
    if not channel.jitter_ns:
        return instants
    return (instant + random.randint(0, channel.jitter_ns) for instant in instants)


def _in_order(instants: Iterator[int]) -> Iterator[int]:
    """Keep the times in order: an event that jitter delays does not overtake the next."""
    last = 0
    for instant in instants:
        last = max(last, instant)
        yield last
