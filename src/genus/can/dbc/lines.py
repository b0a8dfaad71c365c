"""Text logs, a line at a time, with python-can to understand the lines.

python-can's readers end at the first line they cannot read. So lines are cut here, and handed to a reader with as much
of the file's header as it needs: many at once, and each alone if that fails.
"""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import can
from genus.can.dbc.quiet import quiet
from genus.can.dbc.seen import (
    BAD_TIME,
    HARMLESS,
    LAST_US,
    NO_FRAME,
    LogFile,
    Logged,
    PassedOver,
    frame_of,
    micros_of_seconds,
)

LONGEST_LINE = 1 << 16
BATCH = 512
DAMAGED_LINE = "damaged line"


class Line(NamedTuple):
    """A line that is no header, and its time where the format knows it better than python-can."""

    number: int
    text: str
    at_us: int | None = None

    @property
    def place(self) -> str:
        """Where it is, for messages."""
        return f"line {self.number}"


def lines_of(file: LogFile) -> Iterator[Line]:
    """The lines that are not empty; one that is too long, or cut off by the end of packed data, is passed over."""
    rest, number = b"", 0
    for chunk in file.chunks():
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            number += 1
            yield from _line(file.passed, number, line)
        if len(rest) > LONGEST_LINE:
            rest = rest[: LONGEST_LINE + 1]
    if rest and not file.is_cut:
        yield from _line(file.passed, number + 1, rest)


def _line(passed: PassedOver, number: int, line: bytes) -> Iterator[Line]:
    if len(line) > LONGEST_LINE:
        passed.note("line too long", f"line {number}")
    elif text := _decoded(line).strip():
        yield Line(number, text)


def _decoded(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError:
        return line.decode("latin-1")


class LineFormat(Protocol):
    """What is special about a text format."""

    header: str
    """What python-can must have read before a line."""

    def is_header(self, line: Line) -> bool:
        """Whether a line is a header or a comment, and so no frame."""

    def read_header(self, line: Line, passed: PassedOver) -> None:
        """Take from a header what is needed for the lines after it."""

    def timed(self, line: Line) -> Line:
        """The line with its time, if the format knows it."""

    def parse(self, text: str) -> list[can.Message]:
        """The messages of header and lines, by python-can."""

    def channel(self, message: can.Message) -> str | None:
        """The channel as the file names it."""


def read_lines(file: LogFile, lines: LineFormat) -> Iterator[Logged]:
    """The frames of a text format."""
    batch: list[Line] = []
    for line in lines_of(file):
        is_header = lines.is_header(line)
        if is_header or len(batch) == BATCH:
            yield from _understood(file.passed, lines, batch)
            batch = []
        if is_header:
            lines.read_header(line, file.passed)
        else:
            batch.append(lines.timed(line))
    yield from _understood(file.passed, lines, batch)


def _understood(passed: PassedOver, lines: LineFormat, batch: list[Line]) -> Iterator[Logged]:
    if not batch:
        return
    with quiet("can.io"):
        together = _parsed_together(lines, batch)
        messages = [_parsed(passed, lines, line) for line in batch] if together is None else together
    for line, message in zip(batch, messages, strict=True):
        if message is not None:
            yield from _logged(passed, lines, line, message)


def _parsed_together(lines: LineFormat, batch: list[Line]) -> list[can.Message | None] | None:
    """One message per line, or None if it cannot be told which is whose."""
    try:
        messages = lines.parse(lines.header + "".join(f"{line.text}\n" for line in batch))
    except Exception:
        return None
    return [*messages] if len(messages) == len(batch) else None


def _parsed(passed: PassedOver, lines: LineFormat, line: Line) -> can.Message | None:
    try:
        messages = lines.parse(f"{lines.header}{line.text}\n")
    except Exception as problem:
        passed.note(DAMAGED_LINE, f"{line.place} ({' '.join(str(problem).split())})")
        return None
    if not messages:
        passed.note(NO_FRAME, line.place)
    return messages[0] if messages else None


def _logged(passed: PassedOver, lines: LineFormat, line: Line, message: can.Message) -> Iterator[Logged]:
    frame = frame_of(message)
    at_us = line.at_us if line.at_us is not None else micros_of_seconds(message.timestamp)
    if isinstance(frame, str):
        passed.note(frame, "" if frame in HARMLESS else line.place)
    elif at_us is None or at_us > LAST_US:
        passed.note(BAD_TIME, line.place)
    else:
        yield Logged(at_us, lines.channel(message), frame)
