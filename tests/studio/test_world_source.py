"""A simulated world on the page: its rows are its outcome, its timeline is its trace, and looking changes nothing."""

import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus import Event, Soft, UInt16, open_bus
from genus.can import PreparedSystem, Scenario, World, load_system, parse_fault
from genus.can.types import Outcome, ScenarioRun
from genus.model import name_of
from genus.studio._world_source import WorldSource, missed_deadlines
from genus.studio.types import ChannelRow, EventSource, NodeRow, SourceRow, SubscriptionRow, Timeline, TimelineSource

TABLES = ("sources", "channels", "nodes", "subscriptions")


class Basin(Event):
    number: UInt16


@pytest.fixture(scope="module")
def crossing() -> PreparedSystem:
    return PreparedSystem.of(load_system("examples/crossing.toml"))


@pytest.fixture(scope="module")
def run(crossing: PreparedSystem) -> Iterator[ScenarioRun]:
    """Half a second of a planned system in which frames are corrupted and a node crashes."""
    faults = ["errors p=0.1", "crash node=tram at=500ms restart=600ms"]
    scenario = Scenario(
        prepared=crossing,
        duration=0.5,
        faults=tuple(parse_fault(text, crossing.typed.system.nodes) for text in faults),
        traced=True,
    )
    with ScenarioRun(scenario) as made:
        for _ in made.advance():
            pass
        yield made


def source_of(world: World) -> WorldSource:
    return WorldSource(world, name="road")


def channels(source: WorldSource) -> dict[str, ChannelRow]:
    found: dict[str, Any] = dict(source.rows(["channels"])["channels"])
    return {key.removeprefix("road|"): row for key, row in found.items()}


# -- rows --------------------------------------------------------------------------------------------------------------


def test_a_world_has_events_and_a_timeline(run: ScenarioRun) -> None:
    source = source_of(run.world)
    assert isinstance(source, EventSource)
    assert isinstance(source, TimelineSource)
    row = source.rows(["sources"])["sources"]["road"]
    assert isinstance(row, SourceRow)
    assert row.has_events
    assert row.has_timeline
    assert (row.kind, row.state, row.nodes) == ("world", "live", len(run.world.stations))


def test_the_counts_that_are_shown_are_those_of_the_outcome(run: ScenarioRun) -> None:
    """Of every channel, and in sum."""
    source, outcome = source_of(run.world), run.world.outcome()
    rows = channels(source)
    assert rows.keys() == {result.channel for result in outcome.channels}
    for result in outcome.channels:
        row = rows[result.channel]
        shown = row.events, row.missed, row.expired, row.lost, row.publisher, row.type, row.qos
        told = result.published, missed_deadlines(result), result.expired, result.lost
        assert shown == (*told, result.node, result.event, result.qos)
        assert row.latency_ms == pytest.approx(result.mean_ns / 1e6, rel=0.01)
        assert row.bound_ms == pytest.approx((result.bound_ns or 0) / 1e6, rel=0.01)
    (of_all,) = source.rows(["sources"])["sources"].values()
    assert isinstance(of_all, SourceRow)
    assert of_all.events == sum(result.published for result in outcome.channels)
    assert of_all.late == sum(missed_deadlines(result) + result.expired for result in outcome.channels) > 0
    by_type = Counter[str]()
    for result in outcome.channels:
        by_type[result.event] += result.published
    assert source.counts() == by_type


def test_planned_channels_are_shown_before_something_is_published(crossing: PreparedSystem) -> None:
    with ScenarioRun(Scenario(prepared=crossing)) as fresh:
        rows = channels(source_of(fresh.world))
        assert rows.keys() == {channel.name for channel in crossing.typed.system.channels}
        assert {row.events for row in rows.values()} == {0}
        assert rows["emergency"].latency_ms is None
        assert rows["emergency"].qos.startswith("soft:")


@pytest.mark.slow
def test_the_channels_of_a_node_that_was_closed_are_nobodys_once_nothing_comes(crossing: PreparedSystem) -> None:
    """Another node may send in its place, so they are not while events come."""
    with ScenarioRun(Scenario(prepared=crossing, duration=20)) as fresh:
        fresh.start()
        source = source_of(fresh.world)

        def nobodys(seconds: float) -> set[str]:
            for _ in range(round(10 * seconds)):
                fresh.world.run_ns(100_000_000)
                rows = channels(source)
            return {row.publisher for row in rows.values() if row.health == "nobody"}

        assert not nobodys(0.5)
        fresh.world.stations["tram"].close()
        assert not nobodys(0.1)
        assert nobodys(2) == {"tram"}


@pytest.mark.slow
def test_rates_are_of_virtual_time(crossing: PreparedSystem) -> None:
    """However quickly it runs: a channel with an event every 10 ms has a hundred a second."""
    with ScenarioRun(Scenario(prepared=crossing, duration=5)) as fresh:
        fresh.start()
        source = source_of(fresh.world)
        for _ in range(40):
            fresh.world.run_ns(100_000_000)
            (row,) = source.rows(["sources"])["sources"].values()
            rows = channels(source)
        assert rows["occupancy-north"].rate == pytest.approx(100, abs=2)
        assert len(rows["occupancy-north"].rates) >= 3
        assert rows["occupancy-north"].rates[-1] == pytest.approx(100, abs=2)
        assert isinstance(row, SourceRow)
        assert row.load == pytest.approx(fresh.world.outcome().load, abs=0.03)


def test_nodes_and_subscriptions_are_those_of_the_world(run: ScenarioRun) -> None:
    rows = source_of(run.world).rows(TABLES)
    nodes = {row.name: row for row in rows["nodes"].values() if isinstance(row, NodeRow)}
    states = {state.name: state for state in run.world.nodes()}
    assert nodes.keys() == states.keys()
    for name, state in states.items():
        row = nodes[name]
        assert (row.number, row.state, row.filters) == (state.number, state.condition, state.filters)
        assert row.interests == tuple(each.text for each in state.subscriptions)
        assert row.is_well == (state.condition == "up")
    (master,) = [row for row in nodes.values() if row.role == "time master"]
    assert master.offset_us == 0
    for row in nodes.values():  # the page shows what is beyond its precision in red
        if row.offset_us is not None and row.precision_us is not None:
            assert abs(row.offset_us) <= row.precision_us + (master.precision_us or 0)
    shown = [row for row in rows["subscriptions"].values() if isinstance(row, SubscriptionRow)]
    told = [(state.name, each.text, each.delivered) for state in states.values() for each in state.subscriptions]
    assert Counter((row.owner, row.text, row.delivered) for row in shown) == Counter(told)
    delivered = sum(row.delivered or 0 for row in shown)
    assert delivered == sum(sum(result.delivered.values()) for result in run.world.outcome().channels)


def test_only_wanted_tables_are_made(run: ScenarioRun) -> None:
    assert source_of(run.world).rows(["nodes", "gateways"]).keys() == {"nodes"}


def test_types_are_those_of_the_catalog() -> None:
    with World("basins", catalog=[Basin]) as world:
        assert Basin in source_of(world).types()
        assert list(WorldSource(world, name="road", types=[Basin]).types()) == [Basin]


def test_a_closed_world_has_ended() -> None:
    with World("basins", catalog=[Basin]) as world:
        source = source_of(world)
    row = source.rows(["sources"])["sources"]["road"]
    assert isinstance(row, SourceRow)
    assert row.state == "ended"


def test_the_events_of_a_tap_are_those_that_were_published() -> None:
    seen: list[tuple[int, Event, str | None]] = []
    with World("basins", catalog=[Basin], seed=3) as world:
        bus = open_bus("sim:basins?name=pump")
        basins = bus.channel(Basin, Soft(deadline="5ms"))
        basins.announce()
        source = source_of(world)
        end = source.tap(lambda at, event, who: seen.append((at, event, who)))
        numbers = iter(range(1000))
        bus.every("10ms", lambda: basins.publish(Basin(number=next(numbers))))
        world.run("500ms")
        assert source.counts() == {name_of(Basin): len(seen)}
        end()
        world.run("100ms")
    assert [event.number for _, event, _ in seen if isinstance(event, Basin)] == list(range(len(seen)))
    assert {who for _, _, who in seen} == {"pump"}
    assert all(0 <= at - world.start_ns <= 500_000_000 for at, _, _ in seen)


# -- the timeline ------------------------------------------------------------------------------------------------------


@given(start_ms=st.floats(0, 900), span_ms=st.sampled_from([0.1, 1, 20, 200]))
def test_the_frames_of_a_span_are_those_of_the_trace(run: ScenarioRun, start_ms: float, span_ms: float) -> None:
    world = run.world
    start_us = world.start_ns / 1000 + round(start_ms * 1000)
    timeline = source_of(world).timeline(start_us, span_ms * 1000)
    begin, end = round(start_us * 1000), round((start_us + span_ms * 1000) * 1000)
    expected = [each for each in world.trace if each.start_ns < end and each.end_ns > begin]
    assert [(round(each.start_us * 1000), each.identifier, each.ok) for each in timeline.frames] == [
        (each.start_ns, each.id, each.outcome.is_good) for each in expected
    ]
    assert [each.channel for each in timeline.frames] == [world.channel_name(each) for each in expected]
    assert [each.kind for each in timeline.frames] == [each.traffic_class.value for each in expected]
    busy = sum(min(each.end_ns, end) - max(each.start_ns, begin) for each in expected)
    assert timeline.load == pytest.approx(busy / (end - begin))


def whole(run: ScenarioRun) -> Timeline:
    return source_of(run.world).timeline(run.world.start_ns / 1000, run.world.now_ns / 1000)


def test_without_a_start_the_timeline_ends_now(run: ScenarioRun) -> None:
    found = source_of(run.world).timeline(None, 5000)
    assert found.end_us == run.world.time_ns / 1000
    assert found.frames == [each for each in whole(run).frames if each.end_us > found.start_us]


@pytest.mark.slow
def test_hard_frames_lie_in_slots_and_have_their_deadlines(run: ScenarioRun) -> None:
    timeline = whole(run)
    hard = [frame for frame in timeline.frames if frame.kind == "hard" and frame.ok]
    assert len(hard) > 100
    slots = {(slot.channel, slot.end_us) for slot in timeline.slots}
    assert {(frame.channel, frame.deadline_us) for frame in hard} <= slots
    assert all(frame.end_us <= (frame.deadline_us or 0) for frame in hard)


def test_soft_frames_tell_how_long_they_waited_and_until_when_they_may(run: ScenarioRun) -> None:
    records = {(each.channel, each.sent_ns): each for each in run.world.events()}
    begin = run.world.start_ns
    soft = [frame for frame in whole(run).frames if frame.kind == "soft" and frame.ok]
    assert len(soft) > 100
    for frame in soft:
        record = records[frame.channel, round(frame.end_us * 1000) - begin]
        assert record.deadline_ns is not None
        assert frame.deadline_us == pytest.approx((begin + record.deadline_ns) / 1000)
        assert frame.waited_us == pytest.approx(frame.start_us - (begin + record.published_ns) / 1000)


def test_who_waited_when_a_frame_began_has_lost_against_it(run: ScenarioRun) -> None:
    """And only who waited: from the event's own record, one by one."""
    begin = run.world.start_ns
    events = run.world.events()
    contested = 0
    for frame in whole(run).frames:
        start = round(frame.start_us * 1000) - begin
        published = [each for each in events if each.published_ns <= start]
        waiting = {each.channel for each in published if each.ended_ns is None or each.ended_ns > start}
        assert set(frame.beaten) == waiting - {frame.channel}
        contested += bool(frame.beaten)
    assert contested > 10


# -- while it runs -----------------------------------------------------------------------------------------------------


def run_with(crossing: PreparedSystem, *, is_seen: bool) -> tuple[Outcome, set[int]]:
    """The outcome of a run without faults, and all losses that were shown while it ran."""
    done = threading.Event()
    lost: set[int] = set()
    problems: list[BaseException] = []

    def look(source: WorldSource) -> None:
        try:
            while not done.is_set():
                lost.update(row.lost or 0 for row in channels(source).values())
                source.rows(TABLES)
                source.timeline(None, 10_000)
                source.counts()
        except BaseException as problem:
            problems.append(problem)

    with ScenarioRun(Scenario(prepared=crossing, duration=0.5, traced=300)) as made:
        thread = threading.Thread(target=look, args=(source_of(made.world),))
        if is_seen:
            thread.start()
        for _ in made.advance():
            pass
        done.set()
        if is_seen:
            thread.join()
        assert problems == []
        return made.outcome(), lost


@pytest.mark.slow
def test_a_world_that_is_looked_at_all_the_time_has_the_same_outcome(crossing: PreparedSystem) -> None:
    """And no loss is shown that was none, though events are on their way whenever one looks."""
    seen, lost = run_with(crossing, is_seen=True)
    unseen, _ = run_with(crossing, is_seen=False)
    assert seen == unseen
    assert lost == {0}


@pytest.mark.parametrize("start_us", [1e18, -1e18])
def test_a_time_far_from_the_worlds_is_answered_at_once(run: ScenarioRun, start_us: float) -> None:
    """The slots of the far future would be counted one by one."""
    source = WorldSource(run.world, name="crossing")
    found = source.timeline(start_us, 1000.0)
    now_us = (run.world.start_ns + run.world.now_ns) / 1000
    assert not found.frames
    assert found.start_us in (now_us, run.world.start_ns / 1000 - 1000.0)
