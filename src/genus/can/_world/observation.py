"""Observation of a world: what its stations publish and receive, and what is on the bus, put together per channel."""

from collections import Counter
from collections.abc import Callable, Mapping

from genus.can._node.troubles import EventMissing, EventsLost, Trouble
from genus.can._plan import Plan
from genus.can._sim.simulation import Simulation
from genus.can._sim.trace import TraceHeader
from genus.can._wire.frame import ETAG_MASK, NODE_SHIFT
from genus.can._world.observer import BusObserver, ObservedChannel
from genus.can._world.station import Station
from genus.can._world.tracker import ChannelTracker, Window, key_of
from genus.catalog import Catalog
from genus.model import Event, name_of


class Observation:
    """State: the channels of a world, and the troubles that programs got."""

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
        self.troubles: Counter[str] = Counter()
        self.first_troubles: dict[str, int] = {}
        """When the first trouble of each kind was reported, in virtual time."""
        self.on_trouble: list[Callable[[Station, Trouble], object]] = []
        """Called with every trouble of every program."""
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
        self.bus = self._observe_bus(title)

    @property
    def trackers(self) -> list[ChannelTracker]:
        """The channels on which programs published, in the order of the first event."""
        return list(dict.fromkeys(self._trackers.values()))

    def event_published(self, station: Station, event: Event, etag: int, payload: bytes, *, replaces: bool) -> None:
        """A program published an event, which `replaces` a hard one that waited for its slot."""
        now, key = self._simulation.now, key_of(etag, payload)
        tracker = self._tracker(station, type(event))
        tracker.event_published(station.name, event, key, now, station.bus_time, replaces=replaces)
        for watcher in self.watchers:
            watcher(station.name, event, now)

    def event_refused(self, station: Station, event: Event) -> None:
        """A program could not publish an event: the queue of its node is full."""
        self._tracker(station, type(event)).refused += 1

    def station_left(self, station: Station) -> None:
        """A station crashed or was switched off."""
        for tracker in self.trackers:
            tracker.node_left(station.name, self._simulation.now)

    def event_received(self, station: Station, event: Event) -> None:
        """A node got an event of a class that it has a subscription for; it is delivered if one matches it."""
        trackers = self._by_class.get(type(event), [])
        if not station.count_matches(event) or not trackers:
            return
        key, bus_now = trackers[0].key(event), station.bus_time(self._simulation.now)
        if not any(tracker.event_delivered(station.name, key, bus_now) for tracker in trackers):
            for tracker in trackers:
                if tracker.knows(key):
                    tracker.duplicates += 1
                    return

    def publisher_informed(self, station: Station, cls: type, trouble: Trouble) -> None:
        """A publisher got a trouble."""
        self._count(station, trouble)
        if (tracker := self._trackers.get((station.name, cls))) is not None:
            tracker.publisher_informed(trouble, self._simulation.now)

    def subscriber_informed(self, station: Station, trouble: Trouble) -> None:
        """A subscriber got a trouble; alarms count only for slots that are expected to be used."""
        if isinstance(trouble, EventMissing):
            for tracker in self._trackers_of(trouble.channel):
                slot, deadline = tracker.slot, trouble.deadline_ns
                if slot is not None and tracker.is_due_at(deadline):
                    if self.window.holds(deadline - slot.length_ns, deadline):
                        self._count(station, trouble)
                        tracker.subscriber_informed(station.name, trouble)
                    return
            return
        self._count(station, trouble)
        if isinstance(trouble, EventsLost):
            for tracker in self._trackers_of(trouble.channel):
                if self._stations[tracker.node].node.number == trouble.node:
                    tracker.subscriber_informed(station.name, trouble)

    def _count(self, station: Station, trouble: Trouble) -> None:
        self.troubles[type(trouble).__name__] += 1
        self.first_troubles.setdefault(type(trouble).__name__, self._simulation.now)
        for handle in self.on_trouble:
            handle(station, trouble)

    def _trackers_of(self, event: str) -> list[ChannelTracker]:
        return list(dict.fromkeys(each for (_, cls), each in self._trackers.items() if name_of(cls) == event))

    def _tracker(self, station: Station, cls: type) -> ChannelTracker:
        found = self._trackers.get((station.name, cls))
        if found is None:
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
        """The channel of a node number and an event tag; also one that was withdrawn."""
        name = self._catalog.type_of(identifier & ETAG_MASK)
        for (station_name, cls), tracker in self._trackers.items():
            station = self._stations[station_name]
            if name_of(cls) == name and station.node.number == identifier >> NODE_SHIFT & 0x7F:
                channel = station.node.tx.channels.get(cls)
                if channel is not None:
                    self._segmented[station_name, cls] = channel.segmented
                return ObservedChannel(tracker, self._segmented.get((station_name, cls), False), station.bus_time)
        return None

    def _receivers_of(self, event: Event) -> list[str]:
        return [station.name for station in self._stations.values() if station.matches(event)]

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
            self._receivers_of,
            lambda: len(simulation.bus.controllers),
            most=self._most,
        )
        simulation.trace = simulation.bus.trace = simulation.second_segment.trace = observer
        return observer
