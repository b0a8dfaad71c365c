"""BLF files whose containers are whole and hold classic frames, in columns.

Objects of a container follow one another without a gap. All of them are found by their signature, and taken only if
each begins where the one before ends; then their fields are read together. At the first container that is not so, or
has a frame of another kind, `read_blf` reads the file object by object, which finds its way through damage.
"""

import io
import struct
import zlib
from collections import Counter
from collections.abc import Iterator
from itertools import islice

import numpy as np
import numpy.typing as npt
from can.io import blf as vector

import can
from genus.can._logs.blf import FILE_SIGNATURE, LARGEST_CONTAINER, SIGNATURE, read_blf
from genus.can._logs.digits import Bytes, Offsets, windows_at
from genus.can._logs.frames import EXTENDED, RX, TX, FrameColumns, LogBlock, block_of
from genus.can._logs.log_file import LAST_US, NO_FRAME, REMOTE_FRAME, LogFile
from genus.can._wire.frame import CLASSIC_BYTES, ID_MASK, STANDARD_ID_MASK

FRAMES_AT_ONCE = 1 << 16
_OBJECT = struct.Struct("<4sHHLL")
_CONTAINER = struct.Struct("<H6xL4x")
_CLASSIC = (vector.CAN_MESSAGE, vector.CAN_MESSAGE2)
_OTHER_FRAMES = (vector.CAN_ERROR_EXT, vector.CAN_FD_MESSAGE, vector.CAN_FD_MESSAGE_64)
_REMOTE_FLAG = 0x80


class _Irregular(Exception):
    """A container that is not read in columns."""


def read_blf_blocks(file: LogFile) -> Iterator[LogBlock]:
    """The frames of a BLF file; positions count them."""
    data, before, done = bytes(file.read_all()), Counter(file.skipped.reasons), 0
    try:
        for block in _regular(file, data):
            block = _numbered(block, done)
            done += sum(len(part.at_us) for part in block.frames)
            yield block
    except _Irregular:
        file.skipped.reasons.clear()
        file.skipped.reasons.update(before)
        frames = islice(enumerate(read_blf(file)), done, None)
        while some := list(islice(frames, FRAMES_AT_ONCE)):
            yield block_of(some)


def _numbered(block: LogBlock, done: int) -> LogBlock:
    return block._replace(frames=[part._replace(position=part.position + done) for part in block.frames])


def _regular(file: LogFile, data: bytes) -> Iterator[LogBlock]:
    """The frames of one container after the other."""
    at = _first_object(data)
    start = can.BLFReader(io.BytesIO(data[:at])).start_timestamp
    rest = b""
    while at < len(data):
        if at + _OBJECT.size > len(data):
            raise _Irregular
        signature, header_size, _, size, kind = _OBJECT.unpack_from(data, at)
        if signature != SIGNATURE or kind != vector.LOG_CONTAINER or header_size != 16 or at + size > len(data):
            raise _Irregular
        stream = rest + _unpacked(data[at + 16 : at + size])
        block, rest = _objects(file, stream, start)
        yield block
        at += size + size % 4
        file.set_progress(at / len(data))
    if rest.strip(b"\0"):
        raise _Irregular
    file.set_progress(1)


def _first_object(data: bytes) -> int:
    if len(data) < vector.FILE_HEADER_SIZE or data[:4] != FILE_SIGNATURE:
        raise _Irregular
    (size,) = struct.unpack_from("<L", data, 4)
    if not vector.FILE_HEADER_SIZE <= size <= len(data):
        raise _Irregular
    return int(size)


def _unpacked(container: bytes) -> bytes:
    if len(container) < _CONTAINER.size:
        raise _Irregular
    method, size = _CONTAINER.unpack_from(container)
    packed = container[_CONTAINER.size :]
    if method == vector.NO_COMPRESSION:
        return packed
    unpacking = zlib.decompressobj()
    try:
        content = unpacking.decompress(packed, LARGEST_CONTAINER)
    except zlib.error:
        raise _Irregular from None
    if not unpacking.eof or len(content) != size or method != vector.ZLIB_DEFLATE:
        raise _Irregular
    return content


def _objects(file: LogFile, stream: bytes, start: float) -> tuple[LogBlock, bytes]:
    """The frames of the whole objects of a stream, and what is left of it."""
    buffer = np.frombuffer(stream + bytes(64), np.uint8)
    begin = _signatures(buffer[: len(stream)])
    empty = LogBlock([], [], Counter())
    if not len(begin):
        if stream.strip(b"\0"):
            raise _Irregular
        return empty, b""
    if begin[-1] + 16 > len(stream):
        begin, left = begin[:-1], int(begin[-1])
    else:
        left = -1
    sizes = _numbers(buffer, begin + 8, "<u4")
    if left < 0 and begin[-1] + sizes[-1] > len(stream):
        begin, sizes, left = begin[:-1], sizes[:-1], int(begin[-1])
    if not len(begin):
        return empty, stream[left:]
    after = begin + sizes + sizes % 4
    following = np.append(begin[1:], left if left >= 0 else after[-1])
    if begin[0] > 3 or (after != following).any():
        raise _Irregular
    rest = stream[left:] if left >= 0 else stream[after[-1] :]
    return _frames(file, buffer, begin, sizes, start), rest


def _signatures(buffer: Bytes) -> Offsets:
    found = buffer[:-3] == SIGNATURE[0]
    for at in range(1, 4):
        found &= buffer[at : len(buffer) - 3 + at] == SIGNATURE[at]
    return np.flatnonzero(found)


def _numbers(buffer: Bytes, starts: Offsets, type_: str) -> npt.NDArray[np.int64]:
    numbers: npt.NDArray[np.int64] = windows_at(buffer, starts, int(type_[-1])).view(type_)[:, 0].astype(np.int64)
    return numbers


def _frames(file: LogFile, buffer: Bytes, begin: Offsets, sizes: Offsets, start: float) -> LogBlock:
    kinds = _numbers(buffer, begin + 12, "<u4")
    header, version = _numbers(buffer, begin + 4, "<u2"), _numbers(buffer, begin + 6, "<u2")
    is_frame = np.isin(kinds, _CLASSIC)
    is_whole = ((version == 1) & (header == 32) | (version == 2) & (header == 40)) & (sizes >= header + 16)
    if np.isin(kinds, _OTHER_FRAMES).any() or (is_frame & ~is_whole).any():
        raise _Irregular
    chosen = begin[is_frame]
    payload = chosen + header[is_frame]
    flags, length = buffer[payload + 2], buffer[payload + 3]
    number = _numbers(buffer, payload + 4, "<u4")
    is_extended = number & EXTENDED > 0
    identifier = number & 0x1FFF_FFFF
    ticks = windows_at(buffer, chosen + 24, 8).view("<u8")[:, 0].astype(np.float64)
    per_second = np.where(_numbers(buffer, chosen + 16, "<u4") == 1, 1e5, 1e9)
    at_us = np.rint((ticks / per_second + start) * 1e6)
    is_good = (length <= CLASSIC_BYTES) & (identifier <= np.where(is_extended, ID_MASK, STANDARD_ID_MASK))
    if not (is_good & (at_us >= 0) & (at_us <= LAST_US)).all():
        raise _Irregular
    is_data = flags & _REMOTE_FLAG == 0
    _count(file, NO_FRAME, len(begin) - len(chosen))
    _count(file, REMOTE_FRAME, len(chosen) - int(is_data.sum()))
    names, channel = np.unique(_numbers(buffer, payload[is_data], "<u2"), return_inverse=True)
    columns = FrameColumns(
        at_us[is_data].astype(np.int64),
        np.where(is_extended, identifier | EXTENDED, identifier)[is_data].astype(np.uint32),
        length[is_data],
        windows_at(buffer, payload[is_data] + 8, CLASSIC_BYTES).copy(),
        np.arange(int(is_data.sum()), dtype=np.int64),
        channel.astype(np.int32),
        tuple(str(int(name)) for name in names),
        np.where(flags[is_data] & 1, TX, RX).astype(np.int8),
    )
    return LogBlock([columns] if len(columns.at_us) else [], [], Counter())


def _count(file: LogFile, reason: str, count: int) -> None:
    if count:
        file.skipped.reasons[reason] += count
