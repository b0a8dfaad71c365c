"""Publishers, subscribers and keepers of zenoh.

Publishers and subscribers of zenoh, plain and with recovery; the only module that uses zenoh's unstable `ext`.

With recovery, the publisher holds its last packets and tells its newest number twice a second; a subscriber that misses
some asks for them, and gives later ones on after them. This costs some of the rate, so a subscriber is plain
until a publisher with recovery appears on its keys: it is then declared again with recovery, and only after that the
plain one is ended. Packets that both of them got are doubled, which the link removes.

Kept packets on zenoh: each sender holds the newest of its keys and answers those that subscribe later.

Keys with the same first three chunks (`@genus/REALM/last`) have one queryable. Beside it stands a token, `@keeper`, so
that subscribers ask when a keeper appears: one that was cut off may have newer packets than they know.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from genus.net._transport import BULK, NORMAL, SOFT, URGENT, Sending
from genus.net._zenoh_session import direct, import_zenoh

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
        return bool(self._keys.intersects(key))

    def subscribe(self) -> None:
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


log = logging.getLogger("genus.net")
ASK_S = 5.0
"""How long answers may take."""
AGAIN_S = (0.02, 0.5, 2.0)
"""When keepers are asked after one has appeared: zenoh may tell of its token before it knows the way to its packets."""
_ROOT_CHUNKS = 3


class KeptPackets:
    """State: the newest packets of this participant, and the patterns for which those of others are asked.

    `later` runs a function in the transport's own thread, as zenoh must not be called within its callbacks.
    """

    def __init__(
        self, session: "zenoh.Session", accept: Callable[[Any], None], later: Callable[[Callable[[], None]], None]
    ) -> None:
        self._session, self._accept, self._later = session, accept, later
        self._zenoh = import_zenoh()
        self._zid = str(session.zid())
        self._packets: dict[str, tuple[bytes, bytes]] = {}
        self._roots: dict[str, list[Any]] = {}
        self._asked: Counter[str] = Counter()
        self._keepers: dict[str, set[str]] = {}
        """The tokens of other keepers, by the first chunks of keys."""
        self._watched: list[Any] = []
        self._due: dict[str, tuple[float, ...]] = {}
        """When keepers are asked again, by the first chunks of keys."""
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._packets)

    # -- at the sender -----------------------------------------------------------------------------------------------

    def open_key(self, key: str) -> None:
        root = _root(key)
        with self._lock:
            if root in self._roots:
                return
            answering = self._session.declare_queryable(
                f"{root}/**",
                direct(lambda query: self._later(lambda: self._answer(query))),
                allowed_origin=self._zenoh.Locality.REMOTE,
            )
            token = self._session.liveliness().declare_token(f"{root}/@keeper/{self._zid}")
            self._roots[root] = [answering, token]

    def keep(self, key: str, payload: bytes, envelope: bytes) -> None:
        """Hold the newest packet of a key; an empty payload means: hold none."""
        if payload:
            self._packets[key] = (payload, envelope)
        else:
            self._packets.pop(key, None)

    def _answer(self, query: Any) -> None:
        asked = query.key_expr
        try:
            for key, (payload, envelope) in list(self._packets.items()):
                if asked.intersects(key):
                    self._reply(query, key, payload, envelope)
        finally:
            query.drop()

    @staticmethod
    def _reply(query: Any, key: str, payload: bytes, envelope: bytes) -> None:
        try:
            query.reply(key, payload, attachment=envelope)
        except BaseException as problem:  # a panic is no Exception; the other packets are answered all the same
            log.warning("zenoh: the kept packet of %.80r could not be given: %s", key, problem)

    # -- at the receiver ---------------------------------------------------------------------------------------------

    def ask(self, pattern: str) -> None:
        """Ask for the kept packets of a pattern, if there is a keeper, and when one appears."""
        root = _root(pattern)
        with self._lock:
            self._asked[pattern] += 1
            if root not in self._keepers:
                self._keepers[root] = set()
                self._watched.append(
                    self._session.liveliness().declare_subscriber(
                        f"{root}/@keeper/*", direct(lambda token: self._keeper(root, token)), history=True
                    )
                )
        if self._keepers[root]:
            self._later(lambda: self._get(pattern))

    def stop_asking(self, pattern: str) -> None:
        with self._lock:
            self._asked[pattern] -= 1
            if not self._asked[pattern]:
                del self._asked[pattern]

    def _keeper(self, root: str, token: Any) -> None:
        """A keeper appeared, or is gone. If many appear at once, they are asked in common."""
        name = str(token.key_expr)
        if token.kind != self._zenoh.SampleKind.PUT:
            self._keepers[root].discard(name)
        elif not name.endswith(f"/{self._zid}"):
            self._keepers[root].add(name)
            now = time.monotonic()
            self._due[root] = tuple(now + delay for delay in AGAIN_S)
            self._later(_look_at_the_clock)

    @property
    def is_due(self) -> bool:
        return bool(self._due)

    def ask_again(self) -> None:
        now = time.monotonic()
        for root, times in list(self._due.items()):
            if times[0] <= now:
                self._postpone(root, times)
                for pattern in [each for each in list(self._asked) if _root(each) == root]:
                    self._get(pattern)

    def _postpone(self, root: str, times: tuple[float, ...]) -> None:
        if self._due.get(root) is not times:
            return  # another keeper appeared meanwhile
        if len(times) > 1:
            self._due[root] = times[1:]
        else:
            del self._due[root]

    def _get(self, pattern: str) -> None:
        if pattern in self._asked:
            self._session.get(
                pattern,
                direct(self._take),
                target=self._zenoh.QueryTarget.ALL,
                consolidation=self._zenoh.ConsolidationMode.NONE,
                allowed_destination=self._zenoh.Locality.REMOTE,
                timeout=ASK_S,
            )

    def _take(self, reply: Any) -> None:
        if reply.ok is not None:
            self._accept(reply.ok)


def _look_at_the_clock() -> None:
    """Nothing but a reason for the thread to look what is due."""


def _root(key: str) -> str:
    return "/".join(key.split("/")[:_ROOT_CHUNKS])
