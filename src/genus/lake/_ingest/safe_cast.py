"""Casts of Arrow columns that report the rows that failed, and parsers of times and durations built on them.

Arrow refuses a whole array because of one bad value. `cast_each` halves an array until bad values are alone, so that a
good column costs one cast and a bad value about twenty.

A time is ISO 8601 text with a time zone, a number since 1970 in a given unit, or text of a given pattern. Times without
a zone are wrong unless the zone is given. Then a time in the hour that is repeated when summer time ends is the earlier
one, and a time in the hour that is skipped when summer time begins is wrong. Digits beyond microseconds are cut off.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from genus.lake._tables.columns import FIRST_US, INSTANT, LAST_US
from genus.records._values import ISO, TEXT, UNITS, micros_of_text, time_of_pattern

Mask: TypeAlias = npt.NDArray[np.bool_]


class CastColumn(NamedTuple):
    """Result of a cast: the column, null where a value is absent or wrong, and a mask of the wrong rows if any."""

    column: pa.Array
    wrong: Mask | None = None


def valid_rows(column: pa.Array) -> Mask:
    """A mask of the rows that have a value."""
    found: Mask = column.is_valid().to_numpy(zero_copy_only=False)
    return found


def reject_all(column: pa.Array, stored: pa.DataType) -> CastColumn:
    """A result in which every value is wrong."""
    return CastColumn(pa.nulls(len(column), stored), valid_rows(column) if column.null_count < len(column) else None)


def keep_where(column: pa.Array, good: pa.Array) -> CastColumn:
    """The values where `good` is true; where it is false or null they are wrong."""
    good = pc.fill_null(good, False)
    wrong = valid_rows(column) & ~good.to_numpy(zero_copy_only=False)
    if not wrong.any():
        return CastColumn(column)
    return CastColumn(pc.if_else(good, column, pa.scalar(None, column.type)), wrong)


def cast_each(column: pa.Array, cast: Callable[[pa.Array], pa.Array]) -> CastColumn:
    """Apply a cast that refuses arrays with a bad value, so that only the bad values are wrong."""
    try:
        return CastColumn(cast(column))
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        if len(column) == 1:
            return CastColumn(cast(pa.nulls(1, column.type)), np.array([True]))
    half = len(column) // 2
    return _concat([cast_each(column.slice(0, half), cast), cast_each(column.slice(half), cast)])


def _concat(parts: list[CastColumn]) -> CastColumn:
    column = pa.concat_arrays([part.column for part in parts])
    if all(part.wrong is None for part in parts):
        return CastColumn(column)
    return CastColumn(column, np.concatenate([_mask(part) for part in parts]))


def _mask(part: CastColumn) -> Mask:
    return part.wrong if part.wrong is not None else np.zeros(len(part.column), np.bool_)


def then_cast(first: CastColumn, step: Callable[[pa.Array], CastColumn]) -> CastColumn:
    """Apply a second cast to the result of the first; rows are wrong if either failed."""
    second = step(first.column)
    return CastColumn(second.column, _either(first.wrong, second.wrong))


def _either(one: Mask | None, other: Mask | None) -> Mask | None:
    if one is None or other is None:
        return one if other is None else other
    return one | other


def retry_wrong(first: CastColumn, column: pa.Array, second: Callable[[pa.Array], CastColumn]) -> CastColumn:
    """Apply a second cast to those values of a column that the first one found wrong."""
    if first.wrong is None:
        return first
    rest = second(pc.if_else(pa.array(first.wrong), column, pa.scalar(None, column.type)))
    return CastColumn(pc.coalesce(first.column, rest.column), rest.wrong)


def int_of_text(column: pa.Array) -> pa.Array:
    """Cast text to integers; like Arrow's cast, it refuses the array if one value is none."""
    if pc.any(pc.match_substring(column, "x", ignore_case=True)).as_py():
        raise pa.ArrowInvalid("hexadecimal digits")  # Arrow would accept them
    return column.cast(pa.int64())


def parse_values(column: pa.Array, parse: Callable[[Any], Any], stored: pa.DataType) -> CastColumn:
    """Call a Python function for each distinct value; values are wrong if it raises ValueError or OverflowError."""
    encoded = column.dictionary_encode()
    made = [_parse_or_none(parse, value) for value in encoded.dictionary.to_pylist()]
    parsed = pa.array(made, stored).take(encoded.indices)
    wrong = valid_rows(column) & ~valid_rows(parsed)
    return CastColumn(parsed, wrong if wrong.any() else None)


def _parse_or_none(parse: Callable[[Any], Any], value: Any) -> Any:
    try:
        return parse(value)
    except (ValueError, OverflowError, RecursionError):
        return None


# -- times and durations -----------------------------------------------------------------------------------------------


_NAIVE, _DURATION = pa.timestamp("us"), pa.duration("us")


def parse_times(column: pa.Array, format: str, zone: str) -> CastColumn:
    """Convert a column of timestamps, dates, numbers or text to instants in UTC."""
    if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
        parsed = _times_of_timestamps(column, zone)
    elif format in UNITS:
        parsed = then_cast(_to_micros(column, UNITS[format]), lambda micros: CastColumn(micros.cast(INSTANT)))
    elif not pa.types.is_string(column.type):
        parsed = reject_all(column, INSTANT)
    elif format in ("", ISO, TEXT):
        parsed = _times_of_iso(column, zone)
    else:
        parsed = parse_values(column, partial(time_of_pattern, pattern=format, zone=zone), INSTANT)
    return then_cast(parsed, _check_years)


def parse_durations(column: pa.Array, format: str) -> CastColumn:
    """Convert a column of durations, numbers (of seconds unless `format` is a unit) or text to durations."""
    if pa.types.is_duration(column.type):
        return _cast_unit(column, _DURATION)
    if not pa.types.is_string(column.type) or format in UNITS:
        parsed = _to_micros(column, UNITS.get(format, UNITS["s"]))
        return then_cast(parsed, lambda micros: CastColumn(micros.cast(_DURATION)))
    return parse_values(column, micros_of_text, _DURATION)


def _check_years(column: pa.Array) -> CastColumn:
    """Keep the instants in the years 1 to 9999."""
    micros = column.cast(pa.int64())
    return keep_where(column, pc.and_(pc.greater_equal(micros, FIRST_US), pc.less_equal(micros, LAST_US)))


def _times_of_timestamps(column: pa.Array, zone: str) -> CastColumn:
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return _cast_unit(column, INSTANT)
    if not zone:
        return reject_all(column, INSTANT)
    return then_cast(_cast_unit(column, _NAIVE), lambda naive: cast_each(naive, lambda part: _localize(part, zone)))


def _cast_unit(column: pa.Array, stored: pa.DataType) -> CastColumn:
    """Convert to microseconds; digits beyond them are cut off, and values that do not fit into 64 bits are wrong."""
    cuts_digits = getattr(column.type, "unit", "") == "ns"
    return cast_each(column, lambda part: part.cast(stored, safe=not cuts_digits))


def _localize(naive: pa.Array, zone: str) -> pa.Array:
    return pc.assume_timezone(naive, zone, ambiguous="earliest", nonexistent="raise").cast(INSTANT)


def _times_of_iso(column: pa.Array, zone: str) -> CastColumn:
    """Cast the column as a whole if all values are in the usual forms; otherwise value by value."""
    casts: list[Callable[[pa.Array], pa.Array]] = [lambda part: part.cast(INSTANT)]
    if zone:
        casts.append(lambda part: _localize(part.cast(_NAIVE), zone))
    for cast in casts:
        try:
            return CastColumn(cast(column))
        except pa.ArrowInvalid:
            continue
    usual = pc.replace_substring_regex(pc.utf8_upper(column), r"(\.\d{6})\d+", r"\1")
    parsed = cast_each(usual, casts[0])
    return retry_wrong(parsed, usual, lambda rest: cast_each(rest, casts[1])) if zone else parsed


def _to_micros(column: pa.Array, unit: int) -> CastColumn:
    """Convert numbers of a unit to microseconds, exactly for integers."""
    if pa.types.is_string(column.type):
        whole = cast_each(column, int_of_text)
        micros = then_cast(whole, lambda numbers: _to_micros(numbers, unit))
        return retry_wrong(micros, column, lambda rest: _fractions_of_text(rest, unit))
    if pa.types.is_integer(column.type):
        return then_cast(cast_each(column, lambda part: part.cast(pa.int64())), lambda numbers: _scale(numbers, unit))
    if pa.types.is_floating(column.type) or pa.types.is_decimal(column.type):
        return _scale_and_round(column.cast(pa.float64()), unit)
    return reject_all(column, pa.int64())


def _fractions_of_text(column: pa.Array, unit: int) -> CastColumn:
    numbers = cast_each(column, lambda part: part.cast(pa.float64()))
    return then_cast(numbers, lambda good: _scale_and_round(good, unit))


def _scale(numbers: pa.Array, unit: int) -> CastColumn:
    if unit >= 1000:
        return cast_each(numbers, lambda part: pc.multiply_checked(part, unit // 1000))
    floor = np.floor_divide(numbers.fill_null(0).to_numpy(), 1000 // unit)  # Arrow divides towards zero
    return CastColumn(pc.if_else(numbers.is_valid(), pa.array(floor), pa.scalar(None, pa.int64())))


def _scale_and_round(numbers: pa.Array, unit: int) -> CastColumn:
    micros = pc.round(pc.multiply(numbers, unit / 1000))
    fitting = keep_where(micros, pc.less(pc.abs(micros), 2.0**63))
    return then_cast(fitting, lambda good: CastColumn(good.cast(pa.int64())))
