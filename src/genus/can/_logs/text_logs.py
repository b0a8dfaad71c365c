"""Log formats of text lines that python-can understands: ASC, TRC and CSV.

python-can's readers stop at the first line they cannot read. So files are split into lines here, and lines are given to
a reader of python-can together with as much of the file's header as it needs: many at once, and each alone if that
fails.
"""

import io
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import ClassVar, NamedTuple, Protocol

import can
from genus.can._logs.frames import LoggedFrame
from genus.can._logs.log_file import (
    NO_FRAME,
    LogFile,
    SkippedRecords,
    frame_of,
    logged_frame,
    micros_of_seconds,
    suppress_warnings,
    vector_channel,
)
from genus.errors import RecordingError
from genus.model._types import micros_of_time

LONGEST_LINE = 1 << 16
BATCH = 512
DAMAGED_LINE = "damaged line"
LINE_TOO_LONG = "line too long"


class LogLine(NamedTuple):
    """A line of a log, and its time where the format reads it more exactly than python-can does."""

    number: int
    text: str
    at_us: int | None = None

    @property
    def location(self) -> str:
        """Where it is, for messages."""
        return f"line {self.number}"


def iter_lines(file: LogFile) -> Iterator[LogLine]:
    """The lines that are not blank; lines that are too long, and the last one of cut gzip data, are skipped."""
    rest, number = b"", 0
    for chunk in file.chunks():
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            number += 1
            yield from numbered_line(file.skipped, number, line)
        if len(rest) > LONGEST_LINE:
            rest = rest[: LONGEST_LINE + 1]
    if rest and not file.is_cut:
        yield from numbered_line(file.skipped, number + 1, rest)


def numbered_line(skipped: SkippedRecords, number: int, line: bytes) -> Iterator[LogLine]:
    """The line as text; nothing if it is blank, or too long, which is counted."""
    if len(line) > LONGEST_LINE:
        skipped.note(LINE_TOO_LONG, f"line {number}")
    elif text := decode_text(line).strip():
        yield LogLine(number, text)


def decode_text(raw: bytes) -> str:
    """Bytes as UTF-8, or as Latin-1 if they are not UTF-8."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")


class LineFormat(Protocol):
    """What is special about one text format."""

    header: str
    """The text that python-can must read before a line."""

    def is_header(self, line: LogLine) -> bool:
        """Whether a line is a header or a comment, and not a frame."""

    def read_header(self, line: LogLine, skipped: SkippedRecords) -> None:
        """Take from a header what is needed for the lines after it."""

    def add_time(self, line: LogLine) -> LogLine:
        """The line with its time, if the format reads times itself."""

    def parse(self, text: str) -> list[can.Message]:
        """The messages of a header and lines, by python-can."""

    def channel(self, message: can.Message) -> str | None:
        """The channel as the file names it."""


def read_text_log(file: LogFile, format: LineFormat) -> Iterator[LoggedFrame]:
    """The frames of a file in a text format."""
    batch: list[LogLine] = []
    for line in iter_lines(file):
        is_header = format.is_header(line)
        if is_header or len(batch) == BATCH:
            yield from _parse_batch(file.skipped, format, batch)
            batch = []
        if is_header:
            format.read_header(line, file.skipped)
        else:
            batch.append(format.add_time(line))
    yield from _parse_batch(file.skipped, format, batch)


def _parse_batch(skipped: SkippedRecords, format: LineFormat, batch: list[LogLine]) -> Iterator[LoggedFrame]:
    if not batch:
        return
    with suppress_warnings("can.io"):
        together = _parse_together(format, batch)
        messages = [_parse_alone(skipped, format, line) for line in batch] if together is None else together
    for line, message in zip(batch, messages, strict=True):
        if message is not None:
            at_us = line.at_us if line.at_us is not None else micros_of_seconds(message.timestamp)
            yield from logged_frame(frame_of(message), at_us, format.channel(message), line.location, skipped)


def _parse_together(format: LineFormat, batch: list[LogLine]) -> list[can.Message | None] | None:
    """One message per line; None if messages cannot be assigned to lines."""
    try:
        messages = format.parse(format.header + "".join(f"{line.text}\n" for line in batch))
    except Exception:
        return None
    return [*messages] if len(messages) == len(batch) else None


def _parse_alone(skipped: SkippedRecords, format: LineFormat, line: LogLine) -> can.Message | None:
    try:
        messages = format.parse(f"{format.header}{line.text}\n")
    except Exception as problem:
        skipped.note(DAMAGED_LINE, f"{line.location} ({' '.join(str(problem).split())})")
        return None
    if not messages:
        skipped.note(NO_FRAME, line.location)
    return messages[0] if messages else None


class AscLogFormat:
    """Vector's ASC. Its date has no time zone and is taken as UTC; times count from it, or from the line before."""

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

    def is_header(self, line: LogLine) -> bool:
        """Dates, number base, comments and other lines that have no time of their own."""
        return self._HEADER.match(line.text) is not None

    def read_header(self, line: LogLine, skipped: SkippedRecords) -> None:
        """The number base, whether times are absolute or relative, and the date they count from."""
        if base := self._BASE.match(line.text):
            self.header = f"base {base['base'].lower()}\ninternal events logged\n"
            self._last_us = 0 if (base["times"] or "").lower() == "relative" else None
        elif starts := self._STARTS.fullmatch(line.text):
            self._set_start(starts["date"], line, skipped)

    def _set_start(self, date: str, line: LogLine, skipped: SkippedRecords) -> None:
        start = self._read_date(date)
        if start is None:
            skipped.note("date not understood", line.location)
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

    def add_time(self, line: LogLine) -> LogLine:
        """The line with its exact time; relative times are added up."""
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
        """Channels count from 1."""
        return vector_channel(message)


class TrcLogFormat:
    """PEAK's TRC, versions 1.0, 1.1, 1.3, 2.0 and 2.1. Its start time is taken as UTC."""

    VERSIONS = ("1.0", "1.1", "1.3", "2.0", "2.1")
    _DIRECTIVES = re.compile(r";\$(?:FILEVERSION=[\d.]+|STARTTIME=\d{1,6}(?:\.\d+)?|COLUMNS=[A-Za-z,]+)", re.ASCII)

    def __init__(self) -> None:
        self.header = ""

    def is_header(self, line: LogLine) -> bool:
        """All comments."""
        return line.text.startswith(";")

    def read_header(self, line: LogLine, skipped: SkippedRecords) -> None:
        """The comments with version, start time and columns, which python-can needs."""
        if line.text.startswith(";$FILEVERSION="):
            self._check_version(line.text.partition("=")[2].strip())
        if self._DIRECTIVES.fullmatch(line.text):
            self.header += f"{line.text}\n"
        elif line.text.startswith(";$"):
            skipped.note("header not understood", line.location)

    def _check_version(self, version: str) -> None:
        if version not in self.VERSIONS:
            raise RecordingError(f"TRC files of version {version} cannot be read; known: {', '.join(self.VERSIONS)}")

    def add_time(self, line: LogLine) -> LogLine:
        """The line as it is: python-can adds start time and offset."""
        return line

    def parse(self, text: str) -> list[can.Message]:
        """By `can.TRCReader`."""
        return list(can.TRCReader(io.StringIO(text)))

    def channel(self, message: can.Message) -> str | None:
        """The channel number of the file."""
        return str(message.channel)


class CsvLogFormat:
    """python-can's CSV: timestamp, arbitration_id, extended, remote, error, dlc, data in base 64."""

    header = "timestamp,arbitration_id,extended,remote,error,dlc,data\n"

    def is_header(self, line: LogLine) -> bool:
        """The column names; files that were joined have them several times."""
        return line.text.startswith("timestamp")

    def read_header(self, line: LogLine, skipped: SkippedRecords) -> None:
        """Nothing: the columns are always the same."""

    def add_time(self, line: LogLine) -> LogLine:
        """The line as it is: times are seconds since 1970."""
        return line

    def parse(self, text: str) -> list[can.Message]:
        """By `can.CSVReader`."""
        return list(can.CSVReader(io.StringIO(text)))

    def channel(self, message: can.Message) -> str | None:
        """None: the file does not name channels."""
        return None
