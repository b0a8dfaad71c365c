"""Times and durations as others write them, as columns of microseconds.

A time is ISO 8601 with a zone, a number since 1970 in a stated unit, or text of a stated pattern. Text and timestamps
without a zone are wrong unless one is stated: then the earlier of two is meant in the hour that a change to winter time
repeats, and what lies in the hour that summer time leaves out is wrong. Digits beyond microseconds are cut off.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, NamedTuple, TypeAlias
from zoneinfo import ZoneInfo

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from genus.lake._tables.columns import INSTANT
from genus.model._types import INT64_MAX, INT64_MIN, micros_of_duration, micros_of_time

# Columns read with doubt: what could be read of one, and which rows could not.
#
# Casts of Arrow refuse a whole array for one bad value. `attempt` halves an array until the bad values are alone, so
# that a good column costs one cast, and a bad value some twenty.


Mask: TypeAlias = npt.NDArray[np.bool_]


class Read(NamedTuple):
    """A column, null where a value is absent or wrong; and the rows with a wrong one, None if there are none."""

    column: pa.Array
    wrong: Mask | None = None


def valid(column: pa.Array) -> Mask:
    """Which rows have a value."""
    found: Mask = column.is_valid().to_numpy(zero_copy_only=False)
    return found


def refused(column: pa.Array, stored: pa.DataType) -> Read:
    """A column none of whose values will do."""
    return Read(pa.nulls(len(column), stored), valid(column) if column.null_count < len(column) else None)


def where(column: pa.Array, good: pa.Array) -> Read:
    """A column's values where they are good; the others are wrong. Unknown is not good."""
    good = pc.fill_null(good, False)
    wrong = valid(column) & ~good.to_numpy(zero_copy_only=False)
    if not wrong.any():
        return Read(column)
    return Read(pc.if_else(good, column, pa.scalar(None, column.type)), wrong)


def attempt(column: pa.Array, read: Callable[[pa.Array], pa.Array]) -> Read:
    """What a function that refuses arrays with a bad value makes of the values that are not bad."""
    try:
        return Read(read(column))
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        if len(column) == 1:
            return Read(read(pa.nulls(1, column.type)), np.array([True]))
    half = len(column) // 2
    return joined([attempt(column.slice(0, half), read), attempt(column.slice(half), read)])


def joined(parts: list[Read]) -> Read:
    """Columns one after the other."""
    column = pa.concat_arrays([part.column for part in parts])
    if all(part.wrong is None for part in parts):
        return Read(column)
    return Read(column, np.concatenate([_mask(part) for part in parts]))


def _mask(part: Read) -> Mask:
    return part.wrong if part.wrong is not None else np.zeros(len(part.column), np.bool_)


def then(first: Read, step: Callable[[pa.Array], Read]) -> Read:
    """A further step on what was read so far; wrong is what either found wrong."""
    second = step(first.column)
    return Read(second.column, either(first.wrong, second.wrong))


def either(one: Mask | None, other: Mask | None) -> Mask | None:
    """Rows that are in either mask."""
    if one is None or other is None:
        return one if other is None else other
    return one | other


def or_else(first: Read, column: pa.Array, second: Callable[[pa.Array], Read]) -> Read:
    """What the first reading found wrong in a column, read in a second way."""
    if first.wrong is None:
        return first
    rest = second(pc.if_else(pa.array(first.wrong), column, pa.scalar(None, column.type)))
    return Read(pc.coalesce(first.column, rest.column), rest.wrong)


def by_value(column: pa.Array, parse: Callable[[Any], Any], stored: pa.DataType) -> Read:
    """A function of Python on each distinct value; one that it raises ValueError for is wrong."""
    encoded = column.dictionary_encode()
    made = [_parsed(parse, value) for value in encoded.dictionary.to_pylist()]
    read = pa.array(made, stored).take(encoded.indices)
    wrong = valid(column) & ~valid(read)
    return Read(read, wrong if wrong.any() else None)


def _parsed(parse: Callable[[Any], Any], value: Any) -> Any:
    try:
        return parse(value)
    except (ValueError, RecursionError):
        return None


UNITS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
"""The units of numbers that are times or durations, in nanoseconds."""
ISO, TEXT = "iso", "text"

_NAIVE, _SPAN = pa.timestamp("us"), pa.duration("us")
_FIRST = micros_of_time(datetime(1, 1, 1, tzinfo=UTC))
_LAST = micros_of_time(datetime.max.replace(tzinfo=UTC))


def read_times(column: pa.Array, format: str, zone: str) -> Read:
    """The instants that a column of timestamps, dates, numbers or text stands for."""
    if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
        read = _of_timestamps(column, zone)
    elif format in UNITS:
        read = then(_micros(column, UNITS[format]), lambda micros: Read(micros.cast(INSTANT)))
    elif not pa.types.is_string(column.type):
        read = refused(column, INSTANT)
    elif format in ("", ISO, TEXT):
        read = _of_iso(column, zone)
    else:
        read = by_value(column, partial(_of_pattern, pattern=format, zone=zone), INSTANT)
    return then(read, _in_range)


def read_durations(column: pa.Array, format: str) -> Read:
    """The spans that a column of durations, numbers (of seconds, if nothing else is stated) or text stands for."""
    if pa.types.is_duration(column.type):
        return attempt(column, lambda part: part.cast(_SPAN, safe=False))
    if not pa.types.is_string(column.type) or format in UNITS:
        read = _micros(column, UNITS.get(format, UNITS["s"]))
        return then(read, lambda micros: Read(micros.cast(_SPAN)))
    return by_value(column, _span_of_text, _SPAN)


def _in_range(column: pa.Array) -> Read:
    """Instants in the years 1 to 9999."""
    micros = column.cast(pa.int64())
    return where(column, pc.and_(pc.greater_equal(micros, _FIRST), pc.less_equal(micros, _LAST)))


def _of_timestamps(column: pa.Array, zone: str) -> Read:
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return attempt(column, lambda part: part.cast(INSTANT, safe=False))
    if not zone:
        return refused(column, INSTANT)
    return attempt(column, lambda part: _placed(part.cast(_NAIVE, safe=False), zone))


def _placed(naive: pa.Array, zone: str) -> pa.Array:
    return pc.assume_timezone(naive, zone, ambiguous="earliest", nonexistent="raise").cast(INSTANT)


def _of_iso(column: pa.Array, zone: str) -> Read:
    """Whole columns of the usual spellings first; then, value by value, all that there are."""
    ways: list[Callable[[pa.Array], pa.Array]] = [lambda part: part.cast(INSTANT)]
    if zone:
        ways.append(lambda part: _placed(part.cast(_NAIVE), zone))
    for way in ways:
        try:
            return Read(way(column))
        except pa.ArrowInvalid:
            continue
    usual = pc.replace_substring_regex(pc.utf8_upper(column), r"(\.\d{6})\d+", r"\1")
    read = attempt(usual, ways[0])
    return or_else(read, usual, lambda rest: attempt(rest, ways[1])) if zone else read


def _of_pattern(text: str, pattern: str, zone: str) -> datetime:
    moment = datetime.strptime(text, pattern)
    if moment.tzinfo is not None:
        return moment
    if not zone:
        raise ValueError("no zone")
    placed = moment.replace(tzinfo=ZoneInfo(zone))
    if placed.astimezone(UTC).astimezone(placed.tzinfo).replace(tzinfo=None) != moment:
        raise ValueError("left out by summer time")
    return placed


def _span_of_text(text: str) -> int:
    if text.lstrip("+-")[:1] in ("P", "p"):
        micros = micros_of_duration(msgspec.convert(text, timedelta))
    else:
        micros = round(float(text) * 1e6) if not text.lstrip("+-").isdigit() else int(text) * 10**6
    if not INT64_MIN <= micros <= INT64_MAX:
        raise ValueError("beyond 64 bits")
    return micros


def _micros(column: pa.Array, unit: int) -> Read:
    """Numbers of a unit as microseconds, exact for integers."""
    if pa.types.is_string(column.type):
        whole = attempt(column, lambda part: part.cast(pa.int64()))
        read = then(whole, lambda numbers: _micros(numbers, unit))
        return or_else(read, column, lambda rest: _fractions_of_text(rest, unit))
    if pa.types.is_integer(column.type):
        return then(attempt(column, lambda part: part.cast(pa.int64())), lambda numbers: _scaled(numbers, unit))
    if pa.types.is_floating(column.type) or pa.types.is_decimal(column.type):
        return _rounded(column.cast(pa.float64()), unit)
    return refused(column, pa.int64())


def _fractions_of_text(column: pa.Array, unit: int) -> Read:
    return then(attempt(column, lambda part: part.cast(pa.float64())), lambda numbers: _rounded(numbers, unit))


def _scaled(numbers: pa.Array, unit: int) -> Read:
    if unit >= 1000:
        return attempt(numbers, lambda part: pc.multiply_checked(part, unit // 1000))
    floor = np.floor_divide(numbers.fill_null(0).to_numpy(), 1000 // unit)  # Arrow divides towards zero
    return Read(pc.if_else(numbers.is_valid(), pa.array(floor), pa.scalar(None, pa.int64())))


def _rounded(numbers: pa.Array, unit: int) -> Read:
    micros = pc.round(pc.multiply(numbers, unit / 1000))
    fitting = where(micros, pc.less(pc.abs(micros), 2.0**63))
    return then(fitting, lambda good: Read(good.cast(pa.int64())))
