"""The frames of a block of lines, gathered in columns in the order of the lines, however they were read."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from genus.can._logs.digits import Bytes, Mask, Offsets
from genus.can._logs.frames import EXTENDED, FrameColumns
from genus.can._logs.text_block import Rows
from genus.can._wire.frame import CLASSIC_BYTES, FD_BYTES, Frame

_NOTHING, _CLASSIC, _FD = 0, 1, 2
_WIDTHS = {_CLASSIC: CLASSIC_BYTES, _FD: FD_BYTES}


class ReadLines(NamedTuple):
    """Lines that were read together: their numbers, time stamps, identifiers, data of one length, and channels."""

    rows: Rows
    stamps: Offsets
    identifier: npt.NDArray[np.uint32]
    data: Bytes
    channel: npt.NDArray[np.int32] | None
    """The index in `channels` of each channel; None if all have the first one."""
    channels: tuple[str | None, ...]
    fd: bool
    direction: int

    def valid(self, mask: Mask) -> "ReadLines | None":
        """Return the lines of a mask; None if there are none."""
        if mask.all():
            return self
        kept = np.flatnonzero(mask)
        if not len(kept):
            return None
        return self._replace(
            rows=self.rows[kept],
            stamps=self.stamps[kept],
            identifier=self.identifier[kept],
            data=self.data[kept],
            channel=None if self.channel is None else self.channel[kept],
        )


class LineFrames:
    """State: what was read of the lines of a block, a row for each line."""

    def __init__(self, lines: int) -> None:
        self._kind = np.zeros(lines, np.uint8)
        self.stamps = np.zeros(lines, np.int64)
        self.has_stamp = np.zeros(lines, np.bool_)
        """Lines with a time stamp, which need not be frames."""
        self._identifier = np.zeros(lines, np.uint32)
        self._length = np.zeros(lines, np.uint8)
        self._data = {_CLASSIC: np.zeros((lines, CLASSIC_BYTES), np.uint8)}
        self._channel = np.zeros(lines, np.int32)
        self._channels: dict[str | None, int] = {}
        self._direction = np.zeros(lines, np.int8)

    def add(self, read: ReadLines) -> None:
        """Keep lines that were read together."""
        rows, size = read.rows, read.data.shape[1]
        self._kind[rows] = kind = _FD if read.fd else _CLASSIC
        self.stamps[rows] = read.stamps
        self.has_stamp[rows] = True
        self._identifier[rows] = read.identifier
        self._length[rows] = size
        self._direction[rows] = read.direction
        self._rows_of(kind)[rows, :size] = read.data
        numbers = np.array([self._number(name) for name in read.channels], np.int32)
        self._channel[rows] = numbers[0] if read.channel is None else numbers[read.channel]

    def add_frame(self, row: int, stamp: int | None, channel: str | None, frame: Frame, direction: int) -> None:
        """Keep a line that was read alone."""
        self._direction[row] = direction
        self._kind[row] = kind = _FD if frame.fd else _CLASSIC
        self.add_stamp(row, stamp)
        self._identifier[row] = frame.id | EXTENDED * frame.extended
        self._length[row] = len(frame.data)
        self._rows_of(kind)[row, : len(frame.data)] = np.frombuffer(frame.data, np.uint8)
        self._channel[row] = self._number(channel)

    def add_stamp(self, row: int, stamp: int | None) -> None:
        """Keep the time stamp of a line, which may have no frame."""
        if stamp is not None:
            self.stamps[row], self.has_stamp[row] = stamp, True

    def _rows_of(self, kind: int) -> Bytes:
        if kind not in self._data:
            self._data[kind] = np.zeros((len(self._kind), _WIDTHS[kind]), np.uint8)
        return self._data[kind]

    def _number(self, channel: str | None) -> int:
        return self._channels.setdefault(channel, len(self._channels))

    def forget(self, start: int) -> None:
        """Forget what was read of line `start` and those after it."""
        self._kind[start:], self.has_stamp[start:] = _NOTHING, False
        for each in self._data.values():
            each[start:] = 0

    def is_frame(self) -> Mask:
        """Return the lines with a frame."""
        found: Mask = self._kind != _NOTHING
        return found

    def columns(self, times: Offsets, is_kept: Mask, position: Offsets) -> list[FrameColumns]:
        """Return the frames of some lines with their times: classic and CAN FD ones apart."""
        found = []
        for kind, data in self._data.items():
            wanted = is_kept & (self._kind == kind)
            rows = slice(None) if wanted.all() else np.flatnonzero(wanted)
            columns = times[rows], self._identifier[rows], self._length[rows], data[rows], position[rows]
            if len(columns[0]):
                names = tuple(self._channels)
                found.append(FrameColumns(*columns, self._channel[rows], names, self._direction[rows]))
        return found
