"""Lines of text logs to frames in columns, by example.

A format reads one line (`TextFormat.match`). Its fields are learned as a `Layout`: which tokens of the line they are,
and which other tokens must be the same. All lines of a block that have the layout are read together; lines that no
layout fits are read one by one, and the first of them is the next example. So a format describes one line, and large
files are read in columns: the layouts of a log are few (number of data bytes, kind of identifier, direction).

What is read in columns is what the format would read line by line; tests compare the two.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from genus.can._logs.digits import (
    Bytes,
    Mask,
    Offsets,
    base64_bytes,
    distinct,
    hex_bytes,
    is_hex,
    numbers,
    windows_at,
)
from genus.can._logs.frames import EXTENDED, DamagedLine, FrameColumns, LogBlock, LoggedFrame, block_of
from genus.can._logs.line_fields import (
    Fields,
    KindOfTimes,
    LineTimes,
    NoFrame,
    Span,
    channel_of,
    read_date,
    read_fields,
    read_time,
)
from genus.can._logs.log_file import BAD_TIME, HARMLESS, LAST_US, LINE_TOO_LONG, LONGEST_LINE, decode_text
from genus.can._logs.text_block import BLANKS, Rows, TextBlock, split_line, without_colours
from genus.can._wire.frame import CLASSIC_BYTES, FD_BYTES, ID_MASK, STANDARD_ID_MASK, Frame

FEW_LINES = 8
"""So few lines are read one by one."""
USELESS_EXAMPLES = 12
"""After so many examples that no other line is like, the rest of a block is read line by line."""
MOST_LAYOUTS = 200
LONGEST_CHANNEL = 24


class HeaderLine(NamedTuple):
    """What a header or comment of a log changes."""

    changes: bool = False
    """Whether lines after it are read differently from those before it."""
    problem: str | None = None


class TextFormat(Protocol):
    """A format of logs of lines; an object is the state of reading one log."""

    name: str
    delimiter: str
    """What separates tokens; empty for blanks."""
    times: LineTimes
    is_divisible: bool
    """Whether a line means the same whatever lines are between it and the head of the log."""

    def read_header(self, text: str) -> HeaderLine | None:
        """Take what lines after it need from a header or comment; None if a line is neither."""

    def match(self, text: str) -> Fields | NoFrame:
        """The fields of a line, as Latin-1 text; never raises."""


# -- layouts -----------------------------------------------------------------------------------------------------------


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
        self._text = text
        self._channels: dict[bytes, bool] = {}
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

    def allows_channel(self, name: bytes, format: "TextFormat") -> bool:
        """Whether the format reads the example with this channel in place of its own."""
        span = self.fields.channel
        if name not in self._channels and span is not None:
            text = f"{self._text[: span[0]]}{name.decode('latin-1')}{self._text[span[1] :]}"
            fields = format.match(text)
            is_same = isinstance(fields, Fields) and fields.channel == (span[0], span[0] + len(name))
            self._channels[name] = is_same
        return self._channels[name]

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


class _Read(NamedTuple):
    """The frames of some lines; their times are time stamps still."""

    rows: Rows
    frames: FrameColumns


class _LayoutReader:
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

    def read(self) -> _Read | None:
        """The frames of the lines that have the layout and are valid."""
        if not len(self._rows):
            return None
        fields, every = self._fields, len(self._rows)
        identifier, is_valid = self._identifiers()
        data, is_data = self._data()
        stamps, is_time = self._times()
        is_valid &= is_data & is_time
        for span in fields.digits:
            is_valid &= numbers(self._block.buffer, *self._span(span), 10)[1]
        channel, channels, is_channel = self._channels()
        is_valid &= is_channel
        length = np.full(every, fields.length, np.uint8)
        position = self._block.position(self._rows)
        found = FrameColumns(stamps, identifier, length, data, position, channel, channels)
        if is_valid.all():
            return _Read(self._rows, found)
        kept = np.flatnonzero(is_valid)
        return _Read(self._rows[kept], found.take(kept)) if len(kept) else None

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
                if self._layout.allows_channel(text, self._format):
                    channel[same[which]] = len(names)
                    names.append(decode_text(text))
        return channel, tuple(names), channel >= 0

    # data

    def _data(self) -> tuple[Bytes, Mask]:
        width = FD_BYTES if self._fields.fd else CLASSIC_BYTES
        data = np.zeros((len(self._rows), width), np.uint8)
        is_valid = np.ones(len(self._rows), np.bool_)
        if not self._fields.length:
            return data, is_valid
        read = {"bytes": self._separate, "hex": self._joined, "base64": self._base64}[self._fields.packing]
        found, is_valid = read()
        data[:, : self._fields.length] = found
        return data, is_valid

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
        text = windows_at(self._block.buffer, start, size).copy()
        padding = -self._fields.length % 3
        is_padded = np.ones(len(start), np.bool_)
        if padding:
            is_padded = (text[:, -padding:] == ord("=")).all(axis=1)
            text[:, -padding:] = ord("A")
        found, is_valid = base64_bytes(text)
        return found[:, : self._fields.length], is_valid & is_padded & (end - start == size)

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


# -- blocks ------------------------------------------------------------------------------------------------------------


class _Alone(NamedTuple):
    """What a line that was read alone is."""

    row: int
    frame: Frame | str
    stamp: int | None
    channel: str | None


class _Part:
    """State: what was read of the lines of a block that have one context."""

    def __init__(self) -> None:
        self.read: list[_Read] = []
        self.alone: list[_Alone] = []

    def until(self, stop: int) -> None:
        """Forget what was read of line `stop` and those after it."""
        cut = []
        for rows, frames in self.read:
            kept = np.flatnonzero(rows < stop)
            cut.append(_Read(rows[kept], frames.take(kept)) if len(kept) < len(rows) else _Read(rows, frames))
        self.read = [each for each in cut if len(each.rows)]
        self.alone = [each for each in self.alone if each.row < stop]


class TextReader:
    """State: reads the blocks of a text log, one after the other, and remembers the layouts of its lines."""

    def __init__(self, format: TextFormat, *, learns: bool = True) -> None:
        """With `learns` false every line is read alone, which is slow and gives the same."""
        self.format = format
        self._learns = learns
        self._layouts: dict[object, Layout] = {}

    @property
    def name(self) -> str:
        """The name of the format."""
        return self.format.name

    @property
    def is_divisible(self) -> bool:
        """Whether a line means the same whatever lines are between it and the head of the log."""
        return self.format.is_divisible

    @property
    def times(self) -> KindOfTimes:
        """What time stamps count from."""
        return self.format.times.kind

    def parse(self, text: bytes, at: int = 0) -> LogBlock:
        """The frames of a block of whole lines; never raises.

        Args:
            text: Whole lines; the last one of a log may lack its newline.
            at: The byte of the log at which `text` begins.
        """
        block = TextBlock(without_colours(text), self.format.delimiter)
        found = LogBlock([], [], Counter())
        start = 0
        while start < len(block):
            part = _Part()
            start = self._parse_lines(block, start, part, found, at)
            self._finish(block, part, found, at)
        return found._replace(lines=len(block))

    def _parse_lines(self, block: TextBlock, start: int, part: _Part, found: LogBlock, at: int) -> int:
        """Read lines up to a header that changes how lines are read; gives the line after it."""
        is_read = np.zeros(len(block), np.bool_)
        learned, useless = self._learns and len(block) - start >= FEW_LINES, 0
        can_learn = block.whole_fields()
        if learned:
            for layout in list(self._layouts.values()):
                self._read_layout(block, layout, start, is_read, can_learn, part)
        unread, next_ = np.flatnonzero(~is_read[start:]) + start, 0
        while next_ < len(unread):
            row, next_ = int(unread[next_]), next_ + 1
            line = block.line(row)
            text = line.decode("latin-1")
            if not text.strip(BLANKS):
                continue
            if len(line) > LONGEST_LINE:
                found.damaged.append(DamagedLine(at + int(block.position(np.array([row]))[0]), LINE_TOO_LONG, line))
                continue
            header = self.format.read_header(text)
            if header is not None:
                if header.problem:
                    self._damage(block, row, header.problem, found, at)
                if header.changes:
                    self._layouts = {}
                    part.until(row)
                    return row + 1
                continue
            fields = self.format.match(text)
            part.alone.append(_alone(row, text, fields))
            has_time = bool(fields.time.parts) or self.format.times.kind == "none"
            if learned and useless < USELESS_EXAMPLES and isinstance(fields, Fields) and has_time:
                is_whole = can_learn is None or can_learn[row]
                new = learn(fields, text, block.delimiter) if is_whole else None
                if new is not None and new.key not in self._layouts and len(self._layouts) < MOST_LAYOUTS:
                    count = self._read_layout(block, new, row + 1, is_read, can_learn, part)
                    if count:
                        self._layouts[new.key] = new
                        unread, next_ = np.flatnonzero(~is_read[row + 1 :]) + row + 1, 0
                    useless = 0 if count else useless + 1
        return len(block)

    def _read_layout(
        self, block: TextBlock, layout: Layout, start: int, is_read: Mask, can_learn: Mask | None, part: _Part
    ) -> int:
        unread = ~is_read[start:] if can_learn is None else ~is_read[start:] & can_learn[start:]
        rows = np.flatnonzero(unread) + start
        read = _LayoutReader(self.format, block, layout, rows).read() if len(rows) else None
        if read is None:
            return 0
        is_read[read.rows] = True
        part.read.append(read)
        return len(read.rows)

    def _damage(self, block: TextBlock, row: int, reason: str, found: LogBlock, at: int) -> None:
        position = at + int(block.position(np.array([row]))[0])
        found.damaged.append(DamagedLine(position, reason, block.line(row)))

    def _finish(self, block: TextBlock, part: _Part, found: LogBlock, at: int) -> None:
        """Make times of time stamps, and sort out what is a frame and what is not."""
        has_times = self.format.times.kind != "none"
        alone = [each for each in part.alone if each.stamp is not None] if has_times else part.alone
        rows = np.concatenate([np.array([each.row for each in alone], np.intp), *(read.rows for read in part.read)])
        stamps = np.array([each.stamp or 0 for each in alone], np.int64)
        stamps = np.concatenate([stamps, *(read.frames.at_us for read in part.read)])
        if self.format.times.is_ordered:
            order = np.argsort(rows, kind="stable")
            times = np.empty(len(rows), np.int64)
            times[order] = self.format.times.resolve(stamps[order])
        else:
            times = self.format.times.resolve(stamps)
        at_us = dict(zip([each.row for each in alone], times[: len(alone)].tolist(), strict=True))
        self._finish_alone(block, part.alone, at_us, found, at)
        done = len(alone)
        for each_rows, frames in part.read:
            own = times[done : done + len(each_rows)]
            done += len(each_rows)
            is_time = (own >= 0) & (own <= LAST_US)
            moved = frames._replace(at_us=own, position=frames.position + at)
            found.frames.append(moved if is_time.all() else moved.take(np.flatnonzero(is_time)))
            for row in each_rows[~is_time].tolist():
                self._damage(block, row, BAD_TIME, found, at)
        found.frames[:] = [each for each in found.frames if len(each.at_us)]

    def _finish_alone(
        self, block: TextBlock, alone: list[_Alone], at_us: dict[int, int], found: LogBlock, at: int
    ) -> None:
        frames: list[tuple[int, LoggedFrame]] = []
        for row, frame, _, channel in alone:
            if isinstance(frame, str):
                if frame in HARMLESS:
                    found.skipped[frame] += 1
                else:
                    self._damage(block, row, frame, found, at)
            elif not 0 <= at_us.get(row, -1) <= LAST_US:
                self._damage(block, row, BAD_TIME, found, at)
            else:
                position = at + int(block.position(np.array([row]))[0])
                frames.append((position, LoggedFrame(at_us[row], channel, frame)))
        found.frames.extend(block_of(frames).frames)


def _alone(row: int, text: str, fields: Fields | NoFrame) -> _Alone:
    stamp = read_time(text, fields.time)
    if isinstance(fields, NoFrame):
        return _Alone(row, fields.reason, stamp, None)
    return _Alone(row, read_fields(text, fields), stamp, channel_of(text, fields.channel))
