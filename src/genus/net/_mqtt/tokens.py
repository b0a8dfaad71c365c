"""Tokens over MQTT: one retained topic per participant, whose payload lists all its tokens.

`@genus/<realm>/tokens/<participant>`: a list of texts in msgpack; no payload when the participant is gone, which its
will says for it. So a participant costs one topic and one will, however many tokens it shows.

A will is not enough: it is lost with a broker that is restarted. So a list counts for a time, its lease, which the
envelope says; the participant repeats it long before that. The broker forgets it then (message expiry), and the others
do when they have heard themselves for so long and not the participant: while they are cut off, or are late in reading,
nobody is gone.
"""

import struct
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

import msgspec

from genus.errors import BusError
from genus.net._mqtt.wire import PublishForm
from genus.targets.topics import MQTT

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
        """Watch a pattern no longer."""
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
