"""Observes a simulated bus: the load of each traffic class, errors, and the events that the frames carry."""

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from genus.can._sim.fault_hooks import Outcome
from genus.can._sim.trace import Band, Header, Trace
from genus.can._wire.frame import ETAG_MASK, NODE_MASK, Frame
from genus.can._wire.segments import Reassembler
from genus.can._world.tracker import ChannelTracker, Key, ReceiversOf, key_of

CHANNEL_MASK = NODE_MASK | ETAG_MASK
"""The part of an identifier that names a channel."""
REASSEMBLY_NS = 2_000_000_000


class ObservedChannel(NamedTuple):
    """The channel that a frame belongs to."""

    tracker: ChannelTracker
    is_segmented: bool
    bus_time: Callable[[int], int]
    """The bus's time at a virtual time, as the publisher knows it."""


class BusObserver(Trace):
    """State: a trace that counts, finds the events in frames, and keeps the frames only if asked to."""

    def __init__(
        self,
        header: Header,
        find_channel: Callable[[int], ObservedChannel | None],
        receivers_of: ReceiversOf,
        count_stations: Callable[[], int],
        *,
        keeps: bool,
    ) -> None:
        super().__init__(header)
        self._find_channel = find_channel
        self._receivers_of = receivers_of
        self._count_stations = count_stations
        self._keeps = keeps
        self._channels: dict[int, ObservedChannel | None] = {}
        self._reassembler = Reassembler(REASSEMBLY_NS)
        self.begin_ns = 0
        """Frames that start before are not counted."""
        self.frames: Counter[Band] = Counter()
        self.errors: Counter[Band] = Counter()
        self.busy_ns: Counter[Band] = Counter()
        self.unheard: Counter[Band] = Counter()
        """Receivers that missed a frame."""

    def restart_counting(self, now: int) -> None:
        """Count frames that start from now on."""
        self.begin_ns = now
        for counter in (self.frames, self.errors, self.busy_ns, self.unheard):
            counter.clear()

    def channels_changed(self) -> None:
        """Look up the channels of identifiers again."""
        self._channels.clear()

    def channel_of(self, identifier: int) -> ObservedChannel | None:
        """The channel of an identifier; None if it is not one that a program publishes on."""
        key = identifier & CHANNEL_MASK
        if key not in self._channels:
            self._channels[key] = self._find_channel(key)
        return self._channels[key]

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
        """A frame was sent, or failed."""
        if self._keeps:
            super().record(start_ns, end_ns, frame, senders, outcome, heard, missed, segment)
        if outcome is Outcome.SENT and (channel := self.channel_of(frame.id)) is not None:
            key = self._event_key(frame, channel, end_ns)
            if key is not None:
                tracker = channel.tracker
                tracker.filtered += self._count_stations() - len(senders) - len(heard) - len(missed)
                tracker.event_on_bus(key, start_ns, end_ns, channel.bus_time, self._receivers_of)
        if start_ns >= self.begin_ns:
            self._count(Band.of(frame.id), end_ns - start_ns, outcome, len(missed))

    def _event_key(self, frame: Frame, channel: ObservedChannel, now: int) -> Key | None:
        """What the event is recognised by whose last frame this is; None if there are more to come."""
        payload = self._reassembler.receive(frame, now) if channel.is_segmented else frame.data
        return key_of(frame.id & ETAG_MASK, payload) if payload else None

    def _count(self, band: Band, took_ns: int, outcome: Outcome, missed: int) -> None:
        (self.frames if outcome is Outcome.SENT else self.errors)[band] += 1
        self.busy_ns[band] += took_ns
        if missed:
            self.unheard[band] += missed
