"""A network within a process, for tests of what runs on transports: packets can be lost, doubled, held and mixed up.

Nothing is delivered by itself: `deliver()` does it, in the caller's thread, so that a test sees the same order in every
run.
"""

import random
import threading
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial

import msgspec

from genus.net import Abilities, Receiver, Sending
from genus.targets.topics import ZENOH, Dialect


class Faults(msgspec.Struct, frozen=True):
    """What happens to packets of events, each with a probability; control packets and tokens are not affected."""

    lost: float = 0.0
    doubled: float = 0.0
    late: float = 0.0


class MemoryNetwork:
    """State: the participants of a network in this process, and the packets on their way."""

    def __init__(self, dialect: Dialect = ZENOH, seed: int = 0, faults: Faults = Faults()) -> None:  # noqa: B008
        self.dialect = dialect
        self.faults = faults
        self.random = random.Random(seed)
        self.transports: list[MemoryTransport] = []
        self.way: deque[Callable[[], None]] = deque()
        self.lost = 0
        self._lock = threading.RLock()

    def transport(self) -> "MemoryTransport":
        """Return a new participant."""
        return MemoryTransport(self)

    def deliver(self, most: int = 1_000_000) -> int:
        """Deliver what is on its way, and what is sent meanwhile; returns how many deliveries were made."""
        for count in range(most):
            with self._lock:
                if not self.way:
                    return count
                action = self.way.popleft()
            action()
        return most

    def add(self, action: Callable[[], None]) -> None:
        """Deliver something later."""
        with self._lock:
            self.way.append(action)

    def add_packet(self, action: Callable[[], None], is_control: bool) -> None:
        """Deliver a packet later, unless it is lost; it may be doubled or come late."""
        with self._lock:
            if is_control:
                self.way.append(action)
                return
            if self.random.random() < self.faults.lost:
                self.lost += 1
                return
            self._append(action)
            if self.random.random() < self.faults.doubled:
                self._append(action)

    def _append(self, action: Callable[[], None]) -> None:
        if self.random.random() < self.faults.late:
            self.way.insert(self.random.randint(0, len(self.way)), action)
        else:
            self.way.append(action)


class MemorySender:
    """Sends the packets of one key."""

    def __init__(self, transport: "MemoryTransport", key: str, sending: Sending) -> None:
        self._transport, self._key, self._keep = transport, key, sending.keep

    def put(self, payload: bytes, envelope: bytes) -> None:
        """Send a packet."""
        if self._keep and payload:
            self._transport.kept[self._key] = (envelope, payload)
        elif self._keep:
            self._transport.kept.pop(self._key, None)
        self._transport.put(self._key, envelope, payload)

    def close(self) -> None:
        """Nothing is open."""


class MemoryTransport:
    """A participant of a network in this process; see `genus.net` for what its methods mean."""

    def __init__(self, network: MemoryNetwork) -> None:
        self.network = network
        self.dialect = network.dialect
        self.abilities = Abilities()
        self.is_cut_off = False
        """Whether nothing reaches this participant, nor comes from it."""
        self.kept: dict[str, tuple[bytes, bytes]] = {}
        self.patterns: list[str] = []
        self.tokens: list[str] = []
        self.watched: list[str] = []
        self.receiver: Receiver | None = None
        self.sent = 0

    def open(self, receiver: Receiver) -> None:
        """Join the network."""
        self.receiver = receiver
        self.network.transports.append(self)

    def sender(self, key: str, sending: Sending) -> MemorySender:
        """Prepare to send packets under a key."""
        assert self.dialect.is_key(key), key
        return MemorySender(self, key, sending)

    def put(self, key: str, envelope: bytes, payload: bytes) -> None:
        """Send a packet to those that subscribed."""
        self.sent += 1
        for other in self._others():
            if any(self.dialect.matches(pattern, key) for pattern in other.patterns):
                self.network.add_packet(partial(other.give, key, envelope, payload), _is_control(key))

    def give(self, key: str, envelope: bytes, payload: bytes) -> None:
        """Take a packet that arrived."""
        if self.receiver is not None and not self.is_cut_off:
            self.receiver.packet(key, envelope, payload)

    def _give_token(self, key: str, is_present: bool) -> None:
        if self.receiver is not None and any(self.dialect.matches(pattern, key) for pattern in self.watched):
            self.receiver.token(key, is_present)

    def subscribe(self, pattern: str, *, kept: bool = False) -> Callable[[], None]:
        """Receive packets of keys that match."""
        assert self.dialect.is_pattern(pattern), pattern
        self.patterns.append(pattern)
        for other in self._others() if kept else ():
            for key, (envelope, payload) in other.kept.items():
                if self.dialect.matches(pattern, key):
                    self.network.add(partial(self.give, key, envelope, payload))
        return lambda: self.patterns.remove(pattern)

    def declare(self, token: str) -> Callable[[], None]:
        """Show a token to all others."""
        assert self.dialect.is_key(token), token
        self.tokens.append(token)
        self._tell(token, True)
        return lambda: self._end_token(token)

    def _end_token(self, token: str) -> None:
        if token in self.tokens:
            self.tokens.remove(token)
            self._tell(token, False)

    def _tell(self, token: str, is_present: bool) -> None:
        for other in self._others():
            self.network.add(partial(other._give_token, token, is_present))

    def watch(self, pattern: str) -> Callable[[], None]:
        """Call `Receiver.token` with the tokens of others that match."""
        self.watched.append(pattern)
        for other in self._others():
            for token in other.tokens:
                if self.dialect.matches(pattern, token):
                    self.network.add(partial(self._give_token, token, True))
        return lambda: self.watched.remove(pattern)

    def call(self, function: Callable[[], None]) -> None:
        """Call a function; all is done in one thread here."""
        function()

    def counters(self) -> Mapping[str, int]:
        """Return the number of packets that were sent."""
        return {"sent": self.sent}

    def close(self) -> None:
        """Leave the network; tokens are gone."""
        self.receiver = None
        if self in self.network.transports:
            self.network.transports.remove(self)
            for token in list(self.tokens):
                self._end_token(token)

    def _others(self) -> "list[MemoryTransport]":
        if self.is_cut_off:
            return []
        return [each for each in self.network.transports if each is not self and not each.is_cut_off]


def _is_control(key: str) -> bool:
    return key.startswith("@genus/") and "/last/" not in key and "/queue/" not in key
