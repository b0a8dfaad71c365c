"""Long messages from columns of frames: what `LongMessages` does frame by frame, for the few frames that are parts.

Their rows are found in columns, and taken one by one: parts are rare, and their order matters. The messages are columns
of frames again, as long as the longest of them, so that `ColumnDecoder` decodes them like frames.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np

from genus.can._dbc.columns import part_rows
from genus.can._dbc.layout import MessageLayout
from genus.can._dbc.long_messages import LongMessages
from genus.can._j1939.reassembly import Incomplete, LongMessage
from genus.can._logs.frames import EXTENDED, FrameColumns, Rows
from genus.can._wire.frame import CLASSIC_BYTES

LONG_POSITION = 1 << 40
"""Is added to the position of a message's last frame, which may be an event itself."""


class _Whole(NamedTuple):
    """A message that is complete, and its last part, by its number among the parts."""

    message: LongMessage
    part: int


class LongColumns:
    """State: the long messages in progress, from one block of frames to the next."""

    def __init__(
        self, messages: Iterable[MessageLayout], on_incomplete: Callable[[Incomplete], object] | None = None
    ) -> None:
        self.bus = LongMessages(messages, on_incomplete)
        self._pgns = np.array(sorted(self.bus.pgns), np.uint32)

    def add(self, frames: FrameColumns) -> FrameColumns | None:
        """Take frames in the order of the log; returns the messages that they complete, None if there are none.

        The mark of an incomplete message is the position, time, channel, identifier and data of its first frame.
        """
        rows = part_rows(frames.identifier, self._pgns)
        rows = rows[frames.length[rows] <= CLASSIC_BYTES]
        found = [each for each in self._receive_all(frames.take(rows)) if each is not None]
        return _columns_of(found, rows, frames) if found else None

    def close(self) -> None:
        """Give up all messages in progress."""
        self.bus.close()

    def _receive_all(self, parts: FrameColumns) -> Iterator[_Whole | None]:
        """Give the parts to the bus, one by one."""
        data, receive, channels = parts.data[:, :CLASSIC_BYTES].tobytes(), self.bus.receive, parts.channels
        columns = (parts.position, parts.at_us, parts.channel, parts.identifier, parts.length)
        for number, row in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
            position, at_us, channel, identifier, length = row
            frame_id, name, start = identifier & ~EXTENDED, channels[channel], CLASSIC_BYTES * number
            payload = data[start : start + length]
            message = receive(name, frame_id, payload, at_us, (position, at_us, name, frame_id, payload))
            yield None if message is None else _Whole(message, number)


def _columns_of(found: list[_Whole], parts: Rows, frames: FrameColumns) -> FrameColumns:
    """Messages as frames that are as long as they need to be; `parts` are the rows of all parts."""
    rows = parts[[each.part for each in found]]
    lengths = [len(each.message.data) for each in found]
    width = -(-max(lengths) // 8) * 8
    padded = b"".join(each.message.data.ljust(width, b"\0") for each in found)
    return FrameColumns(
        frames.at_us[rows],
        np.array([each.message.frame_id | EXTENDED for each in found], np.uint32),
        np.array(lengths, np.uint16),
        np.frombuffer(padded, np.uint8).reshape(-1, width),
        frames.position[rows] + LONG_POSITION,
        frames.channel[rows],
        frames.channels,
        frames.direction[rows],
    )
