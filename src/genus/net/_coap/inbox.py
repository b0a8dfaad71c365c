"""`Inbox`: what came over CoAP on its way to the bus, each event once; and who is told of it."""

import logging
import queue
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from genus.bus import Publisher
from genus.bus.types import ProblemHandler
from genus.errors import Reasons
from genus.filters import Subscription
from genus.model import Event, name_of
from genus.net._coap.values import line_of
from genus.net._envelope import Arrival, Interest, Origin, passes
from genus.net._link.losses import ProblemQueue
from genus.net._link.numbers import SeenEvents
from genus.net._problems import EventsLost
from genus.targets.python import PythonFilter

MAX_RECEIVED = 100_000
"""Events that may wait for handlers; of more, the new ones are lost."""


class ObservedSubscription:
    """State: a subscription of the bus, or with a `want` one of a gateway, and its observations at servers."""

    def __init__(
        self, subscription: Subscription, on_problem: ProblemHandler | None, interest: Interest | None
    ) -> None:
        self.subscription, self.on_problem, self.set_interest = subscription, on_problem, interest
        self.observations: list[tuple[Any, Any]] = []
        """A peer and its `Observation`, for each server."""

    def names(self, type_: str) -> bool:
        """Return whether the subscription has these types, or accepts events of the type."""
        if "&".join(map(name_of, self.subscription.types)) == type_:
            return True
        return any(name_of(cls) == type_ for cls in self.subscription.classes())


@dataclass(eq=False)
class CoapPublisher(Publisher):
    """Handle for publishing one type over CoAP; `send` sends an event, also to this bus's own subscribers."""

    type: type
    on_problem: ProblemHandler | None
    send: Callable[[Event], None]
    end: Callable[["CoapPublisher"], object]

    def publish(self, event: Any) -> None:
        """Send an event, and give it to this bus's own subscribers."""
        self.send(event)

    def withdraw(self) -> None:
        """Publish no more."""
        self.end(self)


class CoapRelay:
    """State: what a gateway wants over CoAP, on behalf of others; `listen` returns a function that ends it."""

    def __init__(
        self,
        receive: Callable[[Arrival], None],
        listen: Callable[[Interest], Callable[[], None]],
        end: Callable[["CoapRelay"], None],
    ) -> None:
        self._receive, self._listen, self._end = receive, listen, end
        self._ends: dict[Interest, Callable[[], None]] = {}
        self._filters: tuple[PythonFilter, ...] = ()

    def set_interest(self, interests: Iterable[Interest]) -> None:
        """Receive what these interests match; replaces those before."""
        asked = dict.fromkeys(interests)
        self._filters = tuple(PythonFilter(one) for one in dict.fromkeys(interest.subscription for interest in asked))
        for interest in [interest for interest in asked if interest not in self._ends]:
            self._ends[interest] = self._listen(interest)
        for interest in [interest for interest in self._ends if interest not in asked]:
            self._ends.pop(interest)()

    def give(self, arrival: Arrival) -> None:
        """Give the gateway an event if it wants it."""
        if any(passes(test, arrival.event) for test in self._filters):
            self._receive(arrival)

    def close(self) -> None:
        """Stop receiving."""
        self.set_interest(())
        self._end(self)


class Inbox:
    """State: what waits for the bus, and its users.

    Events are delivered and problems told by a thread of its own, in their order: handlers may block, publish and
    subscribe. The parts of the link call it in the thread of the endpoint. Its queue is no `Mailbox`: it holds events,
    which have no size before they are written.
    """

    def __init__(self, uid: bytes, log: logging.Logger) -> None:
        self.uid = uid.hex()
        self.counts = Reasons()
        self.deliver: Callable[[Event], object] = lambda event: None
        """Gives an event to the subscribers of this bus."""
        self.listenings: dict[ObservedSubscription, None] = {}
        self.publishers: dict[CoapPublisher, None] = {}
        self.relays: list[CoapRelay] = []
        self.on_interest: list[Callable[[], None]] = []
        self.on_connected: list[Callable[[], None]] = []
        self._log = log
        self._seen = SeenEvents()
        """Of all servers and clients: an event may come on several ways."""
        self._problems = ProblemQueue()
        self._queue: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._handle_all, name="genus-coap-events", daemon=True)

    def open(self, deliver: Callable[[Event], object]) -> None:
        self.deliver = deliver
        self._thread.start()

    def close(self, patience_s: float) -> None:
        """Deliver what waits, for a short time, and end."""
        self._queue.put(None)
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(patience_s)

    def _handle_all(self) -> None:
        while (work := self._queue.get()) is not None:
            try:
                work()
            except Exception:
                self._log.exception("an event from CoAP could not be handled")

    # -- events ------------------------------------------------------------------------------------------------------

    def receive(self, event: Event, origin: Origin) -> None:
        """Deliver an event, once."""
        arrival = Arrival(event, origin)
        if not self._seen.add(arrival, line_of(event, origin)):
            self.counts["duplicates"] += 1
        elif self._queue.qsize() >= MAX_RECEIVED:
            self.missed(name_of(type(event)), 1, origin.uid.hex(), "handlers take too long")
        else:
            self._queue.put(partial(self._handle, arrival))

    def _handle(self, arrival: Arrival) -> None:
        self.deliver(arrival.event)
        self.give_relays(arrival)

    def give_relays(self, arrival: Arrival) -> None:
        for relay in list(self.relays):
            relay.give(arrival)

    # -- problems and changes ----------------------------------------------------------------------------------------

    def missed(self, type_: str, count: int, sender: str, reason: str) -> None:
        """Tell subscribers of a type, by name, that so many events did not arrive from a sender."""
        told = [one.on_problem for one in list(self.listenings) if one.on_problem is not None and one.names(type_)]
        self._tell(EventsLost(type_, count, sender, self.uid, reason), told)

    def unsent(self, cls: type[Event], count: int, receiver: str, reason: str) -> None:
        """Tell publishers of a class that so many events did not get to a receiver."""
        users = [one for one in list(self.publishers) if issubclass(cls, one.type)]
        told = [one.on_problem for one in users if one.on_problem is not None]
        self._tell(EventsLost(name_of(cls), count, self.uid, receiver, reason), told)

    def _tell(self, problem: EventsLost, handlers: list[ProblemHandler]) -> None:
        self._problems.add(problem, handlers)
        self._queue.put(self._problems.tell)

    def connected_changed(self) -> None:
        for changed in list(self.on_connected):
            self._queue.put(changed)

    def interest_changed(self) -> None:
        for changed in list(self.on_interest):
            self._queue.put(changed)
