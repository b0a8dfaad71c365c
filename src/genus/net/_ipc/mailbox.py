"""The mailbox of an `ipc:` bus: packets that arrived and wait for the thread that delivers them.

The thread that reads connections never waits for a handler: it puts packets here. One other thread delivers them, and
all other calls that the receiver gets: first those that do not wait for packets (tokens, losses), and the leaving of a
process after all that it sent.
"""

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable
from typing import Final, TypeAlias

from genus.bus._queue import WhenFull
from genus.net._ipc.queue import MOST_BYTES

Call: TypeAlias = Callable[[], object]
_MOST_AT_ONCE: Final = 64
_LOG: Final = logging.getLogger("genus.net")


class NumberedKey:
    """A key that another process told, under its number there."""

    __slots__ = ("key", "number", "owner")

    def __init__(self, owner: object, number: int, key: str) -> None:
        self.owner, self.number, self.key = owner, number, key


Item: TypeAlias = tuple[NumberedKey, bytes, bytes]
"""The key of a packet, its envelope and its payload."""


def _ignore(key: str, envelope: bytes, payload: bytes) -> None:
    """Delivers nothing: the mailbox was not started."""


class Mailbox:
    """State: packets and calls that wait for the thread of this mailbox.

    `on_room` is called when a mailbox that was full has room again.
    """

    def __init__(self, capacity: int, full: WhenFull, on_room: Call) -> None:
        self._capacity = capacity
        self._full = full
        self._deliver: Callable[[str, bytes, bytes], None] = _ignore
        self._on_room = on_room
        self._at_once = max(1, min(_MOST_AT_ONCE, capacity // 16))
        self._lock = threading.Lock()
        self._filled = threading.Condition(self._lock)
        self._calls: deque[Call] = deque()
        self._items: deque[Item] = deque()
        self._size = self._beyond = self._taken = 0
        self._last_calls: deque[tuple[int, Call]] = deque()
        self._lost: Counter[NumberedKey] = Counter()
        self._was_full = self._is_closed = False
        self.received = 0
        self.dropped = 0
        self.failures: Counter[str] = Counter()
        self.thread = threading.Thread(target=self._run, name="genus-ipc-deliver", daemon=True)

    def start(self, deliver: Callable[[str, bytes, bytes], None]) -> None:
        """Begin to call a function with each packet."""
        self._deliver = deliver
        self.thread.start()

    # -- by the thread that reads --------------------------------------------------------------------------------------

    def put(self, items: list[Item], kept: int) -> bool:
        """Add packets, by the policy; whether reading may go on. Kept packets do not count towards the capacity."""
        with self._lock:
            self.received += len(items)
            self._beyond += kept
            if self._full == "drop_newest":
                items = self._fitting(items)
            self._items.extend(items)
            self._size += sum(len(payload) for _, _, payload in items)
            if self._full == "drop_oldest":
                self._drop_oldest()
            self._filled.notify()
            self._was_full = self._full == "block" and self._is_full()
            return not self._was_full

    def _is_full(self) -> bool:
        return len(self._items) >= self._capacity + self._beyond or self._size >= MOST_BYTES

    def _fitting(self, items: list[Item]) -> list[Item]:
        room = max(0, self._capacity + self._beyond - len(self._items)) if self._size < MOST_BYTES else 0
        self._lose(items[room:])
        return items[:room]

    def _drop_oldest(self) -> None:
        """Keep at least one packet, however large."""
        excess = len(self._items) - self._capacity - self._beyond
        dropped = [self._items.popleft() for _ in range(excess)]
        self._size -= sum(len(payload) for _, _, payload in dropped)
        while len(self._items) > 1 and self._size - len(self._items[-1][2]) >= MOST_BYTES:
            dropped.append(self._items.popleft())
            self._size -= len(dropped[-1][2])
        self._taken += len(dropped)
        self._lose(dropped)

    def _lose(self, items: list[Item]) -> None:
        self._lost.update(key for key, _, _ in items)
        self.dropped += len(items)

    @property
    def has_lost(self) -> bool:
        """Whether packets were dropped since the last call of `take_lost`."""
        return bool(self._lost)

    def take_lost(self) -> "Counter[NumberedKey]":
        """The packets that were dropped since the last call."""
        with self._lock:
            lost, self._lost = self._lost, Counter()
            return lost

    # -- by all threads ------------------------------------------------------------------------------------------------

    def call(self, function: Call) -> None:
        """Call a function in the thread of the mailbox, before the packets that wait."""
        with self._lock:
            self._calls.append(function)
            self._filled.notify()

    def call_and_wait(self, function: Call, timeout: float) -> None:
        """The same, and wait until it was called, if this is another thread and the mailbox was started."""
        self.call(function)
        if self.thread.is_alive() and not self.is_own_thread:
            called = threading.Event()
            self.call(called.set)
            called.wait(timeout)

    def call_last(self, function: Call) -> None:
        """Call a function in the thread of the mailbox, after the packets that wait."""
        with self._lock:
            self._last_calls.append((self._taken + len(self._items), function))
            self._filled.notify()

    @property
    def is_own_thread(self) -> bool:
        """Whether the caller is called by this mailbox."""
        return threading.current_thread() is self.thread

    def close(self) -> None:
        """Deliver nothing more; waits for the handler that runs, for two seconds."""
        with self._lock:
            self._is_closed = True
            self._items.clear()
            self._filled.notify()
        if not self.is_own_thread and self.thread.is_alive():
            self.thread.join(2)

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._is_closed:
            with self._lock:
                while not (self._calls or self._items or self._last_calls or self._is_closed):
                    self._filled.wait()
                calls, items = self._take()
            for call in calls:
                self.guarded(call)
            if items:
                self._deliver_all(items)

    def _take(self) -> tuple[list[Call], list[Item]]:
        """Calls that are due, or a few packets: so few that a call does not wait for long."""
        if self._calls:
            calls = list(self._calls)
            self._calls.clear()
            return calls, []
        if self._last_calls and self._last_calls[0][0] <= self._taken:
            return [self._last_calls.popleft()[1]], []
        count = min(self._at_once, len(self._items))
        if self._last_calls:
            count = min(count, self._last_calls[0][0] - self._taken)
        return [], self._take_items(count)

    def _take_items(self, count: int) -> list[Item]:
        items = [self._items.popleft() for _ in range(count)]
        self._taken += count
        self._size -= sum(len(payload) for _, _, payload in items)
        if not self._items:
            self._beyond = 0
        return items

    def _deliver_all(self, items: list[Item]) -> None:
        deliver = self._deliver
        for key, envelope, payload in items:
            if self._calls:
                self._call_all()
            try:
                deliver(key.key, envelope, payload)
            except Exception as problem:  # the other packets are delivered all the same
                self._count_failure(problem)
            if self._is_closed:
                return
        if self._was_full and not self._is_full():
            self._was_full = False
            self._on_room()

    def _call_all(self) -> None:
        while self._calls:
            self.guarded(self._calls.popleft())

    def guarded(self, call: Call) -> None:
        """Call a function of the receiver; if it raises, that is counted."""
        try:
            call()
        except Exception as problem:  # a handler of tokens or losses must not end the delivery of packets
            self._count_failure(problem)

    def _count_failure(self, problem: Exception) -> None:
        self.failures[type(problem).__name__] += 1
        _LOG.error("ipc: the receiver failed", exc_info=problem)
