"""Subscriptions as Python source code, with the operators of `this`.

Some predicates cannot be written with operators, as Python would compute them or turn them round before `this` sees
them: `1 + 2 < lane`, `3 < lane`. Those are given as text, which `where` takes too; so are those with very many
operators, which Python's own compiler refuses.
"""

import math
import unicodedata
from collections.abc import Iterator
from datetime import datetime, timedelta
from keyword import iskeyword
from typing import Any, Literal

import genus.filters._expression as x
from genus.filters._subscription import Subscription
from genus.model import micros_of_duration, name_of
from genus.model.types import BoolType

MAX_OPERATORS = 500
"""The most operators that are written in Python; its compiler takes a few thousand."""
MAX_LINE = 100
"""The longest call that is written in one line."""

_UNITS = {
    "d": "days",
    "h": "hours",
    "min": "minutes",
    "s": "seconds",
    "ms": "milliseconds",
    "us": "microseconds",
}
_TAKEN = frozenset(
    {
        "Subscription",
        "all_of",
        "this",
        "when",
        "coalesce",
        "datetime",
        "timedelta",
        "UTC",
        "abs",
        "float",
        "bus",
        "handle",
        "event",
        "print",
    }
)
"""Names that the code uses for something else than the classes of a subscription."""


def python_source(subscription: Subscription[Any], form: Literal["subscription", "subscribe"] = "subscription") -> str:
    """Return Python code that makes an equal subscription, or that subscribes a function with it.

    Evaluated with the names of `genus`, with `datetime`, `timedelta` and `UTC` of `datetime`, and with the classes of
    the subscription, the expression gives an equal subscription. Classes have their Python names, whatever they are
    called in texts. One whose Python name is no identifier, stands for something else in the code, or is that of
    another class of the subscription, is called by its name in texts, with `_` for each dot, and at the end if that
    name is taken, too.

    Args:
        subscription: The subscription.
        form: `subscription` for an expression, `subscribe` for a function that a bus calls with the events.

    >>> from genus import Event, Subscription
    >>> from genus.filters import python_source
    >>> class Truck(Event, name="road.Truck"):
    ...     axles: int
    >>> heavy = Subscription.parse("road.Truck has place where axles > 2 or place startswith 'A8'", [Truck])
    >>> python_source(heavy)
    'Subscription(Truck, has=("place",), where=(this.axles > 2) | this.place.startswith("A8"))'
    >>> print(python_source(Subscription(Truck, exact=True), "subscribe"))
    @bus.collection(Truck).subscribe(exact=True)
    def handle(event: Truck) -> None:
        print(event)
    """
    names = class_names(subscription.types)
    listed = [names[cls] for cls in subscription.types]
    types = listed[0] if len(listed) == 1 else f"all_of({', '.join(listed)})"
    if form == "subscription":
        return _call("Subscription", [types, *_options(subscription)])
    call = _call(f"@bus.collection({types}).subscribe", list(_options(subscription)))
    return f"{call}\ndef handle(event: {listed[0]}) -> None:\n    print(event)"


def class_names(classes: tuple[type, ...]) -> dict[type, str]:
    """Return the name that each class has in the code, all different.

    >>> from genus import Event, Kind
    >>> class Door(Event): ...
    >>> class Other(Kind, name="house.Door"): ...
    >>> Other.__name__ = "Door"
    >>> list(class_names((Door, Other)).values())
    ['Door', 'house_Door']
    """
    found: dict[type, str] = {}
    for cls in classes:
        taken = {*_TAKEN, *found.values()}
        name = cls.__name__ if _is_name(cls.__name__) and cls.__name__ not in taken else _made_name(name_of(cls))
        while name in taken or iskeyword(name):
            name += "_"
        found[cls] = name
    return found


def _made_name(name: str) -> str:
    """A Python name of the name in texts, which is an identifier or several, joined by dots."""
    return unicodedata.normalize("NFKC", name).replace(".", "_")


def _is_name(name: str) -> bool:
    """Whether Python reads a name as it is written: it takes compatible letters, such as ﬁ and fi, for the same."""
    return name.isidentifier() and not iskeyword(name) and unicodedata.normalize("NFKC", name) == name


def _options(subscription: Subscription[Any]) -> Iterator[str]:
    if subscription.exact:
        yield "exact=True"
    if subscription.has:
        yield f"has={_names(subscription.has)}"
    if subscription.lacks:
        yield f"lacks={_names(subscription.lacks)}"
    if subscription.where is not None:
        yield f"where={_where(subscription.where)}"


def _names(names: tuple[str, ...]) -> str:
    return f"({', '.join(map(_quoted, names))}{',' if len(names) == 1 else ''})"


def _call(function: str, arguments: list[str]) -> str:
    """Return a call in one line, or with a line for each argument."""
    line = f"{function}({', '.join(arguments)})"
    if len(line) <= MAX_LINE or len(arguments) < 2:
        return line
    return f"{function}(\n{''.join(f'    {argument},{chr(10)}' for argument in arguments)})"


# -- predicates --------------------------------------------------------------------------------------------------------


def _where(predicate: x.Predicate) -> str:
    operators = sum(_count_operators(node) for node in predicate.walk())
    if operators > MAX_OPERATORS or not all(map(_is_built_by_operators, predicate.walk())):
        return _quoted(x.format_expression(predicate))
    return _predicate(predicate)


def _count_operators(node: x.Expression) -> int:
    match node:
        case x.And(operands) | x.Or(operands):
            return len(operands)
        case x.Arithmetic(_, steps):
            return len(steps)
        case x.Not() | x.Negation() | x.Function() | x.Conditional() | x.Coalesce():
            return 1
    return 0


def _is_built_by_operators(node: x.Expression) -> bool:
    """Whether Python's operators give this node, if they give those below: one operand at least must be a term."""
    match node:
        case x.Compare(_, left, _):
            return _is_term(left)
        case x.OneOf(item) | x.TextTest(_, item):
            return _is_term(item)
        case x.Negation(operand) | x.Function(_, operand):
            return _is_term(operand)
        case x.Arithmetic(first, steps):
            return _is_term(first) or _is_term(steps[0].operand)
    return True


def _is_term(node: x.Value) -> bool:
    return not isinstance(_plain(node), x.Literal)


def _predicate(node: x.Predicate) -> str:
    match node:
        case x.And(operands):
            return " & ".join(_conjuncts(operands))
        case x.Or(operands):
            return " | ".join(map(_operand, operands))
        case x.Not(x.Present(attribute)):
            return f"{_value(attribute)}.is_absent()"
        case x.Not(operand):
            return f"~{_operand(operand)}"
        case x.Present(attribute):
            return f"{_value(attribute)}.is_present()"
        case x.OneOf(item, options):
            return f"{_atom(item)}.isin([{', '.join(map(_value, options))}])"
        case x.TextTest(op, item, part):
            return f"{_atom(item)}.{op}({_value(part)})"
        case x.Compare("==", x.AttributeRef(_, BoolType()) as flag, x.Literal(True)):
            return _value(flag)
        case x.Compare(op, left, right):
            return f"{_value(left)} {op} {_value(right)}"
    raise TypeError(f"cannot write {node!r} in Python")


def _conjuncts(operands: tuple[x.Predicate, ...]) -> Iterator[str]:
    """Yield the operands of a conjunction; two that are the ends of a range are one call of `between`."""
    waiting = list(operands)
    while waiting:
        match waiting:
            case [x.Compare(">=", value, low), x.Compare("<=", same, high), *others] if value == same:
                yield f"{_atom(value)}.between({_value(low)}, {_value(high)})"
                waiting = others
            case _:
                yield _operand(waiting.pop(0))


def _operand(node: x.Predicate) -> str:
    """Return a predicate as an operand of & | ~, which bind more tightly than comparisons."""
    text = _predicate(node)
    is_call = isinstance(node, x.OneOf | x.TextTest | x.Present | x.Not)
    is_flag = isinstance(node, x.Compare) and text == _value(node.left)
    is_range = isinstance(node, x.And) and len(list(_conjuncts(node.operands))) == 1
    return text if is_call or is_flag or is_range else f"({text})"


# -- values ------------------------------------------------------------------------------------------------------------


def _value(node: x.Value) -> str:
    match _plain(node):
        case x.AttributeRef(name):
            return f"this.{name}" if _is_name(name) and not name.startswith("_") else f"this[{_quoted(name)}]"
        case x.Literal(value):
            return _constant(value)
        case x.Negation(operand):
            return f"-{_inside(operand, 4)}"
        case x.Function("length", operand):
            return f"{_atom(operand)}.length()"
        case x.Function(op, operand):
            return f"{op}({_value(operand)})"
        case x.Arithmetic(first, steps) as chain:
            level = x.precedence(chain)
            rest = "".join(f" {step.op} {_inside(step.operand, level + 1)}" for step in steps)
            return f"{_inside(first, level)}{rest}"
        case x.Conditional(condition, then, otherwise):
            rest = "" if otherwise is None else f", {_value(otherwise)}"
            return f"when({_predicate(condition)}, {_value(then)}{rest})"
        case x.Coalesce(operands):
            return f"coalesce({', '.join(map(_value, operands))})"
    raise TypeError(f"cannot write {node!r} in Python")


def _plain(node: x.Value) -> x.Value:
    """Return a value without the conversions that `bind` inserts."""
    while isinstance(node, x.ToFloat | x.Micros):
        node = node.operand
    return node


def _inside(node: x.Value, level: int) -> str:
    """Return a value within an operation that binds at a level; looser ones get parentheses."""
    text, plain = _value(node), _plain(node)
    return f"({text})" if x.precedence(plain) < level and not isinstance(plain, x.Conditional) else text


def _atom(node: x.Value) -> str:
    """A value that a method is called of."""
    return _inside(node, 4)


def _constant(value: x.Constant) -> str:
    match value:
        case str() | bytes():
            return _quoted(value)
        case datetime():
            return x.python_time(value)
        case timedelta():
            return _duration(micros_of_duration(value))
        case float() if not math.isfinite(value):
            return f'float("{value}")'
    return repr(value)


def _duration(micros: int) -> str:
    unit, size = next((unit, size) for unit, size in x.DURATION_UNITS.items() if micros % size == 0)
    return f"timedelta({_UNITS[unit]}={micros // size})" if micros else "timedelta(0)"


def _quoted(value: str | bytes) -> str:
    """Return a text or bytes in double quotes, unless single ones save escapes."""
    text = repr(value)
    return text if '"' in text else text.replace("'", '"')
