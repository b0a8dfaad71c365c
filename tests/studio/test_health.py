"""Health: fine only where something was seen and nothing is wrong; no data is a state, with its beginning."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus.studio._feed import BEAT_S, Feed
from genus.studio._health import FRESH_S, INTERVALS, LEAST_S, PAUSES
from genus.studio._taps import Taps
from genus.studio._type_table import TypeTable
from genus.studio.types import GatewayRow, NodeRow, Row, SourceRow, SubscriptionRow
from tests.studio.made_sources import Clock, MadeSource


class Looked:
    """A source that Studio looks at once a second, and what it thinks of it."""

    def __init__(self, **cells: Any) -> None:
        self.clock, self.source = Clock(), MadeSource()
        self.feed = Feed([self.source], TypeTable(Taps([self.source], self.clock)), clock=self.clock, wall=self.clock)
        self.events: dict[str, int] = {}
        self.qos = ""
        self.row(**cells)
        self.look()

    def row(self, **cells: Any) -> None:
        self.cells: dict[str, Any] = {"kind": "bus", "address": "made:", **cells}

    def look(self, seconds: float = BEAT_S, **counts: int) -> None:
        """Time passes, and channels have so many events more."""
        for name, more in counts.items():
            self.events[name] = self.events.get(name, 0) + more
            self.source.set_channel(name, events=self.events[name], qos=self.qos)
        self.source.tables["sources"]["made"] = SourceRow(**{"events": sum(self.events.values()), **self.cells})
        self.clock.now += seconds
        self.feed.advance()

    @property
    def health(self) -> tuple[str, str]:
        row = self.table("sources")["made"]
        return row.health, row.why

    def channel(self, name: str) -> Any:
        return self.table("channels")[f"made|{name}|"]

    def table(self, table: str) -> dict[str, Any]:
        return dict(self.feed._rows[table])


def test_what_comes_is_fine_and_what_stops_is_silent_since_then() -> None:
    looked = Looked()
    assert looked.health == ("silent", "no event yet")
    for _ in range(PAUSES + 1):
        looked.look(Level=1, Lamp=3)
    assert looked.health == ("fine", "")
    last = looked.clock.now
    for _ in range(int(LEAST_S) + 1):
        assert looked.channel("Level").health == "fine"
        looked.look(Lamp=1)
    level = looked.channel("Level")
    assert (level.health, level.health_since_ms) == ("silent", last * 1000)
    assert looked.health == ("degraded", "no data from Level (1 of 2 channels)")
    (problem,) = looked.table("problems").values()
    assert (problem.severity, problem.view, problem.since_ms) == ("warn", "channels", last * 1000)
    assert problem.what == looked.health[1]
    looked.look(Level=1)
    assert looked.health == ("fine", "")
    looked.look(seconds=FRESH_S + 1)  # that pause made it irregular
    row = looked.table("sources")["made"]
    assert (row.health, row.health_since_ms) == ("silent", (last + LEAST_S + 2) * 1000)


def test_bursts_with_pauses_of_less_than_a_minute_are_no_silence() -> None:
    """As those of a traffic light: events come every second, and then none for half a minute."""
    looked = Looked()
    for _ in range(3):
        for _ in range(2 * PAUSES):
            looked.look(Level=1)
        looked.look(Level=0, seconds=3.0)
        looked.look(Level=1)
        for _ in range(30):
            looked.look()
            assert looked.channel("Level").health == "fine"


def test_a_channel_that_was_announced_and_has_no_events_is_silent() -> None:
    looked = Looked()
    began = looked.clock.now
    looked.look(Level=0)
    level = looked.channel("Level")
    assert (level.health, level.events, level.last_ms) == ("silent", 0, None)
    assert level.health_since_ms >= began * 1000
    assert looked.health == ("silent", "no event yet")
    looked.look(Lamp=1)
    assert looked.health == ("degraded", "no data from Level (1 of 2 channels)")


def test_what_was_counted_before_studio_looked_is_not_known_to_be_fine() -> None:
    looked = Looked()
    looked.feed = Feed([looked.source], TypeTable(Taps([looked.source])), clock=looked.clock, wall=looked.clock)
    looked.source.set_channel("Level", events=100)
    looked.look()
    assert looked.channel("Level").health == "unknown"
    assert looked.health[0] != "fine"


def test_too_few_events_do_not_tell_how_often_they_come() -> None:
    looked = Looked()
    looked.look(Started=1)
    assert looked.channel("Started").health == "fine"
    looked.look(seconds=FRESH_S + 1)
    assert looked.channel("Started").health == "unknown"
    assert looked.health[0] == "unknown"


@pytest.mark.parametrize(("qos", "silent_after"), [("hard:10s", 30), ("hard:10ms", LEAST_S), ("none:4s", 12)])
def test_a_period_that_was_promised_is_the_usual_interval(qos: str, silent_after: float) -> None:
    looked = Looked()
    looked.qos = qos
    looked.look(Level=1)
    looked.look(seconds=silent_after)
    assert looked.channel("Level").health == "fine"
    looked.look()
    assert looked.channel("Level").health == "silent"


@pytest.mark.parametrize(
    ("cells", "health"),
    [
        ({"nodes": 0}, "nobody"),
        ({"nodes": 2}, "silent"),
        ({"state": "failed", "note": "no such host"}, "wrong"),
        ({"state": "ended"}, "unknown"),
        ({"kind": "can", "nodes": 0, "load": 0.0}, "nobody"),
        ({"kind": "recording", "state": "paused", "time_ms": 0.0, "speed": 1.0}, "unknown"),
        ({"kind": "gateway"}, "silent"),
        ({"kind": "lake"}, "silent"),
        ({"kind": "lake", "events": 7}, "fine"),
    ],
)
def test_a_source_of_which_nothing_came_is_not_fine(cells: dict[str, Any], health: str) -> None:
    looked = Looked(**cells)
    looked.look()
    assert looked.health[0] == health
    assert bool(looked.health[1]) == (health != "fine")


def test_a_bus_that_everybody_left_is_not_fine_until_something_comes() -> None:
    """However little is known of how often events should come."""
    looked = Looked(nodes=1)
    looked.look(Level=1)
    assert looked.health[0] == looked.channel("Level").health == "fine"
    looked.row(nodes=0)
    looked.look()
    assert (looked.health[0], looked.channel("Level").health) == ("nobody", "silent")
    looked.look(Level=1)
    assert looked.health[0] == looked.channel("Level").health == "fine"


def test_frames_that_are_corrupted_make_a_bus_degraded() -> None:
    looked = Looked(kind="can", nodes=3)
    looked.look(Level=5)
    looked.row(kind="can", nodes=3, corrupted=46)
    looked.look(Level=5)
    assert looked.health == ("degraded", "frames corrupted on the bus: 46")


def test_losses_make_a_channel_and_its_source_wrong() -> None:
    looked = Looked()
    looked.look(Level=5)
    for lost in (0, 2):
        looked.source.set_channel("Level", events=9, lost=lost)
        looked.look()
    assert looked.channel("Level").health == "wrong"
    assert looked.health == ("wrong", "Level: events sent and not received: 2")


def test_time_that_stands_still_or_is_set_makes_nothing_silent() -> None:
    playing = {"kind": "recording", "state": "playing", "speed": 1.0}
    looked = Looked(**playing, time_ms=0.0)
    for second in range(1, 6):
        looked.row(**playing, time_ms=second * 1000.0)
        looked.look(Level=1)
    assert (looked.channel("Level").health, looked.channel("Level").last_ms) == ("fine", 5000.0)
    looked.row(kind="recording", state="paused", speed=1.0, time_ms=5000.0)
    looked.look(seconds=1000.0)
    assert looked.channel("Level").health == "fine"
    for time_ms in (900_000.0, 0.0):
        looked.row(**playing, time_ms=time_ms)
        looked.look()
        assert looked.channel("Level").health != "silent"


@pytest.mark.parametrize(
    ("table", "row", "health"),
    [
        ("subscriptions", SubscriptionRow(source="made", text="Loop"), "unknown"),
        ("subscriptions", SubscriptionRow(source="made", text="Loop", delivered=0), "silent"),
        ("subscriptions", SubscriptionRow(source="made", text="Loop", delivered=1), "fine"),
        ("subscriptions", SubscriptionRow(source="made", text="Loop", delivered=1, waiting=9, capacity=10), "degraded"),
        ("nodes", NodeRow(source="made", name="gate", state="gone"), "unknown"),
        ("nodes", NodeRow(source="made", name="gate", state="down", is_well=False), "wrong"),
        ("nodes", NodeRow(source="made", name="gate", state="error passive", is_well=False), "degraded"),
        ("nodes", NodeRow(source="made", name="gate"), "fine"),
        ("gateways", GatewayRow(source="made", side="east"), "silent"),
        ("gateways", GatewayRow(source="made", side="east", crossed=3), "fine"),
        ("gateways", GatewayRow(source="made", side="east", crossed=3, is_connected=False), "wrong"),
    ],
)
def test_rows_of_other_tables_have_a_health_too(table: str, row: Row, health: str) -> None:
    looked = Looked()
    looked.source.tables[table] = {"made|x": row}
    looked.feed.join("page", [table])
    looked.look()
    looked.look()
    found = looked.table(table)["made|x"]
    assert found.health == health
    assert health != "unknown" or found.why


@pytest.mark.parametrize(("time_ms", "is_zero"), [(12_000.0, True), (1.79e12, False), (None, False)])
def test_times_that_are_counted_from_zero_are_no_dates(time_ms: float | None, is_zero: bool) -> None:
    assert Looked(time_ms=time_ms).table("sources")["made"].counts_from_zero == is_zero


STEPS = st.lists(
    st.tuples(
        st.dictionaries(st.sampled_from("ABC"), st.integers(0, 2), max_size=3),
        st.sampled_from([1.0, 2.0, 7.0, 90.0]),
        st.sampled_from(["live", "failed"]),
        st.sampled_from([None, 0, 2]),
        st.integers(0, 1),
    ),
    max_size=25,
)


@given(STEPS)
def test_fine_is_what_was_seen_to_come_and_nothing_is_wrong_with(steps: list[Any]) -> None:
    looked = Looked()
    grew: dict[str, float] = {}
    longest: dict[str, float] = {}
    for counts, seconds, state, nodes, corrupted in steps:
        looked.row(state=state, nodes=nodes, corrupted=corrupted)
        looked.look(seconds=seconds, **counts)
        now = looked.clock.now
        for name in (name for name, more in counts.items() if more):
            longest[name] = max(longest.get(name, 0.0), now - grew.get(name, now))
            grew[name] = now
        channels = {name: looked.channel(name).health for name in looked.events}
        problems = {key: row for key, row in looked.table("problems").items() if not key.endswith("|silent")}
        for name, health in channels.items():
            if health == "fine":
                assert state == "live"
                assert now - grew[name] <= max(LEAST_S, FRESH_S, INTERVALS * longest[name])
            if not looked.events[name]:
                assert health in ("silent", "unknown")
        if looked.health[0] == "fine":
            assert (state, problems) == ("live", {})
            assert set(channels.values()) <= {"fine", "unknown"}
            assert "fine" in channels.values()
        else:
            assert looked.health[1], "the reason is said"
