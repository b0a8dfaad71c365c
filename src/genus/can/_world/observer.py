"""Observes a simulated bus: the load of each traffic class, errors, and the events that the frames carry."""

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from genus.can._sim.fault_hooks import FrameOutcome
from genus.can._sim.trace import Trace, TraceHeader, TrafficClass, make_room
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
        header: TraceHeader,
        find_channel: Callable[[int], ObservedChannel | None],
        receivers_of: ReceiversOf,
        count_stations: Callable[[], int],
        *,
        most: int | None,
    ) -> None:
        super().__init__(header)
        self._find_channel = find_channel
        self._receivers_of = receivers_of
        self._count_stations = count_stations
        self._most = most
        """How many frames are kept; None: all of them."""
        self.heard: dict[int, int] = {}
        """When a frame of each station was last sent, by the station's number."""
        self._channels: dict[int, ObservedChannel | None] = {}
        self._reassembler = Reassembler(REASSEMBLY_NS)
        self.begin_ns = 0
        """Frames that start before are not counted."""
        self.frames: Counter[TrafficClass] = Counter()
        self.errors: Counter[TrafficClass] = Counter()
        self.busy_ns: Counter[TrafficClass] = Counter()
        self.missed: Counter[TrafficClass] = Counter()
        """How many receivers missed a frame."""

    def restart_counting(self, now: int) -> None:
        """Count frames that start from now on."""
        self.begin_ns = now
        for counter in (self.frames, self.errors, self.busy_ns, self.missed):
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
        outcome: FrameOutcome,
        received_by: tuple[int, ...],
        missed_by: tuple[int, ...] = (),
        segment: int = 0,
    ) -> None:
        """A frame was sent, or failed."""
        if self._most != 0:
            make_room(self.passages, self._most)
            super().record(start_ns, end_ns, frame, senders, outcome, received_by, missed_by, segment)
        if outcome is FrameOutcome.SENT:
            self.heard[senders[0]] = end_ns
            if (channel := self.channel_of(frame.id)) is not None:
                filtered = self._count_stations() - len(senders) - len(received_by) - len(missed_by)
                self._count_event(start_ns, end_ns, frame, channel, filtered)
        if start_ns >= self.begin_ns:
            identifier = frame.id if frame.extended else frame.id << 18  # where the 11 bits of others are compared
            self._count(TrafficClass.of(identifier), end_ns - start_ns, outcome, len(missed_by))

    def _count_event(self, start_ns: int, end_ns: int, frame: Frame, channel: ObservedChannel, filtered: int) -> None:
        """If a frame is the last one of an event, count the event as sent."""
        key = self._event_key(frame, channel, end_ns)
        if key is not None:
            channel.tracker.filtered += filtered
            channel.tracker.event_on_bus(key, start_ns, end_ns, channel.bus_time, self._receivers_of)

    def _event_key(self, frame: Frame, channel: ObservedChannel, now: int) -> Key | None:
        """What the event is recognised by whose last frame this is; None if there are more to come."""
        payload = self._reassembler.receive(frame, now) if channel.is_segmented else frame.data
        return key_of(frame.id & ETAG_MASK, payload) if payload else None

    def _count(self, kind: TrafficClass, took_ns: int, outcome: FrameOutcome, missed: int) -> None:
        (self.frames if outcome is FrameOutcome.SENT else self.errors)[kind] += 1
        self.busy_ns[kind] += took_ns
        if missed:
            self.missed[kind] += missed
