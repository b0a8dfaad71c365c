"""Fitting the filters of a whole node into the few that a controller has.

Pairs are joined, two at a time, until they are few enough; every join may let in events that nobody asked for. Of all
joins those with the least expected traffic in vain are followed, several alternatives side by side (beam search), as
the join that is cheapest now may leave only dear ones. On small cases that finds the optimum, which tests compare by
trying all partitions (tests/targets/test_can_banks.py).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from heapq import nsmallest
from itertools import combinations, count, pairwise
from typing import NamedTuple

import msgspec

from genus.catalog import Catalog
from genus.errors import SubscriptionError
from genus.filters._subscription import Subscription
from genus.targets.can._compiler import CanFilter, compile
from genus.targets.can._masks import Census, Pair, TagSet, Traffic, Weight, condensed, uncovered

BEAM = 16
"""Alternatives followed side by side, as long as there are not too many joins to try."""

EFFORT = 100_000
"""Joins that are tried at most, roughly, before fewer alternatives are followed."""

MANY = 64
"""With more pairs than this, only neighbours are joined at first."""


class Bank(msgspec.Struct, frozen=True):
    """The filters of a node, few enough for its controller; made by `bank`.

    `needed` are those that would accept nothing in vain. `false_accepts` is the share of all traffic that passes
    although no filter asked for it, and `false_rate` the same in the unit that traffic was given in. `strangers` are
    the types of that traffic.
    """

    pairs: tuple[Pair, ...]
    needed: tuple[Pair, ...]
    false_accepts: float
    false_rate: float | None = None
    strangers: tuple[str, ...] = ()

    def accepts(self, identifier: int) -> bool:
        """Whether a frame with this identifier passes."""
        return any(pair.accepts(identifier) for pair in self.pairs)

    def explain(self) -> str:
        """The pairs, and what they cost."""
        lines = [f"bank: {len(self.needed)} pairs fitted into {len(self.pairs)}", *(f"  {p}" for p in self.pairs)]
        rate = "" if self.false_rate is None else f", {self.false_rate:g} of the rate given"
        lines.append(f"  accepted in vain: {self.false_accepts:.1%} of all traffic{rate}")
        more = f" and {len(self.strangers) - 8} more" if len(self.strangers) > 8 else ""
        lines += [f"  from: {', '.join(self.strangers[:8])}{more}"] if self.strangers else []
        return "\n".join(lines)


def bank(
    filters: Iterable[CanFilter | Subscription],
    catalog: Catalog,
    *,
    banks: int,
    traffic: Traffic | None = None,
    always: Iterable[tuple[int, int]] = (),
) -> Bank:
    """At most so many pairs that accept all that these filters do, and as little else as can be expected.

    What is expected follows `traffic`; what that does not tell of, and all without it, is judged by the registered
    types, each as likely as any other. `always` are pairs that a node needs besides, as for the protocol.

    >>> from genus import Event, Subscription
    >>> from genus.catalog import Catalog
    >>> class Door(Event): ...
    >>> class Lamp(Event): ...
    >>> class Bell(Event): ...
    >>> catalog = Catalog()
    >>> added = catalog.register(Door, Lamp, Bell)
    >>> print(bank(map(Subscription, (Bell, Lamp)), catalog, banks=1, traffic={"Lamp": 150, "Door": 50}).explain())
    bank: 2 pairs fitted into 1
      0x2000/0x3fc0  10000000------
      accepted in vain: 25.0% of all traffic, 50 of the rate given
      from: Event, Door
    """
    check_banks(banks)
    compiled = [compile(each, catalog) if isinstance(each, Subscription) else each for each in filters]
    needed = condensed([*(pair for each in compiled for pair in each.pairs), *(Pair(*pair) for pair in always)])
    census = Census(catalog, traffic)
    pairs = fitted(needed, banks, census)
    vain = _accepted(pairs, census) & ~_accepted(needed, census)
    weight, total = census.weight(vain), census.weight(census.everything)
    strangers = dict.fromkeys(catalog.type_of(tag) or f"tag {tag}" for tag in census.tags_of(vain))
    if traffic is None:
        return Bank(pairs, needed, weight.types / total.types, None, tuple(strangers))
    return Bank(pairs, needed, weight.rate / (total.rate or 1), weight.rate, tuple(strangers))


def check_banks(banks: int) -> None:
    """Refuse a controller without filters."""
    if banks < 1:
        raise SubscriptionError(f"banks is {banks}; a controller has at least one filter")


class _State(NamedTuple):
    """A way to accept all that is needed, and the tags it accepts."""

    pairs: tuple[Pair, ...]
    accepted: TagSet


class _Step(NamedTuple):
    """A join, by what it and all before it cost; of those that cost the same the narrowest goes first."""

    cost: Weight
    width: int
    pair: Pair
    before: _State

    def after(self) -> tuple[Pair, ...]:
        return tuple(sorted([self.pair, *(pair for pair in self.before.pairs if not self.pair.covers(pair))]))


def fitted(needed: Iterable[Pair], banks: int, census: Census) -> tuple[Pair, ...]:
    """The pairs joined until there are so many at most."""
    pairs = uncovered(needed)
    states = [_State(pairs, _accepted(pairs, census))]
    wanted = states[0].accepted
    width = max(1, min(BEAM, 6 * EFFORT // (len(pairs) ** 3 + 1)))
    done: list[tuple[Weight, tuple[Pair, ...]]] = []
    while states:
        done += [(census.weight(s.accepted & ~wanted), s.pairs) for s in states if len(s.pairs) <= banks]
        steps = [step for state in states if len(state.pairs) > banks for step in _steps(state, wanted, census)]
        chosen = {step.after(): step for step in nsmallest(4 * width, steps, key=lambda step: step[:3])}
        following = list(chosen.items())[:width]
        states = [_State(after, s.before.accepted | census.accepted(s.pair)) for after, s in following]
    return min(done)[1]


def _steps(state: _State, wanted: TagSet, census: Census) -> Iterator[_Step]:
    for one, other in _candidates(state.pairs):
        pair = one.joined(other)
        vain = (state.accepted | census.accepted(pair)) & ~wanted
        yield _Step(census.weight(vain), -pair.mask.bit_count(), pair, state)


def _candidates(pairs: Sequence[Pair]) -> Iterable[tuple[Pair, Pair]]:
    return combinations(pairs, 2) if len(pairs) <= MANY else pairwise(pairs)


def _accepted(pairs: Iterable[Pair], census: Census) -> TagSet:
    found = 0
    for pair in pairs:
        found |= census.accepted(pair)
    return found


# Filters shared by the consumers of one controller, who come and go.


class SharedFilters:
    """The filters of all subscriptions on one controller, each pair kept while somebody needs it.

    `take` gives the pairs when they have changed since it was last asked, so that a controller is programmed only when
    it must be. To be used by one thread at a time.

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
        """The filters as they should be now: at most as many as there are banks, if that was said."""
        if self._pairs is None:
            self._pairs = self._fitted()
        return self._pairs

    def add(self, subscription: Subscription) -> int:
        """Accept what a subscription asks for, and get the handle by which to remove it."""
        handle = next(self._numbers)
        self._filters[handle] = compile(subscription, self._catalog)
        self._count(self._filters[handle].pairs, 1)
        return handle

    def remove(self, handle: int) -> None:
        """Accept it no longer, unless others need the same."""
        if handle not in self._filters:
            raise SubscriptionError(f"no subscription has the handle {handle} here; was it removed already?")
        self._count(self._filters.pop(handle).pairs, -1)

    def take(self) -> tuple[Pair, ...] | None:
        """The pairs to program into the controller, once for every change; None if there was none."""
        if self.pairs == self._taken:
            return None
        self._taken = self.pairs
        return self._taken

    def refresh(self) -> None:
        """Compile all anew, after types were registered."""
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

    def _fitted(self) -> tuple[Pair, ...]:
        needed = condensed(self._users)
        if self._banks is None or len(needed) <= self._banks:
            return needed
        return bank((), self._catalog, banks=self._banks, traffic=self._traffic, always=self._users).pairs
