"""Vector's ASC, as CANalyzer, CANoe and others write it.

```
date Sat Sep 30 03:06:13.191 PM 2017
base hex  timestamps absolute
internal events logged
Begin Triggerblock Sat Sep 30 03:06:13.191 PM 2017
   0.500000 1  64              Rx   d 2 10 11  Length = 0 BitCount = 64 ID = 100
   0.600000 CANFD   1 Rx    100   name   1 0 9 12 00 01 02 03 04 05 06 07 08 09 0a 0b  130000 130 ...
   1.000000 1  Statistic: D 1 R 0 XD 0 XR 0 E 0 O 0 B 0.04%
```

The date has no time zone and is taken as UTC. Times count from it, or from the line before.
"""

import re
from datetime import UTC, datetime

from genus.can._logs.line_fields import (
    Fields,
    LineTimes,
    NoFrame,
    TimeFields,
    find_bytes,
    find_time,
    frame_length,
    micros_since_1970,
)
from genus.can._logs.log_file import DAMAGED_LINE, ERROR_FRAME, LENGTHS_DISAGREE, NO_FRAME, REMOTE_FRAME
from genus.can._logs.text_format import HeaderLine

_MONTHS = {
    name: number
    for number, names in enumerate(
        (
            "jan janv gen ene sty led",
            "feb févr fév fevr lut úno",
            "mar mär mrz mars maart bře",
            "apr avr abr kwi dub",
            "may mai maj mag mei kvě",
            "jun juin giu cze čvn",
            "jul juil lug lip čvc",
            "aug août aou ago sie srp",
            "sep sept set wrz zář",
            "oct okt ott paź říj",
            "nov lis",
            "dec dez déc dic gru pro",
        ),
        1,
    )
    for name in names.split()
}
_DATE = re.compile(
    r"(?:(?P<month>[^\W\d_]{3,})\.?\s+(?P<day>\d{1,2})|(?P<day2>\d{1,2})\.?\s+(?P<month2>[^\W\d_]{3,})\.?)\s+"
    r"(?:(?P<year2>\d{4})\s+)?(?P<hour>\d{1,2}):(?P<minute>\d{1,2}):(?P<second>\d{1,2})(?:[.,:](?P<fraction>\d{1,6}))?"
    r"(?:\s*(?P<half>[ap])\.?m\.?)?(?:\s+(?P<year>\d{4}))?",
    re.IGNORECASE,
)
_CHINESE_HALVES = {"上午": "a", "下午": "p"}
_STARTS = re.compile(r"\s*(?:date|begin\s+triggerblock)\b\s*(?P<date>.*)", re.IGNORECASE)
_BASE = re.compile(r"\s*base\s+(?P<base>hex|dec)(?:\s+timestamps\s+(?P<times>absolute|relative))?", re.IGNORECASE)
_HEADER = re.compile(
    r"\s*(?://|#|date\b|base\s|(?:no\s+)?internal\s+events\s+logged|(?:begin|end)\s+triggerblock"
    r"|(?:previous|measurement)\b.*|\d+[.,]\d+\s+start\s+of\s+measurement)",
    re.IGNORECASE,
)
_STAMP = re.compile(r"\s*(?P<time>\d+[.,]\d+)\s+\S", re.ASCII)
_CLASSIC = re.compile(
    r"\s*(?P<time>\d+[.,]\d+)\s+(?:CAN\s*)?(?P<channel>\d+)\s+(?:0x)?(?P<id>[0-9A-F]+)(?P<x>x?)"
    r"\s+(?P<dir>Rx|Tx|TxRq)\s+(?P<kind>[dr])(?:\s+(?P<dlc>[0-9A-F]{1,2})(?=\s|$))?",
    re.ASCII | re.IGNORECASE,
)
_FD = re.compile(
    r"\s*(?P<time>\d+[.,]\d+)\s+CANFD\s+(?P<channel>\d+)\s+(?P<dir>Rx|Tx|TxRq)\s+(?:0x)?(?P<id>[0-9A-F]+)(?P<x>x?)\s+"
    r"(?:(?P<name>\S*[^\d\s]\S*)\s+)?(?P<brs>[01])\s+(?P<esi>[01])\s+(?P<dlc>[0-9A-F]{1,2})\s+(?P<length>\d{1,2})(?=\s|$)",
    re.ASCII | re.IGNORECASE,
)
_ERROR = re.compile(r"\s*\d+[.,]\d+\s+(?:CANFD\s+)?(?:CAN\s*)?\d+\s+(?:(?:Rx|Tx|TxRq)\s+)?ErrorFrame", re.IGNORECASE)


class AscFormat:
    """State: the number base and the start of an ASC file."""

    name = "asc"
    delimiter = ""
    is_divisible = False

    def __init__(self) -> None:
        self.times = LineTimes("start")
        self._base = 16

    def read_header(self, text: str) -> HeaderLine | None:
        """The number base, whether times are absolute or relative, and the date they count from."""
        if not _HEADER.match(text):
            return None
        if base := _BASE.match(text):
            self._base = 16 if base["base"].lower() == "hex" else 10
            is_relative = (base["times"] or "").lower() == "relative"
            self.times.restart("deltas" if is_relative else "start", self.times.start_us)
            return HeaderLine(changes=True)
        starts = _STARTS.match(text)
        if starts is None or not starts["date"].strip():
            return HeaderLine()
        moment = read_asc_date(starts["date"])
        if moment is None:
            return HeaderLine(problem="date not understood")
        self.times.restart(None, micros_since_1970(moment))
        return HeaderLine(changes=True)

    def match(self, text: str) -> Fields | NoFrame:
        """The fields of a frame; a line with a time stamp that is something else has no frame."""
        found = _CLASSIC.match(text)
        if found is not None:
            return self._classic(text, found)
        found = _FD.match(text)
        if found is not None:
            return self._fd(text, found)
        stamp = _STAMP.match(text)
        if stamp is None:
            return NoFrame(DAMAGED_LINE)
        time = find_time(text, stamp.span("time")) or TimeFields()
        if _ERROR.match(text):
            return NoFrame(ERROR_FRAME, time)
        return NoFrame(DAMAGED_LINE if _LOOKS_LIKE_A_FRAME.match(text) else NO_FRAME, time)

    def _classic(self, text: str, found: re.Match[str]) -> Fields | NoFrame:
        time = find_time(text, found.span("time")) or TimeFields()
        if found["kind"].lower() == "r":
            return NoFrame(REMOTE_FRAME, time)
        code = _number(found["dlc"], self._base)
        length = None if code is None else frame_length(code, fd=False)
        return self._fields(text, found, time, length, found.end("dlc"), fd=False)

    def _fd(self, text: str, found: re.Match[str]) -> Fields | NoFrame:
        time = find_time(text, found.span("time")) or TimeFields()
        length, code = int(found["length"]), _number(found["dlc"], self._base)
        if length == 0 and code:
            return NoFrame(REMOTE_FRAME, time)
        return self._fields(text, found, time, length if length <= 64 else None, found.end("length"), fd=True)

    def _fields(
        self, text: str, found: re.Match[str], time: TimeFields, length: int | None, end: int, *, fd: bool
    ) -> Fields | NoFrame:
        if length is None or _number(found["id"], self._base) is None:
            return NoFrame(DAMAGED_LINE, time)
        data = find_bytes(text, end, length, self._base)
        if data is None:
            return NoFrame(LENGTHS_DISAGREE, time)
        free = (found.span("name"),) if fd and found["name"] else ()
        return Fields(
            found.span("id"),
            data,
            length,
            data[-1][1] if data else end,
            time,
            found.span("channel"),
            self._base,
            self._base,
            extended=True if found["x"] else None,
            fd=fd,
            free=free,
        )


_LOOKS_LIKE_A_FRAME = re.compile(r"\s*\d+[.,]\d+\s+(?:CANFD\s+)?(?:CAN\s*)?\d+\s+\S+\s+(?:Rx|Tx|TxRq)\b", re.IGNORECASE)


def _number(text: str | None, base: int) -> int | None:
    try:
        return None if text is None else int(text, base)
    except ValueError:
        return None


def read_asc_date(text: str) -> datetime | None:
    """A date like `Sat Sep 30 03:06:13.191 PM 2017`, with months in several languages; None if it is none.

    >>> read_asc_date("Sam Sep 30 15:06:13 2017")
    datetime.datetime(2017, 9, 30, 15, 6, 13, tzinfo=datetime.timezone.utc)
    """
    text = _fix_encoding(text).strip()
    for word, half in _CHINESE_HALVES.items():
        text = text.replace(word, f"{half}m")
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError:
        pass
    found = _DATE.search(text)
    if found is None:
        return None
    month, year = found["month"] or found["month2"], found["year"] or found["year2"]
    number = next((_MONTHS[month[:size].lower()] for size in (4, 3) if month[:size].lower() in _MONTHS), None)
    if number is None or year is None:
        return None
    hour = int(found["hour"])
    if found["half"]:
        hour = hour % 12 + 12 * (found["half"].lower() == "p")
    micros = int((found["fraction"] or "0").ljust(6, "0"))
    try:
        day = int(found["day"] or found["day2"])
        return datetime(int(year), number, day, hour, int(found["minute"]), int(found["second"]), micros, tzinfo=UTC)
    except ValueError:
        return None


def _fix_encoding(text: str) -> str:
    """Text that is UTF-8 but was read as Latin-1."""
    try:
        return text.encode("latin-1").decode()
    except UnicodeError:
        return text
