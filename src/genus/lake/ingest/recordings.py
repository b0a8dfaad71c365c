"""Recordings as a source: the files that `genus.bus.recording` writes, of one recorder or from a landing folder.

Every good frame is read once, however a file is cut into splits, and damage is passed over as in a replay. Values are
checked as the bus does when it decodes, and more strictly in two things, for a catalog keeps no defaults and a lake no
unknown columns: an attribute that the type does not have, and one that it requires and that is missing, make a dead
letter.
"""

import io
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from typing import IO

import msgspec

from genus.bus.recording import HEADER
from genus.lake.files import open_input
from genus.lake.ingest.frames import Frames, cuts, read_frames
from genus.lake.ingest.packets import PacketReader
from genus.lake.ingest.source import RAW_LIMIT, Chunk, DeadLetter, Split, Types


class Recordings(msgspec.Struct, frozen=True):
    """The format of recordings.

    An event's position is the byte at which its frame begins; it was recorded when its packet says.

    >>> Recordings().name
    'recordings'
    """

    @property
    def name(self) -> str:
        """What it is called on the command line and in messages."""
        return "recordings"

    def splits(self, path: str, size: int, target: int) -> list[Split]:
        """A file cut at frames; one that is larger than `target` is looked through, at about the speed of reading."""
        if size <= target:
            return [Split(path, 0, size)]
        with open_input(path) as file:
            places = [0, *cuts(file, size, target), size]
        return [Split(path, start, end) for start, end in pairwise(places)]

    def read(self, split: Split, types: Types) -> Iterator[Chunk]:
        """The events of a split, and a dead letter for every damaged range and every packet that is no event."""
        reader = _reader_of(types)
        with open_input(split.path) as file:
            at = _begin(file, split)
            for frames in read_frames(file, at, split.end):
                if gaps := frames.gaps(at):
                    yield [_damage(file, *gap) for gap in gaps]
                yield from _chunks(reader, frames)
                at = frames.ends[-1]
            if at < split.end or split.end == 0:
                yield [_rest(file, at, split)]


@lru_cache(maxsize=4)
def _reader_of(types: Types) -> PacketReader:
    return PacketReader(types)


def _begin(file: IO[bytes], split: Split) -> int:
    """Where the first frame should be."""
    if split.start > 0:
        return split.start
    return len(HEADER) if file.read(len(HEADER)) == HEADER else 0


def _chunks(reader: PacketReader, frames: Frames) -> Iterator[Chunk]:
    found = reader.read(frames.packets, frames.starts)
    yield from found.columns
    if found.problems:
        yield [
            DeadLetter.of(frames.starts[row], reason, frames.packets[row])
            for row, reason in sorted(found.problems.items())
        ]


def _damage(file: IO[bytes], start: int, end: int) -> DeadLetter:
    return DeadLetter.of(start, f"damaged: {end - start} bytes passed over", _raw(file, start, end))


def _rest(file: IO[bytes], at: int, split: Split) -> DeadLetter:
    """What lies behind the last frame."""
    is_last = file.seek(0, io.SEEK_END) == split.end
    if at == 0 and is_last:
        return DeadLetter.of(0, f"not a recording: it does not begin with {HEADER!r}", _raw(file, 0, split.end))
    what = "cut short" if is_last else "damaged"
    return DeadLetter.of(at, f"{what}: {split.end - at} bytes passed over", _raw(file, at, split.end))


def _raw(file: IO[bytes], at: int, end: int) -> bytes:
    file.seek(at)
    return file.read(min(end - at, RAW_LIMIT))
