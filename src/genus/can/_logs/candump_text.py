"""What candump shows on a terminal: the channel, the identifier, the length in brackets, and the data.

```
  can0  123   [4]  11 22 33 44
 (1436509052.249713)  can0  1F334455   [08]  11 22 33 44 55 66 77 88   '."3DUfw.'
 (2020-12-19 12:04:45.485261)  can0  RX - -  123   [4]  11 22 33 44
  can0  123   [0]  remote request
  can0  20000004   [8]  00 00 00 00 00 00 00 00   ERRORFRAME
```

A length of two digits marks a CAN FD frame. Dates are taken as UTC. Small time stamps count from the start of the log
(`-t z`), or from the line before (`-t d`) if they go back now and then.
"""

import re
from collections.abc import Sequence
from itertools import pairwise

from genus.can._logs.line_fields import (
    SECOND_US,
    Fields,
    KindOfTimes,
    LineTimes,
    NoFrame,
    TimeFields,
    find_bytes,
    find_time,
    read_time,
)
from genus.can._logs.log_file import DAMAGED_LINE, ERROR_FRAME, LENGTHS_DISAGREE, REMOTE_FRAME
from genus.can._logs.text_format import HeaderLine

FIRST_DATE_US = 631_152_000 * SECOND_US
"""1990: no log is older, so a smaller time stamp does not count from 1970."""
STAMPS = 200
"""So many time stamps show what they count from."""
_ERROR_FLAG = 0x2000_0000
_COMMENTS = ("#", "//", ";", "$", "interface = ", "Disabled standard")
_LINE = re.compile(
    r"\s*(?:\((?P<time>[^()]*)\)\s+)?(?P<channel>[^\s()\[\]#]+)\s+(?:(?P<dir>[RT]X)\s+(?:(?P<flags>[B-]\s+[E-])\s+)?)?"
    r"(?P<id>[0-9A-F]{3,8})\s+(?:\[(?P<length>\d{1,2})\]|\{(?P<code>\d{1,2})\})(?P<rest>\s+(?P<word>remote|ERRORFRAME))?",
    re.ASCII | re.IGNORECASE,
)
_ERROR_LINE = re.compile(r"\s+(?:[0-9A-F]{2}\s+)*ERRORFRAME", re.ASCII | re.IGNORECASE)


class CandumpTextFormat:
    """State: how the time stamps of a log of candump's display are meant."""

    name = "candump"
    delimiter = ""

    def __init__(self, head: Sequence[str] = ()) -> None:
        """`head` are the first lines of the log; they show what its time stamps count from."""
        stamps = [stamp for text in head[:STAMPS] if (stamp := self._stamp(text)) is not None]
        self.times = LineTimes(_kind_of(stamps))
        self.is_divisible = self.times.kind != "deltas"

    def _stamp(self, text: str) -> int | None:
        fields = self.match(text)
        return read_time(text, fields.time) if isinstance(fields, Fields) else None

    def read_header(self, text: str) -> HeaderLine | None:
        """Comments, and what a shell shows before the first line."""
        return HeaderLine() if text.lstrip().startswith(_COMMENTS) else None

    def match(self, text: str) -> Fields | NoFrame:
        """The fields of a line."""
        found = _LINE.match(text)
        if found is None:
            return NoFrame(DAMAGED_LINE)
        time = TimeFields() if found["time"] is None else find_time(text, found.span("time"))
        if time is None:
            return NoFrame(DAMAGED_LINE)
        word = (found["word"] or "").lower()
        if word == "remote":
            return NoFrame(REMOTE_FRAME, time)
        identifier = int(found["id"], 16)
        if word or (len(found["id"]) > 3 and identifier & _ERROR_FLAG) or _ERROR_LINE.match(text, found.end()):
            return NoFrame(ERROR_FRAME, time)
        return self._fields(text, found, time)

    def _fields(self, text: str, found: re.Match[str], time: TimeFields) -> Fields | NoFrame:
        size = found["length"] or found["code"]
        data = find_bytes(text, found.end(), int(size))
        if data is None:
            return NoFrame(LENGTHS_DISAGREE, time)
        end = data[-1][1] if data else found.end()
        fd = len(size) == 2 or int(size) > 8
        return Fields(
            found.span("id"),
            data,
            int(size),
            end,
            time,
            found.span("channel"),
            standard_digits=3,
            by_value=False,
            id_digits=range(3, 9),
            fd=fd,
        )


def _kind_of(stamps: Sequence[int]) -> KindOfTimes:
    """What time stamps count from."""
    if not stamps:
        return "none"
    if min(stamps) >= FIRST_DATE_US:
        return "absolute"
    pairs = list(pairwise(stamps))
    back = sum(after < before for before, after in pairs)
    later = stamps[1:]
    is_constant = len(later) > 2 and len(set(later)) == 1 and later[0] > 0
    return "deltas" if is_constant or 5 * back >= max(len(pairs), 1) else "start"
