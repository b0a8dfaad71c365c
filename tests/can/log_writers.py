# ruff: noqa: E501 (lines of logs are long)
"""Logs in every text format, written from frames: what the formats' tools write, and variants of it."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from genus.can import Frame
from genus.can._logs.frames import Direction
from genus.can.types import LoggedFrame

START_US = 1_700_006_400_000_000
DAY_US = 86_400_000_000
FD_CODES = {length: code for code, length in enumerate((0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 20, 24, 32, 48, 64))}


class Writer(NamedTuple):
    """How a format is written, and what of a frame it keeps."""

    format: str
    """The name that reading gives it."""
    write: Callable[[Sequence[LoggedFrame]], str]
    resolution_us: int = 1
    keeps: str = "time channel extended fd"
    """Which of these it keeps: a date (`time`), the channel, the kind of identifier, CAN FD."""
    direction: Callable[[int, LoggedFrame], Direction | None] = lambda number, each: None
    """The direction that it writes for a frame."""


def _spaced(data: bytes, form: str = "02X", between: str = " ") -> str:
    return between.join(format(byte, form) for byte in data)


def _id(frame: Frame) -> str:
    return f"{frame.id:08X}" if frame.extended else f"{frame.id:03X}"


def _seconds(at_us: int, digits: int = 6, point: str = ".") -> str:
    return f"{at_us // 1_000_000}{point}{at_us % 1_000_000:06}"[: None if digits == 6 else digits - 6]


def _lines(line: Callable[[int, LoggedFrame], str], head: str = "", end: str = "\n") -> Callable[..., str]:
    def written(frames: Sequence[LoggedFrame]) -> str:
        return head.replace("\n", end) + "".join(line(number, each) + end for number, each in enumerate(frames))

    return written


def _moment(at_us: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at_us)


# -- candump -----------------------------------------------------------------------------------------------------------


def candump_l(_: int, each: LoggedFrame) -> str:
    """`candump -L`."""
    sign = "##1" if each.frame.fd else "#"
    return f"({_seconds(each.at_us)}) {each.channel} {_id(each.frame)}{sign}{each.frame.data.hex().upper()}"


def _display(frame: Frame, channel: str | None, ascii_column: bool = False) -> str:
    size = f"[{len(frame.data):02}]" if frame.fd else f"[{len(frame.data)}]"
    shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in frame.data)
    tail = f"   '{shown}'" if ascii_column else ""
    return f"  {channel}  {_id(frame)}   {size}  {_spaced(frame.data)}{tail}"


def candump_a(_: int, each: LoggedFrame) -> str:
    """`candump -t a`."""
    return f" ({_seconds(each.at_us)}){_display(each.frame, each.channel)}"


def candump_date(_: int, each: LoggedFrame) -> str:
    """`candump -t A -a`."""
    return f" ({_moment(each.at_us):%Y-%m-%d %H:%M:%S.%f}){_display(each.frame, each.channel, ascii_column=True)}"


def candump_none(_: int, each: LoggedFrame) -> str:
    """`candump -a` without time stamps."""
    return _display(each.frame, each.channel, ascii_column=True)


def candump_deltas(frames: Sequence[LoggedFrame]) -> str:
    """`candump -t d`: times count from the line before."""
    before = [frames[0].at_us if frames else 0, *(each.at_us for each in frames)]
    gaps = [each.at_us - last for each, last in zip(frames, before, strict=False)]
    rows = zip(frames, gaps, strict=True)
    return "".join(f" ({_seconds(gap).zfill(10)}){_display(each.frame, each.channel)}\n" for each, gap in rows)


# -- Vector, PEAK, Busmaster, Kvaser -----------------------------------------------------------------------------------

ASC_HEAD = f"date {_moment(START_US):%a %b %d %H:%M:%S.000 %Y}\nbase {{base}}  timestamps absolute\nno internal events logged\n"


def _asc(base: str, tail: str = "", point: str = ".") -> Callable[[int, LoggedFrame], str]:
    form, digits = ("X", "02X") if base == "hex" else ("d", "3d")

    def line(number: int, each: LoggedFrame) -> str:
        frame, at = each.frame, _seconds(each.at_us - START_US, point=point)
        name = f"{frame.id:{form}}{'x' if frame.extended else ''}"
        data = _spaced(frame.data, digits)
        if frame.fd:
            code = FD_CODES[len(frame.data)]
            return f"{at:>11} CANFD {each.channel:>3} Rx {name:>11}  {'Name' if number % 3 else '':>32} 1 0 {code:x} {len(frame.data):2} {data}{tail}"
        direction = "Tx" if number % 5 == 0 else "Rx"
        return f"{at:>11} {each.channel}  {name:<15} {direction}   d {len(frame.data)} {data}{tail.format(number)}"

    return line


def trc_1_1(number: int, each: LoggedFrame) -> str:
    """TRC 1.1."""
    millis = (each.at_us - START_US) // 100
    name = f"{each.frame.id:08X}" if each.frame.extended else f"{each.frame.id:04X}"
    return f"{number + 1:6})  {millis // 10:10}.{millis % 10}  Rx     {name:>8}  {len(each.frame.data)}  {_spaced(each.frame.data)} "


def trc_1_3(number: int, each: LoggedFrame) -> str:
    """TRC 1.3; 1.2 has no `-`."""
    micros = each.at_us - START_US
    name = f"{each.frame.id:08X}" if each.frame.extended else f"{each.frame.id:04X}"
    data = _spaced(each.frame.data)
    at = f"{micros // 1000}.{micros % 1000:03}"
    return f"{number + 1:6}) {at:>13} {each.channel}  Rx    {name:>8} -  {len(each.frame.data)}    {data}"


def trc_2_1(number: int, each: LoggedFrame) -> str:
    """TRC 2.1."""
    micros = each.at_us - START_US
    name = f"{each.frame.id:08X}" if each.frame.extended else f"{each.frame.id:04X}"
    kind = "FB" if each.frame.fd else "DT"
    at = f"{micros // 1000}.{micros % 1000:03}"
    return f"{number + 1:7} {at:>13} {kind} {each.channel} {name:>8} Rx -  {len(each.frame.data)}    {_spaced(each.frame.data)} "


TRC_START = f"{START_US / DAY_US + 25569:.10f}"


def busmaster(number: int, each: LoggedFrame) -> str:
    """Busmaster in system mode; tenths of milliseconds."""
    moment, frame = _moment(each.at_us), each.frame
    at = f"{moment:%H:%M:%S}:{moment.microsecond // 100:04}"
    kind = "x" if frame.extended else "s"
    return f"{at} {'Rx' if number % 2 else 'Tx'} {each.channel} 0x{_id(frame)} {kind} {len(frame.data)} {_spaced(frame.data)} "


def kvaser(_: int, each: LoggedFrame) -> str:
    """CanKing's text."""
    frame, at = each.frame, _seconds(each.at_us - START_US)
    flag = "X" if frame.extended else " "
    return f" {each.channel}    {frame.id:08X} {flag}       {len(frame.data)}  {_spaced(frame.data, between='  '):<32}{at:>16} R"


# -- CSV ---------------------------------------------------------------------------------------------------------------

SAVVYCAN = "Time Stamp,ID,Extended,Dir,Bus,LEN,D1,D2,D3,D4,D5,D6,D7,D8\n"
CANEDGE = "TimestampEpoch;BusChannel;ID;IDE;DLC;DataLength;Dir;EDL;BRS;ESI;RTR;DataBytes\n"
VEHICLE_SPY = (
    "Line,Abs Time(Sec),Rel Time (Sec),Status,Er,Tx,Description,Network,Node,Arb ID,Remote,Xtd,"
    "B1,B2,B3,B4,B5,B6,B7,B8,Value,Trigger,Signals\n"
)


def savvycan(_: int, each: LoggedFrame) -> str:
    """SavvyCAN's own CSV."""
    frame, extended = each.frame, str(each.frame.extended).lower()
    data = "".join(f"{byte:02X}," for byte in frame.data)
    return f"{each.at_us},{frame.id:08X},{extended},Rx,{each.channel},{len(frame.data)},{data}"


def canedge(_: int, each: LoggedFrame) -> str:
    """CSS Electronics' CSV."""
    frame, size = each.frame, len(each.frame.data)
    fd = int(frame.fd)
    code = FD_CODES[size]
    return (
        f"{_seconds(each.at_us)};{each.channel};{_id(frame)};{int(frame.extended)};{code};{size};0;{fd};0;0;0;"
        f"{frame.data.hex().upper()}"
    )


def vehicle_spy(number: int, each: LoggedFrame) -> str:
    """Vehicle Spy's CSV."""
    frame = each.frame
    data = ",".join([*(f"{byte:02X}" for byte in frame.data), *[""] * (8 - len(frame.data))])
    xtd = "T" if frame.extended else "F"
    description = f'"HS CAN, ${frame.id:X}"' if number % 97 == 3 else f"HS CAN ${frame.id:X}"
    return f"{number},{_seconds(each.at_us)},0.0001,67371008,F,F,{description},{each.channel},,{frame.id:X},F,{xtd},{data},,,"


def dataset(_: int, each: LoggedFrame) -> str:
    """Published car-hacking datasets: no header, as many bytes as the length says, and a label."""
    frame = each.frame
    name = f"{frame.id:08x}" if frame.extended else f"{frame.id:04x}"
    return ",".join([_seconds(each.at_us), name, str(len(frame.data)), *(f"{byte:02x}" for byte in frame.data), "R"])


def decimal_csv(_: int, each: LoggedFrame) -> str:
    """Decimal identifiers and bytes."""
    frame = each.frame
    data = ";".join([*map(str, frame.data), *[""] * (8 - len(frame.data))])
    return f"{_seconds(each.at_us)};{frame.id};{int(frame.extended)};{len(frame.data)};{data}"


def quoted_csv(_: int, each: LoggedFrame) -> str:
    """Everything in quotes, data with blanks, date and time."""
    frame, kind = each.frame, "Ext" if each.frame.extended else "Std"
    moment = f"{_moment(each.at_us):%Y-%m-%d %H:%M:%S.%f}"
    return f'"{moment}","{_id(frame)}","{kind}","{len(frame.data)}","{_spaced(frame.data)}"'


def labelled(_: int, each: LoggedFrame) -> str:
    """Text of a published dataset; python-can's is alike."""
    frame = each.frame
    kind = "X" if frame.extended else "S"
    name = f"{frame.id:08x}" if frame.extended else f"{frame.id:04x}"
    data = _spaced(frame.data, "02x")
    return f"Timestamp: {_seconds(each.at_us):>17}        ID: {name}    {kind}    DLC: {len(frame.data)}    {data}"


def crtd(_: int, each: LoggedFrame) -> str:
    """CRTD."""
    kind = "29" if each.frame.extended else "11"
    return f"{_seconds(each.at_us)} {each.channel}R{kind} {_id(each.frame)} {_spaced(each.frame.data)}".rstrip()


def hashed(_: int, each: LoggedFrame) -> str:
    """`time channel id#data` without brackets."""
    sign = "##1" if each.frame.fd else "#"
    return f"{_seconds(each.at_us)} {each.channel} {_id(each.frame)}{sign}{each.frame.data.hex()}"


def slcan(_: int, each: LoggedFrame) -> str:
    """Frames of serial adapters."""
    letter = "T" if each.frame.extended else "t"
    return f"{letter}{_id(each.frame)}{len(each.frame.data)}{each.frame.data.hex().upper()}"


def table(_: int, each: LoggedFrame) -> str:
    """Columns of blanks with a decimal comma, as CANHacker writes."""
    frame = each.frame
    name = f"{frame.id:08X}" if frame.extended else f"{frame.id:03X}"
    return f"{_seconds(each.at_us - START_US, point=',')}\t{name}\t{len(frame.data)}\t{_spaced(frame.data)}"


def _rx(_: int, each: LoggedFrame) -> Direction:
    return "rx"


def _asc_direction(number: int, each: LoggedFrame) -> Direction:
    return "tx" if number % 5 == 0 and not each.frame.fd else "rx"


BUSMASTER_HEAD = (
    "***BUSMASTER Ver 3.2.2***\n***PROTOCOL CAN***\n***[START LOGGING SESSION]***\n"
    f"***START DATE AND TIME {_moment(START_US).day}:{_moment(START_US).month}:{_moment(START_US):%Y %H:%M:%S}:000***\n"
    "***HEX***\n***SYSTEM MODE***\n***<Time><Tx/Rx><Channel><CAN ID><Type><DLC><DataBytes>***\n"
)
KVASER_HEAD = "Chn Identifier Flg   DLC  D0...1...2...3...4...5...6..D7       Time     Dir\n"
NO_FD = "time channel extended"

WRITERS: dict[str, Writer] = {
    "candump -L": Writer("log", _lines(candump_l)),
    "candump -t a": Writer("candump", _lines(candump_a)),
    "candump -t A": Writer("candump", _lines(candump_date)),
    "candump -t d": Writer("candump", candump_deltas, keeps="channel extended fd"),
    "candump": Writer("candump", _lines(candump_none), DAY_US, "channel extended fd"),
    "asc hex": Writer("asc", _lines(_asc("hex"), ASC_HEAD.format(base="hex")), direction=_asc_direction),
    "asc dec": Writer("asc", _lines(_asc("dec"), ASC_HEAD.format(base="dec"), "\r\n"), direction=_asc_direction),
    "asc long": Writer(
        "asc",
        _lines(_asc("hex", "  Length = 2{0}0 BitCount = 12{0} ID = {0}x"), ASC_HEAD.format(base="hex")),
        direction=_asc_direction,
    ),
    "trc 1.1": Writer(
        "trc", _lines(trc_1_1, f";$FILEVERSION=1.1\n;$STARTTIME={TRC_START}\n;\n"), 100, "time extended", _rx
    ),
    "trc 1.3": Writer("trc", _lines(trc_1_3, f";$FILEVERSION=1.3\n;$STARTTIME={TRC_START}\n"), 1, NO_FD, _rx),
    "trc 2.1": Writer(
        "trc",
        _lines(trc_2_1, f";$FILEVERSION=2.1\n;$STARTTIME={TRC_START}\n;$COLUMNS=N,O,T,B,I,d,R,L,D\n"),
        direction=_rx,
    ),
    "busmaster": Writer(
        "busmaster",
        _lines(busmaster, BUSMASTER_HEAD, "\r\n"),
        100,
        NO_FD,
        lambda number, each: "rx" if number % 2 else "tx",
    ),
    "kvaser": Writer("kvaser", _lines(kvaser, KVASER_HEAD), 1, "channel extended", _rx),
    "savvycan": Writer("csv", _lines(savvycan, SAVVYCAN), 1, NO_FD, _rx),
    "canedge": Writer("csv", _lines(canedge, CANEDGE), direction=_rx),
    "vehicle spy": Writer("csv", _lines(vehicle_spy, "Title,x\n\n" + VEHICLE_SPY, "\r\n"), 1, NO_FD, _rx),
    "dataset": Writer("csv", _lines(dataset), 1, "time"),
    "decimal csv": Writer("csv", _lines(decimal_csv, "time;id;ext;dlc;d0;d1;d2;d3;d4;d5;d6;d7\n"), 1, "time extended"),
    "quoted csv": Writer("csv", _lines(quoted_csv, '"Time","CAN ID","Format","DLC","Data"\n'), 1, "time extended"),
    "labelled": Writer("labelled", _lines(labelled), 1, "time extended"),
    "crtd": Writer("crtd", _lines(crtd), 1, NO_FD, _rx),
    "hash": Writer("hash", _lines(hashed)),
    "slcan": Writer("slcan", _lines(slcan), DAY_US, "extended"),
    "table": Writer("table", _lines(table), 1, "extended"),
}
"""Every text format in the variants that differ most."""
