"""CSV logs: SavvyCAN, python-can, Vehicle Spy, CANedge, Cabana, published datasets, and others by their columns.

A header names the columns; without one they are found by the values of the first rows. `csv_columns` knows the names.
"""

import re
from collections.abc import Sequence
from itertools import islice

from genus.can._logs.csv_columns import (
    DELIMITERS,
    CsvColumns,
    columns_of_header,
    columns_of_values,
    refine,
)
from genus.can._logs.line_fields import Fields, LineTimes, NoFrame, Span, TimeFields, find_time, frame_length, read_time
from genus.can._logs.log_file import DAMAGED_LINE, ERROR_FRAME, LENGTHS_DISAGREE, REMOTE_FRAME
from genus.can._logs.text_block import split_quoted
from genus.can._logs.text_format import HeaderLine

FIRST_DATE_US = 631_152_000_000_000
ROWS_ENOUGH = 200
"""So many rows show what the columns are."""
_TRUE = {"1", "true", "t", "yes", "y", "x", "ext", "extended", "eff", "xtd", "tff", "rtr", "r", "29"}
_FALSE = {"", "0", "false", "f", "no", "n", "s", "std", "standard", "sff", "-", "11", "fff", "ftf", "ftt", "fft", "d"}
_PREFIX = re.compile("0[xX]")
_BEFORE, _BEHIND = " \t\"'=([\x0b\x0c\r", " \t\"')]\x0b\x0c\r"
"""What may be around a value; spreadsheets write `="1"`, and base 64 ends in `=`."""
_BYTE = re.compile(r"(?:0[xX])?([0-9A-Fa-f]{1,3})(?=[\s:_.,-]|$)")
_NO_BYTES = re.compile(r"(?:0[xX]|x\||[^0-9A-Za-z])*")
"""What may be between bytes."""


class CsvFormat:
    """State: the columns of a CSV log, and whether rows have begun. Times below 1990 count from the log's start."""

    name = "csv"
    is_divisible = True

    def __init__(self, delimiter: str, columns: CsvColumns, first_stamp: int | None) -> None:
        self.delimiter = delimiter
        self._columns = columns
        self._has_begun = False
        kind = "none" if columns.time < 0 else "absolute" if (first_stamp or 0) >= FIRST_DATE_US else "start"
        self.times = LineTimes(kind)  # type: ignore[arg-type]

    @classmethod
    def of_head(cls, head: Sequence[str]) -> "CsvFormat | None":
        """The format of a log with these first lines; None if they are no CSV log."""
        for delimiter in DELIMITERS:
            if found := _find_columns(head, delimiter):
                columns, first = found
                text = first[columns.time] if 0 <= columns.time < len(first) else ""
                time = find_time(text, (0, len(text)), columns.unit)
                return cls(delimiter, columns, None if time is None else read_time(text, time))
        return None

    def read_header(self, text: str) -> HeaderLine | None:
        """Comments, names of columns, and what is before them."""
        if text.lstrip(' \t"').startswith(("#", "//")):
            return HeaderLine()
        cells = [_trimmed(text, span) for span in self._cells(text)]
        id_ = text[slice(*cells[self._columns.id])] if self._columns.id < len(cells) else ""
        if any(letter.isdigit() for letter in id_) or _is_hex_word(id_):
            return None
        is_header = not self._has_begun or columns_of_header(split_text(text, self.delimiter)) is not None
        return HeaderLine() if is_header else None

    def match(self, text: str) -> Fields | NoFrame:
        """The fields of a row."""
        columns, cells = self._columns, self._cells(text)
        needed = max(columns.id, columns.time, columns.data, columns.first_byte - 1)
        if len(cells) <= needed:
            return NoFrame(DAMAGED_LINE)
        spans = [_trimmed(text, span) for span in cells]
        time = self._time(text, spans)
        if time is None:
            return NoFrame(DAMAGED_LINE)
        flags = {role: _flag(text, spans, getattr(columns, role)) for role in ("remote", "error", "extended", "fd")}
        if flags["extended"] is None:
            flags["extended"] = _kind(text, spans, columns.kind)
        if flags["error"]:
            return NoFrame(ERROR_FRAME, time)
        if flags["remote"]:
            return NoFrame(REMOTE_FRAME, time)
        return self._fields(text, spans, time, flags)

    def _fields(
        self, text: str, spans: list[Span], time: TimeFields, flags: dict[str, bool | None]
    ) -> Fields | NoFrame:
        columns = self._columns
        found = self._identifier(text, spans[columns.id], flags["extended"])
        if found is None:
            return NoFrame(DAMAGED_LINE, time)
        identifier, base, extended = found
        data = self._data(text, spans, bool(flags["fd"]))
        if isinstance(data, str):
            return NoFrame(data, time)
        self._has_begun = True
        fields, length, packing = data
        used = {columns.id, columns.time, columns.data, columns.channel, columns.dlc}
        used |= {columns.extended, columns.remote, columns.error, columns.fd, columns.kind}
        if columns.first_byte >= 0:
            count = length if columns.dlc >= 0 else columns.bytes or 64
            used |= set(range(columns.first_byte, columns.first_byte + count))
        is_counted = columns.dlc >= 0 or columns.first_byte < 0
        end = 1 + max(spans[number][1] for number in used if 0 <= number < len(spans)) if is_counted else len(text) + 1
        channel = spans[columns.channel] if 0 <= columns.channel < len(spans) else None
        return Fields(
            identifier,
            fields,
            length,
            end,
            time,
            channel if channel is not None and channel[0] < channel[1] else None,
            base,
            columns.data_base,
            packing,  # type: ignore[arg-type]
            extended,
            fd=bool(flags["fd"]) or length > 8,
            free=tuple(span for number, span in enumerate(spans) if number not in used),
            is_whole=not is_counted,
        )

    def _cells(self, text: str) -> list[Span]:
        return split_quoted(text, self.delimiter)

    def _time(self, text: str, spans: list[Span]) -> TimeFields | None:
        if self._columns.time < 0:
            return TimeFields()
        return find_time(text, spans[self._columns.time], self._columns.unit)

    def _identifier(self, text: str, span: Span, extended: bool | None) -> tuple[Span, int, bool | None] | None:
        """Where the identifier is, its base, and whether it is extended, which an `x` behind it says, too."""
        start, end = span
        base = self._columns.base
        if _PREFIX.match(text, start, end):
            start, base = start + 2, 16
        if text[end - 1 : end] in ("h", "H", "x", "X"):
            extended = True if text[end - 1] in "xX" else extended
            end, base = end - 1, 16
        digits = text[start:end]
        is_number = digits.isdecimal() if base == 10 else _is_hex_word(digits)
        return ((start, end), base, extended) if is_number and digits.isascii() and len(digits) <= 16 else None

    def _data(self, text: str, spans: list[Span], fd: bool) -> tuple[tuple[Span, ...], int, str] | str:
        """The fields of the bytes, how many there are, and how they are packed; or why there are none."""
        columns = self._columns
        size = text[slice(*spans[columns.dlc])] if 0 <= columns.dlc < len(spans) else ""
        length = _length(size, fd=fd, counts_bytes=columns.counts_bytes)
        if length is None and size:
            return LENGTHS_DISAGREE
        if columns.first_byte >= 0:
            return _byte_fields(text, spans, columns, length)
        span = spans[columns.data]
        if columns.packing == "hex":
            return _hex_field(text, span, length)
        if columns.packing == "base64":
            count = (span[1] - span[0]) // 4 * 3 - text[slice(*span)].count("=")
            parts: tuple[Span, ...] = (span,) if count else ()
        else:
            parts = tuple(part.span(1) for part in _BYTE.finditer(text, *span))
            count = len(parts)
            if not _are_all_bytes(text, span, parts):
                return DAMAGED_LINE
        return (parts, count, columns.packing) if length in (None, count) else LENGTHS_DISAGREE


def _are_all_bytes(text: str, span: Span, parts: Sequence[Span]) -> bool:
    """Whether a cell has nothing but these bytes."""
    gaps = zip([span[0], *(end for _, end in parts)], [*(start for start, _ in parts), span[1]], strict=True)
    return all(_NO_BYTES.fullmatch(text, start, end) for start, end in gaps)


def _hex_field(text: str, span: Span, length: int | None) -> tuple[tuple[Span, ...], int, str] | str:
    start, end = (span[0] + 2, span[1]) if _PREFIX.match(text, *span) else span
    if (end - start) % 2 or not _is_hex_word(text[start:end] or "0"):
        return DAMAGED_LINE
    count = (end - start) // 2
    if length is not None and length < count:  # padded to a fixed width
        count, end = length, start + 2 * length
    return (((start, end),) if count else (), count, "hex") if length in (None, count) else LENGTHS_DISAGREE


def _byte_fields(
    text: str, spans: list[Span], columns: CsvColumns, length: int | None
) -> tuple[tuple[Span, ...], int, str] | str:
    last = columns.first_byte + (columns.bytes or 64)
    cells = spans[columns.first_byte : last]
    if length is None:
        cells = [span for span in cells if span[0] < span[1]]
        length = len(cells)
    cells = [(start + 2, end) if _PREFIX.match(text, start, end) else (start, end) for start, end in cells[:length]]
    words = [text[slice(*span)] for span in cells]
    is_number = str.isdecimal if columns.data_base == 10 else _is_hex_word
    if len(cells) < length or not all(words):
        return LENGTHS_DISAGREE
    if not all(is_number(word) and word.isascii() and len(word) <= 3 for word in words):
        return DAMAGED_LINE
    return tuple(cells), length, "bytes"


def _length(size: str, *, fd: bool, counts_bytes: bool) -> int | None:
    """The number of bytes that a length or a data length code means; None if it is neither."""
    size = size.removeprefix("0x")
    if not (size.isdecimal() and size.isascii()):
        return None
    value = int(size)
    if counts_bytes or value > 15:
        return value if value <= 64 else None
    return frame_length(value, fd=fd) if fd else value


def _is_hex_word(text: str) -> bool:
    return bool(text) and all(letter in "0123456789abcdefABCDEF" for letter in text)


def _flag(text: str, spans: list[Span], column: int) -> bool | None:
    if not 0 <= column < len(spans):
        return None
    value = re.sub(r"[\s-]", "", text[slice(*spans[column])].lower())
    return True if value in _TRUE or value.startswith("t") else False if value in _FALSE else None


def _kind(text: str, spans: list[Span], column: int) -> bool | None:
    """Whether a column such as `Type` says in words that the identifier is extended."""
    value = text[slice(*spans[column])] if 0 <= column < len(spans) else ""
    return None if value.isdigit() else _flag(text, spans, column)


def _trimmed(text: str, span: Span) -> Span:
    """A cell without blanks, quotes and what else spreadsheets put around it."""
    start, end = span
    start += 1 if text[start : start + 2] in ("b'", 'b"') else 0
    while start < end and text[start] in _BEFORE:
        start += 1
    while start < end and text[end - 1] in _BEHIND:
        end -= 1
    return start, end


def split_text(text: str, delimiter: str) -> list[str]:
    """The cells of a row, without blanks and quotes around them."""
    return [text[slice(*_trimmed(text, span))] for span in split_quoted(text, delimiter)]


def _find_columns(head: Sequence[str], delimiter: str) -> tuple[CsvColumns, list[str]] | None:
    """The columns of a log and its first row of values."""
    lines = (line for line in head if delimiter in line and not line.lstrip().startswith("#"))
    rows = [split_text(line, delimiter) for line in islice(lines, ROWS_ENOUGH)]
    for number, cells in enumerate(rows[:100]):
        columns = columns_of_header(cells)
        if columns is not None:
            values = [row for row in rows[number + 1 :] if len(row) > columns.id and _has_values(columns, row)]
            return (refine(columns, values[:ROWS_ENOUGH]), values[0]) if values else (columns, [])
    values = [row for row in rows if len(row) > 1][:ROWS_ENOUGH]
    for skipped in range(min(10, len(values))):
        if columns := columns_of_values(values[skipped : skipped + 50]):
            return refine(columns, values[skipped:]), values[skipped]
    return None


def _has_values(columns: CsvColumns, row: list[str]) -> bool:
    text = row[columns.id].removeprefix("0x").removeprefix("0X").rstrip("hxHX")
    return _is_hex_word(text)
