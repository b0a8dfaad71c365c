"""A span of a world's bus: its frames with their deadlines and waiting times, who lost against them, and the slots."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

from genus.can import EventRecord, Passage, World
from genus.studio._source import FrameSpan, SlotSpan, Timeline

LONGEST_FRAME_NS = 50_000_000
"""A frame that ends later than this after a span has not begun in it."""


def draw_span(world: World, start_ns: int, end_ns: int) -> Timeline:
    """The frames that overlap a span of virtual time, and the slots; times are microseconds since 1970."""
    passages = _within(world.trace.passages, start_ns, end_ns)
    slots = _slots(world, start_ns, end_ns)
    since_1970 = world.start_ns
    return Timeline(
        start_us=(since_1970 + start_ns) / 1000,
        end_us=(since_1970 + end_ns) / 1000,
        frames=list(_frames(world, passages, slots, start_ns, end_ns)),
        slots=[
            SlotSpan((since_1970 + begin) / 1000, (since_1970 + end) / 1000, channel) for begin, end, channel in slots
        ],
        load=_load(passages, start_ns, end_ns),
    )


def _within(passages: Sequence[Passage], start_ns: int, end_ns: int) -> list[Passage]:
    """The frames that overlap a span; they are in the order in which they ended."""
    known = list(passages)
    first = bisect_right(known, start_ns, key=lambda passage: passage.end_ns)
    last = bisect_right(known, end_ns + LONGEST_FRAME_NS, key=lambda passage: passage.end_ns)
    return [passage for passage in known[first:last] if passage.start_ns < end_ns]


def _slots(world: World, start_ns: int, end_ns: int) -> list[tuple[int, int, str]]:
    """The slots that overlap a span, as the first node that is up knows them."""
    if world.plan is None or not world.stations:
        return []
    longest = max((slot.length_ns for slot in world.plan.calendar.slots), default=0)
    spans = world.slot_spans(max(0, start_ns - longest), end_ns)
    return sorted(span for span in spans if span[1] > start_ns)


def _load(passages: Iterable[Passage], start_ns: int, end_ns: int) -> float:
    """The share of a span in which the bus was busy; of a bus that is cut in two, its busier part."""
    busy = [0, 0]
    for passage in passages:
        busy[passage.segment] += min(passage.end_ns, end_ns) - max(passage.start_ns, start_ns)
    return max(busy) / (end_ns - start_ns) if end_ns > start_ns else 0.0


def _frames(
    world: World, passages: Sequence[Passage], slots: Sequence[tuple[int, int, str]], start_ns: int, end_ns: int
) -> Iterator[FrameSpan]:
    names = {station.number: name for name, station in list(world.stations.items())}
    contest = _Contest(world.events(start_ns, end_ns))
    ends = {channel: [each for each in slots if each[2] == channel] for _, _, channel in slots}
    since_1970 = world.start_ns
    for passage in passages:
        channel = world.channel_name(passage)
        own, beaten = contest.at(channel, passage)
        deadline = own.deadline_ns if own is not None else _slot_end(ends.get(channel, ()), passage)
        yield FrameSpan(
            start_us=(since_1970 + passage.start_ns) / 1000,
            end_us=(since_1970 + passage.end_ns) / 1000,
            node=names.get(passage.senders[0], "broker"),
            channel=channel,
            kind=passage.traffic_class.value,
            identifier=passage.id,
            ok=passage.outcome.is_good,
            priority=passage.frame.priority,
            deadline_us=None if deadline is None else (since_1970 + deadline) / 1000,
            waited_us=None if own is None else (passage.start_ns - own.published_ns) / 1000,
            beaten=beaten,
        )


def _slot_end(slots: Iterable[tuple[int, int, str]], passage: Passage) -> int | None:
    """The end of the slot that a hard frame is sent in."""
    return next((end for begin, end, _ in slots if passage.end_ns <= end and passage.end_ns > begin), None)


class _Contest:
    """State: the events that wait for the bus, as its frames are gone through in their order."""

    def __init__(self, records: Sequence[EventRecord]) -> None:
        self._coming = iter(records)
        """In the order of publishing."""
        self._next = next(self._coming, None)
        self._waiting: list[EventRecord] = []

    def at(self, channel: str, passage: Passage) -> tuple[EventRecord | None, list[str]]:
        """The event that a frame carries, if it is known, and the other channels with events that waited then."""
        start_ns = passage.start_ns
        while self._next is not None and self._next.published_ns <= start_ns:
            self._waiting.append(self._next)
            self._next = next(self._coming, None)
        self._waiting = [each for each in self._waiting if each.ended_ns is None or each.ended_ns > start_ns]
        own = [each for each in self._waiting if each.channel == channel]
        beaten = dict.fromkeys(each.channel for each in self._waiting if each.channel != channel)
        return min(own, key=_end, default=None), list(beaten)


def _end(record: EventRecord) -> int:
    """What is sent first was on the wire; what still waits comes last."""
    return record.ended_ns if record.ended_ns is not None else 1 << 62
