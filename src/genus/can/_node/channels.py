"""The channels of a node: what it publishes and receives, the counters of both, and its reports of them.

Publishers send the counters once a second, so that receivers know what they missed; before the first report, and when a
node joins, the signature of the channel: what its events are. A node whose controller has too many errors sends empty
reports, by which it recovers.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, Literal, TypeAlias

import msgspec

from genus.bus import Soft
from genus.bus.types import QoS
from genus.can._node.problems import DeliveryProblem, ProblemHandler
from genus.can._node.slots import SlotReceiver, SlotSender
from genus.can._node.tx_queue import Context, OutgoingEvent
from genus.can._protocol.messages import Signature
from genus.can._protocol.signatures import Layout
from genus.can._wire.frame import ETAG_MASK, Frame, Identifier, Priority, ProtocolEtag, padded_size, subject_uid
from genus.can._wire.payload import PayloadCodec
from genus.can._wire.segments import frame_sizes, split_payload
from genus.catalog import Catalog
from genus.filters import Subscription
from genus.model import Event, attributes, name_of, nanoseconds
from genus.model.types import Vector

REPEATED_NS, REPEATED_FILTERED_NS = 1_000_000_000, 20_000_000
"""An equal event with the same sequence number within this time is a retransmission by the controller.

A frame of low priority may wait so long before it is repeated on a full bus. Where filters keep events out, numbers
come again soon, so the time is shorter.
"""

REPORT_RANGE = 1 << 24
"""The counter in reports wraps around here."""

State: TypeAlias = Literal["binding", "ready", "refused"]


@lru_cache(maxsize=1024)
def layout_of(cls: type[Event], vector: Vector, tagged: tuple[str, ...]) -> PayloadCodec:
    """The payload codec of a class; generating its code takes milliseconds, so all nodes of a process share it."""
    return PayloadCodec.of(cls, vector, tagged)


# -- sending -----------------------------------------------------------------------------------------------------------


class TxCounts(msgspec.Struct):
    """State: counters of the events that were published on a channel."""

    published: int = 0
    sent: int = 0
    missed: int = 0
    expired: int = 0
    sent_expired: int = 0
    """Events of those sent that had expired: a driver took them before and could not stop them."""
    unknown: int = 0
    """Events that a driver took and did not confirm."""
    failed: int = 0
    replaced: int = 0
    """Hard events that a newer one replaced before their slot came."""


class Announcement:
    """A publisher's handle on a channel; made by `Node.announce`."""

    def __init__(self, channel: "TxChannel", on_problem: ProblemHandler | None) -> None:
        self.channel = channel
        self.on_problem = on_problem

    @property
    def state(self) -> State:
        return self.channel.state

    @property
    def reason(self) -> str:
        return self.channel.reason


class TxChannel:
    """State: the sending side of a channel: one class, one quality of service, one event tag."""

    def __init__(self, cls: type[Event], qos: QoS, carries: tuple[str, ...], capacity: int, *, fd: bool) -> None:
        self.cls = cls
        self.name = name_of(cls)
        self.uid = subject_uid(self.name)
        self.qos = qos
        self.carries = carries
        self.deadline_ns = nanoseconds(qos.deadline) if isinstance(qos, Soft) else 0
        self.expires_ns = nanoseconds(qos.expires) if isinstance(qos, Soft) and qos.expires is not None else None
        self.state: State = "binding"
        self.reason = ""
        self.etag = 0
        self.layout: PayloadCodec | None = None
        self.largest: int | None = None
        """The largest payload of an event that carries what was announced; None if there is no limit."""
        self.segmented = False
        self.slot_sender: SlotSender | None = None
        self.started: OutgoingEvent | None = None
        self.waiting = 0
        """Events that are published and neither sent nor dropped."""
        self.reporting = self.signing = False
        """Whether a report, and a signature, waits to be sent."""
        self.published_at: int | None = None
        """When the last sporadic event was published, in the bus's time."""
        self.opened_at: int | None = None
        """When it became ready."""
        self.objectors: set[int] = set()
        """The nodes that objected to what it publishes."""
        self.wire_layout: Layout | None = None
        self.announcements: list[Announcement] = []
        self.counts = TxCounts()
        self.capacity = capacity
        """Bytes of data in a frame."""
        self._fd = fd
        self._sequence = self._transfer = self._committed = 0

    @property
    def reported(self) -> int:
        """How many events its reports count: all that used a sequence number, so that receivers find what is missing.

        Those are the ones that were sent or may have been, and of sporadic ones all that were to be sent.
        """
        return self._committed

    @property
    def frames(self) -> int:
        return len(self.frame_sizes(self.largest or 0))

    def use(self, catalog: Catalog) -> None:
        """Take event tag and layout from a catalog; SubscriptionError if what was announced is outside its vector."""
        vector = catalog.vector(self.cls)
        own = {attribute.name: attribute for attribute in attributes(self.cls)}
        for name in self.carries:
            if name not in own or vector.match(own[name]) is None:
                vector.find(name)
        self.layout = layout_of(self.cls, vector, catalog.tagged_attributes(self.name))
        self.etag = catalog.etag(self.name)
        self.wire_layout = Layout.of(catalog, self.name)
        self.largest = self.layout.max_size_carrying(self.carries)
        self.segmented = self.largest is None or self.largest > self.capacity

    def layout_signature(self, node: int) -> Signature:
        assert self.wire_layout is not None, "a channel that is bound has the layout of its catalog"
        return self.wire_layout.sign(node)

    def describe_excess(self, event: Event, size: int) -> str:
        return (
            f"{event!r} takes {size} bytes, but its channel was announced with frames of {self.capacity}; "
            "name the context attributes that its events carry when you announce it"
        )

    def frame_sizes(self, size: int) -> Sequence[int]:
        if self.segmented:
            return frame_sizes(size, self.capacity)
        return (padded_size(size) if self._fd else size,)

    def render(self, payload: bytes) -> Sequence[bytes]:
        """Return the data of an event's frames, with the sequence number of the next event."""
        numbered = bytes((payload[0] | self._sequence << 5,)) + payload[1:]
        if self.segmented:
            return split_payload(numbered, self._transfer, self.capacity)
        return (numbered.ljust(padded_size(len(numbered)), b"\0"),) if self._fd else (numbered,)

    def commit(self) -> None:
        """Advance the sequence number after an event was sent, or may have been."""
        self._committed += 1
        self._sequence = self._sequence + 1 & 7
        self._transfer = self._transfer + 1 & 31


# -- receiving ---------------------------------------------------------------------------------------------------------


class Interest:
    """State: a subscription of a node; made by `Node.subscribe`."""

    def __init__(self, subscription: Subscription, on_problem: ProblemHandler | None) -> None:
        self.subscription = subscription
        self.on_problem = on_problem
        self.state: State = "binding"
        self.reason = ""
        self.filter_handle: Any = None


class SequenceTracker:
    """State: which events of one publisher of a channel were received, and how many were not.

    Sequence numbers show gaps of up to seven events and retransmissions; the publisher's reports, once a second and at
    the end, show the rest. A report that counts less than was received is of a publisher that restarted.
    """

    __slots__ = (
        *("segmented", "agreed", "received", "lost"),
        *("_last", "_data", "_seen_at", "_reported", "_unreported", "_explained"),
    )

    def __init__(self, *, segmented: bool | None = None) -> None:
        self.segmented = segmented
        """Whether its events come in segments; None while that is not known."""
        self.agreed = False
        """Whether its events are known to be what the catalog says."""
        self.received = 0
        self.lost = 0
        self._last = -1
        self._data = b""
        self._seen_at = 0
        self._reported: int | None = None
        self._unreported = 0
        self._explained = 0

    def accept(self, sequence: int, data: bytes, now: int, *, counting: bool = True) -> int:
        """Return how many events are missing before this one; -1 if it is a retransmission.

        Without `counting`, gaps are no losses: the acceptance filters keep some events out.
        """
        gap = (sequence - self._last - 1) & 7 if self._last >= 0 else 0
        limit = REPEATED_NS if counting else REPEATED_FILTERED_NS
        if gap == 7 and data == self._data and not self._explained and now - self._seen_at < limit:
            return -1
        self._last, self._data, self._seen_at = sequence, data, now
        self.received += 1
        gap = gap - self._explained & 7 if counting else 0  # losses that a report counted show in the numbers too
        self._explained = 0
        self.lost += gap
        self._unreported += 1 + gap
        return gap

    def compare(self, sent: int, *, counting: bool = True) -> int:
        """Compare with the total that a publisher reports; returns how many more events are missing than was known."""
        before, self._reported = self._reported, sent
        accounted, self._unreported = self._unreported, 0
        if before is None:
            self._unreported = max(0, accounted - sent)
            return 0
        missing = (sent - before & REPORT_RANGE - 1) - accounted
        restarted = (sent == 0 and missing < 0) or missing >= REPORT_RANGE // 2
        if restarted:
            self._last, self._explained = -1, 0
            return 0
        if missing < 0:  # events were sent before a report that was written earlier; the next report counts them
            self._unreported = -missing
            return 0
        missing = missing if counting else 0
        self.lost += missing
        self._explained += missing
        return missing


class RxChannel:
    """State: the receiving side of a channel: the events of one class that come over the bus."""

    def __init__(self, cls: type[Event], name: str, etag: int, layout: PayloadCodec) -> None:
        self.cls = cls
        self.name = name
        self.etag = etag
        self.layout = layout
        self.counts_losses = True
        """Whether the filters pass all events of the class, so that one that did not come is lost."""
        self.publishers: dict[int, SequenceTracker] = {}
        """By node number."""
        self.interests: list[Interest] = []
        self.slot_receivers: list[SlotReceiver] = []


class NodeCounts(msgspec.Struct, frozen=True):
    """Counters of a node: per channel it publishes, per channel it receives, and what it dropped by reason."""

    sent: dict[str, TxCounts]
    received: dict[str, int]
    lost: dict[str, int]
    dropped: Counter[str]
    unread: Mapping[str, int] = {}
    """Values that the classes here could not read, by type and attribute."""


def problem_calls(
    parties: Sequence[Announcement | Interest], problem: DeliveryProblem
) -> list[tuple[ProblemHandler, DeliveryProblem]]:
    return [(each.on_problem, problem) for each in parties if each.on_problem is not None]


REPORT_NS = 1_000_000_000
SOON_NS = 5_000_000
"""Delay of the reports that are sent because a node joined the bus."""
PAUSE_NS = 200_000_000
"""Minimum time between such reports."""
PAUSE_FRAMES = 1
"""How long to wait after an empty report that was sent, in longest frames."""
FIRST_RETRY_FRAMES, LAST_RETRY_FRAMES = 4, 32
"""How long to wait after one that failed; twice as long after each further one, up to the last."""


class Report(msgspec.Struct, frozen=True):
    """The counters of a channel as its publisher reports them; they wrap around.

    >>> Report(8208, True, 70_000, 3, 1).pack().hex()
    'a010011170003001'
    >>> Report.parse(bytes.fromhex("a010011170003001"))
    Report(etag=8208, segmented=True, sent=70000, missed=3, expired=1)
    """

    etag: int
    segmented: bool
    sent: int
    missed: int
    expired: int

    def pack(self) -> bytes:
        """Whether its events are segmented (1 bit), event tag (15), sent (24), deadlines missed (12), expired (12)."""
        counters = (self.sent & 0xFFFFFF) << 24 | (self.missed & 0xFFF) << 12 | self.expired & 0xFFF
        return (self.segmented << 63 | self.etag << 48 | counters).to_bytes(8, "big")

    @classmethod
    def parse(cls, data: bytes) -> "Report | None":
        """Parse a report; None if it is not 8 bytes long."""
        if len(data) != 8:
            return None
        packed = int.from_bytes(data, "big")
        etag, segmented = packed >> 48 & ETAG_MASK, bool(packed >> 63)
        return cls(etag, segmented, packed >> 24 & 0xFFFFFF, packed >> 12 & 0xFFF, packed & 0xFFF)


def _do_nothing() -> None: ...


class Reporter:
    """State: when the channels of a node are reported next."""

    def __init__(self, context: Context, channels: Callable[[], Iterable[TxChannel]]) -> None:
        self._context = context
        self._channels = channels
        self._last = -PAUSE_NS
        self._signs = False
        """Whether the next reports come with signatures."""
        self.wake_at: int | None = None

    def sign(self, channel: TxChannel, on_sent: Callable[[], None] = _do_nothing) -> None:
        """Queue the signature of a channel, one at a time; what is to follow it is called when it was sent."""
        if not channel.signing:
            channel.signing = True
            frame = channel.layout_signature(self._context.queue.number).frame()
            self._context.queue.add_frame(frame, partial(self._signed, channel, on_sent))

    def _signed(self, channel: TxChannel, on_sent: Callable[[], None], now: int) -> None:
        channel.signing = False
        on_sent()

    def report(self, channel: TxChannel, on_sent: Callable[[int], None] | None = None) -> None:
        """Queue a report of a channel; its counters are read when it gets into the mailbox. One at a time."""
        if channel.reporting and on_sent is None:
            return
        channel.reporting = True
        renew = partial(self._frame, channel)
        self._context.queue.add_frame(renew(), partial(self._sent, channel, on_sent), renew)
        if self.wake_at is None:
            self.wake_at, self._context.timers_changed = self._context.now + REPORT_NS, True

    def report_soon(self) -> None:
        """A node joined the bus and does not know the channels yet: sign and report them soon."""
        if self.wake_at is not None and self._context.now - self._last >= PAUSE_NS:
            self._signs = True
            self.wake_at = min(self.wake_at, self._context.now + SOON_NS)

    def wake(self, now: int) -> None:
        if self.wake_at is None or now < self.wake_at:
            return
        ready = [channel for channel in self._channels() if channel.state == "ready"]
        self.wake_at, self._last = now + REPORT_NS if ready else None, now
        signs, self._signs = self._signs, False
        for channel in ready:
            if signs:
                self.sign(channel, partial(self.report, channel))
            else:
                self.report(channel)

    def _sent(self, channel: TxChannel, on_sent: Callable[[int], None] | None, now: int) -> None:
        channel.reporting = False
        if on_sent is not None:
            on_sent(now)

    def _frame(self, channel: TxChannel) -> Frame:
        counts = channel.counts
        missed = counts.missed + counts.failed
        report = Report(channel.etag, channel.segmented, channel.reported, missed, counts.expired)
        return Frame(Identifier(Priority.SYSTEM, self._context.queue.number, ProtocolEtag.REPORT).pack(), report.pack())


class ErrorRecovery:
    """State: sends empty reports with the lowest priority while the controller has too many errors.

    Each frame that is sent lowers the controller's error counter. A node that sends little but hard events would else
    not recover for minutes; so it does on an idle bus before its next slot. Receivers ignore an empty report. There are
    pauses between them, so that a station that is off the bus finds the idle time it needs to come back; one that fails
    is repeated later and later, because the bus may be disturbed for a while.
    """

    def __init__(self, context: Context, is_needed: Callable[[], bool]) -> None:
        self._context = context
        self._is_needed = is_needed
        self._frame: Frame | None = None
        self._retry_frames = FIRST_RETRY_FRAMES
        self.wake_at: int | None = None

    def start(self) -> None:
        """Begin to recover, unless that is under way."""
        if self._frame is None and self.wake_at is None:
            self._send()

    def stop(self) -> None:
        """What was queued is gone."""
        self._frame, self.wake_at = None, None

    def frame_failed(self, frame: Frame) -> None:
        """A frame was corrupted: if it is an empty report, send another one later."""
        if frame is self._frame:
            self._context.queue.remove_frame(frame)
            self._pause(self._retry_frames)
            self._retry_frames = min(2 * self._retry_frames, LAST_RETRY_FRAMES)

    def wake(self, now: int) -> None:
        if self.wake_at is not None and self.wake_at <= now:
            self.wake_at = None
            self._send()

    def _send(self) -> None:
        if self._is_needed():
            queue = self._context.queue
            self._frame = Frame(Identifier(Priority.BULK, queue.number, ProtocolEtag.REPORT).pack())
            queue.add_frame(self._frame, self._sent)

    def _sent(self, now: int) -> None:
        self._retry_frames = FIRST_RETRY_FRAMES
        self._pause(PAUSE_FRAMES)

    def _pause(self, frames: int) -> None:
        self._frame = None
        if self._is_needed():
            self.wake_at = self._context.now + frames * self._context.queue.level_ns
