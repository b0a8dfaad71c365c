"""What a client asks a server for: a session, and subscriptions."""

from collections.abc import Callable

import mqtt5
import msgspec


class Session(msgspec.Struct, frozen=True):
    """What a client asks for when it connects."""

    client_id: str
    clean_start: bool = True
    expires_s: int = 0
    keep_alive_s: int = 10
    user: str | None = None
    password: bytes | None = None
    will: Callable[[], mqtt5.Will | None] = lambda: None
    """Gives the will of each connection."""
    receive_max: int = 65_535
    largest: int = 1 << 26

    def __repr__(self) -> str:
        return f"Session({self.client_id!r})"


class Filter(msgspec.Struct, frozen=True):
    """A subscription: the pattern, the highest QoS, and whether what is retained is sent first.

    `own`: packets of this client are sent to it too. `number`: packets come with this subscription identifier.
    """

    pattern: str
    qos: int = 1
    kept: bool = False
    own: bool = False
    number: int | None = None

    def for_packet(self) -> mqtt5.TopicFilter:
        """The filter as the codec has it."""
        retained = mqtt5.RetainHandling.SEND_ALWAYS if self.kept else mqtt5.RetainHandling.SEND_NEVER
        return mqtt5.TopicFilter(
            self.pattern, max_qos=mqtt5.QoS(self.qos), no_local=not self.own, retain_handling=retained
        )
