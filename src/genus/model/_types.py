"""Attribute types: what a value may be, the same on every target.

A Python annotation becomes one of the frozen types below, once, when the class is created. Targets read these and
never the annotation. `describe()` gives the form stored in a catalog; two attributes have the same type exactly when
their descriptions are equal.
"""

import enum
import types
import typing
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, TypeAlias

import msgspec

from genus.errors import DeclarationError

Description: TypeAlias = "str | dict[str, Any]"


class Width(msgspec.Struct, frozen=True):
    """Marks an annotated int or float as narrower than 64 bits."""

    bits: int
    signed: bool = True


class Unit(msgspec.Struct, frozen=True):
    """Names the unit of an attribute: `speed: Annotated[float, Unit("km/h")]`."""

    symbol: str


class Opaque(msgspec.Struct, frozen=True):
    """Marks Any as an opaque attribute whose class is not at hand: `Annotated[Any, Opaque("Position")]`."""

    text: str


def _sized(bits: int, signed: bool) -> Any:
    low, high = int_range(bits, signed)
    # msgspec cannot state a bound outside 64 signed bits, and needs none at 64.
    return Annotated[int, Width(bits, signed), msgspec.Meta(ge=low, le=high)]


def int_range(bits: int, signed: bool) -> tuple[int, int]:
    """The smallest and largest integer of a width.

    >>> int_range(8, True)
    (-128, 127)
    """
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)


if typing.TYPE_CHECKING:
    Int8: TypeAlias = int
    Int16: TypeAlias = int
    Int32: TypeAlias = int
    Int64: TypeAlias = int
    UInt8: TypeAlias = int
    UInt16: TypeAlias = int
    UInt32: TypeAlias = int
    Float32: TypeAlias = float
else:
    Int8, Int16, Int32, Int64 = (_sized(bits, True) for bits in (8, 16, 32, 64))
    UInt8, UInt16, UInt32 = (_sized(bits, False) for bits in (8, 16, 32))
    Float32 = Annotated[float, Width(32)]


class BoolType(msgspec.Struct, frozen=True):
    """True or false; has no order."""

    def describe(self) -> Description:
        """The catalog form."""
        return "bool"


class IntType(msgspec.Struct, frozen=True):
    """An integer of a width; a plain `int` has 64 signed bits."""

    bits: int = 64
    signed: bool = True

    def describe(self) -> Description:
        """The catalog form."""
        return f"{'int' if self.signed else 'uint'}{self.bits}"


class FloatType(msgspec.Struct, frozen=True):
    """An IEEE 754 number of 64 or 32 bits."""

    bits: int = 64

    def describe(self) -> Description:
        """The catalog form."""
        return f"float{self.bits}"


class TextType(msgspec.Struct, frozen=True):
    """Unicode text, ordered by code point."""

    def describe(self) -> Description:
        """The catalog form."""
        return "str"


class BytesType(msgspec.Struct, frozen=True):
    """Octets, ordered as unsigned numbers."""

    def describe(self) -> Description:
        """The catalog form."""
        return "bytes"


class TimeType(msgspec.Struct, frozen=True):
    """An instant: an aware datetime, in microseconds of UTC."""

    def describe(self) -> Description:
        """The catalog form."""
        return "time"


class DurationType(msgspec.Struct, frozen=True):
    """A signed span of time in microseconds: a timedelta."""

    def describe(self) -> Description:
        """The catalog form."""
        return "duration"


class ChoiceType(msgspec.Struct, frozen=True, eq=False):
    """One of an enumeration's values, all text or all integers; has equality but no order."""

    values: tuple[str, ...] | tuple[int, ...]
    enum: "type[enum.Enum] | None" = None

    def __eq__(self, other: object) -> bool:
        """By the values alone: a catalog knows no Python class."""
        return isinstance(other, ChoiceType) and self.values == other.values

    def __ne__(self, other: object) -> bool:
        return not self == other  # a struct has an inequality of its own

    def __hash__(self) -> int:
        return hash(self.values)

    def describe(self) -> Description:
        """The catalog form."""
        return {"enum": list(self.values)}


class OpaqueType(msgspec.Struct, frozen=True):
    """A nested struct or a list: it can be carried and tested for presence, not looked into."""

    text: str

    def describe(self) -> Description:
        """The catalog form."""
        return {"opaque": self.text}


AttributeType: TypeAlias = (
    BoolType | IntType | FloatType | TextType | BytesType | TimeType | DurationType | ChoiceType | OpaqueType
)

INT64_MIN, INT64_MAX = int_range(64, True)
MICROSECOND = timedelta(microseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def micros_of_time(moment: datetime) -> int:
    """Microseconds since 1970 began, UTC: the form of a time in predicates, columns and on wires."""
    return (moment - _EPOCH) // MICROSECOND


def micros_of_duration(span: timedelta) -> int:
    """Microseconds in a span: the form of a duration in predicates, columns and on wires."""
    return span // MICROSECOND


def is_encodable(text: str) -> bool:
    """Whether a text is one: half a character (a lone surrogate) has no UTF-8 form."""
    return text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text)


_PLAIN: dict[Any, AttributeType] = {
    bool: BoolType(),
    int: IntType(),
    float: FloatType(),
    str: TextType(),
    bytes: BytesType(),
    datetime: TimeType(),
    timedelta: DurationType(),
}

_WIDTHS: Mapping[str, AttributeType] = {
    str(type.describe()): type
    for type in (
        *_PLAIN.values(),
        *(IntType(bits, signed) for bits in (8, 16, 32, 64) for signed in (True, False) if signed or bits < 64),
        FloatType(32),
    )
}


def parse_type(description: object) -> AttributeType:
    """The type a catalog description stands for; ValueError says what is wrong with it.

    >>> parse_type("uint8")
    IntType(bits=8, signed=False)
    """
    match description:
        case str() if description in _WIDTHS:
            return _WIDTHS[description]
        case {"enum": [*values]} if _are_choices(values):
            return ChoiceType(tuple(values))
        case {"opaque": str(text)}:
            return OpaqueType(text)
    raise ValueError(f"no attribute type is written {description!r}; known: {', '.join(_WIDTHS)}, enum, opaque")


def _are_choices(values: list[Any]) -> bool:
    return {type(value) for value in values} in ({str}, {int}) and len(set(values)) == len(values)


def read_annotation(annotation: object) -> tuple[AttributeType, bool, str | None]:
    """What an annotation declares: its type, whether it may be absent, and its unit.

    >>> read_annotation(int | None)
    (IntType(bits=64, signed=True), True, None)
    """
    required, optional, notes = _unwrap(annotation)
    unit = next((note.symbol for note in notes if isinstance(note, Unit)), None)
    width = next((note for note in notes if isinstance(note, Width)), None)
    opaque = next((OpaqueType(note.text) for note in notes if isinstance(note, Opaque)), None)
    return opaque or _plain_type(required, width), optional, unit


def is_bounded(annotation: object) -> bool:
    """Whether an annotation states bounds of its own, for decoders to keep."""
    return any(isinstance(note, msgspec.Meta) for note in _unwrap(annotation)[2])


def _unwrap(annotation: object) -> tuple[object, bool, tuple[object, ...]]:
    origin = typing.get_origin(annotation)
    if origin is Annotated:
        inner, *notes = typing.get_args(annotation)
        plain, optional, more = _unwrap(inner)
        return plain, optional, (*notes, *more)
    if origin in (typing.Union, types.UnionType):
        members = [member for member in typing.get_args(annotation) if member is not type(None)]
        if len(members) != 1:
            raise DeclarationError("is a union of several types; choose one, or Maybe[one] if it may be absent")
        if len(members) == len(typing.get_args(annotation)):
            return _unwrap(members[0])
        plain, _, notes_of_member = _unwrap(members[0])
        return plain, True, notes_of_member
    return annotation, False, ()


def _plain_type(annotation: Any, width: Width | None) -> AttributeType:
    if width is not None:
        return FloatType(width.bits) if annotation is float else IntType(width.bits, width.signed)
    if annotation in _PLAIN if isinstance(annotation, type) else False:
        return _PLAIN[annotation]
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return _choice_type(annotation)
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return OpaqueType(annotation.__name__)
    if typing.get_origin(annotation) in (list, tuple, dict, set, frozenset) or annotation in (list, tuple, dict, set):
        return OpaqueType(str(annotation).replace("typing.", ""))
    raise DeclarationError(
        f"has type {annotation!r}, which is not an attribute type; use bool, int or a sized int, float or Float32, "
        "str, bytes, datetime, timedelta, an Enum, or (for presence only) a msgspec Struct or a list"
    )


def _choice_type(members: type[enum.Enum]) -> ChoiceType:
    if issubclass(members, enum.Flag):
        raise DeclarationError(f"is the Flag {members.__name__}; use an Enum, or an int for a set of bits")
    values = tuple(member.value for member in members)
    kinds = {type(value) for value in values}
    if kinds not in ({str}, {int}):
        raise DeclarationError(f"is the Enum {members.__name__}; its values must be all str or all int")
    return ChoiceType(values, members)
