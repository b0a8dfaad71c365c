"""Logs as `candump -L` writes them: a time stamp, the channel, and identifier#data.

```
(1436509052.249713) can0 123#11223344          standard identifier (three digits)
(1436509052.249720) can0 1F334455##1112233     extended identifier (eight), FD frame with flags 1
(1436509052.249730) can0 20000080#0000         error frame
(1436509052.249740) can0 123#R                 remote frame
```
"""

import re
from collections.abc import Iterator

from genus.can.dbc.lines import DAMAGED_LINE, lines_of
from genus.can.dbc.seen import BAD_TIME, ERROR_FRAME, HARMLESS, LAST_US, REMOTE_FRAME, LogFile, Logged
from genus.can.wire.frame import Frame
from genus.can.wire.identifier import ID_MASK

_ERROR_FLAG = 0x2000_0000
_CANDUMP = re.compile(
    r"\((?P<seconds>\d{1,12})\.(?P<fraction>\d{1,9})\)\s+(?P<channel>\S+)\s+(?P<id>[0-9A-F]{3,8})"
    r"\#(?:(?P<remote>R[0-9A-F]?)|\#(?P<flags>[0-9A-F])(?P<fd>(?:[0-9A-F]{2}){0,64})|(?P<data>(?:[0-9A-F]{2}){0,8}))"
    r"(?:_[9A-F])?(?:\s+[RT])?",
    re.ASCII | re.IGNORECASE,
)


def read_candump(file: LogFile) -> Iterator[Logged]:
    """The frames of a log that `candump -L` wrote."""
    for line in lines_of(file):
        found = _CANDUMP.fullmatch(line.text)
        frame = _candump_frame(found) if found else DAMAGED_LINE
        if found is None or isinstance(frame, str):
            file.passed.note(str(frame), "" if frame in HARMLESS else line.place)
            continue
        at_us = int(found["seconds"]) * 1_000_000 + int(found["fraction"][:6].ljust(6, "0"))
        if at_us > LAST_US:
            file.passed.note(BAD_TIME, line.place)
        else:
            yield Logged(at_us, found["channel"], frame)


def _candump_frame(found: re.Match[str]) -> Frame | str:
    identifier, extended = int(found["id"], 16), len(found["id"]) > 3
    if extended and identifier & _ERROR_FLAG:
        return ERROR_FRAME
    if identifier > (ID_MASK if extended else 0x7FF):
        return "identifier out of range"
    if found["remote"]:
        return REMOTE_FRAME
    is_fd = found["flags"] is not None
    return Frame(identifier, bytes.fromhex(found["fd"] if is_fd else found["data"]), is_fd, extended)
