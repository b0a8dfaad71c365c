"""`Node`: the middleware of one participant, as a machine without I/O (COSMIC's event channel handler).

It gets itself a number, binds the channels it announces and subscribes to, keeps its clock by the bus's, and carries
events: hard ones when the calendar says so, soft ones by their deadlines, the rest when nothing else wants the bus.
The simulator and the live driver run the same code.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from genus.bus._qos import QoS
from genus.can._machine import Output
from genus.can._node.channels import Announcement, NodeCounts, Subscriber
from genus.can._node.context import Desk
from genus.can._node.membership import RESERVED_ETAGS, Membership
from genus.can._node.reports import Report
from genus.can._node.rx import Receiving
from genus.can._node.slots import BusTime, Dispatcher, OwnTime
from genus.can._node.troubles import HardResumed, HardStopped, OffTheBus, TroubleHandler
from genus.can._node.tx import Publishing
from genus.can._plan.calendar import Slot
from genus.can._protocol.clock_model import UNBOUNDED_PRECISION
from genus.can._protocol.time_service import TimeService
from genus.can._wire.frame import ETAG_MASK, FIRST_NODE, LAST_NODE, Frame, ProtocolEtag
from genus.can._wire.length import Timing
from genus.catalog import Catalog
from genus.errors import BusError, GenusError
from genus.filters import Subscription
from genus.model import Event

SYNC_PERIOD_NS = 20_000_000
"""How often clocks are synchronised; the same for all nodes of a bus."""


class _Timed(Protocol):
    """A part of a node that wants to be woken."""

    @property
    def wake_at(self) -> int | None: ...

    def wake(self, now: int) -> None: ...


class Node:
    """A participant of a bus.

    With a `number` and a `catalog` a node is ready at once and needs no broker. Without a number it asks the broker for
    one under its `uid`, and binds its channels there; without a catalog it asks for that too. `slots` are the hard
    slots of the calendar; those whose node has this node's `name` are its own to send in. `on_event` gets every
    event that a subscription may want, once; `on_notice` is told how the node fares. `granularity_ns` is how late or
    early the times may be that the node is told: the time service reports its precision accordingly.
    """

    def __init__(
        self,
        uid: int,
        *,
        name: str = "",
        timing: Timing,
        catalog: Catalog | None = None,
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
        if number is not None and (catalog is None or not FIRST_NODE <= number <= LAST_NODE):
            raise BusError(f"node {number} needs a catalog, and a number in {FIRST_NODE}..{LAST_NODE}")
        self.uid = uid
        self.name = name
        self._started = False
        self._heard: set[int] = set()
        self._desk = desk = Desk(timing)
        self._clock: TimeService | None = None
        if synchronised:
            self._clock = TimeService(
                send=desk.post,
                notify=self._heed,
                node=lambda: self.number,
                period_ns=sync_period_ns,
                granularity_ns=granularity_ns,
                bit_ns=timing.bit_ns,
                masterable=masterable,
            )
        self.time: BusTime = self._clock or OwnTime()
        slots = tuple(slots)
        self._dispatcher = Dispatcher(self.time, self._stop_hard, self._resume_hard)
        self.receiving = Receiving(slots, self.time, self._dispatcher, desk.call, on_event)
        self.publishing = Publishing(name, timing, slots, desk, self._dispatcher, self.receiving.loop_back)
        self._membership = Membership(
            uid,
            desk,
            self.publishing,
            self.receiving,
            on_notice,
            number=number,
            catalog=catalog,
            banks=banks,
            seed=seed,
        )
        asking = (self._membership.configuration, self._membership.binding, self._membership.questions)
        timed = (*asking, self._clock, self._dispatcher, self.publishing.reporter)
        self._timed: list[_Timed] = [each for each in timed if each is not None]

    @property
    def number(self) -> int | None:
        """The node's number; None until it has one."""
        return self._membership.number

    @property
    def catalog(self) -> Catalog | None:
        """The catalog it reads event tags by; None until it has one."""
        return self._membership.catalog

    @property
    def notices(self) -> Counter[str]:
        """What the protocols told, by kind."""
        return self._membership.notices

    # -- calls -------------------------------------------------------------------------------------------------------

    def start(self, now: int) -> None:
        """Take part in the bus from now on."""
        self._desk.now, self._started = now, True
        if self._clock is not None:
            self._clock.listen(now)
        self._membership.start()

    def announce(
        self,
        cls: type[Event],
        qos: QoS,
        now: int,
        *,
        on_trouble: TroubleHandler | None = None,
        carries: Iterable[str] = (),
    ) -> Announcement:
        """Get leave to publish a type; what cannot be kept is refused, now or, once the broker answered, as a trouble.

        `carries` names the context attributes (`time`, `place`, ...) that its events have, for the size of frames.
        """
        self._desk.now = now
        known = self.publishing.channels.get(cls)
        announcement = self.publishing.announce(cls, qos, on_trouble, carries)
        if known is None:
            try:
                self._membership.bind(announcement.channel)
            except GenusError:
                del self.publishing.channels[cls]
                raise
        return announcement

    def publish(self, event: Event, now: int, *, loop_back: bool = True) -> None:
        """Send an event of an announced type; this node's own subscribers get it when it was sent."""
        self._desk.now = now
        self.publishing.publish(event, now, loop_back=loop_back)

    def withdraw(self, announcement: Announcement, now: int) -> None:
        """Publish no more under an announcement."""
        self._desk.now = now
        if self.publishing.withdraw(announcement):
            self._membership.unbind(announcement.channel)

    def subscribe(
        self,
        subscription: Subscription,
        handler: Callable[[Any], object] | None,
        now: int,
        *,
        on_trouble: TroubleHandler | None = None,
    ) -> Subscriber:
        """Call a handler with what matches; without one, just let what matches pass the filters to `on_event`."""
        self._desk.now = now
        self._membership.recognise(subscription)
        subscriber = self.receiving.subscribe(subscription, handler, on_trouble, now)
        self._membership.want(subscriber)
        return subscriber

    def cancel(self, subscriber: Subscriber, now: int) -> None:
        """Deliver to a subscriber no more."""
        self._desk.now = now
        self.receiving.cancel(subscriber)
        self._membership.want_no_more(subscriber)

    def use(self, catalog: Catalog, now: int) -> None:
        """Go on with a catalog that is new, or has grown."""
        self._desk.now = now
        self._membership.use(catalog)

    def close(self, now: int) -> None:
        """Withdraw everything that was announced, with final reports."""
        self._desk.now = now
        for channel in list(self.publishing.channels.values()):
            for announcement in list(channel.announcements):
                self.withdraw(announcement, now)

    def counts(self) -> NodeCounts:
        """What was sent, received, lost and dropped."""
        routes = self.receiving.routes.values()
        clock = self._clock.dropped if self._clock is not None else Counter[str]()
        return NodeCounts(
            {channel.name: channel.counts for channel in self.publishing.channels.values()},
            {route.name: sum(each.received for each in route.receptions.values()) for route in routes},
            {route.name: sum(each.lost for each in route.receptions.values()) for route in routes},
            self.receiving.problems() + clock,
        )

    # -- inputs ------------------------------------------------------------------------------------------------------

    def receive(self, frame: Frame, now: int) -> None:
        """A frame of another node has ended."""
        self._desk.now = now
        if not self._started:
            return
        etag = frame.id & ETAG_MASK
        if etag >= RESERVED_ETAGS:
            self.receiving.receive(frame, now)
        elif etag in (ProtocolEtag.SYNC, ProtocolEtag.FOLLOW_UP):
            if self._clock is not None:
                self._clock.receive(frame, now)
                self._dispatcher.watch(now)
        elif etag == ProtocolEtag.REPORT:
            report = Report.parse(frame.data)
            if report is not None:
                self.receiving.report(frame.node, report)
        elif etag == ProtocolEtag.ANNOUNCE:
            self._membership.heard_announcement(frame)
        else:
            if etag == ProtocolEtag.CLAIM and frame.node not in self._heard:
                self._heard.add(frame.node)
                self.publishing.reporter.report_soon()
            self._membership.receive(frame)

    def sent(self, frame: Frame, now: int) -> None:
        """A frame of this node went through."""
        self._desk.now = now
        if frame.priority == 0:
            self.publishing.hard_sent(frame, now)
            return
        if self._clock is not None and frame.etag < RESERVED_ETAGS:
            self._clock.sent(frame, now)
        self._desk.outbox.sent(frame, now)

    def failed(self, frame: Frame, now: int) -> None:
        """A frame of this node was corrupted."""
        self._desk.now = now
        if frame.priority == 0:
            self.publishing.hard_attempt_failed(frame)
            return
        self._membership.configuration.failed(frame, now)
        self._desk.outbox.promote(now)

    def lost(self, now: int) -> None:
        """Another frame won the bus."""
        self._desk.now = now
        self._desk.outbox.promote(now)

    def bus_off(self, now: int) -> None:
        """The controller is off the bus."""
        self._desk.now = now
        self._desk.outbox.emptied()
        self.publishing.tell_all(OffTheBus(now))

    def bus_on(self, now: int) -> None:
        """The controller is back."""
        self._desk.now = now
        if self._clock is not None:
            self._clock.listen(now)
        self._membership.configuration.claim(now)
        self._desk.outbox.resume(now)

    @property
    def wake_at(self) -> int | None:
        """When something is to be done without a frame."""
        found = self._desk.outbox.wake_at
        for each in self._timed:
            at = each.wake_at
            if at is not None and (found is None or at < found):
                found = at
        return found

    def wake(self, now: int) -> None:
        """Do what is due."""
        self._desk.now = now
        self._desk.outbox.wake(now)
        for each in self._timed:
            at = each.wake_at
            if at is not None and at <= now:
                each.wake(now)

    def take(self) -> list[Output]:
        """What is to be done, in order."""
        return self._desk.take()

    # -- telling -----------------------------------------------------------------------------------------------------

    def _heed(self, notice: object) -> None:
        """The clock tells something: slots may start, or must stop."""
        self._dispatcher.watch(self._desk.now)
        self._membership.heed(notice)

    def _stop_hard(self, precision: int, allowed: int) -> None:
        self._tell_hard(HardStopped(None if precision >= UNBOUNDED_PRECISION else precision, allowed))

    def _resume_hard(self, precision: int) -> None:
        self._tell_hard(HardResumed(precision))

    def _tell_hard(self, trouble: HardStopped | HardResumed) -> None:
        self.publishing.tell_all(trouble)
        self.receiving.tell_hard(trouble)
