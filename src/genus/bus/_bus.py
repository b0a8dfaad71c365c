"""`Bus`: collections, dispatch within a process, and an optional link to others.

Each event class has one dispatcher with generated code; each subscription is in the dispatchers of the classes it
accepts. Subscribing and cancelling discard the code of those dispatchers; the next event makes it again.
"""

import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, overload

import msgspec

from genus.bus._channel import EventChannel
from genus.bus._clock import SystemClock
from genus.bus._collection import CAPACITY, Collection, Flavour
from genus.bus._link import ChannelLink, Clock, ClockLink, Link, ListeningLink, Publisher, Timer, TroubleHandler
from genus.bus._listener import AsyncListener, Counters, Handler, Inbox, Listener, RoundRobin
from genus.bus._qos import NonReal, QoS, Span, nanoseconds
from genus.bus._queue import WhenFull
from genus.errors import BusError
from genus.filters import AllOf, Subscription
from genus.filters._subscription import ensure_subscription
from genus.model import Event, check, name_of

if TYPE_CHECKING:
    import logging

    from genus.targets.dispatch import ClassDispatcher, Deliver

T = TypeVar("T")

ErrorHandler: TypeAlias = Callable[[Listener[Any], Event, Exception], None]
"""A function that is called with the listener, the event and the error when a handler raises."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Traffic(msgspec.Struct, frozen=True):
    """Counters of a bus: events published per type, deliveries per subscription, and the counters of the link."""

    published: Mapping[str, int]
    subscriptions: Mapping[str, Counters]
    link: Mapping[str, int]


class Bus:
    """A program's access to published events; made by `open_bus`, closed by leaving its `with` block."""

    def __init__(
        self, link: Link | None = None, *, on_error: ErrorHandler | None = None, check_events: bool = False
    ) -> None:
        self.lock = threading.RLock()
        self._link = link
        self._on_error = on_error
        self._before = _in_turn([*([check] if check_events else []), *([link.send] if link else [])])
        self._collections: dict[object, Collection[Any]] = {}
        self._listeners: dict[Listener[Any], None] = {}
        self._groups: dict[tuple[type, ...], RoundRobin] = {}
        self._unlisten: dict[Listener[Any], Callable[[], None]] = {}
        self._dispatchers: dict[type, ClassDispatcher] = {}
        self._published: dict[str, int] = {}
        self._closed = False
        self._every_event = self.collection(Event)
        if link is not None:
            link.open(self.receive)
        self._clock: Clock = link.clock if isinstance(link, ClockLink) else SystemClock()
        self.wait_for = self._clock.wait_for

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
        """The connection to other processes, if there is one."""
        return self._link

    # -- publishing and subscribing ----------------------------------------------------------------------------------

    @overload
    def collection(self, type: type[T], flavour: Flavour = ..., *, remember: int = ...) -> Collection[T]: ...

    @overload
    def collection(self, type: AllOf[T], flavour: Flavour = ..., *, remember: int = ...) -> Collection[T]: ...

    def collection(
        self, type: type[T] | AllOf[T], flavour: Flavour = "bag", *, remember: int = 10_000
    ) -> Collection[T]:
        """The collection of a type, a kind or `all_of(...)`; asking twice gives the same one.

        `flavour` is `bag` (every event to every subscriber), `set` (equal events once; the last `remember` events are
        remembered) or `queue` (each event to one subscriber, in turn).
        """
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
        """A channel to publish an event type with a quality of service; a medium that cannot keep it refuses."""
        return EventChannel(self, type, qos)

    def publish(self, event: Event) -> None:
        """Publish an event of any type; a collection's own `publish` is faster."""
        self._every_event.publish(event)

    @overload
    def subscribe(
        self,
        subscription: Subscription[T],
        handler: Handler[T],
        *,
        capacity: int = ...,
        full: WhenFull = ...,
        on_trouble: TroubleHandler | None = ...,
        strict: bool = ...,
    ) -> Listener[T]: ...

    @overload
    def subscribe(
        self,
        subscription: Subscription,
        handler: Handler[Event],
        *,
        capacity: int = ...,
        full: WhenFull = ...,
        on_trouble: TroubleHandler | None = ...,
        strict: bool = ...,
    ) -> Listener[Any]: ...

    @overload
    def subscribe(
        self,
        subscription: str,
        handler: Handler[Any],
        *,
        capacity: int = ...,
        full: WhenFull = ...,
        on_trouble: TroubleHandler | None = ...,
        strict: bool = ...,
    ) -> Listener[Any]: ...

    def subscribe(
        self,
        subscription: Subscription | str,
        handler: Handler[Any],
        *,
        capacity: int = CAPACITY,
        full: WhenFull = "drop_oldest",
        on_trouble: TroubleHandler | None = None,
        strict: bool = False,
    ) -> Listener[Any]:
        """Call a handler with what a ready-made subscription, or its text, matches.

        Type checkers know what the handler gets of a ready-made one, not of a text. The options are those of
        `Collection.subscribe`.
        """
        asked = ensure_subscription(subscription, strict=strict)
        return self.collection(AllOf[Any](asked.types)).add_handler(asked, handler, capacity, full, on_trouble)

    @overload
    def inbox(
        self,
        subscription: Subscription[T],
        *,
        capacity: int = ...,
        full: WhenFull = ...,
        on_trouble: TroubleHandler | None = ...,
        strict: bool = ...,
    ) -> Inbox[T]: ...

    @overload
    def inbox(
        self,
        subscription: str,
        *,
        capacity: int = ...,
        full: WhenFull = ...,
        on_trouble: TroubleHandler | None = ...,
        strict: bool = ...,
    ) -> Inbox[Any]: ...

    def inbox(
        self,
        subscription: Subscription | str,
        *,
        capacity: int = CAPACITY,
        full: WhenFull = "drop_oldest",
        on_trouble: TroubleHandler | None = None,
        strict: bool = False,
    ) -> Inbox[Any]:
        """A bounded queue of what a ready-made subscription, or its text, matches; see `Collection.inbox`."""
        asked = ensure_subscription(subscription, strict=strict)
        return self.collection(AllOf[Any](asked.types)).add_inbox(asked, capacity, full, on_trouble)

    # -- time --------------------------------------------------------------------------------------------------------

    def time_ns(self) -> int:
        """The time on this bus in nanoseconds since 1970, UTC.

        On a CAN bus that is the bus's synchronised time as this node knows it, in the simulator virtual time, and the
        system's time elsewhere. A program that takes its time from the bus runs in the simulator as it is.
        """
        return self._clock.time_ns()

    def now(self) -> datetime:
        """The time on this bus, in UTC with microseconds; see `time_ns`."""
        return _EPOCH + timedelta(microseconds=(self._clock.time_ns() + 500) // 1000)

    def sleep(self, span: Span | float) -> None:
        """Block for a span of the bus's time: seconds, a timedelta, or text such as `100ms`."""
        self._clock.sleep(span if isinstance(span, int | float) else nanoseconds(span, "span") / 1e9)

    def call_at(self, time: datetime | int, function: Callable[[], object]) -> Timer:
        """Call a function at a time of the bus: a datetime with a time zone, or nanoseconds since 1970.

        The function runs in a thread of the bus and should not take long. Returns a timer to `cancel()`.
        """
        return self._clock.call_at(time if isinstance(time, int) else _nanoseconds_of(time), function)

    def every(self, period: Span, function: Callable[[], object]) -> Timer:
        """Call a function once per period of the bus's time, the first time after one period.

        A call that comes too late, because an earlier one took long, is left out. Returns a timer to `cancel()`.

        >>> from genus import open_bus
        >>> with open_bus() as bus:
        ...     timer = bus.every("100ms", lambda: None)
        ...     timer.cancel()
        """
        return _Periodic(self._clock, nanoseconds(period, "period"), function)

    # -- state -------------------------------------------------------------------------------------------------------

    def traffic(self) -> Traffic:
        """Counters per type and per subscription."""
        with self.lock:
            published = dict(self._published)
            for cls, dispatcher in self._dispatchers.items():
                published[name_of(cls)] = published.get(name_of(cls), 0) + dispatcher.published
            subscriptions: dict[str, Counters] = {}
            for listener in [one for collection in self._collections.values() for one in collection.listeners]:
                text = str(listener.subscription)
                subscriptions[text] = _sum(subscriptions.get(text), listener.counters)
            return Traffic(published, subscriptions, dict(self._link.counters()) if self._link else {})

    async def drain(self) -> None:
        """Wait until async handlers have handled what was published before."""
        import asyncio

        while not all(one.is_idle for one in self._async_listeners()):
            await asyncio.sleep(0.001)

    def close(self) -> None:
        """Cancel all subscriptions and close the link; a second call does nothing."""
        with self.lock:
            if self._closed:
                return
            self._closed = True
        if self._link is not None:
            self._link.close()
        self._clock.close()
        for collection in self._collections.values():
            collection.cancel()
        with self.lock:
            self._retire(list(self._dispatchers))

    # -- for collections, listeners, channels and links --------------------------------------------------------------

    def dispatcher(self, cls: type) -> "ClassDispatcher":
        """The code that delivers events of a class, made if need be."""
        from genus.targets.dispatch import ClassDispatcher  # with the first event: `import genus` stays quick

        with self.lock:
            self._check_open()
            if cls not in self._dispatchers:
                entries = [one for one in self._listeners if one.subscription.accepts(cls)]
                self._dispatchers[cls] = ClassDispatcher(cls, entries, self._before)
            return self._dispatchers[cls]

    def receive(self, event: Event) -> None:
        """Deliver an event that came over the link; errors are logged, not raised."""
        if self._closed:
            return
        try:
            (self._dispatchers.get(type(event)) or self.dispatcher(type(event))).deliver(event)
        except Exception:
            log().exception("an event from the link was not delivered: %r", event)

    def add(self, listener: Listener[Any], on_trouble: TroubleHandler | None = None) -> None:
        """Deliver events to a listener from now on."""
        with self.lock:
            self._check_open()
            self._listeners[listener] = None
            self._retire_accepting(listener)
        if isinstance(self._link, ListeningLink):
            self._unlisten[listener] = self._link.listen(listener.subscription, on_trouble)

    def remove(self, listener: Listener[Any]) -> None:
        """Deliver no more events to a listener."""
        unlisten = self._unlisten.pop(listener, None)
        if unlisten is not None:
            unlisten()
        with self.lock:
            if listener in self._listeners:
                self._retire_accepting(listener)
                del self._listeners[listener]

    def announce(
        self, cls: type, qos: QoS, on_trouble: TroubleHandler | None = None, carries: tuple[str, ...] = ()
    ) -> Publisher:
        """Prepare to publish a type with a quality of service; BusError if the medium cannot keep it."""
        if isinstance(self._link, ChannelLink):
            return self._link.announce(cls, qos, on_trouble, carries)
        if not isinstance(qos, NonReal):
            raise BusError(
                f"{qos} needs a medium that keeps deadlines, as can: and sim: do; this one takes NonReal() only"
            )
        return _CollectionPublisher(self.collection(cls))

    def round_robin(self, types: tuple[type, ...]) -> RoundRobin:
        """The group of consumers that share the events of a type."""
        with self.lock:
            self._check_open()
            if types not in self._groups:
                self._groups[types] = RoundRobin(self, Subscription(AllOf(types)))
                self.add(self._groups[types])
            return self._groups[types]

    def count_delivered(self, listener: Listener[Any]) -> int:
        """Events that the current dispatch code delivered to a listener."""
        with self.lock:
            return sum(_delivered(dispatcher, listener) for dispatcher in self._dispatchers.values())

    def report_error(self, listener: Listener[Any], event: Event, problem: Exception) -> None:
        """Report a handler's error to `on_error`; to the log without one, or if that raises itself."""
        try:
            if self._on_error is not None:
                self._on_error(listener, event, problem)
        except Exception:
            log().exception("on_error failed")
        if self._on_error is None:
            log().error("a handler of %r failed on %r", str(listener.subscription), event, exc_info=problem)

    def _retire_accepting(self, listener: Listener[Any]) -> None:
        """Discard the code of the dispatchers that a listener is or will be in."""
        self._retire([cls for cls in self._dispatchers if listener.subscription.accepts(cls)])

    def _retire(self, classes: list[type]) -> None:
        """Discard the code of some dispatchers, keeping their counters."""
        for cls in classes:
            dispatcher = self._dispatchers.pop(cls)
            self._published[name_of(cls)] = self._published.get(name_of(cls), 0) + dispatcher.published
            for position, entry in enumerate(dispatcher.entries):
                assert isinstance(entry, Listener)
                entry.counted += dispatcher.delivered(position)
            for collection in self._collections.values():
                collection.discard_publisher(cls)

    def _async_listeners(self) -> list[AsyncListener[Any]]:
        live = [one for collection in self._collections.values() for one in collection.listeners]
        return [one for one in live if isinstance(one, AsyncListener)]

    def _check_open(self) -> None:
        if self._closed:
            raise BusError("the bus is closed")


def log() -> "logging.Logger":
    """The log of handlers that raise; `logging` is slow to import and seldom needed."""
    import logging

    return logging.getLogger("genus.bus")


def _in_turn(steps: "list[Deliver]") -> "Deliver | None":
    if len(steps) < 2:
        return steps[0] if steps else None

    def all_steps(event: Event) -> None:
        for step in steps:
            step(event)

    return all_steps


class _CollectionPublisher:
    """Publishes without deadlines, as a collection does."""

    def __init__(self, collection: Collection[Any]) -> None:
        self._collection = collection

    def publish(self, event: Any) -> None:
        """Publish an event of the type."""
        self._collection.publish(event)

    def withdraw(self) -> None:
        """Nothing was opened."""


class _Periodic:
    """State: a function that is called once per period, until it is cancelled."""

    def __init__(self, clock: Clock, period_ns: int, function: Callable[[], object]) -> None:
        if period_ns < 1:
            raise BusError("a period must be longer than 0")
        self._clock, self._period_ns, self._function = clock, period_ns, function
        self._is_cancelled = False
        self._next = clock.time_ns() + period_ns
        self._timer = clock.call_at(self._next, self._call)

    def _call(self) -> None:
        late = max(0, self._clock.time_ns() - self._next)
        self._next += self._period_ns * (1 + late // self._period_ns)
        if not self._is_cancelled:
            self._timer = self._clock.call_at(self._next, self._call)
            self._function()

    def cancel(self) -> None:
        """Make no more calls."""
        self._is_cancelled = True
        self._timer.cancel()


def _nanoseconds_of(time: datetime) -> int:
    if time.tzinfo is None:
        raise BusError(f"{time.isoformat()} has no time zone; write for example datetime(..., tzinfo=UTC)")
    return (time - _EPOCH) // timedelta(microseconds=1) * 1000


def _delivered(dispatcher: "ClassDispatcher", listener: Listener[Any]) -> int:
    return sum(dispatcher.delivered(i) for i, entry in enumerate(dispatcher.entries) if entry is listener)


def _sum(one: Counters | None, other: Counters) -> Counters:
    if one is None:
        return other
    return Counters(
        one.delivered + other.delivered,
        one.failed + other.failed,
        one.dropped + other.dropped,
        one.waiting + other.waiting,
    )
