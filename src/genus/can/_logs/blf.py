"""Vector's binary log format (BLF): containers and objects are found here, and objects parsed by python-can.

A container is compressed and has a checksum, so a damaged one is skipped whole; reading continues with the first object
that begins in the next container. A file that is cut short is read up to the cut.
"""

import io
import mmap
import struct
import zlib
from collections.abc import Generator, Iterator
from typing import NamedTuple, TypeAlias

from can.io import blf as vector

import can
from genus.can._logs.frames import DIRECTIONS, RX, TX, LoggedFrame
from genus.can._logs.log_file import (
    BAD_IDENTIFIER,
    CUT_SHORT,
    ERROR_FRAME,
    LENGTHS_DISAGREE,
    NO_FRAME,
    REMOTE_FRAME,
    LogFile,
    SkippedRecords,
    logged_frame,
    micros_of_seconds,
    suppress_warnings,
)
from genus.can._wire.frame import FD_BYTES, ID_MASK, STANDARD_ID_MASK, Frame
from genus.errors import RecordingError

Bytes: TypeAlias = bytes | mmap.mmap

SIGNATURE = b"LOBJ"
FILE_SIGNATURE = b"LOGG"
PADDING = 8
"""The most bytes between two objects."""
LARGEST_FRAME = 256
"""The most bytes of an object that holds a frame."""
LARGEST_OBJECT = 1 << 20
LARGEST_CONTAINER = 1 << 26
DAMAGED_OBJECT = "damaged object"
DAMAGED_CONTAINER = "damaged container"

_FILE_HEADER = struct.Struct("<4sL")
_OBJECT = struct.Struct("<4sHHLL")
_CONTAINER = struct.Struct("<H6xL4x")
_HEADER_SIZES = {1: 32, 2: 40}
"""The length of an object's header by its version."""
_PAYLOADS = {
    vector.CAN_MESSAGE: vector.CAN_MSG_STRUCT.size,
    vector.CAN_MESSAGE2: vector.CAN_MSG_STRUCT.size,
    vector.CAN_ERROR_EXT: vector.CAN_ERROR_EXT_STRUCT.size,
    vector.CAN_FD_MESSAGE: vector.CAN_FD_MSG_STRUCT.size,
    vector.CAN_FD_MESSAGE_64: vector.CAN_FD_MSG_64_STRUCT.size,
}
"""The least number of bytes after the header of an object that holds a frame, by its type."""


class BlfObject(NamedTuple):
    """One object of a log; `at` is the byte of the file at which its container begins."""

    at: int
    data: bytes
    header_size: int
    version: int
    type: int

    @property
    def location(self) -> str:
        """Where it is, for messages."""
        return f"container at byte {self.at}"

    @property
    def is_whole(self) -> bool:
        """Whether it holds a frame and is as long as python-can expects it to be."""
        size, payload = _HEADER_SIZES.get(self.version), _PAYLOADS.get(self.type)
        return payload is not None and size == self.header_size and len(self.data) >= size + payload


def read_blf(file: LogFile) -> Iterator[LoggedFrame]:
    """The frames of a BLF file."""
    data = file.read_all()
    header, start = _file_header(data, file.skipped)
    waiting: list[BlfObject] = []
    for found in _objects(file, data, start):
        if waiting and found.at != waiting[0].at:
            yield from _parse_container(file.skipped, header, waiting)
            waiting = []
        if found.type not in _PAYLOADS:
            file.skipped.note(NO_FRAME)
        elif not found.is_whole:
            file.skipped.note(DAMAGED_OBJECT, found.location)
        else:
            waiting.append(found)
    yield from _parse_container(file.skipped, header, waiting)


def _file_header(data: Bytes, skipped: SkippedRecords) -> tuple[bytes, int]:
    """The header for python-can, and the byte at which objects begin; with a damaged header times count from 1970."""
    if len(data) >= vector.FILE_HEADER_SIZE:
        signature, size = _FILE_HEADER.unpack_from(data)
        if signature == FILE_SIGNATURE and vector.FILE_HEADER_SIZE <= size <= len(data):
            return bytes(data[:size]), size
    if data.find(SIGNATURE) == -1:
        raise RecordingError("it is no BLF file: it has neither the header nor an object of one")
    skipped.note("file header damaged: times count from 1970", "byte 0")
    header = _FILE_HEADER.pack(FILE_SIGNATURE, vector.FILE_HEADER_SIZE).ljust(vector.FILE_HEADER_SIZE, b"\0")
    return header, data.find(SIGNATURE)


def _parse_container(skipped: SkippedRecords, header: bytes, objects: list[BlfObject]) -> Iterator[LoggedFrame]:
    """The frames in the objects of one container."""
    with suppress_warnings("can.io"):
        pairs = _messages(skipped, header, objects)
    for message, each in pairs:
        at_us = micros_of_seconds(message.timestamp)
        channel, direction = vector_channel(message), DIRECTIONS[RX if message.is_rx else TX]
        yield from logged_frame(frame_of(message), at_us, channel, each.location, skipped, direction)


def _messages(skipped: SkippedRecords, header: bytes, objects: list[BlfObject]) -> list[tuple[can.Message, BlfObject]]:
    """The messages of objects: all parsed together, or each alone if that fails."""
    together = _parse(header, objects)
    if len(together) == len(objects):
        return list(zip(together, objects, strict=True))
    alone = [(_parse(header, [each]), each) for each in objects]
    for messages, each in alone:
        if not messages:
            skipped.note(DAMAGED_OBJECT, each.location)
    return [(messages[0], each) for messages, each in alone if messages]


def _parse(header: bytes, objects: list[BlfObject]) -> list[can.Message]:
    """The messages that python-can finds in some objects, given to it as a file of their own; none if it fails."""
    content = b"".join(each.data for each in objects)
    container = _CONTAINER.pack(vector.NO_COMPRESSION, len(content)) + content
    outer = _OBJECT.pack(SIGNATURE, _OBJECT.size, 1, _OBJECT.size + len(container), vector.LOG_CONTAINER)
    try:
        return list(can.BLFReader(io.BytesIO(header + outer + container)))
    except Exception:
        return []


# -- containers and objects --------------------------------------------------------------------------------------------


def _objects(file: LogFile, data: Bytes, start: int) -> Iterator[BlfObject]:
    """The objects in all containers, including those that begin in one and end in the next."""
    rest, at = b"", start
    for at, content in _contents(file, data, start):
        rest = yield from _split_objects(rest + (content or b""), at, file.skipped, carried=len(rest))
        if content is None:
            rest = b""
    if SIGNATURE in rest and not file.is_cut:
        file.skipped.note(CUT_SHORT, f"byte {len(data)}")
    yield from _split_objects(rest, at, file.skipped, carried=len(rest))


def _split_objects(stream: bytes, at: int, skipped: SkippedRecords, carried: int) -> Generator[BlfObject, None, bytes]:
    """The objects of a stream; returns the rest, which may be the beginning of one that ends in the next container.

    The first `carried` bytes are such a rest of the last container. An object that begins there must end in this
    container; otherwise its size is wrong.
    """
    position, damaged = 0, False
    while (begin := stream.find(SIGNATURE, position)) != -1 and begin + _OBJECT.size <= len(stream):
        _, header_size, version, size, type_ = _OBJECT.unpack_from(stream, begin)
        end = begin + size
        damaged = damaged or begin > position + PADDING
        if end > len(stream) and begin >= carried and size <= LARGEST_OBJECT:
            break
        if not _is_plausible(stream, begin, end, type_):
            position, damaged = begin + 1, True
            continue
        if damaged:
            skipped.note(DAMAGED_OBJECT, f"container at byte {at}")
        yield BlfObject(at, stream[begin:end], header_size, version, type_)
        position, damaged = end, False
    return stream[begin:] if begin != -1 else stream[max(position, len(stream) - len(SIGNATURE)) :]


def _is_plausible(stream: bytes, begin: int, end: int, type_: int) -> bool:
    """Whether an object can have the size it states: another follows, or it is short and none begins inside it."""
    if not begin + _OBJECT.size <= end <= len(stream):
        return False
    reach = end + PADDING + len(SIGNATURE)
    if reach > len(stream) or stream.find(SIGNATURE, end, reach) != -1:
        return True
    is_short = type_ in _PAYLOADS and end - begin <= LARGEST_FRAME
    return is_short and stream.find(SIGNATURE, begin + 1, end) == -1


def _contents(file: LogFile, data: Bytes, start: int) -> Iterator[tuple[int, bytes | None]]:
    """The content of each container with the byte at which it begins; None where something in between is lost."""
    position = start
    while (begin := data.find(SIGNATURE, position)) != -1 and begin + _OBJECT.size <= len(data):
        file.set_progress(begin / len(data))
        _, _, _, size, type_ = _OBJECT.unpack_from(data, begin)
        end = _end_of(data, begin, size)
        if begin > position + PADDING:
            file.skipped.note(DAMAGED_CONTAINER, f"byte {position}")
            yield position, None
        yield from _content(file, begin, data[begin:end], type_, is_cut=begin + size > end == len(data))
        if end != begin + size:
            yield end, None
        position = end
    file.set_progress(1)


def _content(file: LogFile, at: int, found: bytes, type_: int, *, is_cut: bool) -> Iterator[tuple[int, bytes | None]]:
    """The content of a container, or an object outside of one; an incomplete content only at the end of a cut file."""
    if type_ != vector.LOG_CONTAINER:
        yield from ((at, None), (at, found), (at, None))
        return
    content, is_whole = _decompress(found[_OBJECT.size :])
    file.is_cut = file.is_cut or is_cut
    if is_whole or is_cut:
        yield at, content
    if not is_whole:
        file.skipped.note(CUT_SHORT if is_cut and content else DAMAGED_CONTAINER, f"byte {at}")
        yield at, None


def _end_of(data: Bytes, begin: int, size: int) -> int:
    """The end of a container: the one it states if another follows there, else the start of the next, or the end."""
    end = begin + max(size, _OBJECT.size)
    reach = end + PADDING + len(SIGNATURE)
    if end <= len(data) and (reach > len(data) or data.find(SIGNATURE, end, reach) != -1):
        return end
    following = data.find(SIGNATURE, begin + 1)
    return following if following != -1 else len(data)


def _decompress(container: bytes) -> tuple[bytes | None, bool]:
    """The decompressed content of a container, and whether it is complete; None if its checksum is wrong."""
    if len(container) < _CONTAINER.size:
        return None, False
    method, size = _CONTAINER.unpack_from(container)
    packed = container[_CONTAINER.size :]
    if method == vector.NO_COMPRESSION:
        return packed, len(packed) >= size
    unpacking = zlib.decompressobj()
    try:
        content = unpacking.decompress(packed, LARGEST_CONTAINER) if method == vector.ZLIB_DEFLATE else None
    except zlib.error:
        return None, False
    return content, unpacking.eof


def frame_of(message: can.Message) -> Frame | str:
    """The data frame in a message of python-can, or the reason why there is none.

    >>> frame_of(can.Message(arbitration_id=0x123, is_extended_id=False, data=b"hi"))
    Frame(0x123, 6869)
    >>> frame_of(can.Message(arbitration_id=0x123, is_remote_frame=True))
    'remote frame'
    """
    if message.is_error_frame:
        return ERROR_FRAME
    if message.is_remote_frame:
        return REMOTE_FRAME
    size = len(message.data)
    if not 0 <= message.arbitration_id <= (ID_MASK if message.is_extended_id else STANDARD_ID_MASK):
        return BAD_IDENTIFIER
    if size > FD_BYTES or size != (message.dlc if message.is_fd else min(message.dlc, max(size, 8))):
        return LENGTHS_DISAGREE
    return Frame(message.arbitration_id, bytes(message.data), message.is_fd or size > 8, message.is_extended_id)


def vector_channel(message: can.Message) -> str | None:
    """The channel as Vector's files number it: from 1, where python-can counts from 0."""
    return str(message.channel + 1) if isinstance(message.channel, int) else None
