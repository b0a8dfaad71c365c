"""A world that is looked at while it runs: its published events, channels and nodes. Looking changes nothing."""

import threading
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from statistics import pstdev

import pytest

from genus import BestEffort, Event, EventChannel, Maybe, Soft, UInt8, UInt16, open_bus, this
from genus.bus import Bus
from genus.can import PreparedSystem, Scenario, World, load_system, parse_system
from genus.can.types import NodeState, Outcome, ScenarioRun
from genus.errors import BusError, QueueFull

START = datetime(2026, 1, 1, tzinfo=UTC)


class PoolLevel(Event):
    number: UInt16
    level: Maybe[UInt8] = None


class PoolNote(Event):
    text: str


SYSTEM = """
[bus]
bitrate = 500_000
[[channel]]
event = "PoolLevel"
node = "sensor"
class = "hard"
period = "10ms"
omissions = 1
size = 8
subscribers = ["logger"]
"""


@pytest.fixture
def world() -> Iterator[World]:
    with World("tanks", catalog=[PoolLevel, PoolNote], seed=1, start=START) as made:
        yield made


def open_node(name: str) -> Bus:
    return open_bus(f"sim:tanks?name={name}")


def publish_levels(bus: Bus, every: str = "5ms") -> None:
    levels = bus.channel(PoolLevel, Soft(deadline="4ms", expires="50ms"))
    levels.announce()
    numbers = iter(range(60_000))
    bus.every(every, lambda: levels.publish(PoolLevel(number=next(numbers))))


def publish_many(levels: EventChannel[PoolLevel]) -> None:
    for number in range(60_000):
        levels.publish(PoolLevel(number=number))


# -- events ------------------------------------------------------------------------------------------------------------


def test_a_watcher_gets_every_published_event_with_its_node_and_time(world: World) -> None:
    """Whatever becomes of it: nobody subscribes here, and no node joins for the watcher."""
    seen: list[tuple[str, Event, int]] = []
    sensor, writer = open_node("sensor"), open_node("writer")
    world.watch(lambda node, event, at: seen.append((node, event, at)))
    publish_levels(sensor)
    world.at("200ms", lambda: writer.publish(PoolNote(text="full")))
    world.run("500ms")
    published = Counter({result.channel: result.published for result in world.outcome().channels})
    assert Counter(f"{type(event).__name__} of {node}" for node, event, _ in seen) == published
    numbers = [event.number for _, event, _ in seen if isinstance(event, PoolLevel)]
    assert numbers == list(range(len(numbers)))
    (at,) = [at for _, event, at in seen if isinstance(event, PoolNote)]
    since_start = at - round(START.timestamp()) * 10**9
    assert 200_000_000 <= since_start < 201_000_000  # it was announced first
    assert set(world.stations) == {"sensor", "writer"}


def test_a_watcher_that_ended_gets_nothing_and_others_go_on(world: World) -> None:
    first: list[Event] = []
    second: list[Event] = []
    end = world.watch(lambda _, event, __: first.append(event))
    world.watch(lambda _, event, __: second.append(event))
    publish_levels(open_node("sensor"))
    world.run("100ms")
    end()
    end()
    known = len(first)
    world.run("100ms")
    assert len(first) == known > 0
    assert len(second) > known


def test_an_event_that_a_full_queue_refused_is_not_seen(world: World) -> None:
    seen: list[Event] = []
    world.watch(lambda _, event, __: seen.append(event))
    levels = open_node("sensor").channel(PoolLevel, BestEffort())
    levels.announce()
    with pytest.raises(QueueFull):
        publish_many(levels)
    assert len(seen) == world.channels()[0].published
    assert world.channels()[0].refused == 1


# -- memory ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [1, 7, 100])
def test_a_bounded_trace_keeps_the_last_frames_and_events(most: int) -> None:
    """Never more than were asked for, and never many less: those that an unbounded one has at its end."""
    kept = {}
    for trace in (True, most):
        with World("tanks", catalog=[PoolLevel, PoolNote], seed=1, trace=trace) as world:
            publish_levels(open_node("sensor"))
            open_node("logger").collection(PoolLevel).subscribe(lambda _: None)
            for _ in range(50):
                world.run("40ms")
                assert trace is True or len(world.trace) <= trace
                assert trace is True or len(world.events()) <= trace + 1  # one waits
            kept[trace is True] = world.trace.passages, world.events(), world.outcome()
    all_frames, all_events, outcome = kept[True]
    frames, events, bounded = kept[False]
    assert len(frames) >= most - max(1, most // 8)
    assert frames == all_frames[-len(frames) :]
    assert events == all_events[-len(events) :]
    assert bounded == outcome


def test_without_a_trace_nothing_is_kept_and_everything_is_counted() -> None:
    with World("tanks", catalog=[PoolLevel, PoolNote], trace=0) as world:
        publish_levels(open_node("sensor"))
        world.run("1s")
        assert len(world.trace) == 0
        assert all(record.ended_ns is None for record in world.events())
        assert world.outcome().channels[0].published > 100


@pytest.mark.parametrize("trace", [-1, 1.5, "many"])
def test_a_wrong_bound_is_refused(trace: object) -> None:
    with pytest.raises(BusError, match="it is True, False, or how many frames are kept"):
        World("tanks", trace=trace)  # type: ignore[arg-type]


# -- channels ----------------------------------------------------------------------------------------------------------


def test_jitter_is_the_deviation_of_the_time_between_two_sent_events(world: World) -> None:
    publish_levels(open_node("sensor"))
    open_node("logger").collection(PoolLevel).subscribe(lambda _: None)
    world.inject("errors p=0.2")
    world.run("2s")
    sent = [record.sent_ns for record in world.events() if record.sent_ns is not None]
    (result,) = world.channels()
    assert result.jitter_ns == round(pstdev(after - before for before, after in pairwise(sent)))
    assert result.jitter_ns > 1000
    assert (result.event, result.qos) == ("PoolLevel", "soft:4ms:50ms")


def test_events_of_a_span_are_those_that_were_under_way_in_it(world: World) -> None:
    """Also those that expired, up to then; the whole run gives all."""
    publish_levels(open_node("sensor"), every="1ms")
    open_node("logger").collection(PoolLevel).subscribe(lambda _: None)
    world.inject("errors p=1 from=300ms until=400ms")
    world.run("1s")
    events = world.events()
    assert any(record.given_up_ns for record in events)
    for start in range(0, 1_000_000_000, 37_000_000):
        end = start + 20_000_000
        expected = [
            record
            for record in events
            if record.published_ns < end and (record.ended_ns is None or record.ended_ns > start)
        ]
        assert world.events(start, end) == expected


def test_a_hard_event_that_waits_for_the_end_of_its_slot_is_not_lost() -> None:
    """It was sent and is not delivered yet: looking at that moment must not show a loss."""
    lost = set()
    coming = 0
    with World("tanks", plan=parse_system(SYSTEM), catalog=[PoolLevel], clocks="perfect") as world:
        sensor, logger = open_node("sensor"), open_node("logger")
        logger.collection(PoolLevel).subscribe(lambda _: None)
        levels = sensor.channel(PoolLevel, "hard:10ms")
        levels.announce()
        sensor.every("10ms", lambda: levels.publish(PoolLevel(number=1)), offset="9ms")
        for _ in range(4000):
            world.run_ns(25_000)
            for result in world.channels():
                lost.add(result.lost)
                coming += sum(result.coming.values())
    assert lost == {0}
    assert coming > 0


# -- nodes -------------------------------------------------------------------------------------------------------------


def node(world: World, name: str) -> NodeState:
    return next(each for each in world.nodes() if each.name == name)


def test_nodes_tell_their_clocks_roles_filters_and_subscriptions(world: World) -> None:
    sensor, logger = open_node("sensor"), open_node("logger")
    logger.collection(PoolLevel).subscribe(lambda _: None)
    logger.collection(PoolLevel).subscribe(lambda _: None, where=this.number < 10)
    assert node(world, "sensor").condition == "not synchronised"
    publish_levels(sensor)
    world.run("1s")
    states = world.nodes()
    assert [(each.name, each.number, each.condition) for each in states] == [("sensor", 1, "up"), ("logger", 2, "up")]
    assert sum("time master" in each.roles for each in states) == 1
    published = world.channels()[0].published
    got = {each.text: each.delivered for each in node(world, "logger").subscriptions}
    assert got["PoolLevel where number < 10"] == 10
    assert got["PoolLevel"] == world.channels()[0].delivered["logger"] >= published - 1
    assert node(world, "logger").filters == world.stations["logger"].filters != ()
    precisions = [each.precision_ns for each in states]
    assert all(precision is not None and precision < 100_000 for precision in precisions)
    offsets = [each.offset_ns for each in states if each.offset_ns is not None]
    assert abs(offsets[0] - offsets[1]) <= sum(each for each in precisions if each is not None)
    assert node(world, "sensor").heard_ns == max(each.end_ns for each in world.trace if 1 in each.senders)


def test_the_condition_of_a_node_follows_what_happens_to_it(world: World) -> None:
    publish_levels(open_node("sensor"))
    logger = open_node("logger")
    world.inject("crash node=sensor at=300ms restart=400ms")
    world.run("350ms")
    assert (node(world, "sensor").condition, node(world, "sensor").offset_ns) == ("down", None)
    world.run("1s")
    assert node(world, "sensor").condition == "up"
    logger.close()
    world.run("100ms")
    assert node(world, "logger").condition == "closed"


def test_errors_show_in_the_condition_of_a_node(world: World) -> None:
    publish_levels(open_node("sensor"))
    open_node("logger")
    world.inject("errors p=1 node=sensor from=100ms")
    seen = set()
    for _ in range(200):
        world.run("1ms")
        seen.add(node(world, "sensor").condition)
    assert {"error passive", "bus off"} <= seen


def test_the_broker_is_a_node() -> None:
    with World("tanks", catalog=[PoolLevel], broker=True) as world:
        sensor = open_node("sensor")
        assert node(world, "sensor").condition == "starting"
        sensor.channel(PoolLevel).announce()
        world.run("100ms")
        broker = node(world, "broker")
        assert (broker.number, broker.roles, broker.condition) == (127, ("broker",), "up")


# -- from another thread -----------------------------------------------------------------------------------------------


def run_crossing(look: bool) -> Outcome:
    """Half a second of a planned system; looked at from another thread all the time, or not."""
    scenario = Scenario(prepared=PreparedSystem.of(load_system("examples/crossing.toml")), duration=0.5, traced=500)
    done = threading.Event()
    problems: list[BaseException] = []

    def watch(world: World) -> None:
        while not done.is_set():
            try:
                world.nodes()
                world.channels()
                world.events(world.now_ns - 5_000_000, world.now_ns)
                list(world.slot_spans(max(0, world.now_ns - 5_000_000), world.now_ns))
            except RuntimeError:
                continue  # something was added meanwhile
            except BaseException as problem:
                problems.append(problem)
                return

    with ScenarioRun(scenario) as run:
        run.start()
        thread = threading.Thread(target=watch, args=(run.world,))
        if look:
            thread.start()
        for _ in range(50):
            run.world.run_ns(10_000_000)
        done.set()
        if look:
            thread.join()
        assert problems == []
        return run.outcome()


@pytest.mark.slow
def test_looking_from_another_thread_changes_nothing() -> None:
    assert run_crossing(look=True) == run_crossing(look=False)
