"""Lines of text logs to frames in columns.

A format reads one line (`LineFormat.match`). All lines of a block that are like it are read together (`line_columns`);
of those that are left, one is the next example. Lines like none are read one by one. The forms of a log are few (number
of data bytes, kind of identifier, direction), so that large files are read in columns. What is read in columns is what
the format would read line by line; tests compare the two.
"""

from collections import Counter

import numpy as np

from genus.can._logs.digits import FRONT
from genus.can._logs.formats import ROWS, LineFormat
from genus.can._logs.frames import DamagedLine, LogBlock
from genus.can._logs.line_columns import Layout, LayoutReader, Shape, ShapeReader, learn_layout, learn_shape
from genus.can._logs.lines import (
    BLANKS,
    Fields,
    LineFrames,
    ReadLines,
    Rows,
    TextBlock,
    channel_of,
    read_fields,
    without_colours,
)
from genus.can._logs.log_file import BAD_TIME, HARMLESS, LAST_US, LINE_TOO_LONG, MAX_LINE
from genus.can._logs.times import KindOfTimes, read_time

FEW_LINES = 8
"""So few lines are read one by one."""
USELESS_EXAMPLES = 12
"""After so many examples that no other line is like, the rest of a block is read line by line."""
MAX_LAYOUTS = 200
MAX_SHAPES = 60
USELESS_SHAPES = 4
"""After so many examples that few lines have the shape of, no more shapes are learned in a block."""
WORTH_SPLITTING = 100
"""Fewer lines are read one by one sooner than cut into tokens."""


class _Lines:
    def __init__(self, block: TextBlock, at: int) -> None:
        self.block, self.at = block, at
        self.frames = LineFrames(len(block))
        self.is_read = np.zeros(len(block), np.bool_)
        self.is_split = False
        self.found = LogBlock([], [], Counter())

    def unread(self, start: int) -> Rows:
        rows: Rows = np.flatnonzero(~self.is_read[start:]) + start
        return rows

    def keep(self, read: ReadLines | None) -> int:
        if read is None:
            return 0
        self.is_read[read.rows] = True
        self.frames.add(read)
        return len(read.rows)

    def split(self) -> None:
        if not self.is_split:
            self.block.split(self.is_read)
            self.is_split, self._is_unquoted = True, self.block.is_unquoted()

    def with_tokens(self, start: int) -> Rows:
        self.split()
        rows = self.unread(start)
        return rows if self._is_unquoted is None else rows[self._is_unquoted[rows]]

    def text(self, row: int) -> str:
        return self.block.line(row).decode("latin-1")

    def damage(self, row: int, reason: str) -> None:
        position = self.at + int(self.block.start[row]) - FRONT
        self.found.damaged.append(DamagedLine(position, reason, self.block.line(row)))


class TextReader:
    """State: reads the blocks of a text log, one after the other, and remembers the shapes of its lines."""

    def __init__(
        self, format: LineFormat, *, learns: bool = True, shapes: bool = True, worth_splitting: int = WORTH_SPLITTING
    ) -> None:
        """With `learns` false every line is read alone, which is slow and gives the same.

        `shapes` and `worth_splitting` choose between two ways to read many lines, which give the same, too.
        """
        self.format = format
        self._learns, self._has_shapes, self._worth_splitting = learns, shapes, worth_splitting
        self._shapes: dict[object, Shape] = {}
        self._layouts: dict[object, Layout] = {}

    @property
    def name(self) -> str:
        return self.format.row.name

    @property
    def is_divisible(self) -> bool:
        """Whether a line means the same whatever lines are between it and the head of the log."""
        return self.format.is_divisible

    @property
    def may_wrap(self) -> bool:
        """Whether times are a plain counter, which may begin again in the middle of the log."""
        times = self.format.times
        return times.kind == "start" and self.format.row.times is None and not times.period_us

    @property
    def times(self) -> KindOfTimes:
        return self.format.times.kind

    def parse(self, text: bytes, at: int = 0) -> LogBlock:
        """Return the frames of a block of whole lines; never raises.

        Args:
            text: Whole lines; the last one of a log may lack its newline.
            at: The byte of the log at which `text` begins.
        """
        lines = _Lines(TextBlock(without_colours(text), self.format.row.delimiter), at)
        start, every = 0, len(lines.block)
        while start < every:
            stop = self._read(lines, start)
            self._finish(lines, start, stop)
            start = stop
        return lines.found._replace(lines=every)

    def _read(self, lines: _Lines, start: int) -> int:
        """Read lines up to a header that changes how lines are read; gives the line after it."""
        learns = self._learns and len(lines.block) - start >= FEW_LINES
        can_shape = learns and self._has_shapes
        useless = 0
        if learns:
            self._read_known(lines, start)
        unread, next_ = lines.unread(start), 0
        while next_ < len(unread):
            row, next_ = int(unread[next_]), next_ + 1
            text = lines.text(row)
            if not text.strip(BLANKS):
                continue
            if len(text) > MAX_LINE:
                lines.damage(row, LINE_TOO_LONG)
                continue
            header = self.format.read_header(text)
            if header is not None:
                if header.problem:
                    lines.damage(row, header.problem)
                if header.changes:
                    self._shapes, self._layouts = {}, {}
                    self._forget(lines, row + 1)
                    return row + 1
                continue
            fields = self._read_alone(lines, row, text)
            if not learns or fields is None or useless >= USELESS_EXAMPLES:
                continue
            count = 0
            if can_shape:
                can_shape = False
                count = self._learn_shapes(lines, row, fields, text)
            if len(unread) - count - next_ >= self._worth_splitting:
                count += self._learn_layout(lines, row, fields, text)
                useless = 0 if count else useless + 1
            if count:
                unread, next_ = lines.unread(row + 1), 0
        return len(lines.block)

    def _read_known(self, lines: _Lines, start: int) -> None:
        counts = {key: self._read_shape(lines, shape, start) for key, shape in self._shapes.items()}
        by_use = sorted(self._shapes.items(), key=lambda each: -counts[each[0]])
        self._shapes = dict(by_use)  # the next block is most probably like this one
        if len(lines.unread(start)) >= self._worth_splitting:
            for layout in self._layouts.values():
                self._read_layout(lines, layout, start)

    def _read_alone(self, lines: _Lines, row: int, text: str) -> Fields | None:
        fields = self.format.match(text)
        stamp = read_time(text, fields.time)
        lines.is_read[row] = True
        if not isinstance(fields, Fields):
            lines.frames.add_stamp(row, stamp)
            self._skip(lines, row, fields.reason)
            return None
        frame = read_fields(text, fields)
        if isinstance(frame, str):
            lines.frames.add_stamp(row, stamp)
            self._skip(lines, row, frame)
        else:
            lines.frames.add_frame(row, stamp, channel_of(text, fields.channel), frame, fields.direction)
        return fields if fields.time.parts or self.format.times.kind == "none" else None

    def _skip(self, lines: _Lines, row: int, reason: str) -> None:
        if reason in HARMLESS:
            lines.found.skipped[reason] += 1
        else:
            lines.damage(row, reason)

    def _learn_shapes(self, lines: _Lines, row: int, fields: Fields, text: str) -> int:
        """Read lines by the shape of one, then by the shapes of others; how many lines were read."""
        count, useless = 0, 0
        example: Fields | None = fields
        while useless < USELESS_SHAPES and len(self._shapes) < MAX_SHAPES:
            shape = learn_shape(example, text, lines.block.delimiter) if example is not None else None
            found = 0
            if shape is not None and shape.key not in self._shapes:
                found = self._read_shape(lines, shape, row + 1)
                if found:
                    self._shapes[shape.key] = shape
            unread = lines.unread(row + 1)
            count += found
            useless = 0 if found > len(unread) // 100 else useless + 1
            if len(unread) < FEW_LINES:
                break
            text = lines.text(int(unread[(len(unread) // 2 + useless) % len(unread)]))
            example = self._fields(text)
        return count

    def _fields(self, text: str) -> Fields | None:
        fields = self.format.match(text)
        is_example = isinstance(fields, Fields) and (fields.time.parts or self.format.times.kind == "none")
        return fields if isinstance(fields, Fields) and is_example else None

    def _learn_layout(self, lines: _Lines, row: int, fields: Fields, text: str) -> int:
        layout = learn_layout(fields, text, lines.block.delimiter)
        if layout is None or layout.key in self._layouts or len(self._layouts) >= MAX_LAYOUTS:
            return 0
        count = self._read_layout(lines, layout, row + 1)
        if count:
            self._layouts[layout.key] = layout
        return count

    def _read_shape(self, lines: _Lines, shape: Shape, start: int) -> int:
        rows = lines.unread(start)
        return lines.keep(ShapeReader(self.format, lines.block, shape, rows).read() if len(rows) else None)

    def _read_layout(self, lines: _Lines, layout: Layout, start: int) -> int:
        rows = lines.with_tokens(start)
        return lines.keep(LayoutReader(self.format, lines.block, layout, rows).read() if len(rows) else None)

    def _forget(self, lines: _Lines, start: int) -> None:
        """Lines from one on are read differently, so that what was read of them does not count."""
        lines.is_read[start:] = False
        lines.is_split = False
        lines.frames.forget(start)

    def _finish(self, lines: _Lines, start: int, stop: int) -> None:
        frames, has_times = lines.frames, self.format.times.kind != "none"
        part = slice(start, stop)
        rows = np.flatnonzero(frames.has_stamp[part] if has_times else frames.is_frame()[part]) + start
        times = np.full(len(lines.block), -1, np.int64)
        times[rows] = self.format.times.resolve(frames.stamps[rows])
        is_frame = frames.is_frame()
        is_frame[:start], is_frame[stop:] = False, False
        is_kept = is_frame & (times >= 0) & (times <= LAST_US)
        for row in np.flatnonzero(is_frame & ~is_kept).tolist():
            lines.damage(row, BAD_TIME)
        lines.found.frames.extend(frames.columns(times, is_kept, lines.block.start - FRONT + lines.at))


def parse_candump(text: bytes, at: int = 0) -> LogBlock:
    """Read a block of whole lines of a log of `candump -L` into columns.

    Never raises: a line that cannot be read is in `damaged`.

    Args:
        text: Whole lines.
        at: The byte of the log at which `text` begins; positions count from the beginning of the log.

    Returns:
        Frames of up to 8 and of up to 64 bytes in separate columns, and the damaged lines.

    >>> block = parse_candump(b"(1700000000.250000) can0 123#1122\\n")
    >>> block.frames[0].at_us.tolist(), block.frames[0].identifier.tolist(), block.frames[0].length.tolist()
    ([1700000000250000], [291], [2])
    """
    return TextReader(LineFormat(ROWS["log"])).parse(text, at)
