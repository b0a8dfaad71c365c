"""Bodies and options of messages: events as CBOR.

What messages of Genus say besides the values: bodies with several events, and the option with their origins.

A body is a map of attributes, the event of one type, or an array of pairs `[code, attributes]`. The option is an array
in CBOR, which plain clients and servers ignore:

| in | array |
|---|---|
| an observation | `[uid, epoch, number of the observation, session, last number received, origin, hops]` |
| events that are put | `[uid, epoch, [uid, number, hops], ...]`: the sender, and the origin of each event |
| a notification | `[session, number of the first event, [uid, number, hops], ...]` |
| other requests | `[uid]` |

The epoch is that of the server which the client means: another one may have other codes, and refuses (4.12). An origin
has a fourth part, a number for its key, if the event is kept on its network.

Events as CBOR: a map of their attributes by number in the family's vector, and back.

| attribute | value |
|---|---|
| bool, integers, text, bytes | as they are |
| floats | the shortest of 16, 32 and 64 bits that is exact; NaN and infinities of 16 |
| time, duration | microseconds since 1970 UTC, microseconds: an integer |
| choice | the number of the value in its list, from 0 |
| opaque | a byte string with the value in msgpack |

What is read is checked as on all links: it becomes the map by names that they carry, and is read by their reader. So an
event keeps values that its class here cannot read, and they are written again. Only what the catalog itself does not
know goes no further: the number of an attribute or of a choice, integers and times that are out of range.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import sha256
from typing import Any, NamedTuple
from zlib import crc32

import cbor2
import msgspec

from genus.bus.internal import Rejected, UnreadValues
from genus.catalog import Catalog
from genus.errors import EventError
from genus.model import Event, attributes, micros_of_duration, micros_of_time, name_of
from genus.model.internal import (
    describe_invalid,
    encodable_value,
    invalid_finders,
    plain_value,
    unread_types,
    unread_values,
)
from genus.model.types import (
    Attribute,
    BoolType,
    BytesType,
    ChoiceType,
    DurationType,
    FloatType,
    IntType,
    OpaqueType,
    TextType,
    TimeType,
)
from genus.net._envelope import MAX_HOPS, NUMBERS, Arrival, Origin
from genus.net._link import numbers
from genus.net._link.messages import PayloadReader

CBOR = 60
LINK_FORMAT = 40
UID_BYTES = 8
EPOCH_BYTES = 4
"""The bytes of a server's epoch that requests name."""
_END = os.urandom(8)
_END_CBOR = b"\x48" + _END


class Unreadable(msgspec.Struct, frozen=True):
    """Why bytes cannot be read."""

    reason: str


class KeyedOrigin(Origin, frozen=True, gc=False):
    """The origin of an event that is kept elsewhere under a key, whose number counts those of the key."""

    key: int = 0


def origin_of(arrival: Arrival) -> Origin:
    """Return the origin of an event of another network, with what its number counts."""
    origin = arrival.origin
    if arrival.kept is None:
        return origin
    return KeyedOrigin(origin.uid, origin.number, origin.hops, crc32(arrival.kept.encode()))


def line_of(event: Event, origin: Origin) -> str:
    """Return what the number of an origin counts, as gateways and other networks do."""
    kept = str(origin.key) if isinstance(origin, KeyedOrigin) else None
    return numbers.line_of(Arrival(event, origin, kept))


class ObservationMark(msgspec.Struct, frozen=True):
    """Who observes, and what it has received: the option of an observation."""

    uid: bytes
    number: int
    epoch: bytes = b""
    session: bytes = b""
    last: int = 0
    origin: bytes = b""
    hops: int = 0


class Put(msgspec.Struct, frozen=True):
    """Who puts events, to which server, and the origins of the events."""

    sender: bytes
    epoch: bytes
    origins: tuple[Origin, ...]


class Notified(msgspec.Struct, frozen=True):
    """The session of a notification, the number of its first event, and the origins of its events."""

    session: bytes
    first: int
    origins: tuple[Origin, ...] = ()


def read_cbor(data: bytes) -> Any:
    """Return the one item of CBOR in some bytes, or `Unreadable`; bytes behind it are refused."""
    try:
        found = cbor2.loads(b"\x82" + data + _END_CBOR)
    except Exception:  # of cbor2, and of what it makes of tags
        return Unreadable("a body that is no CBOR")
    return found[0] if found[1] == _END else Unreadable("a body that is no CBOR")


def write_cbor(value: Any) -> bytes:
    return cbor2.dumps(value, canonical=True)


def etag_of(body: bytes) -> bytes:
    """Return what tells the blocks of one large body from those of another."""
    return sha256(body).digest()[:4]


# -- bodies ------------------------------------------------------------------------------------------------------------


def join_pairs(pairs: Sequence[tuple[int, bytes]]) -> bytes:
    """Return the body with the codes and encoded attributes of some events.

    >>> join_pairs([(6, b"\\xa0")]).hex()
    '818206a0'
    """
    parts = [_array_head(len(pairs))]
    for code, written in pairs:
        parts += (b"\x82", write_cbor(code), written)
    return b"".join(parts)


def _array_head(count: int) -> bytes:
    if count < 24:
        return bytes((0x80 | count,))
    return b"\x98" + bytes((count,)) if count < 256 else b"\x99" + count.to_bytes(2, "big")


def read_body(code: int, body: bytes) -> list[tuple[int, dict[Any, Any]]] | dict[Any, Any] | Unreadable:
    """Return the pairs of a body, or the attributes alone; codes must be those below the path's."""
    found = read_cbor(body)
    if isinstance(found, Unreadable | dict):
        return found
    if not isinstance(found, list):
        return Unreadable("a body that is neither a map nor an array")
    pairs: list[tuple[int, dict[Any, Any]]] = []
    for pair in found:
        match pair:
            case [int(one), dict(attributes)] if not isinstance(one, bool) and one > 0:
                if one % code:
                    return Unreadable("a code that is not below that of the path")
                pairs.append((one, attributes))
            case _:
                return Unreadable("no pair of code and attributes")
    return pairs


# -- the option --------------------------------------------------------------------------------------------------------


def write_mark(mark: ObservationMark) -> bytes:
    return write_cbor([mark.uid, mark.epoch, mark.number, mark.session, mark.last, mark.origin, mark.hops])


def read_mark(data: bytes) -> ObservationMark | None:
    """Return the option of an observation; None if it is none."""
    match read_cbor(data):
        case [bytes(uid), bytes(epoch), int(number), bytes(session), int(last), bytes(origin), int(hops)]:
            sizes = len(uid) == UID_BYTES and len(origin) in (0, UID_BYTES) and len(session) in (0, 4)
            if sizes and 0 <= number < NUMBERS and 0 <= last < 1 << 62 and 0 <= hops <= MAX_HOPS:
                return ObservationMark(uid, number, epoch, session, last, origin, hops)
    return None


def read_uid(data: bytes) -> bytes | None:
    """Return the uid in the option of any request; None if there is none."""
    found = read_cbor(data)
    first = found[0] if isinstance(found, list) and found else None
    return first if isinstance(first, bytes) and len(first) == UID_BYTES else None


def write_put(put: Put) -> bytes:
    return write_cbor([put.sender, put.epoch, *map(_parts, put.origins)])


def read_put(data: bytes) -> Put | None:
    """Return the option of events that are put; None if it is malformed."""
    match read_cbor(data):
        case [bytes(sender), bytes(epoch), *rest] if len(sender) == UID_BYTES:
            origins = _origins(rest)
            return None if origins is None else Put(sender, epoch, origins)
    return None


def write_notified(notified: Notified) -> bytes:
    return write_cbor([notified.session, notified.first, *map(_parts, notified.origins)])


def read_notified(data: bytes) -> Notified | None:
    """Return the option of a notification; None if it is malformed."""
    match read_cbor(data):
        case [bytes(session), int(first), *rest] if len(session) == 4 and 0 <= first < 1 << 62:
            origins = _origins(rest)
            return None if origins is None else Notified(session, first, origins)
    return None


def _parts(origin: Origin) -> list[Any]:
    key = [origin.key] if isinstance(origin, KeyedOrigin) else []
    return [origin.uid, origin.number, origin.hops, *key]


def _origins(items: Sequence[Any]) -> tuple[Origin, ...] | None:
    found = tuple(one for item in items if (one := _origin(item)) is not None)
    return found if len(found) == len(items) else None


def _origin(item: Any) -> Origin | None:
    match item:
        case [bytes(uid), int(number), int(hops), *key] if len(uid) == UID_BYTES and len(key) <= 1:
            if 0 <= number < NUMBERS and 0 <= hops <= 255:
                if not key:
                    return Origin(uid, number, hops)
                return KeyedOrigin(uid, number, hops, key[0]) if type(key[0]) is int and 0 <= key[0] < 1 << 32 else None
    return None


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_encode = msgspec.msgpack.Encoder(enc_hook=encodable_value).encode
_decode_any = msgspec.msgpack.Decoder().decode
_DECODED: dict[type, Any] = {TimeType: datetime, DurationType: timedelta, OpaqueType: msgspec.Raw, FloatType: float}
"""What the values of an attribute that are kept in msgpack are decoded as, where msgpack does not say it."""

Convert = Callable[[Any], Any]
UNKNOWN = "unknown attributes"
"""The name under which values are counted whose numbers the catalog does not have."""
SCALARS = (bool, int, float, str, bytes)
"""What the values of attributes are in CBOR; arrays and maps are none."""


class _Field(NamedTuple):
    """An attribute on its way out: its number, its name in the class, and how its values are written."""

    number: int
    name: str
    convert: Convert


class Outgoing(msgspec.Struct, frozen=True, gc=False):
    """An event on its way, with its code, presence bits and attributes as a catalog has them, and its origin.

    `written_by` is what wrote it, None if the catalog does not have its type yet.
    """

    event: Event
    code: int
    tag: int
    attributes: bytes
    origin: Origin
    expires_at: float | None = None
    written_by: "EventWriter | None" = None


class EventWriter:
    """Writes the events of one class by the vector of a catalog."""

    def __init__(self, cls: type[Event], catalog: Catalog) -> None:
        self.type = cls
        self.code = catalog.code(cls)
        agreed = catalog.vector(cls)
        own = agreed.pair(attributes(cls))
        named = [(bit, own[each.name]) for bit, each in enumerate(agreed) if each.name in own]
        self._fields = [_Field(bit, attribute.name, _writer(attribute)) for bit, attribute in named]
        self._agreed = {each.name: (bit, each) for bit, each in enumerate(agreed)}
        self._find_invalid = invalid_finders[cls]

    def write(self, event: Event) -> tuple[int, bytes]:
        """The presence bits and the attributes of an event; EventError names the value that cannot be read back."""
        if (name := self._find_invalid(event)) is not None:
            raise EventError(describe_invalid(event, name).message)
        present = [(field, value) for field in self._fields if (value := getattr(event, field.name)) is not None]
        try:
            found = {field.number: field.convert(plain_value(value)) for field, value in present}
            if unread_types:
                found.update(self._unread(event))
            return sum(1 << number for number in found), write_cbor(found)
        except Exception as problem:  # of cbor2 and msgspec, and of a value that another thread changes
            raise EventError(f"{event!r} cannot be encoded: {problem}") from problem

    def _unread(self, event: Event) -> Iterator[tuple[int, Any]]:
        """Yield the values that could not be read here and are those of attributes of the catalog, by number."""
        for name, value in unread_values(event).items():
            bit, attribute = self._agreed.get(name, (0, None))
            if attribute is not None:
                with suppress(Exception):  # one that the catalog cannot read either, as a choice that it does not have
                    kind = _DECODED.get(type(attribute.type), Any)
                    yield bit, _writer(attribute)(msgspec.msgpack.decode(value, type=kind))


_WRITERS: dict[type, Convert] = {
    FloatType: float,
    IntType: int,
    BoolType: bool,
    TimeType: micros_of_time,
    DurationType: micros_of_duration,
    OpaqueType: _encode,
}


def _writer(attribute: Attribute) -> Convert:
    if isinstance(attribute.type, ChoiceType):
        numbers = {value: number for number, value in enumerate(attribute.type.values)}
        return lambda value: numbers[getattr(value, "value", value)]
    return _WRITERS.get(type(attribute.type), plain_value)


class Unread(msgspec.Struct, frozen=True):
    """Why a value of the right sort cannot be read: the event is read without it."""

    reason: str


class EventReader:
    """Reads the attributes of one class by the vector of a catalog; what cannot be read is left out, and counted."""

    def __init__(self, cls: type[Event], catalog: Catalog, unread: UnreadValues) -> None:
        self.type = cls
        self._readers = {bit: (each.name, _reader(each)) for bit, each in enumerate(catalog.vector(cls))}
        self._reader = PayloadReader(cls, unread)
        self._unread = unread

    def read(self, given: Mapping[Any, Any]) -> Event | Unreadable:
        """Return the event of a map, or the reason why there is none."""
        fields: dict[str, Any] = {}
        for number, value in given.items():
            if not isinstance(number, int) or isinstance(number, bool) or number < 0:
                return Unreadable("a key that is no number of an attribute")
            name, read = self._readers.get(number) or (UNKNOWN, partial(_read_unknown, number))
            found = read(value)
            if isinstance(found, Unreadable):
                return Unreadable(f"not a {name_of(self.type)}: {name} {found.reason}")
            if isinstance(found, Unread):
                shown = write_cbor(value) if value.__class__ in SCALARS else b""  # others may grow when written
                self._unread.note(name_of(self.type), name, shown, partial(str, found.reason))
            else:
                fields[name] = found
        try:
            made: Event | Rejected = self._reader.read(_encode(fields))
        except Exception as problem:  # lone surrogates
            return Unreadable(f"not a {name_of(self.type)}: {str(problem)[:200]}")
        return Unreadable(made.reason) if isinstance(made, Rejected) else made


def _expect(kind: type) -> Convert:
    return lambda value: value if value.__class__ is kind else Unreadable(f"is no {kind.__name__}")


def _read_unknown(number: int, value: Any) -> Any:
    return Unread(f"the catalog has no attribute of the number {min(number, 1 << 16)}")


def _read_int(value: Any) -> Any:
    if value.__class__ is not int:
        return Unreadable("is no int")
    return value if -(1 << 63) <= value < 1 << 64 else Unread("it has more than 64 bits")


def _read_float(value: Any) -> Any:
    return value if value.__class__ is float else _read_int(value)


def _read_micros(value: Any, convert: Callable[[timedelta], Any]) -> Any:
    if value.__class__ is not int:
        return Unreadable("is no integer of microseconds")
    try:
        return convert(timedelta(microseconds=value))
    except OverflowError:
        return Unread("it is out of range")


def _read_choice(value: Any, values: tuple[Any, ...]) -> Any:
    if value.__class__ is not int or value < 0:
        return Unreadable("is no number of a choice")
    return values[value] if value < len(values) else Unread(f"the catalog has {len(values)} values")


def _read_opaque(value: Any) -> Any:
    if value.__class__ is not bytes:
        return Unreadable("is no byte string")
    try:
        _decode_any(value)
    except Exception:  # msgspec's errors, UnicodeDecodeError, RecursionError
        return Unreadable("is no msgpack")
    return msgspec.Raw(value)


_READERS: dict[type, Convert] = {
    FloatType: _read_float,
    IntType: _read_int,
    BoolType: _expect(bool),
    TextType: _expect(str),
    BytesType: _expect(bytes),
    TimeType: partial(_read_micros, convert=_EPOCH.__add__),
    DurationType: partial(_read_micros, convert=plain_value),
    OpaqueType: _read_opaque,
}


def _reader(attribute: Attribute) -> Convert:
    if isinstance(attribute.type, ChoiceType):
        return partial(_read_choice, values=attribute.type.values)
    return _READERS[type(attribute.type)]
