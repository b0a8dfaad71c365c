"""Packets that are sent: numbered per key, in the order in which they are sent."""

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, groupby
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from genus.bus.types import Keep
from genus.errors import EventError
from genus.model import Event, Kind, is_event_type, is_type, name_of
from genus.net._cloudevents import STRUCTURED
from genus.net._envelope import ENVELOPE, NUMBERS, Origin, join_attributes
from genus.net._link.messages import LAST, NEW, QUEUE, ROOT, control_key, encode_batch, payload_encoder
from genus.net._link.relays import kept_text, kept_value
from genus.net._link.types import StatedTypes
from genus.net._transport import GatheringSender, Sender, Sending, Transport
from genus.targets.topics import EventKeys

EncodeCloud: TypeAlias = Callable[[Event, Origin, str], tuple[Mapping[str, str] | None, bytes]]
"""Makes a CloudEvent of an event, its origin and its key: attributes and data, or no attributes and all in one."""
_pack = ENVELOPE.pack
_MASK = NUMBERS - 1
NEW_S = 3.0
"""How long events of a class with kinds are also sent as those of a new class: from the first on, and when somebody
new asks for a kind."""
BATCH = 1000
"""The largest number of events that are sent in one packet."""


BATCH_BYTES = 1 << 20
"""The largest size of a packet with several events."""


def kinds_of(cls: type) -> list[type]:
    return [each for each in cls.__mro__ if each is not Kind and is_type(each) and not is_event_type(each)]


class Batch(msgspec.Struct, frozen=True, gc=False):
    """A packet with several events of one key."""

    key: str
    payload: bytes
    events: int


class KeyNumbers:
    """State: the numbers of the packets of one key."""

    __slots__ = ("beaten", "began", "key", "lock", "newest")

    def __init__(self, key: str, began: float) -> None:
        self.key, self.began = key, began
        self.newest = 0
        self.beaten = 0
        """The newest number when it was last told to receivers."""
        self.lock = threading.Lock()


class Way:
    """State: how packets of one key are sent; `gathers` where several may be sent as one."""

    __slots__ = ("gathers", "numbers", "put", "sender")

    def __init__(self, numbers: KeyNumbers, sender: Sender) -> None:
        self.numbers, self.sender = numbers, sender
        self.send_once()

    def send_once(self) -> None:
        """Send each packet once from now on."""
        self.put: Callable[[bytes, bytes], None] = self.sender.put
        self.gathers = self.sender if isinstance(self.sender, GatheringSender) else None

    def send_with(self, put: Callable[[bytes, bytes], None]) -> None:
        """Send packets with another function, one by one, from now on."""
        self.put, self.gathers = put, None


class Outgoing:
    """Sends the events of one class in one manner."""

    def __init__(self, keys: "OutgoingKeys", cls: type[Event], sending: Sending, keep: Keep | None) -> None:
        self.type = cls
        self.keep = keep
        self._owner = keys
        self._sending = sending
        event_keys = EventKeys(cls, keys.transport.dialect, keys.realm)
        self._event_key = event_keys.key
        self._event_keys = event_keys.keys
        self._is_tagged = len(event_keys.keys) > 1
        self._ways: dict[str, Way] = {}
        self._only_key = None if self._is_tagged or keep is not None else event_keys.keys[0]
        self._largest = keys.largest
        self._uid = keys.uid
        self._digest = keys.stated.digest(cls)
        self._encode = payload_encoder(cls)

    def send(self, event: Event, times: bytes = b"") -> int:
        """Send an event that was published here, with the times of a soft channel; returns its number."""
        payload = self._encode(event)
        if len(payload) > self._largest:
            raise self._owner.too_large(event, len(payload))
        key = self._only_key or (self._event_key(event) if self.keep is None else self._own_key(event))
        way = self._ways.get(key) or self._open(key)
        numbers, uid, gathers = way.numbers, self._uid, way.gathers
        with numbers.lock:
            number = numbers.newest = numbers.newest + 1 & _MASK
            if gathers is None or times:
                way.put(payload, _pack(uid, number, 0, uid, number) + (times + self._digest))
            elif not gathers.join(payload, number):
                gathers.begin(payload, _pack(uid, number, 0, uid, number) + self._digest, number)
        return number

    def _own_key(self, event: Event) -> str:
        return self._next_key(event, self.kept_value(event), is_own=True)

    def prepare_all(self, events: Sequence[Event]) -> "list[Batch]":
        """Encode events for `send_all`; EventError if one cannot be sent."""
        return [batch for key, run in self._runs(events) for batch in self._batches(key, run)]

    def send_all(self, events: Sequence[Event], batches: "list[Batch]") -> Sequence[int]:
        """Send events that were published here in their order, in the packets made of them; returns their numbers."""
        numbers = [self._send_batch(batch) for batch in batches]
        return numbers[0] if len(numbers) == 1 else [*chain.from_iterable(numbers)]

    def _runs(self, events: Sequence[Event]) -> Iterable[tuple[str, Sequence[Event]]]:
        """Return the events that follow each other and have the same key."""
        if not self._is_tagged:
            return [(self._event_key(events[0]), events)]
        return ((key, list(run)) for key, run in groupby(events, self._event_key))

    def _batches(self, key: str, events: Sequence[Event]) -> "list[Batch]":
        """Return the packets of events of one key: of at most BATCH events, and BATCH_BYTES if there are several."""
        if len(events) > BATCH:
            return [
                batch for at in range(0, len(events), BATCH) for batch in self._batches(key, events[at : at + BATCH])
            ]
        payload = encode_batch(self.type, events)
        if len(events) > 1 and len(payload) > BATCH_BYTES:
            half = len(events) // 2
            return [*self._batches(key, events[:half]), *self._batches(key, events[half:])]
        if len(payload) > self._owner.largest:
            raise self._owner.too_large(events[0], len(payload))
        return [Batch(key, payload, len(events))]

    def _send_batch(self, batch: "Batch") -> Sequence[int]:
        way = self._ways.get(batch.key) or self._open(batch.key)
        numbers = way.numbers
        with numbers.lock:
            first = numbers.newest + 1 & _MASK
            numbers.newest = numbers.newest + batch.events & _MASK
            way.put(batch.payload, _pack(self._uid, first, 0, self._uid, first) + self._digest)
        if first + batch.events <= NUMBERS:
            return range(first, first + batch.events)
        return [first + offset & _MASK for offset in range(batch.events)]

    def send_for(self, event: Event, origin: Origin, kept: str | None) -> None:
        payload = self._encode(event)
        self._put(self._next_key(event, kept, is_own=False), payload, origin)

    def send_to(self, uid: str, member: str, event: Event, origin: Origin | None) -> None:
        """Send an event to a member of a group; `origin` if it was published on another network."""
        line = self._event_key(event).partition("/")[2]
        self._put(control_key(self._owner.realm, QUEUE, uid, member, line), self._encode(event), origin)

    def _put(self, key: str, payload: bytes, origin: Origin | None) -> int:
        """Send a packet of an origin, or of this participant, with the next number of its key; returns that."""
        way = self._ways.get(key) or self._open(key)
        numbers = way.numbers
        with numbers.lock:
            number = numbers.newest = numbers.newest + 1 & _MASK
            first = origin or Origin(self._uid, number)
            way.put(payload, _pack(first.uid, first.number, first.hops, self._uid, number) + self._digest)
        return number

    def skip(self, event: Event, kept: str | None) -> None:
        """Count an event that is not sent, so that receivers miss it."""
        numbers = self._owner.numbers(self.key_of(event, kept))
        with numbers.lock:
            numbers.newest = numbers.newest + 1 & _MASK

    def forget(self, event: Event) -> None:
        """Tell all that no event with the value of this one is kept any more."""
        assert self.keep is not None
        value = kept_value(event, self.keep)
        self._owner.kept_keys.pop((self.type, value), None)
        self._forget_key(self.kept_key(event, value), None, is_own=True)

    def forget_key(self, values: Sequence[object]) -> None:
        """Tell all that no event with these values of its key is kept any more, whatever it has tagged."""
        value = kept_text(values)
        self._owner.kept_keys.pop((self.type, value), None)
        for event_key in self._event_keys:
            self._forget_key(self._kept_key(event_key, value), None, is_own=True)

    def forget_for(self, event: Event, origin: Origin, kept: str) -> None:
        """Tell all that an event of another network is kept no more."""
        key = self.kept_key(event, kept)
        if self._owner.kept_keys.get((self.type, kept)) == key:
            del self._owner.kept_keys[self.type, kept]
        self._forget_key(key, origin, is_own=False)

    def _forget_key(self, key: str, origin: Origin | None, *, is_own: bool) -> None:
        number = self._put(key, b"", origin)
        self._owner.on_forgotten(key, number if is_own else None)

    def _next_key(self, event: Event, value: str | None, *, is_own: bool) -> str:
        """The key of an event that is sent next; if it is kept, the key before it is forgotten if that is another one.

        Events of one value have different keys if they have different tagged attributes.
        """
        key = self.key_of(event, value)
        if self._is_tagged and value is not None:
            before = self._owner.kept_keys.get((self.type, value), key)
            self._owner.kept_keys[self.type, value] = key
            if before != key:
                self._forget_key(before, None, is_own=is_own)
        return key

    def key_of(self, event: Event, kept: str | None) -> str:
        """Return the key of an event, and of one of which the newest is kept under a value."""
        return self._event_key(event) if kept is None else self.kept_key(event, kept)

    def kept_key(self, event: Event, value: str) -> str:
        """Return the key under which the newest event with a value is kept."""
        return self._kept_key(self._event_key(event), value)

    def _kept_key(self, event_key: str, value: str) -> str:
        line = event_key.partition("/")[2]
        return control_key(self._owner.realm, LAST, line, f"={self._owner.transport.dialect.escape(value)}")

    def kept_value(self, event: Event) -> str | None:
        """The value under which an event is kept: that of the attributes that the channel names; None if it is not."""
        return None if self.keep is None else kept_value(event, self.keep)

    def _open(self, key: str) -> Way:
        way = self._ways[key] = self._owner.open(key, self._owner.with_content_type(self._sending), self.type)
        return way


class CloudOutgoing(Outgoing):
    """Sends the events of one class as CloudEvents, in the envelope of packets: other systems read them, too."""

    def send(self, event: Event, times: bytes = b"") -> int:
        """Send an event that was published here, with the times of a soft channel; returns its number."""
        key = self._own_key(event)
        return self._send_cloud(event, key, None, times)

    def prepare_all(self, events: Sequence[Event]) -> list[Batch]:
        """Test that all events can be sent; EventError if one cannot."""
        for event in events:
            _, payload = self._owner.encode_cloud(event, Origin(self._uid, 0), "")
            if len(payload) > self._owner.largest:
                raise self._owner.too_large(event, len(payload))
        return []

    def send_all(self, events: Sequence[Event], batches: list[Batch]) -> Sequence[int]:
        """Send events that were published here, each in a packet of its own; returns their numbers."""
        return [self.send(event) for event in events]

    def send_for(self, event: Event, origin: Origin, kept: str | None) -> None:
        self._send_cloud(event, self._next_key(event, kept, is_own=False), origin, b"")

    def _send_cloud(self, event: Event, key: str, origin: Origin | None, times: bytes) -> int:
        way = self._ways.get(key) or self._open(key)
        numbers = way.numbers
        with numbers.lock:
            number = numbers.newest + 1 & _MASK
            first = origin or Origin(self._uid, number)
            attributes, payload = self._owner.encode_cloud(event, first, key)
            if len(payload) > self._owner.largest:
                raise self._owner.too_large(event, len(payload))
            numbers.newest = number
            envelope = _pack(first.uid, first.number, first.hops, self._uid, number) + times + self._digest
            way.put(payload, envelope if attributes is None else join_attributes(attributes, envelope))
        return number


class OutgoingKeys:
    """State: the keys under which packets were sent, with their numbers."""

    def __init__(
        self,
        transport: Transport,
        uid: bytes,
        realm: str,
        stated: StatedTypes,
        encode_cloud: EncodeCloud | None = None,
        on_forgotten: Callable[[str, int | None], None] = lambda key, number: None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.transport, self.uid, self.realm = transport, uid, realm
        self.stated = stated
        self.on_forgotten = on_forgotten
        """Is called with each key whose newest event is kept no more, and the number of that if it was said here."""
        self.kept_keys: dict[tuple[type, str], str] = {}
        """The key of the newest event that was sent, of each type whose keys differ and each value it is kept under."""
        self._encode_cloud = encode_cloud
        self._now = now
        self._with_kinds: list[tuple[Way, Callable[[bytes, bytes], None]]] = []
        """How events of classes with kinds are sent, and their copies as those of a new class."""
        self.largest = transport.abilities.largest
        self._numbers: dict[str, KeyNumbers] = {}
        self._made: dict[tuple[type, Sending, Keep | None], Outgoing] = {}
        self._lock = threading.Lock()

    def outgoing(self, cls: type[Event], sending: Sending, keep: Keep | None = None) -> Outgoing:
        """Return what sends the events of a class in a manner."""
        self.stated.state(cls)
        with self._lock:
            made = self._made.get((cls, sending, keep))
            if made is None:
                kind = Outgoing if self._encode_cloud is None else CloudOutgoing
                made = self._made[cls, sending, keep] = kind(self, cls, sending, keep)
            return made

    def with_content_type(self, sending: Sending) -> Sending:
        """Return how packets are sent, with what they contain if other systems can read it."""
        return sending if self._encode_cloud is None else replace(sending, content_type=STRUCTURED)

    def encode_cloud(self, event: Event, origin: Origin, key: str) -> tuple[Mapping[str, str] | None, bytes]:
        """Return an event as a CloudEvent: attributes and data, or no attributes and all in one."""
        assert self._encode_cloud is not None
        return self._encode_cloud(event, origin, key)

    def open(self, key: str, sending: Sending, cls: type[Event]) -> Way:
        """Prepare to send packets of a key; they are numbered with those that are sent in other manners."""
        way = Way(self.numbers(key), self.transport.sender(key, sending))
        if kinds_of(cls) and not key.startswith(ROOT):
            copies = self.transport.sender(control_key(self.realm, NEW, key.partition("/")[2]), sending)
            with self._lock:
                self._with_kinds.append((way, copies.put))
            with way.numbers.lock:
                self._copy(way, copies.put)
        return way

    def copy_again(self) -> None:
        """Send events of classes with kinds also as those of new classes for a time: somebody new asks for a kind."""
        with self._lock:
            ways = list(self._with_kinds)
        for way, put_copy in ways:
            with way.numbers.lock:
                self._copy(way, put_copy)

    def _copy(self, way: Way, put_copy: Callable[[bytes, bytes], None]) -> None:
        """Send packets also as those of a new class, for a time.

        Who asked for a kind subscribes to the keys of the classes that it knows. Until it has learned of a new one, it
        gets these copies; the numbers in their envelopes tell which events it has already.
        """
        until = self._now() + NEW_S

        def put_both(payload: bytes, envelope: bytes) -> None:
            way.sender.put(payload, envelope)
            if self._now() < until:
                put_copy(payload, envelope)
            else:
                way.send_once()

        way.send_with(put_both)

    def numbers(self, key: str) -> KeyNumbers:
        with self._lock:
            return self._numbers.setdefault(key, KeyNumbers(key, self._now()))

    def too_large(self, event: Event, size: int) -> EventError:
        """Return the error of an event that cannot be sent."""
        return EventError(f"a {name_of(type(event))} of {size:,} bytes cannot be sent; at most {self.largest:,} can be")

    def beat(self) -> dict[str, tuple[int, int]]:
        """Return the numbers of keys that were used since the last beat: the newest of then, and of now.

        A key whose sender waits for room just now is told with the next beat.
        """
        with self._lock:
            changed = [each for each in self._numbers.values() if each.newest != each.beaten]
        found = {}
        for numbers in changed:
            if numbers.lock.acquire(blocking=False):
                found[numbers.key] = numbers.beaten, numbers.newest
                numbers.beaten = numbers.newest
                numbers.lock.release()
        return found

    def sent(self) -> int:
        with self._lock:
            return sum(each.newest for each in self._numbers.values())

    def has(self, key: str) -> bool:
        return key in self._numbers

    def keys(self) -> list[str]:
        with self._lock:
            return list(self._numbers)

    def began(self, keys: Iterable[str]) -> dict[str, float]:
        """When the first packet of some keys was sent."""
        return {key: self._numbers[key].began for key in keys}

    def newest(self, keys: Iterable[str]) -> dict[str, tuple[int, int]]:
        """Return the newest numbers of some keys, once more."""
        return {key: (self._numbers[key].newest, self._numbers[key].newest) for key in keys}
