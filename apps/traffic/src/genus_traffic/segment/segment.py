"""A site's CAN segment in the simulator: the programs of sensors, monitor and gateway, each on its own node.

The clocks of sensors drift; the gateway, which has satellite time, is the master that synchronises them. All random
choices follow from the seed.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import count, pairwise
from random import Random

import msgspec

from genus import open_bus
from genus.can import World
from genus.can.types import ChannelResult
from genus.errors import BusError, PlanError
from genus.model import name_of
from genus_traffic.results import BusPicture, ChannelRow
from genus_traffic.road.truth import Detection
from genus_traffic.segment.listeners import Arrival, Gateway, LanePassage, VelocityMonitor
from genus_traffic.segment.picture import picture_of
from genus_traffic.segment.plan import (
    GATEWAY,
    LOWER,
    MONITOR,
    NEW_UPPER,
    UPPER,
    channel_name,
    city_catalog,
    segment_plan,
)
from genus_traffic.segment.refit import Refit, SensorPosition, Traffic
from genus_traffic.segment.sensors import Sensor
from genus_traffic.types import Occupancy

WARM_UP_US = 5_000_000
"""How long before its traffic the segment is switched on, to synchronise clocks and bind channels."""
SETTLING_NS = 200_000_000
"""How long to wait after the last detection for events that are being sent."""
STEPS = 200
MAX_STEP_NS = 5_000_000_000
"""A run is cut into steps, after each of which it can be ended."""


class SegmentOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The results of a segment: plain data, which a process hands to the one that started it."""

    site: str
    events: tuple[Arrival, ...]
    """The events that the gateway forwarded, in order of reception."""
    channels: tuple[ChannelRow, ...]
    picture: BusPicture
    found: tuple[LanePassage, ...]
    """The passages that the velocity monitor found."""
    frames: int
    errors: int
    """Frames that were corrupted and retransmitted."""
    published: int
    """Leading edges at upper loops, which conform to `Loop has time, place, category`."""
    unpublished: int
    """Detections that no sensor could publish; 0 unless there is a bug."""
    missing_heartbeats: int
    received: Mapping[str, int]
    """Events that each program received."""
    filters: Mapping[str, tuple[tuple[int, int], ...]]
    """The acceptance filters of each node."""
    troubles: Mapping[str, int]
    """Other troubles of the subscribing programs, by class."""
    refitted_us: int | None
    """When the new sensor took over."""
    stamp_error_us: int
    """The largest error of an edge's time."""
    seconds: float
    """How long the simulation took."""


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """The run of a site's segment to simulate; PlanError if it is not possible."""

    site: str
    place: str
    lanes: int
    detections: tuple[Detection, ...]
    """In order of time."""
    start_us: int
    end_us: int
    refit_us: int | None = None
    """When the upper sensor is replaced by one of the next generation."""
    request_settings_us: tuple[int, ...] = ()
    """When sensors are requested to publish their settings."""
    seed: int = 0
    error_share: float = 0.0
    """The share of frames that are corrupted on the bus; controllers retransmit them."""

    def __post_init__(self) -> None:
        for problem in self._problems():
            raise PlanError(f"site {self.site!r}: {problem}")

    def _problems(self) -> Iterator[str]:
        if self.end_us <= self.start_us:
            yield "ends before it starts"
        if self.refit_us is not None and not self.start_us <= self.refit_us < self.end_us:
            yield "is refitted before it starts or after it ends"
        if any(not self.start_us <= at_us < self.end_us for at_us in self.request_settings_us):
            yield "is requested to publish settings before it starts or after it ends"
        if any(after.at_us < before.at_us for before, after in pairwise(self.detections)):
            yield "has detections that are not in order of time"
        if (
            self.detections
            and not self.start_us <= self.detections[0].at_us <= self.detections[-1].at_us <= self.end_us
        ):
            yield "has detections before its start or after its end"
        if any(not 0 <= detection.lane < self.lanes for detection in self.detections):
            yield f"has detections in a lane that is not one of its {self.lanes}"

    def run(self, progress: Callable[[float], object] | None = None) -> SegmentOutcome:
        """Simulate it; `progress` is called with how much is done, up to 1."""
        with SegmentRun(self) as run:
            for done in run.advance():
                if progress is not None:
                    progress(done)
            return run.outcome()


class SegmentRun:
    """State: a segment while it runs; use it in a `with` block. `trace` is that of its world."""

    def __init__(self, segment: Segment, *, trace: bool | int = True) -> None:
        self._began = time.perf_counter()
        self.segment = segment
        self.plan = segment_plan(segment.place, segment.lanes)
        self._origin_us = segment.start_us - WARM_UP_US
        """The true time at which the segment is switched on."""
        self.world = world = World(
            f"segment-{next(_RUNS)}",
            plan=self.plan,
            catalog=city_catalog(),
            seed=Random(f"{segment.seed}/{segment.site}").getrandbits(48),
            faults=[f"errors p={segment.error_share}"] if segment.error_share else [],
            start=datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=self._origin_us),
            masters=[GATEWAY],
            reference=[GATEWAY],
            trace=trace,
        )
        self.gateway = Gateway(segment.site, open_bus(f"sim:{world.name}?name={GATEWAY}"), self._true_time)
        self.monitor = VelocityMonitor(open_bus(f"sim:{world.name}?name={MONITOR}"))
        self.sensors = [self._install(UPPER), self._install(LOWER)]
        self.positions: dict[str, SensorPosition] = {}
        self.refit: Refit | None = None

    def __enter__(self) -> "SegmentRun":
        return self

    def __exit__(self, *_: object) -> None:
        self.world.close()

    def _true_time(self) -> datetime:
        return self.world.time

    def _install(self, name: str) -> Sensor:
        return Sensor(self.world, name, self.segment.place, self.segment.lanes)

    def _install_new(self) -> Sensor:
        self.sensors.append(self._install(NEW_UPPER))
        return self.sensors[-1]

    def _virtual_ns(self, true_us: int) -> int:
        return (true_us - self._origin_us) * 1000

    # -- running -----------------------------------------------------------------------------------------------------

    def advance(self) -> Iterator[float]:
        """Run it step by step; each step gives how much is done, up to 1."""
        self.warm_up()
        first, last = self.world.now_ns, self._virtual_ns(self.segment.end_us)
        self.begin(self.segment.detections)
        steps = max(STEPS, (last - first) // MAX_STEP_NS)
        for step in range(1, steps + 1):
            self.world.run_ns(first + (last - first) * step // steps - self.world.now_ns)
            yield step / steps
        self.world.run_ns(SETTLING_NS)
        self.monitor.finish()

    def warm_up(self) -> None:
        """Switch it on and wait until its traffic starts; BusError if a sensor is not ready by then."""
        for sensor in self.sensors:
            self.world.start(_set_up, sensor)
        self.world.run_ns(self._virtual_ns(self.segment.start_us))
        late = [sensor.name for sensor in self.sensors if not sensor.is_ready]
        if late:
            raise BusError(
                f"site {self.segment.site!r}: sensor {late[0]} is not ready after {WARM_UP_US // 1_000_000} s; "
                f"{self.segment.error_share:.0%} of all frames are corrupted"
            )

    def begin(self, detections: Iterable[Detection]) -> None:
        """Put the sensors into service and start the traffic; troubles of the warm-up are not counted."""
        last_ns = self._virtual_ns(self.segment.end_us)
        self.gateway.troubles.clear()
        self.monitor.troubles.clear()
        bus_ns = self.world.stations[GATEWAY].bus_time(self.world.now_ns)
        first_slot_ns, last_slot_ns = bus_ns + SETTLING_NS, bus_ns + last_ns - self.world.now_ns
        longest_slot_ns = max(slot.length_ns for slot in self.plan.calendar.slots)
        self.world.count_alarms(first_slot_ns, last_slot_ns + longest_slot_ns)
        for sensor in self.sensors:
            slot = self.plan.calendar.slot(channel_name(name_of(Occupancy), sensor.name))
            self.positions[sensor.name] = SensorPosition(sensor, slot, first_slot_ns, last_slot_ns)
        self._schedule_changes()
        Traffic(detections, self.positions, self._origin_us, self.world)

    def _schedule_changes(self) -> None:
        """Schedule the refit, and the requests for settings."""
        if self.segment.refit_us is not None:
            at_ns = self._virtual_ns(self.segment.refit_us)
            self.refit = Refit(self.positions[UPPER], self._install_new, at_ns, self.world)
        for at_us in self.segment.request_settings_us:
            self.world.at_ns(self._virtual_ns(at_us), self._request_settings)

    def _request_settings(self) -> None:
        for position in self.positions.values():
            position.sensor.publish_setting()

    # -- results -----------------------------------------------------------------------------------------------------

    def outcome(self) -> SegmentOutcome:
        """The results."""
        results = self.world.outcome().channels
        total = self.world.trace.total
        return SegmentOutcome(
            site=self.segment.site,
            events=tuple(self.gateway.forwarded),
            channels=tuple(channel_row(self.segment.site, result) for result in results),
            picture=picture_of(self.world, self.segment.site, self._origin_us),
            found=tuple(self.monitor.found),
            frames=total.frames,
            errors=total.errors,
            published=sum(map(_is_counted, self.segment.detections)),
            unpublished=sum(sensor.unpublished for sensor in self.sensors),
            missing_heartbeats=sum(result.alarms.get(GATEWAY, 0) for result in results),
            received={"Gateway": len(self.gateway.forwarded), "VelocityMonitor": self.monitor.edges},
            filters={name: station.filters for name, station in self.world.stations.items()},
            troubles=dict(self.gateway.troubles + Counter(self.monitor.troubles)),
            refitted_us=self._refitted_us(),
            stamp_error_us=max(sensor.worst_stamp_us for sensor in self.sensors),
            seconds=time.perf_counter() - self._began,
        )

    def _refitted_us(self) -> int | None:
        if self.refit is None or self.refit.done_ns is None:
            return None
        return self._origin_us + self.refit.done_ns // 1000


_RUNS = count(1)


def _set_up(sensor: Sensor) -> None:
    try:
        sensor.set_up()
    except BusError:
        return  # the warm-up finds that it is not ready


def channel_row(site: str, result: ChannelResult) -> ChannelRow:
    """The result of a channel, for the report."""
    return ChannelRow(
        site=site,
        channel=result.channel,
        qos=result.qos_class,
        published=result.published,
        delivered=sum(result.delivered.values()),
        filtered=result.filtered,
        missed=_missed(result),
        worst_us=_micros(result.worst_ns),
        bound_us=None if result.bound_ns is None else _micros(result.bound_ns),
    )


def _missed(result: ChannelResult) -> int:
    """Events that the gateway, which subscribes to all channels, got too late or not at all."""
    if result.qos_class == "hard":
        return result.alarms.get(GATEWAY, 0)
    lost = result.wanted.get(GATEWAY, 0) - result.delivered.get(GATEWAY, 0)
    return result.missed + result.not_sent + result.waiting + lost


def _micros(ns: int) -> float:
    """Nanoseconds as microseconds with one decimal."""
    return round(ns / 1000, 1)


def _is_counted(detection: Detection) -> bool:
    """Whether the statistics collector counts it: a leading edge at the upper loop, with a category."""
    return detection.on and detection.loop == UPPER and detection.category is not None
