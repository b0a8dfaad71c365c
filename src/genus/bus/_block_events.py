"""The events of blocks: those of whole blocks, and of damaged ones what is left."""

import struct
import zlib
from collections.abc import Collection, Container, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, compress
from typing import NamedTuple

import msgspec

from genus.bus._blocks import (
    ARRAY,
    BUNDLE,
    CHECK,
    INDEX,
    MAX_PAYLOAD,
    PAGE,
    PLAIN,
    Block,
    EventGroup,
    Group,
    Head,
    blocks_in,
    bundle,
    combine,
    count_pages,
    encode_raw_into,
    has_checks,
    load_zstd,
    next_block,
    pack_events,
    put_right,
)
from genus.bus._frames import Gap, Octets
from genus.bus._recording_index import read_index

_decode_bundle = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode


class StoredGroup(NamedTuple):
    """Events of one type as they are stored."""

    group: Group
    array: bytes
    """The msgpack array of all bundles."""
    ends: Sequence[int]
    """Where each of the bundles ends, after the first bytes of the array."""
    intact: Sequence[int]
    """The numbers of the bundles that are intact."""

    @property
    def is_whole(self) -> bool:
        """Whether all events are intact."""
        return len(self.intact) == len(self.ends)

    @property
    def rows(self) -> Sequence[int]:
        """The events that are intact."""
        if self.is_whole:
            return range(self.group.count)
        return [row for number in self.intact for row in self._rows(number)]

    def _rows(self, number: int) -> range:
        return range(number * BUNDLE, min((number + 1) * BUNDLE, self.group.count))

    def take_maps(self) -> list[bytes | msgspec.Raw]:
        """Return the maps of the events that are intact, one by one; where there is none, it is empty."""
        return [each for number in self.intact for each in self._maps(number)]

    def take_raw_maps(self) -> list[msgspec.Raw]:
        """Return the same as raw values, to be encoded again."""
        return [msgspec.Raw(each) for each in self.take_maps()]

    def _maps(self, number: int) -> Sequence[bytes | msgspec.Raw]:
        start, end = self.ends[number - 1] if number else 0, self.ends[number]
        count = len(self._rows(number))
        try:
            found = _decode_bundle(self.array[ARRAY.size + start : ARRAY.size + end])
        except (msgspec.MsgspecError, ValueError):
            found = []
        return found if len(found) == count else [b""] * count


class StoredEvents(NamedTuple):
    """The events of a block by type, and how many are lost."""

    times: Sequence[int]
    """The times of all events in order, also of those that are lost."""
    kinds: bytes
    """The number of the group of each event; empty if there is one group."""
    groups: Sequence[StoredGroup]
    lost: int
    is_damaged: bool

    def places(self, number: int) -> Sequence[int]:
        """Return the places in the block of the events of a group, also of those that are lost."""
        return places_of(number, self.kinds) if len(self.groups) > 1 else range(len(self.times))


def places_of(number: int, kinds: bytes) -> list[int]:
    """Return the places of a number among others.

    >>> places_of(1, bytes([1, 0, 2, 1]))
    [0, 3]
    """
    return list(compress(range(len(kinds)), kinds.translate(_is_number(number))))


@lru_cache(maxsize=256)
def _is_number(number: int) -> bytes:
    """Return a table that translates a number to one, and all others to zero."""
    return bytes(other == number for other in range(256))


def read_events(data: Octets, block: Block) -> StoredEvents:
    """Return the events of a block; of a damaged one those that are intact."""
    if block.head.kind == INDEX:
        return StoredEvents((), b"", (), 0, not block.is_whole or read_index(data, block) is None)
    stored = data[block.payload_start : block.end]
    is_whole = block.is_whole and has_checks(stored, block)
    bad: Collection[int] = ()
    if not is_whole:
        stored, bad = _repair(data, block, stored)
    payload = _unpack(stored, block.head) if not bad or block.head.packing == PLAIN else None
    if payload is None or not _is_consistent(block, payload):
        return StoredEvents((), b"", (), block.head.events, True)
    columns = _Columns(block, payload)
    if not columns.has_kinds(bad):
        return StoredEvents((), b"", (), block.head.events, True)
    groups = [columns.group(number, set(bad)) for number in range(len(block.groups))]
    kept = sum(len(each.rows) for each in groups)
    return StoredEvents(columns.times, columns.kinds, groups, block.head.events - kept, not is_whole)


class ReadBlock(NamedTuple):
    """A block and its events, none if it is an index."""

    block: Block
    stored: StoredEvents


def events_in(data: Octets, start: int = 0) -> Iterator[ReadBlock | Gap]:
    """Yield the blocks of a file from a position on with their events, and the gaps between them.

    If a payload is damaged, blocks may begin in it: it was cut, and others were written after it.
    """
    found = blocks_in(data, start)
    while (each := next(found, None)) is not None:
        if isinstance(each, Gap):
            yield each
            continue
        stored = read_events(data, each)
        yield ReadBlock(each, stored)
        inner = next_block(data, each.pages_start) if stored.is_damaged else None
        if inner is not None and inner.start < each.end:
            found = blocks_in(data, inner.start)


def _repair(data: Octets, block: Block, stored: bytes) -> tuple[bytes, Collection[int]]:
    """Return a payload with its wrong bits put right, if all can be, and else the numbers of its damaged pages."""
    count = count_pages(block.head.stored_size)
    raw = data[block.pages_start : block.payload_start].ljust(4 * count, b"\x00")
    checks = struct.unpack(f"<{count}I", raw)
    stored = stored.ljust(block.head.stored_size, b"\x00")
    pages = [stored[at : at + PAGE] for at in range(0, len(stored), PAGE)]
    bad = [number for number, page in enumerate(pages) if zlib.crc32(page) != checks[number]]
    righted = {number: put_right(pages[number], checks[number]) for number in bad}
    whole = b"".join(righted.get(number) or page for number, page in enumerate(pages))
    second = CHECK.unpack(data[block.start + 8 : block.start + 12])[0]
    if has_checks(whole, block) and zlib.adler32(whole, zlib.adler32(block.covered)) == second:
        return whole, ()
    return stored, bad if block.is_whole else range(count)


def _unpack(stored: bytes, head: Head) -> bytes | None:
    """Return the payload of a block; None if it cannot be unpacked."""
    packed = combine(stored, head.key)
    if head.payload_size > MAX_PAYLOAD:
        return None
    if head.packing == PLAIN:
        return packed
    library = load_zstd()
    try:
        if library.frame_content_size(packed) != head.payload_size:
            return None
        unpacked: bytes = library.ZstdDecompressor().decompress(packed)
    except library.ZstdError:
        return None
    return unpacked


def _is_consistent(block: Block, payload: bytes) -> bool:
    """Return whether counts and sizes agree with each other."""
    count = block.head.events
    columns = count * (9 if len(block.groups) > 1 else 8)
    arrays = sum(ARRAY.size + group.size + 4 * group.bundles for group in block.groups)
    counted = sum(group.count for group in block.groups) == count
    return counted and columns + arrays == len(payload) == block.head.payload_size


class _Columns:
    """The columns of a payload: times and kinds of all events, and of each group the ends and the bundles."""

    def __init__(self, block: Block, payload: bytes) -> None:
        groups, count = block.groups, block.head.events
        self._groups, self._payload = groups, payload
        self._ends_at = count * (9 if len(groups) > 1 else 8)
        self._ends = list(accumulate((4 * each.bundles for each in groups), initial=self._ends_at))
        self._arrays = list(accumulate((ARRAY.size + each.size for each in groups), initial=self._ends[-1]))
        self.times: Sequence[int] = struct.unpack_from(f"<{count}q", payload)
        self.kinds = payload[8 * count : self._ends_at]

    def has_kinds(self, bad: Container[int]) -> bool:
        """Return whether it is known which event is of which group."""
        if len(self._groups) == 1:
            return True
        agrees = all(self.kinds.count(number) == group.count for number, group in enumerate(self._groups))
        return agrees and _is_good(8 * len(self.times), self._ends_at, bad)

    def group(self, number: int, bad: Container[int]) -> StoredGroup:
        """Return the events of a group, with those as intact that touch no page of `bad`."""
        group = self._groups[number]
        ends = struct.unpack_from(f"<{group.bundles}I", self._payload, self._ends[number])
        array = self._payload[self._arrays[number] : self._arrays[number + 1]]
        found = StoredGroup(group, array, ends, range(group.bundles))
        if not bad:
            return found
        places = places_of(number, self.kinds) if len(self._groups) > 1 else range(group.count)
        return found._replace(
            intact=[each for each in found.intact if self._is_intact(found, number, each, places, bad)]
        )

    def _is_intact(
        self, found: StoredGroup, number: int, bundle: int, places: Sequence[int], bad: Container[int]
    ) -> bool:
        """Return whether nothing of a bundle is in a damaged page: where it ends and begins, events, times."""
        ends_at, start = self._ends[number] + 4 * bundle, self._arrays[number] + ARRAY.size
        if not _is_good(ends_at - 4 * bool(bundle), ends_at + 4, bad):
            return False
        begin, end = found.ends[bundle - 1] if bundle else 0, found.ends[bundle]
        times = (8 * place for place in places[bundle * BUNDLE : (bundle + 1) * BUNDLE])
        return _is_good(start + begin, start + end, bad) and all(_is_good(at, at + 8, bad) for at in times)


def _is_good(start: int, end: int, bad: Container[int]) -> bool:
    """Return whether no damaged page has bytes of a range."""
    return not any(page in bad for page in range(start // PAGE, (end - 1) // PAGE + 1))


def repack(found: StoredEvents, head: Head) -> bytes:
    """A whole block of the events that are left of a damaged one."""
    left = [(number, each) for number, each in enumerate(found.groups) if each.rows]
    kinds = {found.places(number)[row]: at for at, (number, each) in enumerate(left) for row in each.rows}
    order = sorted(kinds)
    groups = [
        EventGroup(
            each.group.name,
            each.group.units,
            len(each.rows),
            *bundle(encode_raw_into, each.take_raw_maps()),
            each.group.statement,
        )
        for _, each in left
    ]
    times = [found.times[place] for place in order]
    return pack_events(times, bytes(kinds[place] for place in order), groups, head.before, head.latest_us, head.packing)
