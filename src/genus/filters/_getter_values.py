"""What the parts of a property's function stand for: constants, or values of an event with a condition for None."""

from enum import Enum
from typing import Any, NamedTuple, TypeAlias

import genus.filters._expression as x
from genus.filters._covering import needed_attributes

Truth: TypeAlias = x.Predicate | bool
"""A condition, or one that is decided already."""


class Known(NamedTuple):
    """A constant, None, or a tuple of constants."""

    value: Any


class Computed(NamedTuple):
    """A value that depends on the event, which is unknown where Python has None, and the condition for None.

    A plain enum equals nothing but its own members in Python, so its class is kept.
    """

    node: x.Value | x.Predicate
    none: Truth = False
    enum: type[Enum] | None = None


Meaning: TypeAlias = Known | Computed


def negate(test: Truth) -> Truth:
    if isinstance(test, bool):
        return not test
    return test.operand if isinstance(test, x.Not) else ~test


def both(one: Truth, other: Truth) -> Truth:
    if isinstance(one, bool):
        return other if one else False
    if isinstance(other, bool):
        return one if other else False
    return one & other


def either(one: Truth, other: Truth) -> Truth:
    return negate(both(negate(one), negate(other))) if isinstance(one, bool) or isinstance(other, bool) else one | other


def choose_truth(test: Truth, then: Truth, otherwise: Truth) -> Truth:
    return either(both(test, then), both(negate(test), otherwise))


def as_meaning(test: Truth) -> Meaning:
    return Known(test) if isinstance(test, bool) else Computed(test)


def as_value(meaning: Meaning) -> x.Value:
    match meaning:
        case Known(value):
            return x.Literal(value)
        case Computed(x.Value() as value):
            return value
        case Computed(x.Predicate() as predicate):
            return x.Conditional(predicate, x.Literal(True), x.Literal(False))
    raise AssertionError(meaning)


def none_of(meaning: Meaning) -> Truth:
    return meaning.none if isinstance(meaning, Computed) else meaning.value is None


def plain_enum(meaning: Meaning) -> type[Enum] | None:
    """Return the enum of a member that equals no plain value."""
    enum = meaning.enum if isinstance(meaning, Computed) else type(meaning.value)
    is_plain = enum is not None and issubclass(enum, Enum) and not issubclass(enum, str | int)
    return enum if is_plain else None


def has_truth(enum: type[Enum]) -> bool:
    """Return whether members of an enum can be false; EnumMeta itself has these methods for the class."""
    return any(method in vars(cls) for cls in enum.__mro__ for method in ("__bool__", "__len__"))


def conditional(test: x.Predicate, then: Meaning, otherwise: Meaning) -> x.Value:
    """One of two values; unknown where the chosen one is None."""
    if otherwise == Known(None):
        return _where_known(test, as_value(then))
    if then == Known(None):
        other = negate(test)
        assert isinstance(other, x.Predicate)
        return _where_known(other, as_value(otherwise))
    return x.Conditional(test, as_value(then), as_value(otherwise))


def _where_known(test: x.Predicate, value: x.Value) -> x.Value:
    """A value where a condition holds; the value itself if the condition is the presence of an attribute it needs."""
    is_implied = isinstance(test, x.Present) and test.attribute.name in needed_attributes(value)
    return value if is_implied else x.Conditional(test, value)
