"""`StatisticsCollector`: counts the vehicles of a city by the events of the upper loops.

It subscribes to events with time, place and category. Those of the next generation of sensors have these attributes
too, so it receives old and new ones while sensors are replaced. A second subscription, made once all sensors are
replaced, selects events with a confidence; the first one is not changed.
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
PAUSE_WINDOW_US = 60_000_000
"""How long before and after a refit the longest pause is looked for."""
SPANS = 120
"""About so many spans of time are in the chart of a refit."""
SHORTEST_SPAN_US = 1_000_000


class PassageTimes:
    """State: the times of a site's vehicles, in microseconds since 1970."""

    def __init__(self) -> None:
        self.old = array("q")
        """Reported by the first generation of sensors."""
        self.new = array("q")
        """Reported by the next one."""

    def times(self) -> list[int]:
        """All times, in order."""
        return sorted([*self.old, *self.new])


class StatisticsCollector:
    """State: vehicles by site, category and minute.

    Args:
        bus: The city's bus.
        clock: The city's time, in microseconds since 1970.
    """

    def __init__(self, bus: Bus, clock: Callable[[], int]) -> None:
        self.counts: Counter[tuple[str, str, int]] = Counter()
        """Vehicles by site, category and start of the minute (microseconds since 1970)."""
        self.delivered = 0
        self.confident = 0
        """Events of the second subscription."""
        self.subscribed_us: int | None = None
        """When the second subscription was made."""
        self._bus = bus
        self._clock = clock
        self._passed: dict[str, PassageTimes] = {}
        self.listener = bus.subscribe(STATISTICS, self._count)

    def subscribe_to_confidence(self) -> None:
        """Subscribe to events with a confidence; a second call changes nothing."""
        if self.subscribed_us is None:
            self.subscribed_us = self._clock()
            self._bus.subscribe(CONFIDENT, self._count_confident)

    def _count(self, event: Loop) -> None:
        assert event.time is not None
        assert event.category is not None
        site, at_us = event.source or "", micros_of_time(event.time)
        self.delivered += 1
        self.counts[site, event.category.value, at_us // MINUTE_US * MINUTE_US] += 1
        passed = self._passed.setdefault(site, PassageTimes())
        (passed.new if isinstance(event, ConfidentLoop) else passed.old).append(at_us)

    def _count_confident(self, _: Loop) -> None:
        self.confident += 1

    # -- the refit --------------------------------------------------------------------------------------------------

    def refit(self, refits: Mapping[str, int], published: int) -> Refit:
        """Results of a refit at the given instants; `published` events conformed to the first subscription."""
        span_us = self._span_us()
        return Refit(
            span_us=span_us,
            received=tuple(self._received(span_us)),
            published=published,
            delivered=self.delivered,
            asked_us=self.subscribed_us,
            confident=self.confident,
            longest_pause_s={site: self._longest_pause_s(site, at_us) for site, at_us in refits.items()},
        )

    def _span_us(self) -> int:
        """The length of a span: whole seconds, so that there are at most about `SPANS` of them."""
        times = [time for passed in self._passed.values() for time in (*passed.old, *passed.new)]
        lasted_us = max(times, default=0) - min(times, default=0)
        return max(SHORTEST_SPAN_US, -(-lasted_us // (SPANS * SHORTEST_SPAN_US)) * SHORTEST_SPAN_US)

    def _received(self, span_us: int) -> Iterator[Received]:
        """Every span of every site from its first vehicle to its last, empty ones included."""
        for site, passed in self._passed.items():
            old, new = (Counter(time // span_us for time in times) for times in (passed.old, passed.new))
            for span in range(min([*old, *new]), max([*old, *new]) + 1):
                yield Received(site=site, start_us=span * span_us, old=old[span], new=new[span])

    def _longest_pause_s(self, site: str, refit_us: int) -> float:
        times = self._passed[site].times() if site in self._passed else []
        first = max(0, bisect_left(times, refit_us - PAUSE_WINDOW_US) - 1)
        around = times[first : bisect_right(times, refit_us + PAUSE_WINDOW_US) + 1]
        return max((after - before for before, after in pairwise(around)), default=0) / 1e6
