"""The channels of a node: what it publishes, what it receives, and the counters of both."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import msgspec

from genus.bus import QoS, Soft
from genus.can._node.problems import DeliveryProblem, ProblemHandler
from genus.can._node.slots import SlotReceiver, SlotSender
from genus.can._node.tx_queue import OutgoingEvent
from genus.can._protocol.layouts import Layout
from genus.can._protocol.messages import Signature
from genus.can._wire.frame import subject_uid
from genus.can._wire.length import padded_size
from genus.can._wire.payload import PayloadCodec
from genus.can._wire.segments import frame_sizes, split_payload
from genus.catalog import Catalog
from genus.filters import Subscription
from genus.model import Event, Vector, attributes, name_of, nanoseconds

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
        """Whether the channel is being bound, is ready or was refused."""
        return self.channel.state

    @property
    def reason(self) -> str:
        """Why it was refused."""
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
        """How many frames the longest event takes."""
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
        """Return what its events are, as the node with this number says it."""
        assert self.wire_layout is not None, "a channel that is bound has the layout of its catalog"
        return self.wire_layout.sign(node)

    def describe_excess(self, event: Event, size: int) -> str:
        """Why an event does not fit the channel."""
        return (
            f"{event!r} takes {size} bytes, but its channel was announced with frames of {self.capacity}; "
            "name the context attributes that its events carry when you announce it"
        )

    def frame_sizes(self, size: int) -> Sequence[int]:
        """Return the data lengths of the frames that a payload takes."""
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
    parties: Sequence[Announcement | Interest], trouble: DeliveryProblem
) -> list[tuple[ProblemHandler, DeliveryProblem]]:
    """Return the handlers to call with a trouble."""
    return [(each.on_problem, trouble) for each in parties if each.on_problem is not None]
