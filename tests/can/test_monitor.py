"""The monitor hears everything, sends nothing, and knows what it did not hear."""

from datetime import UTC, datetime, timedelta

import pytest

from genus import Catalog, Event, Soft, UInt8
from genus.can._machine import Accept
from genus.can._monitor import ChannelStatistics, Monitor
from genus.can._node.node import Node
from genus.can._sim.bus import SimBus
from genus.can._sim.controller import Controller
from genus.can._sim.simulation import Host
from genus.can._wire.frame import Frame
from genus.can._wire.length import Timing

TIMING = Timing(1_000_000)
MS = 1_000_000


class Pump(Event):
    step: UInt8


class Plant:
    """A pump that steps every 10 ms, and somebody who watches."""

    def __init__(self, *, named: bool = True) -> None:
        self.catalog = Catalog()
        self.catalog.register(Pump)
        self.bus = SimBus(TIMING)
        self.node = Node(1, timing=TIMING, catalog=self.catalog, number=1, synchronised=False)
        self.host = Host(self.node, self.bus.attach(Controller(1)), self.bus)
        self.host.call(self.node.start)
        self.monitor = Monitor(TIMING, self.catalog if named else None)
        self.watcher = Host(self.monitor, self.bus.attach(Controller(2)), self.bus)
        self.host.call(lambda now: self.node.announce(Pump, Soft(deadline="5ms"), now, carries=("time",)))
        self.steps = 0
        self.bus.at(MS, self.step)

    def step(self) -> None:
        time = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=self.bus.now // 1000)
        self.host.call(lambda now: self.node.publish(Pump(step=self.steps & 0xFF, time=time), now))
        self.steps += 1
        self.bus.at(self.bus.now + 10 * MS, self.step)

    def line(self) -> ChannelStatistics:
        (line,) = self.monitor.lines(self.bus.now)
        return line


def test_rate_jitter_and_latency_are_those_of_the_bus() -> None:
    plant = Plant()
    plant.bus.run(3_000 * MS)
    line = plant.line()
    assert (line.channel, line.node, line.qos, line.events) == ("Pump", 1, "SOFT", plant.steps)
    assert line.rate == pytest.approx(100, rel=0.02)
    assert line.jitter_ms < 0.2
    assert line.latency_ms == pytest.approx(0.25, abs=0.1)
    assert (line.missed, line.expired, line.lost) == (0, 0, 0)
    assert 0.02 < plant.monitor.load() < 0.04


def test_what_was_not_heard_is_counted_as_lost() -> None:
    plant = Plant()
    plant.bus.run(500 * MS)
    plant.bus.detach(plant.watcher.controller)
    plant.bus.run(1_000 * MS)
    plant.bus.attach(plant.watcher.controller)
    plant.bus.run(2_500 * MS)
    line = plant.line()
    assert line.lost == 50
    assert line.events + line.lost == plant.steps


def test_without_a_catalog_channels_are_named_by_their_tags() -> None:
    plant = Plant(named=False)
    plant.bus.run(100 * MS)
    assert {line.channel for line in plant.monitor.lines(plant.bus.now)} == {f"#{plant.catalog.etag(Pump)}"}


def test_a_monitor_only_opens_its_filters() -> None:
    monitor = Monitor(TIMING)
    assert monitor.take() == [Accept(((0, 0),), ((0, 0),))]
    monitor.receive(Frame(0x1F_0040_07, b"short"), 0)
    assert monitor.take() == []
    assert monitor.problems() == {"not a report": 1}
