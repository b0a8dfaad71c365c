"""`Uplink`: an unreliable link from a site's gateway to the city's centre.

Most events take some milliseconds. Some are retransmitted and arrive seconds later, out of order. Once in a run the
link fails: the gateway queues events and sends them when the link is back. A few arrive minutes later, after the
allowed lateness. No event is lost or duplicated.
"""

from collections.abc import Iterable, Iterator
from random import Random

import msgspec

from genus_traffic.segment.listeners import Arrival


class Uplink(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of a link; times are in microseconds."""

    latency_us: int = 30_000
    """The least delay of an event; at most twice as long."""
    straggling: float = 0.02
    """The share of events that are retransmitted."""
    straggle_us: int = 4_000_000
    """Their additional delay, at most."""
    outage_us: int = 20_000_000
    """How long the link fails, once in a run that is long enough; 0: never."""
    resend_us: int = 2_000
    """The time between two queued events when the link is back."""
    late: int = 3
    """How many events of a site arrive much later."""
    late_us: int = 120_000_000
    """Their additional delay, at least; at most twice as long."""

    def carry(self, events: Iterable[Arrival], seed: int | str) -> list[Arrival]:
        """The same events with their times of arrival at the centre, in that order.

        >>> from genus_traffic.types import Cleared
        >>> left = [Arrival(second * 1_000_000, Cleared(lane=second % 3)) for second in range(100)]
        >>> arrived = Uplink(late=1).carry(left, seed=1)
        >>> [each.event for each in arrived] == [each.event for each in left]
        False
        >>> sorted(each.event.lane for each in arrived) == sorted(each.event.lane for each in left)
        True
        """
        leaving = list(events)
        random = Random(f"uplink/{seed}")
        late = set(random.sample(range(len(leaving)), min(self.late, len(leaving))))
        begins, ends = self._outage(leaving, random)
        arrived, free_us = [], ends
        for number, each in enumerate(leaving):
            leaves_us = each.at_us
            if begins <= leaves_us < ends:
                leaves_us = free_us = free_us + self.resend_us
            arrives_us = leaves_us + self.delay_us(random, is_late=number in late)
            arrived.append(Arrival(arrives_us, each.event))
        return sorted(arrived, key=lambda arrival: arrival.at_us)

    def _outage(self, leaving: list[Arrival], random: Random) -> tuple[int, int]:
        """From when to when the link fails: at a random time, if the run is at least three times as long."""
        if not leaving or not self.outage_us:
            return 0, 0
        first, last = leaving[0].at_us, leaving[-1].at_us
        slack = last - first - 3 * self.outage_us
        if slack < 0:
            return 0, 0
        begins = first + self.outage_us + random.randint(0, slack)
        return begins, begins + self.outage_us

    def delay_us(self, random: Random, *, is_late: bool = False) -> int:
        """How long an event takes while the link works."""
        return sum(self._delays(random, is_late))

    def _delays(self, random: Random, is_late: bool) -> Iterator[int]:
        yield self.latency_us + random.randint(0, self.latency_us)
        if random.random() < self.straggling:
            yield random.randint(0, self.straggle_us)
        if is_late:
            yield self.late_us + random.randint(0, self.late_us)
