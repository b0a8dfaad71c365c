"""Captures of network tools (pcap, pcapng) with frames of SocketCAN.

A packet is a `can_frame` with its identifier in network order (link type 227), or the same behind a header of Linux's
cooked capture (link types 113 and 276), where some tools wrote the identifier in the order of their machine.
"""

import mmap
import struct
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from genus.can._logs.frames import LogBlock, LoggedFrame, block_of
from genus.can._logs.log_file import (
    BAD_IDENTIFIER,
    BAD_TIME,
    CUT_SHORT,
    ERROR_FRAME,
    LENGTHS_DISAGREE,
    NO_FRAME,
    REMOTE_FRAME,
    LogFile,
    logged_frame,
)
from genus.can._wire.frame import CLASSIC_BYTES, FD_BYTES, ID_MASK, STANDARD_ID_MASK, Frame
from genus.errors import RecordingError

Bytes: TypeAlias = bytes | mmap.mmap

FRAMES_AT_ONCE = 1 << 16
LARGEST_BLOCK = 1 << 24
SOCKETCAN, COOKED, COOKED_2 = 227, 113, 276
_EXTENDED, _REMOTE, _ERROR = 0x8000_0000, 0x4000_0000, 0x2000_0000
_FD_FLAG = 0x04
_PROTOCOLS = (0x000C, 0x000D)
"""CAN and CAN FD in the headers of cooked captures; `0x000E`, CAN XL, is not read."""
_MAGIC = {
    b"\xa1\xb2\xc3\xd4": (">", 1),
    b"\xd4\xc3\xb2\xa1": ("<", 1),
    b"\xa1\xb2\x3c\x4d": (">", 1000),
    b"\x4d\x3c\xb2\xa1": ("<", 1000),
}
_SECTION, _INTERFACE, _ENHANCED, _SIMPLE = 0x0A0D0D0A, 1, 6, 3


class Packet(NamedTuple):
    """A packet of a capture."""

    number: int
    at_us: int | None
    link: int
    channel: str | None
    data: bytes


def read_pcap(file: LogFile) -> Iterator[LogBlock]:
    """The frames of a capture; positions count packets."""
    data = file.read_all()
    packets = _pcapng(file, data) if data[:4] == b"\x0a\x0d\x0d\x0a" else _pcap(file, data)
    waiting: list[Packet] = []
    order: str | None = None
    for packet in packets:
        waiting.append(packet)
        if len(waiting) == FRAMES_AT_ONCE:
            order = order or _order(waiting)
            yield _block(file, waiting, order)
            waiting = []
    yield _block(file, waiting, order or _order(waiting))
    file.set_progress(1)


def _block(file: LogFile, packets: list[Packet], order: str) -> LogBlock:
    frames: list[tuple[int, LoggedFrame]] = []
    for packet in packets:
        frame, location = _frame(packet, order), f"packet {packet.number + 1}"
        found = logged_frame(frame, packet.at_us, packet.channel, location, file.skipped)
        frames += [(packet.number, each) for each in found]
    return block_of(frames)


def _body(packet: Packet) -> bytes | None:
    """The frame in a packet; None if it has something else."""
    data = packet.data
    if packet.link == SOCKETCAN:
        return data
    if packet.link == COOKED and len(data) >= 16 and int.from_bytes(data[14:16]) in _PROTOCOLS:
        return data[16:]
    if packet.link == COOKED_2 and len(data) >= 20 and int.from_bytes(data[:2]) in _PROTOCOLS:
        return data[20:]
    return None


def _order(packets: list[Packet]) -> str:
    """The byte order of identifiers: the one in which more of them are possible, network order if both are."""
    bodies = [body for packet in packets if (body := _body(packet)) is not None and len(body) >= 8]
    return max(
        (">", "<"), key=lambda order: sum(_is_possible(*struct.unpack_from(f"{order}I", body)) for body in bodies)
    )


def _is_possible(identifier: int) -> bool:
    return bool(identifier & _EXTENDED) or identifier & ID_MASK <= STANDARD_ID_MASK or bool(identifier & _ERROR)


def _frame(packet: Packet, order: str) -> Frame | str:
    body = _body(packet)
    if body is None:
        return NO_FRAME
    if len(body) < 8:
        return LENGTHS_DISAGREE
    (identifier,) = struct.unpack_from(f"{order}I", body)
    length, flags = body[4], body[5]
    if identifier & _ERROR:
        return ERROR_FRAME
    if identifier & _REMOTE:
        return REMOTE_FRAME
    extended = bool(identifier & _EXTENDED)
    number = identifier & ID_MASK
    if not extended and number > STANDARD_ID_MASK:
        return BAD_IDENTIFIER
    fd = bool(flags & _FD_FLAG) or len(body) == 8 + FD_BYTES or length > CLASSIC_BYTES
    if length > (FD_BYTES if fd else CLASSIC_BYTES) or len(body) < 8 + length:
        return LENGTHS_DISAGREE
    return Frame(number, body[8 : 8 + length], fd, extended)


# -- packets -----------------------------------------------------------------------------------------------------------


def _pcap(file: LogFile, data: Bytes) -> Iterator[Packet]:
    if len(data) < 24 or data[:4] not in _MAGIC:
        raise RecordingError("it is no capture: it has not the header of one")
    order, divisor = _MAGIC[bytes(data[:4])]
    link = struct.unpack_from(f"{order}I", data, 20)[0] & 0xFFFF
    header = struct.Struct(f"{order}IIII")
    at, number = 24, 0
    while at + header.size <= len(data):
        seconds, fraction, size, _ = header.unpack_from(data, at)
        end = at + header.size + size
        if end > len(data) or size > LARGEST_BLOCK:
            file.skipped.note(CUT_SHORT, f"byte {at}")
            return
        yield Packet(number, seconds * 1_000_000 + fraction // divisor, link, None, bytes(data[at + header.size : end]))
        at, number = end, number + 1
    if at < len(data) and not file.is_cut:
        file.skipped.note(CUT_SHORT, f"byte {at}")


class _Interface(NamedTuple):
    """An interface of a capture: its link type, its name, and how many units of time make a second."""

    link: int
    name: str | None
    units: int


def _pcapng(file: LogFile, data: Bytes) -> Iterator[Packet]:
    order, interfaces = "<", list[_Interface]()
    at, number = 0, 0
    while at + 12 <= len(data):
        if data[at : at + 4] == b"\x0a\x0d\x0d\x0a":
            order, interfaces = ">" if data[at + 8 : at + 12] == b"\x1a\x2b\x3c\x4d" else "<", []
        kind, size = struct.unpack_from(f"{order}II", data, at)
        if not 12 <= size <= LARGEST_BLOCK or at + size > len(data):
            file.skipped.note(CUT_SHORT, f"byte {at}")
            return
        body = bytes(data[at + 8 : at + size - 4])
        at += size
        if kind == _INTERFACE and len(body) >= 8:
            interfaces.append(_interface(body, order))
        elif kind in (_ENHANCED, _SIMPLE):
            packet = _packet(number, kind, body, order, interfaces)
            number += 1
            if packet is None:
                file.skipped.note(BAD_TIME if kind == _SIMPLE else LENGTHS_DISAGREE, f"packet {number}")
            else:
                yield packet
    if at < len(data) and not file.is_cut:
        file.skipped.note(CUT_SHORT, f"byte {at}")


def _packet(number: int, kind: int, body: bytes, order: str, interfaces: list[_Interface]) -> Packet | None:
    """The packet of a block; None if it is damaged, or has no time."""
    if kind == _SIMPLE or len(body) < 20:
        return None
    which, high, low, size, _ = struct.unpack_from(f"{order}5I", body)
    if which >= len(interfaces) or 20 + size > len(body):
        return None
    link, name, units = interfaces[which]
    return Packet(number, (high << 32 | low) * 1_000_000 // units, link, name, body[20 : 20 + size])


def _interface(body: bytes, order: str) -> _Interface:
    (link,) = struct.unpack_from(f"{order}H", body)
    name, units, at = None, 1_000_000, 8
    while at + 4 <= len(body):
        code, size = struct.unpack_from(f"{order}HH", body, at)
        value = body[at + 4 : at + 4 + size]
        if code == 0:
            break
        if code == 2:
            name = value.decode("utf-8", "replace").rstrip("\0") or None
        if code == 9 and value:
            units = 1 << (value[0] & 0x7F) if value[0] & 0x80 else 10 ** value[0]
        at += 4 + (size + 3) // 4 * 4
    return _Interface(link, name, units)
