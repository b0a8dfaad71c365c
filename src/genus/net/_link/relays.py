"""`NetRelay`: a gateway's access to a network; `RecentPackets`: what other gateways sent there last."""

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable

from genus.filters import Subscription
from genus.model import Event
from genus.net._envelope import ATTRIBUTES, split_attributes
from genus.net._link.interest import LocalInterest
from genus.net._link.patterns import Patterns
from genus.net._relay import Arrival, Interest, passes
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
        """Remember the packets of these senders from now on."""
        self.senders = frozenset(senders)

    def note(self, key: str, envelope: bytes, payload: bytes) -> None:
        """A packet arrived."""
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
        """Follow types that were declared since."""
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
        """Want nothing more."""
        self._on_close(self)
        self.set_interest(())
