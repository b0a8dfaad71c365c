"""Observes a simulated bus: the load of each traffic class, errors, and the events that the frames carry."""

from collections import Counter
from collections.abc import Callable, Sized
from typing import NamedTuple, TypeAlias

from genus.can._sim.fault_hooks import FrameOutcome
from genus.can._sim.trace import CLASS_BY_PRIORITY, Trace, TraceHeader, TrafficClass, make_room
from genus.can._wire.frame import ETAG_MASK, NODE_MASK, PRIORITY_SHIFT, Frame
from genus.can._wire.segments import Reassembler
from genus.can._world.station import ListenedSubscription
from genus.can._world.tracker import ChannelTracker, key_of
from genus.model import Event

CHANNEL_MASK = NODE_MASK | ETAG_MASK
"""The part of an identifier that names a channel."""
REASSEMBLY_NS = 2_000_000_000

Matches: TypeAlias = dict[str, list[ListenedSubscription]]
"""The subscriptions that match an event, by the name of their station."""


class Receivers:
    """State: the last event of a channel that was on the bus, and the subscriptions that match it.

    They are tested once: a station that receives the event finds them here.
    """

    __slots__ = ("_find", "event", "matching")

    def __init__(self, find: Callable[[Event], Matches]) -> None:
        self._find = find
        self.event: Event | None = None
        self.matching: Matches = {}

    def of(self, event: Event) -> list[str]:
        """The nodes with a subscription that matches an event, which is on the bus now."""
        self.event, self.matching = event, self._find(event)
        return list(self.matching)


class ObservedChannel(NamedTuple):
    """The channel that a frame belongs to."""

    tracker: ChannelTracker
    is_segmented: bool
    bus_time: Callable[[int], int]
    """The bus's time at a virtual time, as the publisher knows it."""
    receivers: Receivers


class BusObserver(Trace):
    """State: a trace that counts, finds the events in frames, and keeps the frames only if asked to."""

    def __init__(
        self,
        header: TraceHeader,
        find_channel: Callable[[int], ObservedChannel | None],
        controllers: Sized,
        *,
        most: int | None,
    ) -> None:
        super().__init__(header)
        self._find_channel = find_channel
        self._controllers = controllers
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
        try:
            return self._channels[key]
        except KeyError:
            found = self._channels[key] = self._find_channel(key)
            return found

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
                payload = self._reassembler.receive(frame, end_ns) if channel.is_segmented else frame.data
                if payload:  # it is the last frame of an event
                    tracker, key = channel.tracker, key_of(frame.id & ETAG_MASK, payload)
                    tracker.filtered += len(self._controllers) - len(senders) - len(received_by) - len(missed_by)
                    tracker.event_on_bus(key, start_ns, end_ns, channel.bus_time, channel.receivers.of)
        if start_ns >= self.begin_ns:
            kind = CLASS_BY_PRIORITY[frame.id >> PRIORITY_SHIFT & 0xFF]
            (self.frames if outcome is FrameOutcome.SENT else self.errors)[kind] += 1
            self.busy_ns[kind] += end_ns - start_ns
            if missed_by:
                self.missed[kind] += len(missed_by)
