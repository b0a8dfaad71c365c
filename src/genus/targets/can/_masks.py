"""How much of a bus's traffic some event tags are: the measure by which filters are merged.

The tags that events can have are numbered, and a set of them is an integer with a bit for each. So what a pair
accepts is found by a few operations on long integers, and weighed by counting bits once for every weight there is.
"""

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

from genus.catalog import Catalog
from genus.errors import SubscriptionError

# (value, mask) pairs: the test a CAN controller makes of every identifier, and how such tests combine.
#
# A pair accepts the identifiers that equal `value` in the bits of `mask`. Geometrically it is a face of a cube of bits;
# two pairs join to the smallest face that holds both, which loses nothing and may accept more.


ETAG_BITS = 14
"""The low bits of an identifier, which hold the event tag."""


class Pair(NamedTuple):
    """One acceptance filter.

    >>> Pair(0b1000, 0b1100).accepts(0b1011), Pair(0b1000, 0b1100).accepts(0b0011)
    (True, False)
    """

    value: int
    mask: int

    def accepts(self, identifier: int) -> bool:
        """Whether an identifier passes."""
        return identifier & self.mask == self.value

    def covers(self, other: "Pair") -> bool:
        """Whether all that pass the other pass this one."""
        return not self.mask & ~other.mask and other.value & self.mask == self.value

    def joined(self, other: "Pair") -> "Pair":
        """The narrowest pair that both pass.

        >>> Pair(0b1000, 0b1111).joined(Pair(0b1001, 0b1111))
        Pair(value=8, mask=14)
        """
        mask = self.mask & other.mask & ~(self.value ^ other.value)
        return Pair(self.value & mask, mask)

    def is_twin_of(self, other: "Pair") -> bool:
        """Whether the two differ in one bit only, so that joined they accept nothing more."""
        return self.mask == other.mask and (self.value ^ other.value).bit_count() == 1

    def __str__(self) -> str:
        places = [1 << place for place in reversed(range(ETAG_BITS))]
        pattern = "".join("-" if not self.mask & bit else "1" if self.value & bit else "0" for bit in places)
        return f"{self.value:#06x}/{self.mask:#06x}  {pattern}"


def uncovered(pairs: Iterable[Pair]) -> tuple[Pair, ...]:
    """The pairs that no other one covers, each once, in the order of their values.

    >>> uncovered([Pair(8, 15), Pair(8, 12), Pair(8, 15)])
    (Pair(value=8, mask=12),)
    """
    widest: list[Pair] = []
    for pair in sorted(set(pairs), key=lambda pair: (pair.mask.bit_count(), pair)):
        if not any(kept.covers(pair) for kept in widest):
            widest.append(pair)
    return tuple(sorted(widest))


def condensed(pairs: Iterable[Pair]) -> tuple[Pair, ...]:
    """Fewer pairs that together accept exactly the same: twins are joined as far as that goes (Quine 1952).

    >>> condensed([Pair(4, 15), Pair(5, 15), Pair(6, 14), Pair(1, 15)])
    (Pair(value=1, mask=11), Pair(value=4, mask=12))
    """
    left = set(uncovered(pairs))
    covered = {prime: set(filter(prime.covers, left)) for prime in uncovered(_with_all_joined(left))}
    chosen: list[Pair] = []
    while left:
        chosen.append(max(covered, key=lambda prime: len(covered[prime] & left)))
        left -= covered.pop(chosen[-1])
    return tuple(sorted(chosen))


def _with_all_joined(pairs: set[Pair]) -> set[Pair]:
    """The pairs, their joined twins, the joined twins among these, and so on."""
    found, new = set(pairs), pairs
    while new:
        new = {one.joined(other) for one in new for other in found if one.is_twin_of(other)} - found
        found |= new
    return found


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
    >>> from genus.testing._generators import Bell, Chime
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
            own = catalog.own_etags(name)
            types |= dict.fromkeys(range(own.value, own.value + own.size), 1 / own.size)
    for what, rate in traffic.items():
        tags = _tags_of(what, catalog)
        for tag in tags:
            rates[tag] = rates.get(tag, 0.0) + _checked(what, rate) / len(tags)
    return {tag: Weight(rates.get(tag, 0.0), types.get(tag, 0.0)) for tag in {**types, **rates}}


def _tags_of(what: int | str, catalog: Catalog) -> range:
    if isinstance(what, str):
        own = catalog.own_etags(what)
        return range(own.value, own.value + own.size)
    if 0 <= what < 1 << ETAG_BITS:
        return range(what, what + 1)
    raise SubscriptionError(f"traffic names the event tag {what}, which does not have {ETAG_BITS} bits")


def _checked(what: int | str, rate: float) -> float:
    if 0 <= rate < math.inf:
        return rate
    raise SubscriptionError(f"traffic of {what!r} is {rate}; give a number of events, at least 0")
