"""CAN logs with a DBC file: frames become events of the types of its messages, in columns.

A plain log of `candump -L` is divided into ranges of lines, so that a large one uses all cores; gzip files and the
other formats are read by one task. The position of an event is the byte at which its line begins, in the decompressed
text of a gzip file; in the other formats it is the number of its frame. Damage without such a position has a negative
one.
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
import pyarrow as pa

from genus.can._dbc import Dbc
from genus.can._dbc.columns import ColumnDecoder, DecodedFrames, MessageColumns, RefusedFrames
from genus.can._dbc.layout import MessageLayout
from genus.can._dbc.message_types import UNKNOWN_ID
from genus.can._logs.candump import parse_candump
from genus.can._logs.frames import EXTENDED, FrameColumns, LoggedFrame
from genus.can._logs.log import FORMATS
from genus.can._logs.log_file import LogFile, SkippedRecords
from genus.can._logs.text_logs import LONGEST_LINE
from genus.errors import LakeError, RecordingError
from genus.lake._ingest.format import Chunk, Columns, DeadLetter, Split, Types
from genus.lake._ingest.text_lines import byte_ranges, read_blocks
from genus.lake._tables.columns import POSITION, RECORDED
from genus.lake._tables.files import local_path, open_input
from genus.model import ChoiceType

FRAMES_AT_ONCE = 1 << 18
"""How many frames are decoded together; with fewer, each of very many messages would have only a few frames."""
LETTERS_AT_ONCE = 10_000
CANDUMP = "log"
_GZIP = b"\x1f\x8b"


class CanLogs(msgspec.Struct, frozen=True):
    """The format of CAN logs: candump, ASC, TRC, CSV or BLF, plain or gzip."""

    messages: tuple[MessageLayout, ...]
    log: str
    """The log format, by the usual ending of its files: `log` (candump), `asc`, `blf`, `trc` or `csv`."""
    unknown: Literal["dead", "pass"] = "dead"
    """What happens to frames that belong to no message: they become dead letters, or are left out."""
    channel: str | None = None
    """If given, only frames of this channel are read: a DBC file describes one bus, a log may have several."""

    @classmethod
    def of(
        cls, dbc: Dbc, log: str, *, unknown: Literal["dead", "pass"] = "dead", channel: str | None = None
    ) -> "CanLogs":
        """Logs in one log format of the bus that a DBC file describes; tasks get its messages, not the file."""
        if log not in FORMATS:
            raise LakeError(f"log={log!r} is not a CAN log format; known: {', '.join(FORMATS)}")
        if unknown not in ("dead", "pass"):
            raise LakeError(f"unknown={unknown!r}; write 'dead' to get dead letters, or 'pass' to leave frames out")
        return cls(tuple(map(_without_comments, dbc.messages)), log, unknown, channel)

    def splits(self, path: str, size: int, target: int) -> list[Split]:
        """Ranges of a plain candump log; one split of any other file."""
        if self.log != CANDUMP:
            return [Split(path, 0, size)]
        with open_input(path) as file:
            gzipped = file.read(len(_GZIP)) == _GZIP
        return byte_ranges(path, size, target, gzipped)

    def read(self, split: Split, types: Types) -> Iterator[Chunk]:
        """The events of a split, and dead letters for everything that is not an event."""
        chunks = _ChunkReader(self, types)
        for found in _read_candump(split) if self.log == CANDUMP else _read_frames(split, self.log):
            if isinstance(found, FrameColumns):
                yield from chunks.add(self._of_channel(found))
            elif found:
                yield found
        yield from chunks.flush()

    def _of_channel(self, frames: FrameColumns) -> FrameColumns:
        if self.channel is None or frames.channels == (self.channel,):
            return frames
        number = frames.channels.index(self.channel) if self.channel in frames.channels else -1
        return frames.take(np.flatnonzero(frames.channel == number))


def _without_comments(message: MessageLayout) -> MessageLayout:
    signals = tuple(msgspec.structs.replace(signal, comment=None) for signal in message.signals)
    return msgspec.structs.replace(message, signals=signals, comment=None)


# -- files to frames ---------------------------------------------------------------------------------------------------


def _read_candump(split: Split) -> Iterator[FrameColumns | list[DeadLetter]]:
    for block in read_blocks(split, LONGEST_LINE):
        if isinstance(block, list):
            yield block
            continue
        found = parse_candump(block.text, block.at)
        yield from found.frames
        yield [DeadLetter.of(*damaged) for damaged in found.damaged]


def _read_frames(split: Split, log: str) -> Iterator[FrameColumns | list[DeadLetter]]:
    """The frames of a file that is read frame by frame, `FRAMES_AT_ONCE` together."""
    skipped = _SkippedAsDead()
    frames: list[tuple[int, LoggedFrame]] = []
    try:
        with _local_file(split.path) as path, closing(LogFile(path, skipped)) as file:
            for numbered in enumerate(FORMATS[log](file)):
                frames.append(numbered)
                if len(frames) == FRAMES_AT_ONCE:
                    yield FrameColumns.of(frames)
                    frames = []
    except RecordingError as problem:
        skipped.note(str(problem), "byte 0")
    if frames:
        yield FrameColumns.of(frames)
    yield skipped.letters


class _SkippedAsDead(SkippedRecords):
    """State: dead letters for damaged records; harmless ones have no location and are left out."""

    def __init__(self) -> None:
        super().__init__()
        self.letters: list[DeadLetter] = []

    def note(self, reason: str, location: str = "") -> None:
        """Add a dead letter if a location is given."""
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
    """The decoder of a DBC file, which a task uses for many splits."""
    return ColumnDecoder(messages)


class _ChunkReader:
    """State: frames that wait until enough can be decoded together, by the width of their data."""

    def __init__(self, format: CanLogs, types: Types) -> None:
        self._leaves_out_unknown = format.unknown == "pass"
        self._types = types
        self._decoder = _decoder(format.messages)
        self._mismatches: dict[str, str | None] = {}
        self._waiting: dict[int, list[FrameColumns]] = {}

    def add(self, frames: FrameColumns) -> Iterator[Chunk]:
        """Take frames; gives chunks once there are `FRAMES_AT_ONCE` of one width."""
        width = frames.data.shape[1]
        parts = self._waiting.setdefault(width, [])
        parts.append(frames)
        if sum(len(part.at_us) for part in parts) >= FRAMES_AT_ONCE:
            yield from self._decode(FrameColumns.concat(self._waiting.pop(width)))

    def flush(self) -> Iterator[Chunk]:
        """The chunks of the frames that are left."""
        for parts in self._waiting.values():
            yield from self._decode(FrameColumns.concat(parts))

    def _decode(self, frames: FrameColumns) -> Iterator[Chunk]:
        for part in self._decoder.decode(frames):
            if isinstance(part, RefusedFrames):
                yield from self._dead_letters(part, frames)
            elif mismatch := self._mismatch(part.message):
                yield from self._dead_letters(RefusedFrames(mismatch, part.rows), frames)
            else:
                yield Columns(part.message.type_name, _with_positions(part, frames))

    def _dead_letters(self, refused: RefusedFrames, frames: FrameColumns) -> Iterator[list[DeadLetter]]:
        if refused.reason == UNKNOWN_ID and self._leaves_out_unknown:
            return
        for start in range(0, len(refused.rows), LETTERS_AT_ONCE):
            rows = refused.rows[start : start + LETTERS_AT_ONCE]
            yield list(_frames_as_dead_letters(refused.reason, frames.take(rows)))

    def _mismatch(self, message: MessageLayout) -> str | None:
        name = message.type_name
        if name not in self._mismatches:
            self._mismatches[name] = _find_mismatch(message, self._types)
        return self._mismatches[name]


def _find_mismatch(message: MessageLayout, types: Types) -> str | None:
    """How a message differs from the catalog's type of its name, for example after the DBC file was changed."""
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
    always = {signal.attribute for signal in message.signals if signal.multiplexer is None}
    missing = sorted(set(plan.required) - always)
    return f"{plan.name}: {', '.join(missing)} is required, but not in the DBC file" if missing else None


def _with_positions(part: DecodedFrames, frames: FrameColumns) -> pa.RecordBatch:
    """A batch with the positions of its events, and the times at which they were recorded."""
    position = pa.array(frames.position[part.rows], pa.int64())
    names = [*part.batch.schema.names, POSITION, RECORDED]
    return pa.RecordBatch.from_arrays([*part.batch.columns, position, part.batch.column("time")], names=names)


def _frames_as_dead_letters(reason: str, frames: FrameColumns) -> Iterator[DeadLetter]:
    """Dead letters of frames, with their text as candump would write it."""
    data, lengths, channels = frames.data.tobytes().hex().upper(), frames.length.tolist(), frames.channels
    width = 2 * frames.data.shape[1]
    rows = zip(
        frames.position.tolist(),
        frames.at_us.tolist(),
        frames.identifier.tolist(),
        frames.channel.tolist(),
        strict=True,
    )
    for row, (position, at_us, identifier, channel) in enumerate(rows):
        name = f"{identifier - EXTENDED:08X}" if identifier >= EXTENDED else f"{identifier:03X}"
        sign, digits = "#" if lengths[row] <= 8 else "##0", data[row * width : row * width + 2 * lengths[row]]
        line = f"({at_us // 1_000_000}.{at_us % 1_000_000:06}) {channels[channel] or '-'} {name}{sign}{digits}"
        yield DeadLetter.of(position, f"{reason} {name}" if reason == UNKNOWN_ID else reason, line)
