"""Vector's binary log format (BLF): containers of objects, cut out here, understood by python-can.

A container is compressed and has a checksum, so a damaged one is passed over whole; reading goes on with the first
object that begins in the next. A file cut short is read up to the cut.
"""

import io
import mmap
import struct
import zlib
from collections.abc import Generator, Iterator
from typing import NamedTuple, TypeAlias

from can.io import blf as vector

import can
from genus.can._dbc.log_file import (
    BAD_TIME,
    CUT_SHORT,
    HARMLESS,
    NO_FRAME,
    LogFile,
    Logged,
    PassedOver,
    frame_of,
    from_one,
    micros_of_seconds,
    quiet,
)
from genus.errors import RecordingError

Bytes: TypeAlias = bytes | mmap.mmap

SIGNATURE = b"LOBJ"
FILE_SIGNATURE = b"LOGG"
PADDING = 8
"""At most so many bytes are between two objects."""
LARGEST_FRAME = 256
"""No object that holds a frame is longer."""
LARGEST_OBJECT = 1 << 20
LARGEST_CONTAINER = 1 << 26
DAMAGED_OBJECT = "damaged object"
DAMAGED_CONTAINER = "damaged container"

_FILE_HEADER = struct.Struct("<4sL")
_OBJECT = struct.Struct("<4sHHLL")
_CONTAINER = struct.Struct("<H6xL4x")
_HEADER_SIZES = {1: 32, 2: 40}
"""How long an object's header is, by its version."""
_PAYLOADS = {
    vector.CAN_MESSAGE: vector.CAN_MSG_STRUCT.size,
    vector.CAN_MESSAGE2: vector.CAN_MSG_STRUCT.size,
    vector.CAN_ERROR_EXT: vector.CAN_ERROR_EXT_STRUCT.size,
    vector.CAN_FD_MESSAGE: vector.CAN_FD_MSG_STRUCT.size,
    vector.CAN_FD_MESSAGE_64: vector.CAN_FD_MSG_64_STRUCT.size,
}
"""How many bytes an object that holds a frame has at least behind its header."""


class Object(NamedTuple):
    """One object of a log, and the byte of the file at which its container begins."""

    at: int
    data: bytes
    header_size: int
    version: int
    type: int

    @property
    def place(self) -> str:
        """Where it is, for messages."""
        return f"container at byte {self.at}"

    @property
    def is_whole(self) -> bool:
        """Whether it holds a frame, and is as long as python-can believes it to be."""
        size, payload = _HEADER_SIZES.get(self.version), _PAYLOADS.get(self.type)
        return payload is not None and size == self.header_size and len(self.data) >= size + payload


def read_blf(file: LogFile) -> Iterator[Logged]:
    """The frames of a BLF file."""
    data = file.whole()
    header, start = _file_header(data, file.passed)
    waiting: list[Object] = []
    for found in _objects(file, data, start):
        if waiting and found.at != waiting[0].at:
            yield from _understood(file.passed, header, waiting)
            waiting = []
        if found.type not in _PAYLOADS:
            file.passed.note(NO_FRAME)
        elif not found.is_whole:
            file.passed.note(DAMAGED_OBJECT, found.place)
        else:
            waiting.append(found)
    yield from _understood(file.passed, header, waiting)


def _file_header(data: Bytes, passed: PassedOver) -> tuple[bytes, int]:
    """The header for python-can, and where objects begin; without a good one times count from 1970."""
    if len(data) >= vector.FILE_HEADER_SIZE:
        signature, size = _FILE_HEADER.unpack_from(data)
        if signature == FILE_SIGNATURE and vector.FILE_HEADER_SIZE <= size <= len(data):
            return bytes(data[:size]), size
    if data.find(SIGNATURE) == -1:
        raise RecordingError("it is no BLF file: it neither begins like one nor holds an object of one")
    passed.note("file header damaged: times count from 1970", "byte 0")
    header = _FILE_HEADER.pack(FILE_SIGNATURE, vector.FILE_HEADER_SIZE).ljust(vector.FILE_HEADER_SIZE, b"\0")
    return header, data.find(SIGNATURE)


def _understood(passed: PassedOver, header: bytes, objects: list[Object]) -> Iterator[Logged]:
    """The frames of objects of one container."""
    with quiet("can.io"):
        pairs = _messages(passed, header, objects)
    for message, each in pairs:
        yield from _logged(passed, message, each)


def _messages(passed: PassedOver, header: bytes, objects: list[Object]) -> list[tuple[can.Message, Object]]:
    """The messages of objects: parsed together, and each alone if that fails."""
    together = _parsed(header, objects)
    if len(together) == len(objects):
        return list(zip(together, objects, strict=True))
    alone = [(_parsed(header, [each]), each) for each in objects]
    for messages, each in alone:
        if not messages:
            passed.note(DAMAGED_OBJECT, each.place)
    return [(messages[0], each) for messages, each in alone if messages]


def _logged(passed: PassedOver, message: can.Message, found: Object) -> Iterator[Logged]:
    frame, at_us = frame_of(message), micros_of_seconds(message.timestamp)
    if isinstance(frame, str):
        passed.note(frame, "" if frame in HARMLESS else found.place)
    elif at_us is None:
        passed.note(BAD_TIME, found.place)
    else:
        yield Logged(at_us, from_one(message), frame)


def _parsed(header: bytes, objects: list[Object]) -> list[can.Message]:
    """What python-can makes of some objects, in a file of their own."""
    content = b"".join(each.data for each in objects)
    container = _CONTAINER.pack(vector.NO_COMPRESSION, len(content)) + content
    outer = _OBJECT.pack(SIGNATURE, _OBJECT.size, 1, _OBJECT.size + len(container), vector.LOG_CONTAINER)
    try:
        return list(can.BLFReader(io.BytesIO(header + outer + container)))
    except Exception:
        return []


# -- cutting -------------------------------------------------------------------------------------------------------


def _objects(file: LogFile, data: Bytes, start: int) -> Iterator[Object]:
    """The objects in all containers, also those that begin in one and end in the next."""
    rest, at = b"", start
    for at, content in _contents(file, data, start):
        rest = yield from _cut(rest + (content or b""), at, file.passed, carried=len(rest))
        if content is None:
            rest = b""
    if SIGNATURE in rest and not file.is_cut:
        file.passed.note(CUT_SHORT, f"byte {len(data)}")
    yield from _cut(rest, at, file.passed, carried=len(rest))


def _cut(stream: bytes, at: int, passed: PassedOver, carried: int) -> Generator[Object, None, bytes]:
    """The objects of a stream; returns what may be the beginning of one that goes on in the next container.

    What begins in the bytes carried over from the last container must end in this one: otherwise its size is wrong.
    """
    position, damaged = 0, False
    while (begin := stream.find(SIGNATURE, position)) != -1 and begin + _OBJECT.size <= len(stream):
        _, header_size, version, size, type_ = _OBJECT.unpack_from(stream, begin)
        end = begin + size
        damaged = damaged or begin > position + PADDING
        if end > len(stream) and begin >= carried and size <= LARGEST_OBJECT:
            break
        if not _is_sound(stream, begin, end, type_):
            position, damaged = begin + 1, True
            continue
        if damaged:
            passed.note(DAMAGED_OBJECT, f"container at byte {at}")
        yield Object(at, stream[begin:end], header_size, version, type_)
        position, damaged = end, False
    return stream[begin:] if begin != -1 else stream[max(position, len(stream) - len(SIGNATURE)) :]


def _is_sound(stream: bytes, begin: int, end: int, type_: int) -> bool:
    """Whether an object may end where it says: another follows, or it is short and none begins within it."""
    if not begin + _OBJECT.size <= end <= len(stream):
        return False
    reach = end + PADDING + len(SIGNATURE)
    if reach > len(stream) or stream.find(SIGNATURE, end, reach) != -1:
        return True
    is_short = type_ in _PAYLOADS and end - begin <= LARGEST_FRAME
    return is_short and stream.find(SIGNATURE, begin + 1, end) == -1


def _contents(file: LogFile, data: Bytes, start: int) -> Iterator[tuple[int, bytes | None]]:
    """What is in each container, with the byte where it begins; None where something is lost in between."""
    position = start
    while (begin := data.find(SIGNATURE, position)) != -1 and begin + _OBJECT.size <= len(data):
        file.reached(begin / len(data))
        _, _, _, size, type_ = _OBJECT.unpack_from(data, begin)
        end = _end_of(data, begin, size)
        if begin > position + PADDING:
            file.passed.note(DAMAGED_CONTAINER, f"byte {position}")
            yield position, None
        yield from _content(file, begin, data[begin:end], type_, is_cut=begin + size > end == len(data))
        if end != begin + size:
            yield end, None
        position = end
    file.reached(1)


def _content(file: LogFile, at: int, found: bytes, type_: int, *, is_cut: bool) -> Iterator[tuple[int, bytes | None]]:
    """What is in one container, or an object that stands alone; of one that ends too early, only if the file does."""
    if type_ != vector.LOG_CONTAINER:
        yield from ((at, None), (at, found), (at, None))
        return
    content, is_whole = _unpacked(found[_OBJECT.size :])
    file.is_cut = file.is_cut or is_cut
    if is_whole or is_cut:
        yield at, content
    if not is_whole:
        file.passed.note(CUT_SHORT if is_cut and content else DAMAGED_CONTAINER, f"byte {at}")
        yield at, None


def _end_of(data: Bytes, begin: int, size: int) -> int:
    """Where a container ends: as it says if another follows there; else where the next begins, or the file ends."""
    end = begin + max(size, _OBJECT.size)
    reach = end + PADDING + len(SIGNATURE)
    if end <= len(data) and (reach > len(data) or data.find(SIGNATURE, end, reach) != -1):
        return end
    following = data.find(SIGNATURE, begin + 1)
    return following if following != -1 else len(data)


def _unpacked(container: bytes) -> tuple[bytes | None, bool]:
    """The objects in a container, and whether these are all; None if its checksum does not agree."""
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
