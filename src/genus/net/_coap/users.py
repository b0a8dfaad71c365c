"""Who uses a link of CoAP: publishers of channels, and gateways."""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from genus.bus._link import Publisher, TroubleHandler
from genus.model import Event
from genus.net._coap.observation import Observation
from genus.net._relay import Arrival, Want
from genus.targets.python import PythonFilter


class PublisherOwner(Protocol):
    """What a publisher needs of its link."""

    def send(self, event: Event) -> None:
        """Send an event."""

    def deliver_own(self, event: Event) -> None:
        """Give an event to the subscribers of this bus."""

    def withdraw(self, publisher: "CoapPublisher") -> None:
        """End an announcement."""


class RelayOwner(Protocol):
    """What a gateway's relay needs of its link."""

    def change_relay(self, relay: "CoapRelay", wants: tuple[Want, ...]) -> None:
        """A gateway wants something else."""

    def end_relay(self, relay: "CoapRelay") -> None:
        """A gateway is closed."""


class CoapPublisher(Publisher):
    """Handle for publishing one type over CoAP."""

    def __init__(self, link: PublisherOwner, cls: type, on_trouble: TroubleHandler | None) -> None:
        self.type, self.on_trouble = cls, on_trouble
        self._link = link

    def publish(self, event: Any) -> None:
        """Send an event, and give it to this bus's own subscribers."""
        self._link.send(event)
        self._link.deliver_own(event)

    def withdraw(self) -> None:
        """Publish no more."""
        self._link.withdraw(self)


class CoapRelay:
    """State: what a gateway wants over CoAP, on behalf of others."""

    def __init__(self, link: RelayOwner, receive: Callable[[Arrival], None]) -> None:
        self.wants: tuple[Want, ...] = ()
        self.observations: dict[tuple[Any, Want], Observation] = {}
        self._link, self._receive = link, receive
        self._filters: tuple[PythonFilter, ...] = ()

    def want(self, wants: Iterable[Want]) -> None:
        """Receive what these wants match; replaces those before."""
        asked = tuple(dict.fromkeys(wants))
        self._filters = tuple(PythonFilter(one) for one in dict.fromkeys(want.subscription for want in asked))
        self._link.change_relay(self, asked)

    def give(self, arrival: Arrival) -> None:
        """Give the gateway an event if it wants it."""
        if any(passes(test, arrival.event) for test in self._filters):
            self._receive(arrival)

    def close(self) -> None:
        """Want nothing more."""
        self._filters = ()
        self._link.end_relay(self)


def passes(test: PythonFilter, event: Event) -> bool:
    """Whether an event passes a test; one that cannot be tested does."""
    try:
        return bool(test(event))
    except Exception:  # a value of an undeclared type: the subscriber's own test decides
        return True
