"""Sides: how a gateway reaches a bus that has no `RelayLink` of its own, within a process or on CAN.

The subscribers that are known are those of this process: nodes of a CAN bus do not tell what they subscribe to. Events
have no numbers of an origin, so this module counts them.
"""

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Any
from weakref import WeakValueDictionary

from msgspec.structs import replace

from genus.bus import Bus, EventChannel, Link, Listener
from genus.bus.internal import end_nothing
from genus.errors import BusError
from genus.filters import Subscription
from genus.filters.internal import rebuild
from genus.filters.types import AllOf
from genus.model import Event
from genus.net._envelope import NUMBERS, Arrival, Interest, Origin, Relay, RelayLink, new_uid
from genus.net._gateway.rules import AnyOf, merged
from genus.net._gateway.standby import PREFIX_BYTES
from genus.net._link.numbers import SeenEvents, line_of
from genus.net._link.relays import kept_value

NUMBERS_PER_S = 4096
"""Numbers count from a start that grows so fast with time: those after a restart are higher than those before it."""


class LocalRelay:
    """State: what a gateway wants of a bus."""

    def __init__(self, receive: Callable[[Arrival], None], changed: Callable[[], None]) -> None:
        self.receive = receive
        self.interests: tuple[Interest, ...] = ()
        self.subscriptions: tuple[Subscription, ...] = ()
        self.matches = AnyOf(())
        """Whether the gateway wants an event."""
        self._changed = changed

    def set_interest(self, interests: Iterable[Interest]) -> None:
        """Receive what these interests match; replaces those before."""
        self.interests = tuple(interests)
        self.subscriptions = tuple(dict.fromkeys(interest.subscription for interest in self.interests))
        self.matches = AnyOf(self.subscriptions)
        self._changed()

    def close(self) -> None:
        """Stop receiving."""
        self.set_interest(())


class EventNumbers:
    """State: numbers for events whose medium has none, per origin and type."""

    def __init__(self) -> None:
        self._first = int(time.time() * NUMBERS_PER_S)
        self._counts: Counter[tuple[bytes, type]] = Counter()
        self._last: dict[tuple[type, str], Arrival] = {}
        self._lock = threading.Lock()

    def add(self, event: Event, uid: bytes, kept: str | None = None) -> Arrival:
        """Return an event with its origin, as the next of its type there; a kept one has the same number each time."""
        with self._lock:
            known = self._last.get((type(event), kept)) if kept is not None else None
            if known is not None and known.event is event:
                return known
            arrival = Arrival(event, self._next(event, uid), kept)
            if kept is not None:
                self._last[type(event), kept] = arrival
            return arrival

    def forget(self, event: Event, uid: bytes, kept: str | None) -> Arrival:
        """That an event is kept no more, with its origin, as the next of its type there."""
        with self._lock:
            self._last.pop((type(event), kept or ""), None)
            return Arrival(event, self._next(event, uid), kept, is_forgotten=True)

    def _next(self, event: Event, uid: bytes) -> Origin:
        self._counts[uid, type(event)] += 1
        return Origin(uid, (self._first + self._counts[uid, type(event)]) % NUMBERS)


class LocalNetwork:
    """State: a bus within this process as a network: its subscribers are one participant, each gateway is another."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.uid = new_uid()
        self.links: tuple[LocalLink, ...] = ()
        self.tokens: dict[tuple[str, str, str], None] = {}
        self.watchers: list[tuple[str, LocalLink, Callable[[str, str, bool], None]]] = []
        self._numbers = EventNumbers()
        self._seen = SeenEvents()
        self._keepers: dict[type, EventChannel[Event]] = {}
        self._forwarding = threading.local()
        self._listener: Listener[Any] | None = None
        self._end_forgotten: Callable[[], None] = end_nothing
        self._lock = threading.RLock()

    def interest_changed(self, link: "LocalLink") -> None:
        """A gateway wants something else: listen to the bus while any wants anything, and tell the others."""
        with self._lock:
            is_wanted = any(relay.subscriptions for each in self.links for relay in each.relays)
            before = self._listener
            if is_wanted and before is None:
                self._end_forgotten = self.bus.on_forgotten(self._forgotten)
                self._listener = self.bus.subscribe(Subscription(Event), self._published)
            elif not is_wanted and before is not None:
                self._listener = None
                before.cancel()
                self._end_forgotten()
        self._catch_up(link)
        for other in self.links:
            if other is not link:
                other.tell_interest()

    def interests(self, link: "LocalLink") -> list[Interest]:
        """Return the subscriptions of the bus, except the one of this network, and the interest of other gateways."""
        found = Counter(self.bus.subscriptions())
        if self._listener is not None:
            found[self._listener.subscription] -= 1
        own = [Interest(self.uid.hex(), self.uid.hex(), one) for one, times in found.items() if times > 0]
        others = [
            (each.uid.hex(), interest)
            for each in self.links
            for relay in each.relays
            for interest in relay.interests
            if each is not link
        ]
        return own + [replace(interest, speaker=speaker) for speaker, interest in others]

    # -- events ------------------------------------------------------------------------------------------------------

    def _published(self, event: Event) -> None:
        self._tell(event, self._numbers.add)

    def _is_forwarded(self, event: Event) -> bool:
        """Return whether a gateway gave this event to the bus just now."""
        forwarded = getattr(self._forwarding, "event", None)
        return forwarded is not None and (forwarded is event or forwarded == event)

    def _forgotten(self, event: Event) -> None:
        """A last value of the bus is kept no more."""
        self._tell(event, self._numbers.forget)

    def _tell(self, event: Event, number: Callable[[Event, bytes, str | None], Arrival]) -> None:
        """Tell the gateways that want an event, unless one of them gave it to the bus."""
        wanting = [] if self._is_forwarded(event) else self._wanting(event, None)
        if wanting:
            arrival = number(event, self.uid, self._kept_value(event))
            for relay in wanting:
                relay.receive(arrival)

    def _wanting(self, event: Event, sender: "LocalLink | None") -> list[LocalRelay]:
        """Return the gateways that want an event, except the one that sent it."""
        others = (relay for link in self.links if link is not sender for relay in link.relays)
        return [relay for relay in others if relay.matches(event)]

    def _kept_value(self, event: Event) -> str | None:
        keep = self.bus.kept_by(type(event))
        return None if keep is None else kept_value(event, keep)

    def _catch_up(self, link: "LocalLink") -> None:
        """Give a gateway the kept events that it wants; the same ones again do no harm."""
        for relay in link.relays:
            for subscription in relay.subscriptions:
                for event in self.bus.last_values(subscription):
                    relay.receive(self._numbers.add(event, self.uid, self._kept_value(event)))

    def forward(self, arrival: Arrival, sender: "LocalLink") -> None:
        """Give an event of another network to the subscribers of this bus, and to other gateways."""
        with self._lock:
            if arrival.origin.uid == self.uid or not self._seen.add(arrival, line_of(arrival)):
                return
        before = getattr(self._forwarding, "event", None)
        self._forwarding.event = arrival.event
        try:
            self._take(arrival)
        finally:
            self._forwarding.event = before
        for relay in self._wanting(arrival.event, sender):
            relay.receive(arrival)

    def _take(self, arrival: Arrival) -> None:
        if arrival.is_forgotten:
            self._forget(arrival.event)
        elif arrival.kept is None:
            self.bus.receive(arrival.event)
        else:
            self._keeper(type(arrival.event)).publish(arrival.event)

    def _forget(self, event: Event) -> None:
        keeper, keep = self._keepers.get(type(event)), self.bus.kept_by(type(event))
        if keeper is not None and keep is not None:
            keeper.forget(**{name: getattr(event, name) for name in keep.by})

    def _keeper(self, cls: type[Event]) -> EventChannel[Event]:
        """Return the channel that keeps the newest event of each source."""
        if cls not in self._keepers:
            channel = self.bus.channel(cls, keep=True)
            channel.announce()
            self._keepers[cls] = channel
        return self._keepers[cls]

    # -- tokens ------------------------------------------------------------------------------------------------------

    def tell_token(self, what: str, uid: str, text: str, is_present: bool) -> None:
        """A gateway shows a token, or does so no more."""
        if is_present:
            self.tokens[what, uid, text] = None
        elif self.tokens.pop((what, uid, text), self) is self:
            return
        for watched, link, changed in list(self.watchers):
            if watched == what and link.uid.hex() != uid:
                changed(uid, text, is_present)


class LocalLink(RelayLink):
    """State: a gateway on a bus within this process."""

    def __init__(self, network: LocalNetwork) -> None:
        self.uid = new_uid()
        self.relays: tuple[LocalRelay, ...] = ()
        self._network = network
        self._on_interest: list[Callable[[], None]] = []
        network.links = (*network.links, self)

    def relay(self, receive: Callable[[Arrival], None]) -> Relay:
        """Call a function once with each event that the relay asks for."""
        made = LocalRelay(receive, lambda: self._network.interest_changed(self))
        self.relays = (*self.relays, made)
        return made

    def forward(self, arrival: Arrival) -> None:
        """Give an event of another network to the subscribers of this bus; a kept one also to later ones."""
        self._network.forward(arrival, self)

    def interests(self) -> list[Interest]:
        """Return the subscriptions of the bus, and the interest of other gateways on it."""
        return self._network.interests(self)

    def on_interest(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Call a function when `interests()` has changed; returns a function to end it."""
        self._on_interest.append(changed)
        end = self._network.bus.on_subscriptions(changed)

        def end_both() -> None:
            end()
            self._on_interest.clear()
            self._network.links = tuple(each for each in self._network.links if each is not self)

        return end_both

    def tell_interest(self) -> None:
        for changed in list(self._on_interest):
            changed()

    def show(self, what: str, text: str) -> Callable[[], None]:
        uid = self.uid.hex()
        self._network.tell_token(what, uid, text, True)
        return lambda: self._network.tell_token(what, uid, text, False)

    def watch(self, what: str, changed: Callable[[str, str, bool], None]) -> Callable[[], None]:
        """Call a function with uid, text and presence of the tokens of other gateways on this bus."""
        entry = (what, self, changed)
        watchers = self._network.watchers
        watchers.append(entry)
        for shown, uid, text in list(self._network.tokens):
            if shown == what and uid != self.uid.hex():
                changed(uid, text, True)
        return lambda: watchers.remove(entry) if entry in watchers else None


class CanSegment(RelayLink):
    """State: a CAN bus as a network: the origin of events is their node; only interest of this process is known."""

    def __init__(self, bus: Bus, link: Link, prefix: bytes) -> None:
        self.uid = new_uid()
        self.prefix = prefix
        self._epoch = os.urandom(2)
        self.gateways: set[int] = set()
        """Numbers of the nodes of other gateways: what they send is not carried further."""
        self.on_copy: Callable[[Event], None] | None = None
        """Is called with what other gateways send."""
        self._bus, self._link = bus, link
        self._relay: LocalRelay | None = None
        self._numbers = EventNumbers()
        self._heard: dict[Subscription, Callable[[], None]] = {}
        self._untap: Callable[[], None] | None = None

    def relay(self, receive: Callable[[Arrival], None]) -> Relay:
        """Call a function once with each event that the interest of the relay match; there is one relay."""
        self._relay = LocalRelay(receive, self._relay_changed)
        return self._relay

    def _relay_changed(self) -> None:
        """Let what is wanted pass the acceptance filters, and nothing else; these do not test predicates."""
        asked = self._relay.subscriptions if self._relay is not None else ()
        wanted = merged(_without_predicate(one) for one in asked)
        if wanted and self._untap is None:
            self._untap = self._link.tap(self._received)
        elif not wanted and self._untap is not None:
            self._untap()
            self._untap = None
        for one in wanted:
            if one not in self._heard:
                self._heard[one] = self._link.listen(one, None)
        for one in [one for one in self._heard if one not in wanted]:
            self._heard.pop(one)()

    def _received(self, event: Event, node: int | None) -> None:
        if self._relay is None or not self._relay.matches(event):
            return
        if node in self.gateways:
            if self.on_copy is not None:
                self.on_copy(event)
            return
        number = self._link.node_number if node is None else node
        uid = self.prefix + self._epoch + (number or 0).to_bytes(2, "big")
        self._relay.receive(self._numbers.add(event, uid))

    def forward(self, arrival: Arrival) -> None:
        """Publish an event of another network on the bus, and to its subscribers in this process."""
        if arrival.is_forgotten:
            return  # nothing is kept there
        self._link.pass_on(arrival.event)
        self._bus.receive(arrival.event)

    def interests(self) -> list[Interest]:
        return [Interest(self.uid.hex(), self.uid.hex(), one) for one in dict.fromkeys(self._bus.subscriptions())]

    def on_interest(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Call a function when `interests()` has changed; returns a function to end it."""
        return self._bus.on_subscriptions(changed)

    @property
    def node_number(self) -> int | None:
        return self._link.node_number


def _without_predicate(subscription: Subscription) -> Subscription:
    asked: AllOf[Any] = AllOf(subscription.types)
    return rebuild(asked, exact=subscription.exact, has=subscription.has, lacks=subscription.lacks)


_LOCAL: "WeakValueDictionary[int, LocalNetwork]" = WeakValueDictionary()
"""By the identity of the bus, which the network keeps alive."""
_LOCAL_LOCK = threading.Lock()


def relay_link(bus: Bus, place: str) -> RelayLink:
    """Return how a gateway reaches a bus; BusError if it cannot.

    `place` names the bus: gateways that give the same one number the same events of a CAN bus alike.
    """
    link = bus.link
    if isinstance(link, RelayLink):
        return link
    if link is not None and link.capabilities.tap:
        prefix = blake2b(place.encode(), digest_size=PREFIX_BYTES).digest()
        return CanSegment(bus, link, prefix)
    if link is not None:
        raise BusError(f"{type(link).__name__} is not a link that gateways can use")
    with _LOCAL_LOCK:
        network = _LOCAL.get(id(bus))
        if network is None:
            network = _LOCAL[id(bus)] = LocalNetwork(bus)
        return LocalLink(network)
