"""The sensors of a site: programs on nodes of its CAN segment that turn detections into events.

One sensor serves the upper loops of all lanes, another the lower ones. A sensor publishes edges with a deadline, its
heartbeat in a slot of the calendar, and how it is set up when nothing else wants the bus.
"""

import msgspec

from genus.can._node.channels import Announcement
from genus.model import Event, micros_of_time
from genus_traffic.road.detections import Detection
from genus_traffic.segment.channel_book import ChannelBook
from genus_traffic.segment.plan import CARRIED, EDGES, FIRMWARE, LOWER, NEW_UPPER, UPPER
from genus_traffic.segment.stations import Station
from genus_traffic.types import Cleared, ConfidentLoop, Edge, Loop, Occupancy, Setting

LEAD_NS = 2_000_000
"""How long before its slot a heartbeat is written."""
FACTORY_SENSITIVITY = 0.5
GENERATION = {UPPER: 1, LOWER: 1, NEW_UPPER: 2}


class Sensor:
    """State: the program of one sensor.

    It is in service as long as detections are given to it. A sensor tells how it is set up when it goes into service,
    once more when it has tuned itself to its first vehicle, and whenever it is asked.
    """

    def __init__(self, station: Station, place: str, book: ChannelBook) -> None:
        self.station = station
        self.occupied = 0
        """The lanes where something is on the loop, as bits."""
        self.unseen = 0
        """Detections that could not be published."""
        self.worst_stamp_us = 0
        """How far the time of an edge was from the true one, at most."""
        self._place = place
        self._book = book
        self._beats = 0
        self._sensitivity = FACTORY_SENSITIVITY
        self._tuned = False
        self._announcements: dict[type[Event], Announcement] = {}
        station.call(self._announce)

    @property
    def name(self) -> str:
        """The name of its node."""
        return self.station.name

    @property
    def is_ready(self) -> bool:
        """Whether all its channels are bound and its clock is good enough."""
        bound = all(announcement.state == "ready" for announcement in self._announcements.values())
        return bound and self.station.is_synchronised

    def _announce(self, now: int) -> None:
        node, context = self.station.node, CARRIED[self.name]
        classes: tuple[type[Event], ...] = (*EDGES[self.name], Setting)
        for cls in classes:
            entry = self._book.entry(cls, self.name)
            self._announcements[cls] = node.announce(
                cls, entry.channel.qos, now, on_trouble=entry.heed, carries=context
            )
        heartbeat = self._book.entry(Occupancy, self.name).channel
        self._announcements[Occupancy] = node.announce(Occupancy, heartbeat.qos, now, carries=("time",))

    # Service

    def go_into_service(self, occupied: int = 0) -> None:
        """Begin, with what is on the loops at this moment."""
        self.occupied = occupied
        self.tell_setting()

    def notice(self, detection: Detection) -> None:
        """Publish an edge, with the time by the bus's clock as this sensor knows it."""
        bit = 1 << detection.lane
        self.occupied = self.occupied | bit if detection.on else self.occupied & ~bit
        event = self._edge(detection)
        self.unseen += not self._publish(event)
        assert event.time is not None
        self.worst_stamp_us = max(self.worst_stamp_us, abs(micros_of_time(event.time) - detection.at_us))
        if not detection.on and not self._tuned:
            self._tune()

    def beat(self) -> None:
        """Write the heartbeat for the slot that comes next."""
        self._publish(Occupancy(occupied=self.occupied, beat=self._beats & 0xFF, time=self.station.time))
        self._beats += 1

    def tell_setting(self) -> None:
        """Tell how the sensor is set up."""
        generation = GENERATION[self.name]
        setting = Setting(
            generation=generation, firmware=FIRMWARE[generation], sensitivity=self._sensitivity, time=self.station.time
        )
        upper = "place" in CARRIED[self.name]
        self._publish(msgspec.structs.replace(setting, place=self._place) if upper else setting)

    def retire(self) -> None:
        """Withdraw everything; what was published is still sent, and a last report."""
        self.station.call(self.station.node.close)

    def _tune(self) -> None:
        """Set the sensitivity by the vehicle that has just passed: how much metal that was is a matter of chance."""
        random = self.station.simulation.random(f"tuning of {self.name}")
        self._sensitivity, self._tuned = round(random.uniform(0.4, 0.7), 3), True
        self.tell_setting()

    # Events

    def _edge(self, detection: Detection) -> Edge:
        lane, time = detection.lane, self.station.time
        if self.name == LOWER:
            return Loop(lane=lane, time=time) if detection.on else Cleared(lane=lane, time=time)
        if not detection.on:
            return Cleared(lane=lane, time=time, place=self._place)
        loop = Loop(lane=lane, time=time, place=self._place, category=detection.category)
        return loop if self.name == UPPER else _confident(loop, detection.confidence)

    def _publish(self, event: Event) -> bool:
        """Publish an event; False if its channel is not bound yet, or no more."""
        if self._announcements[type(event)].state != "ready":
            return False
        node = self.station.node
        self._book.entry(type(event), self.name).was_published(event, self.station.simulation.now)
        self.station.call(lambda now: node.publish(event, now))
        return True


def _confident(loop: Loop, confidence: float | None) -> ConfidentLoop:
    return ConfidentLoop(
        lane=loop.lane, time=loop.time, place=loop.place, category=loop.category, confidence=confidence
    )
