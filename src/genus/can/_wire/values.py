"""Templates of the code that writes and reads the values of each attribute type in a payload.

Numbers are big-endian. A *count* is one byte up to 254, or 255 and two bytes. It is used for the length of a text, and
for the index of a choice in its list, which may grow beyond 255 entries after devices were built.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from genus.bus.internal import in_unit, value_at
from genus.filters.internal import round_to_float32
from genus.model import micros_of_duration, micros_of_time
from genus.model.internal import MICROSECOND, encodable_value, int_range, metas, plain_value
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

MAX_BYTES = 0xFFFF
"""The most bytes of a text, bytes or an opaque value."""

BYTE = tuple(bytes((value,)) for value in range(256))
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST, _LAST = (micros_of_time(moment.replace(tzinfo=UTC)) for moment in (datetime.min, datetime.max))
_SINGLE_LIMIT = 2.0**128 - 2.0**103
"""From here on a number is rounded to infinity in 32 bits."""

_INTEGERS = {8: "b", 16: "h", 32: "i", 64: "q"}
_SIZES = {"B": 1, "b": 1, "H": 2, "h": 2, "I": 4, "i": 4, "f": 4, "q": 8, "d": 8}


class AttributeUse(NamedTuple):
    agreed: AttributeType
    """The type in the vector."""
    own: AttributeType | None
    """The type in the class; None if the class does not have the attribute and only skips its values."""
    annotation: object
    """The annotation in the class."""
    key: str
    """Appended to names in generated code, to keep those of different attributes apart."""
    unit: str | None = None
    """The unit in the vector."""


class ValueTemplate(msgspec.Struct, frozen=True):
    """Code for the values of one attribute; `{v}` stands for the value."""

    format: str = ""
    """The format for the module `struct` if values have a fixed size; empty if they begin with a count."""
    write: str = "{v}"
    """An expression: what `struct` packs, or the bytes of a value without a fixed size."""
    read: tuple[str, ...] = ()
    """Statements that convert what was read to the value, or return `{no}`.

    A value that the class cannot read becomes None and is kept: `kept = keep(kept, {name}, ...)`.
    """
    names: Mapping[str, object] = {}
    """The constants in the code besides `COMMON_NAMES`."""
    contents: bool = False
    """Whether the count is a length, followed by as many bytes; otherwise the count itself is the value."""
    limit: int | None = None
    """The largest count; None if it is not bounded."""

    @property
    def min_size(self) -> int:
        return _SIZES.get(self.format, 1)

    @property
    def max_size(self) -> int | None:
        if self.format or self.limit is None:
            return _SIZES.get(self.format)
        return (1 if self.limit < 255 else 3) + self.limit * self.contents


def template_for(use: AttributeUse) -> ValueTemplate:
    """Return the code for one attribute, which also checks the bounds of its annotation."""
    if use.own is None:  # read by the type of the vector, and kept for others
        template = _TEMPLATES[type(use.agreed)](use._replace(own=use.agreed, annotation=Any))
        read = (*template.read, f"if {{v}} is not None: kept = keep(kept, {{name}}, {{v}}, unit{use.key})")
        return msgspec.structs.replace(template, read=read, names={**template.names, f"unit{use.key}": use.unit})
    template = _TEMPLATES[type(use.agreed)](use)
    if isinstance(use.agreed, OpaqueType) or all(is_implied(meta, use.agreed) for meta in metas(use.annotation)):
        return template
    check = (
        "if {v} is not None:",
        f"    try: convert({{v}}, note{use.key})",
        "    except ValidationError: kept, {v} = keep(kept, {name}, {v}), None",
    )
    names = {**template.names, f"note{use.key}": use.annotation}
    return msgspec.structs.replace(template, read=(*template.read, *check), names=names)


def encode_count(number: int) -> bytes:
    """Return a count.

    >>> encode_count(254).hex(), encode_count(255).hex()
    ('fe', 'ff00ff')
    """
    return BYTE[number] if number < 255 else b"\xff" + number.to_bytes(2, "big")


def encode_bytes(raw: bytes, limit: int) -> bytes:
    if len(raw) > limit:
        raise ValueError(f"it takes {len(raw)} bytes, but at most {limit} are allowed")
    return encode_count(len(raw)) + raw


def encode_time(moment: datetime) -> int:
    """Microseconds since 1970; OverflowError outside of the years 1 to 9999 in UTC."""
    found = micros_of_time(moment)
    if not _FIRST <= found <= _LAST:
        raise OverflowError(f"{moment} is not in the years 1 to 9999 of UTC")
    return found


def encode_duration(span: timedelta) -> int:
    return micros_of_duration(plain_value(span))


def encode_bool(value: object) -> int:
    plain = plain_value(value)
    if plain is True or plain is False:
        return 1 if plain else 0
    raise TypeError(f"{value!r} is not a bool")


def encode_opaque(value: object) -> bytes:
    """Return an opaque value as msgpack; TypeError if it is None."""
    if value is None:
        raise TypeError("it is absent")
    return msgspec.msgpack.encode(value, enc_hook=encodable_value)


def _bool(_: AttributeUse) -> ValueTemplate:
    return ValueTemplate("B", "encode_bool({v})", ("if {v} > 1: return {no}", "{v} = {v} == 1"))


def _int(use: AttributeUse) -> ValueTemplate:
    assert isinstance(use.agreed, IntType)
    letter = _INTEGERS[use.agreed.bits]
    return ValueTemplate(letter if use.agreed.signed else letter.upper())


def _float(use: AttributeUse) -> ValueTemplate:
    assert isinstance(use.agreed, FloatType)
    if use.agreed.bits == 64:
        return ValueTemplate("d")
    near = f"-{_SINGLE_LIMIT!r} < {{v}} < {_SINGLE_LIMIT!r}"
    return ValueTemplate("f", f"{{v}} if {near} else single({{v}})")


def _time(_: AttributeUse) -> ValueTemplate:
    read = ("try: {v} = EPOCH + MICROSECOND * {v}", "except OverflowError: return {no}")
    return ValueTemplate("q", "encode_time({v})", read)


def _duration(_: AttributeUse) -> ValueTemplate:
    read = ("{v} = MICROSECOND * {v}",)
    return ValueTemplate("q", "encode_duration({v})", read)


def _choice(use: AttributeUse) -> ValueTemplate:
    assert isinstance(use.agreed, ChoiceType)
    if not isinstance(use.own, ChoiceType):
        return ValueTemplate()
    members: tuple[Any, ...] = tuple(use.own.enum) if use.own.enum is not None else use.own.values
    indexes = [use.agreed.values.index(value) for value in use.own.values]
    index, member = f"index{use.key}", f"member{use.key}"
    names: dict[str, object] = {
        index: dict(zip(members, indexes, strict=True)),
        member: dict(zip(indexes, members, strict=True)),
    }
    names[f"values{use.key}"] = use.agreed.values
    kept = f"keep(kept, {{name}}, value_at(values{use.key}, i))"
    read = (f"i, {{v}} = {{v}}, {member}.get({{v}})", f"if {{v}} is None: kept = {kept}")
    if len(use.agreed.values) <= 255:  # then every index is below 255: one byte; 255 says that the list has outgrown it
        return ValueTemplate("B", f"{index}[{{v}}]", ("if {v} == 255: return {no}", *read), names)
    limit = len(use.agreed.values) - 1
    return ValueTemplate("", f"encode_count({index}[{{v}}])", read, names, limit=limit)


def _text(use: AttributeUse) -> ValueTemplate:
    max_length = _max_length(use.annotation)
    limit = None if max_length is None else min(4 * max_length, MAX_BYTES)
    write = f"encode_bytes({{v}}.encode(), {MAX_BYTES if limit is None else limit})"
    read = ("try: {v} = str({v}, 'utf-8')", "except UnicodeDecodeError: return {no}")
    return ValueTemplate("", write, read, contents=True, limit=limit)


def _bytes(use: AttributeUse) -> ValueTemplate:
    limit = _max_length(use.annotation)
    write = f"encode_bytes({{v}}, {MAX_BYTES if limit is None else limit})"
    return ValueTemplate("", write, contents=True, limit=limit)


def _opaque(use: AttributeUse) -> ValueTemplate:
    unpack = f"unpack{use.key}"
    read = (
        "i = {v}",
        "if i == NIL: return {no}",
        f"try: {{v}} = {unpack}(i)",
        "except ValidationError: kept, {v} = keep(kept, {name}, Raw(i)), None",
        "except Exception: return {no}",
    )
    names = {unpack: msgspec.msgpack.Decoder(use.annotation).decode}
    return ValueTemplate("", f"encode_bytes(encode_opaque({{v}}), {MAX_BYTES})", read, names, contents=True)


def keep_value(
    kept: Mapping[str, msgspec.Raw] | None, name: str, value: object, unit: str | None = None
) -> Mapping[str, msgspec.Raw]:
    raw = value if isinstance(value, msgspec.Raw) else msgspec.Raw(msgspec.msgpack.encode(value))
    return {**(kept or {}), name: raw if unit is None else in_unit(raw, unit)}


COMMON_NAMES: Mapping[str, object] = {
    "EPOCH": _EPOCH,
    "NIL": b"\xc0",
    "Raw": msgspec.Raw,
    "MICROSECOND": MICROSECOND,
    "ValidationError": msgspec.ValidationError,
    "convert": msgspec.convert,
    "encode_bool": encode_bool,
    "encode_bytes": encode_bytes,
    "encode_count": encode_count,
    "encode_duration": encode_duration,
    "encode_opaque": encode_opaque,
    "encode_time": encode_time,
    "keep": keep_value,
    "single": round_to_float32,
    "value_at": value_at,
}
"""Names that all templates may use."""

_TEMPLATES: dict[type, Callable[[AttributeUse], ValueTemplate]] = {
    BoolType: _bool,
    IntType: _int,
    FloatType: _float,
    TimeType: _time,
    DurationType: _duration,
    ChoiceType: _choice,
    TextType: _text,
    BytesType: _bytes,
    OpaqueType: _opaque,
}


def is_implied(meta: msgspec.Meta, type_: AttributeType) -> bool:
    """Whether every value that can be read keeps a bound: that of an integer's width, or of a time with a time zone."""
    if isinstance(type_, IntType):
        low, high = int_range(type_.bits, type_.signed)
        return meta == msgspec.Meta(ge=low, le=high)
    return isinstance(type_, TimeType) and meta == msgspec.Meta(tz=True)


def _max_length(annotation: object) -> int | None:
    """The most characters or bytes that an annotation allows; None if it allows as many as a payload can have."""
    stated = min((meta.max_length for meta in metas(annotation) if meta.max_length is not None), default=MAX_BYTES)
    return stated if stated < MAX_BYTES else None
