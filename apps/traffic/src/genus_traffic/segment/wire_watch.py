"""What is on the wire of a segment: every frame that took the bus, whose it was, and whom filters kept it away from."""

from typing import NamedTuple

from genus.can._sim.fault_hooks import Outcome
from genus.can._sim.simulation import Simulation
from genus.can._sim.trace import Header, Trace
from genus.can._wire.frame import ETAG_MASK, NODE_SHIFT, Frame
from genus.can._wire.segments import LAST
from genus.can._world.meter import FLOW_MASK
from genus_traffic.segment.channel_book import ChannelBook, Entry
from genus_traffic.segment.plan import NUMBERS, city_catalog

NODES = {number: name for name, number in NUMBERS.items()}


class Span(NamedTuple):
    """A frame's time on the bus, in nanoseconds of virtual time."""

    start_ns: int
    end_ns: int
    id: int
    is_good: bool


class WireWatch(Trace):
    """State: what was on the wire."""

    def __init__(self, simulation: Simulation, book: ChannelBook) -> None:
        super().__init__(Header())
        self.spans: list[Span] = []
        self.frames = self.errors = 0
        self.latest: Entry | None = None
        """The channel of the frame that has just ended: what programs are handed at this instant came in it."""
        self._book = book
        self._known: dict[int, Entry | None] = {}
        self._stations = simulation.bus.controllers
        simulation.trace = simulation.bus.trace = self

    def record(
        self,
        start_ns: int,
        end_ns: int,
        frame: Frame,
        senders: tuple[int, ...],
        outcome: Outcome,
        heard: tuple[int, ...],
        missed: tuple[int, ...] = (),
        segment: int = 0,
    ) -> None:
        """A frame took the bus, well or not."""
        good = outcome.is_good
        self.spans.append(Span(start_ns, end_ns, frame.id, good))
        if not good:
            self.errors += 1
            return
        self.frames += 1
        self.latest = entry = self.entry_of(frame.id)
        if entry is not None and (not entry.channel.segmented or frame.data[-1] & LAST):
            entry.filtered += len(self._stations) - len(senders) - len(heard) - len(missed)

    def entry_of(self, identifier: int) -> Entry | None:
        """The channel of a frame; None if it is one of the middleware's own."""
        key = identifier & FLOW_MASK
        if key not in self._known:
            self._known[key] = self._find(key)
        return self._known[key]

    def _find(self, key: int) -> Entry | None:
        event = city_catalog().type_of(key & ETAG_MASK)
        return None if event is None else self._book.entry_of(event, NODES[key >> NODE_SHIFT])
