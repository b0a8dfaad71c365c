"""`VelocityMonitor`: measures speeds on a site's segment, from the edges of both loops of each lane as they come."""

from typing import NamedTuple

from genus.filters import Subscription
from genus.model import micros_of_time
from genus_traffic.passages.finder import Found, PassageFinder, edge_of
from genus_traffic.subscribers import VELOCITY
from genus_traffic.types import Edge, Occupancy

ORDER_US = 500_000
"""An edge expires long before it could come later than that."""


class FoundInLane(NamedTuple):
    """A vehicle, or a hit of one loop only, in a lane."""

    lane: int
    found: Found


class VelocityMonitor:
    """State: what is known of the vehicles in each lane.

    It asks for lane and time, which the events of both loops have: the upper ones have more, and that does no harm.
    Heartbeats tell it that time passes, also where nobody drives.
    """

    EDGES = VELOCITY
    HEARTBEATS = Subscription(Occupancy, has=("time",))

    def __init__(self) -> None:
        self.heard = 0
        """How many edges came."""
        self.found: list[FoundInLane] = []
        self._finders: dict[int, PassageFinder] = {}

    def hear(self, event: Edge | Occupancy) -> None:
        """Take an event into account."""
        if isinstance(event, Edge):
            self._observe(event)
        elif event.time is not None:
            self._let_pass(micros_of_time(event.time) - ORDER_US)

    def finish(self) -> None:
        """Nothing comes any more: decide what was left open."""
        for lane, finder in self._finders.items():
            self._note(lane, finder.finish())

    def _observe(self, edge: Edge) -> None:
        self.heard += 1
        if edge.lane not in self._finders:
            self._finders[edge.lane] = PassageFinder(ORDER_US)
        self._note(edge.lane, self._finders[edge.lane].feed(edge_of(edge)))

    def _let_pass(self, until_us: int) -> None:
        for lane, finder in self._finders.items():
            self._note(lane, finder.advance(until_us))

    def _note(self, lane: int, found: list[Found]) -> None:
        self.found += [FoundInLane(lane, each) for each in found]
