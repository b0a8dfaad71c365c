"""What a line of a text log says: where its fields are, and what they mean.

A format finds the fields of a line (`Fields`, spans of characters); `read_fields` makes a frame of them. That is how
one line is read, and it defines what a line means. `by_example` reads very many lines of the same form by the fields
of one of them.
"""

import re
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from genus.can._logs.log_file import BAD_IDENTIFIER, DAMAGED_LINE, LAST_US, LENGTHS_DISAGREE, decode_text
from genus.can._wire.frame import CLASSIC_BYTES, FD_BYTES, ID_MASK, STANDARD_ID_MASK, Frame

SECOND_US = 1_000_000
DAY_US = 86_400 * SECOND_US
FD_LENGTHS = (0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 20, 24, 32, 48, 64)
"""The number of data bytes of a CAN FD frame, by its data length code."""

Span: TypeAlias = tuple[int, int]
"""The first character of a field, and the one after its last."""
KindOfTimes: TypeAlias = Literal["absolute", "start", "deltas", "day", "none"]
Unit: TypeAlias = Literal["s", "ms", "us", "ns"]
_UNITS: dict[Unit, tuple[int, int]] = {"s": (SECOND_US, 1), "ms": (1000, 1), "us": (1, 1), "ns": (1, 1000)}


class TimePart(NamedTuple):
    """A number that is part of a time: so many microseconds for each, divided by the divisor."""

    span: Span
    micros: int
    divisor: int = 1
    is_fraction: bool = False
    """Whether the divisor follows from the number of digits."""


class TimeFields(NamedTuple):
    """The time stamp of a line: its numbers, the date before them, and what a time zone adds."""

    parts: tuple[TimePart, ...] = ()
    date: Span | None = None
    shift_us: int = 0


class Fields(NamedTuple):
    """The fields of a line that has a data frame."""

    id: Span
    data: tuple[Span, ...]
    """A field for each byte, or one with all bytes (see `packing`)."""
    length: int
    end: int
    """Where the frame ends; what is behind it in the line does not matter, unless `is_whole`."""
    time: TimeFields = TimeFields()
    channel: Span | None = None
    base: int = 16
    data_base: int = 16
    packing: Literal["bytes", "hex", "base64"] = "bytes"
    extended: bool | None = None
    """None if the line does not say it: an identifier of more than `standard_digits` is extended."""
    standard_digits: int = 16
    by_value: bool = True
    """Whether an identifier of more than 11 bits is extended, too, if the line does not say it."""
    fd: bool = False
    digits: tuple[Span, ...] = ()
    """Decimal numbers without a meaning, such as line numbers."""
    free: tuple[Span, ...] = ()
    """Fields without a meaning, whatever they contain."""
    id_digits: Sequence[int] = range(1, 9)
    """How many digits an identifier can have."""
    is_whole: bool = False
    """Whether nothing can follow, because the line does not say how many bytes it has."""


class NoFrame(NamedTuple):
    """Why a line has no data frame; its time matters where times count from the line before."""

    reason: str
    time: TimeFields = TimeFields()


def read_fields(text: str, fields: Fields) -> Frame | str:
    """The frame of a line (as Latin-1 text), or the reason why there is none."""
    identifier = int(text[slice(*fields.id)], fields.base)
    extended = is_extended(fields, identifier, fields.id[1] - fields.id[0])
    if identifier > (ID_MASK if extended else STANDARD_ID_MASK):
        return BAD_IDENTIFIER
    data = _data(text, fields)
    if isinstance(data, str):
        return data
    if len(data) != fields.length or len(data) > (FD_BYTES if fields.fd else CLASSIC_BYTES):
        return LENGTHS_DISAGREE
    return Frame(identifier, data, fields.fd, extended)


def is_extended(fields: Fields, identifier: int, digits: int) -> bool:
    """Whether an identifier has 29 bits."""
    if fields.extended is not None:
        return fields.extended
    return (fields.by_value and identifier > STANDARD_ID_MASK) or digits > fields.standard_digits


def _data(text: str, fields: Fields) -> bytes | str:
    if fields.packing == "bytes":
        values = [int(text[slice(*span)], fields.data_base) for span in fields.data]
        return bytes(values) if all(value < 256 for value in values) else DAMAGED_LINE
    joined = "".join(text[slice(*span)] for span in fields.data)
    try:
        return bytes.fromhex(joined) if fields.packing == "hex" else b64decode(joined, validate=True)
    except (ValueError, Base64Error):
        return DAMAGED_LINE


def channel_of(text: str, span: Span | None) -> str | None:
    """The name of a line's channel."""
    return None if span is None else decode_text(text[slice(*span)].encode("latin-1"))


def read_time(text: str, time: TimeFields) -> int | None:
    """The time stamp of a line in microseconds; None if it has none, or its date is none."""
    if not time.parts:
        return None
    micros = sum(int(text[slice(*part.span)]) * part.micros // part.divisor for part in time.parts) + time.shift_us
    micros = min(micros, LAST_US + 1)
    if time.date is None:
        return micros
    day = read_date(text[slice(*time.date)])
    return None if day is None else day + micros


# -- time stamps in text -----------------------------------------------------------------------------------------------

_NUMBER = re.compile(r"(\d{1,16})(?:[.,](\d{1,9}))?", re.ASCII)
_CLOCK = re.compile(
    r"(?:(?P<date>\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4})[T_ ]+)?(?P<h>\d{1,3}):(?P<m>\d{1,2})(?::(?P<s>\d{1,2}))?"
    r"(?:[.,:](?P<f>\d{1,9}))?(?:Z|(?P<zone>[+-]\d{2}:?\d{2}))?",
    re.ASCII,
)


_COMPACT = re.compile(r"(\d{1,2})T(\d{2})(\d{2})(\d{2})(\d{3})", re.ASCII)


def find_time(text: str, span: Span, unit: Unit = "s") -> TimeFields | None:
    """The numbers of a time stamp: `1436509052.249713`, `00:00:01:2345`, `2020-12-19 12:04:45.485261`.

    Args:
        text: The line.
        span: Where the time stamp is.
        unit: What a plain number counts.

    >>> time = find_time("at 00:00:01:2345", (3, 16))
    >>> read_time("at 00:00:01:2345", time)
    1234500
    """
    if found := _NUMBER.fullmatch(text, *span):
        micros, divisor = _UNITS[unit]
        return TimeFields((TimePart(found.span(1), micros, divisor), *_fraction(found, 2, micros, divisor)))
    if found := _COMPACT.fullmatch(text, *span):
        millis = zip(range(1, 6), (86_400_000, 3_600_000, 60_000, 1000, 1), strict=True)
        return TimeFields(tuple(TimePart(found.span(part), each * 1000) for part, each in millis))
    if (found := _CLOCK.fullmatch(text, *span)) is None:
        return None
    clock = (("h", 3600), ("m", 60), ("s", 1))
    parts = [TimePart(found.span(name), seconds * SECOND_US) for name, seconds in clock if found[name] is not None]
    zone = found["zone"]
    shift = 0 if zone is None else int(zone[1:3]) * 3600 + int(zone[-2:]) * 60
    signed = -shift if zone is not None and zone[0] == "+" else shift
    day = found.span("date") if found["date"] is not None else None
    return TimeFields((*parts, *_fraction(found, "f", SECOND_US, 1)), day, signed * SECOND_US)


def _fraction(found: re.Match[str], group: int | str, micros: int, divisor: int) -> list[TimePart]:
    text = found[group]
    return [] if text is None else [TimePart(found.span(group), micros, divisor * 10 ** len(text), True)]


_DATE = re.compile(r"(\d{1,4})([-/.])(\d{1,2})\2(\d{1,4})", re.ASCII)


def read_date(text: str) -> int | None:
    """Midnight (UTC) of a date in microseconds since 1970; None if it is none.

    The year is first or last; with `/` the month comes before the day, unless that is impossible.

    >>> read_date("2020-12-19") == read_date("19.12.2020") == read_date("12/19/2020") == read_date("19/12/2020")
    True
    """
    found = _DATE.fullmatch(text)
    if found is None:
        return None
    first, middle, last = int(found[1]), int(found[3]), int(found[4])
    if len(found[1]) == 4:
        year, month, day = first, middle, last
    elif (found[2] == "/" and middle > 12 >= first) or (found[2] == "/" and max(first, middle) <= 12):
        year, month, day = last, first, middle
    else:
        year, month, day = last, middle, first
    try:
        return round(datetime(year, month, day, tzinfo=UTC).timestamp()) * SECOND_US
    except ValueError:
        return None


def micros_since_1970(moment: datetime) -> int:
    """A date and time, taken as UTC, in microseconds since 1970; negative before that."""
    return (
        (moment.date() - date(1970, 1, 1)).days * DAY_US
        + ((moment.hour * 60 + moment.minute) * 60 + moment.second) * SECOND_US
        + moment.microsecond
    )


class LineTimes:
    """State: how the time stamps of lines become times.

    `kind` is `absolute` (they count from 1970), `start` (from the start of the log), `deltas` (from the line before),
    `day` (from midnight: a clock that goes back by more than half a day has passed midnight) or `none` (there are no
    time stamps: every frame has the time of the start).
    """

    def __init__(self, kind: KindOfTimes, start_us: int = 0) -> None:
        self.kind, self.start_us = kind, start_us
        self._passed = 0
        self._last = 0

    def restart(self, kind: KindOfTimes | None, start_us: int) -> None:
        """Count from another start, for example in a new session of the log."""
        self.kind, self.start_us, self._passed, self._last = kind or self.kind, start_us, 0, 0

    @property
    def is_ordered(self) -> bool:
        """Whether a time depends on the lines before it."""
        return self.kind in ("deltas", "day")

    def resolve(self, stamps: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The times of successive lines, in microseconds since 1970."""
        if not len(stamps):
            return stamps
        if self.kind == "none":
            return np.full(len(stamps), self.start_us, np.int64)
        if self.kind == "deltas":
            times = np.cumsum(stamps) + self._passed
            self._passed = int(times[-1])
            return times + self.start_us
        if self.kind == "day":
            steps = np.diff(stamps, prepend=self._last)
            times = stamps + self._passed + DAY_US * np.cumsum(steps < -DAY_US // 2)
            self._passed, self._last = int(times[-1] - stamps[-1]), int(stamps[-1])
            return times + self.start_us
        return stamps + self.start_us


# -- bytes in text -----------------------------------------------------------------------------------------------------

_BYTES = {
    16: re.compile(r"\s+((?:0[xX])?[0-9A-Fa-f]{1,2})(?=\s|$)", re.ASCII),
    10: re.compile(r"\s+(\d{1,3})(?=\s|$)", re.ASCII),
}
_JOINED = re.compile(r"\s*(?:0[xX])?([0-9A-Fa-f]+)(?=\s|$)", re.ASCII)
_APART = re.compile(r"[\s:.,_|-]*(?:0[xX])?([0-9A-Fa-f]{2})(?![0-9A-Fa-f])", re.ASCII)


def find_bytes(text: str, start: int, count: int, base: int = 16) -> tuple[Span, ...] | None:
    """The fields of so many bytes, with blanks before each; None if there are fewer."""
    spans: list[Span] = []
    while len(spans) < count:
        found = _BYTES[base].match(text, start)
        if found is None:
            return None
        first, start = found.span(1)
        spans.append((first + 2 * (text[first + 1 : first + 2] in ("x", "X")), start))
    return tuple(spans)


def find_packed_bytes(text: str, start: int, count: int) -> tuple[tuple[Span, ...], Literal["bytes", "hex"]] | None:
    """The fields of so many bytes as `find_bytes`, or in one word, or with `:` and the like between them, or None."""
    spans = find_bytes(text, start, count)
    if spans is not None:
        return spans, "bytes"
    found = _JOINED.match(text, start)
    if found is not None and len(found[1]) == 2 * count:
        return (found.span(1),), "hex"
    parts: list[Span] = []
    while len(parts) < count and (part := _APART.match(text, start)):
        parts.append(part.span(1))
        start = part.end()
    return (tuple(parts), "bytes") if len(parts) == count else None


def frame_length(code: int, *, fd: bool) -> int | None:
    """The number of data bytes of a data length code; None if it is none."""
    if not 0 <= code < len(FD_LENGTHS):
        return None
    return FD_LENGTHS[code] if fd else min(code, CLASSIC_BYTES)
