"""The index of a file with blocks: its last block, or what the heads of the others say."""

import msgspec

from genus.bus._blocks import (
    EVENTS,
    INDEX,
    PLAIN,
    Block,
    Head,
    blocks_in,
    combine,
    encode,
    has_checks,
    last_block,
    pack_block,
)
from genus.bus._frames import Gap, Octets


class BlockIndex(msgspec.Struct, array_like=True):
    """What the blocks of a file have: written at its end, or collected from the heads of blocks."""

    offsets: list[int] = []
    """Where the blocks of events begin."""
    latest: list[int] = []
    """For each block the latest time up to its end."""
    start_us: int | None = None
    """The time of the first event."""
    events: int = 0
    types: dict[str, int] = {}
    """The number of events of each type, by name."""
    position: int = 0
    """Where the index is; elsewhere it is not valid, because bytes before it are missing."""

    def add(self, block: Block) -> None:
        """Add a block; one that has no events is left out."""
        head = block.head
        if head.kind != EVENTS or not head.events:
            return
        self.offsets.append(block.start)
        self.latest.append(head.latest_us)
        if self.start_us is None:
            self.start_us = head.first_us
        self.events += head.events
        for group in block.groups:
            self.types[group.name] = self.types.get(group.name, 0) + group.count


_decode_index = msgspec.msgpack.Decoder(BlockIndex).decode


def pack_index(index: BlockIndex, at: int) -> bytes:
    """Return the block of an index, the last one of a file, at a position."""
    index.position = at
    start = index.start_us or 0
    head = Head(INDEX, PLAIN, 0, 0, 0, 0, 0, 0, 0, index.events, start, index.latest[-1] if index.latest else start)
    return pack_block(head, encode([]), encode(index))


def read_index(data: Octets, block: Block) -> BlockIndex | None:
    """Return the index in a block; None if it has none, or a damaged one."""
    stored = data[block.payload_start : block.end]
    if block.head.kind != INDEX or not has_checks(stored, block):
        return None
    try:
        return _decode_index(combine(stored, block.head.key))
    except (msgspec.MsgspecError, ValueError):
        return None


def index_of(data: Octets) -> tuple[BlockIndex, int]:
    """The index of a file and the number of gaps between its blocks; from its end, or else from the heads of blocks."""
    last = last_block(data)
    found = read_index(data, last) if last is not None else None
    if last is not None and found is not None and found.position == last.start:
        return found, 0
    return walked_index(data)


def walked_index(data: Octets) -> tuple[BlockIndex, int]:
    """Return the index of a file and the number of gaps between its blocks, from the heads of blocks."""
    index, gaps = BlockIndex(), 0
    for each in blocks_in(data):
        if isinstance(each, Gap):
            gaps += 1
        else:
            index.add(each)
    return index, gaps
