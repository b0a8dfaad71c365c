"""`LiveHost`: runs a machine on a python-can bus, with threads for receiving, for timers and for handlers.

The threads only move messages and time into the `DriverPort`, which has the rules. Python on a desktop system gives no
timing guarantees: lateness is measured and reported, not prevented. Handlers run in a thread of their own, one after
the other, so they may take long, publish, subscribe and wait.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

import can
from genus.can._live.interfaces import UNKNOWN, Confirmation, InterfaceProfile
from genus.can._live.port import DriverPort, DriverRefused, Filter
from genus.can._live.received import parse_error
from genus.can._machine import Call, Machine
from genus.can._wire.frame import Frame, Timing
from genus.errors import BusError

R = TypeVar("R")
log = logging.getLogger("genus.can")

MAX_QUEUED_CALLS = 65_536
"""Calls that may wait for slow handlers; more are dropped and counted."""
_POLL_S = 0.25
_FAILING_S = 1.0
"""An interface that nothing could be read from for so long is off the bus."""
_DRAIN_S = 0.5
"""How long `close` waits for frames that are not confirmed yet, such as final reports."""


def utc_clock() -> Callable[[], int]:
    """Return a monotonic clock of nanoseconds since 1970, which changes of the system's clock do not affect."""
    offset = time.time_ns() - time.monotonic_ns()
    return lambda: offset + time.monotonic_ns()


class BusDriver:
    """A python-can bus as the driver of a port, and the queue of calls for the thread of handlers.

    `filters` is how many acceptance filters the interface has that let error frames pass. Most interfaces have none:
    python-can then filters itself, error frames too, by an identifier that they do not have. So these get no filters,
    and the port ignores what nobody subscribed to.
    """

    def __init__(self, bus: "can.BusABC", filters: int = 0) -> None:
        self.bus = bus
        self._filters = filters
        self.calls: queue.SimpleQueue[Call | None] = queue.SimpleQueue()
        self.dropped_calls = 0
        self.is_failing = False
        """Whether reading raised the last time."""
        self._failing_since = 0
        self._is_dead = False

    def send(self, frame: Frame) -> None:
        try:
            self.bus.send(to_message(frame))
        except Exception as problem:  # interfaces raise what their libraries do
            raise DriverRefused(describe_failure(problem)) from problem

    def set_filters(self, filters: tuple[Filter, ...]) -> None:
        """Set the acceptance filters if the interface has so many; none accept everything."""
        if self._filters:
            fitting = filters if len(filters) <= self._filters else ()
            self.bus.set_filters(
                [{"can_id": value, "can_mask": mask, "extended": extended} for value, mask, extended in fitting]
            )

    def call(self, call: Call) -> None:
        if self.calls.qsize() < MAX_QUEUED_CALLS:
            self.calls.put(call)
        else:
            self.dropped_calls += 1

    def warn(self, message: str) -> None:
        log.warning("%s: %s", self.bus.channel_info, message)

    def poll(self) -> str:
        """Return the state of the interface; most interfaces are always active until nothing can be read from them."""
        if self._is_dead:
            return "error"
        try:
            return _STATES.get(self.bus.state, "active")
        except Exception:  # not implemented, or what its library raises
            return "active"

    def reading_failed(self, problem: Exception, now: int) -> None:
        """Reading raised; if it does nothing else for a while, the interface is off the bus, which is logged once."""
        if not self.is_failing:
            self.is_failing, self._failing_since = True, now
        if now - self._failing_since >= _FAILING_S * 1e9 and not self._is_dead:
            self._is_dead = True
            self.warn(f"nothing can be read from this interface: {describe_failure(problem)}")

    def reading_works(self) -> None:
        self.is_failing = False
        if self._is_dead:
            self._is_dead = False
            self.warn("this interface can be read again")


_STATES = {can.BusState.ACTIVE: "active", can.BusState.PASSIVE: "passive", can.BusState.ERROR: "error"}


class LiveHost:
    """State: runs a machine on a python-can bus; programs use it through `call` and end it with `close`."""

    def __init__(
        self,
        machine: Machine,
        bus: "can.BusABC",
        profile: InterfaceProfile = UNKNOWN,
        lost_frames: Callable[[], int] | None = None,
        timing: Timing | None = None,
    ) -> None:
        """`lost_frames` gives how many frames the interface itself has lost, where it knows that."""
        self.machine = machine
        self._lost_frames = lost_frames
        self.clock = utc_clock()
        self._bus = bus
        self._driver = BusDriver(bus, profile.filters)
        self._port = DriverPort(machine, self._driver, profile, timing or Timing(1_000_000))
        self._linux_errors = profile.linux_errors
        lock = threading.RLock()
        self._lock, self._changed, self._timer = lock, threading.Condition(lock), threading.Condition(lock)
        """The lock of the port; programs that wait for a change; the thread of timers, which sleeps."""
        self._programs_waiting = 0
        self._sleeps_until = 0
        """When the thread of timers wakes up by itself."""
        self._polled_at = 0
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
        return self._running

    @property
    def confirms(self) -> bool:
        return self._port.confirmation is not Confirmation.NONE

    def call(self, action: Callable[[int], R]) -> R:
        """Call a function with the time, handle the machine's outputs, return the result; BusError when closed."""
        with self._lock:
            if not self._running:
                raise BusError("the bus is closed")
            result = self._port.call(action, self.clock())
            self._notify()
            return result

    def _notify(self) -> None:
        """The port may have changed: wake up those threads that may have something to do."""
        if self._programs_waiting:
            self._changed.notify_all()
        due = self._port.wake_at
        if due is not None and due < self._sleeps_until:
            self._sleeps_until = due
            self._timer.notify()

    def wait_for(self, condition: Callable[[], bool], timeout: float) -> bool:
        with self._lock:
            self._programs_waiting += 1
            try:
                return self._changed.wait_for(condition, timeout)
            finally:
                self._programs_waiting -= 1

    def counters(self) -> Mapping[str, int]:
        with self._lock:
            more = {"dropped: handlers too slow": self._driver.dropped_calls}
            if self._lost_frames is not None and self._running:
                more["lost: more frames than the socket holds"] = self._lost_frames()
            return {**self._port.counts, **{what: count for what, count in more.items() if count}}

    def close(self) -> None:
        """Send what waits, for a short time, stop the threads and shut the bus down; a second call does nothing."""
        with self._lock:
            if self._running:
                self.wait_for(lambda: self._port.is_idle, _DRAIN_S)
            self._running = False
            self._driver.calls.put(None)
            self._changed.notify_all()
            self._timer.notify()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(5 * _POLL_S)
        self._bus.shutdown()

    # -- threads -------------------------------------------------------------------------------------------------------

    def _run_receiver(self) -> None:
        driver, port, lock, clock, linux_errors = self._driver, self._port, self._lock, self.clock, self._linux_errors
        receive = self._bus.recv
        while self._running:
            try:
                message = receive(_POLL_S)
            except Exception as problem:  # interfaces raise what their libraries do
                if self._running:
                    self._port.counts[f"receive failed: {describe_failure(problem)}"] += 1
                    self._driver.reading_failed(problem, self.clock())
                    time.sleep(_POLL_S / 10)
                continue
            if driver.is_failing:
                driver.reading_works()
            if message is None:
                continue
            try:
                with lock:
                    read_message(port, message, clock(), linux_errors)
                    self._notify()
            except Exception:
                self._count_failure("a frame could not be processed")

    def _run_timer(self) -> None:
        while self._running:
            try:
                with self._lock:
                    self._wait_and_wake()
            except Exception:
                self._count_failure("a timer could not be processed")

    def _wait_and_wake(self) -> None:
        now = self.clock()
        if now - self._polled_at >= _POLL_S * 1e9:
            self._polled_at = now
            self._port.poll(self._driver.poll(), now)
        due = self._port.wake_at
        left = _POLL_S if due is None else (due - now) / 1e9
        if left > 0:
            left = min(left, _POLL_S)
            self._sleeps_until = now + int(left * 1e9)
            self._timer.wait(left)
            self._sleeps_until = 0
            return
        self._port.wake(now)
        self._notify()

    def _run_handlers(self) -> None:
        while (call := self._driver.calls.get()) is not None:
            try:
                call.handler(*call.arguments)
            except Exception:
                self._port.counts["handler failed"] += 1
                log.exception("a handler failed on %r", call.arguments)

    def _count_failure(self, what: str) -> None:
        """Count and log an exception: no input from a bus may stop a thread."""
        if self._running:
            self._port.counts[f"failed: {what}"] += 1
            log.exception(what)


def describe_failure(problem: Exception) -> str:
    """Return what an interface raised, with its kind unless it is python-can's or the system's."""
    return str(problem) if isinstance(problem, can.CanError | OSError) else f"{type(problem).__name__}: {problem}"


def read_message(port: DriverPort, message: "can.Message", now: int, linux_errors: bool = True) -> None:
    """Give a message of python-can to a port: a frame, an echo, an error frame, or what is of no use."""
    if message.is_error_frame:
        if linux_errors:
            port.error(parse_error(message.arbitration_id, bytes(message.data)), now)
        else:
            port.error_without_class(now)
        return
    if message.is_remote_frame:
        port.ignore("not a data frame")
        return
    frame = Frame(message.arbitration_id, bytes(message.data), message.is_fd, message.is_extended_id)
    port.receive(frame, message.timestamp, now, is_rx=message.is_rx)


def to_message(frame: Frame) -> "can.Message":
    return can.Message(
        arbitration_id=frame.id, data=frame.data, is_extended_id=frame.extended, is_fd=frame.fd, bitrate_switch=frame.fd
    )
