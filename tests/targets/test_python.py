"""Generated Python: what a subscription and a channel become, to the letter."""

from collections.abc import Callable
from enum import Enum
from typing import Any

from genus import Event, Float32, Int8, Maybe, Subscription, open_bus, this
from genus.targets import python
from genus.targets.dispatch import Channel


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

    def __init__(self, **asked: Any) -> None:
        self.subscription = Subscription(Loop, **asked)
        self.deliver: Callable[[Event], object] = id

    def failed(self, event: Event, problem: Exception) -> None: ...


def source(**asked: Any) -> str:
    return python.matcher_source(Subscription(Loop, **asked), Loop)[0]


def test_what_the_class_always_carries_is_not_tested() -> None:
    assert source(has=("lane", "place"), lacks=("speed",)) == (
        "def matches(e):  # Loop\n"
        "    a_place = e.place\n"
        "    a_speed = e.speed\n"
        "    return a_place is not None and a_speed is None"
    )


def test_what_cannot_be_is_decided_when_the_code_is_made() -> None:
    assert source(lacks="lane").endswith("    return False")
    assert source(has="lane").endswith("    return True")


def test_not_swaps_the_question_and_asks_for_presence_all_the_same() -> None:
    assert source(where=~(this.category == "truck")).endswith(
        "return a_category is not None and a_category._value_ != 'truck'"
    )
    assert source(where=~((this.lane > 1) & (this.category == Category.CAR))).endswith(
        "return (a_lane <= 1 or a_category is not None and a_category._value_ != 'car')"
    )


def test_nan_is_left_out_where_only_inequality_would_let_it_in() -> None:
    assert source(where=this.speed != 3).endswith(
        "return a_speed is not None and a_speed == a_speed and a_speed != 3.0"
    )
    assert source(where=this.speed < 3).endswith("return a_speed is not None and a_speed < 3.0")


def test_narrow_integers_need_no_overflow_check_and_wide_ones_do() -> None:
    assert source(where=this.lane * 2 + 1 > 3).endswith("return ((a_lane * 2) + 1) > 3")
    assert ":=" in source(where=this.lane * (2**62) > 3)


def test_shared_parts_are_computed_once_for_all_subscriptions_of_a_channel() -> None:
    ratio = this.speed / this.lane
    channel = Channel(Loop, [Sink(where=ratio > 2), Sink(where=(ratio > 2) & (this.lane == 1)), Sink(where=ratio < 9)])
    generated = channel.explain()
    assert generated.count("e.speed") == 1
    assert generated.count(" / ") == 1
    assert generated.count("> 2.0") == 1


def test_few_are_ifs_and_many_are_one_look_up() -> None:
    few = Channel(Loop, [Sink(where=this.lane == number) for number in range(7)]).explain()
    many = Channel(Loop, [Sink(where=this.lane == number) for number in range(9)]).explain()
    ranges = Channel(Loop, [Sink(where=this.lane > number) for number in range(9)]).explain()
    assert few.count("if a_lane ==") == 7
    assert "if a_lane ==" not in many
    assert many.count(".get(a_lane)") == 1
    assert ranges.count("bisect_left(") == 1


def test_a_channel_without_conditions_tests_nothing() -> None:
    assert Channel(Bare, [Sink()]).explain() == (
        "def deliver(e):  # Bare\n    N.events += 1\n    try: h0(e)\n    except Exception as x: l0.failed(e, x)"
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
