"""The thread that reads all connections of an `ipc:` bus, accepts new ones, and sends what waits in queues."""

import contextlib
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterable
from typing import Final

from genus.net._ipc.folder import prepare
from genus.net._ipc.frames import FramingLost
from genus.net._ipc.inbox import Inbox
from genus.net._ipc.outbox import Outbox
from genus.net._ipc.peer import Peer

_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
_READ_SIZE: Final = 1 << 18
_WATCH_S: Final = 0.001
_TRIES: Final = 20
_TELL_S: Final = 0.05
"""How often losses are told while there are some: they come in thousands."""


class Connections:
    """State: the listening socket, the connections, and their thread.

    `new_peer` makes a peer of a connection; `on_gone` gets a peer that left; `remove_dead` removes the socket of a
    process, or says that it is not dead; `tell_losses` tells the losses of this process.
    """

    def __init__(
        self,
        outbox: Outbox,
        new_peer: Callable[[socket.socket], Peer],
        on_gone: Callable[[Peer], None],
        remove_dead: Callable[[str], bool],
        tell_losses: Callable[[], None],
    ) -> None:
        self._outbox = outbox
        self._new_peer = new_peer
        self._on_gone = on_gone
        self._remove_dead = remove_dead
        self._dying: dict[str, int] = {}
        self._tell_losses = tell_losses
        self._selector = selectors.DefaultSelector()
        self._waker, self._woken = socket.socketpair()
        self._waker.setblocking(False)
        self._woken.setblocking(False)
        self._selector.register(self._woken, _READ)
        self._listener: socket.socket | None = None
        self._interest: dict[Peer, int] = {}
        self._paused: set[Peer] = set()
        self._view = memoryview(bytearray(_READ_SIZE))
        self._is_woken = self._may_resume = self._is_stopping = False
        self._told_at = 0.0
        self.thread = threading.Thread(target=self._run, name="genus-ipc", daemon=True)

    def start(self, listener: socket.socket, connections: Iterable[socket.socket], inbox: Inbox) -> None:
        self._listener = listener
        self._inbox = inbox
        self._selector.register(listener, _READ)
        for connection in connections:
            self._add(connection)
        self.thread.start()

    def wake(self) -> None:
        """Make the thread look after queues; may be called from any thread."""
        if not self._is_woken:
            self._is_woken = True
            with contextlib.suppress(OSError):  # no room, or closed: it is awake
                self._waker.send(b"\0")

    def resume(self) -> None:
        """Read again: the mailbox has room."""
        self._may_resume = True
        self.wake()

    def stop(self) -> None:
        """End the thread and close all connections."""
        self._is_stopping = True
        self.wake()
        if self.thread.is_alive() and threading.current_thread() is not self.thread:
            self.thread.join(2)
        self.close()

    def close(self) -> None:
        """Close all sockets."""
        for peer in self._interest:
            peer.connection.close()
        for each in (self._listener, self._waker, self._woken, self._selector):
            if each is not None:
                each.close()

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._is_stopping:
            for key, events in self._selector.select(self._timeout()):
                if isinstance(key.data, Peer):
                    self._serve(key.data, events)
                elif key.fileobj is self._listener:
                    self._accept()
                else:
                    self._look()
            if self._outbox.is_watched:
                self._flush()
            if self._dying:
                self._remove_dying()
            if self._has_losses() and time.monotonic() - self._told_at >= _TELL_S:
                self._tell()

    def _timeout(self) -> float | None:
        if self._outbox.is_watched:
            return _WATCH_S
        return _TELL_S if self._has_losses() or self._dying else None

    def _has_losses(self) -> bool:
        return bool(self._outbox.losses) or self._inbox.has_lost

    def _flush(self) -> None:
        with self._outbox.lock:
            self._outbox.is_watched = self._outbox.flush()

    def _tell(self) -> None:
        self._told_at = time.monotonic()
        self._inbox.tell_lost()
        self._tell_losses()

    def _look(self) -> None:
        """It was woken: queues may wait for room in a connection, or the mailbox may have room again."""
        with contextlib.suppress(OSError):
            self._woken.recv(4096)
        self._is_woken = False
        if self._may_resume:
            self._may_resume = False
            self._paused.clear()
        for peer in list(self._interest):
            self._set_interest(peer)

    def _accept(self) -> None:
        assert self._listener is not None
        with contextlib.suppress(OSError):  # it may have gone already
            connection, _ = self._listener.accept()
            prepare(connection)
            self._add(connection)

    def _add(self, connection: socket.socket) -> None:
        peer = self._new_peer(connection)
        self._interest[peer] = 0
        self._set_interest(peer)

    def _serve(self, peer: Peer, events: int) -> None:
        if events & _WRITE:
            with self._outbox.lock:
                peer.queue.send()
                self._outbox.changed.notify_all()
        if events & _READ and not self._read(peer):
            self._remove(peer)
        else:
            self._set_interest(peer)

    def _read(self, peer: Peer) -> bool:
        """Read once; whether the connection is still there."""
        try:
            size = peer.connection.recv_into(self._view)
        except BlockingIOError:
            return True
        except OSError:
            return False
        try:
            if size and not self._inbox.feed(peer, bytes(self._view[:size])):
                self._paused.add(peer)
        except FramingLost as problem:
            self._inbox.rejected[str(problem) or "bytes that are no frames"] += 1
            return False
        return size > 0

    def _remove(self, peer: Peer) -> None:
        if self._interest.pop(peer):
            self._selector.unregister(peer)
        self._paused.discard(peer)
        with self._outbox.lock:
            self._outbox.remove(peer)
        peer.connection.close()
        self._on_gone(peer)
        self._dying[peer.name] = _TRIES

    def _remove_dying(self) -> None:
        """Remove the sockets of processes that left; one that is killed closes its connections one after the other."""
        for name, tries in list(self._dying.items()):
            if self._remove_dead(name) or tries == 1:
                del self._dying[name]
            else:
                self._dying[name] = tries - 1

    def _set_interest(self, peer: Peer) -> None:
        wanted = (0 if peer in self._paused else _READ) | (_WRITE if peer.queue.is_stuck else 0)
        current = self._interest[peer]
        if wanted == current:
            return
        self._interest[peer] = wanted
        if not wanted:
            self._selector.unregister(peer)
        elif current:
            self._selector.modify(peer, wanted, peer)
        else:
            self._selector.register(peer, wanted, peer)
