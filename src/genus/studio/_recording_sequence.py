"""A recording, or those of a landing folder, read as one from any time on, and played: time is an argument."""

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
from genus.errors import BusError, Reasons, RecordingError
from genus.model import Event, name_of
from genus.studio._figures import number_of
from genus.studio._history import Piece
from genus.studio._plot import Floats, PlotSeries
from genus.studio.types import State

FASTEST, SLOWEST = 1e6, 1e-3
"""Limits of the speed."""


class Playback:
    """State: the position in a recording, in microseconds since 1970, its speed, and the events to come.

    Events are in the order of the recording: one with an earlier time than the one before it is due at once. If the
    events cannot be taken as fast as they are due, the position waits for them.

    Args:
        read: Gives the events from a time on, or all.
    """

    def __init__(self, read: Callable[[int | None], Iterator[Recorded]]) -> None:
        self.state: State = "paused"
        self.speed = 1.0
        self._read = read
        self._events: Iterator[Recorded] | None = None
        self._start_us: int | None = None
        """Where reading begins; None for the beginning."""
        self._next: Recorded | None = None
        self._position_us: int | None = None
        """The position at the time `_since`; None before the first event was read."""
        self._since = 0.0

    # -- what a person does ------------------------------------------------------------------------------------------

    def play(self, now: float) -> None:
        """Go on; from the beginning if it has ended, or failed."""
        if self.state in ("ended", "failed"):
            self._begin(None)
        if self.state != "playing":
            self.state, self._since = "playing", now

    def pause(self, now: float) -> None:
        """Stop, unless it has ended."""
        if self.state == "playing":
            self._move(now)
            self.state = "paused"

    def set_speed(self, speed: float, now: float) -> None:
        """Let time pass so many times as fast as in reality; BusError if the number makes no sense."""
        if not SLOWEST <= speed <= FASTEST:  # also false for what is not a number
            raise BusError(f"a recording cannot be played at speed {speed:g}; give a number from 0.001 to 1000000")
        self._move(now)
        self.speed = float(speed)

    def seek(self, time_us: int, now: float) -> None:
        """Go on from a time; one that had ended is played, one that is paused stays so."""
        self._begin(time_us)
        self._position_us, self._since = time_us, now
        if self.state in ("ended", "failed"):
            self.state = "playing"

    def fail(self) -> None:
        """Stop for good: the recording cannot be read."""
        self._events, self._next, self.state = None, None, "failed"

    # -- what a driver does ------------------------------------------------------------------------------------------

    def take(self, now: float, most: int) -> list[Recorded]:
        """Return the next events that are due, at most so many; ends if there are none to come."""
        found: list[Recorded] = []
        while self.state == "playing" and len(found) < most:
            if self._next is None and not self._advance(now):
                break
            if self._next is None or self._next.at_us > self._due_us(now):
                break
            found.append(self._next)
            self._next = None
        if found and (len(found) == most or self.state == "ended"):  # behind, perhaps: time goes on from here
            self._position_us, self._since = max(self._position_us or found[-1].at_us, found[-1].at_us), now
        return found

    def wait_s(self, now: float) -> float | None:
        """After how many seconds the next event is due; None if none is: while it is paused or has ended."""
        if self.state != "playing":
            return None
        if self._next is None:
            return 0.0
        return max(0.0, (self._next.at_us - self._due_us(now)) / 1e6 / self.speed)

    @property
    def next_us(self) -> int | None:
        """The time of the next event, if it was read."""
        return None if self._next is None else self._next.at_us

    def position_us(self, now: float) -> int | None:
        """Return the time on the recording; None before its first event was read."""
        if self._position_us is None or self._next is None or self.state != "playing":
            return self._position_us
        return max(self._position_us, min(self._due_us(now), self._next.at_us))

    # -- within ------------------------------------------------------------------------------------------------------

    def _begin(self, time_us: int | None) -> None:
        self._events, self._next, self._start_us, self._position_us = None, None, time_us, None

    def _advance(self, now: float) -> bool:
        """Read the next event; False if there is none, which is the end."""
        if self._events is None:
            self._events = self._read(self._start_us)
        self._next = next(self._events, None)
        if self._next is None:
            self.state = "ended"
            return False
        if self._position_us is None:
            self._position_us, self._since = self._next.at_us, now
        return True

    def _due_us(self, now: float) -> int:
        """Return the time up to which events are due."""
        if self._position_us is None:
            return 0
        return self._position_us + round((now - self._since) * 1e6 * self.speed)

    def _move(self, now: float) -> None:
        """Make the present position the one that time goes on from."""
        self._position_us, self._since = self.position_us(now), now


DAMAGED = "damaged"
"""The reason for events that are lost by damage."""
_NUMBERED = re.compile(r"(.+)-\d+")


class SequenceIndex(msgspec.Struct, frozen=True):
    """What the files of a sequence have together; times are microseconds since 1970, None if there are no events."""

    start_us: int | None
    end_us: int | None
    events: int
    damaged: int
    types: dict[str, int]

    @classmethod
    def of(cls, found: Collection[RecordingIndex]) -> "SequenceIndex":
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


class RecordingSequence:
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
        return [recording for series in self._series for recording in series]

    def index(self, progress: Callable[[float], object] | None = None) -> SequenceIndex:
        """Index all files; `progress` is called with the share that is done, and what it raises ends the work."""
        total = sum(recording.size for recording in self.recordings) or 1
        before, found = 0, list[RecordingIndex]()
        for recording in self.recordings:

            def tell(done: int, _: int, before: int = before) -> None:
                if progress is not None:
                    progress((before + done) / total)

            found.append(recording.index(tell))
            before += found[-1].size
        return SequenceIndex.of(found)

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
