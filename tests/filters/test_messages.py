"""Error messages that say what to write instead; each test also follows the advice."""

import pickle
import re
from datetime import UTC, date, datetime
from enum import Enum
from typing import Any

import pytest

from genus import Event, Maybe, Subscription, this
from genus.errors import SubscriptionError, SyntaxProblem


class Category(Enum):
    TRUCK = "truck"
    CAR = "car"


class Loop(Event):
    lane: int
    celsius: Maybe[float] = None
    category: Maybe[Category] = None


class Radar(Loop):
    speed: Maybe[float] = None


def refused(text: str) -> str:
    with pytest.raises(SyntaxProblem) as caught:
        Subscription.parse(text, [Loop, Radar])
    return str(caught.value).split(" (column")[0]


def accepted(text: str) -> Subscription:
    return Subscription.parse(text, [Loop, Radar])


@pytest.mark.parametrize(
    ("written", "message", "advice"),
    [
        ('category == "truck"', "a text is written in single quotes: use 'truck'", "category == 'truck'"),
        ("category == “truck”", "a text is written in single quotes: use 'truck'", "category == 'truck'"),
        ('place == "it\'s"', "a text is written in single quotes: use 'it\\'s'", "place == 'it\\'s'"),
        ("celsius > 20C", "20C is not a number: use 20; only a duration has a unit (d, h,", "celsius > 20"),
        ("celsius > 20.5C", "20.5C is not a number: use 20.5; only", "celsius > 20.5"),
        ("celsius > 1e3C", "1e3C is not a number", "celsius > 1e3"),
        ("lane > 20_000", "20_000 is not a number: use 20000; only", "lane > 20000"),
        ("expires - time > 5minutes", "5minutes is not a number: use 5; only a duration has", "expires - time > 5min"),
        ("celsius = null", "there is no null: use celsius is absent", "celsius is absent"),
        ("celsius == NULL", "there is no null: use celsius is absent", "celsius is absent"),
        ("celsius != None", "there is no null: use celsius is present", "celsius is present"),
        ("celsius is null", "there is no null: use celsius is absent", "celsius is absent"),
        ("celsius is not null", "there is no null: use celsius is present", "celsius is present"),
        (
            "time > '2026-05-01'",
            "cannot compare: time is time, but '2026-05-01' is str; write a time as @2026-05-01T00:00:00Z, in Python "
            "as datetime(2026, 5, 1, tzinfo=UTC)",
            "time > @2026-05-01T00:00:00Z",
        ),
        (
            "time > '2026-05-01T09:30:00+02:00'",
            "write a time as @2026-05-01T07:30:00Z, in Python as datetime(2026, 5, 1, 7, 30, tzinfo=UTC)",
            "time > @2026-05-01T07:30:00Z",
        ),
        ("time > 'noon'", "write a time as @2026-05-01T00:00:00Z", "time > @2026-05-01T00:00:00Z"),
        (
            "time > 2026-05-01",
            "cannot compare: time is time, but 2026 - 5 - 1 is int64",
            "time > @2026-05-01T00:00:00Z",
        ),
        (
            "time > 2026-05-01T09:30:00Z",
            "a time begins with @: write it like @2026-05-01T00:00:00Z",
            "time > @2026-05-01T09:30:00Z",
        ),
        (
            "time > @2026-05-01",
            "@2026-05-01 is not valid: it has no time zone; use @2026-05-01T00:00:00Z for UTC",
            "time > @2026-05-01T00:00:00Z",
        ),
        (
            "time > @2026-05-01T09:30",
            "it has no time zone; use @2026-05-01T09:30:00Z for UTC",
            "time > @2026-05-01T09:30:00Z",
        ),
        (
            "time > @2026-5-1",
            "@2026-5-1 is not valid: write a time like @2026-05-01T00:00:00Z",
            "time > @2026-05-01T00:00:00Z",
        ),
        ("expires - time > 5", "write a duration as 5s, in Python as timedelta(seconds=5)", "expires - time > 5s"),
        ("category == 'lorry'", "category cannot be 'lorry'; it is one of 'truck', 'car'", "category == 'truck'"),
        (
            "category == 'trucks'",
            "cannot be 'trucks'; did you mean 'truck'? it is one of 'truck', 'car'",
            "category == 'car'",
        ),
    ],
)
def test_a_text_that_is_wrong_says_what_to_write(written: str, message: str, advice: str) -> None:
    assert message in refused(f"Loop where {written}")
    accepted(f"Loop where {advice}")


@pytest.mark.parametrize(
    "where",
    [
        "lane == 1e5",
        "celsius > 2.",
        "celsius > .5",
        "celsius < 1.5E-3",
        "expires - time > 1.5h",
        "celsius > 2.5and lane == 1",
    ],
)
def test_numbers_and_durations_are_not_taken_for_numbers_with_a_unit(where: str) -> None:
    accepted(f"Loop where {where}")


def test_an_attribute_may_be_called_null() -> None:
    class Pointer(Event):
        null: int
        lane: int

    assert Subscription.parse("Pointer where lane == null", [Pointer]).matches(Pointer(null=2, lane=2))


def test_times_in_python() -> None:
    aware = datetime(2026, 5, 1, 9, 30, tzinfo=UTC)
    wrong: list[tuple[Any, str]] = [
        (datetime(2026, 5, 1, 9, 30), "datetime(2026, 5, 1, 9, 30, tzinfo=UTC)"),
        (date(2026, 5, 1), "datetime(2026, 5, 1, tzinfo=UTC)"),
        ("2026-05-01T09:30", "datetime(2026, 5, 1, 9, 30, tzinfo=UTC)"),
    ]
    for value, advice in wrong:
        with pytest.raises(SubscriptionError, match=re.escape(advice)):
            Subscription(Loop, where=this.time > value)
        assert Subscription(Loop, where=this.time >= eval(advice)).matches(Loop(lane=1, time=aware))


def test_in_is_written_isin() -> None:
    with pytest.raises(SubscriptionError, match=re.escape(".isin([1, 2]) instead of in [1, 2]")):
        _ = this.lane in [1, 2]
    with pytest.raises(SubscriptionError, match=re.escape("write .contains('A8')")):
        _ = "A8" in this.place
    assert Subscription(Loop, where=this.lane.isin([1, 2]) & ~this.place.contains("A8")).has == ()


@pytest.mark.parametrize("option", ["has", "lacks"])
@pytest.mark.parametrize("given", ["celsius, category", "celsius category"])
def test_several_attributes_are_a_tuple(option: str, given: str) -> None:
    advice = '("celsius", "category")'
    with pytest.raises(
        SubscriptionError,
        match=re.escape(f"{option}={given!r} is one text; give several attributes as a tuple: {advice}"),
    ):
        Subscription(Loop, **{option: given})  # type: ignore[arg-type]
    assert getattr(Subscription(Loop, **{option: eval(advice)}), option) == ("celsius", "category")


def test_a_text_is_parsed_not_constructed() -> None:
    with pytest.raises(SubscriptionError, match=r"use Subscription\.parse for text"):
        Subscription("Loop where lane > 1")  # type: ignore[arg-type]


def test_a_typo_names_the_type_that_was_written() -> None:
    message = "Radar has no attribute 'sped'; did you mean 'speed'? the attributes of its family Loop are lane"
    assert message in refused("Radar where sped > 3")
    assert message in refused("Radar has sped")
    for options in ({"has": "sped"}, {"lacks": ("sped",)}, {"where": this.sped > 3}, {"where": "sped > 3"}):
        with pytest.raises(SubscriptionError, match=re.escape(message)):
            Subscription(Radar, **options)
    assert "Loop has no attribute 'lan'; did you mean 'lane'? its attributes are lane" in refused("Loop where lan > 3")


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(
    ("text", "column", "reason"),
    [
        ("Loop where lane >", 18, "expected a value, found the end"),
        ("Loop where\tlane # 3", 17, "'#' is not understood"),
        ("Loop where lane > 'x' or lane == 1", 12, "cannot compare: lane is int64, but 'x' is str"),
        ("Loup", 1, "no event type is called Loup; did you mean 'Loop'? known: Loop, Radar"),
    ],
)
def test_a_problem_has_its_column_and_its_reason_apart(text: str, column: int, reason: str, strict: bool) -> None:
    with pytest.raises(SyntaxProblem) as caught:
        Subscription.parse(text, [Loop, Radar], strict=strict)
    for problem in (caught.value, pickle.loads(pickle.dumps(caught.value))):
        assert (problem.column, problem.reason) == (column, reason)
        assert str(problem).startswith(f"{reason} (column {column})\n")


def test_a_problem_that_a_test_for_never_finds_has_its_column_too() -> None:
    with pytest.raises(SyntaxProblem) as caught:
        Subscription.parse("Loop where place == 'a' and lane > 5 and lane < 3", [Loop], strict=True)
    assert caught.value.column == 29
    assert caught.value.reason.startswith("this can never match: no value of 'lane'")


def test_a_problem_without_a_column_has_its_message_as_reason() -> None:
    problem = SyntaxProblem("not understood")
    assert (problem.column, problem.reason, str(problem)) == (None, "not understood", "not understood")
