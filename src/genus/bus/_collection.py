"""`Collection`: the typed object a program publishes to and subscribes from."""

from collections.abc import AsyncIterator, Callable
from functools import partial
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar, overload

from genus.bus._listener import AsyncListener, Handler, Inbox, Listener, Once, Rota, is_async
from genus.bus._queue import WhenFull
from genus.errors import BusError, EventError
from genus.filters import AllOf, AttributeNames, Predicate, Subscription, Term
from genus.model import Event, name_of

if TYPE_CHECKING:
    from genus.bus._bus import Bus

T = TypeVar("T")
L = TypeVar("L", bound=Listener[Any])

Flavour: TypeAlias = Literal["bag", "set", "queue"]
"""bag: every event to every subscriber. set: equal events once. queue: each event to one subscriber, in turn."""

CAPACITY = 1024


class Collection(Generic[T]):
    """All events of a type, as far as one program is concerned: publish to it, subscribe to it, take from it.

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

    It is generated code, made anew when subscriptions change; a reference to it stays good.
    """

    def __init__(self, bus: "Bus", types: tuple[type, ...], flavour: Flavour, remember: int) -> None:
        self.bus = bus
        self.types = types
        self.flavour = flavour
        self.remember = remember
        self.listeners: dict[Listener[T], None] = {}
        self._inbox: Inbox[T] | None = None
        self._rota: Rota | None = None
        self._hot: tuple[type, FunctionType, CodeType] | None = None
        self._routes = _Routes(self)
        self.publish = self._first

    def __repr__(self) -> str:
        return f"<Collection of {' & '.join(map(name_of, self.types))}, {self.flavour}>"

    # -- publishing --------------------------------------------------------------------------------------------------

    def _first(self, event: T) -> None:
        self._routes[type(event)](event)

    def open_route(self, cls: type) -> Callable[[Any], None]:
        """A function that publishes one class; the first of them becomes `publish` itself."""
        if not all(issubclass(cls, wanted) for wanted in self.types) or not issubclass(cls, Event):
            raise EventError(
                f"{self!r} cannot publish a {cls.__name__}: it is no {' & '.join(map(name_of, self.types))}"
            )
        function, stale = self.bus.dispatch(cls).publisher(self._routes)
        if self._hot is None:
            self._hot = (cls, function, stale)
            self.publish = function
        return function

    def close_route(self, cls: type) -> None:
        """Make the function of a class anew when its next event comes."""
        self._routes.pop(cls, None)
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
    ) -> Listener[T] | Callable[[Handler[T]], Listener[T]]:
        """Call a handler with every event that matches; use it as a decorator or with the handler as argument.

        The handler runs in the publisher's thread; a coroutine function runs in the event loop it was subscribed
        from, behind a queue of `capacity` whose policy is `full`. A handler that raises is reported and counted, and
        stops nobody else.
        """
        subscription = Subscription(AllOf(self.types), exact=exact, has=has, lacks=lacks, where=where)

        def listen(handler: Handler[T]) -> Listener[T]:
            return self.listen(subscription, handler, capacity, full)

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
    ) -> Inbox[T]:
        """Keep matching events until they are taken, by `get` or by iterating; bounded, `full` being the policy."""
        subscription = Subscription(AllOf(self.types), exact=exact, has=has, lacks=lacks, where=where)
        return self.keep(subscription, capacity, full)

    def listen(self, subscription: Subscription, handler: Handler[T], capacity: int, full: WhenFull) -> Listener[T]:
        """Call a handler with what a ready-made subscription matches."""
        if not callable(handler):
            raise BusError(f"{handler!r} is no handler: it cannot be called with an event")
        if is_async(handler):
            return self._admit(AsyncListener(self.bus, subscription, handler, capacity, full))
        return self._admit(Listener(self.bus, subscription, handler))

    def keep(self, subscription: Subscription, capacity: int, full: WhenFull) -> Inbox[T]:
        """Keep what a ready-made subscription matches until it is taken."""
        return self._admit(Inbox(self.bus, subscription, capacity, full))

    def _admit(self, listener: L) -> L:
        if self.flavour == "set":
            listener.deliver = Once(listener, self.remember)
        if self.flavour == "queue":
            self._rota = self.bus.rota(self.types)
            self._rota.join(listener)
        else:
            self.bus.admit(listener)
        self.listeners[listener] = None
        listener.on_cancel = partial(self._dismiss, listener)
        if isinstance(listener, AsyncListener):
            listener.start()
        return listener

    # -- taking ------------------------------------------------------------------------------------------------------

    def get(self, timeout: float | None = None) -> T:
        """The next event published from the first call of `get` (or iteration) on; TimeoutError if none comes."""
        return self._own_inbox().get(timeout)

    def __aiter__(self) -> AsyncIterator[T]:
        return self._own_inbox().__aiter__()

    def _own_inbox(self) -> Inbox[T]:
        if self._inbox is None:
            self._inbox = self.inbox()
        return self._inbox

    def cancel(self, which: Listener[T] | Handler[T] | None = None) -> None:
        """Cancel a listener, every listener of a handler, or all that were made from this collection."""
        for listener in [one for one in self.listeners if which is None or which in (one, one.handler)]:
            listener.cancel()

    def _dismiss(self, listener: Listener[Any]) -> None:
        self.listeners.pop(listener, None)
        if self._rota is not None:
            self._rota.leave(listener)
        if listener is self._inbox:
            self._inbox = None


class _Routes(dict[type, Callable[[Any], None]]):
    """Publishing functions by class, made when the first event of a class comes."""

    def __init__(self, collection: "Collection[Any]") -> None:
        super().__init__()
        self._collection = collection

    def __missing__(self, cls: type) -> Callable[[Any], None]:
        with self._collection.bus.lock:
            if cls not in self:
                self[cls] = self._collection.open_route(cls)
            return self[cls]
