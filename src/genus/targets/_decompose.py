"""Subscriptions taken apart: what each asks of a shape, tests of one attribute against constants, and the rest.

The index and the lake's planner find subscriptions by such tests.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import genus.filters._expression as x
from genus.filters import Subscription
from genus.filters._covering import conjuncts
from genus.model import conforms
from genus.targets._intervals import Interval, attribute_of

Spans: TypeAlias = list[Interval]
"""Disjoint intervals of keys, ascending."""


@dataclass(frozen=True, slots=True)
class Profile:
    """The types and attributes that a subscription requires; very many subscriptions share few profiles."""

    types: tuple[type, ...]
    exact: bool
    has: frozenset[str]
    lacks: frozenset[str]

    def accepts(self, cls: type, present: set[str]) -> bool:
        """Whether an event of a class, with some of the watched attributes present, passes."""
        conforming = all(conforms(cls, wanted, exact=self.exact) for wanted in self.types)
        return conforming and self.has <= present and self.lacks.isdisjoint(present)

    @property
    def is_void(self) -> bool:
        """Whether no event can pass."""
        return not self.has.isdisjoint(self.lacks)


class TestedAttribute(Protocol):
    """An attribute that subscriptions compare with constants; the index and the planner have their own."""

    number: int

    def spans(self, part: x.Predicate) -> Spans | None:
        """The keys for which a test of the attribute is true; None if they are not known as intervals."""


A = TypeVar("A", bound=TestedAttribute)


class AttributeTests(NamedTuple, Generic[A]):
    """The tests of one attribute: the keys for which all are true, and the tests themselves."""

    attribute: A
    spans: Spans
    predicates: list[x.Predicate]


class Parts(NamedTuple, Generic[A]):
    """The parts of a subscription; their conjunction is the subscription. `tests` are by number of the attribute."""

    profile: Profile
    tests: dict[int, AttributeTests[A]]
    rest: list[x.Predicate]

    @property
    def is_void(self) -> bool:
        """Whether no event can match, other than one with a value that has no key, such as the smallest integer."""
        return self.profile.is_void or any(not one.spans for one in self.tests.values())


def take_apart(subscription: Subscription, attribute: Callable[[x.AttributeRef], A]) -> Parts[A]:
    """The parts of a subscription; `attribute` gives the tested attribute of a reference."""
    tests: dict[int, AttributeTests[A]] = {}
    rest: list[x.Predicate] = []
    has, lacks = list(subscription.has), list(subscription.lacks)
    for part in conjuncts(subscription.where):
        kind = type(part)
        if kind is x.Present:
            has.append(part.attribute.name)  # type: ignore[attr-defined]
        elif kind is x.Not and type(part.operand) is x.Present:  # type: ignore[attr-defined]
            lacks.append(part.operand.attribute.name)  # type: ignore[attr-defined]
        elif not _add_test(part, attribute, tests):
            rest.append(part)
    return Parts(Profile(subscription.types, subscription.exact, frozenset(has), frozenset(lacks)), tests, rest)


def _add_test(part: x.Predicate, attribute: Callable[[x.AttributeRef], A], tests: dict[int, AttributeTests[A]]) -> bool:
    """Add a test of one attribute against constants; False if the predicate is not such a test."""
    reference = attribute_of(part)
    if reference is None:
        return False
    tested = attribute(reference)
    spans = tested.spans(part)
    if spans is None:
        return False
    known = tests.get(tested.number)
    if known is None:
        tests[tested.number] = AttributeTests(tested, spans, [part])
    else:
        both = list(intersect(known.spans, spans))
        tests[tested.number] = AttributeTests(tested, both, [*known.predicates, part])
    return True


def intersect(first: Spans, second: Spans) -> Iterator[Interval]:
    """The keys that are in both.

    >>> list(intersect([(1, 5), (8, 9)], [(4, 8)]))
    [(4, 5), (8, 8)]
    """
    if len(first) == len(second) == 1:
        low, high = max(first[0][0], second[0][0]), min(first[0][1], second[0][1])
        return iter([(low, high)] if low <= high else [])
    pairs = ((max(a[0], b[0]), min(a[1], b[1])) for a in first for b in second)
    return (pair for pair in pairs if pair[0] <= pair[1])
