"""The subscribing programs of a segment: the gateway to the city, and the roadside velocity monitor."""

from collections import Counter
from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple

import msgspec

from genus import Bus, Event, Subscription
from genus.can import EventMissing
from genus.model import micros_of_time
from genus_traffic.passages.finder import MeasuredPassage, PassageFinder, to_loop_edge
from genus_traffic.subscribers import VELOCITY
from genus_traffic.types import Edge, Occupancy, Roadside

ORDER_US = 500_000
"""How much edges may be out of order: they expire long before that."""


class Arrival(msgspec.Struct, frozen=True):
    """An event, and when it arrived: true time, in microseconds since 1970."""

    at_us: int
    event: Event


class Gateway:
    """State: the events that leave a segment, in order of reception, with the site as their source."""

    SUBSCRIPTION = Subscription(Roadside)

    def __init__(self, site: str, bus: Bus, clock: Callable[[], datetime]) -> None:
        self.forwarded: list[Arrival] = []
        self.troubles: Counter[str] = Counter()
        self._site = site
        self._clock = clock
        bus.subscribe(self.SUBSCRIPTION, self._forward, on_problem=lambda trouble: count(self.troubles, trouble))

    def take(self) -> list[Arrival]:
        """The events that left since the last call, which are forgotten here."""
        taken, self.forwarded = self.forwarded, []
        return taken

    def _forward(self, event: Event) -> None:
        self.forwarded.append(Arrival(micros_of_time(self._clock()), msgspec.structs.replace(event, source=self._site)))


class LanePassage(NamedTuple):
    """A vehicle, or a hit of one loop only, in a lane."""

    lane: int
    passage: MeasuredPassage


class VelocityMonitor:
    """State: the vehicles of each lane that are being measured, and those that are done.

    It subscribes to edges with lane and time, which the events of both loops have; the upper ones carry more.
    Heartbeats show that time passes in lanes without traffic too.
    """

    EDGES = VELOCITY
    HEARTBEATS = Subscription(Occupancy, has=("time",))

    def __init__(self, bus: Bus) -> None:
        self.edges = 0
        """How many edges were received."""
        self.found: list[LanePassage] = []
        self.troubles: Counter[str] = Counter()
        self._finders: dict[int, PassageFinder] = {}
        for subscription in (self.EDGES, self.HEARTBEATS):
            bus.subscribe(subscription, self._receive, on_problem=lambda trouble: count(self.troubles, trouble))

    def _receive(self, event: Edge | Occupancy) -> None:
        if isinstance(event, Edge):
            self._observe(event)
        elif event.time is not None:
            self._advance(micros_of_time(event.time) - ORDER_US)

    def finish(self) -> None:
        """Decide what is still open, as no more events come."""
        for lane, finder in self._finders.items():
            self._add(lane, finder.finish())

    def _observe(self, edge: Edge) -> None:
        self.edges += 1
        if edge.lane not in self._finders:
            self._finders[edge.lane] = PassageFinder(ORDER_US)
        self._add(edge.lane, self._finders[edge.lane].feed(to_loop_edge(edge)))

    def _advance(self, until_us: int) -> None:
        for lane, finder in self._finders.items():
            self._add(lane, finder.advance(until_us))

    def _add(self, lane: int, found: list[MeasuredPassage]) -> None:
        self.found += [LanePassage(lane, each) for each in found]


def count(troubles: Counter[str], trouble: object) -> None:
    """Count a trouble by its class; the outcome of the channels has missing heartbeats."""
    if not isinstance(trouble, EventMissing):
        troubles[type(trouble).__name__] += 1
