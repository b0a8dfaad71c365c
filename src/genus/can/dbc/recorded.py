"""Logs as recordings: the frames of a log decoded to events, with a count of what became of all frames."""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from genus.bus.codec import Recorded, Rejected
from genus.bus.recording import RecordingWriter
from genus.can.dbc.decode import UNKNOWN_ID, Dbc
from genus.can.dbc.logs import CanLog, read_log
from genus.filters import Subscription
from genus.model import name_of

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
IDS_KEPT = 1000
"""So many unknown identifiers are counted apart; more are counted, but not told apart."""
PROGRESS_EVERY = 1000

Progress = Callable[[int], object]
"""Told how many bytes of the log were read."""


@dataclass(slots=True)
class Decoding:
    """The events of a log; iterating gives them, and afterwards the counts say what became of all frames."""

    dbc: Dbc
    log: CanLog
    subscription: Subscription | None = None
    """Only events that match it; the others are counted in `unwanted`."""
    channel: str | None = None
    """Only frames of this channel: a DBC file describes one bus, a log may have several."""
    events: Counter[str] = field(default_factory=Counter)
    """Events by type."""
    rejected: Counter[str] = field(default_factory=Counter)
    """Frames that are no events, by reason."""
    unknown_ids: Counter[str] = field(default_factory=Counter)
    """Frames of no message, by identifier as logs write it."""
    unwanted: int = 0

    @property
    def frames(self) -> int:
        """How many data frames were in the log so far: events, rejected, unwanted and of other channels."""
        return self.log.frames

    @property
    def passed_over(self) -> Counter[str]:
        """What in the log was no data frame, by reason."""
        return self.log.passed_over

    def __iter__(self) -> Iterator[Recorded]:
        """The events, each with the time of its frame."""
        self.events, self.rejected, self.unknown_ids, self.unwanted = Counter(), Counter(), Counter(), 0
        for at_us, channel, frame in self.log:
            if self.channel is not None and channel != self.channel:
                self.rejected[f"channel {channel}"] += 1
                continue
            time = EPOCH + timedelta(microseconds=at_us)
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
    """Write the events of a log to a recording, and return what became of its frames.

    Events are recorded at the time of their frames. To read the recording, give `read_recording` the types of the same
    DBC file (`load_dbc(...).types.values()`), or of a module made from it.
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
