"""What `genus c generate --node` writes, on a simulated bus beside Python nodes and a broker."""

import ctypes
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from genus import BestEffort, Event, Hard, Maybe, Soft, UInt8
from genus.can import load_system, parse_system, plan
from genus.can._node.node import Node
from genus.can._protocol.broker import Broker
from genus.can._protocol.broker_tables import MemoryStore
from genus.can._sim.simulation import Simulation
from genus.can._wire.frame import BROKER_NODE, Timing
from genus.can.types import Plan
from genus.catalog import Catalog
from genus.devices import DeviceChannel, Firmware, generate
from genus.errors import DeviceError
from genus.filters import Subscription
from genus.testing import run_command
from tests.programs import needs

from . import road
from .firmware_machine import FirmwareMachine

MS = 1_000_000
META: Any = type(Event)
TYPES = [road.Roadside, road.Loop, road.ConfidentLoop, road.Lamp]
PUBLISH = """
int publish_lamp(int on, int64_t now);
int publish_lamp(int on, int64_t now) {
    road_lamp lamp = {.type = ROAD_TYPE_LAMP, .on = on != 0};
    return (int)road_publish_lamp(&node, &lamp, NULL, now);
}
"""


def road_catalog() -> Catalog:
    catalog = Catalog()
    catalog.register(*TYPES)
    return catalog


def road_firmware(catalog: Catalog, late_buffer: int | None = None) -> Firmware:
    asked = {
        "trucks": Subscription(road.Loop, where="category == 'truck' and speed > 30"),
        "near": Subscription(road.Roadside, where="place startswith 'A8'"),
    }
    made = generate(catalog, asked, name="road", publish=[road.Lamp], late_buffer=late_buffer)
    return made.with_node([DeviceChannel(road.Lamp, "soft:20ms")])


class Bus:
    """A broker, a Python node and a firmware on one simulated bus."""

    def __init__(self, firmware: Firmware, catalog: Catalog, definitions: str = PUBLISH) -> None:
        self.simulation = Simulation(Timing(500_000), seed=5)
        self.simulation.add_host(BROKER_NODE, lambda: Broker(7, catalog, MemoryStore(), seed=1))
        self.events: list[Event] = []
        self.python = Node(0x99, timing=self.simulation.timing, catalog=catalog, seed=1, on_event=self.events.append)
        self.device = FirmwareMachine(firmware, 0x11, definitions)
        self.hosts = [
            self.simulation.add_host(1, lambda: self.python),
            self.simulation.add_host(2, lambda: self.device),
        ]
        self.hosts[0].call(self.python.start)
        self.hosts[1].call(self.device.start)
        self.run(2000)

    def run(self, milliseconds: int) -> None:
        self.simulation.run(self.simulation.now + milliseconds * MS)


@pytest.mark.slow
@needs("gcc")
@pytest.mark.parametrize(("late_buffer", "first"), [(None, 0), (64, 1)])
def test_a_firmware_receives_publishes_and_learns_a_new_type(late_buffer: int | None, first: int) -> None:
    """The refit of a road: a class that was registered after the firmware was made reaches its handlers.

    Its first event has more bytes than a frame, which is what the buffer has if nothing is said.
    """
    catalog = road_catalog()
    firmware = road_firmware(catalog, late_buffer)

    class RefitLoop(road.Loop):
        axles: UInt8
        weight: Maybe[float] = None

    catalog.register(RefitLoop)
    bus = Bus(firmware, catalog)
    bus.hosts[0].call(lambda now: bus.python.announce(road.Loop, BestEffort(), now, carries=("place",)))
    bus.hosts[0].call(lambda now: bus.python.announce(RefitLoop, BestEffort(), now, carries=("place",)))
    bus.hosts[0].call(lambda now: bus.python.subscribe(Subscription(road.Lamp), now))
    bus.run(1000)
    bus.hosts[0].call(
        lambda now: bus.python.publish(
            road.Loop(lane=1, place="A8/km31", category=road.Category.TRUCK, speed=31.0), now
        )
    )
    bus.run(50)
    assert (bus.device.hits(0), bus.device.hits(1)) == (1, 1)

    bus.hosts[1].call(lambda now: bus.device.library.publish_lamp(1, ctypes.c_int64(now)))
    bus.run(50)
    assert bus.events == [road.Lamp(on=True)]

    truck = RefitLoop(lane=2, category=road.Category.TRUCK, speed=40.0, axles=5, weight=7.5)
    bus.hosts[0].call(lambda now: bus.python.publish(truck, now))
    bus.run(1000)
    assert bus.device.hits(0) == 1 + first, "asked of the broker and learnt at the first, which waits if it fits"
    bus.hosts[0].call(lambda now: bus.python.publish(truck, now))
    bus.run(50)
    assert bus.device.hits(0) == 2 + first


@pytest.mark.parametrize(
    ("late", "late_buffer", "codec", "message"),
    [
        (4, 5000, "table", "late_buffer is 5000; an event has 1 to 4096 bytes, and 0 keeps none"),
        (0, 8, "table", "the device learns no types: late is 0"),
        (4, 8, "straight", "the device learns no types: straight code knows no types but its own; use tables"),
    ],
)
def test_a_buffer_that_is_not_used_is_refused(late: int, late_buffer: int, codec: Any, message: str) -> None:
    asked = {"lit": Subscription(road.Lamp)}
    with pytest.raises(DeviceError, match=message):
        generate(road_catalog(), asked, name="road", late=late, late_buffer=late_buffer, codec=codec)


def test_features_that_are_needed_cannot_be_left_out(tmp_path: Path) -> None:
    (tmp_path / "bus.toml").write_text(SYSTEM)
    planned = plan(load_system(tmp_path / "bus.toml"))
    catalog = road_catalog()
    lit = {"lit": Subscription(road.Lamp)}
    sends = generate(catalog, {}, name="road", publish=[road.ConfidentLoop, road.Loop])
    receives = generate(catalog, lit, name="road")
    with pytest.raises(
        DeviceError, match="ConfidentLoop is sent in a slot, so the node cannot do without the calendar"
    ):
        sends.with_node(plan=planned, station="gate", without=["calendar"])
    with pytest.raises(DeviceError, match="Lamp is received in a slot"):
        receives.with_node([], plan=planned, station="gate", without=["calendar"])
    with pytest.raises(DeviceError, match="ConfidentLoop has events of up to 9 bytes, and a frame has 8, so the node"):
        sends.with_node(plan=planned, station="gate", without=["segmentation"])
    with pytest.raises(
        DeviceError, match=r"Loop has events of up to \d+ bytes, and a frame has 8, so the node cannot do"
    ):
        generate(catalog, {"all": Subscription(road.Loop)}, name="road").with_node(without=["segmentation"])
    both = generate(catalog, lit, name="road", publish=[road.Lamp])  # it sends longer events than it receives
    with pytest.raises(DeviceError, match="Lamp has events of any length, and a frame has 8, so the node cannot do"):
        both.with_node([DeviceChannel(road.Lamp, "none", ("place",))], without=["segmentation"])
    both.with_node([DeviceChannel(road.Lamp, "none")], without=["segmentation"])
    with pytest.raises(
        DeviceError, match="a node cannot do without 'late'; it can without segmentation, calendar and, by"
    ):
        receives.with_node(without=["late"])  # type: ignore[list-item]
    receives.with_node([], plan=planned, station="gate", without=["segmentation"])
    fd = plan(parse_system(SYSTEM.replace("[bus]", '[bus]\ndata_bitrate = "4M"')))
    sends.with_node(plan=fd, station="gate", without=["segmentation"])


@pytest.mark.slow
@needs("gcc")
def test_a_firmware_without_features_receives_and_publishes_and_counts_what_it_cannot_take() -> None:
    catalog = road_catalog()
    made = generate(catalog, {"lit": Subscription(road.Lamp)}, name="road", publish=[road.Lamp], late=0)
    bus = Bus(made.with_node([DeviceChannel(road.Lamp, "soft:20ms")], without=["calendar", "segmentation"]), catalog)
    bus.hosts[0].call(lambda now: bus.python.announce(road.Lamp, Soft("20ms"), now))
    bus.hosts[0].call(lambda now: bus.python.subscribe(Subscription(road.Lamp), now))
    bus.run(1000)
    bus.hosts[0].call(lambda now: bus.python.publish(road.Lamp(on=False), now))
    bus.hosts[1].call(lambda now: bus.device.library.publish_lamp(1, ctypes.c_int64(now)))
    bus.run(50)
    assert road.Lamp(on=True) in bus.events
    assert (bus.device.hits(0), bus.device.library.machine_segmented()) == (1, 0)

    reader = generate(catalog, {"lit": Subscription(road.Lamp)}, name="road", late=0)
    long = Bus(reader.with_node(without=["calendar", "segmentation"]), catalog, definitions="")
    long.hosts[0].call(lambda now: long.python.announce(road.Lamp, Soft("20ms"), now, carries=("place",)))
    long.run(1000)
    for number in range(5):
        lamp = road.Lamp(on=True, place=f"A8/{number}")
        long.hosts[0].call(partial(long.python.publish, lamp))
        long.run(50)
    assert (long.device.hits(0), long.device.library.machine_segmented()) == (0, 5)


def test_the_tables_of_a_station_come_from_a_plan(tmp_path: Path) -> None:
    """Slots, number, bit rate and qualities of service are those of the plan."""
    (tmp_path / "bus.toml").write_text(SYSTEM)
    planned = plan(load_system(tmp_path / "bus.toml"))
    catalog = road_catalog()
    made = generate(catalog, {"lit": Subscription(road.Lamp)}, name="road", publish=[road.ConfidentLoop, road.Loop])
    node = made.with_node(plan=planned, station="gate")
    assert "#define ROAD_CHANNEL_CONFIDENT_LOOP 0U\n#define ROAD_CHANNEL_LOOP 1U" in node.node_header
    own = next(slot for slot in planned.calendar.slots if slot.node == "gate")
    assert f".offset_ns = INT64_C({own.offset_ns})" in node.node_source
    assert f"config->number = {own.number}U;" in node.node_source
    assert "config->bit_ns = 1000U;" in node.node_source
    assert ".qos = GENUS_QOS_HARD" in node.node_source
    assert ".qos = GENUS_QOS_SOFT" in node.node_source
    assert ".channel = GENUS_NO_CHANNEL" in node.node_source, "the lamp's slot, in which it receives"
    small = plan(parse_system(SYSTEM.replace("size = 9", "size = 2")))
    with pytest.raises(DeviceError, match="the plan has size = 2 for ConfidentLoop, whose events take up to 9 bytes"):
        made.with_node(plan=small, station="gate")
    with pytest.raises(DeviceError, match="the plan has no station 'porch'; it has gate, lamp"):
        made.with_node(plan=planned, station="porch")
    with pytest.raises(DeviceError, match="give both plan and station"):
        made.with_node(plan=planned)


def test_the_filters_of_a_node_let_the_middleware_pass() -> None:
    """Without them it would never hear the broker; they count among the banks of the controller."""
    catalog = road_catalog()
    asked = {"near": Subscription(road.Roadside)}
    for banks in (None, 1, 2, 5):
        made = generate(catalog, asked, name="road", publish=[road.Lamp], banks=banks).with_node()
        rows = re.findall(r"\{0x([0-9A-F]{8})UL, 0x([0-9A-F]{8})UL\}", made.node_source)
        filters = [(int(value, 16), int(mask, 16)) for value, mask in rows]
        assert banks is None or len(filters) <= banks
        for etag in (0, 5, 127, catalog.etag(road.Lamp), catalog.etag(road.Loop)):
            assert any(0x1FA14000 & ~0x3FFF & mask | etag & mask == value for value, mask in filters), (banks, etag)


CONFIDENT = """
int publish_confident(int lane, int64_t now);
int publish_confident(int lane, int64_t now) {
    road_loop loop = {.type = ROAD_TYPE_CONFIDENT_LOOP, .lane = (uint8_t)lane, .confidence = 50U};
    return (int)road_publish_confident_loop(&node, &loop, NULL, now);
}
"""


@pytest.mark.slow
@needs("gcc")
@pytest.mark.parametrize("data", ["", 'data_bitrate = "4M"'])
def test_a_hard_channel_of_a_plan_keeps_its_slot(data: str, tmp_path: Path) -> None:
    """Each event is delivered at its deadline, at the same place in the period; and the slot of another is received.

    On a classic bus an event takes two frames, on CAN FD one of 12 bytes.
    """
    (tmp_path / "bus.toml").write_text(SYSTEM.replace("[bus]", f"[bus]\n{data}"))
    planned = plan(load_system(tmp_path / "bus.toml"))
    slots = planned.calendar.slots
    catalog = road_catalog()
    made = generate(catalog, {"lit": Subscription(road.Lamp)}, name="road", publish=[road.ConfidentLoop, road.Loop])
    device = FirmwareMachine(made.with_node(plan=planned, station="gate"), 0x11, CONFIDENT)
    simulation = Simulation(planned.system.bus.timing, seed=3)
    heard: list[tuple[int, Event]] = []
    numbers = {slot.node: slot.number for slot in slots}
    python = Node(
        0x99,
        name="lamp",
        timing=simulation.timing,
        catalog=catalog,
        number=numbers["lamp"],
        slots=slots,
        seed=1,
        on_event=lambda event: heard.append((simulation.now, event)),
    )
    hosts = [
        simulation.add_host(numbers["lamp"], lambda: python),
        simulation.add_host(numbers["gate"], lambda: device),
    ]
    hosts[0].call(python.start)
    hosts[1].call(device.start)
    hosts[0].call(lambda now: python.announce(road.Lamp, Hard("20ms", 1), now))
    hosts[0].call(lambda now: python.subscribe(Subscription(road.ConfidentLoop), now))
    simulation.run(3000 * MS)
    for number in range(20):
        results: list[int] = []
        hosts[1].call(
            lambda now, number=number, results=results: results.append(  # type: ignore[misc]
                device.library.publish_confident(number, ctypes.c_int64(now))
            )
        )
        hosts[0].call(lambda now: python.publish(road.Lamp(on=True), now))
        simulation.run(simulation.now + 20 * MS)
        assert results == [0]
    assert [event.lane for _, event in heard if isinstance(event, road.ConfidentLoop)] == list(range(20))
    own = next(slot for slot in slots if slot.node == "gate")
    phases = [at % own.period_ns for at, _ in heard]
    assert max(phases) - min(phases) < 200_000, "within the precision of the clocks"
    assert device.hits(0) >= 18, "the lamp's events, in its slot"


def test_channels_that_do_not_fit_their_plan_are_refused(tmp_path: Path) -> None:
    """The node in C would not start, or not keep what was planned."""
    catalog = road_catalog()
    made = generate(catalog, {}, name="road", publish=[road.ConfidentLoop, road.Loop, road.Lamp])
    own = generate(catalog, {}, name="road", publish=[road.ConfidentLoop, road.Loop])

    def planned(text: str) -> Plan:
        (tmp_path / "bus.toml").write_text(text)
        return plan(load_system(tmp_path / "bus.toml"))

    good = planned(SYSTEM)
    for wrong, message in (
        ([DeviceChannel(road.Lamp), DeviceChannel(road.Lamp, "soft:5ms")], "Lamp has more than one channel"),
        ([DeviceChannel(road.ConfidentLoop, "hard:30ms")], "its period is 30000000 ns, and 10000000 ns in the plan"),
        ([DeviceChannel(road.ConfidentLoop, "hard:10ms", carries=("place",))], "have no largest size"),
    ):
        with pytest.raises(DeviceError, match=message):
            made.with_node(wrong, plan=good, station="gate")
    with pytest.raises(DeviceError, match="the plan has size = 8 for ConfidentLoop, whose events take up to 9"):
        own.with_node(plan=planned(SYSTEM.replace("size = 9", "size = 8")), station="gate")
    with pytest.raises(DeviceError, match=r"the plan is refused \(.*confident"):
        own.with_node(plan=planned(SYSTEM.replace('"10ms"', '"400us"')), station="gate")
    with pytest.raises(DeviceError, match="give both plan and station"):
        made.with_node(station="gate")


@pytest.mark.slow
def test_more_blocks_than_a_node_counts_are_refused() -> None:
    above: list[Any] = [META(f"Above{number}", (Event,), {"__module__": __name__}) for number in range(85)]
    below: list[Any] = [META(f"Below{number}", (cls,), {"__module__": __name__}) for number, cls in enumerate(above)]
    catalog = Catalog()
    catalog.register(*above, *below)
    asked = {f"all{number}": Subscription(cls) for number, cls in enumerate(above)}
    asked |= {f"one{number}": Subscription(cls, exact=True) for number, cls in enumerate(above + below)}
    with pytest.raises(DeviceError, match="255 blocks, and may have 254; subscribe to fewer types"):
        generate(catalog, asked, name="all").with_node()


def test_channels_that_cannot_be_are_refused() -> None:
    made = road_firmware(road_catalog())
    with pytest.raises(DeviceError, match="Loop is not published by road"):
        made.with_node([DeviceChannel(road.Loop)])
    with pytest.raises(DeviceError, match="Lamp has more than one channel"):
        made.with_node([DeviceChannel(road.Lamp), DeviceChannel(road.Lamp, "soft:20ms")])
    with pytest.raises(DeviceError, match="Lamp is hard: it needs a plan of the bus"):
        made.with_node([DeviceChannel(road.Lamp, "hard:10ms")])
    with pytest.raises(DeviceError, match="Lamp: 'soft' lacks its deadline"):
        made.with_node([DeviceChannel(road.Lamp, "soft")])


SYSTEM = """
[bus]
bitrate = "1Mbit/s"
gap = "20us"
precision = "5us"

[[channel]]
name = "confident"
event = "ConfidentLoop"
node = "gate"
class = "hard"
period = "10ms"
omissions = 1
size = 9
subscribers = ["lamp"]

[[channel]]
name = "loop"
event = "Loop"
node = "gate"
class = "soft"
period = "50ms"
deadline = "20ms"
size = 8
subscribers = ["lamp"]

[[channel]]
name = "lamp"
event = "Lamp"
node = "lamp"
class = "hard"
period = "20ms"
omissions = 1
size = 5
subscribers = ["gate"]
"""


def test_the_command_writes_a_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "road.py").write_text(Path(road.__file__).read_text())
    (tmp_path / "bus.toml").write_text(SYSTEM)
    (tmp_path / "device.txt").write_text("lit: Lamp where on\n")
    assert run_command("catalog", "register", "road.json", "road.py").returncode == 0
    asked = ["c", "generate", "road.json", "device.txt", "-o", "firmware", "-t", "road.py", "--node"]
    done = run_command(*asked, "--publish", "Loop=soft:20ms+place", "--bitrate", "125000")
    assert done.returncode == 0, done.stderr
    assert "road_node.c" in done.stderr
    source = (tmp_path / "firmware" / "road_node.c").read_text()
    assert "config->bit_ns = 8000U;" in source
    assert (tmp_path / "firmware" / "genus_node.c").exists()
    publish = ("--publish", "Loop", "--publish", "ConfidentLoop")
    planned = run_command(*asked, *publish, "--system", "bus.toml", "--station", "gate")
    assert planned.returncode == 0, planned.stderr
    short = ("--without", "calendar, late", "--explain", "--no-runtime")
    small = run_command(*asked[:5], "small", *asked[6:], "--publish", "Lamp=soft:20ms", *short)
    assert small.returncode == 0, small.stderr
    assert "node: without calendar, late" in small.stdout
    settings = (tmp_path / "small" / "genus_settings.h").read_text()
    assert "#define GENUS_WITH_CALENDAR 0 " in settings
    assert "#define GENUS_WITH_LATE 0 " in settings
    assert "#define GENUS_WITH_SEGMENTS 1 " in settings
    for status, wrong, message in (
        (2, ["--system", "bus.toml"], "go together"),
        (2, ["--station", "gate"], "go together"),
        (2, ["--system", "bus.toml", "--station", "gate", "--bitrate", "500000"], "has the bit rate"),
        (
            1,
            ["--system", "bus.toml", "--station", "gate", "--publish", "Lamp"],
            "the plan has no channel of 'gate' for it",
        ),
        (1, ["--publish", "Loop=soft:20ms"], "Loop has more than one channel"),
        (1, ["--publish", "Lamp=none+hours"], "carries its own attributes in any case"),
        (1, ["--system", "bus.toml", "--station", "porch"], "the plan has no station 'porch'"),
        (2, ["--publish", "Lamp=soft"], "lacks its deadline"),
        (2, ["--publish", "Lamp=bad:20ms+place"], "'--publish': 'bad:20ms'"),
        (1, ["--publish", "Truck=none"], "'Truck' is not in the catalog"),
        (2, ["--without", "calender"], "a node cannot do without 'calender'; it can without segmentation, calendar"),
        (1, ["--without", "segmentation"], "so the node cannot do without segmentation"),
        (2, ["--without", "late", "--late", "2"], "--late 2 and --without late contradict each other"),
        (1, ["--without", "late", "--late-buffer", "8"], "the device learns no types"),
    ):
        done = run_command(*asked, *publish, *wrong)
        assert done.returncode == status, message
        assert message in done.stderr
        assert "Traceback" not in done.stderr
