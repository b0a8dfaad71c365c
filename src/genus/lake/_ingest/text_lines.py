"""Lines of text files, in blocks: ranges of plain files, or whole compressed files.

A line belongs to the range of its first byte. Offsets are counted in bytes of the uncompressed text. Lines longer than
`LINE_LIMIT`, and the point where a compressed file is damaged, become dead letters.
"""

import os
import zlib
from collections.abc import Iterator
from typing import IO, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow.fs as arrow_fs

from genus.lake._ingest.format import DeadLetter, Split
from genus.lake._tables.files import local_path, open_input

LINE_LIMIT = 8 * 1024 * 1024
"""A longer line is a dead letter."""
BLOCK = 2 * 1024 * 1024
"""Bytes per read; small enough for the decoded block to stay in the processor's cache."""
_PIECE = 64 * 1024
_BOM = b"\xef\xbb\xbf"
_KEPT = 1 << 14

Offsets: TypeAlias = npt.NDArray[np.int64]


class Lines(NamedTuple):
    """Lines without line ends, and the offset of each."""

    lines: list[bytes]
    offsets: Offsets


class ByteStream(Protocol):
    """Source of bytes."""

    def read(self, size: int, /) -> bytes:
        """The next bytes, at least one; empty at the end."""


def is_compressed(path: str) -> bool:
    """Whether a file is read through gzip."""
    return path.endswith(".gz")


def open_text(path: str) -> IO[bytes] | "Unzipped":
    """Open a file for reading its uncompressed bytes."""
    file = open_input(path)
    return Unzipped(file) if is_compressed(path) else file


def byte_ranges(path: str, size: int, target: int) -> list[Split]:
    """Cut a file into ranges of `target` bytes; a compressed file is one range."""
    if is_compressed(path) or not size:
        return [Split(path, 0, size)]
    return [Split(path, start, min(start + target, size)) for start in range(0, size, max(target, 1))]


def read_lines(split: Split) -> Iterator[Lines | list[DeadLetter]]:
    """Yield the lines of a range in blocks."""
    with open_text(split.path) as stream:
        end = None if isinstance(stream, Unzipped) else split.end
        position, rest = 0, b""
        if split.start and not isinstance(stream, Unzipped):
            stream.seek(split.start - 1)
            skipped, rest = _after_line(stream)
            position = split.start - 1 + skipped
        yield from LineReader(stream, position, end, rest).blocks()


def _after_line(stream: ByteStream) -> tuple[int, bytes]:
    """Read to the end of the line: the number of bytes up to there, and the bytes that were read after it."""
    passed = 0
    while piece := stream.read(_PIECE):
        if (end := piece.find(b"\n")) >= 0:
            return passed + end + 1, piece[end + 1 :]
        passed += len(piece)
    return passed, b""


class LineReader:
    """Reads lines from a stream. State: bytes that were read and not yielded, and their offset."""

    def __init__(self, stream: ByteStream, position: int, end: int | None, rest: bytes) -> None:
        self._stream, self._position, self._end, self._rest = stream, position, end, rest

    def blocks(self) -> Iterator[Lines | list[DeadLetter]]:
        """Yield the lines that begin before the end of the range, block by block."""
        while self._end is None or self._position < self._end:
            try:
                piece = self._stream.read(BLOCK)
            except (OSError, EOFError) as problem:
                yield [DeadLetter.of(self._position, f"the file is damaged here: {problem}", self._rest[:_KEPT])]
                return
            self._rest += piece
            yield from self._take(self._whole() if piece else self._last())
            if not piece:
                return
            if len(self._rest) > LINE_LIMIT:
                yield self._pass_over()

    def _whole(self) -> int:
        """The number of buffered bytes in whole lines that begin before the end of the range."""
        beyond = self._beyond()
        return beyond if beyond is not None else self._rest.rfind(b"\n") + 1

    def _last(self) -> int:
        """The same at the end of the file, where the last line may lack a line end."""
        beyond = self._beyond()
        return beyond if beyond is not None else len(self._rest)

    def _beyond(self) -> int | None:
        """The end of the last line that begins before the end of the range; None if it was not read yet."""
        if self._end is None:
            return None
        return self._rest.find(b"\n", self._end - 1 - self._position) + 1 or None

    def _take(self, size: int) -> Iterator[Lines | list[DeadLetter]]:
        block, self._rest = self._rest[:size], self._rest[size:]
        start, self._position = self._position, self._position + size
        if block:
            yield from _cut(block, start)

    def _pass_over(self) -> list[DeadLetter]:
        """Skip the rest of a line that is too long."""
        position, begun = self._position, self._rest[:_KEPT]
        skipped, rest = _after_line(self._stream)
        self._position += len(self._rest) + skipped
        self._rest = rest
        return [_too_long(position, begun)]


def _too_long(position: int, line: bytes) -> DeadLetter:
    return DeadLetter.of(position, f"a line of more than {LINE_LIMIT >> 20} MiB", line[:_KEPT])


def _cut(block: bytes, start: int) -> Iterator[Lines | list[DeadLetter]]:
    if start == 0 and block.startswith(_BOM):
        block, start = block[3:], 3
    lines = block.removesuffix(b"\n").split(b"\n")
    sizes = np.fromiter(map(len, lines), np.int64, len(lines))
    offsets = start + np.cumsum(sizes + 1) - sizes - 1
    long = np.flatnonzero(sizes > LINE_LIMIT)
    if not len(long):
        yield Lines(lines, offsets)
        return
    yield [_too_long(int(offsets[row]), lines[row]) for row in long.tolist()]
    yield Lines([line for line in lines if len(line) <= LINE_LIMIT], np.delete(offsets, long))


def join_lines(parts: list[Lines]) -> Lines:
    """Concatenate blocks of lines."""
    full = [part for part in parts if part.lines]
    if len(full) == 1:
        return full[0]
    offsets = np.concatenate([np.zeros(0, np.int64), *(part.offsets for part in full)])
    return Lines([line for part in full for line in part.lines], offsets)


class Unzipped:
    """Reads a gzip file; returns all bytes before a damaged place, and raises OSError or EOFError only after them."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._member = zlib.decompressobj(wbits=31)
        self._begun = False
        self._waiting = b""
        self._damage: Exception | None = None

    def __enter__(self) -> "Unzipped":
        return self

    def __exit__(self, *problem: object) -> None:
        self._file.close()

    def read(self, size: int, /) -> bytes:
        """The next bytes, about `size` of them."""
        made: list[bytes] = []
        while sum(map(len, made)) < size and self._damage is None:
            piece = self._waiting or self._file.read(_PIECE)
            if not piece:
                self._damage = EOFError("it ends too early") if self._begun else None
                break
            made.append(self._inflate(piece))
        found = b"".join(made)
        if not found and self._damage is not None:
            raise self._damage
        return found

    def _inflate(self, piece: bytes) -> bytes:
        before = self._member.copy()
        try:
            made = self._member.decompress(piece)
        except zlib.error as problem:
            self._damage = OSError(str(problem))
            return _until_damage(before, piece)
        self._begun, self._waiting = True, b""
        if self._member.eof:
            self._waiting = self._member.unused_data.lstrip(b"\0")  # some tools fill the end with zeros
            self._member = zlib.decompressobj(wbits=31)
            self._begun = False
        return made


def _until_damage(member: "zlib._Decompress", piece: bytes) -> bytes:
    """The output of the bytes before the damaged one."""
    made = []
    for place in range(len(piece)):
        try:
            made.append(member.decompress(piece[place : place + 1]))
        except zlib.error:
            break
    return b"".join(made)


def changed_us(path: str) -> int:
    """Time of the last change of a file, in microseconds since 1970; used for events without any other time."""
    local = local_path(path)
    if local is not None:
        return os.stat(local).st_mtime_ns // 1000
    files, inner = arrow_fs.FileSystem.from_uri(path)
    changed = files.get_file_info(inner).mtime_ns
    return 0 if changed is None else changed // 1000
