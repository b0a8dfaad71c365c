"""What happens to an event before it is delivered, and the publishers of channels."""

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from genus.bus._collection import Collection
from genus.bus._link import Publisher
from genus.model import Event

if TYPE_CHECKING:
    from genus.targets.dispatch import Deliver, Prepare


def stamp_with(source: str | None, now: Callable[[], datetime] | None) -> "Prepare | None":
    """A function that returns an event with the source and the time of publishing, where it has none."""
    if source is None and now is None:
        return None

    def stamp(event: Event) -> Event:
        missing: dict[str, Any] = {}
        if source is not None and event.source is None:
            missing["source"] = source
        if now is not None and event.time is None:
            missing["time"] = now()
        return replace(event, **missing) if missing else event

    return stamp


def in_turn(stamp: "Prepare | None", *steps: "Deliver | None") -> "Prepare | None":
    """All that happens to an event before it is delivered; None if nothing does."""
    needed = [step for step in steps if step is not None]
    if stamp is None and not needed:
        return None

    def prepare(event: Event) -> Event:
        if stamp is not None:
            event = stamp(event)
        for step in needed:
            step(event)
        return event

    return prepare


class StampingPublisher:
    """Publishes events with the source and time of publishing, where they have none."""

    def __init__(self, publisher: Publisher, stamp: "Prepare") -> None:
        self._publisher, self._stamp = publisher, stamp
        self.withdraw = publisher.withdraw

    def publish(self, event: Any) -> None:
        """Publish an event of the type."""
        self._publisher.publish(self._stamp(event))


class CollectionPublisher:
    """Publishes without deadlines, as a collection does."""

    def __init__(self, collection: Collection[Any]) -> None:
        self._collection = collection

    def publish(self, event: Any) -> None:
        """Publish an event of the type."""
        self._collection.publish(event)

    def withdraw(self) -> None:
        """Nothing was opened."""
