"""`Subscription.why_not`: the parts that an event does not meet agree with `matches`."""

import math
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus import Event, Float32, Kind, Maybe, Subscription, all_of, this
from genus.errors import EventError
from genus.filters._subscription import rebuild
from genus.filters.internal import conjuncts
from genus.filters.types import AllOf, Mismatch
from tests.examples import examples
from tests.generators import Generator


class Category(Enum):
    TRUCK = "truck"
    CAR = "car"


class Roadside(Kind): ...


class Loop(Event):
    lane: int
    speed: Maybe[float] = None
    ratio: Maybe[Float32] = None
    category: Maybe[Category] = None
    seen: Maybe[datetime] = None
    gap: Maybe[timedelta] = None
    raw: Maybe[list[int]] = None


class Wide(Loop, Roadside): ...


def why_not(text: str, event: Event) -> list[tuple[str, str, str, str]]:
    found = Subscription.parse(text, [Loop, Wide, Roadside]).why_not(event)
    return [(unmet.stage, unmet.part, unmet.truth, unmet.values) for unmet in found]


@examples(150)
@given(st.integers(0, 10**9))
def test_nothing_is_unmet_exactly_if_an_event_matches(seed: int) -> None:
    generator = Generator(seed)
    for subscription in generator.subscriptions(8):
        for event in generator.events(8):
            assert (subscription.why_not(event) == ()) == subscription.matches(event)


@examples(150)
@given(st.integers(0, 10**9))
def test_each_part_told_is_one_of_the_subscription_and_not_met_by_itself(seed: int) -> None:
    generator = Generator(seed)
    for subscription in generator.subscriptions(8):
        event = generator.event()
        for unmet in subscription.why_not(event):
            assert not alone(subscription, unmet).matches(event), unmet
            if unmet.stage == "where":
                opposite = alone(subscription, unmet, "not ({})")
                assert opposite.matches(event) == (unmet.truth == "false"), unmet


def alone(subscription: Subscription, unmet: Mismatch, form: str = "{}") -> Subscription[Any]:
    """A subscription that has one part only."""
    if unmet.stage == "type":
        return Subscription.parse(unmet.part, subscription.types)
    types: AllOf[Any] = AllOf(subscription.types)
    if unmet.stage == "where":
        assert rebuild(types, where=unmet.part).where in conjuncts(subscription.where)
        return rebuild(types, exact=subscription.exact, where=form.format(unmet.part))
    assert unmet.part in getattr(subscription, unmet.stage)
    return rebuild(types, exact=subscription.exact, **{unmet.stage: unmet.part})


def test_all_parts_are_told_in_the_order_of_the_text() -> None:
    assert why_not(
        "Loop has place, speed lacks category where speed > 30 and lane in (2, 3) and lane < 9",
        Loop(lane=1, category=Category.CAR),
    ) == [
        ("has", "place", "false", "place is absent"),
        ("has", "speed", "false", "speed is absent"),
        ("lacks", "category", "false", "category = 'car'"),
        ("where", "speed > 30.0", "unknown", "speed is absent"),
        ("where", "lane in (2, 3)", "false", "lane = 1"),
    ]


def test_an_alternative_is_one_part_with_the_values_of_all_its_attributes() -> None:
    assert why_not("Loop where speed > 30 or lane == 2 or speed < 1", Loop(lane=1, speed=12.5)) == [
        ("where", "speed > 30.0 or lane == 2 or speed < 1.0", "false", "speed = 12.5, lane = 1")
    ]


@pytest.mark.parametrize(
    ("text", "event", "parts"),
    [
        ("Wide where lane > 2", Loop(lane=1), ["Wide"]),
        ("Loop & Roadside where lane > 2", Loop(lane=1), ["Roadside"]),
        ("Loop & Roadside", Event(), ["Loop", "Roadside"]),
        ("exact Loop has place", Wide(lane=1), ["exact Loop"]),
    ],
)
def test_if_the_type_does_not_match_only_types_are_told(text: str, event: Event, parts: list[str]) -> None:
    name = type(event).__name__
    assert why_not(text, event) == [("type", part, "false", name) for part in parts]


def test_something_that_is_no_event_does_not_have_the_type() -> None:
    assert Subscription(all_of(Loop, Roadside)).why_not(3) == (  # type: ignore[arg-type]
        Mismatch("type", "Loop", "false", "int"),
        Mismatch("type", "Roadside", "false", "int"),
    )


@pytest.mark.parametrize(
    ("where", "event", "values"),
    [
        ("category == 'car'", Loop(lane=1, category=Category.TRUCK), "category = 'truck'"),
        ("seen > @2030-01-01T00:00:00Z", Loop(lane=1, seen=datetime(2026, 5, 1, tzinfo=UTC)), "@2026-05-01T00:00:00Z"),
        ("gap > 1h", Loop(lane=1, gap=timedelta(seconds=90)), "gap = 90s"),
        ("ratio == 0.1", Loop(lane=1, ratio=0.1), "ratio = 0.10000000149011612"),
        ("raw is absent", Loop(lane=1, raw=[1, 2]), "raw = [1, 2]"),
        ("seen is absent", Loop(lane=1, seen=datetime(2026, 5, 1)), "seen = datetime.datetime(2026, 5, 1, 0, 0)"),
        ("speed is absent", Loop(lane=1, speed="fast"), "speed = 'fast'"),  # type: ignore[arg-type]
    ],
)
@pytest.mark.filterwarnings("ignore::genus.errors.SubscriptionWarning")
def test_values_are_shown_as_predicates_see_them(where: str, event: Event, values: str) -> None:
    ((_, part, truth, shown),) = why_not(f"Loop where {where}", event)
    assert (part, truth) == (where, "false")
    assert shown.endswith(values)


def test_a_value_that_is_not_a_number_is_unknown() -> None:
    nan = Loop(lane=1, speed=math.nan)
    assert why_not("Loop where speed > 1", nan) == [("where", "speed > 1.0", "unknown", "speed = nan")]
    assert why_not("Loop where lane / (lane - 1) > 1", nan) == [
        ("where", "lane / (lane - 1) > 1.0", "unknown", "lane = 1")
    ]


def test_long_values_are_shortened() -> None:
    ((*_, shown),) = why_not("Loop where place == ''", Loop(lane=1, place="x" * 10_000))
    assert shown.startswith("place = 'xxx")
    assert shown.endswith("...")
    assert len(shown) == len("place = ") + 200


def test_values_of_another_type_raise_what_matches_raises() -> None:
    wanted = Subscription(Loop, has="place", where=(this.speed > 30) & (this.lane == 2))
    wrong = Loop(lane=1, speed="fast", place="A8")  # type: ignore[arg-type]
    with pytest.raises(EventError) as by_matches:
        wanted.matches(wrong)
    with pytest.raises(EventError) as by_why_not:
        wanted.why_not(wrong)
    assert str(by_why_not.value) == str(by_matches.value)


def test_values_of_another_type_do_not_matter_if_matches_does_not_come_to_them() -> None:
    wanted = Subscription(Loop, has="place", where=this.speed > 30)
    wrong = Loop(lane=1, speed="fast")  # type: ignore[arg-type]
    assert not wanted.matches(wrong)
    assert wanted.why_not(wrong) == (Mismatch("has", "place", "false", "place is absent"),)


def test_as_text_it_is_one_line() -> None:
    (unmet,) = Subscription(Loop, where=this.speed > 30).why_not(Loop(lane=1))
    assert str(unmet) == "where speed > 30.0: unknown, speed is absent"
    (unmet,) = rebuild(Loop, where="1 > 2").why_not(Loop(lane=1))
    assert str(unmet) == "where 1 > 2: false"
