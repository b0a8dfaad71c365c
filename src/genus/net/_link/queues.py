"""Queues that processes share: each event goes to one of the participants that share a subscription.

Where the network has shared subscriptions (`SharedKeys`), it decides who gets an event. A participant sees part of a
sender's numbers only, so that gaps are no losses here. Its own events may come back to it.

Where it has none (`QueueGroups`), the sender chooses. Those who share a subscription show it by a token; whoever sends
an event that it matches (its publisher, or the gateway that brings it) sends it to one of them, in turn, under a key of
that member. Packets of such a key are numbered from 1, so that one that is lost is missed by its member and told to
both ends. What comes to one that has left goes to another.
"""

import hashlib
import os
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, TypeAlias

from genus.bus.types import ProblemHandler
from genus.errors import BusError
from genus.filters import Subscription
from genus.model import Event, name_of
from genus.net._envelope import Arrival, Origin
from genus.net._link.incoming import IncomingKeys, Reception
from genus.net._link.messages import (
    LAST,
    MAX_TEXT,
    QUEUE,
    control_key,
    decode_text,
    encode_text,
    is_batch,
    is_uid,
    split_batch,
)
from genus.net._link.outgoing import Outgoing
from genus.net._link.patterns import last_pattern
from genus.net._transport import SharingTransport, Transport
from genus.records.internal import Rejections
from genus.targets.topics import Dialect, TopicFilter

SHARE = "$share/"
"""The first chunk of the keys of packets that came by a shared subscription; the second one says which."""
ReadPacket: TypeAlias = Callable[[IncomingKeys, str, bytes, bytes], None]
NOT_TAKEN = "an event of a queue that no consumer here took"
GROUP = "group"
MAX_MEMBERS = 10_000
"""The largest number of members of all groups that are remembered; more are counted, and get nothing."""
LINGER_S = 10.0
"""How long one that has left a group takes what is under way to it, for the others."""
Take: TypeAlias = Callable[[Event], bool]
"""Gives an event to a consumer; returns whether one took it."""
Handlers: TypeAlias = Callable[[], list[ProblemHandler]]
"""Returns the problem handlers of the consumers."""


class QueueLink(Reception, Protocol):
    """What queues need of their link."""

    transport: Transport
    realm: str

    def outgoing_for(self, cls: type[Event]) -> Outgoing:
        """Return what sends the events of a type, in the manner in which it was announced here."""

    def compile_again(self, subscription: Subscription) -> TopicFilter:
        """Compile a subscription by the types that are known now."""


class SharedReception:
    """Gives the events of a shared subscription to its consumers."""

    uid = b""
    """No packet is this participant's own: those come back as all others do."""
    relays: tuple[object, ...] = ()
    turn = 0
    counts_all = False

    def __init__(self, link: Reception, take: Take, types: tuple[type, ...], rejections: Rejections) -> None:
        self.now, self.stated, self.is_on_time = link.now, link.stated, link.is_on_time
        self._take, self._types, self._rejections = take, types, rejections

    def count_subscriptions(self, cls: type[Event]) -> int:
        """Return whether the shared subscription accepts events of a class."""
        return all(issubclass(cls, each) for each in self._types)

    def has_been_interrupted(self, key: str, turn: int) -> bool:
        """A gap is no loss: others got those packets."""
        return True

    def reception_of(self, key: str) -> "SharedReception":
        """Return all events go to the consumers."""
        return self

    def deliverer(self, cls: type[Event]) -> Callable[[Event], None]:
        """Return the function that gives an event to a consumer; what none takes is counted."""
        return self._give

    def _give(self, event: Event) -> None:
        if not self._take(event):
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
        """Return the key of the event itself; no value is kept."""
        return super().split(key)[0], None


class SharedKeys:
    """State: the shared subscriptions of a link, by the chunk that their packets come with."""

    def __init__(self, link: QueueLink, incoming: IncomingKeys) -> None:
        self._link, self._counts = link, incoming.counts
        self._last_root = control_key(link.realm, LAST, "")
        self._incoming: dict[str, SharedIncomingKeys] = {}
        self._sharings: dict[Sharing, None] = {}

    def join(self, subscription: Subscription, take: Take, handlers: Handlers) -> Callable[[], None]:
        """Give a function its share of what a subscription matches; returns a function to end it."""
        reception = SharedReception(self._link, take, subscription.types, self._counts.rejections)
        incoming = SharedIncomingKeys(reception, self._link.transport.dialect, self._link.realm)
        incoming.counts = self._counts
        sharing = Sharing(self._link, self._incoming, incoming, subscription, handlers)
        try:
            sharing.subscribe()
        except BaseException:
            sharing.end()
            raise
        self._sharings[sharing] = None

        def end() -> None:
            self._sharings.pop(sharing, None)
            sharing.end()

        return end

    def types_changed(self) -> None:
        for sharing in list(self._sharings):
            sharing.subscribe()

    def listeners_of(self, event_key: str) -> list[ProblemHandler]:
        """Return the problem handlers of the consumers of subscriptions to a key."""
        return [handler for sharing in list(self._sharings) for handler in sharing.listeners_of(event_key)]

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
        link: QueueLink,
        readers: dict[str, SharedIncomingKeys],
        incoming: SharedIncomingKeys,
        subscription: Subscription,
        handlers: Handlers,
    ) -> None:
        assert isinstance(link.transport, SharingTransport)
        self._transport, self._group = link.transport, group_of(subscription, link.transport.dialect)
        self._readers, self._incoming, self._handlers = readers, incoming, handlers
        self._realm, self._compile = link.realm, partial(link.compile_again, subscription)
        self._filter: TopicFilter | None = None
        self._ends: dict[str, Callable[[], None]] = {}
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
                self._ends.pop(pattern)()

    def _begin(self, pattern: str) -> Callable[[], None]:
        share = self._transport.share_of(self._group, pattern)
        self._readers[share] = self._incoming
        try:
            unsubscribe = self._transport.share(self._group, pattern)
        except BaseException:
            self._end_reading(share)
            raise

        def end() -> None:
            unsubscribe()
            self._end_reading(share)

        return end

    def _end_reading(self, share: str) -> None:
        if self._readers.get(share) is self._incoming:
            del self._readers[share]

    def listeners_of(self, event_key: str) -> list[ProblemHandler]:
        """Return the problem handlers of the consumers, if the subscription is one to a key."""
        return self._handlers() if self._filter is not None and self._filter.accepts(event_key) else []

    def end(self) -> None:
        """Receive no more, once the packets that came are handled."""
        with self._lock:
            self._has_ended = True
            for pattern in list(self._ends):
                self._ends.pop(pattern)()


def group_of(subscription: Subscription, dialect: Dialect) -> str:
    """Return the name of the group of those who share a subscription: who asks for anything else is in another one."""
    digest = hashlib.blake2b(str(subscription).encode(), digest_size=8).hexdigest()
    return f"genus-{dialect.escape('&'.join(map(name_of, subscription.types)))}-{digest}"


class QueueReception(SharedReception):
    """Gives the events that were sent to this member of a group to its consumers; a gap is a loss here."""

    counts_all = True
    on_left: Callable[[Event], None]
    """Is called with an event that came after the consumers had left: another member gets it."""

    def has_been_interrupted(self, key: str, turn: int) -> bool:
        """It is asked for as long as the member is there."""
        return False

    def _give(self, event: Event) -> None:
        if not self._take(event):
            self.on_left(event)


class Member:
    """State: this participant as a member of a group."""

    def __init__(self, text: str, reception: QueueReception, handlers: Handlers, since: float) -> None:
        self.text, self.reception, self.handlers, self.since = text, reception, handlers, since
        self.name = os.urandom(4).hex()


class QueueGroups:
    """State: the groups that are known, by the texts of their subscriptions, with their members: uid and name."""

    def __init__(self, link: QueueLink, incoming: IncomingKeys, is_wanted: Callable[[str, Event], bool]) -> None:
        self._link, self._incoming, self._is_wanted = link, incoming, is_wanted
        self._uid, self._rejections = link.uid.hex(), incoming.counts.rejections
        self.token_root = control_key(link.realm, GROUP) + "/"
        self.key_root = control_key(link.realm, QUEUE) + "/"
        self.members: dict[str, dict[tuple[str, str], None]] = {}
        self._own: dict[str, Member] = {}
        """By name; those that have left stay for a while, for what is under way."""
        self._lingering: list[tuple[float, Callable[[], None]]] = []
        """Those that have left, and how to end them when nothing can be under way any more."""
        self._turns: Counter[str] = Counter()
        self._lock = threading.Lock()

    def join(self, subscription: Subscription, take: Take, handlers: Handlers) -> Callable[[], None]:
        """Give a function its share of what a subscription matches; returns a function to end it."""
        text, transport = str(subscription), self._link.transport
        if len(text) > MAX_TEXT:
            raise BusError(f"a queue that processes share has a subscription of at most {MAX_TEXT} characters")
        reception = QueueReception(self._link, take, subscription.types, self._rejections)
        reception.on_left = partial(self._send, text, None)
        member = Member(text, reception, handlers, self._link.now())
        root = f"{self.key_root}{self._uid}/{member.name}"
        unsubscribe = transport.subscribe(f"{root}/{transport.dialect.rest}")
        self._own[member.name] = member
        self._change(text, (self._uid, member.name), True)
        undeclare = transport.declare(f"{self.token_root}{self._uid}/{encode_text(text)}/{member.name}")

        def leave() -> None:
            undeclare()
            self._change(text, (self._uid, member.name), False)
            self._lingering.append((self._link.now() + LINGER_S, end))

        def end() -> None:
            unsubscribe()
            self._own.pop(member.name, None)
            self._incoming.forget_below(root)

        return leave

    def end_lingering(self) -> None:
        """Receive no more for members that have left long ago."""
        while self._lingering and self._lingering[0][0] <= self._link.now():
            self._lingering.pop(0)[1]()

    def member_of(self, key: str) -> Member | None:
        """Return the member of this participant whose packets come under a key; None if it is no key of one."""
        if not key.startswith(f"{self.key_root}{self._uid}/"):
            return None
        return self._own.get(key.removeprefix(self.key_root).split("/", 2)[1])

    def send(self, event: Event, origin: Origin | None = None) -> None:
        """Send an event to one of each group that it goes to; `origin` if it was published on another network."""
        for text in [each for each in list(self.members) if self._is_wanted(each, event)]:
            self._send(text, origin, event)

    def _send(self, text: str, origin: Origin | None, event: Event) -> None:
        uid, name = self._next_of(text) or ("", "")
        if uid == self._uid:
            if (own := self._own.get(name)) is not None:
                own.reception.deliverer(type(event))(event)
        elif uid:
            self._link.outgoing_for(type(event)).send_to(uid, name, event, origin)
        else:
            self._rejections.add(NOT_TAKEN)

    def _next_of(self, text: str) -> tuple[str, str] | None:
        """Return the member of a group that gets the next event; None if there is none."""
        with self._lock:
            members = sorted(self.members.get(text, ()))
            self._turns[text] += bool(members)
            return members[self._turns[text] % len(members)] if members else None

    def token(self, key: str, is_present: bool) -> None:
        """A member of a group has come, or is gone."""
        uid, chunk, name, *more = [*key.removeprefix(self.token_root).split("/"), "", ""]
        text = decode_text(chunk)
        if not is_uid(uid) or text is None or not name.isalnum() or len(more) != 2:
            self._rejections.add("a group that cannot be read", key)
        elif uid != self._uid:
            self._change(text, (uid, name), is_present)

    def _change(self, text: str, member: tuple[str, str], is_present: bool) -> None:
        with self._lock:
            members = self.members.get(text, {})
            if not is_present:
                members.pop(member, None)
                if not members:
                    self.members.pop(text, None)
                    self._turns.pop(text, None)
            elif sum(map(len, self.members.values())) >= MAX_MEMBERS:
                self._rejections.add(f"more than {MAX_MEMBERS} members of groups")
            else:
                self.members.setdefault(text, {})[member] = None
