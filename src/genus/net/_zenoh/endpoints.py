"""Publishers and subscribers of zenoh, plain and with recovery; the only module that uses zenoh's unstable `ext`.

With recovery, the publisher holds its last packets and tells its newest number twice a second; a subscriber that misses
some asks for them, and gives later ones on after them. This costs about an eighth of the rate, so a subscriber is plain
until a publisher with recovery appears on its keys: it is then declared again with recovery, and only after that the
plain one is ended. Packets that both of them got are doubled, which the link removes.
"""

import threading
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from genus.net._transport import BULK, NORMAL, SOFT, URGENT, Sending
from genus.net._zenoh.session import direct, import_zenoh

if TYPE_CHECKING:
    import zenoh

HEARTBEAT_S = 0.5
_PRIORITIES = {BULK: "BACKGROUND", NORMAL: "DATA", SOFT: "INTERACTIVE_HIGH", URGENT: "REAL_TIME"}

_OFFER = "/@adv/pub/"
"""Between the key of a publisher with recovery and the rest of the token by which zenoh shows it."""


def declare_publisher(session: "zenoh.Session", key: str, sending: Sending, blocks: bool, held: int) -> Any:
    """A publisher for the packets of a key; `held` is how many are held to be sent again, where that is asked for."""
    zenoh = import_zenoh()
    common = {
        "congestion_control": zenoh.CongestionControl.BLOCK if blocks else zenoh.CongestionControl.DROP,
        "priority": getattr(zenoh.Priority, _PRIORITIES[sending.priority]),
        "express": sending.priority >= SOFT,
        "allowed_destination": zenoh.Locality.REMOTE,
    }
    if sending.content_type:
        common["encoding"] = zenoh.Encoding(sending.content_type)
    if not sending.reliable:
        return session.declare_publisher(key, **common)
    from zenoh import ext

    return ext.declare_advanced_publisher(
        session,
        key,
        cache=ext.CacheConfig(held),
        sample_miss_detection=ext.MissDetectionConfig(heartbeat=HEARTBEAT_S, sporadic_heartbeat=None),
        publisher_detection=True,
        **common,
    )


class PacketSubscriber:
    """State: a subscription, plain or with recovery."""

    def __init__(
        self, session: "zenoh.Session", pattern: str, accept: Callable[[Any], None], missed: Callable[[int], None]
    ) -> None:
        self.pattern = pattern
        self._session, self._accept, self._missed = session, direct(accept), missed
        self._zenoh = import_zenoh()
        self._keys = self._zenoh.KeyExpr(pattern)
        self._lock = threading.Lock()
        self._declared: Any = None
        self._is_ended = False
        self.recovers = False

    def matches(self, key: str) -> bool:
        """Return whether packets of a key are received."""
        return bool(self._keys.intersects(key))

    def subscribe(self) -> None:
        """Receive packets from now on."""
        with self._lock:
            if not self.recovers:  # a publisher with recovery may appear before all is declared
                remote = self._zenoh.Locality.REMOTE
                self._declared = self._session.declare_subscriber(self._keys, self._accept, allowed_origin=remote)

    def recover(self) -> None:
        """Ask for packets that are missed, from now on."""
        from zenoh import ext

        with self._lock:
            if self._is_ended or self.recovers:
                return
            self.recovers = True
            plain = self._declared
            self._declared = ext.declare_advanced_subscriber(
                self._session,
                self._keys,
                self._accept,
                allowed_origin=self._zenoh.Locality.REMOTE,
                recovery=ext.RecoveryConfig(periodic_queries=None, heartbeat=True),
            )
            self._declared.sample_miss_listener(direct(lambda miss: self._missed(miss.nb)))
        if plain is not None:
            plain.undeclare()

    def undeclare(self) -> None:
        """Receive no more."""
        with self._lock:
            declared, self._declared = self._declared, None
            self._is_ended = True
        if declared is not None:
            declared.undeclare()


class PacketSubscribers:
    """State: the subscriptions of a session, and the publishers with recovery, which are seen by zenoh's own tokens.

    Without a server, one watcher sees them for all patterns that begin alike. A router may allow no more than a user's
    own patterns, so there each has a watcher. `later` runs a function in the transport's own thread, as zenoh must not
    be called within its callbacks.
    """

    def __init__(
        self,
        session: "zenoh.Session",
        accept: Callable[[Any], None],
        later: Callable[[Callable[[], None]], None],
        *,
        recovers: bool,
        has_router: bool,
    ) -> None:
        self._session, self._accept, self._later = session, accept, later
        self._recovers, self._has_router = recovers, has_router
        self._zenoh = import_zenoh()
        self._made: dict[PacketSubscriber, None] = {}
        self._roots: Counter[str] = Counter()
        self._watched: dict[str, Any] = {}
        self._offers: dict[str, str] = {}
        """The keys of publishers with recovery, by their tokens."""
        self._lock = threading.RLock()
        self.unrecovered = 0
        """Packets that were missed and could not be recovered."""

    def subscribe(self, pattern: str) -> PacketSubscriber:
        """Receive packets of keys that match a pattern."""
        made = PacketSubscriber(self._session, pattern, self._accept, self._count_unrecovered)
        self._watch(self._root(pattern))
        with self._lock:
            self._made[made] = None
            recovers = self._recovers or any(made.matches(key) for key in self._offers.values())
        if recovers:
            made.recover()
        else:
            made.subscribe()
        return made

    def end(self, made: PacketSubscriber) -> None:
        """Receive them no more."""
        root = self._root(made.pattern)
        with self._lock:
            self._made.pop(made, None)
            self._roots[root] -= 1
            watching = None if self._roots[root] else self._watched.pop(root, None)
        made.undeclare()
        if watching is not None:
            watching.undeclare()

    def of(self, pattern: str) -> list[PacketSubscriber]:
        """Return the subscriptions to a pattern."""
        return [each for each in list(self._made) if each.pattern == pattern]

    def _watch(self, root: str) -> None:
        """Learn of publishers with recovery, present and future ones."""
        with self._lock:
            self._roots[root] += 1
            if not self._recovers and root not in self._watched:
                self._watched[root] = self._session.liveliness().declare_subscriber(
                    f"{root}{_OFFER}**",
                    direct(lambda token: self._later(lambda: self._note_offer(token))),
                    history=True,
                )

    def _note_offer(self, token: Any) -> None:
        """A publisher with recovery appeared, or is gone."""
        name = str(token.key_expr)
        with self._lock:
            if token.kind != self._zenoh.SampleKind.PUT:
                self._offers.pop(name, None)
                return
            key = self._offers[name] = name.partition(_OFFER)[0]
            found = [each for each in self._made if each.matches(key)]
        for each in found:
            each.recover()

    def _root(self, pattern: str) -> str:
        """Return a pattern of all keys that begin as those of a pattern: `**` matches no chunk that begins with `@`."""
        if self._has_router:
            return pattern
        chunks = pattern.split("/")
        fixed = chunks[: 2 if chunks[0].startswith("@") else 1]
        return "**" if any("*" in chunk for chunk in fixed) else "/".join((*fixed, "**"))

    def _count_unrecovered(self, count: int) -> None:
        self.unrecovered += count
