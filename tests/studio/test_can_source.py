"""A live CAN bus as a source: everything is received, and nothing is sent by looking at it."""

import socket
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import can
from genus import BestEffort, Catalog, Event, Hard, Maybe, Soft, UInt8, UInt32, open_bus
from genus.can import open_broker
from genus.errors import BusError, CatalogUnavailable
from genus.model import name_of
from genus.studio._can_source import CanSource
from genus.studio._source import EventSource, TimelineSource
from genus.studio.types import ChannelRow, NodeRow, SourceRow
from tests.can.test_foreign import CAR
from tests.waiting import wait_for

TYPES = """
from genus import Event, UInt32

class Beam(Event):
    number: UInt32
"""


class Buoy(Event):
    number: UInt32
    lamp: Maybe[UInt8] = None


class Horn(Event):
    volume: UInt8


class Beam(Event):
    number: UInt32


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    path = tmp_path / "sea.json"
    Catalog.update(path, Buoy, Horn, Beam)
    return path


@pytest.fixture
def virtual(catalog: Path, request: pytest.FixtureRequest) -> Callable[..., str]:
    def address(**options: object) -> str:
        given = {"channel": request.node.name, "catalog": catalog, "synchronised": "no", **options}
        return "can:virtual?" + "&".join(f"{key}={value}" for key, value in given.items() if value is not None)

    return address


@pytest.fixture
def listener(request: pytest.FixtureRequest) -> Iterator[can.BusABC]:
    """A plain listener on the same virtual bus, which hears what is sent."""
    with can.Bus(interface="virtual", channel=request.node.name) as bus:
        yield bus


class Seen:
    """A source, its rows, and its events."""

    def __init__(self, source: CanSource) -> None:
        self.source = source
        self.events: list[tuple[int, Event, str | None]] = []
        self.end = source.tap(lambda *event: self.events.append(event))

    def __enter__(self) -> "Seen":
        return self

    def __exit__(self, *_: object) -> None:
        self.source.close()

    def row(self) -> SourceRow:
        found = self.source.rows(("sources",))["sources"][self.source.name]
        assert isinstance(found, SourceRow)
        return found

    def channels(self) -> dict[str, ChannelRow]:
        found = self.source.rows(("channels",))["channels"]
        return {key: row for key, row in found.items() if isinstance(row, ChannelRow)}

    def nodes(self) -> dict[str, NodeRow]:
        found = self.source.rows(("nodes",))["nodes"]
        return {key: row for key, row in found.items() if isinstance(row, NodeRow)}


def test_channels_nodes_and_events_of_a_bus(virtual: Callable[..., str], catalog: Path) -> None:
    with Seen(CanSource(virtual(), catalog, name="c")) as seen, open_bus(virtual(number=5)) as station:
        assert isinstance(seen.source, EventSource)
        assert isinstance(seen.source, TimelineSource)
        buoys = station.channel(Buoy, Soft(deadline="1s"))
        buoys.announce()
        for number in range(50):
            buoys.publish(Buoy(number=number))
        wait_for(lambda: len(seen.events) == 50)
        wait_for(lambda: seen.channels().get("c|Buoy|5") is not None and seen.row().events == 50)
        channel = seen.channels()["c|Buoy|5"]
        assert (channel.type, channel.publisher, channel.qos, channel.events) == ("Buoy", "node 5", "soft", 50)
        assert (channel.missed, channel.expired, channel.lost) == (0, 0, 0)
        assert channel.jitter_ms is not None
        at_ns, event, publisher = seen.events[-1]
        assert (event, publisher) == (Buoy(number=49), "node 5")
        assert abs(at_ns / 1e9 - time.time()) < 60
        wait_for(lambda: seen.nodes()["c|5"].uid != "")
        node = seen.nodes()["c|5"]
        assert (node.number, node.state, node.is_well) == (5, "up", True)
        assert node.heard_ms is not None
        row = seen.row()
        assert (row.kind, row.state, row.lost, row.nodes, row.has_timeline) == ("can", "live", 0, 1, True)
        assert seen.source.counts() == {"Buoy": 50}
        wait_for(lambda: bool(seen.channels()["c|Buoy|5"].rates))
        seen.end()
        buoys.publish(Buoy(number=50))
        wait_for(lambda: seen.row().events == 51)
        assert len(seen.events) == 50


def test_nothing_is_sent_by_looking(virtual: Callable[..., str], listener: can.BusABC) -> None:
    with Seen(CanSource(virtual(), name="c")) as seen:
        listener.send(can.Message(arbitration_id=0x123, data=b"x", is_extended_id=False))
        wait_for(lambda: "c|0x123|0" in seen.channels())
        seen.source.timeline(None, 20_000)
        assert listener.recv(0) is None
    assert listener.recv(0) is None


def test_the_timeline_has_the_last_frames(virtual: Callable[..., str]) -> None:
    with Seen(CanSource(virtual(bitrate="500k"), name="c")) as seen, open_bus(virtual(number=7)) as station:
        channel = station.channel(Horn, BestEffort())
        channel.announce()
        for volume in range(10):
            channel.publish(Horn(volume=volume))
        wait_for(lambda: len(seen.events) == 10)
        found = seen.source.timeline(None, 10_000_000)
        horns = [frame for frame in found.frames if frame.channel == "Horn"]
        assert len(horns) == 10
        assert {(frame.node, frame.kind, frame.ok, frame.priority) for frame in horns} == {
            ("node 7", "none", True, 254)
        }
        assert all(100 < frame.end_us - frame.start_us < 300 for frame in horns), "8 bytes at 500 kbit/s"
        assert {frame.kind for frame in found.frames if frame.channel == "CLAIM"} == {"system"}
        assert 0 < found.load < 0.1
        assert found.end_us - found.start_us == pytest.approx(10_000_000)
        before = seen.source.timeline(found.start_us - 1_000_000, 1000)
        assert (before.start_us, before.frames, before.load) == (found.start_us - 1_000_000, [], 0.0)
    assert seen.source.timeline(None, 20_000).frames == []
    assert seen.row().state == "ended"


def test_the_plan_of_the_address_gives_slots_names_and_bounds(virtual: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "beams.py").write_text(TYPES)
    system = tmp_path / "system.toml"
    system.write_text(
        textwrap.dedent("""
        [bus]
        bitrate = 20_000
        gap = "10ms"
        types = "beams.py"
        [[channel]]
        event = "Beam"
        node = "tower"
        class = "hard"
        period = "100ms"
        omissions = 1
        """)
    )
    options = {"plan": system, "bitrate": 20_000}
    with (
        Seen(CanSource(virtual(**options), name="c")) as seen,
        open_bus(virtual(number=1, name="tower", **options)) as tower,
    ):
        beams = tower.channel(Beam, Hard(period="100ms", omissions=1))
        beams.announce()

        def is_seen_after_another() -> bool:
            beams.publish(Beam(number=1))
            return len(seen.events) >= 2

        wait_for(is_seen_after_another)
        found = seen.source.timeline(None, 1_000_000)
        assert 9 <= len(found.slots) <= 11
        assert {slot.channel for slot in found.slots} == {"Beam"}
        assert all(later.start_us - slot.start_us == 100_000 for slot, later in zip(found.slots, found.slots[1:]))  # noqa: B905
        hard = [frame for frame in found.frames if frame.kind == "hard"]
        assert hard
        assert {frame.node for frame in hard} == {"tower"}
        ends = {slot.end_us for slot in seen.source.timeline(found.start_us - 200_000, 1_500_000).slots}
        assert {frame.deadline_us for frame in hard} <= ends
        bound = seen.channels()["c|Beam|1"].bound_ms
        assert bound == pytest.approx((found.slots[0].end_us - found.slots[0].start_us) / 1000)


def test_frames_of_other_makers_are_channels_and_events(
    virtual: Callable[..., str], listener: can.BusABC, tmp_path: Path
) -> None:
    (tmp_path / "Car.dbc").write_text(CAR)
    with Seen(CanSource(virtual(database=tmp_path / "Car.dbc", catalog=None), name="c")) as seen:
        listener.send(can.Message(arbitration_id=256, data=bytes([44, 1, 0, 0]), is_extended_id=False))
        listener.send(can.Message(arbitration_id=256, data=b"", is_extended_id=False))
        wait_for(lambda: seen.row().lost == 1 and len(seen.events) == 1)
        _, event, publisher = seen.events[0]
        assert (event.speed, publisher) == (3.0, None)  # type: ignore[attr-defined]
        assert event.time is not None
        assert abs(event.time.timestamp() - time.time()) < 60
        channel = seen.channels()["c|Drive|0"]
        assert (channel.qos, channel.events, channel.publisher, channel.lost) == ("foreign", 1, "", None)
        assert seen.row().note == "Drive: too short: 0 of 4 bytes: 1"
        assert "Drive" in {name_of(cls) for cls in seen.source.types()}
        (first, *_) = seen.source.timeline(None, 5_000_000).frames
        assert (first.channel, first.kind, first.node, first.identifier) == ("Drive", "foreign", "others", 256)
        assert seen.nodes() == {}


def test_without_a_catalog_channels_have_numbers(virtual: Callable[..., str]) -> None:
    with Seen(CanSource(virtual(catalog=None), name="c")) as seen, open_bus(virtual(number=5)) as station:
        horn = station.channel(Horn, BestEffort())
        horn.announce()
        horn.publish(Horn(volume=1))
        wait_for(lambda: any(row.type.startswith("#") for row in seen.channels().values()))
        assert seen.row().note == "events are not decoded without a catalog"
        assert seen.events == []


def test_a_catalog_that_grows_is_read_again(virtual: Callable[..., str], tmp_path: Path) -> None:
    growing = tmp_path / "growing.json"
    Catalog.update(growing, Buoy)
    with Seen(CanSource(virtual(), growing, name="c")) as seen:
        assert {name_of(cls) for cls in seen.source.types()} >= {"Buoy"}
        assert "Horn" not in {name_of(cls) for cls in seen.source.types()}
        Catalog.update(growing, Horn)

        def knows_horn() -> bool:
            seen.row()
            return "Horn" in {name_of(cls) for cls in seen.source.types()}

        wait_for(knows_horn)
        growing.write_text("damaged")
        wait_for(lambda: "cannot be read again" in seen.row().note)


def test_a_node_that_is_silent_is_down(virtual: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("genus.studio._can_source.SILENT_NS", 300_000_000)
    with Seen(CanSource(virtual(), name="c")) as seen:
        with open_bus(virtual(number=5)):
            wait_for(lambda: "c|5" in seen.nodes())
        wait_for(lambda: seen.nodes()["c|5"].state == "down")
        assert not seen.nodes()["c|5"].is_well
        assert seen.row().nodes == 0


def test_the_broker_is_a_node(virtual: Callable[..., str], catalog: Path, tmp_path: Path) -> None:
    with (
        Seen(CanSource(virtual(), name="c")) as seen,
        open_broker(virtual(catalog=None, synchronised=None), catalog, tmp_path / "tables.json"),
    ):
        wait_for(lambda: "c|127" in seen.nodes())
        assert (seen.nodes()["c|127"].name, seen.nodes()["c|127"].role) == ("broker", "broker")


def test_between_processes_interfaces_work_too(catalog: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("", 0))
        port = probe.getsockname()[1]
    address = f"can:udp_multicast?channel=239.74.163.13&port={port}&hop_limit=0&catalog={catalog}&synchronised=no"
    with Seen(CanSource(address, name="c")) as seen, open_bus(f"{address}&number=3") as station:
        buoys = station.channel(Buoy, Soft(deadline="1s"))
        buoys.announce()
        buoys.publish(Buoy(number=1))
        wait_for(lambda: [event for _, event, _ in seen.events] == [Buoy(number=1)])


def test_what_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BusError, match="did you mean"):
        CanSource("can:soketcan?channel=can0", name="c")
    with pytest.raises(BusError, match="is no CAN bus"):
        CanSource("ipc:city", name="c")
    with pytest.raises(CatalogUnavailable, match="no such file"):
        CanSource("can:virtual?channel=none", tmp_path / "none.json", name="c")
