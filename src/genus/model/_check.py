"""`check`: test whether the values of an event have their declared types.

They are not checked when an event is created in Python, and msgspec checks them when one is decoded. `check` is for
events created from unchecked input, and for error messages.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from genus.errors import EventError
from genus.model._event import Event
from genus.model._signature import attributes, name_of
from genus.model._types import (
    INT64_MAX,
    INT64_MIN,
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
    int_range,
    is_encodable,
    micros_of_duration,
)
from genus.model._vector import Attribute


def check(event: Event) -> None:
    """Check that the values of an event have their declared types.

    Raises EventError that names the first attribute whose value does not, its value and what it must be.

    >>> from genus import Event
    >>> class Lamp(Event):
    ...     watts: float
    >>> check(Lamp(watts="sixty"))
    Traceback (most recent call last):
    genus.errors.EventError: Lamp.watts is 'sixty', but must be float64
    """
    for attribute in attributes(type(event)):
        value = getattr(event, attribute.name)
        if value is None and attribute.optional:
            continue
        if not _FITS[type(attribute.type)](value, attribute.type):
            raise EventError(
                f"{name_of(type(event))}.{attribute.name} is {value!r}, but must be {_describe_expected(attribute)}"
            )


def _describe_expected(attribute: Attribute) -> str:
    match attribute.type:
        case TimeType():
            return "a datetime with a time zone, in years 1 to 9999 of UTC"
        case DurationType():
            return "a timedelta of 64 bits of microseconds"
        case ChoiceType(values, enum):
            members = enum if enum is not None else map(repr, values)
            return f"one of {', '.join(map(str, members))}"
        case OpaqueType(text):
            return text
    return str(attribute.type.describe())


def _is_int(value: Any, type_: AttributeType) -> bool:
    assert isinstance(type_, IntType)
    low, high = int_range(type_.bits, type_.signed)
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _is_text(value: Any, _: AttributeType) -> bool:
    return isinstance(value, str) and is_encodable(value)


def _is_time(value: Any, _: AttributeType) -> bool:
    if not isinstance(value, datetime) or value.tzinfo is None:
        return False
    try:
        value.astimezone(UTC)
    except OverflowError:
        return False
    return True


def _is_duration(value: Any, _: AttributeType) -> bool:
    return isinstance(value, timedelta) and INT64_MIN <= micros_of_duration(value) <= INT64_MAX


def _is_choice(value: Any, type_: AttributeType) -> bool:
    assert isinstance(type_, ChoiceType)
    return isinstance(value, type_.enum) if type_.enum is not None else value in type_.values


_FITS: dict[type, Callable[[Any, AttributeType], bool]] = {
    BoolType: lambda value, _: isinstance(value, bool),
    IntType: _is_int,
    FloatType: lambda value, _: isinstance(value, float) or (isinstance(value, int) and not isinstance(value, bool)),
    TextType: _is_text,
    BytesType: lambda value, _: isinstance(value, bytes),
    TimeType: _is_time,
    DurationType: _is_duration,
    ChoiceType: _is_choice,
    OpaqueType: lambda value, _: value is not None,
}
