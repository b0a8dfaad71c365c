"""Operators of values: floor division, remainder, absolute value, length, choices and patterns, and their text."""

import math
from datetime import timedelta
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus import Event, Maybe, Subscription, coalesce, this, when
from genus.errors import SubscriptionError, SyntaxProblem
from genus.filters._bind import Binder
from genus.filters._constants import type_of
from genus.filters._evaluate import Pattern, is_like, matcher, read_pattern
from genus.filters._parser import parse_value
from genus.filters._subscription import rebuild
from genus.model._types import INT64_MAX, INT64_MIN
from genus.model.internal import type_text
from genus.targets import arrow, python
from tests.examples import examples


class Sign(Event):
    turns: Maybe[int] = None
    by: Maybe[int] = None
    heading: Maybe[float] = None
    step: Maybe[float] = None
    label: Maybe[str] = None
    raw: Maybe[bytes] = None
    lag: Maybe[timedelta] = None
    pause: Maybe[timedelta] = None

    @property
    def compass(self) -> Any:
        return self.heading % 360.0  # type: ignore[operator]


def answers(where: Any, event: Event) -> tuple[bool, bool]:
    """Whether a predicate is true, and whether it is false; neither if it is unknown. All local targets agree."""
    found = []
    for asked in (Subscription(Sign, where=where), Subscription(Sign, where=~where)):
        truth = asked.matches(event)
        assert python.compile(asked)(event) is truth
        assert arrow.compile(asked).mask(arrow.to_batch([event])).to_pylist() == [truth]
        assert Subscription.parse(str(asked), [Sign]) == asked
        found.append(truth)
    return found[0], found[1]


UNKNOWN, TRUE = (False, False), (True, False)
int64 = st.one_of(st.integers(INT64_MIN, INT64_MAX), st.integers(-9, 9), st.sampled_from([INT64_MIN, INT64_MAX]))


durations = st.timedeltas(timedelta(days=-106_751_991), timedelta(days=106_751_991))


class TestFloorDivision:
    @examples(200)
    @given(int64, int64)
    def test_of_integers_is_that_of_python(self, a: int, b: int) -> None:
        event = Sign(turns=a, by=b)
        if b == 0:
            assert answers(this.turns % this.by == 0, event) == answers(this.turns // this.by == 0, event) == UNKNOWN
            return
        assert answers(this.turns % this.by == a % b, event) == TRUE
        fits = a // b <= INT64_MAX
        assert answers(this.turns // this.by == min(a // b, INT64_MAX), event) == (TRUE if fits else UNKNOWN)

    def test_the_smallest_integer_and_minus_one(self) -> None:
        event = Sign(turns=INT64_MIN, by=-1)
        assert answers(this.turns // this.by > 0, event) == UNKNOWN
        assert answers(this.turns % this.by == 0, event) == TRUE

    @examples(200)
    @given(st.floats(), st.floats())
    def test_of_floats_is_that_of_python_bit_by_bit(self, a: float, b: float) -> None:
        event = Sign(heading=a, step=b)
        for op in ("__mod__", "__floordiv__"):
            expected = getattr(a, op)(b) if b != 0 else math.nan
            where = getattr(this.heading, op)(this.step)
            if expected != expected:
                assert answers(where > 0, event) == UNKNOWN
            else:
                assert answers(where == expected, event) == TRUE

    @examples(100)
    @given(durations, durations, st.integers(-9, 9))
    def test_of_durations_is_that_of_python(self, a: timedelta, b: timedelta, n: int) -> None:
        event = Sign(lag=a, pause=b)
        if b:
            assert answers(this.lag % this.pause == a % b, event) == TRUE
            assert answers(this.lag // this.pause == a // b, event) == TRUE
        if n:
            assert answers(this.lag // n == a // n, event) == TRUE

    def test_a_property_gives_what_python_gives(self) -> None:
        event = Sign(heading=-90.0)
        assert answers(this.compass == event.compass, event) == TRUE

    @pytest.mark.parametrize(
        "where", [this.lag % 3 > 1, this.label % 3 == 1, this.lag / this.pause > 1, 3 // this.lag > 1]
    )
    def test_other_types_are_refused(self, where: Any) -> None:
        with pytest.raises(SubscriptionError, match="cannot apply"):
            Subscription(Sign, where=where)


class TestTerms:
    """What Python's operators make of a term, on either side of it."""

    @pytest.mark.parametrize(
        ("where", "said"),
        [
            (this.turns + 2 > 1, "turns + 2 > 1"),
            (2 + this.turns > 1, "2 + turns > 1"),
            (this.turns - 2 > 1, "turns - 2 > 1"),
            (2 - this.turns > 1, "2 - turns > 1"),
            (this.turns * 2 > 1, "turns * 2 > 1"),
            (2 * this.turns > 1, "2 * turns > 1"),
            (this.turns / 2 > 1, "turns / 2 > 1"),
            (2 / this.turns > 1, "2 / turns > 1"),
            (this.turns // 2 > 1, "turns // 2 > 1"),
            (2 // this.turns > 1, "2 // turns > 1"),
            (this.turns % 2 > 1, "turns % 2 > 1"),
            (2 % this.turns > 1, "2 % turns > 1"),
            (-this.turns > 1, "-turns > 1"),
            (abs(this.turns) > 1, "abs(turns) > 1"),
            (this.turns < 1, "turns < 1"),
            (this.turns <= 1, "turns <= 1"),
            (this.turns > 1, "turns > 1"),
            (this.turns >= 1, "turns >= 1"),
            (this.turns == 1, "turns == 1"),
            (this.turns != 1, "turns != 1"),
            (this.turns.between(1, this.by), "turns >= 1 and turns <= by"),
            (this.turns.isin({1}), "turns in (1)"),
            (this.label.startswith("a"), "label startswith 'a'"),
            (this.label.endswith("a"), "label endswith 'a'"),
            (this.label.contains("a"), "label contains 'a'"),
            (this.label.like("a_"), "label like 'a_'"),
            (this.label.is_present(), "label is present"),
            (this.label.is_absent(), "label is absent"),
            (this.turns & (this.by == 1), "turns == true and by == 1"),
            (this.turns | (this.by == 1), "turns == true or by == 1"),
            ((this.by == 1) & this.turns, "by == 1 and turns == true"),
            ((this.by == 1) | this.turns, "by == 1 or turns == true"),
            (~this.turns, "not turns == true"),
            (when(this.turns, True, this.by == 1), "turns == true and true == true or not turns == true and by == 1"),
        ],
    )
    def test_are_written_as_they_stand(self, where: Any, said: str) -> None:
        assert str(where) == said

    def test_are_shown_but_have_no_text(self) -> None:
        assert (repr(this), repr(this.turns + 1)) == ("this", "<term turns + 1>")
        with pytest.raises(SubscriptionError, match="<term turns> has no text"):
            str(this.turns)

    def test_only_attributes_are_present(self) -> None:
        with pytest.raises(SubscriptionError, match="only an attribute can be present or absent, not an expression"):
            (this.turns + 1).is_present()

    def test_private_names_are_no_attributes(self) -> None:
        with pytest.raises(AttributeError, match=r"^_turns$"):
            _ = this._turns
        assert str(this["_turns"] == 1) == "_turns == 1"


class TestTypes:
    """What the result of an operator is, or why there is none."""

    @pytest.mark.parametrize(
        ("value", "type_"),
        [
            ("turns + 1", "int64"), ("turns // 2", "int64"), ("turns % 2", "int64"), ("turns * by", "int64"),
            ("turns / 2", "float64"), ("turns + 1.5", "float64"), ("heading + 1", "float64"),
            ("1 - heading", "float64"),
            ("turns / 2 // 1", "float64"), ("-turns", "int64"), ("-heading", "float64"), ("-lag", "duration"),
            ("abs(turns)", "int64"), ("abs(heading)", "float64"), ("abs(lag)", "duration"), ("length(label)", "int64"),
            ("length(raw)", "int64"), ("length('ab')", "int64"), ("time - time", "duration"), ("time - lag", "time"),
            ("time + lag", "time"), ("lag + time", "time"), ("lag + pause", "duration"), ("lag - pause", "duration"),
            ("lag * 2", "duration"), ("2 * lag", "duration"), ("lag // 2", "duration"), ("lag // pause", "int64"),
            ("lag % pause", "duration"), ("time - time + lag", "duration"), ("time - (time - time)", "time"),
            ("if turns > 1 then 1 else 2.5", "float64"), ("if turns > 1 then 1", "int64"),
            ("coalesce(turns, 1.5)", "float64"), ("coalesce(label, 'a')", "str"), ("coalesce(turns)", "int64"),
            ("if turns > 1 then time else time + lag", "time"), ("'a'", "str"), ("x'00'", "bytes"), ("true", "bool"),
            ("1s", "duration"), ("@2026-01-01T00:00:00Z", "time"), ("inf", "float64"),
        ],
    )  # fmt: skip
    def test_of_a_result(self, value: str, type_: str) -> None:
        assert type_text(type_of(Binder(Sign).value(parse_value(value)))) == type_

    @pytest.mark.parametrize(
        ("where", "message"),
        [
            ("time + time == time", "cannot apply +: time is time, and time is time"),
            ("lag - time == lag", "cannot apply -: lag is duration, and time is time"),
            ("lag * pause == lag", "cannot apply *: lag is duration, and pause is duration"),
            ("lag * 1.5 == lag", "cannot apply *: lag is duration, and 1.5 is float64"),
            ("2 // lag == lag", "cannot apply //: 2 is int64, and lag is duration"),
            ("lag % 2 == lag", "cannot apply %: lag is duration, and 2 is int64"),
            ("label + 'a' == 'b'", "cannot apply +: label is str, and 'a' is str"),
            ("-label == 'a'", "cannot negate: label is str"),
            ("-time == time", "cannot negate: time is time"),
            ("abs(label) == 1", "abs takes a number or a duration, but label is str"),
            ("abs(time) == time", "abs takes a number or a duration, but time is time"),
            ("length(turns) == 1", "length takes text or bytes, but turns is int64"),
            ("turns == label", "cannot compare: turns is int64, but label is str"),
            ("turns == 'a'", "cannot compare: turns is int64, but 'a' is str"),
            ("'a' == turns", "cannot compare: turns is int64, but 'a' is str"),
            ("lag == 5", "cannot compare: lag is duration, but 5 is int64; write a duration as 5s, in Python as timed"),
            ("5 == lag", "cannot compare: lag is duration, but 5 is int64; write a duration as 5s"),
            (
                "time == 5",
                "time is time, but 5 is int64; write a time as @2026-05-01T00:00:00Z, in Python as datetime(",
            ),
            ("'2026-05-02' == time", "write a time as @2026-05-02T00:00:00Z"),
            ("time > 2026-5-2", "write a time as @2026-05-02T00:00:00Z"),
            ("time > 2026-05-1", "write a time as @2026-05-01T00:00:00Z"),
            ("time > 20260-5-2", "write a time as @2026-05-01T00:00:00Z"),
            ("time == lag", "time is time, but lag is duration; write a time as @2026-05-01T00:00:00Z"),
            ("turns == true", "turns is int64, not true or false: compare it with a value, or write turns is present"),
            ("turns + 1 == true", "turns + 1 is int64, not true or false: compare it with a value"),
            ("turns startswith 'a'", "startswith needs text, but turns is int64"),
            ("raw contains 'a'", "contains needs text, but raw is bytes"),
            ("time - time in (1s)", "isin takes a time attribute, not a computed time; use == or between"),
            ("turns in (1, 'a')", "cannot compare: turns is int64, but 'a' is str"),
            ("label in (1)", "cannot compare: label is str, but 1 is int64"),
            ("(turns == 1 and turns == 'a') or lag == 1s", "cannot compare: turns is int64"),
            ("turns == 9223372036854775808", "9223372036854775808 does not fit in 64 bits"),
            ("turns == -9223372036854775809", "-9223372036854775809 does not fit in 64 bits"),
            ("heading == 9223372036854775808", "9223372036854775808 does not fit in 64 bits"),
            ("(if turns > 1 then label else 3) == 1", "two types: label is str, but 3 is int64"),
        ],
    )
    def test_that_do_not_fit_are_refused(self, where: str, message: str) -> None:
        with pytest.raises(SubscriptionError) as caught:
            rebuild(Sign, where=where)
        assert message in str(caught.value)

    @pytest.mark.parametrize("text", ["turns == 9223372036854775807", "turns == -9223372036854775808"])
    def test_the_bounds_of_64_bits_are_numbers(self, text: str) -> None:
        assert str(rebuild(Sign, where=text).where) == text


class TestFunctions:
    @examples(100)
    @given(int64)
    def test_abs_of_integers(self, a: int) -> None:
        expected = TRUE if a != INT64_MIN else UNKNOWN
        assert answers(abs(this.turns) == min(abs(a), INT64_MAX), Sign(turns=a)) == expected

    @pytest.mark.filterwarnings("ignore::genus.errors.SubscriptionWarning")
    def test_abs_of_floats_and_durations(self) -> None:
        assert answers(abs(this.heading) == math.inf, Sign(heading=-math.inf)) == TRUE
        assert answers(abs(this.heading) >= 0, Sign(heading=math.nan)) == UNKNOWN
        assert answers(abs(this.lag) == timedelta(seconds=1), Sign(lag=timedelta(seconds=-1))) == TRUE
        smallest = timedelta(microseconds=INT64_MIN)
        assert answers(abs(this.lag) >= timedelta(0), Sign(lag=smallest)) == UNKNOWN

    @examples(100)
    @given(st.text(st.characters(codec="utf-8")), st.binary())
    def test_length_counts_code_points_and_bytes(self, text: str, raw: bytes) -> None:
        event = Sign(label=text, raw=raw)
        assert answers(this.label.length() == len(text), event) == TRUE
        assert answers(this.raw.length() == len(raw), event) == TRUE

    @pytest.mark.parametrize(
        ("text", "points"), [("\U0001f600", 1), ("e\u0301", 2), ("\U0001f1e9\U0001f1ea", 2), ("\0\n", 2)]
    )
    def test_beyond_the_first_plane_and_combined(self, text: str, points: int) -> None:
        assert answers(this.label.length() == points, Sign(label=text)) == TRUE

    @pytest.mark.parametrize("where", [abs(this.label) > 1, this.turns.length() > 1, this.lag.length() > 1])
    def test_other_types_are_refused(self, where: Any) -> None:
        with pytest.raises(SubscriptionError, match=r"(abs|length) takes"):
            Subscription(Sign, where=where)


def by_definition(pattern: str, text: str) -> bool:
    """Whether a text is like a pattern, tried character by character."""
    if not pattern:
        return not text
    if pattern[0] == "%":
        return any(by_definition(pattern[1:], text[n:]) for n in range(len(text) + 1))
    letter = pattern[1] if pattern[0] == "\\" else pattern[0]
    rest = pattern[2:] if pattern[0] == "\\" else pattern[1:]
    one = bool(text) and (pattern[0] == "_" or text[0] == letter)
    return one and by_definition(rest, text[1:])


pieces = st.sampled_from(["a", "b", "%", "_", "\\%", "\\_", "\\\\", "\n", "\U0001f600", "."])


maybe_int, maybe_float = st.none() | st.integers(-2, 2), st.none() | st.sampled_from([0.0, 1.0, 2.5, math.nan])


class TestChoices:
    @examples(150)
    @given(maybe_int, maybe_int, maybe_float, maybe_float)
    def test_a_conditional_is_unknown_where_its_condition_or_its_value_is(
        self, turns: int | None, by: int | None, heading: float | None, step: float | None
    ) -> None:
        event = Sign(turns=turns, by=by, heading=heading, step=step)
        chosen = None if turns is None else heading if turns > 0 else step
        falls = None if turns is None or turns <= 0 else heading
        for value, made in (
            (chosen, when(this.turns > 0, this.heading, this.step)),
            (falls, when(this.turns > 0, this.heading)),
            (None if by is None else 1 if by > 0 else 2.5, when(this.by > 0, 1, 2.5)),
        ):
            is_known = value is not None and not math.isnan(value)
            assert answers(made > 1, event) == (
                (value > 1, not value > 1) if value is not None and is_known else UNKNOWN
            )

    @examples(150)
    @given(maybe_int, maybe_float, maybe_float)
    def test_coalesce_is_the_first_value_that_is_known(
        self, by: int | None, heading: float | None, step: float | None
    ) -> None:
        """Absent attributes, NaN and results that do not exist are passed over."""
        event = Sign(turns=1, by=by, heading=heading, step=step)
        known = [value for value in (heading, step) if value is not None and not math.isnan(value)]
        made = coalesce(this.heading, this.step)
        assert answers(made >= 1, event) == ((known[0] >= 1, not known[0] >= 1) if known else UNKNOWN)
        assert answers(coalesce(this.turns // this.by, 7) == (1 // by if by else 7), event) == TRUE

    @pytest.mark.parametrize("turns", [None, 1, 2])
    @pytest.mark.parametrize("by", [None, 1, 2])
    def test_a_choice_of_predicates_is_a_predicate(self, turns: int | None, by: int | None) -> None:
        event = Sign(turns=turns, by=by)
        p, q = this.turns == 1, this.turns == 2
        assert answers(when(this.by == 1, p, q), event) == answers((this.by == 1) & p | ~(this.by == 1) & q, event)
        assert answers(when(this.by == 1, p, True), event) == answers((this.by == 1) & p | ~(this.by == 1), event)

    @pytest.mark.parametrize("label", [None, "", "ab"])
    def test_texts_bytes_bools_and_durations_are_chosen(self, label: str | None) -> None:
        event = Sign(label=label, lag=timedelta(seconds=1))
        assert answers(coalesce(this.label, "none").length() == len("none" if label is None else label), event) == TRUE
        assert answers(coalesce(this.raw, b"x") == b"x", event) == TRUE
        assert answers(when(this.label.is_present(), this.pause, this.lag) == timedelta(seconds=1), event) == (
            TRUE if label is None else UNKNOWN
        )
        assert answers(when(this.label.is_absent(), True, False) == (label is None), event) == TRUE

    @pytest.mark.parametrize(
        ("where", "message"),
        [
            (when(this.turns > 1, this.label, 3) == "a", "two types: label is str, but 3 is int64"),
            (coalesce(this.turns, this.label) == 1, "two types: turns is int64, but label is str"),
            (coalesce() == 1, "coalesce needs at least one value"),
            (when(this.turns > 1, "a", "b") == this.turns, "cannot compare"),
        ],
    )
    def test_values_of_two_types_are_refused(self, where: Any, message: str) -> None:
        with pytest.raises(SubscriptionError, match=message):
            Subscription(Sign, where=where)

    def test_both_predicates_are_needed(self) -> None:
        with pytest.raises(SubscriptionError, match="needs both"):
            when(this.turns > 1, this.by > 1)  # type: ignore[call-overload]


class TestLike:
    @examples(300)
    @given(st.lists(pieces, max_size=7), st.text("ab%_\\\n\U0001f600.", max_size=7))
    def test_is_its_definition(self, parts: list[str], text: str) -> None:
        pattern = "".join(parts)
        expected = by_definition(pattern, text)
        assert is_like(text, pattern) is expected
        assert (matcher(pattern)(text) is not None) is expected
        assert answers(this.label.like(pattern), Sign(label=text)) == (expected, not expected)

    def test_short_patterns_are_their_definition(self) -> None:
        patterns = ["".join(parts) for size in range(5) for parts in product("a%_", repeat=size)]
        texts = ["".join(letters) for size in range(5) for letters in product("ab", repeat=size)]
        for pattern in [*patterns, "%a%b%", "a%ab%b", "_%a_%"]:
            liked = [text for text in texts if by_definition(pattern, text)]
            assert [text for text in texts if is_like(text, pattern)] == liked, pattern
            assert [text for text in texts if matcher(pattern)(text)] == liked, pattern

    @examples(100)
    @given(st.lists(pieces, max_size=9))
    def test_patterns_have_one_form(self, parts: list[str]) -> None:
        found = read_pattern("".join(parts))
        assert read_pattern(found.text) == found

    @examples(100)
    @given(st.text("ab%_!", max_size=6))
    def test_another_escape_character_means_the_same(self, text: str) -> None:
        literal = "".join(f"!{letter}" if letter in "%_!" else letter for letter in text)
        assert read_pattern(literal, "!") == Pattern((tuple(text),))

    @pytest.mark.parametrize(
        ("pattern", "said"),
        [
            ("A8", "label == 'A8'"),
            ("A8%", "label startswith 'A8'"),
            ("%A8", "label endswith 'A8'"),
            ("%A8%", "label contains 'A8'"),
            ("%", "label startswith ''"),
            ("", "label == ''"),
            ("50\\%", "label == '50%'"),
            ("A%_x", "label like 'A_%x'"),
            ("%%_%%", "label like '_%'"),
        ],
    )
    def test_without_wildcards_inside_it_is_a_plain_test(self, pattern: str, said: str) -> None:
        assert str(Subscription(Sign, where=this.label.like(pattern))) == f"Sign where {said}"

    @pytest.mark.parametrize(
        ("pattern", "escape", "message"),
        [
            ("a\\", "\\", "ends with its escape"),
            ("a\\b", "\\", "escape character before 'b'"),
            ("a!\\", "!", "escape character before"),
            ("a", "", "one character"),
            ("a", "ab", "one character"),
            ("a", "%", "other than % and _"),
            ("a" * 1001, "\\", "at most 1000"),
        ],
    )
    def test_what_has_no_meaning_is_refused(self, pattern: str, escape: str, message: str) -> None:
        with pytest.raises(SubscriptionError, match=message):
            this.label.like(pattern, escape=escape)

    @pytest.mark.parametrize("sign", ["a", "%", "_", "!!"])
    def test_a_pattern_has_at_most_1000_characters(self, sign: str) -> None:
        many = 1000 // len(sign)
        assert read_pattern(sign * many, "!")
        with pytest.raises(SubscriptionError, match=f"has at most 1000 characters, not {(many + 1) * len(sign)}"):
            read_pattern(sign * (many + 1), "!")

    @pytest.mark.slow
    def test_no_pattern_takes_long(self) -> None:
        """A pattern that backtracking would try for longer than anyone waits."""
        assert answers(this.label.like("%a" * 400 + "%b"), Sign(label="a" * 5000)) == (False, True)

    def test_covering(self) -> None:
        def covers(wide: Any, narrow: Any) -> bool:
            return Subscription(Sign, where=wide).covers(Subscription(Sign, where=narrow))

        narrow = this.label.like("A8_km%31")
        for wide in (this.label.startswith("A8"), this.label.contains("km"), this.label.endswith("1")):
            assert covers(wide, narrow)
        assert covers(narrow, this.label == "A8/km131")
        for other in (this.label.contains("8_"), this.label.contains("km3"), this.label.startswith("A8/")):
            assert not covers(other, narrow)


class TestText:
    @pytest.mark.parametrize(
        ("text", "same_as"),
        [
            ("turns % 3 == 1 and turns // 2 < -4", None),
            ("turns * 2 % 3 // by > 1", None),
            ("turns % (by // 2) > 1", None),
            ("-turns % 3 == 1", None),
            ("-(turns % 3) == 1", None),
            ("abs(turns - by) > 2 * abs(by)", None),
            ("abs ( -heading ) > 2", "abs(-heading) > 2.0"),
            ("length(label) + 1 > length(raw)", None),
            ("length('ab') == turns", "2 == turns"),
            ("label like 'A!_%' escape '!'", "label startswith 'A_'"),
            ("label like 'A!_%!!_' escape '!'", "label like 'A\\\\_%!_'"),
            ("not label like 'a_'", None),
            ("(label) like 'a_'", "label like 'a_'"),
            ("lag % 90s > 10s and lag // 2 < pause", "lag % 90s > 10s and lag // 2 < pause"),
        ],
    )
    def test_both_ways(self, text: str, same_as: str | None) -> None:
        found = Subscription.parse(f"Sign where {text}", [Sign])
        assert str(found) == f"Sign where {same_as or text}"
        assert Subscription.parse(str(found), [Sign]) == found

    @pytest.mark.parametrize(
        ("text", "column", "message"),
        [
            ("Sign where label like 3", 23, "a text in single quotes"),
            ("Sign where label like 'a\\_'", 23, r"in a pattern of like, write \\_"),
            ("Sign where label like 'a\\\\b'", 23, "escape character before 'b'"),
            ("Sign where label like 'a' escape 'xy'", 23, "one character"),
            ("Sign where label like 'a' escape '%'", 23, "escape may not be '%'"),
            ("Sign where label like 'a' escape '_'", 23, "other than % and _"),
            ("Sign where abs turns > 1", 16, "an operator or the end"),
            ("Sign where abs(turns > 1", 22, "')'"),
            ("Sign where length() > 1", 19, "a value"),
        ],
    )
    def test_errors_point_at_the_column(self, text: str, column: int, message: str) -> None:
        with pytest.raises(SyntaxProblem) as caught:
            Subscription.parse(text, [Sign])
        assert message in str(caught.value)
        assert f"(column {column})" in str(caught.value)

    def test_the_words_may_be_names_of_attributes(self) -> None:
        class Ruler(Event):
            abs: int
            length: float
            like: str
            escape: bool
            then: bool
            coalesce: int

        event = Ruler(abs=-3, length=2.5, like="a_b", escape=True, then=True, coalesce=1)
        for text in (
            "abs(abs) == 3 and length(like) == 3 and length > 2.0",
            "like like 'a\\\\__' and escape",
            "(escape) and (abs) % 2 == 1",
            "(if then then coalesce else 2) == coalesce(coalesce, 2) and then",
        ):
            assert Subscription.parse(f"Ruler where {text}", [Ruler]).matches(event)
        assert Subscription(Ruler, where=this.length > abs(this.abs) % 2).matches(event)
