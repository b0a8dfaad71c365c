"""How files of logs are packed: compression, archives, and encodings of text other than UTF-8."""

import bz2
import codecs
import gzip
import io
import lzma
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import IO, Any, cast

from genus._extras import install_command
from genus.errors import RecordingError

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


UNPACKING_ERRORS = (
    zlib.error,
    gzip.BadGzipFile,
    lzma.LZMAError,
    zipfile.BadZipFile,
    ZstdDamaged,
    OSError,
    ValueError,
)


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
    """Return a file of a zip archive, which is unpacked while it is read."""
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
        """Return the next bytes, at least one; empty at the end."""
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
