"""Lines of text logs: one line, which says what a line means, and a block of lines in columns.

`Fields` are where the fields of a line are, `read_fields` gives the frame that they make. `columns_of_lines` reads many
lines of the same form by the fields of one of them; `TextBlock` has the tokens of a block, in columns, and the frames
that were read of its lines.
"""

import re
from base64 import b64decode
from binascii import Error as Base64Error
from itertools import accumulate, pairwise
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from genus.can._logs.digits import FRONT, Bytes, Mask, Offsets, words_at
from genus.can._logs.frames import EXTENDED, FrameColumns
from genus.can._logs.log_file import BAD_IDENTIFIER, DAMAGED_LINE, LENGTHS_DISAGREE, decode_text
from genus.can._logs.times import Span, TimeFields
from genus.can._wire.frame import CLASSIC_BYTES, FD_BYTES, FD_SIZES, ID_MASK, STANDARD_ID_MASK, Frame

Packing: TypeAlias = Literal["bytes", "hex", "base64"]
"""How data is written: a field for each byte, or one with the hexadecimal digits or the base 64 of all."""
NMEA_PARTS = "message of several frames"
"""Why a line of a log of NMEA 2000 messages is no frame."""


class Fields(NamedTuple):
    id: Span
    data: tuple[Span, ...]
    """A field for each byte, or one with all bytes (see `packing`)."""
    length: int
    end: int
    """Where the frame ends; what is behind it in the line does not matter, unless `is_whole`."""
    time: TimeFields = TimeFields()
    channel: Span | None = None
    base: int = 16
    data_base: int = 16
    packing: Packing = "bytes"
    extended: bool | None = None
    """None if the line does not say it: an identifier of more than `standard_digits` is extended."""
    standard_digits: int = 16
    by_value: bool = True
    """Whether an identifier of more than 11 bits is extended, too, if the line does not say it."""
    fd: bool = False
    digits: tuple[Span, ...] = ()
    """Decimal numbers without a meaning, such as line numbers."""
    free: tuple[Span, ...] = ()
    """Fields without a meaning, whatever they contain."""
    is_whole: bool = False
    """Whether what is behind the frame matters."""
    direction: int = 0
    """1 received, 2 sent, 0 if the line does not say."""
    address: tuple[Span, Span, Span] | None = None
    """Of a J1939 identifier the priority, the source and the destination; then `id` is its parameter group (PGN)."""

    def spans(self) -> list[Span]:
        found = [self.id, *self.data, *(part.span for part in self.time.parts), *self.digits, *(self.address or ())]
        return found + [span for span in (self.channel, self.time.date) if span is not None]


class NoFrame(NamedTuple):
    reason: str
    time: TimeFields = TimeFields()


def read_fields(text: str, fields: Fields) -> Frame | str:
    identifier = int(text[slice(*fields.id)], fields.base)
    if fields.address is not None:
        identifier = j1939_identifier(identifier, *(int(text[slice(*span)], fields.base) for span in fields.address))
    extended = is_extended(fields, identifier, fields.id[1] - fields.id[0])
    if identifier > (ID_MASK if extended else STANDARD_ID_MASK):
        return BAD_IDENTIFIER
    data = _data(text, fields)
    if isinstance(data, str):
        return data
    if len(data) != fields.length or len(data) > (FD_BYTES if fields.fd else CLASSIC_BYTES):
        return LENGTHS_DISAGREE
    return Frame(identifier, data, fields.fd, extended)


def j1939_identifier(pgn: int, priority: int, source: int, destination: int) -> int:
    """Return the identifier of a parameter group; more than 29 bits if a number is out of range.

    >>> hex(j1939_identifier(130311, 5, 4, 255)), hex(j1939_identifier(59904, 6, 1, 2))
    ('0x15fd0704', '0x18ea0201')
    """
    if priority > 7 or source > 255 or destination > 255 or pgn > 0x3FFFF:
        return ID_MASK + 1
    to = pgn | destination if pgn >> 8 & 0xFF < 240 else pgn
    return priority << 26 | to << 8 | source


def is_extended(fields: Fields, identifier: int, digits: int) -> bool:
    if fields.extended is not None:
        return fields.extended
    return (fields.by_value and identifier > STANDARD_ID_MASK) or digits > fields.standard_digits


def _data(text: str, fields: Fields) -> bytes | str:
    if fields.packing == "bytes":
        values = [int(text[slice(*span)], fields.data_base) for span in fields.data]
        return bytes(values) if all(value < 256 for value in values) else DAMAGED_LINE
    joined = "".join(text[slice(*span)] for span in fields.data)
    try:
        return bytes.fromhex(joined) if fields.packing == "hex" else b64decode(joined, validate=True)
    except (ValueError, Base64Error):
        return DAMAGED_LINE


def channel_of(text: str, span: Span | None) -> str | None:
    return None if span is None else decode_text(text[slice(*span)].encode("latin-1"))


def frame_length(code: int, *, fd: bool) -> int | None:
    """Return the number of data bytes of a data length code; None if it is none."""
    if not 0 <= code < len(FD_SIZES):
        return None
    return FD_SIZES[code] if fd else min(code, CLASSIC_BYTES)


# -- bytes in text -----------------------------------------------------------------------------------------------------

_BETWEEN = r"[\s:.,;_|\"'\[\]()-]"
_BYTE = {
    16: re.compile(rf"{_BETWEEN}*(?:0x)?([0-9A-F]{{1,2}})(?={_BETWEEN}|$)", re.ASCII | re.IGNORECASE),
    10: re.compile(rf"{_BETWEEN}*(\d{{1,3}})(?={_BETWEEN}|$)", re.ASCII),
}
_PREFIX = re.compile(rf"{_BETWEEN}*(?:b'|x\|)?", re.ASCII)
_JOINED = re.compile(rf"{_BETWEEN}*(?:0x)?((?:[0-9A-F]{{2}})*)(?={_BETWEEN}|$)", re.ASCII | re.IGNORECASE)
_BASE64 = re.compile(r"\s*\"?([A-Za-z0-9+/]*={0,2})", re.ASCII)
_REST = re.compile(rf"{_BETWEEN}*", re.ASCII)
_MORE = re.compile(rf"{_BETWEEN}*(?:0x)?[0-9A-F]{{1,2}}(?:{_BETWEEN}|$)", re.ASCII | re.IGNORECASE)


class FoundBytes(NamedTuple):
    spans: tuple[Span, ...]
    size: int
    packing: Packing
    end: int


def find_bytes(
    text: str, span: Span, count: int | None, base: int = 16, packing: Packing | None = None
) -> FoundBytes | str:
    """Return the fields of so many bytes (None: of all in `span`), or why there are none.

    They are apart (`11 22`, `11:22`, `0x11, 0x22`), or one word of hexadecimal digits, which may be longer if the rest
    is zeros. What is in `span` behind the bytes is not looked at if their number is given.
    """
    start = found.end() if (found := _PREFIX.match(text, *span)) else span[0]
    if count == 0:
        return FoundBytes((), 0, "bytes", span[0])
    if packing == "base64":
        word = _BASE64.match(text, *span)
        size = 0 if word is None else len(word[1]) // 4 * 3 - word[1].count("=")
        if word is None or word.end() != span[1] or (count is not None and count != size):
            return LENGTHS_DISAGREE
        return FoundBytes((word.span(1),) if size else (), size, "base64", word.end())
    joined = _JOINED.match(text, start, span[1]) if base == 16 and packing != "bytes" else None
    if joined is not None and len(joined[1]) > 2 and (count is None or len(joined[1]) >= 2 * count):
        size = len(joined[1]) // 2 if count is None else count
        first, end = joined.span(1)
        if text[first + 2 * size : end].strip("0"):
            return LENGTHS_DISAGREE
        return FoundBytes(((first, first + 2 * size),), size, "hex", end)
    spans: list[Span] = []
    while len(spans) != count and (byte := _BYTE[base].match(text, start, span[1])):
        spans.append(byte.span(1))
        start = byte.end()
    if count is None:
        rest = _REST.match(text, start, span[1])
        if rest is None or rest.end() != span[1]:
            return DAMAGED_LINE
        return FoundBytes(tuple(spans), len(spans), "bytes", start)
    return FoundBytes(tuple(spans), count, "bytes", start) if len(spans) == count else LENGTHS_DISAGREE


def has_more_bytes(text: str, start: int, end: int) -> bool:
    """Return whether another byte follows the data, so that the length of a line contradicts it."""
    return _MORE.match(text, start, end) is not None


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
