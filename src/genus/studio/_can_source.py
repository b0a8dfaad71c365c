"""A live CAN bus as a source: a monitor receives all frames, decodes the events, and sends nothing.

Channels are known by their publishers, nodes by what they send, and the timeline by the last frames. Times are those of
the bus, if a node gives it a time, and else of this computer's clock.
"""

import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from genus.bus import Hard, format_qos
from genus.errors import BusError, GenusError
from genus.model import Event
from genus.studio._figures import OTHER_CLOCK_US, Rates, three_digits
from genus.studio._source import FrameSpan, Receive, SlotSpan, Timeline
from genus.studio.types import ChannelRow, NodeRow, Row, SourceRow, Tables

if TYPE_CHECKING:
    from genus.can.types import Calendar, ChannelStatistics, LiveMonitor, MonitoredFrame, MonitorSnapshot, Slot

SNAPSHOT_NS = 80_000_000
"""What the monitor knows is asked for at most so often."""
LOOK_NS = 2_000_000_000
"""How often to look whether the catalog file has changed."""
SILENT_NS = 3_000_000_000
"""A node that nothing was heard of for so long is down: it would claim its number once a second."""
MAX_SPAN_US = 10_000_000.0
BROKER_NODE = 127
FOREIGN_NODE = 0
NOT_LOST = ("repeated",)
"""Frames that were dropped and are not missing."""
HOST_LOSSES = ("lost", "receive failed", "failed")
_ALL, _BUSY = "", "busy"


class CanSource:
    """State: a monitor on a CAN bus, and what its counters were before.

    Args:
        address: The address of the bus (`can:...`). Its `plan=` has the slots, its `database=` the frames of others.
        catalog: A catalog file, by default that of the address; without any, channels are named by their event tags.
            The file is read again when it changes.
        types: Event types that texts of subscriptions may name, besides those of catalog and databases.
        name: Its name on the page.

    Raises:
        BusError: The bus cannot be opened, or the address is wrong.
        GenusError: The catalog, the plan or a database cannot be read.
    """

    def __init__(
        self,
        address: str,
        catalog: str | os.PathLike[str] | None = None,
        types: Collection[type] = (),
        *,
        name: str,
    ) -> None:
        from genus.can import open_monitor

        self.name = name
        self._address = address
        self._given = tuple(types)
        self._live: LiveMonitor = open_monitor(address, catalog)
        self._rates = Rates()
        self._names = _node_names(self._live.calendar)
        self._bounds = _bounds(self._live.calendar)
        self._qualities = {(slot.event, slot.number): _quality(slot) for slot in self._planned()}
        self._shot = self._live.snapshot()
        self._types: tuple[type, ...] | None = None
        self._problem = ""
        self._is_closed = False
        self._looked_ns = self._shot.time_ns
        self._catalog_stamp = _stamp(self._live.catalog_path)

    # -- a source ----------------------------------------------------------------------------------------------------

    def rows(self, wanted: Collection[str]) -> Tables:
        shot = self._snapshot()
        found: dict[str, Mapping[str, Row]] = {}
        if "channels" in wanted:
            found["channels"] = {
                **self._planned_rows(),
                **{self._key(each): self._channel_row(each) for each in shot.channels},
            }
        if "nodes" in wanted:
            found["nodes"] = {f"{self.name}|{number}": self._node_row(number, shot) for number in _numbers(shot)}
        found["sources"] = {self.name: self._source_row(shot)}
        return found

    def types(self) -> Collection[type]:
        if self._types is None:
            found = dict.fromkeys((*self._given, *self._live.types.values(), *self._catalog_types()))
            self._types = tuple(found)
        return self._types

    def counts(self) -> Mapping[str, int]:
        found: dict[str, int] = {}
        for each in self._shot.channels:
            found[each.channel] = found.get(each.channel, 0) + each.events
        return found

    def tap(self, receive: Receive) -> Callable[[], None]:
        """Call a function with each event from now on; returns a function that ends it."""

        def take(event: Event, node: int, now: int) -> None:
            receive(now + self._offset_ns, event, self._node_name(node) or None)

        return self._live.on_event(take)

    def timeline(self, start_us: float | None, span_us: float) -> Timeline:
        """Return the frames from a time on, of the last that are kept; of the last `span_us` without one."""
        span = min(max(span_us, 1.0), MAX_SPAN_US)
        offset = self._offset_ns
        begin = (self._live.time_ns() + offset) / 1000 - span if start_us is None else start_us
        start_ns, end_ns = int(begin * 1000), int((begin + span) * 1000)
        try:
            seen = self._live.frames(start_ns - offset, end_ns - offset)
        except BusError:  # it was closed
            seen = ()
        frames = [self._frame_span(each, offset) for each in seen]
        busy = sum(min(each.end_us, begin + span) - max(each.start_us, begin) for each in frames)
        return Timeline(begin, begin + span, frames, list(self._slots(start_ns, end_ns)), busy / span)

    def close(self) -> None:
        self._is_closed = True
        self._live.close()

    # -- what is known -----------------------------------------------------------------------------------------------

    def _snapshot(self) -> "MonitorSnapshot":
        """Return what the monitor knows, at most a little ago."""
        if self._is_closed or self._live.time_ns() - self._shot.time_ns < SNAPSHOT_NS:
            return self._shot
        try:
            self._shot = shot = self._live.snapshot()
        except BusError:  # it was closed meanwhile
            return self._shot
        now_s = shot.time_ns / 1e9
        self._rates.note(_ALL, sum(each.events for each in shot.channels), now_s)
        self._rates.note(_BUSY, shot.busy_ns, now_s)
        for each in shot.channels:
            self._rates.note(self._key(each), each.events, now_s)
        if shot.time_ns - self._looked_ns >= LOOK_NS:
            self._looked_ns = shot.time_ns
            self._look_at_catalog()
        return shot

    def _look_at_catalog(self) -> None:
        """Read the catalog again, in a thread, if its file has changed."""
        stamp = _stamp(self._live.catalog_path)
        if stamp is not None and stamp != self._catalog_stamp:
            self._catalog_stamp = stamp
            threading.Thread(target=self._reload, name="genus-studio catalog", daemon=True).start()

    def _reload(self) -> None:
        try:
            self._live.reload()
            self._problem = ""
        except GenusError as problem:
            self._problem = f"the catalog cannot be read again: {problem}"
        self._types = None

    def _catalog_types(self) -> Iterator[type]:
        catalog = self._live.catalog
        for name in () if catalog is None else catalog.types:
            try:
                assert catalog is not None
                yield catalog.declare(name)
            except GenusError:  # classes of this program contradict it; the monitor counts such events
                continue

    # -- rows --------------------------------------------------------------------------------------------------------

    def _key(self, channel: "ChannelStatistics") -> str:
        return f"{self.name}|{channel.channel}|{channel.node}"

    def _node_name(self, number: int) -> str:
        if number == FOREIGN_NODE:
            return ""
        return self._names.get(number) or ("broker" if number == BROKER_NODE else f"node {number}")

    def _source_row(self, shot: "MonitorSnapshot") -> SourceRow:
        nodes = _numbers(shot)
        is_off = shot.is_off and not self._is_closed
        return SourceRow(
            kind="can",
            address=self._address,
            state="ended" if self._is_closed else "failed" if is_off else "live",
            note="; ".join(self._notes(shot)),
            time_ms=(shot.time_ns + self._offset_ns) // 1_000_000,
            events=sum(each.events for each in shot.channels),
            rate=three_digits(self._rates.rate(_ALL)),
            lost=sum(each.lost for each in shot.channels) + sum(count for _, count in _losses(shot)),
            late=sum(each.missed + each.expired for each in shot.channels),
            corrupted=shot.host.get("error frames", 0),
            nodes=sum(not _is_silent(number, shot) for number in nodes),
            load=three_digits(self._rates.rate(_BUSY) / 1e9),
            has_timeline=True,
        )

    def _notes(self, shot: "MonitorSnapshot") -> Iterator[str]:
        if shot.is_off:
            yield "off the bus: nothing is received"
        if self._problem:
            yield self._problem
        if self._live.catalog is None and any(each.channel.startswith("#") for each in shot.channels):
            yield "events are not decoded without a catalog"
        largest = sorted(_losses(shot), key=lambda loss: -loss[1])[:3]
        yield from (f"{reason}: {count:,}" for reason, count in largest)

    def _channel_row(self, channel: "ChannelStatistics") -> ChannelRow:
        key, is_foreign = self._key(channel), channel.qos == "FOREIGN"
        return ChannelRow(
            source=self.name,
            type=channel.channel,
            publisher=self._node_name(channel.node),
            qos=self._qualities.get((channel.channel, channel.node))
            or ("" if channel.qos == "UNANNOUNCED" else channel.qos.lower()),
            events=channel.events,
            rate=three_digits(self._rates.rate(key)),
            jitter_ms=three_digits(channel.jitter_ms) if channel.events > 1 else None,
            latency_ms=_latency(channel.latency_ms),
            worst_latency_ms=_latency(channel.worst_latency_ms),
            bound_ms=self._bounds.get((channel.channel, channel.node)),
            missed=None if is_foreign else channel.missed,
            expired=None if is_foreign else channel.expired,
            lost=None if is_foreign else channel.lost,
            rates=self._rates.history(key),
        )

    def _planned_rows(self) -> dict[str, Row]:
        """Return the channels of the plan, for those that nothing was heard of."""
        return {
            f"{self.name}|{slot.event}|{slot.number}": ChannelRow(
                source=self.name, type=slot.event, publisher=slot.node, qos=_quality(slot)
            )
            for slot in self._planned()
        }

    def _node_row(self, number: int, shot: "MonitorSnapshot") -> NodeRow:
        is_silent, uid, heard = _is_silent(number, shot), shot.nodes.get(number), shot.heard_ns.get(number)
        roles = ["broker"] * (number == BROKER_NODE) + ["time master"] * (number == shot.master)
        return NodeRow(
            source=self.name,
            name=self._node_name(number),
            number=number,
            uid="" if uid is None else f"{uid:016x}",
            state="down" if is_silent else "up",
            is_well=not is_silent,
            role=", ".join(roles),
            heard_ms=None if heard is None else (heard + self._offset_ns) // 100_000_000 * 100.0,
        )

    # -- the timeline ------------------------------------------------------------------------------------------------

    @property
    def _offset_ns(self) -> int:
        """The time of the bus, less that of this clock."""
        return self._shot.offset_ns or 0

    def _frame_span(self, seen: "MonitoredFrame", offset: int) -> FrameSpan:
        frame = seen.frame
        is_own = seen.kind != "foreign"
        return FrameSpan(
            start_us=(seen.end_ns - seen.length_ns + offset) / 1000,
            end_us=(seen.end_ns + offset) / 1000,
            node=self._node_name(frame.node) if is_own else "others",
            channel=seen.channel,
            kind=seen.kind,
            identifier=frame.id,
            ok=True,
            priority=frame.priority if is_own else 0,
            deadline_us=self._deadline_us(seen, offset) if seen.kind == "hard" else None,
        )

    def _deadline_us(self, seen: "MonitoredFrame", offset: int) -> float | None:
        """Return the end of the slot that a hard frame was sent in."""
        for slot in self._planned():
            if slot.number == seen.frame.node and slot.event == seen.channel:
                return slot.next_deadline(seen.end_ns + offset - slot.gap_ns // 2).deadline_ns / 1000
        return None

    def _slots(self, start_ns: int, end_ns: int) -> Iterator[SlotSpan]:
        """Yield the slots of the plan in a span of time."""
        for slot in self._planned():
            begin_ns = slot.next_deadline(start_ns).start_ns
            while begin_ns < end_ns:
                yield SlotSpan(begin_ns / 1000, (begin_ns + slot.length_ns) / 1000, slot.channel)
                begin_ns += slot.period_ns

    def _planned(self) -> "tuple[Slot, ...]":
        calendar = self._live.calendar
        return () if calendar is None else calendar.slots


def _numbers(shot: "MonitorSnapshot") -> list[int]:
    """Return the numbers of the nodes that are known."""
    return sorted({*shot.nodes, *shot.heard_ns} - {FOREIGN_NODE})


def _is_silent(number: int, shot: "MonitorSnapshot") -> bool:
    return shot.time_ns - shot.heard_ns.get(number, 0) > SILENT_NS


def _losses(shot: "MonitorSnapshot") -> Iterator[tuple[str, int]]:
    """Frames that could not be read, and those that the interface lost, by reason."""
    yield from ((reason, count) for reason, count in shot.dropped.items() if reason not in NOT_LOST)
    yield from ((reason, count) for reason, count in shot.host.items() if reason.startswith(HOST_LOSSES))


def _node_names(calendar: "Calendar | None") -> dict[int, str]:
    return {} if calendar is None else {slot.number: slot.node for slot in calendar.slots}


def _bounds(calendar: "Calendar | None") -> dict[tuple[str, int], float]:
    """The latency that the plan promises to hard channels, from the start of the slot to its end, in milliseconds."""
    slots = () if calendar is None else calendar.slots
    return {(slot.event, slot.number): slot.length_ns / 1e6 for slot in slots}


def _latency(time_ms: float | None) -> float | None:
    """A latency that is one: events may have their `time` from another clock."""
    return None if time_ms is None or abs(1000 * time_ms) >= OTHER_CLOCK_US else three_digits(time_ms)


def _quality(slot: "Slot") -> str:
    return format_qos(Hard(slot.period_ns / 1e9, sporadic=slot.sporadic))


def _stamp(path: Path | None) -> tuple[int, int] | None:
    """Return what changes with a file; None if there is none."""
    try:
        found = None if path is None else path.stat()
    except OSError:
        return None
    return None if found is None else (found.st_mtime_ns, found.st_size)
