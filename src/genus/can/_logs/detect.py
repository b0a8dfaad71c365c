"""Which format a log has, by its content: the first bytes of binary formats, the first lines of text.

Every text format tries to read the first lines; the one that finds the most frames is chosen. The ending of the name
does not matter, unless the content shows nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from genus.can._logs.busmaster import BusmasterFormat
from genus.can._logs.by_example import TextReader
from genus.can._logs.candump import CandumpReader, parse_line
from genus.can._logs.candump_text import CandumpTextFormat
from genus.can._logs.csv_log import CsvFormat
from genus.can._logs.kvaser import KvaserFormat
from genus.can._logs.line_fields import Fields, NoFrame, Unit, read_fields, read_time
from genus.can._logs.log_file import HARMLESS
from genus.can._logs.other_lines import (
    BareFormat,
    CrtdFormat,
    HashFormat,
    LabelledFormat,
    LawicelFormat,
    PatternFormat,
    PlainFormat,
    TableFormat,
)
from genus.can._logs.peak_trc import TrcFormat
from genus.can._logs.text_block import BLANKS, without_colours
from genus.can._logs.text_format import TextFormat
from genus.can._logs.vector_asc import AscFormat
from genus.errors import RecordingError

HEAD_BYTES = 1 << 17
"""So much of a log is looked at."""
HEAD_LINES = 500
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


class Head(NamedTuple):
    """The first lines of a text log, as Latin-1 text; the last one may be cut."""

    lines: tuple[str, ...]

    @classmethod
    def of(cls, start: bytes) -> "Head":
        """The lines of the first bytes of a log."""
        lines = without_colours(start.removeprefix(b"\xef\xbb\xbf")).split(b"\n")
        whole = lines[:-1] if len(lines) > 1 and len(start) >= HEAD_BYTES else lines
        return cls(tuple(line.decode("latin-1") for line in whole[:HEAD_LINES] if line.strip(BLANKS.encode())))


def _pattern(name: str, kind: type[PatternFormat]) -> Callable[[Head], TextFormat]:
    def made(head: Head) -> TextFormat:
        trial = kind(name, 0)
        found = ((text, trial.match(text)) for text in head.lines)
        timed = ((text, fields) for text, fields in found if isinstance(fields, Fields) and fields.time.parts)
        text, first = next(timed, ("", None))
        if first is None:
            return kind(name, None)
        unit = _unit_of(text[slice(*first.time.parts[0].span)])
        fields = kind(name, 0, unit).match(text)
        return kind(name, read_time(text, fields.time), unit)

    return made


def _unit_of(number: str) -> Unit:
    """What a time counts: seconds, or what a number of so many digits must be, if it counts from 1970."""
    digits = len(number.lstrip("0"))
    return "s" if digits < 12 else "ms" if digits <= 14 else "us" if digits <= 16 else "ns"


TEXT: Mapping[str, Callable[[Head], TextFormat | None]] = MappingProxyType(
    {
        "candump": lambda head: CandumpTextFormat(head.lines),
        "asc": lambda head: AscFormat(),
        "trc": lambda head: TrcFormat(),
        "busmaster": lambda head: BusmasterFormat(),
        "kvaser": lambda head: KvaserFormat(head.lines),
        "csv": lambda head: CsvFormat.of_head(head.lines),
        "labelled": _pattern("labelled", LabelledFormat),
        "crtd": _pattern("crtd", CrtdFormat),
        "hash": _pattern("hash", HashFormat),
        "slcan": _pattern("slcan", LawicelFormat),
        "table": _pattern("table", TableFormat),
        "bare": _pattern("bare", BareFormat),
        "plain": _pattern("plain", PlainFormat),
    }
)
"""The text formats, each made for a head; where several find as many frames, the first is chosen."""

LOOSE = ("hash", "slcan", "table", "bare", "plain")
"""Formats that read much: one is chosen only if it finds a quarter more frames than those before it."""
CANDUMP = "log"
"""The format of `candump -L`, which has a reader of its own."""
TEXT_FORMATS = (CANDUMP, *TEXT)
FORMATS = (*TEXT_FORMATS, *BINARY)
ENDINGS: Mapping[str, str] = MappingProxyType(
    {"log": "log", "asc": "asc", "trc": "trc", "csv": "csv", "blf": "blf", "mf4": "mf4", "mdf": "mf4"}
    | {"db": "sqlite", "sqlite": "sqlite", "sqlite3": "sqlite", "pcap": "pcap", "pcapng": "pcap", "crtd": "crtd"}
)
"""The format of an ending, where the content shows nothing."""


class Detected(NamedTuple):
    """What a log is taken for."""

    format: str | None
    """None if no format fits."""
    frames: int = 0
    """How many frames of the head it reads."""
    lines: int = 0
    """How many lines were looked at, without blank ones."""
    tried: str = ""
    """What was tried, for messages."""


def detect(start: bytes) -> Detected:
    """The format of a log that begins with these bytes (of the unpacked content, text in UTF-8 or Latin-1).

    >>> detect(b"(1436509052.249713) can0 123#11223344").format
    'log'
    >>> detect(b"hello").format is None
    True
    """
    for name, magics in BINARY.items():
        if start.startswith(magics):
            return Detected(name)
    head = Head.of(start)
    first = Head(head.lines[:FIRST_LINES])
    for known, lines in ((first, first.lines), (head, head.lines[FIRST_LINES:])):
        best = _most_frames(known, lines)
        if best.frames:
            return best
    tried = f"none of the first {len(head.lines)} lines is a frame of {', '.join(TEXT_FORMATS)}"
    return Detected(_by_header(head.lines), 0, len(head.lines), tried)


def _most_frames(head: Head, lines: Sequence[str]) -> Detected:
    best = Detected(CANDUMP, sum(_is_candump(text) for text in lines), len(lines))
    for name, made in TEXT.items():
        if best.frames == len(lines):
            break
        to_beat = best.frames * 5 // 4 if name in LOOSE else best.frames
        found = count_frames(made(head), lines, to_beat)
        if found > to_beat:
            best = Detected(name, found, len(lines))
    return best


def _is_candump(text: str) -> bool:
    frame, at_us, _ = parse_line(text.strip())
    return at_us is not None and (frame in HARMLESS if isinstance(frame, str) else True)


def text_reader(name: str, head: Head) -> TextReader | CandumpReader:
    """The reader of a text format for a log with this head."""
    if name == CANDUMP:
        return CandumpReader()
    format = TEXT[name](head)
    if format is None:
        raise RecordingError(
            "it is no CSV log: no line names columns for the identifier and the data, and the first rows are no frames"
        )
    return TextReader(format)


def count_frames(format: TextFormat | None, lines: Sequence[str], to_beat: int = -1) -> int:
    """How many of some lines are frames; counting stops where they cannot be more than `to_beat` any more."""
    if format is None:
        return 0
    found = 0
    for number, text in enumerate(lines):
        if found + len(lines) - number <= to_beat:
            break
        if format.read_header(text) is None:
            fields = format.match(text)
            result = fields.reason if isinstance(fields, NoFrame) else read_fields(text, fields)
            found += not isinstance(result, str) or result in HARMLESS
    return found


def _by_header(lines: Sequence[str]) -> str | None:
    """The format of a log without a frame in its head, by a header that only it has."""
    for text in lines:
        line = text.strip().lower()
        if line.startswith(";$fileversion"):
            return "trc"
        if line.startswith("***busmaster"):
            return "busmaster"
        if line.startswith(("base hex", "base dec", "begin triggerblock")):
            return "asc"
        if line.startswith("chn identifier"):
            return "kvaser"
    return None
