"""Attribute types: which values an attribute may have, the same on every target.

A Python annotation becomes one of the frozen types below when the class is created. Targets read these types and never
the annotation. `describe()` gives the form stored in a catalog; two attributes have the same type if and only if their
descriptions are equal.
"""

import enum
import math
import types
import typing
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import Annotated, Any, TypeAlias

import msgspec

from genus.errors import DeclarationError, some_names

Description: TypeAlias = "str | dict[str, Any]"


class Width(msgspec.Struct, frozen=True):
    """Annotation of an int or float that has another width than 64 bits."""

    bits: int
    signed: bool = True


class Unit(msgspec.Struct, frozen=True):
    """The unit of an attribute: `speed: Annotated[float, Unit("km/h")]`.

    The symbol is kept in catalogs and stated in recordings. Values of a recording that states another unit are
    converted when they are read; docs/semantics.md has the units and the arithmetic.
    """

    symbol: str


class Renamed:
    """Annotation of an attribute that had other names before: `velocity: Annotated[float, Renamed("speed")]`.

    The attribute keeps its presence bit, and what was written under a former name is read into it: recordings, packets,
    frames and tables. Name all former names, in any order: `Renamed("speed", "v")`. Type and unit stay as they were.

    Raises DeclarationError if there is no name, or one is no text.
    """

    __slots__ = ("names",)

    def __init__(self, *names: str) -> None:
        if not names or not all(isinstance(name, str) for name in names):
            raise DeclarationError(
                f'Renamed takes former names of an attribute, such as Renamed("speed"), not {names!r}'
            )
        self.names = tuple(dict.fromkeys(names))

    def __repr__(self) -> str:
        return f"Renamed({', '.join(map(repr, self.names))})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Renamed) and self.names == other.names

    def __hash__(self) -> int:
        return hash(self.names)


class Opaque(msgspec.Struct, frozen=True):
    """Annotation of an opaque attribute whose class is not available: `Annotated[Any, Opaque("Position")]`.

    `text` is the name of the class or the annotation, as a catalog stores it.
    """

    text: str


def _int_annotation(bits: int, signed: bool) -> Any:
    low, high = int_range(bits, signed)
    return Annotated[int, Width(bits, signed), msgspec.Meta(ge=low, le=high)]


def int_range(bits: int, signed: bool) -> tuple[int, int]:
    """Return the smallest and largest integer of a width.

    >>> int_range(8, True)
    (-128, 127)
    """
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)


if typing.TYPE_CHECKING:
    Int8: TypeAlias = int
    """The annotation of an integer of 8 signed bits."""
    Int16: TypeAlias = int
    """The annotation of an integer of 16 signed bits."""
    Int32: TypeAlias = int
    """The annotation of an integer of 32 signed bits."""
    Int64: TypeAlias = int
    """The annotation of an integer of 64 signed bits."""
    UInt8: TypeAlias = int
    """The annotation of an integer of 8 unsigned bits."""
    UInt16: TypeAlias = int
    """The annotation of an integer of 16 unsigned bits."""
    UInt32: TypeAlias = int
    """The annotation of an integer of 32 unsigned bits."""
    Float32: TypeAlias = float
    """The annotation of an IEEE 754 number of 32 bits."""
else:
    Int8, Int16, Int32, Int64 = (_int_annotation(bits, True) for bits in (8, 16, 32, 64))
    UInt8, UInt16, UInt32 = (_int_annotation(bits, False) for bits in (8, 16, 32))
    Float32 = Annotated[float, Width(32)]


class BoolType(msgspec.Struct, frozen=True):
    """The type of `bool`: true or false, without order."""

    def describe(self) -> Description:
        """Return the form stored in a catalog."""
        return "bool"


class IntType(msgspec.Struct, frozen=True):
    """The type of integers of a width; a plain `int` has 64 signed bits."""

    bits: int = 64
    signed: bool = True

    def describe(self) -> Description:
        """Return the form stored in a catalog."""
        return f"{'int' if self.signed else 'uint'}{self.bits}"


class FloatType(msgspec.Struct, frozen=True):
    """The type of IEEE 754 numbers of 64 or 32 bits."""

    bits: int = 64

    def describe(self) -> Description:
        """Return the form stored in a catalog."""
        return f"float{self.bits}"


class TextType(msgspec.Struct, frozen=True):
    """The type of `str`: Unicode text, ordered by code point."""

    def describe(self) -> Description:
        """Return the form stored in a catalog."""
        return "str"


class BytesType(msgspec.Struct, frozen=True):
    """The type of `bytes`, ordered as unsigned numbers."""

    def describe(self) -> Description:
        """Return the form stored in a catalog."""
        return "bytes"


class TimeType(msgspec.Struct, frozen=True):
    """The type of `datetime`: an instant with a time zone, in microseconds of UTC."""

    def describe(self) -> Description:
        """Return the form stored in a catalog."""
        return "time"


class DurationType(msgspec.Struct, frozen=True):
    """The type of `timedelta`: a signed duration in microseconds."""

    def describe(self) -> Description:
        """Return the form stored in a catalog."""
        return "duration"


class ChoiceType(msgspec.Struct, frozen=True, eq=False):
    """The type of an enumeration: its values, all text or all integers, with equality but no order.

    `enum` is the Python class, or None where only a catalog is known.
    """

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
        """Return the form stored in a catalog."""
        return {"enum": list(self.values)}


class OpaqueType(msgspec.Struct, frozen=True):
    """The type of a nested struct or a list: predicates can test its presence, not its contents."""

    text: str

    def describe(self) -> Description:
        """Return the form stored in a catalog."""
        return {"opaque": self.text}


AttributeType: TypeAlias = (
    BoolType | IntType | FloatType | TextType | BytesType | TimeType | DurationType | ChoiceType | OpaqueType
)
"""Any attribute type."""


def type_text(type_: AttributeType) -> str:
    """Return an attribute type in words, for messages.

    >>> type_text(IntType()), type_text(ChoiceType(("car", "truck"))), type_text(OpaqueType("list[int]"))
    ('int64', "one of 'car', 'truck'", 'list[int]')
    """
    match type_:
        case ChoiceType(values):
            return f"one of {some_names(map(repr, values))}"
        case OpaqueType(text):
            return text
    return str(type_.describe())


INT64_MIN, INT64_MAX = int_range(64, True)
MICROSECOND = timedelta(microseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def micros_of_time(moment: datetime) -> int:
    """Return a time as microseconds since 1970-01-01 UTC: its form in predicates, in columns and on the wire.

    `moment` must have a time zone; TypeError if it has none.
    """
    return (moment - _EPOCH) // MICROSECOND


def time_of_micros(micros: int) -> datetime:
    """Return the time, in UTC, that is so many microseconds after 1970-01-01 UTC."""
    return _EPOCH + timedelta(microseconds=micros)


def micros_of_duration(span: timedelta) -> int:
    """Return a duration in microseconds: its form in predicates, in columns and on the wire."""
    return span // MICROSECOND


def is_encodable(text: str) -> bool:
    """Return whether a text can be encoded in UTF-8; one with a lone surrogate (half a character) cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


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
    """Return the attribute type of a description, the opposite of `describe()`; ValueError if there is none.

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
    """Return what an annotation declares: its type, whether it may be absent, and its unit.

    DeclarationError if it declares no attribute type; its message begins with a verb, to follow the attribute's name.

    >>> read_annotation(int | None)
    (IntType(bits=64, signed=True), True, None)
    """
    required, optional, notes = _unwrap(annotation)
    unit = next((note.symbol for note in notes if isinstance(note, Unit)), None)
    width = next((note for note in notes if isinstance(note, Width)), None)
    opaque = next((OpaqueType(note.text) for note in notes if isinstance(note, Opaque)), None)
    return opaque or _plain_type(required, width), optional, unit


def former_names(annotation: object) -> tuple[str, ...]:
    """Return the names in the `Renamed` of an annotation.

    >>> former_names(Annotated[float, Unit("m/s"), Renamed("speed", "v")] | None)
    ('speed', 'v')
    """
    notes = _unwrap(annotation)[2]
    return tuple(dict.fromkeys(name for note in notes if isinstance(note, Renamed) for name in note.names))


def is_bounded(annotation: object) -> bool:
    """Return whether an annotation has constraints of its own (msgspec.Meta), which decoding must check."""
    return any(isinstance(note, msgspec.Meta) for note in _unwrap(annotation)[2])


def with_one_bound(annotation: object) -> object:
    """Return the annotation of an integer with all its bounds in one `msgspec.Meta`, as msgspec refuses several.

    A sized integer has the bounds of its width, and may be given narrower ones.

    >>> with_one_bound(Annotated[UInt8, msgspec.Meta(lt=100)] | None)
    typing.Optional[typing.Annotated[int, Width(bits=8, signed=False), msgspec.Meta(ge=0, le=99)]]
    """
    plain, optional, notes = _unwrap(annotation)
    bounds = [note for note in notes if isinstance(note, msgspec.Meta)]
    if plain is not int or len(bounds) < 2:
        return annotation
    lows = [each for each in (_low(meta) for meta in bounds) if each is not None]
    highs = [each for each in (_high(meta) for meta in bounds) if each is not None]
    multiples: list[Any] = [meta.multiple_of for meta in bounds if meta.multiple_of is not None]
    multiple = reduce(math.lcm, multiples) if multiples else None
    merged = msgspec.Meta(ge=max(lows, default=None), le=min(highs, default=None), multiple_of=multiple)
    others = tuple(note for note in notes if not isinstance(note, msgspec.Meta))
    found: Any = Annotated[(int, *others, merged)]
    return typing.Optional[found] if optional else found  # noqa: UP045


def _low(meta: msgspec.Meta) -> int | None:
    """Return the smallest integer that a bound allows."""
    if meta.gt is not None:
        return math.floor(meta.gt) + 1
    return None if meta.ge is None else math.ceil(meta.ge)


def _high(meta: msgspec.Meta) -> int | None:
    """Return the largest integer that a bound allows."""
    if meta.lt is not None:
        return math.ceil(meta.lt) - 1
    return None if meta.le is None else math.floor(meta.le)


def metas(annotation: object) -> Iterator[msgspec.Meta]:
    """Yield the bounds in an annotation, those of the members of a list or the like included."""
    for part in typing.get_args(annotation):
        if isinstance(part, msgspec.Meta):
            yield part
        else:
            yield from metas(part)


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
    if wrong := [value for value in values if not _can_be_written(value)]:
        raise DeclarationError(
            f"is the Enum {members.__name__} with the value {wrong[0]!r}; use integers of 64 bits, or text without "
            "lone surrogates"
        )
    return ChoiceType(values, members)


def _can_be_written(value: str | int) -> bool:
    return is_encodable(value) if isinstance(value, str) else INT64_MIN <= value <= INT64_MAX
