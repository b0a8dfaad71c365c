"""The mailbox between zenoh's callbacks and the receiver: bounded, emptied by one thread.

zenoh forbids blocking and calls of zenoh within callbacks, and each callback has to wait for the interpreter's lock. So
a callback only puts its sample into a queue; where the oldest are dropped, the callback is the queue's own `put`,
without any Python code, and the bound is kept by the threads that take (after each packet, and every 0.25 s if the
receiver takes longer). So more samples than the capacity may wait for a short time.
"""

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

from genus.net._transport import Receiver

log = logging.getLogger("genus.net")
_STOP = None
_WAKE = False
CLOSE_S = 2.0
"""How long `close` waits for a handler that runs."""


class Mailbox:
    """State: samples that wait, and other calls for the receiver. `accept` is the callback for zenoh's subscribers."""

    def __init__(self, capacity: int, drops_oldest: bool) -> None:
        self.capacity = capacity
        self.dropped = 0
        self.failures: Counter[str] = Counter()
        self._samples: SimpleQueue[Any] = SimpleQueue()
        self._calls: deque[Callable[[], None]] = deque()
        self._drops_oldest = drops_oldest
        self._thread: threading.Thread | None = None
        self.accept: Callable[[Any], None] = self._samples.put if drops_oldest else self._accept_if_room

    def _accept_if_room(self, sample: Any) -> None:
        if self._samples.qsize() < self.capacity:
            self._samples.put(sample)
        else:
            self.dropped += 1

    def call(self, action: Callable[[], None]) -> None:
        """Let the thread that empties the mailbox call a function."""
        self._calls.append(action)
        self._samples.put(_WAKE)

    def start(self, receiver: Receiver) -> None:
        """Give what arrives to a receiver from now on."""
        self._thread = threading.Thread(target=self._run, args=(receiver,), name="genus-zenoh", daemon=True)
        self._thread.start()

    def _run(self, receiver: Receiver) -> None:
        take, waiting, capacity = self._samples.get, self._samples.qsize, self.capacity
        packet = receiver.packet
        while True:
            sample = take()
            if not sample:
                if sample is _STOP:
                    return
                self._run_calls()
                continue
            try:
                attachment = sample.attachment
                packet(
                    str(sample.key_expr),
                    b"" if attachment is None else attachment.to_bytes(),
                    sample.payload.to_bytes(),
                )
            except Exception as problem:  # the packets behind it are delivered all the same
                self._count_failure(problem)
            if waiting() > capacity:
                self.trim()

    def _run_calls(self) -> None:
        while self._calls:
            try:
                self._calls.popleft()()
            except Exception as problem:  # of the receiver: the packets of others must go on
                self._count_failure(problem)

    def _count_failure(self, problem: Exception) -> None:
        self.failures[type(problem).__name__] += 1
        log.error("zenoh: the receiver failed", exc_info=problem)

    def trim(self) -> None:
        """Drop the oldest samples above the capacity; may be called by any thread."""
        excess = self._samples.qsize() - self.capacity
        if excess <= 0 or not self._drops_oldest:
            return
        stop = False
        try:
            for _ in range(excess):
                sample = self._samples.get_nowait()
                self.dropped += bool(sample)
                stop = stop or sample is _STOP
        except Empty:
            pass
        self._samples.put(_STOP if stop else _WAKE)

    def __len__(self) -> int:
        return self._samples.qsize()

    def close(self) -> None:
        """Deliver what waits, for a short time, and stop."""
        self._samples.put(_STOP)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(CLOSE_S)
