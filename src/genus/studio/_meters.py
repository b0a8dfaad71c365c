"""Times of events as they arrive: how regular they are, and how long they took."""

from collections.abc import Mapping
from math import sqrt
from typing import NamedTuple

from genus.model import Event, name_of
from genus.studio._texts import cut, three_digits, time_us_of

MOST_SOURCES = 50
"""A type with more values of `source` than this is not told apart by them."""
MOST_METERS = 2000
OTHERS = "(others)"


class Times(NamedTuple):
    """What is known of the times of a channel."""

    jitter_ms: float | None = None
    latency_ms: float | None = None
    worst_latency_ms: float | None = None


class _Meter:
    """State: the times of one channel, by Welford's method (1962)."""

    __slots__ = ("events", "interval", "intervals", "last_ns", "late", "late_us", "squares", "worst_us")

    def __init__(self) -> None:
        self.events = self.intervals = self.late = 0
        self.interval = self.squares = 0.0
        self.late_us = 0.0
        self.worst_us = 0.0
        self.last_ns: int | None = None

    def add(self, at_ns: int, sent_us: int | None) -> None:
        self.events += 1
        if self.last_ns is not None:
            self.intervals += 1
            passed = at_ns - self.last_ns
            delta = passed - self.interval
            self.interval += delta / self.intervals
            self.squares += delta * (passed - self.interval)
        self.last_ns = at_ns
        if sent_us is not None:
            took = at_ns / 1000 - sent_us
            self.late += 1
            self.late_us += (took - self.late_us) / self.late
            self.worst_us = max(self.worst_us, took) if self.late > 1 else took

    def times(self) -> Times:
        jitter = three_digits(sqrt(self.squares / self.intervals) / 1e6) if self.intervals else None
        if not self.late:
            return Times(jitter)
        return Times(jitter, three_digits(self.late_us / 1000), three_digits(self.worst_us / 1000))


class Meters:
    """State: the meters of a bus, by type; also by the value of `source`, where there are few, if that is asked for."""

    def __init__(self, *, by_source: bool) -> None:
        self._by_source = by_source
        self._meters: dict[tuple[str, str], _Meter] = {}
        self._sources: dict[str, set[str]] = {}
        self._found: dict[tuple[type, object], _Meter] = {}

    def add(self, at_ns: int, event: Event) -> None:
        """An event arrived at a time."""
        given = type(event), event.source if self._by_source else None
        meter = self._found.get(given) or self._find(*given)
        meter.add(at_ns, time_us_of(event))

    def _find(self, cls: type, source: object) -> _Meter:
        """The meter of a class and a value of `source`; found again quickly for the next event."""
        key = name_of(cls), "" if source is None else cut(str(source))
        meter = self._meters.get(key) or self._new(key)
        if len(self._found) >= 2 * MOST_METERS:
            self._found.clear()
        self._found[cls, source] = meter
        return meter

    def skip(self, type: str, events: int) -> None:
        """There were more events of a type than could be looked at."""
        source = OTHERS if self._by_source else ""
        self._sources.setdefault(type, set()).add(source)
        self._meters.setdefault((type, source), _Meter()).events += events

    def interrupt(self) -> None:
        """Nothing is heard for a while: the next event of a channel has no interval to the one before it."""
        for meter in self._meters.values():
            meter.last_ns = None

    def _new(self, key: tuple[str, str]) -> _Meter:
        sources = self._sources.setdefault(key[0], set())
        if len(sources) >= MOST_SOURCES or len(self._meters) >= MOST_METERS:
            key = key[0], OTHERS
        sources.add(key[1])
        return self._meters.setdefault(key, _Meter())

    def by_type(self) -> Mapping[str, Mapping[str, int]]:
        """How many events came, by type and source."""
        return {name: {one: self._meters[name, one].events for one in ones} for name, ones in self._sources.items()}

    def times(self, type: str, source: str) -> Times:
        """The times of a channel."""
        meter = self._meters.get((type, source))
        return Times() if meter is None else meter.times()
