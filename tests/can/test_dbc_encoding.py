"""Events of a database's types become frames: against cantools, and as the inverse of decoding."""

import math
import random
from pathlib import Path
from typing import Any

import cantools.database
import pytest
from cantools.database import EncodeError
from cantools.database.can import Database
from hypothesis import given
from hypothesis import strategies as st

from genus import Event
from genus.bus._codec import Rejected
from genus.can import load_dbc
from genus.can._dbc.layout import MessageLayout, SignalLayout, shift_of
from genus.can._dbc.message_types import MessageDecoder, MessageEncoder, declare_kind, declare_type
from genus.can.types import Dbc
from genus.errors import DbcError, EventError
from tests.can.test_dbc import HOUSE, LENIENT, REFUSED_BY_CANTOOLS, TESLA, dbc_files, needs_data, payloads, written
from tests.examples import examples

HOUSE_DBC = load_dbc(HOUSE)
TYPES: Any = HOUSE_DBC.types
ANY_KIND = declare_kind("Anything")


def lamp(**values: Any) -> Event:
    given = {"watts": 1.0, "mode": 0, "mode_label": 0, "time_": 0, "x_crc": 0, "lambda_": 5, "celsius": 0.0}
    made: Event = TYPES["Lamp"](**given | values)
    return made


# -- one message -------------------------------------------------------------------------------------------------------


def test_an_event_becomes_the_frame_of_its_message() -> None:
    event = lamp(watts=10.5, mode=3, lambda_=-5, celsius=-0.01)
    frame = HOUSE_DBC.encode(event)
    assert (frame.id, frame.extended, frame.fd) == (256, False, False)
    assert frame.data == bytes.fromhex("15 30 00 00 00 00 ff ff")
    decoded = HOUSE_DBC.decode(frame.id, frame.data, frame.extended)
    assert isinstance(decoded, Event)
    assert {name: getattr(decoded, name) for name in ("watts", "mode", "celsius")} == {
        "watts": 10.5,
        "mode": 3,
        "celsius": -0.01,
    }


def test_the_bounds_of_a_signal_are_told_without_rounding_errors(tmp_path: Path) -> None:
    path = tmp_path / "Tank.dbc"
    path.write_text('BU_: A\nBO_ 5 Tank: 2 A\n SG_ x : 0|16@1- (0.1,0) [0|0] "" A\n')
    database = load_dbc(path)
    tank: Any = database.types["Tank"]
    with pytest.raises(EventError, match=r"hold -3276\.8 to 3276\.7$"):
        database.encode(tank(x=9999.0))


def test_values_are_rounded_to_the_nearest_raw_value() -> None:
    assert HOUSE_DBC.encode(lamp(watts=10.7)).data[0] == 21
    assert HOUSE_DBC.encode(lamp(watts=10.8)).data[0] == 22


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"watts": 3000.0}, "Lamp.watts is 3000.0; its 12 bits hold 0.0 to 2047.5"),
        ({"mode": 9}, "Lamp.mode is 9; its 3 bits hold 0 to 7"),
        ({"watts": math.nan}, "Lamp.watts is nan; it must be a finite number"),
        ({"watts": "much"}, "Lamp.watts is 'much'; it must be a number"),
        ({"watts": None}, "Lamp.watts is missing"),
        ({"mode_label_2": "dim"}, "Lamp.mode has the label 'dim'; there are off, 100 %, on, not available"),
        ({"mode": 1, "mode_label_2": "on"}, "Lamp.mode is 1, which is not 'on' as mode_label_2 says"),
    ],
)
def test_what_cannot_be_encoded_is_refused_with_the_signal(values: dict[str, Any], message: str) -> None:
    with pytest.raises(EventError) as refused:
        HOUSE_DBC.encode(lamp(**values))
    assert str(refused.value) == message


def test_a_label_may_stand_for_a_number_that_is_absent() -> None:
    """The number of a multiplexed signal is optional, and so is that of an event made without one."""
    assert HOUSE_DBC.encode(lamp(mode=None, mode_label_2="on")).data[1] >> 4 == 2


def test_multiplexed_signals_must_be_those_that_are_selected() -> None:
    message = TYPES["Event_"]
    assert HOUSE_DBC.encode(message(which=0, in_=-2, count=7)).data == bytes.fromhex("00 ff fe 00 07 00 00 00")
    assert HOUSE_DBC.encode(message(which=1, more=3, level=2.0)).data == bytes.fromhex("01 03 04 00 00 00 00 00")
    with pytest.raises(EventError, match=r"^Event_.in_ is missing, but which selects it$"):
        HOUSE_DBC.encode(message(which=0, count=7))
    with pytest.raises(EventError, match=r"^Event_.count is present, but which does not select it$"):
        HOUSE_DBC.encode(message(which=1, more=3, level=2.0, count=7))
    with pytest.raises(EventError, match=r"^Event_.which is 77, which selects nothing$"):
        HOUSE_DBC.encode(message(which=77))


def test_floats_and_numbers_of_64_bits_keep_their_bits() -> None:
    event = TYPES["Meter"](serial=b"\xff" * 8, kwh=0.5, exact_=-0.1)
    frame = HOUSE_DBC.encode(event)
    assert frame.fd
    assert frame.extended
    decoded = HOUSE_DBC.decode(frame.id, frame.data, True)
    assert isinstance(decoded, Event)
    assert (decoded.serial, decoded.kwh, decoded.exact_) == (b"\xff" * 8, 0.5, -0.1)  # type: ignore[attr-defined]
    with pytest.raises(EventError, match=r"Meter.kwh is 1e\+39, more than a float of 32 bits holds"):
        HOUSE_DBC.encode(TYPES["Meter"](serial=b"", kwh=1e39, exact_=0.0))


def test_the_declared_range_is_kept_except_for_values_with_a_label(tmp_path: Path) -> None:
    text = """BO_ 1 T: 1 A
 SG_ t : 0|8@1+ (1,0) [0|250] "" B

VAL_ 1 t 255 "none" ;"""
    dbc = written(text, tmp_path)
    made: Any = dbc.types["T"]
    assert dbc.encode(made(t=255)).data == b"\xff"
    with pytest.raises(EventError, match=r"T.t is 254; the database allows 0 to 250"):
        dbc.encode(made(t=254))


def test_signals_that_share_bits_must_agree() -> None:
    low = SignalLayout("low", "low", 0, 8, 0, False, False, False)
    wide = SignalLayout("wide", "wide", 0, 16, 0, False, False, False)
    layout = MessageLayout("Both", "Both", 1, False, 2, (low, wide))
    cls: Any = declare_type(layout, ANY_KIND)
    assert MessageEncoder(layout).data(cls(low=2, wide=0x102)) == b"\x02\x01"
    with pytest.raises(EventError, match=r"Both\.\w+ shares bits with another signal"):
        MessageEncoder(layout).data(cls(low=1, wide=0x102))


def test_a_class_of_the_same_name_and_attributes_is_encoded_and_others_are_refused() -> None:
    again: Any = load_dbc(HOUSE).types["Engine"]
    assert HOUSE_DBC.encode(again(rpm=100.0)) == HOUSE_DBC.encode(TYPES["Engine"](rpm=100.0))

    class Engine(Event):
        torque: int

    with pytest.raises(DbcError, match=r"Engine in .* differs"):
        HOUSE_DBC.encode(Engine(torque=1))
    with pytest.raises(EventError, match=r"Event is no type of .*house\.dbc"):
        HOUSE_DBC.encode(Event())


# -- the law -----------------------------------------------------------------------------------------------------------


@st.composite
def layouts(draw: st.DrawFn) -> MessageLayout:
    """Messages of signals that do not overlap, in both byte orders."""
    length = draw(st.integers(1, 8))
    signals: list[SignalLayout] = []
    at = 0
    while at < 8 * length and len(signals) < 6:
        size = draw(st.integers(1, min(40, 8 * length - at)))
        big = draw(st.booleans())
        if draw(st.booleans()):
            start, bits = _place(at, size, length, big)
            scale = draw(st.sampled_from([1, 2, -3, 0.5, 0.1, 0.01]))
            offset = draw(st.sampled_from([0, -40, 7, 0.25])) if isinstance(scale, float) else 0
            name = f"s{len(signals)}"
            signed = draw(st.booleans())
            signals.append(SignalLayout(name, name, start, size, bits, big, signed, False, scale=scale, offset=offset))
        at += size
        if draw(st.booleans()):
            at = -(-at // 8) * 8
    return MessageLayout("M", "M", 5, False, length, _without_overlaps(signals, length))


def _place(at: int, size: int, length: int, big: bool) -> tuple[int, int]:
    start = at if not big else 8 * (at // 8) + 7 - at % 8
    return start, shift_of(start, size, big, length)


def _without_overlaps(signals: list[SignalLayout], length: int) -> tuple[SignalLayout, ...]:
    """Little and big-endian signals of mixed bytes may share bits: keep those that do not."""
    kept: list[SignalLayout] = []
    seen = 0
    for signal in signals:
        order: Any = "big" if signal.big_endian else "little"
        own = int.from_bytes((signal.mask << signal.shift).to_bytes(length, order), "big")
        if not own & seen:
            kept.append(signal)
            seen |= own
    return tuple(kept)


@given(layouts(), st.randoms(use_true_random=False))
@examples(300)
def test_encoding_is_the_inverse_of_decoding(layout: MessageLayout, rng: random.Random) -> None:
    """What was decoded encodes to frames that decode to the same, whatever bits no signal has."""
    cls = declare_type(layout, ANY_KIND)
    decoder, encoder = MessageDecoder(layout, cls), MessageEncoder(layout)
    values = decoder.values(rng.randbytes(layout.length))
    assert isinstance(values, dict)
    data = encoder.data(cls(**values))
    assert decoder.values(data) == values
    assert encoder.data(cls(**values)) == data


def same(one: object, other: object) -> bool:
    return one == other or (isinstance(one, float) and isinstance(other, float) and math.isclose(one, other))


@pytest.mark.slow
@needs_data
def test_every_real_message_is_encoded_as_cantools_encodes_it() -> None:
    rng = random.Random(11)
    encoded = refused = 0
    for path in [*dbc_files()[::2], TESLA / "Model3CAN.dbc"]:
        if path.name in REFUSED_BY_CANTOOLS or path.name in LENIENT:
            continue
        dbc, database = load_dbc(path), cantools.database.load_file(path)
        assert isinstance(database, Database)
        for at, data in payloads(dbc, rng):
            outcome = compare(dbc, at, database, data)
            encoded, refused = encoded + (outcome == "encoded"), refused + (outcome == "refused")
    assert encoded > 800
    assert refused > 50


def compare(dbc: Dbc, at: int, database: Database, data: bytes) -> str:
    """Decode random data, and encode the values again: by cantools and by ourselves."""
    layout, message = dbc.messages[at], database.messages[at]
    if layout.length == 0:
        return "empty"
    event = MessageDecoder(layout, dbc.types[layout.type_name]).values(data)
    if isinstance(event, Rejected):
        return "not decoded"
    made = dbc.types[layout.type_name](**event)
    try:
        expected = message.encode(message.decode(data, decode_choices=False), strict=True)
    except EncodeError:
        with pytest.raises(EventError, match=rf"^{layout.type_name}\."):
            MessageEncoder(layout).data(made)
        return "refused"
    ours = MessageEncoder(layout).data(made)
    assert ours == expected, (layout.name, made)
    again = MessageDecoder(layout, dbc.types[layout.type_name]).values(ours)
    assert isinstance(again, dict)
    assert again.keys() == event.keys()
    assert all(same(again[name], event[name]) or event[name] != event[name] for name in event), layout.name
    return "encoded"
