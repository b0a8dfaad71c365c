"""Binding: check an expression tree against a type and make every conversion explicit.

After binding, the operands of each comparison and operation have one type, properties are replaced by their
expressions, and literals have the type of what they are compared with. Targets translate bound trees only.
"""

import math
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any

from msgspec.structs import replace

import genus.filters._expression as x
from genus.errors import SubscriptionError, did_you_mean
from genus.filters._expression import MAX_DEPTH
from genus.filters._term import Term, as_value
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
    Vector,
    name_of,
    vector,
)
from genus.model._types import INT64_MAX, INT64_MIN, is_encodable, micros_of_duration

BOOL, INT, FLOAT, TEXT, BYTES = BoolType(), IntType(), FloatType(), TextType(), BytesType()
TIME, DURATION = TimeType(), DurationType()

_RESULT_OF_TIMES: dict[tuple[str, type, type], AttributeType] = {
    ("-", TimeType, TimeType): DURATION,
    ("-", TimeType, DurationType): TIME,
    ("+", TimeType, DurationType): TIME,
    ("+", DurationType, TimeType): TIME,
    ("+", DurationType, DurationType): DURATION,
    ("-", DurationType, DurationType): DURATION,
    ("*", DurationType, IntType): DURATION,
    ("*", IntType, DurationType): DURATION,
}


def bind(predicate: x.Predicate, cls: type) -> x.Predicate:
    """The predicate with a type for every value, checked against an event type; SubscriptionError if it is wrong."""
    return Binder(cls).predicate(predicate)


class Binder:
    """State: binds the predicates of one event type, by its vector and its properties."""

    def __init__(self, cls: type) -> None:
        self.type = cls
        self.vector: Vector = vector(cls)
        self.types = {attribute.name: attribute.type for attribute in self.vector}
        self._tracing: list[str] = []
        self._depth = 0

    def predicate(self, node: x.Predicate) -> x.Predicate:
        """A bound predicate."""
        self._descend()
        bound = self._predicate(node)
        self._depth -= 1
        return bound

    def value(self, node: x.Value) -> x.Value:
        """A bound value."""
        self._descend()
        bound = self._value(node)
        self._depth -= 1
        return bound

    def _descend(self) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise SubscriptionError(f"the predicate is nested more than {MAX_DEPTH} levels deep; simplify it")

    def _predicate(self, node: x.Predicate) -> x.Predicate:
        match node:
            case x.And(operands) | x.Or(operands):
                return self._combine(type(node), operands)
            case x.Not(operand):
                return x.Not(self.predicate(operand))
            case x.Present(attribute):
                return x.Present(replace(attribute, type=self._find(attribute.name)))
            case x.Compare(op, left, right):
                return self._compare(op, left, right)
            case x.OneOf(item, options):
                return self._one_of(item, options)
            case x.TextTest(op, item, part):
                return x.TextTest(op, self._text(item, op), replace(part, type=TEXT))
        raise SubscriptionError(f"{node!r} is not a predicate")

    def _combine(self, kind: type[x.And | x.Or], operands: tuple[x.Predicate, ...]) -> x.Predicate:
        """One flat node without repetitions: (a and b) and a is a and b."""
        bound = [self.predicate(operand) for operand in operands]
        flat = dict.fromkeys(part for one in bound for part in (one.operands if isinstance(one, kind) else (one,)))
        return kind(tuple(flat)) if len(flat) > 1 else next(iter(flat))

    def _compare(self, op: str, left: x.Value, right: x.Value) -> x.Predicate:
        if isinstance(bare := self._property_predicate(left), x.Predicate) and op == "==" and right == x.Literal(True):
            return bare
        first, second = self._unify(left, right)
        type_ = type_of(first)
        if op not in ("==", "!=") and isinstance(type_, BoolType | ChoiceType):
            raise SubscriptionError(f"{describe(first)} has no order; compare it with == or != or .isin")
        if _is_computed(first, second) and isinstance(type_, TimeType | DurationType):
            first, second = _micros(first), _micros(second)
        return x.Compare(op, first, second)

    def _property_predicate(self, node: x.Value) -> object:
        """The predicate that a property returns: `this.speeding` where it returns `self.v > 30`; else None."""
        if isinstance(node, x.AttributeRef) and node.name not in self.types and self._property(node.name):
            return self._trace(node.name)
        return None

    def _one_of(self, item: x.Value, options: tuple[x.Literal, ...]) -> x.Predicate:
        if not options:
            raise SubscriptionError("isin needs at least one value")
        bound = self.value(item)
        if isinstance(type_of(bound), IntType) and any(isinstance(option.value, float) for option in options):
            bound = _to_float(bound)
        fitted = tuple(_convert(option, bound) for option in options)
        for option in fitted:
            if type(type_of(option)) is not type(type_of(bound)):
                raise _incomparable(bound, option)
        if _is_computed(bound) and isinstance(type_of(bound), TimeType | DurationType):
            raise SubscriptionError("isin takes a time attribute, not a computed time; use == or between")
        return x.OneOf(bound, tuple(dict.fromkeys(fitted)))

    def _text(self, item: x.Value, op: str) -> x.Value:
        bound = self.value(item)
        if not isinstance(type_of(bound), TextType):
            raise SubscriptionError(f"{op} needs text, but {describe(bound)}")
        return bound

    def _unify(self, left: x.Value, right: x.Value) -> tuple[x.Value, x.Value]:
        """Both sides with one type: a literal takes that of the other side, an integer and a float become floats."""
        if isinstance(left, x.Literal) and not isinstance(right, x.Literal):
            second, first = self._unify(right, left)
            return first, second
        first = self.value(left)
        second = _convert(right, first) if isinstance(right, x.Literal) else self.value(right)
        kinds = {type(type_of(first)), type(type_of(second))}
        if kinds == {IntType, FloatType}:
            first, second = _to_float(first), _to_float(second)
        elif len(kinds) > 1 or (ChoiceType in kinds and type_of(first) != type_of(second)):
            raise _incomparable(first, second)
        return first, second

    def _value(self, node: x.Value) -> x.Value:
        match node:
            case x.AttributeRef(name):
                return self._attribute(name)
            case x.Literal():
                return _convert(node, None)
            case x.Arithmetic(op, left, right):
                return self._arithmetic(op, self.value(left), self.value(right))
            case x.Negation(operand):
                return self._negation(self.value(operand))
            case x.ToFloat(operand) | x.Micros(operand):
                return self.value(operand)
        raise SubscriptionError(f"{node!r} is not a value")

    def _attribute(self, name: str) -> x.Value:
        if name not in self.types and self._property(name):
            traced = self._trace(name)
            if isinstance(traced, x.Predicate):
                raise SubscriptionError(f"property {name} of {name_of(self.type)} is a predicate, not a value")
            return self.value(as_value(traced))
        type_ = self._find(name)
        if isinstance(type_, OpaqueType):
            raise SubscriptionError(f"{name!r} is {type_.text}, which can only be tested for presence")
        return x.AttributeRef(name, type_)

    def _find(self, name: str) -> AttributeType:
        return self.types.get(name) or self.vector.find(name, name_of(self.type)).type

    def _property(self, name: str) -> Callable[[Any], Any] | None:
        found = getattr(self.type, name, None)
        return found.fget if isinstance(found, property) else None

    def _trace(self, name: str) -> object:
        """Call a property with an event whose attributes are terms, to get the expression that it returns."""
        getter = self._property(name)
        assert getter is not None
        if name in self._tracing:
            raise SubscriptionError(f"property {name} of {name_of(self.type)} refers to itself")
        self._tracing.append(name)
        try:
            result = getter(_TracedEvent(self))
            return self.predicate(result) if isinstance(result, x.Predicate) else result
        except SubscriptionError:
            raise
        except Exception as problem:
            raise SubscriptionError(
                f"property {name} of {name_of(self.type)} cannot be used in a predicate: it must be an expression of "
                f"attributes ({type(problem).__name__}: {problem})"
            ) from None
        finally:
            self._tracing.pop()

    def _arithmetic(self, op: str, left: x.Value, right: x.Value) -> x.Value:
        kinds = type(type_of(left)), type(type_of(right))
        if all(kind in (IntType, FloatType) for kind in kinds):
            if op == "/" or FloatType in kinds:
                return x.Arithmetic(op, _to_float(left), _to_float(right), FLOAT)
            return x.Arithmetic(op, left, right, INT)
        result = _RESULT_OF_TIMES.get((op, *kinds))
        if result is None:
            raise SubscriptionError(f"cannot apply {op}: {describe(left)}, and {describe(right)}")
        return x.Arithmetic(op, _micros(left), _micros(right), result)

    def _negation(self, operand: x.Value) -> x.Value:
        type_ = type_of(operand)
        if isinstance(operand, x.Literal) and isinstance(type_, IntType | FloatType | DurationType):
            return _convert(x.Literal(-operand.value), None)  # type: ignore[operator]
        if isinstance(type_, IntType | FloatType):
            return x.Negation(operand, INT if isinstance(type_, IntType) else FLOAT)
        if isinstance(type_, DurationType):
            return x.Negation(_micros(operand), DURATION)
        raise SubscriptionError(f"cannot negate: {describe(operand)}")


class _TracedEvent:
    """The event that a property is called with to be traced: attributes and properties are terms."""

    def __init__(self, binder: Binder) -> None:
        self._binder = binder

    def __getattr__(self, name: str) -> object:
        if name not in self._binder.types and self._binder._property(name):
            return self._binder._trace(name)
        self._binder._find(name)
        return Term(x.AttributeRef(name))


def type_of(node: x.Value) -> AttributeType:
    """The type of a bound value; a computed time is a time, though it is held in microseconds."""
    if isinstance(node, x.ToFloat):
        return FLOAT
    if isinstance(node, x.Micros):
        return type_of(node.operand)
    assert isinstance(node, x.AttributeRef | x.Literal | x.Arithmetic | x.Negation)
    assert node.type is not None, "the tree must be bound first"
    return node.type


def describe(node: x.Value) -> str:
    """A value and its type, for messages."""
    kind = type_of(node).describe()
    return f"{x.format_expression(node)} is {kind if isinstance(kind, str) else 'one of ' + repr(kind.get('enum'))}"


def _incomparable(first: x.Value, second: x.Value) -> SubscriptionError:
    """The error for two values of different types, with the right form of a time or duration."""
    kinds = {type(type_of(first)), type(type_of(second))}
    other = first if isinstance(type_of(second), TimeType | DurationType) else second
    hint = ""
    if TimeType in kinds:
        hint = f"; write a time as {_describe_time(_bare_date(other))}"
    elif DurationType in kinds:
        hint = "; write a duration as 5s, in Python as timedelta(seconds=5)"
    return SubscriptionError(f"cannot compare: {describe(first)}, but {describe(second)}{hint}")


def _bare_date(value: x.Value) -> object:
    """A literal's value; the text of a date such as 2026-05-01, which without quotes is a subtraction."""
    if isinstance(value, x.Literal):
        return value.value
    found = re.fullmatch(r"(\d{4}) - (\d{1,2}) - (\d{1,2})", x.format_expression(value))
    return None if found is None else f"{found[1]}-{int(found[2]):02}-{int(found[3]):02}"


def _describe_time(value: object) -> str:
    """The text and the Python form of the time that a text means; of an example if it means none."""
    try:
        moment = datetime.fromisoformat(value if isinstance(value, str) else "")
    except ValueError:
        moment = datetime(2026, 5, 1)
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    return f"{x.format_literal(moment)}, in Python as {x.python_time(moment)}"


def _is_computed(*values: x.Value) -> bool:
    return any(isinstance(value, x.Arithmetic | x.Negation) for value in values)


def _to_float(node: x.Value) -> x.Value:
    if isinstance(type_of(node), FloatType):
        return node
    return x.Literal(float(node.value), FLOAT) if isinstance(node, x.Literal) else x.ToFloat(node)  # type: ignore[arg-type]


def _micros(node: x.Value) -> x.Value:
    is_plain_time = isinstance(type_of(node), TimeType | DurationType) and not _is_computed(node)
    return x.Micros(node) if is_plain_time and not isinstance(node, x.Micros) else node


def _convert(literal: x.Literal, other: x.Value | None) -> x.Literal:
    """A literal with the type of the value it is compared with; without one, with the type of its own value."""
    wanted = type_of(other) if other is not None else None
    if other is not None and isinstance(wanted, ChoiceType):
        return _convert_choice(literal, other, wanted)
    value = literal.value.value if isinstance(literal.value, Enum) else literal.value
    match value, wanted:
        case bool(), _:
            return x.Literal(value, BOOL)
        case int(), FloatType():
            return x.Literal(float(_in_range(value)), FLOAT)
        case int(), _:
            return x.Literal(_in_range(value), INT)
        case float(), _:
            if math.isnan(value):
                raise SubscriptionError("a comparison with NaN is never true; test for presence instead")
            return x.Literal(value, FLOAT)
        case str(), _:
            return x.Literal(_encodable(value), TEXT)
        case bytes(), _:
            return x.Literal(value, BYTES)
        case datetime(), _:
            if value.tzinfo is None:
                raise SubscriptionError(
                    f"{value!r} has no time zone; write {x.python_time(value)} for UTC (from datetime import UTC)"
                )
            return x.Literal(_in_utc(value), TIME)
        case timedelta(), _:
            _in_range(micros_of_duration(value))
            return x.Literal(value, DURATION)
    raise SubscriptionError(f"{value!r} is a {type(value).__name__}, which no attribute can be compared with")


def _convert_choice(literal: x.Literal, other: x.Value, wanted: ChoiceType) -> x.Literal:
    value: Any = literal.value.value if isinstance(literal.value, Enum) else literal.value
    if isinstance(value, bool) or value not in wanted.values:
        hint = did_you_mean(str(value), map(str, wanted.values))
        values = ", ".join(map(repr, wanted.values))
        raise SubscriptionError(f"{x.format_expression(other)} cannot be {value!r}; {hint}it is one of {values}")
    return x.Literal(value, wanted)


def _in_utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise SubscriptionError(f"{moment!r} is outside the years 1 to 9999 in UTC") from None


def _in_range(value: int) -> int:
    if INT64_MIN <= value <= INT64_MAX:
        return value
    raise SubscriptionError(f"{value} does not fit in 64 bits")


def _encodable(value: str) -> str:
    if is_encodable(value):
        return value
    raise SubscriptionError(f"{value!r} holds half a character (a lone surrogate), which no event can carry")
