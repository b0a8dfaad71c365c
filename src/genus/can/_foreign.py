"""`ForeignMachine`: the frames of databases on a bus, alone or beside a Genus node, as a machine without I/O.

Alone it sends nothing but what the program publishes: a listener on a vehicle's bus must not disturb it. Beside a node
it has a mailbox of its own, and the identifier decides: frames of a database never get to the node, though their 29
bits may look like a node's.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from genus.bus import BestEffort, Publisher
from genus.bus.types import Keep, QoS
from genus.can._foreign_receiver import (
    NOTHING,
    Databases,
    Filters,
    ForeignInterest,
    ForeignReceiver,
    filters_of,
    fit_filters,
)
from genus.can._foreign_sender import ForeignAnnouncement, ForeignSender
from genus.can._machine import FOREIGN, Accept, Call, Load, Machine, Output
from genus.can._node.link import NodeDriver, log
from genus.can._node.problems import BusOff, NotConfirmed, ProblemHandler
from genus.can._node.tx_queue import TxQueue
from genus.can._wire.frame import Frame, Timing
from genus.errors import BusError
from genus.filters import Subscription
from genus.model import Event, name_of, nanoseconds
from genus.targets.can import Pair


class ForeignMachine:
    """The databases of a bus, and the node that shares it, if there is one.

    `banks` is how many acceptance filters the controller has, for both; with `echoes`, the frames that are published
    must pass them too. `on_event` is called with every event of a database that a subscription accepts. Without
    `cyclic`, cycle times of the databases are ignored.
    """

    def __init__(
        self,
        databases: Databases,
        timing: Timing,
        *,
        node: Machine | None = None,
        banks: int | None = None,
        echoes: bool = False,
        cyclic: bool = True,
        on_event: Callable[[Event], object] | None = None,
    ) -> None:
        self.databases = databases
        self.node = node
        fd = timing.data_bitrate is not None
        frame_ns = [timing.worst_case_ns(size, fd=fd) for size in range(65 if fd else 9)]
        self._queue = TxQueue(frame_ns, frame_ns[-1])
        self._outputs: list[Output] = []
        self._banks, self._echoes = banks, echoes
        self._node_filters: tuple[Pair, ...] = ()
        self._accepted: Filters | None = None
        self.rx = ForeignReceiver(databases, self._call, on_event)
        self.tx = ForeignSender(databases, self._queue, self._call, self.rx.loop_back, fd=fd, cyclic=cyclic)
        self._now = 0
        self._mine: list[Frame] = []
        """Frames that were loaded and are neither sent nor failed: the last of them is in the mailbox."""
        self._set_filters()

    # -- calls -------------------------------------------------------------------------------------------------------

    def subscribe(self, subscription: Subscription, now: int) -> ForeignInterest:
        self._now = now
        interest = self.rx.add(subscription)
        try:
            self._set_filters()
        except BusError:
            self.rx.remove(interest)
            raise
        return interest

    def cancel(self, interest: ForeignInterest, now: int) -> None:
        self._now = now
        self.rx.remove(interest)
        self._set_filters()

    def announce(
        self,
        cls: type[Event],
        period_ns: int | None,
        now: int,
        on_problem: ProblemHandler | None = None,
        *,
        is_implicit: bool = False,
    ) -> ForeignAnnouncement:
        self._now = now
        announcement = self.tx.announce(cls, period_ns, on_problem, is_implicit=is_implicit)
        try:
            self._set_filters()
        except BusError:
            self.tx.withdraw(announcement)
            raise
        return announcement

    def withdraw(self, announcement: ForeignAnnouncement, now: int) -> None:
        self._now = now
        self.tx.withdraw(announcement)

    def publish(self, event: Event, now: int, *, loop_back: bool = True) -> Frame:
        self._now = now
        return self.tx.publish(event, now, loop_back=loop_back)

    def close(self, now: int) -> None:
        """Send nothing any more but what waits."""
        self._now = now
        for channel in list(self.tx.channels.values()):
            for announcement in list(channel.announcements):
                self.tx.withdraw(announcement)

    def dropped(self) -> Counter[str]:
        cyclic = self.tx.cyclic
        sending = {
            "cyclic events replaced before they were sent": cyclic.replaced,
            "cyclic frames left out": cyclic.skipped,
        }
        return (
            self.rx.dropped
            + self.databases.incomplete
            + Counter({reason: times for reason, times in sending.items() if times})
        )

    # -- inputs ------------------------------------------------------------------------------------------------------

    def receive(self, frame: Frame, now: int) -> None:
        self._now = now
        if self.node is None or not frame.extended or self.rx.knows(frame):
            self.rx.receive(frame, now)
        else:
            self.node.receive(frame, now)

    def sent(self, frame: Frame, now: int) -> None:
        self._now = now
        if self._is_mine(frame):
            self._queue.frame_sent(frame, now)
            self._mine = [] if self._queue.loaded is None else [self._queue.loaded]
        elif self.node is not None:
            self.node.sent(frame, now)

    def failed(self, frame: Frame, now: int) -> None:
        self._now = now
        if self._is_mine(frame):
            self._queue.frame_deferred()
        elif self.node is not None:
            self.node.failed(frame, now)

    def lost(self, now: int) -> None:
        self._now = now
        self._queue.frame_deferred()
        if self.node is not None:
            self.node.lost(now)

    def taken(self, frame: Frame, now: int) -> None:
        self._now = now
        if self._is_mine(frame):
            self._queue.frame_taken(frame, now)
        elif self.node is not None:
            self.node.taken(frame, now)

    def unconfirmed(self, frame: Frame, now: int, *, gone: bool, maybe_sent: bool = True) -> None:
        self._now = now
        if self._is_mine(frame):
            if gone:
                self._queue.frame_gone(frame, now, maybe_sent=maybe_sent)
            else:
                self.tx.report_to_all(NotConfirmed(now))
        elif self.node is not None:
            self.node.unconfirmed(frame, now, gone=gone, maybe_sent=maybe_sent)

    def error_passive(self, now: int, passive: bool) -> None:
        self._now = now
        if self.node is not None:
            self.node.error_passive(now, passive)

    def bus_off(self, now: int) -> None:
        self._now = now
        self._mine.clear()
        self._queue.mailbox_emptied()
        self.tx.report_to_all(BusOff(now))
        if self.node is not None:
            self.node.bus_off(now)

    def bus_on(self, now: int) -> None:
        self._now = now
        self._queue.resume()
        if self.node is not None:
            self.node.bus_on(now)

    @property
    def wake_at(self) -> int | None:
        own = self.tx.wake_at if self.tx.channels or self.tx.broadcasts.waiting else None
        other = None if self.node is None else self.node.wake_at
        return other if own is None else own if other is None else min(own, other)

    def wake(self, now: int) -> None:
        self._now = now
        if self.tx.channels or self.tx.broadcasts.waiting:
            self.tx.wake(now)
        if self.node is not None and (at := self.node.wake_at) is not None and at <= now:
            self.node.wake(now)

    def take(self) -> list[Output]:
        if self.node is not None:
            for output in self.node.take():
                if isinstance(output, Accept):
                    self._node_filters = tuple(Pair(*pair) for pair in output.filters)
                    self._set_filters()
                else:
                    self._outputs.append(output)
        if self._queue.changed and self._queue.update(self._now):
            loaded = self._queue.loaded
            self._mine += [] if loaded is None else [loaded]
            self._outputs.append(Load(FOREIGN, loaded))
        outputs, self._outputs = self._outputs, []
        return outputs

    # -- within ------------------------------------------------------------------------------------------------------

    def _is_mine(self, frame: Frame) -> bool:
        return any(frame is each for each in self._mine)

    def _call(self, handler: Callable[..., object], *arguments: Any) -> None:
        self._outputs.append(Call(handler, arguments))

    def _set_filters(self) -> None:
        sent = [channel.layout for channel in self.tx.channels.values()] if self._echoes else []
        own = filters_of([*self.rx.wanted_messages(), *sent])
        needed = Filters((*self._node_filters, *own.extended), own.standard)
        accepted = fit_filters(needed, self._banks, self.rx.unwanted) if any(needed) else NOTHING
        if accepted != self._accepted:
            self._accepted = accepted
            self._outputs.append(Accept(accepted.extended, accepted.standard))


# -- the link of a bus -------------------------------------------------------------------------------------------------

CLOSING_MARGIN_S, MAX_CLOSING_S = 0.5, 15.0
"""How long to wait for long messages when a bus is closed: what they take and this more; at most as the longest one."""


class DatabaseLink:
    def __init__(self, machine: ForeignMachine, driver: NodeDriver) -> None:
        self.machine = machine
        self.on_published: Callable[[Event], object] | None = None
        """Is called with each event that is published on a channel."""
        self._driver = driver
        self._is_open = True

    @property
    def types(self) -> Mapping[str, type]:
        return self.machine.databases.types

    def owns(self, cls: type) -> bool:
        return self.machine.databases.owns(cls)

    def matches(self, subscription: Subscription) -> bool:
        databases = self.machine.databases
        return any(map(databases.owns, subscription.types)) or any(databases.accepted_by(subscription))

    def announce(
        self, cls: type[Event], qos: QoS, on_problem: ProblemHandler | None, keep: Keep | None = None
    ) -> "DatabasePublisher":
        if keep is not None:
            raise BusError(f"{name_of(cls)} cannot be announced with keep=True: a CAN bus keeps no last values")
        if not isinstance(qos, BestEffort) or qos.priority:
            raise BusError(
                f"{name_of(cls)} cannot be announced with {qos}: its identifier is that of the database, and so is its "
                'priority; announce it with BestEffort(), or BestEffort(period="20ms") to send it again and again'
            )
        period_ns = None if qos.period is None else nanoseconds(qos.period)
        return DatabasePublisher(
            self, self._driver.call(lambda now: self.machine.announce(cls, period_ns, now, on_problem))
        )

    def withdraw(self, announcement: ForeignAnnouncement) -> None:
        if self._is_open:
            self._driver.call(lambda now: self.machine.withdraw(announcement, now))

    def publish(self, event: Event, *, loop_back: bool = True) -> None:
        self._driver.call(lambda now: self.machine.publish(event, now, loop_back=loop_back))
        if loop_back and self.on_published is not None:
            self.on_published(event)

    def pass_on(self, event: Event) -> None:
        cls = type(event)
        if cls not in self.machine.tx.channels:
            self._driver.call(lambda now: self.machine.announce(cls, None, now, is_implicit=True))
        self.publish(event, loop_back=False)

    def listen(self, subscription: Subscription) -> Callable[[], None]:
        interest = self._driver.call(lambda now: self.machine.subscribe(subscription, now))
        return partial(self._unlisten, interest)

    def _unlisten(self, interest: ForeignInterest) -> None:
        if self._is_open:
            self._driver.call(lambda now: self.machine.cancel(interest, now))

    def close(self) -> None:
        """Send nothing again from now on; what waits is still sent, for long messages at the pace of J1939."""
        self._driver.call(self.machine.close)
        self._is_open = False
        broadcasts = self.machine.tx.broadcasts
        seconds = min(broadcasts.left_ns / 1e9 + CLOSING_MARGIN_S, MAX_CLOSING_S)
        if not self._driver.wait_for(lambda: not len(broadcasts), seconds):
            log.warning("%d long messages were not sent when the bus was closed", len(broadcasts))

    def counters(self) -> dict[str, int]:
        return self._driver.call(lambda now: self._count())

    def _count(self) -> dict[str, int]:
        machine = self.machine
        received = {f"received: {name}": times for name, times in machine.rx.received.items()}
        sent = {f"sent: {name}": times for name, times in machine.tx.sent.items()}
        dropped = {f"dropped: {reason}": times for reason, times in machine.dropped().items()}
        unknown = {f"not confirmed: {name}": times for name, times in machine.tx.unknown.items()}
        parts = {"parts of long messages": machine.rx.parts} if machine.rx.parts else {}
        return {**received, **sent, **unknown, **parts, **dropped}


class DatabasePublisher(Publisher):
    publish: Callable[[Event], None]
    """Publish an event; this program's own subscribers get it when its frame was sent."""

    def __init__(self, link: DatabaseLink, announcement: ForeignAnnouncement) -> None:
        self._link, self._announcement = link, announcement
        self.publish = link.publish

    def withdraw(self) -> None:
        self._link.withdraw(self._announcement)
