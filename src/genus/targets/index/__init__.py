"""The index target: which of very many subscriptions match an event.

A compiled filter tests one subscription; the index finds those that match among all. Each subscription is stored where
the cheapest of its tests finds it: in a hash table by value or by part of a text, in bitmaps over the intervals of all
attributes, or among those of the same form, which are tested at once. `_family_index` has the details. The bus uses the
same index for classes with many subscriptions.

Each family has an index of its own, as an attribute name has one type within a family; `Event` and kinds share one
more. An event is looked up in its family's index and in that one.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

from genus._extras import missing_extra

try:
    import numpy as np
    import numpy.typing as npt
except ImportError as missing:
    raise missing_extra("the subscription index needs numpy", "index") from missing

from genus.errors import SubscriptionError
from genus.filters import Subscription, this
from genus.filters.internal import WRONG_VALUE, raise_event_error, rebuild
from genus.filters.types import And, Predicate
from genus.model import Event, name_of, pure_kind, vector
from genus.model.types import FloatType
from genus.targets._decompose import Profile
from genus.targets._intervals import Floats, Interval, key_float
from genus.targets.index._columns import float_keys
from genus.targets.index._family_index import BucketLocation, FamilyIndex, Location
from genus.targets.index._forms import Misfit
from genus.targets.index._segments import Handles

__all__ = ["SubscriptionIndex", "compile"]

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
        self._families = Families()
        self._locations: list[tuple[FamilyIndex, Location] | None] = []
        self._subscriptions: list[Subscription | type | None] = []
        self._free: list[int] = []
        self.add_all(subscriptions)

    def __len__(self) -> int:
        return len(self._locations) - len(self._free)

    def __iter__(self) -> Iterator[int]:
        return (handle for handle, location in enumerate(self._locations) if location is not None)

    def add(self, subscription: Subscription) -> int:
        """Add a subscription and return its handle."""
        handle = self._new_handle(subscription)
        self._locations[handle] = self._families.add(handle, subscription)
        return handle

    def add_all(self, subscriptions: Iterable[Subscription]) -> list[int]:
        """Add many subscriptions and return their handles in the same order.

        >>> from genus import Event, Subscription
        >>> index = SubscriptionIndex()
        >>> index.add_all([Subscription(Event, has="place"), Subscription(Event, lacks="place")])
        [0, 1]
        """
        return [self.add(subscription) for subscription in subscriptions]

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
        types = [_float_type(type, name) for name in attributes]
        low, high = np.asarray(low, np.float64), np.asarray(high, np.float64)
        if low.shape != high.shape or low.shape != (len(low), len(attributes)):
            raise SubscriptionError(
                f"bounds must have one row per subscription and {len(attributes)} columns, one per attribute; "
                f"low has shape {low.shape} and high {high.shape}"
            )
        family = self._families.of_type(type)
        handles = np.array([self._new_handle(type) for _ in range(len(low))], np.int64)
        bounded_below, bounded_above = low == low, high == high
        tested = bounded_below | bounded_above
        low_keys = np.where(bounded_below, float_keys(low), Floats.low)[tested]
        high_keys = np.where(bounded_above, float_keys(high), Floats.high)[tested]
        which = np.broadcast_to(np.arange(len(attributes), dtype=np.uint16), tested.shape)[tested]
        profile = Profile((type,), False, frozenset(), frozenset())
        lengths = tested.sum(axis=1)
        locations = family.add_intervals(handles, profile, list(attributes), types, lengths, which, low_keys, high_keys)
        for handle, location in zip(handles.tolist(), locations, strict=True):
            self._locations[handle] = (family, location)
        return handles

    def remove(self, handle: int) -> None:
        """Remove a subscription; its handle may be used again for another. KeyError if the handle is unknown."""
        family, location = self._location(handle)
        self._locations[handle] = self._subscriptions[handle] = None
        family.remove(location)
        self._free.append(handle)

    def match(self, event: Event) -> Handles:
        """Return the handles of the subscriptions that match an event, ascending.

        Raises EventError if a value that is tested does not have its declared type.
        """
        handles = self._families.match(event, self.subscription)
        handles.sort()
        return handles

    def count(self, event: Event) -> int:
        """Return the number of subscriptions that match an event."""
        return len(self.match(event))

    def subscription(self, handle: int) -> Subscription:
        """Return the subscription of a handle; one of `add_ranges` is created. KeyError if the handle is unknown."""
        family, location = self._location(handle)
        known = self._subscriptions[handle]
        if isinstance(known, Subscription):
            return known
        assert isinstance(known, type)
        assert not isinstance(location, BucketLocation)
        tests = family.intervals_at(location)
        where = tuple(test for name, interval in tests.items() for test in _range_tests(name, interval))
        return rebuild(known, where=And(where) if where else None)

    def compact(self) -> None:
        """Free the memory of removed subscriptions and choose the buckets of the bitmaps again."""
        for family in self._families:
            for handle, location in family.compact().items():
                self._locations[handle] = (family, location)

    @property
    def nbytes(self) -> int:
        """The bytes of all arrays, without the subscriptions themselves and their texts."""
        own = 8 * (len(self._locations) + len(self._subscriptions))
        return own + sum(sum(family.nbytes.values()) for family in self._families)

    def explain(self, handle: int | None = None) -> str:
        """Return what the index holds, and its memory, as text; with a handle, how that subscription is found.

        >>> from genus import Event, Subscription, this
        >>> class Lorry(Event):
        ...     axles: int
        >>> index = SubscriptionIndex([Subscription(Lorry, where=(this.axles > n) | (this.axles == 2)) for n in (3, 4)])
        >>> print(index.explain())
        index: 2 subscriptions
          Lorry: 2 subscriptions: 0 by equality or part of a text, 0 by intervals, 2 by form
            1 combination of type and attributes, 1 form of predicates
        >>> print(index.explain(0))
        index: Lorry where axles > 3 or axles == 2
          type: Lorry and its subtypes, decided once for each class and set of attributes
          attributes: any
          contents: axles > 3 or axles == 2, tested together with those of the same form
        """
        if handle is not None:
            return "\n".join([f"index: {self.subscription(handle)}", *self._explain_one(handle)])
        lines = [f"index: {len(self)} subscriptions"]
        for family in self._families:
            lines += family.explain()
        return "\n".join(lines)

    def _explain_one(self, handle: int) -> Iterator[str]:
        family, _ = self._location(handle)
        asked = self.subscription(handle)
        names = " and ".join(map(name_of, asked.types)) + ("" if asked.exact else " and its subtypes")
        yield f"  type: {names}, decided once for each class and set of attributes"
        present, looked_up, tested = family.classify(asked)
        yield f"  attributes: {', '.join(present) or 'any'}"
        contents = [f"{looked_up}, looked up by value"] if looked_up else []
        contents += [f"{tested}, tested together with those of the same form"] if tested else []
        yield f"  contents: {'; '.join(contents) or 'any'}"

    def _location(self, handle: int) -> tuple[FamilyIndex, Location]:
        location = self._locations[handle] if 0 <= handle < len(self._locations) else None
        if location is None:
            raise KeyError(f"no subscription has the handle {handle}")
        return location

    def _new_handle(self, subscription: Subscription | type) -> int:
        """A handle that was freed, or else a new one."""
        if not self._free:
            self._subscriptions.append(subscription)
            self._locations.append(None)
            return len(self._locations) - 1
        handle = self._free.pop()
        self._subscriptions[handle] = subscription
        return handle


class Families:
    """State: the index of each family, and of `Event` and kinds together."""

    def __init__(self) -> None:
        self._families: dict[object, FamilyIndex] = {}

    def __iter__(self) -> Iterator[FamilyIndex]:
        return iter(self._families.values())

    def add(self, handle: int, subscription: Subscription) -> tuple[FamilyIndex, Location]:
        """Add a subscription; returns the index it is in and its location there, to remove it."""
        family = self.of_type(_lookup_type(subscription))
        return family, family.add(handle, subscription)

    def of_type(self, type: type) -> FamilyIndex:
        """Return the index of a type's family, made if it is new."""
        key = _family_key(type)
        if key not in self._families:
            self._families[key] = FamilyIndex(vector(type).scope, is_shared=key is None)
        return self._families[key]

    def match(self, event: Event, subscription: Callable[[int], Subscription]) -> Handles:
        """Return the handles of the subscriptions that match; `subscription` gives that of a handle.

        Raises EventError if a value that is tested does not have its declared type.
        """
        key = _family_key(type(event))
        names = (key, None) if key is not None else (None,)
        families = [self._families[name] for name in names if name in self._families]
        try:
            return np.concatenate([_NONE, *(family.match(event).handles() for family in families)])
        except Misfit:
            matching = [handle for family in families for handle in family if subscription(handle).matches(event)]
            return np.array(matching, np.int64)
        except WRONG_VALUE as problem:
            raise_event_error(event, problem)


_NONE: Handles = np.empty(0, np.int64)


def _lookup_type(subscription: Subscription) -> type:
    """Return the type whose family has the subscription: for an exact one to a pure class, its kind."""
    return (pure_kind(subscription.type) if subscription.exact else None) or subscription.type


def _family_key(type: type) -> object:
    return getattr(type, "__genus_family__", None)


def _float_type(type: type, name: str) -> FloatType:
    attribute = vector(type).find(name)
    if not isinstance(attribute.type, FloatType):
        raise SubscriptionError(f"{attribute} is not a float; add_ranges takes bounds of floats only")
    return attribute.type


def _range_tests(name: str, interval: Interval) -> list[Predicate]:
    low, high = interval
    above = [this[name] >= key_float(low)] if low > Floats.low or high == Floats.high else []
    return above + ([this[name] <= key_float(high)] if high < Floats.high else [])
