"""Predicates as intervals of keys: what index and planner look up instead of evaluating."""

import math
from datetime import UTC, datetime, timedelta, timezone
from enum import Enum
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus import Event, Maybe, Subscription
from genus.model import Float32, vector
from genus.targets._intervals import (
    UNKNOWN,
    Domain,
    Floats,
    Integers,
    Interval,
    attribute_of,
    domain_of,
    float_key,
    intervals,
    key_float,
    merge_intervals,
)
from tests.examples import examples


class Lamp(Enum):
    OFF = "off"
    RED = "red"
    GREEN = "green"


class Spot(Event):
    lane: Maybe[int] = None
    share: Maybe[float] = None
    ratio: Maybe[Float32] = None
    label: Maybe[str] = None
    open: Maybe[bool] = None
    lamp: Maybe[Lamp] = None
    gap: Maybe[timedelta] = None


LOW, HIGH = -(2**63) + 1, 2**63 - 1
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
HALF = float_key(0.5)


def intervals_of(where: str) -> tuple[str, list[Interval] | None]:
    """The attribute that a predicate tests, and its keys."""
    part = Subscription.parse(f"Spot where {where}", [Spot]).where
    assert part is not None
    reference = attribute_of(part)
    assert reference is not None
    assert reference.type is not None
    return reference.name, intervals(part, domain_of(reference.type))


@pytest.mark.parametrize(
    ("where", "keys"),
    [
        ("lane < 5", [(LOW, 4)]),
        ("lane <= 5", [(LOW, 5)]),
        ("lane == 5", [(5, 5)]),
        ("lane >= 5", [(5, HIGH)]),
        ("lane > 5", [(6, HIGH)]),
        ("5 < lane", [(6, HIGH)]),
        ("5 >= lane", [(LOW, 5)]),
        ("5 == lane", [(5, 5)]),
        ("lane != 5", None),
        ("not lane < 5", None),
        ("lane in (5, 9, 6)", [(5, 6), (9, 9)]),
        ("not lane in (5, 9)", None),
        ("lane > 5.5", [(6, HIGH)]),
        ("lane < 5.5", [(LOW, 5)]),
        ("lane == 5.5", []),
        ("lane == 9007199254740992.0", [(2**53, 2**53 + 1)]),
        ("lane > 1e300", []),
        ("lane <= inf", [(LOW, HIGH)]),
        ("lane >= -inf", [(LOW, HIGH)]),
        ("lane > 9223372036854775807", []),
        ("lane >= -9223372036854775808", [(LOW, HIGH)]),
        ("share > 0.5", [(HALF + 1, Floats.high)]),
        ("share >= 0.5", [(HALF, Floats.high)]),
        ("share < 0.5", [(Floats.low, HALF - 1)]),
        ("share <= 0.5", [(Floats.low, HALF)]),
        ("share == 0.5", [(HALF, HALF)]),
        ("share == -0.0", [(0, 0)]),
        ("share > inf", []),
        ("share < -inf", []),
        ("label == 'a'", [(0, 0)]),
        ("label in ('a', 'b')", [(0, 1)]),
        ("label < 'a'", None),
        ("label != 'a'", None),
        ("open", [(1, 1)]),
        ("not open", [(0, 0)]),
        ("lamp == 'red'", [(1, 1)]),
        ("lamp != 'red'", [(0, 0), (2, 2)]),
        ("lamp in ('off', 'green')", [(0, 0), (2, 2)]),
        ("not lamp in ('off', 'green')", [(1, 1)]),
        ("gap > 2s", [(2_000_001, HIGH)]),
    ],
)
@pytest.mark.filterwarnings("ignore::genus.errors.SubscriptionWarning")
def test_a_test_against_constants_is_some_intervals(where: str, keys: list[Interval] | None) -> None:
    """None where the keys are not known: of an order of texts, or of all values but some of very many."""
    assert intervals_of(where)[1] == keys


@pytest.mark.parametrize("where", ["lane > lane", "lane + 1 > 2", "length(label) > 2", "label startswith 'a'",
                                   "lane > 1 or lane < 0", "label is present"])  # fmt: skip
@pytest.mark.filterwarnings("ignore::genus.errors.SubscriptionWarning")
def test_what_tests_no_single_attribute_against_constants_has_none(where: str) -> None:
    part = Subscription.parse(f"Spot where {where}", [Spot]).where
    assert part is not None
    assert attribute_of(part) is None


numbers = st.floats(allow_nan=False) | st.sampled_from([-0.0, 0.0, 5e-324, -5e-324, math.inf, -math.inf])


@examples(100)
@given(numbers, numbers)
def test_keys_of_floats_have_the_order_of_the_numbers(one: float, other: float) -> None:
    assert (float_key(one) < float_key(other)) is (one < other)
    assert key_float(float_key(one)) == one
    assert Floats().key(one) == float_key(one)


SPOT = {attribute.name: attribute.type for attribute in vector(Spot)}


@pytest.mark.parametrize(
    ("name", "value", "key"),
    [
        ("lane", 7, 7),
        ("lane", HIGH, HIGH),
        ("lane", LOW, LOW),
        ("lane", LOW - 1, None),
        ("lane", HIGH + 1, None),
        ("lane", True, 1),
        ("lane", 3.0, 3),
        ("lane", 3.5, None),
        ("lane", math.inf, None),
        ("lane", math.nan, UNKNOWN),
        ("lane", "3", None),
        ("share", 0.5, HALF),
        ("share", -0.0, 0),
        ("share", math.nan, UNKNOWN),
        ("share", 2, float_key(2.0)),
        ("share", 2**53 + 1, None),
        ("share", "x", None),
        ("share", None, None),
        ("ratio", 0.1, float_key(0.10000000149011612)),
        ("ratio", math.nan, UNKNOWN),
        ("ratio", 2**53 + 1, None),
        ("time", NOON, 1_714_564_800_000_000),
        ("time", NOON.astimezone(timezone(timedelta(hours=2))), 1_714_564_800_000_000),
        ("time", NOON.replace(tzinfo=None), None),
        ("time", 5, None),
        ("gap", timedelta(microseconds=-3), -3),
        ("gap", timedelta.max, None),
        ("gap", 5, None),
        ("label", "unheard of", UNKNOWN),
        ("label", [], None),
        ("open", True, 1),
        ("open", False, 0),
        ("lamp", Lamp.GREEN, 2),
        ("lamp", "green", 2),
        ("lamp", "blue", None),
        ("lamp", [], None),
    ],
)
def test_a_value_has_a_key_if_its_type_allows_it(name: str, value: Any, key: int | None) -> None:
    """A value that is not a number has the key of unknown; one that the type does not allow has none."""
    assert domain_of(SPOT[name]).key(value) == key


def test_texts_have_codes_in_the_order_in_which_constants_come() -> None:
    domain = domain_of(SPOT["label"])
    assert [domain.interval("==", text) for text in ("a", "b", "a")] == [(0, 0), (1, 1), (0, 0)]
    assert [domain.key(text) for text in ("a", "b", "c")] == [0, 1, UNKNOWN]


def test_the_keys_of_most_types_have_no_known_complement() -> None:
    assert Integers().complement([(1, 2)]) is None
    assert isinstance(Integers(), Domain)


@examples(100)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(-1, 5)), max_size=6))
def test_merged_intervals_have_the_same_keys_and_do_not_touch(parts: list[tuple[int, int]]) -> None:
    given_ = [(low, low + width) for low, width in parts]
    merged = list(merge_intervals(given_))
    assert {k for low, high in merged for k in range(low, high + 1)} == {
        k for low, high in given_ for k in range(low, high + 1)
    }
    assert all(high + 1 < low for (_, high), (low, _) in pairwise(merged))
