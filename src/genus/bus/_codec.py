"""Events as bytes, in recordings and between processes.

A packet is a msgpack array of the type's name, the time of recording (microseconds since 1970, UTC) and a map of the
attributes that are present. Decoding never raises: a packet that is no event of a known type gives a reason. A packet
may also state the units of a type's attributes, for the packets after it: its type name is `units of NAME`, and its map
has the unit of each attribute.

Encoding and decoding accept the values that `genus.check` accepts, and no others.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Annotated, Any, TypeVar, Union

import msgspec

from genus.bus._attribute_map import UNITS_OF, MapReader, UnreadValues, decode_units
from genus.catalog.internal import StatedClasses, read_statement
from genus.errors import CatalogConflict, CatalogDamaged, DeclarationError, EventError, did_you_mean
from genus.filters.internal import DURATION_UNITS
from genus.model import Event, attributes, check, is_event_type, micros_of_time, name_of, subtypes
from genus.model.internal import (
    declared_types,
    describe_invalid,
    encodable_value,
    invalid_decoded_finders,
    invalid_decoded_finders_in,
    invalid_finders,
    unread_types,
    with_unread,
)
from genus.model.types import ChoiceType, DurationType, TimeType

FIRST_US, LAST_US = (micros_of_time(moment.replace(tzinfo=UTC)) for moment in (datetime.min, datetime.max))
"""The times of recording that a packet may have: the years 1 to 9999."""

NO_UNITS: Mapping[str, str] = {}
MAX_UNKNOWN = 10_000
"""Names of unknown types that a decoder remembers, not to search for them again."""

_RECORDED_AT = Annotated[int, msgspec.Meta(ge=FIRST_US, le=LAST_US)]
_encoder = msgspec.msgpack.Encoder(enc_hook=encodable_value)
_encode, encode_into = _encoder.encode, _encoder.encode_into


class Recorded(msgspec.Struct, frozen=True, gc=False):
    """An event and its time of recording, in microseconds since 1970."""

    at_us: int
    event: Event


class UnitsStated(msgspec.Struct, frozen=True):
    """The units of a type's attributes in the packets that follow."""

    type: str
    units: Mapping[str, str]


class Rejected(msgspec.Struct, frozen=True):
    """Why a packet is not an event."""

    reason: str


def encode_event(event: Event, at_us: int) -> bytes:
    """Encode an event as a packet; EventError names the value that could not be read back."""
    name: str = event.__class__.__genus_name__  # type: ignore[attr-defined]
    return _checked_encode(event, at_us, (name, at_us, with_unread(event) if unread_types else event))


def encode_map(event: Event, at_us: int) -> bytes:
    """Encode the attributes of an event that is recorded at a time, as a map; EventError as of `encode_event`."""
    return _checked_encode(event, at_us, with_unread(event) if unread_types else event)


def _checked_encode(event: Event, at_us: int, what: object) -> bytes:
    if (name := invalid_finders[event.__class__](event)) is not None:
        raise EventError(describe_invalid(event, name).message)
    try:
        if FIRST_US <= at_us <= LAST_US:
            return _encode(what)
    except Exception as problem:  # of msgspec, and of a value that another thread changes
        raise EventError(f"{event!r} cannot be encoded: {problem}") from problem
    raise EventError(f"an event cannot be recorded at {at_us} microseconds since 1970; use the years 1 to 9999")


def packet_of(name: str, at_us: int, event: Event | msgspec.Raw) -> bytes:
    """Return the packet of an event that was checked, or encoded as a map."""
    return _encode((name, at_us, event))


def encoding_problem(event: Event) -> str:
    """Why `encode_event` refused an event, without the value at fault, so that equal reasons can be counted."""
    name = invalid_finders[type(event)](event)
    return f"{name_of(type(event))} cannot be encoded" if name is None else describe_invalid(event, name).reason


def _excerpt_decoder(reader: MapReader, wanted: frozenset[str]) -> Callable[[bytes], list[list[object]]]:
    """Decodes arrays of arrays of maps to objects with some of the attributes; those that are absent are None."""
    types = {field.name: field.type for field in msgspec.structs.fields(reader.type)}
    if reader.renames & wanted:
        return lambda array: []
    fields: list[Any] = [(name, Union[types[name], None] if name in types else None, None) for name in sorted(wanted)]  # noqa: UP007
    excerpt = msgspec.defstruct("Excerpt", fields, gc=False)
    return msgspec.msgpack.Decoder(list[list[excerpt]]).decode  # type: ignore[valid-type]


class EventDecoder:
    """Decodes packets of the given types and their subtypes, or of all declared types.

    A type that the program has not declared gets a class that is generated from its statements, if `statements` gives
    some for its name.

    State: the units stated so far, and in `unread` how many values were left out, because the class cannot read them.

    >>> from genus import Event
    >>> class Lamp(Event):
    ...     on: bool
    >>> decoder = EventDecoder([Lamp])
    >>> decoder.decode(encode_event(Lamp(on=True), 7))
    Recorded(at_us=7, event=Lamp(on=True))
    >>> decoder.decode(b"nonsense")
    Rejected(reason='not a packet')
    """

    def __init__(
        self, types: Iterable[type] | None = None, statements: Callable[[str], Iterable[bytes]] = lambda name: ()
    ) -> None:
        self._roots = None if types is None else tuple(types)
        self._given = None if self._roots is None else [cls for root in self._roots for cls in subtypes(root)]
        self._statements = statements
        self._classes = StatedClasses()
        self._open = msgspec.msgpack.Decoder(tuple[str, _RECORDED_AT, msgspec.Raw]).decode
        self._decoders: dict[str, Callable[[bytes | msgspec.Raw], Event]] = {}
        """By type: what decodes events of the class and units here."""
        self._lists: dict[str, Callable[[bytes], list[list[Event]]]] = {}
        self._maps: dict[str, MapReader] = {}
        self._excerpts: dict[tuple[type, frozenset[str]], Callable[[bytes], list[list[object]]]] = {}
        self._units: dict[str, Mapping[str, str]] = {}
        self._unknown: set[str] = set()
        """Names that are not among the given types; without given ones, a type may be declared later."""
        self.unread = UnreadValues()
        self.rejected = 0
        """How many events `decode_all` did not accept."""

    def decode(self, packet: bytes | memoryview) -> Recorded | Rejected | UnitsStated:
        """Decode a packet; returns the event or the units in it, or the reason why there is neither."""
        try:
            name, at_us, body = self._open(packet)
        except Exception:
            return Rejected("not a packet")
        if name not in self._maps and not self._find(name):
            return self._state_units(name, body) or Rejected(f"unknown type {name}")
        event = self._decode_event(name, body)
        return event if isinstance(event, Rejected) else Recorded(at_us, event)

    def decode_all(
        self,
        name: str,
        units: Mapping[str, str],
        count: int,
        array: bytes,
        maps: Callable[[], Iterable[bytes | msgspec.Raw]],
    ) -> "list[Event | Rejected | None]":
        """Decode events of one type: a msgpack array of arrays of maps of attributes, or else the maps one by one.

        The maps are asked for if the array is empty or has other than events of the class, so that each gives an event
        or the reason why it is none.
        """
        if self._units.get(name, NO_UNITS) != units:
            self._use_units(name, units)
        if name not in self._maps and not self._find(name):
            self.rejected += count
            return [Rejected(f"unknown type {name}")] * count
        if array and name in self._lists:
            try:
                events = list(chain.from_iterable(self._lists[name](array)))
            except Exception:  # also what a class's own __post_init__ raises
                events = []
            if len(events) == count and invalid_decoded_finders_in[self._maps[name].type](events) is None:
                return events  # type: ignore[return-value]
        found = [self._decode_event(name, each) for each in maps()]
        self.rejected += sum(isinstance(each, Rejected) for each in found)
        return found  # type: ignore[return-value]

    def decode_some(
        self,
        name: str,
        units: Mapping[str, str],
        count: int,
        array: bytes,
        maps: Callable[[], Iterable[bytes | msgspec.Raw]],
        wanted: frozenset[str],
    ) -> "Sequence[object]":
        """Decode as `decode_all`, but objects that have these attributes alone, which is quicker.

        Other attributes are not looked at. Where names or units differ from those of the class, they are whole events.
        """
        if self._units.get(name, NO_UNITS) != units:
            self._use_units(name, units)
        if array and (name in self._maps or self._find(name)):
            reader = self._maps[name]
            key = reader.type, wanted
            if key not in self._excerpts:
                self._excerpts[key] = _excerpt_decoder(reader, wanted)
            try:
                found = list(chain.from_iterable(self._excerpts[key](array))) if not reader.converts else []
            except Exception:  # as in `decode_all`
                found = []
            if len(found) == count:
                return found
        return self.decode_all(name, units, count, array, maps)

    def type_named(self, name: str) -> type[Event] | None:
        """Return the class of a type; None if it is not among the given ones."""
        return self._maps[name].type if name in self._maps or self._find(name) else None

    def _decode_event(self, name: str, body: bytes | msgspec.Raw) -> Event | Rejected:
        reader, decode = self._maps[name], self._decoders.get(name)
        if decode is not None:
            try:
                event = decode(body)
                if invalid_decoded_finders[reader.type](event) is None:
                    return event
            except Exception:  # also what a class's own __post_init__ raises
                pass
        try:
            return reader.decode(body)
        except Exception as problem:
            return Rejected(f"not a {name}: {problem}")

    def _state_units(self, name: str, body: msgspec.Raw) -> UnitsStated | None:
        """Convert values of a type from these units from now on; None if the packet states none."""
        type_ = name.removeprefix(UNITS_OF)
        units = decode_units(body) if type_ != name else None
        if units is None:
            return None
        self._use_units(type_, units)
        return UnitsStated(type_, units)

    def _use_units(self, name: str, units: Mapping[str, str]) -> None:
        if name in self._maps or self._find(name):
            self._units[name] = units
            self._use(MapReader(self._maps[name].type, self.unread, units))

    def _use(self, reader: MapReader) -> None:
        name = name_of(reader.type)
        self._maps[name] = reader
        self._lists.pop(name, None)
        self._decoders.pop(name, None)
        if not reader.converts:
            self._decoders[name] = msgspec.msgpack.Decoder(reader.type).decode
            self._lists[name] = msgspec.msgpack.Decoder(list[list[reader.type]]).decode  # type: ignore[name-defined]

    def _find(self, name: str) -> bool:
        """Prepare to read a type; whether it is known."""
        if name in self._unknown:
            return False
        known = self._given if self._given is not None else declared_types(name)
        found = [cls for cls in known if is_event_type(cls) and name_of(cls) == name] or self._find_stated(name)
        if not found:
            if self._given is not None and len(self._unknown) < MAX_UNKNOWN:
                self._unknown.add(name)
            return False
        self._use(MapReader(found[-1], self.unread))
        return True

    def _find_stated(self, name: str) -> list[type[Event]]:
        """Return the class of a type by its statements, if it is one of the given types or below one."""
        found: list[type[Event]] = []
        for text in self._statements(name):
            with suppress(CatalogConflict, CatalogDamaged, DeclarationError):
                found.append(self._classes.take(read_statement(text)))
        fitting = [cls for cls in found if is_event_type(cls) and name_of(cls) == name]
        return fitting if self._roots is None else [cls for cls in fitting if issubclass(cls, self._roots)]


E = TypeVar("E", bound=Event)


def parse_event(cls: type[E], given: Mapping[str, Any]) -> E:
    """Return an event from the values of its attributes, as text or as JSON has them.

    Times are written in ISO 8601 or as `now`, lengths of time like `500ms`, bytes in base 64.

    Raises:
        EventError: An attribute is unknown, missing, or has a value that it may not have; the message names it.

    >>> from genus import Event
    >>> class Lamp(Event):
    ...     on: bool
    ...     level: int
    >>> parse_event(Lamp, {"on": "true", "level": "3"})
    Lamp(on=True, level=3)
    >>> parse_event(Lamp, {"on": "true", "level": "high"})
    Traceback (most recent call last):
    genus.errors.EventError: not a Lamp: level: Expected `int`, got `str`
    """
    known = {attribute.name: attribute.type for attribute in attributes(cls)}
    if strangers := sorted(set(given) - set(known)):
        hint = f"{did_you_mean(strangers[0], known)}it has {', '.join(known)}"
        raise EventError(f"{name_of(cls)} has no attribute {', '.join(strangers)}; {hint}")
    try:
        event = msgspec.convert(
            {name: _value(name, value, known[name]) for name, value in given.items()}, cls, strict=False
        )
        check(event)
    except (msgspec.MsgspecError, ValueError, TypeError) as problem:
        what = re.sub(r"(.*) - at `\$\.(\w+)`", r"\2: \1", str(problem))
        raise EventError(f"not a {name_of(cls)}: {what}") from None
    return event


def _value(name: str, value: Any, type_: object) -> Any:
    if isinstance(type_, ChoiceType) and value is not None and str(value) not in map(str, type_.values):
        hint = did_you_mean(str(value), map(str, type_.values))
        raise ValueError(f"{name} cannot be {value!r}; {hint}it is one of {', '.join(map(repr, type_.values))}")
    if isinstance(type_, TimeType):
        return datetime.now(UTC) if value == "now" else _time(value)
    if isinstance(type_, DurationType) and isinstance(value, str):
        found = re.fullmatch(r"(-?\d+(?:\.\d+)?)(us|ms|s|min|h|d)", value)
        if found:
            return timedelta(microseconds=float(found[1]) * DURATION_UNITS[found[2]])
    return value


def _time(value: Any) -> datetime:
    try:
        return datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise ValueError(f"{value!r} is not a time: write it like 2026-11-15T10:00:00Z, or now") from None
