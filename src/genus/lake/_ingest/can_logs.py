"""CAN logs with a DBC file: frames become events of its messages' types, column by column.

A log of `candump -L` is cut into ranges of lines, so that a big one uses all cores; the other formats, and what is
gzipped, are read in one go. The position of an event is the byte at which its line begins, in the unpacked text of a
gzipped log; in the other formats the number of its frame. Damage that has no such place gets negative positions.
"""

import os
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

from genus.can._dbc import load_dbc
from genus.can._dbc.candump import candump_frames
from genus.can._dbc.columns import EXTENDED, ColumnDecoder, Decoded, Frames, MessageColumns, Refused, gathered, joined
from genus.can._dbc.database import read_layouts
from genus.can._dbc.decode import UNKNOWN_ID
from genus.can._dbc.layout import MessageLayout
from genus.can._dbc.log_file import LogFile, Logged, PassedOver
from genus.can._dbc.logs import FORMATS, format_of
from genus.can._dbc.text_logs import LineBlock, lines_between, lines_unpacked
from genus.errors import LakeError, RecordingError
from genus.lake._ingest.format import Chunk, Columns, DeadLetter, Split, Types
from genus.lake._tables.columns import POSITION, RECORDED
from genus.lake._tables.files import local_path, open_input
from genus.model import ChoiceType

FRAMES_AT_ONCE = 1 << 18
"""Decoded together: a DBC file of very many messages has few frames of each in fewer."""
LETTERS_AT_ONCE = 10_000
CANDUMP = "log"
_GZIP = b"\x1f\x8b"

Found = Frames | list[DeadLetter]


def types_of_dbc(path: str | os.PathLike[str]) -> tuple[type, ...]:
    """The event types of a DBC file and their kind, for a lake to register before it reads logs.

    DbcError says why there are none.
    """
    dbc = load_dbc(path)
    return (dbc.kind, *dbc.types.values())


class CanLogs(msgspec.Struct, frozen=True):
    """The format of CAN logs: candump, ASC, TRC, CSV or BLF, plain or gzipped, as a file's name ends."""

    messages: tuple[MessageLayout, ...]
    unknown: Literal["dead", "pass"] = "dead"
    """What becomes of frames of no message: dead letters, or nothing."""
    channel: str | None = None
    """Only frames of this channel: a DBC file describes one bus, a log may have several."""
    log: str | None = None
    """The ending of the log format, for files whose names do not tell."""

    @classmethod
    def of(
        cls,
        path: str | os.PathLike[str],
        *,
        unknown: Literal["dead", "pass"] = "dead",
        channel: str | None = None,
        log: str | None = None,
    ) -> "CanLogs":
        """Logs of the bus that a DBC file describes; the file is read now, and not again by tasks."""
        if unknown not in ("dead", "pass"):
            raise LakeError(f"unknown={unknown!r}: frames of no message are 'dead' letters, or 'pass'ed over")
        return cls(tuple(map(_bare, read_layouts(path).messages)), unknown, channel, log)

    @property
    def name(self) -> str:
        """What it is called on the command line and in messages."""
        return "can"

    def splits(self, path: str, size: int, target: int) -> list[Split]:
        """Ranges of a plain candump log; one split of anything else."""
        if self._format_of(path) != CANDUMP or _is_packed(path):
            return [Split(path, 0, size)]
        starts = range(0, max(size, 1), max(target, 1))
        return [Split(path, start, min(start + target, size)) for start in starts]

    def read(self, split: Split, types: Types) -> Iterator[Chunk]:
        """The events of a split, and what is none."""
        reading = _Reading(self, types)
        waiting: dict[int, list[Frames]] = {}
        for found in self._found(split):
            if isinstance(found, list):
                yield from [found] if found else []
                continue
            frames = self._wanted(found)
            same = waiting.setdefault(frames.data.shape[1], [])
            same.append(frames)
            if sum(len(each.at_us) for each in same) >= FRAMES_AT_ONCE:
                yield from reading.chunks(joined(waiting.pop(frames.data.shape[1])))
        for same in waiting.values():
            yield from reading.chunks(joined(same))

    def _format_of(self, path: str) -> str:
        format = self.log or format_of(Path(path))
        if format not in FORMATS:
            known = ", ".join(FORMATS)
            raise LakeError(f"{path}: no CAN log format ends in {format!r}; known: {known}; or give it with log=")
        return format

    def _wanted(self, frames: Frames) -> Frames:
        """The frames of the channel that is asked for."""
        if self.channel is None or frames.channels == (self.channel,):
            return frames
        number = frames.channels.index(self.channel) if self.channel in frames.channels else -1
        return frames.take(np.flatnonzero(frames.channel == number))

    def _found(self, split: Split) -> Iterator[Found]:
        format = self._format_of(split.path)
        if format == CANDUMP and not _is_packed(split.path):
            with open_input(split.path) as file:
                yield from _candump(lines_between(file, split.start, split.end))
        else:
            with _local(split.path) as path:
                yield from _unpacked(path) if format == CANDUMP else _one_by_one(path, format)


def _bare(message: MessageLayout) -> MessageLayout:
    """A layout without what only people read."""
    signals = tuple(msgspec.structs.replace(signal, comment=None) for signal in message.signals)
    return msgspec.structs.replace(message, signals=signals, comment=None)


# -- files -------------------------------------------------------------------------------------------------------------


def _is_packed(path: str) -> bool:
    with open_input(path) as file:
        return file.read(len(_GZIP)) == _GZIP


@contextmanager
def _local(path: str) -> Iterator[Path]:
    """The file on this machine: readers of whole files seek in it; one that lies elsewhere is copied for a while."""
    local = local_path(path)
    if local is not None:
        yield Path(local)
        return
    with tempfile.NamedTemporaryFile() as copy, open_input(path) as file:
        shutil.copyfileobj(file, copy)
        copy.flush()
        yield Path(copy.name)


class _Letters(PassedOver):
    """State: damage that readers of whole files note; what they note without a place is harmless."""

    def __init__(self) -> None:
        super().__init__()
        self._count = 0
        self._found: list[DeadLetter] = []

    def note(self, reason: str, place: str = "") -> None:
        """Make a dead letter of damage."""
        if place:
            self._count += 1
            self._found.append(DeadLetter.of(-self._count, reason, place))

    def taken(self) -> list[DeadLetter]:
        """Those that were noted since the last time."""
        found, self._found = self._found, []
        return found


def _candump(blocks: Iterator[LineBlock]) -> Iterator[Found]:
    for at, text in blocks:
        found = candump_frames(text, at)
        yield from found.frames
        if found.damaged:
            yield [DeadLetter.of(each.position, each.reason, each.line) for each in found.damaged]


def _unpacked(path: Path) -> Iterator[Found]:
    letters = _Letters()
    with closing(LogFile(path, letters)) as file:
        yield from _candump(lines_unpacked(file.chunks(), lambda: file.is_cut))
    yield letters.taken()


def _one_by_one(path: Path, format: str) -> Iterator[Found]:
    letters = _Letters()
    waiting: list[tuple[int, Logged]] = []
    try:
        with closing(LogFile(path, letters)) as file:
            for numbered in enumerate(FORMATS[format](file)):
                waiting.append(numbered)
                if len(waiting) == FRAMES_AT_ONCE:
                    yield gathered(waiting)
                    waiting = []
    except RecordingError as problem:
        letters.note(str(problem), "byte 0")
    if waiting:
        yield gathered(waiting)
    yield letters.taken()


# -- frames ------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4)
def _decoder(messages: tuple[MessageLayout, ...]) -> ColumnDecoder:
    """A task reads many splits with the same DBC file."""
    return ColumnDecoder(messages)


class _Reading:
    """Makes chunks of frames, for one catalog."""

    def __init__(self, format: CanLogs, types: Types) -> None:
        self._passes_unknown = format.unknown == "pass"
        self._types = types
        self._decoder = _decoder(format.messages)
        self._problems: dict[str, str | None] = {}

    def chunks(self, frames: Frames) -> Iterator[Chunk]:
        """The events of frames, and dead letters for those that are none."""
        for part in self._decoder.decode(frames):
            if isinstance(part, Refused):
                yield from self._refused(part, frames)
            elif problem := self._problem(part.message):
                yield from self._refused(Refused(problem, part.rows), frames)
            else:
                yield Columns(part.message.type_name, _placed(part, frames))

    def _refused(self, refused: Refused, frames: Frames) -> Iterator[list[DeadLetter]]:
        if refused.reason == UNKNOWN_ID and self._passes_unknown:
            return
        for start in range(0, len(refused.rows), LETTERS_AT_ONCE):
            yield list(_letters(refused.reason, frames.take(refused.rows[start : start + LETTERS_AT_ONCE])))

    def _problem(self, message: MessageLayout) -> str | None:
        """Why events of a message are none of the catalog's; None if all is well."""
        name = message.type_name
        if name not in self._problems:
            self._problems[name] = _mismatch(message, self._types)
        return self._problems[name]


def _mismatch(message: MessageLayout, types: Types) -> str | None:
    """Where a message and the catalog's type of its name differ: the DBC file may have changed since."""
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
    return f"{plan.name}: {', '.join(missing)} must be there, and is not in the DBC file" if missing else None


def _placed(part: Decoded, frames: Frames) -> pa.RecordBatch:
    """A batch with where its events were, and when they were seen."""
    position = pa.array(frames.position[part.rows], pa.int64())
    names = [*part.batch.schema.names, POSITION, RECORDED]
    return pa.RecordBatch.from_arrays([*part.batch.columns, position, part.batch.column("time")], names=names)


def _letters(reason: str, frames: Frames) -> Iterator[DeadLetter]:
    """Dead letters of frames, with what candump would have written of them."""
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
        sign, text = "#" if lengths[row] <= 8 else "##0", data[row * width : row * width + 2 * lengths[row]]
        seen = f"({at_us // 1_000_000}.{at_us % 1_000_000:06}) {channels[channel] or '-'} {name}{sign}{text}"
        yield DeadLetter.of(position, f"{reason} {name}" if reason == UNKNOWN_ID else reason, seen)
