"""Subscriptions: what they say, how they are written, and what is refused."""

import copy
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from enum import Enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus import Event, Kind, Maybe, Subscription, UInt8, all_of, this
from genus.errors import SubscriptionError, SyntaxProblem
from genus.filters import merge
from genus.filters._expression import MAX_CONDITION_DEPTH, MAX_DEPTH, MAX_VALUE_DEPTH
from genus.filters._subscription import parse_again, rebuild
from genus.filters.types import Compare, Completion, CompletionItem, Literal, Mismatch, Not, Or
from genus.model import attributes
from tests.examples import examples
from tests.generators import Generator


class Category(Enum):
    TRUCK = "truck"
    CAR = "car"


class Roadside(Kind): ...


class Loop(Event, Roadside):
    lane: int
    category: Maybe[Category] = None
    speed: Maybe[float] = None
    raw: Maybe[list[int]] = None
    valid: bool = True

    @property
    def kmh(self) -> Any:
        return self.speed * 3.6  # type: ignore[operator]

    @property
    def circular(self) -> Any:
        return self.circular

    @property
    def calling(self) -> Any:
        return f"{self.lane}" + self.speed  # type: ignore[operator]

    @property
    def rounding(self) -> Any:
        return round(self.speed)  # type: ignore[arg-type]


class Wide(Loop):
    width: Maybe[float] = None


TYPES = (Loop, Wide, Roadside)


class TestAttributesAreAMinimum:
    """More never hurts, one missing blocks (attribute-based filtering, section 2)."""

    def test_more_than_asked_matches_and_less_does_not(self) -> None:
        asked = Subscription(Loop, has=("place", "category"))
        assert asked.matches(Loop(lane=1, place="A8", category=Category.CAR, speed=3.0))
        assert not asked.matches(Loop(lane=1, place="A8"))
        assert Subscription(Loop).matches(Loop(lane=1))

    def test_lacks_names_what_must_be_absent(self) -> None:
        assert Subscription(Loop, lacks="speed").matches(Loop(lane=1))
        assert not Subscription(Loop, lacks="speed").matches(Loop(lane=1, speed=0.0))

    def test_three_ways_to_give_them_mean_the_same(self) -> None:
        class Signature:
            place: str
            category: Category
            speed: Maybe[float]

        by_names = Subscription(Loop, has=("place", "category"))
        assert Subscription(Loop, has=0b1000100) == by_names
        assert Subscription(Loop, has=Signature) == by_names

    def test_a_signature_with_another_type_is_refused(self) -> None:
        class Signature:
            place: int

        with pytest.raises(SubscriptionError, match=r"Signature.place is int64, but in Loop it is str"):
            Subscription(Loop, has=Signature)

    def test_an_attribute_of_a_subtype_belongs_to_the_family(self) -> None:
        asked = Subscription(Loop, has="width")
        assert asked.matches(Wide(lane=1, width=2.0))
        assert not asked.matches(Loop(lane=1))


def test_an_attribute_of_a_class_is_the_one_of_its_name() -> None:
    for cls in (Loop, Wide, Roadside):
        properties = [name for name in dir(cls) if isinstance(getattr(cls, name), property)]
        for name in (*properties, *(attribute.name for attribute in attributes(cls))):
            assert this[getattr(cls, name)].node == this[name].node == getattr(this, name).node
    with pytest.raises(AttributeError, match="sped"):
        _ = this[Loop.sped]  # type: ignore[attr-defined]


class TestRefusedAtTheCall:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"has": "colour"}, "no attribute 'colour'; its attributes are"),
            ({"has": 1 << 40}, "reaches outside"),
            ({"has": "place", "lacks": "place"}, "both present and absent"),
            ({"where": this.colour == "red"}, "no attribute 'colour'"),
            ({"where": this.lane == "two"}, "lane is int64, but 'two' is str"),
            ({"where": this.category == "bus"}, "category cannot be 'bus'; it is one of 'truck', 'car'"),
            ({"where": this.category > "car"}, "has no order"),
            ({"where": this.valid > False}, "has no order"),
            ({"where": this.raw == 3}, "only be tested for presence"),
            ({"where": this.lane.isin([])}, "at least one"),
            ({"where": this.lane.isin([True])}, "lane is int64, not true or false"),
            ({"where": this.valid.isin([1])}, "cannot compare"),
            ({"where": this.lane.startswith("1")}, "needs text"),
            ({"where": this.lane + this.place > 3}, r"cannot apply \+"),
            ({"where": this.time + this.time > 3}, r"cannot apply \+"),
            ({"where": this.lane > 2**63}, "does not fit in 64 bits"),
            ({"where": this.speed > float("nan")}, "NaN"),
            ({"where": this.time > datetime(2026, 1, 1)}, "no time zone"),
            ({"where": this.time > datetime.min.replace(tzinfo=timezone(timedelta(hours=5)))}, "outside the years"),
            ({"where": this.place == "\udc00"}, "lone surrogate"),
            ({"where": this.circular > 1}, "refers to itself"),
            ({"where": this.calling > 1}, "an f-string cannot be translated"),
            (
                {"where": this.rounding > 1},
                "property rounding of Loop cannot be used in a predicate: the call of `round`",
            ),
            ({"where": lambda event: True}, "is not a predicate"),
            ({"where": True}, "is not a predicate"),
        ],
    )
    def test_with_what_is_wrong(self, options: dict[str, Any], message: str) -> None:
        with pytest.raises(SubscriptionError, match=message):
            Subscription(Loop, **options)

    def test_python_logic_on_predicates(self) -> None:
        with pytest.raises(SubscriptionError, match="instead of and, or, not"):
            _ = this.lane > 1 and this.lane < 3
        with pytest.raises(SubscriptionError, match="between"):
            _ = 1 < this.lane < 3

    def test_comparing_with_none(self) -> None:
        with pytest.raises(SubscriptionError, match="is_absent"):
            _ = this.lane == None  # noqa: E711

    def test_types_that_cannot_be(self) -> None:
        class Other(Event):
            pass

        with pytest.raises(SubscriptionError, match="no event can be both Loop and Other"):
            Subscription(all_of(Loop, Other))
        with pytest.raises(SubscriptionError, match="not an event type"):
            Subscription(dict)
        with pytest.raises(SubscriptionError, match="exact takes one type"):
            Subscription(all_of(Event, Roadside), exact=True)

    def test_a_kind_knows_only_the_context(self) -> None:
        Subscription(Roadside, has="place")
        with pytest.raises(
            SubscriptionError,
            match=r"has no attribute 'lane', .*; Loop has it: name Loop, or Loop & Roadside",
        ):
            Subscription(Roadside, has="lane")
        Subscription(all_of(Loop, Roadside), has="lane")


class TestKleeneLogic:
    @pytest.mark.parametrize("where", [this.speed > 3, ~(this.speed > 3), this.speed == this.speed, this.kmh != 1.0])
    def test_unknown_never_matches_whichever_way_it_is_asked(self, where: Any) -> None:
        assert not Subscription(Loop, where=where).matches(Loop(lane=1))
        assert not Subscription(Loop, where=where).matches(Loop(lane=1, speed=float("nan")))

    def test_unknown_or_true_is_true_and_unknown_and_false_is_false(self) -> None:
        event = Loop(lane=1)
        assert Subscription(Loop, where=(this.speed > 3) | (this.lane == 1)).matches(event)
        assert Subscription(Loop, where=~((this.speed > 3) & (this.lane == 2))).matches(event)
        assert not Subscription(Loop, where=~((this.speed > 3) & (this.lane == 1))).matches(event)

    def test_division_by_zero_and_overflow_are_unknown(self) -> None:
        event = Loop(lane=0)
        assert not Subscription(Loop, where=1 / this.lane > 0).matches(event)
        assert not Subscription(Loop, where=~(1 / this.lane > 0)).matches(event)
        big = Loop(lane=2**62)
        assert not Subscription(Loop, where=this.lane * 2 > 0).matches(big)
        assert not Subscription(Loop, where=this.lane * 2 <= 0).matches(big)
        assert Subscription(Loop, where=this.lane + (2**62 - 1) > 0).matches(big)

    def test_presence_is_never_unknown(self) -> None:
        assert Subscription(Loop, where=this.speed.is_absent()).matches(Loop(lane=1))
        assert Subscription(Loop, where=this.speed.is_present()).matches(Loop(lane=1, speed=float("nan")))


class TestText:
    @pytest.mark.parametrize(
        ("text", "same_as"),
        [
            ("Loop", None),
            ("exact Loop has place,speed lacks category", "exact Loop has place, speed lacks category"),
            (
                "Loop where speed > 30 and category in ('truck', 'car')",
                "Loop where speed > 30.0 and category in ('truck', 'car')",
            ),
            ("Loop & Roadside where valid", "Loop where valid == true"),
            ("Loop where lane not in (1,2)", "Loop where not lane in (1, 2)"),
            ("Loop where (lane) not in (1,2)", "Loop where not lane in (1, 2)"),
            ("Loop where lane between 1 and 3", "Loop where lane >= 1 and lane <= 3"),
            ("Loop where not (lane = 1 or lane=2)", "Loop where not (lane == 1 or lane == 2)"),
            ("Loop where ((lane)) + 1 > (2 * (lane - 3))", "Loop where lane + 1 > 2 * (lane - 3)"),
            ("Loop where lane - (2 - 1) > -3", "Loop where lane - (2 - 1) > -3"),
            ("Loop where expires - time < 1500ms", None),
            ("Loop where deadline > @2026-01-01T01:00:00+01:00", "Loop where deadline > @2026-01-01T00:00:00Z"),
            ("Loop where place startswith 'A\\'8' or place endswith '' or place contains '\\\\'", None),
            ("Loop where speed is absent or speed < inf", None),
            ("Loop where lane > -9223372036854775808", None),
        ],
    )
    def test_both_ways(self, text: str, same_as: str | None) -> None:
        found = Subscription.parse(text, TYPES)
        assert str(found) == (same_as or text)
        assert Subscription.parse(str(found), TYPES) == found

    @pytest.mark.parametrize(
        ("text", "column", "message"),
        [
            ("", 1, "the name of a type, found the end"),
            ("Lop", 1, "no event type is called Lop"),
            ("Loop has", 9, "name of an attribute"),
            ("Loop has plac", 10, "no attribute 'plac'"),
            ("Loop where", 11, "a value"),
            ("Loop where speed >", 19, "a value"),
            ("Loop where colour > 3", 12, "no attribute 'colour'"),
            ("Loop where lane > 3 lane", 21, "an operator or the end"),
            ("Loop where (lane > 3", 21, "')'"),
            ("Loop where lane + 1", 20, "a comparison"),
            ("Loop where lane > -true", 12, "cannot negate: true is bool"),
            ("Loop where lane in (-true)", 22, "a constant"),
            ("Loop where (valid) not lane", 20, "an operator or the end"),
            ("Loop where lane in (1, lane)", 24, "a constant"),
            ("Loop where place startswith 3", 29, "a text in single quotes"),
            ("Loop where lane is maybe", 20, "'present' or 'absent'"),
            ("Loop where place == 'open", 21, "no closing quote"),
            ("Loop where place == 'a\\q'", 21, "no escape"),
            ("Loop where lane # 3", 17, "'#' is not understood"),
            ("Loop where time > @2026-13-01T00:00:00Z", 19, "write a time like @2026-05-01T00:00:00Z"),
            ("Loop where time > @2026-01-01T00:00:00", 19, "no time zone"),
            ("Loop where lane > 3x", 19, "3x is not a number: use 3;"),
            ("Loop; import os", 5, "not understood"),
            ("Loop where __import__('os') == 1", 12, "there is no function __import__"),
            ("Loop where " + "(" * 300 + "lane", 76, f"nested more than {MAX_DEPTH} levels deep"),
            ("Loop where lane > " + "(" * 300 + "lane", 44, f"nested more than {MAX_VALUE_DEPTH} levels deep"),
            ("Loop where if lane > 1 then 2 else 3 > 1", 12, "a conditional is a value: write (if ... then ... else"),
            ("Loop where lane > 1 + if valid then 2", 23, "write (if ... then ... else ...) in parentheses"),
            ("Loop where lane > (if valid 1)", 29, "'then'"),
        ],
    )
    def test_errors_point_at_the_column(self, text: str, column: int, message: str) -> None:
        with pytest.raises(SyntaxProblem) as caught:
            Subscription.parse(text, TYPES)
        said, shown, mark = str(caught.value).split("\n")
        assert message in said
        assert f"(column {column})" in said
        assert shown.strip() == text.strip()
        assert mark.index("^") == 2 + column - 1

    def test_a_name_that_two_types_share_is_refused(self) -> None:
        def here() -> type:
            class Twin(Event):
                pass

            return Twin

        def there() -> type:
            class Twin(Event):
                pass

            return Twin

        one, two = here(), there()
        with pytest.raises(SyntaxProblem, match="several types are called Twin"):
            Subscription.parse("Twin", [one, two])
        assert Subscription.parse("Twin", [one]) == Subscription(one)
        again = here()
        assert Subscription.parse("Twin", [one, again]) == Subscription(again), "defined again, as in a notebook"

    def test_a_type_with_kinds_is_found_among_all_declared_types(self) -> None:
        class Unmistakable(Event, Roadside):
            lane: int

        assert Subscription.parse("Unmistakable where lane > 1") == Subscription(Unmistakable, where=this.lane > 1)

    @pytest.mark.parametrize(
        ("text", "column"),
        [
            ("Loop where lane > 1 and lane > 'x'", 25),
            ("Loop where lane == 99999999999999999999", 12),
            ("Loop where not (lane startswith 'a')", 17),
            ("Loop where valid and (lane + place) * 2 > 3", 22),
            ("Loop where category == 'bus'", 12),
            ("Loop has place, lane lacks speed, lane", 35),
        ],
    )
    def test_what_cannot_be_compared_is_pointed_at_too(self, text: str, column: int) -> None:
        with pytest.raises(SyntaxProblem, match=rf"\(column {column}\)"):
            Subscription.parse(text, TYPES)

    @pytest.mark.parametrize("levels", [10, 60])
    def test_deep_ones_read_back_too(self, levels: int) -> None:
        where = this.lane > 1
        for level in range(levels):
            where = ~where if level % 3 else where | (this.lane == level)
        deep = Subscription(Loop, where=where)
        assert Subscription.parse(str(deep), TYPES) == deep

    @examples(200)
    @given(st.text(max_size=40))
    def test_any_text_parses_or_is_refused_never_more(self, text: str) -> None:
        with pytest.raises(SyntaxProblem):
            Subscription.parse(f"Loop where {text} ;", TYPES)

    @examples(150)
    @given(st.integers(0, 10**9))
    @pytest.mark.filterwarnings("ignore::genus.errors.SubscriptionWarning")
    def test_generated_subscriptions_read_back_equal(self, seed: int) -> None:
        for subscription in Generator(seed).subscriptions(5):
            assert Subscription.parse(str(subscription), subscription.types) == subscription


@pytest.mark.parametrize(
    ("text", "duration", "said"),
    [
        ("2d", timedelta(days=2), "2d"),
        ("3h", timedelta(hours=3), "3h"),
        ("5min", timedelta(minutes=5), "5min"),
        ("7s", timedelta(seconds=7), "7s"),
        ("11ms", timedelta(milliseconds=11), "11ms"),
        ("13us", timedelta(microseconds=13), "13us"),
        ("48h", timedelta(days=2), "2d"),
        ("90s", timedelta(seconds=90), "90s"),
        ("1.5h", timedelta(minutes=90), "90min"),
        ("0.5us", timedelta(0), "0d"),
        ("1.5us", timedelta(microseconds=2), "2us"),
        ("-1.5s", timedelta(seconds=-1.5), "-1500ms"),
        ("9223372036854775807us", timedelta(microseconds=2**63 - 1), "9223372036854775807us"),
        ("-9223372036854775808us", timedelta(microseconds=-(2**63)), "-9223372036854775808us"),
    ],
)
def test_a_duration_is_written_in_the_largest_unit_that_divides_it(text: str, duration: timedelta, said: str) -> None:
    asked = Subscription.parse(f"Loop where expires - time == {text}", TYPES)
    assert asked == Subscription(Loop, where=this.expires - this.time == duration)
    assert str(asked) == f"Loop where expires - time == {said}"


@pytest.mark.parametrize("text", ["9223372036854775808us", "-9223372036854775809us", "106751992d", "1e400s"])
def test_a_duration_that_does_not_fit_in_64_bits_is_refused(text: str) -> None:
    with pytest.raises(SyntaxProblem):
        Subscription.parse(f"Loop where expires - time == {text}", TYPES)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("speed == -0.0", "speed == -0.0"),
        ("lane == -(-3)", "lane == 3"),
        ("lane == - 3", "lane == -3"),
        ("-lane == 3", "-lane == 3"),
        ("-(lane + 1) == 3", "-(lane + 1) == 3"),
        ("lane - -1 == 3", "lane - -1 == 3"),
        ("(lane + 1) + 2 - (3 + lane) == 3", "lane + 1 + 2 - (3 + lane) == 3"),
        ("(lane * 2) % 3 * (2 * 2) == 3", "lane * 2 % 3 * (2 * 2) == 3"),
        ("lane * (2 + 1) == lane + (2 * 1)", "lane * (2 + 1) == lane + 2 * 1"),
        ("(lane == 1 or valid) and not (valid and lane == 2)", None),
        ("((lane == 1 and valid) and lane == 3) or (lane == 4 or lane == 5)", None),
        ("not not valid", "not not valid == true"),
        ("lane == 1 and lane == 1", "lane == 1"),
        ("speed > (if valid then 1 else 2)", "speed > (if valid == true then 1.0 else 2.0)"),
        ("speed > if valid then 1", "speed > (if valid == true then 1.0)"),
        ("(if valid then if lane == 1 then 2 else 3) == 1", None),
        ("place == 'a\\n\\t\\r\\\\\\''", "place == 'a\\n\\t\\r\\\\\\''"),
        ("time > @2026-01-01T00:00:00.5Z", "time > @2026-01-01T00:00:00.500000Z"),
        ("valid != false", "valid != false"),
        ("(place == ')') or (place in ('(', 'or', 'not'))", "place == ')' or place in ('(', 'or', 'not')"),
        ("(lane) not in (1) and (lane) is present", "not lane in (1) and lane is present"),
    ],
)
def test_a_predicate_is_written_with_the_parentheses_it_needs(text: str, said: str | None) -> None:
    where = parse_again(f"Loop where {text}", TYPES).where
    found = parse_again(f"Loop where {where}", TYPES).where
    assert found == where
    if said is not None:
        assert str(where) == said


NESTED: dict[str, tuple[Callable[[int], str], int]] = {
    "not": (lambda levels: "not " * levels + "valid", MAX_DEPTH - 1),
    "a predicate in parentheses": (lambda levels: "(" * levels + "valid" + ")" * levels, MAX_DEPTH - 1),
    "a value in parentheses": (lambda levels: "(" * levels + "lane" + ")" * levels + " > 1", MAX_VALUE_DEPTH),
    "a minus sign": (lambda levels: "-" * levels + "lane > 1", MAX_VALUE_DEPTH - 1),
    "a function": (lambda levels: "abs(" * levels + "lane" + ")" * levels + " > 1", MAX_VALUE_DEPTH - 1),
    "coalesce": (lambda levels: "coalesce(1, " * levels + "lane" + ")" * levels + " > 1", MAX_VALUE_DEPTH - 1),
    "a sum": (lambda levels: "1 - (" * levels + "lane" + ")" * levels + " > 1", MAX_VALUE_DEPTH - 1),
    "then": (lambda levels: "lane > " + "if valid then " * levels + "1", MAX_VALUE_DEPTH - 1),
    "else": (lambda levels: "lane > " + "if valid then 1 else " * levels + "1", MAX_VALUE_DEPTH - 1),
    "a condition": (lambda levels: "lane > " + "if lane > " * levels + "1" + " then 1" * levels, MAX_CONDITION_DEPTH),
}


@pytest.mark.parametrize("form", NESTED)
def test_nesting_is_accepted_up_to_its_limit_and_beside_each_other_without(form: str) -> None:
    write, limit = NESTED[form]
    where = rebuild(Loop, where=write(limit)).where
    assert rebuild(Loop, where=where).where == where
    beside = rebuild(Loop, where=" or ".join(f"lane == {number} and {write(limit - 2)}" for number in range(9)))
    assert parse_again(str(beside), TYPES) == beside
    with pytest.raises(SubscriptionError, match="levels deep"):
        rebuild(Loop, where=write(limit + 1))


class TestSignatures:
    def test_a_class_that_cannot_be_evaluated_is_refused(self) -> None:
        class Signature:
            place: "Unheard"  # type: ignore[name-defined]  # noqa: F821

        with pytest.raises(SubscriptionError, match=r"the annotations of Signature cannot be evaluated: .*Unheard"):
            Subscription(Loop, has=Signature)

    def test_a_field_that_no_attribute_can_have_is_refused(self) -> None:
        class Signature:
            place: complex

        with pytest.raises(SubscriptionError, match=r"Signature\.place "):
            Subscription(Loop, has=Signature)

    def test_private_fields_and_optional_ones_are_not_required(self) -> None:
        class Signature:
            _place: int
            lane: int
            speed: float | None

        assert Subscription(Loop, has=Signature).has == ("lane",)
        assert Subscription(Loop, lacks=Signature).lacks == ("lane",)

    def test_the_width_of_a_number_belongs_to_its_type(self) -> None:
        class Gauge(Event):
            level: UInt8

        class Narrow:
            level: UInt8

        class Plain:
            level: int

        assert Subscription(Gauge, has=Narrow).has == ("level",)
        with pytest.raises(SubscriptionError, match=r"Plain\.level is int64, but in Gauge it is uint8"):
            Subscription(Gauge, has=Plain)

    def test_of_an_event_type_its_own_attributes_are_meant(self) -> None:
        assert Subscription(Wide, has=Loop).has == ("lane", "valid")


def test_attributes_are_in_the_order_of_the_vector_each_once() -> None:
    assert Subscription(Loop, has=["speed", "place", "speed"]).has == ("place", "speed")
    assert Subscription(Loop, has=iter(["speed"])).has == ("speed",)
    assert Subscription(Loop, has=0, lacks=()).has == ()


@pytest.mark.parametrize("given_", [True, False])
def test_a_bool_is_no_presence_bits(given_: bool) -> None:
    with pytest.raises(SubscriptionError, match="has takes presence bits, names or a class, not a bool"):
        Subscription(Loop, has=given_)


def test_the_classes_of_a_subscription_are_those_whose_events_can_match() -> None:
    assert set(Subscription(Loop).classes()) == {Loop, Wide}
    assert Subscription(Loop, exact=True).classes() == (Loop,)
    assert Subscription(Wide).classes() == (Wide,)
    assert set(Subscription(all_of(Event, Roadside)).classes()) == {Loop, Wide} == set(Subscription(Roadside).classes())
    assert Subscription(Roadside).accepts(Wide)
    assert not Subscription(Roadside, exact=True).accepts(Wide)
    assert not Subscription(Wide).accepts(Loop)


def test_of_types_the_event_type_comes_first_and_those_above_others_are_left_out() -> None:
    class Aside(Kind): ...

    assert Subscription(all_of(Roadside, Aside, Loop, Event)).types == (Loop, Aside)
    assert Subscription(all_of(Roadside, Aside)).types == (Aside, Roadside)
    assert Subscription(all_of(Loop, Loop)).types == (Loop,)
    assert str(Subscription(all_of(Roadside, Aside))) == "Aside & Roadside"


PUBLIC = (
    CompletionItem("a", "type"),
    Completion(0, 1, ()),
    Mismatch("has", "a", "false", ""),
    all_of(Loop, Roadside),
    *merge([Subscription(Loop)]),
)
NODES = tuple(rebuild(Loop, where=text).where for text in (
    "lane > 1", "not lane in (1, 2)", "place like 'a_'", "place is present or valid", "-lane + 1 > 2 and valid",
    "abs(speed) * 2 == lane", "coalesce(speed, 1) > (if valid then 1 else 2)", "time == @2026-01-01T00:00:00Z",
))  # fmt: skip


@pytest.mark.parametrize(
    "value", [*PUBLIC, *(node for where in NODES if where is not None for node in where.walk())], ids=repr
)
def test_what_subscriptions_are_made_of_does_not_change(value: Any) -> None:
    assert {value: 1}[copy.deepcopy(value)] == 1
    for field in value.__struct_fields__:
        with pytest.raises(AttributeError, match="immutable"):
            setattr(value, field, None)


def test_literals_are_equal_by_value_and_kind_of_value() -> None:
    different = [Literal(1), Literal(1.0), Literal(True), Literal("1"), Literal(0.0), Literal(-0.0), Literal(b"1")]
    for at, one in enumerate(different):
        for other_at, other in enumerate(different):
            assert (one == other) is (at == other_at)
            assert (one != other) is (at != other_at)
    assert Literal(1) != 1
    assert len({*different, Literal(1), Literal(-0.0)}) == len(different)


def test_trees_are_data() -> None:
    """Equal by structure, and built by operators without evaluating anything."""
    assert (this.lane > 1) == (this.lane > 1)
    assert (this.lane == 1) != (this.lane == 1.0)
    assert isinstance(~(this.lane > 1) | (this.lane == 3), Or)
    assert isinstance(~(this.lane > 1), Not)
    assert isinstance(this.lane > 5, Compare)
    assert {this.lane > 1, this.lane > 1} == {this.lane > 1}


def test_a_subscription_does_not_change() -> None:
    one = Subscription(Loop, has="place")
    with pytest.raises(AttributeError, match="is immutable"):
        one.exact = True
    assert one == Subscription(Loop, has=["place"])
    assert len({one, Subscription(Loop, has=["place"])}) == 1
    assert repr(one) == "Subscription('Loop has place')"
