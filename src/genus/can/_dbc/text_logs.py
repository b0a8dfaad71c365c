"""The text formats that python-can understands: ASC, TRC and CSV; what each keeps in its header, and its times."""

import io
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import IO, ClassVar, NamedTuple, Protocol

import can
from genus.can._dbc.log_file import (
    BAD_TIME,
    HARMLESS,
    LAST_US,
    NO_FRAME,
    LogFile,
    Logged,
    PassedOver,
    frame_of,
    from_one,
    micros_of_seconds,
    quiet,
)
from genus.errors import RecordingError
from genus.model._types import micros_of_time

# Text logs, a line at a time, with python-can to understand the lines.
#
# python-can's readers end at the first line they cannot read. So lines are cut here, and handed to a reader with as
# much of the file's header as it needs: many at once, and each alone if that fails.


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


# Blocks of whole lines, out of bytes that come in pieces: a range of a file, or what is unpacked of it.
#
# A line belongs to the range in which its first byte is, so that ranges side by side have every line once.


BLOCK = 1 << 20
"""So many bytes are best read together: their columns stay in the processor's cache."""


class LineBlock(NamedTuple):
    """Whole lines, and where the first begins; the last line of all may lack its end."""

    at: int
    text: bytes


def lines_between(file: IO[bytes], start: int, end: int) -> Iterator[LineBlock]:
    """The lines of a file that begin in a range of bytes.

    >>> import io
    >>> list(lines_between(io.BytesIO(b"one\\ntwo\\nthree\\n"), 1, 5))
    [LineBlock(at=4, text=b'two\\n')]
    """
    behind = max(start - 1, 0)  # where a line ends that may begin before the range
    file.seek(behind)
    return _blocks(iter(lambda: file.read(BLOCK), b""), behind, end, skip=start > 0)


def lines_unpacked(pieces: Iterable[bytes], is_cut: Callable[[], bool]) -> Iterator[LineBlock]:
    """All lines of a text that comes in pieces; without the last if it is cut off, which is known in the end."""
    return _blocks(_joined(pieces), 0, 1 << 63, skip=False, is_cut=is_cut)


def _joined(pieces: Iterable[bytes]) -> Iterator[bytes]:
    waiting: list[bytes] = []
    for piece in pieces:
        waiting.append(piece)
        if sum(map(len, waiting)) >= BLOCK:
            yield b"".join(waiting)
            waiting = []
    yield b"".join(waiting)


def _blocks(
    pieces: Iterable[bytes], at: int, end: int, *, skip: bool, is_cut: Callable[[], bool] = lambda: False
) -> Iterator[LineBlock]:
    """The lines that begin before `end`; of one that is too long only its beginning. `skip` what is left of a line."""
    rest = b""
    for piece in pieces:
        text = rest + piece
        if skip:
            over = text.find(b"\n") + 1
            at, text, skip = at + (over or len(text)), text[over:] if over else b"", not over
        size, is_last = _whole(text, end - at)
        if size:
            yield LineBlock(at, text[:size])
        if is_last:
            return
        at, rest = at + size, text[size:]
        if len(rest) > LONGEST_LINE:
            yield LineBlock(at, rest[: LONGEST_LINE + 1])
            at, rest, skip = at + len(rest), b"", True
    if rest and not is_cut():
        yield LineBlock(at, rest)


def _whole(text: bytes, left: int) -> tuple[int, bool]:
    """How much of a text is whole lines that begin in its first `left` bytes, and whether no other does."""
    if left <= 0:
        return 0, True
    last = text.find(b"\n", left - 1)
    return (last + 1, True) if last >= 0 else (text.rfind(b"\n") + 1, False)


class AscLines:
    """Vector's ASC. Its date has no zone and is taken as UTC; times count from it, or from the line before."""

    _MONTHS: ClassVar[dict[str, int]] = {
        name: number
        for number, names in enumerate(
            ("jan", "feb", "mar mär mrz", "apr", "may mai", "jun", "jul", "aug", "sep", "oct okt", "nov", "dec dez"), 1
        )
        for name in names.split()
    }
    _STARTS = re.compile(r"(?:date|begin\s+triggerblock)\s+\S+\s+(?P<date>.+)", re.IGNORECASE)
    _BASE = re.compile(r"base\s+(?P<base>hex|dec)(?:\s+timestamps\s+(?P<times>absolute|relative))?", re.IGNORECASE)
    _HEADER = re.compile(
        r"//|date\b|base\s|(?:no\s+)?internal\s+events\s+logged|(?:begin|end)\s+triggerblock"
        r"|\d+\.\d+\s+start\s+of\s+measurement",
        re.IGNORECASE,
    )
    _DATE = re.compile(
        r"(?P<month>\w{3})\w*\s+(?P<day>\d+)\s+(?P<hour>\d+):(?P<minute>\d+):(?P<second>\d+)(?:\.(?P<fraction>\d{1,6}))?"
        r"(?:\s+(?P<half>am|pm))?\s+(?P<year>\d{4})",
        re.IGNORECASE,
    )
    _TIME = re.compile(r"(?P<seconds>\d{1,12})\.(?P<fraction>\d{1,9})\s", re.ASCII)

    def __init__(self) -> None:
        self.header = "base hex\ninternal events logged\n"
        self._start_us = 0
        self._last_us: int | None = None

    def is_header(self, line: Line) -> bool:
        """Dates, number base, comments and what else has no time of its own."""
        return self._HEADER.match(line.text) is not None

    def read_header(self, line: Line, passed: PassedOver) -> None:
        """Number base, how times are counted, and from when."""
        if base := self._BASE.match(line.text):
            self.header = f"base {base['base'].lower()}\ninternal events logged\n"
            self._last_us = 0 if (base["times"] or "").lower() == "relative" else None
        elif starts := self._STARTS.fullmatch(line.text):
            self._start(starts["date"], line, passed)

    def _start(self, date: str, line: Line, passed: PassedOver) -> None:
        start = self._read_date(date)
        if start is None:
            passed.note("date not understood", line.place)
        else:
            self._start_us = micros_of_time(start)

    def _read_date(self, text: str) -> datetime | None:
        """A date like `Sep 30 03:06:13.191 PM 2017`, in English or German."""
        found = self._DATE.fullmatch(text.strip())
        if found is None or found["month"].lower() not in self._MONTHS:
            return None
        year, day, hour, minute, second = (int(found[part]) for part in ("year", "day", "hour", "minute", "second"))
        if found["half"]:
            hour = hour % 12 + 12 * (found["half"].lower() == "pm")
        micros = int((found["fraction"] or "0").ljust(6, "0"))
        try:
            return datetime(year, self._MONTHS[found["month"].lower()], day, hour, minute, second, micros, tzinfo=UTC)
        except ValueError:
            return None

    def timed(self, line: Line) -> Line:
        """Times are read here: exactly, and counted up where each is relative to the one before."""
        found = self._TIME.match(line.text)
        if found is None:
            return line
        at_us = int(found["seconds"]) * 1_000_000 + int(found["fraction"][:6].ljust(6, "0"))
        if self._last_us is not None:
            at_us = self._last_us = self._last_us + at_us
        return line._replace(at_us=self._start_us + at_us)

    def parse(self, text: str) -> list[can.Message]:
        """By `can.ASCReader`."""
        return list(can.ASCReader(io.StringIO(text)))

    def channel(self, message: can.Message) -> str | None:
        """Channels are numbered from 1."""
        return from_one(message)


class TrcLines:
    """PEAK's TRC, versions 1.0, 1.1, 1.3, 2.0 and 2.1. Its start time is taken as UTC."""

    VERSIONS = ("1.0", "1.1", "1.3", "2.0", "2.1")
    _DIRECTIVES = re.compile(r";\$(?:FILEVERSION=[\d.]+|STARTTIME=\d{1,6}(?:\.\d+)?|COLUMNS=[A-Za-z,]+)", re.ASCII)

    def __init__(self) -> None:
        self.header = ""

    def is_header(self, line: Line) -> bool:
        """All comments."""
        return line.text.startswith(";")

    def read_header(self, line: Line, passed: PassedOver) -> None:
        """python-can needs the comments that say version, start time and columns."""
        if line.text.startswith(";$FILEVERSION="):
            self._check_version(line.text.partition("=")[2].strip())
        if self._DIRECTIVES.fullmatch(line.text):
            self.header += f"{line.text}\n"
        elif line.text.startswith(";$"):
            passed.note("header not understood", line.place)

    def _check_version(self, version: str) -> None:
        if version not in self.VERSIONS:
            raise RecordingError(f"TRC files of version {version} cannot be read; known: {', '.join(self.VERSIONS)}")

    def timed(self, line: Line) -> Line:
        """python-can adds start time and offset."""
        return line

    def parse(self, text: str) -> list[can.Message]:
        """By `can.TRCReader`."""
        return list(can.TRCReader(io.StringIO(text)))

    def channel(self, message: can.Message) -> str | None:
        """Channels are numbered as in the file."""
        return str(message.channel)


class CsvLines:
    """python-can's CSV: timestamp, arbitration_id, extended, remote, error, dlc, data in base 64."""

    header = "timestamp,arbitration_id,extended,remote,error,dlc,data\n"

    def is_header(self, line: Line) -> bool:
        """The line of column names, wherever files were joined."""
        return line.text.startswith("timestamp")

    def read_header(self, line: Line, passed: PassedOver) -> None:
        """The columns are always the same."""

    def timed(self, line: Line) -> Line:
        """Times are in seconds since 1970."""
        return line

    def parse(self, text: str) -> list[can.Message]:
        """By `can.CSVReader`."""
        return list(can.CSVReader(io.StringIO(text)))

    def channel(self, message: can.Message) -> str | None:
        """The file does not say."""
        return None
