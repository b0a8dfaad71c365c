"""The text of mapping files: TOML, every key of which is checked (docs/lake-ingest.md lists them)."""

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
from genus.lake._ingest.cast import ISO, TEXT, UNITS
from genus.lake._ingest.format import TypePlan, Types
from genus.lake._ingest.values import BASE64, HEX, Spelling, convert_json
from genus.model import AttributeType, BoolType, BytesType, ChoiceType, DurationType, FloatType, IntType, TimeType

# Mappings: how records of others say their type, and which of their fields are which attributes.
#
# A mapping is checked when it is read (`read_mapping`), and against the catalog when ingest begins, so that a mistake
# in it is one error and not a million dead letters. A path to a field is written with dots; a dot that belongs to a
# name is written `\.`.


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
            vectors = "; ".join(dict.fromkeys(plan.vector.describe_unknown(attribute) for plan in among[:3]))
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


__all__ = ["Mapping", "read_mapping"]

_WORDS = (ISO, TEXT, HEX, BASE64, *UNITS)
_HOLE = re.compile(r"\{([^{}]*)\}")


def read_mapping(given: str | os.PathLike[str]) -> Mapping:
    """The mapping of a file, or of its text; LakeError names the file, the table and the key that is wrong.

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
    except ValueError as problem:  # no TOML, or no text at all
        raise LakeError(f"{name}: is not TOML: {problem}") from problem
    return _Reader(name).read(content)


class _Reader:
    """Reads the tables of one mapping file; knows its name for messages."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._zone = ""
        self._absent: tuple[Any, ...] = ()

    def read(self, content: dict[str, Any]) -> Mapping:
        top = _Keys(self, "", content)
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
            recorded=self._recorded(top.take("recorded", (str, dict), "")),
            csv=self._csv(top.take("csv", dict, {})),
        )
        top.finish()
        return made

    def fail(self, place: str, problem: str) -> NoReturn:
        raise LakeError(f"{self._name}: {place} {problem}")

    def _path(self, place: str, text: object) -> FieldPath:
        if not isinstance(text, str):
            self.fail(place, f"has {text!r}, which is no path to a field; write it in quotes")
        return parse_path(str(text)) if text else ()

    def _checked_absent(self, value: object) -> object:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            self.fail("absent", f"has {value!r}; text and numbers can mean absent")
        return value

    def _known_zone(self, place: str, zone: str) -> str:
        try:
            return zone if not zone or ZoneInfo(zone) else ""
        except (ValueError, OSError, KeyError):
            return str(self.fail(place, f'is {zone!r}, which is no time zone; write one like "Europe/Berlin" or "UTC"'))

    def _naming(self, table: dict[str, Any], types: dict[str, Any]) -> Naming:
        keys = _Keys(self, "type", table)
        ways = {way: keys.take(way, str, "") for way in ("is", "field", "name")}
        strip = keys.take("strip", str, "")
        keys.finish()
        if len(stated := [way for way, text in ways.items() if text]) > 1:
            self.fail("[type]", f"has {' and '.join(stated)}; one of them says what the type is")
        for name, type_ in types.items():
            if not isinstance(type_, str):
                self.fail(f"[types] {name!r}", f"is {type_!r}; write the name of a type")
        if ways["is"]:
            return Naming((), ways["is"])
        parts = _parts(ways["name"]) if ways["name"] else (parse_path(ways["field"] or "type"),)
        return Naming(parts, "", strip, tuple(types.items()))

    def _fields(self, place: str, table: object) -> tuple[Field, ...]:
        if not isinstance(table, dict):
            self.fail(f"[{place}]", f"is {table!r}; write a table of fields and attributes")
        return tuple(self._field(f"[{place}] {key!r}", key, given) for key, given in dict(table).items())

    def _field(self, place: str, path: str, given: object) -> Field:
        if isinstance(given, dict) and not isinstance(given.get("to"), str):
            self.fail(place, "has no `to`; a path with dots is written in quotes")
        if not isinstance(given, str | dict):
            self.fail(place, f"is {given!r}; write the name of an attribute")
        options = {"to": given} if isinstance(given, str) else dict(given)
        keys = _Keys(self, place, options)
        return Field(self._path(place, path), keys.take("to", str, ""), self._spelling(place, keys))

    def _recorded(self, given: str | dict[str, Any]) -> Field | None:
        if not given:
            return None
        keys = _Keys(self, "recorded", {"field": given} if isinstance(given, str) else given)
        path = self._path("recorded", keys.take("field", str, ""))
        return Field(path or self.fail("recorded", "names no field"), "", self._spelling("recorded", keys))

    def _spelling(self, place: str, keys: "_Keys") -> Spelling:
        format = keys.take("format", str, "")
        zone = self._known_zone(f"{place} zone", keys.take("zone", str, self._zone))
        scale = keys.take("scale", (int, float), None)
        keys.finish()
        if format and format not in _WORDS:
            self._check_pattern(place, format, zone)
        return Spelling(format, zone, scale, self._absent)

    def _check_pattern(self, place: str, format: str, zone: str) -> None:
        if "%" not in format:
            self.fail(place, f"has the format {format!r}; write {', '.join(_WORDS)} or a pattern like %Y-%m-%d %H:%M")
        try:
            datetime.strptime("", format)
        except ValueError as problem:
            if "does not match" not in str(problem):
                self.fail(place, f"has the format {format!r}: {problem}")
        if "%z" not in format and not zone:
            self.fail(place, f'has the format {format!r}, which has no zone; state one, as in zone = "Europe/Berlin"')

    def _csv(self, table: dict[str, Any]) -> CsvForm:
        keys = _Keys(self, "csv", table)
        delimiter, quote = keys.take("delimiter", str, ""), keys.take("quote", str, '"')
        columns, newlines = keys.take("columns", list, []), keys.take("newlines", bool, None)
        keys.finish()
        for key, text, lengths in (("delimiter", delimiter, (0, 1)), ("quote", quote, (0, 1))):
            if len(text) not in lengths or not text.isascii() or text in ("\n", "\r"):
                self.fail(f"[csv] {key}", f"is {text!r}; one ASCII character is needed")
        if not all(isinstance(column, str) for column in columns) or len(set(columns)) < len(columns):
            self.fail("[csv] columns", f"is {columns!r}; write the name of each column, each once")
        return CsvForm(delimiter, quote, tuple(columns), newlines)


class _Keys:
    """The keys of one table, to be taken one after the other; what is left at the end is a mistake."""

    def __init__(self, reader: _Reader, place: str, table: dict[str, Any]) -> None:
        self._reader, self._place, self._table, self._known = reader, place, dict(table), list[str]()

    def take(self, key: str, kind: type | tuple[type, ...], default: Any) -> Any:
        self._known.append(key)
        value = self._table.pop(key, default)
        if value is not default and (not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool)):
            kinds = kind if isinstance(kind, tuple) else (kind,)
            wanted = " or ".join(_KINDS[each] for each in kinds)
            self._reader.fail(f"{self._where}{key}", f"is {value!r}; {wanted} is needed")
        return value

    def finish(self) -> None:
        if self._table:
            known = ", ".join(self._known)
            self._reader.fail(f"{self._where}{next(iter(self._table))}", f"is no key there; known are {known}")

    @property
    def _where(self) -> str:
        if not self._place:
            return ""
        return f"{self._place} " if self._place.startswith("[") else f"[{self._place}] "


_KINDS = {str: "text", list: "a list", dict: "a table", bool: "true or false", int: "a number", float: "a number"}


def _parts(template: str) -> tuple[str | FieldPath, ...]:
    """The texts and fields of a template like `{kind}/{vehicle.class}`."""
    pieces = _HOLE.split(template)
    return tuple(parse_path(piece) if index % 2 else piece for index, piece in enumerate(pieces) if piece)
