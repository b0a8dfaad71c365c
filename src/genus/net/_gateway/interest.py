"""`Interest`: what the subscribers of all networks want, as a gateway sees it, and the routes that follow from it."""

from collections.abc import Iterable, Sequence

from genus.filters import Subscription
from genus.net._envelope import MOST_HOPS
from genus.net._gateway.routes import Entry, Route, routes_from
from genus.net._gateway.scope import SideRules, cut
from genus.net._relay import Want

HOLD_S = 0.1
"""After a way to an origin was lost, longer ways are not believed for this time: they may lead back to this gateway."""


class Interest:
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
