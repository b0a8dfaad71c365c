"""Frames of a database as events, for those who subscribed to them."""

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from genus.bus.internal import Rejected
from genus.can._dbc import MessageLayout
from genus.can._foreign.databases import Databases
from genus.can._foreign.filters import Traffic, traffic_of
from genus.can._wire.frame import Frame
from genus.errors import Reasons
from genus.filters import Subscription
from genus.model import Event

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Decoder: TypeAlias = Callable[[bytes, datetime | None], Event | Rejected]
"""A function from the data and the time of a frame to its event."""

MAX_DECODERS = 65_536
"""Identifiers whose decoder is remembered."""

NOT_WANTED = "message that nobody subscribed to"
"""Why a frame of a database is dropped: the filters accept more than is wanted, or were just changed."""


class ForeignInterest:
    """State: a subscription to types of databases; made by `ForeignReceiver.add`."""

    def __init__(self, subscription: Subscription) -> None:
        self.subscription = subscription


class ForeignReceiver:
    """State: the subscriptions to types of databases, and counters of the frames.

    `call` queues the call of a function; `on_event` is called so with every event that somebody subscribed to.
    """

    def __init__(
        self, databases: Databases, call: Callable[..., None], on_event: Callable[[Event], object] | None
    ) -> None:
        self.databases = databases
        self.received: Counter[str] = Counter()
        """Events by type."""
        self.dropped = Reasons()
        """Frames by the reason why they are no events."""
        self.parts = 0
        """Frames that are parts of messages which are longer than a frame."""
        self.on_received: Callable[[Event], object] | None = None
        """Is called too with every event, at once."""
        self._call, self._on_event = call, on_event
        self._interests: dict[ForeignInterest, None] = {}
        self._wanted: set[str] = set()
        self._decoders: dict[int, Decoder] = {}
        """The decoder of each identifier that is a message which somebody wants; those of 11 bits are inverted."""

    def add(self, subscription: Subscription) -> ForeignInterest:
        """Receive what a subscription matches; BusError or DbcError if its classes cannot be used."""
        self.databases.use_classes(subscription)
        interest = ForeignInterest(subscription)
        self._interests[interest] = None
        self._find_wanted()
        return interest

    def remove(self, interest: ForeignInterest) -> None:
        """Receive nothing more for a subscription."""
        self._interests.pop(interest, None)
        self._find_wanted()

    def _find_wanted(self) -> None:
        self._decoders.clear()
        asked = [interest.subscription for interest in self._interests]
        self._wanted = {each.type_name for one in asked for each in self.databases.accepted_by(one)}

    def wanted_messages(self) -> Iterator[MessageLayout]:
        """Return the messages that somebody subscribed to."""
        return (message for message in self.databases.messages if message.type_name in self._wanted)

    @property
    def unwanted(self) -> list[Traffic]:
        """The traffic of messages that nobody subscribed to."""
        return traffic_of(each for each in self.databases.messages if each.type_name not in self._wanted)

    def knows(self, frame: Frame) -> bool:
        """Return whether a frame belongs to a message of a database."""
        return self.databases.knows(frame)

    def receive(self, frame: Frame, now: int) -> None:
        """Make an event of a frame that ended at a time, in nanoseconds since 1970, or count why there is none."""
        decode = self._decoders.get(frame.id if frame.extended else ~frame.id)
        if decode is None:
            if self.databases.is_part(frame):
                self.parts += 1
                whole = self.databases.receive_part(frame, now // 1000)
                if whole is None:
                    return
                frame = whole
            decode = self._find_decoder(frame)
            if decode is None:
                return
        event = decode(frame.data, _EPOCH + timedelta(microseconds=now // 1000))
        if isinstance(event, Rejected):
            self.dropped[event.reason] += 1
            return
        self.received[event.__class__.__name__] += 1
        if self.on_received is not None:
            self.on_received(event)
        if self._on_event is not None:
            self._call(self._on_event, event)

    def _find_decoder(self, frame: Frame) -> Decoder | None:
        """Return the decoder of a frame; None, and counted, if it is of no message or of one that nobody wants."""
        message = self.databases.message_of(frame)
        if message is None:
            rejected = self.databases.decode(frame, _EPOCH)
            assert isinstance(rejected, Rejected), "a frame of no message is no event"
            self.dropped[rejected.reason] += 1
            return None
        if message.type_name not in self._wanted:
            self.dropped[NOT_WANTED] += 1
            return None
        if len(self._decoders) >= MAX_DECODERS:
            self._decoders.clear()  # a J1939 message has many identifiers
        found = self.databases.decoder_of(frame)
        assert found is not None, "a message has a decoder"
        self._decoders[frame.id if frame.extended else ~frame.id] = found
        return found

    def loop_back(self, event: Any) -> None:
        """Deliver an event that this program published, when its frame was sent."""
        if self._on_event is not None:
            self._call(self._on_event, event)
