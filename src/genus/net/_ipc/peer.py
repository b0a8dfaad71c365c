"""Other processes on an `ipc:` bus: frames between them, their connection, patterns and tokens.

Frames on a connection between two processes of an `ipc:` bus.

| bytes | |
|---|---|
| 4 | length of the body |
| 1 | kind |
| 1 | length of the envelope at the beginning of the body, in packets |
| 4 | number: of the key in packets, of the question in questions and answers |
| ... | body |

A key is told once on a connection, with its number; packets have the number. The numbers are those of the sender, the
same on all its connections, so that a frame is made once for all receivers. The bodies of other frames are msgpack.
A frame of a kind that is not known here is skipped, so that a newer process can send more; a length that is too large
means that the framing is lost, and the connection is closed.

Other processes on an `ipc:` bus: their connection, patterns and tokens.

What the processes of an `ipc:` bus show each other: the patterns that they subscribed to, and their tokens.

Another process on an `ipc:` bus, at the other end of a connection.
"""

import os
import socket
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec

from genus.net._ipc.queues import Losses, NumberedKey, PeerQueue
from genus.targets.topics import ZENOH

HEAD: Final = struct.Struct(">IBBI")
VERSION: Final = 1
MAX_PAYLOAD: Final = 64 * 1024 * 1024
MAX_ENVELOPE: Final = 255
MAX_BODY: Final = MAX_PAYLOAD + MAX_ENVELOPE
MAX_TEXT: Final = 1 << 16
"""Bytes of a key, a pattern or a token."""

HELLO, STATE, SUBSCRIBE, UNSUBSCRIBE, DECLARE, UNDECLARE, KEY, PACKET, KEPT, LOST, DONE = range(11)
MALFORMED: Final = 256
"""The kind of a frame whose envelope is longer than its body."""
KINDS: Final = ("hello", "state", "subscribe", "unsubscribe", "declare", "undeclare", "key", "packet", "kept", "lost",
                "done")  # fmt: skip


class Hello(msgspec.Struct, frozen=True, array_like=True):
    """The first frame: the version of these frames, and the name of the process's socket, which is its own."""

    version: int
    name: str


class State(msgspec.Struct, frozen=True, array_like=True):
    """All that a process shows: its patterns, each with whether kept packets are asked for, and its tokens."""

    patterns: tuple[tuple[str, bool], ...]
    tokens: tuple[str, ...]


class Subscribe(msgspec.Struct, frozen=True, array_like=True):
    """A new pattern; with `kept`, the newest packets that are kept for it are sent. It is answered by DONE."""

    pattern: str
    kept: bool


Frame: TypeAlias = tuple[int, int, bytes, bytes]
"""A frame that is whole: kind, number, envelope and the rest of the body, which is not yet decoded."""


class FramingLost(Exception):
    """The bytes are no frames; nothing behind them can be read."""


_encode = msgspec.msgpack.Encoder().encode
_BODIES: Final[dict[int, Any]] = {
    HELLO: Hello,
    STATE: State,
    SUBSCRIBE: Subscribe,
    UNSUBSCRIBE: str,
    DECLARE: str,
    UNDECLARE: str,
    KEY: str,
    LOST: dict[int, int],
    DONE: bool,
}
_DECODERS: Final = {kind: msgspec.msgpack.Decoder(body) for kind, body in _BODIES.items()}


def encode_frame(kind: int, body: object, number: int = 0) -> bytes:
    encoded = _encode(body)
    return HEAD.pack(len(encoded), kind, 0, number) + encoded


def decode_body(kind: int, body: bytes) -> Any:
    """Return what a frame other than a packet says; None if it is malformed or has a text that is too long."""
    try:
        found = _DECODERS[kind].decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return found if all(len(text) <= MAX_TEXT for text in _texts(found)) else None


def _texts(body: object) -> Iterator[str]:
    match body:
        case str():
            yield body
        case Hello():
            yield body.name
        case Subscribe():
            yield body.pattern
        case State():
            yield from body.tokens
            yield from (pattern for pattern, _ in body.patterns)


class FrameReader:
    """State: the bytes of a connection that are no whole frame yet."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0
        self._needed = HEAD.size

    def feed(self, data: bytes) -> Sequence[Frame]:
        """Add bytes; returns the frames that are whole now. Parts of a large frame are joined once, at its end.

        Raises:
            FramingLost: A length is too large.
        """
        self._parts.append(data)
        self._size += len(data)
        if self._size < self._needed:
            return ()
        joined = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts, self._size = [], 0
        frames, end = self._split(joined)
        if end < len(joined):
            self._parts, self._size = [joined[end:]], len(joined) - end
        return frames

    def _split(self, data: bytes) -> tuple[list[Frame], int]:
        """Return the whole frames and where the last one ends; also finds how many bytes the next one needs."""
        frames: list[Frame] = []
        add, unpack, head = frames.append, HEAD.unpack_from, HEAD.size
        at, size = 0, len(data)
        while at + head <= size:
            length, kind, envelope, number = unpack(data, at)
            begin = at + head
            end = begin + length
            if end > size:
                if length > MAX_BODY:
                    raise FramingLost
                self._needed = head + length
                return frames, at
            middle = begin + envelope
            add((kind if middle <= end else MALFORMED, number, data[begin:middle], data[middle:end]))
            at = end
        self._needed = head
        return frames, at


MAX_SHOWN: Final = 100_000
"""Patterns, tokens and keys of one process, each; more are refused."""


class Shown:
    """State: what this process shows to others. Each change returns the frame that tells them, or None."""

    def __init__(self) -> None:
        self._patterns: Counter[str] = Counter()
        self._kept: Counter[str] = Counter()
        self._tokens: Counter[str] = Counter()

    def subscribe(self, pattern: str, kept: bool, number: int) -> bytes | None:
        """Add a pattern; one that is there already is told again only if kept packets are asked for."""
        self._patterns[pattern] += 1
        self._kept[pattern] += kept
        if self._patterns[pattern] > 1 and not kept:
            return None
        return encode_frame(SUBSCRIBE, Subscribe(pattern, kept), number)

    def unsubscribe(self, pattern: str, kept: bool) -> bytes | None:
        _decrease(self._kept, pattern, kept)
        return encode_frame(UNSUBSCRIBE, pattern) if _decrease(self._patterns, pattern, 1) else None

    def declare(self, token: str) -> bytes | None:
        self._tokens[token] += 1
        return encode_frame(DECLARE, token) if self._tokens[token] == 1 else None

    def undeclare(self, token: str) -> bytes | None:
        return encode_frame(UNDECLARE, token) if _decrease(self._tokens, token, 1) else None

    def encode(self) -> bytes:
        """Return the frame that has all of it."""
        patterns = tuple((pattern, self._kept[pattern] > 0) for pattern in self._patterns)
        return encode_frame(STATE, State(patterns, tuple(self._tokens)))


def _decrease(counts: "Counter[str]", text: str, by: int) -> bool:
    """Return whether a text is there no more."""
    counts[text] -= by
    if counts[text] > 0:
        return False
    del counts[text]
    return True


class TokenBoard:
    """State: the tokens of others, and those that the receiver was told of. It is used by one thread only.

    A token that several processes show is told once, and is gone with the last of them.
    """

    def __init__(self, tell: Callable[[str, bool], None]) -> None:
        self._tell = tell
        self._owners: dict[str, set[object]] = {}
        self._told: dict[str, None] = {}
        self._watched: Counter[str] = Counter()

    def declare(self, owner: object, token: str) -> None:
        owners = self._owners.setdefault(token, set())
        owners.add(owner)
        if len(owners) == 1 and self._is_watched(token, self._watched):
            self._told[token] = None
            self._tell(token, True)

    def undeclare(self, owner: object, token: str) -> None:
        """A process shows a token no more."""
        owners = self._owners.get(token, set())
        owners.discard(owner)
        if not owners and self._owners.pop(token, None) is not None and token in self._told:
            del self._told[token]
            self._tell(token, False)

    def replace(self, owner: object, tokens: Iterable[str]) -> None:
        """A process shows these tokens and no others; none of them if it is gone."""
        new = dict.fromkeys(tokens)
        for token in [each for each, owners in self._owners.items() if owner in owners and each not in new]:
            self.undeclare(owner, token)
        for token in new:
            self.declare(owner, token)

    def watch(self, pattern: str) -> None:
        """Tell of the tokens that match, but for those that were told already."""
        self._watched[pattern] += 1
        for token in [each for each in self._owners if each not in self._told and self._is_watched(each, [pattern])]:
            self._told[token] = None
            self._tell(token, True)

    def unwatch(self, pattern: str) -> None:
        """Tell no more of tokens that match this pattern only."""
        if _decrease(self._watched, pattern, 1):
            for token in [each for each in self._told if not self._is_watched(each, self._watched)]:
                del self._told[token]

    @staticmethod
    def _is_watched(token: str, patterns: Iterable[str]) -> bool:
        return any(ZENOH.matches(pattern, token) for pattern in patterns)


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
        if pattern not in self.patterns:
            self.patterns[pattern] = None
            self._wanted = {key: is_wanted for key, is_wanted in self._wanted.items() if is_wanted}

    def remove_pattern(self, pattern: str) -> None:
        """It subscribes to a pattern no more."""
        if pattern in self.patterns:
            del self.patterns[pattern]
            self._wanted = {key: is_wanted for key, is_wanted in self._wanted.items() if not is_wanted}

    def replace_patterns(self, patterns: list[str]) -> None:
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
