"""How much of a bus's traffic some event tags are: the measure by which filters are merged.

The tags that events can have are numbered, and a set of them is an integer with a bit for each. So what a pair
accepts is found by a few operations on long integers, and weighed by counting bits once for every weight there is.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from genus.catalog import Catalog
from genus.errors import SubscriptionError
from genus.targets.can.pairs import ETAG_BITS, Pair

Traffic: TypeAlias = Mapping[int, float] | Mapping[str, float] | Mapping[int | str, float]
"""How many events there are per second, or in any other unit, of event tags and of types.

A type stands for exactly that type, not for those below it; its events are thought to be spread over its own tags.
"""

TagSet: TypeAlias = int
"""A set of tags: bit i is the i-th tag of a census."""


class Weight(NamedTuple):
    """What some tags weigh: by the traffic that is known, and as a number of types, each of them counting the same."""

    rate: float
    types: float


class Census:
    """The event tags that are in use, and what each weighs.

    >>> from genus.catalog import Catalog
    >>> from genus.testing.generators import Bell, Chime
    >>> catalog = Catalog()
    >>> added = catalog.register(Bell, Chime)
    >>> census = Census(catalog, {"Bell": 30.0, 8: 10.0})
    >>> bells = census.accepted(Pair(catalog.etag(Bell), 0x3FFF))
    >>> census.weight(bells), census.weight(census.everything)
    (Weight(rate=30.0, types=1.0), Weight(rate=40.0, types=3.0))
    """

    def __init__(self, catalog: Catalog, traffic: Traffic | None = None) -> None:
        weights = _weights(catalog, traffic or {})
        self._tags = list(weights)
        self.everything: TagSet = (1 << len(weights)) - 1
        self._groups: dict[Weight, TagSet] = {}
        self._planes: list[TagSet] = [0] * ETAG_BITS
        self._accepted: dict[Pair, TagSet] = {}
        self._weighed: dict[TagSet, Weight] = {}
        for number, (tag, weight) in enumerate(weights.items()):
            self._groups[weight] = self._groups.get(weight, 0) | 1 << number
            for bit in range(ETAG_BITS):
                self._planes[bit] |= (tag >> bit & 1) << number

    def accepted(self, pair: Pair) -> TagSet:
        """The tags that a pair accepts; bits of the identifier other than the tag's are not looked at."""
        found = self._accepted.get(pair)
        if found is None:
            found = self.everything
            for bit, plane in enumerate(self._planes):
                if pair.mask >> bit & 1:
                    found &= plane if pair.value >> bit & 1 else ~plane
            self._accepted[pair] = found
        return found

    def tags_of(self, tags: TagSet) -> list[int]:
        """The event tags in a set."""
        return [tag for number, tag in enumerate(self._tags) if tags >> number & 1]

    def weight(self, tags: TagSet) -> Weight:
        """What a set of tags weighs."""
        found = self._weighed.get(tags)
        if found is None:
            rate = types = 0.0
            for weight, group in self._groups.items():
                count = (tags & group).bit_count()
                rate += weight.rate * count
                types += weight.types * count
            found = self._weighed[tags] = Weight(rate, types)
        return found


def _weights(catalog: Catalog, traffic: Traffic) -> dict[int, Weight]:
    """The weight of every tag that a type has or that traffic is known of."""
    rates: dict[int, float] = {}
    types: dict[int, float] = {}
    for name, entry in catalog.entries.items():
        if not entry.kind:
            own = catalog.own_tags(name)
            types |= dict.fromkeys(range(own.value, own.value + own.size), 1 / own.size)
    for what, rate in traffic.items():
        tags = _tags_of(what, catalog)
        for tag in tags:
            rates[tag] = rates.get(tag, 0.0) + _checked(what, rate) / len(tags)
    return {tag: Weight(rates.get(tag, 0.0), types.get(tag, 0.0)) for tag in {**types, **rates}}


def _tags_of(what: int | str, catalog: Catalog) -> range:
    if isinstance(what, str):
        own = catalog.own_tags(what)
        return range(own.value, own.value + own.size)
    if 0 <= what < 1 << ETAG_BITS:
        return range(what, what + 1)
    raise SubscriptionError(f"traffic names the event tag {what}, which does not have {ETAG_BITS} bits")


def _checked(what: int | str, rate: float) -> float:
    if 0 <= rate < math.inf:
        return rate
    raise SubscriptionError(f"traffic of {what!r} is {rate}; give a number of events, at least 0")
