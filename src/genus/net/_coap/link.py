"""`CoapLink`: CoAP as the link of a bus: a server, a client of servers, or both."""

import threading
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import Any, TypeVar

from genus.bus import BestEffort, Hard, Link, Soft
from genus.bus.types import Delivery, Keep, ProblemHandler, QoS
from genus.catalog import Catalog
from genus.errors import BusError, EventError, GenusError
from genus.filters import Subscription
from genus.model import Event, name_of
from genus.net._addresses import CoapOptions
from genus.net._coap.endpoint import Endpoint
from genus.net._coap.inbox import CoapPublisher, CoapRelay, Inbox, ObservedSubscription
from genus.net._coap.peer import READY_S, Peer
from genus.net._coap.server import Hub, Site
from genus.net._coap.shared_catalog import SharedCatalog
from genus.net._coap.upstream import NO_ANSWER
from genus.net._coap.values import Outgoing, origin_of
from genus.net._envelope import MAX_HOPS, NUMBERS, Arrival, Interest, Origin, RelayLink, new_uid, passes
from genus.net._link.channels import refuse
from genus.net._transport import OnceLogger
from genus.targets.python import PythonFilter

T = TypeVar("T")
PATIENCE_S = 2.0
"""How long a bus that is closed goes on sending what waits."""


class CoapLink(Link, RelayLink):
    """A link over CoAP; made by `open_bus`."""

    def __init__(self, options: CoapOptions) -> None:
        self.options = options
        self.uid = new_uid()
        self.hub: Hub | None = None
        self.peers: list[Peer] = []
        self._log = OnceLogger("genus.coap")
        self._inbox = Inbox(self.uid, self._log)
        self._endpoint = Endpoint(options, self._log)
        self._numbers: Counter[type] = Counter()
        self._lock = threading.RLock()
        self._is_closed = False

    # -- a link of a bus ---------------------------------------------------------------------------------------------

    def open(self, deliver: Delivery) -> None:
        """Listen and connect as the address says; raise BusError with the reason if that cannot be done."""
        own = None if self.options.catalog is None else Catalog.load(self.options.catalog)
        if self.options.listen is not None:
            shared = SharedCatalog(own or Catalog(), is_fixed=own is not None)
            self.hub = Hub(self._endpoint, shared, self.uid, self._inbox, self._spoken_interest)
        self._endpoint.open(None if self.hub is None else Site(self.hub))
        self._inbox.open(deliver)
        try:
            self._endpoint.call(self._start(own)).result()
        except BaseException:
            self.close()
            raise

    async def _start(self, own: Catalog | None) -> None:
        if self.hub is not None:
            self.hub.notifier.start()
        for place in self.options.servers:
            shared = None if own is None else SharedCatalog(own, is_fixed=True)
            self.peers.append(Peer(self._endpoint, place, self.uid, shared, self._inbox))
            await self.peers[-1].start()

    @property
    def port(self) -> int:
        """Return the port at which this side sends, and listens if it is a server."""
        return self._endpoint.port

    def send(self, event: Event) -> None:
        """Send an event that was published here."""
        with self._lock:
            self._numbers[type(event)] += 1
            origin = Origin(self.uid, self._numbers[type(event)] % NUMBERS)
        self._send(event, origin)
        self._inbox.give_relays(Arrival(event, origin))

    def _send(self, event: Event, origin: Origin) -> None:
        """Send an event to servers and observers; it is encoded for all before it is sent to one."""
        self._check_open()
        self._ensure(type(event))
        puts: list[tuple[Callable[[Outgoing], None], Outgoing]] = [
            (peer.outbox.put, peer.outbox.prepare(event, origin)) for peer in self.peers
        ]
        if self.hub is not None:
            puts.append((self.hub.publish, self.hub.shared.encode(event, origin)))
        size = max(len(each.attributes) for _, each in puts)
        if size > self.options.largest:
            name = name_of(type(event))
            raise EventError(f"a {name} of {size} bytes is larger than largest={self.options.largest}")
        for put, each in puts:
            self._endpoint.soon(put, each)

    def _ensure(self, cls: type[Event]) -> None:
        """Let all catalogs have a type; BusError if one cannot. A server that is away is asked when it is back."""
        if self.hub is not None:
            self.hub.shared.register([cls])
            self.hub.shared.use_classes([cls])
        for peer in self.peers:
            if cls not in peer.outbox.types:
                try:
                    self._wait(peer.ensure([cls]))
                    peer.outbox.types[cls] = None
                except NO_ANSWER:
                    continue

    def listen(self, subscription: Subscription, on_problem: ProblemHandler | None) -> Callable[[], None]:
        """Observe what a subscription matches; returns a function that ends it."""
        return self._listen(ObservedSubscription(subscription, on_problem, None))

    def _listen(self, listening: ObservedSubscription) -> Callable[[], None]:
        self._check_open()
        subscription = listening.subscription
        if self.hub is not None:
            self.hub.shared.register(subscription.types)
            self.hub.shared.use_subscription(subscription)
        for peer in self.peers:
            observation = self._wait(peer.observe(subscription, listening.set_interest))
            listening.observations.append((peer, observation))
        with self._lock:
            self._inbox.listenings[listening] = None
        self._local_interest_changed(listening)
        return lambda: self._unlisten(listening)

    def _unlisten(self, listening: ObservedSubscription) -> None:
        with self._lock:
            if self._inbox.listenings.pop(listening, self) is self or self._is_closed:
                return
        for peer, observation in listening.observations:
            self._endpoint.call(peer.end(observation))
        self._local_interest_changed(listening)

    def _local_interest_changed(self, listening: ObservedSubscription) -> None:
        if self.hub is not None:
            self._endpoint.soon(self.hub.notifier.interest_changed)
        elif listening.set_interest is None:
            self._inbox.interest_changed()

    def _wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Return the result of what the endpoint's thread does."""
        if threading.current_thread() is self._endpoint.thread:
            coroutine.close()
            raise BusError("this cannot be called in the thread of CoAP, which it would wait for")
        limit = READY_S + self._endpoint.tuning.MAX_TRANSMIT_WAIT
        waiting = self._endpoint.call(coroutine)
        try:
            return waiting.result(limit)
        except TimeoutError as problem:
            if waiting.done():
                raise
            raise BusError(f"{self.options.shown} did not answer within {limit:g} s") from problem

    def announce(
        self,
        cls: type,
        qos: QoS = BestEffort(),  # noqa: B008 - it is frozen
        on_problem: ProblemHandler | None = None,
        carries: tuple[str, ...] = (),
        keep: Keep | None = None,
    ) -> CoapPublisher:
        """Prepare to publish a type; raise BusError if the quality of service is one that CoAP cannot keep."""
        if isinstance(qos, Hard | Soft):
            refuse(cls, qos, "coap has retransmissions and no clocks, so it keeps no deadlines", "BestEffort()")
        if keep is not None:
            refuse(
                cls, qos, "coap keeps the newest event of a type, not one of each key", "BestEffort() without keep=True"
            )
        self._check_open()
        self._ensure(cls)
        if self.hub is not None:
            self._endpoint.soon(self.hub.resources.announced.setdefault, self.hub.shared.catalog.code(cls), None)
        publisher = CoapPublisher(cls, on_problem, self._publish, lambda one: self._inbox.publishers.pop(one, None))
        self._inbox.publishers[publisher] = None
        return publisher

    def _publish(self, event: Event) -> None:
        self.send(event)
        self._inbox.deliver(event)

    @property
    def is_connected(self) -> bool:
        """Return whether all servers answer."""
        return all(peer.is_connected for peer in self.peers)

    def on_connected(self, changed: Callable[[bool], None]) -> Callable[[], None]:
        """Call a function when a connection is made or lost; returns a function to end it."""
        return _add(self._inbox.on_connected, lambda: changed(self.is_connected))

    def counters(self) -> Mapping[str, int]:
        """Return the numbers of events sent, received and lost, of requests refused and messages rejected by reason."""
        users: list[Hub | Peer] = [*self.peers] if self.hub is None else [self.hub, *self.peers]
        catalogs = [user.shared for user in users if isinstance(user, Hub) or user.has_catalog]
        found: Counter[str] = Counter()
        for part in (self._inbox.counts, self._endpoint.counts, *(user.counts for user in users)):
            found.update(dict(part))
        for label, tables in (
            ("refused", [user.refusals.counts for user in users]),
            ("rejected", [peer.rejections.counts for peer in self.peers]),
            ("rejected", [dict(peer.interest.interests.refused) for peer in self.peers]),
            ("not read", [dict(shared.unread) for shared in catalogs]),
        ):
            for table in tables:
                found.update({f"{label}: {reason}": count for reason, count in table.items()})
        return {name: count for name, count in found.items() if count}

    def examples(self) -> Mapping[str, Any]:
        """Return the last value that was rejected, and the last request that was refused, for each reason."""
        tables = [peer.rejections for peer in self.peers] + ([] if self.hub is None else [self.hub.refusals])
        return {reason: one for table in tables for reason, one in table.examples.items()}

    def explain(self) -> str:
        """Return what each observation asks of its server, and what is tested here, as text."""
        with self._lock:
            listenings = [one for one in self._inbox.listenings if one.set_interest is None]
        return "\n".join(
            f"{peer.place}: {observation.filter.explain()}"
            for listening in listenings
            for peer, observation in listening.observations
            if observation.filter is not None
        )

    def close(self) -> None:
        """Send what waits, for a short time, and close; a second call does nothing."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        if self.hub is not None:
            self.hub.is_closing = True
        try:
            if self._endpoint.context is not None:
                self._endpoint.call(self._stop()).result(3 * PATIENCE_S)
        except TimeoutError:
            self._log.warning("%s took too long to send what waits", self.options.shown)
        finally:
            self._endpoint.close()
            self._inbox.close(PATIENCE_S)

    async def _stop(self) -> None:
        for peer in self.peers:
            await peer.stop(PATIENCE_S)
        if self.hub is not None:
            await self.hub.notifier.close(PATIENCE_S)

    def _check_open(self) -> None:
        if self._is_closed:
            raise BusError("the bus is closed")

    # -- what others want --------------------------------------------------------------------------------------------

    def interests(self) -> list[Interest]:
        """Return what others and the own bus subscribe to; what the own gateways ask for is left out."""
        remote = [interest for peer in self.peers for interest in peer.interest.interests.all()]
        return [*self._observed_interest(), *remote, *self._spoken_interest(relayed=False)]

    def _observed_interest(self) -> list[Interest]:
        hub = self.hub
        return [] if hub is None else self._wait(_call(hub.notifier.interests))

    def _spoken_interest(self, relayed: bool = True) -> list[Interest]:
        """Return what this side wants, for clients that ask: of its own bus, and of its relays."""
        uid = self.uid.hex()
        with self._lock:
            listenings = list(self._inbox.listenings)
        own = [Interest(uid, uid, one.subscription) for one in listenings if one.set_interest is None]
        interests = [one.set_interest for one in listenings if one.set_interest is not None] if relayed else []
        return own + [Interest(uid, interest.origin, interest.subscription, interest.hops) for interest in interests]

    def wanted_by(self, event: Event) -> Collection[str] | None:
        """Return the participants that subscribed to an event, by uid; None if a device cannot tell."""
        self._follow_interest()
        if any(peer.is_plain for peer in self.peers):
            return None
        here = {
            interest.speaker
            for interest in self._observed_interest()
            if passes(PythonFilter(interest.subscription), event)
        }
        return here.union(*(peer.interest.interests.wanted_by(event) for peer in self.peers)) - {self.uid.hex()}

    def on_interest(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Call a function when `interests()` has changed; returns a function to end it."""
        self._follow_interest()
        return _add(self._inbox.on_interest, changed)

    def _follow_interest(self) -> None:
        for peer in self.peers:
            if not peer.interest.is_needed:
                self._wait(peer.interest.follow())

    # -- gateways ----------------------------------------------------------------------------------------------------

    def relay(self, receive: Callable[[Arrival], None]) -> CoapRelay:
        """Let a gateway receive what it wants on behalf of others."""
        relay = CoapRelay(
            receive,
            lambda interest: self._listen(ObservedSubscription(interest.subscription, None, interest)),
            self._end_relay,
        )
        self._inbox.relays.append(relay)
        return relay

    def _end_relay(self, relay: CoapRelay) -> None:
        if relay in self._inbox.relays:
            self._inbox.relays.remove(relay)

    def forward(self, arrival: Arrival) -> None:
        """Send an event of another network to this one, and to the subscribers of this bus, with its origin."""
        if arrival.is_forgotten:
            return  # nothing is kept by key
        if arrival.origin.hops > MAX_HOPS:
            self._inbox.counts[f"rejected: more than {MAX_HOPS} hops"] += 1
            return
        self._send(arrival.event, origin_of(arrival))
        self._inbox.deliver(arrival.event)

    def lose(self, arrival: Arrival) -> None:
        """Let the observers of this server miss an event that could not be forwarded."""
        if self.hub is None:
            return
        try:
            self.hub.shared.register([type(arrival.event)])
            self._endpoint.soon(self.hub.notifier.skip, self.hub.shared.encode(arrival.event, arrival.origin))
        except GenusError:  # one that could not be sent at all: nobody here misses it
            self._inbox.counts["rejected: an event of a gateway that cannot be written"] += 1

    def report_loss(self, arrival: Arrival) -> None:
        """Tell the publisher of an event that a gateway lost it, if it was published here; else it is counted."""
        self._inbox.counts["lost by gateways"] += 1
        if arrival.origin.uid == self.uid:
            self._inbox.unsent(type(arrival.event), 1, "", "a gateway could not forward it")


def _add(callbacks: list[Callable[[], None]], changed: Callable[[], None]) -> Callable[[], None]:
    callbacks.append(changed)
    return lambda: callbacks.remove(changed) if changed in callbacks else None


async def _call(function: Callable[[], T]) -> T:
    return function()
