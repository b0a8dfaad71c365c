"""What the readers of all log formats share: frames with times, counts of skipped records, the bytes of a file."""

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
from typing import IO

import can
from genus.can._logs.frames import LoggedFrame
from genus.can._wire.frame import FD_BYTES, ID_MASK, STANDARD_ID_MASK, Frame

PROBLEMS_KEPT = 100
"""How many problems are listed with their location; all are counted."""
CHUNK = 1 << 18
LAST_US = 253_402_300_799_999_999
"""The last microsecond of the year 9999, the latest time that an event can have."""

ERROR_FRAME = "error frame"
REMOTE_FRAME = "remote frame"
NO_FRAME = "no CAN frame"
HARMLESS = (ERROR_FRAME, REMOTE_FRAME)
"""Reasons to skip a record that is not damaged."""
BAD_TIME = "time out of range"
BAD_IDENTIFIER = "identifier out of range"
CUT_SHORT = "file cut short"


@dataclass(slots=True)
class SkippedRecords:
    """State: how many records of a log were skipped, by reason, and where the first damaged ones are."""

    reasons: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def note(self, reason: str, location: str = "") -> None:
        """Count a skipped record; give its location only if it is damaged."""
        self.reasons[reason] += 1
        if location and len(self.problems) < PROBLEMS_KEPT:
            self.problems.append(f"{location}: {reason}")


class LogFile:
    """The bytes of a log, decompressed if they are gzip; a cut or damaged file gives what comes before the damage."""

    def __init__(self, path: Path, skipped: SkippedRecords) -> None:
        self.skipped = skipped
        self.position = 0
        """How many bytes of the file itself were read."""
        self.is_cut = False
        """Whether the compressed data ended too early."""
        self._file: IO[bytes] = path.open("rb")
        self._size = path.stat().st_size
        magic = self._file.read(2)
        self._file.seek(0)
        self._is_gzip = magic == b"\x1f\x8b"

    def chunks(self) -> Iterator[bytes]:
        """The bytes, a chunk at a time."""
        source = gzip.GzipFile(fileobj=self._file) if self._is_gzip else self._file
        try:
            while chunk := source.read1(CHUNK) if isinstance(source, gzip.GzipFile) else source.read(CHUNK):
                self.position = self._file.tell()
                yield chunk
        except EOFError:
            self._end_early(CUT_SHORT)
        except (zlib.error, gzip.BadGzipFile) as problem:
            self._end_early(f"gzip data damaged ({problem})")

    def _end_early(self, reason: str) -> None:
        self.is_cut = True
        self.skipped.note(reason, f"byte {self._file.tell()}")

    def read_all(self) -> bytes | mmap.mmap:
        """All bytes; a file that is not compressed is mapped into memory instead of read."""
        if self._is_gzip or self._file.seek(0, io.SEEK_END) == 0:
            return b"".join(self.chunks())
        return mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)

    def set_progress(self, part: float) -> None:
        """Set `position` from the part, 0 to 1, of the bytes of `read_all` that was used."""
        self.position = round(part * self._size)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


@contextmanager
def suppress_warnings(library: str) -> Iterator[None]:
    """Suppress the warnings that a library logs about damage which is counted here anyway; errors are still logged."""
    logger = logging.getLogger(library)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def micros_of_seconds(seconds: float) -> int | None:
    """Microseconds of a timestamp; None if no event can have that time."""
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
    if not 0 <= message.arbitration_id <= (ID_MASK if message.is_extended_id else STANDARD_ID_MASK):
        return BAD_IDENTIFIER
    if size > FD_BYTES or size != (message.dlc if message.is_fd else min(message.dlc, max(size, 8))):
        return "length and data disagree"
    return Frame(message.arbitration_id, bytes(message.data), message.is_fd or size > 8, message.is_extended_id)


def logged_frame(
    frame: Frame | str, at_us: int | None, channel: str | None, location: str, skipped: SkippedRecords
) -> Iterator[LoggedFrame]:
    """The frame with its time and channel; nothing, but counted as skipped, if there is no frame or no valid time."""
    if isinstance(frame, str):
        skipped.note(frame, "" if frame in HARMLESS else location)
    elif at_us is None or at_us > LAST_US:
        skipped.note(BAD_TIME, location)
    else:
        yield LoggedFrame(at_us, channel, frame)


def vector_channel(message: can.Message) -> str | None:
    """The channel as Vector's files number it: from 1, where python-can counts from 0."""
    return str(message.channel + 1) if isinstance(message.channel, int) else None
