"""J1939 messages of a database on a bus, without I/O: addresses in identifiers, and messages longer than a frame."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import can
from genus import Catalog, open_bus
from genus.can import Frame, J1939Broadcast, J1939Id, load_dbc
from genus.can._foreign_receiver import TRANSPORT, Databases, LiveCollision, find_live_collisions
from genus.can._wire.frame import Identifier
from genus.errors import BusError, EventError
from tests.can.test_foreign import MS, Driven
from tests.examples import examples

TRUCK = """VERSION ""
NS_ :
BS_:
BU_: Engine Brake

BO_ 2364540158 EEC1: 8 Engine
 SG_ rpm : 24|16@1+ (0.125,0) [0|8031.875] "1/min" Brake

BO_ 2348810494 TSC1: 8 Brake
 SG_ torque : 8|8@1+ (1,-125) [-125|125] "%" Engine

BO_ 2566834942 DM1: 12 Engine
 SG_ lamp : 0|8@1+ (1,0) [0|0] "" Brake
 SG_ code : 64|32@1+ (1,0) [0|0] "" Brake

BA_DEF_ BO_ "VFrameFormat" ENUM "StandardCAN","ExtendedCAN","reserved","J1939PG";
BA_DEF_DEF_ "VFrameFormat" "J1939PG";
"""


@pytest.fixture(scope="module")
def truck(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("truck") / "Truck.dbc"
    path.write_text(TRUCK)
    return path


@pytest.fixture
def driven(truck: Path) -> Driven:
    return Driven(truck)


def test_frames_of_any_source_and_priority_are_events_with_these(driven: Driven) -> None:
    driven.subscribe(driven.types["EEC1"])
    driven.receive(Frame(J1939Id(6, 61444, 11).pack(), bytes([0, 0, 0, 64, 31, 0, 0, 0])))
    (event,) = driven.events
    assert (event.rpm, event.source, event.priority, event.pgn) == (1000.0, 11, 6, 61444)


def test_published_events_choose_their_addresses(driven: Driven) -> None:
    driven.publish(driven.types["TSC1"](torque=10, source=3, destination=0, priority=2))
    driven.publish(driven.types["TSC1"](torque=10, source=3))
    identifiers = [J1939Id.unpack(frame.id) for _, frame in driven.sent]
    assert identifiers == [J1939Id(2, 0, 3, 0), J1939Id(3, 0, 3, 0)], "the destination of the file, if none is given"
    with pytest.raises(EventError, match="TSC1 cannot have priority 9"):
        driven.publish(driven.types["TSC1"](torque=10, priority=9))
    with pytest.raises(EventError, match=r"TSC1\.pgn is 7; it must be 0"):
        driven.publish(driven.types["TSC1"](torque=10, pgn=7))


def test_a_long_message_arrives_as_one_event(driven: Driven) -> None:
    driven.subscribe(driven.types["DM1"])
    assert driven.filters is not None
    assert set(TRANSPORT) <= set(driven.filters.filters)
    data = bytes([3]) + bytes(7) + (77).to_bytes(4, "little")
    for at_us, part in J1939Broadcast(65226, data, source=9).frames(0):
        driven.now = at_us * 1000
        driven.receive(Frame(part.frame_id, part.data))
    (event,) = driven.events
    assert (event.lamp, event.code, event.source) == (3, 77, 9)
    assert driven.machine.rx.parts == 3
    assert driven.machine.dropped() == {}


def test_a_long_message_that_does_not_arrive_is_counted(driven: Driven) -> None:
    driven.subscribe(driven.types["DM1"])
    frames = list(J1939Broadcast(65226, bytes(12), source=9).frames(0))
    for at_us, part in [frames[0], frames[0], *frames[2:]]:
        driven.now = at_us * 1000
        driven.receive(Frame(part.frame_id, part.data))
    driven.now += 10_000 * MS
    driven.receive(Frame(frames[0][1].frame_id, frames[0][1].data))
    assert driven.events == []
    reasons = driven.machine.dropped()
    assert reasons
    assert all(reason.startswith("long message incomplete: ") for reason in reasons)


def test_a_long_event_is_broadcast_at_the_pace_of_j1939(driven: Driven) -> None:
    driven.publish(driven.types["DM1"](lamp=1, code=2, source=5))
    driven.publish(driven.types["DM1"](lamp=3, code=4, source=5))
    driven.until(1000 * MS)
    assert [at // MS for at, _ in driven.sent] == [0, 50, 100, 150, 200, 250]
    receiver = Driven(driven.databases._databases[0].path)
    receiver.subscribe(receiver.types["DM1"])
    for at, frame in driven.sent:
        receiver.now = at
        receiver.receive(frame)
    assert [(event.lamp, event.code, event.source) for event in receiver.events] == [(1, 2, 5), (3, 4, 5)]
    assert [(event.lamp, event.code) for event in driven.events] == [(1, 2), (3, 4)]


def test_a_cyclic_long_message_is_broadcast_again(driven: Driven) -> None:
    driven.publish(driven.types["DM1"](lamp=1, code=2), 500 * MS)
    driven.until(1200 * MS)
    assert [at // MS for at, _ in driven.sent] == [0, 50, 100, 500, 550, 600, 1000, 1050, 1100]


def test_a_period_shorter_than_the_broadcast_leaves_frames_out(driven: Driven) -> None:
    driven.publish(driven.types["DM1"](lamp=1, code=2), 60 * MS)
    driven.until(400 * MS)
    starts = [at // MS for at, frame in driven.sent if frame.data[0] == 32]
    assert starts == [0, 150, 300], "50 ms after the broadcast before"
    assert driven.machine.dropped()["cyclic frames left out"] > 0


def test_a_long_message_for_one_node_is_refused(driven: Driven, tmp_path: Path) -> None:
    path = tmp_path / "Proprietary.dbc"
    path.write_text(TRUCK.replace("BO_ 2566834942 DM1", "BO_ 2565800190 DM1"))  # PDU1, destination 0
    made = Driven(path)
    with pytest.raises(EventError, match=r"DM1\.destination is 0, but messages of more than 8 bytes"):
        made.publish(made.types["DM1"](lamp=1, code=2))
    plain = tmp_path / "Plain.dbc"
    plain.write_text(TRUCK.replace('DEF_DEF_ "VFrameFormat" "J1939PG"', 'DEF_DEF_ "VFrameFormat" "ExtendedCAN"'))
    other = Driven(plain)
    with pytest.raises(BusError, match="DM1 has 12 bytes, more than a classic frame holds"):
        other.publish(other.types["DM1"](lamp=1, code=2))


@given(
    st.integers(0, 255),
    st.integers(0, 7),
    st.one_of(st.none(), st.integers(0, 255)),
    st.integers(0, 250).map(lambda raw: raw - 125),
)
@examples(200)
def test_decoding_is_the_inverse_of_encoding_addresses_included(
    truck: Path, source: int, priority: int, destination: int | None, torque: int
) -> None:
    driven = Driven(truck)
    event = driven.types["TSC1"](torque=torque, source=source, priority=priority, destination=destination)
    frame = driven.databases.encode(event)
    driven.subscribe(driven.types["TSC1"])
    driven.receive(frame)
    (found,) = driven.events
    wanted = (torque, source, priority, 0 if destination is None else destination)
    assert (found.torque, found.source, found.priority, found.destination) == wanted


# -- beside nodes of Genus ---------------------------------------------------------------------------------------------


def test_a_node_whose_frames_look_like_j1939_is_found(truck: Path) -> None:
    """What a database claims never gets to the node, so each such number must be told."""
    databases = Databases([load_dbc(truck)])
    nodes = [*range(1, 6), 39, 40, 44, 47, 48, 60, 63, 64, 65, 100, 122, 126]
    found = {each.identifier.node: each for number in nodes for each in _certain(databases, number)}
    ids = (
        Identifier(priority, node, etag)
        for node in nodes
        for priority in range(32)
        for etag in range(128, 1 << 14, 256)
    )
    claimed = {identifier.node for identifier in ids if databases.knows(Frame(identifier.pack()))}
    assert found.keys() == claimed
    assert {1, 2, 3, 44, 47, 64} <= claimed, "TSC1 is group 0, packets of long messages are 0xEB00, EEC1 is 0xF004"
    assert all(databases.knows(Frame(each.identifier.pack())) for each in found.values())


def _certain(databases: Databases, number: int) -> list[LiveCollision]:
    return [each for each in find_live_collisions(databases.messages, number, None) if each.is_certain]


def test_nodes_that_look_like_j1939_are_refused_or_told_in_one_line(
    truck: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    catalog = tmp_path / "city.json"
    Catalog.update(catalog)
    address = f"can:virtual?channel=looks&database={truck}&catalog={catalog}&synchronised=no&number="
    with pytest.raises(BusError, match="which this node uses for its channels; give this node another number"):
        open_bus(f"{address}44")
    with open_bus(f"{address}5"):
        assert caplog.text.count("let no node have the numbers 1, 2, 3, 40, ") == 1


def test_closing_sends_long_messages_to_their_end(truck: Path) -> None:
    with can.Bus(interface="virtual", channel="long") as device:
        with open_bus(f"can:virtual?channel=long&database={truck}") as bus:
            bus.publish(bus.types["DM1"](lamp=1, code=7))
        sent = [message.data[0] for message in iter(lambda: device.recv(0), None)]
    assert sent == [0x20, 1, 2], "the announcement, and two packets at the pace of J1939"
