"""Values as texts: what a person would write, exact, and with no more digits than there are."""

import struct
from datetime import UTC, datetime, timedelta
from enum import Enum, IntEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus import Event, Float32, Maybe
from genus.studio._figures import MAX_LENGTH, float32, number_of, value_text, values_of


class Tank(Event, name="studio.Tank"):
    level: Float32
    whole: Maybe[float] = None


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_a_float_of_32_bits_has_the_fewest_digits_that_give_it_back(value: float) -> None:
    values = values_of(Tank(level=value, whole=value))
    assert struct.pack("<f", float(value_text(values["level"]))) == struct.pack("<f", value)
    assert len(f"{float32(value):.9g}") <= len(f"{value:.9g}")
    assert number_of(values["level"]) == float(value_text(values["level"]))
    assert values["whole"] == value


class Colour(Enum):
    RED = "red"


class Gear(IntEnum):
    FIRST = 1


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Colour.RED, "red"),
        (Gear.FIRST, "1"),
        ((1, 2.5, True), "1, 2.5, true"),
        ([Colour.RED, None], "red, none"),
        ({"a": b"\x00\xff"}, "a: 00 ff"),
        (datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "2026-01-02T03:04:05Z"),
        (timedelta(milliseconds=1500), "1.5 s"),
        (13.797471714019775, "13.79747171"),
        ("x" * 1000, "x" * MAX_LENGTH + "…"),
    ],
)
def test_texts_are_not_those_of_python(value: Any, text: str) -> None:
    assert value_text(value) == text
