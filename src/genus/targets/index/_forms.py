"""Forms: predicates that differ only in their constants are one form, tested for all constants at once.

A form is compiled once, to functions of an event and of constants. The constants are those of one subscription, or the
columns of very many: then the result has one flag per row. As in the Python target a function answers either "is it
true?" or "is it false?", so that no third value is needed for unknown.
"""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, TypeAlias

import numpy as np

import genus.filters.internal as x
from genus.filters.internal import (
    COMPARE,
    COMPUTE,
    OPPOSITE,
    compute,
    evaluate,
    normalize,
    read_attribute,
    round_to_float32,
    type_of,
)
from genus.model import Event, micros_of_duration, micros_of_time
from genus.model.internal import INT64_MAX, INT64_MIN, RETYPABLE
from genus.model.types import (
    AttributeType,
    BoolType,
    BytesType,
    ChoiceType,
    DurationType,
    FloatType,
    IntType,
    TextType,
    TimeType,
)
from genus.targets._decompose import MAX_OPTIONS, Parameter, take_constants
from genus.targets._floor_division import floor_division
from genus.targets.index._columns import CodedColumn, Flags, NumberColumn, passes

Column: TypeAlias = NumberColumn | CodedColumn
Constants: TypeAlias = "tuple[Any, ...] | list[Column]"
"""The constants of one row, or of all rows as columns."""
Answer: TypeAlias = bool | Flags
Test: TypeAlias = Callable[[Event, Constants], Answer]
Numbers: TypeAlias = tuple[Any, Answer]
"""Values of all rows, and which of them are known."""
Compute: TypeAlias = Callable[[Event, Constants], Any]
"""Gives the value of an expression: one value, None if it is unknown, `Numbers`, or a column of codes."""

_MIRRORED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


class Misfit(Exception):
    """A value does not have its declared type; the event is to be tested by `Subscription.matches`."""


class Form:
    """A predicate with parameters; `test` is true, false, or has a flag per row."""

    def __init__(self, predicate: x.Predicate | None, parameters: tuple[AttributeType, ...]) -> None:
        self.predicate, self.parameters = predicate, parameters
        self.uses = 0
        self.is_vector = predicate is not None
        """Whether columns of constants can be tested at once."""
        self.test: Test = _evaluate_whole if predicate is None else compile_test(predicate, True)

    def new_columns(self) -> list[Column]:
        """Empty columns for the constants."""
        return [_new_column(type_) for type_ in self.parameters]


def _new_column(type_: AttributeType) -> Column:
    if isinstance(type_, IntType | FloatType | TimeType | DurationType):
        return NumberColumn(isinstance(type_, FloatType))
    return CodedColumn()


def _evaluate_whole(event: Event, constants: Constants) -> bool:
    """Return the test of a predicate that has no form: it is its own only constant."""
    return evaluate(constants[0], event) is True  # type: ignore[arg-type]


MAX_UNUSED = 64
"""So many forms without a subscription are kept, as the next one may have the same form."""


class Forms:
    """State: the forms of subscriptions, and some that are not used any more."""

    def __init__(self) -> None:
        self._known: dict[x.Predicate, Form] = {}
        self._unused: dict[Form, None] = {}
        self._whole = Form(None, ())

    def __len__(self) -> int:
        return len(self._known) - len(self._unused)

    def take_apart(self, parts: list[x.Predicate]) -> tuple[Form, tuple[Any, ...]]:
        """Return the form of a conjunction and its constants; `release` must follow when it is not used any more."""
        predicate = parts[0] if len(parts) == 1 else x.And(tuple(parts))
        constants: list[x.Literal] = []
        shape = take_constants(predicate, constants)
        form = self._known.get(shape)
        if form is None:
            try:
                form = Form(shape, tuple(type_of(each) for each in constants))
            except NotImplementedError:
                return self._whole, (predicate,)
            self._known[shape] = form
        form.uses += 1
        self._unused.pop(form, None)
        return form, tuple([normalize(each.value, each.type) for each in constants])

    def release(self, form: Form) -> None:
        """A subscription with a form was removed."""
        if form is self._whole:
            return
        form.uses -= 1
        if not form.uses:
            self._unused[form] = None
            if len(self._unused) > MAX_UNUSED:
                oldest = next(iter(self._unused))
                del self._unused[oldest]
                assert oldest.predicate is not None
                del self._known[oldest.predicate]


# -- predicates ------------------------------------------------------------------------------------------------------


def compile_test(node: x.Predicate, wanted: bool) -> Test:
    """A function that says whether a predicate is `wanted`; NotImplementedError if it has no such function."""
    match node:
        case x.And(operands):
            tests = [compile_test(one, wanted) for one in operands]
            return _all_of(tests) if wanted else _any_of(tests)
        case x.Or(operands):
            tests = [compile_test(one, wanted) for one in operands]
            return _any_of(tests) if wanted else _all_of(tests)
        case x.Not(operand):
            return compile_test(operand, not wanted)
        case x.Present(attribute):
            return _presence(attribute.name, attribute.type, wanted)
        case x.Compare(op, x.AttributeRef(name, IntType() | FloatType() as type_), Parameter(number, _)):
            return _number_comparison(op if wanted else OPPOSITE[op], name, type_, number)
        case x.Compare(op, left, right) if not type(left) is type(right) is Parameter:
            return _comparison(op if wanted else OPPOSITE[op], compile_value(left), compile_value(right))
        case x.OneOf(item, options) if len(options) <= MAX_OPTIONS and type(item) is not Parameter:
            value, op = compile_value(item), "==" if wanted else "!="
            tests = [_comparison(op, value, compile_value(option)) for option in options]
            return _any_of(tests) if wanted else _all_of(tests)
        case x.TextTest(op, item, part) if type(item) is not Parameter:
            return _text_test(op, compile_value(item), compile_value(part), wanted)
    raise NotImplementedError


def _all_of(tests: list[Test]) -> Test:
    def run(event: Event, constants: Constants) -> Answer:
        result: Answer = True
        for test in tests:
            one = test(event, constants)
            if one is False:
                return False
            if one is not True:
                result = one if result is True else result & one
        return result

    return run


def _any_of(tests: list[Test]) -> Test:
    def run(event: Event, constants: Constants) -> Answer:
        result: Answer = False
        for test in tests:
            one = test(event, constants)
            if one is True:
                return True
            if one is not False:
                result = one if result is False else result | one
        return result

    return run


def _both(one: Answer, other: Answer) -> Answer:
    return other if one is True else one if other is True else one & other


def _presence(name: str, type_: AttributeType | None, wanted: bool) -> Test:
    def run(event: Event, _: Constants) -> Answer:
        return (name in event.__struct_fields__ and getattr(event, name) is not None) is wanted

    def run_exactly(event: Event, _: Constants) -> Answer:
        return (read_attribute(event, name, type_) is not None) is wanted

    return run_exactly if name in RETYPABLE else run


def _number_comparison(op: str, name: str, type_: AttributeType, number: int) -> Test:
    """The same as `_comparison` of an attribute and a parameter, in one function, as most comparisons are such."""
    compare, read = COMPARE[op], _READERS[type(type_)](type_)

    def run(event: Event, constants: Constants) -> Answer:
        found = getattr(event, name) if name in event.__struct_fields__ else None
        value = None if found is None else read(found)
        if value is None:
            return False
        constant = constants[number]
        if type(constant) is NumberColumn:
            constant = constant.values if constant.uniform is None else constant.uniform
        return compare(value, constant)

    return run


def _comparison(op: str, left: Compute, right: Compute) -> Test:
    compare, mirrored = COMPARE[op], _MIRRORED[op]

    def run(event: Event, constants: Constants) -> Answer:
        a, b = left(event, constants), right(event, constants)
        if a is None or b is None:
            return False
        if type(b) is CodedColumn:
            return b.compare(op, a)
        if type(a) is CodedColumn:
            return a.compare(mirrored, b)
        if type(a) is not tuple and type(b) is not tuple:
            return compare(a, b)
        (a, a_known), (b, b_known) = _numbers(a), _numbers(b)
        return _both(compare(a, b), _both(a_known, b_known))

    return run


def _text_test(op: str, item: Compute, part: Compute, wanted: bool) -> Test:
    def run(event: Event, constants: Constants) -> Answer:
        text, wanted_part = item(event, constants), part(event, constants)
        if text is None:
            return False
        if type(wanted_part) is CodedColumn:
            found = wanted_part.find_parts(op, text)
            return found if wanted else ~found
        return passes(op, text, wanted_part) is wanted

    return run


# -- values ----------------------------------------------------------------------------------------------------------


def compile_value(node: x.Value) -> Compute:
    """Return a function that gives a value; NotImplementedError if it has no such function."""
    match node:
        case x.AttributeRef(name, type_):
            return _attribute(name, type_)
        case Parameter(number, _):
            return _parameter(number)
        case x.ToFloat(operand):
            return _to_float(compile_value(operand))
        case x.Micros(operand):
            return compile_value(operand)
        case x.Negation(operand):
            return _negation(compile_value(operand))
        case x.Function("length", x.AttributeRef() as operand):
            return _length(compile_value(operand))
        case x.Function("abs", operand):
            return _absolute(compile_value(operand))
        case x.Arithmetic(first, steps):
            return _arithmetic(compile_value(first), [(step.op, compile_value(step.operand)) for step in steps])
        case x.Conditional(condition, then, otherwise, type_) if isinstance(type_, _NUMBERS):
            other = _unknown if otherwise is None else compile_value(otherwise)
            tests = compile_test(condition, True), compile_test(condition, False)
            return _conditional(*tests, compile_value(then), other)
        case x.Coalesce(operands, type_) if isinstance(type_, _NUMBERS):
            return _coalesce([compile_value(operand) for operand in operands])
    raise NotImplementedError


def _parameter(number: int) -> Compute:
    """Return a column of constants; a single value if all are the same, which is then computed with only once."""

    def run(_: Event, constants: Constants) -> Any:
        constant = constants[number]
        if type(constant) is NumberColumn:
            return (constant.values, True) if constant.uniform is None else constant.uniform
        if type(constant) is CodedColumn and constant.is_uniform:
            return next(iter(constant.codes))
        return constant

    return run


def _attribute(name: str, type_: AttributeType | None) -> Compute:
    read = _READERS[type(type_)](type_)

    def run(event: Event, _: Constants) -> Any:
        found = getattr(event, name) if name in event.__struct_fields__ else None
        return None if found is None else read(found)

    def run_exactly(event: Event, _: Constants) -> Any:
        found = read_attribute(event, name, type_)
        return None if found is None else read(found)

    return run_exactly if name in RETYPABLE else run


def _read_int(_: Any) -> Callable[[Any], Any]:
    def read(found: Any) -> int:
        if type(found) is not int or not INT64_MIN <= found <= INT64_MAX:
            raise Misfit
        return found

    return read


def _read_float(type_: FloatType) -> Callable[[Any], Any]:
    narrow = type_.bits == 32

    def read(found: Any) -> float | None:
        if type(found) is not float:
            if type(found) is not int:
                raise Misfit
            found = found * 1.0
        if narrow:
            found = round_to_float32(found)
        return found if found == found else None

    return read


def _read_exactly(kind: type) -> Callable[[Any], Callable[[Any], Any]]:
    def make(_: Any) -> Callable[[Any], Any]:
        def read(found: Any) -> Any:
            if type(found) is not kind:
                raise Misfit
            return found

        return read

    return make


def _read_choice(type_: ChoiceType) -> Callable[[Any], Any]:
    def read(found: Any) -> Any:
        value = getattr(found, "value", found)
        if type(value) not in (str, int):
            raise Misfit
        return value

    return read


def _read_time(_: Any) -> Callable[[Any], Any]:
    return _micros(datetime, micros_of_time)


def _read_duration(_: Any) -> Callable[[Any], Any]:
    return _micros(timedelta, micros_of_duration)


def _micros(kind: type, convert: Callable[[Any], int]) -> Callable[[Any], Any]:
    def read(found: Any) -> int:
        if type(found) is not kind:
            raise Misfit
        try:
            micros = convert(found)
        except (TypeError, OverflowError):
            raise Misfit from None
        if not INT64_MIN <= micros <= INT64_MAX:
            raise Misfit
        return micros

    return read


_READERS: Mapping[type, Callable[[Any], Callable[[Any], Any]]] = {
    IntType: _read_int,
    FloatType: _read_float,
    TextType: _read_exactly(str),
    BytesType: _read_exactly(bytes),
    BoolType: _read_exactly(bool),
    ChoiceType: _read_choice,
    TimeType: _read_time,
    DurationType: _read_duration,
}


def _to_float(operand: Compute) -> Compute:
    def run(event: Event, constants: Constants) -> Any:
        found = operand(event, constants)
        if type(found) is tuple:
            return found[0].astype(np.float64), found[1]
        return None if found is None else float(found)

    return run


def _numbers(value: Any) -> Numbers:
    return value if type(value) is tuple else (value, True)


def _negation(operand: Compute) -> Compute:
    def run(event: Event, constants: Constants) -> Any:
        found = operand(event, constants)
        if type(found) is not tuple:
            return None if found is None else _in_range(-found)
        values, known = found
        if values.dtype == np.float64:
            return -values, known
        return _compute_rows("-", (0, True), found)

    return run


def _length(operand: Compute) -> Compute:
    def run(event: Event, constants: Constants) -> Any:
        found = operand(event, constants)
        return None if found is None else len(found)

    return run


def _absolute(operand: Compute) -> Compute:
    def run(event: Event, constants: Constants) -> Any:
        found = operand(event, constants)
        if type(found) is not tuple:
            return None if found is None else _in_range(abs(found))
        values, known = found
        if values.dtype == np.float64:
            return np.abs(values), known
        smallest = values == INT64_MIN
        return np.abs(np.where(smallest, 0, values)), _both(known, ~smallest)

    return run


def _arithmetic(first: Compute, steps: list[tuple[str, Compute]]) -> Compute:
    def run(event: Event, constants: Constants) -> Any:
        result = first(event, constants)
        for op, operand in steps:
            other = operand(event, constants)
            if result is None or other is None:
                return None
            if type(result) is tuple or type(other) is tuple:
                result = _compute_rows(op, _numbers(result), _numbers(other))
            else:
                result = compute(op, result, other)
        return result

    return run


_NUMBERS = (IntType, FloatType, TimeType, DurationType)
"""The types whose values can be chosen row by row; a choice of others has no form."""


def _unknown(_: Event, __: Constants) -> None:
    return None


def _conditional(is_true: Test, is_false: Test, then: Compute, otherwise: Compute) -> Compute:
    def run(event: Event, constants: Constants) -> Any:
        yes = is_true(event, constants)
        if yes is True:
            return then(event, constants)
        no = is_false(event, constants)
        if no is True:
            return otherwise(event, constants)
        if yes is False and no is False:
            return None
        first, second = then(event, constants), otherwise(event, constants)
        (a, a_known), (b, b_known) = _rows(first, second), _rows(second, first)
        return np.where(yes, a, b), _both(yes, a_known) | _both(no, b_known)

    return run


def _coalesce(operands: list[Compute]) -> Compute:
    def run(event: Event, constants: Constants) -> Any:
        found: Numbers | None = None
        for operand in operands:
            value = operand(event, constants)
            if value is None:
                continue
            if found is None and type(value) is not tuple:
                return value
            values, known = _numbers(value)
            found = (values, known) if found is None else (np.where(found[1], found[0], values), found[1] | known)
        return found

    return run


def _rows(value: Any, other: Any) -> Numbers:
    """Return the values of all rows; where there is none, those of another value, as unknown."""
    return (_numbers(other)[0] if other is not None else 0, False) if value is None else _numbers(value)


def _in_range(number: Any) -> Any:
    """A result as it is known: a float that is a number, an integer of 64 bits."""
    if type(number) is int:
        return number if INT64_MIN <= number <= INT64_MAX else None
    return number if number == number else None


def _compute_rows(op: str, left: Numbers, right: Numbers) -> Numbers:
    """An operation on rows: unknown where it has no result."""
    (a, a_known), (b, b_known) = left, right
    known = _both(a_known, b_known)
    if op in ("//", "%"):
        values, has_result = floor_division(op, a, b)
        return values, _both(known, has_result)
    if getattr(a, "dtype", None) != np.float64 and getattr(b, "dtype", None) != np.float64:
        return _compute_integers(op, a, b, known)
    with np.errstate(all="ignore"):
        result = COMPUTE[op](a, b) if op != "/" else np.divide(a, b)
    known = _both(known, result == result)
    return result, _both(known, b != 0) if op == "/" else known


def _compute_integers(op: str, a: Any, b: Any, known: Answer) -> Numbers:
    """Return an operation on integers of 64 bits; where the result may not fit, on Python's, which have no limit."""
    corners = [COMPUTE[op](i, j) for i in _extremes(a) for j in _extremes(b)]
    if not corners or (min(corners) >= INT64_MIN and max(corners) <= INT64_MAX):
        return COMPUTE[op](a, b), known
    exact = COMPUTE[op](np.asarray(a).astype(object), np.asarray(b).astype(object))
    fits = np.array([INT64_MIN <= one <= INT64_MAX for one in exact], np.bool_)
    return np.where(fits, exact, 0).astype(np.int64), _both(known, fits)


def _extremes(values: Any) -> tuple[int, ...]:
    if type(values) is int:
        return (values,)
    return (int(values.min()), int(values.max())) if len(values) else ()
