"""Events of systems that do not know Genus: topics with a mapping, and CloudEvents.

Their messages have no envelope. An event gets as its origin the topic it came from, with a number counted here, so that
it can cross gateways. CloudEvents have an id, by which copies are recognised.
"""

import hashlib
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec

from genus.errors import BusError, EventError
from genus.model import Event
from genus.net._cloudevents import CloudEventReader
from genus.net._envelope import NUMBERS, Arrival, Origin
from genus.net._link.incoming import Counts
from genus.net._link.outgoing import Batch
from genus.net._transport import EchoingTransport, Sender, Sending, Transport
from genus.records import ForeignTopics, Message
from genus.records import Mapping as RecordMapping
from genus.records.types import Rejected
from genus.targets.topics import MQTT, Dialect

MAX_IDS = 10_000
"""How many ids of CloudEvents are remembered."""
MAX_TOPICS = 10_000
"""How many topics are counted at a time; of more, the one that was silent for longest is forgotten."""


class ForeignEvent(NamedTuple):
    """An event of another system; `id` is the same for all copies of it, empty if copies cannot be recognised."""

    event: Event
    id: str = ""
    origin: Origin | None = None


class ForeignLoss(msgspec.Struct, frozen=True):
    """Messages that are missing: of another system, or, if `is_own`, those of this process that were not sent.

    `types` are those that the lost events may have had; `sender` is how the other system names the sender.
    """

    types: frozenset[str]
    count: int
    reason: str
    sender: str = ""
    is_own: bool = False


Found: TypeAlias = ForeignEvent | ForeignLoss | Rejected
"""What comes from another system."""
Take: TypeAlias = Callable[[str, Found, bytes], None]
"""Is called with the topic of a message, what was found in it, and its payload."""


class ForeignSource:
    """Another system: reads its messages, and may write them. All of this may be left as it is."""

    patterns: Sequence[str] = ()
    """The patterns of its topics, if its messages come over the network of the link."""

    def open(self, take: Take) -> None:
        """Connect to a network of its own; what comes from there is given to `take`, from any thread."""

    def read(self, key: str, payload: bytes) -> Iterable[Found]:
        """Read a message of one of the patterns; never raises."""
        return ()

    def writes(self, cls: type[Event]) -> bool:
        """Return whether events of a class are written for this system instead of the realm."""
        return False

    def write(self, event: Event) -> Message | Rejected:
        return Rejected("this system is only read")

    def send(self, event: Event, put: Callable[[Message], None]) -> None:
        """Send an event, by `put` if that goes over the network of the link; EventError if it cannot be written."""
        put(self.message(event))

    def message(self, event: Event) -> Message:
        """Return the message of an event; EventError if it cannot be written."""
        message = self.write(event)
        if not isinstance(message, Message):
            raise EventError(f"{event!r} cannot be written: {message}")
        return message

    def last_events(self) -> Iterable[Event]:
        """Return what is known of the present state, for those that subscribe now."""
        return ()

    def unread(self) -> Mapping[str, int]:
        """Return the number of values that no attribute takes, by type and field."""
        return {}

    def close(self) -> None:
        """Leave the network of its own, if there is one."""


class MappedTopics(ForeignSource):
    """Topics of another system, read and written by a mapping."""

    def __init__(self, mapping: RecordMapping) -> None:
        self._topics = ForeignTopics(mapping)
        self.patterns = covering(self._topics.filters)

    def writes(self, cls: type[Event]) -> bool:
        """Return whether the mapping can be used in the other direction for a class."""
        return not self._topics.refusal(cls)

    def write(self, event: Event) -> Message | Rejected:
        return self._topics.write(event)

    def read(self, key: str, payload: bytes) -> Iterable[Found]:
        return [each if isinstance(each, Rejected) else ForeignEvent(each) for each in self._topics.read(key, payload)]

    def unread(self) -> Mapping[str, int]:
        return self._topics.unread


class CloudTopics(ForeignSource):
    """Topics whose messages are CloudEvents; the option `format` says how events are sent."""

    def __init__(self, patterns: Sequence[str], dialect: Dialect) -> None:
        for pattern in patterns:
            if not dialect.is_pattern(pattern):
                raise BusError(f"cloudevents={pattern} is not a pattern of {dialect.name}")
        self.patterns = patterns
        self._reader = CloudEventReader()

    def read(self, key: str, payload: bytes) -> Iterable[Found]:
        """Read the event of a structured CloudEvent, or the events of a batch."""
        is_batch = payload[:100].lstrip()[:1] == b"["
        found = self._reader.read_batch(payload) if is_batch else [self._reader.read_structured(payload)]
        return [
            each if isinstance(each, Rejected) else ForeignEvent(each.event, f"{each.source} {each.id}", each.origin)
            for each in found
        ]


class ForeignMessages:
    """Reads the messages of other systems that a transport gives, and finds who writes them."""

    def __init__(
        self,
        sources: Sequence[ForeignSource],
        transport: Transport,
        realm: str,
        counts: Counts,
        deliver: Callable[[Arrival], None],
        lose: Callable[[ForeignLoss], None],
    ) -> None:
        self._sources, self._transport, self._realm = tuple(sources), transport, realm
        self._counts, self._deliver, self._lose = counts, deliver, lose
        self._arrivals = ForeignArrivals()
        self._lock = threading.Lock()
        """Of the counts: a source with a network of its own has threads of its own."""

    def subscribe(self) -> None:
        """Receive messages of others; what this participant writes there it has delivered itself."""
        for source in self._sources:
            for pattern in source.patterns:
                if isinstance(self._transport, EchoingTransport):
                    self._transport.subscribe_others(pattern)
                else:
                    self._transport.subscribe(pattern, kept=True)
            source.open(self.take)

    def writer_of(self, cls: type[Event]) -> ForeignSource | None:
        """Return the system that events of a class are written to, if there is one."""
        return next((each for each in self._sources if each.writes(cls)), None)

    def last_events(self) -> list[Event]:
        """Return the present state of other systems, as far as it is known."""
        return [event for source in self._sources for event in source.last_events()]

    def unread(self) -> Mapping[str, int]:
        """Return the number of values that no attribute takes, by type and field, in all systems."""
        total: Counter[str] = Counter()
        for source in self._sources:
            total.update(source.unread())
        return total

    def close(self) -> None:
        for source in self._sources:
            source.close()

    def packet(self, key: str, payload: bytes) -> bool:
        """Read a message of other systems, each by its own mapping; returns whether it is one."""
        if not self._sources or key.startswith(f"{self._realm}/"):
            return False
        matches = self._transport.dialect.matches
        found = [each for each in self._sources if any(matches(pattern, key) for pattern in each.patterns)]
        for source in found:
            for read in source.read(key, payload):
                self.take(key, read, payload)
        return bool(found)

    def take(self, key: str, read: Any, payload: bytes) -> None:
        """Take what was read from a message without an envelope: an event, or the reason why there is none."""
        found = ForeignEvent(read) if isinstance(read, Event) else read
        if isinstance(found, ForeignLoss):
            self._lose(found)
            return
        if not isinstance(found, ForeignEvent):
            self._counts.rejections.add(f"foreign: {found.reason}", key, payload, getattr(found, "detail", ""))
            return
        arrival = self._arrivals.arrive(found, key)
        with self._lock:
            self._counts.duplicates += arrival is None
            self._counts.received += arrival is not None
        if arrival is not None:
            self._deliver(arrival)


class ForeignArrivals:
    """State: the ids that were seen, and the numbers of the topics."""

    def __init__(self) -> None:
        self._ids: dict[str, None] = {}
        self._numbers: dict[bytes, tuple[bytes, int]] = {}
        """By the digest of a topic, those used last at the end: uid and number of its newest event."""
        self._forgotten = 0
        self._lock = threading.Lock()

    def arrive(self, found: ForeignEvent, key: str) -> Arrival | None:
        """Return the event with its origin; None if it is a copy."""
        with self._lock:
            if found.id and not self._is_new(found.id):
                return None
            return Arrival(found.event, found.origin or self._number(key))

    def _is_new(self, id: str) -> bool:
        if id in self._ids:
            return False
        if len(self._ids) >= MAX_IDS:
            del self._ids[next(iter(self._ids))]
        self._ids[id] = None
        return True

    def _number(self, key: str) -> Origin:
        topic = _digest(key.encode(errors="replace"))
        uid, number = self._numbers.pop(topic) if topic in self._numbers else self._new_topic(topic)
        number = (number + 1) % NUMBERS
        self._numbers[topic] = uid, number
        return Origin(uid, number)

    def _new_topic(self, topic: bytes) -> tuple[bytes, int]:
        """Return a uid for a topic; if it may have been counted before, another one, for its numbers begin again."""
        if len(self._numbers) >= MAX_TOPICS:
            del self._numbers[next(iter(self._numbers))]
            self._forgotten += 1
        return (_digest(b"%b %d" % (topic, self._forgotten)) if self._forgotten else topic), 0


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=8).digest()


def covering(patterns: Sequence[str]) -> tuple[str, ...]:
    """Return the patterns of MQTT that no other one covers: a broker sends a message once for each that matches.

    >>> covering(["home/+", "home/attic", "home/#", "+/attic"])
    ('home/#', '+/attic')
    """
    distinct = dict.fromkeys(patterns)
    return tuple(
        each for each in distinct if not any(each != other and MQTT.includes(other, each) for other in distinct)
    )


class ForeignOutgoing:
    """State: sends the events of one class to another system; they have no envelope."""

    def __init__(self, transport: Transport, source: ForeignSource, reliable: bool) -> None:
        self._transport, self._source = transport, source
        self._sending = Sending(reliable=reliable)
        self._senders: dict[str, Sender] = {}
        self._number = 0

    def send(self, event: Event) -> int:
        """Send an event; returns its number. EventError if the mapping cannot write it."""
        self._source.send(event, self._put)
        self._number = (self._number + 1) % NUMBERS
        return self._number

    def _put(self, message: Message) -> None:
        sender = self._senders.get(message.topic)
        if sender is None:
            sender = self._senders[message.topic] = self._transport.sender(message.topic, self._sending)
        sender.put(message.payload, b"")

    def prepare_all(self, events: Sequence[Event]) -> list[Batch]:
        """Test that all events can be written; EventError if one cannot."""
        for event in events:
            self._source.message(event)
        return []

    def send_all(self, events: Sequence[Event], batches: list[Batch]) -> list[int]:
        """Send events; returns their numbers."""
        return [self.send(event) for event in events]
