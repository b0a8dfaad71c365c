"""CAN logs of all formats: which reader a file needs, and its frames one by one and in columns.

Reading continues after damage, as far as a format allows: what cannot be read is counted by reason, and the first
problems are listed with their location.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from genus.can._logs.blf import read_blf
from genus.can._logs.detect import (
    FORMATS,
    HEAD_BYTES,
    TEXT_FORMATS,
    Detected,
    Head,
    Opened,
    find,
    format_by_ending,
    open_text,
)
from genus.can._logs.formats import LineFormat
from genus.can._logs.frames import LogBlock, LoggedFrame
from genus.can._logs.library_logs import read_mf4, read_sqlite
from genus.can._logs.log_file import COMPRESSED_ENDINGS, LogFile, SkippedRecords, file_and_member, read_head
from genus.can._logs.pcap import read_pcap
from genus.can._logs.text_reader import TextReader
from genus.can._logs.times import KindOfTimes, Unit, unit_of
from genus.errors import RecordingError

Reader: TypeAlias = Callable[[LogFile], Iterator[LogBlock]]


BINARY_READERS: Mapping[str, Reader] = MappingProxyType(
    {"blf": read_blf, "mf4": read_mf4, "sqlite": read_sqlite, "pcap": read_pcap}
)


@dataclass(slots=True)
class CanLog:
    """A CAN log; iterating gives its data frames, and afterwards `skipped` and `problems` say what else was in it.

    Each iteration reads the file from its beginning. RecordingError if the file cannot be read at all.
    """

    path: Path
    format: str
    """The name of the format, such as `log` (`candump -L`), `asc` or `csv`."""
    detected: Detected
    """What the log is taken for: its columns and units, by which evidence, and what is doubtful."""
    times: KindOfTimes | None = None
    """What time stamps count from, known when reading has begun: `none` if the log has no time stamps."""
    frames: int = 0
    """How many data frames were read so far."""
    _format: LineFormat | None = None
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
        return file_and_member(self.path)[0].stat().st_size

    @property
    def position(self) -> int:
        """How many bytes of the file were read so far."""
        return self._file.position if self._file else 0

    def __iter__(self) -> Iterator[LoggedFrame]:
        for block in self.blocks():
            before = self.frames - sum(len(part.at_us) for part in block.frames)
            for number, (_, logged) in enumerate(block.rows(), 1):
                self.frames = before + number
                yield logged

    def blocks(self) -> Iterator[LogBlock]:
        """Yield the data frames in columns, a block at a time, which is the quickest way to read a log.

        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile(suffix=".log") as file:
        ...     _ = Path(file.name).write_text("(1.5) can0 123#1122")
        ...     [block.frames[0].identifier.tolist() for block in read_log(file.name).blocks()]
        [[291]]
        """
        self.frames, self._skipped = 0, SkippedRecords()
        try:
            with closing(LogFile(self.path, self._skipped)) as self._file:
                for block in self._text_blocks() if self.format not in BINARY_READERS else self._binary_blocks():
                    self.frames += sum(len(part.at_us) for part in block.frames)
                    yield block
        except RecordingError as problem:
            raise RecordingError(f"{self.path}: {problem}") from None
        except OSError as problem:
            raise RecordingError(f"cannot read {self.path}: {problem.strerror or problem}") from None

    def _binary_blocks(self) -> Iterator[LogBlock]:
        assert self._file is not None
        self.times = "absolute"
        yield from BINARY_READERS[self.format](self._file)

    def _text_blocks(self) -> Iterator[LogBlock]:
        assert self._file is not None
        if self._format is None:
            head = Head.of(read_head(self.path, HEAD_BYTES))
            self._format = open_text(self.format, head).format
        reader = TextReader(self._format.again())
        self.times = reader.times
        if reader.times == "none":
            reader.format.times.start_us = self._file.changed_us
        lines = 0
        for at, text in self._file.lines():
            block = reader.parse(text, at)
            self.times = reader.times
            self._note(block, text, at, lines)
            lines += block.lines
            yield block

    def _note(self, block: LogBlock, text: bytes, at: int, lines: int) -> None:
        """Count what is no frame, and list damaged lines by their numbers."""
        self._skipped.reasons.update(block.skipped)
        if not block.damaged:
            return
        feeds = np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n"))
        for position, reason, _ in sorted(block.damaged):
            self._skipped.note(reason, f"line {lines + 1 + int(np.searchsorted(feeds, position - at))}")


def read_log(
    path: str | os.PathLike[str], format: str | None = None, *, columns: str | None = None, time_unit: str | None = None
) -> CanLog:
    """Open a CAN log; `log.detected` says what it is taken for, and what is doubtful.

    Print `log.detected` once for logs of a new tool: if it has doubts, give `time_unit` or `columns`.

    Args:
        path: A log, plain or compressed (gzip, zstd, bzip2, xz), which its content shows.
        format: The name of a format (see `docs/can-logs.md`); by default it is found by the content, and only if that
            shows nothing by the ending of the name.
        columns: The columns of a text log in their order, like `time:ms, id:hex, -, length, data`, instead of a format.
        time_unit: What plain numbers count that are times: `s`, `ms`, `100us`, `us` or `ns`. Give it if `log.detected`
            says that it is doubtful.

    Raises:
        RecordingError: The file cannot be opened, its format is not known, or the columns are none.

    >>> read_log("drive.log", "xyz")
    Traceback (most recent call last):
    genus.errors.RecordingError: drive.log: 'xyz' is no format of CAN logs; known: log, candump, asc, trc, ...
    """
    if format is not None and format not in FORMATS:
        raise RecordingError(f"{path}: {format!r} is no format of CAN logs; known: {', '.join(FORMATS)}")
    try:
        found = _find(path, format, columns, None if time_unit is None else unit_of(time_unit))
    except RecordingError as problem:
        raise RecordingError(f"{path}: {problem}") from None
    except OSError as problem:
        raise RecordingError(f"cannot read {path}: {problem.strerror or problem}") from None
    opened, detected = (None, found) if isinstance(found, Detected) else found
    assert detected.format is not None
    return CanLog(Path(path), detected.format, detected, _format=opened)


def _find(
    path: str | os.PathLike[str], format: str | None, columns: str | None, time_unit: Unit | None
) -> Opened | Detected:
    start = read_head(Path(path), HEAD_BYTES)
    if columns is not None:
        return open_text("columns", Head.of(start), columns, time_unit)
    found = find(start) if format is None else Detected(format)
    if not isinstance(found, Detected):
        assert found.detected.format is not None
        return found if time_unit is None else open_text(found.detected.format, Head.of(start), None, time_unit)
    name = found.format or format_by_ending(log_ending(path), start)
    if name is None:
        raise RecordingError(f"it is not recognised as a CAN log: {found.tried}")
    if name not in TEXT_FORMATS:
        return found._replace(format=name)
    try:
        return open_text(name, Head.of(start), None, time_unit)
    except RecordingError:
        return Detected(name)  # reading it says why


def log_ending(path: str | os.PathLike[str]) -> str:
    """Return the ending of a file's name in lower case, before that of a compression.

    >>> log_ending("Drive.ASC.gz")
    'asc'
    """
    name = os.path.basename(os.fspath(path)).lower()
    for ending in COMPRESSED_ENDINGS:
        name = name.removesuffix(ending)
    return os.path.splitext(name)[1].removeprefix(".")
