"""`NodeLink`: a node under a driver, as the link of a bus. The live driver and the simulator's are used alike."""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol, TypeVar

from genus.bus import BestEffort, Capabilities, Link, Publisher
from genus.bus.types import Clock, Keep, QoS, SlotTimes
from genus.can._node.channels import Announcement, Interest
from genus.can._node.node import Node
from genus.can._node.problems import BindingFailed, NodeIdLost, ProblemHandler, WrongCatalog
from genus.errors import BusError
from genus.filters import Subscription
from genus.model import Event, name_of

R = TypeVar("R")
log = logging.getLogger("genus.can")

Tap = Callable[[Event, int | None], object]
CLOSED = "the bus is closed"
BINDING_S = 5.0
"""How long a program waits for its number, the catalog and the binding of a channel."""


class NodeDriver(Protocol):
    """Runs a node: on a real bus, or in the simulator."""

    def call(self, action: Callable[[int], R]) -> R:
        """Call a function of the node with the reading of its clock, and do what the node then wants."""

    def wait_for(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Block until a condition holds, for at most so many seconds; returns whether it holds."""

    def counters(self) -> Mapping[str, int]: ...
    def close(self) -> None: ...


class NodeLink(Link):
    """A link whose medium is a CAN bus; subclasses make the node and its driver in `open`."""

    capabilities = Capabilities(tap=True)

    def __init__(self) -> None:
        self._node: Node | None = None
        self._driver: NodeDriver | None = None
        self._clock: Clock | None = None
        self._publishers: dict[NodePublisher, None] = {}
        self._interests: dict[Listening, None] = {}
        self._taps: tuple[Tap, ...] = ()

    def run(self, node: Node, driver: NodeDriver, clock: Clock) -> None:
        """Use a node, and announce and subscribe there what was announced and subscribed before."""
        self._node, self._driver, self._clock = node, driver, clock
        self._set_taps(self._taps)
        driver.call(node.start)
        for publisher in self._publishers:
            publisher.announcement = driver.call(publisher.announce)
        for listening in self._interests:
            listening.interest = driver.call(listening.subscribe)

    # -- publishing --------------------------------------------------------------------------------------------------

    def announce(
        self,
        cls: type,
        qos: QoS,
        on_problem: ProblemHandler | None,
        carries: tuple[str, ...] = (),
        keep: Keep | None = None,
    ) -> Publisher:
        """Prepare to publish a type, waiting until the channel is bound; BusError says why it cannot be."""
        if keep is not None:
            raise BusError(
                f"{name_of(cls)} cannot be announced with keep=True: a CAN bus keeps no last values; "
                "publish the state again from time to time, or when it is requested"
            )
        publisher = NodePublisher(self, cls, qos, self.publisher_handler(cls, on_problem), carries)
        publisher.announcement = made = self.driver.call(publisher.announce)
        self.driver.wait_for(lambda: made.state != "binding", BINDING_S)
        if made.state != "ready":
            reason = made.reason or self._missing_answer()
            self.driver.call(lambda now: self.node.withdraw(made, now))
            raise BusError(f"{name_of(cls)} cannot be announced: {reason}")
        self._publishers[publisher] = None
        return publisher

    def publisher_handler(self, cls: type, on_problem: ProblemHandler | None) -> ProblemHandler:
        return on_problem or log_refusal

    def send(self, event: Event) -> None:
        """Publish on the channel of the event's type, which is announced without real time if it was not yet."""
        self.pass_on(event)
        if self._taps:
            self.tell_taps(event)

    def pass_on(self, event: Event) -> None:
        """Publish an event of another network as `send` does; those who tap this link do not get it."""
        if type(event) not in self.node.tx.channels:
            self.announce(type(event), BestEffort(), None, Event.__struct_fields__)
        self.publish(event, loop_back=False)

    def publish(self, event: Event, *, loop_back: bool = True) -> None:
        node, driver = self._node, self._driver
        if node is None or driver is None:
            raise BusError(CLOSED)
        driver.call(partial(node.publish, event, loop_back=loop_back))

    def withdraw(self, publisher: "NodePublisher") -> None:
        is_known = publisher in self._publishers
        self._publishers.pop(publisher, None)
        if is_known and self._driver is not None:
            self._driver.call(lambda now: self.node.withdraw(publisher.announcement, now))

    def _missing_answer(self) -> str:
        if self.node.why_without_number:
            return self.node.why_without_number
        if self.node.number is None:
            return (
                f"no broker gave this node a number within {BINDING_S:g} s; start one with `genus can broker`, or give "
                "number=... and catalog=... (with plan=... and name=..., the catalog is enough)"
            )
        if self.node.catalog is None:
            return f"no broker sent a catalog within {BINDING_S:g} s"
        return f"no broker bound it within {BINDING_S:g} s"

    # -- subscribing -------------------------------------------------------------------------------------------------

    def listen(self, subscription: Subscription, on_problem: ProblemHandler | None) -> Callable[[], None]:
        """Let what a subscription matches pass the acceptance filters; returns a function that ends it."""
        listening = Listening(self, subscription, on_problem or log_refusal)
        listening.interest = self.driver.call(listening.subscribe)
        self._interests[listening] = None
        return listening.end

    def unlisten(self, listening: "Listening") -> None:
        is_known = listening in self._interests
        self._interests.pop(listening, None)
        if is_known and self._driver is not None:
            self._driver.call(lambda now: self.node.cancel(listening.interest, now))

    # -- for gateways ------------------------------------------------------------------------------------------------

    @property
    def node_number(self) -> int | None:
        return None if self._node is None else self._node.number

    def tap(self, receive: "Tap") -> Callable[[], None]:
        """Call a function once with each event that comes to this node or is published here, and the sender's number.

        The number is None if this node is the sender. Returns a function that ends it.
        """
        self._set_taps((*self._taps, receive))
        return lambda: self._set_taps(tuple(each for each in self._taps if each is not receive))

    def tell_taps(self, event: Event) -> None:
        """Give an event that was published here to those who tap this link."""
        for tap in self._taps:
            tap(event, None)

    def publisher(self) -> Callable[[Event], None]:
        """Return what publishes on an announced channel; without taps nothing is tried for them."""
        return self._publish_tapped if self._taps else self.publish

    def _publish_tapped(self, event: Event) -> None:
        self.publish(event)
        self.tell_taps(event)

    def _set_taps(self, taps: "tuple[Tap, ...]") -> None:
        self._taps = taps
        for publisher in self._publishers:
            publisher.publish = self.publisher()
        if self._node is not None:
            self._node.rx.on_received = self._received if taps else None

    def _received(self, event: Event, node: int) -> None:
        if node != self.node_number:  # a hard event of this node, which returns in its slot
            for tap in self._taps:
                tap(event, node)

    # -- the rest of a link ------------------------------------------------------------------------------------------

    @property
    def is_bound(self) -> bool:
        """Whether the node has the catalog that it needs to receive events."""
        return self._node is not None and self._node.catalog is not None

    @property
    def node(self) -> Node:
        return _opened(self._node)

    @property
    def participant(self) -> int | None:
        return None if self._node is None else self._node.uid

    @property
    def driver(self) -> NodeDriver:
        return _opened(self._driver)

    @property
    def clock(self) -> Clock:
        return _opened(self._clock)

    def counters(self) -> Mapping[str, int]:
        """Counters of frames, and what the node dropped and lost by reason."""
        if self._driver is None:
            return {}
        counts = self._driver.call(lambda now: self.node.counts())
        dropped = {f"dropped: {reason}": times for reason, times in counts.dropped.items()}
        lost = {f"lost: {channel}": times for channel, times in counts.lost.items() if times}
        unread = {f"not read: {label}": times for label, times in counts.unread.items()}
        return {**self._driver.counters(), **dropped, **lost, **unread}

    def close(self) -> None:
        """Send final reports and leave the bus."""
        driver, self._driver = self._driver, None
        if driver is not None:
            driver.call(self.node.close)
            driver.close()


class NodePublisher(Publisher):
    """Handle for publishing one type on a CAN channel."""

    announcement: Announcement
    publish: Callable[[Event], None]
    """Publish an event; this node's own subscribers get it when it was sent, or at its hard deadline."""

    def __init__(
        self, link: NodeLink, cls: type, qos: QoS, on_problem: ProblemHandler | None, carries: tuple[str, ...]
    ) -> None:
        self._link = link
        self.publish = link.publisher()
        self._cls, self._qos, self._on_problem, self._carries = cls, qos, on_problem, carries

    def announce(self, now: int) -> Announcement:
        node = self._link.node
        return node.announce(self._cls, self._qos, now, on_problem=self._on_problem, carries=self._carries)

    @property
    def slot(self) -> SlotTimes | None:
        """The slots of the calendar that its events go in; None without."""
        sender = self.announcement.channel.slot_sender
        return (
            None if sender is None else SlotTimes(sender.slot.period_ns, sender.slot.offset_ns, sender.slot.length_ns)
        )

    def withdraw(self) -> None:
        self._link.withdraw(self)


class Listening:
    """State: a subscription of a link."""

    interest: Interest

    def __init__(self, link: NodeLink, subscription: Subscription, on_problem: ProblemHandler) -> None:
        self._link = link
        self._subscription, self._on_problem = subscription, on_problem

    def subscribe(self, now: int) -> Interest:
        return self._link.node.subscribe(self._subscription, now, on_problem=self._on_problem)

    def end(self) -> None:
        self._link.unlisten(self)


T = TypeVar("T")


def _opened(part: T | None) -> T:
    if part is None:
        raise BusError(CLOSED)
    return part


def log_refusal(problem: object) -> None:
    """Without a problem handler, what makes a channel or a subscription useless is logged."""
    if isinstance(problem, BindingFailed | WrongCatalog):
        log.warning("%s: %s", problem.channel, problem.reason)
    elif isinstance(problem, NodeIdLost):
        log.warning("node number %d is that of another node, with uid %016x", problem.number, problem.other_uid)
