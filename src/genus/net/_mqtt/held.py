"""Messages of a session that go on before its process has subscribed again."""

from collections.abc import Iterator
from typing import Final

from genus.net._mqtt.wire import Message
from genus.targets.topics import MQTT

HOLD_S: Final = 30.0
"""How long after the start messages wait for a subscription."""


class HeldMessages:
    """State: what the broker kept for a session, and nobody in this process subscribed to yet.

    The broker sends it as soon as the process is connected again, before the program could subscribe. It waits here,
    for some seconds, and at most `capacity` messages do. All calls are made by one thread.
    """

    def __init__(self, capacity: int) -> None:
        self.dropped = 0
        self._capacity = capacity
        self._patterns: set[str] = set()
        self._messages: list[Message] = []
        self._until: float | None = None

    def begin(self, now: float) -> None:
        """The broker goes on with a session of an earlier process."""
        self._until = now + HOLD_S

    @property
    def is_holding(self) -> bool:
        """Whether messages have to be offered to `hold`."""
        return self._until is not None

    def hold(self, message: Message, now: float) -> bool:
        """Keep a message that matches no subscription; returns False if it is to be handled."""
        if self._until is None or now >= self._until:
            self._end()
            return False
        if any(MQTT.matches(pattern, message[0]) for pattern in self._patterns):
            return False
        if len(self._messages) < self._capacity:
            self._messages.append(message)
        else:
            self.dropped += 1
        return True

    def _end(self) -> None:
        """Nobody subscribed in time."""
        self.dropped += len(self._messages)
        self._messages.clear()
        self._until = None

    def subscribed(self, pattern: str, now: float) -> Iterator[Message]:
        """The messages that waited for a subscription."""
        self._patterns.add(pattern)
        if self._until is None or now >= self._until:
            self._end()
            return
        waited, self._messages = self._messages, []
        for message in waited:
            if MQTT.matches(pattern, message[0]):
                yield message
            else:
                self._messages.append(message)
