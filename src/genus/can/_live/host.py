"""`LiveHost`: runs a machine on a python-can bus: one thread listens, one watches the clock, one calls handlers.

Python on a desktop system promises no microseconds: what was late is measured and reported, not prevented. Handlers
run in a third thread, one after the other, so they may take their time, publish, subscribe and wait.
"""

import logging
import queue
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import TypeVar

from genus._extras import missing_extra
from genus.can._machine import Accept, Call, Load, Machine
from genus.can._wire.frame import Frame
from genus.errors import BusError

try:
    import can

    can.Bus  # noqa: B018 - a folder named `can` in the working directory is imported too, and is empty
except (ImportError, AttributeError) as missing:
    raise missing_extra("a live CAN bus needs python-can", "can") from missing


# Own frames that an interface hands back: expected once each, and recognised.


ECHO_NS = 1_000_000_000
"""A frame that comes back later than this is somebody else's."""


class Echoes:
    """State: the frames sent within the last second that have not come back.

    A frame of somebody else under our number and with our data is told from an echo by coming once too often.

    >>> echoes, frame = Echoes(), Frame(0x21_6010, b"hi")
    >>> echoes.expect(frame, 0)
    >>> echoes.recognise(frame, 5), echoes.recognise(frame, 6)
    (True, False)
    """

    def __init__(self) -> None:
        self._sent: deque[tuple[int, tuple[int, bytes]]] = deque()
        self._awaited: dict[tuple[int, bytes], int] = {}
        self._returned: dict[tuple[int, bytes], int] = {}

    def expect(self, frame: Frame, now: int) -> None:
        """A frame is about to be sent."""
        self._forget(now)
        key = (frame.id, frame.data)
        self._sent.append((now, key))
        self._awaited[key] = self._awaited.get(key, 0) + 1

    def recognise(self, frame: Frame, now: int) -> bool:
        """Whether a received frame is one of ours that had not come back yet."""
        self._forget(now)
        key = (frame.id, frame.data)
        if not self._awaited.get(key):
            return False
        self._take(self._awaited, key)
        self._returned[key] = self._returned.get(key, 0) + 1
        return True

    def _forget(self, now: int) -> None:
        while self._sent and now - self._sent[0][0] > ECHO_NS:
            _, key = self._sent.popleft()
            self._take(self._returned if key in self._returned else self._awaited, key)

    @staticmethod
    def _take(counts: dict[tuple[int, bytes], int], key: tuple[int, bytes]) -> None:
        if counts[key] > 1:
            counts[key] -= 1
        else:
            del counts[key]


R = TypeVar("R")
log = logging.getLogger("genus.can")

ECHOING = frozenset({"udp_multicast"})
"""Interfaces that hand a sender its own frames back, whatever they are asked."""
_PATIENCE_S = 0.25
_RETRY_NS = 1_000_000
MOST_CALLS = 65_536
"""Calls that may wait for handlers that are too slow; more are dropped, and counted."""


def utc_clock() -> Callable[[], int]:
    """A clock of nanoseconds since 1970 that never goes back, whatever is done to the system's clock."""
    offset = time.time_ns() - time.monotonic_ns()
    return lambda: offset + time.monotonic_ns()


class LiveHost:
    """A machine on a bus; `call` is how a program talks to it, `close` ends it."""

    def __init__(self, machine: Machine, bus: "can.BusABC", *, echoes: bool = False) -> None:
        self.machine = machine
        self.clock = utc_clock()
        self._bus = bus
        self._lock = threading.Condition(threading.RLock())
        self._counts: Counter[str] = Counter()
        self._echoes = Echoes() if echoes else None
        self._unsent: dict[int, tuple[Frame, int]] = {}
        self._calls: queue.SimpleQueue[Call | None] = queue.SimpleQueue()
        self._running = True
        self._threads = [
            threading.Thread(target=self._listen, name="genus-can-receive", daemon=True),
            threading.Thread(target=self._watch, name="genus-can-timer", daemon=True),
            threading.Thread(target=self._handle, name="genus-can-handlers", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    @property
    def is_running(self) -> bool:
        """Whether it was not closed yet."""
        return self._running

    def call(self, action: Callable[[int], R]) -> R:
        """Give the machine an input and do what it then wants; returns what the input gave."""
        with self._lock:
            if not self._running:
                raise BusError("the bus is closed")
            result = action(self.clock())
            self._obey()
            return result

    def wait_for(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Wait until something is so, at most so many seconds; whether it is."""
        with self._lock:
            return self._lock.wait_for(condition, timeout)

    def counters(self) -> Mapping[str, int]:
        """Frames sent and received, echoes ignored, and what went wrong by reason."""
        with self._lock:
            return dict(self._counts)

    def close(self) -> None:
        """Stop the threads and let go of the bus; closing twice does no harm."""
        with self._lock:
            self._running = False
            self._calls.put(None)
            self._lock.notify_all()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(5 * _PATIENCE_S)
        self._bus.shutdown()

    # -- doing what the machine wants ----------------------------------------------------------------------------------

    def _obey(self) -> None:
        """Do what the machine wants until it wants nothing, and let those who wait look again."""
        while outputs := self.machine.take():
            for output in outputs:
                if isinstance(output, Call):
                    self._queue(output)
                elif isinstance(output, Load):
                    self._load(output)
                else:
                    self._accept(output)
        self._lock.notify_all()

    def _queue(self, call: Call) -> None:
        if self._calls.qsize() < MOST_CALLS:
            self._calls.put(call)
        else:
            self._counts["dropped: handlers too slow"] += 1

    def _load(self, load: Load) -> None:
        self._unsent.pop(load.mailbox, None)
        if load.frame is not None:
            self._send(load.mailbox, load.frame)

    def _send(self, mailbox: int, frame: Frame) -> None:
        now = self.clock()
        try:
            if self._echoes is not None:
                self._echoes.expect(frame, now)
            self._bus.send(_message(frame))
        except (can.CanError, OSError) as problem:
            self._counts[f"send failed: {problem}"] += 1
            self._unsent[mailbox] = (frame, now + _RETRY_NS)
            return
        self._counts["sent"] += 1
        self.machine.sent(frame, self.clock())

    def _accept(self, accept: Accept) -> None:
        self._bus.set_filters([{"can_id": value, "can_mask": mask, "extended": True} for value, mask in accept.filters])

    # -- threads -------------------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        while self._running:
            try:
                message = self._bus.recv(_PATIENCE_S)
                if message is not None:
                    self._receive(message)
            except (can.CanError, OSError) as problem:
                if self._running:
                    self._counts[f"receive failed: {problem}"] += 1
                    time.sleep(_PATIENCE_S / 10)
            except Exception:
                self._count_mishap("a frame could not be dealt with")

    def _receive(self, message: "can.Message") -> None:
        frame = _frame(message)
        with self._lock:
            if frame is None:
                self._counts["ignored: not a 29-bit data frame"] += 1
                return
            now = self.clock()
            if self._echoes is not None and self._echoes.recognise(frame, now):
                self._counts["echoes ignored"] += 1
                return
            self._counts["received"] += 1
            self.machine.receive(frame, now)
            self._obey()

    def _watch(self) -> None:
        while self._running:
            try:
                with self._lock:
                    self._wait_and_wake()
            except Exception:
                self._count_mishap("what was due could not be done")

    def _wait_and_wake(self) -> None:
        due = min([at for at in (self.machine.wake_at, *self._retries()) if at is not None], default=None)
        left = _PATIENCE_S if due is None else (due - self.clock()) / 1e9
        if left > 0:
            self._lock.wait(min(left, _PATIENCE_S))
            return
        self.machine.wake(self.clock())
        self._obey()
        self._retry()

    def _handle(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                call.handler(*call.arguments)
            except Exception:
                self._counts["handler failed"] += 1
                log.exception("a handler failed on %r", call.arguments)

    def _count_mishap(self, what: str) -> None:
        """Nothing that comes from a bus stops a thread; it is counted, and told in the log."""
        if self._running:
            self._counts[f"failed: {what}"] += 1
            log.exception(what)

    def _retries(self) -> list[int]:
        return [at for _, at in self._unsent.values()]

    def _retry(self) -> None:
        now = self.clock()
        for mailbox, (frame, at) in list(self._unsent.items()):
            if at <= now:
                del self._unsent[mailbox]
                self._send(mailbox, frame)


def _message(frame: Frame) -> "can.Message":
    return can.Message(
        arbitration_id=frame.id, data=frame.data, is_extended_id=frame.extended, is_fd=frame.fd, bitrate_switch=frame.fd
    )


def _frame(message: "can.Message") -> Frame | None:
    if not message.is_extended_id or message.is_remote_frame or message.is_error_frame:
        return None
    return Frame(message.arbitration_id, bytes(message.data), message.is_fd)
