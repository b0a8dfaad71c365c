"""Text logs of Kvaser (CanKing, Memorator).

```
Chn Identifier Flg   DLC  D0...1...2...3...4...5...6..D7       Time     Dir
 0    0000014B         1  00                                1675.570498 T
 0    0CFBFFDB X       8  1B  31  20  EB  B3  FF  D9  FF     100.000139 R
 0    00000000            ErrorFrame                          29.095270 R
```

The log does not say whether numbers are hexadecimal or decimal: they are decimal if no identifier or byte of its head
needs hexadecimal digits or has leading zeros, and a byte has three digits. Times count from the start of the log.
"""

import re
from collections.abc import Sequence

from genus.can._logs.line_fields import Fields, LineTimes, NoFrame, TimeFields, find_bytes, find_time
from genus.can._logs.log_file import DAMAGED_LINE, ERROR_FRAME, LENGTHS_DISAGREE, NO_FRAME, REMOTE_FRAME
from genus.can._logs.text_format import HeaderLine

_LINE = re.compile(
    r"\s*(?P<channel>\d{1,3})\s+(?P<id>[0-9A-F]+)\s+(?:(?P<flags>[XRFBENTW]+)\s+)?(?P<dlc>\d{1,2})"
    r"(?P<data>(?:\s+[0-9A-F]{1,3})*)\s+(?P<time>\d+[.,]\d+)\s+(?P<dir>[RT])\w*\s*",
    re.ASCII | re.IGNORECASE,
)
_ERROR = re.compile(r"\s*\d+\s+.*ErrorFrame\s+(?P<time>\d+[.,]\d+)", re.ASCII | re.IGNORECASE)
_HEADER = re.compile(r"\s*(?:Chn\b|Channel\b|Logging\b|Kvaser\b|Date\b|=|-|#|;|//)", re.IGNORECASE)


class KvaserFormat:
    """State: the number base of a log."""

    name = "kvaser"
    delimiter = ""
    is_divisible = True

    def __init__(self, head: Sequence[str] = ()) -> None:
        """`head` are the first lines of the log; they show whether numbers are hexadecimal or decimal."""
        self.times = LineTimes("start")
        found = [each for text in head if (each := _LINE.fullmatch(text))]
        numbers = [*(each["id"] for each in found), *(byte for each in found for byte in each["data"].split())]
        is_hex = any(not text.isdecimal() or (len(text) > 1 and text.startswith("0")) for text in numbers)
        self._base = 10 if any(len(byte) == 3 for each in found for byte in each["data"].split()) and not is_hex else 16

    def read_header(self, text: str) -> HeaderLine | None:
        """The names of the columns, and what the logger says about itself."""
        return HeaderLine() if _HEADER.match(text) else None

    def match(self, text: str) -> Fields | NoFrame:
        """The fields of a frame."""
        found = _LINE.fullmatch(text)
        if found is None:
            return self._no_frame(text)
        time, flags, length = find_time(text, found.span("time")), (found["flags"] or "").upper(), int(found["dlc"])
        if time is None or (self._base == 10 and not found["id"].isdecimal()):
            return NoFrame(DAMAGED_LINE)
        if "R" in flags:
            return NoFrame(REMOTE_FRAME, time)
        if (
            len(found["data"].split()) != length
            or (data := find_bytes(text, found.start("data"), length, self._base)) is None
        ):
            return NoFrame(LENGTHS_DISAGREE, time)
        return Fields(
            found.span("id"),
            data,
            length,
            found.end("dir"),
            time,
            found.span("channel"),
            self._base,
            self._base,
            extended=True if "X" in flags else None,
            fd="F" in flags or length > 8,
        )

    def _no_frame(self, text: str) -> NoFrame:
        if found := _ERROR.match(text):
            return NoFrame(ERROR_FRAME, find_time(text, found.span("time")) or TimeFields())
        return NoFrame(NO_FRAME if "logging" in text.lower() else DAMAGED_LINE)
