"""What becomes of the events of each channel of a segment, from the sensor that publishes them to who gets them."""

from collections.abc import Hashable, Iterator

import msgspec

from genus.can._node.troubles import DeadlineMissed, EventMissing, Expired, NotSent, Trouble
from genus.can._plan import Plan, Slot
from genus.can._plan.system import ChannelSpec
from genus.model import Event, name_of
from genus_traffic.results import ChannelRow
from genus_traffic.segment.plan import POSTS, channel_name
from genus_traffic.types import Occupancy

HEARTBEAT = name_of(Occupancy)


class Sending(msgspec.Struct, frozen=True):
    """A soft event on its way: instants of virtual time in nanoseconds, None if it never came."""

    channel: str
    published_ns: int
    delivered_ns: int | None
    deadline_ns: int


class Entry:
    """State: the events of one channel."""

    def __init__(self, channel: ChannelSpec, bound_ns: int | None, slot: Slot | None) -> None:
        self.channel = channel
        self.slot = slot
        self.bound_ns = bound_ns if slot is None else slot.length_ns
        """Hard events are handed over at the end of their slot, never before."""
        self.published = self.delivered = self.filtered = self.alarms = 0
        self.worst_ns = 0
        self.sendings: list[Sending] = []
        """Those that came, in this order."""
        self._under_way: dict[Hashable, int] = {}
        self._troubled: set[Hashable] = set()

    def was_published(self, event: Event, now: int) -> None:
        """A sensor published an event, at this instant of virtual time."""
        self.published += 1
        if self.slot is None:
            self._under_way[_key(event)] = now

    def has_arrived(self, event: Event, now: int) -> None:
        """The gateway, which listens to everything, has got an event: it is on its way no more."""
        published = self._under_way.pop(_key(event), None)
        if published is None:
            return
        self.worst_ns = max(self.worst_ns, now - published)
        if self.channel.deadline_ns is not None:
            deadline = published + self.channel.deadline_ns
            self.sendings.append(Sending(self.channel.name, published, now, deadline))

    def was_due(self, took_ns: int) -> None:
        """A program got a hard event, so long after the start of its slot."""
        self.worst_ns = max(self.worst_ns, took_ns)

    def heed(self, trouble: Trouble) -> None:
        """The sensor was told that a promise was not kept; an event counts once."""
        if isinstance(trouble, DeadlineMissed | Expired | NotSent):
            self._troubled.add(_key(trouble.event))

    @property
    def missed(self) -> int:
        """Events that were not there in time, or at all."""
        if self.slot is not None:
            return self.alarms
        return len(self._troubled | self._under_way.keys())

    def lost(self) -> Iterator[Sending]:
        """Soft events that never came."""
        if self.channel.deadline_ns is not None:
            for published in self._under_way.values():
                yield Sending(self.channel.name, published, None, published + self.channel.deadline_ns)

    def row(self, site: str) -> ChannelRow:
        """The entry, to be shown."""
        return ChannelRow(
            site=site,
            channel=self.channel.name,
            qos=self.channel.qos_class,
            published=self.published,
            delivered=self.delivered,
            filtered=self.filtered,
            missed=self.missed,
            worst_us=_us(self.worst_ns),
            bound_us=None if self.bound_ns is None else _us(self.bound_ns),
        )


class ChannelBook:
    """State: the entries of all channels of a segment, and the span of the bus's time in which slots are used."""

    def __init__(self, plan: Plan) -> None:
        slots = {slot.channel: slot for slot in plan.calendar.slots}
        self.entries = {
            channel.name: Entry(channel, plan.verdict(channel.name).response_ns, slots.get(channel.name))
            for channel in plan.system.channels
        }
        self._slots = plan.calendar.slots
        self.slots_from_ns = self.slots_until_ns = 0

    def entry(self, cls: type[Event], node: str) -> Entry:
        """That of what a node publishes of a class."""
        return self.entry_of(name_of(cls), node)

    def entry_of(self, event: str, node: str) -> Entry:
        """The same by the name of the class; a heartbeat belongs to the post, whoever has it."""
        return self.entries[channel_name(event, POSTS[node] if event == HEARTBEAT else node)]

    def due_at(self, bus_ns: int) -> tuple[Entry, int]:
        """The hard channel whose slot ended last by then, and how long before then that slot began."""
        began = {slot: bus_ns - slot.next_deadline(bus_ns - slot.period_ns + 1).start_ns for slot in self._slots}
        slot = min(began, key=lambda slot: began[slot] - slot.length_ns)
        return self.entries[slot.channel], began[slot]

    def missing(self, trouble: EventMissing) -> Entry | None:
        """The channel whose event did not come; None if none was to come then."""
        entry, passed_ns = self.due_at(trouble.deadline_ns)
        start_ns = trouble.deadline_ns - passed_ns
        return entry if self.slots_from_ns <= start_ns <= self.slots_until_ns else None

    def sendings(self) -> Iterator[Sending]:
        """All soft events."""
        for entry in self.entries.values():
            yield from entry.sendings
            yield from entry.lost()


def _key(event: Event) -> Hashable:
    """What tells an event of a channel from all others; values may be rounded on the wire, instants are not."""
    return event.time, getattr(event, "lane", None)


def _us(ns: int) -> float:
    """Microseconds, as finely as clocks can be read."""
    return round(ns / 1000, 1)
