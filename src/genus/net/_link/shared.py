"""Shared subscriptions: each event goes to one of the participants that share it, as the network decides.

A participant sees part of a sender's numbers only, so that gaps are no losses here. Its own events may come back to it.
"""

from collections.abc import Callable
from typing import Any

from genus.filters import Subscription
from genus.model import Event
from genus.net._envelope import Origin
from genus.net._link.incoming import IncomingKeys, SoftTimes
from genus.net._link.units import StatedUnits
from genus.net._relay import Arrival
from genus.targets.python import PythonFilter
from genus.targets.topics import Dialect

SHARE = "$share/"
"""The first chunk of the keys of packets that came by a shared subscription; the second one says which."""


class SharedReception:
    """Gives the events of a shared subscription to its consumers."""

    uid = b""
    """No packet is this participant's own: those come back as all others do."""
    relays: tuple[object, ...] = ()

    def __init__(
        self,
        subscription: Subscription,
        deliver: Callable[[Event], None],
        now: Callable[[], float],
        units: StatedUnits,
        is_on_time: Callable[[str, bytes, SoftTimes], bool],
    ) -> None:
        self.now, self.units, self.is_on_time = now, units, is_on_time
        self._deliver = deliver
        self._matches = PythonFilter(subscription)

    def deliverer(self, cls: type[Event]) -> Callable[[Event], None]:
        """The function that gives an event to a consumer, if the subscription matches it."""
        return self._give

    def _give(self, event: Event) -> None:
        if self._matches(event):
            self._deliver(event)

    def give_relays(self, arrival: Arrival) -> None:
        """There are none."""

    def keep(self, key: str, arrival: Arrival) -> bool:
        """Last values are not shared."""
        return True

    def forgotten(self, key: str, origin: Origin) -> None:
        """Last values are not shared."""

    def take_foreign(self, key: str, read: Any, payload: bytes) -> None:
        """Take an event of a message without an envelope."""
        if isinstance(read, Event):
            self._give(read)


class SharedKeys:
    """State: the shared subscriptions of a link, by the chunk that their packets come with."""

    def __init__(self, dialect: Dialect, realm: str) -> None:
        self._dialect, self._realm = dialect, realm
        self._incoming: dict[str, IncomingKeys] = {}

    def add(self, shares: list[str], reception: SharedReception) -> Callable[[], None]:
        """Read the packets of some shared subscriptions; returns a function to end it."""
        incoming = IncomingKeys(reception, self._dialect, self._realm)
        self._incoming |= dict.fromkeys(shares, incoming)

        def end() -> None:
            for share in shares:
                if self._incoming.get(share) is incoming:
                    del self._incoming[share]

        return end

    def packet(self, key: str, envelope: bytes, payload: bytes) -> None:
        """A packet came by a shared subscription."""
        share, _, event_key = key.removeprefix(SHARE).partition("/")
        incoming = self._incoming.get(share)
        found = incoming.find(event_key) if incoming is not None else None
        if found is not None:
            found.read(envelope, payload)
