"""Properties as expressions: the syntax tree of a getter is translated, its code is never run.

The expression gives what Python gives wherever Python gives a value, absent attributes included: `None == x` is false,
`self.speed or 0.0` is a number. Where Python raises, as for `None > 3`, it is unknown, unless Kleene logic decides.
Numbers follow the rules of predicates: 64 bits, and NaN is unknown. Whatever else a getter does is refused.

A getter's value is either a constant or computed: an expression, which is unknown where Python has None, and the
condition for None. Both branches of an `if` are translated with all that follows it, and become a conditional.
"""

import ast
import builtins
import operator
from collections.abc import Callable
from datetime import datetime, timedelta, tzinfo
from enum import Enum
from functools import cached_property, reduce
from itertools import islice, pairwise
from types import FunctionType, ModuleType
from typing import Any, NoReturn, Protocol
from weakref import WeakKeyDictionary, ref

import genus.filters._expression as x
from genus.errors import SubscriptionError
from genus.filters._constants import type_of
from genus.filters._evaluate import COMPARE, COMPUTE
from genus.filters._getter import (
    Computed,
    Known,
    Meaning,
    NoSource,
    Truth,
    as_meaning,
    as_value,
    both,
    choose_truth,
    conditional,
    either,
    has_truth,
    location_of,
    negate,
    none_of,
    plain_enum,
    source_of,
)
from genus.model import name_of
from genus.model.internal import plain_value
from genus.model.types import (
    AttributeType,
    BoolType,
    BytesType,
    ChoiceType,
    DurationType,
    FloatType,
    IntType,
    TextType,
)

MAX_NODES = 2000
"""The most nodes of an expression that a property becomes; each use of a local variable repeats what it stands for."""
MAX_STATEMENTS = 500
"""The most statements that are translated; those after an `if` are, for each of its branches."""

_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
}  # fmt: skip
_ARITHMETIC: dict[type[ast.operator], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%",
}  # fmt: skip
_ALLOWED = (
    "use if and return, names for values, comparisons, arithmetic, and, or, not, in, is None, x if c else y, "
    "abs, len, startswith and endswith, on attributes, other properties and constants"
)
_BUILTINS = vars(builtins)
_PLAIN = (bool, int, float, str, bytes, datetime, timedelta, Enum, type(None))
_ZEROS: dict[type[AttributeType], x.Constant] = {
    IntType: 0, FloatType: 0.0, TextType: "", BytesType: b"", DurationType: timedelta(0),
}  # fmt: skip
"""The constant of each type that is false in Python."""


class _Uses:
    """State: the getters that translating a property has read, by name, and whether it read constants."""

    def __init__(self) -> None:
        self.getters: dict[str, ref[FunctionType]] = {}
        self.has_constants = False

    def are_same(self, cls: type) -> bool:
        """Return whether the getters are still those of the class."""
        found = [(getattr(cls, name, None), getter()) for name, getter in self.getters.items()]
        return all(type(each) is property and each.fget is getter is not None for each, getter in found)


_translated: WeakKeyDictionary[type, dict[str, tuple[_Uses, x.Value | x.Predicate]]] = WeakKeyDictionary()
"""The properties without constants from outside, which may change, as very many subscriptions may use a property."""


class Checker(Protocol):
    """Checks expressions of a class by the types of their values: a `Binder`."""

    types: dict[str, AttributeType]

    def value(self, node: x.Value) -> x.Value:
        """Return a bound value; SubscriptionError if it is wrong."""

    def predicate(self, node: x.Predicate) -> x.Predicate:
        """Return a bound predicate; SubscriptionError if it is wrong."""


def translate(cls: type, name: str, checker: Callable[[type], Checker]) -> x.Value | x.Predicate:
    """Return the expression of a property of a class; SubscriptionError, with the line, if it has none."""
    known = _translated.setdefault(cls, {})
    if name in known and known[name][0].are_same(cls):
        return known[name][1]
    uses = _Uses()
    found = _Reader(cls, name, checker(cls), (), uses).expression()
    if not uses.has_constants:
        known[name] = uses, found
    return found


class _Reader:
    """State: translates one getter; the local variables so far, and the line that is read."""

    def __init__(self, cls: type, name: str, checker: Checker, within: tuple[str, ...], uses: _Uses) -> None:
        self._cls, self._name, self._within, self._uses = cls, name, (*within, name), uses
        self._checker = checker
        self._locals: dict[str, Meaning] = {}
        self._statements = 0
        self._getter = self._find_getter()
        self._line = self._getter.__code__.co_firstlineno
        try:
            self._source = source_of(self._getter.__code__)
        except NoSource as problem:
            self._refuse(str(problem))

    def result(self) -> Meaning:
        """Return what the getter returns."""
        return self._run(self._source.statements)

    def expression(self) -> x.Value | x.Predicate:
        """Return what the getter returns, as an expression."""
        match self.result():
            case Known(None):
                self._refuse("it is always None")
            case Known(tuple()):
                self._refuse("it is a tuple; write a test of its contents")
            case Known(value):
                return x.Literal(value)
            case Computed(node):
                return node

    def _find_getter(self) -> FunctionType:
        found = getattr(self._cls, self._name)
        getter = found.fget if isinstance(found, property) else found.func
        if type(found) is property and isinstance(getter, FunctionType) and not hasattr(getter, "__wrapped__"):
            self._uses.getters[self._name] = ref(getter)
            return getter
        kind = type(found if type(found) is not property else getter).__name__
        made_by = f"it is made by {kind}; write a function below @property"
        decorated = "its function is decorated; put @property alone above it"
        owner = next(cls for cls in self._cls.__mro__ if self._name in vars(cls))
        self._refuse_at(location_of(owner, getter), decorated if kind == "function" else made_by)

    def _refuse(self, what: str, node: ast.AST | None = None) -> NoReturn:
        self._line = self._line if node is None else self._source.line + getattr(node, "lineno", 1)
        self._refuse_at(f"{self._getter.__code__.co_filename}, line {self._line}", what)

    def _refuse_at(self, place: str, what: str) -> NoReturn:
        raise SubscriptionError(
            f"property {self._name} of {name_of(self._cls)} cannot be used in a predicate: {what} ({place})"
        ) from None

    # -- statements ----------------------------------------------------------------------------------------------------

    def _run(self, statements: list[ast.stmt]) -> Meaning:
        """Return what is returned after some statements; None if nothing is."""
        for place, statement in enumerate(statements):
            self._statements += 1
            if self._statements > MAX_STATEMENTS:
                self._refuse("there are too many ways through it; return in each branch of an if", statement)
            match statement:
                case ast.Return(value):
                    return Known(None) if value is None else self._value(value)
                case ast.If(_, body, otherwise):
                    rest = statements[place + 1 :]
                    return self._branch(statement, [*body, *rest], [*otherwise, *rest])
                case ast.Assign([ast.Name(name)], value) | ast.AnnAssign(ast.Name(name), _, ast.expr() as value):
                    self._locals = {**self._locals, name: self._value(value)}
                case ast.AugAssign(ast.Name(name) as target, op, value):
                    result = ast.copy_location(
                        ast.BinOp(ast.copy_location(ast.Name(name), target), op, value), statement
                    )
                    self._locals = {**self._locals, name: self._value(result)}
                case ast.Expr(ast.Constant()) | ast.Pass():
                    continue
                case _:
                    self._refuse(f"{_describe(statement)} cannot be translated; {_ALLOWED}", statement)
        return Known(None)

    def _branch(self, statement: ast.If, body: list[ast.stmt], otherwise: list[ast.stmt]) -> Meaning:
        test, before = self._truth(statement.test), self._locals
        if isinstance(test, bool):
            return self._run(body if test else otherwise)
        then = self._run(body)
        self._locals = before
        return self._choose(test, then, self._run(otherwise), statement)

    # -- conditions ----------------------------------------------------------------------------------------------------

    def _truth(self, node: ast.expr) -> Truth:
        """Return whether a condition holds."""
        match node:
            case ast.BoolOp(ast.And(), values):
                return reduce(both, map(self._truth, values))
            case ast.BoolOp(ast.Or(), values):
                return reduce(either, map(self._truth, values))
            case ast.UnaryOp(ast.Not(), operand):
                return negate(self._truth(operand))
            case ast.IfExp(test, body, otherwise):
                return choose_truth(self._truth(test), self._truth(body), self._truth(otherwise))
        return self._truth_of(self._value(node), node)

    def _truth_of(self, meaning: Meaning, node: ast.AST) -> Truth:
        match meaning:
            case Known(value):
                return bool(value)
            case Computed(x.Predicate() as predicate):
                return predicate
            case Computed(x.Value() as value, none):
                return both(negate(none), self._is_true(value, meaning.enum, node))
        raise AssertionError(meaning)

    def _is_true(self, value: x.Value, enum: type[Enum] | None, node: ast.AST) -> x.Predicate:
        """Return whether a value that is not None is true."""
        type_ = self._type(value, node)
        if isinstance(type_, BoolType):
            return x.Compare("==", value, x.Literal(True))
        if has_truth(enum) if enum is not None else isinstance(type_, ChoiceType):
            self._refuse(f"{_text(node)} is a member of an enum, whose truth depends on it; compare it", node)
        if enum is None and type(type_) in _ZEROS:
            return x.Compare("!=", value, x.Literal(_ZEROS[type(type_)]))
        return x.Present(value) if isinstance(value, x.AttributeRef) else x.Compare("==", value, value)

    # -- values --------------------------------------------------------------------------------------------------------

    def _value(self, node: ast.expr) -> Meaning:
        """Return what an expression stands for."""
        match node:
            case ast.Constant(value) if isinstance(value, _PLAIN):
                return Known(value)
            case ast.Tuple(elements) | ast.List(elements) | ast.Set(elements):
                return Known(tuple(self._constant(each) for each in elements))
            case ast.Name(name):
                return self._locals[name] if name in self._locals else self._outside(node)
            case ast.Attribute(ast.Name(name), member) if name == self._source.parameter and name not in self._locals:
                return self._member(member, node)
            case ast.Attribute(base, member) if self._is_inside(base):
                return self._value_of_member(self._value(base), member, node)
            case ast.Attribute():
                return self._outside(node)
            case ast.UnaryOp(op, operand):
                return self._unary(op, operand, node)
            case ast.BinOp(left, op, right):
                return self._binary(op, self._value(left), self._value(right), node)
            case ast.BoolOp(op, operands):
                *others, last = [self._value(each) for each in operands]
                for left, place in zip(reversed(others), reversed(operands[:-1]), strict=True):
                    last = self._shortcut(op, left, last, place)
                return last
            case ast.Compare(left, ops, rights):
                return self._comparisons(node, [left, *rights], ops)
            case ast.IfExp(test, body, otherwise):
                return self._choose(self._truth(test), self._value(body), self._value(otherwise), node)
            case ast.Call(function, arguments, []):
                return self._call(function, arguments, node)
            case ast.Call(function):
                return self._made_by(function, node)
        self._refuse(f"{_describe(node)} cannot be translated; {_ALLOWED}", node)

    def _constant(self, node: ast.expr) -> Any:
        meaning = self._value(node)
        if isinstance(meaning, Known):
            return meaning.value
        self._refuse(f"{_text(node)} is not a constant; write a comparison for each value, joined by or", node)

    def _member(self, name: str, node: ast.AST) -> Meaning:
        """Return an attribute, another property, or a constant of the class."""
        found = getattr(self._cls, name, None)
        if isinstance(found, property | cached_property):
            if name in self._within:
                self._refuse(f"it refers to itself by {name}", node)
            return _Reader(self._cls, name, self._checker, self._within, self._uses).result()
        if name in self._checker.types:
            type_, attribute = self._checker.types[name], x.AttributeRef(name)
            none: Truth = x.Not(x.Present(attribute))
            return Computed(attribute, none, type_.enum if isinstance(type_, ChoiceType) else None)
        constant = plain_value(found)
        if isinstance(constant, _PLAIN) and constant is not None:
            self._uses.has_constants = True
            return Known(constant)
        self._refuse(f"{name_of(self._cls)} has no attribute {name!r} that predicates can test", node)

    def _is_inside(self, node: ast.expr) -> bool:
        """Return whether a name, or what it belongs to, is the event or a local variable."""
        root = _root(node)
        return isinstance(root, ast.Name) and root.id in self._getter.__code__.co_varnames

    def _value_of_member(self, base: Meaning, member: str, node: ast.expr) -> Meaning:
        """`.value` of a member of an enum, which fails in Python for None."""
        if isinstance(base, Computed) and base.enum is not None and member == "value":
            return Computed(base.node)
        self._refuse(f"{_text(node)} is no attribute or property of the event; {_ALLOWED}", node)

    def _outside(self, node: ast.expr) -> Meaning:
        """Return a constant by its name: of the module, of a function around the class, of a module or class."""
        found = plain_value(self._object(node))
        if isinstance(found, tuple | frozenset):
            elements = tuple(map(plain_value, found))
            if all(isinstance(each, _PLAIN) for each in elements):
                return Known(elements)
        elif isinstance(found, _PLAIN):
            return Known(found)
        self._refuse(f"{_text(node)} is a {type(found).__name__}, no constant or enum member", node)

    def _object(self, node: ast.expr) -> Any:
        """Return the object that a name means, at the time at which the subscription is made."""
        self._uses.has_constants = True
        match node:
            case ast.Name(name) if name == self._source.parameter:
                self._refuse("it uses the event as a whole; use its attributes", node)
            case ast.Name(name) if name in self._getter.__code__.co_varnames:
                self._refuse(f"{name} may have no value here; assign it before", node)
            case ast.Name(name):
                free = self._getter.__code__.co_freevars
                cells = dict(zip(free, self._getter.__closure__ or (), strict=True))
                outer = self._getter.__globals__
                try:
                    return cells[name].cell_contents if name in cells else (outer if name in outer else _BUILTINS)[name]
                except (KeyError, ValueError):
                    self._refuse(f"there is no {name}", node)
            case ast.Attribute(base, member):
                holder = self._object(base)
                if isinstance(holder, ModuleType | type | Enum) and hasattr(holder, member):
                    return getattr(holder, member)
        self._refuse(f"{_text(node)} is no constant, attribute or property; {_ALLOWED}", node)

    # -- operators -----------------------------------------------------------------------------------------------------

    def _unary(self, op: ast.unaryop, operand: ast.expr, node: ast.expr) -> Meaning:
        if isinstance(op, ast.Not):
            return as_meaning(negate(self._truth(operand)))
        if isinstance(op, ast.Invert):
            self._refuse("~ cannot be translated; write not", node)
        meaning = self._value(operand)
        if isinstance(meaning, Known):
            return self._fold(operator.neg if isinstance(op, ast.USub) else operator.pos, (meaning.value,), node)
        negated = x.Negation(as_value(meaning))
        self._type(negated, node)
        return self._made(Computed(negated) if isinstance(op, ast.USub) else Computed(as_value(meaning)), node)

    def _binary(self, op: ast.operator, left: Meaning, right: Meaning, node: ast.expr) -> Meaning:
        if isinstance(op, ast.BitAnd | ast.BitOr):
            return self._logic(op, left, right, node)
        sign = _ARITHMETIC.get(type(op))
        if sign is None:
            self._refuse(f"the operator of {_text(node)} cannot be translated; {_ALLOWED}", node)
        if isinstance(left, Known) and isinstance(right, Known):
            return self._fold(COMPUTE[sign], (left.value, right.value), node)
        made = x.arithmetic(sign, self._operand(left, node), self._operand(right, node))
        self._type(made, node)
        return self._made(Computed(made), node)

    def _logic(self, op: ast.operator, left: Meaning, right: Meaning, node: ast.expr) -> Meaning:
        """`&` and `|` of bools."""
        tests = [self._bool(each, node) for each in (left, right)]
        return as_meaning((both if isinstance(op, ast.BitAnd) else either)(*tests))

    def _bool(self, meaning: Meaning, node: ast.expr) -> Truth:
        match meaning:
            case Known(bool(value)):
                return value
            case Computed(x.Predicate() as predicate):
                return predicate
            case Computed(x.Value() as value) if isinstance(self._type(value, node), BoolType):
                return x.Compare("==", value, x.Literal(True))
        self._refuse(f"{_text(node)} computes with bits; & and | are for bools", node)

    def _shortcut(self, op: ast.boolop, left: Meaning, right: Meaning, node: ast.expr) -> Meaning:
        """`and` and `or`, which give one of their operands: `a or b` is `a if a else b`; `node` is the left one."""
        test = self._truth(node) if isinstance(node, ast.BoolOp) else self._truth_of(left, node)
        is_and = isinstance(op, ast.And)
        first, second = self._as_truth(left, node), self._as_truth(right, node)
        if first is not None and second is not None:
            return self._made(as_meaning((both if is_and else either)(first, second)), node)
        chosen = self._choose(test, *((right, left) if is_and else (left, right)), node)
        if isinstance(chosen, Known) or isinstance(test, bool):
            return chosen
        none = either(none_of(left), both(test, none_of(right))) if is_and else both(negate(test), none_of(right))
        return chosen._replace(none=none)  # what is true is not None

    def _choose(self, test: Truth, then: Meaning, otherwise: Meaning, node: ast.AST) -> Meaning:
        """One of two values by a condition."""
        if isinstance(test, bool):
            return then if test else otherwise
        if then == otherwise and isinstance(then, Known):
            return then
        first, second = self._as_truth(then, node), self._as_truth(otherwise, node)
        if first is not None and second is not None:
            return self._made(as_meaning(choose_truth(test, first, second)), node)
        if tuple in (type(getattr(then, "value", None)), type(getattr(otherwise, "value", None))):
            self._refuse("a tuple can be chosen in no expression; choose the test of its contents", node)
        self._check_enums(then, otherwise, node)
        none = either(both(test, none_of(then)), both(negate(test), none_of(otherwise)))
        enum = plain_enum(otherwise) if then == Known(None) else plain_enum(then)
        chosen = conditional(test, then, otherwise)
        self._type(chosen, node)
        return self._made(Computed(chosen, none, enum), node)

    def _as_truth(self, meaning: Meaning, node: ast.AST) -> Truth | None:
        """A bool that is never None; None for another value."""
        match meaning:
            case Known(bool(value)):
                return value
            case Computed(x.Predicate() as predicate):
                return predicate
            case Computed(x.Value() as value, False) if isinstance(self._type(value, node), BoolType):
                return x.Compare("==", value, x.Literal(True))
        return None

    # -- comparisons ---------------------------------------------------------------------------------------------------

    def _comparisons(self, node: ast.Compare, sides: list[ast.expr], ops: list[ast.cmpop]) -> Meaning:
        values = [self._value(side) for side in sides]
        found = [self._compare(op, *pair, node) for op, pair in zip(ops, pairwise(values), strict=True)]
        return self._made(as_meaning(reduce(both, found)), node)

    def _compare(self, op: ast.cmpop, left: Meaning, right: Meaning, node: ast.Compare) -> Truth:
        match op:
            case ast.Is() | ast.IsNot():
                found = self._identical(left, right, node)
                return found if isinstance(op, ast.Is) else negate(found)
            case ast.In() | ast.NotIn():
                found = self._contained(left, right, node)
                return found if isinstance(op, ast.In) else negate(found)
            case ast.Eq():
                return self._equal(left, right, node)
            case ast.NotEq():
                return negate(self._equal(left, right, node))
        sign = _COMPARISONS[type(op)]
        if isinstance(left, Known) and isinstance(right, Known):
            return bool(self._fold(COMPARE[sign], (left.value, right.value), node).value)
        if plain_enum(left) or plain_enum(right):
            self._refuse(f"{_text(node)} orders members of an enum, which have no order", node)
        return self._checked(x.Compare(sign, self._operand(left, node), self._operand(right, node)), node)

    def _equal(self, left: Meaning, right: Meaning, node: ast.AST) -> Truth:
        """`==` of Python, where None equals None alone."""
        if isinstance(left, Known) and isinstance(right, Known):
            return bool(left.value == right.value)
        nones = none_of(left), none_of(right)
        if Known(None) in (left, right):
            return both(*nones)
        self._check_enums(left, right, node)
        test = self._checked(x.Compare("==", self._operand(left, node), self._operand(right, node)), node)
        return either(both(*nones), both(both(negate(nones[0]), negate(nones[1])), test))

    def _identical(self, left: Meaning, right: Meaning, node: ast.Compare) -> Truth:
        """`is`, which means the same as `==` for None, members of an enum and bools."""
        constant, other = (right, left) if _is_single(right) else (left, right)
        if not isinstance(constant, Known) or not _is_single(constant):
            self._refuse(f"{_text(node)} compares objects; write == instead of is", node)
        if isinstance(other, Known):
            return other.value is constant.value
        if isinstance(constant.value, bool):
            self._bool(other, node)
        if isinstance(constant.value, Enum) and other.enum is not type(constant.value):
            self._refuse(f"{_text(node)} compares with a member of another enum; write == instead of is", node)
        return self._equal(left, right, node)

    def _contained(self, item: Meaning, group: Meaning, node: ast.Compare) -> Truth:
        """`in` a tuple of constants, or a constant part in a text."""
        match item, group:
            case Known(value), Known(options) if isinstance(options, tuple | str):
                return bool(self._fold(operator.contains, (options, value), node).value)
            case Known(str(part)), Computed():
                return self._checked(x.TextTest("contains", self._operand(group, node), x.Literal(part)), node)
            case Computed(), Known(tuple(options)):
                return self._one_of(item, options, node)
        self._refuse(
            f"{_text(node)} cannot be translated; write x in (1, 2) with constants, or 'part' in self.text", node
        )

    def _one_of(self, item: Computed, options: tuple[Any, ...], node: ast.Compare) -> Truth:
        constants = [option for option in options if option is not None]
        for option in constants:
            self._check_enums(item, Known(option), node)
        has_none = len(constants) < len(options)
        if not constants:
            return item.none if has_none else False
        test = self._checked(x.OneOf(as_value(item), tuple(map(x.Literal, constants))), node)
        return either(item.none, test) if has_none else both(negate(item.none), test)

    def _check_enums(self, left: Meaning, right: Meaning, node: ast.AST) -> None:
        """Refuse to take a member of a plain enum for its value, which it does not equal in Python."""
        first, second = plain_enum(left), plain_enum(right)
        if first is not second and Known(None) not in (left, right):
            enum = first or second
            assert enum is not None
            self._refuse(
                f"{_text(node)} takes a member of {enum.__name__} for something else; write {enum.__name__}.X", node
            )

    # -- calls ---------------------------------------------------------------------------------------------------------

    def _call(self, function: ast.expr, arguments: list[ast.expr], node: ast.expr) -> Meaning:
        match function, arguments:
            case ast.Attribute(base, "startswith" | "endswith" as test), [part]:
                return self._text_test(test, self._value(base), self._constant(part), node)
            case ast.Name("abs" | "len" | "bool" as name), [argument] if self._object(function) is _BUILTINS[name]:
                if name == "bool":
                    return as_meaning(self._truth(argument))
                meaning = self._value(argument)
                if isinstance(meaning, Known):
                    return self._fold(abs if name == "abs" else len, (meaning.value,), node)
                made = x.Function("abs" if name == "abs" else "length", self._operand(meaning, node))
                self._type(made, node)
                return self._made(Computed(made), node)
        return self._made_by(function, node)

    def _made_by(self, function: ast.expr, node: ast.Call | ast.expr) -> Meaning:
        """Return a constant time or duration."""
        assert isinstance(node, ast.Call)
        maker = (
            self._object(function) if isinstance(_root(function), ast.Name) and not self._is_inside(function) else None
        )
        if maker is timedelta or maker is datetime:
            given = [self._argument(each) for each in node.args]
            named = {each.arg: self._argument(each.value) for each in node.keywords if each.arg}
            return self._fold(lambda: maker(*given, **named), (), node)
        self._refuse(f"the call of {_text(function)} cannot be translated; {_ALLOWED}", node)

    def _argument(self, node: ast.expr) -> Any:
        """Return a constant, or the time zone of a time."""
        if isinstance(_root(node), ast.Name) and not self._is_inside(node):
            found = self._object(node)
            if isinstance(found, tzinfo):
                return found
        return self._constant(node)

    def _text_test(self, test: str, text: Meaning, part: Any, node: ast.expr) -> Meaning:
        if isinstance(text, Known):
            return self._fold(getattr(str, test), (text.value, part), node)
        parts = part if isinstance(part, tuple) else (part,)
        if plain_enum(text) or not parts or not all(type(each) is str for each in parts):
            self._refuse(f"{_text(node)} needs a text and constant texts", node)
        item, found = self._operand(text, node), list[Truth]()
        for each in parts:
            found.append(self._checked(x.TextTest(test, item, x.Literal(each)), node))
        return self._made(as_meaning(reduce(either, found)), node)

    # -- parts of an expression ----------------------------------------------------------------------------------------

    def _operand(self, meaning: Meaning, node: ast.AST) -> x.Value:
        """Return a value to compute or compare with, which is unknown where it is None."""
        if isinstance(meaning, Known) and isinstance(meaning.value, tuple):
            self._refuse(f"{_text(node)} takes a tuple for one value; write x in (1, 2) to test its contents", node)
        if meaning == Known(None):
            self._refuse(f"{_text(node)} fails in Python, as an operand is None", node)
        return as_value(meaning)

    def _fold(self, compute: Callable[..., Any], operands: tuple[Any, ...], node: ast.AST) -> Known:
        """Return what Python computes of constants."""
        try:
            found = compute(*operands)
        except Exception as problem:
            self._refuse(f"{_text(node)} fails in Python ({type(problem).__name__}: {problem})", node)
        if not isinstance(found, _PLAIN) and not isinstance(found, tuple):
            self._refuse(f"{_text(node)} is a {type(found).__name__}, no constant", node)
        return Known(found)

    def _made(self, meaning: Meaning, node: ast.AST) -> Meaning:
        """Return what was made, if it is not too large."""
        parts = [part for part in meaning if isinstance(part, x.Expression)]
        if any(sum(1 for _ in islice(part.walk(), MAX_NODES)) == MAX_NODES for part in parts):
            self._refuse(
                f"its expression has {MAX_NODES} parts or more, as each use of a name repeats it; simplify it", node
            )
        return meaning

    def _type(self, value: x.Value, node: ast.AST) -> AttributeType:
        try:
            return type_of(self._checker.value(value))
        except SubscriptionError as problem:
            self._refuse(str(problem), node)

    def _checked(self, predicate: x.Predicate, node: ast.AST) -> x.Predicate:
        try:
            self._checker.predicate(predicate)
        except SubscriptionError as problem:
            self._refuse(str(problem), node)
        return predicate


def _is_single(meaning: Meaning) -> bool:
    """Return whether a constant is the only object of its value."""
    return isinstance(meaning, Known) and isinstance(meaning.value, bool | Enum | None)


def _root(node: ast.expr) -> Any:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node


def _text(node: ast.AST) -> str:
    return f"`{ast.unparse(node)}`"


_WORDS = {
    "For": "a loop", "While": "a loop", "Try": "try", "TryStar": "try", "With": "with", "Match": "match",
    "NamedExpr": ":=", "JoinedStr": "an f-string", "Subscript": "an index",
    "ListComp": "a comprehension", "SetComp": "a comprehension", "GeneratorExp": "a comprehension",
}  # fmt: skip


def _describe(node: ast.AST) -> str:
    return _WORDS.get(type(node).__name__) or f"`{ast.unparse(node).splitlines()[0]}`"
