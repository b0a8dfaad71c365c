"""Subscriptions taken apart: what each asks of a shape, tests of one attribute against constants, and the rest.

The index and the lake's planner find subscriptions by such tests, and test the rest by form: predicates that differ
only in their constants are one form, with a parameter in place of each constant.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import genus.filters.internal as x
from genus.filters import Subscription
from genus.filters.internal import conjuncts
from genus.model import conforms
from genus.model.types import AttributeType, ChoiceType
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
        """Return whether an event of a class, with some of the watched attributes present, passes."""
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
        """Return the keys for which a test of the attribute is true; None if they are not known as intervals."""


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
    """Return the parts of a subscription; `attribute` gives the tested attribute of a reference."""
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
    """Return the keys that are in both.

    >>> list(intersect([(1, 5), (8, 9)], [(4, 8)]))
    [(4, 5), (8, 8)]
    """
    if len(first) == len(second) == 1:
        low, high = max(first[0][0], second[0][0]), min(first[0][1], second[0][1])
        return iter([(low, high)] if low <= high else [])
    pairs = ((max(a[0], b[0]), min(a[1], b[1])) for a in first for b in second)
    return (pair for pair in pairs if pair[0] <= pair[1])


def keys_in(spans: Iterable[Interval], most: int) -> list[int] | None:
    """Return the keys in some spans; None if there are more than `most`.

    >>> keys_in([(1, 3), (7, 7)], 4), keys_in([(1, 3), (7, 7)], 3)
    ([1, 2, 3, 7], None)
    """
    listed = list(spans)
    if sum(high - low + 1 for low, high in listed) > most:
        return None
    return [key for low, high in listed for key in range(low, high + 1)]


# -- forms -------------------------------------------------------------------------------------------------------------

MAX_OPTIONS = 16
"""A list with more options than this is part of its form; each option of a shorter one is a parameter."""


class Parameter(x.Value, frozen=True):
    """The place of a constant in a form."""

    number: int
    type: AttributeType


def take_constants(node: Any, constants: list[x.Literal]) -> Any:
    """The form of an expression, whose constants are added to a list; its types refer to no class of this process."""
    kind = type(node)
    if kind is x.AttributeRef:
        return x.AttributeRef(node.name, without_class(node.type)) if type(node.type) is ChoiceType else node
    if kind is x.Compare:
        return x.Compare(node.op, take_constants(node.left, constants), take_constants(node.right, constants))
    if kind is x.Literal:
        constants.append(node)
        return Parameter(len(constants) - 1, without_class(node.type))
    if kind is tuple:
        return tuple([take_constants(one, constants) for one in node])
    if not isinstance(node, x.Expression):
        return without_class(node)
    if isinstance(node, x.OneOf) and len(node.options) > MAX_OPTIONS:
        options = tuple([x.Literal(one.value, without_class(one.type)) for one in node.options])
        return x.OneOf(take_constants(node.item, constants), options)
    return kind(*[take_constants(getattr(node, field), constants) for field in node.__struct_fields__])


def without_class(type_: Any) -> Any:
    """A type that does not refer to a Python class, which other processes may not have; anything else as it is."""
    return ChoiceType(type_.values) if type(type_) is ChoiceType else type_
