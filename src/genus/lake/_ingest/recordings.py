"""Recordings as a source: the files that `genus.bus` writes, and older ones with frames.

Blocks and frames are found by the readers of `genus.bus`. A file of blocks is cut at them: a block states the units of
its types, so a split needs nothing of those before it. An older file is one split, as a packet in it may contain what
looks like frames, and units are stated once. The position of an event is that of its block plus its place in it, or
that of its frame; a damaged part between blocks has the position of its last byte, so that all differ.

Values are checked as the bus does when it decodes, and more strictly in two cases, because a catalog has no defaults
and a table no unknown columns: an attribute that the type does not have, and a required attribute that is missing, make
a dead letter.
"""

import io
import mmap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from itertools import pairwise
from typing import IO, NamedTuple

import msgspec

from genus.bus._attribute_map import UNITS_OF
from genus.bus._block_events import ReadBlock, events_in
from genus.bus._block_index import index_of
from genus.bus._blocks import HEADER, Block, block_at
from genus.bus._codec import packet_of
from genus.bus._formats import BLOCKS, find_format
from genus.bus._frames import Frame, FrameFormat, Octets, frames_in
from genus.lake._ingest.format import RAW_LIMIT, Chunk, DeadLetter, Split, Types
from genus.lake._ingest.packets import PacketReader
from genus.lake._tables.files import open_input

RUN = 10_000
"""Events that are given together, about."""
PIECE = 1 << 22

_UNITS = UNITS_OF.encode()
_open_units = msgspec.msgpack.Decoder(tuple[str, int, dict[str, str]]).decode


class Recordings(msgspec.Struct, frozen=True):
    """The format of recordings."""

    def splits(self, path: str, size: int, target: int) -> list[Split]:
        """Cut a file at blocks; an older file is not cut."""
        if size <= target:
            return [Split(path, 0, size)]
        with open_input(path) as file, _whole(file) as data:
            cuts = find_block_cuts(data, target) if find_format(data) is BLOCKS else []
        return [Split(path, start, end) for start, end in pairwise([0, *cuts, size])]

    def read(self, split: Split, types: Types) -> Iterator[Chunk]:
        reader = _reader_of(types)
        with open_input(split.path) as file, _whole(file) as data:
            form = find_format(data)
            if form is None:
                reason = f"not a recording: it does not begin with {HEADER!r}"
                yield [DeadLetter.of(0, reason, data[:RAW_LIMIT])]
                return
            blocks = read_blocks(data, split.start, split.end)
            for found in read_frames(data, form) if isinstance(form, FrameFormat) else blocks:
                if isinstance(found, DamagedPart):
                    raw = data[found.start : min(found.end, found.start + RAW_LIMIT)]
                    yield [DeadLetter.of(found.position, found.reason, raw)]
                else:
                    yield from reader.read(*found)


@lru_cache(maxsize=4)
def _reader_of(types: Types) -> PacketReader:
    return PacketReader(types)


# -- bytes of files ----------------------------------------------------------------------------------------------------


@contextmanager
def _whole(file: IO[bytes]) -> Iterator[Octets]:
    """All bytes of a file, mapped to memory if it is a local one."""
    size, descriptor = file.seek(0, io.SEEK_END), _descriptor(file)
    if size == 0:
        yield b""
    elif descriptor is None:
        yield FileBytes(file, size)
    else:
        with mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) as data:
            yield data


def _descriptor(file: IO[bytes]) -> int | None:
    """The descriptor of a local file; None for one of another file system."""
    try:
        return file.fileno()
    except (OSError, AttributeError):
        return None


class FileBytes:
    """The bytes of a file that is not mapped to memory, such as one of another file system, as they are asked for."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file, self._size = file, size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, part: slice) -> bytes:
        start, end, _ = part.indices(self._size)
        self._file.seek(start)
        return self._file.read(max(end - start, 0))

    def find(self, what: bytes, start: int = 0, end: int | None = None) -> int:
        """The first position of some bytes in a range; -1 if they are not there."""
        last = self._size if end is None else min(end, self._size)
        for at in range(start, last, PIECE):
            found = self[at : min(at + PIECE + len(what) - 1, last)].find(what)
            if found != -1:
                return at + found
        return -1

    def rfind(self, what: bytes) -> int:
        """The last position of some bytes; -1 if they are not there."""
        end = self._size
        while end > 0:
            start = max(end - PIECE, 0)
            found = self[start : end + len(what) - 1].rfind(what)
            if found != -1:
                return start + found
            end = start
        return -1


# -- blocks and frames -------------------------------------------------------------------------------------------------


class PacketRun(NamedTuple):
    """Events as packets, in order, with their positions, and the units of their types."""

    packets: list[bytes]
    positions: list[int]
    units: dict[str, Mapping[str, str]]


class DamagedPart(NamedTuple):
    """Bytes that cannot be read, and the position of their dead letter."""

    start: int
    end: int
    position: int
    reason: str


def read_frames(data: Octets, form: FrameFormat) -> Iterator[PacketRun | DamagedPart]:
    """The events of the frames of an older file, and its damaged parts; units hold from where they are stated."""
    run = PacketRun([], [], {})
    for found in frames_in(data, form):
        if isinstance(found, Frame):
            stated = read_stated_units(found.packet)
            if stated is not None or len(run.packets) >= RUN:
                yield run
                run = PacketRun([], [], {**run.units, **(stated or {})})
            if stated is None:
                run.packets.append(found.packet)
                run.positions.append(found.start)
        elif found.end > found.start:
            reason = _damage(found.end == len(data), f"{found.end - found.start} bytes skipped")
            yield DamagedPart(found.start, found.end, found.start, reason)
    yield run


def read_stated_units(packet: bytes) -> dict[str, Mapping[str, str]] | None:
    """The units of a type in a packet that states them; None for every other packet."""
    if packet.find(_UNITS, 2, 3 + len(_UNITS)) == -1:
        return None
    try:
        name, _, units = _open_units(packet)
    except Exception:  # msgspec's errors, UnicodeDecodeError
        return None
    return {name.removeprefix(UNITS_OF): units}


def find_block_cuts(data: Octets, target: int) -> list[int]:
    """Positions of blocks to cut a file at, at least `target` bytes apart."""
    found: list[int] = []
    for offset in index_of(data)[0].offsets:
        if offset >= (found[-1] if found else 0) + target and block_at(data, offset) is not None:
            found.append(offset)
    return found


def read_blocks(data: Octets, start: int, end: int) -> Iterator[PacketRun | DamagedPart]:
    """The events of the blocks that begin in a range, and its damaged parts."""
    run = PacketRun([], [], {})
    for found in events_in(data, start):
        first = found.block.start if isinstance(found, ReadBlock) else found.start
        if first >= end > start:
            break
        if isinstance(found, ReadBlock):
            block, lost = found.block, found.stored.lost
            if len(run.packets) >= RUN or not _agrees(run, block):
                yield run
                run = PacketRun([], [], {})
            _add(run, found)
            if lost:
                stop = min(block.end, len(data))
                reason = _damage(block.end > len(data), f"{lost} of {block.head.events} events lost")
                yield DamagedPart(first, stop, stop - 1, reason)
        elif (stop := min(found.end, end)) > first:
            yield DamagedPart(first, stop, stop - 1, _damage(found.end == len(data), f"{stop - first} bytes skipped"))
    yield run


def _damage(is_at_end: bool, loss: str) -> str:
    return f"{'cut short' if is_at_end else 'damaged'}: {loss}"


def _agrees(run: PacketRun, block: Block) -> bool:
    """Whether the types of a block have the units that they have in a run."""
    return all(run.units.get(group.name, group.units) == group.units for group in block.groups)


def _add(run: PacketRun, found: ReadBlock) -> None:
    block, stored = found
    events: list[tuple[int, bytes]] = []
    for number, each in enumerate(stored.groups):
        run.units[each.group.name] = each.group.units
        places = stored.places(number)
        for row, body in zip(each.rows, each.take_maps(), strict=True):
            place = places[row]
            events.append((place, packet_of(each.group.name, stored.times[place], msgspec.Raw(body))))
    events.sort()
    run.packets.extend(packet for _, packet in events)
    run.positions.extend(block.start + place for place, _ in events)
