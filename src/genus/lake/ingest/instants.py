"""Times and durations as msgpack has them, turned into columns of microseconds many at a time.

A time is read as the bytes it has in the packet, and the usual forms, timestamps of 4, 8 and 12 bytes, are decoded
together. What is left, as texts with a zone and fractions of microseconds, is decoded one by one as the bus does.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any, NamedTuple, cast

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from genus.lake.columns import INSTANT
from genus.model.types import INT64_MAX, INT64_MIN, micros_of_duration, micros_of_time

FIRST_US = micros_of_time(datetime.fromisoformat("0001-01-01T00:00:00Z"))
LAST_US = micros_of_time(datetime.fromisoformat("9999-12-31T23:59:59.999999Z"))
AWARE = Annotated[datetime, msgspec.Meta(tz=True)]

_SECONDS = np.uint64(34)
"""A timestamp of 8 bytes has so many bits of seconds, below its nanoseconds."""
_LOW_SECONDS = np.uint64((1 << 34) - 1)
_BILLION = 1_000_000_000

_decode_time = msgspec.msgpack.Decoder(AWARE | None).decode

Micros = npt.NDArray[np.int64]


class Column(NamedTuple):
    """Values as a lake stores them, null where there is none, and the rows whose value is not one of the type."""

    values: pa.Array
    unfit: list[int]


class _Timestamps(NamedTuple):
    seconds: Micros
    nanos: Micros


def _four(data: bytes, begins: Micros) -> _Timestamps:
    return _Timestamps(_at(data, ">u4", begins), np.zeros_like(begins))


def _eight(data: bytes, begins: Micros) -> _Timestamps:
    both = _at(data, ">u8", begins).view(np.uint64)
    return _Timestamps((both & _LOW_SECONDS).view(np.int64), (both >> _SECONDS).view(np.int64))


def _twelve(data: bytes, begins: Micros) -> _Timestamps:
    return _Timestamps(_at(data, ">i8", begins + 4), _at(data, ">u4", begins))


def _at(data: bytes, form: str, begins: Micros) -> Micros:
    """Numbers of a form that begin at any bytes; those of 64 bits without sign keep their bits."""
    size = np.dtype(form).itemsize
    numbers: Any = np.ndarray((max(len(data) - size + 1, 0),), form, data, strides=(1,))
    return numbers[begins].astype(np.uint64 if form == ">u8" else np.int64).view(np.int64)  # type: ignore[no-any-return]


_FORMS = {6: (b"\xd6\xff", _four), 10: (b"\xd7\xff", _eight), 15: (b"\xc7\x0c\xff", _twelve)}
"""By length in the packet: how it begins, and what reads the rest."""


def time_column(values: list[msgspec.Raw | None]) -> Column:
    """The column of times as packets have them.

    >>> packed = msgspec.msgpack.encode(datetime.fromisoformat("2026-01-01T00:00:00.5Z"))
    >>> time_column([msgspec.Raw(packed), None, msgspec.Raw(b"no time")]).unfit
    [2]
    """
    if values.count(None) == len(values):
        return Column(pa.nulls(len(values), INSTANT), [])
    rows = np.flatnonzero([value is not None for value in values])
    micros, absent = np.zeros(len(values), np.int64), np.ones(len(values), np.bool_)
    present = [value for value in values if value is not None] if len(rows) < len(values) else values
    found, known = _together(cast("list[msgspec.Raw]", present))
    micros[rows], absent[rows] = found, ~known
    unfit = [row for row in rows[~known].tolist() if not _alone(values, row, micros, absent)]
    return Column(pa.array(micros, mask=absent).cast(INSTANT), unfit)


def _together(raws: Sequence[msgspec.Raw]) -> tuple[Micros, npt.NDArray[np.bool_]]:
    """Microseconds of those in the usual forms, and which they are."""
    lengths = np.fromiter(map(len, raws), np.int64, len(raws))
    data = b"".join(raws)
    begins = np.cumsum(lengths) - lengths
    micros, known = np.zeros(len(raws), np.int64), np.zeros(len(raws), np.bool_)
    for length, (prefix, read) in _FORMS.items():
        rows = np.flatnonzero(lengths == length)
        rows = rows[_begin_with(data, begins[rows], prefix)]
        seconds, nanos = read(data, begins[rows] + len(prefix))
        fit = (seconds >= FIRST_US // 1_000_000) & (seconds <= LAST_US // 1_000_000)
        fit &= (nanos < _BILLION) & (nanos % 1000 == 0)
        micros[rows[fit]] = (seconds * 1_000_000 + nanos // 1000)[fit]
        known[rows[fit]] = True
    return micros, known


def _begin_with(data: bytes, begins: Micros, prefix: bytes) -> npt.NDArray[np.bool_]:
    octets = np.frombuffer(data, np.uint8)
    alike = np.ones(len(begins), np.bool_)
    for place, octet in enumerate(prefix):
        alike &= octets[begins + place] == octet
    return alike


def _alone(values: Sequence[Any], row: int, micros: Micros, absent: npt.NDArray[np.bool_]) -> bool:
    """Decode one; whether it is a time, or nil, which is none."""
    try:
        moment = _decode_time(values[row])
    except Exception:  # Unicode and ranges raise errors of their own
        return False
    if moment is None:
        return True
    micros[row] = us = micros_of_time(moment)
    absent[row] = not FIRST_US <= us <= LAST_US
    return not absent[row]


def duration_column(values: Sequence[timedelta | None]) -> Column:
    """The column of durations.

    >>> duration_column([timedelta(seconds=1), timedelta.max]).unfit
    [1]
    """
    micros = [None if value is None else micros_of_duration(value) for value in values]
    unfit = [row for row, us in enumerate(micros) if us is not None and not INT64_MIN <= us <= INT64_MAX]
    for row in unfit:
        micros[row] = None
    return Column(pa.array(micros, pa.int64()).cast(pa.duration("us")), unfit)
