"""The points of plots: of which attributes, one line for what, and in which segments.

Two points of a line are joined if they have the same segment. A new segment begins where something is missing between
two points: the source leapt to another time, events were lost or skipped, the attribute was absent or no finite number,
or the line was silent for much longer than is usual for it. Whoever thins points out keeps the lowest and the highest
of each stretch, with their segments, so that peaks stay and gaps are never drawn over.
"""

from collections import deque
from collections.abc import Container, Mapping, Sequence
from itertools import count
from math import inf
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from genus.model import Event, name_of
from genus.studio._figures import number_of, time_us_of, value_text
from genus.studio._taps import Seen

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

POINTS = 500
"""Most points of a line in a message of a stream."""
MAX_LINES = 19
"""Most lines of a series; what else there is has a line of its own, `(others)`."""
OTHERS = "(others)"
PLOTTED_MS = 60_000.0
"""How much of the past a new plot of a live source gets."""
LEAST_SILENCE_MS = 5000.0
SAMPLED, FEW = 200, 5
"""Intervals that tell what is usual for a line; of fewer than five, nothing is known."""
NOT_ATTRIBUTES = ("none", "source", "publisher", "type")
"""What lines can be told apart by beside attributes."""


class PlotSeries(NamedTuple):
    """An attribute to draw, and what tells its lines apart: an attribute or one of `NOT_ATTRIBUTES`."""

    text: str
    types: tuple[type[Event], ...]
    """The classes of its name; sources may have different ones."""
    attribute: str
    unit: str | None
    by: str

    @property
    def needs(self) -> tuple[str, ...]:
        """The attributes of an event that its points are made of."""
        by = {"none": (), "type": (), "publisher": ("source",)}.get(self.by, (self.by,))
        return (self.attribute, "time", *by)

    def among(self, types: Container[type]) -> "PlotSeries":
        """Return the same with those of its classes that are among others."""
        return self._replace(types=tuple(cls for cls in self.types if cls in types))

    def group(self, event: Event, publisher: str | None) -> object:
        match self.by:
            case "none":
                return None
            case "type":
                return name_of(type(event))
            case "publisher":
                return publisher
        return getattr(event, self.by, None)


class Line(NamedTuple):
    """Points of a line in the order of time: times in milliseconds since 1970, values, and segments."""

    times: Floats
    values: Floats
    segments: Ints

    def part(self, start_ms: float, end_ms: float, stretches: int) -> "Line":
        """Return the points of a time with one before and one after it, at most two in each of so many stretches."""
        low = max(int(np.searchsorted(self.times, start_ms)) - 1, 0)
        high = int(np.searchsorted(self.times, end_ms, "right")) + 1
        found = self.rows(slice(low, high))
        if len(found.times) <= 2 * stretches:
            return found
        return found.rows(_extremes(found.times, found.values, max((end_ms - start_ms) / stretches, 1e-9)))

    def rows(self, chosen: Any) -> "Line":
        return Line(self.times[chosen], self.values[chosen], self.segments[chosen])

    def json(self) -> list[list[Any]]:
        """Return the columns as lists; segments begin with 0."""
        first = self.segments[0] if len(self.segments) else 0
        return [self.times.round(3).tolist(), self.values.tolist(), (self.segments - first).tolist()]


def _extremes(times: Floats, values: Floats, width: float) -> Ints:
    """Return the places of the lowest and the highest value of each stretch of time.

    Stretches lie still while a plot moves, so nothing flickers.
    """
    stretches = np.floor(times / width)
    starts = np.concatenate(([0], np.flatnonzero(np.diff(stretches)) + 1))
    sizes = np.diff(np.concatenate((starts, [len(times)])))
    found = [
        _first_places(values, choose.reduceat(values, starts), starts, sizes) for choose in (np.minimum, np.maximum)
    ]
    return np.unique(np.concatenate(found))


def _first_places(values: Floats, wanted: Floats, starts: Ints, sizes: Ints) -> Ints:
    """Return the first place in each stretch that has the value that is wanted of it."""
    places = np.flatnonzero(values == np.repeat(wanted, sizes))
    return places[np.searchsorted(places, starts)]


def make_line(times: Floats, values: Floats, runs: Ints) -> Line:
    """Return the line of some points in the order of time; NaN stands for an absent value.

    Args:
        times: In milliseconds since 1970.
        values: One of each point.
        runs: Equal numbers for points between which nothing is known to be missing.

    >>> line = make_line(np.array([1.0, 2.0, 3.0, 4.0]), np.array([5.0, 6.0, np.nan, 7.0]), np.zeros(4, np.int64))
    >>> line.times.tolist(), line.segments.tolist()
    ([1.0, 2.0, 4.0], [0, 0, 1])
    """
    is_present = np.isfinite(values)
    absent = np.cumsum(~is_present)[is_present]
    times, values, runs = times[is_present], values[is_present], runs[is_present]
    passed = np.diff(times)
    is_break = (np.diff(runs) != 0) | (np.diff(absent) != 0)
    is_break |= passed > longest_silence(passed[~is_break])
    return Line(times, values, np.concatenate((np.zeros(min(1, len(times)), np.int64), np.cumsum(is_break))))


def longest_silence(intervals: Sequence[float] | Floats) -> float:
    """From which interval on a line is silent: far longer than its usual ones, also if its events come in bursts.

    >>> longest_silence([100.0] * 50), longest_silence([30_000.0] * 50), longest_silence([1.0])
    (5000.0, 300000.0, inf)
    """
    size = len(intervals)
    if size < FEW:
        return inf
    middle, long = size // 2, size - 1 - max(2, size // 50)
    ordered = np.partition(np.asarray(intervals, float), (middle, long))
    return max(LEAST_SILENCE_MS, 10 * float(ordered[middle]), 3 * float(ordered[long]))


# -- live points -------------------------------------------------------------------------------------------------------


class _LiveLine:
    """State: the last point of a line that grows, its segment, and the points that a page has not taken yet."""

    def __init__(self) -> None:
        self.waiting: list[tuple[float, float, int]] = []
        self.last_ms = -inf
        self.run: tuple[int, int] = (0, 0)
        self.segment = 0
        self.intervals: deque[float] = deque(maxlen=SAMPLED)

    def is_silent(self, passed_ms: float) -> bool:
        """Return whether so long a time is unusual for it."""
        return passed_ms > LEAST_SILENCE_MS and passed_ms > longest_silence(self.intervals)


class PlotStream:
    """State: new points of some attributes, until the page takes them.

    Args:
        series: What to draw, by its text such as `Loop.speed by lane`.
        has_sources: Whether there are several sources, whose lines are told apart.
    """

    def __init__(self, series: Mapping[str, PlotSeries], *, has_sources: bool) -> None:
        self._series, self._has_sources = series, has_sources
        self._lines: dict[tuple[str, str], _LiveLine] = {}
        self._segments = count(1)
        self._cuts: dict[tuple[str, str], float] = {}

    def take(self, events: Sequence[Seen], skipped: int) -> None:
        """Take the points of a turn."""
        for series in self._series.values():
            for seen in events:
                if isinstance(seen.event, series.types):
                    self._add(series, seen)

    def _add(self, series: PlotSeries, seen: Seen) -> None:
        name = self._name(series, seen)
        line = self._lines.get((series.text, name))
        value = number_of(getattr(seen.event, series.attribute, None))
        if value is None:
            if line is not None:
                line.segment = 0
            return
        if line is None:
            if sum(text == series.text for text, _ in self._lines) >= MAX_LINES:
                name = OTHERS
            line = self._lines.setdefault((series.text, name), _LiveLine())
        at_ms = plotted_ms(seen)
        run = seen.leaps, seen.segment
        passed = at_ms - line.last_ms
        if run[0] != line.run[0] and passed < 0:  # it went back: what was later is not there yet
            self._cut(series.text, name, line, at_ms)
        if run != line.run or not line.segment or name == OTHERS or line.is_silent(passed):
            line.segment = next(self._segments)
        else:
            line.intervals.append(passed)
        line.run, line.last_ms = run, at_ms if run != line.run else max(at_ms, line.last_ms)
        line.waiting.append((at_ms, value, line.segment))
        if len(line.waiting) > 2 * POINTS:
            line.waiting[:] = thin_out(line.waiting, POINTS)

    def _name(self, series: PlotSeries, seen: Seen) -> str:
        group = series.group(seen.event, seen.publisher)
        name = "" if group is None else value_text(group)
        return f"{seen.source} · {name}" if self._has_sources and name else seen.source if self._has_sources else name

    def _cut(self, text: str, name: str, line: _LiveLine, at_ms: float) -> None:
        line.waiting = [point for point in line.waiting if point[0] < at_ms]
        self._cuts[text, name] = min(at_ms, self._cuts.get((text, name), inf))
        line.last_ms = -inf

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return not any(line.waiting for line in self._lines.values())

    def data(self) -> dict[str, Any]:
        """Return the points that wait; `cut` has the lines that went back, and from which time on they have nothing."""
        found: dict[str, Any] = {
            text: {"unit": each.unit, "lines": {}, "cut": {}} for text, each in self._series.items()
        }
        for (text, name), at_ms in self._cuts.items():
            found[text]["cut"][name] = at_ms
        for (text, name), line in self._lines.items():
            if line.waiting:
                found[text]["lines"][name] = [*map(list, zip(*thin_out(line.waiting, POINTS), strict=True))]
                line.waiting = []
        self._cuts = {}
        return {"series": found}


def thin_out(points: list[tuple[float, float, int]], most: int) -> list[tuple[float, float, int]]:
    """Points in the order of time, fewer of them that look the same: the lowest and the highest of each stretch.

    >>> thin_out([(0.0, 5.0, 1), (1.0, 9.0, 1), (2.0, 1.0, 1), (3.0, 4.0, 1)], 2)
    [(1.0, 9.0, 1), (2.0, 1.0, 1)]
    """
    points.sort()
    if len(points) <= most:
        return points
    times, values, segments = (np.array(column) for column in zip(*points, strict=True))
    span = max(float(times[-1] - times[0]), 1e-9)
    stretch = span / (most // 2) * (1 + 1e-9)
    chosen = _extremes(times - times[0], values.astype(float), stretch)
    return list(zip(times[chosen].tolist(), values[chosen].tolist(), segments[chosen].tolist(), strict=True))


def plotted_ms(seen: Seen) -> float:
    """Where an event is in a plot, in milliseconds since 1970: the time that it carries, else when it came."""
    time_us = time_us_of(seen.event)
    return seen.at_ms if time_us is None else time_us / 1000


def last_minute(kept: Sequence[Seen]) -> list[Seen]:
    """Of events in the order of their times, those that a new plot begins with."""
    return [each for each in kept if each.at_ms >= kept[-1].at_ms - PLOTTED_MS]
