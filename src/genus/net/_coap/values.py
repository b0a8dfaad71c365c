"""Events as CBOR: a map of their attributes by number in the family's vector, and back.

| attribute | value |
|---|---|
| bool, integers, text, bytes | as they are |
| floats | the shortest of 16, 32 and 64 bits that is exact; NaN and infinities of 16 |
| time, duration | microseconds since 1970 UTC, microseconds: an integer |
| choice | the number of the value in its list, from 0 |
| opaque | a byte string with the value in msgpack |

What is read is checked as on all links: it becomes the map by names that they carry, and is read by their reader.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from genus.bus._attribute_map import UnreadValues, value_at
from genus.bus._codec import Rejected
from genus.catalog import Catalog
from genus.errors import EventError
from genus.model import Attribute, Event, attributes, name_of
from genus.model._check import describe_invalid, invalid_finders
from genus.model._plain import encodable_value, plain_value
from genus.model._types import (
    BoolType,
    BytesType,
    ChoiceType,
    DurationType,
    FloatType,
    IntType,
    OpaqueType,
    TextType,
    TimeType,
    micros_of_duration,
    micros_of_time,
)
from genus.net._coap.wire import Unreadable, write_cbor
from genus.net._link.payload import PayloadReader

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_encode = msgspec.msgpack.Encoder(enc_hook=encodable_value).encode
_decode_any = msgspec.msgpack.Decoder().decode

NOT_IN_CATALOG = "the catalog here has no attribute of that number"
Convert = Callable[[Any], Any]


class _Field(NamedTuple):
    """An attribute on its way out: its number, its name in the class, and how its values are written."""

    number: int
    name: str
    convert: Convert


class EventWriter:
    """Writes the events of one class by the vector of a catalog."""

    def __init__(self, cls: type[Event], catalog: Catalog) -> None:
        self.type = cls
        self.code = catalog.code(cls)
        agreed = catalog.vector(cls)
        own = agreed.pair(attributes(cls))
        named = [(bit, own[each.name]) for bit, each in enumerate(agreed) if each.name in own]
        self._fields = [_Field(bit, attribute.name, _writer(attribute)) for bit, attribute in named]
        self._find_invalid = invalid_finders[cls]

    def write(self, event: Event) -> tuple[int, bytes]:
        """The presence bits and the attributes of an event; EventError names the value that cannot be read back."""
        if (name := self._find_invalid(event)) is not None:
            raise EventError(describe_invalid(event, name).message)
        present = [(field, value) for field in self._fields if (value := getattr(event, field.name)) is not None]
        try:
            found = {field.number: field.convert(plain_value(value)) for field, value in present}
            return sum(1 << number for number in found), write_cbor(found)
        except Exception as problem:  # of cbor2 and msgspec, and of a value that another thread changes
            raise EventError(f"{event!r} cannot be encoded: {problem}") from problem


def _writer(attribute: Attribute) -> Convert:
    match attribute.type:
        case FloatType():
            return float
        case IntType():
            return int
        case BoolType():
            return bool
        case TimeType():
            return micros_of_time
        case DurationType():
            return micros_of_duration
        case ChoiceType(values):
            numbers = {value: number for number, value in enumerate(values)}
            return lambda value: numbers[value.value]
        case OpaqueType():
            return _encode
    return plain_value


class EventReader:
    """Reads the attributes of one class by the vector of a catalog; unknown ones are left out, and counted."""

    def __init__(self, cls: type[Event], catalog: Catalog, unread: UnreadValues) -> None:
        self.type = cls
        self._readers = {bit: (each.name, _reader(each)) for bit, each in enumerate(catalog.vector(cls))}
        self._reader = PayloadReader(cls, unread)
        self._unread = unread

    def read(self, given: Mapping[Any, Any]) -> Event | Unreadable:
        """The event of a map, or the reason why there is none."""
        fields: dict[str, Any] = {}
        for number, value in given.items():
            if not isinstance(number, int) or isinstance(number, bool) or number < 0:
                return Unreadable("a key that is no number of an attribute")
            known = self._readers.get(number)
            if known is None:
                self._unread.add(name_of(self.type), str(min(number, 1 << 16)), b"", lambda: NOT_IN_CATALOG)
                continue
            name, read = known
            fields[name] = found = read(value)
            if isinstance(found, Unreadable):
                return Unreadable(f"not a {name_of(self.type)}: {name} {found.reason}")
        return self._check(fields)

    def _check(self, fields: dict[str, Any]) -> Event | Unreadable:
        try:
            made = self._reader.read(_encode(fields))
        except Exception as problem:  # integers of more than 64 bits, lone surrogates
            return Unreadable(f"not a {name_of(self.type)}: {str(problem)[:200]}")
        if isinstance(made, Rejected):
            return Unreadable(made.reason)
        event: Event = made
        return event


def _reader(attribute: Attribute) -> Convert:
    match attribute.type:
        case FloatType():
            return _read_float
        case IntType():
            return _expect(int)
        case BoolType():
            return _expect(bool)
        case TextType():
            return _expect(str)
        case BytesType():
            return _expect(bytes)
        case TimeType():
            return lambda value: _read_micros(value, lambda span: _EPOCH + span)
        case DurationType():
            return lambda value: _read_micros(value, lambda span: span)
        case ChoiceType(values):
            return lambda value: _read_choice(value, values)
        case OpaqueType():
            return _read_opaque
    raise AssertionError(f"no reader for {attribute}")  # all attribute types are above


def _expect(kind: type) -> Convert:
    return lambda value: value if value.__class__ is kind else Unreadable(f"is no {kind.__name__}")


def _read_float(value: Any) -> Any:
    return value if value.__class__ in (int, float) else Unreadable("is no number")


def _read_micros(value: Any, convert: Callable[[timedelta], Any]) -> Any:
    if value.__class__ is not int:
        return Unreadable("is no integer of microseconds")
    try:
        return convert(timedelta(microseconds=value))
    except OverflowError:
        return Unreadable("is out of range")


def _read_choice(value: Any, values: tuple[Any, ...]) -> Any:
    if value.__class__ is not int or not 0 <= value < 1 << 63:
        return Unreadable("is no number of a choice")
    return value_at(values, value)


def _read_opaque(value: Any) -> Any:
    if value.__class__ is not bytes:
        return Unreadable("is no byte string")
    try:
        _decode_any(value)
    except Exception:  # msgspec's errors, UnicodeDecodeError, RecursionError
        return Unreadable("is no msgpack")
    return msgspec.Raw(value)
