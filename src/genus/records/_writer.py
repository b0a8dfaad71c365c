"""Records from events, where a mapping can be undone.

Whether it can is found when a writer is made: two fields for one attribute, a scale that rounds or a type that is named
by a pattern cannot be undone. Single values may still not be: one that the mapping takes for absent, say. So every
written value is read back, and an event of which a value would be another one is refused.
"""

from typing import Any

import msgspec

from genus.errors import EventError, MappingError
from genus.model import Event
from genus.model.internal import describe_invalid, invalid_finders, is_same, plain_value
from genus.model.types import Attribute, OpaqueType
from genus.records._fields import FieldPlan, show_value
from genus.records._mapping import LEVEL, DeclaredType, FieldPath, MappedField, Mapping, format_path, read_constant
from genus.records._values import ERRORS, WriteValue, scale_problem, value_writer


class RecordWriter:
    """Writes events of one type as records that a `RecordReader` with the same mapping reads as equal events.

    `fallback` are fields for attributes that the mapping has none for. MappingError if the mapping cannot be undone for
    this type; it names the field.

    >>> from genus import Event
    >>> from genus.records import read_mapping
    >>> class Lamp(Event):
    ...     watts: float
    >>> mapping = read_mapping('''
    ... type.is = "Lamp"
    ... [attributes]
    ... "power.kW" = { to = "watts", scale = 1000 }
    ... ''')
    >>> RecordWriter(mapping, Lamp).write(Lamp(watts=60.0))
    {'power': {'kW': 0.06}}
    """

    def __init__(self, mapping: Mapping, cls: type[Event], *, fallback: tuple[MappedField, ...] = ()) -> None:
        known = DeclaredType(cls)
        self._plan = FieldPlan(mapping, known, fallback)
        self._mapping, self._cls = mapping, cls
        self._name = _naming_fields(mapping, known.name)
        self._fields = {name: self._written_fields(name) for name in self._plan.sources}
        types = {each.name: each.type for each in known.attributes}
        self._constants = {name: read_constant(value, types[name]) for name, value in self._plan.constants.items()}
        self._check_required()
        self._check_paths()

    @property
    def paths(self) -> list[FieldPath]:
        """The paths of all fields that may be written."""
        fields = [field.path for fields in self._fields.values() for field, _ in fields]
        return [*(path for path, _ in self._name), *fields]

    @property
    def attributes(self) -> list[tuple[MappedField, Attribute]]:
        """The fields that may be written, with their attributes."""
        known = {each.name: each for each in self._plan.type.attributes}
        return [(field, known[name]) for name, fields in self._fields.items() for field, _ in fields]

    def write(self, event: Event) -> dict[str, Any]:
        """Return the record of an event; EventError names the attribute of which another value would be read back."""
        if (invalid := invalid_finders[self._cls](event)) is not None:
            raise EventError(describe_invalid(event, invalid).message)
        record: dict[str, Any] = {}
        for path, name in self._name:
            _put(record, path, name)
        for attribute in self._plan.type.attributes:
            self._write_attribute(record, attribute.name, plain_value(getattr(event, attribute.name)))
        return record

    def _write_attribute(self, record: dict[str, Any], name: str, value: Any) -> None:
        if value is None:
            if name in self._constants:
                self._refuse(name, f"absent, but the mapping has the constant {self._constants[name]!r} for it")
        elif name in self._fields:
            for field, write in self._fields[name]:
                _put(record, field.path, self._written(name, field, write, value))
        elif value != self._constants.get(name):
            why = "another constant" if name in self._constants else "no field"
            self._refuse(name, f"{show_value(value)}, but the mapping has {why} for it")

    def _written(self, name: str, field: MappedField, write: WriteValue, value: Any) -> Any:
        try:
            return write(value)
        except ERRORS as problem:
            self._refuse(name, f"{show_value(value)}, which field {format_path(field.path)!r} cannot hold: {problem}")

    def _refuse(self, name: str, problem: str) -> Any:
        raise EventError(f"{self._plan.type.name}.{name} is {problem}")

    # -- what can be undone --

    def _written_fields(self, name: str) -> list[tuple[MappedField, WriteValue]]:
        """The fields to write for an attribute: levels of the topic, or else the only one that the mapping states."""
        fields = [self._plan.wanted[number].field for number in self._plan.sources[name]]
        if levels := [field for field in fields if field.path[0].startswith(LEVEL)]:
            return [(field, self._writer(name, field)) for field in levels]
        stated = [field.attribute for field in self._mapping.fields_for(self._plan.type.name)].count(name)
        if stated > 1:
            paths = " and ".join(repr(format_path(field.path)) for field in fields[:stated])
            self._fail(f"fields {paths} are all {self._plan.type.name}.{name}")
        return [(fields[0], self._writer(name, fields[0]))]

    def _writer(self, name: str, field: MappedField) -> WriteValue:
        attribute = self._plan.attribute(name)
        assert attribute is not None
        if problem := scale_problem(attribute.type, field.value_format):
            self._fail(f"field {format_path(field.path)!r}: {problem}")
        write = value_writer(attribute.type, field.value_format)
        if not isinstance(attribute.type, OpaqueType):
            return write
        annotation = next(each.type for each in msgspec.structs.fields(self._cls) if each.name == name)
        return _OpaqueWriter(annotation, field.value_format.absent)

    def _check_required(self) -> None:
        for name in self._plan.type.required:
            if name not in self._fields and name not in self._constants:
                self._fail(f"no field is {self._plan.type.name}.{name}, which every event has")

    def _check_paths(self) -> None:
        """Refuse two values at one path, and a value at a path within another value."""
        for number, path in enumerate(self.paths):
            for other in self.paths[:number]:
                shared = min(len(path), len(other))
                if path[:shared] == other[:shared]:
                    self._fail(f"field {format_path(path)!r} would be written twice, also as {format_path(other)!r}")

    def _fail(self, problem: str) -> Any:
        raise MappingError(f"{self._mapping.name}: {self._plan.type.name} cannot be written: {problem}")


class _OpaqueWriter:
    """Writes values of a nested struct or a list."""

    def __init__(self, annotation: Any, absent: tuple[Any, ...]) -> None:
        self._decode = msgspec.json.Decoder(annotation).decode
        self._absent = absent

    def __call__(self, value: Any) -> Any:
        text = msgspec.json.encode(value)
        written = msgspec.json.decode(text)
        if not is_same(value, self._decode(text)) or (type(written) in (str, int, float) and written in self._absent):
            raise ValueError("read back as another value")
        return written


def _naming_fields(mapping: Mapping, name: str) -> list[tuple[FieldPath, str]]:
    """Return the field that names the type, with the name to write; none if the type is fixed."""
    naming = mapping.naming
    if naming.fixed:
        if naming.fixed == name:
            return []
        raise MappingError(f"{mapping.name}: {name} cannot be written: all records are {naming.fixed}")
    if len(naming.fields) != 1:
        raise MappingError(f"{mapping.name}: {name} cannot be written: its name is made of {len(naming.fields)} fields")
    index = next(number for number, part in enumerate(naming.parts) if not isinstance(part, str))
    before, after = ("".join(map(str, part)) for part in (naming.parts[:index], naming.parts[index + 1 :]))
    for written in _names_for(mapping, name):
        inner = written.removeprefix(before).removesuffix(after)
        if before + inner + after == written:
            return [(naming.fields[0], inner)]
    raise MappingError(f"{mapping.name}: {name} cannot be written: [types] has patterns for it only, or no name")


def _names_for(mapping: Mapping, name: str) -> list[str]:
    """Return the names that a record of a type may have, without those of patterns."""
    naming = mapping.naming
    given = [written for written, type_ in naming.table if type_ == name] if naming.table else [name]
    found = [naming.strip + each for each in given]
    return [each for each in found if naming.type_of(each) == name and not (set(each) & set("*?[") and naming.table)]


def _put(record: dict[str, Any], path: FieldPath, value: Any) -> None:
    for key in path[:-1]:
        record = record.setdefault(key, {})
    record[path[-1]] = value
