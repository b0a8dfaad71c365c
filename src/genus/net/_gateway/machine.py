"""What a gateway carries where, and what it has done.

What a gateway has done, per side: counters, a picture of them, and metrics for Prometheus.

`GatewayMachine`: which events a gateway carries where, without I/O.

Its inputs are what the sides want, events that arrive, tokens of other gateways, and time; its outputs are what to ask
for on each side, and events to forward. `interest` has the way of interest. An event crosses once: it is recognised by
the number that its origin gave it, whatever the way it took.

Gateways of the same name elect one that is active: the one with the lowest uid among those that are seen on all sides.
The others, on standby, ask for the same events, and for those that cross; if the active one is gone, they forward what
was not seen to cross.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields

import msgspec
from msgspec.structs import replace

from genus.filters import Subscription
from genus.model import Event, name_of
from genus.net._envelope import MAX_HOPS, Arrival, Interest, Origin
from genus.net._gateway.rules import HOLD_S, AnyOf, InterestTable, Limiter, Route, SideRules, declared, merged
from genus.net._gateway.standby import HELD_S, SETTLE_S, Election, StandbyBuffer, node_of, renumbered
from genus.net._link.numbers import SeenEvents, line_of
from genus.net._metrics import Metric


@dataclass(slots=True)
class SideCounters:
    """State: counters of one side.

    The first four are about events that came from the side, the others about events for it: `wanted` is the sum of
    `crossed`, `lost`, `limited`, and those that wait in the spool or for a rate limit.
    """

    heard: int = 0
    """Events that came from this side."""
    unwanted: int = 0
    """Of these, events that no other side wants."""
    duplicates: int = 0
    """Of these, events that had come before, over this side or another one."""
    out_of_scope: int = 0
    """Of these, events that another side wants, but that may not leave this side or enter that one."""
    wanted: int = 0
    """Events of other sides that this side wants."""
    crossed: int = 0
    """Of these, events that were sent to this side."""
    lost: int = 0
    """Of these, events that could not be sent, or that a full spool dropped."""
    spooled: int = 0
    """Of these, events that were written to the spool, as this side was not connected."""
    limited: int = 0
    """Of these, events that a rate limit dropped."""

    def as_dict(self) -> dict[str, int]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


class SideStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The counters and the state of a side of a gateway.

    `asked` is how many subscriptions the side has, and `refused` how many of these ask only for what the scopes of the
    sides keep back. The counters are those of `SideCounters`.
    """

    name: str
    is_connected: bool
    asked: int
    refused: int
    waiting: int
    heard: int
    unwanted: int
    duplicates: int
    out_of_scope: int
    wanted: int
    crossed: int
    lost: int
    spooled: int
    limited: int


class GatewayStatus(msgspec.Struct, frozen=True):
    """The state of a gateway: whether it is the active one of its name, what it keeps as a standby, and its sides.

    `unconfirmed` counts events that a standby no longer keeps, though it did not see them cross. `events` counts the
    events that came, by type: each once, however many sides it came from or crossed to.
    """

    is_active: bool
    held: int
    unconfirmed: int
    sides: tuple[SideStatus, ...]
    events: Mapping[str, int] = {}


_GAUGES = {
    "is_connected": "Whether the side is connected",
    "asked": "Subscriptions of the side",
    "refused": "Subscriptions of the side that scopes keep back",
    "waiting": "Events that wait for the side, in the queue and in the spool",
}
_COUNTERS = {
    "heard": "Events that came from the side",
    "unwanted": "Events of the side that no other one wants",
    "duplicates": "Events of the side that had come before",
    "out_of_scope": "Events of the side that scopes keep back",
    "wanted": "Events that the side wants",
    "crossed": "Events sent to the side",
    "lost": "Events that could not be sent to the side",
    "spooled": "Events written to the spool of the side",
    "limited": "Events that a rate limit kept from the side",
}


def metrics_of(status: GatewayStatus) -> Iterator[Metric]:
    """Yield the counters of a gateway as metrics, by side."""
    yield Metric("gateway_active", "Whether it carries events", "gauge", {"": float(status.is_active)})
    yield Metric("gateway_held", "Events that a standby keeps", "gauge", {"": status.held})
    yield Metric("gateway_unconfirmed_total", "Events not seen to cross in time", "counter", {"": status.unconfirmed})
    for name, text in _GAUGES.items():
        values = {side.name: float(getattr(side, name)) for side in status.sides}
        yield Metric(f"gateway_{name.removeprefix('is_')}", text, "gauge", values, "side")
    for name, text in _COUNTERS.items():
        values = {side.name: float(getattr(side, name)) for side in status.sides}
        yield Metric(f"gateway_{name}_total", text, "counter", values, "side")


MAX_KEPT = 10_000
"""Kept events that are remembered for sides that come to want them later."""


class Forward(msgspec.Struct, frozen=True, gc=False):
    """Send an event to a side; its hops include this gateway."""

    target: int
    arrival: Arrival


class _KeptArrival(msgspec.Struct, frozen=True):
    """An event of which the newest is kept: where it came from, and the sides that it was forwarded to."""

    side: int
    arrival: Arrival
    targets: set[int]


class _ClassTable(msgspec.Struct, frozen=True):
    """Where events of a class go, from one side: sides with the test that must hold, None if all match."""

    targets: tuple[tuple[int, AnyOf | None], ...]
    refused: AnyOf | None
    """The test of subscriptions that would match, but for the scope of a side."""


class GatewayMachine:
    """State: the interest on all sides, what was seen, and who of several gateways is active."""

    def __init__(
        self,
        uid: str,
        sides: Sequence[SideRules],
        *,
        is_doubled: bool = False,
        now: float = 0.0,
        hold_s: float = HOLD_S,
        settle_s: float = SETTLE_S,
    ) -> None:
        self.uid = uid
        self.sides = tuple(sides)
        self.counts = [SideCounters() for _ in sides]
        self.events: Counter[type] = Counter()
        """Events that came, by class: each once, however many sides it came from or crosses to."""
        self._interest = InterestTable(self.sides, hold_s)
        self._tables: list[dict[type, _ClassTable]] = [{} for _ in sides]
        self._limiters = [Limiter(side.limits) for side in sides]
        self._seen = SeenEvents()
        self._kept: OrderedDict[tuple[type, str | None], _KeptArrival] = OrderedDict()
        """The newest event of each type and value under which the newest is kept."""
        self._counted: dict[tuple[bytes, str], tuple[bytes, int]] = {}
        """By node and type of events that gateways count: the uid of the active gateway's, and the difference."""
        watched = [number for number, side in enumerate(self.sides) if side.tells_tokens]
        heard_on = [number for number, side in enumerate(self.sides) if side.hears_gateways]
        self._election = Election(uid, watched, heard_on, now + settle_s if is_doubled else None)
        self._is_active = not is_doubled
        self._standby = StandbyBuffer()
        self._changed = set(range(len(self.sides)))

    # -- interest ----------------------------------------------------------------------------------------------------

    def interest_changed(self, side: int, interests: Iterable[Interest], now: float) -> list[Forward]:
        """Return all that others want on a side, now; returns kept events that are wanted for the first time."""
        return self._follow(self._interest.replace(side, interests, now), now)

    def _follow(self, changed: set[int], now: float) -> list[Forward]:
        for side in changed:
            self._tables[side].clear()
        self._changed |= changed if self._is_active else set(range(len(self.sides))) if changed else set()
        return self._pass_kept(changed, now) if changed and self._is_active else []

    def _pass_kept(self, changed: set[int], now: float) -> list[Forward]:
        self._drop_unwanted(changed)
        found = []
        for kept in [each for each in self._kept.values() if each.side in changed]:
            targets = [each for each in self._targets(kept.side, kept.arrival.event) if each not in kept.targets]
            found += self._pass(kept.side, kept.arrival, targets, now)
        return found

    def _drop_unwanted(self, changed: set[int]) -> None:
        """Keep no events of sides where they are not wanted any more, as newer ones do not arrive."""
        wanted = {side: declared(self._interest.routes[side]) for side in changed}
        tests = {side: AnyOf(interest.subscription for interest in interests) for side, interests in wanted.items()}
        for key, kept in list(self._kept.items()):
            if kept.side in tests and not tests[kept.side](kept.arrival.event):
                del self._kept[key]

    def take_changed(self) -> dict[int, list[Interest]]:
        """Return what to want on each side where that has changed since the last call."""
        changed, self._changed = self._changed, set()
        return {side: self.wanted_on(side) for side in sorted(changed)}

    def repeat_interest(self, side: int) -> None:
        """What to want on a side could not be wanted: give it out again."""
        self._changed.add(side)

    def wanted_on(self, side: int) -> list[Interest]:
        """What to want on a side; a standby also wants to see what crosses, which is not to be repeated by others."""
        interests = declared(self._interest.routes[side])
        if not self._is_active:
            crossing = (route for routes in self._interest.routes for route in routes if route.target == side)
            watched = merged(route.subscription for route in crossing)
            interests += [Interest("", self.uid, one, MAX_HOPS) for one in watched]
        return interests

    def routes(self, side: int) -> list[Route]:
        return list(self._interest.routes[side])

    def waiting(self, side: int) -> int:
        """Return how many events for a side wait until a rate limit lets them pass."""
        return self._limiters[side].waiting

    def refused_interests(self, side: int) -> int:
        """Return how many subscriptions of a side ask for nothing that the scopes let pass."""
        return self._interest.refused(side)

    # -- events ------------------------------------------------------------------------------------------------------

    def arrived(self, side: int, arrival: Arrival, now: float) -> list[Forward]:
        counts = self.counts[side]
        counts.heard += 1
        owner = self._owner(arrival.origin.uid)
        if owner == side:
            arrival, has_crossed = self._number(arrival)
            if has_crossed:
                self.events[arrival.event.__class__] += 1
                return []
        elif owner is not None:
            self._see_crossing(arrival, side)
            return []
        elif not self._seen.add(arrival, line_of(arrival)) and not self._is_asked_again(arrival):
            return self._heard_again(side, arrival)
        self.events[arrival.event.__class__] += not arrival.is_forgotten
        targets = self._targets(side, arrival.event)
        if arrival.is_forgotten:
            targets = self._forget(side, arrival, targets)
        if not self._is_active:
            if targets:
                self._standby.hold(side, arrival, set(targets), now)
            return []
        if not targets and arrival.kept is not None and not arrival.is_forgotten:
            self._keep(side, arrival, ())
        counts.unwanted += not targets
        return self._pass(side, arrival, targets, now)

    def copy_arrived(self, side: int, event: Event, now: float) -> None:
        """An event came from a side that another gateway had sent there, without its origin; it never goes back."""
        self.counts[side].heard += 1
        self.counts[side].duplicates += 1
        if not self._is_active:
            self._standby.heard_copy(event, side, now)

    def _heard_again(self, side: int, arrival: Arrival) -> list[Forward]:
        self._standby.heard_again(arrival, side)
        self.counts[side].duplicates += 1
        return []

    def _pass(self, side: int, arrival: Arrival, targets: Iterable[int], now: float) -> list[Forward]:
        """Forward an event to some sides, if rate limits and the number of hops let it pass."""
        origin = arrival.origin
        if origin.hops >= MAX_HOPS:
            for target in targets:
                self.counts[target].wanted += 1
                self.counts[target].lost += 1
            return []
        if arrival.kept is not None and not arrival.is_forgotten:
            self._keep(side, arrival, targets)
        onward = replace(arrival, origin=Origin(origin.uid, origin.number, origin.hops + 1))
        found = []
        for target in targets:
            counts = self.counts[target]
            counts.wanted += 1
            passes, dropped = self._admit(target, onward, now)
            counts.limited += dropped
            if passes:
                found.append(Forward(target, onward))
        return found

    def _keep(self, side: int, arrival: Arrival, targets: Iterable[int]) -> None:
        """Keep an event for sides that come to want it later."""
        key = (type(arrival.event), arrival.kept)
        before = self._kept.get(key)
        had = before.targets if before is not None and before.arrival is arrival else set()
        self._kept[key] = _KeptArrival(side, arrival, {*targets, *had})
        self._kept.move_to_end(key)
        if len(self._kept) > MAX_KEPT:
            self._kept.popitem(last=False)

    def _admit(self, target: int, arrival: Arrival, now: float) -> tuple[bool, int]:
        """Whether an event may enter a side now, and how many are thereby dropped; that one is kept no more may."""
        limiter = self._limiters[target]
        if arrival.is_forgotten:
            return True, limiter.forget(arrival)
        return limiter.admit(arrival, now) if limiter else (True, 0)

    def _forget(self, side: int, arrival: Arrival, wanting: list[int]) -> list[int]:
        """Keep an event no more; returns the sides that have it."""
        key = (type(arrival.event), arrival.kept)
        known = self._kept.get(key)
        if known is None or line_of(known.arrival) != line_of(arrival):
            return wanting
        del self._kept[key]
        return sorted({*known.targets, known.side} - {side})

    def _is_asked_again(self, arrival: Arrival) -> bool:
        """Whether an event that was seen before is a last value that was dropped here while no side wanted it."""
        if arrival.kept is None or arrival.is_forgotten or not self._is_active:
            return False
        return (type(arrival.event), arrival.kept) not in self._kept and self._seen.is_newest(arrival, line_of(arrival))

    def _targets(self, side: int, event: Event) -> list[int]:
        """Return the sides that want an event of a side."""
        table = self._tables[side].get(type(event))
        if table is None:
            table = self._tables[side][type(event)] = self._make_table(side, type(event))
        found = [target for target, test in table.targets if test is None or test(event)]
        if not found and table.refused is not None and table.refused(event):
            self.counts[side].out_of_scope += 1
        return found

    def _make_table(self, side: int, cls: type) -> _ClassTable:
        asked: dict[int, list[Subscription]] = {}
        refused: list[Subscription] = []
        for route in self._interest.routes[side]:
            if route.subscription.accepts(cls):
                is_open = self.sides[side].scope.exports(cls) and self.sides[route.target].scope.imports_class(cls)
                (asked.setdefault(route.target, []) if is_open else refused).append(route.subscription)
        targets = tuple((target, _test_of(subscriptions)) for target, subscriptions in sorted(asked.items()))
        return _ClassTable(targets, AnyOf(refused) if refused else None)

    # -- events that gateways number ---------------------------------------------------------------------------------

    def _owner(self, uid: bytes) -> int | None:
        """Return the side whose events this gateway counts, if the uid of an origin is of that side."""
        for number, side in enumerate(self.sides):
            if side.prefix and uid.startswith(side.prefix):
                return number
        return None

    def _number(self, arrival: Arrival) -> tuple[Arrival, bool]:
        """The event with the number that the active gateway gives it, and whether it was seen to cross already."""
        key = (node_of(arrival.origin.uid), name_of(type(arrival.event)))
        known = self._counted.get(key)
        if known is not None:
            arrival = renumbered(arrival, *known)
        early = None if self._is_active else self._standby.find_early(arrival)
        if early is None:
            return arrival, False
        self._count_as(key, *early)
        return arrival, True

    def _count_as(self, key: tuple[bytes, str], uid: bytes, offset: int) -> None:
        """Number events of a node and type as the active gateway does, whose number differs by so much more."""
        self._counted[key] = uid, self._counted.get(key, (uid, 0))[1] + offset

    def _see_crossing(self, arrival: Arrival, side: int) -> None:
        """An event that gateways number came over another side: a copy of what this one counts."""
        if self._is_active:
            self.counts[side].duplicates += 1
            return
        offset = self._standby.align(arrival, side)
        if offset is not None:
            self._count_as((node_of(arrival.origin.uid), name_of(type(arrival.event))), arrival.origin.uid, offset)

    # -- other gateways, and time ------------------------------------------------------------------------------------

    @property
    def is_active(self) -> bool:
        """Whether this gateway forwards; others of its name do not, then."""
        return self._is_active

    @property
    def held(self) -> int:
        """How many events a standby keeps, as they were not seen to cross."""
        return len(self._standby)

    @property
    def unconfirmed(self) -> int:
        """How many events a standby no longer keeps, though they were not seen to cross."""
        return self._standby.unconfirmed

    def token(self, side: int, uid: str, is_present: bool, now: float) -> list[Forward]:
        """Another gateway of the same name was seen on a side, or is gone."""
        self._election.token(side, uid, is_present)
        return self._elect(now)

    def heard_gateway(self, side: int, uid: str, now: float) -> list[Forward]:
        """Another gateway of the same name said on a side that it works."""
        self._election.hear(side, uid, now)
        return self._elect(now)

    def connected(self, side: int, is_connected: bool, now: float) -> list[Forward]:
        """A side was connected, or is not any more; who is not seen there is not gone for that."""
        self._election.connected(side, is_connected)
        return self._elect(now)

    def _elect(self, now: float) -> list[Forward]:
        was_active, self._is_active = self._is_active, self._election.is_won(now)
        if was_active != self._is_active:
            self._changed = set(range(len(self.sides)))
        if was_active and not self._is_active:
            self._kept.clear()  # from now on the other one follows them
        if was_active or not self._is_active:
            return []
        found = []
        for held in self._standby.take():
            found += self._pass(held.side, held.arrival, sorted(held.targets), now)
        return found

    def tick(self, now: float) -> list[Forward]:
        found = self._follow(self._interest.release(now), now)
        self._standby.drop_old(now)
        found += self._elect(now)
        for target, limiter in enumerate(self._limiters):
            found += [Forward(target, arrival) for arrival in limiter.due(now)]
        return found

    def wake_at(self, now: float) -> float | None:
        """When to call `tick`; None if nothing is due."""
        times = [self._interest.wake_at, self._election.wake_at(now), *(each.wake_at() for each in self._limiters)]
        times += [now + HELD_S] if len(self._standby) else []
        return min((time for time in times if time is not None), default=None)


def _test_of(subscriptions: list[Subscription]) -> AnyOf | None:
    """Return the test of subscriptions of which one must match; None if one asks for the type only."""
    if any(one.where is None and not one.has and not one.lacks for one in subscriptions):
        return None
    return AnyOf(subscriptions)
