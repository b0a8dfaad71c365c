"""`StatisticsCollector`: counts the vehicles of a city, by what one loop of every pair says of them.

It asks for time, place and category. Events of the next generation of sensors have these too, and so it receives old
and new ones alike, whatever is replaced when. What only the new ones say it asks for in a second subscription, when it
is worth it: the first one stays as it is.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise

from genus.bus import Bus
from genus.model import micros_of_time
from genus_traffic.results import Received, Refit
from genus_traffic.subscribers import CONFIDENT, STATISTICS
from genus_traffic.types import ConfidentLoop, Loop

MINUTE_US = 60_000_000
AROUND_US = 60_000_000
"""So long before and after a refit, pauses are looked for."""
SPANS = 120
"""About so many spans of time a refit is shown in."""
SHORTEST_SPAN_US = 1_000_000


class Passed:
    """State: when the vehicles of one site passed that the collector knows of, in microseconds since 1970."""

    def __init__(self) -> None:
        self.old = array("q")
        """Told by the first generation of sensors."""
        self.new = array("q")
        """Told by the next one."""

    def times(self) -> list[int]:
        """All of them, in order."""
        return sorted([*self.old, *self.new])


class StatisticsCollector:
    """State: what was counted, by site, category and minute; `clock` is the city's time, in microseconds."""

    def __init__(self, bus: Bus, clock: Callable[[], int]) -> None:
        self.counts: Counter[tuple[str, str, int]] = Counter()
        """By site, category and the start of the minute in microseconds since 1970."""
        self.delivered = 0
        self.confident = 0
        """What the second subscription got."""
        self.asked_us: int | None = None
        """When that was made."""
        self._bus = bus
        self._clock = clock
        self._passed: dict[str, Passed] = {}
        self.listener = bus.subscribe(STATISTICS, self._count)

    def ask_for_confidence(self) -> None:
        """Ask for those events too that say how sure they are; asking twice changes nothing."""
        if self.asked_us is None:
            self.asked_us = self._clock()
            self._bus.subscribe(CONFIDENT, self._count_confident)

    def _count(self, event: Loop) -> None:
        assert event.time is not None
        assert event.category is not None
        site, at_us = event.source or "", micros_of_time(event.time)
        self.delivered += 1
        self.counts[site, event.category.value, at_us // MINUTE_US * MINUTE_US] += 1
        passed = self._passed.setdefault(site, Passed())
        (passed.new if isinstance(event, ConfidentLoop) else passed.old).append(at_us)

    def _count_confident(self, _: Loop) -> None:
        self.confident += 1

    # The refit, as seen from here

    def refit(self, refits: Mapping[str, int], published: int) -> Refit:
        """How the refit of sites at these instants went, of which so many events were published for the collector."""
        span_us = self._span_us()
        return Refit(
            span_us=span_us,
            received=tuple(self._received(span_us)),
            published=published,
            delivered=self.delivered,
            asked_us=self.asked_us,
            confident=self.confident,
            longest_pause_s={site: self._longest_pause_s(site, at_us) for site, at_us in refits.items()},
        )

    def _span_us(self) -> int:
        """A whole number of seconds, so that there are about as many spans as can be told apart in a picture."""
        times = [time for passed in self._passed.values() for time in (*passed.old, *passed.new)]
        lasted_us = max(times, default=0) - min(times, default=0)
        return max(SHORTEST_SPAN_US, -(-lasted_us // (SPANS * SHORTEST_SPAN_US)) * SHORTEST_SPAN_US)

    def _received(self, span_us: int) -> Iterator[Received]:
        """Every span of every site from its first vehicle to its last, those in which none came included."""
        for site, passed in self._passed.items():
            old, new = (Counter(time // span_us for time in times) for times in (passed.old, passed.new))
            for span in range(min([*old, *new]), max([*old, *new]) + 1):
                yield Received(site=site, start_us=span * span_us, old=old[span], new=new[span])

    def _longest_pause_s(self, site: str, refit_us: int) -> float:
        times = self._passed[site].times() if site in self._passed else []
        first = max(0, bisect_left(times, refit_us - AROUND_US) - 1)
        around = times[first : bisect_right(times, refit_us + AROUND_US) + 1]
        return max((after - before for before, after in pairwise(around)), default=0) / 1e6
