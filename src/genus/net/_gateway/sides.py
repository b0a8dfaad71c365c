"""Sides: how a gateway reaches a bus that has no `RelayLink` of its own, within a process or on CAN.

Subscribers of such a bus are those of this process; on CAN, where nodes do not tell what they subscribe to, the
configuration says what the bus wants. Their events have no numbers of an origin, so this module counts them.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Protocol, runtime_checkable
from weakref import WeakValueDictionary

from genus.bus import Bus, EventChannel
from genus.errors import BusError
from genus.filters import Subscription
from genus.model import Event
from genus.net._envelope import NUMBERS, Origin, new_uid
from genus.net._gateway.routes import merged
from genus.net._relay import Arrival, Relay, RelayLink, Want
from genus.targets.python import PythonFilter

PREFIX_BYTES = 6
"""Bytes of the uid of an event's origin that name the CAN bus; the last two are the number of the node."""
NUMBERS_PER_S = 4096
"""Numbers count from a start that grows so fast with time: those after a restart are higher than those before it."""


@runtime_checkable
class SegmentLink(Protocol):
    """A link to a CAN bus."""

    @property
    def node_number(self) -> int | None:
        """The number of this node; None until it has one."""

    def tap(self, receive: Callable[[Event, int | None], object]) -> Callable[[], None]:
        """Call a function with each event, and the number of the node that sent it; None if this one did."""

    def forward(self, event: Event) -> None:
        """Publish an event of another network."""

    def listen(self, subscription: Subscription, on_trouble: Callable[[object], object] | None) -> Callable[[], None]:
        """Let what a subscription matches pass the acceptance filters."""


class LocalRelay:
    """State: what a gateway wants of a bus."""

    def __init__(self, receive: Callable[[Arrival], None], changed: Callable[["LocalRelay"], None]) -> None:
        self.receive = receive
        self.is_closed = False
        self.subscriptions: tuple[Subscription, ...] = ()
        self._tests: tuple[PythonFilter, ...] = ()
        self._changed = changed

    def want(self, wants: Iterable[Want]) -> None:
        """Receive what these wants match; replaces those before."""
        self.subscriptions = tuple(merged(want.subscription for want in wants))
        self._tests = tuple(map(PythonFilter, self.subscriptions))
        self._changed(self)

    def matches(self, event: Event) -> bool:
        """Whether the gateway wants an event."""
        return any(matches(event) for matches in self._tests)

    def close(self) -> None:
        """Want nothing more."""
        self.is_closed = True
        self.want(())


class _CountedLink:
    """State: what the two kinds of links of this module have in common: relays, numbers, and wants of this process."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.uid = new_uid()
        self._relays: tuple[LocalRelay, ...] = ()
        self._numbers: Counter[tuple[bytes, type]] = Counter()
        self._first = int(time.time() * NUMBERS_PER_S)
        self._last: dict[tuple[type, str | None], Arrival] = {}
        self._lock = threading.RLock()

    def relay(self, receive: Callable[[Arrival], None]) -> Relay:
        """Call a function once with each event that the wants of the relay match."""
        made = LocalRelay(receive, self._relays_changed)
        with self._lock:
            self._relays = (*self._relays, made)
        return made

    def _relays_changed(self, changed: LocalRelay) -> None:
        with self._lock:
            self._relays = tuple(each for each in self._relays if not each.is_closed)
            self.receive_only(merged(one for relay in self._relays for one in relay.subscriptions))
        self.catch_up(changed)

    def receive_only(self, wanted: list[Subscription]) -> None:
        """Receive what these subscriptions match; replaces those before."""
        raise NotImplementedError

    def catch_up(self, relay: LocalRelay) -> None:
        """Give a gateway the kept events that it wants; the same ones again do no harm."""

    def number(self, event: Event, uid: bytes, kept: str | None = None) -> Arrival:
        """An event with its origin, as the next of its type there; a kept one has the same number each time."""
        with self._lock:
            known = self._last.get((type(event), kept)) if kept is not None else None
            if known is not None and known.event is event:
                return known
            self._numbers[uid, type(event)] += 1
            number = (self._first + self._numbers[uid, type(event)]) % NUMBERS
            arrival = Arrival(event, Origin(uid, number), kept)
            if kept is not None:
                self._last[type(event), kept] = arrival
            return arrival

    def give(self, event: Event, uid: bytes, kept: str | None = None) -> None:
        """Give an event to the gateways that want it."""
        wanting = [relay for relay in self._relays if relay.matches(event)]
        if wanting:
            arrival = self.number(event, uid, kept)
            for relay in wanting:
                relay.receive(arrival)

    def on_wants(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Call a function when `wants()` has changed; returns a function to end it."""
        return self.bus.on_subscriptions(changed)

    def own_wants(self, subscriptions: Iterable[Subscription]) -> list[Want]:
        """Subscriptions as wants of this participant."""
        return [Want(self.uid.hex(), self.uid.hex(), one) for one in dict.fromkeys(subscriptions)]


class LocalLink(_CountedLink):
    """State: a bus within this process as a network of its own; all gateways on the bus share it."""

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus)
        self._keepers: dict[type, EventChannel[Event]] = {}
        self._end: Callable[[], None] | None = None
        self._forwarding = threading.local()
        self._tokens: dict[tuple[str, str], object] = {}
        self._watchers: list[tuple[str, Callable[[str, str, bool], None]]] = []

    def receive_only(self, wanted: list[Subscription]) -> None:
        """Listen to all events of the bus while any are wanted."""
        if wanted and self._end is None:
            self._end = self.bus.subscribe(Subscription(Event), self._published).cancel
        elif not wanted and self._end is not None:
            self._end()
            self._end = None

    def _published(self, event: Event) -> None:
        forwarded = getattr(self._forwarding, "event", None)
        if forwarded is None or (forwarded is not event and forwarded != event):
            self.give(event, self.uid, self._kept_value(event))

    def _kept_value(self, event: Event) -> str | None:
        keep = self.bus.kept_by(type(event))
        if keep is None:
            return None
        values = (getattr(event, name) for name in keep.by)
        return ",".join("" if value is None else str(value) for value in values)

    def catch_up(self, relay: LocalRelay) -> None:
        """Give a gateway the kept events that it wants."""
        for subscription in relay.subscriptions:
            for event in self.bus.last_values(subscription):
                relay.receive(self.number(event, self.uid, self._kept_value(event)))

    def forward(self, arrival: Arrival) -> None:
        """Give an event of another network to the subscribers of this bus; a kept one also to later ones."""
        before = getattr(self._forwarding, "event", None)
        self._forwarding.event = arrival.event
        try:
            if arrival.kept is None:
                self.bus.receive(arrival.event)
            else:
                self._keeper(type(arrival.event)).publish(arrival.event)
        finally:
            self._forwarding.event = before

    def _keeper(self, cls: type[Event]) -> EventChannel[Event]:
        """The channel that keeps the newest event of each source."""
        if cls not in self._keepers:
            channel = self.bus.channel(cls, keep=1)
            channel.announce()
            self._keepers[cls] = channel
        return self._keepers[cls]

    def wants(self) -> list[Want]:
        """The subscriptions of the bus, except the one of this link."""
        found = Counter(self.bus.subscriptions())
        if self._end is not None:
            found[Subscription(Event)] -= 1
        return self.own_wants(one for one, times in found.items() if times > 0)

    def show(self, what: str, text: str) -> Callable[[], None]:
        """Show a token to the other gateways on this bus."""
        key = (f"{what}/{text}", new_uid().hex())
        self._tokens[key] = None
        self._tell(what, key[1], text, True)

        def end() -> None:
            if self._tokens.pop(key, self) is not self:
                self._tell(what, key[1], text, False)

        return end

    def watch(self, what: str, changed: Callable[[str, str, bool], None]) -> Callable[[], None]:
        """Call a function with uid, text and presence of the tokens of all gateways on this bus."""
        entry = (what, changed)
        self._watchers.append(entry)
        for shown, uid in list(self._tokens):
            kind, _, text = shown.partition("/")
            if kind == what:
                changed(uid, text, True)
        return lambda: self._watchers.remove(entry) if entry in self._watchers else None

    def _tell(self, what: str, uid: str, text: str, is_present: bool) -> None:
        for watched, changed in list(self._watchers):
            if watched == what:
                changed(uid, text, is_present)


class CanSegment(_CountedLink):
    """State: a CAN bus as a network: its wants are configured, and the origin of its events is their node."""

    def __init__(self, bus: Bus, link: SegmentLink, prefix: bytes, wants: Iterable[Subscription] = ()) -> None:
        super().__init__(bus)
        self.prefix = prefix
        self.gateways: set[int] = set()
        """Numbers of the nodes of other gateways: what they send is not carried further."""
        self.on_copy: Callable[[Event], None] | None = None
        """Is called with what other gateways send."""
        self._link = link
        self._configured = tuple(wants)
        self._heard: dict[Subscription, Callable[[], None]] = {}
        self._untap: Callable[[], None] | None = None

    def receive_only(self, wanted: list[Subscription]) -> None:
        """Let what is wanted pass the acceptance filters, and nothing else."""
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
        if node in self.gateways:
            if self.on_copy is not None:
                self.on_copy(event)
            return
        number = self._link.node_number if node is None else node
        self.give(event, self.prefix + (number or 0).to_bytes(8 - PREFIX_BYTES, "big"))

    def forward(self, arrival: Arrival) -> None:
        """Publish an event of another network on the bus, and to its subscribers in this process."""
        self._link.forward(arrival.event)
        self.bus.receive(arrival.event)

    def wants(self) -> list[Want]:
        """What is configured, and the subscriptions of this process."""
        return self.own_wants((*self._configured, *self.bus.subscriptions()))

    @property
    def node_number(self) -> int | None:
        """The number of this gateway's node."""
        return self._link.node_number

    def show(self, what: str, text: str) -> Callable[[], None]:
        """A CAN bus shows no tokens."""
        return _nothing

    def watch(self, what: str, changed: Callable[[str, str, bool], None]) -> Callable[[], None]:
        """A CAN bus shows no tokens."""
        return _nothing


def _nothing() -> None:
    """End what was not begun."""


_LOCAL: "WeakValueDictionary[int, LocalLink]" = WeakValueDictionary()
"""By the identity of the bus, which the link keeps alive."""
_LOCAL_LOCK = threading.Lock()


def relay_link(bus: Bus, place: str, wants: Iterable[Subscription] = ()) -> RelayLink:
    """How a gateway reaches a bus; BusError if it cannot.

    `place` names the bus: gateways that give the same one number the same events of a CAN bus alike.
    """
    link = bus.link
    if isinstance(link, RelayLink):
        return link
    if isinstance(link, SegmentLink):
        prefix = blake2b(place.encode(), digest_size=PREFIX_BYTES).digest()
        return CanSegment(bus, link, prefix, wants)
    if link is not None:
        raise BusError(f"{type(link).__name__} is no link that gateways can use")
    with _LOCAL_LOCK:
        found = _LOCAL.get(id(bus))
        if found is None:
            found = _LOCAL[id(bus)] = LocalLink(bus)
        return found
