"""Constants of pyarrow, made from their bytes.

`pyarrow.scalar` and `pyarrow.array` import pandas where it is installed, which takes longer than a small query.
"""

from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any

import pyarrow as pa

_CODES = {pa.int64(): "q", pa.int32(): "i", pa.int8(): "b", pa.float64(): "d"}


def constants(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    """Values that are all known, as an array of a computed type.

    >>> constants(["a", "é"], pa.string()).to_pylist(), constants([True], pa.bool_()).to_pylist()
    (['a', 'é'], [True])
    """
    if type_ == pa.bool_():
        return constants(values, pa.int8()).cast(type_)
    if type_ in (pa.string(), pa.binary()):
        parts = [value.encode() if isinstance(value, str) else bytes(value) for value in values]
        offsets = _buffer("i", accumulate(map(len, parts), initial=0))
        return pa.Array.from_buffers(type_, len(parts), [None, offsets, pa.py_buffer(b"".join(parts))])
    if type_ == pa.date32():
        return constants(values, pa.int32()).view(type_)
    return pa.Array.from_buffers(type_, len(values), [None, _buffer(_CODES[type_], values)])


def constant(value: Any, type_: pa.DataType) -> pa.Scalar:
    """Return a value of a computed type; None for unknown.

    >>> constant(2.5, pa.float64()).as_py(), constant(None, pa.string()).as_py()
    (2.5, None)
    """
    return (pa.nulls(1, type_) if value is None else constants([value], type_))[0]


def _buffer(code: str, numbers: Iterable[Any]) -> pa.Buffer:
    return pa.py_buffer(array(code, numbers).tobytes())
