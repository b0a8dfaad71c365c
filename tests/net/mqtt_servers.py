"""MQTT servers for tests: mosquitto, if it is installed, and the small broker; and a receiver that remembers."""

import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from genus.net._mqtt.address import parse_mqtt_address
from genus.net._mqtt.transport import MqttTransport
from genus.testing import MqttBroker
from tests.programs import need
from tests.waiting import wait_for

PATIENCE_S = 30.0
KINDS = ("small", "mosquitto")


class Server(Protocol):
    """A server that can be stopped and started again, keeping what it has."""

    port: int

    def start(self) -> None: ...

    def stop(self) -> None: ...


class Mosquitto:
    """mosquitto on a free port, with a file of its own for what it keeps."""

    def __init__(self, folder: Path, *lines: str) -> None:
        program = need("mosquitto")
        self.port = free_port()
        self._command = [program, "-c", str(folder / "mosquitto.conf")]
        self._process: subprocess.Popen[bytes] | None = None
        text = [
            f"listener {self.port} 127.0.0.1",
            "persistence true",
            f"persistence_location {folder}/",
            "max_queued_messages 0",
            "user root",
            *(lines or ["allow_anonymous true"]),
        ]
        (folder / "mosquitto.conf").write_text("\n".join(text) + "\n")

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(lambda: self._answers(), "mosquitto does not answer")

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(PATIENCE_S)
            self._process = None


@contextmanager
def running(server: Server) -> Iterator[Server]:
    server.start()
    try:
        yield server
    finally:
        server.stop()


def make_server(kind: str, folder: Path) -> Server:
    return MqttBroker() if kind == "small" else Mosquitto(folder)


class Listener:
    """A receiver that remembers what it was told."""

    def __init__(self) -> None:
        self.packets: list[tuple[str, bytes, bytes]] = []
        self.tokens: list[tuple[str, bool]] = []
        self.drops: dict[tuple[str, str], int] = {}
        self.connections: list[bool] = []
        self.on_packet: Callable[[str, bytes], None] | None = None
        self._lock = threading.Lock()

    def packet(self, key: str, envelope: bytes, payload: bytes) -> None:
        self.packets.append((key, envelope, payload))
        if self.on_packet is not None:
            self.on_packet(key, payload)

    def token(self, key: str, is_present: bool) -> None:
        self.tokens.append((key, is_present))

    def dropped(self, key: str, count: int, reason: str) -> None:
        with self._lock:
            self.drops[key, reason] = self.drops.get((key, reason), 0) + count

    def connected(self, is_connected: bool) -> None:
        self.connections.append(is_connected)

    @property
    def payloads(self) -> list[bytes]:
        return [payload for _, _, payload in self.packets]

    @property
    def present(self) -> set[str]:
        """The tokens that are present now."""
        now: set[str] = set()
        for token, is_present in list(self.tokens):
            (now.add if is_present else now.discard)(token)
        return now


@contextmanager
def participant(server: Server, query: str = "", at: str = "127.0.0.1") -> Iterator[tuple[MqttTransport, Listener]]:
    """A transport that is open, with its receiver."""
    transport = MqttTransport(parse_mqtt_address(f"//{at}:{server.port}/city?{query}".rstrip("?")))
    listener = Listener()
    transport.open(listener)
    try:
        yield transport, listener
    finally:
        transport.close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])
