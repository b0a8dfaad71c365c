"""Frames on a connection between two processes of an `ipc:` bus.

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
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias

import msgspec

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
