"""Which column of a CSV log is what: by the names of its header, or by the values of its first rows."""

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from genus.can._logs.line_fields import Unit, find_time, read_time

DELIMITERS = (",", ";", "\t", "|")
_NAMES = {
    "time": "time timestamp timestamps timestampepoch ts t abstimesec abstime times timems timeus timens timesec "
    "timeoffset datetime systemtime epoch seconds elapsed timestampus timestampms timestampns timestampsec timestamps "
    "times timestampusec timemicros timemillis timereceived rxtime msgtime absolutetime absolutetimestamp us ms ns "
    "usec msec micros millis microseconds milliseconds",
    "relative": "reltimesec reltime relativetime timerelative",
    "id": "id canid arbitrationid arbid identifier idhex iddec canidhex canidh canids messageid msgid addr address "
    "frameid arbitration cid canidentifier hexid idh canmsgid idhexadecimal iddecimal messageidhex arbitrationidhex "
    "msgidhex canaddress canid0x",
    "extended": "extended ext ide xtd isextended isextendedid extid eff isextendedframe idtype frameformat "
    "extendedid canext isext",
    "remote": "remote rtr isremote isremoteframe remoteframe remoteedlbrsesi rtrflag",
    "error": "error er err iserror iserrorframe errorframe",
    "dlc": "dlc datalengthcode",
    "length": "len length datalength size datalen nbytes msglen dl bytecount databytecount datasize payloadlength",
    "kind": "type msgtype frametype format idformat messagetype",
    "data": "data databytes payload datafield datahex bytes framedata datahexadecimal rawdata candata "
    "datapayload hexdata messagedata payloadhex dataashex rawpayload datafieldhex",
    "channel": "bus channel chan chn ch network interface iface buschannel bussrc busid busnumber channelid port "
    "canchannel canbus src",
    "fd": "edl fd isfd fdf canfd isfdframe",
}
_ROLES = {name: role for role, names in _NAMES.items() for name in names.split()}
_BYTE = re.compile(r"(?:d|b|db|byte|data|databyte|datafield|databytes|payload|byted|dat)(\d{1,2})")
_UNIT_NAMES: tuple[tuple[str, Unit], ...] = (("ns", "ns"), ("us", "us"), ("micro", "us"), ("ms", "ms"), ("milli", "ms"))
_MICRO = re.compile(r"[\u00b5\u03bc]")


class CsvColumns(NamedTuple):
    """The numbers of columns by their role; -1 if there is none."""

    id: int
    time: int = -1
    extended: int = -1
    remote: int = -1
    error: int = -1
    dlc: int = -1
    """The data length code, or the number of bytes."""
    data: int = -1
    """The column with all bytes."""
    first_byte: int = -1
    bytes: int = 0
    """How many columns of bytes there are, from `first_byte` on."""
    channel: int = -1
    fd: int = -1
    counts_bytes: bool = True
    """Whether `dlc` is a number of bytes and not a code, which differs for CAN FD frames."""
    unit: Unit = "s"
    base: int = 16
    data_base: int = 16
    packing: Literal["bytes", "hex", "base64"] = "hex"
    kind: int = -1
    """A column that may say in words whether identifiers are extended, among other things."""


def plain_name(text: str) -> str:
    """The name of a column in small letters and digits only.

    >>> plain_name("Abs Time(Sec)")
    'abstimesec'
    """
    return re.sub(r"[^a-z0-9]", "", _MICRO.sub("u", text.strip().strip('"').lower()))


def columns_of_header(cells: Sequence[str]) -> CsvColumns | None:
    """The columns of a header; None if it has no identifier and no data, and so is none."""
    names = [plain_name(cell) for cell in cells]
    roles: dict[str, int] = {}
    for number, name in enumerate(names):
        if name in _ROLES:
            roles.setdefault(_ROLES[name], number)
    first_byte, count = _byte_columns(names)
    if "id" not in roles or ("data" not in roles and not count):
        return None
    if "time" not in roles and "relative" in roles:
        roles["time"] = roles["relative"]
    if "time" not in roles:
        roles["time"] = next((number for number, name in enumerate(names) if name.startswith("time")), -1)
    return CsvColumns(
        id=roles["id"],
        time=roles.get("time", -1),
        extended=roles.get("extended", -1),
        remote=roles.get("remote", -1),
        error=roles.get("error", -1),
        dlc=roles.get("length", roles.get("dlc", -1)),
        data=-1 if count else roles["data"],
        first_byte=first_byte,
        bytes=count,
        channel=roles.get("channel", -1),
        fd=roles.get("fd", -1),
        counts_bytes="length" in roles or "dlc" not in roles,
        unit=_unit_of(names, roles.get("time", -1)),
        base=10 if "dec" in names[roles["id"]] or names[roles["id"]] in ("addr", "address") else 16,
        kind=roles.get("kind", -1),
    )


def _byte_columns(names: Sequence[str]) -> tuple[int, int]:
    """The first of successive columns with numbered names, and how many there are."""
    numbered = [(number, int(found[1])) for number, name in enumerate(names) if (found := _BYTE.fullmatch(name))]
    if not numbered:
        return -1, 0
    first, value = numbered[0]
    count = 0
    while count < len(numbered) and numbered[count] == (first + count, value + count):
        count += 1
    return first, count


def _unit_of(names: Sequence[str], time: int) -> Unit:
    """The unit in the name of the time's column; SavvyCAN counts microseconds and does not say it."""
    if time < 0:
        return "s"
    if names[:6] == ["timestamp", "id", "extended", "dir", "bus", "len"] or names[:5] == [
        "timestamp", "id", "extended", "bus", "len",
    ]:  # fmt: skip
        return "us"
    name = names[time].removeprefix("timestamps").removeprefix("timestamp").removeprefix("time")
    return next((unit for word, unit in _UNIT_NAMES if name.startswith(word) or name.endswith(word)), "s")


# -- values ------------------------------------------------------------------------------------------------------------

_HEX = re.compile(r"(?:0[xX])?([0-9A-Fa-f]+)[hxX]?")
_JOINED = re.compile(r"(?:0[xX])?(?:[0-9A-Fa-f]{2}){0,64}")
_APART = re.compile(r"(?:0[xX])?[0-9A-Fa-f]{1,3}(?:[\s:_.,-]+(?:0[xX])?[0-9A-Fa-f]{1,3})*")
_HEX_MARK = re.compile("0[xX]")
_BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}")
_FLAG = {"std", "ext", "s", "x", "standard", "extended", "sff", "eff"}


def refine(columns: CsvColumns, rows: Sequence[Sequence[str]]) -> CsvColumns:
    """The columns with what the values show: number bases, how data are written, the unit of times."""
    ids = [row[columns.id] for row in rows if len(row) > columns.id and row[columns.id]]
    base = columns.base if columns.base == 10 and all(text.isdecimal() for text in ids) else _base_of_ids(ids)
    columns = columns._replace(base=base, unit=_unit_of_values(columns, rows))
    if columns.bytes or columns.first_byte >= 0:
        cells = [cell for row in rows for cell in byte_cells(columns, row)]
        data_base = _base_of_bytes(cells)
        is_decimal = data_base == 10 and all(text.isdecimal() and (text[0] != "0" or text == "0") for text in ids)
        return columns._replace(packing="bytes", data_base=data_base, base=10 if is_decimal else base)
    cells = [row[columns.data] for row in rows if len(row) > columns.data and row[columns.data]]
    if all(_JOINED.fullmatch(cell) for cell in cells):
        return columns._replace(packing="hex")
    if all(_APART.fullmatch(cell) for cell in cells):
        return columns._replace(
            packing="bytes",
            data_base=_base_of_bytes([part for cell in cells for part in re.split(r"[\s:_.,-]+", cell)]),
        )
    if all(_BASE64.fullmatch(cell) for cell in cells):
        return columns._replace(packing="base64")
    return columns._replace(packing="bytes" if any(" " in cell for cell in cells) else "hex")


def byte_cells(columns: CsvColumns, row: Sequence[str]) -> list[str]:
    """The cells of a row that are bytes: as many as it says, or all that are not empty."""
    size = row[columns.dlc] if 0 <= columns.dlc < len(row) else ""
    last = columns.first_byte + (columns.bytes or 64)
    cells = list(row[columns.first_byte : last])
    return cells[: int(size)] if size.isdecimal() else [cell for cell in cells if cell]


def _base_of_ids(ids: Sequence[str]) -> int:
    """Decimal, if several identifiers have decimal digits only, and differ in length or are no hexadecimal ones."""
    plain = [text for text in ids if text]
    if any(not text.isdecimal() or (len(text) > 1 and text.startswith("0")) for text in plain):
        return 16
    if any(len(text) > 8 or (len(text) < 5 and int(text, 16) > 0x7FF) for text in plain):
        return 10
    is_padded = len({len(text) for text in plain}) == 1 and all(len(text) >= 3 for text in plain)
    return 16 if is_padded or len(set(plain)) < 4 else 10


def _base_of_bytes(cells: Sequence[str]) -> int:
    """Decimal, if no byte needs hexadecimal digits, and some have three digits or lack the zero before one digit."""
    if any(not text.isdecimal() for text in cells):
        return 16
    return 10 if any(len(text) == 3 for text in cells) or any(len(text) == 1 for text in cells) else 16


def _unit_of_values(columns: CsvColumns, rows: Sequence[Sequence[str]]) -> Unit:
    """By their size, times that can only be milliseconds, microseconds or nanoseconds since 1970."""
    for row in rows:
        text = row[columns.time] if 0 <= columns.time < len(row) else ""
        whole = re.split("[.,]", text)[0]
        if whole.isdecimal():
            digits = len(whole.lstrip("0"))
            if digits >= 12:
                return "ms" if digits <= 14 else "us" if digits <= 16 else "ns"
            return columns.unit if digits < 9 or columns.unit != "ns" else "s"
    return columns.unit


def columns_of_values(rows: Sequence[Sequence[str]]) -> CsvColumns | None:
    """The columns of a log without a header, by its first rows; None if they are no frames.

    The first column of times, the identifier behind it, a length that fits to what follows, and the data.
    """
    if not rows:
        return None
    width = min(map(len, rows))
    if all(len(row) == 7 and {*row[2:5]} <= {"0", "1"} and row[5].isdecimal() and _is_id(row[1]) for row in rows):
        return CsvColumns(1, 0, 2, 3, 4, 5, 6)  # python-can's
    times = [at for at in range(min(width, 3)) if all(_is_time(row[at]) for row in rows)]
    for time in [*times[:2], -1]:
        ids = [id_ for id_ in range(time + 1, min(width, time + 5)) if all(_is_id(row[id_]) for row in rows)]
        found = [columns for id_ in ids if (columns := _with_data(rows, time, id_, width))]
        if found:
            return max(found, key=lambda each: (each.dlc >= 0, *_likely_id([row[each.id] for row in rows]), each.id))
    return None


def _likely_id(cells: Sequence[str]) -> tuple[bool, int]:
    """Of several columns that could be the identifier, it is the one with three digits and the most values."""
    return all(len(cell) >= 3 for cell in cells), len(set(cells))


def _with_data(rows: Sequence[Sequence[str]], time: int, id_: int, width: int) -> CsvColumns | None:
    for size in range(id_ + 1, min(width, id_ + 5)):
        if all(row[size].isdecimal() and int(row[size]) <= 64 for row in rows):
            if all(_are_bytes(row[size + 1 : size + 1 + int(row[size])], int(row[size])) for row in rows):
                return _typed(rows, CsvColumns(id_, time, dlc=size, first_byte=size + 1), id_)
            if width > size + 1 and all(_is_packed(row[size + 1], int(row[size])) for row in rows):
                return _typed(rows, CsvColumns(id_, time, dlc=size, data=size + 1), id_)
    for data in range(id_ + 1, width):
        if all(_is_packed(row[data], None) for row in rows) and any(
            len(_HEX_MARK.sub("", row[data])) >= 4 for row in rows
        ):
            return _typed(rows, CsvColumns(id_, time, data=data), id_)
    return None


def _typed(rows: Sequence[Sequence[str]], columns: CsvColumns, id_: int) -> CsvColumns:
    last = columns.data if columns.data >= 0 else columns.dlc
    for number in range(id_ + 1, last):
        if all(row[number].lower() in _FLAG for row in rows):
            return columns._replace(extended=number)
    return columns


def _is_time(text: str) -> bool:
    time = find_time(text, (0, len(text)))
    return time is not None and read_time(text, time) is not None


def _is_id(text: str) -> bool:
    found = _HEX.fullmatch(text)
    return found is not None and len(found[1]) <= 10 and int(found[1], 16) <= 0xFFFF_FFFFF


def _are_bytes(cells: Sequence[str], count: int) -> bool:
    return len(cells) == count and all(
        (found := _HEX.fullmatch(cell)) is not None and len(found[1]) <= 3 for cell in cells
    )


def _is_packed(text: str, count: int | None) -> bool:
    plain = re.sub(r"0[xX]|[\s:_.-]", "", text)
    return re.fullmatch("(?:[0-9A-Fa-f]{2})*", plain) is not None and count in (None, len(plain) // 2)
