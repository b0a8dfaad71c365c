"""Find vehicles and their speeds in the edges of a pair of loops in one lane.

A leading edge (on) and the next trailing edge (off) of a loop are a hit. Vehicles do not overtake within a lane, so
hits of both loops are in the same order: a vehicle's hit of the lower loop comes after its hit of the upper one, and
pairs never cross. The hits of the lower loop are decided one after the other:

* at once, if it fits the first waiting hit of the upper loop well, and no other nearly as well;
* otherwise after `AHEAD` more vehicles or `LOOK_AHEAD_US`: by the likeliest of all ways to pair the hits that are known
  by then (`genus_traffic.passages.hits`).

A speed is given if all four edges fit one vehicle and no other explanation is nearly as likely. One-sided hits have no
speed.

The only state are the waiting edges, and every decision is made at an instant that edges determine. So a stream may be
cut anywhere: waiting edges, fed again together with later ones, give the same passages as all edges at once.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable
from typing import NamedTuple

from genus.errors import EventError
from genus.model import micros_of_time
from genus_traffic.passages.fit import Fit
from genus_traffic.passages.hits import Choice, Hit, LoopEdge, choose, in_order, quick_choice
from genus_traffic.types import Edge, Loop

AHEAD = 3
"""A doubtful hit of the lower loop is decided after so many later ones."""
LOOK_AHEAD_US = 10_000_000
"""A doubtful hit is decided after this time at the latest."""
PATIENCE_US = 600_000_000
"""How long a vehicle may stand on a loop, or between them, before it counts as gone."""


_FOREVER_US = (1 << 63) - 1
_NEVER_US = 1 << 64


class MeasuredPassage(NamedTuple):
    """A vehicle at a pair of loops; one that only one loop noticed has neither instants of the other nor a speed."""

    upper_on_us: int | None
    upper_off_us: int | None
    lower_on_us: int | None
    lower_off_us: int | None
    speed: float | None
    """Mean speed of its front in m/s from the upper to the lower loop; None if it is not certain."""
    speed_leaving: float | None
    """Mean speed of its rear."""
    length: float | None
    """Estimated, in metres."""
    category: str | None


class SitePassage(NamedTuple):
    """A passage with its site and lane."""

    site: str
    lane: int
    passage: MeasuredPassage


class PassageFinder:
    """Finds the passages of one lane of one site in edges as they come in.

    Edges may be out of order by up to `order_us`: an edge is used once a later one by at least that has arrived.

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
        self._found: list[MeasuredPassage] = []

    @property
    def waiting(self) -> list[LoopEdge]:
        """The edges that are not part of a passage yet, in order of time."""
        hits = [*self._uppers, *self._lowers, *([self._on_lower] if self._on_lower else [])]
        return sorted([*self._unordered, *(edge for hit in hits for edge in hit.edges)], key=in_order)

    def load(self, edges: Iterable[LoopEdge]) -> None:
        """Add edges in any order; `advance` and `finish` return their passages."""
        self._unordered = sorted([*self._unordered, *edges], key=in_order)

    def feed(self, edge: LoopEdge) -> list[MeasuredPassage]:
        """Add an edge, and return the passages that are decided now."""
        insort(self._unordered, edge, key=in_order)
        newest = edge.at_us if self._newest_us is None else max(self._newest_us, edge.at_us)
        self._newest_us = newest
        return self.advance(newest - self._order_us)

    def advance(self, limit_us: int) -> list[MeasuredPassage]:
        """Return the passages that are decided now that all edges before an instant are known."""
        known = bisect_left(self._unordered, limit_us, key=lambda edge: edge.at_us)
        for edge in self._unordered[:known]:
            self._wait_until(edge.at_us)
            self._take(edge)
        del self._unordered[:known]
        self._wait_until(limit_us)
        return self._pop_found()

    def finish(self) -> list[MeasuredPassage]:
        """Return all other passages, as no more edges come."""
        return self.advance(_FOREVER_US)

    def _pop_found(self) -> list[MeasuredPassage]:
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
                self._end_lower()
            self._on_lower = Hit(on=edge)
            return
        if self._on_lower:
            self._on_lower.off = edge
        else:
            self._on_lower = Hit(off=edge)
        self._end_lower()

    def _end_lower(self) -> None:
        """The current hit of the lower loop is complete, or will not be."""
        assert self._on_lower is not None
        self._lowers.append(self._on_lower)
        self._on_lower = None
        self._decide_quickly()
        while len(self._lowers) > AHEAD:
            self._decide()

    def _wait_until(self, now_us: int) -> None:
        """Make all decisions that are due by an instant, in order of time."""
        while (due_us := self._next_due_us()) <= now_us:
            if self._lowers and self._lowers[0].last_us + LOOK_AHEAD_US == due_us:
                self._decide()
            elif self._uppers and self._uppers[0].last_us + PATIENCE_US == due_us:
                self._give_up_upper()
                self._decide_quickly()
            else:
                self._end_lower()

    def _next_due_us(self) -> int:
        """When the next decision is due, if no edge comes before."""
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
        """Emit the first hit of the lower loop, and the hits before its partner at the upper one."""
        lower = self._lowers.pop(0)
        if choice.upper is None:
            self._found.append(_passage(None, lower, None))
            return
        for _ in range(choice.upper):
            self._give_up_upper()
        self._found.append(_passage(self._uppers.pop(0), lower, choice.fit))

    def _give_up_upper(self) -> None:
        self._found.append(_passage(self._uppers.pop(0), None, None))


def find_passages(edges: Iterable[LoopEdge]) -> list[MeasuredPassage]:
    """Find the passages in all edges of a lane, in any order."""
    finder = PassageFinder()
    finder.load(edges)
    return finder.finish()


def to_loop_edge(event: Edge) -> LoopEdge:
    """Convert an event to an edge; only events of upper loops have a place."""
    if event.time is None:
        raise EventError(f"{event!r} has no time; edges need one")
    category = event.category.value if isinstance(event, Loop) and event.category else None
    return LoopEdge(micros_of_time(event.time), event.place is not None, isinstance(event, Loop), category)


def _passage(upper: Hit | None, lower: Hit | None, fit: Fit | None) -> MeasuredPassage:
    upper_on, upper_off = (upper.on_us, upper.off_us) if upper else (None, None)
    lower_on, lower_off = (lower.on_us, lower.off_us) if lower else (None, None)
    category = upper.category if upper else None
    passage = MeasuredPassage(upper_on, upper_off, lower_on, lower_off, None, None, None, category)
    if fit is None:
        return passage
    return passage._replace(speed=fit.speed, speed_leaving=fit.leaving, length=fit.length)
