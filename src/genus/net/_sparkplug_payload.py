"""Payloads of Sparkplug B: metrics as bytes and back. Pure; bytes from outside never raise.

Field numbers and data types are those of the specification ("Sparkplug B Payload"). The messages are declared at
run time with the fields that are used; all others are skipped by the decoder. Texts are declared as bytes, which is the
same on the wire, so that those that are not UTF-8 are noticed here.
"""

import base64
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory

from genus.model.types import Attribute, BoolType, BytesType, ChoiceType, DurationType, FloatType, IntType, TimeType
from genus.records.internal import BASE64, ISO, MAX_SIZE, UNITS, ValueFormat
from genus.records.types import Rejected

_MESSAGES = {
    "PropertyValue": "type:1:uint32 string_value:8:bytes",
    "PropertySet": "*keys:1:bytes *values:2:PropertyValue",
    "Metric": "name:1:bytes alias:2:uint64 timestamp:3:uint64 datatype:4:uint32 is_historical:5:bool is_null:7:bool "
    "properties:9:PropertySet int_value:10:uint32 long_value:11:uint64 float_value:12:float double_value:13:double "
    "boolean_value:14:bool string_value:15:bytes bytes_value:16:bytes",
    "Payload": "timestamp:1:uint64 *metrics:2:Metric seq:3:uint64",
}
_VALUES = tuple(f"{each}_value" for each in ("int", "long", "float", "double", "boolean", "string", "bytes"))
UNIT = "engUnit"
"""The property with the unit of a metric; the specification names none, this is what Ignition writes."""
_UNIT_KEYS = (b"engunit", b"unit", b"units")

DATATYPES = (
    *("Unknown", "Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64", "Float", "Double"),
    *("Boolean", "String", "DateTime", "Text", "UUID", "DataSet", "Bytes", "File", "Template"),
)
"""The names of data types, by number."""
INT64, UINT64, FLOAT, DOUBLE, BOOLEAN, STRING, DATE_TIME, BYTES = 4, 8, 9, 10, 11, 12, 13, 17
_TEXTS, _BYTES = (STRING, 14, 15), (BYTES, 18)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _declare() -> Any:
    """Declare the messages; returns the class of payloads."""
    file = descriptor_pb2.FileDescriptorProto(name="genus_sparkplug.proto", package="genus.sparkplug")
    for name, fields in _MESSAGES.items():
        made = file.message_type.add(name=name)
        for text in fields.split():
            field, number, type_ = text.lstrip("*").split(":")
            added = made.field.add(name=field, number=int(number), label=3 if text.startswith("*") else 1)
            if type_ in _MESSAGES:
                added.type, added.type_name = added.TYPE_MESSAGE, f".genus.sparkplug.{type_}"
            else:
                added.type = getattr(added, f"TYPE_{type_.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("genus.sparkplug.Payload"))


_PayloadMessage = _declare()


class Metric(NamedTuple):
    """A metric. `value` is as on the wire; `read_value` and `wire_value` convert it. Times are milliseconds of UTC."""

    name: str = ""
    value: int | float | bool | bytes | None = None
    datatype: int = 0
    alias: int | None = None
    timestamp: int | None = None
    unit: str = ""
    is_historical: bool = False


class Payload(NamedTuple):
    """The content of a message."""

    metrics: tuple[Metric, ...] = ()
    timestamp: int | None = None
    seq: int | None = None

    def get(self, name: str) -> int | float | bool | bytes | None:
        """Return the value of a metric as on the wire; None if there is none."""
        return next((each.value for each in self.metrics if each.name == name), None)


def decode_payload(data: bytes) -> Payload | Rejected:
    """Return the metrics of a payload, or why they cannot be read; never raises."""
    if len(data) > MAX_SIZE:
        return Rejected(f"more than {MAX_SIZE} bytes")
    found = _PayloadMessage()
    try:
        found.ParseFromString(data)
        metrics = tuple(_metric(each) for each in found.metrics)
    except message.DecodeError as problem:
        return Rejected("not a Sparkplug payload", f"not a Sparkplug payload: {problem}")
    except UnicodeDecodeError as problem:
        return Rejected("not UTF-8", f"not UTF-8: {problem}")
    return Payload(metrics, _optional(found, "timestamp"), _optional(found, "seq"))


def _metric(found: Any) -> Metric:
    value = None if found.is_null else next((getattr(found, each) for each in _VALUES if found.HasField(each)), None)
    unit = ""
    if found.HasField("properties"):
        named = zip(found.properties.keys, found.properties.values, strict=False)
        unit = next((each.string_value.decode() for key, each in named if key.lower() in _UNIT_KEYS), "")
    alias, at = _optional(found, "alias"), _optional(found, "timestamp")
    return Metric(found.name.decode(), value, found.datatype, alias, at, unit, found.is_historical)


def _optional(found: Any, name: str) -> Any:
    return getattr(found, name) if found.HasField(name) else None


def encode_payload(payload: Payload) -> bytes:
    """Return the bytes of a payload. Metrics without a value are null."""
    made = _PayloadMessage()
    _set(made, timestamp=payload.timestamp, seq=payload.seq)
    for metric in payload.metrics:
        added = made.metrics.add(datatype=metric.datatype)
        _set(added, name=metric.name.encode() or None, alias=metric.alias, timestamp=metric.timestamp)
        if metric.value is None:
            added.is_null = True
        else:
            setattr(added, _field_of(metric.datatype), metric.value)
        if metric.unit:
            added.properties.keys.append(UNIT.encode())
            added.properties.values.add(type=STRING, string_value=metric.unit.encode())
    return bytes(made.SerializeToString())


def _set(made: Any, **values: Any) -> None:
    for name, value in values.items():
        if value is not None:
            setattr(made, name, value)


# -- values ------------------------------------------------------------------------------------------------------------


def _field_of(datatype: int) -> str:
    if datatype <= UINT64:
        return "long_value" if datatype in (INT64, UINT64) else "int_value"
    named = {FLOAT: "float", DOUBLE: "double", BOOLEAN: "boolean", DATE_TIME: "long", BYTES: "bytes", 18: "bytes"}
    return f"{named.get(datatype, 'string')}_value"


def describe_datatype(number: int) -> str:
    return DATATYPES[number] if number < len(DATATYPES) else f"{number}"


def read_value(value: Any, datatype: int) -> Any:
    """The value of a metric as Python has it; ValueError if it does not fit its data type, or that is not read."""
    kind = type(value)
    if not 0 < datatype <= BYTES + 1 or datatype == 16:
        raise ValueError(f"the data type {describe_datatype(datatype)} is not read")
    if value is None:
        return None
    if datatype <= UINT64 and kind is int:
        return _signed(value, 8 << (datatype - 1)) if datatype <= INT64 else value
    if datatype in (FLOAT, DOUBLE) and kind in (float, int):
        return float(value)
    if (datatype == BOOLEAN and kind is bool) or (datatype in _BYTES and kind is bytes):
        return value
    if datatype in _TEXTS and kind is bytes:
        return value.decode()
    if datatype == DATE_TIME and kind is int and value < 253_402_300_800_000:
        return _EPOCH + timedelta(milliseconds=value)
    raise ValueError(f"a value does not fit the data type {describe_datatype(datatype)}")


def _signed(value: int, bits: int) -> int:
    """Return the number that the lowest bits of a value are: some write all 32 bits of a negative Int8, some 8."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def wire_value(value: Any, datatype: int) -> Any:
    """Return a value that a mapping wrote, as it is on the wire; ValueError if it does not fit the data type."""
    if value is None:
        return None
    if datatype <= UINT64:
        bits = 8 << (datatype - 1) % 4
        number = int(value)
        if number != value or not (-(1 << bits - 1) if datatype <= INT64 else 0) <= number < 1 << bits:
            raise ValueError(f"{value!r} does not fit {describe_datatype(datatype)}")
        return number & (0xFFFF_FFFF if bits < 64 else 0xFFFF_FFFF_FFFF_FFFF)
    if datatype in (FLOAT, DOUBLE):
        return float(value)
    if datatype == DATE_TIME:
        return milliseconds(datetime.fromisoformat(value))
    if datatype in _BYTES:
        return base64.b64decode(value)
    return bool(value) if datatype == BOOLEAN else str(value).encode()


def milliseconds(time: datetime) -> int:
    return (time - _EPOCH) // timedelta(milliseconds=1)


def datatype_of(attribute: Attribute, form: ValueFormat) -> int:
    """Return the data type of the metric that an attribute is written as."""
    match attribute.type:
        case BoolType() if not form.format:
            return BOOLEAN
        case IntType(bits, signed) if not form.format:
            return bits.bit_length() - 3 + (0 if signed else 4)
        case FloatType(bits) if not form.format:
            return DOUBLE if bits == 64 else FLOAT
        case BytesType() if form.format in ("", BASE64):
            return BYTES
        case TimeType() if form.format in ("", ISO):
            return DATE_TIME
        case TimeType() | DurationType() if form.format in UNITS:
            return DOUBLE
        case ChoiceType(values) if isinstance(values[0], int) and not form.format:
            return INT64
        case _:
            return STRING
