"""`ipc:NAME`: a bus between the processes of one user on one machine, without a server.

Every process binds a Unix datagram socket in a folder that only the user may enter, and sends each event to all other
sockets there. A receiver whose buffer stays full for half a second loses events until it has room again (counted); the
socket of a dead process is removed. A process does not get events that were published before it opened the bus.
"""

import contextlib
import os
import socket
import stat
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from genus.bus._codec import EventDecoder, Recorded, Rejected, encode_event
from genus.bus._interest import InterestFile, PeerInterests, remove_interest
from genus.bus._link import TroubleHandler
from genus.errors import BusError
from genus.filters import Subscription
from genus.model import Event

_SEND_TIMEOUT_S = 0.5
_MAX_PACKET = 1 << 18


class IpcLink:
    """A link to the other processes that opened the same name."""

    def __init__(self, name: str) -> None:
        if not name.isascii() or not name.replace("-", "").replace("_", "").isalnum():
            raise BusError(f"ipc:{name}: use letters, digits, - and _ in the name of a bus")
        self._folder = ipc_folder(name)
        self._own = self._folder / f"{os.getpid()}-{os.urandom(4).hex()}"
        self._socket = self._bind()
        self._interest = InterestFile(self._own)
        self._peer_interests = PeerInterests()
        self._peers: dict[str, socket.socket] = {}
        self._congested: set[str] = set()
        self._listed_at = -1
        self._counts: Counter[str] = Counter()
        self._decoder = EventDecoder()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closing = False

    def _bind(self) -> socket.socket:
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            bound = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
            bound.bind(str(self._own))
        except OSError as problem:
            raise BusError(f"cannot open the bus in {self._folder}: {problem.strerror or problem}") from None
        return bound

    def open(self, deliver: Callable[[Event], None]) -> None:
        """Receive in a thread of its own."""
        self._thread = threading.Thread(target=self._receive, args=(deliver,), name="genus-ipc", daemon=True)
        self._thread.start()

    def send(self, event: Event) -> None:
        """Send to all other processes; events that are too large or find a receiver full are counted, not raised."""
        packet = encode_event(event, time.time_ns() // 1000)
        with self._lock:
            try:
                self._find_peers()
            except OSError as problem:
                self._counts[f"dropped: {problem.strerror}: {self._folder}"] += 1
            for name in list(self._peers):
                self._send_to(name, packet)

    def listen(self, subscription: Subscription, on_trouble: TroubleHandler | None) -> Callable[[], None]:
        """Show the other processes what this one subscribed to; returns a function that ends it."""
        return self._interest.add(subscription)

    def subscribers(self, event: Event, known: Collection[str] = ()) -> set[str]:
        """The processes that subscribed to an event, but for those in `known`; each by the name of its socket."""
        with self._lock:
            with contextlib.suppress(OSError):
                self._find_peers()
            others = set(self._peers).difference(known)
        return {name for name in others if self._peer_interests.is_wanted(event, self._folder / name)}

    def wanted_by(self, event: Event) -> set[str]:
        """The processes that subscribed to an event."""
        return self.subscribers(event)

    def on_wants(self, changed: Callable[[], None]) -> Callable[[], None]:
        """What others want is read from files when it is asked for, so that no change is told."""
        return lambda: None

    def counters(self) -> Mapping[str, int]:
        """Events sent and received, losses by reason, and values that the classes here have no attribute for."""
        unread = dict(self._decoder.unread)
        return dict(self._counts) | {f"not read: {label}": count for label, count in unread.items()}

    def close(self) -> None:
        """Leave the bus."""
        self._closing = True
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as waker:
            waker.setblocking(False)  # a queue too full to wake the receiver keeps it awake anyway
            waker.sendto(b"", str(self._own))
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(2)
        self._interest.remove()
        self._own.unlink(missing_ok=True)
        self._socket.close()
        with self._lock:
            for peer in self._peers.values():
                peer.close()
            self._peers.clear()

    def _find_peers(self) -> None:
        """Connect to the sockets that appeared since the folder last changed."""
        changed_at = self._folder.stat().st_mtime_ns
        if changed_at == self._listed_at:
            return
        self._listed_at = changed_at
        present = {entry.name for entry in os.scandir(self._folder) if _is_socket(entry)} - {self._own.name}
        for gone in set(self._peers) - present:
            self._peers.pop(gone).close()
        for name in present - set(self._peers):
            self._connect(name)

    def _connect(self, name: str) -> None:
        peer = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        try:
            peer.connect(str(self._folder / name))
        except OSError as problem:
            peer.close()
            if isinstance(problem, ConnectionRefusedError):
                self._forget(name)
            return
        self._peers[name] = peer

    def _send_to(self, name: str, packet: bytes) -> None:
        peer = self._peers[name]
        peer.settimeout(0 if name in self._congested else _SEND_TIMEOUT_S)
        try:
            peer.send(packet)
        except (TimeoutError, BlockingIOError):
            self._congested.add(name)
            self._counts["dropped: receiver full"] += 1
        except (ConnectionRefusedError, ConnectionResetError, FileNotFoundError):
            self._peers.pop(name).close()
            self._forget(name)
        except OSError as problem:
            self._counts[f"dropped: {problem.strerror}"] += 1
        else:
            self._congested.discard(name)
            self._counts["sent"] += 1

    def _forget(self, name: str) -> None:
        """Remove the files of a process that has ended without closing its bus."""
        remove_interest(self._folder / name)
        (self._folder / name).unlink(missing_ok=True)

    def _receive(self, deliver: Callable[[Event], None]) -> None:
        while not self._closing:
            try:
                packet = self._socket.recv(_MAX_PACKET)
            except OSError:
                return
            if self._closing:
                return
            found = self._decoder.decode(packet)
            if isinstance(found, Recorded):
                self._counts["received"] += 1
                deliver(found.event)
            elif isinstance(found, Rejected):
                self._counts[f"rejected: {found.reason}"] += 1


def _is_socket(entry: "os.DirEntry[str]") -> bool:
    return stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode)


def ipc_folder(name: str) -> Path:
    """The folder whose sockets make up a bus."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if os.path.isdir(runtime):
        return Path(runtime) / "genus" / name
    return Path(tempfile.gettempdir()) / f"genus-{os.getuid()}" / name
