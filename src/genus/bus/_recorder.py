"""`record`: the events of a bus to a file, flushed by time, until the recorder is closed."""

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

from genus.bus._bus import Bus, Wanted, as_subscription
from genus.bus._codec import encoding_problem
from genus.bus._listener import Listener
from genus.bus._recording_writer import Compress, RecordingWriter
from genus.bus._router import log
from genus.errors import BusError, EventError, Reasons, RecordingError
from genus.filters import Subscription
from genus.filters.types import AllOf
from genus.model import Event, Span, seconds


class Ticker(Protocol):
    """Calls a function at an interval until it is stopped."""

    def stop(self) -> None:
        """Make no more calls; returns when none is in progress."""


MakeTicker: TypeAlias = Callable[[Callable[[], None], float], Ticker]
"""Starts to call a function at an interval of seconds."""


def start_ticker(bus: Bus, call: Callable[[], None], seconds: float) -> Ticker:
    """Call a function at an interval of the bus's own time, if it has one as in the simulator, or else of the clock."""
    return Ticking(call, seconds) if bus.wait_for is None else BusTicker(bus, call, seconds)


class BusTicker:
    """Calls a function at an interval of a bus's own time."""

    def __init__(self, bus: Bus, call: Callable[[], None], seconds: float) -> None:
        self._timer = bus.every(timedelta(seconds=seconds), call)

    def stop(self) -> None:
        """Make no more calls."""
        self._timer.cancel()


class Ticking:
    """A thread that calls a function at an interval; a function that raises is called again, and logged once."""

    def __init__(self, call: Callable[[], None], seconds: float) -> None:
        self._call, self._seconds = call, seconds
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="genus recorder", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        failing = False
        while not self._stopped.wait(self._seconds):
            try:
                self._call()
                failing = False
            except OSError as problem:
                if not failing:
                    log().error("a recording cannot be written and is tried again: %s", problem)
                failing = True

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()
        self._thread.join()


WhenInvalid: TypeAlias = Literal["raise", "count"]
"""What a recorder does with an event that could not be read back: the publisher gets EventError, or it is counted."""


class Refused(msgspec.Struct, frozen=True):
    """Events that were refused for one reason: how many, and the message about the last one."""

    count: int
    last: str


class Refusals(Mapping[str, Refused]):
    """Events that a recorder refused, by reason; the reasons name type, attribute and what its value must be."""

    def __init__(self, invalid: WhenInvalid) -> None:
        if invalid not in ("raise", "count"):
            raise BusError(f"invalid={invalid!r} is none of raise, count")
        self.invalid: WhenInvalid = invalid
        self._counts, self._last = Reasons(), dict[str, str]()
        self._lock = threading.Lock()

    def __getitem__(self, reason: str) -> Refused:
        return Refused(self._counts[reason], self._last[reason])

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._last))

    def __len__(self) -> int:
        return len(self._last)

    @property
    def total(self) -> int:
        """How many events were refused in all."""
        return self._counts.total()

    def add(self, reason: str, message: str) -> None:
        """Count an event that was refused, with the message about it."""
        with self._lock:
            reason = self._counts.counted_as(reason)
            self._counts[reason] += 1
            self._last[reason] = message


class RecordingListener(Listener[Any]):
    """A listener that refuses events which cannot be recorded; with `raise`, the publisher gets the error."""

    def __init__(
        self, bus: Bus, subscription: Subscription, write: Callable[[Event], object], refused: Refusals
    ) -> None:
        super().__init__(bus, subscription, write)
        self.refuses = refused.invalid == "raise"
        self._refused = refused

    def failed(self, event: Event, problem: Exception) -> Exception | None:
        """Count an event that cannot be recorded; returns the error if the publisher is to get it."""
        if not isinstance(problem, EventError):
            return super().failed(event, problem)
        self._refused.add(encoding_problem(event), str(problem))
        return problem if self.refuses else None


def subscribe_recorder(
    bus: Bus, subscription: Subscription, write: Callable[[Event], object], refused: Refusals
) -> Listener[Any]:
    """Call the function of a recorder that writes events, which may raise EventError."""
    listener = RecordingListener(bus, subscription, write, refused)
    return bus.collection(AllOf[Any](subscription.types))._add_listener(listener)


FLUSH: Span = "200ms"
"""How long events wait in memory at most, unless said otherwise."""


def record(
    bus: Bus,
    path: str | os.PathLike[str],
    subscription: Wanted[Any] | str | None = None,
    *,
    append: bool = False,
    flush: Span = FLUSH,
    compress: Compress = None,
    invalid: WhenInvalid = "raise",
    clock: Callable[[], int] | None = None,
    ticker: MakeTicker | None = None,
) -> "Recorder":
    """Write every event that matches a subscription (default: all) to a file, until the recorder is closed.

    An event with a value that its attribute may not have could not be read back, and is not written. If the process is
    killed, events of the last `flush` may be lost; all before can be read.

    Args:
        bus: The bus whose events are recorded.
        path: The file to write.
        subscription: What to record, in any form that `Bus.subscribe` takes.
        append: Continue a file that exists.
        flush: How long events wait in memory at most before they are handed to the operating system. Leave it, unless
            you record very many small events and can lose more.
        compress: `"zstd"` makes the file smaller, at some cost of time; damage then costs a block, not an event.
        invalid: What happens when an event cannot be read back. `raise`: `publish` raises EventError, after all other
            subscribers were served. `count`: it is counted. The recorder's `refused` has the reasons in both cases.
        clock: Gives the time of recording in nanoseconds since 1970; by default the bus's time.
        ticker: Replaces the timer thread in tests; in the simulator, the bus's time is used.

    Raises:
        SpanError: `flush` is no length of time above zero.
        RecordingError: The file cannot be created. If it cannot be written later (the disk is full), recording ends,
            further events are counted in `lost`, and closing the recorder raises the error.

    >>> import tempfile, pathlib
    >>> from genus import Event, open_bus
    >>> class Lamp(Event):
    ...     on: bool
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "lamps.genus"
    >>> with open_bus("local:") as bus, record(bus, file):
    ...     bus.publish(Lamp(on=True))
    >>> from genus.bus import read_recording
    >>> [recorded.event for recorded in read_recording(file, [Lamp])]
    [Lamp(on=True)]
    """
    every = seconds(flush, "flush", zero=False)
    refused = Refusals(invalid)
    wanted = as_subscription(Event if subscription is None else subscription, bus.types)  # before there is a file
    writer = RecordingWriter(path, append=append, compress=compress)
    recorder = Recorder(bus, writer, wanted, clock or bus.time_ns, refused)
    recorder.start(ticker(recorder.flush, every) if ticker else start_ticker(bus, recorder.flush, every))
    return recorder


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
        self.problem: RecordingError | None = None
        """Why nothing more can be written."""
        self._missed = 0
        """Events that came after that."""
        self._clock = clock
        self._ticker: Ticker | None = None
        self._listener = subscribe_recorder(bus, subscription, self._write, refused)

    def start(self, ticker: Ticker) -> None:
        """Take the ticker that calls `flush`; closing the recorder stops it."""
        self._ticker = ticker

    @property
    def written(self) -> int:
        """How many events are in the file and can be read back; those that wait for the next flush are not."""
        return self.writer.written

    @property
    def lost(self) -> int:
        """How many events could not be written."""
        return self.writer.lost + self._missed

    def _write(self, event: Event) -> None:
        if self.problem is not None:
            self._missed += 1
            return
        try:
            self.writer.write(event, self._clock() // 1000)
        except RecordingError as problem:
            self._end(problem)

    def flush(self) -> None:
        """Hand what waits to the operating system; if that fails, recording ends."""
        if self.problem is None:
            try:
                self.writer.flush()
            except RecordingError as problem:
                self._end(problem)

    def _end(self, problem: RecordingError) -> None:
        if self.problem is None:
            self.problem = problem
            log().error("recording ended: %s", problem)

    def close(self) -> None:
        """Stop recording and finish the file; RecordingError if events could not be written."""
        self._listener.cancel()
        if self._ticker is not None:
            self._ticker.stop()
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
