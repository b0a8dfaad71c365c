"""A short span of a segment's bus that is worth to be looked at: vehicles, heartbeats, and a sensor that is set up."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from genus.can._plan import Calendar
from genus.can._sim.trace import Band
from genus.can._wire.frame import ETAG_MASK, NODE_MASK, NODE_SHIFT, ProtocolEtag
from genus.model import name_of
from genus_traffic.results import BusPicture, FrameSpan, SlotSpan, Wait
from genus_traffic.segment.channel_book import ChannelBook, Sending
from genus_traffic.segment.plan import NEW_UPPER
from genus_traffic.segment.stations import Station, Timeline
from genus_traffic.segment.wire_watch import NODES, Span, WireWatch
from genus_traffic.types import Setting

LENGTH_NS = 80_000_000
STEP_NS = 5_000_000
"""Spans that begin so much earlier than another are tried too."""
MARGIN_NS = 2_000_000
"""What is to be seen begins so long after the picture does."""


class BusScene(NamedTuple):
    """What a picture is drawn from."""

    site: str
    wire: WireWatch
    book: ChannelBook
    calendar: Calendar
    timeline: Timeline
    lead: Station
    """The node that leads the clocks: by its time the slots are drawn."""


def picture_of(scene: BusScene) -> BusPicture:
    """The best span that there is."""
    start_ns = _best_start(scene)
    end_ns = start_ns + LENGTH_NS
    return BusPicture(
        site=scene.site,
        from_us=scene.timeline.true_us(start_ns),
        length_us=LENGTH_NS / 1000,
        frames=tuple(_frame(scene.wire, span, start_ns) for span in _within(scene.wire.spans, start_ns, end_ns)),
        slots=tuple(sorted(_slots(scene, start_ns, end_ns), key=lambda slot: slot.start_us)),
        waits=tuple(sorted(_waits(scene.book, start_ns, end_ns), key=lambda wait: wait.published_us)),
    )


# Choosing


def _best_start(scene: BusScene) -> int:
    """Where something is set up, if possible by the new sensor; of those, where most happens."""
    spans = scene.wire.spans
    interesting = [span for span in spans if _channel(scene.wire, span.id).startswith(name_of(Setting))]
    interesting = interesting or [span for span in spans if Band.of(span.id) is Band.SOFT] or spans[-1:]
    candidates = {
        max(0, span.start_ns - MARGIN_NS - back)
        for span in interesting
        for back in range(0, LENGTH_NS - 3 * MARGIN_NS, STEP_NS)
    }
    return max(sorted(candidates), key=lambda start: _worth(scene.wire, _within(spans, start, start + LENGTH_NS)))


def _worth(wire: WireWatch, spans: Sequence[Span]) -> tuple[int, int, int]:
    """How much there is to be seen: all classes of traffic, the new sensor, and then different channels and frames."""
    bands = {Band.of(span.id) for span in spans}
    nodes = {span.id & NODE_MASK for span in spans}
    soft = [span for span in spans if Band.of(span.id) is Band.SOFT]
    channels = {_channel(wire, span.id) for span in soft}
    return len(bands) + (_NEW in nodes), len(channels), len(soft)


_NEW = next(number for number, name in NODES.items() if name == NEW_UPPER) << NODE_SHIFT


def _within(spans: Sequence[Span], start_ns: int, end_ns: int) -> Sequence[Span]:
    """The frames that lie within; the bus carries one at a time, so they are in order."""
    first = bisect_left(spans, start_ns, key=lambda span: span.start_ns)
    last = bisect_left(spans, end_ns, key=lambda span: span.end_ns)
    return spans[first:last]


# Drawing


def _channel(wire: WireWatch, identifier: int) -> str:
    entry = wire.entry_of(identifier)
    return entry.channel.name if entry is not None else ProtocolEtag(identifier & ETAG_MASK).name.replace("_", " ")


def _frame(wire: WireWatch, span: Span, start_ns: int) -> FrameSpan:
    channel = _channel(wire, span.id)
    return FrameSpan(
        start_us=(span.start_ns - start_ns) / 1000,
        end_us=(span.end_ns - start_ns) / 1000,
        channel=channel if span.is_good else f"{channel} (corrupted)",
        node=NODES[(span.id & NODE_MASK) >> NODE_SHIFT],
        qos=Band.of(span.id).value,
    )


def _slots(scene: BusScene, start_ns: int, end_ns: int) -> Iterator[SlotSpan]:
    """The slots that begin within, as the node that leads the clocks has them."""
    for slot in scene.calendar.slots:
        begins_ns = slot.next_start(scene.lead.bus_time(start_ns)).start_ns
        while (begins := scene.lead.instant_of(begins_ns)) < end_ns:
            deadline = begins + slot.length_ns
            yield SlotSpan(
                start_us=(begins - start_ns) / 1000, deadline_us=(deadline - start_ns) / 1000, channel=slot.channel
            )
            begins_ns += slot.period_ns


def _waits(book: ChannelBook, start_ns: int, end_ns: int) -> Iterator[Wait]:
    """Soft events that were published within."""
    for sending in book.sendings():
        if start_ns <= sending.published_ns < end_ns:
            yield _wait(sending, start_ns)


def _wait(sending: Sending, start_ns: int) -> Wait:
    return Wait(
        published_us=(sending.published_ns - start_ns) / 1000,
        delivered_us=None if sending.delivered_ns is None else (sending.delivered_ns - start_ns) / 1000,
        deadline_us=(sending.deadline_ns - start_ns) / 1000,
        channel=sending.channel,
    )
