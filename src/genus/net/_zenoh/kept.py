"""Kept packets on zenoh: each sender holds the newest of its keys and answers those that subscribe later.

Keys with the same first three chunks (`@genus/REALM/last`) have one queryable. Beside it stands a token, `@keeper`, so
that subscribers ask when a keeper appears: one that was cut off may have newer packets than they know.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from genus.net._zenoh.session import direct, import_zenoh

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
        """Answer for a key from now on."""
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
        """Ask no more for a pattern."""
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
        """Whether something is to be asked soon."""
        return bool(self._due)

    def ask_again(self) -> None:
        """Ask what is due."""
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
