"""Captures of network tools (pcap, pcapng) with frames of SocketCAN, in columns.

A packet is a `can_frame` with its identifier in network order (link type 227), or the same behind a header of Linux's
cooked capture (link types 113 and 276), where some tools wrote the identifier in the order of their machine. Cooked
headers and the flags of pcapng say whether a packet was sent; pcapng has the name of its interface, and the second kind
of cooked header the number of one.
"""

import mmap
import struct
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from genus.can._logs.frames import (
    FRAMES_AT_ONCE,
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
    numbered,
)
from genus.can._logs.log_file import (
    BAD_TIME,
    CUT_SHORT,
    ERROR_FRAME,
    LAST_US,
    LENGTHS_DISAGREE,
    NO_FRAME,
    REMOTE_FRAME,
    LogFile,
    SkippedRecords,
)
from genus.can._wire.frame import CLASSIC_BYTES, FD_BYTES, ID_MASK, STANDARD_ID_MASK
from genus.errors import RecordingError

Buffer: TypeAlias = bytes | mmap.mmap

MAX_BLOCK = 1 << 24
SOCKETCAN, COOKED, COOKED_2 = 227, 113, 276
_HEADER_SIZES = {SOCKETCAN: 0, COOKED: 16, COOKED_2: 20}
_PROTOCOL_AT = {COOKED: 14, COOKED_2: 0}
_CAN_PROTOCOLS = (0x000C, 0x000D)
"""CAN and CAN FD in the headers of cooked captures; `0x000E`, CAN XL, is not read."""
_OUTGOING = 4
_EXTENDED, _REMOTE, _ERROR = 0x8000_0000, 0x4000_0000, 0x2000_0000
_FD_FLAG = 0x04
_MAGIC = {
    b"\xa1\xb2\xc3\xd4": (">", 1),
    b"\xd4\xc3\xb2\xa1": ("<", 1),
    b"\xa1\xb2\x3c\x4d": (">", 1000),
    b"\x4d\x3c\xb2\xa1": ("<", 1000),
}
_SECTION = b"\x0a\x0d\x0d\x0a"
_SECTION_KIND, _INTERFACE, _ENHANCED, _SIMPLE = 0x0A0D0D0A, 1, 6, 3
_NAME_OPTION, _FLAGS_OPTION, _UNITS_OPTION = 2, 2, 9


class _Interface(NamedTuple):
    """An interface of a capture: its link type, its name, and how many units of time make a second."""

    link: int
    name: str | None
    units: int


class _Packets(NamedTuple):
    interface: _Interface
    number: Numbers
    at_us: Numbers
    start: Numbers
    """The byte at which each begins."""
    size: Numbers
    direction: Numbers
    """As the capture itself says it."""


def read_pcap(file: LogFile) -> Iterator[LogBlock]:
    data = file.read_all()
    packets = _pcapng(file, data) if data[:4] == _SECTION else _pcap(file, data)
    buffer = np.frombuffer(data, np.uint8)
    yield from blocks(_frames(file.skipped, buffer, packets))
    file.set_progress(1)


# -- packets to frames -------------------------------------------------------------------------------------------------


def _frames(skipped: SkippedRecords, buffer: Bytes, found: Iterator[_Packets]) -> Iterator[list[FrameColumns]]:
    order: str | None = None
    for packets in found:
        link = packets.interface.link
        size = packets.size - _HEADER_SIZES.get(link, 0)
        is_can = np.full(len(size), link in _HEADER_SIZES)
        if link in _PROTOCOL_AT:
            is_can &= size >= 0
            protocol = _gather(buffer, packets.start + _PROTOCOL_AT[link], ">u2", is_can)
            is_can &= np.isin(protocol, _CAN_PROTOCOLS)
        is_long = size >= 8
        _note(skipped, NO_FRAME, ~is_can, packets.number)
        _note(skipped, LENGTHS_DISAGREE, is_can & ~is_long, packets.number)
        rows = np.flatnonzero(is_can & is_long)
        body = packets.start[rows] + _HEADER_SIZES.get(link, 0)
        order = order or _order(buffer, body)
        yield _block(skipped, buffer, packets, rows, body, order)


def _block(
    skipped: SkippedRecords, buffer: Bytes, packets: _Packets, rows: Numbers, body: Numbers, order: str
) -> list[FrameColumns]:
    identifier = fields_at(buffer, body, np.dtype(f"{order}u4")).astype(np.int64)
    for reason, which in (
        (ERROR_FRAME, identifier & _ERROR > 0),
        (REMOTE_FRAME, identifier & (_ERROR | _REMOTE) == _REMOTE),
    ):
        if which.any():
            skipped.reasons[reason] += int(which.sum())
    is_data = identifier & (_ERROR | _REMOTE) == 0
    rows, body, identifier = rows[is_data], body[is_data], identifier[is_data]
    if not len(rows):
        return []
    length, size = buffer[body + 4].astype(np.int64), packets.start[rows] + packets.size[rows] - body
    fd = (buffer[body + 5] & _FD_FLAG > 0) | (size == 8 + FD_BYTES) | (length > CLASSIC_BYTES)
    channel, channels, direction = _origin(buffer, packets, rows)
    records = Records(
        packets.at_us[rows],
        identifier & ID_MASK,
        identifier & _EXTENDED > 0,
        length,
        fd,
        _payloads(buffer, body + 8, length),
        packets.number[rows],
        channel,
        channels,
        direction.astype(np.int8),
    )
    return records.frames(skipped, "packet", length <= size - 8)


def _payloads(buffer: Bytes, start: Numbers, length: Numbers) -> Bytes:
    width = CLASSIC_BYTES if length.max() <= CLASSIC_BYTES else FD_BYTES
    columns = np.arange(width)
    reach = np.minimum(start[:, np.newaxis] + columns, len(buffer) - 1)
    return np.where(columns < length[:, np.newaxis], buffer[reach], 0).astype(np.uint8)


def _origin(
    buffer: Bytes, packets: _Packets, rows: Numbers
) -> tuple[npt.NDArray[np.int32], tuple[str | None, ...], Numbers]:
    (link, name, _), start, direction = packets.interface, packets.start[rows], packets.direction[rows]
    channel: npt.NDArray[np.int32] = np.zeros(len(rows), np.int32)
    channels: tuple[str | None, ...] = (name,)
    if link == COOKED:
        direction = np.where(buffer[start + 1] == _OUTGOING, TX, RX)
    elif link == COOKED_2:
        direction = np.where(buffer[start + 10] == _OUTGOING, TX, RX)
        if name in (None, "any"):
            numbers, channel = numbered(fields_at(buffer, start + 4, np.dtype(">u4")))
            channels = tuple(str(each) for each in numbers)
    return channel, channels, direction


def _gather(buffer: Bytes, starts: Numbers, kind: str, where: Mask) -> Numbers:
    found = np.zeros(len(starts), np.int64)
    found[where] = fields_at(buffer, starts[where], np.dtype(kind))
    return found


def _order(buffer: Bytes, body: Numbers) -> str:
    """Return the byte order of identifiers: the one in which more of them are possible, network order if both are."""

    def possible(order: str) -> int:
        identifier = fields_at(buffer, body, np.dtype(f"{order}u4"))
        is_standard = identifier & ID_MASK <= STANDARD_ID_MASK
        return int((is_standard | (identifier & (_EXTENDED | _ERROR) > 0)).sum())

    return max((">", "<"), key=possible)


def _note(skipped: SkippedRecords, reason: str, which: Mask, number: Numbers) -> None:
    for each in number[which].tolist():
        skipped.note(reason, f"packet {each + 1}")


# -- packets -----------------------------------------------------------------------------------------------------------


def _pcap(file: LogFile, data: Buffer) -> Iterator[_Packets]:
    if len(data) < 24 or data[:4] not in _MAGIC:
        raise RecordingError("it is no capture: it has not the header of one")
    order, divisor = _MAGIC[bytes(data[:4])]
    interface = _Interface(struct.unpack_from(f"{order}I", data, 20)[0] & 0xFFFF, None, 0)
    header, buffer = struct.Struct(f"{order}8xI4x"), np.frombuffer(data, np.uint8)
    at, number, end = 24, 0, len(data)
    while at < end:
        starts = list[int]()
        while at + header.size <= end and len(starts) < FRAMES_AT_ONCE:
            (size,) = header.unpack_from(data, at)
            if at + header.size + size > end or size > MAX_BLOCK:
                break
            starts.append(at)
            at += header.size + size
        start = np.array(starts, np.int64)
        fields = fields_at(buffer, start, np.dtype((f"{order}u4", 4)))
        at_us = fields[:, 0].astype(np.int64) * 1_000_000 + fields[:, 1] // divisor
        numbers, nothing = np.arange(number, number + len(start)), np.zeros(len(start), np.int64)
        number += len(start)
        file.set_progress(at / end)
        yield _Packets(interface, numbers, at_us, start + header.size, fields[:, 2].astype(np.int64), nothing)
        if len(starts) < FRAMES_AT_ONCE and at < end:
            if not file.is_cut:
                file.skipped.note(CUT_SHORT, f"byte {at}")
            return


def _pcapng(file: LogFile, data: Buffer) -> Iterator[_Packets]:
    buffer, order, interfaces = np.frombuffer(data, np.uint8), "<", list[_Interface]()
    head, at, end, number = struct.Struct("<II"), 0, len(data), 0
    starts, numbers = list[int](), list[int]()
    while at + 12 <= end:
        kind, size = head.unpack_from(data, at)
        if starts and (kind == _SECTION_KIND or len(starts) == FRAMES_AT_ONCE):
            yield from _enhanced(file.skipped, buffer, starts, numbers, order, interfaces)
            starts, numbers = [], []
            file.set_progress(at / end)
        if kind == _SECTION_KIND:
            order, interfaces = ">" if data[at + 8 : at + 12] == b"\x1a\x2b\x3c\x4d" else "<", []
            head = struct.Struct(f"{order}II")
            kind, size = head.unpack_from(data, at)
        if not 12 <= size <= MAX_BLOCK or at + size > end:
            break
        if kind == _ENHANCED:
            starts.append(at)
            numbers.append(number)
            number += 1
        elif kind == _SIMPLE:
            number += 1
            file.skipped.note(BAD_TIME, f"packet {number}")
        elif kind == _INTERFACE and size >= 20:
            interfaces.append(_interface(bytes(data[at + 8 : at + size - 4]), order))
        at += size
    yield from _enhanced(file.skipped, buffer, starts, numbers, order, interfaces)
    if at < end and not file.is_cut:
        file.skipped.note(CUT_SHORT, f"byte {at}")


def _enhanced(
    skipped: SkippedRecords,
    buffer: Bytes,
    starts: list[int],
    numbers: list[int],
    order: str,
    interfaces: list[_Interface],
) -> Iterator[_Packets]:
    start, number = np.array(starts, np.int64), np.array(numbers, np.int64)
    block = fields_at(buffer, start + 4, np.dtype(f"{order}u4")).astype(np.int64)
    is_whole = block >= 32
    fields = np.zeros((len(start), 4), np.int64)
    fields[is_whole] = fields_at(buffer, start[is_whole] + 8, np.dtype((f"{order}u4", 4)))
    which, high, low, size = fields.T
    is_whole &= (which < len(interfaces)) & (size <= block - 32)
    _note(skipped, LENGTHS_DISAGREE, ~is_whole, number)
    for index, interface in enumerate(interfaces):
        rows = np.flatnonzero(is_whole & (which == index))
        if len(rows):
            at_us = _micros(high[rows], low[rows], interface.units)
            options = start[rows] + 28 + (size[rows] + 3) // 4 * 4
            direction = _flagged(buffer, options, start[rows] + block[rows] - 4, order)
            yield _Packets(interface, number[rows], at_us, start[rows] + 28, size[rows], direction)


def _micros(high: Numbers, low: Numbers, units: int) -> Numbers:
    if units in (1_000_000, 1_000_000_000) and not (high >> 31).any():
        return (high << 32 | low) // (units // 1_000_000)
    ticks = zip(high.tolist(), low.tolist(), strict=True)
    return np.array([min((first << 32 | last) * 1_000_000 // units, LAST_US + 1) for first, last in ticks], np.int64)


def _flagged(buffer: Bytes, options: Numbers, end: Numbers, order: str) -> Numbers:
    """Return the directions that options of packets tell: 1 for inbound, 2 for outbound, as in columns."""
    found, option = np.zeros(len(options), np.int64), np.dtype((f"{order}u2", 2))
    left = np.flatnonzero(options + 8 <= end)
    while len(left):
        code, size = fields_at(buffer, options[left], option).astype(np.int64).T
        flags = left[(code == _FLAGS_OPTION) & (size == 4)]
        found[flags] = fields_at(buffer, options[flags] + 4, np.dtype(f"{order}u4")) & 3
        options = options.copy()
        options[left] += 4 + (size + 3) // 4 * 4
        left = left[(code > 0) & (code != _FLAGS_OPTION)]
        left = left[options[left] + 8 <= end[left]]
    return np.where(found == 3, 0, found)


def _interface(body: bytes, order: str) -> _Interface:
    (link,) = struct.unpack_from(f"{order}H", body)
    name, units, at = None, 1_000_000, 8
    while at + 4 <= len(body):
        code, size = struct.unpack_from(f"{order}HH", body, at)
        value = body[at + 4 : at + 4 + size]
        if code == 0:
            break
        if code == _NAME_OPTION:
            name = value.decode("utf-8", "replace").rstrip("\0") or None
        if code == _UNITS_OPTION and value:
            units = 1 << (value[0] & 0x7F) if value[0] & 0x80 else 10 ** value[0]
        at += 4 + (size + 3) // 4 * 4
    return _Interface(link, name, units)
