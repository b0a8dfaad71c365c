"""The data frames of a log: one by one, in columns of numpy, and as records of a binary log."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat
from operator import itemgetter
from typing import Any, Literal, NamedTuple, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from genus.can._logs.log_file import BAD_IDENTIFIER, BAD_TIME, LAST_US, LENGTHS_DISAGREE, SkippedRecords
from genus.can._wire.frame import CLASSIC_BYTES, FD_BYTES, FD_SIZES, ID_MASK, STANDARD_ID_MASK, Frame

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
        """Make columns of frames that were read one by one, each given with its position.

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
        """Return a few rows, made by `map` and `zip` alone, which is quicker than a loop."""
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


# -- records of binary logs --------------------------------------------------------------------------------------------

FRAMES_AT_ONCE = 1 << 16
"""So many frames a block has at least, because decoding has a cost for each block."""
_FD_LENGTHS = np.array(FD_SIZES)

Bytes: TypeAlias = npt.NDArray[np.uint8]
Numbers: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]


class Records(NamedTuple):
    at_us: Numbers
    number: Numbers
    """The identifier, of which no more than 29 bits may be set."""
    extended: Mask
    length: Numbers
    fd: Mask
    data: Bytes
    """As wide as the log has it."""
    position: Numbers
    channel: npt.NDArray[np.int32]
    channels: tuple[str | None, ...]
    direction: npt.NDArray[np.int8]

    def of(self, chosen: Mask) -> "Records":
        if chosen.all():
            return self
        columns = {name: values[chosen] for name, values in self._asdict().items() if name != "channels"}
        return self._replace(**columns)

    def frames(
        self, skipped: SkippedRecords, location: str, are_lengths_good: Mask | bool = True
    ) -> list[FrameColumns]:
        """Classic and CAN FD frames apart; records with an impossible field are counted.

        A damaged record is listed by `location`, such as `row`, and its number from 1.
        """
        widest = np.where(self.fd, min(FD_BYTES, self.data.shape[1]), CLASSIC_BYTES)
        most = np.where(self.extended, ID_MASK, STANDARD_ID_MASK)
        tests = (
            (BAD_IDENTIFIER, (self.number >= 0) & (self.number <= most)),
            (LENGTHS_DISAGREE, (self.length >= 0) & (self.length <= widest) & are_lengths_good),
            (BAD_TIME, (self.at_us >= 0) & (self.at_us <= LAST_US)),
        )
        is_good = np.ones(len(self.at_us), np.bool_)
        for reason, is_possible in tests:
            for row in np.flatnonzero(is_good & ~is_possible).tolist():
                skipped.note(reason, f"{location} {self.position[row] + 1}")
            is_good &= is_possible
        return [part for fd in (False, True) for part in self._columns(is_good & (self.fd == fd), fd)]

    def _columns(self, chosen: Mask, fd: bool) -> Iterator[FrameColumns]:
        if not chosen.any():
            return
        rows = slice(None) if chosen.all() else np.flatnonzero(chosen)
        marked = np.where(self.extended[rows], self.number[rows] | EXTENDED, self.number[rows])
        yield FrameColumns(
            self.at_us[rows],
            marked.astype(np.uint32),
            self.length[rows].astype(np.uint8),
            padded(self.data[rows], FD_BYTES if fd else CLASSIC_BYTES),
            self.position[rows],
            self.channel[rows],
            self.channels,
            self.direction[rows],
        )


def padded(data: Bytes, width: int) -> Bytes:
    if data.shape[1] >= width:
        return np.ascontiguousarray(data[:, :width])
    return np.pad(data, ((0, 0), (0, width - data.shape[1])))


def fields_at(buffer: Bytes, starts: Numbers, fields: np.dtype[Any]) -> npt.NDArray[Any]:
    """Structures of the same kind at some bytes, gathered; the buffer must have room for the last one."""
    size = fields.itemsize
    overlapping: npt.NDArray[Any] = np.ndarray((max(len(buffer) - size + 1, 0),), f"V{size}", buffer, 0, (1,))
    return overlapping[starts].view(fields)


def length_of_code(code: npt.NDArray[Any], fd: Mask) -> Numbers:
    lengths: Numbers = _FD_LENGTHS[np.minimum(code, 15)]
    return np.where(fd, lengths, np.minimum(lengths, CLASSIC_BYTES))


def numbered(values: npt.NDArray[Any]) -> tuple[list[int], npt.NDArray[np.int32]]:
    found, which = np.unique(values, return_inverse=True)
    return [int(each) for each in found], which.astype(np.int32)


def blocks(found: Iterable[list[FrameColumns]]) -> Iterator[LogBlock]:
    """Blocks of enough frames, each of one width in one piece and in the order of the log."""
    waiting: list[FrameColumns] = []
    for parts in found:
        waiting += parts
        if sum(len(part.at_us) for part in waiting) >= FRAMES_AT_ONCE:
            yield _block(waiting)
            waiting = []
    if waiting:
        yield _block(waiting)


def _block(parts: list[FrameColumns]) -> LogBlock:
    made = []
    for width in (CLASSIC_BYTES, FD_BYTES):
        if same := [part for part in parts if part.data.shape[1] == width]:
            whole = FrameColumns.concat(same)
            in_order = bool((np.diff(whole.position) > 0).all())
            made.append(whole if in_order else whole.take(np.argsort(whole.position, kind="stable")))
    return LogBlock(made, [], Counter())
