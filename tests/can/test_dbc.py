"""Event types from DBC files, and frames decoded to their events, against cantools."""

import gzip
import json
import math
import random
import subprocess
import sys
import types
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import cantools.database
import msgspec
import pytest
from cantools.database.can import Database
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from genus import Catalog, Event, Subscription, check
from genus.bus import read_recording
from genus.bus._codec import Rejected, encode_event
from genus.can._dbc import Dbc, SignalLayout, decode_log, load_dbc, python_source
from genus.can._dbc.message_types import MessageDecoder
from genus.can._logs import read_log
from genus.cli import genus
from genus.cli._can_dbc import types_
from genus.errors import DbcError
from genus.model import attributes, name_of, parents, signature, subtypes, vector
from genus.model.types import ChoiceType

DATA = Path(__file__).parents[3] / "shared" / "data" / "can"
GOLDEN = Path(__file__).parent / "golden"
HOUSE = GOLDEN / "house.dbc"
TESLA = DATA / "tesla"

REFUSED_BY_CANTOOLS = {"issue_199.dbc", "issue_199_extended.dbc"}
LENIENT = {"bad_message_length.dbc", "issue_63.dbc"}


def dbc_files() -> list[Path]:
    return sorted(path for path in (DATA / "dbc_cantools").glob("*") if path.suffix.lower() == ".dbc")


needs_data = pytest.mark.skipif(not DATA.exists(), reason=f"real data not found: {DATA}")


HOUSE_DBC = load_dbc(HOUSE)


@pytest.fixture
def house() -> Dbc:
    return HOUSE_DBC


@pytest.fixture(scope="module")
def tesla() -> Dbc:
    if not TESLA.exists():
        pytest.skip(f"real data not found: {TESLA}")
    return load_dbc(TESLA / "Model3CAN.dbc")


@pytest.fixture(scope="module")
def real(tesla: Dbc) -> dict[str, Dbc]:
    """Every real DBC file that can be read."""
    found = {path.name: load_dbc(path) for path in dbc_files() if path.name not in REFUSED_BY_CANTOOLS}
    return found | {"Model3CAN.dbc": tesla}


def written(text: str, folder: Path, name: str = "made.dbc") -> Dbc:
    (folder / name).write_text(f'VERSION ""\nNS_ :\nBS_:\nBU_: A B\n\n{text}\n')
    return load_dbc(folder / name)


def described(dbc: Dbc, name: str) -> dict[str, str]:
    """The attributes of a type, without those of every event, as texts."""
    own = [each for each in attributes(dbc.types[name]) if each not in attributes(Event)]
    return {each.name: f"{str(each).partition(': ')[2]}{f' [{each.unit}]' if each.unit else ''}" for each in own}


def number(value: Any) -> Any:
    """A value as cantools has it: integers too wide for an attribute are bytes."""
    return int.from_bytes(value, "big") if isinstance(value, bytes) else value


def same(ours: Any, theirs: Any) -> bool:
    return bool(ours == theirs) or (isinstance(ours, float) and math.isnan(ours) and math.isnan(theirs))


# -- types ---------------------------------------------------------------------------------------------------------


def test_a_message_becomes_a_type_and_a_signal_an_attribute_with_its_unit(house: Dbc) -> None:
    identifier = {"source": "uint8", "destination": "uint8?", "priority": "uint8", "pgn": "uint32", "sender": "str?"}
    assert described(house, "Engine") == {**identifier, "rpm": "float64 [1/min]"}
    assert issubclass(house.types["Engine"], Event)
    assert signature(house.types["Engine"]).family == "Engine"
    assert parents(house.types["Engine"]) == (Event, house.kind)
    assert name_of(house.kind) == "house"


def test_integers_have_the_narrowest_type_that_holds_every_value(house: Dbc) -> None:
    found = described(house, "Lamp") | described(house, "Event_")
    assert found["mode"] == "uint8"
    assert found["in_"] == "int16?"
    assert found["count"] == "uint32?"
    assert found["lambda_"] == "int8", "4 bits signed, times 10, less 5: -85 to 65"


@pytest.mark.parametrize(
    ("layout", "annotation"),
    [
        ("0|1@1+ (1,0)", "UInt8"),
        ("0|8@1- (1,0)", "Int8"),
        ("0|8@1- (-1,0)", "Int16"),
        ("0|8@1+ (1,-1)", "Int16"),
        ("0|16@1+ (1,0)", "UInt16"),
        ("0|31@1+ (3,0)", "Int64"),
        ("0|32@1+ (1,0)", "UInt32"),
        ("0|63@1+ (1,0)", "Int64"),
        ("0|64@1- (1,0)", "Int64"),
        ("0|64@1+ (1,0)", "bytes"),
        ("0|64@1+ (1,-9223372036854775808)", "Int64"),
        ("0|64@1- (2,0)", "float"),
        ("0|8@1+ (1.0,0.0)", "UInt8"),
        ("0|8@1+ (0.5,0)", "float"),
        ("0|8@1+ (1,0.5)", "float"),
    ],
)
def test_values_stay_exact_whatever_the_scale(layout: str, annotation: str, tmp_path: Path) -> None:
    """Integral scale and offset keep integers; 64 unsigned bits are bytes; only what has fractions is a float."""
    dbc = written(f'BO_ 1 M: 8 A\n SG_ s : {layout} [0|0] "" B\n', tmp_path)
    assert dbc.messages[0].signals[0].annotation == annotation


def test_multiplexed_signals_may_be_absent(house: Dbc) -> None:
    found = described(house, "Event_")
    assert not found["which"].endswith("?")
    assert all(found[name].partition(" ")[0].endswith("?") for name in ("in_", "more", "level", "count"))


def test_a_value_table_is_an_enumeration_of_its_labels_beside_the_number(house: Dbc) -> None:
    found = described(house, "Lamp")
    assert found["mode"] == "uint8"
    assert found["mode_label_2"] == "off|100 %|on|not available?"
    assert found["celsius"] == "float64 [°C]"
    assert found["celsius_label"] == "not available|too hot?"


def test_names_that_cannot_stay_are_changed_by_one_rule_and_reported(house: Dbc) -> None:
    assert house.renamed == {
        "Event": "Event_",
        "Lamp": "Lamp_2",
        "Lamp.time": "time_",
        "Lamp._crc": "x_crc",
        "Lamp.lambda": "lambda_",
        "label of mode: Lamp.mode_label": "mode_label_2",
        "Event.in": "in_",
        "Meter.exact": "exact_",
    }
    assert list(house.types) == ["Lamp", "Event_", "Lamp_2", "Engine", "Meter", "AddressClaimed", "PgnRequested"]


def test_no_name_of_a_message_or_signal_is_lost(tmp_path: Path) -> None:
    """Context attributes, words of Python and of subscriptions, and those that types are declared with."""
    words = ["time", "source", "place", "deadline", "expires", "has", "where", "class", "None", "_", "__", "Maybe"]
    words += ["Kind", "UInt8", "Annotated", "float", "int", "Enum", "this", "time_", "x_", "mro", "name", "made"]
    signals = "".join(f' SG_ {word} : {at}|1@1+ (1,0) [0|0] "V" B\n' for at, word in enumerate(words))
    tables = "".join(f'VAL_ {at} {words[0]} 0 "{word}" 1 "" ;\n' for at, word in enumerate(words))
    messages = "".join(f"BO_ {at} {word}: 8 A\n{signals}\n" for at, word in enumerate(words))
    dbc = written(messages + tables, tmp_path)
    assert len(dbc.types) == len(words)
    for at in range(len(words)):
        event = dbc.decode(at, b"\xff" * 8)
        assert isinstance(event, Event)
        own = [each.name for each in attributes(type(event)) if each not in attributes(Event)]
        assert [number(getattr(event, name)) for name in own if not name.endswith("label")] == [1] * len(words)
    assert imported(dbc)["Maybe_"] is not None


def test_a_docstring_says_what_the_file_says(house: Dbc) -> None:
    doc = house.types["Lamp"].__doc__
    assert doc is not None
    assert doc.startswith("The lamp above the table,")
    assert doc.endswith("(frame 0x100, 8 bytes from Kitchen every 100 ms)")


def test_a_table_that_names_the_bits_of_a_negative_value_is_understood(house: Dbc) -> None:
    """32768 in a table of 16 signed bits is -32768."""
    event: Any = house.decode(256, bytes(6) + b"\x00\x80")
    assert event.celsius == -327.68
    assert event.celsius_label.value == "not available"


def test_one_label_for_several_values_is_one_member(house: Dbc) -> None:
    labels = vector(house.types["Lamp"]).find("mode_label_2").type
    assert isinstance(labels, ChoiceType)
    events: list[Any] = [house.decode(256, (mode << 12).to_bytes(8, "little")) for mode in (2, 3)]
    assert [event.mode for event in events] == [2, 3]
    assert {event.mode_label_2.value for event in events} == {"on"}


def test_what_no_value_can_be_made_of_is_left_out_and_said(tmp_path: Path) -> None:
    dbc = written(
        'BO_ 1 M: 2 A\n SG_ far : 8|16@1+ (1,0) [0|0] "" B\n SG_ near : 0|8@1+ (1,0) [0|0] "" B\n'
        ' SG_ huge : 0|8@1+ (1e308,1e308) [0|0] "" B\n SG_ odd : 0|8@1+ (1,0) [0|0] "" B\n',
        tmp_path,
    )
    assert set(described(dbc, "M")) == {"near", "odd"}
    assert "M.far: does not fit in the message's 2 bytes; it is left out" in dbc.problems
    assert "M.huge: has values that no float can hold; it is left out" in dbc.problems
    assert "M: signals overlap, and all are decoded: near and odd" in dbc.problems
    assert [number(each) for each in (dbc.decode(1, b"\x07\x00"),) if isinstance(each, Event)]


def test_two_messages_of_one_identifier_are_said(tmp_path: Path) -> None:
    dbc = written("BO_ 1 First: 1 A\n\nBO_ 1 Second: 1 A\n", tmp_path)
    assert dbc.problems == ("Second: has the identifier of First, and gets all of their frames",)
    assert dbc.type_of(1) is dbc.types["Second"]


@pytest.mark.parametrize("text", ["nonsense", "BO_ one M: 8 A\n", "\x00\xff\x00", "VERSION " * 999])
def test_a_file_that_is_no_dbc_is_one_clear_error(text: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.dbc"
    path.write_text(text)
    with pytest.raises(DbcError, match=r"bad\.dbc: cantools cannot read it as DBC: ") as raised:
        load_dbc(path)
    assert "\n" not in str(raised.value)


def test_sizes_that_would_take_all_memory_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DbcError, match="no message or signal is as large as 'BO_ 1 M: 9999999'"):
        written("BO_ 1 M: 9999999 A", tmp_path)
    signal = ' SG_ s : 0|8@1+ (1,0) [0|0] "" B\n SG_ t : 0|999999999@1+ (1,0) [0|0] "" B\n'
    dbc = written(f"BO_ 1 M: 8 A\n{signal}SG_MUL_VAL_ 1 s s 0-4294967295;\nBO_ 2 N: 9999999 A\n", tmp_path)
    assert described(dbc, "M") == {"s": "uint8"}
    assert list(dbc.types) == ["M"]
    assert [repair.partition(":")[0] for repair in dbc.repairs] == ["line 8", "line 9", "line 10"]


def test_a_file_that_is_not_there_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(DbcError, match="No such file"):
        load_dbc(tmp_path / "none.dbc")


def test_text_is_utf8_or_else_of_windows(tmp_path: Path) -> None:
    text = 'BO_ 1 M: 1 A\n SG_ s : 0|8@1+ (1,0) [0|0] "°C" B\n'
    for encoding in ("utf-8", "cp1252", "utf-8-sig"):
        (tmp_path / "made.dbc").write_bytes(f'VERSION ""\r\nBU_: A B\r\n{text}'.encode(encoding))
        assert described(load_dbc(tmp_path / "made.dbc"), "M") == {"s": "uint8 [°C]"}


# -- frames --------------------------------------------------------------------------------------------------------


def test_a_frame_becomes_an_event(house: Dbc) -> None:
    now = datetime(2026, 11, 15, 10, tzinfo=UTC)
    data = bytes([0xC8, 0x10, 0xFF, 1, 2, 0x0F, 0xFF, 0xFF])
    event: Any = house.decode(256, data, time=now, place="can0")
    assert house.type_of(256) is house.types["Lamp"]
    assert event.__class__.__name__ == "Lamp"
    assert (event.time, event.source, event.place) == (now, "Kitchen", "can0")
    assert (event.watts, event.mode, event.mode_label, event.time_, event.lambda_) == (100.0, 1, -1, 1, -15)
    assert event.mode_label_2.value == "100 %"
    assert (event.celsius, event.celsius_label) == (-0.01, None)
    check(event)


def test_a_value_outside_the_table_costs_only_its_label(house: Dbc) -> None:
    event: Any = house.decode(256, (5 << 12).to_bytes(8, "little"))
    assert (event.mode, event.mode_label_2) == (5, None)


def test_only_the_signals_a_multiplexer_selects_are_there(house: Dbc) -> None:
    def present(*data: int) -> dict[str, Any]:
        event = house.decode(512, bytes(data).ljust(8, b"\0"))
        assert isinstance(event, Event)
        own = {each.name: getattr(event, each.name) for each in attributes(type(event))}
        return {name: value for name, value in own.items() if value is not None}

    assert present(0, 0xFF, 0xFE, 0, 7) == {"which": 0, "in_": -2, "count": 7}
    assert present(5) == {"which": 5, "count": 0}
    assert present(1, 3, 4) == {"which": 1, "more": 3, "level": 2.0}
    assert set(present(9)) == {"which", "which_label"}, "the table says that 9 selects nothing"


def test_frames_that_do_not_decode_say_why(house: Dbc) -> None:
    assert house.decode(0x7FF, b"") == Rejected("unknown identifier")
    assert house.decode(256, bytes(8), extended=True) == Rejected("unknown identifier")
    assert house.decode(256, bytes(7)) == Rejected("Lamp: too short: 7 of 8 bytes")
    assert house.decode(512, b"\x02" + bytes(7)) == Rejected("Event_: multiplexer which selects nothing")
    assert house.decode(512, b"\x01\x02" + bytes(6)) == Rejected("Event_: multiplexer more selects nothing")


def test_a_frame_may_be_longer_than_its_message(house: Dbc) -> None:
    assert house.decode(256, bytes(8) + b"more") == house.decode(256, bytes(8))
    meter: Any = house.decode(512, b"\xff" * 8 + bytes(16) + b"padding of FD frames", extended=True)
    assert meter.serial == b"\xff" * 8


def test_a_truncated_frame_decodes_as_far_as_it_reaches_where_asked() -> None:
    """A signal is there if all of its bits are; what a multiplexer selects, only if the multiplexer is there too."""
    dbc = load_dbc(HOUSE, truncated=True)
    of_identifier = {"source", "priority", "pgn"}
    own = [(name, text) for each in dbc.types for name, text in described(dbc, each).items()]
    assert all("?" in text for name, text in own if name not in of_identifier)

    def present(frame_id: int, data: bytes) -> set[str]:
        event = dbc.decode(frame_id, data)
        assert isinstance(event, Event)
        check(event)
        return {each.name for each in attributes(type(event)) if getattr(event, each.name) is not None}

    whole = bytes([0xC8, 0x10, 0xFF, 1, 2, 0x0F, 0xFF, 0xFF])
    assert present(256, b"") == {"source"}
    assert present(256, whole[:1]) == {"source"}
    assert present(256, whole[:2]) == {"source", "watts", "mode", "mode_label_2"}
    assert present(256, whole) == {"source", *described(dbc, "Lamp")} - {"celsius_label"}
    assert present(512, b"\x01\x03") == {"which", "more"}
    assert dbc.decode(512, b"\x02") == Rejected("Event_: multiplexer which selects nothing")
    assert dbc.decode(512, b"") == dbc.types["Event_"]()


def test_a_frame_that_is_not_truncated_decodes_the_same_either_way(house: Dbc) -> None:
    either = load_dbc(HOUSE, truncated=True)
    for frame_id, data in ((256, bytes(range(8))), (512, b"\x01\x03\x04" + bytes(5))):
        one, other = house.decode(frame_id, data), either.decode(frame_id, data)
        assert repr(one) == repr(other)


def test_j1939_messages_are_known_by_their_parameter_group(house: Dbc) -> None:
    """Whatever priority and source address; the event's source is then the address."""
    data = bytes([0, 0, 0, 0x40, 0x1F, 0, 0, 0])
    own: Any = house.decode(0x0CF00421, data, extended=True)
    other: Any = house.decode(0x18F00433, data, extended=True)
    assert own.rpm == other.rpm == 1000.0
    assert (own.source, own.sender, own.priority, own.pgn, own.destination) == (0x21, "Cellar", 3, 61444, None)
    assert (other.source, other.sender, other.priority, other.pgn) == (0x33, None, 6, 61444)
    assert house.type_of(0x18F00433, extended=True) is type(own)
    assert house.type_of(0x18F00533, extended=True) is None
    assert house.type_of(0x0CF00421) is None


@given(frame_id=st.integers(), data=st.binary(max_size=70), extended=st.booleans())
def test_no_frame_raises(frame_id: int, data: bytes, extended: bool) -> None:
    for identifier in (frame_id, 256, 512, 0x0CF00421):
        assert isinstance(HOUSE_DBC.decode(identifier, data, extended), Event | Rejected)


@st.composite
def signals(draw: st.DrawFn) -> tuple[str, int]:
    """A signal that fits in a message of eight bytes, as a DBC file writes it, and its length."""
    length = draw(st.integers(1, 64))
    first = draw(st.integers(0, 64 - length))
    big_endian = draw(st.booleans())
    start = 8 * (first // 8) + 7 - first % 8 if big_endian else first
    scale = draw(st.sampled_from(["1", "2", "-3", "0.1", "0.5", "1e-3"]))
    offset = draw(st.sampled_from(["0", "-40", "0.5", "273.15"]))
    sign = draw(st.sampled_from("+-"))
    return f'SG_ s : {start}|{length}@{0 if big_endian else 1}{sign} ({scale},{offset}) [0|0] "" B', length


@given(signal=signals(), data=st.lists(st.binary(min_size=8, max_size=8), min_size=1, max_size=4))
def test_any_signal_decodes_as_cantools_decodes_it(
    signal: tuple[str, int], data: list[bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    text = f'VERSION ""\nBU_: A B\nBO_ 1 M: 8 A\n {signal[0]}\n'
    theirs = cantools.database.load_string(text, "dbc")
    assert isinstance(theirs, Database)
    path = tmp_path_factory.getbasetemp() / "any.dbc"
    path.write_text(text)
    ours = load_dbc(path)
    for each in data:
        event: Any = ours.decode(1, each)
        assert repr(ours.decode(1, each, place="here")) == repr(msgspec.structs.replace(event, place="here"))
        wanted: Any = theirs.decode_message(1, each)
        found = number(event.s)
        assert found == (float(wanted["s"]) if isinstance(found, float) else wanted["s"])
        check(event)


# -- real files ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def databases(real: dict[str, Dbc]) -> dict[str, Database]:
    """The same files by cantools alone."""
    found = {name: cantools.database.load_file(dbc.path, strict=name not in LENIENT) for name, dbc in real.items()}
    return {name: database for name, database in found.items() if isinstance(database, Database)}


@needs_data
def test_every_real_file_that_cantools_reads_becomes_types(
    real: dict[str, Dbc], databases: dict[str, Database]
) -> None:
    assert len(dbc_files()) == 83
    for path in dbc_files():
        if path.name in REFUSED_BY_CANTOOLS:
            assert len(load_dbc(path).messages) == 11
            assert all(" has more than 11 bits and is taken as " in repair for repair in load_dbc(path).repairs)
            continue
        dbc, database = real[path.name], databases[path.name]
        assert [each.name for each in dbc.messages] == [each.name for each in database.messages]
        left_out = [problem for problem in dbc.problems if problem.endswith("it is left out")]
        assert bool(left_out) == (path.name == "bad_message_length.dbc")
        for message, layout in zip(database.messages, dbc.messages, strict=True):
            assert len(layout.signals) + len(left_out) == len(message.signals)


@needs_data
def test_the_types_of_real_files_fit_in_a_catalog(real: dict[str, Dbc]) -> None:
    for dbc in real.values():
        catalog = Catalog()
        catalog.register(dbc.kind, *dbc.types.values())
        assert set(dbc.types) <= set(catalog.types)


def payloads(dbc: Dbc, rng: random.Random) -> Iterator[tuple[int, bytes]]:
    """Random data for every message; multiplexers mostly have values that select something."""
    for at, message in enumerate(dbc.messages):
        for _ in range(4 + 4 * sum(signal.selects is not None for signal in message.signals)):
            data = rng.randbytes(message.length)
            for signal in message.signals:
                if signal.selects and rng.random() < 0.9:
                    data = placed(data, signal, rng.choice(sorted(signal.selects)))
            yield at, data


def placed(data: bytes, signal: SignalLayout, raw: int) -> bytes:
    order: Literal["big", "little"] = "big" if signal.big_endian else "little"
    bits = int.from_bytes(data, order) & ~(signal.mask << signal.shift)
    return (bits | (raw & signal.mask) << signal.shift).to_bytes(len(data), order)


@pytest.mark.slow
@needs_data
def test_random_payloads_of_every_real_message_decode_as_cantools_decodes_them(
    real: dict[str, Dbc], databases: dict[str, Database]
) -> None:
    """Numbers and labels; and where cantools finds no signals, we reject the frame."""
    rng = random.Random(7)
    decoded = 0
    for name, dbc in real.items():
        if name in LENIENT:
            continue  # cantools shifts signals that overlap
        for at, data in payloads(dbc, rng):
            decoded += compare(dbc, at, databases[name], data)
    assert decoded > 10_000


def compare(dbc: Dbc, at: int, database: Database, data: bytes) -> int:
    """How many values were compared."""
    message, layout = database.messages[at], dbc.messages[at]
    event = dbc.decode(message.frame_id, data, message.is_extended_frame)
    try:
        numbers: Any = message.decode(data, decode_choices=False)
        labels: Any = message.decode(data, decode_choices=True)
    except cantools.database.DecodeError:
        assert isinstance(event, Rejected)
        return 0
    assert isinstance(event, Event)
    check(event)
    for signal in layout.signals:
        assert same(number(getattr(event, signal.attribute)), numbers.get(signal.name)), (layout.name, signal)
        theirs = labels.get(signal.name)
        if not isinstance(theirs, int | float | None):
            assert getattr(event, str(signal.label)).value == str(theirs)
    return len(numbers)


@pytest.mark.slow
def test_the_tesla_frames_decode_to_the_given_signals_exactly(tesla: Dbc) -> None:
    log = read_log(TESLA / "tesla_model3_muxfuzz.candump.log.gz")
    with gzip.open(TESLA / "tesla_model3_muxfuzz.decoded.jsonl.gz", "rt") as lines:
        wanted = [json.loads(line) for line in lines]
    frames = list(log)
    assert len(frames) == len(wanted) == 5368
    assert not log.skipped
    for (_, _, frame, _), expected in zip(frames, wanted, strict=True):
        event = tesla.decode(frame.id, frame.data, frame.extended)
        assert isinstance(event, Event)
        check(event)
        message = tesla.message_of(frame.id, frame.extended)
        assert message is not None
        assert message.name == expected["msg"]
        found = {signal.name: getattr(event, signal.attribute) for signal in message.signals}
        assert {name: value for name, value in found.items() if value is not None} == expected["sig"]


@pytest.mark.slow
@needs_data
def test_truncated_frames_of_every_real_message_decode_as_cantools_decodes_them(databases: dict[str, Database]) -> None:
    rng = random.Random(13)
    compared = 0
    for name, database in databases.items():
        dbc = load_dbc(
            next(path for path in [*dbc_files(), TESLA / "Model3CAN.dbc"] if path.name == name), truncated=True
        )
        for at, message in enumerate(dbc.messages):
            for length in rng.sample(range(message.length + 1), min(4, message.length + 1)):
                data = bytes(rng.choice((0, 1, rng.randrange(256))) for _ in range(length))
                try:
                    wanted: Any = database.messages[at].decode(data, decode_choices=False, allow_truncated=True)
                except (cantools.database.DecodeError, ValueError, NotImplementedError):
                    continue
                values = MessageDecoder(message, dbc.types[message.type_name]).values(data)
                assert isinstance(values, dict), (name, message.name, values)
                found = {s.name: number(values[s.attribute]) for s in message.signals if s.attribute in values}
                assert found.keys() == wanted.keys(), (name, message.name)
                assert all(same(found[each], wanted[each]) for each in found), (name, message.name)
                compared += len(found)
    assert compared > 1000


# -- the module ----------------------------------------------------------------------------------------------------


def imported(dbc: Dbc) -> dict[str, Any]:
    module = types.ModuleType("written")
    exec(compile(python_source(dbc), "written.py", "exec"), vars(module))
    return vars(module)


def test_the_module_is_what_one_would_write_by_hand(house: Dbc) -> None:
    assert python_source(house) == (GOLDEN / "house.py.txt").read_text(encoding="utf-8")


@pytest.mark.slow
@needs_data
def test_the_module_of_every_real_file_declares_the_same_types(real: dict[str, Dbc]) -> None:
    for dbc in real.values():
        module = imported(dbc)
        for name, cls in dbc.types.items():
            ours, theirs = signature(cls), signature(module[name])
            assert (ours.name, ours.parents, ours.family) == (theirs.name, theirs.parents, theirs.family)
            assert ours.attributes == theirs.attributes


def test_a_dbc_can_be_loaded_onto_the_classes_of_its_module(house: Dbc) -> None:
    module = imported(house)
    given = [module[name] for name in ("house", *house.types)]
    before = len(list(subtypes(Event)))
    dbc = load_dbc(HOUSE, given)
    assert len(list(subtypes(Event))) <= before, "no classes of the same names beside them"
    assert dbc.kind is module["house"]
    assert type(dbc.decode(256, bytes(8))) is module["Lamp"]


def test_classes_that_say_something_else_are_refused(tmp_path: Path) -> None:
    class Engine(Event):
        rpm: float

    with pytest.raises(DbcError, match=r"Engine in .* differs from the DBC file"):
        load_dbc(HOUSE, [Engine])


# -- the command ---------------------------------------------------------------------------------------------------


def test_the_types_of_a_file_are_shown_with_what_was_renamed() -> None:
    done = CliRunner().invoke(types_, [str(HOUSE)])
    assert done.exit_code == 0
    assert "0CF00421" in done.output
    assert "rpm: float64 [1/min]" in done.output
    assert "renamed: Lamp.time is time_" in done.output


def test_json_has_the_bits_of_every_signal() -> None:
    done = CliRunner().invoke(types_, [str(HOUSE), "--json"])
    found = json.loads(done.output)
    lamp = found["types"][0]
    assert (lamp["name"], lamp["frame_id"], lamp["senders"], lamp["cycle_time_ms"]) == ("Lamp", 256, ["Kitchen"], 100)
    watts = lamp["signals"][0]
    assert (watts["start"], watts["length"], watts["scale"], watts["unit"]) == (0, 12, 0.5, "W")
    assert found["renamed"]["Event"] == "Event_"


def test_a_module_is_written(tmp_path: Path) -> None:
    done = CliRunner().invoke(types_, [str(HOUSE), "--python", str(tmp_path / "house.py")])
    assert done.exit_code == 0
    assert (tmp_path / "house.py").read_text(encoding="utf-8") == (GOLDEN / "house.py.txt").read_text(encoding="utf-8")
    both = CliRunner().invoke(types_, [str(HOUSE), "--json", "--python", "-"])
    assert both.exit_code == 2


def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    done = CliRunner().invoke(types_, [str(tmp_path / "none.dbc")])
    assert (done.exit_code, "does not exist" in done.output) == (2, True)
    done = CliRunner().invoke(types_, [str(tmp_path)])
    assert (done.exit_code, "is a directory" in done.output) == (2, True)


def test_other_commands_take_a_dbc_file_for_types(tmp_path: Path) -> None:
    log = tmp_path / "drive.log"
    log.write_text("(1.5) can0 100#C810FF01020FFFFF\n(2.5) can0 100#0000000000000000\n")
    decode_log(load_dbc(HOUSE), log, tmp_path / "drive.genus")
    asked = ["-t", str(HOUSE), str(tmp_path / "drive.genus"), "Lamp where mode_label_2 == '100 %'", "--print", "--json"]
    done = CliRunner().invoke(genus, ["replay", *asked])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["watts"] == 100.0
    shown = CliRunner().invoke(genus, ["types", str(HOUSE), "--json"])
    assert {"house", "Lamp", "Engine"} <= {each["name"] for each in json.loads(shown.stdout)}


def test_a_dbc_without_messages_gives_no_types_to_a_command(tmp_path: Path) -> None:
    (tmp_path / "empty.dbc").write_text('VERSION ""\n')
    done = CliRunner().invoke(genus, ["types", str(tmp_path / "empty.dbc")])
    assert done.exit_code == 1
    assert "has no messages" in done.output


def test_subscriptions_see_types_kind_and_labels(house: Dbc) -> None:
    known: list[type] = [house.kind, *house.types.values(), Event]
    event = house.decode(256, bytes([0xC8, 0x10, 0, 0, 0, 0, 0, 0]))
    assert isinstance(event, Event)
    for text in ("house", "Lamp where watts > 99", "Lamp has mode_label_2 lacks celsius_label", "house & Lamp"):
        assert Subscription.parse(text, known).matches(event), text
    assert not Subscription.parse("Lamp where mode_label_2 == 'off'", known).matches(event)


def test_events_go_through_a_recording_unchanged(house: Dbc, tmp_path: Path) -> None:
    log = tmp_path / "drive.log"
    log.write_text("(1.0) can0 00000200##1FF00000000000000000000000000F87F0000000000000000\n")
    done = decode_log(house, log, tmp_path / "drive.genus")
    assert done.events == {"Meter": 1}
    (recorded,) = read_recording(tmp_path / "drive.genus", house.types.values())
    event: Any = recorded.event
    assert event.serial == b"\0\0\0\0\0\0\0\xff"
    assert encode_event(event, 1)


def test_genus_itself_needs_neither_python_can_nor_cantools() -> None:
    code = "import genus, genus.cli._can_dbc, sys; assert not {'can', 'cantools'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_the_extra_the_error_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['cantools'] = None\n"
        "from genus._extras import install_command\n"
        "try:\n    import genus.can._dbc\n"
        "except ImportError as problem:\n    assert install_command('can') in str(problem), problem\n"
        "else:\n    raise SystemExit('imported')"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
