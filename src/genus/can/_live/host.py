"""`LiveHost`: runs a machine on a python-can bus, with threads for receiving, for timers and for handlers.

Python on a desktop system gives no timing guarantees: lateness is measured and reported, not prevented. Handlers run in
a thread of their own, one after the other, so they may take long, publish, subscribe and wait.
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


R = TypeVar("R")
log = logging.getLogger("genus.can")

ECHOING_INTERFACES = frozenset({"udp_multicast"})
"""Interfaces that return the frames of a sender to it, whatever their options."""
ECHO_TIMEOUT_NS = 1_000_000_000
"""A frame that is received later than this after an equal one was sent is not its echo."""
MAX_QUEUED_CALLS = 65_536
"""Calls that may wait for slow handlers; more are dropped and counted."""
_POLL_S = 0.25
_RETRY_NS = 1_000_000


def utc_clock() -> Callable[[], int]:
    """A monotonic clock of nanoseconds since 1970, which changes of the system's clock do not affect."""
    offset = time.time_ns() - time.monotonic_ns()
    return lambda: offset + time.monotonic_ns()


class EchoFilter:
    """State: recognises own frames that an interface returns, each once, within a second after sending.

    If another node sends a frame with our number and our data, one more copy arrives than was sent: that one is not
    recognised as an echo.

    >>> echoes, frame = EchoFilter(), Frame(0x21_6010, b"hi")
    >>> echoes.expect(frame, 0)
    >>> echoes.recognise(frame, 5), echoes.recognise(frame, 6)
    (True, False)
    """

    def __init__(self) -> None:
        self._sent: deque[tuple[int, tuple[int, bytes]]] = deque()
        self._expected: dict[tuple[int, bytes], int] = {}
        self._returned: dict[tuple[int, bytes], int] = {}

    def expect(self, frame: Frame, now: int) -> None:
        """Expect the echo of a frame that is about to be sent."""
        self._drop_old(now)
        key = (frame.id, frame.data)
        self._sent.append((now, key))
        self._expected[key] = self._expected.get(key, 0) + 1

    def recognise(self, frame: Frame, now: int) -> bool:
        """Whether a received frame is the echo of one that was sent."""
        self._drop_old(now)
        key = (frame.id, frame.data)
        if not self._expected.get(key):
            return False
        _decrement(self._expected, key)
        self._returned[key] = self._returned.get(key, 0) + 1
        return True

    def _drop_old(self, now: int) -> None:
        while self._sent and now - self._sent[0][0] > ECHO_TIMEOUT_NS:
            _, key = self._sent.popleft()
            _decrement(self._returned if key in self._returned else self._expected, key)


def _decrement(counts: dict[tuple[int, bytes], int], key: tuple[int, bytes]) -> None:
    if counts[key] > 1:
        counts[key] -= 1
    else:
        del counts[key]


class LiveHost:
    """State: runs a machine on a python-can bus; programs use it through `call` and end it with `close`."""

    def __init__(self, machine: Machine, bus: "can.BusABC", *, echoes: bool = False) -> None:
        self.machine = machine
        self.clock = utc_clock()
        self._bus = bus
        self._lock = threading.Condition(threading.RLock())
        self._counts: Counter[str] = Counter()
        self._echoes = EchoFilter() if echoes else None
        self._unsent: dict[int, tuple[Frame, int]] = {}
        """By mailbox: frames that could not be sent, and when to try again."""
        self._calls: queue.SimpleQueue[Call | None] = queue.SimpleQueue()
        self._running = True
        self._threads = [
            threading.Thread(target=self._run_receiver, name="genus-can-receive", daemon=True),
            threading.Thread(target=self._run_timer, name="genus-can-timer", daemon=True),
            threading.Thread(target=self._run_handlers, name="genus-can-handlers", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    @property
    def is_running(self) -> bool:
        """Whether it was not closed."""
        return self._running

    def call(self, action: Callable[[int], R]) -> R:
        """Call a function with the time, handle the machine's outputs, return the result; BusError when closed."""
        with self._lock:
            if not self._running:
                raise BusError("the bus is closed")
            result = action(self.clock())
            self._handle_outputs()
            return result

    def wait_for(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Wait until a condition holds, at most `timeout` seconds; returns whether it holds."""
        with self._lock:
            return self._lock.wait_for(condition, timeout)

    def counters(self) -> Mapping[str, int]:
        """The numbers of frames sent and received, of echoes ignored, and of failures by reason."""
        with self._lock:
            return dict(self._counts)

    def close(self) -> None:
        """Stop the threads and shut the bus down; a second call does nothing."""
        with self._lock:
            self._running = False
            self._calls.put(None)
            self._lock.notify_all()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(5 * _POLL_S)
        self._bus.shutdown()

    # -- outputs of the machine ----------------------------------------------------------------------------------------

    def _handle_outputs(self) -> None:
        """Handle the machine's outputs until there are none, and wake the threads in `wait_for`."""
        while outputs := self.machine.take():
            for output in outputs:
                if isinstance(output, Call):
                    self._queue_call(output)
                elif isinstance(output, Load):
                    self._unsent.pop(output.mailbox, None)
                    if output.frame is not None:
                        self._send(output.mailbox, output.frame)
                else:
                    self._set_filters(output)
        self._lock.notify_all()

    def _queue_call(self, call: Call) -> None:
        if self._calls.qsize() < MAX_QUEUED_CALLS:
            self._calls.put(call)
        else:
            self._counts["dropped: handlers too slow"] += 1

    def _send(self, mailbox: int, frame: Frame) -> None:
        now = self.clock()
        try:
            if self._echoes is not None:
                self._echoes.expect(frame, now)
            self._bus.send(_to_message(frame))
        except (can.CanError, OSError) as problem:
            self._counts[f"send failed: {problem}"] += 1
            self._unsent[mailbox] = (frame, now + _RETRY_NS)
            return
        self._counts["sent"] += 1
        self.machine.sent(frame, self.clock())

    def _set_filters(self, accept: Accept) -> None:
        self._bus.set_filters([{"can_id": value, "can_mask": mask, "extended": True} for value, mask in accept.filters])

    # -- threads -------------------------------------------------------------------------------------------------------

    def _run_receiver(self) -> None:
        while self._running:
            try:
                message = self._bus.recv(_POLL_S)
                if message is not None:
                    self._receive(message)
            except (can.CanError, OSError) as problem:
                if self._running:
                    self._counts[f"receive failed: {problem}"] += 1
                    time.sleep(_POLL_S / 10)
            except Exception:
                self._count_failure("a frame could not be processed")

    def _receive(self, message: "can.Message") -> None:
        frame = _to_frame(message)
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
            self._handle_outputs()

    def _run_timer(self) -> None:
        while self._running:
            try:
                with self._lock:
                    self._wait_and_wake()
            except Exception:
                self._count_failure("a timer could not be processed")

    def _wait_and_wake(self) -> None:
        """Wait until the next timer or retry is due, or for a while; process it if it is due."""
        times = (self.machine.wake_at, *(retry_at for _, retry_at in self._unsent.values()))
        due = min((at for at in times if at is not None), default=None)
        left = _POLL_S if due is None else (due - self.clock()) / 1e9
        if left > 0:
            self._lock.wait(min(left, _POLL_S))
            return
        self.machine.wake(self.clock())
        self._handle_outputs()
        self._resend()

    def _run_handlers(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                call.handler(*call.arguments)
            except Exception:
                self._counts["handler failed"] += 1
                log.exception("a handler failed on %r", call.arguments)

    def _count_failure(self, what: str) -> None:
        """Count and log an exception: no input from a bus may stop a thread."""
        if self._running:
            self._counts[f"failed: {what}"] += 1
            log.exception(what)

    def _resend(self) -> None:
        now = self.clock()
        for mailbox, (frame, at) in list(self._unsent.items()):
            if at <= now:
                del self._unsent[mailbox]
                self._send(mailbox, frame)


def _to_message(frame: Frame) -> "can.Message":
    return can.Message(
        arbitration_id=frame.id, data=frame.data, is_extended_id=frame.extended, is_fd=frame.fd, bitrate_switch=frame.fd
    )


def _to_frame(message: "can.Message") -> Frame | None:
    """The frame of a message; None if it is no 29-bit data frame."""
    if not message.is_extended_id or message.is_remote_frame or message.is_error_frame:
        return None
    return Frame(message.arbitration_id, bytes(message.data), message.is_fd)
