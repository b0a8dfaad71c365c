"""The posts of a site's sensors, and the refit: a sensor of the next generation takes over, and nobody else notices."""

from collections.abc import Callable, Iterable, Iterator

from genus.can._plan import Slot
from genus.can._sim.simulation import Simulation
from genus_traffic.road.detections import Detection
from genus_traffic.segment.channel_book import ChannelBook
from genus_traffic.segment.plan import HEARTBEAT_NS
from genus_traffic.segment.sensors import LEAD_NS, Sensor
from genus_traffic.segment.stations import Timeline

READY_AHEAD_NS = 5_000_000_000
"""The new sensor is switched on so long before: time to bind its channels and to synchronise its clock."""
LOOK_AGAIN_NS = 10_000_000
"""If it is not ready when its time has come, it is waited for, and looked at so often."""
LAST_WORDS_NS = HEARTBEAT_NS
"""So long the old sensor stays after it was relieved, for what it had published, and so long again for its report."""


class Post:
    """State: the sensor that is in service at the upper loops of a site, or at the lower ones, and its heartbeat.

    The heartbeat goes on in the same slot of the calendar when another sensor takes over.
    """

    def __init__(self, sensor: Sensor, slot: Slot, book: ChannelBook) -> None:
        self.sensor = sensor
        self._slot = slot
        self._book = book
        sensor.go_into_service()
        self._beat_before(slot.next_start(book.slots_from_ns).start_ns)

    def relieve(self, sensor: Sensor) -> Sensor:
        """Let another sensor take over from this instant on; the one that had the post is returned."""
        relieved, self.sensor = self.sensor, sensor
        sensor.go_into_service(relieved.occupied)
        return relieved

    def _beat_before(self, start_ns: int) -> None:
        if start_ns > self._book.slots_until_ns:
            return

        def beat() -> None:
            self.sensor.beat()
            self._beat_before(start_ns + self._slot.period_ns)

        self.sensor.station.simulation.at(self._instant_of(start_ns - LEAD_NS), beat)

    def _instant_of(self, bus_ns: int) -> int:
        """When the sensor takes it for that time; one that does not know the time goes by the period alone."""
        station = self.sensor.station
        now = station.simulation.now
        return max(now, station.instant_of(bus_ns)) if station.is_synchronised else now + self._slot.period_ns


class Refit:
    """State: the replacement of the sensor of a post, at an instant of virtual time."""

    def __init__(self, post: Post, install: Callable[[], Sensor], at_ns: int, simulation: Simulation) -> None:
        self.new: Sensor | None = None
        self.done_ns: int | None = None
        self._post = post
        self._install = install
        self._simulation = simulation
        simulation.at(max(simulation.now, at_ns - READY_AHEAD_NS), self._switch_on)
        simulation.at(at_ns, self._take_over)

    def _switch_on(self) -> None:
        self.new = self._install()

    def _take_over(self) -> None:
        """Relieve the old sensor as soon as the new one can do its work, and not before."""
        now = self._simulation.now
        if self.new is None or not self.new.is_ready:
            self._simulation.at(now + LOOK_AGAIN_NS, self._take_over)
            return
        old = self._post.relieve(self.new)
        self.done_ns = now
        self._simulation.at(now + LAST_WORDS_NS, old.retire)
        self._simulation.at(now + 2 * LAST_WORDS_NS, old.station.leave)


class Traffic:
    """State: the detections of a site that are still to come; each goes to the sensor that has the post then."""

    def __init__(
        self, detections: Iterable[Detection], posts: dict[str, Post], timeline: Timeline, simulation: Simulation
    ) -> None:
        self._coming: Iterator[Detection] = iter(detections)
        self._posts = posts
        self._timeline = timeline
        self._simulation = simulation
        self._go_on()

    def _go_on(self) -> None:
        detection = next(self._coming, None)
        if detection is None:
            return

        def happen() -> None:
            self._posts[detection.loop].sensor.notice(detection)
            self._go_on()

        self._simulation.at(self._timeline.virtual_ns(detection.at_us), happen)
