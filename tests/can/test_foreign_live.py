"""Databases on live buses: `virtual` within a process, `udp_multicast` between processes, and the commands."""

import json
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import can
from genus import BestEffort, Catalog, Event, Soft, UInt8, open_bus, this
from genus.can import load_dbc, open_monitor, python_source
from genus.can._live.interfaces import enlarge_buffer, lost_datagrams, parse_address
from genus.cli import genus
from genus.errors import BusError, DbcError, EventError
from tests.can.test_foreign import CAR
from tests.waiting import wait_for

GROUP = "239.74.163.11"


class Beacon(Event):
    number: UInt8


@pytest.fixture
def car(tmp_path: Path) -> Path:
    path = tmp_path / "Car.dbc"
    path.write_text(CAR)
    return path


@pytest.fixture
def address(car: Path, request: pytest.FixtureRequest) -> Callable[..., str]:
    def made(**options: object) -> str:
        given = {"channel": request.node.name, "database": car, **options}
        return "can:virtual?" + "&".join(f"{key}={value}" for key, value in given.items() if value is not None)

    return made


@pytest.fixture
def other(request: pytest.FixtureRequest) -> Iterator[can.BusABC]:
    """A device of another maker on the same virtual bus."""
    with can.Bus(interface="virtual", channel=request.node.name) as bus:
        yield bus


def drive(speed: float, gear: int = 0, identifier: int = 256) -> can.Message:
    data = round(speed * 100).to_bytes(2, "little") + bytes([gear & 15, 0])
    return can.Message(arbitration_id=identifier, data=data, is_extended_id=False)


# -- receiving ---------------------------------------------------------------------------------------------------------


def test_frames_of_other_makers_arrive_as_events(address: Callable[..., str], other: can.BusABC) -> None:
    with open_bus(address()) as bus:
        fast = bus.collection(bus.types["Drive"]).inbox(where=this.speed > 50)
        everything = bus.inbox("Car")
        for speed in (10.0, 60.0):
            other.send(drive(speed))
        event: Any = fast.get(5)
        assert (event.speed, event.gear, event.source) == (60.0, 0, "Ecu")
        assert abs(event.time.timestamp() - time.time()) < 60
        assert [everything.get(5).speed for _ in range(2)] == [10.0, 60.0]


def test_every_frame_is_an_event_or_counted(address: Callable[..., str], other: can.BusABC) -> None:
    with open_bus(address()) as bus:
        inbox = bus.collection(bus.types["Drive"]).inbox()
        other.send(can.Message(arbitration_id=256, data=b"\1", is_extended_id=False))
        other.send(drive(1.0))
        other.send(can.Message(arbitration_id=256, is_remote_frame=True, is_extended_id=False, dlc=4))
        other.send(drive(2.0))
        assert [inbox.get(5).speed for _ in range(2)] == [1.0, 2.0]
        link = bus.traffic().link
        assert link["received: Drive"] == 2
        assert link["dropped: Drive: too short: 1 of 4 bytes"] == 1
        assert link["ignored: not a data frame"] == 1
        assert link["received"] == 3


def test_what_nobody_subscribed_to_does_not_pass_the_filters(address: Callable[..., str], other: can.BusABC) -> None:
    with open_bus(address()) as bus:
        with bus.collection(bus.types["Lamp"]).inbox():
            inbox = bus.collection(bus.types["Drive"]).inbox()
        other.send(can.Message(arbitration_id=512, data=b"\1", is_extended_id=False))
        other.send(drive(2.0))
        inbox.get(5)
        assert bus.traffic().link["received"] == 1


def test_a_listener_sends_nothing(address: Callable[..., str], other: can.BusABC) -> None:
    with open_bus(address()) as bus:
        bus.collection(Event).inbox()
        other.send(drive(2.0))
        assert other.recv(0.3) is None
    assert other.recv(0.1) is None


def test_classes_of_a_generated_module_are_used(address: Callable[..., str], other: can.BusABC, car: Path) -> None:
    text = python_source(load_dbc(car))
    module: dict[str, Any] = {"__name__": "made_for_tests"}
    with open_bus(address()) as bus:
        exec(compile(text, "made_for_tests", "exec", dont_inherit=True), module)
        inbox = bus.collection(module["Drive"]).inbox()
        other.send(drive(2.0))
        assert type(inbox.get(5)) is module["Drive"]
        bus.publish(module["Lamp"](on=1))
        message = other.recv(5)
        assert message is not None
        assert (message.arbitration_id, bytes(message.data)) == (257, b"\1")


def test_other_types_are_told_that_there_is_no_node(address: Callable[..., str]) -> None:
    troubles: list[Any] = []
    with open_bus(address()) as bus:
        bus.collection(Beacon).subscribe(print, on_problem=troubles.append)
        assert "this address is no Genus node" in troubles[0].reason
        with pytest.raises(BusError, match="this address is no Genus node"):
            bus.publish(Beacon(number=1))
        with pytest.raises(BusError, match="this address is no Genus node"):
            bus.channel(Beacon).announce()


# -- sending -----------------------------------------------------------------------------------------------------------


def test_publishing_encodes_the_frame(address: Callable[..., str], other: can.BusABC) -> None:
    with open_bus(address(cyclic="no")) as bus:
        own = bus.collection(bus.types["Drive"]).inbox()
        bus.publish(bus.types["Drive"](speed=12.34, gear=-2))
        bus.publish(bus.types["Wide"](value=0x1234))
        found = [other.recv(5), other.recv(5)]
        assert [(m.arbitration_id, m.is_extended_id, bytes(m.data)) for m in found if m] == [
            (256, False, bytes.fromhex("d2040e00")),
            (257, True, bytes.fromhex("1234000000000000")),
        ]
        assert own.get(5).speed == 12.34
        with pytest.raises(TimeoutError):
            own.get(0.1)
        with pytest.raises(EventError, match=r"Drive\.gear is 99; its 4 bits hold -8 to 7"):
            bus.publish(bus.types["Drive"](speed=1.0, gear=99))
        assert bus.traffic().link["sent: Drive"] == 1


def test_a_channel_gives_its_events_to_own_subscribers_when_they_were_sent(address: Callable[..., str]) -> None:
    with open_bus(address()) as bus:
        inbox = bus.collection(bus.types["Lamp"]).inbox()
        lamp: Any = bus.types["Lamp"]
        with bus.channel(lamp) as channel:
            channel.publish(lamp(on=1))
            assert inbox.get(5) == lamp(on=1)
            with pytest.raises(TimeoutError):
                inbox.get(0.05)


def test_cyclic_messages_are_sent_again_until_the_channel_is_cancelled(
    address: Callable[..., str], other: can.BusABC
) -> None:
    with open_bus(address()) as bus:
        lamp: Any = bus.types["Lamp"]
        with bus.channel(lamp, BestEffort(period="2ms")) as channel:
            channel.publish(lamp(on=1))
            assert all(other.recv(5) is not None for _ in range(5))
        while other.recv(0.05) is not None:
            pass
        assert other.recv(0.05) is None
        bus.publish(bus.types["Drive"](speed=1.0, gear=0))  # its cycle time is in the database
        assert all(other.recv(5) is not None for _ in range(3))


def test_qualities_that_a_fixed_identifier_cannot_keep_are_refused(address: Callable[..., str]) -> None:
    with open_bus(address()) as bus:
        for qos in (Soft(deadline="5ms"), BestEffort(priority=1)):
            with pytest.raises(BusError, match="its identifier is that of the database"):
                bus.channel(bus.types["Drive"], qos).announce()
        with pytest.raises(BusError, match="keep=True"):
            bus.channel(bus.types["Drive"], keep=True).announce()
    with open_bus() as local, pytest.raises(BusError, match=r"sent again by themselves; publish it from bus\.every"):
        local.channel(Beacon, BestEffort(period="5ms")).announce()


# -- together with Genus -----------------------------------------------------------------------------------------------


def test_genus_and_databases_share_a_bus(address: Callable[..., str], other: can.BusABC, tmp_path: Path) -> None:
    catalog = tmp_path / "city.json"
    Catalog.update(catalog, Beacon)

    def node(number: int) -> str:
        return address(number=number, catalog=catalog, synchronised="no")

    with open_bus(node(1)) as one, open_bus(node(2)) as two:
        everything: Any = two.collection(Event).inbox()
        channel = one.channel(Beacon, Soft(deadline="1s"))
        channel.announce()
        channel.publish(Beacon(number=7))
        assert everything.get(5) == Beacon(number=7)
        one.publish(one.types["Lamp"](on=1))
        assert everything.get(5).on == 1
        other.send(drive(3.0))
        assert everything.get(5).speed == 3.0


def test_those_who_tap_the_link_get_both(address: Callable[..., str], other: can.BusABC) -> None:
    """A gateway carries the events of databases to other networks."""
    tapped: list[tuple[Any, int | None]] = []
    with open_bus(address()) as bus:
        link: Any = bus.link
        end = link.tap(lambda event, node: tapped.append((event, node)))
        inbox = bus.collection(bus.types["Drive"]).inbox()
        other.send(drive(3.0))
        inbox.get(5)
        bus.publish(bus.types["Lamp"](on=1))
        assert [(type(event).__name__, node) for event, node in tapped] == [("Drive", 0), ("Lamp", None)]
        end()
        bus.publish(bus.types["Lamp"](on=0))
        assert len(tapped) == 2


def test_an_identifier_that_the_node_uses_itself_is_refused(address: Callable[..., str], tmp_path: Path) -> None:
    catalog = tmp_path / "city.json"
    Catalog.update(catalog, Beacon)
    etag = Catalog.update_etags(catalog, "Beacon")[0].etag("Beacon")
    taken = 254 << 21 | 3 << 14 | etag
    bad = tmp_path / "Bad.dbc"
    bad.write_text(CAR.replace("BO_ 2147483905", f"BO_ {taken | 1 << 31}"))
    options = {"catalog": catalog, "database": bad, "synchronised": "no"}
    with pytest.raises(BusError, match="which this node uses for Beacon; give this node another number"):
        open_bus(address(number=3, **options))
    with open_bus(address(number=4, **options)):
        pass  # it warns only: another node may have that number


# -- addresses ---------------------------------------------------------------------------------------------------------


def test_options_of_databases(car: Path) -> None:
    assert not parse_address("virtual?database=a.dbc").joins
    assert parse_address("virtual?database=a.dbc&name=gateway").joins
    assert parse_address("virtual?database=a.dbc,b/c.dbc").databases == (Path("a.dbc"), Path("b/c.dbc"))
    with pytest.raises(BusError, match="cyclic is about the messages of a database"):
        parse_address("virtual?cyclic=no")
    with pytest.raises(BusError, match="cyclic is 'maybe'; write yes or no"):
        parse_address("virtual?database=a.dbc&cyclic=maybe")
    with pytest.raises(BusError, match="database is empty"):
        parse_address("virtual?database=")
    with pytest.raises(DbcError, match=r"cannot read none\.dbc"):
        open_bus("can:virtual?database=none.dbc")


def test_the_monitor_shows_messages_of_databases(address: Callable[..., str], other: can.BusABC) -> None:
    with open_monitor(address()) as live:
        other.send(drive(3.0))
        other.send(can.Message(arbitration_id=256, data=b"", is_extended_id=False))
        other.send(can.Message(arbitration_id=0x7AB, data=b"", is_extended_id=False))
        wait_for(lambda: live.snapshot().frames == 3)
        shown = live.snapshot()
    assert [(each.channel, each.qos, each.events) for each in shown.channels] == [
        ("0x7ab", "FOREIGN", 1),
        ("Drive", "FOREIGN", 1),
    ]
    assert shown.dropped == {"Drive: too short: 0 of 4 bytes": 1}


# -- between processes -------------------------------------------------------------------------------------------------


@pytest.fixture
def multicast(car: Path) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("", 0))
        port = probe.getsockname()[1]
    return f"can:udp_multicast?channel={GROUP}&port={port}&hop_limit=0&database={car}"


SENDER = """
import sys, time
import can
port, frames, rate = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
with can.Bus(interface="udp_multicast", channel="{group}", port=port, hop_limit=0) as bus:
    begin = time.monotonic()
    for number in range(frames):
        left = begin + number / rate - time.monotonic()
        if left > 0.001:
            time.sleep(left)
        length = 4 if number % 10 else 2
        data = number.to_bytes(2, "little") + bytes(2)
        bus.send(can.Message(arbitration_id=256, data=data[:length], is_extended_id=False))
"""


@pytest.mark.slow
def test_frames_of_another_process_are_events_or_counted(multicast: str) -> None:
    port = multicast.split("port=")[1].split("&")[0]
    frames = 2000
    with open_bus(multicast) as bus:
        speeds: list[float] = []
        bus.collection(bus.types["Drive"]).subscribe(lambda event: speeds.append(event.speed))
        program = textwrap.dedent(SENDER).format(group=GROUP)
        subprocess.run([sys.executable, "-c", program, port, str(frames), "2000"], check=True, timeout=60)
        wait_for(lambda: bus.traffic().link.get("received", 0) >= frames)
        wait_for(lambda: len(speeds) >= frames * 9 // 10)
        link = bus.traffic().link
        assert link["received: Drive"] + link["dropped: Drive: too short: 2 of 4 bytes"] == frames
        assert speeds == [number * 0.01 for number in range(frames) if number % 10]


@pytest.mark.skipif(not Path("/proc/net/udp").exists(), reason="the system does not count what sockets lose")
def test_what_a_socket_loses_is_counted() -> None:
    """A program that does not read in time, as its computer is busy."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        receiver.bind(("127.0.0.1", 0))
        receiver.setblocking(False)
        for _ in range(500):
            sender.sendto(bytes(60), receiver.getsockname())
        held = 0
        with suppress(BlockingIOError):
            while receiver.recv(100):
                held += 1
        assert 0 < held < 500
        assert lost_datagrams(receiver.fileno()) == 500 - held
        assert enlarge_buffer(receiver.fileno()) > 8192 * 2


# -- commands ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_commands_know_the_types_of_the_address(multicast: str, tmp_path: Path) -> None:
    listening = subprocess.Popen(
        [sys.executable, "-m", "genus", "sub", "--bus", multicast, "Lamp where on == 1", "--limit", "1", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert listening.stderr is not None
    assert "listening" in listening.stderr.readline()
    done = CliRunner().invoke(genus, ["pub", "--bus", multicast, "Lamp", "on=1"])
    assert done.exit_code == 0, done.output
    out, _ = listening.communicate(timeout=60)
    assert json.loads(out)["on"] == 1
