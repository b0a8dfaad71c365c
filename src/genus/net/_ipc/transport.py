"""`ipc:NAME`: packets between the processes of one user on one machine, without a server.

Each pair of processes has one connection, a Unix stream socket (`_ipc_folder`), which carries frames both ways
(`_ipc_frames`). A packet goes only to the processes that subscribed to its key, each of which has a bounded queue
(`_ipc_queue`, `_ipc_outbox`), so that one that is slow or stopped costs the others nothing. One thread reads all
connections and sends what waits (`connections`); another delivers (`mailbox`).

Losses: a packet that found a queue full is told to the publisher by `Receiver.dropped`, also if it was the mailbox of
the receiver that was full, which tells the sender (a frame LOST). The receiver finds both by the gaps in the numbers of
the packets, as on all transports, so that it needs no notice of its own. Nothing else is lost: a packet that was sent
is in the other process's socket, even if this one is killed.

`subscribe` returns when the other processes know the pattern, and `open` when their patterns are known here, so that
what is published next is not missed; neither waits for a process that was stopped.
"""

import contextlib
import os
import socket
import time
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from genus.errors import BusError
from genus.net._addresses import IpcOptions
from genus.net._ipc.connections import Connections, IpcFolder
from genus.net._ipc.inbox import CLOSED, Inbox, Outbox, PacketSender
from genus.net._ipc.peer import MAX_PAYLOAD, MAX_TEXT, Peer, TokenBoard
from genus.net._ipc.queues import DeliveringMailbox
from genus.net._transport import Abilities, Receiver, Sending
from genus.targets.topics import ZENOH, Dialect

_ANSWER_S: Final = 2.0
_LOOK_S: Final = 0.02
_FLUSH_S: Final = 1.0
_NO_PROGRESS_S: Final = 0.2

_OPEN: "weakref.WeakSet[IpcTransport]" = weakref.WeakSet()


class IpcTransport:
    """A connection to the other processes that opened the same name."""

    def __init__(self, name: str, options: IpcOptions | None = None) -> None:
        self._folder = IpcFolder(name)
        self._options = options = options or IpcOptions()
        self._mailbox = DeliveringMailbox(options.receive_capacity, options.receive_overflow, self._resume)
        self._outbox = Outbox(options.capacity, options.overflow, self._wake, self._may_wait)
        self._board = TokenBoard(self._token)
        self._inbox = Inbox(self._outbox, self._mailbox, self._board)
        self._connections: Connections | None = None
        self._receiver: Receiver | None = None
        self._questions = 0
        self._is_closed = False

    @property
    def name(self) -> str:
        return self._folder.own

    @property
    def dialect(self) -> Dialect:
        return ZENOH

    @property
    def abilities(self) -> Abilities:
        """It keeps and loses nothing on the way; what a full queue drops is told."""
        return Abilities(keeps=True, reliable=True, largest=MAX_PAYLOAD)

    def open(self, receiver: Receiver) -> None:
        """Connect to all processes that are there, and wait until their patterns are known.

        Raises:
            BusError: The folder of the bus cannot be used.
        """
        listener, connections = self._folder.enter()
        self._receiver = receiver
        self._connections = Connections(
            self._outbox, self._new_peer, self._inbox.gone, self._folder.remove_if_dead, self._tell_losses
        )
        self._connections.start(listener, connections, self._inbox)
        self._mailbox.call_first(partial(receiver.connected, True))
        self._mailbox.deliver(receiver.packet)
        _OPEN.add(self)
        with self._outbox.lock:
            self._wait_for_peers(lambda peer: peer.is_known)

    def sender(self, key: str, sending: Sending) -> PacketSender:
        """Prepare to send packets under a key; BusError if it is not valid."""
        return PacketSender(self._outbox, key, sending)

    def subscribe(self, pattern: str, *, kept: bool = False) -> Callable[[], None]:
        """Receive packets of keys that match; returns when the other processes know it."""
        _check(ZENOH.is_pattern(pattern), pattern, "pattern")
        with self._outbox.lock:
            self._questions += 1
            number = self._questions
            frame = self._outbox.shown.subscribe(pattern, kept, number)
            if frame is not None:
                self._outbox.show(frame)
                self._wait_for_peers(lambda peer: peer.answered >= number)
        return self._once(partial(self._outbox.shown.unsubscribe, pattern, kept))

    def declare(self, token: str) -> Callable[[], None]:
        """Show a token to all others while this process lives; returns a function to end it."""
        _check(ZENOH.is_key(token), token, "token")
        with self._outbox.lock:
            self._outbox.show(self._outbox.shown.declare(token))
        return self._once(partial(self._outbox.shown.undeclare, token))

    def watch(self, pattern: str) -> Callable[[], None]:
        """Call `Receiver.token` with the tokens of others that match, present and future ones.

        It returns after the call with those that are present, unless that takes long.
        """
        _check(ZENOH.is_pattern(pattern), pattern, "pattern")
        self._mailbox.call_and_wait(partial(self._board.watch, pattern), _ANSWER_S)
        ended: list[bool] = []

        def end() -> None:
            if not ended:
                ended.append(True)
                self._mailbox.call_first(partial(self._board.unwatch, pattern))

        return end

    def call(self, function: Callable[[], None]) -> None:
        """Call a function in the thread of the receiver, before the packets that wait."""
        self._mailbox.call(function)

    def counters(self) -> Mapping[str, int]:
        """Packets sent (once for each receiver) and received; those dropped here and frames rejected, by reason."""
        with self._outbox.lock:
            found = {"packets sent": self._outbox.sent(), "packets received": self._mailbox.received}
            found |= {f"dropped: {reason}": count for reason, count in self._outbox.losses.totals.items()}
        found |= {f"rejected: {reason}": count for reason, count in list(self._inbox.rejected.items()) if count}
        found |= dict(self._mailbox.failures)
        if self._mailbox.dropped:
            found["dropped: the mailbox is full"] = self._mailbox.dropped
        return found

    def close(self) -> None:
        """Send what waits, for a second, to those that take it; then leave."""
        with self._outbox.lock:
            if self._is_closed:
                return
            self._is_closed = True
            self._outbox.close()
            self._folder.leave()
            self._drain()
            for peer in self._outbox.peers:
                peer.queue.drop_all(CLOSED)
        _OPEN.discard(self)
        if self._connections is not None:
            self._connections.stop()
        self._mailbox.close(2.0, drops=True)
        self._tell_losses_now()

    # -- waiting for others --------------------------------------------------------------------------------------------

    def _wait_for_peers(self, is_done: Callable[[Peer], bool]) -> None:
        """Wait, with the lock, until it is true of all peers, but for those that are stopped or late."""
        deadline = time.monotonic() + _ANSWER_S
        while waiting := [peer for peer in self._outbox.peers if not (is_done(peer) or peer.is_late)]:
            if self._is_closed:
                return
            if not self._outbox.changed.wait(_LOOK_S):
                is_over = time.monotonic() > deadline
                for peer in waiting:
                    peer.is_late = is_over or peer.is_stopped()

    def _drain(self) -> None:
        """Wait, with the lock, while queues get shorter."""
        deadline = time.monotonic() + _FLUSH_S
        before = -1
        while (left := sum(peer.queue.left for peer in self._outbox.peers)) and time.monotonic() < deadline:
            if left == before:
                return
            before = left
            self._outbox.changed.wait(_NO_PROGRESS_S)

    # -- called by the parts -------------------------------------------------------------------------------------------

    def _new_peer(self, connection: socket.socket) -> Peer:
        box = self._outbox
        with box.lock:
            peer = Peer(connection, self._folder.own, self._options.capacity, box.losses, box.shown.encode)
            box.add_peer(peer)
        return peer

    def _wake(self) -> None:
        if self._connections is not None:
            self._connections.wake()

    def _resume(self) -> None:
        if self._connections is not None:
            self._connections.resume()

    def _may_wait(self) -> bool:
        """A handler may not wait for others if they may have to wait for it."""
        return not (self._options.receive_overflow == "block" and self._mailbox.is_own_thread)

    def _token(self, token: str, is_present: bool) -> None:
        if self._receiver is not None:
            self._mailbox.guarded(partial(self._receiver.token, token, is_present))

    def _tell_losses(self) -> None:
        self._mailbox.call_first(self._tell_losses_now)

    def _tell_losses_now(self) -> None:
        with self._outbox.lock:
            losses = self._outbox.losses.take()
        if self._receiver is not None:
            for key, count, reason in losses:
                self._receiver.dropped(key, count, reason)

    def _once(self, change: Callable[[], bytes | None]) -> Callable[[], None]:
        """A function that makes a change of what is shown, and does nothing when it is called again."""
        ended: list[bool] = []

        def end() -> None:
            with self._outbox.lock:
                if not ended:
                    ended.append(True)
                    self._outbox.show(change())

        return end

    def abandon(self) -> None:
        """Close all sockets and nothing else: for a child process, which has no right to them."""
        self._is_closed = True
        self._outbox.abandon()
        self._folder.release()
        if self._connections is not None:
            self._connections.close()


def _check(is_valid: bool, text: str, what: str) -> None:
    if not is_valid or len(text) > MAX_TEXT:
        raise BusError(f"{text[:200]!r} is not a {what} of an ipc: bus")


def _abandon_all() -> None:
    for transport in list(_OPEN):
        with contextlib.suppress(OSError):
            transport.abandon()
    _OPEN.clear()


os.register_at_fork(after_in_child=_abandon_all)
