"""`Bus`: collections, dispatch within a process, and an optional link to others.

Which listeners get an event is decided in `_router` and `_class_route`.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, overload

import msgspec
from msgspec.structs import replace

from genus.bus._channel import EventChannel
from genus.bus._clock import SystemClock
from genus.bus._collection import CAPACITY, Collection, Flavour, new_collection
from genus.bus._link import ChannelLink, Clock, ClockLink, Link, ListeningLink, Publisher, Timer, TroubleHandler
from genus.bus._listener import AsyncListener, Counters, Handler, Inbox, Listener, RoundRobin
from genus.bus._qos import NonReal, QoS, Span, nanoseconds
from genus.bus._queue import WhenFull
from genus.bus._router import Router
from genus.errors import BusError
from genus.filters import AllOf, Subscription
from genus.filters._subscription import drop_implied, ensure_subscription
from genus.model import Event, check

if TYPE_CHECKING:
    import logging

    from genus.bus._class_route import ClassRoute
    from genus.targets.dispatch import Deliver, Prepare

T = TypeVar("T")

ErrorHandler: TypeAlias = Callable[[Listener[Any], Event, Exception], None]
"""A function that is called with the listener, the event and the error when a handler raises."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Traffic(msgspec.Struct, frozen=True):
    """Counters of a bus: events published per type, deliveries per subscription, and the counters of the link."""

    published: Mapping[str, int]
    subscriptions: Mapping[str, Counters]
    link: Mapping[str, int]


class SubscriptionCounters(Mapping[str, Counters]):
    """The counters of each subscription, by its text; those with the same text are added up.

    The texts are made when they are first read, as that takes longer than counting.
    """

    def __init__(self, counted: list[tuple[Subscription, Counters]]) -> None:
        self._counted = counted

    @cached_property
    def _by_text(self) -> dict[str, Counters]:
        found: dict[str, Counters] = {}
        for subscription, counters in self._counted:
            text = str(subscription)
            found[text] = found[text] + counters if text in found else counters
        return found

    def largest(self, most: int) -> tuple[dict[str, Counters], list[Counters]]:
        """The subscriptions with the most events, with their texts, and the counters of the others without."""
        ordered = sorted(self._counted, key=lambda counted: -(counted[1].delivered + counted[1].dropped))
        return SubscriptionCounters(ordered[:most])._by_text, [counters for _, counters in ordered[most:]]

    def __getitem__(self, text: str) -> Counters:
        return self._by_text[text]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_text)

    def __len__(self) -> int:
        return len(self._by_text)

    def __repr__(self) -> str:
        return repr(self._by_text)


class Bus:
    """A program's access to published events; made by `open_bus`, closed by leaving its `with` block."""

    def __init__(
        self,
        link: Link | None = None,
        *,
        on_error: ErrorHandler | None = None,
        check_events: bool = False,
        source: str | None = None,
        stamp: bool = False,
    ) -> None:
        self._link = link
        self._listening_link = link if isinstance(link, ListeningLink) else None
        self._on_error = on_error
        self._stamp = _stamp(source, self.now if stamp else None)
        self._stamped = [*(["source"] if source is not None else []), *(["time"] if stamp else [])]
        self._router = Router(_in_turn(self._stamp, check if check_events else None, link.send if link else None))
        self.lock = self._router.lock
        self._collections: dict[object, Collection[Any]] = {}
        self._groups: dict[tuple[type, ...], RoundRobin] = {}
        self._groups_lock = threading.Lock()
        self._unlisten: dict[Listener[Any], Callable[[], None]] = {}
        self._at_close: list[Callable[[], object]] = []
        self._closed = False
        self._every_event = self.collection(Event)
        self._every_event.on_publisher = self._set_publish
        if link is not None:
            link.open(BusDelivery(self))
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
        return self._collection(drop_implied(type.types if isinstance(type, AllOf) else (type,)), flavour, remember)

    def _collection(self, types: tuple[type, ...], flavour: Flavour = "bag", remember: int = 0) -> Collection[Any]:
        with self.lock:
            self._check_open()
            key = (types, flavour, remember if flavour == "set" else None)
            if key not in self._collections:
                self._collections[key] = new_collection(self, types, flavour, remember)
            return self._collections[key]

    def channel(self, type: type[T], qos: QoS = NonReal()) -> EventChannel[T]:  # noqa: B008 - it is frozen
        """A channel to publish an event type with a quality of service; a medium that cannot keep it refuses."""
        return EventChannel(self, type, qos)

    def publish(self, event: Event) -> None:
        """Publish an event of any type; `Collection.publish` has the errors."""
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
        return self._collection(asked.types).add_handler(asked, handler, capacity, full, on_trouble)

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
        return self._collection(asked.types).add_inbox(asked, capacity, full, on_trouble)

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
        counted = [(listener.subscription, listener.counters) for listener in self._listeners()]
        link = dict(self._link.counters()) if self._link else {}
        return Traffic(self._router.published(), SubscriptionCounters(counted), link)

    async def drain(self) -> None:
        """Wait until async handlers have handled what was published before."""
        import asyncio

        while not all(one.is_idle for one in self._async_listeners()):
            await asyncio.sleep(0.001)

    def at_close(self, function: Callable[[], object]) -> None:
        """Call a function when the bus is closed, before its link is: for what belongs to the bus and ends with it."""
        with self.lock:
            self._check_open()
            self._at_close.append(function)

    def close(self) -> None:
        """Cancel all subscriptions and close the link; a second call does nothing."""
        with self.lock:
            if self._closed:
                return
            self._closed = True
        for function in self._at_close:
            function()
        if self._link is not None:
            self._link.close()
        self._clock.close()
        with self.lock:
            collections = list(self._collections.values())
        for collection in collections:
            collection.cancel()
        self._router.close()

    # -- for collections, listeners, channels and links --------------------------------------------------------------

    def route(self, cls: type) -> "ClassRoute":
        """How events of a class reach their listeners."""
        self._check_open()
        return self._router.route(cls)

    def receive(self, event: Event) -> None:
        """Deliver an event that came over the link; errors are logged, not raised."""
        if self._closed:
            return
        try:
            (self._router.known_route(type(event)) or self._router.route(type(event))).deliver(event)
        except Exception:
            log().exception("an event from the link was not delivered: %r", event)

    def deliverer(self, cls: type) -> Callable[[Event], None]:
        """A function that does the same for events of one class, quicker; it stays valid."""
        route = self._router.route(cls)

        def deliver(event: Event) -> None:
            try:
                route.deliver(event)
            except Exception:
                log().exception("an event from the link was not delivered: %r", event)

        return deliver

    def add(self, listener: Listener[Any], on_trouble: TroubleHandler | None = None) -> None:
        """Deliver events to a listener from now on."""
        self._check_open()
        self._router.add(listener)
        if self._listening_link is not None:
            try:
                self._unlisten[listener] = self._listening_link.listen(listener.subscription, on_trouble)
            except BaseException:
                self._router.remove(listener)
                raise
        if listener.is_cancelled or self._closed:  # by another thread, in the meantime
            self.remove(listener)

    def remove(self, listener: Listener[Any]) -> None:
        """Deliver no more events to a listener."""
        unlisten = self._unlisten.pop(listener, None)
        if unlisten is not None:
            unlisten()
        self._router.remove(listener)

    def announce(
        self, cls: type, qos: QoS, on_trouble: TroubleHandler | None = None, carries: tuple[str, ...] = ()
    ) -> Publisher:
        """Prepare to publish a type with a quality of service; BusError if the medium cannot keep it."""
        if isinstance(self._link, ChannelLink):
            carries = (*carries, *(name for name in self._stamped if name not in carries))
            publisher = self._link.announce(cls, qos, on_trouble, carries)
            return publisher if self._stamp is None else _StampingPublisher(publisher, self._stamp)
        if not isinstance(qos, NonReal):
            raise BusError(
                f"{qos} needs a medium that keeps deadlines, as can: and sim: do; this one takes NonReal() only"
            )
        return _CollectionPublisher(self.collection(cls))

    def round_robin(self, types: tuple[type, ...]) -> RoundRobin:
        """The group of consumers that share the events of a type."""
        self._check_open()
        with self._groups_lock:
            if types not in self._groups:
                group = RoundRobin(self, Subscription(AllOf(types)))
                self.add(group)
                self._groups[types] = group
            return self._groups[types]

    def report_error(self, listener: Listener[Any], event: Event, problem: Exception) -> None:
        """Report a handler's error to `on_error`; to the log without one, or if that raises itself."""
        try:
            if self._on_error is not None:
                self._on_error(listener, event, problem)
        except Exception:
            log().exception("on_error failed")
        if self._on_error is None:
            log().error("a handler of %r failed on %r", str(listener.subscription), event, exc_info=problem)

    def _set_publish(self, publish: Callable[[Any], object]) -> None:
        """Let `publish` be the function of the collection of all events, which is quicker to call."""
        self.publish = publish  # type: ignore[method-assign, assignment]

    def _listeners(self) -> list[Listener[Any]]:
        with self.lock:
            return [one for collection in self._collections.values() for one in collection.listeners]

    def _async_listeners(self) -> list[AsyncListener[Any]]:
        return [one for one in self._listeners() if isinstance(one, AsyncListener)]

    def _check_open(self) -> None:
        if self._closed:
            raise BusError("the bus is closed")


class BusDelivery:
    """Gives the events of a link to its bus."""

    def __init__(self, bus: Bus) -> None:
        self._receive = bus.receive
        self.for_class = bus.deliverer

    def __call__(self, event: Event) -> None:
        """Deliver an event of any class."""
        self._receive(event)


def log() -> "logging.Logger":
    """The log of handlers that raise; `logging` is slow to import and seldom needed."""
    import logging

    return logging.getLogger("genus.bus")


def _stamp(source: str | None, now: Callable[[], datetime] | None) -> "Prepare | None":
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


def _in_turn(stamp: "Prepare | None", *steps: "Deliver | None") -> "Prepare | None":
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


class _StampingPublisher:
    """Publishes events with the source and time of publishing, where they have none."""

    def __init__(self, publisher: Publisher, stamp: "Prepare") -> None:
        self._publisher, self._stamp = publisher, stamp
        self.withdraw = publisher.withdraw

    def publish(self, event: Any) -> None:
        """Publish an event of the type."""
        self._publisher.publish(self._stamp(event))


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
