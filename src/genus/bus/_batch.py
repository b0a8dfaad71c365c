"""Batches: many events that are published by one call."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from genus.model import Event

if TYPE_CHECKING:
    from genus.targets.dispatch import Deliver

T = TypeVar("T")


class BatchOwner(Protocol):
    """What publishing a batch needs of its bus."""

    @property
    def preparing(self) -> "Callable[[Any], Event] | None":
        """The function that stamps and checks events before they are sent; None if nothing is done."""

    def send_all(self, events: Sequence[Event]) -> None:
        """Send events to other processes."""


def publish_each(publish: Callable[[T], object], events: Iterable[T]) -> int:
    """Publish events one after the other; an error says where it stopped. Returns their number."""
    number = -1
    for number, event in enumerate(events):
        try:
            publish(event)
        except Exception as problem:
            problem.add_note(f"publish_all stopped at event {number}, {event!r}; those before it were published")
            raise
    return number + 1


def publish_at_once(bus: BatchOwner, deliver_of: "Callable[[Any], Deliver]", events: Iterable[Any]) -> int:
    """Check all events, send all to other processes, and then deliver all here; returns their number.

    Nothing is published if one cannot be. If a queue here is full, the error is raised when all are delivered.
    """
    prepare = bus.preparing
    prepared: list[Event] = []
    delivers: dict[type, Deliver] = {}
    for number, event in enumerate(events):
        try:
            if event.__class__ not in delivers:
                delivers[event.__class__] = deliver_of(event)
            prepared.append(event if prepare is None else prepare(event))
        except Exception as problem:
            problem.add_note(f"publish_all refused event {number}, {event!r}; none was published")
            raise
    bus.send_all(prepared)
    _deliver_all(delivers, prepared)
    return len(prepared)


def _deliver_all(delivers: "dict[type, Deliver]", events: list[Event]) -> None:
    first: Exception | None = None
    for number, event in enumerate(events):
        try:
            delivers[event.__class__](event)
        except Exception as problem:
            if first is None:
                problem.add_note(f"publish_all failed at event {number}, {event!r}; all {len(events)} were sent")
                first = problem
    if first is not None:
        raise first
