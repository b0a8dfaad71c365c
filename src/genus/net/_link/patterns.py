"""The patterns that a participant subscribes to: those of its subscriptions, without those that others include."""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from genus.bus.types import ProblemHandler
from genus.filters import Subscription
from genus.net._link.messages import LAST, ROOT
from genus.net._transport import Transport
from genus.targets.topics import Dialect, TopicFilter

MAX_KEYS = 20_000
"""The largest number of keys whose time of subscription is remembered."""

_WILD = None

MAX_INHERITED = 100
"""How many patterns that a subscription has replaced without a break are remembered of it."""


class Since(NamedTuple):
    """Keys that match all these patterns have been subscribed to since a time, and since a count of subscriptions."""

    patterns: tuple[str, ...]
    time: float
    turn: int


class Patterns:
    """State: the patterns that are wanted, how often, and those that are subscribed to.

    A pattern that another one includes is not subscribed to, for its packets would come twice. A change subscribes
    before it unsubscribes, so that no packet is missed.
    """

    def __init__(self, transport: Transport, realm: str, now: Callable[[], float]) -> None:
        self._transport, self._realm, self._now = transport, realm, now
        self._dialect = transport.dialect
        self._wanted: Counter[str] = Counter()
        self._wanted_index, self._index = PatternIndex(transport.dialect), PatternIndex(transport.dialect)
        self._subscribed: dict[str, list[Callable[[], None]]] = {}
        self._since: dict[str, tuple[Since, ...]] = {}
        self._since_of_keys: dict[str, Since | None] = {}
        self._turn = 0
        self._lock = threading.RLock()

    def add(self, patterns: Iterable[str]) -> None:
        with self._lock:
            added: list[str] = []
            try:
                for pattern in patterns:
                    added.append(pattern)
                    self._wanted[pattern] += 1
                    self._wanted_index.add(pattern)
                    if self._wanted[pattern] == 1 and not any(self._index.including(pattern)):
                        self._subscribe(pattern)
            except BaseException:
                self.remove(added)
                raise

    def remove(self, patterns: Iterable[str]) -> None:
        """Want patterns no more."""
        with self._lock:
            for pattern in patterns:
                self._wanted[pattern] -= 1
                if not self._wanted[pattern]:
                    del self._wanted[pattern]
                    self._wanted_index.discard(pattern)
                    self._unsubscribe(pattern)

    @property
    def turn(self) -> int:
        return self._turn

    def __iter__(self) -> Iterator[str]:
        with self._lock:
            return iter(list(self._subscribed))

    def since(self, key: str, event_key: str) -> "Since | None":
        """Since when a key has been subscribed to without a break; None if it is not.

        `event_key` is the key of the event itself, if the other one is that of a last value.
        """
        with self._lock:
            if key not in self._since_of_keys:
                if len(self._since_of_keys) >= MAX_KEYS:
                    self._since_of_keys.clear()
                matches = self._dialect.matches
                here = [since for each, since in self._since.items() if matches(each, event_key)]
                found = [
                    each for since in here for each in since if all(matches(one, event_key) for one in each.patterns)
                ]
                self._since_of_keys[key] = min(found, key=lambda each: each.turn, default=None)
            return self._since_of_keys[key]

    def _subscribe(self, pattern: str, inherited: "tuple[Since, ...]" = ()) -> None:
        self._turn += 1
        since = Since((pattern,), self._now(), self._turn)
        ends = self._subscribed[pattern] = [self._transport.subscribe(pattern)]
        shared = [each._replace(patterns=tuple(dict.fromkeys((*each.patterns, pattern)))) for each in inherited]
        self._since[pattern] = _earliest([since, *shared])
        self._since_of_keys.clear()
        ends.append(self._transport.subscribe(self._last_pattern(pattern), kept=True))
        narrower = self._index.included_in(pattern)
        self._index.add(pattern)
        for narrow in narrower:
            self._since[pattern] = _earliest([*self._since[pattern], *self._since[narrow]])
            self._end(narrow)

    def _unsubscribe(self, pattern: str) -> None:
        if pattern not in self._subscribed:
            return
        inherited = self._since[pattern]
        for shadowed in self._wanted_index.included_in(pattern):
            if not any(each != pattern for each in self._index.including(shadowed)):
                self._subscribe(shadowed, inherited)
        self._end(pattern)

    def _end(self, pattern: str) -> None:
        self._index.discard(pattern)
        self._since.pop(pattern, None)
        self._since_of_keys.clear()
        for end in self._subscribed.pop(pattern, ()):
            end()

    def _last_pattern(self, pattern: str) -> str:
        return last_pattern(pattern, self._dialect, self._realm)

    def matches_last(self, key: str) -> bool:
        """Whether a key of last values is subscribed to; it does not wait for a subscription that is being made."""
        return any(self._dialect.matches(self._last_pattern(pattern), key) for pattern in list(self._subscribed))


class ActiveSubscription:
    """State: a subscription of the bus."""

    def __init__(self, subscription: Subscription, on_problem: ProblemHandler | None, filter: TopicFilter) -> None:
        self.subscription, self.on_problem, self.filter = subscription, on_problem, filter


class ActiveSubscriptions:
    """State: the subscriptions of the bus; their patterns are wanted."""

    def __init__(self, patterns: Patterns) -> None:
        self._patterns = patterns
        self._active: dict[ActiveSubscription, None] = {}
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[ActiveSubscription]:
        with self._lock:
            return iter(list(self._active))

    def add(self, active: ActiveSubscription) -> None:
        self._patterns.add(active.filter.patterns)
        with self._lock:
            self._active[active] = None

    def discard(self, active: ActiveSubscription) -> bool:
        """Do not list a subscription any more, its patterns are still to be removed; returns whether it was there."""
        with self._lock:
            return self._active.pop(active, active) is None

    def compile_again(self, compile: Callable[[Subscription], TopicFilter]) -> None:
        for each in self:
            before, each.filter = each.filter, compile(each.subscription)
            if set(before.patterns) != set(each.filter.patterns):
                self._patterns.add(each.filter.patterns)
                self._patterns.remove(before.patterns)

    def count(self, cls: type) -> int:
        """Return how many different subscriptions accept events of a class."""
        return sum(all(issubclass(cls, each) for each in types) for types in {each.subscription.types for each in self})

    def handlers(self, is_concerned: Callable[[ActiveSubscription], bool]) -> list[ProblemHandler]:
        return [each.on_problem for each in self if each.on_problem is not None and is_concerned(each)]


def _earliest(all_since: list[Since]) -> tuple[Since, ...]:
    """Return the earliest of those with the same patterns; of very many, the earliest ones."""
    found: dict[frozenset[str], Since] = {}
    for since in sorted(all_since, key=lambda each: each.turn):
        found.setdefault(frozenset(since.patterns), since)
    return tuple(found.values())[:MAX_INHERITED]


def last_pattern(pattern: str, dialect: Dialect, realm: str) -> str:
    """Return the pattern of the keys of last values that a pattern of events matches."""
    line = pattern.partition("/")[2]
    end = "" if line.endswith(dialect.rest) else f"/{dialect.one}"
    return f"{ROOT}/{realm}/{LAST}/{line}{end}"


class _Node:
    """State: the patterns whose chunks end here, and those that go on, by the next chunk."""

    __slots__ = ("following", "patterns")

    def __init__(self) -> None:
        self.patterns: dict[str, None] = {}
        self.following: dict[str | None, _Node] = {}

    def all(self) -> Iterator[str]:
        yield from self.patterns
        for node in self.following.values():
            yield from node.all()


class PatternIndex:
    """State: patterns of a dialect; finds those that include one, or that it includes, without a test of each pair.

    They stand in a tree by their chunks before the first wildcard for any number of chunks. A wide pattern includes a
    narrow one only if the narrow one has each text of these chunks of the wide one in the same place: a wildcard there
    would match other texts, too. What the tree finds is tested by `Dialect.includes`, which is exact but slower.
    """

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._root = _Node()

    def add(self, pattern: str) -> None:
        """Add a pattern, if it is not there."""
        node = self._root
        for chunk in self._head(pattern):
            node = node.following.setdefault(chunk, _Node())
        node.patterns[pattern] = None

    def discard(self, pattern: str) -> None:
        """Remove a pattern, if it is there."""
        node, path = self._root, []
        for chunk in self._head(pattern):
            path.append((node, chunk))
            if chunk not in node.following:
                return
            node = node.following[chunk]
        node.patterns.pop(pattern, None)
        for before, chunk in reversed(path):
            node = before.following[chunk]
            if node.patterns or node.following:
                return
            del before.following[chunk]

    def including(self, narrow: str) -> Iterator[str]:
        """Yield the patterns that include one, itself if it is there."""
        nodes, head = [self._root], self._head(narrow)
        while nodes:
            yield from (each for node in nodes for each in node.patterns if self._dialect.includes(each, narrow))
            chunk = head.pop(0) if head else _WILD
            nodes = [node.following[each] for node in nodes for each in {chunk, _WILD} if each in node.following]

    def included_in(self, wide: str) -> list[str]:
        """Return the patterns that one includes, itself if it is there."""
        return [each for each in self._perhaps_included_in(wide) if self._dialect.includes(wide, each)]

    def _perhaps_included_in(self, wide: str) -> Iterator[str]:
        nodes = [self._root]
        for chunk in self._head(wide):
            if chunk is _WILD:
                yield from (each for node in nodes for each in node.patterns)
                nodes = [each for node in nodes for each in node.following.values()]
            else:
                nodes = [node.following[chunk] for node in nodes if chunk in node.following]
        for node in nodes:
            yield from node.all()

    def _head(self, pattern: str) -> list[str | None]:
        """Return the chunks before the first wildcard for any number of them; None for those with a wildcard."""
        chunks, dialect = self._dialect.split(pattern), self._dialect
        if dialect.rest in chunks:
            chunks = chunks[: chunks.index(dialect.rest)]
        part = dialect.part
        return [_WILD if chunk == dialect.one or (part and part in chunk) else chunk for chunk in chunks]
