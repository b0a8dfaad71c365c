"""The interface between file formats and the ingest job, and lines of text files.

A `Format` cuts a file into splits, on the driver, and reads one split, in a task. Reading yields columns of valid
events of one type at a time, and dead letters for everything else; it never raises because of the content of a file.
The job adds Genus' columns and writes both.

A line belongs to the range of its first byte. Offsets are counted in bytes of the uncompressed text. Lines longer than
`LINE_LIMIT`, and the point where a compressed file is damaged, become dead letters.
"""

import os
import zlib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import IO, Literal, NamedTuple, Protocol, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from genus.catalog import Catalog
from genus.catalog.types import TypeEntry
from genus.lake._tables.files import file_info, local_path, open_input
from genus.lake._tables.part_writer import attribute_schema
from genus.model.types import Vector

Unknown: TypeAlias = Literal["dead", "pass"]
"""What to do with frames that the DBC file does not have: make them dead letters, or skip them."""

RAW_LIMIT = 4096
"""A dead letter keeps at most this many characters of the input."""


class Split(msgspec.Struct, frozen=True):
    """A range of a file, in bytes or in another unit of its format."""

    path: str
    start: int
    end: int
    gzipped: bool = False
    """Whether a text file is read through gzip; found out once, when the file is cut."""
    share: str = ""
    """What of the range is read, for formats that read a file by several splits in different ways."""


class DeadLetter(msgspec.Struct, frozen=True):
    """Input that is not a valid event: its position, the reason and the raw text."""

    position: int
    reason: str
    raw: str

    @classmethod
    def of(cls, position: int, reason: str, raw: bytes | str) -> "DeadLetter":
        """Return a dead letter with the raw text cut to `RAW_LIMIT`; bytes that are not UTF-8 are escaped."""
        text = raw if isinstance(raw, str) else raw[: 4 * RAW_LIMIT].decode("utf-8", "backslashreplace")
        return cls(position, reason, text.encode("utf-8", "backslashreplace").decode()[:RAW_LIMIT])


class Columns(msgspec.Struct, frozen=True):
    """Events of one type.

    The batch has a column for every attribute that any of them carries, with the type in `TypePlan.schema`, in any
    order; attributes without a column are absent. It also has `_position` (int64, unique in the source) and `_recorded`
    (timestamp of recording; the event's time if the source does not state it).
    """

    type: str
    batch: pa.RecordBatch


Chunk: TypeAlias = Columns | list[DeadLetter]


class Format(Protocol):
    """A file format of events. Frozen, and small when pickled, because it is sent to every task."""

    def splits(self, path: str, size: int, target: int) -> list[Split]:
        """Cut a file of `size` bytes into ranges of about `target` bytes that can be read in parallel.

        Ranges need not end at events: `read` finds the first and the last whole event, so that every event is in
        exactly one split. A format that cannot be cut returns one split.
        """

    def read(self, split: Split, types: "Types") -> Iterator[Chunk]:
        """Return the events and dead letters of a split; 10,000 to 100,000 events per chunk are best."""


class Types:
    """The event types of a catalog in a task, parsed once per process."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.entries: Mapping[str, TypeEntry] = dict(catalog.entries)
        self._plans: dict[str, TypePlan | None] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(entry.name for entry in self.entries.values() if not entry.kind)

    def plan(self, name: str) -> "TypePlan | None":
        if name not in self._plans:
            known = self.entries.get(name)
            self._plans[name] = None if known is None or known.kind else TypePlan(self, known)
        return self._plans[name]

    def expected(self, name: str) -> "TypePlan":
        plan = self.plan(name)
        assert plan is not None, f"a format returned events of {name}, which is not in the catalog"
        return plan

    def declared(self, name: str) -> dict[str, bool]:
        """Return the own and inherited attributes of a type, and whether each is required."""
        entry = self.entries[name]
        inherited = [self.declared(parent) for parent in entry.parents]
        return {attribute: must for each in (*inherited, entry.attributes) for attribute, must in each.items()}


class TypePlan:
    """One event type: its family's vector, its own attributes and those that are required."""

    def __init__(self, types: Types, entry: TypeEntry) -> None:
        declared = types.declared(entry.name)
        self.name = entry.name
        self.family = entry.family or entry.name
        self.code = str(entry.code)
        self.vector: Vector = types.catalog.vector(entry.name)
        self.attributes = tuple(attribute for attribute in self.vector if attribute.name in declared)
        self.required = tuple(attribute.name for attribute in self.attributes if declared[attribute.name])
        self.schema: pa.Schema = pa.schema([field for field in attribute_schema(self.vector) if field.name in declared])
        """Attribute columns that a batch of this type may have, with the types of the lake."""


@lru_cache(maxsize=4)
def types_of(catalog_text: str) -> Types:
    """Return the types of a catalog given as text; cached, because a task needs them for every split."""
    return Types(Catalog.parse(catalog_text))


# -- lines of text files -----------------------------------------------------------------------------------------------


LINE_LIMIT = 8 * 1024 * 1024
"""A longer line is a dead letter."""
BLOCK = 2 * 1024 * 1024
"""Bytes per read; small enough for the decoded block to stay in the processor's cache."""
_PIECE = 64 * 1024
_PACKED = 128 * 1024
"""Compressed bytes per read."""
_BOM = b"\xef\xbb\xbf"
_KEPT = 1 << 14

Offsets: TypeAlias = npt.NDArray[np.int64]


class Lines(NamedTuple):
    """Lines without line ends, the offset of each, and dead letters for what could not be read as lines."""

    lines: list[bytes]
    offsets: Offsets
    letters: list[DeadLetter]

    @classmethod
    def of(cls, found: list[tuple[bytes, int]], letters: list[DeadLetter]) -> "Lines":
        return cls([line for line, _ in found], np.array([offset for _, offset in found], np.int64), letters)

    def take(self, rows: list[int]) -> "Lines":
        return Lines([self.lines[row] for row in rows], self.offsets[rows], self.letters)

    def after(self, row: int) -> "Lines":
        return Lines(self.lines[row + 1 :], self.offsets[row + 1 :], self.letters)


def is_compressed(path: str) -> bool:
    return path.endswith(".gz")


def open_text(path: str, gzipped: bool | None = None) -> IO[bytes] | "GzipReader":
    """Open a file for reading its uncompressed bytes; its name decides about gzip unless `gzipped` is given."""
    file = open_input(path)
    return GzipReader(file) if (is_compressed(path) if gzipped is None else gzipped) else file


def byte_ranges(path: str, size: int, target: int, gzipped: bool | None = None) -> list[Split]:
    """Cut a file into ranges of `target` bytes; a gzip file, known by its name or by `gzipped`, is one range."""
    if is_compressed(path) if gzipped is None else gzipped:
        return [Split(path, 0, size, gzipped=True)]
    if not size:
        return [Split(path, 0, size)]
    return [Split(path, start, min(start + target, size)) for start in range(0, size, max(target, 1))]


class TextBlock(NamedTuple):
    """Whole lines of a text, and the offset of the first; the last line of a file may lack its line end."""

    at: int
    text: bytes


def read_lines(split: Split) -> Iterator[Lines]:
    for block in read_blocks(split, LINE_LIMIT):
        yield Lines.of([], block) if isinstance(block, list) else _cut(block.text, block.at)


def read_blocks(split: Split, limit: int) -> Iterator[TextBlock | list[DeadLetter]]:
    """Yield the lines that begin in a range, in blocks of whole lines.

    A line of more than `limit` bytes is cut, and a block of its own. Where a gzip file is damaged there is a dead
    letter, with what was read of the last line.
    """
    with open_text(split.path, split.gzipped) as stream:
        if isinstance(stream, GzipReader):
            yield from _blocks(stream, 0, None, b"", limit)
        elif split.start == 0:
            yield from _blocks(stream, 0, split.end, b"", limit)
        else:
            stream.seek(split.start - 1)
            skipped, rest = _after_line(stream)
            yield from _blocks(stream, split.start - 1 + skipped, split.end, rest, limit)


def _blocks(
    stream: "IO[bytes] | GzipReader", position: int, end: int | None, rest: bytes, limit: int
) -> Iterator[TextBlock | list[DeadLetter]]:
    """Yield the lines that begin before `end`; `rest` was read from the stream already, and begins at `position`."""
    while end is None or position < end:
        try:
            piece = stream.read(BLOCK)
        except (OSError, EOFError) as problem:
            yield [DeadLetter.of(position, f"the file is damaged here: {problem}", rest[:_KEPT])]
            return
        rest += piece
        beyond = 0 if end is None else rest.find(b"\n", end - position - 1) + 1
        size = beyond or (rest.rfind(b"\n") + 1 if piece else len(rest))  # of the whole lines that begin before the end
        if size:
            yield TextBlock(position, rest[:size])
        position, rest = position + size, rest[size:]
        if not piece:
            return
        if len(rest) > limit + len(_BOM) and (end is None or position < end):
            yield TextBlock(position, rest[: limit + len(_BOM) + 1])
            skipped, following = _after_line(stream)
            position, rest = position + len(rest) + skipped, following


def _after_line(stream: "IO[bytes] | GzipReader") -> tuple[int, bytes]:
    """Read to the end of the line: the number of bytes up to there, and the bytes that were read after it."""
    passed = 0
    while piece := stream.read(_PIECE):
        if (end := piece.find(b"\n")) >= 0:
            return passed + end + 1, piece[end + 1 :]
        passed += len(piece)
    return passed, b""


def _cut(block: bytes, start: int) -> Lines:
    if start == 0 and block.startswith(_BOM):
        block, start = block[3:], 3
    lines = block.removesuffix(b"\n").split(b"\n")
    sizes = np.fromiter(map(len, lines), np.int64, len(lines))
    offsets = start + np.cumsum(sizes + 1) - sizes - 1
    long = np.flatnonzero(sizes > LINE_LIMIT).tolist()
    reason = f"a line of more than {LINE_LIMIT >> 20} MiB"
    letters = [DeadLetter.of(int(offsets[row]), reason, lines[row][:_KEPT]) for row in long]
    found = Lines(lines, offsets, letters)
    return found.take(np.flatnonzero(sizes <= LINE_LIMIT).tolist()) if long else found


class GzipReader:
    """Reads a gzip file; returns all bytes before damage, and raises OSError or EOFError only after them."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._pieces = file, _inflate(file)

    def __enter__(self) -> "GzipReader":
        return self

    def __exit__(self, *problem: object) -> None:
        self._file.close()

    def read(self, size: int, /) -> bytes:
        """Return the next bytes, about as many as `_PACKED` compressed ones; empty at the end."""
        return next(self._pieces, b"")


def _inflate(file: IO[bytes]) -> Iterator[bytes]:
    member, is_begun, waiting = zlib.decompressobj(wbits=31), False, b""
    while piece := waiting or file.read(_PACKED):
        before = member.copy()
        try:
            made = member.decompress(piece)
        except zlib.error as problem:
            yield from filter(None, [_until_damage(before, piece)])
            raise OSError(str(problem)) from None
        is_begun, waiting = True, b""
        if member.eof:
            waiting = member.unused_data.lstrip(b"\0")  # some tools fill the end with zeros
            member, is_begun = zlib.decompressobj(wbits=31), False
        if made:
            yield made
    if is_begun:
        raise EOFError("it ends too early")


def _until_damage(member: "zlib._Decompress", piece: bytes) -> bytes:
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
    return file_info(path).modified_us if local is None else os.stat(local).st_mtime_ns // 1000
