"""The receiving side of a node: subscriptions, and the way from a frame to an event."""

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Protocol

from genus.bus.internal import Rejected, UnreadValues
from genus.can._node.channels import Interest, Report, RxChannel, SequenceTracker, layout_of, problem_calls
from genus.can._node.problems import BindingFailed, DeliveryProblem, EventMissing, EventsLost, WrongCatalog
from genus.can._node.slots import BusTime, SlotDispatcher, SlotReceiver, occurrence_at
from genus.can._plan.calendar import Slot
from genus.can._wire.frame import ETAG_MASK, NODE_SHIFT, PRIORITY_SHIFT, Frame
from genus.can._wire.segments import Reassembler
from genus.catalog import Catalog
from genus.errors import GenusError, Reasons
from genus.model import Event, name_of
from genus.model.internal import unread_types, unread_values

REASSEMBLY_NS = 2_000_000_000
"""Timeout of an event in several frames."""
MAX_FORMS = 1 << 16
"""Publishers of channels of which a node remembers whether they segment: more than a bus can have."""


class ReceiverContext(Protocol):
    """What a receiver needs of what it is part of: a node, or a monitor."""

    now: int

    def call(self, handler: Callable[..., object], *arguments: Any) -> None: ...


class Receiver:
    """State: a node's subscriptions and the channels they receive."""

    def __init__(
        self,
        slots: Iterable[Slot],
        time: BusTime,
        dispatcher: SlotDispatcher,
        context: ReceiverContext,
        on_event: Callable[[Event], object] | None,
    ) -> None:
        self.interests: dict[Interest, None] = {}
        self.channels: dict[str, RxChannel] = {}
        self.dropped = Reasons()
        self.unread = UnreadValues(is_logged=True)
        self._segmented: dict[tuple[int | None, int], bool] = {}
        """By publisher (None: all) and event tag."""
        self._accepted: tuple[tuple[int, int], ...] = ()
        self._slots = tuple(slots)
        self._time = time
        self._dispatcher = dispatcher
        self._context = context
        self._on_event = on_event
        self.on_received: Callable[[Event, int], object] | None = None
        """Is called too, with the event and the number of the node that sent it."""
        self.observer: Callable[[Event, int | None], object] | None = None
        """Is called in place of `on_event`, with the event and the identifier of its last frame; None: its own."""
        self.agrees: Callable[[int, int, int], bool | None] | None = None
        """Says whether the events of a node with an event tag are what the catalog says; None: all are."""
        self._catalog: Catalog | None = None
        self._by_etag: dict[int, tuple[RxChannel, int] | None] = {}
        self._own: dict[type, RxChannel | None] = {}
        self._reassembler = Reassembler(REASSEMBLY_NS)

    # -- subscribing -------------------------------------------------------------------------------------------------

    def use(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._by_etag.clear()
        self._own.clear()
        for channel in self.channels.values():
            channel.layout = layout_of(
                channel.cls, catalog.vector(channel.name), catalog.tagged_attributes(channel.name)
            )
        for interest in self.interests:
            self._join_slots(interest)

    def add(self, interest: Interest) -> None:
        self.interests[interest] = None
        for channel in self.channels.values():
            if interest.subscription.accepts(channel.cls):
                channel.interests.append(interest)
        if self._catalog is not None:
            self._join_slots(interest)

    def remove(self, interest: Interest) -> None:
        self.interests.pop(interest, None)
        for channel in self.channels.values():
            channel.interests = [each for each in channel.interests if each is not interest]
            if not channel.interests:
                for receiver in channel.slot_receivers:
                    self._dispatcher.leave(receiver)
                channel.slot_receivers.clear()
                channel.publishers.clear()

    def refuse(self, interest: Interest, reason: str) -> None:
        """Report that nothing can be received for a subscription."""
        interest.state, interest.reason = "refused", reason
        self._report([interest], BindingFailed(str(interest.subscription), reason))

    def set_segmented(self, etag: int, segmented: bool, node: int | None = None) -> None:
        """Note whether the events of a channel come in segments, from one publisher or from all."""
        if (node, etag) not in self._segmented and len(self._segmented) >= MAX_FORMS:
            return
        self._segmented[node, etag] = segmented
        for channel in self.channels.values():
            if channel.etag == etag:
                for number, publisher in channel.publishers.items():
                    if node in (None, number):
                        publisher.segmented = segmented

    def set_filters(self, pairs: tuple[tuple[int, int], ...]) -> None:
        """Note the acceptance filters: an event that they keep out is not lost."""
        self._accepted = pairs
        for channel in self.channels.values():
            channel.counts_losses = self._is_accepted_whole(channel.name)

    def _is_accepted_whole(self, name: str) -> bool:
        assert self._catalog is not None
        own = self._catalog.own_etags(name)
        return any(mask & own.mask == mask and own.value & mask == value for value, mask in self._accepted)

    def _join_slots(self, interest: Interest) -> None:
        for slot in self._slots:
            cls = self._class_of(slot.event) if self._may_match(interest, slot.event) else None
            if cls is not None and interest.subscription.accepts(cls):
                channel = self._channel(slot.event, cls)
                if all(receiver.slot is not slot for receiver in channel.slot_receivers):
                    deliver = partial(self._deliver_due, channel, slot.number)
                    receiver = SlotReceiver(slot, deliver, partial(self._missing, channel))
                    channel.slot_receivers.append(receiver)
                    self._dispatcher.join(receiver, self._context.now)

    def _may_match(self, interest: Interest, name: str) -> bool:
        catalog = self._catalog
        if catalog is None or name not in catalog:
            return False
        wanted = [name_of(cls) for cls in interest.subscription.types]
        return all(above in catalog and catalog.subsumes(above, name) for above in wanted)

    def _class_of(self, name: str) -> type[Event] | None:
        if self._catalog is None or name not in self._catalog:
            return None
        return self._catalog.declare(name)

    def _channel(self, name: str, cls: type[Event]) -> RxChannel:
        assert self._catalog is not None
        if name not in self.channels:
            layout = layout_of(cls, self._catalog.vector(name), self._catalog.tagged_attributes(name))
            channel = RxChannel(cls, name, self._catalog.etag(name), layout)
            channel.counts_losses = self._is_accepted_whole(name)
            channel.interests = [each for each in self.interests if each.subscription.accepts(cls)]
            self.channels[name] = channel
        return self.channels[name]

    # -- receiving ---------------------------------------------------------------------------------------------------

    def receive(self, frame: Frame) -> None:
        etag = frame.id & ETAG_MASK
        found = self._by_etag[etag] if etag in self._by_etag else self._find(etag)
        if found is None:
            self.dropped["unknown event tag"] += 1
            return
        channel, bits = found
        node = frame.id >> NODE_SHIFT & 0x7F
        publisher = channel.publishers.get(node) or self._publisher(channel, node)
        if not publisher.agreed and not self._agrees_with(channel, publisher, node):
            return
        if publisher.segmented is None:
            self.dropped["publisher that did not say yet whether it segments"] += 1
            return
        payload = self._reassembler.receive(frame, self._context.now) if publisher.segmented else frame.data
        if payload:
            self._accept(channel, publisher, node, bits, payload, frame.id)
        elif payload is not None:
            self.dropped["empty"] += 1

    def _agrees_with(self, channel: RxChannel, publisher: SequenceTracker, node: int) -> bool:
        """Return whether a publisher's events may be decoded; counts one that may not."""
        agreed = True if self.agrees is None else self.agrees(node, channel.etag, self._context.now)
        publisher.agreed = agreed is True
        if agreed is False:
            self.dropped[f"{channel.name} of a node with another catalog"] += 1
        elif agreed is None:
            self.dropped["publisher that did not say yet what its events are"] += 1
        return publisher.agreed

    def doubt(self, node: int | None = None, etag: int | None = None) -> None:
        """Ask again whether publishers agree with the catalog: one that signed anew, or all after a change of it."""
        for channel in self.channels.values():
            if etag in (None, channel.etag):
                for number, publisher in channel.publishers.items():
                    if node in (None, number):
                        publisher.agreed = False

    def reads(self, name: str) -> bool:
        """Return whether a subscription accepts a type of the catalog."""
        return any(self._may_match(interest, name) for interest in self.interests)

    def tell_wrong_catalog(self, names: Iterable[str], node: int, reason: str, to: Interest | None = None) -> None:
        """Tell subscribers of these types, or one of them, that the events of a node contradict the catalog."""
        for name in names:
            asked = [each for each in self.interests if to in (None, each) and self._may_match(each, name)]
            self._report(asked, WrongCatalog(name, node, reason))

    def _publisher(self, channel: RxChannel, node: int) -> SequenceTracker:
        found = channel.publishers.get(node)
        if found is None:
            known = self._segmented.get((node, channel.etag), self._segmented.get((None, channel.etag)))
            segmented = _is_planned_segmented(channel, node) if known is None else known
            found = channel.publishers[node] = SequenceTracker(segmented=segmented)
        return found

    def _find(self, etag: int) -> tuple[RxChannel, int] | None:
        found = None
        name = None if self._catalog is None else self._catalog.type_of(etag)
        if name is not None and self._catalog is not None:
            try:
                cls = self._class_of(name)
                found = None if cls is None else (self._channel(name, cls), etag - self._catalog.etag(name))
            except GenusError as problem:
                self.dropped[f"unknown type {name}: {problem}"] += 1
        self._by_etag[etag] = found
        return found

    def _accept(
        self, channel: RxChannel, publisher: SequenceTracker, node: int, bits: int, payload: bytes, identifier: int
    ) -> None:
        gap = publisher.accept(payload[0] >> 5, payload, self._context.now, counting=channel.counts_losses)
        if gap < 0:
            self.dropped["repeated"] += 1
            return
        is_hard = not identifier >> PRIORITY_SHIFT
        if gap and not (is_hard and _is_periodic(channel)):
            self._report(channel.interests, EventsLost(channel.name, node, gap))
        event = channel.layout.decode(bits, payload)
        if isinstance(event, Rejected):
            self.dropped[f"not a {channel.name}: {event.reason}"] += 1
            return
        if unread_types:
            for name, value in unread_values(event).items():
                self.unread.note(channel.name, name, bytes(value), lambda: "the class here does not have it")
        if is_hard and channel.slot_receivers:
            self._keep_until_due(_of_node(channel.slot_receivers, node), event, identifier)
        else:
            self._deliver(channel, node, event, identifier)

    def _deliver_due(self, channel: RxChannel, node: int, kept: tuple[Event, int | None]) -> None:
        self._deliver(channel, node, *kept)

    def _deliver(self, channel: RxChannel, node: int | None, event: Event, identifier: int | None) -> None:
        if not channel.interests:
            return
        if self.observer is not None:
            self._context.call(self.observer, event, identifier)
        elif self._on_event is not None:
            self._context.call(self._on_event, event)
        if self.on_received is not None and node is not None:
            self._context.call(self.on_received, event, node)

    def loop_back(self, event: Event, *, slot: Slot | None = None) -> None:
        """Deliver an event that this node sent to its own subscribers; a hard one at the end of its slot."""
        cls = type(event)
        channel = self._own[cls] if cls in self._own else self._find_own(cls)
        if channel is None or not channel.interests:
            return
        if slot is not None and channel.slot_receivers:
            self._keep_until_due([each for each in channel.slot_receivers if each.slot is slot], event, None)
        else:
            self._deliver(channel, None, event, None)

    def _find_own(self, cls: type[Event]) -> RxChannel | None:
        name = name_of(cls)
        is_known = self._catalog is not None and name in self._catalog
        found = self._own[cls] = self._channel(name, cls) if is_known else None
        return found

    def compare(self, node: int, report: Report) -> None:
        """Compare a publisher's report with what was received, and report what is missing."""
        self.set_segmented(report.etag, report.segmented, node)
        name = None if self._catalog is None else self._catalog.type_of(report.etag)
        if name is None or not self.reads(name):
            return
        if self.agrees is not None and self.agrees(node, report.etag, self._context.now) is not True:
            return  # its events are not decoded, so they are not counted
        found = self._by_etag.get(report.etag) or self._find(report.etag)
        if found is not None and found[0].interests:
            channel = found[0]
            missing = self._publisher(channel, node).compare(report.sent, counting=channel.counts_losses)
            if missing > 0:
                self._report(channel.interests, EventsLost(channel.name, node, missing))

    def problems(self) -> Counter[str]:
        return self.dropped + Counter({f"segments: {reason}": n for reason, n in self._reassembler.counts.items()})

    # -- hard --------------------------------------------------------------------------------------------------------

    def _keep_until_due(self, receivers: Iterable[SlotReceiver], event: Event, identifier: int | None) -> None:
        if not self._dispatcher.running:
            self.dropped["hard, while the clock is not good enough"] += 1
            return
        instant = self._time.global_time(self._context.now)
        for receiver in receivers:
            occurrence = occurrence_at(receiver.slot, instant)
            if occurrence is not None:
                if not receiver.put((event, identifier), occurrence):
                    self.dropped["repeated"] += 1
                return
        self.dropped["hard, outside its slot"] += 1

    def _missing(self, channel: RxChannel, deadline: int) -> None:
        self._report(channel.interests, EventMissing(channel.name, deadline))

    # -- problems ----------------------------------------------------------------------------------------------------

    def _report(self, interests: Iterable[Interest], problem: DeliveryProblem) -> None:
        for handler, what in problem_calls(list(interests), problem):
            self._context.call(handler, what)

    def report_to_hard(self, problem: DeliveryProblem) -> None:
        """Call the problem handlers of those who receive hard events, each once."""
        hard = [channel for channel in self.channels.values() if channel.slot_receivers]
        self._report(dict.fromkeys(interest for channel in hard for interest in channel.interests), problem)


def _of_node(receivers: list[SlotReceiver], node: int) -> list[SlotReceiver]:
    """Return the slots of a class that belong to a node; all, where node numbers are not those of the plan.

    Several nodes may publish one class, each in its own slots: an event that is too late for one slot is not for the
    next one.
    """
    return [receiver for receiver in receivers if receiver.slot.number == node] or receivers


def _is_periodic(channel: RxChannel) -> bool:
    """Return whether a slot of a class without an event is an alarm, so that its losses are told already."""
    return any(not receiver.slot.sporadic for receiver in channel.slot_receivers)


def _is_planned_segmented(channel: RxChannel, node: int) -> bool | None:
    """Whether the calendar plans a node's hard events of a class in segments; known before the node reports it."""
    frames = [receiver.slot.frames for receiver in channel.slot_receivers if receiver.slot.number == node]
    return max(frames) > 1 if frames else None
