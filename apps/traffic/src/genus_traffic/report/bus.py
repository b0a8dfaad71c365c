"""The CAN bus in the report: what the timeline of the page draws, and sums of channels."""

from collections.abc import Iterable, Sequence

import msgspec

from genus.studio.types import FrameSpan as DrawnFrame
from genus.studio.types import SlotSpan as DrawnSlot
from genus_traffic.results import BusPicture, ChannelRow, FrameSpan, Wait

CLASSES = {"hard": "hard real time", "soft": "soft real time", "none": "no real time", "system": "middleware"}
"""The classes of frames, in the order in which they are shown."""
CORRUPTED = " (corrupted)"
"""How the channel name of a frame ends that was disturbed on the wire."""
_PRIORITY_SHIFT = 21
"""The priority is the first 8 of the 29 bits of an identifier."""


class BusTimeline(msgspec.Struct, frozen=True):
    """A span of a bus as the timeline of Studio draws it; microseconds count from its start."""

    start_us: float
    end_us: float
    load: float
    frames: tuple[DrawnFrame, ...]
    slots: tuple[DrawnSlot, ...]
    waits: tuple[tuple[float, float | None, float, str], ...]
    """When soft events were published and delivered, their deadlines, and their channels."""


def bus_timeline(bus: BusPicture) -> BusTimeline:
    """A picture of a bus as the timeline draws it."""
    busy = sum(frame.end_us - frame.start_us for frame in bus.frames)
    return BusTimeline(
        start_us=0.0,
        end_us=bus.length_us,
        load=busy / bus.length_us if bus.length_us else 0.0,
        frames=tuple(map(_drawn_frame, bus.frames)),
        slots=tuple(DrawnSlot(slot.start_us, slot.deadline_us, slot.channel) for slot in bus.slots),
        waits=tuple((wait.published_us, wait.delivered_us, wait.deadline_us, wait.channel) for wait in bus.waits),
    )


def _drawn_frame(frame: FrameSpan) -> DrawnFrame:
    return DrawnFrame(
        start_us=frame.start_us,
        end_us=frame.end_us,
        node=frame.node,
        channel=frame.channel.removesuffix(CORRUPTED),
        kind=frame.qos,
        identifier=frame.identifier,
        ok=not is_corrupted(frame),
        priority=frame.identifier >> _PRIORITY_SHIFT & 0xFF,
    )


def is_late(wait: Wait) -> bool:
    """Whether an event was not delivered by its deadline."""
    return wait.delivered_us is None or wait.delivered_us > wait.deadline_us


def is_corrupted(frame: FrameSpan) -> bool:
    """Whether a frame was disturbed on the wire."""
    return frame.channel.endswith(CORRUPTED)


def sum_channels(rows: Iterable[ChannelRow]) -> list[ChannelRow]:
    """Channels of one name and class, summed over the sites; the longest delay is that of the slowest site."""
    grouped: dict[tuple[str, str], list[ChannelRow]] = {}
    for row in rows:
        grouped.setdefault((row.channel, row.qos), []).append(row)
    order = list(CLASSES)
    summed = (_sum(group) for group in grouped.values())
    return sorted(summed, key=lambda row: order.index(row.qos) if row.qos in order else len(order))


def _sum(group: Sequence[ChannelRow]) -> ChannelRow:
    slowest = max(group, key=lambda row: row.worst_us / row.bound_us if row.bound_us else row.worst_us / 1e12)
    sums = {name: sum(getattr(row, name) for row in group) for name in ("published", "delivered", "filtered", "missed")}
    return msgspec.structs.replace(slowest, site="all", **sums)
