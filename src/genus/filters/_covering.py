"""Covering, whether one subscription accepts everything another does; and which parts an event does not meet.

The test of covering is sound, not complete: True is always right, False may mean that it could not be decided.
Predicates are compared by conjuncts, each conjunct as a set of values of one expression if it is a range, an equality
or a list of constants.
"""

from builtins import type as class_
from collections.abc import Callable, Iterator
from datetime import datetime
from enum import Enum
from typing import Any, Literal, Protocol

import msgspec

import genus.filters._expression as x
from genus.filters._evaluate import (
    COMPARE,
    TEXT,
    WRONG_VALUE,
    Pattern,
    evaluate,
    normalize,
    raise_event_error,
    read_attribute,
    read_pattern,
)
from genus.model import Event, conforms, is_type, name_of, pure_kind, vector
from genus.model.internal import hidden_attributes
from genus.model.types import AttributeType, FloatType

_NO_LETTER = "\ud800"
"""Stands for any one character of a pattern; no constant holds it."""
_MIRRORED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
OPPOSITE = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
"""The comparison that is true where another is false, both sides being known."""


class Selection(Protocol):
    """The parts of a subscription that covering compares."""

    @property
    def type(self) -> class_:
        """The first type."""

    @property
    def types(self) -> tuple[class_, ...]:
        """The types that a class must conform to."""

    @property
    def exact(self) -> bool:
        """Whether subtypes are left out."""

    @property
    def has(self) -> tuple[str, ...]:
        """The attributes that must be present."""

    @property
    def lacks(self) -> tuple[str, ...]:
        """The attributes that must be absent."""

    @property
    def where(self) -> x.Predicate | None:
        """The bound predicate."""


def covers(wide: Selection, narrow: Selection) -> bool:
    """Return whether every event that matches `narrow` also matches `wide`.

    >>> from genus import Event, Subscription, this
    >>> class Loop(Event):
    ...     speed: float
    >>> fast, faster = (Subscription(Loop, where=this.speed > limit) for limit in (30, 50))
    >>> covers(fast, faster), covers(faster, fast)
    (True, False)
    """
    return (
        _types_cover(wide, narrow)
        and not _means_others(wide, narrow)
        and set(wide.has) <= set(required_attributes(narrow))
        and set(wide.lacks) <= set(narrow.lacks)
        and all(_is_implied(part, narrow) for part in conjuncts(wide.where))
    )


def _means_others(wide: Selection, narrow: Selection) -> bool:
    """Return whether one names an attribute that the other has with another type, and so takes for absent."""
    hidden = hidden_attributes(narrow.type, wide.type)
    if not hidden:
        return False
    nodes = wide.where.walk() if wide.where is not None else ()
    named = {*wide.has, *wide.lacks, *(node.name for node in nodes if isinstance(node, x.AttributeRef))}
    return not named.isdisjoint(hidden)


def _types_cover(wide: Selection, narrow: Selection) -> bool:
    if wide.exact:
        return narrow.exact and _exact_type(wide.type) is _exact_type(narrow.type)
    asked = (_exact_type(narrow.type),) if narrow.exact else narrow.types
    return all(any(issubclass(cls, wanted) for cls in asked) for wanted in wide.types)


def _exact_type(cls: type) -> type:
    """Return the type that an exact subscription to a class selects: the kind of a pure class, else the class."""
    return pure_kind(cls) or cls


def conjuncts(predicate: x.Predicate | None) -> tuple[x.Predicate, ...]:
    """Return the operands of a conjunction, which must all be true; a single predicate is its own, None has none."""
    if predicate is None:
        return ()
    return predicate.operands if isinstance(predicate, x.And) else (predicate,)


def required_attributes(subscription: Selection) -> Iterator[str]:
    """Yield the attributes that every matching event carries: by `has`, or because the predicate needs them.

    One that the type requires may be absent, as a process may be unable to read it.
    """
    yield from subscription.has
    for part in conjuncts(subscription.where):
        yield from _attributes_needed(part)


def _attributes_needed(part: x.Predicate) -> Iterator[str]:
    """Yield the attributes that must be present for a conjunct to be true."""
    if isinstance(part, x.Present):
        yield part.attribute.name
    else:
        yield from needed_attributes(part)


def needed_attributes(node: x.Expression) -> frozenset[str]:
    """Attributes without which a value is unknown, or a test is neither true nor false; there may be more.

    >>> needed_attributes(x.Coalesce((x.AttributeRef("speed"), x.AttributeRef("lane"))))
    frozenset()
    """
    match node:
        case x.AttributeRef(name):
            return frozenset({name})
        case x.Conditional(condition, then, otherwise):
            chosen = needed_attributes(then)
            chosen = chosen if otherwise is None else chosen & needed_attributes(otherwise)
            return needed_attributes(condition) | chosen
        case x.Coalesce(operands) | x.And(operands) | x.Or(operands):
            first, *others = map(needed_attributes, operands)
            return first.intersection(*others)
        case x.Present():
            return frozenset()
    return frozenset().union(*map(needed_attributes, node.children()))


def _is_implied(part: x.Predicate, narrow: Selection) -> bool:
    if isinstance(part, x.Present):
        return part.attribute.name in set(required_attributes(narrow))
    if isinstance(part, x.Not) and isinstance(part.operand, x.Present) and part.operand.attribute.name in narrow.lacks:
        return True
    return any(implies(known, part) for known in conjuncts(narrow.where))


def implies(strong: x.Predicate, weak: x.Predicate) -> bool:
    """Return whether `weak` is true wherever `strong` is; False may mean that it could not be decided."""
    if strong == weak:
        return True
    if isinstance(strong, x.Or):
        return all(implies(option, weak) for option in strong.operands)
    if isinstance(weak, x.And):
        return all(implies(strong, part) for part in weak.operands)
    if isinstance(weak, x.Or) and any(implies(strong, option) for option in weak.operands):
        return True
    if isinstance(strong, x.And):
        return any(implies(part, weak) for part in strong.operands)
    return _value_implies(as_test(strong), as_test(weak))


def as_test(node: x.Predicate) -> tuple[x.Value, str, Any] | None:
    """Return a predicate as (expression, operator, constant) if it has that form, else None; negation is resolved.

    The operator is a comparison, a text test or "in", whose constant is a tuple.
    """
    match node:
        case x.Compare(op, left, x.Literal(value)) if not isinstance(left, x.Literal):
            return left, op, value
        case x.Compare(op, x.Literal(value), right):
            return right, _MIRRORED[op], value
        case x.OneOf(item, options):
            return item, "in", tuple(option.value for option in options)
        case x.TextTest(op, item, part):
            return item, op, part.value
        case x.Not(operand) if (inner := as_test(operand)) and inner[1] in OPPOSITE:
            return inner[0], OPPOSITE[inner[1]], inner[2]
    return None


def _value_implies(strong: tuple[x.Value, str, Any] | None, weak: tuple[x.Value, str, Any] | None) -> bool:
    if strong is None or weak is None or strong[0] != weak[0]:
        return False
    if strong[1] in ("==", "in"):
        points = (strong[2],) if strong[1] == "==" else strong[2]
        return all(_holds(point, weak[1], weak[2]) for point in points)
    return _open_set_implies(strong[1], strong[2], weak[1], weak[2])


def _holds(point: Any, op: str, constant: Any) -> bool:
    if op == "in":
        return point in constant
    return TEXT[op](point, constant) if op in TEXT else COMPARE[op](point, constant)


def _open_set_implies(op: str, bound: Any, weak_op: str, weak_bound: Any) -> bool:
    """Return the same for tests without a list of values: ranges, inequality, parts of text."""
    if op in TEXT:
        return _text_implies(op, bound, weak_op, weak_bound)
    if op in (">", ">="):
        if weak_op in (">", ">="):
            return bool(bound > weak_bound or (bound == weak_bound and (op == ">" or weak_op == ">=")))
        return weak_op == "!=" and bool(weak_bound < bound or (weak_bound == bound and op == ">"))
    if op in ("<", "<="):
        if weak_op in ("<", "<="):
            return bool(bound < weak_bound or (bound == weak_bound and (op == "<" or weak_op == "<=")))
        return weak_op == "!=" and bool(weak_bound > bound or (weak_bound == bound and op == "<"))
    return False


def _text_implies(op: str, part: str, weak_op: str, weak_part: Any) -> bool:
    if op == "like":
        return _pattern_implies(read_pattern(part), weak_op, weak_part)
    if weak_op == "contains":
        return weak_part in part
    return op == weak_op and TEXT[op](part, weak_part)


def _pattern_implies(pattern: Pattern, weak_op: str, weak_part: Any) -> bool:
    """Return whether all texts like a pattern pass a test, by the letters at its start and end, or within a segment."""
    pieces = ["".join(_NO_LETTER if one is None else one for one in segment) for segment in pattern.segments]
    match weak_op:
        case "startswith":
            return pieces[0].startswith(weak_part)
        case "endswith":
            return pieces[-1].endswith(weak_part)
        case "contains":
            return any(weak_part in piece for piece in pieces)
    return False


MAX_VALUE = 200
"""The most characters that are shown of one value."""


class Mismatch(msgspec.Struct, frozen=True):
    """A part of a subscription that an event does not meet; found by `Subscription.why_not`.

    `part` is its text: the name of a type, after `exact` if only that is asked for, the name of an attribute, or a
    predicate. `truth` is `unknown` where a predicate is neither true nor false, as a value is absent, not a number or
    has no result. `values` are those of the attributes that the part names, as predicates see them
    (`speed = 12.5, lane is absent`); for a type, the class of the event. `str()` gives all of it as one line.
    """

    stage: Literal["type", "has", "lacks", "where"]
    part: str
    truth: Literal["false", "unknown"]
    values: str

    def __str__(self) -> str:
        return ", ".join(filter(None, (f"{self.stage} {self.part}: {self.truth}", self.values)))


def find_mismatches(subscription: Selection, event: Event) -> tuple[Mismatch, ...]:
    """The parts of a subscription that an event does not meet, in the order of its text; EventError as of `matches`."""
    found: list[Mismatch] = []
    stages: tuple[Callable[[Selection, Event], Iterator[Mismatch]], ...] = (_types, _has, _lacks, _where)
    try:
        for stage in stages:
            found += stage(subscription, event)
            if stage is _types and found:
                break
    except WRONG_VALUE as problem:
        if not found:  # else `matches` is false before it comes to what fails
            raise_event_error(event, problem)
    return tuple(found)


def _types(subscription: Selection, event: Event) -> Iterator[Mismatch]:
    cls, word = type(event), "exact " if subscription.exact else ""
    for wanted in subscription.types:
        if not conforms(cls, wanted, exact=subscription.exact):
            yield Mismatch("type", word + name_of(wanted), "false", name_of(cls) if is_type(cls) else cls.__name__)


def _has(subscription: Selection, event: Event) -> Iterator[Mismatch]:
    for name in subscription.has:
        if (value := _Named(subscription, event, name)).is_absent:
            yield Mismatch("has", name, "false", str(value))


def _lacks(subscription: Selection, event: Event) -> Iterator[Mismatch]:
    for name in subscription.lacks:
        if not (value := _Named(subscription, event, name)).is_absent:
            yield Mismatch("lacks", name, "false", str(value))


def _where(subscription: Selection, event: Event) -> Iterator[Mismatch]:
    """All parts are tested before one is told, as a predicate that fails in one part fails as a whole."""
    truths = [(part, evaluate(part, event)) for part in conjuncts(subscription.where)]
    for part, truth in truths:
        if truth is not True:
            names = dict.fromkeys(node.name for node in part.walk() if isinstance(node, x.AttributeRef))
            values = ", ".join(str(_Named(subscription, event, name)) for name in names)
            yield Mismatch("where", x.format_expression(part), "unknown" if truth is None else "false", values)


class _Named:
    """The value that an attribute of an event has for a subscription; `str()` gives it with its name."""

    def __init__(self, subscription: Selection, event: Event, name: str) -> None:
        self.name = name
        self.type = vector(subscription.type).find(name).type
        self.value = read_attribute(event, name, self.type)

    @property
    def is_absent(self) -> bool:
        return self.value is None

    def __str__(self) -> str:
        return f"{self.name} is absent" if self.is_absent else f"{self.name} = {_format(self.value, self.type)}"


def _format(value: Any, type_: AttributeType) -> str:
    """A value as a constant of the text form; as Python writes it if it is none, such as a list or a wrong value."""
    plain = value.value if isinstance(value, Enum) else value
    try:
        has_zone = not isinstance(plain, datetime) or plain.utcoffset() is not None
        seen = normalize(plain, type_) if isinstance(type_, FloatType) else plain
        text = x.format_literal(seen) if has_zone else repr(plain)
    except (TypeError, ValueError, OverflowError):
        text = repr(plain)
    return text if len(text) <= MAX_VALUE else f"{text[: MAX_VALUE - 3]}..."
