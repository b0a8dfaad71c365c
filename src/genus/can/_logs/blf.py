"""Vector's binary log format (BLF), in columns.

A file is a row of containers, which hold objects; a frame is one object. A container is compressed and has a checksum,
so a damaged one is skipped whole; reading continues with the first object that begins in the next container. A file
that is cut short is read up to the cut. Objects are as in Vector's `binlog_objects.h`, which python-can reads, too:
frames, and texts with the names of channels.
"""

import mmap
import re
import struct
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from genus.can._logs.frames import (
    RX,
    TX,
    Bytes,
    FrameColumns,
    LogBlock,
    Mask,
    Numbers,
    Records,
    blocks,
    fields_at,
    length_of_code,
    numbered,
)
from genus.can._logs.log_file import (
    CUT_SHORT,
    ERROR_FRAME,
    LAST_US,
    NO_FRAME,
    REMOTE_FRAME,
    LogFile,
    SkippedRecords,
    decode_text,
)
from genus.can._wire.frame import CLASSIC_BYTES, FD_BYTES, ID_MASK
from genus.errors import RecordingError

Buffer: TypeAlias = bytes | mmap.mmap

SIGNATURE = b"LOBJ"
FILE_SIGNATURE = b"LOGG"
FILE_HEADER_SIZE = 144
PADDING = 8
"""The most bytes between two objects."""
MAX_FRAME = 256
"""The most bytes of an object that holds a frame."""
MAX_OBJECT = 1 << 20
MAX_CONTAINER = 1 << 26
DAMAGED_OBJECT = "damaged object"
DAMAGED_CONTAINER = "damaged container"

_FILE_HEADER = struct.Struct("<4sL")
_START = struct.Struct("<8H")
_START_AT = 40
_OBJECT = struct.Struct("<4sHHLL")
_CONTAINER = struct.Struct("<H6xL4x")
_TEXT = struct.Struct("<LLL4x")
_UNPACKED, _ZLIB = 0, 2

_MESSAGE, _ERROR, _LOG_CONTAINER, _APP_TEXT, _ERROR_EXT, _MESSAGE_2 = 1, 2, 10, 65, 73, 86
_FD_MESSAGE, _FD_MESSAGE_64, _FD_ERROR_64 = 100, 101, 104
_DATABASE_TEXT, _META_DATA = 1, 2
_CAN_BUS = 1


def _fields(width: int, /, **fields: tuple[Any, int]) -> np.dtype[Any]:
    """Return a structure of so many bytes, with the type of each field and the byte at which it is."""
    formats, offsets = zip(*fields.values(), strict=True)
    return np.dtype({"names": list(fields), "formats": formats, "offsets": offsets, "itemsize": width})


_HEADER = _fields(
    32,
    header_size=("<u2", 4),
    version=("<u2", 6),
    size=("<u4", 8),
    type=("<u4", 12),
    flags=("<u4", 16),
    time=("<u8", 24),
)
_OBJECT_SIZE = _fields(16, size=("<u4", 8))
_CLASSIC = _fields(
    16, channel=("<u2", 0), flags=("u1", 2), dlc=("u1", 3), id=("<u4", 4), data=(("u1", CLASSIC_BYTES), 8)
)
_FD = _fields(
    84, channel=("<u2", 0), flags=("u1", 2), dlc=("u1", 3), id=("<u4", 4), fd=("u1", 13), valid=("u1", 14),
    data=(("u1", FD_BYTES), 20),
)  # fmt: skip
_FD_64 = _fields(
    104, channel=("u1", 0), dlc=("u1", 1), valid=("u1", 2), id=("<u4", 4), fd=("<u4", 12), direction=("u1", 34),
    extra=("u1", 35), data=(("u1", FD_BYTES), 40),
)  # fmt: skip
_PAYLOADS = (((_MESSAGE, _MESSAGE_2), _CLASSIC), ((_FD_MESSAGE,), _FD), ((_FD_MESSAGE_64,), _FD_64))
"""The fields of data frames, by the types of their objects."""
_LEAST_PAYLOADS = {
    _MESSAGE: 16,
    _MESSAGE_2: 16,
    _FD_MESSAGE: 84,
    _FD_MESSAGE_64: 40,
    _ERROR_EXT: 32,
    _ERROR: 0,
    _FD_ERROR_64: 0,
}
"""The least number of bytes after the header of an object that holds a frame, by its type."""
_LEAST = np.full(256, -1)
_LEAST[[*_LEAST_PAYLOADS]] = [*_LEAST_PAYLOADS.values()]
_IS_ERROR = np.zeros(256, np.bool_)
_IS_ERROR[[_ERROR, _ERROR_EXT, _FD_ERROR_64]] = True
_ROOM = 128
"""Zeros after a stream, so that fields can be gathered from its last object."""
_SENT_FLAG, _REMOTE_FLAG = 0x01, 0x80
_FD_64_REMOTE, _FD_64_FD = 0x10, 0x1000


def read_blf(file: LogFile) -> Iterator[LogBlock]:
    data = file.read_all()
    start_us, at = _file_header(data, file.skipped)
    yield from blocks(_frames(file, data, at, start_us))
    file.set_progress(1)


def _file_header(data: Buffer, skipped: SkippedRecords) -> tuple[int, int]:
    """What times count from, and the byte at which objects begin; with a damaged header times count from 1970."""
    if len(data) >= FILE_HEADER_SIZE:
        signature, size = _FILE_HEADER.unpack_from(data)
        if signature == FILE_SIGNATURE and FILE_HEADER_SIZE <= size <= len(data):
            return _start_us(*_START.unpack_from(data, _START_AT)), size
    if data.find(SIGNATURE) == -1:
        raise RecordingError("it is no BLF file: it has neither the header nor an object of one")
    skipped.note("file header damaged: times count from 1970", "byte 0")
    return 0, data.find(SIGNATURE)


def _start_us(year: int, month: int, _: int, day: int, hour: int, minute: int, second: int, millis: int) -> int:
    try:
        start = datetime(year, month, day, hour, minute, second, 1000 * millis, UTC)
    except ValueError:
        return 0
    return round(start.timestamp() * 1000) * 1000


# -- objects to frames -------------------------------------------------------------------------------------------------


class _Objects(NamedTuple):
    """The objects of a container, with the bytes at which they begin, and the byte of the file where it begins."""

    buffer: Bytes
    begin: Numbers
    at: int

    @property
    def location(self) -> str:
        return f"container at byte {self.at}"


class _ChannelNames:
    """State: the names of CAN channels by their numbers, as texts between the frames give them."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self._meta_data: dict[int, str] = {}

    def read(self, text: bytes) -> None:
        """Read the payload of an object of text: names of databases, or a part of the description in XML."""
        if len(text) < _TEXT.size:
            return
        source, details, size = _TEXT.unpack_from(text)
        content = decode_text(text[_TEXT.size : _TEXT.size + size].partition(b"\0")[0])
        if source == _DATABASE_TEXT and details >> 16 & 0xFF == _CAN_BUS:
            paths_and_names = content.split(";")
            if len(paths_and_names) > 1 and paths_and_names[1]:
                self._names.setdefault(details >> 8 & 0xFF, paths_and_names[1])
        elif source == _META_DATA:
            whole = (self._meta_data.get(details >> 24, "") + content)[-MAX_OBJECT:]
            self._meta_data[details >> 24] = whole
            for found in re.finditer(r"<channel\s([^>]*)>", whole):
                values = dict(re.findall(r'(\w+)="([^"]*)"', found[1]))
                if values.get("type") == "CAN" and values.get("network") and values.get("number", "").isdecimal():
                    self._names[int(values["number"])] = values["network"]

    def of(self, numbers: list[int]) -> tuple[str, ...]:
        names = list(self._names.values())
        return tuple(
            self._names[each] if names.count(self._names.get(each, "")) == 1 else str(each) for each in numbers
        )


def _frames(file: LogFile, data: Buffer, at: int, start_us: int) -> Iterator[list[FrameColumns]]:
    names, done = _ChannelNames(), 0
    for objects in _objects(file, data, at):
        header = fields_at(objects.buffer, objects.begin, _HEADER)
        types = np.minimum(header["type"], len(_LEAST) - 1)
        payload = objects.begin + header["header_size"]
        is_known, is_whole = _whole_frames(header, types)
        _count(file.skipped, NO_FRAME, ~is_known)
        for _ in range(int((is_known & ~is_whole).sum())):
            file.skipped.note(DAMAGED_OBJECT, objects.location)
        _count(file.skipped, ERROR_FRAME, is_whole & _IS_ERROR[types])
        for row in np.flatnonzero(types == _APP_TEXT).tolist():
            end = objects.begin[row] + header["size"][row]
            names.read(objects.buffer[payload[row] : end].tobytes())
        is_data, read = is_whole & ~_IS_ERROR[types], list[tuple[Numbers, _Payloads]]()
        for kinds, fields in _PAYLOADS:
            rows = np.flatnonzero(is_whole & ((types == kinds[0]) | (types == kinds[-1])))
            if len(rows):
                payloads = _Payloads.of(fields_at(objects.buffer, payload[rows], fields), header[rows])
                is_data[rows] = ~payloads.is_remote
                read.append((rows, payloads))
        position, at_us = done + np.cumsum(is_data) - 1, _micros(header, start_us)
        done += int(is_data.sum())
        found = (each.frames(file.skipped, objects, at_us[rows], position[rows], names) for rows, each in read)
        yield list(chain.from_iterable(found))


def _whole_frames(header: npt.NDArray[Any], types: Numbers) -> tuple[Mask, Mask]:
    header_size, version, least = header["header_size"], header["version"], _LEAST[types]
    is_known = least >= 0
    is_header = (version == 1) & (header_size == 32) | (version == 2) & (header_size == 40)
    return is_known, is_known & is_header & (header["size"] >= header_size + least)


def _micros(header: npt.NDArray[Any], start_us: int) -> Numbers:
    """Times, which count 10 microseconds or nanoseconds; too late ones become one after `LAST_US`."""
    ticks = header["time"]
    micros = np.where(header["flags"] == 1, np.minimum(ticks, LAST_US) * 10, ticks // 1000 + (ticks % 1000 >= 500))
    return np.minimum(micros, LAST_US + 1).astype(np.int64) + start_us


class _Payloads(NamedTuple):
    """What objects of one type say about their frames."""

    columns: npt.NDArray[Any]
    length: Numbers
    fd: Mask
    is_remote: Mask
    is_sent: Mask
    data: Bytes
    are_lengths_good: Mask

    @classmethod
    def of(cls, columns: npt.NDArray[Any], header: npt.NDArray[Any]) -> "_Payloads":
        names, data = columns.dtype.names or (), columns["data"]
        if "valid" not in names:
            flags, length = columns["flags"], np.minimum(columns["dlc"], CLASSIC_BYTES).astype(np.int64)
            no, yes = np.zeros(len(columns), np.bool_), np.ones(len(columns), np.bool_)
            return cls(columns, length, no, flags & _REMOTE_FLAG > 0, flags & _SENT_FLAG > 0, data, yes)
        if "flags" in names:
            fd, is_remote = columns["fd"] & 1 > 0, columns["flags"] & _REMOTE_FLAG > 0
            is_sent, length = columns["flags"] & _SENT_FLAG > 0, np.minimum(columns["valid"], FD_BYTES).astype(np.int64)
        else:
            fd, is_remote = columns["fd"] & _FD_64_FD > 0, columns["fd"] & _FD_64_REMOTE > 0
            is_sent, length = columns["direction"] > 0, columns["valid"].astype(np.int64)
            # Bytes that are counted but not there are zero, as Vector's own tools have it.
            end = np.where(columns["extra"] > 0, columns["extra"], header["size"]).astype(np.int64)
            stored = end - header["header_size"] - _LEAST_PAYLOADS[_FD_MESSAGE_64]
            data = np.where(np.arange(FD_BYTES) < stored[:, np.newaxis], data, 0).astype(np.uint8)
        fd = fd | (length > CLASSIC_BYTES)
        are_good = length == length_of_code(columns["dlc"], fd)
        return cls(columns, length, fd, is_remote, is_sent, data, are_good)

    def frames(
        self, skipped: SkippedRecords, objects: _Objects, at_us: Numbers, position: Numbers, names: _ChannelNames
    ) -> list[FrameColumns]:
        _count(skipped, REMOTE_FRAME, self.is_remote)
        kept = np.flatnonzero(~self.is_remote)
        identifier = self.columns["id"][kept].astype(np.int64)
        channels, channel = numbered(self.columns["channel"][kept])
        records = Records(
            at_us[kept],
            identifier & ID_MASK,
            identifier >> 31 > 0,
            self.length[kept],
            self.fd[kept],
            self.data[kept],
            position[kept],
            channel,
            names.of(channels),
            np.where(self.is_sent[kept], TX, RX).astype(np.int8),
        )
        return records.frames(skipped, f"{objects.location}, frame", self.are_lengths_good[kept])


def _count(skipped: SkippedRecords, reason: str, which: Mask) -> None:
    if count := int(which.sum()):
        skipped.reasons[reason] += count


# -- containers and objects --------------------------------------------------------------------------------------------


def _objects(file: LogFile, data: Buffer, start: int) -> Iterator[_Objects]:
    """Yield the objects of all containers, including those that begin in one and end in the next."""
    rest, at = b"", start
    for at, content in _contents(file, data, start):
        stream = rest + (content or b"")
        begin, end = _split(stream, at, file.skipped, carried=len(rest))
        rest = b"" if content is None else stream[end:]
        yield _Objects(np.frombuffer(stream + bytes(_ROOM), np.uint8), begin, at)
    if SIGNATURE in rest and not file.is_cut:
        file.skipped.note(CUT_SHORT, f"byte {len(data)}")
    begin, _ = _split(rest, at, file.skipped, carried=len(rest))
    yield _Objects(np.frombuffer(rest + bytes(_ROOM), np.uint8), begin, at)


def _split(stream: bytes, at: int, skipped: SkippedRecords, carried: int) -> tuple[Numbers, int]:
    """Return where the objects of a stream begin, and its rest, which may be one that ends in the next container.

    The first `carried` bytes are such a rest of the last container. An object that begins there must end in this
    container; otherwise its size is wrong.
    """
    found = _split_regular(stream, carried)
    if found is not None:
        return found
    begins, position, damaged = list[int](), 0, False
    while (begin := stream.find(SIGNATURE, position)) != -1 and begin + _OBJECT.size <= len(stream):
        _, _, _, size, type_ = _OBJECT.unpack_from(stream, begin)
        end = begin + size
        damaged = damaged or begin > position + PADDING
        if end > len(stream) and begin >= carried and size <= MAX_OBJECT:
            break
        if not _is_plausible(stream, begin, end, type_):
            position, damaged = begin + 1, True
            continue
        if damaged:
            skipped.note(DAMAGED_OBJECT, f"container at byte {at}")
        begins.append(begin)
        position, damaged = end, False
    return np.array(begins, np.int64), begin if begin != -1 else max(position, len(stream) - len(SIGNATURE))


def _split_regular(stream: bytes, carried: int) -> tuple[Numbers, int] | None:
    """Return the same of a stream where all objects follow one another; None if any does not."""
    words = np.frombuffer(stream, np.uint8)
    is_begin = words[: max(len(words) - _OBJECT.size + 1, 0)] == SIGNATURE[0]
    for offset in range(1, len(SIGNATURE)):
        is_begin &= words[offset : offset + len(is_begin)] == SIGNATURE[offset]
    begin = np.flatnonzero(is_begin).astype(np.int64)
    cut = stream.find(SIGNATURE, max(len(is_begin), int(begin[-1]) + 1 if len(begin) else 0))
    if not len(begin):
        return None
    size = fields_at(words, begin, _OBJECT_SIZE)["size"].astype(np.int64)
    following = len(stream) if cut == -1 else cut
    if begin[-1] + size[-1] > len(stream) and carried <= begin[-1] and size[-1] <= MAX_OBJECT:
        following = cut = int(begin[-1])
        begin, size = begin[:-1], size[:-1]
    gaps = np.append(begin[1:], following) - begin - size
    if not len(begin) or begin[0] > PADDING or (size < _OBJECT.size).any() or ((gaps < 0) | (gaps > PADDING)).any():
        return None
    return begin, cut if cut != -1 else int(begin[-1] + size[-1])


def _is_plausible(stream: bytes, begin: int, end: int, type_: int) -> bool:
    """Whether an object can have the size it states: another follows, or it is short and none begins inside it."""
    if not begin + _OBJECT.size <= end <= len(stream):
        return False
    reach = end + PADDING + len(SIGNATURE)
    if reach > len(stream) or stream.find(SIGNATURE, end, reach) != -1:
        return True
    is_short = type_ in _LEAST_PAYLOADS and end - begin <= MAX_FRAME
    return is_short and stream.find(SIGNATURE, begin + 1, end) == -1


def _contents(file: LogFile, data: Buffer, start: int) -> Iterator[tuple[int, bytes | None]]:
    """Yield the content of each container with the byte at which it begins; None where something in between is lost."""
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


def _content(file: LogFile, at: int, found: bytes, type_: int, *, is_cut: bool) -> Iterator[tuple[int, bytes | None]]:
    """The content of a container, or an object outside of one; an incomplete content only at the end of a cut file."""
    if type_ != _LOG_CONTAINER:
        yield from ((at, None), (at, found), (at, None))
        return
    content, is_whole = _decompress(found[_OBJECT.size :])
    file.is_cut = file.is_cut or is_cut
    if is_whole or is_cut:
        yield at, content
    if not is_whole:
        file.skipped.note(CUT_SHORT if is_cut and content else DAMAGED_CONTAINER, f"byte {at}")
        yield at, None


def _end_of(data: Buffer, begin: int, size: int) -> int:
    """The end of a container: the one it states if another follows there, else the start of the next, or the end."""
    end = begin + max(size, _OBJECT.size)
    reach = end + PADDING + len(SIGNATURE)
    if end <= len(data) and (reach > len(data) or data.find(SIGNATURE, end, reach) != -1):
        return end
    following = data.find(SIGNATURE, begin + 1)
    return following if following != -1 else len(data)


def _decompress(container: bytes) -> tuple[bytes | None, bool]:
    """Return the decompressed content of a container, and whether it is complete; None if its checksum is wrong."""
    if len(container) < _CONTAINER.size:
        return None, False
    method, size = _CONTAINER.unpack_from(container)
    packed = container[_CONTAINER.size :]
    if method == _UNPACKED:
        return packed, len(packed) >= size
    unpacking = zlib.decompressobj()
    try:
        content = unpacking.decompress(packed, MAX_CONTAINER) if method == _ZLIB else None
    except zlib.error:
        return None, False
    return content, unpacking.eof
