"""Which values an attribute may have: the code that tests them, and the words that describe them.

A value of the usual built-in class is tested in place. All others (members of an IntEnum, opaque values, and values
with bounds of the user's own) are encoded and decoded, and must be the same afterwards.

Unread values are those of an event that this process cannot read, kept with it so that they can be recorded and
forwarded: a value of an enumeration that the class here does not have, a number that is too wide for its attribute, an
attribute that the class does not have: the event arrives without the value (docs/semantics.md, "Values that cannot be
read"), and encoders write it back as it came, so that a newer reader gets the event whole.

The values are msgpack under the names of attributes, in a slot of the event that is no field of the struct: it costs 8
bytes, and equality, hashing and `repr` do not see it. (A dictionary or weak references would need events that the
garbage collector tracks, which makes decoding of many slower.) Reading an empty slot raises, which is slow, so
`unread_types` says which classes ever had one.
"""

from collections.abc import Mapping
from datetime import MAXYEAR, MINYEAR, UTC, datetime, timedelta
from functools import lru_cache
from types import CodeType
from typing import Any, NamedTuple

import msgspec

from genus.model._plain import ReadBack, explain_unplain, plain_value
from genus.model._types import (
    INT64_MAX,
    INT64_MIN,
    BoolType,
    BytesType,
    ChoiceType,
    DurationType,
    FloatType,
    IntType,
    OpaqueType,
    TextType,
    TimeType,
    int_range,
    is_encodable,
    metas,
    type_text,
)
from genus.model._vector import Attribute

NOTHING_UNREAD: Mapping[str, msgspec.Raw] = {}

unread_types: set[type] = set()
"""Classes with events whose values could not be read; while it is empty, an encoder need not ask further."""


class UnreadSlot:
    """The place of values that could not be read; a base of `Event`."""

    __slots__ = ("_unread",)


_set = UnreadSlot._unread.__set__  # type: ignore[attr-defined]


def keep_unread(event: UnreadSlot, values: Mapping[str, msgspec.Raw]) -> None:
    """Keep values in msgpack with an event; its attributes of these names are None."""
    _set(event, {name: value.copy() for name, value in values.items()})  # the packet need not be kept for them
    unread_types.add(type(event))


def unread_values(event: UnreadSlot) -> Mapping[str, msgspec.Raw]:
    """Return the values of an event that could not be read, in msgpack, by the names of their attributes.

    >>> from genus import Event
    >>> unread_values(Event(place="A8"))
    {}
    """
    if type(event) not in unread_types:
        return NOTHING_UNREAD
    found: Mapping[str, msgspec.Raw] = getattr(event, "_unread", NOTHING_UNREAD)
    return found


def with_unread(event: UnreadSlot) -> Any:
    """Return what an encoder of msgpack writes for an event: the event itself, or a map with the values not read."""
    unread = unread_values(event)
    if not unread:
        return event
    fields = type(event).__struct_fields__  # type: ignore[attr-defined]
    present = {name: value for name in fields if (value := getattr(event, name)) is not None}
    return present | dict(unread)


SHORTEST, MAX_LENGTH = (timedelta(microseconds=micros) for micros in (INT64_MIN, INT64_MAX))
_SHOWN = 200
"""The most characters of a value in a message."""


class ValueTest(NamedTuple):
    """The code that tests a value `v`, the names in it, and the code for a value of the class `base`, if there is one.

    Values of other classes are made plain before they are tested; the code for `base` may be empty.
    """

    code: str
    names: dict[str, object]
    usual: str | None = None


class InvalidValue(NamedTuple):
    """A value that its attribute may not have: what is required, and the message for this value."""

    reason: str
    message: str


def describe_value(owner: str, attribute: Attribute, annotation: object, value: object) -> InvalidValue:
    """Describe a value that an attribute of a class may not have."""
    where, expected = f"{owner}.{attribute.name}", _describe_expected(annotation, attribute)
    shown = repr(value)
    shown = shown if len(shown) <= _SHOWN else f"{shown[: _SHOWN - 3]}..."
    advice = explain_unplain(value)
    return InvalidValue(f"{where} must be {expected}", f"{where} is {shown}, but must be {expected}{advice}")


def _describe_expected(annotation: object, attribute: Attribute) -> str:
    bounds = [str(meta).removeprefix("msgspec.") for meta in own_bounds(annotation, attribute)]
    return ", ".join([_describe_type(attribute), *bounds])


def _describe_type(attribute: Attribute) -> str:
    match attribute.type:
        case TimeType():
            return "a datetime with a time zone, in years 1 to 9999 of UTC"
        case DurationType():
            return "a timedelta of 64 bits of microseconds"
        case ChoiceType(values, enum):
            return f"one of {', '.join(map(str, enum or values))}"
        case OpaqueType(text):
            return f"{text} that can be encoded and decoded"
    return type_text(attribute.type)


def is_valid(attribute: Attribute, annotation: object, value: object) -> bool:
    """Return whether an attribute may have a value; the annotation is that of the class, as msgspec decodes by it."""
    test = value_test(attribute, annotation)
    names = {**NAMES, **{f"{name}0": one for name, one in test.names.items()}, "v": plain_value(value)}
    return bool(eval(_compile(test.code.format(n=0)), names))


@lru_cache
def _compile(code: str) -> CodeType:
    return compile(code, "<genus check>", "eval")


def value_test(attribute: Attribute, annotation: object) -> ValueTest:
    """Return the test of all values of an attribute."""
    reads = ReadBack(annotation)
    match attribute.type:
        case OpaqueType():
            return ValueTest("reads{n}(v)", {"reads": reads})
        case ChoiceType(enum=enum):
            return ValueTest("v.__class__ is enum{n}", {"enum": enum})
    base = _BASES[type(attribute.type)]
    bounds = " and reads{n}(v)" if own_bounds(annotation, attribute) else ""
    is_base = "v.__class__ is base{n}" + (f" or {_IS_INTEGER}" if base is float else "")
    names = {"base": base, "reads": reads, "is_member": _IsMember(base, reads)}
    usual = usual_test(attribute) + bounds
    return ValueTest(f"({is_base} or is_member{{n}}(v)){usual}", names, usual.removeprefix(" and "))


def usual_test(attribute: Attribute) -> str:
    """Return the test of a value that has the class of its attribute type, to follow that of its class."""
    match attribute.type:
        case IntType(bits, signed):
            low, high = int_range(bits, signed)
            return f" and {low} <= v <= {high}"
        case TextType():
            return " and (v.isascii() or is_encodable(v))"
        case TimeType():
            return " and (v.tzinfo is UTC or is_time(v))"
        case DurationType():
            return " and SHORTEST <= v <= MAX_LENGTH"
    return ""


class _IsMember(NamedTuple):
    """Tests whether a value is a member of an IntEnum or StrEnum, say, and reads back."""

    base: type
    reads_back: ReadBack

    def __call__(self, value: object) -> bool:
        return isinstance(value, self.base) and not isinstance(value, bool) and self.reads_back(value)


def own_bounds(annotation: object, attribute: Attribute) -> list[msgspec.Meta]:
    """Return the bounds that an annotation has besides those of its attribute type."""
    implied = [msgspec.Meta(tz=True)]
    if isinstance(attribute.type, IntType):
        low, high = int_range(attribute.type.bits, attribute.type.signed)
        implied = [msgspec.Meta(ge=low, le=high)]
    return [meta for meta in metas(annotation) if meta not in implied]


def _is_time(value: datetime) -> bool:
    """Return whether a datetime is an instant in the years 1 to 9999 of UTC."""
    try:
        if value.utcoffset() is None:
            return False
        return MINYEAR < value.year < MAXYEAR or value.astimezone(UTC) is not None
    except Exception:  # OverflowError, and whatever a tzinfo of the user's own raises
        return False


_IS_INTEGER = f"v.__class__ is int and {INT64_MIN} <= v <= {INT64_MAX}"
"""The test of an integer in a float attribute."""

_BASES: dict[type, type] = {
    BoolType: bool,
    IntType: int,
    FloatType: float,
    TextType: str,
    BytesType: bytes,
    TimeType: datetime,
    DurationType: timedelta,
}
"""The class that values of an attribute type have."""

NAMES: dict[str, object] = {
    "UTC": UTC,
    "SHORTEST": SHORTEST,
    "MAX_LENGTH": MAX_LENGTH,
    "is_encodable": is_encodable,
    "is_time": _is_time,
    "plain": plain_value,
}
"""Names in the code of the tests."""
