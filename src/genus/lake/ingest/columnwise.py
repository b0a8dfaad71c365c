"""Columns read with doubt: what could be read of one, and which rows could not.

Casts of Arrow refuse a whole array for one bad value. `attempt` halves an array until the bad values are alone, so
that a good column costs one cast, and a bad value some twenty.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

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
