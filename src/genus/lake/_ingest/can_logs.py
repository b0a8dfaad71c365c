"""CAN logs with a DBC file: frames become events of the types of its messages, in columns.

A plain log of a text format in which a line means the same wherever it is (`candump -L`, CSV, TRC and others) is
divided into ranges of lines, so that a large one uses all cores; compressed files and the other formats are read by one
task. The position of an event is the byte at which its line begins, in the unpacked text; in binary formats it is the
number of its frame. Damage without such a position has a negative one.
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TypeGuard, cast

import msgspec
import pyarrow as pa

from genus.can import ColumnDecoder, DecodedFrames, LongColumns
from genus.can.internal import (
    BINARY_READERS,
    ENDINGS,
    EXTENDED,
    FORMATS,
    HEAD_BYTES,
    INCOMPLETE,
    LONG_POSITION,
    MAX_LINE,
    TEXT_FORMATS,
    UNKNOWN_ID,
    Head,
    LogFile,
    MessageColumns,
    Opened,
    SkippedRecords,
    TextReader,
    Unit,
    detect,
    head_of,
    log_ending,
    looks_like_utf_16,
    open_text,
    packing_of,
    parse_columns,
    unit_of,
)
from genus.can.types import Dbc, FrameColumns, Incomplete, LogBlock, MessageLayout, PartFrames, RefusedFrames
from genus.errors import LakeError, RecordingError
from genus.lake._ingest.format import (
    Chunk,
    Columns,
    DeadLetter,
    Split,
    Types,
    Unknown,
    byte_ranges,
    changed_us,
    read_blocks,
)
from genus.lake._tables.commits import POSITION, RECORDED
from genus.lake._tables.files import local_path, open_input
from genus.model.types import ChoiceType

FRAMES_AT_ONCE = 1 << 18
"""How many frames are decoded together; with fewer, each of very many messages would have only a few frames."""
LETTERS_AT_ONCE = 10_000
FRAMES, LONG_MESSAGES = "frames", "long messages"
"""What a split of a J1939 log is read for."""
_BOM = b"\xef\xbb\xbf"


class CanLogs(msgspec.Struct, frozen=True):
    """The format of CAN logs: one of those that `genus.can.read_log` knows, plain or compressed."""

    messages: tuple[MessageLayout, ...]
    log: str
    """The name of the log format, such as `log` (`candump -L`), `asc`, `csv` or `blf`."""
    unknown: Unknown = "dead"
    """What happens to frames that belong to no message: they become dead letters, or are left out."""
    time_unit: Unit | None = None
    """What plain numbers count that are times; None if each log shows it."""
    columns: str | None = None
    """A description of the columns of text logs, instead of the format."""

    @classmethod
    def of(
        cls,
        dbc: Dbc,
        log: str,
        *,
        unknown: Unknown = "dead",
        time_unit: str | None = None,
        columns: str | None = None,
    ) -> "CanLogs":
        """Logs in one log format of the bus that a DBC file describes; tasks get its messages, not the file."""
        try:
            unit = None if time_unit is None else unit_of(time_unit)
            if columns is not None:
                parse_columns(columns)
        except RecordingError as problem:
            raise LakeError(str(problem)) from None
        return cls(_messages_of(dbc), log, unknown, unit, columns)

    def __post_init__(self) -> None:
        if self.unknown not in ("dead", "pass"):
            asked = f"unknown={self.unknown!r}"
            raise LakeError(f"{asked}; write 'dead' to get dead letters, or 'pass' to leave frames out")
        if self.log not in FORMATS:
            raise LakeError(f"log={self.log!r} is not a CAN log format; known: {', '.join(FORMATS)}")

    def splits(self, path: str, size: int, target: int) -> list[Split]:
        """Ranges of a plain log whose lines can be read anywhere; one split of any other file.

        The frames of a long message may be in several ranges, so these messages are read by a split of their own.
        """
        reader = self._reader(path)
        if not _is_divisible(reader, path):
            return [Split(path, 0, size)]
        ranges = byte_ranges(path, size, target, _packing(path) == "gzip")
        if len(ranges) == 1 or not self._has_long_messages:
            return ranges
        frames = [msgspec.structs.replace(each, share=FRAMES) for each in ranges]
        return [*frames, Split(path, 0, size, share=LONG_MESSAGES)]

    @property
    def _has_long_messages(self) -> bool:
        return any(message.j1939 for message in self.messages)

    def _reader(self, path: str) -> TextReader | DeadLetter | None:
        """The reader of a text log, by its first lines; None for a binary one, a dead letter if it is no such log."""
        if self.log not in TEXT_FORMATS:
            return None
        try:
            reader = TextReader(self._open(path).format)
        except RecordingError as problem:
            return DeadLetter.of(-1, str(problem), "byte 0")
        if reader.times == "none":
            reader.format.times.start_us = changed_us(path)
        return reader

    def _open(self, path: str) -> Opened:
        return open_text(self.log, Head.of(_head(path)), self.columns, self.time_unit)

    def doubts(self, path: str) -> tuple[str, ...]:
        """Return what may be wrong about how a log is read; see `genus.can.read_log`."""
        try:
            return self._open(path).detected.doubts if self.log in TEXT_FORMATS else ()
        except RecordingError:
            return ()  # reading it makes a dead letter

    def read(self, split: Split, types: Types) -> Iterator[Chunk]:
        reader = self._reader(split.path)
        if isinstance(reader, DeadLetter):
            yield [reader]
            return
        has_times = reader is None or reader.times != "none"
        readers = [] if split.share == LONG_MESSAGES else [_ChunkReader(self, types, has_times)]
        if self._has_long_messages and split.share != FRAMES:
            readers.append(_ChunkReader(self, types, has_times, is_long=True))
        if _is_divisible(reader, split.path):
            pieces = _read_range(split, reader)
        else:
            pieces = _read_file(split, reader or self.log)
        for found in pieces:
            if isinstance(found, FrameColumns):
                for each in readers:
                    yield from each.add(found)
            elif split.share != LONG_MESSAGES:
                yield found
        for each in readers:
            yield from each.flush()


@lru_cache(maxsize=8)
def _messages_of(dbc: Dbc) -> tuple[MessageLayout, ...]:
    """Return what tasks need, without comments; the same object for all logs, so that a job sends it once."""
    replace, found = msgspec.structs.replace, []
    for message in dbc.all_messages:
        signals = tuple(replace(signal, comment=None) for signal in message.signals)
        found.append(replace(message, signals=signals, comment=None))
    return tuple(found)


def find_log_format(path: str) -> str:
    """Return the name of a log's format, by its content, or else its ending; LakeError if it is none that is known."""
    detected = detect(_head(path))
    found = detected.format or ENDINGS.get(log_ending(path))  # damage is no error, but dead letters
    if found is None:
        raise LakeError(f"{path}: it is not recognised as a CAN log: {detected.tried}")
    return found


# -- files to frames ---------------------------------------------------------------------------------------------------


def _head(path: str) -> bytes:
    with open_input(path) as file:
        return head_of(file, HEAD_BYTES)


def _packing(path: str) -> str | None:
    """Return how a text file is compressed; `utf-16` if its bytes are not those of its lines."""
    with open_input(path) as file:
        start = file.read(1024)
    return packing_of(start) or ("utf-16" if looks_like_utf_16(start) or b"\n" not in start else None)


def _is_divisible(reader: TextReader | DeadLetter | None, path: str) -> TypeGuard[TextReader]:
    is_divisible = isinstance(reader, TextReader) and reader.is_divisible and _packing(path) in (None, "gzip")
    return is_divisible and isinstance(reader, TextReader) and not (reader.may_wrap and _wraps(reader, path))


def _wraps(reader: TextReader, path: str) -> bool:
    """Whether a counter of times may have begun again: at the end of a log it is far behind what its head suggests."""
    with open_input(path) as file:
        head = file.read(HEAD_BYTES)
        size = file.seek(0, 2)
        file.seek(max(size - MAX_LINE, 0))
        tail = file.read(MAX_LINE)
    if size <= HEAD_BYTES:
        return False
    first, last, end = (
        [int(part.at_us[at]) for part in TextReader(reader.format.again()).parse(text).frames[:1]] or [0]
        for text, at in ((head, 0), (head, -1), (tail[tail.find(b"\n") + 1 :], -1))
    )
    return 2 * (end[0] - first[0]) * HEAD_BYTES < (last[0] - first[0]) * size


def _read_range(split: Split, reader: TextReader) -> Iterator[FrameColumns | list[DeadLetter]]:
    """Yield the lines of a range that `byte_ranges` made."""
    if split.start:
        reader.parse(_head(split.path))  # headers say how lines are read
    for block in read_blocks(split, MAX_LINE):
        if isinstance(block, list):
            yield block
            continue
        text = block.text.replace(_BOM, b"   ", 1) if block.at == 0 and block.text.startswith(_BOM) else block.text
        yield from _parts(reader.parse(text, block.at))


def _read_file(split: Split, reader: TextReader | str) -> Iterator[FrameColumns | list[DeadLetter]]:
    """Yield a whole file, of text by its reader, or of a binary format by its name."""
    skipped = _SkippedAsDead()
    try:
        with _local_file(split.path) as path, closing(LogFile(path, skipped)) as file:
            if isinstance(reader, str):
                blocks = BINARY_READERS[reader](file)
            else:
                blocks = (reader.parse(text, at) for at, text in file.lines())
            for block in blocks:
                yield from _parts(block)
    except RecordingError as problem:
        skipped.note(str(problem), "byte 0")
    yield skipped.letters


def _parts(block: LogBlock) -> Iterator[FrameColumns | list[DeadLetter]]:
    yield from block.frames
    yield [DeadLetter.of(*damaged) for damaged in block.damaged]


class _SkippedAsDead(SkippedRecords):
    """State: dead letters for damaged records; harmless ones have no location and are left out."""

    def __init__(self) -> None:
        super().__init__()
        self.letters: list[DeadLetter] = []

    def note(self, reason: str, location: str = "") -> None:
        if location:
            self.letters.append(DeadLetter.of(-1 - len(self.letters), reason, location))


@contextmanager
def _local_file(path: str) -> Iterator[Path]:
    """The file on this machine, because readers seek in it: a temporary copy if it is elsewhere."""
    local = local_path(path)
    if local is not None:
        yield Path(local)
        return
    with tempfile.NamedTemporaryFile() as copy, open_input(path) as file:
        shutil.copyfileobj(file, copy)
        copy.flush()
        yield Path(copy.name)


# -- frames to chunks --------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4)
def _decoder(messages: tuple[MessageLayout, ...]) -> ColumnDecoder:
    return ColumnDecoder(messages)


class _ChunkReader:
    """State: frames that wait until enough can be decoded together, by the width of their data.

    With `is_long`, it reads the long messages that frames are parts of, instead of the frames.
    """

    def __init__(self, format: CanLogs, types: Types, has_times: bool, *, is_long: bool = False) -> None:
        self._leaves_out_unknown = format.unknown == "pass"
        self._decoder, self._types = _decoder(format.messages), types
        self._waiting: dict[int, list[FrameColumns]] = {}
        self._long = LongColumns(format.messages, self._add_incomplete) if is_long else None
        self._incomplete: list[DeadLetter] = []
        self._has_times = has_times
        """Whether the log has time stamps; otherwise events have no time, and were recorded at the file's date."""

    def add(self, frames: FrameColumns) -> Iterator[Chunk]:
        """Take frames in the order of the log; gives chunks once there are `FRAMES_AT_ONCE` of one width."""
        found = frames if self._long is None else self._long.add(frames)
        if found is not None:
            width = found.data.shape[1]
            parts = self._waiting.setdefault(width, [])
            parts.append(found)
            if sum(len(part.at_us) for part in parts) >= FRAMES_AT_ONCE:
                yield from self._decode(FrameColumns.concat(self._waiting.pop(width)))
        yield self._take_incomplete()

    def flush(self) -> Iterator[Chunk]:
        """Yield what is left; long messages in progress are incomplete."""
        if self._long is not None:
            self._long.close()
        for parts in self._waiting.values():
            yield from self._decode(FrameColumns.concat(parts))
        yield self._take_incomplete()

    def _add_incomplete(self, incomplete: Incomplete) -> None:
        position, at_us, channel, identifier, data = cast("tuple[int, int, str | None, int, bytes]", incomplete.mark)
        line = _candump_line(at_us, channel, f"{identifier:08X}#{data.hex().upper()}")
        self._incomplete.append(DeadLetter.of(position + LONG_POSITION, INCOMPLETE + incomplete.reason, line))

    def _take_incomplete(self) -> list[DeadLetter]:
        letters, self._incomplete = self._incomplete, []
        return letters

    def _decode(self, frames: FrameColumns) -> Iterator[Chunk]:
        for part in self._decoder.decode(frames, are_whole=self._long is not None):
            if isinstance(part, PartFrames):
                continue  # it is read with the long messages
            if isinstance(part, RefusedFrames):
                yield from self._dead_letters(part, frames)
            elif mismatch := _find_mismatch(part.message, self._types):
                yield from self._dead_letters(RefusedFrames(mismatch, part.rows), frames)
            else:
                yield Columns(part.message.type_name, _with_positions(part, frames, self._has_times))

    def _dead_letters(self, refused: RefusedFrames, frames: FrameColumns) -> Iterator[list[DeadLetter]]:
        if refused.reason == UNKNOWN_ID and self._leaves_out_unknown:
            return
        for start in range(0, len(refused.rows), LETTERS_AT_ONCE):
            rows = refused.rows[start : start + LETTERS_AT_ONCE]
            yield list(_frames_as_dead_letters(refused.reason, frames.take(rows)))


@lru_cache(maxsize=1024)
def _find_mismatch(message: MessageLayout, types: Types) -> str | None:
    """Return how a message differs from the catalog's type of its name, for example after the DBC file was changed."""
    plan = types.plan(message.type_name)
    if plan is None:
        return f"unknown type {message.type_name}"
    stored = dict(zip(plan.schema.names, plan.schema.types, strict=True))
    for field in MessageColumns(message).fields:
        type_ = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        if stored.get(field.name) != type_:
            return f"{plan.name}: {field.name} is {type_}, in the catalog {stored.get(field.name, 'unknown')}"
    for signal in message.signals:
        labels = plan.vector.find(signal.label).type if signal.label is not None else None
        if isinstance(labels, ChoiceType) and (new := set(signal.labels) - set(labels.values)):
            return f"{plan.name}: {signal.label} has labels that are not in the catalog: {', '.join(sorted(new))}"
    always = {signal.attribute for signal in message.signals if not message.is_optional(signal)}
    always |= {"source", "priority", "pgn"} if message.j1939 else set()
    missing = sorted(set(plan.required) - always)
    lacking = "may be absent in these frames" if message.truncated else "not in the DBC file"
    return f"{plan.name}: {', '.join(missing)} is required, but {lacking}" if missing else None


def _with_positions(part: DecodedFrames, frames: FrameColumns, has_times: bool) -> pa.RecordBatch:
    """Return a batch with the positions of its events, and the times at which they were recorded."""
    columns = dict(zip(part.batch.schema.names, part.batch.columns, strict=True))
    added = {POSITION: pa.array(frames.position[part.rows], pa.int64()), RECORDED: columns["time"]}
    if not has_times:
        del columns["time"]
    columns |= added
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _candump_line(at_us: int, channel: str | None, frame: str) -> str:
    return f"({at_us // 1_000_000}.{at_us % 1_000_000:06}) {channel or '-'} {frame}"


def _frames_as_dead_letters(reason: str, frames: FrameColumns) -> Iterator[DeadLetter]:
    """Dead letters of frames, with their text as candump would write it."""
    data, width = frames.data.tobytes().hex().upper(), 2 * frames.data.shape[1]
    columns = frames.position, frames.at_us, frames.identifier, frames.channel, frames.length
    for row, values in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
        position, at_us, identifier, channel, length = values
        name = f"{identifier - EXTENDED:08X}" if identifier >= EXTENDED else f"{identifier:03X}"
        digits = data[row * width : row * width + 2 * length]
        line = _candump_line(at_us, frames.channels[channel], f"{name}{'#' if length <= 8 else '##0'}{digits}")
        yield DeadLetter.of(position, f"{reason} {name}" if reason == UNKNOWN_ID else reason, line)
