"""Traces: all transmissions on a bus, in memory, as a file, counted by traffic class, identifier or sender; and the
stretch of one that shows the most.

A trace file has a header line and then one line, a JSON array, per transmission, whether it succeeded or failed. The
same seed gives the same bytes. A line that cannot be read is counted and skipped.
"""

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from genus.can._sim.errors import FrameOutcome
from genus.can._wire.frame import PRIORITY_SHIFT, Frame, Priority
from genus.errors import RecordingError

T = TypeVar("T")
_EXTENDED, _FD = 1, 2


class TrafficClass(StrEnum):
    """The class of a frame's traffic, by its priority.

    >>> [str(TrafficClass.of(identifier)) for identifier in (0, 0x0021_6010, 253 << 21, 255 << 21)]
    ['hard', 'soft', 'system', 'none']
    """

    HARD = "hard"
    SOFT = "soft"
    SYSTEM = "system"
    """Frames of the middleware: clock, claims, configuration, binding."""
    NONE = "none"
    """Without a deadline."""

    @classmethod
    def of(cls, identifier: int) -> "TrafficClass":
        """Return the traffic class of a 29-bit identifier."""
        return CLASS_BY_PRIORITY[identifier >> PRIORITY_SHIFT & 0xFF]


def _class_of_priority(priority: int) -> TrafficClass:
    if priority < Priority.SOFT_FIRST:
        return TrafficClass.HARD
    if priority <= Priority.SOFT_LAST:
        return TrafficClass.SOFT
    return TrafficClass.NONE if priority >= Priority.NONE else TrafficClass.SYSTEM


CLASS_BY_PRIORITY = tuple(map(_class_of_priority, range(256)))


class BusFrame(msgspec.Struct, frozen=True, gc=False):
    """A transmission as the bus reports it at its end; a `Passage` is what a trace keeps of it."""

    start_ns: int
    end_ns: int
    frame: Frame
    senders: tuple[int, ...]
    outcome: FrameOutcome
    received_by: tuple[int, ...]
    missed_by: tuple[int, ...] = ()
    segment: int = 0


class Passage(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One transmission, from its first bit to the end of the intermission after the frame or its error frame."""

    start_ns: int
    end_ns: int
    id: int
    flags: int
    """The sum of 1 (extended) and 2 (FD)."""
    data: str
    """In hexadecimal."""
    senders: tuple[int, ...]
    """The numbers of the stations; several if they sent the same frame at the same time."""
    outcome: FrameOutcome
    received_by: tuple[int, ...]
    missed_by: tuple[int, ...] = ()
    """Stations whose filters accept the frame, and that did not receive it because of a fault."""
    segment: int = 0
    """The number of the bus in the simulation: 1 is the second segment of a partitioned bus."""

    @classmethod
    def of(cls, sent: BusFrame) -> "Passage":
        """Return what is kept of a transmission."""
        frame = sent.frame
        flags = (_EXTENDED if frame.extended else 0) | (_FD if frame.fd else 0)
        return cls(
            sent.start_ns,
            sent.end_ns,
            frame.id,
            flags,
            frame.data.hex(),
            sent.senders,
            sent.outcome,
            sent.received_by,
            sent.missed_by,
            sent.segment,
        )

    @property
    def frame(self) -> Frame:
        """The frame."""
        return Frame(self.id, bytes.fromhex(self.data), bool(self.flags & _FD), bool(self.flags & _EXTENDED))

    @property
    def traffic_class(self) -> TrafficClass:
        """The traffic class of the frame."""
        return TrafficClass.of(self.id)


class TraceHeader(msgspec.Struct, frozen=True, kw_only=True, tag="genus can trace", tag_field="file"):
    """The first line of a trace file: the bus and the seed."""

    version: int = 1
    bitrate: int = 1_000_000
    data_bitrate: int | None = None
    exact_lengths: bool = True
    seed: int = 0
    title: str = ""


class TrafficCounts(NamedTuple):
    """Frames sent, failed transmissions and bus time of a group of transmissions."""

    frames: int
    errors: int
    busy_ns: int


class Trace:
    """State: all transmissions of a run, oldest first.

    >>> trace = Trace()
    >>> trace.record(BusFrame(0, 110_000, Frame(0x0021_6010, b"hello"), (5,), FrameOutcome.SENT, (1, 2)))
    >>> print(trace.to_bytes().decode().splitlines()[1])
    [0,110000,2187280,1,"68656c6c6f",[5],"sent",[1,2],[],0]
    >>> Trace.from_bytes(trace.to_bytes()).passages == trace.passages
    True
    """

    def __init__(self, header: TraceHeader | None = None) -> None:
        self.header = header or TraceHeader()
        self.passages: list[Passage] = []
        self.unreadable = 0
        """How many lines of the file were skipped."""

    def __len__(self) -> int:
        return len(self.passages)

    def __iter__(self) -> Iterator[Passage]:
        return iter(self.passages)

    @property
    def first_ns(self) -> int:
        """When the first transmission started."""
        return min((passage.start_ns for passage in self.passages), default=0)

    @property
    def span_ns(self) -> int:
        """When the last transmission ended."""
        return max((passage.end_ns for passage in self.passages), default=0)

    def record(self, sent: BusFrame) -> None:
        """Add a transmission."""
        self.passages.append(Passage.of(sent))

    def between(self, start_ns: int, end_ns: int) -> "Trace":
        """Return a trace of the transmissions that overlap a span of time."""
        part = Trace(self.header)
        part.passages = [each for each in self.passages if each.start_ns < end_ns and each.end_ns > start_ns]
        return part

    # Counts

    @property
    def total(self) -> TrafficCounts:
        """The counts of all transmissions."""
        sent = sum(passage.outcome.is_good for passage in self.passages)
        busy_ns = sum(passage.end_ns - passage.start_ns for passage in self.passages)
        return TrafficCounts(sent, len(self.passages) - sent, busy_ns)

    @property
    def load(self) -> float:
        """The share of time in which the bus was busy, until the last transmission ended."""
        return self.total.busy_ns / self.span_ns if self.span_ns else 0.0

    # Files

    def to_bytes(self) -> bytes:
        """Return the content of the trace file."""
        return msgspec.json.encode(self.header) + b"\n" + _lines(self.passages)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a trace file; RecordingError if that fails."""
        try:
            Path(path).write_bytes(self.to_bytes())
        except OSError as problem:
            raise RecordingError(f"cannot write {path}: {problem.strerror}") from None

    @classmethod
    def from_bytes(cls, content: bytes) -> "Trace":
        """Read the content of a trace file; RecordingError if its first line is no trace header."""
        first, _, rest = content.partition(b"\n")
        try:
            trace = cls(msgspec.json.decode(first, type=TraceHeader))
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise RecordingError("this is no trace of a CAN bus: its first line is no trace header") from None
        for line in rest.splitlines():
            trace._read_line(line)
        return trace

    @classmethod
    def load_file(cls, path: str | os.PathLike[str]) -> "Trace":
        """Read a trace file; RecordingError if it cannot be read or is none."""
        try:
            content = Path(path).read_bytes()
        except OSError as problem:
            raise RecordingError(f"cannot read {path}: {problem.strerror}") from None
        return cls.from_bytes(content)

    def _read_line(self, line: bytes) -> None:
        try:
            passage = _DECODER.decode(line)
            _check_passage(passage)
        except (ValueError, UnicodeDecodeError):
            self.unreadable += 1
        else:
            self.passages.append(passage)


def make_room(kept: list[T], most: int | None) -> None:
    """Remove the oldest eighth of a list that holds as many as it may; None is without limit.

    >>> kept = list(range(16))
    >>> make_room(kept, 16)
    >>> kept[0], len(kept)
    (2, 14)
    """
    if most is not None and len(kept) >= most:
        del kept[: len(kept) - most + max(1, most // 8)]


_DECODER = msgspec.json.Decoder(Passage)
_ENCODER = msgspec.json.Encoder()


def _check_passage(passage: Passage) -> None:
    """Raise ValueError for times, senders, identifiers or data that are impossible on a bus."""
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


# -- the stretch that a picture shows ----------------------------------------------------------------------------------

PARTS = 4
"""A stretch begins at a multiple of its length divided by this."""
ENOUGH = 4
"""So many frames of a kind show it; more do not count."""
_WEIGHTS: dict[str, int] = {TrafficClass.HARD: 2, TrafficClass.SOFT: 2, TrafficClass.SYSTEM: 1, TrafficClass.NONE: 1}
_FAULT_WEIGHT = 3
_INSTANT_WEIGHT = 4


def choose_stretch(
    trace: Trace, begin_ns: int, end_ns: int, length_ns: int, instants: Iterable[int] = ()
) -> tuple[int, int]:
    """Return the stretch of a length between two times that shows the most; the first of several that are equal.

    Every class of traffic counts, every kind of fault of a frame counts more, and `instants` of special interest most:
    the first time that something happened. The whole span if it is not longer.

    >>> from genus.can._sim.errors import FrameOutcome
    >>> from genus.can._wire.frame import Frame
    >>> trace = Trace()
    >>> for at, outcome in ((0, FrameOutcome.SENT), (700, FrameOutcome.ERROR), (900, FrameOutcome.SENT)):
    ...     trace.record(BusFrame(at, at + 50, Frame(7 << 14), (7,), outcome, (8,)))
    >>> choose_stretch(trace, 0, 1000, 400), choose_stretch(trace, 0, 300, 400)
    ((600, 1000), (0, 300))
    """
    if end_ns - begin_ns <= length_ns:
        return begin_ns, end_ns
    part_ns = max(1, length_ns // PARTS)
    parts: dict[int, Counter[str]] = {}
    for passage in trace.between(begin_ns, end_ns):
        parts.setdefault((passage.start_ns - begin_ns) // part_ns, Counter()).update(_kinds(passage))
    for instant in instants:
        if begin_ns <= instant < end_ns:
            parts.setdefault((instant - begin_ns) // part_ns, Counter())["instant"] += 1
    starts = range((end_ns - begin_ns - length_ns) // part_ns + 1)
    best = max(starts, key=lambda start: (_score(parts, start), -start), default=0)
    first_ns = begin_ns + best * part_ns
    return first_ns, first_ns + length_ns


def _kinds(passage: Passage) -> Iterable[str]:
    if passage.missed_by:
        yield "missed"
    yield passage.traffic_class if passage.outcome.is_good else passage.outcome


def _score(parts: dict[int, Counter[str]], start: int) -> float:
    counts: Counter[str] = Counter()
    for part in range(start, start + PARTS):
        counts.update(parts.get(part, {}))
    instants = counts.pop("instant", 0)
    shown = sum(_WEIGHTS.get(kind, _FAULT_WEIGHT) * min(count, ENOUGH) / ENOUGH for kind, count in counts.items())
    return shown + _INSTANT_WEIGHT * instants
