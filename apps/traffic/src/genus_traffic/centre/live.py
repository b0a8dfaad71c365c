"""The city's centre while the city runs: what the gateways forward arrives on a bus, on which the programs listen."""

import heapq
from collections.abc import Iterable
from random import Random

from genus import Event, open_bus
from genus_traffic.centre.centre import CityTime
from genus_traffic.centre.collector import StatisticsCollector
from genus_traffic.centre.uplink import Uplink
from genus_traffic.segment.listeners import Arrival
from genus_traffic.subscribers import CONFIDENT, STATISTICS, SUBSCRIPTIONS


class LiveCentre:
    """State: the city's bus, its time, and the events that are on their way.

    The uplinks delay events, and some of them by seconds; they do not fail here.
    """

    def __init__(self, start_us: int, seed: int) -> None:
        self.bus = open_bus("local:")
        self.collector = StatisticsCollector(self.bus, lambda: self._time.now_us)
        self.now_ns = start_us * 1000
        """How far it has come; while an event is published, when that arrives."""
        self._time = CityTime(start_us)
        self._uplink = Uplink()
        self._seed = seed
        self._delays: dict[str, Random] = {}
        self._coming: list[tuple[int, int, Event]] = []
        self._taken = 0
        for subscription in SUBSCRIPTIONS.values():
            if subscription not in (STATISTICS, CONFIDENT):  # the collector's
                self.bus.subscribe(subscription, _receive)

    def take(self, site: str, arrivals: Iterable[Arrival]) -> None:
        """Events left a site."""
        random = self._delays.setdefault(site, Random(f"{self._seed}/{site}/uplink"))
        for arrival in arrivals:
            self._taken += 1
            arrives_us = arrival.at_us + self._uplink.delay_us(random)
            heapq.heappush(self._coming, (arrives_us, self._taken, arrival.event))

    def advance(self, until_ns: int) -> None:
        """Publish what has arrived by then, each event at its time."""
        while self._coming and self._coming[0][0] * 1000 <= until_ns:
            at_us, _, event = heapq.heappop(self._coming)
            self._time.advance(at_us)
            self.now_ns = max(self.now_ns, at_us * 1000)
            self.bus.publish(event)
        self.now_ns = max(self.now_ns, until_ns)


def _receive(event: Event) -> None:
    """The bus counts what each program gets."""
