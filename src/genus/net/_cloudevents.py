"""CloudEvents 1.0: events for systems that do not know Genus, and from them; structured, binary and in batches.

| attribute | |
|---|---|
| `id` | uid of the origin in hexadecimal digits, `-`, number of the event there; `-`, digest of the key, if given |
| `source` | the event's source, if it is a URI reference; otherwise `genus:` |
| `type` | the name of the type |
| `time`, `subject` | the event's time and place, if it has them |
| `dataschema` | `genus:<digest of the catalog>#<code>`, if a catalog is given |
| `genushops` | the gateways that the event crossed, if any |

The data is the whole event as JSON, so the lake's reader of JSON reads an equal event; the envelope repeats what others
route by. msgspec encodes and decodes envelope and event at once. Values that JSON cannot hold, and whatever msgspec
refuses, go through `genus.records`, which has the lake's rules and gives the reasons. Other than in the lake, the last
counts of fields that occur twice: finding them takes too long.
"""

import hashlib
import re
import zlib
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec.structs import replace

from genus.bus.internal import plain_unread
from genus.catalog import Catalog
from genus.errors import EventError
from genus.model import Event, attributes, name_of
from genus.model.internal import (
    MAX_LENGTH,
    SHORTEST,
    describe_invalid,
    encodable_value,
    int_range,
    invalid_decoded_finders,
    invalid_finders,
    is_encodable,
    own_bounds,
    retyped_attributes,
    unread_types,
    unread_values,
)
from genus.model.types import (
    AttributeType,
    BoolType,
    BytesType,
    ChoiceType,
    DurationType,
    FloatType,
    IntType,
    OpaqueType,
    TextType,
    TimeType,
)
from genus.net._envelope import NUMBERS, Origin
from genus.records import Mapping as RecordMapping
from genus.records import RecordWriter
from genus.records.internal import (
    NO_SOURCE,
    DeclaredTypes,
    MappedReader,
    TypeNaming,
    decode_json,
    describe_version,
    limit_problem,
)
from genus.records.types import Rejected

STRUCTURED = "application/cloudevents+json"
"""The content type of a CloudEvent as one JSON object."""
BATCH = "application/cloudevents-batch+json"
"""The content type of a JSON array of CloudEvents."""
MAX_SIZE = 8 * 1024 * 1024
"""The most bytes of a CloudEvent, unless said otherwise; the longest line of JSON that the lake reads."""

_VERSION, _JSON = "1.0", "application/json"
_REQUIRED = ("specversion", "id", "source", "type")
_IS_JSON = re.compile(r"(application|text)/([A-Za-z0-9.\-]+\+)?json(\s*;.*)?", re.IGNORECASE)
_ID = re.compile(r"([0-9a-f]{16})-(0|[1-9][0-9]{0,9})(?:-[0-9a-f]{8})?")
_URI_REFERENCE = re.compile(r"(?:[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=]|%[0-9A-Fa-f]{2})+")
_LONG_FRACTION = re.compile(rb"\.[0-9]{7}[0-9]*[Zz+-]")
"""A time with digits beyond microseconds: msgspec rounds them, the lake cuts them off."""
_Instant = Annotated[datetime, msgspec.Meta(tz=True)]
_MAX_HOPS = 255
_MAX_TEXTS = 4096


class CloudEvent(msgspec.Struct, frozen=True, gc=False):
    """An event that arrived as a CloudEvent, with the attributes that identify it."""

    event: Event
    id: str
    source: str
    hops: int = 0

    @property
    def origin(self) -> Origin | None:
        """Return where the event was first published, to find copies; None if it does not come from Genus."""
        found = _ID.fullmatch(self.id)
        if found is None or int(found[2]) >= NUMBERS:
            return None
        return Origin(bytes.fromhex(found[1]), int(found[2]), self.hops)


def event_id(origin: Origin, key: str = "") -> str:
    """Return the id of an event: the same whenever it is sent again, and another for every other event.

    Give the key if origins number the events of each key by themselves, as links do.

    >>> event_id(Origin(bytes(8), 7)), event_id(Origin(bytes(8), 7), "city/Loop")
    ('0000000000000000-7', '0000000000000000-7-1bf16f77')
    """
    return f"{origin.uid.hex()}-{origin.number}" + (f"-{zlib.crc32(key.encode()):08x}" if key else "")


class _Texts(dict[Any, str]):
    """Texts that are made again and again, by what they are made of; forgotten when there are many."""

    def __init__(self, make: Callable[[Any], str]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, given: Any) -> str:
        if len(self) >= _MAX_TEXTS:
            self.clear()
        self[given] = made = self._make(given)
        return made


def _uri_of(source: str | int | None) -> str:
    """The source in the envelope: CloudEvents must name one, and it is a URI reference; a number is its digits."""
    text = "" if source is None else str(source)
    return text if text and _URI_REFERENCE.fullmatch(text) else NO_SOURCE


_hex_of_uid = _Texts(bytes.hex)
_uri_of_source = _Texts(_uri_of)


# -- writing -----------------------------------------------------------------------------------------------------------


class _Envelope(msgspec.Struct, omit_defaults=True, gc=False):
    specversion: str
    id: str
    source: str
    type: str
    datacontenttype: str
    data: Any
    time: datetime | None = None
    subject: str | None = None
    dataschema: str | None = None
    genushops: int = 0


_encode = msgspec.json.Encoder(enc_hook=encodable_value).encode


class CloudEventWriter:
    """Write events as CloudEvents; with a catalog, `dataschema` names it and the code of the type.

    >>> from genus import Event
    >>> class Lamp(Event):
    ...     watts: float
    >>> attributes, data = CloudEventWriter().write_binary(Lamp(watts=60.0), Origin(bytes(8), 7))
    >>> attributes["id"], attributes["source"], attributes["type"], data
    ('0000000000000000-7', 'genus:', 'Lamp', b'{"watts":60.0}')
    """

    def __init__(self, catalog: Catalog | None = None) -> None:
        self._catalog = catalog
        self._plans: dict[type, _WritePlan] = {}

    def write_structured(self, event: Event, origin: Origin, key: str = "") -> bytes:
        """Return an event as JSON; raise EventError, which names the attribute, if a value could not be read back."""
        return _encode(self._envelope(event, origin, key))

    def write_binary(self, event: Event, origin: Origin, key: str = "") -> tuple[dict[str, str], bytes]:
        """Return the attributes, as text, and the data of an event; raise EventError as `write_structured` does.

        MQTT has the attributes as user properties, except for `datacontenttype`, which is the content type.
        """
        made = self._envelope(event, origin, key)
        texts = {
            "specversion": _VERSION,
            "id": made.id,
            "source": made.source,
            "type": made.type,
            "datacontenttype": _JSON,
        }
        if made.time is not None:
            texts["time"] = _encode(made.time)[1:-1].decode()
        if made.subject is not None:
            texts["subject"] = made.subject
        if made.dataschema is not None:
            texts["dataschema"] = made.dataschema
        if made.genushops:
            texts["genushops"] = str(made.genushops)
        return texts, _encode(made.data)

    def write_batch(self, events: Iterable[tuple[Event, Origin]], key: str = "") -> bytes:
        """Return some events as a JSON array; raise EventError as `write_structured` does."""
        return _encode([self._envelope(event, origin, key) for event, origin in events])

    def _envelope(self, event: Event, origin: Origin, key: str) -> _Envelope:
        plan = self._plans.get(event.__class__) or self._plan(type(event))
        time = event.time
        return _Envelope(
            _VERSION,
            event_id(origin, key) if key else f"{_hex_of_uid[origin.uid]}-{origin.number}",
            _uri_of_source[event.source],
            plan.name,
            _JSON,
            event if plan.is_usual(event) and not (unread_types and unread_values(event)) else plan.data_of(event),
            time if time is None or time.tzinfo is UTC else time.astimezone(UTC),
            event.place or None,
            plan.schema,
            origin.hops,
        )

    def _plan(self, cls: type[Event]) -> "_WritePlan":
        schema = None if self._catalog is None else f"genus:{_catalog_digest(self._catalog)}#{self._catalog.code(cls)}"
        self._plans[cls] = plan = _WritePlan(cls, schema)
        return plan


def _catalog_digest(catalog: Catalog) -> str:
    return hashlib.sha256(catalog.text().encode()).hexdigest()[:16]


class _WritePlan:
    """How events of one type are written."""

    def __init__(self, cls: type[Event], schema: str | None) -> None:
        self.name = name_of(cls)
        self.schema = schema
        self.is_usual = _usual_tester(cls)
        self._find_invalid = invalid_finders[cls]
        self._write = RecordWriter(RecordMapping(naming=TypeNaming((), self.name)), cls).write

    def data_of(self, event: Event) -> dict[str, Any]:
        """Return the data of an event with an unusual value; EventError if a value is not one of its attribute."""
        if (invalid := self._find_invalid(event)) is not None:
            raise EventError(describe_invalid(event, invalid).message)
        return {**plain_unread(event), **self._write(event)}


def _usual_tester(cls: type[Event]) -> Callable[[Event], bool]:
    """A function that says whether all values of an event are usual: valid, and written by msgspec as the lake reads.

    NaN, infinities and times of other zones than UTC are not (JSON has no NaN, and msgspec writes no seconds of
    offsets), nor are opaque values, subclasses of the usual classes, and attributes with bounds of the class's own.
    """
    names: dict[str, Any] = {"UTC": UTC, "datetime": datetime, "timedelta": timedelta}
    names |= {"SHORTEST": SHORTEST, "MAX_LENGTH": MAX_LENGTH, "is_encodable": is_encodable}
    lines = ["def is_usual(e):"]
    fields = {field.name: field.type for field in msgspec.structs.fields(cls)}
    for number, attribute in enumerate(attributes(cls)):
        test = "False" if own_bounds(fields[attribute.name], attribute) else _usual_test(attribute.type, number)
        names[f"enum{number}"] = getattr(attribute.type, "enum", None)
        present = "v is not None and " if attribute.optional else ""
        lines += [f"    v = e.{attribute.name}", f"    if {present}not ({test}): return False"]
    exec(compile("\n".join([*lines, "    return True"]), "<genus cloudevents>", "exec"), names)
    found: Callable[[Event], bool] = names["is_usual"]
    return found


def _usual_test(type_: AttributeType, number: int) -> str:
    """Return the code that tests a value `v`."""
    match type_:
        case BoolType():
            return "v.__class__ is bool"
        case IntType(bits, signed):
            low, high = int_range(bits, signed)
            return f"v.__class__ is int and {low} <= v <= {high}"
        case FloatType():
            return "v.__class__ is float and v - v == 0"
        case TextType():
            return "v.__class__ is str and (v.isascii() or is_encodable(v))"
        case BytesType():
            return "v.__class__ is bytes"
        case TimeType():
            return "v.__class__ is datetime and v.tzinfo is UTC"
        case DurationType():
            return "v.__class__ is timedelta and SHORTEST <= v <= MAX_LENGTH"
        case ChoiceType():
            return f"v.__class__ is enum{number}"
    return "False"


# -- reading -----------------------------------------------------------------------------------------------------------


class _Incoming(msgspec.Struct, gc=False):
    specversion: str
    id: str
    source: str
    type: str
    datacontenttype: str | None = None
    time: msgspec.Raw = msgspec.Raw(b"")
    subject: str | None = None
    genushops: int = 0
    data: msgspec.Raw = msgspec.Raw(b"")
    data_base64: Any = None


_open = msgspec.json.Decoder(_Incoming).decode
_decode_time = msgspec.json.Decoder(_Instant).decode
_open_batch = msgspec.json.Decoder(list[msgspec.Raw]).decode
_PLAIN_TYPES = (None, _JSON)
_SMALL = 1000
"""A text of so many bytes may be decoded before its depth is known: it is not deep enough to exhaust the stack."""
_UNREADABLE = (ValueError, TypeError, RecursionError, OverflowError)
"""What msgspec, and a class's own functions, raise for text that is no event."""


class CloudEventReader:
    """Read events from CloudEvents, of Genus and of others.

    `types` are the event types to read, with their subtypes; all that are declared, if not given. `largest` is the most
    bytes of a CloudEvent. Nothing that arrives raises. State: how events of each type are decoded.

    >>> from genus import Event
    >>> class Lamp(Event):
    ...     watts: float
    >>> reader = CloudEventReader([Lamp])
    >>> reader.read_structured(b'{"specversion":"1.0","id":"7","source":"/hall","type":"Lamp","data":{"watts":60}}')
    CloudEvent(event=Lamp(source='/hall', watts=60.0), id='7', source='/hall', hops=0)
    >>> print(reader.read_structured(b'{"specversion":"1.0","source":"/hall","type":"Lamp"}'))
    id is missing
    """

    def __init__(self, types: Iterable[type] | None = None, *, largest: int = MAX_SIZE) -> None:
        self._types = DeclaredTypes(types)
        self._largest = largest
        self._decoders: dict[str, _Decoder] = {}
        self._by_rules = MappedReader(RecordMapping(), self._types, True)

    def read_structured(self, payload: bytes) -> CloudEvent | Rejected:
        """Return the event of a JSON text, or a `Rejected` with the reason why it is none."""
        if len(payload) > _SMALL and (problem := limit_problem(payload, self._largest)):
            return Rejected(problem)
        try:
            opened = _open(payload)
            is_plain = opened.datacontenttype in _PLAIN_TYPES and opened.data_base64 is None
            if is_plain and opened.id and opened.specversion == _VERSION:
                event = self._decode(opened.type, opened.source, opened.time, opened.subject, opened.data)
                if event is not None and 0 <= opened.genushops <= _MAX_HOPS:
                    return CloudEvent(event, opened.id, opened.source, opened.genushops)
        except _UNREADABLE:
            pass  # the rules have the reason
        return self._read_record(decode_json(payload, self._largest, last_counts=True))

    def read_binary(self, attributes: Mapping[str, str], data: bytes) -> CloudEvent | Rejected:
        """Return the event of a CloudEvent in binary mode, or a `Rejected` with the reason why it is none.

        `attributes` has `datacontenttype`, if it was said. Names that CloudEvents does not have are ignored.
        """
        if len(data) > _SMALL and (problem := limit_problem(data, self._largest)):
            return Rejected(problem)
        get = attributes.get
        id, source, time = get("id"), get("source", ""), get("time")
        if id and get("specversion") == _VERSION and get("datacontenttype") in _PLAIN_TYPES:
            try:
                hops = int(get("genushops", 0))
                stated = b"" if time is None else f'"{time}"'.encode()
                event = self._decode(get("type", ""), source, stated, get("subject"), data)
                if event is not None and 0 <= hops <= _MAX_HOPS:
                    return CloudEvent(event, id, source, hops)
            except _UNREADABLE:
                pass  # the rules have the reason
        return self._read_parts(attributes, data)

    def read_batch(self, payload: bytes) -> list[CloudEvent | Rejected]:
        """Return the events of a JSON array, and for each other entry a `Rejected` with the reason."""
        if problem := limit_problem(payload, self._largest):
            return [Rejected(problem)]
        try:
            parts = _open_batch(payload)
        except _UNREADABLE as wrong:
            return [Rejected("not a batch", f"not a JSON array: {wrong}")]
        return [self.read_structured(bytes(part)) for part in parts]

    def read_message(
        self, content_type: str, attributes: Mapping[str, str], payload: bytes
    ) -> list[CloudEvent | Rejected]:
        """Return the events of a message by its content type: structured, a batch, or binary with these attributes."""
        kind = content_type.partition(";")[0].strip().lower()
        if kind == STRUCTURED:
            return [self.read_structured(payload)]
        if kind == BATCH:
            return self.read_batch(payload)
        if kind.startswith("application/cloudevents"):
            return [Rejected("unknown format of CloudEvents", f"CloudEvents as {kind} are not read")]
        given = {**attributes, "datacontenttype": content_type} if content_type else attributes
        return [self.read_binary(given, payload)]

    # -- by msgspec --

    def _decode(
        self, name: str, source: str, time: bytes | msgspec.Raw, subject: str | None, data: bytes | msgspec.Raw
    ) -> Event | None:
        """Return the event by msgspec; None, or one of `_UNREADABLE`, if it must be read by the rules."""
        decoder = self._decoders.get(name) or self._decoder(name)
        if decoder is None or not source:
            return None
        event = decoder.decode(data)
        if decoder.find_invalid(event) is not None or (decoder.is_deep and limit_problem(bytes(data), self._largest)):
            return None
        own = event.time
        if own is None or event.source is None or (subject and event.place is None) or _encode(own) != bytes(time):
            return _completed(event, source, time, subject or None, data)
        return event

    def _decoder(self, name: str) -> "_Decoder | None":
        plan = self._types.plan(name)
        if plan is None or not _is_plain(plan.cls):
            return None
        is_deep = any(isinstance(attribute.type, OpaqueType) for attribute in plan.attributes)
        decode = msgspec.json.Decoder(plan.cls).decode
        self._decoders[name] = made = _Decoder(decode, invalid_decoded_finders[plan.cls], is_deep)
        return made

    # -- by the rules of records --

    def _read_parts(self, attributes: Mapping[str, str], data: bytes) -> CloudEvent | Rejected:
        kind = attributes.get("datacontenttype", _JSON)
        if not _IS_JSON.fullmatch(kind):
            return Rejected("the data is not JSON", f"the data is {kind[:60]}, not JSON")
        record = decode_json(data, self._largest, last_counts=True)
        if isinstance(record, Rejected):
            return record
        envelope: dict[str, Any] = {key: text for key, text in attributes.items() if key not in ("data", "data_base64")}
        if envelope.get("genushops", "").isdecimal():
            envelope["genushops"] = int(envelope["genushops"][:4])
        return self._read_record({**envelope, "data": record})

    def _read_record(self, record: Any) -> CloudEvent | Rejected:
        if isinstance(record, Rejected):
            return record
        if type(record) is not dict:
            return Rejected("not an object")
        for name in _REQUIRED:
            if type(record.get(name)) is not str or not record[name]:
                return Rejected(f"{name} is missing" if record.get(name) is None else f"{name} is not a text")
        if record["specversion"] != _VERSION:
            return Rejected("unknown specversion", describe_version(record["specversion"]))
        hops = record.get("genushops") or 0
        if type(hops) is not int or not 0 <= hops <= _MAX_HOPS:
            return Rejected("genushops is not a number of gateways")
        event = self._by_rules.read(record)
        return event if isinstance(event, Rejected) else CloudEvent(event, record["id"], record["source"], hops)


def values_in(record: Any, cls: type[Event]) -> dict[str, Any] | None:
    """The values of a CloudEvent of a class as they came, with those of its envelope; None if it is none."""
    if type(record) is not dict or any(type(record.get(name)) is not str or not record[name] for name in _REQUIRED):
        return None
    data, retyped = record.get("data"), retyped_attributes(cls)
    if record["specversion"] != _VERSION or record["type"] != name_of(cls) or type(data) is not dict:
        return None
    stated = {"time": record.get("time"), "source": record["source"], "place": record.get("subject")}
    if stated["source"] == NO_SOURCE:
        del stated["source"]
    return {**{name: value for name, value in _present(stated).items() if name not in retyped}, **_present(data)}


def _present(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


class _Decoder(NamedTuple):
    """How events of one type are decoded; `is_deep` says whether values may be objects and lists."""

    decode: Callable[[Any], Event]
    find_invalid: Callable[[Event], str | None]
    is_deep: bool


def _is_plain(cls: type[Event]) -> bool:
    """Return whether absent attributes are None: for msgspec a default takes their place, for the lake nothing does."""
    required = cls.__genus_required__  # type: ignore[attr-defined]
    fields = msgspec.structs.fields(cls)
    return all(field.default is None or field.name in required for field in fields)


def _completed(
    event: Event, source: str, time: bytes | msgspec.Raw, subject: str | None, data: bytes | msgspec.Raw
) -> Event | None:
    """The event, with time, source and place of the envelope where it has none; None if the rules must read it."""
    if _LONG_FRACTION.search(data) or _LONG_FRACTION.search(time):
        return None
    retyped = retyped_attributes(type(event))
    own = {"time": event.time, "source": event.source, "place": event.place}
    stated = {
        "time": _decode_time(time) if len(bytes(time)) else None,
        "source": None if source == NO_SOURCE or "source" in retyped else source,
        "place": None if "place" in retyped else subject,
    }
    missing = {name: value for name, value in stated.items() if value is not None and own[name] is None}
    return replace(event, **missing) if missing else event
