"""The constants of predicates: what they may be, and the form in which every target gets them.

A constant is checked when a predicate or, at the latest, a subscription is made. After that it is a plain value of
Python (no subclass of `str` or `float`) that fits the type of what it is compared with.
"""

import math
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any

import genus.filters._expression as x
from genus.errors import SubscriptionError, did_you_mean
from genus.model import micros_of_duration
from genus.model.internal import (
    INT64_MAX,
    INT64_MIN,
    MICROSECOND,
    PLAIN_CLASSES,
    explain_unplain,
    is_encodable,
    plain_value,
    type_text,
)
from genus.model.types import (
    AttributeType,
    BoolType,
    BytesType,
    ChoiceType,
    DurationType,
    FloatType,
    IntType,
    TextType,
    TimeType,
)

BOOL, INT, FLOAT, TEXT, BYTES = BoolType(), IntType(), FloatType(), TextType(), BytesType()
TIME, DURATION = TimeType(), DurationType()

EXACT_FLOATS = 2**53
"""Below this, a float that is an integer is equal to one integer only."""


def type_of(node: x.Value) -> AttributeType:
    """Return the type of a bound value; a computed time is a time, though it is held in microseconds."""
    if isinstance(node, x.ToFloat):
        return FLOAT
    while isinstance(node, x.Micros):
        node = node.operand
    type_: AttributeType | None = node.type  # type: ignore[attr-defined]
    assert type_ is not None, "the tree must be bound first"
    return type_


def check_text(op: str, part: object) -> str:
    """Return the constant of a text test; SubscriptionError if it is no text, or not one that events can carry.

    An enum is refused even if its values are texts: it is a value to compare with, not a part of one.
    """
    if not isinstance(part, str) or isinstance(part, Enum):
        hint = f"; write {part.value!r}" if isinstance(part, Enum) and isinstance(part.value, str) else ""
        raise SubscriptionError(f"{op} takes a text, not {part!r}, which is a {type(part).__name__}{hint}")
    return check_encodable(part)


def check_encodable(text: str) -> str:
    """Return a text as a plain `str`; SubscriptionError if it holds a lone surrogate."""
    if is_encodable(text):
        return str.__str__(text)
    raise SubscriptionError(f"{text!r} holds half a character (a lone surrogate), which no event can carry")


def split_options(options: tuple[x.Literal, ...]) -> list[tuple[x.Literal, ...]]:
    """Return the options of an integer: those that are compared exactly, and those that are compared as floats, if any.

    A float below 2**53 that is an integer equals that integer and no other, so it is among the first.

    >>> [[option.value for option in group] for group in split_options(tuple(map(x.Literal, (1, 2.0, 3.5))))]
    [[1, 2], [3.5]]
    """
    if all(isinstance(option.value, float) for option in options):
        return [options]
    exact, floats = [], []
    for option in options:
        value = option.value
        if not isinstance(value, float):
            exact.append(option)
        elif value.is_integer() and abs(value) < EXACT_FLOATS:
            exact.append(x.Literal(int(value)))
        else:
            floats.append(option)
    return [tuple(exact), tuple(floats)] if floats else [tuple(exact)]


def check_literal(literal: object) -> x.Literal:
    """A literal; SubscriptionError if a tree that was not made by `this` or from text has something else there."""
    if not isinstance(literal, x.Literal):
        raise SubscriptionError(f"{literal!r} is not a constant; write it as Literal(...)")
    return literal


def convert(literal: object, other: x.Value | None = None, wanted: AttributeType | None = None) -> x.Literal:
    """A literal with the type of the value it is compared with; without one, with the type of its own value.

    Raises SubscriptionError if it does not fit.
    """
    constant = check_literal(literal).value
    value: Any = plain_value(constant.value if isinstance(constant, Enum) else constant)
    if other is not None and isinstance(wanted, ChoiceType):
        return _convert_choice(value, other, wanted)
    match value:
        case _ if type(value) not in PLAIN_CLASSES:
            raise SubscriptionError(describe_unplain(value))
        case bool():
            return x.Literal(value, BOOL)
        case int() if isinstance(wanted, FloatType):
            return x.Literal(float(_in_range(value)), FLOAT)
        case int():
            return x.Literal(_in_range(value), INT)
        case float():
            if math.isnan(value):
                raise SubscriptionError("a comparison with NaN is never true; test for presence instead")
            return x.Literal(value, FLOAT)
        case str():
            return x.Literal(check_encodable(value), TEXT)
        case bytes():
            return x.Literal(value, BYTES)
        case datetime():
            return x.Literal(_in_utc(value), TIME)
        case timedelta():
            return x.Literal(_in_range(micros_of_duration(value)) * MICROSECOND, DURATION)
    raise SubscriptionError(describe_unplain(value))


def describe_unplain(value: object) -> str:
    """A message that a constant has no class that attributes have."""
    advice = explain_unplain(value)
    return f"{value!r} is a {type(value).__name__}, which no attribute can be compared with{advice}"


def describe_no_bool(value: x.Value, type_: AttributeType) -> str:
    """Why a value cannot stand where a predicate must be, which is read as `value == true`."""
    said = f"{x.format_expression(value)} is {type_text(type_)}, not true or false: compare it with a value"
    if isinstance(value, x.AttributeRef):
        said += f", or write {value.name} is present (in Python .is_present())"
    return said


def _convert_choice(value: Any, other: x.Value, wanted: ChoiceType) -> x.Literal:
    if isinstance(value, str | int) and not isinstance(value, bool) and value in wanted.values:
        return x.Literal(next(known for known in wanted.values if known == value), wanted)
    if value is True:
        raise SubscriptionError(describe_no_bool(other, wanted))
    hint = did_you_mean(str(value), map(str, wanted.values))
    values = ", ".join(map(repr, wanted.values))
    raise SubscriptionError(f"{x.format_expression(other)} cannot be {value!r}; {hint}it is one of {values}")


def _in_utc(moment: datetime) -> datetime:
    if moment.utcoffset() is None:
        raise SubscriptionError(
            f"{moment!r} has no time zone; write {x.python_time(moment)} for UTC (from datetime import UTC)"
        )
    try:
        found = moment.astimezone(UTC)
    except OverflowError:
        raise SubscriptionError(f"{moment!r} is outside the years 1 to 9999 in UTC") from None
    return datetime(*found.timetuple()[:6], found.microsecond, UTC)


def _in_range(value: int) -> int:
    if INT64_MIN <= value <= INT64_MAX:
        return int.__int__(value)
    raise SubscriptionError(f"{value} does not fit in 64 bits")
