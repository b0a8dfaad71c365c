"""Interest and routes: what a gateway wants on one side because others want it on another side.

Every participant of a network sees the wants of all others, with the gateways between them and the subscriber (hops).
For each subscriber (origin) a gateway does this:

* On a side it asks for what the other sides want, one hop more, unless somebody on that side is as near to the origin
  as those that asked: then another gateway carries the event, on a shorter way.
* An event goes to the nearest side only; of two that are equally near, to the first.

So an event takes a step towards the origin with every gateway that it crosses, and a ring of networks is no loop. A
want that was repeated has more hops, up to `MAX_HOPS`, so that wants that only gateways keep alive end.

Subscriptions of an origin are compared by covering, as gateways cut them by scope and merge them on the way.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from genus.errors import GenusError
from genus.filters import Subscription, merge
from genus.model import Event
from genus.net._envelope import MAX_HOPS
from genus.net._gateway.rules import SideRules, cut
from genus.net._relay import Interest
from genus.targets.python import PythonFilter

if TYPE_CHECKING:
    from genus.targets.index import SubscriptionIndex

MAX_MERGED = 16
"""Subscriptions that are merged, or tested one by one; the time of merging grows with the square of their number."""


class Entry(msgspec.Struct, frozen=True):
    """What an origin wants on a side, and the gateways between."""

    side: int
    subscription: Subscription
    hops: int


class Route(msgspec.Struct, frozen=True):
    """Events of one side that match are wanted on the side `target`; `hops` counts this gateway too."""

    origin: str
    subscription: Subscription
    target: int
    hops: int


Cut = Callable[[Subscription, int, int], list[Subscription]]
"""`cut(subscription, source, target)`: what the scopes of two sides leave of a subscription."""


def routes_from(side: int, origin: str, entries: Sequence[Entry], cut: Cut) -> list[Route]:
    """Return the ways that events of a side take towards an origin."""
    near = [entry for entry in entries if entry.side == side]
    found: list[Route] = []
    for entry in sorted(entries, key=_nearest_first):
        if entry.side == side or entry.hops >= MAX_HOPS:
            continue
        for asked in cut(entry.subscription, side, entry.side):
            is_nearer = any(each.hops <= entry.hops and each.subscription.covers(asked) for each in near)
            if not is_nearer and not any(route.subscription.covers(asked) for route in found):
                found.append(Route(origin, asked, entry.side, entry.hops + 1))
    return found


def _nearest_first(entry: Entry) -> tuple[int, int, str]:
    return entry.hops, entry.side, str(entry.subscription)


def declared(routes: Iterable[Route]) -> list[Interest]:
    """Return what to tell a side of routes that begin there: the merged subscriptions of each origin, by hops."""
    groups: dict[tuple[str, int], list[Subscription]] = {}
    for route in routes:
        groups.setdefault((route.origin, route.hops), []).append(route.subscription)
    return [
        Interest("", origin, one, hops)
        for (origin, hops), subscriptions in groups.items()
        for one in merged(subscriptions)
    ]


def merged(subscriptions: Iterable[Subscription]) -> list[Subscription]:
    """Return the fewest subscriptions for several, the same whatever their order; very many are left as they are."""
    unique = sorted(dict.fromkeys(subscriptions), key=str)
    return [one.subscription for one in merge(unique)] if 1 < len(unique) <= MAX_MERGED else unique


class AnyOf:
    """Tests whether an event matches one of several subscriptions; very many are found by an index."""

    def __init__(self, subscriptions: Iterable[Subscription]) -> None:
        unique = list(dict.fromkeys(subscriptions))
        self._lock = threading.Lock()
        self._index = _index_of(unique) if len(unique) > MAX_MERGED else None
        self._tests = () if self._index is not None else tuple(map(PythonFilter, unique))

    def __call__(self, event: Event) -> bool:
        """Whether one matches; also if a value of the event has not its declared type.

        The link that is to send the event refuses it, then, and it is counted.
        """
        try:
            if self._index is None:
                return any(matches(event) for matches in self._tests)
            with self._lock:  # an index is for one thread at a time
                return bool(self._index.count(event))
        except GenusError:
            return True


def _index_of(subscriptions: list[Subscription]) -> "SubscriptionIndex | None":
    try:
        from genus.targets.index import SubscriptionIndex
    except ImportError:  # numpy is an extra
        return None
    return SubscriptionIndex(subscriptions)


HOLD_S = 0.1
"""After a way to an origin was lost, longer ways are not believed for this time: they may lead back to this gateway."""


class InterestTable:
    """State: what origins want on each side, and the routes that follow from it."""

    def __init__(self, sides: Sequence[SideRules], hold_s: float) -> None:
        self._sides = sides
        self._hold_s = hold_s
        self._entries: dict[str, list[Entry]] = {}
        """By origin."""
        self._best: dict[str, int] = {}
        """By origin: the hops of the nearest entry that was believed."""
        self._holds: dict[str, tuple[int, float]] = {}
        """By origin whose nearest entry was lost: its hops, and until when those with more are not believed."""
        self._by_origin: list[dict[str, list[Route]]] = [{} for _ in sides]
        self.routes: list[list[Route]] = [[] for _ in sides]

    @property
    def wake_at(self) -> float | None:
        """When the next hold ends."""
        return min((until for _, until in self._holds.values()), default=None)

    def refused(self, side: int) -> int:
        """Return how many subscriptions of a side no scope lets anything through for."""
        others = [other for other in range(len(self._sides)) if other != side]
        asked = (one for entries in self._entries.values() for one in entries if one.side == side)
        return sum(not any(self._cut(one.subscription, other, side) for other in others) for one in asked)

    def replace(self, side: int, interests: Iterable[Interest], now: float) -> set[int]:
        """Note all that is wanted on a side; returns the sides whose routes have changed."""
        found: dict[str, list[Entry]] = {}
        for interest in interests:
            if interest.hops < MAX_HOPS:
                found.setdefault(interest.origin, []).append(Entry(side, interest.subscription, interest.hops))
        touched = {
            origin
            for origin in {*found, *self._entries}
            if _as_set(found.get(origin, ())) != _as_set(self._entries_on(origin, side))
        }
        for origin in touched:
            others = [entry for entry in self._entries.get(origin, ()) if entry.side != side]
            self._entries[origin] = [*others, *found.get(origin, ())]
            self._hold(origin, now)
            if not self._entries[origin]:
                del self._entries[origin]
        return self._find_routes(touched)

    def release(self, now: float) -> set[int]:
        """Believe again what was held back; returns the sides whose routes have changed."""
        over = {origin for origin, (_, until) in self._holds.items() if until <= now}
        for origin in over:
            del self._holds[origin]
            self._note_best(origin)
        return self._find_routes(over)

    def _entries_on(self, origin: str, side: int) -> list[Entry]:
        return [entry for entry in self._entries.get(origin, ()) if entry.side == side]

    def _hold(self, origin: str, now: float) -> None:
        """Hold back longer ways to an origin whose shortest one was lost."""
        before = self._best.get(origin)
        held = self._holds.get(origin)
        nearest = min((entry.hops for entry in self._entries[origin]), default=MAX_HOPS)
        if held is not None and nearest <= held[0]:
            del self._holds[origin]
        elif held is None and before is not None and nearest > before:
            self._holds[origin] = before, now + self._hold_s
        if origin not in self._holds:
            self._note_best(origin)

    def _note_best(self, origin: str) -> None:
        entries = self._entries.get(origin)
        if entries:
            self._best[origin] = min(entry.hops for entry in entries)
        else:
            self._best.pop(origin, None)

    def _believed(self, origin: str) -> list[Entry]:
        entries = self._entries.get(origin, [])
        held = self._holds.get(origin)
        return entries if held is None else [entry for entry in entries if entry.hops <= held[0]]

    def _find_routes(self, origins: Iterable[str]) -> set[int]:
        """Find the routes to some origins again; returns the sides where they have changed."""
        changed = set()
        for origin in origins:
            entries = self._believed(origin)
            for side, known in enumerate(self._by_origin):
                found = routes_from(side, origin, entries, self._cut) if entries else []
                if found != known.get(origin, []):
                    known[origin] = found
                    changed.add(side)
                    if not found:
                        del known[origin]
        for side in changed:
            self.routes[side] = [route for routes in self._by_origin[side].values() for route in routes]
        return changed

    def _cut(self, subscription: Subscription, source: int, target: int) -> list[Subscription]:
        exported = cut(subscription, self._sides[source].scope.export)
        imports = self._sides[target].scope.imports
        return [one for each in exported for one in cut(each, imports)]


def _as_set(entries: Iterable[Entry]) -> frozenset[tuple[int, Subscription]]:
    return frozenset((entry.hops, entry.subscription) for entry in entries)
