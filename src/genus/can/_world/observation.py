"""Observation of a world: what its stations publish and receive, and what is on the bus, put together per channel."""

from collections import Counter
from collections.abc import Callable, Mapping, Sized
from typing import NamedTuple, TypeAlias

import msgspec

from genus.can._node.problems import DeliveryProblem, EventMissing, EventsLost
from genus.can._plan.admission import Plan
from genus.can._sim.errors import FrameOutcome
from genus.can._sim.simulation import Simulation
from genus.can._sim.trace import CLASS_BY_PRIORITY, BusFrame, Trace, TraceHeader, TrafficClass, make_room
from genus.can._wire.frame import ETAG_MASK, NODE_MASK, NODE_SHIFT, PRIORITY_SHIFT
from genus.can._wire.segments import Reassembler
from genus.can._world.station import ListenedSubscription, Station
from genus.can._world.tracker import ChannelTracker, Key, Window, key_of
from genus.catalog import Catalog
from genus.model import Event, name_of

CHANNEL_MASK = NODE_MASK | ETAG_MASK
"""The part of an identifier that names a channel."""
REASSEMBLY_NS = 2_000_000_000
NO_KEY: Key = b""
_SENT = FrameOutcome.SENT

Matches: TypeAlias = dict[str, list[ListenedSubscription]]
"""The subscriptions that match an event, by the name of their station."""


class Receivers:
    """State: the last event of a channel that was on the bus, and the subscriptions that match it.

    They are tested once: a station that receives the event finds them here.
    """

    __slots__ = ("_find", "event", "key", "matching", "present_key")

    def __init__(self, find: Callable[[Event], Matches]) -> None:
        self._find = find
        self.present_key = self.key = NO_KEY
        """What the event is recognised by that is on the bus now, and what the last one is."""
        self.event: Event | None = None
        self.matching: Matches = {}

    def of(self, event: Event) -> list[str]:
        """Return the nodes with a subscription that matches an event, which is on the bus now."""
        self.event, self.key, self.matching = event, self.present_key, self._find(event)
        return list(self.matching)


class ObservedChannel(NamedTuple):
    """The channel that a frame belongs to."""

    tracker: ChannelTracker
    is_segmented: bool
    bus_time: Callable[[int], int]
    """The bus's time at a virtual time, as the publisher knows it."""
    receivers: Receivers


class Band(msgspec.Struct):
    """State: the counts of a traffic class."""

    frames: int = 0
    errors: int = 0
    busy_ns: int = 0
    missed: int = 0
    """How many receivers missed a frame."""


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
        self.bands: dict[TrafficClass, Band]
        """The counts of frames since then."""
        self.restart_counting(0)

    def restart_counting(self, now: int) -> None:
        """Count frames that start from now on."""
        self.begin_ns = now
        self.bands = {kind: Band() for kind in TrafficClass}
        self._band_by_priority = [self.bands[kind] for kind in CLASS_BY_PRIORITY]

    def channels_changed(self) -> None:
        self._channels.clear()

    def channel_of(self, identifier: int) -> ObservedChannel | None:
        """Return the channel of an identifier; None if it is not one that a program publishes on."""
        key = identifier & CHANNEL_MASK
        try:
            return self._channels[key]
        except KeyError:
            found = self._channels[key] = self._find_channel(key)
            return found

    def record(self, sent: BusFrame) -> None:
        if self._most != 0:
            make_room(self.passages, self._most)
            super().record(sent)
        start_ns, end_ns, frame = sent.start_ns, sent.end_ns, sent.frame
        is_sent = sent.outcome is _SENT
        if is_sent:
            senders = sent.senders
            self.heard[senders[0]] = end_ns
            if (channel := self.channel_of(frame.id)) is not None:
                payload = self._reassembler.receive(frame, end_ns) if channel.is_segmented else frame.data
                if payload:  # it is the last frame of an event
                    tracker, receivers = channel.tracker, channel.receivers
                    receivers.present_key = key = key_of(frame.id & ETAG_MASK, payload)
                    reached = len(senders) + len(sent.received_by) + len(sent.missed_by)
                    tracker.filtered += len(self._controllers) - reached
                    tracker.event_on_bus(key, start_ns, end_ns, channel.bus_time, receivers.of)
        if start_ns >= self.begin_ns:
            identifier = frame.id if frame.extended else frame.id << 18  # where the 11 bits of others are compared
            band = self._band_by_priority[identifier >> PRIORITY_SHIFT & 0xFF]
            if is_sent:
                band.frames += 1
            else:
                band.errors += 1
            band.busy_ns += end_ns - start_ns
            band.missed += len(sent.missed_by)


Test: TypeAlias = Callable[[Event], bool] | None


class Observation:
    """State: the channels of a world, and the problems that programs got."""

    def __init__(
        self,
        simulation: Simulation,
        stations: Mapping[str, Station],
        plan: Plan | None,
        catalog: Catalog,
        title: str,
        *,
        most_frames: int | None,
    ) -> None:
        self.window = Window()
        self.problems: Counter[str] = Counter()
        self.first_problems: dict[str, int] = {}
        """When the first problem of each kind was reported, in virtual time."""
        self.on_problem: list[Callable[[Station, DeliveryProblem], object]] = []
        """Called with every problem of every program."""
        self.watchers: tuple[Callable[[str, Event, int], object], ...] = ()
        """Called with the node, the event and the virtual time of every event that a program publishes."""
        self._simulation = simulation
        self._stations = stations
        self._plan = plan
        self._catalog = catalog
        self._most = most_frames
        self._trackers: dict[tuple[str, type], ChannelTracker] = {}
        self._segmented: dict[tuple[str, type], bool] = {}
        self._by_class: dict[type, list[ChannelTracker]] = {}
        self._listeners: dict[type, list[tuple[str, list[tuple[ListenedSubscription, Test]]]]] = {}
        """Per class: the names of stations, and their subscriptions that accept it with what decides on an event."""
        self.bus = self._observe_bus(title)

    @property
    def trackers(self) -> list[ChannelTracker]:
        """The channels on which programs published, in the order of the first event."""
        return list(dict.fromkeys(self._trackers.values()))

    def event_published(self, station: Station, event: Event, etag: int, payload: bytes, *, replaces: bool) -> None:
        """A program published an event, which `replaces` a hard one that waited for its slot."""
        now, key = self._simulation.scheduler.now, key_of(etag, payload)
        tracker = self._trackers.get((station.name, type(event))) or self._add_tracker(station, type(event))
        tracker.event_published(station.name, event, key, now, station.bus_time, replaces=replaces)
        for watcher in self.watchers:
            watcher(station.name, event, now)

    def event_refused(self, station: Station, event: Event) -> None:
        tracker = self._trackers.get((station.name, type(event))) or self._add_tracker(station, type(event))
        tracker.refused += 1

    def station_left(self, station: Station) -> None:
        for tracker in self.trackers:
            tracker.node_left(station.name, self._simulation.now)

    def listeners_changed(self) -> None:
        self._listeners.clear()
        self.bus.channels_changed()

    def event_received(self, station: Station, event: Event, identifier: int | None) -> None:
        """A node got an event of a class that it has a subscription for; it is delivered if one matches it.

        If it is the last one that was on the bus of its channel, it need not be encoded again, nor tested.
        """
        channel = None if identifier is None else self.bus.channel_of(identifier)
        if channel is not None and channel.receivers.event == event:
            matching = channel.receivers.matching.get(station.name, ())
            trackers, key = [channel.tracker], channel.receivers.key
            is_in_slot = channel.tracker.slot is not None
        else:
            matching = self._matching(event).get(station.name, ())
            trackers, is_in_slot = self._by_class.get(type(event), []), True
            key = trackers[0].key(event) if trackers else NO_KEY
        if not matching:
            return
        for subscription in matching:
            subscription.delivered += 1
        bus_now = station.bus_time(self._simulation.now) if is_in_slot else 0
        for tracker in trackers:
            if tracker.event_delivered(station.name, key, bus_now):
                return
        for tracker in trackers:
            if tracker.knows(key):
                tracker.duplicates += 1
                return

    def publisher_informed(self, station: Station, cls: type, problem: DeliveryProblem) -> None:
        self._count(station, problem)
        if (tracker := self._trackers.get((station.name, cls))) is not None:
            tracker.publisher_informed(problem, self._simulation.now)

    def subscriber_informed(self, station: Station, problem: DeliveryProblem) -> None:
        """A subscriber got a problem; alarms count only for slots that are expected to be used."""
        if isinstance(problem, EventMissing):
            for tracker in self._trackers_of(problem.channel):
                slot, deadline = tracker.slot, problem.deadline_ns
                if slot is not None and tracker.is_due_at(deadline):
                    if self.window.holds(deadline - slot.length_ns, deadline):
                        self._count(station, problem)
                        tracker.subscriber_informed(station.name, problem)
                    return
            return
        self._count(station, problem)
        if isinstance(problem, EventsLost):
            for tracker in self._trackers_of(problem.channel):
                if self._stations[tracker.node].node.number == problem.node:
                    tracker.subscriber_informed(station.name, problem)

    def _count(self, station: Station, problem: DeliveryProblem) -> None:
        self.problems[type(problem).__name__] += 1
        self.first_problems.setdefault(type(problem).__name__, self._simulation.now)
        for handle in self.on_problem:
            handle(station, problem)

    def _trackers_of(self, event: str) -> list[ChannelTracker]:
        return list(dict.fromkeys(each for (_, cls), each in self._trackers.items() if name_of(cls) == event))

    def _add_tracker(self, station: Station, cls: type) -> ChannelTracker:
        found = self._trackers[station.name, cls] = self._make_tracker(station, cls)
        self._segmented[station.name, cls] = station.node.tx.channels[cls].segmented
        if found not in self._by_class.setdefault(cls, []):
            self._by_class[cls].append(found)
        self.bus.channels_changed()
        return found

    def _make_tracker(self, station: Station, cls: type) -> ChannelTracker:
        channel = station.node.tx.channels[cls]
        slot = channel.slot_sender.slot if channel.slot_sender is not None else None
        if slot is not None:
            shared = next((each for each in self._trackers.values() if each.name == slot.channel), None)
            if shared is not None:
                return shared
        assert channel.layout is not None
        name = slot.channel if slot is not None else self._planned_name(station, channel.name)
        return ChannelTracker(
            name, station.name, channel.name, channel.qos, channel.layout, channel.etag, slot, most=self._most
        )

    def _planned_name(self, station: Station, event: str) -> str:
        for channel in self._plan.system.channels if self._plan is not None else ():
            if channel.event == event and channel.node == station.name:
                return channel.name
        return f"{event} of {station.name}"

    def _find_channel(self, identifier: int) -> ObservedChannel | None:
        """Return the channel of a node number and an event tag; also one that was withdrawn."""
        name = self._catalog.type_of(identifier & ETAG_MASK)
        for (station_name, cls), tracker in self._trackers.items():
            station = self._stations[station_name]
            if name_of(cls) == name and station.node.number == identifier >> NODE_SHIFT & 0x7F:
                channel = station.node.tx.channels.get(cls)
                if channel is not None:
                    self._segmented[station_name, cls] = channel.segmented
                segmented = self._segmented.get((station_name, cls), False)
                return ObservedChannel(tracker, segmented, station.bus_time, Receivers(self._matching))
        return None

    def _matching(self, event: Event) -> Matches:
        """Return the stations with subscriptions that match an event, and these."""
        cls = type(event)
        listeners = self._listeners.get(cls)
        if listeners is None:
            listeners = self._listeners[cls] = self._find_listeners(cls)
        found = {}
        for name, accepting in listeners:
            if matching := [each for each, test in accepting if test is None or test(event)]:
                found[name] = matching
        return found

    def _find_listeners(self, cls: type) -> list[tuple[str, list[tuple[ListenedSubscription, Test]]]]:
        found = []
        for station in list(self._stations.values()):
            accepting = [each for each in station.subscriptions if each.subscription.accepts(cls)]
            if accepting:
                found.append((station.name, [(each, each.test and each.test.for_class(cls)) for each in accepting]))
        return found

    def _observe_bus(self, title: str) -> BusObserver:
        simulation = self._simulation
        header = TraceHeader(
            bitrate=simulation.timing.bitrate,
            data_bitrate=simulation.timing.data_bitrate,
            exact_lengths=simulation.bus.exact_lengths,
            seed=simulation.seed,
            title=title,
        )
        observer = BusObserver(
            header,
            self._find_channel,
            simulation.bus.controllers,
            most=self._most,
        )
        simulation.trace = simulation.bus.trace = simulation.second_segment.trace = observer
        return observer
