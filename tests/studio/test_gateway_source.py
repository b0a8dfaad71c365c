"""A gateway as a source: its sides with their counters, and the rate at which events cross."""

import json
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from genus import Event, Subscription, UInt8, open_bus
from genus.errors import BusError
from genus.net import Gateway, GatewaySide
from genus.studio import open_studio
from genus.studio._gateway_source import GatewaySource, open_gateway_source
from genus.studio._source import Source
from genus.studio.types import GatewayRow, SourceRow

FILE = """
name = "pair"
types = ["studio_gate_types.py"]

[[side]]
name = "road"
address = "local:"

[[side]]
name = "city"
address = "local:"
interest = ["StudioGateLoop where lane > 1"]
"""
TYPES = """
from genus import Event, UInt8

class StudioGateLoop(Event):
    lane: UInt8
"""


class Crossing(Event):
    lane: UInt8


class Hands:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def read_json(url: str) -> Any:
    with urlopen(url) as answer:
        return json.load(answer)


def source_row(source: Source) -> SourceRow:
    found = source.rows(("sources",))["sources"][source.name]
    assert isinstance(found, SourceRow)
    return found


def side_row(source: Source, side: str) -> GatewayRow:
    found = source.rows(("gateways",))["gateways"][f"{source.name}|{side}"]
    assert isinstance(found, GatewayRow)
    return found


def test_sides_have_their_counters_and_the_rate_that_crosses_to_them() -> None:
    clock = Hands()
    with open_bus() as road, open_bus() as city, Gateway(GatewaySide(bus=road, name="road"), city) as gateway:
        source: Source = GatewaySource(gateway, name="g", addresses={"road": "can:socketcan"}, clock=clock)
        inbox = city.inbox(Subscription(Crossing))
        gateway.settle()
        source_row(source)
        for lane in range(20):
            road.publish(Crossing(lane=lane))
        assert inbox.get(10).lane == 0
        clock.now += 2.0
        source_row(source)
        assert (side_row(source, "road").heard, side_row(source, "road").crossed) == (20, 0)
        assert side_row(source, "road").address == "can:socketcan"
        there = side_row(source, "side 2")
        assert (there.wanted, there.crossed, there.asked, there.lost, there.rate) == (20, 20, 1, 0, 10.0)
        row = source_row(source)
        assert (row.kind, row.state, row.events, row.rate, row.has_events) == ("gateway", "live", 20, 10.0, False)
        source.close()
        assert not gateway.is_closed, "a gateway of the user's stays open"
    assert (source_row(source).state, source_row(source).note) == ("ended", "closed")
    assert not side_row(source, "road").is_active


def test_the_buses_and_types_of_the_sides_are_known() -> None:
    with open_bus() as road, open_bus() as city:
        exporting = GatewaySide(bus=road, name="road", export=[Crossing])
        with Gateway(exporting, city) as gateway:
            source = GatewaySource(gateway, name="g")
            assert source.buses == [("road", road), ("side 2", city)]
            assert source.types() == (Crossing,)
            assert source.counts() == {}


@pytest.mark.slow
def test_an_event_that_crosses_to_several_sides_counts_once() -> None:
    clock = Hands()
    with open_bus() as road, open_bus() as city, open_bus() as land, Gateway(road, city, land) as gateway:
        source = GatewaySource(gateway, name="g", clock=clock)
        inboxes = [bus.inbox(Subscription(Crossing)) for bus in (city, land)]
        gateway.settle()
        source_row(source)
        for lane in range(10):
            road.publish(Crossing(lane=lane))
        city.publish(Crossing(lane=99))
        assert [[inbox.get(10).lane for _ in range(11)].count(99) for inbox in inboxes] == [1, 1]
        clock.now += 1.0
        row = source_row(source)
        assert (row.events, row.rate, source.counts()) == (11, 11.0, {"Crossing": 11})
        assert sum(side_row(source, f"side {number}").crossed for number in (1, 2, 3)) == 21
        with open_studio(gateway, road, city) as studio:
            sources = read_json(studio.url + "api/sources")
            assert [row["part_of"] for row in sources.values()] == ["", "gateway", "gateway"]
            types = read_json(studio.url + "api/types")
            assert types["Crossing"]["events"] == 11


def test_a_gateway_file_is_run_until_the_source_is_closed(tmp_path: Path) -> None:
    (tmp_path / "studio_gate_types.py").write_text(TYPES)
    (tmp_path / "city.toml").write_text(FILE)
    source, buses = open_gateway_source(tmp_path / "city.toml")
    names = {cls.__name__: cls for cls in source.types()}
    loop = names["StudioGateLoop"]
    assert source.name == "pair"
    (_, road), (_, city) = buses
    assert [name for name, _ in buses] == ["road", "city"]
    inbox = city.inbox(Subscription(loop))
    for lane in (1, 2):
        road.publish(loop(lane=lane))
    assert inbox.get(10).lane == 2
    assert side_row(source, "city").address == "local:"
    source.close()
    source.close()
    assert source_row(source).state == "ended"
    with pytest.raises(BusError):
        road.publish(loop(lane=3))


def test_a_file_that_is_wrong_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BusError, match="cannot read"):
        open_gateway_source(tmp_path / "none.toml")
    (tmp_path / "one.toml").write_text('[[side]]\naddress = "local:"\n')
    with pytest.raises(BusError, match="two tables"):
        open_gateway_source(tmp_path / "one.toml")
