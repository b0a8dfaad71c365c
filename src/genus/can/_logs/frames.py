"""The data frames of a log: one by one, and in columns of numpy."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat
from operator import itemgetter
from typing import Literal, NamedTuple, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from genus.can._wire.frame import CLASSIC_BYTES, FD_BYTES, Frame

EXTENDED = 0x8000_0000
"""This bit of an identifier in a column marks one of 29 bits."""
Direction: TypeAlias = Literal["rx", "tx"]
DIRECTIONS: tuple[Direction | None, ...] = (None, "rx", "tx")
"""What the numbers in the column `direction` mean."""
RX, TX = 1, 2
_ID_BITS = EXTENDED - 1
_ROWS_AT_ONCE = 1 << 10
"""So few that what is made of them stays in the cache of the processor."""

Rows: TypeAlias = npt.NDArray[np.intp]
"""Row numbers in `FrameColumns`."""


class LoggedFrame(NamedTuple):
    """A data frame of a log: its time in microseconds since 1970 (UTC), its channel if the log names it, the frame."""

    at_us: int
    channel: str | None
    frame: Frame
    direction: Direction | None = None
    """Whether the logging device received or sent it; None if the log does not say."""


class FrameColumns(NamedTuple):
    """Data frames of a log, as columns of numpy."""

    at_us: npt.NDArray[np.int64]
    """The time of each frame, in microseconds since 1970 (UTC)."""
    identifier: npt.NDArray[np.uint32]
    """With the bit `EXTENDED` if it has 29 bits."""
    length: npt.NDArray[np.uint8] | npt.NDArray[np.uint16]
    data: npt.NDArray[np.uint8]
    """A row of 8 bytes for each frame, of 64 for CAN FD, or more for long messages; bytes after its length are void."""
    position: npt.NDArray[np.int64]
    """Where in the log each frame is."""
    channel: npt.NDArray[np.int32]
    """The index in `channels` of each frame's channel."""
    channels: tuple[str | None, ...]
    direction: npt.NDArray[np.int8]
    """For each frame 1 if it was received, 2 if it was sent, 0 if the log does not say: an index in `DIRECTIONS`."""

    @classmethod
    def of(cls, logged: Sequence[tuple[int, LoggedFrame]], width: int | None = None) -> Self:
        """Columns of frames that were read one by one, each given with its position.

        `width` is the width of the data, by default 8 if no frame has more bytes, else 64.

        >>> from genus.can import Frame
        >>> frames = FrameColumns.of([(0, LoggedFrame(5, "can0", Frame(0x123, b"hi", extended=False)))])
        >>> frames.data.tolist(), frames.channels
        ([[104, 105, 0, 0, 0, 0, 0, 0]], ('can0',))
        """
        frames = [each.frame for _, each in logged]
        if width is None:
            width = CLASSIC_BYTES if all(len(frame.data) <= CLASSIC_BYTES for frame in frames) else FD_BYTES
        channels = _numbered(each.channel for _, each in logged)
        return cls(
            np.array([each.at_us for _, each in logged], np.int64),
            np.array([frame.id | EXTENDED * frame.extended for frame in frames], np.uint32),
            np.array([len(frame.data) for frame in frames], np.uint8),
            np.frombuffer(b"".join(frame.data.ljust(width, b"\0") for frame in frames), np.uint8).reshape(-1, width),
            np.array([position for position, _ in logged], np.int64),
            np.array([channels[each.channel] for _, each in logged], np.int32),
            tuple(channels),
            np.array([DIRECTIONS.index(each.direction) for _, each in logged], np.int8),
        )

    @classmethod
    def concat(cls, parts: "Sequence[FrameColumns]") -> "FrameColumns":
        """Return the frames of several parts, which must have data of one width."""
        if len(parts) == 1:
            return parts[0]
        channels = _numbered(name for part in parts for name in part.channels)
        renumbered = [np.array([channels[name] for name in part.channels], np.int32)[part.channel] for part in parts]
        return cls(
            np.concatenate([part.at_us for part in parts]),
            np.concatenate([part.identifier for part in parts]),
            np.concatenate([part.length for part in parts]),
            np.concatenate([part.data for part in parts]),
            np.concatenate([part.position for part in parts]),
            np.concatenate(renumbered),
            tuple(channels),
            np.concatenate([part.direction for part in parts]),
        )

    def rows(self) -> Iterator[tuple[int, LoggedFrame]]:
        """Yield the frames one by one, each with its position; those with room for 64 bytes are CAN FD frames."""
        for start in range(0, len(self.at_us), _ROWS_AT_ONCE):
            yield from self._some_rows(slice(start, start + _ROWS_AT_ONCE))

    def _some_rows(self, rows: slice) -> Iterator[tuple[int, LoggedFrame]]:
        """Return a few rows, made by `map` and `zip` alone, which takes half the time of a loop."""
        width, names = self.data.shape[1], self.channels
        identifier, data = self.identifier[rows], self.data[rows].tobytes()
        starts = np.arange(0, width * len(identifier), width)
        ends = (starts + self.length[rows]).tolist()
        payloads = [data[start:end] for start, end in zip(starts.tolist(), ends, strict=True)]
        extended = (identifier >= EXTENDED).tolist()
        frames = map(Frame, (identifier & _ID_BITS).tolist(), payloads, repeat(width > CLASSIC_BYTES), extended)
        channel = [names[each] for each in self.channel[rows].tolist()]
        direction = [DIRECTIONS[each] for each in self.direction[rows].tolist()]
        fields = zip(self.at_us[rows].tolist(), channel, frames, direction, strict=True)
        logged: Iterator[LoggedFrame] = map(tuple.__new__, repeat(LoggedFrame), fields)
        return zip(self.position[rows].tolist(), logged, strict=True)

    def take(self, rows: Rows) -> "FrameColumns":
        """Return the frames of some rows."""
        taken = (self.at_us[rows], self.identifier[rows], self.length[rows], self.data[rows], self.position[rows])
        return FrameColumns(*taken, self.channel[rows], self.channels, self.direction[rows])


def _numbered(names: Iterable[str | None]) -> dict[str | None, int]:
    """Return the distinct names, numbered in the order of their first occurrence."""
    return {name: number for number, name in enumerate(dict.fromkeys(names))}


class DamagedLine(NamedTuple):
    """A line of which no frame can be read: the byte at which it begins, the reason, and its text."""

    position: int
    reason: str
    line: bytes


class LogBlock(NamedTuple):
    """The data frames of some lines of a log, the damaged lines, and how many lines are no data frames, by reason."""

    frames: list[FrameColumns]
    damaged: list[DamagedLine]
    skipped: Counter[str]
    """Error and remote frames."""
    lines: int = 0
    """How many lines there are; 0 in binary formats."""

    def rows(self) -> Iterable[tuple[int, LoggedFrame]]:
        """Return the frames one by one with their positions, in the order of the log."""
        parts = [part.rows() for part in self.frames]
        return parts[0] if len(parts) == 1 else sorted(chain(*parts), key=itemgetter(0))
