"""The reference evaluation of a bound predicate on one event, node by node, in Kleene logic, and patterns of `like`.

It is docs/semantics.md as code, simple rather than fast. None is unknown. Every target is tested against it.

In a pattern `%` stands for any text, also the empty one, and `_` for one character.

A character is a Unicode code point, and a newline is one as any other. An escape character before `%`, `_` or itself
stands for that character; anywhere else it is refused, as databases disagree on what it means there. A pattern is kept
in one form: the escape character is a backslash, and in a run of wildcards `_` comes first and `%` once, as `%_%` and
`_%` mean the same.
"""

import math
import operator
import re
import struct
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, NoReturn, TypeAlias

import msgspec

import genus.filters._expression as x
from genus.errors import EventError, SubscriptionError
from genus.model import Event, check, micros_of_duration, micros_of_time
from genus.model.internal import INT64_MAX, INT64_MIN, plain_value
from genus.model.types import AttributeType, ChoiceType, DurationType, FloatType, TextType, TimeType

ANY, ONE, ESCAPE = "%", "_", "\\"
MAX_PATTERN = 1000
"""The most characters of a pattern. The regular expressions of Java and RE2 have limits in the tens of thousands."""


class Pattern(msgspec.Struct, frozen=True):
    """A pattern as the segments between its `%`; in a segment, None is any one character."""

    segments: tuple[tuple[str | None, ...], ...]

    @property
    def text(self) -> str:
        """The pattern in its one form.

        >>> read_pattern("a%_!_", "!").text
        'a_%\\\\_'
        """
        return ANY.join("".join(map(_write, segment)) for segment in self.segments)

    def as_plain_test(self) -> tuple[str, str] | None:
        """Return the operator and the constant of an equal test without wildcards, else None.

        >>> read_pattern("A8%").as_plain_test()
        ('startswith', 'A8')
        """
        if any(None in segment for segment in self.segments):
            return None
        match ["".join(map(str, segment)) for segment in self.segments]:
            case [whole]:
                return "==", whole
            case [start, ""]:
                return "startswith", start
            case ["", end]:
                return "endswith", end
            case ["", part, ""]:
                return "contains", part
        return None

    def matches(self, text: str) -> bool:
        """Whether a text is like the pattern: each segment is looked for from the left, the last one at the end."""
        first, *others = self.segments
        if not others:
            return len(text) == len(first) and _fits(first, text, 0)
        *middle, last = others
        at, end = len(first), len(text) - len(last)
        if at > end or not _fits(first, text, 0) or not _fits(last, text, end):
            return False
        for segment in middle:
            found = next((i for i in range(at, end - len(segment) + 1) if _fits(segment, text, i)), None)
            if found is None:
                return False
            at = found + len(segment)
        return True

    def regex(self, *, backtracks: bool = True) -> str:
        """Return a regular expression for the whole text, without anchors; `.` must match a newline too.

        For an engine that backtracks, as those of Python and Java do, each segment is an atomic group: the leftmost
        place of a segment is never worse than a later one, so no time is spent on others.
        """
        first, *others = self.segments
        if not others:
            return _segment_regex(first)
        *middle, last = others
        inner = (f"(?>.*?{_segment_regex(one)})" if backtracks else f".*?{_segment_regex(one)}" for one in middle)
        return f"{_segment_regex(first)}{''.join(inner)}.*{_segment_regex(last)}"


def _fits(segment: tuple[str | None, ...], text: str, at: int) -> bool:
    return all(wanted in (None, letter) for wanted, letter in zip(segment, text[at : at + len(segment)], strict=True))


def _write(letter: str | None) -> str:
    return ONE if letter is None else ESCAPE + letter if letter in (ANY, ONE, ESCAPE) else letter


def _segment_regex(segment: tuple[str | None, ...]) -> str:
    return "".join("." if letter is None else re.escape(letter) for letter in segment)


def read_pattern(text: str, escape: str = ESCAPE) -> Pattern:
    """Read a pattern; SubscriptionError if its escape character is used where it has no meaning.

    >>> read_pattern("50!%", "!").segments
    (('5', '0', '%'),)
    >>> read_pattern("50!", "!")
    Traceback (most recent call last):
    genus.errors.SubscriptionError: the pattern '50!' ends with its escape character; write '!!' for one
    """
    if not isinstance(escape, str) or len(escape) != 1 or escape in (ANY, ONE):
        raise SubscriptionError(f"escape may not be {escape!r}: write one character other than % and _, such as '!'")
    if len(text) > MAX_PATTERN:
        raise SubscriptionError(f"a pattern of like has at most {MAX_PATTERN} characters, not {len(text)}")
    segments: list[list[str | None]] = [[]]
    for wildcard, letter in _letters(text, escape):
        if wildcard == ANY and (segments[-1] or len(segments) == 1):
            segments.append([])
        elif wildcard == ONE:
            _add_one(segments)
        elif not wildcard:
            segments[-1].append(letter)
    return Pattern(tuple(map(tuple, segments)))


def _add_one(segments: list[list[str | None]]) -> None:
    """Add `_`, before a `%` that it follows."""
    follows_any = len(segments) > 1 and not segments[-1]
    segments[-2 if follows_any else -1].append(None)


def _letters(text: str, escape: str) -> Iterator[tuple[str, str]]:
    """Yield the wildcards of a pattern, and its other letters with "" for the wildcard."""
    letters = iter(text)
    for letter in letters:
        if letter != escape:
            yield (letter if letter in (ANY, ONE) else ""), letter
            continue
        following = next(letters, "")
        if not following:
            raise SubscriptionError(
                f"the pattern {text!r} ends with its escape character; write {escape * 2!r} for one"
            )
        if following not in (ANY, ONE, escape):
            raise SubscriptionError(
                f"the pattern {text!r} has the escape character before {following!r}; it stands only before %, _ and "
                f"itself, so write {escape * 2!r} for {escape!r}"
            )
        yield "", following


@lru_cache(maxsize=65536)
def matcher(pattern: str) -> Callable[[str], object]:
    """A function that gives None for a text that is not like the pattern; TypeError if it is given no text.

    >>> matcher("A%_")("A8") is not None, matcher("A%_")("A") is not None
    (True, False)
    """
    return re.compile(read_pattern(pattern).regex(), re.DOTALL).fullmatch


def is_like(text: str, pattern: str) -> bool:
    """Return whether a text is like a pattern, by the definition."""
    return read_pattern(pattern).matches(text)


Truth: TypeAlias = bool | None

COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
COMPUTE: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
}
WRONG_VALUE = (TypeError, AttributeError, OverflowError, ValueError)
"""What a test may raise on a value of another type; ValueError by an array of numpy."""
DIVISIONS = frozenset({"/", "//", "%"})
"""The operators that have no result for a right operand of zero."""
FUNCTIONS: dict[str, Callable[[Any], Any]] = {"abs": abs, "length": len}
TEXT: dict[str, Callable[[str, str], bool]] = {
    "startswith": str.startswith,
    "endswith": str.endswith,
    "contains": operator.contains,
    "like": is_like,
}


def evaluate(node: x.Predicate, event: Event) -> Truth:
    """Return whether a bound predicate holds: True, False or None for unknown."""
    match node:
        case x.And(operands):
            answers = [evaluate(operand, event) for operand in operands]
            return False if False in answers else None if None in answers else True
        case x.Or(operands):
            answers = [evaluate(operand, event) for operand in operands]
            return True if True in answers else None if None in answers else False
        case x.Not(operand):
            answer = evaluate(operand, event)
            return None if answer is None else not answer
        case x.Present(attribute):
            return read_attribute(event, attribute.name, attribute.type) is not None
        case x.Compare(op, left, right):
            first, second = evaluate_value(left, event), evaluate_value(right, event)
            return None if first is None or second is None else bool(COMPARE[op](first, second))
        case x.OneOf(item, options):
            found = evaluate_value(item, event)
            return None if found is None else any(found == evaluate_value(option, event) for option in options)
        case x.TextTest(op, item, part):
            text = evaluate_value(item, event)
            return None if text is None else TEXT[op](text, part.value)  # type: ignore[arg-type]
    raise TypeError(f"cannot evaluate {node!r}")


def raise_event_error(event: Event, problem: Exception) -> NoReturn:
    """Raise EventError that names the value of an event on which a predicate failed, as it is not of its type."""
    check(event)
    raise EventError(f"{event!r} could not be tested: {problem}") from problem


def evaluate_value(node: x.Value, event: Event) -> Any:
    """Return the value of a bound node on an event; None where it is absent, not a number or has no result."""
    match node:
        case x.AttributeRef(name, type_):
            return _known(normalize(read_attribute(event, name, type_), type_))
        case x.Literal(constant, type_):
            return normalize(constant, type_)
        case x.ToFloat(operand):
            number = evaluate_value(operand, event)
            return None if number is None else float(number)
        case x.Micros(operand):
            return evaluate_value(operand, event)
        case x.Negation(operand):
            number = evaluate_value(operand, event)
            return None if number is None else _result(-number)
        case x.Function(op, operand):
            argument = evaluate_value(operand, event)
            return None if argument is None else _result(FUNCTIONS[op](argument))
        case x.Arithmetic(first, steps):
            result = evaluate_value(first, event)
            for step in steps:
                result = compute(step.op, result, evaluate_value(step.operand, event))
            return result
        case x.Conditional(condition, then, otherwise):
            truth = evaluate(condition, event)
            chosen = then if truth else otherwise if truth is False else None
            return None if chosen is None else evaluate_value(chosen, event)
        case x.Coalesce(operands):
            found = (evaluate_value(operand, event) for operand in operands)
            return next((value for value in found if value is not None), None)
    raise TypeError(f"cannot evaluate {node!r}")


def compute(op: str, left: Any, right: Any) -> Any:
    """Return the result of an operator on two numbers; None where an operand is None or there is no result.

    >>> compute("%", -7, 3), compute("//", -7, 3), compute("//", 1, 0)
    (2, -3, None)
    """
    if left is None or right is None or (right == 0 and op in DIVISIONS):
        return None
    return _result(COMPUTE[op](left, right))


def read_attribute(event: Event, name: str, type_: AttributeType | None) -> Any:
    """Return the value of an event's attribute; None if it is absent, or its class does not have it with this type.

    Only `source` may have another type in the event's family than in `Event`, an integer instead of text.
    """
    is_known = name in event.__struct_fields__ and not is_hidden(event, name, type_)
    return plain_value(getattr(event, name)) if is_known else None


def is_hidden(event: Event, name: str, type_: AttributeType | None) -> bool:
    """Return whether an event's class has an attribute, but not the one of `Event` that is meant."""
    return name in event.__genus_retyped__ and isinstance(type_, TextType)  # type: ignore[attr-defined]


def normalize(found: Any, type_: object) -> Any:
    """A value in the form that predicates compare: an enum's value, a float of its width, times in microseconds."""
    match type_:
        case _ if found is None:
            return None
        case ChoiceType():
            return getattr(found, "value", found)
        case FloatType(bits):
            return round_to_float32(found) if bits == 32 else found * 1.0
        case TimeType():
            return micros_of_time(exactly(found, datetime))
        case DurationType():
            return micros_of_duration(exactly(found, timedelta))
    return found


def exactly(found: Any, cls: type) -> Any:
    """Return a value as a plain value of a class; TypeError if it is none, such as a time with nanoseconds."""
    plain = plain_value(found)
    if type(plain) is not cls:
        raise TypeError(f"{found!r} is no {cls.__name__}")
    return plain


def round_to_float32(number: float) -> float:
    """Return the nearest number that 32 bits can hold.

    >>> round_to_float32(0.1)
    0.10000000149011612
    >>> round_to_float32(1e300)
    inf
    """
    try:
        rounded: float = struct.unpack("f", struct.pack("f", number))[0]
    except OverflowError:
        return math.copysign(math.inf, number)
    except struct.error:
        raise TypeError(f"{number!r} is not a number") from None
    return rounded


def _known(found: Any) -> Any:
    return None if isinstance(found, float) and found != found else found


def _result(number: Any) -> Any:
    if isinstance(number, int):
        return number if INT64_MIN <= number <= INT64_MAX else None
    return _known(number)
