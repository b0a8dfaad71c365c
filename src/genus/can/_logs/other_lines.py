"""Lines of text that smaller tools, loggers and published datasets write: each a pattern of its own.

```
Timestamp: 1479121434.850202        ID: 0350    000    DLC: 8    05 28 84 66 6d 00 00 a2
1542473901.020305 1R11 402 FA 01 C3 A0 96 00 07 01
can0  123#11223344
1,234   123   8   11 22 33 44 55 66 77 88
t12381122334455667788
0.1234 123 1122334455667788
```
"""

import re
from collections.abc import Sequence
from typing import Literal

from genus.can._logs.line_fields import Fields, LineTimes, NoFrame, TimeFields, Unit, find_packed_bytes, find_time
from genus.can._logs.log_file import DAMAGED_LINE, ERROR_FRAME, LENGTHS_DISAGREE, NO_FRAME, REMOTE_FRAME
from genus.can._logs.text_format import HeaderLine

_COMMENT = re.compile(r"\s*(?:#|//|;|--|==|\*)")
_NUMBER = r"\d+[.,]\d+|(?:\d{4}-\d\d?-\d\d?[T_ ]+)?\d+:\d+:\d+(?:[.,:]\d+)?Z?|\d+"


class PatternFormat:
    """State: a log of lines that have one pattern. Times below 1990 count from the start of the log."""

    delimiter = ""
    is_divisible = True
    pattern: re.Pattern[str]
    standard_digits = 16
    by_value = True
    id_digits: Sequence[int] = range(1, 9)
    """How many digits an identifier can have; empty if the line says it in another way."""

    def __init__(self, name: str, first_stamp: int | None, unit: Unit = "s") -> None:
        """`unit` is what plain numbers count that are times."""
        self.name, self._unit = name, unit
        self.times = LineTimes(_kind(first_stamp))
        self._has_begun = False

    def read_header(self, text: str) -> HeaderLine | None:
        """Comments, and titles before the first frame."""
        is_title = not self._has_begun and not any(letter.isdigit() for letter in text)
        return HeaderLine() if is_title or _COMMENT.match(text) else None

    def match(self, text: str) -> Fields | NoFrame:
        """The fields of a line, by the groups `time`, `channel`, `id`, `dlc` and `data` of the pattern."""
        found = self.pattern.match(text)
        if found is None:
            return NoFrame(DAMAGED_LINE)
        groups = found.groupdict()
        time = find_time(text, found.span("time"), self._unit) if groups.get("time") else TimeFields()
        if time is None:
            return NoFrame(DAMAGED_LINE)
        reason = self.no_frame(groups)
        return NoFrame(reason, time) if reason else self._fields(text, found, groups, time)

    def no_frame(self, groups: dict[str, str | None]) -> str | None:
        """Why a line of the pattern is no data frame."""
        return REMOTE_FRAME if groups.get("remote") else ERROR_FRAME if groups.get("error") else None

    def extended(self, groups: dict[str, str | None]) -> bool | None:
        """Whether the line says that the identifier is extended."""
        return None

    def is_fd(self, groups: dict[str, str | None], length: int) -> bool:
        """Whether the line is a CAN FD frame."""
        return length > 8

    def data(
        self, text: str, found: re.Match[str], groups: dict[str, str | None]
    ) -> tuple[tuple[tuple[int, int], ...], int, Literal["bytes", "hex"]] | None:
        """The fields of the data, their number, and how they are packed; None if the length disagrees."""
        size = groups.get("dlc")
        start = found.start("data")
        count = len((groups["data"] or "").split()) if size is None else int(size)
        packed = find_packed_bytes(text, start, count)
        return None if packed is None else (packed[0], count, packed[1])

    def _fields(
        self, text: str, found: re.Match[str], groups: dict[str, str | None], time: TimeFields
    ) -> Fields | NoFrame:
        packed = self.data(text, found, groups)
        if packed is None:
            return NoFrame(LENGTHS_DISAGREE, time)
        self._has_begun = True
        spans, length, packing = packed
        is_whole = packing == "hex" or not groups.get("dlc")
        end = len(text) if is_whole else max(spans[-1][1] if spans else 0, found.end("id"), found.end("dlc"))
        return Fields(
            found.span("id"),
            spans,
            length,
            end,
            time,
            found.span("channel") if groups.get("channel") else None,
            packing=packing,
            extended=self.extended(groups),
            standard_digits=self.standard_digits,
            by_value=self.by_value,
            fd=self.is_fd(groups, length),
            id_digits=self.id_digits or (found.end("id") - found.start("id"),),
            is_whole=is_whole,
        )


def _kind(first_stamp: int | None) -> Literal["absolute", "start", "none"]:
    if first_stamp is None:
        return "none"
    return "absolute" if first_stamp >= 631_152_000_000_000 else "start"


class LabelledFormat(PatternFormat):
    """`Timestamp: 1.5  ID: 123  S  DLC: 8  11 22 ...`: python-can's text of a message, and published datasets."""

    pattern = re.compile(
        rf"\s*(?:(?:T|TS|Time(?:stamp)?)\s*[:=]\s*(?P<time>{_NUMBER}),?\s+)?(?:(?:Standard|Extended)\s+)?(?:CAN\s*)?ID"
        r"\s*[:=]\s*(?:0x)?(?P<id>[0-9A-F]{1,8})\b,?(?P<flags>(?:\s+(?!DLC?\b|LEN|Data)[\w-]+)*?)\s+(?:(?:DLC?|LEN(?:GTH)?)"
        r"\s*[:=]\s*(?P<dlc>\d{1,2}),?(?:\s+Data\s*[:=])?|Data\s*[:=])(?P<data>.*)",
        re.ASCII | re.IGNORECASE,
    )

    def no_frame(self, groups: dict[str, str | None]) -> str | None:
        """`R` is a remote frame, `E` an error frame."""
        flags = (groups["flags"] or "").upper().split()
        return REMOTE_FRAME if "R" in flags else ERROR_FRAME if "E" in flags else None

    def extended(self, groups: dict[str, str | None]) -> bool | None:
        """`S` is a standard identifier, `X` an extended one."""
        flags = (groups["flags"] or "").upper().split()
        return True if "X" in flags else False if "S" in flags else None

    def is_fd(self, groups: dict[str, str | None], length: int) -> bool:
        """`F` is a CAN FD frame."""
        return length > 8 or "F" in (groups["flags"] or "").upper().split()


class CrtdFormat(PatternFormat):
    """CRTD, the format of the Open Vehicle Monitoring System."""

    pattern = re.compile(
        r"\s*(?P<time>\d+(?:\.\d+)?)\s+(?P<bus>\d*)(?P<kind>[A-Z]{1,3}\d*)(?:\s+(?P<id>[0-9A-F]{1,8})\b(?P<data>.*))?",
        re.ASCII | re.IGNORECASE,
    )
    _FRAME = re.compile(r"([RT])(11|29)", re.IGNORECASE)

    def no_frame(self, groups: dict[str, str | None]) -> str | None:
        """Comments, events, commands and status are no frames."""
        if groups["id"] is not None and self._FRAME.fullmatch(groups["kind"] or ""):
            return None
        return NO_FRAME

    def extended(self, groups: dict[str, str | None]) -> bool | None:
        """The record type says it."""
        return (groups["kind"] or "").endswith("29")

    def _fields(
        self, text: str, found: re.Match[str], groups: dict[str, str | None], time: TimeFields
    ) -> Fields | NoFrame:
        fields = super()._fields(text, found, groups, time)
        if isinstance(fields, Fields) and groups["bus"]:
            return fields._replace(channel=found.span("bus"))
        return fields


class HashFormat(PatternFormat):
    """`can0 123#11223344` without the brackets of `candump -L`: with or without a time, a channel and a direction."""

    pattern = re.compile(
        rf"\s*(?:[(\[]?(?P<time>{_NUMBER})[)\]]?\s+)?(?:(?P<channel>\w[\w.:-]*)\s+)?(?P<id>[0-9A-F]{{3}}|[0-9A-F]{{8}})"
        r"#(?:(?P<remote>R[0-9A-F]?)|(?:\#(?P<fd>[0-9A-F]))?(?P<data>(?:[0-9A-F]{2}){0,64}))(?:\s+[RT01])?\s*$",
        re.ASCII | re.IGNORECASE,
    )
    standard_digits = 3
    by_value = False
    id_digits = (3, 8)

    def is_fd(self, groups: dict[str, str | None], length: int) -> bool:
        """By the second `#`."""
        return groups["fd"] is not None

    def data(
        self, text: str, found: re.Match[str], groups: dict[str, str | None]
    ) -> tuple[tuple[tuple[int, int], ...], int, Literal["bytes", "hex"]] | None:
        """All bytes together."""
        return _joined(found, groups, None)


class LawicelFormat(PatternFormat):
    """The frames of serial adapters (slcan): `t1232AABB`, `T1F3344552AABB`, with or without a time before them."""

    pattern = re.compile(
        rf"\s*(?:\(?(?P<time>{_NUMBER})\)?[\s,;]+)?(?:t(?=[0-9A-Fa-f]{{4}})(?P<short>)|T(?=[0-9A-Fa-f]{{9}})(?P<long>)"
        r"|(?P<remote>[rR])(?=[0-9A-Fa-f]{4}))(?P<id>(?<=t)[0-9A-Fa-f]{3}|(?<=T)[0-9A-Fa-f]{8}|(?<=[rR])[0-9A-Fa-f]{3,8})"
        r"(?P<dlc>[0-8])(?P<data>[0-9A-Fa-f]*)\s*$",
        re.ASCII,
    )

    id_digits = ()

    def extended(self, groups: dict[str, str | None]) -> bool | None:
        """By the first letter."""
        return groups["long"] is not None

    def data(
        self, text: str, found: re.Match[str], groups: dict[str, str | None]
    ) -> tuple[tuple[tuple[int, int], ...], int, Literal["bytes", "hex"]] | None:
        """All bytes together, perhaps with a time stamp of four digits behind them."""
        return _joined(found, groups, 2 * int(groups["dlc"] or 0))


def _joined(
    found: re.Match[str], groups: dict[str, str | None], digits: int | None
) -> tuple[tuple[tuple[int, int], ...], int, Literal["bytes", "hex"]] | None:
    text, start = groups["data"] or "", found.start("data")
    size = len(text) if digits is None else digits
    if len(text) not in (size, size + 4) or size % 2:
        return None
    return (((start, start + size),) if size else ()), size // 2, "hex"


class TableFormat(PatternFormat):
    """`[number] time [channel] id [direction] dlc data`: columns of blanks or tabs, as CANHacker and others write."""

    pattern = re.compile(
        rf"\s*[(\[]?(?P<time>{_NUMBER})s?[)\]]?:?\s+(?:(?P<channel>can\w*|[0-9])\s+(?=(?:0x)?[0-9A-F]{{2,8}}\s+(?:\D+\s+)?\[?\d{{1,2}}\]?\s))?"
        r"(?:(?P<flag>0004)\s+)?(?:(?:Rx|Tx)\s+)?(?:0x)?(?P<id>[0-9A-F]{2,8})(?P<x>x?)\s+"
        r"(?:(?:Rx|Tx|Std|Ext|S|X|D|Data|-)\s+)*(?:\[)?(?P<dlc>\d{1,2})(?:\])?(?=\s|$)(?P<data>.*)",
        re.ASCII | re.IGNORECASE,
    )
    standard_digits = 4
    id_digits = range(2, 9)

    def extended(self, groups: dict[str, str | None]) -> bool | None:
        """By an `x` behind the identifier, as in ASC files."""
        return True if groups["x"] else None


class BareFormat(PatternFormat):
    """`id dlc data` without a time."""

    pattern = re.compile(
        r"\s*(?:(?P<channel>[A-Za-z]+\d+)\s+)?(?:0x)?(?P<id>[0-9A-F]{3,8})[:,]?\s+\[?(?P<dlc>\d{1,2})\]?(?=\s|$)(?P<data>.*)",
        re.ASCII | re.IGNORECASE,
    )
    standard_digits = 4
    id_digits = range(3, 9)


class PlainFormat(PatternFormat):
    """`[time] [channel] id data` without a length: bytes of two digits, apart or joined, to the end of the line."""

    pattern = re.compile(
        rf"\s*(?:[(\[]?(?P<time>{_NUMBER})s?[)\]]?:?\s+(?=(?:\S+\s+)?(?:0x)?[0-9A-F]{{3,8}}[:,]?\s))?"
        r"(?:(?P<channel>[a-z]+\d+)\s+)?(?:(?:Rx|Tx)\s+)?(?:0x)?(?P<id>[0-9A-F]{3,8})[:,]?\s+"
        r"(?P<data>(?:0x)?(?:[0-9A-F]{2}){1,8}|(?:0x)?[0-9A-F]{2}(?:[\s:.-](?:0x)?[0-9A-F]{2}){0,7})\s*$",
        re.ASCII | re.IGNORECASE,
    )
    standard_digits = 4
    id_digits = range(3, 9)

    def data(
        self, text: str, found: re.Match[str], groups: dict[str, str | None]
    ) -> tuple[tuple[tuple[int, int], ...], int, Literal["bytes", "hex"]] | None:
        """As many bytes as there are pairs of digits."""
        digits = re.sub(r"0x|[^0-9a-f]", "", (groups["data"] or "").lower())
        packed = find_packed_bytes(text, found.start("data") - 1, len(digits) // 2)
        return None if packed is None else (packed[0], len(digits) // 2, packed[1])
