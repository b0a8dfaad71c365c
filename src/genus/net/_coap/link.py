"""`CoapLink`: CoAP as the link of a bus: a server, a client of servers, or both."""

import logging
import queue
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any

from aiocoap import error

from genus.bus._link import Delivery, Link, TroubleHandler
from genus.bus._qos import Hard, Keep, NonReal, QoS, Soft
from genus.catalog import Catalog
from genus.errors import BusError, EventError, GenusError
from genus.filters import Subscription
from genus.model import Event, name_of
from genus.net._coap.address import CoapOptions
from genus.net._coap.agreed import Agreement
from genus.net._coap.endpoint import Endpoint
from genus.net._coap.hub import Hub
from genus.net._coap.notifier import HubCalls
from genus.net._coap.observation import Observation
from genus.net._coap.peer import READY_S, Peer
from genus.net._coap.seen import SeenEvents, origin_of
from genus.net._coap.site import Site
from genus.net._coap.upstream import PeerCalls
from genus.net._coap.users import CoapPublisher, CoapRelay, passes
from genus.net._envelope import MOST_HOPS, NUMBERS, Origin, new_uid
from genus.net._link.contract import refuse
from genus.net._relay import Arrival, RelayLink, Want
from genus.net._troubles import EventsLost
from genus.targets.python import PythonFilter

log = logging.getLogger("genus.coap")
PATIENCE_S = 2.0
"""How long a bus that is closed goes on sending what waits."""
MOST_RECEIVED = 100_000
"""Events that may wait for handlers; of more, the new ones are lost."""


class Listening:
    """State: a subscription of the bus, and its observations."""

    def __init__(self, subscription: Subscription, on_trouble: TroubleHandler | None) -> None:
        self.subscription, self.on_trouble = subscription, on_trouble
        self.observations: list[tuple[Peer, Observation]] = []


class CoapLink(Link, RelayLink):
    """A link over CoAP; made by `open_bus`."""

    def __init__(self, options: CoapOptions) -> None:
        self.options = options
        self.uid = new_uid()
        self.hub: Hub | None = None
        self.peers: list[Peer] = []
        self.relays: list[CoapRelay] = []
        self._endpoint = Endpoint(options)
        self._deliver: Delivery | None = None
        self._listenings: dict[Listening, None] = {}
        self._publishers: dict[CoapPublisher, None] = {}
        self._numbers: Counter[type] = Counter()
        self._seen = SeenEvents()
        """Of all servers and clients: an event may come on several ways."""
        self._lock = threading.RLock()
        self._counts: Counter[str] = Counter()
        self._on_wants: list[Callable[[], None]] = []
        self._on_connected: list[Callable[[bool], None]] = []
        self._inbox: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._handler = threading.Thread(target=self._handle_all, name="genus-coap-events", daemon=True)
        self._is_closed = False

    # -- a link of a bus ---------------------------------------------------------------------------------------------

    def open(self, deliver: Delivery) -> None:
        """Listen and connect, as the address says; BusError with the reason if that cannot be done."""
        self._deliver = deliver
        own = self._read_catalog()
        if self.options.listen is not None:
            calls = HubCalls(self._received, self._not_observed, self._wants_changed, self._spoken_wants)
            self.hub = Hub(self._endpoint, own or Agreement(Catalog()), self.uid, calls)
        self._endpoint.open(None if self.hub is None else Site(self.hub))
        self._handler.start()
        try:
            self._endpoint.call(self._start(own)).result()
        except BaseException:
            self.close()
            raise

    def _read_catalog(self) -> Agreement | None:
        path = self.options.catalog
        return None if path is None else Agreement(Catalog.load(path), is_fixed=True)

    async def _start(self, own: Agreement | None) -> None:
        if self.hub is not None:
            self.hub.notifier.start()
        for place in self.options.servers:
            agreement = None if own is None else Agreement(own.catalog, is_fixed=True)
            calls = PeerCalls(
                self._received, self._missed, self._not_sent, self._connected_changed, self._wants_changed
            )
            peer = Peer(self._endpoint, place, self.uid, agreement, calls)
            self.peers.append(peer)
            await peer.start()

    @property
    def port(self) -> int:
        """The port at which this side sends, and listens if it is a server."""
        return self._endpoint.port

    def send(self, event: Event) -> None:
        """Send an event that was published here."""
        self._send(event, self._origin_of(type(event)))

    def _origin_of(self, cls: type) -> Origin:
        with self._lock:
            self._numbers[cls] += 1
            return Origin(self.uid, self._numbers[cls] % NUMBERS)

    def _send(self, event: Event, origin: Origin) -> Arrival:
        """Send an event to servers and observers; it is encoded for all before it is sent to one."""
        self._check_open()
        self._ensure(type(event))
        made = None if self.hub is None else self.hub.outgoing(event, origin)
        waiting = [(peer, peer.outbox.prepare(event, origin)) for peer in self.peers]
        sizes = [len(each.attributes) for _, each in waiting] + ([len(made.attributes)] if made is not None else [])
        if max(sizes) > self.options.largest:
            name = name_of(type(event))
            raise EventError(f"a {name} of {max(sizes)} bytes is larger than largest={self.options.largest}")
        if self.hub is not None:
            self._endpoint.soon(self.hub.publish, made)
        for peer, each in waiting:
            self._endpoint.soon(peer.outbox.put, each)
        arrival = Arrival(event, origin)
        if origin.uid == self.uid:
            self._give_relays(arrival)
        return arrival

    def _ensure(self, cls: type[Event]) -> None:
        """Let all catalogs have a type; BusError if one cannot."""
        if self.hub is not None:
            self.hub.agreement.register([cls])
            self.hub.agreement.use_classes([cls])
        for peer in self.peers:
            if cls not in peer.outbox.types and self._wait(_is_accepted(peer, cls)):
                peer.outbox.types[cls] = None

    def listen(self, subscription: Subscription, on_trouble: TroubleHandler | None) -> Callable[[], None]:
        """Observe what a subscription matches; returns a function that ends it."""
        self._check_open()
        listening = Listening(subscription, on_trouble)
        if self.hub is not None:
            self.hub.agreement.register(subscription.types)
            self.hub.agreement.use_classes(subscription.classes())
        for peer in self.peers:
            listening.observations.append((peer, self._wait(peer.observe(subscription))))
        with self._lock:
            self._listenings[listening] = None
        self._own_wants_changed()
        return lambda: self._unlisten(listening)

    def _unlisten(self, listening: Listening) -> None:
        with self._lock:
            if self._listenings.pop(listening, self) is self or self._is_closed:
                return
        for peer, observation in listening.observations:
            self._endpoint.call(peer.end(observation))
        self._own_wants_changed()

    def _wait(self, coroutine: Any) -> Any:
        """The result of what the endpoint's thread does."""
        if threading.current_thread() is self._endpoint.thread:
            coroutine.close()
            raise BusError("the thread of CoAP cannot wait for itself")
        limit = READY_S + self._endpoint.tuning.MAX_TRANSMIT_WAIT
        try:
            return self._endpoint.call(coroutine).result(limit)
        except TimeoutError as problem:
            raise BusError(f"{self.options.shown} did not answer within {limit:g} s") from problem

    def announce(
        self,
        cls: type,
        qos: QoS = NonReal(),  # noqa: B008 - it is frozen
        on_trouble: TroubleHandler | None = None,
        carries: tuple[str, ...] = (),
        keep: Keep | None = None,
    ) -> CoapPublisher:
        """Prepare to publish a type; BusError says what CoAP cannot keep."""
        if isinstance(qos, Hard | Soft):
            refuse(cls, qos, "coap has retransmissions and no clocks, so it keeps no deadlines", "NonReal()")
        if keep is not None:
            refuse(
                cls, qos, "coap keeps the newest event of a type, not one of each key", "NonReal() without keep=True"
            )
        self._check_open()
        self._ensure(cls)
        if self.hub is not None:
            self._endpoint.soon(self.hub.values.announced.setdefault, self.hub.agreement.catalog.code(cls), None)
        publisher = CoapPublisher(self, cls, on_trouble)
        self._publishers[publisher] = None
        return publisher

    def deliver_own(self, event: Event) -> None:
        """Give an event that was published here to the subscribers of this bus."""
        assert self._deliver is not None
        self._deliver(event)

    def withdraw(self, publisher: CoapPublisher) -> None:
        """End an announcement."""
        self._publishers.pop(publisher, None)

    @property
    def is_connected(self) -> bool:
        """Whether all servers answer."""
        return all(peer.is_connected for peer in self.peers)

    def on_connected(self, changed: Callable[[bool], None]) -> Callable[[], None]:
        """Call a function when a connection is made or lost; returns a function to end it."""
        self._on_connected.append(changed)
        return lambda: self._on_connected.remove(changed) if changed in self._on_connected else None

    def counters(self) -> Mapping[str, int]:
        """Events sent, received and lost; what was refused and rejected, by reason; messages."""
        parts = [self._counts, self._endpoint.counts, *(peer.counts for peer in self.peers)]
        parts += [self.hub.counts] if self.hub is not None else []
        found: Counter[str] = Counter()
        for part in parts:
            found.update(dict(part))
        agreements = [peer.agreement for peer in self.peers] + [None if self.hub is None else self.hub.agreement]
        for agreement in agreements:
            unread = {} if agreement is None else dict(agreement.unread)
            found.update({f"not read: {label}": count for label, count in unread.items()})
        return {name: count for name, count in found.items() if count}

    def explain(self) -> str:
        """What each observation asks of its server, and what is tested here, as text."""
        with self._lock:
            listenings = list(self._listenings)
        return "\n".join(
            f"{peer.place}: {observation.filter.explain()}"
            for listening in listenings
            for peer, observation in listening.observations
            if observation.filter is not None
        )

    def close(self) -> None:
        """Send what waits, for a short time, and end; a second call does nothing."""
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
            log.warning("%s took too long to send what waits", self.options.shown)
        finally:
            self._endpoint.close()
            self._inbox.put(None)
            if self._handler.is_alive() and threading.current_thread() is not self._handler:
                self._handler.join(PATIENCE_S)

    async def _stop(self) -> None:
        for peer in self.peers:
            await peer.stop(PATIENCE_S)
        if self.hub is not None:
            await self.hub.notifier.close(PATIENCE_S)

    def _check_open(self) -> None:
        if self._is_closed:
            raise BusError("the bus is closed")

    # -- what hub and peers call, in the thread of the endpoint ------------------------------------------------------

    def _received(self, event: Event, origin: Origin) -> None:
        if not self._seen.is_new(event, origin):
            self._counts["duplicates"] += 1
            return
        if self._inbox.qsize() >= MOST_RECEIVED:
            self._missed(name_of(type(event)), 1, origin.uid.hex(), "handlers take too long")
            return
        self._inbox.put(partial(self._handle, Arrival(event, origin)))

    def _handle(self, arrival: Arrival) -> None:
        self.deliver_own(arrival.event)
        self._give_relays(arrival)

    def _handle_all(self) -> None:
        """Deliver events and tell troubles, in a thread of its own: handlers may block, publish and subscribe."""
        while (work := self._inbox.get()) is not None:
            try:
                work()
            except Exception:
                log.exception("an event from CoAP could not be handled")

    def _missed(self, type_: str, count: int, sender: str, reason: str) -> None:
        trouble = EventsLost(type_, count, sender, self.uid.hex(), reason)
        with self._lock:
            told = [one.on_trouble for one in self._listenings if _names(one.subscription, type_)]
        self._tell(trouble, told)

    def _not_observed(self, cls: type[Event], count: int, receiver: str, reason: str) -> None:
        self._counts["lost to observers"] += count
        self._tell_publishers(cls, EventsLost(name_of(cls), count, self.uid.hex(), receiver, reason))

    def _not_sent(self, cls: type[Event], count: int, reason: str) -> None:
        self._tell_publishers(cls, EventsLost(name_of(cls), count, self.uid.hex(), "", reason))

    def _tell_publishers(self, cls: type[Event], trouble: EventsLost) -> None:
        self._tell(trouble, [one.on_trouble for one in list(self._publishers) if issubclass(cls, one.type)])

    def _tell(self, trouble: EventsLost, handlers: Iterable[TroubleHandler | None]) -> None:
        given = [handler for handler in handlers if handler is not None]
        if not given:
            log.warning("%d event(s) of %s were lost: %s", trouble.count, trouble.type, trouble.reason)
        for handler in given:
            self._inbox.put(partial(handler, trouble))

    def _connected_changed(self) -> None:
        for changed in list(self._on_connected):
            self._inbox.put(partial(changed, self.is_connected))

    def _wants_changed(self) -> None:
        for changed in list(self._on_wants):
            self._inbox.put(changed)

    # -- what others want --------------------------------------------------------------------------------------------

    def wants(self) -> list[Want]:
        """What others want, and the subscriptions of this link's own bus, but not what its own relays want."""
        with self._lock:
            own = [Want(self.uid.hex(), self.uid.hex(), one.subscription) for one in self._listenings]
        asked = [] if self.hub is None else self._wait(_made(self.hub.notifier.wants))
        return [*asked, *(want for peer in self.peers for want in peer.others.known), *own]

    def _spoken_wants(self) -> list[Want]:
        """What this side wants, for clients that ask: of its own bus, and of its relays."""
        with self._lock:
            own = [Want(self.uid.hex(), self.uid.hex(), one.subscription) for one in self._listenings]
            relayed = [want for relay in self.relays for want in relay.wants]
        return own + [Want(self.uid.hex(), want.origin, want.subscription, want.hops) for want in relayed]

    def _own_wants_changed(self) -> None:
        if self.hub is not None:
            self._endpoint.soon(self.hub.notifier.wants_changed)
        else:
            self._wants_changed()

    def wanted_by(self, event: Event) -> Collection[str] | None:
        """The participants that subscribed to an event, by uid; None if a device cannot tell."""
        self._follow_wants()
        if any(peer.is_plain for peer in self.peers):
            return None
        others = [want for want in self.wants() if want.speaker != self.uid.hex()]
        return {want.speaker for want in others if _matches(want.subscription, event)}

    def on_wants(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Call a function when `wants()` has changed; returns a function to end it."""
        self._follow_wants()
        self._on_wants.append(changed)
        return lambda: self._on_wants.remove(changed) if changed in self._on_wants else None

    def _follow_wants(self) -> None:
        for peer in self.peers:
            if not peer.others.is_needed:
                self._wait(peer.others.follow())

    # -- gateways ----------------------------------------------------------------------------------------------------

    def relay(self, receive: Callable[[Arrival], None]) -> CoapRelay:
        """Let a gateway receive what it wants on behalf of others."""
        relay = CoapRelay(self, receive)
        with self._lock:
            self.relays.append(relay)
        return relay

    def _give_relays(self, arrival: Arrival) -> None:
        for relay in list(self.relays):
            relay.give(arrival)

    def forward(self, arrival: Arrival) -> None:
        """Send an event of another network to this one, and to the subscribers of this bus, with its origin."""
        if arrival.is_forgotten:
            return  # nothing is kept by key
        if arrival.origin.hops > MOST_HOPS:
            self._counts[f"rejected: more than {MOST_HOPS} hops"] += 1
            return
        self._send(arrival.event, origin_of(arrival))
        self.deliver_own(arrival.event)

    def lose(self, arrival: Arrival) -> None:
        """An event could not be forwarded: let the observers of this server miss it."""
        if self.hub is None:
            return
        try:
            self.hub.agreement.register([type(arrival.event)])
            self._endpoint.soon(self.hub.notifier.skip, self.hub.outgoing(arrival.event, arrival.origin))
        except GenusError:  # one that could not be sent at all: nobody here misses it
            self._counts["rejected: an event of a gateway that cannot be written"] += 1

    def report_loss(self, arrival: Arrival) -> None:
        """Tell the publisher of an event that a gateway lost it, if it was published here; else it is counted."""
        self._counts["lost by gateways"] += 1
        if arrival.origin.uid == self.uid:
            cls = type(arrival.event)
            reason = "a gateway could not forward it"
            self._tell_publishers(cls, EventsLost(name_of(cls), 1, self.uid.hex(), "", reason))

    def change_relay(self, relay: CoapRelay, wants: tuple[Want, ...]) -> None:
        """A gateway wants something else."""
        for peer in self.peers:
            for want in set(wants) - set(relay.wants):
                relay.observations[peer, want] = self._wait(peer.observe(want.subscription, want))
            for want in set(relay.wants) - set(wants):
                self._endpoint.call(peer.end(relay.observations.pop((peer, want))))
        if self.hub is not None:
            for want in wants:
                self.hub.agreement.register(want.subscription.types)
                self.hub.agreement.use_classes(want.subscription.classes())
        with self._lock:
            relay.wants = wants
        if self.hub is not None:
            self._endpoint.soon(self.hub.notifier.wants_changed)

    def end_relay(self, relay: CoapRelay) -> None:
        """A gateway is closed."""
        if not self._is_closed:
            self.change_relay(relay, ())
        with self._lock:
            if relay in self.relays:
                self.relays.remove(relay)


def _matches(subscription: Subscription, event: Event) -> bool:
    return passes(PythonFilter(subscription), event)


def _names(subscription: Subscription, type_: str) -> bool:
    """Whether a subscription has these types, or accepts events of the type."""
    if "&".join(map(name_of, subscription.types)) == type_:
        return True
    return any(name_of(cls) == type_ for cls in subscription.classes())


async def _is_accepted(peer: Peer, cls: type[Event]) -> bool:
    """Whether a server has a type; BusError if it refuses it. One that is away is asked when it is back."""
    try:
        await peer.ensure([cls])
    except (error.Error, OSError, TimeoutError):
        return False
    return True


async def _made(make: Callable[[], list[Want]]) -> list[Want]:
    return make()
