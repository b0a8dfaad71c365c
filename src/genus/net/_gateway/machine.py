"""`GatewayMachine`: which events a gateway carries where, without I/O.

Its inputs are what the sides want, events that arrive, tokens of other gateways, and time; its outputs are what to ask
for on each side, and events to forward. `routes` has the way of interest. An event crosses once: it is recognised by
the number that its origin gave it, whatever the way it took.

Gateways of the same name elect one that is active: the one with the lowest uid among those that are seen on all sides.
The others, on standby, ask for the same events, and for those that cross; if the active one is gone, they forward what
was not seen to cross.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from genus.filters import Subscription
from genus.model import Event, name_of
from genus.net._envelope import MOST_HOPS, Origin
from genus.net._gateway.counters import SideCounters
from genus.net._gateway.rate import Limiter, RateLimit
from genus.net._gateway.routes import Entry, Route, declared, merged, routes_from
from genus.net._gateway.scope import Scope, cut
from genus.net._gateway.standby import HELD_S, StandbyBuffer, renumbered
from genus.net._gateway.window import SeenEvents, line_of
from genus.net._relay import Arrival, Want
from genus.targets.python import PythonFilter

HOLD_S = 0.1
"""After a way to an origin was lost, longer ways are not believed for this time: they may lead back to this gateway."""
SETTLE_S = 1.0
"""How long a new gateway that has a name waits for the tokens of others, before it may be the active one."""

MOST_KEPT = 10_000
"""Kept events that are remembered for sides that come to want them later."""


class SideRules(msgspec.Struct, frozen=True):
    """What a machine knows of a side.

    `prefix` begins the uids of origins whose events this gateway counts, as those of a CAN bus; empty if there are
    none. `tells_tokens` says whether other gateways are seen there.
    """

    name: str
    scope: Scope = Scope()
    limits: Mapping[type, RateLimit] = {}
    prefix: bytes = b""
    tells_tokens: bool = True


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
    """Where events of a class go, from one side: sides with the tests of which one must hold, None if all match."""

    targets: tuple[tuple[int, tuple[PythonFilter, ...] | None], ...]
    refused: tuple[PythonFilter, ...]
    """Tests of subscriptions that would match, but for the scope of a side."""


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
        self._interest = _Interest(self.sides, hold_s)
        self._tables: list[dict[type, _ClassTable]] = [{} for _ in sides]
        self._limiters = [Limiter(side.limits) for side in sides]
        self._seen = SeenEvents()
        self._kept: OrderedDict[str, _KeptArrival] = OrderedDict()
        """The newest event of each line of which the newest is kept."""
        self._offsets: dict[tuple[bytes, str], int] = {}
        self._election = _Election(uid, self.sides, now + settle_s if is_doubled else None)
        self._is_active = not is_doubled
        self._standby = StandbyBuffer()
        self._changed = set(range(len(self.sides)))

    # -- interest ----------------------------------------------------------------------------------------------------

    def wants_changed(self, side: int, wants: Iterable[Want], now: float) -> list[Forward]:
        """All that others want on a side, now; returns kept events that are wanted for the first time."""
        return self._follow(self._interest.replace(side, wants, now), now)

    def _follow(self, changed: set[int], now: float) -> list[Forward]:
        """The routes from some sides have changed."""
        for side in changed:
            self._tables[side].clear()
        self._changed |= changed if self._is_active else set(range(len(self.sides))) if changed else set()
        return self._pass_kept(changed, now) if changed and self._is_active else []

    def _pass_kept(self, changed: set[int], now: float) -> list[Forward]:
        found = []
        for kept in [each for each in self._kept.values() if each.side in changed]:
            targets = [each for each in self._targets(kept.side, kept.arrival.event) if each not in kept.targets]
            found += self._pass(kept.side, kept.arrival, targets, now)
        return found

    def take_changed(self) -> dict[int, list[Want]]:
        """What to want on each side where that has changed since the last call."""
        changed, self._changed = self._changed, set()
        return {side: self.wanted_on(side) for side in sorted(changed)}

    def wanted_on(self, side: int) -> list[Want]:
        """What to want on a side; a standby also wants to see what crosses, which is not to be repeated by others."""
        wants = declared(self._interest.routes[side])
        if not self._is_active:
            crossing = (route for routes in self._interest.routes for route in routes if route.target == side)
            watched = merged(route.subscription for route in crossing)
            wants += [Want("", self.uid, one, MOST_HOPS) for one in watched]
        return wants

    def routes(self, side: int) -> list[Route]:
        """The ways that events of a side take."""
        return list(self._interest.routes[side])

    def refused_wants(self, side: int) -> int:
        """How many subscriptions of a side ask for nothing that the scopes let pass."""
        return self._interest.refused(side)

    # -- events ------------------------------------------------------------------------------------------------------

    def arrived(self, side: int, arrival: Arrival, now: float) -> list[Forward]:
        """An event came from a side."""
        counts = self.counts[side]
        counts.heard += 1
        owner = self._owner(arrival.origin.uid)
        if owner == side:
            arrival, has_crossed = self._number(arrival)
            if has_crossed:
                return []
        elif owner is not None:
            self._see_crossing(arrival, side)
            return []
        elif not self._seen.add(arrival, line_of(arrival)):
            return self._heard_again(side, arrival)
        targets = self._targets(side, arrival.event)
        if not self._is_active:
            if targets:
                self._standby.hold(side, arrival, set(targets), now)
            return []
        if not targets and arrival.kept is not None:
            self._keep(side, arrival, ())
        counts.unwanted += not targets
        return self._pass(side, arrival, targets, now)

    def copy_arrived(self, side: int, event: Event) -> None:
        """An event came from a side that another gateway had sent there, without its origin; it never goes back."""
        self.counts[side].heard += 1
        self.counts[side].duplicates += 1
        self._standby.heard_copy(event, side)

    def _heard_again(self, side: int, arrival: Arrival) -> list[Forward]:
        self._standby.heard_again(arrival, side)
        self.counts[side].duplicates += 1
        return []

    def _pass(self, side: int, arrival: Arrival, targets: Iterable[int], now: float) -> list[Forward]:
        """Forward an event to some sides, if rate limits and the number of hops let it pass."""
        origin = arrival.origin
        if origin.hops >= MOST_HOPS:
            return []
        if arrival.kept is not None:
            self._keep(side, arrival, targets)
        onward = replace(arrival, origin=Origin(origin.uid, origin.number, origin.hops + 1))
        found = []
        for target in targets:
            counts = self.counts[target]
            counts.wanted += 1
            passes, dropped = self._limiters[target].admit(onward, now) if self._limiters[target] else (True, 0)
            counts.limited += dropped
            if passes:
                found.append(Forward(target, onward))
        return found

    def _keep(self, side: int, arrival: Arrival, targets: Iterable[int]) -> None:
        """Keep an event for sides that come to want it later."""
        line = line_of(arrival)
        before = self._kept.get(line)
        had = before.targets if before is not None and before.arrival is arrival else set()
        self._kept[line] = _KeptArrival(side, arrival, {*targets, *had})
        self._kept.move_to_end(line)
        if len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)

    def _targets(self, side: int, event: Event) -> list[int]:
        """The sides that want an event of a side."""
        table = self._tables[side].get(type(event))
        if table is None:
            table = self._tables[side][type(event)] = self._make_table(side, type(event))
        found = [target for target, tests in table.targets if tests is None or any(matches(event) for matches in tests)]
        if not found and any(matches(event) for matches in table.refused):
            self.counts[side].out_of_scope += 1
        return found

    def _make_table(self, side: int, cls: type) -> _ClassTable:
        asked: dict[int, list[Subscription]] = {}
        refused: list[Subscription] = []
        for route in self._interest.routes[side]:
            if route.subscription.accepts(cls):
                is_open = self.sides[side].scope.exports(cls) and self.sides[route.target].scope.imports_class(cls)
                (asked.setdefault(route.target, []) if is_open else refused).append(route.subscription)
        targets = tuple((target, _tests(subscriptions)) for target, subscriptions in sorted(asked.items()))
        return _ClassTable(targets, tuple(map(PythonFilter, refused)))

    # -- events that gateways number ---------------------------------------------------------------------------------

    def _owner(self, uid: bytes) -> int | None:
        """The side whose events this gateway counts, if the uid of an origin is of that side."""
        for number, side in enumerate(self.sides):
            if side.prefix and uid.startswith(side.prefix):
                return number
        return None

    def _number(self, arrival: Arrival) -> tuple[Arrival, bool]:
        """The event with the number that the active gateway gives it, and whether it was seen to cross already."""
        key = (arrival.origin.uid, name_of(type(arrival.event)))
        offset = self._offsets.get(key, 0)
        arrival = renumbered(arrival, offset) if offset else arrival
        further = None if self._is_active else self._standby.find_early(arrival)
        if further is None:
            return arrival, False
        self._offsets[key] = offset + further
        return arrival, True

    def _see_crossing(self, arrival: Arrival, side: int) -> None:
        """An event that gateways number came over another side: a copy of what this one counts."""
        if self._is_active:
            self.counts[side].duplicates += 1
        elif (further := self._standby.align(arrival, side)) is not None:
            key = (arrival.origin.uid, name_of(type(arrival.event)))
            self._offsets[key] = self._offsets.get(key, 0) + further

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

    def connected(self, side: int, is_connected: bool, now: float) -> list[Forward]:
        """A side was connected, or is not any more; who is not seen there is not gone for that."""
        self._election.connected(side, is_connected)
        return self._elect(now)

    def _elect(self, now: float) -> list[Forward]:
        was_active, self._is_active = self._is_active, self._election.is_won(now)
        if was_active != self._is_active:
            self._changed = set(range(len(self.sides)))
        if was_active or not self._is_active:
            return []
        found = []
        for held in self._standby.take():
            found += self._pass(held.side, held.arrival, sorted(held.targets), now)
        return found

    def tick(self, now: float) -> list[Forward]:
        """Time has passed."""
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


def _tests(subscriptions: list[Subscription]) -> tuple[PythonFilter, ...] | None:
    """Tests of which one must hold; None if a subscription asks for the type only."""
    if any(one.where is None and not one.has and not one.lacks for one in subscriptions):
        return None
    return tuple(PythonFilter(one) for one in merged(subscriptions))


class _Interest:
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
        """How many subscriptions of a side no scope lets anything through for."""
        others = [other for other in range(len(self._sides)) if other != side]
        asked = (one for entries in self._entries.values() for one in entries if one.side == side)
        return sum(not any(self._cut(one.subscription, other, side) for other in others) for one in asked)

    def replace(self, side: int, wants: Iterable[Want], now: float) -> set[int]:
        """Note all that is wanted on a side; returns the sides whose routes have changed."""
        found: dict[str, list[Entry]] = {}
        for want in wants:
            if want.hops < MOST_HOPS:
                found.setdefault(want.origin, []).append(Entry(side, want.subscription, want.hops))
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
        nearest = min((entry.hops for entry in self._entries[origin]), default=MOST_HOPS)
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


class _Election:
    """State: the gateways of the same name, and on which sides they are seen."""

    def __init__(self, uid: str, sides: Sequence[SideRules], settled_at: float | None) -> None:
        self._uid = uid
        self._settled_at = settled_at
        """When the tokens of others must have come; None: there is no election."""
        self._sides = {number for number, side in enumerate(sides) if side.tells_tokens}
        self._down: set[int] = set()
        self._seen: dict[str, set[int]] = {}

    def token(self, side: int, uid: str, is_present: bool) -> None:
        """Another gateway is seen on a side, or no more."""
        seen = self._seen.setdefault(uid, set())
        (seen.add if is_present else seen.discard)(side)
        if not seen:
            del self._seen[uid]

    def connected(self, side: int, is_connected: bool) -> None:
        """A side was connected, or is not any more."""
        (self._down.discard if is_connected else self._down.add)(side)

    def is_won(self, now: float) -> bool:
        """Whether no gateway with a lower uid can carry events between all sides that this one is connected to."""
        if self._settled_at is None:
            return True
        needed = self._sides - self._down
        rivals = (uid for uid, seen in self._seen.items() if uid < self._uid and needed <= seen)
        return now >= self._settled_at and next(rivals, None) is None

    def wake_at(self, now: float) -> float | None:
        """When the election can first be won."""
        return self._settled_at if self._settled_at is not None and now < self._settled_at else None
