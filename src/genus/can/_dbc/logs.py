"""CAN logs as events, and as recordings of events."""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from genus.bus._codec import Recorded, Rejected
from genus.bus._recording import RecordingWriter
from genus.can._dbc.dbc_file import Dbc
from genus.can._dbc.message_types import UNKNOWN_ID
from genus.can._logs.log import CanLog, read_log
from genus.filters import Subscription
from genus.model import name_of

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
IDS_KEPT = 1000
"""How many unknown identifiers are counted one by one."""
PROGRESS_EVERY = 1000

Progress = Callable[[int], object]
"""Called with the number of bytes of the log that were read."""


@dataclass(slots=True)
class Decoding:
    """The events of a log; iterating gives them, and afterwards the counts account for every frame."""

    dbc: Dbc
    log: CanLog
    subscription: Subscription | None = None
    """If given, only events that match it are yielded; the others are counted in `unwanted`."""
    channel: str | None = None
    """If given, only frames of this channel are decoded: a DBC file describes one bus, a log may have several."""
    events: Counter[str] = field(default_factory=Counter)
    """How many events of each type were yielded."""
    rejected: Counter[str] = field(default_factory=Counter)
    """How many frames are no events, by reason."""
    unknown_ids: Counter[str] = field(default_factory=Counter)
    """How many frames belong to no message, by identifier (in hexadecimal), for the first 1000 identifiers."""
    unwanted: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    """How many records of the log are no data frames, by reason; known when the iteration has ended."""

    @property
    def frames(self) -> int:
        """How many data frames were read from the log: the sum of events, rejected and unwanted."""
        return self.events.total() + self.rejected.total() + self.unwanted

    def __iter__(self) -> Iterator[Recorded]:
        """The events, each with the time of its frame."""
        self.events, self.rejected, self.unknown_ids, self.unwanted = Counter(), Counter(), Counter(), 0
        self.skipped = Counter()
        try:
            yield from self._decode()
        finally:
            self.skipped = self.log.skipped

    def _decode(self) -> Iterator[Recorded]:
        for at_us, channel, frame in self.log:
            if self.channel is not None and channel != self.channel:
                self.rejected[f"channel {channel}"] += 1
                continue
            time = None if self.log.times == "none" else EPOCH + timedelta(microseconds=at_us)
            event = self.dbc.decode(frame.id, frame.data, frame.extended, time=time, place=channel)
            if isinstance(event, Rejected):
                self._reject(event.reason, f"{frame.id:0{8 if frame.extended else 3}X}")
            elif self.subscription is not None and not self.subscription.matches(event):
                self.unwanted += 1
            else:
                self.events[name_of(type(event))] += 1
                yield Recorded(at_us, event)

    def _reject(self, reason: str, identifier: str) -> None:
        self.rejected[reason] += 1
        if reason == UNKNOWN_ID and (identifier in self.unknown_ids or len(self.unknown_ids) < IDS_KEPT):
            self.unknown_ids[identifier] += 1


def decode_log(
    dbc: Dbc,
    log: str | os.PathLike[str] | CanLog,
    recording: str | os.PathLike[str],
    *,
    subscription: Subscription | None = None,
    channel: str | None = None,
    append: bool = False,
    progress: Progress = lambda _: None,
) -> Decoding:
    """Write the events of a log to a recording; the result has the counts of its frames.

    Events are recorded with the times of their frames. To read the recording, give `read_recording` the types of the
    same DBC file (`load_dbc(...).types.values()`), or of a module made from it.

    Args:
        dbc: What the frames mean, from `load_dbc`.
        log: The path of a log, or what `read_log` returned.
        recording: The file to write.
        subscription: Which events to write; by default all.
        channel: Only frames of this channel of the log.
        append: Continue a recording that exists.
        progress: Is called now and then with the number of bytes read.

    Raises:
        RecordingError: The log cannot be read, or the recording cannot be written or exists already.
    """
    found = log if isinstance(log, CanLog) else read_log(log)
    decoding = Decoding(dbc, found, subscription, channel)
    with RecordingWriter(recording, append=append) as writer:
        for number, recorded in enumerate(decoding):
            writer.write(recorded.event, recorded.at_us)
            if number % PROGRESS_EVERY == 0:
                progress(found.position)
    progress(found.position)
    return decoding
