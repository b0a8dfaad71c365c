"""Mappings: how records of others say their type, and which of their fields are which attributes.

A mapping is checked when it is read (`read_mapping`), and against the catalog when ingest begins, so that a mistake in
it is one error and not a million dead letters. A path to a field is written with dots; a dot that belongs to a name is
written `\\.`.
"""

import re
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

import msgspec

from genus.errors import LakeError
from genus.lake.ingest.moments import ISO, TEXT, UNITS
from genus.lake.ingest.source import TypePlan, Types
from genus.lake.ingest.values import BASE64, HEX, Spelling, convert_json
from genus.model import (
    AttributeType,
    BoolType,
    BytesType,
    ChoiceType,
    DurationType,
    FloatType,
    IntType,
    TimeType,
)

FieldPath: TypeAlias = tuple[str, ...]

_DOT = re.compile(r"(?<!\\)\.")


class Field(msgspec.Struct, frozen=True):
    """A field of a record, the attribute that it is, and how its values are written."""

    path: FieldPath
    attribute: str
    spelling: Spelling = Spelling()


class Naming(msgspec.Struct, frozen=True):
    """How a record says its type: not at all (`fixed`), or by texts and fields that make up a name."""

    parts: tuple[str | FieldPath, ...] = (("type",),)
    fixed: str = ""
    strip: str = ""
    table: tuple[tuple[str, str], ...] = ()
    """Names and patterns of names, with the types they stand for; without any, a name is its type's."""

    @property
    def fields(self) -> tuple[FieldPath, ...]:
        """The fields that make up the name."""
        return tuple(part for part in self.parts if not isinstance(part, str)) if not self.fixed else ()

    def type_of(self, name: str) -> str | None:
        """The type that a name stands for; None if it stands for none.

        >>> Naming(strip="city.", table=(("loop", "Loop"), ("lamp*", "Lamp"))).type_of("city.lamp7")
        'Lamp'
        """
        name = name.removeprefix(self.strip)
        if not self.table:
            return name
        exact = dict(self.table).get(name)
        return exact or next((type_ for pattern, type_ in self.table if fnmatchcase(name, pattern)), None)


class CsvForm(msgspec.Struct, frozen=True):
    """How a CSV file is written."""

    delimiter: str = ""
    """A comma, or a tab in files called .tsv, if nothing is said."""
    quote: str = '"'
    columns: tuple[str, ...] = ()
    """The names of the columns of a file without a header."""
    newlines: bool | None = None
    """Whether quoted values may hold line ends; None: they may if the file has any quotes."""


class Mapping(msgspec.Struct, frozen=True, kw_only=True):
    """What a mapping file says; without one, fields are named like attributes and `type` names the type."""

    name: str = "the mapping"
    naming: Naming = Naming()
    fields: tuple[Field, ...] = ()
    of: tuple[tuple[str, tuple[Field, ...]], ...] = ()
    """Fields of the records of one type alone."""
    constants: tuple[tuple[str, Any], ...] = ()
    """Values of attributes that a record says nothing of."""
    inside: FieldPath = ()
    """Where the fields are that have the names of attributes."""
    ignore: tuple[FieldPath, ...] = ()
    ignore_rest: bool = False
    absent: tuple[str | int | float, ...] = ()
    zone: str = ""
    recorded: Field | None = None
    """The field that says when a record was made."""
    csv: CsvForm = CsvForm()

    @property
    def all_fields(self) -> tuple[Field, ...]:
        """The fields that are named for any type."""
        return (*self.fields, *(field for _, fields in self.of for field in fields))

    def fields_for(self, type_: str) -> tuple[Field, ...]:
        """The fields that are named for records of a type, its own first."""
        return (*dict(self.of).get(type_, ()), *self.fields)

    def check(self, types: Types) -> None:
        """Raise LakeError naming the first type or attribute that the catalog does not have or that is misread."""
        named = [self.naming.fixed] if self.naming.fixed else [type_ for _, type_ in self.naming.table]
        plans = {type_: self._plan(types, type_) for type_ in (*named, *dict(self.of))}
        for type_, fields in self.of:
            for field in fields:
                self._check_field(f"[of.{type_}]", field, [plans[type_]])
        among = [plans[type_] for type_ in named] or [plan for name in types.entries if (plan := types.plan(name))]
        for field in self.fields:
            self._check_field("[attributes]", field, among)
        for attribute, value in self.constants:
            self._check_constant(attribute, value, among)

    def _plan(self, types: Types, name: str) -> TypePlan:
        plan = types.plan(name)
        if plan is None:
            known = ", ".join(sorted(entry.name for entry in types.entries.values() if not entry.kind))
            raise LakeError(f"{self.name}: {name!r} is no event type of the catalog, which has {known}")
        return plan

    def _check_field(self, table: str, field: Field, among: list[TypePlan]) -> None:
        key = path_text(field.path)
        for type_ in self._types_of(f"{table} {key}", field.attribute, among):
            if problem := _misspelt(field.spelling, type_):
                raise LakeError(f"{self.name}: {table} {key}: {problem}")

    def _check_constant(self, attribute: str, value: Any, among: list[TypePlan]) -> None:
        for type_ in self._types_of(f"[constants] {attribute}", attribute, among):
            if constant_column(value, type_).wrong is not None:
                raise LakeError(f"{self.name}: [constants] {attribute} is {value!r}, but must be {type_.describe()}")

    def _types_of(self, place: str, attribute: str, among: list[TypePlan]) -> list[AttributeType]:
        """The types that an attribute has in some event types; refused if none of them has it."""
        found = [each.type for plan in among for each in plan.attributes if each.name == attribute]
        if not found:
            vectors = "; ".join(dict.fromkeys(plan.vector.outside(attribute) for plan in among[:3]))
            raise LakeError(f"{self.name}: {place}: {vectors}")
        return found


def constant_column(value: Any, type_: AttributeType) -> Any:
    """A constant as a column of one row, read as JSON would be."""
    return convert_json([value.isoformat() if isinstance(value, datetime) else value], type_, Spelling())


def _misspelt(spelling: Spelling, type_: AttributeType) -> str:
    """What is wrong with a field's options for an attribute of a type; empty if nothing is."""
    described = type_.describe()
    format = spelling.format
    if spelling.scale is not None and not isinstance(type_, IntType | FloatType):
        return f"scale is for numbers, and the attribute is {described}"
    if format and not _fits(format, type_):
        return f"format {format!r} is not for an attribute that is {described}"
    return ""


def _fits(format: str, type_: AttributeType) -> bool:
    match type_:
        case TimeType():
            return format in (ISO, *UNITS) or "%" in format
        case DurationType():
            return format in (ISO, *UNITS)
        case BytesType():
            return format in (HEX, BASE64)
        case BoolType() | IntType() | FloatType() | ChoiceType():
            return format == TEXT
    return False


# -- paths -------------------------------------------------------------------------------------------------------------


def parse_path(text: str) -> FieldPath:
    """The keys that a dotted path goes through.

    >>> parse_path(r"fields.Wind Speed"), parse_path(r"speed\\.kmh")
    (('fields', 'Wind Speed'), ('speed.kmh',))
    """
    return tuple(part.replace("\\.", ".") for part in _DOT.split(text))


def path_text(path: FieldPath) -> str:
    """A path as it is written."""
    return ".".join(part.replace(".", "\\.") for part in path)
