"""Predicates as Spark columns.

A predicate becomes a column that is true where the predicate is, and false or NULL elsewhere. Negations are moved down
to the comparisons, so unknown may count as false in each, and every comparison can be tested on files. Values are
computed as bigint (integers; times and durations in microseconds) or double. NaN is the largest number in Spark, so
`<= Infinity` excludes it.

Tests of a stored column against constants of its own type are passed by Spark to the Parquet reader, which skips parts
of files by their statistics and dictionaries. There -0.0 is less than 0.0, other than in predicates; so the sign of a
zero is chosen by the operator.

Spark has no function for floor division, nor for chains that are too long to be nested calls. Here `//` rounds down and
`%` has the sign of the divisor, as in Python; Java's remainder is exact and has the sign of the dividend, so one
correction follows it. Spark's optimizer recurses into nested calls, and its stack is exceeded at a few hundred; an
aggregation of an array is one call, however many elements there are.
"""

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial, reduce
from typing import Any, ClassVar, TypeAlias

import msgspec
import pyspark.sql.functions as F
from pyspark.sql import Column

import genus.filters.internal as x
from genus.filters.internal import OPPOSITE, as_test, normalize, read_pattern, round_to_float32, type_of
from genus.model.internal import INT64_MIN, int_range
from genus.model.types import AttributeType, ChoiceType, DurationType, FloatType, IntType, TimeType
from genus.targets._compiler import Compiler

MAX_HEIGHT = 48
"""Arithmetic that is nested higher is an aggregation."""
_FEW = 32
FLOOR_OPERATORS = frozenset({"//", "%"})


def must_aggregate(node: x.Arithmetic) -> bool:
    """Whether a chain is nested too high, or uses a computed operand several times, which doubles at each level."""
    uses_floor = any(step.op in FLOOR_OPERATORS for step in node.steps)
    return _height(node) > MAX_HEIGHT or (uses_floor and not _is_flat(node))


def _height(node: x.Expression) -> int:
    """The number of nested calls that an expression becomes, if each step of a chain is a call on the one before."""
    if isinstance(node, x.Arithmetic):
        above = range(len(node.steps) - 1, -1, -1)
        steps = (_height(step.operand) + after for step, after in zip(node.steps, above, strict=True))
        return 1 + max(_height(node.first) + len(node.steps) - 1, *steps)
    return 1 + max(map(_height, node.children()), default=0)


def _is_flat(node: x.Arithmetic) -> bool:
    """Return whether there is one step, on attributes and constants."""
    values = [node.first, *(step.operand for step in node.steps)]
    inner = [value.operand if isinstance(value, x.ToFloat | x.Micros) else value for value in values]
    return len(node.steps) == 1 and all(isinstance(value, x.AttributeRef | x.Literal) for value in inner)


def aggregate_steps(
    first: Column, signs: Sequence[str], operands: Sequence[Column], operators: Mapping[str, Callable[..., Column]]
) -> Column:
    """Return the steps of a chain as an aggregation of the array of its operands, each with the letter of its sign."""
    letters = {sign: chr(ord("a") + number) for number, sign in enumerate(dict.fromkeys(signs))}

    def step(result: Column, element: Column) -> Column:
        *others, last = letters
        operand = element["operand"] if others else element
        made = operators[last](result, operand)
        for sign in others:
            made = F.when(element["sign"] == F.lit(letters[sign]), operators[sign](result, operand)).otherwise(made)
        return made

    elements = _with_signs(operands, [letters[sign] for sign in signs]) if len(letters) > 1 else F.array(*operands)
    return F.aggregate(elements, first, step)


def _with_signs(operands: Sequence[Column], letters: Sequence[str]) -> Column:
    """Return an array of operands with the letters of their signs.

    Of many, letters are taken from one text, as making a column costs a call of Java. Of few, they are constants: a
    function of an array within another costs rounds of Spark's analyzer, which ends after 100.
    """
    if len(operands) <= _FEW:
        pairs = zip(operands, letters, strict=True)
        return F.array(*(F.struct(one.alias("operand"), F.lit(letter).alias("sign")) for one, letter in pairs))
    text = F.lit("".join(letters))

    def pair(operand: Column, position: Column) -> Column:
        return F.struct(operand.alias("operand"), F.substr(text, position + F.lit(1), F.lit(1)).alias("sign"))

    return F.transform(F.array(*operands), pair)


def floor_remainder(left: Column, right: Column) -> Column:
    """`left % right`, NULL for a divisor of zero."""
    remainder = F.try_mod(left, right)
    return F.when(_signs_differ(remainder, right), remainder + right).otherwise(remainder)


def floor_quotient(left: Column, right: Column) -> Column:
    """`left // right` of bigint, NULL for a divisor of zero and for a result that does not fit."""
    overflows = (left == F.lit(INT64_MIN)) & (right == F.lit(-1))
    divisor = F.when((right != F.lit(0)) & ~overflows, right)
    quotient = F.call_function("div", left, divisor)
    return F.when(_signs_differ(F.try_mod(left, divisor), divisor), quotient - F.lit(1)).otherwise(quotient)


Use = Callable[[Column], Column]


def _repeat(value: Column, use: Use) -> Column:
    return use(value)


def float_floor_quotient(left: Column, right: Column, let: Callable[[Column, Use], Column] = _repeat) -> Column:
    """`left // right` of double, by the steps of Python; NULL for a divisor of zero.

    `let` is `compute_once` where that is not within another one.
    """

    def divide(remainder: Column) -> Column:
        near = F.try_divide(left - remainder, right)
        return let(F.when(_signs_differ(remainder, right), near - F.lit(1.0)).otherwise(near), round_down)

    def round_down(near: Column) -> Column:
        """A double from 2**53 on is an integer, and `floor` gives a bigint."""
        whole = F.when(F.abs(near) < F.lit(2.0**53), F.floor(near).cast("double")).otherwise(near)
        return let(whole, lambda found: F.when(near - found > F.lit(0.5), found + F.lit(1.0)).otherwise(found))

    return let(F.try_mod(left, right), divide)


def compute_once(value: Column, use: Use) -> Column:
    """Return what a function makes of a value that it uses several times, and that is computed once."""
    return F.get(F.transform(F.array(value), use), F.lit(0))


def _signs_differ(remainder: Column, right: Column) -> Column:
    return (remainder != F.lit(0)) & ((remainder < F.lit(0)) != (right < F.lit(0)))


COMPARISONS: Mapping[str, Callable[[Column, Column], Column]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

FIRST_TIME_FOR_FILES = datetime(1900, 1, 1, tzinfo=UTC)
"""Spark passes earlier times to the reader in the Julian calendar, which changes some days."""

_INTEGERS = {8: "tinyint", 16: "smallint", 32: "int", 64: "bigint"}
_OPPOSITE = {**OPPOSITE, "in": "not in"}
_PASSED_BY_NAN = frozenset({"!=", ">", ">=", "not in"})


class StoredTest(msgspec.Struct, frozen=True):
    """A test of a stored column: `attribute op constants`; only `in` and `not in` have several constants."""

    attribute: x.AttributeRef
    op: str
    constants: tuple[Any, ...]

    def on(self, column: Column) -> Column:
        """Return the test as a column, true where the attribute is known and passes it."""
        type_ = self.attribute.type
        assert type_ is not None
        among = _among_floats if isinstance(type_, FloatType) else _among
        match self.op:
            case "in":
                return among(column, self.constants, type_)
            case "not in":
                test = ~among(column, self.constants, type_)
            case _:
                test = COMPARISONS[self.op](column, stored_constant(self.constants[0], type_))
        guarded = isinstance(type_, FloatType) and self.op in _PASSED_BY_NAN
        return test & (column <= stored_constant(math.inf, type_)) if guarded else test


def _among(column: Column, constants: Iterable[Any], type_: AttributeType) -> Column:
    return column.isin(*(stored_constant(constant, type_) for constant in constants))


def _among_floats(column: Column, constants: tuple[float, ...], type_: AttributeType) -> Column:
    """`IN`, and for zero the range from -0.0 to 0.0: Spark would drop one of the two in a list."""
    others = [constant for constant in constants if constant != 0.0]
    zero = column.between(stored_constant(-0.0, type_), stored_constant(0.0, type_))
    if not others:
        return zero
    found = _among(column, others, type_)
    return found if len(others) == len(constants) else found | zero


def reaches_files(node: x.Predicate) -> bool:
    """Return whether all of a bound predicate can be tested on files."""
    match node:
        case x.And(operands) | x.Or(operands):
            return all(map(reaches_files, operands))
        case x.Not(operand):
            return reaches_files(operand)
        case x.Present():
            return True
        case x.TextTest(op, item):
            return op != "like" and isinstance(item, x.AttributeRef)
    return stored_test(node, True) is not None and stored_test(node, False) is not None


def stored_test(node: x.Predicate, wanted: bool = True) -> StoredTest | None:
    """A comparison of an attribute with constants, or its opposite, in the column's own type; None if it is none.

    >>> test = stored_test(x.Compare(">", x.AttributeRef("ratio", FloatType(32)), x.Literal(0.1, FloatType())))
    >>> test.op, test.constants
    ('>=', (0.10000000149011612,))
    """
    match as_test(node):
        case x.AttributeRef() as attribute, op, constant if op in _OPPOSITE:
            constants = constant if op == "in" else (constant,)
            return _convert_constants(StoredTest(attribute, op if wanted else _OPPOSITE[op], constants))
    return None


def _convert_constants(test: StoredTest) -> StoredTest | None:
    match test.attribute.type:
        case IntType(bits, signed):
            low, high = int_range(_stored_bits(bits, signed), True)
            return test if all(low <= constant <= high for constant in test.constants) else None
        case FloatType(64):
            return _with_zero_for_files(test)
        case FloatType(32):
            return None if (fitted := _in_32_bits(test)) is None else _with_zero_for_files(fitted)
        case TimeType():
            return test if min(test.constants) >= FIRST_TIME_FOR_FILES else None
        case DurationType():
            return None  # files of lakes have microseconds, which frames show as intervals
    return test


def _in_32_bits(test: StoredTest) -> StoredTest | None:
    """The test with constants of 32 bits; a bound between two of them moves to the nearest; None for an equality."""
    nearest = tuple(map(round_to_float32, test.constants))
    if nearest == test.constants:
        return test
    if test.op[0] not in "<>":
        return None
    upwards = nearest[0] > test.constants[0]
    op = ("<" if upwards else "<=") if test.op[0] == "<" else (">=" if upwards else ">")
    return StoredTest(test.attribute, op, nearest)


def _with_zero_for_files(test: StoredTest) -> StoredTest:
    """Return the test with the zero that finds both zeros where -0.0 is less than 0.0."""
    match test.op, test.constants:
        case "==", (0.0,):
            return StoredTest(test.attribute, "in", test.constants)
        case "<=", (0.0,):
            return StoredTest(test.attribute, "<=", (0.0,))
        case ">=", (0.0,):
            return StoredTest(test.attribute, ">=", (-0.0,))
    return test


def _stored_bits(bits: int, signed: bool) -> int:
    """The width of the stored type: unsigned integers have the next wider one, as Spark has no unsigned types."""
    return bits if signed else 2 * bits


def stored_constant(value: Any, type_: AttributeType) -> Column:
    """Return a constant of an attribute's stored type.

    A time is made from its microseconds, as Spark reads a `datetime` before 1582 in the Julian calendar.
    """
    match type_:
        case IntType(bits, signed):
            return F.lit(value).cast(_INTEGERS[_stored_bits(bits, signed)])
        case FloatType(bits):
            return F.lit(value).cast("float" if bits == 32 else "double")
        case TimeType():
            return F.timestamp_micros(F.lit(normalize(value, type_)).cast("bigint"))
        case ChoiceType() if isinstance(value, int):
            return F.lit(value).cast("bigint")
    return F.lit(value)


ColumnOf: TypeAlias = Callable[[str], Column]
"""A function that gives the stored column of an attribute, by name."""
LiteralOf: TypeAlias = Callable[[x.Literal], Column]
"""A function that gives the column of a constant, in the type it is computed in."""


class SparkCompiler(Compiler):
    """Translates predicates to columns that are true where the predicate is `wanted`, and values to computed columns.

    With `literal`, constants are columns of parameters instead of literals: bigint for integers, times and durations,
    double for floats, and the stored type for the rest. No test is then made on files.
    """

    target: ClassVar[str] = "spark"
    operators: ClassVar[Mapping[str, Callable[..., Column]]] = {
        "+": F.try_add, "-": F.try_subtract, "*": F.try_multiply, "/": F.try_divide,
        "//": floor_quotient, "%": floor_remainder,
        **COMPARISONS,
        "startswith": F.startswith, "endswith": F.endswith, "contains": F.contains, "like": F.rlike,
        "abs": F.abs, "length": F.length,
    }  # fmt: skip
    """Functions of columns; those of arithmetic give NULL where there is no result."""

    def __init__(self, column: ColumnOf = F.col, literal: LiteralOf | None = None) -> None:
        self._column = column
        self._literal = literal

    # -- predicates: true where the predicate is `wanted` --------------------------------------------------------------

    def visit_And(self, node: x.And, wanted: bool = True) -> Column:
        """All are true; for false, one is false."""
        return (all_of_these if wanted else any_of_these)([self.visit(part, wanted) for part in node.operands])

    def visit_Or(self, node: x.Or, wanted: bool = True) -> Column:
        """One is true; for false, all are false."""
        return (any_of_these if wanted else all_of_these)([self.visit(part, wanted) for part in node.operands])

    def visit_Not(self, node: x.Not, wanted: bool = True) -> Column:
        """Return the operand with the opposite result."""
        answer: Column = self.visit(node.operand, not wanted)
        return answer

    def visit_Present(self, node: x.Present, wanted: bool = True) -> Column:
        """`IS NOT NULL`; NaN is a value."""
        column = self._column(node.attribute.name)
        return column.isNotNull() if wanted else column.isNull()

    def visit_Compare(self, node: x.Compare, wanted: bool = True) -> Column:
        """Return a comparison or its opposite, on the stored column where possible."""
        stored = self._stored_column(node, wanted)
        if stored is not None:
            return stored
        left, right = self.visit(node.left), self.visit(node.right)
        test = self.operators[node.op if wanted else OPPOSITE[node.op]](left, right)
        return all_of_these([test, *_number(node.left, left), *_number(node.right, right)])

    def visit_OneOf(self, node: x.OneOf, wanted: bool = True) -> Column:
        """`IN`, on the stored column where possible."""
        stored = self._stored_column(node, wanted)
        if stored is not None:
            return stored
        item, *options = [_with_one_zero(value, self.visit(value)) for value in (node.item, *node.options)]
        found = item.isin(*options)
        return found if wanted else all_of_these([~found, *_number(node.item, item)])

    def visit_TextTest(self, node: x.TextTest, wanted: bool = True) -> Column:
        """Return a test for a literal part of a text; a pattern becomes a regular expression of Java."""
        part = node.part
        if node.op == "like" and self._literal is None:
            part = x.Literal(java_regex(str(part.value)), part.type)
        test = self.operators[node.op](self.visit(node.item), self.visit(part))
        return test if wanted else ~test

    def _stored_column(self, node: x.Predicate, wanted: bool) -> Column | None:
        """Return the test on the stored column; None if it has no such form, or constants are parameters."""
        test = stored_test(node, wanted) if self._literal is None else None
        return None if test is None else test.on(self._column(test.attribute.name))

    # -- values, as they are computed ----------------------------------------------------------------------------------

    def visit_AttributeRef(self, node: x.AttributeRef) -> Column:
        """The column in the type it is computed in."""
        column = self._column(node.name)
        match node.type:
            case IntType():
                return column.cast("bigint")
            case FloatType():
                return column.cast("double")
            case TimeType():
                return F.unix_micros(column)
            case DurationType():
                return micros(column)
        return column

    def visit_Literal(self, node: x.Literal) -> Column:
        """Return the constant, or its parameter."""
        if self._literal is not None:
            return self._literal(node)
        value = normalize(node.value, node.type)
        return _bigint(value) if type(value) is int else F.lit(value)

    def visit_ToFloat(self, node: x.ToFloat) -> Column:
        """Return a cast to double, which rounds to the nearest."""
        operand: Column = self.visit(node.operand)
        return operand.cast("double")

    def visit_Micros(self, node: x.Micros) -> Column:
        """Return the operand: times and durations are computed in microseconds already."""
        operand: Column = self.visit(node.operand)
        return operand

    def visit_Negation(self, node: x.Negation) -> Column:
        """Zero minus an integer, which overflows where negation does; a float's sign turned."""
        operand: Column = self.visit(node.operand)
        return -operand if isinstance(type_of(node), FloatType) else F.try_subtract(_bigint(0), operand)

    def visit_Function(self, node: x.Function) -> Column:
        """The length in code points or bytes; an integer's absolute value by way of 20 digits, where all have one."""
        operand: Column = self.visit(node.operand)
        if node.op == "length":
            return self.operators[node.op](operand).cast("bigint")
        if isinstance(type_of(node), FloatType):
            return self.operators[node.op](operand)
        return self.operators[node.op](operand.cast("decimal(20,0)")).try_cast("bigint")

    def visit_Conditional(self, node: x.Conditional) -> Column:
        """`CASE WHEN` the condition is true and `WHEN` it is false; NULL where it is neither."""
        chosen = F.when(self.visit(node.condition, True), self.visit(node.then))
        if node.otherwise is None:
            return chosen
        return chosen.when(self.visit(node.condition, False), self.visit(node.otherwise))

    def visit_Coalesce(self, node: x.Coalesce) -> Column:
        """`COALESCE`, of floats where they are numbers."""
        operands = [(operand, self.visit(operand)) for operand in node.operands]
        numbers = [(_number(operand, column), column) for operand, column in operands]
        return F.coalesce(*(F.when(tests[0], column) if tests else column for tests, column in numbers))

    def visit_Arithmetic(self, node: x.Arithmetic) -> Column:
        """Return the steps from left to right, all on integers or all on floats; only floats are divided by `/`."""
        first: Column = self.visit(node.first)
        operands = [self.visit(step.operand) for step in node.steps]
        signs = [step.op for step in node.steps]
        is_float = isinstance(type_of(node), FloatType)
        if must_aggregate(node):
            floats = {"//": float_floor_quotient} if is_float else {}
            return aggregate_steps(first, signs, operands, {**self.operators, **floats})
        floats = {"//": partial(float_floor_quotient, let=compute_once)} if is_float else {}
        operators = {**self.operators, **floats}
        return reduce(
            lambda result, step: operators[step[0]](result, step[1]), zip(signs, operands, strict=True), first
        )


def java_regex(pattern: str) -> str:
    """Return the regular expression of Java for a pattern of `like`."""
    return rf"\A(?s:{read_pattern(pattern).regex()})\z"


def all_of_these(tests: Sequence[Column]) -> Column:
    """True where all are."""
    return _join(operator.and_, tests)


def any_of_these(tests: Sequence[Column]) -> Column:
    """True where one is."""
    return _join(operator.or_, tests)


def _join(combine: Callable[[Column, Column], Column], tests: Sequence[Column]) -> Column:
    """The tests as a balanced tree: thousands of them nested one in another would exceed the optimizer's stack."""
    if len(tests) <= 2:
        return reduce(combine, tests)
    middle = len(tests) // 2
    return combine(_join(combine, tests[:middle]), _join(combine, tests[middle:]))


def _number(node: x.Value, column: Column) -> list[Column]:
    """Return the test that a value is known: a computed or stored float must not be NaN."""
    may_be_nan = isinstance(type_of(node), FloatType) and not isinstance(node, x.Literal)
    return [column <= F.lit(math.inf)] if may_be_nan else []


def _with_one_zero(node: x.Value, column: Column) -> Column:
    """Floats without -0.0, which `IN` distinguishes from 0.0 when it has many options."""
    return column + F.lit(0.0) if isinstance(type_of(node), FloatType) else column


def _bigint(value: int) -> Column:
    return F.lit(value).cast("bigint")


def micros(span: Column) -> Column:
    """Return the microseconds of an interval, exactly: from its whole minutes and the remaining seconds."""
    minutes = span.cast("interval minute").cast("bigint")
    seconds = F.extract(F.lit("SECOND"), span)
    return minutes * _bigint(60_000_000) + (seconds * F.lit(1_000_000)).cast("bigint")
