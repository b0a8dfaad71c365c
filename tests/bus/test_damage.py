"""Damaged recordings: every whole frame is replayed, in order, and nothing that lies inside the packet of another.

The law for files of the current format: the events that are replayed are those of the frames that are whole in the
damaged file, in the order in which they are there. So an event is replayed twice only if the bytes of its whole frame
are there twice.
"""

import random
import re
from pathlib import Path

import pytest

from genus import Event, Maybe
from genus.bus._codec import encode_event
from genus.bus._frames import FIRST_FORMAT, FORMAT, Frame, FrameFormat, Gap, end_of_value, find_format, frames_in
from genus.bus._recording import RecordingWriter, read_recording

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


def test_a_writer_writes_what_the_law_speaks_of(tmp_path: Path) -> None:
    """The marker is at the beginning of frames and nowhere else, whatever is in the packets."""
    for seed in range(50):
        packets = some_packets(random.Random(seed), FORMAT)
        path = tmp_path / f"{seed}.genus"
        with RecordingWriter(path) as writer:
            for each in packets:
                writer.append(each)
        data = path.read_bytes()
        assert data == written_as(FORMAT, packets)
        assert data.count(FORMAT.marker) == len(packets)
        assert [found.packet for found in frames_in(data, FORMAT) if isinstance(found, Frame)] == packets


def test_a_checksum_that_equals_the_marker_is_stored_inverted(monkeypatch: pytest.MonkeyPatch) -> None:
    packets = [packet(Parcel(number=1))]
    monkeypatch.setattr("genus.bus._frames.zlib.crc32", lambda _: FORMAT.reserved)
    data = written_as(FORMAT, packets)
    assert data.count(FORMAT.marker) == 1
    assert [found.packet for found in frames_in(data, FORMAT) if isinstance(found, Frame)] == packets


# -- the first format --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def loaded() -> list[bytes]:
    """Packets with frames of the first format in them: in the middle, at the end, and a recording of several."""
    inner = [FIRST_FORMAT.frame(packet(Letter(number=INSIDE + n, text="z" * n))) for n in range(3)]
    recording = written_as(FIRST_FORMAT, [packet(Letter(number=INSIDE + n)) for n in range(3)])
    events = [Parcel(number=0), Parcel(number=1, load=inner[0], note="after"), Parcel(number=2)]
    events += [Parcel(number=3, load=inner[1] + inner[2]), Parcel(number=4, loads=[recording]), Parcel(number=5)]
    return list(map(packet, events))


def test_in_a_file_of_the_first_format_one_wrong_byte_costs_one_event(tmp_path: Path, loaded: list[bytes]) -> None:
    """Any byte of a frame; frames inside the packet of the damaged one are not replayed."""
    path = tmp_path / "old.genus"
    whole = written_as(FIRST_FORMAT, loaded)
    for index, (start, end) in enumerate(places(FIRST_FORMAT, loaded)):
        for at in range(start, end):
            for bit in (1, 4, 0x80) if at % 3 else (2, 0x40, 0xFF):
                path.write_bytes(whole[:at] + bytes([whole[at] ^ bit]) + whole[at + 1 :])
                assert replayed(path) == [number for number in range(len(loaded)) if number != index], f"byte {at}"


def test_a_file_of_the_first_format_that_was_cut_replays_up_to_the_cut(tmp_path: Path, loaded: list[bytes]) -> None:
    path = tmp_path / "old.genus"
    whole = written_as(FIRST_FORMAT, loaded)
    ends = [end for _, end in places(FIRST_FORMAT, loaded)]
    for cut in range(ends[0], len(whole)):
        path.write_bytes(whole[:cut])
        assert replayed(path) == list(range(sum(end <= cut for end in ends))), f"cut at {cut}"


def test_a_file_of_the_first_format_is_continued_in_it(tmp_path: Path, loaded: list[bytes]) -> None:
    path = tmp_path / "old.genus"
    path.write_bytes(written_as(FIRST_FORMAT, loaded))
    with RecordingWriter(path, append=True) as writer:
        writer.write(Parcel(number=6, load=FORMAT.marker * 3), 0)
    assert replayed(path) == list(range(7))
    assert path.read_bytes().startswith(written_as(FIRST_FORMAT, loaded))


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
