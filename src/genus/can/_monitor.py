"""`Monitor`: a machine that only receives, and keeps rate, jitter, latency and losses of every channel.

Its counters are compared with what the publishers report once a second, so events that it did not receive are known.
Frames of other makers are channels too, named by the messages of databases, or else by their identifiers.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from genus._spread import Spread
from genus.bus.internal import Rejected
from genus.can._machine import Accept, Output
from genus.can._node.channels import REPORT_RANGE, Interest, Report, SequenceTracker
from genus.can._node.rx import Receiver
from genus.can._node.slots import OwnTime, SlotDispatcher
from genus.can._protocol.messages import Announce, Claim, QosClass, parse_message
from genus.can._protocol.time_service import MasterCandidate, is_well_formed
from genus.can._wire.frame import RESERVED_ETAGS, UNCONFIGURED_NODE, Frame, Priority, ProtocolEtag, Timing
from genus.catalog import Catalog
from genus.errors import Reasons
from genus.filters import Subscription
from genus.model import Event, micros_of_time

if TYPE_CHECKING:
    from genus.can._foreign_receiver import Databases

RATE_NS = 1_000_000_000
MAX_CHANNELS = 4096
MAX_RECENT = 20_000
"""Frames that a monitor keeps: more than two seconds of a full bus of 1 Mbit/s."""
PAIR_NS = 60_000_000
"""After this time, a FOLLOW_UP is not that of the last SYNC: three periods of these."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class ChannelStatistics(msgspec.Struct, frozen=True):
    """What is known of one publisher of one channel; times in milliseconds."""

    channel: str
    node: int
    qos: str
    events: int
    rate: float
    """Events a second over the last second."""
    jitter_ms: float
    """Standard deviation of the time between two events."""
    latency_ms: float | None
    """Mean time from an event's own `time` to its arrival; None where events carry none."""
    worst_latency_ms: float | None
    reported: int | None
    """What the publisher reported as sent, since its first report; None before that."""
    missed: int
    expired: int
    lost: int
    """Events that were sent but not received here."""


class MonitoredFrame(NamedTuple):
    """A frame that was on a bus; times are nanoseconds since 1970 by the clock of this computer."""

    end_ns: int
    """When it ended."""
    length_ns: int
    """How long the bus was busy with it."""
    frame: Frame
    channel: str
    """The name of its type or message; without one, its event tag or its identifier; `CLAIM` and so on by Genus."""
    kind: str
    """`hard`, `soft`, `none`, `system` or `foreign`."""


class _Channel:
    """State: one publisher of one channel."""

    def __init__(self) -> None:
        self.events = 0
        self.intervals = Spread()
        self.latencies = Spread()
        self.last_at: int | None = None
        self.window_at = 0
        self.window_events = 0
        self.rate = 0.0
        self.qos = QosClass.UNANNOUNCED
        self.is_foreign = False
        self.report: Report | None = None
        self.sent = self.missed = self.expired = 0

    def add_report(self, report: Report) -> None:
        """Add what a report counts since the one before; less than before means that the publisher restarted."""
        before, self.report = self.report, report
        if before is not None and (step := report.sent - before.sent & REPORT_RANGE - 1) < REPORT_RANGE // 2:
            self.sent += step
            self.missed += report.missed - before.missed & 0xFFF
            self.expired += report.expired - before.expired & 0xFFF

    def add_event(self, now: int) -> None:
        """Count an event."""
        if self.last_at is None:
            self.window_at = now
        else:
            self.intervals.add((now - self.last_at) / 1e6)
        self.last_at = now
        self.events += 1
        self.tick(now)
        self.window_events += 1

    def tick(self, now: int) -> None:
        """Compute the rate of the last second, once a second."""
        if self.last_at is not None and now - self.window_at >= RATE_NS:
            self.rate = self.window_events * 1e9 / (now - self.window_at)
            self.window_at, self.window_events = now, 0


class _Immediate:
    """State: the time, for a receiver whose handlers are called at once."""

    now = 0

    def call(self, handler: Callable[..., object], *arguments: Any) -> None:
        """Call a handler."""
        handler(*arguments)


class Monitor:
    """Receives everything on a bus; without a catalog channels are named by their event tags."""

    def __init__(self, timing: Timing, catalog: Catalog | None = None, databases: "Databases | None" = None) -> None:
        self.dropped = Reasons()
        self.nodes: dict[int, int] = {}
        """The uid behind each node number that was claimed."""
        self.heard: dict[int, int] = {}
        """When something was last received from each node, by its number."""
        self.frames = 0
        self.busy_ns = 0
        """The time in which the bus was busy."""
        self.is_off = False
        """Whether the interface is off the bus, so that nothing is received."""
        self.master: int | None = None
        """The number of the node whose clock the others follow; None if none is known."""
        self.offset_ns: int | None = None
        """The time of the bus, less that of this clock; None if it is not known."""
        self.on_event: Callable[[Event, int, int], object] | None = None
        """Is called with each event, the number of its node, 0 for other makers', and the time. It must not raise."""
        self._recent: deque[tuple[int, int, Frame]] = deque(maxlen=MAX_RECENT)
        self._clocks: dict[int, MasterCandidate] = {}
        self._timing = timing
        self._catalog, self._databases = catalog, databases
        self._channels: dict[tuple[str, int], _Channel] = {}
        self._began: int | None = None
        self._latest = 0
        self._latency: float | None = None
        self._outputs: list[Output] = [Accept(((0, 0),), ((0, 0),))]
        own = OwnTime()
        dispatcher = SlotDispatcher(own, lambda *_: None, lambda *_: None)
        self._context = _Immediate()
        self._rx = Receiver((), own, dispatcher, self._context, self._note_latency)
        self._rx.on_received = self._note_event
        self._rx.add(Interest(Subscription(Event), None))
        if catalog is not None:
            self.use(catalog)

    def use(self, catalog: Catalog) -> None:
        """Name channels by a catalog that is new or has grown."""
        self._catalog = catalog
        self._rx.use(catalog)
        self._rx.set_filters(((0, 0),))

    def recent(self, start_ns: int, end_ns: int) -> Iterator[MonitoredFrame]:
        """Return the last frames, as far as they are kept, that were on the bus between two times; the oldest first."""
        found = []
        for at_ns, length_ns, frame in reversed(self._recent):
            if at_ns <= start_ns:
                break
            if at_ns - length_ns < end_ns:
                found.append(MonitoredFrame(at_ns, length_ns, frame, *self._describe(frame)))
        return reversed(found)

    def lines(self, now: int) -> list[ChannelStatistics]:
        """Return the statistics of every channel, ordered by name and node."""
        for channel in self._channels.values():
            channel.tick(now)
        return [self._line(name, node, channel) for (name, node), channel in sorted(self._channels.items())]

    def load(self) -> float:
        """Return the share of time in which the bus was busy, by exact frame lengths."""
        passed = self._latest - (self._began or 0)
        return self.busy_ns / passed if passed > 0 else 0.0

    def problems(self) -> Counter[str]:
        """Counters of frames that could not be read, or whose time on the bus is not known, by reason."""
        return self.dropped + self._rx.problems()

    # -- inputs ------------------------------------------------------------------------------------------------------

    def receive(self, frame: Frame, now: int) -> None:
        """A frame was on the bus."""
        self._context.now = now
        self.frames += 1
        self._began = now if self._began is None else self._began
        self._latest = now
        try:
            length_ns = self._timing.exact_ns(frame)
        except ValueError:
            self.dropped["not a frame that can be"] += 1
            return
        if frame.fd and self._timing.data_bitrate is None:
            self.dropped["CAN FD, counted at the nominal bit rate: give data_bitrate"] += 1
        self.busy_ns += length_ns
        self._recent.append((now, length_ns, frame))
        message = None if self._databases is None else self._databases.message_of(frame)
        if message is not None or not frame.extended:
            self._receive_foreign(frame, None if message is None else message.type_name, now)
        elif frame.etag == ProtocolEtag.REPORT:
            self._receive_report(frame, now)
        elif frame.etag in (ProtocolEtag.SYNC, ProtocolEtag.FOLLOW_UP):
            self._receive_time(frame, now)
        elif frame.etag < RESERVED_ETAGS:
            self._receive_protocol(frame, now)
        elif self._catalog is None:
            self.heard[frame.node] = now
            self._channel(f"#{frame.etag}", frame).add_event(now)
        else:
            self._receive_event(frame, now)

    def _receive_foreign(self, frame: Frame, name: str | None, now: int) -> None:
        if name is not None and self._databases is not None:
            event = self._databases.decode(frame, _EPOCH + timedelta(microseconds=now // 1000))
            if isinstance(event, Rejected):
                self.dropped[event.reason] += 1
                return
            if self.on_event is not None:
                self.on_event(event, UNCONFIGURED_NODE, now)
        channel = self._of(f"{frame.id:#05x}" if name is None else name, UNCONFIGURED_NODE)
        channel.is_foreign = True
        channel.add_event(now)

    def _receive_event(self, frame: Frame, now: int) -> None:
        name = self._name_of(frame.etag)
        before = self._received(name, frame.node)
        self._latency = None
        self._rx.receive(frame)
        if self._received(name, frame.node) > before:
            self.heard[frame.node] = now
            channel = self._channel(name, frame)
            channel.add_event(now)
            if self._latency is not None:
                channel.latencies.add(self._latency)

    def _received(self, name: str, node: int) -> int:
        publisher = self._publisher(name, node)
        return 0 if publisher is None else publisher.received

    def _publisher(self, name: str, node: int) -> SequenceTracker | None:
        channel = self._rx.channels.get(name)
        return None if channel is None else channel.publishers.get(node)

    def _receive_report(self, frame: Frame, now: int) -> None:
        report = Report.parse(frame.data)
        if report is None:
            self.dropped["not a report"] += 1
            return
        self.heard[frame.node] = now
        self._of(self._name_of(report.etag), frame.node).add_report(report)
        if self._catalog is not None:
            self._rx.compare(frame.node, report)

    def _receive_time(self, frame: Frame, now: int) -> None:
        """Compare the clock of the time master with this one, by a SYNC and its FOLLOW_UP."""
        if not is_well_formed(frame):
            self.dropped["not a SYNC or FOLLOW_UP"] += 1
            return
        self.heard[frame.node] = now
        clock = self._clocks.setdefault(frame.node, MasterCandidate())
        if frame.etag == ProtocolEtag.SYNC:
            clock.receive_sync(frame, now)
        elif (sample := clock.pair(frame, now, PAIR_NS)) is not None:
            self.master, self.offset_ns = frame.node, sample.global_ - sample.local

    def _receive_protocol(self, frame: Frame, now: int) -> None:
        message = parse_message(frame)
        if message is not None and frame.node != UNCONFIGURED_NODE:
            self.heard[frame.node] = now
        match message:
            case Claim(node, uid):
                self.nodes[node] = uid
            case Announce(node, etag, qos_class, segmented):
                self._of(self._name_of(etag), node).qos = qos_class
                self._rx.set_segmented(etag, segmented, node)

    # -- a machine that never sends ----------------------------------------------------------------------------------

    def sent(self, frame: Frame, now: int) -> None:
        """Never: nothing is sent."""

    def failed(self, frame: Frame, now: int) -> None:
        """Never: nothing is sent."""

    def lost(self, now: int) -> None:
        """Never: nothing is sent."""

    def taken(self, frame: Frame, now: int) -> None:
        """Never: nothing is sent."""

    def unconfirmed(self, frame: Frame, now: int, *, gone: bool, maybe_sent: bool = True) -> None:
        """Never: nothing is sent."""

    def error_passive(self, now: int, passive: bool) -> None:
        """Nothing to do: nothing is sent."""

    def bus_off(self, now: int) -> None:
        """Nothing is received from now on."""
        self.is_off = True

    def bus_on(self, now: int) -> None:
        """Frames are received again."""
        self.is_off = False

    @property
    def wake_at(self) -> int | None:
        """Never: it only receives."""
        return None

    def wake(self, now: int) -> None:
        """Never: it only receives."""

    def take(self) -> list[Output]:
        """Return the filters, at the start."""
        outputs, self._outputs = self._outputs, []
        return outputs

    # -- within ------------------------------------------------------------------------------------------------------

    def _note_latency(self, event: Event) -> None:
        if event.time is not None:
            self._latency = self._latest / 1e6 - micros_of_time(event.time) / 1e3

    def _note_event(self, event: Event, node: int) -> None:
        if self.on_event is not None:
            self.on_event(event, node, self._context.now)

    def _describe(self, frame: Frame) -> tuple[str, str]:
        """Return the channel of a frame, and its kind."""
        message = None if self._databases is None else self._databases.message_of(frame)
        if message is not None or not frame.extended:
            return (f"{frame.id:#05x}" if message is None else message.type_name), "foreign"
        if frame.etag < RESERVED_ETAGS:
            return _PROTOCOL_NAMES.get(frame.etag, f"#{frame.etag}"), "system"
        return self._name_of(frame.etag), _class_of(frame.priority).name.lower()

    def _name_of(self, etag: int) -> str:
        name = None if self._catalog is None else self._catalog.type_of(etag)
        return f"#{etag}" if name is None else name

    def _channel(self, name: str, frame: Frame) -> _Channel:
        channel = self._of(name, frame.node)
        if channel.qos == QosClass.UNANNOUNCED:
            channel.qos = _class_of(frame.priority)
        return channel

    def _of(self, name: str, node: int) -> _Channel:
        """Return the state of a channel; channels beyond the limit share one."""
        key = (name, node) if (name, node) in self._channels or len(self._channels) < MAX_CHANNELS else ("others", 0)
        return self._channels.setdefault(key, _Channel())

    def _line(self, name: str, node: int, channel: _Channel) -> ChannelStatistics:
        publisher = self._publisher(name, node)
        late = channel.latencies
        return ChannelStatistics(
            channel=name,
            node=node,
            qos="FOREIGN" if channel.is_foreign else channel.qos.name,
            events=channel.events,
            rate=channel.rate,
            jitter_ms=channel.intervals.deviation,
            latency_ms=late.mean if late.count else None,
            worst_latency_ms=late.most if late.count else None,
            reported=None if channel.report is None else channel.sent,
            missed=channel.missed,
            expired=channel.expired,
            lost=0 if publisher is None else publisher.lost,
        )


_PROTOCOL_NAMES = {int(each): each.name for each in ProtocolEtag}


def _class_of(priority: int) -> QosClass:
    if priority == Priority.HARD:
        return QosClass.HARD
    return QosClass.SOFT if priority <= Priority.SOFT_LAST else QosClass.NONE
