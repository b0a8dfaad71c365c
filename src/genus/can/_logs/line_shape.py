"""Lines of one shape in columns: every field is at the same characters of the line as in an example.

The lines of a shape are the rows of a matrix of characters, so that a field is a slice of it. What is no field must be
as in the example. A log has few shapes (number of data bytes, width of the identifier and the time), and most of its
lines are read by them; what is left is read by tokens (`line_layout`), which may be of any width.
"""

import numpy as np
import numpy.typing as npt

from genus.can._logs.digits import Bytes, Mask, Offsets, base64_fields, distinct, hex_pairs, number_columns, words_at
from genus.can._logs.frames import EXTENDED
from genus.can._logs.line_fields import Fields, Span, is_extended, read_date
from genus.can._logs.line_frames import ReadLines
from genus.can._logs.log_file import LAST_US, decode_text
from genus.can._logs.text_block import BLANKS, Rows, TextBlock, split_quoted
from genus.can._logs.text_format import Example, TextFormat
from genus.can._wire.frame import ID_MASK, STANDARD_ID_MASK

WIDEST_SHAPE = 400
_DIGITS_OF_BYTE = 3
_BLANK = ord(" ")


class Shape:
    """Which characters of a line are fields, and what the others must be."""

    def __init__(self, fields: Fields, text: str, delimiter: str) -> None:
        """LookupError if lines of this kind cannot be read by their shape."""
        self.fields, self.example = fields, Example(fields, text)
        self.step = _step_of(fields)
        used = _used(fields, text, delimiter)
        self._free = [span for span in fields.free if span[1] <= used]
        wanted = f"{text[:used]}{(text[used:] + chr(10))[:2]}".encode("latin-1")
        end = max(span[1] for span in (fields.id, *fields.data)) + self.step
        self.width = -(-max(len(wanted), end) // 8) * 8
        if self.width > WIDEST_SHAPE:
            raise LookupError(self.width)
        self.template = np.frombuffer(wanted.ljust(self.width, b"\0"), np.uint8)
        self.mask = np.zeros(self.width, np.uint8)
        self.mask[: used + 1 + (wanted[used : used + 1] == b"\r")] = 255
        for start, stop in self._free_of_template():
            self.mask[start:stop] = 0
        self.template = self.template & self.mask
        self.key = (self.template.tobytes(), fields)
        self._set_classes(delimiter)
        first = max((fields.data[0][0] if fields.data else fields.end) - 8, 0)
        self.probe = first, *(int.from_bytes(each[first : first + 8].tobytes(), "little") for each in self._masked())

    def _masked(self) -> tuple[Bytes, Bytes]:
        return self.template, self.mask

    def _free_of_template(self) -> list[Span]:
        fields = self.fields
        spans = [fields.id, *(part.span for part in fields.time.parts), *fields.digits, *self._free]
        spans += [span for span in (fields.channel, fields.time.date) if span is not None]
        if fields.packing == "bytes" and fields.data_base == 10:
            return spans + [(end - _DIGITS_OF_BYTE, end) for _, end in fields.data]
        return spans + list(fields.data)

    def _set_classes(self, delimiter: str) -> None:
        """Characters of free fields must be of the same class: separators where the example has them."""
        spans = [*self._free, *([self.fields.channel] if self.fields.channel else [])]
        self.free = np.array([at for span in spans for at in range(*span)], np.intp)
        self.classes = np.zeros(256, np.uint8)
        self.classes[list(b"\r\n" if delimiter else BLANKS.encode())] = 1
        if delimiter:
            self.classes[[ord(delimiter), ord('"')]] = 2, 3
        text = np.frombuffer(self.example.text.encode("latin-1"), np.uint8)
        self.free_classes = self.classes[text[self.free]]


def _used(fields: Fields, text: str, delimiter: str) -> int:
    """How many characters of a line matter: to the end of the last token with a field, or all."""
    if fields.is_whole:
        return len(text)
    tokens = split_quoted(text, delimiter)
    spans = [fields.id, *fields.data, *(part.span for part in fields.time.parts), *fields.digits, *fields.free]
    spans += [span for span in (fields.channel, fields.time.date) if span is not None]
    if not all(any(start <= span[0] and span[1] <= end for start, end in tokens) for span in spans):
        raise LookupError(text)
    return max(end for start, end in tokens if start < fields.end)


def _step_of(fields: Fields) -> int:
    """How many characters the bytes are apart; LookupError if they have not all the same width and distance."""
    if not fields.data or fields.packing != "bytes":
        return 2
    ends = [end for _, end in fields.data]
    steps = {ends[number + 1] - ends[number] for number in range(len(ends) - 1)} or {4}
    is_padded = fields.data_base == 10 and steps == {_DIGITS_OF_BYTE + 1}
    is_pairs = fields.data_base == 16 and {end - start for start, end in fields.data} == {2}
    if len(steps) > 1 or not (is_padded or is_pairs):
        raise LookupError(fields.data)
    return steps.pop()


def learn_shape(fields: Fields, text: str, delimiter: str) -> Shape | None:
    """The shape of a line; None if no other line can be read by it."""
    if fields.packing == "bytes" and fields.data_base == 10 and delimiter:
        return None
    if fields.packing != "bytes" and len(fields.data) > 1:
        return None
    spans = [(fields.id, 8), *((part.span, 16) for part in fields.time.parts), *((span, 16) for span in fields.digits)]
    if any(not 0 < end - start <= widest for (start, end), widest in spans):
        return None
    try:
        return Shape(fields, text, delimiter)
    except LookupError:
        return None


class ShapeReader:
    """Reads the lines of a block that have a shape."""

    def __init__(self, format: TextFormat, block: TextBlock, shape: Shape, rows: Rows) -> None:
        self._format, self._block, self._shape, self._fields = format, block, shape, shape.fields
        first, wanted, mask = shape.probe
        starts = block.start[rows]
        is_like = words_at(block.buffer, starts + first) & np.uint64(mask) == np.uint64(wanted)
        if not is_like.all():
            rows, starts = rows[is_like], starts[is_like]
        text = block.windows(starts, shape.width)
        is_same = self._has_template(text)
        if len(shape.free) and is_same.any():
            is_same &= self._has_classes(text)
        if not is_same.all():
            rows, text = rows[is_same], text[is_same]
        self._rows, self._text = rows, text

    def _has_template(self, text: Bytes) -> Mask:
        """The rows that are like the example, tested eight characters at a time."""
        found, words = np.ones(len(text), np.bool_), text.view(np.uint64)
        wanted, masks = self._shape.template.view(np.uint64), self._shape.mask.view(np.uint64)
        for number in np.flatnonzero(masks).tolist():
            found &= words[:, number] & masks[number] == wanted[number]
        return found

    def _has_classes(self, text: Bytes) -> Mask:
        is_other = self._shape.classes[text[:, self._shape.free]] != self._shape.free_classes
        found: Mask = ~is_other.any(axis=1) if is_other.any() else np.ones(len(text), np.bool_)
        return found

    def read(self) -> ReadLines | None:
        """The frames of the lines that have the shape and are valid."""
        if not len(self._rows):
            return None
        identifier, is_valid = self._identifiers()
        data, is_data = self._data()
        stamps, is_time = self._times()
        channel, channels, is_channel = self._channels()
        is_valid = is_valid & is_data & is_time & is_channel
        for span in self._fields.digits:
            is_valid &= number_columns(self._text, span, 10)[1]
        found = ReadLines(self._rows, stamps, identifier, data, channel, channels, self._fields.fd)
        return found.valid(is_valid)

    def _identifiers(self) -> tuple[npt.NDArray[np.uint32], Mask]:
        fields = self._fields
        found, is_valid = number_columns(self._text, fields.id, fields.base)
        digits = fields.id[1] - fields.id[0]
        if digits not in fields.id_digits:
            return found.astype(np.uint32), np.zeros(len(found), np.bool_)
        if is_extended(fields, 0, digits):
            return (found & ID_MASK | EXTENDED).astype(np.uint32), is_valid & (found <= ID_MASK)
        if fields.extended is None and fields.by_value:
            marked = np.where(found > STANDARD_ID_MASK, found & ID_MASK | EXTENDED, found)
            return marked.astype(np.uint32), is_valid & (found <= ID_MASK)
        return found.astype(np.uint32), is_valid & (found <= STANDARD_ID_MASK)

    def _times(self) -> tuple[Offsets, Mask]:
        stamps = np.full(len(self._rows), self._fields.time.shift_us, np.int64)
        is_valid = np.ones(len(self._rows), np.bool_)
        for part in self._fields.time.parts:
            found, is_number = number_columns(self._text, part.span, 10)
            is_valid &= is_number
            if 10 ** (part.span[1] - part.span[0]) * part.micros > LAST_US * part.divisor:
                is_valid &= found <= LAST_US * part.divisor // part.micros
            with np.errstate(over="ignore"):  # such times are not valid
                micros = found * part.micros
            stamps += (
                micros // part.divisor
                if part.divisor > 1 and part.micros % part.divisor
                else found * (part.micros // part.divisor)
            )
        return self._add_dates(stamps, is_valid)

    def _add_dates(self, stamps: Offsets, is_valid: Mask) -> tuple[Offsets, Mask]:
        span = self._fields.time.date
        if span is None:
            return stamps, is_valid
        is_dated = np.zeros(len(stamps), np.bool_)
        for name, which in self._distinct(span):
            if (day := read_date(name.decode("latin-1"))) is not None:
                stamps[which] += day
                is_dated[which] = True
        return stamps, is_valid & is_dated

    def _distinct(self, span: Span) -> list[tuple[bytes, Offsets | slice]]:
        """The different texts of a field with their rows; in most cases it is one."""
        text = self._text[:, slice(*span)]
        if (text == text[0]).all():
            return [(text[0].tobytes(), slice(None))]
        return list(distinct(self._block.buffer, self._block.start[self._rows] + span[0], span[1] - span[0]))

    def _channels(self) -> tuple[npt.NDArray[np.int32] | None, tuple[str | None, ...], Mask]:
        every, span = len(self._rows), self._fields.channel
        if span is None:
            return None, (None,), np.ones(every, np.bool_)
        channel, names = np.full(every, -1, np.int32), list[str]()
        for name, which in self._distinct(span):
            if self._shape.example.allows_channel(name, self._format):
                channel[which] = len(names)
                names.append(decode_text(name))
        return channel, tuple(names), channel >= 0

    def _data(self) -> tuple[Bytes, Mask]:
        fields, count = self._fields, self._fields.length
        if not count:
            return np.zeros((len(self._rows), 0), np.uint8), np.ones(len(self._rows), np.bool_)
        if fields.packing == "base64":
            return base64_fields(self._text[:, slice(*fields.data[0])], count)
        if fields.packing == "bytes" and fields.data_base == 10:
            return self._padded(fields.data[0][1] - _DIGITS_OF_BYTE, count)
        return hex_pairs(self._text, fields.data[0][0], count, self._shape.step)

    def _padded(self, start: int, count: int) -> tuple[Bytes, Mask]:
        """Decimal bytes of three characters each, with blanks before the first digit."""
        hundreds, tens, ones = (
            np.ascontiguousarray(self._text[:, start + part : start + 4 * count - 3 + part : 4]) for part in range(3)
        )
        is_digit = [each - np.uint8(ord("0")) < 10 for each in (hundreds, tens, ones)]
        is_valid = (
            is_digit[2] & (is_digit[0] | (hundreds == _BLANK)) & (is_digit[1] | ((tens == _BLANK) & ~is_digit[0]))
        )
        low = np.uint8(0x0F)
        values = (hundreds & low).astype(np.uint16) * 100 + (tens & low) * np.uint8(10) + (ones & low)
        is_valid &= values < 256
        rows: Mask = np.ones(len(values), np.bool_) if is_valid.all() else is_valid.all(axis=1)
        return values.astype(np.uint8), rows
