"""Which parts of a subscription an event does not meet: the answer of `Subscription.matches`, part by part."""

from collections.abc import Callable, Iterator
from datetime import datetime
from enum import Enum
from typing import Any, Literal

import msgspec

import genus.filters._expression as x
from genus.filters._covering import Selection, conjuncts
from genus.filters._evaluate import WRONG_VALUE, evaluate, normalize, raise_event_error, read_attribute
from genus.model import Event, conforms, is_type, name_of, vector
from genus.model.types import AttributeType, FloatType

MAX_VALUE = 200
"""The most characters that are shown of one value."""


class Unmet(msgspec.Struct, frozen=True):
    """A part of a subscription that an event does not meet; found by `Subscription.why_not`.

    `part` is its text: the name of a type, after `exact` if only that is asked for, the name of an attribute, or a
    predicate. `truth` is `unknown` where a predicate is neither true nor false, as a value is absent, not a number or
    has no result. `values` are those of the attributes that the part names, as predicates see them
    (`speed = 12.5, lane is absent`); for a type, the class of the event. `str()` gives all of it as one line.
    """

    stage: Literal["type", "has", "lacks", "where"]
    part: str
    truth: Literal["false", "unknown"]
    values: str

    def __str__(self) -> str:
        return ", ".join(filter(None, (f"{self.stage} {self.part}: {self.truth}", self.values)))


def find_unmet(subscription: Selection, event: Event) -> tuple[Unmet, ...]:
    """The parts of a subscription that an event does not meet, in the order of its text; EventError as of `matches`."""
    found: list[Unmet] = []
    stages: tuple[Callable[[Selection, Event], Iterator[Unmet]], ...] = (_types, _has, _lacks, _where)
    try:
        for stage in stages:
            found += stage(subscription, event)
            if stage is _types and found:
                break
    except WRONG_VALUE as problem:
        if not found:  # else `matches` is false before it comes to what fails
            raise_event_error(event, problem)
    return tuple(found)


def _types(subscription: Selection, event: Event) -> Iterator[Unmet]:
    cls, word = type(event), "exact " if subscription.exact else ""
    for wanted in subscription.types:
        if not conforms(cls, wanted, exact=subscription.exact):
            yield Unmet("type", word + name_of(wanted), "false", name_of(cls) if is_type(cls) else cls.__name__)


def _has(subscription: Selection, event: Event) -> Iterator[Unmet]:
    for name in subscription.has:
        if (value := _Named(subscription, event, name)).is_absent:
            yield Unmet("has", name, "false", str(value))


def _lacks(subscription: Selection, event: Event) -> Iterator[Unmet]:
    for name in subscription.lacks:
        if not (value := _Named(subscription, event, name)).is_absent:
            yield Unmet("lacks", name, "false", str(value))


def _where(subscription: Selection, event: Event) -> Iterator[Unmet]:
    """All parts are tested before one is told, as a predicate that fails in one part fails as a whole."""
    truths = [(part, evaluate(part, event)) for part in conjuncts(subscription.where)]
    for part, truth in truths:
        if truth is not True:
            names = dict.fromkeys(node.name for node in part.walk() if isinstance(node, x.AttributeRef))
            values = ", ".join(str(_Named(subscription, event, name)) for name in names)
            yield Unmet("where", x.format_expression(part), "unknown" if truth is None else "false", values)


class _Named:
    """The value that an attribute of an event has for a subscription; `str()` gives it with its name."""

    def __init__(self, subscription: Selection, event: Event, name: str) -> None:
        self.name = name
        self.type = vector(subscription.type).find(name).type
        self.value = read_attribute(event, name, self.type)

    @property
    def is_absent(self) -> bool:
        return self.value is None

    def __str__(self) -> str:
        return f"{self.name} is absent" if self.is_absent else f"{self.name} = {_format(self.value, self.type)}"


def _format(value: Any, type_: AttributeType) -> str:
    """A value as a constant of the text form; as Python writes it if it is none, such as a list or a wrong value."""
    plain = value.value if isinstance(value, Enum) else value
    try:
        has_zone = not isinstance(plain, datetime) or plain.utcoffset() is not None
        seen = normalize(plain, type_) if isinstance(type_, FloatType) else plain
        text = x.format_literal(seen) if has_zone else repr(plain)
    except (TypeError, ValueError, OverflowError):
        text = repr(plain)
    return text if len(text) <= MAX_VALUE else f"{text[: MAX_VALUE - 3]}..."
