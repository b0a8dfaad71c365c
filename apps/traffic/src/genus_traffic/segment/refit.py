"""Sensors in service, and the refit: a sensor of the next generation takes over while the segment runs."""

from collections.abc import Callable, Iterable, Iterator

from genus.can import World
from genus.can.types import Slot
from genus_traffic.road.truth import Detection
from genus_traffic.segment.plan import HEARTBEAT_NS
from genus_traffic.segment.sensors import Sensor

LEAD_NS = 2_000_000
"""How long before its slot a heartbeat is published."""
READY_AHEAD_NS = 5_000_000_000
"""How long before the refit the new sensor is switched on, to bind its channels and synchronise its clock."""
LOOK_AGAIN_NS = 10_000_000
"""How often a new sensor that is not ready in time is checked."""
CLOSE_AFTER_NS = HEARTBEAT_NS
"""How long the old sensor stays connected to send its queued events."""


class SensorPosition:
    """State: the sensor that is in service at the upper loops of a site, or at the lower ones, and its heartbeat.

    The heartbeat goes on in the same slot of the calendar when another sensor takes over.
    """

    def __init__(self, sensor: Sensor, slot: Slot, first_ns: int, last_ns: int) -> None:
        self.sensor = sensor
        self._slot = slot
        self._last_ns = last_ns
        sensor.go_into_service()
        self._schedule_beat(slot.next_start(first_ns).start_ns)

    def replace_sensor(self, sensor: Sensor) -> Sensor:
        """Put another sensor into service now; returns the old one."""
        old, self.sensor = self.sensor, sensor
        sensor.go_into_service(old.occupied)
        return old

    def _schedule_beat(self, start_ns: int) -> None:
        if start_ns > self._last_ns:
            return

        def beat() -> None:
            self.sensor.beat()
            self._schedule_beat(start_ns + self._slot.period_ns)

        self.sensor.bus.call_at(start_ns - LEAD_NS, beat)


class Refit:
    """State: the replacement of the sensor at a position, at a virtual time."""

    def __init__(self, position: SensorPosition, install: Callable[[], Sensor], at_ns: int, world: World) -> None:
        self.new: Sensor | None = None
        self.done_ns: int | None = None
        self._position = position
        self._install = install
        self._world = world
        world.at_ns(max(world.now_ns, at_ns - READY_AHEAD_NS), self._switch_on)
        world.at_ns(at_ns, self._take_over)

    def _switch_on(self) -> None:
        self.new = self._install()
        self.new.set_up()

    def _take_over(self) -> None:
        """Replace the old sensor as soon as the new one is ready."""
        now = self._world.now_ns
        if self.new is None or not self.new.is_ready:
            self._world.at_ns(now + LOOK_AGAIN_NS, self._take_over)
            return
        old = self._position.replace_sensor(self.new)
        self.done_ns = now
        self._world.at_ns(now + CLOSE_AFTER_NS, old.bus.close)


class Traffic:
    """State: the detections of a site that are still to come; each goes to the sensor in service."""

    def __init__(
        self, detections: Iterable[Detection], positions: dict[str, SensorPosition], origin_us: int, world: World
    ) -> None:
        self._coming: Iterator[Detection] = iter(detections)
        self._positions = positions
        self._origin_us = origin_us
        self._world = world
        self._schedule_next()

    def _schedule_next(self) -> None:
        detection = next(self._coming, None)
        if detection is None:
            return

        def detect() -> None:
            self._positions[detection.loop].sensor.publish_edge(detection)
            self._schedule_next()

        self._world.at_ns((detection.at_us - self._origin_us) * 1000, detect)
