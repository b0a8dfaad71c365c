"""Arithmetic that Spark has no function for: floor division, and chains that are too long to be nested calls.

Columns are bigint or double. `//` rounds down and `%` has the sign of the divisor, as in Python; Java's remainder is
exact and has the sign of the dividend, so one correction follows it. Spark's optimizer recurses into nested calls, and
its stack is exceeded at a few hundred; an aggregation of an array is one call, however many elements there are.
"""

from collections.abc import Callable, Mapping, Sequence

import pyspark.sql.functions as F
from pyspark.sql import Column

import genus.filters.internal as x
from genus.model.internal import INT64_MIN

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
