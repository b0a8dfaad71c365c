"""Last values: the newest event of each key, for those who subscribe later; and the publishers of channels.

A channel with `keep=True` puts each event into `LastValues` and then publishes it. A new subscriber is made known to
the router first, and then gets the kept events. So an event reaches it in at least one of the two ways, and `CatchUp`
sees to the rest: while a subscriber catches up, events that are published wait behind the kept ones, and one that comes
both ways is dropped the second time. For that each publication has an object of its own: an event is copied when it is
put.

This needs no lock around publishing, but that events of one key are published one after the other; if several threads
publish the same key at once, which one is the newest is not defined.

A channel publishes by the link if that keeps qualities of service, and else by the bus itself.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from genus.bus._link import BestEffort, Keep, Link, ProblemHandler, Publisher, QoS, SlotTimes
from genus.bus._listener import Listener
from genus.errors import BusError, EventError, QueueFull
from genus.model import Event, attributes, name_of
from genus.model.internal import retyped_attributes
from genus.model.types import OpaqueType

if TYPE_CHECKING:
    from genus.bus._class_route import ClassRoute
    from genus.bus._queue import EventQueue
    from genus.filters import Subscription
    from genus.targets.dispatch import Deliver, Prepare

MAX_BACKLOG = 1000
"""Publishers wait for a subscriber that catches up if so many events wait for it."""


class KeptEvent(NamedTuple):
    """A kept event, and whether it may be on its way to subscribers at this moment."""

    event: Event
    is_on_its_way: bool = True


class LastValues:
    """State: the kept events of a bus, by class and key."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        """Held while a class becomes one that is kept, and while a listener becomes known to the router."""
        self.on_forgotten: list[Callable[[Event], None]] = []
        """Are called with each event that is kept no more."""
        self._classes: dict[type, ClassValues] = {}

    def keep(self, cls: type, keep: Keep) -> "ClassValues":
        """Keep the newest events of a class from now on; BusError if it is kept by other attributes."""
        with self.lock:
            known = self._classes.get(cls)
            if known is None:
                known = self._classes[cls] = ClassValues(cls, keep, self.on_forgotten)
        if known.keep != keep:
            raise BusError(
                f"{name_of(cls)} is kept by {', '.join(known.keep.by)} on this bus already, not by {', '.join(keep.by)}"
            )
        return known

    def kept_by(self, cls: type) -> Keep | None:
        """Return what is kept of a class; None if nothing is."""
        known = self._classes.get(cls)
        return None if known is None else known.keep

    def accepted_by(self, subscription: "Subscription") -> "list[ClassValues]":
        """Return the kept classes whose events a subscription can match."""
        if not self._classes:
            return []
        with self.lock:
            return [values for cls, values in self._classes.items() if subscription.accepts(cls)]

    def matching(self, listener: Listener[Any]) -> list[KeptEvent]:
        """The kept events that a listener matches, those of a class in the order in which they were published."""
        found = []
        for values in self.accepted_by(listener.subscription):
            matches = listener.matcher(values.cls)
            found += [kept for kept in values.kept() if matches is None or _is_match(matches, kept.event)]
        return found

    def merge(self, own: list[KeptEvent], others: Iterable[Event]) -> list[KeptEvent]:
        """Own kept events and those of others that a link knows, one for each key.

        The link knows those of others that are newer than the own ones, but not yet what is on its way.
        """
        on_their_way = {self._key_of(kept.event) for kept in own if kept.is_on_its_way}
        newer = [event for event in others if self._key_of(event) not in on_their_way]
        keys = {self._key_of(event) for event in newer} - {None}
        return [kept for kept in own if self._key_of(kept.event) not in keys] + [KeptEvent(event) for event in newer]

    def _key_of(self, event: Event) -> object:
        """Return the type and key of an event; None if it is not kept by this bus."""
        values = self._classes.get(type(event))
        return None if values is None else (type(event), values.key(event))


def _is_match(matches: Callable[[Event], bool], event: Event) -> bool:
    """Return whether an event matches; not if a value does not have its declared type, which its publisher was told."""
    try:
        return matches(event)
    except Exception:
        return False


class ClassValues:
    """State: the newest event of each key of one class."""

    def __init__(self, cls: type, keep: Keep, on_forgotten: list[Callable[[Event], None]]) -> None:
        check_keep(cls, keep)
        self._on_forgotten = on_forgotten
        self.cls, self.keep = cls, keep
        self.key: Callable[[Event], object] = attrgetter(*keep.by)
        self._newest: dict[object, Event] = {}
        self._on_their_way: dict[int, Event] = {}
        """Events that are being published, by identity."""
        self._lock = threading.Lock()

    def kept(self) -> list[KeptEvent]:
        """Return the kept events, in the order in which they were put."""
        with self._lock:
            return [KeptEvent(event, id(event) in self._on_their_way) for event in self._newest.values()]

    def put(self, event: Event) -> Event | None:
        """Keep an event that is published now instead of the one with the same key, which is returned."""
        key = self.key(event)
        try:
            with self._lock:
                before = self._newest.pop(key, None)
                self._newest[key] = self._on_their_way[id(event)] = event
        except TypeError:
            by = ", ".join(self.keep.by)
            raise EventError(f"{event!r} cannot be kept: {by} is {key!r}, which is not a key") from None
        return before

    def arrived(self, event: Event) -> None:
        """An event that was put is on its way no more."""
        del self._on_their_way[id(event)]

    def put_back(self, event: Event, before: Event | None) -> None:
        """Keep what was kept before an event that could not be published."""
        key = self.key(event)
        with self._lock:
            if self._newest.get(key) is event:
                del self._newest[key]
                if before is not None:
                    self._newest[key] = before

    def remove(self, wanted: Mapping[str, object]) -> list[Event]:
        """Keep no more the events that have these values; returns them."""
        if unknown := [name for name in wanted if name not in self.keep.by]:
            raise BusError(
                f"{name_of(self.cls)} is kept by {', '.join(self.keep.by)}; it cannot forget by {', '.join(unknown)}"
            )
        with self._lock:
            removed = {
                key: event
                for key, event in self._newest.items()
                if all(getattr(event, name) == value for name, value in wanted.items())
            }
            for key in removed:
                del self._newest[key]
        for event in removed.values():
            for tell in list(self._on_forgotten):
                tell(event)
        return list(removed.values())


def check_keep(cls: type, keep: Keep) -> None:
    """Raise BusError if the attributes of a `Keep` cannot make a key of events of a class."""
    known = {attribute.name: attribute for attribute in attributes(cls)}
    if not keep.by or len(set(keep.by)) < len(keep.by):
        raise BusError(f"keep_by={keep.by!r} must name one attribute or several, each once")
    for name in keep.by:
        if name not in known:
            raise BusError(f"keep_by={name!r} is no attribute of {name_of(cls)}; it has {', '.join(known)}")
        if isinstance(known[name].type, OpaqueType):
            raise BusError(f"keep_by={name!r} cannot be a key: {name_of(cls)}.{name} is opaque")


class LastValuePublisher(Publisher):
    """Publishes events of a channel, and keeps the newest of each key."""

    def __init__(self, values: ClassValues, prepare: "Prepare | None", publisher: Publisher) -> None:
        self._values, self._prepare, self._publisher = values, prepare, publisher

    def publish(self, event: Any) -> None:
        """Publish an event of the type; one that could not be published is not kept."""
        own: Event = event.__copy__()
        if self._prepare is not None:
            own = self._prepare(own)
        before = self._values.put(own)
        try:
            self._publisher.publish(own)
        except QueueFull:  # of one subscriber: the others have the event
            raise
        except BaseException:
            self._values.put_back(own, before)
            raise
        finally:
            self._values.arrived(own)

    def withdraw(self) -> None:
        """Publish no more; the last values stay."""
        self._publisher.withdraw()

    def forget_where(self, key: Mapping[str, object]) -> int:
        """Keep the events with these values no more; returns how many of this bus there were.

        With the values of a whole key, the network forgets it also if its event was published by another process.
        """
        removed = self._values.remove(key)
        by = self._values.keep.by
        if all(name in key for name in by):
            self._publisher.forget_key([key[name] for name in by])
        else:
            for event in removed:
                self._publisher.forget(event)
        return len(removed)


class RoutePublisher(Publisher):
    """Publishes prepared events of a class within the process."""

    def __init__(self, deliver: "Callable[[], Deliver]") -> None:
        self._deliver = deliver

    def publish(self, event: Any) -> None:
        self._deliver()(event)


class CatchUp:
    """State: a listener that gets kept events first, and then, from other threads too, what is published meanwhile."""

    def __init__(self, listener: Listener[Any], queue: "EventQueue[Any] | None") -> None:
        self._listener = listener
        self._deliver = listener.deliver
        self._queue = queue
        self._changed = threading.Condition()
        self._backlog: deque[tuple[Event, bool]] | None = deque()
        """Events that wait, each with whether it was published just now; None once the listener has caught up."""
        self._again: dict[int, Event] = {}
        """Kept events, by identity, that may still come by the way of those that are published."""
        self._thread = threading.get_ident()
        listener.deliver = self

    def __call__(self, event: Event) -> None:
        """Deliver an event that is published now."""
        if self._backlog is not None and self._waits(event):
            return
        if self._again and self._is_known(event):
            return
        self._deliver(event)

    def _waits(self, event: Event) -> bool:
        with self._changed:
            is_own = threading.get_ident() == self._thread  # a handler of kept events that publishes
            if self._backlog is not None and len(self._backlog) >= MAX_BACKLOG and not is_own:
                self._changed.wait_for(lambda: self._backlog is None)
            if self._backlog is None:
                return False
            self._backlog.append((event, True))
            return True

    def _is_known(self, event: Event) -> bool:
        if self._again.get(id(event)) is not event:
            return False
        del self._again[id(event)]
        self._listener.suppressed += 1
        return True

    def run(self, find: Callable[[], list[KeptEvent]]) -> None:
        """Deliver the kept events and then what waits; errors of the handler are reported as always."""
        try:
            self._find(find)
            while (waiting := self._next()) is not None:
                self._hand_over(*waiting)
        finally:
            self._open()

    def _find(self, find: Callable[[], list[KeptEvent]]) -> None:
        if self._queue is not None:
            self._queue.is_unlimited = True
        with self._changed:
            assert self._backlog is not None
            published = {id(event) for event, _ in self._backlog}
            kept = [(event, again) for event, again in find() if id(event) not in published]
            self._again = {id(event): event for event, again in kept if again}
            self._backlog.extend((event, False) for event, _ in kept)

    def _next(self) -> tuple[Event, bool] | None:
        with self._changed:
            if self._backlog and not self._listener.is_cancelled:
                return self._backlog.popleft()
            self._open()
        return None

    def _hand_over(self, event: Event, is_published: bool) -> None:
        if is_published and self._is_known(event):
            return
        if not is_published:
            self._listener.counted += 1
        try:
            self._deliver(event)
        except Exception as problem:
            self._listener.failed(event, problem)

    def _open(self) -> None:
        """Let events pass; code that is generated from now on need not come here, unless some may come again."""
        with self._changed:
            self._backlog = None
            if not self._again:
                self._listener.deliver = self._deliver
            if self._queue is not None:
                self._queue.is_unlimited = False
            self._changed.notify_all()


class StampingPublisher(Publisher):
    """Publishes events with the source and time of publishing, where they have none."""

    def __init__(self, publisher: Publisher, stamp: "Prepare") -> None:
        self._publisher, self._stamp = publisher, stamp

    def publish(self, event: Any) -> None:
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

    def __init__(self, collection: "Publishing") -> None:
        self._collection = collection

    def publish(self, event: Any) -> None:
        self._collection.publish(event)


class Publishing(Protocol):
    """A collection, as its publisher needs it."""

    def publish(self, event: Any) -> None:
        """Publish an event of the type."""


class AnnouncingBus(Protocol):
    """What announcing a channel needs of its bus."""

    def collection(self, type: type) -> "Publishing":
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
