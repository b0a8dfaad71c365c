"""Batches: many events that are published by one call."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from genus.model import Event

if TYPE_CHECKING:
    from genus.targets.dispatch import Deliver

T = TypeVar("T")


class BatchOwner(Protocol):
    """What publishing a batch needs of its bus."""

    def prepare(self, event: Event) -> Event:
        """Stamp and check an event as it is before it is sent."""

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
    delivers: list[Deliver] = []
    prepared: list[Event] = []
    by_class: dict[type, Deliver] = {}
    for number, event in enumerate(events):
        cls = event.__class__
        try:
            if cls not in by_class:
                by_class[cls] = deliver_of(event)
            delivers.append(by_class[cls])
            prepared.append(bus.prepare(event))
        except Exception as problem:
            problem.add_note(f"publish_all refused event {number}, {event!r}; none was published")
            raise
    bus.send_all(prepared)
    _deliver_all(delivers, prepared)
    return len(prepared)


def _deliver_all(delivers: "list[Deliver]", events: list[Event]) -> None:
    first: Exception | None = None
    for number, (deliver, event) in enumerate(zip(delivers, events, strict=True)):
        try:
            deliver(event)
        except Exception as problem:
            if first is None:
                problem.add_note(f"publish_all failed at event {number}, {event!r}; all {len(events)} were sent")
                first = problem
    if first is not None:
        raise first
