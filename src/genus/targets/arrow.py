"""The Arrow target: a subscription becomes a function of the columns of a record batch.

A batch has the names of the events' types in the column `_type` and one column per attribute, null where the attribute
is absent; null is the unknown of Kleene logic. Integers, times and durations are computed as int64 (times and durations
in microseconds), floats as float64. NaN stays NaN in arithmetic and becomes null in comparisons.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial, reduce
from operator import attrgetter
from typing import Any, ClassVar, TypeAlias

import msgspec

import genus.filters.internal as x
from genus._extras import missing_extra
from genus.errors import EventError, SubscriptionError
from genus.filters import Subscription
from genus.filters.internal import compute, normalize, read_pattern, type_of
from genus.model import Event, attributes, is_event_type, micros_of_duration, name_of, vector
from genus.model.internal import INT64_MIN, RETYPABLE, UNCHANGED, plain_value, retyped_attributes, type_text
from genus.model.types import (
    Attribute,
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
)
from genus.targets._compiler import TYPE_COLUMN, Compiler

try:
    import pyarrow as pa
    import pyarrow.compute as pc

    from genus.targets._arrow_values import constant, constants
    from genus.targets._floor_division import floor_division
except ImportError as missing:
    raise missing_extra("the arrow target needs pyarrow and numpy", "arrow") from missing

__all__ = ["TYPE_COLUMN", "ArrowFilter", "arrow_schema", "compile", "to_batch"]

Datum: TypeAlias = Any
"""A column or a scalar of pyarrow, which has no type stubs; an absent column is a null scalar."""
Columns: TypeAlias = Mapping[str, Datum]
"""The attributes that a subscription reads, in the type they are computed in."""
Step: TypeAlias = Callable[[Columns], Datum]
"""A compiled expression: a function of the columns."""

UNKNOWN, FALSE, TRUE = (constant(value, pa.bool_()) for value in (None, False, True))
ZERO, SMALLEST = constant(0.0, pa.float64()), constant(INT64_MIN, pa.int64())

_STORED: dict[type, pa.DataType] = {
    BoolType: pa.bool_(),
    TextType: pa.string(),
    BytesType: pa.binary(),
    TimeType: pa.timestamp("us", tz="UTC"),
    DurationType: pa.duration("us"),
    OpaqueType: pa.string(),
}
_LAYOUTS: dict[pa.DataType, tuple[pa.DataType, ...]] = {
    pa.string(): (pa.large_string(), pa.string_view()),
    pa.binary(): (pa.large_binary(), pa.binary_view()),
    pa.uint8(): (pa.int16(),),
    pa.uint16(): (pa.int32(),),
    pa.uint32(): (pa.int64(),),
    pa.duration("us"): (pa.int64(),),
}
"""Other types that columns may have, such as those of a lake's files, which have no unsigned integers."""


def compile(subscription: Subscription) -> "ArrowFilter":
    """Compile a subscription to a filter of record batches.

    >>> from genus import Event, Maybe, Subscription, this
    >>> class Loop(Event):
    ...     lane: int
    ...     speed: Maybe[float] = None
    >>> fast = compile(Subscription(Loop, where=this.speed > 30))
    >>> fast.mask(to_batch([Loop(lane=1, speed=31.0), Loop(lane=2)])).to_pylist()
    [True, False]
    """
    return ArrowFilter(subscription)


def arrow_schema(cls: type) -> pa.Schema:
    """Return the columns of a type's batches: `_type`, then its family's vector; an enum is stored as its values.

    A nested struct or a list is stored as JSON. New attributes of the family are appended at the end of the schema.

    >>> from genus import Event
    >>> class Lamp(Event):
    ...     watts: float
    >>> arrow_schema(Lamp).field("watts").type
    DataType(double)
    """
    fields = [pa.field(attribute.name, stored_type(attribute.type)) for attribute in vector(cls)]
    return pa.schema([pa.field(TYPE_COLUMN, pa.string()), *fields])


def stored_type(type_: AttributeType) -> pa.DataType:
    """Return the Arrow type of an attribute's column.

    >>> stored_type(IntType(16, signed=False))
    DataType(uint16)
    """
    match type_:
        case IntType() | FloatType():
            return pa.type_for_alias(type_.describe())
        case ChoiceType(values):
            return pa.string() if isinstance(values[0], str) else pa.int64()
    return _STORED[type(type_)]


def computed_type(type_: AttributeType) -> pa.DataType:
    """Return the Arrow type in which an attribute is compared and computed."""
    match type_:
        case IntType() | TimeType() | DurationType():
            return pa.int64()
        case FloatType():
            return pa.float64()
    return stored_type(type_)


# -- events to columns -------------------------------------------------------------------------------------------------


def to_batch(events: Iterable[Event], cls: type | None = None) -> pa.RecordBatch:
    """Return the events of one family as a record batch.

    `cls` is any type of the family; without it, the family is that of the events. With `Event` or a kind as `cls`,
    events may be of any family, and only the attributes of `Event` are kept. Raises EventError if an event is of
    another family, or a value does not have its declared type.

    >>> from genus import Event
    >>> class Door(Event):
    ...     open: bool
    >>> to_batch([Door(open=True, place="hall")]).select(["_type", "place", "open"]).to_pylist()
    [{'_type': 'Door', 'place': 'hall', 'open': True}]
    """
    listed = list(events)
    classes = tuple(dict.fromkeys(map(type, listed)))
    cls = cls or next(filter(_family, classes), Event)
    if others := [each.__name__ for each in classes if not _belongs(each, cls)]:
        raise EventError(f"a batch has events of one family: {', '.join(others)} is not of {name_of(cls)}'s family")
    columns = [_column(listed, classes, attribute) for attribute in vector(cls)]
    return pa.RecordBatch.from_arrays([_names(listed, classes), *columns], schema=arrow_schema(cls))


def _family(cls: type) -> object:
    return getattr(cls, "__genus_family__", None)


def _belongs(cls: type, home: type) -> bool:
    is_event = issubclass(cls, Event) and is_event_type(cls)
    return is_event and (_family(home) is None or _family(cls) in (None, _family(home)))


def _names(events: Sequence[Event], classes: Sequence[type]) -> pa.Array:
    if len(classes) == 1:
        return pa.repeat(pa.scalar(name_of(classes[0])), len(events))
    names = {cls: name_of(cls) for cls in classes}
    return pa.array([names[type(event)] for event in events], pa.string())


def _column(events: Sequence[Event], classes: Sequence[type], attribute: Attribute) -> pa.Array:
    """The column of one attribute; null for a class that does not declare it, even if a property has its name."""
    name, stored = attribute.name, stored_type(attribute.type)
    is_text = isinstance(attribute.type, TextType)
    hiding = {cls for cls in classes if is_text and name in retyped_attributes(cls)}
    carriers = {cls for cls in classes if cls not in hiding and any(own.name == name for own in attributes(cls))}
    if not carriers:
        return pa.nulls(len(events), stored)
    if len(carriers) == len(classes):
        values = list(map(attrgetter(name), events))
    else:
        values = [getattr(event, name) if type(event) in carriers else None for event in events]
    try:
        return pa.array(_store_values(values, attribute.type), stored)
    except (ValueError, TypeError, OverflowError, AttributeError) as problem:
        raise EventError(f"a value does not fit {type_text(attribute.type)}: {problem} (at {name})") from problem


def _store_values(values: list[Any], type_: AttributeType) -> list[Any]:
    """Values in the form their column stores; integers in a float attribute become floats."""
    if not UNCHANGED.issuperset(map(type, values)):
        values = list(map(plain_value, values))
    match type_:
        case ChoiceType():
            return [getattr(value, "_value_", value) for value in values]
        case OpaqueType():
            return [None if value is None else msgspec.json.encode(value) for value in values]
        case TimeType() if not {datetime, type(None)}.issuperset(map(type, values)):
            raise ValueError("a value is no datetime, or has parts of a microsecond")
        case TimeType() if any(value is not None and value.tzinfo is None for value in values):
            raise ValueError("a datetime has no time zone")
        case DurationType():  # pyarrow's own conversion refuses the ends of the range
            return [None if value is None else micros_of_duration(value) for value in values]
        case FloatType():
            return [value if value is None or type(value) is float else value + 0.0 for value in values]
    return values


# -- columns to answers ------------------------------------------------------------------------------------------------


class ArrowFilter:
    """A filter of the rows of record batches; made by `compile`."""

    def __init__(self, subscription: Subscription) -> None:
        self.subscription = subscription
        where = subscription.where
        self._contents: Step | None = None if where is None else ArrowCompiler().compile_match(where)
        tested = [node.name for node in where.walk() if isinstance(node, x.AttributeRef)] if where is not None else []
        wanted = {*subscription.has, *subscription.lacks, *tested}
        self._reads = tuple(attribute for attribute in subscription.vector if attribute.name in wanted)

    def mask(self, batch: pa.RecordBatch, types: Sequence[str] | None = None) -> pa.BooleanArray:
        """Return whether each row matches: true or false, never null.

        `types` are the names of the types that match; by default those of the classes in this process.

        An attribute whose column the batch lacks is absent from every row. Raises SubscriptionError if a column has
        another Arrow type than `arrow_schema` says, or there is no column `_type`.
        """
        columns = self._columns(batch)
        found = self.match_types(batch, self._type_names() if types is None else types)
        if (not columns and self._contents is None) or found.true_count == 0:
            return found
        if found.true_count < batch.num_rows // 2:
            columns = {name: _select(column, found) for name, column in columns.items()}
            return pc.replace_with_mask(found, found, self._match(columns, found.true_count))
        return pc.and_(found, self._match(columns, batch.num_rows))

    def match_types(self, batch: pa.RecordBatch, types: Sequence[str]) -> pa.BooleanArray:
        """Return whether the type of each row is one of these; the first of the two tests of `mask`."""
        return _fill_unknown(_match_type(batch, constants(types, pa.string())), batch.num_rows)

    def filter(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that match; raises the errors of `mask`."""
        return batch.filter(self.mask(batch))

    @property
    def reads(self) -> tuple[str, ...]:
        """The attributes whose columns are read."""
        return tuple(attribute.name for attribute in self._reads)

    def explain(self, types: Sequence[str] | None = None) -> str:
        """Return the tests in their order, and the columns that are read, as text; `types` are as in `mask`."""
        asked = self.subscription
        names = self._type_names() if types is None else types
        carried = [f"{name} is valid" for name in asked.has] + [f"{name} is null" for name in asked.lacks]
        lines = {
            "type": f"{TYPE_COLUMN} in ({', '.join(names)})"
            + ("; names of undeclared types do not match" if types is None else ""),
            "attributes": " and ".join(carried) or "any",
            "contents": "any" if asked.where is None else f"{asked.where}, on the rows left, by column",
            "reads": ", ".join((TYPE_COLUMN, *(attribute.name for attribute in self._reads))),
        }
        return "\n".join([f"arrow: {asked}", *(f"  {stage}: {text}" for stage, text in lines.items())])

    def _type_names(self) -> list[str]:
        """Return the names of the matching types; found again for each batch, as types may have been declared since."""
        return sorted({name_of(cls) for cls in self.subscription.classes()})

    def _columns(self, batch: pa.RecordBatch) -> Columns:
        return {attribute.name: _read(batch, attribute) for attribute in self._reads}

    def _match(self, columns: Columns, rows: int) -> pa.BooleanArray:
        """Return whether each row has the attributes, and the predicate holds."""
        tests = [pc.is_valid(columns[name]) for name in self.subscription.has]
        tests += [pc.is_null(columns[name]) for name in self.subscription.lacks]
        tests += [] if self._contents is None else [self._contents(columns)]
        return _fill_unknown(reduce(pc.and_kleene, tests) if tests else TRUE, rows)


def _match_type(batch: pa.RecordBatch, names: pa.Array) -> Datum:
    """Return whether each row's type is one of these; tested once per name if the column is a dictionary."""
    column = _find(batch, TYPE_COLUMN)
    if column is None:
        raise SubscriptionError(f"the batch has no column {TYPE_COLUMN!r} with the names of the events' types")
    if pa.types.is_dictionary(column.type):
        known = pc.is_in(_as_stored(column.dictionary, TYPE_COLUMN, pa.string()), value_set=names)
        return _match_codes(column.indices, pc.indices_nonzero(known), len(known))
    column = _as_stored(column, TYPE_COLUMN, pa.string())
    return pc.equal(column, names[0]) if len(names) == 1 else pc.is_in(column, value_set=names)


def _match_codes(indices: pa.Array, codes: pa.Array, count: int) -> Datum:
    """Return whether each index is one of some ascending codes of `count`; those of sorted rows are a range."""
    if len(codes) in (0, count):
        return pc.is_valid(indices) if len(codes) else pa.repeat(FALSE, len(indices))
    first, last = codes[0].cast(indices.type), codes[-1].cast(indices.type)
    if len(codes) == 1:
        return pc.equal(indices, first)
    if codes[-1].as_py() - codes[0].as_py() == len(codes) - 1:
        return pc.and_(pc.greater_equal(indices, first), pc.less_equal(indices, last))
    return pc.is_in(indices, value_set=codes.cast(indices.type))


def _find(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    positions = batch.schema.get_all_field_indices(name)
    if len(positions) > 1:
        raise SubscriptionError(f"the batch has {len(positions)} columns called {name!r}; keep one")
    return batch.column(positions[0]) if positions else None


def _read(batch: pa.RecordBatch, attribute: Attribute) -> Datum:
    """An attribute's column in the type it is computed in; a null scalar if the batch has none."""
    column = _find(batch, attribute.name)
    if column is None or is_hidden_column(column.type, attribute.name, attribute.type):
        return constant(None, computed_type(attribute.type))
    if isinstance(attribute.type, OpaqueType):
        return column
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return _as_stored(column, attribute.name, stored_type(attribute.type)).cast(computed_type(attribute.type))


def is_hidden_column(stored: pa.DataType, name: str, type_: AttributeType | None) -> bool:
    """Whether a column of a family is not the attribute of `Event` that is meant, as it has numbers instead of text."""
    return name in RETYPABLE and isinstance(type_, TextType) and bool(pa.types.is_integer(stored))


def _as_stored(column: pa.Array, name: str, stored: pa.DataType) -> pa.Array:
    """A column in the type of the schema; other layouts of the same values, and columns of nulls, are converted."""
    if column.type in (stored, pa.null(), *_LAYOUTS.get(stored, ())):
        return column.cast(stored)
    raise SubscriptionError(f"column {name!r} holds {column.type}, but should hold {stored}")


def _select(column: Datum, rows: pa.BooleanArray) -> Datum:
    return column if isinstance(column, pa.Scalar) else column.filter(rows)


def _fill_unknown(answer: Datum, rows: int) -> pa.BooleanArray:
    """Return the answer for each row, with unknown as false."""
    column = pa.repeat(answer, rows) if isinstance(answer, pa.Scalar) else answer
    return pc.fill_null(column, FALSE) if column.null_count else column


class ArrowCompiler(Compiler):
    """Translates each expression to a function of the columns."""

    target: ClassVar[str] = "arrow"
    operators: ClassVar[Mapping[str, str]] = {
        "+": "add", "-": "subtract", "*": "multiply", "/": "divide", "//": "//", "%": "%",
        "==": "equal", "!=": "not_equal", "<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal",
        "startswith": "starts_with", "endswith": "ends_with", "contains": "match_substring",
        "like": "match_substring_regex", "abs": "abs", "length": "binary_length",
    }  # fmt: skip
    """The function of pyarrow.compute for each operator; there is none for // and %, which numpy computes."""

    def compile_match(self, node: x.Predicate) -> Step:
        """A step that is true where a predicate is; elsewhere it may be false instead of unknown, which costs less.

        Comparisons of floats with NaN are unknown, and false in Arrow, but for `!=`.
        """
        match node:
            case x.And(operands):
                return _fold(pc.and_kleene, [self.compile_match(operand) for operand in operands])
            case x.Or(operands):
                return _fold(pc.or_kleene, [self.compile_match(operand) for operand in operands])
            case x.Compare() if node.op != "!=":
                return self._comparison(node)
        step: Step = self.visit(node)
        return step

    def visit_And(self, node: x.And) -> Step:
        """`and_kleene` over all operands."""
        return _fold(pc.and_kleene, [self.visit(operand) for operand in node.operands])

    def visit_Or(self, node: x.Or) -> Step:
        """`or_kleene` over all operands."""
        return _fold(pc.or_kleene, [self.visit(operand) for operand in node.operands])

    def visit_Not(self, node: x.Not) -> Step:
        """`invert`, which keeps null."""
        operand: Step = self.visit(node.operand)
        return lambda columns: pc.invert(operand(columns))

    def visit_Present(self, node: x.Present) -> Step:
        """`is_valid`; NaN is a value."""
        return lambda columns: pc.is_valid(columns[node.attribute.name])

    def visit_Compare(self, node: x.Compare) -> Step:
        """Return a comparison; of floats, only where both are numbers."""
        if not isinstance(type_of(node.left), FloatType):
            return self._comparison(node)
        left, right, compare = self.visit(node.left), self.visit(node.right), getattr(pc, self.operators[node.op])

        def run(columns: Columns) -> Datum:
            first, second = left(columns), right(columns)
            return _where(_is_number(first), _where(_is_number(second), compare(first, second)))

        return run

    def _comparison(self, node: x.Compare) -> Step:
        """A comparison as Arrow has it."""
        left, right, compare = self.visit(node.left), self.visit(node.right), getattr(pc, self.operators[node.op])
        return lambda columns: compare(left(columns), right(columns))

    def visit_OneOf(self, node: x.OneOf) -> Step:
        """`is_in`, null where the item is; zeros lose their sign first, as `is_in` takes -0.0 and 0.0 for different."""
        item: Step = self.visit(node.item)
        type_ = type_of(node.item)
        options = constants([constant_of(option) for option in node.options], computed_type(type_))
        if not isinstance(type_, FloatType):
            return lambda columns: _one_of(item(columns), options, pc.is_valid)
        unsigned = pc.add(options, ZERO)
        return lambda columns: _one_of(pc.add(item(columns), ZERO), unsigned, _is_number)

    def visit_TextTest(self, node: x.TextTest) -> Step:
        """Return a literal part, compared byte by byte; a pattern becomes a regular expression of RE2."""
        item, test, pattern = self.visit(node.item), getattr(pc, self.operators[node.op]), str(node.part.value)
        if node.op == "like":
            pattern = rf"\A(?s:{read_pattern(pattern).regex(backtracks=False)})\z"
        return lambda columns: test(item(columns), pattern=pattern)

    def visit_AttributeRef(self, node: x.AttributeRef) -> Step:
        """Return a column, which has its computed type already."""
        return lambda columns: columns[node.name]

    def visit_Literal(self, node: x.Literal) -> Step:
        """Return a scalar."""
        scalar = constant(constant_of(node), computed_type(type_of(node)))
        return lambda columns: scalar

    def visit_Micros(self, node: x.Micros) -> Step:
        """Nothing: times and durations are microseconds already."""
        step: Step = self.visit(node.operand)
        return step

    def visit_ToFloat(self, node: x.ToFloat) -> Step:
        """Return a cast to the nearest double."""
        operand: Step = self.visit(node.operand)
        return lambda columns: _to_float(operand(columns))

    def visit_Negation(self, node: x.Negation) -> Step:
        """Zero minus an integer, which overflows where negation does; a float's sign turned."""
        operand: Step = self.visit(node.operand)
        if isinstance(type_of(node), FloatType):
            return lambda columns: pc.negate(operand(columns))
        return lambda columns: _exact("subtract", constant(0, pa.int64()), operand(columns))

    def visit_Function(self, node: x.Function) -> Step:
        """Return the length in code points or bytes; the smallest integer has no absolute value."""
        operand: Step = self.visit(node.operand)
        match node.op, type_of(node.operand):
            case "length", TextType():
                return lambda columns: pc.utf8_length(operand(columns)).cast(pa.int64())
            case "length", _:
                return lambda columns: pc.binary_length(operand(columns)).cast(pa.int64())
            case _, FloatType():
                return lambda columns: pc.abs(operand(columns))
        return lambda columns: pc.abs(_without_smallest(operand(columns)))

    def visit_Conditional(self, node: x.Conditional) -> Step:
        """`if_else`, null where the condition is."""
        condition, then = self.visit(node.condition), self.visit(node.then)
        nothing = constant(None, computed_type(type_of(node)))
        otherwise: Step = (lambda _: nothing) if node.otherwise is None else self.visit(node.otherwise)
        return lambda columns: pc.if_else(condition(columns), then(columns), otherwise(columns))

    def visit_Coalesce(self, node: x.Coalesce) -> Step:
        """`coalesce`, of floats where they are numbers."""
        operands: list[Step] = [self.visit(operand) for operand in node.operands]
        if not isinstance(type_of(node), FloatType):
            return lambda columns: pc.coalesce(*(operand(columns) for operand in operands))
        return lambda columns: pc.coalesce(*(_only_numbers(operand(columns)) for operand in operands))

    def visit_Arithmetic(self, node: x.Arithmetic) -> Step:
        """Return the steps from left to right, all on integers or all on floats; only floats are divided by `/`."""
        is_float = isinstance(type_of(node), FloatType)
        first: Step = self.visit(node.first)
        rest = [(self._operation(step.op, is_float), self.visit(step.operand)) for step in node.steps]

        def run(columns: Columns) -> Datum:
            result = first(columns)
            for operation, operand in rest:
                result = operation(result, operand(columns))
            return result

        return run

    def _operation(self, op: str, is_float: bool) -> Callable[[Datum, Datum], Datum]:
        if op in ("//", "%"):
            return partial(_floor_divide, op)
        if not is_float:
            return partial(_exact, self.operators[op])
        if op == "/":
            return lambda left, right: pc.divide(left, _not_zero(right))
        operation: Callable[[Datum, Datum], Datum] = getattr(pc, self.operators[op])
        return operation


def _fold(combine: Callable[[Datum, Datum], Datum], steps: Sequence[Step]) -> Step:
    return lambda columns: reduce(combine, (step(columns) for step in steps))


def constant_of(literal: x.Literal) -> object:
    """The value of a literal in the type it is computed in."""
    is_time = isinstance(literal.type, TimeType | DurationType)
    return normalize(literal.value, literal.type) if is_time else literal.value


def _where(known: Datum, answer: Datum) -> Datum:
    return pc.if_else(known, answer, UNKNOWN)


def _is_number(floats: Datum) -> Datum:
    """False for NaN, the only value not equal to itself; null for null."""
    return pc.equal(floats, floats)


def _one_of(item: Datum, options: pa.Array, known: Callable[[Datum], Datum]) -> Datum:
    return _where(known(item), pc.is_in(item, value_set=options))


def _not_zero(floats: Datum) -> Datum:
    return pc.if_else(pc.equal(floats, ZERO), constant(None, pa.float64()), floats)


def _only_numbers(floats: Datum) -> Datum:
    return pc.if_else(_is_number(floats), floats, constant(None, pa.float64()))


def _without_smallest(integers: Datum) -> Datum:
    return pc.if_else(pc.equal(integers, SMALLEST), constant(None, pa.int64()), integers)


def _floor_divide(op: str, left: Datum, right: Datum) -> Datum:
    """`//` or `%` on int64 or on float64, null where there is no result."""
    if isinstance(left, pa.Scalar) and isinstance(right, pa.Scalar):
        return pa.scalar(compute(op, left.as_py(), right.as_py()), left.type)
    values, known = floor_division(op, _as_numpy(left), _as_numpy(right))
    valid = pc.and_(pa.array(known), pc.and_(pc.is_valid(left), pc.is_valid(right)))
    return pc.if_else(valid, pa.array(values), constant(None, left.type))


def _as_numpy(numbers: Datum) -> Any:
    """Return a column as an array of numpy, a scalar as a number; 1 for null."""
    filled = pc.fill_null(numbers, pa.scalar(1, numbers.type))
    return filled.as_py() if isinstance(filled, pa.Scalar) else filled.to_numpy(zero_copy_only=False)


def _to_float(integers: Datum) -> Datum:
    return pc.cast(integers, pa.float64(), safe=False)


def _exact(name: str, left: Datum, right: Datum) -> Datum:
    """Return an operation on int64, null where the result does not fit; the slow path runs only on an overflow."""
    try:
        return getattr(pc, f"{name}_checked")(left, right)
    except pa.ArrowInvalid:
        return _within_64_bits(getattr(pc, name), left, right)


def _within_64_bits(operation: Callable[[Datum, Datum], Datum], left: Datum, right: Datum) -> Datum:
    """Return the wrapped result where it is the true one, else null.

    If it is not, the two differ by a multiple of 2**64. The same operation on doubles is off by less than 2**13 if the
    true result fits and by one part in 2**51 if not, which decides exactly.
    """
    wrapped = operation(left, right)
    distance = pc.abs(pc.subtract(operation(_to_float(left), _to_float(right)), _to_float(wrapped)))
    return pc.if_else(pc.less(distance, 2.0**62), wrapped, constant(None, pa.int64()))
