"""The text formats that python-can understands: ASC, TRC and CSV; what each keeps in its header, and its times."""

import io
import re
from datetime import UTC, datetime
from typing import ClassVar

import can
from genus.can.dbc.lines import Line
from genus.can.dbc.seen import PassedOver, from_one
from genus.errors import RecordingError
from genus.model.types import micros_of_time


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
