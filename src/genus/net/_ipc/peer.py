"""Another process on an `ipc:` bus, at the other end of a connection."""

import os
import socket
import struct
from collections.abc import Callable
from pathlib import Path

from genus.net._ipc.frames import HELLO, KEY, VERSION, FrameReader, Hello, encode_frame
from genus.net._ipc.mailbox import NumberedKey
from genus.net._ipc.queue import Losses, PeerQueue
from genus.targets.topics import ZENOH

_STOPPED = frozenset("TtZX")


class Peer:
    """State: what is known of another process, and what waits for it.

    The lock of the outbox guards the queue, the patterns and the answers; the thread that reads has the rest.
    """

    def __init__(
        self, connection: socket.socket, own_name: str, capacity: int, losses: Losses, state: Callable[[], bytes]
    ) -> None:
        self.connection = connection
        self.queue = PeerQueue(connection, capacity, losses, state)
        self.queue.tell(encode_frame(HELLO, Hello(VERSION, own_name)))
        self.queue.tell(state())
        self.name = ""
        self.is_known = False
        """Whether its patterns have come."""
        self.answered = 0
        """The newest question that it answered."""
        self.is_late = False
        """Whether it did not answer in time, or was stopped; nobody waits for it until it answers again."""
        self.is_gone = False
        self.reader = FrameReader()
        self.keys: dict[int, NumberedKey] = {}
        self.tokens: set[str] = set()
        self.patterns: dict[str, None] = {}
        self._wanted: dict[str, bool] = {}
        self._told: set[int] = set()
        self._pid = _pid_of(connection)

    def fileno(self) -> int:
        """Return the connection, for selectors."""
        return self.connection.fileno()

    def add_pattern(self, pattern: str) -> None:
        """It subscribed to a pattern."""
        if pattern not in self.patterns:
            self.patterns[pattern] = None
            self._wanted = {key: is_wanted for key, is_wanted in self._wanted.items() if is_wanted}

    def remove_pattern(self, pattern: str) -> None:
        """It subscribes to a pattern no more."""
        if pattern in self.patterns:
            del self.patterns[pattern]
            self._wanted = {key: is_wanted for key, is_wanted in self._wanted.items() if not is_wanted}

    def replace_patterns(self, patterns: list[str]) -> None:
        """It subscribed to these and no others."""
        self.patterns = dict.fromkeys(patterns)
        self._wanted = {}

    def interests(self, key: str) -> bool:
        """Return whether it subscribed to a pattern that a key matches."""
        found = self._wanted.get(key)
        if found is None:
            found = self._wanted[key] = any(ZENOH.matches(pattern, key) for pattern in self.patterns)
        return found

    def tell_key(self, number: int, key: str) -> None:
        """Tell it a key before the first packet that has its number."""
        if number not in self._told:
            self._told.add(number)
            self.queue.tell(encode_frame(KEY, key, number))

    def is_stopped(self) -> bool:
        """Return whether a signal has stopped it, or it has ended; False where the system does not say."""
        try:
            status = Path(f"/proc/{self._pid}/stat").read_bytes()
        except OSError:
            return False
        return status.rpartition(b")")[2].split()[0].decode() in _STOPPED


def _pid_of(connection: socket.socket) -> int:
    """Return the process at the other end, 0 where the system does not say."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return 0
    pid: int = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, option, struct.calcsize("3i")))[0]
    return 0 if pid == os.getpid() else pid
