"""CAN logs as one stream of frames: candump, ASC, BLF, TRC and CSV files, plain or gzipped.

Reading goes on after damage, as far as a format allows: what cannot be read is counted by reason, and the first places
are kept.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

from genus.can.dbc.blf import read_blf
from genus.can.dbc.candump import read_candump
from genus.can.dbc.lines import read_lines
from genus.can.dbc.seen import LogFile, Logged, PassedOver
from genus.can.dbc.textformats import AscLines, CsvLines, TrcLines
from genus.errors import RecordingError

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
