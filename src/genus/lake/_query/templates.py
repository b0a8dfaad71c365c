"""Templates: residual predicates that differ only in their constants are one predicate with parameters.

So a very large number of residuals becomes a few branches of generated code and a table of constants.
"""

from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from enum import Enum
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyspark.sql.functions as F
from pyspark.sql import Column

import genus.filters._expression as x
from genus.filters._evaluate import normalize
from genus.model import AttributeType, BoolType, BytesType, ChoiceType, FloatType, TextType
from genus.targets.spark._compiler import SparkCompiler, java_regex


class ValueType(Enum):
    """A native type in which values of attributes are looked up and compared; its value is part of column names."""

    LONG = "long"
    """Integers, bools, microseconds of times and durations, enumerations of integers."""
    DOUBLE = "double"
    TEXT = "text"
    OCTETS = "octets"

    @property
    def arrow(self) -> pa.DataType:
        """Its Arrow type."""
        return _ARROW[self]


_ARROW = {
    ValueType.LONG: pa.int64(),
    ValueType.DOUBLE: pa.float64(),
    ValueType.TEXT: pa.string(),
    ValueType.OCTETS: pa.binary(),
}


def value_type_of(type_: AttributeType) -> ValueType:
    """The value type of an attribute type.

    >>> value_type_of(ChoiceType(("red", "green")))
    <ValueType.TEXT: 'text'>
    """
    match type_:
        case TextType() | ChoiceType((str(), *_)):
            return ValueType.TEXT
        case FloatType():
            return ValueType.DOUBLE
        case BytesType():
            return ValueType.OCTETS
    return ValueType.LONG


RESIDUAL_OF, TEMPLATE = "__residual_of", "__template"
CONSTANTS = "__constants_"
"""Columns of the residual table: the subscription, the number of the template, and constants by value type."""

MAX_NODES = 200
"""Templates with up to this many nodes together are compiled; the others are interpreted."""


class Templates:
    """State: the residuals of subscriptions, as templates and constants."""

    def __init__(self) -> None:
        self.predicates: list[x.Predicate] = []
        """In a template, the value of a literal is its index among the constants of its value type."""
        self.examples: list[x.Predicate] = []
        """One residual of each template."""
        self.subscriptions, self.numbers = array("i"), array("i")
        self.constants: dict[ValueType, list[list[Any]]] = {value_type: [] for value_type in ValueType}
        self._known: dict[x.Predicate, int] = {}

    def __len__(self) -> int:
        return len(self.predicates)

    def add(self, subscription: int, residual: x.Predicate) -> None:
        """Add the residual of a subscription."""
        constants: dict[ValueType, list[Any]] = {value_type: [] for value_type in ValueType}
        template = _take_constants(residual, constants)
        number = self._known.setdefault(template, len(self.predicates))
        if number == len(self.predicates):
            self.predicates.append(template)
            self.examples.append(residual)
        self.subscriptions.append(subscription)
        self.numbers.append(number)
        for value_type, values in constants.items():
            self.constants[value_type].append(values)


def _take_constants(node: Any, constants: dict[ValueType, list[Any]]) -> Any:
    """Move the constants of a tree to lists, and replace each by its index there; patterns as Java's."""
    if type(node) is x.Literal:
        assert node.type is not None, "a subscription's predicate is bound"
        values = constants[value_type_of(node.type)]
        constant = normalize(node.value, node.type)
        values.append(int(constant) if isinstance(constant, bool) else constant)
        return x.Literal(len(values) - 1, node.type)
    if type(node) is x.TextTest and node.op == "like":
        regex = x.Literal(java_regex(str(node.part.value)), node.part.type)
        return x.TextTest(node.op, _take_constants(node.item, constants), _take_constants(regex, constants))
    if isinstance(node, tuple):
        return tuple(_take_constants(part, constants) for part in node)
    if not isinstance(node, x.Expression) or type(node) is x.AttributeRef:
        return node
    return type(node)(*(_take_constants(getattr(node, field), constants) for field in node.__struct_fields__))


def attributes_in(predicate: x.Predicate) -> Iterator[tuple[str, AttributeType]]:
    """The attributes of a bound predicate and their types."""
    for node in predicate.walk():
        if isinstance(node, x.AttributeRef) and node.type is not None:
            yield node.name, node.type


def rank_templates(templates: Templates, rows: Sequence[int]) -> tuple[int, ...]:
    """The templates of some rows, most frequent first."""
    return tuple(number for number, _ in Counter(templates.numbers[row] for row in rows).most_common())


def residual_table(templates: Templates, rows: Sequence[int], ranks: Sequence[int]) -> pa.Table:
    """The residual table of some rows: subscription, rank of the template, and constants."""
    rank_of = {number: rank for rank, number in enumerate(ranks)}
    used = [value_type for value_type in ValueType if any(templates.constants[value_type][row] for row in rows)]
    lists = {
        value_type: pa.array([templates.constants[value_type][row] for row in rows], pa.list_(value_type.arrow))
        for value_type in used
    }
    return pa.table(
        {
            RESIDUAL_OF: pa.array([templates.subscriptions[row] for row in rows], pa.int32()),
            TEMPLATE: pa.array([rank_of[templates.numbers[row]] for row in rows], pa.int32()),
            **{CONSTANTS + value_type.value: column for value_type, column in lists.items()},
        }
    )


class ResidualCompiler:
    """Compiles templates to Spark columns. State: those compiled so far; they do not depend on a frame."""

    def __init__(self, templates: Templates) -> None:
        self._templates = templates
        self._compiler = SparkCompiler(literal=_parameter)
        self._known: dict[int, Column] = {}

    def condition(self, ranks: Sequence[int]) -> Column:
        """Whether the residual in a row is true for its event; ranks are those of `residual_table`.

        The first templates are compiled by Spark. Hundreds of them would exceed the size limit of a Java method, so the
        others are interpreted: Spark interprets a function that is applied to the elements of an array, here of one.
        """
        compiled = self._count_compiled(ranks)
        if compiled == len(ranks):
            return self._choose(ranks, 0)
        others = self._choose(ranks[compiled:], compiled)
        interpreted = F.exists(F.array(F.col(TEMPLATE)), lambda _: others)
        if compiled == 0:
            return interpreted
        return F.when(F.col(TEMPLATE) < F.lit(compiled), self._choose(ranks[:compiled], 0)).otherwise(interpreted)

    def _count_compiled(self, ranks: Sequence[int]) -> int:
        """The number of templates with at most `MAX_NODES` nodes together."""
        sizes = accumulate(sum(1 for _ in self._templates.predicates[number].walk()) for number in ranks)
        return sum(size <= MAX_NODES for size in sizes)

    def _choose(self, ranks: Sequence[int], first: int) -> Column:
        """The condition of the row's template, found by binary search."""
        if len(ranks) == 1:
            return self._compile(ranks[0])
        middle = len(ranks) // 2
        lower, upper = self._choose(ranks[:middle], first), self._choose(ranks[middle:], first + middle)
        return F.when(F.col(TEMPLATE) < F.lit(first + middle), lower).otherwise(upper)

    def _compile(self, number: int) -> Column:
        if number not in self._known:
            self._known[number] = self._compiler.visit(self._templates.predicates[number])
        return self._known[number]


def _parameter(literal: x.Literal) -> Column:
    """The constant that a literal of a template stands for."""
    assert literal.type is not None, "a subscription's predicate is bound"
    value_type = value_type_of(literal.type)
    value = F.get(F.col(CONSTANTS + value_type.value), F.lit(literal.value))
    return value == F.lit(1) if isinstance(literal.type, BoolType) else value
