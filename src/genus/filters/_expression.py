"""The expression tree of predicates, and its text form.

Values (`AttributeRef`, `Literal`, `Arithmetic`, `Negation`, `Function`, `Conditional`, `Coalesce`) and predicates (the
rest) are frozen nodes that compare by structure; predicates combine with `&`, `|` and `~`. A tree is built by operators
on `this` or by the text parser. It is unbound until `bind` has checked it against a type: then every attribute and
literal has a type, and conversions are explicit as `ToFloat` and `Micros`, so that targets never decide them.

Chains are flat: `a and b and c` is one `And`, and `a + b - c` one `Arithmetic` with two steps. So a long sum is not a
deep tree, and no target meets the recursion limit of its language in it.
"""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from enum import Enum
from types import MethodType
from typing import NoReturn, Protocol, TypeAlias, runtime_checkable

import msgspec

from genus.errors import SubscriptionError
from genus.model import micros_of_duration
from genus.model.types import AttributeType

Constant: TypeAlias = bool | int | float | str | bytes | datetime | timedelta | Enum
"""A Python value that an attribute can be compared with."""

DURATION_UNITS = {"d": 86_400_000_000, "h": 3_600_000_000, "min": 60_000_000, "s": 1_000_000, "ms": 1_000, "us": 1}
"""The units a duration may be written in, each with its microseconds."""

MAX_DEPTH = 64
"""The deepest nesting of a predicate; a chain of `and`, of `+` or of `*` is one level, however long."""
MAX_VALUE_DEPTH = 24
"""The deepest nesting of a value: of arithmetic, functions and conditionals within each other."""
MAX_CONDITION_DEPTH = 6
"""The deepest nesting of conditionals in the conditions of others: targets test both results of each condition."""
DEEP_PREDICATE = f"the predicate is nested more than {MAX_DEPTH} levels deep; simplify it"
DEEP_VALUE = f"a value is nested more than {MAX_VALUE_DEPTH} levels deep; simplify it"
DEEP_CONDITION = f"conditions of conditionals are nested more than {MAX_CONDITION_DEPTH} levels deep; simplify it"
MAX_STEPS = 4096
"""The most operators in one chain of arithmetic."""

_ESCAPES = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
UNESCAPES = {escaped[1]: letter for letter, escaped in _ESCAPES.items()}
"""The character for each letter after a backslash in a text literal."""


class Expression(msgspec.Struct, frozen=True, gc=False):
    """A node of an expression tree: a value or a predicate. Trees have no cycles, so they need no garbage collector."""

    def children(self) -> Iterator["Expression"]:
        """Yield the nodes directly below, left to right."""
        for value in msgspec.structs.astuple(self):
            values = value if isinstance(value, tuple) else (value,)
            yield from (child for child in values if isinstance(child, Expression))

    def walk(self) -> Iterator["Expression"]:
        """Yield this node and all below it."""
        waiting: list[Expression] = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting.extend(reversed(list(node.children())))


class Value(Expression, frozen=True):
    """An expression that has a number, text, time or other value."""


@runtime_checkable
class HasNode(Protocol):
    """A wrapper of a value that can be used in its place: a `Term`."""

    node: Value


class Predicate(Expression, frozen=True):
    """An expression that is true, false or unknown for an event; combine with `&`, `|` and `~`.

    `str()` gives its text form. It has no truth value in Python: `and`, `or`, `not`, `if` and `in` raise
    SubscriptionError.
    """

    def __and__(self, other: "Predicate | HasNode") -> "Predicate":
        return And((*_operands(And, self), *_operands(And, as_predicate(other))))

    def __or__(self, other: "Predicate | HasNode") -> "Predicate":
        return Or((*_operands(Or, self), *_operands(Or, as_predicate(other))))

    def __rand__(self, other: "Predicate | HasNode") -> "Predicate":
        return as_predicate(other) & self

    def __ror__(self, other: "Predicate | HasNode") -> "Predicate":
        return as_predicate(other) | self

    def __invert__(self) -> "Predicate":
        return Not(self)

    def __bool__(self) -> NoReturn:
        refuse_truth()

    def __str__(self) -> str:
        return format_expression(self)


def refuse_truth() -> NoReturn:
    """Raise SubscriptionError: a predicate or term has no truth value in Python."""
    raise SubscriptionError(
        "a predicate is true or false of an event, not in Python: write & | ~ instead of and, or, not; "
        ".isin([1, 2]) instead of in [1, 2]; .between(low, high) instead of low <= x <= high; "
        "when(condition, x, y) instead of x if condition else y"
    )


def _operands(kind: "type[And | Or]", predicate: Predicate) -> tuple[Predicate, ...]:
    return predicate.operands if isinstance(predicate, kind) else (predicate,)


class AttributeRef(Value, frozen=True):
    """The value of an attribute, by its name; unknown if the event does not carry it."""

    name: str
    type: AttributeType | None = None


class Literal(Value, frozen=True, eq=False):
    """A constant value; a bound one has the type of what it is compared with."""

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


class Step(Expression, frozen=True):
    """A step of `Arithmetic`: an operator, its right operand, and the type of the result so far."""

    op: str
    operand: Value
    type: AttributeType | None = None


class Arithmetic(Value, frozen=True):
    """A chain of operators of one precedence, from left to right: + and -, or *, /, // and %.

    `a + b - c` has the first value `a` and the steps `+ b` and `- c`. It is unknown where a step has no result, as for
    a division by zero. `arithmetic` makes one.
    """

    first: Value
    steps: tuple[Step, ...]

    @property
    def type(self) -> AttributeType | None:
        """The type of the result, if the tree is bound."""
        return self.steps[-1].type


class Negation(Value, frozen=True):
    """`-operand`."""

    operand: Value
    type: AttributeType | None = None


class Function(Value, frozen=True):
    """A function of one value: `abs(operand)`, or `length(operand)` of a text in code points, of bytes in bytes."""

    op: str
    operand: Value
    type: AttributeType | None = None


class Conditional(Value, frozen=True):
    """`if condition then ... else ...`: one of two values; unknown if the condition is unknown.

    Without `otherwise` it is unknown if the condition is false, too.
    """

    condition: "Predicate"
    then: Value
    otherwise: Value | None = None
    type: AttributeType | None = None


class Coalesce(Value, frozen=True):
    """The first operand that is known: present, a number, and with a result; unknown if none is."""

    operands: tuple[Value, ...]
    type: AttributeType | None = None


class ToFloat(Value, frozen=True):
    """An integer as the nearest 64-bit float; inserted by `bind`, not part of the text form."""

    operand: Value


class Micros(Value, frozen=True):
    """A time or duration as an integer of microseconds; inserted by `bind`, not part of the text form."""

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
    """Whether a text starts with, ends with, contains or is like a constant, by the name of the test in `op`.

    The constant of `like` is a pattern: `%` stands for any text, `_` for one character, and a backslash before one of
    the three for that character.
    """

    op: str
    item: Value
    part: Literal


class Present(Predicate, frozen=True):
    """Whether the event carries an attribute: true or false, never unknown."""

    attribute: AttributeRef


class And(Predicate, frozen=True):
    """True if all operands are, false if one is."""

    operands: tuple[Predicate, ...]


class Or(Predicate, frozen=True):
    """True if one operand is, false if all are."""

    operands: tuple[Predicate, ...]


class Not(Predicate, frozen=True):
    """True if the operand is false; unknown stays unknown."""

    operand: Predicate


EXPRESSIONS: tuple[type[Expression], ...] = (
    AttributeRef, Literal, Arithmetic, Negation, Function, Conditional, Coalesce, ToFloat, Micros,
    Compare, OneOf, TextTest, Present, And, Or, Not,
)  # fmt: skip
"""Every node class that a target must handle or declare unsupported."""

SUMS = ("+", "-")
PRODUCTS = ("*", "/", "//", "%")
ARITHMETIC = (*SUMS, *PRODUCTS)
FUNCTIONS = ("abs", "length")
COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
TEXT_TESTS = ("startswith", "endswith", "contains", "like")


def arithmetic(op: str, left: Value, right: Value, type: AttributeType | None = None) -> Arithmetic:
    """`left op right`; a step more if `left` is a chain of the same precedence.

    >>> len(arithmetic("-", arithmetic("+", Literal(1), Literal(2)), Literal(3)).steps)
    2
    """
    step = Step(op, right, type)
    if isinstance(left, Arithmetic) and precedence(left) == _precedence_of(op):
        return Arithmetic(left.first, (*left.steps, step))
    return Arithmetic(left, (step,))


def _precedence_of(op: str) -> int:
    return 1 if op in SUMS else 2


def precedence(node: Expression) -> int:
    """How tightly the parts of a value are bound: 0 for a conditional, 1 for sums, 2 for products, 3 for a minus sign,
    4 for the rest.
    """
    if isinstance(node, Arithmetic):
        return _precedence_of(node.steps[0].op)
    if isinstance(node, Conditional):
        return 0
    return 3 if isinstance(node, Negation) else 4


def as_predicate(thing: object) -> Predicate:
    """Return the predicate itself, or that of a bool term: `this.moving` is `this.moving == True`.

    SubscriptionError for anything else.
    """
    if isinstance(thing, Predicate):
        return thing
    if isinstance(thing, HasNode) and isinstance(thing.node, Value):
        return Compare("==", thing.node, Literal(True))
    raise SubscriptionError(_describe_no_predicate(thing))


USE_PARENTHESES = "put each comparison in parentheses: (this.lane > 1) & (this.speed > 30)"
"""In Python `&` and `|` bind tighter than comparisons: `this.lane > 1 & this.valid` begins with `1 & this.valid`."""


def _describe_no_predicate(thing: object) -> str:
    """Return what something is instead of a predicate, and how to write one."""
    example = "write it with `this`, such as this.speed > 30"
    match thing:
        case bool():
            return (
                f"{thing} is not a predicate, but what Python has compared already: write .is_absent() instead of "
                "`is None`, and comparisons with `this`, such as this.speed > 30"
            )
        case list() | tuple() | set() | frozenset():
            return f"a {type(thing).__name__} is not a predicate: join several by & or |"
        case MethodType(__self__=HasNode()):
            return f"the method {thing.__name__} is not called: write .{thing.__name__}(...)"
        case _ if callable(thing) and not isinstance(thing, type):
            return f"a function is not a predicate, as it runs in Python only: {example}"
        case _ if isinstance(thing, Constant):
            return f"{thing!r} is not a predicate: {USE_PARENTHESES}"
    return f"{thing!r} is not a predicate: {example}"


def format_expression(node: Expression) -> str:
    """Return the text form of an expression; parsing it gives an equal expression.

    >>> from genus import this
    >>> format_expression(~((this.speed > 30) | this.place.startswith("A8")) & this.lane.isin([1, 2]))
    "not (speed > 30 or place startswith 'A8') and lane in (1, 2)"
    """
    match node:
        case AttributeRef(name):
            return name
        case Literal(value):
            return format_literal(value)
        case ToFloat(operand) | Micros(operand):
            return format_expression(operand)
        case Negation(operand):
            return f"-{_format_inside(operand, 3)}"
        case Function(op, operand):
            return f"{op}({format_expression(operand)})"
        case Arithmetic(first, steps):
            level = precedence(node)
            rest = "".join(f" {step.op} {_format_inside(step.operand, level + 1)}" for step in steps)
            return f"{_format_inside(first, level)}{rest}"
        case Conditional(condition, then, otherwise):
            rest = "" if otherwise is None else f" else {format_expression(otherwise)}"
            return f"if {format_expression(condition)} then {_format_inside(then, 1)}{rest}"
        case Coalesce(operands):
            return f"coalesce({', '.join(map(format_expression, operands))})"
        case Compare(op, left, right):
            return f"{_format_inside(left, 1)} {op} {_format_inside(right, 1)}"
        case OneOf(item, options):
            return f"{_format_inside(item, 1)} in ({', '.join(map(format_expression, options))})"
        case TextTest(op, item, part):
            return f"{_format_inside(item, 1)} {op} {format_expression(part)}"
        case Present(attribute):
            return f"{attribute.name} is present"
        case Not(Present(attribute)):
            return f"{attribute.name} is absent"
        case Not(operand):
            return f"not {_format_operand(operand, (And, Or))}"
        case And(operands):
            return " and ".join(_format_operand(operand, (Or, And)) for operand in operands)
        case Or(operands):
            return " or ".join(_format_operand(operand, (Or,)) for operand in operands)
    raise TypeError(f"cannot format {node!r}")


def _format_operand(node: Expression, loose: tuple[type, ...]) -> str:
    return f"({format_expression(node)})" if isinstance(node, loose) else format_expression(node)


def _format_inside(node: Value, level: int) -> str:
    """Return a value within an operation that binds at a level; looser ones get parentheses."""
    inner = node
    while isinstance(inner, ToFloat | Micros):
        inner = inner.operand
    text = format_expression(inner)
    return f"({text})" if precedence(inner) < level else text


def format_literal(value: object) -> str:
    """Return the text form of a constant."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return f"'{''.join(_ESCAPES.get(letter, letter) for letter in value)}'"
        case bytes():
            return f"x'{value.hex()}'"
        case datetime():
            return f"@{value.astimezone(UTC).isoformat().removesuffix('+00:00')}Z"
        case timedelta():
            micros = micros_of_duration(value)
            unit, size = next((unit, size) for unit, size in DURATION_UNITS.items() if micros % size == 0)
            return f"{micros // size}{unit}"
    return repr(value)


def python_time(moment: date) -> str:
    """Return the Python expression of a date or time, in UTC if it has no time zone.

    >>> python_time(date(2026, 5, 1)), python_time(datetime(2026, 5, 1, 9, 30))
    ('datetime(2026, 5, 1, tzinfo=UTC)', 'datetime(2026, 5, 1, 9, 30, tzinfo=UTC)')
    """
    parts = [moment.year, moment.month, moment.day]
    if isinstance(moment, datetime):
        moment = moment if moment.tzinfo is None else moment.astimezone(UTC)
        parts = list(moment.timetuple()[:6]) + ([moment.microsecond] if moment.microsecond else [])
        while len(parts) > 3 and parts[-1] == 0:
            parts.pop()
    return f"datetime({', '.join(map(str, parts))}, tzinfo=UTC)"
