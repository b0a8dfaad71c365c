"""A subscription taken apart for the index: what it asks of a shape, an interval per dimension, and what is left."""

from dataclasses import dataclass
from typing import TypeAlias

import genus.filters._expression as x
from genus.filters import Subscription
from genus.filters._covering import conjuncts
from genus.model import AttributeType, conforms
from genus.targets.index._bitmaps import Dimension
from genus.targets.index._intervals import NOTHING, Interval, attribute_of, domain_of, intervals


@dataclass(frozen=True, slots=True)
class Profile:
    """What a subscription asks of a shape; very many subscriptions share few profiles."""

    types: tuple[type, ...]
    exact: bool
    has: frozenset[str]
    lacks: frozenset[str]

    def accepts(self, cls: type, present: set[str]) -> bool:
        """Whether an event of a class, with some of the watched attributes, passes."""
        conforming = all(conforms(cls, wanted, exact=self.exact) for wanted in self.types)
        return conforming and self.has <= present and self.lacks.isdisjoint(present)


Parts: TypeAlias = tuple[int, dict[int, Interval], x.Predicate | None]
"""The number of the profile, an interval for each dimension that is tested, and the residual predicate."""


class Anatomy:
    """State: the profiles and dimensions met so far in one family, in the order of their numbers."""

    def __init__(self) -> None:
        self.profiles: list[Profile] = []
        self.dimensions: list[Dimension] = []
        self.watched: list[str] = []
        """The attributes whose presence makes a shape."""
        self._numbers: dict[Profile, int] = {}
        self._by_name: dict[str, Dimension] = {}

    def take_apart(self, subscription: Subscription) -> Parts:
        """The parts of a subscription; together they mean the same."""
        found: dict[int, Interval] = {}
        left: list[x.Predicate] = []
        has, lacks = list(subscription.has), list(subscription.lacks)
        for part in conjuncts(subscription.where):
            if self._narrow_by_bound(part, found) or self._narrow(part, found):
                continue
            match part:
                case x.Present(attribute):
                    has.append(attribute.name)
                case x.Not(x.Present(attribute)):
                    lacks.append(attribute.name)
                case _:
                    left.append(part)
        profile = Profile(subscription.types, subscription.exact, frozenset(has), frozenset(lacks))
        return self.number(profile), found, x.And(tuple(left)) if left else None

    def _narrow_by_bound(self, part: x.Predicate, found: dict[int, Interval]) -> bool:
        """The same as `_narrow`, several times faster, for the form that nearly all conjuncts have."""
        if type(part) is not x.Compare or type(part.left) is not x.AttributeRef or type(part.right) is not x.Literal:
            return False
        dimension = self._by_name.get(part.left.name) or self._dimension_of(part.left)
        interval = dimension.domain.interval(part.op, part.right.value)
        if interval is not None:
            self._intersect(dimension, interval, found)
        return interval is not None

    def _narrow(self, part: x.Predicate, found: dict[int, Interval]) -> bool:
        """Narrow the interval of the attribute that a conjunct tests; False if that does not say all of it."""
        attribute = attribute_of(part)
        if attribute is None:
            return False
        dimension = self._dimension_of(attribute)
        spans = intervals(part, dimension.domain)
        if spans is None:
            return False
        self._intersect(dimension, (spans[0][0], spans[-1][1]) if spans else NOTHING, found)
        return len(spans) <= 1

    def _intersect(self, dimension: Dimension, interval: Interval, found: dict[int, Interval]) -> None:
        least, most = found.get(dimension.number) or (dimension.domain.low, dimension.domain.high)
        low, high = interval
        low, high = low if low > least else least, high if high < most else most
        found[dimension.number] = (low, high) if low <= high else NOTHING

    def _dimension_of(self, attribute: x.AttributeRef) -> Dimension:
        assert attribute.type is not None, "a subscription's predicate is bound"
        return self.dimension(attribute.name, attribute.type)

    def dimension(self, name: str, type_: AttributeType) -> Dimension:
        """The dimension of an attribute."""
        if (known := self._by_name.get(name)) is not None:
            return known
        fresh = self._by_name[name] = Dimension(name, len(self.dimensions), domain_of(type_))
        self.dimensions.append(fresh)
        self._watch({name})
        return fresh

    def number(self, profile: Profile) -> int:
        """The number of a profile."""
        if (known := self._numbers.get(profile)) is not None:
            return known
        self._numbers[profile] = len(self.profiles)
        self.profiles.append(profile)
        self._watch(profile.has | profile.lacks)
        return len(self.profiles) - 1

    def _watch(self, names: set[str] | frozenset[str]) -> None:
        self.watched += sorted(names - set(self.watched))
