"""The session of a client: what it asks for, its tokens, and messages that wait to be handled.

What a client asks a server for, a session and subscriptions, and what it is told.

Messages between the thread that receives them and the one that handles them.

`MessageMailbox` is the bounded queue between the two. `PendingMessages` are those that a session goes on with before
its process has subscribed again. `HandledMessages` remembers in a file what was handled, so that a process that was
killed does not handle again what the broker sends again.

Tokens over MQTT: one retained topic per participant, whose payload lists all its tokens.

`@genus/<realm>/tokens/<participant>`: a list of texts in msgpack; no payload when the participant is gone, which its
will says for it. So a participant costs one topic and one will, however many tokens it shows.

A will is not enough: it is lost with a broker that is restarted. So a list counts for a time, its lease, which the
envelope says; the participant repeats it long before that. The broker forgets it then (message expiry), and the others
do when they have heard themselves for so long and not the participant: while they are cut off, or are late in reading,
nobody is gone.
"""

import hashlib
import mmap
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeAlias

import mqtt5
import msgspec

from genus.bus.types import Overflow
from genus.errors import BusError
from genus.net._mailbox import Mailbox
from genus.net._mqtt.wire import Message, PublishForm
from genus.targets.topics import MQTT

SEND_WINDOW: Final = 100
"""Packets in flight: larger bursts overflow more often the queue that a broker has for each client, such as mosquitto's
of 1,000; a window of 1,000 is hardly faster."""


class Session(msgspec.Struct, frozen=True):
    """What a client asks for when it connects; with `acknowledges_late` it says itself when messages were handled."""

    client_id: str
    clean_start: bool = True
    expires_s: int = 0
    keep_alive_s: int = 10
    user: str | None = None
    password: bytes | None = None
    will: Callable[[], mqtt5.Will | None] = lambda: None
    """Gives the will of each connection."""
    receive_max: int = 65_535
    largest: int = 1 << 26
    acknowledges_late: bool = False

    def __repr__(self) -> str:
        return f"Session({self.client_id!r})"


class Filter(msgspec.Struct, frozen=True):
    """A subscription: the pattern, the highest QoS, and whether what is retained is sent first.

    `own`: packets of this client are sent to it too. `number`: packets come with this subscription identifier.
    """

    pattern: str
    qos: int = 1
    kept: bool = False
    own: bool = False
    number: int | None = None

    def for_packet(self) -> mqtt5.TopicFilter:
        retained = mqtt5.RetainHandling.SEND_ALWAYS if self.kept else mqtt5.RetainHandling.SEND_NEVER
        return mqtt5.TopicFilter(
            self.pattern, max_qos=mqtt5.QoS(self.qos), no_local=not self.own, retain_handling=retained
        )


class Limits(msgspec.Struct, frozen=True):
    """What the server said in CONNACK; before that, what the standard assumes.

    `receive_max` is how many packets of QoS 1 are sent without an acknowledgement, `largest` the largest packet.
    """

    receive_max: int = SEND_WINDOW
    largest: int = 1 << 28
    keeps: bool = True
    shares: bool = True
    qos: int = 2
    keep_alive_s: int = 0
    is_session_kept: bool = False

    @classmethod
    def of(cls, packet: mqtt5.ConnAckPacket, keep_alive_s: int) -> "Limits":
        """Return the limits of a CONNACK, for what the client asked for."""
        told = packet.server_keep_alive
        return cls(
            receive_max=max(1, min(packet.receive_max, SEND_WINDOW)),
            largest=packet.max_packet_size or 1 << 28,
            keeps=packet.retain_available,
            shares=packet.shared_subscription_available,
            qos=int(packet.max_qos),
            keep_alive_s=keep_alive_s if told is None else told,
            is_session_kept=packet.session_present,
        )


class Connected(msgspec.Struct, frozen=True):
    """The server accepted the client; packets can be sent."""

    limits: Limits


class Closing(msgspec.Struct, frozen=True):
    """Send what `pull` gives and close the stream; if `is_final`, do not connect again."""

    why: str
    is_final: bool = False


class Granted(msgspec.Struct, frozen=True):
    """The server accepted a subscription with a QoS; None: the stream ended before, and it will be asked again."""

    pattern: str
    qos: int | None


class Refused(msgspec.Struct, frozen=True):
    """The server refused a subscription."""

    pattern: str
    why: str


class Ended(msgspec.Struct, frozen=True):
    """The server ended a subscription: no more packets come for it."""

    pattern: str


class Undelivered(msgspec.Struct, frozen=True):
    """A packet was not sent, or the server refused it; `source` is what the packet was given with."""

    source: object
    why: str


Notice: TypeAlias = Connected | Closing | Granted | Refused | Ended | Undelivered


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
        if self._until is not None and now >= self._until:
            self._drop(self._messages)
            self._messages = []
            self._until = None

    def subscribed(self, pattern: str, now: float) -> list[Message]:
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
        return bool(message[1] and self._before) and self._digest(message) in self._before

    def add(self, message: Message) -> None:
        if message[1]:
            place = self._HEAD.size + self._count % REMEMBERED * self._ENTRY.size
            self._ENTRY.pack_into(self._memory, place, self._digest(message))
            self._count += 1
            self._HEAD.pack_into(self._memory, 0, self._MAGIC, self._count)

    @staticmethod
    def _digest(message: Message) -> bytes:
        return hashlib.blake2b(message[1] + message[0].encode(), digest_size=8).digest()

    def close(self) -> None:
        self._memory.close()


MAX_BYTES: Final = 1024 * 1024
MAX_TOKENS: Final = 10_000
MAX_TOKEN: Final = 65_535
CONFIRM_S: Final = 10.0
"""After a reconnect, the lease of tokens that were not heard of again. Others may still be waiting to connect, five
seconds at most."""

Changes: TypeAlias = Iterator[tuple[str, bool]]
"""Tokens, and whether each is present now."""

_DECODER = msgspec.msgpack.Decoder(list[str])
_encode = msgspec.msgpack.Encoder().encode
_LEASE = struct.Struct(">I")


class OwnTokens:
    """State: the tokens that this participant shows, with how often each was declared."""

    def __init__(self) -> None:
        self._tokens: Counter[str] = Counter()
        self._size = 0
        self._lock = threading.Lock()

    def add(self, token: str) -> None:
        """Show a token; BusError if there are too many."""
        size = len(token.encode()) + 5
        if not MQTT.is_key(token) or size > MAX_TOKEN:
            raise BusError(f"{token[:80]!r} cannot be a token: it must be a topic without wildcards, and not too long")
        with self._lock:
            if len(self._tokens) >= MAX_TOKENS or self._size + size > MAX_BYTES - 5:
                raise BusError(f"too many tokens: a participant can show {MAX_TOKENS:,}, and {MAX_BYTES:,} bytes")
            self._size += 0 if token in self._tokens else size
            self._tokens[token] += 1

    def remove(self, token: str) -> None:
        """Show a token no longer, if it was removed as often as it was added."""
        with self._lock:
            self._tokens[token] -= 1
            if self._tokens[token] <= 0:
                del self._tokens[token]
                self._size -= len(token.encode()) + 5

    def packet(self, topic: str, lease_s: int) -> bytes:
        """Return the packet that shows them for a time (0: for ever), or that there are none."""
        form = PublishForm(topic, retain=True, expiry_s=lease_s or None)
        with self._lock:
            payload = _encode(sorted(self._tokens)) if self._tokens else b""
        return form.parts(payload, _LEASE.pack(lease_s) if lease_s else b"")[0]


class Shown:
    """State: what another participant shows, for how long, and for how long it has been silent."""

    def __init__(self, payload: bytes, tokens: frozenset[str], lease_s: int) -> None:
        self.payload, self.tokens, self.lease_s = payload, tokens, lease_s
        self.silent_s = 0.0


class OtherTokens:
    """State: the tokens of the other participants, and the patterns of those that are watched.

    A token is present while at least one participant shows it.
    """

    def __init__(self) -> None:
        self.bad = 0
        self._of: dict[str, Shown] = {}
        self._owners: Counter[str] = Counter()
        self._patterns: Counter[str] = Counter()
        self._heard_self_at: float | None = None

    def watch(self, pattern: str) -> Changes:
        """Watch tokens that match a pattern; gives those that are present."""
        self._patterns[pattern] += 1
        for token in sorted(self._owners):
            if MQTT.matches(pattern, token):
                yield token, True

    def unwatch(self, pattern: str) -> None:
        self._patterns[pattern] -= 1
        if self._patterns[pattern] <= 0:
            del self._patterns[pattern]

    def heard(self, owner: str, payload: bytes, envelope: bytes = b"") -> Changes:
        """Return a participant said what it shows; gives the changes that are watched."""
        lease_s = _LEASE.unpack(envelope)[0] if len(envelope) == _LEASE.size else 0
        known = self._of.get(owner)
        tokens = known.tokens if known is not None and known.payload == payload else self._read(payload)
        if tokens is None:
            self.bad += 1
            return iter(())
        return self._replace(owner, Shown(payload, tokens, lease_s))

    def _read(self, payload: bytes) -> frozenset[str] | None:
        """Return the tokens in a payload; None if it is not valid."""
        if not payload:
            return frozenset()
        if len(payload) > MAX_BYTES:
            return None
        try:
            tokens = _DECODER.decode(payload)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return None
        is_valid = len(tokens) <= MAX_TOKENS and all(map(MQTT.is_key, tokens))
        return frozenset(tokens) if is_valid else None

    def _replace(self, owner: str, shown: Shown | None) -> Changes:
        known = self._of.pop(owner, None)
        before = known.tokens if known is not None else frozenset()
        tokens = shown.tokens if shown is not None else frozenset()
        if shown is not None and tokens:
            self._of[owner] = shown
        appeared, gone = sorted(tokens - before), sorted(before - tokens)
        self._owners.update(appeared)
        self._owners.subtract(gone)
        changes = [(token, True) for token in appeared if self._owners[token] == 1]
        for token in gone:
            if self._owners[token] <= 0:
                del self._owners[token]
                changes.append((token, False))
        return self._watched(changes)

    def _watched(self, changes: Iterable[tuple[str, bool]]) -> Changes:
        for token, is_present in changes:
            if any(MQTT.matches(pattern, token) for pattern in self._patterns):
                yield token, is_present

    def doubt(self) -> None:
        """The connection was made again: what is not heard of within some seconds is gone."""
        for shown in self._of.values():
            shown.lease_s, shown.silent_s = int(CONFIRM_S), 0.0

    def heard_self(self, now: float, beat_s: float) -> Changes:
        """This participant's own list came back, as it does in every beat: those that were silent too long are gone.

        Longer pauses count as one beat: then this process was late, or cut off.
        """
        since, self._heard_self_at = self._heard_self_at, now
        passed = 0.0 if since is None else min(now - since, beat_s)
        for owner, shown in sorted(self._of.items()):
            shown.silent_s += passed
            if shown.lease_s and shown.silent_s > shown.lease_s:
                yield from self._replace(owner, None)
