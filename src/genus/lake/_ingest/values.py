"""Values as others write them, turned into attribute columns a column at a time, with the rows that are wrong.

What is taken for what is a table by attribute type (docs/lake-ingest.md shows it). Nothing is guessed: text is not a
number unless all is text, as in CSV, or the mapping says so; true is not 1; 1.0 is the integer 1, and 1.5 is none.
"""

import base64
import binascii
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from genus.lake._ingest.cast import (
    TEXT,
    Read,
    attempt,
    by_value,
    or_else,
    read_durations,
    read_times,
    refused,
    then,
    where,
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
from genus.model._types import int_range

HEX, BASE64 = "hex", "base64"
EXACT = 2.0**53
"""Floats up to here are exact integers; one beyond may have been another number."""
_NO_NUMBERS = ("NaN", "Infinity", "-Infinity")
_LAYOUTS: dict[pa.DataType, pa.DataType] = {
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
    pa.null(): pa.string(),
}


class Spelling(msgspec.Struct, frozen=True):
    """How the values of a field are written."""

    format: str = ""
    """`iso`, `s`, `ms`, `us`, `ns` or a pattern of strptime; `hex` for bytes; `text` for numbers written as text."""
    zone: str = ""
    """The zone of times that name none."""
    scale: float | None = None
    """What numbers are multiplied by."""
    absent: tuple[str | int | float, ...] = ()
    """Values that mean there is none."""

    def as_text(self) -> "Spelling":
        """The same where all is text, and who splits it into values knows which are absent."""
        return msgspec.structs.replace(self, format=self.format or TEXT, absent=())


def convert(column: pa.Array, type_: AttributeType, spelling: Spelling) -> Read:
    """An attribute's column from an Arrow column of any type.

    >>> column, wrong = convert(pa.array([1.0, 1.5, None]), IntType(8), Spelling())
    >>> column.to_pylist(), wrong.tolist()
    ([1, None, None], [False, True, False])
    """
    column = _without(_plain(column), spelling.absent)
    if column.null_count == len(column):
        return Read(pa.nulls(len(column), stored_type(type_)))
    return _READERS[type(type_)](column, type_, spelling)


def convert_json(values: list[Any], type_: AttributeType, spelling: Spelling) -> Read:
    """An attribute's column from values that were JSON; values of several kinds are read kind by kind."""
    if isinstance(type_, OpaqueType):
        return _opaque_json(values, spelling.absent)
    kinds = set(map(type, values)) - {type(None)}
    if kinds == {int, float} and isinstance(type_, FloatType):
        values, kinds = [value if value is None else float(value) for value in values], {float}
    if len(kinds) <= 1:
        return _of_kind(values, kinds.pop() if kinds else str, type_, spelling)
    reads = [
        _of_kind([value if type(value) is kind else None for value in values], kind, type_, spelling)
        for kind in sorted(kinds, key=str)
    ]
    wrongs = [read.wrong for read in reads if read.wrong is not None]
    return Read(pc.coalesce(*(read.column for read in reads)), np.logical_or.reduce(wrongs) if wrongs else None)


# -- Python values to Arrow --------------------------------------------------------------------------------------------

_KINDS: dict[type, pa.DataType] = {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string()}


def _of_kind(values: list[Any], kind: type, type_: AttributeType, spelling: Spelling) -> Read:
    stored = _KINDS.get(kind)
    if stored is None:  # a list or an object
        return Read(pa.nulls(len(values), stored_type(type_)), np.array([value is not None for value in values]))
    try:
        return convert(pa.array(values, stored), type_, spelling)
    except OverflowError:
        return _of_large(values, type_, spelling)


def _of_large(values: list[int | None], type_: AttributeType, spelling: Spelling) -> Read:
    """Integers with some beyond 64 bits: right for a float only."""
    if isinstance(type_, FloatType):
        return convert(pa.array([None if v is None else float(v) for v in values], pa.float64()), type_, spelling)
    fits = [value is None or -(1 << 63) <= value < 1 << 63 for value in values]
    kept = pa.array([value if fit else None for value, fit in zip(values, fits, strict=True)], pa.int64())
    return then(Read(kept, ~np.array(fits)), lambda column: convert(column, type_, spelling))


def _opaque_json(values: list[Any], absent: tuple[Any, ...]) -> Read:
    texts: list[bytes | None] = []
    wrong = np.zeros(len(values), np.bool_)
    for row, value in enumerate(values):
        try:
            texts.append(None if value is None or _is_among(value, absent) else msgspec.json.encode(value))
        except RecursionError:
            texts.append(None)
            wrong[row] = True
    return Read(pa.array(texts, pa.string()), wrong if wrong.any() else None)


def _is_among(value: Any, absent: tuple[Any, ...]) -> bool:
    return type(value) in (str, int, float) and value in absent


# -- Arrow to attributes -----------------------------------------------------------------------------------------------


def _plain(column: pa.Array) -> pa.Array:
    """A column in the one layout of its values."""
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
    """A column without the values that mean there is none."""
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
        return pa.array([float(value) for value in numbers], kind)
    fitting = attempt(
        pa.array([int(value) for value in numbers if value == int(value)], pa.int64()), lambda a: a.cast(kind)
    )
    return fitting.column.drop_null()


def _bools(column: pa.Array, type_: AttributeType, spelling: Spelling) -> Read:
    if pa.types.is_boolean(column.type):
        return Read(column)
    if pa.types.is_string(column.type) and spelling.format == TEXT:
        return attempt(column, lambda part: part.cast(pa.bool_()))
    return refused(column, pa.bool_())


def _ints(column: pa.Array, type_: AttributeType, spelling: Spelling) -> Read:
    assert isinstance(type_, IntType)
    low, high = int_range(type_.bits, type_.signed)
    whole = _scaled_ints(column, spelling)
    fitting = then(whole, lambda c: where(c, pc.and_(pc.greater_equal(c, low), pc.less_equal(c, high))))
    return Read(fitting.column.cast(stored_type(type_)), fitting.wrong)


def _scaled_ints(column: pa.Array, spelling: Spelling) -> Read:
    scale = spelling.scale
    if scale is None:
        return _integers(column, spelling)
    if isinstance(scale, int):
        return then(_integers(column, spelling), lambda c: attempt(c, lambda part: pc.multiply_checked(part, scale)))
    return then(then(_numbers(column, spelling), lambda c: Read(pc.round(pc.multiply(c, scale)))), _whole)


def _integers(column: pa.Array, spelling: Spelling) -> Read:
    kind = column.type
    if pa.types.is_int64(kind):
        return Read(column)
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return attempt(column, lambda part: part.cast(pa.int64()))
    if pa.types.is_floating(kind):
        return _whole(column.cast(pa.float64()))
    if pa.types.is_string(kind) and spelling.format == TEXT:
        return or_else(attempt(column, _int_of_text), column, lambda rest: then(_floats_of_text(rest), _whole))
    return refused(column, pa.int64())


def _int_of_text(column: pa.Array) -> pa.Array:
    if pc.any(pc.match_substring(column, "x", ignore_case=True)).as_py():
        raise pa.ArrowInvalid("hexadecimal digits")  # Arrow would take them
    return column.cast(pa.int64())


def _whole(column: pa.Array) -> Read:
    """Floats that are integers, as such."""
    good = pc.and_(pc.equal(column, pc.floor(column)), pc.less_equal(pc.abs(column), EXACT))
    return then(where(column, good), lambda whole: Read(whole.cast(pa.int64())))


def _floats(column: pa.Array, type_: AttributeType, spelling: Spelling) -> Read:
    read = _numbers(column, spelling)
    if spelling.scale is not None:
        read = Read(pc.multiply(read.column, float(spelling.scale)), read.wrong)
    return Read(read.column.cast(stored_type(type_), safe=False), read.wrong)


def _numbers(column: pa.Array, spelling: Spelling) -> Read:
    kind = column.type
    if pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return Read(column.cast(pa.float64(), safe=False))
    if not pa.types.is_string(kind):
        return refused(column, pa.float64())
    if spelling.format == TEXT:
        return _floats_of_text(column)
    named = where(column, pc.is_in(column, value_set=pa.array(_NO_NUMBERS)))  # JSON has no other way to write them
    return then(named, _floats_of_text)


def _floats_of_text(column: pa.Array) -> Read:
    return attempt(column, lambda part: part.cast(pa.float64()))


def _texts(column: pa.Array, type_: AttributeType, spelling: Spelling) -> Read:
    return attempt(column, _checked) if pa.types.is_string(column.type) else refused(column, pa.string())


def _checked(column: pa.Array) -> pa.Array:
    column.validate(full=True)  # a file may call bytes text that are none
    return column


def _octets(column: pa.Array, type_: AttributeType, spelling: Spelling) -> Read:
    if pa.types.is_binary(column.type):
        return Read(column)
    if not pa.types.is_string(column.type):
        return refused(column, pa.binary())
    return by_value(column, bytes.fromhex if spelling.format == HEX else _of_base64, pa.binary())


def _of_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as problem:
        raise ValueError(str(problem)) from None


def _choices(column: pa.Array, type_: AttributeType, spelling: Spelling) -> Read:
    assert isinstance(type_, ChoiceType)
    stored = stored_type(type_)
    read = _texts(column, type_, spelling) if stored == pa.string() else _integers(column, spelling)
    return then(read, lambda c: where(c, pc.is_in(c, value_set=pa.array(type_.values, stored))))


def _opaques(column: pa.Array, type_: AttributeType, spelling: Spelling) -> Read:
    """JSON text is checked and written as Genus writes it; anything else becomes JSON."""
    if pa.types.is_string(column.type):
        return by_value(column, lambda text: msgspec.json.encode(msgspec.json.decode(text)), pa.string())
    return _opaque_json(column.to_pylist(), ())


_READERS: dict[type, Callable[[pa.Array, AttributeType, Spelling], Read]] = {
    BoolType: _bools,
    IntType: _ints,
    FloatType: _floats,
    TextType: _texts,
    BytesType: _octets,
    TimeType: lambda column, _, spelling: read_times(column, spelling.format, spelling.zone),
    DurationType: lambda column, _, spelling: read_durations(column, spelling.format),
    ChoiceType: _choices,
    OpaqueType: _opaques,
}
