"""The sending side of a node: announcements, publishing, and the counters and problems of what was published."""

from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial

from genus.bus import BestEffort, Hard, Soft
from genus.bus.types import QoS
from genus.can._node.channels import Announcement, ErrorRecovery, Reporter, TxChannel, problem_calls
from genus.can._node.problems import (
    BindingFailed,
    BusOff,
    DeadlineMissed,
    DeliveryProblem,
    ErrorPassive,
    Expired,
    MaybeSent,
    NodeIdLost,
    NotConfirmed,
    NotSent,
    ProblemHandler,
    WrongCatalog,
)
from genus.can._node.slots import ErrorState, SlotDispatcher, SlotSender
from genus.can._node.tx_queue import Context, OutgoingEvent
from genus.can._plan.calendar import Slot
from genus.can._plan.system import format_bound
from genus.can._wire.frame import Frame, Priority
from genus.catalog import Catalog
from genus.errors import BusError, EventError, QueueFull
from genus.model import Event, micros_of_time, name_of, nanoseconds

MAX_QUEUE = 1024
"""Soft events, and other frames, that may wait in a node."""


class Transmitter:
    """State: the channels a node publishes on."""

    def __init__(
        self,
        name: str,
        slots: Iterable[Slot],
        context: Context,
        dispatcher: SlotDispatcher,
        loop_back: Callable[..., None],
        errors: ErrorState,
    ) -> None:
        self.channels: dict[type, TxChannel] = {}
        self.granularity_ns = 0
        """How late the times of inputs may be."""
        self._name = name
        self._slots = [slot for slot in slots if slot.node == name]
        self._context = context
        self._dispatcher = dispatcher
        self._loop_back = loop_back
        self._errors = errors
        self.recovery = ErrorRecovery(context, self._needs_recovery)
        self.reporter = Reporter(context, self.channels.values)

    # -- announcing --------------------------------------------------------------------------------------------------

    def announce(
        self, cls: type[Event], qos: QoS, on_problem: ProblemHandler | None, carries: Iterable[str] = ()
    ) -> Announcement:
        """Open a channel for publishing; BusError for what can be refused without a broker."""
        if not (isinstance(cls, type) and issubclass(cls, Event) and cls is not Event):
            raise BusError(f"{cls!r} cannot be announced: a channel carries the events of one event type")
        channel = self.channels.get(cls)
        if channel is not None and channel.qos != qos:
            raise BusError(f"{name_of(cls)} is announced with {channel.qos}, not with {qos}; a channel has one quality")
        if channel is not None and (more := set(carries) - set(channel.carries)):
            raise BusError(f"{name_of(cls)} was announced before, without {', '.join(sorted(more))}")
        if channel is None:
            if isinstance(qos, Hard):
                self._slot_of(name_of(cls), qos)
            fd = self._context.fd
            channel = TxChannel(cls, qos, tuple(carries), 64 if fd else 8, fd=fd)
            self.channels[cls] = channel
        announcement = Announcement(channel, on_problem)
        channel.announcements.append(announcement)
        return announcement

    def fit(self, channel: TxChannel, catalog: Catalog) -> None:
        """Read a channel's layout from the catalog; BusError if the medium cannot keep its quality of service."""
        channel.use(catalog)
        if isinstance(channel.qos, Hard):
            slot = self._slot_of(channel.name, channel.qos)
            if channel.largest is None:
                raise BusError(f"{channel.name} has no largest size (text, bytes); a hard channel needs one")
            self._check_times(channel, slot)
            if channel.frames > slot.frames:
                raise BusError(
                    f"{channel.name} needs {channel.frames} frames; its slot has room for {slot.frames}. Plan again: "
                    "`genus can plan` names an attribute that makes it longer"
                )

    def _check_times(self, channel: TxChannel, slot: Slot) -> None:
        """BusError if as many frames as are planned take longer than was planned; a calendar names no bit rates."""
        needed = sum(self._context.queue.frame_ns[size] for size in channel.frame_sizes(channel.largest or 0))
        if channel.frames <= slot.frames and needed > slot.used_ns:
            raise BusError(
                f"{channel.name} takes {format_bound(needed)} of this bus, and {format_bound(slot.used_ns)} in the "
                "calendar: it was planned for other bit rates, or for shorter events"
            )

    def open(self, channel: TxChannel) -> None:
        """The channel is bound: it is ready once signature and first report were sent: what its events are, and how."""
        self.reporter.sign(channel, partial(self.reporter.report, channel, partial(self._ready, channel)))

    def _ready(self, channel: TxChannel, now: int) -> None:
        if channel.state != "binding" or self.channels.get(channel.cls) is not channel:
            return
        channel.state, channel.reason, channel.opened_at = "ready", "", now
        if isinstance(channel.qos, Hard):
            channel.slot_sender = SlotSender(
                self._slot_of(channel.name, channel.qos),
                self._context.load_hard,
                channel.render,
                partial(self._hard_sent, channel),
                partial(self._hard_failed, channel),
                commit=channel.commit,
                time=self._dispatcher.time,
                granularity_ns=self.granularity_ns,
                on_unknown=partial(self._hard_unknown, channel),
                fd=self._context.fd,
                errors=self._errors,
            )
            channel.slot_sender.number = self._context.queue.number
            self._dispatcher.join(channel.slot_sender, now)
            if self._errors.is_passive:
                self._report(channel.announcements, ErrorPassive(now, promised=self.keeps_promises))
                self.recovery.start()

    def refuse(self, channel: TxChannel, reason: str) -> None:
        self._leave_calendar(channel)
        channel.state, channel.reason = "refused", reason
        self._report(channel.announcements, BindingFailed(channel.name, reason))

    def withdraw(self, announcement: Announcement) -> bool:
        """End an announcement; returns whether it was the last one, with which the channel closes.

        What was published before is still sent, but for hard events that wait for their slot, and then a final report.
        The last publisher still gets the problems of its events.
        """
        channel = announcement.channel
        if announcement not in channel.announcements or channel.reason == "withdrawn":
            return False
        if len(channel.announcements) > 1:
            channel.announcements.remove(announcement)
            return False
        self.channels.pop(channel.cls, None)
        self._leave_calendar(channel)
        was_ready, channel.state, channel.reason = channel.state == "ready", "refused", "withdrawn"
        if was_ready:
            self._report_last(channel)
        return True

    def suspend(self, reason: str) -> None:
        """Send nothing until the channels are bound again: the node has no number."""
        self.recovery.stop()
        for channel in self.channels.values():
            self._leave_calendar(channel)
            channel.reporting = channel.signing = False
            if channel.state == "ready":
                channel.state, channel.reason = "binding", reason

    def renumber(self, number: int) -> None:
        self._context.queue.number = number
        for channel in self.channels.values():
            if channel.slot_sender is not None:
                channel.slot_sender.number = number

    def _leave_calendar(self, channel: TxChannel) -> None:
        if channel.slot_sender is not None:
            channel.slot_sender.leave()
            self._dispatcher.leave(channel.slot_sender)
            channel.slot_sender = None

    def _slot_of(self, name: str, qos: Hard) -> Slot:
        slots = [slot for slot in self._slots if slot.event == name]
        period = nanoseconds(qos.period)
        if not slots:
            whose = f"node {self._name!r}" if self._name else "a node without a name"
            raise BusError(f"the calendar has no slot for {name} of {whose}; plan one with `genus can plan`")
        for slot in slots:
            if slot.period_ns == period and slot.omissions >= qos.omissions and slot.sporadic == qos.sporadic:
                return slot
        planned = " or ".join(_contract(slot.period_ns, slot.omissions, slot.sporadic) for slot in slots)
        raise BusError(
            f"the calendar has {name} {planned}, not {_contract(period, qos.omissions, qos.sporadic)}; "
            "announce it as planned, or change the plan"
        )

    # -- publishing --------------------------------------------------------------------------------------------------

    def publish(self, event: Event, *, loop_back: bool = True) -> tuple[int, bytes]:
        """Send an event by its channel's quality of service; returns its event tag and payload."""
        channel = self.channels.get(type(event))
        if channel is None or channel.state != "ready":
            raise BusError(_why_not_ready(type(event), channel))
        assert channel.layout is not None, "a channel that is ready has the layout of its catalog"
        bits, payload = channel.layout.encode(event, 0)
        if len(payload) > channel.capacity and not channel.segmented:
            raise EventError(channel.describe_excess(event, len(payload)))
        etag = channel.etag | bits
        if channel.slot_sender is not None:
            self._check_pace(channel, channel.slot_sender.slot)
            channel.counts.replaced += channel.slot_sender.write(event, etag, payload, self._context.now)
            channel.counts.published += 1
        else:
            self._enqueue(channel, event, etag, payload, loop_back)
        return etag, payload

    def _check_pace(self, channel: TxChannel, slot: Slot) -> None:
        """Refuse a sporadic event that comes too soon after the last; the gap allows for the errors of clocks."""
        if not slot.sporadic:
            return
        instant = self._dispatcher.time.global_time(self._context.now)
        if channel.published_at is not None and 0 <= instant - channel.published_at < slot.period_ns - slot.gap_ns:
            since = format_bound(instant - channel.published_at)
            raise BusError(
                f"{channel.name} was published {since} ago; its sporadic channel has room for an event every "
                f"{format_bound(slot.period_ns)}: publish later, or plan a shorter period"
            )
        channel.published_at = instant

    def _enqueue(self, channel: TxChannel, event: Event, etag: int, payload: bytes, loop_back: bool) -> None:
        queue, is_soft = self._context.queue, isinstance(channel.qos, Soft)
        if (queue.soft_waiting if is_soft else queue.fixed_waiting) >= MAX_QUEUE:
            problem = QueueFull(f"{MAX_QUEUE} events wait in this node; {channel.name} must be published slower")
            problem.queue = queue
            raise problem
        on_sent, on_dropped = partial(self._sent, channel, event, loop_back), partial(self._dropped, channel, event)
        sizes = channel.frame_sizes(len(payload))
        outgoing = OutgoingEvent(channel, etag, payload, sizes, on_sent, on_dropped, self._context.fd)
        outgoing.on_unknown = partial(self._unknown, channel, event, loop_back)
        channel.counts.published += 1
        channel.waiting += 1
        if is_soft:
            self._enqueue_soft(channel, event, outgoing, loop_back)
        else:
            outgoing.priority = Priority.BULK if channel.qos == BestEffort(priority=1) else Priority.NONE
            queue.add_fixed(outgoing)

    def _enqueue_soft(self, channel: TxChannel, event: Event, outgoing: OutgoingEvent, loop_back: bool) -> None:
        now = self._context.now
        outgoing.deadline = now + channel.deadline_ns if event.deadline is None else self._local_time(event.deadline)
        if event.expires is not None:
            outgoing.expires = self._local_time(event.expires)
        elif channel.expires_ns is not None:
            outgoing.expires = now + channel.expires_ns
        outgoing.on_missed = partial(self._missed, channel, event, outgoing.deadline)
        if outgoing.expires is not None:
            outgoing.most_lead = (outgoing.expires - now) // 2
            outgoing.on_sent_expired = partial(self._sent_expired, channel, event, loop_back, outgoing.expires)
            outgoing.on_expired = partial(self._expired, channel, event, outgoing.expires)
            if outgoing.expires <= now:
                return outgoing.on_expired()
        self._context.queue.add_soft(outgoing)

    def _local_time(self, time: datetime) -> int:
        """Return the reading of the node's clock at a time of day; the bus's time is the time of day."""
        return self._dispatcher.time.local_time(1000 * micros_of_time(time))

    # -- what became of events ---------------------------------------------------------------------------------------

    def _sent(self, channel: TxChannel, event: Event, loop_back: bool, now: int) -> None:
        channel.counts.sent += 1
        if loop_back:
            self._loop_back(event)
        self._leave_queue(channel)

    def _sent_expired(self, channel: TxChannel, event: Event, loop_back: bool, expired: int, now: int) -> None:
        """An event that expired on the wire or in the driver was sent all the same."""
        channel.counts.sent_expired += 1
        self._sent(channel, event, loop_back, now)
        self._report(channel.announcements, Expired(channel.name, event, expired, sent=True))

    def _unknown(self, channel: TxChannel, event: Event, loop_back: bool) -> None:
        channel.counts.unknown += 1
        if loop_back:
            self._loop_back(event)
        self._leave_queue(channel)
        self._report(channel.announcements, MaybeSent(channel.name, event))

    def _leave_queue(self, channel: TxChannel) -> None:
        """An event waits no more; after the last one of a channel that was withdrawn comes its final report."""
        channel.waiting -= 1
        if channel.reason == "withdrawn":
            self._report_last(channel)

    def _report_last(self, channel: TxChannel) -> None:
        """Send the final report of a channel that was withdrawn, when none of its events wait any more."""
        if not channel.waiting:
            self.reporter.report(channel)

    def _dropped(self, channel: TxChannel, event: Event) -> None:
        channel.counts.failed += 1
        channel.waiting -= 1
        self._report(channel.announcements, NotSent(channel.name, event, 0))

    def _missed(self, channel: TxChannel, event: Event, deadline: int) -> None:
        channel.counts.missed += 1
        self._report(channel.announcements, DeadlineMissed(channel.name, event, deadline))

    def _expired(self, channel: TxChannel, event: Event, expired: int) -> None:
        channel.counts.expired += 1
        self._leave_queue(channel)
        self._report(channel.announcements, Expired(channel.name, event, expired))

    def _hard_sent(self, channel: TxChannel, event: Event, missed: int | None) -> None:
        """A hard event was sent, in its slot, or after the deadline that it missed by this node's clock."""
        channel.counts.sent += 1
        if missed is not None:
            self._missed(channel, event, missed)
        self._loop_back(event, slot=None if channel.slot_sender is None else channel.slot_sender.slot)

    def _hard_failed(self, channel: TxChannel, event: Event, attempts: int) -> None:
        channel.counts.failed += 1
        if isinstance(channel.qos, Hard) and channel.qos.sporadic and channel.state == "ready":
            channel.commit()  # its subscribers expect nothing in this slot: the number and a report tell them
            self.reporter.report(channel)
        self._report(channel.announcements, NotSent(channel.name, event, attempts))

    def _hard_unknown(self, channel: TxChannel, event: Event) -> None:
        channel.counts.unknown += 1
        self._report(channel.announcements, MaybeSent(channel.name, event))

    def tell_slot(self, step: Callable[..., bool], frame: Frame, *now: int) -> None:
        """Call a method of `SlotSender` with a frame of priority 0, until the slot is found that has it."""
        for channel in self.channels.values():
            if channel.slot_sender is not None and step(channel.slot_sender, frame, *now):
                return

    # -- errors of the controller ------------------------------------------------------------------------------------

    @property
    def keeps_promises(self) -> bool:
        """Whether the node has few enough errors for all its hard slots."""
        senders = (channel.slot_sender for channel in self.channels.values())
        return all(sender is None or self._errors.allows(sender.slot) for sender in senders)

    def _needs_recovery(self) -> bool:
        """Return whether the controller has too many errors for a node with hard channels."""
        return self._errors.is_passive and any(channel.slot_sender is not None for channel in self.channels.values())

    # -- problems ----------------------------------------------------------------------------------------------------

    def tell_wrong_catalog(self, channel: TxChannel, node: int, reason: str) -> None:
        """Tell the publishers of a channel, once for each node, that this node has another catalog."""
        if node not in channel.objectors:
            channel.objectors.add(node)
            self._report(channel.announcements, WrongCatalog(channel.name, node, reason))

    def _report(self, announcements: Iterable[Announcement], problem: DeliveryProblem) -> None:
        for handler, what in problem_calls(list(announcements), problem):
            self._context.call(handler, what)

    def report_to_all(self, problem: DeliveryProblem) -> None:
        """Call the problem handlers of all publishers, or of the hard ones if it is about the calendar."""
        for channel in self.channels.values():
            if isinstance(problem, BusOff | NodeIdLost | NotConfirmed) or isinstance(channel.qos, Hard):
                self._report(channel.announcements, problem)


def _contract(period_ns: int, omissions: int, sporadic: bool) -> str:
    return f"{'sporadic, at most ' if sporadic else ''}every {period_ns} ns with {omissions} omissions"


def _why_not_ready(cls: type, channel: TxChannel | None) -> str:
    name = cls.__name__
    if channel is None:
        return f"{name} was not announced on this node; announce its channel first"
    if channel.state == "binding" and not channel.reason:
        return f"{name} is not bound yet; publish when its announcement is ready"
    return f"{name} cannot be published: {channel.reason}"
