"""Long and deep predicates: chains are flat on every target, deep nesting is refused, names are those of Python."""

import operator
from collections.abc import Callable
from functools import cache, reduce
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus import Event, Subscription, coalesce, this, when
from genus.errors import SubscriptionError
from genus.filters._expression import (
    MAX_CONDITION_DEPTH,
    MAX_DEPTH,
    MAX_STEPS,
    MAX_VALUE_DEPTH,
    AttributeRef,
    ToFloat,
)
from genus.filters.types import Arithmetic, Literal, Negation, Not, Predicate, Step, Term
from genus.model.internal import is_attribute_name
from genus.targets import arrow, python, spark
from genus.targets.index import SubscriptionIndex
from genus.testing import compiled_expressions, spark_session
from tests.examples import examples
from tests.generators import Generator, Sampler
from tests.lake.stored import stored_frame
from tests.test_truth_table import COSTLY, SAME_VALUES, TARGETS, check, oracle

LONG, SHORT = 2000, 100
EVENTS = Generator(5).events(12, Sampler)


def chain(length: int, names: tuple[str, ...], *signs: Callable[[Any, Any], Any]) -> Term:
    """A chain that uses the signs in turn, on attributes and small constants."""
    result = this[names[0]]
    for number in range(length):
        other = this[names[number % len(names)]] if number % 3 else number % 7 - 3
        result = signs[number * number % len(signs)](result, other)
    return result


@cache
def long_ones(length: int) -> dict[str, Predicate]:
    """Predicates with chains of a length."""
    numbers = range(length)
    return {
        "sum of integers": chain(length, ("number", "other"), operator.add, operator.sub) > 5,
        "sum of small integers": chain(length, ("tiny", "octet"), operator.add, operator.sub) != 5,
        "sum of floats": chain(length, ("real", "number", "ratio"), operator.sub, operator.add) < 1e3,
        "product": chain(length, ("number", "tiny"), operator.mod, operator.floordiv, operator.mul) <= 3,
        "product of floats": chain(length, ("real", "tiny"), operator.truediv, operator.mod, operator.mul) <= 3,
        "and": reduce(operator.and_, [this.number != 5 * n for n in numbers]),
        "or": reduce(operator.or_, [this.number + 1 == 5 * n for n in numbers]),
        "not and": ~reduce(operator.and_, [this.real != 5 * n for n in numbers]),
        "in": this.number.isin(list(numbers)),
    }


@cache
def long_cases(length: int) -> tuple[list[Subscription], list[list[bool]]]:
    asked = [Subscription(Sampler, where=where) for where in long_ones(length).values()]
    return asked, oracle(asked, EVENTS)


@pytest.mark.parametrize(
    ("target", "length"),
    [
        *((one, 4 * SHORT) for one in TARGETS if one not in (*COSTLY, *SAME_VALUES)),
        *(pytest.param(one, LONG, marks=pytest.mark.slow) for one in TARGETS if one not in ("spark", *SAME_VALUES)),
    ],
)
def test_long_chains_run_on_every_target(target: str, length: int) -> None:
    asked, expected = long_cases(length)
    check(target, asked, EVENTS, expected)


@pytest.mark.slow
@pytest.mark.parametrize("length", [SHORT, LONG])
def test_long_chains_run_on_spark(length: int) -> None:
    for where in long_ones(length).values():
        check("spark", [Subscription(Sampler, where=where)], EVENTS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "length"),
    [
        ("and", 250),
        *(
            pytest.param(form, size, marks=pytest.mark.slow)
            for form, size in (("or", 250), ("and", LONG), ("or", LONG))
        ),
    ],
)
def test_long_filters_of_stored_tables(form: str, length: int, tmp_path: Path) -> None:
    """Spark takes a conjunction apart to test it on files, and must not nest it again too deep."""
    frame = stored_frame(spark_session(), EVENTS, tmp_path)
    asked = Subscription(Sampler, where=long_ones(length)[form])
    with compiled_expressions(spark_session()):
        assert spark.compile(asked).filter(frame).count() == sum(map(asked.matches, EVENTS))


def nested(wrap: Callable[[Any, int], Any], levels: int, start: Any) -> Any:
    for level in range(levels):
        start = wrap(start, level)
    return start


DEEP: dict[str, Callable[[Any, int], Any]] = {
    "abs": lambda value, _: abs(value),
    "right": lambda value, level: level - value,
    "remainder": lambda value, level: (level + 1000) % value,
    "both": lambda value, level: (level - value) if level % 2 else value * 3 % 7,
    "float": lambda value, level: (level + 2.5) // value,
    "choice": lambda value, level: when(this.tiny > level, value, level) if level % 2 else coalesce(value, level),
}


@pytest.mark.parametrize("form", DEEP)
@pytest.mark.parametrize(
    "target", [*(t for t in TARGETS if t not in COSTLY), *(pytest.param(t, marks=pytest.mark.slow) for t in COSTLY)]
)
def test_the_deepest_values_run_on_every_target(target: str, form: str) -> None:
    value = nested(DEEP[form], MAX_VALUE_DEPTH - 1, this.number)
    asked = [Subscription(Sampler, where=value > 1)]
    if form == "choice":
        deep = nested(lambda one, level: when(one > level, this.tiny, level), MAX_CONDITION_DEPTH, this.number)
        asked.append(Subscription(Sampler, where=deep > 3))
    check(target, asked, EVENTS)


def deep_predicate(value: Any, level: int) -> Any:
    return (
        ~value if level % 3 == 0 else value | (this.number == level) if level % 3 == 1 else value & (this.tiny > level)
    )


@pytest.mark.parametrize("target", TARGETS)
def test_the_deepest_predicates_run_on_every_target(target: str) -> None:
    check(target, [Subscription(Sampler, where=nested(deep_predicate, MAX_DEPTH - 1, this.number > 3))], EVENTS)


@examples(150)
@given(st.lists(st.integers(0, 9), min_size=8, max_size=30))
def test_what_a_deep_tree_accepts_its_text_is_accepted(wraps: list[int]) -> None:
    """However deep it is; a tree that is too deep is refused when the subscription is made."""
    forms: list[Callable[[Any], Any]] = [
        lambda one: -one,
        lambda one: -one,
        lambda one: when(this.flag, one, 1),
        lambda one: when(this.flag, one),
        lambda one: when(this.flag, 1, one),
        lambda one: when(one > 1, this.tiny, 2),
        lambda one: coalesce(one, 1.5),
        abs,
        lambda one: 1 - one,
        lambda one: one * 2.5,
    ]
    value = reduce(lambda one, form: forms[form](one), wraps, this.number)
    try:
        made = Subscription(Sampler, where=value > 1)
    except SubscriptionError as problem:
        if "levels deep" not in str(problem):
            raise
    else:
        assert Subscription.parse(str(made), [Sampler]) == made


@pytest.mark.parametrize("form", ["-", "when", "in"])
def test_the_text_of_the_deepest_tree_is_accepted(form: str) -> None:
    value = nested(lambda one, _: -one if form == "-" else when(this.flag, one, 1), MAX_VALUE_DEPTH - 1, this.number)
    where = value == 1
    if form == "in":
        where = nested(lambda one, _: ~one, MAX_DEPTH - 2, this.number.isin([1, 2.5]))
    made = Subscription(Sampler, where=where)
    assert Subscription.parse(str(made), [Sampler]) == made
    if form == "in":
        with pytest.raises(SubscriptionError, match="levels deep"):
            Subscription(Sampler, where=~where)


class TestRefused:
    """With SubscriptionError, never with RecursionError, however deep."""

    @pytest.mark.parametrize("levels", [MAX_VALUE_DEPTH + 1, 100_000])
    @pytest.mark.parametrize("form", ["abs", "right", "remainder"])
    def test_deep_values(self, form: str, levels: int) -> None:
        with pytest.raises(SubscriptionError, match="levels deep"):
            Subscription(Sampler, where=nested(DEEP[form], levels, this.number) > 1)

    def test_deep_conditions(self) -> None:
        deep = nested(lambda one, level: when(one > level, 1, level), MAX_CONDITION_DEPTH + 1, this.number)
        with pytest.raises(SubscriptionError, match=f"more than {MAX_CONDITION_DEPTH} levels deep"):
            Subscription(Sampler, where=deep > 1)

    @pytest.mark.slow
    def test_deep_choices(self) -> None:
        deep = nested(lambda one, level: when(this.flag, one, level), 100_000, this.number)
        with pytest.raises(SubscriptionError, match=f"more than {MAX_VALUE_DEPTH} levels deep"):
            Subscription(Sampler, where=deep > 1)

    @pytest.mark.parametrize("levels", [MAX_DEPTH + 1, 100_000])
    def test_deep_predicates(self, levels: int) -> None:
        with pytest.raises(SubscriptionError, match="levels deep"):
            Subscription(Sampler, where=nested(lambda value, _: Not(value), levels, this.number > 1))

    def test_deep_trees_made_by_hand(self) -> None:
        left: Any = nested(lambda value, _: Arithmetic(value, (Step("+", Literal(1)),)), 3000, AttributeRef("number"))
        assert Subscription(Sampler, where=Term(left) > 1).matches(Sampler(number=1)), "a flat sum, in another form"
        floats: Any = nested(lambda value, _: ToFloat(value), 100_000, AttributeRef("number"))
        assert Subscription(Sampler, where=Term(floats) > 1).matches(Sampler(number=2))
        with pytest.raises(SubscriptionError, match="levels deep"):
            Subscription(Sampler, where=Term(nested(lambda value, _: Negation(value), 100_000, left)) > 1)

    @pytest.mark.parametrize(
        "text",
        [
            "(" * 5000 + "number",
            "not " * 5000 + "flag",
            "-" * 5000 + "number > 1",
            "abs(" * 5000 + "number",
            "number > if flag then " + "if flag then " * 5000,
            "number > " + "if number > " * 5000,
            "number > " + "coalesce(" * 5000,
        ],
        ids=lambda text: text[:20],
    )
    def test_deep_texts(self, text: str) -> None:
        with pytest.raises(SubscriptionError, match="levels deep"):
            Subscription.parse(f"Sampler where {text}", [Sampler])

    def test_chains_beyond_the_bound(self) -> None:
        assert Subscription.parse(f"Sampler where number{' + 1' * MAX_STEPS} > 1", [Sampler])
        ones = " + 1" * (MAX_STEPS + 1)
        with pytest.raises(SubscriptionError, match=f"more than {MAX_STEPS}"):
            Subscription.parse(f"Sampler where number{ones} > 1", [Sampler])


def test_the_limits_are_those_of_the_page() -> None:
    page = " ".join((Path(__file__).parents[2] / "docs" / "semantics.md").read_text().split())
    levels = (
        f"{MAX_DEPTH} levels for predicates, {MAX_VALUE_DEPTH} for values, and {MAX_CONDITION_DEPTH} for conditionals"
    )
    assert levels in page
    assert f"{MAX_STEPS:,} operators" in page


@pytest.mark.slow
@pytest.mark.parametrize("word", ["and", "or"])
def test_fifty_thousand_tests_are_read_and_written(word: str) -> None:
    text = "Sampler where " + f" {word} ".join(f"number != {n}" for n in range(50_000))
    assert str(Subscription.parse(text, [Sampler])) == text


@examples(150)
@given(st.integers(0, 10**9))
@pytest.mark.filterwarnings("ignore::genus.errors.SubscriptionWarning")
def test_bound_trees_bind_to_themselves(seed: int) -> None:
    """What a target leaves to the receiver is a subscription made of bound parts."""
    for subscription in Generator(seed).subscriptions(5):
        if subscription.where is not None:
            assert Subscription(subscription.type, where=subscription.where).where == subscription.where


# -- names ------------------------------------------------------------------------------------------------------------

SPECIAL = (
    "a·b",
    "℘",
    "℮",
    "हिन्दी",
    "ªb",
    "ﬁx",
    "fix",
    "ſ",
    "s",
    "µ",
    "μ",
    "x",
    "e5",
    "us",
    "Ⅷ",
    "𝐱",
    "ｘ",
    "゛a",
    "አ፩",
)
identifiers = st.one_of(
    st.sampled_from([name for name in SPECIAL if name.isidentifier()]),
    st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=3).filter(str.isidentifier),
)


def declare(type_name: str, names: list[str]) -> Any:
    metaclass: Any = type(Event)
    fields: dict[str, object] = dict.fromkeys(names, int | None)
    made: Any = metaclass(type_name, (Event,), {"__annotations__": fields, "__module__": __name__})
    return made


@examples(100)
@given(identifiers, st.lists(identifiers, min_size=1, max_size=4, unique=True))
def test_any_identifier_of_python_is_a_name_in_text_and_on_targets(type_name: str, names: list[str]) -> None:
    """Also one that Python would normalize (NFKC) in source code; it stays as it was declared."""
    usable = [name if is_attribute_name(name) else f"q{name}" for name in names]
    cls = declare(f"T{type_name}", list(dict.fromkeys(usable)))
    for name in cls.__struct_fields__[5:]:
        asked = Subscription(cls, has=name, where=(this[name] > 3) & (abs(this[name]) % 5 > 1))
        assert Subscription.parse(str(asked), [cls]) == asked
        events = [cls(**{name: 7}), cls(**{other: 7 for other in cls.__struct_fields__[5:] if other != name})]
        assert [asked.matches(event) for event in events] == [True, False]
        assert [python.compile(asked)(event) for event in events] == [True, False]
        assert arrow.compile(asked).mask(arrow.to_batch(events)).to_pylist() == [True, False]
        index = SubscriptionIndex()
        handle = index.add(asked)
        assert [list(index.match(event)) for event in events] == [[handle], []]


@pytest.mark.parametrize("text", ["lane “ 3", "a\u00a0“", "«x»", "·a > 1", "2·a > 1", "a² > 1", "a“" * 5000])
def test_what_is_no_identifier_is_refused(text: str) -> None:
    with pytest.raises(SubscriptionError):
        Subscription.parse(f"Sampler where {text}", [Sampler])
