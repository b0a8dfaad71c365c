"""Templates: residual predicates that differ only in their constants are one predicate with parameters.

A template is compiled once, to functions of Arrow columns. It is evaluated for many pairs of an event and a
subscription at once: the attributes of the events and the constants of the subscriptions are columns of equal length.
"""

from array import array
from collections.abc import Iterator
from enum import Enum
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

import genus.filters._expression as x
from genus.filters._constants import type_of
from genus.model import AttributeType, BytesType, ChoiceType, FloatType, TextType
from genus.targets.arrow import ArrowCompiler, Columns, Datum, Step, computed_type, constant_of


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


MAX_OPTIONS = 16
"""A list with more options than this is part of its template; each option of a shorter one is a parameter."""


class Templates:
    """State: the residuals of subscriptions, as templates and constants."""

    def __init__(self) -> None:
        self.predicates: list[x.Predicate] = []
        """In a template, the value of a literal is the number of a parameter."""
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
        template = _take_constants(residual, found)
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


def _take_constants(node: Any, found: list[x.Literal]) -> Any:
    """Move the constants of a tree to a list, and replace each by its index there."""
    kind = type(node)
    if kind is x.Literal:
        found.append(node)
        return x.Literal(len(found) - 1, without_class(type_of(node)))
    if kind is tuple:
        return tuple([_take_constants(part, found) for part in node])
    if kind is x.AttributeRef:
        return x.AttributeRef(node.name, without_class(type_of(node)))
    if not isinstance(node, x.Expression):
        return without_class(node)
    if isinstance(node, x.OneOf) and len(node.options) > MAX_OPTIONS:
        options = [x.Literal(option.value, without_class(type_of(option))) for option in node.options]
        return x.OneOf(_take_constants(node.item, found), tuple(options))
    return kind(*[_take_constants(getattr(node, field), found) for field in node.__struct_fields__])


def without_class(type_: AttributeType) -> AttributeType:
    """A type that does not refer to a Python class, which workers may not have."""
    return ChoiceType(type_.values) if isinstance(type_, ChoiceType) else type_


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

    def test(self, columns: Columns, slots: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
        """Whether the predicate is true for each pair: attribute values in columns, constants in rows `slots`."""
        if self._step is None:
            self._step = _ResidualCompiler().visit(self.predicate)
        chosen = pa.array(slots)
        given = {_name(number): _gather(column, chosen) for number, column in enumerate(self._constants)}
        answer = self._step({**columns, **given})
        if isinstance(answer, pa.Scalar):
            return np.full(len(slots), answer.as_py() is True)
        holds: npt.NDArray[np.bool_] = pc.fill_null(answer, False).to_numpy(zero_copy_only=False)
        return holds


def _gather(column: pa.Array, slots: pa.Array) -> Datum:
    return column[0] if len(column) == 1 else column.take(slots)


def _name(number: int) -> str:
    """The key of a parameter among the columns; no attribute has such a name."""
    return f"${number}"


class _ResidualCompiler(ArrowCompiler, abstract=True):
    """Compiles a template: a literal is a column of constants."""

    def visit_Literal(self, node: x.Literal) -> Step:
        """The constants of a parameter."""
        name = _name(node.value)  # type: ignore[arg-type]
        return lambda columns: columns[name]

    def visit_OneOf(self, node: x.OneOf) -> Step:
        """An equality for each option; a long list is a constant of the template."""
        if len(node.options) > MAX_OPTIONS:
            return super().visit_OneOf(node)
        tests = [self.visit(x.Compare("==", node.item, option)) for option in node.options]
        return lambda columns: reduce(pc.or_kleene, (test(columns) for test in tests))

    def visit_TextTest(self, node: x.TextTest) -> Step:
        """The test of each distinct part, on the rows that have it: Arrow has no tests with a column of parts."""
        item, name = self.visit(node.item), _name(node.part.value)  # type: ignore[arg-type]

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


_TEXT = "$text"


def sort_codes(codes: npt.NDArray[Any], count: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The positions of codes below a count, ordered by code, and where the positions of each code end.

    >>> [part.tolist() for part in sort_codes(np.array([1, 0, 1]), 3)]
    [[1, 0, 2], [1, 3, 3]]
    """
    narrow = codes.astype(np.uint16) if count <= 1 << 16 else codes  # numbers of 16 bits are sorted by radix
    return np.argsort(narrow, kind="stable"), np.cumsum(np.bincount(codes, minlength=count))
