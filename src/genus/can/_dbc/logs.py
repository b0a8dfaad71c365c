"""Logs as recordings: the frames of a log decoded to events, with a count of what became of all frames."""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

from genus.bus._codec import Recorded, Rejected
from genus.bus._recording import RecordingWriter
from genus.can._dbc.blf import read_blf
from genus.can._dbc.candump import read_candump
from genus.can._dbc.decode import UNKNOWN_ID, Dbc
from genus.can._dbc.log_file import LogFile, Logged, PassedOver
from genus.can._dbc.text_logs import AscLines, CsvLines, TrcLines, read_lines
from genus.errors import RecordingError
from genus.filters import Subscription
from genus.model import name_of

# CAN logs as one stream of frames: candump, ASC, BLF, TRC and CSV files, plain or gzipped.
#
# Reading goes on after damage, as far as a format allows: what cannot be read is counted by reason, and the first
# places are kept.


__all__ = ["FORMATS", "CanLog", "Logged", "read_log"]

Reader: TypeAlias = Callable[[LogFile], Iterator[Logged]]

FORMATS: Mapping[str, Reader] = MappingProxyType(
    {
        "log": read_candump,
        "asc": lambda file: read_lines(file, AscLines()),
        "blf": read_blf,
        "trc": lambda file: read_lines(file, TrcLines()),
        "csv": lambda file: read_lines(file, CsvLines()),
    }
)
"""The formats by the ending of a file's name; `log` is that of candump -L."""


@dataclass(slots=True)
class CanLog:
    """A log to read; iterating gives its data frames, `passed_over` and `places` say what else there was."""

    path: Path
    format: str
    frames: int = 0
    """How many data frames were read so far."""
    _passed: PassedOver = field(default_factory=PassedOver)
    _file: LogFile | None = None

    @property
    def passed_over(self) -> Counter[str]:
        """What gave no data frame, counted by reason: error and remote frames, and what is damaged."""
        return self._passed.reasons

    @property
    def places(self) -> list[str]:
        """The first places where something is wrong, each with its reason."""
        return self._passed.places

    @property
    def size(self) -> int:
        """Bytes in the file."""
        return self.path.stat().st_size

    @property
    def position(self) -> int:
        """How many bytes of the file were read so far."""
        return self._file.position if self._file else 0

    def __iter__(self) -> Iterator[Logged]:
        """The data frames, in the order of the file."""
        self.frames, self._passed = 0, PassedOver()
        try:
            with closing(LogFile(self.path, self._passed)) as self._file:
                for logged in FORMATS[self.format](self._file):
                    self.frames += 1
                    yield logged
        except OSError as problem:
            raise RecordingError(f"cannot read {self.path}: {problem.strerror or problem}") from None


def read_log(path: str | os.PathLike[str], format: str | None = None) -> CanLog:
    """A CAN log; its format is known by the ending of its name, before any `.gz`, unless it is given.

    RecordingError says why a file cannot be read at all.
    """
    found = CanLog(Path(path), format or format_of(Path(path)))
    if found.format not in FORMATS:
        raise RecordingError(f"{path}: no log format ends in {found.format!r}; known: {', '.join(FORMATS)}")
    try:
        found.path.open("rb").close()
    except OSError as problem:
        raise RecordingError(f"cannot read {path}: {problem.strerror}") from None
    return found


def format_of(path: Path) -> str:
    """The ending of a file's name without its dot, before any `.gz`.

    >>> format_of(Path("drive.candump.LOG.gz"))
    'log'
    """
    name = path.with_suffix("") if path.suffix.lower() == ".gz" else path
    return name.suffix.lower().removeprefix(".")


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
IDS_KEPT = 1000
"""So many unknown identifiers are counted apart; more are counted, but not told apart."""
PROGRESS_EVERY = 1000

Progress = Callable[[int], object]
"""Told how many bytes of the log were read."""


@dataclass(slots=True)
class Decoding:
    """The events of a log; iterating gives them, and afterwards the counts say what became of all frames."""

    dbc: Dbc
    log: CanLog
    subscription: Subscription | None = None
    """Only events that match it; the others are counted in `unwanted`."""
    channel: str | None = None
    """Only frames of this channel: a DBC file describes one bus, a log may have several."""
    events: Counter[str] = field(default_factory=Counter)
    """Events by type."""
    rejected: Counter[str] = field(default_factory=Counter)
    """Frames that are no events, by reason."""
    unknown_ids: Counter[str] = field(default_factory=Counter)
    """Frames of no message, by identifier as logs write it."""
    unwanted: int = 0

    @property
    def frames(self) -> int:
        """How many data frames were in the log so far: events, rejected, unwanted and of other channels."""
        return self.log.frames

    @property
    def passed_over(self) -> Counter[str]:
        """What in the log was no data frame, by reason."""
        return self.log.passed_over

    def __iter__(self) -> Iterator[Recorded]:
        """The events, each with the time of its frame."""
        self.events, self.rejected, self.unknown_ids, self.unwanted = Counter(), Counter(), Counter(), 0
        for at_us, channel, frame in self.log:
            if self.channel is not None and channel != self.channel:
                self.rejected[f"channel {channel}"] += 1
                continue
            time = EPOCH + timedelta(microseconds=at_us)
            event = self.dbc.decode(frame.id, frame.data, frame.extended, time=time, place=channel)
            if isinstance(event, Rejected):
                self._reject(event.reason, f"{frame.id:0{8 if frame.extended else 3}X}")
            elif self.subscription is not None and not self.subscription.matches(event):
                self.unwanted += 1
            else:
                self.events[name_of(type(event))] += 1
                yield Recorded(at_us, event)

    def _reject(self, reason: str, identifier: str) -> None:
        self.rejected[reason] += 1
        if reason == UNKNOWN_ID and (identifier in self.unknown_ids or len(self.unknown_ids) < IDS_KEPT):
            self.unknown_ids[identifier] += 1


def decode_log(
    dbc: Dbc,
    log: str | os.PathLike[str] | CanLog,
    recording: str | os.PathLike[str],
    *,
    subscription: Subscription | None = None,
    channel: str | None = None,
    append: bool = False,
    progress: Progress = lambda _: None,
) -> Decoding:
    """Write the events of a log to a recording, and return what became of its frames.

    Events are recorded at the time of their frames. To read the recording, give `read_recording` the types of the same
    DBC file (`load_dbc(...).types.values()`), or of a module made from it.
    """
    found = log if isinstance(log, CanLog) else read_log(log)
    decoding = Decoding(dbc, found, subscription, channel)
    with RecordingWriter(recording, append=append) as writer:
        for number, recorded in enumerate(decoding):
            writer.write(recorded.event, recorded.at_us)
            if number % PROGRESS_EVERY == 0:
                progress(found.position)
    progress(found.position)
    return decoding
