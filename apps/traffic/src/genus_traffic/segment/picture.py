"""A short span of a segment's bus for the report: with edges, heartbeats and settings, if there is such a span."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from genus.can import World
from genus.can.types import EventRecord, Passage, TrafficClass
from genus.model import name_of
from genus_traffic.results import BusPicture, FrameSpan, SlotSpan, Wait
from genus_traffic.segment.plan import GATEWAY, NEW_UPPER
from genus_traffic.types import Setting

LENGTH_NS = 80_000_000
STEP_NS = 5_000_000
"""The distance between the starts of spans that are tried."""
MARGIN_NS = 2_000_000
"""How long before its subject a picture begins."""


def picture_of(world: World, site: str, origin_us: int) -> BusPicture:
    """The span of the bus with the most different traffic."""
    start_ns = _best_start(world)
    end_ns = start_ns + LENGTH_NS
    names = {station.number: name for name, station in world.stations.items()}
    frames = _within(world.trace.passages, start_ns, end_ns)
    return BusPicture(
        site=site,
        from_us=origin_us + (start_ns + 500) // 1000,
        length_us=LENGTH_NS / 1000,
        frames=tuple(_frame(world, passage, start_ns, names) for passage in frames),
        slots=tuple(sorted(_slots(world, start_ns, end_ns), key=lambda slot: slot.start_us)),
        waits=tuple(_wait(record, start_ns) for record in world.events() if _is_shown(record, start_ns, end_ns)),
    )


# -- choosing ----------------------------------------------------------------------------------------------------------


def _best_start(world: World) -> int:
    """Start of the best span: with settings, if possible of the new sensor, and with the most channels and frames."""
    passages = world.trace.passages
    settings = [each for each in passages if world.channel_name(each).startswith(name_of(Setting))]
    interesting = settings or [each for each in passages if each.traffic_class is TrafficClass.SOFT] or passages[-1:]
    candidates = {
        max(0, passage.start_ns - MARGIN_NS - back)
        for passage in interesting
        for back in range(0, LENGTH_NS - 3 * MARGIN_NS, STEP_NS)
    }
    return max(sorted(candidates), key=lambda start: _rank(world, _within(passages, start, start + LENGTH_NS)))


def _rank(world: World, passages: Sequence[Passage]) -> tuple[int, int, int]:
    """Rank of a span: by traffic classes and the new sensor, then by channels, then by frames."""
    new = world.stations.get(NEW_UPPER)
    classes = {passage.traffic_class for passage in passages}
    senders = {passage.senders[0] for passage in passages}
    soft = [passage for passage in passages if passage.traffic_class is TrafficClass.SOFT]
    channels = {world.channel_name(passage) for passage in soft}
    return len(classes) + (new is not None and new.number in senders), len(channels), len(soft)


def _within(passages: Sequence[Passage], start_ns: int, end_ns: int) -> Sequence[Passage]:
    """The frames within a span; a bus carries one at a time, so they are in order."""
    first = bisect_left(passages, start_ns, key=lambda passage: passage.start_ns)
    last = bisect_left(passages, end_ns, key=lambda passage: passage.end_ns)
    return passages[first:last]


# -- drawing -----------------------------------------------------------------------------------------------------------


def _frame(world: World, passage: Passage, start_ns: int, names: dict[int, str]) -> FrameSpan:
    channel = world.channel_name(passage)
    return FrameSpan(
        start_us=(passage.start_ns - start_ns) / 1000,
        end_us=(passage.end_ns - start_ns) / 1000,
        channel=channel if passage.outcome.is_good else f"{channel} (corrupted)",
        node=names[passage.senders[0]],
        qos=passage.traffic_class.value,
        identifier=passage.id,
    )


def _slots(world: World, start_ns: int, end_ns: int) -> Iterator[SlotSpan]:
    """The slots that begin within a span, by the clock of the time master."""
    for begin_ns, deadline_ns, channel in world.slot_spans(start_ns, end_ns, GATEWAY):
        yield SlotSpan(
            start_us=(begin_ns - start_ns) / 1000, deadline_us=(deadline_ns - start_ns) / 1000, channel=channel
        )


def _is_shown(record: EventRecord, start_ns: int, end_ns: int) -> bool:
    """Whether a record is of a soft event that was published within a span."""
    return record.deadline_ns is not None and start_ns <= record.published_ns < end_ns


def _wait(record: EventRecord, start_ns: int) -> Wait:
    assert record.deadline_ns is not None
    return Wait(
        published_us=(record.published_ns - start_ns) / 1000,
        delivered_us=None if record.sent_ns is None else (record.sent_ns - start_ns) / 1000,
        deadline_us=(record.deadline_ns - start_ns) / 1000,
        channel=record.channel,
    )
