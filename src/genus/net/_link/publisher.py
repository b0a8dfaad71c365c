"""`NetPublisher`: publishing one event type on a network with a quality of service."""

import time
from collections.abc import Sequence
from typing import Any, Protocol

from genus.bus._link import Publisher, TroubleHandler
from genus.bus._qos import QoS, Soft
from genus.model import Event, nanoseconds
from genus.net._envelope import SOFT_TIMES
from genus.net._link.outgoing import Outgoing
from genus.net._link.round_trips import steady_us

_MOST_DEADLINE_US = 2**32 - 1


class PublisherOwner(Protocol):
    """What a publisher needs of its link."""

    def deliver_own(self, event: Event) -> None:
        """Give an event to the subscribers of this bus."""

    def send_to_groups(self, event: Event) -> None:
        """Send an event to one of each group that shares it."""

    @property
    def has_relays(self) -> bool:
        """Whether gateways use the link."""

    def relay_own(self, event: Event, number: int, kept: str | None) -> None:
        """Give an event to gateways."""

    def keep_own(self, key: str, event: Event, number: int, kept: str) -> None:
        """Keep an event for gateways."""

    def withdraw(self, publisher: "NetPublisher") -> None:
        """End an announcement."""


class NetPublisher(Publisher):
    """Handle for publishing one type on a network."""

    def __init__(self, link: PublisherOwner, outgoing: Outgoing, qos: QoS, on_trouble: TroubleHandler | None) -> None:
        self.type = outgoing.type
        self.on_trouble = on_trouble
        self._link, self._outgoing = link, outgoing
        self._soft = qos if isinstance(qos, Soft) else None

    def publish(self, event: Any) -> None:
        """Send an event, and give it to this bus's own subscribers."""
        number = self._outgoing.send(event, self._times(event) if self._soft is not None else b"")
        kept = self._outgoing.kept_value(event) if self._outgoing.keep is not None else None
        if kept is not None:
            self._link.keep_own(self._outgoing.kept_key(event, kept), event, number, kept)
        self._link.send_to_groups(event)
        self._link.deliver_own(event)
        if self._link.has_relays:
            self._link.relay_own(event, number, kept)

    def _times(self, event: Event) -> bytes:
        """The time of publishing, the deadline and the expiry, after it; the event's own override the channel's."""
        assert self._soft is not None
        now_us = steady_us()
        deadline_us = nanoseconds(self._soft.deadline) // 1000
        expires_us = nanoseconds(self._soft.expires) // 1000 if self._soft.expires is not None else 0
        if event.deadline is not None:
            deadline_us = max(0, int(event.deadline.timestamp() * 1e6) - time.time_ns() // 1000)
        if event.expires is not None:
            expires_us = max(1, int(event.expires.timestamp() * 1e6) - time.time_ns() // 1000)
        return SOFT_TIMES.pack(now_us, min(deadline_us, _MOST_DEADLINE_US), expires_us)

    def forget(self, event: Any) -> None:
        """Keep an event, the newest of its key, no more."""
        self._outgoing.forget(event)

    def forget_key(self, values: Sequence[object]) -> None:
        """Keep no event any more whose key has these values, whoever published it."""
        self._outgoing.forget_key(values)

    def withdraw(self) -> None:
        """Publish no more."""
        self._link.withdraw(self)
