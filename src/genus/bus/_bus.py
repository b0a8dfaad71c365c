"""`Bus`: collections, dispatch within a process, and an optional link to others.

Which listeners get an event is decided in `_router` and `_class_route`.
"""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, overload
from weakref import WeakSet

from genus.bus._channel import EventChannel, in_turn, stamp_with
from genus.bus._clock import LateStart, PeriodicTask, SystemClock, TimeReading, datetime_of, system_resolution
from genus.bus._collection import CAPACITY, Collection, Flavour, RequestHandler, new_collection
from genus.bus._last_values import Announcer, CatchUp, KeptEvent, LastValues
from genus.bus._link import (
    BestEffort,
    Capabilities,
    Clock,
    Keep,
    Link,
    ProblemHandler,
    Publisher,
    QoS,
    Timer,
    keep_of,
    qos_of,
)
from genus.bus._listener import AsyncListener, Handler, Inbox, Listener, RoundRobin
from genus.bus._queue import EventQueue, Overflow, check_count
from genus.bus._router import Interested, Router, SubscriptionCounters, Traffic, delivery_to, log
from genus.errors import BusError
from genus.filters import Subscription, TypesByName
from genus.filters.internal import drop_implied, ensure_subscription
from genus.filters.types import AllOf
from genus.model import Event, Span, is_type, nanoseconds, seconds
from genus.model import check as check_event

if TYPE_CHECKING:
    from genus.bus._class_route import ClassRoute
    from genus.bus._requests import Requester, Server
    from genus.targets.dispatch import Prepare

T = TypeVar("T")

ErrorHandler: TypeAlias = Callable[[Listener[Any], Event, Exception], None]
"""A function that is called with the listener, the event and the error when a handler raises."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Wanted: TypeAlias = type[T] | AllOf[T] | Subscription[T]
"""What can be subscribed to, besides text."""
PAGE_ENTRY_POINTS = "genus.pages"
"""The group of entry points in which `Bus.studio` finds its page."""


def as_subscription(
    given: Wanted[Any] | str, preferred: Mapping[str, type] = MappingProxyType({}), *, strict: bool = False
) -> Subscription:
    """Return the subscription that is meant; in a text, names of preferred types mean these."""
    if isinstance(given, AllOf) or (isinstance(given, type) and is_type(given)):
        return Subscription(given, strict=strict)
    if isinstance(given, str):
        return Subscription.parse(given, TypesByName(preferred=preferred), strict=strict)
    if not isinstance(given, Subscription):
        raise BusError(f"{given!r} cannot be subscribed to; give a type, all_of(...), a Subscription, or its text")
    return ensure_subscription(given, strict=strict)


class Bus:
    """A program's access to published events; made by `open_bus`, closed by leaving its `with` block."""

    def __init__(
        self,
        link: Link | None = None,
        *,
        on_error: ErrorHandler | None = None,
        check: bool = False,
        source: str | None = None,
        stamp: bool = False,
    ) -> None:
        if link is not None and not isinstance(link, Link):
            raise BusError(f"{type(link).__name__} cannot be the link of a bus; derive it from genus.bus.Link")
        self._link = link
        can = Capabilities() if link is None else link.capabilities
        self._is_batching = can.send_all
        self._keeping_link = link if can.last_values else None
        self._last_values = LastValues()
        self._on_error = on_error
        stamping = stamp_with(source, self.now if stamp else None)
        self._check = in_turn(stamping, check_event) if check else stamping
        self._router = Router(in_turn(self._check, link.send) if link else self._check)
        self.receive = delivery_to(self._router)
        """Delivers the events of the link."""
        self._deliverer = self.receive.for_class
        self._interested = Interested(link, self._route)
        stamped = [*(["source"] if source is not None else []), *(["time"] if stamp else [])]
        self._announcer = Announcer(self, link, self._last_values, stamping, stamped)
        self._requester: Requester | None = None
        self._requester_lock = threading.Lock()
        self._lock = self._router.lock
        self._collections: dict[object, Collection[Any]] = {}
        self._groups: dict[tuple[type, ...], RoundRobin] = {}
        self._groups_lock = threading.Lock()
        self._channels: WeakSet[EventChannel[Any]] = WeakSet()
        self._unlisten: dict[Listener[Any], Callable[[], None]] = {}
        self._cancelled: WeakSet[AsyncListener[Any]] = WeakSet()
        """Those whose tasks still handle what was queued, while there are such."""
        self._at_close: list[Callable[[], object]] = []
        self._closed = False
        self._every_event = self.collection(Event)
        self.publish = self._every_event.publish  # type: ignore[method-assign]
        if link is not None:
            link.open(self.receive)
        clock = None if link is None else link.clock
        self._has_clock_of_link = clock is not None
        self._clock: Clock = _system_clock(link) if clock is None else clock
        self.wait_for = self._clock.wait_for

    def __enter__(self) -> "Bus":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> "Bus":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.wait_idle_async()
        self.close()

    @property
    def link(self) -> Link | None:
        """The connection to other processes, if there is one."""
        return self._link

    @property
    def types(self) -> Mapping[str, Any]:
        """The classes of event types and kinds that the medium brings, by name.

        On a CAN bus they are those of the databases that its address names; between processes, on zenoh and on MQTT
        those of the types that other participants have stated and this program has not declared, as far as they came.
        """
        return {} if self._link is None else self._link.types

    # -- publishing and subscribing ----------------------------------------------------------------------------------

    @overload
    def collection(self, type: type[T], flavour: Flavour = ..., *, dedup_window: int = ...) -> Collection[T]: ...

    @overload
    def collection(self, type: AllOf[T], flavour: Flavour = ..., *, dedup_window: int = ...) -> Collection[T]: ...

    def collection(
        self, type: type[T] | AllOf[T], flavour: Flavour = "bag", *, dedup_window: int = 10_000
    ) -> Collection[T]:
        """Return the collection of a type, a kind or `all_of(...)`; asking twice gives the same one.

        `flavour` is `bag` (every event to every subscriber), `set` (equal events once; the last `dedup_window`
        events are remembered) or `queue` (each event to one subscriber, in turn).
        """
        if flavour not in ("bag", "set", "queue"):
            raise BusError(f"flavour {flavour!r} is none of bag, set, queue")
        check_count("dedup_window", dedup_window)
        return self._collection(drop_implied(type.types if isinstance(type, AllOf) else (type,)), flavour, dedup_window)

    def _collection(self, types: tuple[type, ...], flavour: Flavour = "bag", dedup_window: int = 0) -> Collection[Any]:
        with self._lock:
            self._check_open()
            key = (types, flavour, dedup_window if flavour == "set" else None)
            if key not in self._collections:
                self._collections[key] = new_collection(self, types, flavour, dedup_window)
            return self._collections[key]

    def channel(
        self,
        type: type[T],
        qos: QoS | str = BestEffort(),  # noqa: B008 - it is frozen
        *,
        keep: bool = False,
        keep_by: str | Iterable[str] | None = None,
        on_problem: ProblemHandler | None = None,
        carries: str | Iterable[str] = (),
    ) -> EventChannel[T]:
        """Return a channel to publish an event type with a quality of service; use it in a `with` block.

        Args:
            type: The event type; a subtype has a channel of its own.
            qos: A `Hard`, `Soft` or `BestEffort`, or its text as on the command line (`"soft:20ms"`, see `parse_qos`).
                Entering the `with` block raises BusError if the medium cannot keep it.
            keep: Keep the newest event of each `source` until the bus is closed: who subscribes later gets it at once.
            keep_by: Names of other attributes whose values make the key.
            on_problem: Is called with what could not be kept: deadlines missed, events expired or not sent.
            carries: Names of the context attributes (`time`, `place`, ...) that the events will have besides the
                type's own: on a medium of small frames they decide how many frames each event takes.

        >>> from genus import Event, open_bus
        >>> class Valve(Event):
        ...     number: int
        ...     open: bool
        >>> with open_bus() as bus, bus.channel(Valve, keep=True, keep_by="number") as valves:
        ...     valves.publish(Valve(number=1, open=False))
        ...     valves.publish(Valve(number=1, open=True))
        ...     listener = bus.subscribe(Valve, print)
        Valve(number=1, open=True)
        """
        channel = EventChannel(self, type, qos_of(qos), keep_of(keep, keep_by), on_problem, carries)
        with self._lock:
            self._channels.add(channel)
        return channel

    @overload
    def last_values(self, subscription: Wanted[T]) -> list[T]: ...

    @overload
    def last_values(self, subscription: str) -> list[Any]: ...

    def last_values(self, subscription: Wanted[Any] | str) -> list[Any]:
        """Return the newest kept events that match: what a new subscriber would get."""
        listener = Listener[Any](self, self._asked(subscription, False), print)
        return [kept.event for kept in self._kept_for(listener)]

    def publish(self, event: Event, /) -> None:
        """Publish an event of any type; `Collection.publish` has the errors."""
        self._every_event.publish(event)

    def publish_all(self, events: Iterable[Event]) -> int:
        """Publish events of any types, and return their number; see `Collection.publish_all`."""
        return self._every_event.publish_all(events)

    @overload
    def subscribe(
        self,
        subscription: Wanted[T],
        handler: Handler[T],
        *,
        capacity: int = ...,
        overflow: Overflow = ...,
        concurrency: int = ...,
        on_problem: ProblemHandler | None = ...,
        strict: bool = ...,
    ) -> Listener[T]: ...

    @overload
    def subscribe(
        self,
        subscription: Wanted[Any],
        handler: Handler[Event],
        *,
        capacity: int = ...,
        overflow: Overflow = ...,
        concurrency: int = ...,
        on_problem: ProblemHandler | None = ...,
        strict: bool = ...,
    ) -> Listener[Any]: ...

    @overload
    def subscribe(
        self,
        subscription: str,
        handler: Handler[Any],
        *,
        capacity: int = ...,
        overflow: Overflow = ...,
        concurrency: int = ...,
        on_problem: ProblemHandler | None = ...,
        strict: bool = ...,
    ) -> Listener[Any]: ...

    def subscribe(
        self,
        subscription: Wanted[Any] | str,
        handler: Handler[Any],
        *,
        capacity: int = CAPACITY,
        overflow: Overflow | None = None,
        concurrency: int = 1,
        on_problem: ProblemHandler | None = None,
        strict: bool = False,
    ) -> Listener[Any]:
        """Call a handler with every event that matches.

        Args:
            subscription: An event type or kind, `all_of(...)`, a `Subscription`, or its text. Type checkers know what
                the handler gets, but for a text.
            handler: A function or coroutine function of one event.

        The options and errors are those of `Collection.subscribe`, but for `exact`, `has`, `lacks` and `where`, which
        the `Subscription` has: `bus.subscribe(Subscription(Loop, where=this.lane > 1), print)`.

        >>> from genus import Event, open_bus
        >>> class Loop(Event):
        ...     lane: int
        >>> with open_bus() as bus:
        ...     listener = bus.subscribe(Loop, print)
        ...     bus.publish(Loop(lane=1))
        Loop(lane=1)
        """
        asked = self._asked(subscription, strict)
        return self._collection(asked.types)._add_handler(asked, handler, capacity, overflow, on_problem, concurrency)

    @overload
    def inbox(
        self,
        subscription: Wanted[T],
        *,
        capacity: int = ...,
        overflow: Overflow = ...,
        on_problem: ProblemHandler | None = ...,
        strict: bool = ...,
    ) -> Inbox[T]: ...

    @overload
    def inbox(
        self,
        subscription: str,
        *,
        capacity: int = ...,
        overflow: Overflow = ...,
        on_problem: ProblemHandler | None = ...,
        strict: bool = ...,
    ) -> Inbox[Any]: ...

    def inbox(
        self,
        subscription: Wanted[Any] | str,
        *,
        capacity: int = CAPACITY,
        overflow: Overflow | None = None,
        on_problem: ProblemHandler | None = None,
        strict: bool = False,
    ) -> Inbox[Any]:
        """Return a bounded queue of what a type, `all_of(...)`, a `Subscription` or its text matches.

        The options are those of `Collection.inbox`, but for `exact`, `has`, `lacks` and `where`, which the
        `Subscription` has.
        """
        asked = self._asked(subscription, strict)
        return self._collection(asked.types)._add_inbox(asked, capacity, overflow, on_problem)

    def _asked(self, given: Wanted[Any] | str, strict: bool) -> Subscription:
        return as_subscription(given, self.types, strict=strict)

    # -- time --------------------------------------------------------------------------------------------------------

    def time_ns(self) -> int:
        """Return the time on this bus in nanoseconds since 1970, UTC.

        On a CAN bus that is the bus's synchronised time as this node knows it, in the simulator virtual time, and the
        system's time elsewhere. A program that takes its time from the bus runs in the simulator as it is.
        """
        return self._clock.time_ns()

    def now(self) -> datetime:
        """Return the time on this bus, in UTC with microseconds; see `time_ns`."""
        return datetime_of(self._clock.time_ns())

    def time(self) -> TimeReading:
        """Return the time on this bus and its precision: a bound on how far it is off the time of the bus.

        On a CAN bus the precision is that of the synchronisation, or None while there is no bound: before the node is
        synchronised, and after the master was silent for too long. Within a process (`local:`) it is the resolution of
        the system's clock, which all read. On networks it is None: how far the clocks of two computers differ is not
        known here.

        >>> from genus import open_bus
        >>> with open_bus() as bus:
        ...     reading = bus.time()
        >>> reading.precision_ns < 1_000_000
        True
        """
        return TimeReading(self._clock.time_ns(), self._clock.precision_ns())

    def sleep(self, span: Span) -> None:
        """Block for a length of the bus's time: seconds, text such as `100ms`, or a timedelta."""
        self._clock.sleep(seconds(span))

    def call_at(self, time: datetime | int, function: Callable[[], object]) -> Timer:
        """Call a function at a time of the bus: a datetime with a time zone, or nanoseconds since 1970.

        The function runs in a thread of the bus and should not take long. Returns a timer to `cancel()`. `every` makes
        tasks for many points of time.
        """
        return self._clock.call_at(_nanoseconds_of(time), function)

    def every(
        self,
        period: Span,
        function: Callable[[], object],
        *,
        offset: Span | None = None,
        tolerance: Span = "1ms",
        on_late: Callable[[LateStart], object] | None = None,
    ) -> PeriodicTask:
        """Call a function once per period of the bus's time.

        A call that comes too late, because an earlier one took long, is left out. The function runs in a thread of the
        bus and should not take long.

        Args:
            period: The time between two calls.
            function: Is called without arguments.
            offset: The calls are at the points of time that are this much after a multiple of the period since 1970,
                UTC: at the same instants in all programs on the bus, as precisely as `time()` says, and at fixed places
                in the calendar of a CAN bus. While a CAN bus has no common time, nothing is called. Without an offset
                the first call is one period from now.
            tolerance: How late a call may be before it counts as late.
            on_late: Is called with a `LateStart` before a call that is late, or before which others were left out.

        Returns:
            The task: `cancel()` ends it, `timing` says how its starts kept their times.

        Raises:
            SpanError: A length of time cannot be read, or the period is zero.
            BusError: The function cannot be called.

        >>> from genus import open_bus
        >>> with open_bus() as bus:
        ...     task = bus.every("100ms", lambda: None, offset="20ms")
        ...     task.cancel()
        >>> task.timing
        TaskTiming(starts=0, late=0, left_out=0, worst_late_ns=0)
        """
        return PeriodicTask(
            self._clock,
            nanoseconds(period, "period", zero=False),
            function,
            offset_ns=None if offset is None else nanoseconds(offset, "offset"),
            tolerance_ns=nanoseconds(tolerance, "tolerance"),
            on_late=on_late,
            is_known=self._knows_time,
        )

    def _knows_time(self) -> bool:
        """Return whether there is a common time: always, unless the medium has a clock that says there is none."""
        return not self._has_clock_of_link or self.time().precision_ns is not None

    # -- state -------------------------------------------------------------------------------------------------------

    def traffic(self) -> Traffic:
        """Return the counters per type and per subscription, and those of the link and of requests."""
        counted = [(listener.subscription, listener.counters) for listener in self._listeners()]
        link = dict(self._link.counters()) if self._link else {}
        requests = dict(self._requester.counts) if self._requester else {}
        return Traffic(self._router.published(), SubscriptionCounters(counted), link, requests)

    def published(self) -> dict[str, int]:
        """Return how many events there were of each type: as in `traffic`, without counting for each subscription."""
        return self._router.published()

    def channels(self) -> list[EventChannel[Any]]:
        """Return the channels of this bus that are announced now."""
        with self._lock:
            return [channel for channel in self._channels if channel.is_announced]

    def listeners(self) -> list[Listener[Any]]:
        """Return the handlers and inboxes that there are now, each with its subscription and counters."""
        return self._listeners()

    def studio(self, port: int = 0, **options: Any) -> Any:
        """Open a page on which this bus can be seen live, and return it: a `genus.studio.Studio` with its `url`.

        It ends with the bus, or by `close()`. Only this machine can open the page, unless the options say otherwise;
        `genus.studio.open_studio` has them. Needs the extra `studio`.

        Args:
            port: The port of the page; 0 is any free one.
            options: Those of `genus.studio.open_studio`.

        Raises:
            BusError: The port is in use, or an option is wrong.
            ImportError: Starlette or uvicorn is not installed; the message has the command that installs them.
        """
        from importlib.metadata import entry_points  # the page is above this room, so it comes by an entry point

        (page,) = entry_points(group=PAGE_ENTRY_POINTS, name="studio")
        return page.load()(self, port=port, **options)

    def kept_by(self, cls: type) -> Keep | None:
        """Return by which attributes the newest events of a type are kept on this bus; None if they are not."""
        return self._last_values.kept_by(cls)

    def on_forgotten(self, tell: Callable[[Event], None]) -> Callable[[], None]:
        """Call a function with each last value of this bus that `forget` removes; returns a function to end it."""
        known = self._last_values.on_forgotten
        known.append(tell)
        return lambda: known.remove(tell) if tell in known else None

    def subscriptions(self) -> list[Subscription]:
        """Return the subscriptions that there are now, one for each listener."""
        return [listener.subscription for listener in self._listeners()]

    def on_subscriptions(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Call a function after each change of `subscriptions()`; returns a function that ends it.

        It is called in the thread that subscribes or cancels, and should not take long. Closing the bus is no change.
        """
        return self._interested.on_listeners(changed)

    async def wait_idle_async(self) -> None:
        """Wait until async handlers, also cancelled ones, have handled what was published before."""
        import asyncio

        while not all(one.is_idle for one in self._async_listeners()):
            await asyncio.sleep(0.001)

    @property
    def is_closed(self) -> bool:
        """Whether it was closed; nothing can be published or subscribed to then."""
        return self._closed

    def at_close(self, function: Callable[[], object]) -> Callable[[], None]:
        """Call a function when the bus is closed, before its link is: for what belongs to the bus and ends with it.

        Returns a function that ends this, for what ends earlier.
        """
        entry = partial(function)  # one of its own, however often a function is given
        with self._lock:
            self._check_open()
            self._at_close.append(entry)

        def forget() -> None:
            with self._lock:
                self._at_close[:] = [each for each in self._at_close if each is not entry]

        return forget

    def close(self) -> None:
        """Cancel all subscriptions and close the link; a second call does nothing."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        for function in list(self._at_close):
            function()
        if self._link is not None:
            self._link.stop_receiving()
        self._router.close()
        self._interested.forget()
        for listener in self._listeners():
            if isinstance(listener, Inbox):
                listener.queue.close()  # threads of the link and the clock that wait for room could not end
        if self._requester is not None:
            self._requester.close()
        if self._link is not None:
            self._link.close()
        self._clock.close()
        with self._lock:
            collections = list(self._collections.values())
        for collection in collections:
            collection.cancel()

    # -- for collections, listeners, channels and links --------------------------------------------------------------

    def requester(self) -> "Requester":
        """Return the requests of this bus."""
        from genus.bus._requests import Requester  # with the first request: `import genus` stays quick

        self._check_open()
        with self._requester_lock:
            if self._requester is None:
                self._requester = Requester(self)
            return self._requester

    def _is_own_request(self, number: int) -> bool:
        """Return whether a request was made on this bus."""
        return self._link is None or (self._requester is not None and self._requester.has_made(number))

    def _server(self, handler: RequestHandler[Any]) -> "Server":
        """Return what answers requests by a handler."""
        from genus.bus._requests import Server

        return Server(self, handler)

    def _prepare(self, event: Event) -> Event:
        """Stamp and check an event as it is before it is sent."""
        return event if self._check is None else self._check(event)

    @property
    def _preparing(self) -> "Prepare | None":
        """The function that stamps and checks events before they are sent; None if nothing is done."""
        return self._check

    def _send_all(self, events: Sequence[Event]) -> None:
        """Send events to other processes at once."""
        assert self._link is not None
        self._link.send_all(events)

    def _route(self, cls: type) -> "ClassRoute":
        """Return how events of a class reach their listeners."""
        self._check_open()
        return self._router.known_route(cls) or self._router.route(cls)

    def _add(
        self,
        listener: Listener[Any],
        on_problem: ProblemHandler | None = None,
        queue: EventQueue[Any] | None = None,
    ) -> None:
        """Deliver events to a listener from now on, and first the kept events that it matches.

        `queue` is the one that kept events are put into, whatever its capacity.
        """
        self._catch_up(listener, self._admit(listener, on_problem, queue))

    def _admit(
        self, listener: Listener[Any], on_problem: ProblemHandler | None, queue: EventQueue[Any] | None
    ) -> CatchUp | None:
        """Make a listener known to the router and the link; it then has to catch up if there may be kept events."""
        self._check_open()
        with self._last_values.lock:
            is_kept = self._keeping_link is not None or self._last_values.accepted_by(listener.subscription)
            catch_up = CatchUp(listener, queue) if is_kept else None
            self._router.add(listener)
        try:
            if self._link is not None:
                self._unlisten[listener] = self._link.listen(listener.subscription, on_problem)
        except BaseException:
            self._remove(listener)
            raise
        return catch_up

    def _catch_up(self, listener: Listener[Any], catch_up: CatchUp | None) -> None:
        try:
            if catch_up is not None:
                catch_up.run(partial(self._kept_for, listener))
        except BaseException:
            self._remove(listener)
            raise
        if listener.is_cancelled or self._closed:  # by another thread, in the meantime
            self._remove(listener)

    def _kept_for(self, listener: Listener[Any]) -> list[KeptEvent]:
        kept = self._last_values.matching(listener)
        if self._keeping_link is not None:
            return self._last_values.merge(kept, self._keeping_link.last_values(listener.subscription))
        return kept

    def _remove(self, listener: Listener[Any]) -> None:
        """Deliver no more events to a listener."""
        if isinstance(listener, AsyncListener):
            with self._lock:
                self._cancelled.add(listener)
        unlisten = self._unlisten.pop(listener, None)
        if unlisten is not None:
            unlisten()
        self._router.remove(listener)

    def _announce(
        self,
        cls: type,
        qos: QoS,
        on_problem: ProblemHandler | None = None,
        carries: tuple[str, ...] = (),
        keep: Keep | None = None,
    ) -> Publisher:
        """Prepare to publish a type with a quality of service; BusError if the medium cannot keep it."""
        return self._announcer.announce(cls, qos, on_problem, carries, keep)

    def _join(
        self, types: tuple[type, ...], consumer: Listener[Any], on_problem: ProblemHandler | None = None
    ) -> RoundRobin:
        """Let a consumer share the events of a type with others; the first of them gets the kept events."""
        self._check_open()
        with self._groups_lock:
            group = self._groups.get(types)
            if group is not None:
                group.join(consumer, on_problem)
                return group
            if (shared := self._share(types, consumer, on_problem)) is not None:
                return shared
            group = RoundRobin(self, Subscription(AllOf(types)))
            group.join(consumer, on_problem)
            tell = partial(_tell, group) if on_problem is not None else None
            catch_up = self._admit(group, tell, consumer.queue if isinstance(consumer, Inbox) else None)
            self._groups[types] = group
        try:
            self._catch_up(group, catch_up)  # without the lock, as it calls handlers
        except BaseException:
            self._groups.pop(types, None)
            raise
        return group

    def _share(
        self, types: tuple[type, ...], consumer: Listener[Any], on_problem: ProblemHandler | None
    ) -> RoundRobin | None:
        """Share events with consumers in other processes that ask the same; None if the link cannot."""
        if self._link is None:
            return None
        group = RoundRobin(self, consumer.subscription, is_shared=True)
        group.join(consumer, on_problem)
        end = self._link.share(group.subscription, group.take, group.problem_handlers)
        if end is None:
            return None
        self._groups[types] = group
        group.on_empty = partial(self._end_group, types, group, end)
        return group

    def _end_group(self, types: tuple[type, ...], group: RoundRobin, end: Callable[[], None]) -> None:
        with self._groups_lock:
            if not group.is_left:  # another consumer has joined in the meantime
                return
            if self._groups.get(types) is group:
                del self._groups[types]
        end()

    def _report_error(self, listener: Listener[Any], event: Event, problem: Exception) -> None:
        """Report a handler's error to `on_error`; to the log without one, or if that raises itself."""
        try:
            if self._on_error is not None:
                self._on_error(listener, event, problem)
        except Exception:
            log().exception("on_error failed")
        if self._on_error is None:
            log().error("a handler of %r failed on %r", str(listener.subscription), event, exc_info=problem)

    def _listeners(self) -> list[Listener[Any]]:
        with self._lock:
            return [one for collection in self._collections.values() for one in collection.listeners]

    def _async_listeners(self) -> list[AsyncListener[Any]]:
        """Those that there are, and those that were cancelled."""
        with self._lock:
            return [*self._cancelled, *(one for one in self._listeners() if isinstance(one, AsyncListener))]

    def _check_open(self) -> None:
        if self._closed:
            raise BusError("the bus is closed")


def _tell(group: RoundRobin, problem: object) -> None:
    """Call the problem handlers of the consumers of a group."""
    for handler in group.problem_handlers():
        try:
            handler(problem)
        except Exception:
            log().exception("a problem handler failed on %r", problem)


def _system_clock(link: Link | None) -> SystemClock:
    """Return the system's clock; its precision is known only within a process."""
    return SystemClock(precision_ns=(lambda: None) if link is not None else system_resolution)


def _nanoseconds_of(time: object) -> int:
    if isinstance(time, int):
        return time
    if not isinstance(time, datetime):
        raise BusError(f"{time!r} is not a point in time; give a datetime with a time zone, or nanoseconds since 1970")
    if time.tzinfo is None:
        raise BusError(f"{time.isoformat()} has no time zone; write for example datetime(..., tzinfo=UTC)")
    return (time - _EPOCH) // timedelta(microseconds=1) * 1000
