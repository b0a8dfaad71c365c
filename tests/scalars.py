"""Scalars of numpy and pandas that are equal to a plain value, for tests of what events and predicates take."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pandas as pd

from genus.model import micros_of_duration
from genus.model._types import INT64_MIN

INTEGERS = (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64)
FLOATS = (np.float64, np.float32, np.float16)
TICKS = (("W", 604_800_000_000), ("D", 86_400_000_000), ("h", 3_600_000_000), ("s", 1_000_000), ("ms", 1000), ("us", 1))


def scalars(value: Any) -> Iterator[Any]:
    """Every scalar of numpy and pandas that is equal to a plain value; nothing for values of other classes."""
    match value:
        case bool():
            yield np.bool_(value)
        case int():
            yield from (cls(value) for cls in INTEGERS if np.iinfo(cls).min <= value <= np.iinfo(cls).max)
        case float():
            with np.errstate(over="ignore"):
                yield from (cls(value) for cls in FLOATS if float(cls(value)) == value or value != value)
        case str():
            yield np.str_(value)
        case bytes():
            yield np.bytes_(value)
        case datetime():
            yield pd.Timestamp(value)
        case timedelta():
            yield from _durations(value)


def _durations(value: timedelta) -> Iterator[Any]:
    micros = micros_of_duration(value)
    if micros == INT64_MIN:
        return  # numpy means NaT by it
    make: Any = np.timedelta64
    yield from (make(micros // tick, unit) for unit, tick in TICKS if micros % tick == 0)
    if abs(micros) < 2**63 // 1000:
        yield np.timedelta64(micros * 1000, "ns")
        yield pd.Timedelta(value)
