"""Logs of Busmaster.

```
***BUSMASTER Ver 3.2.2***
***PROTOCOL CAN***
***START DATE AND TIME 8:8:2014 11:49:7:965***
***HEX***
***SYSTEM MODE***
11:49:12:9420 Rx 1 0x023 s 1 40
```

In system mode times are those of the day, in absolute mode they count from the start, in relative mode from the line
before. The start (day:month:year) is taken as UTC.
"""

import re
from datetime import UTC, datetime

from genus.can._logs.line_fields import (
    DAY_US,
    Fields,
    LineTimes,
    NoFrame,
    find_bytes,
    find_time,
    frame_length,
    micros_since_1970,
)
from genus.can._logs.log_file import DAMAGED_LINE, ERROR_FRAME, LENGTHS_DISAGREE, REMOTE_FRAME
from genus.can._logs.text_format import HeaderLine

_LINE = re.compile(
    r"\s*(?P<time>\d+:\d+:\d+[:.]\d+)\s+(?P<dir>Rx|Tx)\s+(?P<channel>\d+)\s+(?P<prefix>0x)?(?P<id>[0-9A-F]+)\s+"
    r"(?P<type>[sx])(?P<remote>r?)(?P<fd>[-_]?fd\S*|f\S*)?\s+(?P<dlc>\d{1,2})(?=\s|$)",
    re.ASCII | re.IGNORECASE,
)
_ERROR = re.compile(r"\s*\d+:\d+:\d+[:.]\d+\s.*\b(?:ERR|error)", re.ASCII | re.IGNORECASE)
_START = re.compile(
    r"START DATE AND TIME\s+(\d+)[:./-](\d+)[:./-](\d+)\s+(\d+):(\d+):(\d+)(?:[:.](\d{1,3}))?", re.ASCII | re.IGNORECASE
)
_MODES = {"ABSOLUTE": "start", "RELATIVE": "deltas", "SYSTEM": "day"}


class BusmasterFormat:
    """State: the number base, mode and start of a log."""

    name = "busmaster"
    delimiter = ""
    is_divisible = False

    def __init__(self) -> None:
        self.times = LineTimes("day")
        self._base = 16
        self._start = 0

    def read_header(self, text: str) -> HeaderLine | None:
        """Lines in asterisks: the base, the mode, and the start of a session."""
        line = text.strip()
        if not line.lstrip("-").startswith("***"):
            return None
        words = line.strip("*- ").upper()
        if words in ("HEX", "DEC"):
            self._base = 16 if words == "HEX" else 10
        elif words.endswith(" MODE") and words.split()[0] in _MODES:
            self.times.kind = _MODES[words.split()[0]]  # type: ignore[assignment]
        elif found := _START.search(line):
            moment = _moment(found)
            if moment is None:
                return HeaderLine(problem="date not understood")
            self._start = micros_since_1970(moment)
        else:
            return HeaderLine()
        is_day = self.times.kind == "day"
        self.times.restart(None, self._start - self._start % DAY_US if is_day else self._start)
        return HeaderLine(changes=True)

    def match(self, text: str) -> Fields | NoFrame:
        """The fields of a frame."""
        found = _LINE.match(text)
        if found is None:
            return NoFrame(ERROR_FRAME if _ERROR.match(text) else DAMAGED_LINE)
        time = find_time(text, found.span("time"))
        base = 16 if found["prefix"] else self._base
        if time is None or (base == 10 and not found["id"].isdecimal()):
            return NoFrame(DAMAGED_LINE)
        if found["remote"]:
            return NoFrame(REMOTE_FRAME, time)
        fd, size = bool(found["fd"]), int(found["dlc"])
        length = size if fd and size <= 64 else frame_length(size, fd=False)
        data = None if length is None else find_bytes(text, found.end(), length, self._base)
        if data is None or length is None:
            return NoFrame(LENGTHS_DISAGREE, time)
        end, extended = data[-1][1] if data else found.end(), found["type"].lower() == "x"
        return Fields(
            found.span("id"), data, length, end, time, found.span("channel"), base, self._base, extended=extended, fd=fd
        )


def _moment(found: re.Match[str]) -> datetime | None:
    """Day, month and year, or the year first."""
    first, month, last, hour, minute, second = (int(found[part]) for part in range(1, 7))
    day, year = (last, first) if first > 31 else (first, last)
    try:
        return datetime(year, month, day, hour, minute, second, int((found[7] or "0").ljust(3, "0")) * 1000, UTC)
    except ValueError:
        return None
