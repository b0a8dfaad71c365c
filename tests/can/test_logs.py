"""CAN logs of every format: what is good is read, what is not is counted with its place and reason."""

import gzip
import json
import random
import struct
import zlib
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

import can
from genus import Subscription
from genus.bus import read_recording
from genus.can._dbc import Decoding, decode_log, load_dbc
from genus.can._logs import CanLog, LoggedFrame, read_log
from genus.can._wire.frame import Frame
from genus.cli._can_dbc import decode
from genus.errors import GenusError, RecordingError
from tests.examples import examples

HOUSE = Path(__file__).parent / "golden" / "house.dbc"
START = 1_700_000_000

WRITERS: dict[str, Callable[[Path], Any]] = {
    "log": can.CanutilsLogWriter,
    "asc": can.ASCWriter,
    "blf": can.BLFWriter,
    "trc": can.TRCWriter,
    "csv": can.CSVWriter,
}


def messages(count: int = 20, seed: int = 1) -> list[can.Message]:
    """Data frames with standard and extended identifiers, half a second apart, from a whole second on."""
    rng = random.Random(seed)
    return [
        can.Message(
            timestamp=START + at / 2,
            arbitration_id=rng.getrandbits(29 if at % 2 else 11),
            is_extended_id=bool(at % 2),
            data=rng.randbytes(rng.randrange(1, 9)),
            channel=0,
        )
        for at in range(count)
    ]


def write(path: Path, what: list[can.Message]) -> Path:
    writer = WRITERS[path.suffix.removeprefix(".")](path)
    for message in what:
        writer.on_message_received(message)
    writer.stop()
    return path


def frames(what: list[can.Message]) -> list[Frame]:
    return [Frame(each.arbitration_id, bytes(each.data), each.is_fd, each.is_extended_id) for each in what]


def log_of(path: Path, text: str | bytes, name: str = "some.log") -> CanLog:
    (path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_log(path / name)


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> None:
    """python-can writes the dates of ASC files in the zone of the machine."""
    import time

    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


# -- every format --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", WRITERS)
@pytest.mark.parametrize("packed", [False, True])
def test_what_python_can_writes_is_read(ending: str, packed: bool, tmp_path: Path) -> None:
    path = write(tmp_path / f"some.{ending}", messages())
    if packed:
        packed_path = tmp_path / f"some.{ending}.gz"
        packed_path.write_bytes(gzip.compress(path.read_bytes()))
        path = packed_path
    log = read_log(path)
    found = list(log)
    assert [each.frame for each in found] == frames(messages())
    assert [each.at_us for each in found] == [(2 * START + at) * 500_000 for at in range(20)]
    assert log.frames == 20
    assert not log.skipped
    assert log.position == log.size


@pytest.mark.parametrize("ending", [ending for ending in WRITERS if ending != "trc"])
def test_error_and_remote_frames_are_counted(ending: str, tmp_path: Path) -> None:
    error = can.Message(timestamp=START, is_error_frame=True)
    remote = can.Message(timestamp=START + 1, arbitration_id=5, is_remote_frame=True, dlc=0, channel=0)
    log = read_log(write(tmp_path / f"some.{ending}", [messages(1)[0], error, remote, messages(2)[1]]))
    assert len(list(log)) == 2
    assert log.skipped == {"error frame": 1, "remote frame": 1}
    assert not log.problems


@pytest.mark.parametrize("ending", ["log", "asc", "blf"])
def test_fd_frames_are_read(ending: str, tmp_path: Path) -> None:
    fd = can.Message(timestamp=START, arbitration_id=9, is_fd=True, bitrate_switch=True, data=bytes(range(64)), dlc=64)
    fd.channel = 0
    (found,) = read_log(write(tmp_path / f"some.{ending}", [fd]))
    assert found.frame == Frame(9, bytes(range(64)), fd=True, extended=True)


@pytest.mark.parametrize(
    ("ending", "channel"), [("log", "can0"), ("asc", "1"), ("blf", "1"), ("trc", "1"), ("csv", None)]
)
def test_channels_are_named_as_the_file_names_them(ending: str, channel: str | None, tmp_path: Path) -> None:
    (found,) = read_log(write(tmp_path / f"some.{ending}", messages(1)))
    assert found.channel == channel


@pytest.mark.parametrize("ending", ["log", "asc", "trc", "csv"])
@pytest.mark.parametrize(
    "damage", [b"", b"garbage", b"\x00\xff\xfe\x80", b"1.0 1 zz Rx d 8 1 2", b"9" * 70_000, b"9 9"]
)
def test_damaged_lines_cost_only_themselves(ending: str, damage: bytes, tmp_path: Path) -> None:
    path = write(tmp_path / f"some.{ending}", messages(500))
    lines = path.read_bytes().split(b"\n")
    for at in (len(lines) - 2, 250, 20):
        lines.insert(at, damage)
    path.write_bytes(b"\n".join(lines))
    log = read_log(path)
    assert [each.frame for each in log] == frames(messages(500))
    assert log.skipped.total() == (3 if damage else 0)
    assert len(log.problems) == (3 if damage else 0)
    assert all(place.startswith("line ") for place in log.problems)


@pytest.mark.parametrize("ending", WRITERS)
def test_a_file_cut_anywhere_is_read_up_to_the_cut(ending: str, tmp_path: Path) -> None:
    whole = write(tmp_path / f"whole.{ending}", messages(12)).read_bytes()
    cut = tmp_path / f"cut.{ending}"
    for end in range(0, len(whole), 23):
        cut.write_bytes(whole[:end])
        try:
            found = [each.frame for each in read_log(cut)]
        except RecordingError:
            assert ending in ("blf", "csv")  # nothing left that identifies it, or the names of its columns
            continue
        wanted = frames(messages(12))
        assert found[:-1] == wanted[: len(found)][:-1], "only the last line can be one that was longer"
        if ending in ("log", "csv"):
            assert len(found) >= whole[:end].count(b"\n") - (ending == "csv")


@pytest.mark.slow
@pytest.mark.parametrize("ending", WRITERS)
def test_a_packed_file_cut_anywhere_is_read_up_to_the_cut(ending: str, tmp_path: Path) -> None:
    """And its last line, which may have been longer, is not taken for a frame."""
    whole = gzip.compress(write(tmp_path / f"whole.{ending}", messages(300)).read_bytes())
    cut = tmp_path / f"cut.{ending}.gz"
    wanted = frames(messages(300))
    for end in range(12, len(whole), len(whole) // 9):
        cut.write_bytes(whole[:end])
        log = read_log(cut)
        try:
            found = [each.frame for each in log]
        except RecordingError:
            assert ending in ("blf", "csv")
            continue
        assert found == wanted[: len(found)]
        assert log.skipped["file cut short"] >= 1


def test_a_packed_file_that_is_damaged_is_read_up_to_the_damage(tmp_path: Path) -> None:
    lines = "".join(f"({at}.0) can0 123#{at % 256:02X}\n" for at in range(20_000)).encode()
    packed = bytearray(gzip.compress(lines))
    packed[len(packed) // 2] ^= 0xFF
    log = log_of(tmp_path, bytes(packed), "some.log.gz")
    assert list(log)
    assert sum(log.skipped.values()) >= 1
    tail = bytearray(gzip.compress(lines))
    tail[-8] ^= 1
    log = log_of(tmp_path, bytes(tail), "tail.log.gz")
    assert len(list(log)) == 20_000
    assert "CRC" in str(log.skipped)


@pytest.mark.slow
@pytest.mark.parametrize("files", [25, pytest.param(500, marks=pytest.mark.slow)])
@pytest.mark.parametrize("ending", WRITERS)
def test_flipped_bytes_never_raise(ending: str, files: int, tmp_path: Path) -> None:
    whole = write(tmp_path / f"whole.{ending}", messages(30)).read_bytes()
    bad = tmp_path / f"bad.{ending}"
    rng = random.Random(3)
    for _ in range(files):
        data = bytearray(whole)
        for _ in range(rng.randrange(1, 6)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        bad.write_bytes(data)
        with suppress(RecordingError):
            assert all(isinstance(each, LoggedFrame) for each in read_log(bad))


@examples(60)
@given(data=st.binary(max_size=400), ending=st.sampled_from(sorted(WRITERS)))
def test_any_bytes_are_a_log_or_one_clear_error(
    data: bytes, ending: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / f"any.{ending}"
    path.write_bytes(data)
    with suppress(RecordingError):
        assert all(isinstance(each, LoggedFrame) for each in read_log(path))


def test_a_log_can_be_read_twice(tmp_path: Path) -> None:
    log = log_of(tmp_path, "(1.0) can0 123#11\nx\n")
    assert list(log) == list(log)
    assert (log.frames, log.skipped) == (1, {"damaged line": 1})


def test_files_that_cannot_be_read_at_all_are_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="No such file"):
        read_log(tmp_path / "none.log")
    with pytest.raises(RecordingError, match="'mf5' is no format of CAN logs; known: log, candump, asc, trc, "):
        read_log(tmp_path / "some.mf4", "mf5")
    with pytest.raises(
        RecordingError, match="not recognised as a CAN log: none of the first 1 lines is a frame of log, "
    ):
        log_of(tmp_path, b"hello", "some.txt")
    (tmp_path / "folder.log").mkdir()
    with pytest.raises(RecordingError, match="directory"):
        read_log(tmp_path / "folder.log")
    with pytest.raises(RecordingError, match=r"some\.blf: it is no BLF file"):
        list(log_of(tmp_path, b"hello", "some.blf"))


def test_the_format_can_be_given(tmp_path: Path) -> None:
    (tmp_path / "some.txt").write_text("(1.0) can0 123#11\n")
    assert len(list(read_log(tmp_path / "some.txt", "log"))) == 1


FOUR = Frame(0x123, bytes.fromhex("11223344"), extended=False)
EIGHT = Frame(0x123, bytes.fromhex("1122334455667788"), extended=False)


# -- candump -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("(1.000001) can0 123#11223344", LoggedFrame(1_000_001, "can0", FOUR)),
        ("(1.5) vcan1 1F334455#", LoggedFrame(1_500_000, "vcan1", Frame(0x1F334455))),
        ("(1.123456789) can0 123#1122334455667788_E", LoggedFrame(1_123_456, "can0", EIGHT)),
        ("(1.0) can0 123##1AABB", LoggedFrame(1_000_000, "can0", Frame(0x123, b"\xaa\xbb", fd=True, extended=False))),
        ("(1.0) can0 123#11 R", LoggedFrame(1_000_000, "can0", Frame(0x123, b"\x11", extended=False), "rx")),
        ("(1.0)  can0  00000123#aB T", LoggedFrame(1_000_000, "can0", Frame(0x123, b"\xab"), "tx")),
    ],
)  # fmt: skip
def test_lines_of_candump(line: str, wanted: LoggedFrame, tmp_path: Path) -> None:
    assert list(log_of(tmp_path, line)) == [wanted]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("(1.0) can0 123#R", "remote frame"),
        ("(1.0) can0 123#R8", "remote frame"),
        ("(1.0) can0 20000080#0000000000000000", "error frame"),
        ("(1.0) can0 FFF#11", "identifier out of range"),
        ("(1.0) can0 80000001#11", "identifier out of range"),
        ("(1.0) can0 123#112233445566778899", "damaged line"),
        ("(1.0) can0 123#1", "damaged line"),
        ("(1.0) can0 123#zz", "damaged line"),
        ("(nan) can0 123#11", "damaged line"),
        ("(-1.0) can0 123#11", "damaged line"),
        ("(1.0) can0", "damaged line"),
        ("(999999999999.0) can0 123#11", "time out of range"),
        ("(1.0) can0 123##1" + "00" * 65, "damaged line"),
    ],
)
def test_lines_of_candump_that_are_no_data_frames(line: str, reason: str, tmp_path: Path) -> None:
    log = log_of(tmp_path, line)
    assert list(log) == []
    assert log.skipped == {reason: 1}


# -- ASC, TRC, CSV -------------------------------------------------------------------------------------------------

ASC = """date Sat Sep 30 03:06:13.191 PM 2017
base {base}  timestamps {times}
{events}internal events logged
// version 9.0.0
{trigger}   0.500000 1  64              Rx   d 2 10 11
   0.250000 2  64x             Tx   d 1 10 Length = 0
   1.000000 1  Statistic: D 1 R 0 XD 0 XR 0 E 0 O 0 B 0.04%
   2.000000 CANFD   1 Rx        100                                  1 0 9 12 {fd} 0 0 0 0 0 0 0 0
"""
DAY = datetime(2017, 9, 30, 15, 6, 13, 191_000, tzinfo=UTC)


def asc(base: str = "hex", times: str = "absolute", events: str = "", trigger: str = "") -> str:
    data = " ".join(f"{each:02x}" if base == "hex" else f"{each:02d}" for each in range(12))
    return ASC.format(base=base, times=times, events=events, trigger=trigger, fd=data)


def seconds(log: CanLog, since: datetime) -> list[float]:
    return [each.at_us / 1e6 - since.timestamp() for each in log]


@pytest.mark.parametrize(("base", "identifier", "data"), [("hex", 0x64, b"\x10\x11"), ("dec", 64, b"\x0a\x0b")])
def test_asc_numbers_are_hexadecimal_or_decimal(base: str, identifier: int, data: bytes, tmp_path: Path) -> None:
    found = list(log_of(tmp_path, asc(base), "some.asc"))
    assert found[0].frame == Frame(identifier, data, extended=False)
    assert found[1] == LoggedFrame(found[1].at_us, "2", Frame(identifier, data[:1]), "tx")
    assert found[2].frame == Frame(0x100 if base == "hex" else 100, bytes(range(12)), fd=True, extended=False)


def test_asc_times_count_from_the_date_or_the_trigger(tmp_path: Path) -> None:
    assert seconds(log_of(tmp_path, asc(), "some.asc"), DAY) == pytest.approx([0.5, 0.25, 2.0])
    trigger = "Begin Triggerblock Sat Sep 30 15:06:14 2017\n"
    assert seconds(log_of(tmp_path, asc(trigger=trigger), "some.asc"), DAY) == pytest.approx([1.309, 1.059, 2.809])
    german = asc().replace("Sep 30 03:06:13.191 PM 2017", "Mär 1 15:06:13.191 2017")
    day = DAY.replace(month=3, day=1)
    for encoding in ("utf-8", "latin-1"):
        assert seconds(log_of(tmp_path, german.encode(encoding), "some.asc"), day)[0] == pytest.approx(0.5)


def test_asc_times_may_count_from_the_line_before(tmp_path: Path) -> None:
    log = log_of(tmp_path, asc(times="relative"), "some.asc")
    assert seconds(log, DAY) == pytest.approx([0.5, 0.75, 3.75])


def test_asc_without_a_date_it_understands_counts_from_1970(tmp_path: Path) -> None:
    log = log_of(tmp_path, asc().replace("Sep", "Foo"), "some.asc")
    assert [each.at_us for each in log] == [500_000, 250_000, 2_000_000]
    assert log.skipped == {"date not understood": 1, "no CAN frame": 1}


def test_asc_keeps_the_first_frame_of_a_short_header(tmp_path: Path) -> None:
    log = log_of(tmp_path, "base hex timestamps absolute\n0.5 1 64 Rx d 1 10\n", "some.asc")
    assert [each.at_us for each in log] == [500_000]


def test_an_asc_line_with_fewer_bytes_than_it_says_is_damaged(tmp_path: Path) -> None:
    log = log_of(tmp_path, "base hex timestamps absolute\n0.5 1 64 Rx d 8 10 11\n0.6 1 64 Rx d 1 10\n", "some.asc")
    assert len(list(log)) == 1
    assert log.problems == ["line 2: length and data disagree"]


TRC = {
    "1.0": ";\n     1)      1841  0001  8  00 00 00 00 00 00 00 00\n     2)      1842  12345678  1  FF\n",
    "1.1": ";$FILEVERSION=1.1\n;$STARTTIME=43474.5\n     1)      1059.9  Rx         0300  7  00 00 00 00 04 00 00\n"
    "     2)      1283.2  Warng  FFFFFFFF  4  00 00 00 04  BUSLIGHT\n",
    "1.3": ";$FILEVERSION=1.3\n;$STARTTIME=43474.5\n     1)      1059.9 1  Rx        0300 -  7  00 00 00 00 04 00 00\n",
    "2.1": ";$FILEVERSION=2.1\n;$STARTTIME=43474.5\n;$COLUMNS=N,O,T,B,I,d,R,L,D\n"
    "      1      1059.900 DT 1      0300 Rx -  7    00 00 00 00 04 00 00 \n"
    "      2      1060.000 FB 2      0400 Tx -  9    00 01 02 03 04 05 06 07 08 09 0A 0B \n"
    "      3      1061.000 RR 2      0400 Tx -  0\n      4      1062.000 ER 2 Rx - 5 04 00 02 00 00\n",
}


@pytest.mark.parametrize("version", TRC)
def test_trc_of_every_version(version: str, tmp_path: Path) -> None:
    log = log_of(tmp_path, TRC[version], "some.trc")
    found = list(log)
    assert found[0].frame.id == (1 if version == "1.0" else 0x300)
    noon = datetime(2019, 1, 9, 12, tzinfo=UTC).timestamp()
    assert found[0].at_us == (1_841_000 if version == "1.0" else round((noon + 1.0599) * 1e6))
    assert log.skipped["no CAN frame"] == (version == "1.1")
    assert log.skipped["error frame"] == log.skipped["remote frame"] == (version == "2.1")


def test_a_damaged_trc_header_is_said(tmp_path: Path) -> None:
    log = log_of(tmp_path, TRC["1.1"].replace("43474.5", "noon"), "some.trc")
    assert len(list(log)) == 1
    assert log.skipped["header not understood"] == 1


def test_csv_without_a_header_keeps_its_first_line(tmp_path: Path) -> None:
    log = log_of(tmp_path, "1.5,0x123,0,0,0,2,ESI=\n2.5,0x123,0,0,0,3,ESI=\n", "some.csv")
    assert list(log) == [LoggedFrame(1_500_000, None, Frame(0x123, b"\x11\x22", extended=False))]
    assert log.problems == ["line 2: length and data disagree"]


# -- BLF -----------------------------------------------------------------------------------------------------------


class SmallContainers(can.BLFWriter):
    max_container_size = 500


@pytest.fixture
def containers(tmp_path: Path) -> tuple[Path, list[int]]:
    """A BLF file of many containers, with objects that go over their ends, and where containers begin."""
    path = tmp_path / "many.blf"
    writer = SmallContainers(path)
    for message in messages(200):
        writer.on_message_received(message)
    writer.stop()
    data = path.read_bytes()
    starts = [at for at in range(len(data)) if data[at : at + 4] == b"LOBJ"]
    assert len(starts) > 10
    return path, starts


def test_objects_may_go_over_the_end_of_a_container(containers: tuple[Path, list[int]]) -> None:
    log = read_log(containers[0])
    assert [each.frame for each in log] == frames(messages(200))
    assert not log.skipped


@pytest.mark.parametrize("offset", [0, 8, 12, 16, 40])
def test_a_damaged_container_costs_only_its_frames(containers: tuple[Path, list[int]], offset: int) -> None:
    """Signature, size, type, compression, or packed data."""
    path, starts = containers
    data = bytearray(path.read_bytes())
    at = starts[5] + offset
    data[at : at + 2] = b"\xff\xfe"
    path.write_bytes(data)
    log = read_log(path)
    found = [each.frame for each in log]
    wanted = frames(messages(200))
    assert len(found) >= 200 - 14
    assert found == [frame for frame in wanted if frame in found], "in order, none made up"
    assert found[:40] == wanted[:40]
    assert found[-100:] == wanted[-100:]
    assert offset == 8 or log.problems


def test_a_blf_without_its_header_is_read_and_its_times_count_from_1970(containers: tuple[Path, list[int]]) -> None:
    path, _ = containers
    path.write_bytes(b"X" * 144 + path.read_bytes()[144:])
    log = read_log(path)
    found = list(log)
    assert [each.frame for each in found] == frames(messages(200))
    assert found[1].at_us == 500_000
    assert log.skipped == {"file header damaged: times count from 1970": 1}


def blf_of(tmp_path: Path, *objects: bytes) -> CanLog:
    content = b"".join(objects)
    packed = struct.pack("<H6xL4x", 2, len(content)) + zlib.compress(content)
    header = b"LOGG" + struct.pack("<L", 144) + bytes(136)
    return log_of(tmp_path, header + struct.pack("<4sHHLL", b"LOBJ", 16, 1, 16 + len(packed), 10) + packed, "made.blf")


def blf_object(type_: int, payload: bytes, *, size: int | None = None, header: int = 32, version: int = 1) -> bytes:
    outer = struct.pack("<4sHHLL", b"LOBJ", header, version, 32 + len(payload) if size is None else size, type_)
    return outer + struct.pack("<LHHQ", 2, 0, 0, 1_000_000_000) + payload


FRAME = struct.pack("<HBBL8s", 1, 0, 2, 0x123, b"\x11\x22")


@pytest.mark.parametrize(
    ("bad", "reasons"),
    [
        (blf_object(65, b"something else"), {"no CAN frame": 1}),
        (blf_object(1, FRAME[:-4]), {"damaged object": 1}),
        (blf_object(1, FRAME, header=99), {"damaged object": 1}),
        (blf_object(1, FRAME, version=9), {"damaged object": 1}),
        (blf_object(1, FRAME, size=0), {"damaged object": 1}),
        (blf_object(1, FRAME, size=1 << 30), {"damaged object": 1}),
        (blf_object(1, FRAME, size=60), {"damaged object": 1}),
        (b"not an object at all", {"damaged object": 1}),
        (blf_object(101, struct.pack("<BBB37x", 1, 15, 255)), {"length and data disagree": 1}),
    ],
)
def test_a_damaged_object_costs_only_itself(bad: bytes, reasons: dict[str, int], tmp_path: Path) -> None:
    good = blf_object(1, FRAME)
    log = blf_of(tmp_path, good, bad, good, good)
    assert list(log) == [LoggedFrame(1_000_000, "1", Frame(0x123, b"\x11\x22", extended=False), "rx")] * 3
    assert log.skipped == reasons


def test_a_container_that_decompresses_to_far_too_much_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("genus.can._logs.blf.MAX_CONTAINER", 1000)
    log = blf_of(tmp_path, *[blf_object(1, FRAME)] * 100)
    assert list(log) == []
    assert log.skipped == {"damaged container": 1}


@pytest.mark.parametrize("files", [50, pytest.param(500, marks=pytest.mark.slow)])
def test_no_frame_is_made_up_from_the_pieces_of_damaged_containers(
    containers: tuple[Path, list[int]], files: int
) -> None:
    path, _ = containers
    whole, wanted = path.read_bytes(), set(frames(messages(200)))
    rng = random.Random(11)
    for _ in range(files):
        data = bytearray(whole)
        for _ in range(rng.randrange(1, 6)):
            at = rng.randrange(144, len(data))
            data[at : at + rng.randrange(5)] = rng.randbytes(rng.randrange(5))
        path.write_bytes(data)
        assert {each.frame for each in read_log(path)} <= wanted


def test_a_blf_file_cut_between_objects_is_said_to_be_cut(tmp_path: Path) -> None:
    path = write(tmp_path / "some.blf", messages(2000))
    path.write_bytes(path.read_bytes()[:-2000])
    log = read_log(path)
    assert [each.frame for each in log] == frames(messages(2000))[: log.frames]
    assert log.frames > 1500
    assert log.skipped == {"file cut short": 1}


# -- decoding ------------------------------------------------------------------------------------------------------

LOG = """(10.0) can0 100#C810FF01020FFFFF
(10.5) can0 200#0000000000000000
(11.0) can0 200#0200000000000000
(11.5) can0 100#00
(12.0) can0 7FF#00
(12.5) can1 100#0000000000000000
(13.0) can0 18F00433#0000004000000000
damaged
(14.0) can0 100#R
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    (tmp_path / "drive.log").write_text(LOG)
    return tmp_path / "drive.log"


def test_a_log_becomes_a_recording_of_events_at_the_times_of_their_frames(log: Path, tmp_path: Path) -> None:
    house = load_dbc(HOUSE)
    notices: list[int] = []
    done = decode_log(house, log, tmp_path / "drive.genus", progress=notices.append)
    recorded = list(read_recording(tmp_path / "drive.genus", house.types.values()))
    assert [each.at_us / 1e6 for each in recorded] == [10.0, 10.5, 12.5, 13.0]
    assert [type(each.event).__name__ for each in recorded] == ["Lamp", "Event_", "Lamp", "Engine"]
    event = recorded[0].event
    assert event.time == datetime(1970, 1, 1, 0, 0, 10, tzinfo=UTC)
    assert (event.source, event.place) == ("Kitchen", "can0")
    assert notices[-1] == len(LOG)
    assert done.frames == 7
    assert done.events == {"Lamp": 2, "Event_": 1, "Engine": 1}
    assert done.rejected == {
        "unknown identifier": 1,
        "Lamp: too short: 1 of 8 bytes": 1,
        "Event_: multiplexer which selects nothing": 1,
    }
    assert done.unknown_ids == {"7FF": 1}
    assert done.skipped == {"damaged line": 1, "remote frame": 1}


def test_every_frame_is_an_event_or_has_a_reason(log: Path) -> None:
    house = load_dbc(HOUSE)
    asked = Subscription.parse("Lamp where watts > 0", [*house.types.values()])
    decoding = Decoding(house, read_log(log), asked, channel="can0")
    assert len(list(decoding)) == 1
    assert decoding.rejected["channel can1"] == 1
    assert decoding.log.frames == decoding.frames == 7


def test_the_figures_of_a_decoding_stay_when_the_log_is_read_again(log: Path, tmp_path: Path) -> None:
    """Two decodings of one log, the second interrupted after its first event."""
    house, shared = load_dbc(HOUSE), read_log(log)
    done = decode_log(house, shared, tmp_path / "drive.genus")
    other = iter(Decoding(house, shared))
    next(other)
    assert (done.frames, done.skipped) == (7, {"damaged line": 1, "remote frame": 1})
    assert shared.frames < 7


def test_a_recording_that_exists_is_not_overwritten(log: Path, tmp_path: Path) -> None:
    house = load_dbc(HOUSE)
    decode_log(house, log, tmp_path / "drive.genus")
    with pytest.raises(RecordingError, match="exists"):
        decode_log(house, log, tmp_path / "drive.genus")
    decode_log(house, log, tmp_path / "drive.genus", append=True)
    assert len(list(read_recording(tmp_path / "drive.genus", house.types.values()))) == 8


def test_a_log_is_decoded_by_the_path_of_a_file_and_any_form_of_a_subscription(log: Path, tmp_path: Path) -> None:
    for asked in ("Lamp where watts > 0", "Lamp", load_dbc(HOUSE, reuse=True).types["Lamp"]):
        done = decode_log(HOUSE, log, tmp_path / "drive.genus", subscription=asked, append=True)
        assert set(done.events) == {"Lamp"}
        assert done.unwanted > 0


def test_unknown_identifiers_are_counted_one_by_one_up_to_a_number(tmp_path: Path) -> None:
    lines = "".join(f"(1.0) can0 {each:08X}#\n" for each in range(3000))
    decoding = Decoding(load_dbc(HOUSE), log_of(tmp_path, lines))
    assert list(decoding) == []
    assert decoding.rejected["unknown identifier"] == 2999, "200 is known, but too short"
    assert len(decoding.unknown_ids) == 1001
    assert decoding.unknown_ids.total() == 2999


def run(*arguments: object) -> Result:
    return CliRunner().invoke(decode, ["--dbc", str(HOUSE), *map(str, arguments)])


def test_the_command_counts_by_reason(log: Path, tmp_path: Path) -> None:
    done = run(log, "-o", tmp_path / "drive.genus")
    assert done.exit_code == 0
    said = " ".join(done.stdout.split())
    assert "frames 7 channel can0 6 channel can1 1 events 4 rejected 3" in said
    assert "Lamp: too short: 1 of 8 bytes 1" in said
    assert "unknown identifiers 1 7FF 1" in said
    assert "skipped in the log 2" in said
    assert "line 8: damaged line" in done.stderr
    assert len(list(read_recording(tmp_path / "drive.genus", load_dbc(HOUSE).types.values()))) == 4


def test_the_command_prints_events_as_lines_of_json(log: Path) -> None:
    done = run(log, "--json", "-s", "Lamp where watts > 0", "--channel", "can0")
    (event,) = [json.loads(line) for line in done.stdout.splitlines()]
    assert (event["type"], event["watts"], event["mode_label_2"]) == ("Lamp", 100.0, "100 %")
    assert event["time"] == "1970-01-01T00:00:10Z"
    assert "not asked for" in done.stderr


def test_the_command_ends_with_one_line_where_nothing_can_be_read(log: Path, tmp_path: Path) -> None:
    for arguments in (["none.log"], [log, "-s", "Nothing"]):
        done = run(*arguments)
        assert isinstance(done.exception, GenusError), done.output
        assert done.exit_code == 1
    for wrong in (["--append"], ["-o", tmp_path], ["--format", "xyz"]):
        assert run(log, *wrong).exit_code == 2
    other = run(log, "--channel", "can7")
    assert (other.exit_code, "did you mean 'can" in other.output) == (1, True)


def test_python_cans_reader_is_the_oracle_for_lines(tmp_path: Path) -> None:
    """What we cut into lines and objects is what python-can reads from the file as a whole."""
    for ending in ("asc", "trc", "csv"):
        path = write(tmp_path / f"some.{ending}", messages(700, seed=5))
        theirs = [each for each in can.LogReader(path) if not each.is_error_frame]
        assert [each.frame for each in read_log(path)] == frames(theirs)


def test_a_file_without_a_single_frame_is_said_to_be_no_log(tmp_path: Path) -> None:
    path = tmp_path / "noise.log"
    path.write_text("this is not a log\n")
    result = run(path)
    assert result.exit_code == 1
    assert "not one frame" in result.output
