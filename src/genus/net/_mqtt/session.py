"""What a client asks a server for, a session and subscriptions, and what it is told."""

from collections.abc import Callable
from typing import Final, TypeAlias

import mqtt5
import msgspec

SEND_WINDOW: Final = 100
"""Packets in flight: larger bursts overflow more often the queue that a broker has for each client, such as mosquitto's
of 1,000; the rate of a window of 1,000 is a tenth higher."""


class Session(msgspec.Struct, frozen=True):
    """What a client asks for when it connects; with `acknowledges_late` it says itself when messages were handled."""

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
    acknowledges_late: bool = False

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


class Limits(msgspec.Struct, frozen=True):
    """What the server said in CONNACK; before that, what the standard assumes.

    `receive_max` is how many packets of QoS 1 are sent without an acknowledgement, `largest` the largest packet.
    """

    receive_max: int = SEND_WINDOW
    largest: int = 1 << 28
    keeps: bool = True
    shares: bool = True
    qos: int = 2
    keep_alive_s: int = 0
    is_session_kept: bool = False

    @classmethod
    def of(cls, packet: mqtt5.ConnAckPacket, keep_alive_s: int) -> "Limits":
        """Return the limits of a CONNACK, for what the client asked for."""
        told = packet.server_keep_alive
        return cls(
            receive_max=max(1, min(packet.receive_max, SEND_WINDOW)),
            largest=packet.max_packet_size or 1 << 28,
            keeps=packet.retain_available,
            shares=packet.shared_subscription_available,
            qos=int(packet.max_qos),
            keep_alive_s=keep_alive_s if told is None else told,
            is_session_kept=packet.session_present,
        )


class Connected(msgspec.Struct, frozen=True):
    """The server accepted the client; packets can be sent."""

    limits: Limits


class Closing(msgspec.Struct, frozen=True):
    """Send what `pull` gives and close the stream; if `is_final`, do not connect again."""

    why: str
    is_final: bool = False


class Granted(msgspec.Struct, frozen=True):
    """The server accepted a subscription with a QoS; None: the stream ended before, and it will be asked again."""

    pattern: str
    qos: int | None


class Refused(msgspec.Struct, frozen=True):
    """The server refused a subscription."""

    pattern: str
    why: str


class Ended(msgspec.Struct, frozen=True):
    """The server ended a subscription: no more packets come for it."""

    pattern: str


class Undelivered(msgspec.Struct, frozen=True):
    """A packet was not sent, or the server refused it; `source` is what the packet was given with."""

    source: object
    why: str


Notice: TypeAlias = Connected | Closing | Granted | Refused | Ended | Undelivered
