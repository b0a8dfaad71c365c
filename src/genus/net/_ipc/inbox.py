"""Both directions of the connections of an `ipc:` bus: the outbox, and what arrives.

A packet is sent at once by the thread that publishes it if nothing was sent in the last moments; packets that follow
closely are joined to a batch, which goes when it is large, when the moment is over and a next packet comes, or by the
thread of the connections, which is woken for what is left.

What arrives are packets for the mailbox, and frames about patterns and tokens. Bytes of other processes never raise: a
frame that cannot be used is counted by reason. If the frames cannot be told apart any more, `FramingLost` closes that
connection.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from genus.bus.types import Overflow
from genus.errors import BusError, EventError, QueueFull, Reasons
from genus.net._ipc.peer import (
    DECLARE,
    DONE,
    HEAD,
    HELLO,
    KEPT,
    KEY,
    KINDS,
    LOST,
    MAX_ENVELOPE,
    MAX_PAYLOAD,
    MAX_SHOWN,
    MAX_TEXT,
    PACKET,
    STATE,
    SUBSCRIBE,
    UNDECLARE,
    UNSUBSCRIBE,
    VERSION,
    FramingLost,
    Hello,
    Peer,
    Shown,
    State,
    Subscribe,
    TokenBoard,
    decode_body,
    encode_frame,
)
from genus.net._ipc.queues import Batch, DeliveringMailbox, Item, Losses, NumberedKey
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


MAILBOX_FULL: Final = "the mailbox of a receiver is full"
_PACKETS: Final = frozenset({PACKET, KEPT})
_MAX_LOST: Final = 1 << 32


class Inbox:
    """Handles the frames of all connections, in the thread that reads them."""

    def __init__(self, outbox: Outbox, mailbox: DeliveringMailbox, board: TokenBoard) -> None:
        self._outbox = outbox
        self._mailbox = mailbox
        self._board = board
        self.rejected = Reasons()
        self._handlers: dict[int, Callable[[Peer, int, Any], None]] = {
            HELLO: self._hello,
            STATE: self._state,
            SUBSCRIBE: self._subscribe,
            UNSUBSCRIBE: self._unsubscribe,
            DECLARE: self._declare,
            UNDECLARE: self._undeclare,
            KEY: self._key,
            LOST: self._lost,
            DONE: self._done,
        }

    def feed(self, peer: Peer, data: bytes) -> bool:
        """Handle bytes of a peer; whether reading may go on.

        Raises:
            FramingLost: The bytes are no frames.
        """
        items: list[Item] = []
        kept, keys = 0, peer.keys
        for kind, number, envelope, body in peer.reader.feed(data):
            if kind in _PACKETS and (key := keys.get(number)) is not None:
                items.append((key, envelope, body))
                kept += kind == KEPT
            else:
                self._handle(peer, kind, number, body)
        return self._mailbox.put(items, kept) if items else True

    def _handle(self, peer: Peer, kind: int, number: int, body: bytes) -> None:
        if not peer.name and kind != HELLO:
            raise FramingLost("a connection that does not begin with hello")
        handler = self._handlers.get(kind)
        if handler is None:
            known = "packet of a key that was not told" if kind in _PACKETS else "frame of an unknown kind"
            self.rejected[known] += 1
        elif (found := decode_body(kind, body)) is None:
            self.rejected[f"malformed frame: {KINDS[kind]}"] += 1
        else:
            handler(peer, number, found)

    def gone(self, peer: Peer) -> None:
        """A peer has left: its tokens go after the packets that it sent."""
        self._mailbox.call(partial(self._board.replace, peer, ()))

    @property
    def has_lost(self) -> bool:
        """Whether packets were dropped here that the sender was not told of."""
        return self._mailbox.has_lost

    def tell_lost(self) -> None:
        """Tell other processes which of their packets were dropped here."""
        by_owner: dict[object, dict[int, int]] = {}
        for key, count in self._mailbox.take_lost().items():
            by_owner.setdefault(key.owner, {})[key.number] = count
        with self._outbox.lock:
            for peer in [each for each in self._outbox.peers if each in by_owner]:
                peer.queue.tell(encode_frame(LOST, by_owner[peer]))
                self._outbox.send(peer)

    # -- frames --------------------------------------------------------------------------------------------------------

    def _hello(self, peer: Peer, number: int, hello: Hello) -> None:
        if peer.name:
            self.rejected["second hello"] += 1
            return
        if hello.version != VERSION:
            raise FramingLost("a process with another version of the frames")
        peer.name = hello.name or "?"

    def _state(self, peer: Peer, number: int, state: State) -> None:
        patterns = {pattern: kept for pattern, kept in state.patterns if self._is_pattern(pattern)}
        tokens = [token for token in state.tokens if self._is_key(token)]
        if len(patterns) > MAX_SHOWN or len(tokens) > MAX_SHOWN:
            self.rejected["state with too much in it"] += 1
            return
        peer.tokens = set(tokens)
        self._mailbox.call_first(partial(self._board.replace, peer, tokens))
        with self._outbox.lock:
            peer.replace_patterns(list(patterns))
            peer.is_known = True
            self._outbox.renew()
            self._outbox.send_kept(peer, [pattern for pattern, kept in patterns.items() if kept])
            self._outbox.changed.notify_all()

    def _subscribe(self, peer: Peer, number: int, asked: Subscribe) -> None:
        with self._outbox.lock:
            if self._is_pattern(asked.pattern) and self._is_few(len(peer.patterns)):
                peer.add_pattern(asked.pattern)
                self._outbox.renew()
            peer.queue.tell(encode_frame(DONE, True, number))
            self._outbox.send_kept(peer, [asked.pattern] if asked.kept else [])

    def _unsubscribe(self, peer: Peer, number: int, pattern: str) -> None:
        with self._outbox.lock:
            peer.remove_pattern(pattern)
            self._outbox.renew()

    def _declare(self, peer: Peer, number: int, token: str) -> None:
        if self._is_key(token) and self._is_few(len(peer.tokens)):
            peer.tokens.add(token)
            self._mailbox.call_first(partial(self._board.declare, peer, token))

    def _undeclare(self, peer: Peer, number: int, token: str) -> None:
        peer.tokens.discard(token)
        self._mailbox.call_first(partial(self._board.undeclare, peer, token))

    def _key(self, peer: Peer, number: int, key: str) -> None:
        if number in peer.keys:
            self.rejected["number of a key that was told before"] += 1
        elif self._is_key(key) and self._is_few(len(peer.keys)):
            peer.keys[number] = NumberedKey(peer, number, key)

    def _lost(self, peer: Peer, number: int, counts: dict[int, int]) -> None:
        with self._outbox.lock:
            by_key = Counter({key: count for each, count in counts.items()
                              if (key := self._outbox.key(each)) and 0 < count < _MAX_LOST})  # fmt: skip
            self._outbox.losses.add_counts(by_key, MAILBOX_FULL)

    def _done(self, peer: Peer, number: int, _: bool) -> None:
        with self._outbox.lock:
            peer.answered = max(peer.answered, number)
            peer.is_late = False
            self._outbox.changed.notify_all()

    def _is_pattern(self, text: str) -> bool:
        return self._is_valid(ZENOH.is_pattern(text))

    def _is_key(self, text: str) -> bool:
        return self._is_valid(ZENOH.is_key(text))

    def _is_valid(self, valid: bool) -> bool:
        self.rejected["invalid key or pattern"] += not valid
        return valid

    def _is_few(self, count: int) -> bool:
        self.rejected["too many keys, patterns or tokens"] += count >= MAX_SHOWN
        return count < MAX_SHOWN
