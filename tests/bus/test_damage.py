"""Damaged recordings: what damage costs, and that nothing is replayed that lies inside an event.

The law for files with blocks: one wrong bit costs nothing; otherwise the events of blocks that are whole in the damaged
file are replayed, in the order in which they are there, and of damaged blocks some of their own events at most.

The law for files of the second format: the events that are replayed are those of the frames that are whole in the
damaged file, in the order in which they are there. So an event is replayed twice only if the bytes of its whole frame
are there twice.
"""

import random
import re
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus import Event, Maybe
from genus.bus import RecordingWriter, read_recording
from genus.bus._blocks import BUNDLE, HEADER, MARKER, Block, EventGroup, blocks_in, bundle, find_format, pack_events
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
