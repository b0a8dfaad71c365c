"""Events as bytes, in recordings and between processes.

A packet is a msgpack array of the type's name, the time of recording (microseconds since 1970, UTC) and a map of the
attributes that are present. Decoding never raises: a packet that is no event of a known type gives a reason.
"""

from collections.abc import Iterable

import msgspec

from genus.errors import EventError
from genus.model import Event, below, check, is_event_type, name_of

_encode = msgspec.msgpack.Encoder().encode


class Recorded(msgspec.Struct, frozen=True):
    """An event and its time of recording, in microseconds since 1970."""

    at_us: int
    event: Event


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
        self._given = None if types is None else [cls for root in types for cls in below(root)]
        self._open = msgspec.msgpack.Decoder(tuple[str, int, msgspec.Raw]).decode
        self._decoders: dict[str, msgspec.msgpack.Decoder[Event]] = {}

    def decode(self, packet: bytes | memoryview) -> Recorded | Rejected:
        """Decode a packet; returns the event, or the reason why it is none."""
        try:
            name, at_us, body = self._open(packet)
        except Exception:
            return Rejected("not a packet")
        decoder = self._decoders.get(name) or self._find(name)
        if decoder is None:
            return Rejected(f"unknown type {name}")
        try:
            return Recorded(at_us, decoder.decode(body))
        except Exception as problem:  # also what a class's own __post_init__ raises
            return Rejected(f"not a {name}: {problem}")

    def _find(self, name: str) -> "msgspec.msgpack.Decoder[Event] | None":
        known = self._given if self._given is not None else below(Event)
        found = [cls for cls in known if is_event_type(cls) and name_of(cls) == name]
        if not found:
            return None
        self._decoders[name] = msgspec.msgpack.Decoder(found[-1])
        return self._decoders[name]
