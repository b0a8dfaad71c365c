"""Segmentation in C is the wire format of docs/wire.md, and that of the Python implementation, byte for byte."""

from random import Random

import pytest

from genus.can import Frame
from genus.can import split_payload as split_in_python
from genus.can._wire.segments import Reassembler
from tests.devices.c_library import LARGE, node_library
from tests.devices.c_node import SEGMENT_RESULTS
from tests.devices.c_segments import CReassembler, split_payload

IDENTIFIER = 0x0021_6010
SECOND = 1_000_000_000


def test_the_vectors_of_the_page() -> None:
    assert [data.hex(" ") for data in split_payload(b"", 0)] == ["e0"]
    assert [data.hex(" ") for data in split_payload(b"seven b", 1)] == ["73 65 76 65 6e 20 62 e1"]
    assert [data.hex(" ") for data in split_payload(b"123456789", 30)] == ["31 32 33 34 35 36 37 be", "38 39 29 b1 5f"]
    assert [data.hex(" ") for data in split_payload(b"longer than a frame", 31)] == [
        "6c 6f 6e 67 65 72 20 bf",
        "74 68 61 6e 20 61 20 00",
        "66 72 61 6d 65 56 c7 61",
    ]


@pytest.mark.parametrize("capacity", [8, 64])
def test_payloads_are_split_as_in_python(capacity: int) -> None:
    for size in (*range(150), 255, 256, 300, 1000, 65_535):
        payload, transfer = Random(size).randbytes(size), size % 32
        assert split_payload(payload, transfer, capacity) == split_in_python(payload, transfer, capacity), size


def test_there_is_no_segment_after_the_last() -> None:
    assert node_library(*LARGE).segment(b"short", 5, 0, 1, b"12345678") == 0


def damaged(random: Random, frames: list[bytes]) -> list[bytes]:
    """Frames lost, doubled, swapped, cut, changed, or from another time."""
    found = [frame for frame in frames if random.random() > 0.05]
    for index in range(len(found) - 1):
        if random.random() < 0.03:
            found[index], found[index + 1] = found[index + 1], found[index]
    doubled = [frame for each in found for frame in ([each, each] if random.random() < 0.1 else [each])]
    return [_changed(random, frame) if random.random() < 0.02 else frame for frame in doubled]


def _changed(random: Random, frame: bytes) -> bytes:
    if random.random() < 0.5:
        return frame[: random.randrange(len(frame) + 1)]
    place = random.randrange(len(frame))
    return frame[:place] + random.randbytes(1) + frame[place + 1 :]


def compare(transfers: int, seed: int, capacity: int) -> int:
    """Give the same damaged frames to both; returns how many payloads came. With CAN FD some senders are classic."""
    random, python, c = Random(seed), Reassembler(SECOND), CReassembler(SECOND, capacity=capacity)
    now = whole = 0
    for number in range(transfers):
        payload = random.randbytes(random.choice((0, 3, 7, 8, 20, 50, 200)))
        for data in damaged(random, split_in_python(payload, number, random.choice((8, capacity)))):
            now += random.choice((1_000, 1_000, 1_000, SECOND // 2, 2 * SECOND)) if random.random() < 0.05 else 1_000
            frame = Frame(IDENTIFIER, data)
            one, other = python.receive(frame, now), c.receive(frame, now)
            assert one == other, f"transfer {number}: {frame}"
            whole += one is not None
    assert c.counts == {reason: count & 0xFFFF for reason, count in python.counts.items()}  # those in C wrap around
    return whole


@pytest.mark.parametrize("capacity", [8, 64])
def test_damaged_frames_give_the_same_payloads_and_counts_as_in_python(capacity: int) -> None:
    assert compare(3_000, 1, capacity) > 1_000


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_many_more_damaged_frames(seed: int) -> None:
    assert compare(50_000, seed, 8 if seed % 2 else 64) > 10_000


def test_a_transfer_that_does_not_fit_the_buffer_is_lost() -> None:
    c = CReassembler(SECOND, max_bytes=52)
    fits, too_long = (split_payload(bytes(size), 1) for size in (50, 51))
    assert [c.receive(Frame(IDENTIFIER, data), 0) for data in fits][-1] == bytes(50)
    assert not any(c.receive(Frame(IDENTIFIER, data), 1) for data in too_long)
    assert c.counts == {"too long": 1}
    assert [c.receive(Frame(IDENTIFIER, data), 2) for data in split_payload(b"next", 2)] == [b"next"]


def test_frames_of_can_fd_are_refused_by_a_node_of_a_classic_bus() -> None:
    c = CReassembler(SECOND)
    assert c.receive(Frame(IDENTIFIER, bytes(11) + b"\xe0", fd=True), 0) is None
    assert c.counts == {"fd": 1}
    assert "fd" in SEGMENT_RESULTS
