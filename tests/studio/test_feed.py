"""The feed: what changed is found cell by cell, and applying all changes to a snapshot gives the next snapshot."""

import json
from collections.abc import Callable, Collection, Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus.studio._feed import BEAT_S, BUSY_TURN_S, SLOW_S, TURN_S, TURNS_KEPT, Feed
from genus.studio._source import Receive
from genus.studio._taps import Taps
from genus.studio._type_table import LOOK_S, TypeTable
from genus.studio.types import ChannelRow, ProblemRow, SourceRow, Tables
from tests.studio.made_sources import Clock, MadeSource


@pytest.fixture
def source() -> MadeSource:
    return MadeSource()


@pytest.fixture
def clock() -> Clock:
    return Clock()


def make_feed(source: MadeSource, clock: Clock) -> Feed:
    return Feed([source], TypeTable(Taps([source], clock)), clock=clock, wall=clock, cpu=clock)


def applied(state: dict[str, Any], feed: Feed, table: str = "channels") -> dict[str, Any]:
    """A page's rows after the last turn."""
    found = {key: dict(row) for key, row in state.items()}
    for key, cells in msgspec.json.decode(feed.turn.cells.get(table, b"{}")).items():
        found[key] = {**found.get(key, {}), **cells}
    for key in msgspec.json.decode(feed.turn.gone.get(table, b"[]")):
        del found[key]
    return found


def rows_of(feed: Feed, table: str = "channels") -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(feed.snapshot([table]))[table]
    return found


CHANNELS = st.dictionaries(
    st.sampled_from("ABCDE"), st.tuples(st.integers(0, 5), st.sampled_from([None, 0.5, 1.5])), max_size=5
)


@given(st.lists(CHANNELS, min_size=1, max_size=8))
def test_changes_applied_to_a_snapshot_give_the_next_snapshot(steps: list[dict[str, tuple[int, float | None]]]) -> None:
    source, clock = MadeSource(), Clock()
    feed = make_feed(source, clock)
    feed.join("page", ["channels"])
    feed.advance()
    state = rows_of(feed)
    for step in steps:
        source.tables["channels"] = {
            f"made|{name}|": ChannelRow(source="made", type=name, events=events, jitter_ms=jitter)
            for name, (events, jitter) in step.items()
        }
        clock.now += TURN_S
        feed.advance()
        state = applied(state, feed)
        assert state == rows_of(feed)


def test_only_changed_cells_are_sent(source: MadeSource, clock: Clock) -> None:
    feed = make_feed(source, clock)
    feed.join("page", ["channels"])
    source.set_channel("Loop", events=1, rate=1.0)
    source.set_channel("Lamp", events=1)
    feed.advance()
    source.set_channel("Loop", events=2, rate=1.0)
    feed.advance()
    assert msgspec.json.decode(feed.turn.cells["channels"]) == {"made|Loop|": {"events": 2}}


def test_the_history_of_rates_is_in_snapshots_and_not_in_changes(source: MadeSource, clock: Clock) -> None:
    feed = make_feed(source, clock)
    feed.join("page", ["channels"])
    source.set_channel("Loop", rates=(1.0,))
    feed.advance()
    source.set_channel("Loop", rates=(1.0, 2.0))
    feed.advance()
    assert "channels" not in feed.turn.cells
    assert rows_of(feed)["made|Loop|"]["rates"] == [1.0, 2.0]


def test_without_a_page_little_is_gathered_once_a_second(source: MadeSource, clock: Clock) -> None:
    feed = make_feed(source, clock)
    feed.advance()
    assert source.asked[-1] == frozenset()
    assert feed.pause_s == BEAT_S
    clock.now += BEAT_S
    feed.advance()
    assert {"channels", "sources"} <= source.asked[-1]


def test_slow_tables_are_gathered_less_often(source: MadeSource, clock: Clock) -> None:
    feed = make_feed(source, clock)
    feed.join("page", ["channels", "nodes"])
    feed.advance()
    clock.now += TURN_S
    feed.advance()
    assert source.asked[-1] == {"channels"}
    clock.now += SLOW_S
    feed.advance()
    assert source.asked[-1] >= {"channels", "nodes"}


def test_turns_that_take_long_are_far_apart(source: MadeSource, clock: Clock) -> None:
    feed = make_feed(source, clock)
    feed.join("page", ["channels"])
    rows = source.rows

    def slow(wanted: Any) -> Any:
        clock.now += 0.1
        return rows(wanted)

    source.rows = slow  # type: ignore[method-assign]
    for _ in range(40):
        feed.advance()
    assert feed.pause_s > 19 * 0.1


def test_a_question_between_two_turns_loses_no_change(source: MadeSource, clock: Clock) -> None:
    """A table that is asked for by `/api` takes a turn of its own, which pages get as any other."""
    feed = make_feed(source, clock)
    feed.join("page", ["channels"])
    feed.advance()
    state = rows_of(feed)
    seen = feed.turn.number
    source.set_channel("Loop", events=1)
    feed.rows("nodes")
    feed.gather(["channels"])
    source.set_channel("Loop", events=2)
    feed.advance()
    for turn in [turn for turn in feed.turns if turn.number > seen]:
        for key, cells in msgspec.json.decode(turn.cells.get("channels", b"{}")).items():
            state[key] = {**state.get(key, {}), **cells}
    assert state == rows_of(feed)
    assert feed.turns.maxlen == TURNS_KEPT


def test_pages_are_counted(source: MadeSource, clock: Clock) -> None:
    feed = make_feed(source, clock)
    feed.join("one", ["channels"])
    feed.join("two", ["sources"])
    feed.leave("one")
    feed.leave("one")
    assert feed.viewers == 1
    assert feed.is_viewed("sources")
    assert not feed.is_viewed("channels")


class Broken(MadeSource):
    """A source that raises while `problem` is set."""

    problem: Exception | None = None

    def rows(self, wanted: Collection[str]) -> Tables:
        self._raise()
        return super().rows(wanted)

    def types(self) -> Collection[type]:
        self._raise()
        return super().types()

    def counts(self) -> Mapping[str, int]:
        self._raise()
        return super().counts()

    def tap(self, receive: Receive) -> Callable[[], None]:
        self._raise()
        return super().tap(receive)

    def _raise(self) -> None:
        if self.problem is not None:
            raise self.problem


def test_a_source_that_raises_is_shown_as_failed_and_the_others_go_on(
    source: MadeSource, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    broken = Broken("broken")
    taps = Taps([broken, source], clock)
    feed = Feed([broken, source], TypeTable(taps), clock=clock, wall=clock, cpu=clock)
    feed.join(object(), ["sources", "channels", "types"])
    broken.problem = RuntimeError("no luck")
    source.set_channel("Loop", events=1)
    for _ in range(3):
        clock.now += LOOK_S
        taps.turn(wants_last=True)
        feed.advance()
    assert rows_of(feed)["made|Loop|"]["events"] == 1
    assert rows_of(feed, "sources")["broken"]["state"] == "failed"
    assert "no luck" in rows_of(feed, "sources")["broken"]["note"]
    assert len(caplog.records) == 4, "rows, counters, types and events: each is logged once"
    broken.problem = None
    clock.now += TURN_S
    feed.advance()
    assert rows_of(feed, "sources")["broken"]["state"] == "live"


def test_texts_that_are_no_unicode_are_sent_nevertheless(source: MadeSource, clock: Clock) -> None:
    feed = make_feed(source, clock)
    feed.join(object(), ["channels"])
    source.set_channel("Loop", publisher="\ud800", rate=float("nan"), events=2**70)
    feed.advance()
    sent = json.loads(feed.turn.cells["channels"])["made|Loop|"]
    assert (sent["publisher"], sent["rate"], sent["events"]) == ("\ud800", None, 2**70)


def test_a_source_may_have_problems_of_its_own(source: MadeSource, clock: Clock) -> None:
    feed = make_feed(source, clock)
    feed.join("page", ["problems"])
    row = ProblemRow(severity="warn", source="made", what="the door is open", since_ms=0.0, view="overview")
    source.tables["problems"] = {"made|door": row}
    feed.advance()
    assert rows_of(feed, "problems")["made|door"]["what"] == "the door is open"


def test_the_last_minute_of_a_source_is_in_its_row(source: MadeSource, clock: Clock) -> None:
    feed = make_feed(source, clock)
    feed.join("page", ["sources"])
    for rate in (1.0, 2.0, 3.0):
        source.tables["sources"]["made"] = SourceRow(kind="bus", address="made:", rate=rate)
        clock.now += BEAT_S
        feed.advance()
    clock.now += TURN_S
    feed.advance()
    assert rows_of(feed, "sources")["made"]["rates"] == [1.0, 2.0, 3.0]


def test_a_source_that_waits_is_told_of_the_first_page(clock: Clock) -> None:
    class Waiting(MadeSource):
        looks = 0

        def looked_at(self) -> None:
            self.looks += 1

    source = Waiting()
    feed = make_feed(source, clock)
    feed.join("one", ["sources"])
    feed.join("two", ["sources"])
    assert source.looks == 1


def test_a_program_that_is_busy_is_looked_at_less_often(source: MadeSource, clock: Clock) -> None:
    feed = make_feed(source, clock)
    feed.join("page", ["channels"])
    assert feed.pause_s == TURN_S
    for _ in range(20):
        feed.note_lateness(0.005)  # what a thread waits for another one that does not stop
    assert feed.pause_s == BUSY_TURN_S
    for _ in range(20):
        feed.note_lateness(0.001)
    assert feed.pause_s == TURN_S
