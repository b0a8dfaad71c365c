"""Time stamps of text logs: where their numbers are, what they count, and from when."""

import re
from datetime import UTC, date, datetime
from math import log10
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from genus.can._logs.log_file import LAST_US
from genus.errors import RecordingError

SECOND_US = 1_000_000
DAY_US = 86_400 * SECOND_US
FIRST_DATE_US = 631_152_000 * SECOND_US
"""1990: no log is older, so a smaller time stamp does not count from 1970."""

Span: TypeAlias = tuple[int, int]
"""The first character of a field, and the one after its last."""
KindOfTimes: TypeAlias = Literal["absolute", "start", "deltas", "none"]
Unit: TypeAlias = Literal["s", "ms", "100us", "us", "ns"]
UNITS: dict[Unit, tuple[int, int]] = {
    "s": (SECOND_US, 1), "ms": (1000, 1), "100us": (100, 1), "us": (1, 1), "ns": (1, 1000)
}  # fmt: skip
"""By unit: how many microseconds it is, as a fraction."""


def unit_of(name: str) -> Unit:
    for unit in UNITS:
        if unit == name:
            return unit
    raise RecordingError(f"{name!r} is no unit of times; known: {', '.join(UNITS)}")


class TimePart(NamedTuple):
    """A number that is part of a time: so many microseconds for each, divided by the divisor."""

    span: Span
    micros: int
    divisor: int = 1
    is_fraction: bool = False
    """Whether the divisor follows from the number of digits."""
    base: int = 10


class TimeFields(NamedTuple):
    """The time stamp of a line: its numbers, the date before them, and what a time zone adds."""

    parts: tuple[TimePart, ...] = ()
    date: Span | None = None
    shift_us: int = 0
    sign: int = 1
    period_us: int = 0
    """After so long a clock begins again: a day, or an hour if it has no hours; 0 for plain numbers."""


_NUMBER = re.compile(r"(-?)(\d{1,19})(?:[.,](\d{1,9})(\d{1,9})?)?", re.ASCII)
_HEX_NUMBER = re.compile(r"0[xX]([0-9A-Fa-f]{1,8})", re.ASCII)
_CLOCK = re.compile(
    r"(?:(?P<date>\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4})[T_\s,;|-]+)?(?:(?P<h>\d{1,3}):)?(?P<m>\d{1,2}):(?P<s>\d{1,2})"
    r"(?:[.,:](?P<f>\d{1,9})(?:\.(?P<g>\d))?)?(?:Z|(?P<zone>[+-]\d{2}:?\d{2}))?",
    re.ASCII,
)
_COMPACT = re.compile(r"(\d{1,2}|\d{8})T(\d{2})(\d{2})(\d{2})(\d{3})", re.ASCII)
_NANO_DIGITS = 17
"""A number of so many digits counts nanoseconds since 1970; it is read in two parts."""


def find_time(text: str, span: Span, unit: Unit = "s") -> TimeFields | None:
    """Return the numbers of a time stamp: `1436509052.249713`, `00:00:01:2345`, `2020-12-19 12:04:45.485261`.

    Args:
        text: The line.
        span: Where the time stamp is.
        unit: What a plain number counts.

    >>> time = find_time("at 00:00:01:2345", (3, 16))
    >>> read_time("at 00:00:01:2345", time)
    1234500
    """
    micros, divisor = UNITS[unit]
    if found := _NUMBER.fullmatch(text, *span):
        start, end = found.span(2)
        sign = -1 if found[1] else 1
        if end - start >= _NANO_DIGITS:
            if found[3]:
                return None
            whole, nanos = TimePart((start, end - 9), SECOND_US), TimePart((end - 9, end), 1, 1000, True)
            return TimeFields((whole, nanos), sign=sign)
        rest = [TimePart(found.span(4), 0)] if found[4] else []
        parts = (TimePart((start, end), micros, divisor), *_fraction(found, 3, micros, divisor), *rest)
        return TimeFields(parts, sign=sign)
    if found := _HEX_NUMBER.fullmatch(text, *span):
        return TimeFields((TimePart(found.span(1), micros, divisor, base=16),))
    if found := _COMPACT.fullmatch(text, *span):
        millis = zip(range(1, 6), (86_400_000, 3_600_000, 60_000, 1000, 1), strict=True)
        parts = tuple(TimePart(found.span(part), each * 1000) for part, each in millis)
        return TimeFields(parts[1:], found.span(1)) if len(found[1]) == 8 else TimeFields(parts)
    if (found := _CLOCK.fullmatch(text, *span)) is None:
        return None
    clock = (("h", 3600), ("m", 60), ("s", 1))
    numbers = [TimePart(found.span(name), seconds * SECOND_US) for name, seconds in clock if found[name] is not None]
    zone, day = found["zone"], found.span("date") if found["date"] is not None else None
    shift = 0 if zone is None else int(zone[1:3]) * 3600 + int(zone[-2:]) * 60
    signed = -shift if zone is not None and zone[0] == "+" else shift
    period = 0 if day else DAY_US if found["h"] is not None else DAY_US // 24
    tenths = [TimePart(found.span("g"), SECOND_US, 10 ** (1 + len(found["f"])), True)] if found["g"] else []
    return TimeFields(
        (*numbers, *_fraction(found, "f", SECOND_US, 1), *tenths), day, signed * SECOND_US, period_us=period
    )


def _fraction(found: re.Match[str], group: int | str, micros: int, divisor: int) -> list[TimePart]:
    text = found[group]
    return [] if text is None else [TimePart(found.span(group), micros, divisor * 10 ** len(text), True)]


def read_time(text: str, time: TimeFields) -> int | None:
    if not time.parts:
        return None
    micros = sum(int(text[slice(*part.span)], part.base) * part.micros // part.divisor for part in time.parts)
    micros = time.sign * min(micros + time.shift_us, LAST_US + 1)
    if time.date is None:
        return micros
    day = read_date(text[slice(*time.date)])
    return None if day is None else day + micros


_DATE = re.compile(r"(\d{1,4})([-/.])(\d{1,2})\2(\d{1,4})", re.ASCII)


def read_date(text: str) -> int | None:
    """Midnight (UTC) of a date in microseconds since 1970; None if it is none.

    The year is first or last; with `/` the month comes before the day, unless that is impossible.

    >>> read_date("2020-12-19") == read_date("19.12.2020") == read_date("12/19/2020") == read_date("19/12/2020")
    True
    """
    found = _DATE.fullmatch(f"{text[:4]}-{text[4:6]}-{text[6:]}" if len(text) == 8 and text.isdecimal() else text)
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
    return (
        (moment.date() - date(1970, 1, 1)).days * DAY_US
        + ((moment.hour * 60 + moment.minute) * 60 + moment.second) * SECOND_US
        + moment.microsecond
    )


# -- from when times count ---------------------------------------------------------------------------------------------

PERIODS_US = (60 * SECOND_US, 1 << 16 << 10, 3600 * SECOND_US, 1 << 32, DAY_US)
"""After so long a plain counter may begin again: a minute, an hour, a day, 32 bits of microseconds."""


class LineTimes:
    """State: how the time stamps of lines become times.

    `kind` is `absolute` (they count from 1970), `start` (from the start of the log), `deltas` (from the line before)
    or `none` (there are no time stamps: every frame has the time of the start). A clock that begins again after
    `period_us` is continued; a plain counter is if it falls from the end of one of `PERIODS_US` to its beginning.
    """

    def __init__(self, kind: KindOfTimes, start_us: int = 0, period_us: int = 0) -> None:
        self.kind, self.start_us, self.period_us = kind, start_us, period_us
        self._passed = 0
        self._last: int | None = None
        self._greatest = 0

    def restart(self, kind: KindOfTimes | None, start_us: int) -> None:
        self.kind, self.start_us, self._passed, self._last = kind or self.kind, start_us, 0, None

    def resolve(self, stamps: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        if not len(stamps):
            return stamps
        if self.kind == "none":
            return np.full(len(stamps), self.start_us, np.int64)
        if self.kind == "deltas":
            times = np.cumsum(stamps) + self._passed
            self._passed = int(times[-1])
            return times + self.start_us
        return stamps + self.start_us + (self._wrapped(stamps) if self.kind == "start" else 0)

    def _wrapped(self, stamps: npt.NDArray[np.int64]) -> npt.NDArray[np.int64] | int:
        """Return what passed before the counter began again, for each time stamp."""
        steps = np.diff(stamps, prepend=stamps[0] if self._last is None else self._last)
        self._last = int(stamps[-1])
        falls = np.flatnonzero(steps < 0)
        if not len(falls):
            self._greatest = max(self._greatest, int(stamps.max()))
            return self._passed
        added = np.zeros(len(stamps), np.int64)
        begin = 0
        for at in falls.tolist():
            self._greatest = max(self._greatest, int(stamps[begin : at + 1].max()))
            added[at] = self._period_of(-int(steps[at]))
            begin = at + 1
        passed = np.cumsum(added) + self._passed
        self._passed = int(passed[-1])
        return passed

    def _period_of(self, fall: int) -> int:
        if self.period_us:
            return self.period_us if 2 * fall > self.period_us else 0
        fits = (period for period in PERIODS_US if self._greatest < period and 20 * fall > 19 * period)
        return next(fits, 0)


# -- which unit plain numbers count ------------------------------------------------------------------------------------

FEW_STAMPS = 8
_FAST_US, _USUAL_S, _USUAL_RATE = 0.7, 0.02, 500.0
_LAST_DATE_US = 2_145_916_800 * SECOND_US
"""2038."""
_DECIMALS: dict[Unit, tuple[float, ...]] = {
    "s": (2, 1, 1, 0, 0, 0, 0), "ms": (0, 0, 0.5, 0.5, 2, 3, 3), "us": (0, 1.5, 1.5, 1.5, 3, 3, 3),
    "ns": (0, 4, 4, 4, 4, 4, 4), "100us": (2, 3, 4, 4, 4, 4, 4),
}  # fmt: skip
"""How unusual so many decimals are."""
HINT = 2.5
"""How much the name of a column or the tool that writes such a log speaks for a unit."""
DOUBT = 2.2
"""Another unit is possible if it is at most so much more unusual."""


class Stamps(NamedTuple):
    """The first time stamps of a log, which are plain numbers, and what shows how long their frames took."""

    values: npt.NDArray[np.float64]
    decimals: int
    most: int
    """How often the most frequent identifier of a channel comes."""
    bits_us: float
    """So long the frames of the busiest channel take at least, at 1 Mbit/s (CAN FD at 8 Mbit/s)."""


class ChosenUnit(NamedTuple):
    """A unit of times, why it was chosen, and which others are possible."""

    unit: Unit
    evidence: str
    others: tuple[Unit, ...] = ()
    is_impossible: bool = False
    """Whether no bus can carry so many frames in so short a time."""


def choose_unit(stamps: Stamps, hint: Unit | None = None) -> ChosenUnit:
    """Return the unit of time stamps by what is possible and usual on a bus; `hint` is what the format suggests.

    Impossible are units in which frames come faster than a bus can carry them. Of the others, the least unusual is
    chosen: by the interval at which the most frequent identifier comes (about 20 ms), the rate of all frames, the
    number of decimals, and whether the numbers are dates after 1990.
    """
    if len(stamps.values) < FEW_STAMPS:
        value, chosen = stamps.values.max(initial=0.0), hint or _by_size(stamps)
        is_sure = hint is not None or stamps.decimals > 2 or value >= 1e12
        return ChosenUnit(chosen, "few time stamps", () if is_sure else tuple(each for each in UNITS if each != chosen))
    steps = np.diff(stamps.values)
    span = float(steps[steps > 0].sum())
    every = {unit: _unusual(unit, stamps, span, hint) for unit in UNITS}
    possible = {unit: cost for unit, cost in every.items() if cost is not None}
    if not possible:
        return ChosenUnit(hint or "s", "no unit fits the number of frames", (), True)
    ranked = sorted(possible, key=lambda unit: possible[unit])
    best = ranked[0]
    doubt = DOUBT if stamps.decimals > 4 or _is_date(stamps, best) else DOUBT + 1
    others = tuple(unit for unit in ranked[1:] if best != hint and possible[unit] < possible[best] + doubt)
    if not stamps.decimals and not _is_date(stamps, best) and best != hint:
        others = others or tuple(ranked[1:2])  # plain integers may count anything
    return ChosenUnit(best, f"{_rate(stamps, span, best):,.4g} frames/s", others)


def fits_a_bus(stamps: Stamps, unit: Unit) -> bool:
    steps = np.diff(stamps.values)
    micros, divisor = UNITS[unit]
    return len(steps) < FEW_STAMPS or float(steps[steps > 0].sum()) * micros / divisor >= _FAST_US * stamps.bits_us


def _by_size(stamps: Stamps) -> Unit:
    value = float(stamps.values.max(initial=0.0))
    return "s" if value < 1e11 else "ms" if value < 1e14 else "us" if value < 1e17 else "ns"


def _is_date(stamps: Stamps, unit: Unit) -> bool:
    micros, divisor = UNITS[unit]
    return bool(FIRST_DATE_US <= float(stamps.values[0]) * micros / divisor <= _LAST_DATE_US)


def _rate(stamps: Stamps, span: float, unit: Unit) -> float:
    micros, divisor = UNITS[unit]
    return (len(stamps.values) - 1) / max(span * micros / divisor / SECOND_US, 1e-9)


def _unusual(unit: Unit, stamps: Stamps, span: float, hint: Unit | None) -> float | None:
    micros, divisor = UNITS[unit]
    seconds = span * micros / divisor / SECOND_US
    first = float(stamps.values[0]) * micros / divisor
    if seconds * SECOND_US < _FAST_US * stamps.bits_us or first > LAST_US:
        return None
    cost = _DECIMALS[unit][min(stamps.decimals, 6)] - (HINT if unit == hint else 0)
    if _is_date(stamps, unit):
        cost -= 3 if stamps.decimals else 2
    if stamps.most > 2:
        cost += 0.7 * abs(log10(max(seconds / (stamps.most - 1), 1e-9) / _USUAL_S))
    return cost + 0.4 * abs(log10(max(_rate(stamps, span, unit), 1e-9) / _USUAL_RATE))
