"""`DatagramProxy`: a way between UDP clients and a server: datagrams are counted, lost, doubled and mixed up."""

import selectors
import socket
import threading
from collections.abc import Callable
from random import Random
from typing import Any

import msgspec

HELD = 2
"""A datagram that is mixed up comes after so many others, or when the way is quiet."""
QUIET_S = 0.02


class WayCounts(msgspec.Struct):
    """State: the datagrams that were sent on a way, the bytes in them, and how many were lost, doubled and held."""

    datagrams: int = 0
    bytes: int = 0
    lost: int = 0
    doubled: int = 0
    held: int = 0


class DatagramProxy:
    """Stands between UDP clients and a server at 127.0.0.1; use it in a `with` block.

    `lost`, `doubled` and `mixed` are the probabilities of what happens to a datagram, by a seed. While `is_cut` is set
    all are lost. `counts` has what clients and the server sent.

    >>> import socket
    >>> server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    >>> server.bind(("127.0.0.1", 0))
    >>> client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    >>> with DatagramProxy(server.getsockname()[1]) as proxy:
    ...     sent = client.sendto(b"hello", ("127.0.0.1", proxy.port))
    ...     server.recv(100), proxy.counts
    (b'hello', WayCounts(datagrams=1, bytes=5, lost=0, doubled=0, held=0))
    >>> client.close(), server.close()
    (None, None)
    """

    def __init__(
        self, server: int, *, seed: int = 0, lost: float = 0.0, doubled: float = 0.0, mixed: float = 0.0
    ) -> None:
        self.server = server
        self.lost, self.doubled, self.mixed = lost, doubled, mixed
        self.is_cut = False
        self.counts = WayCounts()
        self.seen: Callable[[bytes], object] = lambda datagram: None
        """Is called with each datagram before anything happens to it."""
        self._random = Random(seed)
        self._front = _bound()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._front, selectors.EVENT_READ)
        self._backs: dict[Any, socket.socket] = {}
        self._held: list[tuple[int, Callable[[], object]]] = []
        self._thread = threading.Thread(target=self._run, name="datagram-proxy", daemon=True)
        self._is_closed = threading.Event()

    @property
    def port(self) -> int:
        """The port for clients."""
        found: int = self._front.getsockname()[1]
        return found

    def __enter__(self) -> "DatagramProxy":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_closed.set()
        self._thread.join()
        for one in (self._front, *self._backs.values()):
            one.close()
        self._selector.close()

    def _run(self) -> None:
        while not self._is_closed.is_set():
            ready = self._selector.select(QUIET_S)
            for key, _ in ready:
                self._receive(key.fileobj, key.data)
            if not ready:
                self._release(HELD)

    def _receive(self, sock: Any, client: Any) -> None:
        try:
            data, sender = sock.recvfrom(65_536)
        except OSError:  # nobody listens at the other end: that is for the sender to find out
            return
        if sock is self._front:
            self._pass(data, lambda: self._back(sender).sendto(data, ("127.0.0.1", self.server)))
        else:
            self._pass(data, lambda: self._front.sendto(data, client))

    def _back(self, client: Any) -> socket.socket:
        """Return the socket that stands for a client at the server."""
        if client not in self._backs:
            self._backs[client] = made = _bound()
            self._selector.register(made, selectors.EVENT_READ, client)
        return self._backs[client]

    def _pass(self, data: bytes, send: Callable[[], object]) -> None:
        self.seen(data)
        self.counts.datagrams += 1
        self.counts.bytes += len(data)
        if self.is_cut or self._random.random() < self.lost:
            self.counts.lost += 1
            return
        self._release(1)
        if self._random.random() < self.mixed:
            self.counts.held += 1
            self._held.append((HELD, send))
        else:
            send()
        if self._random.random() < self.doubled:
            self.counts.doubled += 1
            send()

    def _release(self, steps: int) -> None:
        """Send the datagrams that were held for long enough."""
        held = [(left - steps, send) for left, send in self._held]
        self._held = [each for each in held if each[0] > 0]
        for left, send in held:
            if left <= 0:
                send()


def _bound() -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.bind(("127.0.0.1", 0))
    return made
