"""Synthetic event types for the channels of a system, so that real nodes can announce, publish and subscribe to them.

A system file says how many bytes an event has, not what they mean. So each event gets a class whose payload has exactly
that length: a running number, by which every event is recognised on the bus, and filling. Classes are registered in the
order of the event tags they replace, and the system is planned with the new event tags: in an identifier the event tag
decides between channels of one node, and that order stays.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from random import Random
from typing import Annotated, Any

import msgspec

from genus.can._plan.system import ChannelSpec, System
from genus.catalog import Catalog
from genus.model import Event, UInt8, UInt16, UInt32

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
        """The event with a number."""
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
    """A class whose events take `size` bytes; `open_ended` if they might take more for all a node knows.

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
    """A type's name for every event: the event's own, with _ for what no name may have."""
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
