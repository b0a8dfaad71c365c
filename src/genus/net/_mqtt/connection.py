"""`Connection`: runs a client machine on a stream, in one thread, and connects again when the stream breaks.

Any thread may send. A lone packet is sent at once, in the thread of its sender. When packets follow each other closely
they are left to the connection's thread, or sent together once there are some kilobytes, so that many go in one system
call. In the same way, when packets arrive so closely that the thread hardly waits for them, it lets some come together
before it reads: a broker writes each packet and each acknowledgement by itself. It does not where the broker waits for
acknowledgements of few packets. With TLS all is sent by the connection's thread, as a TLS stream must not be used by
two threads.

The packets that wait to be sent are bounded by number and bytes. With the policy `block` a sender waits for room; if
there is none for ten seconds, as the connection is down, the packet is dropped, and further ones are at once until
there is room again.
"""

import selectors
import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Final

from genus.bus.types import Overflow
from genus.errors import BusError, QueueFull
from genus.net._mqtt.address import CONNECT_S, Endpoint, reason_of
from genus.net._mqtt.machine import SECOND, ClientMachine
from genus.net._mqtt.session import Closing, Connected, Filter, MessageMailbox, Notice, Undelivered
from genus.net._mqtt.wire import Message, Outgoing

RECEIVE_BYTES: Final = 256 * 1024
PULL_BYTES: Final = 64 * 1024
TOGETHER_BYTES: Final = 16 * 1024
LONE_NS: Final = 100_000
QUICK_NS: Final = 200_000
QUICK_TURNS: Final = 4
TOGETHER_S: Final = 0.0003
FIRST_DELAY_S: Final = 0.1
MAX_DELAY_S: Final = 5.0
STABLE_S: Final = 1.0
LAST_S: Final = 2.0
MAX_BYTES: Final = 128 * 1024 * 1024
MAX_WAIT_S: Final = 10.0
QUEUE_FULL: Final = "the queue of packets to send was full"
QUICK_ACK: Final[int | None] = getattr(socket, "TCP_QUICKACK", None)
"""Linux has it; it holds until the system thinks otherwise, so it is said after each read."""
READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
BLOCKED = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Connection:
    """State: a stream, the machine that speaks on it, and bytes that the stream did not take yet.

    Without its lock held, it calls `told` from any thread with what the machine told and with packets that were
    dropped, and `lost` from its own thread when the connection was lost or could not be made again.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        machine: ClientMachine,
        mailbox: MessageMailbox,
        told: Callable[[Notice], None],
        lost: Callable[[str], None],
        *,
        capacity: int = 10_000,
        overflow: Overflow = "block",
        random: Random | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._machine = machine
        self._mailbox = mailbox
        self._told, self._lost = told, lost
        self._random = random or Random()
        self._lock = threading.Lock()
        self._capacity = capacity
        self._full = overflow
        self._room = threading.Condition(self._lock)
        self._waiters = 0
        self._is_patient = True
        self._stream: socket.socket | None = None
        self._unsent = memoryview(b"")
        self._is_direct = endpoint.tls is None
        self._is_woken = False
        self._over: str | None = None
        self._broken = ""
        self._sent_at = 0
        self._delay_s = FIRST_DELAY_S
        self._is_closed = threading.Event()
        self._first_answer = threading.Event()
        self._first_problem: str | None = None
        self._waker: socket.socket | None = None
        self._thread = threading.Thread(target=self._run, name="genus mqtt", daemon=True)

    # -- for any thread ------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Connect; BusError with the reason if the broker cannot be reached or refuses."""
        try:
            stream = self._endpoint.connect()
        except OSError as problem:
            raise BusError(reason_of(problem)) from None
        self._stream = stream
        waker, wakee = socket.socketpair()
        waker.setblocking(False)
        wakee.setblocking(False)
        self._waker, self._wakee = waker, wakee
        self._thread.start()
        if not self._first_answer.wait(2 * CONNECT_S):
            self._first_problem = f"no answer in {2 * CONNECT_S:g} s"
        if self._first_problem is not None:
            self.close()
            raise BusError(self._first_problem)

    def send(self, item: Outgoing, is_urgent: bool = False) -> None:
        """Send a packet, now or when the broker takes it; by the policy if too many wait."""
        dropped: list[Undelivered] = []
        with self._lock:
            if self._over is not None:
                dropped = [Undelivered(item[0], self._over)]
            elif not self._is_full or self._make_room(item, dropped):
                self._machine.publish(item, is_urgent)
                if item[2] is None or not self._machine.is_window_full:
                    self._start_sending()
        for each in dropped:
            self._told(each)

    @property
    def _is_full(self) -> bool:
        """Whether no packet fits: by number, or by bytes."""
        machine = self._machine
        return len(machine.waiting) + len(machine.urgent) >= self._capacity or machine.waiting_bytes >= MAX_BYTES

    def _make_room(self, item: Outgoing, dropped: list[Undelivered]) -> bool:
        """Apply the policy of a full queue: appends what is dropped and returns whether the packet fits now."""
        if self._full == "raise":
            raise QueueFull(f"{QUEUE_FULL}: {self._capacity} packets")
        if self._full == "drop_oldest":
            while self._is_full:
                dropped.append(Undelivered(self._machine.drop_oldest()[0], QUEUE_FULL))
            return True
        if self._full == "block" and self._wait_for_room():
            return True
        dropped.append(Undelivered(item[0], QUEUE_FULL))
        return False

    def _wait_for_room(self) -> bool:
        """Wait while the queue is full; the handler's thread lets messages come meanwhile, as acknowledgements do."""
        give_up_at = time.monotonic() + MAX_WAIT_S
        with self._mailbox.lenient(self._wake):
            while self._is_full and self._over is None:
                left = give_up_at - time.monotonic()
                if left <= 0 or not self._is_patient:
                    self._is_patient = self._machine.is_connected
                    return False
                self._waiters += 1
                self._room.wait(left)
                self._waiters -= 1
        return not self._is_full

    def _start_sending(self) -> None:
        """Send what waits in this thread if that is quicker, or leave it to the connection's thread."""
        if self._unsent or self._stream is None or not self._machine.is_connected:
            return
        if self._is_direct:
            if self._is_woken:
                if self._machine.waiting_bytes >= TOGETHER_BYTES:
                    self._flush(time.monotonic_ns())
                return
            now = time.monotonic_ns()
            if now - self._sent_at > LONE_NS:
                self._flush(now)
                return
        self._wake()

    def subscribe(self, wanted: Filter) -> None:
        """Subscribe; the observer is told the result."""
        with self._lock:
            self._machine.subscribe(wanted)
            self._wake()

    def unsubscribe(self, pattern: str) -> None:
        with self._lock:
            self._machine.unsubscribe(pattern)
            self._wake()

    def show(self, presence: Callable[[], bytes]) -> None:
        """Send the packet that says what this client shows, soon and from time to time."""
        with self._lock:
            self._machine.show(presence)
            self._wake()

    def handled(self, messages: list[Message]) -> None:
        """Acknowledge messages, at once."""
        with self._lock:
            self._machine.handled(messages)
            if self._is_direct and not self._unsent:
                self._flush(time.monotonic_ns())
            else:
                self._wake()

    def read_on(self) -> None:
        with self._lock:
            self._wake()

    @property
    def is_connected(self) -> bool:
        return self._machine.is_connected

    @property
    def is_idle(self) -> bool:
        machine = self._machine
        return not (machine.waiting or machine.urgent or machine.in_flight or self._unsent)

    def close(self, *, keeps_session: bool = False) -> None:
        """Send what waits, for at most two seconds; then end the connection and its thread."""
        give_up_at = time.monotonic() + LAST_S
        is_inside = threading.current_thread() is self._thread
        while not is_inside and self.is_connected and not self.is_idle and time.monotonic() < give_up_at:
            time.sleep(0.002)
        with self._lock:
            self._is_closed.set()
            self._over = "the connection is closed"
            self._machine.disconnect(keeps_session=keeps_session)
            self._room.notify_all()
            self._wake()
        if self._thread.is_alive() and not is_inside:
            self._thread.join(LAST_S + 2 * FIRST_DELAY_S)

    def left_over(self) -> list[Outgoing]:
        """After `close`: the packets that were not sent, or not acknowledged."""
        machine = self._machine
        return [*machine.in_flight.values(), *machine.urgent, *machine.waiting]

    # -- sending; the lock is held -------------------------------------------------------------------------------------

    def _wake(self) -> None:
        if self._waker is not None and not self._is_woken and threading.current_thread() is not self._thread:
            self._is_woken = True
            with suppress(OSError):  # closed meanwhile: nobody is there to be woken
                self._waker.send(b"\0")

    def _flush(self, now: int) -> None:
        """Send what the machine has, until it has no more or the stream takes no more."""
        stream = self._stream
        while stream is not None:
            if not self._unsent:
                parts = self._machine.pull(PULL_BYTES, now)
                if not parts:
                    break
                self._unsent = memoryview(parts[0] if len(parts) == 1 else b"".join(parts))
            try:
                self._unsent = self._unsent[stream.send(self._unsent) :]
            except BLOCKED:
                self._wake()
                break
            except OSError:
                self._break_stream(stream)
                break
        self._sent_at = now
        if (self._waiters or not self._is_patient) and len(self._machine.waiting) <= self._capacity // 2:
            self._is_patient = True  # and the queue fills in bursts
            self._room.notify_all()
        if self._machine.has_notices:
            self._wake()

    def _break_stream(self, stream: socket.socket) -> None:
        """Make the connection's thread see that the stream is broken, by an end of what it reads.

        What the server said before that can still be read: with TLS, why it does not accept a certificate. So the
        stream below TLS is shut down.
        """
        self._unsent = memoryview(b"")
        with suppress(OSError):  # closed already
            socket.socket.shutdown(stream, socket.SHUT_RDWR)
        self._wake()

    # -- the connection's thread ---------------------------------------------------------------------------------------

    def _run(self) -> None:
        stream = self._stream
        why, is_final = "", False
        while not is_final and not self._is_closed.is_set():
            if stream is None:
                stream = self._connect_again()
            if stream is not None:
                why, is_final = self._serve(stream)
                stream = None
                self._tell_loss(why)
                if not is_final:
                    self._pause()
        with self._lock:
            self._over = self._over or why
        self._release()

    def _connect_again(self) -> socket.socket | None:
        try:
            return self._endpoint.connect()
        except OSError as problem:
            self._lost(reason_of(problem))
            self._pause()
            return None

    def _pause(self) -> None:
        """Wait before the next attempt: twice as long each time, and not at the same time as others."""
        delay, self._delay_s = self._delay_s, min(self._delay_s * 2, MAX_DELAY_S)
        self._is_closed.wait(delay * self._random.uniform(0.5, 1.0))

    def _tell_loss(self, why: str) -> None:
        if not self._first_answer.is_set():
            self._first_problem = why
            self._is_closed.set()
            self._first_answer.set()
        self._lost(why)

    def _serve(self, stream: socket.socket) -> tuple[str, bool]:
        """Run one stream to its end; returns why it ended and whether that is for good."""
        begin = time.monotonic()
        with self._lock:
            if self._is_closed.is_set():  # while it was connecting
                stream.close()
                return "closed", True
            self._stream = stream
            self._broken = "the server closed the connection"
            self._unsent = memoryview(b"")
            self._machine.opened(time.monotonic_ns())
            self._flush(time.monotonic_ns())
        try:
            ended = self._read_and_write(stream)
        finally:
            with self._lock:
                self._stream = None
                self._unsent = memoryview(b"")
                self._machine.closed(time.monotonic_ns())
                notices = self._machine.take()
            stream.close()
        self._tell(notices)
        if time.monotonic() - begin > STABLE_S:
            self._delay_s = FIRST_DELAY_S
        return ended.why, ended.is_final

    def _read_and_write(self, stream: socket.socket) -> Closing:
        """Wait for what happens and handle it, until the stream ends."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._wakee, READ)
            selector.register(stream, READ)
            interest, quick = READ, 0
            while True:
                wanted = (0 if self._mailbox.pause() else READ) | (WRITE if self._unsent else 0)
                if wanted != interest:
                    interest = self._change_interest(selector, stream, interest, wanted)
                begin = time.monotonic_ns()
                data = None
                for key, events in selector.select(self._timeout(begin)):
                    if key.fileobj is self._wakee:
                        self._sleep_no_more()
                    elif events & READ:
                        data = self._receive(stream)
                ended = self._turn(data, bool(wanted & READ))
                quick = quick + 1 if data and time.monotonic_ns() - begin < QUICK_NS else 0
                if quick > QUICK_TURNS and ended is None and not self._machine.is_awaited:
                    ended = self._read_together(stream)
                    quick = QUICK_TURNS
                if ended is not None:
                    return ended

    def _read_together(self, stream: socket.socket) -> Closing | None:
        """While packets keep coming: let some come together, then handle them, without waiting for what happens."""
        while not self._mailbox.pause() and not self._machine.is_awaited:
            time.sleep(TOGETHER_S)
            data = self._receive(stream)
            if data is None:
                break
            ended = self._turn(data, True)
            if ended is not None:
                return ended
        return None

    @staticmethod
    def _change_interest(selector: selectors.BaseSelector, stream: socket.socket, old: int, new: int) -> int:
        if not new:
            selector.unregister(stream)
        elif not old:
            selector.register(stream, new)
        else:
            selector.modify(stream, new)
        return new

    def _timeout(self, now: int) -> float | None:
        wake_at = self._machine.wake_at
        return None if wake_at is None else max(0, wake_at - now) / SECOND

    def _sleep_no_more(self) -> None:
        """Reset the flag first: a wake that comes now is seen by the next select."""
        with suppress(*BLOCKED):
            self._wakee.recv(4096)
        self._is_woken = False

    def _turn(self, data: bytes | None, is_reading: bool) -> Closing | None:
        """Handle what arrived and timers, send what waits; returns why the stream ended, if it did."""
        with self._lock:
            now = time.monotonic_ns()
            messages = self._machine.receive(data, now) if data else []
            if not is_reading:
                self._machine.excuse_silence()
            wake_at = self._machine.wake_at
            if wake_at is not None and now >= wake_at:
                self._machine.wake(now)
            self._flush(now)
            notices = self._machine.take() if self._machine.has_notices else []
        if messages:
            self._mailbox.put(messages)
        ended = self._tell(notices)
        if data == b"" and ended is None:
            hint = " before it answered; does it expect TLS? Then write mqtts://"
            ended = Closing(self._broken + ("" if self._machine.is_connected or self._endpoint.tls else hint))
        return ended

    def _receive(self, stream: socket.socket) -> bytes | None:
        """Return what arrived; None if nothing did, and no bytes if the stream ended."""
        try:
            data = stream.recv(RECEIVE_BYTES)
            if len(data) < TOGETHER_BYTES:
                _acknowledge(stream)
            if isinstance(stream, ssl.SSLSocket) and stream.pending():
                parts = [data]
                while parts[-1] and stream.pending():
                    parts.append(stream.recv(RECEIVE_BYTES))
                data = b"".join(parts)
        except BLOCKED:
            return None
        except OSError as problem:
            self._broken = reason_of(problem)
            return b""
        return data

    def _tell(self, notices: list[Notice]) -> Closing | None:
        """Pass notices on; returns the one that ends the stream."""
        ended = None
        for notice in notices:
            if isinstance(notice, Closing):
                ended = notice
                continue
            if isinstance(notice, Connected):
                self._first_answer.set()
            self._told(notice)
        return ended

    def _release(self) -> None:
        if self._waker is not None:
            self._waker.close()
            self._wakee.close()


def _acknowledge(stream: socket.socket) -> None:
    """Let the system acknowledge what was read now, not some 40 ms later.

    A broker that leaves Nagle's algorithm on, as mosquitto does, sends no further packet before that.
    """
    if QUICK_ACK is not None:
        stream.setsockopt(socket.IPPROTO_TCP, QUICK_ACK, 1)
