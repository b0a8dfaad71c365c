"""`ZenohTransport`: packets over zenoh, with a router or without any server.

zenoh's own threads put what arrives into one queue, in the order in which it arrived. Two threads are the transport's:
one gives what is in the queue to the receiver, and may be as slow as handlers are; the other makes the calls of zenoh
that must not be made within its callbacks. A session does not survive a fork: open the bus in the child.
"""

import atexit
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from genus.errors import BusError
from genus.net._addresses import ZenohOptions
from genus.net._envelope import join_payloads
from genus.net._transport import Abilities, Receiver, ReceiverFailures, Sending
from genus.net._zenoh_endpoints import KeptPackets, PacketSubscriber, PacketSubscribers, declare_publisher
from genus.net._zenoh_session import MAX_SIZE, MeetingPlace, direct, import_zenoh, open_session
from genus.targets.topics import ZENOH, Dialect

if TYPE_CHECKING:
    import zenoh

log = logging.getLogger("genus.net")
TRIM_S = 0.25
DUE_S = 0.02
MEET_AGAIN_S = 0.1
"""How often a process tries to hold the meeting place while nobody does."""
QUIET_S = 100e-6
"""A packet that comes so long after the one before is sent at once."""
GATHER_S = 1e-3
"""How long packets that follow each other sooner may wait for others, so that they are sent as one."""
MAX_GATHERED = 64
MAX_GATHERED_BYTES = 1024
"""A larger payload travels alone."""
CLOSE_S = 2.0
"""How long `close` waits for a handler that runs."""
MAX_LENGTH = 60_000
"""Of a key, in bytes. zenoh panics at 65,535, and this transport and zenoh add some to keys."""
_STOP = None
_WAKE = False


class Arrivals:
    """State: samples that wait for the receiver, bounded, and other calls of it; one thread makes them.

    `accept` is the callback of zenoh's subscribers. Where the oldest are dropped, it is the queue's own `put`, without
    any Python code, and the bound is kept by the threads that take (after each packet, and every 0.25 s if the receiver
    takes longer). So more samples than the capacity may wait for a short time. A `Mailbox` would cost that Python code.
    """

    def __init__(self, capacity: int, drops_oldest: bool) -> None:
        self.capacity = capacity
        self.dropped = 0
        self.failures = ReceiverFailures()
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
        """Let the thread of the receiver call a function."""
        self._calls.append(action)
        self._samples.put(_WAKE)

    def start(self, receiver: Receiver) -> None:
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
                self.failures.note("zenoh", problem)
            if waiting() > capacity:
                self.trim()

    def _run_calls(self) -> None:
        while self._calls:
            try:
                self._calls.popleft()()
            except Exception as problem:  # of the receiver: the packets of others must go on
                self.failures.note("zenoh", problem)

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


class Gathering:
    """State: packets of one key that wait to be sent as one.

    A packet that comes after a pause is sent at once. Those that follow sooner are joined until there are 64 of them,
    or a packet of another key is sent, or the thread of this class comes to it: at once, and then every millisecond.
    So packets of all keys are sent in the order of their calls.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.payloads: list[bytes] = []
        self.sender: ZenohSender | None = None
        self.next_number = 0
        self._envelope = b""
        self._sent_at = 0.0
        self._wakes: SimpleQueue[bool] = SimpleQueue()
        self._is_awake = False
        self._thread = threading.Thread(target=self._run, name="genus-zenoh-sends", daemon=True)

    def start(self) -> None:
        """Send what waits, from now on."""
        self._thread.start()

    def begin(self, sender: "ZenohSender", payload: bytes, envelope: bytes, number: int) -> None:
        """Send a packet, or let it wait for others; call it with the lock."""
        self.flush()
        now = time.monotonic()
        if now - self._sent_at > QUIET_S or len(payload) > MAX_GATHERED_BYTES:
            self._sent_at = now
            sender.send(payload, envelope)
            return
        self.sender, self.next_number = sender, number + 1
        self._envelope = envelope
        self.payloads.append(payload)
        if not self._is_awake:
            self._is_awake = True
            self._wakes.put(True)

    def flush(self) -> None:
        """Send what waits; call it with the lock."""
        sender, payloads = self.sender, self.payloads
        if sender is not None:
            self.sender, self.payloads = None, []
            self._sent_at = time.monotonic()
            sender.send(payloads[0] if len(payloads) == 1 else join_payloads(payloads), self._envelope)

    def _run(self) -> None:
        while self._wakes.get():
            while self._flush_if_any():
                time.sleep(GATHER_S)

    def _flush_if_any(self) -> bool:
        with self.lock:
            self._is_awake = self.sender is not None
            try:
                self.flush()
            except Exception as problem:  # the session is closed, or lost
                log.warning("zenoh: packets could not be sent: %s", problem)
            return self._is_awake

    def close(self) -> None:
        """Send what waits, and stop."""
        self._flush_if_any()
        self._wakes.put(False)
        if self._thread is not threading.current_thread():
            self._thread.join(CLOSE_S)


class ZenohSender:
    """Sends the packets of one key."""

    __slots__ = ("_gathering", "_publisher", "_put")

    def __init__(self, publisher: Any, gathering: Gathering) -> None:
        self._publisher, self._put, self._gathering = publisher, publisher.put, gathering

    def send(self, payload: bytes, envelope: bytes) -> None:
        """Give a packet to zenoh. If its queue stays full for 1 ms it is dropped, unless the address says otherwise."""
        self._put(payload, attachment=envelope)

    def put(self, payload: bytes, envelope: bytes) -> None:
        gathering = self._gathering
        with gathering.lock:
            gathering.flush()
            self.send(payload, envelope)

    def join(self, payload: bytes, number: int) -> bool:
        """Add a payload to the packet that waits; False if none waits, or the number does not follow its last one."""
        gathering = self._gathering
        with gathering.lock:
            if gathering.sender is not self or gathering.next_number != number or len(payload) > MAX_GATHERED_BYTES:
                return False
            gathering.payloads.append(payload)
            gathering.next_number = number + 1
            if len(gathering.payloads) >= MAX_GATHERED:
                gathering.flush()
            return True

    def begin(self, payload: bytes, envelope: bytes, number: int) -> None:
        """Send a packet, or let it wait a moment for the payloads that follow, which travel under its envelope."""
        with self._gathering.lock:
            self._gathering.begin(self, payload, envelope, number)

    def close(self) -> None:
        with self._gathering.lock:
            self._gathering.flush()
        self._publisher.undeclare()


class KeepingSender(ZenohSender):
    """Sends the packets of one key and keeps the newest."""

    __slots__ = ("_keep", "_key")

    def __init__(self, publisher: Any, gathering: Gathering, key: str, kept: KeptPackets) -> None:
        super().__init__(publisher, gathering)
        self._key, self._keep = key, kept.keep
        kept.open_key(key)

    def send(self, payload: bytes, envelope: bytes) -> None:
        """Keep a packet and send it; with an empty payload, none is kept."""
        self._keep(self._key, payload, envelope)
        super().send(payload, envelope)

    def join(self, payload: bytes, number: int) -> bool:
        """Join nothing: the newest packet is one that is kept."""
        return False

    def begin(self, payload: bytes, envelope: bytes, number: int) -> None:
        """Send a packet at once."""
        self.put(payload, envelope)


class ZenohTransport:
    """A participant of a zenoh network; its methods are those of `Transport`."""

    dialect: Dialect = ZENOH

    def __init__(self, options: ZenohOptions) -> None:
        self.options = options
        self.abilities = Abilities(largest=MAX_SIZE)
        self._receiver: Receiver | None = None
        self._session: zenoh.Session | None = None
        self._place: MeetingPlace | None = None
        self._arrivals = Arrivals(options.receive_capacity, options.receive_overflow == "drop_oldest")
        self._gathering = Gathering()
        self._tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._worker = threading.Thread(target=self._work, name="genus-zenoh-tasks", daemon=True)
        self._own_tokens: set[str] = set()
        self._held: set[Any] = set()
        """What is declared: zenoh ends what nobody refers to."""
        self._others: dict[str, bool] = {}
        """Those that this session is connected to, and whether they are routers."""
        self._is_connected = False
        self._process = os.getpid()

    def open(self, receiver: Receiver) -> None:
        """Connect to the network; BusError with the reason if it cannot be reached in time."""
        self._process = os.getpid()
        self._session, self._place = session, _ = open_session(self.options)
        self._receiver = receiver
        accept, later, options = self._arrivals.accept, self._tasks.put, self.options
        has_router = not options.meets and options.scouting != "lan"
        self._subscribers = PacketSubscribers(session, accept, later, recovers=options.reliable, has_router=has_router)
        self._kept = KeptPackets(session, accept, later)
        self._arrivals.start(receiver)
        self._gathering.start()
        self._worker.start()
        self._watch_connection(session)
        _open.add(self)

    # -- the connection ----------------------------------------------------------------------------------------------

    def _watch_connection(self, session: "zenoh.Session") -> None:
        """Tell the receiver when the connection is made or lost, if there is one that can be."""
        if not self.options.has_connection:
            self._arrivals.call(lambda: self._tell_connection(True))
            return
        zenoh = import_zenoh()

        def changed(event: Any) -> None:
            other, is_router = str(event.transport.zid), event.transport.whatami == zenoh.WhatAmI.ROUTER
            is_there = event.kind == zenoh.SampleKind.PUT
            self._tasks.put(lambda: self._note_other(other, is_router, is_there))

        self._held.add(session.info.declare_transport_events_listener(direct(changed), history=True))

    def _note_other(self, other: str, is_router: bool, is_there: bool) -> None:
        """Count here who is there: zenoh may still list a transport when it tells that it is gone."""
        if is_there:
            self._others[other] = is_router
        else:
            self._others.pop(other, None)
        is_connected = bool(self._others)
        self._arrivals.call(lambda: self._tell_connection(is_connected))
        self._meet_again()

    @property
    def _has_lost_place(self) -> bool:
        return self._place is not None and not any(self._others.values())

    def _meet_again(self) -> None:
        """Hold the meeting place if nobody does any more."""
        if self._place is not None and self._has_lost_place and self._session is not None:
            self._place.take()

    def _tell_connection(self, is_connected: bool) -> None:
        assert self._receiver is not None
        if is_connected != self._is_connected and self._session is not None:
            self._is_connected = is_connected
            self._receiver.connected(is_connected)

    # -- sending -----------------------------------------------------------------------------------------------------

    def sender(self, key: str, sending: Sending) -> ZenohSender:
        """Prepare to send packets under a key; BusError if it is too long."""
        _check(key, "key")
        blocks = self.options.overflow == "block"
        publisher = self._declare(
            f"send under {key!r}",
            lambda session: declare_publisher(session, key, sending, blocks, self.options.capacity),
        )
        self._held.discard(publisher)  # its sender refers to it
        if sending.keep:
            return KeepingSender(publisher, self._gathering, key, self._kept)
        return ZenohSender(publisher, self._gathering)

    def declare(self, token: str) -> Callable[[], None]:
        """Show a token to all others while this process lives; returns a function to end it."""
        _check(token, "token")
        self._own_tokens.add(token)
        shown = self._declare(f"show {token!r}", lambda session: session.liveliness().declare_token(token))

        def end() -> None:
            self._end(shown)
            self._own_tokens.discard(token)  # its own watchers were told, and told nobody

        return end

    # -- receiving ---------------------------------------------------------------------------------------------------

    def subscribe(self, pattern: str, *, kept: bool = False) -> Callable[[], None]:
        """Receive packets of keys that match, and those that were kept; returns a function to end it."""
        _check(pattern, "pattern")
        subscriber: PacketSubscriber = self._declare(
            f"subscribe to {pattern!r}", lambda _: self._subscribers.subscribe(pattern)
        )
        if not kept:
            return lambda: self._end(subscriber)
        self._kept.ask(pattern)

        def end() -> None:
            if subscriber in self._held:
                self._kept.stop_asking(pattern)
                self._end(subscriber)

        return end

    def watch(self, pattern: str) -> Callable[[], None]:
        """Call `Receiver.token` with the tokens of others that match, present and future ones."""
        _check(pattern, "pattern")
        put = import_zenoh().SampleKind.PUT

        def changed(token: Any) -> None:
            key, is_present = str(token.key_expr), token.kind == put
            if key not in self._own_tokens:
                self._arrivals.call(lambda: self._tell_token(key, is_present))

        watching = self._declare(
            f"watch {pattern!r}",
            lambda session: session.liveliness().declare_subscriber(pattern, direct(changed), history=True),
        )
        return lambda: self._end(watching)

    def call(self, function: Callable[[], None]) -> None:
        """Call a function in the thread of the receiver, after the packets that wait."""
        self._arrivals.call(function)

    def _tell_token(self, key: str, is_present: bool) -> None:
        assert self._receiver is not None
        self._receiver.token(key, is_present)

    def _declare(self, what: str, declare: Callable[["zenoh.Session"], Any]) -> Any:
        if self._session is None or self._process != os.getpid():
            why = "it is not open" if self._session is None else "it was opened before a fork; open it in the child"
            raise BusError(f"zenoh: cannot {what}: {why}")
        try:
            declared = declare(self._session)
        except import_zenoh().ZError as problem:
            raise BusError(f"zenoh: cannot {what}: {problem}") from problem
        self._held.add(declared)
        return declared

    def _end(self, declared: Any) -> None:
        """End what was declared; nothing is left to end in a closed session, or at a second call."""
        if declared in self._held:
            self._held.discard(declared)
            if isinstance(declared, PacketSubscriber):
                self._subscribers.end(declared)
            else:
                declared.undeclare()

    # -- the rest ----------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        """Make calls of zenoh that its callbacks asked for, keep the bound of arrivals, and the meeting place."""
        while True:
            try:
                task = self._tasks.get(timeout=self._pause_s())
            except Empty:
                task = self._do_regular_work
            if task is None:
                return
            self._do(task)

    def _pause_s(self) -> float:
        return DUE_S if self._kept.is_due else MEET_AGAIN_S if self._has_lost_place else TRIM_S

    def _do_regular_work(self) -> None:
        self._arrivals.trim()
        self._meet_again()
        self._kept.ask_again()

    def _do(self, task: Callable[[], None]) -> None:
        try:
            task()
        except BaseException as problem:  # the session is closed or lost, or it panics; other tasks must go on
            if self._session is not None:
                log.warning("zenoh: %s", problem)

    def counters(self) -> Mapping[str, int]:
        """Packets that were dropped here because handlers are slow, wait for them, are kept, or were not recovered."""
        is_open = self._receiver is not None
        return {
            "dropped on arrival": self._arrivals.dropped,
            "waiting": len(self._arrivals),
            "kept": len(self._kept) if is_open else 0,
            "not recovered": self._subscribers.unrecovered if is_open else 0,
            **dict(self._arrivals.failures),
        }

    def close(self) -> None:
        """Leave the network; what arrived is still given to the receiver, for a short time."""
        session, self._session = self._session, None
        _open.discard(self)
        if session is None or self._process != os.getpid():
            return
        self._gathering.close()
        try:
            session.close()  # type: ignore[no-untyped-call]
        except import_zenoh().ZError as problem:
            log.warning("zenoh: the session did not close well: %s", problem)
        self._held.clear()
        self._tasks.put(None)
        self._arrivals.close()
        if self._worker is not threading.current_thread():
            self._worker.join(CLOSE_S)
        if self._place is not None:
            self._place.close()


_open: WeakSet[ZenohTransport] = WeakSet()


@atexit.register
def _close_all() -> None:
    """Leave all networks before the interpreter ends: zenoh's threads must not call it after that."""
    for transport in list(_open):
        transport.close()


def _check(text: str, what: str) -> None:
    """zenoh panics at what is too long, and the session cannot be used after that."""
    length = len(text.encode(errors="replace"))
    if length > MAX_LENGTH:
        raise BusError(f"zenoh: the {what} {text[:80]!r}... has {length:,} bytes, more than {MAX_LENGTH:,}")
