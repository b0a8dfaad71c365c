"""Foreign topics: events from the messages of other systems, and messages from events, by the topics of a mapping.

Pure: topics and payloads in, events out. What arrives is limited in size and depth, and never raises; messages that are
no events are counted by reason, and the last one of each reason is kept.
"""

from collections.abc import Iterable, Sequence
from collections.abc import Mapping as Counts
from collections.abc import Mapping as Fields
from typing import Any, NamedTuple, TypeAlias

import msgspec

from genus.errors import EventError, MappingError
from genus.model import Event, name_of
from genus.model.types import Attribute
from genus.records._mapping import (
    JSON,
    LEVEL,
    NUMBER,
    PLAIN_TEXT,
    SKIPPED,
    SPARKPLUG,
    DeclaredType,
    DeclaredTypes,
    FieldPath,
    MappedField,
    Mapping,
    TopicRule,
    format_path,
    own_attributes,
)
from genus.records._payload import MAX_SIZE, Example, Rejected, Rejections, UnreadFields, decode_json
from genus.records._reader import MappedReader, value_at
from genus.records._values import TEXT, ValueFormat
from genus.records._writer import RecordWriter

_REMEMBERED = 4096
"""The most topics whose rules are kept."""

Levels: TypeAlias = dict[str, str]
"""The named levels of a topic, as fields of a record."""


class WrittenFields(NamedTuple):
    """The topic and the fields of an event, and what wrote them."""

    topic: str
    fields: dict[str, Any]
    writer: "_RuleWriter"


class Message(NamedTuple):
    """A topic and the payload to publish there."""

    topic: str
    payload: bytes


class ForeignTopics:
    """Reads events from topics of other systems, and writes them, by the `[topics]` of a mapping.

    `types` are the event types to read, with their subtypes; all that are declared, if not given. `largest` is the most
    bytes of a payload. MappingError if the mapping has no topics, or does not fit the types.

    >>> from genus import Event, Maybe
    >>> from genus.records import read_mapping
    >>> class Climate(Event):
    ...     temperature: float
    >>> topics = ForeignTopics(read_mapping('topics."zigbee2mqtt/{source}" = "Climate"'), [Climate])
    >>> topics.filters
    ('zigbee2mqtt/+',)
    >>> topics.read("zigbee2mqtt/attic", b'{"temperature": 21.5}')
    [Climate(source='attic', temperature=21.5)]
    >>> topics.write(Climate(source="cellar", temperature=9.0))
    Message(topic='zigbee2mqtt/cellar', payload=b'{"temperature":9.0}')
    """

    def __init__(self, mapping: Mapping, types: Iterable[type] | None = None, *, largest: int = MAX_SIZE) -> None:
        if not mapping.topics:
            raise MappingError(f"{mapping.name}: has no [topics]")
        known = self._types = DeclaredTypes(types)
        mapping.check(known)
        self._largest = largest
        self._unread = UnreadFields()
        read = [rule for rule in mapping.topics if rule.only != "publish"]
        self._readers = [_RuleReader(mapping, rule, known, self._unread) for rule in sorted(read, key=_specificity)]
        self._mapping = mapping
        self._writers: dict[type, _RuleWriter | str] = {}
        self._routes: dict[str, list[tuple[_RuleReader, Levels]]] = {}
        self._rejections = Rejections()

    @property
    def filters(self) -> tuple[str, ...]:
        """The MQTT topic filters to subscribe to."""
        return tuple(dict.fromkeys(each.rule.filter for each in self._readers if each.rule.payload != SKIPPED))

    @property
    def counters(self) -> Counts[str, int]:
        """The number of messages and records that were no events, by reason."""
        return self._rejections.counts

    @property
    def unread(self) -> Counts[str, int]:
        """The number of values that no attribute takes, by type and field, such as `Climate.linkquality`."""
        return self._unread.counts

    @property
    def examples(self) -> Counts[str, Example]:
        """The last message that was rejected, by reason."""
        return self._rejections.examples

    def read(self, topic: str, payload: bytes) -> list[Event | Rejected]:
        """Return the events of a message, and why others are none; never raises. What is rejected is counted."""
        found = self._read(topic, payload)
        for each in found:
            if isinstance(each, Rejected):
                self._rejections.add(each.reason, topic, payload, each.detail)
        return found

    def read_fields(self, topic: str, fields: Fields[str, Any], said: Fields[str, Any]) -> list[Event | Rejected]:
        """Return the events of a message that was decoded; `said` are further levels, whatever the topic has."""
        routes = self._find(topic)
        found = [reader.read_fields(dict(fields), {**levels, **said}) for reader, levels in routes]
        for each in found or [Rejected("unknown topic")]:
            if isinstance(each, Rejected):
                self._rejections.add(each.reason, topic, detail=each.detail)
        return found or [Rejected("unknown topic")]

    def reads(self, topic: str) -> bool:
        """Return whether a topic is one of those that are read."""
        return bool(self._find(topic))

    def attributes(self, topic: str) -> dict[str, Attribute]:
        """Return the attributes of the fields that messages of a topic may have."""
        return {name: each for reader, _ in self._find(topic) for name, each in reader.attributes().items()}

    def _find(self, topic: str) -> list[tuple["_RuleReader", Levels]]:
        routes = self._routes.get(topic)
        return self._route(topic) if routes is None else routes

    def _read(self, topic: str, payload: bytes) -> list[Event | Rejected]:
        routes = self._find(topic)
        if not routes:
            return [Rejected("unknown topic")]
        if routes[0][0].rule.payload == SKIPPED:
            return []
        if not payload:
            return [Rejected("no payload")]  # the usual way to remove a retained message
        found = [each for reader, levels in routes for each in reader.read(payload, levels, self._largest)]
        if found:
            return found
        places = " or ".join(repr(format_path(reader.rule.at)) for reader, _ in routes)
        return [Rejected("no record where the mapping says", f"nothing at {places}")]

    def _route(self, topic: str) -> list[tuple["_RuleReader", Levels]]:
        """Return the rules of the most specific pattern that a topic matches, with its levels."""
        levels = topic.split("/")
        matching = [
            (each, found) for each in self._readers if (found := match_levels(each.rule.levels, levels)) is not None
        ]
        routes = [each for each in matching if each[0].rule.pattern == matching[0][0].rule.pattern]
        if len(self._routes) >= _REMEMBERED:
            self._routes.clear()
        if routes:  # not kept otherwise: others choose the names of unknown topics
            self._routes[topic] = routes
        return routes

    # -- writing --

    def refusal(self, cls: type[Event]) -> str:
        """Return why events of a type cannot be published; empty if they can."""
        writer = self._writer(cls)
        return writer if isinstance(writer, str) else ""

    def refusal_of(self, type_: str) -> str:
        """Return why events of a type of this name cannot be published; empty if they can."""
        known = self._types.plan(type_)
        return f"{type_} is not declared" if known is None else self.refusal(known.cls)

    def write(self, event: Event) -> Message | Rejected:
        """Return the message of an event; a `Rejected` if the mapping cannot be undone for it."""
        written = self.write_fields(event)
        if isinstance(written, Rejected):
            return written
        try:
            return Message(written.topic, written.writer.payload(written.fields))
        except EventError as problem:
            return Rejected(f"a {name_of(type(event))} cannot be written", str(problem))

    def write_fields(self, event: Event) -> "WrittenFields | Rejected":
        """Return the topic and the fields of the message of an event."""
        writer = self._writer(type(event))
        if isinstance(writer, str):
            return Rejected(f"{name_of(type(event))} cannot be published", writer)
        try:
            topic, fields = writer.write(event)
        except EventError as problem:
            return Rejected(f"a {name_of(type(event))} cannot be written", str(problem))
        rule = writer.rule
        if rule.only != "publish" and all(each.rule is not rule for each, _ in self._route(topic)):
            return Rejected("another topic", f"{topic} is not read by {rule.pattern!r}, but by another pattern")
        return WrittenFields(topic, fields, writer)

    def written_attributes(self, topic: str) -> list[tuple[MappedField, Attribute]]:
        """Return the fields that messages of a topic may be published with, and their attributes."""
        found = []
        for rule in self._mapping.topics:
            known = self._types.plan(rule.type) if rule.only != "read" and rule.type else None
            if known is not None and match_levels(rule.levels, topic.split("/")) is not None:
                found += _RuleWriter(self._mapping, rule, known.cls).attributes
        return found

    def _writer(self, cls: type[Event]) -> "_RuleWriter | str":
        if cls not in self._writers:
            self._writers[cls] = self._find_writer(cls)
        return self._writers[cls]

    def _find_writer(self, cls: type[Event]) -> "_RuleWriter | str":
        problems = []
        for rule in self._mapping.topics:
            if rule.only != "read" and rule.payload != SKIPPED and rule.type in ("", name_of(cls)):
                try:
                    return _RuleWriter(self._mapping, rule, cls)
                except MappingError as problem:
                    problems.append(f"[topics] {rule.pattern!r}: {problem}")
        return "; ".join(problems) or f"{self._mapping.name}: no topic is for {name_of(cls)}"


def _specificity(rule: TopicRule) -> list[int]:
    """Return a key that sorts patterns: texts come before names and `+`, and these before `#`."""
    return [2 if level == "#" else 1 if level == "+" or level.startswith("{") else 0 for level in rule.levels]


def match_levels(wanted: Sequence[str], levels: list[str]) -> Levels | None:
    """Return the named levels of a topic; None if the topic does not match a pattern."""
    is_open = wanted[-1] == "#"
    pattern = wanted[:-1] if is_open else wanted
    if len(levels) < len(pattern) or (len(levels) > len(pattern) and not is_open):
        return None
    if levels[0].startswith("$") and levels[0] != wanted[0]:
        return None  # MQTT keeps such topics from wildcards
    found: Levels = {}
    for text, level in zip(pattern, levels, strict=False):
        if text.startswith("{"):
            found[LEVEL + text[1:-1]] = level
        elif text not in ("+", level):
            return None
    return found


def _level_fields(mapping: Mapping, rule: TopicRule) -> tuple[MappedField, ...]:
    """Levels that are named like attributes, where records do not have these."""
    form = ValueFormat(format=TEXT, zone=mapping.zone)
    return tuple(MappedField((LEVEL + name,), name, form) for name in rule.all_names)


# -- reading -----------------------------------------------------------------------------------------------------------


class _RuleReader:
    def __init__(self, mapping: Mapping, rule: TopicRule, types: DeclaredTypes, unread: UnreadFields) -> None:
        self.rule = rule
        reader = MappedReader(
            mapping.for_topic(rule), types, False, _level_fields(mapping, rule), unread=unread, refuses_empty=True
        )
        self._reader, self._read_record = reader, reader.read

    def read(self, payload: bytes, levels: Levels, largest: int) -> list[Event | Rejected]:
        """Return the events of a payload; none if it has no record where the rule says."""
        if self.rule.payload == SPARKPLUG:
            return [Rejected("read by a bus with sparkplug=")]
        if self.rule.payload != JSON:
            value = _plain_value(self.rule.payload, payload, largest)
            return [value if isinstance(value, Rejected) else self._read_record({"value": value, **levels})]
        content = decode_json(payload, largest)
        if isinstance(content, Rejected):
            return [content]
        return [self.read_fields(record, levels) for record in self._records(content)]

    def attributes(self) -> dict[str, Attribute]:
        """Return the attributes of the fields of records, if all have one type."""
        plan = self._reader.plan(False, self.rule.type)
        if isinstance(plan, str):
            return {}
        found = [(each.field.path[0], plan.attribute(each.field.attribute)) for each in plan.wanted]
        return {name: attribute for name, attribute in found if attribute is not None}

    def _records(self, content: Any) -> list[Any]:
        """Return the records of a payload, each with the fields around it."""
        at = self.rule.at
        found = value_at(content, at)
        if found is None:
            return []
        if self.rule.is_list:
            records = found if type(found) is list else [Rejected(f"{format_path(at) or 'the payload'} is no list")]
        else:
            records = [found]
        around = {key: value for key, value in content.items() if key != at[0]} if at else {}
        return [{**around, **each} if around and type(each) is dict else each for each in records]

    def read_fields(self, record: Any, levels: Levels) -> Event | Rejected:
        """Return the event of a record."""
        if isinstance(record, Rejected):
            return record
        if type(record) is dict:
            if self.rule.pairs and isinstance(record := _with_pairs(record, self.rule.pairs), Rejected):
                return record
            if not levels.keys().isdisjoint(record):
                return Rejected("the payload has a field named like a level of the topic")
            record = {**record, **levels}
        return self._read_record(record)


def _plain_value(kind: str, payload: bytes, largest: int) -> Any:
    if len(payload) > largest:
        return Rejected(f"more than {largest} bytes")
    if kind == PLAIN_TEXT:
        try:
            return payload.decode()
        except UnicodeDecodeError as problem:
            return Rejected("not UTF-8", f"not UTF-8: {problem}")
    value = decode_json(payload.strip(), largest)
    if type(value) is int or type(value) is float:
        return value
    return Rejected("not a number")


def _with_pairs(record: dict[str, Any], path: FieldPath) -> Any:
    """Return the record with an object in place of a list of names and values."""
    pairs = value_at(record, path)
    if pairs is None:
        return record
    if type(pairs) is not list or not all(type(each) is dict and type(each.get("name")) is str for each in pairs):
        return Rejected(f"{format_path(path)} is no list of names and values")
    made = {each["name"]: each.get("value") for each in pairs}
    if len(made) < len(pairs):
        return Rejected(f"{format_path(path)} has a name twice")
    return _replaced(record, path, made)


def _replaced(record: dict[str, Any], path: FieldPath, value: Any) -> dict[str, Any]:
    inner = value if len(path) == 1 else _replaced(record[path[0]], path[1:], value)
    return {**record, path[0]: inner}


# -- writing -----------------------------------------------------------------------------------------------------------


class _RuleWriter:
    """Writes messages with events of one type; MappingError if the rule cannot be undone."""

    def __init__(self, mapping: Mapping, rule: TopicRule, cls: type[Event]) -> None:
        self.rule = rule
        self._type = name_of(cls)
        self._own = own_attributes(DeclaredType(cls))
        self._writer = RecordWriter(mapping.for_topic(rule), cls, fallback=_level_fields(mapping, rule))
        written = {path[0] for path in self._writer.paths}
        if any(level in ("+", "#") for level in self.rule.levels):
            raise MappingError(f"{self._type} cannot be written: the topic has a level without a name")
        for name in self.rule.names:
            if LEVEL + name not in written:
                raise MappingError(f"{self._type} cannot be written: no attribute is the level {{{name}}}")

    @property
    def attributes(self) -> list[tuple[MappedField, Attribute]]:
        """The fields of messages, with their attributes."""
        return [each for each in self._writer.attributes if not each[0].path[0].startswith(LEVEL)]

    def write(self, event: Event) -> tuple[str, dict[str, Any]]:
        """Return the topic and the fields of an event; EventError if it cannot be read back."""
        if self._own and all(getattr(event, name) is None for name in self._own):
            raise EventError(f"{self._type}: has none of {', '.join(self._own)}, so that it would be read as no event")
        record = self._writer.write(event)
        levels = {name: self._level(name, record.pop(LEVEL + name, None)) for name in self.rule.names}
        topic = "/".join(levels[level[1:-1]] if level.startswith("{") else level for level in self.rule.levels)
        return topic, record

    def _level(self, name: str, value: Any) -> str:
        if type(value) is str and value and not set(value) & set("/+#\0"):
            return value
        raise EventError(f"{self._type}: the level {{{name}}} of the topic would be {value!r}, which no level can be")

    def payload(self, record: dict[str, Any]) -> bytes:
        """Return the payload with the fields of a message; EventError if it cannot hold them."""
        if self.rule.payload != JSON:
            return self._plain_payload(record)
        if self.rule.pairs and (pairs := value_at(record, self.rule.pairs)) is not None:
            listed = [{"name": name, "value": value} for name, value in pairs.items()]
            record = _replaced(record, self.rule.pairs, listed)
        content: Any = [record] if self.rule.is_list else record
        for key in reversed(self.rule.at):
            content = {key: content}
        return msgspec.json.encode(content)

    def _plain_payload(self, record: dict[str, Any]) -> bytes:
        value = record.pop("value", None)
        if record:
            raise EventError(f"{self._type}: the payload is a {self.rule.payload} and cannot hold {', '.join(record)}")
        if self.rule.payload == PLAIN_TEXT and type(value) is str and value:
            return value.encode()
        if self.rule.payload == NUMBER and (type(value) is int or type(value) is float):
            return msgspec.json.encode(value)
        raise EventError(f"{self._type}: the payload would be {value!r}, but must be a {self.rule.payload}")
