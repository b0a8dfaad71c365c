"""Records of a binary log in columns, as its reader finds them, and the blocks of frames that they become."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from genus.can._logs.frames import EXTENDED, FrameColumns, LogBlock
from genus.can._logs.log_file import BAD_IDENTIFIER, BAD_TIME, LAST_US, LENGTHS_DISAGREE, SkippedRecords
from genus.can._wire.frame import CLASSIC_BYTES, FD_BYTES, ID_MASK, STANDARD_ID_MASK
from genus.can._wire.length import FD_SIZES

FRAMES_AT_ONCE = 1 << 16
"""So many frames a block has at least, because decoding has a cost for each block."""
_FD_LENGTHS = np.array(FD_SIZES)

Bytes: TypeAlias = npt.NDArray[np.uint8]
Numbers: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]


class Records(NamedTuple):
    """Records that hold data frames, if their fields are possible."""

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
        """Some of the records."""
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
    """Rows of exactly so many bytes."""
    if data.shape[1] >= width:
        return np.ascontiguousarray(data[:, :width])
    return np.pad(data, ((0, 0), (0, width - data.shape[1])))


def fields_at(buffer: Bytes, starts: Numbers, fields: np.dtype[Any]) -> npt.NDArray[Any]:
    """Structures of the same kind at some bytes, gathered; the buffer must have room for the last one."""
    size = fields.itemsize
    overlapping: npt.NDArray[Any] = np.ndarray((max(len(buffer) - size + 1, 0),), f"V{size}", buffer, 0, (1,))
    return overlapping[starts].view(fields)


def length_of_code(code: npt.NDArray[Any], fd: Mask) -> Numbers:
    """Return the number of bytes that a DLC stands for: 9 to 15 are 8 bytes in a classic frame."""
    lengths: Numbers = _FD_LENGTHS[np.minimum(code, 15)]
    return np.where(fd, lengths, np.minimum(lengths, CLASSIC_BYTES))


def numbered(values: npt.NDArray[Any]) -> tuple[list[int], npt.NDArray[np.int32]]:
    """Return the distinct numbers of channels, and the index of each value among them."""
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
