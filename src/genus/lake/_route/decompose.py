"""Subscriptions taken apart for routing: what each asks of a shape, the one key it is found by, and what is left.

A key is a test of one attribute against constants: equality with a few values, or a range. Of several, the one that
fewest events are likely to pass is chosen, going by the constants that the subscriptions themselves name. Everything
else in `where` is the residual, which is evaluated for the few events that the key lets through.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import genus.filters._expression as x
from genus.filters import Subscription
from genus.filters._covering import conjuncts
from genus.lake._route.templates import Slot, Templates, slot_of
from genus.model import AttributeType
from genus.model._types import INT64_MIN
from genus.targets.index._decompose import Profile
from genus.targets.index._intervals import (
    Choices,
    Codes,
    Domain,
    Floats,
    Interval,
    attribute_of,
    domain_of,
    intervals,
    key_float,
)

MOST_POINTS = 64
"""So many values are still looked up one by one; more are a range or a residual."""
FEWEST = 16
"""Fewer subscriptions are not worth a pass of their own: their tests are residuals."""
SAMPLE = 20_000
"""Subscriptions that are looked at to learn how selective the tests of an attribute are."""

Spans: TypeAlias = list[Interval]
Method: TypeAlias = Literal["equal", "range"]
Use: TypeAlias = tuple[Method, Slot | None]
"""A pass over the events: one for all equalities, one for the ranges of each slot."""


class Dimension:
    """An attribute that subscriptions compare with constants, and the constants seen in a sample of them."""

    def __init__(self, number: int, name: str, type_: AttributeType) -> None:
        self.number, self.name, self.type = number, name, type_
        self.domain: Domain = _domain(type_)
        self.slot: Slot = slot_of(type_)
        self.ordered = not isinstance(self.domain, Choices | Codes)
        if self.ordered and not isinstance(self.domain, Floats):
            self.domain.low = INT64_MIN  # here no key stands for unknown
        self._seen: list[int] = []
        self._sorted: list[int] = []

    def spans(self, part: x.Predicate) -> Spans | None:
        """Where a test of the attribute is true; None if it has no such form."""
        found = intervals(part, self.domain)
        is_float = isinstance(self.domain, Floats)
        return list(_without_minus_zero(found)) if is_float and found is not None else found

    def note(self, spans: Spans) -> None:
        """Learn the constants of one subscription."""
        self._seen += [end for span in spans for end in span]

    def share(self, key: "Key") -> float:
        """The part of events that a key is likely to let through."""
        if len(self._sorted) != len(self._seen):
            self._sorted = sorted(self._seen)
            self._distinct = len(set(self._seen))
        if key.method == "equal":
            return key.size / max(self._members or self._distinct, 1)
        inside = bisect_right(self._sorted, key.spans[-1][1]) - bisect_left(self._sorted, key.spans[0][0])
        return inside / max(len(self._sorted), 1)

    @property
    def _members(self) -> int:
        return len(self.domain.codes) if isinstance(self.domain, Choices) else 0

    def constants(self, spans: Spans) -> list[Any]:
        """The values in some spans, as they are looked up."""
        keys = [key for low, high in spans for key in range(low, high + 1)]
        if isinstance(self.domain, Named):
            return [self.domain.names[key] for key in keys]
        if isinstance(self.domain, Choices):
            members = list(self.domain.codes)
            return [int(members[key]) if self.slot is Slot.LONG else members[key] for key in keys]
        return list(map(self.native, keys))

    def native(self, key: int) -> int | float:
        """A bound as it is compared: a number of microseconds, an integer, a float."""
        return key_float(key) if isinstance(self.domain, Floats) else key


class Named(Codes):
    """Codes that can be turned back into the values they stand for."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[Any] = []

    def place(self, constant: Any) -> Interval:
        """The code of a constant, given now if it is new."""
        place = super().place(constant)
        if place[1] == len(self.names):
            self.names.append(constant)
        return place


def _domain(type_: AttributeType) -> Domain:
    domain = domain_of(type_)
    return Named() if isinstance(domain, Codes) else domain


class Key(NamedTuple):
    """A test that events can be looked up by; `exact` if it says all that the subscription asks of the attribute."""

    dimension: Dimension
    method: Method
    spans: Spans
    exact: bool

    @property
    def size(self) -> int:
        """How many keys are in the spans."""
        return size_of(self.spans)

    @property
    def use(self) -> "Use":
        """The pass that it is looked up in."""
        return self.method, self.dimension.slot if self.method == "range" else None


class _Found(NamedTuple):
    """The tests of one dimension: where they are true, and as they were written."""

    spans: Spans
    tests: list[x.Predicate]


class Parts(NamedTuple):
    """A subscription taken apart; together the parts mean the same."""

    profile: Profile
    found: dict[int, _Found]
    left: list[x.Predicate]

    @property
    def is_void(self) -> bool:
        """Whether no event at all can match."""
        return not self.profile.has.isdisjoint(self.profile.lacks) or any(not one.spans for one in self.found.values())


class Keyed:
    """State: the subscriptions that are found by one method and slot, as columns."""

    def __init__(self) -> None:
        self.subscriptions, self.dimensions = array("i"), array("i")
        self.values: list[Any] = []
        """Of an equality: the value looked up, one a row."""
        self.low: list[Any] = []
        self.high: list[Any] = []

    def __len__(self) -> int:
        return len(self.subscriptions)


class Anatomy:
    """State: subscriptions taken apart so far, numbered as they came."""

    def __init__(self) -> None:
        self.profiles: list[Profile] = []
        self.dimensions: list[Dimension] = []
        self.profile_of = array("i")
        """The profile of each subscription; -1 if it matches nothing."""
        self.templates = Templates()
        self.unkeyed = array("i")
        self.equal = Keyed()
        self.ranges: dict[Slot, Keyed] = {Slot.LONG: Keyed(), Slot.DOUBLE: Keyed()}
        self._worthwhile: set[Use] | None = None
        self._numbers: dict[Profile, int] = {}
        self._by_name: dict[tuple[str, AttributeType], Dimension] = {}

    def learn(self, subscriptions: Sequence[Subscription]) -> None:
        """Look at a sample, to know which tests are selective, and which methods are worth a pass over the events."""
        every = max(1, len(subscriptions) // SAMPLE)
        sample = [self._take_apart(subscription) for subscription in subscriptions[::every]]
        for parts in sample:
            for number, found in parts.found.items():
                self.dimensions[number].note(found.spans)
        uses = Counter(key.use for parts in sample if (key := self._chosen(parts)))
        self._worthwhile = {use for use, count in uses.items() if count * every >= FEWEST}

    def add(self, subscription: Subscription) -> None:
        """Take in the next subscription."""
        number, parts = len(self.profile_of), self._take_apart(subscription)
        self.profile_of.append(-1 if parts.is_void else self._number(parts.profile))
        if parts.is_void:
            return
        key = self._chosen(parts)
        if (residual := _residual(parts, key)) is not None:
            self.templates.add(number, residual)
        if key is None:
            self.unkeyed.append(number)
        elif key.method == "equal":
            self._add_equal(number, key)
        else:
            self._add_range(number, key)

    def _add_equal(self, number: int, key: Key) -> None:
        for value in key.dimension.constants(key.spans):
            self.equal.subscriptions.append(number)
            self.equal.dimensions.append(key.dimension.number)
            self.equal.values.append(value)

    def _add_range(self, number: int, key: Key) -> None:
        rows = self.ranges[key.dimension.slot]
        rows.subscriptions.append(number)
        rows.dimensions.append(key.dimension.number)
        rows.low.append(key.dimension.native(key.spans[0][0]))
        rows.high.append(key.dimension.native(key.spans[-1][1]))

    def _chosen(self, parts: Parts) -> Key | None:
        keys = [key for number, found in parts.found.items() if (key := _key(self.dimensions[number], found.spans))]
        if self._worthwhile is not None:
            keys = [key for key in keys if key.use in self._worthwhile]
        if len(keys) < 2:
            return keys[0] if keys else None
        return min(keys, key=lambda key: (key.dimension.share(key), key.method))

    def _take_apart(self, subscription: Subscription) -> Parts:
        found: dict[int, _Found] = {}
        left: list[x.Predicate] = []
        has, lacks = list(subscription.has), list(subscription.lacks)
        for part in conjuncts(subscription.where):
            match part:
                case x.Present(attribute):
                    has.append(attribute.name)
                case x.Not(x.Present(attribute)):
                    lacks.append(attribute.name)
                case _ if not self._narrow(part, found):
                    left.append(part)
        return Parts(Profile(subscription.types, subscription.exact, frozenset(has), frozenset(lacks)), found, left)

    def _narrow(self, part: x.Predicate, found: dict[int, _Found]) -> bool:
        """Note a test of one attribute against constants; False if it is none."""
        attribute = attribute_of(part)
        if attribute is None:
            return False
        dimension = self._dimension(attribute)
        spans = dimension.spans(part)
        if spans is None:
            return False
        known = found.get(dimension.number)
        met = spans if known is None else list(_intersection(known.spans, spans))
        found[dimension.number] = _Found(met, [*(known.tests if known else ()), part])
        return True

    def _dimension(self, attribute: x.AttributeRef) -> Dimension:
        assert attribute.type is not None, "a subscription's predicate is bound"
        key = attribute.name, attribute.type
        if key not in self._by_name:
            self._by_name[key] = Dimension(len(self.dimensions), *key)
            self.dimensions.append(self._by_name[key])
        return self._by_name[key]

    def _number(self, profile: Profile) -> int:
        known = self._numbers.setdefault(profile, len(self.profiles))
        if known == len(self.profiles):
            self.profiles.append(profile)
        return known


def take_apart(subscriptions: Sequence[Subscription]) -> Anatomy:
    """All subscriptions, taken apart."""
    anatomy = Anatomy()
    anatomy.learn(subscriptions)
    for subscription in subscriptions:
        anatomy.add(subscription)
    return anatomy


def _key(dimension: Dimension, spans: Spans) -> Key | None:
    if size_of(spans) <= MOST_POINTS:
        return Key(dimension, "equal", spans, True)
    return Key(dimension, "range", spans, len(spans) == 1) if dimension.ordered else None


def _residual(parts: Parts, key: Key | None) -> x.Predicate | None:
    said = key.dimension.number if key is not None and key.exact else None
    tests = [test for number, found in parts.found.items() if number != said for test in found.tests]
    tests += parts.left
    return None if not tests else tests[0] if len(tests) == 1 else x.And(tuple(tests))


def size_of(spans: Iterable[Interval]) -> int:
    """How many keys are in some spans.

    >>> size_of([(1, 3), (7, 7)])
    4
    """
    return sum(high - low + 1 for low, high in spans)


def _without_minus_zero(spans: Spans) -> Iterable[Interval]:
    """Spans of floats that do not begin or end with the key of -0.0: no number has it, for -0.0 is 0.0.

    >>> list(_without_minus_zero([(-7, -1), (-1, -1), (-1, 5)]))
    [(-7, -2), (0, 5)]
    """
    ends = ((low + (low == -1), high - (high == -1)) for low, high in spans)
    return (span for span in ends if span[0] <= span[1])


def _intersection(first: Spans, second: Spans) -> Iterable[Interval]:
    pairs = ((max(a[0], b[0]), min(a[1], b[1])) for a in first for b in second)
    return (pair for pair in pairs if pair[0] <= pair[1])
