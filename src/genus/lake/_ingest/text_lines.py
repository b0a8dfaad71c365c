"""Lines of text files: ranges of plain files, or whole compressed ones, in blocks of whole lines with their places.

A line belongs to the range that its first byte is in. A place is counted in bytes of the text, not of the compressed
file. A line that is too long to be an event, and the place where a compressed file is damaged, are dead letters.
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
"""A longer line is no event."""
BLOCK = 2 * 1024 * 1024
"""So much is read at a time: little enough for what is made of it to stay in the processor's cache."""
_PIECE = 64 * 1024
_BOM = b"\xef\xbb\xbf"
_KEPT = 1 << 14

Offsets: TypeAlias = npt.NDArray[np.int64]


class Lines(NamedTuple):
    """Lines without their ends, and where each begins."""

    lines: list[bytes]
    offsets: Offsets


class Stream(Protocol):
    """Where text is read from."""

    def read(self, size: int, /) -> bytes:
        """The next bytes, some at least; none at the end."""


def is_compressed(path: str) -> bool:
    """Whether a file is read through gzip."""
    return path.endswith(".gz")


def open_text(path: str, gzipped: bool | None = None) -> IO[bytes] | "Unzipped":
    """A file's text from its beginning; whether it is gzipped follows from its name unless it is given."""
    file = open_input(path)
    return Unzipped(file) if (is_compressed(path) if gzipped is None else gzipped) else file


def byte_ranges(path: str, size: int, target: int, gzipped: bool | None = None) -> list[Split]:
    """A file in ranges of `target` bytes; one range if it is gzipped, which its name says unless it is given."""
    if is_compressed(path) if gzipped is None else gzipped:
        return [Split(path, 0, size, gzipped=True)]
    if not size:
        return [Split(path, 0, size)]
    return [Split(path, start, min(start + target, size)) for start in range(0, size, max(target, 1))]


class TextBlock(NamedTuple):
    """Whole lines of a text, and the byte at which the first begins; the last line of all may lack its end."""

    at: int
    text: bytes


def read_lines(split: Split) -> Iterator[Lines | list[DeadLetter]]:
    """The lines of a range."""
    for block in read_blocks(split, LINE_LIMIT):
        if isinstance(block, list):
            yield block
        else:
            yield from _cut(block.text, block.at)


def read_blocks(split: Split, limit: int) -> Iterator[TextBlock | list[DeadLetter]]:
    """The lines that begin in a range, many in a block; a line longer than `limit` is a block, and only its beginning.

    The place where a gzipped file is damaged is a dead letter, and what was read of the line there is left out.
    """
    with open_text(split.path, split.gzipped) as stream:
        end = None if isinstance(stream, Unzipped) else split.end
        position, rest = 0, b""
        if split.start and not isinstance(stream, Unzipped):
            stream.seek(split.start - 1)
            skipped, rest = _after_line(stream)
            position = split.start - 1 + skipped
        yield from BlockReader(stream, position, end, rest, limit).blocks()


def _after_line(stream: Stream) -> tuple[int, bytes]:
    """How many bytes the rest of a line has, with its end; and what was read beyond."""
    passed = 0
    while piece := stream.read(_PIECE):
        if (end := piece.find(b"\n")) >= 0:
            return passed + end + 1, piece[end + 1 :]
        passed += len(piece)
    return passed, b""


class BlockReader:
    """State: what was read of a text and not given out yet, and where it begins."""

    def __init__(self, stream: Stream, position: int, end: int | None, rest: bytes, limit: int) -> None:
        self._stream, self._position, self._end, self._rest, self._limit = stream, position, end, rest, limit

    def blocks(self) -> Iterator[TextBlock | list[DeadLetter]]:
        """Lines that begin before the end, block by block."""
        while self._has_more:
            try:
                piece = self._stream.read(BLOCK)
            except (OSError, EOFError) as problem:
                yield [DeadLetter.of(self._position, f"the file is damaged here: {problem}", self._rest[:_KEPT])]
                return
            self._rest += piece
            yield from self._take(self._whole() if piece else self._last())
            if not piece:
                return
            if self._has_more and len(self._rest) > self._limit + len(_BOM):
                yield self._pass_over()

    @property
    def _has_more(self) -> bool:
        return self._end is None or self._position < self._end

    def _whole(self) -> int:
        """How many bytes are whole lines that begin before the end."""
        beyond = self._beyond()
        return beyond if beyond is not None else self._rest.rfind(b"\n") + 1

    def _last(self) -> int:
        """The same when there is no more to come: the last line need not have an end."""
        beyond = self._beyond()
        return beyond if beyond is not None else len(self._rest)

    def _beyond(self) -> int | None:
        """Where the last line that begins before the end of the range is over; None if that was not read yet."""
        if self._end is None:
            return None
        return self._rest.find(b"\n", self._end - 1 - self._position) + 1 or None

    def _take(self, size: int) -> Iterator[TextBlock]:
        block, self._rest = TextBlock(self._position, self._rest[:size]), self._rest[size:]
        self._position += size
        if block.text:
            yield block

    def _pass_over(self) -> TextBlock:
        """The beginning of a line that is too long; it is read to its end."""
        begun = TextBlock(self._position, self._rest[: self._limit + len(_BOM) + 1])
        skipped, rest = _after_line(self._stream)
        self._position += len(self._rest) + skipped
        self._rest = rest
        return begun


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


def joined(parts: list[Lines]) -> Lines:
    """Lines one after the other."""
    full = [part for part in parts if part.lines]
    if len(full) == 1:
        return full[0]
    offsets = np.concatenate([np.zeros(0, np.int64), *(part.offsets for part in full)])
    return Lines([line for part in full for line in part.lines], offsets)


class Unzipped:
    """State: a gzip file being read; gives everything that can be read before it says that the file is damaged."""

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
        """The next bytes: about as many as asked for."""
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
    """What bytes before the damaged one give."""
    made = []
    for place in range(len(piece)):
        try:
            made.append(member.decompress(piece[place : place + 1]))
        except zlib.error:
            break
    return b"".join(made)


def changed_us(path: str) -> int:
    """When a file was last written, in microseconds since 1970: its events are dated so if nothing else dates them."""
    local = local_path(path)
    if local is not None:
        return os.stat(local).st_mtime_ns // 1000
    files, inner = arrow_fs.FileSystem.from_uri(path)
    changed = files.get_file_info(inner).mtime_ns
    return 0 if changed is None else changed // 1000
