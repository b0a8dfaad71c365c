"""Records from events, where a mapping can be undone; and the fields that readers and writers gather values by.

Whether it can is found when a writer is made: two fields for one attribute, a scale that rounds or a type that is named
by a pattern cannot be undone. Single values may still not be: one that the mapping takes for absent, say. So every
written value is read back, and an event of which a value would be another one is refused.

A `FieldPlan` is made of a mapping and a type. Readers of single records and of columns gather values by the same plan.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from genus.errors import EventError, MappingError
from genus.model import Event
from genus.model.internal import describe_invalid, invalid_finders, is_same, plain_value, type_text
from genus.model.types import Attribute, AttributeType, OpaqueType, TextType, TimeType
from genus.records._mapping import (
    LEVEL,
    DeclaredType,
    FieldPath,
    MappedField,
    Mapping,
    RecordType,
    format_path,
    read_constant,
)
from genus.records._values import ERRORS, ISO, TEXT, ValueFormat, WriteValue, scale_problem, value_writer

NO_SOURCE = "genus:"
"""The source of a CloudEvent whose event has none: CloudEvents must name one, and this is not read as an attribute."""

ENVELOPE = (
    MappedField(("time",), "time"),
    MappedField(("source",), "source", ValueFormat(absent=(NO_SOURCE,))),
    MappedField(("subject",), "place", ValueFormat(absent=("",))),
)
"""Fields of a CloudEvent's envelope that are attributes unless its data has them."""

_SHOWN = 60
"""Number of characters of a wrong value that a reason shows."""


class WantedField(msgspec.Struct, frozen=True):
    """A field to read, and the attribute type of its values; without an attribute it is the time of recording."""

    field: MappedField
    type: AttributeType


class FieldNode(msgspec.Struct):
    """A node in the tree of wanted and known fields of a record."""

    wanted: list[int] = []
    """Indexes of the wanted fields that are here."""
    children: dict[str, "FieldNode"] = {}
    is_ignored: bool = False
    takes_rest: bool = False
    """Whether fields without a node are ignored here."""
    refused: str = ""
    """If not empty, why a value here is a fault."""

    def at(self, path: FieldPath) -> "FieldNode":
        """Return the node at the end of a path; created if it does not exist."""
        if not path:
            return self
        return self.children.setdefault(path[0], FieldNode(takes_rest=self.takes_rest)).at(path[1:])


class FieldPlan:
    """The wanted fields of records of one type.

    `fallback` are fields to use where a record does not have an attribute otherwise. Records of tables are flat, with
    the names of columns; with `as_text` all values are text, as in CSV. `sources` has for each attribute
    the numbers of its wanted fields, the first that is not absent counts; `recorded` is the number of the field with
    the time of recording. `constants` are the stated values of attributes, as the mapping has them.
    """

    def __init__(
        self,
        mapping: Mapping,
        type_: RecordType,
        fallback: tuple[MappedField, ...] = (),
        *,
        is_flat: bool = False,
        as_text: bool = False,
    ) -> None:
        self.type = type_
        self._is_flat, self._as_text = is_flat, as_text
        self.tree = FieldNode(takes_rest=mapping.ignore_rest)
        self.wanted: list[WantedField] = []
        self.sources: dict[str, list[int]] = {}
        self.recorded: int | None = None
        self._want_all(mapping, fallback)
        for path in (*mapping.naming.fields, *mapping.ignore):
            node = self._node(path)
            node.is_ignored = node.takes_rest = True
        self.constants = {name: value for name, value in mapping.constants if self.attribute(name)}

    def _want_all(self, mapping: Mapping, fallback: tuple[MappedField, ...]) -> None:
        named = mapping.fields_for(self.type.name)
        for field in (*named, *self._alike(mapping, named), *fallback):
            attribute = self.attribute(field.attribute)
            if attribute is not None and not _is_foreign_source(field, attribute):
                self.sources.setdefault(attribute.name, []).append(self._want(field, attribute.type))
        if mapping.recorded is not None:
            self.recorded = self._want(mapping.recorded, TimeType())

    def _alike(self, mapping: Mapping, named: tuple[MappedField, ...]) -> Iterator[MappedField]:
        """Fields named like attributes that the mapping does not mention; a former name comes after the present one."""
        stated = {field.attribute for field in named}
        paths = [*(field.path for field in named), *mapping.naming.fields, *mapping.ignore]
        taken = {path[:length] for path in paths for length in range(1, len(path) + 1)}
        value_format = ValueFormat(zone=mapping.zone, absent=mapping.absent)
        for attribute in self.type.attributes:
            for name in (attribute.name, *attribute.former):
                path = (*mapping.inside, name)
                if attribute.name not in stated and path not in taken:
                    yield MappedField(path, attribute.name, value_format)

    def _want(self, field: MappedField, type_: AttributeType) -> int:
        form = field.value_format
        if self._as_text:
            form = form.as_text()
        elif self._is_flat and isinstance(type_, OpaqueType):
            form = msgspec.structs.replace(form, format=TEXT)  # tables may hold JSON as text only
        field = msgspec.structs.replace(field, value_format=form)
        self.wanted.append(WantedField(field, type_))
        self._node(field.path).wanted.append(len(self.wanted) - 1)
        return len(self.wanted) - 1

    def _node(self, path: FieldPath) -> FieldNode:
        return self.tree.at((column_name(path),) if self._is_flat else path)

    def is_inside(self, column: str) -> bool:
        """Return whether a column of a table is within one that is wanted or ignored, such as a field of a struct."""
        return self._is_flat and column.startswith(tuple(f"{name}." for name in self.tree.children))

    def attribute(self, name: str) -> Attribute | None:
        return next((each for each in self.type.attributes if each.name == name), None)

    def ignore_envelope(self, mapping: Mapping) -> None:
        """Ignore unknown fields of a CloudEvent's envelope, but not of its data."""
        self.tree.takes_rest = True
        self.tree.at(mapping.inside)
        binary = self.tree.at(("data_base64",))
        if not binary.wanted and not binary.is_ignored:
            binary.refused = "data_base64 holds binary data, which the mapping gives to no attribute"

    def describe_wrong(self, number: int, value: object) -> str:
        wanted = self.wanted[number]
        path, name = format_path(wanted.field.path), wanted.field.attribute
        at = "" if path == name else f" (field {path!r})"
        return f"{self._subject(number)} is {show_value(value)}, but must be {_must(wanted)}{_hint(wanted, value)}{at}"

    def describe_type(self, number: int) -> str:
        """Return what the values of a field must be, without the value at fault."""
        return f"{self._subject(number)} must be {_must(self.wanted[number])}"

    def _subject(self, number: int) -> str:
        name = self.wanted[number].field.attribute
        return f"{self.type.name}.{name}" if name else "the time of recording"


def column_name(path: FieldPath) -> str:
    return ".".join(path)


def _is_foreign_source(field: MappedField, attribute: Attribute) -> bool:
    """Whether a field is the envelope's source or subject, a text, of a type where that attribute is a number."""
    return field in ENVELOPE and field.attribute != "time" and not isinstance(attribute.type, TextType)


def cloud_mapping(mapping: Mapping) -> Mapping:
    """Return the mapping for CloudEvents: attributes are in `data` unless the mapping says otherwise."""
    return msgspec.structs.replace(mapping, inside=mapping.inside or ("data",))


def describe_version(version: object) -> str:
    return f"specversion is {show_value(version)}; CloudEvents 1.0 are read"


def _must(wanted: WantedField) -> str:
    return "JSON" if isinstance(wanted.type, OpaqueType) else type_text(wanted.type)


def _hint(wanted: WantedField, value: object) -> str:
    if isinstance(wanted.type, TimeType) and wanted.field.value_format.format in ("", ISO, TEXT):
        return " with a zone, as ISO 8601 writes it" if isinstance(value, str) else " (the mapping may state a format)"
    return ""


def show_value(value: object) -> str:
    """Return a value as shown in reasons, shortened if it is long."""
    try:
        text = repr(value) if not isinstance(value, str) else repr(value[: _SHOWN + 1])
    except RecursionError:
        return "a value with too many levels"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


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
