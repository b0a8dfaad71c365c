"""The test that is typed at the end of an unfinished predicate, and what can stand after it.

The grammar and the rules of types are not written a second time: a word fits if the parser reads the test with it and
something behind it, and the binder accepts that. What was typed before the test does not matter.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Literal, NamedTuple

import msgspec

import genus.filters._expression as x
from genus.errors import SubscriptionError
from genus.filters._bind import Binder
from genus.filters._parser import parse_predicate, parse_value
from genus.filters._type_names import EXAMPLE_TIME, Token
from genus.model.internal import RESERVED_WORDS
from genus.model.types import Attribute, AttributeType, ChoiceType, DurationType, IntType, TimeType

MAX_TEST = 2000
"""The longest text of a test, in characters, for which anything is proposed."""
MAX_NOTE = 80
"""The longest note, in characters."""

_SAMPLES = ("1", "1.5", "'a'", "true", EXAMPLE_TIME, "1s", "x''")
"""A constant of each type but enumerations."""
_NUMBERS = ("1", "1.5", EXAMPLE_TIME, "1s")
"""A constant of each type that arithmetic takes."""
_CONVERSIONS = (f" - {EXAMPLE_TIME}", " // 1s", " * 1s", f" + {EXAMPLE_TIME}")
"""Arithmetic that gives a value of another type: `span > time` is wrong, but may become `span > time - expires`."""
_OPERANDS = frozenset({"true", "false", "inf", "present", "absent"})
"""The reserved words that end a value or a test."""
_MAY_BE_NAMES = ("like", "escape", "then")
"""The words of operators that attributes may be called, too."""

_COMPARISONS = {
    "==": "equal",
    "!=": "different",
    "<": "less",
    "<=": "at most",
    ">": "greater",
    ">=": "at least",
}
_ARITHMETIC = {
    "+": "plus",
    "-": "minus",
    "*": "times",
    "/": "divided by",
    "//": "divided by, rounded down",
    "%": "remainder",
}
_TEXT_TESTS = {
    "startswith": "text at the beginning",
    "endswith": "text at the end",
    "contains": "text anywhere",
    "like": "% is any text, _ one character",
}
_FUNCTIONS = {
    "abs(": ("the absolute value", ("1)", "1.5)", "1s)")),
    "length(": ("the number of characters or bytes", ("'')",)),
}
_BEGUN = "if true == true then"
"""The beginning of a conditional, before its value."""


class Proposal(msgspec.Struct, frozen=True):
    """A word or sign that can come next."""

    text: str
    kind: Literal["attribute", "keyword", "value", "function"]
    note: str = ""


class _Opened(NamedTuple):
    """State of the parentheses up to the cursor, of each level one."""

    start: int
    """The token with which the present test or, within a test, the parenthesis begins."""
    is_inner: bool = False
    """Whether the parenthesis is within a test: of a value, a function or a list."""
    in_between: bool = False
    """Whether the next `and` belongs to `between`."""
    is_single: bool = True
    """Whether the parenthesis has nothing but the present test."""
    is_condition: bool = False
    """Whether it is no parenthesis, but the condition between `if` and `then`."""


class OpenTest:
    """The test at the end of a text. State: answers of the parser and binder so far."""

    def __init__(self, scope: type, text: str, tokens: Sequence[Token]) -> None:
        levels = _read_levels(tokens)
        depth = max(place for place, level in enumerate(levels) if not level.is_inner)
        test = levels[depth]
        self.closing = ")" * (len(levels) - depth - 1)
        self.scope = scope
        self.tokens = tokens[test.start :]
        self.text = text[self.tokens[0].column - 1 :] if self.tokens else ""
        self.is_in_group = depth > 0 and not test.is_condition
        self.is_condition = test.is_condition
        self.is_single = test.is_single
        self.in_between = test.in_between
        self._accepted: dict[str, bool] = {}

    def proposals(self, among: Iterable[Attribute]) -> Iterator[Proposal]:
        """Yield what can come next, the likeliest first; `among` are the attributes that may be named."""
        if len(self.text) > MAX_TEST or len(self.closing) > x.MAX_VALUE_DEPTH:
            return
        last = self.tokens[-1] if self.tokens else None
        if last is None or not _is_operand(last):
            yield from self._operands(among)
        if last is not None and _may_end_operand(last):
            yield from self._operators()
        elif last is not None:
            yield from self._after_word()

    # -- what begins a value ------------------------------------------------------------------------------------------

    def _operands(self, among: Iterable[Attribute]) -> Iterator[Proposal]:
        attributes = list(among)
        if self.tokens:
            yield from self._values(attributes)
        ranks = {attribute.type: self._rank(attribute) for attribute in attributes}
        yield from (Proposal(each.name, "attribute") for each in attributes if ranks[each.type] == 0)
        yield from self._properties({each.name for each in attributes})
        for function, (note, tails) in _FUNCTIONS.items():
            if self._fits_somehow(f"{function}{tail}" for tail in tails):
                yield Proposal(function, "function", note)
        if self._fits_somehow(f"coalesce({sample})" for sample in self._samples):
            yield Proposal("coalesce(", "function", "the first value that is known")
        is_alone = not self.tokens and self.is_in_group and self.is_single
        if is_alone or (self.tokens and self._fits_somehow(f"{_BEGUN} {sample}" for sample in self._samples)):
            yield Proposal("if", "keyword", "one of two values")
        if self.tokens and self._fits("inf"):
            yield Proposal("inf", "value", "more than any other number")
        if not self.tokens:
            yield Proposal("not", "keyword", "the opposite")
        if not self.tokens or self._fits_somehow(f"({sample})" for sample in self._samples):
            yield Proposal("(", "keyword")
        yield from (Proposal(each.name, "attribute") for each in attributes if ranks[each.type] == 1)

    def _rank(self, attribute: Attribute) -> int | None:
        """0 if an attribute fits as it is, 1 if more arithmetic would make it fit, else None."""
        if not self.tokens or self._fits(attribute.name):
            return 0
        can_change = isinstance(attribute.type, TimeType | DurationType | IntType)
        return 1 if can_change and self._fits_somehow((attribute.name,)) else None

    def _values(self, attributes: list[Attribute]) -> Iterator[Proposal]:
        for choice in self._choices(attributes):
            if self._fits(x.format_literal(choice.values[0])):
                yield from (Proposal(x.format_literal(value), "value") for value in choice.values)
        for value, note in (("true", ""), ("false", ""), (EXAMPLE_TIME, "a time"), ("1s", "a duration")):
            if self._fits(value):
                yield Proposal(value, "value", note)

    def _choices(self, attributes: list[Attribute]) -> Iterator[ChoiceType]:
        """Yield the enumerations among the types of the attributes that the test names."""
        named = {token.text for token in self.tokens}
        types: dict[AttributeType, None] = dict.fromkeys(each.type for each in attributes if each.name in named)
        yield from (type_ for type_ in types if isinstance(type_, ChoiceType))

    def _properties(self, names: set[str]) -> Iterator[Proposal]:
        """Yield the properties of the type that stand for an expression."""
        found = dict.fromkeys(
            name
            for cls in self.scope.__mro__
            for name, thing in vars(cls).items()
            if isinstance(thing, property) and not name.startswith("_") and name not in names
        )
        for name in sorted(found):
            bound = _bind(self.scope, name)
            if bound is not None and (not self.tokens or self._fits(name)):
                yield Proposal(name, "attribute", shortened(x.format_expression(bound)))

    # -- what follows a value or a test -------------------------------------------------------------------------------

    def _operators(self) -> Iterator[Proposal]:
        yield from self._comparisons()
        is_test = not self.closing and self._accepts(self.text, is_test=True)
        if is_test or (self.in_between and not self.closing and self._fits("")):
            yield Proposal("and", "keyword", "both" if is_test else "up to")
        if is_test:
            yield Proposal("or", "keyword", "one of them or both")
        if is_test and self.is_condition:
            yield Proposal("then", "keyword", "the value if it is true")
        if self._has_conditional and self._fits_somehow(f"else {sample}" for sample in self._samples):
            yield Proposal("else", "keyword", "the value if it is false")
        if self._fits_any(f"escape '{sign}'" for sign in ("!", "#", r"\\")):
            yield Proposal("escape", "keyword", "the character before a % or _ that is meant itself")
        for sign, note in _ARITHMETIC.items():
            if self._fits_somehow(f"{sign} {sample}" for sample in _NUMBERS):
                yield Proposal(sign, "keyword", note)
        if self._fits_any(f", {sample}" for sample in self._samples):
            yield Proposal(",", "keyword", "another constant")
        if self._can_close(is_test=is_test):
            yield Proposal(")", "keyword")

    def _comparisons(self) -> Iterator[Proposal]:
        samples = self._samples
        for sign, note in _COMPARISONS.items():
            if self._fits_any(f"{sign} {sample}" for sample in samples):
                yield Proposal(sign, "keyword", note)
        if self._fits_any(f"in ({sample})" for sample in samples):
            yield Proposal("in", "keyword", "one of some constants")
        if self._fits_any(f"between {sample} and {sample}" for sample in samples):
            yield Proposal("between", "keyword", "from one value up to another")
        if self._fits("startswith 'a'"):
            yield from (Proposal(test, "keyword", note) for test, note in _TEXT_TESTS.items())
        if self._fits("is present"):
            yield Proposal("is", "keyword", "present or absent")
        if self._fits_any(f"not in ({sample})" for sample in samples):
            yield Proposal("not", "keyword", "none of some constants")

    def _after_word(self) -> Iterator[Proposal]:
        """Yield what follows the first word of an operator that has two."""
        if self._fits("present"):
            yield Proposal("present", "keyword")
            yield Proposal("absent", "keyword")
        if self._fits_any(f"in ({sample})" for sample in self._samples):
            yield Proposal("in", "keyword", "one of some constants")

    def _can_close(self, *, is_test: bool) -> bool:
        if self.closing:
            return self._fits_somehow(("",))
        return self.is_in_group and (is_test or (self.is_single and self._accepts(self.text)))

    @property
    def _has_conditional(self) -> bool:
        return any(token.text == "if" and token.kind == "name" for token in self.tokens)

    # -- asking the parser and the binder -----------------------------------------------------------------------------

    @cached_property
    def _samples(self) -> list[str]:
        """Constants of all types that a value of the test can have, those of enumerations first."""
        attributes = [Attribute(name, type_) for name, type_ in Binder(self.scope).types.items()]
        return [*(x.format_literal(choice.values[0]) for choice in self._choices(attributes)), *_SAMPLES]

    @cached_property
    def _ends(self) -> list[str]:
        """What may have to stand at the end of the test: the second value of `between`, if there is none yet."""
        if not self.in_between:
            return [""]
        word = next(token for token in self.tokens if token.text == "between")
        tested = self.text[: word.column - self.tokens[0].column]
        fitting = (one for one in self._samples if self._accepts(f"{tested} between {one} and {one}", is_test=True))
        return [f" and {sample}" for sample in fitting]

    def _fits(self, more: str, conversion: str = "") -> bool:
        """Return whether the test with more text, with its parentheses closed, is one, or the first value of one."""
        return any(self._accepts(f"{self.text} {more}{self.closing}{conversion}{end}") for end in self._ends)

    def _fits_any(self, more: Iterable[str]) -> bool:
        return any(map(self._fits, more))

    def _fits_somehow(self, more: Iterable[str]) -> bool:
        """Whether one of some texts fits, if need be with arithmetic behind it, or behind the parentheses, or both."""
        texts = list(more)
        if self._fits_any(texts) or not any(map(_takes_value, self.tokens)):
            return self._fits_any(texts)
        behind = ("", *_CONVERSIONS) if self.closing else ("",)
        within = [text + conversion for text in texts for conversion in ("", *_CONVERSIONS)]
        return any(self._fits(text, conversion) for text in within for conversion in behind)

    def _accepts(self, text: str, *, is_test: bool = False) -> bool:
        key = f"{is_test:d}{text}"
        if key not in self._accepted:
            self._accepted[key] = _bind(self.scope, text, is_test=is_test) is not None
        return self._accepted[key]


def _bind(scope: type, text: str, *, is_test: bool = False) -> x.Expression | None:
    """Return the bound predicate or, unless it has to be one, value of a text; None if it is neither."""
    try:
        return Binder(scope).predicate(parse_predicate(text))
    except SubscriptionError:
        if is_test:
            return None
    try:
        return Binder(scope).value(parse_value(text))
    except SubscriptionError:
        return None


def _is_operand(token: Token) -> bool:
    """Return whether a token ends a value or a test, so that no other value can follow."""
    if token.kind == "name":
        return token.text in _OPERANDS or token.text not in (*RESERVED_WORDS, *_MAY_BE_NAMES, "if", "else")
    return token.kind != "op" or token.text == ")"


def _may_end_operand(token: Token) -> bool:
    """Return whether a token can end a value or a test."""
    return _is_operand(token) or token.text in _MAY_BE_NAMES


def _takes_value(token: Token) -> bool:
    """Return whether a token asks for a value that fits what is before it."""
    return token.kind == "op" or token.text == "between"


def _read_levels(tokens: Sequence[Token]) -> list[_Opened]:
    """The parentheses that are open after some tokens of a predicate, outermost first; the first is the predicate."""
    levels = [_Opened(0)]
    for place, token in enumerate(tokens):
        level = levels[-1]
        match token.text if token.kind in ("name", "op") else "":
            case "(":
                levels.append(_Opened(place + 1, level.is_inner or place > level.start))
            case ")" if len(levels) > 1:
                levels.pop()
            case "between":
                levels[-1] = level._replace(in_between=True)
            case "and" if level.in_between:
                levels[-1] = level._replace(in_between=False)
            case "and" | "or":
                levels[-1] = level._replace(start=place + 1, is_single=False)
            case "not" if place == level.start:
                levels[-1] = level._replace(start=place + 1, is_single=False)
            case "if":
                levels.append(_Opened(place + 1, is_condition=True))
            case "then" if level.is_condition and place > level.start and _may_end_operand(tokens[place - 1]):
                levels.pop()
    return levels


def shortened(text: str) -> str:
    """Return the beginning of a note that is too long."""
    return text if len(text) <= MAX_NOTE else f"{text[: MAX_NOTE - 3]}..."
