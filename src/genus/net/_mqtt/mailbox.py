"""Messages between the thread that receives them and the one that handles them.

`Mailbox` is the bounded queue between the two. `PendingMessages` are those that a session goes on with before its
process has subscribed again. `HandledMessages` remembers in a file what was handled, so that a process that was killed
does not handle again what the broker sends again.
"""

import hashlib
import mmap
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeAlias

from genus.bus._queue import WhenFull
from genus.errors import BusError
from genus.net._mqtt.wire import Message
from genus.targets.topics import MQTT

BATCH: Final = 1024
PENDING_S: Final = 30.0
"""How long after the start messages wait for a subscription."""
REMEMBERED: Final = 4096
"""Messages that a file remembers; a broker has at most 1,000 on their way to a session."""

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

    @property
    def is_own_thread(self) -> bool:
        """Whether the thread that empties the mailbox asks."""
        return threading.current_thread() is self.handler

    @contextmanager
    def lenient(self, read_on: Callable[[], None]) -> Iterator[None]:
        """Read on in the block though the mailbox is full, if the thread that empties it waits there for an answer.

        Without this it would wait for ever, as the answer comes behind the messages that wait.
        """
        if not self.is_own_thread:
            yield
            return
        self._is_lenient = True
        read_on()
        try:
            yield
        finally:
            self._is_lenient = False

    def put_all(self, messages: list[Message]) -> int:
        """Add messages, by the policy if there are too many; returns how many were dropped."""
        with self._lock:
            excess = len(self._items) + len(messages) - self._capacity
            if self._full == "block" or excess <= 0:
                dropped = 0
                self._items.extend(messages)
            elif self._full == "drop_oldest":
                kept = self._without([*self._items, *messages], excess)
                dropped = len(self._items) + len(messages) - len(kept)
                self._items = deque(kept)
            else:
                kept = self._without([*reversed(messages)], excess)
                dropped = len(messages) - len(kept)
                self._items.extend(reversed(kept))
            self.dropped += dropped
            self._not_empty.notify()
            return dropped

    def _without(self, items: list[Work], excess: int) -> list[Work]:
        """The items without so many messages, the first that need not be kept."""
        remaining: list[Work] = []
        for item in items:
            if excess > 0 and isinstance(item, tuple) and not self._must_keep(item):
                excess -= 1
            else:
                remaining.append(item)
        return remaining

    def call(self, work: Callable[[], None]) -> None:
        """Add a call; it is made after the messages that wait."""
        with self._lock:
            self._items.append(work)
            self._not_empty.notify()

    def take(self, timeout: float | None = None) -> list[Work] | None:
        """Some of what waits; an empty list if nothing comes in time; None once the mailbox is closed and empty."""
        with self._lock:
            self._not_empty.wait_for(lambda: self._items or self._is_closed, timeout)
            items = self._items
            if not items and self._is_closed:
                return None
            if len(items) <= BATCH:
                batch = list(items)
                items.clear()
                return batch
            return [items.popleft() for _ in range(BATCH)]

    def close(self) -> None:
        """Accept nothing new to wait for; what waits is still handled."""
        with self._lock:
            self._is_closed = True
            self._not_empty.notify_all()


class PendingMessages:
    """State: what the broker kept for a session, and nobody in this process subscribed to yet.

    The broker sends it as soon as the process is connected again, before the program could subscribe. It waits here,
    for some seconds, and at most `capacity` messages do; others are given to `drop`. All calls are made by one thread.
    """

    def __init__(self, capacity: int, drop: Callable[[list[Message]], None]) -> None:
        self._capacity = capacity
        self._drop = drop
        self._patterns: set[str] = set()
        self._messages: list[Message] = []
        self._until: float | None = None

    def begin(self, now: float) -> None:
        """The broker goes on with a session of an earlier process."""
        self._until = now + PENDING_S

    @property
    def is_active(self) -> bool:
        """Whether messages have to be offered to `hold`."""
        return self._until is not None

    def hold(self, message: Message, now: float) -> bool:
        """Keep a message that matches no subscription; returns False if it is to be handled."""
        self.expire(now)
        if self._until is None or any(MQTT.matches(pattern, message[0]) for pattern in self._patterns):
            return False
        if len(self._messages) < self._capacity:
            self._messages.append(message)
        else:
            self._drop([message])
        return True

    def expire(self, now: float) -> None:
        """Drop what nobody subscribed to in time."""
        if self._until is not None and now >= self._until:
            self._drop(self._messages)
            self._messages = []
            self._until = None

    def subscribed(self, pattern: str, now: float) -> list[Message]:
        """The messages that waited for a subscription."""
        self._patterns.add(pattern)
        self.expire(now)
        waited = [each for each in self._messages if MQTT.matches(pattern, each[0])]
        self._messages = [each for each in self._messages if not MQTT.matches(pattern, each[0])]
        return waited


class HandledMessages:
    """State: the messages of a session that were handled last, in a file that a killed process leaves behind.

    The file is a ring of digests of topic and envelope, in memory that the system writes: what was added is there after
    a kill, though not after a loss of power. A message without an envelope is not remembered: two of them may be equal.
    """

    _HEAD: Final = struct.Struct("<16sQ")
    _ENTRY: Final = struct.Struct("<8s")
    _MAGIC: Final = b"genus-handled-1\n"

    def __init__(self, file: Path) -> None:
        size = self._HEAD.size + REMEMBERED * self._ENTRY.size
        try:
            with file.open("ab") as made:
                if not made.tell():
                    made.write(self._HEAD.pack(self._MAGIC, 0).ljust(size, b"\0"))
            with file.open("r+b") as opened:
                self._memory = mmap.mmap(opened.fileno(), 0)
        except (OSError, ValueError) as problem:
            raise BusError(f"session_file: {file} cannot be used: {problem}") from None
        if len(self._memory) != size or self._memory[:16] != self._MAGIC:
            raise BusError(f"session_file: {file} is another file, not one that remembers messages")
        self._count: int = self._HEAD.unpack_from(self._memory)[1]
        ring = self._ENTRY.iter_unpack(self._memory[self._HEAD.size :])
        self._before = {digest for (digest,) in ring} - {bytes(8)}

    def had(self, message: Message) -> bool:
        """Whether an earlier process handled a message."""
        return bool(message[1] and self._before) and self._digest(message) in self._before

    def add(self, message: Message) -> None:
        """Remember that a message was handled."""
        if message[1]:
            place = self._HEAD.size + self._count % REMEMBERED * self._ENTRY.size
            self._ENTRY.pack_into(self._memory, place, self._digest(message))
            self._count += 1
            self._HEAD.pack_into(self._memory, 0, self._MAGIC, self._count)

    @staticmethod
    def _digest(message: Message) -> bytes:
        return hashlib.blake2b(message[1] + message[0].encode(), digest_size=8).digest()

    def close(self) -> None:
        """Release the file."""
        self._memory.close()
