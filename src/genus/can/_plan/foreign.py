"""Frames of other makers on a planned bus: identifiers that Genus must not use, and the bus time they take.

Frames of two senders must never have the same identifier, so each identifier that a channel or the middleware may have
is compared with those of the others. Their frames also compete for the bus: slots have time for those that win over a
hard frame; one that can win over a soft event counts as long as it can; any other delays an event by one frame at most.
A frame of 11 bits wins over those of 29 bits with the same leading bits.
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from genus.can._plan.system import ChannelSpec, ForeignFrame, System
from genus.can._wire.frame import (
    BROKER_NODE,
    FIRST_NODE,
    LAST_NODE,
    NODE_SHIFT,
    PRIORITY_SHIFT,
    RESERVED_ETAGS,
    Priority,
)


class Collision(msgspec.Struct, frozen=True):
    """An identifier that both Genus and another maker's frame may have, and what to change."""

    foreign: str
    identifier: int
    user: str
    """The channel, or the part of the middleware."""
    advice: str

    def __str__(self) -> str:
        return f"{self.foreign} and {self.user} both use {self.identifier:#010x}; {self.advice}"


class _Identifiers(msgspec.Struct, frozen=True):
    """Identifiers that a part of Genus may have: all of these priorities and event tags, of one node or of all."""

    user: str
    node: int | None
    priorities: range
    etags: range
    advice: str = ""

    def common_with(self, frame: ForeignFrame) -> int | None:
        """Return the first identifier that a frame may have too."""
        if not frame.extended:
            return None
        first = max(self.priorities.start, frame.first >> PRIORITY_SHIFT)
        for priority in range(first, min(self.priorities.stop, (frame.last >> PRIORITY_SHIFT) + 1)):
            for node in range(BROKER_NODE + 1) if self.node is None else (self.node,):
                base = priority << PRIORITY_SHIFT | node << NODE_SHIFT
                low, high = max(frame.first, base | self.etags.start), min(frame.last, base | self.etags.stop - 1)
                if low <= high:
                    return low
        return None


def find_collisions(system: System) -> tuple[Collision, ...]:
    """Return the identifiers of a system that frames of others have too, each with what to change."""
    return tuple(_collisions(system, _identifiers(system)))


def _collisions(system: System, used: Iterable[_Identifiers]) -> Iterator[Collision]:
    for part in used:
        for frame in system.foreign:
            identifier = part.common_with(frame)
            if identifier is not None:
                yield Collision(frame.name, identifier, part.user, part.advice or _advise_number(system, part))


def _identifiers(system: System) -> Iterator[_Identifiers]:
    for channel in system.channels:
        yield _of_channel(channel)
    if system.bus.middleware:
        for name, number in system.nodes.items():
            yield _of_node(name, number)
        system_band = range(Priority.SYSTEM, Priority.SYSTEM + 1)
        etags = range(RESERVED_ETAGS)
        yield _Identifiers("the broker", BROKER_NODE, system_band, etags, "change the foreign identifier")
        yield _Identifiers(
            "configuration and binding",
            None,
            range(Priority.PROTOCOL, Priority.PROTOCOL + 1),
            etags,
            "change the foreign identifier, or run without a broker, and write middleware = false",
        )


def _of_channel(channel: ChannelSpec) -> _Identifiers:
    bands = {
        "hard": range(Priority.HARD, Priority.HARD + 1),
        "soft": range(Priority.SOFT_FIRST, Priority.SOFT_LAST + 1),
        "none": range(Priority.NONE + channel.priority, Priority.NONE + channel.priority + 1),
    }
    etags = range(channel.etag, channel.etag + (1 << channel.tagged))
    return _Identifiers(f"channel {channel.name!r}", channel.number, bands[channel.qos_class], etags)


def _of_node(name: str, number: int) -> _Identifiers:
    band = range(Priority.SYSTEM, Priority.SYSTEM + 1)
    return _Identifiers(f"the middleware of node {name!r}", number, band, range(RESERVED_ETAGS))


def _advise_number(system: System, part: _Identifiers) -> str:
    """Another number for the node of a part of Genus, with which nothing of that node collides."""
    name = next(name for name, number in system.nodes.items() if number == part.node)
    mine = [_of_channel(channel) for channel in system.channels if channel.number == part.node]
    mine += [_of_node(name, part.node or 0)] if system.bus.middleware else []
    for number in range(FIRST_NODE, LAST_NODE + 1):
        moved = [msgspec.structs.replace(each, node=number) for each in mine]
        is_free = number not in system.nodes.values()
        if is_free and all(each.common_with(frame) is None for each in moved for frame in system.foreign):
            return f"give node {name!r} another number: [nodes] {name} = {number}"
    return "no number of its node avoids that: change the foreign identifier, or the channel's class"


def unbounded_winners(system: System) -> list[ForeignFrame]:
    """Return the frames of others that win over a hard frame, and of which it is not known how often they come."""
    last = max((channel.id for channel in system.hard), default=-1)
    return [frame for frame in system.foreign if frame.rank < last and frame.period_ns is None]


def describe_unbounded(winners: Sequence[ForeignFrame]) -> str:
    """Why hard channels are refused, and what to change."""
    names = ", ".join(frame.name for frame in winners[:3]) + (" and others" if len(winners) > 3 else "")
    return (
        f"{names} can win over a hard frame, and it is not known how often: write the shortest time between two frames "
        f"(period of [[foreign]], foreign_interval of [bus]), or use identifiers from {1 << PRIORITY_SHIFT:#010x} on, "
        "or 11-bit ones from 0x008 on"
    )
