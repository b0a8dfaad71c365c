"""Binding: check an expression tree against a type and make every conversion explicit.

After binding, the operands of each comparison and operation have one type, properties are replaced by their
expressions, and literals have the type of what they are compared with. Targets translate bound trees only.
"""

import re
from datetime import UTC, datetime
from functools import cached_property

from msgspec.structs import replace

import genus.filters._expression as x
from genus.errors import SubscriptionError
from genus.filters._constants import (
    BOOL,
    DURATION,
    FLOAT,
    INT,
    TEXT,
    TIME,
    check_literal,
    check_text,
    convert,
    describe_no_bool,
    split_options,
    type_of,
)
from genus.filters._evaluate import read_pattern
from genus.filters._expression import (
    DEEP_CONDITION,
    DEEP_PREDICATE,
    DEEP_VALUE,
    MAX_CONDITION_DEPTH,
    MAX_DEPTH,
    MAX_STEPS,
    MAX_VALUE_DEPTH,
)
from genus.model import vector
from genus.model.internal import type_text
from genus.model.types import (
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
    Vector,
)

_RESULT_OF_TIMES: dict[tuple[str, type, type], AttributeType] = {
    ("-", TimeType, TimeType): DURATION,
    ("-", TimeType, DurationType): TIME,
    ("+", TimeType, DurationType): TIME,
    ("+", DurationType, TimeType): TIME,
    ("+", DurationType, DurationType): DURATION,
    ("-", DurationType, DurationType): DURATION,
    ("*", DurationType, IntType): DURATION,
    ("*", IntType, DurationType): DURATION,
    ("//", DurationType, IntType): DURATION,
    ("//", DurationType, DurationType): INT,
    ("%", DurationType, DurationType): DURATION,
}


_CONVERSIONS = (x.ToFloat, x.Micros)
_CHOICES = (x.Conditional, x.Coalesce)


def bind(predicate: x.Predicate, cls: type) -> x.Predicate:
    """The predicate with a type for every value, checked against an event type; SubscriptionError if it is wrong."""
    return Binder(cls).predicate(predicate)


class Binder:
    """State: binds the predicates of one event type, by its vector and its properties."""

    def __init__(self, cls: type) -> None:
        self.type = cls
        self.vector: Vector = vector(cls)
        self.types = {attribute.name: attribute.type for attribute in self.vector}
        self._depth = self._value_depth = self._condition_depth = 0

    def predicate(self, node: x.Predicate) -> x.Predicate:
        """Return a bound predicate."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise SubscriptionError(DEEP_PREDICATE)
        bound = self._predicate(node)
        self._depth -= 1
        return bound

    def value(self, node: x.Value, like: x.Value | None = None) -> x.Value:
        """Return a bound value; constants take the type of `like`, the bound value that they are compared with."""
        self._value_depth += 1
        if self._value_depth > MAX_VALUE_DEPTH:
            raise SubscriptionError(DEEP_VALUE)
        while isinstance(node, _CONVERSIONS):
            node = node.operand
        bound = self._value(node, like)
        self._value_depth -= 1
        return bound

    def _predicate(self, node: x.Predicate) -> x.Predicate:
        match node:
            case x.And(operands) | x.Or(operands):
                return self._combine(type(node), operands)
            case x.Not(operand):
                return x.Not(self.predicate(operand))
            case x.Present(attribute):
                return x.Present(replace(attribute, type=self._find(attribute.name)))
            case x.Compare(op, left, right):
                return self._compare(op, left, right)
            case x.OneOf(item, options):
                return self._one_of(item, options)
            case x.TextTest(op, item, part):
                return self._text_test(_known_operator(op, x.TEXT_TESTS), item, part)
        raise SubscriptionError(f"{node!r} is not a predicate")

    def _combine(self, kind: type[x.And | x.Or], operands: tuple[x.Predicate, ...]) -> x.Predicate:
        """One flat node without repetitions: (a and b) and a is a and b."""
        if not operands:
            raise SubscriptionError(f"{kind.__name__} needs at least one operand")
        bound = [self.predicate(operand) for operand in operands]
        flat = dict.fromkeys(part for one in bound for part in (one.operands if isinstance(one, kind) else (one,)))
        return kind(tuple(flat)) if len(flat) > 1 else next(iter(flat))

    def _compare(self, op: str, left: x.Value, right: x.Value) -> x.Predicate:
        first, second = self._unify(left, right)
        type_ = type_of(first)
        if _known_operator(op, x.COMPARISONS) not in ("==", "!=") and isinstance(type_, BoolType | ChoiceType):
            hint = "compare it with ==, != or in (in Python .isin)"
            raise SubscriptionError(f"{describe(first)} and has no order; {hint}")
        if isinstance(type_, TimeType | DurationType) and _is_computed(first, second):
            first, second = _micros(first), _micros(second)
        return _as_flag_test(x.Compare(op, first, second))

    def _one_of(self, item: x.Value, options: tuple[x.Literal, ...]) -> x.Predicate:
        if not options:
            raise SubscriptionError("isin needs at least one value")
        bound = self.value(item)
        checked = tuple(map(check_literal, options))
        groups = split_options(checked) if isinstance(type_of(bound), IntType) else [checked]
        tests = tuple(self._one_of_group(bound, group) for group in groups)
        return tests[0] if len(tests) == 1 else self._combine(x.Or, tests)

    def _one_of_group(self, bound: x.Value, options: tuple[x.Literal, ...]) -> x.Predicate:
        if isinstance(type_of(bound), IntType) and any(isinstance(option.value, float) for option in options):
            bound = _to_float(bound)
        fitted = tuple(convert(option, bound, type_of(bound)) for option in options)
        for option in fitted:
            if type(type_of(option)) is not type(type_of(bound)):
                raise _incomparable(bound, option)
        if _is_computed(bound) and isinstance(type_of(bound), TimeType | DurationType):
            raise SubscriptionError("isin takes a time attribute, not a computed time; use == or between")
        return x.OneOf(bound, tuple(dict.fromkeys(fitted)))

    def _text_test(self, op: str, item: x.Value, part: x.Literal) -> x.Predicate:
        bound = self.value(item)
        if not isinstance(type_of(bound), TextType):
            raise SubscriptionError(f"{op} needs text, but {describe(bound)}")
        text = check_text(op, check_literal(part).value)
        if op != "like":
            return x.TextTest(op, bound, x.Literal(text, TEXT))
        pattern = read_pattern(text)
        match pattern.as_plain_test():
            case "==", whole:
                return x.Compare("==", bound, x.Literal(whole, TEXT))
            case plain, found:
                return x.TextTest(plain, bound, x.Literal(found, TEXT))
        return x.TextTest(op, bound, x.Literal(pattern.text, TEXT))

    def _unify(self, left: x.Value, right: x.Value) -> tuple[x.Value, x.Value]:
        """Both sides with one type: a literal takes that of the other side, an integer and a float become floats."""
        left, right = self._expanded(left), self._expanded(right)
        if _is_constant(left) and not _is_constant(right):
            return self._unify(right, left)[::-1]
        first, second = self.value(left), right
        if isinstance(right, x.Literal):
            second = convert(right, first, type_of(first))
        else:
            second = self.value(right, first if _is_constant(right) else None)
        if _is_same_type(first, second):
            return first, second
        if {type(type_of(first)), type(type_of(second))} == {IntType, FloatType}:
            return _to_float(first), _to_float(second)
        raise _incomparable(first, second)

    def _value(self, node: x.Value, like: x.Value | None) -> x.Value:
        match node:
            case x.AttributeRef():
                return self._attribute(node)
            case x.Literal():
                return convert(node) if like is None else convert(node, like, type_of(like))
            case x.Conditional(condition, then, otherwise):
                test = self._condition(condition)
                first, *others = self._alternatives((then,) if otherwise is None else (then, otherwise), like)
                return x.Conditional(test, first, others[0] if others else None, _computed_type(first))
            case x.Coalesce(operands):
                if not operands:
                    raise SubscriptionError("coalesce needs at least one value")
                bound = self._alternatives(operands, like)
                return x.Coalesce(tuple(bound), _computed_type(bound[0])) if len(bound) > 1 else bound[0]
            case x.Arithmetic(first, steps):
                return self._chain(first, steps)
            case x.Function(op, operand):
                return self._function(_known_operator(op, x.FUNCTIONS), self.value(operand))
            case x.Negation(operand):
                return self._negation(self.value(operand))
        raise SubscriptionError(f"{node!r} is not a value")

    def _condition(self, node: x.Predicate) -> x.Predicate:
        self._condition_depth += 1
        if self._condition_depth > MAX_CONDITION_DEPTH:
            raise SubscriptionError(DEEP_CONDITION)
        bound = self.predicate(node)
        self._condition_depth -= 1
        return bound

    def _alternatives(self, values: tuple[x.Value, ...], like: x.Value | None) -> list[x.Value]:
        """Values of which one is chosen, with one type: as of the two sides of a comparison."""
        values = tuple(map(self._expanded, values))
        bound = {place: self.value(each) for place, each in enumerate(values) if not _is_constant(each)}
        known = next(iter(bound.values()), like)
        found = [bound.get(place) or self.value(each, known) for place, each in enumerate(values)]
        kinds = {type(type_of(each)) for each in found}
        if kinds == {IntType, FloatType}:
            return [_to_float(each) for each in found]
        other = next((each for each in found if not _is_same_type(each, found[0])), None)
        if other is not None:
            raise SubscriptionError(
                f"cannot choose between values of two types: {describe(found[0])}, but {describe(other)}"
            )
        return [_micros(each) for each in found]

    def _attribute(self, node: x.AttributeRef) -> x.Value:
        expanded, name = self._expanded(node), node.name
        if expanded is not node:
            return self.value(expanded)
        type_ = self._find(name)
        if isinstance(type_, OpaqueType):
            raise SubscriptionError(f"{name!r} is {type_.text}, which can only be tested for presence")
        return x.AttributeRef(name, type_)

    def _find(self, name: str) -> AttributeType:
        return self.types.get(name) or self.vector.find(name, self.type).type

    def _expanded(self, node: x.Value) -> x.Value:
        """Return the expression of a property, which is a bool if it is a predicate; any other value itself."""
        if not isinstance(node, x.AttributeRef) or node.name in self.types:
            return node
        if not isinstance(node.name, str):
            raise SubscriptionError(f"{node.name!r} is not the name of an attribute")
        if not isinstance(getattr(self.type, node.name, None), property | cached_property):
            return node
        from genus.filters._property import translate  # only then, as most programs do not use it

        found = translate(self.type, node.name, Binder)
        return found if isinstance(found, x.Value) else x.Conditional(found, x.Literal(True), x.Literal(False))

    def _chain(self, first: x.Value, steps: tuple[x.Step, ...]) -> x.Value:
        """A chain of arithmetic, step by step; a chain of integers that becomes one of floats is nested in it."""
        first, steps = _unfold(first, steps)
        result = self.value(first)
        for step in steps:
            result = self._arithmetic(_known_operator(step.op, x.ARITHMETIC), result, self.value(step.operand))
        if isinstance(result, x.Arithmetic) and len(result.steps) > MAX_STEPS:
            raise SubscriptionError(f"{len(result.steps)} operators in one chain are more than {MAX_STEPS}; split it")
        return result

    def _arithmetic(self, op: str, left: x.Value, right: x.Value) -> x.Value:
        kinds = type(type_of(left)), type(type_of(right))
        if all(kind in (IntType, FloatType) for kind in kinds):
            if op == "/" or FloatType in kinds:
                return x.arithmetic(op, _to_float(left), _to_float(right), FLOAT)
            return x.arithmetic(op, left, right, INT)
        result = _RESULT_OF_TIMES.get((op, *kinds))
        if result is None:
            raise SubscriptionError(f"cannot apply {op}: {describe(left)}, and {describe(right)}")
        return x.arithmetic(op, _micros(left), _micros(right), result)

    def _function(self, op: str, operand: x.Value) -> x.Value:
        type_ = type_of(operand)
        if op == "length" and isinstance(type_, TextType | BytesType):
            if isinstance(operand, x.Literal):
                return x.Literal(len(operand.value), INT)  # type: ignore[arg-type]
            return x.Function(op, operand, INT)
        if op == "abs" and isinstance(type_, IntType | FloatType):
            return x.Function(op, operand, INT if isinstance(type_, IntType) else FLOAT)
        if op == "abs" and isinstance(type_, DurationType):
            return x.Function(op, _micros(operand), DURATION)
        takes = "text or bytes" if op == "length" else "a number or a duration"
        raise SubscriptionError(f"{op} takes {takes}, but {describe(operand)}")

    def _negation(self, operand: x.Value) -> x.Value:
        type_ = type_of(operand)
        if isinstance(operand, x.Literal) and isinstance(type_, IntType | FloatType | DurationType):
            return convert(x.Literal(-operand.value))  # type: ignore[operator]
        if isinstance(type_, IntType | FloatType):
            return x.Negation(operand, INT if isinstance(type_, IntType) else FLOAT)
        if isinstance(type_, DurationType):
            return x.Negation(_micros(operand), DURATION)
        raise SubscriptionError(f"cannot negate: {describe(operand)}")


def describe(node: x.Value) -> str:
    """Return a value and its type, for messages."""
    return f"{x.format_expression(node)} is {type_text(type_of(node))}"


def _incomparable(first: x.Value, second: x.Value) -> SubscriptionError:
    """Return the error for two values of different types, with the right form of a time or duration."""
    if second == x.Literal(True, BOOL):
        return SubscriptionError(describe_no_bool(first, type_of(first)))
    kinds = {type(type_of(first)), type(type_of(second))}
    other = first if isinstance(type_of(second), TimeType | DurationType) else second
    hint = ""
    if TimeType in kinds:
        hint = f"; write a time as {_describe_time(_bare_date(other))}"
    elif DurationType in kinds:
        hint = "; write a duration as 5s, in Python as timedelta(seconds=5)"
    return SubscriptionError(f"cannot compare: {describe(first)}, but {describe(second)}{hint}")


def _bare_date(value: x.Value) -> object:
    """Return a literal's value; the text of a date such as 2026-05-01, which without quotes is a subtraction."""
    if isinstance(value, x.Literal):
        return value.value
    found = re.fullmatch(r"(\d{4}) - (\d{1,2}) - (\d{1,2})", x.format_expression(value))
    return None if found is None else f"{found[1]}-{int(found[2]):02}-{int(found[3]):02}"


def _describe_time(value: object) -> str:
    """Return the text and the Python form of the time that a text means; of an example if it means none."""
    try:
        moment = datetime.fromisoformat(value if isinstance(value, str) else "")
    except ValueError:
        moment = datetime(2026, 5, 1)
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    return f"{x.format_literal(moment)}, in Python as {x.python_time(moment)}"


def _is_computed(*values: x.Value) -> bool:
    return any(isinstance(value, (x.Arithmetic, x.Negation, x.Function, *_CHOICES)) for value in values)


def _is_constant(node: x.Value, levels: int = MAX_VALUE_DEPTH) -> bool:
    """Whether a value is a constant, or a choice of constants, which take the type of what they are compared with."""
    while isinstance(node, _CONVERSIONS):
        node = node.operand
    if not levels or not isinstance(node, _CHOICES):
        return isinstance(node, x.Literal)
    return all(_is_constant(each, levels - 1) for each in node.children() if isinstance(each, x.Value))


def _is_same_type(one: x.Value, other: x.Value) -> bool:
    first, second = type_of(one), type_of(other)
    return type(first) is type(second) and (first == second or not isinstance(first, ChoiceType))


def _computed_type(chosen: x.Value) -> AttributeType:
    """Return the type of a value that is chosen among others: numbers have 64 bits."""
    type_ = type_of(chosen)
    return INT if isinstance(type_, IntType) else FLOAT if isinstance(type_, FloatType) else type_


def _as_flag_test(test: x.Compare) -> x.Predicate:
    """The predicate p for `(if p then true else false) == true`, its opposite for false; else the test itself."""
    if isinstance(test.left, x.Conditional):
        match test.left, test.right:
            case x.Conditional(condition, x.Literal(True), x.Literal(False)), x.Literal(bool(wanted)):
                return condition if (test.op == "==") is wanted else x.Not(condition)
    return test


def _unfold(first: x.Value, steps: tuple[x.Step, ...]) -> tuple[x.Value, tuple[x.Step, ...]]:
    """Return a chain without chains of the same precedence as its first value."""
    signs = x.SUMS if steps and steps[0].op in x.SUMS else x.PRODUCTS
    while True:
        if not steps:
            raise SubscriptionError("arithmetic needs at least one operator; write its first value alone")
        inner = first.operand if isinstance(first, x.ToFloat) else first
        if not isinstance(inner, x.Arithmetic) or not inner.steps or inner.steps[0].op not in signs:
            return first, steps
        first, steps = inner.first, (*inner.steps, *steps)


def _known_operator(op: str, known: tuple[str, ...]) -> str:
    """Return an operator; SubscriptionError if a tree that was not made by `this` or from text has another."""
    if op not in known:
        raise SubscriptionError(f"there is no operator {op!r}; use one of {', '.join(known)}")
    return op


def _to_float(node: x.Value) -> x.Value:
    if isinstance(type_of(node), FloatType):
        return node
    return x.Literal(float(node.value), FLOAT) if isinstance(node, x.Literal) else x.ToFloat(node)  # type: ignore[arg-type]


def _micros(node: x.Value) -> x.Value:
    is_plain_time = isinstance(type_of(node), TimeType | DurationType) and not _is_computed(node)
    return x.Micros(node) if is_plain_time and not isinstance(node, x.Micros) else node
