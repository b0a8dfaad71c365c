"""Mapping files: TOML that is checked key by key, so that a mistake is an error with file, table and key."""

import os
import re
import tomllib
from collections.abc import Iterator
from datetime import datetime
from math import isfinite
from pathlib import Path
from typing import Any, NoReturn
from zoneinfo import ZoneInfo

from genus.errors import MappingError
from genus.model.internal import INT64_MAX
from genus.records._mapping import (
    COUNT,
    JSON,
    LEVEL,
    NUMBER,
    PLAIN_TEXT,
    REJECT,
    SKIPPED,
    SPARKPLUG,
    CsvFormat,
    FieldPath,
    MappedField,
    Mapping,
    TopicRule,
    TypeNaming,
    format_path,
    parse_path,
)
from genus.records._values import BASE64, HEX, ISO, TEXT, UNITS, ValueFormat

_WORDS = (ISO, TEXT, HEX, BASE64, *UNITS)
_SPARKPLUG_KINDS = tuple(who + what for what in ("DATA", "CMD", "BIRTH", "DEATH") for who in "ND")
_BRACES = re.compile(r"\{([^{}]*)\}")


def read_mapping(given: str | os.PathLike[str]) -> Mapping:
    """Read a mapping from a TOML file or from its text.

    A string with a line end or an equals sign is text, any other a path. MappingError names the file, table and key of
    a mistake. Whether types and attributes exist is checked by what uses the mapping: `Lake.ingest`, `RecordReader`,
    `ForeignTopics`.

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
        raise MappingError(f"{name}: cannot be read: {problem.strerror or problem}") from problem
    except ValueError as problem:  # not TOML, or not UTF-8
        raise MappingError(f"{name}: is not TOML: {problem}") from problem
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
        ignore, ignore_rest = self._ignored("ignore", top)
        unknown = top.take("unknown", str, "")
        if unknown not in ("", COUNT, REJECT):
            self.fail("unknown", f"is {unknown!r}; write {COUNT} or {REJECT}")
        made = Mapping(
            name=self._name,
            naming=self._naming(top.take("type", dict, {}), top.take("types", dict, {})),
            fields=self._fields("attributes", top.take("attributes", dict, {})),
            of=tuple((type_, self._fields(f"of.{type_}", table)) for type_, table in top.take("of", dict, {}).items()),
            constants=tuple(top.take("constants", dict, {}).items()),
            inside=self._path("inside", top.take("inside", str, "")),
            ignore=ignore,
            ignore_rest=ignore_rest,
            unknown=unknown,
            absent=self._absent,
            zone=self._zone,
            recorded=self._recorded_field(top.take("recorded", (str, dict), "")),
            csv=self._csv(top.take("csv", dict, {})),
            topics=tuple(self._rules(top.take("topics", dict, {}))),
        )
        top.finish()
        self._check_levels(made)
        return made

    def fail(self, location: str, problem: str) -> NoReturn:
        raise MappingError(f"{self._name}: {location} {problem}")

    def _path(self, location: str, text: object) -> FieldPath:
        if not isinstance(text, str):
            self.fail(location, f"has {text!r}, which is not a path to a field; write it in quotes")
        return parse_path(str(text)) if text else ()

    def _ignored(self, location: str, keys: "_TableKeys") -> tuple[tuple[FieldPath, ...], bool]:
        """Return the fields to ignore, and whether all that are not known are ignored."""
        given = keys.take("ignore", (list, str), [])
        if isinstance(given, str) and given != "rest":
            self.fail(location, f'is {given!r}; write a list of fields, or "rest"')
        is_rest = isinstance(given, str)
        return () if is_rest else tuple(self._path(location, path) for path in given), is_rest

    def _checked_absent(self, value: object) -> object:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            self.fail("absent", f"has {value!r}; write text or numbers")
        if (isinstance(value, float) and not isfinite(value)) or (isinstance(value, int) and abs(value) > INT64_MAX):
            self.fail("absent", f"has {value!r}; write a number of 64 bits")
        return value

    def _known_zone(self, location: str, zone: str) -> str:
        try:
            return zone if not zone or ZoneInfo(zone) else ""
        except (ValueError, OSError, KeyError):
            return str(self.fail(location, f'is {zone!r}, which is not a time zone; write "Europe/Berlin" or "UTC"'))

    def _naming(self, table: dict[str, Any], types: dict[str, Any]) -> TypeNaming:
        keys = _TableKeys(self, "[type] ", table)
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
        keys = _TableKeys(self, f"{location} ", options)
        return MappedField(self._path(location, path), keys.take("to", str, ""), self._value_format(location, keys))

    def _recorded_field(self, given: str | dict[str, Any]) -> MappedField | None:
        if not given:
            return None
        keys = _TableKeys(self, "[recorded] ", {"field": given} if isinstance(given, str) else given)
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

    # -- topics --

    def _rules(self, table: dict[str, Any]) -> Iterator[TopicRule]:
        read: dict[str, str] = {}
        for pattern, given in table.items():
            location = f"[topics] {pattern!r}"
            self._check_topic(location, pattern)
            for each in given if isinstance(given, list) else [given]:
                rule = self._rule(location, pattern, each)
                if rule.only != "publish" and (other := read.setdefault(rule.filter, pattern)) != pattern:
                    self.fail(location, f"has the same topics as {other!r}; write one of them, with a list of rules")
                yield rule

    def _rule(self, location: str, pattern: str, given: object) -> TopicRule:
        if given is False:
            return TopicRule(pattern, payload=SKIPPED)
        if not isinstance(given, str | dict):
            self.fail(location, f"is {given!r}; write the name of an event type, a table, or false to skip messages")
        keys = _TableKeys(self, f"{location} ", {"type": given} if isinstance(given, str) else dict(given))
        type_, payload = keys.take("type", str, ""), keys.take("payload", str, JSON)
        only, to = keys.take("only", str, ""), keys.take("to", str, "")
        place, pairs = keys.take("at", str, ""), self._path(location, keys.take("pairs", str, ""))
        at, is_list = self._path(location, place.removesuffix("[]")), place.endswith("[]")
        fields = self._fields(f"topics] {pattern!r} [attributes", keys.take("attributes", dict, {}))
        constants = tuple(keys.take("constants", dict, {}).items())
        ignore, ignore_rest = self._ignored(f"{location} ignore", keys)
        form = self._value_format(location, keys)
        self._check_words(location, payload, only)
        if (payload in (NUMBER, PLAIN_TEXT)) != bool(to):
            self.fail(location, "needs `to`, the attribute of the payload, if it is a number or text, and only then")
        if payload != JSON and (place or pairs or not type_):
            self.fail(location, f"has a payload that is {payload}; give it a type, and neither at nor pairs")
        if payload == SPARKPLUG:
            self._check_sparkplug(location, pattern.split("/"))
            fields = tuple(MappedField((".".join(each.path),), each.attribute, each.value_format) for each in fields)
        value = MappedField(("value",), to, form) if to else None
        return TopicRule(
            pattern, type_, payload, value, at, is_list, pairs, only, fields, constants, ignore, ignore_rest
        )

    def _check_sparkplug(self, location: str, levels: list[str]) -> None:
        kind = levels[2] if len(levels) > 2 else ""
        if levels[0] != "spBv1.0" or kind not in _SPARKPLUG_KINDS or len(levels) != (5 if kind[0] == "D" else 4):
            kinds = ", ".join(_SPARKPLUG_KINDS)
            self.fail(
                location, f"is for Sparkplug; write spBv1.0/GROUP/KIND/NODE[/DEVICE], where KIND is one of {kinds}"
            )

    def _check_words(self, location: str, payload: str, only: str) -> None:
        for key, word, known in (
            ("payload", payload, (JSON, NUMBER, PLAIN_TEXT, SPARKPLUG)),
            ("only", only, ("", "read", "publish")),
        ):
            if word not in known:
                self.fail(location, f"{key} is {word!r}; write {' or '.join(filter(None, known))}")

    def _check_topic(self, location: str, pattern: str) -> None:
        levels = pattern.split("/")
        names = [level for level in levels if level.startswith("{")]
        for number, level in enumerate(levels):
            is_name = level.startswith("{") and level.endswith("}") and level[1:-1].isidentifier()
            is_last_hash = level == "#" and number == len(levels) - 1
            if not is_name and not is_last_hash and level != "+" and any(sign in level for sign in "{}+#\0"):
                self.fail(location, f"has the level {level!r}; a level is text, a name in braces, +, or # at the end")
        if not pattern or len(set(names)) < len(names):
            self.fail(location, "names a level twice" if pattern else "has no level")

    def _check_levels(self, made: Mapping) -> None:
        """Refuse fields that would be levels of topics, if no topic has such a level."""
        paths = [*(field.path for field in made.all_fields), *made.naming.fields]
        known = [name for rule in made.topics for name in rule.all_names]
        tables = [(paths, known), *(([field.path for field in rule.fields], rule.all_names) for rule in made.topics)]
        for path, names in [(path, names) for paths, names in tables for path in paths] if made.topics else ():
            if path[0].startswith(LEVEL) and path[0][1:] not in names:
                self.fail(f"{format_path(path)!r}", f"names a level that no topic has; write {{{path[0][1:]}}} in one")

    def _csv(self, table: dict[str, Any]) -> CsvFormat:
        keys = _TableKeys(self, "[csv] ", table)
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
    """The keys of one table, after its location; `finish` raises MappingError for keys that were not taken."""

    def __init__(self, reader: _MappingParser, location: str, table: dict[str, Any]) -> None:
        self._reader, self._location, self._table, self._known = reader, location, dict(table), list[str]()

    def take(self, key: str, kind: type | tuple[type, ...], default: Any) -> Any:
        self._known.append(key)
        value = self._table.pop(key, default)
        if value is not default and (not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool)):
            kinds = kind if isinstance(kind, tuple) else (kind,)
            wanted = " or ".join(dict.fromkeys(_KINDS[each] for each in kinds))
            self._reader.fail(f"{self._location}{key}", f"is {value!r}; {wanted} is needed")
        return value

    def finish(self) -> None:
        if self._table:
            known = ", ".join(self._known)
            self._reader.fail(f"{self._location}{next(iter(self._table))}", f"is not a known key; known are {known}")


_KINDS = {str: "text", list: "a list", dict: "a table", bool: "true or false", int: "a number", float: "a number"}


def _template_parts(template: str) -> tuple[str | FieldPath, ...]:
    """Split a template like `{kind}/{vehicle.class}` into texts and field paths."""
    pieces = _BRACES.split(template)
    return tuple(parse_path(piece) if index % 2 else piece for index, piece in enumerate(pieces) if piece)
