"""What tests of zenoh share: a receiver that remembers, free ports, routers and participants in other processes."""

import json
import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from genus.net._addresses import parse_zenoh_address
from genus.net._zenoh_transport import ZenohSender, ZenohTransport
from tests.waiting import wait_for

PATIENCE_S = 20.0


class Collector:
    """A receiver that remembers what it was told."""

    def __init__(self) -> None:
        self.packets: list[tuple[str, bytes, bytes]] = []
        self.tokens: dict[str, bool] = {}
        self.connections: list[bool] = []
        self.threads: set[int] = set()

    def packet(self, key: str, envelope: bytes, payload: bytes) -> None:
        self.threads.add(threading.get_ident())
        self.packets.append((key, envelope, payload))

    def token(self, key: str, is_present: bool) -> None:
        self.threads.add(threading.get_ident())
        self.tokens[key] = is_present

    def dropped(self, key: str, count: int, reason: str) -> None:
        raise AssertionError("zenoh does not tell what it drops")

    def connected(self, is_connected: bool) -> None:
        self.connections.append(is_connected)

    @property
    def payloads(self) -> list[bytes]:
        return [payload for _, _, payload in self.packets]

    def numbers(self) -> list[int]:
        return [int(payload) for payload in self.payloads]


def put_until(senders: ZenohSender | list[ZenohSender], condition: Callable[[], Any], payload: bytes = b"-1") -> None:
    """Send packets until a condition holds: until a subscription has become known, say."""

    def put_and_look() -> Any:
        for sender in senders if isinstance(senders, list) else [senders]:
            sender.put(payload, b"envelope")
        return condition()

    wait_for(put_and_look)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def participant(address: str, receiver: Collector | None = None) -> Iterator[tuple[ZenohTransport, Collector]]:
    transport, collector = ZenohTransport(parse_zenoh_address(address)), receiver or Collector()
    transport.open(collector)
    try:
        yield transport, collector
    finally:
        transport.close()


class Process:
    """Another process that runs a program and answers in lines."""

    def __init__(self, program: str, *arguments: object) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", program, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )

    def ask(self, text: str) -> str:
        """Say a line; returns its answer."""
        self.say(text)
        return self.line()

    def line(self) -> str:
        """The next line that it prints."""
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], PATIENCE_S)
        assert ready, "the other process says nothing"
        return self._process.stdout.readline().strip()

    def say(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(text + "\n")
        self._process.stdin.flush()

    def signal(self, number: int) -> None:
        """Send it a signal: to stop it, say."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """End it as a crash does, without any last words."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()


ROUTER = """
import json, sys, zenoh
config = zenoh.Config()
for name, value in json.loads(sys.argv[1]).items():
    config.insert_json5(name, json.dumps(value))
session = zenoh.open(config)
print("ready", flush=True)
sys.stdin.read()
"""


@contextmanager
def router(endpoint: str, **settings: Any) -> Iterator[Process]:
    """A router in another process; setting names have `__` for `/`."""
    process = Process(ROUTER, json.dumps(router_settings(endpoint, settings)))
    try:
        assert process.line() == "ready"
        yield process
    finally:
        process.kill()


def router_settings(endpoint: str, settings: dict[str, Any]) -> dict[str, Any]:
    return {
        "mode": "router",
        "listen/endpoints": [endpoint],
        "scouting/multicast/enabled": False,
        "transport/shared_memory/enabled": False,
        **{name.replace("__", "/"): value for name, value in settings.items()},
    }
