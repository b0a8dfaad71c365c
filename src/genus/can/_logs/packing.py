"""How files of logs are packed: compression, and encodings of text other than UTF-8."""

import bz2
import codecs
import gzip
import lzma
import zlib
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import IO, Any, cast

from genus._extras import install_command
from genus.errors import RecordingError

_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2", b"\xfd7zXZ\x00": "xz"}
COMPRESSED_ENDINGS = (".gz", ".zst", ".bz2", ".xz")
SAMPLE = 512


class ZstdDamaged(Exception):
    """Compressed data of zstd that cannot be unpacked."""


UNPACKING_ERRORS = (zlib.error, gzip.BadGzipFile, lzma.LZMAError, ZstdDamaged, OSError, ValueError)


def packing_of(start: bytes) -> str | None:
    """How a file that begins with these bytes is compressed; None if it is not.

    >>> packing_of(b"\\x1f\\x8b\\x08")
    'gzip'
    """
    return next((name for magic, name in _MAGIC.items() if start.startswith(magic)), None)


def unpacked(file: IO[bytes], packing: str | None) -> IO[bytes]:
    """The unpacked bytes of a file."""
    if packing == "gzip":
        return cast(IO[bytes], gzip.GzipFile(fileobj=file))
    if packing == "bzip2":
        return cast(IO[bytes], bz2.BZ2File(file))
    if packing == "xz":
        return cast(IO[bytes], lzma.LZMAFile(file))
    return cast(IO[bytes], _ZstdFile(file)) if packing == "zstd" else file


class _ZstdFile:
    """State: reads the unpacked bytes of a zstd file, also of several frames; EOFError if it is cut."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._library = _zstd()
        self._frame: Any = None
        self._waiting = b""

    def read(self, size: int) -> bytes:
        """The next bytes, at least one; empty at the end."""
        while True:
            piece, self._waiting = self._waiting or self._file.read(size), b""
            if not piece:
                if self._frame is not None:
                    raise EOFError
                return b""
            made = self._unpack(piece)
            if made:
                return made

    def _unpack(self, piece: bytes) -> bytes:
        if self._frame is None:
            self._frame = self._library.ZstdDecompressor().decompressobj()
        try:
            made = cast(bytes, self._frame.decompress(piece))
        except self._library.ZstdError as problem:
            raise ZstdDamaged(problem) from None
        if self._frame.eof:
            self._waiting, self._frame = self._frame.unused_data, None
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
