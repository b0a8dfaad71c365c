"""CAN logs as events, and as recordings of events."""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

from genus.bus import RecordingWriter
from genus.bus.internal import Rejected, Wanted, as_subscription
from genus.bus.types import Recorded
from genus.can._dbc.dbc_file import Dbc, load_dbc
from genus.can._dbc.j1939 import LongMessages
from genus.can._dbc.message_types import UNKNOWN_ID
from genus.can._j1939 import ClaimedNames
from genus.can._logs.frames import LoggedFrame
from genus.can._logs.log import CanLog, read_log
from genus.can._wire.frame import CLASSIC_BYTES
from genus.errors import Reasons
from genus.filters import Subscription
from genus.model import name_of

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
PROGRESS_EVERY = 1000

Progress = Callable[[int], object]
"""Called with the number of bytes of the log that were read."""


class UnknownIds(Reasons):
    MAX_COUNT: ClassVar = 1000
    OTHER: ClassVar = "other identifiers"


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
    rejected: Reasons = field(default_factory=Reasons)
    """How many frames are no events, by reason."""
    unknown_ids: Reasons = field(default_factory=UnknownIds)
    """How many frames belong to no message, by identifier (in hexadecimal)."""
    unwanted: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    """How many records of the log are no data frames, by reason; known when the iteration has ended."""
    parts: int = 0
    """How many frames are parts of long messages (J1939), and no messages by themselves."""
    long_messages: int = 0
    """How many messages of several frames were put together; they are in events, rejected and unwanted too."""
    incomplete: Reasons = field(default_factory=Reasons)
    """How many long messages are incomplete, and how many of their frames belong to none, by reason."""
    names: dict[str | None, ClaimedNames] = field(default_factory=dict)
    """The controllers that claimed addresses (J1939), by channel and address."""
    origins: Counter[tuple[str | None, str | None]] = field(default_factory=Counter)
    """How many frames came from each channel in each direction (`rx`, `tx`), None where the log does not say it."""

    @property
    def frames(self) -> int:
        """How many data frames were read from the log: events, rejected, unwanted and parts, without long messages."""
        whole = self.events.total() + self.rejected.total() + self.unwanted
        return whole + self.parts - self.long_messages

    def __iter__(self) -> Iterator[Recorded]:
        self.events, self.rejected, self.unknown_ids, self.unwanted = Counter(), Reasons(), UnknownIds(), 0
        self.skipped, self.parts, self.long_messages, self.incomplete, self.names = Counter(), 0, 0, Reasons(), {}
        self.origins = Counter()
        try:
            yield from self._decode()
        finally:
            self.skipped = self.log.skipped

    def _decode(self) -> Iterator[Recorded]:
        bus = self.dbc.long_messages()
        if bus is not None:
            self.incomplete, self.names = bus.counts, bus.names
        for logged in self.log:
            at_us, channel, frame, direction = logged
            self.origins[channel, direction] += 1
            if self.channel is not None and channel != self.channel:
                self.rejected[f"channel {channel}"] += 1
            elif bus is not None and frame.extended:
                yield from self._decode_j1939(bus, logged)
            else:
                yield from self._decode_data(at_us, channel, frame.id, frame.data, frame.extended)
        if bus is not None:
            bus.close()

    def _decode_j1939(self, bus: LongMessages, logged: LoggedFrame) -> Iterator[Recorded]:
        """Yield the event of a frame, unless it is only a part, and then that of the message that it completes."""
        at_us, channel, frame, _ = logged
        bus.claim(channel, frame.id, frame.data)
        if bus.is_fast(frame.id) or (bus.is_part(frame.id) and self.dbc.message_of(frame.id, True) is None):
            self.parts += 1
        else:
            yield from self._decode_data(at_us, channel, frame.id, frame.data, True)
        message = bus.receive(channel, frame.id, frame.data, at_us) if len(frame.data) <= CLASSIC_BYTES else None
        if message is not None:
            self.long_messages += 1
            yield from self._decode_data(at_us, channel, message.frame_id, message.data, True)

    def _decode_data(
        self, at_us: int, channel: str | None, frame_id: int, data: bytes, extended: bool
    ) -> Iterator[Recorded]:
        time = None if self.log.times == "none" else EPOCH + timedelta(microseconds=at_us)
        event = self.dbc.decode(frame_id, data, extended, time=time, place=channel)
        if isinstance(event, Rejected):
            self._reject(event.reason, f"{frame_id:0{8 if extended else 3}X}")
        elif self.subscription is not None and not self.subscription.matches(event):
            self.unwanted += 1
        else:
            self.events[name_of(type(event))] += 1
            yield Recorded(at_us, event)

    def _reject(self, reason: str, identifier: str) -> None:
        self.rejected[reason] += 1
        if reason == UNKNOWN_ID:
            self.unknown_ids[identifier] += 1


def decode_log(
    dbc: Dbc | str | os.PathLike[str],
    log: str | os.PathLike[str] | CanLog,
    recording: str | os.PathLike[str],
    *,
    subscription: Wanted[Any] | str | None = None,
    channel: str | None = None,
    append: bool = False,
    progress: Progress = lambda _: None,
) -> Decoding:
    """Write the events of a log to a recording; the result has the counts of its frames.

    Events are recorded with the times of their frames. To read the recording, give `read_recording` the types of the
    same DBC file (`load_dbc(...).types.values()`), or of a module made from it.

    Args:
        dbc: What the frames mean, from `load_dbc`, or the path of a file that it reads.
        log: The path of a log, or what `read_log` returned.
        recording: The file to write.
        subscription: Which events to write, in any form that `Bus.subscribe` takes; by default all.
        channel: Only frames of this channel of the log.
        append: Continue a recording that exists.
        progress: Is called now and then with the number of bytes read.

    Raises:
        DbcError: The DBC file cannot be read.
        RecordingError: The log cannot be read, or the recording cannot be written or exists already.
    """
    dbc = dbc if isinstance(dbc, Dbc) else load_dbc(dbc, reuse=True)
    wanted = None if subscription is None else as_subscription(subscription, dbc.types)
    found = log if isinstance(log, CanLog) else read_log(log)
    decoding = Decoding(dbc, found, wanted, channel)
    with RecordingWriter(recording, append=append) as writer:
        for number, recorded in enumerate(decoding):
            writer.write(recorded.event, recorded.at_us)
            if number % PROGRESS_EVERY == 0:
                progress(found.position)
    progress(found.position)
    return decoding
