"""What the readers of all log formats share: a frame that was seen, what was passed over, and the bytes of a file."""

import gzip
import io
import logging
import math
import mmap
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, NamedTuple

import can
from genus.can._wire.frame import ID_MASK, Frame

# Warnings that libraries log about what is counted and reported here anyway.


@contextmanager
def quiet(library: str) -> Iterator[None]:
    """No warnings of a library while the block runs; errors are still logged."""
    logger = logging.getLogger(library)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


PLACES_KEPT = 100
"""How many places of damage are remembered; all are counted."""
CHUNK = 1 << 18
LAST_US = 253_402_300_799_999_999
"""The last microsecond of the year 9999: no event has a later time."""

ERROR_FRAME = "error frame"
REMOTE_FRAME = "remote frame"
NO_FRAME = "no CAN frame"
HARMLESS = (ERROR_FRAME, REMOTE_FRAME)
"""Reasons that are no damage."""
BAD_TIME = "time out of range"
CUT_SHORT = "file cut short"

_STANDARD_MASK = 0x7FF


class Logged(NamedTuple):
    """A frame in a log: when it was seen, in microseconds since 1970 (UTC), and on which channel, if the log says."""

    at_us: int
    channel: str | None
    frame: Frame


@dataclass(slots=True)
class PassedOver:
    """State: what was passed over so far, by reason, and the first places."""

    reasons: Counter[str] = field(default_factory=Counter)
    places: list[str] = field(default_factory=list)

    def note(self, reason: str, place: str = "") -> None:
        """Count one; a place is given where something is wrong."""
        self.reasons[reason] += 1
        if place and len(self.places) < PLACES_KEPT:
            self.places.append(f"{place}: {reason}")


class LogFile:
    """The bytes of a log, unpacked if they are gzipped; what comes before a cut or damage is kept."""

    def __init__(self, path: Path, passed: PassedOver) -> None:
        self.passed = passed
        self.position = 0
        """How many bytes of the file itself were read."""
        self.is_cut = False
        """Whether the packed bytes ended before their time."""
        self._file: IO[bytes] = path.open("rb")
        self._size = path.stat().st_size
        magic = self._file.read(2)
        self._file.seek(0)
        self._is_packed = magic == b"\x1f\x8b"

    def chunks(self) -> Iterator[bytes]:
        """The bytes, a chunk at a time."""
        unpacked = gzip.GzipFile(fileobj=self._file) if self._is_packed else self._file
        try:
            while chunk := unpacked.read1(CHUNK) if isinstance(unpacked, gzip.GzipFile) else unpacked.read(CHUNK):
                self.position = self._file.tell()
                yield chunk
        except EOFError:
            self._end_early(CUT_SHORT)
        except (zlib.error, gzip.BadGzipFile) as problem:
            self._end_early(f"gzip data damaged ({problem})")

    def _end_early(self, why: str) -> None:
        self.is_cut = True
        self.passed.note(why, f"byte {self._file.tell()}")

    def whole(self) -> bytes | mmap.mmap:
        """All bytes at once; those of a plain file stay in the file."""
        if self._is_packed or self._file.seek(0, io.SEEK_END) == 0:
            return b"".join(self.chunks())
        return mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)

    def reached(self, part: float) -> None:
        """Note that so much of what `whole` gave was read."""
        self.position = round(part * self._size)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def micros_of_seconds(seconds: float) -> int | None:
    """Microseconds of a time stamp; None if no event can have that time."""
    if not math.isfinite(seconds):
        return None
    micros = round(seconds * 1e6)
    return micros if 0 <= micros <= LAST_US else None


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
    if not 0 <= message.arbitration_id <= (ID_MASK if message.is_extended_id else _STANDARD_MASK):
        return "identifier out of range"
    if size > 64 or size != (message.dlc if message.is_fd else min(message.dlc, max(size, 8))):
        return "length and data disagree"
    return Frame(message.arbitration_id, bytes(message.data), message.is_fd or size > 8, message.is_extended_id)


def from_one(message: can.Message) -> str | None:
    """The channel as Vector's files number it: from 1, where python-can numbers from 0."""
    return str(message.channel + 1) if isinstance(message.channel, int) else None
