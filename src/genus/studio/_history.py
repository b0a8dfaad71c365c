"""The history of sources that store their events: the points of a whole recording, or of days of a lake.

The points of a series are read once, by a thread, and kept as columns until others need the memory. Answers have as
many points as a plot has room for; one that is asked before all is read has those that are known by then.
"""

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, repeat
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from genus.errors import GenusError
from genus.filters import Subscription
from genus.studio._figures import value_text
from genus.studio._plot import MAX_LINES, OTHERS, Floats, Ints, Line, PlotSeries, make_line
from genus.studio._source import Source
from genus.studio._taps import Seen

MAX_BYTES = 256_000_000
"""What is kept of all series together."""
MAX_POINTS = 6_000_000
"""Most points of a series that are kept; those of a longer one are thinned out, and the answer says so."""
MAX_GROUPS = 1000
"""Values that are told apart while lines are counted; the most frequent ones get lines."""
MAX_READING = 2
"""Series that are read at the same time; others wait."""
WAIT_S, LATER_S = 0.8, 3.0
"""How long the first answer waits for all points, and those after it: to make one of a part takes time from reading."""


class Piece(NamedTuple):
    """Points of a series as a source reads them, in any order of time."""

    series: str
    times: Floats
    """In milliseconds since 1970."""
    values: Floats
    """NaN for an absent attribute, and for what is no finite number."""
    groups: Sequence[Any] | None
    """What tells the lines apart; None if that is nothing."""
    has_gap: bool = False
    """Whether events are missing before or among them."""


@runtime_checkable
class StoredSource(Source, Protocol):
    """A source that has its events stored, so that they can be plotted as a whole."""

    def stored_range(self, start_ms: float | None, end_ms: float | None) -> tuple[float, float] | None:
        """Return what is read to plot a range of time, in milliseconds since 1970; None for all."""

    def read_points(
        self, series: Sequence[PlotSeries], span_ms: tuple[float, float] | None
    ) -> Iterator[tuple[float, Piece]]:
        """The points of some series in a span of time, each piece with the share that is read; may take minutes."""


@runtime_checkable
class RangedSource(StoredSource, Protocol):
    """A stored source that is asked for the events of a range of time."""

    def events_between(
        self, subscription: Subscription, start_ms: float, end_ms: float, most: int
    ) -> tuple[Sequence[Seen | Mapping[str, Any]], int]:
        """Return the first events that match, or their values with `type`, and how many do; times as in plots."""


class _Points:
    """State: the points of a series that are read so far."""

    def __init__(self) -> None:
        self.is_thinned = False
        self.size = 0
        """The number of points."""
        self._pieces: list[tuple[Floats, Floats, Ints, Ints]] = []
        self._codes: dict[Any, int] = {None: 0}
        self._run = 0
        self._lock = threading.Lock()
        self._lines: dict[str, Line] | None = None
        """As they were last made; None if there are points since then."""

    def add(self, piece: Piece) -> None:
        size = len(piece.times)
        self._run += piece.has_gap
        runs = np.full(size, self._run)
        if piece.has_gap:  # it is not known where, so nothing is joined
            runs += np.arange(size)
            self._run += size
        codes = np.zeros(size, np.int64) if piece.groups is None else self._coded(piece.groups)
        with self._lock:
            self._pieces.append((piece.times, piece.values, codes, runs))
            self._lines = None
            self.size += size
        if self.size > MAX_POINTS:
            self._thin_out()

    def _coded(self, groups: Sequence[Any]) -> Ints:
        known = self._codes
        try:
            different = set(groups)
        except TypeError:  # lists, and other values that cannot be keys
            groups = [None if group is None else value_text(group) for group in groups]
            different = set(groups)
        for group in different - known.keys() if len(known) < MAX_GROUPS else ():
            if len(known) < MAX_GROUPS:
                known[group] = len(known)
        return np.fromiter(map(known.get, groups, repeat(-1)), np.int64, len(groups))

    @property
    def nbytes(self) -> int:
        """About how much memory they take, with the lines that are made of them."""
        return 64 * self.size

    def lines(self) -> dict[str, Line]:
        """The lines by name, the empty one for points without a group; the most frequent ones, and the others."""
        with self._lock:
            if self._lines is None:
                self._lines = {self._name(code): line for code, line in self._by_code()}
            return self._lines

    def _by_code(self) -> Iterator[tuple[int, Line]]:
        """Yield the lines by the numbers of their groups, -1 for the others."""
        if not self._pieces:
            return
        times, values, codes, runs = (np.concatenate(column) for column in zip(*self._pieces, strict=True))
        sizes = np.bincount(codes + 1)[1:]
        frequent = np.argsort(-sizes, kind="stable")[:MAX_LINES]
        if np.count_nonzero(sizes) > MAX_LINES:
            codes = np.where(np.isin(codes, frequent), codes, -1)
        order = np.argsort(times, kind="stable") if (np.diff(times) < 0).any() else np.arange(len(times))
        order = order[np.argsort(codes[order].astype(np.int16), kind="stable")]  # a radix sort, of 16 bits
        codes = codes[order]
        bounds = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), len(codes)]
        for low, high in pairwise(bounds):
            rows = order[low:high]
            code = int(codes[low])
            line = make_line(times[rows], values[rows], runs[rows] if code >= 0 else np.arange(high - low))
            if len(line.times):
                yield code, line

    def _name(self, code: int) -> str:
        if code < 0:
            return OTHERS
        group = next(group for group, number in self._codes.items() if number == code)
        return "" if group is None else value_text(group)

    def _thin_out(self) -> None:
        """Keep a quarter of the points: the lowest and the highest of each stretch of each line."""
        with self._lock:
            kept = []
            lines = list(self._by_code())
            for code, line in lines:
                stretches = MAX_POINTS // 8 // len(lines)
                few = line.part(float(line.times[0]), float(line.times[-1]), stretches)
                kept.append((few.times, few.values, np.full(len(few.times), code), few.segments + self._run))
                self._run = int(few.segments[-1]) + self._run + 1
            self._pieces, self._lines, self.is_thinned = kept, None, True
            self.size = sum(len(times) for times, *_ in kept)


class _Reading:
    """State: series of a source that a thread reads."""

    def __init__(self) -> None:
        self.share = 0.0
        self.problem = ""
        self.is_done = threading.Event()
        self.is_asked = False


class History:
    """State: the points of stored sources that were asked for, as far as they fit the memory."""

    def __init__(self, most_bytes: int = MAX_BYTES) -> None:
        self._most_bytes = most_bytes
        self._known: OrderedDict[tuple[Any, ...], tuple[_Points, _Reading]] = OrderedDict()
        self._lock = threading.Lock()
        self._turns = threading.Semaphore(MAX_READING)
        self.is_closed = False

    def ask(
        self,
        source: StoredSource,
        series: Sequence[PlotSeries],
        span_ms: tuple[float | None, float | None],
        stretches: int,
        wait_s: float | None = None,
    ) -> dict[str, Any]:
        """Return the lines of some series in a range of time, at most two points in each of so many stretches of it.

        Args:
            source: Where they are stored.
            series: What to plot.
            span_ms: From when to when; None for the beginning and the end of what is stored.
            stretches: As many as the plot has columns of pixels.
            wait_s: How long to wait for all points; by default less for the first answer than for others.
        """
        read_ms = source.stored_range(*span_ms)
        found = self._find(source, series, read_ms)
        began = time.monotonic()
        for _, reading in found.values():
            longest = wait_s if wait_s is not None else LATER_S if reading.is_asked else WAIT_S
            reading.is_done.wait(max(0.0, began + longest - time.monotonic()))
        for _, reading in found.values():
            reading.is_asked = True
        lines = {each.text: found[each.text][0].lines() for each in series}
        ends = [(line.times[0], line.times[-1]) for each in lines.values() for line in each.values() if len(line.times)]
        whole = read_ms or (
            (float(min(first for first, _ in ends)), float(max(last for _, last in ends))) if ends else None
        )
        start, end = (given if given is not None else (whole or (0.0, 1.0))[at] for at, given in enumerate(span_ms))
        return {
            "share": min(reading.share for _, reading in found.values()),
            "problem": "; ".join(sorted({reading.problem for _, reading in found.values() if reading.problem})),
            "is_done": all(reading.is_done.is_set() for _, reading in found.values()),
            "is_thinned": any(points.is_thinned for points, _ in found.values()),
            "points": sum(points.size for points, _ in found.values()),
            "whole": whole,
            "range": [start, end],
            "series": {
                each.text: {
                    "unit": each.unit,
                    "lines": {name: line.part(start, end, stretches).json() for name, line in lines[each.text].items()},
                }
                for each in series
            },
        }

    def close(self) -> None:
        """Read no more."""
        self.is_closed = True

    # -- reading -----------------------------------------------------------------------------------------------------

    def _find(
        self, source: StoredSource, series: Sequence[PlotSeries], span_ms: tuple[float, float] | None
    ) -> Mapping[str, tuple[_Points, _Reading]]:
        """Return what is known of some series; reading begins for those that nobody asked for before."""
        with self._lock:
            keys = {each.text: (source.name, each, span_ms) for each in series}
            missing = [each for each in series if self._is_missing(keys[each.text])]
            if missing:
                reading = _Reading()
                made = {each.text: _Points() for each in missing}
                self._known.update({keys[each.text]: (made[each.text], reading) for each in missing})
                threading.Thread(
                    target=self._read,
                    args=(source, missing, span_ms, made, reading),
                    name=f"genus-studio history {source.name}",
                    daemon=True,
                ).start()
            for key in keys.values():
                self._known.move_to_end(key)
            self._drop_old(set(keys.values()))
            return {text: self._known[key] for text, key in keys.items()}

    def _is_missing(self, key: tuple[Any, ...]) -> bool:
        """Return whether a series was not read, or could not be."""
        found = self._known.get(key)
        return found is None or (found[1].is_done.is_set() and bool(found[1].problem))

    def _drop_old(self, asked: set[tuple[Any, ...]]) -> None:
        """Forget what was asked for longest ago, as far as the memory needs it; not what is asked for now."""
        left = sum(points.nbytes for points, _ in self._known.values())
        for key, (points, reading) in list(self._known.items()):
            if left <= self._most_bytes:
                break
            if reading.is_done.is_set() and key not in asked:
                left -= points.nbytes
                del self._known[key]

    def _read(
        self,
        source: StoredSource,
        series: Sequence[PlotSeries],
        span_ms: tuple[float, float] | None,
        made: Mapping[str, _Points],
        reading: _Reading,
    ) -> None:
        try:
            with self._turns:
                for share, piece in source.read_points(series, span_ms):
                    made[piece.series].add(piece)
                    reading.share = share
                    if self.is_closed:
                        return
            reading.share = 1.0
        except (GenusError, OSError, ValueError) as problem:
            reading.problem = f"{source.name} cannot be read: {problem}"
        except Exception as problem:  # of a class's own code, or of a file that is not as it should be
            logging.getLogger("genus.studio").exception("%s cannot be plotted", source.name)
            reading.problem = f"{source.name} cannot be read: {type(problem).__name__}: {problem}"
        finally:
            reading.is_done.set()
