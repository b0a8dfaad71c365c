"""The index of a recording: where to begin reading it for a time, and what it has, without decoding its events.

The index of a file with blocks is read from its end, or from the heads of its blocks if it was not closed. In an older
file, one pass over the frames notes a place every so many of them, and the units that were stated before; of a packet
only the type's name and the time of recording are read. Events stay in the order of the file: where the clock was set
back, an event counts as of the latest time so far, so that times only grow, and a time is found by bisection.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from genus.bus._attribute_map import UNITS_OF
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
from genus.bus._codec import FIRST_US, LAST_US
from genus.bus._frames import Frame, FrameFormat, Gap, Octets, frames_in


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


FRAMES_PER_PLACE, BYTES_PER_PLACE = 256, 1 << 18
"""A place is noted after so many frames or bytes: what is read again at most to find a time."""
REPORT_BYTES = 1 << 20
"""How often progress is told."""

_peek = msgspec.msgpack.Decoder(tuple[str, int, msgspec.Raw]).decode


class Place(NamedTuple):
    """A position in a file at which a frame begins or damage, and the latest time before it."""

    offset: int
    latest_us: int


class StatedUnits(NamedTuple):
    """A packet that states the units of a type, and its position."""

    offset: int
    type: str
    packet: bytes


class RecordingIndex(msgspec.Struct, frozen=True):
    """What a recording has, and where its times are; made by `Recording.index`.

    Times are microseconds since 1970. Where times go back in the file, an event counts as of the latest time so far.
    """

    start_us: int | None
    """The time of the first event; None if there are no events."""
    end_us: int | None
    """The latest time."""
    events: int
    """The number of events, also of those whose types are not known here."""
    types: dict[str, int]
    """The number of events of each type, by name."""
    damaged: int
    """Parts of the file that are known to be damaged; in blocks that were not read there may be more."""
    size: int
    """Bytes of the file that were read; what was appended since then is not in the index."""
    places: tuple[Place, ...] = ()
    units: tuple[StatedUnits, ...] = ()

    def find(self, time_us: int) -> Place:
        """Return the last noted place with no event of the time or later before it."""
        found = bisect_left(self.places, time_us, key=lambda place: place.latest_us)
        return self.places[found - 1] if found else Place(0, FIRST_US - 1)

    def units_before(self, offset: int) -> list[bytes]:
        """Return the packets with the units that are in effect at a position."""
        return list({each.type: each.packet for each in self.units if each.offset < offset}.values())


def index_blocks(data: Octets, progress: Callable[[int, int], object] | None = None) -> RecordingIndex:
    """Return the index of a file with blocks; `progress` is called with its size twice."""
    found, gaps = index_of(data)
    if progress is not None:
        progress(len(data), len(data))
    latest = [FIRST_US - 1, *found.latest]
    return RecordingIndex(
        start_us=found.start_us,
        end_us=latest[-1] if found.offsets else None,
        events=found.events,
        types=found.types,
        damaged=gaps,
        size=len(data),
        places=tuple(map(Place, found.offsets, latest)),
    )


class IndexBuilder:
    """State: the index of what was read of a file so far."""

    def __init__(self) -> None:
        self.damaged = 0
        self._types: Counter[str] = Counter()
        self._places: list[Place] = []
        self._units: list[StatedUnits] = []
        self._start_us: int | None = None
        self._latest_us = FIRST_US - 1

    def read(
        self,
        data: Octets,
        form: FrameFormat,
        progress: Callable[[int, int], object] | None = None,
    ) -> RecordingIndex:
        """Return the index of a file; `progress` is called with the bytes that were read and the total."""
        size, reported = len(data), 0
        end_frames, end_bytes = 0, 0
        for frames, found in enumerate(frames_in(data, form)):
            if frames >= end_frames or found.start >= end_bytes:
                self._places.append(Place(found.start, self._latest_us))
                end_frames, end_bytes = frames + FRAMES_PER_PLACE, found.start + BYTES_PER_PLACE
                if progress is not None and found.start - reported >= REPORT_BYTES:
                    reported = found.start
                    progress(reported, size)
            if isinstance(found, Frame):
                self._add(found)
            else:
                self.damaged += 1
        if progress is not None:
            progress(size, size)
        return self._finish(size)

    def _add(self, frame: Frame) -> None:
        name, at_us = peek(frame.packet)
        if name is None:
            return
        if name.startswith(UNITS_OF):
            self._units.append(StatedUnits(frame.start, name.removeprefix(UNITS_OF), frame.packet))
            return
        self._types[name] += 1
        if at_us > self._latest_us:
            self._latest_us = at_us
        if self._start_us is None:
            self._start_us = at_us

    def _finish(self, size: int) -> RecordingIndex:
        return RecordingIndex(
            start_us=self._start_us,
            end_us=None if self._start_us is None else self._latest_us,
            events=self._types.total(),
            types=dict(self._types),
            damaged=self.damaged,
            size=size,
            places=tuple(self._places),
            units=tuple(self._units),
        )


def peek(packet: bytes) -> tuple[str | None, int]:
    """Return the name of a packet's type and its time of recording; None as the name if it is no packet.

    >>> from genus.bus._codec import encode_event
    >>> from genus.model import Event
    >>> class Tide(Event):
    ...     level: float
    >>> peek(encode_event(Tide(level=2.5), 7)), peek(b"nonsense")
    (('Tide', 7), (None, 0))
    """
    try:
        name, at_us, _ = _peek(packet)
    except (msgspec.MsgspecError, ValueError):
        return None, 0
    return (name, at_us) if FIRST_US <= at_us <= LAST_US else (None, 0)


def frames_from(data: Octets, form: FrameFormat, place: Place, time_us: int) -> Iterator[Frame | Gap]:
    """The frames and gaps of a file from the first event of a time or later on; units that are stated before it too."""
    found = frames_in(data, form, place.offset)
    for each in found:
        name, at_us = peek(each.packet) if isinstance(each, Frame) else (None, 0)
        states_units = name is not None and name.startswith(UNITS_OF)
        is_reached = name is not None and not states_units and at_us >= time_us
        if is_reached or states_units:
            yield each
        if is_reached:
            break
    yield from found
