"""Events of systems that do not know Genus: topics with a mapping, and CloudEvents.

Their messages have no envelope. An event gets as its origin the topic it came from, with a number counted here, so that
it can cross gateways. CloudEvents have an id, by which copies are recognised.
"""

import hashlib
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from genus.errors import BusError, MappingError
from genus.model import Event
from genus.net._cloudevents import CloudEvent, CloudEventReader
from genus.net._envelope import NUMBERS, Origin
from genus.net._link.incoming import Counts
from genus.net._relay import Arrival
from genus.net._transport import EchoingTransport, Transport
from genus.records import ForeignTopics, Message, Rejected, read_mapping
from genus.targets.topics import Dialect

MOST_IDS = 10_000
"""How many ids of CloudEvents are remembered."""
MOST_TOPICS = 10_000
"""How many topics are counted at a time; of more, the one that was silent for longest is forgotten."""


class ForeignEvent(NamedTuple):
    """An event of another system; `id` is the same for all copies of it, empty if copies cannot be recognised."""

    event: Event
    id: str = ""
    origin: Origin | None = None


class ForeignSource(Protocol):
    """Reads the messages of another system, and may write them."""

    @property
    def patterns(self) -> Sequence[str]:
        """The patterns of its topics."""

    def read(self, key: str, payload: bytes) -> Iterable[ForeignEvent | Rejected]:
        """The events of a message; never raises."""

    def writes(self, cls: type[Event]) -> bool:
        """Whether events of a class are written to its topics."""

    def write(self, event: Event) -> Message | Rejected:
        """The message of an event."""


class MappedTopics:
    """Topics of another system, read and written by a mapping file."""

    def __init__(self, path: Path) -> None:
        try:
            self._topics = ForeignTopics(read_mapping(path))
        except MappingError as problem:
            raise BusError(f"map={path}: {problem}") from problem
        self.patterns = self._topics.filters

    def read(self, key: str, payload: bytes) -> Iterable[ForeignEvent | Rejected]:
        """The events of a message by the mapping."""
        return [each if isinstance(each, Rejected) else ForeignEvent(each) for each in self._topics.read(key, payload)]

    def writes(self, cls: type[Event]) -> bool:
        """Whether the mapping can be used in the other direction for a class."""
        return not self._topics.refusal(cls)

    def write(self, event: Event) -> Message | Rejected:
        """The message of an event by the mapping."""
        return self._topics.write(event)


class CloudTopics:
    """Topics whose messages are CloudEvents."""

    def __init__(self, patterns: Sequence[str], dialect: Dialect) -> None:
        for pattern in patterns:
            if not dialect.is_pattern(pattern):
                raise BusError(f"cloudevents={pattern} is no pattern of {dialect.name}")
        self.patterns = patterns
        self._reader = CloudEventReader()

    def read(self, key: str, payload: bytes) -> Iterable[ForeignEvent | Rejected]:
        """The event of a structured CloudEvent, or the events of a batch."""
        return [foreign_event(each) for each in read_json_events(self._reader, payload)]

    def writes(self, cls: type[Event]) -> bool:
        """It does not: the option `format` says how events are sent."""
        return False

    def write(self, event: Event) -> Message | Rejected:
        """Nothing is written."""
        return Rejected("cloudevents= reads only")


def read_json_events(reader: CloudEventReader, payload: bytes) -> list[CloudEvent | Rejected]:
    """The structured CloudEvent of a payload, or those of a batch."""
    is_batch = payload[:100].lstrip()[:1] == b"["
    return reader.read_batch(payload) if is_batch else [reader.read_structured(payload)]


def foreign_event(read: CloudEvent | Rejected) -> ForeignEvent | Rejected:
    """A CloudEvent as an event of another system."""
    if isinstance(read, Rejected):
        return read
    return ForeignEvent(read.event, f"{read.source} {read.id}", read.origin)


class ForeignMessages:
    """Reads the messages of other systems that a transport gives, and finds who writes them."""

    def __init__(
        self,
        sources: Sequence[ForeignSource],
        transport: Transport,
        realm: str,
        counts: Counts,
        deliver: Callable[[Arrival], None],
    ) -> None:
        self._sources, self._transport, self._realm = tuple(sources), transport, realm
        self._counts, self._deliver = counts, deliver
        self._arrivals = ForeignArrivals()

    def subscribe(self) -> None:
        """Receive messages of others; what this participant writes there it has delivered itself."""
        for pattern in [pattern for source in self._sources for pattern in source.patterns]:
            if isinstance(self._transport, EchoingTransport):
                self._transport.subscribe_others(pattern)
            else:
                self._transport.subscribe(pattern, kept=True)

    def writer_of(self, cls: type[Event]) -> ForeignSource | None:
        """The system that events of a class are written to, if there is one."""
        return next((each for each in self._sources if each.writes(cls)), None)

    def packet(self, key: str, payload: bytes) -> bool:
        """Read a message of another system; returns whether it is one."""
        source = self._source_of(key)
        for read in source.read(key, payload) if source is not None else ():
            self.take(key, read, payload)
        return source is not None

    def _source_of(self, key: str) -> ForeignSource | None:
        if not self._sources or key.startswith(f"{self._realm}/"):
            return None
        matches = self._transport.dialect.matches
        return next((each for each in self._sources if any(matches(pattern, key) for pattern in each.patterns)), None)

    def take(self, key: str, read: Any, payload: bytes) -> None:
        """Take what was read from a message without an envelope: an event, or the reason why there is none."""
        found = ForeignEvent(read) if isinstance(read, Event) else read
        if not isinstance(found, ForeignEvent):
            self._counts.rejections.add(f"foreign: {found.reason}", key, payload, getattr(found, "detail", ""))
            return
        arrival = self._arrivals.arrive(found, key)
        if arrival is None:
            self._counts.duplicates += 1
        else:
            self._counts.received += 1
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
        """The event with its origin; None if it is a copy."""
        with self._lock:
            if found.id and not self._is_new(found.id):
                return None
            return Arrival(found.event, found.origin or self._number(key))

    def _is_new(self, id: str) -> bool:
        if id in self._ids:
            return False
        if len(self._ids) >= MOST_IDS:
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
        """A uid for a topic; if it may have been counted before, another one, for its numbers begin again."""
        if len(self._numbers) >= MOST_TOPICS:
            del self._numbers[next(iter(self._numbers))]
            self._forgotten += 1
        return (_digest(b"%b %d" % (topic, self._forgotten)) if self._forgotten else topic), 0


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=8).digest()
