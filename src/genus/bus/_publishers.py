"""The publishers of channels: of the link if that keeps qualities of service, and else of the bus itself."""

from typing import TYPE_CHECKING, Any, Protocol

from genus.bus._collection import Collection
from genus.bus._last_values import LastValuePublisher, LastValues, RoutePublisher, check_keep
from genus.bus._link import Link, ProblemHandler, Publisher, SlotTimes
from genus.bus._qos import BestEffort, Keep, QoS
from genus.errors import BusError
from genus.model import Event, name_of
from genus.model.internal import retyped_attributes

if TYPE_CHECKING:
    from genus.bus._class_route import ClassRoute
    from genus.targets.dispatch import Prepare


class StampingPublisher(Publisher):
    """Publishes events with the source and time of publishing, where they have none."""

    def __init__(self, publisher: Publisher, stamp: "Prepare") -> None:
        self._publisher, self._stamp = publisher, stamp

    def publish(self, event: Any) -> None:
        """Publish an event of the type."""
        self._publisher.publish(self._stamp(event))

    def withdraw(self) -> None:
        """Publish no more."""
        self._publisher.withdraw()

    @property
    def slot(self) -> SlotTimes | None:
        """The slots of its calendar; None if it has none."""
        return self._publisher.slot


class CollectionPublisher(Publisher):
    """Publishes without deadlines, as a collection does."""

    def __init__(self, collection: Collection[Any]) -> None:
        self._collection = collection

    def publish(self, event: Any) -> None:
        """Publish an event of the type."""
        self._collection.publish(event)


class AnnouncingBus(Protocol):
    """What announcing a channel needs of its bus."""

    def collection(self, type: type) -> Collection[Any]:
        """Return the collection of a type."""

    def _route(self, cls: type) -> "ClassRoute":
        """Return how events of a class reach their listeners."""

    def _prepare(self, event: Event) -> Event:
        """Stamp and check an event."""


class Announcer:
    """Makes the publishers of channels: of the link if that keeps qualities of service, and else of the bus itself."""

    def __init__(
        self,
        bus: AnnouncingBus,
        link: Link | None,
        last_values: LastValues,
        stamp: "Prepare | None",
        stamped: list[str],
    ) -> None:
        self._bus, self._link, self._last_values = bus, link, last_values
        self._stamp, self._stamped = stamp, stamped

    def announce(
        self, cls: type, qos: QoS, on_problem: ProblemHandler | None, carries: tuple[str, ...], keep: Keep | None
    ) -> Publisher:
        """Prepare to publish a type; BusError if the medium cannot keep what is asked."""
        if keep is not None:
            check_keep(cls, keep)
        if isinstance(qos, BestEffort) and qos.period is not None:
            self._check_repeats(cls, qos)
        if self._link is not None:
            known = {*carries, *retyped_attributes(cls)}
            carried = (*carries, *(name for name in self._stamped if name not in known))
            publisher = self._link.announce(cls, qos, on_problem, carried, keep)
            if publisher is not None:
                return self._of_link(publisher, cls, keep)
        if not isinstance(qos, BestEffort):
            raise BusError(
                f"{qos} needs a medium that keeps deadlines, as can: and sim: do; this one takes BestEffort() only"
            )
        if keep is None:
            return CollectionPublisher(self._bus.collection(cls))
        if self._link is not None:
            raise BusError(f"{name_of(cls)} cannot be announced with keep=True: this medium keeps no last values")
        here = RoutePublisher(lambda: self._bus._route(cls).deliver)
        return LastValuePublisher(self._last_values.keep(cls, keep), self._bus._prepare, here)

    def _check_repeats(self, cls: type, qos: BestEffort) -> None:
        if self._link is None or not self._link.repeats(cls):
            raise BusError(
                f"{name_of(cls)} cannot be announced with a period of {qos.period}: only messages of a database on a "
                "CAN bus are sent again by themselves; publish it from bus.every(...)"
            )

    def _of_link(self, publisher: Publisher, cls: type, keep: Keep | None) -> Publisher:
        """Return the publisher of a link, which stamps its events and keeps last values as the bus does."""
        if keep is None:
            return publisher if self._stamp is None else StampingPublisher(publisher, self._stamp)
        try:
            values = self._last_values.keep(cls, keep)
        except BusError:
            publisher.withdraw()
            raise
        return LastValuePublisher(values, self._stamp, publisher)
