"""What a gateway cannot send is told to both ends."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from genus import Event
from genus.bus import Bus
from genus.net import Gateway, GatewaySide, NetLink
from tests.net.fault_counts import Counts
from tests.net.memory_network import MemoryNetwork
from tests.net.test_gateway_spool import FaultyDisk


class LostParcel(Event):
    text: str


def bus_on(network: MemoryNetwork, realm: str) -> Bus:
    return Bus(NetLink(network.transport(), realm, medium="memory", runs=False))


def link_of(bus: Bus) -> NetLink:
    assert isinstance(bus.link, NetLink)
    return bus.link


class Line:
    """State: a publisher, a gateway with a spool, and a receiver; time and packets move by `run`."""

    def __init__(self, folder: Path, spool_size: int) -> None:
        self.road, self.city = MemoryNetwork(), MemoryNetwork()
        self.time = 100.0
        self.got: list[Any] = []
        self.told: dict[str, list[Any]] = {"publisher": [], "receiver": []}
        self.publisher, near = bus_on(self.road, "r"), bus_on(self.road, "r")
        self.receiver, self.far = bus_on(self.city, "c"), bus_on(self.city, "c")
        self.buses = (self.publisher, self.receiver, near, self.far)
        for bus in self.buses:
            link_of(bus).now = lambda: self.time
        self.receiver.collection(LostParcel).subscribe(self.got.append, on_problem=self.told["receiver"].append)
        self.gateway = Gateway(near, GatewaySide(bus=self.far, spool=folder, spool_size=spool_size))
        self.run(1)
        self.channel = self.publisher.channel(LostParcel, on_problem=self.told["publisher"].append)
        self.channel.announce()
        self.publish("first")
        self.run(1)
        assert len(self.got) == 1

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds * 10)):
            self.time += 0.1
            for bus in self.buses:
                link_of(bus).tick()
            self.gateway.settle()  # `step` does nothing while the thread of the gateway is at it
            self.road.deliver()
            self.city.deliver()

    def publish(self, text: str) -> None:
        self.channel.publish(LostParcel(text=text))
        self.road.deliver()

    def connect(self, is_connected: bool) -> None:
        link_of(self.far).connected(is_connected)

    def check(self, sent: int) -> Counts:
        """Each event was delivered, once and in order, or told as lost to both ends."""
        self.connect(True)
        self.run(5)
        lost = sent - len(self.got)
        texts = [event.text for event in self.got[1:]]
        assert texts == sorted(set(texts))
        assert sum(problem.count for problem in self.told["receiver"]) == lost
        assert sum(problem.count for problem in self.told["publisher"]) >= lost
        assert self.publisher.traffic().link.get("lost by receivers", 0) == lost
        side = self.gateway.status().sides[1]
        assert (side.wanted, side.crossed, side.lost, side.waiting) == (sent, sent - lost, lost, 0)
        return Counts(sent, len(self.got), 0, lost, self.publisher.traffic().link.get("lost by receivers", 0))


@contextmanager
def line(folder: Path, spool_size: int) -> Iterator[Line]:
    made = Line(folder, spool_size)
    yield made
    made.gateway.close()
    for bus in made.buses:
        bus.close()


def run_with_full_spool(folder: Path) -> Counts:
    """A side that is gone for longer than its spool lasts."""
    with line(folder, 20_000) as made:
        made.connect(False)
        for number in range(400):
            made.publish(f"{number:03d}" + "x" * 100)
        return made.check(401)


def test_what_a_full_spool_drops_is_told_to_publisher_and_receiver(tmp_path: Path) -> None:
    assert 0 < run_with_full_spool(tmp_path).told_receiver < 400


def run_with_full_disk(folder: Path, seed: int) -> Counts:
    """A side that comes and goes, and a disk that is full at times, and at last is not."""
    choice, disk, sent = random.Random(seed), FaultyDisk(seed), 1
    with disk.used(), line(folder, choice.choice([20_000, 1 << 20])) as made:
        for number in range(500):
            if number % 20 == 0:
                disk.rate = choice.choice([0.0, 0.3, 1.0])
                made.connect(choice.random() < 0.3)
            made.publish(f"{number:04d}" + "x" * choice.randrange(200))
            sent += 1
            if number % 7 == 0:
                made.run(0.1)
        disk.rate = 0.0
        lost = made.check(sent).told_receiver
        made.connect(False)
        for number in range(500, 550):  # there is space again: all of these are spooled
            made.publish(f"{number:04d}")
        counts = made.check(sent + 50)
        assert counts.told_receiver == lost
    assert disk.failures > 0
    return counts


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, pytest.param(range(3, 60), marks=pytest.mark.slow)])
def test_with_a_full_disk_a_gateway_goes_on_and_tells_what_it_cannot_keep(tmp_path: Path, seed: int | range) -> None:
    for each in [seed] if isinstance(seed, int) else seed:
        assert run_with_full_disk(tmp_path / str(each), each).told_receiver > 0
