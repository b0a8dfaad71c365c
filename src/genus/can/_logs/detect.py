"""Which format a log has, by its content: the first bytes of binary formats, the first lines of text.

Every text format tries to read the first lines; the one that finds the most frames is chosen, and what it found is
judged: its unit of times by what a bus can carry, its columns by whether they contradict each other. `Detected` says
what was chosen, by which evidence, and what is doubtful.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from genus.can._logs.cells import HEADER, CellFormat, Columns, find_columns, find_delimiter, parse_columns, row_of
from genus.can._logs.formats import ROWS, LineFormat
from genus.can._logs.headers import format_of
from genus.can._logs.lines import BLANKS, NMEA_PARTS, Fields, NoFrame, read_fields, without_colours
from genus.can._logs.log_file import HARMLESS, NO_FRAME
from genus.can._logs.times import (
    FIRST_DATE_US,
    UNITS,
    ChosenUnit,
    KindOfTimes,
    Stamps,
    Unit,
    choose_unit,
    fits_a_bus,
    read_time,
)
from genus.can._wire.frame import CLASSIC_BYTES, Frame
from genus.errors import RecordingError

HEAD_BYTES = 1 << 17
"""So much of a log is looked at."""
HEAD_LINES = 200
FIRST_LINES = 60
"""If a format reads frames in so many lines, no more are looked at."""
BINARY: Mapping[str, tuple[bytes, ...]] = MappingProxyType(
    {
        "blf": (b"LOGG",),
        "mf4": (b"MDF     ", b"UnFinMF "),
        "sqlite": (b"SQLite format 3\0",),
        "pcap": (
            b"\xa1\xb2\xc3\xd4",
            b"\xd4\xc3\xb2\xa1",
            b"\xa1\xb2\x3c\x4d",
            b"\x4d\x3c\xb2\xa1",
            b"\x0a\x0d\x0d\x0a",
        ),
    }
)
"""The first bytes of the binary formats."""
CSV = "csv"
TEXT_FORMATS = (
    *(name for name, row in ROWS.items() if not row.is_loose),
    CSV,
    *(name for name, row in ROWS.items() if row.is_loose),
)
"""The text formats in the order in which they are tried; loose ones last."""
FORMATS = (*TEXT_FORMATS, *BINARY)
ENDINGS: Mapping[str, str] = MappingProxyType(
    {"log": "log", "asc": "asc", "trc": "trc", "csv": "csv", "blf": "blf", "mf4": "mf4", "mdf": "mf4"}
    | {"db": "sqlite", "sqlite": "sqlite", "sqlite3": "sqlite", "pcap": "pcap", "pcapng": "pcap", "crtd": "crtd"}
)
"""The format of an ending, where the content shows nothing."""
DESCRIBE = "describe its columns (columns=, --log-columns), like 'time:ms, id:hex, -, length, data'"


class Head(NamedTuple):
    """The first lines of a text log, as Latin-1 text; the last one may be cut."""

    lines: tuple[str, ...]

    @classmethod
    def of(cls, start: bytes) -> "Head":
        lines = without_colours(start.removeprefix(b"\xef\xbb\xbf")).split(b"\n")
        whole = lines[:-1] if len(lines) > 1 and len(start) >= HEAD_BYTES else lines
        return cls(tuple(line.decode("latin-1") for line in whole[:HEAD_LINES] if line.strip(BLANKS.encode())))


class Detected(NamedTuple):
    """What a log is taken for; as text a line, and one for each doubt."""

    format: str | None
    """None if no format fits."""
    frames: int = 0
    """How many frames of the head it reads."""
    lines: int = 0
    """How many lines were looked at, without blank ones."""
    tried: str = ""
    """What was tried, for messages."""
    columns: str = ""
    """The fields of a line in their order, with units and number bases."""
    unit: Unit | None = None
    """What times count; None if they are dates or clocks, or there are none."""
    evidence: tuple[str, ...] = ()
    """What showed the columns and the unit."""
    doubts: tuple[str, ...] = ()
    """What may be wrong, and what else is possible."""

    def __str__(self) -> str:
        parts = [f"{self.format}: {self.columns}" if self.columns else f"{self.format}"]
        parts += [f"times in {self.unit}"] if self.unit else []
        parts += [f"by {', '.join(self.evidence)}"] if self.evidence else []
        return "\n".join(["; ".join(parts), *(f"doubtful: {doubt}" for doubt in self.doubts)])


class Opened(NamedTuple):
    """A text format that is ready to read a log, and what its head showed."""

    format: LineFormat
    detected: Detected


class _HeadFrame(NamedTuple):
    text: str
    fields: Fields
    frame: Frame


def detect(start: bytes) -> Detected:
    found = find(start)
    return found if isinstance(found, Detected) else found.detected


def find(start: bytes) -> Opened | Detected:
    """Return the format of a log that begins with these bytes (of the unpacked content, text in UTF-8 or Latin-1).

    Opened if it is text whose lines show it.

    >>> detect(b"(1436509052.249713) can0 123#11223344").format
    'log'
    >>> detect(b"hello").format is None
    True
    """
    for name, magics in BINARY.items():
        if start.startswith(magics):
            return Detected(name, evidence=("its first bytes",))
    head = Head.of(start)
    first = Head(head.lines[:FIRST_LINES])
    for known, lines in ((first, first.lines), (head, head.lines[FIRST_LINES:])):
        if best := _most_frames(known, lines):
            return open_text(best, head)
    shown = f"; its first line is {head.lines[0].strip()[:80]!r}" if head.lines else ""
    tried = f"none of the first {len(head.lines)} lines is a frame of {', '.join(TEXT_FORMATS)}{shown}"
    tried += f"; if it is one, {DESCRIBE}"
    return Detected(_by_header(head.lines), 0, len(head.lines), tried)


def _most_frames(head: Head, lines: Sequence[str]) -> str | None:
    best, most, cells = None, 0, find_columns(head.lines)
    is_table = cells is not None and cells.delimiter == "\t" and cells.evidence != HEADER
    last = (CSV,) if is_table else ()  # a table is often separated by tabs
    for name in (*(name for name in TEXT_FORMATS if name not in last), *last):
        if most == len(lines):
            break
        is_loose = name in ROWS and ROWS[name].is_loose
        to_beat = most * 5 // 4 if is_loose else most
        format = _new(name, head)
        if format is None:
            continue
        found = _count_frames(format, lines, to_beat)
        if found > to_beat and not _is_no_guess(format, lines):
            best, most = name, found
    return best


def _is_no_guess(format: LineFormat, lines: Sequence[str]) -> bool:
    frames = _read_head(format, lines)[0] if format.row.is_loose or format.row.name == CSV else []
    return len(frames) > 1 and not any(each.frame.data for each in frames)


def _new(name: str, head: Head, columns: Columns | None = None) -> LineFormat | None:
    if columns is not None:
        return CellFormat(row_of("columns", columns, find_delimiter(columns, head.lines)), columns)
    if name != CSV:
        return format_of(ROWS[name])
    found = find_columns(head.lines)
    return (
        None
        if found is None
        else CellFormat(row_of(CSV, found.columns, found.delimiter, hint=found.hint), found.columns)
    )


def _count_frames(format: LineFormat, lines: Sequence[str], to_beat: int = -1) -> int:
    """Return how many of some lines are frames; counting stops where they cannot be more than `to_beat` any more."""
    found = 0
    for number, text in enumerate(lines):
        if found + len(lines) - number <= to_beat:
            break
        if format.read_header(text) is None:
            fields = format.match(text)
            result = fields.reason if isinstance(fields, NoFrame) else read_fields(text, fields)
            found += not isinstance(result, str) or result in (*HARMLESS, NMEA_PARTS)
    return found


def _read_head(format: LineFormat, lines: Sequence[str]) -> tuple[list[_HeadFrame], int, int]:
    frames, damaged, others = list[_HeadFrame](), 0, 0
    for text in lines:
        if format.read_header(text) is not None:
            continue
        fields = format.match(text)
        found = read_fields(text, fields) if isinstance(fields, Fields) else fields.reason
        if isinstance(fields, Fields) and not isinstance(found, str):
            frames.append(_HeadFrame(text, fields, found))
        elif found not in (*HARMLESS, NO_FRAME, NMEA_PARTS):
            damaged += 1
        else:
            others += 1
    return frames, damaged, others


def format_by_ending(ending: str, start: bytes) -> str | None:
    """Return the format of a log by the ending of its name; None if that is text and its lines contradict it."""
    name = ENDINGS.get(ending)
    if name is None or name not in TEXT_FORMATS:
        return name
    head = Head.of(start)
    format = _new(name, head)
    if format is not None:
        format.has_begun = True
    damaged = 0 if format is None else _read_head(format, head.lines)[1]
    return name if damaged < 2 else None  # one line may be cut


def _by_header(lines: Sequence[str]) -> str | None:
    """Return the format of a log without a frame in its head, by a header that only it has."""
    starts = {";$fileversion": "trc", "***busmaster": "busmaster", "base hex": "asc", "base dec": "asc"}
    starts |= {"begin triggerblock": "asc", "chn identifier": "kvaser"}
    for text in lines:
        line = text.strip().lower()
        for start, name in starts.items():
            if line.startswith(start):
                return name
    return None


# -- how a log of a format is read -------------------------------------------------------------------------------------


def open_text(name: str, head: Head, columns: str | None = None, time_unit: Unit | None = None) -> Opened:
    """Return a text format for a log with this head: its number bases, its unit of times, and from when they count.

    Args:
        name: The name of the format.
        head: The first lines of the log.
        columns: A description of columns, instead of the format.
        time_unit: What plain numbers count that are times, whatever the log shows.

    Raises:
        RecordingError: It is no such log, or the columns are not known.
    """
    described = None if columns is None else parse_columns(columns)
    said = next((each.detail for each in described or () if each.role == "time"), "")
    if said and time_unit not in (None, said):
        raise RecordingError(f"columns {columns!r} contradict the unit of times {time_unit!r}: leave one of them out")
    trial, format = (_new(name, head, described) for _ in range(2))
    if trial is None or format is None:
        raise RecordingError(
            "it is no CSV log: no line names columns for the identifier and the data, and the first rows are no "
            f"frames; if it is one, {DESCRIBE}"
        )
    if name == "kvaser" and columns is None and _is_decimal_kvaser(head.lines):
        trial.base = trial.data_base = format.base = format.data_base = 10
    frames, damaged, others = _read_head(trial, head.lines)
    if columns is not None and head.lines and not frames:
        raise RecordingError(
            f"none of the first {len(head.lines)} lines has the columns {columns!r}: {head.lines[0]!r}"
        )
    format.has_begun = not frames  # without a frame behind it, no line is a title
    plain = _plain_stamps(frames)
    evidence, doubts = list[str](), list[str]()
    is_said = format.row.unit or format.row.hint or time_unit
    if not is_said and _are_numbers_of_lines(plain):
        doubts.append("what is before the frames counts lines and is not taken for their time")
        unit = None
    else:
        unit = _choose_unit(format, plain, time_unit, evidence, doubts)
        format.unit = unit or "s"
        _set_times(format, frames, plain, doubts, is_relative=trial.times.kind == "deltas")
    found = find_columns(head.lines) if isinstance(format, CellFormat) and columns is None else None
    is_guess = format.row.is_loose or (found is not None and found.evidence != HEADER)
    _judge(format, frames, damaged, doubts, is_guess=is_guess)
    if not frames and others:
        doubts.append(f"none of the first {len(head.lines)} lines is a data frame")
    if columns is None and not (found is not None and found.says_base):
        _judge_base(format, frames, doubts)
    shown = _columns_of(trial, frames)
    if isinstance(format, CellFormat):
        evidence.insert(0, "the given columns" if found is None else found.evidence)
    elif frames:
        evidence.insert(0, "the form of its lines")
    detected = Detected(format.row.name, len(frames), len(head.lines), "", shown, unit, tuple(evidence), tuple(doubts))
    return Opened(format, detected)


def _is_decimal_kvaser(lines: Sequence[str]) -> bool:
    """Whether no identifier or byte needs hexadecimal digits or has leading zeros, and a byte has three digits."""
    patterns = format_of(ROWS["kvaser"]).patterns
    found = [each for text in lines for pattern in patterns if (each := pattern.match(text))]
    bytes_ = [byte for each in found for byte in each["data"].split()]
    numbers = [*(each["id"] for each in found), *bytes_]
    is_hex = any(not text.isdecimal() or (len(text) > 1 and text.startswith("0")) for text in numbers)
    return any(len(byte) == 3 for byte in bytes_) and not is_hex


def _columns_of(format: LineFormat, frames: Sequence[_HeadFrame]) -> str:
    if isinstance(format, CellFormat):
        return ", ".join(map(str, format.columns))
    if not frames:
        return ""
    matches = (found for frame in frames for each in format.patterns if (found := each.match(frame.text)))
    found = next(matches, None)
    if found is None:  # a header after the frames changed the patterns
        return ""
    names = [name for name, value in found.groupdict().items() if value and name[:3] not in ("is_", "fre")]
    return ", ".join(sorted(names, key=found.start))


def _plain_stamps(frames: Sequence[_HeadFrame]) -> Stamps | None:
    """Time stamps that are plain numbers, and how long their frames take on a bus; None if there are none."""
    values, decimals, keys, bits = [], 0, Counter[object](), dict[object, float]()
    for text, fields, frame in frames:
        parts = [part for part in fields.time.parts if part.micros]
        if not parts or fields.time.date or fields.time.period_us or len(parts) > 2:
            continue
        fraction = text[slice(*parts[-1].span)] if len(parts) == 2 and parts[-1].is_fraction else ""
        is_nanos = fraction and parts[-1].micros == 1 and parts[0].micros != 1
        whole = int(text[slice(*parts[0].span)], parts[0].base)
        value = float(f"{whole}{fraction}") if is_nanos else float(f"{whole}.{fraction or 0}")
        values.append(fields.time.sign * value)
        decimals = max(decimals, 0 if is_nanos else len(fraction))
        channel = "" if fields.channel is None else text[slice(*fields.channel)]
        keys[channel, frame.id, frame.extended] += 1
        size = (67 if frame.extended else 47) + 8 * len(frame.data)
        bits[channel] = bits.get(channel, 0.0) + (
            size if len(frame.data) <= CLASSIC_BYTES and not frame.fd else 30 + size / 8
        )
    return Stamps(np.array(values), decimals, max(keys.values()), max(bits.values())) if values else None


def _choose_unit(
    format: LineFormat, stamps: Stamps | None, given: Unit | None, evidence: list[str], doubts: list[str]
) -> Unit | None:
    if stamps is None:
        return given
    if given not in (None, format.row.unit) and format.row.name in ROWS and format.row.unit is not None:
        doubts.append(f"times of the format {format.row.name} are in {format.row.unit}, so that {given} is not used")
        given = None
    fixed = given or format.row.unit
    if fixed is not None:
        if not fits_a_bus(stamps, fixed):
            chosen = choose_unit(stamps)
            doubts.append(f"in {fixed}, frames are closer together than a bus can carry them; {_possible(chosen)}")
        return fixed
    chosen = choose_unit(stamps, format.row.hint)
    evidence.append(chosen.evidence)
    if chosen.is_impossible:
        doubts.append("in every unit of time, frames are closer together than a bus can carry them")
    elif chosen.others:
        doubts.append(f"the log does not say the unit of its times; {_possible(chosen)}")
    return chosen.unit


def _possible(chosen: ChosenUnit) -> str:
    units = " or ".join((chosen.unit, *chosen.others))
    return f"possible: {units}, which time_unit= or --time-unit decides"


def _set_times(
    format: LineFormat, frames: Sequence[_HeadFrame], plain: Stamps | None, doubts: list[str], *, is_relative: bool
) -> None:
    """From when times count, by the first time stamps, unless the format or (`is_relative`) its header says it."""
    if plain is None:
        stamps = [stamp for each in frames if (stamp := read_time(each.text, each.fields.time)) is not None]
    else:
        micros, divisor = UNITS[format.unit]
        stamps = [int(value) for value in (plain.values * micros / divisor).tolist()]
    if format.row.name in CANDUMP and stamps and max(stamps) < FIRST_DATE_US and _are_deltas(stamps, plain):
        format.times.kind = "deltas"
    elif format.row.times is None:
        format.times.kind = _kind_of(stamps, may_be_deltas=format.row.name == "candump")
        clock = next((each.fields.time for each in frames if each.fields.time.parts), None)
        format.times.period_us = 0 if clock is None else clock.period_us
        if format.row.name == "candump" and format.times.kind == "start" and stamps[0] == 0 and 2 < len(stamps) < FEW:
            doubts.append("its few times are taken from the start; in a log by `candump -t d` they are intervals")
    if format.times.kind == "start" and stamps and min(stamps) < 0:
        format.times.start_us -= min(stamps)
        doubts.append("times are negative at the start; they count from the least of the first ones")
    is_ordered = format.times.kind == "deltas" or format.times.period_us
    if is_ordered:
        format.is_divisible = False
    back = sum(after < before for before, after in pairwise(stamps))
    if (
        not is_relative
        and format.times.kind in ("absolute", "start")
        and not format.times.period_us
        and 4 * back > len(stamps) > 8
    ):
        doubts.append("times go back in more than a quarter of the lines")


FEW = 10
"""So many intervals are hardly ever in order of size by chance."""
CANDUMP = ("log", "candump")
"""Formats whose times may count from the line before."""


def _are_numbers_of_lines(plain: Stamps | None) -> bool:
    return (
        plain is not None
        and len(plain.values) > 2
        and plain.decimals == 0
        and {*np.diff(plain.values).tolist()} == {1.0}
    )


def _are_deltas(stamps: Sequence[int], plain: Stamps | None) -> bool:
    """Return whether a bus can carry the frames only if their times count from the line before."""
    if plain is None or len(stamps) < 4:
        return False
    steps = [after - before for before, after in pairwise(stamps[1:])]
    is_coarse = 2 * steps.count(0) > len(steps)
    return not is_coarse and 2 * sum(max(step, 0) for step in steps) < plain.bits_us <= sum(stamps)


def _kind_of(stamps: Sequence[int], *, may_be_deltas: bool) -> KindOfTimes:
    """Return what time stamps count from; deltas are constant, or go back now and then."""
    if not stamps:
        return "none"
    if min(stamps) >= FIRST_DATE_US:
        return "absolute"
    pairs, later = list(pairwise(stamps)), stamps[1:]
    back = sum(after < before for before, after in pairs)
    is_constant = len(later) > 2 and len(set(later)) == 1 and later[0] > 0
    return "deltas" if may_be_deltas and (is_constant or 5 * back >= max(len(pairs), 1)) else "start"


GUESSED_BASE = (CSV, "table", "bare", "plain")
"""Formats that do not say the number base of identifiers."""


def _judge_base(format: LineFormat, frames: Sequence[_HeadFrame], doubts: list[str]) -> None:
    """Add that identifiers may be decimal, if nothing shows that they are not."""
    names = {each.text[max(each.fields.id[0] - 2, 0) : each.fields.id[1]].lower() for each in frames}
    is_guess = format.row.name in GUESSED_BASE and format.base == 16
    if is_guess and names and not any(map(_is_hexadecimal, names)):
        doubts.append(f"identifiers may be decimal, and are read as hexadecimal; if that is wrong, {DESCRIBE}")


def _is_hexadecimal(name: str) -> bool:
    """Return whether an identifier, with what is before it, has digits, zeros or a mark that decimal ones lack."""
    digits = re.sub(r".*[^0-9a-z]", "", name)
    return name.startswith("0x") or not digits.isdecimal() or digits.startswith("0") or len(digits) == 8


_DATE = re.compile(r"(?<![\w.])(?:\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{4})(?![\w.])")


MANY = 20
"""So many frames must differ in what frames differ in."""


def _judge(
    format: LineFormat, frames: Sequence[_HeadFrame], damaged: int, doubts: list[str], *, is_guess: bool
) -> None:
    row, ids = format.row, {each.frame.id for each in frames}
    if 4 * damaged > len(frames):
        doubts.append(f"{damaged} of the first {damaged + len(frames)} lines are no frames of this format")
    if len(frames) > 1 and not any(each.frame.data for each in frames):
        doubts.append(
            f"all frames are without data, like {frames[0].text.strip()[:80]!r}; if that is wrong, {DESCRIBE}"
        )
    if isinstance(format, CellFormat) and row.name == CSV and format.times.kind == "none":
        roles = [each.role for each in format.columns]
        if "-" in roles[: roles.index("id")] and "time" not in roles:
            doubts.append(f"no column is taken for the time; if that is wrong, {DESCRIBE}")
    if frames and frames[0].fields.time.period_us and _DATE.search(frames[0].text):
        doubts.append("times are clocks, and the date in another column is not used")
    if is_guess and ids and max(ids) < 0x10 and (len(ids) > 1 or len(frames) < MANY):
        doubts.append(f"no identifier is greater than {max(ids):X}; if that is wrong, {DESCRIBE}")
    if not is_guess or len(frames) < MANY:
        return
    if len(ids) == 1 and len({each.frame.data for each in frames}) > 1:
        doubts.append(f"all frames have the identifier {ids.pop():X}; if that is wrong, {DESCRIBE}")
    elif len(ids) == len(frames):
        doubts.append(f"no two frames have the same identifier; if that is wrong, {DESCRIBE}")
