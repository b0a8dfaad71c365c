"""Damaged recordings: what damage costs, and that nothing is replayed that lies inside an event.

The law for files with blocks: one wrong bit costs nothing; otherwise the events of blocks that are whole in the damaged
file are replayed, in the order in which they are there, and of damaged blocks some of their own events at most.

The law for files of the second format: the events that are replayed are those of the frames that are whole in the
damaged file, in the order in which they are there. So an event is replayed twice only if the bytes of its whole frame
are there twice.
"""

import random
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus import Event, Maybe
from genus.bus import RecordingWriter, _frames, read_recording
from genus.bus._blocks import (
    BUNDLE,
    HEADER,
    MARKER,
    PAGE,
    Block,
    EventGroup,
    blocks_in,
    bundle,
    find_format,
    pack_events,
)
from genus.bus._codec import encode_event
from genus.bus._frames import FIRST_FORMAT, FORMAT, Frame, FrameFormat, Gap, end_of_value, frames_in
from genus.errors import RecordingError
from tests.examples import examples

FORMATS = (FIRST_FORMAT, FORMAT)


class Parcel(Event):
    number: int
    load: Maybe[bytes] = None
    loads: Maybe[list[bytes]] = None
    note: Maybe[str] = None


class Letter(Event):
    number: int
    text: str = ""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "letters.genus"


INSIDE = 1_000_000
"""The numbers of events that were never published begin here."""


def packet(event: Event) -> bytes:
    return encode_event(event, 7)


def written_as(form: FrameFormat, packets: list[bytes]) -> bytes:
    return form.header + b"".join(map(form.frame, packets))


def some_load(chance: random.Random, before: bytes) -> bytes:
    """Bytes with frames of both formats, whole recordings, the file so far, or parts of markers in them."""
    form = chance.choice(FORMATS)
    inner = [packet(chance.choice((Parcel, Letter))(number=INSIDE + n)) for n in range(chance.randrange(1, 4))]
    match chance.randrange(6):
        case 0:
            return b"".join(map(form.frame, inner))
        case 1:
            return written_as(form, inner)
        case 2:
            return written_as(form, [packet(Parcel(number=INSIDE, load=written_as(FORMAT, inner)))])
        case 3:
            return before[-chance.randrange(1, 300) :]
        case 4:
            return FORMAT.marker[: chance.randrange(5)] * 3 + b"\x00" + form.frame(inner[0])
        case _:
            return chance.randbytes(chance.randrange(40))


def some_packets(chance: random.Random, form: FrameFormat) -> list[bytes]:
    """Packets of numbered events; a few have loads."""
    found: list[bytes] = []
    for number in range(chance.randrange(1, 25)):
        load = some_load(chance, written_as(form, found)) if chance.random() < 0.6 else None
        loads = [some_load(chance, written_as(form, found))] if chance.random() < 0.2 else None
        note = "x" * chance.randrange(30) if chance.random() < 0.5 else None
        letter = Letter(number=number, text="y" * chance.randrange(20))
        event = Parcel(number=number, load=load, loads=loads, note=note) if chance.random() < 0.7 else letter
        found.append(packet(event))
    return found


def damage(data: bytearray, chance: random.Random) -> None:
    """Flip a bit, delete, insert or zero some bytes, cut the file, or insert a copy of a part of it."""
    at, length = chance.randrange(len(data) + 1), chance.randrange(1, 60)
    source = chance.randrange(len(data) + 1)
    match chance.randrange(6):
        case 0 if at < len(data):
            data[at] ^= 1 << chance.randrange(8)
        case 1:
            del data[at : at + length]
        case 2:
            data[at:at] = chance.randbytes(length)
        case 3:
            del data[at:]
        case 4:
            data[at:at] = data[source : source + chance.randrange(200)]
        case _:
            data[at : at + length] = bytes(len(data[at : at + length]))


def whole_frames(data: bytes, packets: list[bytes]) -> list[int]:
    """The indexes of the frames that are whole, in the order of their places."""
    found = []
    for index, frame in enumerate(map(FORMAT.frame, packets)):
        found += [(match.start(), index) for match in re.finditer(re.escape(frame), data)]
    return [index for _, index in sorted(found)]


def places(form: FrameFormat, packets: list[bytes]) -> list[tuple[int, int]]:
    at, found = len(form.header), []
    for each in packets:
        found.append((at, at + len(form.frame(each))))
        at = found[-1][1]
    return found


def replayed(path: Path) -> list[int]:
    return [one.event.number for one in read_recording(path, [Parcel, Letter])]  # type: ignore[attr-defined]


@pytest.mark.parametrize("block", [0, *(pytest.param(block, marks=pytest.mark.slow) for block in range(1, 40))])
def test_the_whole_frames_are_replayed_and_no_others(tmp_path: Path, block: int) -> None:
    path = tmp_path / "parcels.genus"
    kept = 0
    for seed in range(150):
        chance = random.Random(f"{block}/{seed}")
        packets = some_packets(chance, FORMAT)
        data = bytearray(written_as(FORMAT, packets))
        for _ in range(chance.randrange(1, 5)):
            damage(data, chance)
        path.write_bytes(data)
        wanted = whole_frames(bytes(data), packets)
        if wanted:
            assert replayed(path) == wanted, f"seed {seed}"
            kept += len(wanted)
    assert kept > 500


def test_a_checksum_that_equals_the_marker_is_stored_inverted(monkeypatch: pytest.MonkeyPatch) -> None:
    packets = [packet(Parcel(number=1))]
    monkeypatch.setattr("genus.bus._frames.zlib.crc32", lambda _: FORMAT.reserved)
    data = written_as(FORMAT, packets)
    assert data.count(FORMAT.marker) == 1
    assert [found.packet for found in frames_in(data, FORMAT) if isinstance(found, Frame)] == packets


# -- blocks ------------------------------------------------------------------------------------------------------------


def block_load(chance: random.Random, before: bytes) -> bytes:
    """Bytes with whole blocks, parts of what was written before, or markers in them."""
    inner = msgspec.msgpack.encode(Letter(number=INSIDE))
    ends, bundles = bundle(msgspec.msgpack.Encoder().encode_into, [msgspec.Raw(inner)])
    block = pack_events([7], b"", [EventGroup("Letter", {}, 1, ends, bundles)], 0)
    match chance.randrange(4):
        case 0:
            return HEADER + block * chance.randrange(1, 3)
        case 1:
            return before[-chance.randrange(1, 300) :]
        case 2:
            return MARKER * chance.randrange(1, 4) + block[4:]
        case _:
            return chance.randbytes(chance.randrange(40))


def some_blocks(path: Path, chance: random.Random, compress: Any = None) -> list[tuple[bytes, list[int]]]:
    """Write a recording of numbered events; gives its blocks, each with its numbers."""
    path.unlink(missing_ok=True)
    number, found = 0, list[tuple[bytes, list[int]]]()
    with RecordingWriter(path, compress=compress) as writer:
        for _ in range(chance.randrange(1, 5)):
            before, first = path.read_bytes(), number
            for _ in range(chance.randrange(1, 90)):
                load = block_load(chance, before) if chance.random() < 0.2 else None
                parcel = Parcel(number=number, load=load, note="x" * chance.randrange(30))
                writer.write(parcel if chance.random() < 0.7 else Letter(number=number, text="y"), number)
                number += 1
            writer.flush()
            found.append((path.read_bytes()[len(before) :], list(range(first, number))))
    return found


def wrong_bits(path: Path, whole: bytes, step: int) -> Iterator[tuple[int, list[int], list[str]]]:
    """For some bits of a file: what is replayed if it is wrong, and what is said about it."""
    for at in range(0, len(whole), step):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
        recording = read_recording(path, [Parcel, Letter])
        yield at, [one.event.number for one in recording], recording.damage  # type: ignore[attr-defined]


@pytest.mark.parametrize("compress", [None, "zstd"])
@pytest.mark.parametrize("step", [13, pytest.param(3, marks=pytest.mark.slow)])
def test_one_wrong_bit_costs_nothing_and_is_told(tmp_path: Path, compress: Any, step: int) -> None:
    """Of the header, of heads, directories, payloads and the index; in checksums that are not needed it is not told."""
    path = tmp_path / "parcels.genus"
    blocks = some_blocks(path, random.Random(5), compress)
    whole, numbers = path.read_bytes(), [number for _, own in blocks for number in own]
    found = [each for each in blocks_in(whole) if isinstance(each, Block)]
    starts = [match.start() for match in re.finditer(re.escape(MARKER), whole)]
    assert starts == [each.start for each in found], "the marker is at the beginning of blocks and nowhere else"
    assert len(found) == len(blocks) + 1
    for at, replayed, damage in wrong_bits(path, whole, step):
        assert replayed == numbers, f"byte {at}"
        is_spare = any(at in range(each.start + 8, each.start + 12) for each in found)
        is_spare |= any(at in range(each.pages_start, each.payload_start) for each in found)
        assert bool(damage) is not is_spare, f"byte {at}"


@pytest.mark.slow
@pytest.mark.parametrize("block", [0, *(pytest.param(block, marks=pytest.mark.slow) for block in range(1, 40))])
def test_whole_blocks_are_replayed_and_nothing_that_was_not_published(tmp_path: Path, block: int) -> None:
    path = tmp_path / "parcels.genus"
    kept = 0
    for seed in range(60):
        chance = random.Random(f"{block}/{seed}")
        blocks = some_blocks(path, chance, chance.choice([None, None, "zstd"]))
        data = bytearray(path.read_bytes())
        for _ in range(chance.randrange(1, 5)):
            damage(data, chance)
        path.write_bytes(data)
        whole = sorted(
            (match.start(), own) for each, own in blocks for match in re.finditer(re.escape(each), bytes(data))
        )
        if not whole:
            continue
        found = replayed(path)
        wanted = [number for _, own in whole for number in own]
        rest = iter(found)
        assert all(number in rest for number in wanted), f"seed {seed}: the whole blocks, in order"
        assert max(found) < INSIDE, f"seed {seed}"
        kept += len(wanted)
    assert kept > 500


@pytest.mark.parametrize("at", [0.1, 0.5, 0.9])
def test_other_damage_costs_the_events_of_the_pages_that_it_hits(tmp_path: Path, at: float) -> None:
    """And it is told how many these are."""
    path = tmp_path / "letters.genus"
    with RecordingWriter(path) as writer:
        for number in range(3000):
            writer.write(Letter(number=number, text="z" * 50), number)
    data = bytearray(path.read_bytes())
    start = int(len(data) * at)
    data[start : start + 16] = bytes(16)
    path.write_bytes(data)
    recording = read_recording(path, [Letter])
    numbers = [one.event.number for one in recording]  # type: ignore[attr-defined]
    lost = 3000 - len(numbers)
    assert 0 < lost < 700
    assert numbers == sorted(set(numbers))
    (said,) = recording.damage
    assert f"{lost} of" in said


def test_a_block_that_cannot_be_found_is_told_with_its_events(tmp_path: Path) -> None:
    """By what the next head says about the events before it."""
    path = tmp_path / "letters.genus"
    places = []
    with RecordingWriter(path) as writer:
        for number in range(40):
            writer.write(Letter(number=number), number)
            if number % 10 == 9:
                places.append(path.stat().st_size)
                writer.flush()
    data = bytearray(path.read_bytes())
    data[places[1] : places[1] + 30] = bytes(30)
    path.write_bytes(data)
    recording = read_recording(path, [Letter])
    assert [one.event.number for one in recording] == [*range(10), *range(20, 40)]  # type: ignore[attr-defined]
    assert recording.damage == [
        f"{path}: damaged at byte {places[1]}: {places[2] - places[1]} bytes skipped, 10 events lost"
    ]


@given(cut=st.integers(0, 1 << 16), more=st.booleans())
@examples(60)
def test_cut_anywhere_whole_blocks_are_read_and_the_file_can_be_continued(cut: int, more: bool) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "parcels.genus"
        blocks = some_blocks(path, random.Random(cut))
        whole = path.read_bytes()
        size = len(HEADER) + cut % (len(whole) - len(HEADER) + 1)
        path.write_bytes(whole[:size])
        wanted, at = list[int](), len(HEADER)
        for block, own in blocks:
            at += len(block)
            wanted += own if at <= size else []
        if more:
            with RecordingWriter(path, append=True) as writer:
                writer.write(Letter(number=99_999), 0)
            wanted.append(99_999)
        recording = read_recording(path, [Parcel, Letter])
        rest = iter([one.event.number for one in recording])  # type: ignore[attr-defined]
        assert all(number in rest for number in wanted)
        assert next(rest, None) is None or not more
        assert list(recording.read_from(-1)) == list(recording)


TIMES = st.lists(st.integers(-(2**63), 2**63 - 1), min_size=71, max_size=71)


@given(st.lists(st.binary(max_size=60), min_size=1, max_size=70), TIMES, st.booleans())
@examples(200)
def test_blocks_with_any_content_never_raise(contents: list[bytes], times: list[int], placed: bool) -> None:
    """The checksums are right, the content is not: each event is refused with a reason, or it is one."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "hostile.genus"
        made, ends = bytearray(), list[int]()
        for start in range(0, len(contents), BUNDLE):
            own = contents[start : start + BUNDLE]
            made += b"\xdc" + len(own).to_bytes(2, "big") + b"".join(own)
            ends.append(len(made))
        kinds = bytes([1]) + bytes(len(contents)) if placed else bytes(at % 3 for at in times[: len(contents) + 1])
        good = [msgspec.Raw(msgspec.msgpack.encode(Letter(number=1)))]
        letter = EventGroup("Letter", {}, 1, *bundle(msgspec.msgpack.Encoder().encode_into, good))
        groups = [EventGroup("Parcel", {}, len(contents), ends, made), letter]
        path.write_bytes(HEADER + pack_events(times[: len(contents) + 1], kinds, groups, 0))
        recording = read_recording(path, [Parcel, Letter])
        assert len(list(recording)) == recording.events
        assert recording.events + recording.problems.total() <= len(contents) + 1


# -- the first format --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def loaded() -> list[bytes]:
    """Packets with frames of the first format in them: in the middle, at the end, and a recording of several."""
    inner = [FIRST_FORMAT.frame(packet(Letter(number=INSIDE + n, text="z" * n))) for n in range(3)]
    recording = written_as(FIRST_FORMAT, [packet(Letter(number=INSIDE + n)) for n in range(3)])
    events = [Parcel(number=0), Parcel(number=1, load=inner[0], note="after"), Parcel(number=2)]
    events += [Parcel(number=3, load=inner[1] + inner[2]), Parcel(number=4, loads=[recording]), Parcel(number=5)]
    return list(map(packet, events))


@pytest.mark.parametrize("bits", [(0x04,), pytest.param((1, 2, 0x40, 0x80, 0xFF), marks=pytest.mark.slow)])
def test_in_a_file_of_the_first_format_one_wrong_byte_costs_one_event(
    tmp_path: Path, loaded: list[bytes], bits: tuple[int, ...]
) -> None:
    """Any byte of a frame; frames inside the packet of the damaged one are not replayed."""
    path = tmp_path / "old.genus"
    whole = written_as(FIRST_FORMAT, loaded)
    for index, (start, end) in enumerate(places(FIRST_FORMAT, loaded)):
        for at in range(start, end):
            for bit in bits:
                path.write_bytes(whole[:at] + bytes([whole[at] ^ bit]) + whole[at + 1 :])
                assert replayed(path) == [number for number in range(len(loaded)) if number != index], f"byte {at}"


def test_a_file_of_the_first_format_that_was_cut_replays_up_to_the_cut(tmp_path: Path, loaded: list[bytes]) -> None:
    path = tmp_path / "old.genus"
    whole = written_as(FIRST_FORMAT, loaded)
    ends = [end for _, end in places(FIRST_FORMAT, loaded)]
    for cut in range(ends[0], len(whole)):
        path.write_bytes(whole[:cut])
        assert replayed(path) == list(range(sum(end <= cut for end in ends))), f"cut at {cut}"


def test_a_file_of_an_older_format_is_only_read(tmp_path: Path, loaded: list[bytes]) -> None:
    path = tmp_path / "old.genus"
    path.write_bytes(written_as(FIRST_FORMAT, loaded))
    with pytest.raises(RecordingError, match="older format, which is only read; record to a new file"):
        RecordingWriter(path, append=True)
    assert path.read_bytes() == written_as(FIRST_FORMAT, loaded)


def test_of_a_file_without_its_header_the_format_outside_is_read(tmp_path: Path) -> None:
    """Frames inside of blocks and blocks inside of frames are values of events."""
    inner = written_as(FORMAT, [packet(Letter(number=INSIDE))])
    path, other = tmp_path / "blocks.genus", tmp_path / "frames.genus"
    with RecordingWriter(path) as writer:
        for number in range(3):
            writer.write(Parcel(number=number, load=inner), number)
    other.write_bytes(
        written_as(FORMAT, [packet(Parcel(number=number, load=path.read_bytes())) for number in range(3)])
    )
    for file in (path, other):
        file.write_bytes(file.read_bytes()[len(HEADER) :])
        assert replayed(file) == [0, 1, 2]


@pytest.mark.parametrize("form", FORMATS)
def test_a_file_without_its_header_is_read(tmp_path: Path, loaded: list[bytes], form: FrameFormat) -> None:
    path = tmp_path / "headless.genus"
    path.write_bytes(written_as(form, loaded)[len(form.header) :])
    assert find_format(path.read_bytes()) is form
    assert replayed(path) == list(range(6))
    assert next(frames_in(path.read_bytes(), form)) == Gap(0, 0)


def test_the_structure_of_every_packet_ends_where_it_ends(loaded: list[bytes]) -> None:
    chance = random.Random(1)
    for each in [*loaded, *some_packets(chance, FORMAT)]:
        assert end_of_value(each, 0) == len(each)
        assert end_of_value(each + b"more", 0) == len(each)
        assert end_of_value(each[:-1], 0) == len(each) or end_of_value(each[:-1], 0) == len(each[:-1]) + 1
    for _ in range(2000):
        end_of_value(chance.randbytes(chance.randrange(1, 60)), 0)


# -- what is told ------------------------------------------------------------------------------------------------------


def ten_by_ten(path: Path) -> list[Block]:
    """Four blocks of ten letters each, and their places."""
    with RecordingWriter(path) as writer:
        for number in range(40):
            writer.write(Letter(number=number), number)
            if number % 10 == 9:
                writer.flush()
    return [each for each in blocks_in(path.read_bytes()) if isinstance(each, Block) and each.head.events]


def told(path: Path) -> tuple[list[int], list[str], int]:
    """The numbers that are read, what is said about damage, without the path, and how many events are lost."""
    recording = read_recording(path, [Letter])
    numbers = [one.event.number for one in recording]  # type: ignore[attr-defined]
    return numbers, [each.removeprefix(f"{path}: ") for each in recording.damage], recording.lost


def test_a_file_that_was_cut_is_truncated_and_what_is_lost_counts_as_one_where_it_is_not_known(path: Path) -> None:
    blocks = ten_by_ten(path)
    data, last = path.read_bytes(), blocks[3]
    path.write_bytes(data[: last.start + 30])
    assert told(path) == ([*range(30)], [f"truncated at byte {last.start}: 30 bytes skipped"], 1)
    path.write_bytes(data[: last.end - 1])
    assert told(path) == ([*range(30)], [f"truncated at byte {last.start}: 10 of 10 events lost"], 10)
    path.write_bytes(data[: last.end])
    assert told(path) == ([*range(40)], [], 0)
    path.write_bytes(data[: last.end] + b"more")
    assert told(path) == ([*range(40)], [f"truncated at byte {last.end}: 4 bytes skipped"], 1)


def test_bytes_between_blocks_are_told_and_cost_nothing(path: Path) -> None:
    blocks = ten_by_ten(path)
    data, at = path.read_bytes(), blocks[2].start
    path.write_bytes(data[:at] + b"between" + data[at:])
    assert told(path) == ([*range(40)], [f"damaged at byte {at}: 7 bytes skipped, 0 events lost"], 0)


def test_blocks_that_are_missing_are_told_by_the_head_of_the_next(path: Path) -> None:
    """Not if only what comes later was asked for."""
    blocks = ten_by_ten(path)
    data, start = path.read_bytes(), blocks[0].start
    path.write_bytes(data[:start] + data[blocks[1].start :])
    assert told(path) == ([*range(10, 40)], [f"damaged at byte {start}: 10 events lost before it"], 10)
    path.write_bytes(data[: blocks[1].start] + data[blocks[2].start :])
    lost = f"damaged at byte {blocks[1].start}: 10 events lost before it"
    assert told(path) == ([*range(10), *range(20, 40)], [lost], 10)
    recording = read_recording(path, [Letter])
    assert [each.at_us for each in recording.read_from(25)] == [*range(25, 40)]
    assert (recording.damage, recording.lost) == ([], 0)


def test_before_the_first_block_there_is_one_gap_at_most() -> None:
    """A missing header is an empty one."""
    good = pack_events([1], b"", [EventGroup("Letter", {}, 1, *bundle(msgspec.msgpack.Encoder().encode_into, [{}]))])
    found = {name: [each for each in blocks_in(data) if isinstance(each, Gap)] for name, data in {
        "whole": HEADER + good, "without": good, "noise": b"noise" + good, "cut": HEADER[3:] + good, "nothing": b"",
    }.items()}  # fmt: skip
    assert found == {"whole": [], "without": [Gap(0, 0)], "noise": [Gap(0, 5)], "cut": [Gap(0, 5)], "nothing": []}


# -- reading a file by parts -------------------------------------------------------------------------------------------


@given(
    data=st.binary(max_size=60), what=st.binary(min_size=1, max_size=4), at=st.integers(-5, 65), end=st.integers(0, 65)
)
@examples(200)
def test_a_file_is_read_and_searched_as_its_bytes_are(data: bytes, what: bytes, at: int, end: int) -> None:
    """Also for what lies across the parts that are read."""
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        patched.setattr(_frames, "READ_AHEAD", 8)
        (path := Path(folder) / "file").write_bytes(data + what + data)
        whole = path.read_bytes()
        with path.open("rb", buffering=0) as file:
            read = _frames.FileBytes(file, path)
            assert len(read) == len(whole)
            for start in (0, abs(at)):
                assert read[start:end] == whole[start:end]
                assert read.find(what, start) == whole.find(what, start)
                assert read.find(what, start, end) == whole.find(what, start, end)
            assert read[at:] == whole[at:]
            assert read.rfind(what) == whole.rfind(what)
            assert (read.find(b"\x00not there"), read.rfind(b"\x00not there")) == (-1, -1)


VALUES = [
    b"\x00", b"\x7f", b"\xe0", b"\xff", b"\xc0", b"\xc2", b"\xc3",
    b"\xcc" + bytes(1), b"\xcd" + bytes(2), b"\xce" + bytes(4), b"\xcf" + bytes(8),
    b"\xd0" + bytes(1), b"\xd1" + bytes(2), b"\xd2" + bytes(4), b"\xd3" + bytes(8),
    b"\xca" + bytes(4), b"\xcb" + bytes(8),
    b"\xa0", b"\xa1x", b"\xbf" + bytes(31), b"\xd9\x02xx", b"\xda\x00\x02xx", b"\xdb\x00\x00\x00\x02xx",
    b"\xc4\x02xx", b"\xc5\x00\x02xx", b"\xc6\x00\x00\x00\x02xx",
    b"\xd4" + bytes(2), b"\xd5" + bytes(3), b"\xd6" + bytes(5), b"\xd7" + bytes(9), b"\xd8" + bytes(17),
    b"\xc7\x02\x01xx", b"\xc8\x00\x02\x01xx", b"\xc9\x00\x00\x00\x02\x01xx",
    b"\x90", b"\x92\x01\x02", b"\x9f" + bytes(15), b"\xdc\x00\x02\x01\x02", b"\xdd\x00\x00\x00\x02\x01\x02",
    b"\x80", b"\x81\x01\x02", b"\x8f" + bytes(30), b"\xde\x00\x01\x01\x02", b"\xdf\x00\x00\x00\x01\x01\x02",
    b"\x92\x81\xa1a\x91\xc4\x01x\xc0",
]  # fmt: skip
"""Msgpack values of every form."""


@pytest.mark.parametrize("value", VALUES, ids=bytes.hex)
def test_the_structure_of_a_value_says_where_it_ends(value: bytes) -> None:
    """Also if it was cut there: then it ends after the file."""
    assert end_of_value(b"--" + value + b"\x01", 2) == 2 + len(value)
    for size in range(1, len(value)):
        found = end_of_value(value[:size], 0)
        assert found is not None
        assert found > size
    assert end_of_value(b"\x92" + value + b"\xc1", 0) is None


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("noise", [b"x", b"\xc1", b"\x9e", b"xy"])
def test_a_frame_is_found_right_after_any_noise(form: FrameFormat, noise: bytes) -> None:
    """Also after one byte, as the marker has it."""
    frame, at = form.frame(packet(Letter(number=1))), len(form.header)
    found = list(frames_in(form.header + noise + frame + noise + frame, form))
    ends = [(each.start, each.end, type(each)) for each in found]
    first, second = at + len(noise), at + 2 * len(noise) + len(frame)
    assert ends == [
        (at, first, Gap), (first, first + len(frame), Frame), (first + len(frame), second, Gap),
        (second, second + len(frame), Frame),
    ]  # fmt: skip
    assert [type(each) for each in frames_in(frame + frame, form)] == [Gap, Frame, Frame]


UNSEEN = (0xEDB88320 << 1 | 1).to_bytes(5, "little")
"""Wrong bits that a CRC-32 does not see, wherever they are: its polynomial."""


def test_what_was_put_right_is_confirmed_by_the_second_checksum(path: Path) -> None:
    """One wrong bit can be put right; with others that the first checksum does not see, the events are lost."""
    (block, *_) = ten_by_ten(path)
    data = path.read_bytes()

    def wrong(at: int, bits: bytes) -> None:
        changed = bytearray(data)
        for place, each in enumerate(bits, at):
            changed[place] ^= each
        assert zlib.crc32(changed) == zlib.crc32(data) or len(bits) == 1
        path.write_bytes(changed)

    wrong(block.end - 30, b"\x04")
    assert told(path)[0] == [*range(40)]
    wrong(block.end - 30, UNSEEN)
    changed = bytearray(path.read_bytes())
    changed[block.end - 12] ^= 0x10
    path.write_bytes(changed)
    numbers, (said,), lost = told(path)
    assert (numbers, lost) == ([*range(10, 40)], 10)
    assert said == f"damaged at byte {block.start}: 10 of 10 events lost"


@pytest.mark.parametrize("types", [1, 2])
def test_a_damaged_page_costs_the_bundles_that_have_bytes_in_it_and_no_others(path: Path, types: int) -> None:
    """Of their times, of where they end, or of their events; all events, if it is not known which are of which type."""
    count = 700
    with RecordingWriter(path) as writer:
        writer._limit = 10_000
        for number in range(count):
            event = (
                Letter(number=number, text="z" * 50) if number % types == 0 else Parcel(number=number, note="n" * 20)
            )
            writer.write(event, number)
    data = path.read_bytes()
    block = next(each for each in blocks_in(data) if isinstance(each, Block))
    assert block.head.events == count
    columns = count * (8 if types == 1 else 9)
    bytes_of: dict[tuple[int, int], list[range]] = {}
    at = columns
    for kind, group in enumerate(block.groups):
        for number in range(group.bundles):
            bytes_of[kind, number] = [range(at - 4 * bool(number), at + 4)]
            at += 4
    payload = data[block.payload_start : block.end]
    for kind, group in enumerate(block.groups):
        start, begin = at + 5, 0
        for number in range(group.bundles):
            ends = bytes_of[kind, number][0]
            end = int.from_bytes(payload[ends.stop - 4 : ends.stop], "little")
            bytes_of[kind, number].append(range(start + begin, start + end))
            begin = end
        at = start + group.size
    assert at == len(payload) == block.head.payload_size

    def bundle_of(event: int) -> tuple[int, int]:
        return event % types, event // types // BUNDLE

    for number in range(count):
        bytes_of[bundle_of(number)].append(range(8 * number, 8 * number + 8))
    for page in range(0, len(payload), PAGE):
        changed = bytearray(data)
        hit = range(page, min(page + PAGE, len(payload)))
        changed[block.payload_start + page : block.payload_start + hit.stop] = bytes(len(hit))
        path.write_bytes(changed)
        recording = read_recording(path, [Parcel, Letter])
        lost = {
            key
            for key, parts in bytes_of.items()
            if any(part.start < hit.stop and hit.start < part.stop for part in parts)
        }
        is_unknown = types == 2 and hit.start < columns and 8 * count < hit.stop
        wanted = [] if is_unknown else [event for event in range(count) if bundle_of(event) not in lost]
        assert [one.event.number for one in recording] == wanted, page  # type: ignore[attr-defined]
        assert recording.lost == count - len(wanted)


@pytest.mark.parametrize("rest", [-1, 0, 1])
def test_a_payload_may_end_anywhere_in_a_page(path: Path, rest: int) -> None:
    """It is read, and one wrong bit of it put right."""

    def write(size: int) -> Block:
        path.unlink(missing_ok=True)
        with RecordingWriter(path) as writer:
            writer.write(Parcel(number=1, load=bytes(size)), 0)
        return next(each for each in blocks_in(path.read_bytes()) if isinstance(each, Block))

    block = write(1000)
    block = write(1000 + 2 * PAGE + rest - block.head.payload_size)
    assert block.head.payload_size == 2 * PAGE + rest
    assert replayed(path) == [1]
    data = bytearray(path.read_bytes())
    data[block.end - 1] ^= 1
    path.write_bytes(data)
    assert replayed(path) == [1]
