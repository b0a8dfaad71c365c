"""Kept packets on zenoh: each sender holds the newest of its keys and answers those that subscribe later.

Keys with the same first three chunks (`@genus/REALM/last`) have one queryable. Beside it stands a token, `@keeper`, so
that subscribers ask again when a keeper appears: one that was cut off may have newer packets than they know.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from genus.net._zenoh.config import import_zenoh

if TYPE_CHECKING:
    import zenoh

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
        self._packets: dict[str, tuple[bytes, bytes]] = {}
        self._roots: dict[str, list[Any]] = {}
        self._asked: dict[str, Any] = {}
        self._due: dict[str, tuple[float, ...]] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._packets)

    # -- at the sender -----------------------------------------------------------------------------------------------

    def open_key(self, key: str) -> None:
        """Answer for a key from now on."""
        root = _root(key)
        with self._lock:
            if root in self._roots:
                return
            answering = self._session.declare_queryable(
                f"{root}/**",
                lambda query: self._later(lambda: self._answer(query)),
                allowed_origin=self._zenoh.Locality.REMOTE,
            )
            token = self._session.liveliness().declare_token(f"{root}/@keeper/{self._session.zid()}")
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
        """Ask for the kept packets of a pattern, now and when a keeper appears."""
        watching = self._session.liveliness().declare_subscriber(
            f"{_root(pattern)}/@keeper/*", lambda sample: self._keeper(pattern, sample)
        )
        with self._lock:
            self._asked[pattern] = watching
        self._later(lambda: self._get(pattern))

    def _keeper(self, pattern: str, sample: Any) -> None:
        """A keeper appeared, or is gone. If many appear at once, they are asked in common."""
        if sample.kind == self._zenoh.SampleKind.PUT:
            now = time.monotonic()
            self._due[pattern] = tuple(now + delay for delay in AGAIN_S)
            self._later(_look_at_the_clock)

    @property
    def is_due(self) -> bool:
        """Whether something is to be asked soon."""
        return bool(self._due)

    def ask_again(self) -> None:
        """Ask what is due."""
        now = time.monotonic()
        for pattern, times in list(self._due.items()):
            if times[0] <= now:
                self._postpone(pattern, times)
                self._get(pattern)

    def _postpone(self, pattern: str, times: tuple[float, ...]) -> None:
        if self._due.get(pattern) is not times:
            return  # another keeper appeared meanwhile
        if len(times) > 1:
            self._due[pattern] = times[1:]
        else:
            del self._due[pattern]

    def _get(self, pattern: str) -> None:
        if pattern in self._asked:
            self._session.get(
                pattern,
                self._take,
                target=self._zenoh.QueryTarget.ALL,
                consolidation=self._zenoh.ConsolidationMode.NONE,
                allowed_destination=self._zenoh.Locality.REMOTE,
                timeout=ASK_S,
            )

    def _take(self, reply: Any) -> None:
        if reply.ok is not None:
            self._accept(reply.ok)

    def stop_asking(self, pattern: str) -> None:
        """Ask no more for a pattern."""
        with self._lock:
            watching = self._asked.pop(pattern, None)
        if watching is not None:
            watching.undeclare()


def _look_at_the_clock() -> None:
    """Nothing but a reason for the thread to look what is due."""


def _root(key: str) -> str:
    return "/".join(key.split("/")[:_ROOT_CHUNKS])
