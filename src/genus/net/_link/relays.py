"""Gateways on a network, and the last values that a process has for others.

`NetRelay`: a gateway's access to a network; `RecentPackets`: what other gateways sent there last.

Last values that this process has received or published, for those of its subscribers that come later.
"""

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable

from genus.bus.types import Keep
from genus.filters import Subscription
from genus.model import Event
from genus.net._envelope import ATTRIBUTES, Arrival, Interest, passes, split_attributes
from genus.net._link.patterns import Patterns
from genus.net._link.presence import LocalInterest
from genus.net._transport import NORMAL, Sender, Sending, Transport
from genus.targets.python import PythonFilter
from genus.targets.topics import TopicFilter

RECENT, RECENT_BYTES, RECENT_S = 4096, 16 * 1024 * 1024, 10.0
"""How many packets of other gateways are remembered, how many bytes, and for how long."""
_SENDER = slice(13, 21)
"""The uid of the sender in an envelope."""


class RecentPackets:
    """State: the last packets of some senders (key, envelope, payload), and the newest of each kept key; bounded."""

    def __init__(self, now: Callable[[], float], kept_root: str) -> None:
        self.senders: frozenset[bytes] = frozenset()
        self._now, self._kept_root = now, kept_root
        self._packets: deque[tuple[float, str, bytes, bytes]] = deque()
        self._size = self._kept_size = 0
        self._kept: dict[str, tuple[str, bytes, bytes]] = {}
        self._lock = threading.Lock()

    def follow(self, senders: Collection[bytes]) -> None:
        self.senders = frozenset(senders)

    def note(self, key: str, envelope: bytes, payload: bytes) -> None:
        own = (split_attributes(envelope) or ({}, b""))[1] if envelope.startswith(ATTRIBUTES) else envelope
        if own[_SENDER] not in self.senders:
            return
        with self._lock:
            self._packets.append((self._now(), key, envelope, payload))
            self._size += len(envelope) + len(payload)
            while len(self._packets) > RECENT or self._size > RECENT_BYTES:
                _, _, old_envelope, old_payload = self._packets.popleft()
                self._size -= len(old_envelope) + len(old_payload)
            if key.startswith(self._kept_root):
                self._keep(key, envelope, payload)

    def _keep(self, key: str, envelope: bytes, payload: bytes) -> None:
        """Remember the newest packet of a key whatever its age, if there is room."""
        _, _, before = self._kept.pop(key, (key, b"", b""))
        self._kept_size += len(payload) - len(before)
        if len(self._kept) < RECENT and self._kept_size <= RECENT_BYTES:
            self._kept[key] = (key, envelope, payload)
        else:
            self._kept_size -= len(payload)

    def send_again(self, transport: Transport, *, reliable: bool) -> None:
        """Send what is remembered as it was, without waiting; not where a server has it for all others."""
        packets = self.take()
        senders: dict[str, Sender] = {}
        for key, envelope, payload in [] if transport.abilities.has_server else packets:
            if key not in senders:
                sending = Sending(NORMAL, reliable, key.startswith(self._kept_root), waits=False)
                senders[key] = transport.sender(key, sending)
            senders[key].put(payload, envelope)
        for sender in senders.values():
            sender.close()

    def take(self) -> list[tuple[str, bytes, bytes]]:
        """Return the packets to send again, the oldest first: those that are not too old, and all kept ones."""
        since = self._now() - RECENT_S
        with self._lock:
            recent = [(key, envelope, payload) for at, key, envelope, payload in self._packets if at >= since]
            keys = {key for key, _, _ in recent}
            kept = [packet for key, packet in self._kept.items() if key not in keys]
            self._packets.clear()
            self._kept.clear()
            self._size = self._kept_size = 0
        return kept + recent


class NetRelay:
    """State: what a gateway wants of a network, on behalf of others."""

    def __init__(
        self,
        receive: Callable[[Arrival], None],
        patterns: Patterns,
        local_interest: LocalInterest,
        compile: Callable[[Subscription], TopicFilter],
        kept: Callable[[Subscription], list[Arrival]],
        drop_kept: Callable[[], None],
        on_close: Callable[["NetRelay"], None],
    ) -> None:
        self._receive = receive
        self._patterns, self._local_interest, self._compile = patterns, local_interest, compile
        self._kept, self._drop_kept, self._on_close = kept, drop_kept, on_close
        self._interests: tuple[Interest, ...] = ()
        self._subscribed: list[str] = []
        self._filters: tuple[PythonFilter, ...] = ()
        self._lock = threading.Lock()

    def set_interest(self, interests: Iterable[Interest]) -> None:
        """Receive what these wants match, and tell the network of them; replaces those before.

        Last values that are known already are received at once, also if they were received for others before.
        """
        with self._lock:
            before, self._interests = self._interests, tuple(dict.fromkeys(interests))
            asked = dict.fromkeys(interest.subscription for interest in self._interests)
            self._filters = tuple(PythonFilter(subscription) for subscription in asked)
            self._subscribe()
            self._local_interest.replace(before, self._interests)
        self._drop_kept()
        new = asked.keys() - {interest.subscription for interest in before}
        for arrival in [arrival for subscription in new for arrival in self._kept(subscription)]:
            self._receive(arrival)

    def compile_again(self) -> None:
        with self._lock:
            self._subscribe()

    def _subscribe(self) -> None:
        asked = dict.fromkeys(interest.subscription for interest in self._interests)
        before = self._subscribed
        self._subscribed = [pattern for subscription in asked for pattern in self._compile(subscription).patterns]
        self._patterns.add(self._subscribed)
        self._patterns.remove(before)

    def wants_type(self, cls: type[Event]) -> bool:
        """Return whether the gateway wants some events of a class."""
        return any(interest.subscription.accepts(cls) for interest in self._interests)

    def give(self, arrival: Arrival) -> None:
        """Give the gateway an event if it wants it."""
        if any(passes(test, arrival.event) for test in self._filters):
            self._receive(arrival)

    def close(self) -> None:
        """Stop receiving."""
        self._on_close(self)
        self.set_interest(())


MAX_KEPT = 100_000
"""The largest number of last values that are remembered; the oldest is forgotten for a new one."""
_NONE = "\\-"


def kept_value(event: Event, keep: Keep) -> str:
    """The value under which an event is kept: that of the attributes that the channel names; no two share one."""
    return kept_text(getattr(event, name) for name in keep.by)


def kept_text(values: Iterable[object]) -> str:
    """Return the values of the attributes of a key as one text."""
    return ",".join(map(_part, values))


def _part(value: object) -> str:
    return _NONE if value is None else str(value).replace("\\", "\\\\").replace(",", "\\,")


class KeptEvents:
    """State: the newest event of each key of last values, as long as the key is subscribed to or sent from here."""

    def __init__(self, patterns: Patterns, uid: bytes) -> None:
        self._patterns, self._uid = patterns, uid
        self._kept: dict[str, Arrival] = {}
        self._sent: set[str] = set()
        """Keys whose newest event was published or forwarded here: they need no subscription."""
        self._key_of: dict[tuple[type, str | None], str] = {}
        """The key of the newest event of each type and value: it differs if other tagged attributes are present."""
        self._lock = threading.Lock()

    def keep(self, key: str, arrival: Arrival) -> bool:
        """Keep an event that arrived, as the newest of its key; not, and False, if the key is not subscribed to.

        Such a packet was on its way when the subscription ended: newer ones will not arrive.
        """
        with self._lock:
            if (key not in self._kept or key in self._sent) and not self._patterns.matches_last(key):
                return False
            self._sent.discard(key)
            self._put(key, arrival)
            return True

    def is_older(self, key: str, arrival: Arrival) -> bool:
        """Return whether an event is older, by its time, than the one that is kept, which is of another publisher."""
        known = self._kept.get(self._key_of.get((type(arrival.event), arrival.kept), key))
        if known is None or known.origin.uid == arrival.origin.uid:
            return False
        time, newest = arrival.event.time, known.event.time
        return time is not None and newest is not None and time < newest

    def keep_sent(self, key: str, arrival: Arrival) -> None:
        """Keep an event that was published or forwarded here, as the newest of its key."""
        with self._lock:
            self._sent.add(key)
            self._put(key, arrival)

    def _put(self, key: str, arrival: Arrival) -> None:
        if key not in self._kept and len(self._kept) >= MAX_KEPT:
            self._remove(next(iter(self._kept)))
        name = (type(arrival.event), arrival.kept)
        before = self._key_of.get(name, key)
        if before != key:
            self._remove(before)
        self._kept[key], self._key_of[name] = arrival, key

    def _remove(self, key: str) -> Arrival | None:
        self._sent.discard(key)
        arrival = self._kept.pop(key, None)
        if arrival is not None:
            self._key_of.pop((type(arrival.event), arrival.kept), None)
        return arrival

    def forget(self, key: str) -> Arrival | None:
        """Keep no event of a key; returns the one that was kept."""
        with self._lock:
            return self._remove(key)

    def drop_unsubscribed(self) -> list[str]:
        """Forget events that arrived and whose keys are no longer subscribed to, as newer ones do not; the keys."""
        with self._lock:
            arrived = self._kept.keys() - self._sent
            gone = [key for key in arrived if not self._patterns.matches_last(key)]
            for key in gone:
                self._remove(key)
        return gone

    def of_others(self, subscription: Subscription) -> list[Arrival]:
        """Return the newest events of others that a subscription matches."""
        return [arrival for arrival in self.all(subscription) if arrival.origin.uid != self._uid]

    def all(self, subscription: Subscription) -> list[Arrival]:
        """Return the newest events that a subscription matches."""
        with self._lock:
            arrivals = list(self._kept.values())
        return [arrival for arrival in arrivals if subscription.matches(arrival.event)]
