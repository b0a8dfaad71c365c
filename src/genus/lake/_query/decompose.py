"""Decomposition of subscriptions for routing: what each asks of a shape, its lookup key, and the residual predicate.

A key is a test of one attribute against constants: equality with a few values, or a range. If there are several, the
most selective one is chosen, estimated from the constants in a sample of the subscriptions. The rest of `where` is the
residual, which is evaluated only for events that the key selects.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import pyarrow as pa

import genus.filters.internal as x
from genus.filters import Subscription
from genus.lake._query.templates import Templates, key_type
from genus.model.internal import INT64_MIN
from genus.model.types import Attribute, AttributeType
from genus.targets.internal import (
    Choices,
    Codes,
    Domain,
    Floats,
    Parts,
    Profile,
    Spans,
    domain_of,
    intervals,
    key_float,
    keys_in,
    take_apart,
    without_class,
)

MAX_POINTS = 64
"""Up to this many values are looked up one by one; more are a range or a residual."""
MIN_SUBSCRIPTIONS = 8
"""With fewer subscriptions, a lookup of their own does not pay off; their tests are residuals."""
SAMPLE_SIZE = 20_000
"""Subscriptions from which the selectivity of tests is estimated."""

Method: TypeAlias = Literal["equal", "range"]
LookupKind: TypeAlias = tuple[Method, int]
"""The method and the number of the dimension; subscriptions of one kind are found together."""


class KeyDimension:
    """An attribute that subscriptions compare with constants. State: the sample."""

    def __init__(self, number: int, name: str, type_: AttributeType) -> None:
        self.number, self.key = number, Attribute(name, without_class(type_))
        self.domain: Domain = domain_of(type_)
        self.ordered = not isinstance(self.domain, Choices | Codes)
        if self.ordered and not isinstance(self.domain, Floats):
            self.domain.low = INT64_MIN  # no key is reserved for unknown here
        self.sample: list[int] = []
        """The constants in the sample, in order when all of them are known."""
        self.distinct = 0
        """The number of different constants in it."""

    def spans(self, part: x.Predicate) -> Spans | None:
        """Return the intervals where a test of the attribute is true; None if it cannot be written as intervals."""
        found = intervals(part, self.domain)
        return _without_minus_zero(found) if found is not None and isinstance(self.domain, Floats) else found

    def selectivity(self, key: "Key") -> float:
        if key.method == "equal":
            members = len(self.domain.codes) if isinstance(self.domain, Choices) else 0
            return len(keys_in(key.spans, MAX_POINTS) or ()) / max(members or self.distinct, 1)
        inside = bisect_right(self.sample, key.spans[-1][1]) - bisect_left(self.sample, key.spans[0][0])
        return inside / max(len(self.sample), 1)

    def constants(self, spans: Spans) -> list[Any]:
        keys = keys_in(spans, MAX_POINTS) or []
        if isinstance(self.domain, Codes | Choices):
            members = [self.domain.values[key] for key in keys]
            return [int(each) for each in members] if key_type(self.key.type) == pa.int64() else members
        return list(dict.fromkeys(map(self.native, keys)))  # -0.0 and 0.0 are equal, and one value

    def native(self, key: int) -> int | float:
        """A bound as the number that is compared: microseconds, an integer or a float."""
        return key_float(key) if isinstance(self.domain, Floats) else key


class Key(NamedTuple):
    """A test that events are looked up by; `exact` if it covers all tests of the attribute."""

    dimension: KeyDimension
    method: Method
    spans: Spans
    exact: bool

    @property
    def lookup_kind(self) -> LookupKind:
        return self.method, self.dimension.number


class KeyColumns:
    """State: the keys of one lookup, as columns."""

    def __init__(self, method: Method, key: Attribute) -> None:
        self.method, self.key = method, key
        self.subscriptions = array("i")
        self.values: list[Any] = []
        """The value of each row, for equalities."""
        self.low: list[Any] = []
        self.high: list[Any] = []

    def add(self, subscription: int, key: Key) -> None:
        """Add the key of a subscription: a row for each value, or for the range."""
        if key.method == "equal":
            values = key.dimension.constants(key.spans)
            self.values += values
            self.subscriptions.extend([subscription] * len(values))
        else:
            self.low.append(key.dimension.native(key.spans[0][0]))
            self.high.append(key.dimension.native(key.spans[-1][1]))
            self.subscriptions.append(subscription)


class DecomposedSubscriptions:
    """Subscriptions, decomposed; their numbers are their positions in the list."""

    def __init__(self, subscriptions: Sequence[Subscription]) -> None:
        self.profiles: list[Profile] = []
        self.profile_of = array("i")
        """The number of the profile of each subscription; -1 if the subscription matches nothing."""
        self.templates = Templates()
        self.unkeyed = array("i")
        self.keyed: dict[LookupKind, KeyColumns] = {}
        self._worthwhile: set[LookupKind] | None = None
        self._plain: dict[tuple[tuple[type, ...], bool, tuple[str, ...], tuple[str, ...]], int] = {}
        self._numbers: dict[Profile, int] = {}
        self._dimensions: dict[tuple[str, AttributeType], KeyDimension] = {}
        self._learn(subscriptions)
        for subscription in subscriptions:
            self._add(subscription)

    def _learn(self, subscriptions: Sequence[Subscription]) -> None:
        """Estimate from a sample which tests are selective, and which kinds of lookup are worthwhile."""
        every = max(1, len(subscriptions) // SAMPLE_SIZE)
        sample = [take_apart(subscription, self._dimension) for subscription in subscriptions[::every]]
        for parts in sample:
            for found in parts.tests.values():
                found.attribute.sample += [end for span in found.spans for end in span]
        for dimension in self._dimensions.values():
            dimension.sample.sort()
            dimension.distinct = len(set(dimension.sample))
        kinds = Counter(key.lookup_kind for parts in sample if (key := self._choose_key(parts)))
        self._worthwhile = {kind for kind, count in kinds.items() if count * every >= MIN_SUBSCRIPTIONS}

    def _add(self, subscription: Subscription) -> None:
        number, key, residual = len(self.profile_of), None, None
        if subscription.where is None:
            profile = self._plain_profile(subscription)
        else:
            parts = take_apart(subscription, self._dimension)
            profile = -1 if parts.is_void else self._number(parts.profile)
            if profile >= 0:
                key = self._choose_key(parts)
                residual = _residual(parts, key)
        self.profile_of.append(profile)
        self.templates.add(residual)
        if key is not None:
            if key.lookup_kind not in self.keyed:
                self.keyed[key.lookup_kind] = KeyColumns(key.method, key.dimension.key)
            self.keyed[key.lookup_kind].add(number, key)
        elif profile >= 0:
            self.unkeyed.append(number)

    def _plain_profile(self, subscription: Subscription) -> int:
        """Return the profile of a subscription without a predicate; most of very many are such, and few differ."""
        key = subscription.types, subscription.exact, subscription.has, subscription.lacks
        if key not in self._plain:
            found = take_apart(subscription, self._dimension).profile
            self._plain[key] = -1 if found.is_void else self._number(found)
        return self._plain[key]

    def _choose_key(self, parts: Parts[KeyDimension]) -> Key | None:
        """Return the most selective key of a worthwhile kind."""
        keys = [key for found in parts.tests.values() if (key := _key(found.attribute, found.spans))]
        if self._worthwhile is not None:
            keys = [key for key in keys if key.lookup_kind in self._worthwhile]
        if len(keys) < 2:
            return keys[0] if keys else None
        return min(keys, key=lambda key: (key.dimension.selectivity(key), key.method))

    def _dimension(self, attribute: x.AttributeRef) -> KeyDimension:
        assert attribute.type is not None, "a subscription's predicate is bound"
        key = attribute.name, attribute.type
        if key not in self._dimensions:
            self._dimensions[key] = KeyDimension(len(self._dimensions), *key)
        return self._dimensions[key]

    def _number(self, profile: Profile) -> int:
        known = self._numbers.setdefault(profile, len(self.profiles))
        if known == len(self.profiles):
            self.profiles.append(profile)
        return known


def _key(dimension: KeyDimension, spans: Spans) -> Key | None:
    if keys_in(spans, MAX_POINTS) is not None:
        return Key(dimension, "equal", spans, True)
    return Key(dimension, "range", spans, len(spans) == 1) if dimension.ordered else None


def _residual(parts: Parts[KeyDimension], key: Key | None) -> x.Predicate | None:
    covered = key.dimension.number if key is not None and key.exact else None
    tests = [test for number, found in parts.tests.items() if number != covered for test in found.predicates]
    tests += parts.rest
    return None if not tests else tests[0] if len(tests) == 1 else x.And(tuple(tests))


def _without_minus_zero(spans: Spans) -> Spans:
    """Spans of floats that do not begin or end with the key of -0.0, which no value has: -0.0 is stored as 0.0.

    >>> _without_minus_zero([(-7, -1), (-1, -1), (-1, 5)])
    [(-7, -2), (0, 5)]
    """
    ends = ((low + (low == -1), high - (high == -1)) for low, high in spans)
    return [span for span in ends if span[0] <= span[1]]
