"""The outbox of an `ipc:` bus: packets of this process on their way to the queues of all that subscribed.

A packet is sent at once by the thread that publishes it if nothing was sent in the last moments; packets that follow
closely are joined to a batch, which goes when it is large, when the moment is over and a next packet comes, or by the
thread of the connections, which is woken for what is left.
"""

import threading
import time
from collections.abc import Callable, Iterable
from typing import Final

from genus.bus.types import Overflow
from genus.errors import BusError, EventError, QueueFull
from genus.net._ipc.peer import HEAD, KEPT, MAX_ENVELOPE, MAX_PAYLOAD, MAX_TEXT, PACKET, Peer, Shown
from genus.net._ipc.queues import Batch, Losses
from genus.net._transport import QUEUE, ROOT, Sending
from genus.targets.topics import ZENOH

FULL: Final = "the queue for a receiver is full"
CLOSED: Final = "the bus was closed"
GONE: Final = "the consumer that it was for has left"
_MOMENT_S: Final = 200e-6
_MAX_JOINED: Final = 64
_LARGE: Final = 1 << 16
_NEVER: Final = float("inf")


class Outbox:
    """State: the packets that were published last, the peers with their queues, and what this process shows them.

    `wake` makes the thread of the connections look after what is left here; `may_wait` says whether the calling thread
    may wait for room in a queue.
    """

    def __init__(
        self, capacity: int, overflow: Overflow, wake: Callable[[], None], may_wait: Callable[[], bool]
    ) -> None:
        self.capacity = capacity
        self._full = overflow
        self._wake = wake
        self._may_wait = may_wait
        self.is_strict = overflow in ("block", "raise")
        self.lock = threading.RLock()  # a signal handler may publish while its thread does
        self.changed = threading.Condition(self.lock)
        """Notified when a queue has room again, a peer answers or leaves, and when the outbox is closed."""
        self.losses = Losses(wake)
        self.shown = Shown()
        self.peers: list[Peer] = []
        self.generation = 0
        self.is_closed = False
        self.is_watched = False
        """Whether the thread of the connections looks after the fresh packets already."""
        self.puts = 0
        self._sent_by_others = 0
        self._audiences: dict[tuple[Peer, ...], tuple[Peer, ...]] = {}
        self._numbers: dict[str, int] = {}
        self._keys: list[str] = []
        self._kept: dict[str, tuple[bytes, ...]] = {}
        self._most_joined = max(1, min(_MAX_JOINED, capacity // 16))
        self._fresh: list[bytes] = []
        self._fresh_keys: list[str] = []
        self._fresh_size = 0
        self._audience: tuple[Peer, ...] = ()
        self._sent_at = 0.0

    # -- packets -------------------------------------------------------------------------------------------------------

    def number(self, key: str) -> int:
        if not ZENOH.is_key(key) or len(key) > MAX_TEXT:
            raise BusError(f"{key[:200]!r} is not a key of an ipc: bus")
        with self.lock:
            if key not in self._numbers:
                self._numbers[key] = len(self._keys)
                self._keys.append(key)
            return self._numbers[key]

    def key(self, number: int) -> str | None:
        return self._keys[number] if 0 <= number < len(self._keys) else None

    def audience(self, key: str) -> tuple[Peer, ...]:
        """Return the peers that want a key, which are told its number; the same object for the same peers."""
        number = self._numbers[key]
        found = tuple(peer for peer in self.peers if peer.interests(key))
        for peer in found:
            peer.tell_key(number, key)
        return self._audiences.setdefault(found, found)

    def keep(self, key: str, parts: tuple[bytes, bytes, bytes]) -> None:
        """Keep the newest packet of a key for those that subscribe later; an empty one ends that."""
        if parts[-1]:
            self._kept[key] = parts
        else:
            self._kept.pop(key, None)

    def add(self, audience: tuple[Peer, ...], key: str, parts: tuple[bytes, ...], size: int, expires_s: float) -> None:
        """Add a packet, and send it if it is time."""
        self.puts += 1
        now = time.monotonic()
        if audience is not self._audience or size > _LARGE or expires_s != _NEVER:
            self._seal()
            self._audience = audience
            if size > _LARGE or expires_s != _NEVER:
                self._spread(Batch(parts, [key], now + expires_s), audience)
                return
        self._fresh += parts
        self._fresh_keys.append(key)
        self._fresh_size += size
        if now - self._sent_at > _MOMENT_S or len(self._fresh_keys) >= self._most_joined or self._fresh_size > _LARGE:
            self._seal()
        elif not self.is_watched:
            self.is_watched = True
            self._wake()

    def flush(self) -> bool:
        """Send the fresh packets; returns whether packets were added since the last call."""
        self._seal()
        was_used, self.puts = self.puts > 0, 0
        return was_used

    def _seal(self) -> None:
        if self._fresh:
            batch = Batch((b"".join(self._fresh),), self._fresh_keys, _NEVER)
            self._fresh, self._fresh_keys, self._fresh_size = [], [], 0
            self._spread(batch, self._audience)

    def _spread(self, batch: Batch, audience: tuple[Peer, ...]) -> None:
        count = len(batch.keys)
        for peer in audience:
            queue = peer.queue
            if not queue.has_room(count):
                if self._full == "drop_newest":
                    self.losses.add(batch.keys, FULL)
                    continue
                queue.drop_oldest(count, FULL)
            queue.append(batch)
            if not queue.is_stuck:
                self.send(peer)
        self._sent_at = time.monotonic()  # after sending, which on a busy machine takes long

    def send(self, peer: Peer) -> None:
        """Send what the connection of a peer takes; if that is not all, the thread of the connections goes on."""
        if not peer.is_gone:
            peer.queue.send()
            if peer.queue.is_stuck:
                self._wake()

    # -- full queues ---------------------------------------------------------------------------------------------------

    def find_room(self, key: str, audience: tuple[Peer, ...], waits: bool) -> tuple[tuple[Peer, ...], bool]:
        """For the policies `block` and `raise`: the audience, less the peers whose queues are full; and if there are.

        Raises:
            BusError: The bus was closed meanwhile.
        """
        while full := self._without_room(audience):
            self._seal()  # a part of it may be sent
            if not (full := self._without_room(audience)):
                break
            if self._full == "raise" or not waits or not self._may_wait():
                self.losses.add([key] * len(full), FULL)
                return tuple(peer for peer in audience if peer not in full), True
            self.changed.wait()
            if self.is_closed:
                raise BusError("the bus was closed while a publisher waited for room in the queue of a receiver")
            audience = self.audience(key)
        return audience, False

    def _without_room(self, audience: tuple[Peer, ...]) -> list[Peer]:
        more = len(self._fresh_keys) + 1
        return [peer for peer in audience if not peer.queue.has_room(more, self._fresh_size)]

    # -- peers and what they are shown ---------------------------------------------------------------------------------

    def close(self) -> None:
        """Take no more packets; publishers that wait for room give up."""
        self._seal()
        self.is_closed = True
        self.changed.notify_all()

    def abandon(self) -> None:
        """Take no more packets, whoever has the lock: it may be a thread that this child process does not have."""
        self.is_closed = True
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.peers.clear()

    def renew(self) -> None:
        """Find audiences again: peers or their patterns have changed."""
        self._seal()
        self._audiences.clear()
        self.generation += 1

    def add_peer(self, peer: Peer) -> None:
        """A peer has come; it begins with what this process shows."""
        self.peers.append(peer)
        self.send(peer)

    def remove(self, peer: Peer) -> None:
        """A peer has left; what waited for it is no loss to anybody, but for what was sent to it alone."""
        if lost := [key for key in peer.queue.waiting() if key.startswith(ROOT) and f"/{QUEUE}/" in key]:
            self.losses.add(lost, GONE)
        peer.is_gone = True
        if peer in self.peers:
            self.peers.remove(peer)
            self._sent_by_others += peer.queue.sent
            self.renew()
        self.changed.notify_all()

    def show(self, frame: bytes | None) -> None:
        """Tell all peers a change of what this process shows."""
        if frame is not None:
            for peer in self.peers:
                peer.queue.change(frame)
                if not peer.queue.is_stuck:
                    self.send(peer)

    def send_kept(self, peer: Peer, patterns: Iterable[str]) -> None:
        """Send a peer the packets that were kept for these patterns."""
        wanted = list(patterns)
        for key, parts in self._kept.items():
            if any(ZENOH.matches(pattern, key) for pattern in wanted):
                peer.tell_key(self._numbers[key], key)
                peer.queue.append(Batch(parts, [key], _NEVER, is_kept=True))
        if not peer.queue.is_stuck:
            self.send(peer)

    def sent(self) -> int:
        """Return the packets that were sent, once for each receiver."""
        return self._sent_by_others + sum(peer.queue.sent for peer in self.peers)


class PacketSender:
    """Sends the packets of one key."""

    def __init__(self, box: Outbox, key: str, sending: Sending) -> None:
        self._box = box
        self._key = key
        self._number = box.number(key)
        self._is_kept = sending.keep
        self._waits = sending.waits
        self._expires_s = _NEVER if sending.expires_s is None else sending.expires_s
        self._audience: tuple[Peer, ...] = ()
        self._generation = -1

    def put(self, payload: bytes, envelope: bytes) -> None:
        """Send a packet to all that subscribed.

        Raises:
            EventError: The packet is too large.
            QueueFull: The queue for a receiver is full, by the policy `raise`; the other receivers get it.
            BusError: The bus is closed.
        """
        size = len(envelope) + len(payload)
        if size > MAX_PAYLOAD or len(envelope) > MAX_ENVELOPE:
            raise EventError(f"the event takes {size:,} bytes; ipc: carries up to {MAX_PAYLOAD:,}")
        box = self._box
        with box.lock:
            if box.is_closed:
                raise BusError("the bus is closed")
            if self._is_kept:
                box.keep(self._key, (HEAD.pack(size, KEPT, len(envelope), self._number), envelope, payload))
            if self._generation != box.generation:
                self._audience, self._generation = box.audience(self._key), box.generation
            audience, is_refused = self._audience, False
            if box.is_strict and audience:
                audience, is_refused = box.find_room(self._key, audience, self._waits)
            if audience:
                head = HEAD.pack(size, PACKET, len(envelope), self._number)
                box.add(audience, self._key, (head, envelope, payload), size, self._expires_s)
            if is_refused and self._waits:
                raise QueueFull(f"the queue for a receiver of {self._key!r} holds {box.capacity} packets already")

    def close(self) -> None:
        """Send no more; a packet that is kept stays so."""
