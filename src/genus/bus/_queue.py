"""Bounded queues between publishers and consumers, which may be threads or coroutines."""

import threading
from collections import deque
from typing import TYPE_CHECKING, Generic, Literal, TypeAlias, TypeVar, get_args

from genus.bus._link import WaitFor
from genus.errors import BusError, QueueFull

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")

WhenFull: TypeAlias = Literal["block", "drop_oldest", "drop_newest", "raise"]
"""What happens when a bounded queue is full: the publisher waits, the oldest or the new event is dropped (and counted),
or the publisher gets `QueueFull` after all other subscribers were served."""


class Closed(Exception):
    """The queue is closed and empty."""


class EventQueue(Generic[T]):
    """A bounded queue that threads and coroutines can take from.

    `wait_for` replaces waiting in real time where a bus runs in virtual time.
    """

    def __init__(self, owner: str, capacity: int, full: WhenFull, wait_for: WaitFor | None = None) -> None:
        if capacity < 1:
            raise BusError(f"capacity must be at least 1, not {capacity}")
        if full not in get_args(WhenFull):
            raise BusError(f"full={full!r} is no policy; choose one of {', '.join(get_args(WhenFull))}")
        self.owner = owner
        self.capacity = capacity
        self.full = full
        self.dropped = 0
        self.loop_thread: int | None = None
        self.is_unlimited = False
        """Whether items are added whatever the capacity: kept events that a new subscriber gets at once."""
        self._wait_for = wait_for
        self._items: deque[T] = deque()
        self._lock = threading.Lock()
        self._not_empty = threading.Condition(self._lock)
        self._not_full = threading.Condition(self._lock)
        self._sleepers: deque[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = deque()
        self._closed = False

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: T) -> bool:
        """Add an item, by the policy if the queue is full; returns False if the queue is closed."""
        if self._wait_for is not None and self.full == "block":
            self._wait_for(lambda: self._closed or self.is_unlimited or len(self._items) < self.capacity, None)
        with self._lock:
            if self._closed or (len(self._items) >= self.capacity and not self._make_room()):
                return not self._closed
            self._items.append(item)
            self._not_empty.notify()
            self._wake_one()
            return True

    def _make_room(self) -> bool:
        """Apply the policy of a full queue; returns whether the new item fits now."""
        if self.is_unlimited:
            return True
        if self.full == "block":
            self._refuse_to_block_own_loop()
            self._not_full.wait_for(lambda: self._closed or len(self._items) < self.capacity)
            return not self._closed
        self.dropped += 1
        if self.full == "raise":
            raise self._refusal(f"holds {self.capacity} events already")
        if self.full == "drop_oldest":
            self._items.popleft()
        return self.full == "drop_oldest"

    def _refuse_to_block_own_loop(self) -> None:
        if self.loop_thread == threading.get_ident():
            self.dropped += 1
            raise self._refusal(
                "is full and its event loop would wait for itself; publish from another thread, "
                "or choose another policy than block"
            )

    def _refusal(self, why: str) -> QueueFull:
        problem = QueueFull(f"the queue of {self.owner!r} {why}")
        problem.queue = self
        return problem

    def get(self, timeout: float | None = None) -> T:
        """Take the next item; TimeoutError if none comes in time, Closed once the queue is closed and empty."""
        real_timeout = timeout
        if self._wait_for is not None:
            self._wait_for(lambda: self._closed or bool(self._items), timeout)
            real_timeout = 0
        with self._lock:
            if not self._not_empty.wait_for(lambda: self._closed or self._items, real_timeout):
                raise TimeoutError(f"no event for {self.owner!r} within {timeout} s")
            if not self._items:
                raise Closed
            return self._take()

    async def get_async(self) -> T:
        """Take the next item without blocking the event loop; Closed once the queue is closed and empty."""
        import asyncio  # only programs with an event loop come here, and they have it already

        loop = asyncio.get_running_loop()
        self.loop_thread = threading.get_ident()
        while True:
            with self._lock:
                if self._items:
                    return self._take()
                if self._closed:
                    raise Closed
                woken = loop.create_future()
                self._sleepers.append((loop, woken))
            try:
                await woken
            except asyncio.CancelledError:
                self._wake_another()
                raise

    def close(self) -> None:
        """Accept no more items; those that wait can still be taken."""
        with self._lock:
            self._closed = True
            self._not_empty.notify_all()
            self._not_full.notify_all()
            while self._sleepers:
                self._wake_one()

    def _take(self) -> T:
        item = self._items.popleft()
        self._not_full.notify()
        return item

    def _wake_one(self) -> None:
        while self._sleepers:
            loop, woken = self._sleepers.popleft()
            if not woken.cancelled() and not loop.is_closed():
                loop.call_soon_threadsafe(_finish, woken)
                return

    def _wake_another(self) -> None:
        """Wake another waiter if this one was cancelled after it was woken for an item."""
        with self._lock:
            if self._items:
                self._wake_one()


def _finish(woken: "asyncio.Future[None]") -> None:
    if not woken.done():
        woken.set_result(None)
