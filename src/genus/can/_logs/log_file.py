"""What the readers of all log formats share: the unpacked bytes and lines of a file, and counts of skipped records."""

import bz2
import codecs
import gzip
import io
import logging
import lzma
import mmap
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import IO, Any, cast

from genus._extras import install_command
from genus.errors import Reasons, RecordingError

# -- compression, archives and encodings -------------------------------------------------------------------------------

_MAGIC = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"BZh": "bzip2",
    b"\xfd7zXZ\x00": "xz",
    b"PK\x03\x04": "zip",
    b"PK\x05\x06": "zip",
}
COMPRESSED_ENDINGS = (".gz", ".zst", ".bz2", ".xz", ".zip")
SAMPLE = 512
_ZSTD_PIECES, _LARGE = (1 << 6, 1 << 12), 1 << 20
MEMBERS_NAMED = 10
"""How many files of an archive a message names."""


class ZstdDamaged(Exception):
    """Compressed data of zstd that cannot be unpacked."""


UNPACKING_ERRORS = (zlib.error, gzip.BadGzipFile, lzma.LZMAError, zipfile.BadZipFile, ZstdDamaged, OSError, ValueError)


def packing_of(start: bytes) -> str | None:
    """Return how a file that begins with these bytes is compressed; None if it is not.

    >>> packing_of(b"\\x1f\\x8b\\x08")
    'gzip'
    """
    return next((name for magic, name in _MAGIC.items() if start.startswith(magic)), None)


def file_and_member(path: Path) -> tuple[Path, str | None]:
    """Return the file of a path, and what of an archive it names: `logs.zip/drive.log` is `drive.log` in `logs.zip`."""
    if not path.exists():
        for parent in path.parents:
            if parent.is_file():
                return parent, path.relative_to(parent).as_posix()
    return path, None


def unpacked(file: IO[bytes], packing: str | None, member: str | None = None) -> IO[bytes]:
    """Return the unpacked bytes of a file; of an archive, those of one of its files.

    Raises:
        RecordingError: An archive has several files and none is named, has not the one that is, or is encrypted.
    """
    if packing == "zip":
        return _member(file, member)
    if member is not None:
        raise RecordingError(f"it is no archive, so it has no {member!r}")
    if packing == "gzip":
        return cast(IO[bytes], gzip.GzipFile(fileobj=file))
    if packing == "bzip2":
        return cast(IO[bytes], bz2.BZ2File(file))
    if packing == "xz":
        return cast(IO[bytes], lzma.LZMAFile(file))
    return cast(IO[bytes], _ZstdFile(file)) if packing == "zstd" else file


def _member(file: IO[bytes], member: str | None) -> IO[bytes]:
    try:
        archive = zipfile.ZipFile(file)
        chosen = _choose(archive, member)
        if chosen.flag_bits & 1:
            raise RecordingError(f"{chosen.filename} in it is encrypted; unpack it first")
        source = archive.open(chosen)
        inner = packing_of(cast(zipfile.ZipExtFile, source).peek(8))
    except (zipfile.BadZipFile, NotImplementedError, EOFError, zlib.error) as problem:
        raise RecordingError(f"it is a zip archive that cannot be read: {problem}") from None
    if inner is not None:
        raise RecordingError(f"{chosen.filename} in it is packed once more ({inner}); unpack it first")
    return source


def _choose(archive: zipfile.ZipFile, member: str | None) -> zipfile.ZipInfo:
    """Return the file that is named, or the only one; files that begin with a dot and those of macOS do not count."""
    found = {each.filename: each for each in archive.infolist() if not each.is_dir()}
    if member in found:
        return found[member]
    shown = sorted(
        name for name in found if not name.startswith("__MACOSX/") and not name.split("/")[-1].startswith(".")
    )
    if member is None and len(shown) == 1:
        return found[shown[0]]
    if not shown:
        raise RecordingError("it is a zip archive without a file")
    names = ", ".join(shown[:MEMBERS_NAMED]) + (
        f" and {len(shown) - MEMBERS_NAMED} more" if shown[MEMBERS_NAMED:] else ""
    )
    if member is not None:
        raise RecordingError(f"it has no {member!r}, but {names}")
    raise RecordingError(f"it is a zip archive of {len(shown)} files: {names}; name one, as in ARCHIVE.zip/{shown[0]}")


class _ZstdFile:
    """State: reads the unpacked bytes of a zstd file, also of several frames; EOFError if it is cut."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._library = _zstd()
        self._frame: Any = None
        self._packed = b""
        self._piece = _ZSTD_PIECES[0]
        self._made = io.BytesIO()

    def read(self, size: int) -> bytes:
        while not (found := self._made.read(size)):
            piece, self._packed = self._packed or self._file.read(self._piece), b""
            if not piece:
                if self._frame is not None:
                    raise EOFError
                return b""
            made = self._unpack(piece)
            # The library has no limit for what it makes of a piece, which may be 32,768 times as much.
            self._piece = _ZSTD_PIECES[0] if len(made) > _LARGE else min(2 * self._piece, _ZSTD_PIECES[1])
            self._made = io.BytesIO(made)
        return found

    def _unpack(self, piece: bytes) -> bytes:
        if self._frame is None:
            self._frame = self._library.ZstdDecompressor().decompressobj()
        try:
            made = cast(bytes, self._frame.decompress(piece))
        except self._library.ZstdError as problem:
            raise ZstdDamaged(problem) from None
        if self._frame.eof:
            self._packed, self._frame = self._frame.unused_data, None
        return made


def _zstd() -> Any:
    try:
        import zstandard  # an extra
    except ImportError:
        raise RecordingError(f"it is compressed with zstd, which needs: {install_command('zstd')}") from None
    return zstandard


def looks_like_utf_16(start: bytes) -> str | None:
    """The codec of text in UTF-16, with a mark at its beginning or with a zero in every other byte; else None."""
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    sample = start[:SAMPLE]
    half = len(sample) // 2
    if half >= 4 and sample[1::2].count(0) > 0.9 * half and sample[0::2].count(0) < 0.1 * half:
        return "utf-16-le"
    if half >= 4 and sample[0::2].count(0) > 0.9 * half and sample[1::2].count(0) < 0.1 * half:
        return "utf-16-be"
    return None


def plain_text(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Text in UTF-8, or in an encoding of one byte per character, with lines that end in a line feed.

    A mark at the beginning is replaced by blanks, so that positions stay what they are.
    """
    source = iter(chunks)
    first = next(source, b"")
    codec = looks_like_utf_16(first)
    if codec is not None:
        yield from _decoded(first, source, codec)
        return
    if first.startswith(codecs.BOM_UTF8):
        first = b"   " + first[3:]
    has_no_feed = b"\r" in first and b"\n" not in first
    for chunk in chain([first], source):
        yield chunk.replace(b"\r", b"\n") if has_no_feed else chunk


def _decoded(first: bytes, source: Iterator[bytes], codec: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(codec)(errors="replace")
    yield decoder.decode(first).encode()
    for chunk in source:
        yield decoder.decode(chunk).encode()
    yield decoder.decode(b"", final=True).encode()


# -- the bytes of a log ------------------------------------------------------------------------------------------------

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
        return max(self._status.st_mtime_ns // 1000, 0)

    def chunks(self, size: int = CHUNK) -> Iterator[bytes]:
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
        self._file.close()


def read_head(path: Path, size: int) -> bytes:
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
