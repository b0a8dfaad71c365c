"""A block of lines of a text log: its tokens, in columns, and the frames that were read of its lines."""

import re
from itertools import accumulate, pairwise
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from genus.can._logs.digits import FRONT, Bytes, Mask, Offsets, words_at
from genus.can._logs.frames import EXTENDED, FrameColumns
from genus.can._wire.frame import CLASSIC_BYTES, FD_BYTES, Frame

Rows: TypeAlias = npt.NDArray[np.intp]
"""Numbers of lines in a block."""

BLANKS = " \t\r\n\x0b\x0c"
BEHIND = 8 * FD_BYTES
"""So many bytes are behind the last character, for windows that go over its end."""
_QUOTE = ord('"')
_IS_BLANK = np.zeros(256, np.bool_)
_IS_BLANK[list(BLANKS.encode())] = True


class Tokens(NamedTuple):
    """The tokens of all lines: where each begins and ends, and for each line its first token and their number."""

    start: Offsets
    end: Offsets
    first: Offsets
    number: Offsets


class TextBlock:
    """Whole lines of a log in a buffer of numpy; offsets count from the beginning of the buffer."""

    def __init__(self, text: bytes, delimiter: str) -> None:
        """Tokens, which `split` finds, are separated by blanks, or by one `delimiter` each: then they can be empty."""
        self.text, self.delimiter = text, delimiter
        end = b"" if text.endswith(b"\n") else b"\n"
        self.buffer: Bytes = np.frombuffer(b"\n" * FRONT + text + end + b"\n" * BEHIND, np.uint8)
        size = FRONT + len(text) + len(end)
        self.end: Offsets = np.flatnonzero(self.buffer[FRONT:size] == ord("\n")) + FRONT
        self.start: Offsets = np.append(FRONT, self.end[:-1] + 1)[: len(self.end)]
        self._size = size

    def __len__(self) -> int:
        return len(self.start)

    def line(self, row: int) -> bytes:
        return self.text[self.start[row] - FRONT : self.end[row] - FRONT]

    def split(self, is_read: Mask) -> None:
        """Cut lines into tokens, which takes long; if many lines were read already, they are left out."""
        size = self._size
        used = self.buffer[:size]
        if 4 * int(is_read.sum()) > len(is_read):
            lengths = np.append(FRONT, self.end - self.start + 1)
            filled = np.uint8(ord("0" if self.delimiter else "\n"))
            used = np.where(np.repeat(np.append(False, is_read), lengths), filled, used)
            used[self.end] = ord("\n")
        self.tokens = self._tokens(used)

    def _tokens(self, used: Bytes) -> Tokens:
        if not self.delimiter:
            is_blank = _blanks(used)
            edges = np.flatnonzero(is_blank[1:] != is_blank[:-1]) + 1
            start, end = edges[0::2], edges[1::2]
        else:
            end = np.flatnonzero((used == ord(self.delimiter)) | (used == ord("\n")))[FRONT:]
            start = np.append(FRONT, end[:-1] + 1)[: len(end)]
            end = end - ((self.buffer[end - 1] == ord("\r")) & (self.buffer[end] == ord("\n")))
        first = np.searchsorted(start, self.start)
        return Tokens(start, end, first, np.diff(first, append=len(start)))

    def is_unquoted(self) -> Mask | None:
        """Return the lines without quotes; None if that is all lines."""
        quotes = np.flatnonzero(self.buffer == _QUOTE)
        if not len(quotes):
            return None
        found: Mask = np.searchsorted(quotes, self.start) == np.searchsorted(quotes, self.end)
        return found

    def has_bytes(self, starts: Offsets, wanted: bytes) -> Mask:
        found = np.ones(len(starts), np.bool_)
        for part in range(0, len(wanted), 8):
            piece = wanted[part : part + 8]
            mask, word = np.uint64((1 << 8 * len(piece)) - 1), np.uint64(int.from_bytes(piece, "little"))
            found &= (words_at(self.buffer, starts + part) & mask) == word
        return found


def _blanks(text: Bytes) -> Mask:
    """Return which characters are blanks: by comparing, unless there are control characters that are none."""
    found: Mask = text <= ord(" ")
    if ((text < ord("\t")) | ((text > ord("\r")) & (text < ord(" ")))).any():
        found = _IS_BLANK[text]
    return found


_COLOUR = re.compile(rb"\x1b\[[0-9;]*[mK]")


def without_colours(text: bytes) -> bytes:
    return _COLOUR.sub(lambda found: b" " * len(found[0]), text) if b"\x1b" in text else text


_TOKEN = re.compile(f"[^{BLANKS}]+")


def split_line(text: str, delimiter: str) -> list[tuple[int, int]]:
    if not delimiter:
        return [found.span() for found in _TOKEN.finditer(text)]
    bounds = accumulate((len(cell) + 1 for cell in text.removesuffix("\r").split(delimiter)), initial=0)
    return [(start, end - 1) for start, end in pairwise(bounds)]


def split_quoted(text: str, delimiter: str) -> list[tuple[int, int]]:
    if not delimiter or '"' not in text:
        return split_line(text, delimiter)
    text = text.removesuffix("\r")
    spans, start, is_quoted = [], 0, False
    for at, letter in enumerate(text):
        is_quoted ^= letter == '"'
        if letter == delimiter and not is_quoted:
            spans.append((start, at))
            start = at + 1
    return [*spans, (start, len(text))]


# -- the frames of the lines -------------------------------------------------------------------------------------------

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
        self._direction[row] = direction
        self._kind[row] = kind = _FD if frame.fd else _CLASSIC
        self.add_stamp(row, stamp)
        self._identifier[row] = frame.id | EXTENDED * frame.extended
        self._length[row] = len(frame.data)
        self._rows_of(kind)[row, : len(frame.data)] = np.frombuffer(frame.data, np.uint8)
        self._channel[row] = self._number(channel)

    def add_stamp(self, row: int, stamp: int | None) -> None:
        if stamp is not None:
            self.stamps[row], self.has_stamp[row] = stamp, True

    def _rows_of(self, kind: int) -> Bytes:
        if kind not in self._data:
            self._data[kind] = np.zeros((len(self._kind), _WIDTHS[kind]), np.uint8)
        return self._data[kind]

    def _number(self, channel: str | None) -> int:
        return self._channels.setdefault(channel, len(self._channels))

    def forget(self, start: int) -> None:
        self._kind[start:], self.has_stamp[start:] = _NOTHING, False
        for each in self._data.values():
            each[start:] = 0

    def is_frame(self) -> Mask:
        found: Mask = self._kind != _NOTHING
        return found

    def columns(self, times: Offsets, is_kept: Mask, position: Offsets) -> list[FrameColumns]:
        found = []
        for kind, data in self._data.items():
            wanted = is_kept & (self._kind == kind)
            rows = slice(None) if wanted.all() else np.flatnonzero(wanted)
            columns = times[rows], self._identifier[rows], self._length[rows], data[rows], position[rows]
            if len(columns[0]):
                names = tuple(self._channels)
                found.append(FrameColumns(*columns, self._channel[rows], names, self._direction[rows]))
        return found
