"""Bounded queues between publishers and consumers, which may be threads or coroutines."""

import operator
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar, get_args

from genus.bus._link import WaitFor
from genus.errors import BusError, QueueFull, counted

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")

Overflow: TypeAlias = Literal["block", "drop_oldest", "drop_newest", "raise"]
"""What happens when a bounded queue is full: the publisher waits, the oldest or the new event is dropped (and counted),
or the publisher gets `QueueFull` after all other subscribers were served. It also gets `QueueFull` if the queue is
closed while it waits."""
_POLICIES: tuple[str, ...] = get_args(Overflow)
LOOK_AGAIN_S = 0.2
"""How often a publisher that waits looks whether the consumer is still there; an event loop does not tell its end."""


def check_count(what: str, count: Any) -> None:
    """Raise BusError unless an option is an integer of at least 1; integers of numpy are such, too."""
    try:
        is_count = not isinstance(count, bool) and operator.index(count) >= 1
    except TypeError:
        is_count = False
    if not is_count:
        raise BusError(f"{what} is {count!r}; it must be an integer of at least 1")


def check_queue(capacity: object, overflow: object) -> None:
    """Raise BusError if there can be no such queue."""
    check_count("capacity", capacity)
    if overflow is not None and overflow not in _POLICIES:
        raise BusError(f"overflow={overflow!r} is not a policy; choose one of {', '.join(_POLICIES)}")


class Closed(Exception):
    """The queue is closed and empty."""


class EventQueue(Generic[T]):
    """A bounded queue that threads and coroutines can take from.

    Without `overflow`, the oldest items are dropped and the first time is logged: nobody has chosen that. `wait_for`
    replaces waiting in real time where a bus runs in virtual time.
    """

    def __init__(self, owner: str, capacity: int, overflow: Overflow | None, wait_for: WaitFor | None = None) -> None:
        check_queue(capacity, overflow)
        self.owner = owner
        self.capacity = capacity
        self.overflow: Overflow = overflow or "drop_oldest"
        self.dropped = 0
        """Items that found the queue full or closed."""
        self.is_deserted: Callable[[], bool] | None = None
        """Whether nobody will take items any more, where that can happen to a queue that is open."""
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
        self._is_to_warn = overflow is None

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: T) -> bool:
        """Add an item, by the policy if the queue is full; returns False if the queue is closed."""
        if self._wait_for is not None and self.overflow == "block" and not self._closed:
            self._wait_for(lambda: self._closed or self.is_unlimited or len(self._items) < self.capacity, None)
            if self._closed:
                raise self._closed_meanwhile()
        with self._lock:
            if self._closed:
                self.dropped += 1
                return False
            is_full = len(self._items) >= self.capacity
            if not is_full or self._make_room():
                self._items.append(item)
                self._not_empty.notify()
                self._wake_one()
        if is_full:
            self._warn_of_drops()
        return True

    def _warn_of_drops(self) -> None:
        """Log that items are dropped, once; without the lock, as a handler of logs may publish."""
        if not self._is_to_warn or not self.dropped:
            return
        self._is_to_warn = False
        import logging  # slow to import, and seldom needed

        logging.getLogger("genus.bus").warning(
            "the queue of %r is full (capacity=%d): it drops the oldest events and counts them; take them "
            "sooner, give it more capacity, or choose overflow=",
            self.owner,
            self.capacity,
        )

    def _make_room(self) -> bool:
        """Apply the policy of a full queue; returns whether the new item fits now."""
        if self.is_unlimited:
            return True
        if self.overflow == "block":
            self._wait_for_room()
            return True
        self.dropped += 1
        if self.overflow == "raise":
            held = f"{counted(self.capacity, 'event')} already (capacity={self.capacity}, overflow='raise')"
            raise self._refusal(f"holds {held}")
        if self.overflow == "drop_oldest":
            self._items.popleft()
        return self.overflow == "drop_oldest"

    def _wait_for_room(self) -> None:
        self._refuse_to_block_own_loop()
        look_again = None if self.is_deserted is None else LOOK_AGAIN_S
        while len(self._items) >= self.capacity and not self._closed:
            if self.is_deserted is not None and self.is_deserted():
                raise self._closed_meanwhile()
            self._not_full.wait(look_again)
        if self._closed:
            raise self._closed_meanwhile()

    def _closed_meanwhile(self) -> QueueFull:
        self.dropped += 1
        return self._refusal("was closed while an event waited for room; the event is lost")

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
        if self._wait_for is not None and not self._has_news():
            self._wait_for(self._has_news, timeout)
            real_timeout = 0
        with self._lock:
            if not self._not_empty.wait_for(self._has_news, real_timeout):
                raise self._none_in_time(timeout)
            return self._take()

    def drain(self) -> list[T]:
        """Take all items that are there, without waiting."""
        with self._lock:
            items = list(self._items)
            self._items.clear()
            self._not_full.notify_all()
        return items

    def _has_news(self) -> bool:
        return self._closed or bool(self._items)

    def _none_in_time(self, timeout: float | None) -> TimeoutError:
        return TimeoutError(f"no event for {self.owner!r} within {timeout:g} s")

    async def get_async(self, timeout: float | None = None) -> T:
        """Do the same as `get` without blocking the event loop."""
        import asyncio  # only programs with an event loop come here, and they have it already

        try:
            async with asyncio.timeout(timeout):
                return await self._next_item()
        except TimeoutError:
            raise self._none_in_time(timeout) from None

    async def _next_item(self) -> T:
        import asyncio

        loop = asyncio.get_running_loop()
        self.loop_thread = threading.get_ident()
        while True:
            with self._lock:
                if self._has_news():
                    return self._take()
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
        if not self._items:
            raise Closed
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
