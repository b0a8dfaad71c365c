"""Binary logs hold the frames that python-can finds in them, with directions and the names of channels."""

import random
import sqlite3
import struct
import zlib
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

import can
from genus.can import Frame, read_log
from genus.can.types import CanLog, LoggedFrame
from tests.can.test_log_formats import CAN_FRAME, pcap, write

START = (2023, 11, 2, 14, 22, 13, 20, 250)
FD_SIZES = [0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 20, 24, 32, 48, 64]


# -- BLF ---------------------------------------------------------------------------------------------------------------


def blf_object(kind: int, payload: bytes, ticks: int, flags: int = 2, version: int = 1) -> bytes:
    header = struct.pack("<LHHQ", flags, 0, 0, ticks) + bytes(8 * (version == 2))
    size = 16 + len(header) + len(payload)
    return struct.pack("<4sHHLL", b"LOBJ", 16 + len(header), version, size, kind) + header + payload + bytes(size % 4)


def blf(objects: list[bytes], rng: random.Random) -> bytes:
    """A file whose containers end anywhere in the objects."""
    stream, parts = b"".join(objects), [b"LOGG" + struct.pack("<L32x8H", 144, *START)]
    parts[0] = parts[0].ljust(144, b"\0")
    while stream:
        content, stream = stream[: (size := rng.randrange(40, 3000))], stream[size:]
        packed = struct.pack("<H6xL4x", 2, len(content)) + zlib.compress(content)
        size = 16 + len(packed)
        parts.append(struct.pack("<4sHHLL", b"LOBJ", 16, 1, size, 10) + packed + bytes(size % 4))
    return b"".join(parts)


def random_object(rng: random.Random) -> bytes:
    """An object with a frame of any kind, or with something else."""
    kind = rng.choice([1, 1, 86, 86, 73, 100, 100, 101, 101, 65, 115])
    extended = rng.random() < 0.5
    identifier = rng.getrandbits(29) | 1 << 31 if extended else rng.getrandbits(11)
    channel, flags = rng.randrange(1, 4), rng.choice([0, 0, 1, 1, 0x80, 0x81])
    code, fd = rng.randrange(16), rng.random() < 0.7
    size = FD_SIZES[code] if fd else min(code, 8)
    data = rng.randbytes(64)
    if kind in (1, 86):
        payload = struct.pack("<HBBL8s", channel, flags, code, identifier, data)
    elif kind == 73:
        payload = struct.pack("<HHLBBBxLLH2x8s", channel, 0, 0, 0, 0, 8, 0, identifier, 0, data)
    elif kind == 100:
        payload = struct.pack("<HBBLLBBB5x64s", channel, flags, code, identifier, 0, 0, fd, size, data)
    elif kind == 101:
        what = fd << 12 | (flags & 0x80 > 0) << 4
        stored = rng.choice([size, size, max(size - 3, 0)])  # the others are zero
        head = (channel, code, size, 0, identifier, 0, what, 0, 0, 0, 0, 0, flags & 1, 0, 0)
        payload = struct.pack("<BBBBLLLLLLLHBBL", *head) + data[:stored]
    else:
        payload = rng.randbytes(rng.randrange(16, 50))
    tens = rng.random() < 0.3
    ticks = rng.randrange(10**6) * 10 if tens else rng.randrange(10**6) * 1000
    return blf_object(kind, payload, ticks, 1 if tens else 2, rng.choice([1, 2]))


@pytest.mark.parametrize("seed", range(25))
def test_objects_of_every_kind_are_read_as_python_can_reads_them(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    path = write(tmp_path / "some.blf", blf([random_object(rng) for _ in range(rng.randrange(1, 300))], rng))
    wanted, skipped = list[LoggedFrame](), Counter[str]()
    for each in can.BLFReader(str(path)):
        assert isinstance(each.channel, int)
        if each.is_error_frame or each.is_remote_frame:
            skipped["error frame" if each.is_error_frame else "remote frame"] += 1
            continue
        frame = Frame(each.arbitration_id, bytes(each.data), each.is_fd, each.is_extended_id)
        direction = "rx" if each.is_rx else "tx"
        wanted.append(LoggedFrame(round(each.timestamp * 1e6), str(each.channel + 1), frame, direction))  # type: ignore[arg-type]
    log = read_log(path)
    assert list(log) == wanted
    del log.skipped["no CAN frame"]
    assert (log.skipped, log.problems) == (skipped, [])


def text_object(source: int, details: int, text: str) -> bytes:
    return blf_object(65, struct.pack("<LLL4x", source, details, len(text)) + text.encode(), 0)


def frame_object(channel: int, flags: int = 0) -> bytes:
    return blf_object(86, struct.pack("<HBBL8s", channel, flags, 1, 0x123, b"\x11"), 1000)


XML = """<?xml version="1.0" encoding="UTF-8"?>
<channels version="1"><channel number="1" type="CAN" network="Engine"><databases/></channel>
<channel number="2" type="LIN" network="Seats"></channel><channel number="3" type="CAN" network="" /></channels>"""


@pytest.mark.parametrize(
    ("texts", "names"),
    [
        ([], ["1", "2", "3"]),
        ([text_object(2, len(XML), XML)], ["Engine", "2", "3"]),
        ([text_object(2, 200, XML[:90]), text_object(2, 110, XML[90:])], ["Engine", "2", "3"]),
        ([text_object(1, 1 << 16 | 2 << 8, r"C:\body.dbc;Body;C:\x.dbc;X")], ["1", "Body", "3"]),
        ([text_object(1, 5 << 16 | 2 << 8, r"C:\seats.ldf;Seats")], ["1", "2", "3"]),
        ([text_object(1, 1 << 16 | at << 8, "a.dbc;Same") for at in (1, 2)], ["1", "2", "3"]),
        ([text_object(1, 1 << 16 | 3 << 8, "a.dbc"), text_object(0, 0, "a comment")], ["1", "2", "3"]),
        ([blf_object(65, b"short", 0)], ["1", "2", "3"]),
    ],
)
def test_texts_of_a_blf_name_its_channels(texts: list[bytes], names: list[str], tmp_path: Path) -> None:
    raw = blf([*texts, *(frame_object(at, at % 2) for at in (1, 2, 3))], random.Random(1))
    log = read_log(write(tmp_path / "some.blf", raw))
    assert [(each.channel, each.direction) for each in log] == list(zip(names, ["tx", "rx", "tx"], strict=True))


# -- captures ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "direction"), [(0, "rx"), (1, "rx"), (4, "tx")])
def test_cooked_captures_say_what_was_sent(kind: int, direction: str, tmp_path: Path) -> None:
    for link, header in (
        (113, struct.pack(">HHHQH", kind, 280, 0, 0, 0x0C)),
        (276, struct.pack(">HHIHBBQ", 0x0C, 0, 7, 280, kind, 0, 0)),
    ):
        (found,) = read_log(write(tmp_path / "some.pcap", pcap(link, [header + CAN_FRAME])))
        assert (found.direction, found.channel) == (direction, "7" if link == 276 else None)


@pytest.mark.parametrize("order", ["<", ">"])
def test_packets_of_several_interfaces_keep_order_names_and_flags(order: str, tmp_path: Path) -> None:
    def block(kind: int, body: bytes) -> bytes:
        size = 12 + len(body)
        return struct.pack(f"{order}II", kind, size) + body + struct.pack(f"{order}I", size)

    def option(code: int, value: bytes) -> bytes:
        return struct.pack(f"{order}HH", code, len(value)) + value + bytes(-len(value) % 4)

    rng, wanted = random.Random(3), []
    raw = block(0x0A0D0D0A, struct.pack(f"{order}IHHq", 0x1A2B3C4D, 1, 0, -1))
    for name in (b"can0", b"can1"):
        raw += block(1, struct.pack(f"{order}HHI", 227, 0, 0) + option(2, name) + bytes(4))
    for at in range(200):
        which, flags = rng.randrange(2), rng.choice([None, 0, 1, 2, 3])
        options = option(1, b"a comment") if rng.random() < 0.5 else b""
        options += b"" if flags is None else option(2, struct.pack(f"{order}I", flags))
        body = struct.pack(">IB3xB7x", at, 1, at)
        raw += block(6, struct.pack(f"{order}5I", which, 0, at, 16, 16) + body + options + bytes(4 * bool(options)))
        direction = {1: "rx", 2: "tx"}.get(flags or 0)
        wanted.append((at, f"can{which}", Frame(at, bytes([at]), extended=False), direction))
    log = read_log(write(tmp_path / "some.pcapng", raw))
    assert list(log) == wanted
    assert not log.problems


# -- databases and MF4 -------------------------------------------------------------------------------------------------


def database(path: Path, rows: list[tuple[object, ...]]) -> CanLog:
    with closing(sqlite3.connect(path)) as made, made:
        made.execute("CREATE TABLE messages (ts, arbitration_id, extended, remote, error, dlc, data)")
        made.executemany("INSERT INTO messages VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
    return read_log(path)


def test_rows_of_a_database_that_are_no_frames_are_told(tmp_path: Path) -> None:
    good = (1.5, 0x123, 0, 0, 0, 1, b"\x11")
    log = database(
        tmp_path / "some.db",
        [
            good,
            (1.5, 0x123, 0, 1, 0, 1, b"\x11"),
            (1.5, 0x123, 0, 1, 1, 1, b"\x11"),
            ("soon", 0x123, 0, 0, 0, 1, b"\x11"),
            (-1, 0x123, 0, 0, 0, 1, b"\x11"),
            (1e300, 0x123, 0, 0, 0, 1, b"\x11"),
            (1.5, "0x123", 0, 0, 0, 1, b"\x11"),
            (1.5, 0x800, 0, 0, 0, 1, b"\x11"),
            (1.5, 0x123, 0, 0, 0, 1, "text"),
            (1.5, 0x123, 0, 0, 0, 1, bytes(65)),
            (2, 0x123, None, None, None, 0, None),
            (1.5, 0x123, 1, 0, 0, 12, bytes(12)),
            good,
        ],
    )
    standard = LoggedFrame(1_500_000, None, Frame(0x123, b"\x11", extended=False))
    long = LoggedFrame(1_500_000, None, Frame(0x123, bytes(12), True, True))
    empty = LoggedFrame(2_000_000, None, Frame(0x123, b"", extended=False))
    assert list(log) == [standard, empty, long, standard]
    assert log.skipped == {
        "remote frame": 1,
        "error frame": 1,
        "time out of range": 3,
        "identifier out of range": 2,
        "length and data disagree": 2,
    }
    assert "row 8: identifier out of range" in log.problems
    assert len(log.problems) == 7


def test_mf4_has_directions_and_numbers_of_channels(tmp_path: Path) -> None:
    path = tmp_path / "some.mf4"
    with can.MF4Writer(str(path)) as log:
        for at in range(6):
            log.on_message_received(can.Message(1e9 + at, 0x100 + at, data=[at], is_rx=at % 3 > 0, channel=at % 2 + 1))
    found = [(each.frame.data[0], each.direction, each.channel) for each in read_log(path)]
    assert [each[:2] for each in found] == [(at, "rx" if at % 3 else "tx") for at in range(6)]
    assert len({each[2] for each in found}) == 2
