"""The databases of a bus as a part of its link: publishing and subscribing to their types."""

from collections.abc import Callable, Mapping
from functools import partial

from genus.bus import BestEffort, Publisher
from genus.bus.types import Keep, QoS
from genus.can._foreign.machine import ForeignMachine
from genus.can._foreign.receiver import ForeignInterest
from genus.can._foreign.sender import ForeignAnnouncement
from genus.can._node.link import NodeDriver, log
from genus.can._node.problems import ProblemHandler
from genus.errors import BusError
from genus.filters import Subscription
from genus.model import Event, name_of, nanoseconds

CLOSING_MARGIN_S, MAX_CLOSING_S = 0.5, 15.0
"""How long to wait for long messages when a bus is closed: what they take and this more; at most as the longest one."""


class DatabaseLink:
    """State: the announcements and subscriptions of a program for the types of databases."""

    def __init__(self, machine: ForeignMachine, driver: NodeDriver) -> None:
        self.machine = machine
        self.on_published: Callable[[Event], object] | None = None
        """Is called with each event that is published on a channel."""
        self._driver = driver
        self._is_open = True

    @property
    def types(self) -> Mapping[str, type]:
        """The kinds and event types of the databases, by name."""
        return self.machine.databases.types

    def owns(self, cls: type) -> bool:
        """Return whether a class is a type of a database, by its name."""
        return self.machine.databases.owns(cls)

    def matches(self, subscription: Subscription) -> bool:
        """Return whether events of a database can match a subscription."""
        databases = self.machine.databases
        return any(map(databases.owns, subscription.types)) or any(databases.accepted_by(subscription))

    def announce(
        self, cls: type[Event], qos: QoS, on_problem: ProblemHandler | None, keep: Keep | None = None
    ) -> "DatabasePublisher":
        """Prepare to publish a type of a database; BusError if the medium cannot keep what is asked."""
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
        """End an announcement."""
        if self._is_open:
            self._driver.call(lambda now: self.machine.withdraw(announcement, now))

    def publish(self, event: Event, *, loop_back: bool = True) -> None:
        """Publish on an announced channel; EventError names the signal that cannot be encoded."""
        self._driver.call(lambda now: self.machine.publish(event, now, loop_back=loop_back))
        if loop_back and self.on_published is not None:
            self.on_published(event)

    def pass_on(self, event: Event) -> None:
        """Publish an event of a type that is announced if it was not yet."""
        cls = type(event)
        if cls not in self.machine.tx.channels:
            self._driver.call(lambda now: self.machine.announce(cls, None, now, is_implicit=True))
        self.publish(event, loop_back=False)

    def listen(self, subscription: Subscription) -> Callable[[], None]:
        """Let the frames that a subscription can match pass the acceptance filters; returns a function to end it."""
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
        """Events received and frames sent, by type, and frames that became no events, by reason."""
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
    """Handle for publishing one type of a database."""

    publish: Callable[[Event], None]
    """Publish an event; this program's own subscribers get it when its frame was sent."""

    def __init__(self, link: DatabaseLink, announcement: ForeignAnnouncement) -> None:
        self._link, self._announcement = link, announcement
        self.publish = link.publish

    def withdraw(self) -> None:
        """Publish no more, and send nothing again."""
        self._link.withdraw(self._announcement)
