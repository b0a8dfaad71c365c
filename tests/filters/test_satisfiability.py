"""Subscriptions that can never match warn where they are made, with the reason; `strict` refuses them."""

import copy
import itertools
import pickle
import warnings
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus import Catalog, Event, Float32, Int8, Kind, Maybe, Subscription, UInt8, all_of, open_bus, this
from genus.errors import SubscriptionError, SubscriptionWarning, SyntaxProblem
from genus.filters import merge, read_subscriptions
from genus.filters._evaluate import COMPARE
from genus.filters._subscription import ensure_subscription, parse_again, rebuild
from genus.filters.types import Predicate
from genus.model import check
from genus.targets import can
from genus.targets.index import SubscriptionIndex
from tests.examples import examples
from tests.generators import Generator, Sampler, edge_events, edge_subscriptions


class Category(Enum):
    CAR = "car"
    TRUCK = "truck"


class Roadside(Kind):
    pass


class Vehicle(Event):
    lane: UInt8
    number: Maybe[int] = None
    speed: Maybe[float] = None
    narrow: Maybe[Float32] = None
    moving: Maybe[bool] = None
    category: Maybe[Category] = None
    label: Maybe[str] = None
    data: Maybe[bytes] = None
    gap: Maybe[timedelta] = None


class Truck(Vehicle):
    axles: int


class Tipper(Truck, Roadside):
    load: Maybe[float] = None


class GantryCamera(Vehicle, Roadside):
    plate: str


def reason(what: type = Vehicle, **parts: Any) -> str | None:
    return rebuild(what, **parts).why_never()


NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)
IMPOSSIBLE: dict[str, Any] = {
    "a range without values": (this.speed > 50) & (this.speed < 30),
    "an open range at one number": (this.speed > 50) & (this.speed <= 50),
    "integers between neighbours": (this.number > 4) & (this.number < 5),
    "an integer between floats": (this.number > 4.2) & (this.number < 4.9),
    "an integer that has a fraction": this.number == 4.5,
    "an integer and a float of another value": (this.number > 4.5) & (this.number < 4),
    "the only integer left is excluded": (this.lane > 253) & (this.lane != 254) & (this.lane != 255),
    "two values": (this.lane == 1) & (this.lane == 2),
    "a value of a list and another": this.lane.isin([1, 2]) & (this.lane > 2),
    "a value and its list excluded": (this.lane == 1) & ~this.lane.isin([1, 2]),
    "a choice and not it": (this.category == "car") & (this.category != "car"),
    "neither true nor false": (this.moving != True) & (this.moving != False),  # noqa: E712
    "above the width": this.lane > 300,
    "below the width": this.lane == -1,
    "a list outside of the width": this.lane.isin([-1, 256]),
    "above the width as a float": this.lane >= 1e30,
    "infinitely large": this.number == float("inf"),
    "more than infinite": this.speed > float("inf"),
    "no number of 32 bits": this.narrow == 0.1,
    "no number of 32 bits in a list": this.narrow.isin([0.1, 1e300]),
    "a range of one number that is none of 32 bits": (this.narrow >= 0.1) & (this.narrow <= 0.1),
    "text before the empty one": this.label < "",
    "bytes before the empty ones": this.data < b"",
    "a text and another beginning": (this.label == "A8") & this.label.startswith("B"),
    "text out of order": (this.label > "b") & (this.label < "a"),
    "a time out of order": (this.time > NEW_YEAR + timedelta(1)) & (this.time < NEW_YEAR),
    "a duration out of order": (this.gap > timedelta(2)) & (this.gap < timedelta(1)),
    "an expression out of order": (this.speed * 3.6 > 50) & (this.speed * 3.6 < 30),
    "present and absent": this.speed.is_present() & this.speed.is_absent(),
    "tested and absent": (this.speed > 3) & this.speed.is_absent(),
    "computed and absent": (this.speed * 2 > this.number) & this.number.is_absent(),
    "a negative length": this.label.length() < 0,
    "a length out of order": (this.label.length() > 3) & (this.label.length() < 3),
    "a negative distance": abs(this.speed) < 0,
    "a pattern that the text does not have": (this.label == "A8") & this.label.like("B_%"),
    "different from itself": this.speed != this.speed,
    "every alternative": (this.lane > 300) | ((this.lane == 1) & (this.lane == 2)),
    "a negated alternative": ~((this.speed > 30) | (this.speed <= 30)),
    "a negated conjunction": ~((this.lane <= 255) & (this.speed == this.speed)),
    "twice negated": ~~(this.lane > 300),
    "constants": "1 == 2",
    "computed constants": "1 + 1 == 3",
    "computed constants out of order": "1 + 1 > 5 and 1 + 1 < 3",
    "constants that are true, negated": "not 1 < 2",
}  # fmt: skip


@pytest.mark.parametrize("where", [pytest.param(where, id=name) for name, where in IMPOSSIBLE.items()])
def test_what_can_never_be_true_has_a_reason(where: Any) -> None:
    assert reason(where=where)


POSSIBLE: dict[str, Any] = {
    "a range": (this.speed > 30) & (this.speed < 50),
    "one number": (this.speed >= 50) & (this.speed <= 50),
    "one integer": (this.number > 4) & (this.number < 6),
    "an integer between floats": (this.number > 4.2) & (this.number < 5.1),
    "the bound of the width": this.lane >= 255,
    "the lower bound of the width": this.lane <= 0,
    "the smallest integer": this.number <= -(2**63),
    "the largest integer": this.number == 2**63 - 1,
    "an integer that is rounded up": (this.number >= 9007199254740994.0) & (this.number < 9007199254740994),
    "the largest integer as a float": this.number == 2.0**63,
    "an infinite float": this.speed == float("inf"),
    "infinite with 32 bits": this.narrow == float("inf"),
    "a number of 32 bits": this.narrow == 0.5,
    "zeros of both signs": (this.speed == 0.0) & (this.speed <= -0.0),
    "the empty text": this.label <= "",
    "another choice": (this.category != "car") & (this.category != "truck"),
    "one alternative": (this.lane > 300) | (this.lane == 1),
    "absent": this.speed.is_absent(),
    "not present, or in a range": this.speed.is_absent() | ((this.speed > 1) & (this.speed < 3)),
    "no length": this.label.length() <= 0,
    "no distance": abs(this.speed) == 0,
    "a remainder": (this.number % 3 == 2) & (this.number % 5 == 2),
    "a pattern": (this.label == "A8") & this.label.like("A_"),
    "different attributes": (this.lane > 3) & (this.number < 3),
    "equal to itself": this.speed == this.speed,
    "constants": "1 < 2",
}


@pytest.mark.parametrize("where", [pytest.param(where, id=name) for name, where in POSSIBLE.items()])
def test_what_can_be_true_has_none(where: Any) -> None:
    """`category` may have values that only other processes know: an enumeration can grow."""
    assert reason(where=where) is None


MIRRORED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
REASONS: dict[str, str] = {
    "lane > 300": "no value of 'lane' (uint8) meets the conditions on it",
    "place == 'a' and place == 'b'": "no value of 'place' (str) meets the conditions on it",
    "speed > 3 and speed < 2": "no value of 'speed' (float64) meets the conditions on it",
    "narrow == 0.1": "no value of 'narrow' (float32) meets the conditions on it; a number that is no 32-bit float "
    "equals none",
    "category == 'car' and category != 'car'": "no value of 'category' meets the conditions on it",
    "speed * 2 > 3 and speed * 2 < 2": "no value of an expression of 'speed' meets the conditions on it",
    "speed is present and speed is absent": "'speed' would have to be both present and absent",
    "speed > number and number is absent": "'number' would have to be both present and absent",
    "speed != speed": "a value is never different from itself",
    "speed < speed": "a value is never different from itself",
    "speed > speed": "a value is never different from itself",
    "not speed <= speed": "a value is never different from itself",
    "1 > 2": "a condition without attributes is never true",
    "not 1 < 2": "a condition without attributes is never false",
    "lane > 300 or speed != speed": "no value of 'lane' (uint8) meets the conditions on it",
}


@pytest.mark.parametrize("where", REASONS)
def test_the_reason_is_told_without_constants(where: str) -> None:
    assert reason(where=where) == REASONS[where]


@pytest.mark.parametrize("op", ["==", "!=", "<", "<=", ">", ">="])
@pytest.mark.parametrize("other", ["==", "!=", "<", "<=", ">", ">="])
@pytest.mark.parametrize("attribute", ["lane", "speed"])
def test_two_comparisons_have_a_reason_exactly_if_no_value_passes_both(op: str, other: str, attribute: str) -> None:
    """Also with the constant on the left; of a uint8 near its bounds, of a float at infinity."""
    bounds = ("0", "1", "254", "255") if attribute == "lane" else ("-inf", "1", "2", "inf")
    values = range(256) if attribute == "lane" else [float("-inf"), *(n / 2 for n in range(6)), float("inf")]
    for one, two in itertools.product(bounds, bounds):
        tests = [(COMPARE[op], float(one)), (COMPARE[MIRRORED[other]], float(two))]
        passing = [value for value in values if all(compare(value, bound) for compare, bound in tests)]
        found = reason(where=f"{attribute} {op} {one} and {two} {other} {attribute}")
        assert (found is None) == bool(passing), (one, two)


@pytest.mark.parametrize(
    ("where", "possible"),
    [
        ("number > 4.0 and number < 5.0", False),
        ("number >= 4.0 and number < 5.0", True),
        ("number > 4.0 and number <= 5.0", True),
        ("number > 4.5 and number < 5.5", True),
        ("number == 4.0", True),
        ("number in (0.5, 0.75)", False),
        ("number in (0.5, 2.0) and number > 2", False),
        ("number in (0.5, 2.5) and number > 1", True),
        ("number != 4.0 and number == 4", False),
        ("number != 4.5 and number == 4", True),
        ("number > 9223372036854775807", False),
        ("number >= 9223372036854775807", True),
        ("number < -9223372036854775808", False),
        ("number > 9300000000000000000.0", False),
        ("number < -9300000000000000000.0", False),
        ("number >= -inf and number <= inf", True),
        ("number <= -inf", False),
        ("number >= inf", False),
        ("lane in (255, 256)", True),
        ("lane in (256, 257)", False),
        ("not lane in (1, 2) and lane in (1, 2)", False),
        ("not lane in (1, 2) and lane in (1, 3)", True),
        ("not place startswith 'a' and place == 'ab'", False),
        ("not place startswith 'b' and place == 'ab'", True),
        ("length(place) == 0", True),
        ("-lane < 0", True),
        ("moving == true and moving == false", False),
        ("moving != true", True),
        ("data < x'00'", True),
        ("place < 'a'", True),
        ("gap < 1s and gap > 1s", False),
    ],
)  # fmt: skip
def test_bounds_of_numbers_and_texts(where: str, possible: bool) -> None:
    assert (reason(where=where) is None) == possible


def never_matches_but_has_a_reason(subscription: Subscription, events: list[Event]) -> bool:
    """Whether there is a reason; if so, the law: no event matches."""
    why = subscription.why_never()
    if why is not None:
        assert not any(subscription.matches(event) for event in events), f"{subscription} matches, but: {why}"
    return why is not None


@given(st.integers(0, 2**32))
@examples(400)
def test_no_event_matches_a_subscription_that_has_a_reason(seed: int) -> None:
    """The law, on random subscriptions and events; predicates of one attribute contradict themselves often."""
    generator = Generator(seed)
    events = generator.events(60)
    for event in events:
        check(event)
    for depth in (1, 2, 3):
        never_matches_but_has_a_reason(generator.subscription(depth), events)
    name = generator.random.choice([a.name for a in Sampler.__genus_attributes__ if a.name != "parts"])  # type: ignore[attr-defined]
    tests = generator.random.sample([one.where for one in edge_subscriptions(name)], 3)
    both = rebuild(Sampler, where=tests[0] & generator.random.choice([tests[1], tests[1] | tests[2]]))  # type: ignore[operator]
    never_matches_but_has_a_reason(both, edge_events(name))


@pytest.mark.parametrize(
    "name", ["flag", "tiny", "octet", "number", "real", "single", "text", "blob", "span", "colour"]
)
def test_no_edge_value_passes_a_test_that_has_a_reason(name: str) -> None:
    found = [never_matches_but_has_a_reason(one, edge_events(name)) for one in edge_subscriptions(name)]
    assert any(found) == (name in ("tiny", "octet", "number", "real", "single", "text", "blob")), "the law was tested"
    assert not all(found)


@pytest.mark.parametrize("seed", range(20))
def test_pairs_of_edge_tests_obey_the_law(seed: int) -> None:
    generator = Generator(seed)
    name = generator.random.choice(["tiny", "number", "real", "single", "text", "colour", "flag", "time"])
    tests = [one.where for one in edge_subscriptions(name)]
    pairs = [generator.random.sample(tests, 2) for _ in range(150)]
    asked = [rebuild(Sampler, where=one & other) for one, other in pairs]  # type: ignore[operator]
    assert any(never_matches_but_has_a_reason(one, edge_events(name)) for one in asked)


# -- attributes that only other types have -----------------------------------------------------------------------------


@pytest.mark.parametrize("parts", [{"where": this.plate == "x"}, {"has": "plate"}, {"where": this.plate.is_present()}])
def test_an_attribute_that_only_a_sibling_has_is_never_there(parts: dict[str, Any]) -> None:
    with pytest.warns(
        SubscriptionWarning, match=r"Truck can never match: no Truck .* has .*'plate' \(GantryCamera has it\)"
    ):
        Subscription(Truck, **parts)
    assert Subscription(Vehicle, **parts).why_never() is None, "a subtype has it"
    assert Subscription(GantryCamera, **parts).why_never() is None


def test_other_types_that_have_the_attribute_are_counted() -> None:
    class Boat(Event):
        pass

    class Raft(Boat):
        pass

    metaclass: Any = type(Event)
    for name in ("Sailer", "Ketch", "Yawl"):
        metaclass(name, (Boat,), {"__module__": __name__, "__annotations__": {"sails": int}})
        found = rebuild(Raft, has="sails").why_never() or ""
        others = {"Sailer": "", "Ketch": ", and 1 more", "Yawl": ", and 2 more"}[name]
        assert found == f"no Raft declared so far has the attribute 'sails' (Sailer has it{others})"


def test_an_attribute_of_a_subtype_is_never_there_in_exact_events() -> None:
    assert Subscription(Truck, has="load").why_never() is None
    with pytest.warns(SubscriptionWarning, match="no exact Truck .* has the attribute 'load'"):
        Subscription(Truck, exact=True, has="load")


def test_all_of_counts_the_types_that_conform_to_all() -> None:
    assert Subscription(all_of(Truck, Roadside), has="load").why_never() is None
    with pytest.warns(SubscriptionWarning, match="no Truck & Roadside .* has the attribute 'plate'"):
        Subscription(all_of(Truck, Roadside), has="plate")


def test_the_absence_of_a_siblings_attribute_is_no_contradiction() -> None:
    assert Subscription(Truck, lacks="plate", where=this.plate.is_absent() & (this.axles > 1)).why_never() is None


def test_one_alternative_may_have_a_siblings_attribute() -> None:
    assert Subscription(Truck, where=(this.plate == "x") | (this.axles > 1)).why_never() is None


def test_a_type_that_is_declared_later_ends_the_reason() -> None:
    class Ship(Event):
        pass

    class Ferry(Ship):
        pass

    class Tug(Ship):
        power: Maybe[int] = None

    asked = rebuild(Ferry, where=this.power > 1)
    assert "no Ferry declared so far has the attribute 'power' (Tug has it)" in (asked.why_never() or "")

    class CarFerry(Ferry):
        power: Maybe[int] = None

    assert asked.why_never() is None
    assert CarFerry.__base__ is Ferry


@pytest.mark.parametrize("type_", [Event, Kind, Roadside])
def test_kinds_and_event_have_the_attributes_of_every_event(type_: Any) -> None:
    if type_ is not Kind:
        assert Subscription(type_, has="place", where=this.time > NEW_YEAR).why_never() is None


def test_types_of_a_catalog_may_have_subtypes_that_are_not_declared_yet() -> None:
    """Of three generated classes, two are declared: the third may have what only a sibling has so far."""
    catalog = Catalog()
    catalog.register(Vehicle, Truck, Tipper, GantryCamera)
    elsewhere = Catalog.parse(
        catalog.text().replace("Vehicle", "Craft").replace("Truck", "Barge").replace("GantryCamera", "Eye")
    )
    barge, eye = elsewhere.declare("Barge"), elsewhere.declare("Eye")
    assert Subscription(barge, has="plate").why_never() is None
    assert Subscription(barge, has="load").why_never() is None
    assert Subscription(eye, has="plate").why_never() is None


def test_a_pure_class_stands_for_others_of_its_kind() -> None:
    class Alarm(Kind):
        level = 0

    class Bell(Event, Alarm):
        level: int

    class Horn(Event, Alarm):
        level: Maybe[int] = None  # type: ignore[assignment]

    asked = rebuild(Bell, exact=True, lacks="level")
    assert asked.matches(Horn())
    assert asked.why_never() is None


def test_a_required_attribute_may_be_absent_as_it_may_not_be_readable() -> None:
    assert rebuild(Vehicle, lacks="lane").why_never() is None


# -- where it warns, and how often -------------------------------------------------------------------------------------

NEVER = this.lane > 300


def warned(make: Callable[[], object]) -> list[warnings.WarningMessage]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        make()
    return found


def on_event(event: Event) -> None:
    raise AssertionError(event)


WAYS: dict[str, Callable[[Any, dict[str, bool]], object]] = {
    "Subscription": lambda bus, strict: Subscription(Vehicle, where=NEVER, **strict),
    "parse": lambda bus, strict: Subscription.parse("Vehicle where lane > 300", [Vehicle], **strict),
    "collection.subscribe": lambda bus, strict: bus.collection(Vehicle).subscribe(on_event, where=NEVER, **strict),
    "a decorator": lambda bus, strict: bus.collection(Vehicle).subscribe(where=NEVER, **strict)(on_event),
    "collection.inbox": lambda bus, strict: bus.collection(Vehicle).inbox(where="lane > 300", **strict),
    "bus.subscribe": lambda bus, strict: bus.subscribe("GantryCamera where lane > 300", on_event, **strict),
    "bus.inbox": lambda bus, strict: bus.inbox("GantryCamera where lane > 300", **strict),
}


@pytest.mark.parametrize("way", WAYS)
def test_each_way_to_subscribe_warns_once_at_the_users_line(way: str) -> None:
    make = WAYS[way]
    with open_bus() as bus:
        (found,) = warned(lambda: make(bus, {}))
    assert found.category is SubscriptionWarning
    assert (found.filename, found.lineno) == (__file__, make.__code__.co_firstlineno)
    assert "can never match: no value of 'lane' (uint8) meets the conditions on it" in str(found.message)
    assert isinstance(found.message, SubscriptionWarning)
    assert "lane > 300" in str(found.message.subscription)


@pytest.mark.parametrize("way", WAYS)
def test_strict_refuses_with_the_same_reason(way: str) -> None:
    with open_bus() as bus, pytest.raises(SubscriptionError, match="can never match: no value of 'lane'") as found:
        WAYS[way](bus, {"strict": True})
    assert isinstance(found.value, SyntaxProblem) == (way in ("parse", "bus.subscribe", "bus.inbox"))


def test_where_texts_and_subscriptions_are_taken_a_ready_made_one_is_refused_by_strict_only() -> None:
    text, ready = "GantryCamera where lane > 300", rebuild(GantryCamera, where=NEVER)
    assert len(warned(lambda: ensure_subscription(text))) == 1
    assert warned(lambda: ensure_subscription(ready)) == []
    assert ensure_subscription(ready) is ready
    for given_ in (text, ready):
        with pytest.raises(SubscriptionError, match="can never match"):
            ensure_subscription(given_, strict=True)
    assert ensure_subscription("GantryCamera", strict=True) == Subscription(GantryCamera)


def test_strict_accepts_what_can_match() -> None:
    assert Subscription(Vehicle, where=this.lane > 3, strict=True) == Subscription(Vehicle, where=this.lane > 3)


def test_a_ready_made_subscription_is_refused_by_strict_only() -> None:
    asked = rebuild(Vehicle, where=NEVER)
    with open_bus() as bus:
        assert warned(lambda: bus.subscribe(asked, on_event)) == []
        with pytest.raises(SubscriptionError, match="Vehicle where lane > 300 can never match"):
            bus.inbox(asked, strict=True)


@pytest.mark.parametrize("length", [300, 301])
def test_an_error_shows_the_first_300_characters_of_a_subscription(length: int) -> None:
    text = "Vehicle where lane > 300 and label == ''"
    text = text.replace("''", f"'{'x' * (length - len(text))}'")
    with pytest.raises(SubscriptionError) as caught:
        Subscription(Vehicle, where=text.removeprefix("Vehicle where "), strict=True)
    shown = text if length == 300 else f"{text[:300]}..."
    assert str(caught.value).startswith(f"{shown} can never match: ")


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("Vehicle where lane > 300", 15),
        ("Vehicle where speed > 1 and lane > 300", 29),
        ("Vehicle lacks speed where speed > 1", 15),
        ("Vehicle where 1 > 2", 15),
        ("Vehicle where label == 'a' and 1 > 2", 15),
    ],
)
def test_strict_points_at_the_first_mention_of_the_attribute(text: str, column: int) -> None:
    with pytest.raises(SyntaxProblem, match="this can never match") as caught:
        Subscription.parse(text, [Vehicle], strict=True)
    assert caught.value.column == column


def test_strict_points_at_the_attribute() -> None:
    with pytest.raises(SyntaxProblem, match=r"no Truck declared so far has the attribute 'plate'.*\(column 27\)"):
        Subscription.parse("Truck where axles > 1 and plate == 'x'", [Truck], strict=True)


def test_code_without_a_module_warns_too() -> None:
    code = compile("Subscription(Vehicle, where=NEVER)", "typed in", "eval")
    (found,) = warned(lambda: eval(code, {"Subscription": Subscription, "Vehicle": Vehicle, "NEVER": NEVER}))
    assert (found.filename, found.lineno) == ("typed in", 1)


def test_a_loop_with_other_constants_shows_it_once() -> None:
    """By Python's default filter; the message is the same for each."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("default")
        for number in range(100):
            Subscription(Vehicle, where=(this.speed > number + 1) & (this.speed < number))
    assert len(found) == 1


def test_subscriptions_that_genus_makes_of_others_do_not_warn_again(tmp_path: Path) -> None:
    """Warnings are errors in these tests, so a copy that warned would fail."""
    asked = [rebuild(Vehicle, where=NEVER), rebuild(Vehicle, lacks="lane", where=this.speed > 1)]
    merge([*asked, rebuild(Truck, where=NEVER)])
    index = SubscriptionIndex(asked)
    assert [index.subscription(handle) for handle in range(2)] == asked
    catalog = Catalog()
    catalog.register(Vehicle)
    can.compile(asked[1], catalog)
    assert parse_again(str(asked[0]), [Vehicle]) == asked[0]
    for copied in (copy.copy(asked[0]), copy.deepcopy(asked[0]), pickle.loads(pickle.dumps(asked[0]))):
        assert copied == asked[0]


def test_files_of_subscriptions_warn_where_they_are_read() -> None:
    (found,) = warned(
        lambda: read_subscriptions(["ann: GantryCamera where lane > 300", "bob: GantryCamera where lane > 3"])
    )
    assert found.filename == __file__


def test_a_large_predicate_is_looked_at_in_part() -> None:
    options: Predicate = this.lane > 300
    for number in range(1000):
        options = options | ((this.speed > number + 1) & (this.speed < number))
    assert reason(where=options) is None
    values = [0.1 + number for number in range(5000)]
    assert reason(where=this.narrow.isin([*values, 0.5])) is None


@pytest.mark.parametrize(("alternatives", "is_found"), [(64, True), (65, False)])
def test_of_more_than_64_alternatives_no_reason_is_told(alternatives: int, is_found: bool) -> None:
    where = " or ".join(f"lane > {300 + number}" for number in range(alternatives))
    assert bool(reason(where=where)) == is_found
    assert bool(reason(where=f"speed > 1 and ({where})")) == is_found


@pytest.mark.parametrize(("points", "is_found"), [(1000, True), (1001, False)])
def test_of_more_than_1000_constants_no_reason_is_told(points: int, is_found: bool) -> None:
    assert bool(reason(where=this.number.isin(list(range(points))) & (this.number < 0))) is is_found


@pytest.mark.parametrize("type_", [Int8, UInt8])
def test_the_reason_names_the_type(type_: Any) -> None:
    class Gauge(Event):
        level: type_

    assert (reason(Gauge, where=this.level == 999) or "").startswith("no value of 'level' (")


# -- a subscription as an object ---------------------------------------------------------------------------------------


def test_a_generic_subscription_is_a_plain_class_at_run_time() -> None:
    asked = Subscription[Vehicle](Vehicle, where=this.lane > 1)
    assert asked == Subscription(Vehicle, where=this.lane > 1)
    assert hash(asked) == hash(Subscription(Vehicle, where=this.lane > 1))
    assert type(asked) is Subscription
    assert not hasattr(asked, "__dict__")
    with pytest.raises(AttributeError):
        asked.where = None


@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))], ids=["copy", "deep", "pickle"]
)
def test_copies_are_equal_and_work(duplicate: Callable[[Any], Any]) -> None:
    asked = Subscription(all_of(Truck, Roadside), has="load", lacks="label", where="axles > 2 and category == 'car'")
    made = duplicate(asked)
    assert made == asked
    assert hash(made) == hash(asked)
    assert str(made) == str(asked)
    assert made.matches(Tipper(lane=1, axles=3, load=1.0, category=Category.CAR))
