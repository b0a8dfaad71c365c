"""`record`: the events of a bus to a file, flushed by time, until the recorder is closed."""

import os
from collections.abc import Callable

from genus.bus._bus import Bus
from genus.bus._delivery import log
from genus.bus._recording import as_subscription
from genus.bus._recording_writer import Compress, RecordingWriter
from genus.bus._refusals import Refusals, WhenInvalid, subscribe_recorder
from genus.bus._ticker import MakeTicker, Ticker, start_ticker
from genus.errors import RecordingError
from genus.filters import Subscription
from genus.model import Event, Span, seconds

FLUSH: Span = "200ms"
"""How long events wait in memory at most, unless said otherwise."""


def record(
    bus: Bus,
    path: str | os.PathLike[str],
    subscription: Subscription | str | None = None,
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
        subscription: What to record, as a subscription or its text.
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
    writer = RecordingWriter(path, append=append, compress=compress)
    recorder = Recorder(bus, writer, as_subscription(subscription), clock or bus.time_ns, refused)
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
