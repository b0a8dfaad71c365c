"""The city's centre: what arrives from all segments goes onto one bus, to the statistics collector and a recorder.

Time is virtual: it is that of the event that arrives, and files land when they would have landed.
"""

import heapq
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec

from genus import Event, open_bus
from genus.bus import LandingFolder
from genus_traffic.centre.collector import StatisticsCollector
from genus_traffic.centre.uplink import Uplink
from genus_traffic.results import Refit
from genus_traffic.road.scene import Scene
from genus_traffic.segment.listeners import Arrival
from genus_traffic.subscribers import SUBSCRIPTIONS

FILES = 24
"""About so many files a run lands, whatever its length: a stream that is worth the name."""
MOST = 100_000
"""Events to a file."""
STEP = 2_000
"""Events between two reports of progress."""


class Centre(msgspec.Struct, frozen=True, kw_only=True):
    """What the city's centre saw."""

    arrived: int
    out_of_order: int
    """Events that arrived after a later one of their site."""
    files: int
    answers: Mapping[str, int]
    """How many events each subscription got on the bus."""
    refit: Refit


class CityTime:
    """State: the city's time, which is that of the last event that arrived."""

    def __init__(self, now_us: int) -> None:
        self.now_us = now_us

    def advance(self, to_us: int) -> None:
        """Let time pass; it never goes back."""
        self.now_us = max(self.now_us, to_us)


class CityRecorder:
    """State: a landing folder that is looked after as the city's time passes. What cannot be written is raised."""

    def __init__(self, folder: Path, time: CityTime, every_s: float) -> None:
        self._folder = LandingFolder(folder, "city", every_s, MOST, lambda: time.now_us / 1e6)
        self._time, self._every_us = time, round(every_s * 1e6 / 4)
        self._due_us = time.now_us + self._every_us

    def write(self, event: Event) -> None:
        """Record an event that arrived just now."""
        if self._time.now_us >= self._due_us:
            self._folder.tick()
            self._due_us = self._time.now_us + self._every_us
        self._folder.write(event, self._time.now_us)

    def close(self) -> int:
        """Land what is left; how many files have landed."""
        self._folder.close()
        return self._folder.landed


def arrivals(sites: Mapping[str, Sequence[Arrival]], uplink: Uplink, seed: int) -> list[Arrival]:
    """What arrives from all sites, in order of arrival."""
    carried = (uplink.carry(events, f"{seed}/{site}") for site, events in sites.items())
    return list(heapq.merge(*carried, key=lambda arrival: arrival.at_us))


def run_centre(
    scene: Scene,
    arriving: Sequence[Arrival],
    published: int,
    refits: Mapping[str, int],
    landing: Path,
    progress: Callable[[float], object] | None = None,
) -> Centre:
    """Publish what arrives on the city's bus, and let it be counted and recorded; `refits` are when sensors changed."""
    time = CityTime(scene.start_us)
    got: Counter[str] = Counter()
    recorder = CityRecorder(landing, time, (scene.end_us - scene.start_us) / 1e6 / FILES)
    with open_bus("local:") as bus:
        collector = StatisticsCollector(bus, lambda: time.now_us)
        for name, subscription in SUBSCRIPTIONS.items():
            bus.subscribe(subscription, partial(_count, got, name))
        for number, arrival in enumerate(arriving):
            time.advance(arrival.at_us)
            _ask_when_refitted(collector, refits, time.now_us)
            bus.publish(arrival.event)
            recorder.write(arrival.event)
            if progress is not None and number % STEP == 0:
                progress(number / len(arriving))
    files = recorder.close()
    _date(landing, scene)
    return Centre(
        arrived=len(arriving),
        out_of_order=_out_of_order(arriving),
        files=files,
        answers={name: got[name] for name in SUBSCRIPTIONS},
        refit=collector.refit(refits, published),
    )


def _count(got: Counter[str], name: str, _: Event) -> None:
    got[name] += 1


def _ask_when_refitted(collector: StatisticsCollector, refits: Mapping[str, int], now_us: int) -> None:
    """Once the last sensor is replaced, the collector asks for what all of them can say now."""
    if collector.asked_us is None and refits and now_us >= max(refits.values()):
        collector.ask_for_confidence()


def _out_of_order(arriving: Iterable[Arrival]) -> int:
    newest: dict[str, float] = {}
    count = 0
    for arrival in arriving:
        event = arrival.event
        if event.time is not None and event.source is not None:
            at = event.time.timestamp()
            count += at < newest.get(event.source, 0.0)
            newest[event.source] = max(at, newest.get(event.source, 0.0))
    return count


def _date(landing: Path, scene: Scene) -> None:
    """Give files the times at which they would have landed: a stream takes them in that order."""
    files = sorted(landing.glob("*.genus"))
    span_ns = (scene.end_us - scene.start_us) * 1000
    for number, file in enumerate(files, 1):
        at_ns = scene.start_us * 1000 + span_ns * number // max(len(files), 1)
        os.utime(file, ns=(at_ns, at_ns))
