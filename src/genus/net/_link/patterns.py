"""The patterns that a participant subscribes to: those of its subscriptions, without those that others include."""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from genus.net._link.control import LAST, ROOT
from genus.net._transport import Transport

MOST_KEYS = 20_000
"""The largest number of keys whose time of subscription is remembered."""


class Patterns:
    """State: the patterns that are wanted, how often, and those that are subscribed to.

    A pattern that another one includes is not subscribed to, for its packets would come twice. A change subscribes
    before it unsubscribes, so that no packet is missed.
    """

    def __init__(self, transport: Transport, realm: str, now: Callable[[], float]) -> None:
        self._transport, self._realm, self._now = transport, realm, now
        self._dialect = transport.dialect
        self._wanted: Counter[str] = Counter()
        self._subscribed: dict[str, list[Callable[[], None]]] = {}
        self._since: dict[str, float] = {}
        self._since_of_keys: dict[str, float | None] = {}
        self._lock = threading.RLock()

    def add(self, patterns: Iterable[str]) -> None:
        """Want patterns."""
        with self._lock:
            for pattern in patterns:
                self._wanted[pattern] += 1
                if self._wanted[pattern] == 1 and not self._is_included(pattern, self._subscribed):
                    self._subscribe(pattern)

    def remove(self, patterns: Iterable[str]) -> None:
        """Want patterns no more."""
        with self._lock:
            for pattern in patterns:
                self._wanted[pattern] -= 1
                if not self._wanted[pattern]:
                    del self._wanted[pattern]
                    self._unsubscribe(pattern)

    def __iter__(self) -> Iterator[str]:
        with self._lock:
            return iter(list(self._subscribed))

    def since(self, key: str, event_key: str) -> float | None:
        """When a key was first subscribed to, by a pattern that is now; None if it is not.

        `event_key` is the key of the event itself, if the other one is that of a last value.
        """
        with self._lock:
            if key not in self._since_of_keys:
                if len(self._since_of_keys) >= MOST_KEYS:
                    self._since_of_keys.clear()
                times = [time for each, time in self._since.items() if self._dialect.matches(each, event_key)]
                self._since_of_keys[key] = min(times, default=None)
            return self._since_of_keys[key]

    def _is_included(self, pattern: str, among: Iterable[str]) -> bool:
        return any(self._dialect.includes(wide, pattern) for wide in among)

    def _subscribe(self, pattern: str) -> None:
        ends = [self._transport.subscribe(pattern)]
        self._subscribed[pattern] = ends
        self._since[pattern] = self._now()
        self._since_of_keys.clear()
        ends.append(self._transport.subscribe(self._last_pattern(pattern), kept=True))
        for narrow in [each for each in self._subscribed if each != pattern and self._dialect.includes(pattern, each)]:
            self._end(narrow)

    def _unsubscribe(self, pattern: str) -> None:
        if pattern not in self._subscribed:
            return
        others = [each for each in self._subscribed if each != pattern]
        for shadowed in [each for each in self._wanted if self._dialect.includes(pattern, each)]:
            if not self._is_included(shadowed, others):
                self._subscribe(shadowed)
                others.append(shadowed)
        self._end(pattern)

    def _end(self, pattern: str) -> None:
        self._since.pop(pattern, None)
        self._since_of_keys.clear()
        for end in self._subscribed.pop(pattern, ()):
            end()

    def _last_pattern(self, pattern: str) -> str:
        """The pattern of the keys of last values that a pattern of events matches."""
        rest, one = self._dialect.rest, self._dialect.one
        line = pattern.partition("/")[2]
        end = "" if line.endswith(rest) else f"/{one}"
        return f"{ROOT}/{self._realm}/{LAST}/{line}{end}"

    def matches_last(self, key: str) -> bool:
        """Whether a key of last values is subscribed to; it does not wait for a subscription that is being made."""
        return any(self._dialect.matches(self._last_pattern(pattern), key) for pattern in list(self._subscribed))
