"""Connections of an `ipc:` bus: how processes find each other, and the thread that sends and receives.

The folder of an `ipc:` bus: one listening socket for each process, in a folder that only its user may enter.

Processes open a bus one at a time, under a lock: each shows its socket and connects to all that are there. So each pair
has one connection, made by the later one; nobody looks for newcomers, and no clock is read. The system releases the
lock of a process that dies.

The thread that reads all connections of an `ipc:` bus, accepts new ones, and sends what waits in queues.
"""

import contextlib
import errno
import fcntl
import os
import selectors
import socket
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from genus.errors import BusError
from genus.net._ipc.inbox import Inbox, Outbox
from genus.net._ipc.peer import FramingLost, Peer

_MAX_PATH: Final = 100
"""Bytes of the path of a socket; systems allow 104 to 108."""
_LOCK_WAIT_S: Final = 10.0
_BACKLOG: Final = 1024
_SEND_BUFFER: Final = 1 << 20
"""Bytes that a connection holds for a receiver that is busy for a moment; systems may allow less."""


def ipc_folder(name: str) -> Path:
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if os.path.isdir(runtime):
        return Path(runtime) / "genus" / name
    return Path(tempfile.gettempdir()) / f"genus-{os.getuid()}" / name


class IpcFolder:
    """State: this process's socket in the folder of a bus."""

    def __init__(self, name: str) -> None:
        if not name.isascii() or not name.replace("-", "").replace("_", "").isalnum():
            raise BusError(f"ipc:{name}: use letters, digits, - and _ in the name of a bus")
        self._path = ipc_folder(name)
        self._handle = -1
        self.own = f"{os.getpid()}-{os.urandom(6).hex()}"

    def enter(self) -> tuple[socket.socket, list[socket.socket]]:
        """Make a listening socket and connections to all processes that are there.

        Raises:
            BusError: The folder cannot be used; the message says why.
        """
        try:
            for folder, closed_to_others in ((self._path.parent, 0o022), (self._path, 0o077)):
                folder.mkdir(mode=0o700, exist_ok=True)
                _check_private(folder, closed_to_others)
            self._handle = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            with self._opening():
                listener = self._listen()
                return listener, self._connect_all()
        except OSError as problem:
            self.leave()
            raise BusError(f"cannot open the bus in {self._path}: {problem.strerror or problem}") from None

    def leave(self) -> None:
        if self._handle >= 0:
            with contextlib.suppress(OSError):
                os.unlink(self.own, dir_fd=self._handle)
            self.release()

    def release(self) -> None:
        """Leave the folder as it is: for a child process, which shares it with its parent."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def remove_if_dead(self, name: str) -> bool:
        """Remove the socket of a process that ended without leaving, and say if it did; names are never used again."""
        if self._handle >= 0 and "/" not in name and (found := self._connect(name)) is not None:
            found.close()
            return False
        return True

    @contextlib.contextmanager
    def _opening(self) -> Iterator[None]:
        """Wait for other processes that are opening the same bus."""
        lock = os.open(self._path.with_name(f".{self._path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            deadline = time.monotonic() + _LOCK_WAIT_S
            while not _try_lock(lock):
                if time.monotonic() > deadline:
                    raise BusError(f"cannot open the bus in {self._path}: another process is opening it and stands")
                time.sleep(0.002)
            yield
        finally:
            os.close(lock)

    def _listen(self) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(self._address(self.own))
            listener.listen(_BACKLOG)
            listener.setblocking(False)
        except OSError:
            listener.close()
            raise
        return listener

    def _connect_all(self) -> list[socket.socket]:
        with os.scandir(self._path) as entries:
            names = [entry.name for entry in entries if _is_socket(entry) and entry.name != self.own]
        return [found for found in map(self._connect, names) if found is not None]

    def _connect(self, name: str) -> socket.socket | None:
        """Return a connection to a process, or None if it is dead; then its socket is removed."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        prepare(connection)
        try:
            connection.connect(self._address(name))
        except OSError as problem:
            connection.close()
            if problem.errno in (errno.ECONNREFUSED, errno.ENOENT):
                with contextlib.suppress(OSError):
                    os.unlink(name, dir_fd=self._handle)
            return None
        return connection

    def _address(self, name: str) -> str:
        """The address of a socket; a long one is written by the number of the open folder, where the system can."""
        path = str(self._path / name)
        if len(os.fsencode(path)) > _MAX_PATH and os.path.isdir("/proc/self/fd"):
            return f"/proc/self/fd/{self._handle}/{name}"
        return path


def prepare(connection: socket.socket) -> None:
    """Set the options of a connection; it never blocks."""
    connection.setblocking(False)
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)


def _try_lock(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _check_private(folder: Path, closed_to_others: int) -> None:
    """Refuse a folder that another user made, or whose mode has one of these bits."""
    found = folder.lstat()
    if found.st_uid != os.getuid():
        raise BusError(f"cannot open the bus in {folder}: it belongs to another user")
    if found.st_mode & closed_to_others:
        raise BusError(f"cannot open the bus in {folder}: others may enter it; run `chmod 700 {folder}`")


def _is_socket(entry: "os.DirEntry[str]") -> bool:
    return stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode)


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
