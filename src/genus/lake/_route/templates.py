"""Templates: predicates that differ only in their constants are one predicate with parameters.

So very many residuals become few branches of generated code, and their constants become rows of a table.
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
from genus.targets.spark._compiler import SparkCompiler

# Slots: the few native types in which the values of all attributes are looked up and compared.


class Slot(Enum):
    """A native type; its value names the columns that hold it."""

    LONG = "long"
    """Integers, bools, microseconds of times and durations, enumerations of integers."""
    DOUBLE = "double"
    TEXT = "text"
    OCTETS = "octets"

    @property
    def arrow(self) -> pa.DataType:
        """Its Arrow type."""
        return _ARROW[self]


_ARROW = {Slot.LONG: pa.int64(), Slot.DOUBLE: pa.float64(), Slot.TEXT: pa.string(), Slot.OCTETS: pa.binary()}


def slot_of(type_: AttributeType) -> Slot:
    """Where values of a type go.

    >>> slot_of(ChoiceType(("red", "green")))
    <Slot.TEXT: 'text'>
    """
    match type_:
        case TextType() | ChoiceType((str(), *_)):
            return Slot.TEXT
        case FloatType():
            return Slot.DOUBLE
        case BytesType():
            return Slot.OCTETS
    return Slot.LONG


RESIDUAL_OF, TEMPLATE = "__residual_of", "__template"
CONSTANTS = "__constants_"
"""Columns of a subscription's residual: the number of its template, and the constants of each slot."""

MOST_NODES = 200
"""Templates of so many nodes together become code."""


class Templates:
    """State: the residual of each subscription that has one."""

    def __init__(self) -> None:
        self.predicates: list[x.Predicate] = []
        """Each with places for its constants: a literal's value is its position among those of its slot."""
        self.examples: list[x.Predicate] = []
        """One residual of each template, as it was asked for."""
        self.subscriptions, self.numbers = array("i"), array("i")
        self.constants: dict[Slot, list[list[Any]]] = {slot: [] for slot in Slot}
        self._known: dict[x.Predicate, int] = {}

    def __len__(self) -> int:
        return len(self.predicates)

    def add(self, subscription: int, residual: x.Predicate) -> None:
        """Note what is left to be tested for a subscription."""
        constants: dict[Slot, list[Any]] = {slot: [] for slot in Slot}
        template = _with_places(residual, constants)
        number = self._known.setdefault(template, len(self.predicates))
        if number == len(self.predicates):
            self.predicates.append(template)
            self.examples.append(residual)
        self.subscriptions.append(subscription)
        self.numbers.append(number)
        for slot, values in constants.items():
            self.constants[slot].append(values)


def _with_places(node: Any, constants: dict[Slot, list[Any]]) -> Any:
    """A tree whose constants were taken out."""
    if type(node) is x.Literal:
        assert node.type is not None, "a subscription's predicate is bound"
        values = constants[slot_of(node.type)]
        constant = normalize(node.value, node.type)
        values.append(int(constant) if isinstance(constant, bool) else constant)
        return x.Literal(len(values) - 1, node.type)
    if isinstance(node, tuple):
        return tuple(_with_places(part, constants) for part in node)
    if not isinstance(node, x.Expression) or type(node) is x.AttributeRef:
        return node
    return type(node)(*(_with_places(getattr(node, field), constants) for field in node.__struct_fields__))


def attributes_in(predicate: x.Predicate) -> Iterator[tuple[str, AttributeType]]:
    """The attributes that a bound predicate reads, and their types."""
    for node in predicate.walk():
        if isinstance(node, x.AttributeRef) and node.type is not None:
            yield node.name, node.type


def ranked(templates: Templates, rows: Sequence[int]) -> tuple[int, ...]:
    """The templates in some rows, those first that most rows have."""
    return tuple(number for number, _ in Counter(templates.numbers[row] for row in rows).most_common())


def residual_table(templates: Templates, rows: Sequence[int], ranks: Sequence[int]) -> pa.Table:
    """The residuals in some rows: subscription, rank of the template, and constants."""
    rank_of = {number: rank for rank, number in enumerate(ranks)}
    used = [slot for slot in Slot if any(templates.constants[slot][row] for row in rows)]
    lists = {slot: pa.array([templates.constants[slot][row] for row in rows], pa.list_(slot.arrow)) for slot in used}
    return pa.table(
        {
            RESIDUAL_OF: pa.array([templates.subscriptions[row] for row in rows], pa.int32()),
            TEMPLATE: pa.array([rank_of[templates.numbers[row]] for row in rows], pa.int32()),
            **{CONSTANTS + slot.value: column for slot, column in lists.items()},
        }
    )


class Residuals:
    """State: the templates that were compiled so far; building columns is slow, and they do not depend on a frame."""

    def __init__(self, templates: Templates) -> None:
        self._templates = templates
        self._compiler = SparkCompiler(literal=_parameter)
        self._known: dict[int, Column] = {}

    def hold(self, ranks: Sequence[int]) -> Column:
        """Whether the residual of a row's subscription is true of its event; ranks are those of `residual_table`.

        The first templates become code. Code of hundreds would outgrow what Java takes in one piece, so the others are
        interpreted: Spark does so with a function that is applied to the elements of an array, here of a single one.
        """
        coded = self._coded(ranks)
        if coded == len(ranks):
            return self._by_halves(ranks, 0)
        others = self._by_halves(ranks[coded:], coded)
        interpreted = F.exists(F.array(F.col(TEMPLATE)), lambda _: others)
        if coded == 0:
            return interpreted
        return F.when(F.col(TEMPLATE) < F.lit(coded), self._by_halves(ranks[:coded], 0)).otherwise(interpreted)

    def _coded(self, ranks: Sequence[int]) -> int:
        """How many of the templates have room in one piece of code."""
        sizes = accumulate(sum(1 for _ in self._templates.predicates[number].walk()) for number in ranks)
        return sum(size <= MOST_NODES for size in sizes)

    def _by_halves(self, ranks: Sequence[int], first: int) -> Column:
        if len(ranks) == 1:
            return self._holds(ranks[0])
        middle = len(ranks) // 2
        lower, upper = self._by_halves(ranks[:middle], first), self._by_halves(ranks[middle:], first + middle)
        return F.when(F.col(TEMPLATE) < F.lit(first + middle), lower).otherwise(upper)

    def _holds(self, number: int) -> Column:
        if number not in self._known:
            self._known[number] = self._compiler.visit(self._templates.predicates[number])
        return self._known[number]


def _parameter(place: x.Literal) -> Column:
    assert place.type is not None, "a subscription's predicate is bound"
    slot = slot_of(place.type)
    value = F.get(F.col(CONSTANTS + slot.value), F.lit(place.value))
    return value == F.lit(1) if isinstance(place.type, BoolType) else value
