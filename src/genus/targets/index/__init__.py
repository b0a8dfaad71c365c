"""The index for very many subscriptions: which of a million match an event, exactly, in less than a millisecond.

Where a compiled matcher tests subscriptions one after the other, the index turns the question round. Conjuncts that
compare an attribute with constants become intervals of integers (`intervals`); per attribute, bucket bitmaps say which
intervals a value cannot be in (`bitmaps`); the few subscriptions that no bitmap rejects are compared exactly
(`partition`). What is no interval, such as `or`, arithmetic or a test of text, is evaluated last, for these few only.

Each family has a partition of its own, for an attribute name has one type within its family; `Event` and kinds share
one more. An event is looked up in its family's partition and in that one.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from genus._extras import missing_extra

try:
    import numpy as np
    import numpy.typing as npt
except ImportError as missing:
    raise missing_extra("the subscription index needs numpy", "index") from missing

from genus.errors import SubscriptionError
from genus.filters import Subscription, this
from genus.filters._expression import And, Predicate
from genus.model import Event, FloatType, pure_kind, vector
from genus.targets.index._bitmaps import float_keys
from genus.targets.index._decompose import Profile
from genus.targets.index._interval_table import Column, Numbers
from genus.targets.index._intervals import Floats, Interval, key_float
from genus.targets.index._partition import BATCH, Partition

Handles: TypeAlias = npt.NDArray[np.int64]
Bounds: TypeAlias = npt.NDArray[np.float64]


class SubscriptionIndex:
    """Subscriptions by handle, and the handles of those that match an event.

    A handle is a small number, free again once its subscription is removed, so that it can serve as a place in a list.
    Adding and removing take effect at once. An index is to be used by one thread at a time.

    >>> from genus import Event, Subscription, this
    >>> class Car(Event):
    ...     speed: float
    >>> index = SubscriptionIndex()
    >>> [index.add(Subscription(Car, where=this.speed > limit)) for limit in (30, 50, 80)]
    [0, 1, 2]
    >>> index.match(Car(speed=60.0)).tolist()
    [0, 1]
    >>> index.remove(0)
    >>> index.match(Car(speed=60.0)).tolist(), len(index)
    ([1], 2)
    """

    def __init__(self, subscriptions: Iterable[Subscription] = ()) -> None:
        self._partitions: dict[object, Partition] = {}
        self._owners: list[Partition | None] = []
        self._subscriptions: list[Subscription | type | None] = []
        self._slots = Column(np.int64)
        self._free: list[int] = []
        self.add_all(subscriptions)

    def __len__(self) -> int:
        return sum(map(len, self._partitions.values()))

    def __iter__(self) -> Iterator[int]:
        return (handle for handle, owner in enumerate(self._owners) if owner is not None)

    def add(self, subscription: Subscription) -> int:
        """Add a subscription, and get its handle."""
        partition = self._partition(_asked(subscription))
        handle = self._new_handle(subscription, partition)
        partition.add(handle, subscription)
        return handle

    def add_all(self, subscriptions: Iterable[Subscription]) -> list[int]:
        """Add many subscriptions, and get their handles in the same order; buckets are chosen once, for all of them.

        >>> from genus import Event, Subscription
        >>> index = SubscriptionIndex()
        >>> index.add_all([Subscription(Event, has="place"), Subscription(Event, lacks="place")])
        [0, 1]
        """
        handles = []
        for subscription in subscriptions:
            partition = self._partition(_asked(subscription))
            handles.append(self._new_handle(subscription, partition))
            partition.stage(handles[-1], subscription)
        for partition in self._partitions.values():
            partition.settle()
        return handles

    def add_ranges(self, type: type, attributes: Sequence[str], low: Bounds, high: Bounds) -> Handles:
        """Add subscriptions that are given by arrays: row i wants `low[i, a] <= attribute a <= high[i, a]`, for all a.

        For subscriptions that are generated, and too many to be made one by one. NaN stands for no bound; where both
        bounds are NaN the attribute is not tested at all. The attributes must be floats.

        >>> import numpy as np
        >>> from genus import Event
        >>> class Spot(Event):
        ...     x: float
        ...     y: float
        >>> index = SubscriptionIndex()
        >>> low, high = np.array([[0.0, 0.0], [0.5, np.nan]]), np.array([[1.0, 0.5], [np.nan, np.nan]])
        >>> handles = index.add_ranges(Spot, ["x", "y"], low, high)
        >>> index.match(Spot(x=0.7, y=0.7)).tolist(), str(index.subscription(1))
        ([1], 'Spot where x >= 0.5')
        """
        partition = self._partition(type)
        numbers = np.array([self._float_dimension(type, partition, name) for name in attributes], np.uint16)
        profile = partition.anatomy.number(Profile((type,), False, frozenset(), frozenset()))
        low, high = np.asarray(low, np.float64), np.asarray(high, np.float64)
        if low.shape != high.shape or low.shape != (len(low), len(attributes)):
            raise SubscriptionError(
                f"bounds must have one row per subscription and {len(attributes)} columns, one per attribute; "
                f"low has shape {low.shape} and high {high.shape}"
            )
        partition.reserve(((low == low) | (high == high)).sum(axis=1))
        handles = np.array([self._new_handle(type, partition) for _ in range(len(low))], np.int64)
        for start in range(0, len(low), BATCH):
            rows = slice(start, start + BATCH)
            self._append_ranges(partition, handles[rows], profile, numbers, low[rows], high[rows])
        partition.settle()
        return handles

    def _float_dimension(self, type: type, partition: Partition, name: str) -> int:
        attribute = vector(type).find(name)
        if not isinstance(attribute.type, FloatType):
            raise SubscriptionError(f"{attribute} is not a float; add_ranges takes bounds of floats only")
        return partition.anatomy.dimension(name, attribute.type).number

    def _append_ranges(
        self, partition: Partition, handles: Handles, profile: int, numbers: Numbers, low: Bounds, high: Bounds
    ) -> None:  # fmt: skip
        bounded_below, bounded_above = low == low, high == high
        tested = bounded_below | bounded_above
        low_keys = np.where(bounded_below, float_keys(low), Floats.low)[tested]
        high_keys = np.where(bounded_above, float_keys(high), Floats.high)[tested]
        which = np.broadcast_to(numbers, tested.shape)[tested]
        partition.append_columns(handles, profile, tested.sum(axis=1), which, low_keys, high_keys)

    def remove(self, handle: int) -> None:
        """Remove a subscription; from now on it matches nothing, and its handle may be given to another."""
        partition = self._owner(handle)
        self._owners[handle] = self._subscriptions[handle] = None
        partition.remove(handle)
        self._free.append(handle)

    def match(self, event: Event) -> Handles:
        """The handles of the subscriptions that match an event, ascending."""
        found = [self._match_in(partition, event) for partition in self._partitions_for(type(event))]
        handles = found[0] if len(found) == 1 else np.concatenate([np.empty(0, np.int64), *found])
        handles.sort()
        return handles

    def _match_in(self, partition: Partition, event: Event) -> Handles:
        slots, proved = partition.match(event)
        handles = partition.handles_of(slots)
        if proved:
            return handles
        matching = [handle for handle in handles.tolist() if self.subscription(handle).matches(event)]
        return np.array(matching, np.int64)

    def count(self, event: Event) -> int:
        """How many subscriptions match an event."""
        return len(self.match(event))

    def subscription(self, handle: int) -> Subscription:
        """The subscription of a handle; one that came by `add_ranges` is written out."""
        partition = self._owner(handle)
        known = self._subscriptions[handle]
        if isinstance(known, Subscription):
            return known
        assert isinstance(known, type)
        tests = partition.intervals_of(handle)
        where = tuple(test for name, interval in tests.items() for test in _range_tests(name, interval))
        return Subscription(known, where=And(where) if where else None)

    def compact(self) -> None:
        """Give back the memory of removed subscriptions and choose the buckets anew; happens by itself in time."""
        for partition in self._partitions.values():
            partition.lay_out(tight=True)

    @property
    def nbytes(self) -> int:
        """The memory of all arrays; subscriptions themselves, and texts they name, are not counted."""
        own = self._slots.nbytes + 8 * (len(self._owners) + len(self._subscriptions))
        return own + sum(sum(partition.nbytes.values()) for partition in self._partitions.values())

    def explain(self) -> str:
        """What is indexed how, and what it takes.

        >>> from genus import Event, Subscription, this
        >>> class Lorry(Event):
        ...     axles: int
        >>> index = SubscriptionIndex([Subscription(Lorry, where=(this.axles > n) | (this.axles == 2)) for n in (3, 4)])
        >>> print(index.explain())  # doctest: +ELLIPSIS
        2 subscriptions, ... MB
        Lorry: 2 subscriptions, 0 of them painted, 0 removed, 1 profiles, 2 with a residual
          ...
        """
        lines = [f"{len(self)} subscriptions, {self.nbytes / 1e6:.1f} MB"]
        for partition in self._partitions.values():
            lines += partition.explain()
        return "\n".join(lines)

    def _partition(self, type: type) -> Partition:
        family = _family(type)
        if family not in self._partitions:
            self._partitions[family] = Partition(vector(type).scope, self._slots)
        return self._partitions[family]

    def _partitions_for(self, cls: type) -> list[Partition]:
        families = dict.fromkeys((_family(cls), None))
        return [self._partitions[family] for family in families if family in self._partitions]

    def _owner(self, handle: int) -> Partition:
        owner = self._owners[handle] if 0 <= handle < len(self._owners) else None
        if owner is None:
            raise KeyError(f"no subscription has the handle {handle}")
        return owner

    def _new_handle(self, subscription: Subscription | type, partition: Partition) -> int:
        """One that was freed, or else a new one."""
        if not self._free:
            self._subscriptions.append(subscription)
            self._owners.append(partition)
            return len(self._owners) - 1
        handle = self._free.pop()
        self._subscriptions[handle], self._owners[handle] = subscription, partition
        return handle


def _asked(subscription: Subscription) -> type:
    """The type that decides where a subscription is looked up: an exact one to a pure class is to its kind."""
    return (pure_kind(subscription.type) if subscription.exact else None) or subscription.type


def _family(type: type) -> object:
    return getattr(type, "__genus_family__", None)


def _range_tests(name: str, interval: Interval) -> list[Predicate]:
    low, high = interval
    above = [this[name] >= key_float(low)] if low > Floats.low or high == Floats.high else []
    return above + ([this[name] <= key_float(high)] if high < Floats.high else [])
