"""The source of a property as a syntax tree, and what its parts stand for: constants, or values of an event."""

import ast
import inspect
import warnings
from contextlib import suppress
from copy import copy
from enum import Enum
from functools import lru_cache, partial
from tokenize import TokenError
from types import CodeType
from typing import Any, NamedTuple, TypeAlias

import genus.filters._expression as x
from genus.filters._covering import needed_attributes


class Source(NamedTuple):
    """The syntax tree of a function: its first parameter, its statements, and the number of lines before it."""

    parameter: str
    statements: list[ast.stmt]
    line: int


class NoSource(Exception):
    """The source of a function is not known; the message is the reason."""


@lru_cache(maxsize=1024)
def source_of(code: CodeType) -> Source:
    """Return the source of a function; NoSource if there is none, or not the right one."""
    if not code.co_argcount:
        raise NoSource("it has no parameter for the event")
    if code.co_flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        raise NoSource("it is written as async def; write def")
    if code.co_flags & inspect.CO_GENERATOR:  # even if the yield is never reached
        raise NoSource("it has a yield, so that it gives a generator; write return")
    try:
        lines, first = inspect.getsourcelines(code)
        tree = ast.parse("".join(["if True:\n", *lines] if lines[0][:1].isspace() else ["\n", *lines]))
    except (OSError, TypeError):
        raise NoSource(
            "its source is not there, as of code that was typed at a prompt or made by exec; write the class in a file"
        ) from None
    except (SyntaxError, TokenError):
        raise NoSource("its source cannot be read by itself; write it as a function below @property") from None
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.Lambda) and _is_source_of(node, code):
            body: list[ast.stmt] = [ast.Return(node.body)] if isinstance(node, ast.Lambda) else node.body
            return Source(code.co_varnames[0], body, first - 2)
    raise NoSource("its source is not what Python runs, as the file was changed since; import it again")


def location_of(cls: type, getter: object) -> str:
    """The file and line of the function that a getter calls in the end; those of its class if that is not known."""
    while isinstance(getter, partial):
        getter = getter.func
    with suppress(ValueError):  # a function that wraps itself
        getter = inspect.unwrap(getter) if callable(getter) else getter
    code = getattr(getter, "__code__", None)
    if isinstance(code, CodeType):
        return f"{code.co_filename}, line {code.co_firstlineno}"
    try:
        return f"{inspect.getfile(cls)}, line {inspect.getsourcelines(cls)[1]}"
    except (OSError, TypeError):
        return f"{cls.__module__}.{cls.__qualname__}"


def _is_source_of(node: ast.FunctionDef | ast.Lambda, code: CodeType) -> bool:
    """Whether a syntax tree compiles to the code, so that a file that changed after its import is not believed."""
    *_, scope, _ = ["", *code.co_qualname.split(".")]
    scope = scope if scope.isidentifier() else "_"  # names that begin with two underscores have that of their class
    around = ", ".join(name for name in code.co_freevars if name != "__class__")
    module = ast.parse(f"def _({around}):\n class {scope}: pass")
    module.body[0].body[0].body = [_without_decorators(node)]  # type: ignore[attr-defined]
    future = code.co_flags & sum(1 << bit for bit in range(17, 25))
    with warnings.catch_warnings(action="ignore"):  # Python has given them for the file
        made = compile(ast.fix_missing_locations(module), "<property>", "exec", flags=future, dont_inherit=True)
    [outer] = _codes_in(made)
    [body] = _codes_in(outer)
    return any(_is_same_code(each, code) for each in _codes_in(body))


def _without_decorators(node: ast.FunctionDef | ast.Lambda) -> ast.stmt:
    if isinstance(node, ast.Lambda):
        return ast.Expr(node)
    bare = copy(node)
    bare.decorator_list = []
    return bare


def _codes_in(code: CodeType) -> list[CodeType]:
    """Return the codes of the functions and classes directly within one."""
    return [constant for constant in code.co_consts if isinstance(constant, CodeType)]


def _is_same_code(one: CodeType, other: CodeType) -> bool:
    return _contents(one) == _contents(other)


def _contents(code: CodeType) -> tuple[object, ...]:
    constants = [(type(each), each) for each in code.co_consts if not isinstance(each, CodeType)]
    return code.co_name, code.co_code, code.co_names, code.co_varnames, code.co_freevars, constants


Truth: TypeAlias = x.Predicate | bool
"""A condition, or one that is decided already."""


class Known(NamedTuple):
    """A constant, None, or a tuple of constants."""

    value: Any


class Computed(NamedTuple):
    """A value that depends on the event, which is unknown where Python has None, and the condition for None.

    A plain enum equals nothing but its own members in Python, so its class is kept.
    """

    node: x.Value | x.Predicate
    none: Truth = False
    enum: type[Enum] | None = None


Meaning: TypeAlias = Known | Computed


def negate(test: Truth) -> Truth:
    if isinstance(test, bool):
        return not test
    return test.operand if isinstance(test, x.Not) else ~test


def both(one: Truth, other: Truth) -> Truth:
    if isinstance(one, bool):
        return other if one else False
    if isinstance(other, bool):
        return one if other else False
    return one & other


def either(one: Truth, other: Truth) -> Truth:
    return negate(both(negate(one), negate(other))) if isinstance(one, bool) or isinstance(other, bool) else one | other


def choose_truth(test: Truth, then: Truth, otherwise: Truth) -> Truth:
    return either(both(test, then), both(negate(test), otherwise))


def as_meaning(test: Truth) -> Meaning:
    return Known(test) if isinstance(test, bool) else Computed(test)


def as_value(meaning: Meaning) -> x.Value:
    match meaning:
        case Known(value):
            return x.Literal(value)
        case Computed(x.Value() as value):
            return value
        case Computed(x.Predicate() as predicate):
            return x.Conditional(predicate, x.Literal(True), x.Literal(False))
    raise AssertionError(meaning)


def none_of(meaning: Meaning) -> Truth:
    return meaning.none if isinstance(meaning, Computed) else meaning.value is None


def plain_enum(meaning: Meaning) -> type[Enum] | None:
    """Return the enum of a member that equals no plain value."""
    enum = meaning.enum if isinstance(meaning, Computed) else type(meaning.value)
    is_plain = enum is not None and issubclass(enum, Enum) and not issubclass(enum, str | int)
    return enum if is_plain else None


def has_truth(enum: type[Enum]) -> bool:
    """Return whether members of an enum can be false; EnumMeta itself has these methods for the class."""
    return any(method in vars(cls) for cls in enum.__mro__ for method in ("__bool__", "__len__"))


def conditional(test: x.Predicate, then: Meaning, otherwise: Meaning) -> x.Value:
    """One of two values; unknown where the chosen one is None."""
    if otherwise == Known(None):
        return _where_known(test, as_value(then))
    if then == Known(None):
        other = negate(test)
        assert isinstance(other, x.Predicate)
        return _where_known(other, as_value(otherwise))
    return x.Conditional(test, as_value(then), as_value(otherwise))


def _where_known(test: x.Predicate, value: x.Value) -> x.Value:
    """A value where a condition holds; the value itself if the condition is the presence of an attribute it needs."""
    is_implied = isinstance(test, x.Present) and test.attribute.name in needed_attributes(value)
    return value if is_implied else x.Conditional(test, value)
