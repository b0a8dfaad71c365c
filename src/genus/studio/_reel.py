"""A reel: a recording, or the recordings of a landing folder, read as one from any time on."""

import math
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from heapq import merge
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from genus.bus import read_recording
from genus.bus.types import Excerpt, Recorded, Recording, RecordingIndex
from genus.errors import Reasons, RecordingError
from genus.model import Event, name_of
from genus.studio._history import Piece
from genus.studio._plot import Floats, PlotSeries
from genus.studio._texts import number_of

DAMAGED = "damaged"
"""The reason for events that are lost by damage."""
_NUMBERED = re.compile(r"(.+)-\d+")


class ReelIndex(msgspec.Struct, frozen=True):
    """What the files of a reel have together; times are microseconds since 1970, None if there are no events."""

    start_us: int | None
    end_us: int | None
    events: int
    damaged: int
    types: dict[str, int]

    @classmethod
    def of(cls, found: Collection[RecordingIndex]) -> "ReelIndex":
        """Return the sums of the indexes of some files."""
        types: Counter[str] = Counter()
        for each in found:
            types.update(each.types)
        return cls(
            min((each.start_us for each in found if each.start_us is not None), default=None),
            max((each.end_us for each in found if each.end_us is not None), default=None),
            sum(each.events for each in found),
            sum(each.damaged for each in found),
            dict(types),
        )


class Reel:
    """The recordings at a path, as one.

    The files of a recorder in a folder are read one after the other, and those of several recorders side by side, in
    the order of their times. Files that land later are not part of it.

    Args:
        path: A recording, or a folder of recordings as `record_to_folder` makes it.
        types: The event types, with those below them.

    Raises:
        RecordingError: There is no recording at the path, or it cannot be read.
    """

    def __init__(self, path: str | os.PathLike[str], types: Collection[type] | None) -> None:
        self.path = Path(path)
        self.refused: list[str] = []
        """Files of a folder that are no recordings, and why."""
        self._series = self._find_series(types) if self.path.is_dir() else [[read_recording(self.path, types)]]
        self._rejected_before = 0
        """Events that could not be read before the last call of `read`."""
        self._reasons = Reasons()
        """Why events of files that were read to their end could not be."""
        self._open: dict[int, Recording] = {}
        """The file that is being read, by the number of its recorder."""

    def _find_series(self, types: Collection[type] | None) -> list[list[Recording]]:
        found: dict[str, list[Recording]] = {}
        for file in sorted(self.path.glob("[!.]*.genus")):
            try:
                recording = read_recording(file, types)
                numbered = _NUMBERED.fullmatch(file.stem)
                found.setdefault(numbered[1] if numbered else file.stem, []).append(recording)
            except RecordingError as problem:
                self.refused.append(str(problem))
        if not found:
            why = f": {self.refused[0]}" if self.refused else "; `genus record --landing` writes some"
            raise RecordingError(f"{self.path} has no recordings (*.genus){why}")
        return list(found.values())

    @property
    def recordings(self) -> list[Recording]:
        """The files."""
        return [recording for series in self._series for recording in series]

    def index(self, progress: Callable[[float], object] | None = None) -> ReelIndex:
        """Index all files; `progress` is called with the share that is done, and what it raises ends the work."""
        total = sum(recording.size for recording in self.recordings) or 1
        before, found = 0, list[RecordingIndex]()
        for recording in self.recordings:

            def tell(done: int, _: int, before: int = before) -> None:
                if progress is not None:
                    progress((before + done) / total)

            found.append(recording.index(tell))
            before += found[-1].size
        return ReelIndex.of(found)

    def read(self, time_us: int | None = None) -> Iterator[Recorded]:
        """Return the events from a time on, or all; reading from a time needs the index."""
        self._rejected_before = self.rejected
        self._reasons, self._open = Reasons(), {}
        series = [self._read_series(number, time_us) for number in range(len(self._series))]
        return series[0] if len(series) == 1 else merge(*series, key=lambda recorded: recorded.at_us)

    def read_points(self, series: Sequence[PlotSeries]) -> Iterator[tuple[float, Piece]]:
        """Yield the points of some series, with the share that is read; counters of `read` change."""
        wanted: dict[type[Event], set[str]] = {}
        for each in series:
            for cls in each.types:
                wanted.setdefault(cls, set()).update(each.needs)
        total = sum(recording.index().events for recording in self.recordings) or 1
        before = 0
        for recording in self.recordings:
            for excerpt in recording.excerpts(wanted):
                for each in series:
                    if issubclass(excerpt.type, each.types) and excerpt.events:
                        yield (before + recording.events) / total, _piece(each, excerpt)
            before += recording.events

    @property
    def rejected(self) -> int:
        """Events that could not be read in all that was read so far."""
        return self._rejected_before + self.reasons().total()

    def reasons(self) -> Counter[str]:
        """Why events could not be read, since the last call of `read`."""
        found = self._reasons.copy()
        for recording in self._open.values():
            found.update(_reasons(recording))
        return found

    @property
    def damaged(self) -> int:
        """Damaged parts in what was read last."""
        return sum(len(recording.damage) for recording in self.recordings)

    def _read_series(self, number: int, time_us: int | None) -> Iterator[Recorded]:
        """Yield the events of the files of one recorder."""
        is_reached = time_us is None
        for recording in self._series[number]:
            if time_us is not None and not is_reached:
                end_us = recording.index().end_us
                if end_us is None or end_us < time_us:
                    continue
            found = iter(recording) if is_reached or time_us is None else recording.read_from(time_us)
            is_reached = True
            recording.problems, recording.lost = Reasons(), 0
            self._open[number] = recording
            yield from found
            self._reasons.update(_reasons(recording))
            del self._open[number]


def _reasons(recording: Recording) -> Counter[str]:
    """Why events of a recording could not be read."""
    return recording.problems + Counter({DAMAGED: recording.lost})


def _piece(series: PlotSeries, excerpt: Excerpt) -> Piece:
    """Return the points of a series of some events."""
    events, by = excerpt.events, series.by
    groups: Sequence[Any] | None
    if by in ("none", "type"):
        groups = None if by == "none" else [name_of(excerpt.type)] * len(events)
    else:
        name = "source" if by == "publisher" else by
        groups = _values(name, events)
    return Piece(series.text, _times(excerpt), _numbers(series.attribute, events), groups, excerpt.has_gap)


def _times(excerpt: Excerpt) -> Floats:
    """Return the times of events in milliseconds since 1970: those that they carry, else when they were recorded."""
    moments = _values("time", excerpt.events)
    if None not in moments:
        return 1000 * np.fromiter(map(datetime.timestamp, moments), float, len(moments))
    both = zip(moments, excerpt.times, strict=True)
    return np.array([at / 1000 if moment is None else 1000 * moment.timestamp() for moment, at in both])


def _numbers(attribute: str, events: Sequence[Any]) -> Floats:
    """Return the values of an attribute, NaN for those that are absent or no numbers."""
    values = _values(attribute, events)
    if set(map(type, values)) <= {float, int, bool}:
        with suppress(OverflowError):  # of an integer that is larger than any float
            return np.array(values, float)
    numbers = map(number_of, values)
    return np.array([math.nan if number is None else number for number in numbers], float)


def _values(attribute: str, events: Sequence[Any]) -> list[Any]:
    return list(map(attrgetter(attribute), events))
