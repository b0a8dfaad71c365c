"""Templates: residual predicates that differ only in their constants are one predicate with parameters.

A template is compiled once, to functions of Arrow columns. It is evaluated for many pairs of an event and a
subscription at once: the attributes of the events and the constants of the subscriptions are columns of equal length.
The columns of a batch of events are converted once, however many lookups and templates ask for them.
"""

from array import array
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import reduce
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

import genus.filters._expression as x
from genus.filters._constants import type_of
from genus.lake._query.number_tables import Ints, sort_codes
from genus.model import AttributeType, BytesType, ChoiceType, FloatType, OpaqueType, TextType, TimeType
from genus.targets._decompose import Parameter, take_constants
from genus.targets.arrow import ArrowCompiler, Columns, Datum, Step, computed_type, constant_of, is_hidden_column

Flags: TypeAlias = npt.NDArray[np.bool_]
Values: TypeAlias = npt.NDArray[np.int64] | npt.NDArray[np.float64]

INSTANT = pa.timestamp("us", tz="UTC")
_TEXT = "$text"


class ValueType(Enum):
    """A native type in which values of attributes are looked up and compared."""

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


class Templates:
    """State: the residuals of subscriptions, as templates and constants."""

    def __init__(self) -> None:
        self.predicates: list[x.Predicate] = []
        self.examples: list[x.Predicate] = []
        """One residual of each template."""
        self.subscriptions, self.numbers, self.slots = array("i"), array("i"), array("i")
        """For each residual: its subscription, its template, and the row of its constants there."""
        self.constants: list[list[tuple[Any, ...]]] = []
        """The rows of constants of each template."""
        self.types: list[tuple[AttributeType, ...]] = []
        """The types of the parameters of each template."""
        self._known: dict[x.Predicate, int] = {}

    def __len__(self) -> int:
        return len(self.predicates)

    def add(self, subscription: int, residual: x.Predicate) -> None:
        """Add the residual of a subscription."""
        found: list[x.Literal] = []
        template = take_constants(residual, found)
        number = self._known.setdefault(template, len(self.predicates))
        if number == len(self.predicates):
            self.predicates.append(template)
            self.examples.append(residual)
            self.constants.append([])
            self.types.append(tuple(type_of(literal) for literal in found))
        self.subscriptions.append(subscription)
        self.numbers.append(number)
        self.slots.append(len(self.constants[number]))
        self.constants[number].append(tuple(constant_of(literal) for literal in found))

    def residual(self, number: int) -> "Residual":
        """A template with the constants of its subscriptions, ready to be evaluated."""
        columns = zip(*self.constants[number], strict=True)
        pairs = zip(columns, self.types[number], strict=True)
        return Residual(self.predicates[number], [pa.array(column, computed_type(type_)) for column, type_ in pairs])


def attributes_in(predicate: x.Predicate) -> Iterator[tuple[str, AttributeType]]:
    """The attributes of a bound predicate and their types."""
    for node in predicate.walk():
        if isinstance(node, x.AttributeRef) and node.type is not None:
            yield node.name, node.type


class Residual:
    """A template and the constants of its subscriptions, one row each. Compiled when it is first evaluated.

    It is pickled without its compiled form, which each process makes for itself.
    """

    def __init__(self, predicate: x.Predicate, constants: list[pa.Array]) -> None:
        self.predicate, self._constants = predicate, constants
        self.attributes = tuple(dict.fromkeys(attributes_in(predicate)))
        """Names and types of the attributes that it reads."""
        self._step: Step | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Residual, (self.predicate, self._constants)

    def test(self, columns: Columns, slots: npt.NDArray[np.int32]) -> Flags:
        """Whether the predicate is true for each pair: attribute values in columns, constants in rows `slots`."""
        if self._step is None:
            self._step = _ResidualCompiler().visit(self.predicate)
        chosen = pa.array(slots)
        given = {_name(number): _gather(column, chosen) for number, column in enumerate(self._constants)}
        answer = self._step({**columns, **given})
        if isinstance(answer, pa.Scalar):
            return np.full(len(slots), answer.as_py() is True)
        holds: Flags = pc.fill_null(answer, False).to_numpy(zero_copy_only=False)
        return holds


def _gather(column: pa.Array, slots: pa.Array) -> Datum:
    return column[0] if len(column) == 1 else column.take(slots)


def _name(number: int) -> str:
    """The key of a parameter among the columns; no attribute has such a name."""
    return f"${number}"


class _ResidualCompiler(ArrowCompiler, abstract=True):
    """Compiles a template: a parameter is a column of constants."""

    def visit_Parameter(self, node: Parameter) -> Step:
        """The constants of a parameter."""
        name = _name(node.number)
        return lambda columns: columns[name]

    def visit_OneOf(self, node: x.OneOf) -> Step:
        """An equality for each option; a long list is a constant of the template."""
        if not isinstance(node.options[0], Parameter):
            return super().visit_OneOf(node)
        tests = [self.visit(x.Compare("==", node.item, option)) for option in node.options]
        return lambda columns: reduce(pc.or_kleene, (test(columns) for test in tests))

    def visit_TextTest(self, node: x.TextTest) -> Step:
        """The test of each distinct part, on the rows that have it: Arrow has no tests with a column of parts."""
        item, name = self.visit(node.item), _name(node.part.number)  # type: ignore[attr-defined]

        def run(columns: Columns) -> Datum:
            texts, parts = item(columns), columns[name]
            if isinstance(parts, pa.Scalar):
                return self._test_part(node.op, parts.as_py(), texts)
            return self._test_parts(node.op, texts, parts)

        return run

    def _test_part(self, op: str, part: str, texts: Datum) -> Datum:
        test = x.TextTest(op, x.AttributeRef(_TEXT, TextType()), x.Literal(part, TextType()))
        return super().visit_TextTest(test)({_TEXT: texts})

    def _test_parts(self, op: str, texts: Datum, parts: pa.Array) -> pa.Array:
        texts = pa.repeat(texts, len(parts)) if isinstance(texts, pa.Scalar) else texts
        coded = parts.dictionary_encode()
        order, ends = sort_codes(coded.indices.to_numpy(), len(coded.dictionary))
        pieces = [
            self._test_part(op, part.as_py(), texts.take(pa.array(chosen)))
            for part, chosen in zip(coded.dictionary, np.split(order, ends[:-1]), strict=True)
        ]
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return pa.concat_arrays(pieces).take(pa.array(back))


# -- columns of events -------------------------------------------------------------------------------------------------


class EventColumns:
    """The columns of a table or record batch. State: those converted so far; a column that is missing is all null."""

    def __init__(self, batch: pa.Table | pa.RecordBatch) -> None:
        self.rows: int = batch.num_rows
        self._batch, self._names = batch, set(batch.schema.names)
        self._computed: dict[tuple[str, bool], pa.Array] = {}
        """By name, and whether the attribute is text: `source` may be meant as text though it has numbers here."""
        self._numbers: dict[str, tuple[Values, Flags | None]] = {}

    def stored(self, name: str) -> pa.Array | None:
        """A column as it is; None if it is missing."""
        if name not in self._names:
            return None
        column = self._batch.column(name)
        return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column

    def integers(self, name: str) -> Ints | None:
        """A column of integers without nulls; None if it is missing."""
        column = self.stored(name)
        return None if column is None else column.cast(pa.int64()).to_numpy()

    def computed(self, name: str, type_: AttributeType) -> pa.Array:
        """An attribute in the type it is computed in."""
        key = name, isinstance(type_, TextType)
        if key not in self._computed:
            self._computed[key] = self._compute(name, type_)
        return self._computed[key]

    def text(self, name: str, type_: AttributeType) -> pa.Array | None:
        """A column of texts or other values as it is; None if it is missing, or not the attribute that is meant."""
        column = self.stored(name)
        return None if column is None or is_hidden_column(column.type, name, type_) else column

    def _compute(self, name: str, type_: AttributeType) -> pa.Array:
        wanted, column = computed_type(type_), self.text(name, type_)
        if column is None:
            return pa.nulls(self.rows, wanted)
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if isinstance(type_, OpaqueType):
            return column
        if isinstance(type_, TimeType) and column.type != INSTANT and pa.types.is_timestamp(column.type):
            column = column.cast(INSTANT)
        return column if column.type == wanted else column.cast(wanted)

    def numbers(self, name: str, type_: AttributeType, value_type: ValueType) -> tuple[Values, Flags | None]:
        """An attribute as numbers, and where they are known; None if they are everywhere. NaN is unknown."""
        if name not in self._numbers:
            self._numbers[name] = _numbers(self.computed(name, type_), value_type)
        return self._numbers[name]

    def present(self, name: str) -> Flags:
        """Whether each row has a value."""
        column = self.stored(name)
        if column is None:
            return np.zeros(self.rows, np.bool_)
        there: Flags = column.is_valid().to_numpy(zero_copy_only=False)
        return there

    def take(self, attributes: Mapping[str, AttributeType], rows: pa.Array) -> dict[str, pa.Array]:
        """Some attributes of some rows, in the types they are computed in."""
        return {name: self.computed(name, type_).take(rows) for name, type_ in attributes.items()}


def _numbers(column: pa.Array, value_type: ValueType) -> tuple[Values, Flags | None]:
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    column = column if column.type == value_type.arrow else column.cast(value_type.arrow)
    known = column.is_valid().to_numpy(zero_copy_only=False) if column.null_count else None
    values = pc.fill_null(column, 0).to_numpy() if column.null_count else column.to_numpy()
    if value_type is ValueType.DOUBLE:
        number = values == values
        if not number.all():
            known = number if known is None else known & number
    return values, known
