# ruff: noqa: E501 (names of columns are many)
"""The columns of a log whose lines are cells: by the names of its header, its first rows, or a description.

A description names the columns in their order: `time:ms, id:hex, -, length, data` (`ROLES`). However columns are found,
they become a row of `formats`, so that such a log is read as any other.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice, pairwise
from typing import NamedTuple

from genus.can._logs.formats import HeaderLine, LineFormat, Row, decode_cell
from genus.can._logs.lines import Packing
from genus.can._logs.times import UNITS, Unit, find_time, read_date, read_time
from genus.can._wire.frame import CLASSIC_BYTES
from genus.errors import RecordingError

DELIMITERS = (",", ";", "\t", "|")
ROWS_ENOUGH = 200
"""So many rows show what the columns are."""
ROLES: Mapping[str, tuple[str, ...]] = {
    "time": ("", *UNITS), "date": ("",), "id": ("", "hex", "dec"), "data": ("", "hex", "dec", "base64"),
    "pgn": ("",), "priority": ("",), "source": ("",), "destination": ("",), "length": ("",), "dlc": ("",),
    "extended": ("",), "remote": ("",), "error": ("",), "fd": ("",), "kind": ("",), "channel": ("",), "dir": ("",),
    "-": ("",),
}  # fmt: skip
"""What a column can be, and what can be said about it behind a colon; `-` is a column without a meaning."""
_NAMES = {
    "time": "time timestamp 时间戳 时间标识 timescale timestamps timestampepoch ts t abstimesec abstime times timems timeus timens timesec "
    "timeoffset datetime systemtime epoch seconds elapsed timestampus timestampms timestampns timestampsec timestamps "
    "times timestampusec timemicros timemillis timereceived rxtime msgtime absolutetime absolutetimestamp us ms ns "
    "usec msec micros millis microseconds milliseconds",
    "relative": "reltimesec reltime relativetime timerelative",
    "id": "id canid 帧id arbitrationid arbid identifier idhex iddec canidhex canidh canids messageid msgid addr address "
    "frameid arbitration cid canidentifier hexid idh canmsgid idhexadecimal iddecimal messageidhex arbitrationidhex "
    "msgidhex canaddress canid0x",
    "extended": "extended ext ex ide xtd isextended isextendedid extid eff isextendedframe idtype frameformat "
    "extendedid canext isext",
    "remote": "remote 帧类型 rt rtr isremote isremoteframe remoteframe remoteedlbrsesi rtrflag",
    "error": "error er err iserror iserrorframe errorframe",
    "dlc": "dlc datalengthcode",
    "length": "len length 长度 数据长度 datalength size datalen nbytes msglen dl bytecount databytecount datasize payloadlength",
    "kind": "type 帧格式 msgtype frametype format idformat messagetype",
    "data": "data 数据 databytes payload datafield datahex bytes framedata datahexadecimal rawdata candata "
    "datapayload hexdata messagedata payloadhex dataashex rawpayload datafieldhex",
    "channel": "bus channel chan chn ch network interface iface buschannel bussrc busid busnumber channelid port "
    "canchannel canbus src",
    "dir": "dir 传输方向 direction tr rxtx txrx transmitdirection tx",
    "fd": "edl fd isfd fdf canfd isfdframe",
}
_ROLES = {name: role for role, names in _NAMES.items() for name in names.split()}
_BYTE = re.compile(r"(?:d|b|db|byte|data|databyte|datafield|databytes|payload|byted|dat)(\d{1,2})")
_UNIT_NAMES: tuple[tuple[str, Unit], ...] = (("ns", "ns"), ("us", "us"), ("micro", "us"), ("ms", "ms"), ("milli", "ms"))
_MICRO = re.compile(r"[\u00b5\u03bc]")
_UNIT = re.compile(r"\s*[\[(/]\s*(s|sec|seconds|ms|msec|us|usec|\u00b5s|\u03bcs|ns|nsec)\s*[\])]?\s*$", re.IGNORECASE)
"""A unit in brackets or behind a slash in the name of a column; the bracket at the end may have been cut."""
_UNIT_LETTERS: Mapping[str, Unit] = {"s": "s", "m": "ms", "u": "us", "\u00b5": "us", "\u03bc": "us", "n": "ns"}


class Column(NamedTuple):
    """A column of a log: its role, what is said about it (a unit or a number base), and over how many cells it goes."""

    role: str
    detail: str = ""
    cells: int = 1
    """Data may go over several cells, a byte in each; 0 if to the end of the line. A time over two has a date first."""

    def __str__(self) -> str:
        if self.role == "time" and self.cells == 2:
            return "date, time"
        return f"{self.role}:{self.detail}" if self.detail else self.role


Columns = tuple[Column, ...]


def parse_columns(text: str) -> Columns:
    """Return the columns of a description.

    Raises:
        RecordingError: A column is not known, or there is no identifier or no data.

    >>> [str(each) for each in parse_columns("time:ms, id:hex, -, data")]
    ['time:ms', 'id:hex', '-', 'data']
    """
    found = []
    for word in str(text).split(","):
        role, _, detail = word.strip().partition(":")
        if role not in ROLES or detail not in ROLES[role]:
            known = ", ".join(f"{name}[:{'|'.join(more[1:])}]" if more[1:] else name for name, more in ROLES.items())
            raise RecordingError(f"{word.strip()!r} is no column of a log; known: {known}")
        found.append(Column("id", "dec") if role == "pgn" else Column(role, detail))
    roles = [each.role for each in found if each.role != "-"]
    if "date" in roles:
        at = found.index(Column("date"))
        if [each.role for each in found[at + 1 : at + 2]] != ["time"]:
            raise RecordingError(f"columns {text!r}: a date needs its time right behind it")
        found[at : at + 2] = [Column("time", "", 2)]
    if "id" not in roles or "data" not in roles or len(roles) != len(set(roles)):
        raise RecordingError(f"columns {text!r}: they need an id (or a pgn) and data, and each but - only once")
    if found[-1].role == "data":
        found[-1] = found[-1]._replace(cells=0)
    return tuple(found)


def find_delimiter(columns: Columns, head: Sequence[str]) -> str:
    least = len(columns) - 1
    for delimiter in DELIMITERS:
        if head and sum(line.count(delimiter) >= least for line in head) * 2 > len(head):
            return delimiter if least else ""
    return ""


# -- columns to a pattern ----------------------------------------------------------------------------------------------

_BEFORE, _BEHIND = r"""[\s"'=(\[]*""", r"""[\s"')\]]*"""
"""What may be around a value; spreadsheets write `="1"`."""
_NO_TAB = r"[^\S\t]"
"""Blanks where tabs separate."""


def row_of(name: str, columns: Columns, delimiter: str, *, hint: Unit | None = None) -> Row:
    at = re.escape(delimiter)
    cell = rf'(?:"[^"]*"(?=\s*(?:{at}|$))|[^{at}]*)' if delimiter else r"[^\s]+"
    value = rf'[^{at}"]' if delimiter else r"[^\s]"
    said = {each.role: each.detail for each in columns}
    needed = max(number for number, each in enumerate(columns) if each.role in ("time", "id", "data"))
    last = max(number for number, each in enumerate(columns) if each.role != "-")
    parts = []
    for number, each in enumerate(columns[: last + 1]):
        text = _pattern_of(each, number, cell, value, at, "priority" in said)
        before = "" if not number else at if delimiter else " "
        parts.append(f"(?:{before}{text})?" if number > needed else before + text)
    packing: Packing | None = "base64" if said["data"] == "base64" else None
    unit = said.get("time") or None
    end = rf"(?=\s*{at}|\s*$)" if delimiter else r"(?=\s|$)"
    pattern = "".join(parts) + (end if columns[last].cells else "")
    if delimiter == "\t":
        pattern = r"(?<!\t)" + pattern.replace(r"[\s", r"[\n\r\f\v\x20").replace(r"\s*", f"{_NO_TAB}*")
    return Row(name, (pattern,), "", "", unit, hint, packing=packing, delimiter=delimiter)  # type: ignore[arg-type]


def _pattern_of(column: Column, number: int, cell: str, value: str, at: str, is_j1939: bool) -> str:
    role = column.role
    if role == "-":
        return f"(?P<free{number}>{cell})"
    if role == "data" and column.cells != 1:
        if not column.cells:
            return "(?P<data>.*)"
        full = rf'\s*"?{value}*?[0-9A-F]{value}*?"?\s*'
        return rf"(?:(?P<data>{full}(?:{at}{full}){{0,{column.cells - 1}}})|\s*)(?P<void>(?:{at}[\s\"]*){{0,{column.cells - 1}}})"
    inner = {
        "time": rf"(?P<time>{value}+?)" if column.cells == 1 else rf"(?P<time>{value}+?\s*{at or ' '}\s*{value}+?)",
        "id": r"(?:0x)?(?P<id>\d{1,6})" if is_j1939 else r"(?:0x)?(?P<id>[0-9A-F]{1,16})(?:h|(?P<is_extended>x))?",
        "data": f"(?P<data>{cell})",
        "length": r"(?P<length>0x[0-9A-F]{1,2}|\d{0,3})",
        "dlc": r"(?P<dlc>0x[0-9A-F]{1,2}|\d{0,2})",
    }.get(role, rf"(?P<{role}>{value}*?)")
    return inner if role == "data" else f"{_BEFORE}{inner}{_BEHIND}"


class CellFormat(LineFormat):
    def __init__(self, row: Row, columns: Columns, unit: Unit = "s") -> None:
        said = {each.role: each.detail for each in columns}
        bases = (10 if said["id"] == "dec" else 16, 10 if said["data"] == "dec" else 16)
        super().__init__(row, unit, *bases)
        self.columns = columns
        self._id = next(number for number, each in enumerate(columns) if each.role == "id")
        self._id += sum(each.cells - 1 for each in columns[: self._id])

    def read_header(self, text: str) -> HeaderLine | None:
        if text.lstrip(' \t"').startswith(("#", "//")):
            return HeaderLine()
        delimiter = self.row.delimiter
        cells = split_text(text, delimiter) if delimiter else text.split()
        name = cells[self._id] if self._id < len(cells) else ""
        if any(letter.isdigit() for letter in name) or _is_hex(name):
            return None
        is_header = not self.has_begun or columns_of_header(cells) is not None
        return HeaderLine() if is_header else None


def split_text(text: str, delimiter: str) -> list[str]:
    """The cells of a row, without blanks and quotes around them; a delimiter inside of quotes does not separate."""
    cells = (
        text.split(delimiter)
        if '"' not in text
        else re.split(rf'{re.escape(delimiter)}(?=(?:[^"]*"[^"]*")*[^"]*$)', text)
    )
    return [_trimmed(cell) for cell in cells]


def _trimmed(text: str) -> str:
    text = text.strip()
    text = text[1:] if text[:2] in ("b'", 'b"') else text
    return text.lstrip(" \t\"'=([").rstrip(" \t\"')]")


# -- columns by names --------------------------------------------------------------------------------------------------


def plain_name(text: str) -> str:
    """Return the name of a column in small letters and digits only.

    >>> plain_name("Abs Time(Sec)")
    'abstimesec'
    """
    found = _MICRO.sub("u", decode_cell(text).strip().strip('"').lower())
    return re.sub(r"[^a-z0-9\u4e00-\u9fff]", "", found)


def columns_of_header(cells: Sequence[str]) -> Columns | None:
    """Return the columns of a header; None if it has no identifier and no data, and so is none."""
    names = [plain_name(_UNIT.sub("", decode_cell(cell))) for cell in cells]
    roles: dict[str, int] = {}
    for number, name in enumerate(names):
        if name in _ROLES:
            roles.setdefault(_ROLES[name], number)
    first_byte, count = _byte_columns(names)
    if "id" not in roles or ("data" not in roles and not count):
        return None
    relative = roles.pop("relative", None)
    if "time" not in roles:
        named = (
            relative
            if relative is not None
            else next((at for at, name in enumerate(names) if name[:4] == "time"), None)
        )
        roles |= {} if named is None else {"time": named}
    name = names[roles["id"]]
    is_decimal = "dec" in name or name in ("addr", "address")
    details = {"id": "dec" if is_decimal else "hex" if "hex" in name or "0x" in name else ""}
    if "time" in roles:
        said = _UNIT.search(decode_cell(cells[roles["time"]]))
        details["time"] = _UNIT_LETTERS[said[1][0].lower()] if said else _unit_in(names[roles["time"]])
    if count:
        roles["data"] = first_byte
    return _in_order(roles, details, len(names), count or 1)


def _in_order(roles: Mapping[str, int], details: Mapping[str, str], width: int, cells: int) -> Columns:
    by_number = {number: role for role, number in roles.items()}
    found, number = [], 0
    while number < width:
        role = by_number.get(number, "-")
        found.append(Column(role, details.get(role, ""), cells if role == "data" else 1))
        number += max(found[-1].cells, 1) if cells else 1
        if role == "data" and not cells:
            break
    return tuple(found)


def _byte_columns(names: Sequence[str]) -> tuple[int, int]:
    numbered = [(number, int(found[1])) for number, name in enumerate(names) if (found := _BYTE.fullmatch(name))]
    if not numbered:
        return -1, 0
    first, value = numbered[0]
    count = 0
    while count < len(numbered) and numbered[count] == (first + count, value + count):
        count += 1
    return first, count


def _unit_in(name: str) -> str:
    name = name.removeprefix("timestamps").removeprefix("timestamp").removeprefix("time")
    return next(
        (unit for word, unit in _UNIT_NAMES if name.startswith(word) or name.endswith(word)),
        "s" if "sec" in name else "",
    )


# -- columns by values -------------------------------------------------------------------------------------------------

_HEX = re.compile(r"(?:0[xX])?([0-9A-Fa-f]+)[hxX]?")
_JOINED = re.compile(r"(?:0[xX])?(?:[0-9A-Fa-f]{2}){0,64}")
_APART = re.compile(r"(?:x\|)?\s*(?:0[xX])?[0-9A-Fa-f]{1,3}(?:[\s:_.,-]+(?:0[xX])?[0-9A-Fa-f]{1,3})*")
_BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}")
_SEPARATORS = re.compile(r"[ :_,-]+")
_FLAG = {"std", "ext", "s", "x", "standard", "extended", "sff", "eff"}
_DIRECTION = {"rx", "tx", "r", "t"}


def refine(columns: Columns, rows: Sequence[Sequence[str]]) -> Columns:
    """Return the columns with what the values show: number bases, and how data is written."""
    at = {each.role: number for number, each in enumerate(columns)}
    cells_before = {each.role: sum(max(other.cells, 1) for other in columns[: at[each.role]]) for each in columns}
    ids = [row[cells_before["id"]] for row in rows if len(row) > cells_before["id"] and row[cells_before["id"]]]
    data, first = columns[at["data"]], cells_before["data"]
    if data.cells != 1:
        size = cells_before.get("length", cells_before.get("dlc", -1))
        bytes_ = [cell for row in rows for cell in _byte_cells(row, first, data.cells or 64, size)]
    else:
        cells = [row[first] for row in rows if len(row) > first and row[first]]
        cells = cells[:-1] or cells  # the last one may be cut
        is_joined = all(_JOINED.fullmatch(cell) for cell in cells)
        is_apart = not is_joined and all(_APART.fullmatch(cell) for cell in cells)
        bytes_ = [part for cell in cells for part in re.split(r"[\s:_.,-]+", cell)] if is_apart else []
        if not is_joined and not is_apart and all(_BASE64.fullmatch(cell) and len(cell) % 4 == 0 for cell in cells):
            data = data._replace(detail="base64")
    if bytes_ and not data.detail and _are_decimal_bytes(bytes_):
        data = data._replace(detail="dec")
    id_ = columns[at["id"]]
    is_plain = all(text.isdecimal() and (text[0] != "0" or text == "0") for text in ids)
    if id_.detail != "hex" and not (id_.detail == "dec" and all(text.isdecimal() for text in ids)):
        is_decimal = _are_decimal_ids(ids) or (data.detail == "dec" and is_plain and data.cells != 1)
        id_ = id_._replace(detail="dec" if is_decimal else "hex")
    replaced = {at["id"]: id_, at["data"]: data}
    found = [replaced.get(number, each) for number, each in enumerate(columns)]
    before, clock = at.get("time", 0) - 1, cells_before.get("time", 0)
    if before >= 0 and columns[before].role == "-" and _have_dates(rows, clock):
        found[before : before + 2] = [Column("time", "", 2)]
    return tuple(found)


def _have_dates(rows: Sequence[Sequence[str]], at: int) -> bool:
    values = [row[at - 1 : at + 1] for row in rows if len(row) > at]
    return bool(values) and all(":" in clock and read_date(day) is not None for day, clock in values)


def _byte_cells(row: Sequence[str], first: int, count: int, size: int) -> list[str]:
    """Return the cells of a row that are bytes: as many as it says, or all that are not empty."""
    text = row[size] if 0 <= size < len(row) else ""
    cells = list(row[first : first + count])
    return cells[: int(text)] if text.isdecimal() else [cell for cell in cells if cell]


def _are_decimal_ids(ids: Sequence[str]) -> bool:
    """Return whether identifiers have decimal digits only, and differ in length or are no hexadecimal ones."""
    if any(not text.isdecimal() or (len(text) > 1 and text.startswith("0")) for text in ids):
        return False
    if any(len(text) > 8 or (len(text) < 5 and int(text, 16) > 0x7FF) for text in ids):
        return True
    is_padded = len({len(text) for text in ids}) == 1 and all(len(text) >= 3 for text in ids)
    return not (is_padded or len(set(ids)) < 4)


def _are_decimal_bytes(cells: Sequence[str]) -> bool:
    """Return whether no byte needs hexadecimal digits, and some have three digits or lack the zero before one digit."""
    return all(text.isdecimal() for text in cells) and any(len(text) in (1, 3) for text in cells)


def columns_of_values(rows: Sequence[Sequence[str]]) -> Columns | None:
    """Return the columns of a log without a header, by its first rows; None if they are no frames.

    Of all columns that can be the time, the identifier, the length and the data, those are taken that fit best: a
    length that says how many bytes follow, an identifier with `0x` or three digits, clocks before plain numbers. A
    column that counts rows is neither time nor identifier.
    """
    width = min(map(len, rows), default=0)
    if width < 2:
        return None
    if all(len(row) == 7 and {*row[2:5]} <= {"0", "1"} and row[5].isdecimal() and _is_id(row[1]) for row in rows):
        return tuple(map(Column, ("time", "id", "extended", "remote", "error", "length", "data")))  # python-can's
    columns = [[row[at] for row in rows] for at in range(width)]
    counters = {at for at in range(width) if _counts(columns[at])}
    times = {at: cost for at in range(min(width, 6)) if at not in counters and (cost := _time_score(columns[at]))}
    ids = {
        at: _id_score(columns[at])
        for at in range(min(width, 8))
        if at not in counters and all(map(_is_id, columns[at]))
    }
    best: tuple[float, dict[str, int], int] = (0.0, {}, 1)
    for score, roles, cells in _with_data(rows, columns):
        for id_, likely in ids.items():
            near = roles.get("length", id_ + 9) - id_ == 1
            if id_ >= min(roles.values()) or likely < 0 or (likely == 0 and not near):
                continue
            time = max(
                (at for at in times if at != id_ and at < min(roles.values())), key=times.__getitem__, default=-1
            )
            total = score + likely + near + times.get(time, 0)
            if total > best[0]:
                best = total, {**roles, "id": id_, **({"time": time} if time >= 0 else {})}, cells
    return _typed(rows, best[1], best[2]) if best[0] >= ENOUGH else None


ENOUGH = 6
"""So much evidence columns need that are found by values."""


def _counts(cells: Sequence[str]) -> bool:
    numbers = [int(cell) for cell in cells if cell.isdecimal()]
    return len(numbers) == len(cells) > 2 and {b - a for a, b in pairwise(numbers)} == {1}


def _time_score(cells: Sequence[str]) -> int:
    """Return how much a column looks like times; 0 if not at all."""
    if not all(map(_is_time, cells)):
        return 0
    plain = [cell for cell in cells if ":" not in cell and "T" not in cell]
    if not plain:
        return 3
    numbers = [float(cell.replace(",", ".")) for cell in plain if not cell.lower().startswith("0x")]
    falls = sum(b < a for a, b in pairwise(numbers))
    is_rising = 5 * falls < len(numbers) and (len(numbers) < 2 or numbers[0] < numbers[-1])
    return 0 if not is_rising and len(numbers) > 2 else 2 if any("." in cell or "," in cell for cell in cells) else 1


def _id_score(cells: Sequence[str]) -> float:
    """How much a column looks like identifiers: by `0x`, three digits, several values; negative if like a clock."""
    numbers = [int(found[1], 16) for cell in cells if (found := _HEX.fullmatch(cell))]
    steps = [b - a for a, b in pairwise(numbers)]
    rises = len(steps) > 2 and min(steps) > 0 and (max(steps) < 6 or 2 * steps.count(1) >= len(steps))
    is_marked = all(cell.lower().startswith("0x") for cell in cells)
    long = sum(len(cell) >= 3 for cell in cells) / len(cells)
    return 3 * is_marked + 2 * long + min(len(set(cells)) - 1, 4) / 4 - 6 * rises


def _with_data(
    rows: Sequence[Sequence[str]], columns: Sequence[Sequence[str]]
) -> Iterator[tuple[float, dict[str, int], int]]:
    """What can be the length and the data: how much speaks for it, their columns, and whether data is one cell."""
    width = len(columns)
    for size in range(1, width):
        sizes = [_size(cell) for cell in columns[size]]
        counts = [count for count in sizes if count is not None]
        if len(counts) < len(rows) or not any(counts):
            continue
        if width > size + 1 and all(map(_is_packed, columns[size + 1], counts)):
            yield 6, {"length": size, "data": size + 1}, 1
        parts = [row[size + 1 : size + 2 + count] for row, count in zip(rows, counts, strict=True)]
        if all(_are_bytes(part[:count], count) for part, count in zip(parts, counts, strict=True)):
            is_more = all(
                len(part) > count and _is_byte(part[count]) for part, count in zip(parts, counts, strict=True)
            )
            yield 2 if is_more else 6 if max(counts) > 2 else 3, {"length": size, "data": size + 1}, 0
    for data in range(1, width):
        least = max(len(_SEPARATORS.split(cell.strip())) for cell in columns[data])
        digits = max(len(cell.lower().removeprefix("0x")) for cell in columns[data])
        if all(_is_packed(cell, None) for cell in columns[data]) and (least > 1 or digits >= 4):
            is_more = data + 1 < width and all(map(_is_byte, columns[data + 1]))
            yield 3 + 2 * (least > 2 or digits > 8) - 4 * is_more, {"data": data}, 1
    tail = next((at for at in range(width, 0, -1) if not all(map(_is_byte, columns[at - 1]))), 0)
    if 2 <= width - tail <= CLASSIC_BYTES and len({len(row) for row in rows}) == 1:
        yield 2 + (width - tail == CLASSIC_BYTES), {"data": tail}, width - tail


def _size(text: str) -> int | None:
    if text.lower().startswith("0x") and len(text) <= 4 and _is_hex(text[2:]):
        return int(text, 16)
    return int(text) if text.isdecimal() and text.isascii() and int(text) <= 64 else None


def _typed(rows: Sequence[Sequence[str]], roles: dict[str, int], cells: int) -> Columns:
    """Return the columns with flags, directions and channels among those that have no role yet."""
    for number in range(min(map(len, rows)) if cells else roles["data"]):
        if number not in roles.values():
            values = {row[number].lower() for row in rows}
            if values <= _FLAG:
                roles.setdefault("extended", number)
            elif values <= _DIRECTION:
                roles.setdefault("dir", number)
            elif all(re.fullmatch(r"(?:v?s?l?can|com|ch|bus)\s*\d+", value) for value in values):
                roles.setdefault("channel", number)
    return _in_order(roles, {}, max(map(len, rows)), cells)


def _is_time(text: str) -> bool:
    time = find_time(text, (0, len(text)), "ns")
    return time is not None and read_time(text, time) is not None


def _is_id(text: str) -> bool:
    found = _HEX.fullmatch(text)
    return found is not None and len(found[1]) <= 10 and int(found[1], 16) <= 0xFFFF_FFFFF


def _is_hex(text: str) -> bool:
    return bool(text) and all(letter in "0123456789abcdefABCDEF" for letter in text)


def _is_byte(text: str) -> bool:
    found = _HEX.fullmatch(text)
    return found is not None and (len(found[1]) <= 2 or (len(found[1]) == 3 and text.isdecimal() and int(text) < 256))


def _are_bytes(cells: Sequence[str], count: int) -> bool:
    return len(cells) == count and all(
        (found := _HEX.fullmatch(cell)) is not None and len(found[1]) <= 3 for cell in cells
    )


def _is_packed(text: str, count: int | None) -> bool:
    """Return whether a cell has bytes, in one word or apart, and as many as it must."""
    parts = [part.removeprefix("0x") for part in _SEPARATORS.split(text.lower().removeprefix("x|").strip())]
    if len(parts) == 1:
        return re.fullmatch("(?:[0-9a-f]{2})*", parts[0]) is not None and count in (None, len(parts[0]) // 2)
    return all(re.fullmatch("[0-9a-f]{1,2}|[12][0-9]{2}", part) for part in parts) and count in (None, len(parts))


# -- columns of a log --------------------------------------------------------------------------------------------------


HEADER = "the header"


class FoundColumns(NamedTuple):
    """The columns of a log, what separates them, and what showed them."""

    columns: Columns
    delimiter: str
    evidence: str
    hint: Unit | None = None
    """The unit that such a header suggests."""
    says_base: bool = False
    """Whether the header says the number base of identifiers."""


@lru_cache(maxsize=4)
def find_columns(head: tuple[str, ...]) -> FoundColumns | None:
    for delimiter in DELIMITERS:
        lines = (line for line in head if delimiter in line and not line.lstrip().startswith("#"))
        rows = [split_text(line, delimiter) for line in islice(lines, ROWS_ENOUGH)]
        for number, cells in enumerate(rows[:100]):
            columns = columns_of_header(cells)
            if columns is not None:
                at = next(each for each, column in enumerate(columns) if column.role == "id")
                at += sum(each.cells - 1 for each in columns[:at])
                values = [row for row in rows[number + 1 :] if len(row) > at and _is_id(row[at])]
                if columns[-1].role == "data" and any(len(row) > len(cells) + 1 for row in values):
                    columns = (*columns[:-1], Column("data", "", 0))  # it spreads over columns without a name
                says_base = any(each.role == "id" and each.detail for each in columns)
                return FoundColumns(refine(columns, values), delimiter, HEADER, _hint(cells), says_base)
        values = [row for row in rows if len(row) > 1]
        values = values[:-1] if len(values) > 3 else values  # the last one may be cut
        for skipped in range(min(10, len(values))):
            if columns := columns_of_values(values[skipped : skipped + 50]):
                return FoundColumns(refine(columns, values[skipped:]), delimiter, "the values of the first rows")
    return None


def _hint(cells: Sequence[str]) -> Unit | None:
    """SavvyCAN counts microseconds and does not say it."""
    names = [plain_name(cell) for cell in cells if plain_name(cell) != "dir"]
    return "us" if names[:5] == ["timestamp", "id", "extended", "bus", "len"] else None
