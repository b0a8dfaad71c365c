"""Rates of channels, from counters that only grow, and times of events: how regular they are, how long they took."""

from collections import deque
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from genus._spread import Spread
from genus.model import Event, name_of
from genus.studio._texts import cut, three_digits, time_us_of

SECONDS = 60
"""How many seconds a history has."""
KEEP_S = 300.0
"""After this time without a note, a key is forgotten."""
_WINDOW_S = 1.0
_STEP_S = 0.2
MAX_SOURCES = 50
"""A type with more values of `source` than this is not told apart by them."""
MAX_METERS = 2000
OTHER_CLOCK_US = 3_600_000_000.0
"""An event whose `time` is off by an hour has it from another clock, such as a simulation's: no latency is known."""
OTHERS = "(others)"


class Rates:
    """The rate of counters, by key: over the last second, and for each of the last 60 seconds.

    Time is an argument, in seconds of a clock of the caller's; a recording's rates can so be of its own time. If time
    or a counter goes back, the counter's rate starts anew and its history continues. A key that is not noted for five
    minutes is forgotten.

        >>> rates = Rates()
        >>> for second in range(4):
        ...     rates.note("Loop", 10 * second, float(second))
        >>> rates.rate("Loop"), rates.history("Loop")
        (10.0, (10.0, 10.0, 10.0))
        >>> rates.rate("never noted"), rates.history("never noted")
        (0.0, ())
    """

    def __init__(self) -> None:
        self._series: dict[str, _Series] = {}
        self._swept_s: float | None = None

    def note(self, key: str, count: int, now_s: float) -> None:
        """Tell the value of a counter, the total so far, at a time."""
        series = self._series.get(key)
        if series is None:
            series = self._series[key] = _Series(count, now_s)
        else:
            series.note(count, now_s)
        self._sweep(now_s)

    def rate(self, key: str) -> float:
        """Counts a second, over the last second before the last note; 0 for an unknown key."""
        series = self._series.get(key)
        return 0.0 if series is None else series.rate()

    def history(self, key: str) -> tuple[float, ...]:
        """Counts in each of the last 60 whole seconds, the oldest first; fewer if it was noted for a shorter time."""
        series = self._series.get(key)
        return () if series is None else tuple(series.history)

    def restart(self) -> None:
        """Begin anew after a leap of time: the counters go on, what they gained meanwhile is in no rate."""
        for series in self._series.values():
            series.is_new = True

    def __iter__(self) -> Iterator[str]:
        return iter(self._series)

    def __len__(self) -> int:
        return len(self._series)

    def _sweep(self, now_s: float) -> None:
        if self._swept_s is not None and 0.0 <= now_s - self._swept_s < KEEP_S / 10:
            return
        self._swept_s = now_s
        old = [key for key, series in self._series.items() if now_s - series.last_s > KEEP_S]
        for key in old:
            del self._series[key]


class _Series:
    """The notes of one key."""

    __slots__ = ("base", "base_s", "history", "is_new", "last", "last_s", "second", "window")

    def __init__(self, count: int, now_s: float) -> None:
        self.history: deque[float] = deque(maxlen=SECONDS)
        self._start(count, now_s)

    def _start(self, count: int, now_s: float) -> None:
        self.window = deque([(now_s, count)])
        self.base, self.base_s, self.second = count, now_s, now_s // 1.0
        self.last, self.last_s, self.is_new = count, now_s, False

    def note(self, count: int, now_s: float) -> None:
        if self.is_new or count < self.last or now_s < self.last_s:
            self._start(count, now_s)
            return
        self.last, self.last_s = count, now_s
        window = self.window
        if now_s - window[-1][0] >= _STEP_S:
            window.append((now_s, count))
        while len(window) > 1 and window[1][0] <= now_s - _WINDOW_S:
            window.popleft()
        second = now_s // 1.0
        if second > self.second:
            self._end_seconds(second, count, now_s)

    def _end_seconds(self, second: float, count: int, now_s: float) -> None:
        """The seconds since the last end get an equal share each, of what was counted since then."""
        mean = float(f"{(count - self.base) / (now_s - self.base_s):.4g}")  # shorter in a message to a page
        self.history.extend([mean] * int(min(second - self.second, SECONDS)))
        self.base, self.base_s, self.second = count, now_s, second

    def rate(self) -> float:
        began_s, began = self.window[0]
        # At least half a second: a first event at once after the first note would be a rate of thousands.
        span_s = max(self.last_s - began_s, _WINDOW_S / 2)
        return (self.last - began) / span_s


class Times(NamedTuple):
    """What is known of the times of a channel."""

    jitter_ms: float | None = None
    latency_ms: float | None = None
    worst_latency_ms: float | None = None


class _Meter:
    """State: the times of one channel."""

    __slots__ = ("events", "intervals", "last_ns", "latencies_us")

    def __init__(self) -> None:
        self.events = 0
        self.intervals, self.latencies_us = Spread(), Spread()
        self.last_ns: int | None = None

    def add(self, at_ns: int, sent_us: int | None) -> None:
        self.events += 1
        if self.last_ns is not None:
            self.intervals.add(at_ns - self.last_ns)
        self.last_ns = at_ns
        took = OTHER_CLOCK_US if sent_us is None else at_ns / 1000 - sent_us
        if abs(took) < OTHER_CLOCK_US:
            self.latencies_us.add(took)

    def times(self) -> Times:
        jitter = three_digits(self.intervals.deviation / 1e6) if self.intervals.count else None
        latencies = self.latencies_us
        if not latencies.count:
            return Times(jitter)
        return Times(jitter, three_digits(latencies.mean / 1000), three_digits(latencies.most / 1000))


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
        """Return the meter of a class and a value of `source`; found again quickly for the next event."""
        key = name_of(cls), "" if source is None else cut(str(source))
        meter = self._meters.get(key) or self._new(key)
        if len(self._found) >= 2 * MAX_METERS:
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
        if len(sources) >= MAX_SOURCES or len(self._meters) >= MAX_METERS:
            key = key[0], OTHERS
        sources.add(key[1])
        return self._meters.setdefault(key, _Meter())

    def by_type(self) -> Mapping[str, Mapping[str, int]]:
        """Return how many events came, by type and source."""
        return {name: {one: self._meters[name, one].events for one in ones} for name, ones in self._sources.items()}

    def times(self, type: str, source: str) -> Times:
        """Return the times of a channel."""
        meter = self._meters.get((type, source))
        return Times() if meter is None else meter.times()
