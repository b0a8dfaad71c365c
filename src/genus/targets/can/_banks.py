"""Fit the filters of a whole node into the few that a controller has.

Pairs are joined, two at a time, until they are few enough; every join may accept unwanted events. The joins with the
least expected unwanted traffic are followed, several alternatives side by side (beam search), as the cheapest join now
may leave only expensive ones. On small cases that finds the optimum; tests compare it with all partitions
(tests/targets/test_can_banks.py).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from heapq import nsmallest
from itertools import combinations, count, pairwise
from typing import NamedTuple

import msgspec

from genus.catalog import Catalog
from genus.errors import SubscriptionError
from genus.filters import Subscription
from genus.targets.can._compiler import (
    CanFilter,
    EtagSet,
    EtagWeights,
    Pair,
    Traffic,
    Weight,
    compile,
    condense,
    drop_covered,
)

BEAM = 16
"""The number of alternatives followed side by side, if there are not too many joins to try."""

EFFORT = 100_000
"""The approximate number of joins to try; with more, fewer alternatives are followed."""

MANY = 64
"""With more pairs than this, only neighbours are joined at first."""


class FilterBank(msgspec.Struct, frozen=True):
    """The filters of a node, few enough for its controller; made by `fit_bank`.

    `pairs` are the filters, and `needed` those that would accept no unwanted events. `false_accepts` is the share of
    all traffic that passes though it is unwanted, `false_rate` the same in the unit of the given traffic, and
    `unwanted` are the types of that traffic.
    """

    pairs: tuple[Pair, ...]
    needed: tuple[Pair, ...]
    false_accepts: float
    false_rate: float | None = None
    unwanted: tuple[str, ...] = ()

    def accepts(self, identifier: int) -> bool:
        """Return whether a frame with this identifier passes."""
        return any(pair.accepts(identifier) for pair in self.pairs)

    def explain(self) -> str:
        """Return the filters, and the unwanted traffic they accept, as text."""
        lines = [f"bank: {len(self.needed)} pairs fitted into {len(self.pairs)}", *(f"  {p}" for p in self.pairs)]
        rate = "" if self.false_rate is None else f", {self.false_rate:g} of the rate given"
        lines.append(f"  accepted, but unwanted: {self.false_accepts:.1%} of all traffic{rate}")
        more = f" and {len(self.unwanted) - 8} more" if len(self.unwanted) > 8 else ""
        lines += [f"  from: {', '.join(self.unwanted[:8])}{more}"] if self.unwanted else []
        return "\n".join(lines)


def fit_bank(
    filters: Iterable[CanFilter | Subscription],
    catalog: Catalog,
    *,
    banks: int,
    traffic: Traffic | None = None,
    always: Iterable[tuple[int, int]] = (),
) -> FilterBank:
    """Return at most `banks` pairs that accept what these filters or subscriptions do, and as little else as possible.

    Unwanted traffic is estimated by `traffic`; types it does not contain, and all without it, are taken to be equally
    frequent. `always` are further pairs that the node needs, as for the protocol. Raises SubscriptionError if `banks`
    is less than 1, and NotRegistered if a type is not in the catalog.

    >>> from genus import Event, Subscription
    >>> from genus.catalog import Catalog
    >>> class Door(Event): ...
    >>> class Lamp(Event): ...
    >>> class Bell(Event): ...
    >>> catalog = Catalog()
    >>> added = catalog.register(Door, Lamp, Bell)
    >>> print(fit_bank(map(Subscription, (Bell, Lamp)), catalog, banks=1, traffic={"Lamp": 150, "Door": 50}).explain())
    bank: 2 pairs fitted into 1
      0x2000/0x3fc0  10000000------
      accepted, but unwanted: 25.0% of all traffic, 50 of the rate given
      from: Event, Door
    """
    check_banks(banks)
    compiled = [compile(each, catalog) if isinstance(each, Subscription) else each for each in filters]
    needed = condense([*(pair for each in compiled for pair in each.pairs), *(Pair(*pair) for pair in always)])
    weights = EtagWeights(catalog, traffic)
    pairs = fit_pairs(needed, banks, weights)
    extra = _accepted_etags(pairs, weights) & ~_accepted_etags(needed, weights)
    weight, total = weights.weight(extra), weights.weight(weights.everything)
    unwanted = dict.fromkeys(catalog.type_of(etag) or f"event tag {etag}" for etag in weights.etags_of(extra))
    if traffic is None:
        return FilterBank(pairs, needed, weight.types / total.types, None, tuple(unwanted))
    return FilterBank(pairs, needed, weight.rate / (total.rate or 1), weight.rate, tuple(unwanted))


def check_banks(banks: int) -> None:
    """Raise SubscriptionError for a controller without filters."""
    if banks < 1:
        raise SubscriptionError(f"banks is {banks}; a controller has at least one filter")


class _State(NamedTuple):
    """Pairs that accept all that is needed, and the event tags they accept."""

    pairs: tuple[Pair, ...]
    accepted: EtagSet


class _Step(NamedTuple):
    """A join, ordered by the cost of it and all before it; of equal cost, the narrowest first."""

    cost: Weight
    width: int
    pair: Pair
    before: _State

    def after(self) -> tuple[Pair, ...]:
        return tuple(sorted([self.pair, *(pair for pair in self.before.pairs if not self.pair.covers(pair))]))


def fit_pairs(needed: Iterable[Pair], banks: int, weights: EtagWeights) -> tuple[Pair, ...]:
    """Return the pairs, joined until there are at most `banks`."""
    pairs = drop_covered(needed)
    states = [_State(pairs, _accepted_etags(pairs, weights))]
    wanted = states[0].accepted
    width = max(1, min(BEAM, 6 * EFFORT // (len(pairs) ** 3 + 1)))
    done: list[tuple[Weight, tuple[Pair, ...]]] = []
    while states:
        done += [(weights.weight(s.accepted & ~wanted), s.pairs) for s in states if len(s.pairs) <= banks]
        steps = [step for state in states if len(state.pairs) > banks for step in _steps(state, wanted, weights)]
        chosen = {step.after(): step for step in nsmallest(4 * width, steps, key=lambda step: step[:3])}
        following = list(chosen.items())[:width]
        states = [_State(after, s.before.accepted | weights.accepted_etags(s.pair)) for after, s in following]
    return min(done)[1]


def _steps(state: _State, wanted: EtagSet, weights: EtagWeights) -> Iterator[_Step]:
    for one, other in _candidates(state.pairs):
        pair = one.join(other)
        extra = (state.accepted | weights.accepted_etags(pair)) & ~wanted
        yield _Step(weights.weight(extra), -pair.mask.bit_count(), pair, state)


def _candidates(pairs: Sequence[Pair]) -> Iterable[tuple[Pair, Pair]]:
    return combinations(pairs, 2) if len(pairs) <= MANY else pairwise(pairs)


def _accepted_etags(pairs: Iterable[Pair], weights: EtagWeights) -> EtagSet:
    found = 0
    for pair in pairs:
        found |= weights.accepted_etags(pair)
    return found


class SharedFilters:
    """The filters of all subscriptions on one controller, by reference count.

    `take` gives the pairs if they have changed since its last call, so that a controller is programmed only when
    needed. With `banks`, there are at most so many pairs, fitted by `traffic`; `always` are pairs that are needed
    without a subscription. To be used by one thread at a time.

    >>> from genus import Event, Subscription
    >>> from genus.catalog import Catalog
    >>> class Door(Event): ...
    >>> catalog = Catalog()
    >>> added = catalog.register(Door)
    >>> shared = SharedFilters(catalog)
    >>> first = shared.add(Subscription(Door))
    >>> shared.take()
    (Pair(value=8208, mask=16368),)
    >>> second = shared.add(Subscription(Door))
    >>> shared.remove(first)
    >>> shared.take() is None, shared.pairs
    (True, (Pair(value=8208, mask=16368),))
    >>> shared.remove(second)
    >>> shared.take()
    ()
    """

    def __init__(
        self,
        catalog: Catalog,
        *,
        banks: int | None = None,
        traffic: Traffic | None = None,
        always: Iterable[tuple[int, int]] = (),
    ) -> None:
        if banks is not None:
            check_banks(banks)
        self._catalog = catalog
        self._banks, self._traffic = banks, traffic
        self._always = tuple(Pair(*pair) for pair in always)
        self._filters: dict[int, CanFilter] = {}
        self._users = Counter(self._always)
        self._numbers = count()
        self._pairs: tuple[Pair, ...] | None = None
        self._taken: tuple[Pair, ...] = ()

    def __len__(self) -> int:
        return len(self._filters)

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """The filters for the subscriptions there are now, at most as many as `banks`."""
        if self._pairs is None:
            self._pairs = self._fit()
        return self._pairs

    def add(self, subscription: Subscription) -> int:
        """Add a subscription and return a handle to remove it; NotRegistered if its type is not in the catalog."""
        handle = next(self._numbers)
        self._filters[handle] = compile(subscription, self._catalog)
        self._count(self._filters[handle].pairs, 1)
        return handle

    def remove(self, handle: int) -> None:
        """Remove a subscription by its handle; pairs that others need stay. SubscriptionError if it is unknown."""
        if handle not in self._filters:
            raise SubscriptionError(f"no subscription has the handle {handle}; was it removed already?")
        self._count(self._filters.pop(handle).pairs, -1)

    def take(self) -> tuple[Pair, ...] | None:
        """Return the pairs to program into the controller, once after every change; None if there was no change."""
        if self.pairs == self._taken:
            return None
        self._taken = self.pairs
        return self._taken

    def refresh(self) -> None:
        """Compile all subscriptions again, after types were registered in the catalog."""
        self._filters = {handle: compile(old.subscription, self._catalog) for handle, old in self._filters.items()}
        self._users = Counter([*self._always, *(pair for each in self._filters.values() for pair in each.pairs)])
        self._pairs = None

    def _count(self, pairs: Iterable[Pair], step: int) -> None:
        before = set(self._users)
        for pair in pairs:
            self._users[pair] += step
        self._users += Counter()
        if self._users.keys() != before:
            self._pairs = None

    def _fit(self) -> tuple[Pair, ...]:
        needed = condense(self._users)
        if self._banks is None or len(needed) <= self._banks:
            return needed
        return fit_bank((), self._catalog, banks=self._banks, traffic=self._traffic, always=self._users).pairs
