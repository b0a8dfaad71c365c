"""Packets of types that are not known yet: they wait until these are stated, or have waited enough."""

import logging
import threading
from collections.abc import Callable, Iterable
from typing import TypeAlias

from genus.net._link.incoming import IncomingKey, IncomingKeys

HOLD_S = 1.0
"""How long packets of an unknown type wait for its statement."""
MAX_HELD, MAX_HELD_BYTES = 1000, 8 << 20
"""The most packets that wait, and their size; beyond, all are delivered with what is known."""

HeldKey: TypeAlias = tuple[IncomingKeys, str]
"""What reads the packets of some keys, and one of these keys."""
Read: TypeAlias = Callable[[IncomingKey | str], None]
"""Is called with what reads the packets of a key, or with the reason why they cannot be read."""


class HeldPackets:
    """State: what came for keys of unknown types, in its order.

    The lock is held while a key is released, so that what comes meanwhile is read after it.
    """

    def __init__(self, now: Callable[[], float], log: logging.Logger) -> None:
        self._now, self._log = now, log
        self._lock = threading.RLock()
        self._waiting: dict[HeldKey, list[tuple[Read, int]]] = {}
        self._since: dict[HeldKey, float] = {}
        self._count = self._bytes = 0

    def read(self, incoming: IncomingKeys, key: str, envelope: bytes, payload: bytes) -> None:
        """Read a packet, now or when its type has been stated; count it if it cannot be read."""

        def read(known: IncomingKey | str) -> None:
            if isinstance(known, str):
                incoming.counts.reject(known, key, payload)
            else:
                known.read(envelope, payload)

        self.read_with(incoming, key, read, len(payload))

    def read_with(self, incoming: IncomingKeys, key: str, read: Read, size: int = 0) -> None:
        """Call a function with what reads the packets of a key, now or when its type has been stated."""
        known: IncomingKey | str | None = incoming.get(key)
        if known is None:
            with self._lock:
                if (incoming, key) in self._waiting or incoming.is_unknown(key):
                    self._add((incoming, key), read, size)
                    if self._is_full:
                        self._release(list(self._since))
                    return
                known = incoming.find(key)
        read(known)

    def hold(self, incoming: IncomingKeys, key: str, read: Read, size: int) -> bool:
        """Call a function when more was stated about types, or after a short time; whether there is room for that."""
        with self._lock:
            if not self._is_full:
                self._add((incoming, key), read, size)
                return True
            return False

    def _add(self, key: HeldKey, read: Read, size: int) -> None:
        self._since.setdefault(key, self._now())
        self._waiting.setdefault(key, []).append((read, size))
        self._count, self._bytes = self._count + 1, self._bytes + size

    @property
    def _is_full(self) -> bool:
        return self._count > MAX_HELD or self._bytes > MAX_HELD_BYTES

    def release_known(self) -> None:
        """Read what waits for types that are known by now."""
        with self._lock:
            keys = list(self._since)
        self._release([(incoming, key) for incoming, key in keys if not incoming.is_unknown(key)], waits=True)

    @property
    def has_old(self) -> bool:
        return bool(self._old())

    def _old(self) -> list[HeldKey]:
        with self._lock:
            return [key for key, since in self._since.items() if since <= self._now() - HOLD_S]

    def release_old(self) -> None:
        """Read what has waited enough, with what is known."""
        self._release(self._old())

    def _release(self, keys: Iterable[HeldKey], *, waits: bool = False) -> None:
        """Read what waits for some keys, in its order and before anything that comes meanwhile."""
        for incoming, key in keys:
            with self._lock:
                held = self._waiting.pop((incoming, key), None)
                if held is None:
                    continue
                del self._since[incoming, key]
                self._count, self._bytes = self._count - len(held), self._bytes - sum(size for _, size in held)
                known = incoming.get(key) or incoming.make(key)
                if not isinstance(known, str):
                    known.waits = waits
                for read, _ in held:
                    try:
                        read(known)
                    except Exception:
                        incoming.counts.rejections.add("an error of this program, which is in the log", key)
                        self._log.exception("a packet of %r could not be read", key)
                incoming.put(key, known)
