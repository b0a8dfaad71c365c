"""The monitor hears everything, sends nothing, and knows what it did not hear."""

from datetime import UTC, datetime, timedelta

import pytest

from genus import Catalog, Event, Soft, UInt8
from genus.can._machine import Accept
from genus.can._monitor import ChannelStatistics, Monitor
from genus.can._node.node import Node
from genus.can._protocol.time_service import follow_up_frame, sync_frame
from genus.can._sim.bus import SimBus
from genus.can._sim.controller import Controller
from genus.can._sim.simulation import Host
from genus.can._wire.frame import Frame, Timing

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


# -- what Studio shows -------------------------------------------------------------------------------------------------


def test_the_last_frames_are_kept_with_their_names_and_lengths() -> None:
    plant = Plant()
    plant.bus.run(1_000 * MS)
    recent = list(plant.monitor.recent(900 * MS, 1_000 * MS))
    pumps = [each for each in recent if each.channel == "Pump"]
    assert len(pumps) == 2 * 10, "an event takes two frames"
    assert {each.kind for each in pumps} == {"soft"}
    assert {each.kind for each in recent if each.channel in ("CLAIM", "REPORT", "ANNOUNCE")} <= {"system"}
    assert all(each.end_ns - each.length_ns < 1_000 * MS and each.end_ns > 900 * MS for each in recent)
    assert [each.end_ns for each in recent] == sorted(each.end_ns for each in recent)
    assert sum(each.length_ns for each in plant.monitor.recent(0, 1_000 * MS)) == plant.monitor.busy_ns


def test_more_frames_than_are_kept_replace_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("genus.can._monitor.MAX_RECENT", 5)
    plant = Plant()
    plant.bus.run(1_000 * MS)
    assert len(list(plant.monitor.recent(0, 1_000 * MS))) == 5


def test_each_event_is_told_with_its_node_and_time() -> None:
    plant = Plant()
    told: list[tuple[Event, int, int]] = []
    plant.bus.run(500 * MS)
    plant.monitor.on_event = lambda *event: told.append(event)
    plant.bus.run(1_000 * MS)
    assert len(told) == 50
    assert all(isinstance(event, Pump) and node == 1 for event, node, _ in told)
    assert plant.monitor.heard == {1: told[-1][2]} or plant.monitor.heard[1] > told[-1][2]


def test_a_catalog_that_has_grown_names_channels_from_then_on() -> None:
    plant = Plant(named=False)
    plant.bus.run(100 * MS)
    plant.monitor.use(plant.catalog)
    plant.bus.run(2_000 * MS)
    names = {line.channel: line.events for line in plant.monitor.lines(plant.bus.now)}
    assert names["Pump"] > 0
    assert names[f"#{plant.catalog.etag(Pump)}"] == 2 * 10, "without a catalog, frames are counted"


def test_the_time_of_the_bus_is_known_by_its_master() -> None:
    monitor = Monitor(TIMING, None)
    assert (monitor.master, monitor.offset_ns) == (None, None)
    monitor.receive(sync_frame(3, 1, 7_000 * MS), 5_000 * MS)
    monitor.receive(follow_up_frame(3, 1, 7_000 * MS), 5_001 * MS)
    assert (monitor.master, monitor.offset_ns) == (3, 2_000 * MS)
    monitor.receive(sync_frame(3, 2, 8_000 * MS), 6_000 * MS)
    monitor.receive(follow_up_frame(3, 2, 8_001 * MS), 7_000 * MS)
    assert monitor.offset_ns == 2_000 * MS, "a FOLLOW_UP that comes late is of no use"
    monitor.receive(Frame(follow_up_frame(3, 3, 0).id, b"short"), 7_001 * MS)
    assert monitor.dropped == {"not a SYNC or FOLLOW_UP": 1}
