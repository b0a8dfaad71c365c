"""Recordings: events written to a file as they are published, and replayed from it.

A file is a header of eight bytes and then frames: two sync bytes, length and CRC-32 of a packet (little-endian), the
packet. A damaged frame does not affect others: reading goes on at the next position where sync, length and checksum
agree, so a file can also be read from the middle. A truncated file replays up to the cut. Both are counted.

Before the first event of a type that has units there is a packet that states them, so that a class with other units
converts the values. Earlier releases count that packet as an unknown type and skip it.
"""

import mmap
import os
import struct
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from genus.bus._attribute_map import UnreadValues, encode_units
from genus.bus._bus import Bus, log
from genus.bus._codec import EventDecoder, Recorded, Rejected, encode_event
from genus.errors import RecordingError
from genus.filters import Subscription
from genus.model import Event

HEADER = b"genus\x01\r\n"
SYNC = b"\x9e\x47"
FRAME = struct.Struct("<2sII")
"""The header of every packet: sync, length and checksum."""
LARGEST = 1 << 26
"""The longest packet, in bytes."""
ARRAY_OF_THREE = b"\x93"
"""The first byte of every packet: a cheaper test than the checksum."""


class RecordingWriter:
    """Writes events to a new recording, or to the end of an existing one with `append`.

    RecordingError if the file cannot be written; a file that exists is not overwritten.
    """

    def __init__(self, path: str | os.PathLike[str], *, append: bool = False) -> None:
        self.path = Path(path)
        self.written = 0
        if append and self.path.exists() and self.path.stat().st_size:
            _check_header(self.path)
        try:
            self._file = self.path.open("ab" if append else "xb")
        except FileExistsError:
            raise RecordingError(
                f"{self.path} exists; choose another name, or append (append=True, --append)"
            ) from None
        except OSError as problem:
            raise RecordingError(f"cannot write {self.path}: {problem.strerror}") from None
        self._lock = threading.Lock()
        self._stated: set[type] = set()
        if self._file.tell() == 0:
            self._file.write(HEADER)

    def write(self, event: Event, at_us: int) -> None:
        """Add an event with its time of recording in microseconds since 1970."""
        self.append(encode_event(event, at_us), type(event), at_us)

    def append(self, packet: bytes, cls: type | None = None, at_us: int = 0) -> None:
        """Add an encoded packet, and before the first of a class its units."""
        with self._lock, _as_recording_errors(self.path):
            if cls is not None and cls not in self._stated:
                self._state_units(cls, at_us)
            self._file.write(_frame(packet))
            self.written += 1

    def _state_units(self, cls: type, at_us: int) -> None:
        if (packet := encode_units(cls, at_us)) is not None:
            self._file.write(_frame(packet))
        self._stated.add(cls)

    def flush(self) -> None:
        """Hand what is buffered to the operating system."""
        with self._lock, _as_recording_errors(self.path):
            if not self._file.closed:
                self._file.flush()

    def close(self) -> None:
        """Flush to the disk and close the file."""
        with self._lock, _as_recording_errors(self.path):
            if not self._file.closed:
                try:
                    self._file.flush()
                    os.fsync(self._file.fileno())
                finally:
                    self._file.close()

    def __enter__(self) -> "RecordingWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _frame(packet: bytes) -> bytes:
    return FRAME.pack(SYNC, len(packet), zlib.crc32(packet)) + packet


def _check_header(path: Path) -> None:
    """RecordingError for a file that has neither the header of a recording nor one valid frame."""
    try:
        with open(path, "rb") as file:
            start = file.read(len(HEADER))
            if start == HEADER or (start and _holds_a_frame(file.fileno())):
                return
    except OSError as problem:
        raise RecordingError(f"cannot read {path}: {problem.strerror}") from None
    raise RecordingError(f"{path} is not a recording: it does not begin with {HEADER!r}")


def _holds_a_frame(descriptor: int) -> bool:
    with mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) as data:
        return next_frame(data, 0) != -1


def next_frame(data: mmap.mmap, start: int) -> int:
    """The position of the next valid frame; -1 if there is none."""
    at = data.find(SYNC, start)
    while at != -1 and packet_at(data, at) is None:
        at = data.find(SYNC, at + 1)
    return at


@dataclass(slots=True)
class Recording:
    """A recording to read: iterating gives its events, oldest first.

    `events` counts them, `problems` counts packets that are no event of a known type by reason, `damage` lists the
    damaged parts of the file, and `unread` counts values that were left out of events, because the class has no
    attribute for them (`Loop.speed`). All are complete when the iteration has ended.
    """

    path: Path
    types: Iterable[type] | None = None
    events: int = 0
    problems: Counter[str] = field(default_factory=Counter)
    damage: list[str] = field(default_factory=list)
    unread: UnreadValues = field(default_factory=UnreadValues)

    @property
    def size(self) -> int:
        """Bytes in the file."""
        return self.path.stat().st_size

    def __iter__(self) -> Iterator[Recorded]:
        """The events, oldest first."""
        decoder = EventDecoder(self.types)
        self.events, self.problems, self.damage, self.unread = 0, Counter(), [], decoder.unread
        for packet in self._packets():
            found = decoder.decode(packet)
            if isinstance(found, Recorded):
                self.events += 1
                yield found
            elif isinstance(found, Rejected):
                self.problems[found.reason] += 1

    def _packets(self) -> Iterator[bytes]:
        with open(self.path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            at = len(HEADER) if data[: len(HEADER)] == HEADER else self._skip_damage(data, -1)
            while at < len(data):
                packet = packet_at(data, at)
                if packet is None:
                    at = self._skip_damage(data, at)
                else:
                    yield packet
                    at += FRAME.size + len(packet)

    def _skip_damage(self, data: mmap.mmap, start: int) -> int:
        """Note a damaged part; returns the position of the next valid frame."""
        at = next_frame(data, start + 1)
        end = len(data) if at == -1 else at
        what = "truncated" if at == -1 else "damaged"
        self.damage.append(f"{self.path}: {what} at byte {max(start, 0)}: {end - max(start, 0)} bytes skipped")
        return end


def packet_at(data: mmap.mmap, at: int) -> bytes | None:
    """The packet of the frame at a position; None if there is no valid frame."""
    if at + FRAME.size > len(data):
        return None
    sync, length, checksum = FRAME.unpack_from(data, at)
    start = at + FRAME.size
    if sync != SYNC or length > LARGEST or start + length > len(data) or data[start : start + 1] != ARRAY_OF_THREE:
        return None
    packet = data[start : start + length]
    return packet if zlib.crc32(packet) == checksum else None


def as_subscription(given: Subscription | str | None) -> Subscription:
    """A subscription that was given as it is, as text, or not at all, which means all events."""
    if isinstance(given, str):
        return Subscription.parse(given)
    return Subscription(Event) if given is None else given


@contextmanager
def _as_recording_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        raise RecordingError(f"cannot write {path}: {problem.strerror or problem}") from problem


def read_recording(path: str | os.PathLike[str], types: Iterable[type] | None = None) -> Recording:
    """Open a recording; RecordingError if the file is none.

    Events of types that are not among `types` (default: all declared types) are counted in `problems` and skipped.
    """
    _check_header(Path(path))
    return Recording(Path(path), types)


def record(
    bus: Bus,
    path: str | os.PathLike[str],
    subscription: Subscription | str | None = None,
    *,
    append: bool = False,
    clock: Callable[[], int] | None = None,
) -> "Recorder":
    """Write every event that matches a subscription (default: all) to a file, until the recorder is closed.

    Args:
        bus: The bus whose events are recorded.
        path: The file to write.
        subscription: What to record, as a subscription or its text.
        append: Continue a file that exists.
        clock: Gives the time of recording in nanoseconds since 1970; by default the bus's time.

    Raises:
        RecordingError: The file cannot be created. If it cannot be written later (the disk is full), recording ends,
            further events are counted in `lost`, and closing the recorder raises the error.

    >>> import tempfile, pathlib
    >>> from genus import Event, open_bus
    >>> class Lamp(Event):
    ...     on: bool
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "lamps.genus"
    >>> with open_bus("local:") as bus, record(bus, file):
    ...     bus.publish(Lamp(on=True))
    >>> [recorded.event for recorded in read_recording(file, [Lamp])]
    [Lamp(on=True)]
    """
    return Recorder(bus, RecordingWriter(path, append=append), as_subscription(subscription), clock or bus.time_ns)


class Recorder:
    """A recording in progress, made by `record`; close it, or leave its `with` block, to finish the file."""

    def __init__(self, bus: Bus, writer: RecordingWriter, subscription: Subscription, clock: Callable[[], int]) -> None:
        self.writer = writer
        self.lost = 0
        """Events that could not be written."""
        self.problem: RecordingError | None = None
        """Why nothing more can be written."""
        self._clock = clock
        self._listener = bus.subscribe(subscription, self._write)

    @property
    def written(self) -> int:
        """How many events were written."""
        return self.writer.written

    def _write(self, event: Event) -> None:
        if self.problem is None:
            try:
                return self.writer.write(event, self._clock() // 1000)
            except RecordingError as problem:
                self.problem = problem
                log().error("recording ended: %s", problem)
        self.lost += 1

    def flush(self) -> None:
        """Hand what is buffered to the operating system."""
        if self.problem is None:
            try:
                self.writer.flush()
            except RecordingError as problem:
                self.problem = problem
                log().error("recording ended: %s", problem)

    def close(self) -> None:
        """Stop recording and finish the file; RecordingError if events could not be written."""
        self._listener.cancel()
        try:
            self.writer.close()
        except RecordingError as problem:
            self.problem = self.problem or problem
        if self.problem is not None:
            raise self.problem

    def __enter__(self) -> "Recorder":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def replay(
    recording: Recording,
    publish: Callable[[Event], object],
    subscription: Subscription | str | None = None,
    *,
    speed: float | None = None,
    bus: Bus | None = None,
    sleep: Callable[[float], object] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Call `publish` with the events of a recording that match a subscription (default: all); returns how many.

    Parts of the file that cannot be read are skipped and listed in the recording's `problems`. Values that the classes
    have no attribute for are counted in its `unread`, and logged at the end.

    Args:
        recording: What `read_recording` returned.
        publish: Is called with each event, such as `bus.publish`.
        subscription: Which events, as a subscription or its text.
        speed: 1.0 keeps the original intervals, 2.0 is twice as fast; None is as fast as possible.
        bus: Keep the intervals in the time of this bus, as a program in the simulator must.
        sleep: Replaces `time.sleep`; it may return early.
        clock: Replaces `time.monotonic`.

    Raises:
        ValueError: `speed` is not positive.
    """
    if speed is not None and speed <= 0:
        raise ValueError(f"speed must be more than 0, not {speed}")
    if bus is not None:
        sleep, clock = bus.sleep, lambda: bus.time_ns() / 1e9
    wanted = as_subscription(subscription)
    began, first, count = clock(), None, 0
    for recorded in recording:
        if not wanted.matches(recorded.event):
            continue
        if speed is not None:
            first = recorded.at_us if first is None else first
            ahead = (recorded.at_us - first) / 1e6 / speed - (clock() - began)
            if ahead > 0:
                sleep(ahead)
        publish(recorded.event)
        count += 1
    for line in recording.unread.lines():
        log().warning("%s: %s", recording.path, line)
    return count
