"""The map of attributes in a packet, read by a class that is older or newer than the one that wrote it.

msgspec decodes a packet whose names, values and units are those of the class, and refuses any other. Only then the map
is read here, name by name: former names become present ones, values are converted, and those that the class cannot
read are left out, counted and kept with the event (`genus.model._values`), so that it is forwarded whole.

Kept values go on under the names of attributes. One that is in a unit which the class does not state is wrapped
together with that unit, as an extension of msgpack: who can read the attribute, unwraps and converts it. So is the
number of a value of an enumeration, if it came by number and the catalog here does not have the value.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import msgspec
from msgspec.structs import replace

from genus.errors import EventError, Reasons, counted, did_you_mean
from genus.model import Event, attributes, name_of, vector
from genus.model.internal import (
    create_event,
    describe_invalid,
    describe_units,
    invalid_decoded_finders,
    keep_unread,
    type_text,
    unit_conversion,
    unread_values,
)
from genus.model.types import Attribute, BytesType, ChoiceType, FloatType, IntType, OpaqueType, TextType

UNITS_OF = "units of "
"""First part of the type name of a packet that states the units of a type; no type has a name with a space."""
IN_UNIT = 0x75
"""The code of the extension with a unit and a value in it."""
AT_NUMBER = 0x6E
"""The code of the extension with the number of a value in its enumeration."""
SHOWN = 200
"""The most bytes of an example."""
NO_ATTRIBUTE = "the class has no attribute of that name"

NIL = msgspec.Raw(b"\xc0")
Convert = Callable[[Any], object]
"""A function that converts a number from one unit to another; it raises EventError if that cannot be done."""

_NUMBERS = frozenset((*range(0x80), *range(0xE0, 0x100), *range(0xCA, 0xD4)))
_TEXTS = frozenset((*range(0xA0, 0xC0), *range(0xD9, 0xDC)))
_BYTES = frozenset(range(0xC4, 0xC7))
_EXTENSIONS = frozenset((*range(0xC7, 0xCA), *range(0xD4, 0xD9)))
"""The first bytes of values of a sort in msgpack."""

_open = msgspec.msgpack.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.msgpack.Encoder().encode
_DECODERS: dict[type, Callable[[Any], Any]] = {
    FloatType: msgspec.msgpack.Decoder(float).decode,
    IntType: msgspec.msgpack.Decoder(int).decode,
}
_decode_any: Callable[[Any], Any] = msgspec.msgpack.Decoder().decode
_decode_in_unit = msgspec.msgpack.Decoder(tuple[str, msgspec.Raw]).decode
_decode_units = msgspec.msgpack.Decoder(dict[str, str]).decode


class UnreadValues(Reasons):
    """The number of values that a class cannot read, by type and name, such as `Loop.speed`.

    `reasons` says why, and for some which attribute may have replaced them; `examples` has the last value of each, in
    msgpack. With `is_logged`, the first value of a type is logged for each reason.
    """

    OTHER: ClassVar = "other values"

    def __init__(self, counts: Mapping[str, int] | Iterable[str] = (), *, is_logged: bool = False) -> None:
        super().__init__(counts)
        self.reasons: dict[str, str] = {}
        self.examples: dict[str, bytes] = {}
        self._is_logged = is_logged
        self._logged = Reasons()

    def note(self, type_name: str, name: str, value: bytes, why: Callable[[], str]) -> None:
        """Count a value; `why` is asked for the reason when there was none before of that name."""
        label = self.counted_as(f"{type_name}.{name}")
        self.examples[label] = value[:SHOWN]
        if self.add(label):
            reason = self.reasons[label] = "they have too many names" if label == self.OTHER else why()[: 2 * SHOWN]
            if self._is_logged and self._logged.add(f"{type_name}: {reason}"):
                _log_unread(label, reason)

    def lines(self) -> list[str]:
        """Return what was not read, a line for each name."""
        return [
            f"{counted(count, 'value')} of {label} {'was' if count == 1 else 'were'} not read: "
            f"{self.reasons.get(label, NO_ATTRIBUTE)}"
            for label, count in self.most_common()
        ]


def _log_unread(label: str, reason: str) -> None:
    import logging

    logging.getLogger("genus.bus").warning("values of %s cannot be read here, and are absent: %s", label, reason)


class MapReader:
    """Reads the attribute maps of one class; `units` are those that the values were written in, where stated."""

    def __init__(self, cls: type[Event], unread: UnreadValues, units: Mapping[str, str] | None = None) -> None:
        self.type = cls
        self._unread = unread
        self._units = units or {}
        self._decode = msgspec.msgpack.Decoder(cls).decode
        self._own = {attribute.name: attribute for attribute in attributes(cls)}
        known = [attribute for attribute in vector(cls) if attribute.name in self._own]
        self._renamed = {old: attribute.name for attribute in known for old in attribute.former}
        self._converters = dict(self._find_converters())
        self._types = {field.name: field.type for field in msgspec.structs.fields(cls)}

    @property
    def converts(self) -> bool:
        """Whether values have other units than in the class."""
        return bool(self._converters)

    @property
    def renames(self) -> set[str]:
        """The attributes that had other names."""
        return set(self._renamed.values())

    def _find_converters(self) -> Iterable[tuple[str, Convert]]:
        for name, unit in self._units.items():
            attribute = self._own.get(self._renamed.get(name, name))
            if attribute is not None and attribute.unit not in (None, unit):
                yield name, converter(name_of(self.type), attribute, unit)

    def decode(self, body: bytes | memoryview | msgspec.Raw) -> Event:
        """Return the event of a map; raises what msgspec or the class raises, or EventError, if it is none."""
        given = _open(body)
        sent, strange = self._rename(given)
        fields = {name: self._convert(name, old, given[old]) for name, old in sent.items()}
        try:
            event, refused = self._read(fields)
        except EventError as wrong:
            missing = [each for each in self._own if each not in fields and not self._own[each].optional]
            hints = filter(None, (self._hint(name, given[name], missing) for name in strange))
            raise EventError("; ".join([str(wrong), *hints])) from None
        if strange or refused:
            kept = {name: self._with_unit(name, given[name]) for name in strange}
            for name in refused:
                was_read = self._own[name].unit is not None  # in the unit of the class
                kept[name] = fields[name] if was_read else self._with_unit(sent[name], given[sent[name]])
            keep_unread(event, kept)
            self._count(kept, refused, event)
        return event

    def _count(self, kept: Mapping[str, msgspec.Raw], refused: Mapping[str, str], event: Event) -> None:
        for name, value in kept.items():
            self._unread.note(name_of(self.type), name, bytes(value), partial(self._why, name, value, refused, event))

    def _why(self, name: str, value: msgspec.Raw, refused: Mapping[str, str], event: Event) -> str:
        if name in refused:
            return refused[name]
        _, bare = _unwrap(value) or (None, value)
        hint = self._hint(name, bare, [each for each in self._own if getattr(event, each) is None])
        return f"{NO_ATTRIBUTE}; {hint}" if hint else NO_ATTRIBUTE

    def _read(self, fields: dict[str, msgspec.Raw]) -> tuple[Event, dict[str, str]]:
        """Return the event of values by present names, and why it is without some of them."""
        refused: dict[str, str] = {}
        try:
            event = self._decode(_encode(fields))
        except EventError:  # an attribute is missing
            raise
        except msgspec.ValidationError as problem:
            event, refused = self._read_each(fields, problem)
        while (name := invalid_decoded_finders[self.type](event)) is not None:
            refused[name] = reason = describe_invalid(event, name).reason
            if not is_wider(self._own[name], fields[name]):
                raise EventError(reason)
            event = replace(event, **{name: None})
        return event, refused

    def _read_each(self, fields: Mapping[str, msgspec.Raw], problem: Exception) -> tuple[Event, dict[str, str]]:
        """Read the values one by one; raises the problem if one is not of its attribute's sort, or all can be read."""
        values: dict[str, object] = {}
        refused: dict[str, str] = {}
        for name, value in fields.items():
            try:
                values[name] = msgspec.msgpack.decode(value, type=self._types[name])
            except msgspec.ValidationError as why:
                if not is_wider(self._own[name], value):
                    raise problem from None
                number = _number_of(value)
                reason = str(why) if number is None else f"the enumeration has no value of number {number}"
                values[name], refused[name] = None, reason
        if not refused:
            raise problem
        event: Event = create_event(self.type, **values)
        return event, refused

    def plain(self, name: str, value: object) -> object:
        """A value of JSON as the attribute of a name has it; as it is if the attribute cannot have it."""
        own = self._types.get(self._renamed.get(name, name))
        try:
            return value if own is None else msgspec.convert(value, own)
        except msgspec.ValidationError:
            return value

    def convert(self, event: Event) -> Event:
        """Return an event of the class with its values converted; EventError if one cannot be."""
        given = {self._renamed.get(name, name): convert for name, convert in self._converters.items()}
        present = {name: getattr(event, name) for name in given if getattr(event, name) is not None}
        return replace(event, **{name: given[name](value) for name, value in present.items()}) if present else event

    def _rename(self, given: Mapping[str, msgspec.Raw]) -> tuple[dict[str, str], list[str]]:
        """The names that were sent by present names, and those without an attribute; a present name goes first."""
        sent = {name: name for name in given if name in self._own}
        strange = []
        for name, value in given.items():
            present = self._renamed.get(name)
            if present is not None and (present not in sent or given[sent[present]] == NIL):
                sent[present] = name
            elif name not in self._own and value != NIL:
                strange.append(name)
        return sent, strange

    def _convert(self, name: str, sent: str, value: msgspec.Raw) -> msgspec.Raw:
        """Return a value in the unit of its attribute; EventError if it cannot be converted."""
        if value == NIL:
            return value
        attribute, convert = self._own[name], self._converters.get(sent)
        bare = unwrap(name_of(self.type), attribute, value)
        if bare is not None:
            return bare
        return value if convert is None else _converted(attribute, value, convert)

    def _with_unit(self, sent: str, value: msgspec.Raw) -> msgspec.Raw:
        """Return a value together with the unit that its sender stated."""
        unit = self._units.get(sent)
        return value if unit is None or _unwrap(value) is not None else in_unit(value, unit)

    def _hint(self, name: str, value: msgspec.Raw, absent: list[str]) -> str:
        """A question about the attribute that may have replaced a name: one that is absent and could have the value."""
        context = {attribute.name for attribute in attributes(Event)}
        fitting = [each for each in absent if each not in context and _fits(value, self._types[each])]
        likely = fitting if len(fitting) == 1 else [each for each in fitting if did_you_mean(name, [each])]
        return f"did {likely[0]} replace {name}? Declare it with Renamed({name!r})" if len(likely) == 1 else ""


def _fits(value: msgspec.Raw, annotation: Any) -> bool:
    try:
        msgspec.msgpack.decode(value, type=annotation)
    except Exception:  # msgspec's errors, UnicodeDecodeError, OverflowError
        return False
    return True


def is_wider(attribute: Attribute, value: msgspec.Raw) -> bool:
    """Whether a value that an attribute cannot have is of its sort, as a newer declaration may allow more of them.

    A number for a number, a text for a text, and for an enumeration what its values are; in lists and structs anything
    may have grown. Any other value contradicts the declaration.
    """
    first = memoryview(value)[0]
    match attribute.type:
        case IntType() | FloatType():
            return first in _NUMBERS
        case ChoiceType(values):
            return first in (_TEXTS if isinstance(values[0], str) else _NUMBERS) or _number_of(value) is not None
        case TextType():
            return first in _TEXTS
        case BytesType():
            return first in _BYTES
        case OpaqueType():
            return value != NIL
    return False


def _unwrap(value: msgspec.Raw) -> tuple[str, msgspec.Raw] | None:
    """Return the unit and the value of one that was kept with its unit; None for any other value."""
    data = _extension(value, IN_UNIT)
    try:
        return None if data is None else _decode_in_unit(data)
    except Exception:  # msgspec's errors, UnicodeDecodeError
        return None


def _number_of(value: msgspec.Raw) -> int | None:
    """Return the number of a value of an enumeration that was kept by its number; None for any other value."""
    data = _extension(value, AT_NUMBER)
    return None if data is None else int.from_bytes(data[:8], "big")


def _converted(attribute: Attribute, value: msgspec.Raw, convert: Convert) -> msgspec.Raw:
    decode = _DECODERS.get(type(attribute.type), _decode_any)
    return msgspec.Raw(_encode(convert(decode(value))))


def unwrap(owner: str, attribute: Attribute, value: msgspec.Raw) -> msgspec.Raw | None:
    """What an attribute has as its value for one that was kept with its unit or number; None for any other value.

    A number that the attribute does not have stays one. EventError if the value cannot be converted.
    """
    if memoryview(value)[0] not in _EXTENSIONS:
        return None
    if isinstance(attribute.type, ChoiceType) and (number := _number_of(value)) is not None:
        return value_at(attribute.type.values, number)
    if (wrapped := _unwrap(value)) is None:
        return None
    unit, bare = wrapped
    if attribute.unit in (None, unit):
        return bare
    return _converted(attribute, bare, converter(owner, attribute, unit))


def unwrap_map(owner: str, known: Mapping[str, Attribute], body: bytes | msgspec.Raw) -> bytes | None:
    """A map without the wrappings of values that were kept; None if it has none."""
    fields = _open(body)
    read = {name: unwrap(owner, known[name], value) for name, value in fields.items() if name in known}
    bare = {name: value for name, value in read.items() if value is not None}
    return _encode(fields | bare) if bare else None


def plain_unread(event: Event) -> dict[str, Any]:
    """Return the values of an event that were kept, for formats other than msgpack: those without a unit or number."""
    kept = unread_values(event).items()
    return {name: _decode_any(value) for name, value in kept if _unwrap(value) is None and _number_of(value) is None}


def in_unit(value: msgspec.Raw, unit: str) -> msgspec.Raw:
    """Return a value together with its unit, to be kept."""
    return msgspec.Raw(_encode(msgspec.msgpack.Ext(IN_UNIT, _encode((unit, value)))))


def value_at(values: Sequence[Any], number: int) -> msgspec.Raw:
    """A value of an enumeration that came by its number, to be read or kept: with that number if it is not known."""
    if number < len(values):
        return msgspec.Raw(_encode(values[number]))
    return msgspec.Raw(_encode(msgspec.msgpack.Ext(AT_NUMBER, number.to_bytes(8, "big"))))


def _extension(value: msgspec.Raw, code: int) -> bytes | None:
    """Return the data of an extension of msgpack that has this code."""
    if memoryview(value)[0] not in _EXTENSIONS:
        return None
    try:
        found = _decode_any(value)
    except Exception:  # of msgspec: a time out of range
        return None
    return bytes(found.data) if found.__class__ is msgspec.msgpack.Ext and found.code == code else None


# -- units -------------------------------------------------------------------------------------------------------------


def units_of(cls: type) -> dict[str, str]:
    """Return the units of the attributes of a class that have one."""
    return {attribute.name: attribute.unit for attribute in attributes(cls) if attribute.unit is not None}


def decode_units(body: bytes | memoryview | msgspec.Raw) -> dict[str, str] | None:
    """Return the units of attributes in a packet that states them; None if it does not."""
    try:
        return _decode_units(body)
    except Exception:  # msgspec's errors, UnicodeDecodeError
        return None


def converter(owner: str, attribute: Attribute, unit: str) -> Convert:
    """Return the function that converts values from a unit to that of an attribute, which has another one."""
    assert attribute.unit is not None
    conversion = unit_conversion(unit, attribute.unit)
    subject = f"{owner}.{attribute.name} is in {attribute.unit}"
    if conversion is None:
        return partial(_refuse, f"{subject}, but {describe_units(unit, attribute.unit)}")
    if isinstance(attribute.type, FloatType):
        return conversion.convert
    if isinstance(attribute.type, IntType) and conversion.is_whole:
        return conversion.convert_whole
    why = f"its values, of type {type_text(attribute.type)}, are not converted from {unit}; declare it as float"
    return partial(_refuse, f"{subject}, but {why}")


def _refuse(reason: str, value: object) -> object:
    raise EventError(reason)
