"""The global time and the calendar for programs: readings, tasks at points of the calendar, tasks before slots."""

from collections.abc import Iterator
from functools import partial

import pytest

from genus import Event, UInt8, open_bus
from genus.bus.types import LateStart
from genus.can import World, parse_system
from genus.errors import BusError

MS = 1_000_000

SYSTEM = """
[bus]
bitrate = "1M"
[[channel]]
name = "beats"
event = "Beat"
node = "sensor"
class = "hard"
period = "10ms"
size = 8
subscribers = ["logger"]
"""


class Beat(Event):
    number: UInt8


@pytest.fixture(params=["real", "perfect"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    with World("plant", plan=parse_system(SYSTEM), catalog=[Beat], clocks=request.param, seed=4) as world:
        yield world


def test_the_precision_is_unknown_until_clocks_are_synchronised() -> None:
    with World("plant") as world:
        one, two = open_bus("sim:plant?name=one"), open_bus("sim:plant?name=two")
        assert one.time().precision_ns is None
        world.run("1s")
        readings = [bus.time() for bus in (one, two)]
        precisions = [reading.precision_ns for reading in readings]
        assert all(precision is not None and precision < 20_000 for precision in precisions)
        assert abs(readings[0].time_ns - readings[1].time_ns) <= sum(filter(None, precisions))


def test_tasks_of_all_nodes_start_at_the_same_instant_within_their_precisions() -> None:
    starts: dict[str, list[int]] = {"one": [], "two": [], "three": []}
    with World("plant", seed=3) as world:

        def note(name: str) -> None:
            starts[name].append(world.now_ns)

        buses = {name: open_bus(f"sim:plant?name={name}") for name in starts}
        tasks = [bus.every("20ms", partial(note, name), offset="3ms") for name, bus in buses.items()]
        world.run("100ms")
        assert not any(starts.values())  # there is no common time yet
        world.run("2s")
        precision = max(bus.time().precision_ns or 0 for bus in buses.values())
    counts = {len(each) for each in starts.values()}
    assert min(counts) > 80
    together = zip(*(each[-80:] for each in starts.values()), strict=True)
    assert all(max(instants) - min(instants) <= 2 * precision + 2000 for instants in together)
    assert all(task.timing.late == task.timing.left_out == 0 for task in tasks)


def test_a_task_before_every_slot_publishes_into_it(world: World) -> None:
    sensor, logger = open_bus("sim:plant?name=sensor"), open_bus("sim:plant?name=logger")
    received, troubles = list[int](), list[object]()
    logger.collection(Beat).subscribe(lambda event: received.append(event.number), on_problem=troubles.append)
    beats = sensor.channel(Beat, "hard:10ms", on_problem=troubles.append)
    beats.announce()
    assert world.run("2s", until=lambda: world.is_ready)
    numbers = iter(range(256))
    task = beats.every_slot(lambda: beats.publish(Beat(number=next(numbers))), lead="500us")
    world.run("25ms")
    troubles.clear()
    world.run("500ms")
    slot = beats.slot
    assert slot is not None
    assert slot.period_ns == 10 * MS
    assert troubles == []
    assert 50 <= len(received) <= 53
    assert received == list(range(len(received)))
    assert task.timing.late == 0
    task.cancel()
    before = len(received)
    world.run("100ms")
    assert len(received) <= before + 1


def test_a_program_that_takes_too_long_is_told(world: World) -> None:
    bus = open_bus("sim:plant?name=sensor")
    open_bus("sim:plant?name=logger")
    world.run("1s")
    told: list[LateStart] = []
    work = iter(["35ms"])

    def task() -> None:
        bus.sleep(next(work, "0ms"))

    done = bus.every("10ms", task, offset="2ms", on_late=told.append)
    world.run("200ms")
    assert sum(each.left_out for each in told) == done.timing.left_out >= 2
    assert all((each.due_ns - 2 * MS) % (10 * MS) == 0 for each in told)


def test_a_task_goes_on_though_its_handlers_fail(world: World) -> None:
    bus = open_bus("sim:plant?name=sensor")
    open_bus("sim:plant?name=logger")
    world.run("1s")
    starts: list[int] = []

    def task() -> None:
        starts.append(world.now_ns)
        bus.sleep("35ms" if len(starts) == 2 else "0ms")

    def fail(late: LateStart) -> None:
        raise ValueError(late)

    done = bus.every("10ms", task, offset="2ms", on_late=fail)
    with pytest.raises(ValueError, match="LateStart"):  # a simulation tells at once, a live bus logs it
        world.run("200ms")
    world.run("100ms")
    assert done.timing.starts == len(starts) >= 12
    with pytest.raises(BusError, match="None cannot be called every period"):
        bus.every("10ms", None)  # type: ignore[arg-type]


def test_the_lead_of_a_task_is_shorter_than_the_period(world: World) -> None:
    bus = open_bus("sim:plant?name=sensor")
    beats = bus.channel(Beat, "hard:10ms")
    beats.announce()
    with pytest.raises(BusError, match="lead is 10ms, not shorter than the period"):
        beats.every_slot(lambda: None, lead="10ms")
    stamped = open_bus("sim:plant?name=logger", stamp=True)
    assert stamped.channel(Beat).slot is None
