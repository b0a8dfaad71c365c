"""Lines of one form to columns: many lines are read by the fields of one of them, their example.

Lines are aligned with the example in one of two ways. By characters (`Shape`): every field is at the same characters,
so that lines are the rows of a matrix and a field is a slice of it; numbers may have blanks before them. That reads
most lines of most logs. By tokens (`Layout`): every field is in the same token and may have any width, which takes
longer; it reads what has too many shapes, such as CSV files of decimal numbers. In both ways what is no field must be
as in the example.
"""

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from genus.can._logs.digits import (
    Bytes,
    Mask,
    Offsets,
    base64_fields,
    byte_fields,
    distinct,
    hex_bytes,
    hex_pairs,
    is_hex,
    number_columns,
    numbers,
    padded_columns,
    windows_at,
    words_at,
)
from genus.can._logs.formats import LineFormat
from genus.can._logs.frames import EXTENDED
from genus.can._logs.lines import BLANKS, Fields, ReadLines, Rows, TextBlock, split_line, split_quoted
from genus.can._logs.log_file import LAST_US, decode_text
from genus.can._logs.times import Span, TimePart, read_date
from genus.can._wire.frame import ID_MASK, STANDARD_ID_MASK

WIDEST_SHAPE = 400
WIDEST_NUMBER = 16
MAX_CHANNEL = 24
_DIGITS_OF_BYTE = 3


class Example:
    """State: a line that a format read, by which others are read, and which channels it may have."""

    def __init__(self, fields: Fields, text: str) -> None:
        self.fields, self.text = fields, text
        self._channels: dict[bytes, bool] = {}

    def allows_channel(self, name: bytes, format: LineFormat) -> bool:
        """Return whether the format reads the example with this channel in place of its own."""
        span = self.fields.channel
        if name not in self._channels and span is not None:
            text = f"{self.text[: span[0]]}{name.decode('latin-1')}{self.text[span[1] :]}"
            fields = format.match(text)
            is_same = isinstance(fields, Fields) and fields.channel == (span[0], span[0] + len(name))
            self._channels[name] = is_same
        return self._channels[name]


class LineReader(ABC):
    """Reads the lines of a block that are like an example; how they are aligned, subclasses say."""

    def __init__(self, format: LineFormat, block: TextBlock, example: Example) -> None:
        self._format, self._block, self._example, self._fields = format, block, example, example.fields
        self._rows: Rows = np.zeros(0, np.intp)

    @abstractmethod
    def _bounds(self, span: Span) -> tuple[Offsets, Offsets]:
        """Return where a field begins and ends in the buffer, line by line."""

    @abstractmethod
    def _number(self, span: Span, base: int) -> tuple[Offsets, Mask]:
        """Return the numbers of a field, and which are valid."""

    @abstractmethod
    def _data(self) -> tuple[Bytes, Mask]:
        """Return the bytes of the data, and which lines have them."""

    def read(self) -> ReadLines | None:
        if not len(self._rows):
            return None
        fields = self._fields
        identifier, is_valid = self._identifiers()
        data, is_data = self._data()
        stamps, is_time = self._times()
        channel, channels, is_channel = self._channels()
        is_valid = is_valid & is_data & is_time & is_channel
        for span in fields.digits:
            is_valid &= self._number(span, 10)[1]
        found = ReadLines(self._rows, stamps, identifier, data, channel, channels, fields.fd, fields.direction)
        return found.valid(is_valid)

    def _identifiers(self) -> tuple[npt.NDArray[np.uint32], Mask]:
        fields = self._fields
        found, is_valid = self._number(fields.id, fields.base)
        if fields.address is not None:
            (priority, ok), (source, is_source), (to, is_to) = (
                self._number(span, fields.base) for span in fields.address
            )
            is_valid = is_valid & ok & is_source & is_to & (priority < 8) & (source < 256) & (to < 256)
            is_valid &= found <= 0x3FFFF
            found = np.where((found >> 8 & 0xFF) < 240, found | to, found) << 8 | priority << 26 | source
        start, end = self._bounds(fields.id)
        is_extended: Mask | bool | np.bool_
        if fields.extended is not None:
            is_extended = fields.extended
        else:
            is_extended = end - start > fields.standard_digits
            if fields.by_value:
                is_extended = is_extended | (found > STANDARD_ID_MASK)
        is_valid = is_valid & (found <= np.where(is_extended, ID_MASK, STANDARD_ID_MASK))
        marked = np.where(is_extended, found | EXTENDED, found) & 0xFFFF_FFFF
        return marked.astype(np.uint32), is_valid

    def _times(self) -> tuple[Offsets, Mask]:
        time = self._fields.time
        stamps = np.full(len(self._rows), time.shift_us, np.int64)
        is_valid = np.ones(len(self._rows), np.bool_)
        for part in time.parts:
            found, is_number = self._number(part.span, part.base)
            is_valid &= is_number & self._fits(part)
            if 10 ** (part.span[1] - part.span[0] + 2) * part.micros > LAST_US * part.divisor:
                is_valid &= found <= LAST_US * part.divisor // part.micros
            with np.errstate(over="ignore"):  # such times are not valid
                is_whole = part.micros % part.divisor == 0
                stamps += found * (part.micros // part.divisor) if is_whole else found * part.micros // part.divisor
        return self._add_dates(time.sign * stamps if time.sign < 0 else stamps, is_valid)

    def _fits(self, part: TimePart) -> Mask | bool:
        """Where a part of a time is as wide as it must be."""
        return True

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

    def _channels(self) -> tuple[npt.NDArray[np.int32] | None, tuple[str | None, ...], Mask]:
        every, span = len(self._rows), self._fields.channel
        if span is None:
            return None, (None,), np.ones(every, np.bool_)
        channel, names = np.full(every, -1, np.int32), list[str]()
        for name, which in self._distinct(span):
            if self._example.allows_channel(name, self._format):
                channel[which] = len(names)
                names.append(decode_text(name))
        return channel, tuple(names), channel >= 0

    def _distinct(self, span: Span) -> list[tuple[bytes, Offsets | slice]]:
        start, end = self._bounds(span)
        widths, found = end - start, list[tuple[bytes, Offsets | slice]]()
        for width in range(max(int(widths.min()), 1), min(int(widths.max()), MAX_CHANNEL) + 1):
            same = np.flatnonzero(widths == width)
            found += [(text, same[which]) for text, which in distinct(self._block.buffer, start[same], width)]
        return found


# -- aligned by characters ---------------------------------------------------------------------------------------------


class Shape:
    """Which characters of a line are fields, and what the others must be; LookupError if it has no shape."""

    def __init__(self, fields: Fields, text: str, delimiter: str) -> None:
        self.fields, self.example = fields, Example(fields, text)
        self.step = _step_of(fields)
        used = _used(fields, text, delimiter)
        self._free = [span for span in fields.free if span[1] <= used]
        self.padded = dict(_padded_numbers(fields, text, delimiter))
        """By the field of a number: with the blanks before it."""
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
        masked = (self.template, self.mask)
        self.probe = first, *(int.from_bytes(each[first : first + 8].tobytes(), "little") for each in masked)

    def _free_of_template(self) -> list[Span]:
        fields = self.fields
        spans = [self.padded.get(span, span) for span in fields.spans() if span not in fields.data] + self._free
        if fields.packing == "bytes" and fields.data_base == 10:
            return spans + [(end - _DIGITS_OF_BYTE, end) for _, end in fields.data]
        return spans + list(fields.data)

    def _set_classes(self, delimiter: str) -> None:
        """Characters of free fields must be of the same class: separators where the example has them."""
        spans = [*self._free, *([self.fields.channel] if self.fields.channel else [])]
        self.classes = np.zeros(256, np.uint8)
        self.classes[list(b"\r\n" if delimiter else BLANKS.encode())] = 1
        if delimiter:
            self.classes[[ord(delimiter), ord('"')]] = 2, 3
        text = np.frombuffer(self.example.text.encode("latin-1"), np.uint8)
        self.free = [(span, self.classes[text[slice(*span)]]) for span in spans]


def _padded_numbers(fields: Fields, text: str, delimiter: str) -> list[tuple[Span, Span]]:
    """Numbers of times and lines with the blanks before them, all but one behind other text."""
    found = []
    for start, end in (*(part.span for part in fields.time.parts[:1] if part.base == 10), *fields.digits):
        first = start
        while first > 0 and text[first - 1] == " " and end - first < WIDEST_NUMBER:
            first -= 1
        first += first > 0 and text[first - 1] != " " and first < start
        if first < start and not delimiter and fields.time.sign > 0:
            found.append(((start, end), (first, end)))
    return found


def _used(fields: Fields, text: str, delimiter: str) -> int:
    """Return how many characters of a line matter: to the end of the last token with a field, or all."""
    if fields.is_whole:
        return len(text)
    tokens = split_quoted(text, delimiter)
    spans = [*fields.spans(), *fields.free]
    if not all(any(start <= span[0] and span[1] <= end for start, end in tokens) for span in spans):
        raise LookupError(text)
    return max(end for start, end in tokens if start < fields.end)


def _step_of(fields: Fields) -> int:
    """Return how many characters the bytes are apart; LookupError if they have not all the same width and distance."""
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
    if fields.packing == "bytes" and fields.data_base == 10 and delimiter:
        return None
    spans = [
        (fields.id, 8 if fields.base == 16 else WIDEST_NUMBER),
        *((span, WIDEST_NUMBER) for span in (*(part.span for part in fields.time.parts), *fields.digits)),
    ]
    if any(not 0 < end - start <= widest for (start, end), widest in spans):
        return None
    try:
        return Shape(fields, text, delimiter)
    except LookupError:
        return None


class ShapeReader(LineReader):
    def __init__(self, format: LineFormat, block: TextBlock, shape: Shape, rows: Rows) -> None:
        super().__init__(format, block, shape.example)
        self._shape = shape
        first, wanted, mask = shape.probe
        starts = block.start[rows]
        is_like = words_at(block.buffer, starts + first) & np.uint64(mask) == np.uint64(wanted)
        if not is_like.all():
            rows, starts = rows[is_like], starts[is_like]
        text = windows_at(block.buffer, starts, shape.width)
        is_same = self._has_template(text)
        if shape.free and is_same.any():
            is_same &= self._has_classes(text)
        if not is_same.all():
            rows, text = rows[is_same], text[is_same]
        self._rows, self._text = rows, text

    def _has_template(self, text: Bytes) -> Mask:
        found, words = np.ones(len(text), np.bool_), text.view(np.uint64)
        wanted, masks = self._shape.template.view(np.uint64), self._shape.mask.view(np.uint64)
        for number in np.flatnonzero(masks).tolist():
            found &= words[:, number] & masks[number] == wanted[number]
        return found

    def _has_classes(self, text: Bytes) -> Mask:
        found: Mask = np.ones(len(text), np.bool_)
        for span, classes in self._shape.free:
            is_other = self._shape.classes[text[:, slice(*span)]] != classes
            if is_other.any():
                found &= ~is_other.any(axis=1)
        return found

    def _bounds(self, span: Span) -> tuple[Offsets, Offsets]:
        start = self._block.start[self._rows]
        return start + span[0], start + span[1]

    def _number(self, span: Span, base: int) -> tuple[Offsets, Mask]:
        wider = self._shape.padded.get(span)
        return number_columns(self._text, span, base) if wider is None else padded_columns(self._text, wider)

    def _distinct(self, span: Span) -> list[tuple[bytes, Offsets | slice]]:
        text = self._text[:, slice(*span)]
        if (text == text[0]).all():
            return [(text[0].tobytes(), slice(None))]
        return super()._distinct(span)

    def _data(self) -> tuple[Bytes, Mask]:
        fields, count = self._fields, self._fields.length
        if not count:
            return np.zeros((len(self._rows), 0), np.uint8), np.ones(len(self._rows), np.bool_)
        if fields.packing == "base64":
            return base64_fields(self._text[:, slice(*fields.data[0])], count)
        if fields.packing == "bytes" and fields.data_base == 10:
            ends = np.arange(fields.data[0][1], fields.data[0][1] + 4 * count, 4)
            starts = self._block.start[self._rows][:, np.newaxis] + ends
            return byte_fields(self._block.buffer, starts - _DIGITS_OF_BYTE, starts, 10, padded=True)
        return hex_pairs(self._text, fields.data[0][0], count, self._shape.step)


# -- aligned by tokens -------------------------------------------------------------------------------------------------


class _Place(NamedTuple):
    """Where a field is: in which token, how far from its edges; only the first field of a token has any width."""

    token: int
    left: int | None
    """From the left edge of the token; None if the field is as wide as in the example."""
    right: int
    width: int


class _Literal(NamedTuple):
    """Characters that must be as in the example: a whole token, or so far from one edge of it."""

    token: int
    is_whole: bool
    left: int | None
    right: int
    text: bytes


class Layout:
    """In which tokens of a line the fields are; LookupError if they do not follow its tokens."""

    def __init__(self, fields: Fields, text: str, delimiter: str) -> None:
        self.fields, self.example = fields, Example(fields, text)
        self._tokens = split_line(text, delimiter)
        spans = fields.spans()
        self._inside: dict[int, list[Span]] = {}
        for span in spans:
            self._inside.setdefault(self._token_of(span), []).append(span)
        free = {self._token_of(span) for span in fields.free}
        used = [number for number, (start, _) in enumerate(self._tokens) if start < fields.end]
        self.needed = 1 + max(used, default=0)
        fixed = [each for number in range(self.needed) if number not in free for each in self._fixed(number, text)]
        self.literals = sorted(fixed, key=lambda each: each.text.strip(b"[]0123456789") != b"")
        """What must be the same; numbers first, because lengths differ most often."""
        self.places = {span: self._place(span) for span in spans}
        steps = tuple((self.places[part.span], *part[1:]) for part in fields.time.parts)
        meaning = (fields.length, fields.time[2:], fields.extended, fields.fd, fields.direction)
        self.key = (self.needed, tuple(self.literals), tuple(self.places.values()), steps, meaning)

    def _token_of(self, span: Span) -> int:
        for number, (start, end) in enumerate(self._tokens):
            if start <= span[0] and span[1] <= end:
                return number
        raise LookupError(span)

    def _place(self, span: Span) -> _Place:
        number = self._token_of(span)
        start, end = self._tokens[number]
        is_first = span == min(self._inside[number])
        return _Place(number, span[0] - start if is_first else None, end - span[1], span[1] - span[0])

    def _fixed(self, number: int, text: str) -> list[_Literal]:
        start, end = self._tokens[number]
        inside = sorted(self._inside.get(number, []))
        if not inside:
            return [_Literal(number, True, 0, 0, text[start:end].encode("latin-1"))]
        found = []
        if text[start : inside[0][0]]:
            found.append(_Literal(number, False, 0, 0, text[start : inside[0][0]].encode("latin-1")))
        for begin, stop in zip([span[1] for span in inside], [*(span[0] for span in inside[1:]), end], strict=True):
            if begin < stop:
                found.append(_Literal(number, False, None, end - begin, text[begin:stop].encode("latin-1")))
        return found


def learn_layout(fields: Fields, text: str, delimiter: str) -> Layout | None:
    """The layout of a line; None if its fields are not inside of tokens, so that no other line can be read by it."""
    if '"' in text:
        return None
    try:
        return Layout(fields, text, delimiter)
    except LookupError:
        return None


class LayoutReader(LineReader):
    """Reads the lines of a block that have a layout; those with quotes are left out."""

    def __init__(self, format: LineFormat, block: TextBlock, layout: Layout, rows: Rows) -> None:
        super().__init__(format, block, layout.example)
        self._layout = layout
        count = block.tokens.number[rows]
        self._rows = rows[count == layout.needed if self._fields.is_whole else count >= layout.needed]
        self._first = block.tokens.first[self._rows]
        self._found: dict[int, tuple[Offsets, Offsets]] = {}
        for literal in layout.literals:
            mask = self._has(literal)
            if not mask.all():
                self._rows, self._first, self._found = self._rows[mask], self._first[mask], {}

    def _token(self, token: int) -> tuple[Offsets, Offsets]:
        if token not in self._found:
            tokens, which = self._block.tokens, self._first + token
            self._found[token] = tokens.start[which], tokens.end[which]
        return self._found[token]

    def _has(self, literal: _Literal) -> Mask:
        start, end = self._token(literal.token)
        if literal.is_whole:
            is_same: Mask = (end - start == len(literal.text)) & self._block.has_bytes(start, literal.text)
            return is_same
        at = end - literal.right if literal.left is None else start + literal.left
        is_inside: Mask = (at >= start) & (at + len(literal.text) <= end)
        return is_inside & self._block.has_bytes(np.maximum(at, start), literal.text)

    def _bounds(self, span: Span) -> tuple[Offsets, Offsets]:
        place = self._layout.places[span]
        start, end = self._token(place.token)
        end = end - place.right
        return (end - place.width if place.left is None else start + place.left), end

    def _number(self, span: Span, base: int) -> tuple[Offsets, Mask]:
        start, end = self._bounds(span)
        found, is_valid = numbers(self._block.buffer, start, end, base)
        if base == 16:  # a pattern may say how many digits there are
            is_valid &= end - start <= 8 if self._block.delimiter else end - start == span[1] - span[0]
        return found, is_valid

    def _fits(self, part: TimePart) -> Mask | bool:
        start, end = self._bounds(part.span)
        is_clock = len(self._fields.time.parts) > 2
        return end - start == part.span[1] - part.span[0] if part.is_fraction or is_clock else True

    def _data(self) -> tuple[Bytes, Mask]:
        fields, count = self._fields, self._fields.length
        if not count:
            return np.zeros((len(self._rows), 0), np.uint8), np.ones(len(self._rows), np.bool_)
        if fields.packing == "bytes":
            starts, ends = self._byte_bounds()
            found, is_valid = byte_fields(self._block.buffer, starts, ends, fields.data_base)
            if fields.data_base == 16 and not self._block.delimiter:
                is_valid &= (ends - starts == [end - start for start, end in fields.data]).all(axis=1)
            return found, is_valid
        start, end = self._bounds(fields.data[0])
        if fields.packing == "base64":
            size = -(-count // 3) * 4
            found, is_valid = base64_fields(windows_at(self._block.buffer, start, size), count)
            return found, is_valid & (end - start == size)
        text = windows_at(self._block.buffer, start, 2 * count)
        return hex_bytes(text), (end - start == 2 * count) & is_hex(text).all(axis=1)

    def _byte_bounds(self) -> tuple[Offsets, Offsets]:
        places, tokens = [self._layout.places[span] for span in self._fields.data], self._block.tokens
        first = places[0].token
        if all(place[:3] == (first + number, 0, 0) for number, place in enumerate(places)):  # each is a token
            which = self._first[:, np.newaxis] + np.arange(first, first + len(places))
            return tokens.start[which], tokens.end[which]
        starts, ends = zip(*(self._bounds(span) for span in self._fields.data), strict=True)
        return np.stack(starts, axis=1), np.stack(ends, axis=1)
