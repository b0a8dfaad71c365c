"""Publishers and subscribers of zenoh, plain and with recovery; the only module that uses zenoh's unstable `ext`.

With recovery, the publisher holds its last packets and tells its newest number twice a second; a subscriber that misses
some asks for them, and gives later ones on after them. This costs about an eighth of the rate, so a subscriber is plain
until a publisher with recovery appears on its keys: it is then declared again with recovery, and only after that the
plain one is ended. Packets that both of them got are doubled, which the link removes.
"""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from genus.net._transport import BULK, NORMAL, SOFT, URGENT, Sending
from genus.net._zenoh.session import direct, import_zenoh

if TYPE_CHECKING:
    import zenoh

HEARTBEAT_S = 0.5
_PRIORITIES = {BULK: "BACKGROUND", NORMAL: "DATA", SOFT: "INTERACTIVE_HIGH", URGENT: "REAL_TIME"}


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
    """State: a subscription, plain or with recovery.

    `later` runs a function in the transport's own thread, as zenoh must not be called within its callbacks.
    """

    def __init__(
        self,
        session: "zenoh.Session",
        pattern: str,
        accept: Callable[[Any], None],
        *,
        recovers: bool,
        later: Callable[[Callable[[], None]], None],
        missed: Callable[[int], None],
    ) -> None:
        self.pattern = pattern
        self._session, self._accept, self._later, self._missed = session, direct(accept), later, missed
        self._zenoh = import_zenoh()
        self._lock = threading.Lock()
        self._declared: list[Any] = []
        self._is_ended = False
        self.recovers = False
        if recovers:
            self.recover()
        else:
            with self._lock:  # the first publisher with recovery may be told before all is declared
                self._declare_plain()

    def _declare_plain(self) -> None:
        remote = self._zenoh.Locality.REMOTE
        self._declared.append(self._session.declare_subscriber(self.pattern, self._accept, allowed_origin=remote))
        # zenoh's own tokens of publishers with recovery; present ones are told, too
        self._declared.append(
            self._session.liveliness().declare_subscriber(
                f"{self.pattern}/@adv/pub/**", direct(lambda _: self._later(self.recover)), history=True
            )
        )

    def recover(self) -> None:
        """Ask for packets that are missed, from now on."""
        from zenoh import ext

        with self._lock:
            if self._is_ended or self.recovers:
                return
            self.recovers = True
            recovering = ext.declare_advanced_subscriber(
                self._session,
                self.pattern,
                self._accept,
                allowed_origin=self._zenoh.Locality.REMOTE,
                recovery=ext.RecoveryConfig(periodic_queries=None, heartbeat=True),
            )
            recovering.sample_miss_listener(direct(lambda miss: self._missed(miss.nb)))
            plain, self._declared = self._declared, [recovering]
        for each in plain:
            each.undeclare()

    def undeclare(self) -> None:
        """Receive no more."""
        with self._lock:
            declared, self._declared = self._declared, []
            self._is_ended = True
        for each in declared:
            each.undeclare()
