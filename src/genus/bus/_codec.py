"""Events as bytes, in recordings and between processes.

A packet is a msgpack array of the type's name, the time of recording (microseconds since 1970, UTC) and a map of the
attributes that are present. Decoding never raises: a packet that is no event of a known type gives a reason. A packet
may also state the units of a type's attributes, for the packets after it: its type name is `units of NAME`, and its map
has the unit of each attribute.
"""

from collections.abc import Iterable, Mapping

import msgspec

from genus.bus._attribute_map import UNITS_OF, MapReader, UnreadValues, decode_units
from genus.errors import EventError
from genus.model import Event, check, is_event_type, name_of, subtypes

_encode = msgspec.msgpack.Encoder().encode


class Recorded(msgspec.Struct, frozen=True):
    """An event and its time of recording, in microseconds since 1970."""

    at_us: int
    event: Event


class UnitsStated(msgspec.Struct, frozen=True):
    """The units of a type's attributes in the packets that follow."""

    type: str
    units: Mapping[str, str]


class Rejected(msgspec.Struct, frozen=True):
    """Why a packet is not an event."""

    reason: str


def encode_event(event: Event, at_us: int) -> bytes:
    """Encode an event as a packet; EventError names the value that cannot be encoded."""
    try:
        return _encode((name_of(type(event)), at_us, event))
    except Exception as problem:
        check(event)
        raise EventError(f"{event!r} cannot be encoded: {problem}") from problem


class EventDecoder:
    """Decodes packets of the given types and their subtypes, or of all declared types.

    State: the units stated so far, and in `unread` how many values were left out, because the class has no attribute
    for them.

    >>> from genus import Event
    >>> class Lamp(Event):
    ...     on: bool
    >>> decoder = EventDecoder([Lamp])
    >>> decoder.decode(encode_event(Lamp(on=True), 7))
    Recorded(at_us=7, event=Lamp(on=True))
    >>> decoder.decode(b"nonsense")
    Rejected(reason='not a packet')
    """

    def __init__(self, types: Iterable[type] | None = None) -> None:
        self._given = None if types is None else [cls for root in types for cls in subtypes(root)]
        self._open = msgspec.msgpack.Decoder(tuple[str, int, msgspec.Raw]).decode
        self._decoders: dict[str, msgspec.msgpack.Decoder[Event] | MapReader] = {}
        self._maps: dict[str, MapReader] = {}
        self.unread = UnreadValues()

    def decode(self, packet: bytes | memoryview) -> Recorded | Rejected | UnitsStated:
        """Decode a packet; returns the event or the units in it, or the reason why there is neither."""
        try:
            name, at_us, body = self._open(packet)
        except Exception:
            return Rejected("not a packet")
        decoder = self._decoders.get(name) or self._find(name)
        if decoder is None:
            return self._state_units(name, body) or Rejected(f"unknown type {name}")
        try:
            return Recorded(at_us, decoder.decode(body))
        except Exception as problem:  # also what a class's own __post_init__ raises
            return self._decode_map(name, at_us, body, problem)

    def _decode_map(self, name: str, at_us: int, body: msgspec.Raw, problem: Exception) -> Recorded | Rejected:
        """Decode an event of a class of another age; the given problem is the reason if it is of the same."""
        reader = self._maps[name]
        if reader.converts:  # it was read by its map
            return Rejected(f"not a {name}: {problem}")
        try:
            return Recorded(at_us, reader.decode(body, problem))
        except Exception as other:
            return Rejected(f"not a {name}: {other}")

    def _state_units(self, name: str, body: msgspec.Raw) -> UnitsStated | None:
        """Convert values of a type from these units from now on; None if the packet states none."""
        type_ = name.removeprefix(UNITS_OF)
        units = decode_units(body) if type_ != name else None
        if units is None:
            return None
        if (self._decoders.get(type_) or self._find(type_)) is not None:
            self._use(MapReader(self._maps[type_].type, self.unread, units))
        return UnitsStated(type_, units)

    def _use(self, reader: MapReader) -> None:
        name = name_of(reader.type)
        self._maps[name] = reader
        self._decoders[name] = reader if reader.converts else msgspec.msgpack.Decoder(reader.type)

    def _find(self, name: str) -> "msgspec.msgpack.Decoder[Event] | MapReader | None":
        known = self._given if self._given is not None else subtypes(Event)
        found = [cls for cls in known if is_event_type(cls) and name_of(cls) == name]
        if not found:
            return None
        self._use(MapReader(found[-1], self.unread))
        return self._decoders[name]
