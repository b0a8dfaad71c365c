"""A subscription as acceptance filters, (value, mask) pairs, and the share of a bus's traffic that they accept.

A pair accepts the identifiers that equal `value` in the bits of `mask`. Geometrically it is a face of a cube of bits;
two pairs join to the smallest face that holds both, which loses nothing and may accept more.

The event tags in use are numbered, and a set of them is an integer with a bit for each. So the event tags that a pair
accepts are found by a few operations on long integers, and weighed by counting bits once per distinct weight.

A controller compares bits of the identifier. So it can test the type of an event, and which of its tagged attributes
are present; all else is a residual for the receiver. A predicate implies something about presence (a comparison is true
only if its attributes are present), which is used. Each block of event tags becomes one pair, the narrowest that
accepts all that can match: a filter may accept too much, never too little.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, NamedTuple, TypeAlias

import msgspec

import genus.filters.internal as x
from genus.catalog import Catalog
from genus.errors import SubscriptionError
from genus.filters import Subscription
from genus.model import name_of
from genus.targets._presence import (
    PresenceCompiler,
    registered_tagged,
    registered_types,
    required_presence,
    residual_of,
    without_values,
)

ETAG_BITS = 14
"""The low bits of an identifier, which hold the event tag."""


class Pair(NamedTuple):
    """One acceptance filter: it accepts the identifiers that equal `value` in the bits of `mask`.

    >>> Pair(0b1000, 0b1100).accepts(0b1011), Pair(0b1000, 0b1100).accepts(0b0011)
    (True, False)
    """

    value: int
    mask: int

    def accepts(self, identifier: int) -> bool:
        """Return whether an identifier passes the filter."""
        return identifier & self.mask == self.value

    def covers(self, other: "Pair") -> bool:
        """Return whether every identifier that passes the other passes this one."""
        return not self.mask & ~other.mask and other.value & self.mask == self.value

    def join(self, other: "Pair") -> "Pair":
        """Return the narrowest pair that accepts what either accepts.

        >>> Pair(0b1000, 0b1111).join(Pair(0b1001, 0b1111))
        Pair(value=8, mask=14)
        """
        mask = self.mask & other.mask & ~(self.value ^ other.value)
        return Pair(self.value & mask, mask)

    def is_adjacent(self, other: "Pair") -> bool:
        """Return whether the two differ in one bit only, so that their join accepts nothing more."""
        return self.mask == other.mask and (self.value ^ other.value).bit_count() == 1

    def __str__(self) -> str:
        bits = [1 << number for number in reversed(range(ETAG_BITS))]
        pattern = "".join("-" if not self.mask & bit else "1" if self.value & bit else "0" for bit in bits)
        return f"{self.value:#06x}/{self.mask:#06x}  {pattern}"


def drop_covered(pairs: Iterable[Pair]) -> tuple[Pair, ...]:
    """Return the pairs that no other one covers, each once, in the order of their values.

    >>> drop_covered([Pair(8, 15), Pair(8, 12), Pair(8, 15)])
    (Pair(value=8, mask=12),)
    """
    widest: list[Pair] = []
    for pair in sorted(set(pairs), key=lambda pair: (pair.mask.bit_count(), pair)):
        if not any(kept.covers(pair) for kept in widest):
            widest.append(pair)
    return tuple(sorted(widest))


def condense(pairs: Iterable[Pair]) -> tuple[Pair, ...]:
    """Fewer pairs that accept exactly the same: adjacent pairs are joined as far as possible (Quine 1952).

    >>> condense([Pair(4, 15), Pair(5, 15), Pair(6, 14), Pair(1, 15)])
    (Pair(value=1, mask=11), Pair(value=4, mask=12))
    """
    left = set(drop_covered(pairs))
    covered = {prime: set(filter(prime.covers, left)) for prime in drop_covered(_all_joins(left))}
    chosen: list[Pair] = []
    while left:
        chosen.append(max(covered, key=lambda prime: len(covered[prime] & left)))
        left -= covered.pop(chosen[-1])
    return tuple(sorted(chosen))


def _all_joins(pairs: set[Pair]) -> set[Pair]:
    """Return the pairs, the joins of adjacent pairs, the joins among these, and so on."""
    found, new = set(pairs), pairs
    while new:
        new = {one.join(other) for one in new for other in found if one.is_adjacent(other)} - found
        found |= new
    return found


Traffic: TypeAlias = Mapping[int, float] | Mapping[str, float] | Mapping[int | str, float]
"""The rate of events, per second or in any other unit, by event tag or by the name of a type.

A type is exactly that type, without its subtypes; its events are taken to be spread evenly over its own event tags.
"""

EtagSet: TypeAlias = int
"""A set of event tags: bit i is the i-th event tag of `EtagWeights`."""


class Weight(NamedTuple):
    """The weight of some event tags: by known traffic, and as a number of types, each counting the same."""

    rate: float
    types: float


class EtagWeights:
    """The event tags in use, and the weight of each.

    >>> from genus.catalog import Catalog
    >>> from genus import Event
    >>> class Bell(Event): ...
    >>> class Chime(Event): ...
    >>> catalog = Catalog()
    >>> added = catalog.register(Bell, Chime)
    >>> weights = EtagWeights(catalog, {"Bell": 30.0, 8: 10.0})
    >>> bells = weights.accepted_etags(Pair(catalog.etag(Bell), 0x3FFF))
    >>> weights.weight(bells), weights.weight(weights.everything)
    (Weight(rate=30.0, types=1.0), Weight(rate=40.0, types=3.0))
    """

    def __init__(self, catalog: Catalog, traffic: Traffic | None = None) -> None:
        weights = _weights(catalog, traffic or {})
        self._tags = list(weights)
        self.everything: EtagSet = (1 << len(weights)) - 1
        self._groups: dict[Weight, EtagSet] = {}
        self._planes: list[EtagSet] = [0] * ETAG_BITS
        self._accepted: dict[Pair, EtagSet] = {}
        self._weighed: dict[EtagSet, Weight] = {}
        for number, (tag, weight) in enumerate(weights.items()):
            self._groups[weight] = self._groups.get(weight, 0) | 1 << number
            for bit in range(ETAG_BITS):
                self._planes[bit] |= (tag >> bit & 1) << number

    def accepted_etags(self, pair: Pair) -> EtagSet:
        """Return the event tags that a pair accepts; other bits of the identifier are ignored."""
        found = self._accepted.get(pair)
        if found is None:
            found = self.everything
            for bit, plane in enumerate(self._planes):
                if pair.mask >> bit & 1:
                    found &= plane if pair.value >> bit & 1 else ~plane
            self._accepted[pair] = found
        return found

    def etags_of(self, tags: EtagSet) -> list[int]:
        return [tag for number, tag in enumerate(self._tags) if tags >> number & 1]

    def weight(self, tags: EtagSet) -> Weight:
        """Return the weight of a set of event tags."""
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
    """Return the weight of every event tag of a type or of known traffic."""
    rates: dict[int, float] = {}
    types: dict[int, float] = {}
    for name, entry in catalog.entries.items():
        if entry.blocks:
            own = catalog.own_etags(name)
            types |= dict.fromkeys(range(own.value, own.value + own.size), 1 / own.size)
    for what, rate in traffic.items():
        tags = _etag_range(what, catalog)
        for tag in tags:
            rates[tag] = rates.get(tag, 0.0) + _check_rate(what, rate) / len(tags)
    return {tag: Weight(rates.get(tag, 0.0), types.get(tag, 0.0)) for tag in {**types, **rates}}


def _etag_range(what: int | str, catalog: Catalog) -> range:
    if isinstance(what, str):
        own = catalog.own_etags(what)
        return range(own.value, own.value + own.size)
    if 0 <= what < 1 << ETAG_BITS:
        return range(what, what + 1)
    raise SubscriptionError(f"traffic has the event tag {what}, which does not fit {ETAG_BITS} bits")


def _check_rate(what: int | str, rate: float) -> float:
    if 0 <= rate < math.inf:
        return rate
    raise SubscriptionError(f"traffic of {what!r} is {rate}; it must be a number of events, at least 0")


class CanFilter(msgspec.Struct, frozen=True):
    """The acceptance filters of one subscription; made by `compile`.

    `pairs` are the filters, and `residual` is what the receiver must still test of events that pass, None if nothing.
    `types` are the registered types that can match, with their subtypes unless the subscription is exact, and `tagged`
    are the tagged attributes that the filters require to be present (True) or absent (False).
    """

    subscription: Subscription
    pairs: tuple[Pair, ...]
    residual: Subscription | None
    types: tuple[str, ...]
    tagged: Mapping[str, bool]

    def accepts(self, identifier: int) -> bool:
        """Return whether a frame with this identifier passes; its priority and node are ignored."""
        return any(pair.accepts(identifier) for pair in self.pairs)

    def explain(self) -> str:
        """Return the filters, what they test, and what is left to the receiver, as text."""
        lines = [f"can: {self.subscription}", f"  type: {', '.join(self.types) or 'none that is registered'}"]
        lines[-1] += "" if self.subscription.exact or not self.types else ", and all subtypes"
        asked = [f"{name} {'present' if wanted else 'absent'}" for name, wanted in self.tagged.items()]
        lines += [f"  tagged: {', '.join(asked)}"] if asked else []
        lines += [f"  {pair}" for pair in self.pairs] or ["  no frame is accepted: nothing can match"]
        return "\n".join([*lines, f"  residual: {self.residual or 'nothing'}"])


def compile(subscription: Subscription, catalog: Catalog) -> CanFilter:
    """Compile a subscription to acceptance filters, by the event tags of a catalog as it is now.

    Compile again when types are registered or get event tags: the filters of a kind, and of a type with new subtypes,
    may then grow. Raises NotRegistered if a type of the subscription is not in the catalog or has no event tag yet.

    >>> from genus import Event, Maybe, Subscription, this
    >>> from genus.catalog import Catalog
    >>> class Loop(Event, tagged=("place", "category")):
    ...     lane: int
    ...     category: Maybe[str] = None
    >>> catalog = Catalog()
    >>> added = catalog.register(Loop)
    >>> made = compile(Subscription(Loop, has="place", where=this.lane > 1), catalog)
    >>> print(made.explain())
    can: Loop has place where lane > 1
      type: Loop, and all subtypes
      tagged: place present
      0x2042/0x3fc2  10000001----1-
      residual: Loop where lane > 1
    >>> made.accepts(catalog.etag_of(Loop(lane=2))), made.accepts(catalog.etag_of(Loop(lane=2, place="A8")))
    (False, True)
    """
    types, decided = registered_types(subscription, catalog)
    wanted = required_presence(subscription, CanCompiler())
    if wanted is None:
        return CanFilter(subscription, (), None, types, {})
    by_type = {name: registered_tagged(name, catalog, subscription) for name in types}
    named = {name_of(cls) for cls in subscription.types}
    on_bus = [name for name in types if name in named or catalog.has_etag(name)]
    pairs = [pair for name in on_bus for pair in _pairs(name, by_type[name], subscription.exact, catalog, wanted)]
    tagged = {name: here for name, here in wanted.items() if any(name in names for names in by_type.values())}
    everywhere = frozenset(tagged).intersection(*by_type.values())
    return CanFilter(subscription, condense(pairs), residual_of(subscription, everywhere, decided), types, tagged)


def _pairs(
    name: str, tagged: Sequence[str], exact: bool, catalog: Catalog, wanted: Mapping[str, bool]
) -> Iterator[Pair]:
    """Yield the pairs of one type, narrowed by its tagged attributes."""
    bits = {attribute: 1 << bit for bit, attribute in enumerate(reversed(tagged))}
    asked = {attribute: here for attribute, here in wanted.items() if attribute in bits}
    mask = sum(bits[attribute] for attribute in asked)
    value = sum(bits[attribute] for attribute, here in asked.items() if here)
    for block in (catalog.own_etags(name),) if exact else catalog.filters(name):
        yield Pair(block.value | value, block.mask | mask)


class CanCompiler(PresenceCompiler):
    """Translates a predicate to the presence of attributes that it requires."""

    target: ClassVar[str] = "can"
    unsupported: ClassVar[Mapping[type[x.Expression] | str, str]] = without_values("identifiers hold no values")
