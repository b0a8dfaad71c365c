"""`complete`: what can stand at the cursor of a half-typed subscription text."""

import random
import re
from datetime import timedelta
from enum import Enum
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus import Event, Kind, Maybe, Unit
from genus.errors import SubscriptionError
from genus.filters import complete
from genus.filters._parser import _Parser
from genus.filters._subscription import parse_again
from genus.filters._type_names import Token
from genus.filters.types import Completion, CompletionItem
from genus.model import subtypes, vector
from tests.examples import examples, some_of
from tests.generators import Generator, Sampler, edge_subscriptions


class Category(Enum):
    TRUCK = "truck"
    CAR = "car"
    VAN = "delivery van"


class Roadside(Kind):
    """Something beside a road."""


class Portable(Kind): ...


class Loop(Event, Roadside):
    """An induction loop."""

    lane: int
    speed: Annotated[Maybe[float], Unit("m/s")] = None
    category: Maybe[Category] = None
    valid: bool = True
    gap: Maybe[timedelta] = None
    raw: Maybe[list[int]] = None
    length: Maybe[float] = None

    @property
    def kmh(self) -> Any:
        return self.speed * 3.6  # type: ignore[operator]

    @property
    def speeding(self) -> Any:
        return self.kmh > 130

    @property
    def unusable(self) -> str:
        return f"{self.lane}"


class Wide(Loop):
    width: Maybe[float] = None


class Gate(Event, name="house.Gate"): ...


TYPES = (Loop, Wide, Roadside, Portable, Gate)
ATTRIBUTES = [attribute.name for attribute in vector(Loop)]


def at_end(text: str) -> Completion:
    """The completion at `|`, or at the end."""
    at = text.find("|")
    return complete(text.replace("|", ""), at if at >= 0 else len(text), TYPES)


def texts(text: str, kind: str | None = None) -> list[str]:
    return [item.text for item in at_end(text).items if kind in (None, item.kind)]


class TestTheHead:
    def test_types_and_kinds_come_first(self) -> None:
        assert at_end("").items == (
            CompletionItem("house.Gate", "type"),
            CompletionItem("Loop", "type", "An induction loop."),
            CompletionItem("Portable", "kind"),
            CompletionItem("Roadside", "kind", "Something beside a road."),
            CompletionItem("Wide", "type"),
            CompletionItem("exact", "keyword", "this type alone, without its subtypes"),
        )

    def test_without_types_all_declared_ones_are_known(self) -> None:
        assert "Sampler" in [item.text for item in complete("Sampl", 5).items]

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("exact ", ["house.Gate", "Loop", "Portable", "Roadside", "Wide"]),
            ("Loop ", ["has", "lacks", "where", "&"]),
            ("exact Loop ", ["has", "lacks", "where"]),
            ("Loop & ", ["Portable", "Roadside", "Wide"]),
            ("Roadside & ", ["house.Gate", "Loop", "Portable", "Wide"]),
            ("Loop & Portable ", ["has", "lacks", "where", "&"]),
            ("Loop has place ", [",", "lacks", "where"]),
            ("Loop has place lacks speed ", [",", "where"]),
            ("Unknown ", ["has", "lacks", "where", "&"]),
            ("Unknown has ", []),
            ("Unknown where ", []),
            ("Loop Loop ", []),
            ("Loop has where ", []),
            ("Loop ! ", []),
            ("where ", []),
        ],
    )
    def test_what_can_follow(self, text: str, words: list[str]) -> None:
        assert texts(text) == words

    def test_attributes_are_told_once_with_type_and_unit(self) -> None:
        assert texts("Loop has ") == ATTRIBUTES
        assert texts("Loop has place, lane lacks speed, ") == [
            name for name in ATTRIBUTES if name not in ("place", "lane", "speed")
        ]
        assert at_end("Loop has spe").items == (CompletionItem("speed", "attribute", "float64? [m/s]"),)
        (category,) = at_end("Loop lacks cat").items
        assert category.note == "truck|car|delivery van?"

    def test_attributes_that_only_siblings_have_come_last(self) -> None:
        assert texts("Loop has ")[-1] == "width"
        assert at_end("Roadside has ").items == at_end("house.Gate has ").items


class TestTheWordAtTheCursor:
    @pytest.mark.parametrize(
        ("text", "word"),
        [
            ("Lo|", "Lo"),
            ("Lo|op has", "Loop"),
            ("Loop has pl|ace, lane", "place"),
            ("Loop has |place", ""),
            ("Loop has place,|", ""),
            ("house.|", "house."),
            ("house.Ga|", "house.Ga"),
            ("Loop where category == 'tr|", "'tr"),
            ("Loop where category == 'tr|uck' and lane > 1", "'truck'"),
            ("Loop where category != |", ""),
            ("Loop where time > @20|", "@20"),
            ("Loop where time > @20|26-05-01T00:00:00Z or valid", "@2026-05-01T00:00:00Z"),
            ("Loop where lane !|", "!"),
        ],
    )
    def test_it_is_replaced(self, text: str, word: str) -> None:
        found = at_end(text)
        assert text.replace("|", "")[found.start : found.end] == word
        assert found.items

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("Loop has l", ["lane", "length", "place", "deadline", "valid"]),
            ("Loop has L", ["lane", "length", "place", "deadline", "valid"]),
            ("Ga", ["house.Gate"]),
            ("gATE", ["house.Gate"]),
            ("house.", ["house.Gate"]),
            ("xyz", []),
            ("Loop where category == 'v", ["'delivery van'"]),
            ("Loop where lane !", ["!="]),
            ("Loop w", ["where"]),
            ("Loop where lane > 3", []),
        ],
    )
    def test_what_begins_with_it_comes_before_what_contains_it(self, text: str, words: list[str]) -> None:
        assert texts(text) == words

    def test_the_nearest_comes_first(self) -> None:
        class Ranked(Event):
            subspeed: int
            top_speed: int
            Speed: int
            speed: int
            slow: int

        assert [item.text for item in complete("Ranked has speed", 16, [Ranked]).items] == [
            "speed",
            "Speed",
            "top_speed",
            "subspeed",
        ]

    def test_there_are_at_most_a_hundred_items_and_the_best_are_among_them(self) -> None:
        metaclass: Any = type(Event)
        made = [metaclass(f"Many{number}", (Event,), {"__module__": __name__}) for number in range(300)]
        assert len(complete("", 0, made).items) == 100
        assert complete("Many299", 7, made).items[0].text == "Many299"

    @pytest.mark.parametrize("at", [-5, 4, 10_000])
    def test_a_cursor_outside_of_the_text_is_at_its_end(self, at: int) -> None:
        assert complete("Loop", at, TYPES).end == (0 if at < 0 else 4)


class TestPredicates:
    def test_a_test_begins_with_an_attribute_a_property_or_a_function(self) -> None:
        for text in ("Loop where ", "Loop where valid and ", "Loop where not (", "Loop where lane between 1 and 2 or "):
            conditional = ["if"] if text.endswith("(") else []
            functions = ["abs(", "length(", "coalesce("]
            assert texts(text) == [*ATTRIBUTES, "kmh", "speeding", *functions, *conditional, "not", "("]
        (kmh,) = at_end("Loop where km").items
        assert (kmh.kind, kmh.note) == ("attribute", "speed * 3.6")

    @pytest.mark.parametrize(
        ("value", "operators"),
        [
            ("lane", "== != < <= > >= in between is not + - * / // %"),
            ("kmh", "== != < <= > >= in between not + - * / // %"),
            ("place", "== != < <= > >= in between startswith endswith contains like is not"),
            ("category", "== != in is not"),
            ("valid", "== != in is not and or"),
            ("speeding", "== != in not and or"),
            ("raw", "is"),
            ("time", "== != < <= > >= in between is not + -"),
            ("(lane + 1)", "== != < <= > >= in between not + - * / // %"),
            ("lane > 1", "and or + - * / // %"),
            ("(lane > 1)", "and or"),
            ("lane between 1", "and + - * / // %"),
            ("lane between 1 and 3", "and or + - * / // %"),
            ("place like 'a%'", "and or escape"),
            ("lane in (1, 2)", "and or"),
            ("lane is", "present absent"),
            ("lane not", "in"),
            ("lane in", "("),
            ("lane in (1", ", )"),
            ("(lane", "== != < <= > >= in between is not + - * / // % )"),
            ("(lane > 1", "and or + - * / // % )"),
            ("abs(lane", "+ - * / // % )"),
            ("(lane > 1 or lane + 1", "== != < <= > >= in between not + - * / // %"),
            ("(not lane + 1", "== != < <= > >= in between not + - * / // %"),
            ("gap > expires", "+ -"),
            ("place > 3", ""),
            ("nothing", ""),
        ],
    )
    def test_the_operators_of_a_type(self, value: str, operators: str) -> None:
        assert texts(f"Loop where {value} ", "keyword") == operators.split()
        within = texts(f"Loop where lane == 1 or not ({value} ", "keyword")
        assert [word for word in within if word != ")"] == [word for word in operators.split() if word != ")"]

    @pytest.mark.parametrize(
        ("test", "values"),
        [
            ("category == ", ["'truck'", "'car'", "'delivery van'"]),
            ("category in ('car', ", ["'truck'", "'car'", "'delivery van'"]),
            ("valid != ", ["true", "false"]),
            ("time >= ", ["@2026-05-01T00:00:00Z"]),
            ("gap < ", ["1s"]),
            ("speed < -", ["inf"]),
            ("lane < ", ["inf"]),
            ("place == ", []),
        ],
    )
    def test_values_of_a_type(self, test: str, values: list[str]) -> None:
        assert texts(f"Loop where {test}", "value") == values

    @pytest.mark.parametrize(
        ("test", "attributes"),
        [
            ("place == ", ["place", "source"]),
            ("category != ", ["category"]),
            ("lane > 2 * (1 + ", ["lane", "speed", "length", "width", "kmh", "gap"]),
            ("abs(", ["lane", "speed", "gap", "length", "width", "kmh", "time", "deadline", "expires"]),
            ("gap > ", ["gap", "time", "lane", "deadline", "expires"]),
            ("length(", ["place", "source"]),
            ("lane in (", []),
            ("place startswith ", []),
            ("raw == ", []),
        ],
    )
    def test_attributes_that_fit_come_first_then_those_that_arithmetic_makes_fit(
        self, test: str, attributes: list[str]
    ) -> None:
        found = texts(f"Loop where {test}", "attribute")
        assert sorted(found) == sorted(attributes)

    def test_attributes_of_a_test_are_told_with_type_and_unit(self) -> None:
        assert at_end("Loop where spe").items[0] == CompletionItem("speed", "attribute", "float64? [m/s]")
        assert at_end("Loop where lane > spe").items[0] == CompletionItem("speed", "attribute", "float64? [m/s]")

    @pytest.mark.parametrize(
        ("text", "notes"),
        [
            ("Loop where lane == 1 ", {"and": "both", "or": "one of them or both"}),
            ("Loop where lane between 1 ", {"and": "up to"}),
            ("Loop where (if valid ", {"then": "the value if it is true"}),
            ("Loop where (if valid then 1 ", {"else": "the value if it is false"}),
            ("Loop where lane is ", {"present": "", "absent": ""}),
            ("Loop where lane not ", {"in": "one of some constants"}),
            ("Loop where lane ", {"not": "none of some constants", "==": "equal", "//": "divided by, rounded down"}),
            ("Loop where time > ", {"@2026-05-01T00:00:00Z": "a time"}),
            ("Loop where gap > ", {"1s": "a duration"}),
            (
                "Loop where speed > ",
                {"inf": "more than any other number", "coalesce(": "the first value that is known"},
            ),
            ("Loop where valid == ", {"true": "", "false": ""}),
        ],
    )
    def test_a_note_says_what_an_item_means_here(self, text: str, notes: dict[str, str]) -> None:
        found = {item.text: item.note for item in at_end(text).items}
        assert {word: found.get(word) for word in notes} == notes

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("(if ", "not ("),
            ("(if valid ", "== != in is not and or then"),
            ("(if valid then ", "( -"),
            ("(if valid then 1 ", "else + - * / // % )"),
            ("(if valid then 1 else 2 ", "+ - * / // % )"),
            ("(if valid then 1 else 2) ", "== != < <= > >= in between not + - * / // %"),
            ("(valid and ", "not ("),
            ("lane == (if valid then ", "( -"),
        ],
    )
    def test_the_words_of_a_choice(self, text: str, words: str) -> None:
        found = [item.text for item in at_end(f"Loop where {text}").items if item.kind == "keyword"]
        assert [word for word in found if word != "if"] == words.split()

    @pytest.mark.parametrize("length", [80, 81])
    def test_a_note_has_at_most_eighty_characters(self, length: int) -> None:
        metaclass: Any = type(Event)
        made = metaclass("Noted", (Event,), {"__module__": __name__, "__doc__": "x" * length})
        (item,) = complete("Noted", 5, [made]).items
        assert item.note == ("x" * 80 if length == 80 else "x" * 77 + "...")

    @pytest.mark.parametrize("length", [2000, 2001])
    def test_of_a_very_long_test_nothing_is_proposed(self, length: int) -> None:
        assert bool(texts("Loop where " + "lane".ljust(length))) == (length == 2000)

    def test_a_property_is_no_attribute_that_must_be_present(self) -> None:
        assert "kmh" not in texts("Loop has ")

    @pytest.mark.parametrize("before", ["lane between 1 and 2 and ", "valid and lane between 1 and 2 and "])
    def test_after_the_second_value_of_between_and_begins_another_test(self, before: str) -> None:
        assert texts(f"Loop where {before}", "attribute") == texts("Loop where valid and ", "attribute")
        assert texts(f"Loop where {before}category == ", "value") == ["'truck'", "'car'", "'delivery van'"]

    def test_an_attribute_may_be_called_then(self) -> None:
        class Rule(Event):
            then: bool
            lane: int

        def words(text: str) -> list[str]:
            return [item.text for item in complete(text, len(text), [Rule]).items]

        assert "==" in words("Rule where then ")
        assert words("Rule where then == ")[:2] == ["true", "false"]
        assert "then" in words("Rule where lane == (if then ")
        assert "lane" in words("Rule where lane == (if then then ")

    def test_an_attribute_may_be_called_like_a_function(self) -> None:
        assert texts("Loop where leng") == ["length", "length("]
        assert "==" in texts("Loop where length ")


# -- laws --------------------------------------------------------------------------------------------------------------

DECLARED: list[type] = [*Generator(0).types, Event]
DECLARED += [kind for kind in subtypes(Kind) if kind.__module__ == Generator.__module__ and kind not in DECLARED]
WRITTEN = [
    "Sampler & Watched has number, real lacks text where number between 1 and other and flag",
    "exact MarkedSampler where span > expires - time and (text like 'a!%' escape '!' or not colour in ('red'))",
    "Sampler where number < (expires - time) // 1s or span between expires - time and number * 1s",
    "Sampler where abs(span) // 2 > 1s and length(text) + length(blob) > number and (flag) or level = 1",
    "Sampler where (if flag and number between 1 and 2 then real else other) > if text is absent then 1 else -real",
    "Sampler where not (if (flag or tiny > 1) then coalesce(colour, 'red') else 'blue') in ('red', 'green')",
    "Sampler where (number) not in (1, 2) and ((real + 1) * 2 > 3 or real == inf) and flag == true",
]


def names_in(text: str) -> list[Token]:
    """The words of a subscription that are types, attributes, keywords or functions."""
    return [token for token in _Parser(text).tokens if token.kind == "name"]


def check_that_words_follow(text: str) -> None:
    """Each word is among the items where it begins, in its middle and at its end."""
    for token in names_in(text):
        start = token.column - 1
        for typed in {0, len(token.text) // 2, len(token.text)}:
            found = complete(text[: start + typed], start + typed, DECLARED)
            assert {token.text, f"{token.text}("} & {item.text for item in found.items}, text[: start + typed]
            assert (found.start, found.end) == (start, start + typed)


@pytest.mark.slow
@examples(60)
@given(st.integers(0, 10**9))
def test_the_word_that_follows_in_a_valid_text_is_proposed(seed: int) -> None:
    check_that_words_follow(str(Generator(seed).subscription()))


@pytest.mark.parametrize("text", some_of(WRITTEN, 3))
def test_the_word_that_follows_in_a_text_of_all_operators_is_proposed(text: str) -> None:
    parse_again(text, DECLARED)
    check_that_words_follow(text)


@pytest.mark.slow
@pytest.mark.parametrize("name", [attribute.name for attribute in vector(Sampler)])
def test_the_word_that_follows_in_edge_cases_is_proposed(name: str) -> None:
    found = list(edge_subscriptions(name))
    for subscription in random.Random(name).sample(found, min(len(found), 4)):
        check_that_words_follow(str(subscription))


SAMPLES = ("1", "1.5", "1s", "'a'", "'red'", "true", "@2026-05-01T00:00:00Z", "x''")
REST = ["", *(f" {sample}" for sample in SAMPLES), *(f" place {test}" for test in ("", "is present"))]
REST += [f" {pattern.replace('?', sample)}" for pattern in ("(?)", "in (?)", "? and ?") for sample in SAMPLES]
REST += [f" {name}" for name in ("present", "Sampler", "Marked", "Watched", "source", "time", "expires", "'!'")]
CONVERSIONS = ("", " - @2026-05-01T00:00:00Z", " // 1s", " * 1s", " + @2026-05-01T00:00:00Z")
TESTS = ("", *(f" == {sample}" for sample in SAMPLES), " is present")
REST += [f" {begun}{sample}" for begun in ("true == true then ", "== 1 then ", "then ") for sample in SAMPLES]
REST += [f" {sample} then 1" for sample in SAMPLES]


def can_be_finished(text: str) -> bool:
    """Whether a text is the beginning of a valid one."""
    tokens = [token.text for token in _Parser(text).tokens if token.kind == "op"]
    open_ones = tokens.count("(") - tokens.count(")")
    if re.search(r"\bif\b", text) and any(
        is_valid(f"{text}{rest}{inner}{')' * closed}{test} then 1{')' * (open_ones - closed)} == 1")
        for inner in CONVERSIONS
        for test in TESTS
        for rest in REST
        for closed in range(open_ones)
    ):
        return True
    return any(
        is_valid(f"{text}{rest}{inner}{')' * closed}{outer}{test}{')' * (open_ones - closed)}")
        for inner in CONVERSIONS
        for outer in CONVERSIONS
        for rest in REST
        for closed in range(open_ones + 1)
        for test in TESTS
    )


def is_valid(text: str) -> bool:
    try:
        parse_again(text, DECLARED)
    except SubscriptionError:
        return False
    return True


# Of others, about 1 in 150 nests conditions or functions so that REST has no end for it.
@pytest.mark.parametrize("number", some_of(range(40), 10))
def test_a_text_with_an_item_can_still_be_finished(number: int) -> None:
    generator = Generator(number)
    text = str(generator.subscription(depth=2))
    token = generator.random.choice(_Parser(text).tokens)
    found = complete(text, token.column - 1, DECLARED)
    for item in generator.random.sample(found.items, min(2, len(found.items))):
        begun = f"{text[: found.start]}{item.text}"
        assert can_be_finished(begun), begun


@examples(200)
@given(st.text(alphabet="Lopwherhasn ().,'&<=@-2x1\n“é·", max_size=40), st.integers(-1, 60))
def test_no_text_raises(text: str, at: int) -> None:
    complete(f"Loop where {text}", at, TYPES)
    complete(text, at, TYPES)


@examples(100)
@given(st.integers(0, 10**9))
def test_no_beginning_or_damaged_text_raises(seed: int) -> None:
    generator = Generator(seed)
    words = re.split(r"(\W)", str(generator.subscription()))
    generator.random.shuffle(words)
    text = "Sampler where " + "".join(words)
    at = generator.random.randint(0, len(text))
    found = complete(text, at, DECLARED)
    assert 0 <= found.start <= at <= found.end <= len(text)


@pytest.mark.parametrize("part", ["(", "not ", "lane + ", "- ", "abs(", "lane in (1, ", "valid and ", "'", "9"])
def test_long_texts_do_not_raise(part: str) -> None:
    for many in (50, 100, 3000):
        complete(f"Loop where {part * many}", len(part) * many + 11, TYPES)
