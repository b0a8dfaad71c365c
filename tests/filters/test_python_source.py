"""`python_source`: the code of a subscription makes an equal one."""

from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import genus
from genus import Bus, Event, Kind, Maybe, Subscription, all_of, this
from genus.filters import python_source
from genus.filters._python_source import class_names
from genus.filters._subscription import rebuild
from genus.model import vector
from tests.examples import examples
from tests.generators import Generator, Sampler, edge_subscriptions

pytestmark = pytest.mark.filterwarnings("ignore::genus.errors.SubscriptionWarning")


class Category(Enum):
    TRUCK = "truck"
    CAR = "car"


class Door(Event, name="house.Door"):
    lane: int
    speed: Maybe[float] = None
    category: Maybe[Category] = None
    open: Maybe[bool] = None
    gap: Maybe[timedelta] = None
    raw: Maybe[bytes] = None


class Roadside(Kind): ...


def scope(subscription: Subscription) -> dict[str, Any]:
    """The names that the code of a subscription may use."""
    names = {name: getattr(genus, name) for name in genus.__all__}
    classes = {name: cls for cls, name in class_names(subscription.types).items()}
    return {**names, "datetime": datetime, "timedelta": timedelta, "UTC": UTC, **classes}


def made(subscription: Subscription) -> Any:
    return eval(python_source(subscription), scope(subscription))


@examples(150)
@given(st.integers(0, 10**9))
def test_the_code_of_a_subscription_makes_an_equal_one(seed: int) -> None:
    for subscription in Generator(seed).subscriptions(8, depth=4):
        assert made(subscription) == subscription


@pytest.mark.parametrize("name", [attribute.name for attribute in vector(Sampler)])
def test_the_code_of_every_comparison_with_edge_values_makes_an_equal_one(name: str) -> None:
    for subscription in edge_subscriptions(name):
        assert made(subscription) == subscription


@examples(50)
@given(st.integers(0, 10**9))
def test_the_program_subscribes_with_an_equal_subscription(seed: int) -> None:
    subscription = Generator(seed).subscription()
    with Bus() as bus:
        names = {**scope(subscription), "bus": bus}
        exec(python_source(subscription, "subscribe"), names)
        assert names["handle"].subscription == subscription


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("house.Door", "Subscription(Door)"),
        ("exact house.Door has place, speed lacks gap", 'exact=True, has=("place", "speed"), lacks=("gap",)'),
        ("house.Door & Roadside", "Subscription(all_of(Door, Roadside))"),
        (
            "house.Door where speed > 30 and category == 'truck'",
            'where=(this.speed > 30.0) & (this.category == "truck")',
        ),
        ("house.Door where category in ('truck', 'car')", 'where=this.category.isin(["truck", "car"])'),
        ("house.Door where open and not open or open == false", "(this.open & ~this.open) | (this.open == False)"),
        ("house.Door where lane between 1 and 3 and open", "where=this.lane.between(1, 3) & this.open"),
        ("house.Door where not lane between 1 and lane", "where=~this.lane.between(1, this.lane)"),
        ("house.Door where lane <= 3 and lane >= 1", "where=(this.lane <= 3) & (this.lane >= 1)"),
        ("house.Door where (lane + 1) * 2 % 3 = 1", "where=(this.lane + 1) * 2 % 3 == 1"),
        ("house.Door where 7 - (lane - 1) < -lane", "where=7 - (this.lane - 1) < -this.lane"),
        ("house.Door where abs(speed - 1.5) in (1, inf)", 'where=abs(this.speed - 1.5).isin([1.0, float("inf")])'),
        ("house.Door where -(lane // 2) in (1)", "where=(-(this.lane // 2)).isin([1])"),
        ("house.Door where speed > -inf", 'where=this.speed > float("-inf")'),
        ("house.Door where length(place) > 3", "where=this.place.length() > 3"),
        ("house.Door where place like 'it\\'s%_\\\\%'", r"""where=this.place.like("it's_%\\%")"""),
        ("house.Door where place == 'say \"hi\"'", """where=this.place == 'say "hi"'"""),
        ("house.Door where raw == x'0022ff'", """where=this.raw == b'\\x00"\\xff'"""),
        ("house.Door where place is present or place is absent", "this.place.is_present() | this.place.is_absent()"),
        ("house.Door where lane > (if open then 1 else 2)", "where=this.lane > when(this.open, 1, 2)"),
        ("house.Door where lane > (if lane > 2 then 1)", "where=this.lane > when(this.lane > 2, 1)"),
        ("house.Door where coalesce(speed, 1.5) * 2 > 1", "where=coalesce(this.speed, 1.5) * 2.0 > 1.0"),
        ("house.Door where (if open then 1 else 2) * 2 > lane", "where=when(this.open, 1, 2) * 2 > this.lane"),
        ("house.Door where not (open or lane > 1)", "where=~(this.open | (this.lane > 1))"),
        ("house.Door where not open and not lane in (1)", "where=~this.open & ~this.lane.isin([1])"),
        ("house.Door where not (lane >= 1 and lane <= 3 and open)", "where=~(this.lane.between(1, 3) & this.open)"),
        ("house.Door where lane >= 1 and speed <= 3", "where=(this.lane >= 1) & (this.speed <= 3.0)"),
        ("house.Door where open and lane >= 1 and lane <= 3", "where=this.open & this.lane.between(1, 3)"),
        ("house.Door where place startswith 'a' or place endswith 'b'", '.startswith("a") | this.place.endswith("b")'),
        (
            "house.Door where time - @2026-05-01T10:00:00Z > 90s and gap != 0s",
            "(this.time - datetime(2026, 5, 1, 10, tzinfo=UTC) > timedelta(seconds=90)) & (this.gap != timedelta(0))",
        ),
    ],
)
def test_it_reads_as_one_would_write_it(text: str, code: str) -> None:
    subscription = Subscription.parse(text, [Door, Roadside])
    assert code in python_source(subscription)
    assert made(subscription) == subscription


@pytest.mark.parametrize(
    "where",
    [
        "3 < lane",
        "1 + 2 < lane",
        "lane > 3 + 4",
        "lane + 1 > 2 and (1 + 2 - lane > 3 or open)",
        "abs(-3) < lane",
        "'it\\'s \"so\"' != place",
        "1 in (2, 3)",
        "'a' startswith 'b'",
        " or ".join(f"lane == {number} and lane + {number} > 1" for number in range(1000)),
    ],
)
def test_what_operators_cannot_build_is_given_as_text(where: str) -> None:
    subscription = rebuild(Door, where=where)
    code = python_source(subscription)
    assert "this." not in code
    assert eval(code, scope(subscription)) == subscription


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("2d", "timedelta(days=2)"),
        ("25h", "timedelta(hours=25)"),
        ("61min", "timedelta(minutes=61)"),
        ("61s", "timedelta(seconds=61)"),
        ("1001ms", "timedelta(milliseconds=1001)"),
        ("1001us", "timedelta(microseconds=1001)"),
        ("-90s", "timedelta(seconds=-90)"),
    ],
)
def test_a_duration_has_one_unit(text: str, code: str) -> None:
    subscription = Subscription.parse(f"house.Door where gap > {text}", [Door])
    assert python_source(subscription) == f"Subscription(Door, where=this.gap > {code})"
    assert made(subscription) == subscription


@pytest.mark.parametrize("form", [" + 1", " or lane == 1", " and lane == 1"])
@pytest.mark.parametrize("operators", [500, 501])
def test_very_many_operators_are_given_as_text(form: str, operators: int) -> None:
    parts = "".join(form.replace("1", str(number)) for number in range(operators - ("lane" in form)))
    subscription = rebuild(Door, where=f"lane{parts} == 1" if form == " + 1" else f"lane == -1{parts}")
    code = python_source(subscription)
    assert ("this." in code) == (operators == 500)
    assert eval(code, scope(subscription)) == subscription


@pytest.mark.parametrize("length", [100, 101])
def test_a_call_of_at_most_a_hundred_characters_is_one_line(length: int) -> None:
    short = python_source(Subscription(Door, where=this.place == ""))
    code = python_source(Subscription(Door, where=this.place == "x" * (length - len(short))))
    assert ("\n" in code) == (length == 101)


def test_an_attribute_that_is_no_name_of_a_term_is_given_as_text() -> None:
    made_by: Any = type(Event)
    cls = made_by("Odd", (Event,), {"__module__": __name__, "__annotations__": {"ﬁx": int, "plain": int}})
    assert python_source(Subscription(cls, where=this["ﬁx"] > this.plain)) == (
        'Subscription(Odd, where=this["ﬁx"] > this.plain)'
    )


def test_a_long_call_has_a_line_for_each_argument() -> None:
    subscription = Subscription(Door, has="place", where=this.place.isin(["x" * 50, "y" * 50]))
    assert python_source(subscription).split("\n") == [
        "Subscription(",
        "    Door,",
        '    has=("place",),',
        f'    where=this.place.isin(["{"x" * 50}", "{"y" * 50}"]),',
        ")",
    ]
    assert made(subscription) == subscription


def renamed(name: str, text: str, *bases: type) -> Any:
    """A class with another Python name than `class` can give it."""
    metaclass: Any = type(bases[0])
    cls = metaclass("Plain", bases, {"__module__": __name__}, name=text)
    cls.__name__ = name
    return cls


@pytest.mark.parametrize(
    ("name", "text", "used"),
    [
        ("Gate", "house.Gate", "Gate"),
        ("a-b", "house.Gate", "house_Gate"),
        ("class", "class", "class_"),
        ("this", "this.that", "this_that"),
        ("Subscription", "Subscription", "Subscription_"),
        ("ﬁsh", "ﬁsh", "fish"),
    ],
)
def test_a_class_without_a_usable_name_is_given_one(name: str, text: str, used: str) -> None:
    subscription = Subscription(renamed(name, text, Event), where=this.place == "a")
    assert python_source(subscription) == f'Subscription({used}, where=this.place == "a")'
    assert made(subscription) == subscription
    assert f"def handle(event: {used})" in python_source(subscription, "subscribe")


def test_classes_with_one_name_are_told_apart() -> None:
    kinds = [renamed("Door", "a", Kind), renamed("Door", "a_", Kind), renamed("a", "b.door", Kind)]
    subscription: Subscription[Any] = Subscription(all_of(Door, *kinds))
    assert python_source(subscription) == "Subscription(all_of(Door, a, a_, b_door))"
    assert made(subscription) == subscription
