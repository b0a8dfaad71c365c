"""Programs in the simulator: what runs on a live bus runs there as it is, in virtual time and under faults."""

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from genus import BestEffort, Event, Hard, Maybe, Soft, UInt8, UInt16, open_bus, read_recording, record, replay, this
from genus.bus import Bus, record_to_folder
from genus.can import DeadlineMissed, EventMissing, EventsLost, Expired, World, parse_system
from genus.errors import BusError, GenusError, QueueFull

START = datetime(2026, 1, 1, tzinfo=UTC)


class TankLevel(Event, tagged=("place",)):
    number: UInt16
    level: Maybe[UInt8] = None


class Command(Event):
    number: UInt8


class Done(Event):
    number: UInt8


class Note(Event):
    text: str


SYSTEM = """
[bus]
bitrate = 500_000
[[channel]]
event = "TankLevel"
node = "sensor"
class = "hard"
period = "10ms"
omissions = 1
size = 8
subscribers = ["logger"]
"""


@pytest.fixture
def world() -> Iterator[World]:
    with World("road", catalog=[TankLevel, Command, Done, Note], seed=1) as made:
        yield made


def open_node(name: str, **options: object) -> Any:
    more = "".join(f"&{key}={value}" for key, value in options.items())
    return open_bus(f"sim:road?name={name}{more}")


# -- one program, every bus --------------------------------------------------------------------------------------------


def exchange(sender_address: str, receiver_address: str) -> list[int]:
    """A program as users write it: it knows nothing of the medium."""
    with open_bus(receiver_address) as receiver, open_bus(sender_address) as sender:
        inbox = receiver.collection(TankLevel).inbox(where=this.level > 10)
        samples = sender.channel(TankLevel, carries="place")
        samples.announce()
        for number in range(6):
            samples.publish(TankLevel(number=number, level=5 * number))
            sender.sleep("1ms")
        return [inbox.get(timeout=60).number for _ in range(3)]


def test_a_program_runs_unchanged_in_the_simulator_and_on_a_live_bus(world: World, tmp_path: Path) -> None:
    pytest.importorskip("can")
    catalog = tmp_path / "catalog.json"
    world.catalog.save(catalog)
    live = f"can:virtual?channel=unchanged-{os.getpid()}&synchronised=no&catalog={catalog}&number="
    assert exchange("sim:road?name=a", "sim:road?name=b") == [3, 4, 5]
    assert exchange(live + "1", live + "2") == [3, 4, 5]
    assert exchange(*[f"ipc:unchanged-{os.getpid()}"] * 2) == [3, 4, 5]


# -- time --------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_waiting_takes_virtual_time_and_none_of_ours(world: World) -> None:
    bus = open_node("waiting")
    inbox = bus.collection(TankLevel).inbox()
    with pytest.raises(TimeoutError, match="within 120 s"):
        inbox.get(timeout=120)
    assert world.now_ns == 120_000_000_000
    bus.sleep(60)
    bus.sleep(timedelta(seconds=30))
    bus.sleep("30s")
    assert world.now_ns == 240_000_000_000


def test_a_bus_shows_virtual_time_as_its_node_knows_it(world: World) -> None:
    first, second = open_node("first"), open_node("second")
    world.run("1s")
    assert abs(first.now() - second.now()) < timedelta(microseconds=50)
    assert START <= first.now() < START + timedelta(seconds=3)
    assert world.time == START + timedelta(seconds=1)


def test_a_reference_clock_gives_the_bus_the_true_time() -> None:
    with World("road", catalog=[TankLevel], seed=2, start=START, masters=["gps"], reference=["gps"]):
        open_node("gps")
        node = open_node("node")
        node.sleep("1s")
        assert abs(node.now() - (START + timedelta(seconds=1))) < timedelta(microseconds=50)


def test_calls_come_when_they_are_due(world: World) -> None:
    bus = open_node("timed")
    calls: list[int] = []
    timer = bus.every("100ms", lambda: calls.append(world.now_ns))
    bus.call_at(bus.now() + timedelta(milliseconds=250), lambda: calls.append(-1))
    world.run("320ms")
    timer.cancel()
    world.run("1s")
    assert [round(call / 1e8, 3) if call > 0 else call for call in calls] == [1.0, 2.0, -1, 3.0]


def test_run_stops_when_its_condition_holds(world: World) -> None:
    sensor, logger = open_node("sensor"), open_node("logger")
    inbox = logger.collection(TankLevel).inbox()
    samples = sensor.channel(TankLevel)
    samples.announce()
    world.at("100ms", lambda: samples.publish(TankLevel(number=1)))
    assert world.run("1s", until=lambda: inbox.counters.waiting == 1)
    assert 100_000_000 < world.now_ns < 101_000_000
    assert not world.run("1s", until=lambda: inbox.counters.waiting == 2)
    with pytest.raises(BusError, match="span of time, or a condition"):
        world.run()


# -- programs ----------------------------------------------------------------------------------------------------------


def act(seen: list[int]) -> None:
    """A program that blocks: it takes commands one after the other, and takes its time over each."""
    with open_node("actuator") as bus, bus.channel(Done, BestEffort()) as done:
        for command in bus.collection(Command).inbox():
            bus.sleep("20ms")
            seen.append(command.number)
            done.publish(Done(number=command.number))


def test_programs_that_block_run_beside_each_other(world: World) -> None:
    seen: list[int] = []
    program = world.start(act, seen)
    bus = open_node("controller")
    commands = bus.channel(Command)
    commands.announce()
    replies = bus.collection(Done).inbox()
    world.run("100ms")
    began = world.now_ns
    for number in (1, 2):
        commands.publish(Command(number=number))
    assert [replies.get(timeout=1).number for _ in range(2)] == [1, 2]
    assert 40_000_000 < world.now_ns - began < 42_000_000
    with pytest.raises(TimeoutError):
        replies.get(timeout=1)
    assert (seen, program.is_done) == ([1, 2], False)


def test_handlers_may_block_and_others_go_on_meanwhile(world: World) -> None:
    seen: list[tuple[str, float]] = []
    sensor, slow, quick = open_node("sensor"), open_node("slow"), open_node("quick")

    def handle(event: TankLevel) -> None:
        slow.sleep("50ms")
        seen.append(("slow", round(world.now_ns / 1e6)))

    slow.collection(TankLevel).subscribe(handle)
    quick.collection(TankLevel).subscribe(lambda event: seen.append(("quick", round(world.now_ns / 1e6))))
    samples = sensor.channel(TankLevel)
    samples.announce()
    world.at("100ms", lambda: samples.publish(TankLevel(number=1)))
    world.at("110ms", lambda: samples.publish(TankLevel(number=2)))
    world.run("1s")
    assert seen == [("quick", 100), ("quick", 110), ("slow", 150), ("slow", 200)]  # one after the other, as live


def test_a_program_that_fails_fails_the_run(world: World) -> None:
    def fail() -> None:
        raise ValueError("no such valve")

    world.start(fail)
    with pytest.raises(ValueError, match="no such valve"):
        world.run("1s")
    world.run("1s")  # the others go on


def test_closing_the_world_ends_programs_that_wait() -> None:
    ended: list[str] = []

    def wait() -> None:
        try:
            open_node("waiting").collection(TankLevel).inbox().get()
        finally:
            ended.append("waiting")

    before = threading.active_count()
    with World("road", catalog=[TankLevel]) as world:
        world.start(wait)
        world.run("1s")
    assert ended == ["waiting"]
    assert threading.active_count() == before
    with pytest.raises(BusError, match="no world 'road'"):
        open_node("late")


def test_a_thread_of_ones_own_cannot_run_the_world_meanwhile(world: World) -> None:
    problems: list[BusError] = []

    def meddle() -> None:
        try:
            world.run("1ms")
        except BusError as problem:
            problems.append(problem)

    def callback() -> None:
        thread = threading.Thread(target=meddle)
        thread.start()
        thread.join()

    world.at("10ms", callback)
    world.run("20ms")
    assert "World.start" in str(problems[0])


# -- asyncio -----------------------------------------------------------------------------------------------------------


def test_async_programs_run_in_virtual_time(world: World) -> None:
    sensor, logger = open_node("sensor"), open_node("logger")

    async def main() -> list[tuple[int, float]]:
        handled: list[tuple[int, float]] = []

        async def handle(event: TankLevel) -> None:
            await asyncio.sleep(0.5)
            handled.append((event.number, round(asyncio.get_running_loop().time(), 2)))

        logger.collection(TankLevel).subscribe(handle)
        inbox = logger.collection(TankLevel).inbox()
        samples = sensor.channel(TankLevel)
        samples.announce()
        for number in (1, 2):
            samples.publish(TankLevel(number=number))

        async def read() -> None:
            async with asyncio.timeout(5):
                async for event in inbox:
                    assert event.number in (1, 2)

        with pytest.raises(TimeoutError):
            await read()
        await logger.wait_idle_async()
        return handled

    assert world.run_async(main()) == [(1, 0.5), (2, 1.0)]
    assert 5 < world.now_ns / 1e9 < 5.1


def test_an_async_program_that_waits_for_nothing_is_told_so() -> None:
    with World("road") as world, pytest.raises(BusError, match="cannot happen"):
        world.run_async(asyncio.Event().wait())


# -- faults ------------------------------------------------------------------------------------------------------------


def publish_every(
    bus: Any, period: str, qos: Soft | Hard | BestEffort, on_problem: Callable[[Any], object] | None = None
) -> Any:
    channel = bus.channel(TankLevel, qos, on_problem=on_problem)
    channel.announce()
    numbers = iter(range(1 << 16))
    return bus.every(period, lambda: channel.publish(TankLevel(number=next(numbers))))


def test_what_is_corrupted_is_sent_again_and_nothing_is_lost(world: World) -> None:
    world.inject("errors p=0.2")
    sensor, logger = open_node("sensor"), open_node("logger")
    inbox = logger.collection(TankLevel).inbox()
    publish_every(sensor, "10ms", Soft(deadline="8ms"))
    world.run("1s")
    outcome = world.outcome()
    (result,) = outcome.channels
    assert result.published == result.sent == result.delivered["logger"] == inbox.counters.delivered > 95
    assert outcome.bands["soft"].errors > 10
    assert not any(outcome.broken)


def test_losses_are_reported_to_the_subscriber_and_in_the_outcome(world: World) -> None:
    troubles: list[object] = []
    sensor, logger = open_node("sensor"), open_node("logger")
    logger.collection(TankLevel).subscribe(lambda event: None, on_problem=troubles.append)
    world.inject("omissions p=0.3 band=soft")
    publish_every(sensor, "10ms", Soft(deadline="8ms"))
    world.run("5s")
    (result,) = world.outcome().channels
    assert result.lost > 50
    assert result.lost - 30 < sum(each.count for each in troubles if isinstance(each, EventsLost)) <= result.lost
    assert result.told_lost["logger"] == sum(each.count for each in troubles if isinstance(each, EventsLost))


def test_a_node_that_crashes_and_restarts_goes_on(world: World) -> None:
    """Its program stays: what it announced and subscribed to is there again, and its timers go on."""
    sensor, logger = open_node("sensor"), open_node("logger")
    numbers: list[int] = []
    logger.collection(TankLevel).subscribe(lambda event: numbers.append(event.number))
    publish_every(sensor, "10ms", Soft(deadline="8ms"))
    world.inject("crash node=sensor at=500ms restart=800ms")
    world.inject("crash node=logger at=1500ms restart=1600ms")
    world.run("2500ms")
    assert len(numbers) == len(set(numbers))
    assert 8 < world.outcome().channels[0].lost < 120  # until the publisher's next report it drops what it gets
    assert numbers[-1] > numbers[0] + 200


def test_a_program_ends_with_its_node_and_starts_again_with_it(world: World) -> None:
    seen: list[int] = []
    program = world.start(act, seen)
    bus = open_node("controller")
    commands = bus.channel(Command)
    commands.announce()
    done = bus.collection(Done).inbox()
    world.run("100ms")
    world.inject("crash node=actuator at=110ms restart=200ms")
    commands.publish(Command(number=1))  # under way when the node crashes
    world.run("50ms")
    assert (seen, program.starts, program.is_done) == ([], 1, False)
    commands.publish(Command(number=2))  # while it is down
    world.run("1200ms")  # at the latest now the node has the controller's report, which it needs to receive events
    assert program.starts == 2
    commands.publish(Command(number=3))
    assert done.get(timeout=1).number == 3
    assert seen == [3]


def test_a_program_starts_again_after_every_crash_of_its_node(world: World) -> None:
    """Under its old number, and also if it did not close its bus, or ignores errors."""
    buses: list[Bus] = []

    def persist() -> None:
        bus = open_node("persistent")
        buses.append(bus)
        while True:
            with contextlib.suppress(Exception):
                bus.sleep("10ms")

    program = world.start(persist)
    for at in (100, 300, 500):
        world.run("5ms")
        world.inject(f"crash node=persistent at={at}ms restart={at + 50}ms")
        world.run("195ms")
    assert program.starts == len(buses) == 4
    assert world.stations["persistent"].number == 1


def test_handlers_end_with_their_node(world: World) -> None:
    """One that waits gets no further, and events that waited for it are not handled."""
    seen: list[int] = []
    sensor, slow = open_node("sensor"), open_node("slow")

    def handle(event: TankLevel) -> None:
        slow.sleep("50ms")
        seen.append(event.number)

    slow.collection(TankLevel).subscribe(handle)
    samples = sensor.channel(TankLevel)
    samples.announce()
    for number in range(3):
        samples.publish(TankLevel(number=number))
    world.inject("crash node=slow at=100ms")
    world.run("1s")
    assert seen in ([0], [0, 1])


def test_files_land_and_recordings_are_replayed_in_virtual_time(tmp_path: Path) -> None:
    with World("road", catalog=[TankLevel], clocks="perfect") as world:
        sensor, logger = open_node("sensor"), open_node("logger")
        landing, file = tmp_path / "landing", tmp_path / "all.genus"
        with record_to_folder(logger, landing, every="500ms"), record(logger, file, flush="1s") as recorder:
            publish_every(sensor, "100ms", BestEffort())
            world.run("900ms")
            assert recorder.written == 0
            world.run("1100ms")
            assert recorder.written >= 9
            assert len(list(landing.glob("*.genus"))) >= 2
        times: list[int] = []
        begin = world.now_ns
        recording = read_recording(tmp_path / "all.genus", [TankLevel])
        count = replay(recording, lambda event: times.append(world.now_ns - begin), speed=2.0, bus=logger)
    assert count == 19
    assert [round(time / 1e6) for time in times] == [50 * number for number in range(19)]


def test_a_name_can_be_used_again_at_once(world: World) -> None:
    """What was published under it before is still sent, and the node has its number."""
    inbox = open_node("logger").collection(TankLevel).inbox()
    numbers = set()
    for number in range(5):
        with open_node("sensor") as bus, bus.channel(TankLevel) as samples:
            samples.publish(TankLevel(number=number))
            numbers.add(world.stations["sensor"].number)
    world.run("1s")
    assert [inbox.get(timeout=0).number for _ in range(5)] == list(range(5))
    assert len(numbers) == 1


def test_a_world_that_is_closed_takes_nothing_more() -> None:
    with World("road", catalog=[TankLevel]) as world:
        bus = open_node("sensor")
        samples = bus.channel(TankLevel)
        samples.announce()
    uses: list[Callable[[], object]] = [
        lambda: samples.publish(TankLevel(number=1)),
        lambda: bus.every("1s", lambda: None),
        lambda: bus.collection(TankLevel).inbox(),
        lambda: world.run("1s"),
        lambda: world.start(lambda: None),
        lambda: world.inject("errors p=0.1"),
        lambda: world.at("1h", lambda: None),
    ]
    for use in uses:
        with pytest.raises(BusError):
            use()
    bus.close()


def test_a_condition_that_waits_is_refused(world: World) -> None:
    inbox = open_node("logger").collection(TankLevel).inbox()
    with pytest.raises(BusError, match="must not wait itself"):
        world.run("1s", until=lambda: inbox.get(timeout=0.1) is not None)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"faults": ["erors p=1"]}, "erors"),
        ({"faults": "crash at=1s"}, "crash"),
        ({"clocks": "fast"}, "it is 'real' or 'perfect'"),
        ({"seed": "a"}, "whole numbers"),
        ({"start": datetime(2026, 1, 1)}, "no time zone"),
    ],
)
def test_wrong_arguments_are_refused_at_once(given: dict[str, Any], says: str) -> None:
    with pytest.raises(GenusError, match=says):
        World("wrong", **given)
    World("wrong", catalog=TankLevel).close()  # type: ignore[arg-type]


def test_the_outcome_of_a_channel_is_found_by_its_name_or_type(world: World) -> None:
    samples = open_node("sensor").channel(TankLevel)
    samples.announce()
    samples.publish(TankLevel(number=1))
    world.run("100ms")
    outcome = world.outcome()
    assert outcome.channel("TankLevel") is outcome.channel("TankLevel of sensor")
    with pytest.raises(BusError, match="no channel 'Tank'; there are 'TankLevel of sensor'"):
        outcome.channel("Tank")


def test_a_node_that_is_down_says_so(world: World) -> None:
    sensor = open_node("sensor")
    samples = sensor.channel(TankLevel)
    samples.announce()
    world.inject("crash node=sensor at=10ms")
    world.run("20ms")
    with pytest.raises(BusError, match="'sensor' is down"):
        samples.publish(TankLevel(number=1))
    sensor.close()


def test_what_is_late_and_what_expires_is_reported_to_the_publisher() -> None:
    troubles: list[object] = []
    with World("road", catalog=[TankLevel], confinement=False) as world:
        sensor, other = open_node("sensor"), open_node("other")
        other.collection(TankLevel).subscribe(lambda event: None)
        samples = sensor.channel(TankLevel, Soft(deadline="1ms", expires="3ms"), on_problem=troubles.append)
        samples.announce()
        world.inject("transmitter node=sensor from=10ms until=20ms")
        world.at("11ms", lambda: samples.publish(TankLevel(number=1)))
        world.run("100ms")
        assert [type(trouble) for trouble in troubles] == [DeadlineMissed, Expired]
        (result,) = world.outcome().channels
        assert (result.missed, result.expired, result.sent_expired) == (1, 1, 0)


def test_a_fault_names_a_node_that_is_there(world: World) -> None:
    open_node("sensor")
    with pytest.raises(BusError, match="there is no node 'senor'; did you mean 'sensor'"):
        world.inject("crash node=senor at=1s")


def test_a_fault_waits_for_the_node_it_names_and_one_that_never_joins_is_a_warning() -> None:
    with World("road", catalog=[TankLevel], faults=["crash node=late at=50ms", "crash node=never at=1s"]) as world:
        world.run("10ms")
        open_node("late")
        world.run("100ms")
        assert not world.stations["late"].is_up
        with pytest.warns(UserWarning, match="crash node=never at=1s was never injected"):
            world.close()


def test_the_same_seed_gives_the_same_world_and_another_gives_another() -> None:
    def trace(seed: int) -> bytes:
        with World("road", catalog=[TankLevel], seed=seed, faults=["errors p=0.1"]) as world:
            sensor, logger = open_node("sensor"), open_node("logger")
            logger.collection(TankLevel).inbox()
            publish_every(sensor, "10ms", Soft(deadline="8ms"))
            world.run("500ms")
            return world.trace.to_bytes()

    assert trace(1) == trace(1) != trace(2)


# -- hard channels -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clocks", ["real", "perfect"])
def test_hard_events_are_delivered_at_their_deadline(clocks: Any) -> None:
    with World("road", plan=parse_system(SYSTEM), catalog=[TankLevel], clocks=clocks, seed=3) as world:
        sensor, logger = open_node("sensor"), open_node("logger")
        at: list[int] = []
        logger.collection(TankLevel).subscribe(lambda event: at.append(logger.time_ns()))
        publish_every(sensor, "10ms", Hard(period="10ms", omissions=1))
        world.run("1s")
        (result,) = world.outcome().channels
        assert result.late == 0
        assert result.sent - 1 <= result.delivered["logger"] <= result.sent
        assert result.sent > 70
        assert {round((after - before) / 1e6, 2) for before, after in pairwise(at[10:])} == {10.0}


def test_a_missing_hard_event_is_an_alarm_at_its_deadline() -> None:
    troubles: list[object] = []
    with World(
        "road", plan=parse_system(SYSTEM), catalog=[TankLevel], clocks="perfect", faults=["crash node=sensor at=300ms"]
    ) as world:
        sensor, logger = open_node("sensor"), open_node("logger")
        logger.collection(TankLevel).subscribe(lambda event: None, on_problem=troubles.append)
        publish_every(sensor, "10ms", Hard(period="10ms", omissions=1))
        world.run("300ms")
        troubles.clear()
        world.run("100ms")
        assert {type(trouble) for trouble in troubles} == {EventMissing}
        assert len(troubles) in (9, 10)
        assert world.outcome().channels[0].alarms["logger"] >= 9


def test_a_replacement_may_use_the_slots_of_the_node_it_replaces() -> None:
    with World("road", plan=parse_system(SYSTEM), catalog=[TankLevel], clocks="perfect") as world:
        logger = open_node("logger")
        inbox = logger.collection(TankLevel).inbox()
        spare = open_node("spare", slots="sensor")
        publish_every(spare, "10ms", Hard(period="10ms", omissions=1))
        world.run("100ms")
        assert inbox.counters.delivered >= 8
        with pytest.raises(BusError, match="no slot for TankLevel of node 'other'"):
            open_node("other").channel(TankLevel, Hard(period="10ms")).announce()


# -- the rest of a bus -------------------------------------------------------------------------------------------------


def test_a_broker_gives_numbers_event_tags_and_catalog() -> None:
    with World("road", catalog=[TankLevel], broker=True, seed=4) as world:
        sensor, logger = open_node("sensor"), open_node("logger")
        inbox = logger.collection(TankLevel).inbox()
        publish_every(sensor, "10ms", BestEffort())
        assert inbox.get(timeout=2) == TankLevel(number=0)
        assert world.is_ready


def test_recordings_have_virtual_times(world: World, tmp_path: Path) -> None:
    sensor, logger = open_node("sensor"), open_node("logger")
    publish_every(sensor, "10ms", BestEffort())
    with record(logger, tmp_path / "road.genus", "TankLevel where number < 3"):
        world.run("1s")
    recorded = list(read_recording(tmp_path / "road.genus", [TankLevel]))
    assert [each.event.number for each in recorded] == [0, 1, 2]  # type: ignore[attr-defined]
    assert [round((after.at_us - before.at_us) / 1000) for before, after in pairwise(recorded)] == [10, 10]
    assert recorded[0].at_us >= START.timestamp() * 1e6


def test_collections_and_their_flavours_work_as_on_any_bus(world: World) -> None:
    sensor, logger = open_node("sensor"), open_node("logger")
    got: list[tuple[str, int]] = []
    shared = logger.collection(TankLevel, "queue")
    for name in ("a", "b"):
        shared.subscribe(lambda event, name=name: got.append((name, event.number)))
    logger.collection(TankLevel, "set").subscribe(lambda event: got.append(("once", event.number)))
    for number in (1, 2, 2):
        sensor.collection(TankLevel).publish(TankLevel(number=number))
    world.run("1s")
    assert sorted(got) == [("a", 1), ("a", 2), ("b", 2), ("once", 1), ("once", 2)]


def test_a_bounded_queue_blocks_its_publisher_in_virtual_time(world: World) -> None:
    bus = open_node("alone")
    inbox = bus.collection(Note).inbox(capacity=1, overflow="block")

    def consume() -> None:
        for _ in range(3):
            bus.sleep("100ms")
            inbox.get()

    world.start(consume)
    for text in "abc":
        bus.collection(Note).publish(Note(text=text))
    assert 0.19 < world.now_ns / 1e9 < 0.31


def test_a_node_that_publishes_too_much_gets_queue_full(world: World) -> None:
    sensor = open_node("sensor")
    samples = sensor.channel(TankLevel, Soft(deadline="1s"))
    samples.announce()
    for number in range(1024):
        samples.publish(TankLevel(number=number))
    with pytest.raises(QueueFull, match="1024 events wait"):
        samples.publish(TankLevel(number=1024))
    (result,) = world.outcome().channels
    assert (result.published, result.refused) == (1024, 1)


def test_acceptance_filters_keep_out_what_a_node_does_not_want(world: World) -> None:
    sensor, logger = open_node("sensor"), open_node("logger")
    logger.collection(TankLevel).inbox(has="place")
    samples = sensor.channel(TankLevel, carries="place")
    samples.announce()
    for place in (None, "A8", None):
        samples.publish(TankLevel(number=1, place=place))
    world.run("100ms")
    (result,) = world.outcome().channels
    assert (result.sent, result.wanted, result.delivered) == (3, {"logger": 1}, {"logger": 1})
    assert result.lost == 0
    assert result.filtered == 2


def test_equal_events_are_counted_one_by_one(world: World) -> None:
    sensor, logger = open_node("sensor"), open_node("logger")
    inbox = logger.collection(TankLevel).inbox()
    samples = sensor.channel(TankLevel, Soft(deadline="10ms"))
    samples.announce()
    world.inject("duplicates p=0.2")
    for _ in range(50):
        samples.publish(TankLevel(number=7))
        world.run("2ms")
    (result,) = world.outcome().channels
    assert result.published == result.sent == result.delivered["logger"] == inbox.counters.delivered == 50
    assert result.duplicates == 0


# -- addresses ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("sim:street?name=a", "there is no world 'street' in this process; known are 'road'"),
        ("sim:road?name=a&colour=red", "colour is no option; known are name, number, slots, banks, catalog"),
        ("sim:road?name", "write options as name=value"),
        ("sim:road?name=taken", "there is a node 'taken' already"),
        ("sim:road?name=a&number=many", "number is 'many'"),
        ("sim:road?name=a&number=1", "number 1 is that of 'taken'"),
        ("sim:road?name=a&number=127", "number is '127'; it is 1 to 126"),
        ("sim:road?name=a&banks=0", "banks is '0'"),
    ],
)
def test_a_wrong_address_is_refused(world: World, address: str, says: str) -> None:
    open_node("taken")
    with pytest.raises(BusError, match=says):
        open_bus(address)


def test_a_node_that_left_may_come_back_under_its_name(world: World) -> None:
    logger = open_node("logger")
    inbox = logger.collection(TankLevel).inbox()
    for number in (1, 2):
        with open_node("sensor") as sensor:
            samples = sensor.channel(TankLevel)
            samples.announce()
            samples.publish(TankLevel(number=number))
            assert inbox.get(timeout=1).number == number
    with pytest.raises(BusError, match="a world 'road' in this process already"):
        World("road")
