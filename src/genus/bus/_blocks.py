"""The blocks of recordings: how events are stored in a file, and found again after damage.

A file is a header of eight bytes and then blocks, each of which can be read by itself:

* a head of 64 bytes: how many bytes the block has, how many events it has and how many the file has before it, which
  times they are of, and checksums. So a time is found, and what damage cost is known, without reading payloads,
* a directory of the types in the block with their units and numbers of events, and a statement of each type that the
  blocks before have no events of, so that its events can be read without its class,
* a checksum for every page of 4096 bytes of the payload,
* the payload, which may be compressed: the times of recording; if there are several types, the number of each event's
  type; where each bundle of 64 events of a type ends; and for each type a msgpack array of bundles, which are arrays
  of events, so that one call decodes them all.

The last block of a file that was closed is an index of the others. It can be missing: the heads say the same.

What damage costs: a wrong bit is found by the checksum of its page, head or directory, and put right if a second
checksum of the whole confirms this, so that it costs nothing. Other damage costs the events of the pages that it hits
and their bundles, or the block if that is compressed or its head is not legible.

After damage that hides where a block ends, reading goes on at the next valid head. A payload may contain whole blocks
in an attribute of bytes, and nothing but their place tells these from others. Hence the marker, with which blocks
begin, occurs in no payload: one that has it is stored combined with a stream of bytes in which it does not occur.
"""

import hashlib
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from genus._extras import install_command
from genus.bus._frames import FIRST_FORMAT, FORMAT, Frame, FrameFormat, Gap, Octets, frames_in
from genus.errors import RecordingError

HEADER = b"genus\x03\x1a\xff"
"""The first bytes of a file."""
MARKER = b"\xfe\x47\xc1\x8e"
"""The first bytes of a block."""
HEAD = struct.Struct("<4sIIBBHIIIIIIQqq")
CHECK = struct.Struct("<I")
_AFTERCHECKS = 12
"""The bytes of a head before what its checksums cover: marker, checksum, second checksum of head and directory."""

EVENTS, INDEX = 0, 1
"""Kinds of blocks."""
PLAIN, ZSTD = 0, 1
"""How payloads are packed."""
PAGE = 4096
"""Bytes of a payload that have a checksum of their own."""
EARLIEST_US = -(1 << 63)
"""The latest time before the first block."""
MAX_TYPES = 256
"""The most types of a block."""
BUNDLE = 64
"""Events of a type that are encoded by one call, and found again together after damage."""
MAX_SIZE = 1 << 26
"""The most bytes of an event."""
MAX_PAYLOAD = 2 * MAX_SIZE
"""The most bytes of a payload."""

ARRAY = struct.Struct(">BI")
ARRAY_32 = 0xDD


class Head(NamedTuple):
    """The head of a block, without marker and checksums of its own."""

    kind: int
    packing: int
    key: int
    """Which stream of bytes the payload is combined with; 0 for none."""
    events: int
    directory_size: int
    directory_check: int
    stored_size: int
    pages_check: int
    """The checksum of the checksums of pages."""
    payload_size: int
    before: int
    """Events in the blocks before."""
    first_us: int
    """The time of the first event."""
    latest_us: int
    """The latest time in the file up to the end of the block; so these only grow, and a time is found by bisection."""


class Group(msgspec.Struct, array_like=True, frozen=True):
    """The events of one type in a block."""

    name: str
    count: int
    size: int
    """Bytes of the bundles."""
    units: dict[str, str]
    statement: bytes = b""
    """The type as it was declared (`genus.catalog._statement`), in the first block of a file that has events of it."""

    @property
    def bundles(self) -> int:
        return (self.count + BUNDLE - 1) // BUNDLE


class Block(NamedTuple):
    """A block whose head and directory are legible; `end` may be after the end of the file."""

    start: int
    end: int
    head: Head
    groups: tuple[Group, ...]
    covered: bytes
    """The bytes of head and directory that checksums cover."""
    is_whole: bool
    """Whether nothing had to be put right."""

    @property
    def pages_start(self) -> int:
        """The position of the checksums of pages."""
        return self.start + HEAD.size + self.head.directory_size

    @property
    def payload_start(self) -> int:
        return self.pages_start + 4 * count_pages(self.head.stored_size)


def count_pages(size: int) -> int:
    """Return the number of pages of so many bytes."""
    return (size + PAGE - 1) // PAGE


_decode_directory = msgspec.msgpack.Decoder(tuple[Group, ...]).decode
_encoder = msgspec.msgpack.Encoder()
encode, encode_raw_into = _encoder.encode, _encoder.encode_into


# -- writing -----------------------------------------------------------------------------------------------------------


class EventGroup(NamedTuple):
    """Events of one type that are to be written."""

    name: str
    units: dict[str, str]
    events: int
    ends: Sequence[int]
    """Where each of the bundles ends."""
    bundles: bytes | bytearray
    """Msgpack arrays of maps of attributes, one after the other."""
    statement: bytes = b""


def bundle(encode_into: Callable[[Any, bytearray, int], None], events: Sequence[Any]) -> tuple[list[int], bytearray]:
    """Return the ends of the bundles of some events, and the bundles."""
    made, ends = bytearray(), []
    for start in range(0, len(events), BUNDLE):
        encode_into(events[start : start + BUNDLE], made, -1)
        ends.append(len(made))
    return ends, made


def pack_events(
    times: Sequence[int],
    kinds: bytes,
    groups: Sequence[EventGroup],
    before: int = 0,
    latest_us: int = EARLIEST_US,
    packing: int = PLAIN,
) -> bytes:
    """Return the block of some events, with times and numbers of groups in order.

    The file has `before` events before it, the latest of which is of `latest_us`.
    """
    columns: list[bytes | bytearray] = [struct.pack(f"<{len(times)}q", *times)]
    if len(groups) > 1:
        columns.append(kinds)
    columns += [struct.pack(f"<{len(each.ends)}I", *each.ends) for each in groups]
    for each in groups:
        columns += [ARRAY.pack(ARRAY_32, len(each.ends)), each.bundles]
    directory = [Group(each.name, each.events, len(each.bundles), each.units, each.statement) for each in groups]
    head = Head(EVENTS, packing, 0, len(times), 0, 0, 0, 0, 0, before, times[0], max(latest_us, max(times)))
    return pack_block(head, encode(directory), b"".join(columns))


def pack_block(head: Head, directory: bytes, payload: bytes) -> bytes:
    """Return the block of a payload; sizes, checksums and the key are filled in."""
    packed = load_zstd().ZstdCompressor().compress(payload) if head.packing == ZSTD else payload
    for key in range(1 << 16):
        stored = combine(packed, key)
        pages = page_checks(stored)
        filled = head._replace(
            key=key,
            directory_size=len(directory),
            directory_check=zlib.crc32(directory),
            stored_size=len(stored),
            pages_check=zlib.crc32(pages),
            payload_size=len(payload),
        )
        covered = HEAD.pack(MARKER, 0, 0, *filled)[_AFTERCHECKS:]
        checks = struct.pack("<II", zlib.crc32(covered), second_check(covered, directory, stored))
        block = b"".join((MARKER, checks, covered, directory, pages, stored))
        if block.rfind(MARKER) + len(MARKER) <= HEAD.size + len(directory):
            break
    return block


def page_checks(stored: bytes) -> bytes:
    """Return the checksums of all pages."""
    view = memoryview(stored)
    made = [zlib.crc32(view[at : at + PAGE]) for at in range(0, len(stored), PAGE)]
    return struct.pack(f"<{len(made)}I", *made)


def second_check(covered: bytes, directory: bytes, stored: bytes) -> int:
    """Return a checksum of another kind over the whole block, which confirms what was put right."""
    return zlib.adler32(stored, zlib.adler32(directory, zlib.adler32(covered)))


def combine(payload: bytes, key: int) -> bytes:
    """Return a payload combined with the stream of a key, by exclusive or; doing it again gives the payload.

    >>> combine(combine(b"abc", 7), 7), combine(b"abc", 0)
    (b'abc', b'abc')
    """
    if key == 0:
        return payload
    size = len(payload)
    stream = hashlib.shake_128(key.to_bytes(2, "little")).digest(size)
    return (int.from_bytes(payload, "little") ^ int.from_bytes(stream, "little")).to_bytes(size, "little")


# -- finding blocks ----------------------------------------------------------------------------------------------------


def block_at(data: Octets, at: int) -> Block | None:
    """The block at a position; None if there is no legible one. One wrong bit of head and directory is put right."""
    raw = data[at : at + HEAD.size]
    if len(raw) < HEAD.size:
        return None
    marker, check = raw[:4], CHECK.unpack_from(raw, 4)[0]
    covered = put_right(raw[_AFTERCHECKS:], check) if _distance(marker) < 2 else None
    if covered is None:
        return None
    head = Head(*HEAD.unpack(raw[:_AFTERCHECKS] + covered)[3:])
    start = at + HEAD.size
    stored = data[start : start + head.directory_size]
    directory = put_right(stored, head.directory_check)
    groups = None if directory is None else _groups(directory)
    if directory is None or groups is None:
        return None
    is_whole = raw == MARKER + raw[4:_AFTERCHECKS] + covered and zlib.crc32(covered) == check and directory == stored
    found = Block(at, 0, head, groups, covered + directory, is_whole)
    return found._replace(end=found.payload_start + head.stored_size)


def _groups(directory: bytes) -> tuple[Group, ...] | None:
    try:
        return _decode_directory(directory)
    except (msgspec.MsgspecError, ValueError):
        return None


def _distance(marker: bytes) -> int:
    """Return the number of wrong bits."""
    return (int.from_bytes(marker, "big") ^ int.from_bytes(MARKER, "big")).bit_count()


def put_right(data: bytes, check: int) -> bytes | None:
    """Return the bytes that have a checksum, if one bit of them or of the checksum is wrong; None if more is wrong."""
    syndrome = zlib.crc32(data) ^ check
    if syndrome.bit_count() < 2:
        return data
    at = find_flip(len(data), syndrome)
    if at is None:
        return None
    changed = bytearray(data)
    changed[at // 8] ^= 1 << at % 8
    return bytes(changed)


def find_flip(size: int, syndrome: int) -> int | None:
    """Return the bit that is wrong in so many bytes, if the checksum differs by `syndrome`; None if it is not one bit.

    A CRC is linear: the difference that a wrong bit makes depends on its distance from the end alone.

    >>> find_flip(5, zlib.crc32(b"hello") ^ zlib.crc32(b"hallo")), find_flip(3, zlib.crc32(b"abc") ^ zlib.crc32(b"abb"))
    (10, 16)
    """
    made = [_crc_table()[1 << bit] for bit in range(8)]
    for at in range(size - 1, -1, -1):
        if syndrome in made:
            return at * 8 + made.index(syndrome)
        made = [_crc_table()[each & 0xFF] ^ (each >> 8) for each in made]
    return None


@lru_cache(maxsize=1)
def _crc_table() -> list[int]:
    zero = zlib.crc32(b"\x00")
    return [zlib.crc32(bytes([octet])) ^ zero for octet in range(256)]


def next_block(data: Octets, start: int, end: int | None = None) -> Block | None:
    """Return the first legible block that begins in a range and has an intact marker; None if there is none."""
    stop = (len(data) if end is None else end) + len(MARKER) - 1
    at = data.find(MARKER, start, stop)
    while at != -1:
        if (found := block_at(data, at)) is not None:
            return found
        at = data.find(MARKER, at + 1, stop)
    return None


def blocks_in(data: Octets, start: int = 0) -> Iterator[Block | Gap]:
    """The blocks of a file from a position on, and the gaps between them; a missing header is an empty gap at least."""
    at = start
    if start == 0 and data[: len(HEADER)] == HEADER:
        at = len(HEADER)
    elif start == 0 and block_at(data, 0) is not None:
        yield Gap(0, 0)
    search_from = at + 1
    while at < len(data):
        found = block_at(data, at)
        if found is None:  # damage, or the block before was cut and others were written after it
            following = next_block(data, search_from)
            end = len(data) if following is None else following.start
            if end > at:
                yield Gap(at, end)
            at, search_from = end, end + 1
        else:
            yield found
            at, search_from = found.end, found.pages_start


def find_block(data: Octets, time_us: int) -> int:
    """The position of the first block that has an event of a time or later; by bisection, so few heads are read."""
    low, high, found = 0, len(data), len(data)
    while low < high:
        middle = (low + high) // 2
        block = next_block(data, middle, high)
        if block is None:
            high = middle
        elif block.head.latest_us < time_us:
            low = block.end
        else:
            high, found = middle, block.start
    return found


def last_block(data: Octets) -> Block | None:
    """Return the block that ends with the file; None if there is none."""
    at = data.rfind(MARKER)
    found = block_at(data, at) if at != -1 else None
    return found if found is not None and found.end == len(data) else None


def has_checks(stored: bytes, block: Block) -> bool:
    """Return whether a payload is as it was written."""
    return len(stored) == block.head.stored_size and zlib.crc32(page_checks(stored)) == block.head.pages_check


def load_zstd() -> Any:
    """Return the library of zstd; RecordingError says how to install it."""
    try:
        import zstandard
    except ImportError:
        raise RecordingError(f"a recording compressed with zstd needs: {install_command('zstd')}") from None
    return zstandard


BLOCKS: Final = "blocks"
"""The format of new files."""

Format: TypeAlias = FrameFormat | Literal["blocks"]


def format_of_header(header: bytes) -> Format | None:
    """Return the format that a file's first bytes name; None if they are no header."""
    if header == HEADER:
        return BLOCKS
    return next((each for each in (FORMAT, FIRST_FORMAT) if header == each.header), None)


def find_format(data: Octets) -> Format | None:
    """Return the format of a file: by its header or, if that is damaged, by what is in it; None if it has none.

    Blocks may be inside of frames and frames inside of blocks, in an attribute of bytes: what has more bytes is
    outside.
    """
    named = format_of_header(data[: len(HEADER)])
    if named is not None:
        return named
    form = next((each for each in (FORMAT, FIRST_FORMAT) if each.next_frame(data, 0) is not None), None)
    if next_block(data, 0) is None:
        return form
    blocks = sum(each.end - each.start for each in blocks_in(data) if isinstance(each, Block))
    found = () if form is None else frames_in(data, form)
    frames = sum(each.end - each.start for each in found if isinstance(each, Frame))
    return form if form is not None and frames > blocks else BLOCKS
