"""What a gateway wants on a side, and lets pass.

Rules of a side: which event types may leave and enter it, and how many per second.

Rates are limited by a token bucket; time is an input.

Interest and routes: what a gateway wants on one side because others want it on another side.

Every participant of a network sees the interest of all others, with the number of gateways to the subscriber (hops).
For each subscriber (origin) a gateway does this:

* On a side it asks for what the other sides want, one hop more, unless somebody on that side is as near to the origin
  as those that asked: then another gateway carries the event, on a shorter way.
* An event goes to the nearest side only; of two that are equally near, to the first.

So an event takes a step towards the origin with every gateway that it crosses, and a ring of networks is no loop. An
interest that was repeated has more hops, up to `MAX_HOPS`, so that interest that only gateways keep alive ends.

Subscriptions of an origin are compared by covering, as gateways cut them by scope and merge them on the way.
"""

import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from genus.errors import BusError, GenusError, SubscriptionError
from genus.filters import Subscription, merge
from genus.filters.internal import rebuild
from genus.filters.types import AllOf
from genus.model import Event, Span, is_event_type, nanoseconds, seconds
from genus.net._envelope import MAX_HOPS, Arrival, Interest
from genus.net._link.numbers import line_of
from genus.targets.python import PythonFilter

if TYPE_CHECKING:
    from genus.targets.index import SubscriptionIndex

WhenLimited: TypeAlias = Literal["drop", "newest"]
"""What happens to an event that comes too soon: it is dropped, or waits until a newer one replaces it."""
_ROUNDING_S = 1e-6


class RateLimit(msgspec.Struct, frozen=True):
    """At most `events` per span of time, of a type and those below it, and as many at once."""

    events: int
    per: Span = 1.0
    excess: WhenLimited = "drop"

    def __post_init__(self) -> None:
        nanoseconds(self.per, "per", zero=False)


def parse_rate(text: str) -> RateLimit:
    """Return a rate as text: `10/s`, `1/5 min`, `100/min newest`; BusError if it cannot be read.

    >>> parse_rate("100/min newest"), parse_rate("1/5 min")
    (RateLimit(events=100, per=60.0, excess='newest'), RateLimit(events=1, per=300.0, excess='drop'))
    """
    found = re.fullmatch(r"(\d{1,9})\s*/\s*(.*?)(?:\s+(drop|newest))?", text.strip())
    if found is None or int(found[1]) == 0:
        raise BusError(f"{text!r} is not a rate; write one like '10/s', '100/min' or '2/s newest'")
    per = found[2] if found[2][:1].isdecimal() else f"1 {found[2]}"
    per_s = seconds(per, f"{text!r} is not a rate: its time", zero=False, error=BusError)
    return RateLimit(int(found[1]), per_s, "newest" if found[3] == "newest" else "drop")


class Limiter:
    """State: the buckets of one side. An event takes a token of every bucket whose type it has, or of none."""

    def __init__(self, limits: Mapping[type, RateLimit]) -> None:
        self._buckets = {cls: _Bucket(limit) for cls, limit in limits.items()}
        self._of_class: dict[type, list[_Bucket]] = {}

    def __bool__(self) -> bool:
        return bool(self._buckets)

    @property
    def waiting(self) -> int:
        return sum(bucket.waiting is not None for bucket in self._buckets.values())

    def admit(self, arrival: Arrival, now: float) -> tuple[bool, int]:
        """Whether an event may pass now, and how many events are thereby dropped for good: it, or one it replaces."""
        buckets = self._find(type(arrival.event))
        for bucket in buckets:
            bucket.fill(now)
        empty = [bucket for bucket in buckets if bucket.tokens < 1 or bucket.waiting is not None]
        if not empty:
            for bucket in buckets:
                bucket.tokens -= 1
            return True, 0
        if empty[0].limit.excess == "drop":
            return False, 1
        replaced = empty[0].waiting
        empty[0].waiting = arrival
        return False, 0 if replaced is None else 1

    def forget(self, arrival: Arrival) -> int:
        """Let an event wait no more that is kept no more; returns how many did."""
        buckets = self._find(type(arrival.event))
        same = [each for each in buckets if each.waiting is not None and line_of(each.waiting) == line_of(arrival)]
        for bucket in same:
            bucket.waiting = None
        return len(same)

    def due(self, now: float) -> list[Arrival]:
        found = []
        for bucket in self._buckets.values():
            waiting = bucket.waiting
            if waiting is not None and self._ready_at(waiting) <= now + _ROUNDING_S:
                for each in self._find(type(waiting.event)):
                    each.fill(now)
                    each.tokens -= 1
                bucket.waiting = None
                found.append(waiting)
        return found

    def wake_at(self) -> float | None:
        waiting = (bucket.waiting for bucket in self._buckets.values())
        return min((self._ready_at(one) for one in waiting if one is not None), default=None)

    def _ready_at(self, arrival: Arrival) -> float:
        return max(bucket.ready_at() for bucket in self._find(type(arrival.event)))

    def _find(self, cls: type) -> "list[_Bucket]":
        found = self._of_class.get(cls)
        if found is None:
            found = [bucket for limited, bucket in self._buckets.items() if issubclass(cls, limited)]
            self._of_class[cls] = found
        return found


class _Bucket:
    """State: the tokens of one limit."""

    def __init__(self, limit: RateLimit) -> None:
        self.limit = limit
        self._per_s = seconds(limit.per)
        self.tokens = float(limit.events)
        self.waiting: Arrival | None = None
        self._filled_at: float | None = None

    def fill(self, now: float) -> None:
        """Add what has come in since the last call; time that goes back adds nothing."""
        if self._filled_at is not None and now > self._filled_at:
            gained = (now - self._filled_at) * self.limit.events / self._per_s
            self.tokens = min(float(self.limit.events), self.tokens + gained)
        self._filled_at = now

    def ready_at(self) -> float:
        missing = max(0.0, 1 - self.tokens)
        return (self._filled_at or 0.0) + missing * self._per_s / self.limit.events


class Scope(msgspec.Struct, frozen=True):
    """The types, with all below them, that leave a side (`export`) and that enter it (`imports`); None: all."""

    export: tuple[type, ...] | None = None
    imports: tuple[type, ...] | None = None

    def exports(self, cls: type) -> bool:
        """Return whether events of a class may leave the side."""
        return self.export is None or issubclass(cls, self.export)

    def imports_class(self, cls: type) -> bool:
        """Return whether events of a class may enter the side."""
        return self.imports is None or issubclass(cls, self.imports)


class SideRules(msgspec.Struct, frozen=True):
    """What a machine knows of a side.

    `prefix` begins the uids of origins whose events this gateway counts, as those of a CAN bus; empty if there are
    none. `tells_tokens` says whether other gateways are seen there, `hears_gateways` whether they must be heard, too.
    """

    name: str
    scope: Scope = Scope()
    limits: Mapping[type, RateLimit] = {}
    prefix: bytes = b""
    tells_tokens: bool = True
    hears_gateways: bool = False


def cut(subscription: Subscription, types: tuple[type, ...] | None) -> list[Subscription]:
    """Return what a subscription asks for within some types; they are few, and none if it asks for nothing there.

    A subscription to a higher type becomes one for each of the types below it. One that is exact and to a kind may
    stay wider than the types: the gateway tests the class of each event anyway.

    >>> from genus import Event, Subscription
    >>> class Loop(Event):
    ...     lane: int
    >>> class Lamp(Event): ...
    >>> [str(one) for one in cut(Subscription(Event), (Loop,))], cut(Subscription(Lamp), (Loop,))
    (['Loop'], [])
    """
    if types is None or _is_within(subscription, types):
        return [subscription]
    if subscription.exact:
        return [] if is_event_type(subscription.type) else [subscription]
    return list(dict.fromkeys(_narrowed(subscription, types)))


def _is_within(subscription: Subscription, types: tuple[type, ...]) -> bool:
    return any(issubclass(cls, types) for cls in subscription.types)


def _narrowed(subscription: Subscription, types: tuple[type, ...]) -> Iterable[Subscription]:
    """The same subscription to each of the types; an event type of another line has no events in common with it."""
    for cls in types:
        try:
            yield rebuild(
                AllOf((*subscription.types, cls)),
                has=subscription.has,
                lacks=subscription.lacks,
                where=subscription.where,
            )
        except SubscriptionError:
            continue


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
