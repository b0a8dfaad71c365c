"""A process on an `ipc:` bus, for tests: `python -m tests.net.ipc_process` receives, counts and answers.

It is run with the arguments BUS PATTERN SECONDS, the time that its handler takes for each packet, and writes `ready`
when it has subscribed. Each line of its input is answered by a line: the number of packets received, how many numbers
were missing in the sequence that the payloads are, and the last number.

With the arguments `swarm` BUS COUNT it starts so many processes that open the bus at the same moment, subscribe to
`a/**`, and answer each packet under the key `counted/NAME` with the number of packets received.
"""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

from genus.net._addresses import parse_ipc_address
from genus.net._ipc.transport import IpcTransport
from genus.net._transport import Sending

ROOT = Path(__file__).parents[2]


class Counting:
    """A receiver that counts."""

    def __init__(self, seconds: float) -> None:
        self.count, self.missing, self.last = 0, 0, -1
        self._seconds = seconds

    def packet(self, key: str, envelope: bytes, payload: bytes) -> None:
        number = int.from_bytes(payload[:8])
        self.missing += number - self.last - 1
        self.last = number
        if self._seconds:
            time.sleep(self._seconds)
        self.count += 1

    def token(self, key: str, is_present: bool) -> None: ...

    def dropped(self, key: str, count: int, reason: str) -> None: ...

    def connected(self, is_connected: bool) -> None: ...


class Process:
    """Such a process, from outside."""

    def __init__(self, *arguments: object) -> None:
        command = [sys.executable, "-m", "tests.net.ipc_process", *map(str, arguments)]
        self.popen = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)

    def wait_until_ready(self) -> "Process":
        assert _file(self.popen.stdout).readline() == "ready\n"
        return self

    def ask(self) -> tuple[int, int, int]:
        """Packets received, missing numbers, and the last number."""
        _file(self.popen.stdin).write("?\n")
        _file(self.popen.stdin).flush()
        count, missing, last = map(int, _file(self.popen.stdout).readline().split())
        return count, missing, last

    def end(self) -> None:
        self.popen.kill()
        self.popen.communicate()


def _file(found: IO[str] | None) -> IO[str]:
    assert found is not None
    return found


def main(bus: str, pattern: str, seconds: str) -> None:
    transport, receiver = IpcTransport(*parse_ipc_address(bus)), Counting(float(seconds))
    transport.open(receiver)
    transport.declare(f"here/{transport.name}")
    transport.subscribe(pattern)
    print("ready", flush=True)
    for _ in sys.stdin:
        print(receiver.count, receiver.missing, receiver.last, flush=True)
    transport.close()


class Answering(Counting):
    """A receiver that tells how many packets it got."""

    def __init__(self, transport: IpcTransport) -> None:
        super().__init__(0)
        self._put = transport.sender(f"counted/{transport.name}", Sending()).put

    def packet(self, key: str, envelope: bytes, payload: bytes) -> None:
        super().packet(key, envelope, payload)
        self._put(b"%d" % self.count, b"")


def swarm(bus: str, count: str) -> None:
    """Start processes that wait for one moment; they end with this one's input."""
    start, alive = os.pipe(), os.pipe()
    for _ in range(int(count)):
        if not os.fork():
            one_of_swarm(bus, start, alive)
    os.close(start[1])
    sys.stdin.read()


def one_of_swarm(bus: str, start: tuple[int, int], alive: tuple[int, int]) -> None:
    """Begin when the parent has closed its end of a pipe, and end when it has closed the other one."""
    os.close(start[1])
    os.close(alive[1])
    os.read(start[0], 1)
    transport = IpcTransport(*parse_ipc_address(bus))
    transport.open(Answering(transport))
    transport.subscribe("a/**")
    transport.declare(f"here/{transport.name}")
    os.read(alive[0], 1)
    os._exit(0)


if __name__ == "__main__":
    swarm(*sys.argv[2:]) if sys.argv[1] == "swarm" else main(*sys.argv[1:])
