"""The index target: which of very many subscriptions match an event; of a million, in less than a millisecond.

A compiled filter tests one subscription; the index finds those that match among all. Conjuncts that compare an
attribute with constants become intervals of integers (`_intervals`). Per attribute, bucket bitmaps reject the
subscriptions whose interval cannot contain the event's value (`_bitmaps`); the few that no bitmap rejects are compared
exactly (`_family_index`). What is not an interval, such as `or`, arithmetic or a text test, is evaluated last, for
these few only.

Each family has an index of its own, as an attribute name has one type within a family; `Event` and kinds share one
more. An event is looked up in its family's index and in that one.
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
from genus.model import Event, FloatType, name_of, pure_kind, vector
from genus.targets.index._bitmaps import float_keys
from genus.targets.index._decompose import Profile
from genus.targets.index._family_index import BATCH, FamilyIndex
from genus.targets.index._interval_tables import GrowingArray, Numbers
from genus.targets.index._intervals import Floats, Interval, key_float

__all__ = ["SubscriptionIndex", "compile"]

Handles: TypeAlias = npt.NDArray[np.int64]
Bounds: TypeAlias = npt.NDArray[np.float64]


def compile(subscriptions: Iterable[Subscription]) -> "SubscriptionIndex":
    """Compile many subscriptions to an index; other than in most targets, the argument is not one subscription.

    >>> from genus import Event, Subscription
    >>> class Tram(Event):
    ...     line: int
    >>> compile([Subscription(Tram, where="line == 4"), Subscription(Tram)]).match(Tram(line=9)).tolist()
    [1]
    """
    return SubscriptionIndex(subscriptions)


class SubscriptionIndex:
    """Subscriptions by handle, and the handles of those that match an event.

    A handle is a small number, used again when its subscription was removed, so that it can be a position in a list.
    Adding and removing take effect at once. To be used by one thread at a time.

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
        self._families: dict[object, FamilyIndex] = {}
        self._owners: list[FamilyIndex | None] = []
        self._subscriptions: list[Subscription | type | None] = []
        self._slots = GrowingArray(np.int64)
        self._free: list[int] = []
        self.add_all(subscriptions)

    def __len__(self) -> int:
        return sum(map(len, self._families.values()))

    def __iter__(self) -> Iterator[int]:
        return (handle for handle, owner in enumerate(self._owners) if owner is not None)

    def add(self, subscription: Subscription) -> int:
        """Add a subscription and return its handle."""
        family = self._family_index(_lookup_type(subscription))
        handle = self._new_handle(subscription, family)
        family.add(handle, subscription)
        return handle

    def add_all(self, subscriptions: Iterable[Subscription]) -> list[int]:
        """Add many subscriptions and return their handles in the same order; faster than one by one.

        >>> from genus import Event, Subscription
        >>> index = SubscriptionIndex()
        >>> index.add_all([Subscription(Event, has="place"), Subscription(Event, lacks="place")])
        [0, 1]
        """
        handles = []
        for subscription in subscriptions:
            family = self._family_index(_lookup_type(subscription))
            handles.append(self._new_handle(subscription, family))
            family.stage(handles[-1], subscription)
        for family in self._families.values():
            family.update_bitmaps()
        return handles

    def add_ranges(self, type: type, attributes: Sequence[str], low: Bounds, high: Bounds) -> Handles:
        """Add subscriptions that are given by arrays: row i wants `low[i, a] <= attribute a <= high[i, a]`, for all a.

        For generated subscriptions that are too many to create one by one. NaN means no bound; where both bounds are
        NaN the attribute is not tested. Raises SubscriptionError if an attribute is not a float, or the arrays do not
        have one row per subscription and one column per attribute.

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
        family = self._family_index(type)
        numbers = np.array([self._float_dimension(type, family, name) for name in attributes], np.uint16)
        profile = family.decomposition.number(Profile((type,), False, frozenset(), frozenset()))
        low, high = np.asarray(low, np.float64), np.asarray(high, np.float64)
        if low.shape != high.shape or low.shape != (len(low), len(attributes)):
            raise SubscriptionError(
                f"bounds must have one row per subscription and {len(attributes)} columns, one per attribute; "
                f"low has shape {low.shape} and high {high.shape}"
            )
        family.reserve(((low == low) | (high == high)).sum(axis=1))
        handles = np.array([self._new_handle(type, family) for _ in range(len(low))], np.int64)
        for start in range(0, len(low), BATCH):
            rows = slice(start, start + BATCH)
            self._append_ranges(family, handles[rows], profile, numbers, low[rows], high[rows])
        family.update_bitmaps()
        return handles

    def _float_dimension(self, type: type, family: FamilyIndex, name: str) -> int:
        attribute = vector(type).find(name)
        if not isinstance(attribute.type, FloatType):
            raise SubscriptionError(f"{attribute} is not a float; add_ranges takes bounds of floats only")
        return family.decomposition.dimension(name, attribute.type).number

    def _append_ranges(
        self, family: FamilyIndex, handles: Handles, profile: int, numbers: Numbers, low: Bounds, high: Bounds
    ) -> None:  # fmt: skip
        bounded_below, bounded_above = low == low, high == high
        tested = bounded_below | bounded_above
        low_keys = np.where(bounded_below, float_keys(low), Floats.low)[tested]
        high_keys = np.where(bounded_above, float_keys(high), Floats.high)[tested]
        which = np.broadcast_to(numbers, tested.shape)[tested]
        family.append_columns(handles, profile, tested.sum(axis=1), which, low_keys, high_keys)

    def remove(self, handle: int) -> None:
        """Remove a subscription; its handle may be used again for another. KeyError if the handle is unknown."""
        family = self._owner(handle)
        self._owners[handle] = self._subscriptions[handle] = None
        family.remove(handle)
        self._free.append(handle)

    def match(self, event: Event) -> Handles:
        """The handles of the subscriptions that match an event, ascending.

        Raises EventError if a value that is tested does not have its declared type.
        """
        found = [self._match_in(family, event) for family in self._families_for(type(event))]
        handles = found[0] if len(found) == 1 else np.concatenate([np.empty(0, np.int64), *found])
        handles.sort()
        return handles

    def _match_in(self, family: FamilyIndex, event: Event) -> Handles:
        slots, verified = family.match(event)
        handles = family.handles_of(slots)
        if verified:
            return handles
        matching = [handle for handle in handles.tolist() if self.subscription(handle).matches(event)]
        return np.array(matching, np.int64)

    def count(self, event: Event) -> int:
        """The number of subscriptions that match an event."""
        return len(self.match(event))

    def subscription(self, handle: int) -> Subscription:
        """The subscription of a handle; one of `add_ranges` is created. KeyError if the handle is unknown."""
        family = self._owner(handle)
        known = self._subscriptions[handle]
        if isinstance(known, Subscription):
            return known
        assert isinstance(known, type)
        tests = family.intervals_of(handle)
        where = tuple(test for name, interval in tests.items() for test in _range_tests(name, interval))
        return Subscription(known, where=And(where) if where else None)

    def compact(self) -> None:
        """Free the memory of removed subscriptions and choose the buckets again; the index also does so by itself."""
        for family in self._families.values():
            family.rebuild(tight=True)

    @property
    def nbytes(self) -> int:
        """The bytes of all arrays, without the subscriptions themselves and their texts."""
        own = self._slots.nbytes + 8 * (len(self._owners) + len(self._subscriptions))
        return own + sum(sum(family.nbytes.values()) for family in self._families.values())

    def explain(self, handle: int | None = None) -> str:
        """What the index holds, and its memory, as text; with a handle, how that subscription is found.

        >>> from genus import Event, Subscription, this
        >>> class Lorry(Event):
        ...     axles: int
        >>> index = SubscriptionIndex([Subscription(Lorry, where=(this.axles > n) | (this.axles == 2)) for n in (3, 4)])
        >>> print(index.explain())  # doctest: +ELLIPSIS
        index: 2 subscriptions, ... MB
          Lorry: 2 subscriptions, 0 in bitmaps and 2 compared one by one
            1 combination of type and attributes, 2 subscriptions with a part that is evaluated
            ...
        >>> print(index.explain(0))
        index: Lorry where axles > 3 or axles == 2
          type: Lorry and its subtypes, decided once for each class and set of attributes
          attributes: any
          contents: axles > 3 or axles == 2, evaluated if all else matches
        """
        if handle is not None:
            return "\n".join([f"index: {self.subscription(handle)}", *self._explain_one(handle)])
        lines = [f"index: {len(self)} subscriptions, {self.nbytes / 1e6:.1f} MB"]
        for family in self._families.values():
            lines += family.explain()
        return "\n".join(lines)

    def _explain_one(self, handle: int) -> Iterator[str]:
        asked = self.subscription(handle)
        names = " and ".join(map(name_of, asked.types)) + ("" if asked.exact else " and its subtypes")
        yield f"  type: {names}, decided once for each class and set of attributes"
        present, looked_up, evaluated = self._owner(handle).decomposition.classify(asked)
        yield f"  attributes: {', '.join(present) or 'any'}"
        contents = [f"{' and '.join(looked_up)}, looked up by value"] if looked_up else []
        contents += [f"{' and '.join(evaluated)}, evaluated if all else matches"] if evaluated else []
        yield f"  contents: {'; '.join(contents) or 'any'}"

    def _family_index(self, type: type) -> FamilyIndex:
        key = _family_key(type)
        if key not in self._families:
            self._families[key] = FamilyIndex(vector(type).scope, self._slots)
        return self._families[key]

    def _families_for(self, cls: type) -> list[FamilyIndex]:
        keys = dict.fromkeys((_family_key(cls), None))
        return [self._families[key] for key in keys if key in self._families]

    def _owner(self, handle: int) -> FamilyIndex:
        owner = self._owners[handle] if 0 <= handle < len(self._owners) else None
        if owner is None:
            raise KeyError(f"no subscription has the handle {handle}")
        return owner

    def _new_handle(self, subscription: Subscription | type, family: FamilyIndex) -> int:
        """A handle that was freed, or else a new one."""
        if not self._free:
            self._subscriptions.append(subscription)
            self._owners.append(family)
            return len(self._owners) - 1
        handle = self._free.pop()
        self._subscriptions[handle], self._owners[handle] = subscription, family
        return handle


def _lookup_type(subscription: Subscription) -> type:
    """The type whose family has the subscription: for an exact one to a pure class, its kind."""
    return (pure_kind(subscription.type) if subscription.exact else None) or subscription.type


def _family_key(type: type) -> object:
    return getattr(type, "__genus_family__", None)


def _range_tests(name: str, interval: Interval) -> list[Predicate]:
    low, high = interval
    above = [this[name] >= key_float(low)] if low > Floats.low or high == Floats.high else []
    return above + ([this[name] <= key_float(high)] if high < Floats.high else [])
