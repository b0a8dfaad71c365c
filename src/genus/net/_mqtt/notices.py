"""What a client machine tells its driver."""

from typing import TypeAlias

import mqtt5
import msgspec


class Limits(msgspec.Struct, frozen=True):
    """What the server said in CONNACK; before that, what the standard assumes.

    `receive_max` is how many packets of QoS 1 may be sent without an acknowledgement, `largest` the largest packet.
    """

    receive_max: int = 65_534
    largest: int = 1 << 28
    keeps: bool = True
    shares: bool = True
    qos: int = 2
    keep_alive_s: int = 0
    aliases: int = 0
    client_id: str = ""
    is_session_kept: bool = False

    @classmethod
    def of(cls, packet: mqtt5.ConnAckPacket, keep_alive_s: int, client_id: str) -> "Limits":
        """The limits of a CONNACK, for what the client asked for."""
        told = packet.server_keep_alive
        return cls(
            receive_max=max(1, min(packet.receive_max, 65_534)),
            largest=packet.max_packet_size or 1 << 28,
            keeps=packet.retain_available,
            shares=packet.shared_subscription_available,
            qos=int(packet.max_qos),
            keep_alive_s=keep_alive_s if told is None else told,
            aliases=packet.topic_alias_max,
            client_id=packet.assigned_client_id or client_id,
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
