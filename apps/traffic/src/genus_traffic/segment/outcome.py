"""What came of a segment: plain data, which a process hands to the one that started it."""

from collections.abc import Mapping

import msgspec

from genus_traffic.results import BusPicture, ChannelRow
from genus_traffic.segment.gateway import Arrival
from genus_traffic.segment.monitor import FoundInLane


class SegmentOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it."""

    site: str
    events: tuple[Arrival, ...]
    """What the gateway handed on, in order of reception."""
    channels: tuple[ChannelRow, ...]
    picture: BusPicture
    found: tuple[FoundInLane, ...]
    """What the velocity monitor measured while it happened."""
    frames: int
    errors: int
    """Frames that were corrupted, and sent again."""
    published: int
    """Leading edges that upper sensors noticed: what conforms to `Loop has time, place, category`."""
    unseen: int
    """Detections that no sensor could publish; 0, unless something is broken."""
    missing_heartbeats: int
    heard: Mapping[str, int]
    """Events that each program got."""
    filters: Mapping[str, tuple[tuple[int, int], ...]]
    """The acceptance filters of each node."""
    troubles: Mapping[str, int]
    """What the listening programs were told besides, by kind."""
    refitted_us: int | None
    """When the new sensor took over."""
    stamp_error_us: int
    """How far the time of an edge was from the true one, at most."""
    seconds: float
    """How long the simulation took."""
