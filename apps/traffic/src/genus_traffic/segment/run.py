"""A segment while it happens: nodes are switched on, sensors go into service, vehicles pass, a sensor is replaced."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from random import Random
from typing import TYPE_CHECKING

from genus.can._sim.faults import FrameErrors
from genus.can._sim.simulation import Simulation
from genus.errors import BusError
from genus.filters import Subscription
from genus.model import name_of
from genus_traffic.road.detections import Detection
from genus_traffic.segment.audience import Ear
from genus_traffic.segment.channel_book import ChannelBook
from genus_traffic.segment.gateway import Gateway
from genus_traffic.segment.monitor import VelocityMonitor
from genus_traffic.segment.outcome import SegmentOutcome
from genus_traffic.segment.picture import BusScene, picture_of
from genus_traffic.segment.plan import GATEWAY, LOWER, MONITOR, NEW_UPPER, TIMING, UPPER, channel_name, segment_plan
from genus_traffic.segment.roadworks import Post, Refit, Traffic
from genus_traffic.segment.sensors import Sensor
from genus_traffic.segment.stations import Station, Timeline
from genus_traffic.segment.wire_watch import WireWatch
from genus_traffic.types import Occupancy

if TYPE_CHECKING:
    from genus_traffic.segment.segment import Segment

WARM_UP_US = 5_000_000
"""The segment is switched on so long before its traffic begins: clocks are synchronised and channels bound by then."""
SETTLING_NS = 200_000_000
"""So long after the last detection what is on its way is waited for."""
STEPS = 200
LONGEST_STEP_NS = 5_000_000_000
"""A run is cut into steps, after each of which it can be ended."""


class SegmentRun:
    """State: a segment while it happens."""

    def __init__(self, segment: "Segment") -> None:
        self._began = time.perf_counter()
        self.segment = segment
        self.plan = segment_plan(segment.place, segment.lanes)
        self.book = ChannelBook(self.plan)
        self.timeline = Timeline(segment.start_us - WARM_UP_US)
        self.simulation = simulation = _simulation(segment)
        self.wire = WireWatch(simulation, self.book)
        self.monitor = VelocityMonitor()
        self.gateway = Gateway(segment.site, lambda: self.timeline.true_us(simulation.now))
        self.stations: dict[str, Station] = {}
        self.ears = {
            GATEWAY: self._listen(GATEWAY, self.gateway.pass_on, Gateway.SUBSCRIPTION),
            MONITOR: self._listen(MONITOR, self.monitor.hear, VelocityMonitor.EDGES, VelocityMonitor.HEARTBEATS),
        }
        self.sensors = [self._install(UPPER), self._install(LOWER)]
        self.posts: dict[str, Post] = {}
        self.refit: Refit | None = None

    def _station(self, name: str) -> Station:
        station = Station(name, self.simulation, self.timeline, self.plan.calendar.slots)
        self.stations[name] = station
        return station

    def _listen(self, name: str, program: Callable[..., object], *subscriptions: Subscription) -> Ear:
        ear = Ear(self._station(name), self.book, self.wire, program, is_last=name == GATEWAY)
        for subscription in subscriptions:
            ear.subscribe(subscription)
        return ear

    def _install(self, name: str) -> Sensor:
        return Sensor(self._station(name), self.segment.place, self.book)

    def _install_new(self) -> Sensor:
        self.sensors.append(self._install(NEW_UPPER))
        return self.sensors[-1]

    # As it happens

    def advance(self) -> Iterator[float]:
        """Let it happen step by step; each gives how much of it has happened, up to 1."""
        self._warm_up()
        first, last = self.simulation.now, self.timeline.virtual_ns(self.segment.end_us)
        self._begin(last)
        steps = max(STEPS, (last - first) // LONGEST_STEP_NS)
        for step in range(1, steps + 1):
            self.simulation.run(first + (last - first) * step // steps)
            yield step / steps
        self.simulation.run(last + SETTLING_NS)
        self.monitor.finish()

    def _warm_up(self) -> None:
        self.simulation.run(self.timeline.virtual_ns(self.segment.start_us))
        late = [sensor.name for sensor in self.sensors if not sensor.is_ready]
        if late:
            raise BusError(
                f"site {self.segment.site!r}: sensor {late[0]} is not ready after {WARM_UP_US // 1_000_000} s; "
                f"{self.segment.error_share:.0%} of all frames are corrupted"
            )

    def _begin(self, last_ns: int) -> None:
        """Put the sensors into service and let the traffic come; what was told before does not count."""
        for ear in self.ears.values():
            ear.troubles.clear()
        bus_now = self.stations[GATEWAY].bus_now
        self.book.slots_from_ns = bus_now + SETTLING_NS
        self.book.slots_until_ns = bus_now + last_ns - self.simulation.now
        self.posts = {sensor.name: self._post(sensor) for sensor in self.sensors}
        self._arrange()
        Traffic(self.segment.detections, self.posts, self.timeline, self.simulation)

    def _post(self, sensor: Sensor) -> Post:
        slot = self.plan.calendar.slot(channel_name(name_of(Occupancy), sensor.name))
        return Post(sensor, slot, self.book)

    def _arrange(self) -> None:
        """See to it that the sensor is replaced, and that somebody asks, when it is time."""
        if self.segment.refit_us is not None:
            at_ns = self.timeline.virtual_ns(self.segment.refit_us)
            self.refit = Refit(self.posts[UPPER], self._install_new, at_ns, self.simulation)
        for asked_us in self.segment.asked_us:
            self.simulation.at(self.timeline.virtual_ns(asked_us), self._ask)

    def _ask(self) -> None:
        for post in self.posts.values():
            post.sensor.tell_setting()

    # What came of it

    def outcome(self) -> SegmentOutcome:
        """Everything that is to be known of it."""
        return SegmentOutcome(
            site=self.segment.site,
            events=tuple(self.gateway.passed),
            channels=tuple(entry.row(self.segment.site) for entry in self.book.entries.values() if entry.published),
            picture=picture_of(self._bus_scene()),
            found=tuple(self.monitor.found),
            frames=self.wire.frames,
            errors=self.wire.errors,
            published=sum(map(_is_counted, self.segment.detections)),
            unseen=sum(sensor.unseen for sensor in self.sensors),
            missing_heartbeats=self.ears[GATEWAY].missing,
            heard={"Gateway": self.ears[GATEWAY].heard, "VelocityMonitor": self.monitor.heard},
            filters={station.name: station.filters for station in self.stations.values()},
            troubles=dict(sum((ear.troubles for ear in self.ears.values()), start=Counter[str]())),
            refitted_us=self._refitted_us(),
            stamp_error_us=max(sensor.worst_stamp_us for sensor in self.sensors),
            seconds=time.perf_counter() - self._began,
        )

    def _bus_scene(self) -> BusScene:
        site, lead = self.segment.site, self.stations[GATEWAY]
        return BusScene(site, self.wire, self.book, self.plan.calendar, self.timeline, lead)

    def _refitted_us(self) -> int | None:
        if self.refit is None or self.refit.done_ns is None:
            return None
        return self.timeline.true_us(self.refit.done_ns)


def _simulation(segment: "Segment") -> Simulation:
    seed = Random(f"{segment.seed}/{segment.site}").getrandbits(48)
    faults = [FrameErrors(p=segment.error_share)] if segment.error_share else []
    return Simulation(TIMING, seed=seed, faults=faults)


def _is_counted(detection: Detection) -> bool:
    """Whether the statistics collector wants to know of it: what the upper loop saw come, and told the category of."""
    return detection.on and detection.loop == UPPER and detection.category is not None
