"""Mappings: which type a record of another system has, and which of its fields are which attributes.

A mapping is a TOML file; docs/lake-ingest.md lists its keys. Every key is checked when the file is read, and types and
attributes are checked against the catalog when an ingest begins, so that a mistake is one error instead of a million
dead letters. A path to a field is written with dots; a dot within a name is written `\\.`.
"""

import os
import re
import tomllib
from datetime import datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NoReturn, TypeAlias
from zoneinfo import ZoneInfo

import msgspec

from genus.errors import LakeError
from genus.lake._ingest.format import TypePlan, Types
from genus.lake._ingest.safe_cast import ISO, TEXT, UNITS
from genus.lake._ingest.values import BASE64, HEX, ValueFormat, convert_json
from genus.model import AttributeType, BoolType, BytesType, ChoiceType, DurationType, FloatType, IntType, TimeType

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
        """The fields that the name is made of."""
        return tuple(part for part in self.parts if not isinstance(part, str)) if not self.fixed else ()

    def type_of(self, name: str) -> str | None:
        """The type for a name; None if the table has none.

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


class Mapping(msgspec.Struct, frozen=True, kw_only=True):
    """How records of another system become events; made by `read_mapping`, used by `Lake.ingest`.

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
    absent: tuple[str | int | float, ...] = ()
    zone: str = ""
    recorded: MappedField | None = None
    """The field with the time of recording."""
    csv: CsvFormat = CsvFormat()

    @property
    def all_fields(self) -> tuple[MappedField, ...]:
        """The mapped fields of all types."""
        return (*self.fields, *(field for _, fields in self.of for field in fields))

    def fields_for(self, type_: str) -> tuple[MappedField, ...]:
        """The mapped fields for records of a type; those for this type only come first."""
        return (*dict(self.of).get(type_, ()), *self.fields)

    def check(self, types: Types) -> None:
        """Raise LakeError for the first type or attribute that the catalog lacks, or whose format does not fit."""
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
            raise LakeError(f"{self.name}: {name!r} is not an event type of the catalog, which has {known}")
        return plan

    def _check_field(self, table: str, field: MappedField, among: list[TypePlan]) -> None:
        key = format_path(field.path)
        for type_ in self._types_of(f"{table} {key}", field.attribute, among):
            if problem := _format_problem(field.value_format, type_):
                raise LakeError(f"{self.name}: {table} {key}: {problem}")

    def _check_constant(self, attribute: str, value: Any, among: list[TypePlan]) -> None:
        for type_ in self._types_of(f"[constants] {attribute}", attribute, among):
            if constant_column(value, type_).wrong is not None:
                raise LakeError(f"{self.name}: [constants] {attribute} is {value!r}, but must be {type_.describe()}")

    def _types_of(self, location: str, attribute: str, among: list[TypePlan]) -> list[AttributeType]:
        """The types of an attribute in some event types; LakeError if none of them has it."""
        found = [each.type for plan in among for each in plan.attributes if each.name == attribute]
        if not found:
            vectors = "; ".join(dict.fromkeys(plan.vector.describe_unknown(attribute) for plan in among[:3]))
            raise LakeError(f"{self.name}: {location}: {vectors}")
        return found


def constant_column(value: Any, type_: AttributeType) -> Any:
    """Convert a constant, like a JSON value, to a column of one row."""
    return convert_json([value.isoformat() if isinstance(value, datetime) else value], type_, ValueFormat())


def _format_problem(value_format: ValueFormat, type_: AttributeType) -> str:
    """Why a format does not fit an attribute type; empty if it does."""
    described = type_.describe()
    format = value_format.format
    if value_format.scale is not None and not isinstance(type_, IntType | FloatType):
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
    """Split a dotted path into keys.

    >>> parse_path(r"fields.Wind Speed"), parse_path(r"speed\\.kmh")
    (('fields', 'Wind Speed'), ('speed.kmh',))
    """
    return tuple(part.replace("\\.", ".") for part in _DOT.split(text))


def format_path(path: FieldPath) -> str:
    """Write a path with dots."""
    return ".".join(part.replace(".", "\\.") for part in path)


# -- mapping files -----------------------------------------------------------------------------------------------------


_WORDS = (ISO, TEXT, HEX, BASE64, *UNITS)
_BRACES = re.compile(r"\{([^{}]*)\}")


def read_mapping(given: str | os.PathLike[str]) -> Mapping:
    """Read a mapping from a TOML file or from its text.

    A string with a line end or an equals sign is text, any other a path. LakeError names the file, table and key of a
    mistake. Whether types and attributes exist is checked by `Lake.ingest`, which takes the result as `mapping=`.

    >>> mapping = read_mapping('''
    ... ignore = ["id"]
    ... [type]
    ... field = "kind"
    ... [attributes]
    ... "position.lane" = "lane"
    ... ''')
    >>> mapping.fields[0].path, mapping.fields[0].attribute
    (('position', 'lane'), 'lane')
    """
    is_text = isinstance(given, str) and ("\n" in given or "=" in given or not given.strip())
    name = "the mapping" if is_text else os.fspath(given)
    try:
        text = str(given) if is_text else Path(given).read_text("utf-8")
        content = tomllib.loads(text)
    except OSError as problem:
        raise LakeError(f"{name}: cannot be read: {problem.strerror or problem}") from problem
    except ValueError as problem:  # not TOML, or not UTF-8
        raise LakeError(f"{name}: is not TOML: {problem}") from problem
    return _MappingParser(name).read(content)


class _MappingParser:
    """Parses the tables of one mapping file; `name` is used in messages."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._zone = ""
        self._absent: tuple[Any, ...] = ()

    def read(self, content: dict[str, Any]) -> Mapping:
        top = _TableKeys(self, "", content)
        self._zone = self._known_zone("zone", top.take("zone", str, ""))
        self._absent = tuple(self._checked_absent(value) for value in top.take("absent", list, []))
        ignore = top.take("ignore", (list, str), [])
        if isinstance(ignore, str) and ignore != "rest":
            self.fail("ignore", f'is {ignore!r}; write a list of fields, or "rest"')
        made = Mapping(
            name=self._name,
            naming=self._naming(top.take("type", dict, {}), top.take("types", dict, {})),
            fields=self._fields("attributes", top.take("attributes", dict, {})),
            of=tuple((type_, self._fields(f"of.{type_}", table)) for type_, table in top.take("of", dict, {}).items()),
            constants=tuple(top.take("constants", dict, {}).items()),
            inside=self._path("inside", top.take("inside", str, "")),
            ignore=() if isinstance(ignore, str) else tuple(self._path("ignore", path) for path in ignore),
            ignore_rest=ignore == "rest",
            absent=self._absent,
            zone=self._zone,
            recorded=self._recorded_field(top.take("recorded", (str, dict), "")),
            csv=self._csv(top.take("csv", dict, {})),
        )
        top.finish()
        return made

    def fail(self, location: str, problem: str) -> NoReturn:
        raise LakeError(f"{self._name}: {location} {problem}")

    def _path(self, location: str, text: object) -> FieldPath:
        if not isinstance(text, str):
            self.fail(location, f"has {text!r}, which is not a path to a field; write it in quotes")
        return parse_path(str(text)) if text else ()

    def _checked_absent(self, value: object) -> object:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            self.fail("absent", f"has {value!r}; write text or numbers")
        return value

    def _known_zone(self, location: str, zone: str) -> str:
        try:
            return zone if not zone or ZoneInfo(zone) else ""
        except (ValueError, OSError, KeyError):
            return str(self.fail(location, f'is {zone!r}, which is not a time zone; write "Europe/Berlin" or "UTC"'))

    def _naming(self, table: dict[str, Any], types: dict[str, Any]) -> TypeNaming:
        keys = _TableKeys(self, "type", table)
        ways = {way: keys.take(way, str, "") for way in ("is", "field", "name")}
        strip = keys.take("strip", str, "")
        keys.finish()
        if len(stated := [way for way, text in ways.items() if text]) > 1:
            self.fail("[type]", f"has {' and '.join(stated)}; give one of them")
        for name, type_ in types.items():
            if not isinstance(type_, str):
                self.fail(f"[types] {name!r}", f"is {type_!r}; write the name of an event type")
        if ways["is"]:
            return TypeNaming((), ways["is"])
        parts = _template_parts(ways["name"]) if ways["name"] else (parse_path(ways["field"] or "type"),)
        return TypeNaming(parts, "", strip, tuple(types.items()))

    def _fields(self, location: str, table: object) -> tuple[MappedField, ...]:
        if not isinstance(table, dict):
            self.fail(f"[{location}]", f"is {table!r}; write a table of fields and attributes")
        return tuple(self._field(f"[{location}] {key!r}", key, given) for key, given in dict(table).items())

    def _field(self, location: str, path: str, given: object) -> MappedField:
        if isinstance(given, dict) and not isinstance(given.get("to"), str):
            self.fail(location, "has no `to`; a path with dots is written in quotes")
        if not isinstance(given, str | dict):
            self.fail(location, f"is {given!r}; write the name of an attribute")
        options = {"to": given} if isinstance(given, str) else dict(given)
        keys = _TableKeys(self, location, options)
        return MappedField(self._path(location, path), keys.take("to", str, ""), self._value_format(location, keys))

    def _recorded_field(self, given: str | dict[str, Any]) -> MappedField | None:
        if not given:
            return None
        keys = _TableKeys(self, "recorded", {"field": given} if isinstance(given, str) else given)
        path = self._path("recorded", keys.take("field", str, ""))
        return MappedField(path or self.fail("recorded", "names no field"), "", self._value_format("recorded", keys))

    def _value_format(self, location: str, keys: "_TableKeys") -> ValueFormat:
        format = keys.take("format", str, "")
        zone = self._known_zone(f"{location} zone", keys.take("zone", str, self._zone))
        scale = keys.take("scale", (int, float), None)
        keys.finish()
        if format and format not in _WORDS:
            self._check_pattern(location, format, zone)
        return ValueFormat(format, zone, scale, self._absent)

    def _check_pattern(self, location: str, format: str, zone: str) -> None:
        if "%" not in format:
            self.fail(
                location, f"has the format {format!r}; write {', '.join(_WORDS)} or a pattern like %Y-%m-%d %H:%M"
            )
        try:
            datetime.strptime("", format)
        except ValueError as problem:
            if "does not match" not in str(problem):
                self.fail(location, f"has the format {format!r}: {problem}")
        if "%z" not in format and not zone:
            self.fail(location, f'has the format {format!r} without a time zone; add zone = "Europe/Berlin" or another')

    def _csv(self, table: dict[str, Any]) -> CsvFormat:
        keys = _TableKeys(self, "csv", table)
        delimiter, quote = keys.take("delimiter", str, ""), keys.take("quote", str, '"')
        columns, newlines = keys.take("columns", list, []), keys.take("newlines", bool, None)
        keys.finish()
        for key, text, lengths in (("delimiter", delimiter, (0, 1)), ("quote", quote, (0, 1))):
            if len(text) not in lengths or not text.isascii() or text in ("\n", "\r"):
                self.fail(f"[csv] {key}", f"is {text!r}; one ASCII character is needed")
        if not all(isinstance(column, str) for column in columns) or len(set(columns)) < len(columns):
            self.fail("[csv] columns", f"is {columns!r}; write the name of each column, each once")
        return CsvFormat(delimiter, quote, tuple(columns), newlines)


class _TableKeys:
    """The keys of one table; `finish` raises LakeError for keys that were not taken."""

    def __init__(self, reader: _MappingParser, location: str, table: dict[str, Any]) -> None:
        self._reader, self._location, self._table, self._known = reader, location, dict(table), list[str]()

    def take(self, key: str, kind: type | tuple[type, ...], default: Any) -> Any:
        self._known.append(key)
        value = self._table.pop(key, default)
        if value is not default and (not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool)):
            kinds = kind if isinstance(kind, tuple) else (kind,)
            wanted = " or ".join(dict.fromkeys(_KINDS[each] for each in kinds))
            self._reader.fail(f"{self._where}{key}", f"is {value!r}; {wanted} is needed")
        return value

    def finish(self) -> None:
        if self._table:
            known = ", ".join(self._known)
            self._reader.fail(f"{self._where}{next(iter(self._table))}", f"is not a known key; known are {known}")

    @property
    def _where(self) -> str:
        if not self._location:
            return ""
        return f"{self._location} " if self._location.startswith("[") else f"[{self._location}] "


_KINDS = {str: "text", list: "a list", dict: "a table", bool: "true or false", int: "a number", float: "a number"}


def _template_parts(template: str) -> tuple[str | FieldPath, ...]:
    """Split a template like `{kind}/{vehicle.class}` into texts and field paths."""
    pieces = _BRACES.split(template)
    return tuple(parse_path(piece) if index % 2 else piece for index, piece in enumerate(pieces) if piece)
