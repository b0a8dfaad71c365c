"""`Bus`: collections, channels and dispatch within a process, and an optional link to others.

Class = channel, type = subscription: each event class has one channel with generated code, each subscription is in
the channels of the classes it accepts. Subscribing and cancelling throw away the code of those channels; it is made
anew by the next event.
"""

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, overload, runtime_checkable

import msgspec

from genus.bus._channel import EventChannel, TroubleHandler
from genus.bus._collection import CAPACITY, Collection, Flavour
from genus.bus._listener import AsyncListener, Counters, Handler, Inbox, Listener, Rota
from genus.bus._qos import NonReal, QoS
from genus.bus._queue import WhenFull
from genus.errors import BusError
from genus.filters import AllOf, Subscription
from genus.model import Event, check, name_of

if TYPE_CHECKING:
    import logging

    from genus.targets.dispatch import ClassDispatcher, Deliver

T = TypeVar("T")

ErrorHandler: TypeAlias = Callable[[Listener[Any], Event, Exception], None]


class Link(Protocol):
    """A way to other processes: takes what is published here, gives what was published there."""

    def open(self, deliver: Callable[[Event], None]) -> None:
        """Start giving events from others to `deliver`."""

    def send(self, event: Event) -> None:
        """Give an event published here to the others."""

    def close(self) -> None:
        """Stop, and let go of what was opened."""

    def counters(self) -> Mapping[str, int]:
        """What the link sent, received, dropped and could not read."""


class Outlet(Protocol):
    """Leave to publish one type with a quality of service."""

    def publish(self, event: Any) -> None:
        """Publish an event of the type."""

    def withdraw(self) -> None:
        """Publish no more."""


@runtime_checkable
class QualityLink(Link, Protocol):
    """A link whose medium knows deadlines, and filters what it hears."""

    def announce(self, cls: type, qos: QoS, on_trouble: TroubleHandler | None, carries: tuple[str, ...] = ()) -> Outlet:
        """Get leave to publish a type with a quality of service; refused with the reason if it cannot be kept."""

    def listen(self, subscription: Subscription, on_trouble: TroubleHandler | None) -> Callable[[], None]:
        """Hear what a subscription wants; the function returned ends that."""


class Traffic(msgspec.Struct, frozen=True):
    """What went over a bus: events per channel, deliveries per subscription, and what the link counted."""

    channels: Mapping[str, int]
    subscriptions: Mapping[str, Counters]
    link: Mapping[str, int]


class Bus:
    """Where a program's collections meet; made by `open_bus`, closed by leaving its `with` block."""

    def __init__(
        self, link: Link | None = None, *, on_error: ErrorHandler | None = None, check_events: bool = False
    ) -> None:
        self.lock = threading.RLock()
        self._link = link
        self._on_error = on_error
        self._before = _in_turn([*([check] if check_events else []), *([link.send] if link else [])])
        self._collections: dict[object, Collection[Any]] = {}
        self._listeners: dict[Listener[Any], None] = {}
        self._rotas: dict[tuple[type, ...], Rota] = {}
        self._hearing: dict[Listener[Any], Callable[[], None]] = {}
        self._channels: dict[type, ClassDispatcher] = {}
        self._published: dict[str, int] = {}
        self._closed = False
        if link is not None:
            link.open(self.receive)

    def __enter__(self) -> "Bus":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> "Bus":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.drain()
        self.close()

    @property
    def link(self) -> Link | None:
        """The way to other processes, if there is one."""
        return self._link

    @overload
    def collection(self, type: type[T], flavour: Flavour = ..., *, remember: int = ...) -> Collection[T]: ...

    @overload
    def collection(self, type: AllOf[T], flavour: Flavour = ..., *, remember: int = ...) -> Collection[T]: ...

    def collection(
        self, type: type[T] | AllOf[T], flavour: Flavour = "bag", *, remember: int = 10_000
    ) -> Collection[T]:
        """The collection of a type; asking twice gives the same one. A set remembers so many events."""
        if flavour not in ("bag", "set", "queue"):
            raise BusError(f"flavour {flavour!r} is none of bag, set, queue")
        types = Subscription(type).types
        with self.lock:
            self._check_open()
            key = (types, flavour, remember if flavour == "set" else None)
            if key not in self._collections:
                self._collections[key] = Collection(self, types, flavour, remember)
            return self._collections[key]

    def channel(self, type: type[T], qos: QoS = NonReal()) -> EventChannel[T]:  # noqa: B008 - it is frozen
        """The channel of an event type with a quality of service; a medium that cannot keep it refuses to announce."""
        return EventChannel(self, type, qos)

    def publish(self, event: Event) -> None:
        """Publish an event of any type; a collection's own `publish` is faster."""
        self.collection(Event).publish(event)

    def subscribe(
        self,
        subscription: Subscription | str,
        handler: Handler[Any],
        *,
        capacity: int = CAPACITY,
        full: WhenFull = "drop_oldest",
    ) -> Listener[Any]:
        """Call a handler with what a subscription, or its text, matches.

        A collection's own `subscribe` tells type checkers what the handler gets; this one is for subscriptions that
        come from elsewhere.
        """
        asked = Subscription.parse(subscription) if isinstance(subscription, str) else subscription
        return self.collection(AllOf[Any](asked.types)).listen(asked, handler, capacity, full)

    def inbox(
        self, subscription: Subscription | str, *, capacity: int = CAPACITY, full: WhenFull = "drop_oldest"
    ) -> Inbox[Any]:
        """Keep what a subscription, or its text, matches until it is taken."""
        asked = Subscription.parse(subscription) if isinstance(subscription, str) else subscription
        return self.collection(AllOf[Any](asked.types)).keep(asked, capacity, full)

    def traffic(self) -> Traffic:
        """Counters per channel and per subscription."""
        with self.lock:
            channels = dict(self._published)
            for cls, channel in self._channels.items():
                channels[name_of(cls)] = channels.get(name_of(cls), 0) + channel.published
            subscriptions: dict[str, Counters] = {}
            for listener in [one for collection in self._collections.values() for one in collection.listeners]:
                text = str(listener.subscription)
                subscriptions[text] = _sum(subscriptions.get(text), listener.counters)
            return Traffic(channels, subscriptions, dict(self._link.counters()) if self._link else {})

    async def drain(self) -> None:
        """Wait until async handlers have handled what was published before."""
        import asyncio

        while not all(one.is_idle for one in self._async_listeners()):
            await asyncio.sleep(0.001)

    def close(self) -> None:
        """Cancel all subscriptions and close the link; closing twice does no harm."""
        with self.lock:
            if self._closed:
                return
            self._closed = True
        if self._link is not None:
            self._link.close()
        for collection in self._collections.values():
            collection.cancel()
        with self.lock:
            self._retire(list(self._channels))

    # -- for collections, listeners and links ------------------------------------------------------------------------

    def dispatch(self, cls: type) -> "ClassDispatcher":
        """The code that delivers a class, made if need be."""
        from genus.targets.dispatch import ClassDispatcher  # with the first event: `import genus` stays quick

        with self.lock:
            self._check_open()
            if cls not in self._channels:
                entries = [one for one in self._listeners if one.subscription.accepts(cls)]
                self._channels[cls] = ClassDispatcher(cls, entries, self._before)
            return self._channels[cls]

    def receive(self, event: Event) -> None:
        """Deliver an event that came over the link; errors are reported, not raised."""
        if self._closed:
            return
        try:
            self.dispatch(type(event)).deliver(event)
        except Exception:
            log().exception("an event from the link was not delivered: %r", event)

    def admit(self, listener: Listener[Any]) -> None:
        """Deliver to a listener from now on."""
        with self.lock:
            self._check_open()
            self._listeners[listener] = None
            self._renew(listener)
        self._hearing[listener] = self.hear(listener.subscription)

    def outlet(
        self, cls: type, qos: QoS, on_trouble: TroubleHandler | None = None, carries: tuple[str, ...] = ()
    ) -> Outlet:
        """Leave to publish a type with a quality of service, if the medium can keep it."""
        if isinstance(self._link, QualityLink):
            return self._link.announce(cls, qos, on_trouble, carries)
        if not isinstance(qos, NonReal):
            raise BusError(f"{qos} needs a medium that knows deadlines, as can: does; this one takes NonReal() only")
        return _Plain(self.collection(cls))

    def hear(self, subscription: Subscription, on_trouble: TroubleHandler | None = None) -> Callable[[], None]:
        """Ask the link for what a subscription wants; the function returned ends that."""
        return self._link.listen(subscription, on_trouble) if isinstance(self._link, QualityLink) else _nothing

    def forget(self, listener: Listener[Any]) -> None:
        """Deliver to a listener no more."""
        self._hearing.pop(listener, _nothing)()
        with self.lock:
            if listener in self._listeners:
                self._renew(listener)
                del self._listeners[listener]

    def rota(self, types: tuple[type, ...]) -> Rota:
        """Those who take turns at the events of a type."""
        with self.lock:
            self._check_open()
            if types not in self._rotas:
                self._rotas[types] = Rota(self, Subscription(AllOf(types)))
                self.admit(self._rotas[types])
            return self._rotas[types]

    def delivered_since(self, listener: Listener[Any]) -> int:
        """What the channels' present code delivered to a listener."""
        with self.lock:
            return sum(_delivered(channel, listener) for channel in self._channels.values())

    def report(self, listener: Listener[Any], event: Event, problem: Exception) -> None:
        """Say that a handler raised: to `on_error`, or to the log, also if `on_error` raises itself."""
        try:
            if self._on_error is not None:
                self._on_error(listener, event, problem)
        except Exception:
            log().exception("on_error failed")
        if self._on_error is None:
            log().error("a handler of %r failed on %r", str(listener.subscription), event, exc_info=problem)

    def _renew(self, listener: Listener[Any]) -> None:
        """Throw away the code of the channels a listener is or will be in."""
        self._retire([cls for cls in self._channels if listener.subscription.accepts(cls)])

    def _retire(self, classes: list[type]) -> None:
        """Throw away the code of some channels, keeping what it counted."""
        for cls in classes:
            channel = self._channels.pop(cls)
            self._published[name_of(cls)] = self._published.get(name_of(cls), 0) + channel.published
            for position, entry in enumerate(channel.entries):
                assert isinstance(entry, Listener)
                entry.settled += channel.delivered(position)
            for collection in self._collections.values():
                collection.close_route(cls)

    def _async_listeners(self) -> list[AsyncListener[Any]]:
        live = [one for collection in self._collections.values() for one in collection.listeners]
        return [one for one in live if isinstance(one, AsyncListener)]

    def _check_open(self) -> None:
        if self._closed:
            raise BusError("the bus is closed")


def log() -> "logging.Logger":
    """The log of handlers that raise; logging is slow to import and seldom needed."""
    import logging

    return logging.getLogger("genus.bus")


def _in_turn(steps: "list[Deliver]") -> "Deliver | None":
    if len(steps) < 2:
        return steps[0] if steps else None

    def all_steps(event: Event) -> None:
        for step in steps:
            step(event)

    return all_steps


class _Plain:
    """Leave to publish where no deadline is kept: as any collection does."""

    def __init__(self, collection: Collection[Any]) -> None:
        self._collection = collection

    def publish(self, event: Any) -> None:
        """Publish an event of the type."""
        self._collection.publish(event)

    def withdraw(self) -> None:
        """Nothing was opened."""


def _nothing() -> None:
    """What ends a hearing that no link gave."""


def _delivered(channel: "ClassDispatcher", listener: Listener[Any]) -> int:
    return sum(channel.delivered(i) for i, entry in enumerate(channel.entries) if entry is listener)


def _sum(one: Counters | None, other: Counters) -> Counters:
    if one is None:
        return other
    return Counters(
        one.delivered + other.delivered,
        one.failed + other.failed,
        one.dropped + other.dropped,
        one.waiting + other.waiting,
    )
