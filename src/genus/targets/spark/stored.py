"""Tests on columns as they are stored: `attribute op constants`, the constants being of the column's own type.

Spark hands such tests to the Parquet reader, which passes over parts of files by their statistics and dictionaries.
These hold -0.0 for less than 0.0, which predicates do not; and Spark holds NaN for the largest number. So zeros are
chosen by the operator, and what NaN would pass is bounded by infinity.
"""

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
import pyspark.sql.functions as F
from pyspark.sql import Column

import genus.filters.expression as x
from genus.filters.covering import OPPOSITE, as_test
from genus.filters.evaluate import plain, round_to_float32
from genus.model import AttributeType, ChoiceType, FloatType, IntType, TimeType
from genus.model.types import int_range

COMPARISONS: Mapping[str, Callable[[Column, Column], Column]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

FIRST_TIME_FOR_FILES = datetime(1900, 1, 1, tzinfo=UTC)
"""Spark hands earlier times to the reader in the Julian calendar, in which some days do not come back as they were."""

_INTEGERS = {8: "tinyint", 16: "smallint", 32: "int", 64: "bigint"}
_OPPOSITE = {**OPPOSITE, "in": "not in"}
_PASSED_BY_NAN = frozenset({"!=", ">", ">=", "not in"})


class StoredTest(msgspec.Struct, frozen=True):
    """`attribute op constants`; `in` and `not in` have any number of constants, the rest one."""

    attribute: x.Attribute
    op: str
    constants: tuple[Any, ...]

    def on(self, column: Column) -> Column:
        """The test as a column, true where the attribute is known and passes."""
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
    """`IN`, and for zero the range from -0.0 to 0.0: of the two in one list, Spark would drop one."""
    others = [constant for constant in constants if constant != 0.0]
    zero = column.between(stored_constant(-0.0, type_), stored_constant(0.0, type_))
    if not others:
        return zero
    found = _among(column, others, type_)
    return found if len(others) == len(constants) else found | zero


def reaches_files(node: x.Predicate) -> bool:
    """Whether all of a bound predicate can be tested on files."""
    match node:
        case x.And(operands) | x.Or(operands):
            return all(map(reaches_files, operands))
        case x.Not(operand):
            return reaches_files(operand)
        case x.Present() | x.TextTest():
            return True
    return stored_test(node, True) is not None and stored_test(node, False) is not None


def stored_test(node: x.Predicate, wanted: bool = True) -> StoredTest | None:
    """A comparison of an attribute with constants, or its opposite, in the column's own type; None if it has none.

    >>> test = stored_test(x.Compare(">", x.Attribute("ratio", FloatType(32)), x.Literal(0.1, FloatType())))
    >>> test.op, test.constants
    ('>=', (0.10000000149011612,))
    """
    match as_test(node):
        case x.Attribute() as attribute, op, constant if op in _OPPOSITE:
            constants = constant if op == "in" else (constant,)
            return _fitted(StoredTest(attribute, op if wanted else _OPPOSITE[op], constants))
    return None


def _fitted(test: StoredTest) -> StoredTest | None:
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
    return test


def _in_32_bits(test: StoredTest) -> StoredTest | None:
    """The test with numbers of 32 bits; a bound between two of them moves to the nearest, but nothing equals it."""
    nearest = tuple(map(round_to_float32, test.constants))
    if nearest == test.constants:
        return test
    if test.op[0] not in "<>":
        return None
    upwards = nearest[0] > test.constants[0]
    op = ("<" if upwards else "<=") if test.op[0] == "<" else (">=" if upwards else ">")
    return StoredTest(test.attribute, op, nearest)


def _with_zero_for_files(test: StoredTest) -> StoredTest:
    """The test with the zero that loses nothing where -0.0 is less than 0.0."""
    match test.op, test.constants:
        case "==", (0.0,):
            return StoredTest(test.attribute, "in", test.constants)
        case "<=", (0.0,):
            return StoredTest(test.attribute, "<=", (0.0,))
        case ">=", (0.0,):
            return StoredTest(test.attribute, ">=", (-0.0,))
    return test


def _stored_bits(bits: int, signed: bool) -> int:
    """Unsigned integers are stored in the next wider type, for Spark has no unsigned ones."""
    return bits if signed else 2 * bits


def stored_constant(value: Any, type_: AttributeType) -> Column:
    """A constant of an attribute's stored type.

    A time is made from its microseconds, for a `datetime` before 1582 would be taken for one of the Julian calendar.
    """
    match type_:
        case IntType(bits, signed):
            return F.lit(value).cast(_INTEGERS[_stored_bits(bits, signed)])
        case FloatType(bits):
            return F.lit(value).cast("float" if bits == 32 else "double")
        case TimeType():
            return F.timestamp_micros(F.lit(plain(value, type_)).cast("bigint"))
        case ChoiceType() if isinstance(value, int):
            return F.lit(value).cast("bigint")
    return F.lit(value)
