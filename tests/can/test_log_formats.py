# ruff: noqa: E501 (lines of logs are long)
"""Logs in every format: what a tool writes is read back, in columns as line by line, and damage is told."""

import bz2
import gc
import gzip
import io
import lzma
import random
import sqlite3
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import cantools.logreader
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

import can
from genus.can import Decoding, Frame, load_dbc, read_log
from genus.can._logs.detect import Head, detect, open_text
from genus.can._logs.text_reader import TextReader
from genus.can.types import LogBlock, LoggedFrame
from genus.errors import RecordingError
from tests.can.log_writers import FD_CODES, START_US, WRITERS, Writer
from tests.examples import examples

HOUSE = Path(__file__).parent / "golden" / "house.dbc"
TEXT_FORMATS = sorted(WRITERS)


seeds = st.integers(0, 1 << 32)


def logged_frames(writer: Writer, seed: int, most: int = 40) -> list[LoggedFrame]:
    """Frames that a format can hold, a second apart at most, at times that it can express."""
    rng, keeps = random.Random(seed), writer.keeps.split()
    at_us, found = START_US, []
    channels = rng.choices("0123", k=rng.randrange(1, 3)) if "channel" in keeps else ["1"]
    for _ in range(rng.randrange(1, most)):
        extended = "extended" in keeps and rng.random() < 0.5
        fd = "fd" in keeps and rng.random() < 0.2
        size = rng.choice(sorted(FD_CODES)) if fd else rng.choice([8, 8, 8, 2, 0, 1, 7])
        identifier = rng.getrandbits(29 if extended else 11) >> rng.choice([0, 0, 5])
        found.append(LoggedFrame(at_us, rng.choice(channels), Frame(identifier, rng.randbytes(size), fd, extended)))
        at_us += rng.randrange(1, 1_000_000) * writer.resolution_us % 1_000_000
    return found


def wanted(writer: Writer, frames: Sequence[LoggedFrame]) -> list[LoggedFrame]:
    """What of frames a format keeps; logs without a date count from 1970."""
    keeps, res = writer.keeps.split(), writer.resolution_us
    start = 0 if "time" in keeps else START_US
    return [
        LoggedFrame(
            (each.at_us - start) // res * res,
            each.channel if "channel" in keeps else None,
            each.frame,
            writer.direction(number, each),
        )
        for number, each in enumerate(frames)
    ]


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def reader_of(writer: Writer, text: bytes, **options: Any) -> TextReader:
    return TextReader(open_text(writer.format, Head.of(text)).format, **options)


def seen(block: LogBlock) -> tuple[list[tuple[int, LoggedFrame]], Counter[Any], Counter[str]]:
    return list(block.rows()), Counter((each.position, each.reason) for each in block.damaged), block.skipped


# -- laws --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TEXT_FORMATS)
@given(seed=seeds)
@examples(5)
def test_what_a_tool_writes_is_recognised_and_read(
    name: str, seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Frames, times and channels, as far as the format keeps them; the ending of the name says nothing."""
    writer = WRITERS[name]
    frames = logged_frames(writer, seed)
    path = write(tmp_path_factory.getbasetemp() / "some.txt", writer.write(frames))
    log = read_log(path, writer.format)
    found = list(log)
    if log.times == "none":
        found = [each._replace(at_us=0) for each in found]
    asked = wanted(writer, frames)
    if log.detected.doubts and name == "candump -t d":
        found, asked = [each._replace(at_us=0) for each in found], [each._replace(at_us=0) for each in asked]
    assert found == asked
    assert not log.skipped


def damaged(writer: Writer, seed: int) -> bytes:
    """A log with some bytes replaced, left out or put in, and with a line of another format in it."""
    rng = random.Random(seed)
    text = bytearray(writer.write(logged_frames(writer, seed)), "latin-1")
    for _ in range(rng.randrange(5)):
        at = rng.randrange(len(text))
        text[at : at + rng.randrange(3)] = rng.choice([b"", b" ", b"0", b"x", b"\n", b'"', b",", b"\0", b"\xff"])
    other = WRITERS[rng.choice(TEXT_FORMATS)].write(logged_frames(writer, seed, 2))
    return bytes(text) + (other.encode() if rng.random() < 0.5 else b"") + bytes(text)


@pytest.mark.parametrize("name", TEXT_FORMATS)
@given(seed=seeds)
@examples(5)
def test_columns_are_what_lines_are(name: str, seed: int) -> None:
    """Also after damage."""
    writer, raw = WRITERS[name], damaged(WRITERS[name], seed)
    if writer.format == "csv" and text_reader_or_none(raw) is None:
        return
    assert_same_frames(writer, raw)


def assert_same_frames(writer: Writer, raw: bytes) -> None:
    """By shapes, by tokens, and line by line."""
    expected = seen(reader_of(writer, raw, learns=False).parse(raw))
    assert seen(reader_of(writer, raw).parse(raw)) == expected
    assert seen(reader_of(writer, raw, shapes=False, worth_splitting=1).parse(raw)) == expected
    assert seen(reader_of(writer, raw, worth_splitting=1).parse(raw)) == expected


@pytest.mark.slow
@pytest.mark.parametrize("name", TEXT_FORMATS)
@given(seed=seeds)
@examples(400)
def test_columns_are_what_lines_are_in_many_logs(name: str, seed: int) -> None:
    writer, raw = WRITERS[name], damaged(WRITERS[name], seed)
    if writer.format == "csv" and text_reader_or_none(raw) is None:
        return
    assert_same_frames(writer, raw)


def text_reader_or_none(raw: bytes) -> TextReader | None:
    """The reader of a CSV log; None if its header is damaged."""
    with suppress(RecordingError):
        return TextReader(open_text("csv", Head.of(raw)).format)
    return None


@pytest.mark.parametrize("name", [name for name in TEXT_FORMATS if WRITERS[name].format != "busmaster"])
def test_a_log_may_be_read_in_blocks(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the size of blocks; positions and the numbers of damaged lines count from the beginning."""
    writer, rng = WRITERS[name], random.Random(4)
    frames = [
        LoggedFrame(START_US + 1000 * at, "1", Frame(0x100 + at % 7, rng.randbytes(8), extended=False))
        for at in range(300)
    ]
    lines = writer.write(frames).splitlines(keepends=True)
    lines.insert(250, "? what is this ?\n")
    path = write(tmp_path / "some.txt", "".join(lines))
    whole = list(read_log(path))
    monkeypatch.setattr("genus.can._logs.log_file.TEXT_CHUNK", 999)
    log = read_log(path)
    assert list(log) == whole
    assert len(whole) == 300
    assert [problem.partition(":")[0] for problem in log.problems] == ["line 251"]


@pytest.mark.parametrize("name", TEXT_FORMATS)
def test_formats_are_told_apart(name: str) -> None:
    rng = random.Random(5)
    frames = [
        LoggedFrame(START_US + 10_000 * at, "1", Frame(0x1A0 + at % 9, rng.randbytes(8), extended=False))
        for at in range(50)
    ]
    assert detect(WRITERS[name].write(frames).encode()).format == WRITERS[name].format


@given(st.binary(max_size=200), st.sampled_from(TEXT_FORMATS), seeds)
@examples(40)
def test_no_bytes_make_a_reader_raise(noise: bytes, name: str, seed: int) -> None:
    writer = WRITERS[name]
    text = writer.write(logged_frames(writer, seed, 12)).encode()
    place = seed % (len(text) + 1)
    raw = text[:place] + noise + text[place:]
    detect(raw)
    assert isinstance(reader_of(writer, text).parse(raw), LogBlock)


# -- lines from the documents of the tools -----------------------------------------------------------------------------

STD, EXT = False, True


def frame(identifier: int, data: str, extended: bool = STD, fd: bool = False) -> Frame:
    return Frame(identifier, bytes.fromhex(data), fd, extended)


SAMPLES: dict[str, tuple[str, str, list[tuple[float | None, str | None, Frame]]]] = {
    "colours": ("candump", " \x1b[31m can0  123   [2]  11 22\x1b[0m\n", [(None, "can0", frame(0x123, "1122"))]),
    "flags": (
        "candump",
        " (000.000000)  vcan0  TX B -  123  [12]  11 22 33 44 55 66 77 88 99 AA BB CC\n (000.100000)  any  7FF   [0] \n",
        [(0, "vcan0", frame(0x123, "112233445566778899AABBCC", fd=True)), (0.1, "any", frame(0x7FF, ""))],
    ),
    "old SavvyCAN": (
        "csv",
        "Time Stamp,ID,Extended,Bus,LEN,D1,D2,D3,D4,D5,D6,D7,D8\n166064000,0000021A,false,0,2,FE,36,00,00,00,00,00,00\n",
        [(166.064, "0", frame(0x21A, "FE36"))],
    ),
    "Vehicle Spy": (
        "csv",
        "Intrepid\nStart Date,6/29/2018\n\nLine,Abs Time(Sec),Rel Time (Sec),Status,Er,Tx,Description,Network,Node,PT,Trgt,"
        "Src,B1,B2,B3,B4,B5,B6,B7,B8,Value,Trigger,Signals\nLine,Abs Time(Sec),Rel Time (Sec),Status,Er,Tx,Description,"
        "Network,Node,Arb ID,Remote,Xtd,B1,B2,B3,B4,B5,B6,B7,B8,Value,Trigger,Signals\n"
        "2,2550.368293675,0.0038,67371008,F,F,HS CAN $119,HS CAN,,119,F,F,00,8B,,,,,,,,,\n",
        [(2550.368293, "HS CAN", frame(0x119, "008B"))],
    ),
    "Cabana": ("csv", "time,addr,bus,data\n0.01,512,0,0011\n0.02,1024,1,22\n", [
        (0.01, "0", frame(512, "0011")), (0.02, "1", frame(1024, "22"))]),
    "dataset": ("csv", "timestamp,arbitration_id,data_field,attack\n1672531360.461454,0C1,0000,0\n", [
        (1672531360.461454, None, frame(0xC1, "0000"))]),
    "IXXAT": ("csv", '"00:01:03.03","223","Std","","00 01 "\n"00:01:03.04","18FEF100","Ext","","02 "\n', [
        (63.03, None, frame(0x223, "0001")), (63.04, None, frame(0x18FEF100, "02", EXT))]),
    "Microchip": ("csv", "12345.6;RX;0x123;2;0x11;0x22;\n12346.6;RX;0x124;1;0x11;\n", [
        (12345.6, None, frame(0x123, "1122")), (12346.6, None, frame(0x124, "11"))]),
    "CL1000": ("csv", "# Logger type: CL1000\nTimestamp;Type;ID;Data\n01T000001500;0;7e8;0102\n", [
        (86401.5, None, frame(0x7E8, "0102"))]),
    "ISO date": ("csv", "Timestamp,Arbitration ID,Data\n2023-01-01T12:00:01.5+01:00,1A3,01 02\n", [
        (datetime(2023, 1, 1, 11, 0, 1, 500_000, tzinfo=UTC).timestamp(), None, frame(0x1A3, "0102"))]),
    "microseconds": ("csv", "timestamp,id,data\n1594000000123456,1A3,0102\n", [
        (1594000000.123456, None, frame(0x1A3, "0102"))]),
    "python-can's text": (
        "labelled",
        "Timestamp:        0.500000    ID:      123    S Rx                DL:  2    00 01      Channel: vcan0\n"
        "Timestamp:        0.600000    ID: 00000123    X Rx                DL:  0    \n",
        [(0.5, "vcan0", frame(0x123, "0001")), (0.6, None, frame(0x123, "", EXT))],
    ),
    "a sketch": ("labelled", "ID: 0x123  DLC: 2  Data: 0x11 0x22\n", [(None, None, frame(0x123, "1122"))]),
    "TRC 1.0": (
        "trc",
        ";   Start time: 24.03.2003 12:52:32.484\n;-\n     1)      1059  0001  2  00 11\n     2)      1283  FFFFFFFF  4  00 00 00 04\n"
        "     3)      1290  0002  2  RTR\n",
        [(datetime(2003, 3, 24, 12, 52, 33, 543_000, tzinfo=UTC).timestamp(), None, frame(1, "0011"))],
    ),
    "TRC 1.2": ("trc", ";$FILEVERSION=1.2\n;$STARTTIME=39878.5;\n     1)      1059.900  1  Rx         0300  1  0F  \n", [
        (datetime(2009, 3, 6, 12, 0, 1, 59_900, tzinfo=UTC).timestamp(), "1", frame(0x300, "0F"))]),
    "TRC 2.0": ("trc", ";$FILEVERSION=2.0\n;$COLUMNS=N,O,T,I,d,l,D\n 1 1059.900 FB 18EFC034 Tx 9  " + "01 " * 12 + "\n", [
        (1.0599, None, frame(0x18EFC034, "01" * 12, EXT, fd=True))]),
    "clock and tabs": ("trc", ";\n         0\t00:00:00:0008\t00000268\t2\t55 00\n", [
        (0.0008, None, frame(0x268, "5500", EXT))]),
    "CANHacker": ("table", "Time   ID     DLC Data\n3,001  123   2   01 02\n", [(3.001, None, frame(0x123, "0102"))]),
    "Kvaser decimal": ("kvaser", "Chn Identifier Flg   DLC  D0...1\n 0         331         2  255  17        1675.5 T\n", [
        (1675.5, "0", frame(331, "FF11"))]),
    "Busmaster decimal": (
        "busmaster",
        "***BUSMASTER Ver 2.4.0***\n***START DATE AND TIME 8:8:2014 11:49:7:965***\n***DEC***\n***ABSOLUTE MODE***\n"
        "00:00:12:9420 Rx 1 35 s 2 040 255 \n",
        [(datetime(2014, 8, 8, 11, 49, 20, 907_000, tzinfo=UTC).timestamp(), "1", frame(35, "28FF"))],
    ),
    "Busmaster at midnight": (
        "busmaster",
        "***BUSMASTER Ver 2.4.0***\n***START DATE AND TIME 8:8:2014 23:59:7:965***\n***HEX***\n***SYSTEM MODE***\n"
        "23:59:59:0000 Rx 1 0x1 s 0 \n00:00:01:0000 Rx 1 0x1 s 0 \n",
        [(datetime(2014, 8, day, *at, tzinfo=UTC).timestamp(), "1", frame(1, "")) for day, at in ((8, (23, 59, 59)), (9, (0, 0, 1)))],
    ),
    "slcan": ("slcan", "t1232AABB\nT1F33445510F\nr1230\n", [
        (None, None, frame(0x123, "AABB")), (None, None, frame(0x1F334455, "0F", EXT))]),
    "cansend": ("hash", "can0 123#1122\ncan0 124#R\n", [(None, "can0", frame(0x123, "1122"))]),
    "brackets around times": ("table", "(1479121434.5)  123   [2]  11 22\n", [
        (1479121434.5, None, frame(0x123, "1122"))]),
    "square brackets": ("hash", "[1479121434.5] 123#1122\n", [(1479121434.5, None, frame(0x123, "1122"))]),
    "a label behind": ("hash", "(1479121434.5) can0 0D0#1122 1\n", [(1479121434.5, "can0", frame(0x0D0, "1122"))]),
    "date without brackets": ("hash", "2023-01-01 11:00:01.5 can0 123#1122\n", [
        (datetime(2023, 1, 1, 11, 0, 1, 500_000, tzinfo=UTC).timestamp(), "can0", frame(0x123, "1122"))]),
    "date in a table": ("table", "2023-01-01 11:00:01.5 123 2 11 22\n", [
        (datetime(2023, 1, 1, 11, 0, 1, 500_000, tzinfo=UTC).timestamp(), None, frame(0x123, "1122"))]),
    "milliseconds in a table": ("table", "1479121434500 123 2 11 22\n", [
        (1479121434.5, None, frame(0x123, "1122"))]),
    "colons between bytes": ("table", "0.5 123 3 11:22:33\n", [(0.5, None, frame(0x123, "112233"))]),
    "no length": ("plain", "0.5 123 1122\n0.6 124 11\n", [
        (0.5, None, frame(0x123, "1122")), (0.6, None, frame(0x124, "11"))]),
    "no length and no time": ("plain", "0x123: 11 22\n", [(None, None, frame(0x123, "1122"))]),
    "equals": ("labelled", "t=0.5 id=0x123 len=2 data=11 22\n", [
        (0.5, None, frame(0x123, "1122"))]),
    "labels without a length": ("labelled", "ID: 0x123 Data: 11 22\n", [(None, None, frame(0x123, "1122"))]),
    "marked bytes": ("csv", "0.5, 0x123, 2, 0x11, 0x22\n0.6, 0x124, 2, 0x11, 0x22\n", [
        (0.5, None, frame(0x123, "1122")), (0.6, None, frame(0x124, "1122"))]),
    "marked bytes without a time": ("csv", "0x123,2,0x11,0x22\n0x124,2,0x11,0x22\n", [
        (None, None, frame(0x123, "1122")), (None, None, frame(0x124, "1122"))]),
    "a list of numbers": ("csv", 'time,id,data\n0.5,0x123,"[17, 234]"\n', [(0.5, None, frame(0x123, "11EA"))]),
    "text of bytes": ("csv", "time,id,data\n0.5,0x123,b'1122'\n", [(0.5, None, frame(0x123, "1122"))]),
    "comments": ("log", "# a drive\n(1.5) can0 123#11\n\n", [(1.5, "can0", frame(0x123, "11"))]),
}  # fmt: skip


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "mac"])
def test_lines_from_the_documents_of_tools(name: str, encoding: str, tmp_path: Path) -> None:
    format, text, expected = SAMPLES[name]
    raw = text.replace("\n", "\r").encode() if encoding == "mac" else text.encode(encoding)
    log = read_log(write(tmp_path / "some.dat", raw))
    found = [(None if log.times == "none" else each.at_us / 1e6, each.channel, each.frame) for each in log]
    assert (log.format, found) == (format, expected)
    assert not log.skipped.keys() - {"remote frame", "no CAN frame"}


def test_text_logs_are_read_without_importing_python_can(tmp_path: Path) -> None:
    """With asammdf installed that would take seconds."""
    path = write(tmp_path / "some.asc", "0.5 1  123  Rx   d 2 11 22\n")
    program = (
        f"import sys; from genus.can import read_log; assert len(list(read_log({str(path)!r}))) == 1; "
        "assert not sys.modules.keys() & {'can', 'cantools', 'asammdf'}"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_what_is_no_bytes_is_not_left_out(tmp_path: Path) -> None:
    log = read_log(write(tmp_path / "some.csv", "time,id,data\n0.5,123,11 22\n0.6,123,11 zz\n0.7,123,none\n"))
    assert [each.frame for each in log] == [frame(0x123, "1122")]
    assert log.problems == ["line 3: damaged line", "line 4: damaged line"]


def test_asc_dates_in_several_languages(tmp_path: Path) -> None:
    line = "base hex timestamps absolute\n0.5 1 64 Rx d 1 10\n"
    moment = datetime(2017, 3, 1, 15, 6, 13, 500_000, tzinfo=UTC).timestamp()
    for date in (
        "Wed Mar 1 03:06:13.000 pm 2017",
        "Mit Mär 1 15:06:13 2017",
        "mer. mars 1 15:06:13.000 2017",
        "Mi Mrz 1 15:06:13 2017",
        "Wed Mar 01 15:06:13:000 2017",
        "2017-03-01 15:06:13",
    ):
        (found,) = read_log(write(tmp_path / "some.asc", f"date {date}\n{line}"))
        assert found.at_us / 1e6 == moment, date


def test_the_format_may_be_given_against_the_content(tmp_path: Path) -> None:
    path = write(tmp_path / "some.csv", "(1.5) can0 123#11\n")
    assert read_log(path).format == "log"
    assert list(read_log(path, "asc")) == []
    with pytest.raises(RecordingError, match="no CSV log: no line names columns"):
        list(read_log(path, "csv"))


def test_a_log_without_time_stamps_has_the_date_of_its_file_and_events_have_no_time(tmp_path: Path) -> None:
    path = write(tmp_path / "some.txt", "  can0  100   [8]  C8 10 FF 01 02 0F FF FF\n")
    log = read_log(path)
    (found,) = log
    assert found.at_us == path.stat().st_mtime_ns // 1000
    (recorded,) = Decoding(load_dbc(HOUSE), log)
    assert recorded.at_us == found.at_us
    assert recorded.event.time is None


def test_damaged_lines_are_told_with_numbers_and_reasons(tmp_path: Path) -> None:
    lines = ["(1.5)  can0  123   [2]  11 22"] * 50
    lines[10] = "(1.5)  can0  123   [2]  11"
    lines[20] = "(1.5)  can0  FFF   [2]  11 22"
    lines[30] = "(1999-13-01 00:00:00.0)  can0  123   [2]  11 22"
    lines[40] = "hello"
    log = read_log(write(tmp_path / "some.txt", "\n".join(lines)))
    assert len(list(log)) == 46
    assert log.problems == [
        "line 11: length and data disagree",
        "line 21: identifier out of range",
        "line 31: time out of range",
        "line 41: damaged line",
    ]


def test_all_damage_is_counted_and_the_first_hundred_listed(tmp_path: Path) -> None:
    log = read_log(write(tmp_path / "some.txt", "(1.5)  can0  123   [1]  11\n" + "? ?\n" * 500))
    assert len(list(log)) == 1
    assert log.skipped == {"damaged line": 500}
    assert (len(log.problems), log.problems[-1]) == (100, "line 101: damaged line")


# -- packed files ------------------------------------------------------------------------------------------------------

PACKINGS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "zstd": lambda raw: zstandard.compress(raw),
    "zstd data": lambda raw: zstandard.compress(raw[:999]) + zstandard.compress(raw[999:]),
    "bzip2": bz2.compress,
    "xz": lzma.compress,
}


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("name", ["asc hex", "savvycan", "candump -L", "blf", "mf4", "sqlite"])
def test_compressed_logs_are_unpacked_and_a_cut_is_told(packing: str, name: str, tmp_path: Path) -> None:
    raw = binary(name, tmp_path) if name not in WRITERS else WRITERS[name].write(SOME).encode()
    plain, packed = write(tmp_path / "plain", raw), write(tmp_path / "packed", PACKINGS[packing](raw))
    assert list(read_log(packed)) == list(read_log(plain))
    assert len(list(read_log(packed))) == len(SOME)
    if name in WRITERS:
        log = read_log(write(tmp_path / "cut", PACKINGS[packing](raw)[:-60]), WRITERS[name].format)
        with suppress(RecordingError):  # nothing is left of a CSV file that shows what its columns are
            found = list(log)
            assert found == list(read_log(plain))[: len(found)]
            assert [reason for reason in log.skipped if reason == "file cut short" or "damaged" in reason]


# -- python-can and cantools are the oracles ---------------------------------------------------------------------------

SOME = [
    LoggedFrame(
        START_US + 250_000 * at, "1", Frame(0x100 + 37 * at, bytes([at % 256] * (at % 9)), extended=at % 3 == 0)
    )
    for at in range(40)
]
BINARY: dict[str, tuple[str, Callable[[Any], Any], Callable[[Any], Any]]] = {
    "asc": ("asc", can.ASCWriter, can.ASCReader),
    "csv": ("csv", can.CSVWriter, can.CSVReader),
    "trc": ("trc", can.TRCWriter, can.TRCReader),
    "blf": ("blf", can.BLFWriter, can.BLFReader),
    "sqlite": ("db", can.SqliteWriter, can.SqliteReader),
    "mf4": ("mf4", can.MF4Writer, can.MF4Reader),
}


def message(each: LoggedFrame) -> can.Message:
    logged = each.frame
    return can.Message(
        each.at_us / 1e6, logged.id, is_extended_id=logged.extended, data=logged.data, is_fd=logged.fd, channel=0
    )


def binary(name: str, folder: Path, frames: Sequence[LoggedFrame] = SOME) -> bytes:
    """What python-can writes."""
    ending, writer, _ = BINARY[name]
    path = folder / f"written.{ending}"
    with writer(str(path)) as log:
        for each in frames:
            log.on_message_received(message(each))
    return path.read_bytes()


@pytest.mark.parametrize("name", BINARY)
def test_python_cans_own_logs_are_read_as_it_reads_them(name: str, tmp_path: Path) -> None:
    fds = [LoggedFrame(START_US + 10_000_000 + size, "1", Frame(9, bytes(size), True, True)) for size in (12, 64)]
    frames = [*SOME, *(fds if name in ("asc", "blf", "mf4") else [])]
    path = write(tmp_path / "some.dat", binary(name, tmp_path, frames))
    log = read_log(path)
    found = list(log)
    assert log.format == name
    reader = BINARY[name][2](str(tmp_path / f"written.{BINARY[name][0]}"))
    theirs = list(reader)
    reader.stop()
    assert [each.frame for each in found] == [each.frame for each in frames]
    assert [(each.frame.id, each.frame.data) for each in found] == [
        (each.arbitration_id, bytes(each.data)) for each in theirs
    ]
    if name in ("csv", "sqlite", "blf"):
        assert [each.at_us for each in found] == [each.at_us for each in frames]
    elif name == "mf4":
        assert [round(each.at_us / 1e3) for each in found] == [round(each.timestamp * 1e3) for each in theirs]


@pytest.mark.parametrize(
    "name", ["candump -L", "candump -t a", "candump -t A", "candump", "trc 1.1", "trc 1.3", "trc 2.1"]
)
def test_cantools_reads_the_same_frames(name: str, tmp_path: Path) -> None:
    text = WRITERS[name].write(SOME)
    theirs = list(cantools.logreader.Parser(io.StringIO(text)))
    found = list(read_log(write(tmp_path / "some.dat", text)))
    expected = [(each.frame_id, each.is_extended_frame, each.data) for each in theirs]
    assert [(each.frame.id, each.frame.extended, each.frame.data) for each in found] == expected
    assert len(found) == len(SOME)


def test_columns_of_every_format_hold_the_frames_that_are_read_singly(tmp_path: Path) -> None:
    for name in (*WRITERS, *BINARY):
        raw = binary(name, tmp_path) if name in BINARY else WRITERS[name].write(SOME).encode()
        log = read_log(write(tmp_path / "some.dat", raw))
        rows = [logged for block in log.blocks() for _, logged in block.rows()]
        assert rows == list(log), name
        assert len(rows) == log.frames == len(SOME), name


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # asammdf's, after it has failed
def test_a_database_without_messages_is_one_clear_error(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "other.db") as database:
        database.execute("CREATE TABLE t (x)")
    database.close()
    with pytest.raises(RecordingError, match="no table of CAN messages"):
        list(read_log(tmp_path / "other.db"))
    with pytest.raises(RecordingError, match="no MF4 file that asammdf can read"):
        list(read_log(write(tmp_path / "some.mf4", b"MDF     4.10    " + bytes(100))))
    gc.collect()


# -- captures ----------------------------------------------------------------------------------------------------------

CAN_FRAME = struct.pack(">IBxxx8s", 0x98FEF100, 3, b"\1\2\3")
FD_FRAME = struct.pack(">IBBxx64s", 0x123, 12, 4, bytes(range(12)))
REMOTE = struct.pack(">IBxxx8s", 0x40000123, 0, b"")
SENT = [Frame(0x18FEF100, b"\1\2\3"), Frame(0x123, bytes(range(12)), True, False)]
LINKS = {
    227: b"",
    113: struct.pack(">HHHQH", 1, 280, 0, 0, 0x0C),
    276: struct.pack(">HHIHBBQ", 0x0C, 0, 3, 280, 1, 0, 0),
}


def pcap(link: int, bodies: Sequence[bytes], order: str = "<", nanos: bool = False) -> bytes:
    head = struct.pack(f"{order}IHHiIII", 0xA1B23C4D if nanos else 0xA1B2C3D4, 2, 4, 0, 0, 65535, link)
    fraction = 250_000_000 if nanos else 250_000
    return head + b"".join(
        struct.pack(f"{order}IIII", 1_700_000_000, fraction, len(each), len(each)) + each for each in bodies
    )


def pcapng(link: int, bodies: Sequence[bytes], order: str = "<") -> bytes:
    def block(kind: int, body: bytes) -> bytes:
        body += bytes(-len(body) % 4)
        size = 12 + len(body)
        return struct.pack(f"{order}II", kind, size) + body + struct.pack(f"{order}I", size)

    section = block(0x0A0D0D0A, struct.pack(f"{order}IHHq", 0x1A2B3C4D, 1, 0, -1))
    options = struct.pack(f"{order}HH8s", 2, 5, b"vcan0") + struct.pack(f"{order}HHB3x", 9, 1, 9) + bytes(4)
    stamp = 1_700_000_000_250_000_000
    packets = [
        block(6, struct.pack(f"{order}IIIII", 0, stamp >> 32, stamp & 0xFFFFFFFF, len(each), len(each)) + each)
        for each in bodies
    ]
    return (
        section
        + block(1, struct.pack(f"{order}HHI", link, 0, 65535) + options)
        + block(5, bytes(8))
        + b"".join(packets)
    )


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("kind", ["pcap", "pcap in nanoseconds", "pcapng"])
def test_captures_of_socketcan(link: int, order: str, kind: str, tmp_path: Path) -> None:
    bodies = [LINKS[link] + each for each in (CAN_FRAME, FD_FRAME, REMOTE)]
    raw = pcapng(link, bodies, order) if kind == "pcapng" else pcap(link, bodies, order, "nano" in kind)
    log = read_log(write(tmp_path / "some.dat", raw))
    channel = "vcan0" if kind == "pcapng" else "3" if link == 276 else None
    direction: Literal["rx"] | None = None if link == 227 else "rx"
    assert list(log) == [LoggedFrame(1_700_000_000_250_000, channel, each, direction) for each in SENT]
    assert log.skipped == {"remote frame": 1}
    cut = read_log(write(tmp_path / "cut.dat", raw[:-5]))
    assert len(list(cut)) == 2
    assert cut.skipped == {"file cut short": 1}


def test_cooked_captures_with_identifiers_of_the_machine_and_other_packets(tmp_path: Path) -> None:
    little = [LINKS[113] + body[3::-1] + body[4:] for body in (CAN_FRAME, FD_FRAME)]
    log = read_log(
        write(tmp_path / "some.dat", pcap(113, [*little, struct.pack(">HHHQH", 1, 1, 0, 0, 0x800) + bytes(20)]))
    )
    assert [each.frame for each in log] == SENT
    assert log.skipped == {"no CAN frame": 1}
    assert log.problems == ["packet 3: no CAN frame"]
