"""Last values of others that this process has received, for those of its subscribers that come later."""

import threading

from genus.filters import Subscription
from genus.model import Event
from genus.net._patterns import Patterns

MOST_KEPT = 100_000
"""The largest number of last values that are remembered; the oldest is forgotten for a new one."""


class KeptEvents:
    """State: the newest event of each key of last values, as long as the key is subscribed to."""

    def __init__(self, patterns: Patterns) -> None:
        self._patterns = patterns
        self._events: dict[str, Event] = {}
        self._lock = threading.Lock()

    def keep(self, key: str, event: Event) -> None:
        """Keep an event as the newest of its key."""
        with self._lock:
            if key not in self._events and len(self._events) >= MOST_KEPT:
                del self._events[next(iter(self._events))]
            self._events[key] = event

    def forget(self, key: str) -> None:
        """Keep no event of a key."""
        with self._lock:
            self._events.pop(key, None)

    def drop_unsubscribed(self) -> None:
        """Forget the events of keys that are no longer subscribed to, as newer ones do not arrive."""
        with self._lock:
            keys = list(self._events)
        for key in keys:
            if not self._patterns.matches_last(key):
                self.forget(key)

    def matching(self, subscription: Subscription) -> list[Event]:
        """The newest events that a subscription matches."""
        with self._lock:
            events = list(self._events.values())
        return [event for event in events if subscription.matches(event)]
