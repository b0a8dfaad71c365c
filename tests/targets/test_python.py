"""Generated Python: what a subscription and the dispatch of a class become, to the letter."""

from collections.abc import Callable
from enum import Enum
from typing import Any

from genus import Event, Float32, Int8, Kind, Maybe, Subscription, open_bus, this
from genus.targets import dispatch, python


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

    def failed(self, event: Event, problem: Exception) -> None: ...


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
