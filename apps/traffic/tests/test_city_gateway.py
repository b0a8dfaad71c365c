"""The sites of a city, each a simulated CAN bus in a process of its own, reach the centre through gateways on zenoh."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from genus import Subscription, open_bus
from genus_traffic.subscribers import STATISTICS, VELOCITY
from genus_traffic.types import ConfidentLoop, Edge, Loop

SITE = """
import json, sys, time
from genus import open_bus
from genus.net import Gateway, GatewaySide
from genus_traffic.road.city import default_city
from genus_traffic.road.generator import generate
from genus_traffic.segment.segment import Segment, SegmentRun

number, address = int(sys.argv[1]), sys.argv[2]
scene = default_city(2, "15s")
site = scene.sites[number]
segment = Segment(
    site=site.name, place=site.place, lanes=site.lanes, detections=generate(site, scene).detections,
    start_us=scene.start_us, end_us=scene.end_us, refit_us=scene.start_us + 6_000_000, seed=scene.seed,
)
with SegmentRun(segment) as run, open_bus(address) as city:
    road = open_bus(f"sim:{run.world.name}?name=uplink")
    with Gateway(GatewaySide(bus=road, name="road"), GatewaySide(bus=city, name="city")) as gateway:
        print("ready", flush=True)
        while gateway.status().sides[1].asked < int(sys.argv[3]):
            time.sleep(0.01)
            gateway.settle()
        for _ in run.advance():
            pass
        outcome, status = run.outcome(), gateway.status()
        print(json.dumps({
            "edges": sum(type(each.event).__name__ in ("Loop", "ConfidentLoop", "Cleared") for each in outcome.events),
            "published": outcome.published,
            "refitted": outcome.refitted_us is not None,
            "filters": len(outcome.filters["uplink"]),
            "crossed": status.sides[1].crossed,
            "unwanted": status.sides[0].unwanted,
            "lost": status.sides[1].lost,
        }), flush=True)
        sys.stdin.readline()
"""


def eventually(condition: Callable[[], object], seconds: float = 60) -> None:
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, "it took too long"
        time.sleep(0.01)


@pytest.fixture
def address() -> str:
    pytest.importorskip("zenoh")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"zenoh:city?port={probe.getsockname()[1]}"


@pytest.fixture
def sites(address: str, request: pytest.FixtureRequest) -> Iterator[list["subprocess.Popen[str]"]]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", SITE, str(number), address, str(request.param)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for number in range(2)
    ]
    yield started
    for process in started:
        process.communicate("\n", timeout=60)


def line_of(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline()


@pytest.mark.slow
@pytest.mark.parametrize("sites", [2], indirect=True)
def test_the_sites_of_a_city_reach_its_centre_over_zenoh(address: str, sites: list["subprocess.Popen[str]"]) -> None:
    """The monitor gets both loops of every pair, the collector the upper ones, and the refit leaves no gap."""
    with open_bus(address) as centre:
        monitor: list[Edge] = []
        collector: list[Loop] = []
        centre.subscribe(VELOCITY, monitor.append)
        centre.subscribe(STATISTICS, collector.append)
        assert [line_of(process) for process in sites] == ["ready\n"] * 2
        outcomes = [json.loads(line_of(process)) for process in sites]
        edges, published = (sum(each[name] for each in outcomes) for name in ("edges", "published"))
        eventually(lambda: len(monitor) >= edges and len(collector) >= published)
        time.sleep(0.2)
        assert [len(monitor), len(collector)] == [edges, published]
        assert published > 5
        assert all(each["refitted"] for each in outcomes)
        assert {type(event) for event in collector} == {Loop, ConfidentLoop}
        assert all(event.place is not None and event.category is not None for event in collector)
        assert [(each["unwanted"], each["lost"]) for each in outcomes] == [(0, 0)] * 2
        assert sum(each["crossed"] for each in outcomes) == edges


@pytest.mark.slow
@pytest.mark.parametrize("sites", [0], indirect=True)
def test_if_the_centre_wants_nothing_nothing_passes_the_filters(
    address: str, sites: list["subprocess.Popen[str]"]
) -> None:
    with open_bus(address) as centre:
        centre.inbox(Subscription(Edge)).cancel()
        assert [line_of(process) for process in sites] == ["ready\n"] * 2
        outcomes = [json.loads(line_of(process)) for process in sites]
        assert [(each["crossed"], each["unwanted"]) for each in outcomes] == [(0, 0), (0, 0)]
