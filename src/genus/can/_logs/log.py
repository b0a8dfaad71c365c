"""CAN logs: candump, ASC, BLF, TRC and CSV files, plain or gzip, as frames.

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

from genus.can._logs.blf import read_blf
from genus.can._logs.candump import read_candump
from genus.can._logs.frames import LoggedFrame
from genus.can._logs.log_file import LogFile, SkippedRecords
from genus.can._logs.text_logs import AscLogFormat, CsvLogFormat, TrcLogFormat, read_text_log
from genus.errors import RecordingError

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
