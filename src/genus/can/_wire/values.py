"""How values of each attribute type stand in a payload: the code that writes them and the code that reads them.

Numbers are big-endian. A *count* is one byte up to 254, or 255 and two bytes: the length of a text, and the place of a
choice in its list, which may grow past any width that was wide enough when the first device was made.
"""

import typing
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from genus.filters._evaluate import round_to_float32
from genus.model import (
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
from genus.model._types import MICROSECOND, int_range, micros_of_duration, micros_of_time

MOST_BYTES = 0xFFFF
"""The longest a text, bytes or an opaque value may be, in bytes."""

BYTE = tuple(bytes((value,)) for value in range(256))
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST, _LAST = (micros_of_time(moment.replace(tzinfo=UTC)) for moment in (datetime.min, datetime.max))
_SINGLE_LIMIT = 2.0**128 - 2.0**103
"""From here on a number is infinite in 32 bits."""

_INTEGERS = {8: "b", 16: "h", 32: "i", 64: "q"}
_SIZES = {"B": 1, "b": 1, "H": 2, "h": 2, "I": 4, "i": 4, "f": 4, "q": 8, "d": 8}


class Usage(NamedTuple):
    """One attribute of a vector as a class uses it: its type there and in the class, and the class's annotation.

    A class that does not have the attribute only skips its values. Names in generated code end in `key`, which tells
    the attributes of a class apart.
    """

    agreed: AttributeType
    own: AttributeType | None
    note: object
    key: str


class Form(msgspec.Struct, frozen=True):
    """Code for the values of one attribute; `{v}` stands for the value.

    A value of fixed size has a `format` of the module `struct`, which packs what `write` gives. Others are bytes when
    written; when read they are a count or, with `contents`, as many bytes as the count says. The statements of `read`
    then make the value, or return `{no}`. `names` are the constants that occur; `limit` bounds a count.
    """

    format: str = ""
    write: str = "{v}"
    read: tuple[str, ...] = ()
    names: Mapping[str, object] = {}
    contents: bool = False
    limit: int | None = None

    @property
    def least(self) -> int:
        """The fewest bytes a value takes."""
        return _SIZES.get(self.format, 1)

    @property
    def most(self) -> int | None:
        """The most bytes a value takes; None where only the length of all values is bounded."""
        if self.format or self.limit is None:
            return _SIZES.get(self.format)
        return (1 if self.limit < 255 else 3) + self.limit * self.contents


def form_of(usage: Usage) -> Form:
    """The code for one attribute, with the bounds that its annotation states."""
    form = _FORMS[type(usage.agreed)](usage)
    if usage.own is None:
        return Form(form.format, contents=form.contents)
    if isinstance(usage.agreed, OpaqueType) or all(_is_implied(meta, usage.agreed) for meta in _metas(usage.note)):
        return form
    checked = (f"try: convert({{v}}, note{usage.key})", "except ValidationError: return {no}")
    constants = {f"note{usage.key}": usage.note, "convert": msgspec.convert, "ValidationError": msgspec.ValidationError}
    return msgspec.structs.replace(form, read=(*form.read, *checked), names={**form.names, **constants})


def counted(number: int) -> bytes:
    """A count.

    >>> counted(254).hex(), counted(255).hex()
    ('fe', 'ff00ff')
    """
    return BYTE[number] if number < 255 else b"\xff" + number.to_bytes(2, "big")


def sized(raw: bytes, limit: int) -> bytes:
    """Bytes after their length; ValueError if there are more than allowed."""
    if len(raw) > limit:
        raise ValueError(f"it takes {len(raw)} bytes, and {limit} are allowed")
    return counted(len(raw)) + raw


def instant(moment: datetime) -> int:
    """Microseconds since 1970; OverflowError if it lies outside the years 1 to 9999 of UTC."""
    found = micros_of_time(moment)
    if not _FIRST <= found <= _LAST:
        raise OverflowError(f"{moment} is not in the years 1 to 9999 of UTC")
    return found


def flag(value: object) -> int:
    """0 or 1 for a bool, and a TypeError for what is only like one."""
    if value is True or value is False:
        return 1 if value else 0
    raise TypeError(f"{value!r} is not a bool")


def packed(value: object) -> bytes:
    """An opaque value as msgpack; TypeError if there is none."""
    if value is None:
        raise TypeError("it is absent")
    return msgspec.msgpack.encode(value)


def _bool(_: Usage) -> Form:
    return Form("B", "flag({v})", ("if {v} > 1: return {no}", "{v} = {v} == 1"), {"flag": flag})


def _int(usage: Usage) -> Form:
    assert isinstance(usage.agreed, IntType)
    letter = _INTEGERS[usage.agreed.bits]
    return Form(letter if usage.agreed.signed else letter.upper())


def _float(usage: Usage) -> Form:
    assert isinstance(usage.agreed, FloatType)
    if usage.agreed.bits == 64:
        return Form("d")
    near = f"-{_SINGLE_LIMIT!r} < {{v}} < {_SINGLE_LIMIT!r}"
    return Form("f", f"{{v}} if {near} else single({{v}})", names={"single": round_to_float32})


def _time(_: Usage) -> Form:
    read = ("try: {v} = EPOCH + MICROSECOND * {v}", "except OverflowError: return {no}")
    return Form("q", "instant({v})", read, {"EPOCH": _EPOCH, "MICROSECOND": MICROSECOND, "instant": instant})


def _duration(_: Usage) -> Form:
    read = ("{v} = MICROSECOND * {v}",)
    return Form("q", "span({v})", read, {"MICROSECOND": MICROSECOND, "span": micros_of_duration})


def _choice(usage: Usage) -> Form:
    assert isinstance(usage.agreed, ChoiceType)
    if not isinstance(usage.own, ChoiceType):
        return Form()
    members: tuple[Any, ...] = tuple(usage.own.enum) if usage.own.enum is not None else usage.own.values
    places = [usage.agreed.values.index(value) for value in usage.own.values]
    place, member = f"place{usage.key}", f"member{usage.key}"
    names: dict[str, object] = {
        place: dict(zip(members, places, strict=True)),
        member: dict(zip(places, members, strict=True)),
    }
    read = (f"{{v}} = {member}.get({{v}})", "if {v} is None: return {no}")
    if len(usage.agreed.values) <= 255:  # then a 255 is no place in the list, and what follows need not be read
        return Form("B", f"{place}[{{v}}]", read, names)
    limit = len(usage.agreed.values) - 1
    return Form("", f"counted({place}[{{v}}])", read, {**names, "counted": counted}, limit=limit)


def _text(usage: Usage) -> Form:
    longest = _longest(usage.note)
    limit = None if longest is None else min(4 * longest, MOST_BYTES)
    write = f"sized({{v}}.encode(), {MOST_BYTES if limit is None else limit})"
    read = ("try: {v} = str({v}, 'utf-8')", "except UnicodeDecodeError: return {no}")
    return Form("", write, read, {"sized": sized}, contents=True, limit=limit)


def _bytes(usage: Usage) -> Form:
    limit = _longest(usage.note)
    write = f"sized({{v}}, {MOST_BYTES if limit is None else limit})"
    return Form("", write, (), {"sized": sized}, contents=True, limit=limit)


def _opaque(usage: Usage) -> Form:
    unpack = f"unpack{usage.key}"
    read = (f"try: {{v}} = {unpack}({{v}})", "except Exception: return {no}", "if {v} is None: return {no}")
    names = {"sized": sized, "packed": packed, unpack: msgspec.msgpack.Decoder(usage.note).decode}
    return Form("", f"sized(packed({{v}}), {MOST_BYTES})", read, names, contents=True)


_FORMS: dict[type, Callable[[Usage], Form]] = {
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


def _metas(note: object) -> Iterator[msgspec.Meta]:
    """The bounds an annotation states."""
    for part in typing.get_args(note):
        if isinstance(part, msgspec.Meta):
            yield part
        else:
            yield from _metas(part)


def _is_implied(meta: msgspec.Meta, type_: AttributeType) -> bool:
    """Whether whatever is read keeps a bound anyway: that of a width, or that a time has a zone."""
    if isinstance(type_, IntType):
        low, high = int_range(type_.bits, type_.signed)
        return meta == msgspec.Meta(ge=low, le=high)
    return isinstance(type_, TimeType) and meta == msgspec.Meta(tz=True)


def _longest(note: object) -> int | None:
    """The most characters or bytes an annotation allows, if it does not allow more than there is room for."""
    stated = min((meta.max_length for meta in _metas(note) if meta.max_length is not None), default=MOST_BYTES)
    return stated if stated < MOST_BYTES else None
