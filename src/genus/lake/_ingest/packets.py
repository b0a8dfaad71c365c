"""Decodes packets of recordings to columns, and checks them with structs made from the catalog.

A packet is a msgpack array of type name, time of recording and attributes. A struct of this form is made for each type,
so that msgspec decodes and checks a packet in one step. Times, durations and opaque values are checked as columns.

Times are kept as the bytes in the packet; the usual forms, msgpack timestamps of 4, 8 and 12 bytes, are decoded
together with numpy. Other forms, such as text with a time zone, are decoded one by one as the bus does.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, TypeGuard, TypeVar, Union, cast

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from genus.bus._attribute_map import Convert, converter
from genus.lake._ingest.format import Columns, TypePlan, Types
from genus.lake._ingest.safe_cast import valid_rows
from genus.lake._ingest.stated_units import (
    StatedUnits,
    Unconverted,
    UnitsChange,
    read_stated_units,
    split_at_changes,
    take_unconverted,
    value_getter,
)
from genus.lake._tables.columns import FIRST_US, INSTANT, LAST_US, POSITION, RECORDED, stored_type
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
from genus.model._types import INT64_MAX, INT64_MIN, int_range, micros_of_duration, micros_of_time

AWARE = Annotated[datetime, msgspec.Meta(tz=True)]

_SECONDS = np.uint64(34)
"""Bits of the seconds in a timestamp of 8 bytes; the nanoseconds are above them."""
_LOW_SECONDS = np.uint64((1 << 34) - 1)
_BILLION = 1_000_000_000

_decode_time = msgspec.msgpack.Decoder(AWARE | None).decode

Micros = npt.NDArray[np.int64]


class PacketColumn(NamedTuple):
    """Values of an attribute, null where absent, and the rows whose value is wrong."""

    values: pa.Array
    wrong: list[int]


class _Timestamps(NamedTuple):
    seconds: Micros
    nanos: Micros


def _four(data: bytes, begins: Micros) -> _Timestamps:
    return _Timestamps(_numbers_at(data, ">u4", begins), np.zeros_like(begins))


def _eight(data: bytes, begins: Micros) -> _Timestamps:
    both = _numbers_at(data, ">u8", begins).view(np.uint64)
    return _Timestamps((both & _LOW_SECONDS).view(np.int64), (both >> _SECONDS).view(np.int64))


def _twelve(data: bytes, begins: Micros) -> _Timestamps:
    return _Timestamps(_numbers_at(data, ">i8", begins + 4), _numbers_at(data, ">u4", begins))


def _numbers_at(data: bytes, form: str, begins: Micros) -> Micros:
    """Numbers of a numpy type at some byte offsets; unsigned 64-bit numbers keep their bits."""
    size = np.dtype(form).itemsize
    numbers: Any = np.ndarray((max(len(data) - size + 1, 0),), form, data, strides=(1,))
    return numbers[begins].astype(np.uint64 if form == ">u8" else np.int64).view(np.int64)  # type: ignore[no-any-return]


_FORMS = {6: (b"\xd6\xff", _four), 10: (b"\xd7\xff", _eight), 15: (b"\xc7\x0c\xff", _twelve)}
"""By length in the packet: the first bytes, and the decoder of the rest."""


def time_column(values: list[msgspec.Raw | None]) -> PacketColumn:
    """Decode a column of times, each as the bytes in its packet.

    >>> packed = msgspec.msgpack.encode(datetime.fromisoformat("2026-01-01T00:00:00.5Z"))
    >>> time_column([msgspec.Raw(packed), None, msgspec.Raw(b"no time")]).wrong
    [2]
    """
    if values.count(None) == len(values):
        return PacketColumn(pa.nulls(len(values), INSTANT), [])
    rows = np.flatnonzero([value is not None for value in values])
    micros, absent = np.zeros(len(values), np.int64), np.ones(len(values), np.bool_)
    present = [value for value in values if value is not None] if len(rows) < len(values) else values
    found, known = _decode_usual(cast("list[msgspec.Raw]", present))
    micros[rows], absent[rows] = found, ~known
    wrong = [row for row in rows[~known].tolist() if not _decode_one(values, row, micros, absent)]
    return PacketColumn(pa.array(micros, mask=absent).cast(INSTANT), wrong)


def _decode_usual(raws: Sequence[msgspec.Raw]) -> tuple[Micros, npt.NDArray[np.bool_]]:
    """The microseconds of times in the usual forms, and a mask of these."""
    lengths = np.fromiter(map(len, raws), np.int64, len(raws))
    data = b"".join(raws)
    begins = np.cumsum(lengths) - lengths
    micros, known = np.zeros(len(raws), np.int64), np.zeros(len(raws), np.bool_)
    for length, (prefix, read) in _FORMS.items():
        rows = np.flatnonzero(lengths == length)
        rows = rows[_begin_with(data, begins[rows], prefix)]
        seconds, nanos = read(data, begins[rows] + len(prefix))
        fit = (seconds >= FIRST_US // 1_000_000) & (seconds <= LAST_US // 1_000_000)
        fit &= (nanos < _BILLION) & (nanos % 1000 == 0)
        micros[rows[fit]] = (seconds * 1_000_000 + nanos // 1000)[fit]
        known[rows[fit]] = True
    return micros, known


def _begin_with(data: bytes, begins: Micros, prefix: bytes) -> npt.NDArray[np.bool_]:
    octets = np.frombuffer(data, np.uint8)
    alike = np.ones(len(begins), np.bool_)
    for index, octet in enumerate(prefix):
        alike &= octets[begins + index] == octet
    return alike


def _decode_one(values: Sequence[Any], row: int, micros: Micros, absent: npt.NDArray[np.bool_]) -> bool:
    """Decode one value; whether it is a time or nil, which means absent."""
    try:
        time = _decode_time(values[row])
    except Exception:  # besides msgspec's errors: UnicodeDecodeError, OverflowError, ValueError
        return False
    if time is None:
        return True
    micros[row] = us = micros_of_time(time)
    absent[row] = not FIRST_US <= us <= LAST_US
    return not absent[row]


def duration_column(values: Sequence[timedelta | None]) -> PacketColumn:
    """Convert a column of durations.

    >>> duration_column([timedelta(seconds=1), timedelta.max]).wrong
    [1]
    """
    micros = [None if value is None else micros_of_duration(value) for value in values]
    wrong = [row for row, us in enumerate(micros) if us is not None and not INT64_MIN <= us <= INT64_MAX]
    for row in wrong:
        micros[row] = None
    return PacketColumn(pa.array(micros, pa.int64()).cast(pa.duration("us")), wrong)


T = TypeVar("T")
Converter: TypeAlias = Callable[[list[Any]], PacketColumn]

_RECORDED_AT = Annotated[int, msgspec.Meta(ge=FIRST_US, le=LAST_US)]
_ANNOTATIONS: Mapping[type, Any] = {
    BoolType: bool,
    FloatType: float,
    TextType: str,
    BytesType: bytes,
    TimeType: AWARE,
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


def _read_annotation(type_: AttributeType) -> Any:
    return msgspec.Raw if isinstance(type_, TimeType) else _annotation(type_)


def _struct(plan: TypePlan, annotation: Callable[[AttributeType], Any]) -> type[msgspec.Struct]:
    """A struct with the attributes of a type, also by their former names, that accepts no others."""
    fields: list[Any] = []
    for attribute in plan.attributes:
        note = annotation(attribute.type)
        if attribute.name in plan.required and not attribute.former:
            fields.append((attribute.name, note))
        else:
            maybe = note if note is msgspec.Raw else Union[note, None]  # noqa: UP007
            fields += [(name, maybe, None) for name in (attribute.name, *attribute.former)]
    return msgspec.defstruct("Body", fields, kw_only=True, frozen=True, gc=False, forbid_unknown_fields=True)


class PacketTypeReader:
    """Decodes the packets of one type."""

    def __init__(self, plan: TypePlan) -> None:
        self.plan = plan
        options: dict[str, Any] = {"array_like": True, "frozen": True, "gc": False, "forbid_unknown_fields": True}
        fields: list[Any] = [("recorded", _RECORDED_AT), ("body", _struct(plan, _read_annotation))]
        msgspec.msgpack.encode(plan.name)  # msgspec compares a tag with other than ASCII letters wrongly before that
        self.packet = msgspec.defstruct("Packet", fields, tag=plan.name, **options)
        fields = [("recorded", _RECORDED_AT), ("body", _struct(plan, _annotation))]
        self._strict = msgspec.msgpack.Decoder(msgspec.defstruct("Strict", fields, tag=plan.name, **options)).decode
        self._columns = [(each, value_getter(each), _converter_for(each)) for each in plan.attributes]
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
        self._columns = [
            (each, value_getter(each, self._converters), _converter_for(each)) for each in self.plan.attributes
        ]

    def columns(self, packets: Sequence[Any], positions: Sequence[int]) -> tuple[Columns, dict[int, str]]:
        """The events of some packets, and the rows that are not events with the attribute at fault."""
        bodies = list(map(_body, packets))
        wrong: dict[int, str] = {}
        found: dict[str, pa.Array] = {}
        for attribute, value_of, convert in self._columns:
            values = list(map(value_of, bodies))
            if self._converters:
                wrong |= dict.fromkeys(take_unconverted(values, attribute), attribute.name)
            column = convert(values)
            wrong |= dict.fromkeys(self._wrong_rows(column, attribute), attribute.name)
            if column.values.null_count < len(bodies):
                found[attribute.name] = column.values
        found[POSITION] = pa.array(positions, pa.int64())
        found[RECORDED] = pa.array(list(map(_recorded, packets)), pa.int64()).cast(INSTANT)
        batch = pa.RecordBatch.from_pydict(found)
        return Columns(self.plan.name, _without(batch, list(wrong))), wrong

    def _wrong_rows(self, column: PacketColumn, attribute: Attribute) -> list[int]:
        if attribute.name not in self.plan.required or column.values.null_count == 0:
            return column.wrong
        rows: list[int] = np.flatnonzero(~valid_rows(column.values)).tolist()
        return rows

    def _describe_unconverted(self, packet: bytes, attribute: str | None) -> str | None:
        """Why the value of an attribute in a valid packet is not converted."""
        if not self._converters or attribute is None:
            return None
        known = next(each for each in self.plan.attributes if each.name == attribute)
        value = value_getter(known, self._converters)(_body(self._strict(packet)))
        if isinstance(value, Unconverted):
            return value.reason
        return (
            f"{attribute} does not fit after its conversion to {known.unit}"
            if take_unconverted([value], known)
            else None
        )

    def problem(self, packet: bytes, attribute: str | None) -> str:
        """The reason why a packet is not an event; `attribute` is at fault if decoding does not find a problem."""
        try:
            self._strict(packet)
        except Exception as problem:
            return f"not a {self.plan.name}: {str(problem).replace('$[2]', '$')}"
        if (unconverted := self._describe_unconverted(packet, attribute)) is not None:
            return f"not a {self.plan.name}: {unconverted}"
        wanted = {each.name: _CHECKED_AS_COLUMN.get(type(each.type), "is missing") for each in self.plan.attributes}
        return f"not a {self.plan.name}: {attribute} {wanted.get(attribute or '', 'does not fit')}"


def _without(batch: pa.RecordBatch, rows: list[int]) -> pa.RecordBatch:
    if not rows:
        return batch
    keep = np.ones(batch.num_rows, np.bool_)
    keep[rows] = False
    return batch.filter(pa.array(keep))


def _converter_for(attribute: Attribute) -> Converter:
    match attribute.type:
        case TimeType():
            return time_column
        case DurationType():
            return duration_column
        case OpaqueType():
            return _json_column
    stored = stored_type(attribute.type)
    return lambda values: PacketColumn(pa.array(values, stored), [])


def _json_column(values: list[Any]) -> PacketColumn:
    texts: list[str | None] = [None] * len(values)
    wrong = []
    for row, value in enumerate(values):
        try:
            texts[row] = None if value is None else msgspec.json.encode(value).decode()
        except Exception:  # keys or extension types that JSON does not have, or too many levels
            wrong.append(row)
    return PacketColumn(pa.array(texts, pa.string()), wrong)


class DecodedPackets(NamedTuple):
    """Columns per type, and for packets that are not events their index and the reason."""

    columns: list[Columns]
    problems: dict[int, str]


class PacketReader:
    """Decodes packets of all types. State: the readers of the types that occurred so far."""

    def __init__(self, types: Types) -> None:
        self._types = types
        self._by_name: dict[str, PacketTypeReader] = {}
        self._by_packet: dict[type, PacketTypeReader] = {}
        self._decode: Callable[[bytes], Any] = msgspec.msgpack.Decoder(type(None)).decode
        self._open = msgspec.msgpack.Decoder(tuple[str, int, msgspec.Raw]).decode

    def read(
        self, packets: Sequence[bytes], positions: Sequence[int], units: StatedUnits | None = None
    ) -> DecodedPackets:
        """Decode packets, of which the positions are given; `units` are those stated before, and are updated."""
        found, stated = DecodedPackets([], {}), {} if units is None else units
        decoded = self._decode_all(packets)
        by_type = _rows_by_type(decoded)
        changes = self._find_stated(packets, by_type.pop(type(None), ()), found.problems)
        for kind, rows in by_type.items():
            reader = self._by_packet[kind]
            own = [change for change in changes if change.type == reader.plan.name]
            for part, stating in split_at_changes(rows, own):
                reader.use_units(stating.units if stating else stated.get(reader.plan.name, {}))
                columns, wrong = reader.columns(_take(decoded, part), _take(positions, part))
                found.columns.extend([columns] if columns.batch.num_rows else [])
                found.problems.update((part[at], reader.problem(packets[part[at]], name)) for at, name in wrong.items())
        stated.update((change.type, change.units) for change in changes)
        return found

    def _find_stated(
        self, packets: Sequence[bytes], rows: Sequence[int], problems: dict[int, str]
    ) -> list[UnitsChange]:
        """The units that packets state, among those that are no events; the others are problems."""
        found = []
        for row in rows:
            if (stated := read_stated_units(packets[row])) is not None:
                found.append(UnitsChange(row, *stated))
            else:
                problems[row] = self._problem(packets[row])
        return found

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
        return name is not None and name not in self._by_name and self._types.plan(name) is not None

    def _add_readers(self, names: Iterable[str]) -> None:
        for name in names:
            plan = self._types.plan(name)
            assert plan is not None
            self._by_name[name] = reader = PacketTypeReader(plan)
            self._by_packet[reader.packet] = reader
        self._decode = msgspec.msgpack.Decoder(Union[tuple(self._by_packet)]).decode  # noqa: UP007

    def _problem(self, packet: bytes) -> str:
        name = self._name(packet)
        reader = self._by_name.get(name or "")
        if reader is not None:
            return reader.problem(packet, None)
        return "not a packet" if name is None else f"unknown type {name}"


def _take(values: Sequence[T], rows: Sequence[int]) -> Sequence[T]:
    return values if len(rows) == len(values) else [values[row] for row in rows]


def _rows_by_type(decoded: Sequence[Any]) -> dict[type, Sequence[int]]:
    """The rows of each type."""
    kinds = list(map(type, decoded))
    if len(set(kinds)) <= 1:
        return dict.fromkeys(kinds[:1], range(len(kinds)))
    found: dict[type, list[int]] = {kind: [] for kind in dict.fromkeys(kinds)}
    for row, kind in enumerate(kinds):
        found[kind].append(row)
    return dict(found)
