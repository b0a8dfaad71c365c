"""Packets that arrive: numbered, each event once, decoded, and delivered; losses noticed.

All packets of one key are read by one `IncomingKey`, which has what is the same for all of them: the class, its
decoder, where its events go. `IncomingKeys` finds it, or the reason why the packets of a key cannot be read.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeAlias

import msgspec

from genus.bus._attribute_map import UnreadValues, units_of
from genus.model import Event, is_event_type, name_of
from genus.model._declared import declared_types
from genus.net._envelope import ATTRIBUTES, ENVELOPE, MOST_HOPS, NUMBERS, SOFT_TIMES, Origin, split_attributes
from genus.net._link.control import LAST, ROOT
from genus.net._link.numbers import OriginNumbers, SenderNumbers
from genus.net._link.payload import FIRST_OF_ARRAY, PayloadReader, is_batch, split_batch
from genus.net._link.units import DIGEST_BYTES, StatedUnits, units_digest
from genus.net._relay import Arrival
from genus.records._rejected import Rejections
from genus.targets.topics import Dialect, EventKeys, parse_key

MOST_KEYS = 20_000
"""The largest number of keys that are known; the oldest is forgotten for a new one."""
MOST_PARTICIPANTS = 4096
"""The largest number of senders, and of origins, that are known of a key."""

Deliver: TypeAlias = Callable[[Event], object]
ReadEvent: TypeAlias = Callable[[Any], Any]
"""Reads a payload: gives the event, or the reason why there is none."""
_unpack_from = ENVELOPE.unpack_from
_SOFT_LENGTH = ENVELOPE.size + SOFT_TIMES.size
_LENGTHS = tuple(length + digest for length in (ENVELOPE.size, _SOFT_LENGTH) for digest in (0, DIGEST_BYTES))


class SoftTimes(msgspec.Struct, frozen=True):
    """When an event of a soft channel was published, and how long after that its deadline and expiry are (0: none)."""

    published_us: int
    deadline_us: int
    expires_us: int


class Reception(Protocol):
    """Where the events of incoming packets go."""

    uid: bytes
    units: StatedUnits

    @property
    def relays(self) -> Sequence[object]:
        """The gateways; the list changes in place."""

    def now(self) -> float:
        """The time for settling gaps, in seconds."""

    @property
    def turn(self) -> int:
        """The number of subscriptions that were made so far."""

    def has_been_interrupted(self, key: str, turn: int) -> bool:
        """Whether a key was not subscribed to for a time since a turn."""

    def deliverer(self, cls: type[Event]) -> Deliver:
        """The function that delivers events of a class on the bus."""

    def is_subscribed(self, cls: type[Event]) -> bool:
        """Whether a subscription accepts events of a class; of several classes with one name, that one is meant."""

    def give_relays(self, arrival: Arrival) -> None:
        """Give an event to gateways."""

    def take_foreign(self, key: str, read: Any, payload: bytes) -> None:
        """Take what was read from a message without an envelope: an event, or the reason why there is none."""

    def is_on_time(self, key: str, sender: bytes, times: SoftTimes) -> bool:
        """Note the lateness of an event of a soft channel; returns whether it is to be delivered."""

    def keep(self, key: str, arrival: Arrival) -> bool:
        """Keep an event for subscribers of this process that come later; False if a newer one is known."""

    def forgotten(self, key: str, origin: Origin) -> None:
        """Keep no event of a key any more, as its publisher said."""


class IncomingKey:
    """State: the packets of one key that arrived."""

    def __init__(
        self,
        reception: Reception,
        key: str,
        keys: EventKeys,
        reader: PayloadReader,
        counts: "Counts",
        event_key: str,
        kept: str | None,
    ) -> None:
        self.key = key
        self.type = reader.type
        self.senders: dict[bytes, SenderNumbers] = {}
        self.origins: dict[bytes, OriginNumbers] = {}
        self._reception = reception
        self._uid = reception.uid
        self._now = reception.now
        self._relays = reception.relays
        self._digest = units_digest(units_of(reader.type))
        self._length = ENVELOPE.size + len(self._digest)
        self._reader = reader
        self._read_event = reader.read
        self._deliver = reception.deliverer(reader.type)
        self._keys = keys if len(keys.keys) > 1 else None
        self._event_key = event_key
        self._kept = kept
        self._counts = counts
        self._lock = threading.Lock()
        """Of `origins`: gateways forward events from other threads."""

    def read(self, envelope: bytes, payload: bytes) -> None:
        """Read a packet and deliver its events; never raises.

        Most packets have one event and the next number of their sender, who is its origin: they take the short way.
        """
        digest = self._digest
        if len(envelope) != self._length or (digest and envelope[ENVELOPE.size :] != digest):
            self._read_other(envelope, payload)
            return
        origin, number, hops, sender, sent = _unpack_from(envelope)
        numbers = self.senders.get(sender)
        if (
            numbers is None
            or sent != numbers.last + 1
            or origin != sender
            or hops
            or not payload
            or payload[0] in FIRST_OF_ARRAY
        ):
            self._accept(origin, number, hops, sender, sent, payload, self._read_event)
            return
        numbers.last = sent
        seen = self.origins.get(origin)
        if seen is not None and number == seen.newest + 1 and not self._relays:
            seen.newest = number
        elif not self.is_new(origin, number):
            self.count_copy(origin, number)
            return
        if self._kept is not None or self._relays:
            self._deliver_payload(payload, origin, number, hops, self._read_event)
            return
        event = self._read_event(payload)
        if event.__class__ is self.type and (self._keys is None or self._keys.key(event) == self._event_key):
            self._counts.received += 1
            self._deliver(event)
        else:
            self._deliver_payload(payload, origin, number, hops, self._read_event)

    def _read_other(self, envelope: bytes, payload: bytes) -> None:
        """Read a packet of a soft channel, a sender with other units or a CloudEvent, or reject it for its envelope."""
        if len(envelope) in _LENGTHS:
            self._read_with(envelope, payload, lambda reader: reader.read)
        elif not envelope and payload[:1] == b"{":
            self._reception.take_foreign(self.key, self._reader.read(payload), payload)
        elif envelope.startswith(ATTRIBUTES) and (found := split_attributes(envelope)) is not None:
            self._read_cloud(*found, payload)
        else:
            self._reject("no envelope" if not envelope else f"an envelope of {len(envelope)} bytes", payload)

    def _read_cloud(self, attributes: dict[str, str], own: bytes, payload: bytes) -> None:
        """Read a CloudEvent in binary mode; one whose sender does not know Genus has no envelope of its own."""
        if len(own) in _LENGTHS:
            self._read_with(own, payload, lambda reader: reader.read_binary(attributes))
        else:
            self._reception.take_foreign(self.key, self._reader.read_binary(attributes)(payload), payload)

    def _read_with(self, envelope: bytes, payload: bytes, read_of: Callable[[PayloadReader], ReadEvent]) -> None:
        """Read a packet with the units of its sender, unless it has expired."""
        origin, number, hops, sender, sent = _unpack_from(envelope)
        if sender == self._uid:
            return
        reader = self._reader_for(envelope)
        if reader is None:
            self._count_number(sender, sent, 1)
            self._reject(f"a {name_of(self.type)} in units that its sender has not stated", payload)
        elif len(envelope) < _SOFT_LENGTH or self._is_copy(origin, number) or self._is_on_time(sender, envelope):
            self._accept(origin, number, hops, sender, sent, payload, read_of(reader))
        else:
            self._count_number(sender, sent, 1)
            self.is_new(origin, number)

    def _is_copy(self, origin: bytes, number: int) -> bool:
        """Whether a packet does not come from its publishing: it came before, or was kept for those that come later."""
        seen = self.origins.get(origin)
        if self._kept is not None:
            return seen is None or not seen.is_newer(number)
        return seen is not None and seen.was_seen(number)

    def _is_on_time(self, sender: bytes, envelope: bytes) -> bool:
        times = SoftTimes(*SOFT_TIMES.unpack_from(envelope, ENVELOPE.size))
        return self._reception.is_on_time(self.key, sender, times)

    def _reader_for(self, envelope: bytes) -> PayloadReader | None:
        """What reads the payloads of a packet, by the digest of its units; None if they are not known."""
        digest = envelope[_SOFT_LENGTH if len(envelope) >= _SOFT_LENGTH else ENVELOPE.size :]
        is_same = not digest or digest == self._digest
        return self._reader if is_same else self._reception.units.reader(self.type, digest)

    def _accept(
        self, origin: bytes, number: int, hops: int, sender: bytes, sent: int, payload: bytes, read: ReadEvent
    ) -> None:
        if sender == self._uid:
            return
        if hops > MOST_HOPS:
            self._count_number(sender, sent, 1)
            self._reject(f"more than {MOST_HOPS} hops", payload)
            return
        if is_batch(payload):
            self._accept_batch(origin, number, hops, sender, sent, payload, read)
            return
        self._count_number(sender, sent, 1)
        if not self.is_new(origin, number):
            self.count_copy(origin, number)
            return
        self._deliver_payload(payload, origin, number, hops, read)

    def _accept_batch(
        self, origin: bytes, number: int, hops: int, sender: bytes, sent: int, payload: bytes, read: ReadEvent
    ) -> None:
        events = self._reader.read_all(payload) if read is self._read_event and not self._relays else None
        if events is not None and self._accept_all(events, origin, number, sender, sent):
            return
        payloads = split_batch(payload)
        if payloads is None:
            self._reject("a damaged batch", payload)
            return
        self._count_number(sender, sent, len(payloads))
        fresh = [place for place in range(len(payloads)) if self.is_new(origin, (number + place) % NUMBERS)]
        self._counts.duplicates += len(payloads) - len(fresh)
        for place in fresh:
            self._deliver_payload(payloads[place], origin, (number + place) % NUMBERS, hops, read)

    def _accept_all(self, events: Sequence[Event], origin: bytes, number: int, sender: bytes, sent: int) -> bool:
        """Deliver the events of a batch if all are new and of this key; whether they are."""
        seen = self.origins.get(origin)
        if self._kept is not None or seen is None or origin == self._uid:
            return False
        if self._keys is not None and list(map(self._keys.key, events)).count(self._event_key) != len(events):
            return False
        if not seen.are_next(number, len(events)):
            return False
        self._count_number(sender, sent, len(events))
        self._counts.received += len(events)
        deliver = self._deliver
        for event in events:
            deliver(event)
        return True

    def _deliver_payload(self, payload: Any, origin: bytes, number: int, hops: int, read: ReadEvent) -> None:
        if self._kept is not None and not payload:
            self._reception.forgotten(self.key, Origin(origin, number, hops))
            return
        event = read(payload)
        if event.__class__ is not self.type:
            self._reject(event.reason, bytes(payload))
            return
        if self._keys is not None and self._keys.key(event) != self._event_key:
            self._reject(f"the attributes of a {name_of(self.type)} are not those that its key says", bytes(payload))
            return
        if self._kept is not None and not self._reception.keep(
            self.key, Arrival(event, Origin(origin, number, hops), self._kept)
        ):
            self._counts.superseded += 1
            return
        self._counts.received += 1
        self._deliver(event)
        if self._relays:
            self._reception.give_relays(Arrival(event, Origin(origin, number, hops), self._kept))

    def is_new(self, origin: bytes, number: int) -> bool:
        """Whether an event was not seen here before; from now on it was. Those published here are not new.

        Of last values, one that is older than the newest is not new either: it came by a longer way.
        """
        if origin == self._uid:
            return False
        with self._lock:
            seen = self.origins.get(origin)
            if seen is None:
                _make_room(self.origins)
                self.origins[origin] = OriginNumbers(number)
                return True
            return (self._kept is None or seen.is_newer(number)) and seen.is_new(number)

    def count_copy(self, origin: bytes, number: int) -> None:
        """Count an event that is not new: a copy, or a last value that came after a newer one."""
        seen = self.origins.get(origin)
        with self._lock:
            is_superseded = self._kept is not None and seen is not None and seen.is_new(number)
        if is_superseded:
            self._counts.superseded += 1
        else:
            self._counts.duplicates += 1

    def _count_number(self, sender: bytes, sent: int, count: int) -> None:
        numbers = self.senders.get(sender)
        if numbers is None or (sent != numbers.last + 1 and self.has_been_interrupted(numbers)):
            self.start(sender, (sent + count - 1) % NUMBERS)
        else:
            numbers.arrive(sent, count, self._now())

    def has_been_interrupted(self, numbers: SenderNumbers) -> bool:
        """Whether the key was not subscribed to for a time since numbers were counted: a gap is no loss then."""
        return self._reception.has_been_interrupted(self.key, numbers.turn)

    def start(self, sender: bytes, newest: int) -> SenderNumbers:
        """Expect the packets of a sender after a number."""
        _make_room(self.senders)
        made = self.senders[sender] = SenderNumbers(newest, self._reception.turn)
        return made

    def _reject(self, reason: str, payload: bytes) -> None:
        self._counts.rejections.add(reason, self.key, payload)


class Counts:
    """State: what became of the packets that arrived."""

    def __init__(self) -> None:
        self.received = 0
        self.duplicates = 0
        self.superseded = 0
        """Last values that came after a newer one."""
        self.rejections = Rejections()
        self.unread = UnreadValues(is_logged=True)


class IncomingKeys:
    """State: the keys under which packets arrived."""

    def __init__(self, reception: Reception, dialect: Dialect, realm: str) -> None:
        self.counts = Counts()
        self._reception = reception
        self._dialect, self._realm = dialect, realm
        self._last_root = f"{ROOT}/{realm}/{LAST}/"
        self._keys: dict[str, IncomingKey] = {}
        self._unreadable: dict[str, str] = {}
        self._ambiguous: set[str] = set()
        """Keys of types of which several are declared under one name."""

    def __iter__(self) -> Iterator[IncomingKey]:
        return iter(list(self._keys.values()))

    def get(self, key: str) -> IncomingKey | None:
        """What reads the packets of a key that arrived before."""
        return self._keys.get(key)

    def find(self, key: str) -> IncomingKey | None:
        """What reads the packets of a key; None, and the reason is counted, if they cannot be read."""
        found = self._keys.get(key) or self._make(key)
        if isinstance(found, IncomingKey):
            return found
        self.counts.rejections.add(found, key)
        return None

    def _make(self, key: str) -> IncomingKey | str:
        known = self._unreadable.get(key)
        if known is not None:
            return known
        made = self._read_key(key)
        if isinstance(made, str):
            _make_room(self._unreadable, MOST_KEYS)
            self._unreadable[key] = made
        else:
            if len(self._keys) >= MOST_KEYS:
                self.counts.rejections.add(f"more than {MOST_KEYS} keys: losses of the oldest are not found", key)
            _make_room(self._keys, MOST_KEYS)
            self._keys[key] = made
        return made

    def _read_key(self, key: str) -> IncomingKey | str:
        event_key, kept = self.split(key)
        parsed = parse_key(event_key, self._dialect, self._realm)
        if parsed is None:
            return "a key that names no type of this realm"
        named = find_types(parsed.type)
        if not named:
            return f"unknown type {parsed.type}"
        possible = [EventKeys(cls, self._dialect, self._realm) for cls in named]
        possible = [each for each in possible if event_key in each.keys]
        if not possible:
            return f"a key of another catalog: {parsed.type} has other bases or tagged attributes here"
        if len(named) > 1:
            self._ambiguous.add(key)
        wanted = [each for each in possible if self._reception.is_subscribed(each.cls)]
        keys = (wanted or possible)[-1]
        cls = keys.cls
        reader = PayloadReader(cls, self.counts.unread)
        return IncomingKey(self._reception, key, keys, reader, self.counts, event_key, kept)

    def split(self, key: str) -> tuple[str, str | None]:
        """The key of the event itself, and the value under which the newest is kept, None if it is not."""
        if not key.startswith(self._last_root):
            return key, None
        line, _, kept = key.removeprefix(self._last_root).rpartition("/=")
        return f"{self._realm}/{line}", self._dialect.unescape(kept)

    def forget(self, key: str) -> None:
        """Forget what arrived under a key."""
        self._keys.pop(key, None)

    def type_in(self, key: str) -> str:
        """The name of the type that a key names."""
        parsed = parse_key(self.split(key)[0], self._dialect, self._realm)
        return parsed.type if parsed is not None else "?"

    def types_changed(self) -> None:
        """Find the types of keys again: some were unknown, or are declared anew."""
        self._unreadable.clear()
        for key in [each.key for each in self if find_types(name_of(each.type))[-1:] != [each.type]]:
            self._keys.pop(key, None)

    def subscriptions_changed(self) -> None:
        """Find the types of keys again of which several are declared under one name."""
        while self._ambiguous:
            self._keys.pop(self._ambiguous.pop(), None)


def find_types(name: str) -> list[type[Event]]:
    """The event types of a name, in the order of their declaration; a program should have one."""
    return [cls for cls in declared_types(name) if is_event_type(cls)]


def _make_room(table: dict[Any, Any], most: int = MOST_PARTICIPANTS) -> None:
    """Forget the oldest entry of a table that is full."""
    if len(table) >= most:
        del table[next(iter(table))]
