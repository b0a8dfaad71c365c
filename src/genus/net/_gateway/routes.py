"""Routes: what a gateway wants on one side because others want it on another side.

Every participant of a network sees the wants of all others, with the gateways between them and the subscriber (hops).
For each subscriber (origin) a gateway does this:

* On a side it asks for what the other sides want, one hop more, unless somebody on that side is as near to the origin
  as those that asked: then another gateway carries the event, on a shorter way.
* An event goes to the nearest side only; of two that are equally near, to the first.

So an event takes a step towards the origin with every gateway that it crosses, and a ring of networks is no loop. A
want that was repeated has more hops, up to `MOST_HOPS`, so that wants that only gateways keep alive end.

Subscriptions of an origin are compared by covering, as gateways cut them by scope and merge them on the way.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from genus.errors import GenusError
from genus.filters import Subscription, merge
from genus.model import Event
from genus.net._envelope import MOST_HOPS
from genus.net._relay import Want
from genus.targets.python import PythonFilter

if TYPE_CHECKING:
    from genus.targets.index import SubscriptionIndex

MOST_MERGED = 16
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
    """The ways that events of a side take towards an origin."""
    near = [entry for entry in entries if entry.side == side]
    found: list[Route] = []
    for entry in sorted(entries, key=_nearest_first):
        if entry.side == side or entry.hops >= MOST_HOPS:
            continue
        for asked in cut(entry.subscription, side, entry.side):
            is_nearer = any(each.hops <= entry.hops and each.subscription.covers(asked) for each in near)
            if not is_nearer and not any(route.subscription.covers(asked) for route in found):
                found.append(Route(origin, asked, entry.side, entry.hops + 1))
    return found


def _nearest_first(entry: Entry) -> tuple[int, int, str]:
    return entry.hops, entry.side, str(entry.subscription)


def declared(routes: Iterable[Route]) -> list[Want]:
    """What to tell a side of routes that begin there: the merged subscriptions of each origin, by hops."""
    groups: dict[tuple[str, int], list[Subscription]] = {}
    for route in routes:
        groups.setdefault((route.origin, route.hops), []).append(route.subscription)
    return [
        Want("", origin, one, hops) for (origin, hops), subscriptions in groups.items() for one in merged(subscriptions)
    ]


def merged(subscriptions: Iterable[Subscription]) -> list[Subscription]:
    """The fewest subscriptions for several, the same whatever their order; very many are left as they are."""
    unique = sorted(dict.fromkeys(subscriptions), key=str)
    return [one.subscription for one in merge(unique)] if 1 < len(unique) <= MOST_MERGED else unique


class AnyOf:
    """Tests whether an event matches one of several subscriptions; very many are found by an index."""

    def __init__(self, subscriptions: Iterable[Subscription]) -> None:
        unique = list(dict.fromkeys(subscriptions))
        self._lock = threading.Lock()
        self._index = _index_of(unique) if len(unique) > MOST_MERGED else None
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
