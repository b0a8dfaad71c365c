"""Recordings as a source: splits at blocks, and blocks to packets.

A block states the units of its types, so a split needs nothing of those before it. The position of an event is that of
its block plus its place in it, and a damaged part has the position of its last byte, so that all differ.
"""

from collections.abc import Iterator, Mapping
from typing import IO, NamedTuple

import msgspec

from genus.bus._block_events import ReadBlock, events_in
from genus.bus._block_index import index_of
from genus.bus._blocks import Block, block_at
from genus.bus._codec import packet_of
from genus.bus._frames import Octets

RUN = 10_000
"""Events that are given together, about."""
PIECE = 1 << 22


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


def find_block_cuts(data: Octets, target: int) -> list[int]:
    """Positions of blocks to cut a file at, at least `target` bytes apart."""
    found: list[int] = []
    for offset in index_of(data)[0].offsets:
        if offset >= (found[-1] if found else 0) + target and block_at(data, offset) is not None:
            found.append(offset)
    return found


class BlockRun(NamedTuple):
    """Events of some blocks as packets, in order, with their positions, and the units of their types."""

    packets: list[bytes]
    positions: list[int]
    units: dict[str, Mapping[str, str]]


class DamagedPart(NamedTuple):
    """Bytes that cannot be read, and how many events are known to be lost by them."""

    start: int
    end: int
    reason: str


def read_blocks(data: Octets, start: int, end: int) -> Iterator[BlockRun | DamagedPart]:
    """The events of the blocks that begin in a range, and its damaged parts."""
    run = BlockRun([], [], {})
    for found in events_in(data, start):
        first = found.block.start if isinstance(found, ReadBlock) else found.start
        if first >= end > start:
            break
        if isinstance(found, ReadBlock):
            if len(run.packets) >= RUN or not _agrees(run, found.block):
                yield run
                run = BlockRun([], [], {})
            _add(run, found)
            if found.stored.lost:
                yield _damaged_block(found, len(data))
        elif (stop := min(found.end, end)) > first:
            what = "cut short" if found.end == len(data) else "damaged"
            yield DamagedPart(first, stop, f"{what}: {stop - first} bytes skipped")
    yield run


def _agrees(run: BlockRun, block: Block) -> bool:
    """Whether the types of a block have the units that they have in a run."""
    return all(run.units.get(group.name, group.units) == group.units for group in block.groups)


def _add(run: BlockRun, found: ReadBlock) -> None:
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


def _damaged_block(found: ReadBlock, size: int) -> DamagedPart:
    block, lost = found.block, found.stored.lost
    what = "cut short" if block.end > size else "damaged"
    return DamagedPart(block.start, min(block.end, size), f"{what}: {lost} of {block.head.events} events lost")
