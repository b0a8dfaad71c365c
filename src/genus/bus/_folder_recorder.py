"""Landing folders: a live bus recorded as small files, each of which appears complete and never changes.

A recorder writes a hidden file and renames it when it is old or large enough, so a reader of the folder, such as a
stream of the lake, sees complete recordings only. File numbers are never used twice, even if landed files were removed:
the last number is kept in the recorder's lock file. The next recorder of the same name finishes the files of one that
was killed.
"""

import fcntl
import mmap
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from genus.bus._block_events import ReadBlock, events_in, repack
from genus.bus._blocks import find_format
from genus.bus._bus import Bus, Wanted, as_subscription
from genus.bus._codec import encode_event
from genus.bus._frames import Frame, FrameFormat, frames_in
from genus.bus._recorder import FLUSH, MakeTicker, Refusals, Ticker, WhenInvalid, start_ticker, subscribe_recorder
from genus.bus._recording_writer import Compress, RecordingWriter, Written
from genus.bus._router import log
from genus.errors import RecordingError
from genus.filters import Subscription
from genus.model import Event, Span, seconds

DIGITS = 12
SUFFIX = ".genus"


def record_to_folder(
    bus: Bus,
    folder: str | os.PathLike[str],
    subscription: Wanted[Any] | str | None = None,
    *,
    name: str = "events",
    every: Span = "5s",
    max_events: int = 100_000,
    flush: Span = FLUSH,
    compress: Compress = None,
    invalid: WhenInvalid = "raise",
    clock: Callable[[], int] | None = None,
    steady: Callable[[], float] | None = None,
    ticker: MakeTicker | None = None,
) -> "FolderRecorder":
    """Write every event that matches a subscription (default: all) to files in a folder, until the recorder is closed.

    Files land as `NAME-NUMBER.genus`. If the process is killed, events of the last `flush` may be lost; the rest
    lands when a recorder of the same name starts again. A folder can have several recorders of different names.

    Args:
        bus: The bus whose events are recorded.
        folder: Where files land; created if need be.
        subscription: What to record, in any form that `Bus.subscribe` takes.
        name: The name of this recorder.
        every: A file lands so long after its first event,
        max_events: or with so many events.
        flush: How long events wait in memory at most before they are handed to the operating system.
        compress: `"zstd"` compresses the files, as in `record`.
        invalid: What happens when an event cannot be read back: `raise` or `count`, as in `record`.
        clock: Gives the time of recording in nanoseconds since 1970; by default the bus's time.
        steady: Replaces the system's monotonic clock in tests; in the simulator, the bus's time is used.
        ticker: Replaces the timer thread in tests.

    Raises:
        SpanError: `every` or `flush` is no length of time above zero.
        ValueError: `max_events` is less than 1.
        RecordingError: The folder cannot be written, or another recorder uses the name. If writing fails later (the
            disk is full), events are counted in `lost` and writing is tried again with the next event.

    >>> import tempfile
    >>> from genus import Event, open_bus
    >>> class Lamp(Event):
    ...     on: bool
    >>> folder = Path(tempfile.mkdtemp())
    >>> with open_bus("local:") as bus, record_to_folder(bus, folder, max_events=2):
    ...     for _ in range(3):
    ...         bus.publish(Lamp(on=True))
    >>> sorted(file.name for file in folder.glob("*.genus"))
    ['events-000000000001.genus', 'events-000000000002.genus']
    """
    flush_s = seconds(flush, "flush", zero=False)
    refused = Refusals(invalid)
    wanted = as_subscription(Event if subscription is None else subscription, bus.types)  # before there is a folder
    steady = steady or (time.monotonic if bus.wait_for is None else lambda: bus.time_ns() / 1e9)
    landing = LandingFolder(Path(folder), name, every, max_events, steady, compress)
    ticking = ticker(landing.tick, flush_s) if ticker else start_ticker(bus, landing.tick, flush_s)
    return FolderRecorder(bus, landing, wanted, clock or bus.time_ns, ticking, refused)


class FolderRecorder:
    """A recording into a folder, made by `record_to_folder`; closing it lands the last file."""

    def __init__(
        self,
        bus: Bus,
        landing: "LandingFolder",
        subscription: Subscription,
        clock: Callable[[], int],
        ticker: Ticker,
        refused: Refusals,
    ) -> None:
        self.refused = refused
        """Events that were not written because they could not be read back, by reason."""
        self._is_failing = False
        self._landing, self._clock, self._ticker = landing, clock, ticker
        self._listener = subscribe_recorder(bus, subscription, self._write, refused)

    @property
    def written(self) -> int:
        """How many events are in files and can be read back; those that wait for the next flush are not."""
        return self._landing.written

    @property
    def lost(self) -> int:
        """How many events could not be written."""
        return self._landing.lost

    @property
    def landed(self) -> int:
        """How many files have landed."""
        return self._landing.landed

    def _write(self, event: Event) -> None:
        try:
            self._landing.write(event, self._clock() // 1000)
        except RecordingError as problem:
            if not self._is_failing:
                log().error("events are not recorded, which is tried again: %s", problem)
            self._is_failing = True
        else:
            self._is_failing = False

    def close(self) -> None:
        """Stop recording and land the last file."""
        self._listener.cancel()
        self._ticker.stop()
        self._landing.close()

    def __enter__(self) -> "FolderRecorder":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class LandingFolder:
    """State: the file that is being written to a folder, complete files that are to be renamed, and the last number."""

    def __init__(
        self,
        folder: Path,
        name: str,
        every: Span,
        max_events: int,
        steady: Callable[[], float],
        compress: Compress = None,
    ) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name):
            raise RecordingError(f"a recorder cannot be named {name!r}; use letters, digits, and . _ - after the first")
        if max_events < 1:
            raise ValueError(f"max_events must be more than 0, not {max_events}")
        self.landed = 0
        self._counts = Written()
        self._folder, self._name, self._max_events, self._steady = folder, name, max_events, steady
        self._every = seconds(every, "every", zero=False)
        self._compress = compress
        self._writer: RecordingWriter | None = None
        self._in_file = 0
        self._due = 0.0
        self._closed = False
        self._lock = threading.Lock()
        with _as_recording_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            self._numbers = _FileNumbers(folder, name)
            self._waiting = [(part, self._final(number)) for number, part in self._numbers.parts() if _repair(part)]
            self._land_waiting()

    @property
    def written(self) -> int:
        """How many events are in files and can be read back."""
        return self._counts.events

    @property
    def lost(self) -> int:
        """How many events could not be written."""
        return self._counts.lost

    def _final(self, number: int) -> Path:
        return self._folder / f"{self._name}-{number:0{DIGITS}}{SUFFIX}"

    def write(self, event: Event, at_us: int) -> None:
        """Add an event; lands the file if it is full. A file that cannot land now is landed by a later tick."""
        with self._lock, _as_recording_errors(self._folder):
            if self._closed:  # it was being delivered when the recorder was closed
                return
            writer = self._writer or self._begin(event, at_us)
            writer.write(event, at_us)
            self._in_file += 1
            if self._in_file >= self._max_events:
                with suppress(OSError):
                    self._land()

    def tick(self) -> None:
        """Hand what is buffered to the operating system; lands the file if it is old enough."""
        with self._lock, _as_recording_errors(self._folder):
            if self._writer is not None and self._steady() >= self._due:
                self._land()
            elif self._writer is not None:
                self._writer.flush()
            self._land_waiting()

    def close(self) -> None:
        """Land the last file and release the name."""
        with self._lock, _as_recording_errors(self._folder):
            if not self._closed:
                self._land()
                self._numbers.release()
                self._closed = True

    def _begin(self, event: Event, at_us: int) -> RecordingWriter:
        """Begin a file for an event; one that cannot be written begins none."""
        encode_event(event, at_us)
        try:
            number = self._numbers.next()
            part = self._folder / f".{self._name}-{number:0{DIGITS}}.part"
            self._writer = RecordingWriter(part, compress=self._compress, counts=self._counts)
        except OSError:
            self._counts.lost += 1
            raise
        self._waiting.append((part, self._final(number)))
        self._due, self._in_file = self._steady() + self._every, 0
        return self._writer

    def _land(self) -> None:
        """Flush the file to the disk and rename it; if that fails, the next tick tries again."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        self._land_waiting()

    def _land_waiting(self) -> None:
        """Rename the complete files: all but the one that is being written."""
        while self._waiting and (self._writer is None or len(self._waiting) > 1):
            part, final = self._waiting[0]
            part.rename(final)
            _sync(self._folder)
            del self._waiting[0]
            self.landed += 1


class _FileNumbers:
    """State: the lock on a recorder's name; the lock file holds the last number used."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self._descriptor = os.open(folder / f".{name}.lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._descriptor)
            raise RecordingError(
                f"another recorder writes to {folder} as {name!r}; give this one another name (name=, --name)"
            ) from None
        kept = os.pread(self._descriptor, DIGITS, 0)
        seen = [number for number, _ in (*self.parts(), *self._found(rf"{re.escape(name)}-(\d{{{DIGITS}}}){SUFFIX}"))]
        self._last = max([int(kept) if kept.isdigit() else 0, *seen])

    def parts(self) -> list[tuple[int, Path]]:
        """Return the hidden files that an earlier recorder left, in order."""
        return self._found(rf"\.{re.escape(self._name)}-(\d{{{DIGITS}}})\.part")

    def _found(self, pattern: str) -> list[tuple[int, Path]]:
        entries = ((re.fullmatch(pattern, path.name), path) for path in self._folder.iterdir())
        return sorted((int(match[1]), path) for match, path in entries if match)

    def next(self) -> int:
        """A number that was never used; it is stored before it is returned."""
        self._last += 1
        os.pwrite(self._descriptor, f"{self._last:0{DIGITS}}".encode(), 0)
        os.fsync(self._descriptor)
        return self._last

    def release(self) -> None:
        os.close(self._descriptor)


def _repair(part: Path) -> bool:
    """Truncate a file after its last whole event; a file without any is removed and gives False."""
    size, rescued = _intact_part(part)
    if size == 0:
        part.unlink()
        return False
    with part.open("r+b") as file:
        file.truncate(size)
        file.seek(size)
        file.write(rescued)
        os.fsync(file.fileno())
    return True


def _intact_part(part: Path) -> tuple[int, bytes]:
    """Return the end of what is whole in a file, and the whole events after it as a block; 0 if there is nothing."""
    if part.stat().st_size == 0:
        return 0, b""
    with part.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        form = find_format(data)
        if isinstance(form, FrameFormat):
            return max((each.end for each in frames_in(data, form) if isinstance(each, Frame)), default=0), b""
        end, rescued = 0, b""
        for each in events_in(data):
            if isinstance(each, ReadBlock) and each.block.head.events > each.stored.lost:
                is_whole = not each.stored.is_damaged
                end = each.block.end if is_whole else each.block.start
                rescued = b"" if is_whole else repack(each.stored, each.block.head)
        return end, rescued


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _as_recording_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except RecordingError:
        raise
    except OSError as problem:
        raise RecordingError(f"cannot write to {folder}: {problem.strerror or problem}") from problem
