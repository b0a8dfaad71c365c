"""`Collection`: the typed object a program publishes to and subscribes from."""

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from types import CodeType, MethodType
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeAlias, TypeVar, overload

from genus.bus._channel import BatchOwner, PublishMethod, describe_unfit, new_class, publish_at_once, publish_each
from genus.bus._link import ProblemHandler, WaitFor
from genus.bus._listener import (
    AsyncListener,
    Deduplicator,
    Handler,
    Inbox,
    Listener,
    ListenerOwner,
    RoundRobin,
    check_handler,
    is_async,
)
from genus.bus._queue import EventQueue, Overflow, check_count, check_queue
from genus.bus._router import Interested
from genus.errors import BusError, EventError
from genus.filters import Subscription
from genus.filters.types import AllOf, AttributeNames, Predicate, Term
from genus.model import Event, Span, is_event_type, is_type, name_of

if TYPE_CHECKING:
    from genus.bus._class_route import ClassRoute
    from genus.bus._requests import Requester, Server

T = TypeVar("T")
R = TypeVar("R", bound=Event)
L = TypeVar("L", bound=Listener[Any])

Flavour: TypeAlias = Literal["bag", "set", "queue"]
"""bag: every event to every subscriber. set: equal events once. queue: each event to one subscriber, in turn."""

RequestHandler: TypeAlias = Callable[[T], Event | None] | Callable[[T], Awaitable[Event | None]]
"""A function or coroutine function of a request that returns its reply."""
_DECORATE: Any = object()
"""Stands for a handler that is decorated; None would hide that a function was called instead of passed."""
SERVED_AT_ONCE = 16
"""How many requests a coroutine function handles at a time by default."""

CAPACITY = 1024
"""How many events a queue holds by default."""


class CollectionOwner(ListenerOwner, BatchOwner, Protocol):
    """What a collection needs of its bus."""

    wait_for: WaitFor | None
    _is_batching: bool
    """Whether its link takes many events at once."""

    def requester(self) -> "Requester":
        """Return the requests of the bus."""

    def _server(self, handler: RequestHandler[Any]) -> "Server":
        """Return what answers requests by a handler."""

    @property
    def _interested(self) -> Interested:
        """Who is interested in events; to be called when a listener comes or goes."""

    def _route(self, cls: type) -> "ClassRoute":
        """Return how events of a class reach their listeners."""

    def _add(
        self,
        listener: Listener[Any],
        on_problem: ProblemHandler | None = None,
        queue: EventQueue[Any] | None = None,
    ) -> None:
        """Deliver events to a listener, and kept ones whatever the capacity of its queue."""

    def _join(
        self, types: tuple[type, ...], consumer: Listener[Any], on_problem: ProblemHandler | None = None
    ) -> RoundRobin:
        """Let a consumer share the events of a type with others."""


class Collection(Generic[T]):
    """All events of a type: publish to it, subscribe to it, take an inbox of it.

    Made by `bus.collection(type)`; type checkers know what its handlers get.

    >>> from genus import Event, open_bus, this
    >>> class Loop(Event):
    ...     lane: int
    >>> with open_bus("local:") as bus:
    ...     loops = bus.collection(Loop)
    ...     @loops.subscribe(where=this.lane > 1)
    ...     def on_fast_lane(event: Loop) -> None:
    ...         print(event)
    ...     loops.publish(Loop(lane=1))
    ...     loops.publish(Loop(lane=2))
    Loop(lane=2)
    """

    def __init__(
        self, bus: CollectionOwner, types: tuple[type, ...], flavour: Flavour, dedup_window: int, method: PublishMethod
    ) -> None:
        self.types = types
        self.flavour = flavour
        self.dedup_window = dedup_window
        self.listeners: dict[Listener[T], None] = {}
        self.publishers: dict[type, Callable[[Any], object]] = _Publishers(self)
        self._bus = bus
        self._group: RoundRobin | None = None
        self._method = method
        self._hot: type | None = None
        """The class whose code `publish` has."""

    def __repr__(self) -> str:
        return f"<Collection of {' & '.join(map(name_of, self.types))}, {self.flavour}>"

    # -- publishing --------------------------------------------------------------------------------------------------

    def publish(self, event: T, /) -> None:
        """Give an event of this type to every subscriber whose subscription matches it.

        Raises:
            EventError: The event is not of this type; or a predicate cannot be tested, as a value does not have its
                declared type. All other subscribers get the event in that case.
            QueueFull: A queue with `overflow="raise"` is full, or one with `overflow="block"` was closed while this
                call waited. All other subscribers got the event.
            BusError: The bus is closed.
        """
        self.publishers[type(event)](event)

    def publish_all(self, events: Iterable[T]) -> int:
        """Publish events in their order, and return their number; links that can send many at once get them so.

        The errors are those of `publish`; a note on the error says which event it was and what became of the others.
        One at a time, those before it were published. Where a link sends them at once, none was if an event is not
        valid, and all were if a queue with `overflow="raise"` is full.
        """
        if self._bus._is_batching:
            return publish_at_once(self._bus, self._deliver_of, events)
        return publish_each(self.publish, events)

    def _deliver_of(self, event: object) -> Callable[[Any], object]:
        if type(event) not in self.publishers:
            self._check_event(event)
        return self._bus._route(type(event)).deliver

    def _make_publisher(self, cls: type) -> Callable[[Any], object]:
        """Return a function that publishes events of one class, or that refuses them."""
        return self._bus._route(cls).publisher(self) if self._accepts(cls) else self._check_event

    def _accepts(self, cls: type) -> bool:
        return issubclass(cls, Event) and all(issubclass(cls, wanted) for wanted in self.types)

    def _check_event(self, event: object) -> None:
        if not self._accepts(type(event)):
            names = [name_of(wanted) for wanted in self.types]
            is_namesake = is_type(type(event)) and name_of(type(event)) in names
            why = "it is another class of that name" if is_namesake else f"it is no {' & '.join(names)}"
            why = "" if isinstance(event, type) else f": {why}"
            raise EventError(f"{self!r} cannot publish {describe_unfit(event)}{why}")

    # -- for routes, with the bus's lock; `_channel` explains it -------------------------------------------------

    def _install(self, cls: type, code: CodeType) -> None:
        """Run code to publish events of a class: as `publish` itself, if it has none yet."""
        if self._hot is None:
            self._hot = cls
            self._method.use(code)
            self.publishers[cls] = self.publish
        else:
            from genus.targets.dispatch import make_function

            self.publishers[cls] = MethodType(make_function(code), self)

    def _discard(self, cls: type) -> None:
        """Ask the route for new code with the next event of a class."""
        self.publishers.pop(cls, None)
        if self._hot is cls:
            self._hot = None
            self._method.reset()

    # -- subscribing -------------------------------------------------------------------------------------------------

    @overload
    def subscribe(
        self,
        handler: Handler[T],
        *,
        exact: bool = ...,
        has: AttributeNames = ...,
        lacks: AttributeNames = ...,
        where: Predicate | Term | str | None = ...,
        capacity: int = ...,
        overflow: Overflow = ...,
        concurrency: int = ...,
        on_problem: ProblemHandler | None = ...,
        strict: bool = ...,
    ) -> Listener[T]: ...

    @overload
    def subscribe(
        self,
        *,
        exact: bool = ...,
        has: AttributeNames = ...,
        lacks: AttributeNames = ...,
        where: Predicate | Term | str | None = ...,
        capacity: int = ...,
        overflow: Overflow = ...,
        concurrency: int = ...,
        on_problem: ProblemHandler | None = ...,
        strict: bool = ...,
    ) -> Callable[[Handler[T]], Listener[T]]: ...

    def subscribe(
        self,
        handler: Handler[T] = _DECORATE,
        *,
        exact: bool = False,
        has: AttributeNames = (),
        lacks: AttributeNames = (),
        where: Predicate | Term | str | None = None,
        capacity: int = CAPACITY,
        overflow: Overflow | None = None,
        concurrency: int = 1,
        on_problem: ProblemHandler | None = None,
        strict: bool = False,
    ) -> Listener[T] | Callable[[Handler[T]], Listener[T]]:
        """Call a handler with every event that matches; pass the handler, or use the call as a decorator.

        A function runs in the publisher's thread (on a medium: in the thread of its receiver); a coroutine function
        runs in the event loop it was subscribed from, behind a queue. A handler that raises is reported and counted;
        other handlers are not affected. So are events for a coroutine function whose event loop has ended.

        Args:
            handler: A function or coroutine function of one event.
            exact: Only the type itself, without its subtypes.
            has: Attributes that must be present.
            lacks: Attributes that must be absent.
            where: A predicate, or its text.
            capacity: The length of the queue before a coroutine function.
            overflow: What happens when that queue is full; by default the oldest events are dropped, which is logged.
            concurrency: How many events a coroutine function may be handling at a time. With more than 1 the handling
                of an event may end before that of an earlier one.
            on_problem: Is called with what a medium could not deliver, where the medium knows (events lost or missing).
            strict: Refuse a subscription that can never match; without it, such a one gives a `SubscriptionWarning`.

        Returns:
            A listener, to cancel the subscription and to read its counters; without `handler`, a decorator.

        Raises:
            SubscriptionError: The type has no such attribute, or the predicate compares what cannot be compared; with
                `strict`, also if it can never be true.
            BusError: The bus is closed, the handler does not take one event, or it is a coroutine function and no event
                loop is running.
        """
        subscription: Subscription[T] = Subscription(
            AllOf(self.types), exact=exact, has=has, lacks=lacks, where=where, strict=strict
        )

        def listen(handler: Handler[T]) -> Listener[T]:
            return self._add_handler(subscription, handler, capacity, overflow, on_problem, concurrency)

        return listen if handler is _DECORATE else listen(handler)

    def inbox(
        self,
        *,
        exact: bool = False,
        has: AttributeNames = (),
        lacks: AttributeNames = (),
        where: Predicate | Term | str | None = None,
        capacity: int = CAPACITY,
        overflow: Overflow | None = None,
        on_problem: ProblemHandler | None = None,
        strict: bool = False,
    ) -> Inbox[T]:
        """Return a bounded queue of matching events: take them with `get`, or iterate with `for` or `async for`.

        `exact`, `has`, `lacks`, `where`, `on_problem` and `strict` mean what they mean in `subscribe`.

        Args:
            capacity: The length of the queue.
            overflow: What happens when the queue is full; by default the oldest events are dropped, which is logged.
        """
        subscription: Subscription[T] = Subscription(
            AllOf(self.types), exact=exact, has=has, lacks=lacks, where=where, strict=strict
        )
        return self._add_inbox(subscription, capacity, overflow, on_problem)

    def cancel(self, which: Listener[T] | Handler[T] | None = None) -> None:
        """Cancel a listener, every listener of a handler, or all that were made from this collection."""
        with self._bus._lock:
            chosen = [one for one in self.listeners if which is None or which in (one, one.handler)]
        for listener in chosen:
            listener.cancel()

    # -- requests ----------------------------------------------------------------------------------------------------

    def request(self, event: T, reply: type[R], *, timeout: Span = "2s") -> R:
        """Publish a request, and block until the first reply of a type that names it.

        Not for handlers that run in the thread of a receiver: they keep the reply from being received. In a coroutine,
        use `request_async`.

        Args:
            event: An event with an integer attribute `request`, which is filled in:
                `request: Maybe[UInt32] = None`.
            reply: The type of the reply, which has such an attribute too: `request: UInt32 = 0`. A reply of a subtype
                is one; others are ignored.
            timeout: How long to wait, in the bus's time.

        Returns:
            The reply. Later ones are ignored, and counted in `bus.traffic().requests`.

        Raises:
            RequestTimeout: No reply came in time.
            NoReceiver: Nobody subscribed to the request, as far as the medium knows.
            RequestRefused: A program refused it; `reason` says why.
            BusError: A type has no attribute `request`, the bus is closed, or an event loop runs in this thread.
            SpanError: `timeout` is no length of time.

        >>> from genus import Event, Maybe, UInt32, open_bus
        >>> class Move(Event):
        ...     metres: float
        ...     request: Maybe[UInt32] = None
        >>> class Moved(Event):
        ...     metres: float
        ...     request: UInt32 = 0
        >>> with open_bus() as bus:
        ...     moves = bus.collection(Move)
        ...     server = moves.serve(lambda move: Moved(metres=min(move.metres, 2.0)))
        ...     moves.request(Move(metres=3.5), Moved).metres
        2.0
        """
        self._check_event(event)
        return self._bus.requester().request(event, reply, self.publish, timeout)  # type: ignore[arg-type, return-value]

    async def request_async(self, event: T, reply: type[R], *, timeout: Span = "2s") -> R:
        """Do the same as `request` without blocking the event loop."""
        self._check_event(event)
        requester = self._bus.requester()
        return await requester.request_async(event, reply, self.publish, timeout)  # type: ignore[arg-type, return-value]

    @overload
    def serve(
        self,
        handler: RequestHandler[T],
        *,
        exact: bool = ...,
        has: AttributeNames = ...,
        lacks: AttributeNames = ...,
        where: Predicate | Term | str | None = ...,
        concurrency: int | None = ...,
    ) -> Listener[T]: ...

    @overload
    def serve(
        self,
        *,
        exact: bool = ...,
        has: AttributeNames = ...,
        lacks: AttributeNames = ...,
        where: Predicate | Term | str | None = ...,
        concurrency: int | None = ...,
    ) -> Callable[[RequestHandler[T]], Listener[T]]: ...

    def serve(
        self,
        handler: RequestHandler[T] = _DECORATE,
        *,
        exact: bool = False,
        has: AttributeNames = (),
        lacks: AttributeNames = (),
        where: Predicate | Term | str | None = None,
        concurrency: int | None = None,
    ) -> Listener[T] | Callable[[RequestHandler[T]], Listener[T]]:
        """Answer requests: call a handler with each that matches, and publish the reply that it returns.

        The handler is a function or coroutine function, as in `subscribe`, also as a decorator. The reply is an event
        whose type has `request: UInt32 = 0`, which is filled in. A handler that raises `RequestRefused` refuses the
        request, with the error's text as the reason; other errors are reported as those of any handler, and the
        requester is told that it failed. A handler that returns None gives no reply. An event without a request number
        is handled and not replied to.

        Args:
            handler: A function or coroutine function of one request.
            exact: As in `subscribe`, and so are `has`, `lacks` and `where`.
            concurrency: How many requests a coroutine function may be handling at a time, so that a slow one does not
                hold up the others: 16, unless given. Give 1 where their order matters.

        Raises:
            BusError: The type has no attribute `request`; and as in `subscribe`.
        """
        from genus.bus._requests import check_numbered  # with the first server: `import genus` stays quick

        if is_event_type(self.types[0]) and self.types[0] is not Event:
            check_numbered(self.types[0])

        def listen(handler: RequestHandler[T]) -> Listener[T]:
            check_handler(handler)
            server = self._bus._server(handler)
            answer, at_once = (server.handle_async, SERVED_AT_ONCE) if is_async(handler) else (server.handle, 1)
            at_once = at_once if concurrency is None else concurrency
            return self.subscribe(answer, exact=exact, has=has, lacks=lacks, where=where, concurrency=at_once)  # type: ignore[arg-type]

        return listen if handler is _DECORATE else listen(handler)

    # -- for the bus -------------------------------------------------------------------------------------------------

    def _add_handler(
        self,
        subscription: Subscription,
        handler: Handler[T],
        capacity: int,
        overflow: Overflow | None,
        on_problem: ProblemHandler | None,
        concurrency: int,
    ) -> Listener[T]:
        """Call a handler with what a subscription matches."""
        check_handler(handler)
        check_queue(capacity, overflow)
        check_count("concurrency", concurrency)
        if is_async(handler):
            return self._add(
                AsyncListener(self._bus, subscription, handler, capacity, overflow, concurrency), on_problem
            )
        if concurrency > 1:
            raise BusError(f"concurrency={concurrency} needs a coroutine function (async def) as handler")
        return self._add(Listener(self._bus, subscription, handler), on_problem)

    def _add_inbox(
        self, subscription: Subscription, capacity: int, overflow: Overflow | None, on_problem: ProblemHandler | None
    ) -> Inbox[T]:
        """Queue what a subscription matches."""
        return self._add(Inbox(self._bus, subscription, capacity, overflow, self._bus.wait_for), on_problem)

    def _add_listener(self, listener: L) -> L:
        """Deliver events to a listener that was made for them."""
        return self._add(listener, None)

    def _add(self, listener: L, on_problem: ProblemHandler | None) -> L:
        if self.flavour == "set":
            listener.deliver = Deduplicator(listener, self.dedup_window)
        listener.on_cancel = partial(self._remove, listener)
        with self._bus._lock:
            self.listeners[listener] = None
        try:
            self._connect(listener, on_problem)
        except BaseException:
            self._remove(listener)
            raise
        if isinstance(listener, AsyncListener):
            listener.start()
        self._bus._interested.listeners_changed()
        return listener

    def _connect(self, listener: Listener[Any], on_problem: ProblemHandler | None) -> None:
        if self.flavour == "queue":
            self._group = self._bus._join(self.types, listener, on_problem)
        else:
            self._bus._add(listener, on_problem, listener.queue if isinstance(listener, Inbox) else None)

    def _remove(self, listener: Listener[Any]) -> None:
        with self._bus._lock:
            self.listeners.pop(listener, None)
        if self._group is not None:
            self._group.leave(listener)
        self._bus._interested.listeners_changed()


def new_collection(
    bus: CollectionOwner, types: tuple[type, ...], flavour: Flavour, dedup_window: int
) -> Collection[Any]:
    """Return a collection with a class of its own, for its `publish`; see `_channel`."""
    cls, method = new_class(Collection, Collection.publish)
    collection: Collection[Any] = cls(bus, types, flavour, dedup_window, method)
    return collection


class _Publishers(dict[type, Callable[[Any], object]]):
    """Publishing functions by class, made with the first event of a class."""

    def __init__(self, collection: "Collection[Any]") -> None:
        super().__init__()
        self._collection = collection

    def __missing__(self, cls: type) -> Callable[[Any], object]:
        return self._collection._make_publisher(cls)
