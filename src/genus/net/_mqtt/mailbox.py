"""The bounded queue between the thread that receives packets and the one that handles them."""

import threading
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import TypeAlias

from genus.bus._queue import WhenFull
from genus.net._mqtt.wire import Message

BATCH = 1024

Work: TypeAlias = Message | Callable[[], None]
"""What is handled: a message, or a call, which is never dropped."""


class Mailbox:
    """State: messages and calls that wait to be handled, in order.

    If `full` is `block`, more than `capacity` messages are accepted, but the owner stops reading while `is_full`.
    With the other policies messages are dropped; `must_keep` names those that are not, as others depend on them.
    """

    def __init__(self, capacity: int, full: WhenFull, must_keep: Callable[[Message], bool]) -> None:
        self.dropped = 0
        self.handler: threading.Thread | None = None
        self.is_paused = False
        self._capacity = capacity
        self._full = full
        self._must_keep = must_keep
        self._items: deque[Work] = deque()
        self._lock = threading.Lock()
        self._not_empty = threading.Condition(self._lock)
        self._is_closed = False
        self._is_lenient = False

    def __len__(self) -> int:
        return len(self._items)

    @property
    def is_full(self) -> bool:
        """Whether the owner should stop reading."""
        return self._full == "block" and len(self._items) >= self._capacity and not self._is_lenient

    def pause(self) -> bool:
        """Whether not to read now; then `is_paused` is set, and whoever empties the mailbox says when to read on."""
        self.is_paused = self.is_full
        if self.is_paused:
            self.is_paused = self.is_full  # it may have been emptied between test and mark
        return self.is_paused

    @property
    def is_half_empty(self) -> bool:
        """Whether it is time to read on."""
        return len(self._items) <= self._capacity // 2

    def be_lenient(self, is_lenient: bool) -> None:
        """Read on for a while though the mailbox is full: the thread that empties it waits for an answer.

        Without this it would wait for ever, as the answer comes behind the messages that wait.
        """
        self._is_lenient = is_lenient

    def put_all(self, messages: list[Message]) -> int:
        """Add messages, by the policy if there are too many; returns how many were dropped."""
        with self._lock:
            excess = len(self._items) + len(messages) - self._capacity
            dropped = self._make_room(messages, excess) if excess > 0 and self._full != "block" else 0
            self._items.extend(messages)
            self._not_empty.notify()
            return dropped

    def call(self, work: Callable[[], None]) -> None:
        """Add a call; it is made after the messages that wait."""
        with self._lock:
            self._items.append(work)
            self._not_empty.notify()

    def _make_room(self, messages: list[Message], excess: int) -> int:
        """Drop messages, the oldest of those that wait or the newest of the given; returns how many."""
        if self._full == "drop_oldest":
            self._items.extend(messages)
            messages.clear()
            kept: list[Work] = list(self._items)
        else:
            kept = list(messages)
            kept.reverse()
        dropped = 0
        remaining: list[Work] = []
        for item in kept:
            if dropped < excess and isinstance(item, tuple) and not self._must_keep(item):
                dropped += 1
            else:
                remaining.append(item)
        if self._full == "drop_oldest":
            self._items = deque(remaining)
        else:
            messages[:] = [item for item in reversed(remaining) if isinstance(item, tuple)]
        self.dropped += dropped
        return dropped

    def take(self, timeout: float | None) -> list[Work] | None:
        """Some of what waits; an empty list if nothing comes in time; None once the mailbox is closed and empty."""
        with self._lock:
            self._not_empty.wait_for(lambda: self._items or self._is_closed, timeout)
            items = self._items
            if not items:
                return None if self._is_closed else []
            if len(items) <= BATCH:
                batch = list(items)
                items.clear()
                return batch
            batch = list(islice(items, BATCH))
            for _ in range(BATCH):
                items.popleft()
            return batch

    def close(self) -> None:
        """Accept nothing new to wait for; what waits is still handled."""
        with self._lock:
            self._is_closed = True
            self._not_empty.notify_all()
