"""What became of every event: the bus, the nodes and the programs agree, whatever fails."""

from collections.abc import Callable
from random import Random

import pytest

from genus import Event, Hard, Soft, UInt8, open_bus
from genus.can import HardStopped, PreparedSystem, Scenario, World, parse_fault
from genus.can._plan.system import System
from genus.can._plan.system_file import parse_system
from genus.can.types import ScenarioRun
from tests.can.random_systems import random_system

MS = 1_000_000


class Beat(Event):
    """A hard event."""

    number: UInt8


class Note(Event):
    """A soft event."""

    number: UInt8


SYSTEM = """
[bus]
bitrate = "1M"
[nodes]
sensor = 1
logger = 2
[[channel]]
event = "Beat"
node = "sensor"
class = "hard"
period = "10ms"
omissions = 1
size = 2
subscribers = ["logger"]
"""


def random_faults(random: Random, system: System) -> list[str]:
    """Two to four faults of frames, stations and clocks; times are within half a second from power-on."""

    def node() -> int:
        return random.choice(list(system.nodes.values()))

    def at() -> str:
        return f"{random.randrange(150, 500)}ms"

    makers: list[Callable[[], str]] = [
        lambda: f"errors p={random.choice((0.02, 0.2, 0.6))}",
        lambda: f"exactly count={random.randint(1, 3)} band=hard",
        lambda: f"bursts every=30ms bits={random.choice((300, 3000))}",
        lambda: f"transmitter node={node()} from=200ms until={at()}",
        lambda: f"counters nodes={node()} tec=135 at=200ms every=50ms",
        lambda: f"duplicates p={random.choice((0.01, 0.3))}",
        lambda: f"babble node={node()} priority={random.choice((0, 1, 254))} from=200ms until={at()}",
        lambda: f"step node={node()} by={random.choice((-5000, -300, -30, 30, 300, 5000, 50_000))}us at={at()}",
        lambda: f"crash node={node()} at={at()}",
        lambda: f"crash node={node()} at=100ms restart={at()}",
        lambda: f"partition nodes={node()} from=200ms until={at()}",
    ]
    return [make() for make in random.sample(makers, random.randint(2, 4))]


def check_sums(seed: int) -> None:
    """Run a random system with random faults, end it in the middle, and compare three independent counts."""
    random = Random(f"accounting {seed}")
    system = random_system(seed, load=random.uniform(0.1, 0.9))
    faults = random_faults(random, system)
    scenario = Scenario(
        prepared=PreparedSystem.of(system),
        seed=seed,
        duration=random.uniform(0.1, 0.5),
        faults=tuple(map(parse_fault, faults)),
        clocks=random.choice(("real", "perfect")),
        guards=random.random() < 0.3,
        broker=random.random() < 0.2,
    )
    with ScenarioRun(scenario) as run:
        for _ in run.advance():
            pass
        if random.random() < 0.5:
            run.outcome()  # else it ends with events that wait
        for result in run.world.channels():
            assert result.published == result.accounted, (seed, faults, result)
            assert not result.sent_expired, (seed, faults, result)
            assert result.overran <= result.unknown, (seed, faults, result)
            assert not result.duplicates, (seed, faults, result)
            station = run.world.stations[result.node]
            channels = {channel.name: channel for channel in station.node.tx.channels.values()}
            crashed = any(f"crash node={station.number} " in fault for fault in faults)
            if result.event in channels and not crashed:
                counts = channels[result.event].counts
                told = (result.published, result.sent, result.replaced, result.expired, result.not_sent, result.unknown)
                own = (counts.published, counts.sent, counts.replaced, counts.expired, counts.failed, counts.unknown)
                assert told == own, (seed, faults, result.channel)


@pytest.mark.parametrize("seed", range(3))
def test_every_event_of_a_random_system_has_one_result_under_random_faults(seed: int) -> None:
    check_sums(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(100, 400, 30))
def test_every_event_of_300_random_systems_has_one_result_under_random_faults(first: int) -> None:
    for seed in range(first, first + 30):
        check_sums(seed)


def test_hard_events_that_are_published_while_the_calendar_stands_still_are_not_sent() -> None:
    """The only node that may lead the clocks crashes, and the program goes on."""
    faults, masters = ["crash node=logger at=600ms restart=1s"], ["logger"]
    with World("still", plan=parse_system(SYSTEM), catalog=[Beat], faults=faults, masters=masters) as world:
        sensor, logger = open_bus("sim:still?name=sensor"), open_bus("sim:still?name=logger")
        troubles: list[object] = []
        logger.collection(Beat).subscribe(lambda beat: None)
        channel = sensor.channel(Beat, Hard(period="10ms", omissions=1), on_problem=troubles.append)
        channel.announce()
        assert world.run("2s", until=lambda: world.is_ready)
        for number in range(100):
            channel.publish(Beat(number=number))
            world.run("10ms")
        outcome = world.outcome()
        result = outcome.channel("Beat")
    assert any(isinstance(each, HardStopped) for each in troubles)
    assert result.not_sent > 0
    assert result.published == 100 == result.sent + result.not_sent + result.waiting
    assert outcome.broken


def test_a_hard_event_that_a_newer_one_replaces_is_counted_and_breaks_no_promise() -> None:
    with World("hasty", plan=parse_system(SYSTEM), catalog=[Beat], clocks="perfect") as world:
        with open_bus("sim:hasty?name=sensor") as sensor:
            channel = sensor.channel(Beat, Hard(period="10ms", omissions=1))
            channel.announce()
            for number in range(100):
                channel.publish(Beat(number=number))
                world.run("5ms")
        outcome = world.outcome()
        result = outcome.channel("Beat")
    assert (result.published, result.sent + result.waiting, result.replaced) == (100, 50, 50)
    assert outcome.broken == ()


def test_events_that_wait_in_a_node_that_crashes_are_abandoned() -> None:
    with World("gone", catalog=[Note], clocks="perfect", trace=False) as world:
        sensor = open_bus("sim:gone?name=sensor")
        with sensor.channel(Note, Soft(deadline="10ms")) as notes:
            world.inject("crash node=sensor at=1s")
            world.run_ns(1_000 * MS - 100_000 - world.now_ns)
            for number in range(50):
                notes.publish(Note(number=number))
            world.run("1s")
            result = world.outcome().channels[0]
    assert result.abandoned > 40
    assert result.sent + result.abandoned == 50
