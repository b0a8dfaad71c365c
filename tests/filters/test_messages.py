"""Error messages that say what to write instead; each test also follows the advice."""

import pickle
import re
from datetime import UTC, date, datetime
from enum import Enum
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus import Event, Maybe, Subscription, this
from genus.errors import SubscriptionError, SyntaxProblem
from genus.filters import parse_again
from tests.examples import examples


class Category(Enum):
    TRUCK = "truck"
    CAR = "car"


class Loop(Event):
    lane: int
    celsius: Maybe[float] = None
    category: Maybe[Category] = None
    parked: Maybe[bool] = None


class Radar(Loop):
    speed: Maybe[float] = None


def refused(text: str) -> str:
    with pytest.raises(SyntaxProblem) as caught:
        Subscription.parse(text, [Loop, Radar])
    return str(caught.value).split(" (column")[0]


def accepted(text: str) -> Subscription:
    return Subscription.parse(text, [Loop, Radar])


@pytest.mark.parametrize(
    ("written", "message", "advice"),
    [
        ('category == "truck"', "a text is written in single quotes: use 'truck'", "category == 'truck'"),
        ("category == “truck”", "a text is written in single quotes: use 'truck'", "category == 'truck'"),
        ('place == "it\'s"', "a text is written in single quotes: use 'it\\'s'", "place == 'it\\'s'"),
        ("celsius > 20C", "20C is not a number: use 20; only a duration has a unit (d, h,", "celsius > 20"),
        ("celsius > 20.5C", "20.5C is not a number: use 20.5; only", "celsius > 20.5"),
        ("celsius > 1e3C", "1e3C is not a number", "celsius > 1e3"),
        ("lane > 20_000", "20_000 is not a number: use 20000; only", "lane > 20000"),
        ("expires - time > 5minutes", "5minutes is not a number: use 5; only a duration has", "expires - time > 5min"),
        ("celsius = null", "there is no null: use celsius is absent", "celsius is absent"),
        ("celsius == NULL", "there is no null: use celsius is absent", "celsius is absent"),
        ("celsius != None", "there is no null: use celsius is present", "celsius is present"),
        ("celsius is null", "there is no null: use celsius is absent", "celsius is absent"),
        ("celsius is not null", "there is no null: use celsius is present", "celsius is present"),
        (
            "time > '2026-05-01'",
            "cannot compare: time is time, but '2026-05-01' is str; write a time as @2026-05-01T00:00:00Z, in Python "
            "as datetime(2026, 5, 1, tzinfo=UTC)",
            "time > @2026-05-01T00:00:00Z",
        ),
        (
            "time > '2026-05-01T09:30:00+02:00'",
            "write a time as @2026-05-01T07:30:00Z, in Python as datetime(2026, 5, 1, 7, 30, tzinfo=UTC)",
            "time > @2026-05-01T07:30:00Z",
        ),
        ("time > 'noon'", "write a time as @2026-05-01T00:00:00Z", "time > @2026-05-01T00:00:00Z"),
        (
            "time > 2026-05-01",
            "cannot compare: time is time, but 2026 - 5 - 1 is int64",
            "time > @2026-05-01T00:00:00Z",
        ),
        (
            "time > 2026-05-01T09:30:00Z",
            "a time begins with @: write it like @2026-05-01T00:00:00Z",
            "time > @2026-05-01T09:30:00Z",
        ),
        (
            "time > @2026-05-01",
            "@2026-05-01 is not valid: it has no time zone; use @2026-05-01T00:00:00Z for UTC",
            "time > @2026-05-01T00:00:00Z",
        ),
        (
            "time > @2026-05-01T09:30",
            "it has no time zone; use @2026-05-01T09:30:00Z for UTC",
            "time > @2026-05-01T09:30:00Z",
        ),
        (
            "time > @2026-5-1",
            "@2026-5-1 is not valid: write a time like @2026-05-01T00:00:00Z",
            "time > @2026-05-01T00:00:00Z",
        ),
        ("expires - time > 5", "write a duration as 5s, in Python as timedelta(seconds=5)", "expires - time > 5s"),
        ("category == 'lorry'", "category cannot be 'lorry'; it is one of 'truck', 'car'", "category == 'truck'"),
        (
            "category == 'trucks'",
            "cannot be 'trucks'; did you mean 'truck'? it is one of 'truck', 'car'",
            "category == 'car'",
        ),
    ],
)
def test_a_text_that_is_wrong_says_what_to_write(written: str, message: str, advice: str) -> None:
    assert message in refused(f"Loop where {written}")
    accepted(f"Loop where {advice}")


@pytest.mark.parametrize(
    ("written", "column", "message", "advice"),
    [
        # chains
        ("1 < lane < 3", 10, "write 1 < lane and lane < 3, or lane between 1 and 3, which", "lane between 1 and 3"),
        ("3 >= lane >= 1", 11, "or lane between 1 and 3, which includes both ends", "lane between 1 and 3"),
        ("lane == 1 == 1", 11, "comparisons are not chained: write lane == 1 and 1 == 1", "lane == 1 and 1 == 1"),
        ("1 < lane > 0", 10, "comparisons are not chained: write 1 < lane and lane > 0", "1 < lane and lane > 0"),
        # what is no predicate
        ("lane", 1, "lane is int64, not true or false: compare it with a value, or write", "lane is present"),
        ("not place", 5, "place is str, not true or false: compare it with a value, or", "place is absent"),
        ("category", 1, "category is one of 'truck', 'car', not true or false", "category is present"),
        ("(lane > 1) == true", 12, "what is in parentheses is true or false: join it by and, or", "(lane > 1)"),
        (
            "category > 'car'",
            1,
            "category is one of 'truck', 'car' and has no order; compare it with",
            "category != 'car'",
        ),
        # signs of SQL, C and Python
        ("lane <> 1", 6, "'<>' is not understood: write !=", "lane != 1"),
        ("lane === 1", 6, "'===' is not understood: write ==", "lane == 1"),
        ("lane !== 1", 6, "'!==' is not understood: write !=", "lane != 1"),
        ("lane => 1", 6, "'=>' is not understood: write >=", "lane >= 1"),
        ("lane =< 1", 6, "'=<' is not understood: write <=", "lane <= 1"),
        ("!(lane > 1)", 1, "'!' is not understood: write not", "not (lane > 1)"),
        ("~(lane > 1)", 1, "'~' is not understood: write not", "not (lane > 1)"),
        ("lane > 1 && lane < 3", 10, "'&&' is not understood: write and", "lane > 1 and lane < 3"),
        ("lane > 1 & lane < 3", 10, "'&' is not understood: write and", "lane > 1 and lane < 3"),
        ("lane > 1 || lane < 3", 10, "'||' is not understood: write or", "lane > 1 or lane < 3"),
        ("lane > 1 | lane < 3", 10, "'|' is not understood: write or", "lane > 1 or lane < 3"),
        ("celsius ** 2 > 3", 9, "'**' is not understood: there is no power; write a prod", "celsius * celsius > 3"),
        ("celsius ^ 2 > 3", 9, "'^' is not understood: there is no power; write a product", "celsius * celsius > 3"),
        ("lane >> 2 == 1", 6, "there are no operators on bits; test one by flags // 4 % 2 == 1", "lane // 4 % 2 == 1"),
        ("place =~ 'A8'", 7, "there are no regular expressions; use like", "place like 'A8%'"),
        ("lane > 1;", 9, "';' is not understood: leave it out", "lane > 1"),
        ("celsius > 1,5", 12, "write a decimal as 1.5, a list after in as (1, 2)", "celsius > 1.5"),
        ("lane between 1, 3", 15, "and bounds as between 1 and 2", "lane between 1 and 3"),
        ("lane in [1, 2]", 9, "'[' is not understood: write a list as (1, 2)", "lane in (1, 2)"),
        ("lane in 1, 2", 9, "a list is written in parentheses: in (1, 2)", "lane in (1, 2)"),
        ("'A8' in place", 1, "a part of a text is found by contains: write place contains 'A8'", "place contains 'A8'"),
        # words of SQL, Python, pandas and Spark
        ("lane > 1 AND lane < 3", 10, "keywords are written in small letters: write and", "lane > 1 and lane < 3"),
        ("NOT lane > 3", 1, "keywords are written in small letters: write not", "not lane > 3"),
        ("place LIKE 'A%'", 7, "keywords are written in small letters: write like", "place like 'A%'"),
        ("celsius IS NULL", 9, "keywords are written in small letters: write is", "celsius is absent"),
        ("celsius is not present", 16, "write celsius is absent", "celsius is absent"),
        ("lane is not 3", 13, "values are compared by !=: write lane != ...", "lane != 3"),
        ("place not like 'A%'", 7, "write not before the whole test: not ... like ...", "not place like 'A%'"),
        ("place ilike 'a%'", 7, "texts are compared as they are; name all spellings", "place in ('A8', 'a8')"),
        ("place matches 'A.'", 7, "there are no regular expressions; use like", "place like 'A_'"),
        ("lane mod 2 = 1", 6, "'mod' is not understood: write %", "lane % 2 = 1"),
        ("lane > 1 order by lane", 10, "a subscription only selects events; leave it out", "lane > 1"),
        (
            "category == truck",
            13,
            "Loop has no attribute 'truck'; a text is written in single quotes: 'truck'",
            "category == 'truck'",
        ),
        ("place == A8", 10, "has no attribute 'A8'; a text is written in single quotes: 'A8'", "place == 'A8'"),
        (
            "category in (truck)",
            14,
            "expected a constant, found 'truck': a text is written in single",
            "category in ('truck')",
        ),
        ("parked == True", 11, "'True' is not understood: write true", "parked == true"),
        ("celsius < Infinity", 11, "'Infinity' is not understood: write inf", "celsius < inf"),
        ("celsius != NaN", 12, "'NaN' is not understood: no value equals NaN", "celsius is present"),
        ("this.lane > 1", 1, "attributes are written without this: write lane", "lane > 1"),
        ("Loop.lane > 1", 1, "attributes are written without Loop: write lane", "lane > 1"),
        ("lane > 0x1F", 8, "numbers are written in decimal: use 31", "lane > 31"),
        ("expires - time > 5 min", 18, "a duration is written without a space: write 5min", "expires - time > 5min"),
        ("time > DATE '2026-05-01'", 8, "write a time like @2026-05-01T00:00:00Z", "time > @2026-05-01T00:00:00Z"),
        ("expires - time > interval '5' minute", 18, "write a duration like 5min", "expires - time > 5min"),
        # functions and methods
        (
            "lower(place) == 'a8'",
            1,
            "there is no function lower: texts are compared as they are",
            "place in ('A8', 'a8')",
        ),
        ("len(place) > 3", 1, "there is no function len: write length(place)", "length(place) > 3"),
        ("isnull(celsius)", 1, "there is no function isnull: write celsius is absent", "celsius is absent"),
        ("round(celsius) == 3", 1, "there is no function round: to round down, write // 1", "celsius // 1 == 3"),
        ("time > now() - 5min", 8, "there is no function now: a subscription has no clock", "expires - time > 5min"),
        (
            "startswith(place, 'A8')",
            1,
            "there is no function startswith: write place startswith",
            "place startswith 'A8'",
        ),
        (
            "place.startswith('A8')",
            1,
            "methods are called in Python only: write place startswith",
            "place startswith 'A8'",
        ),
        ("place.length() > 3", 1, "methods are called in Python only: write length(place)", "length(place) > 3"),
        ("frobnicate(lane) > 3", 1, "there is no function frobnicate: only a property of the type", "abs(lane) > 3"),
        # clauses
        (
            "lane > 1 has place",
            10,
            "has comes before where: write has place where ..., or within where pl",
            "place is present",
        ),
        (
            "lane > 1 and has place",
            14,
            "has comes before where: write has place where",
            "lane > 1 and place is present",
        ),
        ("lane > 1 lacks place", 10, "lacks comes before where: write lacks place where ..., or wi", "place is absent"),
        (
            "when(parked, 1, 2) == 1",
            1,
            "there is no function when: write (if ... then ... else ...)",
            "(if parked then 1 else 2) == 1",
        ),
        ("parked ? 1 : 2", 8, "'?' is not understood: write (if ... then", "(if parked then 1 else 2) == 1"),
        ("parked() and lane > 1", 1, "write a property without (), parked", "parked and lane > 1"),
        ("lane > 1 exact", 10, "exact stands before the type, as in exact Loop", "lane > 1"),
        (
            "lane > 1 has 3",
            10,
            "has comes before where: write has place where ..., or within where place is present",
            "lane > 1",
        ),
        ("now() < time", 1, "there is no function now: a subscription has no clock", "expires - time > 5min"),
        ("Loop.lane.isin(3)", 1, "methods are called in Python only: write Loop.lane in (1, 2)", "lane in (1, 2)"),
        ("Loop.frob(3) > 1", 1, "there is no function frob: only a property of the type can compute more", "lane > 1"),
        ("mod(lane, 2) == 1", 1, "there is no function mod: write lane % 2", "lane % 2 == 1"),
        ("length() > 3 and lower() == 'a'", 8, "expected a value, found ')'", "length(place) > 3"),
        ("like(place, 'A%')", 1, "there is no function like: write place like 'A8'", "place like 'A8'"),
        ("cast(lane) > 1", 1, "there is no function cast: values are not converted", "lane > 1"),
        (
            "substr(place) == 'a'",
            1,
            "there is no function substr: parts of a text are tested by",
            "place startswith 'a'",
        ),
        ("is_present(place)", 1, "there is no function is_present: write place is present", "place is present"),
        (
            "date('2026') > time",
            1,
            "there is no function date: write a time like @2026",
            "time > @2026-05-01T00:00:00Z",
        ),
        ("pow(lane) > 1", 1, "there is no function pow: there is no power", "lane * lane > 1"),
        ("lane eq 1", 6, "'eq' is not understood: write ==", "lane == 1"),
        ("lane isin (1, 2)", 6, "'isin' is not understood: write in", "lane in (1, 2)"),
        ("lane div 2 == 1", 6, "'div' is not understood: write //", "lane // 2 == 1"),
        ("place isnull", 7, "'isnull' is not understood: write is absent", "place is absent"),
        ("parked xor parked", 8, "'xor' is not understood: write (a and not b)", "parked and not parked or parked"),
        ("lane in lane", 9, "a list is written in parentheses: in (1, 2)", "lane in (1, 2)"),
        ("place in 'A8'", 10, "a list is written in parentheses: in (1, 2)", "place in ('A8')"),
        (
            "lane in (1, truck)",
            13,
            "expected a constant, found 'truck': a text is written in single quotes, 'truck'",
            "lane in (1, 2)",
        ),
        ("(parked or lane > 1) != false", 22, "what is in parentheses is true or false", "parked or lane > 1"),
        ("(lane in (1, 2)) = true", 18, "what is in parentheses is true or false", "lane in (1, 2)"),
        ("(place is present) == true", 20, "what is in parentheses is true or false", "place is present"),
        ("(lane > 1 and parked) == true", 23, "what is in parentheses is true or false", "lane > 1 and parked"),
        ("(place == ')' and parked) == true", 27, "what is in parentheses is true or false", "place == ')' and parked"),
        ("time > TIME '2026-05-01'", 8, "write a time like @2026-05-01T00:00:00Z", "time > @2026-05-01T00:00:00Z"),
        ("time > timestamp '2026-05-01'", 8, "write a time like @2026", "time > @2026-05-01T00:00:00Z"),
        ("expires - time > 1.5 h", 18, "a duration is written without a space: write 1.5h", "expires - time > 1.5h"),
        ("lane > 3 metres", 10, "expected an operator or the end, found 'metres'", "lane > 3"),
        ("3 > lane > 1", 10, "or lane between 1 and 3, which includes both ends", "lane between 1 and 3"),
        ("1 <= lane < 3", 11, "or lane between 1 and 3", "lane between 1 and 3"),
        ("1 < lane < 3 < 4", 10, "write 1 < lane and lane < 3, or lane between 1 and 3", "lane between 1 and 3"),
        ("1 != lane != 3", 11, "comparisons are not chained: write 1 != lane and lane != 3", "1 != lane and lane != 3"),
        ("celsius is 3", 12, "values are compared by ==: write celsius == ...", "celsius == 3"),
        ("parked is true", 11, "values are compared by ==: write parked == ...", "parked == true"),
        ("celsius is not absent", 16, "write celsius is present", "celsius is present"),
        ("lane + 1 is present", 13, "expected an attribute before 'is'", "lane is present"),
        (
            "lane not between 1 and 3",
            6,
            "write not before the whole test: not ... between ...",
            "not lane between 1 and 3",
        ),
        (
            "place not contains 'a'",
            7,
            "write not before the whole test: not ... contains ...",
            "not place contains 'a'",
        ),
        ("lane > 0b101", 8, "numbers are written in decimal: use 5", "lane > 5"),
        ("lane > 0o17", 8, "numbers are written in decimal: use 15", "lane > 15"),
        ("expires - time > 1e400s", 18, "is not a number", "expires - time > 1s"),
        ("place == «A8»", 10, "a text is written in single quotes: use 'A8'", "place == 'A8'"),
        ("place == `A8`", 10, "a text is written in single quotes: use 'A8'", "place == 'A8'"),
        ("lane in {1, 2}", 9, "'{' is not understood: write a list as (1, 2)", "lane in (1, 2)"),
        ("parked == FALSE", 11, "'FALSE' is not understood: write false", "parked == false"),
        ("lane = 1 or lane = other", 20, "Loop has no attribute 'other'", "lane = 1"),
        ("other.lane > 1", 1, "attributes are written without other: write lane", "lane > 1"),
        ("category == bus", 13, "Loop has no attribute 'bus'; ", "category == 'car'"),
        ("lane > 1 where lane < 3", 10, "where is written once: join conditions by and", "lane > 1 and lane < 3"),
    ],
)
def test_a_habit_of_another_language_is_answered_with_what_to_write(
    written: str, column: int, message: str, advice: str
) -> None:
    with pytest.raises(SyntaxProblem) as caught:
        accepted(f"Loop where {written}")
    assert message in caught.value.reason
    assert caught.value.column == len("Loop where ") + column
    accepted(f"Loop where {advice}")


@pytest.mark.parametrize(
    ("written", "column", "message", "advice"),
    [
        ("Loop has place has lane", 16, "has is written once: name all attributes after it", "Loop has place, lane"),
        ("Loop lacks place has lane", 18, "has comes before lacks", "Loop has lane lacks place"),
        ("Loop lacks place lacks source", 18, "name all absent attributes after one lacks", "Loop lacks place, source"),
        ("Loop has place and lane", 16, "attributes are separated by commas", "Loop has place, lane"),
        ("Loop has not place", 10, "attributes that must be absent are named after lacks", "Loop lacks place"),
        ("Loop without place", 6, "attributes that must be absent are named after lacks", "Loop lacks place"),
        ("Loop WHERE lane > 1", 6, "keywords are written in small letters: write where", "Loop where lane > 1"),
        ("Loop if lane > 1", 6, "conditions begin with where", "Loop where lane > 1"),
        ("SELECT * FROM Loop WHERE lane > 1", 1, "a subscription begins with its type", "Loop where lane > 1"),
        ("lane > 1", 1, "a subscription begins with its type: write Loop where", "Loop where lane > 1"),
        ("Loop exact", 6, "exact stands before the type, as in exact Loop", "exact Loop"),
        ("Loop, Radar", 5, "make a subscription for each type; A & B selects classes that are both", "Loop"),
        ("Loop and Radar", 6, "make a subscription for each type; A & B selects", "Loop"),
        (
            "Loop has place & lane",
            16,
            "attributes are separated by commas: write , instead of &",
            "Loop has place, lane",
        ),
        (
            "Loop lacks place and lane",
            18,
            "attributes are separated by commas: write , instead of and",
            "Loop lacks place, lane",
        ),
        ("Loop with place", 6, "attributes that must be present are named after has", "Loop has place"),
        ("Loop not place", 6, "attributes that must be absent are named after lacks", "Loop lacks place"),
        ("Loop HAS place", 6, "keywords are written in small letters: write has", "Loop has place"),
        ("Loop when lane > 1", 6, "conditions begin with where", "Loop where lane > 1"),
        ("from Loop", 1, "a subscription begins with its type", "Loop"),
        ("Loop lane", 6, "expected 'where' or the end, found 'lane'", "Loop"),
        ("Loop where lane > 1 'a'", 21, "expected an operator or the end, found ''a''", "Loop where lane > 1"),
        ("Loop or Radar", 6, "a subscription has one type, which may be a supertype", "Loop"),
    ],
)
def test_a_clause_in_the_wrong_place_is_answered_with_what_to_write(
    written: str, column: int, message: str, advice: str
) -> None:
    with pytest.raises(SyntaxProblem) as caught:
        accepted(written)
    assert message in caught.value.reason
    assert caught.value.column == column
    accepted(advice)


WORDS = (
    *(
        "Loop",
        "where",
        "has",
        "lacks",
        "exact",
        "and",
        "or",
        "not",
        "in",
        "between",
        "is",
        "like",
        "(",
        ")",
        ",",
        "true",
    ),
    *(
        "lane",
        "place",
        "category",
        "1",
        "2.5",
        "5min",
        "'A8'",
        "NOT",
        "WHERE",
        "select",
        "date",
        "interval",
        "lower",
        "len",
    ),
    *(
        "Loop.lane",
        "truck",
        "None",
        "min",
        "=",
        "==",
        "<",
        ">",
        "!",
        "&",
        "|",
        "~",
        "^",
        "*",
        "-",
        "/",
        ";",
        "?",
        "null",
    ),
)


def problem_of(text: str) -> SyntaxProblem | None:
    try:
        parse_again(text, [Loop, Radar])
    except SyntaxProblem as problem:
        return problem
    return None


@examples(1500)
@given(st.lists(st.sampled_from(WORDS), max_size=9), st.sampled_from(("", " ")))
def test_whatever_is_written_the_problem_has_a_column_of_the_text(words: list[str], separator: str) -> None:
    text = separator.join(("Loop where", *words)) if len(words) % 2 else separator.join(words)
    problem = problem_of(text)
    assert problem is None or (problem.reason and problem.column in range(1, len(text) + 2))


def test_a_long_enumeration_is_shortened() -> None:
    class Hue(Enum):
        RED, GREEN, BLUE, CYAN, PINK, GREY = "red", "green", "blue", "cyan", "pink", "grey"

    class Paint(Event):
        hue: Hue

    class Signature:
        hue: str

    with pytest.raises(
        SubscriptionError, match=r"hue is one of 'red', 'green', 'blue', 'cyan', 'pink' \.\.\. of 6 and has no order"
    ):
        Subscription(Paint, where=this.hue > "red")
    with pytest.raises(SubscriptionError, match=r"Signature.hue is str, but in Paint it is one of 'red', 'green'"):
        Subscription(Paint, has=Signature)


@pytest.mark.parametrize(
    ("written", "message", "advice"),
    [
        (
            "this.lane > 1 & this.celsius > 2",
            "put each comparison in parentheses",
            "(this.lane > 1) & (this.celsius > 2)",
        ),
        ("this.place == 'a' | this.lane == 1", "put each comparison in", "(this.place == 'a') | (this.lane == 1)"),
        (
            "this.lane > this.celsius & this.parked",
            "put each comparison in",
            "(this.lane > this.celsius) & this.parked",
        ),
        ("3 & this.parked", "only predicates are joined by & and |", "(this.lane == 3) & this.parked"),
        (
            "this.parked & 3",
            "3 is not a predicate: put each comparison in parentheses",
            "this.parked & (this.lane == 3)",
        ),
        ("this.parked and this.lane == 1", "write & | ~ instead of and, or, not", "this.parked & (this.lane == 1)"),
        ("not this.parked", "write & | ~ instead of and, or, not", "~this.parked"),
        ("1 < this.lane < 3", ".between(low, high) instead of low <= x <= high", "this.lane.between(1, 3)"),
        ("this.lane", "lane is int64, not true or false: compare it with a value, or", "this.lane.is_present()"),
        ("~this.celsius", "celsius is float64, not true or false: compare it with", "this.celsius.is_absent()"),
        (
            "this.celsius is None",
            "False is not a predicate, but what Python has compared already",
            "this.celsius.is_absent()",
        ),
        (
            "this.celsius.is_present",
            "the method is_present is not called: write .is_present(...)",
            "this.celsius.is_present()",
        ),
        ("lambda event: event.lane > 1", "a function is not a predicate", "this.lane > 1"),
        (
            "[this.lane > 1, this.parked]",
            "a list is not a predicate: join several by & or |",
            "(this.lane > 1) & this.parked",
        ),
        ("Loop", "is not a predicate: write it with `this`", "this.lane > 1"),
        (
            "this.lane > [1, 2]",
            "is a list, which no attribute can be compared with: write .isin",
            "this.lane.isin([1, 2])",
        ),
        ("this.lane == this", "`this` is the event, not a value: name an attribute", "this.lane == this.lane"),
        ("this.lane.isin(1, 2)", "isin takes a list: write .isin([1, 2])", "this.lane.isin([1, 2])"),
        ("this.place.isin('A8')", "isin takes a list: write .isin(['A8'])", "this.place.isin(['A8'])"),
        (
            "this.lane.isin(this.celsius)",
            "<term celsius> is not a constant: compare two attributes by ==",
            "this.lane == this.celsius",
        ),
        ("list(this.lane) == [1]", "it cannot be iterated or unpacked", "this.lane == 1"),
        ("len(this.place) > 3", "write .length()", "this.place.length() > 3"),
        ("this.celsius ** 2 > 3", "there is no power: write a product", "this.celsius * this.celsius > 3"),
        ("this.parked ^ this.lane", "write (p & ~q) | (q & ~p)", "(this.parked & (this.lane != 1)) | ~this.parked"),
        ("this.lane >> 2 == 1", "test one by this.flags // 4 % 2 == 1", "this.lane // 4 % 2 == 1"),
        ("round(this.celsius) == 3", "write // 1 to round down", "this.celsius // 1 == 3"),
        ("int(this.celsius) == 3", "compare it as it is, without int() or float()", "this.celsius == 3"),
        ("this.place[:2] == 'A8'", "test parts of a text by .startswith", "this.place.startswith('A8')"),
        ("this.place.lower() == 'a8'", "has no method lower: write all spellings", "this.place.isin(['A8', 'a8'])"),
        ("this.place.str.startswith('A8')", "write the methods of a term directly", "this.place.startswith('A8')"),
        ("this.celsius.isnull()", "has no method isnull: write .is_absent()", "this.celsius.is_absent()"),
        ("this.celsius.isNotNull()", "has no method isNotNull: write .is_present()", "this.celsius.is_present()"),
        ("this.place.rlike('A.*')", "has no method rlike: write .like(...) or .contains(...)", "this.place.like('A%')"),
        ("this.lane.beetween(1, 3)", "has no method beetween; did you mean 'between'?", "this.lane.between(1, 3)"),
        (
            "this[Loop] > 1",
            "is not the name of an attribute: write this.speed, this[Loop.speed]",
            "this[Loop.lane] > 1",
        ),
        ("this[3] > 1", "3 is not the name of an attribute", "this['lane'] > 1"),
        ("setattr(this, 'lane', 3)", "`this` cannot be changed: to compare, write this.lane == 3", "this.lane == 3"),
    ],
)
def test_a_habit_of_python_pandas_or_spark_is_answered_with_what_to_write(
    written: str, message: str, advice: str
) -> None:
    with pytest.raises(SubscriptionError, match=re.escape(message)):
        Subscription(Loop, where=eval(written))
    Subscription(Loop, where=eval(advice))


def test_a_term_has_no_attributes_for_who_asks() -> None:
    assert not hasattr(this.place, "lower")
    assert not hasattr(this.place, "__array__")


@pytest.mark.parametrize(
    "where",
    [
        "lane == 1e5",
        "celsius > 2.",
        "celsius > .5",
        "celsius < 1.5E-3",
        "expires - time > 1.5h",
        "celsius > 2.5and lane == 1",
    ],
)
def test_numbers_and_durations_are_not_taken_for_numbers_with_a_unit(where: str) -> None:
    accepted(f"Loop where {where}")


def test_an_attribute_may_be_called_null() -> None:
    class Pointer(Event):
        null: int
        lane: int

    assert Subscription.parse("Pointer where lane == null", [Pointer]).matches(Pointer(null=2, lane=2))


def test_times_in_python() -> None:
    aware = datetime(2026, 5, 1, 9, 30, tzinfo=UTC)
    wrong: list[tuple[Any, str]] = [
        (datetime(2026, 5, 1, 9, 30), "datetime(2026, 5, 1, 9, 30, tzinfo=UTC)"),
        (date(2026, 5, 1), "datetime(2026, 5, 1, tzinfo=UTC)"),
        ("2026-05-01T09:30", "datetime(2026, 5, 1, 9, 30, tzinfo=UTC)"),
    ]
    for value, advice in wrong:
        with pytest.raises(SubscriptionError, match=re.escape(advice)):
            Subscription(Loop, where=this.time > value)
        assert Subscription(Loop, where=this.time >= eval(advice)).matches(Loop(lane=1, time=aware))


def test_in_is_written_isin() -> None:
    with pytest.raises(SubscriptionError, match=re.escape(".isin([1, 2]) instead of in [1, 2]")):
        _ = this.lane in [1, 2]
    with pytest.raises(SubscriptionError, match=re.escape("write .contains('A8')")):
        _ = "A8" in this.place
    assert Subscription(Loop, where=this.lane.isin([1, 2]) & ~this.place.contains("A8")).has == ()


@pytest.mark.parametrize("option", ["has", "lacks"])
@pytest.mark.parametrize("given", ["celsius, category", "celsius category"])
def test_several_attributes_are_a_tuple(option: str, given: str) -> None:
    advice = '("celsius", "category")'
    with pytest.raises(
        SubscriptionError,
        match=re.escape(f"{option}={given!r} is one text; give several attributes as a tuple: {advice}"),
    ):
        Subscription(Loop, **{option: given})  # type: ignore[arg-type]
    assert getattr(Subscription(Loop, **{option: eval(advice)}), option) == ("celsius", "category")


@pytest.mark.parametrize("option", ["has", "lacks"])
@pytest.mark.parametrize("given", [this.celsius, [this.celsius], Loop.celsius, [Loop.celsius], this, None, 2.5, [3]])
def test_attributes_are_given_by_name(option: str, given: Any) -> None:
    one = given[0] if isinstance(given, list) else given
    message = f"{option} takes names of attributes, such as {option}='place', not {one!r}"
    with pytest.raises(SubscriptionError, match=re.escape(message)):
        Subscription(Loop, **{option: given})


def test_an_array_without_dimensions_is_no_list() -> None:
    with pytest.raises(SubscriptionError, match="isin takes a list"):
        this.lane.isin(numpy.array(3))
    assert str(this.lane.isin(numpy.array([3]))) == "lane in (3)"


def test_a_text_is_parsed_not_constructed() -> None:
    with pytest.raises(SubscriptionError, match=r"use Subscription\.parse for text"):
        Subscription("Loop where lane > 1")  # type: ignore[arg-type]


def test_a_typo_names_the_type_that_was_written() -> None:
    message = "Radar has no attribute 'sped'; did you mean 'speed'? the attributes of its family Loop are lane"
    assert message in refused("Radar where sped > 3")
    assert message in refused("Radar has sped")
    for options in ({"has": "sped"}, {"lacks": ("sped",)}, {"where": this.sped > 3}, {"where": "sped > 3"}):
        with pytest.raises(SubscriptionError, match=re.escape(message)):
            Subscription(Radar, **options)
    assert "Loop has no attribute 'lan'; did you mean 'lane'? its attributes are lane" in refused("Loop where lan > 3")


def test_a_typo_names_the_property_or_the_type_in_a_room() -> None:
    class Pump(Event, name="plant.Pump"):
        level: int

        @property
        def is_full(self) -> bool:
            return self.level > 9

    with pytest.raises(SubscriptionError, match=r"no attribute 'is_ful'; did you mean 'is_full'\?"):
        Subscription(Pump, where=this.is_ful)
    with pytest.raises(
        SubscriptionError, match=r"no attribute 'is_full'; it is a property, and `has` and `lacks` take"
    ):
        Subscription(Pump, has="is_full")
    with pytest.raises(SubscriptionError, match=r"no event type is called Pump; did you mean 'plant\.Pump'\?"):
        Subscription.parse("Pump where level > 1", [Pump])


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(
    ("text", "column", "reason"),
    [
        ("Loop where lane >", 18, "expected a value, found the end"),
        ("Loop where\tlane # 3", 17, "'#' is not understood"),
        ("Loop where lane > 'x' or lane == 1", 12, "cannot compare: lane is int64, but 'x' is str"),
        ("Loup", 1, "no event type is called Loup; did you mean 'Loop'? known: Loop, Radar"),
    ],
)
def test_a_problem_has_its_column_and_its_reason_apart(text: str, column: int, reason: str, strict: bool) -> None:
    with pytest.raises(SyntaxProblem) as caught:
        Subscription.parse(text, [Loop, Radar], strict=strict)
    for problem in (caught.value, pickle.loads(pickle.dumps(caught.value))):
        assert (problem.column, problem.reason) == (column, reason)
        assert str(problem).startswith(f"{reason} (column {column})\n")


def test_a_problem_that_a_test_for_never_finds_has_its_column_too() -> None:
    with pytest.raises(SyntaxProblem) as caught:
        Subscription.parse("Loop where place == 'a' and lane > 5 and lane < 3", [Loop], strict=True)
    assert caught.value.column == 29
    assert caught.value.reason.startswith("this can never match: no value of 'lane'")


def test_a_problem_without_a_column_has_its_message_as_reason() -> None:
    problem = SyntaxProblem("not understood")
    assert (problem.column, problem.reason, str(problem)) == (None, "not understood", "not understood")
