# ruff: noqa: E501 (patterns and samples are long)
"""The text formats of CAN logs, a row each: the pattern of a line with named fields, a sample, and its source.

A pattern is a regular expression. In it a blank stands for any blanks, and `{time}`, `{id}`, `{data}` and the like for
fields (`_FIELDS`); `is_extended`, `is_remote` and other groups that begin with `is_` say by their presence what a frame
is, groups such as `extended` by a word. `LineFormat` reads one line by the patterns of its row; how the columns of CSV
logs become a pattern is in `csv_columns`, what headers change in `headers`.
"""

import re
from collections.abc import Mapping, Sequence
from copy import copy
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple, Self

from genus.can._logs.lines import (
    NMEA_PARTS,
    Fields,
    FoundBytes,
    NoFrame,
    Packing,
    find_bytes,
    frame_length,
    has_more_bytes,
)
from genus.can._logs.log_file import DAMAGED_LINE, ERROR_FRAME, LENGTHS_DISAGREE, NO_FRAME, REMOTE_FRAME
from genus.can._logs.times import KindOfTimes, LineTimes, Span, TimeFields, TimePart, Unit, find_time

_CLOCK = r"(?:\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}[T_ -]+)?\d+:\d+(?::\d+)?(?:[.,:]\d+)?(?:Z|[+-]\d\d:?\d\d)?"
_FIELDS = {
    "{time}": rf"(?P<time>{_CLOCK}|\d+(?:[.,]\d+)?)",
    "{seconds}": r"(?P<time>\d+[.,]\d+)",
    "{id}": r"(?:0x)?(?P<id>[0-9A-F]{1,8})",
    "{asc id}": r"(?:0x)?(?P<id>[0-9A-F]{1,10})",
    "{long id}": r"(?:0x)?(?P<id>[0-9A-F]{3,8})",
    "{dir}": r"(?P<dir>Rx|TxRq|Tx)",
    "{R}": r"(?P<dir>[RT])",
    "{dlc}": r"(?P<dlc>\d{1,2})(?=\s|$)",
    "{length}": r"(?P<length>\d{1,2})(?=\s|$)",
    "{data}": r"(?P<data>.*)",
    "{hex}": r"(?P<data>(?:[0-9A-F]{2}){0,64})",
    "{bytes}": r"(?P<data>(?: [0-9A-F]{2})*)",
    "{comment}": r"(?: (?![0-9A-F]{2}\b)[A-Z/;][^#()]*)?",
}


class Row(NamedTuple):
    """A text format; see the module for `patterns`."""

    name: str
    patterns: tuple[str, ...]
    sample: str
    source: str
    unit: Unit | None = None
    """What plain numbers count that are times; None if each log shows it."""
    hint: Unit | None = None
    """The unit that is usual."""
    others: tuple[tuple[str, str], ...] = ()
    """Patterns of lines that are no data frames, with the reason."""
    standard_digits: int = 16
    """An identifier of more digits is extended, if the line does not say it otherwise."""
    by_value: bool = True
    """Whether an identifier of more than 11 bits is extended, too."""
    marks_errors: bool = False
    """Whether a bit of long identifiers marks error frames."""
    is_loose: bool = False
    """Whether much fits the pattern that means something else."""
    is_strict: bool = False
    """Whether a line may have no more bytes than its length says."""
    times: KindOfTimes | None = None
    """From when times count; None if their size shows it."""
    headers: str = ""
    """The pattern of lines that are headers, besides comments and titles."""
    delimiter: str = ""
    packing: Packing | None = None


_STAMP = r"(?P<time>\d+(?:[.,]\d+)?)"
_COUNTED = "|".join(f"(?<={count})[0-9A-F]{{{2 * count}}}" for count in range(9))
_TRC_OTHERS = (
    (rf"\d+\)? {_STAMP} (?:\d+ )?(?:ER|Error)\b", ERROR_FRAME),
    (rf"\d+\)? {_STAMP} (?:\d+ )?(?:ST|EC|EV|Warng|Event|Sts|Status|FFFFFFFF)\b", NO_FRAME),
)

ROWS: Mapping[str, Row] = MappingProxyType({row.name: row for row in (
    Row("log", (
        r"\(\s*(?P<time>\d{1,12}\.\d{1,9})\) (?P<channel>\S+) (?P<id>[0-9A-F]{3,8})#(?:(?P<is_remote>R)[0-9A-F]?|"
        r"(?:#(?P<is_fd>[0-9A-F])|(?=(?:[0-9A-F]{2}){0,8}(?:_|\s|$))){hex})(?:_[9A-F])?(?: {R})?{comment}\s*$",),
        "(1436509052.249713) can0 123#11223344", "https://github.com/linux-can/can-utils (candump -L)",
        "s", standard_digits=3, by_value=False, marks_errors=True, times="absolute"),
    Row("candump", (
        r"(?:\((?P<time>[^()]*)\) )?(?P<dir>[RT]X)(?P<channel>\d) (?P<id>[0-9A-F]{1,8}) (?:\[(?P<length>\d)\]|\[(?P<fd_length>\d\d)\]){data}",
        r"(?:\((?P<time>[^()]*)\) )?(?P<channel>(?=\S*[A-Z]|\d{1,2}\s)[^\s()\[\]#<>]+) (?:(?P<dir>[RT]X) (?:[B-] [E-] )?)?(?P<id>[0-9A-F]{1,8}) "
        r"(?:\[(?P<length>\d)\]|\[(?P<fd_length>\d\d)\]|\{(?P<dlc>\d{1,2})\})"
        r"(?: (?P<is_remote>remote)| (?:[0-9A-F]{2} )*(?P<is_error>ERRORFRAME)|{data})",),
        " (1436509052.249713)  can0  1F334455   [08]  11 22 33 44 55 66 77 88   '.\"3DUfw.'",
        "https://github.com/linux-can/can-utils (candump)", "s", standard_digits=3, by_value=False, marks_errors=True),
    Row("asc", (
        r"{seconds} (?:CAN\s*)?(?P<channel>\d+) {asc id}(?P<is_extended>x)? {dir} (?:(?P<is_remote>r)\b|d)"
        r"(?: (?P<dlc>[0-9A-F]{1,2})(?=\s|$){data})?",
        r"{seconds} (?P<is_fd>CANFD) (?P<channel>\d+) {dir} {asc id}(?P<is_extended>x)? (?:(?P<free>\S*[^\d\s]\S*) )?[01] [01] "
        r"(?P<dlc>[0-9A-F]{1,2}) {length}{data}"),
        "   0.500000 1  64              Rx   d 2 10 11  Length = 0 BitCount = 64 ID = 100",
        "https://github.com/Technica-Engineering/vector_asc", "s", others=(
            (r"{seconds} (?:CANFD )?(?:CAN\s*)?\d+ (?:(?:Rx|TxRq|Tx) )?ErrorFrame", ERROR_FRAME),
            (r"{seconds} (?:CANFD \d+|(?:CAN\s*)?\d+ \S+) (?:Rx|TxRq|Tx)\b", DAMAGED_LINE),
            (r"{seconds} \S", NO_FRAME)), times="start"),
    Row("trc", (
        r"(?P<n>\d+)(?:\)|(?=\s+\d+:)) (?P<time>\d+:\d+:\d+[:.,]\d+|\d+(?:[.,]\d+)?) (?:(?:(?P<channel>\d+) )?{dir} )?(?!FFFFFFFF)"
        r"(?P<id>[0-9A-F]{3,8})(?P<is_extended>x)?(?: -)? {dlc}(?: (?P<is_remote>RTR)|{data})",),
        "     1)      1059.9  Rx         0300  7  00 00 00 00 04 00 00",
        "https://www.peak-system.com/produktcd/Pdf/English/PEAK_CAN_TRC_File_Format.pdf", "ms", others=_TRC_OTHERS,
        standard_digits=4, times="start"),
    Row("busmaster", (
        r"(?P<time>\d+:\d+:\d+[:.]\d+) {dir} (?P<channel>\d+) (?P<is_hex>0x)?(?P<id>[0-9A-F]+) "
        r"(?:(?P<is_standard>s)|(?P<is_extended>x))(?P<is_remote>r)?(?P<is_fd>[-_]?fd\S*|f\S*)? {length}{data}",),
        "11:49:12:9420 Rx 1 0x023 s 1 40", "https://github.com/rbei-etas/busmaster (log files)",
        others=((r"(?P<time>\d+:\d+:\d+[:.]\d+) .*\b(?:ERR|error)", ERROR_FRAME),), times="start"),
    Row("kvaser", (
        r"(?P<channel>\d{1,3}) (?P<id>[0-9A-F]+) (?:(?P<flags>[XRFBENTW]+) )?(?P<length>\d{1,2})"
        r"(?P<data>(?: [0-9A-F]{1,3})*) (?P<time>\d+[.,]\d+) {R}\w*\s*$",
        r"{seconds} (?P<channel>\d{1,3}) (?P<id>[0-9A-F]+)(?P<is_extended>x)? {dir} (?P<length>\d{1,2})(?P<data>(?: [0-9A-F]{1,3})*?) "
        r"(?P<n>\d+)\s*$"),
        " 0    0CFBFFDB X       8  1B  31  20  EB  B3  FF  D9  FF     100.000139 R",
        "https://www.kvaser.com/canlib-webhelp/ (CanKing)", "s", others=(
            (r"\d+ .*ErrorFrame {seconds}", ERROR_FRAME), (r".*logging|{seconds} Trigger", NO_FRAME)), times="start", headers=r"Chn\b|Channel\b|Logging\b|Kvaser\b|Date\b"),
    Row("pp2can", (
        r"[<>] \d+ (?P<time>\d+:\d+:\d+\.\d+)(?::\d+(?:\.\d+)?)? (?:(?P<is_standard>St)|(?P<is_extended>Ex))\w* "
        r"{id} (?:0|(?P<is_remote>1)) {length}{data}",),
        "> 0 17:18:39.303:4446.00 St 0x197 0 4 64 E0 9E C0", "https://canlab.cz (PP2CAN); the first number counts lines", is_strict=True),
    Row("canboat", (
        r"(?:(?P<n>\d+)(?:[\s,;:)]+|;\w+;))?(?P<time>\d{4}-\d\d-\d\d[-T ]\d\d:\d\d:\d\d(?:[.,]\d+)?Z?),(?P<priority>\d),(?P<id>\d{1,6}),(?P<source>\d{1,3}),"
        r"(?P<destination>\d{1,3}),(?P<length>\d{1,3})(?P<data>(?:,[0-9A-F]{2})*),?\s*$",),
        "2011-04-25-10:16:41.791,5,130311,4,255,8,24,c0,2f,6f,31,c1,1b,7d",
        "https://github.com/canboat/canboat (analyzer, plain format)", delimiter=","),
    Row("ikonvert", (
        r"!PDGY,(?P<id>\d{1,6}),(?P<priority>\d),(?P<source>\d{1,3}),(?P<destination>\d{1,3}),(?P<time>\d+\.\d+),"
        r"(?P<data>[A-Z0-9+/]*={0,2})\s*$",),
        "!PDGY,127250,2,3,255,798.363,Uk7qAAAAAAE=", "https://github.com/digitalyacht/iKonvert", "s",
        others=((r"[!$]PDGY,", NO_FRAME),), delimiter=",", packing="base64"),
    Row("yacht devices", (
        r"(?P<time>\d\d:\d\d:\d\d\.\d+) {R} (?P<id>[0-9A-F]{8}){bytes}\s*$",),
        "17:33:21.107 R 19F51323 01 02 03 04 05 06 07 08",
        "https://www.yachtd.com/downloads/ydnu02.pdf (appendix E, RAW)", standard_digits=3),
    Row("actisense", (
        r"A(?P<hhmmss>\d{6,7}\.\d+) (?P<source>[0-9A-F]{2})(?P<destination>[0-9A-F]{2})(?P<priority>[0-7]) (?P<id>[0-9A-F]{5}) {hex}\s*$",
        ), "A000057.055 09FF7 0FF00 3F9FDCFFFFFFFFFF", "https://actisense.com (N2K ASCII)", standard_digits=3),
    Row("usb-can", (
        r"(?P<n>\d+) (?P<dir>Receive|Send|Rx|Tx)\w* (?P<time>0x[0-9A-F]{1,8}|\d+:\d+:\d+(?:[.:]\d+)*|\d+(?:\.\d+)?) {id} (?:Data|(?P<is_remote>Remote))(?: Frame)? "
        r"(?:(?P<is_standard>Stand\w*|Std)|(?P<is_extended>Ext\w*))(?: Frame)? (?P<length>0x[0-9A-F]{1,2}|\d{1,2})(?=\s|$){data}",
        r"(?P<n>\d+) (?P<dir>Receive|Send) (?P<time>0x[0-9A-F]{1,8}|\d+:\d+:\d+(?:[.:]\d+)*|\d+(?:\.\d+)?) (?:Data|(?P<is_remote>Remote)) Frame "
        r"(?:(?P<is_standard>Stand\w*)|(?P<is_extended>Ext\w*)) Frame {id} (?P<length>\d{1,2})(?=\s|$){data}"),
        "1 Receive 0x003A7F02 0x00000123 Data Standard 0x08 x| 01 02 03 04 05 06 07 08",
        "https://www.zhcxgd.com (USB-CAN Tool)", hint="100us", is_strict=True),
    Row("brackets", (
        r"(?:[(\[]?{time}[)\]]? )?(?:(?P<channel>[a-z]\w*) )?(?:{dir} )?<(?:0x)?(?P<id>[0-9A-F]{1,8})> \[(?P<length>\d{1,2})\]"
        r"{data}",),
        "<0x18eeff01> [8] 01 02 03 04 05 06 07 08", "the package can-isotp and other printed frames",
        standard_digits=4, is_strict=True),
    Row("labelled", (
        r"{time} (?:(?P<channel>\w+) )?(?:{dir} )?(?:(?:(?P<is_standard>SFF)|(?P<is_extended>EFF)) )?id={id} dlc=(?P<dlc>\d{1,2}) "
        r"(?:flags=\S* )?data={data}",
        r"{seconds} Timestamp:\s*[\d.]+ ID: {id}(?P<flags>(?: [SXREF])*) DLC: (?P<dlc>\d{1,2}){data}",
        r"(?:(?:T|TS|Time(?:stamp)?)\s*[:=]\s*{time},? )?(?:(?:Standard|Extended) )?(?:CAN\s*)?ID"
        r"\s*[:=]\s*{id}\b,?(?P<flags>(?: (?!DLC?\b|LEN|Data)[\w-]+)*?) (?:(?:DLC?|LEN(?:GTH)?)"
        r"\s*[:=]\s*(?P<dlc>\d{1,2}),?(?: Data\s*[:=])?|Data\s*[:=])(?:(?=.*\sChannel:\s*(?P<channel>\S+))|){data}",),
        "Timestamp: 1479121434.850202        ID: 0350    000    DLC: 8    05 28 84 66 6d 00 00 a2",
        "https://python-can.readthedocs.io (str(Message)); HCRL car-hacking dataset"),
    Row("crtd", (
        r"(?P<time>\d+(?:\.\d+)?) (?P<channel>\d*){R}(?:(?P<is_standard>11)|(?P<is_extended>29)) {id}{bytes}\s*$",),
        "1542473901.020305 1R11 402 FA 01 C3 A0 96 00 07 01", "https://docs.openvehicles.com (CRTD)", "s",
        others=((rf"{_STAMP} \d*[A-Z]{{1,3}}\d*\b", NO_FRAME),)),
    Row("hash", (
        r"(?:[(\[]?{time}[)\]]? |cansend )?(?:(?P<channel>\w[\w.:-]*) )?(?P<id>[0-9A-F]{3}|[0-9A-F]{8})#(?:(?P<is_remote>R)[0-9A-F]?|"
        r"(?:#(?P<is_fd>[0-9A-F]))?{hex})(?: (?:{R}|[01]))?{comment}\s*$",),
        "1479121434.5 can0 123#11223344", "cansend, published datasets", standard_digits=3, by_value=False, is_loose=True),
    Row("slcan", (
        rf"(?:\(?{{time}}\)?[\s,;]+)?(?-i:t)(?P<id>[0-9A-F]{{3}})(?P<dlc>[0-8])(?P<data>{_COUNTED})(?P<stamp>[0-9A-F]{{4}})?\s*$",
        rf"(?:\(?{{time}}\)?[\s,;]+)?(?-i:T)(?P<id>[0-9A-F]{{8}})(?P<dlc>[0-8])(?P<data>{_COUNTED})(?P<stamp>[0-9A-F]{{4}})?\s*$"),
        "t12381122334455667788", "http://www.can232.com (Lawicel)", others=(
            (r"(?:\(?{time}\)?[\s,;]+)?r[0-9A-F]{4,9}\s*$", REMOTE_FRAME),),
        standard_digits=3, by_value=False, is_loose=True),
    Row("table", (
        r"[(\[]?{time}s?[)\]]?:? (?:(?P<channel>can\w*|[0-9]) (?=(?:0x)?[0-9A-F]{2,8} (?:\D+ )?\[?\d{1,2}\]?\s))?"
        r"(?:0004 )?(?:{dir} )?(?:0x)?(?P<id>[0-9A-F]{2,8})(?P<is_extended>x)? "
        r"(?:(?P<word>Rx|Tx|Std|Ext|S|X|D|Data|-) )*\[?(?P<length>\d{1,2})\]?(?=\s|$){data}",),
        "3,001  123   8   11 22 33 44 55 66 77 88", "CANHacker and others", standard_digits=4, is_loose=True, is_strict=True),
    Row("bare", (
        r"(?:(?P<channel>[A-Z]+\d+) )?{long id}[:,]? \[?(?P<length>\d{1,2})\]?(?=\s|$){data}",),
        "123 8 11 22 33 44 55 66 77 88", "printed frames without a time", standard_digits=4, is_loose=True, is_strict=True),
    Row("plain", (
        r"(?:[(\[]?{time}s?[)\]]?:? (?=(?:\S+ )?(?:0x)?[0-9A-F]{3,8}[:,]?\s))?(?:(?P<channel>[a-z]+\d+) )?(?:{dir} )?{long id}[:,]? "
        r"(?P<data>(?:0x)?(?:[0-9A-F]{2}){1,8}|(?:0x)?[0-9A-F]{2}(?:[\s:.-](?:0x)?[0-9A-F]{2}){0,7})\s*$",),
        "0.1234 123 1122334455667788", "printed frames without a length", standard_digits=4, is_loose=True),
)})  # fmt: skip
"""The text formats but CSV, whose columns differ; where several read as many frames, the first is chosen."""

TRC_COLUMNS = {
    "N": r"(?P<n>\d+)\)?",
    "O": _STAMP,
    "T": r"(?:(?P<is_remote>RR)|(?P<is_fd>FD|FB|FE|BI)|DT)",
    "B": r"(?:(?P<channel>\d+)|-)",
    "I": r"(?P<id>[0-9A-F]{3,8})",
    "d": r"{dir}",
    "l": r"(?P<dlc>\d{1,2})",
    "L": r"(?P<length>\d{1,2})",
}
"""The patterns of the columns that a TRC file of version 2 names."""


@lru_cache(maxsize=256)
def compiled(pattern: str) -> re.Pattern[str]:
    for name, field in _FIELDS.items():
        pattern = pattern.replace(name, field)
    return re.compile(r"\s*" + pattern.replace(" ", r"\s+"), re.ASCII | re.IGNORECASE)


_TRUE = {"远程", "扩展", "1", "true", "t", "yes", "y", "x", "ext", "extended", "eff", "xtd", "tff"}
_TRUE |= {"rtr", "r", "29", "remote", "error"}
_FALSE = {"数据", "标准", "", "0", "false", "f", "no", "n", "s", "std", "standard", "sff", "-", "11"}
_FALSE |= {"fff", "ftf", "ftt", "fft", "d"}
_WORDS = re.compile(r"[\s-]|frame|frm\.?|identifier|id|帧")
_DIRECTIONS = {"接": 1, "发": 2, ">": 1, "<": 2, "r": 1, "i": 1, "0": 1, "f": 1, "t": 2, "s": 2, "o": 2, "1": 2, "w": 2}
"""By the first letter of a direction: rx, received, input; tx, sent, output; or whether it was sent (0, false)."""


def decode_cell(text: str) -> str:
    """Text that was read as Latin-1, as UTF-8 or else as Chinese (GB 18030), if it is one of them."""
    if text.isascii() or max(text) > "\xff":
        return text
    for encoding in ("utf-8", "gb18030"):
        try:
            return text.encode("latin-1").decode(encoding)
        except UnicodeError:
            pass
    return text


def flag(value: str | None) -> bool | None:
    if value is None:
        return None
    word = _WORDS.sub("", decode_cell(value).lower())
    return True if word in _TRUE or word.startswith("tr") else False if word in _FALSE else None


class HeaderLine(NamedTuple):
    changes: bool = False
    """Whether lines after it are read differently from those before it."""
    problem: str | None = None


_COMMENT = re.compile(r"\s*(?:#|//|;|--|==|\*|\$|interface = |Disabled standard)")


class LineFormat:
    """State: how the lines of one log are read, by a row, and by what its headers and first lines showed."""

    is_divisible = True
    """Whether a line means the same whatever lines are between it and the head of the log."""

    def __init__(self, row: Row, unit: Unit = "s", base: int = 16, data_base: int | None = None) -> None:
        """`base` is that of identifiers and data, unless `data_base` differs."""
        self.row, self.unit = row, unit
        self.times = LineTimes(row.times or "none")
        self.base, self.data_base = base, data_base or base
        self.has_begun = False
        self._marks_fd = any("is_fd" in pattern for pattern in row.patterns)
        self.patterns = [compiled(pattern) for pattern in row.patterns]
        self._others: Sequence[tuple[re.Pattern[str], str]] = [(compiled(text), reason) for text, reason in row.others]

    def again(self) -> Self:
        fresh = copy(self)
        fresh.times = LineTimes(self.times.kind, self.times.start_us, self.times.period_us)
        return fresh

    def read_header(self, text: str) -> HeaderLine | None:
        """Take what lines after it need from a header or comment, or a title before the first frame; else None."""
        is_title = not self.has_begun and not any(letter.isdigit() for letter in text)
        is_header = self.row.headers and compiled(self.row.headers).match(text)
        return HeaderLine() if is_title or is_header or _COMMENT.match(text) else None

    def match(self, text: str) -> Fields | NoFrame:
        """Return the fields of a line, as Latin-1 text; never raises."""
        found = next((found for each in self.patterns if (found := each.match(text))), None)
        if found is None:
            other = next(((each, reason) for pattern, reason in self._others if (each := pattern.match(text))), None)
            if other is None:
                return NoFrame(DAMAGED_LINE)
            has_time = "time" in other[0].groupdict() and other[0]["time"] is not None
            time = find_time(text, other[0].span("time"), self.unit) if has_time else None
            return NoFrame(other[1], time or TimeFields())
        groups = {name: value for name, value in found.groupdict().items() if value is not None}
        time = find_time(text, found.span("time"), self.unit) if groups.get("time") else TimeFields()
        if time is None:
            return NoFrame(DAMAGED_LINE)
        if "hhmmss" in groups:
            time = _digits_of_clock(found)
        elif "stamp" in groups and not time.parts:  # milliseconds within a minute
            time = TimeFields((TimePart(found.span("stamp"), 1000, base=16),), period_us=60_000_000)
        words = _words(groups)
        if "is_remote" in groups or "R" in words or flag(groups.get("remote")):
            return NoFrame(REMOTE_FRAME, time)
        if "is_error" in groups or "E" in words or flag(groups.get("error")) or self._marks_error(groups):
            return NoFrame(ERROR_FRAME, time)
        return self._fields(text, found, groups, time, words)

    def _marks_error(self, groups: dict[str, str]) -> bool:
        name = groups.get("id", "")
        return self.row.marks_errors and len(name) > 3 and bool(int(name, 16) & 0x2000_0000)

    def _fields(
        self, text: str, found: re.Match[str], groups: dict[str, str], time: TimeFields, words: set[str]
    ) -> Fields | NoFrame:
        row = self.row
        base = 16 if "is_hex" in groups else 10 if "source" in groups and "hhmmss" not in groups else self.base
        if base == 10 and not groups["id"].isdecimal():
            return NoFrame(DAMAGED_LINE, time)
        fd = "is_fd" in groups or "fd_length" in groups or "F" in words or bool(flag(groups.get("fd")))
        length = _length(groups, fd=fd)
        if isinstance(length, str):
            return NoFrame(length, time)
        if fd and length == 0 and groups.get("dlc", "0") != "0":
            return NoFrame(REMOTE_FRAME, time)
        data = self._data(text, found.span("data") if "data" in groups else (found.end(), found.end()), length)
        if isinstance(data, str):
            return NoFrame(data, time)
        if data.size > 8 and "source" in groups:
            return NoFrame(NMEA_PARTS, time)
        fd = fd or (data.size > 8 and not self._marks_fd)
        if data.size > (64 if fd else 8):
            return NoFrame(LENGTHS_DISAGREE, time)
        self.has_begun = True
        is_whole = length is None or row.is_strict or found.re.pattern.endswith("$")
        used = [found.end(name) for name in groups if name not in ("data", "rest")]
        return Fields(
            found.span("id"),
            data.spans,
            data.size,
            len(text) if is_whole else max(data.end, *used),
            time,
            found.span("channel") if groups.get("channel") else None,
            base,
            self.data_base,
            data.packing,
            _extended(groups, words),
            row.standard_digits,
            row.by_value,
            fd,
            tuple(found.span(name) for name in ("n",) if name in groups),
            tuple(found.span(name) for name in groups if name.startswith("free") and groups[name]),
            is_whole,
            _direction(groups),
            (found.span("priority"), found.span("source"), found.span("destination")) if "source" in groups else None,
        )

    def _data(self, text: str, span: Span, length: int | None) -> FoundBytes | str:
        row = self.row
        data = find_bytes(text, span, length, self.data_base, row.packing)
        if isinstance(data, str):
            return data
        is_whole = row.is_strict or row.patterns[0].endswith("$")
        if is_whole and has_more_bytes(text, data.end, span[1]):
            return LENGTHS_DISAGREE
        return data


def _digits_of_clock(found: re.Match[str]) -> TimeFields:
    """Return the time in hours, minutes, seconds and their fraction without colons; hours do not begin again."""
    start, dot, end = found.start("hhmmss"), found.string.index(".", found.start("hhmmss")), found.end("hhmmss")
    spans = ((start, dot - 4), (dot - 4, dot - 2), (dot - 2, dot), (dot + 1, end))
    parts = [TimePart(span, each * 1_000_000) for span, each in zip(spans, (3600, 60, 1), strict=False)]
    return TimeFields((*parts, TimePart(spans[-1], 1_000_000, 10 ** (end - dot - 1), True)))


def _words(groups: dict[str, str]) -> set[str]:
    """Letters that say what a frame is: `X`, `S`, `R`, `E`, `F`."""
    words = groups.get("flags", "").upper().split()
    return set(words) | (set(words[0]) if len(words) == 1 and words[0] not in ("RX", "TX") else set())


def _extended(groups: dict[str, str], words: set[str]) -> bool | None:
    if "is_extended" in groups or "X" in words:
        return True
    if "is_standard" in groups or "S" in words:
        return False
    said = flag(groups.get("extended"))
    if said is None:
        kind = groups.get("kind", groups.get("word", ""))
        said = None if kind.isdigit() or flag(kind) is None or kind in ("D", "-", "") else flag(kind)
    return said


def _direction(groups: dict[str, str]) -> int:
    said = next((word for word in groups.get("flags", "").split() if word.upper() in ("RX", "TX")), "")
    return _DIRECTIONS.get(decode_cell(groups.get("dir", said))[:1].lower(), 0)


def _length(groups: dict[str, str], *, fd: bool) -> int | str | None:
    size = groups.get("length") or groups.get("fd_length")
    if size is not None:
        count = int(size, 16) if size.lower().startswith("0x") else int(size)
        return count if count <= (223 if "source" in groups else 64) else LENGTHS_DISAGREE
    code = groups.get("dlc")
    if not code:
        return None
    value = int(code, 16) if len(code) == 1 or code.lower().startswith("0x") else int(code) if code.isdecimal() else -1
    if fd and 15 < value <= 64:
        return value
    length = frame_length(value, fd=fd)
    return LENGTHS_DISAGREE if length is None else length
