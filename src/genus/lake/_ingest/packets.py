"""Decodes packets of recordings to columns, and checks them with structs made from the catalog.

A packet is a msgpack array of type name, time of recording and attributes. A struct of this form is made for each type,
so that msgspec decodes and checks a packet in one step. Durations, opaque values and the range of times are checked as
columns. Values of other units than the catalog's are converted one by one by the functions of the bus, which give the
same bits.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Annotated, Any, Literal, TypeGuard, TypeVar, Union

import msgspec
import numpy as np
import pyarrow as pa

from genus.bus._attribute_map import Convert, converter
from genus.errors import EventError
from genus.lake._ingest.format import Chunk, Columns, DeadLetter, TypePlan, Types
from genus.lake._ingest.values import CastColumn, read_values, valid_rows
from genus.lake._tables.columns import FIRST_US, INSTANT, LAST_US, stored_type
from genus.lake._tables.names import POSITION, RECORDED
from genus.model import (
    Attribute,
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
from genus.model._types import int_range
from genus.records._values import ValueFormat

T = TypeVar("T")

_RECORDED_AT = Annotated[int, msgspec.Meta(ge=FIRST_US, le=LAST_US)]
_ANNOTATIONS: Mapping[type, Any] = {
    BoolType: bool,
    FloatType: float,
    TextType: str,
    BytesType: bytes,
    TimeType: Annotated[datetime, msgspec.Meta(tz=True)],
    DurationType: timedelta,
    OpaqueType: Any,
}
_CHECKED_AS_COLUMN: Mapping[type, str] = {
    TimeType: "must be a time with a zone, in the years 1 to 9999 of UTC",
    DurationType: "must be a duration of 64 bits of microseconds",
    OpaqueType: "must be present and representable in JSON",
}

_body, _recorded = attrgetter("body"), attrgetter("recorded")


def _annotation(type_: AttributeType) -> Any:
    """The annotation that msgspec checks a value by, the same as in a declared class."""
    match type_:
        case IntType(bits, signed):
            low, high = int_range(bits, signed)
            return Annotated[int, msgspec.Meta(ge=low, le=high)]
        case ChoiceType(values):
            return Literal[values]
    return _ANNOTATIONS[type(type_)]


def _struct(plan: TypePlan) -> type[msgspec.Struct]:
    """A struct with the attributes of a type, also by their former names, that accepts no others."""
    fields: list[Any] = []
    for attribute in plan.attributes:
        note = _annotation(attribute.type)
        if attribute.name in plan.required and not attribute.former:
            fields.append((attribute.name, note))
        else:
            fields += [(name, Union[note, None], None) for name in (attribute.name, *attribute.former)]  # noqa: UP007
    return msgspec.defstruct("Body", fields, kw_only=True, frozen=True, gc=False, forbid_unknown_fields=True)


# -- columns -----------------------------------------------------------------------------------------------------------


def _convert(values: list[Any], type_: AttributeType) -> CastColumn:
    if isinstance(type_, DurationType | OpaqueType):
        return read_values(values, type_, ValueFormat())
    column = pa.array(values, stored_type(type_))
    if not isinstance(type_, TimeType) or column.null_count == len(column):
        return CastColumn(column)
    micros = column.cast(pa.int64()).fill_null(0).to_numpy()
    wrong = (micros < FIRST_US) | (micros > LAST_US)  # text with a zone may be just outside
    return CastColumn(column, wrong if wrong.any() else None)


def _value_getter(attribute: Attribute, converters: Mapping[str, Convert]) -> Callable[[Any], Any]:
    """A function that gets the value of an attribute from a body; under a former name if it has none otherwise.

    The value is converted; where that cannot be done, it is the EventError.
    """
    names = (attribute.name, *attribute.former)
    if len(names) == 1 and attribute.name not in converters:
        return attrgetter(attribute.name)
    getters = [(attrgetter(name), converters.get(name)) for name in names]

    def get(body: Any) -> Any:
        for value_of, convert in getters:
            value = value_of(body)
            if value is not None:
                try:
                    return value if convert is None else convert(value)
                except EventError as problem:
                    return problem
        return None

    return get


def _take_unconverted(values: list[Any], attribute: Attribute) -> dict[int, str]:
    """Why values could not be converted, or do not fit after it, by row; None takes their place."""
    found = {row: str(value) for row, value in enumerate(values) if isinstance(value, EventError)}
    if isinstance(attribute.type, IntType):
        low, high = int_range(attribute.type.bits, attribute.type.signed)
        reason = f"{attribute.name} does not fit after its conversion to {attribute.unit}"
        rows = [row for row, value in enumerate(values) if type(value) is int and not low <= value <= high]
        found |= dict.fromkeys(rows, reason)
    for row in found:
        values[row] = None
    return found


class PacketTypeReader:
    """Reads the packets of one type. State: the units of their values, where these are not the catalog's."""

    def __init__(self, plan: TypePlan) -> None:
        self.plan = plan
        options: dict[str, Any] = {"array_like": True, "frozen": True, "gc": False, "forbid_unknown_fields": True}
        fields: list[Any] = [("recorded", _RECORDED_AT), ("body", _struct(plan))]
        msgspec.msgpack.encode(plan.name)  # msgspec compares a tag with other than ASCII letters wrongly before that
        self.packet = msgspec.defstruct("Packet", fields, tag=plan.name, **options)
        self._decode = msgspec.msgpack.Decoder(self.packet).decode
        self._units: Mapping[str, str] = {}
        self._converters: dict[str, Convert] = {}

    def use_units(self, units: Mapping[str, str]) -> None:
        """Convert the values of packets from these units, where the catalog has others, from now on."""
        if units == self._units:
            return
        self._units = units
        known = {name: each for each in self.plan.attributes for name in (each.name, *each.former)}
        self._converters = {
            name: converter(self.plan.name, known[name], unit)
            for name, unit in units.items()
            if name in known and known[name].unit not in (None, unit)
        }

    def columns(self, packets: Sequence[Any], positions: Sequence[int]) -> tuple[Columns, dict[int, str]]:
        """The events of some packets, and the rows that are not events with the reasons."""
        bodies = list(map(_body, packets))
        wrong: dict[int, str] = {}
        found: dict[str, pa.Array] = {}
        for attribute in self.plan.attributes:
            values = list(map(_value_getter(attribute, self._converters), bodies))
            unconverted = _take_unconverted(values, attribute) if self._converters else {}
            column = _convert(values, attribute.type)
            reason = f"{attribute.name} {_CHECKED_AS_COLUMN.get(type(attribute.type), 'is missing')}"
            wrong |= dict.fromkeys(self._wrong_rows(column, attribute), reason) | unconverted
            if column.column.null_count < len(bodies):
                found[attribute.name] = column.column
        found[POSITION] = pa.array(positions, pa.int64())
        found[RECORDED] = pa.array(list(map(_recorded, packets)), pa.int64()).cast(INSTANT)
        batch = pa.RecordBatch.from_pydict(found)
        if wrong:
            batch = batch.filter(pa.array(~np.isin(np.arange(len(bodies)), list(wrong))))
        return Columns(self.plan.name, batch), wrong

    def _wrong_rows(self, column: CastColumn, attribute: Attribute) -> list[int]:
        is_missing = attribute.name in self.plan.required and column.column.null_count > 0
        mask = ~valid_rows(column.column) if is_missing else column.wrong
        return [] if mask is None else np.flatnonzero(mask).tolist()

    def problem(self, packet: bytes) -> str:
        """Why a packet is not decoded."""
        try:
            self._decode(packet)
        except Exception as problem:
            return str(problem).replace("$[2]", "$")
        return "does not fit"


class PacketReader:
    """Decodes packets of all types. State: the readers of the types that occurred so far."""

    def __init__(self, types: Types) -> None:
        self._types = types
        self._readers: dict[str, PacketTypeReader] = {}
        self._decode: Callable[[bytes], Any] = msgspec.msgpack.Decoder(type(None)).decode
        self._open = msgspec.msgpack.Decoder(tuple[str, int, msgspec.Raw]).decode

    def read(
        self, packets: Sequence[bytes], positions: Sequence[int], units: Mapping[str, Mapping[str, str]]
    ) -> Iterator[Chunk]:
        """Decode packets, of which the positions are given, and the units that a recording states for their types."""
        problems: dict[int, str] = {}
        decoded = self._decode_all(packets)
        for kind, rows in _rows_by_type(decoded).items():
            if kind is type(None):
                problems |= {row: self._problem(packets[row]) for row in rows}
                continue
            reader = self._readers[kind.__struct_config__.tag]
            reader.use_units(units.get(reader.plan.name, {}))
            columns, wrong = reader.columns(_take(decoded, rows), _take(positions, rows))
            problems |= {rows[at]: f"not a {reader.plan.name}: {reason}" for at, reason in wrong.items()}
            if columns.batch.num_rows:
                yield columns
        if problems:
            yield [DeadLetter.of(positions[row], reason, packets[row]) for row, reason in sorted(problems.items())]

    def _decode_all(self, packets: Sequence[bytes]) -> list[Any]:
        """A struct for each packet, None for packets that are not events."""
        done: list[Any] = []
        rest = iter(packets)
        while len(done) < len(packets):
            try:
                done.extend(map(self._decode, rest))  # keeps the results before one that fails
            except Exception:  # msgspec's errors, UnicodeDecodeError, OverflowError, RecursionError
                done.append(self._decode_new_type(packets[len(done)], packets))
        return done

    def _decode_new_type(self, packet: bytes, packets: Sequence[bytes]) -> Any:
        """Decode a packet that failed, after adding readers for new types; None if it is not an event."""
        if self._is_new(self._name(packet)):
            self._add_readers(filter(self._is_new, {self._name(each) for each in packets}))
            with suppress(Exception):
                return self._decode(packet)
        return None

    def _name(self, packet: bytes) -> str | None:
        try:
            return self._open(packet)[0]
        except Exception:
            return None

    def _is_new(self, name: str | None) -> TypeGuard[str]:
        return name is not None and name not in self._readers and self._types.plan(name) is not None

    def _add_readers(self, names: Iterable[str]) -> None:
        self._readers |= {name: PacketTypeReader(self._types.expected(name)) for name in names}
        packets = tuple(reader.packet for reader in self._readers.values())
        self._decode = msgspec.msgpack.Decoder(Union[packets]).decode  # noqa: UP007

    def _problem(self, packet: bytes) -> str:
        name = self._name(packet)
        if reader := self._readers.get(name or ""):
            return f"not a {name}: {reader.problem(packet)}"
        return "not a packet" if name is None else f"unknown type {name}"


def _take(values: Sequence[T], rows: Sequence[int]) -> Sequence[T]:
    return values if len(rows) == len(values) else [values[row] for row in rows]


def _rows_by_type(decoded: Sequence[Any]) -> dict[Any, Sequence[int]]:
    kinds = list(map(type, decoded))
    if len(set(kinds)) <= 1:
        return dict.fromkeys(kinds[:1], range(len(kinds)))
    found: dict[type, list[int]] = {kind: [] for kind in dict.fromkeys(kinds)}
    for row, kind in enumerate(kinds):
        found[kind].append(row)
    return dict(found)
