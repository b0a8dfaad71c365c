"""What a line of a text log says: where its fields are (`Fields`), and the frame that they make (`read_fields`).

That is how one line is read, and it defines what a line means; `columns_of_lines` reads many lines of the same form by
the fields of one of them.
"""

import re
from base64 import b64decode
from binascii import Error as Base64Error
from typing import Literal, NamedTuple, TypeAlias

from genus.can._logs.log_file import BAD_IDENTIFIER, DAMAGED_LINE, LENGTHS_DISAGREE, decode_text
from genus.can._logs.times import Span, TimeFields
from genus.can._wire.frame import CLASSIC_BYTES, FD_BYTES, ID_MASK, STANDARD_ID_MASK, Frame
from genus.can._wire.length import FD_SIZES

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
