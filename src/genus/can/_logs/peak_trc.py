"""PEAK's TRC, versions 1.0 to 2.1, and the traces of other tools that look like 1.0.

```
;$FILEVERSION=1.1
;$STARTTIME=37704.5364870833
     1)      1059.9  Rx         0300  7  00 00 00 00 04 00 00
```

From version 2.0 on `;$COLUMNS=N,O,T,B,I,d,R,L,D` names the columns. The start time (days since 1899-12-30) is taken as
UTC; without one, times count from 1970.
"""

import re
from datetime import UTC, datetime

from genus.can._logs.line_fields import (
    DAY_US,
    Fields,
    LineTimes,
    NoFrame,
    TimeFields,
    find_bytes,
    find_time,
    frame_length,
    micros_since_1970,
)
from genus.can._logs.log_file import DAMAGED_LINE, ERROR_FRAME, LAST_US, LENGTHS_DISAGREE, NO_FRAME, REMOTE_FRAME
from genus.can._logs.text_format import HeaderLine

_SERIAL_1970 = 25_569
"""1970-01-01 as days since 1899-12-30."""
_DIRECTIVE = re.compile(r"\s*;\s*\$(?P<name>\w+)\s*=\s*(?P<value>.*?)\s*;?\s*$", re.ASCII)
_START = re.compile(
    r"\s*;\s*Start\s*time:?\s*(\d{1,2})\.(\d{1,2})\.(\d{4})\s+(\d{1,2}):(\d{1,2}):(\d{1,2})(?:\.(\d{1,3}))?",
    re.IGNORECASE,
)
_VERSION_1 = re.compile(
    r"\s*(?P<n>\d+)\)?\s+(?P<time>\d+(?:[.,]\d+)?|\d+:\d+:\d+[:.,]\d+)\s+(?:(?:(?P<bus>\d+)\s+)?"
    r"(?P<type>Rx|Tx|Warng|Error|Event|Sts|Status)\s+)?(?P<id>[0-9A-F]{3,8})(?P<x>x?)(?:\s+(?P<reserved>-))?"
    r"\s+(?P<dlc>\d{1,2})(?=\s|$)(?P<rtr>\s+RTR)?",
    re.ASCII | re.IGNORECASE,
)
_COLUMNS = {
    "N": r"(?P<n>\d+)\)?",
    "O": r"(?P<time>\d+(?:[.,]\d+)?)",
    "T": r"(?P<type>[A-Z]{2})",
    "B": r"(?P<bus>\d+|-)",
    "I": r"(?P<id>[0-9A-F]{3,8})",
    "d": r"(?P<dir>Rx|Tx)",
    "R": r"(?P<reserved>\S+)",
    "A": r"(?P<address>\S+)",
    "S": r"(?P<sender>\S+)",
    "l": r"(?P<dlc>\d{1,2})",
    "L": r"(?P<length>\d{1,2})",
}
_VERSION_2 = {"2.0": "N,O,T,I,d,l,D", "2.1": "N,O,T,B,I,d,R,L,D"}
_OTHER_RECORD = re.compile(
    r"\s*\d+\)?\s+(?P<time>\d+(?:[.,]\d+)?)\s+(?:\d+\s+)?(?P<type>ST|ER|EC|EV|Error|Warng|Event)\b", re.IGNORECASE
)
_FD_TYPES = ("FD", "FB", "FE", "BI")


class TrcFormat:
    """State: the version, columns and start of a TRC file."""

    name = "trc"
    delimiter = ""
    is_divisible = True

    def __init__(self) -> None:
        self.times = LineTimes("start")
        self._version = "1"
        self._pattern: re.Pattern[str] | None = None
        self._has_start = False

    def read_header(self, text: str) -> HeaderLine | None:
        """Comments; those with version, start time and columns say how lines are read."""
        if not text.lstrip().startswith(";"):
            return None
        directive = _DIRECTIVE.match(text)
        if directive is None:
            return self._read_start(text)
        name, value = directive["name"].upper(), directive["value"]
        if name == "FILEVERSION":
            self._version = value
            self._pattern = _pattern_of(_VERSION_2.get(value, _VERSION_2["2.1"])) if value >= "2" else None
            return HeaderLine(changes=True)
        if name == "COLUMNS":
            self._pattern = _pattern_of(value)
            return HeaderLine(changes=True) if self._pattern else HeaderLine(problem="header not understood")
        return self._set_start(value) if name == "STARTTIME" else HeaderLine()

    def _set_start(self, value: str) -> HeaderLine:
        try:
            start_us = round((float(value.replace(",", ".")) - _SERIAL_1970) * DAY_US)
        except ValueError:
            return HeaderLine(problem="header not understood")
        if not 0 <= start_us <= LAST_US:
            return HeaderLine(problem="header not understood")
        self._has_start = True
        self.times.restart(None, start_us)
        return HeaderLine(changes=True)

    def _read_start(self, text: str) -> HeaderLine:
        """The start time as text, where the exact one is missing (version 1.0)."""
        found = _START.match(text)
        if found is None or self._has_start:
            return HeaderLine()
        day, month, year, hour, minute, second = (int(found[part]) for part in range(1, 7))
        try:
            moment = datetime(year, month, day, hour, minute, second, int((found[7] or "0").ljust(3, "0")) * 1000, UTC)
        except ValueError:
            return HeaderLine(problem="header not understood")
        self.times.restart(None, micros_since_1970(moment))
        return HeaderLine(changes=True)

    def match(self, text: str) -> Fields | NoFrame:
        """The fields of a frame, by the columns of version 2, or as versions 1.0 to 1.3 order them."""
        other = _OTHER_RECORD.match(text)
        if other is not None:
            is_error = other["type"].upper() in ("ER", "ERROR")
            return NoFrame(
                ERROR_FRAME if is_error else NO_FRAME, find_time(text, other.span("time"), "ms") or TimeFields()
            )
        if self._pattern is not None:
            found = self._pattern.match(text)
            return NoFrame(DAMAGED_LINE) if found is None else self._version_2(text, found)
        found = _VERSION_1.match(text)
        return NoFrame(DAMAGED_LINE) if found is None else self._version_1(text, found)

    def _version_1(self, text: str, found: re.Match[str]) -> Fields | NoFrame:
        time = find_time(text, found.span("time"), "ms")
        code = int(found["dlc"])
        if found["type"] is None and found["id"].upper() == "FFFFFFFF":
            return NoFrame(NO_FRAME, time or TimeFields())
        if found["rtr"]:
            return NoFrame(REMOTE_FRAME, time or TimeFields())
        return self._fields(text, found, time, frame_length(code, fd=False), found.end("dlc"), fd=False)

    def _version_2(self, text: str, found: re.Match[str]) -> Fields | NoFrame:
        time, groups = find_time(text, found.span("time"), "ms"), found.groupdict()
        kind = (groups.get("type") or "DT").upper()
        if kind == "RR":
            return NoFrame(REMOTE_FRAME, time or TimeFields())
        fd = kind in _FD_TYPES
        size = "length" if groups.get("length") is not None else "dlc"
        count = int(found[size])
        length = frame_length(count, fd=fd) if size == "dlc" else count if count <= (64 if fd else 8) else None
        return self._fields(text, found, time, length, found.end(), fd=fd)

    def _fields(
        self, text: str, found: re.Match[str], time: TimeFields | None, length: int | None, end: int, *, fd: bool
    ) -> Fields | NoFrame:
        if time is None or length is None:
            return NoFrame(DAMAGED_LINE)
        data = find_bytes(text, end, length)
        if data is None:
            return NoFrame(LENGTHS_DISAGREE, time)
        groups = found.groupdict()
        has_bus = groups.get("bus") not in (None, "-")
        return Fields(
            found.span("id"),
            data,
            length,
            data[-1][1] if data else end,
            time,
            found.span("bus") if has_bus else None,
            extended=True if groups.get("x") else None,
            standard_digits=4,
            id_digits=range(3, 9),
            fd=fd,
            digits=(found.span("n"),) if groups.get("n") else (),
        )


def _pattern_of(columns: str) -> re.Pattern[str] | None:
    """The pattern of lines with these columns; None if there is no time, identifier or length among them."""
    names = [name.strip() for name in columns.split(",") if name.strip() and name.strip() != "D"]
    if not {"O", "I"} <= set(names) or not {"l", "L"} & set(names) or len(names) != len(set(names)):
        return None
    parts = [_COLUMNS.get(name, r"\S+") for name in names]
    return re.compile(r"\s*" + r"\s+".join(parts) + r"(?=\s|$)", re.ASCII | re.IGNORECASE)
