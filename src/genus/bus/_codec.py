"""Events as bytes, in recordings and between processes.

A packet is a msgpack array of the type's name, the time of recording (microseconds since 1970, UTC) and a map of the
attributes that are present. Decoding never raises: a packet that is no event of a known type gives a reason.

Encoding and decoding accept the values that `genus.check` accepts, and no others.
"""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Annotated, NamedTuple

import msgspec

from genus.errors import EventError
from genus.model import Event, is_event_type, micros_of_time, name_of, subtypes
from genus.model._check import FindInvalid, describe_invalid, invalid_decoded_finders, invalid_finders
from genus.model._read_back import plain_value

FIRST_US, LAST_US = (micros_of_time(moment.replace(tzinfo=UTC)) for moment in (datetime.min, datetime.max))
"""The times of recording that a packet may have: the years 1 to 9999."""

_RECORDED_AT = Annotated[int, msgspec.Meta(ge=FIRST_US, le=LAST_US)]
_encode = msgspec.msgpack.Encoder(enc_hook=plain_value).encode


class Recorded(msgspec.Struct, frozen=True):
    """An event and its time of recording, in microseconds since 1970."""

    at_us: int
    event: Event


class Rejected(msgspec.Struct, frozen=True):
    """Why a packet is not an event."""

    reason: str


def encode_event(event: Event, at_us: int) -> bytes:
    """Encode an event as a packet; EventError names the value that could not be read back."""
    cls = event.__class__
    if (name := invalid_finders[cls](event)) is not None:
        raise EventError(describe_invalid(event, name).message)
    try:
        if FIRST_US <= at_us <= LAST_US:
            return _encode((cls.__genus_name__, at_us, event))  # type: ignore[attr-defined]
    except Exception as problem:  # of msgspec, and of a value that another thread changes
        raise EventError(f"{event!r} cannot be encoded: {problem}") from problem
    raise EventError(f"an event cannot be recorded at {at_us} microseconds since 1970; use the years 1 to 9999")


def encoding_problem(event: Event) -> str:
    """Why `encode_event` refused an event, without the value at fault, so that equal reasons can be counted."""
    name = invalid_finders[type(event)](event)
    return f"{name_of(type(event))} cannot be encoded" if name is None else describe_invalid(event, name).reason


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
        self._given = None if types is None else [cls for root in types for cls in subtypes(root)]
        self._open = msgspec.msgpack.Decoder(tuple[str, _RECORDED_AT, msgspec.Raw]).decode
        self._decoders: dict[str, _BodyDecoder] = {}

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
            event = decoder.decode(body)
        except Exception as problem:  # also what a class's own __post_init__ raises
            return Rejected(f"not a {name}: {problem}")
        invalid = decoder.find_invalid(event)
        return Recorded(at_us, event) if invalid is None else _reject(event, invalid)

    def _find(self, name: str) -> "_BodyDecoder | None":
        known = self._given if self._given is not None else subtypes(Event)
        found = [cls for cls in known if is_event_type(cls) and name_of(cls) == name]
        if not found:
            return None
        cls = found[-1]
        self._decoders[name] = _BodyDecoder(msgspec.msgpack.Decoder(cls).decode, invalid_decoded_finders[cls])
        return self._decoders[name]


class _BodyDecoder(NamedTuple):
    """Decodes the attributes of one type, and finds values that msgspec accepts and their attributes do not."""

    decode: Callable[[msgspec.Raw], Event]
    find_invalid: FindInvalid


def _reject(event: Event, invalid: str) -> Rejected:
    return Rejected(f"not a {name_of(type(event))}: {describe_invalid(event, invalid).reason}")
