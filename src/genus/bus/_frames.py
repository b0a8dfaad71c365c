"""The frames of older recordings and of spools: how packets are stored in a file, and found again after damage.

A file is a header of eight bytes and then frames: a marker, length and CRC-32 of what is stored (little-endian), and
the stored packet. A damaged frame does not affect others: reading goes on at the next frame that is valid, that is,
whose marker, length and checksum agree. So a file can also be read from the middle.

A packet may contain a whole frame in an attribute of bytes, and nothing but its place tells this frame from others.
Hence the marker of the second format occurs at the beginning of frames and nowhere else. Where its first three bytes
occur in a packet, a zero is stored after them, which the marker does not have there and which readers remove. Neither
can the marker begin in a frame's header: its bytes differ from each other, from 0x93, which every packet begins with,
and from the last byte of a length, which is at most 5; and a checksum that equals the marker is stored inverted.

The first format has a marker of two bytes that may occur in packets. After a damaged frame of it, reading goes on where
that frame ends, by its length or by the structure of its packet, if its checksum confirms this, a valid frame begins
there, or the file ends there; frames before that place may be inside the packet and are not read. Only if nothing
confirms it, because the damage is larger, the next valid frame is taken, which may then be one from inside a packet.
"""

import os
import struct
import zlib
from collections.abc import Iterator
from typing import IO, NamedTuple, Protocol

from genus.errors import RecordingError

FIELDS = struct.Struct("<II")
"""What follows the marker of a frame: length and checksum of the stored packet."""
MAX_SIZE = 1 << 26
"""The most bytes of a packet."""
ARRAY_OF_THREE = b"\x93"
"""The first byte of every packet: a cheaper test than the checksum."""
MAX_VALUES = 100_000
"""The most values of a packet whose structure is followed."""
INVERTED = 0xFFFFFFFF
ESCAPE = b"\x00"


READ_AHEAD = 1 << 17
"""Bytes of a file that are read at once, if fewer are asked for."""


class Octets(Protocol):
    """The bytes of a file: `bytes`, mapped to memory, or read as they are asked for."""

    def __len__(self) -> int: ...

    def __getitem__(self, part: slice, /) -> bytes: ...

    def find(self, what: bytes, start: int = ..., end: int = ..., /) -> int:
        """Return the first position of some bytes in a range; -1 if they are not there."""

    def rfind(self, what: bytes, /) -> int:
        """Return the last position of some bytes; -1 if they are not there."""


class FileBytes:
    """State: the bytes of a file, local or not, as they are asked for; some more are kept for the next question.

    RecordingError if the file was cut since it was opened. Mapped to memory, it would then end the process (SIGBUS).

    Args:
        file: The file; whoever opened it closes it.
        path: Its name, for errors.
    """

    def __init__(self, file: IO[bytes], path: object) -> None:
        self._file, self._path = file, path
        self._size = file.seek(0, os.SEEK_END)
        self._start, self._kept = 0, b""

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, part: slice) -> bytes:
        start, end, _ = part.indices(self._size)
        at = start - self._start
        if end > start and (at < 0 or at + end - start > len(self._kept)):
            self._kept = self._read(start, max(end - start, min(READ_AHEAD, self._size - start)))
            self._start, at = start, 0
        return self._kept[at : at + max(end - start, 0)]

    def _read(self, start: int, size: int) -> bytes:
        self._file.seek(start)
        found = self._file.read(size)
        if len(found) < size:
            left = self._file.seek(0, os.SEEK_END)
            raise RecordingError(f"{self._path} was cut to {left:,} bytes while it was read")
        return found

    def find(self, what: bytes, start: int = 0, end: int | None = None) -> int:
        """Return the first position of some bytes in a range; -1 if they are not there."""
        last = self._size if end is None else min(end, self._size)
        for at in range(start, last, READ_AHEAD):
            found = self[at : min(at + READ_AHEAD + len(what) - 1, last)].find(what)
            if found != -1:
                return at + found
        return -1

    def rfind(self, what: bytes) -> int:
        """Return the last position of some bytes; -1 if they are not there."""
        end = self._size
        while end > 0:
            start = max(end - READ_AHEAD, 0)
            found = self[start : end + len(what) - 1].rfind(what)
            if found != -1:
                return start + found
            end = start
        return -1


class Frame(NamedTuple):
    """A valid frame: its position in the file, and its packet."""

    start: int
    end: int
    packet: bytes


class Gap(NamedTuple):
    """Bytes that are in no frame: damage, unless they are zero bytes long."""

    start: int
    end: int


class FrameFormat:
    """One of the two formats of frames."""

    def __init__(self, header: bytes, marker: bytes, is_escaped: bool) -> None:
        self.header = header
        """The first bytes of a file."""
        self.marker = marker
        """The first bytes of a frame."""
        self.size = len(marker) + FIELDS.size
        """The bytes of a frame before its packet."""
        self.is_escaped = is_escaped
        """Whether the marker never occurs in a packet."""
        self.largest = MAX_SIZE + MAX_SIZE // 3 + 1 if is_escaped else MAX_SIZE
        """The most bytes of a stored packet."""
        self.reserved = int.from_bytes(marker, "little") if is_escaped else -1
        """The checksum that is stored inverted."""
        self._prefix = marker[:-1]
        self._escaped = self._prefix + ESCAPE

    def frame(self, packet: bytes) -> bytes:
        stored = packet
        if self.is_escaped and self._prefix in packet:
            stored = packet.replace(self._prefix, self._escaped)
        return self.marker + FIELDS.pack(len(stored), self.checksum(stored)) + stored

    def checksum(self, stored: bytes) -> int:
        found = zlib.crc32(stored)
        return found if found != self.reserved else found ^ INVERTED

    def packet(self, stored: bytes) -> bytes:
        if self.is_escaped and self._escaped in stored:
            return stored.replace(self._escaped, self._prefix)
        return stored

    def fields_at(self, data: Octets, at: int) -> tuple[int, int]:
        """Return the length and the checksum of the frame at a position."""
        start = at + len(self.marker)
        length, checksum = FIELDS.unpack(data[start : start + FIELDS.size])
        return length, checksum

    def frame_at(self, data: Octets, at: int) -> Frame | None:
        """Return the frame at a position; None if there is no valid one."""
        start = at + self.size
        if start > len(data) or data[at : at + len(self.marker)] != self.marker:
            return None
        length, checksum = self.fields_at(data, at)
        end = start + length
        if length > self.largest or end > len(data) or data[start : start + 1] != ARRAY_OF_THREE:
            return None
        stored = data[start:end]
        return Frame(at, end, self.packet(stored)) if self.checksum(stored) == checksum else None

    def next_frame(self, data: Octets, start: int) -> Frame | None:
        """Return the first valid frame from a position on; None if there is none."""
        at = data.find(self.marker, start)
        while at != -1:
            if (found := self.frame_at(data, at)) is not None:
                return found
            at = data.find(self.marker, at + 1)
        return None


FIRST_FORMAT = FrameFormat(b"genus\x01\r\n", b"\x9e\x47", is_escaped=False)
"""The format of the oldest files."""

FORMAT = FrameFormat(b"genus\x02\n\r", b"\xc1\x9e\xff\x47", is_escaped=True)
"""The second format. Three bytes of its header differ, so that small damage does not turn one into the other."""


def frames_in(data: Octets, form: FrameFormat, start: int = 0) -> Iterator[Frame | Gap]:
    """The frames of a file from a position on, and the gaps between them; a missing header is an empty gap at least."""
    at = start
    if start == 0 and data[: len(form.header)] == form.header:
        at = len(form.header)
    elif start == 0 and form.frame_at(data, 0) is not None:
        yield Gap(0, 0)
    while at < len(data):
        found = form.frame_at(data, at)
        if found is None:
            end = _end_of_damage(data, form, at)
            yield Gap(at, end)
            at = end
        else:
            yield found
            at = found.end


def _end_of_damage(data: Octets, form: FrameFormat, at: int) -> int:
    """Return the position at which to go on after a damaged frame."""
    if not form.is_escaped and (end := _end_of_damaged_frame(data, form, at)) is not None:
        return end
    found = form.next_frame(data, at + 1)
    return len(data) if found is None else found.start


def _end_of_damaged_frame(data: Octets, form: FrameFormat, at: int) -> int | None:
    """Where a damaged frame ends, by the structure of its packet or by its length; None if neither is confirmed."""
    start = at + form.size
    if start >= len(data):
        return None
    length, checksum = form.fields_at(data, at)
    by_structure, by_length = end_of_value(data, start), start + length
    if by_structure is not None and form.checksum(data[start:by_structure]) == checksum:
        return by_structure  # only its marker or length is damaged
    for end in (by_length, by_structure):
        if end is not None and _is_confirmed(data, form, end):
            return end
    if data[at:start].startswith(form.marker) and by_structure is not None and min(by_structure, by_length) > len(data):
        return len(data)  # the file was cut in this frame
    return None


def _is_confirmed(data: Octets, form: FrameFormat, end: int) -> bool:
    """Return whether a frame begins at a position, or the file ends there."""
    return end == len(data) or (end < len(data) and form.frame_at(data, end) is not None)


# -- the structure of packets ------------------------------------------------------------------------------------------


class _Form(NamedTuple):
    """How a msgpack value of one first byte is written: bytes of its count or length, fixed bytes, values inside."""

    length_bytes: int = 0
    fixed: int = 0
    values: int = 0
    """Values inside; with a count, so many for each."""
    is_container: bool = False


def _forms() -> list[_Form | None]:
    forms: list[_Form | None] = [_Form()] * 256
    forms[0x80:0x90] = [_Form(values=2 * count) for count in range(16)]
    forms[0x90:0xA0] = [_Form(values=count) for count in range(16)]
    forms[0xA0:0xC0] = [_Form(fixed=length) for length in range(32)]
    forms[0xC1] = None
    forms[0xC4:0xC7] = forms[0xD9:0xDC] = [_Form(length_bytes=size) for size in (1, 2, 4)]
    forms[0xC7:0xCA] = [_Form(length_bytes=size, fixed=1) for size in (1, 2, 4)]
    forms[0xCA:0xD4] = [_Form(fixed=size) for size in (4, 8, 1, 2, 4, 8, 1, 2, 4, 8)]
    forms[0xD4:0xD9] = [_Form(fixed=1 + size) for size in (1, 2, 4, 8, 16)]
    forms[0xDC:0xDE] = [_Form(length_bytes=size, values=1, is_container=True) for size in (2, 4)]
    forms[0xDE:0xE0] = [_Form(length_bytes=size, values=2, is_container=True) for size in (2, 4)]
    return forms


_FORMS = _forms()


def end_of_value(data: Octets, start: int) -> int | None:
    """Return the position after the msgpack value at a position, which may be beyond the end.

    None if there is no value, or more than MAX_VALUES in it: damage may look like a list that never ends.

    >>> end_of_value(b"\\x93\\x01\\xa2no\\xc4\\x03abc!", 0)
    10
    """
    at, expected = start, 1
    for _ in range(MAX_VALUES):
        if not expected or at >= len(data):
            return len(data) + 1 if expected else at
        form = _FORMS[data[at : at + 1][0]]
        if form is None:
            break
        body = at + 1 + form.length_bytes
        count = int.from_bytes(data[at + 1 : body], "big")
        expected += (count * form.values if form.is_container else form.values) - 1
        at = body + form.fixed + (0 if form.is_container else count)
    return None
