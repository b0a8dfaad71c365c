"""`Mailbox`: the bounded queue of packets that arrived, between the thread that reads and the one that handles them."""

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Generic, TypeAlias, TypeVar

from genus.bus.types import Overflow

Call: TypeAlias = Callable[[], object]
P = TypeVar("P", bound=tuple[Any, ...])
"""A packet: key, envelope, payload, and what a transport adds."""
MAX_BYTES: Final = 64 * 1024 * 1024
"""Bytes of payloads that may wait; one packet more may be added while there are fewer."""


class Mailbox(Generic[P]):
    """State: packets and calls that wait to be handled, in order, and calls that go before them.

    It is full with `capacity` packets or 64 MB. If `full` is `block`, more are accepted, but the owner stops reading
    until `may_read_on`; with the other policies packets are dropped. Calls and packets that `must_keep` names never
    are. `at_once` packets at most are taken together.
    """

    def __init__(
        self, capacity: int, overflow: Overflow, at_once: int, must_keep: Callable[[P], bool] = lambda packet: False
    ) -> None:
        self.dropped = 0
        self.is_paused = False
        self._capacity = capacity
        self._full = overflow
        self._at_once = at_once
        self._must_keep = must_keep
        self._first_calls: deque[Call] = deque()
        self._items: deque[P | Call] = deque()
        self._size = self._beyond = 0
        self._lock = threading.Lock()
        self._filled = threading.Condition(self._lock)
        self._is_closed = False
        self.thread: threading.Thread | None = None

    def start(self, handle: Call, name: str) -> None:
        """Start the thread that handles what waits."""
        self.thread = threading.Thread(target=handle, name=name, daemon=True)
        self.thread.start()

    @property
    def is_own_thread(self) -> bool:
        """Whether the thread that handles what waits asks."""
        return threading.current_thread() is self.thread

    def __len__(self) -> int:
        return len(self._items)

    # -- by the thread that reads --------------------------------------------------------------------------------------

    @property
    def is_full(self) -> bool:
        return self._full == "block" and (len(self._items) >= self._capacity + self._beyond or self._size >= MAX_BYTES)

    def put(self, packets: list[P], kept: int = 0) -> bool:
        """Add packets, by the policy; whether reading may go on. `kept` of them do not count towards the capacity."""
        with self._lock:
            self._beyond += kept
            if self._full == "drop_newest":
                packets = self._fitting(packets)
            self._items.extend(packets)
            self._size += sum([len(packet[2]) for packet in packets])
            if self._full == "drop_oldest":
                self._drop_oldest()
            self._filled.notify()
            self.is_paused = self.is_paused or self.is_full  # until `may_read_on`, though another connection fits
            return not self.is_full

    def _fitting(self, packets: list[P]) -> list[P]:
        room = self._capacity + self._beyond - len(self._items) if self._size < MAX_BYTES else 0
        if len(packets) <= room:
            return packets
        fitting, lost = list[P](), list[P]()
        for number, packet in enumerate(packets):
            (fitting if number < room or self._must_keep(packet) else lost).append(packet)
        self._lose(lost)
        return fitting

    def _drop_oldest(self) -> None:
        """Keep at least the newest packet, however large."""
        items, most, spared, lost = self._items, self._capacity + self._beyond, list[P | Call](), list[P]()
        while len(items) > 1 and (len(items) + len(spared) > most or self._size - _size_of(items[-1]) >= MAX_BYTES):
            item = items.popleft()
            if isinstance(item, tuple) and not self._must_keep(item):
                self._size -= len(item[2])
                lost.append(item)
            else:
                spared.append(item)
        items.extendleft(reversed(spared))
        if lost:
            self._lose(lost)

    def _lose(self, packets: list[P]) -> None:
        self.dropped += len(packets)

    # -- by all threads ------------------------------------------------------------------------------------------------

    def call(self, function: Call) -> None:
        """Let a function be called after the packets that wait."""
        with self._lock:
            self._items.append(function)
            self._beyond += 1
            self._filled.notify()

    def call_first(self, function: Call) -> None:
        """Let a function be called before the packets that wait."""
        with self._lock:
            self._first_calls.append(function)
            self._filled.notify()

    def close(self, patience_s: float, *, drops: bool = False) -> None:
        """Handle what waits, unless it `drops` that, and end the thread; waits so long for the handler that runs."""
        with self._lock:
            self._is_closed = True
            if drops:
                self._items.clear()
                self._first_calls.clear()
            self._filled.notify()
        if self.thread is not None and not self.is_own_thread:
            self.thread.join(patience_s)

    # -- by the thread that handles ------------------------------------------------------------------------------------

    def take(self, timeout: float | None = None) -> list[P | Call] | None:
        """Some of what waits; an empty list if nothing comes in time; None once the mailbox is closed and empty."""
        with self._lock:
            if not (self._items or self._first_calls or self._is_closed):
                self._filled.wait(timeout)
            if self._first_calls:
                calls: list[P | Call] = list(self._first_calls)
                self._first_calls.clear()
                return calls
            return self._take_items() if self._items or not self._is_closed else None

    def _take_items(self) -> list[P | Call]:
        items = self._items
        if len(items) > self._at_once:
            taken = [items.popleft() for _ in range(self._at_once)]
        else:
            taken = list(items)
            items.clear()
        sizes = [len(item[2]) for item in taken if isinstance(item, tuple)]
        self._size -= sum(sizes)
        self._beyond = self._beyond - (len(taken) - len(sizes)) if items else 0
        return taken

    def may_read_on(self) -> bool:
        """Return whether reading was paused, and half of what waited is handled; True once."""
        with self._lock:
            is_time = self.is_paused and len(self._items) <= self._capacity // 2 and self._size <= MAX_BYTES // 2
            self.is_paused = self.is_paused and not is_time
            return is_time


def _size_of(item: Any) -> int:
    return len(item[2]) if isinstance(item, tuple) else 0
