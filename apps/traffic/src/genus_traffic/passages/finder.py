"""Vehicles and their speeds, found in the edges that a pair of loops noticed in one lane.

An on and the off after it are a hit. Nobody overtakes within a lane, so the hits of both loops belong together in
order: a vehicle's hit of the lower loop comes after its hit of the upper one, and pairs never cross. Which hits are of
one vehicle is decided for one hit of the lower loop after the other:

* at once, if it fits the first vehicle that is awaited well, and no other nearly as well;
* else when some more vehicles went by (`AHEAD`) or some time did (`LOOK_AHEAD_US`): of all ways to pair what is known
  by then, the likeliest tells (`genus_traffic.passages.choice`).

A speed is given if all four edges fit one vehicle and no other explanation comes near. One-sided hits get none.

Nothing but the edges that still wait is kept, and everything happens at an instant that edges determine. So edges may
be cut anywhere: those that wait, fed again together with later ones, give what all of them at once would give.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable
from typing import NamedTuple

from genus.errors import EventError
from genus.model import micros_of_time
from genus_traffic.passages.choice import Choice, choose, quick_choice
from genus_traffic.passages.fit import Fit
from genus_traffic.passages.hits import Hit, LoopEdge, in_order
from genus_traffic.types import Edge, Loop

AHEAD = 3
"""Later hits of the lower loop that are enough to decide a doubtful one."""
LOOK_AHEAD_US = 10_000_000
"""After this time a doubtful one is decided with what there is."""
PATIENCE_US = 600_000_000
"""How long a vehicle may stand on a loop, or between them, before it counts as gone."""


_FOREVER_US = (1 << 63) - 1
_NEVER_US = 1 << 64


class Found(NamedTuple):
    """A vehicle at a pair of loops; one that only one loop noticed has neither instants of the other nor a speed."""

    upper_on_us: int | None
    upper_off_us: int | None
    lower_on_us: int | None
    lower_off_us: int | None
    speed: float | None
    """Its mean speed in m/s from the upper to the lower loop; None if it is not certain."""
    speed_leaving: float | None
    """The same of its rear."""
    length: float | None
    """Estimated, in metres."""
    category: str | None


class FoundAt(NamedTuple):
    """What was found in a lane of a site."""

    site: str
    lane: int
    found: Found


class PassageFinder:
    """Finds the passages of one lane of one site in edges as they come in.

    Edges may come out of order by up to `order_us`; what an edge says is used when one came that is later by that.

    >>> finder = PassageFinder(order_us=0)
    >>> [finder.feed(LoopEdge(at, upper, on)) for at, upper, on in
    ...  [(0, True, True), (460_000, True, False), (500_000, False, True), (960_000, False, False)]]
    [[], [], [], []]
    >>> [(found.speed, round(found.length, 2)) for found in finder.finish()]
    [(10.0, 4.6)]
    """

    def __init__(self, order_us: int = 500_000) -> None:
        self._order_us = order_us
        self._newest_us: int | None = None
        self._unordered: list[LoopEdge] = []
        self._uppers: list[Hit] = []
        self._lowers: list[Hit] = []
        self._on_lower: Hit | None = None
        self._found: list[Found] = []

    @property
    def waiting(self) -> list[LoopEdge]:
        """The edges that are not in a passage yet, in order of time."""
        hits = [*self._uppers, *self._lowers, *([self._on_lower] if self._on_lower else [])]
        return sorted([*self._unordered, *(edge for hit in hits for edge in hit.edges)], key=in_order)

    def load(self, edges: Iterable[LoopEdge]) -> None:
        """Take edges in, in any order; what they say is for `advance` or `finish` to give."""
        self._unordered = sorted([*self._unordered, *edges], key=in_order)

    def feed(self, edge: LoopEdge) -> list[Found]:
        """The passages that are certain now that an edge came."""
        insort(self._unordered, edge, key=in_order)
        newest = edge.at_us if self._newest_us is None else max(self._newest_us, edge.at_us)
        self._newest_us = newest
        return self.advance(newest - self._order_us)

    def advance(self, limit_us: int) -> list[Found]:
        """The passages that are certain now that no edge before some instant is still to come."""
        known = bisect_left(self._unordered, limit_us, key=lambda edge: edge.at_us)
        for edge in self._unordered[:known]:
            self._wait_until(edge.at_us)
            self._take(edge)
        del self._unordered[:known]
        self._wait_until(limit_us)
        return self._given_out()

    def finish(self) -> list[Found]:
        """All other passages, as no more edges come."""
        return self.advance(_FOREVER_US)

    def _given_out(self) -> list[Found]:
        found, self._found = self._found, []
        return found

    def _take(self, edge: LoopEdge) -> None:
        if not edge.upper:
            self._take_lower(edge)
        elif edge.on:
            self._uppers.append(Hit(on=edge))
        elif self._uppers and self._uppers[-1].is_open:
            self._uppers[-1].off = edge
        else:
            self._uppers.append(Hit(off=edge))

    def _take_lower(self, edge: LoopEdge) -> None:
        if edge.on:
            if self._on_lower:
                self._lower_is_over()
            self._on_lower = Hit(on=edge)
            return
        if self._on_lower:
            self._on_lower.off = edge
        else:
            self._on_lower = Hit(off=edge)
        self._lower_is_over()

    def _lower_is_over(self) -> None:
        """The hit of the lower loop has all the edges it will get."""
        assert self._on_lower is not None
        self._lowers.append(self._on_lower)
        self._on_lower = None
        self._decide_quickly()
        while len(self._lowers) > AHEAD:
            self._decide()

    def _wait_until(self, now_us: int) -> None:
        """Let time pass; what was to happen happens in order, wherever edges are cut."""
        while (due_us := self._next_due_us()) <= now_us:
            if self._lowers and self._lowers[0].last_us + LOOK_AHEAD_US == due_us:
                self._decide()
            elif self._uppers and self._uppers[0].last_us + PATIENCE_US == due_us:
                self._give_up_upper()
                self._decide_quickly()
            else:
                self._lower_is_over()

    def _next_due_us(self) -> int:
        """When something is to be decided or given up, if no edge comes before."""
        due = self._lowers[0].last_us + LOOK_AHEAD_US if self._lowers else _NEVER_US
        if self._uppers:
            due = min(due, self._uppers[0].last_us + PATIENCE_US)
        return due if self._on_lower is None else min(due, self._on_lower.last_us + PATIENCE_US)

    def _decide_quickly(self) -> None:
        while self._lowers and (choice := quick_choice(self._uppers, self._lowers[0])) is not None:
            self._settle(choice)

    def _decide(self) -> None:
        for choice in choose(self._uppers, self._lowers):
            self._settle(choice)
        self._decide_quickly()

    def _settle(self, choice: Choice) -> None:
        """Give out the first hit of the lower loop, and what comes before its partner at the upper one."""
        lower = self._lowers.pop(0)
        if choice.place is None:
            self._found.append(_passage(None, lower, None))
            return
        for _ in range(choice.place):
            self._give_up_upper()
        self._found.append(_passage(self._uppers.pop(0), lower, choice.fit))

    def _give_up_upper(self) -> None:
        self._found.append(_passage(self._uppers.pop(0), None, None))


def find_passages(edges: Iterable[LoopEdge]) -> list[Found]:
    """The passages in all edges of a lane, in any order."""
    finder = PassageFinder()
    finder.load(edges)
    return finder.finish()


def edge_of(event: Edge) -> LoopEdge:
    """An event of a loop as an edge; only upper loops say where they are."""
    if event.time is None:
        raise EventError(f"{event!r} has no time; a loop must say when it noticed a vehicle")
    category = event.category.value if isinstance(event, Loop) and event.category else None
    return LoopEdge(micros_of_time(event.time), event.place is not None, isinstance(event, Loop), category)


def _passage(upper: Hit | None, lower: Hit | None, fit: Fit | None) -> Found:
    upper_on, upper_off = (upper.on_us, upper.off_us) if upper else (None, None)
    lower_on, lower_off = (lower.on_us, lower.off_us) if lower else (None, None)
    category = upper.category if upper else None
    passage = Found(upper_on, upper_off, lower_on, lower_off, None, None, None, category)
    if fit is None:
        return passage
    return passage._replace(speed=fit.speed, speed_leaving=fit.leaving, length=fit.length)
