"""Attribute columns from JSON values and from columns of tables, with the rows that are wrong.

`genus.records` has the rules: which values an attribute accepts, and what they become. Arrow does the same with whole
columns where it is sure to; `_FAST` has what it takes for each attribute type. It refuses a whole array because of one
value, so an array is halved until what it refuses is among few values, and these are read one by one by the reader of
`genus.records`. That reader also reads columns that Arrow does not take at all, each distinct value once.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, NamedTuple, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from genus.lake._tables.part_writer import FIRST_US, INSTANT, LAST_US, stored_type
from genus.model import micros_of_duration, micros_of_time
from genus.model.internal import INT64_MAX, INT64_MIN, int_range
from genus.model.types import (
    AttributeType,
    BoolType,
    BytesType,
    ChoiceType,
    DurationType,
    FloatType,
    IntType,
    OpaqueType,
    TextType,
    TimeType,
)
from genus.records.internal import ERRORS, EXACT, ISO, NON_FINITE, TEXT, UNITS, ValueFormat, value_reader

FEW = 64
"""So many values are read one by one, rather than halved again."""
_REFUSED = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError)
_SURE_US = micros_of_time(datetime(2037, 1, 1, tzinfo=UTC))
"""Arrow's rules for summer time end there, Python's do not."""
_NAIVE, _DURATION = pa.timestamp("us"), pa.duration("us")
_LAYOUTS: dict[pa.DataType, pa.DataType] = {
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
    pa.null(): pa.string(),
    pa.float16(): pa.float64(),
    pa.float32(): pa.float64(),
    pa.duration("ns"): _DURATION,
    **{each: pa.int64() for each in (pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16(), pa.uint32())},
}

Mask: TypeAlias = npt.NDArray[np.bool_]
Fast: TypeAlias = Callable[[pa.Array, Any, ValueFormat], pa.Array | None]
"""Converts a column; None if it takes no columns of its type, an error of Arrow if it does not take some value."""


class CastColumn(NamedTuple):
    """An attribute's column, null where a value is absent or wrong, and a mask of the wrong rows."""

    column: pa.Array
    wrong: Mask

    @classmethod
    def good(cls, column: pa.Array) -> "CastColumn":
        return cls(column, np.zeros(len(column), np.bool_))


class Unreadable(str):
    """Shows a value that Python has not, such as text that is not UTF-8; no attribute accepts it."""


def valid_rows(column: pa.Array) -> Mask:
    found: Mask = column.is_valid().to_numpy(zero_copy_only=False)
    return found


def convert_json(values: list[Any], type_: AttributeType, form: ValueFormat) -> CastColumn:
    """Convert JSON values to an attribute's column.

    >>> column, wrong = convert_json([1.0, 1.5, None, "x"], IntType(8), ValueFormat())
    >>> column.to_pylist(), wrong.tolist()
    ([1, None, None, None], [False, True, False, True])
    """
    kinds = {*map(type, values)} - {type(None)}
    is_alike = len(kinds) <= 1 or (kinds == {int, float} and isinstance(type_, IntType | FloatType))
    if is_alike and not kinds & {dict, list} and not isinstance(type_, OpaqueType):
        with suppress(*_REFUSED):  # an integer of more than 64 bits, or one that is not exact as a float
            return convert_column(pa.array(values), type_, form)
    return read_values(values, type_, form)


def convert_column(column: pa.Array, type_: AttributeType, form: ValueFormat) -> CastColumn:
    """Convert an Arrow column of any type to an attribute's column.

    >>> column, wrong = convert_column(pa.array([1.0, 1.5, None]), IntType(8), ValueFormat())
    >>> column.to_pylist(), wrong.tolist()
    ([1, None, None], [False, True, False])
    """
    column = plain_column(column)
    fast = _FAST[type(type_)]
    return _convert(_without(column, form.absent), lambda part: fast(part, type_, form), type_, form)


def _convert(
    column: pa.Array, fast: Callable[[pa.Array], pa.Array | None], type_: AttributeType, form: ValueFormat
) -> CastColumn:
    if column.null_count == len(column):
        return CastColumn.good(pa.nulls(len(column), stored_type(type_)))
    try:
        if (made := fast(column)) is not None:
            return CastColumn.good(made)
    except _REFUSED:
        if len(column) > FEW:
            half = len(column) // 2
            parts = [_convert(part, fast, type_, form) for part in (column.slice(0, half), column.slice(half))]
            masks = np.concatenate([part.wrong for part in parts])
            return CastColumn(pa.concat_arrays([part.column for part in parts]), masks)
    try:
        encoded = column.dictionary_encode()
    except pa.ArrowNotImplementedError:  # lists and structs
        return read_values(python_values(column), type_, form)
    distinct, wrong = read_values(python_values(encoded.dictionary), type_, form)
    return CastColumn(distinct.take(encoded.indices), wrong[encoded.indices.fill_null(0)] & valid_rows(column))


# -- one by one --------------------------------------------------------------------------------------------------------


def read_values(values: Iterable[Any], type_: AttributeType, form: ValueFormat) -> CastColumn:
    """Convert values by the reader of `genus.records`, one by one."""
    read, store, made, wrong = value_reader(type_, form), _STORE.get(type(type_), _as_it_is), [], []
    for value in values:
        try:
            found = None if value is None else read(value)
            made.append(None if found is None else store(found))
            wrong.append(False)
        except (*ERRORS, TypeError):  # keys or extensions that JSON does not have are a TypeError
            made.append(None)
            wrong.append(True)
    return CastColumn(_stored_array(made, type_), np.array(wrong, np.bool_))


def _as_it_is(value: Any) -> Any:
    return value


_STORE: dict[type, Callable[[Any], Any]] = {
    TimeType: micros_of_time,
    DurationType: micros_of_duration,
    ChoiceType: lambda value: getattr(value, "value", value),
    OpaqueType: msgspec.json.encode,
}


def stored_values(values: Iterable[Any], type_: AttributeType) -> pa.Array:
    """Return the column of attribute values; raises one of `ERRORS` if an opaque one is too deep."""
    store = _STORE.get(type(type_), _as_it_is)
    return _stored_array([None if value is None else store(value) for value in values], type_)


def _stored_array(values: list[Any], type_: AttributeType) -> pa.Array:
    stored = stored_type(type_)
    if isinstance(type_, TimeType | DurationType):
        return pa.array(values, pa.int64()).cast(stored)
    if isinstance(type_, FloatType):
        return pa.array(values, pa.float64()).cast(stored, safe=False)
    return pa.array(values, stored)


def python_values(column: pa.Array) -> list[Any]:
    """Return the values of a column that `plain_column` made, as JSON or Python has them."""
    try:
        values: list[Any] = column.to_pylist()
    except (ValueError, OverflowError):
        values = [_python_value(scalar) for scalar in column]
    if not pa.types.is_decimal(column.type):
        return values
    return [
        int(each) if isinstance(each, Decimal) and each == each.to_integral_value() else each and float(each)
        for each in values
    ]


def _python_value(scalar: pa.Scalar) -> object:
    try:
        return scalar.as_py()
    except UnicodeDecodeError:
        return Unreadable(scalar.as_buffer().to_pybytes().decode("utf-8", "backslashreplace"))
    except (ValueError, OverflowError):
        return Unreadable(f"{scalar.value} as {scalar.type}")  # a time or duration that Python has not


# -- layouts -----------------------------------------------------------------------------------------------------------


def plain_column(column: pa.Array) -> pa.Array:
    """Convert a column to the one layout of its kind: no extensions, dictionaries, views or small numbers."""
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_fixed_size_binary(column.type):
        return column.cast(pa.binary())
    if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
        return column.cast(pa.timestamp("us", column.type.tz), safe=False)  # digits beyond microseconds are cut off
    return column.cast(_LAYOUTS[column.type], safe=False) if column.type in _LAYOUTS else column


def _without(column: pa.Array, absent: tuple[Any, ...]) -> pa.Array:
    names: list[Any]
    if pa.types.is_string(column.type):
        names = [value for value in absent if isinstance(value, str)]
    elif pa.types.is_int64(column.type):
        numbers = [value for value in absent if not isinstance(value, str) and value == value // 1]
        names = [int(value) for value in numbers if INT64_MIN <= value <= INT64_MAX]
    elif pa.types.is_float64(column.type):
        names = [float(value) for value in absent if not isinstance(value, str)]
        names += [-0.0, 0.0] if 0 in names else []  # Arrow's `is_in` tells them apart
    else:
        return column
    if not names:
        return column
    return pc.if_else(pc.is_in(column, value_set=pa.array(names, column.type)), pa.scalar(None, column.type), column)


# -- what Arrow takes --------------------------------------------------------------------------------------------------


def _all(column: pa.Array, good: pa.Array) -> pa.Array:
    """Return the column, if `good` is true for all of its values."""
    if pc.all(good).as_py() is False:
        raise pa.ArrowInvalid("not for Arrow")
    return column


def _among(column: pa.Array, values: Iterable[Any]) -> pa.Array:
    return _all(column, pc.is_in(column, value_set=pa.array([*values, None], column.type)))


def _within(column: pa.Array, low: float, high: float) -> pa.Array:
    return _all(column, pc.and_(pc.greater_equal(column, low), pc.less_equal(column, high)))


def _bools(column: pa.Array, type_: BoolType, form: ValueFormat) -> pa.Array | None:
    is_text = pa.types.is_string(column.type) and form.format == TEXT
    return column.cast(pa.bool_()) if is_text or pa.types.is_boolean(column.type) else None


def _ints(column: pa.Array, type_: IntType, form: ValueFormat) -> pa.Array | None:
    scale, low_high = form.scale, int_range(type_.bits, type_.signed)
    if scale is None or isinstance(scale, int):
        whole = _integers(column, form)
        whole = whole if whole is None or scale is None else pc.multiply_checked(whole, scale)
    else:
        numbers = _numbers(column, form)
        whole = None if numbers is None else _whole(pc.round(pc.multiply(numbers, scale)))
    return None if whole is None else _within(whole, *low_high).cast(stored_type(type_))


def _integers(column: pa.Array, form: ValueFormat) -> pa.Array | None:
    if pa.types.is_string(column.type) and form.format == TEXT:
        column = _numbers_of_text(column)
    if pa.types.is_floating(column.type):
        return _whole(column)
    return column.cast(pa.int64()) if pa.types.is_integer(column.type) or pa.types.is_decimal(column.type) else None


def _whole(column: pa.Array) -> pa.Array:
    """Convert floats without a fraction to integers."""
    return _within(_all(column, pc.equal(column, pc.floor(column))), -EXACT, EXACT).cast(pa.int64())


def _numbers_of_text(column: pa.Array) -> pa.Array:
    """Text as integers if no value has a point, as floats if all have one."""
    if pc.all(pc.match_substring(column, ".")).as_py():
        return column.cast(pa.float64())
    _all(column, pc.invert(pc.match_substring(column, "x", ignore_case=True)))  # Arrow accepts hexadecimal digits
    return column.cast(pa.int64())


def _floats(column: pa.Array, type_: FloatType, form: ValueFormat) -> pa.Array | None:
    numbers = _numbers(column, form)
    if numbers is not None and form.scale is not None:
        numbers = pc.multiply(numbers, float(form.scale))
    return None if numbers is None else numbers.cast(stored_type(type_), safe=False)


def _numbers(column: pa.Array, form: ValueFormat) -> pa.Array | None:
    if pa.types.is_string(column.type):
        if form.format != TEXT:
            _among(column, NON_FINITE)  # JSON has no numbers for them
        return column.cast(pa.float64())
    kind = column.type
    is_number = pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind)
    return column.cast(pa.float64(), safe=False) if is_number else None


def _texts(column: pa.Array, type_: AttributeType, form: ValueFormat) -> pa.Array | None:
    if not pa.types.is_string(column.type):
        return None
    column.validate(full=True)  # Parquet files may declare bytes as text that are not UTF-8
    return column


def _choices(column: pa.Array, type_: ChoiceType, form: ValueFormat) -> pa.Array | None:
    stored = stored_type(type_)
    values = _texts(column, type_, form) if stored == pa.string() else _integers(column, form)
    return None if values is None else _among(values, type_.values)


def _times(column: pa.Array, type_: TimeType, form: ValueFormat) -> pa.Array | None:
    if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
        has_zone = getattr(column.type, "tz", None) is not None  # a date has none
        if not has_zone and not form.zone:
            return None
        times = column.cast(INSTANT) if has_zone else _localize(column.cast(_NAIVE), form.zone)
    elif form.format in UNITS:
        micros = _micros(column, UNITS[form.format])
        times = None if micros is None else micros.cast(INSTANT)
    elif pa.types.is_string(column.type) and form.format in ("", ISO, TEXT):
        times = _times_of_iso(column, form.zone)
    else:
        return None
    return None if times is None else _within(times.cast(pa.int64()), FIRST_US, LAST_US).cast(INSTANT)


def _times_of_iso(column: pa.Array, zone: str) -> pa.Array:
    try:
        return column.cast(INSTANT)
    except pa.ArrowInvalid:
        if not zone:
            raise
        return _localize(column.cast(_NAIVE), zone)


def _localize(naive: pa.Array, zone: str) -> pa.Array:
    _within(naive.cast(pa.int64()), FIRST_US, _SURE_US)
    return pc.assume_timezone(naive, zone, ambiguous="earliest", nonexistent="raise").cast(INSTANT)


def _durations(column: pa.Array, type_: DurationType, form: ValueFormat) -> pa.Array | None:
    if pa.types.is_duration(column.type):
        return column.cast(_DURATION)
    if pa.types.is_string(column.type) and form.format not in UNITS:
        return None
    micros = _micros(column, UNITS.get(form.format, UNITS["s"]))
    return None if micros is None else micros.cast(_DURATION)


def _micros(column: pa.Array, unit: int) -> pa.Array | None:
    """Convert numbers of a unit to microseconds: integers exactly, nanoseconds cut off, floats rounded."""
    if pa.types.is_string(column.type):
        column = _numbers_of_text(column)
    if pa.types.is_floating(column.type):
        micros = pc.round(pc.multiply(column, unit / 1000))
        return _all(micros, pc.less(pc.abs(micros), 2.0**63)).cast(pa.int64())
    if not pa.types.is_int64(column.type):
        return None
    if unit >= 1000:
        return pc.multiply_checked(column, unit // 1000)
    floor = np.floor_divide(column.fill_null(0).to_numpy(), 1000 // unit)  # Arrow divides towards zero
    return pa.array(floor, mask=~valid_rows(column))


_FAST: dict[type, Fast] = {
    BoolType: _bools,
    IntType: _ints,
    FloatType: _floats,
    TextType: _texts,
    BytesType: lambda column, type_, form: column if pa.types.is_binary(column.type) else None,
    TimeType: _times,
    DurationType: _durations,
    ChoiceType: _choices,
    OpaqueType: lambda column, type_, form: None,
}
