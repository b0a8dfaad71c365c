"""Translates the predicate of a subscription to C, for the events of one family as a device holds them.

As in the Python target, code is made for either "is it true?" or "is it false?", both two-valued. Comparisons with
constants become intervals of integers, floats are compared by their keys, so that no floating point is needed.
Integers are computed in 32 bits where their bounds allow it, else in 64, and with a check where 64 may not be enough.
Arithmetic of floats is left to the receiver.
"""

import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

import msgspec

import genus.filters.internal as x
from genus.filters.internal import DIVISIONS, OPPOSITE, evaluate, evaluate_value, normalize, read_pattern, type_of
from genus.model import Event
from genus.model.internal import int_range
from genus.model.types import AttributeType, BoolType, BytesType, ChoiceType, FloatType, IntType, TextType
from genus.targets._compiler import Compiler
from genus.targets.c._condition import (
    ALWAYS,
    INT64,
    NEVER,
    Choice,
    Condition,
    Flag,
    Intervals,
    Key,
    Number,
    Operand,
    Run,
    all_of_these,
    any_of_these,
    common_type,
    complement,
    exact_intervals,
    float_intervals,
    float_key,
    integer,
    integer_intervals,
    key_within,
    merge,
    numbers_of,
    opposite,
    present,
    test,
    within,
)
from genus.targets.python import combine_bounds

_MIRRORED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_MAX_LEVELS = 12
"""Values nested deeper than this are kept in variables: compilers have limits for nested parentheses."""
MAX_LENGTH = 0xFFFF
"""The most bytes of a text."""
ANY_TEXT, ONE_LETTER = 0xFF, 0xFE
"""The wildcards in a pattern of `like` on a device; no byte of a text in UTF-8 has these values."""


class NotOnDevice(Exception):
    """A part of a predicate that a device cannot test; the message is the reason."""


class Member(msgspec.Struct, frozen=True):
    """An attribute in the event of a device: the number of its presence bit, its member in C, its agreed type."""

    number: int
    name: str
    type: AttributeType


class Constants:
    """State: the texts and bytes that generated code compares with, each once, as arrays in flash."""

    def __init__(self) -> None:
        self._names: dict[bytes, str] = {}

    def name(self, contents: bytes) -> str:
        """Return the name of the array with these contents."""
        return self._names.setdefault(contents, f"constant_{len(self._names)}")

    @property
    def size(self) -> int:
        """The bytes of all arrays."""
        return sum(max(1, len(contents)) for contents in self._names)

    def definitions(self, code: str) -> list[str]:
        """Return the arrays that some code uses, as definitions in C."""
        used = set(re.findall(r"\bconstant_\d+\b", code))
        return [
            f"static const uint8_t {name}[{max(1, len(contents))}] GENUS_ROM = "
            f"{{{', '.join(f'0x{byte:02X}' for byte in contents or bytes(1))}}};"
            for contents, name in self._names.items()
            if name in used
        ]


class CCompiler(Compiler):
    """Translates one predicate; `members` are the attributes that the device keeps, by their names in the predicate.

    Names that are missing there are attributes that no event of the family has.
    """

    target: ClassVar[str] = "c"
    operators: ClassVar[Mapping[str, str]] = {
        "+": "genus_add64",
        "-": "genus_subtract64",
        "*": "genus_multiply64",
        "//": "genus_floor_divide64",
        "%": "genus_remainder64",
        "abs": "genus_absolute",
        "length": "genus_count_letters",
        **{op: op for op in x.COMPARISONS},
        "startswith": "genus_starts_with",
        "endswith": "genus_ends_with",
        "contains": "genus_contains",
        "like": "genus_is_like",
    }
    unsupported: ClassVar[Mapping[type[x.Expression] | str, str]] = {
        "/": "it is a division of floats, and devices have no floating point",
        x.Arithmetic: "of floats; integers, times and durations are computed",
    }

    def __init__(self, members: Mapping[str, Member], constants: Constants) -> None:
        self._members = members
        self._constants = constants
        self.variables: list[str] = []
        """The variables of 64 bits that the code sets."""

    # -- predicates: conditions that are true when the predicate is `wanted` -----------------------------------------

    def visit_And(self, node: x.And, wanted: bool) -> Condition:
        """All are true; for false, one is false."""
        return (all_of_these if wanted else any_of_these)([self.visit(part, wanted) for part in node.operands])

    def visit_Or(self, node: x.Or, wanted: bool) -> Condition:
        """One is true; for false, all are false."""
        return (any_of_these if wanted else all_of_these)([self.visit(part, wanted) for part in node.operands])

    def visit_Not(self, node: x.Not, wanted: bool) -> Condition:
        """Return the operand with the opposite result."""
        found: Condition = self.visit(node.operand, not wanted)
        return found

    def visit_Present(self, node: x.Present, wanted: bool) -> Condition:
        """Return the presence bit."""
        member = self._members.get(node.attribute.name)
        if member is None:
            return NEVER if wanted else ALWAYS
        return present(member.number, wanted)

    def visit_Compare(self, node: x.Compare, wanted: bool) -> Condition:
        """Return a comparison with a constant as intervals, or of two values."""
        if _is_constant(node):
            return ALWAYS if evaluate(node, Event()) is wanted else NEVER
        for side in ("left", "right"):
            if _is_choice_of_others(chosen := getattr(node, side)):
                return self._test_each(node, side, chosen, wanted)
        op = node.op if wanted else OPPOSITE[node.op]
        if _is_constant(node.left):
            return self._compare_with(node.right, _MIRRORED[op], _value_of(node.left))
        if _is_constant(node.right):
            return self._compare_with(node.left, op, _value_of(node.right))
        return self._compare_values(op, self.visit(node.left), self.visit(node.right))

    def visit_OneOf(self, node: x.OneOf, wanted: bool) -> Condition:
        """Membership in a constant set: of numbers as intervals, of others one by one."""
        if _is_constant(node.item):
            return ALWAYS if evaluate(node, Event()) is wanted else NEVER
        if _is_choice_of_others(node.item):
            return self._test_each(node, "item", node.item, wanted)
        options = [_value_of(option) for option in node.options]
        item = self._comparable(node.item)
        if isinstance(item, Number | Key):
            parts = merge(part for option in options for part in _intervals(item, "==", option))
            return self._in_intervals(item, parts if wanted else complement(parts, _span(item)))
        tests = [self._equals(item, option) for option in options]
        code = tests[0] if len(tests) == 1 else f"({' || '.join(tests)})"
        return all_of_these([item.needs, test(code if wanted else f"!{code}")])

    def visit_TextTest(self, node: x.TextTest, wanted: bool) -> Condition:
        """Return a function of the runtime."""
        if _is_constant(node.item):
            return ALWAYS if evaluate(node, Event()) is wanted else NEVER
        if _is_choice_of_others(node.item):
            return self._test_each(node, "item", node.item, wanted)
        item = self.visit(node.item)
        assert isinstance(item, Run)
        part = str(node.part.value)
        contents = _encode_pattern(part) if node.op == "like" else part.encode()
        code = f"{self.operators[node.op]}({item.code}, {self._constant(contents)})"
        return all_of_these([item.needs, test(code if wanted else f"!{code}")])

    def _test_each(self, node: x.Predicate, field: str, chosen: x.Value, wanted: bool) -> Condition:
        """A test of a choice of texts, bytes, bools or choices: the test of each of them where it is the chosen one."""
        return any_of_these(
            all_of_these([condition, self.visit(msgspec.structs.replace(node, **{field: value}), wanted)])
            for condition, value in self._cases(chosen)
        )

    def _cases(self, chosen: x.Value) -> list[tuple[Condition, x.Value]]:
        """Return the values of which one is chosen, each with the condition that it is, provided that it is known."""
        match chosen:
            case x.Conditional(condition, then, otherwise):
                cases = [(self.visit(condition, True), then)]
                return cases if otherwise is None else [*cases, (self.visit(condition, False), otherwise)]
            case x.Coalesce(operands):
                unknown = [opposite(self._known(operand)) for operand in operands]
                return [(all_of_these(unknown[:place]), each) for place, each in enumerate(operands)]
        raise AssertionError(f"{chosen!r} is no choice")

    def _known(self, node: x.Value) -> Condition:
        """Return the condition that a text, bytes, a bool or a choice is known."""
        if _is_choice_of_others(node):
            return any_of_these(all_of_these([each, self._known(value)]) for each, value in self._cases(node))
        if isinstance(node, x.Literal):
            return ALWAYS
        found: Operand = self.visit(node)
        return found.needs

    def _compare_with(self, node: x.Value, op: str, constant: object) -> Condition:
        if constant is None:
            return NEVER
        operand = self._comparable(node)
        if isinstance(operand, Number | Key):
            return self._in_intervals(operand, _intervals(operand, op, constant))
        if isinstance(operand, Run) and op not in ("==", "!="):
            compared = f"genus_compare({operand.code}, {self._constant(_contents(constant))})"
            return all_of_these([operand.needs, test(f"({compared} {op} 0)")])
        code = self._equals(operand, constant)
        return all_of_these([operand.needs, test(code if op == "==" else f"!{code}")])

    def _comparable(self, node: x.Value) -> Operand:
        """Return a value to compare with constants; an integer that is compared as a float stays one."""
        found: Operand = self._number(node.operand) if isinstance(node, x.ToFloat) else self.visit(node)
        return found

    def _in_intervals(self, operand: Number | Key, parts: Intervals) -> Condition:
        if not parts:
            return NEVER
        if isinstance(operand, Key):
            is_any = operand.never_nan and parts == (numbers_of(operand.bits),)
            return operand.needs if is_any else all_of_these([operand.needs, test(key_within(operand, parts))])
        code = within(operand.code, operand.ctype, parts, operand.span)
        return operand.needs if code is None else all_of_these([operand.needs, test(code)])

    def _equals(self, operand: Operand, constant: object) -> str:
        """Return a test whether a text, bytes, a bool or a choice is a constant."""
        if isinstance(operand, Run):
            return f"genus_equals({operand.code}, {self._constant(_contents(constant))})"
        if isinstance(operand, Flag):
            return operand.code if constant else f"(!{operand.code})"
        assert isinstance(operand, Choice)
        if constant not in operand.values:
            return "false"
        return f"({operand.code} == {operand.values.index(constant)}U)"

    def _constant(self, contents: bytes) -> str:
        """Return the arguments for a text or bytes to compare with: the array and its size."""
        if len(contents) > MAX_LENGTH:
            raise NotOnDevice(f"a text of a device has at most {MAX_LENGTH} bytes, but its constant {len(contents)}")
        return f"{self._constants.name(contents)}, {len(contents)}U"

    def _compare_values(self, op: str, left: Operand, right: Operand) -> Condition:
        if left.code == right.code:  # compilers warn of a value that is compared with itself
            return _compare_with_itself(op, left)
        needs = [left.needs, right.needs]
        match left, right:
            case Number(), Number() if sorted(_words(left.code)) == sorted(_words(right.code)):
                return self._compare_values(op, self._in_variable(left), right)  # as of x + y == y + x
            case Number(), Number():
                ctype = common_type(left.span, right.span)
                return all_of_these([*needs, test(f"({left.as_type(ctype)} {op} {right.as_type(ctype)})")])
            case Key(), Key():
                return all_of_these([*needs, _compare_keys(op, left, right)])
            case Run(), Run():
                return all_of_these([*needs, test(f"(genus_compare_values({left.code}, {right.code}) {op} 0)")])
            case Flag(), Flag():
                return all_of_these([*needs, test(f"({left.code} {op} {right.code})")])
            case Choice(), Choice():
                return all_of_these([*needs, test(_compare_choices(op, left, right))])
        raise AssertionError(f"a bound tree compares values of one type, not {left!r} and {right!r}")

    # -- values ------------------------------------------------------------------------------------------------------

    def visit_AttributeRef(self, node: x.AttributeRef) -> Operand:
        """Return a member of the event."""
        member = self._members.get(node.name)
        if member is None:
            return _absent(type_of(node))
        needs, code = present(member.number), f"e->{member.name}"
        match member.type:
            case IntType(bits, signed):
                return Number(code, f"{'' if signed else 'u'}int{bits}_t", int_range(bits, signed), needs)
            case FloatType(bits):
                return Key(f"genus_key{bits}({code})", bits, needs)
            case TextType() | BytesType():
                return Run(f"&{code}", needs)
            case BoolType():
                return Flag(code, needs)
            case ChoiceType(values):
                return Choice(code, values, needs)
        return Number(code, "int64_t", INT64, needs)

    def visit_Literal(self, node: x.Literal) -> Operand:
        """Return a constant within arithmetic: an integer, a time or a duration."""
        return _constant_number(normalize(node.value, node.type))

    def visit_ToFloat(self, node: x.ToFloat) -> Operand:
        """Return the key of the nearest float of 64 bits."""
        inner = self._number(node.operand)
        return Key(f"genus_key_of_integer({inner.as_type('int64_t')})", 64, inner.needs, never_nan=True)

    def visit_Micros(self, node: x.Micros) -> Operand:
        """Times and durations are held in microseconds."""
        found: Operand = self.visit(node.operand)
        return found

    def visit_Negation(self, node: x.Negation) -> Operand:
        """Minus; the smallest integer has no opposite."""
        operand = self.visit(node.operand)
        if isinstance(operand, Key):
            return msgspec.structs.replace(operand, code=f"(-{operand.code})")
        return self._compute("-", _constant_number(0), self._as_number(operand))

    def visit_Function(self, node: x.Function) -> Operand:
        """`abs` of a number, `length` of a text or bytes; of a choice of texts, that of each of them."""
        if _is_choice_of_others(node.operand):
            cases = self._cases(node.operand)
            return self._first_of([(each, x.Function(node.op, value, node.type)) for each, value in cases], False)
        operand = self.visit(node.operand)
        if isinstance(operand, Run):
            counted = self.operators["length"] if isinstance(type_of(node.operand), TextType) else "genus_count_bytes"
            return Number(f"{counted}({operand.code})", "uint16_t", int_range(16, False), operand.needs)
        if isinstance(operand, Key):
            return msgspec.structs.replace(operand, code=f"genus_absolute{operand.bits}({operand.code})")
        return self._absolute(self._as_number(operand))

    def visit_Conditional(self, node: x.Conditional) -> Operand:
        """Return the chosen number, in a variable."""
        return self._first_of(self._cases(node), isinstance(node.type, FloatType))

    def visit_Coalesce(self, node: x.Coalesce) -> Operand:
        """Return the first number that is known, in a variable."""
        return self._first_of([(ALWAYS, operand) for operand in node.operands], isinstance(node.type, FloatType))

    def _first_of(self, cases: Sequence[tuple[Condition, x.Value]], is_float: bool) -> Number | Key:
        """Return the first number that is known and whose condition is true, in a variable that the conditions set."""
        variable, conditions = self._variable(), [condition for condition, _ in cases]
        if is_float:
            keys = [self._key(value) for _, value in cases]
            codes = [(key.needs, _is_number(key), key.widened()) for key in keys]
        else:
            numbers = [self._number(value) for _, value in cases]
            codes = [(number.needs, ALWAYS, number.as_type("int64_t")) for number in numbers]
        needs = any_of_these(
            all_of_these([condition, *tests, test(f"genus_keep({code}, &{variable})")])
            for condition, (*tests, code) in zip(conditions, codes, strict=True)
        )
        if is_float:
            return Key(variable, 64, needs, never_nan=True)
        spans = [number.span for number in numbers]
        return Number(variable, "int64_t", (min(low for low, _ in spans), max(high for _, high in spans)), needs)

    def _key(self, node: x.Value) -> Key:
        """Return a float; a part without attributes is computed now."""
        if not _is_constant(node):
            found = self.visit(node)
            assert isinstance(found, Key), f"a bound tree chooses among floats, not {found!r}"
            return found
        value = _value_of(node)
        if not isinstance(value, float):
            return Key("0", 64, NEVER)
        return Key(integer(float_key(value, 64), "int64_t"), 64, never_nan=True)

    def visit_Arithmetic(self, node: x.Arithmetic) -> Operand:
        """Return the steps from left to right, in integers."""
        if isinstance(node.type, FloatType):
            raise NotOnDevice("it computes with floats, and devices have no floating point")
        result = self._number(node.first)
        for step in node.steps:
            result = self._compute(step.op, result, self._number(step.operand))
        return result

    def _number(self, node: x.Value) -> Number:
        """Return an integer; a part without attributes is computed now."""
        if _is_constant(node):
            found = evaluate_value(node, Event())
            return _constant_number(0, NEVER) if found is None else _constant_number(found)
        return self._as_number(self.visit(node))

    def _as_number(self, operand: Operand) -> Number:
        assert isinstance(operand, Number), f"a bound tree computes with numbers, not with {operand!r}"
        return operand

    def _absolute(self, operand: Number) -> Number:
        low, high = operand.span
        span = (max(low, -high, 0), max(-low, high))
        if span[1] > INT64[1]:
            return self._checked("genus_absolute_checked", operand.as_type("int64_t"), span, operand.needs)
        ctype = common_type(operand.span, span)
        bits = ctype.removeprefix("int").removesuffix("_t")
        code = f"genus_absolute{bits}({operand.as_argument(ctype)})"
        return self._flat(Number(code, ctype, span, operand.needs, operand.levels + 1))

    def _compute(self, op: str, left: Number, right: Number) -> Number:
        span = combine_bounds(op, left.span, right.span)
        needs = all_of_these([left.needs, right.needs, self._is_divisor(op, right)])
        if span[0] < INT64[0] or span[1] > INT64[1]:
            arguments = f"{left.as_type('int64_t')}, {right.as_type('int64_t')}"
            return self._checked(self.operators[op], arguments, span, needs)
        ctype = common_type(left.span, right.span, span)
        if op in "+-*":
            code = f"({left.as_type(ctype)} {op} {right.as_type(ctype)})"
        else:
            code = f"{_division(op, ctype)}({left.as_argument(ctype)}, {right.as_argument(ctype)})"
        return self._flat(Number(code, ctype, span, needs, max(left.levels, right.levels) + 1))

    def _is_divisor(self, op: str, right: Number) -> Condition:
        low, high = right.span
        if op not in DIVISIONS or not low <= 0 <= high:
            return ALWAYS
        return test(f"({right.code} != 0)") if low < high else NEVER

    def _checked(self, function: str, arguments: str, span: tuple[int, int], needs: Condition) -> Number:
        """A result that may not fit in 64 bits: a function sets a variable and says whether it does."""
        variable = self._variable()
        clipped = max(span[0], INT64[0]), min(span[1], INT64[1])
        return Number(
            variable, "int64_t", clipped, all_of_these([needs, test(f"{function}({arguments}, &{variable})")])
        )

    def _flat(self, number: Number) -> Number:
        """Return the number, in a variable if its code is nested deeply."""
        return number if number.levels <= _MAX_LEVELS else self._in_variable(number)

    def _in_variable(self, number: Number) -> Number:
        variable = self._variable()
        kept = test(f"genus_keep({number.as_type('int64_t')}, &{variable})")
        return Number(variable, "int64_t", number.span, all_of_these([number.needs, kept]))

    def _variable(self) -> str:
        self.variables.append(f"t{len(self.variables)}")
        return self.variables[-1]


def _is_constant(node: x.Expression) -> bool:
    return not any(isinstance(part, x.AttributeRef) for part in node.walk())


def _is_choice_of_others(node: x.Value) -> bool:
    """Return whether a value is chosen among texts, bytes, bools or choices, which are tested one by one."""
    is_chosen = isinstance(node, x.Conditional | x.Coalesce)
    return is_chosen and isinstance(type_of(node), TextType | BytesType | BoolType | ChoiceType)


def _is_number(key: Key) -> Condition:
    return ALWAYS if key.never_nan else test(f"genus_is_number{key.bits}({key.code})")


def _value_of(node: x.Value) -> object:
    """Return the value of a part without attributes; None if it has none, as after a division by zero."""
    found: object = evaluate_value(node, Event())
    return found


def _constant_number(value: int, needs: Condition = ALWAYS) -> Number:
    ctype = common_type((value, value))
    return Number(integer(value, ctype), ctype, (value, value), needs)


def _absent(type_: AttributeType) -> Operand:
    """An attribute that no event of the family has, so that nothing about it is true."""
    match type_:
        case FloatType(bits):
            return Key("0", bits, NEVER)
        case TextType() | BytesType():
            return Run("NULL", NEVER)
        case BoolType():
            return Flag("false", NEVER)
        case ChoiceType(values):
            return Choice("0U", values, NEVER)
    return Number("0", "int32_t", INT64, NEVER)


def _contents(constant: object) -> bytes:
    assert isinstance(constant, str | bytes)
    return constant.encode() if isinstance(constant, str) else constant


def _span(operand: Number | Key) -> tuple[int, int]:
    return operand.span if isinstance(operand, Number) else numbers_of(operand.bits)


def _intervals(operand: Number | Key, op: str, constant: object) -> Intervals:
    """Where a comparison of a number with a constant is true, as integers or keys."""
    assert isinstance(constant, int | float)
    if isinstance(operand, Key):
        return float_intervals(op, constant * 1.0, operand.bits)
    if isinstance(constant, float):
        return integer_intervals(op, constant, operand.span)
    return exact_intervals(op, constant, operand.span)


def _compare_with_itself(op: str, value: Operand) -> Condition:
    """Return a comparison of a value with itself, which is true or false whatever it is, but for NaN."""
    if op not in ("==", "<=", ">="):
        return NEVER
    numbers = [test(f"genus_is_number{value.bits}({value.code})")] if isinstance(value, Key) else []
    return all_of_these([value.needs, *numbers])


def _words(code: str) -> list[str]:
    return re.findall(r"[\w>.&-]+", code)


def _compare_keys(op: str, left: Key, right: Key) -> Condition:
    """Return a comparison of two floats, neither of which may be NaN."""
    bits = 32 if left.bits == right.bits == 32 else 64
    codes = [key.code if bits == 32 else key.widened() for key in (left, right)]
    numbers = [f"genus_is_number{key.bits}({key.code})" for key in (left, right) if not key.never_nan]
    return test(*numbers, f"({codes[0]} {op} {codes[1]})")


def _compare_choices(op: str, left: Choice, right: Choice) -> str:
    """Two choices by their indexes, which may be in lists that grew apart."""
    if left.values == right.values:
        return f"({left.code} {op} {right.code})"
    common = [(index, right.values.index(value)) for index, value in enumerate(left.values) if value in right.values]
    pairs = [f"(({left.code} == {first}U) && ({right.code} == {second}U))" for first, second in common]
    same = f"({' || '.join(pairs)})" if pairs else "false"
    return same if op == "==" else f"!{same}"


def _division(op: str, ctype: str) -> str:
    """Return the function of the runtime that divides integers of a type; its result fits."""
    function = "genus_floor_quotient" if op == "//" else "genus_remainder"
    return f"{function}{32 if ctype == 'int32_t' else 64}"


def _encode_pattern(pattern: str) -> bytes:
    """A pattern of `like` in the form of the runtime: UTF-8 with two bytes that no text has as wildcards.

    >>> _encode_pattern("A_%").hex(" ")
    '41 fe ff'
    """
    segments = (
        b"".join(bytes((ONE_LETTER,)) if letter is None else letter.encode() for letter in segment)
        for segment in read_pattern(pattern).segments
    )
    return bytes((ANY_TEXT,)).join(segments)
