"""The two bounded queues of an `ipc:` bus: packets for one receiver, and packets that arrived.

The queue of packets for one receiver on an `ipc:` bus, and the count of what was not sent.

Packets wait in batches: frames that were joined because they go to the same receivers, so that a receiver that does not
take its packets costs the others little. A queue is bounded in packets and in bytes.

The mailbox of an `ipc:` bus: packets that arrived and wait for the thread that delivers them.

The thread that reads connections never waits for a handler: it puts packets here. One other thread delivers them, and
all other calls that the receiver gets: first those that do not wait for packets (tokens, losses), and the leaving of a
process after all that it sent.
"""

import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import Final, TypeAlias

from genus.bus.types import Overflow
from genus.errors import Reasons
from genus.net._mailbox import MAX_BYTES, Call, Mailbox
from genus.net._transport import ReceiverFailures

_AT_ONCE: Final = 1 << 18
_MAX_BUFFERS: Final = 64
_MAX_CHANGES: Final = 10_000
_MAX_UNCOUNTED: Final = 1_000


class Batch:
    """Frames of packets in one or a few buffers, and the key of each packet."""

    __slots__ = ("expires_at", "is_kept", "keys", "parts", "size")

    def __init__(self, parts: tuple[bytes, ...], keys: list[str], expires_at: float, *, is_kept: bool = False) -> None:
        self.parts, self.keys, self.expires_at, self.is_kept = parts, keys, expires_at, is_kept
        self.size = sum(map(len, parts))


class Losses:
    """State: packets that were lost, by key and reason, until they are told; and how many by reason in all.

    `on_first` is called with the first loss after all were told.
    """

    def __init__(self, on_first: Callable[[], None]) -> None:
        self._on_first = on_first
        self._untold: Counter[tuple[str, str]] = Counter()
        self._uncounted: list[tuple[list[str], str]] = []
        self.totals = Reasons()

    def __bool__(self) -> bool:
        return bool(self._untold or self._uncounted)

    def add(self, keys: list[str], reason: str) -> None:
        """Add one packet for each key; they are counted later, many at once, as this is done for each batch."""
        is_first = not self
        self._uncounted.append((keys, reason))
        self.totals[reason] += len(keys)
        if is_first:
            self._on_first()
        elif len(self._uncounted) > _MAX_UNCOUNTED:
            self._count()

    def add_counts(self, by_key: "Counter[str]", reason: str) -> None:
        is_first = not self
        self._untold.update({(key, reason): count for key, count in by_key.items()})
        self.totals[reason] += by_key.total()
        if is_first:
            self._on_first()

    def _count(self) -> None:
        for reason in {reason for _, reason in self._uncounted}:
            keys = chain.from_iterable(keys for keys, each in self._uncounted if each is reason)
            self._untold.update({(key, reason): count for key, count in Counter(keys).items()})
        self._uncounted.clear()

    def take(self) -> list[tuple[str, int, str]]:
        """Key, count and reason of the losses that were not told yet."""
        self._count()
        told, self._untold = self._untold, Counter()
        return [(key, count, reason) for (key, reason), count in told.items()]


class PeerQueue:
    """State: what waits for one receiver. Its owner has the lock under which it is used.

    It is no `Mailbox`: it holds batches that several receivers share, and bytes of which a part was sent.
    """

    def __init__(self, connection: socket.socket, capacity: int, losses: Losses, state: Callable[[], bytes]) -> None:
        self._connection = connection
        self._capacity = capacity
        self._losses = losses
        self._state = state
        self._changes: deque[bytes] = deque()
        self._owes_state = False
        self._control: deque[bytes] = deque()
        self._batches: deque[Batch] = deque()
        self._sending: list[bytes | memoryview] = []
        self._packets = self._size = self._beyond = 0
        self.sent = 0
        self.is_stuck = False
        """Whether the connection has no room, so that the next `send` waits until it has."""
        self.is_broken = False

    # -- adding --------------------------------------------------------------------------------------------------------

    def change(self, frame: bytes) -> None:
        """Add a change of what this process shows; very many that wait are replaced by the whole state."""
        self._changes.append(frame)
        if len(self._changes) > _MAX_CHANGES:
            self._changes.clear()
            self._owes_state = True

    def tell(self, frame: bytes) -> None:
        """Add a frame that goes before all packets."""
        self._control.append(frame)

    def has_room(self, packets: int, size: int = 0) -> bool:
        """Return whether so many packets more may wait, if so many bytes were added before them."""
        return self._packets + packets <= self._capacity + self._beyond and self._size + size < MAX_BYTES

    def append(self, batch: Batch) -> None:
        """Add a batch, whether there is room or not; kept packets do not count towards the capacity."""
        self._batches.append(batch)
        self._packets += len(batch.keys)
        self._size += batch.size
        if batch.is_kept:
            self._beyond += len(batch.keys)

    def drop_oldest(self, packets: int, reason: str) -> None:
        while self._batches and not self.has_room(packets):
            self._losses.add(self._pop().keys, reason)

    def drop_all(self, reason: str) -> None:
        """Count all that waits as lost."""
        while self._batches:
            self._losses.add(self._pop().keys, reason)

    def waiting(self) -> list[str]:
        return [key for batch in self._batches for key in batch.keys]

    def _pop(self) -> Batch:
        batch = self._batches.popleft()
        self._packets -= len(batch.keys)
        self._size -= batch.size
        if not self._batches:
            self._beyond = 0
        return batch

    # -- sending -------------------------------------------------------------------------------------------------------

    @property
    def left(self) -> int:
        """A number that gets smaller as long as the receiver takes what waits; 0 if there is nothing."""
        if self.is_broken:
            return 0
        return self._size + sum(map(len, self._sending)) + len(self._control) + len(self._changes)

    def send(self) -> None:
        self.is_stuck = False
        while not self.is_broken and (self._sending or self._gather()):
            try:
                sent = self._connection.sendmsg(self._sending)
            except BlockingIOError:
                self.is_stuck = True
                return
            except OSError:
                self.is_broken = True  # the reader of the connection sees its end
                return
            self._forget(sent)

    def _gather(self) -> bool:
        """Take what is sent next; a batch of which a part was sent can be dropped no more."""
        if self._owes_state:
            self._sending.append(self._state())
            self._owes_state = False
        size = 0
        for frames in (self._changes, self._control):
            while frames and size < _AT_ONCE and len(self._sending) < _MAX_BUFFERS:
                size += len(frames[0])
                self._sending.append(frames.popleft())
        if not (self._changes or self._control):  # packets come after the keys that they name
            self._gather_batches(size)
        return bool(self._sending)

    def _gather_batches(self, size: int) -> None:
        while self._batches and size < _AT_ONCE and len(self._sending) < _MAX_BUFFERS:
            batch = self._pop()
            if batch.expires_at < time.monotonic():
                self._losses.add(batch.keys, "expired")
                continue
            self._sending += batch.parts
            self.sent += len(batch.keys)
            size += batch.size

    def _forget(self, sent: int) -> None:
        for number, part in enumerate(self._sending):
            if sent < len(part):
                self._sending[:number] = []
                self._sending[0] = memoryview(part)[sent:]
                return
            sent -= len(part)
        self._sending.clear()


_MAX_AT_ONCE: Final = 64


class NumberedKey:
    """A key that another process told, under its number there."""

    __slots__ = ("key", "number", "owner")

    def __init__(self, owner: object, number: int, key: str) -> None:
        self.owner, self.number, self.key = owner, number, key


Item: TypeAlias = tuple[NumberedKey, bytes, bytes]
"""The key of a packet, its envelope and its payload."""


class DeliveringMailbox(Mailbox[Item]):
    """State: packets and calls, and the thread that delivers them; which packets were lost.

    `on_room` is called when reading was paused, and may go on. So few packets are taken together that a call does not
    wait for long.
    """

    def __init__(self, capacity: int, overflow: Overflow, on_room: Call) -> None:
        super().__init__(capacity, overflow, max(1, min(_MAX_AT_ONCE, capacity // 16)))
        self._on_room = on_room
        self._lost: Counter[NumberedKey] = Counter()
        self.received = 0
        self.failures = ReceiverFailures()

    def deliver(self, deliver: Callable[[str, bytes, bytes], None]) -> None:
        self.start(partial(self._run, deliver), "genus-ipc-deliver")

    def put(self, packets: list[Item], kept: int = 0) -> bool:
        """Add packets, and count them."""
        self.received += len(packets)
        return super().put(packets, kept)

    def _lose(self, packets: list[Item]) -> None:
        super()._lose(packets)
        self._lost.update([key for key, _, _ in packets])

    @property
    def has_lost(self) -> bool:
        """Whether packets were dropped since the last call of `take_lost`."""
        return bool(self._lost)

    def take_lost(self) -> "Counter[NumberedKey]":
        """Return the packets that were dropped since the last call."""
        with self._lock:
            lost, self._lost = self._lost, Counter()
            return lost

    def call_and_wait(self, function: Call, timeout: float) -> None:
        """Call a function first, and wait until it was called, if the thread of the mailbox is another one."""
        self.call_first(function)
        if self.thread is not None and self.thread.is_alive() and not self.is_own_thread:
            called = threading.Event()
            self.call_first(called.set)
            called.wait(timeout)

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _run(self, deliver: Callable[[str, bytes, bytes], None]) -> None:
        while (batch := self.take()) is not None:
            for item in batch:
                if self._first_calls:
                    self.run_calls()
                if isinstance(item, tuple):
                    try:
                        deliver(item[0].key, item[1], item[2])
                    except Exception as problem:  # the other packets are delivered all the same
                        self.failures.note("ipc", problem)
                else:
                    self.guarded(item)
                if self._is_closed:
                    return
            if self.is_paused and self.may_read_on():
                self._on_room()

    def run_calls(self) -> None:
        while self._first_calls:
            self.guarded(self._first_calls.popleft())

    def guarded(self, call: Call) -> None:
        """Call a function of the receiver; if it raises, that is counted."""
        try:
            call()
        except Exception as problem:  # a handler of tokens or losses must not end the delivery of packets
            self.failures.note("ipc", problem)
