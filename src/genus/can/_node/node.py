"""`Node`: the middleware of one participant, as a machine without I/O (COSMIC's event channel handler).

It gets itself a number, binds the channels it announces and subscribes to, synchronises its clock with the bus, and
carries events: hard ones in the slots of the calendar, soft ones by their deadlines, others when the bus is free.
The simulator and the live driver run the same code.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Protocol

from genus.bus.types import QoS
from genus.can._machine import Output
from genus.can._node.channels import Announcement, Interest, NodeCounts, Report
from genus.can._node.membership import Membership
from genus.can._node.problems import (
    BusOff,
    ErrorActive,
    ErrorPassive,
    HardResumed,
    HardStopped,
    NotConfirmed,
    ProblemHandler,
)
from genus.can._node.rx import Receiver
from genus.can._node.slots import BusTime, ErrorState, OwnTime, SlotDispatcher, SlotSender
from genus.can._node.tx import Transmitter
from genus.can._node.tx_queue import Context
from genus.can._plan.calendar import Slot
from genus.can._protocol.broker_tables import EtagSource, MemoryEtags
from genus.can._protocol.clock_model import SYNC_PERIOD_NS, UNBOUNDED_PRECISION
from genus.can._protocol.time_service import FOLLOW_UP, SYNC, TimeService
from genus.can._wire.frame import (
    ETAG_MASK,
    FIRST_NODE,
    LAST_NODE,
    PRIORITY_SHIFT,
    RESERVED_ETAGS,
    Frame,
    ProtocolEtag,
    Timing,
)
from genus.catalog import Catalog
from genus.errors import BusError, GenusError
from genus.filters import Subscription
from genus.model import Event

NEVER = 1 << 62
"""A reading that no clock reaches."""


def _check_fixed_number(number: int, catalog: Catalog | None) -> None:
    """Raise BusError if a node cannot have this number, or lacks the catalog that no broker will give it."""
    if not FIRST_NODE <= number <= LAST_NODE:
        numbers = f"{FIRST_NODE} to {LAST_NODE}"
        raise BusError(f"the number of a node is {number}; give one from {numbers}, or none to get it from a broker")
    if catalog is None:
        raise BusError(
            f"node {number} has a number but no catalog: give both (catalog=FILE, made by `genus catalog register`), "
            "or leave out the number to get both from a broker"
        )


class _ErrorNotice(Enum):
    """What a node told last about the errors of its controller; stopped means that hard events are not promised."""

    NONE = 0
    PASSIVE = 1
    STOPPED = 2


class _Timed(Protocol):
    """A part of a node that has a timer."""

    @property
    def wake_at(self) -> int | None: ...
    def wake(self, now: int) -> None: ...


class Node:
    """A participant of a bus.

    With a `number` and a `catalog` a node is ready at once and needs no broker. Without a number it asks the broker for
    one under its `uid`, and binds its channels there; without a catalog it asks for that too. `etags` gives event tags
    to types of its own catalog that have none; they must be the same for all nodes of the bus. `slots` are the hard
    slots of the calendar; it sends in those whose node has this node's `name`. `on_event` is called once with every
    event whose class a subscription accepts; `on_notice` with the notices of the protocols. `granularity_ns` is how
    late or early the times of inputs may be: the time service reports its precision accordingly.
    """

    def __init__(
        self,
        uid: int,
        *,
        name: str = "",
        timing: Timing,
        catalog: Catalog | None = None,
        etags: EtagSource | None = None,
        number: int | None = None,
        slots: Iterable[Slot] = (),
        synchronised: bool = True,
        masterable: bool = True,
        sync_period_ns: int = SYNC_PERIOD_NS,
        granularity_ns: int = 100,
        banks: int | None = None,
        seed: int | None = None,
        on_event: Callable[[Event], object] | None = None,
        on_notice: Callable[[object], object] | None = None,
    ) -> None:
        if number is not None:
            _check_fixed_number(number, catalog)
        self.uid = uid
        self.name = name
        self._started = False
        self._claimed: set[int] = set()
        self._context = context = Context(timing)
        self.take: Callable[[], list[Output]] = context.take
        """Remove and return the outputs since the last call, in the order in which to handle them."""
        self._clock: TimeService | None = None
        if synchronised:
            self._clock = TimeService(
                send=context.queue.add_frame,
                notify=self._handle_clock_notice,
                node=lambda: self.number,
                period_ns=sync_period_ns,
                granularity_ns=granularity_ns,
                bit_ns=timing.bit_ns,
                masterable=masterable,
            )
        self.time: BusTime = self._clock or OwnTime()
        slots = tuple(slots)
        self._dispatcher = SlotDispatcher(self.time, self._stop_hard, self._resume_hard)
        self.rx = Receiver(slots, self.time, self._dispatcher, context, on_event)
        self._errors = ErrorState()
        self._told_errors = _ErrorNotice.NONE
        self.tx = Transmitter(name, slots, context, self._dispatcher, self.rx.loop_back, self._errors)
        self.tx.granularity_ns = granularity_ns
        self._membership = Membership(
            uid,
            context,
            self.tx,
            self.rx,
            on_notice,
            number=number,
            catalog=catalog,
            etags=etags or MemoryEtags(),
            banks=banks,
            seed=seed,
        )
        self._set_up_timers()

    def _set_up_timers(self) -> None:
        member = self._membership
        asking = (member.configuration, member.binding, member.questions)
        clock = () if self._clock is None else (self._clock,)
        first, last = (*asking, member.agreement), (self.tx.reporter, self.tx.recovery)
        self._timed: tuple[_Timed, ...] = (*first, *last)
        """The protocols but for the time service, whose timer changes with every SYNC."""
        self._in_order: tuple[_Timed, ...] = (*first, *clock, self._dispatcher, *last)
        """In this order they are woken at one instant."""
        self._others_at = NEVER
        """When the first timer of `_timed` is due."""
        self._is_time_changed = True
        """Whether the timers of the time service and the slots may be others."""
        self._protocols_at = NEVER
        """When the first timer of the protocols is due, with the time service."""
        self._slots_at: int | None = None
        """When a slot begins or ends next."""

    @property
    def number(self) -> int | None:
        return self._membership.number

    @property
    def catalog(self) -> Catalog | None:
        return self._membership.catalog

    @property
    def why_without_number(self) -> str:
        return self._membership.why_without_number

    @property
    def is_calendar_stopped(self) -> bool:
        """Whether it has slots that it cannot use, because its clock is not precise enough."""
        return self._dispatcher.is_stopped

    @property
    def has_frames(self) -> bool:
        return bool(self._context.queue.soft_waiting or self._context.queue.fixed_waiting)

    @property
    def notices(self) -> Counter[str]:
        return self._membership.notices

    def _begin(self, now: int) -> None:
        """Begin an input that may set timers of the protocols; others set the time alone, to save a call."""
        self._context.now, self._context.timers_changed = now, True

    # -- calls -------------------------------------------------------------------------------------------------------

    def start(self, now: int) -> None:
        self._begin(now)
        self._started = True
        if self._clock is not None:
            self._clock.listen(now)
        self._membership.start()

    def announce(
        self,
        cls: type[Event],
        qos: QoS,
        now: int,
        *,
        on_problem: ProblemHandler | None = None,
        carries: Iterable[str] = (),
    ) -> Announcement:
        """Prepare to publish a type; what cannot be kept is refused now or, once the broker answered, as a problem.

        `carries` names the context attributes (`time`, `place`, ...) that its events have, for the size of frames.
        """
        self._begin(now)
        known = self.tx.channels.get(cls)
        announcement = self.tx.announce(cls, qos, on_problem, carries)
        if known is None:
            try:
                self._membership.bind(announcement.channel)
            except GenusError:
                del self.tx.channels[cls]
                raise
        return announcement

    def publish(self, event: Event, now: int, *, loop_back: bool = True) -> tuple[int, bytes]:
        """Send an event of an announced type; this node's own subscribers get it when it was sent.

        Returns the event tag and the payload that are sent.
        """
        self._context.now = now
        return self.tx.publish(event, loop_back=loop_back)

    def withdraw(self, announcement: Announcement, now: int) -> None:
        self._begin(now)
        if self.tx.withdraw(announcement):
            self._membership.unbind(announcement.channel)

    def subscribe(self, subscription: Subscription, now: int, *, on_problem: ProblemHandler | None = None) -> Interest:
        """Receive events of the classes that a subscription accepts; `on_event` gets them."""
        self._begin(now)
        self._membership.register_classes(subscription)
        interest = Interest(subscription, on_problem)
        self.rx.add(interest)
        self._membership.add(interest)
        return interest

    def cancel(self, interest: Interest, now: int) -> None:
        self._begin(now)
        self.rx.remove(interest)
        self._membership.remove(interest)

    def use(self, catalog: Catalog, now: int) -> None:
        self._begin(now)
        self._membership.use(catalog)

    def close(self, now: int) -> None:
        """Withdraw all announcements, with final reports."""
        self._begin(now)
        for channel in list(self.tx.channels.values()):
            for announcement in list(channel.announcements):
                self.withdraw(announcement, now)

    def counts(self) -> NodeCounts:
        channels = self.rx.channels.values()
        clock = self._clock.dropped if self._clock is not None else Counter[str]()
        return NodeCounts(
            {channel.name: channel.counts for channel in self.tx.channels.values()},
            {channel.name: sum(each.received for each in channel.publishers.values()) for channel in channels},
            {channel.name: sum(each.lost for each in channel.publishers.values()) for channel in channels},
            self.rx.problems() + clock,
            dict(self.rx.unread),
        )

    # -- inputs ------------------------------------------------------------------------------------------------------

    def receive(self, frame: Frame, now: int) -> None:
        self._context.now = now
        if not self._started:
            return
        etag = frame.id & ETAG_MASK
        if etag >= RESERVED_ETAGS:
            self.rx.receive(frame)
            return
        if etag in (SYNC, FOLLOW_UP):
            if self._clock is not None:
                self._is_time_changed = True
                self._clock.receive(frame, now)
                self._dispatcher.watch(now)
            return
        self._context.timers_changed = True
        if etag == ProtocolEtag.REPORT:
            report = Report.parse(frame.data)
            if report is not None:
                self._membership.find_new_etags(report.etag)
                self.rx.compare(frame.node, report)
        elif etag == ProtocolEtag.ANNOUNCE:
            self._membership.receive_announcement(frame)
        else:
            if etag == ProtocolEtag.CLAIM and frame.node not in self._claimed:
                self._claimed.add(frame.node)
                self.tx.reporter.report_soon()
            self._membership.receive(frame)

    def sent(self, frame: Frame, now: int) -> None:
        self._context.now = now
        if frame.id >> PRIORITY_SHIFT == 0:
            self.tx.tell_slot(SlotSender.sent, frame, now)
            self._context.queue.frame_deferred()
            return
        if frame.id & ETAG_MASK < RESERVED_ETAGS:
            self._context.timers_changed = True
            if self._clock is not None:
                self._clock.sent(frame, now)
        self._context.queue.frame_sent(frame, now)

    def failed(self, frame: Frame, now: int) -> None:
        self._begin(now)
        if frame.id >> PRIORITY_SHIFT == 0:
            self.tx.tell_slot(SlotSender.failed, frame)
            self._context.queue.frame_deferred()
            return
        self._membership.configuration.failed(frame, now)
        self._context.queue.frame_deferred()
        self.tx.recovery.frame_failed(frame)

    def lost(self, now: int) -> None:
        self._context.now = now
        self._context.queue.frame_deferred()

    def taken(self, frame: Frame, now: int) -> None:
        self._context.now = now
        if frame.id >> PRIORITY_SHIFT:
            self._context.queue.frame_taken(frame, now)
        else:
            self.tx.tell_slot(SlotSender.taken, frame)

    def unconfirmed(self, frame: Frame, now: int, *, gone: bool, maybe_sent: bool = True) -> None:
        """A driver has not confirmed a frame in time."""
        self._begin(now)
        if not gone:
            self.tx.report_to_all(NotConfirmed(now))
        elif frame.id >> PRIORITY_SHIFT:
            self._context.queue.frame_gone(frame, now, maybe_sent=maybe_sent)
        elif maybe_sent:
            self.tx.tell_slot(SlotSender.lost_sight, frame)
        else:
            self.tx.tell_slot(SlotSender.dropped, frame)

    def error_passive(self, now: int, passive: bool) -> None:
        """The controller is error passive or may soon be, or is error active again: hard slots stop, or resume."""
        self._begin(now)
        self._errors.is_passive = passive
        self._check_errors()

    def bus_off(self, now: int) -> None:
        self._begin(now)
        self._context.queue.mailbox_emptied()
        self.tx.report_to_all(BusOff(now))
        self._errors.is_off = True
        self._check_errors()

    def bus_on(self, now: int) -> None:
        self._begin(now)
        self._errors.is_off = False
        self._check_errors()
        if self._clock is not None:
            self._clock.listen(now)
        self._membership.configuration.claim(now)
        self._context.queue.resume()

    @property
    def wake_at(self) -> int | None:
        context = self._context
        if context.timers_changed:
            context.timers_changed, self._is_time_changed = False, True
            self._others_at = NEVER
            for each in self._timed:
                at = each.wake_at
                if at is not None and at < self._others_at:
                    self._others_at = at
        if self._is_time_changed:
            self._is_time_changed = False
            at = None if self._clock is None else self._clock.wake_at
            self._protocols_at = self._others_at if at is None or at > self._others_at else at
            self._slots_at = self._dispatcher.wake_at
        found, slots_at, events_at = self._protocols_at, self._slots_at, context.queue.wake_at
        if slots_at is not None and slots_at < found:
            found = slots_at
        if events_at is not None and events_at < found:
            return events_at
        return None if found == NEVER else found

    def wake(self, now: int) -> None:
        """Handle the timers that are due; a live driver calls it also to say what time it is."""
        context = self._context
        context.now = now
        events_at, slots_at = context.queue.wake_at, self._slots_at
        if events_at is not None and events_at <= now:
            context.queue.wake(now)
        if not (context.timers_changed or self._is_time_changed) and self._protocols_at > now:
            if slots_at is not None and slots_at <= now:
                self._dispatcher.wake(now)
                self._slots_at = self._dispatcher.wake_at
            return
        context.timers_changed = True
        for each in self._in_order:
            at = each.wake_at
            if at is not None and at <= now:
                each.wake(now)

    # -- errors of the controller ------------------------------------------------------------------------------------

    def _check_errors(self) -> None:
        """Tell hard publishers and subscribers if the node stops or resumes to use its slots, or its state changed."""
        notice = _ErrorNotice.NONE
        if not self.tx.keeps_promises:
            notice = _ErrorNotice.STOPPED
        elif self._errors.is_passive:
            notice = _ErrorNotice.PASSIVE
        if notice is self._told_errors:
            return
        self._told_errors = notice
        now = self._context.now
        if notice is _ErrorNotice.NONE:
            self._report_hard(ErrorActive(now))
        else:
            self._report_hard(ErrorPassive(now, promised=notice is _ErrorNotice.PASSIVE))
            self.tx.recovery.start()

    # -- clock -------------------------------------------------------------------------------------------------------

    def _handle_clock_notice(self, notice: object) -> None:
        """The state of the clock changed: slots may start, or must stop."""
        self._context.timers_changed = True
        self._dispatcher.watch(self._context.now)
        self._membership.handle_notice(notice)

    def _stop_hard(self, precision: int, allowed: int) -> None:
        self._report_hard(HardStopped(None if precision >= UNBOUNDED_PRECISION else precision, allowed))

    def _resume_hard(self, precision: int) -> None:
        self._report_hard(HardResumed(precision))

    def _report_hard(self, problem: HardStopped | HardResumed | ErrorPassive | ErrorActive) -> None:
        self.tx.report_to_all(problem)
        self.rx.report_to_hard(problem)
