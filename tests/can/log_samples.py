# ruff: noqa: E501 (lines of logs are long)
"""Text logs of many tools: real lines with their source, and writers of the same form with other looks.

A `Form` writes rows with a `Look`: another clock, separator, case, base, header or set of columns. What a reader must
find follows from the rows and the look, never from a reader. With its usual look a form writes its real lines again,
which a test checks.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any, NamedTuple

from genus.can import read_log
from genus.can.types import CanLog, LoggedFrame
from genus.errors import RecordingError

START_US = 1_700_006_400_000_000
"""A midnight: no log of these samples passes another."""


class Row(NamedTuple):
    """A data frame of a log; `at_us` counts from 1970."""

    at_us: int
    id: int
    extended: bool
    data: bytes
    direction: str = "rx"
    channel: str = "1"


class Clock(NamedTuple):
    """How times are written: what is lost, and what they count from."""

    write: Callable[[int], str]
    resolution_us: int = 1
    has_date: bool = False
    wraps_us: int = 0
    """Times count within so many microseconds."""


def _point(at_us: int, unit_us: int, digits: int, point: str = ".") -> str:
    whole, rest = divmod(at_us, unit_us)
    return f"{whole}{point}{rest * 10**digits // unit_us:0{digits}}" if digits else str(whole)


def _moment(at_us: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at_us)


def _since(unit_us: int, digits: int, point: str = ".", width: int = 0) -> Clock:
    """Since the start of the log."""
    finest = max(1, unit_us // 10**digits)
    return Clock(lambda at_us: _point(at_us - START_US, unit_us, digits, point).rjust(width), finest)


CLOCKS: Mapping[str, Clock] = MappingProxyType(
    {
        "s.6": _since(1_000_000, 6),
        "s.4": _since(1_000_000, 4),
        "s.3": _since(1_000_000, 3),
        "s,6": _since(1_000_000, 6, ","),
        "ms": _since(1000, 0),
        "ms.1": _since(1000, 1),
        "ms.3": _since(1000, 3),
        "us": _since(1, 0),
        "ns": Clock(lambda at_us: str((at_us - START_US) * 1000)),
        "ticks": _since(100, 0),
        "epoch.6": Clock(lambda at_us: _point(at_us, 1_000_000, 6), 1, True),
        "epoch.3": Clock(lambda at_us: _point(at_us, 1_000_000, 3), 1000, True),
        "epoch ms": Clock(lambda at_us: str(at_us // 1000), 1000, True),
        "epoch us": Clock(str, 1, True),
        "epoch ns": Clock(lambda at_us: f"{at_us}000", 1, True),
        "iso": Clock(lambda at_us: f"{_moment(at_us):%Y-%m-%d %H:%M:%S.%f}", 1, True),
        "iso T Z": Clock(lambda at_us: f"{_moment(at_us):%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z", 1000, True),
        "canboat": Clock(lambda at_us: f"{_moment(at_us):%Y-%m-%d-%H:%M:%S.%f}"[:-3], 1000, True),
        "german": Clock(lambda at_us: f"{_moment(at_us):%d.%m.%Y %H:%M:%S.%f}"[:-3], 1000, True),
        "slashes": Clock(lambda at_us: f"{_moment(at_us):%Y/%m/%d %H:%M:%S.%f}"[:-3], 1000, True),
        "clock.3": Clock(lambda at_us: f"{_moment(at_us):%H:%M:%S.%f}"[:-3], 1000),
        "clock.6": Clock(lambda at_us: f"{_moment(at_us):%H:%M:%S.%f}"),
        "clock:4": Clock(lambda at_us: f"{_moment(at_us):%H:%M:%S:%f}"[:-2], 100),
        "clock.3.0": Clock(lambda at_us: f"{_moment(at_us):%H:%M:%S.%f}"[:-3] + ".0", 1000),
        "pp2can": Clock(lambda at_us: f"{_moment(at_us):%H:%M:%S.%f}"[:-3] + f":{at_us % 10_000:04}.00", 1000),
        "within a minute": Clock(
            lambda at_us: _point(at_us % 60_000_000, 1_000_000, 3, ",").zfill(6), 1000, False, 60_000_000
        ),
        "within an hour": Clock(lambda at_us: f"{_moment(at_us):%M:%S.%f}"[:-3], 1000, False, 3_600_000_000),
        "compact": Clock(lambda at_us: f"{_moment(at_us):%Y%m%dT%H%M%S%f}"[:-3], 1000, True),
        "actisense": Clock(lambda at_us: f"{_moment(at_us):%H%M%S.%f}"[:-3], 1000),
        "none": Clock(lambda at_us: "", 0),
    }
)


@dataclass(frozen=True)
class Look:
    """How a form is written this time; a form takes what it knows."""

    clock: str = "s.6"
    has_head: bool = True
    separator: str = ","
    lower: bool = False
    base: int = 16
    data_base: int = 16
    prefix: str = ""
    """Before identifiers."""
    byte_prefix: str = ""
    is_padded: bool = True
    flag: bool = False
    """A choice of the form: an ASCII column, flags, relative times."""
    time_name: str = ""
    words: int = 0
    """Which names columns have."""
    is_quoted: bool = False
    left_out: frozenset[str] = frozenset()
    """Columns that are missing: `channel`, `direction`, `length`, `extended`, `number`."""


Options = Mapping[str, Sequence[object]]


@dataclass(frozen=True)
class Form:
    """A format: its lines, and how else they may look."""

    name: str
    source: str
    real: str
    """Lines of a public log (without its head)."""
    rows: tuple[Row, ...]
    """What they say."""
    write: Callable[[Look, Sequence[Row]], list[str]]
    look: Look = field(default=Look())
    options: Options = field(default_factory=dict)
    keeps: str = "channel direction"
    """Which of these a line has."""
    is_extended_said: bool = True
    only_extended: bool = False

    @property
    def is_csv(self) -> bool:
        """Whether separators may be other ones."""
        return "separator" in self.options

    def changed(self, rng: Random) -> Look:
        """The usual look with one to three options changed, in every second one the clock."""
        names = rng.sample(sorted(self.options), min(len(self.options), rng.randint(1, 2)))
        if "clock" in self.options and rng.random() < 0.5:
            names.append("clock")
        return replace(self.look, **{name: rng.choice(self.options[name]) for name in names})  # type: ignore[arg-type]


def wanted(form: Form, look: Look, rows: Sequence[Row]) -> list[tuple[object, ...]]:
    """What a reader must find: time (from the first frame if there is no date), identifier, kind, data, direction, channel.

    The time is None if there is none, the others are None where a line does not say them.
    """
    keeps = set(form.keeps.split()) - look.left_out
    if form.look.has_head and not look.has_head:
        keeps = set()  # nothing says which column it is
    clock = CLOCKS[look.clock]
    step, first = clock.resolution_us, rows[0].at_us
    is_said = form.is_extended_said and "extended" not in look.left_out
    found: list[tuple[object, ...]] = []
    for row in rows:
        at = None if not step else row.at_us // step * step - (0 if clock.has_date else first // step * step)
        direction = row.direction if "direction" in keeps else None
        kind = row.extended if is_said or row.id > 0x7FF else None
        found.append((at, row.id, kind, row.data, direction, row.channel if "channel" in keeps else None))
    return found


# -- traffic -----------------------------------------------------------------------------------------------------------


def traffic(
    rng: Random,
    count: int,
    bitrate: int = 500_000,
    load: float = 0.3,
    *,
    only_extended: bool = False,
    channels: int = 1,
) -> list[Row]:
    """Frames on a bus of this load: a few identifiers, some data that changes, gaps of random length."""
    known = []
    for _ in range(rng.randint(4, 12)):
        extended = only_extended or rng.random() < 0.3
        identifier = rng.getrandbits(29) | 1 << 27 if extended else rng.randint(1, 0x7FF)
        known.append((identifier, extended, rng.choice((8, 8, 8, 8, 2, 4, 7))))
    at, rows = START_US + rng.choice((1, 500_000_000, 3_600_000_000)), []
    for number in range(count):
        identifier, extended, size = rng.choice(known)
        bits = (67 if extended else 47) + 8 * size
        at += max(1, round(bits * 1e6 / bitrate * (1 + rng.expovariate(1) * (1 / load - 1))))
        data = bytes([number & 0xFF, *rng.choices((0, 0xFF, 0x12, 0xA5, rng.randrange(256)), k=size - 1)])
        rows.append(
            Row(at, identifier, extended, data, rng.choice(("rx", "rx", "tx")), str(1 + rng.randrange(channels)))
        )
    return rows


# -- writers -----------------------------------------------------------------------------------------------------------


def _at(look: Look, row: Row) -> str:
    return CLOCKS[look.clock].write(row.at_us)


def _id(look: Look, row: Row, digits: int = 3, long_digits: int = 8) -> str:
    if look.base == 10:
        return str(row.id)
    width = (long_digits if row.extended else digits) if look.is_padded else 1
    return f"{look.prefix}{row.id:0{width}{'x' if look.lower else 'X'}}"


def _bytes(look: Look, row: Row, between: str = " ") -> str:
    form = "d" if look.data_base == 10 else "02x" if look.lower else "02X"
    return between.join(f"{look.byte_prefix}{byte:{form}}" for byte in row.data)


def _candump_l(look: Look, rows: Sequence[Row]) -> list[str]:
    tail = {"rx": " R", "tx": " T"} if look.flag else {"rx": "", "tx": ""}
    return [
        f"({_at(look, row)}) can{row.channel} {_id(look, row)}#{_bytes(look, row, '')}{tail[row.direction]}"
        for row in rows
    ]


def _candump(look: Look, rows: Sequence[Row]) -> list[str]:
    found = []
    for row in rows:
        at = f" ({_at(look, row)})" if look.clock != "none" else ""
        flags = f"{row.direction.upper()} - -  " if look.flag else ""
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row.data)
        ascii_column = f"   '{shown}'" if look.flag else ""
        found.append(
            f"{at}  can{row.channel}  {flags}{_id(look, row)}   [{len(row.data)}]  {_bytes(look, row)}{ascii_column}"
        )
    return found


def _angstrom(look: Look, rows: Sequence[Row]) -> list[str]:
    return [f"<{_id(replace(look, prefix='0x'), row)}> [{len(row.data)}] {_bytes(look, row)} " for row in rows]


def _asc(look: Look, rows: Sequence[Row]) -> list[str]:
    """`flag`: times count from the line before."""
    base = "hex" if look.base == 16 else "dec"
    head = [
        f"date {_moment(START_US):%a %b %d %H:%M:%S.000 %Y}",
        f"base {base}  timestamps {'relative' if look.flag else 'absolute'}",
        "internal events logged",
    ]
    found, last = head if look.has_head else [], START_US
    for row in rows:
        at = row.at_us - last if look.flag else row.at_us - START_US
        last = row.at_us
        name = f"{row.id:{'X' if look.base == 16 else 'd'}}{'x' if row.extended else ''}"
        data = _bytes(replace(look, data_base=look.base), row)
        found.append(
            f"{_point(at, 1_000_000, 6):>11} {row.channel}  {name:<15} {row.direction.title()}   d {len(row.data)} {data}"
        )
    return found


def _trc(version: str) -> Callable[[Look, Sequence[Row]], list[str]]:
    def write(look: Look, rows: Sequence[Row]) -> list[str]:
        start = START_US / 86_400_000_000 + 25569
        columns = [";$COLUMNS=N,O,T,B,I,d,R,L,D"] if version == "2.1" else []
        head = [f";$FILEVERSION={version}", f";$STARTTIME={start:.10f}", *columns, ";"] if look.has_head else []
        found = []
        for number, row in enumerate(rows, 1):
            name, data, size = _id(look, row, 4), _bytes(look, row), len(row.data)
            if version == "1.1":
                at = _point(row.at_us - START_US, 1000, 1)
                found.append(f"{number:6})  {at:>10}  {row.direction.title()}     {name:>8}  {size}  {data} ")
            else:
                at = _point(row.at_us - START_US, 1000, 3)
                found.append(
                    f"{number:7} {at:>13} DT {row.channel} {name:>8} {row.direction.title()} -  {size}    {data} "
                )
        return head + found

    return write


def _busmaster(look: Look, rows: Sequence[Row]) -> list[str]:
    head = [
        "***BUSMASTER Ver 3.2.2***",
        "***PROTOCOL CAN***",
        f"***{'HEX' if look.base == 16 else 'DEC'}***",
        "***SYSTEM MODE***",
    ]
    return (head if look.has_head else []) + [
        f"{_at(look, row)} {row.direction.title()} {row.channel} {_id(look, row)} {'x' if row.extended else 's'} {len(row.data)} {_bytes(look, row)} "
        for row in rows
    ]


def _canking(look: Look, rows: Sequence[Row]) -> list[str]:
    head = ["Chn Identifier Flg   Dlc  D0...1...2...3...4...5...6..D7       Time     Dir"] if look.has_head else []
    return head + [
        f" {row.channel}    {row.id:08X} {'X' if row.extended else ' '}       {len(row.data)}  {_bytes(look, row, '  '):<32}{_at(look, row):>16} {row.direction[0].upper()}"
        for row in rows
    ]


def _kvaser_text(look: Look, rows: Sequence[Row]) -> list[str]:
    """The converter's plain text: decimal, a counter at the end."""
    found = []
    for number, row in enumerate(rows, 1):
        data = " ".join(f"{byte:3}" for byte in row.data)
        tail = "" if "number" in look.left_out else f"{number:14}"
        name = f"{row.id}{'x' if row.extended else ''}"
        found.append(
            f"{_at(look, row):>12}  {row.channel}  {name:>10}    {row.direction.title()}            {len(row.data)}  {data:<32}{tail}"
        )
    return found


def _crtd(look: Look, rows: Sequence[Row]) -> list[str]:
    head = [f"{_at(look, rows[0])} CXX Info Type:crtd"] if look.has_head else []
    return head + [
        f"{_at(look, row)} {'' if 'channel' in look.left_out else row.channel}{row.direction[0].upper()}{29 if row.extended else 11} {_id(look, row)} {_bytes(look, row)}"
        for row in rows
    ]


def _labelled(look: Look, rows: Sequence[Row]) -> list[str]:
    """The normal run of a car-hacking dataset; `flag`: as python-can prints messages."""
    if look.flag:
        return [
            f"Timestamp: {_at(look, row):>18}    ID: {_id(look, row, 4):>8}    {'X' if row.extended else 'S'} {row.direction.title()}                DL: {len(row.data):2}    {_bytes(look, row)}     Channel: {row.channel}"
            for row in rows
        ]
    return [
        f"Timestamp: {_at(look, row)}        ID: {_id(look, row, 4)}    000    DLC: {len(row.data)}    {_bytes(look, row)}"
        for row in rows
    ]


def _slcan(look: Look, rows: Sequence[Row]) -> list[str]:
    """`flag`: with stamps of milliseconds within a minute."""
    return [
        f"{'T' if row.extended else 't'}{_id(look, row)}{len(row.data)}{_bytes(look, row, '')}{f'{row.at_us // 1000 % 60_000:04X}' if look.flag else ''}"
        for row in rows
    ]


def _table(look: Look, rows: Sequence[Row]) -> list[str]:
    """CANHacker and others: time, identifier, length, data in columns."""
    head = ["Time   ID     DLC Data                    Comment"] if look.has_head else []
    sizes = ["" if "length" in look.left_out else f"{len(row.data)}   " for row in rows]
    return head + [
        f"{_at(look, row)} {_id(look, row):<8} {size}{_bytes(look, row)} "
        for row, size in zip(rows, sizes, strict=True)
    ]


def _numbers(identifier: int) -> tuple[int, int, int, int]:
    """Priority, parameter group, source, destination of an identifier of J1939 and NMEA 2000."""
    group, target = identifier >> 8 & 0x3FFFF, 255
    if (group >> 8 & 0xFF) < 240:
        group, target = group & 0x3FF00, group & 0xFF
    return identifier >> 26, group, identifier & 0xFF, target


def _canboat(look: Look, rows: Sequence[Row]) -> list[str]:
    found = []
    for row in rows:
        priority, group, source, target = _numbers(row.id)
        data = _bytes(replace(look, lower=not look.lower), row, ",")
        found.append(f"{_at(look, row)},{priority},{group},{source},{target},{len(row.data)},{data}")
    return found


def _yacht(look: Look, rows: Sequence[Row]) -> list[str]:
    return [
        f"{_at(look, row)} {row.direction[0].upper().replace('X', 'T')} {row.id:08X} {_bytes(look, row)}"
        for row in rows
    ]


def _pp2can(look: Look, rows: Sequence[Row]) -> list[str]:
    return [
        f"> {number} {_at(look, row)} {'Ex' if row.extended else 'St'} {_id(replace(look, prefix='0x'), row)} 0 {len(row.data)} {_bytes(look, row)}"
        for number, row in enumerate(rows)
    ]


def _labels(look: Look, rows: Sequence[Row]) -> list[str]:
    return [
        f"{_at(look, row)} can{row.channel} {row.direction.upper()} {'EFF' if row.extended else 'SFF'} id=0x{_id(look, row, 8)} dlc={len(row.data)} flags=- data={_bytes(look, row)}"
        for row in rows
    ]


def _brackets(look: Look, rows: Sequence[Row]) -> list[str]:
    return [
        f"{_at(look, row)} {row.direction.upper()} {_id(look, row)} [{len(row.data)}] {_bytes(look, row, '')}"
        for row in rows
    ]


def _csv(*columns: tuple[str, str]) -> Callable[[Look, Sequence[Row]], list[str]]:
    """Columns of a CSV file, each with its name and what it has."""

    def write(look: Look, rows: Sequence[Row]) -> list[str]:
        kept = [(name, what) for name, what in columns if what not in look.left_out]
        sep, found = look.separator, []
        names = [look.time_name if what == "time" and look.time_name else _name(name, look) for name, what in kept]
        names = [
            each
            for name, (_, what) in zip(names, kept, strict=True)
            for each in ([f"{name}{n}" for n in range(1, 9)] if what == "bytes" else [name])
        ]
        cells = [[_cell(what, look, number, row) for _, what in kept] for number, row in enumerate(rows, 1)]
        for line in [names, *cells] if look.has_head else cells:
            found.append(
                sep.join(f'"{cell}"' if look.is_quoted and cell and sep not in cell else cell for cell in line)
            )
        return found

    return write


SYNONYMS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "Time": ("Time", "Timestamp", "time stamp", "TIME", "t"),
        "ID": ("ID", "CAN ID", "Identifier", "arbitration_id", "Message ID"),
        "DLC": ("DLC", "Length", "len", "DataLength", "dlc"),
        "Data": ("Data", "Payload", "Data Bytes", "DATA", "data_hex"),
    }
)


def _name(name: str, look: Look) -> str:
    return SYNONYMS[name][look.words] if name in SYNONYMS else name


def _cell(what: str, look: Look, number: int, row: Row) -> str:
    if what == "bytes":
        return look.separator.join(
            [*_bytes(look, row, look.separator).split(look.separator), *[""] * (8 - len(row.data))]
        )
    if what == "packed":
        return _bytes(look, row, "")
    if what == "0x packed":
        return "0x" + _bytes(look, row, "")
    words: dict[str, str] = {
        "time": _at(look, row),
        "id": _id(look, row),
        "id8": _id(look, row, 8),
        "id4": _id(look, row, 4),
        "0x id8": f"0x{row.id:08X}",
        "0x id": f"0x{row.id:x}",
        "extended": str(row.extended).lower(),
        "extended 01": str(int(row.extended)),
        "extended TF": "T" if row.extended else "F",
        "STD/EXT": "EXT" if row.extended else "STD",
        "标准帧": "扩展帧" if row.extended else "标准帧",
        "direction": row.direction.title(),
        "direction 01": str(int(row.direction == "tx")),
        "direction TF": "T" if row.direction == "tx" else "F",
        "接收": "接收" if row.direction == "rx" else "发送",
        "channel": row.channel,
        "HS CAN": f"HS CAN{row.channel}",
        "length": str(len(row.data)),
        "length 0x": f"0x{len(row.data):02x}",
        "data": _bytes(look, row),
        "number": str(number),
        "number from 0": str(number - 1),
        "67371008": "67371008",
        "0": "0",
        "F": "F",
        "数据帧": "数据帧",
        "": "",
        "R": "R",
    }
    return words[what]


def _microchip(look: Look, rows: Sequence[Row]) -> list[str]:
    head = [
        "//---------------------------------",
        "Microchip Technology Inc.",
        "CAN BUS Analyzer",
        "//---------------------------------",
    ]
    return (head if look.has_head else []) + [
        f"{_at(look, row)};{row.direction.upper()};{_id(look, row, 8)};{len(row.data)};{_bytes(look, row, ';')};"
        for row in rows
    ]


def _cl2000(look: Look, rows: Sequence[Row]) -> list[str]:
    head = (
        ["# Logger type: CL2000", f'# Value separator: "{look.separator}"', "# Time format: 6"] if look.has_head else []
    )
    columns = _csv(("Timestamp", "time"), ("Type", "extended 01"), ("ID", "id"), ("Data", "packed"))
    return head + columns(look, rows)


# -- forms -------------------------------------------------------------------------------------------------------------

_CASES: Options = {"lower": (True, False)}


def _row(at: str, identifier: int, data: str, extended: bool = False, direction: str = "rx", channel: str = "1") -> Row:
    """A row at so many seconds after the start (`1.5`), or at seconds since 1970 (ten digits)."""
    seconds, _, rest = at.partition(".")
    at_us = int(seconds) * 1_000_000 + int(rest.ljust(6, "0"))
    return Row(
        at_us if at_us > START_US // 2 else START_US + at_us,
        identifier,
        extended,
        bytes.fromhex(data),
        direction,
        channel,
    )


def _day(clock: str, identifier: int, data: str, extended: bool = False) -> Row:
    """A row at a clock of the day of the start."""
    hours, minutes, seconds = clock.split(":")
    whole, _, rest = seconds.partition(".")
    return _row(f"{int(hours) * 3600 + int(minutes) * 60 + int(whole)}.{rest}", identifier, data, extended)


_GVRET = _csv(("Time Stamp", "time"), ("ID", "id8"), ("Extended", "extended"), ("Dir", "direction"), ("Bus", "channel"), ("LEN", "length"), ("D", "bytes"), ("", ""))  # fmt: skip
_PLAIN = _csv(("Time", "time"), ("ID", "id"), ("DLC", "length"), ("Data", "data"))

# fmt: off
FORMS: tuple[Form, ...] = (
    Form(
        "candump -L", "rhysmorgan134/x250-can candump.log",
        "(1696758425.053564) can1 07A#0100000000000000\n(1696758425.054559) can1 07D#0020000000000000",
        (_row("1696758425.053564", 0x7A, "0100000000000000"), _row("1696758425.054559", 0x7D, "0020000000000000")),
        _candump_l, Look("epoch.6"),
        {"clock": ("s.6", "epoch.3", "epoch.6"), **_CASES, "flag": (True,)}, "channel",
    ),
    Form(
        "candump", "AnHardt/open3e candump.log",
        "  can1  680   [8]  03 22 0D A5 00 00 00 00\n  can1  690   [8]  03 7F 22 22 55 55 55 55",
        (_row("0.0", 0x680, "03220DA500000000"), _row("0.0", 0x690, "037F222255555555")),
        _candump, Look("none"),
        {"clock": ("none", "epoch.6", "iso", "s.6"), "flag": (True,), "is_padded": (False,), **_CASES}, "channel",
    ),
    Form(
        "candump of Angstrom", "canboat/canboat analyzer/candump2analyzer.c",
        "<0x18eeff01> [8] 05 a0 be 1c 00 a0 a0 c0 ",
        (_row("0.0", 0x18EEFF01, "05a0be1c00a0a0c0", True),),
        _angstrom, Look("none", lower=True), {**_CASES, "is_padded": (False,)}, "",
    ),
    Form(
        "Vector ASC", "hardbyte/python-can test/data/issue_1256.asc",
        "   0.039943 1  64              Rx   d 4 74 00 00 00\n   0.039977 1  11              Rx   d 8 4A 28 F6 07 00 00 00 00",
        (_row("0.039943", 0x64, "74000000"), _row("0.039977", 0x11, "4A28F60700000000")),
        _asc, Look("s.6"), {"base": (10,), "flag": (True,), "has_head": (False, True, True), **_CASES},
    ),
    Form(
        "PEAK TRC 1.1", "hardbyte/python-can test/data/test_CanMessage_V1_1.trc",
        "     1)     17535.4  Tx         0100  3  00 00 00 \n     2)     17700.3  Tx         0100  3  00 00 08 ",
        (_row("17.5354", 0x100, "000000", False, "tx"), _row("17.7003", 0x100, "000008", False, "tx")),
        _trc("1.1"), Look("ms.1"), {"has_head": (False, True, True), **_CASES}, "direction",
    ),
    Form(
        "PEAK TRC 2.1", "hardbyte/python-can test/data/test_CanMessage_V2_1.trc",
        "      1     17535.400 DT 1     0100 Tx -  3    00 00 00 \n      2     17540.300 DT 1     0100 Rx -  3    00 00 08 ",
        (_row("17.5354", 0x100, "000000", False, "tx"), _row("17.5403", 0x100, "000008")),
        _trc("2.1"), Look("ms.3"), {"has_head": (False, True, True), **_CASES},
    ),
    Form(
        "Busmaster", "collin80/SavvyCAN examples/BusMasterLog.log",
        "22:20:23:5420 Rx 1 0x228 s 4 40 C0 A0 13 \n22:20:23:5520 Rx 1 0x3D8 s 3 86 06 00 ",
        (_day("22:20:23.542", 0x228, "40C0A013"), _day("22:20:23.552", 0x3D8, "860600")),
        _busmaster, Look("clock:4", prefix="0x"),
        {"prefix": ("",), "has_head": (False, True, True), **_CASES},
    ),
    Form(
        "Kvaser CanKing", "Kvaser CanKing, text log",
        " 1    00000181         4  12  34  56  78                         43.182130 R\n 1    18FEF100 X       2  FF  FE                                 43.190000 T",
        (_row("43.18213", 0x181, "12345678"), _row("43.19", 0x18FEF100, "FFFE", True, "tx")),
        _canking, Look("s.6"), {"has_head": (False, True, True), "clock": ("s.4", "s.3"), **_CASES},
    ),
    Form(
        "Kvaser text", "canlib tests/data/short-burst/logfile003.txt",
        "    5.176982  1        1704    Rx            8  119 250 188  98 106  39 140 238               1\n    5.355282  2         950    Rx            4  159 207  64 237                               2",
        (_row("5.176982", 0x6A8, "77FABC626A278CEE"), _row("5.355282", 0x3B6, "9FCF40ED", False, "rx", "2")),
        _kvaser_text, Look("s.6"), {"left_out": (frozenset({"number"}),), "clock": ("s.4", "s.3")},
    ),
    Form(
        "CRTD", "collin80/SavvyCAN examples/CRTD_Log.txt",
        "174.614000 1R11 228 40 C0 A0 13\n174.624000 1R11 3D8 86 06 00",
        (_row("174.614", 0x228, "40C0A013"), _row("174.624", 0x3D8, "860600")),
        _crtd, Look("s.6"), {"left_out": (frozenset({"channel"}),), "clock": ("epoch.6", "s.3"), "has_head": (False, True, True), **_CASES},
    ),
    Form(
        "labelled", "HCRL Car-Hacking dataset normal_run_data.txt",
        "Timestamp: 1479121434.850202        ID: 0350    000    DLC: 8    05 28 84 66 6d 00 00 a2\nTimestamp: 1479121434.850423        ID: 02c0    000    DLC: 8    14 00 00 00 00 00 00 00",
        (_row("1479121434.850202", 0x350, "052884666d0000a2"), _row("1479121434.850423", 0x2C0, "1400000000000000")),
        _labelled, Look("epoch.6", lower=True), {"clock": ("s.6", "epoch.3"), "flag": (True,), **_CASES}, "", False,
    ),
    Form(
        "slcan", "LAWICEL protocol", "t12380011223344556677\nt7E8303410C",
        (_row("0.0", 0x123, "0011223344556677"), _row("0.0", 0x7E8, "03410C")),
        _slcan, Look("none"), {**_CASES}, "",
    ),
    Form(
        "CANHacker", "michbil/canhacker-log-player test.trc",
        "00,000 00603FFC 8   13 01 01 01 01 01 01 02 \n00,012 0100102A 8   00 00 00 10 0F 00 18 0B ",
        (_row("0.0", 0x603FFC, "1301010101010102", True), _row("0.012", 0x100102A, "000000100F00180B", True)),
        _table, Look("within a minute", has_head=False),
        {"clock": ("s.3", "s.6", "s,6", "ms", "us", "epoch.6", "clock.3", "within a minute"), "has_head": (True,), **_CASES}, "", False,
    ),
    Form(
        "table without lengths", "guissepe04-sudo/OBD_LECTOR can_log.txt",
        "1779939850.632 21F      00 00 FC 7F 00 18 1F DD \n1779939850.637 28D      03 00 01 10 ",
        (_row("1779939850.632", 0x21F, "0000FC7F00181FDD"), _row("1779939850.637", 0x28D, "03000110")),
        _table, Look("epoch.3", has_head=False, left_out=frozenset({"length"})),
        {"clock": ("s.3", "s.6", "ms", "epoch.6", "clock.3"), **_CASES}, "", False,
    ),
    Form(
        "canboat", "canboat/canboat samples/130311.raw",
        "2011-04-25-10:16:41.791,5,130311,4,255,8,24,c0,59,71,ff,7f,ff,ff\n2011-04-25-10:16:42.169,5,130311,35,255,8,63,c0,47,71,ff,7f,ff,ff",
        (_row("1303726601.791", 0x15FD0704, "24c05971ff7fffff", True), _row("1303726602.169", 0x15FD0723, "63c04771ff7fffff", True)),
        _canboat, Look("canboat"), {"clock": ("iso T Z", "canboat"), **_CASES}, "", True, True,
    ),
    Form(
        "Yacht Devices", "canboat/canboatjs test of the RAW format",
        "16:29:27.082 R 09F8017F 50 C3 B8 13 47 D8 2B C6\n16:29:27.986 R 0DF8057F 00 2B 00 18 46 80 D6 62",
        (_day("16:29:27.082", 0x09F8017F, "50C3B81347D82BC6", True), _day("16:29:27.986", 0x0DF8057F, "002B00184680D662", True)),
        _yacht, Look("clock.3"), {"clock": ("clock.6", "clock.3"), **_CASES}, "direction", True, True,
    ),
    Form(
        "PP2CAN", "PP2CAN's log",
        "> 0 17:18:39.303:3000.00 St 0x197 0 4 64 E0 9E C0\n> 1 17:18:39.313:3000.00 St 0x197 0 4 65 E0 9E C0",
        (_day("17:18:39.303", 0x197, "64E09EC0"), _day("17:18:39.313", 0x197, "65E09EC0")),
        _pp2can, Look("pp2can"), {"clock": ("clock.3", "pp2can"), **_CASES}, "",
    ),
    Form(
        "words with labels", "healingtjx/bslbatt-bms-upgrade logs/can.log",
        "1781506437.798 can1 RX SFF id=0x00000372 dlc=8 flags=- data=01 00 00 00 00 00 00 00\n1781506438.283 can1 TX SFF id=0x00000307 dlc=8 flags=- data=12 34 56 78 56 49 43 00",
        (_row("1781506437.798", 0x372, "0100000000000000"), _row("1781506438.283", 0x307, "1234567856494300", False, "tx")),
        _labels, Look("epoch.3"), {"clock": ("s.3", "epoch.6"), **_CASES},
    ),
    Form(
        "direction and brackets", "playaer/analyzer can_log.txt",
        "2025-12-21 11:16:55.076000 RX 231 [8] 0100ffff00000000\n2025-12-21 11:16:55.076000 RX 081 [4] aaeffffe",
        (_row("1766315815.076", 0x231, "0100ffff00000000"), _row("1766315815.076", 0x81, "aaeffffe")),
        _brackets, Look("iso", lower=True), {"clock": ("iso", "slashes", "epoch.3"), **_CASES}, "direction", False,
    ),
    Form(
        "SavvyCAN", "pddenhar/ESP32-S3-NMEA-2000-Sensor can_log.csv",
        "4299801,09F10D19,true,Rx,0,8,00,F8,FF,7F,EA,DD,FF,FF,\n4399901,09F10D19,true,Rx,0,8,00,F8,FF,7F,EA,DD,FF,FF,",
        (_row("4.299801", 0x09F10D19, "00F8FF7FEADDFFFF", True, "rx", "0"), _row("4.399901", 0x09F10D19, "00F8FF7FEADDFFFF", True, "rx", "0")),
        _GVRET, Look("us"),
        {"separator": (";", "\t"), "has_head": (False, True, True), "left_out": (frozenset({"direction"}), frozenset({"channel"})), **_CASES},
    ),
    Form(
        "CSS Electronics", "CSS Electronics mdf2csv",
        "1689951599.925001;9;067;0;8;8;0;0;0;0;0;E19462F0C9F66E01\n1689951599.925002;9;068;0;4;4;0;0;0;0;0;F3120A00",
        (_row("1689951599.925001", 0x67, "E19462F0C9F66E01", False, "rx", "9"), _row("1689951599.925002", 0x68, "F3120A00", False, "rx", "9")),
        _csv(("TimestampEpoch", "time"), ("BusChannel", "channel"), ("ID", "id"), ("IDE", "extended 01"), ("DLC", "length"), ("DataLength", "length"), ("Dir", "direction 01"), ("EDL", "0"), ("BRS", "0"), ("ESI", "0"), ("RTR", "0"), ("DataBytes", "packed")),
        Look("epoch.6", separator=";"), {"separator": (",", "\t"), "has_head": (False, True, True), **_CASES},
    ),
    Form(
        "Cabana", "commaai/openpilot tools/cabana, Save Log",
        "15.460,0x440,1,0x4000800000000000\n15.461,0x2e4,0,0x7d0000e2d8",
        (_row("15.46", 0x440, "4000800000000000"), _row("15.461", 0x2E4, "7d0000e2d8", False, "rx", "0")),
        _csv(("time", "time"), ("addr", "0x id"), ("bus", "channel"), ("data", "0x packed")),
        Look("s.3", lower=True), {"clock": ("s.6", "s.3"), "has_head": (False, True, True), "separator": (";", "\t")}, "channel", False,
    ),
    Form(
        "Cabana, decimal", "commaai/panda examples/can_logger",
        "240.479114,53,0,0acc0ade0074bf9e\n240.480114,308,0,08007c630a00d064",
        (_row("240.479114", 53, "0acc0ade0074bf9e", False, "rx", "0"), _row("240.480114", 308, "08007c630a00d064", False, "rx", "0")),
        _csv(("time", "time"), ("addr", "id"), ("bus", "channel"), ("data", "packed")),
        Look("s.6", lower=True, base=10), {"clock": ("s.6", "s.3"), "has_head": (False, True, True), "separator": (";", "\t")}, "channel", False,
    ),
    Form(
        "HCRL", "HCRL Car-Hacking dataset DoS_dataset.csv",
        "1478198376.389427,0316,8,05,21,68,09,21,21,00,6f,R\n1478198376.389636,018f,8,fe,5b,00,00,00,3c,00,00,R",
        (_row("1478198376.389427", 0x316, "052168092121006f"), _row("1478198376.389636", 0x18F, "fe5b0000003c0000")),
        _csv(("Timestamp", "time"), ("CAN_ID", "id4"), ("DLC", "length"), ("D", "bytes"), ("Flag", "R")),
        Look("epoch.6", has_head=False, lower=True), {"has_head": (True,), "separator": (";", "\t"), **_CASES}, "", False,
    ),
    Form(
        "Vehicle Spy", "collin80/SavvyCAN framefileio.cpp",
        "1,2550.364475,0,67371008,F,F,,HS CAN1,,0C9,F,F,80,0B,B4,00,00,00,00,00,,,\n2,2550.368293,0,67371008,F,F,,HS CAN1,,119,F,F,00,00,00,00,00,00,0D,8B,,,",
        (_row("2550.364475", 0xC9, "800BB40000000000", False, "rx", "HS CAN1"), _row("2550.368293", 0x119, "0000000000000D8B", False, "rx", "HS CAN1")),
        _csv(("Line", "number"), ("Abs Time(Sec)", "time"), ("Rel Time (Sec)", "0"), ("Status", "67371008"), ("Er", "F"), ("Tx", "direction TF"), ("Description", ""), ("Network", "channel"), ("Node", ""), ("Arb ID", "id"), ("Remote", "F"), ("Xtd", "extended TF"), ("B", "bytes"), ("Value", ""), ("Trigger", ""), ("Signals", "")),
        Look("s.6"), {"separator": (";", "\t"), **_CASES},
    ),
    Form(
        "Microchip", "collin80/SavvyCAN examples/MicrochipLog.log",
        "166064;RX;0x0000021A;8;0xFE;0x36;0x12;0xFE;0x69;0x05;0x07;0xAD;\n166074;RX;0x000002A2;2;0x00;0x11;",
        (_row("166.064", 0x21A, "FE3612FE690507AD"), _row("166.074", 0x2A2, "0011")),
        _microchip,
        Look("ms", prefix="0x", byte_prefix="0x"), {"has_head": (False, True, True), **_CASES}, "direction", False,
    ),
    Form(
        "ZLG CANTest", "ZLG CANTest's CSV export",
        "0,接收,16:44:48.459.0,0x00000114,标准帧,数据帧,0x08,FF 18 01 13 FF 01 00 01,\n1,接收,16:44:48.459.0,0x00000214,标准帧,数据帧,0x02,CA 8E,",
        (_day("16:44:48.459", 0x114, "FF180113FF010001"), _day("16:44:48.459", 0x214, "CA8E")),
        _csv(("序号", "number from 0"), ("传输方向", "接收"), ("时间戳", "time"), ("ID", "0x id8"), ("帧格式", "标准帧"), ("帧类型", "数据帧"), ("长度", "length 0x"), ("数据", "data"), ("", "")),
        Look("clock.3.0"), {"clock": ("clock.3", "s.4", "clock.3.0"), "separator": (";", "\t"), "has_head": (False, True, True)}, "direction",
    ),
    Form(
        "CL2000", "CSS Electronics CL2000",
        "20150113T110246369;1;18feee00;6f6affffffffffff\n20150113T110246373;1;0cf00400;f17d87d21a00f47d",
        (_row("1421146966.369", 0x18FEEE00, "6f6affffffffffff", True), _row("1421146966.373", 0x0CF00400, "f17d87d21a00f47d", True)),
        _cl2000,
        Look("compact", separator=";", lower=True), {"has_head": (False, True, True), "separator": (",", "\t"), **_CASES}, "",
    ),
    Form(
        "numbered CSV", "AndyDonegan/Can-Logger can_log.csv",
        "1,16:25:47.161,0x091,8,01 03 00 00 00 00 02 00,STD\n2,16:25:47.177,0x092,8,00 01 01 01 03 02 02 03,STD",
        (_day("16:25:47.161", 0x91, "0103000000000200"), _day("16:25:47.177", 0x92, "0001010103020203")),
        _csv(("No", "number"), ("Time", "time"), ("ID", "id"), ("DLC", "length"), ("Data", "data"), ("Type", "STD/EXT")),
        Look("clock.3", prefix="0x", has_head=False), {"clock": ("s.3", "iso", "ms", "clock.6"), "has_head": (True,), "prefix": ("",), "separator": (";", "\t"), **_CASES}, "",
    ),
    Form(
        "decimal bytes", "Vinicius-Dias-Oliveira/Esp32-Raster can_log.csv",
        "2025-06-19 17:07:09.326000,0x288,143 50 0 0 82 211 10\n2025-06-19 17:07:09.353000,0x570,0 0 0",
        (_row("1750352829.326", 0x288, "8F32000052D30A"), _row("1750352829.353", 0x570, "000000")),
        _csv(("Time", "time"), ("ID", "id"), ("Data", "data")), Look("iso", has_head=False, prefix="0x", data_base=10),
        {"has_head": (True,), "clock": ("epoch.3", "iso", "s.3"), "separator": (";", "\t")}, "", False,
    ),
    Form(
        "CSV with units", "PP2CAN, import of CSV (canlab.cz)",
        "0,18FF0021,8,00 FF FF FF FF FF FF DC\n50,0CD22F27,8,03 88 FF FF FF FF F0 FF",
        (_row("0.0", 0x18FF0021, "00FFFFFFFFFFFFDC", True), _row("0.05", 0x0CD22F27, "0388FFFFFFFFF0FF", True)),
        _PLAIN, Look("ms", time_name="Time/ms"),
        {"separator": (";", "\t"), "left_out": (frozenset({"length"}),), "words": (1, 2, 3, 4), "is_quoted": (True,), **_CASES}, "", False,
    ),
    Form(
        "CSV of numbers", "form of many home-made loggers",
        "0.012000,123,2,AA 01\n0.013500,7FF,2,AA 02",
        (_row("0.012", 0x123, "AA01"), _row("0.0135", 0x7FF, "AA02")),
        _PLAIN, Look("s.6"),
        {"clock": ("s.3", "ms", "ms.3", "us", "ns", "ticks", "epoch.6", "epoch ms", "epoch us", "epoch ns", "iso", "iso T Z", "german", "slashes", "clock.3", "clock.6", "within an hour"),
         "base": (10,), "data_base": (10,), "prefix": ("0x",), "has_head": (False, True, True), "left_out": (frozenset({"length"}),), "separator": (";", "\t", " "), "words": (1, 2, 3, 4), "is_quoted": (True,), **_CASES},
        "", False,
    ),
)
# fmt: on
"""The formats; where a line has no channel or direction in a public log, it has it in none of these."""

NO_LOGS: Mapping[str, str] = MappingProxyType(
    {
        "signals (jokul2012/ekf_loc can_log.csv)": "200480000,0,0,0,0,0,0,0,0,-6256,0,399,0,0,0,0,0,0,0,0,0,-85.165764,0\n200490000,0,0,0,0,0,0,0,0,-6256,0,399,0,0,0,0,0,0,0,0,0,-85.165764,0\n",
        "signals with names (KiranSanekal/OVMS canlog.csv)": "Timestamp,SOC,Speed,RPM\n2025-09-25 19:54:09,98,698,64\n2025-09-25 19:54:09,118,275,39\n",
        "values by identifier (saivikasnadella/can-log-parser)": "28.852,512,98.93\n28.873,512,83.92\n28.911,1024,231.56\n",
        "NMEA 0183": "$IIVHW,,T,,M,06.11,N,11.31,K*51\n$IIVPW,4.71,N,,*03\n$IIMWV,338,R,13.41,N,A*2C\n",
        "a test report (tuxiaoshu/python_asc_excel.py log.asc)": "DUT    83   DIEX=   145   DIEY=    59   SBIN=    25    HBIN=     0\nDUT    97   DIEX=   127   DIEY=    57   SBIN=     1    HBIN=     0\n",
    }
)
"""Files named like CAN logs that are none."""


# -- verdicts ----------------------------------------------------------------------------------------------------------


class Verdict(NamedTuple):
    """How a log was read: `right`, `doubtful`, `refused` or `silently wrong`, and why."""

    kind: str
    why: str = ""


def doubts_of(log: CanLog) -> tuple[str, ...]:
    """What a log says it is unsure of."""
    return log.detected.doubts if log.detected else ()


def judge(
    path: Path, expected: Sequence[tuple[object, ...]], *, is_whole: bool = True, is_cut: bool = False, **options: Any
) -> Verdict:
    """Compare what is read of a file with what must be found; frames may be missing only if they are counted.

    Directions and channels may be missing (not wrong) unless it must be whole. If the file is cut, its last line may be
    a shorter frame.
    """
    try:
        log = read_log(path, **options)
        found = list(log)[: len(expected) - 1 if is_cut else None]
    except RecordingError as problem:
        return Verdict("refused", str(problem))
    expected = expected[: len(expected) - 1 if is_cut else None]
    doubts = doubts_of(log)
    lost = len(expected) - len(found)
    why = _difference(log, found, expected, is_whole) if not lost else _strangers(found, expected)
    if not why and 0 < lost <= sum(log.skipped.values()):
        return Verdict("refused", f"{lost} of {len(expected)} lines: {dict(log.skipped)}")
    if not why and lost:
        why = f"{len(found)} frames of {len(expected)}, skipped {dict(log.skipped)}"
    if not why:
        return Verdict("right", "; ".join(doubts))
    why = f"{log.format}: {why}"
    return Verdict("doubtful" if doubts else "silently wrong", f"{why}; {doubts}")


def _difference(
    log: CanLog, found: Sequence[LoggedFrame], expected: Sequence[tuple[object, ...]], is_whole: bool
) -> str:
    first = expected[0][0]
    has_date = isinstance(first, int) and first > START_US // 2
    start = 0 if has_date or not found else found[0].at_us
    for number, (each, row) in enumerate(zip(found, expected, strict=True)):
        at_us, identifier, kind, data, direction, channel = row
        frame = each.frame
        seen = None if log.times == "none" else each.at_us - start
        is_in_time = seen == at_us if seen is None or at_us is None else abs(seen - int(str(at_us))) <= 1
        if (frame.id, frame.data) != (identifier, data) or kind not in (None, frame.extended):
            return f"row {number}: {frame} instead of {row[1:4]}"
        if not is_in_time:
            return f"row {number}: at {seen} us instead of {at_us}"
        if direction is not None and each.direction not in ((direction,) if is_whole else (direction, None)):
            return f"row {number}: direction {each.direction} instead of {direction}"
        if channel is not None and not _is_channel(each.channel, str(channel), is_whole):
            return f"row {number}: channel {each.channel} instead of {channel}"
    return ""


def _is_channel(found: str | None, expected: str, is_whole: bool) -> bool:
    return not is_whole if found is None else found.lower() in (expected.lower(), f"can{expected}")


def _strangers(found: Sequence[LoggedFrame], expected: Sequence[tuple[object, ...]]) -> str:
    """Frames that are none of those expected."""
    known = {(row[1], row[3]) for row in expected}
    strange = [each.frame for each in found if (each.frame.id, each.frame.data) not in known]
    return f"{len(found)} frames of {len(expected)}, among them {strange[0]}" if strange else ""
