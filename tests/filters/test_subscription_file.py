"""Files of subscriptions: lines with and without the name of a subscriber."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus import Event, Subscription
from genus.errors import SubscriptionError
from genus.filters import read_subscriptions


class Tide(Event):
    level: float | None = None
    harbour: str | None = None


TEXTS = [
    "Tide",
    "exact Tide",
    "Tide has harbour, level lacks place",
    "Tide where level > 3",
    "Tide where time > @2026-11-15T10:00:00Z",
    "Tide where harbour = 'a: Tide'",
    "Tide where harbour = ': Tide where level > 1' and time < @2026-11-15T10:00:00Z",
]


def parse(text: str) -> Subscription:
    return Subscription.parse(text, [Tide, Event])


@given(
    st.lists(
        st.tuples(
            st.from_regex(r"[A-Za-z][A-Za-z0-9_.@/' -]{0,12}", fullmatch=True), st.sampled_from(TEXTS), st.booleans()
        )
    )
)
def test_a_line_may_name_a_subscriber_or_not(given_lines: list[tuple[str, str, bool]]) -> None:
    """With a name before it or without, times and texts with colons included, the subscription is the same."""
    lines = [f"{name}: {text}" if is_named else text for name, text, is_named in given_lines]
    wanted = [(name.strip() if is_named else str(parse(text)), parse(text)) for name, text, is_named in given_lines]
    assert read_subscriptions(["# first", "", *lines], parse) == wanted


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (": Tide", "line 2: ': Tide' names no subscriber before the colon"),
        ("ann: Tied", "line 2: .*did you mean 'Tide'"),
        ("Tide where level >", "line 2: expected a value"),
        ("Tide where time > @2026-11-15T25:00:00Z", "line 2: .*T25:00:00Z"),
    ],
)
def test_a_line_that_cannot_be_read_is_named(line: str, problem: str) -> None:
    with pytest.raises(SubscriptionError, match=problem):
        read_subscriptions(["Tide", line], parse)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(SubscriptionError, match=r"cannot read .*none.txt: No such file"):
        read_subscriptions(tmp_path / "none.txt")


def test_lines_of_a_file_are_counted_with_comments_and_empty_ones(tmp_path: Path) -> None:
    file = tmp_path / "asked.txt"
    file.write_bytes(b"\xef\xbb\xbf# first\r\n\r\n  ann :  Tide where level > 3  \r\nTide\n")
    assert read_subscriptions(file, parse) == [("ann", parse("Tide where level > 3")), ("Tide", parse("Tide"))]
    file.write_text("# first\n\nTide\nTied\n")
    with pytest.raises(SubscriptionError, match=rf"^{file}, line 4: no event type is called Tied"):
        read_subscriptions(str(file), parse)


def test_lines_that_cannot_be_read_are_told_one_by_one_and_the_others_are_read() -> None:
    told: list[str] = []
    found = read_subscriptions(
        ["ann: Tied", "bob: Tide", "Tide where", "", "Tide"], parse, on_error=lambda problem: told.append(str(problem))
    )
    assert found == [("bob", parse("Tide")), ("Tide", parse("Tide"))]
    assert [line.partition(":")[0] for line in told] == ["line 1", "line 3"]


def test_a_line_that_is_no_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "asked.txt"
    file.write_bytes(b"Tide where harbour == '\xff'\n")
    with pytest.raises(SubscriptionError, match=r"line 1: not UTF-8 text"):
        read_subscriptions(file, parse)
    for sign in ("\ud800", "\udfff"):
        with pytest.raises(SubscriptionError, match="line 1: not UTF-8 text"):
            read_subscriptions([f"Tide where harbour == '{sign}'"], parse)
    for sign in ("\ud7ff", "\ue000"):
        assert read_subscriptions([f"Tide where harbour == '{sign}'"], parse)


def test_an_error_after_a_colon_is_told_of_what_stands_behind_it() -> None:
    with pytest.raises(SubscriptionError, match="no event type is called Tied"):
        read_subscriptions(["ann: Tied where level > 3"], parse)
    with pytest.raises(SubscriptionError, match="has no attribute 'lvl'"):
        read_subscriptions(["Tide where lvl > 3 and time > @2026-11-15T10:00:00Z"], parse)
