"""What the headers of ASC, TRC and Busmaster logs change: number bases, columns, and from when times count.

Dates have no time zone and are taken as UTC.
"""

import re
from datetime import UTC, datetime

from genus.can._logs.formats import ROWS, TRC_COLUMNS, HeaderLine, LineFormat, Row, compiled
from genus.can._logs.log_file import LAST_US
from genus.can._logs.times import DAY_US, KindOfTimes, micros_since_1970

_DATE_PROBLEM, _HEADER_PROBLEM = "date not understood", "header not understood"

# -- Vector's ASC ------------------------------------------------------------------------------------------------------

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


class AscFormat(LineFormat):
    """State: the number base and the start of an ASC file. Times count from its date, or from the line before."""

    is_divisible = False

    def read_header(self, text: str) -> HeaderLine | None:
        if not _HEADER.match(text):
            return None
        if base := _BASE.match(text):
            self.base = self.data_base = 16 if base["base"].lower() == "hex" else 10
            is_relative = (base["times"] or "").lower() == "relative"
            self.times.restart("deltas" if is_relative else "start", self.times.start_us)
            return HeaderLine(changes=True)
        starts = _STARTS.match(text)
        if starts is None or not starts["date"].strip():
            return HeaderLine()
        moment = read_asc_date(starts["date"])
        if moment is None:
            return HeaderLine(problem=_DATE_PROBLEM)
        self.times.restart(None, micros_since_1970(moment))
        return HeaderLine(changes=True)


def read_asc_date(text: str) -> datetime | None:
    """Return a date like `Sat Sep 30 03:06:13.191 PM 2017`, with months in several languages; None if it is none.

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
    day, minute, second = int(found["day"] or found["day2"]), int(found["minute"]), int(found["second"])
    return _moment(int(year), number, day, hour, minute, second, micros)


def _moment(year: int, month: int, day: int, hour: int, minute: int, second: int, micros: int) -> datetime | None:
    try:
        return datetime(year, month, day, hour, minute, second, micros, UTC)
    except ValueError:
        return None


def _fix_encoding(text: str) -> str:
    try:
        return text.encode("latin-1").decode()
    except UnicodeError:
        return text


# -- PEAK's TRC --------------------------------------------------------------------------------------------------------

_SERIAL_1970 = 25_569
"""1970-01-01 as days since 1899-12-30."""
_DIRECTIVE = re.compile(r"\s*;\s*\$(?P<name>\w+)\s*=\s*(?P<value>.*?)\s*;?\s*$", re.ASCII)
_START = re.compile(
    r"(?:\s*;\s*Start\s*time:?|.*START DATE AND TIME)\s*(\d+)[:./-](\d+)[:./-](\d+)\s+"
    r"(\d+):(\d+):(\d+)(?:[.:](\d{1,3}))?",
    re.IGNORECASE,
)
_VERSION_2 = {"2.0": "N,O,T,I,d,l,D", "2.1": "N,O,T,B,I,d,R,L,D"}


def _read_start(text: str) -> datetime | None:
    """Day, month and year, or the year first; None if there is no such date."""
    found = _START.match(text)
    if found is None:
        return None
    first, month, last, hour, minute, second = (int(found[part]) for part in range(1, 7))
    day, year = (last, first) if first > 31 else (first, last)
    return _moment(year, month, day, hour, minute, second, int((found[7] or "0").ljust(3, "0")) * 1000)


class TrcFormat(LineFormat):
    """State: the columns and start of a TRC file, versions 1.0 to 2.1; without a start, times count from 1970."""

    _has_start = False

    def read_header(self, text: str) -> HeaderLine | None:
        if not text.lstrip().startswith(";"):
            return None
        directive = _DIRECTIVE.match(text)
        if directive is None:
            return self._read_start(text)
        name, value = directive["name"].upper(), directive["value"]
        if name == "FILEVERSION" and value < "2":
            self.patterns = [compiled(ROWS["trc"].patterns[0])]
            return HeaderLine(changes=True)
        if name in ("FILEVERSION", "COLUMNS"):
            columns = _VERSION_2.get(value, _VERSION_2["2.1"]) if name == "FILEVERSION" else value
            pattern = _trc_pattern(columns)
            self.patterns = [compiled(pattern)] if pattern else self.patterns
            return HeaderLine(changes=True) if pattern else HeaderLine(problem=_HEADER_PROBLEM)
        return self._set_start(value) if name == "STARTTIME" else HeaderLine()

    def _set_start(self, value: str) -> HeaderLine:
        try:
            start_us = round((float(value.replace(",", ".")) - _SERIAL_1970) * DAY_US)
        except (ValueError, OverflowError):
            return HeaderLine(problem=_HEADER_PROBLEM)
        if not 0 <= start_us <= LAST_US:
            return HeaderLine(problem=_HEADER_PROBLEM)
        self._has_start = True
        self.times.restart(None, start_us)
        return HeaderLine(changes=True)

    def _read_start(self, text: str) -> HeaderLine:
        """Return the start time as text, where the exact one is missing (version 1.0)."""
        if self._has_start or not _START.match(text):
            return HeaderLine()
        moment = _read_start(text)
        if moment is None:
            return HeaderLine(problem=_HEADER_PROBLEM)
        self.times.restart(None, micros_since_1970(moment))
        return HeaderLine(changes=True)


def _trc_pattern(columns: str) -> str | None:
    """Return the pattern of lines with these columns; None if there is no time, identifier or length among them."""
    names = [name.strip() for name in columns.split(",") if name.strip() and name.strip() != "D"]
    if not {"O", "I"} <= set(names) or not {"l", "L"} & set(names) or len(names) != len(set(names)):
        return None
    return " ".join(TRC_COLUMNS.get(name, r"\S+") for name in names) + r"(?=\s|$){data}"


# -- Busmaster ---------------------------------------------------------------------------------------------------------

_MODES: dict[str, KindOfTimes] = {"ABSOLUTE": "start", "RELATIVE": "deltas", "SYSTEM": "start"}


class BusmasterFormat(LineFormat):
    """State: the number base, mode and start of a Busmaster log.

    In system mode times are those of the day, in absolute mode they count from the start, in relative mode from the
    line before.
    """

    is_divisible = False
    _start, _is_system = 0, True

    def read_header(self, text: str) -> HeaderLine | None:
        line = text.strip()
        if not line.lstrip("-").startswith("***"):
            return None
        words = line.strip("*- ").upper()
        if words in ("HEX", "DEC"):
            self.base = self.data_base = 16 if words == "HEX" else 10
        elif words.endswith(" MODE") and words.split()[0] in _MODES:
            self.times.kind, self._is_system = _MODES[words.split()[0]], words.startswith("SYSTEM")
        elif _START.match(line):
            moment = _read_start(line)
            if moment is None:
                return HeaderLine(problem=_DATE_PROBLEM)
            self._start = micros_since_1970(moment)
        else:
            return HeaderLine()
        self.times.period_us = DAY_US if self._is_system else 0
        self.times.restart(None, self._start - self._start % DAY_US if self._is_system else self._start)
        return HeaderLine(changes=True)


KINDS: dict[str, type[LineFormat]] = {"asc": AscFormat, "trc": TrcFormat, "busmaster": BusmasterFormat}


def format_of(row: Row) -> LineFormat:
    return KINDS.get(row.name, LineFormat)(row)
