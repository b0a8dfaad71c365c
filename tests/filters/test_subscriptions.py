"""Subscriptions: what they say, how they are written, and what is refused."""

from datetime import datetime, timedelta, timezone
from enum import Enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus import Event, Kind, Maybe, Subscription, all_of, this
from genus.errors import SubscriptionError, SyntaxProblem
from genus.filters._expression import MAX_DEPTH, MAX_VALUE_DEPTH
from genus.filters.types import Compare, Not, Or
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
