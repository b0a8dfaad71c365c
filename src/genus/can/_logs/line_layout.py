"""Lines of one layout in columns: the fields are so many tokens from the start of the line, of any width.

A layout is learned from the fields of one line: which tokens they are, and which other tokens must be the same. All
lines with the layout are read together. `line_shape` reads lines faster whose fields have the same width, too.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from genus.can._logs.digits import (
    Bytes,
    Mask,
    Offsets,
    base64_fields,
    distinct,
    hex_bytes,
    is_hex,
    numbers,
    windows_at,
)
from genus.can._logs.frames import EXTENDED
from genus.can._logs.line_fields import Fields, Span, read_date
from genus.can._logs.line_frames import ReadLines
from genus.can._logs.log_file import LAST_US, decode_text
from genus.can._logs.text_block import Rows, TextBlock, split_line
from genus.can._logs.text_format import Example, TextFormat
from genus.can._wire.frame import ID_MASK, STANDARD_ID_MASK

LONGEST_CHANNEL = 24


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
    """Where the fields of a line are, learned from one; None by `learn` if they do not follow its tokens."""

    def __init__(self, fields: Fields, text: str, tokens: list[Span]) -> None:
        self.fields = fields
        self.example = Example(fields, text)
        self._tokens = tokens
        spans = [fields.id, *fields.data, *(part.span for part in fields.time.parts), *fields.digits]
        spans += [span for span in (fields.channel, fields.time.date) if span is not None]
        self._inside: dict[int, list[Span]] = {}
        for span in spans:
            self._inside.setdefault(self._token_of(span), []).append(span)
        free = {self._token_of(span) for span in fields.free}
        self.needed = 1 + max((number for number, (start, _) in enumerate(tokens) if start < fields.end), default=0)
        fixed = [each for number in range(self.needed) if number not in free for each in self._fixed(number, text)]
        self.literals = sorted(fixed, key=lambda each: each.text.strip(b"[]0123456789") != b"")
        """What must be the same; numbers first, because lengths differ most often."""
        self.places = {span: self._place(span) for span in spans}
        self.key = (self.needed, tuple(self.literals), frozenset(self.places.values()), *self._meaning())

    def _meaning(self) -> tuple[object, ...]:
        fields = self.fields
        steps = tuple((self.places[part.span], part.micros, part.divisor) for part in fields.time.parts)
        return (self.places[fields.id], fields.length, steps, fields.time.shift_us, fields.extended, fields.fd)

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
        gaps = zip([span[1] for span in inside], [*(span[0] for span in inside[1:]), end], strict=True)
        for begin, stop in gaps:
            if begin < stop:
                found.append(_Literal(number, False, None, end - begin, text[begin:stop].encode("latin-1")))
        return found


def learn(fields: Fields, text: str, delimiter: str) -> Layout | None:
    """The layout of a line; None if its fields are not inside of tokens, so that no other line can be read by it."""
    try:
        return Layout(fields, text, split_line(text, delimiter))
    except LookupError:
        return None


# -- lines of one layout in columns ------------------------------------------------------------------------------------


class LayoutReader:
    """Reads the lines of a block that have a layout."""

    def __init__(self, format: TextFormat, block: TextBlock, layout: Layout, rows: Rows) -> None:
        self._format = format
        self._block, self._layout, self._fields = block, layout, layout.fields
        count = block.tokens.number[rows]
        self._rows = rows[count == layout.needed if self._fields.is_whole else count >= layout.needed]
        self._first = block.tokens.first[self._rows]
        self._found: dict[int, tuple[Offsets, Offsets]] = {}
        for literal in layout.literals:
            self._keep(self._has(literal))

    def _keep(self, mask: Mask) -> None:
        if not mask.all():
            self._rows, self._first, self._found = self._rows[mask], self._first[mask], {}

    def _bounds(self, token: int) -> tuple[Offsets, Offsets]:
        if token not in self._found:
            tokens, which = self._block.tokens, self._first + token
            self._found[token] = tokens.start[which], tokens.end[which]
        return self._found[token]

    def _has(self, literal: _Literal) -> Mask:
        start, end = self._bounds(literal.token)
        if literal.is_whole:
            is_same: Mask = (end - start == len(literal.text)) & self._block.has_bytes(start, literal.text)
            return is_same
        at = end - literal.right if literal.left is None else start + literal.left
        is_inside: Mask = (at >= start) & (at + len(literal.text) <= end)
        return is_inside & self._block.has_bytes(np.maximum(at, start), literal.text)

    def _span(self, span: Span) -> tuple[Offsets, Offsets]:
        place = self._layout.places[span]
        start, end = self._bounds(place.token)
        end = end - place.right
        return (end - place.width if place.left is None else start + place.left), end

    def read(self) -> ReadLines | None:
        """The frames of the lines that have the layout and are valid."""
        if not len(self._rows):
            return None
        fields = self._fields
        identifier, is_valid = self._identifiers()
        data, is_data = self._data()
        stamps, is_time = self._times()
        is_valid &= is_data & is_time
        for span in fields.digits:
            is_valid &= numbers(self._block.buffer, *self._span(span), 10)[1]
        channel, channels, is_channel = self._channels()
        found = ReadLines(self._rows, stamps, identifier, data, channel, channels, fields.fd)
        return found.valid(is_valid & is_channel)

    def _identifiers(self) -> tuple[npt.NDArray[np.uint32], Mask]:
        fields = self._fields
        start, end = self._span(fields.id)
        found, is_valid = numbers(self._block.buffer, start, end, fields.base)
        is_valid &= _has_width(end - start, fields.id_digits)
        if fields.extended is None:
            is_extended = end - start > fields.standard_digits
            if fields.by_value:
                is_extended |= found > STANDARD_ID_MASK
        else:
            is_extended = np.full(len(found), fields.extended)
        is_valid &= found <= np.where(is_extended, ID_MASK, STANDARD_ID_MASK)
        marked = np.where(is_extended, found | EXTENDED, found) & 0xFFFF_FFFF
        return marked.astype(np.uint32), is_valid

    def _times(self) -> tuple[Offsets, Mask]:
        stamps, is_valid = np.zeros(len(self._rows), np.int64), np.ones(len(self._rows), np.bool_)
        is_clock = len(self._fields.time.parts) > 2
        for part in self._fields.time.parts:
            start, end = self._span(part.span)
            found, is_number = numbers(self._block.buffer, start, end, 10)
            is_valid &= is_number & (found <= LAST_US * part.divisor // part.micros)
            if part.is_fraction or is_clock:
                is_valid &= end - start == part.span[1] - part.span[0]
            with np.errstate(over="ignore"):  # such times are not valid
                stamps += found * part.micros // part.divisor
        return self._add_dates(stamps + self._fields.time.shift_us, is_valid)

    def _add_dates(self, stamps: Offsets, is_valid: Mask) -> tuple[Offsets, Mask]:
        span = self._fields.time.date
        if span is None:
            return stamps, is_valid
        start, end = self._span(span)
        is_dated = np.zeros(len(stamps), np.bool_)
        same = np.flatnonzero(end - start == span[1] - span[0])
        for text, which in distinct(self._block.buffer, start[same], span[1] - span[0]):
            if (day := read_date(text.decode("latin-1"))) is not None:
                stamps[same[which]] += day
                is_dated[same[which]] = True
        return stamps, is_valid & is_dated

    def _channels(self) -> tuple[npt.NDArray[np.int32], tuple[str | None, ...], Mask]:
        every, span = len(self._rows), self._fields.channel
        if span is None:
            return np.zeros(every, np.int32), (None,), np.ones(every, np.bool_)
        start, end = self._span(span)
        channel, names = np.full(every, -1, np.int32), list[str]()
        widths = end - start
        for width in range(max(int(widths.min()), 1), min(int(widths.max()), LONGEST_CHANNEL) + 1):
            same = np.flatnonzero(widths == width)
            for text, which in distinct(self._block.buffer, start[same], width):
                if self._layout.example.allows_channel(text, self._format):
                    channel[same[which]] = len(names)
                    names.append(decode_text(text))
        return channel, tuple(names), channel >= 0

    # data

    def _data(self) -> tuple[Bytes, Mask]:
        if not self._fields.length:
            return np.zeros((len(self._rows), 0), np.uint8), np.ones(len(self._rows), np.bool_)
        return {"bytes": self._separate, "hex": self._joined, "base64": self._base64}[self._fields.packing]()

    def _joined(self) -> tuple[Bytes, Mask]:
        """All bytes in one field of hexadecimal digits."""
        (span,) = self._fields.data
        start, end = self._span(span)
        digits = 2 * self._fields.length
        text = windows_at(self._block.buffer, start, digits)
        return hex_bytes(text), (end - start == digits) & _all_hex(text)

    def _base64(self) -> tuple[Bytes, Mask]:
        (span,) = self._fields.data
        start, end = self._span(span)
        size = -(-self._fields.length // 3) * 4
        found, is_valid = base64_fields(windows_at(self._block.buffer, start, size), self._fields.length)
        return found, is_valid & (end - start == size)

    def _separate(self) -> tuple[Bytes, Mask]:
        """A field for each byte: pairs of hexadecimal digits at equal distances together, others alone."""
        fields, count = self._fields, self._fields.length
        step = fields.data[1][0] - fields.data[0][0] if count > 1 else 3
        first, last = self._span(fields.data[0]), self._span(fields.data[-1])
        if fields.data_base == 16 and step > 2 and (last[1] - first[0] == step * (count - 1) + 2).all():
            text, is_apart = self._block.pairs_apart(first[0], count, step)
            is_valid = is_apart & _all_hex(text)
            if is_valid.all():
                return hex_bytes(text), is_valid
        return self._one_by_one()

    def _one_by_one(self) -> tuple[Bytes, Mask]:
        data = np.zeros((len(self._rows), self._fields.length), np.uint8)
        is_valid = np.ones(len(self._rows), np.bool_)
        digits = 2 if self._fields.data_base == 16 else 3
        for number, span in enumerate(self._fields.data):
            start, end = self._span(span)
            found, is_number = numbers(self._block.buffer, start, end, self._fields.data_base)
            is_valid &= is_number & (found < 256) & (end - start <= digits)
            data[:, number] = found & 0xFF
        return data, is_valid


def _has_width(widths: Offsets, allowed: Sequence[int]) -> Mask:
    """Where a width is one of those that are allowed."""
    if isinstance(allowed, range):
        return (widths >= allowed.start) & (widths < allowed.stop)
    return np.isin(widths, allowed)


def _all_hex(text: Bytes) -> Mask:
    """The rows of hexadecimal digits only; in most cases that is all of them."""
    found = is_hex(text)
    every: Mask = np.ones(len(text), np.bool_) if found.all() else np.all(found, axis=1)
    return every
