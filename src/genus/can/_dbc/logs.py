"""CAN logs: candump, ASC, BLF, TRC and CSV files, plain or gzip, as frames, as events, and as recordings of events.

Reading continues after damage, as far as a format allows: what cannot be read is counted by reason, and the first
problems are listed with their location.
"""

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
from genus.can._dbc.dbc_file import Dbc
from genus.can._dbc.log_file import LogFile, LoggedFrame, SkippedRecords
from genus.can._dbc.message_types import UNKNOWN_ID
from genus.can._dbc.text_logs import AscLogFormat, CsvLogFormat, TrcLogFormat, read_text_log
from genus.errors import RecordingError
from genus.filters import Subscription
from genus.model import name_of

Reader: TypeAlias = Callable[[LogFile], Iterator[LoggedFrame]]

FORMATS: Mapping[str, Reader] = MappingProxyType(
    {
        "log": read_candump,
        "asc": lambda file: read_text_log(file, AscLogFormat()),
        "blf": read_blf,
        "trc": lambda file: read_text_log(file, TrcLogFormat()),
        "csv": lambda file: read_text_log(file, CsvLogFormat()),
    }
)
"""The readers by the ending of a file's name; `log` is the format of `candump -L`."""


@dataclass(slots=True)
class CanLog:
    """A CAN log; iterating gives its data frames, and afterwards `skipped` and `problems` say what else was in it.

    Each iteration reads the file from its beginning. RecordingError if the file cannot be read at all.
    """

    path: Path
    format: str
    """`log`, `asc`, `blf`, `trc` or `csv`."""
    frames: int = 0
    """How many data frames were read so far."""
    _skipped: SkippedRecords = field(default_factory=SkippedRecords)
    _file: LogFile | None = None

    @property
    def skipped(self) -> Counter[str]:
        """How many records are no data frames, by reason: error and remote frames, and damage."""
        return self._skipped.reasons

    @property
    def problems(self) -> list[str]:
        """The location and reason of the first damaged records, 100 at most."""
        return self._skipped.problems

    @property
    def size(self) -> int:
        """The size of the file in bytes."""
        return self.path.stat().st_size

    @property
    def position(self) -> int:
        """How many bytes of the file were read so far."""
        return self._file.position if self._file else 0

    def __iter__(self) -> Iterator[LoggedFrame]:
        """The data frames, in the order of the file."""
        self.frames, self._skipped = 0, SkippedRecords()
        try:
            with closing(LogFile(self.path, self._skipped)) as self._file:
                for logged in FORMATS[self.format](self._file):
                    self.frames += 1
                    yield logged
        except OSError as problem:
            raise RecordingError(f"cannot read {self.path}: {problem.strerror or problem}") from None


def read_log(path: str | os.PathLike[str], format: str | None = None) -> CanLog:
    """The CAN log in a file.

    Args:
        path: A log, plain or gzip (which its content shows).
        format: `log` (candump), `asc`, `blf`, `trc` or `csv`; by default the ending of the name, before any `.gz`.

    Raises:
        RecordingError: The file cannot be opened, or its format is not known.

    >>> read_log("drive.candump.mf4")
    Traceback (most recent call last):
    genus.errors.RecordingError: drive.candump.mf4: no log format ends in 'mf4'; known: log, asc, blf, trc, csv
    """
    ending = os.path.splitext(os.fspath(path).lower().removesuffix(".gz"))[1].removeprefix(".")
    found = CanLog(Path(path), format or ending)
    if found.format not in FORMATS:
        raise RecordingError(f"{path}: no log format ends in {found.format!r}; known: {', '.join(FORMATS)}")
    try:
        found.path.open("rb").close()
    except OSError as problem:
        raise RecordingError(f"cannot read {path}: {problem.strerror}") from None
    return found


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
IDS_KEPT = 1000
"""How many unknown identifiers are counted one by one."""
PROGRESS_EVERY = 1000

Progress = Callable[[int], object]
"""Called with the number of bytes of the log that were read."""


@dataclass(slots=True)
class Decoding:
    """The events of a log; iterating gives them, and afterwards the counts account for every frame."""

    dbc: Dbc
    log: CanLog
    subscription: Subscription | None = None
    """If given, only events that match it are yielded; the others are counted in `unwanted`."""
    channel: str | None = None
    """If given, only frames of this channel are decoded: a DBC file describes one bus, a log may have several."""
    events: Counter[str] = field(default_factory=Counter)
    """How many events of each type were yielded."""
    rejected: Counter[str] = field(default_factory=Counter)
    """How many frames are no events, by reason."""
    unknown_ids: Counter[str] = field(default_factory=Counter)
    """How many frames belong to no message, by identifier (in hexadecimal), for the first 1000 identifiers."""
    unwanted: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    """How many records of the log are no data frames, by reason; known when the iteration has ended."""

    @property
    def frames(self) -> int:
        """How many data frames were read from the log: the sum of events, rejected and unwanted."""
        return self.events.total() + self.rejected.total() + self.unwanted

    def __iter__(self) -> Iterator[Recorded]:
        """The events, each with the time of its frame."""
        self.events, self.rejected, self.unknown_ids, self.unwanted = Counter(), Counter(), Counter(), 0
        self.skipped = Counter()
        try:
            yield from self._decode()
        finally:
            self.skipped = self.log.skipped

    def _decode(self) -> Iterator[Recorded]:
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
    """Write the events of a log to a recording; the result has the counts of its frames.

    Events are recorded with the times of their frames. To read the recording, give `read_recording` the types of the
    same DBC file (`load_dbc(...).types.values()`), or of a module made from it.

    Args:
        dbc: What the frames mean, from `load_dbc`.
        log: The path of a log, or what `read_log` returned.
        recording: The file to write.
        subscription: Which events to write; by default all.
        channel: Only frames of this channel of the log.
        append: Continue a recording that exists.
        progress: Is called now and then with the number of bytes read.

    Raises:
        RecordingError: The log cannot be read, or the recording cannot be written or exists already.
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
