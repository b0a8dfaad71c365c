"""`ForeignMachine`: the frames of databases on a bus, alone or beside a Genus node, as a machine without I/O.

Alone it sends nothing but what the program publishes: a listener on a vehicle's bus must not disturb it. Beside a node
it has a mailbox of its own, and the identifier decides: frames of a database never get to the node, though their 29
bits may look like a node's.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

from genus.can._foreign.databases import Databases
from genus.can._foreign.filters import NOTHING, Filters, filters_of, fit_filters
from genus.can._foreign.receiver import ForeignInterest, ForeignReceiver
from genus.can._foreign.sender import ForeignAnnouncement, ForeignSender
from genus.can._machine import FOREIGN, Accept, Call, Load, Machine, Output
from genus.can._node.problems import BusOff, NotConfirmed, ProblemHandler
from genus.can._node.tx_queue import TxQueue
from genus.can._wire.frame import Frame
from genus.can._wire.length import Timing
from genus.errors import BusError
from genus.filters import Subscription
from genus.model import Event
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
        """Receive the frames that a subscription can match; BusError if its classes cannot be used."""
        self._now = now
        interest = self.rx.add(subscription)
        try:
            self._set_filters()
        except BusError:
            self.rx.remove(interest)
            raise
        return interest

    def cancel(self, interest: ForeignInterest, now: int) -> None:
        """End a subscription."""
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
        """Prepare to publish a type of a database; see `ForeignSender.announce`."""
        self._now = now
        announcement = self.tx.announce(cls, period_ns, on_problem, is_implicit=is_implicit)
        try:
            self._set_filters()
        except BusError:
            self.tx.withdraw(announcement)
            raise
        return announcement

    def withdraw(self, announcement: ForeignAnnouncement, now: int) -> None:
        """End an announcement."""
        self._now = now
        self.tx.withdraw(announcement)

    def publish(self, event: Event, now: int, *, loop_back: bool = True) -> Frame:
        """Send an event; see `ForeignSender.publish`."""
        self._now = now
        return self.tx.publish(event, now, loop_back=loop_back)

    def close(self, now: int) -> None:
        """Send nothing any more but what waits."""
        self._now = now
        for channel in list(self.tx.channels.values()):
            for announcement in list(channel.announcements):
                self.tx.withdraw(announcement)

    def dropped(self) -> Counter[str]:
        """Counters of frames that became no events, and of cyclic frames that were not sent, by reason."""
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
        """A frame was received: of a database, or else the node's."""
        self._now = now
        if self.node is None or not frame.extended or self.rx.knows(frame):
            self.rx.receive(frame, now)
        else:
            self.node.receive(frame, now)

    def sent(self, frame: Frame, now: int) -> None:
        """A frame was sent."""
        self._now = now
        if self._is_mine(frame):
            self._queue.frame_sent(frame, now)
            self._mine = [] if self._queue.loaded is None else [self._queue.loaded]
        elif self.node is not None:
            self.node.sent(frame, now)

    def failed(self, frame: Frame, now: int) -> None:
        """A frame was corrupted."""
        self._now = now
        if self._is_mine(frame):
            self._queue.frame_deferred()
        elif self.node is not None:
            self.node.failed(frame, now)

    def lost(self, now: int) -> None:
        """Another frame won the arbitration."""
        self._now = now
        self._queue.frame_deferred()
        if self.node is not None:
            self.node.lost(now)

    def taken(self, frame: Frame, now: int) -> None:
        """A driver took a frame."""
        self._now = now
        if self._is_mine(frame):
            self._queue.frame_taken(frame, now)
        elif self.node is not None:
            self.node.taken(frame, now)

    def unconfirmed(self, frame: Frame, now: int, *, gone: bool, maybe_sent: bool = True) -> None:
        """A driver has not confirmed a frame in time."""
        self._now = now
        if self._is_mine(frame):
            if gone:
                self._queue.frame_gone(frame, now, maybe_sent=maybe_sent)
            else:
                self.tx.report_to_all(NotConfirmed(now))
        elif self.node is not None:
            self.node.unconfirmed(frame, now, gone=gone, maybe_sent=maybe_sent)

    def error_passive(self, now: int, passive: bool) -> None:
        """The controller is error passive, or active again."""
        self._now = now
        if self.node is not None:
            self.node.error_passive(now, passive)

    def bus_off(self, now: int) -> None:
        """The controller is off the bus."""
        self._now = now
        self._mine.clear()
        self._queue.mailbox_emptied()
        self.tx.report_to_all(BusOff(now))
        if self.node is not None:
            self.node.bus_off(now)

    def bus_on(self, now: int) -> None:
        """The controller is back on the bus."""
        self._now = now
        self._queue.resume()
        if self.node is not None:
            self.node.bus_on(now)

    @property
    def wake_at(self) -> int | None:
        """When the next timer is due."""
        own = self.tx.wake_at if self.tx.channels or self.tx.broadcasts.waiting else None
        other = None if self.node is None else self.node.wake_at
        return other if own is None else own if other is None else min(own, other)

    def wake(self, now: int) -> None:
        """Handle the timers that are due."""
        self._now = now
        if self.tx.channels or self.tx.broadcasts.waiting:
            self.tx.wake(now)
        if self.node is not None and (at := self.node.wake_at) is not None and at <= now:
            self.node.wake(now)

    def take(self) -> list[Output]:
        """Remove and return the outputs since the last call."""
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
        """Accept what is subscribed to of the databases, and what the node accepts."""
        sent = [channel.layout for channel in self.tx.channels.values()] if self._echoes else []
        own = filters_of([*self.rx.wanted_messages(), *sent])
        needed = Filters((*self._node_filters, *own.extended), own.standard)
        accepted = fit_filters(needed, self._banks, self.rx.unwanted) if any(needed) else NOTHING
        if accepted != self._accepted:
            self._accepted = accepted
            self._outputs.append(Accept(accepted.extended, accepted.standard))
