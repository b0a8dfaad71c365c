"""Frames decoded in columns give what `Dbc.decode` gives frame by frame."""

import gzip
import json
import math
import random
import struct
from collections.abc import Iterable, Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from genus.bus._codec import Rejected
from genus.can._dbc import Dbc, MessageLayout, SignalLayout, load_dbc
from genus.can._dbc.columns import ColumnDecoder, DecodedFrames, RefusedFrames
from genus.can._dbc.message_types import UNKNOWN_ID, MessageDecoder, declare_kind, declare_type
from genus.can._logs.frames import EXTENDED, FrameColumns
from genus.can._logs.text_reader import parse_candump
from genus.model import Event, name_of, vector
from tests.examples import examples, some_of

DATA = Path(__file__).parents[3] / "shared" / "data" / "can"
TESLA = DATA / "tesla"
HOUSE = Path(__file__).parent / "golden" / "house.dbc"
REFUSED_BY_CANTOOLS = {"issue_199.dbc", "issue_199_extended.dbc"}
needs_data = pytest.mark.skipif(not DATA.exists(), reason=f"real data not found: {DATA}")

Sent = tuple[int, bool, bytes]
"""Identifier, whether it is extended, data."""


def dbc_files() -> list[Path]:
    """Every real DBC file that can be read."""
    found = [*(DATA / "dbc_cantools").glob("*"), *TESLA.glob("*")]
    return sorted(path for path in found if path.suffix.lower() == ".dbc" and path.name not in REFUSED_BY_CANTOOLS)


def frames_of(sent: list[Sent], width: int = 64, channels: tuple[str | None, ...] = ("can0",)) -> FrameColumns:
    """Frames as columns, one each microsecond, on one channel after the other."""
    data = np.frombuffer(b"".join(data.ljust(width, b"\xff") for *_, data in sent), np.uint8).reshape(-1, width)
    count = np.arange(len(sent))
    return FrameColumns(
        count.astype(np.int64),
        np.array([identifier | EXTENDED * extended for identifier, extended, _ in sent], np.uint32),
        np.array([len(data) for *_, data in sent], np.uint8),
        data,
        count.astype(np.int64),
        (count % len(channels)).astype(np.int32),
        channels,
        np.zeros(len(sent), np.int8),
    )


def plain(value: Any) -> Any:
    """A value that can be compared: bits of floats, values of enumerations."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else struct.pack(">d", value)
    return value.value if isinstance(value, Enum) else value


def said(event: Event | Rejected) -> Any:
    """The attributes that an event has, or why there is none."""
    if isinstance(event, Rejected):
        return event.reason
    named = ((each.name, getattr(event, each.name)) for each in vector(type(event)))
    return name_of(type(event)), {name: plain(value) for name, value in named if value is not None}


def by_columns(dbc: Dbc, frames: FrameColumns) -> list[Any]:
    """What the column decoder says of each frame, in their order."""
    found: dict[int, Any] = {}
    for part in ColumnDecoder(dbc.all_messages).decode(frames):
        if isinstance(part, DecodedFrames):
            part.batch.validate(full=True)
            texts = zip(part.rows.tolist(), part.batch.to_pylist(), strict=True)
            found |= {row: (part.message.type_name, present(values)) for row, values in texts}
        else:
            reason = part.reason if isinstance(part, RefusedFrames) else UNKNOWN_ID  # a part is no message by itself
            found |= dict.fromkeys(part.rows.tolist(), reason)
    assert sorted(found) == list(range(len(frames.at_us)))
    return [found[row] for row in sorted(found)]


def present(values: dict[str, Any]) -> dict[str, Any]:
    return {name: plain(value) for name, value in values.items() if value is not None}


def one_by_one(dbc: Dbc, sent: Iterable[Sent], channels: tuple[str | None, ...] = ("can0",)) -> Iterator[Any]:
    """What the decoder of single frames says of each."""
    times = pa.array(range(10**6), pa.timestamp("us", tz="UTC"))
    for number, (identifier, extended, data) in enumerate(sent):
        place = channels[number % len(channels)]
        yield said(dbc.decode(identifier, data, extended, time=times[number].as_py(), place=place))


def random_frames(dbc: Dbc, seed: int, each: int) -> list[Sent]:
    """Frames of every message with random bytes and lengths, some of none, and J1939 ones from other addresses."""
    rnd = random.Random(seed)
    sent: list[Sent] = []
    for message in dbc.all_messages:
        for _ in range(each):
            whole = message.length if rnd.random() < 0.9 else rnd.randrange(65)
            data = bytes(rnd.choices((0, 1, 255, rnd.randrange(256), rnd.randrange(256)), k=min(whole, 64)))
            other = rnd.random() < 0.2 and message.extended
            identifier = message.frame_id ^ rnd.randrange(1 << 29) & 0x1C0000FF if other else message.frame_id
            sent.append((identifier, message.extended, data))
    sent += [(rnd.randrange(1 << 11), False, b"") for _ in range(3)]
    rnd.shuffle(sent)
    return sent


@needs_data
@pytest.mark.parametrize("path", some_of(dbc_files(), 6), ids=lambda path: path.stem)
@pytest.mark.parametrize("each", [8, pytest.param(80, marks=pytest.mark.slow)])
def test_every_message_of_real_files_decodes_as_frame_by_frame(path: Path, each: int) -> None:
    """Values, labels, presence, source and reasons are the same, whatever the bytes and lengths."""
    dbc = load_dbc(path)
    sent = random_frames(dbc, seed=7, each=each)
    for got, wanted in zip(by_columns(dbc, frames_of(sent)), one_by_one(dbc, sent), strict=True):
        assert got == wanted


@pytest.mark.slow
@needs_data
@pytest.mark.parametrize("path", some_of(dbc_files(), 12), ids=lambda path: path.stem)
@pytest.mark.parametrize("each", [5, pytest.param(40, marks=pytest.mark.slow)])
def test_truncated_frames_decode_as_frame_by_frame(path: Path, each: int) -> None:
    """Whatever the lengths, and whatever is behind the end of the frames."""
    dbc = load_dbc(path, truncated=True)
    whole = random_frames(dbc, seed=9, each=each)
    sent = [(identifier, extended, data[: at % 9]) for at, (identifier, extended, data) in enumerate(whole)]
    for got, wanted in zip(by_columns(dbc, frames_of(sent)), one_by_one(dbc, sent), strict=True):
        assert got == wanted


@pytest.mark.slow
@needs_data
def test_the_tesla_frames_have_the_given_signals_exactly() -> None:
    """5,368 frames of a car with every page of its multiplexers, and what cantools made of them."""
    messages = load_dbc(TESLA / "Model3CAN.dbc").messages
    text = gzip.decompress((TESLA / "tesla_model3_muxfuzz.candump.log.gz").read_bytes())
    with gzip.open(TESLA / "tesla_model3_muxfuzz.decoded.jsonl.gz", "rt") as lines:
        wanted = {each["n"]: (each["msg"], each["sig"]) for each in map(json.loads, lines)}
    (frames,) = parse_candump(text).frames
    found: dict[int, Any] = {}
    for part in ColumnDecoder(messages).decode(frames):
        assert isinstance(part, DecodedFrames)
        names = {signal.attribute: signal.name for signal in part.message.signals}
        for row, values in zip(part.rows.tolist(), part.batch.to_pylist(), strict=True):
            signals = {names[key]: value for key, value in values.items() if key in names and value is not None}
            found[row] = part.message.name, signals
    assert len(found) == 5368
    assert found == wanted


@st.composite
def signal_layouts(draw: st.DrawFn, length: int, number: int) -> SignalLayout:
    """Any signal that fits in a message of some bytes: whatever a DBC file can say, and more."""
    is_float = draw(st.booleans()) and length >= 8
    size = draw(st.sampled_from([16, 32, 64]) if is_float else st.integers(1, 8 * length))
    low = st.integers(-(2**40), 2**40) | st.integers(-3, 3)
    scale: Any = draw(low | st.sampled_from([1, 1, 0.1, -0.5, 1e-3, 3.7e18, 1e-300]))
    offset: Any = draw(st.just(0) | low | st.sampled_from([0.5, -273.15, 2**64]))
    is_signed = draw(st.booleans())
    values = draw(st.lists(st.integers(-3, 3) | st.integers(0, 2**size - 1), unique=True, max_size=4))
    choices = tuple((value, f"label {value % 3}") for value in sorted(values))
    name = f"s{number}"
    layout = SignalLayout(
        name=name,
        attribute=name,
        start=0,
        length=size,
        shift=draw(st.integers(0, 8 * length - size)),
        big_endian=draw(st.booleans()),
        signed=is_signed and not is_float,
        is_float=is_float,
        scale=scale,
        offset=offset,
        choices=choices,
        label=f"{name}_label" if choices else None,
        enumeration=f"{name}_labels" if choices else None,
    )
    assume(layout.problem(length) is None)
    return layout


@given(st.data())
@examples(150)
def test_any_signal_has_the_values_it_has_frame_by_frame(data: st.DataObject) -> None:
    """Whatever its place, width, byte order, sign, scale, offset and table, in messages of up to 64 bytes."""
    length = data.draw(st.integers(1, 8) | st.integers(9, 64))
    signals = tuple(data.draw(signal_layouts(length, number)) for number in range(data.draw(st.integers(1, 4))))
    message = MessageLayout("M", "M", 0x10, False, length, signals)
    payloads = data.draw(st.lists(st.binary(min_size=length, max_size=length), min_size=1, max_size=6))
    payloads += [bytes(length), b"\xff" * length]
    single = MessageDecoder(message, declare_type(message, declare_kind("Made")))
    frames = frames_of([(0x10, False, payload) for payload in payloads], width=8 if length <= 8 else 64)
    (part,) = ColumnDecoder([message]).decode(frames)
    assert isinstance(part, DecodedFrames)
    for values, payload in zip(part.batch.to_pylist(), payloads, strict=True):
        wanted = single.values(payload)
        assert isinstance(wanted, dict)
        del values["time"], values["place"]
        assert present(values) == {name: plain(value) for name, value in wanted.items()}


@st.composite
def multiplexed(draw: st.DrawFn) -> MessageLayout:
    """A message of eight signals of four bits, some of them multiplexers below others, in any order."""
    values = st.frozensets(st.integers(0, 15), min_size=1, max_size=8)
    chosen: dict[int, tuple[int, frozenset[int]]] = {}
    for number in range(1, 8):
        if draw(st.booleans()):
            chosen[number] = draw(st.integers(0, number - 1)), draw(values)
    signals = []
    for number in range(8):
        selects = frozenset().union(*(by for chooser, by in chosen.values() if chooser == number))
        chooser, selected_by = chosen.get(number, (None, frozenset()))
        layout = SignalLayout(
            *(f"s{number}", f"s{number}", 4 * number, 4, 4 * number, False, False, False),
            multiplexer=None if chooser is None else f"s{chooser}",
            selected_by=selected_by,
            selects=selects or None,
        )
        signals.append(layout)
    ordered = tuple(draw(st.permutations(signals)))
    return MessageLayout("M", "M", 0x10, False, 4, ordered, truncated=draw(st.booleans()))


@given(multiplexed(), st.lists(st.binary(max_size=5), min_size=1, max_size=30))
def test_any_tree_of_multiplexers_chooses_and_refuses_as_frame_by_frame(
    message: MessageLayout, payloads: list[bytes]
) -> None:
    """A frame has the signals that its multiplexers choose; with several wrong ones it gets the same reason.

    If frames may be truncated, it has those that are in it, of the multiplexers that are.
    """
    single = MessageDecoder(message, declare_type(message, declare_kind("Made")))
    found: dict[int, Any] = {}
    for part in ColumnDecoder([message]).decode(frames_of([(0x10, False, payload) for payload in payloads], width=8)):
        if isinstance(part, DecodedFrames):
            batch = part.batch.drop_columns(["time", "place"])
            found |= {row: present(each) for row, each in zip(part.rows.tolist(), batch.to_pylist(), strict=True)}
        elif isinstance(part, RefusedFrames):
            found |= dict.fromkeys(part.rows.tolist(), Rejected(part.reason))
    assert [found[row] for row in range(len(payloads))] == [single.values(payload) for payload in payloads]


def test_values_of_a_scale_below_zero_are_never_minus_zero_where_single_frames_are_not() -> None:
    """0 * -0.5 + 0 is 0, not -0: columns add the offset as single frames do."""
    signal = SignalLayout("s", "s", 0, 8, 0, False, False, False, scale=-0.5)
    (part,) = ColumnDecoder([MessageLayout("M", "M", 1, False, 1, (signal,))]).decode(frames_of([(1, False, b"\0")]))
    assert isinstance(part, DecodedFrames)
    assert math.copysign(1, part.batch.column("s")[0].as_py()) == 1.0


def test_frames_of_j1939_are_known_by_their_group_and_name_their_sender() -> None:
    """Whatever priority and addresses; the sender of the DBC file is one for its own address only."""
    dbc = load_dbc(HOUSE)
    own = next(message.frame_id for message in dbc.messages if message.name == "Engine")
    sent = [(own, True, bytes(8)), (own & ~0xFF | 0x33, True, bytes(8)), (own & 0xFFFFFF, True, bytes(8))]
    found = by_columns(dbc, frames_of(sent))
    assert found == list(one_by_one(dbc, sent))
    assert [values["source"] for _, values in found] == [0x21, 0x33, 0x21]
    assert [values.get("sender") for _, values in found] == ["Cellar", None, "Cellar"]
    assert [values["priority"] for _, values in found] == [3, 3, 0]


def test_the_channel_is_the_place_of_an_event() -> None:
    """A log may have several, and may not say; then there is no place."""
    dbc = load_dbc(HOUSE)
    sent = [(0x100, False, bytes(8))] * 4
    places = ("can0", None, "can1")
    found = by_columns(dbc, frames_of(sent, channels=places))
    assert found == list(one_by_one(dbc, sent, places))
    assert [values.get("place") for _, values in found] == ["can0", None, "can1", "can0"]
    assert "place" not in by_columns(dbc, frames_of(sent, channels=(None,)))[0][1]


def test_no_frames_and_no_messages_are_fine() -> None:
    """Without frames there are no events, and without messages every frame is refused."""
    assert list(ColumnDecoder(load_dbc(HOUSE).messages).decode(frames_of([]))) == []
    (refused,) = ColumnDecoder([]).decode(frames_of([(1, False, b""), (1, True, b"")]))
    assert isinstance(refused, RefusedFrames)
    assert (refused.reason, refused.rows.tolist()) == ("unknown identifier", [0, 1])
