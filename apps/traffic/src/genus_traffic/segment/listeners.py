"""The programs of a segment that subscribe: the gateway to the city, and the velocity monitor beside the road."""

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import msgspec

from genus import Bus, Event, Subscription
from genus.can import EventMissing
from genus_traffic.passages.finder import Found, PassageFinder, edge_of
from genus_traffic.subscribers import VELOCITY
from genus_traffic.types import Edge, Occupancy, Roadside

ORDER_US = 500_000
"""An edge expires long before it could arrive later than that."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def microseconds(time: datetime) -> int:
    """Microseconds since 1970."""
    return (time - EPOCH) // timedelta(microseconds=1)


class Arrival(msgspec.Struct, frozen=True):
    """An event, and when it arrived: true time, in microseconds since 1970."""

    at_us: int
    event: Event


class Gateway:
    """State: what left a segment, in the order of reception; from here on, the source of every event is the site."""

    SUBSCRIPTION = Subscription(Roadside)

    def __init__(self, site: str, bus: Bus, clock: Callable[[], datetime]) -> None:
        self.passed: list[Arrival] = []
        self.troubles: Counter[str] = Counter()
        self._site = site
        self._clock = clock
        bus.subscribe(self.SUBSCRIPTION, self._pass_on, on_trouble=lambda trouble: count(self.troubles, trouble))

    def _pass_on(self, event: Event) -> None:
        self.passed.append(Arrival(microseconds(self._clock()), msgspec.structs.replace(event, source=self._site)))


class FoundInLane(NamedTuple):
    """A vehicle, or a hit of one loop only, in a lane."""

    lane: int
    found: Found


class VelocityMonitor:
    """State: what is known of the vehicles in each lane.

    It subscribes to edges with lane and time, which the events of both loops have; the upper ones carry more.
    Heartbeats show that time passes, also in lanes without traffic.
    """

    EDGES = VELOCITY
    HEARTBEATS = Subscription(Occupancy, has=("time",))

    def __init__(self, bus: Bus) -> None:
        self.edges = 0
        """How many edges were received."""
        self.found: list[FoundInLane] = []
        self.troubles: Counter[str] = Counter()
        self._finders: dict[int, PassageFinder] = {}
        for subscription in (self.EDGES, self.HEARTBEATS):
            bus.subscribe(subscription, self._receive, on_trouble=lambda trouble: count(self.troubles, trouble))

    def _receive(self, event: Edge | Occupancy) -> None:
        if isinstance(event, Edge):
            self._observe(event)
        elif event.time is not None:
            self._advance(microseconds(event.time) - ORDER_US)

    def finish(self) -> None:
        """No more events come: decide what was left open."""
        for lane, finder in self._finders.items():
            self._add(lane, finder.finish())

    def _observe(self, edge: Edge) -> None:
        self.edges += 1
        if edge.lane not in self._finders:
            self._finders[edge.lane] = PassageFinder(ORDER_US)
        self._add(edge.lane, self._finders[edge.lane].feed(edge_of(edge)))

    def _advance(self, until_us: int) -> None:
        for lane, finder in self._finders.items():
            self._add(lane, finder.advance(until_us))

    def _add(self, lane: int, found: list[Found]) -> None:
        self.found += [FoundInLane(lane, each) for each in found]


def count(troubles: Counter[str], trouble: object) -> None:
    """Count a trouble by its kind; missing heartbeats are in the outcome of the channels."""
    if not isinstance(trouble, EventMissing):
        troubles[type(trouble).__name__] += 1
