"""`RecordingWriter`: events to the blocks of a recording.

Events wait until a block is full or the writer is flushed; then the block is written whole, by one call. So a process
that is killed leaves whole blocks. A block that could not be written whole, because the disk is full, is taken back.
"""

import mmap
import os
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import compress as select
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn, TypeAlias

import msgspec

from genus.bus._attribute_map import units_of
from genus.bus._blocks import (
    BLOCKS,
    EARLIEST_US,
    HEADER,
    MAX_PAYLOAD,
    MAX_SIZE,
    MAX_TYPES,
    PLAIN,
    ZSTD,
    EventGroup,
    Head,
    block_at,
    bundle,
    find_format,
    load_zstd,
    pack_events,
)
from genus.bus._codec import FIRST_US, LAST_US, encode_into, encode_map
from genus.bus._frames import FrameFormat
from genus.bus._recording_index import BlockIndex, index_of, pack_index
from genus.bus._router import log
from genus.catalog.internal import state_type
from genus.errors import EventError, RecordingError
from genus.model import Event, attributes, name_of
from genus.model.internal import FindInvalid, invalid_finders, unread_types, unread_values
from genus.model.types import BytesType, OpaqueType

BLOCK_EVENTS, BLOCK_BYTES = 4096, 1 << 18
"""A block is written with so many events, or about so many bytes, at the latest."""
FIRST_EVENTS = 256
"""Events in the first block; the next ones have as many as make `BLOCK_BYTES`."""

Compress: TypeAlias = Literal["zstd"] | None


class Encoded(NamedTuple):
    """An event that was encoded when it was given, because its values could change, or be large."""

    cls: type
    map: msgspec.Raw


Item: TypeAlias = Event | Encoded
"""An event that is to be written."""


@dataclass(slots=True)
class Written:
    """State: how many events are in files, and how many could not be written."""

    events: int = 0
    lost: int = 0


class RecordingWriter:
    """Writes events to a new recording, or to the end of an existing one with `append`.

    Args:
        path: The file, which must not exist unless `append` is given.
        append: Continue a file that exists; not one of an older format.
        compress: `"zstd"` compresses blocks. Damage then costs a block, not the events that it hits.

    Raises:
        RecordingError: The file cannot be written; a file that exists is not overwritten.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        append: bool = False,
        compress: Compress = None,
        counts: Written | None = None,
    ) -> None:
        self.path = Path(path)
        self._counts = counts or Written()
        continues = append and self.path.exists() and self.path.stat().st_size > 0
        self._packer = continue_file(self.path, compress) if continues else BlockPacker(compress)
        try:
            self._file = self.path.open("ab" if append else "xb", buffering=0)
        except FileExistsError:
            raise RecordingError(
                f"{self.path} exists; choose another name, or append (append=True, --append)"
            ) from None
        except OSError as problem:
            raise RecordingError(f"cannot write {self.path}: {problem.strerror}") from None
        self._lock = threading.Lock()
        self._waiting: list[Any] = []
        """Times and events in turn: a list of pairs would take much longer, because of Python's garbage collector."""
        self._add: Callable[[tuple[int, Item]], None] = self._waiting.extend
        self._limit = 2 * FIRST_EVENTS
        self._bytes = 0
        """Of the events that are encoded."""
        self._finders: dict[type, FindInvalid] = {}
        """By class: what finds an invalid value, for those whose events are encoded when they are written."""
        self._size = self._file.tell()
        if self._size == 0:
            with self._as_recording_errors():
                self._write_out(HEADER)

    @property
    def written(self) -> int:
        """How many events are in the file and can be read back; those that wait for the next flush are not."""
        return self._counts.events

    @property
    def lost(self) -> int:
        """How many events could not be written."""
        return self._counts.lost

    @property
    def waiting(self) -> int:
        """How many events wait for the next flush."""
        return len(self._waiting) // 2

    def write(self, event: Event, at_us: int) -> None:
        """Add an event with its time of recording in microseconds since 1970.

        EventError names the value with which the event could not be read back; nothing is written then.
        """
        try:
            is_valid = self._finders[event.__class__](event) is None
        except KeyError:
            self._write_encoded(event, at_us)
            return
        if not is_valid or not FIRST_US <= at_us <= LAST_US:
            encode_map(event, at_us)  # which raises the error
        if unread_types and unread_values(event):
            self._write_encoded(event, at_us)
            return
        self._add((at_us, event))
        if len(self._waiting) >= self._limit:
            self.flush()

    def _write_encoded(self, event: Event, at_us: int) -> None:
        """Encode an event at once; the next ones of its class when they are written, if that gives the same."""
        cls = event.__class__
        encoded = encode_map(event, at_us)
        if (size := len(encoded)) > MAX_SIZE:
            raise EventError(f"an event takes {size:,} bytes, but a recording holds at most {MAX_SIZE:,} of one event")
        if not any(isinstance(each.type, OpaqueType | BytesType) for each in attributes(cls)):
            self._finders[cls] = invalid_finders[cls]
        self._add((at_us, Encoded(cls, msgspec.Raw(encoded))))
        self._bytes += size
        if self._bytes >= BLOCK_BYTES or len(self._waiting) >= self._limit:
            self.flush()

    def flush(self) -> None:
        """Write the events that wait. If that fails, they are counted as lost, and RecordingError says why."""
        if self._waiting:
            with self._lock:
                self._flush()

    def _flush(self) -> None:
        taken = self._waiting[:]
        del self._waiting[: len(taken)]  # others may have been added meanwhile
        self._bytes = 0
        before = self._counts.events
        try:
            with self._as_recording_errors():
                self._write_events(taken[::2], taken[1::2])
        except (msgspec.MsgspecError, ArithmeticError, TypeError, ValueError, struct.error) as problem:
            raise RecordingError(f"cannot encode events for {self.path}: {problem}") from problem
        finally:
            self._counts.lost += len(taken) // 2 - (self._counts.events - before)

    def _write_events(self, times: Sequence[int], events: Sequence[Item]) -> None:
        if not events:
            return
        grouped = group_by_class(events)
        data = b"" if grouped is None else self._packer.pack(times, grouped)
        if len(data) > MAX_PAYLOAD and len(events) == 1:
            log().error("%s: an event of %s bytes is too long and was not written", self.path, f"{len(data):,}")
            return
        if grouped is None or (len(data) > MAX_SIZE and len(events) > 1):
            half = len(events) // 2
            self._write_events(times[:half], events[:half])
            self._write_events(times[half:], events[half:])
            return
        self._write_out(data)
        self._limit = 2 * max(1, min(BLOCK_EVENTS, len(events) * BLOCK_BYTES // len(data)))
        self._packer.wrote(data, self._size)
        self._counts.events += len(events)

    def _write_out(self, data: bytes) -> None:
        """Write some bytes, all or none."""
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError:
            with suppress(OSError):
                self._file.truncate(self._size)
            raise
        self._size += len(data)

    def close(self) -> None:
        """Write what waits and the index, flush to the disk and close the file."""
        with self._lock:
            self._add = self._refuse
            try:
                self._flush()
                if not self._file.closed:
                    self._finish()
            finally:
                self._file.close()

    def _refuse(self, _: object) -> NoReturn:
        raise RecordingError(f"{self.path} is closed; nothing can be written to it")

    def _finish(self) -> None:
        with suppress(OSError):  # on a full disk: the heads of blocks say what the index would
            self._write_out(self._packer.index(self._size))
        with self._as_recording_errors():
            os.fsync(self._file.fileno())

    @contextmanager
    def _as_recording_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as problem:
            raise RecordingError(f"cannot write {self.path}: {problem.strerror or problem}") from problem

    def __enter__(self) -> "RecordingWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# -- formats -----------------------------------------------------------------------------------------------------------


class Grouped(NamedTuple):
    """Events by class, and for each event in order the number of its class."""

    kinds: bytes
    groups: dict[type, Sequence[Any]]


FEW = 8
"""So many classes are told apart by one pass over the events for each, which is quicker than a pass for all."""
_IS = [bytes(octet == number for octet in range(256)) for number in range(FEW)]


def group_by_class(events: Sequence[Item]) -> Grouped | None:
    """Events by class; None if they are of too many."""
    found = dict.fromkeys(map(type, events))
    if Encoded in found:
        classes = [event.cls if isinstance(event, Encoded) else type(event) for event in events]
        return _group([event.map if isinstance(event, Encoded) else event for event in events], classes)
    if len(found) == 1:
        return Grouped(bytes(len(events)), {next(iter(found)): events})
    return _group(events, list(map(type, events)))


def _group(events: Sequence[Any], classes: Sequence[type]) -> Grouped | None:
    numbers = {cls: number for number, cls in enumerate(dict.fromkeys(classes))}
    if len(numbers) > MAX_TYPES:
        return None
    kinds = bytes(map(numbers.__getitem__, classes))
    if len(numbers) <= FEW:
        return Grouped(kinds, {cls: list(select(events, kinds.translate(_IS[at]))) for cls, at in numbers.items()})
    groups: dict[type, list[Any]] = {cls: [] for cls in numbers}
    for cls, event in zip(classes, events, strict=True):
        groups[cls].append(event)
    return Grouped(kinds, dict(groups))


class BlockPacker:
    """Packs events to blocks."""

    def __init__(self, compress: Compress = None, index: BlockIndex | None = None, last: Head | None = None) -> None:
        if compress not in (None, "zstd"):
            raise RecordingError(f"compress={compress!r}; write 'zstd', or None for files that are not compressed")
        if compress:
            load_zstd()  # so that it is missed now, and not when events wait
        self._packing = ZSTD if compress else PLAIN
        self._index = index or BlockIndex()
        self._statements: dict[type, bytes] = {}
        self._stated: set[bytes] = set()
        self._before, self._latest_us = (
            (0, EARLIEST_US) if last is None else (last.before + last.events, last.latest_us)
        )

    def pack(self, times: Sequence[int], events: Grouped) -> bytes:
        """Return the block of some events."""
        groups = [
            EventGroup(name_of(cls), units_of(cls), len(own), *bundle(encode_into, own), self._statement(cls))
            for cls, own in events.groups.items()
        ]
        return pack_events(times, events.kinds, groups, self._before, self._latest_us, self._packing)

    def _statement(self, cls: type) -> bytes:
        """Return the statement of a class, unless a block before has it."""
        if cls not in self._statements:
            self._statements[cls] = state_type(cls) or b""
        text = self._statements[cls]
        return b"" if text in self._stated else text

    def wrote(self, data: bytes, end: int) -> None:
        """Add the block to the index."""
        block = block_at(data, 0)
        assert block is not None, "what was packed can be read"
        self._stated.update(group.statement for group in block.groups)
        self._index.add(block._replace(start=end - len(data)))
        self._before, self._latest_us = block.head.before + block.head.events, block.head.latest_us

    def index(self, at: int) -> bytes:
        return pack_index(self._index, at)


def continue_file(path: Path, compress: Compress) -> BlockPacker:
    """Return what continues a file; RecordingError if it is no recording, or one of an older format."""
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            form = find_format(data)
            if isinstance(form, FrameFormat):
                raise RecordingError(f"{path} has an older format, which is only read; record to a new file")
            if form is BLOCKS:
                index, _ = index_of(data)
                last = block_at(data, index.offsets[-1]) if index.offsets else None
                return BlockPacker(compress, index, None if last is None else last.head)
    except OSError as problem:
        if isinstance(problem, RecordingError):
            raise
        raise RecordingError(f"cannot read {path}: {problem.strerror}") from None
    raise RecordingError(f"{path} is not a recording: it does not begin with {HEADER!r}")
