r"""Mappings: which type a record of another system has, and which of its fields are which attributes.

A mapping is made from a TOML file by `read_mapping`; docs/lake-ingest.md lists its keys, docs/foreign.md those of its
topics. Types and attributes are checked against those that are known before the first record is read, so that a mistake
is one error instead of a million dead letters. A path to a field is written with dots; a dot within a name is written
`\.`.
"""

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any, Protocol, TypeAlias

import msgspec

from genus.errors import MappingError
from genus.model import Event, attributes, is_event_type, name_of, subtypes, vector
from genus.model.internal import type_text
from genus.model.types import (
    Attribute,
    AttributeType,
    BoolType,
    BytesType,
    ChoiceType,
    DurationType,
    FloatType,
    IntType,
    TimeType,
    Vector,
)
from genus.records._values import BASE64, ERRORS, HEX, ISO, TEXT, UNITS, ValueFormat, value_reader


class RecordType(Protocol):
    """An event type: its name, its own and inherited attributes, those that every event has, and its family's vector.

    The lake knows types from a catalog, a bus from classes.
    """

    name: str
    attributes: tuple[Attribute, ...]
    required: tuple[str, ...]
    vector: Vector


def own_attributes(type_: RecordType) -> tuple[str, ...]:
    """Return the names of the attributes that say what happened: all but those that every event may carry."""
    return tuple(each.name for each in type_.attributes if each.name not in CONTEXT)


CONTEXT = frozenset(each.name for each in attributes(Event))


class KnownTypes(Protocol):
    """Event types by name."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all event types."""

    def plan(self, name: str) -> RecordType | None:
        """Return the type of a name; None if it is not known, or is a kind."""


class DeclaredType:
    """An event type that is known by its class."""

    def __init__(self, cls: type[Event]) -> None:
        known = vector(cls)
        self.cls = cls
        self.name = name_of(cls)
        in_family = {each.name: each.names for each in known}  # a base class may have it from before it was renamed
        self.attributes = tuple(each.with_names(in_family.get(each.name, ())) for each in attributes(cls))
        self.required = tuple(each.name for each in self.attributes if not each.optional)
        self.vector = known


class DeclaredTypes:
    """The given event types and their subtypes, or all that are declared when a name is looked up.

    Of several classes with one name, the one that was declared last is meant.
    """

    def __init__(self, types: Iterable[type] | None = None) -> None:
        self._given = None if types is None else [cls for root in types for cls in subtypes(root)]
        self._plans: dict[str, DeclaredType] = {}
        self._by_name: dict[str, type[Event]] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name_of(cls) for cls in self._classes()))

    def plan(self, name: str) -> DeclaredType | None:
        if name not in self._plans:
            if name not in self._by_name:
                self._by_name = {name_of(cls): cls for cls in self._classes()}
            if name not in self._by_name:
                return None
            self._plans[name] = DeclaredType(self._by_name[name])
        return self._plans[name]

    def _classes(self) -> list[type[Event]]:
        known = self._given if self._given is not None else list(subtypes(Event))
        return [cls for cls in known if is_event_type(cls)]


FieldPath: TypeAlias = tuple[str, ...]

_DOT = re.compile(r"(?<!\\)\.")


class MappedField(msgspec.Struct, frozen=True):
    """A field of a record, the attribute it is mapped to, and the format of its values."""

    path: FieldPath
    attribute: str
    value_format: ValueFormat = ValueFormat()


class TypeNaming(msgspec.Struct, frozen=True):
    """How the type of a record is found: it is `fixed`, or a name is made of texts and fields."""

    parts: tuple[str | FieldPath, ...] = (("type",),)
    fixed: str = ""
    strip: str = ""
    table: tuple[tuple[str, str], ...] = ()
    """Names and patterns of names, with their types; if empty, the name is the type's."""

    @property
    def fields(self) -> tuple[FieldPath, ...]:
        return tuple(part for part in self.parts if not isinstance(part, str)) if not self.fixed else ()

    def type_of(self, name: str) -> str | None:
        """Return the type for a name; None if the table has none.

        >>> TypeNaming(strip="city.", table=(("loop", "Loop"), ("lamp*", "Lamp"))).type_of("city.lamp7")
        'Lamp'
        """
        name = name.removeprefix(self.strip)
        if not self.table:
            return name
        exact = dict(self.table).get(name)
        return exact or next((type_ for pattern, type_ in self.table if fnmatchcase(name, pattern)), None)


class CsvFormat(msgspec.Struct, frozen=True):
    """How a CSV file is written."""

    delimiter: str = ""
    """The default is a comma, or a tab for .tsv files."""
    quote: str = '"'
    columns: tuple[str, ...] = ()
    """Column names of a file without a header."""
    newlines: bool | None = None
    """Whether quoted values may contain line ends; None: they may if the file has any quotes."""


COUNT, REJECT = "count", "reject"
"""What is done with fields that the mapping does not know."""
JSON, NUMBER, PLAIN_TEXT, SKIPPED, SPARKPLUG = "json", "number", "text", "skipped", "sparkplug"
"""What the payload of a topic is."""
LEVEL = "@"
"""Begins the name of a field that is a level of the topic."""


class TopicRule(msgspec.Struct, frozen=True):
    """What the messages of some topics are.

    `pattern` has the levels of the topics: texts, names in braces, `+`, and `#` as the last one.
    """

    pattern: str
    type: str = ""
    """The type of all records; if empty, the mapping's naming finds it."""
    payload: str = JSON
    value: MappedField | None = None
    """The attribute that a payload is which is a number or text."""
    at: FieldPath = ()
    """Where in the payload the record is."""
    is_list: bool = False
    """Whether there is a list of records."""
    pairs: FieldPath = ()
    """Where in the record a list of names and values is, which is read as an object."""
    only: str = ""
    """`read` or `publish`, if the rule is not for both."""
    fields: tuple[MappedField, ...] = ()
    """Fields of the records of these topics; they come before those that the mapping has for all."""
    constants: tuple[tuple[str, Any], ...] = ()
    ignore: tuple[FieldPath, ...] = ()
    ignore_rest: bool = False

    @property
    def levels(self) -> tuple[str, ...]:
        """The levels of the pattern, as they are written."""
        return tuple(self.pattern.split("/"))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(level[1:-1] for level in self.levels if level.startswith("{"))

    @property
    def all_names(self) -> tuple[str, ...]:
        """The names of levels, and of what Sparkplug says beside its metrics: when, and who came or went."""
        if self.payload != SPARKPLUG:
            return self.names
        return (*self.names, "time", *(["online"] if self.levels[2].endswith(("BIRTH", "DEATH")) else []))

    @property
    def filter(self) -> str:
        """The pattern as MQTT writes it."""
        return "/".join("+" if level.startswith("{") else level for level in self.levels)


class Mapping(msgspec.Struct, frozen=True, kw_only=True):
    """How records of another system become events; made by `read_mapping`.

    Used by `Lake.ingest`, `RecordReader`, `RecordWriter` and `ForeignTopics`.

    The default mapping takes fields named like attributes, and the type from the field `type`.
    """

    name: str = "the mapping"
    naming: TypeNaming = TypeNaming()
    fields: tuple[MappedField, ...] = ()
    of: tuple[tuple[str, tuple[MappedField, ...]], ...] = ()
    """Fields for records of one type only."""
    constants: tuple[tuple[str, Any], ...] = ()
    """Values of attributes that records do not have."""
    inside: FieldPath = ()
    """Path of the object whose fields are named like attributes."""
    ignore: tuple[FieldPath, ...] = ()
    ignore_rest: bool = False
    unknown: str = ""
    """Whether a record with an unknown field is an event (`count`) or not (`reject`); messages are, if not stated."""
    absent: tuple[str | int | float, ...] = ()
    zone: str = ""
    recorded: MappedField | None = None
    """The field with the time of recording."""
    csv: CsvFormat = CsvFormat()
    topics: tuple[TopicRule, ...] = ()
    """What is in messages, by topic; for `ForeignTopics`."""

    @property
    def all_fields(self) -> tuple[MappedField, ...]:
        """Every field that a mapping names for all topics, those of single types included."""
        return (*self.fields, *(field for _, fields in self.of for field in fields))

    @property
    def counts_unknown(self) -> bool:
        """Whether unknown fields are counted; a record that has one is rejected otherwise.

        A message that is rejected is lost, a line of a file is not, so the default is to count for topics only.
        """
        return self.unknown == COUNT if self.unknown else bool(self.topics)

    def fields_for(self, type_: str) -> tuple[MappedField, ...]:
        """Return the mapped fields for records of a type; those for this type only come first."""
        return (*dict(self.of).get(type_, ()), *self.fields)

    def for_topic(self, rule: TopicRule) -> "Mapping":
        """Return the mapping for the records of a topic: its fields replace those of the same path or attribute."""
        stated = {key for field in rule.fields for key in (field.attribute, field.path)}
        is_plain = rule.value is not None
        elsewhere = [each.at for each in self.topics if each.pattern == rule.pattern and each.at not in ((), rule.at)]
        if rule.payload == SPARKPLUG:  # what every event may carry is no metric, unless the mapping says so
            elsewhere += [(name,) for name in CONTEXT]

        def others(fields: tuple[MappedField, ...]) -> tuple[MappedField, ...]:
            used = [field for field in fields if not is_plain or field.path[0].startswith(LEVEL)]
            return tuple(field for field in used if stated.isdisjoint((field.attribute, field.path)))

        return msgspec.structs.replace(
            self,
            naming=TypeNaming((), rule.type) if rule.type else self.naming,
            fields=(*([rule.value] if rule.value is not None else []), *rule.fields, *others(self.fields)),
            inside=() if is_plain else self.inside,
            of=tuple((type_, others(fields)) for type_, fields in self.of),
            constants=tuple({**dict(self.constants), **dict(rule.constants)}.items()),
            ignore=(*self.ignore, *rule.ignore, *((LEVEL + name,) for name in rule.all_names), *elsewhere),
            ignore_rest=self.ignore_rest or rule.ignore_rest,
            unknown=COUNT if self.counts_unknown else REJECT,
            topics=(),
        )

    def check(self, types: KnownTypes) -> None:
        """Raise MappingError for the first type or attribute that is not known, or whose format does not fit."""
        rules = [rule for rule in self.topics if rule.type]
        named = [self.naming.fixed] if self.naming.fixed else [type_ for _, type_ in self.naming.table]
        plans = {name: self._plan(types, name) for name in (*named, *(rule.type for rule in rules))}
        for type_, fields in self.of:
            for field in fields:
                self._check_field(f"[of.{type_}]", field, [self._plan(types, type_)])
        is_open = not named and (not rules or any(not rule.type for rule in self.topics if rule.payload == JSON))
        among = [plan for name in types.names if (plan := types.plan(name))] if is_open else list(plans.values())
        for rule in self.topics:
            self._check_rule(rule, [plans[rule.type]] if rule.type else among)
        for field in self.fields:
            self._check_field("[attributes]", field, among)
        for attribute, value in self.constants:
            self._check_constant(attribute, value, among)

    def _check_rule(self, rule: TopicRule, among: list[RecordType]) -> None:
        location = f"[topics] {rule.pattern!r}"
        for field in (*rule.fields, *([rule.value] if rule.value is not None else [])):
            self._check_field(location, field, among)
        for attribute, value in rule.constants:
            self._check_constant(attribute, value, among)
        if rule.value is not None and (own := own_attributes(among[0])):
            given = {field.attribute for field in self.for_topic(rule).fields}.union(rule.names, dict(self.constants))
            if given.isdisjoint(own):
                raise MappingError(f"{self.name}: {location} gives no attribute of {rule.type}: {', '.join(own)}")

    def _plan(self, types: KnownTypes, name: str) -> RecordType:
        plan = types.plan(name)
        if plan is None:
            known = ", ".join(sorted(types.names))
            raise MappingError(f"{self.name}: {name!r} is not an event type of the catalog, which has {known}")
        return plan

    def _check_field(self, table: str, field: MappedField, among: list[RecordType]) -> None:
        key = format_path(field.path)
        for type_ in self._types_of(f"{table} {key}", field.attribute, among):
            if problem := _format_problem(field.value_format, type_):
                raise MappingError(f"{self.name}: {table} {key}: {problem}")

    def _check_constant(self, attribute: str, value: Any, among: list[RecordType]) -> None:
        for type_ in self._types_of(f"[constants] {attribute}", attribute, among):
            try:
                read_constant(value, type_)
            except ERRORS:
                raise MappingError(
                    f"{self.name}: [constants] {attribute} is {value!r}, but must be {type_text(type_)}"
                ) from None

    def _types_of(self, location: str, attribute: str, among: list[RecordType]) -> list[AttributeType]:
        """Return the types of an attribute in some event types; MappingError if none of them has it."""
        found = [each.type for plan in among for each in plan.attributes if each.name == attribute]
        if not found:
            vectors = "; ".join(dict.fromkeys(plan.vector.describe_unknown(attribute) for plan in among[:3]))
            raise MappingError(f"{self.name}: {location}: {vectors}")
        return found


def read_constant(value: Any, type_: AttributeType) -> Any:
    """Return the attribute value that a constant is; raises one of `ERRORS` if it is none."""
    return value_reader(type_, ValueFormat())(value)


def _format_problem(value_format: ValueFormat, type_: AttributeType) -> str:
    """Why a format does not fit an attribute type; empty if it does."""
    described = type_text(type_)
    format = value_format.format
    if value_format.scale is not None and not isinstance(type_, IntType | FloatType):
        return f"scale is for numbers, and the attribute is {described}"
    is_pattern = isinstance(type_, TimeType) and "%" in format
    if format and not is_pattern and format not in _FORMATS.get(type(type_), ()):
        return f"format {format!r} is not for an attribute that is {described}"
    return ""


_FORMATS: dict[type, tuple[str, ...]] = {
    **dict.fromkeys((TimeType, DurationType), (ISO, *UNITS)),
    BytesType: (HEX, BASE64),
    **dict.fromkeys((BoolType, IntType, FloatType, ChoiceType), (TEXT,)),
}


# -- paths -------------------------------------------------------------------------------------------------------------


def parse_path(text: str) -> FieldPath:
    """Split a dotted path into keys.

    >>> parse_path(r"fields.Wind Speed"), parse_path(r"speed\\.kmh")
    (('fields', 'Wind Speed'), ('speed.kmh',))
    """
    return tuple(part.replace("\\.", ".") for part in _DOT.split(text))


def format_path(path: FieldPath) -> str:
    return ".".join(part.replace(".", "\\.") for part in path)
