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
