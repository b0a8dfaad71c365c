"""Live subscriptions: a `Listener` calls a handler, an `Inbox` is a queue of matching events."""

import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

import msgspec

from genus.bus._link import ProblemHandler, WaitFor
from genus.bus._queue import Closed, EventQueue, Overflow
from genus.errors import BusError, EventError, QueueFull
from genus.filters import Subscription
from genus.model import Event, Span, seconds

if TYPE_CHECKING:
    import asyncio

    from genus.targets.dispatch import EventCounts
    from genus.targets.python import PythonFilter

T = TypeVar("T")

Handler: TypeAlias = Callable[[T], object]
"""A function or coroutine function of one event."""


class Counters(msgspec.Struct, frozen=True, gc=False):
    """What became of the events of one subscription.

    `delivered` matched and were given to the handler or queue. Of these `failed` made the handler raise, `dropped`
    found the queue full or closed or lost their event loop, and `waiting` are in the queue: `delivered - dropped -
    waiting` were taken.
    """

    delivered: int
    failed: int
    dropped: int
    waiting: int

    def __add__(self, other: "Counters") -> "Counters":
        return Counters(
            self.delivered + other.delivered,
            self.failed + other.failed,
            self.dropped + other.dropped,
            self.waiting + other.waiting,
        )


class ListenerOwner(Protocol):
    """What a listener needs of its bus."""

    _lock: "threading.RLock"

    def _report_error(self, listener: "Listener[Any]", event: Event, problem: Exception) -> None:
        """Report an error that a handler raised."""

    def _remove(self, listener: "Listener[Any]") -> None:
        """Deliver no more events to a listener."""


class DeliveryCounter(Protocol):
    """What counts the deliveries of very many listeners."""

    def delivered(self, listener: "Listener[Any]") -> int:
        """Return the deliveries to a listener, with those in its `counted`."""


class Listener(Generic[T]):
    """A handler and its subscription; `cancel()` it to stop. Calling it calls the handler.

    As a context manager it is cancelled at the end of the block.
    """

    __slots__ = (
        "__weakref__", "_bus", "_counts", "_filter", "counted", "deliver", "failures", "handler", "index",
        "is_cancelled", "last_error", "on_cancel", "refuses", "subscription", "suppressed",
    )  # fmt: skip

    def __init__(self, bus: ListenerOwner, subscription: Subscription, handler: Handler[T]) -> None:
        self.subscription = subscription
        self.handler = handler
        self.deliver: Callable[[Any], object] = handler
        self.refuses = False
        """Whether the publisher may get an error of this listener's queue."""
        self.is_cancelled = False
        self.counted = 0
        """Deliveries, but for those that `index` counts, and by generated code that tests no condition: `_counts`."""
        self.index: DeliveryCounter | None = None
        self.suppressed = 0
        """Deliveries that were no new event: the flavour `set`."""
        self.failures = 0
        self.last_error = ""
        """What the handler raised last, as text."""
        self.on_cancel: Callable[[], None] = lambda: None
        self._bus = bus
        self._counts: list[EventCounts] = []
        self._filter: PythonFilter | None = None

    def __call__(self, event: T) -> object:
        """Call the handler itself."""
        return self.handler(event)

    def __enter__(self) -> "Listener[T]":
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {str(self.subscription)!r}, {self.counters}>"

    @property
    def counters(self) -> Counters:
        """How many events were delivered, failed in the handler, were dropped, and are waiting."""
        own = self.counted if self.index is None else self.index.delivered(self)
        by_code = self._delivered_by_code() if self._counts else 0
        return Counters(own + by_code - self.suppressed, self.failures, 0, 0)

    def _delivered_by_code(self) -> int:
        with self._bus._lock:
            return sum([counts.events for counts in self._counts])

    @property
    def is_conditional(self) -> bool:
        """Whether the subscription asks more than a type."""
        asked = self.subscription
        return asked.where is not None or bool(asked.has or asked.lacks)

    def matcher(self, cls: type) -> "Callable[[Event], bool] | None":
        """Return a function that tests the subscription on events of a class that it accepts; None if all match."""
        from genus.targets.python import PythonFilter

        if not self.is_conditional:
            return None
        if self._filter is None:
            self._filter = PythonFilter(self.subscription)
        return self._filter.for_class(cls)

    def asked(self) -> list[Subscription]:
        """Return what it asks for."""
        return [self.subscription]

    def takes(self, event: Event) -> bool:
        """Return whether an event that the subscription matches would be handled; others may decide that too."""
        return not self.is_cancelled

    def _count_by(self, counts: "EventCounts", most: int) -> None:
        """Count the events of generated code as delivered; the bus's lock is held.

        The last `most` generations of code that were replaced are kept, as a thread may still run them.
        """
        self._counts.append(counts)
        if len(self._counts) > most:
            replaced = [one for one in self._counts if one.is_replaced]
            for one in replaced[: max(0, len(replaced) - most)]:
                events = one.events
                self._counts.remove(one)
                self.counted += events

    def failed(self, event: Event, problem: Exception) -> Exception | None:
        """Count and report a handler's error; returns it if the publisher is to get it."""
        if self._is_refusal(problem):
            return problem
        self.failures += 1
        self.last_error = _error_text(problem)
        self._bus._report_error(self, event, problem)
        return None

    def _is_refusal(self, problem: Exception) -> bool:
        """Return whether an error comes from this listener's own queue, and not from its handler."""
        return False

    def cancel(self) -> None:
        """Stop from the next event on; a second call does nothing."""
        self.is_cancelled = True
        self._bus._remove(self)
        self.on_cancel()


class Inbox(Listener[T]):
    """A bounded queue of matching events: take them with `get` or `drain`, or by iterating, also with `async for`.

    Iteration waits for more events until the inbox is cancelled, and gives what waits then. `overflow` says what
    happens to events that find the queue full.
    """

    def __init__(
        self,
        bus: ListenerOwner,
        subscription: Subscription,
        capacity: int,
        overflow: Overflow | None,
        wait_for: WaitFor | None = None,
    ) -> None:
        self.queue: EventQueue[T] = EventQueue(str(subscription), capacity, overflow, wait_for)
        super().__init__(bus, subscription, self.queue.put)
        self.refuses = overflow in ("raise", "block")

    def __enter__(self) -> "Inbox[T]":
        return self

    @property
    def counters(self) -> Counters:
        """How many events were delivered into the inbox, failed, were dropped, and are waiting."""
        counted = super().counters
        return Counters(counted.delivered, counted.failed, self.queue.dropped, len(self.queue))

    def _is_refusal(self, problem: Exception) -> bool:
        return isinstance(problem, QueueFull) and problem.queue is self.queue

    def get(self, timeout: Span | None = None) -> T:
        """Take the next event, waiting for at most `timeout` (0: do not wait; None: wait without limit).

        Once the bus is closed or the inbox is cancelled, what waits can still be taken.

        Raises:
            TimeoutError: No event came in time.
            BusError: The inbox is cancelled and empty.
            SpanError: `timeout` is no length of time.
        """
        try:
            return self.queue.get(_timeout_s(timeout))
        except Closed:
            raise self._end() from None

    async def get_async(self, timeout: Span | None = None) -> T:
        """Do the same as `get` without blocking the event loop."""
        try:
            return await self.queue.get_async(_timeout_s(timeout))
        except Closed:
            raise self._end() from None

    def drain(self) -> list[T]:
        """Take all events that wait, the oldest first, without waiting for more; an empty list if there are none.

        >>> from genus import Event, open_bus
        >>> with open_bus() as bus:
        ...     inbox = bus.inbox(Event)
        ...     for place in ("A7", "A8"):
        ...         bus.publish(Event(place=place))
        >>> [event.place for event in inbox.drain()], inbox.drain()
        (['A7', 'A8'], [])
        """
        return self.queue.drain()

    def _end(self) -> BusError:
        return BusError(f"the inbox of {str(self.subscription)!r} is cancelled and empty")

    def __iter__(self) -> Iterator[T]:
        while True:
            try:
                yield self.queue.get()
            except Closed:
                return

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    async def __anext__(self) -> T:
        try:
            return await self.queue.get_async()
        except Closed:
            raise StopAsyncIteration from None

    def cancel(self) -> None:
        """Accept no more events; those that wait can still be taken."""
        super().cancel()
        self.queue.close()


def _timeout_s(timeout: Span | None) -> float | None:
    """The seconds of a timeout; plain numbers are read quicker than other spans, as `get` is called for each event."""
    if timeout is None or (type(timeout) in (int, float) and 0 <= timeout < MAX_S):  # type: ignore[operator]
        return timeout  # type: ignore[return-value]
    return seconds(timeout, "timeout")


MAX_S = 1e9
"""Numbers below this are seconds without further tests."""


class AsyncListener(Inbox[T]):
    """A coroutine function as handler: events wait in a bounded queue for tasks of its event loop.

    One task calls the handler with one event after the other; `concurrency` allows more, which start when they are
    needed. If the loop ends before the subscription, the events that wait and those that still come are dropped,
    counted and reported.
    """

    def __init__(
        self,
        bus: ListenerOwner,
        subscription: Subscription,
        handler: Handler[T],
        capacity: int,
        overflow: Overflow | None,
        concurrency: int = 1,
    ) -> None:
        import asyncio

        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:
            raise BusError("an async handler needs a running event loop: subscribe from within a coroutine") from None
        super().__init__(bus, subscription, capacity, overflow)
        self.handler = handler
        self.deliver = self._put
        self.queue.loop_thread = threading.get_ident()
        self.queue.is_deserted = self._is_deserted
        self._concurrency = concurrency
        self._handling: dict[object, T] = {}
        """The events that are being handled."""
        self._is_started = False
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Start a task that calls the handler."""
        task = self._loop.create_task(self._run())
        self._is_started = True
        self._tasks.add(task)
        task.add_done_callback(self._end_task)

    @property
    def is_idle(self) -> bool:
        """Whether no event waits or is being handled."""
        return not self._tasks or self._is_deserted() or not (self._handling or len(self.queue))

    def cancel(self) -> None:
        """Accept no more events; those that wait are still handled, while the event loop runs."""
        super().cancel()
        if self._is_deserted():
            self._drop_all()

    def _is_deserted(self) -> bool:
        return self._loop.is_closed() or (self._is_started and not self._tasks)

    def _put(self, event: T) -> bool:
        if self.is_cancelled or not self._is_deserted():
            return self.queue.put(event)
        self._drop_all()
        self._drop(event)
        return False

    def _drop_all(self) -> None:
        """Report the events that wait, and those whose handling will never end."""
        while self._handling:
            self._fail(self._handling.popitem()[1], "did not come to its end, as its event loop has ended")
        for event in self.queue.drain():
            self._drop(event)

    def _drop(self, event: T) -> None:
        self.queue.dropped += 1
        self._bus._report_error(
            self,
            event,  # type: ignore[arg-type]
            BusError("the event loop of the handler has ended; cancel the subscription before, or let the loop run on"),
        )

    async def _run(self) -> None:
        key = object()
        async for event in self:
            self._handling[key] = event
            if len(self._handling) == len(self._tasks) < self._concurrency:
                self.start()
            await self._handle(event)
            del self._handling[key]

    def _end_task(self, task: "asyncio.Task[None]") -> None:
        """Without tasks and not cancelled, as when `asyncio.run` ends, nobody is left for what waits."""
        self._tasks.discard(task)
        if not self._tasks:
            self._drop_all()

    async def _handle(self, event: T) -> None:
        import asyncio

        try:
            await self.handler(event)  # type: ignore[misc]
        except asyncio.CancelledError as problem:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise  # the loop ends
            self._fail(event, f"was cancelled from within: {problem!r}")
        except Exception as problem:
            self.failed(event, problem)  # type: ignore[arg-type]

    def _fail(self, event: T, why: str) -> None:
        self.failed(event, RuntimeError(f"the handler {why}"))  # type: ignore[arg-type]


def _error_text(problem: Exception) -> str:
    """Return the class and the message of an error; only the class if it cannot say more."""
    name = type(problem).__name__
    try:
        return f"{name}: {problem}"[:200]
    except Exception:  # of a `__str__` of the user's
        return name


def check_handler(handler: Callable[..., object]) -> None:
    """Raise BusError if something cannot be called with one event; what does not show its parameters is accepted."""
    if not callable(handler):
        is_result = handler is None or hasattr(handler, "__await__")
        hint = "; pass the function itself, without calling it" if is_result else ""
        close = getattr(handler, "close", None) if hint else None
        if close is not None:
            close()  # a coroutine that nobody awaits would warn
        raise BusError(f"{handler!r} is not a handler: it cannot be called with an event{hint}")
    if not _takes_one(handler):
        import inspect

        name = getattr(handler, "__qualname__", None) or repr(handler)
        raise BusError(f"{name}{inspect.signature(handler)} is not a handler: it is called with one event")


def _takes_one(handler: Callable[..., object]) -> bool:
    """Return whether a function can be called with one argument; True if that cannot be known."""
    if isinstance(handler, FunctionType):
        return _can_take(handler, 1)
    if isinstance(handler, BuiltinFunctionType):  # such as `inbox.append`: reading its parameters takes long
        return True
    function = handler.__func__ if isinstance(handler, MethodType) else type(handler).__call__
    if isinstance(function, FunctionType):
        return _can_take(function, 2)
    import inspect

    try:
        inspect.signature(handler).bind(None)
    except ValueError:  # of a function in C that does not show its parameters
        return True
    except TypeError:
        return False
    return True


def _can_take(function: FunctionType, count: int) -> bool:
    """Return the same for a function in Python: `inspect.signature` would take longer than subscribing."""
    code = function.__code__
    required = code.co_argcount - len(function.__defaults__ or ())
    needs_names = code.co_kwonlyargcount > len(function.__kwdefaults__ or ())
    return required <= count and (count <= code.co_argcount or bool(code.co_flags & 0x04)) and not needs_names


def is_async(handler: Callable[..., object]) -> bool:
    """Return whether a handler, or its `__call__`, is a coroutine function."""
    import inspect

    if type(handler) is FunctionType:
        return inspect.iscoroutinefunction(handler)
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__)


class Deduplicator:
    """Delivers equal events once (the flavour `set`): it remembers the last `dedup_window` events."""

    def __init__(self, listener: Listener[Any], dedup_window: int) -> None:
        self._listener = listener
        self._deliver = listener.deliver
        self._remember = dedup_window
        self._seen: dict[object, None] = {}
        self._lock = threading.Lock()

    def __call__(self, event: Event) -> None:
        """Deliver an event unless an equal one was delivered; one that a full queue refused may come again."""
        key = _equality_key(event)
        with self._lock:
            if key in self._seen:
                self._listener.suppressed += 1
                return
            self._seen[key] = None
            if len(self._seen) > self._remember:
                del self._seen[next(iter(self._seen))]
        try:
            self._deliver(event)
        except QueueFull:
            with self._lock:
                self._seen.pop(key, None)
            raise


def _equality_key(event: Event) -> object:
    """Return the event itself, or its bytes if it carries a list or the like."""
    try:
        hash(event)
    except TypeError:
        return type(event), msgspec.msgpack.encode(event)
    return event


class RoundRobin(Listener[Any]):
    """A group of consumers of which each event goes to one, in turn: the flavour `queue`."""

    def __init__(self, bus: ListenerOwner, subscription: Subscription, *, is_shared: bool = False) -> None:
        super().__init__(bus, subscription, self._deliver_to_one)
        self.refuses = True
        self.on_empty: Callable[[], object] = lambda: None
        """Is called before the last consumer leaves, who still takes what comes meanwhile."""
        self._is_shared = is_shared
        self._consumers: dict[Listener[Any], PythonFilter] = {}
        self._leaving: set[Listener[Any]] = set()
        self._on_problem: dict[Listener[Any], ProblemHandler] = {}
        self._lock = threading.Lock()

    def join(self, consumer: Listener[Any], on_problem: ProblemHandler | None = None) -> None:
        """Add a consumer; BusError if the group shares events with others, and it asks for other events than they do.

        The medium gives an event to any member of a group, so that all must want the same.
        """
        from genus.targets.python import PythonFilter

        if self._is_shared and consumer.subscription != self.subscription:
            raise BusError(
                f"a queue that processes share has consumers that ask the same: there is one of "
                f"{str(self.subscription)!r}, so that {str(consumer.subscription)!r} cannot join"
            )
        with self._lock:
            self._consumers[consumer] = PythonFilter(consumer.subscription)
            if on_problem is not None:
                self._on_problem[consumer] = on_problem

    def problem_handlers(self) -> list[ProblemHandler]:
        """Return what the consumers gave as `on_problem`."""
        with self._lock:
            return list(self._on_problem.values())

    def leave(self, consumer: Listener[Any]) -> None:
        with self._lock:
            if consumer not in self._consumers:
                return
            self._leaving.add(consumer)
        if self.is_left:
            self.on_empty()
        with self._lock:
            self._consumers.pop(consumer, None)
            self._leaving.discard(consumer)
            self._on_problem.pop(consumer, None)

    @property
    def is_left(self) -> bool:
        """Whether all consumers are leaving, or have left."""
        with self._lock:
            return self._consumers.keys() <= self._leaving

    def take(self, event: Event) -> bool:
        """Deliver an event that a medium gave to this group; returns False if it is lost.

        That is, if there are no consumers, or none has room; the latter is reported as an error too.
        """
        try:
            is_settled = self._offer(event)
        except Exception as problem:
            self.failures += 1
            self._bus._report_error(self, event, problem)
            return not isinstance(problem, QueueFull)
        self.counted += is_settled
        return is_settled

    def asked(self) -> list[Subscription]:
        """Return what the consumers ask for."""
        with self._lock:
            return [consumer.subscription for consumer in self._consumers]

    def takes(self, event: Event) -> bool:
        """Return whether a consumer matches."""
        with self._lock:
            consumers = list(self._consumers)
        return any(consumer.subscription.matches(event) for consumer in consumers)

    def _is_refusal(self, problem: Exception) -> bool:
        """Errors of handlers go to their consumers; what is left is for the publisher."""
        return isinstance(problem, QueueFull | EventError)

    def _deliver_to_one(self, event: Event) -> None:
        """Deliver to the next consumer that matches and has room.

        Raises QueueFull if all that match are full, and EventError, after the delivery, if a value that is tested does
        not have its declared type.
        """
        self._offer(event)

    def _offer(self, event: Event) -> bool:
        """Deliver to one; returns whether a consumer took it, or there are some and none of them wants it."""
        candidates, problem = self._candidates(event)
        is_settled = not candidates and bool(self._consumers)
        refusal: Exception | None = None
        for consumer in candidates:
            is_settled, refusal = _try_deliver(consumer, event)
            if is_settled:
                break
        if (problem := refusal or problem) is not None:
            raise problem
        return is_settled

    def _candidates(self, event: Event) -> tuple[list[Listener[Any]], Exception | None]:
        """Return the consumers that match, the next in turn first, and the error of the event, if it has one."""
        from genus.targets.dispatch import match_each

        with self._lock:
            consumers = list(self._consumers)
            with contextlib.suppress(Exception):  # a test failed: the consumers are tested one by one, below
                matching = [consumer for consumer, matches in self._consumers.items() if matches(event)]
                self._move_to_end(matching)
                return matching, None
        matching, fault = match_each(consumers, event)
        with self._lock:
            self._move_to_end(matching)
        return matching, fault

    def _move_to_end(self, matching: list[Listener[Any]]) -> None:
        if matching and matching[0] in self._consumers:
            self._consumers[matching[0]] = self._consumers.pop(matching[0])


def _try_deliver(consumer: Listener[Any], event: Event) -> tuple[bool, Exception | None]:
    """Return whether a consumer took an event, and what its queue refused; one that is cancelled takes none."""
    is_taken: object = True
    consumer.counted += 1
    try:
        is_taken = consumer.deliver(event)
    except Exception as problem:
        if (refusal := consumer.failed(event, problem)) is not None:
            return False, refusal
    if is_taken is False and isinstance(consumer, Inbox):
        return False, None
    return True, None
