"""What packets say: control keys and their messages, and the payloads of events.

Control keys: what the participants of a network tell each other besides events.

They begin with `@genus`, which no pattern of events matches. Tokens (`here`, `want`, `gate`) are present while their
speaker lives; the others are packets.

| key | says |
|---|---|
| `@genus/REALM/here/UID/ABOUT` | a participant, and what it says about itself |
| `@genus/REALM/want/SPEAKER/ORIGIN/TEXT/HOPS` | a subscription |
| `@genus/REALM/gate/UID/TEXT`, `gate` | a gateway, and that it works |
| `@genus/REALM/beat` | the newest numbers of a sender's keys |
| `@genus/REALM/lost/UID`, `late/UID` | to a sender: packets that did not arrive, or arrived late |
| `@genus/REALM/ping`, `pong/UID` | a question for the time, and the answer |
| `@genus/REALM/types/DIGEST/TYPE` | kept: a type, with all above it |
| `@genus/REALM/new/FAMILY/.../TYPE` | copies of the first events of a class, for those who asked for one of its kinds |
| `@genus/REALM/group/UID/TEXT/MEMBER` | a token: one of those who share a subscription |
| `@genus/REALM/queue/UID/MEMBER/FAMILY/.../TYPE` | events for one of a group |
| `@genus/REALM/last/FAMILY/.../TYPE/=KEY` | events of which the newest is kept |

The payload of a packet: the attributes of an event in msgpack, or an array of such maps for many events.

The key names the type. A payload that begins with `{` is a CloudEvent in JSON, see `_cloudevents`; no map or array of
msgpack begins so.
"""

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from genus.bus.internal import MapReader, Rejected, UnreadValues
from genus.errors import EventError
from genus.model import Event, check, name_of
from genus.model.internal import (
    describe_invalid,
    encodable_value,
    invalid_decoded_finders,
    invalid_decoded_finders_in,
    invalid_finders,
    invalid_finders_in,
    unread_types,
    with_unread,
)
from genus.net._cloudevents import CloudEvent, CloudEventReader, values_in
from genus.net._transport import QUEUE as QUEUE
from genus.net._transport import ROOT as ROOT
from genus.net._transport import Sending, Transport
from genus.records.internal import decode_json
from genus.records.types import Rejected as CloudRejected

LAST, NEW = "last", "new"
_SELDOM = Sending(waits=False)
MAX_TEXT = 2000
"""The longest subscription, in characters of its text, that is shown to others as it is."""


def control_key(realm: str, *chunks: str) -> str:
    """Return the control key of a realm with these chunks."""
    return "/".join((ROOT, realm, *chunks))


def send_once(transport: Transport, key: str, payload: bytes, sending: Sending = _SELDOM) -> None:
    """Send one packet under a key that is seldom used."""
    sender = transport.sender(key, sending)
    sender.put(payload, b"")
    sender.close()


def encode_text(text: str) -> str:
    """Return a text as one chunk of a key.

    >>> encode_text("Loop where lane > 1"), decode_text("TG9vcA")
    ('TG9vcCB3aGVyZSBsYW5lID4gMQ', 'Loop')
    """
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=") or "_"


def decode_text(chunk: str) -> str | None:
    """Return the text of a chunk; None if it is none, or longer than a text may be."""
    if len(chunk) > 2 * MAX_TEXT:
        return None
    if chunk == "_":
        return ""
    try:
        return base64.b64decode(chunk + "=" * (-len(chunk) % 4), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        return None


def is_uid(chunk: str) -> bool:
    """Return whether a chunk is the uid of a participant, in hexadecimal digits."""
    return len(chunk) == 16 and all(digit in "0123456789abcdef" for digit in chunk)


class Beat(msgspec.Struct, frozen=True, array_like=True):
    """The keys under which a sender sent packets: the number at the beat before, and the newest.

    `began_us` is when it sent the first packet of each: who had subscribed before must have got all.
    """

    sender: bytes
    numbers: dict[str, tuple[int, int]]
    began_us: dict[str, int] = {}


class Loss(msgspec.Struct, frozen=True, array_like=True):
    """Packets of a key that a receiver did not get, or that came after their deadline or expiry."""

    receiver: str
    key: str
    count: int
    worst_us: int = 0
    expired: int = 0


class Ping(msgspec.Struct, frozen=True, array_like=True):
    """A question for the time: who asks, and when by its clock, in microseconds since 1970."""

    asker: str
    asked_us: int


class Pong(msgspec.Struct, frozen=True, array_like=True):
    """The answer to a question for the time."""

    answerer: str
    asked_us: int
    answered_us: int


_DECODERS: dict[type, Any] = {each: msgspec.msgpack.Decoder(each) for each in (Beat, Loss, Ping, Pong)}
encode_message = msgspec.msgpack.Encoder().encode


def decode_message(type_: type[Any], payload: bytes) -> Any | None:
    """Return the message of a type in a payload; None if it is none."""
    try:
        return _DECODERS[type_].decode(payload)
    except Exception:  # msgspec's errors, UnicodeDecodeError, RecursionError
        return None


_encode = msgspec.msgpack.Encoder(enc_hook=encodable_value).encode
_split = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
FIRST_OF_ARRAY = frozenset((*range(0x90, 0xA0), 0xDC, 0xDD))
"""The first bytes of payloads with many events."""
MAX_EVENTS = 100_000
"""The largest number of events in one packet."""


def encode_payload(event: Event) -> bytes:
    """Encode the attributes of an event; EventError names the value that could not be read back."""
    if (name := invalid_finders[event.__class__](event)) is not None:
        raise EventError(describe_invalid(event, name).message)
    try:
        return _encode(with_unread(event) if unread_types else event)
    except Exception as problem:  # of msgspec, and of a value that another thread changes
        raise EventError(f"{event!r} cannot be encoded: {problem}") from problem


def payload_encoder(cls: type[Event]) -> Callable[[Event], bytes]:
    """A function that does the same for events of one class, quicker."""
    find_invalid, encode = invalid_finders[cls], _encode

    def encode_one(event: Event) -> bytes:
        if find_invalid(event) is None and not unread_types:
            try:
                return encode(event)
            except Exception as problem:  # of msgspec, and of a value that another thread changes
                raise EventError(f"{event!r} cannot be encoded: {problem}") from problem
        return encode_payload(event)

    return encode_one


def encode_batch(cls: type[Event], events: Sequence[Event]) -> bytes:
    """Encode the attributes of some events of one class; EventError names the value that could not be read back."""
    if invalid_finders_in[cls](events) is not None:
        for event in events:
            check(event)
    try:
        return _encode([with_unread(event) for event in events] if unread_types else events)
    except Exception as problem:  # of msgspec, and of a value that another thread changes
        raise EventError(f"a batch of {name_of(cls)} cannot be encoded: {problem}") from problem


def is_batch(payload: bytes) -> bool:
    return bool(payload) and payload[0] in FIRST_OF_ARRAY


def split_batch(payload: bytes) -> list[msgspec.Raw] | None:
    """Return the payloads of the events in a batch; None if it is damaged or has too many."""
    try:
        found = _split(payload)
    except Exception:  # msgspec's errors, RecursionError
        return None
    return found if 0 < len(found) <= MAX_EVENTS else None


class PayloadReader:
    """Reads the payloads of one event type; `units` are those of the sender, if they are other ones.

    >>> class Lamp(Event):
    ...     on: bool
    >>> PayloadReader(Lamp, UnreadValues()).read(encode_payload(Lamp(on=True)))
    Lamp(on=True)
    """

    def __init__(self, cls: type[Event], unread: UnreadValues, units: Mapping[str, str] | None = None) -> None:
        self.type = cls
        self._map = MapReader(cls, unread, units)
        self._decode = self._map.decode if self._map.converts else msgspec.msgpack.Decoder(cls).decode
        self._decode_all = None if self._map.converts else msgspec.msgpack.Decoder(list[cls]).decode  # type: ignore[valid-type]
        self._find_invalid = invalid_decoded_finders[cls]
        self._find_invalid_in = invalid_decoded_finders_in[cls]
        self._clouds = CloudEventReader()

    def read(self, payload: Any) -> Any:
        """Return the event in a payload, or the reason why there is none (`Rejected`)."""
        try:
            event = self._decode(payload)
            if self._find_invalid(event) is None:
                return event
        except Exception:  # also what a class's own __post_init__ raises
            pass
        return self._read_map(payload)

    def read_all(self, payload: bytes) -> Sequence[Event] | None:
        """Return the events of a batch, if they can be read at once and all are valid; None if not."""
        if self._decode_all is None:
            return None
        try:
            events = self._decode_all(payload)
        except Exception:  # also what a class's own __post_init__ raises
            return None
        count = len(events)
        return events if 0 < count <= MAX_EVENTS and self._find_invalid_in(events) is None else None

    def _read_map(self, payload: Any) -> Event | Rejected:
        """Read a CloudEvent, or an event of a class of another age or with other units."""
        if (text := bytes(payload))[:1] == b"{":
            return self.read_cloud(self._clouds.read_structured(text), lambda: decode_json(text, last_counts=True))
        try:
            return self._map.decode(payload)
        except Exception as problem:
            return Rejected(f"not a {name_of(self.type)}: {problem}")

    def read_cloud(self, read: CloudEvent | CloudRejected, record: Callable[[], Any]) -> Event | Rejected:
        """The event of a CloudEvent that was read, if it is of the type that the key says; `record` is as it came."""
        if isinstance(read, CloudRejected):
            return self._read_newer(record()) or Rejected(f"no CloudEvent: {read.reason}")
        if type(read.event) is not self.type:
            return Rejected(f"a {name_of(type(read.event))} under the key of a {name_of(self.type)}")
        try:
            return self._map.convert(read.event)
        except EventError as problem:
            return Rejected(f"not a {name_of(self.type)}: {problem}")

    def read_binary(self, attributes: Mapping[str, str]) -> Callable[[Any], Any]:
        """Return what reads the data of a CloudEvent in binary mode."""

        def read(data: Any) -> Event | Rejected:
            text = bytes(data)
            found = self._clouds.read_binary(attributes, text)
            return self.read_cloud(found, lambda: {**attributes, "data": decode_json(text, last_counts=True)})

        return read

    def _read_newer(self, record: Any) -> Event | None:
        """The event of a CloudEvent with values that the class cannot read, by the rule for these; None if none."""
        if (values := values_in(record, self.type)) is None:
            return None
        try:
            return self._map.decode(_encode({name: self._map.plain(name, each) for name, each in values.items()}))
        except Exception:  # there is a reason why it is no CloudEvent already
            return None
