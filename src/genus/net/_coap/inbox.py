"""What waits on CoAP: events on their way to the bus, each once (`Inbox`), and those that a server has to send.

A server sends what the sessions' `take` gives, to each observer in order; no I/O here. A client of Genus has one
session for all its observations, so that an event which several of them match is sent once, and events arrive in their
order. Events are numbered per session as they are sent, and those that found no room have numbers, too: a gap tells the
client what was lost. A session whose client is gone waits for it to return; what was not acknowledged is sent again
then. A plain client has a session for each observation.
"""

import logging
import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from genus.bus import Publisher
from genus.bus.types import ProblemHandler
from genus.errors import Reasons
from genus.filters import Subscription
from genus.model import Event, name_of
from genus.net._coap.values import ObservationMark, Outgoing, line_of
from genus.net._envelope import Arrival, Interest, Origin, passes
from genus.net._link.losses import ProblemQueue
from genus.net._link.numbers import SeenEvents
from genus.net._transport import EventsLost
from genus.targets.coap import QueryFilter
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


MAX_SESSIONS = 10_000
MAX_OBSERVERS = 10_000
"""The largest number of observations of one client."""
LINGER_S = 30.0
"""How long a session waits for its client to return."""
BATCH_BYTES = 900
"""A notification has several events if they fit into so many bytes; with options it is then one datagram."""
BATCH = 64
PAIR_BYTES = 16
"""What a code, and the origin in the option, take besides the attributes."""


class Observer:
    """State: one observation. `send` sends a response to it; None while its client is gone."""

    def __init__(
        self,
        filter: QueryFilter,
        send: Callable[[Any], None],
        remote: Any,
        mark: ObservationMark,
        key: tuple[Any, ...] = (),
    ) -> None:
        self.filter, self.remote, self.mark, self.key = filter, remote, mark, key
        """`key` is what requests for further blocks of a large notification have in common: remote, path and query."""
        self.send: Callable[[Any], None] | None = send
        self.sequence = 0
        """The value of the option Observe in the last notification."""

    def next_sequence(self) -> int:
        """Return the value of the option Observe in the next notification."""
        self.sequence = (self.sequence + 1) % (1 << 24)
        return self.sequence


class Entry(msgspec.Struct, frozen=True, gc=False):
    """An event in a session's queue, the observations that match it, and its number, 0 until it is sent."""

    outgoing: Outgoing
    observers: tuple[int, ...]
    number: int = 0


class Batch(msgspec.Struct, frozen=True):
    """Events that go to an observer in one notification."""

    observer: Observer
    entries: tuple[Entry, ...]


class Session:
    """State: the events that wait for one client, and its observations by number."""

    def __init__(self, uid: bytes | None, capacity: int) -> None:
        self.uid = uid
        self.id = os.urandom(4)
        self.number = 0
        """Of the last event that was sent or dropped."""
        self.observers: dict[int, Observer] = {}
        self.queue: deque[Entry] = deque()
        self.in_flight: Batch | None = None
        self.gone_at: float | None = None
        self.alive_at = 0.0
        """When its client was last known to be there."""
        self.dropped = 0
        """Events that were queued and not sent, as others came that found no room."""
        self._capacity = capacity

    def matching(self, outgoing: Outgoing) -> tuple[int, ...]:
        return tuple(
            number
            for number, one in self.observers.items()
            if one.filter.accepts(outgoing.code, outgoing.tag, outgoing.event)
        )

    def put(self, outgoing: Outgoing) -> Outgoing | None:
        """Queue an event if an observation matches it; returns one that was dropped for it, None if none was."""
        observers = self.matching(outgoing)
        if not observers:
            return None
        self.queue.append(Entry(outgoing, observers))
        if len(self.queue) <= self._capacity:
            return None
        self.dropped += 1
        first = self.queue.popleft()
        self.number += not first.number
        return first.outgoing

    def skip(self, outgoing: Outgoing) -> None:
        """Leave a gap for an event that cannot be sent, if an observation matches it."""
        self.number += bool(self.matching(outgoing))

    def take(self) -> Batch | None:
        """Return the events to send next, which are in flight until `done`; None if there are none that can be sent."""
        if self.in_flight is not None:
            return None
        while self.queue and self._is_over(self.queue[0]):
            self.queue.popleft()
        chosen = self._observer_of(self.queue[0]) if self.queue else None
        if chosen is None:
            return None
        number, observer = chosen
        entries = [self._number(self.queue.popleft())]
        size = len(entries[0].outgoing.attributes)
        most = 1 if self.uid is None else BATCH
        while self.queue and len(entries) < most and self._may_follow(self.queue[0], entries[-1], number):
            size += len(self.queue[0].outgoing.attributes) + PAIR_BYTES
            if size > BATCH_BYTES:
                break
            entries.append(self._number(self.queue.popleft()))
        self.in_flight = Batch(observer, tuple(entries))
        return self.in_flight

    def _number(self, entry: Entry) -> Entry:
        """Return the event with its number; one that was sent before keeps its own."""
        if entry.number:
            return entry
        self.number += 1
        return replace(entry, number=self.number)

    def _may_follow(self, entry: Entry, before: Entry, observer: int) -> bool:
        """Return whether an event may be sent together with the one before it."""
        number = entry.number or self.number + 1
        return observer in entry.observers and number == before.number + 1 and not self._is_over(entry)

    def _is_over(self, entry: Entry) -> bool:
        """Return whether an event need not be sent, as its observations were ended."""
        return not any(one in self.observers for one in entry.observers)

    def _observer_of(self, entry: Entry) -> tuple[int, Observer] | None:
        for number in entry.observers:
            observer = self.observers.get(number)
            if observer is not None and observer.send is not None:
                return number, observer
        return None

    def done(self, batch: Batch) -> None:
        if self.in_flight is batch:
            self.in_flight = None

    def detach(self, observer: Observer, now: float) -> None:
        """The client of an observation is gone; what it has not acknowledged is to be sent again."""
        observer.send = None
        batch = self.in_flight
        if batch is not None and batch.observer is observer:
            self.in_flight = None
            self.queue.extendleft(reversed(batch.entries))
        if all(each.send is None for each in self.observers.values()):
            self.gone_at = now

    def resume(self, last: int) -> None:
        """The client has returned, and has received what has numbers up to the last."""
        self.gone_at = None
        while self.queue and 0 < self.queue[0].number <= last:
            self.queue.popleft()

    @property
    def settled(self) -> int:
        """The number before the first event that was not acknowledged."""
        waiting = self.in_flight.entries[0] if self.in_flight is not None else self.queue[0] if self.queue else None
        return self.number if waiting is None or not waiting.number else waiting.number - 1

    @property
    def waiting(self) -> int:
        """How many events were not acknowledged."""
        return len(self.queue) + (len(self.in_flight.entries) if self.in_flight is not None else 0)


class Sessions:
    """State: all sessions of a server."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._by_uid: dict[bytes, Session] = {}
        self._plain: dict[Session, None] = {}

    def __iter__(self) -> Iterator[Session]:
        yield from self._by_uid.values()
        yield from self._plain

    def __len__(self) -> int:
        return len(self._by_uid) + len(self._plain)

    def find(self, uid: bytes | None) -> Session | None:
        return None if uid is None else self._by_uid.get(uid)

    def attach(self, mark: ObservationMark | None, observer: Observer) -> Session | None:
        """Add an observation to its session, which is made if it is new; None if there are too many."""
        found = self.find(mark.uid) if mark is not None else None
        if found is None and len(self) >= MAX_SESSIONS:
            return None
        if mark is None:
            session = Session(None, self._capacity)
            session.observers[0] = observer
            self._plain[session] = None
            return session
        if found is None:
            found = self._by_uid[mark.uid] = Session(mark.uid, self._capacity)
        elif len(found.observers) >= MAX_OBSERVERS and mark.number not in found.observers:
            return None
        elif mark.session == found.id:
            found.resume(mark.last)
        found.gone_at = None
        found.observers[mark.number] = observer
        return found

    def end(self, mark: ObservationMark) -> bool:
        """End an observation of a client of Genus, and its session with the last one; False if it is not known."""
        session = self.find(mark.uid)
        if session is None or session.observers.pop(mark.number, None) is None:
            return False
        if not session.observers:
            self.drop(session)
        return True

    def drop(self, session: Session) -> None:
        self._plain.pop(session, None)
        if session.uid is not None and self._by_uid.get(session.uid) is session:
            del self._by_uid[session.uid]

    def overdue(self, now: float) -> list[Session]:
        """Return the sessions whose clients did not return in time."""
        return [one for one in self if one.gone_at is not None and now - one.gone_at >= LINGER_S]
