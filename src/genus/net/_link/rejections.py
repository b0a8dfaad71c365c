"""Packets that are no events, counted by reason, with the last example of each."""

import threading

import msgspec

MOST_REASONS = 500
"""How many reasons are told apart; names from outside are part of some."""
EXAMPLE_LENGTH = 200


class Example(msgspec.Struct, frozen=True):
    """A packet that was rejected: its key and the first bytes of its payload."""

    key: str
    payload: bytes


class Rejections:
    """State: how many packets were rejected, by reason, and the last one for each."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._examples: dict[str, Example] = {}
        self._lock = threading.Lock()

    def add(self, reason: str, key: str = "", payload: bytes = b"", count: int = 1) -> None:
        """Count a packet."""
        reason = reason if len(reason) <= EXAMPLE_LENGTH else reason[:EXAMPLE_LENGTH] + "..."
        with self._lock:
            if reason not in self._counts and len(self._counts) >= MOST_REASONS:
                reason = "other reasons"
            self._counts[reason] = self._counts.get(reason, 0) + count
            self._examples[reason] = Example(key[:EXAMPLE_LENGTH], bytes(payload[:EXAMPLE_LENGTH]))

    @property
    def counts(self) -> dict[str, int]:
        """The number of packets for each reason."""
        with self._lock:
            return dict(self._counts)

    @property
    def examples(self) -> dict[str, Example]:
        """The last packet for each reason."""
        with self._lock:
            return dict(self._examples)
