"""Shared subscriptions: each event goes to one of the participants that share it, as the network decides.

A participant sees part of a sender's numbers only, so that gaps are no losses here. Its own events may come back to it.
"""

import hashlib
import threading
from collections.abc import Callable
from typing import Any, TypeAlias

from genus.bus._link import TroubleHandler
from genus.filters import Subscription
from genus.model import Event, name_of
from genus.net._envelope import Origin
from genus.net._link.control import LAST, ROOT
from genus.net._link.incoming import Counts, IncomingKeys, SoftTimes
from genus.net._link.patterns import last_pattern
from genus.net._link.payload import is_batch, split_batch
from genus.net._link.types import StatedTypes
from genus.net._relay import Arrival
from genus.net._transport import SharingTransport
from genus.records._rejected import Rejections
from genus.targets.topics import Dialect, TopicFilter

SHARE = "$share/"
"""The first chunk of the keys of packets that came by a shared subscription; the second one says which."""
ReadPacket: TypeAlias = Callable[[IncomingKeys, str, bytes, bytes], None]
NOT_TAKEN = "an event of a queue that no consumer here took"


class SharedReception:
    """Gives the events of a shared subscription to its consumers."""

    uid = b""
    """No packet is this participant's own: those come back as all others do."""
    relays: tuple[object, ...] = ()
    turn = 0
    counts_all = False

    def __init__(
        self,
        deliver: Callable[[Event], bool],
        now: Callable[[], float],
        stated: StatedTypes,
        is_on_time: Callable[[str, bytes, SoftTimes], bool],
        rejections: Rejections,
        types: tuple[type, ...],
    ) -> None:
        self.now, self.stated, self.is_on_time = now, stated, is_on_time
        self._types = types
        self._deliver = deliver
        self._rejections = rejections

    def count_subscriptions(self, cls: type[Event]) -> int:
        """Whether the shared subscription accepts events of a class."""
        return all(issubclass(cls, each) for each in self._types)

    def has_been_interrupted(self, key: str, turn: int) -> bool:
        """A gap is no loss: others got those packets."""
        return True

    def reception_of(self, key: str) -> "SharedReception":
        """All events go to the consumers."""
        return self

    def deliverer(self, cls: type[Event]) -> Callable[[Event], None]:
        """The function that gives an event to a consumer; what none takes is counted."""
        return self._give

    def _give(self, event: Event) -> None:
        if not self._deliver(event):
            self._rejections.add(NOT_TAKEN)

    def hold(self, key: str, read: object, size: int) -> bool:
        """Nothing waits here for the terms of its sender: another participant may understand it."""
        return False

    def give_relays(self, arrival: Arrival) -> None:
        """There are none."""

    def keep(self, key: str, arrival: Arrival) -> bool:
        """Last values are not shared."""
        return True

    def forgotten(self, key: str, origin: Origin) -> None:
        """Last values are not shared."""

    def take_foreign(self, key: str, read: Any, payload: bytes) -> None:
        """Take an event of a message without an envelope, or the reason why there is none."""
        if isinstance(read, Event):
            self._give(read)
        else:
            self._rejections.add(read.reason, key, payload)


class SharedIncomingKeys(IncomingKeys):
    """State: the keys of the packets of a shared subscription.

    Events of which the newest is kept are events as all others here: each goes to one consumer, and none is left out
    as there is a newer one.
    """

    def split(self, key: str) -> tuple[str, str | None]:
        """The key of the event itself; no value is kept."""
        return super().split(key)[0], None


class SharedKeys:
    """State: the shared subscriptions of a link, by the chunk that their packets come with."""

    def __init__(self, dialect: Dialect, realm: str, counts: Counts) -> None:
        self._dialect, self._realm, self._counts = dialect, realm, counts
        self._last_root = f"{ROOT}/{realm}/{LAST}/"
        self._incoming: dict[str, SharedIncomingKeys] = {}

    def incoming(self, reception: SharedReception) -> SharedIncomingKeys:
        """What reads the packets of a shared subscription, and counts with those of the others."""
        made = SharedIncomingKeys(reception, self._dialect, self._realm)
        made.counts = self._counts
        return made

    def add(self, share: str, incoming: SharedIncomingKeys) -> Callable[[], None]:
        """Read the packets of a share; returns a function to end it."""
        self._incoming[share] = incoming

        def end() -> None:
            if self._incoming.get(share) is incoming:
                del self._incoming[share]

        return end

    def packet(self, key: str, envelope: bytes, payload: bytes, read: ReadPacket) -> None:
        """A packet came by a shared subscription: have it read by what reads the packets of that."""
        share, _, event_key = key.removeprefix(SHARE).partition("/")
        if not payload and event_key.startswith(self._last_root):
            return  # a last value is kept no more
        incoming = self._incoming.get(share)
        if incoming is None:
            events = split_batch(payload) if is_batch(payload) else None
            self._counts.rejections.add(NOT_TAKEN, event_key, payload, count=len(events or (payload,)))
        else:
            read(incoming, event_key, envelope, payload)


class Sharing:
    """State: a shared subscription of this participant, with its patterns, also those of last values."""

    def __init__(
        self,
        transport: SharingTransport,
        keys: SharedKeys,
        reception: SharedReception,
        group: str,
        compile: Callable[[], TopicFilter],
        realm: str,
        on_trouble: Callable[[], list[TroubleHandler]],
    ) -> None:
        self._transport, self._keys, self._group, self._realm = transport, keys, group, realm
        self._incoming = keys.incoming(reception)
        self._compile = compile
        self._filter: TopicFilter | None = None
        self._on_trouble = on_trouble
        self._ends: dict[str, list[Callable[[], None]]] = {}
        self._has_ended = False
        self._lock = threading.Lock()

    def subscribe(self) -> None:
        """Receive what the subscription matches, by the types that are declared now; BusError if it is refused."""
        self._incoming.types_changed()
        with self._lock:
            if self._has_ended:
                return
            self._filter = filter = self._compile()
            events = filter.patterns
            wanted = [*events, *(last_pattern(pattern, filter.dialect, self._realm) for pattern in events)]
            for pattern in [each for each in wanted if each not in self._ends]:
                self._ends[pattern] = self._begin(pattern)
            for pattern in [each for each in self._ends if each not in wanted]:
                self._end(pattern)

    def _begin(self, pattern: str) -> list[Callable[[], None]]:
        unread = self._keys.add(self._transport.share_of(self._group, pattern), self._incoming)
        try:
            return [unread, self._transport.share(self._group, pattern)]
        except BaseException:
            unread()
            raise

    def listeners_of(self, event_key: str) -> list[TroubleHandler]:
        """The trouble handlers of the consumers, if the subscription is one to a key."""
        return self._on_trouble() if self._filter is not None and self._filter.accepts(event_key) else []

    def end(self) -> None:
        """Receive no more, once the packets that came are handled."""
        with self._lock:
            self._has_ended = True
            for pattern in list(self._ends):
                self._end(pattern)

    def _end(self, pattern: str) -> None:
        for end in reversed(self._ends.pop(pattern)):
            end()


def group_of(subscription: Subscription, dialect: Dialect) -> str:
    """The name of the group of those who share a subscription: who asks for anything else is in another one."""
    digest = hashlib.blake2b(str(subscription).encode(), digest_size=8).hexdigest()
    return f"genus-{dialect.escape('&'.join(map(name_of, subscription.types)))}-{digest}"
