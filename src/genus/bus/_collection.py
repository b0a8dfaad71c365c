"""`Collection`: the typed object a program publishes to and subscribes from."""

import threading
from collections.abc import Callable
from functools import partial
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeAlias, TypeVar, overload

from genus.bus._link import TroubleHandler, WaitFor
from genus.bus._listener import (
    AsyncListener,
    Deduplicator,
    Handler,
    Inbox,
    Listener,
    ListenerOwner,
    RoundRobin,
    is_async,
)
from genus.bus._queue import WhenFull
from genus.errors import BusError, EventError
from genus.filters import AllOf, AttributeNames, Predicate, Subscription, Term
from genus.model import Event, name_of

if TYPE_CHECKING:
    from genus.targets.dispatch import ClassDispatcher

T = TypeVar("T")
L = TypeVar("L", bound=Listener[Any])

Flavour: TypeAlias = Literal["bag", "set", "queue"]
"""bag: every event to every subscriber. set: equal events once. queue: each event to one subscriber, in turn."""

CAPACITY = 1024
"""How many events a queue holds, unless told otherwise."""


class CollectionOwner(ListenerOwner, Protocol):
    """What a collection needs of its bus."""

    lock: threading.RLock
    wait_for: WaitFor | None

    def dispatcher(self, cls: type) -> "ClassDispatcher":
        """The code that delivers events of a class."""

    def add(self, listener: Listener[Any], on_trouble: TroubleHandler | None = None) -> None:
        """Deliver events to a listener."""

    def round_robin(self, types: tuple[type, ...]) -> RoundRobin:
        """The group of consumers that share the events of a type."""


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

    publish: Callable[[T], None]
    """`publish(event)` gives an event of this type to every subscriber whose subscription matches it.

    It is generated code, replaced when subscriptions change; a reference to it stays valid.
    """

    def __init__(self, bus: CollectionOwner, types: tuple[type, ...], flavour: Flavour, remember: int) -> None:
        self.types = types
        self.flavour = flavour
        self.remember = remember
        self.listeners: dict[Listener[T], None] = {}
        self._bus = bus
        self._group: RoundRobin | None = None
        self._hot: tuple[type, FunctionType, CodeType] | None = None
        self._publishers = _Publishers(self, bus.lock)
        self.publish = self._publish_first

    def __repr__(self) -> str:
        return f"<Collection of {' & '.join(map(name_of, self.types))}, {self.flavour}>"

    # -- publishing --------------------------------------------------------------------------------------------------

    def _publish_first(self, event: T) -> None:
        self._publishers[type(event)](event)

    def make_publisher(self, cls: type) -> Callable[[Any], None]:
        """A function that publishes events of one class; the first one made becomes `publish` itself."""
        if not all(issubclass(cls, wanted) for wanted in self.types) or not issubclass(cls, Event):
            raise EventError(
                f"{self!r} cannot publish a {cls.__name__}: it is no {' & '.join(map(name_of, self.types))}"
            )
        function, stale = self._bus.dispatcher(cls).publisher(self._publishers)
        if self._hot is None:
            self._hot = (cls, function, stale)
            self.publish = function
        return function

    def discard_publisher(self, cls: type) -> None:
        """Make the function of a class again with its next event."""
        self._publishers.pop(cls, None)
        if self._hot is not None and self._hot[0] is cls:
            _, function, stale = self._hot
            self._hot = None
            function.__code__ = stale

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
        full: WhenFull = ...,
        on_trouble: TroubleHandler | None = ...,
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
        full: WhenFull = ...,
        on_trouble: TroubleHandler | None = ...,
    ) -> Callable[[Handler[T]], Listener[T]]: ...

    def subscribe(
        self,
        handler: Handler[T] | None = None,
        *,
        exact: bool = False,
        has: AttributeNames = (),
        lacks: AttributeNames = (),
        where: Predicate | Term | str | None = None,
        capacity: int = CAPACITY,
        full: WhenFull = "drop_oldest",
        on_trouble: TroubleHandler | None = None,
    ) -> Listener[T] | Callable[[Handler[T]], Listener[T]]:
        """Call a handler with every event that matches; pass the handler, or use the call as a decorator.

        A function runs in the publisher's thread (on a medium: in the thread of its receiver); a coroutine function
        runs in the event loop it was subscribed from, behind a queue. A handler that raises is reported and counted;
        other handlers are not affected.

        Args:
            handler: A function or coroutine function of one event.
            exact: Only the type itself, without its subtypes.
            has: Attributes that must be present.
            lacks: Attributes that must be absent.
            where: A predicate, or its text.
            capacity: The length of the queue before a coroutine function.
            full: What happens when that queue is full.
            on_trouble: Is called with what a medium could not deliver, where the medium knows (events lost or missing).

        Returns:
            A listener, to cancel the subscription and to read its counters; without `handler`, a decorator.

        Raises:
            SubscriptionError: The type has no such attribute, or the predicate compares what cannot be compared.
            BusError: The bus is closed, or the handler is a coroutine function and no event loop is running.
        """
        subscription = Subscription(AllOf(self.types), exact=exact, has=has, lacks=lacks, where=where)

        def listen(handler: Handler[T]) -> Listener[T]:
            return self.add_handler(subscription, handler, capacity, full, on_trouble)

        return listen if handler is None else listen(handler)

    def inbox(
        self,
        *,
        exact: bool = False,
        has: AttributeNames = (),
        lacks: AttributeNames = (),
        where: Predicate | Term | str | None = None,
        capacity: int = CAPACITY,
        full: WhenFull = "drop_oldest",
        on_trouble: TroubleHandler | None = None,
    ) -> Inbox[T]:
        """A bounded queue of matching events: take them with `get`, or iterate over it with `for` or `async for`.

        `exact`, `has`, `lacks`, `where` and `on_trouble` mean what they mean in `subscribe`, with the same errors.

        Args:
            capacity: The length of the queue.
            full: What happens when the queue is full.
        """
        subscription = Subscription(AllOf(self.types), exact=exact, has=has, lacks=lacks, where=where)
        return self.add_inbox(subscription, capacity, full, on_trouble)

    def cancel(self, which: Listener[T] | Handler[T] | None = None) -> None:
        """Cancel a listener, every listener of a handler, or all that were made from this collection."""
        for listener in [one for one in self.listeners if which is None or which in (one, one.handler)]:
            listener.cancel()

    # -- for the bus -------------------------------------------------------------------------------------------------

    def add_handler(
        self,
        subscription: Subscription,
        handler: Handler[T],
        capacity: int,
        full: WhenFull,
        on_trouble: TroubleHandler | None,
    ) -> Listener[T]:
        """Call a handler with what a subscription matches."""
        if not callable(handler):
            raise BusError(f"{handler!r} is no handler: it cannot be called with an event")
        if is_async(handler):
            return self._add(AsyncListener(self._bus, subscription, handler, capacity, full), on_trouble)
        return self._add(Listener(self._bus, subscription, handler), on_trouble)

    def add_inbox(
        self, subscription: Subscription, capacity: int, full: WhenFull, on_trouble: TroubleHandler | None
    ) -> Inbox[T]:
        """Queue what a subscription matches."""
        return self._add(Inbox(self._bus, subscription, capacity, full, self._bus.wait_for), on_trouble)

    def add_listener(self, listener: L) -> L:
        """Deliver events to a listener that was made for them."""
        return self._add(listener, None)

    def _add(self, listener: L, on_trouble: TroubleHandler | None) -> L:
        if self.flavour == "set":
            listener.deliver = Deduplicator(listener, self.remember)
        if self.flavour == "queue":
            self._group = self._bus.round_robin(self.types)
            self._group.join(listener)
        else:
            self._bus.add(listener, on_trouble)
        self.listeners[listener] = None
        listener.on_cancel = partial(self._remove, listener)
        if isinstance(listener, AsyncListener):
            listener.start()
        return listener

    def _remove(self, listener: Listener[Any]) -> None:
        self.listeners.pop(listener, None)
        if self._group is not None:
            self._group.leave(listener)


class _Publishers(dict[type, Callable[[Any], None]]):
    """Publishing functions by class, made with the first event of a class."""

    def __init__(self, collection: "Collection[Any]", lock: threading.RLock) -> None:
        super().__init__()
        self._collection = collection
        self._lock = lock

    def __missing__(self, cls: type) -> Callable[[Any], None]:
        with self._lock:
            if cls not in self:
                self[cls] = self._collection.make_publisher(cls)
            return self[cls]
