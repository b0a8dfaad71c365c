"""Synthetic programs of a system's nodes: their event types, when they publish, and the programs themselves.

A system file says how many bytes an event has, not what they mean. So each event gets a class whose payload has exactly
that length: a running number, by which every event is recognised on the bus, and filling. Classes are registered in the
order of the event tags they replace, and the system is planned with the new event tags: in an identifier the event tag
decides between channels of one node, and that order stays.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import count
from random import Random
from typing import Annotated, Any, Literal, TypeAlias, get_args

import msgspec

from genus.bus import Bus, EventChannel, open_bus
from genus.can._node.problems import HardResumed, HardStopped
from genus.can._plan.calendar import Calendar, Slot
from genus.can._plan.system import ChannelSpec, System
from genus.can._world.world import World
from genus.catalog import Catalog
from genus.errors import BusError, QueueFull
from genus.model import Event, UInt8, UInt16, UInt32
from genus.model.internal import hide_declared

SHORTEST = 2
"""The header of an event and its number."""
_SHORT = 254
"""The longest bytes whose length takes one byte; that of longer ones takes three."""
_WHOLE = ((4, UInt32), (2, UInt16), (1, UInt8))
"""Attributes of fixed size, the largest first."""
_FIXED_ROOM = 8
"""So much is filled with attributes of fixed size, more with bytes."""


class StandIn(msgspec.Struct, frozen=True):
    """The class of one event, and how to fill it."""

    cls: type[Any]
    width: int
    """The bytes of the running number."""
    filling: Mapping[str, Any]

    def make(self, number: int) -> Event:
        made: Event = self.cls(**self.filling, number=number)
        return made


class TypedSystem(msgspec.Struct, frozen=True):
    """A system whose channels have event types: names, sizes and event tags are those of the classes."""

    system: System
    catalog: Catalog
    stand_ins: Mapping[str, StandIn]
    """By the event's name."""


def with_types(system: System) -> TypedSystem:
    """The system with a class for every event; it differs from the one given in names and numbers of events only.

    An event that several nodes publish has one class, as long as the longest of them. An event is two bytes at least.
    """
    names = _names(system)
    catalog = Catalog()
    stand_ins: dict[str, StandIn] = {}
    for event in sorted(names, key=lambda event: min(c.etag for c in system.channels if c.event == event)):
        channels = [channel for channel in system.channels if channel.event == event]
        stand_ins[names[event]] = made = stand_in(names[event], _size(channels), _open_ended(channels))
        catalog.register(made.cls)
    catalog.give_etags(*names.values())
    channels = [_typed(channel, names[channel.event], system, catalog) for channel in system.channels]
    return TypedSystem(msgspec.structs.replace(system, channels=tuple(channels)), catalog, stand_ins)


def _typed(channel: ChannelSpec, name: str, system: System, catalog: Catalog) -> ChannelSpec:
    alike = [other for other in system.channels if other.event == channel.event]
    return msgspec.structs.replace(
        channel,
        event=name,
        etag=catalog.etag(name),
        size=_size(alike),
        segmented=_open_ended(alike),
    ).on_bus(system.bus)


def _open_ended(channels: list[ChannelSpec]) -> bool:
    """Whether events go in segments though one frame may hold them; a hard event has a known size and does not."""
    hard = any(channel.qos_class == "hard" for channel in channels)
    return not hard and any(channel.segmented for channel in channels)


def _size(channels: list[ChannelSpec]) -> int:
    return max(SHORTEST + _open_ended(channels), *(channel.size for channel in channels))


@lru_cache(maxsize=4096)
def stand_in(name: str, size: int, open_ended: bool = False) -> StandIn:
    """Return a class whose events take `size` bytes; `open_ended` if they might take more for all a node knows.

    >>> stand_in("Loop", 8).make(7)
    Loop(number=7, filling_0=40167, filling_1=200)
    """
    room = size - 1 - open_ended
    width, note = next(whole for whole in _WHOLE if whole[0] <= room)
    notes: dict[str, Any] = {"number": note}
    filling: dict[str, Any] = {}
    random = Random(f"{name}/{size}")
    for place, (note, length) in enumerate(_fillings(size - 1 - width, open_ended)):
        notes[f"filling_{place}"] = note
        drawn = random.randbytes(length)
        filling[f"filling_{place}"] = int.from_bytes(drawn, "big") if _is_whole(note) else drawn
    return StandIn(_declare(name, notes), width, filling)


def _declare(name: str, notes: dict[str, Any]) -> type[Event]:
    metaclass: Any = type(Event)
    namespace = {"__annotations__": notes, "__module__": __name__, "__doc__": f"Stands in for {name}."}
    made: type[Event] = metaclass(name.rpartition(".")[2], (Event,), namespace, name=name)
    hide_declared(name, made)
    return made


def _fillings(size: int, open_ended: bool) -> Iterator[tuple[Any, int]]:
    """Attributes that take `size` bytes together, each with the bytes of its value."""
    while open_ended or size > _FIXED_ROOM:
        length = size - 1 if size <= _SHORT + 1 else size - 3 if size >= _SHORT + 4 else _SHORT
        yield bytes if open_ended else Annotated[bytes, msgspec.Meta(max_length=length)], length
        size -= length + (1 if length <= _SHORT else 3)
        open_ended = False
    for width, note in _WHOLE:
        for _ in range(size // width):
            yield note, width
        size %= width


def _is_whole(note: Any) -> bool:
    return any(note is whole for _, whole in _WHOLE)


def _names(system: System) -> dict[str, str]:
    """Return a type's name for every event: the event's own, with _ for what no name may have."""
    names: dict[str, str] = {}
    for channel in system.channels:
        if channel.event not in names:
            names[channel.event] = _free(channel.event, set(names.values()))
    return names


def _free(event: str, taken: set[str]) -> str:
    spelled = "".join(letter if letter.isalnum() or letter in "._" else "_" for letter in event)
    name = ".".join(part if part.isidentifier() else f"_{part}" for part in spelled.split("."))
    while name in taken or name == "Event":
        name += "_"
    return name


# -- when they are published -------------------------------------------------------------------------------------------

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


# -- programs ----------------------------------------------------------------------------------------------------------

LEAD_NS = 200_000
"""How long before its slot a hard event is published, or a quarter of the period if that is less."""
SPORADIC_USE = 0.5
"""The share of slots that synthetic programs use of a sporadic hard channel."""


class SyntheticProgram:
    """State: the program of one node: it publishes the node's channels and subscribes to what the node receives."""

    def __init__(self, world: World, name: str, typed: TypedSystem, calendar: Calendar) -> None:
        self.name = name
        self.is_set_up = self.is_over = False
        self._world = world
        self._chance = Random(f"{world.seed}/sporadic {name}")
        """Which slots of sporadic channels are used."""
        self._bus: Bus = open_bus(f"sim:{world.name}?name={name}")
        self._is_stopped = False
        """Whether the node's clock is not precise enough for slots."""
        system, stand_ins = typed.system, typed.stand_ins
        self._slots = {slot.channel: slot for slot in calendar.slots}
        self._published = [
            channel
            for channel in system.channels
            if channel.node == name and (channel.qos_class != "hard" or channel.name in self._slots)
        ]
        self._sources = {channel.name: _Numbered(channel, system, stand_ins) for channel in self._published}
        self._channels: dict[str, EventChannel[Event]] = {}
        for cls in dict.fromkeys(stand_ins[each.event].cls for each in system.channels if name in each.subscribers):
            self._bus.collection(cls).subscribe(_ignore, on_problem=self._handle)

    @property
    def others(self) -> list[ChannelSpec]:
        return [channel for channel in self._published if channel.qos_class != "hard"]

    def set_up(self, longest_ns: int) -> None:
        """Announce all channels; while the broker does not answer, try again."""
        for channel in self._published:
            cls = self._sources[channel.name].cls
            event_channel = self._bus.channel(cls, channel.qos, on_problem=self._handle)
            while self._channels.get(channel.name) is None and self._world.now_ns < longest_ns:
                try:
                    event_channel.announce()
                    self._channels[channel.name] = event_channel
                except BusError:
                    self._bus.sleep("10ms")
        self.is_set_up = True

    def close(self) -> None:
        """Withdraw all channels, with final reports, by which subscribers learn what they missed."""
        if self._world.stations[self.name].is_up:
            for channel in self._channels.values():
                channel.cancel()

    def publish_at(self, channel: ChannelSpec, instants: Iterator[int], until_ns: int) -> None:
        """Publish the events of a channel at these virtual times."""
        at = next(instants, None)
        if at is None or at >= until_ns:
            return

        def release() -> None:
            self._publish(channel)
            self.publish_at(channel, instants, until_ns)

        self._world.at_ns(max(at, self._world.now_ns), release)

    def serve_slots(self, begin_ns: int) -> None:
        """Publish an event shortly before each slot of this node, from a time of the bus on."""
        for channel in self._published:
            if channel.qos_class == "hard":
                slot = self._slots[channel.name]
                self._serve(channel, slot, slot.next_start(begin_ns).start_ns)

    def _serve(self, channel: ChannelSpec, slot: Slot, start_ns: int) -> None:
        lead = min(LEAD_NS, slot.period_ns // 4)
        deadline = start_ns + slot.length_ns
        window = self._world.observation.window
        if deadline > window.end_ns:
            return

        def write() -> None:
            is_used = not channel.sporadic or self._chance.random() < SPORADIC_USE
            if is_used and not self._is_stopped and window.holds(start_ns, deadline):
                self._publish(channel)
            after = max(start_ns + 1, self._bus.time_ns() + lead + 1 - slot.period_ns)
            self._serve(channel, slot, slot.next_start(after).start_ns)

        self._bus.call_at(start_ns - lead, write)

    def _publish(self, channel: ChannelSpec) -> None:
        """Publish the next event of a channel, if the channel is bound and the node is up."""
        event_channel = self._channels.get(channel.name)
        station = self._world.stations[self.name]
        if self.is_over or event_channel is None or not station.may_publish(self._sources[channel.name].cls):
            return
        try:
            event_channel.publish(self._sources[channel.name].next_event())
        except QueueFull:
            return  # the world counts it

    def _handle(self, problem: object) -> None:
        if isinstance(problem, HardStopped | HardResumed):
            self._is_stopped = isinstance(problem, HardStopped)


class _Numbered:
    """State: the running number of a channel's events; numbers of several publishers of one event do not collide."""

    def __init__(self, channel: ChannelSpec, system: System, stand_ins: Mapping[str, StandIn]) -> None:
        alike = [other.name for other in system.channels if other.event == channel.event]
        self._stand_in = stand_ins[channel.event]
        self.cls = self._stand_in.cls
        self._first, self._step = alike.index(channel.name), len(alike)
        self._range = (1 << 8 * self._stand_in.width) // self._step
        self._numbers = count()

    def next_event(self) -> Event:
        return self._stand_in.make(next(self._numbers) % self._range * self._step + self._first)


def _ignore(event: Event) -> None:
    """The world counts deliveries."""
