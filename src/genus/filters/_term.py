"""`this` and `Term`: build predicates with Python operators, such as `this.speed * 3.6 > 30`."""

from collections.abc import Callable, Iterable
from datetime import date, datetime
from enum import Enum
from types import FunctionType, MemberDescriptorType
from typing import TYPE_CHECKING, Any, Never, NoReturn, overload

from genus.errors import SubscriptionError, did_you_mean
from genus.filters._constants import check_text, describe_unplain
from genus.filters._evaluate import read_pattern
from genus.filters._expression import (
    USE_PARENTHESES,
    AttributeRef,
    Coalesce,
    Compare,
    Conditional,
    Constant,
    Function,
    Literal,
    Negation,
    OneOf,
    Predicate,
    Present,
    TextTest,
    Value,
    arithmetic,
    as_predicate,
    format_expression,
    python_time,
    refuse_truth,
)
from genus.model import is_type
from genus.model.internal import PLAIN_CLASSES, plain_value

METHODS = {
    **dict.fromkeys(("isnull", "isna", "isNull", "is_null", "isNone"), ".is_absent()"),
    **dict.fromkeys(("notnull", "notna", "isNotNull", "is_not_null", "exists"), ".is_present()"),
    **dict.fromkeys(("str", "dt"), "the methods of a term directly, such as .startswith(...)"),
    **dict.fromkeys(("lower", "upper", "casefold", "strip", "trim"), 'all spellings, .isin(["A8", "a8"])'),
    **dict.fromkeys(("len", "size", "count"), ".length()"),
    **dict.fromkeys(
        ("rlike", "match", "matches", "fullmatch", "regexp", "ilike", "find"), ".like(...) or .contains(...)"
    ),
    **dict.fromkeys(("cast", "astype"), "the term as it is: values are not converted"),
    **dict.fromkeys(("is_in", "isIn", "in_"), ".isin([...])"),
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "abs": "abs(...)",
    "startsWith": ".startswith(...)",
    "endsWith": ".endswith(...)",
}
"""Methods of other libraries, with what to write instead."""


def describe_method(name: str, known: Iterable[str]) -> str:
    """Return what to write instead of a method that a term does not have."""
    if name in METHODS:
        return f"a term has no method {name}: write {METHODS[name]}"
    methods = sorted(each for each in known if not each.startswith("_") and each != "node")
    return f"a term has no method {name}; {did_you_mean(name, methods)}it has {', '.join(methods)}"


class Term:
    """A value in a predicate, such as `this.speed * 3.6`; made by `this`.

    It has the operators + - * / // %, `abs()` and, to make a predicate, the comparisons and the methods below. A term
    of a `bool` attribute is a predicate itself.
    """

    __hash__ = None  # type: ignore[assignment]
    __slots__ = ("node",)
    __array_ufunc__ = None  # so that numpy.int64(2) < this.lane is left to the methods below

    def __init__(self, node: Value) -> None:
        self.node = node

    def __eq__(self, other: object) -> Predicate:  # type: ignore[override]
        return Compare("==", self.node, as_value(other))

    def __ne__(self, other: object) -> Predicate:  # type: ignore[override]
        return Compare("!=", self.node, as_value(other))

    def __lt__(self, other: "Term | Constant") -> Predicate:
        return Compare("<", self.node, as_value(other))

    def __le__(self, other: "Term | Constant") -> Predicate:
        return Compare("<=", self.node, as_value(other))

    def __gt__(self, other: "Term | Constant") -> Predicate:
        return Compare(">", self.node, as_value(other))

    def __ge__(self, other: "Term | Constant") -> Predicate:
        return Compare(">=", self.node, as_value(other))

    def __add__(self, other: "Term | Constant") -> "Term":
        return Term(arithmetic("+", self.node, as_value(other)))

    def __radd__(self, other: Constant) -> "Term":
        return Term(arithmetic("+", as_value(other), self.node))

    def __sub__(self, other: "Term | Constant") -> "Term":
        return Term(arithmetic("-", self.node, as_value(other)))

    def __rsub__(self, other: Constant) -> "Term":
        return Term(arithmetic("-", as_value(other), self.node))

    def __mul__(self, other: "Term | Constant") -> "Term":
        return Term(arithmetic("*", self.node, as_value(other)))

    def __rmul__(self, other: Constant) -> "Term":
        return Term(arithmetic("*", as_value(other), self.node))

    def __truediv__(self, other: "Term | Constant") -> "Term":
        return Term(arithmetic("/", self.node, as_value(other)))

    def __rtruediv__(self, other: Constant) -> "Term":
        return Term(arithmetic("/", as_value(other), self.node))

    def __floordiv__(self, other: "Term | Constant") -> "Term":
        return Term(arithmetic("//", self.node, as_value(other)))

    def __rfloordiv__(self, other: Constant) -> "Term":
        return Term(arithmetic("//", as_value(other), self.node))

    def __mod__(self, other: "Term | Constant") -> "Term":
        return Term(arithmetic("%", self.node, as_value(other)))

    def __rmod__(self, other: Constant) -> "Term":
        return Term(arithmetic("%", as_value(other), self.node))

    def __abs__(self) -> "Term":
        return Term(Function("abs", self.node))

    def __neg__(self) -> "Term":
        return Term(Negation(self.node))

    def __and__(self, other: "Predicate | Term") -> Predicate:
        return as_predicate(self) & other

    def __or__(self, other: "Predicate | Term") -> Predicate:
        return as_predicate(self) | other

    def __invert__(self) -> Predicate:
        return ~as_predicate(self)

    def __bool__(self) -> NoReturn:
        refuse_truth()

    def __contains__(self, item: object) -> NoReturn:
        raise SubscriptionError(f"`in` cannot be used on a term: write .contains({item!r})")

    if not TYPE_CHECKING:  # type checkers know that a term has no other methods

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("_"):
                raise AttributeError(name)
            raise UnknownMethod(describe_method(name, vars(Term)))

    def __repr__(self) -> str:
        return f"<term {format_expression(self.node)}>"

    def __str__(self) -> str:
        raise SubscriptionError(f"{self!r} has no text: a predicate cannot convert values to text")

    def isin(self, options: Iterable[Constant], *others: Never) -> Predicate:
        """Return whether the value equals one of some constants, which are given as one list, set or tuple."""
        if others or isinstance(options, str | bytes) or not (isinstance(options, Term) or _is_iterable(options)):
            given = map(repr, map(plain_value, (options, *others)))
            raise SubscriptionError(f"isin takes a list: write .isin([{', '.join(given)}])")
        listed = (options,) if isinstance(options, Term) else options
        return OneOf(self.node, tuple(_literal(option) for option in listed))

    def between(self, low: "Term | Constant", high: "Term | Constant") -> Predicate:
        """Return whether the value lies between two others, both included."""
        return (self >= low) & (self <= high)

    def startswith(self, part: str) -> Predicate:
        """Return whether the text begins with a part."""
        return TextTest("startswith", self.node, _text_literal("startswith", part))

    def endswith(self, part: str) -> Predicate:
        """Return whether the text ends with a part."""
        return TextTest("endswith", self.node, _text_literal("endswith", part))

    def contains(self, part: str) -> Predicate:
        """Return whether the text contains a part."""
        return TextTest("contains", self.node, _text_literal("contains", part))

    def like(self, pattern: str, escape: str = "\\") -> Predicate:
        """Return whether the text is like a pattern: `%` stands for any text, `_` for one character.

        The escape character, any but these two, before one of them or before itself stands for that character;
        SubscriptionError if it is anywhere else.

        >>> print(this.label.like("50!%_%", escape="!"))
        label like '50\\\\%_%'
        """
        _text_literal("like", pattern)
        return TextTest("like", self.node, Literal(read_pattern(pattern, escape).text))

    def length(self) -> "Term":
        """Return the number of characters (Unicode code points) of the text, or of bytes.

        >>> print(this.label.length() > 8)
        length(label) > 8
        """
        return Term(Function("length", self.node))

    def is_present(self) -> Predicate:
        """Return whether the event carries this attribute; SubscriptionError if the term is not an attribute."""
        if not isinstance(self.node, AttributeRef):
            raise SubscriptionError("only an attribute can be present or absent, not an expression")
        return Present(self.node)

    def is_absent(self) -> Predicate:
        """Return whether the event lacks this attribute; SubscriptionError if the term is not an attribute."""
        return ~self.is_present()


class UnknownMethod(SubscriptionError, AttributeError):
    """A term has no such method."""


_REFUSED = {
    "__rand__ __ror__": f"only predicates are joined by & and |: {USE_PARENTHESES}",
    "__len__": "len() cannot be used on a term: write .length()",
    "__pow__ __rpow__": "there is no power: write a product, such as this.speed * this.speed",
    "__xor__ __rxor__": "there is no ^: write (p & ~q) | (q & ~p)",
    "__lshift__ __rshift__": "there are no operators on bits: test one by this.flags // 4 % 2 == 1",
    "__round__ __floor__ __trunc__": "round() cannot be used in a predicate: write // 1 to round down",
    "__int__ __float__": "a term has a value in an event only: compare it as it is, without int() or float()",
    "__iter__": "a term has one value, in an event only: it cannot be iterated or unpacked",
    "__getitem__": "a term has no items: test parts of a text by .startswith, .endswith, .contains or .like",
}
"""Operators that a term does not have, with what to write instead. Type checkers do not see them, and refuse them."""


def _refuse(message: str) -> Callable[..., NoReturn]:
    def refused(*_: object) -> NoReturn:
        raise SubscriptionError(message)

    return refused


for _names, _message in _REFUSED.items():
    for _name in _names.split():
        setattr(Term, _name, _refuse(_message))


class This:
    """The class of `this`, the event in a predicate: `this.speed > 30` is an expression tree.

    >>> (this.speed * 3.6 > 30) & this.category.isin(["truck", "car"])  # doctest: +ELLIPSIS
    And(operands=(Compare(op='>', ...
    """

    __slots__ = ()

    def __getattr__(self, name: str) -> Term:
        if name.startswith("_"):
            raise AttributeError(name)
        return Term(AttributeRef(name))

    def __getitem__(self, attribute: object) -> Term:
        """The attribute of a class, `this[Loop.speed]`, or of a name that is computed, `this["speed"]`.

        Type checkers and editors know the attributes of a class: they find one that is misspelt, complete and rename
        it. SubscriptionError for anything else.
        """
        return Term(AttributeRef(_attribute_name(attribute)))

    def __repr__(self) -> str:
        return "this"

    if not TYPE_CHECKING:  # type checkers know that it has no attributes to set

        def __setattr__(self, name: str, value: object) -> NoReturn:
            raise SubscriptionError(f"`this` cannot be changed: to compare, write this.{name} == {value!r}")


this = This()
"""The event in a predicate: `this.speed > 30`, `this[Loop.speed] > 30` for type checkers, or `this["speed"] > 30`."""


def _attribute_name(attribute: object) -> str:
    match attribute:
        case str():
            return attribute
        case MemberDescriptorType() if is_type(attribute.__objclass__):
            return attribute.__name__
        case property(fget=FunctionType(__name__=name)):
            return name
    raise SubscriptionError(
        f"{attribute!r} is not the name of an attribute: write this.speed, this[Loop.speed] or this['speed']"
    )


@overload
def when(condition: "Predicate | Term", then: Predicate, otherwise: "Predicate | Term | bool") -> Predicate: ...
@overload
def when(condition: "Predicate | Term", then: "Term | bool", otherwise: Predicate) -> Predicate: ...
@overload
def when(
    condition: "Predicate | Term", then: "Term | Constant", otherwise: "Term | Constant | None" = None
) -> Term: ...
def when(condition: "Predicate | Term", then: Any, otherwise: Any = None) -> Term | Predicate:
    """Choose one of two values, or of two predicates, by a condition.

    It is unknown where the condition is unknown, as of an absent attribute, and without `otherwise` where the condition
    is false. To choose by presence, test that: `when(this.speed.is_absent(), 0.0, this.speed)`, or use `coalesce`.

    Args:
        condition: The predicate that decides.
        then: The value where it is true: a term or a constant. Or a predicate.
        otherwise: The value where it is false, of the same type; a predicate or bool if `then` is a predicate.

    >>> print(this.speed > when(this.wet, 80, 130))
    speed > (if wet == true then 80 else 130)
    >>> print(when(this.wet, this.speed > 80, this.speed > 130))
    wet == true and speed > 80 or not wet == true and speed > 130
    """
    test = as_predicate(condition)
    if not isinstance(then, Predicate) and not isinstance(otherwise, Predicate):
        return Term(Conditional(test, as_value(then), None if otherwise is None else as_value(otherwise)))
    if otherwise is None:
        raise SubscriptionError("a choice of predicates needs both: when(condition, then, otherwise)")
    return (test & _predicate_or_bool(then)) | (~test & _predicate_or_bool(otherwise))


def coalesce(*values: "Term | Constant") -> Term:
    """Return the first value that is known: not absent, not NaN, and with a result.

    >>> print(coalesce(this.speed, 0.0) < 30)
    coalesce(speed, 0.0) < 30
    """
    return Term(Coalesce(tuple(map(as_value, values))))


def _predicate_or_bool(thing: object) -> Predicate:
    return Compare("==", Literal(thing), Literal(True)) if isinstance(thing, bool) else as_predicate(thing)


def as_value(thing: object) -> Value:
    """Return the value of a term or constant; SubscriptionError for anything else."""
    return thing.node if isinstance(thing, Term) else _literal(thing)


def _literal(value: Any) -> Literal:
    value = plain_value(value)
    if value is None:
        raise SubscriptionError("nothing equals an absent value: use .is_absent() or .is_present(), not None")
    if isinstance(value, date) and not isinstance(value, datetime):
        raise SubscriptionError(f"{value!r} is a date; write the instant, {python_time(value)}")
    if type(value) not in PLAIN_CLASSES and not isinstance(value, Enum):
        raise SubscriptionError(_describe_no_constant(value))
    return Literal(value)


def _describe_no_constant(value: object) -> str:
    """Why an attribute cannot be compared with something, and what to write if that is known."""
    match value:
        case Predicate():
            return f"{format_expression(value)} is a predicate, not a value: {USE_PARENTHESES}"
        case This():
            return "`this` is the event, not a value: name an attribute, such as this.speed"
        case Term():
            return f"{value!r} is not a constant: compare two attributes by == and join comparisons by |"
        case list() | tuple() | set() | frozenset():
            return f"{value!r} is a {type(value).__name__}, which no attribute can be compared with: write .isin([...])"
    return describe_unplain(value)


def _is_iterable(thing: object) -> bool:
    """Return whether something can be iterated; an array of numpy without dimensions only has the method."""
    try:
        iter(thing)  # type: ignore[call-overload]
    except TypeError:
        return False
    return True


def _text_literal(op: str, part: object) -> Literal:
    """Return the constant of a text test, which must be a text: not an enum, even if its values are texts."""
    return Literal(check_text(op, part))
