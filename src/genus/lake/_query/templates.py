"""Templates: residual predicates that differ only in their constants are one predicate with parameters.

A template is compiled once, to functions of Arrow columns. It is evaluated for many pairs of an event and a
subscription at once: the attributes of the events and the constants of the subscriptions are columns of equal length.
The columns of a batch of events are converted once, however many lookups and templates ask for them.
"""

from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

import genus.filters.internal as x
from genus.filters.internal import format_expression, type_of
from genus.lake._query.number_tables import Ints, Matches, Numbers, sort_codes
from genus.model.types import (
    Attribute,
    AttributeType,
    BytesType,
    ChoiceType,
    FloatType,
    OpaqueType,
    TextType,
    TimeType,
)
from genus.targets.arrow import ArrowCompiler, Columns, Datum, Step, computed_type, constant_of, is_hidden_column
from genus.targets.internal import Parameter, take_constants

Flags: TypeAlias = npt.NDArray[np.bool_]
Values: TypeAlias = npt.NDArray[np.int64] | npt.NDArray[np.float64]

INSTANT = pa.timestamp("us", tz="UTC")
_TEXT = "$text"


def key_type(type_: AttributeType) -> pa.DataType:
    """Return the Arrow type in which values of an attribute are looked up and compared.

    Integers are also bools, microseconds of times and durations, and enumerations of integers.

    >>> key_type(ChoiceType(("red", "green")))
    DataType(string)
    """
    match type_:
        case TextType() | ChoiceType((str(), *_)):
            return pa.string()
        case FloatType():
            return pa.float64()
        case BytesType():
            return pa.binary()
    return pa.int64()


class Templates:
    """State: the residuals of the subscriptions that were added, as templates and constants."""

    def __init__(self) -> None:
        self._numbers: dict[x.Predicate, int] = {}
        self._examples: list[x.Predicate] = []
        self._types: list[tuple[AttributeType, ...]] = []
        self._constants: list[list[tuple[Any, ...]]] = []
        """By template: one residual, the types of the parameters, and the constants of each subscription."""
        self._template_of, self._slot_of = array("i"), array("i")

    def add(self, residual: x.Predicate | None) -> None:
        """Add the residual of the next subscription; None if it has none."""
        if residual is None:
            self._template_of.append(-1)
            self._slot_of.append(0)
            return
        found: list[x.Literal] = []
        number = self._numbers.setdefault(take_constants(residual, found), len(self._numbers))
        if number == len(self._constants):
            self._examples.append(residual)
            self._types.append(tuple(type_of(literal) for literal in found))
            self._constants.append([])
        self._template_of.append(number)
        self._slot_of.append(len(self._constants[number]))
        self._constants[number].append(tuple(constant_of(literal) for literal in found))

    def residuals(self) -> "Residuals":
        return Residuals(
            np.array(self._template_of, np.int32),
            np.array(self._slot_of, np.int32),
            [self._residual(*each) for each in self._numbers.items()],
        )

    def _residual(self, predicate: x.Predicate, number: int) -> "Residual":
        columns = zip(zip(*self._constants[number], strict=True), self._types[number], strict=True)
        constants = [pa.array(column, computed_type(type_)) for column, type_ in columns]
        return Residual(predicate, constants, format_expression(self._examples[number]))


@dataclass(frozen=True, slots=True)
class Residuals:
    template_of: Numbers
    slot_of: Numbers
    """For each subscription: its template, -1 if it has no residual, and the row of its constants."""
    templates: "Sequence[Residual]"

    def test(self, events: "EventColumns", found: Matches) -> Matches:
        """Return the candidates whose residual is true, template by template."""
        template = self.template_of[found.subscriptions]
        tested = np.flatnonzero(template >= 0)
        if not len(tested):
            return found
        kept = [np.flatnonzero(template < 0)] if len(tested) < len(template) else []
        order, ends = sort_codes(template[tested], len(self.templates))
        used = np.flatnonzero(np.diff(ends, prepend=0))
        for number, chosen in zip(used.tolist(), np.split(tested[order], ends[used][:-1]), strict=True):
            rows, slots = found.rows[chosen], self.slot_of[found.subscriptions[chosen]]
            kept.append(chosen[self.templates[number].test(events, rows, slots)])
        return found.take(np.concatenate(kept))

    def templates_of(self, subscriptions: Numbers) -> list[int]:
        """Return the templates of some subscriptions, most frequent first."""
        if not self.templates:
            return []
        used = self.template_of[np.unique(subscriptions)]
        return [number for number, _ in Counter(used[used >= 0].tolist()).most_common()]


class Residual:
    """A template and the constants of its subscriptions, one row each. Compiled when it is first evaluated.

    It is pickled without its compiled form, which each process makes for itself.
    """

    def __init__(self, predicate: x.Predicate, constants: list[pa.Array], example: str) -> None:
        self._predicate, self._constants, self.example = predicate, constants, example
        nodes = (node for node in predicate.walk() if isinstance(node, x.AttributeRef))
        self.attributes = {node.name: node.type for node in nodes if node.type is not None}
        """Names and types of the attributes that it reads."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Residual, (self._predicate, self._constants, self.example)

    @cached_property
    def _step(self) -> Step:
        step: Step = _ResidualCompiler().visit(self._predicate)
        return step

    def test(self, events: "EventColumns", rows: Ints, slots: Numbers) -> Flags:
        """Return whether the predicate is true for each pair of an event and a row of constants."""
        chosen, events_chosen = pa.array(slots), pa.array(rows)
        columns: dict[str, Datum] = {
            name: events.computed(name, type_).take(events_chosen) for name, type_ in self.attributes.items()
        }
        for number, column in enumerate(self._constants):
            columns[_name(number)] = column[0] if len(column) == 1 else column.take(chosen)
        answer = self._step(columns)
        if isinstance(answer, pa.Scalar):
            return np.full(len(slots), answer.as_py() is True)
        holds: Flags = pc.fill_null(answer, False).to_numpy(zero_copy_only=False)
        return holds


def _name(number: int) -> str:
    """Return the key of a parameter among the columns; no attribute has such a name."""
    return f"${number}"


class _ResidualCompiler(ArrowCompiler, abstract=True):
    """Compiles a template: a parameter is a column of constants."""

    def visit_Parameter(self, node: Parameter) -> Step:
        name = _name(node.number)
        return lambda columns: columns[name]

    def visit_OneOf(self, node: x.OneOf) -> Step:
        """Return an equality for each option; a long list is a constant of the template."""
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

    def numbers(self, key: Attribute) -> tuple[Values, Flags | None]:
        """Return an attribute as numbers, and where they are known; None if they are everywhere. NaN is unknown."""
        if key.name not in self._numbers:
            self._numbers[key.name] = _numbers(self.computed(key.name, key.type), key_type(key.type))
        return self._numbers[key.name]

    def present(self, name: str) -> Flags:
        column = self.stored(name)
        if column is None:
            return np.zeros(self.rows, np.bool_)
        there: Flags = column.is_valid().to_numpy(zero_copy_only=False)
        return there


def _numbers(column: pa.Array, wanted: pa.DataType) -> tuple[Values, Flags | None]:
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    column = column if column.type == wanted else column.cast(wanted)
    known = column.is_valid().to_numpy(zero_copy_only=False) if column.null_count else None
    values = pc.fill_null(column, 0).to_numpy() if column.null_count else column.to_numpy()
    if wanted == pa.float64():
        number = values == values
        if not number.all():
            known = number if known is None else known & number
    return values, known
