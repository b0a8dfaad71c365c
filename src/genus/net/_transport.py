"""Transports: what carries packets between processes, under keys; `NetLink` makes a typed bus of one.

A transport knows nothing of events. It sends bytes under a key to all that subscribed to a pattern that matches it,
shows tokens (texts that are present while their owner lives) and says what it could not send. Numbering, losses,
duplicates, interest and last values are done above it, in the same way for all transports.
"""

from collections.abc import Callable, Mapping
from typing import Protocol, runtime_checkable

import msgspec

from genus.targets.topics import Dialect

BULK, NORMAL, SOFT, URGENT = 0, 1, 2, 3
"""Priorities of packets: without real time (bulk and normal), with a deadline, and with one of at most 10 ms."""


ROOT, QUEUE = "@genus", "queue"
"""The first chunk of keys that are not of events, and the third of those that are sent to one of several receivers."""


class Sending(msgspec.Struct, frozen=True):
    """How the packets of a key are sent.

    `reliable`: packets that were lost on the way are sent again, as far as the transport can. `keep`: the newest packet
    of the key is kept for those that subscribe later; an empty one ends that. `expires_s`: a packet that waited so long
    need not be sent. `waits`: where a full queue makes publishers wait or raises, it does so for these packets; without
    it they are dropped. `content_type` tells other systems what the payload is, where the network can.
    """

    priority: int = NORMAL
    reliable: bool = False
    keep: bool = False
    expires_s: float | None = None
    waits: bool = True
    content_type: str = ""


class Abilities(msgspec.Struct, frozen=True):
    """What a transport can keep, for the contract at `announce`; it may change when a connection is made.

    `keeps` is whether newest packets are kept for later subscribers, `reliable` whether losses can be repaired, and
    `why` says for each that it cannot keep, by name, the reason. `has_server` says that packets go through a server
    with a queue for each receiver: what has reached one is on its way to all, whatever becomes of its sender.
    """

    keeps: bool = True
    reliable: bool = True
    has_server: bool = False
    largest: int = 64 * 1024 * 1024
    why: Mapping[str, str] = {}


class Receiver(Protocol):
    """What a transport calls: `packet` and `token` from one thread only, never two calls at once."""

    def packet(self, key: str, envelope: bytes, payload: bytes) -> None:
        """Take a packet that arrived; never raises. An empty envelope means that the packet had none."""

    def token(self, key: str, is_present: bool) -> None:
        """Take the news that a token of another participant appeared or is gone."""

    def dropped(self, key: str, count: int, reason: str) -> None:
        """Take the news that packets of this participant were not sent; may be called from any thread."""

    def connected(self, is_connected: bool) -> None:
        """Take the news that the connection was made, or lost; while it is lost, packets may be."""


class Sender(Protocol):
    """Sends the packets of one key."""

    def put(self, payload: bytes, envelope: bytes) -> None:
        """Send a packet, and return soon; raise QueueFull if the queue is full and its policy is `raise`."""

    def close(self) -> None:
        """Send no more; a packet that is kept stays so while the transport is open."""


@runtime_checkable
class GatheringSender(Protocol):
    """A sender that sends several packets as one if they come faster than they can be sent one by one."""

    def join(self, payload: bytes, number: int) -> bool:
        """Add a payload to the packet that waits; False if none waits, or the number does not follow its last one."""

    def begin(self, payload: bytes, envelope: bytes, number: int) -> None:
        """Send a packet, or let it wait a moment for the payloads that follow, which travel under its envelope."""


class Transport(Protocol):
    """A connection to a network."""

    @property
    def dialect(self) -> Dialect:
        """Return how keys and patterns are written."""

    @property
    def abilities(self) -> Abilities:
        """Return what the transport can keep."""

    def open(self, receiver: Receiver) -> None:
        """Connect; raise BusError with the reason if that cannot be done."""

    def sender(self, key: str, sending: Sending) -> Sender:
        """Prepare to send packets under a key."""

    def subscribe(self, pattern: str, *, kept: bool = False) -> Callable[[], None]:
        """Receive packets of keys that match; with `kept`, first those that were kept. Returns a function to end it.

        BusError if the network refuses it and says so.
        """

    def declare(self, token: str) -> Callable[[], None]:
        """Show a token, a key, to all others while this process lives; returns a function to end it."""

    def watch(self, pattern: str) -> Callable[[], None]:
        """Call `Receiver.token` with the tokens of others that match, present and future ones."""

    def call(self, function: Callable[[], None]) -> None:
        """Call a function soon, in the thread in which `Receiver.packet` is called."""

    def counters(self) -> Mapping[str, int]:
        """Return the numbers of packets sent, and of those dropped by reason."""

    def close(self) -> None:
        """Send what waits, for a short time; then stop and release all resources."""


@runtime_checkable
class EchoingTransport(Protocol):
    """A transport that gives a participant its own packets, too, unless it is told not to."""

    def subscribe_others(self, pattern: str) -> Callable[[], None]:
        """Receive packets of keys that match, kept ones first, but none of this participant's own."""


@runtime_checkable
class SharingTransport(Protocol):
    """A transport on which several participants can share the packets of a pattern: each goes to one of them."""

    @property
    def can_share(self) -> bool:
        """Whether the network offers it."""

    def share_of(self, group: str, pattern: str) -> str:
        """Return the name of this participant's part in a group, without `/`, for as long as the transport is open."""

    def share(self, group: str, pattern: str) -> Callable[[], None]:
        """Receive some of the packets of keys that match, under `$share/NAME/KEY`; returns a function to end it."""


@runtime_checkable
class WindowedTransport(Protocol):
    """A transport whose network holds reliable packets back until earlier ones are handled; others overtake them."""

    @property
    def busy_s(self) -> float:
        """For how long the receiver has been handling one packet."""

    def stop_handling(self) -> None:
        """Leave packets that were not handled to the network; returns when the one that is being handled is done."""
