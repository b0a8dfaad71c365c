"""The listeners of a family with many subscriptions, in an index; imported when there is the first such family.

The index knows listeners by handles: small numbers that are used again. Finding copies the handlers under the lock and
calls them without it, so that handlers may subscribe and cancel. A handle of a cancelled listener is used again when no
thread is calling handlers that were found before the listener was cancelled: so that an error is always reported to the
listener whose handler raised it.
"""

import operator
import threading
import time
from array import array
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from genus.bus._listener import Listener
from genus.model import Event
from genus.targets.internal import FamilyIndex, Found, Handles, Location

PAUSE_S = 0.0002
MAX_PAUSES = 100
MANY = 32
"""Fewer handles than this are counted and looked up one by one."""


class BriefLock:
    """State: a lock that is held for some microseconds, by the thread that runs.

    A lock that threads queue for is passed to another thread at each release, which then waits for the interpreter,
    while the thread that runs waits for the lock: the threads would be switched for each event. Here one thread at a
    time tries again after a pause, and the others wait for their turn to try.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._turn = threading.Lock()
        self._owner = 0
        self._deferred: list[Callable[[], None]] = []

    @property
    def is_mine(self) -> bool:
        """Whether this thread holds the lock: a finalizer or a signal handler runs in the midst of its work."""
        return self._owner == threading.get_ident()

    def defer(self, action: Callable[[], None]) -> None:
        """Do something when this thread has released the lock."""
        self._deferred.append(action)

    def __enter__(self) -> None:
        if not self._lock.acquire(False):
            self._wait()
        self._owner = threading.get_ident()

    def _wait(self) -> None:
        with self._turn:
            for _ in range(MAX_PAUSES):
                time.sleep(PAUSE_S)
                if self._lock.acquire(False):
                    return
            self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._owner = 0
        actions, self._deferred = self._deferred, []
        self._lock.release()
        for action in actions:
            action()


class Busy(Exception):
    """The index is being changed or searched by this thread, in the midst of which an event was published."""


class FoundListeners(NamedTuple):
    """The handlers of the listeners that match an event, and their handles; `token` is to be given back."""

    owner: "IndexedListeners"
    token: int
    single: list[int]
    many: Handles
    handlers: list[Callable[[Any], object]]

    def deliver(self, event: Event) -> Exception | None:
        """Call the handlers; returns what a full queue refused, if one did."""
        refusal: Exception | None = None
        calls = iter(self.handlers)
        while True:
            try:
                for call in calls:
                    call(event)
                return refusal
            except Exception as problem:
                position = len(self.handlers) - 1 - operator.length_hint(calls)
                handle = (self.single + self.many.tolist())[position]
                refusal = self.owner.failed(handle, event, problem) or refusal

    def release(self) -> None:
        """No more handlers are called."""
        self.owner.release(self.token)


def _few_and_many(found: Found) -> tuple[list[int], Handles]:
    """The handles as a list if they are few, and as an array if they are many."""
    arrays = [handles for handles in found.arrays if len(handles)]
    many = arrays[0] if len(arrays) == 1 else np.concatenate([_NO_HANDLES, *arrays])
    return (found.single, many) if len(many) >= MANY else (found.single + many.tolist(), _NO_HANDLES)


_NO_HANDLES: Handles = np.empty(0, np.int64)


class IndexedListeners:
    """State: the listeners of a family by handle, their index, and their deliveries."""

    def __init__(self, name: str, *, is_shared: bool = False) -> None:
        """`is_shared` says that they listen to `Event` and kinds, whose events are of any family."""
        self.lock = BriefLock()
        self._index = FamilyIndex(name, is_shared=is_shared)
        self._handle_of: dict[Listener[Any], int] = {}
        self._listeners: list[Listener[Any] | None] = []
        self._handlers: list[Callable[[Any], object]] = []
        self._handler_array = np.empty(64, np.object_)
        """The same handlers: the list is quicker for single handles, the array for many."""
        self._locations: list[Location | None] = []
        self._counts = array("q", bytes(8 * 64))
        self._count_array = np.frombuffer(self._counts, np.int64)
        """The same numbers, for the same reason."""
        self._tokens = count()
        self._removals = 0
        self._calling: dict[int, int] = {}
        """For each thread that calls handlers, the number of removals when it found them."""
        self._removed: deque[tuple[int, int]] = deque()
        """Handles whose listeners are still referred to, each with the number of removals so far."""
        self._free: list[int] = []

    def add(self, listener: Listener[Any]) -> None:
        """Add a listener, unless it was added or cancelled in the meantime."""
        if self.lock.is_mine:
            return self.lock.defer(partial(self.add, listener))
        with self.lock:
            self._add(listener)

    def add_all(self, listeners: Callable[[], Iterable[Listener[Any]]]) -> None:
        """Add all listeners that there are when this thread has the lock."""
        with self.lock:
            for listener in listeners():
                self._add(listener)

    def _add(self, listener: Listener[Any]) -> None:
        if listener in self._handle_of or listener.is_cancelled:
            return
        handle = self._new_handle()
        self._locations[handle] = self._index.add(handle, listener.subscription)
        self._listeners[handle] = listener
        self._handlers[handle] = self._handler_array[handle] = listener.deliver
        self._handle_of[listener] = handle
        listener.index = self

    def _new_handle(self) -> int:
        if self._free:
            return self._free.pop()
        self._listeners.append(None)
        self._handlers.append(id)
        self._locations.append(None)
        if len(self._listeners) > len(self._counts):
            self._counts = self._counts + array("q", bytes(8 * len(self._counts)))
            self._count_array = np.frombuffer(self._counts, np.int64)
            self._handler_array = np.concatenate([self._handler_array, np.empty_like(self._handler_array)])
        return len(self._listeners) - 1

    def remove(self, listener: Listener[Any]) -> None:
        """Remove a listener; its deliveries are added to its own counter."""
        if self.lock.is_mine:
            return self.lock.defer(partial(self.remove, listener))
        with self.lock:
            handle = self._handle_of.pop(listener, None)
            if handle is None:
                return None
            location = self._locations[handle]
            assert location is not None
            self._index.remove(location)
            deliveries = self._counts[handle]
            listener.counted += deliveries
            self._counts[handle] = 0
            self._removals += 1
            self._removed.append((self._removals, handle))
            self._forget_removed()

    def _forget_removed(self) -> None:
        """Drop the references to listeners that were removed, unless a thread may still report their errors."""
        oldest = min(self._calling.values(), default=self._removals)
        while self._removed and self._removed[0][0] <= oldest:
            _, handle = self._removed.popleft()
            self._listeners[handle] = self._locations[handle] = None
            self._handlers[handle] = self._handler_array[handle] = id
            self._free.append(handle)

    def find(self, event: Event) -> FoundListeners:
        """Return the listeners whose subscriptions match, counted as delivered; their handlers must be called.

        Raises Misfit if a value does not have its declared type, and Busy if this thread is in the midst of a change.
        """
        if self.lock.is_mine:
            raise Busy
        with self.lock:
            single, many = _few_and_many(self._index.match(event))
            handlers = [self._handlers[handle] for handle in single]
            for handle in single:
                self._counts[handle] += 1
            if len(many):
                self._count_array[many] += 1
                handlers += self._handler_array.take(many).tolist()
            token = next(self._tokens)
            self._calling[token] = self._removals
        return FoundListeners(self, token, single, many, handlers)

    def matching(self, event: Event) -> list[Listener[Any]]:
        """Return the listeners whose subscriptions match; nothing is counted. Raises as `find` does."""
        if self.lock.is_mine:
            raise Busy
        with self.lock:
            single, many = _few_and_many(self._index.match(event))
            found = [self._listeners[handle] for handle in single + many.tolist()]
        return [listener for listener in found if listener is not None]

    def release(self, token: int) -> None:
        """The handlers that were found were called."""
        self._calling.pop(token, None)
        if self._removed and not self._calling and not self.lock.is_mine:
            with self.lock:
                self._forget_removed()

    def failed(self, handle: int, event: Event, problem: Exception) -> Exception | None:
        """Report an error of a handler to its listener; returns what the publisher is to get."""
        listener = self._listeners[handle]
        assert listener is not None
        return listener.failed(event, problem)

    def delivered(self, listener: Listener[Any]) -> int:
        """Return the deliveries to a listener, with those that it counted itself."""
        if self.lock.is_mine:
            return self._delivered(listener)
        with self.lock:
            return self._delivered(listener)

    def _delivered(self, listener: Listener[Any]) -> int:
        handle = self._handle_of.get(listener)
        return listener.counted + (0 if handle is None else self._counts[handle])
