"""Live subscriptions: a `Listener` calls a handler, an `Inbox` waits to be asked."""

import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

import msgspec

from genus.bus._queue import Closed, Mailbox, WhenFull
from genus.errors import BusError, QueueFull
from genus.filters import Subscription
from genus.model import Event

if TYPE_CHECKING:
    from genus.bus._bus import Bus
    from genus.targets.python import PythonFilter

T = TypeVar("T")

Handler: TypeAlias = Callable[[T], object]
"""A function or coroutine function of one event."""


class Counters(msgspec.Struct, frozen=True):
    """What became of the events of one subscription."""

    delivered: int
    failed: int
    dropped: int
    waiting: int


class Listener(Generic[T]):
    """A handler and what it subscribed to; call it to call the handler, `cancel` it to stop.

    As a context manager it is cancelled at the end of the block.
    """

    def __init__(self, bus: "Bus", subscription: Subscription, handler: Handler[T]) -> None:
        self.bus = bus
        self.subscription = subscription
        self.handler = handler
        self.deliver: Callable[[Any], object] = handler
        self.refuses = False
        self.settled = 0
        self.suppressed = 0
        self.failures = 0
        self.on_cancel: Callable[[], None] = lambda: None

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
        delivered = self.settled + self.bus.delivered_since(self) - self.suppressed
        return Counters(delivered, self.failures, 0, 0)

    def failed(self, event: Event, problem: Exception) -> Exception | None:
        """Count and report a handler's error; only an error the publisher must see is returned."""
        if self._refuses_by(problem):
            return problem
        self.failures += 1
        self.bus.report(self, event, problem)
        return None

    def _refuses_by(self, problem: Exception) -> bool:
        """Whether an error is the word of this listener's own queue, as opposed to a handler's error."""
        return False

    def cancel(self) -> None:
        """Deliver nothing more, from the next event on; cancelling twice does no harm."""
        self.bus.forget(self)
        self.on_cancel()


class Inbox(Listener[T]):
    """A subscription whose events wait until they are asked for, by `get` or by iterating, also with `async for`.

    It is bounded: `full` says what happens when nobody takes them.
    """

    def __init__(self, bus: "Bus", subscription: Subscription, capacity: int, full: WhenFull) -> None:
        self.mailbox: Mailbox[T] = Mailbox(str(subscription), capacity, full)
        super().__init__(bus, subscription, self.mailbox.put)
        self.refuses = full in ("raise", "block")

    def __enter__(self) -> "Inbox[T]":
        return self

    @property
    def counters(self) -> Counters:
        """How many events were delivered into the inbox, failed, were dropped, and are waiting."""
        counted = super().counters
        return Counters(counted.delivered, counted.failed, self.mailbox.dropped, len(self.mailbox))

    def _refuses_by(self, problem: Exception) -> bool:
        return isinstance(problem, QueueFull) and problem.queue is self.mailbox

    def get(self, timeout: float | None = None) -> T:
        """The next event; TimeoutError if none comes within `timeout` seconds, BusError once it is cancelled."""
        try:
            return self.mailbox.get(timeout)
        except Closed:
            raise BusError(f"the inbox of {str(self.subscription)!r} is cancelled and empty") from None

    def __iter__(self) -> Iterator[T]:
        while True:
            try:
                yield self.mailbox.get()
            except Closed:
                return

    async def __aiter__(self) -> AsyncIterator[T]:
        while True:
            try:
                event = await self.mailbox.get_async()
            except Closed:
                return
            yield event

    def cancel(self) -> None:
        """Deliver nothing more; what is waiting can still be taken."""
        super().cancel()
        self.mailbox.close()


class AsyncListener(Inbox[T]):
    """A coroutine function as handler: events wait in a bounded queue and are handled one after the other."""

    def __init__(
        self, bus: "Bus", subscription: Subscription, handler: Handler[T], capacity: int, full: WhenFull
    ) -> None:
        import asyncio

        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:
            raise BusError("an async handler needs a running event loop: subscribe from within a coroutine") from None
        super().__init__(bus, subscription, capacity, full)
        self.handler = handler
        self.mailbox.loop_thread = threading.get_ident()
        self._at_work = False
        self.task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to handle what waits."""
        self.task = self._loop.create_task(self._work())

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits and nothing is under way, or nothing can be any more."""
        return self.task is None or self.task.done() or not (self._at_work or len(self.mailbox))

    async def _work(self) -> None:
        async for event in self:
            self._at_work = True
            await self._handle(event)
            self._at_work = False

    async def _handle(self, event: T) -> None:
        import asyncio

        try:
            await self.handler(event)  # type: ignore[misc]
        except asyncio.CancelledError as problem:
            if self.task is not None and self.task.cancelling():
                raise
            self.failed(event, RuntimeError(f"the handler was cancelled from within: {problem!r}"))  # type: ignore[arg-type]
        except Exception as problem:
            self.failed(event, problem)  # type: ignore[arg-type]


def is_async(handler: Callable[..., object]) -> bool:
    """Whether a handler, or its `__call__`, is a coroutine function."""
    import inspect

    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__)


class Once:
    """Lets each event through once: the flavour `set`. Remembers the last so many, by equality."""

    def __init__(self, listener: Listener[Any], remember: int) -> None:
        self._listener = listener
        self._deliver = listener.deliver
        self._remember = remember
        self._seen: dict[object, None] = {}
        self._lock = threading.Lock()

    def __call__(self, event: Event) -> None:
        """Deliver an event unless an equal one was delivered; one that was refused may come again."""
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
    """The event itself, or its bytes if it carries a list or the like."""
    try:
        hash(event)
    except TypeError:
        return type(event), msgspec.msgpack.encode(event)
    return event


class Rota(Listener[Any]):
    """Gives each event to one of several consumers in turn: the flavour `queue`."""

    def __init__(self, bus: "Bus", subscription: Subscription) -> None:
        super().__init__(bus, subscription, self._give)
        self.refuses = True
        self._consumers: dict[Listener[Any], PythonFilter] = {}
        self._lock = threading.Lock()

    def join(self, consumer: Listener[Any]) -> None:
        """Take part from now on."""
        from genus.targets.python import PythonFilter

        with self._lock:
            self._consumers[consumer] = PythonFilter(consumer.subscription)

    def leave(self, consumer: Listener[Any]) -> None:
        """Take part no more."""
        with self._lock:
            self._consumers.pop(consumer, None)

    def _refuses_by(self, problem: Exception) -> bool:
        return isinstance(problem, QueueFull)

    def _give(self, event: Event) -> None:
        """To the first in turn that wants it and has room; QueueFull only if all who want it refuse."""
        refusal: Exception | None = None
        for consumer in self._in_turn(event):
            refusal = self._hand_over(consumer, event)
            if refusal is None:
                return
        if refusal is not None:
            raise refusal

    def _in_turn(self, event: Event) -> list[Listener[Any]]:
        """Those who want the event; the first goes to the end of the line."""
        with self._lock:
            wanting = [consumer for consumer, matches in self._consumers.items() if matches(event)]
            if wanting:
                self._consumers[wanting[0]] = self._consumers.pop(wanting[0])
        return wanting

    def _hand_over(self, consumer: Listener[Any], event: Event) -> Exception | None:
        try:
            consumer.deliver(event)
        except Exception as problem:
            if (refusal := consumer.failed(event, problem)) is not None:
                return refusal
        consumer.settled += 1
        return None
