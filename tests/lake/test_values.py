"""What readers of files accept is what `check` accepts: no value raises, and none becomes another one."""

import json
import math
import random
from datetime import timedelta
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from genus import check
from genus.lake._ingest.values import CastColumn, convert_column, convert_json
from genus.model import attributes
from genus.model._types import INT64_MAX, INT64_MIN
from genus.model.types import Attribute, ChoiceType, OpaqueType, TimeType
from genus.records._values import ValueFormat
from tests.generators import Sampler

KNOWN = [each for each in attributes(Sampler) if not isinstance(each.type, OpaqueType)]
FORMATS = [ValueFormat(), *(ValueFormat(format=each) for each in ("s", "ms", "us", "ns", "iso", "text", "hex"))]
FORMATS += [ValueFormat(zone="Europe/Berlin"), ValueFormat(scale=1000), ValueFormat(scale=0.5)]

JSON = [
    *(None, True, False, 0, 1, -1, 127, 128, 255, 256, 2**31, 2**53 + 1, INT64_MAX, INT64_MIN, 2**63, 2**64, 10**30),
    *(10**400, -(10**400), 0.5, 1.0, -0.0, 1e300, "", "red", "1", "x", "NaN", "Infinity", "-Infinity", "inf", "1e400"),
    *("P200000000D", "-P106751992D", "PT1S", "P1D", "0001-01-01T00:00:00+05:00", "9999-12-31T23:59:59-01:00"),
    *("2026-06-01T12:00:00Z", "2026-06-01T12:00:00", "10000-01-01T00:00:00Z", [], [1], {"a": 1}, "YQ==", "61"),
]

INTEGERS = [0, 1, -1, 2**31 - 1, 2**53 + 1, 2**61 + 5, 2**62, INT64_MAX, INT64_MIN, INT64_MIN + 1]
COLUMNS: list[pa.Array] = [
    *(pa.array(INTEGERS, pa.duration(unit)) for unit in ("s", "ms", "us", "ns")),
    *(pa.array(INTEGERS, pa.timestamp(unit, tz)) for unit in ("s", "ms", "us", "ns") for tz in (None, "UTC")),
    *(pa.array([0, 2**31 - 1, -(2**31)], pa.date32()), pa.array([0, 2**62 // 86_400_000 * 86_400_000], pa.date64())),
    *(pa.array(INTEGERS, pa.int64()), pa.array([0, 2**64 - 1, 255], pa.uint64()), pa.array([-128, 127], pa.int8())),
    *(pa.array([0.5, 1.0, math.nan, math.inf, 1e308, -0.0], pa.float64()), pa.array([1.5, math.inf], pa.float32())),
    *(pa.array(["red", "1", "x", "é"]), pa.array([b"\xff", b"a"]), pa.array([True, False])),
    *(pa.array([2**62, 1], pa.decimal128(38, 0)), pa.array([None, None], pa.null())),
]


def stored(cast: CastColumn, attribute: Attribute) -> list[Any]:
    """The values that were kept, as an event has them."""
    values = cast.column
    if isinstance(attribute.type, TimeType):
        return [each.as_py() for each in values]
    if pa.types.is_duration(values.type):
        micros = values.cast(pa.int64()).to_pylist()
        return [None if each is None else timedelta(microseconds=each) for each in micros]
    found: list[Any] = values.to_pylist()
    if isinstance(attribute.type, ChoiceType) and attribute.type.enum is not None:
        return [None if each is None else attribute.type.enum(each) for each in found]
    return found


@pytest.mark.parametrize("attribute", KNOWN, ids=lambda each: each.name)
def test_what_is_kept_of_json_passes_and_nothing_raises(attribute: Attribute) -> None:
    """Alone and among others: a column may hold values of several types."""
    chance = random.Random(attribute.name)
    for form in FORMATS:
        columns = [[value] for value in JSON] + [chance.sample(JSON, 6) for _ in range(60)]
        for values in columns:
            cast = convert_json(list(values), attribute.type, form)
            for value, kept, wrong in zip(values, stored(cast, attribute), cast.wrong.tolist(), strict=True):
                assert (kept is None) == (value is None or wrong), (form, value)
                check(Sampler(**{attribute.name: kept}))


@pytest.mark.parametrize("attribute", KNOWN, ids=lambda each: each.name)
def test_what_is_kept_of_a_column_passes_and_nothing_raises(attribute: Attribute) -> None:
    for form in FORMATS:
        for column in COLUMNS:
            cast = convert_column(column, attribute.type, form)
            for kept, wrong, given in zip(stored(cast, attribute), cast.wrong.tolist(), column.is_null(), strict=True):
                assert (kept is None) == (wrong or given.as_py()), (form, column.type)
                check(Sampler(**{attribute.name: kept}))


@pytest.mark.parametrize(("unit", "factor"), [("s", 10**6), ("ms", 10**3), ("us", 1)])
def test_durations_that_do_not_fit_are_wrong_and_not_another_duration(unit: str, factor: int) -> None:
    attribute = next(each for each in KNOWN if each.name == "span")
    cast = convert_column(pa.array(INTEGERS, pa.duration(unit)), attribute.type, ValueFormat())
    wanted = [each * factor if INT64_MIN <= each * factor <= INT64_MAX else None for each in INTEGERS]
    assert cast.column.cast(pa.int64()).to_pylist() == wanted


def test_a_number_with_hundreds_of_digits_is_wrong() -> None:
    attribute = next(each for each in KNOWN if each.name == "real")
    (number,) = msgspec.json.decode(json.dumps([10**400]).encode())
    for values in ([number], [number, 1.5], [number, 1, None]):
        cast = convert_json(values, attribute.type, ValueFormat())
        assert np.flatnonzero(cast.wrong.tolist()).tolist() == [0]
        assert cast.column.to_pylist()[1:] == values[1:]
