"""J1939 databases: frames have numbers for addresses, several messages may share a group, long messages and names."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from genus import Event, Subscription, open_bus
from genus.bus import read_recording
from genus.bus._codec import Rejected
from genus.can._dbc import Dbc, Decoding, decode_log, load_dbc
from genus.can._dbc.columns import ColumnDecoder, DecodedFrames, LongColumns, PartFrames
from genus.can._j1939 import ClaimedNames, J1939Id, J1939Name, destination_of, pgn_of
from genus.can._logs import read_log
from genus.can._logs.text_reader import parse_candump
from genus.cli._can_dbc import decode, types_
from genus.errors import SubscriptionError
from genus.targets import arrow

from .truck import EEC1, MARKED, MESSAGES, TRUCK, TSC1, VIN, Label, Line, candump, dbc_id, traffic

NAME = J1939Name(74565, 89, 1, 2, 130, 0, 3, 4, 5, 1)


def load(folder: Path, text: str = TRUCK, **options: Any) -> Dbc:
    path = folder / "truck.dbc"
    path.write_text(text)
    return load_dbc(path, **options)


@pytest.fixture(scope="module")
def truck(tmp_path_factory: pytest.TempPathFactory) -> Dbc:
    return load(tmp_path_factory.mktemp("truck"))


# -- identifiers -------------------------------------------------------------------------------------------------------


@given(frame_id=st.integers(0, (1 << 29) - 1))
def test_an_identifier_is_its_fields(frame_id: int) -> None:
    """PDU1 has a destination and no group extension, PDU2 the other way round; nothing else is lost."""
    found = J1939Id.unpack(frame_id)
    assert found.pack() == frame_id
    assert (found.destination is None) == (frame_id >> 16 & 0xFF >= 240)
    assert (found.pgn, found.destination) == (pgn_of(frame_id), destination_of(frame_id))


@pytest.mark.parametrize(
    "fields", [(8, 0, 0, 0), (0, 1, 0, 0), (0, 1 << 18, 0, None), (0, 0, 256, 0), (0, 65226, 0, 1)]
)
def test_fields_that_fit_no_identifier_are_refused(fields: tuple[int, int, int, int | None]) -> None:
    with pytest.raises(ValueError, match=r"does not fit|has no destination"):
        J1939Id(*fields).pack()


# -- attributes --------------------------------------------------------------------------------------------------------


def test_source_is_a_number(truck: Dbc) -> None:
    cls = truck.types["TSC1"]
    event: Any = truck.decode(J1939Id(3, TSC1, 11, 0).pack(), bytes(8), True)
    assert type(event).__name__ == "TSC1"
    assert (event.source, event.destination, event.priority, event.pgn, event.sender) == (11, 0, 3, 0, "Brakes")
    for text, answer in {
        "TSC1 where source == 11": True,
        "TSC1 where source == 12": False,
        "TSC1 where source in (3, 11) and destination == 0 and priority < 4 and pgn == 0": True,
        "TSC1 where sender == 'Brakes'": True,
        "TSC1 has source": True,
        "truck has source": False,
        "Event where source == 'Brakes'": False,
        "Event lacks source": True,
    }.items():
        assert Subscription.parse(text, [truck.kind, cls, Event]).matches(event) is answer, text
    with pytest.raises(SubscriptionError, match="source is uint8, but '0x0b' is str"):
        Subscription.parse("TSC1 where source == '0x0b'", [cls])


def test_a_group_for_all_nodes_has_no_destination(truck: Dbc) -> None:
    event: Any = truck.decode(J1939Id(6, EEC1, 3).pack(), bytes(8), True)
    assert (event.source, event.destination, event.sender) == (3, None, None)
    assert event.priority == 6
    assert event.priority_ == 0, "the signal of that name has another"


def test_other_messages_of_the_file_keep_the_name_of_their_sender(truck: Dbc) -> None:
    event: Any = truck.decode(256, bytes(2))
    assert event.source == "Cruise"
    assert Subscription.parse("Event where source == 'Cruise'", [Event]).matches(event)


def test_an_event_that_states_no_addresses_has_those_of_the_file(truck: Dbc) -> None:
    tsc1: Any = truck.types["TSC1"]
    made = tsc1(mode=1, speed=600.0, torque=5)
    assert (made.source, made.destination, made.priority, made.pgn) == (11, None, 3, 0)


def test_a_bus_does_not_stamp_its_name_where_sources_are_numbers(truck: Dbc) -> None:
    event: Any = truck.decode(J1939Id(3, TSC1, 17, 0).pack(), bytes(8), True)
    found: list[Event] = []
    with open_bus("local:", source="node", check=True) as bus:
        bus.collection(Event).subscribe(found.append)
        bus.publish(event)
        local: Any = truck.types["Local"]
        bus.publish(local(level=1.0))
    assert [each.source for each in found] == [17, "node"]


# -- a labelled set ----------------------------------------------------------------------------------------------------


def wanted(lines: list[Line]) -> list[Label]:
    """What was sent as TSC1 from address 11."""
    labels = [line.label for line in lines if line.label is not None]
    return [label for label in labels if label.pgn == TSC1 and label.source == 11]


@pytest.mark.parametrize("seed", range(3))
def test_all_frames_of_a_labelled_set_are_found(truck: Dbc, seed: int, tmp_path: Path) -> None:
    """Frame by frame, in a recording, and in columns: those of the right source, whatever priority and destination."""
    lines = traffic(seed, 600)
    log = tmp_path / "truck.log"
    log.write_text(candump(lines))
    labels = wanted(lines)
    assert len(labels) > 20
    assert len({(label.destination, label.priority) for label in labels}) > 10
    asked = Subscription.parse("TSC1 where source == 11", [truck.types["TSC1"]])
    decoding = decode_log(truck, log, tmp_path / "truck.genus", subscription=asked)
    events: list[Any] = [each.event for each in read_recording(tmp_path / "truck.genus", truck.types.values())]
    assert [(e.pgn, e.source, e.destination, e.priority) for e in events] == [label[:4] for label in labels]
    assert decoding.frames == len(lines), "every frame is accounted for"
    assert not decoding.incomplete
    assert decoding.long_messages == sum(line.label is not None and len(line.label.data) > 8 for line in lines)
    (frames,) = parse_candump(log.read_bytes()).frames
    decoder = ColumnDecoder(truck.all_messages)
    whole = LongColumns(truck.all_messages).add(frames)
    assert whole is not None
    parts = [*decoder.decode(frames), *decoder.decode(whole, are_whole=True)]
    found = [part.batch for part in parts if isinstance(part, DecodedFrames) and part.message.type_name == "TSC1"]
    rows = [row for batch in found for row in batch.to_pylist() if row["source"] == 11]
    assert Counter((row["destination"], row["priority"]) for row in rows) == Counter(label[2:4] for label in labels)


def test_the_arrow_target_finds_them_too(truck: Dbc) -> None:
    cls = truck.types["TSC1"]
    events = [truck.decode(J1939Id(3, TSC1, source, 0).pack(), bytes(8), True) for source in range(256)]
    batch = arrow.to_batch([event for event in events if isinstance(event, Event)])
    mask = arrow.compile(Subscription.parse("TSC1 where source == 11", [cls])).mask(batch).to_pylist()
    assert [number for number, answer in enumerate(mask) if answer] == [11]


# -- several messages of one group -------------------------------------------------------------------------------------


def one_byte(*identifiers: int, different: bool = True) -> str:
    """Messages M0, M1, ... with these identifiers; their signals are different, or not."""
    body = "".join(
        f'BO_ {each} M{n}: 8 A\n SG_ s : {n if different else 0}|8@1+ (1,0) [0|0] "" A\n'
        for n, each in enumerate(identifiers)
    )
    return f'VERSION ""\nBU_: A\n{body}{MARKED}'


def test_the_source_decides_between_messages_of_a_group(tmp_path: Path) -> None:
    dbc = load(tmp_path, one_byte(dbc_id(3, EEC1, 0), dbc_id(3, EEC1, 17), dbc_id(3, EEC1, 0xFE)))

    def name(source: int, priority: int = 3) -> str | None:
        found = dbc.message_of(J1939Id(priority, EEC1, source).pack(), True)
        return None if found is None else found.name

    assert [name(0), name(0, 6), name(17), name(17, 0), name(33), name(0xFE)] == ["M0", "M0", "M1", "M1", "M2", "M2"]
    assert dbc.problems == (f"M0 and M1 and M2: have PGN {EEC1}; frames from other sources are M2",)


def test_the_destination_decides_after_the_source(tmp_path: Path) -> None:
    ids = dbc_id(3, TSC1, 11, 0), dbc_id(3, TSC1, 11, 15), dbc_id(3, TSC1, 11, 255), dbc_id(3, TSC1, 17, 15)
    dbc = load(tmp_path, one_byte(*ids))

    def name(source: int, destination: int) -> str | None:
        found = dbc.message_of(J1939Id(0, TSC1, source, destination).pack(), True)
        return None if found is None else found.name

    assert [name(11, 0), name(11, 15), name(11, 3), name(17, 15), name(17, 0)] == ["M0", "M1", "M2", "M3", "M3"]
    assert [name(33, 0), name(33, 3)] == ["M0", "M2"], "of all sources, the destination is left"
    assert name(33, 15) is None, "two are left, and differ"
    reason = f"several messages of PGN {TSC1}, none for these addresses"
    frame_id = J1939Id(0, TSC1, 33, 15).pack()
    assert dbc.decode(frame_id, bytes(8), True) == Rejected(reason)


def test_groups_that_cannot_be_decided_are_reported(tmp_path: Path) -> None:
    dbc = load(tmp_path, one_byte(dbc_id(3, EEC1, 0), dbc_id(3, EEC1, 17)))
    assert dbc.type_of(J1939Id(3, EEC1, 33).pack(), True) is None
    assert dbc.problems == (
        f"M0 and M1: have PGN {EEC1} and different signals; frames from other sources are not decoded",
    )
    alike = load(tmp_path, one_byte(dbc_id(3, EEC1, 0), dbc_id(3, EEC1, 17), different=False))
    assert alike.type_of(J1939Id(3, EEC1, 33).pack(), True) is alike.types["M0"]


def test_a_message_that_is_repeated_for_other_addresses_is_one_type(tmp_path: Path) -> None:
    """Otherwise `M where source == 11` would have to be asked of the type whose example has that address."""
    text = one_byte(dbc_id(3, TSC1, 3, 0), dbc_id(3, TSC1, 11, 0), different=False).replace(" M1:", " M0:")
    dbc = load(tmp_path, text)
    assert [message.type_name for message in dbc.messages] == ["M0"]
    assert "M0: is in the file twice; the first is left out" in dbc.problems
    for source in (3, 11, 33):
        assert dbc.type_of(J1939Id(6, TSC1, source, 15).pack(), True) is dbc.types["M0"]
    different = load(tmp_path, one_byte(dbc_id(3, TSC1, 3, 0), dbc_id(3, TSC1, 11, 0)).replace(" M1:", " M0:"))
    assert [message.type_name for message in different.messages] == ["M0", "M0_2"]


# -- files that do not say it ------------------------------------------------------------------------------------------


def test_a_switch_makes_a_file_one_of_j1939(tmp_path: Path) -> None:
    plain = load(tmp_path, MESSAGES)
    assert plain.type_of(J1939Id(6, TSC1, 17, 3).pack(), True) is None
    (hint,) = plain.problems
    assert hint.startswith(
        "3 of 3 messages with 29-bit identifiers have parameter groups of J1939, such as TSC1 (PGN 0)"
    )
    event: Any = load(tmp_path, MESSAGES, j1939=True).decode(J1939Id(6, TSC1, 17, 3).pack(), bytes(8), True)
    assert (event.source, event.destination) == (17, 3)
    assert load(tmp_path, TRUCK, j1939=False).type_of(J1939Id(6, TSC1, 17, 3).pack(), True) is None
    assert not load(tmp_path, MESSAGES, j1939=False).problems, "who says it is none needs no hint"


def test_a_file_may_say_it_of_the_whole_bus(tmp_path: Path) -> None:
    said = 'BA_DEF_ "ProtocolType" STRING ;\nBA_DEF_DEF_ "ProtocolType" "";\nBA_ "ProtocolType" "J1939";\n'
    dbc = load(tmp_path, MESSAGES + said)
    assert [message.j1939 for message in dbc.messages] == [True, True, True, False]
    assert not dbc.problems


# -- long messages -----------------------------------------------------------------------------------------------------


def test_long_messages_of_a_log_are_events(truck: Dbc, tmp_path: Path) -> None:
    """With the values that one long frame would have; what is incomplete is counted."""
    lines = traffic(11, 400)
    log = tmp_path / "truck.log"
    log.write_text(candump(lines))
    decoding = Decoding(truck, read_log(log))
    found: list[Any] = [each.event for each in decoding if type(each.event) is truck.types["VehicleIdentification"]]
    labels = [line.label for line in lines if line.label is not None and line.label.pgn == VIN]
    whole = [label for label in labels if len(label.data) >= 17]
    assert len(whole) > 20
    assert [(e.source, int.from_bytes(e.first, "big"), e.last) for e in found] == [
        (label.source, int.from_bytes(label.data[:8], "little"), label.data[16]) for label in whole
    ]
    assert decoding.rejected["VehicleIdentification: too short: 9 of 17 bytes"] == len(labels) - len(whole)
    log.write_text(candump([line for line in lines if line.frame_id != 0x1CEBFF03]))
    again = Decoding(truck, read_log(log))
    assert sum(1 for _ in again) < decoding.events.total()
    assert again.incomplete
    assert again.frames == sum(line.frame_id != 0x1CEBFF03 for line in lines)


def test_the_frames_of_each_channel_are_put_together_alone(truck: Dbc, tmp_path: Path) -> None:
    lines = [line for line in traffic(5, 300) if line.frame_id >> 16 & 0xFF in (0xEB, 0xEC)]
    both = [
        text
        for pair in zip(candump(lines).splitlines(), candump(lines, "can1").splitlines(), strict=True)
        for text in pair
    ]
    log = tmp_path / "two.log"
    log.write_text("\n".join(both) + "\n")
    decoding = Decoding(truck, read_log(log))
    places = Counter(each.event.place for each in decoding)
    assert places["can0"] == places["can1"] > 10
    assert decoding.long_messages == 2 * sum(line.label is not None for line in lines)
    assert not decoding.incomplete


def test_transport_frames_that_the_file_describes_are_events_too(tmp_path: Path) -> None:
    own = f'BO_ {dbc_id(7, 60416, 0xFE, 255)} TPCM: 8 Engine\n SG_ control : 0|8@1+ (1,0) [0|0] "" Brakes\n'
    dbc = load(tmp_path, MESSAGES.replace("BO_ 256", f"{own}BO_ 256") + MARKED)
    lines = traffic(2, 100)
    log = tmp_path / "truck.log"
    log.write_text(candump(lines))
    decoding = Decoding(dbc, read_log(log))
    names = Counter(type(each.event).__name__ for each in decoding)
    assert names["TPCM"] == sum(line.frame_id >> 16 & 0xFF == 0xEC for line in lines)
    assert names["VehicleIdentification"] > 0
    assert decoding.frames == len(lines)
    (frames,) = parse_candump(log.read_bytes()).frames
    parts = [part for part in ColumnDecoder(dbc.all_messages).decode(frames) if isinstance(part, PartFrames)]
    assert sum(len(part.rows) for part in parts) == decoding.parts


def test_a_truncated_long_message_decodes_as_far_as_it_reaches(tmp_path: Path) -> None:
    """In one frame, or put together: in columns as frame by frame."""
    dbc = load(tmp_path, truncated=True)
    (message,) = (each for each in dbc.messages if each.pgn == VIN)
    frame_id = J1939Id(6, VIN, 3).pack()
    log = tmp_path / "truck.log"
    log.write_text(candump([Line(number, frame_id, True, bytes(range(number)), None) for number in range(9)]))
    (frames,) = parse_candump(log.read_bytes()).frames
    (part,) = ColumnDecoder(dbc.all_messages).decode(frames)
    assert isinstance(part, DecodedFrames)
    names = {signal.attribute for signal in message.signals}
    rows = [{name for name in names if row.get(name) is not None} for row in part.batch.to_pylist()]
    events = [dbc.decode(frame_id, bytes(range(number)), True) for number in range(9)]
    assert rows == [{name for name in names if getattr(event, name) is not None} for event in events]
    assert rows[-1] == {"first"}


def test_fast_packets_of_nmea_2000(tmp_path: Path) -> None:
    """The message is longer than a frame, and the switch says how it is sent."""
    position = f"""VERSION ""
BU_: GPS
BO_ {dbc_id(3, 129029, 0xFE)} Position: 43 GPS
 SG_ days : 8|16@1+ (1,0) [0|0] "d" GPS
 SG_ latitude : 56|64@1- (1e-16,0) [0|0] "deg" GPS
"""
    dbc = load(tmp_path, position, nmea2000=True)
    data = bytes(range(43))
    parts = [bytes([43]) + data[:6], *(data[at : at + 7] for at in range(6, 43, 7))]
    frames = [
        Line(n * 1000, 0x0DF80523, True, bytes([n]) + part.ljust(7, b"\xff"), None) for n, part in enumerate(parts)
    ]
    log = tmp_path / "boat.log"
    log.write_text(candump(frames))
    decoding = Decoding(dbc, read_log(log))
    (recorded,) = decoding
    whole: Any = dbc.decode(0x0DF80523, data, True)
    event: Any = recorded.event
    assert (event.days, event.latitude, event.source) == (whole.days, whole.latitude, 0x23)
    assert (decoding.frames, decoding.parts, decoding.long_messages) == (7, 7, 1)
    assert not Decoding(load(tmp_path, position, j1939=True), read_log(log)).parts


# -- names -------------------------------------------------------------------------------------------------------------


def test_a_name_is_its_fields() -> None:
    assert J1939Name.unpack(NAME.pack()) == NAME
    with pytest.raises(ValueError, match="manufacturer_code is 2048, but has 11 bits"):
        J1939Name(manufacturer_code=2048).pack()


@given(number=st.integers(0, (1 << 64) - 1))
def test_every_number_of_64_bits_is_a_name(number: int) -> None:
    assert J1939Name.unpack(number).pack() == number


def test_address_claims_are_events_of_every_j1939_database(truck: Dbc) -> None:
    data = NAME.pack().to_bytes(8, "little")
    event: Any = truck.decode(0x18EEFF0B, data, True)
    fields = {name: getattr(event, name) for name in NAME._fields if name != "reserved"}
    assert fields == {name: value for name, value in NAME._asdict().items() if name != "reserved"}
    assert (event.source, int.from_bytes(event.name, "big")) == (11, NAME.pack())
    asked: Any = truck.decode(0x18EAFF21, bytes([0, 0xEE, 0]), True)
    assert (type(asked).__name__, asked.source, asked.destination, asked.requested_pgn) == (
        "PgnRequested",
        33,
        255,
        60928,
    )


def test_a_log_tells_which_controller_has_which_address(truck: Dbc, tmp_path: Path) -> None:
    first, second = NAME, NAME._replace(identity_number=7)
    claims = [(0x0B, first), (0x0C, second), (0x0B, second), (0xFE, first), (0x0D, first)]
    lines = [
        Line(n, 0x18EEFF00 | source, True, name.pack().to_bytes(8, "little"), None)
        for n, (source, name) in enumerate(claims)
    ]
    log = tmp_path / "claims.log"
    log.write_text(candump(lines))
    decoding = Decoding(truck, read_log(log))
    assert sum(1 for _ in decoding) == 5
    assert dict(decoding.names["can0"]) == {0x0B: second, 0x0D: first}, "the smaller NAME wins; a node may move"


def test_frames_that_are_no_claims_claim_nothing() -> None:
    names = ClaimedNames()
    names.receive(0x18FECA0B, bytes(8))
    names.receive(0x18EEFF0B, bytes(7))
    assert len(names) == 0


# -- commands ----------------------------------------------------------------------------------------------------------


def test_commands_take_the_switch(tmp_path: Path) -> None:
    (tmp_path / "plain.dbc").write_text(MESSAGES)
    shown = CliRunner().invoke(types_, [str(tmp_path / "plain.dbc"), "--j1939", "--json"])
    assert shown.exit_code == 0
    assert '"AddressClaimed"' in shown.output
    lines = traffic(3, 200)
    (tmp_path / "truck.log").write_text(candump(lines))
    asked = ["-s", "TSC1 where source == 11", "--json"]
    done = CliRunner().invoke(
        decode, [str(tmp_path / "truck.log"), "--dbc", str(tmp_path / "plain.dbc"), "--j1939", *asked]
    )
    assert done.exit_code == 0
    assert sum('"source":11' in line.replace(" ", "") for line in done.output.splitlines()) == len(wanted(lines)) > 5
    assert "parts of long messages" in done.stderr
