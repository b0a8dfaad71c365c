"""The city's centre: one bus with the events of all segments, on which the statistics collector and a recorder listen.

Time is virtual: the current time is that of the event that arrives, and recordings get the times at which they would
have landed.
"""

import heapq
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from random import Random

import msgspec

from genus import Event, open_bus
from genus.bus import LandingFolder
from genus_traffic.centre.collector import StatisticsCollector
from genus_traffic.centre.uplink import Uplink
from genus_traffic.results import Refit
from genus_traffic.road.scene import Scene
from genus_traffic.segment.listeners import Arrival
from genus_traffic.subscribers import CONFIDENT, STATISTICS, SUBSCRIPTIONS

FILES = 24
"""About so many recordings land in a run of any length, so that a stream has something to follow."""
MAX_EVENTS_PER_FILE = 100_000
PROGRESS_STEP = 2_000
"""Events between two reports of progress."""


class CentreResult(msgspec.Struct, frozen=True, kw_only=True):
    """What arrived at the city's centre."""

    arrived: int
    out_of_order: int
    """Events that arrived after a later one of their site."""
    files: int
    matches: Mapping[str, int]
    """How many events each subscription got on the bus."""
    refit: Refit


class CityTime:
    """State: the city's time, which is that of the latest arrival."""

    def __init__(self, now_us: int) -> None:
        self.now_us = now_us

    def advance(self, to_us: int) -> None:
        """Move time forward; it never goes back."""
        self.now_us = max(self.now_us, to_us)


class CityRecorder:
    """State: a landing folder whose files are finished by the city's time."""

    def __init__(self, folder: Path, time: CityTime, every_s: float) -> None:
        self._folder = LandingFolder(folder, "city", every_s, MAX_EVENTS_PER_FILE, lambda: time.now_us / 1e6)
        self._time, self._every_us = time, round(every_s * 1e6 / 4)
        self._due_us = time.now_us + self._every_us

    def write(self, event: Event) -> None:
        """Record an event that arrives now; raises RecordingError if it cannot be written."""
        if self._time.now_us >= self._due_us:
            self._folder.tick()
            self._due_us = self._time.now_us + self._every_us
        self._folder.write(event, self._time.now_us)

    def close(self) -> int:
        """Finish the last file; returns how many have landed."""
        self._folder.close()
        return self._folder.landed


def merge_arrivals(sites: Mapping[str, Sequence[Arrival]], uplink: Uplink, seed: int) -> list[Arrival]:
    """The events of all sites in the order in which they arrive over their uplinks."""
    carried = (uplink.carry(events, f"{seed}/{site}") for site, events in sites.items())
    return list(heapq.merge(*carried, key=lambda arrival: arrival.at_us))


def run_centre(
    scene: Scene,
    arriving: Sequence[Arrival],
    published: int,
    refits: Mapping[str, int],
    landing: Path,
    progress: Callable[[float], object] | None = None,
) -> CentreResult:
    """Publish arrivals on the city's bus, where they are counted and recorded.

    Args:
        scene: The city.
        arriving: Events in order of arrival.
        published: How many events were published that conform to the collector's subscription.
        refits: When the sensor of each site was replaced.
        landing: The folder for recordings.
        progress: Called with how much is done, up to 1.
    """
    time = CityTime(scene.start_us)
    matches: Counter[str] = Counter()
    recorder = CityRecorder(landing, time, (scene.end_us - scene.start_us) / 1e6 / FILES)
    with open_bus("local:") as bus:
        collector = StatisticsCollector(bus, lambda: time.now_us)
        for name, subscription in SUBSCRIPTIONS.items():
            bus.subscribe(subscription, partial(_count, matches, name))
        for number, arrival in enumerate(arriving):
            time.advance(arrival.at_us)
            _subscribe_when_refitted(collector, refits, time.now_us)
            bus.publish(arrival.event)
            recorder.write(arrival.event)
            if progress is not None and number % PROGRESS_STEP == 0:
                progress(number / len(arriving))
    files = recorder.close()
    _set_file_times(landing, scene)
    return CentreResult(
        arrived=len(arriving),
        out_of_order=_out_of_order(arriving),
        files=files,
        matches={name: matches[name] for name in SUBSCRIPTIONS},
        refit=collector.refit(refits, published),
    )


def _count(matches: Counter[str], name: str, _: Event) -> None:
    matches[name] += 1


def _subscribe_when_refitted(collector: StatisticsCollector, refits: Mapping[str, int], now_us: int) -> None:
    """Once the last sensor is replaced, subscribe to what only the new generation reports."""
    if collector.subscribed_us is None and refits and now_us >= max(refits.values()):
        collector.subscribe_to_confidence()


def _out_of_order(arriving: Iterable[Arrival]) -> int:
    """Count events that are older than an earlier one of their site."""
    newest: dict[str, float] = {}
    count = 0
    for arrival in arriving:
        event = arrival.event
        if event.time is not None and event.source is not None:
            at = event.time.timestamp()
            count += at < newest.get(event.source, 0.0)
            newest[event.source] = max(at, newest.get(event.source, 0.0))
    return count


def _set_file_times(landing: Path, scene: Scene) -> None:
    """Set the times at which files would have landed: a stream reads them in that order."""
    files = sorted(landing.glob("*.genus"))
    span_ns = (scene.end_us - scene.start_us) * 1000
    for number, file in enumerate(files, 1):
        at_ns = scene.start_us * 1000 + span_ns * number // max(len(files), 1)
        os.utime(file, ns=(at_ns, at_ns))


# -- while the city runs -----------------------------------------------------------------------------------------------


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
