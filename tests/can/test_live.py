"""Live buses through python-can: `virtual` within a process, `udp_multicast` between processes."""

import json
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec.structs import replace

import can
from genus import BestEffort, Catalog, Event, Hard, Maybe, Soft, UInt8, UInt32, open_bus, this
from genus.can import BindingFailed, BusOff, load_system, open_broker, plan
from genus.can._live import host as host_module
from genus.can._live.host import LiveHost
from genus.can._live.interfaces import PROFILES, UNKNOWN, interface_arguments, known_options, parse_address
from genus.can._live.link import open_host
from genus.can._node.channels import TxCounts
from genus.can._node.node import Node
from genus.can._node.problems import EventMissing, HardStopped, MaybeSent, NotSent
from genus.can._protocol.broker import Broker
from genus.can._protocol.broker_tables import MemoryStore
from genus.can._protocol.time_service import sync_frame
from genus.can._wire.frame import Timing
from genus.can.types import ChannelConflict
from genus.errors import BusError, EventError, SubscriptionError
from tests.waiting import wait_for

GROUP = "239.74.163.9"


class Beacon(Event):
    number: UInt32
    lamp: Maybe[UInt8] = None


class Flare(Beacon):
    colour: Maybe[UInt8] = None


class Siren(Event):
    volume: UInt8


TYPES = """
from genus import Event, Maybe, UInt8, UInt32

class Beacon(Event):
    number: UInt32
    lamp: Maybe[UInt8] = None

class Flare(Beacon):
    colour: Maybe[UInt8] = None
"""


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    path = tmp_path / "city.json"
    Catalog.update(path, Beacon, Flare)
    return path


@pytest.fixture
def virtual(catalog: Path, request: pytest.FixtureRequest) -> Callable[..., str]:
    def address(**options: object) -> str:
        given = {"channel": request.node.name, "catalog": catalog, "synchronised": "no", **options}
        return "can:virtual?" + "&".join(f"{key}={value}" for key, value in given.items() if value is not None)

    return address


def test_two_nodes_of_one_process_exchange_events_by_type(virtual: Callable[..., str]) -> None:
    with open_bus(virtual(number=1)) as sensor, open_bus(virtual(number=2)) as logger:
        inbox = logger.collection(Beacon).inbox(where=this.number > 1)
        beacons = sensor.channel(Flare, Soft(deadline="1s"))
        beacons.announce()
        for number in range(4):
            beacons.publish(Flare(number=number, colour=7))
        assert [inbox.get(5).number for _ in range(2)] == [2, 3]


def test_a_publisher_receives_its_own_events_once(virtual: Callable[..., str]) -> None:
    with open_bus(virtual(number=1)) as bus:
        inbox = bus.collection(Beacon).inbox()
        beacons = bus.channel(Beacon, BestEffort())
        beacons.announce()
        beacons.publish(Beacon(number=1))
        assert inbox.get(5) == Beacon(number=1)
        with pytest.raises(TimeoutError):
            inbox.get(0.1)


@pytest.mark.parametrize("interface", ["virtual", "multicast"])
def test_can_fd_frames_hold_more(interface: str, virtual: Callable[..., str], multicast: Callable[[int], str]) -> None:
    def address(number: int) -> str:
        found = virtual(number=number) if interface == "virtual" else multicast(number)
        return f"{found}&data_bitrate=5000000"

    beacon = Beacon(number=7, place="a lighthouse on the western shore")
    with open_bus(address(1)) as one, open_bus(address(2)) as two:
        inbox = two.collection(Beacon).inbox()
        channel = one.channel(Beacon, Soft(deadline="1s"))
        channel.announce()
        channel.publish(beacon)
        assert inbox.get(5) == beacon


def test_collections_publish_and_subscribe_as_on_any_bus(virtual: Callable[..., str]) -> None:
    with open_bus(virtual(number=1)) as one, open_bus(virtual(number=2)) as two:
        mine, theirs = one.collection(Beacon).inbox(), two.collection(Beacon).inbox(has="place")
        one.collection(Beacon).publish(Beacon(number=1, place="tower"))
        assert mine.get(5) == theirs.get(5) == Beacon(number=1, place="tower")
        with pytest.raises(TimeoutError):
            mine.get(0.1)


def test_wrong_announcements_and_publications_raise_at_the_call(virtual: Callable[..., str]) -> None:
    with open_bus(virtual(number=1)) as bus:
        with pytest.raises(BusError, match="no slot for Beacon"):
            bus.channel(Beacon, Hard(period="10ms")).announce()
        with pytest.raises(SubscriptionError, match="its attributes are"):
            bus.channel(Beacon, BestEffort(), carries="colours").announce()
        channel = bus.channel(Beacon, BestEffort())
        with pytest.raises(BusError, match="was not announced"):
            channel.publish(Beacon(number=1))
        channel.announce()
        with pytest.raises(EventError, match="name the context attributes"):
            channel.publish(Beacon(number=1, place="tower"))
        with pytest.raises(BusError, match="one type"):
            channel.publish(Flare(number=1))
        with pytest.raises(BusError, match="one quality"):
            bus.channel(Beacon, Soft(deadline="1s")).announce()


def test_the_error_without_a_broker_names_the_command_that_runs_one(
    virtual: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("genus.can._node.link.BINDING_S", 0.3)
    with open_bus(virtual(catalog=None)) as bus, pytest.raises(BusError, match="genus can broker"):
        bus.channel(Beacon).announce()


def test_publishing_on_a_cancelled_channel_raises(virtual: Callable[..., str]) -> None:
    with open_bus(virtual(number=1)) as bus:
        with bus.channel(Beacon, Soft(deadline="1s")) as channel:
            channel.publish(Beacon(number=1))
        with pytest.raises(BusError):
            channel.publish(Beacon(number=1))
        bus.channel(Beacon, BestEffort()).announce()


def test_a_live_hard_channel_uses_its_slots(virtual: Callable[..., str], tmp_path: Path) -> None:
    """On an ordinary computer no event is sure to be sent in its slot; that every one has a result is.

    `test_driver_faults.py` has the slots by an emulated clock.
    """
    (tmp_path / "beacons.py").write_text(TYPES)
    system = tmp_path / "system.toml"
    system.write_text(
        textwrap.dedent("""
        [bus]
        bitrate = 20_000
        gap = "10ms"
        types = "beacons.py"
        [[channel]]
        event = "Beacon"
        node = "tower"
        class = "hard"
        period = "100ms"
        omissions = 1
        """)
    )
    troubles: list[object] = []
    with (
        open_bus(virtual(number=1, name="tower", plan=system, bitrate=20_000)) as tower,
        open_bus(virtual(number=2, name="ship", plan=system, bitrate=20_000)) as ship,
    ):
        beacons = tower.channel(Beacon, Hard(period="100ms", omissions=1), on_problem=troubles.append)
        beacons.announce()
        arrivals: list[int] = []
        ship.collection(Beacon).subscribe(lambda event: arrivals.append(event.number), on_problem=troubles.append)
        node = tower.link.node  # type: ignore[union-attr]
        for number in range(5):
            beacons.publish(Beacon(number=number))
            wait_for(lambda number=number: _has_result(node.counts().sent["Beacon"], number + 1))  # type: ignore[misc]
        wait_for(lambda: any(isinstance(trouble, EventMissing | HardStopped) for trouble in troubles))
        counts = node.counts().sent["Beacon"]
    told = [trouble.event.number for trouble in troubles if isinstance(trouble, NotSent | MaybeSent)]  # type: ignore[attr-defined]
    assert len(told) == counts.failed + counts.unknown
    assert len(set(arrivals)) == len(arrivals) <= counts.sent + counts.unknown


def _has_result(counts: TxCounts, published: int) -> bool:
    return counts.sent + counts.failed + counts.unknown + counts.replaced >= published


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("can:", "names no interface"),
        ("can:virtual?number", "name=value"),
        ("can:virtual?bitrate=fast", "bitrate is 'fast'"),
        ("can:virtual?bitrate=0", "bitrate is 0"),
        ("can:virtual?bitrat=500k", "did you mean 'bitrate'"),
        ("can:virtual?recieve_own_messages=1", "did you mean 'receive_own_messages'"),
        ("can:virtual?banks=2&number=3&banks=4", "banks is given more than once"),
        ("can:soketcan?channel=can0", "did you mean 'socketcan'"),
        ("can:can0", r"write can:socketcan\?channel=can0$"),
        ("socketcan:can0", r"write can:socketcan\?channel=can0; known are"),
        ("can:carrier-pigeon", "cannot be opened"),
        ("can:socketcan?channel=nocan9", "cannot be opened"),
        ("can:virtual?number=400&catalog=CATALOG", "the number of a node is 400; give one from 1 to 126"),
        ("can:virtual?number=3", r"node 3 has a number but no catalog: give both \(catalog=FILE"),
        ("can:virtual?banks=0", "at least one filter"),
        ("can:virtual?confirm=hope", "echo or send"),
        ("can:virtual?synchronised=maybe", "yes or no"),
        ("can:virtual?data_bitrate=500000", "below the bitrate"),
        ("can:udp_multicast?port=x", "cannot be opened"),
    ],
)
def test_a_wrong_address_raises_a_bus_error(address: str, message: str, catalog: Path) -> None:
    with pytest.raises(BusError, match=message):
        open_bus(address.replace("CATALOG", str(catalog)))


@pytest.mark.parametrize(
    ("options", "message"),
    [({"bitrate": 500_000}, "planned for"), ({"number": 7}, "has tower as node 1"), ({}, None)],
)
def test_an_address_that_contradicts_its_plan_raises_a_bus_error(
    virtual: Callable[..., str], tmp_path: Path, options: dict[str, int], message: str | None
) -> None:
    system = tmp_path / "system.toml"
    channel = 'name = "Beacon"\nnode = "tower"\nclass = "hard"\nperiod = "10ms"\nsize = 8'
    system.write_text(f"[bus]\nbitrate = 1_000_000\n[[channel]]\n{channel}\n")
    address = virtual(**{"number": 1, **options}, name="tower", plan=system)
    if message is None:
        open_bus(address).close()
    else:
        with pytest.raises(BusError, match=message):
            open_bus(address)


@pytest.mark.parametrize("suffix", ["toml", "json"])
def test_a_node_has_its_number_and_the_period_of_sync_from_the_plan(
    virtual: Callable[..., str], tmp_path: Path, suffix: str
) -> None:
    system = tmp_path / "system.toml"
    channel = 'name = "Beacon"\nnode = "tower"\nclass = "hard"\nperiod = "10ms"\nsize = 8'
    bus = '[bus]\nbitrate = 1_000_000\nsync_period = "40ms"'
    system.write_text(f"{bus}\n[nodes]\ntower = 5\n[[channel]]\n{channel}\n")
    planned = plan(load_system(system))
    planned.calendar.save(tmp_path / "system.json")
    address = virtual(name="tower", plan=tmp_path / f"system.{suffix}", synchronised="yes", granularity="1us")
    stamps: list[float] = []
    channel = address.partition("channel=")[2].partition("&")[0]
    with can.Bus(interface="virtual", channel=channel) as heard, open_bus(address) as tower:
        assert tower.link.node.number == 5  # type: ignore[union-attr]
        while len(stamps) < 6 and (message := heard.recv(2)) is not None:
            if message.arbitration_id == sync_frame(5, 0, 0).id:
                stamps.append(message.timestamp)
    between = sorted(later - one for one, later in pairwise(stamps))
    assert between[len(between) // 2] == pytest.approx(0.04, abs=0.012)


@pytest.mark.parametrize(
    ("text", "bitrate"),
    [("500k", 500_000), ("83.333k", 83_333), ("1Mbit/s", 1_000_000), ("125000", 125_000), ("0.5M", 500_000)],
)
def test_bit_rates_are_written_as_in_a_system_file(text: str, bitrate: int) -> None:
    assert parse_address(f"virtual?bitrate={text}").timing.bitrate == bitrate
    fd = parse_address(f"virtual?bitrate={text}&data_bitrate=2M").timing
    assert (fd.bitrate, fd.data_bitrate) == (bitrate, 2_000_000)


class TestInterfaceOptions:
    """What python-can's interfaces get of an address."""

    @pytest.mark.parametrize(
        ("address", "expected"),
        [
            ("slcan?channel=/dev/ttyACM0&bitrate=250k", {"channel": "/dev/ttyACM0", "bitrate": 250_000}),
            ("pcan?channel=PCAN_USBBUS1", {"channel": "PCAN_USBBUS1", "bitrate": 1_000_000}),
            (
                "kvaser?channel=0&bitrate=500k&data_bitrate=2M",
                {"channel": "0", "bitrate": 500_000, "data_bitrate": 2_000_000, "fd": True},
            ),
            ("socketcan?channel=can0&bitrate=500k", {"channel": "can0"}),
            ("socketcan?channel=no&local_loopback=no", {"channel": "no", "local_loopback": False}),
            ("slcan?channel=x&f_clock=8000000&brp=1", {"channel": "x", "f_clock": "8000000", "brp": "1"}),
            ("kvaser?channel=0&tseg1=5", {"channel": "0", "tseg1": "5", "bitrate": 1_000_000}),
        ],
    )
    def test_an_interface_that_sets_the_bit_rate_gets_it(self, address: str, expected: dict[str, object]) -> None:
        assert interface_arguments(parse_address(address)) == expected

    def test_parameters_that_only_the_documentation_names_are_known(self) -> None:
        """Kvaser takes all but three of its options as `**kwargs`."""
        assert {"bitrate", "data_bitrate", "driver_mode"} <= (known_options("kvaser") or set())

    def test_nothing_is_checked_where_nothing_is_known(self) -> None:
        assert known_options("carrier-pigeon") is None
        assert interface_arguments(parse_address("carrier-pigeon?speed=9")) == {"speed": "9"}


def test_a_named_node_keeps_its_uid() -> None:
    one, again = (parse_address("virtual?name=loop-1").uid for _ in range(2))
    assert one == again != parse_address("virtual?name=loop-2").uid
    assert parse_address("virtual").uid != parse_address("virtual").uid


def test_a_broker_and_a_node_with_a_wrong_catalog_tell_each_other(
    virtual: Callable[..., str], catalog: Path, tmp_path: Path
) -> None:
    """The wrong catalog has the event tag of a Beacon for a Siren: the channel is refused, and the broker says so."""
    Catalog.update_etags(catalog, Beacon)
    Catalog.update(tmp_path / "wrong.json", Siren)
    notices: list[object] = []
    with open_broker(virtual(number=None, catalog=None), catalog, tmp_path / "t.json", on_notice=notices.append):
        troubles: list[object] = []
        with open_bus(virtual(number=3, catalog=tmp_path / "wrong.json")) as stranger:
            sirens = stranger.channel(Siren, "soft:1s", on_problem=troubles.append)
            with suppress(BusError):  # the broker may be quicker than the announcement
                sirens.announce()
                wait_for(lambda: any(isinstance(each, BindingFailed) for each in troubles))
            wait_for(lambda: any(isinstance(each, ChannelConflict) for each in notices))
    (conflict,) = [each for each in notices if isinstance(each, ChannelConflict)]
    assert conflict.node == 3
    assert "is another type there, and Beacon here" in conflict.reason


def test_the_time_of_a_live_bus_has_a_precision_and_starts_tasks(virtual: Callable[..., str]) -> None:
    with open_bus(virtual(number=1)) as bus:
        assert bus.time().precision_ns == 0  # synchronised=no: the computer's clock is the time of the bus
    with open_bus(virtual(number=1, synchronised="yes", granularity="2ms")) as bus:
        starts: list[int] = []
        task = bus.every("20ms", lambda: starts.append(bus.time_ns()), offset="5ms")
        wait_for(lambda: len(starts) >= 3)
        assert bus.time().precision_ns == 2_000_000  # alone on its bus, it is the master
        task.cancel()
        assert task.timing.starts >= 3
        assert all(at >= 5_000_000 for at in starts)


def test_a_handler_may_announce_and_publish_another_type(virtual: Callable[..., str], catalog: Path) -> None:
    """Handlers have a thread of their own, so the reply of the broker is received while they wait for it."""
    address = parse_address(virtual(number=None, catalog=None).removeprefix("can:"))
    broker = open_host(Broker(1, Catalog.load(catalog), MemoryStore()), address)
    with open_bus(virtual(catalog=None)) as one, open_bus(virtual(catalog=None)) as two:
        flares = one.collection(Flare).inbox()
        two.collection(Beacon).subscribe(
            lambda event: two.publish(Flare(number=event.number)) if type(event) is Beacon else None
        )
        wait_for(lambda: one._link.node.catalog is not None and two._link.node.catalog is not None)  # type: ignore[union-attr]
        one.collection(Beacon).publish(Beacon(number=5))
        assert flares.get(10) == Flare(number=5)
    broker.close()


def test_a_cancelled_listener_leaves_nothing_behind(virtual: Callable[..., str]) -> None:
    with open_bus(virtual(number=1)) as bus:
        listener = bus.collection(Beacon).subscribe(print, on_problem=print)
        listener.cancel()
        assert not bus._link.node.rx.interests  # type: ignore[union-attr]


def test_an_exception_in_a_thread_is_logged_and_does_not_stop_it(
    virtual: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    with open_bus(virtual(number=1)) as one, open_bus(virtual(number=2)) as two:
        inbox = two.collection(Beacon).inbox()
        host = two._link.driver  # type: ignore[union-attr]
        receive = host.machine.receive
        host.machine.receive = lambda *_: 1 / 0
        channel = one.channel(Beacon, BestEffort())
        channel.announce()
        wait_for(lambda: two.traffic().link.get("failed: a frame could not be processed", 0) > 0)
        host.machine.receive = receive
        channel.cancel()
        channel.announce()
        channel.publish(Beacon(number=1))
        assert inbox.get(5) == Beacon(number=1)
    assert "ZeroDivisionError" in caplog.text


class FailingBus(can.BusABC):
    """An interface whose library raises whatever it likes, until it is repaired."""

    channel_info = "failing"
    failing = False

    def __init__(self, problem: Exception) -> None:
        self.problem = problem
        super().__init__(channel=0)

    def _recv_internal(self, timeout: float | None) -> tuple[can.Message | None, bool]:
        if self.failing:
            raise self.problem
        time.sleep(0.001)
        return None, True

    def send(self, msg: can.Message, timeout: float | None = None) -> None:
        if self.failing:
            raise self.problem


@pytest.mark.parametrize("problem", [can.CanOperationError("gone"), OSError("gone"), ValueError("gone")])
def test_an_interface_that_died_is_told_once_and_may_come_back(
    problem: Exception, catalog: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(host_module, "_FAILING_S", 0.0)
    troubles: list[object] = []
    node = Node(1, timing=Timing(500_000), catalog=Catalog.load(catalog), number=1, synchronised=False)
    bus = FailingBus(problem)
    host = LiveHost(node, bus, PROFILES["udp_multicast"])
    try:
        host.call(node.start)
        host.call(lambda now: node.announce(Beacon, BestEffort(), now, on_problem=troubles.append))
        sent = host.counters()["sent"]
        bus.failing = True
        wait_for(lambda: bool(troubles))
        bus.failing = False
        wait_for(lambda: host.counters()["sent"] > sent, "it claims its number again")
        text = "gone" if not isinstance(problem, ValueError) else "ValueError: gone"
        assert host.counters()[f"receive failed: {text}"] > 0
        assert caplog.text.count("nothing can be read") == caplog.text.count("can be read again") == 1
        assert [type(each) for each in troubles] == [BusOff]
    finally:
        host.close()


# -- what was sent -----------------------------------------------------------------------------------------------------


def test_a_frame_counts_as_sent_when_the_controller_returned_it(virtual: Callable[..., str]) -> None:
    with open_bus(virtual(number=1)) as one, open_bus(virtual(number=2)) as two:
        inbox = two.collection(Beacon).inbox()
        beacons = one.channel(Beacon, Soft(deadline="5s", expires="10s"))
        beacons.announce()
        for number in range(200):
            beacons.publish(Beacon(number=number))
        assert [inbox.get(5).number for _ in range(200)] == list(range(200))
        wait_for(lambda: one.traffic().link["sent"] >= 202)
        link = one.traffic().link
        assert link.get("echoes ignored", 0) <= link.get(
            "never confirmed", 0
        )  # only what a busy machine returns too late


def test_an_interface_that_does_not_confirm_warns_and_refuses_deadlines(
    virtual: Callable[..., str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(PROFILES, "virtual", PROFILES["slcan"])
    with open_bus(virtual(number=1)) as bus, open_bus(virtual(number=2)) as other:
        assert "does not confirm what was sent" in caplog.text
        assert bus.traffic().link["interface does not confirm what was sent"] == 1
        with pytest.raises(BusError, match=r"BestEffort\(\), or add confirm=send"):
            bus.channel(Beacon, Soft(deadline="1s")).announce()
        inbox = other.collection(Beacon).inbox()
        bus.collection(Beacon).publish(Beacon(number=1))
        assert inbox.get(5) == Beacon(number=1)
    with open_bus(virtual(number=1, confirm="send")) as bus:
        bus.channel(Beacon, Soft(deadline="1s")).announce()


def test_an_unknown_interface_that_returns_nothing_refuses_deadlines_after_its_first_frame(
    virtual: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PROFILES, "virtual", replace(UNKNOWN, asks_for_echo=False))
    monkeypatch.setattr("genus.can._live.port.CONFIRM_TIMEOUT_NS", 20_000_000)
    monkeypatch.setattr("genus.can._live.port.PROBE_NS", 40_000_000)
    with open_bus(virtual(number=1)) as bus, pytest.raises(BusError, match="does not confirm"):
        bus.channel(Beacon, Soft(deadline="1s")).announce()


def test_the_walk_through_on_a_virtual_socketcan_bus(catalog: Path) -> None:
    """`docs/can-live.md`: two nodes on vcan0, confirmed by the kernel's echo."""
    address = f"can:socketcan?channel=vcan0&catalog={catalog}&synchronised=no&number="
    try:
        sensor = open_bus(f"{address}1")
    except BusError as problem:
        pytest.skip(f"no vcan0 here: {problem}")
    with sensor, open_bus(f"{address}2") as logger:
        inbox = logger.collection(Beacon).inbox()
        beacons = sensor.channel(Beacon, Soft(deadline="5s", expires="10s"))
        beacons.announce()
        for number in range(50):
            beacons.publish(Beacon(number=number))
        assert [inbox.get(5).number for _ in range(50)] == list(range(50))
        wait_for(lambda: sensor.traffic().link["sent"] >= 52)


def test_closing_sends_what_waits(virtual: Callable[..., str]) -> None:
    with open_bus(virtual(number=2)) as logger:
        inbox = logger.collection(Beacon).inbox()
        with open_bus(virtual(number=1)) as sensor:
            beacons = sensor.channel(Beacon, BestEffort())
            beacons.announce()
            for number in range(50):
                beacons.publish(Beacon(number=number))
        assert [inbox.get(5).number for _ in range(50)] == list(range(50))


# -- between processes -------------------------------------------------------------------------------------------------

PUBLISHER = """
import sys, time
from beacons import Beacon
from genus import Soft, open_bus

address, rate, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
troubles = []
with open_bus(address) as bus:
    beacons = bus.channel(Beacon, Soft(deadline="1s"), on_problem=troubles.append)
    beacons.announce()
    began = time.perf_counter()
    for number in range(count):
        while time.perf_counter() < began + number / rate:
            pass
        beacons.publish(Beacon(number=number))
    took = time.perf_counter() - began
print(count, took, len(troubles))
"""


MONITOR = """
import json, sys
from genus.can import open_monitor

with open_monitor(sys.argv[1], sys.argv[2]) as monitor:
    print("ready", flush=True)
    for _ in sys.stdin:
        channels = monitor.snapshot().channels
        print(json.dumps([[each.reported, each.events + each.lost] for each in channels]), flush=True)
"""


@pytest.fixture
def port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("", 0))
        found: int = free.getsockname()[1]
        return found


@pytest.fixture
def multicast(catalog: Path, port: int) -> Callable[[int], str]:
    def address(number: int) -> str:
        return f"can:udp_multicast?channel={GROUP}&port={port}&number={number}&catalog={catalog}&synchronised=no"

    try:
        open_bus(address(9)).close()
    except BusError as problem:
        pytest.skip(f"no multicast here: {problem}")
    return address


def run_rate(multicast: Callable[[int], str], catalog: Path, tmp_path: Path, rate: int, count: int) -> None:
    """Every event is delivered once or counted as lost, and the monitor agrees with the publisher."""
    (tmp_path / "beacons.py").write_text(TYPES)
    (tmp_path / "publisher.py").write_text(PUBLISHER)
    (tmp_path / "monitor.py").write_text(MONITOR)
    with subprocess.Popen(
        [sys.executable, "monitor.py", multicast(3), str(catalog)],
        cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as monitor:  # fmt: skip
        assert monitor.stdin is not None
        assert monitor.stdout is not None
        assert monitor.stdout.readline() == "ready\n"

        def ask() -> object:
            monitor.stdin.write("\n")  # type: ignore[union-attr]
            monitor.stdin.flush()  # type: ignore[union-attr]
            return json.loads(monitor.stdout.readline())  # type: ignore[union-attr]

        with open_bus(multicast(2)) as bus:
            received: list[int] = []
            bus.collection(Beacon).subscribe(lambda event: received.append(event.number))
            printed = subprocess.run(
                [sys.executable, "publisher.py", multicast(1), str(rate), str(count)],
                cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True,
            ).stdout.split()  # fmt: skip
            wait_for(lambda: len(received) + bus.traffic().link.get("lost: Beacon", 0) >= count)
            lost = bus.traffic().link.get("lost: Beacon", 0)
        wait_for(lambda: ask() == [[count, count]], "the monitor agrees when it has read everything")
        monitor.stdin.close()
    assert int(printed[0]) == count
    assert len(received) == len(set(received))
    assert len(received) + lost == count


def test_events_between_processes_arrive_once_or_are_counted(
    multicast: Callable[[int], str], catalog: Path, tmp_path: Path
) -> None:
    run_rate(multicast, catalog, tmp_path, 500, 500)


@pytest.mark.slow
def test_five_thousand_events_a_second_for_ten_seconds(
    multicast: Callable[[int], str], catalog: Path, tmp_path: Path
) -> None:
    run_rate(multicast, catalog, tmp_path, 5000, 50_000)


def test_own_frames_that_the_interface_returns_are_ignored(multicast: Callable[[int], str]) -> None:
    with open_bus(multicast(1)) as bus:
        inbox = bus.collection(Beacon).inbox()
        beacons = bus.channel(Beacon, BestEffort())
        beacons.announce()
        for number in range(100):
            beacons.publish(Beacon(number=number))
        assert [inbox.get(5).number for _ in range(100)] == list(range(100))
        wait_for(lambda: bus.traffic().link.get("echoes ignored", 0) >= 100)
        with pytest.raises(TimeoutError):
            inbox.get(0.2)


# -- a socketcand server -----------------------------------------------------------------------------------------------


def test_errors_of_a_socketcand_server_pass_python_cans_filters(catalog: Path) -> None:
    """The real protocol over a socket: python-can filters in software, and marks error frames as of 29 bits."""
    troubles: list[object] = []
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:
        greeted = pool.submit(_greet, server)
        port = server.getsockname()[1]
        address = f"can:socketcand?host=127.0.0.1&port={port}&channel=can0&number=1&catalog={catalog}&synchronised=no"
        with open_bus(address) as bus, greeted.result(30) as client:
            bus.collection(Flare).inbox()
            beacons = bus.channel(Beacon, BestEffort(), on_problem=troubles.append)
            beacons.announce()
            client.sendall(b"< error 00000040 1.000001 >")
            wait_for(lambda: any(isinstance(each, BusOff) for each in troubles))
            beacons.publish(Beacon(number=0x12345678))
            client.sendall(b"< error 00000100 2.000001 >")
            received = ""
            while "12 34 56 78" not in received:
                received += client.recv(1024).decode()


def _greet(server: socket.socket) -> socket.socket:
    """Accept a client of socketcand, which opens a bus."""
    client, _ = server.accept()
    client.settimeout(30)
    client.sendall(b"< hi >")
    for _ in ("open", "rawmode"):
        client.recv(1024)
        client.sendall(b"< ok >")
    return client
