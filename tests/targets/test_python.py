"""Generated Python: what a subscription and the dispatch of a class become, to the letter."""

from collections.abc import Callable
from enum import Enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus import Event, Float32, Int8, Kind, Maybe, Subscription, open_bus, this
from genus.errors import EventError
from genus.filters.internal import COMPUTE
from genus.filters.types import Compare
from genus.targets import dispatch, python
from tests.examples import examples


class Category(Enum):
    TRUCK = "truck"
    CAR = "car"


class Loop(Event):
    lane: Int8
    speed: Maybe[float] = None
    category: Maybe[Category] = None
    weight: Maybe[Float32] = None


class Bare(Event):
    pass


class Sink:
    """A subscriber that does nothing."""

    refuses = False
    counted = 0

    def __init__(self, **asked: Any) -> None:
        self.subscription = Subscription(Loop, **asked)
        self.deliver: Callable[[Event], object] = id

    def failed(self, event: Event, problem: Exception) -> Exception | None:
        return None


def source(**asked: Any) -> str:
    return python.matcher_source(Subscription(Loop, **asked), Loop)[0]


def test_what_the_class_requires_is_tested_too_as_it_may_not_be_readable() -> None:
    assert source(has=("lane", "place"), lacks=("speed",)) == (
        "def matches(e):  # Loop\n"
        "    a_place = e.place\n"
        "    a_lane = e.lane\n"
        "    a_speed = e.speed\n"
        "    return a_place is not None and a_lane is not None and a_speed is None"
    )


def test_what_cannot_be_is_decided_when_the_code_is_made() -> None:
    asked = Subscription.parse("Reading where celsius > 3 or hectopascal > 3", [Reading])
    assert "celsius" not in python.matcher_source(asked, Barometer)[0]


def test_not_swaps_the_question_and_asks_for_presence_all_the_same() -> None:
    assert source(where=~(this.category == "truck")).endswith(
        "return a_category is not None and a_category._value_ != 'truck'"
    )
    assert source(where=~((this.lane > 1) & (this.category == Category.CAR))).endswith(
        "return (a_lane is not None and a_lane <= 1 or a_category is not None and a_category._value_ != 'car')"
    )


def test_nan_is_left_out_where_only_inequality_would_let_it_in() -> None:
    assert source(where=this.speed != 3).endswith(
        "return a_speed is not None and a_speed == a_speed and a_speed != 3.0"
    )
    assert source(where=this.speed < 3).endswith("return a_speed is not None and a_speed < 3.0")


def test_narrow_integers_need_no_overflow_check_and_wide_ones_do() -> None:
    assert source(where=this.lane * 2 + 1 > 3).endswith("return a_lane is not None and ((a_lane * 2) + 1) > 3")
    assert ":=" in source(where=this.lane * (2**62) > 3)


class Meter(Event):
    lane: Maybe[Int8] = None
    count: Maybe[int] = None
    speed: Maybe[float] = None
    other: Maybe[float] = None
    note: Maybe[str] = None


KEPT = "-9223372036854775808 <= {} <= 9223372036854775807"
SPEED, OTHER, COUNT, LANE = (f"a_{name} is not None" for name in ("speed", "other", "count", "lane"))


@pytest.mark.parametrize(
    ("where", "code"),
    [
        ("lane * 2 - 1 > 3", f"{LANE} and ((a_lane * 2) - 1) > 3"),
        ("count * 2 - 1 > 3",
         f"{COUNT} and {KEPT.format('(t1 := (a_count * 2))')} and {KEPT.format('(t2 := (t1 - 1))')} and t2 > 3"),
        ("-lane > 3", f"{LANE} and -a_lane > 3"),
        ("-count > 3", f"{COUNT} and {KEPT.format('(t1 := -a_count)')} and t1 > 3"),
        ("abs(lane) > 3", f"{LANE} and abs(a_lane) > 3"),
        ("abs(count) > 3", f"{COUNT} and {KEPT.format('(t1 := abs(a_count))')} and t1 > 3"),
        ("lane // count > 3", f"{LANE} and {COUNT} and a_count != 0 and (a_lane // a_count) > 3"),
        ("count // lane > 3",
         f"{COUNT} and {LANE} and a_lane != 0 and {KEPT.format('(t1 := (a_count // a_lane))')} and t1 > 3"),
        ("count % 7 == 1", f"{COUNT} and (a_count % 7) == 1"),
        ("count / lane > 0.5", f"{COUNT} and {LANE} and a_lane != 0 and (float(a_count) / a_lane) > 0.5"),
        ("speed / 2 > 1.0", f"{SPEED} and (a_speed / 2.0) > 1.0"),
        ("count > 1.5", f"{COUNT} and float(a_count) > 1.5"),
        ("lane > 1.5", f"{LANE} and a_lane > 1.5"),
        ("speed < other", f"{SPEED} and {OTHER} and a_speed < a_other"),
        ("speed != other",
         f"{SPEED} and {OTHER} and a_speed == a_speed and a_other == a_other and a_speed != a_other"),
        ("not speed + other > 3.0", f"{SPEED} and {OTHER} and (a_speed + a_other) <= 3.0"),
        ("speed in (1.0, 2.0)", f"{SPEED} and a_speed in k1"),
        ("not speed in (1.0, 2.0)", f"{SPEED} and a_speed == a_speed and a_speed not in k1"),
        ("speed < inf", f"{SPEED} and a_speed < k1"),
        ("not note in ('a', 'b')", "a_note is not None and a_note not in k0"),
        ("note like 'a_%'", "a_note is not None and m0(a_note) is not None"),
        ("not note like 'a_%'", "a_note is not None and not m0(a_note) is not None"),
        ("note contains 'a' and length(note) > 1", "a_note is not None and 'a' in a_note and len(a_note) > 1"),
        ("coalesce(count, 5) > 3", f"(t1 := a_count if {COUNT} else 5 if True else None) is not None and t1 > 3"),
        ("coalesce(speed, other) > 1.0",
         f"(t1 := a_speed if {SPEED} and a_speed == a_speed else a_other if {OTHER} and a_other == a_other else None) "
         "is not None and t1 > 1.0"),
        ("(if lane > 1 then count) > 3",
         f"(t1 := a_count if {COUNT} and {LANE} and a_lane > 1 else None) is not None and t1 > 3"),
        ("(if lane > 1 then speed else other) != 3.0",
         f"(t1 := a_speed if {SPEED} and {LANE} and a_lane > 1 else a_other if {OTHER} and {LANE} and a_lane <= 1 "
         "else None) is not None and t1 == t1 and t1 != 3.0"),
        ("note is present or lane == 1", f"(a_note is not None or {LANE} and a_lane == 1)"),
        ("not (note is absent and lane == 1)", f"(a_note is not None or {LANE} and a_lane != 1)"),
    ],
)  # fmt: skip
def test_each_operator_tests_that_its_values_are_known_first(where: str, code: str) -> None:
    """Integers only where they may not fit 64 bits, a divisor where it may be 0, NaN where it would pass."""
    found = python.matcher_source(Subscription.parse(f"Meter where {where}", [Meter]), Meter)[0]
    assert found.rpartition("    return ")[2] == code


SPANS = st.tuples(st.integers(-9, 9), st.integers(0, 9)).map(lambda span: (span[0], span[0] + span[1]))


@examples(100)
@given(st.sampled_from(["+", "-", "*", "//", "%"]), SPANS, SPANS)
def test_results_of_integers_lie_within_the_combined_bounds(
    op: str, left: tuple[int, int], right: tuple[int, int]
) -> None:
    """Exactly for sums, differences and products."""
    low, high = python.combine_bounds(op, left, right)
    pairs = ((a, b) for a in range(left[0], left[1] + 1) for b in range(right[0], right[1] + 1))
    results = [COMPUTE[op](a, b) for a, b in pairs if b or op not in ("//", "%")]
    assert all(low <= result <= high for result in results)
    if op in ("+", "-", "*"):
        assert (low, high) == (min(results), max(results))


@pytest.mark.parametrize(
    ("where", "span"),
    [
        ("lane + 1 > 0", (-127, 128)),
        ("-lane > 0", (-127, 128)),
        ("abs(lane) > 0", (0, 128)),
        ("abs(lane + 200) > 0", (72, 327)),
        ("length(note) > 0", (0, 2**63 - 1)),
        ("lane * lane - 1 > 0", (-16257, 16383)),
        ("lane % 10 > 0", (0, 9)),
        ("lane // 10 > 0", (-128, 128)),
        ("count + 1 > 0", (-(2**63) + 1, 2**63)),
        ("count + 1 - 1 > 0", (-(2**63), 2**63 - 2)),
        ("speed > 0.0", (-(2**63), 2**63 - 1)),
    ],
)
def test_a_value_has_the_bounds_of_its_parts(where: str, span: tuple[int, int]) -> None:
    """A result that does not fit 64 bits is unknown, so that the next step begins within them."""
    part = Subscription.parse(f"Meter where {where}", [Meter]).where
    assert isinstance(part, Compare)
    assert python.bounds(part.left) == span


def test_shared_parts_are_computed_once_for_all_subscriptions_of_a_class() -> None:
    ratio = this.speed / this.lane
    sinks = [Sink(where=ratio > 2), Sink(where=(ratio > 2) & (this.lane == 1)), Sink(where=ratio < 9)]
    generated = dispatch.compile(Loop, sinks).explain()
    assert generated.count("e.speed") == 1
    assert generated.count(" / ") == 1
    assert generated.count("> 2.0") == 1


def test_all_tests_come_before_the_first_handler() -> None:
    """So that a test that fails does so before anybody has got the event."""
    sinks = [Sink(where=this.lane == 1), Sink(), Sink(where=this.speed > 3)]
    assert dispatch.compile(Loop, sinks).explain().splitlines() == [
        "def deliver(e):  # Loop",
        "    try:",
        "        a_lane = e.lane",
        "        a_speed = e.speed",
        "        if a_speed.__class__ is not float and a_speed is not None: a_speed = plain(a_speed) * 1.0",
        "        w0 = not (a_lane is not None and a_lane == 1)",
        "        w2 = not (a_speed is not None and a_speed > 3.0)",
        "    except Exception: return each(e)",
        "    for h in n: break",
        "    try: h(e)",
        "    except Exception as x: l1.failed(e, x)",
        "    if not w0:",
        "        l0.counted += 1",
        "        try: h0(e)",
        "        except Exception as x: l0.failed(e, x)",
        "    if not w2:",
        "        l2.counted += 1",
        "        try: h2(e)",
        "        except Exception as x: l2.failed(e, x)",
    ]


def test_dispatch_without_conditions_tests_nothing() -> None:
    assert dispatch.compile(Bare, [Sink()]).explain() == (
        "def deliver(e):  # Bare\n    for h in n: break\n    try: h(e)\n    except Exception as x: l0.failed(e, x)"
    )


class Taker(Sink):
    """A subscriber that keeps what it gets, or fails; a failure may be one that the publisher gets."""

    def __init__(self, problem: Exception | None = None, *, refuses: bool = False, **asked: Any) -> None:
        super().__init__(**asked)
        self.problem, self.refuses = problem, refuses
        self.found: list[Event] = []
        self.failures: list[Exception] = []
        self.deliver = self._take

    def _take(self, event: Event) -> None:
        if self.problem is not None:
            raise self.problem
        self.found.append(event)

    def failed(self, event: Event, problem: Exception) -> Exception | None:
        self.failures.append(problem)
        return problem if self.refuses else None


@pytest.mark.parametrize("count", [1, 16, 17, 40])
def test_an_error_of_a_handler_is_told_to_its_own_entry_and_all_others_get_the_event(count: int) -> None:
    """Up to 16 handlers without a condition are called one by one, more in a loop."""
    takers = [Taker(ValueError(str(number)) if number % 3 == 0 else None) for number in range(count)]
    made = dispatch.compile(Loop, takers)
    assert ("while True" in made.explain()) is (count > 16)
    event = Loop(lane=1)
    made.deliver(event)
    for number, taker in enumerate(takers):
        assert taker.found == ([] if number % 3 == 0 else [event])
        assert list(map(str, taker.failures)) == ([str(number)] if number % 3 == 0 else [])
    assert made.counts.events == 1
    assert made.always == takers


@pytest.mark.parametrize("where", [None, "lane == 1"])
@pytest.mark.parametrize("count", [3, 20])
def test_what_a_full_queue_refuses_is_raised_when_all_others_were_served(where: str | None, count: int) -> None:
    full = Taker(OverflowError("full"), refuses=True, where=where)
    takers = [Taker(where=where), full, *(Taker(where=where) for _ in range(count))]
    made = dispatch.compile(Loop, takers)
    with pytest.raises(OverflowError, match="full"):
        made.deliver(Loop(lane=1))
    assert [len(taker.found) for taker in takers] == [1, 0, *[1] * count]
    assert [taker.counted for taker in takers] == [1 if where else 0] * len(takers)
    if where:
        made.deliver(Loop(lane=2))
    assert [len(taker.found) for taker in takers] == [1, 0, *[1] * count]


def test_a_value_that_cannot_be_tested_is_the_events_error_after_all_that_match_were_served() -> None:
    """None gets the event twice."""
    event = Loop(lane="one")  # type: ignore[arg-type]
    first, tested, last = Taker(), Taker(where=this.lane * 2 > 3), Taker(has="lane")
    with pytest.raises(EventError, match="lane"):
        dispatch.compile(Loop, [first, tested, last]).deliver(event)
    assert (first.found, tested.found, last.found) == ([event], [], [event])
    assert (first.counted, tested.counted, last.counted) == (1, 0, 1)
    assert tested.failures == []


def test_generated_code_runs_no_text_from_outside() -> None:
    """Constants stand in the code as literals of their own making or by name; attribute names are identifiers."""
    nasty = "'); import os; os.abort(); ('"
    matches = python.compile(Subscription(Loop, where=this.place == nasty))
    assert not matches(Loop(lane=1, place="A8"))
    assert matches(Loop(lane=1, place=nasty))
    with open_bus() as bus:
        found: list[Any] = []
        for text in (nasty, 'a"b', "\n", "\\", "{x}", "%s") * 2:
            bus.collection(Loop).subscribe(found.append, where=this.place.contains(text))
        bus.publish(Loop(lane=1, place=nasty))
    assert len(found) == 2


class Reading(Event):
    pass


class Thermometer(Reading):
    celsius: float


class Freezer(Thermometer):
    alarm: Maybe[bool] = None


class Hygrometer(Reading):
    celsius: Maybe[float] = None


class Barometer(Reading):
    hectopascal: float


def test_explain_shows_every_class_that_the_subscription_accepts() -> None:
    """Equal code is shown once, with all classes it is for; code that never matches is last."""
    asked = Subscription.parse("Reading has place where celsius > 3", [Reading])
    load = "if a_celsius.__class__ is not float and a_celsius is not None: a_celsius = plain(a_celsius) * 1.0\n"
    assert python.compile(asked).explain() == (
        "python: Reading has place where celsius > 3.0\n"
        "  type: one look-up by class; all other tests are in its function\n"
        "def matches(e):  # Thermometer, Freezer, Hygrometer\n"
        "    a_place = e.place\n"
        "    a_celsius = e.celsius\n"
        f"    {load}"
        "    return a_place is not None and a_celsius is not None and a_celsius > 3.0\n"
        "def matches(e):  # Reading, Barometer\n"
        "    return False"
    )


def test_explain_of_a_kind_without_event_types() -> None:
    class Lonely(Kind):
        pass

    assert python.compile(Subscription(Lonely)).explain().endswith("\n  no event type declared so far can match")
