# ruff: noqa: E501 (lines of logs are long)
"""What a log is taken for: formats by their samples, units of times by evidence, and doubts that are said."""

import random
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner

from genus.can import Frame, read_log
from genus.can._logs.detect import Head, detect, open_text
from genus.can._logs.formats import ROWS
from genus.can._logs.times import UNITS
from genus.can.types import CanLog
from genus.cli._can_dbc import decode
from genus.errors import RecordingError

HOUSE = Path(__file__).parent / "golden" / "house.dbc"


def log_of(folder: Path, text: str, **options: str) -> CanLog:
    (folder / "some.txt").write_text(text)
    return read_log(folder / "some.txt", **options)


@pytest.mark.parametrize("name", ROWS)
def test_every_row_reads_its_sample_and_names_its_source(name: str) -> None:
    row = ROWS[name]
    assert open_text(name, Head.of(row.sample.encode())).detected.frames == 1
    assert row.source
    if not row.is_loose:
        assert detect(row.sample.encode()).format == name


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("> 0 17:18:39.303:4446.00 St 0x197 0 4 64 E0 9E C0", (62319.303, 0x197, "64e09ec0", None)),
        ("2011-04-25-10:16:41.791,5,130311,4,255,8,24,c0,2f,6f,31,c1,1b,7d", (1303726601.791, 0x15FD0704, "24c02f6f31c11b7d", None)),
        ("17:33:21.107 R 19F51323 01 02 03", (63201.107, 0x19F51323, "010203", "rx")),
        ("<0x18eeff01> [3] 01 02 03", (None, 0x18EEFF01, "010203", None)),
        ("  can0  12   [2]  11 22", (None, 0x12, "1122", None)),
        ("Time Stamp,ID,Extended,Dir,Bus,LEN,D1,D2\n-500,00000012,false,Tx,0,2,11,22,", (0.0, 0x12, "1122", "tx")),
    ],
)  # fmt: skip
def test_lines_are_read_as_what_they_are(text: str, expected: tuple[object, ...], tmp_path: Path) -> None:
    log = log_of(tmp_path, text + "\n")
    (found,) = log
    at = None if log.times == "none" else found.at_us / 1e6
    assert (at, found.frame.id, found.frame.data.hex(), found.direction) == expected


def test_a_message_of_several_frames_is_no_frame_and_counted(tmp_path: Path) -> None:
    line = "2021-01-27T23:34:19.539Z,3,129029,1,255,{},{}\n"
    log = log_of(tmp_path, line.format(8, ",".join(["ff"] * 8)) + line.format(9, ",".join(["ff"] * 9)))
    assert [each.frame.id for each in log] == [3 << 26 | 129029 << 8 | 1]
    assert log.problems == ["line 2: message of several frames"]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("unit", UNITS)
def test_a_unit_of_times_is_right_or_said_to_be_doubtful(unit: str, seed: int, tmp_path: Path) -> None:
    """At loads of a bus from 1 to 70 %, with identifiers of several periods, with and without decimals."""
    rng = random.Random(f"{unit} {seed}")
    micros, divisor = UNITS[unit]  # type: ignore[index]
    per_frame = rng.choice([160, 300, 1000, 8000, 20_000])
    decimals = rng.choice({"s": [3, 6], "ms": [0, 3]}.get(unit, [0]))
    at_us, lines, times = rng.choice([0, 5_000_000]), [], []
    for _ in range(250):
        at_us += rng.randrange(per_frame // 2, 2 * per_frame)
        times.append(at_us)
        stamp = f"{at_us * divisor / micros:.{decimals}f}"
        lines.append(
            f"{stamp},{rng.choice([0x100, 0x100, 0x1A0, 0x2B0]):X},8,{','.join(f'{byte:02X}' for byte in rng.randbytes(8))}\n"
        )
    log = log_of(tmp_path, "".join(lines))
    found = [each.at_us for each in log]
    resolution = micros / divisor / 10**decimals + 1
    is_right = len(found) == 250 and all(abs(a - b) <= resolution for a, b in zip(found, times, strict=True))
    assert is_right or log.detected.doubts, log.detected
    given = list(log_of(tmp_path, "".join(lines), time_unit=unit))
    assert all(abs(each.at_us - at) <= resolution for each, at in zip(given, times, strict=True))


@pytest.mark.parametrize("period", [60, 3600])
def test_a_counter_that_begins_again_is_continued(period: int, tmp_path: Path) -> None:
    times = [period - 3 + at / 10 for at in range(100)]
    log = log_of(tmp_path, "".join(f"{at % period:.6f} 123 2 11 {number:02X}\n" for number, at in enumerate(times)))
    assert [each.at_us for each in log] == [round(at * 1e6) for at in times]


def test_numbers_of_lines_are_no_times(tmp_path: Path) -> None:
    log = log_of(tmp_path, "".join(f"{at} 123 2 11 {at:02X}\n" for at in range(30)))
    assert len(list(log)) == 30
    assert log.times == "none"
    assert "counts lines" in log.detected.doubts[0]


def test_a_guess_whose_frames_are_all_empty_is_none(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match=r"describe its columns \(columns=, --log-columns\)"):
        log_of(tmp_path, "".join(f"{at}.5 123 0\n{at}.7 124 0\n" for at in range(9)))


def test_columns_may_be_described(tmp_path: Path) -> None:
    text = "7;x;100;1A3;2;11;22\n8;x;110;1A4;2;33;44\n"
    log = log_of(tmp_path, text, columns="-, channel, time:ms, id:hex, length, data")
    assert [(each.at_us, each.channel, each.frame) for each in log] == [
        (100_000, "x", Frame(0x1A3, b"\x11\x22", extended=False)),
        (110_000, "x", Frame(0x1A4, b"\x33\x44", extended=False)),
    ]
    with pytest.raises(RecordingError, match="'colour' is no column of a log; known: time"):
        log_of(tmp_path, text, columns="colour")
    with pytest.raises(RecordingError, match="they need an id"):
        log_of(tmp_path, text, columns="time, data")
    with pytest.raises(RecordingError, match="'h' is no unit of times"):
        log_of(tmp_path, text, time_unit="h")


def test_the_command_says_what_a_log_is_taken_for(tmp_path: Path) -> None:
    (tmp_path / "some.csv").write_text("".join(f"{10 * at},100,8,C8,10,FF,01,02,0F,FF,FF\n" for at in range(50)))
    done = CliRunner().invoke(decode, ["--dbc", str(HOUSE), str(tmp_path / "some.csv")])
    assert "csv: time, id:hex, length, data; times in ms" in done.stderr
    assert "doubtful: the log does not say the unit of its times" in done.stderr
    done = CliRunner().invoke(decode, ["--dbc", str(HOUSE), str(tmp_path / "some.csv"), "--time-unit", "us"])
    assert "times in us" in done.stderr


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("head", [["Date", "Time", "ID", "DLC", "Data"], []])
def test_a_date_and_its_clock_in_two_cells_are_one_time(separator: str, head: list[str], tmp_path: Path) -> None:
    """Whatever separates them, with and without names; a date elsewhere is said to be unused."""
    rows = [["2023-11-14", f"22:13:2{at}.250", f"{0x1A0 + at:X}", "2", f"11 2{at}"] for at in range(9)]
    lines = [separator.join(row) for row in [head, *rows] if row]
    log = log_of(tmp_path, "\n".join(lines))
    assert [each.at_us for each in log] == [1_700_000_000_250_000 + 1_000_000 * at for at in range(9)]
    assert not log.detected.doubts
    assert log.format == "table" or log.detected.columns.startswith("date, time")
    described = log_of(tmp_path, "\n".join(lines), columns="date, time, id, length, data")
    assert [each.at_us for each in described] == [each.at_us for each in log]
    apart = [separator.join([*row[1:], row[0]]) for row in [head, *rows] if row]
    assert any("date in another column" in doubt for doubt in log_of(tmp_path, "\n".join(apart)).detected.doubts)


@pytest.mark.parametrize("line", ["{at}.250000,{id},2,11,22", "{at}.250000 {id} 2 11 22", "{at}.250000 {id} 1122"])
@pytest.mark.parametrize("ids", [(344, 658, 705), ("344", "1A0"), ("0x344",), ("0344",)])
def test_identifiers_that_may_be_decimal_are_doubtful(line: str, ids: tuple[object, ...], tmp_path: Path) -> None:
    """They are not if a letter, `0x` or a zero before them shows their base."""
    text = "".join(line.format(at=at, id=ids[at % len(ids)]) + "\n" for at in range(30))
    log = log_of(tmp_path, text, time_unit="s")
    assert len(list(log)) == 30
    assert any("decimal" in doubt for doubt in log.detected.doubts) == (ids == (344, 658, 705))


def test_a_comment_behind_a_frame_is_no_damage_but_more_bytes_are(tmp_path: Path) -> None:
    kept = [" FM tuner is off", " // on", " ; on", "\t\tKey turned", " R", ""]
    log = log_of(tmp_path, "".join(f"(1.5) can0 123#1122{each}\n" for each in kept))
    assert [each.frame.data for each in log] == [b"\x11\x22"] * len(kept)
    cut = [" 33", " AB CD", " (1.6) can0 124#11", " can0 124#11"]
    log = log_of(tmp_path, "(1.5) can0 123#1122\n" + "".join(f"(1.5) can0 123#1122{each}\n" for each in cut))
    assert len(list(log)) == 1
    assert log.skipped["damaged line"] == len(cut)


@pytest.mark.parametrize("stamp", ["0x{:08X}", "{}"])
@pytest.mark.parametrize("data", ["x| {}", "{}"])
def test_frames_of_the_usb_can_tool(stamp: str, data: str, tmp_path: Path) -> None:
    """Its times are in 0.1 ms, hexadecimal or decimal."""
    lines = ["NO Direction Time Scale ID Format Type DLC Data"]
    for at in range(20):
        kind, number = ("Standard", 0x123) if at % 2 else ("Extended", 0x18FEE900)
        word = "Receive" if at % 3 else "Send"
        bytes_ = data.format("01 02 03")
        lines.append(f"{at} {word} {stamp.format(100 * at)} 0x{number:08X} Data {kind} 0x03 {bytes_}")
    log = log_of(tmp_path, "\n".join(lines))
    assert [(each.at_us, each.frame, each.direction) for each in log] == [
        (
            10_000 * at,
            Frame(0x123 if at % 2 else 0x18FEE900, b"\x01\x02\x03", extended=not at % 2),
            "rx" if at % 3 else "tx",
        )
        for at in range(20)
    ]
    assert log.format == "usb-can"


def test_an_ending_is_no_evidence_against_the_lines(tmp_path: Path) -> None:
    text = "Index  Offset  Bus\n" + "".join(f"<{at}> 7 of 9 {at}\n" for at in range(9))
    with pytest.raises(RecordingError, match="not recognised as a CAN log"):
        read_log(_written(tmp_path / "some.log", text))
    log = read_log(tmp_path / "some.log", "log")
    assert not list(log)
    assert log.detected.doubts


def test_directions_beside_channels_and_in_printed_messages_are_read(tmp_path: Path) -> None:
    """As Battery-Emulator and python-can write them."""
    emulator = "".join(f"({at}.471) {word} 1A0 [2] 11 22\n" for at in range(20) for word in ("RX0", "TX1"))
    found = [(each.direction, each.channel) for each in log_of(tmp_path, emulator)]
    assert found == [("rx", "0"), ("tx", "1")] * 20
    line = "Timestamp: 16630918{:02}.003547    ID: 0600    S {}                DL:  2    02 19    Channel: can0\n"
    printed = "".join(line.format(at, word) for at in range(20) for word in ("Rx", "Tx"))
    found = [(each.direction, each.channel) for each in log_of(tmp_path, printed)]
    assert found == [("rx", "can0"), ("tx", "can0")] * 20


def _written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_a_unit_does_not_replace_that_of_a_format(unit: str, tmp_path: Path) -> None:
    text = "".join(f"(16673180{at}.388250) can0 123#1122\n" for at in range(10, 40))
    log = log_of(tmp_path, text, time_unit=unit)
    assert [each.at_us for each in log] == [each.at_us for each in log_of(tmp_path, text)]
    assert log.detected.doubts == (f"times of the format log are in s, so that {unit} is not used",)


def test_columns_that_no_line_has_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text("".join(f"{at * 10},{0x100 + at % 4:X},2,11,22\n" for at in range(20)))
    with pytest.raises(RecordingError, match="none of the first 20 lines has the columns"):
        read_log(path, columns="time:ms, id:hex, length, -, -, -, -, -, data")
    with pytest.raises(RecordingError, match="contradict the unit of times 'ms'"):
        read_log(path, columns="time:us, id:hex, length, data", time_unit="ms")


def test_few_times_that_grow_may_be_intervals(tmp_path: Path) -> None:
    """`candump -t d` and `-t z` write the same form; of more lines, intervals go back now and then."""
    lines = [f" (000.{at:06})  can0  012   [1]  11\n" for at in range(0, 4000, 100)]
    assert [bool(log_of(tmp_path, "".join(lines[:count])).detected.doubts) for count in (2, 3, 40)] == [
        False,
        True,
        False,
    ]


def test_a_frame_of_asc_with_a_name_that_cannot_be_is_damage(tmp_path: Path) -> None:
    line = "   0.220154 CANFD   2 Rx     6EC9D2x  {} 1 0 2  2 58 1A\n"
    log = log_of(tmp_path, "base hex  timestamps absolute\n" + line.format("Speed") + line.format("Speed of it"))
    assert [each.frame.data.hex() for each in log] == ["581a"]
    assert log.problems == ["line 3: damaged line"]


@pytest.mark.parametrize(
    "text",
    [
        ";$FILEVERSION=1.1\n     1)      1059.9  Rx         0300  1  00\n;$FILEVERSION=2.1\n;$COLUMNS=N,O,T,I,d,l,D\n",
        "00:08:20.001Z,6,127250,1,255,2,24,c0\n3,6,127250,1,255,2,24,c0\n00:08:20.101Z,6,127250,1,255,2,24,c0\n",
    ],
)
def test_lines_that_contradict_each_other_are_read_or_refused(text: str, tmp_path: Path) -> None:
    with suppress(RecordingError):
        list(log_of(tmp_path, text))
