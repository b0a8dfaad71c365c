"""Rules of a side: which event types may leave and enter it, and how many per second.

Rates are limited by a token bucket; time is an input.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias

import msgspec

from genus.errors import BusError, SubscriptionError
from genus.filters import Subscription
from genus.filters.internal import rebuild
from genus.filters.types import AllOf
from genus.model import Span, is_event_type, nanoseconds, seconds
from genus.net._link.dedup import line_of
from genus.net._relay import Arrival

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
        raise BusError(f"{text!r} is no rate; write one like '10/s', '100/min' or '2/s newest'")
    per = found[2] if found[2][:1].isdecimal() else f"1 {found[2]}"
    per_s = seconds(per, f"{text!r} is no rate: its time", zero=False, error=BusError)
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
        """How many events wait for a token."""
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
        """Return the events that waited and may pass now."""
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
        """When the next event that waits may pass."""
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
        """When there is a token."""
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
