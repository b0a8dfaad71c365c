"""Filters shared by the consumers of one controller, who come and go."""

from collections import Counter
from collections.abc import Iterable
from itertools import count

from genus.catalog import Catalog
from genus.errors import SubscriptionError
from genus.filters.subscription import Subscription
from genus.targets.can.banks import bank, check_banks
from genus.targets.can.census import Traffic
from genus.targets.can.compiler import CanFilter, compile
from genus.targets.can.pairs import Pair, condensed


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
