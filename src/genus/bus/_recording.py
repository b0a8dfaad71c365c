"""Recordings: events written to a file as they are published, and replayed from it.

`genus.bus._frames` has the format of the file. A damaged frame loses its own event, and a file that was cut replays up
to the cut; both are listed in `damage`. Only events that can be read back are written.

Before the first event of a type that has units there is a packet that states them, so that a class with other units
converts the values. Earlier releases count that packet as an unknown type and skip it.
"""

import mmap
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import monotonic

from genus.bus._attribute_map import UnreadValues, encode_units, has_units
from genus.bus._bus import Bus
from genus.bus._codec import EventDecoder, Recorded, Rejected, encode_event
from genus.bus._delivery import log
from genus.bus._frames import FORMAT, LARGEST, Frame, FrameFormat, Gap, find_format, frames_in
from genus.bus._recording_index import IndexBuilder, RecordingIndex, frames_from
from genus.bus._refusals import Refusals, WhenInvalid, subscribe_recorder
from genus.errors import EventError, RecordingError
from genus.filters import Subscription
from genus.model import Event, name_of

HEADER = FORMAT.header
"""The first bytes of a new recording."""


class RecordingWriter:
    """Writes events to a new recording, or to the end of an existing one with `append`.

    RecordingError if the file cannot be written; a file that exists is not overwritten.
    """

    def __init__(self, path: str | os.PathLike[str], *, append: bool = False) -> None:
        self.path = Path(path)
        self.written = 0
        continues = append and self.path.exists() and self.path.stat().st_size > 0
        self._format = _check_format(self.path) if continues else FORMAT
        try:
            self._file = self.path.open("ab" if append else "xb")
        except FileExistsError:
            raise RecordingError(
                f"{self.path} exists; choose another name, or append (append=True, --append)"
            ) from None
        except OSError as problem:
            raise RecordingError(f"cannot write {self.path}: {problem.strerror}") from None
        self._lock = threading.Lock()
        self._stated: dict[str, type] = {}
        """The class whose units were stated last, by the name of the type."""
        self._continues = continues
        if self._file.tell() == 0:
            self._file.write(HEADER)

    def write(self, event: Event, at_us: int) -> None:
        """Add an event with its time of recording in microseconds since 1970.

        EventError names the value with which the event could not be read back; nothing is written then.
        """
        self.append(encode_event(event, at_us), type(event), at_us)

    def append(self, packet: bytes, cls: type | None = None, at_us: int = 0) -> None:
        """Add an encoded packet, and before the first of a class its units; EventError if it is too long to be read."""
        check_length(packet)
        frame = self._format.frame(packet)
        with self._lock:
            try:
                if cls is not None and self._stated.get(name_of(cls)) is not cls:
                    self._state_units(cls, at_us)
                self._file.write(frame)
            except OSError as problem:
                raise _recording_error(self.path, problem) from problem
            self.written += 1

    def _state_units(self, cls: type, at_us: int) -> None:
        """State the units of a class; also that it has none, if others may have been stated for its name."""
        if has_units(cls) or self._continues or name_of(cls) in self._stated:
            self._file.write(self._format.frame(encode_units(cls, at_us)))
        self._stated[name_of(cls)] = cls

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


def check_length(packet: bytes) -> None:
    """Raise EventError if a packet is too long to be read back."""
    if len(packet) > LARGEST:
        raise EventError(
            f"an event takes {len(packet):,} bytes, but a recording holds at most {LARGEST:,} of one event"
        )


def _check_format(path: Path) -> FrameFormat:
    """The format of a file; RecordingError if it has neither the header of a recording nor one valid frame."""
    try:
        with open(path, "rb") as file:
            found = _format_of(file.fileno()) if path.stat().st_size else None
    except OSError as problem:
        raise RecordingError(f"cannot read {path}: {problem.strerror}") from None
    if found is None:
        raise RecordingError(f"{path} is not a recording: it does not begin with {HEADER!r}")
    return found


def _format_of(descriptor: int) -> FrameFormat | None:
    with mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) as data:
        return find_format(data)


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
    _index: RecordingIndex | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def size(self) -> int:
        """Bytes in the file."""
        return self.path.stat().st_size

    def __iter__(self) -> Iterator[Recorded]:
        """The events, oldest first."""
        return self._events(EventDecoder(self.types), frames_in)

    def index(self, progress: Callable[[int, int], object] | None = None) -> RecordingIndex:
        """What the recording has, and where its times are; made once, in a pass that decodes no event.

        Args:
            progress: Called now and then with the bytes that were read, and the total; what it raises ends the pass.
        """
        if self._index is None:
            with open(self.path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                check = SizeCheck(self.path, data)
                self._index = IndexBuilder().read(data, find_format(data) or FORMAT, progress, check)
        return self._index

    def read_from(self, time_us: int) -> Iterator[Recorded]:
        """The events from a time in microseconds since 1970 on, without decoding those before; needs the index.

        Events are in the order of the file. Where times go back, an event counts as of the latest time so far.

        >>> import tempfile, pathlib
        >>> from genus import Event
        >>> class Lamp(Event):
        ...     on: bool
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "lamps.genus"
        >>> with RecordingWriter(file) as writer:
        ...     for second in range(5):
        ...         writer.write(Lamp(on=second % 2 == 0), second * 1_000_000)
        >>> recording = read_recording(file, [Lamp])
        >>> [recorded.at_us for recorded in recording.read_from(3_000_000)]
        [3000000, 4000000]
        >>> index = recording.index()
        >>> index.start_us, index.end_us, index.events, index.types
        (0, 4000000, 5, {'Lamp': 5})
        """
        index, decoder = self.index(), EventDecoder(self.types)
        place = index.find(time_us)
        for packet in index.units_before(place.offset):
            decoder.decode(packet)
        return self._events(decoder, partial(frames_from, place=place, time_us=time_us))

    def _events(
        self, decoder: EventDecoder, frames: Callable[[mmap.mmap, FrameFormat], Iterator[Frame | Gap]]
    ) -> Iterator[Recorded]:
        self.events, self.problems, self.damage, self.unread = 0, Counter(), [], decoder.unread
        for packet in self._packets(frames):
            found = decoder.decode(packet)
            if isinstance(found, Recorded):
                self.events += 1
                yield found
            elif isinstance(found, Rejected):
                self.problems[found.reason] += 1

    def _packets(self, frames: Callable[[mmap.mmap, FrameFormat], Iterator[Frame | Gap]]) -> Iterator[bytes]:
        with open(self.path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            check = SizeCheck(self.path, data)
            for found in frames(data, find_format(data) or FORMAT):
                if isinstance(found, Frame):
                    yield found.packet
                else:
                    self._note_damage(found, len(data))
                check()

    def _note_damage(self, gap: Gap, size: int) -> None:
        what = "truncated" if gap.end == size else "damaged"
        self.damage.append(f"{self.path}: {what} at byte {gap.start}: {gap.end - gap.start} bytes skipped")


class SizeCheck:
    """State: when it was last looked whether a file that is read was cut meanwhile.

    To read what is gone of a mapped file ends the process (SIGBUS). It is looked once a millisecond, so also before
    reading goes on after a pause; a file that is cut within that time is not noticed.
    """

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self._path, self._data = path, data
        self._due = 0.0

    def __call__(self) -> None:
        """RecordingError if the file was cut."""
        now = monotonic()
        if now < self._due:
            return
        self._due = now + 0.001
        if self._data.size() < len(self._data):
            raise RecordingError(f"{self._path} was cut to {self._data.size():,} bytes while it was read")


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
        raise _recording_error(path, problem) from problem


def _recording_error(path: Path, problem: OSError) -> RecordingError:
    return RecordingError(f"cannot write {path}: {problem.strerror or problem}")


def read_recording(path: str | os.PathLike[str], types: Iterable[type] | None = None) -> Recording:
    """Open a recording; RecordingError if the file is none.

    Events of types that are not among `types` (default: all declared types) are counted in `problems` and skipped.
    """
    _check_format(Path(path))
    return Recording(Path(path), types)


def record(
    bus: Bus,
    path: str | os.PathLike[str],
    subscription: Subscription | str | None = None,
    *,
    append: bool = False,
    invalid: WhenInvalid = "raise",
    clock: Callable[[], int] | None = None,
) -> "Recorder":
    """Write every event that matches a subscription (default: all) to a file, until the recorder is closed.

    An event with a value that its attribute may not have could not be read back, and is not written.

    Args:
        bus: The bus whose events are recorded.
        path: The file to write.
        subscription: What to record, as a subscription or its text.
        append: Continue a file that exists.
        invalid: What happens when an event cannot be read back. `raise`: `publish` raises EventError, after all other
            subscribers were served. `count`: it is counted. The recorder's `refused` has the reasons in both cases.
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
    refused = Refusals(invalid)
    writer = RecordingWriter(path, append=append)
    return Recorder(bus, writer, as_subscription(subscription), clock or bus.time_ns, refused)


class Recorder:
    """A recording in progress, made by `record`; close it, or leave its `with` block, to finish the file."""

    def __init__(
        self,
        bus: Bus,
        writer: RecordingWriter,
        subscription: Subscription,
        clock: Callable[[], int],
        refused: Refusals,
    ) -> None:
        self.writer = writer
        self.refused = refused
        """Events that were not written because they could not be read back, by reason."""
        self.lost = 0
        """Events that could not be written."""
        self.problem: RecordingError | None = None
        """Why nothing more can be written."""
        self._clock = clock
        self._listener = subscribe_recorder(bus, subscription, self._write, refused)

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
