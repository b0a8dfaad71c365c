"""Subscriptions decomposed for the index: a profile of type and attributes, an interval per attribute, and the rest."""

from dataclasses import dataclass
from typing import TypeAlias

import genus.filters._expression as x
from genus.filters import Subscription
from genus.filters._covering import conjuncts
from genus.model import AttributeType, conforms
from genus.targets.index._bitmaps import AttributeBitmaps
from genus.targets.index._intervals import NOTHING, Interval, attribute_of, domain_of, intervals


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


Parts: TypeAlias = tuple[int, dict[int, Interval], x.Predicate | None]
"""The number of the profile, the interval of each attribute by its number, and the residual predicate."""


class Decomposition:
    """State: the profiles and attributes of one family's subscriptions so far, in the order of their numbers."""

    def __init__(self) -> None:
        self.profiles: list[Profile] = []
        self.dimensions: list[AttributeBitmaps] = []
        self.watched: list[str] = []
        """The attributes whose presence distinguishes shapes."""
        self._numbers: dict[Profile, int] = {}
        self._by_name: dict[str, AttributeBitmaps] = {}

    def decompose(self, subscription: Subscription) -> Parts:
        """The parts of a subscription; together they are equivalent to it."""
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

    def classify(self, subscription: Subscription) -> tuple[list[str], list[str], list[str]]:
        """The tests of a subscription as texts: of presence, by interval, and by evaluation."""
        _, _, residual = self.decompose(subscription)
        evaluated = list(map(str, conjuncts(residual)))
        present = [f"{name} present" for name in subscription.has] + [f"{name} absent" for name in subscription.lacks]
        looked_up = []
        for part in conjuncts(subscription.where):
            match part:
                case x.Present(attribute):
                    present.append(f"{attribute.name} present")
                case x.Not(x.Present(attribute)):
                    present.append(f"{attribute.name} absent")
                case _:
                    looked_up.append(str(part))
        return present, [text for text in looked_up if text not in evaluated], evaluated

    def _narrow_by_bound(self, part: x.Predicate, found: dict[int, Interval]) -> bool:
        """The same as `_narrow`, several times faster, for the form that most conjuncts have."""
        if type(part) is not x.Compare or type(part.left) is not x.AttributeRef or type(part.right) is not x.Literal:
            return False
        dimension = self._by_name.get(part.left.name) or self._dimension_of(part.left)
        interval = dimension.domain.interval(part.op, part.right.value)
        if interval is not None:
            self._intersect(dimension, interval, found)
        return interval is not None

    def _narrow(self, part: x.Predicate, found: dict[int, Interval]) -> bool:
        """Narrow the interval of the attribute that a conjunct tests; False if a residual is left to evaluate."""
        attribute = attribute_of(part)
        if attribute is None:
            return False
        dimension = self._dimension_of(attribute)
        spans = intervals(part, dimension.domain)
        if spans is None:
            return False
        self._intersect(dimension, (spans[0][0], spans[-1][1]) if spans else NOTHING, found)
        return len(spans) <= 1

    def _intersect(self, dimension: AttributeBitmaps, interval: Interval, found: dict[int, Interval]) -> None:
        least, most = found.get(dimension.number) or (dimension.domain.low, dimension.domain.high)
        low, high = interval
        low, high = low if low > least else least, high if high < most else most
        found[dimension.number] = (low, high) if low <= high else NOTHING

    def _dimension_of(self, attribute: x.AttributeRef) -> AttributeBitmaps:
        assert attribute.type is not None, "a subscription's predicate is bound"
        return self.dimension(attribute.name, attribute.type)

    def dimension(self, name: str, type_: AttributeType) -> AttributeBitmaps:
        """The bitmaps of an attribute, made if it is new."""
        if (known := self._by_name.get(name)) is not None:
            return known
        fresh = self._by_name[name] = AttributeBitmaps(name, len(self.dimensions), domain_of(type_))
        self.dimensions.append(fresh)
        self._watch({name})
        return fresh

    def number(self, profile: Profile) -> int:
        """The number of a profile, given if it is new."""
        if (known := self._numbers.get(profile)) is not None:
            return known
        self._numbers[profile] = len(self.profiles)
        self.profiles.append(profile)
        self._watch(profile.has | profile.lacks)
        return len(self.profiles) - 1

    def _watch(self, names: set[str] | frozenset[str]) -> None:
        self.watched += sorted(names - set(self.watched))
