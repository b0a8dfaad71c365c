"""Constants of predicates: what is no constant of an operator is refused when a subscription is made.

The law: any constant of any type in any operator is refused at creation, or every target gives the answer of
`Subscription.matches`, and none raises.
"""

import math
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus import Subscription, this
from genus.errors import SubscriptionError
from genus.filters._constants import split_options
from genus.filters._expression import AttributeRef
from genus.filters.types import And, Arithmetic, Compare, Function, Literal, OneOf, Or, Predicate, Step, TextTest
from tests.examples import examples, some_of
from tests.generators import Colour, Generator, Level, Sampler
from tests.test_truth_table import COSTLY, SAME_VALUES, TARGETS, check


class Word(StrEnum):
    A8 = "A8"


class Small(IntEnum):
    ONE = 1


class Odd(Enum):
    PAIR = (1, 2)
    NOTHING = None


class Shout(str):
    """A text with a representation of its own."""

    __slots__ = ()

    def __str__(self) -> str:
        return self.upper()

    __repr__ = __str__


class Nowhere(tzinfo):
    """A time zone without an offset: times in it are naive."""

    def utcoffset(self, _: datetime | None) -> None:
        return None

    def dst(self, _: datetime | None) -> None:
        return None

    def tzname(self, _: datetime | None) -> None:
        return None


NUMBERS: tuple[Any, ...] = (
    0, 1, -1, 3, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), 2**63, 10**30, True, 0.0, -0.0, 0.5, 3.0, 1e308,
    math.inf, -math.inf, math.nan, Small.ONE, np.int64(3), np.float64(0.5), np.float32(0.1), Decimal(1), 1j,
)  # fmt: skip
TEXTS: tuple[Any, ...] = (
    "", "A8", "%", "a_", "\\", "\\%", "a\\b", "it's", "\n", "\0", "é", "\U0001f600", "\ud800", "a\udfff", Shout("a8"),
    np.str_("A8"), Word.A8, b"", b"A8", b"\xff", bytearray(b"a"),
)  # fmt: skip
OTHERS: tuple[Any, ...] = (
    None, [], [1], (1, 2), {}, object(), int, Colour.RED, Level.HIGH, Odd.PAIR, Odd.NOTHING, "red", "purple",
    date(2026, 1, 1), datetime(2026, 1, 1), datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=Nowhere()),
    datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=5))), timedelta(0), timedelta(seconds=-1.5), timedelta.max,
)  # fmt: skip
ATTRIBUTES = ("flag", "tiny", "number", "real", "single", "text", "blob", "span", "time", "colour", "level", "parts")


def in_every_operator(name: str, constant: Any) -> Iterator[Callable[[], Predicate]]:
    """Functions that make a predicate of an attribute and a constant: by `this`, and of nodes made by hand."""
    term, node = this[name], AttributeRef(name)
    for compare in (term.__eq__, term.__ne__, term.__lt__, term.__ge__):
        yield partial(compare, constant)
    for test in (term.startswith, term.endswith, term.contains, term.like):
        yield partial(test, constant)
    yield lambda: term.isin([constant])
    yield lambda: term.isin([2, constant])
    yield lambda: term + constant > constant
    yield lambda: term * constant != 1
    yield lambda: term % constant == 1
    yield lambda: term // constant < 1
    yield lambda: term / constant < 1
    yield lambda: Compare(">", Arithmetic(Literal(constant), (Step("%", node),)), Literal(0))
    yield lambda: abs(term - constant) > 1
    yield lambda: term.length() > constant
    yield lambda: Compare("==", Literal(constant), node)
    yield lambda: Compare(">", Arithmetic(node, (Step("-", Literal(constant)),)), Literal(1))
    yield lambda: Compare(">", Function("abs", Literal(constant)), node)
    yield lambda: Compare(">=", Function("length", Literal(constant)), Literal(1)) & term.is_present()
    yield lambda: ~OneOf(node, (Literal(constant), Literal("A8")))
    yield lambda: Or((Compare("!=", node, Literal(constant)), And((TextTest("like", node, Literal(constant)),))))
    yield lambda: TextTest("startswith", node, Literal(constant))
    yield lambda: TextTest("contains", Literal(constant), Literal("8"))


def accepted(name: str, constant: Any) -> Iterator[Subscription]:
    """The subscriptions that are not refused; nothing but SubscriptionError may refuse one."""
    for make in in_every_operator(name, constant):
        try:
            yield Subscription(Sampler, where=make())
        except SubscriptionError:
            continue


FAST = tuple(target for target in TARGETS if target not in ("replay", *COSTLY, *SAME_VALUES))
CASES = some_of(((target, name) for target in (*FAST, *COSTLY) for name in ATTRIBUTES), 19)
EVENTS = [Sampler(), *Generator(7).events(25, Sampler)]


@pytest.mark.parametrize(
    "case", some_of(((target, name) for target in (*FAST, *COSTLY) for name in ATTRIBUTES), 19), ids=str
)
@pytest.mark.filterwarnings("ignore::genus.errors.SubscriptionWarning")
def test_every_constant_in_every_operator(case: tuple[str, str]) -> None:
    """Refused at creation, or the same answer everywhere."""
    target, name = case
    made = dict.fromkeys(one for constant in (*NUMBERS, *TEXTS, *OTHERS) for one in accepted(name, constant))
    assert len(made) < 26 * 66, "some must be refused"
    check(target, list(made), EVENTS)


constants = st.one_of(
    st.integers(), st.integers(-9, 9), st.floats(), st.booleans(), st.text(), st.binary(max_size=3),
    st.text(st.characters(codec=None, categories=("Cs", "Lu")), max_size=3), st.text("%_\\A8", max_size=5),
    st.datetimes(), st.datetimes(timezones=st.just(UTC)), st.timedeltas(), st.sampled_from((*Colour, *Level, *Word)),
)  # fmt: skip


@examples(120)
@given(st.sampled_from(ATTRIBUTES), constants, st.integers(0, 10**6))
@pytest.mark.filterwarnings("ignore::genus.errors.SubscriptionWarning")
def test_any_constant(name: str, constant: Any, seed: int) -> None:
    made = list(accepted(name, constant))
    events = Generator(seed).events(4, Sampler)
    for target in FAST if made else ():
        check(target, made, events)


class TestRefusedWhenThePredicateIsMade:
    """The parts of text tests need no type to be checked."""

    @pytest.mark.parametrize("part", [5, 1.5, True, b"A8", Word.A8, Colour.RED, "\ud800", None, ["a"]])
    @pytest.mark.parametrize("test", ["startswith", "endswith", "contains", "like"])
    def test_a_part_that_is_no_text(self, test: str, part: Any) -> None:
        with pytest.raises(SubscriptionError):
            getattr(this.text, test)(part)

    @pytest.mark.parametrize("where", ["text startswith '\ud800'", "text == '\udfff'", "text in ('a', '\udc00')"])
    def test_a_lone_surrogate_in_text(self, where: str) -> None:
        with pytest.raises(SubscriptionError, match="surrogate"):
            Subscription.parse(f"Sampler where {where}", [Sampler])

    def test_the_message_says_what_to_write(self) -> None:
        with pytest.raises(SubscriptionError, match=r"startswith takes a text, not .*Word.* write 'A8'"):
            this.text.startswith(Word.A8)


@pytest.mark.parametrize(
    "where",
    [
        And(()),
        Or((And(()),)),
        Compare("~", AttributeRef("number"), Literal(1)),
        Compare("==", AttributeRef("number"), 1),  # type: ignore[arg-type]
        Compare("==", AttributeRef(5), Literal(1)),  # type: ignore[arg-type]
        OneOf(AttributeRef("number"), (1, 2)),  # type: ignore[arg-type]
        TextTest("matches", AttributeRef("text"), Literal("a")),
        TextTest("like", AttributeRef("text"), "a%"),  # type: ignore[arg-type]
        Compare(">", Function("sqrt", AttributeRef("real")), Literal(1)),
        Compare(">", Arithmetic(AttributeRef("real"), (Step("**", Literal(2)),)), Literal(1)),
        Compare(">", Arithmetic(AttributeRef("real"), ()), Literal(1)),
    ],
)
def test_trees_made_by_hand_are_checked(where: Predicate) -> None:
    with pytest.raises(SubscriptionError):
        Subscription(Sampler, where=where)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "nothing equals an absent value: use .is_absent() or .is_present(), not None"),
        (date(2026, 5, 1), "is a date; write the instant, datetime(2026, 5, 1, tzinfo=UTC)"),
        ([1], "is a list, which no attribute can be compared with: write .isin([...])"),
        ({1}, "is a set, which no attribute can be compared with: write .isin([...])"),
        (this, "`this` is the event, not a value: name an attribute, such as this.speed"),
        (this.number > 1, "number > 1 is a predicate, not a value: put each comparison in parentheses"),
        (1j, "1j is a complex, which no attribute can be compared with"),
        (2**63, "9223372036854775808 does not fit in 64 bits"),
        (-(2**63) - 1, "-9223372036854775809 does not fit in 64 bits"),
        (math.nan, "a comparison with NaN is never true; test for presence instead"),
    ],
)
def test_what_is_no_constant_is_answered_with_what_to_write(value: Any, message: str) -> None:
    with pytest.raises(SubscriptionError) as caught:
        Subscription(Sampler, where=this.number == value)
    assert message in str(caught.value)


def test_what_is_no_list_of_constants_is_answered_with_what_to_write() -> None:
    with pytest.raises(SubscriptionError, match=r"isin takes a list: write \.isin\(\[1, 2\]\)"):
        this.number.isin(1, 2)  # type: ignore[arg-type]
    with pytest.raises(SubscriptionError, match="nothing equals an absent value"):
        this.number.isin([None])  # type: ignore[list-item]
    with pytest.raises(SubscriptionError, match="<term real> is not a constant: compare two attributes by =="):
        this.number.isin([this.real])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("options", "groups"),
    [
        ((1, 2), [[1, 2]]),
        ((1.0, 2.5), [[1.0, 2.5]]),
        ((1, 2.0, 2.5), [[1, 2], [2.5]]),
        ((1, math.inf), [[1], [math.inf]]),
        ((1, 2.0**53 - 1), [[1, 2**53 - 1]]),
        ((1, 2.0**53), [[1], [2.0**53]]),
        ((1, -(2.0**53) + 1), [[1, -(2**53) + 1]]),
        ((1, -(2.0**53)), [[1], [-(2.0**53)]]),
    ],
)
def test_floats_of_one_integer_only_are_compared_as_integers(options: Any, groups: list[list[Any]]) -> None:
    found = [[option.value for option in group] for group in split_options(tuple(map(Literal, options)))]
    assert found == groups
    assert [list(map(type, group)) for group in found] == [list(map(type, group)) for group in groups]


@pytest.mark.parametrize("value", [Shout("a8"), np.str_("A8"), np.float64(0.5), Small.ONE])
def test_values_of_subclasses_become_plain(value: Any) -> None:
    """So the text form is that of the plain value."""
    name = "text" if isinstance(value, str) else "real"
    made = Subscription(Sampler, where=this[name] == value)
    assert Subscription.parse(str(made), [Sampler]) == made


class TestListsOfIntegers:
    """Integer options are compared exactly, whatever else is in the list; a float by the rule of mixed numbers."""

    BIG = 2**53 + 1

    def test_a_float_does_not_round_the_others(self) -> None:
        mixed = Subscription(Sampler, where=this.number.isin([self.BIG, 0.5]))
        assert mixed.matches(Sampler(number=self.BIG))
        assert not mixed.matches(Sampler(number=self.BIG - 1))

    def test_a_large_float_is_compared_as_a_float(self) -> None:
        mixed = Subscription(Sampler, where=this.number.isin([3, 2.0**53]))
        assert all(mixed.matches(Sampler(number=number)) for number in (3, 2**53, 2**53 + 1))
        assert not mixed.matches(Sampler(number=2**53 + 2))

    def test_a_float_that_is_one_integer_joins_the_integers(self) -> None:
        assert str(Subscription(Sampler, where=this.number.isin([1, 2.0]))) == "Sampler where number in (1, 2)"

    @examples(100)
    @given(
        st.lists(
            st.one_of(st.integers(-5, 5), st.integers(2**53 - 3, 2**53 + 3), st.floats(allow_nan=False)), min_size=1
        ),
        st.one_of(st.integers(-5, 5), st.integers(2**53 - 3, 2**53 + 3)),
    )
    @pytest.mark.filterwarnings("ignore::genus.errors.SubscriptionWarning")
    def test_membership_is_equality_with_one_of_them(self, options: list[Any], number: int) -> None:
        event = Sampler(number=number)
        one_by_one = [Subscription(Sampler, where=this.number == option).matches(event) for option in options]
        assert Subscription(Sampler, where=this.number.isin(options)).matches(event) is any(one_by_one)
