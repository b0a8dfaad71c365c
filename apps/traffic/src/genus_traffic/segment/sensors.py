"""The sensors of a site: programs on nodes of its CAN segment that turn detections into events.

One sensor serves the upper loops of all lanes, another the lower ones. A sensor publishes edges with a deadline, its
heartbeat in a slot of the calendar, and its settings when the bus is free.
"""

from random import Random

import msgspec

from genus import Event, EventChannel, open_bus
from genus.can import World
from genus.model import micros_of_time
from genus_traffic.road.truth import Detection
from genus_traffic.segment.plan import (
    CARRIED,
    EDGES,
    FIRMWARE,
    LOWER,
    NEW_UPPER,
    POSITIONS,
    PRECISION_NS,
    UPPER,
    qos_of,
)
from genus_traffic.types import Cleared, ConfidentLoop, Edge, Loop, Occupancy, Setting

FACTORY_SENSITIVITY = 0.5
GENERATION = {UPPER: 1, LOWER: 1, NEW_UPPER: 2}


class Sensor:
    """State: the program of one sensor.

    It is in service as long as detections are given to it. It publishes its settings when it goes into service, when it
    has tuned itself to its first vehicle, and on request.
    """

    def __init__(self, world: World, name: str, place: str, lanes: int) -> None:
        self.name = name
        self.bus = open_bus(f"sim:{world.name}?name={name}&slots={POSITIONS[name]}")
        self.occupied = 0
        """The lanes where something is on the loop, as bits."""
        self.unpublished = 0
        """Detections whose channel was not bound."""
        self.worst_stamp_us = 0
        """The largest error of the time of an edge."""
        self._world = world
        self._place = place
        self._lanes = lanes
        self._beats = 0
        self._sensitivity = FACTORY_SENSITIVITY
        self._tuned = False
        self._channels: dict[type[Event], EventChannel[Event]] = {}

    def set_up(self) -> None:
        """Announce all channels; this blocks until they are bound."""
        classes: tuple[type[Event], ...] = (*EDGES[self.name], Setting, Occupancy)
        for cls in classes:
            qos = qos_of(cls, self.name, self._place, self._lanes)
            carries = ("time",) if cls is Occupancy else CARRIED[self.name]
            channel = self.bus.channel(cls, qos, carries=carries)
            channel.announce()
            self._channels[cls] = channel

    @property
    def is_ready(self) -> bool:
        """Whether all its channels are bound and its clock is precise enough."""
        is_set_up = len(self._channels) == len(EDGES[self.name]) + 2
        return is_set_up and self._world.stations[self.name].precision_ns <= PRECISION_NS

    # -- service -----------------------------------------------------------------------------------------------------

    def go_into_service(self, occupied: int = 0) -> None:
        """Start, with the lanes that are occupied at this moment."""
        self.occupied = occupied
        self.publish_setting()

    def publish_edge(self, detection: Detection) -> None:
        """Publish a detection as an edge, with this sensor's estimate of the bus time."""
        bit = 1 << detection.lane
        self.occupied = self.occupied | bit if detection.on else self.occupied & ~bit
        event = self._edge(detection)
        self.unpublished += not self._publish(event)
        assert event.time is not None
        self.worst_stamp_us = max(self.worst_stamp_us, abs(micros_of_time(event.time) - detection.at_us))
        if not detection.on and not self._tuned:
            self._tune()

    def beat(self) -> None:
        """Publish the heartbeat for the next slot."""
        self._publish(Occupancy(occupied=self.occupied, beat=self._beats & 0xFF, time=self.bus.now()))
        self._beats += 1

    def publish_setting(self) -> None:
        """Publish how the sensor is set up."""
        generation = GENERATION[self.name]
        setting = Setting(
            generation=generation, firmware=FIRMWARE[generation], sensitivity=self._sensitivity, time=self.bus.now()
        )
        upper = "place" in CARRIED[self.name]
        self._publish(msgspec.structs.replace(setting, place=self._place) if upper else setting)

    def _tune(self) -> None:
        """Set the sensitivity after the first vehicle, to a random value."""
        random = Random(f"{self._world.seed}/tuning of {self.name}")
        self._sensitivity, self._tuned = round(random.uniform(0.4, 0.7), 3), True
        self.publish_setting()

    # -- events ------------------------------------------------------------------------------------------------------

    def _edge(self, detection: Detection) -> Edge:
        lane, time = detection.lane, self.bus.now()
        if self.name == LOWER:
            return Loop(lane=lane, time=time) if detection.on else Cleared(lane=lane, time=time)
        if not detection.on:
            return Cleared(lane=lane, time=time, place=self._place)
        loop = Loop(lane=lane, time=time, place=self._place, category=detection.category)
        return loop if self.name == UPPER else _confident(loop, detection.confidence)

    def _publish(self, event: Event) -> bool:
        """Publish an event; False if its channel is not bound yet."""
        channel = self._channels.get(type(event))
        if channel is not None:
            channel.publish(event)
        return channel is not None


def _confident(loop: Loop, confidence: float | None) -> ConfidentLoop:
    return ConfidentLoop(
        lane=loop.lane, time=loop.time, place=loop.place, category=loop.category, confidence=confidence
    )
