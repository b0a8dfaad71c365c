"""Packets that arrive: numbered, each event once, decoded, and delivered; losses noticed.

All packets of one key are read by one `IncomingKey`, which has what is the same for all of them: the class, its
decoder, where its events go. `IncomingKeys` finds it, or the reason why the packets of a key cannot be read.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol, TypeAlias

import msgspec

from genus.bus.internal import UnreadValues, units_of
from genus.catalog.internal import is_stand_in, known_above
from genus.errors import DeclarationError, EventError, Reasons
from genus.model import Event, is_event_type, is_generated, name_of
from genus.model.internal import declared_types, family_of
from genus.net._envelope import ATTRIBUTES, ENVELOPE, MAX_HOPS, NUMBERS, SOFT_TIMES, Arrival, Origin, split_attributes
from genus.net._link.messages import (
    FIRST_OF_ARRAY,
    LAST,
    QUEUE,
    ROOT,
    PayloadReader,
    encode_payload,
    is_batch,
    split_batch,
)
from genus.net._link.numbers import Numbers, Verdict
from genus.net._link.types import DIGEST_BYTES, StatedTypes
from genus.records.internal import Rejections
from genus.targets.topics import Dialect, EventKeys, ParsedKey, parse_key

MAX_KEYS = 20_000
"""The largest number of keys that are known; the oldest is forgotten for a new one."""
MAX_UNTOLD = 1000
"""The largest number of keys and reasons of packets that could not be read, until those concerned are told."""
MAX_PARTICIPANTS = 4096
"""The largest number of senders and origins that are known of a key."""

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
    stated: StatedTypes
    counts_all: bool
    """Whether all packets of a key were sent to this participant, from the first one on."""

    @property
    def relays(self) -> Sequence[object]:
        """The gateways; the list changes in place."""

    def now(self) -> float:
        """Return the time for settling gaps, in seconds."""

    @property
    def turn(self) -> int:
        """Return the number of subscriptions that were made so far."""

    def has_been_interrupted(self, key: str, turn: int) -> bool:
        """Return whether a key was not subscribed to for a time since a turn."""

    def deliverer(self, cls: type[Event]) -> Deliver:
        """Return the function that delivers events of a class on the bus."""

    def count_subscriptions(self, cls: type[Event]) -> int:
        """Return how many subscriptions accept events of a class."""

    def hold(self, key: str, read: Callable[["IncomingKey | str"], None], size: int) -> bool:
        """Call a function later, when more was stated about types, or after a short time; whether that is done."""

    def reception_of(self, key: str) -> "Reception":
        """Return where the events of a key go: here, or to the consumers of a queue that processes share."""

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
        self.numbers: dict[bytes, Numbers] = {}
        """Of each participant: of its packets, and of its events, as one that sends its own events counts them so."""
        self._reception = reception
        self.counts_all = reception.counts_all
        self._uid = reception.uid
        self._now = reception.now
        self._relays = reception.relays
        self._digest = reception.stated.digest(reader.type)
        self._length = ENVELOPE.size + len(self._digest)
        self._reader = reader
        self._read_event = reader.read
        self._deliver = reception.deliverer(reader.type)
        if is_stand_in(reader.type):
            self._deliver = _counting(self._deliver, reader.type, counts)
        self._keys = keys if len(keys.keys) > 1 else None
        self._event_key = event_key
        self._kept = kept
        self._counts = counts
        self.waits = True
        """Whether packets in terms that are not known wait for these."""
        self._lock = threading.Lock()
        """Of `numbers`: gateways forward events from other threads."""

    def read(self, envelope: bytes, payload: bytes) -> None:
        """Read a packet and deliver its events; never raises. A number counts only with an event that can be read.

        Most packets have one event and the next number of their sender, who is its origin: they take the short way.
        """
        digest = self._digest
        if len(envelope) != self._length or (digest and envelope[ENVELOPE.size :] != digest):
            self._read_other(envelope, payload)
            return
        origin, number, hops, sender, sent = _unpack_from(envelope)
        numbers = self.numbers.get(sender)
        if (
            numbers is None
            or sent != numbers.last + 1
            or sent >= numbers.limit
            or number != sent
            or origin != sender
            or hops
            or not payload
            or payload[0] in FIRST_OF_ARRAY
            or self._kept is not None
            or self._relays
        ):
            self._accept(origin, number, hops, sender, sent, payload, self._read_event)
            return
        event = self._read_event(payload)
        if event.__class__ is self.type and (self._keys is None or self._keys.key(event) == self._event_key):
            numbers.last = sent
            numbers.mark(hash(payload))
            self._counts.received += 1
            self._deliver(event)
        else:
            self._accept(origin, number, hops, sender, sent, payload, self._read_event)

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
        """Read a packet in the terms of its sender, unless it has expired."""
        origin, number, hops, sender, sent = _unpack_from(envelope)
        if sender == self._uid:
            return
        reader = self._reader_for(envelope)
        if reader is None and self.waits and self._hold(envelope, payload):
            return
        if reader is None and not units_of(self.type):
            reader = self._reader
        if reader is None:
            self._reject(f"a {name_of(self.type)} in units that its sender has not stated", payload)
        elif len(envelope) < _SOFT_LENGTH or self._is_copy(origin, number) or self._is_on_time(sender, envelope):
            self._accept(origin, number, hops, sender, sent, payload, read_of(reader))
        elif isinstance(event := read_of(reader)(payload), self.type):
            self._note(event, hash(payload), Origin(origin, number, hops), sender, sent)

    def _hold(self, envelope: bytes, payload: bytes) -> bool:
        return self._reception.hold(self.key, partial(_read_again, envelope, payload), len(payload))

    def _is_copy(self, origin: bytes, number: int) -> bool:
        """Whether a packet does not come from its publishing: it came before, or was kept for those that come later."""
        seen = self.numbers.get(origin)
        if seen is None:
            return self._kept is not None
        return seen.has(number) or (self._kept is not None and seen.has_newer(number))

    def _is_on_time(self, sender: bytes, envelope: bytes) -> bool:
        times = SoftTimes(*SOFT_TIMES.unpack_from(envelope, ENVELOPE.size))
        return self._reception.is_on_time(self.key, sender, times)

    def _reader_for(self, envelope: bytes) -> PayloadReader | None:
        """Return what reads the payloads of a packet, by the digest of its terms; None if they are not known."""
        digest = envelope[_SOFT_LENGTH if len(envelope) >= _SOFT_LENGTH else ENVELOPE.size :]
        is_same = not digest or digest == self._digest
        return self._reader if is_same else self._reception.stated.reader(self.type, digest)

    def _accept(
        self, origin: bytes, number: int, hops: int, sender: bytes, sent: int, payload: bytes, read: ReadEvent
    ) -> None:
        if sender == self._uid:
            return
        if hops > MAX_HOPS or (origin == sender and not hops and number != sent):
            self._reject(f"more than {MAX_HOPS} hops" if hops else "two numbers for one event", payload)
            return
        if not is_batch(payload):
            self._take(payload, hash(payload), origin, number, hops, sender, sent, read)
            return
        if read is self._read_event and self._take_all(origin, number, sender, sent, hops, payload):
            return
        payloads = split_batch(payload)
        if payloads is None:
            self._reject("a damaged batch", payload)
            return
        mark = hash(payload)
        for place, each in enumerate(payloads):
            at = (number + place) % NUMBERS, (sent + place) % NUMBERS
            self._take(each, mark + place, origin, at[0], hops, sender, at[1], read)

    def _take_all(self, origin: bytes, number: int, sender: bytes, sent: int, hops: int, payload: bytes) -> bool:
        """Deliver the events of a batch if all are the next ones of their sender and of this key; whether they are."""
        numbers = self.numbers.get(sender)
        if self._kept is not None or self._relays or numbers is None or origin != sender or hops:
            return False
        events = self._reader.read_all(payload) if sent == numbers.last + 1 else None
        if events is None:
            return False
        if self._keys is not None and list(map(self._keys.key, events)).count(self._event_key) != len(events):
            return False
        if not numbers.arrive_all(sent, len(events), hash(payload)):
            return False
        self._counts.received += len(events)
        deliver = self._deliver
        for event in events:
            deliver(event)
        return True

    def _take(
        self,
        payload: Any,
        mark: int,
        origin: bytes,
        number: int,
        hops: int,
        sender: bytes,
        sent: int,
        read: ReadEvent,
    ) -> None:
        """Deliver an event if it can be read and is new."""
        event = read(payload) if payload or self._kept is None else None
        if event is not None and event.__class__ is not self.type:
            self._reject(event.reason, bytes(payload))
        elif event is not None and self._keys is not None and self._keys.key(event) != self._event_key:
            self._reject(f"the attributes of a {name_of(self.type)} are not those that its key says", bytes(payload))
        elif self._note(event, mark, found := Origin(origin, number, hops), sender, sent):
            self._deliver_event(event, found)

    def _deliver_event(self, event: Event | None, origin: Origin) -> None:
        """Deliver an event that is new; None if the event of the key is kept no more."""
        if event is None:
            self._reception.forgotten(self.key, origin)
            return
        if self._kept is not None and not self._reception.keep(self.key, Arrival(event, origin, self._kept)):
            self._counts.superseded += 1
            return
        self._counts.received += 1
        self._deliver(event)
        if self._relays:
            self._reception.give_relays(Arrival(event, origin, self._kept))

    def _note(self, event: Event | None, mark: int, origin: Origin, sender: bytes, sent: int) -> bool:
        """Note the numbers of an event that can be read; returns whether it is to be delivered."""
        with self._lock:
            numbers = self.numbers.get(sender)
            if numbers is None and self._reception.counts_all:
                numbers = self.start(sender, 0, is_accounted=True)
            if numbers is None:
                numbers, verdict = self.start(sender, sent, mark), Verdict.NEW
            else:
                if sent != numbers.last + 1 and self.has_been_interrupted(numbers):
                    numbers.begin_again(self._reception.turn)
                verdict = numbers.arrive(sent, mark, self._now())
            if verdict is Verdict.CONFLICT and numbers.mark_of(sent) == _content_mark(event):
                verdict = Verdict.SEEN  # it came by a gateway, which has encoded it again
        is_direct = origin.uid == sender and not origin.hops
        if is_direct or verdict is Verdict.SEEN or verdict is Verdict.OLD:
            return self._judge(verdict, sender, sent)
        return self.is_new(origin, event)

    def is_new(self, origin: Origin, event: Event | None) -> bool:
        """Return whether an event was not seen here before; from now on it was. Those published here are not new."""
        mark = _content_mark(event)
        with self._lock:
            seen = self.numbers.get(origin.uid)
            if origin.uid == self._uid:
                verdict = Verdict.SEEN
            elif seen is None:
                self.start(origin.uid, origin.number, mark)
                return True
            else:
                verdict = seen.arrive(origin.number, mark, compares=False)
        return self._judge(verdict, origin.uid, origin.number)

    def _judge(self, verdict: Verdict, origin: bytes, number: int) -> bool:
        """Return whether an event is to be delivered; what is not is counted.

        Of last values, one that is older than the newest is not: it came by a longer way. Of two events with one
        number, both are: one of them is not from its sender, and nobody here knows which.
        """
        counts = self._counts
        if verdict is Verdict.NEW or verdict is Verdict.CONFLICT:
            counts.conflicts += verdict is Verdict.CONFLICT
            is_superseded = self._kept is not None and self.numbers[origin].has_newer(number)
            counts.superseded += is_superseded
            return not is_superseded
        counts.duplicates += verdict is Verdict.SEEN
        counts.too_old += verdict is Verdict.OLD
        return False

    def has_been_interrupted(self, numbers: Numbers) -> bool:
        """Return whether the key was not subscribed to for a time since numbers were counted: a gap is no loss then."""
        return self._reception.has_been_interrupted(self.key, numbers.turn)

    def start(self, sender: bytes, number: int, mark: int | None = None, *, is_accounted: bool = False) -> Numbers:
        if len(self.numbers) >= MAX_PARTICIPANTS:  # rather an invented one than one that beats
            unknown = (uid for uid, each in self.numbers.items() if not each.is_accounted)
            del self.numbers[next(unknown, next(iter(self.numbers)))]
        made = self.numbers[sender] = Numbers(number, self._reception.turn, mark, is_accounted=is_accounted)
        return made

    def is_seen(self, envelope: bytes) -> bool:
        """Return whether the event of a packet was seen before, or is this participant's own; nothing is noted."""
        if len(envelope) < ENVELOPE.size:
            return True
        origin, number, *_ = _unpack_from(envelope)
        seen = self.numbers.get(origin)
        return origin == self._uid or (seen is not None and seen.has(number))

    def _reject(self, reason: str, payload: bytes) -> None:
        self._counts.reject(reason, self.key, payload)


def _read_again(envelope: bytes, payload: bytes, known: "IncomingKey | str") -> None:
    if not isinstance(known, str):
        known.read(envelope, payload)


def _counting(deliver: Deliver, cls: type[Event], counts: "Counts") -> Deliver:
    """Delivers events as another function does, and counts them as of a type that is not known."""
    label = f"delivered as {known_above(cls)}: {name_of(cls)} is not known"

    def counted(event: Event) -> object:
        counts.not_known[label] += 1
        return deliver(event)

    return counted


class Counts:
    """State: what became of the packets that arrived."""

    def __init__(self) -> None:
        self.received = 0
        self.duplicates = 0
        self.too_old = 0
        """Events with numbers that are older than what is remembered: they were seen, or told as lost."""
        self.conflicts = 0
        """Events with the number of another event, which was delivered too."""
        self.superseded = 0
        """Last values that came after a newer one."""
        self.rejections = Rejections()
        self.unread = UnreadValues(is_logged=True)
        self.not_known = Reasons()
        """Events that were delivered without what their own type has, by type."""
        self._untold: Counter[tuple[str, str]] = Counter()
        self._lock = threading.Lock()

    def reject(self, reason: str, key: str, payload: bytes = b"") -> None:
        """Count a packet of events that cannot be read, and remember to tell those who subscribed to its key."""
        self.rejections.add(reason, key, payload)
        with self._lock:
            if len(self._untold) < MAX_UNTOLD or (key, reason) in self._untold:
                self._untold[key, reason] += 1
            else:
                self._untold[key, Reasons.OTHER] += 1

    def take_untold(self) -> list[tuple[str, str, int]]:
        """Return the keys, reasons and numbers of packets that were rejected since the last call."""
        with self._lock:
            found, self._untold = self._untold, Counter()
        return [(key, reason, count) for (key, reason), count in found.items()]


class IncomingKeys:
    """State: the keys under which packets arrived."""

    def __init__(self, reception: Reception, dialect: Dialect, realm: str) -> None:
        self.counts = Counts()
        self._reception = reception
        self._dialect, self._realm = dialect, realm
        self._last_root = f"{ROOT}/{realm}/{LAST}/"
        self._queue_root = f"{ROOT}/{realm}/{QUEUE}/"
        self._keys: dict[str, IncomingKey] = {}
        self._unreadable: dict[str, str] = {}
        self._ambiguous: set[str] = set()
        """Keys of types of which several are declared under one name."""
        self._former: dict[str, IncomingKey] = {}
        """Keys whose class has to be found again: their numbers go on."""

    def __iter__(self) -> Iterator[IncomingKey]:
        return iter(list(self._keys.values()))

    def get(self, key: str) -> IncomingKey | None:
        """Return what reads the packets of a key that arrived before."""
        return self._keys.get(key)

    def find(self, key: str) -> IncomingKey | str:
        """Return what reads the packets of a key, or the reason why they cannot be read."""
        known = self._keys.get(key) or self._unreadable.get(key)
        if known is None:
            known = self.make(key)
            self.put(key, known)
        return known

    def make(self, key: str) -> IncomingKey | str:
        """Return the same, and `put` makes it known."""
        made = self._read_key(key)
        if not isinstance(made, str) and (former := self._former.pop(key, None)) is not None:
            made.numbers = former.numbers
        return made

    def put(self, key: str, made: IncomingKey | str) -> None:
        """Read packets of a key with this from now on."""
        if isinstance(made, str):
            _make_room(self._unreadable, MAX_KEYS)
            self._unreadable[key] = made
            return
        if len(self._keys) >= MAX_KEYS:
            self.counts.rejections.add(f"more than {MAX_KEYS} keys: losses of the oldest are not found", key)
        _make_room(self._keys, MAX_KEYS)
        self._keys[key] = made

    def is_unknown(self, key: str) -> bool:
        """Return whether a key names a type of which nothing is known here, so that its statement may still come."""
        if key in self._keys or key in self._unreadable:
            return False
        parsed = parse_key(self.split(key)[0], self._dialect, self._realm)
        return parsed is not None and all(map(is_stand_in, find_types(parsed.type)))

    def _read_key(self, key: str) -> IncomingKey | str:
        event_key, kept = self.split(key)
        parsed = parse_key(event_key, self._dialect, self._realm)
        if parsed is None:
            return "a key that names no type of this realm"
        named = find_types(parsed.type) or self._stand_in(parsed)
        if not named:
            return f"unknown type {parsed.type}"
        possible = [EventKeys(cls, self._dialect, self._realm) for cls in named]
        possible = [each for each in possible if event_key in each.keys]
        if not possible:
            return f"a key of another catalog: {parsed.type} has other bases or tagged attributes here"
        if len(named) > 1:
            self._ambiguous.add(key)
        keys = max(reversed(possible), key=lambda each: self._reception.count_subscriptions(each.cls))
        reader = PayloadReader(keys.cls, self.counts.unread)
        return IncomingKey(self._reception.reception_of(key), key, keys, reader, self.counts, event_key, kept)

    def _stand_in(self, parsed: ParsedKey) -> list[type[Event]]:
        """A class for a type that is not known, below the nearest one of its line that is; none if there is none."""
        try:
            made = self._reception.stated.classes.stand_in(parsed.line, len(parsed.bits))
        except DeclarationError:
            return []
        return [] if made is None else [made]

    def split(self, key: str) -> tuple[str, str | None]:
        """Return the key of the event itself, and the value under which the newest is kept, None if it is not."""
        if key.startswith(self._queue_root):
            return "/".join((self._realm, *key.removeprefix(self._queue_root).split("/")[2:])), None
        if not key.startswith(self._last_root):
            return key, None
        line, _, kept = key.removeprefix(self._last_root).rpartition("/=")
        return f"{self._realm}/{line}", self._dialect.unescape(kept)

    def forget(self, key: str) -> None:
        self._keys.pop(key, None)
        self._former.pop(key, None)

    def forget_below(self, root: str) -> None:
        for key in [each.key for each in self if each.key.startswith(f"{root}/")]:
            self.forget(key)

    def type_in(self, key: str) -> str:
        """Return the name of the type that a key names."""
        parsed = parse_key(self.split(key)[0], self._dialect, self._realm)
        return parsed.type if parsed is not None else "?"

    def types_changed(self, family: str | None = None) -> None:
        """Find the types of keys again: some were unknown, are declared anew, or are of a family that learned names."""
        self._unreadable.clear()
        stale: dict[type, bool] = {}
        for each in self:
            if each.type not in stale:
                known = family_of(each.type)
                is_other = find_types(name_of(each.type))[-1:] != [each.type]
                stale[each.type] = is_other or (known is not None and known.name == family)
            if stale[each.type]:
                self._find_again(each.key)

    def _find_again(self, key: str) -> None:
        if (known := self._keys.get(key)) is not None:
            _make_room(self._former, MAX_KEYS)
            self._former[key] = known  # first, as another thread may look for it: it goes on with these numbers
            self._keys.pop(key, None)

    def subscriptions_changed(self) -> None:
        """Find the types of keys again of which several are declared under one name."""
        while self._ambiguous:
            self._find_again(self._ambiguous.pop())


def find_types(name: str) -> list[type[Event]]:
    """Return the event types of a name, in the order of their declaration, those that the program has written last.

    A program should have one.
    """
    found = [cls for cls in declared_types(name) if is_event_type(cls)]
    return sorted(found, key=lambda cls: (not is_generated(cls), not is_stand_in(cls)))


def _content_mark(event: Event | None) -> int | None:
    """Return the hash of an event, however it was encoded; None if it is not known."""
    try:
        return hash(encode_payload(event)) if event is not None else 0
    except EventError:
        return None


def _make_room(table: dict[Any, Any], most: int) -> None:
    """Forget the oldest entry of a table that is full."""
    if len(table) >= most:
        del table[next(iter(table))]
