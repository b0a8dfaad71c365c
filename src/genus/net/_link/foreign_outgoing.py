"""Events that are written to topics of another system."""

from collections.abc import Sequence

from genus.errors import EventError
from genus.model import Event
from genus.net._envelope import NUMBERS
from genus.net._link.foreign import ForeignSource
from genus.net._link.outgoing import Batch
from genus.net._transport import Sender, Sending, Transport
from genus.records import Message


class ForeignOutgoing:
    """State: sends the events of one class to topics of another system; they have no envelope."""

    def __init__(self, transport: Transport, source: ForeignSource, reliable: bool) -> None:
        self._transport, self._source = transport, source
        self._sending = Sending(reliable=reliable)
        self._senders: dict[str, Sender] = {}
        self._number = 0

    def send(self, event: Event) -> int:
        """Send an event; returns its number. EventError if the mapping cannot write it."""
        message = self._write(event)
        sender = self._senders.get(message.topic)
        if sender is None:
            sender = self._senders[message.topic] = self._transport.sender(message.topic, self._sending)
        sender.put(message.payload, b"")
        self._number = (self._number + 1) % NUMBERS
        return self._number

    def prepare_all(self, events: Sequence[Event]) -> list[Batch]:
        """Test that all events can be written; EventError if one cannot."""
        for event in events:
            self._write(event)
        return []

    def send_all(self, events: Sequence[Event], batches: list[Batch]) -> list[int]:
        """Send events; returns their numbers."""
        return [self.send(event) for event in events]

    def _write(self, event: Event) -> Message:
        message = self._source.write(event)
        if not isinstance(message, Message):
            raise EventError(f"{event!r} cannot be written: {message}")
        return message
