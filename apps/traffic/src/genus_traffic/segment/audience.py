"""The programs of a segment that listen: the gateway and the velocity monitor, and what comes to them."""

from collections import Counter
from collections.abc import Callable

from genus.can._node.troubles import EventMissing, Trouble
from genus.filters import Subscription
from genus.model import Event
from genus_traffic.segment.channel_book import ChannelBook
from genus_traffic.segment.stations import Station
from genus_traffic.segment.wire_watch import WireWatch
from genus_traffic.types import Occupancy


class Ear:
    """State: one program's subscription on a segment, and what came of it.

    With `is_last`, the program is the one that gets everything: what it has got is on its way no more.
    """

    def __init__(
        self, station: Station, book: ChannelBook, wire: WireWatch, program: Callable[[Event], object], *, is_last: bool
    ) -> None:
        self.heard = 0
        self.missing = 0
        """Heartbeats that were not there at their deadline."""
        self.troubles: Counter[str] = Counter()
        """What else it was told, by kind."""
        self._station = station
        self._book = book
        self._wire = wire
        self._program = program
        self._is_last = is_last

    def subscribe(self, subscription: Subscription) -> None:
        """Listen from now on."""
        self._station.call(
            lambda now: self._station.node.subscribe(subscription, self._hear, now, on_trouble=self._heed)
        )

    def _hear(self, event: Event) -> None:
        self.heard += 1
        if isinstance(event, Occupancy):
            self._note_due()
        else:
            self._note_arrival(event)
        self._program(event)

    def _note_due(self) -> None:
        """A heartbeat is handed over at the end of its slot: so the time tells whose it is."""
        entry, passed_ns = self._book.due_at(self._station.bus_now)
        entry.delivered += 1
        entry.was_due(passed_ns)

    def _note_arrival(self, event: Event) -> None:
        entry = self._wire.latest
        assert entry is not None, "an event came without a frame"
        entry.delivered += 1
        if self._is_last:
            entry.has_arrived(event, self._station.simulation.now)

    def _heed(self, trouble: Trouble) -> None:
        if not isinstance(trouble, EventMissing):
            self.troubles[type(trouble).__name__] += 1
        elif (entry := self._book.missing(trouble)) is not None:
            self.missing += 1
            entry.alarms += self._is_last
