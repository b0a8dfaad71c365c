"""What the readers of all log formats share: frames with times, counts of skipped records, the bytes of a file."""

import io
import logging
import mmap
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, cast

from genus.can._logs.packing import (
    UNPACKING_ERRORS,
    file_and_member,
    looks_like_utf_16,
    packing_of,
    plain_text,
    unpacked,
)
from genus.errors import Reasons, RecordingError

PROBLEMS_KEPT = 100
"""How many problems are listed with their location; all are counted."""
CHUNK = 1 << 18
TEXT_CHUNK = 1 << 20
"""Text is read in larger chunks: the work per chunk is in columns."""
MAX_LINE = 1 << 16
SMALL_COPY, MAX_RATIO = 1 << 28, 250
"""An unpacked copy may have so many bytes, or so many times those of the compressed file."""
LAST_US = 253_402_300_799_999_999
"""The last microsecond of the year 9999, the latest time that an event can have."""

ERROR_FRAME = "error frame"
REMOTE_FRAME = "remote frame"
NO_FRAME = "no CAN frame"
HARMLESS = (ERROR_FRAME, REMOTE_FRAME)
"""Reasons to skip a record that is not damaged."""
BAD_TIME = "time out of range"
BAD_IDENTIFIER = "identifier out of range"
DAMAGED_LINE = "damaged line"
LINE_TOO_LONG = "line too long"
LENGTHS_DISAGREE = "length and data disagree"
CUT_SHORT = "file cut short"


@dataclass(slots=True)
class SkippedRecords:
    """State: how many records of a log were skipped, by reason, and where the first damaged ones are."""

    reasons: Reasons = field(default_factory=Reasons)
    problems: list[str] = field(default_factory=list)

    def note(self, reason: str, location: str = "") -> None:
        """Count a skipped record; give its location only if it is damaged."""
        self.reasons[reason] += 1
        if location and len(self.problems) < PROBLEMS_KEPT:
            self.problems.append(f"{location}: {reason}")


class LogFile:
    """The bytes of a log, unpacked if they are compressed; a cut or damaged file gives what comes before the damage."""

    def __init__(self, path: Path, skipped: SkippedRecords) -> None:
        self.path = path
        self.skipped = skipped
        self.position = 0
        """How many bytes of the file itself were read."""
        self.is_cut = False
        """Whether the compressed data ended too early."""
        where, self._member = file_and_member(path)
        self._file: IO[bytes] = where.open("rb")
        self._status = where.stat()
        self.packing = packing_of(self._file.read(8))
        """How it is compressed: `gzip`, `zstd`, `bzip2`, `xz`, `zip`, or None."""
        self._file.seek(0)

    @property
    def changed_us(self) -> int:
        """The date of the file, in microseconds since 1970."""
        return max(self._status.st_mtime_ns // 1000, 0)

    def chunks(self, size: int = CHUNK) -> Iterator[bytes]:
        """Yield the unpacked bytes, a chunk at a time."""
        source = unpacked(self._file, self.packing, self._member)
        read = getattr(source, "read1", source.read)
        try:
            while chunk := read(size):
                self.position = self._file.tell()
                yield chunk
            self.position = self._status.st_size
        except EOFError:
            self._end_early(CUT_SHORT)
        except UNPACKING_ERRORS as problem:
            self._end_early(f"{self.packing} data damaged ({problem})")

    def _end_early(self, reason: str) -> None:
        self.is_cut = True
        self.skipped.note(reason, f"byte {self._file.tell()}")

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Blocks of whole lines of text in UTF-8 or Latin-1, each with the byte of the text at which it begins.

        Text in UTF-16 and lines that end in a carriage return are converted. A line that is far too long is cut, and
        the last line of cut compressed data is left out.
        """
        rest, at = b"", 0
        for chunk in plain_text(self.chunks(TEXT_CHUNK)):
            text = rest + chunk if rest else chunk
            size = text.rfind(b"\n") + 1
            if size:
                yield at, text[:size]
            at, rest = at + size, text[size:]
            if len(rest) > MAX_LINE + 1:
                at, rest = at + len(rest) - MAX_LINE - 1, rest[: MAX_LINE + 1]
        if rest and not self.is_cut:
            yield at, rest

    def read_all(self) -> bytes | mmap.mmap:
        """Return all bytes, mapped into memory: of the file itself, or of an unpacked copy."""
        if self.packing is None:
            return self._mapped(self._file)
        with tempfile.TemporaryFile() as copy:
            self._unpack_to(copy)
            return self._mapped(copy)

    def _mapped(self, file: IO[bytes]) -> bytes | mmap.mmap:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if file.seek(0, io.SEEK_END) else b""

    def _unpack_to(self, copy: IO[bytes]) -> None:
        """Unpack the file; RecordingError if it becomes absurdly large, because the copy would fill the disk."""
        size = 0
        for chunk in self.chunks():
            size += len(chunk)
            if size > max(SMALL_COPY, MAX_RATIO * self._status.st_size):
                raise RecordingError(f"it unpacks to more than {MAX_RATIO} times its size, which no log does")
            copy.write(chunk)
        copy.flush()

    @contextmanager
    def unpacked_path(self) -> Iterator[Path]:
        """The path of the unpacked file, for libraries that open files themselves: a temporary copy if need be."""
        if self.packing is None:
            yield self.path
            return
        with tempfile.NamedTemporaryFile(suffix=self.path.with_suffix("").suffix) as copy:
            self._unpack_to(cast(IO[bytes], copy))
            yield Path(copy.name)

    def set_progress(self, part: float) -> None:
        """Set `position` from the part, 0 to 1, of the bytes of `read_all` that was used."""
        self.position = round(part * self._status.st_size)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_head(path: Path, size: int) -> bytes:
    """Return the first unpacked bytes of a log, as `LogFile.lines` gives them if they are text."""
    where, member = file_and_member(path)
    with where.open("rb") as file:
        return head_of(file, size, member)


def head_of(file: IO[bytes], size: int, member: str | None = None) -> bytes:
    """Return the first unpacked bytes of a log that is open at its beginning, or of one in an archive."""
    packing = packing_of(file.read(8))
    file.seek(0)
    source, found = unpacked(file, packing, member), b""
    read = getattr(source, "read1", source.read)
    try:
        while len(found) < size and (chunk := read(size)):
            found += chunk
    except (EOFError, *UNPACKING_ERRORS):
        pass  # a damaged file shows what comes before the damage
    text = found[:size]
    is_plain = looks_like_utf_16(text) is None and (b"\n" in text or b"\r" not in text)
    return text if is_plain else b"".join(plain_text([text]))


def decode_text(raw: bytes) -> str:
    """Bytes as UTF-8, or as Latin-1 if they are not UTF-8."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")


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
