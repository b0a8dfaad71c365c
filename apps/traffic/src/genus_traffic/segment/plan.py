"""The plan of a site's CAN segment: its nodes, their channels with their qualities of service, and the calendar.

The plan includes the sensor of the next generation, which takes over the position of the old upper sensor, and with it
the slot of its heartbeat. So the calendar does not change when sensors are replaced.
"""

from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import msgspec

from genus import Catalog, Event
from genus.bus.types import QoS
from genus.can import BusSpec, ChannelSpec, PayloadCodec, System, Timing, plan
from genus.can.types import Plan, QosName
from genus.errors import PlanError
from genus.model import name_of
from genus_traffic.types import TYPES, Category, Cleared, ConfidentLoop, Edge, Loop, Occupancy, Setting

GATEWAY, UPPER, LOWER, MONITOR, NEW_UPPER = "gateway", "upper", "lower", "monitor", "upper2"
NUMBERS = {GATEWAY: 1, UPPER: 2, LOWER: 3, MONITOR: 4, NEW_UPPER: 5}
"""Node numbers on the bus. The gateway is the time master."""
POSITIONS = {UPPER: UPPER, LOWER: LOWER, NEW_UPPER: UPPER}
"""The position of each sensor: a heartbeat's slot belongs to the position, whichever sensor is there."""
MAX_LANES = 8
"""A heartbeat has one bit per lane, eight in all."""

TIMING = Timing(1_000_000, 4_000_000)
"""CAN FD: an edge with a place fits into one frame."""
SYNC_PERIOD_NS = 250_000_000
"""How often clocks are synchronised: oscillators that drift by 100 ppm then stay within some microseconds."""
GAP_NS, PRECISION_NS = 150_000, 70_000
"""The gap between slots, and the clock precision it needs: that of a sensor that was just switched on."""
HEARTBEAT_NS = 500_000_000
LANE_PAUSE_NS = 100_000_000
"""The least time between two leading edges at one loop."""
DEADLINE_NS, EXPIRES_NS = 20_000_000, 100_000_000
"""Of an edge, from its detection."""
SETTING_PAUSE_NS = 1_000_000_000
FIRMWARE = {
    1: "inductive loop detector 1.9.4, built 2019-05-02, two channels per lane, self-tuning",
    2: "inductive loop detector 2.0.1, built 2026-02-11, two channels per lane, self-tuning, tells its confidence",
}
"""By generation of sensors. The text is longer than a frame, so it is sent in segments."""

CARRIED = {UPPER: ("time", "place"), LOWER: ("time",), NEW_UPPER: ("time", "place")}
"""The context attributes of each sensor's edges and settings."""
EDGES: dict[str, tuple[type[Edge], ...]] = {
    UPPER: (Loop, Cleared),
    LOWER: (Loop, Cleared),
    NEW_UPPER: (ConfidentLoop, Cleared),
}
"""The soft channels of each sensor."""


@lru_cache(maxsize=1)
def city_catalog() -> Catalog:
    """The catalog of the whole city, with the type of the next generation of sensors."""
    catalog = Catalog()
    catalog.register(*TYPES)
    return catalog


@lru_cache(maxsize=64)
def segment_plan(place: str, lanes: int) -> Plan:
    """The plan of the segment at a place; PlanError if the channels do not fit.

    >>> found = segment_plan("Ring road", 3)
    >>> [slot.channel for slot in found.calendar.slots], found.load.used < 0.1
    (['Occupancy of upper', 'Occupancy of lower'], True)
    """
    if not 1 <= lanes <= MAX_LANES:
        raise PlanError(f"a site has 1 to {MAX_LANES} lanes, and {place!r} has {lanes}")
    found = plan(segment_system(place, lanes))
    if not found.ok:
        verdict = found.refused[0]
        raise PlanError(f"the plan of the CAN segment of {place!r} is refused: {verdict.channel} {verdict.reason}")
    return found


def segment_system(place: str, lanes: int) -> System:
    """The bus of a segment and its channels."""
    bus = BusSpec(timing=TIMING, gap_ns=GAP_NS, precision_ns=PRECISION_NS, sync_period_ns=SYNC_PERIOD_NS)
    channels = [_heartbeat(UPPER), _heartbeat(LOWER)]
    for node, classes in EDGES.items():
        channels += [_edges(cls, node, place, lanes) for cls in classes]
        channels.append(_settings(node, place))
    return System(bus, tuple(channel.on_bus(bus) for channel in channels), NUMBERS, f"the CAN segment of {place}")


def qos_of(cls: type[Event], node: str, place: str, lanes: int) -> QoS:
    """The quality of service with which a sensor publishes a class."""
    name = channel_name(name_of(cls), POSITIONS[node] if cls is Occupancy else node)
    return next(each.qos for each in segment_plan(place, lanes).system.channels if each.name == name)


def channel_name(event: str, node: str) -> str:
    """The name of the channel on which a node publishes events of a type."""
    return f"{event} of {node}"


def _heartbeat(node: str) -> ChannelSpec:
    size = _layout(Occupancy).max_size_carrying(("time",))
    assert size is not None
    return msgspec.structs.replace(_channel(Occupancy, node, "hard", HEARTBEAT_NS, size), omissions=1)


def _edges(cls: type[Edge], node: str, place: str, lanes: int) -> ChannelSpec:
    """The channel of edges: those of all lanes may be published at once, which counts as jitter."""
    period = LANE_PAUSE_NS // lanes
    channel = _channel(cls, node, "soft", period, _size_of(_longest_edge(cls, node, place)))
    return msgspec.structs.replace(
        channel, deadline_ns=DEADLINE_NS, expires_ns=EXPIRES_NS, jitter_ns=period * (lanes - 1)
    )


def _settings(node: str, place: str) -> ChannelSpec:
    longest = Setting(generation=1, firmware=max(FIRMWARE.values(), key=len), sensitivity=0.5, **_context(node, place))
    return _channel(Setting, node, "none", SETTING_PAUSE_NS, _size_of(longest))


def _channel(cls: type[Event], node: str, qos_class: QosName, period_ns: int, size: int) -> ChannelSpec:
    """A channel; events of unlimited length are sent in segments, even if there is one only."""
    catalog, name = city_catalog(), name_of(cls)
    any_length = qos_class != "hard" and _layout(cls).max_size_carrying(CARRIED[node]) is None
    return ChannelSpec(
        name=channel_name(name, node), event=name, node=node, number=NUMBERS[node], etag=catalog.etag(name),
        qos_class=qos_class, period_ns=period_ns, size=size, segmented=any_length,
        subscribers=(GATEWAY,) if cls is Setting else (GATEWAY, MONITOR),
    )  # fmt: skip


def _longest_edge(cls: type[Edge], node: str, place: str) -> Edge:
    values: dict[str, Any] = {} if cls is Cleared or node == LOWER else {"category": Category.MOTORCYCLE}
    if cls is ConfidentLoop:
        values["confidence"] = 0.5
    return cls(lane=0, **values, **_context(node, place))


def _context(node: str, place: str) -> dict[str, Any]:
    known = {"time": datetime.fromtimestamp(0, UTC), "place": place}
    return {name: known[name] for name in CARRIED[node]}


def _size_of(event: Event) -> int:
    return len(_layout(type(event)).encode(event, 0)[1])


def _layout(cls: type[Event]) -> PayloadCodec:
    catalog = city_catalog()
    return PayloadCodec.of(cls, catalog.vector(cls), catalog.tagged_attributes(name_of(cls)))
