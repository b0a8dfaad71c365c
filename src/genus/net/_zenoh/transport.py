"""`ZenohTransport`: packets over zenoh, with a router or without any server.

Two threads: one gives what arrives to the receiver, the other makes the calls of zenoh that must not be made within its
callbacks. A session does not survive a fork: open the bus in the child.
"""

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Mapping
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from genus.errors import BusError
from genus.net._transport import Abilities, Receiver, Sending
from genus.net._zenoh.address import ZenohOptions
from genus.net._zenoh.config import LARGEST, import_zenoh, open_session
from genus.net._zenoh.kept import KeptPackets
from genus.net._zenoh.mailbox import CLOSE_S, Mailbox
from genus.net._zenoh.recovery import PacketSubscriber, declare_publisher
from genus.targets.topics import ZENOH, Dialect

if TYPE_CHECKING:
    import zenoh

log = logging.getLogger("genus.net")
TRIM_S = 0.25
DUE_S = 0.02
MOST_ENDED = 256
LONGEST = 60_000
"""Of a key, in bytes. zenoh panics at 65,535, and this transport and zenoh add some to keys."""


class ZenohSender:
    """Sends the packets of one key."""

    __slots__ = ("_publisher", "_put")

    def __init__(self, publisher: Any) -> None:
        self._publisher, self._put = publisher, publisher.put

    def put(self, payload: bytes, envelope: bytes) -> None:
        """Send a packet. If zenoh's queue stays full for 1 ms it is dropped, unless the address says `full=block`."""
        self._put(payload, attachment=envelope)

    def close(self) -> None:
        """Send no more."""
        self._publisher.undeclare()


class KeepingSender(ZenohSender):
    """Sends the packets of one key and keeps the newest."""

    __slots__ = ("_keep", "_key")

    def __init__(self, publisher: Any, key: str, kept: KeptPackets) -> None:
        super().__init__(publisher)
        self._key, self._keep = key, kept.keep
        kept.open_key(key)

    def put(self, payload: bytes, envelope: bytes) -> None:
        """Keep a packet and send it; with an empty payload, none is kept."""
        self._keep(self._key, payload, envelope)
        self._put(payload, attachment=envelope)


class ZenohTransport:
    """A participant of a zenoh network; its methods are those of `Transport`."""

    dialect: Dialect = ZENOH

    def __init__(self, options: ZenohOptions) -> None:
        self.options = options
        self.abilities = Abilities(largest=LARGEST)
        self._receiver: Receiver | None = None
        self._session: zenoh.Session | None = None
        self._mailbox = Mailbox(options.receive_capacity, options.receive_full == "drop_oldest")
        self._tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._worker = threading.Thread(target=self._work, name="genus-zenoh-tasks", daemon=True)
        self._own_tokens: set[str] = set()
        self._ended_tokens: deque[str] = deque(maxlen=MOST_ENDED)
        self._held: set[Any] = set()
        """What is declared: zenoh ends what nobody refers to."""
        self._is_connected = False
        self._unrecovered = 0
        self._process = os.getpid()

    def open(self, receiver: Receiver) -> None:
        """Connect to the network; BusError with the reason if it cannot be reached in time."""
        self._process = os.getpid()
        self._session = session = open_session(self.options)
        self._receiver = receiver
        self._kept = KeptPackets(session, self._mailbox.accept, self._tasks.put)
        self._mailbox.start(receiver)
        self._worker.start()
        self._watch_connection(session)

    def _watch_connection(self, session: "zenoh.Session") -> None:
        """Tell the receiver when the connection is made or lost; without a server there is none to lose."""
        if not self.options.has_server:
            self._mailbox.call(lambda: self._tell_connection(True))
            return
        put = import_zenoh().SampleKind.PUT
        others: set[str] = set()

        def changed(event: Any) -> None:
            # zenoh may still list a transport when it tells that it is gone, so they are counted here
            (others.add if event.kind == put else others.discard)(str(event.transport.zid))
            is_connected = bool(others)
            self._mailbox.call(lambda: self._tell_connection(is_connected))

        self._held.add(session.info.declare_transport_events_listener(changed, history=True))

    def _tell_connection(self, is_connected: bool) -> None:
        assert self._receiver is not None
        if is_connected != self._is_connected and self._session is not None:
            self._is_connected = is_connected
            self._receiver.connected(is_connected)

    # -- sending -----------------------------------------------------------------------------------------------------

    def sender(self, key: str, sending: Sending) -> ZenohSender:
        """Prepare to send packets under a key; BusError if it is too long."""
        _check(key, "key")
        blocks = self.options.full == "block"
        publisher = self._declare(
            f"send under {key!r}",
            lambda session: declare_publisher(session, key, sending, blocks, self.options.capacity),
        )
        self._held.discard(publisher)  # its sender refers to it
        return KeepingSender(publisher, key, self._kept) if sending.keep else ZenohSender(publisher)

    def declare(self, token: str) -> Callable[[], None]:
        """Show a token to all others while this process lives; returns a function to end it."""
        _check(token, "token")
        self._own_tokens.add(token)
        shown = self._declare(f"show {token!r}", lambda session: session.liveliness().declare_token(token))

        def end() -> None:
            self._ended_tokens.append(token)  # its own watchers are told later, by another thread
            self._own_tokens.discard(token)
            self._end(shown)

        return end

    # -- receiving ---------------------------------------------------------------------------------------------------

    def subscribe(self, pattern: str, *, kept: bool = False) -> Callable[[], None]:
        """Receive packets of keys that match, and those that were kept; returns a function to end it."""
        _check(pattern, "pattern")
        subscriber: PacketSubscriber = self._declare(
            f"subscribe to {pattern!r}", lambda session: self._subscriber(session, pattern)
        )
        if not kept:
            return lambda: self._end(subscriber)
        self._kept.ask(pattern)

        def end() -> None:
            self._kept.stop_asking(pattern)
            self._end(subscriber)

        return end

    def _subscriber(self, session: "zenoh.Session", pattern: str) -> PacketSubscriber:
        return PacketSubscriber(
            session,
            pattern,
            self._mailbox.accept,
            recovers=self.options.reliable,
            later=self._tasks.put,
            missed=self._count_unrecovered,
        )

    def subscribers(self, pattern: str) -> list[PacketSubscriber]:
        """The subscribers to a pattern."""
        return [each for each in self._held if isinstance(each, PacketSubscriber) and each.pattern == pattern]

    def _count_unrecovered(self, count: int) -> None:
        self._unrecovered += count

    def watch(self, pattern: str) -> Callable[[], None]:
        """Call `Receiver.token` with the tokens of others that match, present and future ones."""
        _check(pattern, "pattern")
        put = import_zenoh().SampleKind.PUT

        def changed(sample: Any) -> None:
            key, is_present = str(sample.key_expr), sample.kind == put
            if key not in self._own_tokens and key not in self._ended_tokens:
                self._mailbox.call(lambda: self._tell_token(key, is_present))

        watching = self._declare(
            f"watch {pattern!r}",
            lambda session: session.liveliness().declare_subscriber(pattern, changed, history=True),
        )
        return lambda: self._end(watching)

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
            declared.undeclare()

    # -- the rest ----------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        """Make calls of zenoh that its callbacks asked for, and keep the mailbox within its bound."""
        while True:
            try:
                task = self._tasks.get(timeout=DUE_S if self._kept.is_due else TRIM_S)
            except Empty:
                self._mailbox.trim()
                task = self._kept.ask_again
            if task is None:
                return
            self._do(task)

    def _do(self, task: Callable[[], None]) -> None:
        try:
            task()
        except BaseException as problem:  # the session is closed or lost, or it panics; other tasks must go on
            if self._session is not None:
                log.warning("zenoh: %s", problem)

    def counters(self) -> Mapping[str, int]:
        """Packets that were dropped here because handlers are slow, wait for them, are kept, or were not recovered."""
        return {
            "dropped on arrival": self._mailbox.dropped,
            "waiting": len(self._mailbox),
            "kept": len(self._kept) if self._receiver is not None else 0,
            "not recovered": self._unrecovered,
            **{f"failed: {name}": count for name, count in list(self._mailbox.failures.items())},
        }

    def close(self) -> None:
        """Leave the network; what arrived is still given to the receiver, for a short time."""
        session, self._session = self._session, None
        if session is None or self._process != os.getpid():
            return
        try:
            session.close()  # type: ignore[no-untyped-call]
        except import_zenoh().ZError as problem:
            log.warning("zenoh: the session did not close well: %s", problem)
        self._held.clear()
        self._tasks.put(None)
        self._mailbox.close()
        if self._worker is not threading.current_thread():
            self._worker.join(CLOSE_S)


def _check(text: str, what: str) -> None:
    """zenoh panics at what is too long, and the session cannot be used after that."""
    length = len(text.encode(errors="replace"))
    if length > LONGEST:
        raise BusError(f"zenoh: the {what} {text[:80]!r}... has {length:,} bytes, more than {LONGEST:,}")
