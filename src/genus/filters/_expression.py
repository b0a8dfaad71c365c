"""The expression tree: predicates are data, built by operators on `this` or by the text parser.

Values (`Attribute`, `Literal`, `Arithmetic`, `Negation`) and predicates (the rest) are frozen nodes that compare by
structure. `this.speed` gives a `Term`, a thin wrapper whose operators build nodes; predicates combine with `&`, `|`
and `~`. A tree is unbound until `bind` has checked it against a type: then every attribute and literal has a type,
and conversions stand in the tree as `ToFloat` and `Micros`, so that targets never decide them.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, NoReturn, TypeAlias

import msgspec

from genus.errors import SubscriptionError
from genus.model import AttributeType

Constant: TypeAlias = bool | int | float | str | bytes | datetime | timedelta | Enum


class Node(msgspec.Struct, frozen=True):
    """Any part of an expression tree."""

    def children(self) -> Iterator["Node"]:
        """The nodes directly below, left to right."""
        for value in msgspec.structs.astuple(self):
            yield from (child for child in (value if isinstance(value, tuple) else (value,)) if isinstance(child, Node))

    def walk(self) -> Iterator["Node"]:
        """This node and all below it."""
        yield self
        for child in self.children():
            yield from child.walk()


class Value(Node, frozen=True):
    """A node that stands for a number, a text, a time..."""


class Predicate(Node, frozen=True):
    """A node that is true, false or unknown of an event; combine with `&`, `|` and `~`."""

    def __and__(self, other: "Predicate | Term") -> "Predicate":
        return And((*_operands(And, self), *_operands(And, as_predicate(other))))

    def __or__(self, other: "Predicate | Term") -> "Predicate":
        return Or((*_operands(Or, self), *_operands(Or, as_predicate(other))))

    def __rand__(self, other: "Predicate | Term") -> "Predicate":
        return as_predicate(other) & self

    def __ror__(self, other: "Predicate | Term") -> "Predicate":
        return as_predicate(other) | self

    def __invert__(self) -> "Predicate":
        return Not(self)

    def __bool__(self) -> NoReturn:
        _refuse_truth()

    def __str__(self) -> str:
        from genus.filters._text import spell

        return spell(self)


def _refuse_truth() -> NoReturn:
    raise SubscriptionError(
        "a predicate has no truth of its own: combine with &, | and ~ instead of and, or and not, "
        "and write .between(low, high) instead of low <= x <= high"
    )


def _operands(kind: "type[And | Or]", predicate: Predicate) -> tuple[Predicate, ...]:
    return predicate.operands if isinstance(predicate, kind) else (predicate,)


class Attribute(Value, frozen=True):
    """The value of an attribute; absent if the event does not carry it."""

    name: str
    type: AttributeType | None = None


class Literal(Value, frozen=True, eq=False):
    """A constant."""

    value: Constant
    type: AttributeType | None = None

    def __eq__(self, other: object) -> bool:
        """By value and kind of value: 1, 1.0 and True are three literals, and 0.0 is not -0.0."""
        return isinstance(other, Literal) and self._key() == other._key()

    def __ne__(self, other: object) -> bool:
        return not self == other  # a struct has an inequality of its own

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[object, ...]:
        return type(self.value), repr(self.value) if isinstance(self.value, float) else self.value, self.type


class Arithmetic(Value, frozen=True):
    """`left op right` for op in + - * /; unknown where it has no result."""

    op: str
    left: Value
    right: Value
    type: AttributeType | None = None


class Negation(Value, frozen=True):
    """`-operand`."""

    operand: Value
    type: AttributeType | None = None


class ToFloat(Value, frozen=True):
    """An integer as the nearest 64-bit float; put in by `bind`, never written."""

    operand: Value


class Micros(Value, frozen=True):
    """A time or duration as an integer of microseconds; put in by `bind`, never written."""

    operand: Value


class Compare(Predicate, frozen=True):
    """`left op right` for op in == != < <= > >=; unknown if either side is absent or not a number."""

    op: str
    left: Value
    right: Value


class OneOf(Predicate, frozen=True):
    """Whether a value equals one of some constants."""

    item: Value
    options: tuple[Literal, ...]


class TextTest(Predicate, frozen=True):
    """Whether a text starts with, ends with or contains a constant; op is startswith, endswith or contains."""

    op: str
    item: Value
    part: Literal


class Present(Predicate, frozen=True):
    """Whether the event carries an attribute: true or false, never unknown."""

    attribute: Attribute


class And(Predicate, frozen=True):
    """True if all operands are, false if one is."""

    operands: tuple[Predicate, ...]


class Or(Predicate, frozen=True):
    """True if one operand is, false if all are."""

    operands: tuple[Predicate, ...]


class Not(Predicate, frozen=True):
    """True if the operand is false; unknown stays unknown."""

    operand: Predicate


NODES: tuple[type[Node], ...] = (
    Attribute, Literal, Arithmetic, Negation, ToFloat, Micros,
    Compare, OneOf, TextTest, Present, And, Or, Not,
)  # fmt: skip
"""Every node a target must handle or declare unsupported."""

ARITHMETIC = ("+", "-", "*", "/")
COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
TEXT_TESTS = ("startswith", "endswith", "contains")


class Term:
    """A value under construction: `this.speed * 3.6`. Comparing it gives a predicate."""

    __hash__ = None  # type: ignore[assignment]
    __slots__ = ("node",)

    def __init__(self, node: Value) -> None:
        self.node = node

    def __eq__(self, other: object) -> Predicate:  # type: ignore[override]
        return Compare("==", self.node, as_value(other))

    def __ne__(self, other: object) -> Predicate:  # type: ignore[override]
        return Compare("!=", self.node, as_value(other))

    def __lt__(self, other: "Term | Constant") -> Predicate:
        return Compare("<", self.node, as_value(other))

    def __le__(self, other: "Term | Constant") -> Predicate:
        return Compare("<=", self.node, as_value(other))

    def __gt__(self, other: "Term | Constant") -> Predicate:
        return Compare(">", self.node, as_value(other))

    def __ge__(self, other: "Term | Constant") -> Predicate:
        return Compare(">=", self.node, as_value(other))

    def __add__(self, other: "Term | Constant") -> "Term":
        return Term(Arithmetic("+", self.node, as_value(other)))

    def __radd__(self, other: Constant) -> "Term":
        return Term(Arithmetic("+", as_value(other), self.node))

    def __sub__(self, other: "Term | Constant") -> "Term":
        return Term(Arithmetic("-", self.node, as_value(other)))

    def __rsub__(self, other: Constant) -> "Term":
        return Term(Arithmetic("-", as_value(other), self.node))

    def __mul__(self, other: "Term | Constant") -> "Term":
        return Term(Arithmetic("*", self.node, as_value(other)))

    def __rmul__(self, other: Constant) -> "Term":
        return Term(Arithmetic("*", as_value(other), self.node))

    def __truediv__(self, other: "Term | Constant") -> "Term":
        return Term(Arithmetic("/", self.node, as_value(other)))

    def __rtruediv__(self, other: Constant) -> "Term":
        return Term(Arithmetic("/", as_value(other), self.node))

    def __neg__(self) -> "Term":
        return Term(Negation(self.node))

    def __and__(self, other: "Predicate | Term") -> Predicate:
        return as_predicate(self) & other

    def __or__(self, other: "Predicate | Term") -> Predicate:
        return as_predicate(self) | other

    def __invert__(self) -> Predicate:
        return ~as_predicate(self)

    def __bool__(self) -> NoReturn:
        _refuse_truth()

    def __repr__(self) -> str:
        from genus.filters._text import spell

        return f"<term {spell(self.node)}>"

    def __str__(self) -> str:
        raise SubscriptionError(f"{self!r} has no text of its own; a predicate cannot convert values to text")

    def isin(self, options: Iterable[Constant]) -> Predicate:
        """Whether the value is one of some constants."""
        return OneOf(self.node, tuple(_literal(option) for option in options))

    def between(self, low: "Term | Constant", high: "Term | Constant") -> Predicate:
        """Whether the value lies between two others, both included."""
        return (self >= low) & (self <= high)

    def startswith(self, part: str) -> Predicate:
        """Whether the text begins with a part."""
        return TextTest("startswith", self.node, _literal(part))

    def endswith(self, part: str) -> Predicate:
        """Whether the text ends with a part."""
        return TextTest("endswith", self.node, _literal(part))

    def contains(self, part: str) -> Predicate:
        """Whether the text contains a part."""
        return TextTest("contains", self.node, _literal(part))

    def is_present(self) -> Predicate:
        """Whether the event carries this attribute."""
        if not isinstance(self.node, Attribute):
            raise SubscriptionError("only an attribute can be present or absent, not an expression")
        return Present(self.node)

    def is_absent(self) -> Predicate:
        """Whether the event does not carry this attribute."""
        return ~self.is_present()


class This:
    """Stands for the event in a predicate: `this.speed > 30` is a tree, evaluated wherever the event is.

    >>> (this.speed * 3.6 > 30) & this.category.isin(["truck", "car"])  # doctest: +ELLIPSIS
    And(operands=(Compare(op='>', ...
    """

    def __getattr__(self, name: str) -> Term:
        if name.startswith("_"):
            raise AttributeError(name)
        return Term(Attribute(name))

    def __getitem__(self, name: str) -> Term:
        """The same for a name that is computed: `this["speed"]`."""
        return Term(Attribute(name))


this = This()


def as_value(thing: object) -> Value:
    """The value node of a term or constant."""
    return thing.node if isinstance(thing, Term) else _literal(thing)


def as_predicate(thing: object) -> Predicate:
    """The predicate of a predicate or of a bool attribute: `this.moving` is `this.moving == True`."""
    if isinstance(thing, Predicate):
        return thing
    if isinstance(thing, Term):
        return Compare("==", thing.node, Literal(True))
    raise SubscriptionError(f"{thing!r} is not a predicate; write one with `this`, such as this.speed > 30")


def _literal(value: Any) -> Literal:
    if value is None:
        raise SubscriptionError("nothing equals an absent value: use .is_absent() or .is_present(), not None")
    if not isinstance(value, Constant):
        raise SubscriptionError(f"{value!r} is a {type(value).__name__}, which no attribute can be compared with")
    return Literal(value)
