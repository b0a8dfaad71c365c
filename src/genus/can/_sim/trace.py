"""Everything that happened on a bus: in memory, as a file of lines, and counted.

A file is a line about the bus and then one line, a JSON array, per frame that took the bus, well or not. The same seed
gives the same bytes. A line that cannot be read is counted and passed over.
"""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from genus.can._sim.fault_hooks import Outcome
from genus.can._wire.frame import PRIORITY_SHIFT, Frame, Priority
from genus.errors import RecordingError

# The classes of traffic by priority, as faults, counters and pictures name them.


class Band(StrEnum):
    """A range of priorities.

    >>> Band.of(0), Band.of(0x0021_6010), Band.of(253 << 21), Band.of(255 << 21)
    (<Band.HARD: 'hard'>, <Band.SOFT: 'soft'>, <Band.SYSTEM: 'system'>, <Band.NONE: 'none'>)
    """

    HARD = "hard"
    SOFT = "soft"
    SYSTEM = "system"
    """The middleware's own: clock, claims, configuration, binding."""
    NONE = "none"

    @classmethod
    def of(cls, identifier: int) -> "Band":
        """The band of a 29-bit identifier."""
        return _BANDS[identifier >> PRIORITY_SHIFT & 0xFF]


def _band(priority: int) -> Band:
    if priority < Priority.SOFT_FIRST:
        return Band.HARD
    if priority <= Priority.SOFT_LAST:
        return Band.SOFT
    return Band.NONE if priority >= Priority.NONE else Band.SYSTEM


_BANDS = tuple(map(_band, range(256)))


K = TypeVar("K")
_EXTENDED, _FD = 1, 2


class Passage(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A frame's time on the bus, from its first bit to the end of the intermission after it, or after its error."""

    start_ns: int
    end_ns: int
    id: int
    flags: int
    """1: extended, 2: FD."""
    data: str
    """In hexadecimal."""
    senders: tuple[int, ...]
    """Stations; several if they sent the same frame at the same time."""
    outcome: Outcome
    heard: tuple[int, ...]
    """Stations that received it."""
    missed: tuple[int, ...] = ()
    """Stations that should have."""
    segment: int = 0
    """Which bus of the simulation."""

    @property
    def frame(self) -> Frame:
        """The frame."""
        return Frame(self.id, bytes.fromhex(self.data), bool(self.flags & _FD), bool(self.flags & _EXTENDED))

    @property
    def band(self) -> Band:
        """The class of its traffic."""
        return Band.of(self.id)


class Header(msgspec.Struct, frozen=True, kw_only=True, tag="genus can trace", tag_field="file"):
    """The first line of a file: what is needed to read the rest."""

    version: int = 1
    bitrate: int = 1_000_000
    data_bitrate: int | None = None
    exact_lengths: bool = True
    seed: int = 0
    title: str = ""


class Tally(NamedTuple):
    """What a group of frames took."""

    frames: int
    errors: int
    busy_ns: int

    def load(self, span_ns: int) -> float:
        """The share of the bus."""
        return self.busy_ns / span_ns if span_ns else 0.0


class Trace:
    """State: the passages of a run, oldest first.

    >>> trace = Trace()
    >>> trace.record(0, 110_000, Frame(0x0021_6010, b"hello"), (5,), Outcome.SENT, (1, 2))
    >>> print(trace.to_bytes().decode().splitlines()[1])
    [0,110000,2187280,1,"68656c6c6f",[5],"sent",[1,2],[],0]
    >>> Trace.from_bytes(trace.to_bytes()).passages == trace.passages
    True
    """

    def __init__(self, header: Header | None = None) -> None:
        self.header = header or Header()
        self.passages: list[Passage] = []
        self.unreadable = 0
        """Lines of the file that were passed over."""

    def __len__(self) -> int:
        return len(self.passages)

    def __iter__(self) -> Iterator[Passage]:
        return iter(self.passages)

    @property
    def first_ns(self) -> int:
        """The time of the first start."""
        return min((passage.start_ns for passage in self.passages), default=0)

    @property
    def span_ns(self) -> int:
        """The time of the last end."""
        return max((passage.end_ns for passage in self.passages), default=0)

    def record(
        self,
        start_ns: int,
        end_ns: int,
        frame: Frame,
        senders: tuple[int, ...],
        outcome: Outcome,
        heard: tuple[int, ...],
        missed: tuple[int, ...] = (),
        segment: int = 0,
    ) -> None:
        """Add a passage."""
        flags = (_EXTENDED if frame.extended else 0) | (_FD if frame.fd else 0)
        self.passages.append(
            Passage(start_ns, end_ns, frame.id, flags, frame.data.hex(), senders, outcome, heard, missed, segment)
        )

    def between(self, start_ns: int, end_ns: int) -> "Trace":
        """The passages that overlap a span of time."""
        part = Trace(self.header)
        part.passages = [each for each in self.passages if each.start_ns < end_ns and each.end_ns > start_ns]
        return part

    # Counted

    def by_band(self) -> dict[Band, Tally]:
        """What each class of traffic took."""
        found = self._tallies([passage.band for passage in self.passages])
        return {band: found[band] for band in Band if band in found}

    def by_id(self) -> dict[int, Tally]:
        """What each identifier took, in the order of their priority."""
        return dict(sorted(self._tallies([passage.id for passage in self.passages]).items()))

    def by_sender(self) -> dict[int, Tally]:
        """What each station took; a frame that several sent together counts for the first."""
        return dict(sorted(self._tallies([passage.senders[0] for passage in self.passages]).items()))

    @property
    def total(self) -> Tally:
        """What all frames took."""
        return self._tallies([0] * len(self.passages)).get(0, Tally(0, 0, 0))

    @property
    def load(self) -> float:
        """The share of time in which the bus was not idle, up to the last end."""
        return self.total.load(self.span_ns)

    def _tallies(self, keys: Sequence[K]) -> dict[K, Tally]:
        frames, errors, busy = Counter[K](), Counter[K](), Counter[K]()
        for key, passage in zip(keys, self.passages, strict=True):
            (frames if passage.outcome.is_good else errors)[key] += 1
            busy[key] += passage.end_ns - passage.start_ns
        return {key: Tally(frames[key], errors[key], busy[key]) for key in busy}

    # As a file

    def to_bytes(self) -> bytes:
        """The file."""
        return msgspec.json.encode(self.header) + b"\n" + _lines(self.passages)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the file."""
        try:
            Path(path).write_bytes(self.to_bytes())
        except OSError as problem:
            raise RecordingError(f"cannot write {path}: {problem.strerror}") from None

    @classmethod
    def from_bytes(cls, content: bytes) -> "Trace":
        """The trace of a file's bytes; RecordingError if it does not begin as one."""
        first, _, rest = content.partition(b"\n")
        try:
            trace = cls(msgspec.json.decode(first, type=Header))
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise RecordingError("this is no trace of a CAN bus: its first line does not say so") from None
        for line in rest.splitlines():
            trace._read(line)
        return trace

    @classmethod
    def load_file(cls, path: str | os.PathLike[str]) -> "Trace":
        """Read a file."""
        try:
            return cls.from_bytes(Path(path).read_bytes())
        except OSError as problem:
            raise RecordingError(f"cannot read {path}: {problem.strerror}") from None

    def _read(self, line: bytes) -> None:
        try:
            passage = _PASSAGE.decode(line)
            _check(passage)
        except (ValueError, UnicodeDecodeError):
            self.unreadable += 1
        else:
            self.passages.append(passage)


_PASSAGE = msgspec.json.Decoder(Passage)
_ENCODER = msgspec.json.Encoder()


def _check(passage: Passage) -> None:
    """ValueError for what no bus can have carried."""
    size = len(bytes.fromhex(passage.data))
    identifier_bits = 29 if passage.flags & _EXTENDED else 11
    in_order = 0 <= passage.start_ns < passage.end_ns
    if (
        not in_order
        or not passage.senders
        or passage.id >> identifier_bits
        or size > (64 if passage.flags & _FD else 8)
    ):
        raise ValueError


def _lines(passages: list[Passage]) -> bytes:
    return b"".join(_ENCODER.encode(passage) + b"\n" for passage in passages)
