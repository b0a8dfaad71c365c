"""Conversion of JSON values and Arrow columns to attribute columns, with the rows that are wrong.

The table in docs/lake-ingest.md shows which values an attribute type accepts; `genus.records` has the same rules for a
single value. Nothing is guessed: text is not a number unless the format is text, as CSV is, or the mapping says so;
true is not 1; 1.0 is the integer 1, 1.5 is not an integer.
"""

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from genus.lake._ingest.safe_cast import (
    CastColumn,
    cast_each,
    int_of_text,
    keep_where,
    parse_durations,
    parse_times,
    parse_values,
    reject_all,
    retry_wrong,
    then_cast,
)
from genus.lake._tables.columns import stored_type
from genus.model import (
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
from genus.model._types import INT64_MAX, INT64_MIN, int_range
from genus.records._values import EXACT, HEX, NON_FINITE, TEXT, ValueFormat, decode_base64

_LAYOUTS: dict[pa.DataType, pa.DataType] = {
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
    pa.null(): pa.string(),
}


def convert_column(column: pa.Array, type_: AttributeType, form: ValueFormat) -> CastColumn:
    """Convert an Arrow column of any type to an attribute's column.

    >>> column, wrong = convert_column(pa.array([1.0, 1.5, None]), IntType(8), ValueFormat())
    >>> column.to_pylist(), wrong.tolist()
    ([1, None, None], [False, True, False])
    """
    column = _without(_plain(column), form.absent)
    if column.null_count == len(column):
        return CastColumn(pa.nulls(len(column), stored_type(type_)))
    return _CONVERTERS[type(type_)](column, type_, form)


def convert_json(values: list[Any], type_: AttributeType, form: ValueFormat) -> CastColumn:
    """Convert JSON values to an attribute's column; values of different Python types are converted separately."""
    if isinstance(type_, OpaqueType):
        return _opaque_json(values, form.absent)
    kinds = set(map(type, values)) - {type(None)}
    if kinds == {int, float} and isinstance(type_, FloatType):
        values = [_as_float(value) for value in values]
        kinds = set(map(type, values)) - {type(None)}
    if len(kinds) <= 1:
        return _convert_kind(values, kinds.pop() if kinds else str, type_, form)
    parts = [
        _convert_kind([value if type(value) is kind else None for value in values], kind, type_, form)
        for kind in sorted(kinds, key=str)
    ]
    wrongs = [part.wrong for part in parts if part.wrong is not None]
    return CastColumn(pc.coalesce(*(part.column for part in parts)), np.logical_or.reduce(wrongs) if wrongs else None)


# -- Python values to Arrow --------------------------------------------------------------------------------------------

_KINDS: dict[type, pa.DataType] = {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string()}


def _convert_kind(values: list[Any], kind: type, type_: AttributeType, form: ValueFormat) -> CastColumn:
    stored = _KINDS.get(kind)
    if stored is None:  # a list or an object
        return CastColumn(pa.nulls(len(values), stored_type(type_)), np.array([value is not None for value in values]))
    try:
        return convert_column(pa.array(values, stored), type_, form)
    except OverflowError:
        return _convert_large(values, type_, form)


def _convert_large(values: list[int | None], type_: AttributeType, form: ValueFormat) -> CastColumn:
    """Convert integers some of which exceed 64 bits; these are wrong except for a float."""
    if isinstance(type_, FloatType):
        return _convert_large_floats(values, type_, form)
    fits = [value is None or -(1 << 63) <= value < 1 << 63 for value in values]
    kept = pa.array([value if fit else None for value, fit in zip(values, fits, strict=True)], pa.int64())
    return then_cast(CastColumn(kept, ~np.array(fits)), lambda column: convert_column(column, type_, form))


def _convert_large_floats(values: list[int | None], type_: AttributeType, form: ValueFormat) -> CastColumn:
    """Convert integers to floats; those beyond the largest float are wrong."""
    floats = [_as_float(value) for value in values]
    wrong = np.array([type(each) is int for each in floats])
    kept = pa.array([None if type(each) is int else each for each in floats], pa.float64())
    return then_cast(CastColumn(kept, wrong), lambda column: convert_column(column, type_, form))


def _as_float(value: float | int | None) -> float | int | None:
    """A number as a float; an integer beyond the largest float stays one."""
    try:
        return None if value is None else float(value)
    except OverflowError:
        return value


def _opaque_json(values: list[Any], absent: tuple[Any, ...]) -> CastColumn:
    texts: list[bytes | None] = []
    wrong = np.zeros(len(values), np.bool_)
    for row, value in enumerate(values):
        try:
            texts.append(None if value is None or _is_among(value, absent) else msgspec.json.encode(value))
        except RecursionError:
            texts.append(None)
            wrong[row] = True
    return CastColumn(pa.array(texts, pa.string()), wrong if wrong.any() else None)


def _is_among(value: Any, absent: tuple[Any, ...]) -> bool:
    return type(value) in (str, int, float) and value in absent


# -- Arrow to attributes -----------------------------------------------------------------------------------------------


def _plain(column: pa.Array) -> pa.Array:
    """Convert a column to the standard layout of its type: no extensions, dictionaries or views."""
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_fixed_size_binary(column.type):
        return column.cast(pa.binary())
    if pa.types.is_float16(column.type):
        return column.cast(pa.float32())
    return column.cast(_LAYOUTS[column.type]) if column.type in _LAYOUTS else column


def _without(column: pa.Array, absent: tuple[Any, ...]) -> pa.Array:
    """Replace the values that mean absent by null."""
    if pa.types.is_string(column.type):
        names = pa.array([value for value in absent if isinstance(value, str)], pa.string())
    elif pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        names = _numbers_among(absent, column.type)
    else:
        return column
    if not len(names):
        return column
    return pc.if_else(pc.is_in(column, value_set=names), pa.scalar(None, column.type), column)


def _numbers_among(absent: tuple[Any, ...], kind: pa.DataType) -> pa.Array:
    numbers = [value for value in absent if not isinstance(value, str)]
    if pa.types.is_floating(kind):
        zeros = [0.0, -0.0] if 0 in numbers else []  # Arrow's `is_in` tells them apart
        return pa.array([*map(float, numbers), *zeros], kind)
    whole = [int(value) for value in numbers if isinstance(value, int) or value.is_integer()]
    fitting = pa.array([value for value in whole if INT64_MIN <= value <= INT64_MAX], pa.int64())
    return cast_each(fitting, lambda part: part.cast(kind)).column.drop_null()


def _bools(column: pa.Array, type_: AttributeType, form: ValueFormat) -> CastColumn:
    if pa.types.is_boolean(column.type):
        return CastColumn(column)
    if pa.types.is_string(column.type) and form.format == TEXT:
        return cast_each(column, lambda part: part.cast(pa.bool_()))
    return reject_all(column, pa.bool_())


def _ints(column: pa.Array, type_: AttributeType, form: ValueFormat) -> CastColumn:
    assert isinstance(type_, IntType)
    low, high = int_range(type_.bits, type_.signed)
    whole = _scaled_ints(column, form)
    fitting = then_cast(whole, lambda c: keep_where(c, pc.and_(pc.greater_equal(c, low), pc.less_equal(c, high))))
    return CastColumn(fitting.column.cast(stored_type(type_)), fitting.wrong)


def _scaled_ints(column: pa.Array, form: ValueFormat) -> CastColumn:
    scale = form.scale
    if scale is None:
        return _integers(column, form)
    if isinstance(scale, int):
        return then_cast(_integers(column, form), lambda c: cast_each(c, lambda part: pc.multiply_checked(part, scale)))
    return then_cast(then_cast(_numbers(column, form), lambda c: CastColumn(pc.round(pc.multiply(c, scale)))), _whole)


def _integers(column: pa.Array, form: ValueFormat) -> CastColumn:
    kind = column.type
    if pa.types.is_int64(kind):
        return CastColumn(column)
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return cast_each(column, lambda part: part.cast(pa.int64()))
    if pa.types.is_floating(kind):
        return _whole(column.cast(pa.float64()))
    if pa.types.is_string(kind) and form.format == TEXT:
        return retry_wrong(
            cast_each(column, int_of_text), column, lambda rest: then_cast(_floats_of_text(rest), _whole)
        )
    return reject_all(column, pa.int64())


def _whole(column: pa.Array) -> CastColumn:
    """Convert floats without a fraction to integers."""
    good = pc.and_(pc.equal(column, pc.floor(column)), pc.less_equal(pc.abs(column), EXACT))
    return then_cast(keep_where(column, good), lambda whole: CastColumn(whole.cast(pa.int64())))


def _floats(column: pa.Array, type_: AttributeType, form: ValueFormat) -> CastColumn:
    numbers = _numbers(column, form)
    if form.scale is not None:
        numbers = CastColumn(pc.multiply(numbers.column, float(form.scale)), numbers.wrong)
    return CastColumn(numbers.column.cast(stored_type(type_), safe=False), numbers.wrong)


def _numbers(column: pa.Array, form: ValueFormat) -> CastColumn:
    kind = column.type
    if pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return CastColumn(column.cast(pa.float64(), safe=False))
    if not pa.types.is_string(kind):
        return reject_all(column, pa.float64())
    if form.format == TEXT:
        return _floats_of_text(column)
    non_finite = keep_where(column, pc.is_in(column, value_set=pa.array(NON_FINITE)))  # JSON has no numbers for them
    return then_cast(non_finite, _floats_of_text)


def _floats_of_text(column: pa.Array) -> CastColumn:
    return cast_each(column, lambda part: part.cast(pa.float64()))


def _texts(column: pa.Array, type_: AttributeType, form: ValueFormat) -> CastColumn:
    return cast_each(column, _check_utf8) if pa.types.is_string(column.type) else reject_all(column, pa.string())


def _check_utf8(column: pa.Array) -> pa.Array:
    column.validate(full=True)  # Parquet files may declare bytes as text that are not UTF-8
    return column


def _octets(column: pa.Array, type_: AttributeType, form: ValueFormat) -> CastColumn:
    if pa.types.is_binary(column.type):
        return CastColumn(column)
    if not pa.types.is_string(column.type):
        return reject_all(column, pa.binary())
    return parse_values(column, bytes.fromhex if form.format == HEX else decode_base64, pa.binary())


def _choices(column: pa.Array, type_: AttributeType, form: ValueFormat) -> CastColumn:
    assert isinstance(type_, ChoiceType)
    stored = stored_type(type_)
    values = _texts(column, type_, form) if stored == pa.string() else _integers(column, form)
    return then_cast(values, lambda c: keep_where(c, pc.is_in(c, value_set=pa.array(type_.values, stored))))


def _opaques(column: pa.Array, type_: AttributeType, form: ValueFormat) -> CastColumn:
    """Validate and normalise JSON text; encode other values as JSON."""
    if pa.types.is_string(column.type):
        return parse_values(column, lambda text: msgspec.json.encode(msgspec.json.decode(text)), pa.string())
    return _opaque_json(column.to_pylist(), ())


_CONVERTERS: dict[type, Callable[[pa.Array, AttributeType, ValueFormat], CastColumn]] = {
    BoolType: _bools,
    IntType: _ints,
    FloatType: _floats,
    TextType: _texts,
    BytesType: _octets,
    TimeType: lambda column, _, form: parse_times(column, form.format, form.zone),
    DurationType: lambda column, _, form: parse_durations(column, form.format),
    ChoiceType: _choices,
    OpaqueType: _opaques,
}
