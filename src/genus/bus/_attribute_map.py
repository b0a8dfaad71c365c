"""The map of attributes in a packet, read by a class that is older or newer than the one that wrote it.

msgspec decodes a packet whose names and units are those of the class, and refuses one with a name that the class does
not have. Only then, or if units differ, the map is read here, name by name: former names become present ones, values
are converted, and those of unknown names are left out and counted.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from genus.errors import EventError, did_you_mean
from genus.model import Attribute, Event, FloatType, IntType, attributes, name_of, vector
from genus.model._types import type_text
from genus.model._units import describe_units, unit_conversion

UNITS_OF = "units of "
"""First part of the type name of a packet that states the units of a type; no type has a name with a space."""

NIL = msgspec.Raw(b"\xc0")
Convert = Callable[[Any], object]
"""A function that converts a number from one unit to another; it raises EventError if that cannot be done."""

_open = msgspec.msgpack.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.msgpack.Encoder().encode
_DECODERS: dict[type, Callable[[Any], object]] = {
    FloatType: msgspec.msgpack.Decoder(float).decode,
    IntType: msgspec.msgpack.Decoder(int).decode,
}
_decode_any: Callable[[Any], object] = msgspec.msgpack.Decoder().decode
_decode_units = msgspec.msgpack.Decoder(dict[str, str]).decode


class UnreadValues(Counter[str]):
    """The number of values that a class has no attribute for, by type and name, such as `Loop.speed`.

    `hints` says for some which attribute may have replaced them.
    """

    def __init__(self, counts: Mapping[str, int] | Iterable[str] = ()) -> None:
        super().__init__(counts)
        self.hints: dict[str, str] = {}

    def lines(self) -> list[str]:
        """What was not read, a line for each name."""
        return [
            f"{count} value(s) of {label} were not read: the class has no attribute of that name"
            + (f"; {hint}" if (hint := self.hints.get(label)) else "")
            for label, count in self.most_common()
        ]


class MapReader:
    """Reads the attribute maps of one class; `units` are those that the values were written in, where stated."""

    def __init__(self, cls: type[Event], unread: UnreadValues, units: Mapping[str, str] | None = None) -> None:
        self.type = cls
        self._unread = unread
        self._decode = msgspec.msgpack.Decoder(cls).decode
        self._own = {attribute.name: attribute for attribute in attributes(cls)}
        known = [attribute for attribute in vector(cls) if attribute.name in self._own]
        self._renamed = {old: attribute.name for attribute in known for old in attribute.former}
        self._converters = dict(self._find_converters(units or {}))

    @property
    def converts(self) -> bool:
        """Whether values have other units than in the class."""
        return bool(self._converters)

    def _find_converters(self, units: Mapping[str, str]) -> list[tuple[str, Convert]]:
        named = [(name, self._own.get(self._renamed.get(name, name)), unit) for name, unit in units.items()]
        return [
            (name, converter(name_of(self.type), attribute, unit))
            for name, attribute, unit in named
            if attribute is not None and attribute.unit not in (None, unit)
        ]

    def decode(self, body: bytes | memoryview | msgspec.Raw, problem: Exception | None = None) -> Event:
        """The event of a map; raises what msgspec or the class raises if it is none.

        A given problem is that of decoding the map as it is; it is raised if all names in the map are present ones.
        """
        given = _open(body)
        if problem is not None and given.keys() <= self._own.keys():
            raise problem
        fields, strange = self._rename(given)
        for name, convert in self._converters.items():
            present = self._renamed.get(name, name)
            if given.get(name, NIL) != NIL and fields.get(present) is given[name]:
                decode = _DECODERS.get(type(self._own[present].type), _decode_any)
                fields[present] = convert(decode(given[name]))
        try:
            event = self._decode(_encode(fields))
        except EventError as wrong:
            missing = [each for each in self._own if each not in fields and not self._own[each].optional]
            hints = filter(None, (self._hint(name, given[name], missing) for name in strange))
            raise EventError("; ".join([str(wrong), *hints])) from None
        for name in strange:
            self._count(name, given[name], event)
        return event

    def convert(self, event: Event) -> Event:
        """An event of the class with its values converted; EventError if one cannot be."""
        given = {self._renamed.get(name, name): convert for name, convert in self._converters.items()}
        present = {name: getattr(event, name) for name in given if getattr(event, name) is not None}
        return replace(event, **{name: given[name](value) for name, value in present.items()}) if present else event

    def _rename(self, given: Mapping[str, msgspec.Raw]) -> tuple[dict[str, Any], list[str]]:
        """The values by present names, and the names of values without an attribute; a present name goes first."""
        fields: dict[str, Any] = {name: given[name] for name in given if name in self._own}
        strange = []
        for name in given:
            present = self._renamed.get(name)
            if present is not None and fields.get(present, NIL) == NIL:
                fields[present] = given[name]
            elif name not in self._own and given[name] != NIL:
                strange.append(name)
        return fields, strange

    def _count(self, name: str, value: msgspec.Raw, event: Event) -> None:
        label = f"{name_of(self.type)}.{name}"
        self._unread[label] += 1
        if self._unread[label] == 1:
            absent = [each for each in self._own if getattr(event, each) is None]
            self._unread.hints |= {label: hint} if (hint := self._hint(name, value, absent)) else {}

    def _hint(self, name: str, value: msgspec.Raw, absent: list[str]) -> str:
        """A question about the attribute that may have replaced a name: one that is absent and could have the value."""
        context = {attribute.name for attribute in attributes(Event)}
        types = {field.name: field.type for field in msgspec.structs.fields(self.type)}
        fitting = [each for each in absent if each not in context and _fits(value, types[each])]
        likely = fitting if len(fitting) == 1 else [each for each in fitting if did_you_mean(name, [each])]
        return f"did {likely[0]} replace {name}? Declare it with Renamed({name!r})" if len(likely) == 1 else ""


def _fits(value: msgspec.Raw, annotation: Any) -> bool:
    try:
        msgspec.msgpack.decode(value, type=annotation)
    except Exception:  # msgspec's errors, UnicodeDecodeError, OverflowError
        return False
    return True


# -- units -------------------------------------------------------------------------------------------------------------


def units_of(cls: type) -> dict[str, str]:
    """The units of the attributes of a class that have one."""
    return {attribute.name: attribute.unit for attribute in attributes(cls) if attribute.unit is not None}


def decode_units(body: bytes | memoryview | msgspec.Raw) -> dict[str, str] | None:
    """The units of attributes in a packet that states them; None if it does not."""
    try:
        return _decode_units(body)
    except Exception:  # msgspec's errors, UnicodeDecodeError
        return None


def converter(owner: str, attribute: Attribute, unit: str) -> Convert:
    """The function that converts values from a unit to that of an attribute, which has another one."""
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
