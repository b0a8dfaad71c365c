"""Messages between the thread that receives them and the one that handles them.

`MessageMailbox` is the bounded queue between the two. `PendingMessages` are those that a session goes on with before
its process has subscribed again. `HandledMessages` remembers in a file what was handled, so that a process that was
killed does not handle again what the broker sends again.
"""

import hashlib
import mmap
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from genus.bus.types import Overflow
from genus.errors import BusError
from genus.net._mailbox import Mailbox
from genus.net._mqtt.wire import Message
from genus.targets.topics import MQTT

BATCH: Final = 1024
PENDING_S: Final = 30.0
"""How long after the start messages wait for a subscription."""
REMEMBERED: Final = 4096
"""Messages that a file remembers; a broker has at most 1,000 on their way to a session."""


class MessageMailbox(Mailbox[Message]):
    """State: messages and calls that wait to be handled."""

    def __init__(self, capacity: int, overflow: Overflow, must_keep: Callable[[Message], bool]) -> None:
        super().__init__(capacity, overflow, BATCH, must_keep)
        self._is_lenient = False

    @property
    def is_full(self) -> bool:
        """Whether the owner should stop reading."""
        return super().is_full and not self._is_lenient

    def pause(self) -> bool:
        """Return whether not to read now; then whoever empties the mailbox says when to read on."""
        with self._lock:
            self.is_paused = self.is_full
            return self.is_paused

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
        """Return the messages that waited for a subscription."""
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
        """Return whether an earlier process handled a message."""
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
