"""A simulated CAN bus as a source: a world that runs, or the trace of one, each with the timeline of its bus.

A world runs in another thread meanwhile. Everything is read and nothing is changed; what is being written at that
moment is read again. A trace has a time that is played, stopped and set.
"""

import os
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

from genus.can import World
from genus.can.types import ChannelResult, EventRecord, NodeState, Passage, ProtocolEtag, Trace
from genus.catalog import Catalog
from genus.errors import BusError
from genus.studio._figures import Rates, counted, three_digits
from genus.studio._source import FrameSpan, Receive, SlotSpan, Timeline
from genus.studio.types import ChannelRow, NodeRow, Row, SourceRow, State, SubscriptionRow, Tables

T = TypeVar("T")

TRIES = 50
"""How often something is read that changes at the same time."""
MAX_FRAME_NS = 50_000_000
"""A frame that ends later than this after a span has not begun in it."""
SECOND_NS, MINUTE = 1_000_000_000, 60
SILENT_NS = 3 * SECOND_NS
"""A node would claim its number once a second."""
SLOWEST, FASTEST = 1e-6, 1e3
"""Limits of the speed: a millisecond of a bus may be looked at for minutes."""
UNWELL = frozenset({"down", "bus off", "error passive", "not synchronised"})


class WorldSource:
    """State: a world, and what its counters were before.

    Args:
        world: The world; whoever made it runs it.
        name: Its name on the page.
        address: What it was opened by.
        types: Its event types; by default those of its catalog.
    """

    def __init__(self, world: World, *, name: str, address: str = "", types: Collection[type] = ()) -> None:
        self.name = name
        self.world = world
        self._address = address or f"sim:{world.name}"
        self._types, self._is_given = tuple(types), bool(types)
        self._rates = Rates()
        self._taps: dict[Receive, Callable[[], None]] = {}
        """Functions that get each event, with what ends that."""
        self._tapping = threading.Lock()
        self.leaps = 0

    # -- a source ----------------------------------------------------------------------------------------------------

    def rows(self, wanted: Collection[str]) -> Tables:
        now_ns = self.world.now_ns
        results = self._results()
        found: dict[str, dict[str, Row]] = {}
        if "channels" in wanted:
            keyed = {f"{self.name}|{result.channel}": result for result in results}
            found["channels"] = {key: self._channel(key, result, now_ns) for key, result in keyed.items()}
        if "nodes" in wanted or "subscriptions" in wanted:
            states = steady(self.world.nodes)
            if "nodes" in wanted:
                bus_ns = _offset_of_bus(states)
                found["nodes"] = {f"{self.name}|{state.name}": self._node(state, bus_ns) for state in states}
            if "subscriptions" in wanted:
                found["subscriptions"] = dict(self._subscriptions(states, now_ns))
        if "sources" in wanted:
            found["sources"] = {self.name: self._source(results, now_ns)}
        return found

    def types(self) -> Collection[type]:
        known = self.world.catalog.types
        if not self._is_given and len(self._types) < len(known):
            self._types = tuple(self.world.catalog.declare(name) for name in known)
        return self._types

    def counts(self) -> Mapping[str, int]:
        found: dict[str, int] = {}
        for result in self._results():
            found[result.event] = found.get(result.event, 0) + result.published
        return found

    def rates_of(self, counts: Mapping[str, int]) -> Mapping[str, float]:
        for name, count in counts.items():
            self._rates.note(f"type {name}", count, self.world.now_ns / 1e9)
        return {name: self._rate(f"type {name}") for name in counts}

    def tap(self, receive: Receive) -> Callable[[], None]:
        with self._tapping:
            self._taps[receive] = self._watch(receive)

        def end() -> None:
            with self._tapping:
                self._taps.pop(receive, bool)()

        return end

    def _watch(self, receive: Receive) -> Callable[[], None]:
        return self.world.watch(lambda node, event, time_ns: receive(time_ns, event, node))

    def follow(self, world: World) -> None:
        """Show another world from now on, to those who tap this one as well."""
        self.leaps += 1
        with self._tapping:
            for end in self._taps.values():
                end()
            self.world = world
            self._taps = {receive: self._watch(receive) for receive in self._taps}

    def timeline(self, start_us: float | None, span_us: float) -> Timeline:
        """Return the frames from a time on; of the last `span_us` without one."""
        begin_ns, now_ns = self.world.start_ns, self.world.now_ns
        span_ns = round(span_us * 1000)
        start_ns = now_ns - span_ns if start_us is None else round(start_us * 1000) - begin_ns
        start_ns = max(-span_ns, min(start_ns, now_ns))  # nothing is known of before, and of later
        return steady(lambda: draw_span(self.world, start_ns, start_ns + span_ns))

    def close(self) -> None:
        """Nothing to release: whoever made the world closes it."""

    # -- rows --------------------------------------------------------------------------------------------------------

    def _results(self) -> tuple[ChannelResult, ...]:
        """Return the channels now: those of the plan, whether or not something was published, and others."""
        found = steady(self.world.channels)
        return (*found, *self._unused({each.channel for each in found}))

    def _unused(self, used: Collection[str]) -> Iterator[ChannelResult]:
        plan = self.world.plan
        for channel in plan.system.channels if plan is not None else ():
            if plan is not None and channel.name not in used:
                yield ChannelResult.without_events(channel, plan.verdict(channel.name))

    @property
    def is_running(self) -> bool:
        """Whether time goes on; rates are 0 while it does not."""
        return not self.world.is_closed

    def _rate(self, key: str) -> float:
        """Counts in a second of virtual time; 0 while that stands still."""
        return three_digits(self._rates.rate(key)) if self.is_running else 0.0

    def _channel(self, key: str, result: ChannelResult, now_ns: int) -> ChannelRow:
        self._rates.note(key, result.published, now_ns / 1e9)
        is_sent, station = result.sent > 0, self.world.stations.get(result.node)
        is_there = bool(result.published) if station is None else not station.is_closed or self._rates.rate(key) > 0
        return ChannelRow(
            source=self.name,
            type=result.event,
            publisher=result.node,
            qos=result.qos,
            health="unknown" if is_there else "nobody",
            events=result.published,
            rate=self._rate(key),
            jitter_ms=_milliseconds(result.jitter_ns),
            latency_ms=_milliseconds(result.mean_ns) if is_sent else None,
            worst_latency_ms=_milliseconds(result.worst_ns) if is_sent else None,
            bound_ms=_milliseconds(result.bound_ns),
            missed=missed_deadlines(result),
            expired=result.expired,
            lost=result.lost,
            rates=tuple(map(three_digits, self._rates.history(key))),
        )

    def _subscriptions(self, states: Sequence[NodeState], now_ns: int) -> Iterator[tuple[str, Row]]:
        for state in states:
            alike: dict[str, int] = {}
            for each in state.subscriptions:
                alike[each.text] = number = alike.get(each.text, 0) + 1
                key = f"{self.name}|{state.name}|{each.text}" + (f"|{number}" if number > 1 else "")
                self._rates.note(key, each.delivered, now_ns / 1e9)
                rate = self._rate(key)
                yield (
                    key,
                    SubscriptionRow(
                        source=self.name, owner=state.name, text=each.text, delivered=each.delivered, rate=rate
                    ),
                )

    def _node(self, state: NodeState, bus_ns: int) -> NodeRow:
        heard = state.heard_ns
        return NodeRow(
            source=self.name,
            name=state.name,
            number=state.number,
            uid=f"{state.uid:016x}" if state.uid else "",
            state=state.condition,
            is_well=state.condition not in UNWELL,
            role=", ".join(state.roles),
            offset_us=None if state.offset_ns is None else three_digits((state.offset_ns - bus_ns) / 1e3),
            precision_us=None if state.precision_ns is None else three_digits(state.precision_ns / 1e3),
            heard_ms=None if heard is None else (self.world.start_ns + heard) // 1_000_000,
            interests=tuple(each.text for each in state.subscriptions),
            filters=state.filters,
        )

    def _source(self, results: Sequence[ChannelResult], now_ns: int) -> SourceRow:
        events = sum(result.published for result in results)
        self._rates.note("", events, now_ns / 1e9)
        self._rates.note(" busy", self.world.busy_ns, now_ns / 1e9)
        is_closed = self.world.is_closed
        return SourceRow(
            kind="world",
            address=self._address,
            state="ended" if is_closed else "live",
            note="the world is closed" if is_closed else "",
            time_ms=(self.world.start_ns + now_ns) // 1_000_000,
            events=events,
            rate=self._rate(""),
            lost=sum(result.lost + result.refused for result in results),
            late=sum(missed_deadlines(result) + result.expired for result in results),
            corrupted=sum(band.errors for band in self.world.bus_load().values()),
            nodes=len(self.world.stations),
            load=three_digits(min(1.0, self._rates.rate(" busy") / 1e9)),
            has_timeline=True,
        )


def missed_deadlines(result: ChannelResult) -> int:
    """Deadlines that a channel missed: at its publisher, or as the subscriber knows that was told most often."""
    return result.missed + max([result.not_sent, *result.alarms.values()])


def steady(read: Callable[[], T]) -> T:
    """Return what a function reads of a world that runs in another thread, read again if it changed meanwhile."""
    for _ in range(TRIES):
        try:
            return read()
        except (RuntimeError, LookupError, AttributeError):  # a dictionary grew, or a node is being made
            time.sleep(0)
    return read()


def _offset_of_bus(states: Iterable[NodeState]) -> int:
    """Return how far the time of the bus is off the true time: that of the time master; 0 if there is none."""
    return next((state.offset_ns or 0 for state in states if "time master" in state.roles), 0)


def _milliseconds(span_ns: int | None) -> float | None:
    return None if span_ns is None else three_digits(span_ns / 1e6)


# -- the timeline of a world -------------------------------------------------------------------------------------------


def draw_span(world: World, start_ns: int, end_ns: int) -> Timeline:
    """Return the frames that overlap a span of virtual time, and the slots; times are microseconds since 1970."""
    passages = _within(list(world.trace.passages), start_ns, end_ns)
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
    """Return the frames that overlap a span; they are in the order in which they ended."""
    first = bisect_right(passages, start_ns, key=_end_of)
    last = bisect_right(passages, end_ns + MAX_FRAME_NS, key=_end_of)
    return [passage for passage in passages[first:last] if passage.start_ns < end_ns]


def _end_of(passage: Passage) -> int:
    return passage.end_ns


def _slots(world: World, start_ns: int, end_ns: int) -> list[tuple[int, int, str]]:
    """Return the slots that overlap a span, as the first node that is up knows them."""
    if world.plan is None or not world.stations:
        return []
    longest = max((slot.length_ns for slot in world.plan.calendar.slots), default=0)
    spans = world.slot_spans(max(0, start_ns - longest), end_ns)
    return sorted(span for span in spans if span[1] > start_ns)


def _load(passages: Iterable[Passage], start_ns: int, end_ns: int) -> float:
    """Return the share of a span in which the bus was busy; of a bus that is cut in two, its busier part."""
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
        span = _frame_span(passage, names.get(passage.senders[0], "broker"), channel, since_1970)
        yield span._replace(
            deadline_us=None if deadline is None else (since_1970 + deadline) / 1000,
            waited_us=None if own is None else (passage.start_ns - own.published_ns) / 1000,
            beaten=beaten,
        )


def _frame_span(passage: Passage, node: str, channel: str, since_1970: int = 0) -> FrameSpan:
    return FrameSpan(
        start_us=(since_1970 + passage.start_ns) / 1000,
        end_us=(since_1970 + passage.end_ns) / 1000,
        node=node,
        channel=channel,
        kind=passage.traffic_class.value,
        identifier=passage.id,
        ok=passage.outcome.is_good,
        priority=passage.frame.priority,
    )


def _slot_end(slots: Iterable[tuple[int, int, str]], passage: Passage) -> int | None:
    """Return the end of the slot that a hard frame is sent in."""
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
    """Return what is sent first was on the wire; what still waits comes last."""
    return record.ended_ns if record.ended_ns is not None else 1 << 62


# -- traces ------------------------------------------------------------------------------------------------------------


class TraceSource:
    """State: a trace, and the time that is shown of it.

    Args:
        path: A file that `genus can sim --trace` wrote.
        catalog: A catalog file that names the channels; without it they have their event tags.
        name: The name of the source.
        clock: Seconds of a clock that only goes on.

    Raises:
        RecordingError: The file cannot be read, or is no trace.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        catalog: Path | None = None,
        *,
        name: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self._path, self._clock = Path(path), clock
        self._trace = Trace.load_file(path)
        self._passages = sorted(self._trace.passages, key=_end_of)
        self._ends = [passage.end_ns for passage in self._passages]
        self._corrupted = [passage.end_ns for passage in self._passages if not passage.outcome.is_good]
        self._first_ns, self._last_ns = self._trace.first_ns, self._trace.span_ns
        self._catalog = None if catalog is None else Catalog.load(catalog)
        self._names = {etag.value: etag.name.replace("_", " ").lower() for etag in ProtocolEtag}
        """What the frames of each event tag are."""
        self._by_channel: dict[tuple[str, str], list[int]] = {}
        """When the frames of each channel and node ended."""
        for passage in self._passages:
            if passage.outcome.is_good:
                key = self._channel(passage), _node(passage)
                self._by_channel.setdefault(key, []).append(passage.end_ns)
        self._speed, self._is_playing, self._waits = 1.0, False, True
        self._position_ns, self._since = float(self._first_ns), clock()

    # -- time --------------------------------------------------------------------------------------------------------

    def looked_at(self) -> None:
        if self._waits:
            self.play()

    def play(self) -> None:
        """Go on; from the beginning if it has ended."""
        at_ns = self._now_ns()
        self._set(float(self._first_ns) if at_ns >= self._last_ns else at_ns)
        self._is_playing, self._waits = True, False

    def pause(self) -> None:
        self._set(self._now_ns())
        self._is_playing = self._waits = False

    def set_speed(self, speed: float) -> None:
        """Let time pass so many times as fast as in reality; BusError if that is none, or beyond the limits."""
        if not SLOWEST <= speed <= FASTEST:
            raise BusError(f"a trace is played at {SLOWEST:g} to {FASTEST:g} times its speed, not {speed:g}")
        self._set(self._now_ns())
        self._speed = speed

    def seek(self, time_ms: float) -> None:
        """Go on from a time; one outside of the trace means the nearer end."""
        self._set(min(max(time_ms * 1e6, float(self._first_ns)), float(self._last_ns)))
        self._waits = False

    def _set(self, position_ns: float) -> None:
        self._position_ns, self._since = position_ns, self._clock()

    def _now_ns(self) -> float:
        passed = (self._clock() - self._since) * self._speed * 1e9 if self._is_playing else 0.0
        return min(self._position_ns + passed, float(self._last_ns))

    def _state(self, at_ns: float) -> State:
        if at_ns >= self._last_ns:
            return "ended"
        return "playing" if self._is_playing else "paused"

    # -- a source ----------------------------------------------------------------------------------------------------

    def rows(self, wanted: Collection[str]) -> Tables:
        """Return the present rows: what was on the bus until the time that is shown."""
        at_ns = round(self._now_ns())
        found: dict[str, dict[str, Row]] = {"sources": {self.name: self._row(at_ns)}}
        if "channels" in wanted:
            rows = (self._channel_row(channel, node, ends, at_ns) for (channel, node), ends in self._by_channel.items())
            found["channels"] = {f"{self.name}|{row.type}|{row.publisher}": row for row in rows if row.events}
        if "nodes" in wanted:
            found["nodes"] = {f"{self.name}|{name}": row for name, row in self._nodes(at_ns).items()}
        return found

    def _row(self, at_ns: int) -> SourceRow:
        seen = bisect_right(self._ends, at_ns)
        recent = seen - bisect_right(self._ends, at_ns - SECOND_NS)
        second = self._passages[seen - recent : seen]
        state = self._state(at_ns)
        corrupted = bisect_right(self._corrupted, at_ns)
        broken, unreadable = corrupted - bisect_right(self._corrupted, at_ns - SECOND_NS), self._trace.unreadable
        texts = [self._trace.header.title, f"{broken:,} corrupted in the last second" if broken else ""]
        texts.append(f"{counted(unreadable, 'line')} skipped" if unreadable else "")
        return SourceRow(
            kind="can",
            address=str(self._path),
            state=state,
            note="; ".join(text for text in texts if text),
            time_ms=at_ns / 1e6,
            events=seen,
            rate=float(recent) if state == "playing" else 0.0,
            corrupted=corrupted,
            nodes=len({_node(passage) for passage in second}) or None,
            load=three_digits(sum(passage.end_ns - passage.start_ns for passage in second) / SECOND_NS),
            begin_ms=self._first_ns / 1e6,
            end_ms=self._last_ns / 1e6,
            speed=self._speed,
            can_seek=True,
            has_events=False,
            has_timeline=True,
        )

    def _channel_row(self, channel: str, node: str, ends: Sequence[int], at_ns: int) -> ChannelRow:
        marks = [bisect_right(ends, at_ns - second * SECOND_NS) for second in range(MINUTE, -1, -1)]
        rates = tuple(float(after - before) for before, after in pairwise(marks))
        rate = rates[-1] if self._is_playing else 0.0
        return ChannelRow(source=self.name, type=channel, publisher=node, events=marks[-1], rate=rate, rates=rates)

    def _nodes(self, at_ns: int) -> dict[str, NodeRow]:
        heard: dict[str, int] = {}
        for (_, node), ends in self._by_channel.items():
            if place := bisect_right(ends, at_ns):
                heard[node] = max(heard.get(node, 0), ends[place - 1])
        return {
            node: NodeRow(
                source=self.name,
                name=node,
                number=int(node.split()[-1]),
                heard_ms=last / 1e6,
                health="fine" if at_ns - last < SILENT_NS else "silent",
            )
            for node, last in heard.items()
        }

    def types(self) -> Collection[type]:
        """None: a trace has frames."""
        return ()

    def counts(self) -> Mapping[str, int]:
        return {}

    def close(self) -> None:
        """Nothing to release."""

    # -- the timeline ------------------------------------------------------------------------------------------------

    def timeline(self, start_us: float | None, span_us: float) -> Timeline:
        """Return the frames from a time on; of the last `span_us` before the time that is shown without one."""
        now_us = self._now_ns() / 1000
        first_us = max(now_us - span_us, 0.0) if start_us is None else start_us
        start_ns, end_ns = round(first_us * 1000), round((first_us + span_us) * 1000)
        inside = _within(self._passages, start_ns, end_ns)
        frames = [_frame_span(each, _node(each), self._channel(each)) for each in inside]
        return Timeline(first_us, first_us + span_us, frames, (), _load(inside, start_ns, end_ns))

    def _channel(self, passage: Passage) -> str:
        etag = passage.frame.etag
        if etag not in self._names:
            name = None if self._catalog is None else self._catalog.type_of(etag)
            self._names[etag] = name or f"event tag {etag:#06x}"
        return self._names[etag]


def _node(passage: Passage) -> str:
    return f"node {passage.senders[0]}"
