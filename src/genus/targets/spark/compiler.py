"""Predicates as columns of Spark.

A predicate becomes a column that is true where the predicate is, and false or NULL elsewhere. Negations go down to the
comparisons on the way, so unknown may count as false in each of them, and none is hidden from the files. Values are
computed as bigint (integers; times and durations in microseconds) or double. Spark holds NaN for the largest number, so
`<= Infinity` keeps it out.
"""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import ClassVar, TypeAlias

import pyspark.sql.functions as F
from pyspark.sql import Column

import genus.filters.expression as x
from genus.filters.bind import type_of
from genus.filters.covering import OPPOSITE
from genus.filters.evaluate import plain
from genus.model import DurationType, FloatType, IntType, TimeType
from genus.targets.compiler import Compiler
from genus.targets.spark.stored import COMPARISONS, stored_test

ColumnOf: TypeAlias = Callable[[str], Column]
"""How the stored column of an attribute is reached, by its name."""
LiteralOf: TypeAlias = Callable[[x.Literal], Column]
"""How a constant is written, in the type it is computed in."""


class SparkCompiler(Compiler):
    """Turns predicates into columns that are true where the predicate is `wanted`, and values into what is computed.

    `literal` says how constants are written if not as such: as columns of parameters, say, which are bigint for
    integers, times and durations, double for floats, and the stored type for the rest. Nothing is then tested on files.
    """

    target: ClassVar[str] = "spark"
    operators: ClassVar[Mapping[str, Callable[[Column, Column], Column]]] = {
        "+": F.try_add, "-": F.try_subtract, "*": F.try_multiply, "/": F.try_divide,
        **COMPARISONS,
        "startswith": F.startswith, "endswith": F.endswith, "contains": F.contains,
    }  # fmt: skip
    """Functions of two columns; those of arithmetic give NULL where there is no result."""

    def __init__(self, column: ColumnOf = F.col, literal: LiteralOf | None = None) -> None:
        self._column = column
        self._literal = literal

    # -- predicates: true where the predicate is `wanted` --------------------------------------------------------------

    def visit_And(self, node: x.And, wanted: bool = True) -> Column:
        """All, or when asked whether it is false: any false."""
        return (all_of_these if wanted else any_of_these)([self.visit(part, wanted) for part in node.operands])

    def visit_Or(self, node: x.Or, wanted: bool = True) -> Column:
        """Any, or when asked whether it is false: all false."""
        return (any_of_these if wanted else all_of_these)([self.visit(part, wanted) for part in node.operands])

    def visit_Not(self, node: x.Not, wanted: bool = True) -> Column:
        """The other question."""
        answer: Column = self.visit(node.operand, not wanted)
        return answer

    def visit_Present(self, node: x.Present, wanted: bool = True) -> Column:
        """`IS NOT NULL`; NaN is a value."""
        column = self._column(node.attribute.name)
        return column.isNotNull() if wanted else column.isNull()

    def visit_Compare(self, node: x.Compare, wanted: bool = True) -> Column:
        """A comparison or its opposite, on the column as it is stored where that can be."""
        stored = self._stored(node, wanted)
        if stored is not None:
            return stored
        left, right = self.visit(node.left), self.visit(node.right)
        test = self.operators[node.op if wanted else OPPOSITE[node.op]](left, right)
        return all_of_these([test, *_number(node.left, left), *_number(node.right, right)])

    def visit_OneOf(self, node: x.OneOf, wanted: bool = True) -> Column:
        """`IN`, on the column as it is stored where that can be."""
        stored = self._stored(node, wanted)
        if stored is not None:
            return stored
        item, *options = [_with_one_zero(value, self.visit(value)) for value in (node.item, *node.options)]
        found = item.isin(*options)
        return found if wanted else all_of_these([~found, *_number(node.item, item)])

    def visit_TextTest(self, node: x.TextTest, wanted: bool = True) -> Column:
        """A test for a literal part of a text."""
        test = self.operators[node.op](self.visit(node.item), self.visit(node.part))
        return test if wanted else ~test

    def _stored(self, node: x.Predicate, wanted: bool) -> Column | None:
        """The test on the bare column; None if it has no such form, or constants are not written as constants."""
        test = stored_test(node, wanted) if self._literal is None else None
        return None if test is None else test.on(self._column(test.attribute.name))

    # -- values, as they are computed ----------------------------------------------------------------------------------

    def visit_Attribute(self, node: x.Attribute) -> Column:
        """The column, widened."""
        column = self._column(node.name)
        match node.type:
            case IntType():
                return column.cast("bigint")
            case FloatType():
                return column.cast("double")
            case TimeType():
                return F.unix_micros(column)
            case DurationType():
                return _micros(column)
        return column

    def visit_Literal(self, node: x.Literal) -> Column:
        """The constant, or what stands for it."""
        if self._literal is not None:
            return self._literal(node)
        value = plain(node.value, node.type)
        return _bigint(value) if type(value) is int else F.lit(value)

    def visit_ToFloat(self, node: x.ToFloat) -> Column:
        """A cast to double, which rounds to the nearest."""
        operand: Column = self.visit(node.operand)
        return operand.cast("double")

    def visit_Micros(self, node: x.Micros) -> Column:
        """Nothing to do: times and durations are computed in microseconds anyway."""
        operand: Column = self.visit(node.operand)
        return operand

    def visit_Negation(self, node: x.Negation) -> Column:
        """Zero minus an integer, which overflows where negation does; a float's sign turned."""
        operand: Column = self.visit(node.operand)
        return -operand if isinstance(type_of(node), FloatType) else F.try_subtract(_bigint(0), operand)

    def visit_Arithmetic(self, node: x.Arithmetic) -> Column:
        """An operation on two integers or two floats; only floats are divided."""
        return self.operators[node.op](self.visit(node.left), self.visit(node.right))


def all_of_these(tests: Sequence[Column]) -> Column:
    """True where all are."""
    return reduce(operator.and_, tests)


def any_of_these(tests: Sequence[Column]) -> Column:
    """True where one is."""
    return reduce(operator.or_, tests)


def _number(node: x.Value, column: Column) -> list[Column]:
    """What must hold besides for a value to be known: a float that is computed or stored may be NaN."""
    may_be_nan = isinstance(type_of(node), FloatType) and not isinstance(node, x.Literal)
    return [column <= F.lit(math.inf)] if may_be_nan else []


def _with_one_zero(node: x.Value, column: Column) -> Column:
    """Floats without -0.0, which `IN` tells from 0.0 where it looks for many options in a set."""
    return column + F.lit(0.0) if isinstance(type_of(node), FloatType) else column


def _bigint(value: int) -> Column:
    return F.lit(value).cast("bigint")


def _micros(span: Column) -> Column:
    """The microseconds of an interval, exactly: its whole minutes, and the seconds over them."""
    minutes = span.cast("interval minute").cast("bigint")
    seconds = F.extract(F.lit("SECOND"), span)
    return minutes * _bigint(60_000_000) + (seconds * F.lit(1_000_000)).cast("bigint")
