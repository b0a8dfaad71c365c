"""The folder of an `ipc:` bus: one listening socket for each process, in a folder that only its user may enter.

Processes open a bus one at a time, under a lock: each shows its socket and connects to all that are there. So each pair
has one connection, made by the later one; nobody looks for newcomers, and no clock is read. The system releases the
lock of a process that dies.
"""

import contextlib
import errno
import fcntl
import os
import socket
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from genus.errors import BusError

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
