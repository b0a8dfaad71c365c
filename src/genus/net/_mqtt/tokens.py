"""Tokens over MQTT: one retained topic per participant, whose payload lists all its tokens.

`@genus/<realm>/tokens/<participant>`: a list of texts in msgpack; no payload when the participant is gone, which its
will says for it. So a participant costs one topic and one will, however many tokens it shows.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

import msgspec

from genus.errors import BusError
from genus.targets.topics import MQTT

MOST_BYTES: Final = 1024 * 1024
MOST_TOKENS: Final = 10_000
LONGEST_TOKEN: Final = 65_535
CONFIRM_S: Final = 10.0
"""After a reconnect, how long tokens of others count as present that were not heard of again. Others may still be
waiting to connect, five seconds at most."""

Changes: TypeAlias = Iterator[tuple[str, bool]]
"""Tokens, and whether each is present now."""

_DECODER = msgspec.msgpack.Decoder(list[str])
_encode = msgspec.msgpack.Encoder().encode


class OwnTokens:
    """State: the tokens that this participant shows, with how often each was declared."""

    def __init__(self) -> None:
        self._tokens: Counter[str] = Counter()
        self._size = 0

    def add(self, token: str) -> None:
        """Show a token; BusError if there are too many."""
        size = len(token.encode()) + 5
        if not MQTT.is_key(token) or size > LONGEST_TOKEN:
            raise BusError(f"{token[:80]!r} cannot be a token: it must be a topic without wildcards, and not too long")
        if len(self._tokens) >= MOST_TOKENS or self._size + size > MOST_BYTES - 5:
            raise BusError(f"too many tokens: a participant can show {MOST_TOKENS:,}, and {MOST_BYTES:,} bytes")
        self._size += 0 if token in self._tokens else size
        self._tokens[token] += 1

    def remove(self, token: str) -> None:
        """Show a token no longer, if it was removed as often as it was added."""
        self._tokens[token] -= 1
        if self._tokens[token] <= 0:
            del self._tokens[token]
            self._size -= len(token.encode()) + 5

    def payload(self) -> bytes:
        """The packet that shows them; empty if there are none."""
        return _encode(sorted(self._tokens)) if self._tokens else b""


class OtherTokens:
    """State: the tokens of the other participants, and the patterns of those that are watched.

    A token is present while at least one participant shows it.
    """

    def __init__(self) -> None:
        self.bad = 0
        self._of: dict[str, frozenset[str]] = {}
        self._owners: Counter[str] = Counter()
        self._patterns: Counter[str] = Counter()
        self._unconfirmed: set[str] = set()
        self.confirm_by: float | None = None

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

    def heard(self, owner: str, payload: bytes) -> Changes:
        """A participant said what it shows; gives the changes that are watched."""
        tokens = self._read(payload)
        if tokens is None:
            self.bad += 1
            return iter(())
        self._unconfirmed.discard(owner)
        return self._replace(owner, tokens)

    def _read(self, payload: bytes) -> frozenset[str] | None:
        """The tokens in a payload; None if it is not valid."""
        if not payload:
            return frozenset()
        if len(payload) > MOST_BYTES:
            return None
        try:
            tokens = _DECODER.decode(payload)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return None
        is_valid = len(tokens) <= MOST_TOKENS and all(map(MQTT.is_key, tokens))
        return frozenset(tokens) if is_valid else None

    def _replace(self, owner: str, tokens: frozenset[str]) -> Changes:
        before = self._of.pop(owner, frozenset())
        if tokens:
            self._of[owner] = tokens
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

    def doubt(self, now: float) -> None:
        """The connection was made again: what is not heard of within some seconds is gone."""
        self._unconfirmed = set(self._of)
        self.confirm_by = now + CONFIRM_S if self._unconfirmed else None

    def settle(self, now: float) -> Changes:
        """Remove what was not heard of in time."""
        if self.confirm_by is None or now < self.confirm_by:
            return
        self.confirm_by = None
        for owner in sorted(self._unconfirmed):
            yield from self._replace(owner, frozenset())
        self._unconfirmed.clear()

    def timeout(self, now: float) -> float | None:
        """How long from now until `settle` has something to do."""
        return None if self.confirm_by is None else max(0.0, self.confirm_by - now)
