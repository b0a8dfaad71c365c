"""Recordings as a source: the files that `genus.bus` writes, and older ones with frames.

`genus.lake._ingest.recorded_blocks` reads blocks. Frames are found by vector operations, exactly those that sequential
reading finds (`genus.bus._frames`), which goes from frame to frame, and after damage to the next valid frame. A good
frame that no other good frame overlaps is found by sequential reading in any case: either the frame before it ends
there, or it is found when damage is skipped. Files are cut at such frames only.

Files of the first format are cut only if they have no damage, because frames after damage may be inside packets. After
damage, they are read sequentially, and so is any file whose header is damaged, which says its format.

Values are checked as the bus does when it decodes, and more strictly in two cases, because a catalog has no defaults
and a table no unknown columns: an attribute that the type does not have, and a required attribute that is missing, make
a dead letter.
"""

import io
import mmap
import zlib
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import islice, pairwise
from typing import IO, NamedTuple, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from genus.bus._attribute_map import UNITS_OF
from genus.bus._blocks import HEADER
from genus.bus._formats import BLOCKS, Format, find_format, format_of_header
from genus.bus._frames import (
    ARRAY_OF_THREE,
    FIRST_FORMAT,
    INVERTED,
    Frame,
    FrameFormat,
    Octets,
    frames_in,
)
from genus.lake._ingest.format import RAW_LIMIT, Chunk, DeadLetter, Split, Types
from genus.lake._ingest.packets import PacketReader
from genus.lake._ingest.recorded_blocks import BlockRun, DamagedPart, FileBytes, find_block_cuts, read_blocks
from genus.lake._ingest.stated_units import StatedUnits, read_stated_units
from genus.lake._tables.files import open_input

PIECE = 1 << 22
"""Bytes that are searched at once; about ten thousand events."""

RUN = 10_000
"""Frames that are given together when a file is read sequentially."""

_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)

Positions: TypeAlias = npt.NDArray[np.int64]


class FrameCandidates(NamedTuple):
    """Positions that look like the beginning of a frame, with the end and checksum in its header."""

    starts: Positions
    ends: Positions
    checksums: Positions

    def where(self, keep: npt.NDArray[np.bool_]) -> "FrameCandidates":
        """The candidates selected by a mask."""
        return self if keep.all() else FrameCandidates(self.starts[keep], self.ends[keep], self.checksums[keep])


def find_candidates(data: bytes, form: FrameFormat, base: int = 0) -> FrameCandidates:
    """All candidates in some bytes; `base` is the position of the first byte."""
    octets = np.frombuffer(data, np.uint8)
    room = max(len(octets) - form.size, 0)
    alike = octets[form.size :] == ARRAY_OF_THREE[0]
    for index, octet in enumerate(form.marker):
        alike &= octets[index : room + index] == octet
    starts = np.flatnonzero(alike)
    header_fields = (
        np.ndarray((room,), "<u8", data, offset=len(form.marker), strides=(1,))[starts]
        if room
        else starts.astype("<u8")
    )
    lengths, checksums = (header_fields & _LOW).astype(np.int64), (header_fields >> _HALF).astype(np.int64)
    found = FrameCandidates(starts + base, starts + base + form.size + lengths, checksums)
    return found.where(lengths <= form.largest)


# -- cutting -----------------------------------------------------------------------------------------------------------


def find_cuts(file: IO[bytes], size: int, target: int) -> list[int]:
    """Positions to cut a file at: good frames that no other frame overlaps, at least `target` bytes apart."""
    file.seek(0)
    form = format_of_header(file.read(len(HEADER)))
    if not isinstance(form, FrameFormat) or (form is FIRST_FORMAT and not _is_whole(file, form, size)):
        return []
    found: list[int] = []
    reach = 0
    for base in range(0, size, PIECE):
        file.seek(base)
        seen = find_candidates(file.read(PIECE + form.size), form, base)
        seen = _without_false_reach(file, form, seen.where(seen.ends <= size))
        reached = np.maximum.accumulate(np.concatenate([[reach], seen.ends]))
        clear = seen.where(seen.starts >= reached[:-1])
        reach = int(reached[-1])
        _cut(file, form, clear, target, found)
    return found


def _is_whole(file: IO[bytes], form: FrameFormat, size: int) -> bool:
    """Whether a file has no damage."""
    at = len(form.header)
    for frames in read_frames(file, form, at, size):
        if frames.gaps(at):
            return False
        at = frames.ends[-1]
    return at == size


def _cut(file: IO[bytes], form: FrameFormat, clear: FrameCandidates, target: int, found: list[int]) -> None:
    """Add the cuts in one piece to `found`."""
    row = 0
    while True:
        due = max((found[-1] if found else 0) + target, len(form.header) + 1)
        row = max(row, int(np.searchsorted(clear.starts, due)))
        if row >= len(clear.starts):
            return
        if _is_good(file, form, clear, row):
            found.append(int(clear.starts[row]))
        row += 1


def _without_false_reach(file: IO[bytes], form: FrameFormat, seen: FrameCandidates) -> FrameCandidates:
    """Drop candidates that overlap others or the end of the piece and are not frames."""
    following = np.append(seen.starts[1:], seen.starts[-1:])
    keep = np.ones(len(seen.starts), np.bool_)
    for row in np.flatnonzero(seen.ends > following).tolist():
        keep[row] = _is_good(file, form, seen, row)
    return seen.where(keep)


def _is_good(file: IO[bytes], form: FrameFormat, seen: FrameCandidates, row: int) -> bool:
    begin, end = int(seen.starts[row]) + form.size, int(seen.ends[row])
    file.seek(begin)
    return form.checksum(file.read(end - begin)) == int(seen.checksums[row])


# -- reading -----------------------------------------------------------------------------------------------------------


class FrameRun(NamedTuple):
    """Good frames in order: their starts, ends and packets."""

    starts: list[int]
    ends: list[int]
    packets: list[bytes]

    def gaps(self, at: int) -> list[tuple[int, int]]:
        """The ranges between frames, beginning at `at`."""
        before = [at, *self.ends[:-1]]
        if before == self.starts:
            return []
        return [(end, start) for end, start in zip(before, self.starts, strict=True) if end != start]


def read_frames(file: IO[bytes], form: FrameFormat, start: int, end: int) -> Iterator[FrameRun]:
    """The good frames between two cuts, piece by piece; bytes between them are damage."""
    at, room = start, PIECE
    while at < end:
        file.seek(at)
        data = file.read(min(room, end - at))
        end = end if len(data) == min(room, end - at) else at + len(data)  # the file was truncated meanwhile
        piece = _Piece(data, form, at, whole=at + len(data) == end)
        piece.read()
        if piece.found.starts:
            yield piece.found
        at, room = piece.at, max(PIECE, piece.wanted)


class _Piece:
    """Reads one piece sequentially, up to where more bytes are needed."""

    def __init__(self, data: bytes, form: FrameFormat, base: int, whole: bool) -> None:
        self.at = base
        self._form = form
        self.wanted = 0
        self.found = FrameRun([], [], [])
        self._data, self._base, self._end, self._whole = data, base, base + len(data), whole
        seen = find_candidates(data, form, base)
        self._seen = seen.where(seen.ends <= self._end) if whole else seen
        self._starts: list[int] = self._seen.starts.tolist()
        self._is_escaped = form.packet(data) != data
        self._breaks: list[int] = (np.flatnonzero(self._seen.ends[:-1] != self._seen.starts[1:]) + 1).tolist()

    def read(self) -> None:
        """Collect the good frames; afterwards `at` is the position to continue at, with at least `wanted` bytes."""
        while self.at < self._end:
            row = bisect_left(self._starts, self.at)
            if row == len(self._starts):
                self._skip_rest()
                return
            if self._starts[row] != self.at:
                self.at = self._starts[row]
            elif not self._take_row(row):
                return

    def _skip_rest(self) -> None:
        """Skip to the end, but for the last bytes if more follow: a frame may begin there."""
        self.at = self._end if self._whole else max(self.at, self._end - self._form.size)

    def _take_row(self, row: int) -> bool:
        """Collect adjacent frames up to the first bad one; False if more bytes are needed to check that one."""
        stop = self._end_of_run(row)
        ends = self._seen.ends[row:stop].tolist()
        starts, stored = self._starts[row:stop], self._stored(row, ends)
        good = self._count_good(row, stored)
        self.found.starts.extend(starts[:good])
        self.found.ends.extend(ends[:good])
        self.found.packets.extend(map(self._form.packet, stored[:good]) if self._is_escaped else stored[:good])
        self.at = ends[good - 1] if good else self.at
        if good == len(ends):
            return True
        if ends[good] > self._end:
            self.wanted = ends[good] - self.at
            return False
        self.at += 1
        return True

    def _end_of_run(self, row: int) -> int:
        index = bisect_left(self._breaks, row + 1)
        return self._breaks[index] if index < len(self._breaks) else len(self._starts)

    def _stored(self, row: int, ends: list[int]) -> list[bytes]:
        data, shift = self._data, self._form.size - self._base
        begins = self._starts[row : row + len(ends)]
        return [data[begin + shift : end - self._base] for begin, end in zip(begins, ends, strict=True)]

    def _count_good(self, row: int, stored: list[bytes]) -> int:
        """The number of packets before the first with a wrong checksum or beyond the end of the piece."""
        expected = self._seen.checksums[row : row + len(stored)]
        made = np.fromiter(map(zlib.crc32, stored), np.int64, len(stored))
        made[made == self._form.reserved] ^= INVERTED
        wrong = np.flatnonzero((made != expected) | (self._seen.ends[row : row + len(stored)] > self._end))
        return int(wrong[0]) if len(wrong) else len(stored)


def read_sequentially(file: IO[bytes], form: FrameFormat, start: int) -> Iterator[FrameRun]:
    """The good frames from a position to the end of the file, in the order and by the rules of the bus."""
    with _whole(file) as data:
        found = (each for each in frames_in(data, form, start) if isinstance(each, Frame))
        while run := list(islice(found, RUN)):
            starts, ends, packets = zip(*run, strict=True)
            yield FrameRun(list(starts), list(ends), list(packets))


@contextmanager
def _whole(file: IO[bytes]) -> Iterator[Octets]:
    """All bytes of a file, mapped to memory if it is a local one."""
    size, descriptor = file.seek(0, io.SEEK_END), _descriptor(file)
    if size == 0:
        yield b""
    elif descriptor is None:
        yield FileBytes(file, size)
    else:
        with mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) as data:
            yield data


def _descriptor(file: IO[bytes]) -> int | None:
    """The descriptor of a local file; None for one of another file system."""
    try:
        return file.fileno()
    except (OSError, AttributeError):
        return None


def _format(file: IO[bytes]) -> Format | None:
    """The format of a file, by its header or, if that is damaged, by what is in it."""
    file.seek(0)
    named = format_of_header(file.read(len(HEADER)))
    if named is not None:
        return named
    with _whole(file) as data:
        return find_format(data)


# -- units -------------------------------------------------------------------------------------------------------------


class UnitsAt(NamedTuple):
    """Units that a frame states, and the position of the frame."""

    position: int
    type: str
    units: Mapping[str, str]


def find_stated_units(file: IO[bytes], cuts: Sequence[int]) -> list[UnitsAt]:
    """The frames of a file that state units, in order; `cuts` are its ends and where it is cut.

    Bytes that look like such a frame are one only if sequential reading finds them, which is done from the last cut. A
    file that is not cut, such as one without a header, is read as a whole, and its units with it.
    """
    file.seek(0)
    form = format_of_header(file.read(len(HEADER)))
    if not isinstance(form, FrameFormat) or len(cuts) == 2:
        return []
    text, found = UNITS_OF.encode(), list[UnitsAt]()
    for base in range(0, cuts[-1], PIECE):
        file.seek(base)
        data = file.read(PIECE + len(text))
        at = data.find(text)
        while at != -1:
            found += _units_at(file, form, cuts, base + at)
            at = data.find(text, at + 1)
    return list({stated.position: stated for stated in found}.values())


def _units_at(file: IO[bytes], form: FrameFormat, cuts: Sequence[int], text_at: int) -> list[UnitsAt]:
    """The frame whose type name begins at a position, after an array of three and one or two bytes of a text."""
    cut = bisect_left(cuts, text_at + 1) - 1
    for frames in read_frames(file, form, cuts[cut] or len(form.header), cuts[cut + 1]):
        if frames.ends[-1] > text_at:
            index = max(bisect_left(frames.starts, text_at) - 1, 0)
            begin = frames.starts[index] + form.size
            stated = read_stated_units(frames.packets[index]) if begin < text_at < begin + 4 else None
            return [] if stated is None else [UnitsAt(frames.starts[index], *stated)]
    return []


def _units_before(start: int, stated: Sequence[UnitsAt]) -> tuple[tuple[str, str, str], ...]:
    last = {each.type: each.units for each in stated if each.position < start}
    return tuple((type_, name, unit) for type_, units in last.items() for name, unit in units.items())


def _as_stated(rows: Iterable[tuple[str, str, str]]) -> StatedUnits:
    found: dict[str, dict[str, str]] = {}
    for type_, name, unit in rows:
        found.setdefault(type_, {})[name] = unit
    return dict(found)


# -- the format --------------------------------------------------------------------------------------------------------


class Recordings(msgspec.Struct, frozen=True):
    """The format of recordings; the position of an event is in its block, or the byte offset of its frame."""

    def splits(self, path: str, size: int, target: int) -> list[Split]:
        """Cut a file at blocks or frames; an older file larger than `target` is searched for them."""
        if size <= target:
            return [Split(path, 0, size)]
        with open_input(path) as file:
            if _format(file) is BLOCKS:
                with _whole(file) as data:
                    ends = [0, *find_block_cuts(data, target), size]
                return [Split(path, start, end) for start, end in pairwise(ends)]
            ends = [0, *find_cuts(file, size, target), size]
            stated = find_stated_units(file, ends)
        return [Split(path, start, end, units=_units_before(start, stated)) for start, end in pairwise(ends)]

    def read(self, split: Split, types: Types) -> Iterator[Chunk]:
        """The events of a split, and a dead letter for every damaged range and every packet that is not an event."""
        with open_input(split.path) as file:
            reader = _reader_of(types)
            yield from _read_blocks(file, split, reader) if _format(file) is BLOCKS else _read(file, split, reader)


def _read_blocks(file: IO[bytes], split: Split, reader: PacketReader) -> Iterator[Chunk]:
    with _whole(file) as data:
        for found in read_blocks(data, split.start, split.end):
            if isinstance(found, DamagedPart):
                raw = data[found.start : min(found.end, found.start + RAW_LIMIT)]
                yield [DeadLetter.of(found.end - 1, found.reason, raw)]
            else:
                yield from _chunks(reader, found, dict(found.units))


def _read(file: IO[bytes], split: Split, reader: PacketReader) -> Iterator[Chunk]:
    units = _as_stated(split.units)
    at, runs = _runs(file, split)
    for frames in runs:
        if gaps := frames.gaps(at):
            yield [_damage(file, *gap) for gap in gaps]
        yield from _chunks(reader, frames, units)
        at = frames.ends[-1]
    if at < split.end or split.end == 0:
        yield [_rest(file, at, split)]


@lru_cache(maxsize=4)
def _reader_of(types: Types) -> PacketReader:
    return PacketReader(types)


def _runs(file: IO[bytes], split: Split) -> tuple[int, Iterator[FrameRun]]:
    """The expected position of the first frame of a split, and its frames."""
    file.seek(0)
    form = format_of_header(file.read(len(HEADER)))
    if isinstance(form, FrameFormat):
        at = split.start or len(form.header)
        frames = read_frames(file, form, at, split.end)
        return at, frames if form.is_escaped else _read_first_format(file, at, frames)
    if split.end == 0:
        return 0, iter(())
    found = _format(file)
    return 0, read_sequentially(file, found, 0) if isinstance(found, FrameFormat) else iter(())


def _read_first_format(file: IO[bytes], at: int, runs: Iterator[FrameRun]) -> Iterator[FrameRun]:
    """The frames of a file of the first format: sequentially from the first damage on."""
    for frames in runs:
        before = [at, *frames.ends[:-1]]
        good = next((row for row, start in enumerate(frames.starts) if start != before[row]), len(before))
        if good:
            yield FrameRun(frames.starts[:good], frames.ends[:good], frames.packets[:good])
            at = frames.ends[good - 1]
        if good < len(before):
            yield from read_sequentially(file, FIRST_FORMAT, at)
            return


def _chunks(reader: PacketReader, run: FrameRun | BlockRun, units: StatedUnits) -> Iterator[Chunk]:
    positions = run.positions if isinstance(run, BlockRun) else run.starts
    found = reader.read(run.packets, positions, units)
    yield from found.columns
    if found.problems:
        yield [
            DeadLetter.of(positions[row], reason, run.packets[row]) for row, reason in sorted(found.problems.items())
        ]


def _damage(file: IO[bytes], start: int, end: int) -> DeadLetter:
    return DeadLetter.of(start, f"damaged: {end - start} bytes skipped", _raw(file, start, end))


def _rest(file: IO[bytes], at: int, split: Split) -> DeadLetter:
    """A dead letter for the bytes after the last frame."""
    is_last = file.seek(0, io.SEEK_END) == split.end
    if at == 0 and is_last:
        return DeadLetter.of(0, f"not a recording: it does not begin with {HEADER!r}", _raw(file, 0, split.end))
    what = "cut short" if is_last else "damaged"
    return DeadLetter.of(at, f"{what}: {split.end - at} bytes skipped", _raw(file, at, split.end))


def _raw(file: IO[bytes], at: int, end: int) -> bytes:
    file.seek(at)
    return file.read(min(end - at, RAW_LIMIT))
