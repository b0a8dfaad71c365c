"""A length of time means the same however it is written, and anything else is one clear error."""

import threading
from datetime import timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus.errors import PlanError, SpanError
from genus.model import duration, format_span, nanoseconds, seconds

from ..scalars import scalars

UNITS = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 10**6, "s": 10**9, "min": 60 * 10**9, "h": 3600 * 10**9}
UNITS |= {"days": 86_400 * 10**9, "weeks": 7 * 86_400 * 10**9}
MAX_LENGTH = 292 * 365 * 86_400 * 10**9


@given(st.integers(0, 10_000), st.sampled_from(sorted(UNITS)), st.sampled_from(["", " "]))
def test_a_text_is_a_number_of_its_unit(number: int, unit: str, space: str) -> None:
    assert nanoseconds(f"{number}{space}{unit}") == number * UNITS[unit]


@given(st.timedeltas(timedelta(), timedelta(days=36_500)))
def test_numbers_texts_and_timedeltas_mean_the_same(span: timedelta) -> None:
    micros = span // timedelta(microseconds=1)
    assert nanoseconds(span) == nanoseconds(f"{micros}us") == micros * 1000
    assert nanoseconds(micros // 10**6) == nanoseconds(f"{micros // 10**6} s") == micros // 10**6 * 10**9
    assert duration(span) == span
    assert seconds(span) == pytest.approx(span.total_seconds())


@given(st.integers(0, MAX_LENGTH))
def test_the_text_of_a_span_is_the_same_span(length: int) -> None:
    assert nanoseconds(format_span(f"{length}ns")) == length


@given(st.timedeltas(timedelta(), timedelta(days=36_500)))
def test_scalars_of_numpy_and_pandas_mean_the_same(span: timedelta) -> None:
    assert {nanoseconds(scalar) for scalar in scalars(span)} == {nanoseconds(span)}
    assert {nanoseconds(scalar) for scalar in scalars(span.days)} == {nanoseconds(span.days)}


@pytest.mark.parametrize("text", ["0s", "1ns", "1.234567ms", "562us", "20ms", "1.5s", "90s", "2min", "36h", "90d"])
def test_the_text_of_a_span_is_short(text: str) -> None:
    assert format_span(text) == text


WRONG = ["", "soon", "5 parsecs", "-1ms", "1.2.3s", "nan", "inf s", "1e999999999 s", "1e30 years"]

OTHERS = [-1, float("nan"), float("inf"), None, True, b"1s", [1], timedelta(-1)]
SCALARS = [np.timedelta64(1500, "fs"), np.timedelta64("NaT"), np.timedelta64(1), np.bool_(True), np.array([1])]


def test_a_text_without_a_unit_is_refused_unless_it_is_zero() -> None:
    assert nanoseconds("0") == nanoseconds(0) == 0
    with pytest.raises(SpanError, match=r"^period is '10', which has no unit: write 10s, 10ms or 10min$"):
        nanoseconds("10", "period")


@pytest.mark.parametrize("wrong", [*WRONG, *OTHERS, *SCALARS])
def test_anything_else_is_refused_by_name(wrong: object) -> None:
    with pytest.raises(SpanError, match=r"^timeout is "):
        nanoseconds(wrong, "timeout")  # type: ignore[arg-type]
    with pytest.raises(PlanError, match=r"^plan.toml: timeout is "):
        nanoseconds(wrong, "plan.toml: timeout", error=PlanError)  # type: ignore[arg-type]


@pytest.mark.parametrize("unit", ["m", "parsecs", "months", "e", "MS"])
def test_an_unknown_unit_is_named(unit: str) -> None:
    with pytest.raises(SpanError, match=f"and '{unit}' is no unit of time; write ns, us, ms, s, min, h"):
        nanoseconds(f"5 {unit}")


def test_every_span_fits_64_bits_and_a_timeout_of_threads() -> None:
    assert nanoseconds("292 years") == MAX_LENGTH < 2**63
    assert seconds("292 years") < threading.TIMEOUT_MAX
    with pytest.raises(SpanError, match="longer than 292 years"):
        nanoseconds(f"{MAX_LENGTH + 1}ns")


def test_zero_is_refused_where_it_means_nothing() -> None:
    assert nanoseconds(0) == 0
    with pytest.raises(SpanError, match="must be above zero"):
        nanoseconds("0ms", "period", zero=False)
    with pytest.raises(SpanError, match="period is '100ns'; it must be at least a microsecond"):
        duration("100ns", "period", zero=False)
